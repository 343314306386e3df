//! The history of one transactional id: every record of it that is still in the log, read batch by batch.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};

use redrive::Error;
use redrive::batch::{Decompressor, Limits, Record};
use redrive::io::FileSystem;
use redrive::log::LogSnapshot;
use redrive::replay::{Cancel, PartitionOutcome};
use redrive::segment::{Access, Frame, Next, SegmentReader};
use redrive::transaction_log::{Key, Value, decode_utf8};
use serde::Serialize;

use crate::json::path_text;
use crate::row::{Fields, Id};

/// Bytes read at once: a walk for one id is bound by the disk, and files may be growing.
const BUFFER_BYTES: usize = 1 << 20;

/// One record of an id.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HistoryRow<'a> {
    /// Partition of the transaction log.
    pub(crate) partition: i32,
    /// Its offset.
    pub(crate) offset: i64,
    /// The segment file.
    pub(crate) path: String,
    /// Byte position of its batch in the file.
    pub(crate) position: u64,
    /// Its time, ms since 1970.
    pub(crate) timestamp: i64,
    /// The id.
    #[serde(flatten)]
    pub(crate) id: Id<'a>,
    /// No value: the id was removed.
    pub(crate) tombstone: bool,
    /// Schema version of the value; none for a tombstone.
    pub(crate) value_version: Option<i16>,
    /// The value, if its version is known.
    #[serde(flatten)]
    pub(crate) fields: Option<Fields<'a>>,
}

/// Where a walk had to end.
#[derive(Debug)]
pub(crate) struct BadPlace {
    path: PathBuf,
    offset: i64,
    position: u64,
    reason: String,
}

/// Why a walk ended before the end of the log.
#[derive(Debug)]
pub(crate) enum HistoryEnd {
    /// The engine says why.
    Engine(Error),
    /// The bytes are damaged, or cannot be read by this build.
    BadPlace(BadPlace),
    /// The receiver of the records does not want more.
    Receiver(io::Error),
}

impl Display for HistoryEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Engine(error) => error.fmt(f),
            Self::BadPlace(BadPlace { path, offset, position, reason }) => {
                write!(f, "{} at offset {offset}, byte {position}: {reason}", path.display())
            }
            Self::Receiver(error) => error.fmt(f),
        }
    }
}

impl From<Error> for HistoryEnd {
    fn from(error: Error) -> Self {
        Self::Engine(error)
    }
}

/// A walk over one partition's log for one id.
pub(crate) struct Walk<'a> {
    partition: i32,
    snapshot: &'a LogSnapshot,
    /// Where the load ended its own walk: a forgiven tail, or the damage that refused the partition.
    end: Option<(&'a Path, u64)>,
    /// The id in well-formed UTF-8: keys whose malformed bytes decode to the same text are the same id.
    id: &'a str,
    cancel: &'a Cancel,
}

impl<'a> Walk<'a> {
    pub(crate) fn new(
        outcome: &'a PartitionOutcome,
        snapshot: &'a LogSnapshot,
        id: &'a str,
        cancel: &'a Cancel,
    ) -> Self {
        let tail = outcome.stats().and_then(|stats| stats.tail.as_ref());
        let damage = match outcome.error() {
            Some(Error::Corrupt(corruption)) => Some((&*corruption.path, corruption.position)),
            Some(Error::Unsupported { path, position, .. }) => Some((&**path, *position)),
            _ => None,
        };
        Self {
            partition: outcome.topic_partition.partition,
            snapshot,
            end: tail.map(|tail| (&*tail.path, tail.position)).or(damage),
            id,
            cancel,
        }
    }

    /// Hands every record of the id to `receive`, by rising offset, from the log start offset on. Ends without an
    /// error where the load did.
    ///
    /// Cost: reads the whole log; memory for one batch.
    pub(crate) fn run(
        &self,
        receive: &mut dyn FnMut(HistoryRow<'_>) -> io::Result<()>,
    ) -> Result<(), HistoryEnd> {
        let log_start = self.snapshot.log_start_offset();
        let segments = &self.snapshot.segments;
        let mut decompressor = Decompressor::new();
        for (i, segment) in segments.iter().enumerate() {
            // What lies below the log start offset is deleted, and only waits for its removal.
            if segments.get(i + 1).is_some_and(|next| next.base_offset <= log_start) {
                continue;
            }
            let access = Access::Positioned { buffer_bytes: BUFFER_BYTES };
            let mut reader =
                SegmentReader::open(&FileSystem, &segment.path, segment.base_offset, segment.len, access)?;
            loop {
                if self.cancel.is_cancelled() {
                    return Err(Error::Cancelled.into());
                }
                if self.end == Some((&segment.path, reader.position())) {
                    return Ok(());
                }
                let bad = |offset: i64, position: u64, reason: &dyn Display| {
                    let path = segment.path.clone();
                    HistoryEnd::BadPlace(BadPlace { path, offset, position, reason: reason.to_string() })
                };
                let position = reader.position();
                let frame = match reader.next()? {
                    Next::End => break,
                    Next::Bad(fault) => return Err(bad(segment.base_offset.0, position, &fault)),
                    Next::Frame(at) => match at.frame {
                        Frame::Batch(frame) => frame,
                        Frame::Legacy(message) => {
                            let reason = "legacy message format, which a transaction log cannot contain";
                            return Err(bad(message.offset().0, position, &reason));
                        }
                    },
                };
                let base = frame.base_offset().0;
                let batch = frame.verify().map_err(|fault| bad(base, position, &fault))?;
                if frame.is_control() || frame.last_offset() < log_start {
                    continue;
                }
                let records = batch
                    .records(&mut decompressor, &Limits::default())
                    .map_err(|fault| bad(base, position, &fault))?;
                for record in records {
                    let record = record.map_err(|fault| bad(base, position, &fault))?;
                    let row = self.row(&record, &segment.path, position);
                    if let Some(row) = row.map_err(|reason| bad(record.offset.0, position, &reason))? {
                        receive(row).map_err(HistoryEnd::Receiver)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// The row of a record; none for a record of another id.
    fn row<'r>(
        &self,
        record: &Record<'r>,
        path: &Path,
        position: u64,
    ) -> Result<Option<HistoryRow<'r>>, String> {
        let key = record.key.ok_or("record without a key")?;
        let id = match Key::parse(key).map_err(|fault| fault.to_string())? {
            Key::TransactionalId(id) if decode_utf8(id) == self.id => id,
            _ => return Ok(None),
        };
        let (value_version, fields) = match record.value.map(Value::parse).transpose() {
            Ok(None) => (None, None),
            Ok(Some(Value::Unknown { version })) => (Some(version), None),
            Ok(Some(Value::Known(fields))) => {
                let view = fields.transaction().map_err(|fault| fault.to_string())?;
                (Some(fields.version.code()), Some(Fields::new(&view)))
            }
            Err(fault) => return Err(fault.to_string()),
        };
        Ok(Some(HistoryRow {
            partition: self.partition,
            offset: record.offset.0,
            path: path_text(path.as_os_str()),
            position,
            timestamp: record.timestamp,
            id: Id::new(id),
            tombstone: record.value.is_none(),
            value_version,
            fields,
        }))
    }
}
