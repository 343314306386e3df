//! What a walk over a file tells, and how it ends early.

use std::io;

use redrive::batch::BatchFrame;
use redrive::batch::legacy::LegacyMessage;
use redrive::producer_state::ProducerEntry;
use redrive::segment::index::AbortedTransaction;

/// One thing found in a file.
#[derive(Debug)]
pub(super) enum Event<'a> {
    /// The first line of a log: base offset from the file name; in our own formats that of the first batch, or 0,
    /// where the name is no offset.
    LogStart(i64),
    /// The first line of a KRaft snapshot: end offset and epoch from the file name; in our own formats left out where
    /// the name does not give them.
    SnapshotStart { end_offset: i64, epoch: i32 },
    /// A batch of magic 2, or of a higher magic, which Kafka's tool reads in the same way.
    Batch { frame: BatchFrame<'a>, magic: i8, position: u64, is_valid: bool },
    /// A message of magic 0 or 1.
    Legacy { message: LegacyMessage<'a>, position: u64, is_valid: bool },
    /// A message whose magic byte is negative; Kafka's tool fails in the middle of its line.
    NegativeMagic { offset: i64 },
    /// A record of the batch before it.
    Record(RecordEvent<'a>),
    /// The offset of a record is not that of the record before it plus 1; −1 stands before the first.
    NonConsecutive { previous: i64, offset: i64 },
    /// Bytes at the end that are no whole batch.
    Tail { bytes: u64 },
    /// An offset index without entries.
    EmptyIndex,
    /// An index passed the check of `--index-sanity-check`.
    Sane,
    /// An entry of an offset index.
    OffsetIndexEntry { offset: i64, position: i32 },
    /// An offset index entry names another offset than the batch at its position ends with.
    IndexMismatch { index_offset: i64, log_offset: i64 },
    /// An entry of a time index.
    TimeIndexEntry { timestamp: i64, offset: i64 },
    /// A time index entry has another timestamp than the largest of its batch.
    TimestampMismatch { index_timestamp: i64, log_timestamp: i64 },
    /// A time index entry is not later than the one before it.
    TimestampOutOfOrder { timestamp: i64, previous: i64 },
    /// No batch ends with the offset of a time index entry; −1: none ends behind it either.
    OffsetNotFound { index_offset: i64, log_offset: i64 },
    /// Zeros behind the entries of an index.
    Padding { bytes: usize },
    /// A producer in a snapshot.
    Producer(&'a ProducerEntry),
    /// A producer snapshot that must not be used. `kafka` is what Kafka's tool says.
    BadSnapshot { kafka: String, reason: String },
    /// An aborted transaction.
    Aborted(&'a AbortedTransaction),
    /// An entry or line of another file, in our own formats only.
    Item(&'static str, Vec<(&'static str, FieldValue)>),
    /// Something is wrong here, and the walk goes on.
    Problem(Damage),
}

/// Value of a field of [`Event::Item`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FieldValue {
    Number(i64),
    Text(String),
    Null,
}

/// A record of any message format.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordEvent<'a> {
    pub(super) offset: i64,
    pub(super) timestamp: i64,
    pub(super) timestamp_type: &'static str,
    pub(super) key: Option<&'a [u8]>,
    pub(super) value: Option<&'a [u8]>,
    pub(super) format: RecordFormat<'a>,
}

/// What only one message format has.
#[derive(Clone, Copy, Debug)]
pub(super) enum RecordFormat<'a> {
    /// Magic 0 and 1.
    Legacy { is_valid: bool, crc: u32 },
    /// Magic 2; the position is that of the batch.
    Current { record: redrive::batch::Record<'a>, is_control: bool, position: u64 },
}

/// Something wrong at a place of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Damage {
    /// Log offset, where one is known.
    pub(super) offset: Option<i64>,
    /// Byte position in the file, where the damage has one.
    pub(super) position: Option<u64>,
    /// What is wrong.
    pub(super) reason: String,
}

/// Why a walk ends before the file does.
#[derive(Debug)]
pub(super) enum Stop {
    /// The output cannot be written.
    Output(io::Error),
    /// A file cannot be opened or read.
    Unreadable { path: std::path::PathBuf, source: io::Error },
    /// Nothing behind this can be read.
    Damaged(Damage),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl Stop {
    /// A stop for a fault at a place.
    pub(super) fn damaged(offset: Option<i64>, position: Option<u64>, reason: impl ToString) -> Self {
        Self::Damaged(Damage { offset, position, reason: reason.to_string() })
    }
}

/// Name of the kind of a record's timestamp.
pub(super) fn timestamp_type(magic: i8, is_log_append_time: bool) -> &'static str {
    match (magic, is_log_append_time) {
        (0, _) => "NoTimestampType",
        (_, true) => "LogAppendTime",
        (_, false) => "CreateTime",
    }
}

/// Takes what a walk finds.
pub(super) trait Sink {
    /// Shows one event.
    ///
    /// # Errors
    /// [`Stop`] if the output cannot be written, or where Kafka's tool fails at this event.
    fn event(&mut self, event: Event<'_>) -> Result<(), Stop>;
}
