//! Why an append is refused.

use crate::batch::{Compression, CompressionFault, CrcMismatch, FrameFault, RecordFault};
use crate::types::Offset;

/// Most records that [`AppendRejection::Records`] lists; it counts all of them.
pub const RECORDS_LISTED_MAX: usize = 1 << 16;

/// Why nothing was appended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AppendRejection {
    /// No batch can begin here, or its header is one that no writer makes (CorruptRecordException).
    #[error("byte {position} of the append: {fault}")]
    Frame {
        /// Byte position of the batch in the append.
        position: usize,
        /// What is wrong.
        fault: FrameFault,
    },
    /// The checksum of a batch does not match (CorruptRecordException).
    #[error("byte {position} of the append: {mismatch}")]
    Crc {
        /// Byte position of the batch in the append.
        position: usize,
        /// Both checksums.
        mismatch: CrcMismatch,
    },
    /// A batch is larger than `max.message.bytes`, as it came or after it was packed anew (RecordTooLargeException).
    #[error("a batch of {size} bytes, where max.message.bytes is {most}")]
    BatchTooLarge {
        /// Bytes of the batch.
        size: usize,
        /// The setting.
        most: u32,
    },
    /// The records of a compressed batch take more memory than this engine's limit, which Kafka does not have.
    #[error("{0}")]
    DecompressedTooLarge(CompressionFault),
    /// The append is larger than `segment.bytes` (RecordBatchTooLargeException).
    #[error("an append of {size} bytes, where segment.bytes is {most}")]
    AppendTooLarge {
        /// Bytes of the append.
        size: usize,
        /// The setting.
        most: u32,
    },
    /// A rule about the batch as a whole is broken (InvalidRecordException).
    #[error("{0}")]
    Batch(#[from] InvalidBatch),
    /// Records break a rule (RecordValidationException).
    #[error("{failed} records are refused, the first is record {}: {}", first(records).index, first(records).why)]
    Records {
        /// Records that are refused, by rising index; the first [`RECORDS_LISTED_MAX`] of them.
        records: Vec<RejectedRecord>,
        /// How many there are.
        failed: i32,
        /// Whether the time of one of all of them is refused.
        has_invalid_timestamp: bool,
    },
    /// This build was made without the codec, so it can neither check the records nor store them so.
    #[error("this build cannot handle {0} (its feature is switched off)")]
    UnsupportedCompression(Compression),
    /// Offsets of a follower's append do not rise from batch to batch (OffsetsOutOfOrderException).
    #[error("a batch with offsets {base_offset} to {last_offset} follows offset {previous}")]
    OffsetsOutOfOrder {
        /// Last offset of the batch before.
        previous: Offset,
        /// Base offset of the batch.
        base_offset: Offset,
        /// Last offset of the batch.
        last_offset: Offset,
    },
    /// A follower's append begins below the log end offset (UnexpectedAppendOffsetException).
    #[error("an append of offsets {first_offset} to {last_offset} to a log that ends at {log_end_offset}")]
    UnexpectedAppendOffset {
        /// First offset of the append.
        first_offset: Offset,
        /// Last offset of the append.
        last_offset: Offset,
        /// Where the log ends.
        log_end_offset: Offset,
    },
}

fn first(records: &[RejectedRecord]) -> RejectedRecord {
    records.first().copied().unwrap_or(RejectedRecord { index: 0, why: RecordRejection::NullKey })
}

impl AppendRejection {
    /// Kafka's name for what a client is told, `None` for what never leaves the broker.
    pub fn error_name(&self) -> Option<&'static str> {
        self.error().map(|(name, _)| name)
    }

    /// The code of [`error_name`](Self::error_name) on the wire.
    pub fn error_code(&self) -> Option<i16> {
        self.error().map(|(_, code)| code)
    }

    fn error(&self) -> Option<(&'static str, i16)> {
        Some(match self {
            Self::Frame { .. } | Self::Crc { .. } => ("CORRUPT_MESSAGE", 2),
            Self::BatchTooLarge { .. } | Self::DecompressedTooLarge(_) => ("MESSAGE_TOO_LARGE", 10),
            Self::AppendTooLarge { .. } => ("RECORD_LIST_TOO_LARGE", 18),
            Self::Records { has_invalid_timestamp: true, .. } => ("INVALID_TIMESTAMP", 32),
            Self::UnsupportedCompression(_) => ("UNSUPPORTED_COMPRESSION_TYPE", 76),
            Self::Batch(_) | Self::Records { .. } => ("INVALID_RECORD", 87),
            Self::OffsetsOutOfOrder { .. } | Self::UnexpectedAppendOffset { .. } => return None,
        })
    }

    /// The offset at which a follower with an empty log begins anew, where that is the way out of an
    /// [`UnexpectedAppendOffset`](Self::UnexpectedAppendOffset): the leader's log start lies inside the batch that it
    /// sent. Log end and log start are then set to this offset, and the append is tried again.
    pub fn restart_offset(&self, log_start_offset: Offset) -> Option<Offset> {
        match *self {
            Self::UnexpectedAppendOffset { first_offset, last_offset, log_end_offset }
                if log_end_offset == log_start_offset
                    && first_offset < log_end_offset
                    && log_end_offset <= last_offset =>
            {
                Some(first_offset)
            }
            _ => None,
        }
    }
}

/// A broken rule about a batch as a whole.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidBatch {
    /// More than one batch in one append.
    #[error("an append to a leader holds exactly one batch, this one has more")]
    SeveralBatches,
    /// A message of format 0 or 1, which no producer of Kafka 4 sends.
    #[error("a message of format {0}; a leader takes format 2")]
    LegacyFormat(i8),
    /// A client's batch whose base offset is not 0.
    #[error("base offset {0} in a producer's batch, which must be 0")]
    BaseOffset(Offset),
    /// The header's range of offsets is empty.
    #[error("last offset delta {0}")]
    LastOffsetDelta(i32),
    /// The header's number of records is not positive.
    #[error("{0} records")]
    RecordsCount(i32),
    /// The header's range of offsets has another length than its number of records.
    #[error("last offset delta {last_offset_delta} with {records_count} records")]
    RangeLength {
        /// Last offset − base offset.
        last_offset_delta: i32,
        /// Records that the header promises.
        records_count: i32,
    },
    /// A control batch from a client.
    #[error("a producer may not send control batches")]
    Control,
    /// A producer id without a sequence number.
    #[error("base sequence {0} in a batch with a producer id")]
    BaseSequence(i32),
    /// Another header field that no log may hold.
    #[error("header field {field} is {value}")]
    Field {
        /// Kafka's name of the field.
        field: &'static str,
        /// Its value.
        value: i64,
    },
    /// The attribute bits name no codec.
    #[error("compression codec id {0} is not defined")]
    UnknownCodec(u8),
    /// The records do not decompress, though the checksum is right.
    #[error(transparent)]
    Compression(CompressionFault),
    /// A record is malformed, or there are more or fewer than the header promises.
    #[error(transparent)]
    Record(#[from] RecordFault),
    /// The log has no offsets left for the records.
    #[error("no offsets are left behind {0}")]
    NoOffsetsLeft(Offset),
}

/// A record that is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RejectedRecord {
    /// Number of the record in its batch, from 0.
    pub index: i32,
    /// What is wrong with it.
    pub why: RecordRejection,
}

/// A broken rule about one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordRejection {
    /// No key, in a topic that is compacted (INVALID_RECORD).
    #[error("a compacted topic needs a key")]
    NullKey,
    /// The time is too far from now (INVALID_TIMESTAMP).
    #[error("timestamp {timestamp} is out of the range from {earliest} to {latest}")]
    Timestamp {
        /// The record's time in ms.
        timestamp: i64,
        /// Earliest time that is accepted.
        earliest: i64,
        /// Latest time that is accepted.
        latest: i64,
    },
    /// The producer marks its batch as one with append time (INVALID_TIMESTAMP).
    #[error("a producer may not set the timestamp type to LogAppendTime")]
    TimestampType,
    /// A time below −1, which no reader of the log would take (INVALID_TIMESTAMP). Kafka's leader lets it pass.
    #[error("timestamp {0}")]
    NegativeTimestamp(i64),
    /// The offset delta is not the record's index, in a batch that stays as it is (INVALID_RECORD). Kafka's leader
    /// looks at it in compressed batches only, which it then packs anew.
    #[error("offset delta {0}")]
    OffsetDelta(i64),
}

impl RecordRejection {
    /// Kafka's name of the error.
    pub fn error_name(&self) -> &'static str {
        if self.is_timestamp() { "INVALID_TIMESTAMP" } else { "INVALID_RECORD" }
    }

    /// Whether it is about the record's time, which decides what the whole append is answered.
    pub(super) fn is_timestamp(&self) -> bool {
        match self {
            Self::Timestamp { .. } | Self::TimestampType | Self::NegativeTimestamp(_) => true,
            Self::NullKey | Self::OffsetDelta(_) => false,
        }
    }
}
