//! Loads over the storage in memory, small enough for Miri. Random logs against the slow twin, the corpus and the fault
//! cases are in the test crate.

use std::num::NonZero;
use std::sync::Arc;

use super::*;
use crate::batch::{BatchBuilder, NewRecord};
use crate::error::{BrokerView, Error, Reason};
use crate::io::{Fault, MemoryStorage};
use crate::transaction_log::TransactionState::{CompleteCommit, Empty, Ongoing, PrepareAbort, PrepareCommit};
use crate::transaction_log::{TransactionMetadata, TransactionState, ValueVersion, encode_key};
use crate::types::{Offset, ProducerId};

const ROOT: &str = "/logs";

fn value(state: TransactionState, producer_id: i64) -> Vec<u8> {
    let metadata = TransactionMetadata {
        producer_id: ProducerId(producer_id),
        producer_epoch: 0,
        transaction_timeout_ms: 60_000,
        state,
        partitions: (state != Empty).then(Vec::new),
        last_update_timestamp_ms: 1,
        start_timestamp_ms: -1,
        previous_producer_id: ProducerId::NONE,
        next_producer_id: ProducerId::NONE,
        next_producer_epoch: -1,
        client_transaction_version: 0,
        unknown_tagged_fields: Vec::new(),
    };
    let mut out = Vec::new();
    metadata.encode(ValueVersion::V1, &mut out).expect("a small value");
    out
}

/// A batch with a record for each id; no state is a tombstone.
fn batch(offset: i64, records: &[(&str, Option<TransactionState>)]) -> Vec<u8> {
    let mut builder = BatchBuilder::new(Offset(offset));
    for (number, (id, state)) in records.iter().enumerate() {
        let at = offset + number as i64;
        let mut key = Vec::new();
        encode_key(id.as_bytes(), &mut key).expect("a short id");
        let value = state.map(|state| value(state, at));
        let record = NewRecord { timestamp: 1, key: Some(&key), value: value.as_deref(), headers: &[] };
        builder.push(&record).expect("a small record");
    }
    // The leader that appended it had an epoch, as with every broker.
    builder.leader_epoch(0).build().expect("a batch")
}

fn segment(storage: &MemoryStorage, partition: i32, base: i64, batches: &[Vec<u8>]) -> String {
    let path = format!("{ROOT}/__transaction_state-{partition}/{base:020}.log");
    storage.write(&path, batches.concat());
    path
}

fn load(storage: &MemoryStorage, io: IoChoice) -> Loaded {
    let replay = Replay::open(Arc::new(storage.clone()), [ROOT]).expect("a log directory");
    replay.io(io).chunk_bytes(100).threads(NonZero::<usize>::MIN).run().expect("a load")
}

fn refusal(storage: &MemoryStorage) -> (Reason, u64, BrokerView) {
    let [mapped, read] = [IoChoice::Mmap, IoChoice::Pread].map(|io| {
        let loaded = load(storage, io);
        match loaded.partitions[0].error() {
            Some(Error::Corrupt(corruption)) => {
                (corruption.reason.clone(), corruption.position, corruption.broker)
            }
            other => panic!("{other:?}"),
        }
    });
    assert_eq!(mapped, read);
    mapped
}

#[test]
fn the_newest_record_of_an_id_counts() {
    let storage = MemoryStorage::new();
    segment(
        &storage,
        0,
        0,
        &[
            batch(0, &[("a", Some(Empty)), ("b", Some(Empty)), ("c", Some(Ongoing))]),
            batch(3, &[("a", Some(Ongoing)), ("a", Some(PrepareCommit))]),
        ],
    );
    segment(&storage, 0, 5, &[batch(7, &[("b", None), ("d", Some(PrepareAbort))])]);
    segment(&storage, 1, 0, &[batch(0, &[("e", Some(CompleteCommit))])]);
    for io in [IoChoice::Mmap, IoChoice::Pread] {
        let loaded = load(&storage, io);
        assert!(loaded.is_complete());
        let state = |id: &str| {
            loaded.get(id).expect("nothing was refused").map(|entry| (entry.state(), entry.offset().0))
        };
        assert_eq!(state("a"), Some((PrepareCommit, 4)));
        assert_eq!(state("b"), None);
        assert_eq!(state("c"), Some((Ongoing, 2)));
        assert_eq!(state("e"), Some((CompleteCommit, 0)));
        let pending: Vec<_> =
            loaded.pending_completion().map(|entry| entry.expect("still there").id().into_owned()).collect();
        assert_eq!(pending, ["a", "d"]);
        let stats = loaded.partitions[0].stats().expect("loaded");
        assert_eq!((stats.records, stats.tombstones, stats.batches, stats.segments), (7, 1, 3, 2));
        assert_eq!((stats.gaps, stats.gap_offsets, stats.log_end_offset), (1, 2, Offset(9)));
        assert_eq!(stats.by_state.pending_completion(), 2);
    }
}

#[test]
fn one_refused_partition_leaves_the_others_and_makes_absence_unknown() {
    let storage = MemoryStorage::new();
    segment(&storage, 0, 0, &[batch(0, &[("a", Some(Empty))])]);
    let mut bad = batch(0, &[("b", Some(Empty))]);
    // In the value, so that the id can still be read.
    let at = bad.len() - 10;
    bad[at] ^= 1;
    segment(&storage, 1, 0, &[bad, batch(1, &[("c", Some(Empty))])]);
    let loaded = load(&storage, IoChoice::Mmap);
    assert!(!loaded.is_complete());
    assert_eq!(loaded.refused().count(), 1);
    assert!(loaded.get("a").expect("found before the refused one matters").is_some());
    assert!(matches!(loaded.get("b"), Err(Error::Incomplete { .. })));
    let error = loaded.partitions[1].error().expect("refused").to_string();
    assert!(error.contains("at offset 0, byte 0: CRC does not match") && error.contains("\"b\""), "{error}");
}

#[test]
fn a_torn_tail_is_forgiven_only_where_an_append_can_have_torn() {
    let whole = batch(0, &[("a", Some(Empty))]);
    let torn = batch(1, &[("a", Some(Ongoing))]);
    let cut = torn[..torn.len() - 1].to_vec();
    let position = whole.len() as u64;

    let storage = MemoryStorage::new();
    segment(&storage, 0, 0, &[whole.clone(), cut.clone()]);
    let loaded = load(&storage, IoChoice::Pread);
    let tail = loaded.partitions[0].stats().expect("loaded").tail.clone().expect("a tail");
    assert_eq!((tail.position, tail.bytes, tail.offset), (position, cut.len() as u64, Offset(1)));
    assert_eq!(loaded.get("a").expect("loaded").expect("there").state(), Empty);

    storage.write(format!("{ROOT}/recovery-point-offset-checkpoint"), *b"0\n1\n__transaction_state 0 2\n");
    assert!(matches!(refusal(&storage), (Reason::Frame(_), at, BrokerView::Cuts { .. }) if at == position));
    storage.write(format!("{ROOT}/recovery-point-offset-checkpoint"), *b"0\n1\n__transaction_state 0 1\n");
    assert!(load(&storage, IoChoice::Mmap).is_complete());
    storage.write(format!("{ROOT}/.kafka_cleanshutdown"), *b"");
    // A segment without index is recovered even so.
    assert!(matches!(refusal(&storage), (Reason::Frame(_), at, BrokerView::Cuts { .. }) if at == position));
    storage.write(format!("{ROOT}/__transaction_state-0/00000000000000000000.index"), *b"");
    assert!(matches!(refusal(&storage), (Reason::Frame(_), at, BrokerView::Serves) if at == position));
    storage.remove(format!("{ROOT}/.kafka_cleanshutdown"));
    segment(&storage, 0, 9, &[batch(9, &[("b", Some(Empty))])]);
    assert!(matches!(
        refusal(&storage),
        (Reason::Frame(_), at, BrokerView::Cuts { later_segments: 1, .. }) if at == position
    ));
}

#[test]
fn a_good_batch_behind_a_bad_one_refuses() {
    let mut bad = batch(1, &[("a", Some(Ongoing))]);
    bad[70] ^= 1;
    let storage = MemoryStorage::new();
    segment(&storage, 0, 0, &[batch(0, &[("a", Some(Empty))]), bad, batch(2, &[("b", Some(Empty))])]);
    assert!(matches!(refusal(&storage), (Reason::Crc(_), _, BrokerView::Cuts { .. })));

    let replay = Replay::open(Arc::new(storage.clone()), [ROOT]).expect("a log directory").lenient(true);
    let loaded = replay.run().expect("a load");
    let stats = loaded.partitions[0].stats().expect("lenient loads refuse nothing");
    assert_eq!((stats.skipped.batches, stats.skipped.places.len()), (1, 1));
    assert_eq!(loaded.get("a").expect("loaded").expect("there").state(), Empty);
    assert!(loaded.get("b").expect("loaded").is_some() && !loaded.is_complete());
}

#[test]
fn offsets_that_go_back_refuse() {
    let storage = MemoryStorage::new();
    segment(&storage, 0, 0, &[batch(5, &[("a", Some(Empty))]), batch(5, &[("a", Some(Empty))])]);
    let (reason, ..) = refusal(&storage);
    assert_eq!(reason, Reason::OffsetGoesBack { expected: Offset(6), found: Offset(5) });

    segment(&storage, 0, 0, &[batch(5, &[("a", Some(Empty))])]);
    segment(&storage, 0, 4, &[]);
    let (reason, ..) = refusal(&storage);
    assert_eq!(reason, Reason::OffsetGoesBack { expected: Offset(6), found: Offset(4) });
}

#[test]
fn offsets_end_where_numbers_do() {
    let storage = MemoryStorage::new();
    let last = i64::MAX;
    let batches = |offsets: &[i64]| -> Vec<Vec<u8>> {
        let one = |offset: &i64| {
            let mut batch = batch(0, &[("a", Some(Empty))]);
            // Outside the checksum; no builder writes such an offset.
            batch[..8].copy_from_slice(&offset.to_be_bytes());
            batch
        };
        offsets.iter().map(one).collect()
    };
    segment(&storage, 0, last - 9, &batches(&[last - 9, last - 1, last]));
    for io in [IoChoice::Mmap, IoChoice::Pread] {
        let stats = load(&storage, io).partitions[0].stats().expect("loaded").clone();
        assert_eq!((stats.records, stats.log_end_offset), (3, Offset(last)));
    }
    segment(&storage, 0, last - 9, &batches(&[last - 9, last - 1, last, last - 1]));
    let (reason, ..) = refusal(&storage);
    assert_eq!(reason, Reason::OffsetGoesBack { expected: Offset(last), found: Offset(last - 1) });
}

/// An offset of a later segment's first batch that lies is skipped by a lenient load, however fast the load began.
#[test]
fn a_lenient_load_judges_offsets_by_all_that_came_before() {
    let storage = MemoryStorage::new();
    segment(&storage, 0, 0, &[0, 1, 2].map(|offset| batch(offset, &[("a", Some(Empty))])));
    segment(&storage, 0, 10, &[batch(0, &[("lies", Some(Empty))]), batch(11, &[("b", Some(Empty))])]);
    let replay = Replay::open(Arc::new(storage), [ROOT]).expect("a log directory").lenient(true);
    for chunk_bytes in [61, 1 << 20] {
        let loaded = replay.clone().chunk_bytes(chunk_bytes).run().expect("a load");
        let stats = loaded.partitions[0].stats().expect("lenient loads refuse nothing");
        assert_eq!((stats.skipped.batches, stats.log_end_offset), (1, Offset(12)));
        assert!(loaded.get("lies").expect("loaded").is_none() && loaded.get("b").expect("loaded").is_some());
    }
}

#[test]
fn files_that_shrink_or_fail_refuse() {
    let storage = MemoryStorage::new();
    let path = segment(&storage, 0, 0, &[batch(0, &[("a", Some(Empty))]), batch(1, &[("b", Some(Empty))])]);
    for fault in [Fault::ShrinksWhenOpened(100), Fault::ShrinksWhenRead(130)] {
        storage.inject(&path, fault);
        for io in [IoChoice::Mmap, IoChoice::Pread] {
            let loaded = load(&storage, io);
            let Some(Error::Corrupt(corruption)) = loaded.partitions[0].error() else {
                panic!("{fault:?} {io:?}")
            };
            assert!(matches!(corruption.reason, Reason::Shrunk { .. }), "{fault:?} {io:?}: {corruption}");
        }
    }
    // A mapping cannot report it: see IoChoice::Mmap.
    storage.inject(&path, Fault::ReadAt(110));
    let loaded = load(&storage, IoChoice::Pread);
    assert!(matches!(loaded.partitions[0].error(), Some(Error::Io { .. })));
    storage.inject(&path, Fault::ShortReads(7));
    assert!(load(&storage, IoChoice::Pread).is_complete());
}

#[test]
fn a_cancelled_load_says_so_and_an_observer_hears_of_every_partition() {
    struct Count(usize, u64);
    impl Observer for Count {
        fn partition(&mut self, outcome: &Arc<PartitionOutcome>) {
            self.0 += usize::from(outcome.map().is_some());
        }
        fn progress(&mut self, progress: &Progress) {
            self.1 = progress.ids;
        }
    }
    let storage = MemoryStorage::new();
    for partition in 0..3 {
        segment(&storage, partition, 0, &[batch(0, &[("a", Some(Empty)), ("b", Some(Empty))])]);
    }
    let replay = Replay::open(Arc::new(storage), [ROOT]).expect("a log directory");
    let mut count = Count(0, 0);
    replay.run_with(&mut count, &Cancel::new()).expect("a load");
    assert_eq!((count.0, count.1), (3, 6));
    let cancel = Cancel::new();
    cancel.cancel();
    assert!(matches!(replay.run_with(&mut (), &cancel), Err(Error::Cancelled)));
}

#[test]
fn a_name_of_the_log_that_is_not_read_refuses() {
    let storage = MemoryStorage::new();
    segment(&storage, 0, 0, &[batch(0, &[("a", Some(Empty))])]);
    storage.create_directory(format!("{ROOT}/__transaction_state-0/00000000000000000001.log"));
    let loaded = load(&storage, IoChoice::Auto);
    assert!(matches!(loaded.partitions[0].error(), Some(Error::NotRead { .. })));
}

#[test]
fn a_checkpoint_above_the_log_is_refused_or_passed_over_aloud() {
    let storage = MemoryStorage::new();
    segment(&storage, 0, 0, &[batch(0, &[("a", Some(Empty))])]);
    storage.write(format!("{ROOT}/log-start-offset-checkpoint"), *b"0\n1\n__transaction_state 0 9\n");
    let (reason, _, broker) = refusal(&storage);
    assert_eq!(reason, Reason::EndsBelowStart { end: Offset(1), start: Offset(9) });
    assert_eq!(broker, BrokerView::DropsLog);

    let replay = Replay::open(Arc::new(storage), [ROOT]).expect("a log directory").lenient(true);
    let loaded = replay.run().expect("a load");
    assert!(!loaded.is_complete());
    assert_eq!(loaded.get("a").expect("nothing was refused").expect("there").state(), Empty);
}

#[test]
fn an_unreadable_recovery_point_forgives_nothing() {
    let whole = batch(0, &[("a", Some(Empty))]);
    let storage = MemoryStorage::new();
    segment(&storage, 0, 0, &[whole.clone(), whole[..40].to_vec()]);
    assert!(load(&storage, IoChoice::Auto).is_complete());
    storage.write(format!("{ROOT}/recovery-point-offset-checkpoint"), *b"nonsense");
    assert!(matches!(refusal(&storage), (Reason::Frame(_), _, BrokerView::Cuts { .. })));
}

#[test]
fn every_partition_that_was_asked_for_must_be_there() {
    let storage = MemoryStorage::new();
    segment(&storage, 3, 0, &[batch(0, &[("a", Some(Empty))])]);
    let replay =
        Replay::open(Arc::new(storage), [ROOT, "/logs/__transaction_state-3"]).expect("a log directory");
    assert_eq!(replay.clone().partitions([3]).run().expect("there").partitions.len(), 1);
    let error = replay.partitions([3, 7]).run().expect_err("7 is not there");
    assert!(matches!(&error, Error::NoPartitions { partitions, .. } if partitions == &[7]), "{error}");
}

#[test]
fn lenient_loads_pay_once_for_bytes_that_claim_to_be_batches() {
    // Headers that each claim the rest of the file but a byte, every one with a wrong CRC, and a good batch at the very end.
    let (count, good) = (if cfg!(miri) { 12 } else { 300 }, batch(0, &[("a", Some(Empty))]));
    let mut bytes = Vec::new();
    for number in 0..count {
        let left = (count - number) * 61 + good.len();
        let mut header = good[..61].to_vec();
        header[8..12].copy_from_slice(&(left as i32 - 13).to_be_bytes());
        bytes.extend(header);
    }
    bytes.extend(&good);
    let storage = MemoryStorage::new();
    segment(&storage, 0, 0, &[bytes]);
    let replay = Replay::open(Arc::new(storage), [ROOT]).expect("a log directory").lenient(true);
    let loaded = replay.run().expect("a load");
    assert!(loaded.get("a").expect("nothing was refused").is_some());
    let stats = loaded.partitions[0].stats().expect("loaded");
    assert_eq!(stats.skipped.bytes, count as u64 * 61);
}

#[test]
fn any_interval_of_progress_will_do_and_a_refused_partition_counts_as_walked() {
    struct Last(Progress);
    impl Observer for Last {
        fn progress(&mut self, progress: &Progress) {
            self.0 = *progress;
        }
    }
    let storage = MemoryStorage::new();
    segment(&storage, 0, 0, &[batch(0, &[("a", Some(Empty))])]);
    segment(&storage, 1, 0, &[batch(0, &[("b", Some(Empty))]), vec![0; 99], batch(9, &[("c", Some(Empty))])]);
    for interval in [std::time::Duration::ZERO, std::time::Duration::MAX] {
        let replay = Replay::open(Arc::new(storage.clone()), [ROOT]).expect("a log directory");
        let mut last = Last(Progress::default());
        let loaded = replay.progress_interval(interval).run_with(&mut last, &Cancel::new()).expect("a load");
        assert_eq!(loaded.refused().count(), 1);
        assert_eq!((last.0.bytes, last.0.ids, last.0.partitions), (last.0.bytes_total, 1, 2));
    }
}

#[test]
fn a_panic_of_the_observer_reaches_the_caller() {
    struct Panics;
    impl Observer for Panics {
        fn partition(&mut self, _: &Arc<PartitionOutcome>) {
            std::panic::resume_unwind(Box::new("from the observer"));
        }
    }
    let storage = MemoryStorage::new();
    segment(&storage, 0, 0, &[batch(0, &[("a", Some(Empty))])]);
    let replay = Replay::open(Arc::new(storage), [ROOT]).expect("a log directory");
    let run = std::panic::AssertUnwindSafe(|| replay.run_with(&mut Panics, &Cancel::new()));
    assert!(std::panic::catch_unwind(run).is_err());
    assert_eq!(replay.run().expect("the next load is untouched").partitions.len(), 1);
}
