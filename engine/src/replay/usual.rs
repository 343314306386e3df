//! The batch that a coordinator writes, told from every other one at once.
//!
//! Nearly every batch of a transaction log has one record, no compression, no headers, no producer, and a value in which
//! nothing is odd. Such a batch is checked here by a straight line of code; whatever does not fit is left to
//! [`Scan::batch`](super::scan::Scan::batch), which knows everything and can say what is wrong.

use crate::batch::{CRC_START, HEADER_LEN, LOG_OVERHEAD};
use crate::machine::cpu::{BLOCK, Cpu};
use crate::map::Mark;
use crate::transaction_log::plain_state;

/// What is needed of a usual batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Usual {
    /// Bytes of the batch.
    pub(super) size: usize,
    pub(super) base_offset: i64,
    /// Where the id begins in the batch.
    pub(super) id_at: usize,
    pub(super) id_len: usize,
    pub(super) mark: Mark,
}

/// What the header of a usual batch has, byte by byte, and which bits of it must be so.
///
/// The base offset, the leader epoch and the time stamps are not negative; magic 2; no attribute but the type of the
/// time stamp; last offset delta 0; no producer id, epoch and sequence (−1); one record.
static HEADER: ([u8; BLOCK], [u8; BLOCK]) = {
    let (mut expected, mut mask) = ([0; BLOCK], [0; BLOCK]);
    let mut at = 0;
    while at < BLOCK {
        match at {
            0 | 12 | 27 | 35 => mask[at] = 0x80,
            16 => (expected[at], mask[at]) = (2, 0xff),
            21 | 23..=26 | 57..=59 => mask[at] = 0xff,
            22 => mask[at] = !0x08,
            43..=56 => (expected[at], mask[at]) = (0xff, 0xff),
            60 => (expected[at], mask[at]) = (1, 0xff),
            _ => {}
        }
        at += 1;
    }
    (expected, mask)
};

/// Reads the batch at the front of `bytes`, with its checksum. `None` says only that the long way must be taken; so it
/// does for a batch at the very end of `bytes`, where a few bytes more than it needs are looked at.
#[inline(always)]
pub(super) fn usual(bytes: &[u8], cpu: impl Cpu) -> Option<Usual> {
    let head = bytes.first_chunk::<80>()?;
    let size = LOG_OVERHEAD + be_u32(head, 8) as usize;
    let batch = bytes.get(..size)?;
    if !cpu.is_like(head.first_chunk()?, &HEADER.0, &HEADER.1)
        || cpu.crc32c(batch.get(CRC_START..)?) != be_u32(head, 17)
    {
        return None;
    }

    // The record has all bytes behind the header. So its length is known, and must be the one that is stored; it takes
    // one byte or two. Then come attributes, time stamp and offset relative to the batch, all 0.
    let len_bytes = if size < HEADER_LEN + 65 { 1 } else { 2 };
    let zigzag = 2 * size.checked_sub(HEADER_LEN + len_bytes)? as u64;
    let stored = if len_bytes == 1 { zigzag } else { (zigzag & 0x7f | 0x80) << 8 | zigzag >> 7 };
    let lead = u64::from_be_bytes(*head[HEADER_LEN..].first_chunk()?);
    if lead >> (40 - 8 * len_bytes) != stored << 24 || zigzag >= 1 << 14 {
        return None;
    }

    let (key_len, key_at) = length(batch, HEADER_LEN + len_bytes + 3)?;
    let (id_at, id_len) = (key_at + 4, key_len.checked_sub(4)?);
    // The key's version 0, and the length of the id that is the rest of it.
    let key_head = be_u32(batch.get(key_at..)?.first_chunk::<4>()?, 0);
    let value_at = key_at + key_len;
    let (mark, end) = if *batch.get(value_at)? == 1 {
        (Mark::Tombstone, value_at + 1)
    } else {
        let (len, at) = length(batch, value_at)?;
        (Mark::State(plain_state(batch.get(at..at + len)?)?), at + len)
    };
    // No headers, and nothing behind their number.
    let is_usual = key_head as usize == id_len && end + 1 == size && batch.get(end) == Some(&0);
    is_usual.then_some(Usual {
        size,
        base_offset: i64::from_be_bytes(*head.first_chunk()?),
        id_at,
        id_len,
        mark,
    })
}

/// A length of one or two bytes that is not negative, and where what follows it begins.
#[inline(always)]
fn length(bytes: &[u8], at: usize) -> Option<(usize, usize)> {
    let [first, second] = *bytes.get(at..)?.first_chunk::<2>()?;
    let (raw, behind) = if first < 0x80 {
        (usize::from(first), at + 1)
    } else {
        (usize::from(first & 0x7f) | usize::from(second) << 7, at + 2)
    };
    (raw & 1 == 0 && raw < 1 << 14).then_some((raw >> 1, behind))
}

#[inline(always)]
fn be_u32<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{BatchBuilder, BatchFrame, Decompressor, Limits, NewRecord};
    use crate::machine::cpu::{CpuKind, Work};
    use crate::transaction_log::{
        Key, TopicPartitions, TransactionMetadata, TransactionState, Value, ValueVersion, encode_key,
    };
    use crate::types::{Offset, ProducerId};

    struct Read<'a>(&'a [u8]);

    impl Work for Read<'_> {
        type Output = Option<Usual>;

        #[inline(always)]
        fn run<C: Cpu>(self, cpu: C) -> Self::Output {
            usual(self.0, cpu)
        }
    }

    /// What the long way finds in a batch with one record that has nothing odd about it.
    fn long_way(bytes: &[u8]) -> Option<Usual> {
        let (frame, _) = BatchFrame::parse(bytes).ok()?;
        let batch = frame.verify().ok()?;
        if frame.is_control() || frame.records_count() != 1 {
            return None;
        }
        let mut decompressor = Decompressor::new();
        let mut records = batch.records(&mut decompressor, &Limits::default()).ok()?;
        let record = records.next()?.ok()?;
        if record.offset != frame.base_offset() || frame.last_offset() != frame.base_offset() {
            return None;
        }
        let Ok(Key::TransactionalId(id)) = Key::parse(record.key?) else { return None };
        let mark = match record.value.map(Value::parse) {
            None => Mark::Tombstone,
            Some(Ok(Value::Known(fields))) if fields.warnings.is_empty() => {
                Mark::State(fields.transaction().ok()?.state())
            }
            Some(_) => return None,
        };
        let id_at = id.as_ptr() as usize - bytes.as_ptr() as usize;
        Some(Usual { size: frame.size(), base_offset: frame.base_offset().0, id_at, id_len: id.len(), mark })
    }

    fn batch(id: &[u8], topics: &[&str], state: Option<TransactionState>, version: ValueVersion) -> Vec<u8> {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        encode_key(id, &mut key).unwrap();
        if let Some(state) = state {
            let topic = |topic: &&str| TopicPartitions {
                topic: topic.as_bytes().to_vec(),
                partition_ids: vec![0, 1],
                unknown_tagged_fields: Vec::new(),
            };
            let metadata = TransactionMetadata {
                producer_id: ProducerId(9),
                producer_epoch: 1,
                transaction_timeout_ms: 60_000,
                state,
                partitions: (state != TransactionState::Empty).then(|| topics.iter().map(topic).collect()),
                last_update_timestamp_ms: 1_700_000_000_000,
                start_timestamp_ms: 1_700_000_000_000,
                previous_producer_id: ProducerId::NONE,
                next_producer_id: ProducerId::NONE,
                next_producer_epoch: -1,
                client_transaction_version: if version == ValueVersion::V1 { 2 } else { 0 },
                unknown_tagged_fields: Vec::new(),
            };
            metadata.encode(version, &mut value).unwrap();
        }
        let mut builder = BatchBuilder::new(Offset(77));
        let value = state.is_some().then_some(&value[..]);
        builder.push(&NewRecord { timestamp: 5, key: Some(&key), value, headers: &[] }).unwrap();
        builder.leader_epoch(3).build().unwrap()
    }

    fn samples() -> Vec<Vec<u8>> {
        let mut samples = Vec::new();
        let long = "long".repeat(30);
        for id in [&b""[..], b"a", b"payments-service-3", &[b'x'; 59], &[b'x'; 60], &[b'x'; 61], &[b'y'; 300]]
        {
            for version in [ValueVersion::V0, ValueVersion::V1] {
                let states = [None, Some(TransactionState::Empty), Some(TransactionState::CompleteCommit)];
                samples.extend(states.map(|state| batch(id, &[], state, version)));
                samples.push(batch(id, &["orders", "b"], Some(TransactionState::Ongoing), version));
                samples.push(batch(id, &[&long], Some(TransactionState::PrepareAbort), version));
            }
        }
        samples
    }

    /// As bytes lie in a log: more follows.
    fn followed(batch: &[u8]) -> Vec<u8> {
        [batch, &[0x5a; 100]].concat()
    }

    fn judge(bytes: &[u8]) -> bool {
        let expected = long_way(bytes);
        for cpu in CpuKind::all() {
            let found = cpu.run(Read(bytes));
            assert!(found.is_none() || found == expected, "{found:?}, {expected:?}: {bytes:02x?}");
            assert_eq!(found.is_some(), CpuKind::detect().run(Read(bytes)).is_some());
        }
        CpuKind::detect().run(Read(bytes)).is_some()
    }

    #[test]
    fn what_coordinators_write_is_usual() {
        for sample in samples() {
            assert!(judge(&followed(&sample)), "{sample:02x?}");
            // Where nothing follows, the long way is taken.
            judge(&sample);
        }
    }

    /// Every byte of every sample changed under a right checksum, and every cut.
    #[test]
    fn what_is_taken_for_usual_is_right() {
        let (step, every) = if cfg!(miri) { (101, 17) } else { (1, 1) };
        let mut usual = 0;
        for sample in samples().iter().step_by(every) {
            for at in (0..sample.len()).step_by(every) {
                for byte in (0..=255).step_by(step) {
                    let mut changed = followed(sample);
                    changed[at] = byte;
                    let crc = crc32c::crc32c(&changed[CRC_START..sample.len()]);
                    if !(17..CRC_START).contains(&at) {
                        changed[17..CRC_START].copy_from_slice(&crc.to_be_bytes());
                    }
                    usual += usize::from(judge(&changed));
                }
                judge(&sample[..at]);
            }
        }
        assert!(usual > 100, "{usual} changed batches were usual");
    }
}
