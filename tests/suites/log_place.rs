//! What the suites about partition logs share: where a case runs, batches, appends, and looks at what a log has.
#![allow(dead_code, reason = "each test binary uses its part of this file")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use redrive::Error;
use redrive::batch::BatchFrame;
use redrive::io::{FileSystem, MemoryStorage, Storage, read_small, remove_if_there};
use redrive::log::validate::AppendOrigin;
use redrive::log::{AppendError, AppendInfo, LeaderRequest, Log, LogConfig, LogRecovery, LogState, ReadUpTo};
use redrive::types::{Offset, TopicPartition};
use redrive_tests::logs::{BatchSpec, RecordSpec, TRANSACTIONAL};
use serde_json::Value;
use tempfile::TempDir;

/// The time of the tests' records and appends, ms since the epoch.
pub(crate) const NOW: i64 = 1_700_000_000_000;

pub(crate) fn row(name: &str) -> Value {
    let path = redrive_tests::corpus::fixtures().join("cases/log.json");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let all: Value = serde_json::from_str(&text).expect("log.json is JSON");
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

/// The storage in memory, and the file system.
pub(crate) fn places() -> [Place; 2] {
    [memory().0, on_disk()]
}

pub(crate) fn memory() -> (Place, MemoryStorage) {
    let memory = MemoryStorage::new();
    memory.create_directory("/log");
    let storage = Arc::new(memory.clone());
    (Place { storage, directory: "/log/t-0".into(), _temporary: None }, memory)
}

pub(crate) fn on_disk() -> Place {
    let temporary = tempfile::tempdir().expect("a folder");
    let directory = temporary.path().join("t-0");
    Place { storage: Arc::new(FileSystem), directory, _temporary: Some(temporary) }
}

/// After a clean stop, or another one.
pub(crate) fn state(clean_shutdown: bool) -> LogState {
    LogState { clean_shutdown, now_ms: NOW, ..LogState::default() }
}

impl Place {
    pub(crate) fn try_open(&self, config: &LogConfig, state: &LogState) -> Result<(Log, LogRecovery), Error> {
        let storage = Arc::clone(&self.storage);
        Log::open(storage, &self.directory, TopicPartition::new("t", 0), config.clone(), state)
    }

    pub(crate) fn open_as(&self, config: &LogConfig, state: &LogState) -> (Log, LogRecovery) {
        self.try_open(config, state).expect("a log that opens")
    }

    pub(crate) fn open(&self, config: &LogConfig) -> Log {
        self.open_as(config, &state(true)).0
    }

    pub(crate) fn open_unclean(&self, config: &LogConfig) -> (Log, LogRecovery) {
        self.open_as(config, &state(false))
    }

    /// Names in the partition's folder, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        let list = self.storage.list(&self.directory).expect("a folder");
        let mut names: Vec<_> = list.into_iter().map(|e| e.name.into_string().expect("ASCII")).collect();
        names.sort();
        names
    }

    pub(crate) fn with_suffix(&self, suffix: &str) -> Vec<String> {
        self.names().into_iter().filter(|name| name.ends_with(suffix)).collect()
    }

    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.directory.join(name)
    }

    pub(crate) fn file(&self, name: impl AsRef<Path>) -> Vec<u8> {
        let path = self.path(name);
        read_small(&*self.storage, &path, 1 << 30).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    }

    pub(crate) fn remove(&self, name: impl AsRef<Path>) {
        self.storage.remove_file(&self.path(name)).expect("removed");
    }

    /// Gives a file this content; it is another file afterwards.
    pub(crate) fn put(&self, name: impl AsRef<Path>, bytes: &[u8]) {
        let path = self.path(name);
        match self.storage.create_dir(&self.directory) {
            Ok(()) => {}
            Err(e) => assert_eq!(e.kind(), std::io::ErrorKind::AlreadyExists, "{e}"),
        }
        remove_if_there(&*self.storage, &path).expect("removed");
        self.storage.create_file(&path).expect("a new file").write_at(0, bytes).expect("written");
    }

    pub(crate) fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) {
        self.storage.rename(&self.path(from), &self.path(to)).expect("renamed");
    }

    /// Changes a file as a whole.
    pub(crate) fn edit(&self, name: impl AsRef<Path>, change: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = self.file(&name);
        change(&mut bytes);
        self.put(name, &bytes);
    }

    /// Every file of the folder, by name.
    pub(crate) fn files(&self) -> std::collections::BTreeMap<String, Vec<u8>> {
        self.names().into_iter().map(|name| (name.clone(), self.file(&name))).collect()
    }
}

pub(crate) fn log_name(base: i64) -> String {
    format!("{base:020}.log")
}

pub(crate) fn index_name(base: i64) -> String {
    format!("{base:020}.index")
}

/// A batch of a record at each offset of a range, inclusive, at the tests' time.
pub(crate) fn range(first: i64, last: i64) -> BatchSpec {
    timed(first, &vec![NOW; (last - first + 1) as usize])
}

/// A batch of records at these times, from an offset on.
pub(crate) fn timed(base_offset: i64, times: &[i64]) -> BatchSpec {
    let records = times.iter().enumerate().map(|(delta, time)| RecordSpec {
        timestamp_delta: time - times[0],
        ..RecordSpec::new(delta as i32, b"key".to_vec(), Some(b"value".to_vec()))
    });
    BatchSpec { base_offset, base_timestamp: times[0], records: records.collect(), ..BatchSpec::default() }
}

/// A batch of a producer.
pub(crate) fn produced(
    base_offset: i64,
    records: usize,
    producer_id: i64,
    epoch: i16,
    sequence: i32,
) -> BatchSpec {
    let batch = timed(base_offset, &vec![NOW; records]);
    BatchSpec { producer_id, producer_epoch: epoch, base_sequence: sequence, ..batch }
}

pub(crate) fn transactional(batch: BatchSpec) -> BatchSpec {
    BatchSpec { attributes: batch.attributes | TRANSACTIONAL, ..batch }
}

pub(crate) fn request(leader_epoch: i32, now_ms: i64) -> LeaderRequest {
    LeaderRequest {
        origin: AppendOrigin::Client,
        leader_epoch,
        now_ms,
        verification_guard: None,
        transaction_version: 0,
    }
}

pub(crate) fn lead(log: &Log, batch: &BatchSpec) -> AppendInfo {
    lead_at(log, batch, 0, NOW).expect("an append").expect("a batch")
}

pub(crate) fn lead_at(
    log: &Log,
    batch: &BatchSpec,
    leader_epoch: i32,
    now_ms: i64,
) -> Result<Option<AppendInfo>, AppendError> {
    log.append_as_leader(&mut batch.encode(), &request(leader_epoch, now_ms))
}

/// The marker that a coordinator has written.
pub(crate) fn lead_marker(log: &Log, producer_id: i64, epoch: i16, is_commit: bool) -> AppendInfo {
    let request = LeaderRequest { origin: AppendOrigin::Coordinator, ..request(0, NOW) };
    let marker = BatchSpec { base_timestamp: NOW, ..BatchSpec::marker(0, producer_id, epoch, is_commit, 0) };
    log.append_as_leader(&mut marker.encode(), &request).expect("an append").expect("a batch")
}

pub(crate) fn follow(log: &Log, batches: &[BatchSpec]) -> Option<AppendInfo> {
    follow_at(log, batches, 1 << 20).expect("an append")
}

pub(crate) fn follow_at(
    log: &Log,
    batches: &[BatchSpec],
    leader_epoch: i32,
) -> Result<Option<AppendInfo>, AppendError> {
    let bytes: Vec<u8> = batches.iter().flat_map(BatchSpec::encode).collect();
    log.append_as_follower(&bytes, leader_epoch, NOW)
}

/// Every batch from an offset on, as bytes.
pub(crate) fn batches_from(log: &Log, start: i64) -> Vec<Vec<u8>> {
    let (mut at, mut found) = (Offset(start), Vec::new());
    loop {
        let read = log.read(at, 1 << 20, ReadUpTo::LogEnd, true).expect("a read");
        if read.bytes.is_empty() {
            return found;
        }
        let mut rest = &read.bytes[..];
        while !rest.is_empty() {
            let (frame, after) = BatchFrame::parse(rest).expect("a whole batch");
            frame.verify().expect("a good checksum");
            assert!(frame.last_offset() >= at || found.is_empty(), "reads go forward");
            found.push(frame.bytes().to_vec());
            (at, rest) = (frame.last_offset().next(), after);
        }
    }
}

/// Base and last offset of every batch from the log start on.
pub(crate) fn bounds(log: &Log) -> Vec<(i64, i64)> {
    let bounds_of = |bytes: &Vec<u8>| {
        let frame = BatchFrame::new(bytes).expect("a batch");
        (frame.base_offset().0, frame.last_offset().0)
    };
    batches_from(log, log.log_start_offset().0).iter().map(bounds_of).collect()
}

pub(crate) fn bases(log: &Log) -> Vec<i64> {
    log.segment_base_offsets().iter().map(|base| base.0).collect()
}

/// Epochs and where they began.
pub(crate) fn epochs(log: &Log) -> Vec<Vec<i64>> {
    let entries = log.leader_epochs().entries().to_vec();
    entries.iter().map(|entry| vec![i64::from(entry.epoch), entry.start_offset.0]).collect()
}

/// Offset of the first batch that a read gives; `None` for nothing.
pub(crate) fn first(log: &Log, offset: i64, bytes_max: u32, at_least_one: bool) -> Option<i64> {
    let read = log.read(Offset(offset), bytes_max, ReadUpTo::LogEnd, at_least_one).expect("a read");
    let found = read.bytes.first_chunk::<8>().map(|bytes| i64::from_be_bytes(*bytes));
    if found.is_some() {
        assert_eq!(found, Some(read.offset.0));
    }
    found
}

/// Entries of the producer state, as a snapshot would have them, by id.
pub(crate) fn producers(log: &Log) -> Vec<redrive::producer_state::ProducerEntry> {
    let producers = log.producer_state();
    let mut entries: Vec<_> = producers.entries().map(|entry| entry.to_snapshot()).collect();
    entries.sort_by_key(|entry| entry.producer_id);
    entries
}

/// Offsets of the producer snapshots in the folder.
pub(crate) fn snapshots(place: &Place) -> Vec<i64> {
    place.with_suffix(".snapshot").iter().map(|name| name[..20].parse().expect("an offset")).collect()
}
