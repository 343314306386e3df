//! The log on a file system in memory. The rows of Kafka's behaviour are in the test crate.

use std::path::Path;
use std::sync::Arc;

use super::validate::AppendOrigin;
use super::{AppendInfo, CoordinatorRecord, LeaderRequest, Log, LogConfig, LogState, ReadUpTo};
use crate::batch::{BatchBuilder, BatchFrame, NewRecord};
use crate::error::Error;
use crate::io::{MemoryStorage, Storage};
use crate::types::{Offset, ProducerId, TopicPartition};

fn open(storage: &Arc<MemoryStorage>, config: &LogConfig, clean: bool) -> Log {
    let storage: Arc<dyn Storage> = Arc::clone(storage) as _;
    let state = LogState { clean_shutdown: clean, now_ms: 1000, ..LogState::default() };
    let partition = TopicPartition::new("t", 0);
    Log::open(storage, Path::new("/r/t-0"), partition, config.clone(), &state).expect("a log").0
}

/// Index files are made at full length, and those of 10 MiB take Miri minutes.
fn config() -> LogConfig {
    LogConfig { segment_index_bytes: 1200, ..LogConfig::default() }
}

fn storage() -> Arc<MemoryStorage> {
    let storage = Arc::new(MemoryStorage::new());
    storage.create_directory("/r");
    storage
}

fn batch(values: &[&str]) -> Vec<u8> {
    let mut builder = BatchBuilder::new(Offset(0));
    for value in values {
        let record =
            NewRecord { timestamp: 500, key: Some(b"k"), value: Some(value.as_bytes()), headers: &[] };
        builder.push(&record).expect("a record");
    }
    builder.build().expect("a batch")
}

fn append(log: &Log, values: &[&str]) -> AppendInfo {
    let request = LeaderRequest {
        origin: AppendOrigin::Client,
        leader_epoch: 2,
        now_ms: 1000,
        verification_guard: None,
        transaction_version: 0,
    };
    log.append_as_leader(&mut batch(values), &request).expect("an append").expect("a batch")
}

/// Base and last offset of every batch that a consumer reads.
fn batches(log: &Log) -> Vec<(i64, i64)> {
    let (mut at, mut found) = (log.log_start_offset(), Vec::new());
    loop {
        let read = log.read(at, 1 << 20, ReadUpTo::LogEnd, true).expect("a read");
        if read.bytes.is_empty() {
            return found;
        }
        let mut rest = &read.bytes[..];
        while !rest.is_empty() {
            let (frame, after) = BatchFrame::parse(rest).expect("a batch");
            assert_eq!(frame.partition_leader_epoch(), 2);
            found.push((frame.base_offset().0, frame.last_offset().0));
            (at, rest) = (frame.last_offset().next(), after);
        }
    }
}

#[test]
fn what_is_appended_is_read_through_rolls_and_restarts() {
    let storage = storage();
    let config = LogConfig { segment_bytes: 210, index_interval_bytes: 0, ..config() };
    for (round, is_clean) in [true, false, true].into_iter().enumerate() {
        let log = open(&storage, &config, is_clean || round == 0);
        let before = round as i64 * 6;
        assert_eq!(log.log_end_offset(), Offset(before));
        assert_eq!(append(&log, &["a", "b"]).last_offset, Offset(before + 1));
        assert_eq!(append(&log, &["c"]).first_offset, Offset(before + 2));
        let record = |key| CoordinatorRecord { timestamp_ms: 7, key, value: None };
        let info = log.append_coordinator_records([record(&b"x"[..]), record(b"y"), record(b"z")], 2, 1000);
        let info = info.expect("an append").expect("records");
        assert_eq!((info.first_offset, info.last_offset), (Offset(before + 3), Offset(before + 5)));
        let expected: Vec<_> = (0..=round as i64)
            .flat_map(|round| {
                [(0, 1), (2, 2), (3, 3), (4, 4), (5, 5)].map(|(b, l)| (b + 6 * round, l + 6 * round))
            })
            .collect();
        assert_eq!(batches(&log), expected);
        assert!(log.segments_count() > round + 1);
        assert_eq!(log.leader_epochs().latest_epoch(), Some(2));
        // The second round ends as by a crash.
        if round != 1 {
            log.close().expect("closed");
            assert!(matches!(log.roll(1), Err(Error::Closed { .. })));
        }
    }
}

#[test]
fn truncation_leaves_what_readers_hold() {
    let storage = storage();
    let config = LogConfig { segment_bytes: 300, index_interval_bytes: 0, ..config() };
    let log = open(&storage, &config, true);
    for _ in 0..10 {
        append(&log, &["value", "more"]);
    }
    let held = log.snapshot();
    let whole: Vec<_> = held.segments().iter().map(|segment| segment.bytes().expect("bytes")).collect();
    let copies: Vec<Vec<u8>> = whole.iter().map(|region| region.to_vec()).collect();

    assert!(log.truncate_to(Offset(7), 1000).expect("truncated"));
    assert_eq!((log.log_end_offset(), batches(&log).last()), (Offset(7), Some(&(4, 5))));
    assert_eq!(append(&log, &["new"]).first_offset, Offset(7));
    assert_eq!(batches(&log).last(), Some(&(7, 7)));
    log.truncate_fully_and_start_at(Offset(40), None, 1000).expect("restarted");
    assert_eq!((log.log_start_offset(), log.log_end_offset()), (Offset(40), Offset(40)));
    log.remove_deleted(i64::MAX).expect("removed");
    for (region, copy) in whole.iter().zip(&copies) {
        assert_eq!(&region[..], &copy[..]);
    }
    let read = held.read(Offset(12), 1 << 20, ReadUpTo::LogEnd, true).expect("a read");
    let (frame, _) = BatchFrame::parse(&read.bytes).expect("a batch");
    assert_eq!(frame.base_offset(), Offset(12));
}

/// One append can bring more batches than an index has room for.
#[test]
fn an_append_goes_over_as_many_segments_as_its_index_entries_need() {
    let storage = storage();
    let config = LogConfig { segment_index_bytes: 36, index_interval_bytes: 0, ..config() };
    let log = open(&storage, &config, true);
    let bytes: Vec<u8> = (0..20)
        .flat_map(|offset| {
            let mut builder = BatchBuilder::new(Offset(offset));
            let record = NewRecord { timestamp: offset, key: None, value: Some(b"v"), headers: &[] };
            builder.push(&record).expect("a record").leader_epoch(2);
            builder.build().expect("a batch")
        })
        .collect();
    let info = log.append_as_follower(&bytes, 2, 1000).expect("an append").expect("batches");
    assert_eq!((info.first_offset, info.last_offset), (Offset(0), Offset(19)));
    let expected: Vec<_> = (0..20).map(|offset| (offset, offset)).collect();
    assert_eq!(batches(&log), expected);
    assert!(log.segments_count() > 3, "{} segments", log.segments_count());
    drop(log);
    let log = open(&storage, &config, false);
    assert_eq!((log.log_end_offset(), batches(&log)), (Offset(20), expected));
}

#[test]
fn a_refused_append_leaves_nothing_behind() {
    let storage = storage();
    let config = LogConfig { segment_bytes: 210, ..config() };
    let log = open(&storage, &config, true);
    append(&log, &["a", "b", "c"]);
    let before = (log.segment_base_offsets(), log.leader_epochs(), log.log_end_offset());
    let request = LeaderRequest {
        origin: AppendOrigin::Client,
        leader_epoch: 3,
        now_ms: 1000,
        verification_guard: None,
        transaction_version: 0,
    };
    // A producer that begins with a sequence it cannot have.
    let producer = |epoch, sequence| {
        let mut builder = BatchBuilder::new(Offset(0));
        let record = NewRecord { timestamp: 500, key: Some(b"k"), value: Some(b"v"), headers: &[] };
        builder.push(&record).expect("a record").producer(ProducerId(7), epoch, sequence);
        builder.build().expect("a batch")
    };
    log.append_as_leader(&mut producer(0, 0), &LeaderRequest { leader_epoch: 2, ..request })
        .expect("in order");
    let before = (log.segment_base_offsets(), log.log_end_offset(), before.1);
    assert!(log.append_as_leader(&mut producer(0, 5), &request).is_err());
    assert!(
        log.append_as_leader(&mut batch(&["d"]), &LeaderRequest { leader_epoch: -1, ..request }).is_err()
    );
    assert!(log.append_as_leader(&mut batch(&["e"; 60]), &request).is_err());
    assert_eq!((log.segment_base_offsets(), log.log_end_offset(), log.leader_epochs()), before);
    assert!(!log.is_poisoned());
    // What was sent before is told its offsets.
    let again = log.append_as_leader(&mut producer(0, 0), &request).expect("a duplicate").expect("a batch");
    assert!(again.is_duplicate && again.first_offset == Offset(3));
}

#[test]
fn a_transaction_begins_with_a_guard_where_it_must_be_verified() {
    let storage = storage();
    let log = open(&storage, &config(), true);
    log.set_transaction_verification(true);
    let mut request = LeaderRequest {
        origin: AppendOrigin::Client,
        leader_epoch: 2,
        now_ms: 1000,
        verification_guard: None,
        transaction_version: 0,
    };
    let transactional = || {
        let mut builder = BatchBuilder::new(Offset(0));
        let record = NewRecord { timestamp: 500, key: Some(b"k"), value: Some(b"v"), headers: &[] };
        builder.push(&record).expect("a record").producer(ProducerId(7), 0, 0).transactional();
        builder.build().expect("a batch")
    };
    assert!(log.append_as_leader(&mut transactional(), &request).is_err());
    request.verification_guard = log.start_verification(ProducerId(7), 0, 0, false, 1000).expect("known");
    assert!(request.verification_guard.is_some());
    log.append_as_leader(&mut transactional(), &request).expect("verified");
    assert_eq!(log.start_verification(ProducerId(7), 1, 0, false, 1000), Ok(None));
    // An open transaction keeps its producer.
    assert_eq!((log.remove_expired_producers(i64::MAX), log.producer_state().len()), (0, 1));
}
