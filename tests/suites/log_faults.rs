//! Writes and syncs that fail: the log takes nothing more, what was there is still read, and after a restart the log has
//! what was acknowledged and not what failed.

mod log_place;

use std::io::ErrorKind;

use log_place::{
    NOW, Place, batches_from, bounds, follow, follow_at, lead, lead_at, log_name, memory, produced,
    producers, range, request, state, transactional,
};
use redrive::Error;
use redrive::io::{Fault, MemoryStorage, Operation};
use redrive::log::validate::AppendOrigin;
use redrive::log::{AppendError, CoordinatorRecord, LeaderRequest, Log, LogConfig, LogState};
use redrive::types::Offset;
use redrive_tests::logs::BatchSpec;

fn config() -> LogConfig {
    LogConfig {
        segment_bytes: 600,
        index_interval_bytes: 0,
        segment_index_bytes: 4096,
        producer_id_expiration_ms: i64::from(i32::MAX),
        ..LogConfig::default()
    }
}

fn check_poisoned(log: &Log) {
    assert!(log.is_poisoned());
    let refused = lead_at(log, &range(0, 0), 0, NOW).expect_err("poisoned");
    assert!(matches!(refused, AppendError::Log(Error::Poisoned { .. })), "{refused}");
    assert_eq!(refused.error_name(), Some("KAFKA_STORAGE_ERROR"));
    let refused = follow_at(log, &[range(9999, 9999)], 0).expect_err("poisoned");
    assert_eq!(refused.error_name(), Some("KAFKA_STORAGE_ERROR"));
    assert!(log.append_coordinator_records([], 0, NOW).is_err());
    for refused in [
        log.roll(NOW).map(drop),
        log.truncate_to(Offset(0), NOW).map(drop),
        log.truncate_fully_and_start_at(Offset(0), None, NOW),
        log.flush(Offset(i64::MAX)),
        log.close(),
    ] {
        assert!(matches!(refused, Err(Error::Poisoned { .. })), "{refused:?}");
    }
}

#[test]
fn c03_r307_an_append_that_cannot_be_written() {
    let size = range(0, 0).encode().len() as u64;
    // In the first byte, inside and in the last byte of the third batch.
    for at in [2 * size, 2 * size + 1, 2 * size + 40, 3 * size - 1] {
        let (place, storage) = memory();
        storage.inject(place.path(log_name(0)), Fault::WriteAt(at));
        let log = place.open(&config());
        (0..2).for_each(|_| {
            lead(&log, &range(0, 0));
        });
        let failed = lead_at(&log, &range(0, 0), 0, NOW).expect_err("no room");
        assert!(matches!(failed, AppendError::Log(Error::Io { .. })), "{failed}");
        assert_eq!(failed.error_name(), Some("KAFKA_STORAGE_ERROR"));
        check_poisoned(&log);
        assert_eq!((log.log_end_offset(), bounds(&log)), (Offset(2), vec![(0, 0), (1, 1)]));
        drop(log);
        storage.inject(place.path(log_name(0)), Fault::ShortReads(1 << 20));
        let (log, _) = place.open_unclean(&config());
        assert_eq!(bounds(&log), [(0, 0), (1, 1)], "failed at byte {at}");
        assert_eq!(lead(&log, &range(0, 0)).first_offset, Offset(2));
    }
}

#[test]
fn fc_79_an_append_that_fails_after_validation() {
    let size = produced(0, 1, 1, 0, 0).encode().len() as u64;
    let (place, storage) = memory();
    storage.inject(place.path(log_name(0)), Fault::WriteAt(5 * size + 9));
    let log = place.open(&config());
    (0..5).for_each(|sequence| {
        lead(&log, &produced(0, 1, 1, 0, sequence));
    });
    let before = producers(&log);
    assert!(lead_at(&log, &produced(0, 1, 1, 0, 5), 0, NOW).is_err());
    assert_eq!(producers(&log), before, "nothing was written, nothing is known of it");
    drop(log);
    storage.inject(place.path(log_name(0)), Fault::ShortReads(1 << 20));
    let (log, _) = place.open_unclean(&config());
    assert_eq!(producers(&log), before);
    let info = lead(&log, &produced(0, 1, 1, 0, 5));
    assert_eq!((info.first_offset, info.is_duplicate), (Offset(5), false));
}

#[test]
fn a_sync_that_fails() {
    let (place, storage) = memory();
    storage.inject(place.path(log_name(0)), Fault::Sync);
    let log = place.open(&config());
    (0..3).for_each(|_| {
        lead(&log, &range(0, 0));
    });
    let failed = log.flush(Offset(2));
    assert!(matches!(failed, Err(Error::Io { .. })), "{failed:?}");
    assert_eq!(log.recovery_point(), Offset(0));
    check_poisoned(&log);
    assert_eq!(bounds(&log), [(0, 0), (1, 1), (2, 2)]);
}

/// Ends a call of [`scenario`]: what was in the log when it failed.
struct Stopped {
    acknowledged: Vec<Vec<u8>>,
    attempt: Vec<Vec<u8>>,
}

/// A call to a log, and the batches that it appends.
type Step = (Vec<BatchSpec>, fn(&Log, &[BatchSpec]) -> bool);

fn steps() -> Vec<Step> {
    fn lead_one(log: &Log, batches: &[BatchSpec]) -> bool {
        let sent = BatchSpec { base_offset: 0, ..batches[0].clone() };
        lead_at(log, &sent, sent.partition_leader_epoch, NOW).is_ok()
    }
    fn follow_all(log: &Log, batches: &[BatchSpec]) -> bool {
        follow_at(log, batches, i32::MAX).is_ok()
    }
    fn mark(log: &Log, batches: &[BatchSpec]) -> bool {
        let request = LeaderRequest { origin: AppendOrigin::Coordinator, ..request(0, NOW) };
        let mut bytes = BatchSpec { base_offset: 0, ..batches[0].clone() }.encode();
        log.append_as_leader(&mut bytes, &request).is_ok()
    }
    fn coordinate(log: &Log, batches: &[BatchSpec]) -> bool {
        let records = batches.iter().map(|batch| CoordinatorRecord {
            timestamp_ms: batch.base_timestamp,
            key: batch.records[0].key.as_deref().expect("a key"),
            value: batch.records[0].value.as_deref(),
        });
        log.append_coordinator_records(records, 2, NOW).is_ok()
    }
    let at = |batch: BatchSpec, epoch| BatchSpec { partition_leader_epoch: epoch, ..batch };
    let single = |offset, epoch| at(BatchSpec::single(offset, b"k".to_vec(), Some(b"v".to_vec())), epoch);
    let marker = BatchSpec { base_timestamp: NOW, ..BatchSpec::marker(6, 7, 0, false, 0) };
    vec![
        (vec![at(range(0, 1), 0)], lead_one),
        (vec![at(produced(2, 2, 3, 0, 0), 0)], lead_one),
        (vec![transactional(produced(4, 1, 7, 0, 0)), range(5, 5)], follow_all),
        (vec![marker], mark),
        (vec![], |log, _| log.roll(NOW).is_ok()),
        (vec![at(range(7, 8), 1)], lead_one),
        (vec![], |log, _| log.flush(Offset(i64::MAX)).is_ok()),
        (vec![single(9, 2), single(10, 2), single(11, 2)], coordinate),
        (vec![at(range(12, 13), 2), at(range(20, 21), 3), at(range(22, 22), 3)], follow_all),
        (vec![at(range(23, 23), 3)], lead_one),
        (vec![], |log, _| log.close().is_ok()),
    ]
}

/// Does all the steps, up to the first that fails.
fn scenario(log: &Log) -> Option<Stopped> {
    let mut acknowledged = Vec::new();
    for (batches, call) in steps() {
        let attempt: Vec<Vec<u8>> = batches.iter().map(BatchSpec::encode).collect();
        if !call(log, &batches) {
            return Some(Stopped { acknowledged, attempt });
        }
        acknowledged.extend(attempt);
    }
    None
}

/// Every change of the storage fails in turn.
#[test]
fn an_append_that_failed_is_not_there_after_a_restart() {
    let prepare = || -> (Place, MemoryStorage, Log) {
        let (place, storage) = memory();
        let log = place.open(&config());
        (place, storage, log)
    };
    let (place, storage, log) = prepare();
    let from = storage.operations().len();
    assert!(scenario(&log).is_none());
    let expected: Vec<Vec<u8>> =
        steps().iter().flat_map(|(batches, _)| batches.iter().map(BatchSpec::encode)).collect();
    assert_eq!(batches_from(&log, 0), expected);
    assert!(log.segments_count() > 2);
    drop(log);
    drop(place);
    let operations = storage.operations()[from..].to_vec();
    let (mut writes, mut partly) = (0, 0);
    for (number, operation) in operations.iter().enumerate() {
        let (place, storage, log) = prepare();
        storage.refuse_from(from + number, ErrorKind::StorageFull);
        let why = format!("{operation:?} fails");
        let stopped = scenario(&log).unwrap_or_else(|| panic!("{why}, and nobody notices"));
        assert!(log.is_poisoned(), "{why}");
        check_poisoned(&log);
        // Readers go on with what there is.
        let Stopped { acknowledged, attempt } = stopped;
        let read = batches_from(&log, 0);
        assert!(read.starts_with(&acknowledged), "{why}");
        let surplus = &read[acknowledged.len()..];
        assert!(attempt.starts_with(surplus), "{why}");
        drop(log);
        storage.refuse_from(usize::MAX, ErrorKind::StorageFull);
        let (log, report) = place.open_unclean(&config());
        assert!(report.dropped.is_empty(), "{why}: {report:?}");
        let found = batches_from(&log, 0);
        let is_log_write = matches!(operation, Operation::Write { path, .. } if path.extension().is_some_and(|e| e == "log"));
        if is_log_write {
            writes += 1;
            assert!(found == acknowledged, "{why}: what failed is there");
        }
        assert!(found.starts_with(&acknowledged), "{why}");
        let surplus = &found[acknowledged.len()..];
        assert!(attempt.starts_with(surplus), "{why}");
        partly += usize::from(!surplus.is_empty());
        // It goes on where it is.
        let end = log.log_end_offset();
        follow(&log, &[BatchSpec { partition_leader_epoch: 9, ..range(end.0, end.0) }]);
        assert_eq!(batches_from(&log, 0).len(), found.len() + 1);
    }
    assert!(operations.len() > 40 && writes >= 7, "{} changes, {writes} of logs, {partly}", operations.len());
}

/// Every change of the storage fails in turn, as where the process ends there. What is left is a log without a gap.
#[test]
fn a_truncation_that_was_cut_off() {
    type Cut = fn(&Log) -> Result<(), Error>;
    let cuts: [(Cut, usize); 3] = [
        (|log| log.truncate_to(Offset(9), NOW).map(drop), 9),
        (|log| log.truncate_to(Offset(0), NOW).map(drop), 0),
        (|log| log.truncate_fully_and_start_at(Offset(0), None, NOW), 0),
    ];
    for (cut, kept) in cuts {
        for is_held in [false, true] {
            let prepare = || {
                let (place, storage) = memory();
                let log = place.open(&config());
                for sequence in 0..30 {
                    let epoch = sequence / 7;
                    lead_at(&log, &produced(0, 1, 1, 0, sequence), epoch, NOW).expect("an append");
                }
                log.flush(Offset(i64::MAX)).expect("flushed");
                assert!(log.segments_count() > 3);
                let before = batches_from(&log, 0);
                (place, storage, log, before)
            };
            let (_place, storage, log, before) = prepare();
            let held = is_held.then(|| log.snapshot());
            let from = storage.operations().len();
            cut(&log).expect("cut");
            assert!(batches_from(&log, 0) == before[..kept]);
            let operations = storage.operations().len() - from;
            drop(held);
            for crash in 0..operations {
                let (place, storage, log, before) = prepare();
                let held = is_held.then(|| log.snapshot());
                storage.refuse_from(from + crash, ErrorKind::Other);
                let why = format!("change {crash} of {operations}, held {is_held}");
                assert!(cut(&log).is_err(), "{why} fails, and nobody notices");
                check_poisoned(&log);
                drop((held, log));
                storage.refuse_from(usize::MAX, ErrorKind::Other);
                // The recovery point was not written yet.
                let stale = LogState { recovery_point: Offset(30), ..state(false) };
                let (log, report) = place.open_as(&config(), &stale);
                let found = batches_from(&log, 0);
                assert!(
                    found.len() >= kept && before.starts_with(&found),
                    "{why}: {} {report:?}",
                    found.len()
                );
                assert_eq!(log.log_end_offset(), Offset(found.len() as i64), "{why}");
                let last = producers(&log).first().and_then(|entry| entry.last_batch);
                let expected = found.len().checked_sub(1).map(|last| last as i32);
                assert_eq!(last.map(|batch| batch.last_sequence), expected, "{why}: {report:?}");
                let epoch = log.leader_epochs().latest_epoch();
                assert_eq!(epoch, expected.map(|last| last / 7), "{why}: {report:?}");
            }
        }
    }
}
