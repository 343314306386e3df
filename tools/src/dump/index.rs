//! The walks over index files. Offset and time indexes are checked against the log beside them.

use std::borrow::Cow;
use std::path::Path;

use redrive::batch::{BatchFrame, Decompressor, Limits};
use redrive::segment::index::{
    IndexFault, OffsetIndex, OffsetIndexEntry, TimeIndex, TimeIndexEntry, TransactionIndex,
};
use redrive::types::Offset;

use super::event::{Damage, Event, Sink, Stop};
use super::input::{Found, LogFile, read_whole};
use super::log::{AnyBatch, sort};

/// How an index is gone through.
#[derive(Clone, Copy, Debug)]
pub(super) struct IndexOptions {
    /// No entries are shown.
    pub(super) verify_only: bool,
    /// Only the check of the index in itself.
    pub(super) sanity_check: bool,
    /// Largest batch that an offset index may lead to, bytes.
    pub(super) message_bytes_max: u64,
    /// Fails where Kafka's tool fails, and finds the end of the entries as it does.
    pub(super) as_kafka: bool,
}

/// Opens the file beside `path` with another suffix. In our own formats its absence only means that nothing can be
/// compared.
fn beside<T>(
    path: &Path,
    suffix: &str,
    options: IndexOptions,
    open: impl Fn(&Path) -> Result<T, Stop>,
) -> Result<Option<T>, Stop> {
    match open(&path.with_extension(suffix)) {
        Ok(opened) => Ok(Some(opened)),
        Err(Stop::Unreadable { source, .. })
            if !options.as_kafka && source.kind() == std::io::ErrorKind::NotFound =>
        {
            Ok(None)
        }
        Err(stop) => Err(stop),
    }
}

/// How many bytes of an index hold entries, if the rest is padding as our own formats see it: zeros to the end.
fn used_bytes(file: &[u8], entry_bytes: usize) -> usize {
    let used = file.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    // A size that is no multiple of the entry size is left for the sanity check to see.
    if file.len().is_multiple_of(entry_bytes) { used.next_multiple_of(entry_bytes) } else { file.len() }
}

/// The check of `--index-sanity-check`, as an event or an error.
fn sanity(checked: Result<(), IndexFault>, options: IndexOptions, sink: &mut dyn Sink) -> Result<bool, Stop> {
    match checked {
        Ok(()) => {
            if options.sanity_check {
                sink.event(Event::Sane)?;
            }
            Ok(options.sanity_check)
        }
        Err(fault) if options.sanity_check => Err(Stop::damaged(None, None, fault)),
        Err(fault) if !options.as_kafka => problem(None, None, fault, sink).map(|()| false),
        Err(_) => Ok(false),
    }
}

fn problem(
    offset: Option<i64>,
    position: Option<usize>,
    reason: impl ToString,
    sink: &mut dyn Sink,
) -> Result<(), Stop> {
    let position = position.map(|position| position as u64);
    sink.event(Event::Problem(Damage { offset, position, reason: reason.to_string() }))
}

/// An offset index. In Kafka's form the log must be there even where nothing is compared.
///
/// # Errors
/// [`Stop`].
pub(super) fn offset_index(
    path: &Path,
    base: i64,
    options: IndexOptions,
    sink: &mut dyn Sink,
) -> Result<(), Stop> {
    let mut log = beside(path, "log", options, LogFile::open)?;
    let mut file = &read_whole(path)?[..];
    if file.len() < OffsetIndexEntry::BYTES {
        sink.event(Event::EmptyIndex)?;
        return Ok(());
    }
    let padding = file.len() - used_bytes(file, OffsetIndexEntry::BYTES);
    if !options.as_kafka {
        file = &file[..file.len() - padding];
    }
    let index = OffsetIndex::new(Offset(base), file);
    if sanity(index.check(), options, sink)? {
        return Ok(());
    }
    let mut previous: Option<OffsetIndexEntry> = None;
    for (number, entry) in index.entries_as_kafka_tool().enumerate() {
        if let Some(log) = &mut log
            && let Some(log_offset) = compare(log, entry, number, options, sink)?
            && log_offset != entry.offset.0
        {
            sink.event(Event::IndexMismatch { index_offset: entry.offset.0, log_offset })?;
        }
        if !options.verify_only {
            sink.event(Event::OffsetIndexEntry { offset: entry.offset.0, position: entry.position })?;
        }
        if !options.as_kafka
            && previous.is_some_and(|last| entry.offset <= last.offset || entry.position <= last.position)
        {
            let at = number * OffsetIndexEntry::BYTES;
            problem(Some(entry.offset.0), Some(at), "the entry does not lie above the one before it", sink)?;
        }
        previous = Some(entry);
    }
    rest(index.entries_as_kafka_tool().count() * OffsetIndexEntry::BYTES, file.len(), padding, options, sink)
}

/// In our own formats: says what lies behind the entries.
fn rest(
    shown: usize,
    used: usize,
    padding: usize,
    options: IndexOptions,
    sink: &mut dyn Sink,
) -> Result<(), Stop> {
    if options.as_kafka {
        return Ok(());
    }
    if shown < used {
        problem(
            None,
            Some(shown),
            format!("{} bytes behind the last entry are not zero", used - shown),
            sink,
        )?;
    }
    if padding > 0 {
        sink.event(Event::Padding { bytes: padding })?;
    }
    Ok(())
}

/// The last offset of the batch that an offset index entry points at; `None` where that is a problem by itself.
fn compare(
    log: &mut LogFile,
    entry: OffsetIndexEntry,
    number: usize,
    options: IndexOptions,
    sink: &mut dyn Sink,
) -> Result<Option<i64>, Stop> {
    let at = (number * OffsetIndexEntry::BYTES) as u64;
    match batch_end(log, entry.position, options.message_bytes_max) {
        Ok(last) => Ok(Some(last)),
        Err(reason @ Stop::Damaged(_)) if options.as_kafka => Err(reason),
        Err(Stop::Damaged(Damage { reason, .. })) => {
            problem(Some(entry.offset.0), Some(at as usize), reason, sink)?;
            Ok(None)
        }
        Err(stop) => Err(stop),
    }
}

fn batch_end(log: &mut LogFile, position: i32, bytes_max: u64) -> Result<i64, Stop> {
    let no_batch = |reason: String| {
        Stop::damaged(None, None, format!("no batch begins at byte {position} of the log: {reason}"))
    };
    let start = start_in(log, position)?;
    match log.batch_at(start, start.saturating_add(bytes_max))? {
        Found::Batch { bytes, magic } => {
            let mut bytes = Cow::Borrowed(bytes);
            match sort(&mut bytes, magic).map_err(|fault| no_batch(fault.to_string()))? {
                AnyBatch::Current(batch) => Ok(batch.frame().last_offset().0),
                AnyBatch::Legacy(message) => Ok(message.offset().0),
            }
        }
        Found::NegativeMagic { offset } => Ok(offset),
        Found::End { left, fault: None } => Err(no_batch(format!("{left} bytes are left"))),
        Found::End { fault: Some(fault), .. } | Found::Bad(fault) => Err(no_batch(fault.to_string())),
    }
}

fn start_in(log: &LogFile, position: i32) -> Result<u64, Stop> {
    u64::try_from(position).ok().filter(|&position| position <= log.len()).ok_or_else(|| {
        Stop::damaged(None, None, format!("byte {position} is outside the log of {} bytes", log.len()))
    })
}

/// A time index. In Kafka's form log and offset index must be there.
///
/// # Errors
/// [`Stop`].
pub(super) fn time_index(
    path: &Path,
    base: i64,
    options: IndexOptions,
    sink: &mut dyn Sink,
) -> Result<(), Stop> {
    let mut log = beside(path, "log", options, LogFile::open)?;
    let offsets = beside(path, "index", options, read_whole)?.unwrap_or_default();
    let offsets = Lookup::new(base, &offsets);
    let mut file = &read_whole(path)?[..];
    let padding = file.len() - used_bytes(file, TimeIndexEntry::BYTES);
    if !options.as_kafka {
        file = &file[..file.len() - padding];
    }
    let index = TimeIndex::new(Offset(base), file);
    if sanity(index.check(), options, sink)? {
        return Ok(());
    }
    let mut previous = -1;
    let mut decompressor = Decompressor::new();
    for (number, entry) in index.entries_as_kafka_tool().enumerate() {
        if let Some(log) = &mut log {
            let found = find(log, offsets.position(entry.offset), entry.offset.0, options, &mut decompressor);
            match found {
                Ok(found) => judge(&entry, found, previous, sink)?,
                Err(Stop::Damaged(Damage { reason, .. })) if !options.as_kafka => {
                    problem(Some(entry.offset.0), Some(number * TimeIndexEntry::BYTES), reason, sink)?;
                }
                Err(stop) => return Err(stop),
            }
        }
        if !options.verify_only {
            let (timestamp, offset) = (entry.timestamp, entry.offset.0);
            sink.event(Event::TimeIndexEntry { timestamp, offset })?;
        }
        previous = entry.timestamp;
    }
    rest(index.entries_as_kafka_tool().count() * TimeIndexEntry::BYTES, file.len(), padding, options, sink)
}

/// Compares a time index entry with the batch found for it: last offset and largest timestamp.
fn judge(
    entry: &TimeIndexEntry,
    found: Option<(i64, i64)>,
    previous: i64,
    sink: &mut dyn Sink,
) -> Result<(), Stop> {
    let (timestamp, index_offset) = (entry.timestamp, entry.offset.0);
    match found {
        Some((last, log_timestamp)) if last == index_offset => {
            if log_timestamp != timestamp {
                sink.event(Event::TimestampMismatch { index_timestamp: timestamp, log_timestamp })?;
            }
            if previous >= timestamp {
                sink.event(Event::TimestampOutOfOrder { timestamp, previous })?;
            }
            Ok(())
        }
        found => {
            let log_offset = found.map_or(-1, |(last, _)| last);
            sink.event(Event::OffsetNotFound { index_offset, log_offset })
        }
    }
}

/// The first batch from `position` on that ends at `offset` or behind it: its last offset, and, if that is `offset`,
/// its largest timestamp.
fn find(
    log: &mut LogFile,
    position: i32,
    offset: i64,
    options: IndexOptions,
    decompressor: &mut Decompressor,
) -> Result<Option<(i64, i64)>, Stop> {
    let mut position = start_in(log, position)?;
    loop {
        match log.batch_at(position, u64::MAX)? {
            Found::Batch { bytes, magic } => {
                let size = bytes.len() as u64;
                let mut bytes = Cow::Borrowed(bytes);
                let damaged = |fault: String| Stop::damaged(None, Some(position), fault);
                let batch = sort(&mut bytes, magic).map_err(|fault| damaged(fault.to_string()))?;
                let last = match &batch {
                    AnyBatch::Current(batch) => batch.frame().last_offset().0,
                    AnyBatch::Legacy(message) => message.offset().0,
                };
                if last == offset {
                    let largest = largest_timestamp(&batch, options, decompressor).map_err(damaged)?;
                    return Ok(Some((last, largest)));
                }
                if last > offset {
                    return Ok(Some((last, -1)));
                }
                position += size;
            }
            Found::End { .. } => return Ok(None),
            Found::NegativeMagic { .. } => {
                return Err(Stop::damaged(None, Some(position), "the magic byte is negative"));
            }
            Found::Bad(fault) => return Err(Stop::damaged(None, Some(position), fault)),
        }
    }
}

/// Kafka's tool takes the largest time of the records, so that an emptied batch has none. The entry was made from
/// the header, which our own formats compare with.
fn largest_timestamp(
    batch: &AnyBatch<'_>,
    options: IndexOptions,
    decompressor: &mut Decompressor,
) -> Result<i64, String> {
    let batch = match batch {
        AnyBatch::Current(batch) => batch,
        AnyBatch::Legacy(message) => {
            let records =
                message.records(decompressor, &Limits::default()).map_err(|fault| fault.to_string())?;
            return Ok(records.iter().map(|record| record.timestamp).fold(-1, i64::max));
        }
    };
    let frame: &BatchFrame<'_> = batch.frame();
    if !options.as_kafka {
        return Ok(frame.max_timestamp());
    }
    let mut largest = -1;
    for record in batch.records(decompressor, &Limits::default()).map_err(|fault| fault.to_string())? {
        largest = largest.max(record.map_err(|fault| fault.to_string())?.timestamp);
    }
    Ok(largest)
}

/// Finds where to start looking for an offset.
struct Lookup<'a> {
    base: Offset,
    entries: &'a [[u8; OffsetIndexEntry::BYTES]],
}

impl<'a> Lookup<'a> {
    fn new(base: i64, file: &'a [u8]) -> Self {
        let base = Offset(base);
        let count = OffsetIndex::new(base, file).entries_as_kafka_tool().count();
        let entries = file.as_chunks().0.get(..count).unwrap_or_default();
        Self { base, entries }
    }

    /// Byte position of the last batch that an entry names at or below `offset`; 0 if none does.
    fn position(&self, offset: Offset) -> i32 {
        let read = |entry: &[u8; OffsetIndexEntry::BYTES]| {
            OffsetIndex::new(self.base, entry).entries_as_kafka_tool().next()
        };
        let above =
            self.entries.partition_point(|entry| read(entry).is_some_and(|entry| entry.offset <= offset));
        above.checked_sub(1).and_then(|last| read(&self.entries[last])).map_or(0, |entry| entry.position)
    }
}

/// A transaction index.
///
/// # Errors
/// [`Stop`]; in Kafka's form an entry of another version ends the tool.
pub(super) fn transaction_index(
    path: &Path,
    base: i64,
    options: IndexOptions,
    sink: &mut dyn Sink,
) -> Result<(), Stop> {
    let file = read_whole(path)?;
    let index = TransactionIndex::new(Offset(base), &file);
    // Kafka's tool reads all entries before it prints the first.
    if options.as_kafka
        && let Some(Err(fault)) = index.entries().find(Result::is_err)
    {
        return Err(Stop::damaged(None, None, fault));
    }
    for entry in index.entries() {
        match entry {
            Ok(entry) => sink.event(Event::Aborted(&entry))?,
            Err(fault) => problem(None, None, fault, sink)?,
        }
    }
    if options.as_kafka {
        return Ok(());
    }
    if let Err(fault @ IndexFault::BelowBase { .. }) = index.check() {
        problem(None, None, fault, sink)?;
    }
    let trailing = index.trailing_bytes();
    if trailing > 0 {
        let at = file.len() - trailing;
        problem(None, Some(at), format!("{trailing} bytes behind the last whole entry"), sink)?;
    }
    Ok(())
}
