use std::fmt;
use std::path::PathBuf;

use crate::batch::{ControlFault, CrcMismatch, FrameFault, RecordFault};
use crate::log::CheckpointFault;
use crate::log_dir::checkpoint::IdentityFault;
use crate::producer_state::SnapshotFault;
use crate::types::{Offset, ProducerId, TopicPartition};

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Data or a file is wrong.
    Error,
    /// Nothing is wrong, but worth knowing: leftovers, what a crash leaves behind, what could not be compared.
    Note,
}

impl Severity {
    /// `error` or `note`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Note => "note",
        }
    }
}

/// One thing that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How much it matters.
    pub severity: Severity,
    /// The partition; `None` for what belongs to a root.
    pub topic_partition: Option<TopicPartition>,
    /// The file or folder.
    pub path: PathBuf,
    /// Byte position in the file: of the batch or the entry.
    pub position: Option<u64>,
    /// The offset it is about: of the batch, the record or the entry.
    pub offset: Option<Offset>,
    /// Whether a broker's start on these files would put it right by itself, without losing a record that was flushed.
    pub is_repaired_at_start: bool,
    /// What it is.
    pub kind: FindingKind,
}

/// The place, then the reason, in one sentence.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        if let Some(offset) = self.offset {
            write!(f, " at offset {offset}")?;
        }
        if let Some(position) = self.position {
            let and = if self.offset.is_some() { "," } else { " at" };
            write!(f, "{and} byte {position}")?;
        }
        write!(f, ": {}", self.kind)
    }
}

/// What can be found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FindingKind {
    // ---- logs ----
    /// No batch can be read here; the walk went on behind it if a good one follows.
    #[error("no batch can be read here: {0}")]
    Frame(FrameFault),
    /// The checksum of a batch is wrong.
    #[error(transparent)]
    Crc(CrcMismatch),
    /// The log ends in an append that was never finished. A broker cuts it.
    #[error("{bytes} bytes of an append that was not finished, which a broker cuts: {reason}")]
    TornTail {
        /// Bytes from here to the end of the file.
        bytes: u64,
        /// What is wrong with the first batch there.
        reason: String,
    },
    /// The file is longer than its batches, though the broker was stopped cleanly: then no broker loads it.
    #[error("{bytes} bytes follow the last batch of a log that was closed cleanly: {fault}")]
    LongerThanData {
        /// Bytes from here to the end of the file.
        bytes: u64,
        /// What is wrong with them.
        fault: FrameFault,
    },
    /// A header field with a value that no broker writes in a batch like this.
    #[error("header field {field} is {value}, which does not go with the rest of the header")]
    HeaderField {
        /// Kafka's name of the field.
        field: &'static str,
        /// Its value.
        value: i64,
    },
    /// Offsets do not rise from batch to batch, record to record or segment to segment.
    #[error("offset goes back: {found} where at least {expected} must follow")]
    OffsetGoesBack {
        /// Smallest offset that may come here.
        expected: Offset,
        /// What came.
        found: Offset,
    },
    /// A batch begins below the base offset of its segment.
    #[error("the batch begins at {found}, below the base offset {base} of its segment")]
    BelowBase {
        /// Base offset of the segment.
        base: Offset,
        /// Base offset of the batch.
        found: Offset,
    },
    /// A batch ends too far above the base offset of its segment.
    #[error("the batch ends at {found}, out of reach of the base offset {base} of its segment")]
    OutOfReach {
        /// Base offset of the segment.
        base: Offset,
        /// Last offset of the batch.
        found: Offset,
    },
    /// A record lies beyond the last offset of its batch.
    #[error("a record at offset {found} lies beyond {last}, the last offset of its batch")]
    RecordBeyondBatch {
        /// Last offset of the batch by its header.
        last: Offset,
        /// Offset of the record.
        found: Offset,
    },
    /// The records of a batch cannot be read, for a reason that is not one record's.
    #[error("its records cannot be read: {0}")]
    Records(String),
    /// A record is malformed.
    #[error(transparent)]
    Record(RecordFault),
    /// A control record is malformed.
    #[error("control record: {0}")]
    Control(ControlFault),
    /// A batch without records has bytes behind its header.
    #[error("a batch of no records has {bytes} bytes behind its header, which nobody reads")]
    PayloadOfNoRecords {
        /// How many.
        bytes: u64,
    },
    /// The header's largest timestamp is not that of the records.
    #[error("the header says that the largest timestamp is {header}, in the records it is {records}")]
    MaxTimestamp {
        /// Of the header.
        header: i64,
        /// Of the records.
        records: i64,
    },
    /// The records could not be looked at by this build.
    #[error("its records were not looked at: {0}")]
    NotChecked(String),
    /// A log file larger than any segment can be.
    #[error("{bytes} bytes, more than the 2147483647 that a segment can have")]
    SegmentTooLarge {
        /// Its size.
        bytes: u64,
    },
    /// The log ends below where it starts by the checkpoint.
    #[error("the log ends at {end}, below its log start offset {start}")]
    EndsBelowLogStart {
        /// Offset behind the last batch.
        end: Offset,
        /// Log start offset of the checkpoint.
        start: Offset,
    },

    // ---- leader epochs ----
    /// A batch of an older leader epoch follows one of a newer.
    #[error("leader epoch goes back: {found} after {last}")]
    EpochGoesBack {
        /// Epoch before it.
        last: i32,
        /// Epoch of the batch.
        found: i32,
    },
    /// The checkpoint names another epoch for this offset than the batch there.
    #[error("the batch has leader epoch {batch}, {} by the checkpoint", or_none(*checkpoint))]
    EpochMismatch {
        /// Epoch of the batch.
        batch: i32,
        /// Epoch for this offset by the checkpoint.
        checkpoint: Option<i32>,
    },
    /// Lines of the checkpoint do not go up in both numbers; a broker drops some of them.
    #[error("{dropped} lines do not go up in epoch and start offset")]
    EpochsNotRising {
        /// How many are dropped in reading.
        dropped: usize,
    },
    /// An epoch begins behind the end of the log.
    #[error("epoch {epoch} begins at {found}, behind the log end {end}")]
    EpochBeyondLog {
        /// The epoch.
        epoch: i32,
        /// Its start offset.
        found: Offset,
        /// Offset behind the last batch.
        end: Offset,
    },

    // ---- indexes ----
    /// The size of an index is no multiple of its entries' size.
    #[error("{bytes} bytes are not made of entries of {entry_bytes}")]
    IndexSize {
        /// Size of the file.
        bytes: u64,
        /// Size of an entry.
        entry_bytes: u64,
    },
    /// An entry does not lie above the one before it, or repeats it.
    #[error("the entry does not lie above the one before it")]
    IndexOrder,
    /// An entry's offset lies below the base offset, or its position below 0.
    #[error("the entry points below the segment")]
    IndexBelowSegment,
    /// An offset index entry does not name the batch at its position.
    #[error("the entry points at byte {position}, {}", at_position(*found))]
    IndexEntryFalse {
        /// The entry's position.
        position: u64,
        /// Last offset of the batch that begins there, if one does.
        found: Option<Offset>,
    },
    /// An offset index entry names a later batch than the one at its position; look-ups work all the same. Brokers
    /// before 4.0 write such entries where several batches were appended at once.
    #[error(
        "the entry points at byte {position}, where a batch begins that ends at {found}; its own batch follows"
    )]
    IndexEntryEarly {
        /// The entry's position.
        position: u64,
        /// Last offset of the batch there.
        found: Offset,
    },
    /// An entry leads behind the last batch that can be read.
    #[error(
        "the entry points behind the batches that can be read, which end at byte {data_end}, offset {end}"
    )]
    IndexBeyondLog {
        /// Byte position where they end.
        data_end: u64,
        /// Offset behind the last one.
        end: Offset,
    },
    /// A time index entry names no batch that has its timestamp first.
    #[error("the entry says timestamp {timestamp}, {}", at_offset(*found))]
    TimeEntryFalse {
        /// The entry's timestamp.
        timestamp: i64,
        /// Largest timestamp of the log up to and with the batch that holds the offset; `None` if no batch does.
        found: Option<i64>,
    },
    /// A time index entry is true, and names a record inside of its batch instead of the last one.
    #[error("the entry names a record inside of its batch, which ends at {last}")]
    TimeEntryInside {
        /// Last offset of the batch.
        last: Offset,
    },
    /// The zeros of a preallocated index, as a running broker or a crash leaves them.
    #[error("{bytes} bytes of zeros that were preallocated follow its entries")]
    Preallocated {
        /// How many.
        bytes: u64,
    },
    /// Zeros behind the entries of an index that a broker uses as it is: it takes them for entries.
    #[error("{bytes} bytes of zeros follow its entries, and a broker takes them for entries")]
    Padding {
        /// How many.
        bytes: u64,
    },
    /// Segments without an index. A broker makes it anew.
    #[error("{count} segments have no {suffix}")]
    MissingIndexes {
        /// How many segments.
        count: u64,
        /// The suffix of the missing files.
        suffix: &'static str,
    },

    // ---- producer snapshots ----
    /// A snapshot cannot be used.
    #[error(transparent)]
    Snapshot(SnapshotFault),
    /// A snapshot holds a producer twice.
    #[error("producer {0} is in it more than once")]
    RepeatedProducer(ProducerId),
    /// A snapshot of an offset behind the end of the log.
    #[error("it is of an offset behind the log end {end}")]
    SnapshotBeyondLog {
        /// Offset behind the last batch.
        end: Offset,
    },
    /// A snapshot of an offset in the middle of a batch.
    #[error("it is of an offset inside of the batch from {first} to {last}")]
    SnapshotInsideBatch {
        /// First offset of the batch.
        first: Offset,
        /// Last offset of the batch.
        last: Offset,
    },
    /// An entry of a snapshot holds a value that cannot be.
    #[error("{field} of producer {producer_id} is {value}")]
    SnapshotEntry {
        /// The producer.
        producer_id: ProducerId,
        /// Kafka's name of the field.
        field: &'static str,
        /// Its value.
        value: i64,
    },
    /// A producer of a snapshot is another one in the log.
    #[error("{field} of producer {producer_id} is {snapshot}, by the log it is {log}")]
    SnapshotDiffers {
        /// The producer.
        producer_id: ProducerId,
        /// Kafka's name of the field.
        field: &'static str,
        /// In the snapshot, −1 = none.
        snapshot: i64,
        /// By a replay of the log, −1 = none.
        log: i64,
    },
    /// A producer with an open transaction is missing in a snapshot.
    #[error("producer {producer_id}, with a transaction open since offset {first_offset}, is not in it")]
    OpenTransactionMissing {
        /// The producer.
        producer_id: ProducerId,
        /// First offset of its transaction.
        first_offset: Offset,
    },
    /// A snapshot has a producer of which nothing lies in the log, though it should.
    #[error("producer {producer_id}{}, of which the log has nothing", with_batch(*last_offset))]
    ProducerNotInLog {
        /// The producer.
        producer_id: ProducerId,
        /// Last offset of its newest batch by the snapshot, if it has one.
        last_offset: Option<Offset>,
    },
    /// Producers of the log are missing in a snapshot: expired before it was written, or lost.
    #[error("{count} producers of the log are not in it: expired by then, or lost")]
    ProducersMissing {
        /// How many.
        count: u64,
    },
    /// The log contradicts itself in what a producer did, with which no broker loads the partition.
    #[error("{0}")]
    Producer(String),

    // ---- small files and names ----
    /// A checkpoint file cannot be read.
    #[error(transparent)]
    Checkpoint(CheckpointFault),
    /// `meta.properties` or `partition.metadata` cannot be read.
    #[error(transparent)]
    Identity(IdentityFault),
    /// A checkpoint names a partition more than once; the last line counts.
    #[error("names {0} more than once")]
    RepeatedPartition(TopicPartition),
    /// A checkpoint names an offset behind the end of the log, so what lay there is gone.
    #[error("says {found} of {partition}, whose log ends at {end}")]
    CheckpointBeyondLog {
        /// The partition.
        partition: TopicPartition,
        /// Offset of the checkpoint.
        found: Offset,
        /// Offset behind the last batch.
        end: Offset,
    },
    /// A checkpoint names a negative offset.
    #[error("says {found} of {partition}, which is no offset")]
    NegativeOffset {
        /// The partition.
        partition: TopicPartition,
        /// What it says.
        found: i64,
    },
    /// A name that no broker writes.
    #[error("no name that Kafka writes")]
    ForeignName,
    /// A name that no broker writes and that keeps brokers from loading the partition, or is taken for a segment.
    #[error(
        "no name that Kafka writes; a broker takes it for a segment file of another number, or fails on it"
    )]
    MisleadingName,
    /// What an interrupted or waiting change left behind: `.deleted`, `.cleaned`, `.swap`, `.tmp`.
    #[error("left behind by a change that was not finished; a broker tidies it up")]
    Leftover,
    /// An index file without its log. A broker removes it.
    #[error("belongs to no segment")]
    NoSegment,
    /// A folder or file that was passed over.
    #[error("{0}")]
    PassedOver(String),
    /// Two folders hold the same partition.
    #[error("{} holds the same partition; no broker starts on both", other.display())]
    DuplicatePartition {
        /// The other folder.
        other: PathBuf,
    },
    /// Something cannot be read.
    #[error("cannot be read: {0}")]
    Unreadable(String),
    /// The running broker that holds the directory changed or removed the file meanwhile.
    #[error("changed while it was read: {0}")]
    Changed(String),
}

fn or_none(epoch: Option<i32>) -> String {
    epoch.map_or_else(|| "none".to_owned(), |epoch| epoch.to_string())
}

fn with_batch(last_offset: Option<Offset>) -> String {
    last_offset.map_or_else(String::new, |offset| format!(" has a batch that ends at {offset}"))
}

fn at_position(found: Option<Offset>) -> String {
    match found {
        Some(offset) => format!("where a batch begins that ends at {offset}"),
        None => "where no batch begins".to_owned(),
    }
}

fn at_offset(found: Option<i64>) -> String {
    match found {
        Some(timestamp) => {
            format!("but the batch there is not the first with it; the largest so far is {timestamp}")
        }
        None => "and its offset is in no batch".to_owned(),
    }
}

impl FindingKind {
    /// A stable kebab-case word, for machine-readable output.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Frame(_) => "bad-frame",
            Self::Crc(_) => "crc",
            Self::TornTail { .. } => "torn-tail",
            Self::LongerThanData { .. } => "longer-than-data",
            Self::HeaderField { .. } => "header-field",
            Self::OffsetGoesBack { .. } => "offset-goes-back",
            Self::BelowBase { .. } => "below-base",
            Self::OutOfReach { .. } => "out-of-reach",
            Self::RecordBeyondBatch { .. } => "record-beyond-batch",
            Self::Records(_) => "records",
            Self::Record(_) => "record",
            Self::Control(_) => "control-record",
            Self::PayloadOfNoRecords { .. } => "payload-of-no-records",
            Self::MaxTimestamp { .. } => "max-timestamp",
            Self::NotChecked(_) => "not-checked",
            Self::SegmentTooLarge { .. } => "segment-too-large",
            Self::EndsBelowLogStart { .. } => "ends-below-log-start",
            Self::EpochGoesBack { .. } => "epoch-goes-back",
            Self::EpochMismatch { .. } => "epoch-mismatch",
            Self::EpochsNotRising { .. } => "epochs-not-rising",
            Self::EpochBeyondLog { .. } => "epoch-beyond-log",
            Self::IndexSize { .. } => "index-size",
            Self::IndexOrder => "index-order",
            Self::IndexBelowSegment => "index-below-segment",
            Self::IndexEntryFalse { .. } => "index-entry-false",
            Self::IndexEntryEarly { .. } => "index-entry-early",
            Self::IndexBeyondLog { .. } => "index-beyond-log",
            Self::TimeEntryFalse { .. } => "time-entry-false",
            Self::TimeEntryInside { .. } => "time-entry-inside",
            Self::Preallocated { .. } => "preallocated",
            Self::Padding { .. } => "padding",
            Self::MissingIndexes { .. } => "missing-indexes",
            Self::Snapshot(_) => "snapshot",
            Self::RepeatedProducer(_) => "repeated-producer",
            Self::SnapshotBeyondLog { .. } => "snapshot-beyond-log",
            Self::SnapshotInsideBatch { .. } => "snapshot-inside-batch",
            Self::SnapshotEntry { .. } => "snapshot-entry",
            Self::SnapshotDiffers { .. } => "snapshot-differs",
            Self::OpenTransactionMissing { .. } => "open-transaction-missing",
            Self::ProducerNotInLog { .. } => "producer-not-in-log",
            Self::ProducersMissing { .. } => "producers-missing",
            Self::Producer(_) => "producer",
            Self::Checkpoint(_) => "checkpoint",
            Self::Identity(_) => "identity",
            Self::RepeatedPartition(_) => "repeated-partition",
            Self::CheckpointBeyondLog { .. } => "checkpoint-beyond-log",
            Self::NegativeOffset { .. } => "negative-offset",
            Self::ForeignName => "foreign-name",
            Self::MisleadingName => "misleading-name",
            Self::Leftover => "leftover",
            Self::NoSegment => "no-segment",
            Self::PassedOver(_) => "passed-over",
            Self::DuplicatePartition { .. } => "duplicate-partition",
            Self::Unreadable(_) => "unreadable",
            Self::Changed(_) => "changed",
        }
    }

    /// The severity that goes with it, whatever the circumstances.
    pub fn severity(&self) -> Severity {
        match self {
            Self::TornTail { .. }
            | Self::NotChecked(_)
            | Self::IndexEntryEarly { .. }
            | Self::TimeEntryInside { .. }
            | Self::Preallocated { .. }
            | Self::MissingIndexes { .. }
            | Self::ProducersMissing { .. }
            | Self::RepeatedPartition(_)
            | Self::NegativeOffset { .. }
            | Self::ForeignName
            | Self::Leftover
            | Self::NoSegment
            | Self::PassedOver(_)
            | Self::Changed(_) => Severity::Note,
            _ => Severity::Error,
        }
    }
}
