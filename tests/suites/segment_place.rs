//! What the suites of rows about segments share: where a case runs, batches of given offsets and times, and looks at what
//! a segment has.
#![allow(dead_code, reason = "each test binary uses its part of this file")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use redrive::Error;
use redrive::batch::{BatchFrame, Limits};
use redrive::io::{FileSystem, MemoryStorage, Storage};
use redrive::segment::index::AbortedTransaction;
use redrive::segment::{BatchFacts, Segment, SegmentConfig, SegmentFileState, SegmentRead, SegmentWriter};
use redrive::types::Offset;
use redrive_tests::logs::{BatchSpec, RecordSpec};
use serde_json::Value;
use tempfile::TempDir;

pub(crate) fn row(name: &str) -> Value {
    let path = redrive_tests::corpus::fixtures().join("cases/segment.json");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let all: Value = serde_json::from_str(&text).expect("segment.json is JSON");
    all.get(name).unwrap_or_else(|| panic!("no data for {name}")).clone()
}

pub(crate) fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or_else(|| panic!("{value} is no number"))
}

pub(crate) fn numbers(value: &Value) -> Vec<i64> {
    value.as_array().unwrap_or_else(|| panic!("{value} is no list")).iter().map(number).collect()
}

pub(crate) fn lists(value: &Value) -> Vec<Vec<i64>> {
    value.as_array().unwrap_or_else(|| panic!("{value} is no list")).iter().map(numbers).collect()
}

/// Where a case runs.
pub(crate) struct Place {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) directory: PathBuf,
    _temporary: Option<TempDir>,
}

pub(crate) fn places() -> [Place; 2] {
    let memory = MemoryStorage::new();
    memory.create_directory("/log/data-0");
    let temporary = tempfile::tempdir().expect("a folder");
    let directory = temporary.path().to_path_buf();
    [
        Place { storage: Arc::new(memory), directory: "/log/data-0".into(), _temporary: None },
        Place { storage: Arc::new(FileSystem), directory, _temporary: Some(temporary) },
    ]
}

impl Place {
    pub(crate) fn create(&self, base: i64, config: &SegmentConfig) -> SegmentWriter {
        let storage = Arc::clone(&self.storage);
        SegmentWriter::create(storage, &self.directory, Offset(base), config.clone(), 0)
            .expect("a new segment")
    }

    pub(crate) fn open(&self, base: i64) -> Arc<Segment> {
        let storage = Arc::clone(&self.storage);
        let segment = Segment::open(storage, &self.directory, Offset(base), SegmentFileState::Live);
        Arc::new(segment.expect("a segment that is there"))
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = self
            .storage
            .list(&self.directory)
            .expect("a folder")
            .into_iter()
            .map(|entry| entry.name.into_string().expect("ASCII"))
            .collect();
        names.sort();
        names
    }

    pub(crate) fn file(&self, path: &Path) -> Vec<u8> {
        redrive::io::read_small(&*self.storage, path, 1 << 30).expect("a readable file")
    }

    pub(crate) fn overwrite(&self, path: &Path, position: u64, bytes: &[u8]) {
        let file = self.storage.open_writable(path).expect("a file");
        file.write_at(position, bytes).expect("written");
    }
}

/// A batch of records at these offsets and times.
pub(crate) fn batch_of(records: &[(i64, i64)]) -> Vec<u8> {
    let (base_offset, base_timestamp) = records[0];
    let spec = records.iter().map(|(offset, timestamp)| RecordSpec {
        timestamp_delta: timestamp - base_timestamp,
        ..RecordSpec::new((offset - base_offset) as i32, b"key".to_vec(), Some(b"value".to_vec()))
    });
    BatchSpec { base_offset, base_timestamp, records: spec.collect(), ..BatchSpec::default() }.encode()
}

/// A batch of a record at each offset of a range, inclusive, at time −1.
pub(crate) fn range(first: i64, last: i64) -> Vec<u8> {
    batch_of(&(first..=last).map(|offset| (offset, -1)).collect::<Vec<_>>())
}

/// A record whose time is ten times its offset.
pub(crate) fn timed(offset: i64) -> Vec<u8> {
    batch_of(&[(offset, offset * 10)])
}

pub(crate) fn facts(mut bytes: &[u8]) -> Vec<BatchFacts> {
    let mut facts = Vec::new();
    while !bytes.is_empty() {
        let length = u32::from_be_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]) as usize + 12;
        facts.push(BatchFacts::of(&BatchFrame::new(&bytes[..length]).expect("a batch")));
        bytes = &bytes[length..];
    }
    facts
}

pub(crate) fn append(writer: &mut SegmentWriter, bytes: &[u8]) {
    writer.append(bytes, &facts(bytes)).expect("an append");
}

pub(crate) fn read(segment: &Segment, offset: i64) -> Option<SegmentRead> {
    segment.read(Offset(offset), 300, Some(segment.size()), false).expect("a read")
}

/// First offset that a read gives.
pub(crate) fn first(segment: &Segment, offset: i64) -> Option<i64> {
    let found = read(segment, offset)?;
    let base = found.bytes.first_chunk::<8>().map(|bytes| i64::from_be_bytes(*bytes));
    assert_eq!(base, Some(found.offset.0), "the bytes begin with the batch");
    base
}

pub(crate) fn offset_entries(segment: &Segment) -> Vec<i64> {
    segment.offset_index().expect("an index").entries().map(|entry| entry.offset.0).collect()
}

pub(crate) fn time_entries(segment: &Segment) -> Vec<Vec<i64>> {
    let index = segment.time_index().expect("an index");
    index.entries().map(|entry| vec![entry.timestamp, entry.offset.0]).collect()
}

pub(crate) fn interval(bytes: u32) -> SegmentConfig {
    SegmentConfig { index_interval_bytes: bytes, ..SegmentConfig::default() }
}

pub(crate) fn find_time(segment: &Segment, timestamp: i64) -> Option<i64> {
    let found = segment.find_by_timestamp(timestamp, segment.base_offset(), &Limits::default());
    found.expect("a search").map(|record| record.offset.0)
}

pub(crate) fn no_producers(_: &BatchFrame<'_>, _: u64) -> Result<Option<AbortedTransaction>, Error> {
    Ok(None)
}
