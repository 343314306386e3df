//! The slow twin: loads a transaction log in the obvious way.
//!
//! This is what a broker does when it becomes coordinator, step by step, with the faults taken out: segments in
//! order, reads of 5 MiB into one heap buffer, whole batches only, a cut-off last batch read again by the next
//! read, every record decoded to owned objects, a plain map in which the last one wins. Unlike a broker it checks
//! every CRC, steps over control batches, and refuses a partition that it cannot read to the end.
//!
//! It judges the fast loader on random logs, and the fast loader's speed is measured against it; so it is plain,
//! but wastes nothing on purpose. It shares no parsing, hashing or map code with the engine. What judges it in
//! turn is the corpus and the vectors, that is, Kafka's own classes.
//!
//! It reads `.log` files under their final names only: leftovers of an interrupted swap are not its subject.
//!
//! Source: TransactionStateManager.loadTransactionMetadata, TransactionLog, DefaultRecordBatch.

mod batch;
mod codecs;
mod error;
mod reader;
mod text;
mod transaction_log;

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

pub use batch::{Batch, Header, Record, next_batch};
pub use error::{NaiveError, Reason};
pub use text::java_text;
pub use transaction_log::{NaiveEntry, read_key, read_value, state_name};

/// Settings of the loader.
#[derive(Clone, Debug)]
pub struct NaiveOptions {
    /// Size of a read and of the buffer, in bytes. Kafka: `transaction.state.log.load.buffer.size`.
    pub read_bytes: usize,
    /// Take what precedes the first bad batch of the last segment, and report that batch in [`NaiveMap::tail`],
    /// instead of refusing the partition. What a tail must look like to be forgiven is not decided here.
    pub readable_prefix: bool,
    /// Batches that end below this offset are not looked into. Kafka: log start offset.
    pub log_start_offset: i64,
    /// Most bytes that the records of one batch may have when decompressed.
    pub decompressed_bytes_max: usize,
}

impl Default for NaiveOptions {
    fn default() -> Self {
        Self {
            read_bytes: 5 * 1024 * 1024,
            readable_prefix: false,
            log_start_offset: 0,
            decompressed_bytes_max: 256 * 1024 * 1024,
        }
    }
}

/// A partition's transactional ids with their last values, and what was met on the way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NaiveMap {
    /// Transactional id to its last value.
    pub entries: HashMap<String, NaiveEntry>,
    /// Segments, those without a byte included.
    pub segments: u64,
    /// Bytes of all whole batches.
    pub bytes: u64,
    /// Batches of any kind.
    pub batches: u64,
    /// Batches of records_count 0 that are not control batches.
    pub empty_batches: u64,
    /// Control batches. They are stepped over: none belongs in this log.
    pub control_batches: u64,
    /// Records outside control batches, tombstones and unknown ones included.
    pub records: u64,
    /// Records with a null value.
    pub tombstones: u64,
    /// Records of an unknown key version.
    pub unknown_keys: u64,
    /// Records of a known key version and an unknown value version.
    pub unknown_values: u64,
    /// Places between two batches where offsets are missing.
    pub offset_gaps: u64,
    /// Offset after the last batch, or the base offset of the last segment where that is larger.
    pub log_end_offset: i64,
    /// The bad batch at which reading ended, under [`NaiveOptions::readable_prefix`].
    pub tail: Option<NaiveError>,
}

/// Loads every partition of a topic that a log directory holds, by partition number. Folders of deleted, stray
/// and future replicas are not partitions. The outer error says that the directory itself cannot be read.
pub fn load_root(
    root: &Path,
    topic: &str,
    options: &NaiveOptions,
) -> Result<BTreeMap<i32, Result<NaiveMap, NaiveError>>, NaiveError> {
    let log_starts = log_start_offsets(root);
    let mut partitions = BTreeMap::new();
    for name in file_names(root)? {
        let Some(digits) = name.strip_prefix(topic).and_then(|rest| rest.strip_prefix('-')) else { continue };
        let Ok(partition) = digits.parse::<i32>() else { continue };
        if partition >= 0 && partition.to_string() == digits {
            let log_start_offset = log_starts.get(&format!("{topic} {partition}")).copied();
            let log_start_offset = log_start_offset.unwrap_or(options.log_start_offset);
            let options = NaiveOptions { log_start_offset, ..options.clone() };
            partitions.insert(partition, load_partition(&root.join(name), &options));
        }
    }
    Ok(partitions)
}

/// Loads one partition's folder.
pub fn load_partition(dir: &Path, options: &NaiveOptions) -> Result<NaiveMap, NaiveError> {
    let segments = segment_files(dir)?;
    let mut map = NaiveMap::default();
    let mut buffer = vec![0; options.read_bytes.max(1)];
    for (index, (base_offset, path)) in segments.iter().enumerate() {
        map.segments += 1;
        if let Err(error) = load_segment(path, *base_offset, &mut buffer, &mut map, options) {
            let is_last = index + 1 == segments.len();
            if !(options.readable_prefix && is_last && error.reason.is_bad_batch()) {
                return Err(error);
            }
            map.tail = Some(error);
        }
    }
    if let Some((base_offset, _)) = segments.last() {
        // The offsets before an active segment without a batch may all have been cleaned away.
        map.log_end_offset = map.log_end_offset.max(*base_offset);
    }
    Ok(map)
}

/// Reads a segment piece by piece, each piece as far as it holds whole batches.
fn load_segment(
    path: &Path,
    base_offset: i64,
    buffer: &mut Vec<u8>,
    map: &mut NaiveMap,
    options: &NaiveOptions,
) -> Result<(), NaiveError> {
    let fail = |position: u64, offset, reason| NaiveError { path: path.to_owned(), position, offset, reason };
    let io = |position, error| fail(position, None, Reason::Io(format!("{error}")));
    let file = File::open(path).map_err(|error| io(0, error))?;
    let file_bytes = file.metadata().map_err(|error| io(0, error))?.len();
    let mut position = 0;
    while position < file_bytes {
        let left = file_bytes - position;
        let filled = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        file.read_exact_at(&mut buffer[..filled], position).map_err(|error| io(position, error))?;
        let mut rest = &buffer[..filled];
        while let Some(batch) = next_batch(rest, left - (filled - rest.len()) as u64)
            .map_err(|reason| fail(position + (filled - rest.len()) as u64, None, reason))?
        {
            load_batch(&batch, base_offset, map, options).map_err(|reason| {
                fail(position + (filled - rest.len()) as u64, Some(batch.header.base_offset), reason)
            })?;
            rest = &rest[batch.bytes.len()..];
        }
        let consumed = filled - rest.len();
        position += consumed as u64;
        if consumed == 0 {
            // Only a batch that lies whole in the file can be larger than the buffer: `next_batch` has looked.
            let larger = batch::batch_bytes(rest).map_or(buffer.len() * 2, |bytes| bytes as usize);
            buffer.resize(larger, 0);
        }
    }
    Ok(())
}

fn load_batch(
    batch: &Batch<'_>,
    segment_base_offset: i64,
    map: &mut NaiveMap,
    options: &NaiveOptions,
) -> Result<(), Reason> {
    let expected_at_least = map.log_end_offset.max(segment_base_offset);
    if batch.header.base_offset < expected_at_least {
        return Err(Reason::OffsetGoesBack { expected_at_least });
    }
    if map.batches > 0 && batch.header.base_offset > map.log_end_offset {
        map.offset_gaps += 1;
    }
    let last_offset = batch.header.last_offset()?;
    map.log_end_offset =
        last_offset.checked_add(1).ok_or(Reason::Header("the last offset is out of range"))?;
    map.batches += 1;
    map.bytes += batch.bytes.len() as u64;
    if batch.header.is_control() {
        map.control_batches += 1;
        return Ok(());
    }
    if batch.header.records_count == 0 {
        map.empty_batches += 1;
    }
    if last_offset < options.log_start_offset {
        return Ok(());
    }
    let payload = batch.decompress(options.decompressed_bytes_max)?;
    for record in batch.records(&payload)? {
        load_record(&record, map)?;
    }
    Ok(())
}

fn load_record(record: &Record<'_>, map: &mut NaiveMap) -> Result<(), Reason> {
    map.records += 1;
    let key = record.key.ok_or(Reason::Key("a record without a key"))?;
    let Some(id) = read_key(key).map_err(Reason::Key)? else {
        map.unknown_keys += 1;
        return Ok(());
    };
    let Some(value) = record.value else {
        map.tombstones += 1;
        map.entries.remove(&id);
        return Ok(());
    };
    match read_value(value).map_err(Reason::Value)? {
        Some(entry) => drop(map.entries.insert(id, NaiveEntry { offset: record.offset, ..entry })),
        None => map.unknown_values += 1,
    }
    Ok(())
}

/// The `.log` files of a folder with their base offsets, ascending.
fn segment_files(dir: &Path) -> Result<Vec<(i64, PathBuf)>, NaiveError> {
    let mut segments = Vec::new();
    for name in file_names(dir)? {
        let Some(digits) = name.strip_suffix(".log") else { continue };
        if digits.len() == 20
            && digits.bytes().all(|byte| byte.is_ascii_digit())
            && let Ok(base_offset) = digits.parse::<i64>()
        {
            segments.push((base_offset, dir.join(name)));
        }
    }
    segments.sort();
    Ok(segments)
}

/// Names in a folder, as far as they are text: no name that Kafka writes is anything else.
fn file_names(dir: &Path) -> Result<Vec<String>, NaiveError> {
    let io = |error| NaiveError::io(dir, &error);
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).map_err(io)? {
        names.extend(entry.map_err(io)?.file_name().into_string());
    }
    Ok(names)
}

/// `log-start-offset-checkpoint` as "topic partition" to offset. As in Kafka, a file that is missing or cannot be
/// read counts as one without entries: then the first segment says where the log starts.
fn log_start_offsets(root: &Path) -> HashMap<String, i64> {
    let text = fs::read_to_string(root.join("log-start-offset-checkpoint")).unwrap_or_default();
    let entries = text.lines().skip(2).map(|line| {
        let (partition, offset) = line.rsplit_once(' ')?;
        Some((partition.to_owned(), offset.parse().ok()?))
    });
    entries.collect::<Option<_>>().unwrap_or_default()
}
