//! Records to bytes: one batch of one record for a state change, as a coordinator appends it.
//!
//! The layouts are those of [`redrive::batch`] and [`redrive::transaction_log`]; this way there copies every field once
//! and allocates nothing.

use redrive::batch::{BatchBuilder, HEADER_LEN, NewRecord};
use redrive::transaction_log::{TransactionState, ValueVersion, encode_key};
use redrive::types::Offset;

/// Bytes of the header that come before the length has its end, and are not counted by it.
const LOG_OVERHEAD: usize = 12;
/// The checksum covers everything from here.
const CRC_START: usize = 21;
const NO_PRODUCER_ID: i64 = -1;

/// What a coordinator stores for an id (Kafka's TxnTransitMetadata).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Image<'a> {
    pub(super) version: ValueVersion,
    pub(super) producer_id: i64,
    pub(super) producer_epoch: i16,
    pub(super) timeout_ms: i32,
    pub(super) state: TransactionState,
    /// The field `transactionPartitions`, encoded for the version.
    pub(super) partitions: &'a [u8],
    pub(super) last_update_ms: i64,
    pub(super) start_ms: i64,
    /// Version 1 only, as all that follow. −1 = none.
    pub(super) previous_producer_id: i64,
    /// −1 = none.
    pub(super) next_producer_id: i64,
    pub(super) client_version: i16,
}

impl Image<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.version.code().to_be_bytes());
        out.extend_from_slice(&self.producer_id.to_be_bytes());
        out.extend_from_slice(&self.producer_epoch.to_be_bytes());
        out.extend_from_slice(&self.timeout_ms.to_be_bytes());
        out.extend_from_slice(&self.state.code().to_be_bytes());
        out.extend_from_slice(self.partitions);
        out.extend_from_slice(&self.last_update_ms.to_be_bytes());
        out.extend_from_slice(&self.start_ms.to_be_bytes());
        if self.version == ValueVersion::V0 {
            return;
        }
        let has_previous = self.previous_producer_id != NO_PRODUCER_ID;
        let has_next = self.next_producer_id != NO_PRODUCER_ID;
        let has_client_version = self.client_version != 0;
        out.push(u8::from(has_previous) + u8::from(has_next) + u8::from(has_client_version));
        if has_previous {
            out.extend_from_slice(&[0, 8]);
            out.extend_from_slice(&self.previous_producer_id.to_be_bytes());
        }
        if has_next {
            out.extend_from_slice(&[1, 8]);
            out.extend_from_slice(&self.next_producer_id.to_be_bytes());
        }
        if has_client_version {
            out.extend_from_slice(&[2, 2]);
            out.extend_from_slice(&self.client_version.to_be_bytes());
        }
    }

    /// Bytes that [`write`](Self::write) appends.
    fn len(&self) -> usize {
        let fixed = 33 + self.partitions.len();
        match self.version {
            ValueVersion::V0 => fixed,
            ValueVersion::V1 => {
                let ids = [self.previous_producer_id, self.next_producer_id];
                let ids = ids.into_iter().filter(|&id| id != NO_PRODUCER_ID).count();
                fixed + 1 + 10 * ids + if self.client_version == 0 { 0 } else { 4 }
            }
        }
    }
}

/// Appends the batch of one state change to `out`. `key` is the record's key as [`encode_key`] makes it.
pub(super) fn write_state(
    out: &mut Vec<u8>,
    offset: i64,
    leader_epoch: i32,
    timestamp_ms: i64,
    key: &[u8],
    image: &Image<'_>,
) {
    let start = out.len();
    out.extend_from_slice(&offset.to_be_bytes());
    out.extend_from_slice(&[0; 4]); // length, below
    out.extend_from_slice(&leader_epoch.to_be_bytes());
    out.extend_from_slice(&[2, 0, 0, 0, 0]); // magic; CRC, below
    out.extend_from_slice(&[0; 6]); // attributes, last offset delta
    out.extend_from_slice(&timestamp_ms.to_be_bytes());
    out.extend_from_slice(&timestamp_ms.to_be_bytes());
    out.extend_from_slice(&[0xff; 14]); // no producer id, epoch, sequence
    out.extend_from_slice(&1i32.to_be_bytes());
    debug_assert_eq!(out.len() - start, HEADER_LEN);

    let value_bytes = image.len();
    let lengths = varint_len(key.len()) + varint_len(value_bytes);
    // Attributes, both deltas and the number of headers are one zero byte each.
    push_varint(out, 4 + lengths + key.len() + value_bytes);
    out.extend_from_slice(&[0; 3]);
    push_varint(out, key.len());
    out.extend_from_slice(key);
    push_varint(out, value_bytes);
    let value_start = out.len();
    image.write(out);
    debug_assert_eq!(out.len() - value_start, value_bytes);
    out.push(0);

    let batch = &mut out[start..];
    let length = u32::try_from(batch.len() - LOG_OVERHEAD).expect("ids and topics are short");
    batch[8..12].copy_from_slice(&length.to_be_bytes());
    let crc = crc32c::crc32c(&batch[CRC_START..]);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
}

/// Appends one batch with a tombstone for each key, at consecutive offsets: what an expiry appends.
pub(super) fn write_tombstones(
    out: &mut Vec<u8>,
    offset: i64,
    leader_epoch: i32,
    timestamp_ms: i64,
    keys: &[Vec<u8>],
) {
    let mut builder = BatchBuilder::new(Offset(offset));
    builder.leader_epoch(leader_epoch);
    for key in keys {
        let record = NewRecord { timestamp: timestamp_ms, key: Some(key), value: None, headers: &[] };
        builder.push(&record).expect("a hundred short keys fit into a batch");
    }
    out.extend_from_slice(&builder.build().expect("no codec, and few bytes"));
}

/// Replaces `key` by the key of an id.
pub(super) fn set_key(key: &mut Vec<u8>, id: &[u8]) {
    key.clear();
    encode_key(id, key).expect("ids are shorter than 32 KiB");
}

/// A length as Kafka's signed varint: zigzag, then seven bits a byte, lowest first.
fn push_varint(out: &mut Vec<u8>, length: usize) {
    let mut rest = length << 1;
    while rest > 0x7f {
        // The lower seven bits.
        out.push((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

fn varint_len(length: usize) -> usize {
    match length {
        0..=63 => 1,
        64..=8191 => 2,
        _ => 3,
    }
}

#[cfg(test)]
mod tests {
    use redrive::batch::{BatchFrame, Decompressor, Limits};
    use redrive::transaction_log::{TransactionMetadata, Value};
    use redrive::types::ProducerId;

    use super::*;

    /// The engine's own encoders, which share no code with this file but the key's.
    fn by_the_engine(offset: i64, timestamp: i64, key: &[u8], image: &Image<'_>) -> Vec<u8> {
        let metadata = TransactionMetadata {
            producer_id: ProducerId(image.producer_id),
            producer_epoch: image.producer_epoch,
            transaction_timeout_ms: image.timeout_ms,
            state: image.state,
            partitions: (image.state != TransactionState::Empty).then(Vec::new),
            last_update_timestamp_ms: image.last_update_ms,
            start_timestamp_ms: image.start_ms,
            previous_producer_id: ProducerId(image.previous_producer_id),
            next_producer_id: ProducerId(image.next_producer_id),
            next_producer_epoch: -1,
            client_transaction_version: image.client_version,
            unknown_tagged_fields: Vec::new(),
        };
        let mut value = Vec::new();
        metadata.encode(image.version, &mut value).unwrap();
        let mut builder = BatchBuilder::new(Offset(offset));
        builder.leader_epoch(5);
        builder.push(&NewRecord { timestamp, key: Some(key), value: Some(&value), headers: &[] }).unwrap();
        builder.build().unwrap()
    }

    #[test]
    fn batches_are_the_engines() {
        let mut image = Image {
            version: ValueVersion::V1,
            producer_id: 1007,
            producer_epoch: 32_766,
            timeout_ms: 60_000,
            state: TransactionState::CompleteCommit,
            partitions: &[1],
            last_update_ms: 1_700_000_000_123,
            start_ms: 1_700_000_000_000,
            previous_producer_id: 1007,
            next_producer_id: -1,
            client_version: 2,
        };
        for id_bytes in [1, 36, 58, 59, 60, 61, 300, 9000] {
            for (previous, next, client) in [(1007, -1, 2), (-1, -1, 0), (7, 9, 2), (-1, 9, 0)] {
                let mut key = Vec::new();
                set_key(&mut key, &vec![b'x'; id_bytes]);
                (image.previous_producer_id, image.next_producer_id, image.client_version) =
                    (previous, next, client);
                let mut out = vec![7];
                write_state(&mut out, 1 << 40, 5, 1_700_000_000_125, &key, &image);
                assert_eq!(out[1..], by_the_engine(1 << 40, 1_700_000_000_125, &key, &image), "{image:?}");
            }
        }
        let mut key = Vec::new();
        set_key(&mut key, b"id");
        let image = Image {
            version: ValueVersion::V0,
            state: TransactionState::Empty,
            partitions: &[255; 4],
            start_ms: -1,
            previous_producer_id: -1,
            client_version: 0,
            ..image
        };
        let mut out = Vec::new();
        write_state(&mut out, 0, 5, 3, &key, &Image { next_producer_id: -1, ..image });
        assert_eq!(out, by_the_engine(0, 3, &key, &Image { next_producer_id: -1, ..image }));
    }

    #[test]
    fn tombstones_have_offsets_of_their_own() {
        let keys: Vec<Vec<u8>> = (0..70u8)
            .map(|n| {
                let mut key = Vec::new();
                set_key(&mut key, &[n]);
                key
            })
            .collect();
        let mut out = Vec::new();
        write_tombstones(&mut out, 40, 3, 1000, &keys);
        let (frame, rest) = BatchFrame::parse(&out).unwrap();
        assert!(rest.is_empty());
        let mut decompressor = Decompressor::new();
        let records = frame.verify().unwrap().records(&mut decompressor, &Limits::default()).unwrap();
        for (n, record) in records.enumerate() {
            let record = record.unwrap();
            assert_eq!((record.offset.0, record.value), (40 + n as i64, None));
            assert_eq!(record.key, Some(&keys[n][..]));
        }
        assert!(Value::parse(&[]).is_err());
    }
}
