//! Record batches of format 2, from a description that may lie.

use super::codecs::Codec;
use super::varint::{varint, varlong};

/// Attribute: every record has the time at which the broker appended the batch.
pub const LOG_APPEND_TIME: i16 = 0x08;
/// Attribute: part of a transaction.
pub const TRANSACTIONAL: i16 = 0x10;
/// Attribute: the records are markers or other control records.
pub const CONTROL: i16 = 0x20;
/// Attribute: the base timestamp is a delete horizon.
pub const DELETE_HORIZON: i16 = 0x40;

/// Byte position of the CRC; what follows its four bytes is covered by it.
const CRC_AT: usize = 17;

/// Describes a batch. The default is a batch without records at offset 0, of no producer and epoch 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchSpec {
    /// Offset of the first record as it was written.
    pub base_offset: i64,
    /// Epoch of the leader.
    pub partition_leader_epoch: i32,
    /// Format.
    pub magic: i8,
    /// Attributes other than the codec.
    pub attributes: i16,
    /// How the records are compressed.
    pub codec: Codec,
    /// Last offset minus base offset; `None` for that of the last record, or 0.
    pub last_offset_delta: Option<i32>,
    /// What the records' time deltas refer to, milliseconds since 1970.
    pub base_timestamp: i64,
    /// Largest time of a record; `None` to take it from the records.
    pub max_timestamp: Option<i64>,
    /// Producer id, -1 for none.
    pub producer_id: i64,
    /// Producer epoch, -1 for none.
    pub producer_epoch: i16,
    /// Sequence of the first record, -1 for none.
    pub base_sequence: i32,
    /// Number of records in the header; `None` for the true one.
    pub records_count: Option<i32>,
    /// The records.
    pub records: Vec<RecordSpec>,
    /// Bytes in place of the encoded and compressed records, for records that cannot be described.
    pub payload: Option<Vec<u8>>,
    /// Bits to turn over in the right CRC: 0 for a valid batch.
    pub crc_flip: u32,
}

/// Describes a record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordSpec {
    /// Unused by Kafka.
    pub attributes: i8,
    /// Time minus the batch's base timestamp.
    pub timestamp_delta: i64,
    /// Offset minus the batch's base offset.
    pub offset_delta: i32,
    /// Key, `None` for null.
    pub key: Option<Vec<u8>>,
    /// Value, `None` for null.
    pub value: Option<Vec<u8>>,
    /// Header keys and values.
    pub headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

impl Default for BatchSpec {
    fn default() -> Self {
        Self {
            base_offset: 0,
            partition_leader_epoch: 0,
            magic: 2,
            attributes: 0,
            codec: Codec::None,
            last_offset_delta: None,
            base_timestamp: 1_700_000_000_000,
            max_timestamp: None,
            producer_id: -1,
            producer_epoch: -1,
            base_sequence: -1,
            records_count: None,
            records: Vec::new(),
            payload: None,
            crc_flip: 0,
        }
    }
}

impl RecordSpec {
    /// A record with a key, and a value or none (a tombstone), at the batch's base timestamp.
    pub fn new(offset_delta: i32, key: Vec<u8>, value: Option<Vec<u8>>) -> Self {
        Self { offset_delta, key: Some(key), value, ..Self::default() }
    }
}

impl BatchSpec {
    /// A batch of one record, as a coordinator appends it.
    pub fn single(base_offset: i64, key: Vec<u8>, value: Option<Vec<u8>>) -> Self {
        Self { base_offset, records: vec![RecordSpec::new(0, key, value)], ..Self::default() }
    }

    /// A batch whose records the cleaner has removed.
    pub fn emptied(base_offset: i64, last_offset_delta: i32) -> Self {
        Self {
            base_offset,
            last_offset_delta: Some(last_offset_delta),
            base_timestamp: -1,
            max_timestamp: Some(1_700_000_000_000),
            ..Self::default()
        }
    }

    /// A transaction marker.
    pub fn marker(
        base_offset: i64,
        producer_id: i64,
        producer_epoch: i16,
        is_commit: bool,
        coordinator_epoch: i32,
    ) -> Self {
        let key = vec![0, 0, 0, is_commit.into()];
        let value = [&[0; 2], &coordinator_epoch.to_be_bytes()[..]].concat();
        Self {
            attributes: TRANSACTIONAL | CONTROL,
            producer_id,
            producer_epoch,
            ..Self::single(base_offset, key, Some(value))
        }
    }

    /// Offset of the last record as the header says it.
    pub fn last_offset(&self) -> i64 {
        self.base_offset.wrapping_add(self.last_delta().into())
    }

    /// The bytes of the batch.
    pub fn encode(&self) -> Vec<u8> {
        let records: Vec<u8> = self.records.iter().flat_map(encode_record).collect();
        let payload = self.payload.clone().unwrap_or_else(|| self.codec.compress(&records));
        let largest_delta = self.records.iter().map(|record| record.timestamp_delta).max().unwrap_or(0);
        let max_timestamp = self.max_timestamp.unwrap_or(self.base_timestamp.wrapping_add(largest_delta));
        let mut batch = Vec::new();
        batch.extend(self.base_offset.to_be_bytes());
        batch.extend([0; 4]);
        batch.extend(self.partition_leader_epoch.to_be_bytes());
        batch.extend(self.magic.to_be_bytes());
        batch.extend([0; 4]);
        batch.extend((self.attributes | self.codec.id()).to_be_bytes());
        batch.extend(self.last_delta().to_be_bytes());
        batch.extend(self.base_timestamp.to_be_bytes());
        batch.extend(max_timestamp.to_be_bytes());
        batch.extend(self.producer_id.to_be_bytes());
        batch.extend(self.producer_epoch.to_be_bytes());
        batch.extend(self.base_sequence.to_be_bytes());
        batch.extend(self.records_count.unwrap_or(self.records.len() as i32).to_be_bytes());
        batch.extend(payload);
        let length = batch.len() as u32 - 12;
        batch[8..12].copy_from_slice(&length.to_be_bytes());
        reseal(&mut batch);
        for (byte, flip) in batch[CRC_AT..].iter_mut().zip(self.crc_flip.to_be_bytes()) {
            *byte ^= flip;
        }
        batch
    }

    fn last_delta(&self) -> i32 {
        self.last_offset_delta.unwrap_or_else(|| self.records.last().map_or(0, |record| record.offset_delta))
    }
}

/// The bytes of a record, its length in front.
pub fn encode_record(record: &RecordSpec) -> Vec<u8> {
    let mut body = record.attributes.to_be_bytes().to_vec();
    body.extend(varlong(record.timestamp_delta));
    body.extend(varint(record.offset_delta));
    nullable(&mut body, record.key.as_deref());
    nullable(&mut body, record.value.as_deref());
    body.extend(varint(record.headers.len() as i32));
    for (key, value) in &record.headers {
        nullable(&mut body, Some(key));
        nullable(&mut body, value.as_deref());
    }
    [varint(body.len() as i32), body].concat()
}

/// Makes the CRC of a batch right again after a test has changed its bytes. Panics if it is shorter than 21 bytes.
pub fn reseal(batch: &mut [u8]) {
    let (head, covered) = batch.split_at_mut(CRC_AT + 4);
    head[CRC_AT..].copy_from_slice(&crc32c::crc32c(covered).to_be_bytes());
}

fn nullable(body: &mut Vec<u8>, bytes: Option<&[u8]>) {
    body.extend(varint(bytes.map_or(-1, |bytes| bytes.len() as i32)));
    body.extend(bytes.unwrap_or_default());
}
