//! What can go wrong, sorted by what the caller can do about it.
//!
//! Modules below this one return small faults of their own; here they get a path, an offset and a byte position.

use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::batch::{CompressionFault, CrcMismatch, FrameFault, RecordFault, RecordsFault};
use crate::transaction_log::{KeyFault, ValueFault, decode_utf8};
use crate::types::{Offset, TopicPartition};

/// Any failure of this crate. Its text is one sentence with everything that is known.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused: look at the path, the permissions, the device.
    #[error("cannot {operation} {}: {source}", path.display())]
    Io {
        /// What was tried, as a verb.
        operation: &'static str,
        /// On which file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The bytes of a log contradict its format: restore the partition from another replica, or read it leniently.
    #[error(transparent)]
    Corrupt(Box<Corruption>),
    /// The bytes may be fine, but this build or version cannot read them.
    #[error("{} at offset {offset}, byte {position}: {reason}", path.display())]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// Base offset of the batch.
        offset: Offset,
        /// Byte position of the batch.
        position: u64,
        /// What is missing.
        reason: String,
    },
    /// The path leads to something that is neither a log directory nor a partition's folder.
    #[error("{} is no log directory of Kafka: {reason}", path.display())]
    NotALogDirectory {
        /// The path as given.
        path: PathBuf,
        /// What was looked for and not found.
        reason: &'static str,
    },
    /// The directories do not hold a partition that was asked for, or none of the topic at all.
    #[error("no {} of topic {topic:?} in {}", list_partitions(partitions), list_paths(paths))]
    NoPartitions {
        /// The topic.
        topic: String,
        /// The partitions that are not there; empty if none was asked for by number.
        partitions: Vec<i32>,
        /// The directories.
        paths: Vec<PathBuf>,
    },
    /// Two folders hold the same partition; a broker would not start on them.
    #[error("{partition} lies in two folders, {} and {}", first.display(), second.display())]
    DuplicatePartition {
        /// Which partition.
        partition: TopicPartition,
        /// One folder.
        first: PathBuf,
        /// The other.
        second: PathBuf,
    },
    /// A name that belongs to the log leads to something that is not read: a link out of the directory, a pipe, a folder.
    #[error("{} belongs to the log: {reason}", path.display())]
    NotRead {
        /// The file or folder.
        path: PathBuf,
        /// What it is.
        reason: String,
    },
    /// The answer might lie in a partition that was refused.
    #[error("{} of the partitions were refused, so it is not known whether the id exists", partitions.len())]
    Incomplete {
        /// The refused partitions.
        partitions: Vec<TopicPartition>,
    },
    /// A running broker holds the directory, so its files may shrink at any moment and cannot be mapped.
    #[error("a running broker holds {}, which can be read by positioned reads only", path.display())]
    HeldByBroker {
        /// The root.
        path: PathBuf,
    },
    /// The way of reading that was asked for cannot be used here: choose another, or leave the choice to the load.
    #[error("cannot read by {io}{}: {source}", path.as_ref().map(|path| format!(" from {}", path.display())).unwrap_or_default())]
    IoUnavailable {
        /// The way, as [`IoUsed::name`](crate::replay::IoUsed::name) calls it.
        io: &'static str,
        /// The file that cannot be read so; `None` where it is the system that refuses.
        path: Option<PathBuf>,
        /// What the system said.
        source: io::Error,
    },
    /// A partition with more bytes than a place in its log can be numbered by.
    #[error("{partition} has {bytes} bytes, more than the {most} that can be addressed")]
    LogTooLong {
        /// Which partition.
        partition: TopicPartition,
        /// Bytes of its segments.
        bytes: u64,
        /// Most that are possible.
        most: u64,
    },
    /// The map of a partition would need more memory than it may have: give a larger budget, or load fewer partitions.
    #[error("{partition} needs {needed} bytes for its map with {ids} ids so far; {reason}")]
    Memory {
        /// Which partition.
        partition: TopicPartition,
        /// Bytes that all maps would have had with what was asked for last.
        needed: u64,
        /// Ids in the partition's map when it happened.
        ids: u64,
        /// The budget, or what the system said.
        reason: String,
    },
    /// The log is no longer what it was when it was loaded, so the value cannot be read.
    #[error("{} at byte {position} is not what was loaded: {reason}", path.display())]
    Changed {
        /// The segment.
        path: PathBuf,
        /// Byte position of the batch.
        position: u64,
        /// What is different.
        reason: String,
    },
    /// The work was cancelled before it was done.
    #[error("cancelled")]
    Cancelled,
    /// Threads could not be started.
    #[error("cannot start {threads} threads: {source}")]
    Threads {
        /// How many were asked for.
        threads: usize,
        /// What the system said.
        source: io::Error,
    },
    /// An index file cannot be used: let its segment be recovered, which makes it anew from the log.
    #[error("index {}: {reason}", path.display())]
    Index {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A checkpoint file does not have the form that it must have: mend it, or set it aside.
    #[error("checkpoint {}: {reason}", path.display())]
    Checkpoint {
        /// The file.
        path: PathBuf,
        /// What is wrong, with the line.
        reason: String,
    },
    /// A setting is out of its range.
    #[error("{reason}")]
    Config {
        /// The setting, its value and its range.
        reason: String,
    },
    /// An offset that is not in the log.
    #[error("offset {offset} of {partition} is not between {log_start} and {log_end}")]
    OffsetOutOfRange {
        /// Which partition.
        partition: TopicPartition,
        /// The offset that was asked for.
        offset: Offset,
        /// The log start offset.
        log_start: Offset,
        /// The log end offset.
        log_end: Offset,
    },
    /// A negative offset, where no log has one.
    #[error("offset {offset} is negative")]
    NegativeOffset {
        /// The offset.
        offset: Offset,
    },
    /// A log that ends below its log start offset: what lay between is gone. A broker empties it.
    #[error("{partition} ends at {end}, below its log start offset {log_start}")]
    EndsBelowLogStart {
        /// Which partition.
        partition: TopicPartition,
        /// Where its last batch ends.
        end: Offset,
        /// The log start offset.
        log_start: Offset,
    },
    /// The folder belongs to another topic of the same name, which was deleted.
    #[error("{} is of topic id {found}, not {expected}", path.display())]
    InconsistentTopicId {
        /// The partition's folder.
        path: PathBuf,
        /// The id that was asked for, as Kafka writes it.
        expected: String,
        /// The id in `partition.metadata`.
        found: String,
    },
    /// A write or a sync failed before, so nobody knows what the device has: open the log again to go on.
    #[error("{partition} takes nothing more since a write failed; open it again")]
    Poisoned {
        /// Which partition.
        partition: TopicPartition,
    },
    /// The log was closed.
    #[error("{partition} was closed")]
    Closed {
        /// Which partition.
        partition: TopicPartition,
    },
}

fn list_partitions(partitions: &[i32]) -> String {
    match partitions {
        [] => "partition".to_owned(),
        [one] => format!("partition {one}"),
        some => format!("partitions {}", some.iter().map(i32::to_string).collect::<Vec<_>>().join(", ")),
    }
}

fn list_paths(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

impl Error {
    /// An [`Io`](Self::Io) error maker for `map_err`.
    pub(crate) fn io(operation: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { operation, path, source }
    }

    /// A stable kebab-case word for the variant, for machine-readable output.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Io { .. } => "io",
            Self::Corrupt(_) => "corrupt",
            Self::Unsupported { .. } => "unsupported",
            Self::NotALogDirectory { .. } => "not-a-log-directory",
            Self::NoPartitions { .. } => "no-partitions",
            Self::DuplicatePartition { .. } => "duplicate-partition",
            Self::NotRead { .. } => "not-read",
            Self::Incomplete { .. } => "incomplete",
            Self::HeldByBroker { .. } => "held-by-broker",
            Self::IoUnavailable { .. } => "io-unavailable",
            Self::LogTooLong { .. } => "log-too-long",
            Self::Memory { .. } => "memory",
            Self::Changed { .. } => "changed",
            Self::Cancelled => "cancelled",
            Self::Threads { .. } => "threads",
            Self::Index { .. } => "index",
            Self::Checkpoint { .. } => "checkpoint",
            Self::Config { .. } => "config",
            Self::OffsetOutOfRange { .. } => "offset-out-of-range",
            Self::NegativeOffset { .. } => "negative-offset",
            Self::EndsBelowLogStart { .. } => "ends-below-log-start",
            Self::InconsistentTopicId { .. } => "inconsistent-topic-id",
            Self::Poisoned { .. } => "poisoned",
            Self::Closed { .. } => "closed",
        }
    }
}

/// A place in a log that contradicts the format.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Corruption {
    /// The segment file.
    pub path: PathBuf,
    /// Base offset of the batch; or the offset that should come here, where the header cannot be trusted; or that of the
    /// segment, where the file itself is the trouble.
    pub offset: Offset,
    /// Byte position of the batch in the file.
    pub position: u64,
    /// What is wrong.
    pub reason: Reason,
    /// The transactional id (as stored) of the damaged record or, for a bad CRC, of the first record as far as it
    /// can be read.
    pub transactional_id: Option<Vec<u8>>,
    /// What a broker would do about it.
    pub broker: BrokerView,
}

impl fmt::Display for Corruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, offset, position, reason, .. } = self;
        write!(f, "{} at offset {offset}, byte {position}: {reason}", path.display())?;
        if let Some(id) = &self.transactional_id {
            write!(f, " (transactional id {:?})", decode_utf8(id))?;
        }
        write!(f, "; {}", self.broker)
    }
}

impl std::error::Error for Corruption {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.reason)
    }
}

/// What is wrong with a place in a log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// No batch can begin here.
    #[error(transparent)]
    Frame(#[from] FrameFault),
    /// The batch's checksum is wrong.
    #[error(transparent)]
    Crc(#[from] CrcMismatch),
    /// The records do not decompress.
    #[error(transparent)]
    Compression(#[from] CompressionFault),
    /// The records cannot be read for another reason.
    #[error("{0}")]
    Records(String),
    /// The batch does not fit what came before it of the same producer, in a way that no leader writes.
    #[error("{0}")]
    Producer(String),
    /// A record is malformed.
    #[error(transparent)]
    Record(#[from] RecordFault),
    /// A record of a keyed log has no key.
    #[error("record at offset {0} has no key")]
    NullKey(Offset),
    /// The key of a transaction-log record is undecodable.
    #[error("key of the record at offset {offset}: {fault}")]
    Key {
        /// Offset of the record.
        offset: Offset,
        /// What is wrong.
        fault: KeyFault,
    },
    /// The value of a transaction-log record is undecodable.
    #[error("value of the record at offset {offset}: {fault}")]
    Value {
        /// Offset of the record.
        offset: Offset,
        /// What is wrong.
        fault: ValueFault,
    },
    /// Offsets do not rise from batch to batch, record to record or segment to segment.
    #[error("offset goes back: {found} where at least {expected} must follow")]
    OffsetGoesBack {
        /// Smallest offset that may come here.
        expected: Offset,
        /// What came.
        found: Offset,
    },
    /// An offset lies outside its batch or too far above the base of its segment.
    #[error("offset {found} is above {last}, the last that its batch or segment can hold")]
    OffsetTooLarge {
        /// The offset.
        found: Offset,
        /// The largest possible.
        last: Offset,
    },
    /// The file became shorter while it was read.
    #[error("the file shrank from {expected} to {found} bytes while it was read")]
    Shrunk {
        /// Its length when it was listed.
        expected: u64,
        /// Its length now.
        found: u64,
    },
    /// A segment larger than Kafka can open.
    #[error("the segment has {0} bytes, more than the 2147483647 that a segment can have")]
    SegmentTooLarge(u64),
    /// Formats 0 and 1 know no producers and cannot hold transactional state.
    #[error("legacy message format (magic {0}), which a transaction log cannot contain")]
    LegacyFormat(i8),
    /// The log ends below the offset at which it starts according to the checkpoint.
    #[error("the log ends at {end}, below its log start offset {start} in the checkpoint")]
    EndsBelowStart {
        /// Log end offset.
        end: Offset,
        /// Log start offset of the checkpoint file.
        start: Offset,
    },
}

impl Reason {
    /// The reason for records that cannot be read, or `Err` with a sentence where only this build is to blame.
    pub(crate) fn from_records(fault: RecordsFault) -> Result<Self, String> {
        match fault {
            RecordsFault::Compression(fault @ CompressionFault::Unsupported(_)) => Err(fault.to_string()),
            RecordsFault::Compression(fault) => Ok(Self::Compression(fault)),
            other => Ok(Self::Records(other.to_string())),
        }
    }
}

/// What a real broker would make of a damaged place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BrokerView {
    /// Its recovery after an unclean stop would cut here.
    Cuts {
        /// Bytes of this segment that would go.
        bytes: u64,
        /// Segments behind this one that would go too.
        later_segments: usize,
        /// Their bytes.
        later_bytes: u64,
    },
    /// It would not look: a clean stop, or a segment below the recovery point.
    Serves,
    /// It would delete every segment and begin anew at its log start offset.
    DropsLog,
    /// Its recovery would split the segment here, since an offset is too far above the base.
    Splits,
    /// It would not load the partition, on this start or any other.
    RefusesToLoad,
    /// It would look but not see it: recovery checks sizes, CRCs and the range of offsets only.
    Overlooks,
    /// That depends on what happens to the file next.
    Unknown,
}

impl fmt::Display for BrokerView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cuts { bytes, later_segments: 0, .. } => {
                write!(f, "a broker's recovery would cut the last {bytes} bytes of this segment")
            }
            Self::Cuts { bytes, later_segments, later_bytes } => write!(
                f,
                "a broker's recovery would cut the last {bytes} bytes of this segment and delete {later_segments} \
                 later segments with {later_bytes} bytes"
            ),
            Self::DropsLog => {
                f.write_str("a broker would delete every segment and begin anew at the log start offset")
            }
            Self::Serves => f.write_str("a broker would run no recovery here and use the log as it stands"),
            Self::Splits => f.write_str("a broker's recovery would split the segment here"),
            Self::RefusesToLoad => f.write_str("a broker would not load this partition, on any start"),
            Self::Overlooks => f.write_str(
                "a broker's recovery looks at sizes, CRCs and ranges of offsets and would not see it",
            ),
            Self::Unknown => f.write_str("what a broker would do depends on what happens to the file next"),
        }
    }
}
