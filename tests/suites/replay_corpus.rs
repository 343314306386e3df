//! The load of every transaction log of the corpus against what Kafka's own classes read from it.

mod judge;

use std::collections::BTreeSet;
use std::num::NonZero;
use std::path::Path;
use std::sync::Arc;

use redrive::error::Reason;
use redrive::io::FileSystem;
use redrive::replay::{Identity, IoChoice, Loaded, Order, Replay};
use redrive::transaction_log::{TransactionState, partition_for};
use redrive_tests::corpus::{self, Case, MapEntry, TRANSACTION_STATE};
use redrive_tests::naive::{self, NaiveOptions};

/// The one case whose transaction log ends within a batch.
const TORN: &str = "unclean-torn-txn-state";

fn open(path: &Path, threads: usize, io: IoChoice) -> Replay {
    let threads = NonZero::new(threads).expect("at least one thread");
    Replay::open(Arc::new(FileSystem), [path]).expect("a log directory").threads(threads).io(io)
}

/// The loaded ids in the words and the order of the oracle.
fn as_oracle(loaded: &Loaded) -> Vec<MapEntry> {
    let mut lines = Vec::new();
    for outcome in &loaded.partitions {
        let map = outcome.map().unwrap_or_else(|| panic!("{:?}", outcome.error()));
        for (id, entry) in judge::entries(map) {
            lines.push(MapEntry {
                id,
                partition: outcome.topic_partition.partition,
                offset: entry.offset,
                value_version: entry.value_version,
                producer_id: entry.producer_id,
                previous_producer_id: entry.previous_producer_id,
                next_producer_id: entry.next_producer_id,
                producer_epoch: entry.producer_epoch,
                next_producer_epoch: entry.next_producer_epoch,
                timeout_ms: entry.transaction_timeout_ms,
                status: entry.status,
                state: entry.state.to_owned(),
                partitions: entry.partitions,
                last_update_ms: entry.last_update_timestamp_ms,
                start_ms: entry.start_timestamp_ms,
                client_transaction_version: entry.client_transaction_version,
            });
        }
    }
    lines.sort_by_key(|line| (line.id.encode_utf16().collect::<Vec<_>>(), line.partition));
    lines
}

#[track_caller]
fn assert_equals_oracle(case: &Case, expected: &[MapEntry], loaded: &Loaded, how: &str) {
    let found = as_oracle(loaded);
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!(found, expected, "{}, {how}", case.name);
    }
    assert_eq!(found.len(), expected.len(), "{}, {how}", case.name);
    for line in expected {
        let entry = loaded.get(&line.id).expect("complete").unwrap_or_else(|| panic!("{}", line.id));
        assert_eq!(entry.offset().0, line.offset, "{}, {how}: look-up of {}", case.name, line.id);
    }
}

/// Cases with a map: name of the case, the case, its map.
fn cases_with_map() -> Vec<(Case, Vec<MapEntry>)> {
    let cases: Vec<_> =
        corpus::cases().into_iter().filter_map(|case| case.map().map(|map| (case, map))).collect();
    let ids: usize = cases.iter().map(|(_, map)| map.len()).sum();
    assert_eq!((cases.len(), ids), (23, 6660), "cases with a map and ids in them");
    cases
}

#[test]
fn every_map_equals_kafkas_for_every_number_of_threads_and_every_way_of_reading() {
    for (case, expected) in cases_with_map() {
        for io in [IoChoice::Mmap, IoChoice::Pread, IoChoice::Uring] {
            if io == IoChoice::Uring && !judge::has_uring(&case.data_dirs[0]) {
                continue;
            }
            for threads in [1, 2, 3, 8] {
                for (identity, order, chunk_bytes) in [
                    (Identity::Exact, Order::LargestFirst, 256 << 10),
                    (Identity::Exact, Order::SmallestFirst, 61),
                    (Identity::Hash, Order::AsGiven, 61),
                    (Identity::Hash, Order::LargestFirst, 5000),
                ] {
                    let replay = open(&case.data_dirs[0], threads, io).order(order).chunk_bytes(chunk_bytes);
                    let loaded = replay.identity(identity).run().expect("a load");
                    let how =
                        format!("{io:?}, {threads} threads, {identity:?}, {order:?}, {chunk_bytes} bytes");
                    assert_equals_oracle(&case, &expected, &loaded, &how);
                    assert!((threads.min(loaded.partitions.len())..=threads).contains(&loaded.threads));
                    assert!(!loaded.is_moving && !loaded.lenient && loaded.is_complete());
                    assert_eq!(loaded.identity, identity);
                }
            }
        }
    }
}

#[test]
fn every_map_equals_kafkas_with_a_small_buffer() {
    for (case, expected) in cases_with_map() {
        for buffer_bytes in [61, 4096] {
            let replay = open(&case.data_dirs[0], 2, IoChoice::Pread).chunk_bytes(buffer_bytes);
            let loaded = replay.run().expect("a load");
            assert_equals_oracle(&case, &expected, &loaded, &format!("buffer of {buffer_bytes}"));
        }
    }
}

/// Nothing in a log of a real broker is skipped by a lenient load, so it gives the same.
#[test]
fn every_map_equals_kafkas_when_lenient() {
    for (case, expected) in cases_with_map() {
        let loaded = open(&case.data_dirs[0], 2, IoChoice::Auto).lenient(true).run().expect("a load");
        assert_equals_oracle(&case, &expected, &loaded, "lenient");
        assert!(loaded.lenient && loaded.is_complete(), "{}", case.name);
    }
}

#[test]
fn counts_equal_the_twins() {
    let mut tails = 0;
    for (case, _) in cases_with_map() {
        let options = NaiveOptions { readable_prefix: case.name == TORN, ..NaiveOptions::default() };
        let twins = naive::load_root(&case.data_dirs[0], TRANSACTION_STATE, &options).expect("a root");
        let loaded = open(&case.data_dirs[0], 2, IoChoice::Auto).run().expect("a load");
        assert_eq!(loaded.partitions.len(), twins.len());
        for outcome in &loaded.partitions {
            let what = format!("{} {}", case.name, outcome.topic_partition);
            let twin = twins[&outcome.topic_partition.partition].as_ref().expect("loaded by the twin");
            let stats = outcome.stats().expect("loaded");
            judge::assert_same_entries(&judge::entries(outcome.map().expect("loaded")), &twin.entries, &what);
            if let Some(tail) = &stats.tail {
                // The walk has touched the tail, the twin has not.
                let twin_tail = twin.tail.as_ref().expect("a tail");
                assert_eq!((&tail.path, tail.position), (&twin_tail.path, twin_tail.position));
                assert!(matches!(tail.reason, Reason::Frame(_)), "{:?}", tail.reason);
                assert_eq!((stats.batches, stats.records), (twin.batches, twin.records));
                assert_eq!(tail.offset, stats.log_end_offset);
                tails += 1;
            } else {
                judge::assert_same_counts(stats, twin, &what);
            }
        }
    }
    assert_eq!(tails, 1, "the torn case");
}

/// Every case has the folders of all partitions of its transaction log, so their number is known.
#[test]
fn ids_lie_where_the_hash_says() {
    let mut counts = BTreeSet::new();
    for (case, expected) in cases_with_map() {
        let loaded = open(&case.data_dirs[0], 2, IoChoice::Auto).run().expect("a load");
        let count = NonZero::new(loaded.partitions.len() as u32).expect("a partition");
        for line in &expected {
            assert_eq!(
                partition_for(line.id.as_bytes(), count),
                line.partition,
                "{}: {}",
                case.name,
                line.id
            );
        }
        counts.insert(count.get());
    }
    assert!(counts.contains(&1) && counts.contains(&50), "{counts:?}");
}

/// PrepareCommit and PrepareAbort, and nothing else, are handed to a new coordinator.
#[test]
fn pending_completions_are_the_prepared_ids() {
    let mut met = 0;
    for (case, expected) in cases_with_map() {
        let loaded = open(&case.data_dirs[0], 2, IoChoice::Auto).run().expect("a load");
        let pending: BTreeSet<String> =
            loaded.pending_completion().map(|entry| entry.expect("still there").id().into_owned()).collect();
        let prepared = |line: &&MapEntry| line.state == "PrepareCommit" || line.state == "PrepareAbort";
        let prepared: BTreeSet<String> =
            expected.iter().filter(prepared).map(|line| line.id.clone()).collect();
        assert_eq!(pending, prepared, "{}", case.name);
        let counted: u64 = loaded
            .partitions
            .iter()
            .map(|outcome| outcome.stats().expect("loaded").by_state.pending_completion())
            .sum();
        assert_eq!(counted, prepared.len() as u64);
        for entry in loaded.pending_completion() {
            assert!(matches!(
                entry.expect("still there").state(),
                TransactionState::PrepareCommit | TransactionState::PrepareAbort
            ));
        }
        met += prepared.len();
    }
    assert!(met > 50, "{met} prepared ids in the corpus");
}

/// A partition's folder given by itself loads like the partition in its root, and a choice of partitions is kept.
#[test]
fn one_partition_alone() {
    let case = corpus::case("txn-state-small-v1");
    let expected = case.map().expect("a map");
    for partition in 0..4 {
        let wanted: Vec<_> = expected.iter().filter(|line| line.partition == partition).cloned().collect();
        let folder = case.data_dirs[0].join(format!("{TRANSACTION_STATE}-{partition}"));
        let loaded = open(&folder, 8, IoChoice::Auto).run().expect("a load");
        assert_eq!(as_oracle(&loaded), wanted);
        let loaded =
            open(&case.data_dirs[0], 8, IoChoice::Auto).partitions([partition]).run().expect("a load");
        assert_eq!(as_oracle(&loaded), wanted);
    }
}
