//! What once went wrong with logs and roots: each test is a way in which records were lost, came back, or were not to be
//! had.

use std::io::ErrorKind;
use std::num::NonZero;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::{fs, ops};

use redrive::Error;
use redrive::batch::{BatchBuilder, BatchFrame, Limits, NewRecord};
use redrive::io::{FileSystem, MemoryStorage, Operation, Storage};
use redrive::log::validate::AppendOrigin;
use redrive::log::{LeaderRequest, Log, LogConfig, LogState, ReadUpTo};
use redrive::log_dir::{LogRoot, OpenOptions};
use redrive::types::{Offset, TopicPartition};

/// A segment for every three records or so, an index entry for every one.
fn small() -> LogConfig {
    LogConfig { segment_bytes: 300, index_interval_bytes: 0, ..LogConfig::default() }
}

fn config(_: &TopicPartition) -> LogConfig {
    small()
}

fn partition() -> TopicPartition {
    TopicPartition::new("t", 0)
}

fn memory() -> MemoryStorage {
    let storage = MemoryStorage::new();
    storage.create_directory("/r");
    storage
}

fn open(storage: &MemoryStorage, config: LogConfig, state: &LogState) -> Result<Log, Error> {
    let storage = Arc::new(storage.clone());
    Ok(Log::open(storage, Path::new("/r/t-0"), partition(), config, state)?.0)
}

fn clean() -> LogState {
    LogState { clean_shutdown: true, ..LogState::default() }
}

fn root(storage: Arc<dyn Storage>, path: &Path) -> LogRoot {
    let options = OpenOptions {
        threads: NonZero::<usize>::MIN,
        config: &config,
        may_reset: false,
        now_ms: 1,
        progress: None,
    };
    LogRoot::open(storage, path, &options).expect("a root").0
}

fn create(root: &LogRoot) -> Arc<Log> {
    root.create(&partition(), None, small(), 1).expect("a log")
}

fn batch(offset: i64, timestamp: i64) -> Vec<u8> {
    let mut builder = BatchBuilder::new(Offset(offset));
    let record = NewRecord { timestamp, key: None, value: Some(b"v"), headers: &[] };
    builder.push(&record).expect("a record").leader_epoch(2);
    builder.build().expect("a batch")
}

/// Appends records with these timestamps.
fn lead(log: &Log, timestamps: ops::Range<i64>) {
    let request = LeaderRequest {
        origin: AppendOrigin::Client,
        leader_epoch: 2,
        now_ms: 1000,
        verification_guard: None,
        transaction_version: 0,
    };
    for timestamp in timestamps {
        log.append_as_leader(&mut batch(0, timestamp), &request).expect("an append");
    }
}

/// All that there is now, as after the end of the process.
fn copy(storage: &MemoryStorage) -> MemoryStorage {
    let copy = memory();
    for folder in ["/r", "/r/t-0"] {
        for entry in storage.list(Path::new(folder)).unwrap_or_default() {
            let path = Path::new(folder).join(&entry.name);
            if let Some(bytes) = storage.content(&path) {
                copy.write(path, bytes);
            }
        }
    }
    copy.create_directory("/r/t-0");
    copy
}

fn found_at(log: &Log, timestamp: i64) -> Option<i64> {
    let found = log.find_by_timestamp(timestamp, ReadUpTo::LogEnd, &Limits::default()).expect("a look-up");
    found.map(|found| found.offset.0)
}

fn bytes_at(log: &Log, offset: i64) -> usize {
    log.read(Offset(offset), 1 << 20, ReadUpTo::LogEnd, true).expect("a read").bytes.len()
}

#[test]
fn batches_below_the_base_offset_end_the_opening() {
    let storage = memory();
    storage.write("/r/t-0/00000000000000000100.log", [batch(5, 1), batch(6, 1)].concat());
    storage.refuse_from(3000, ErrorKind::Other);
    let error = open(&storage, LogConfig::default(), &LogState::default()).expect_err("refused");
    assert!(matches!(error, Error::Corrupt(_)), "{error}");
    assert!(storage.operations().len() < 100, "{} operations", storage.operations().len());
}

#[test]
fn checkpoints_of_partitions_that_are_nowhere_do_not_count_for_new_ones() {
    let storage = memory();
    storage.write("/r/log-start-offset-checkpoint", "0\n1\nt 0 5000\n");
    storage.write("/r/recovery-point-offset-checkpoint", "0\n1\nt 0 9000\n");
    let open = || root(Arc::new(storage.clone()), Path::new("/r"));
    let first = open();
    let log = create(&first);
    // The file is right before there is a folder.
    let point = storage.content("/r/recovery-point-offset-checkpoint").expect("a file");
    assert_eq!(String::from_utf8(point).expect("text"), "0\n0\n");
    lead(&log, 0..10);
    drop(log);
    first.close(1).expect("closed");
    let second = open();
    assert!(second.failed().is_empty(), "{:?}", second.failed());
    assert_eq!(second.logs()[0].log_end_offset(), Offset(10));
}

#[test]
fn links_are_not_followed_out_of_a_root() {
    let dir = tempfile::tempdir().expect("a folder");
    let (path, precious) = (dir.path().join("root"), dir.path().join("precious"));
    fs::create_dir_all(&path).expect("a folder");
    fs::create_dir_all(&precious).expect("a folder");
    fs::write(precious.join("file"), b"x").expect("a file");
    let deleted = format!("t-0.{}-delete", "0123456789abcdef".repeat(2));
    symlink(&precious, path.join(deleted)).expect("a link");
    symlink(&precious, path.join("u-0")).expect("a link");
    let root = root(Arc::new(FileSystem), &path);
    assert_eq!(root.remove_deleted().expect("nothing of ours"), 0);
    assert!(matches!(root.failed()[&TopicPartition::new("u", 0)], Error::NotRead { .. }));
    assert_eq!(fs::read_dir(&precious).expect("a folder").count(), 1);
}

#[test]
fn a_segment_that_is_a_link_is_not_passed_over() {
    let dir = tempfile::tempdir().expect("a folder");
    let open = || root(Arc::new(FileSystem), &dir.path().join("root"));
    let first = open();
    lead(&create(&first), 0..10);
    let last = first.logs()[0].segment_base_offsets().last().expect("a segment").0;
    first.close(1).expect("closed");
    let (from, to) = (dir.path().join(format!("root/t-0/{last:020}.log")), dir.path().join("moved"));
    fs::rename(&from, &to).expect("moved");
    symlink(&to, &from).expect("a link");
    assert!(matches!(open().failed()[&partition()], Error::NotRead { .. }));
}

#[test]
fn the_lock_stays_as_long_as_a_log_can_be_written_to() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("root");
    let first = root(Arc::new(FileSystem), &path);
    let log = create(&first);
    drop(first);
    let options = OpenOptions {
        threads: NonZero::<usize>::MIN,
        config: &config,
        may_reset: false,
        now_ms: 1,
        progress: None,
    };
    let error = LogRoot::open(Arc::new(FileSystem), &path, &options).expect_err("held");
    assert!(matches!(error, Error::HeldByBroker { .. }), "{error}");
    lead(&log, 0..1);
    drop(log);
    root(Arc::new(FileSystem), &path);
}

#[test]
fn a_held_log_finds_timestamps_after_its_files_are_gone() {
    let storage = memory();
    let log = open(&storage, small(), &clean()).expect("a log");
    lead(&log, 1000..1030);
    log.close().expect("closed");
    let log = open(&storage, small(), &clean()).expect("a log");
    log.update_high_watermark(Offset(30)).expect("raised");
    let held = log.snapshot();
    log.increment_log_start_offset(Offset(28)).expect("raised");
    assert!(log.delete_before_log_start(0).expect("deleted") > 3);
    log.remove_deleted(i64::MAX).expect("removed");
    let found = held.find_by_timestamp(1020, ReadUpTo::LogEnd, &Limits::default()).expect("a look-up");
    assert_eq!(found.map(|found| found.offset), Some(Offset(20)));
}

#[test]
fn batches_too_far_apart_for_one_segment_go_into_two() {
    let storage = memory();
    let log = open(&storage, LogConfig::default(), &LogState::default()).expect("a log");
    log.append_as_follower(&[batch(0, 1), batch(3_000_000_000, 1)].concat(), 2, 1).expect("an append");
    assert_eq!(log.segment_base_offsets(), [Offset(0), Offset(3_000_000_000)]);
    assert!(bytes_at(&log, 0) > 0 && bytes_at(&log, 3_000_000_000) > 0);
}

#[test]
fn a_wrong_entry_of_the_last_index_does_not_keep_a_log_from_opening() {
    let storage = memory();
    let config = || LogConfig { index_interval_bytes: 0, ..LogConfig::default() };
    let log = open(&storage, config(), &clean()).expect("a log");
    lead(&log, 1000..1010);
    log.close().expect("closed");
    let path = "/r/t-0/00000000000000000000.index";
    let right = storage.content(path).expect("an index");
    for at in 0..right.len() {
        let storage = copy(&storage);
        let mut wrong = right.clone();
        wrong[at] ^= 1;
        storage.write(path, wrong);
        let log = open(&storage, config(), &clean()).expect("a log");
        assert_eq!(log.log_end_offset(), Offset(10), "byte {at}");
        lead(&log, 1010..1012);
        assert_eq!(found_at(&log, 1011), Some(11), "byte {at}");
    }
}

/// Killed at every change: the next start finds timestamps where they are.
#[test]
fn an_index_that_was_half_rebuilt_is_rebuilt_again() {
    let storage = memory();
    let log = open(&storage, small(), &clean()).expect("a log");
    lead(&log, 1000..1030);
    log.close().expect("closed");
    storage.remove("/r/t-0/00000000000000000000.index");
    let state = LogState { recovery_point: Offset(30), ..LogState::default() };
    let mut points = 0;
    loop {
        let killed = copy(&storage);
        killed.refuse_from(points, ErrorKind::Other);
        let is_done = open(&killed, small(), &state).is_ok();
        let log = open(&copy(&killed), small(), &state).expect("a log");
        assert_eq!((found_at(&log, 1001), log.log_end_offset()), (Some(1), Offset(30)), "killed at {points}");
        if is_done {
            break;
        }
        points += 1;
    }
    assert!(points > 5, "{points} changes");
}

#[test]
fn a_truncation_that_fails_hides_nothing() {
    let storage = memory();
    let log = open(&storage, LogConfig { index_interval_bytes: 0, ..LogConfig::default() }, &clean());
    let log = log.expect("a log");
    lead(&log, 1000..1010);
    for later in 0..4 {
        storage.refuse_from(storage.operations().len() + later, ErrorKind::StorageFull);
        if log.truncate_to(Offset(5), 1).is_err() {
            break;
        }
    }
    assert!(log.is_poisoned());
    assert!(log.segments_count() == 1 && bytes_at(&log, 2) > 0);
}

/// Killed at every change: the log is the old one or the new one, never one that begins at 0.
#[test]
fn a_log_that_begins_anew_never_begins_at_zero() {
    let storage = memory();
    let log = open(&storage, LogConfig::default(), &clean()).expect("a log");
    log.truncate_fully_and_start_at(Offset(1000), None, 1).expect("restarted");
    lead(&log, 0..5);
    let mut points = 0;
    loop {
        let killed = copy(&storage);
        let log = open(&killed, LogConfig::default(), &LogState::default()).expect("a log");
        killed.refuse_from(killed.operations().len() + points, ErrorKind::Other);
        let is_done = log.truncate_fully_and_start_at(Offset(2000), None, 1).is_ok();
        let log = open(&copy(&killed), LogConfig::default(), &LogState::default()).expect("a log");
        let ends = (log.log_start_offset().0, log.log_end_offset().0);
        assert!(matches!(ends, (1000, 1005 | 2000) | (2000, 2000)), "killed at {points}: {ends:?}");
        if is_done {
            break;
        }
        points += 1;
    }
    assert!(points > 5, "{points} changes");
}

/// What the device lost of records that were appended after a truncation is looked for at the next start.
#[test]
fn a_truncation_lowers_the_recovery_point_of_the_checkpoint() {
    let storage = memory();
    let open = || root(Arc::new(storage.clone()), Path::new("/r"));
    let first = open();
    let log = create(&first);
    lead(&log, 0..30);
    log.flush(Offset(30)).expect("flushed");
    first.checkpoint().expect("written");
    log.truncate_to(Offset(5), 1).expect("truncated");
    let point = storage.content("/r/recovery-point-offset-checkpoint").expect("a file");
    assert_eq!(String::from_utf8(point).expect("text"), "0\n1\nt 0 5\n");
    lead(&log, 5..40);
    let base = log.segment_base_offsets()[3].0;
    drop((log, first));
    let path = format!("/r/t-0/{base:020}.log");
    let len = storage.content(&path).expect("a segment").len();
    storage.write(path, vec![0; len]);
    let second = open();
    assert!(second.failed().is_empty(), "{:?}", second.failed());
    assert_eq!(second.logs()[0].log_end_offset(), Offset(base));
}

#[test]
fn a_partition_that_cannot_be_deleted_is_still_closed() {
    let storage = memory();
    let root = root(Arc::new(storage.clone()), Path::new("/r"));
    let log = create(&root);
    lead(&log, 0..10);
    storage.refuse_from(storage.operations().len(), ErrorKind::Other);
    root.delete(&partition()).expect_err("refused");
    storage.refuse_from(usize::MAX, ErrorKind::Other);
    let before = storage.operations().len();
    root.close(1).expect("closed");
    let is_log = |path: &Path| path.starts_with("/r/t-0") && path.extension().is_some_and(|end| end == "log");
    let synced = storage.operations()[before..]
        .iter()
        .any(|operation| matches!(operation, Operation::SyncData(path) if is_log(path)));
    assert!(synced && storage.content("/r/.kafka_cleanshutdown").is_some());
    assert!(log.append_as_follower(&batch(10, 1), 2, 1).is_err(), "closed");
}

/// A truncation between two appends of the same offsets: readers see a prefix of one of the two logs.
#[test]
fn a_truncated_log_is_read_as_one_or_the_other() {
    let storage = memory();
    let log = open(&storage, small(), &clean()).expect("a log");
    lead(&log, 0..20);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            for _ in 0..200 {
                let held = log.snapshot();
                let read = held.read(Offset(6), 1 << 20, ReadUpTo::LogEnd, true).expect("a read");
                if let Ok((frame, _)) = BatchFrame::parse(&read.bytes) {
                    assert_eq!(frame.base_offset(), Offset(6));
                }
            }
        });
        for round in 0..20 {
            log.truncate_to(Offset(5), 1).expect("truncated");
            lead(&log, round..round + 15);
        }
        reader.join().expect("no panic");
    });
    assert_eq!(log.log_end_offset(), Offset(20));
}
