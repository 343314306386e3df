//! What a leader changes in a batch where it lies (Kafka's MutableRecordBatch).

use super::frame::{BatchFrame, CRC_START, FrameFault};
use crate::types::Offset;

const APPEND_TIME: i16 = 0x08;
/// The attribute bits that have a meaning; Kafka drops the others when it writes the field anew.
const DEFINED: i16 = 0x7f;

/// What the timestamps of records say (Kafka's TimestampType).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimestampType {
    /// When the producer made the record.
    #[default]
    CreateTime,
    /// When the leader appended the batch: the same for all its records.
    LogAppendTime,
}

/// One whole batch of magic 2 in a buffer that may be written to. Nothing here moves or allocates.
#[derive(Debug)]
pub struct MutableBatch<'a> {
    /// Exactly the batch.
    bytes: &'a mut [u8],
}

impl<'a> MutableBatch<'a> {
    /// Takes the batch at the front of `bytes`. Header fields may have any value, and the CRC may be wrong.
    ///
    /// # Errors
    /// [`FrameFault`] for bytes that do not begin with a whole batch of magic 2.
    pub fn parse(bytes: &'a mut [u8]) -> Result<Self, FrameFault> {
        let size = BatchFrame::unchecked_fields(bytes)?.size();
        Ok(Self { bytes: &mut bytes[..size] })
    }

    /// Sets the base offset. The CRC does not cover it.
    pub fn set_base_offset(&mut self, offset: Offset) -> &mut Self {
        self.bytes[..8].copy_from_slice(&offset.0.to_be_bytes());
        self
    }

    /// Sets the partition leader epoch. The CRC does not cover it.
    pub fn set_partition_leader_epoch(&mut self, epoch: i32) -> &mut Self {
        self.bytes[12..16].copy_from_slice(&epoch.to_be_bytes());
        self
    }

    /// Sets the timestamp type and the max timestamp in ms. Where one of them changes, the attribute bits without
    /// meaning are cleared and the CRC is computed anew, which costs a pass over the bytes; else nothing is written.
    /// The return value says whether it was.
    pub fn set_max_timestamp(&mut self, timestamp_type: TimestampType, max_timestamp: i64) -> bool {
        let attributes = i16::from_be_bytes([self.bytes[21], self.bytes[22]]);
        let wanted = match timestamp_type {
            TimestampType::CreateTime => attributes & !APPEND_TIME,
            TimestampType::LogAppendTime => attributes | APPEND_TIME,
        };
        let field = max_timestamp.to_be_bytes();
        if wanted == attributes && self.bytes[35..43] == field {
            return false;
        }
        self.bytes[21..23].copy_from_slice(&(wanted & DEFINED).to_be_bytes());
        self.bytes[35..43].copy_from_slice(&field);
        let crc = crate::machine::crc::crc32c(&self.bytes[CRC_START..]);
        self.bytes[17..21].copy_from_slice(&crc.to_be_bytes());
        true
    }
}
