//! The producer states of real brokers, made again from their `.log` files: every snapshot, every transaction index, the
//! last stable offsets, what DescribeProducers answers, and which snapshots a restart removes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use redrive::batch::BatchFrame;
use redrive::producer_state::{
    CompletedTransaction, ProducerEntry, ProducerSnapshot, ProducerStateManager, snapshots_outside,
    stray_snapshots,
};
use redrive::segment::index::{AbortedTransaction, TransactionIndex};
use redrive::types::{Offset, ProducerId};
use redrive_tests::corpus::{self, Case};

/// One partition folder.
struct Partition {
    /// Case and folder.
    name: String,
    topic_partition: String,
    /// Base offsets and bytes of the segments.
    segments: BTreeMap<i64, Vec<u8>>,
    snapshots: BTreeMap<i64, ProducerSnapshot>,
    transaction_indexes: BTreeMap<i64, Vec<u8>>,
}

fn open(case: &Case, folder: &Path) -> Partition {
    let topic_partition = folder.file_name().and_then(|name| name.to_str()).expect("a plain name").to_owned();
    let mut partition = Partition {
        name: format!("{}/{topic_partition}", case.name),
        topic_partition,
        segments: BTreeMap::new(),
        snapshots: BTreeMap::new(),
        transaction_indexes: BTreeMap::new(),
    };
    for file in fs::read_dir(folder).expect("a readable folder") {
        let path = file.expect("a readable folder").path();
        let name = path.file_name().and_then(|name| name.to_str()).expect("a plain name");
        let Some((Ok(offset), kind)) = name.split_once('.').map(|(base, kind)| (base.parse(), kind)) else {
            continue;
        };
        let bytes = || fs::read(&path).expect("a readable file");
        match kind {
            "log" => _ = partition.segments.insert(offset, bytes()),
            "txnindex" => _ = partition.transaction_indexes.insert(offset, bytes()),
            "snapshot" => {
                let snapshot = ProducerSnapshot::parse(&bytes()).expect("a broker's snapshot");
                partition.snapshots.insert(offset, snapshot);
            }
            _ => {}
        }
    }
    partition
}

fn partitions(case: &Case) -> Vec<Partition> {
    let mut found = Vec::new();
    for dir in &case.data_dirs {
        for entry in fs::read_dir(dir).expect("a readable folder") {
            let path = entry.expect("a readable folder").path();
            if path.is_dir() {
                found.push(open(case, &path));
            }
        }
    }
    found
}

impl Partition {
    /// The whole batches that are good, with the base offset of their segment.
    fn batches(&self) -> Vec<(i64, BatchFrame<'_>)> {
        let mut batches = Vec::new();
        for (&base, bytes) in &self.segments {
            let mut rest = &bytes[..];
            while let Ok((frame, behind)) = BatchFrame::parse(rest) {
                if frame.verify().is_err() {
                    break;
                }
                batches.push((base, frame));
                rest = behind;
            }
        }
        batches
    }

    fn end(&self) -> i64 {
        let (&base, _) = self.segments.last_key_value().expect("a segment");
        self.batches().last().map_or(base, |(_, frame)| frame.last_offset().next().0.max(base))
    }

    /// Whether every offset from `from` up to `end` still has its record.
    fn is_whole(&self, from: i64, end: i64) -> bool {
        let mut expected = from;
        for (_, frame) in self.batches() {
            if frame.base_offset().0 >= from && frame.base_offset().0 < end {
                let is_full = frame.records_count() == frame.last_offset_delta() + 1;
                if frame.base_offset().0 != expected || !is_full {
                    return false;
                }
                expected = frame.last_offset().next().0;
            }
        }
        expected == end
    }

    /// The state at `end`, begun with a snapshot or nothing; and what ended, with the segment of its marker.
    fn replay(
        &self,
        from: Option<(i64, &ProducerSnapshot)>,
        end: i64,
    ) -> (ProducerStateManager, Vec<(i64, CompletedTransaction)>) {
        let mut state = ProducerStateManager::new(i64::MAX);
        let mut ended = Vec::new();
        if let Some((offset, snapshot)) = from {
            state.load_snapshot(snapshot, Offset(offset), 0);
        }
        let begin = state.map_end_offset();
        for (segment, frame) in self.batches() {
            if frame.base_offset() >= begin && frame.base_offset().0 < end {
                let completed = state.replay(&frame).unwrap_or_else(|fault| panic!("{}: {fault}", self.name));
                ended.extend(completed.map(|completed| (segment, completed)));
            }
        }
        (state, ended)
    }
}

fn by_id(snapshot: &ProducerSnapshot) -> BTreeMap<ProducerId, ProducerEntry> {
    snapshot.entries.iter().map(|entry| (entry.producer_id, *entry)).collect()
}

#[test]
fn every_snapshot_comes_out_of_the_batches_below_it() {
    let (mut from_nothing, mut from_another, mut producers) = (0, 0, 0);
    for case in corpus::cases() {
        for partition in partitions(&case) {
            let mut before = None;
            for (&offset, snapshot) in &partition.snapshots {
                let (name, expected) = (&partition.name, by_id(snapshot));
                if partition.is_whole(0, offset) {
                    let (state, _) = partition.replay(None, offset);
                    assert_eq!(by_id(&state.snapshot()), expected, "{name}, {offset} from nothing");
                    from_nothing += 1;
                    producers += expected.len();
                }
                if let Some((from, begun)) = before.filter(|&(from, _)| partition.is_whole(from, offset)) {
                    let (state, _) = partition.replay(Some((from, begun)), offset);
                    assert_eq!(by_id(&state.snapshot()), expected, "{name}, {offset} from {from}");
                    from_another += 1;
                }
                before = Some((offset, snapshot));
            }
        }
    }
    println!("{from_nothing} snapshots with {producers} producers from nothing, {from_another} from another");
    assert!(from_nothing >= 90 && from_another >= 90 && producers >= 3000);
}

#[test]
fn every_transaction_index_comes_out_of_its_markers() {
    let (mut files, mut entries) = (0, 0);
    for case in corpus::cases() {
        for partition in partitions(&case) {
            if !partition.is_whole(0, partition.end()) {
                continue;
            }
            let (_, ended) = partition.replay(None, i64::MAX);
            for &base in partition.segments.keys() {
                let made: Vec<_> = ended
                    .iter()
                    .filter(|(segment, transaction)| *segment == base && transaction.is_aborted)
                    .map(|(_, transaction)| AbortedTransaction {
                        producer_id: transaction.producer_id,
                        first_offset: transaction.first_offset,
                        last_offset: transaction.last_offset,
                        last_stable_offset: transaction.last_stable_offset,
                    })
                    .collect();
                let file = partition.transaction_indexes.get(&base);
                let index = TransactionIndex::new(Offset(base), file.map_or(&[], |file| &file[..]));
                let stored: Vec<_> = index.entries().map(|entry| entry.expect("version 0")).collect();
                assert_eq!(made, stored, "{}, segment {base}", partition.name);
                files += usize::from(file.is_some());
                entries += stored.len();
            }
        }
    }
    println!("{files} files, {entries} entries");
    assert!(files >= 30 && entries >= 300);
}

/// The state at the end, by the newest snapshot and the batches behind it, as a restarted broker makes it.
fn at_end(partition: &Partition) -> ProducerStateManager {
    let newest = partition.snapshots.last_key_value().map(|(&offset, snapshot)| (offset, snapshot));
    let (mut state, _) = partition.replay(newest, i64::MAX);
    state.on_high_watermark_updated(Offset(partition.end()));
    state
}

#[test]
fn last_stable_offsets_are_those_that_brokers_answered() {
    let (mut compared, mut held_back) = (0, 0);
    for case in corpus::cases() {
        let Some(offsets) = case.oracle_json("offsets.json") else { continue };
        for partition in partitions(&case) {
            let answer = &offsets[&partition.topic_partition];
            let end = partition.end();
            // Beginning to answer, the broker may have ended a transaction.
            if answer["latest_read_uncommitted"].as_i64() != Some(end) {
                continue;
            }
            let log_start = answer["earliest"].as_i64().expect("an offset");
            let stable = at_end(&partition).last_stable_offset(Offset(end), Offset(log_start));
            assert_eq!(Some(stable.0), answer["latest_read_committed"].as_i64(), "{}", partition.name);
            compared += 1;
            held_back += usize::from(stable.0 < end);
        }
    }
    println!("{compared} partitions, {held_back} held back");
    assert!(compared >= 15 && held_back >= 5);
}

#[test]
fn producers_are_those_that_brokers_described() {
    let (mut partitions_compared, mut producers) = (0, 0);
    for case in corpus::cases() {
        let (Some(described), Some(offsets)) =
            (case.oracle_json("producers.json"), case.oracle_json("offsets.json"))
        else {
            continue;
        };
        for partition in partitions(&case) {
            let Some(list) = described[&partition.topic_partition].as_array() else { continue };
            let latest = &offsets[&partition.topic_partition]["latest_read_uncommitted"];
            if latest.as_i64() != Some(partition.end()) {
                continue;
            }
            let state = at_end(&partition);
            let mut made: Vec<_> = state
                .entries()
                .map(|entry| {
                    serde_json::json!({
                        "producerId": entry.producer_id().0,
                        "producerEpoch": entry.producer_epoch(),
                        // The listing has nothing in place of -1.
                        "coordinatorEpoch": Some(entry.coordinator_epoch()).filter(|&epoch| epoch >= 0),
                        "lastSequence": entry.last_batch().map_or(-1, |batch| batch.metadata.last_sequence),
                        "lastTimestamp": entry.last_timestamp(),
                        "currentTransactionStartOffset": entry.current_txn_first_offset().map(|first| first.0),
                    })
                })
                .collect();
            made.sort_by_key(|producer| producer["producerId"].as_i64());
            assert_eq!(&made, list, "{}", partition.name);
            partitions_compared += 1;
            producers += made.len();
        }
    }
    println!("{partitions_compared} partitions, {producers} producers");
    assert!(partitions_compared >= 15 && producers >= 1500);
}

/// What a broker said that it deleted when it started again after a clean stop. After another one each segment that it
/// recovers takes more with it.
fn deleted_snapshots(case: &Case) -> Option<BTreeMap<String, BTreeSet<i64>>> {
    let log = case.oracle_text("restart-log.txt").filter(|_| case.info["stop"] == "clean")?;
    let mut deleted: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for line in log.lines() {
        let Some((_, path)) = line.split_once("Deleted producer state snapshot ") else { continue };
        let mut parts = path.trim().rsplit('/');
        let offset = parts.next().and_then(|name| name.strip_suffix(".snapshot")?.parse().ok());
        let folder = parts.next().expect("a folder");
        deleted.entry(folder.to_owned()).or_default().insert(offset.expect("a snapshot"));
    }
    Some(deleted)
}

#[test]
fn a_restart_removes_the_snapshots_that_brokers_removed() {
    let (mut compared, mut removed) = (0, 0);
    for case in corpus::cases() {
        let Some(deleted) = deleted_snapshots(&case) else { continue };
        let starts = fs::read_to_string(case.data_dirs[0].join("log-start-offset-checkpoint"));
        let starts = starts.unwrap_or_default();
        for partition in partitions(&case) {
            let (topic, number) = partition.topic_partition.rsplit_once('-').expect("a partition");
            let stored = starts.lines().find_map(|line| line.strip_prefix(&format!("{topic} {number} ")));
            let (&first, _) = partition.segments.first_key_value().expect("a segment");
            let log_start = stored.map_or(first, |start| start.parse().expect("an offset")).max(first);
            let mut snapshots: Vec<_> = partition.snapshots.keys().map(|&offset| Offset(offset)).collect();
            let bases: Vec<_> = partition.segments.keys().map(|&base| Offset(base)).collect();
            let mut gone = stray_snapshots(&snapshots, &bases);
            snapshots.retain(|offset| !gone.contains(offset));
            gone.extend(snapshots_outside(&snapshots, Offset(log_start), Offset(partition.end())));
            let gone: BTreeSet<_> = gone.into_iter().map(|offset| offset.0).collect();
            let expected = deleted.get(&partition.topic_partition).cloned().unwrap_or_default();
            assert_eq!(gone, expected, "{}", partition.name);
            compared += 1;
            removed += gone.len();
        }
    }
    println!("{compared} partitions, {removed} snapshots removed");
    assert!(compared >= 50 && removed >= 7);
}
