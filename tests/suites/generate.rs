//! `redrive generate` against those who read what it writes: the engine, the slow twin, and the rules of brokers and
//! coordinators written down once more here.

mod judge;

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File, OpenOptions};
use std::num::NonZero;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use redrive::replay::Loaded;
use redrive::transaction_log::TransactionState;
use redrive_tests::naive::{self, Batch, NaiveEntry, NaiveOptions};
use redrive_tools::generate::{
    EndShares, GenerateError, IdShape, Observer, Progress, Scenario, Spec, Summary, ValueVersions, Volume,
    generate, generate_into,
};
use tempfile::TempDir;

const NOW_MS: i64 = 1_796_000_000_000;
const TOPIC: &str = "__transaction_state";
const SCENARIOS: [Scenario; 5] =
    [Scenario::UpdateHeavy, Scenario::Distinct, Scenario::HotPartition, Scenario::Streams, Scenario::Flink];
/// Every end has ids.
const ENDS: EndShares =
    EndShares { tombstones: 0.1, ongoing: 0.1, prepare_commit: 0.05, prepare_abort: 0.05, empty: 0.1 };

fn number(n: u32) -> NonZero<u32> {
    NonZero::new(n).expect("not zero")
}

/// A log of some hundred ids in small segments.
fn small(scenario: Scenario, seed: u64) -> Spec {
    let mut spec = Spec::new(scenario, seed, NOW_MS);
    spec.volume = Volume::Ids(400);
    spec.transactions = number(if scenario == Scenario::Flink { 1 } else { 4 });
    spec.partitions = number(3);
    spec.segment_bytes = 40_000;
    spec.window = number(60);
    spec.ends = ENDS;
    spec.aborts = 0.3;
    spec
}

/// A folder in memory, where there is such a thing: every file that is generated is brought to its disk.
fn folder() -> TempDir {
    let memory = Path::new("/dev/shm");
    let made = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    made.expect("a temporary folder")
}

/// Generates into a folder of its own.
fn made(spec: &Spec) -> (TempDir, Summary) {
    let out = folder();
    let summary = generate(spec, out.path(), &mut ()).unwrap_or_else(|error| panic!("{spec:?}: {error}"));
    (out, summary)
}

/// Every file below a folder, by its path there.
fn tree(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a readable folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(root).expect("below the root").to_path_buf();
                files.insert(name, fs::read(&path).expect("a readable file"));
            }
        }
    }
    files
}

fn replay(root: &Path) -> Loaded {
    redrive::replay(root).expect("a log directory").run().expect("a load")
}

/// Fails unless a load finds what the summary says, completely.
fn assert_loads_as(root: &Path, summary: &Summary, what: &str) {
    let loaded = replay(root);
    assert!(loaded.is_complete(), "{what}: {:?}", loaded.refused().collect::<Vec<_>>());
    assert!(loaded.notices.is_empty(), "{what}: {:?}", loaded.notices);
    assert_eq!(loaded.partitions.len(), summary.partitions.len(), "{what}");
    for (outcome, expected) in loaded.partitions.iter().zip(&summary.partitions) {
        let what = format!("{what}, {}", outcome.topic_partition);
        let stats = outcome.stats().expect("loaded");
        assert_eq!(outcome.topic_partition.partition, expected.partition, "{what}");
        assert_eq!(stats.segments as u64, expected.segments, "{what}: segments");
        assert_eq!(stats.bytes, expected.bytes, "{what}: bytes");
        assert_eq!(stats.batches, expected.batches, "{what}: batches");
        assert_eq!(stats.records, expected.records, "{what}: records");
        assert_eq!(stats.tombstones, expected.tombstones, "{what}: tombstones");
        assert_eq!(outcome.live_bytes(), Some(expected.live_bytes), "{what}: live bytes");
        assert_eq!((stats.gaps, stats.gap_offsets), (expected.gaps, expected.gap_offsets), "{what}: gaps");
        assert_eq!(stats.log_end_offset.0, expected.log_end_offset, "{what}: log end offset");
        assert_eq!((stats.odd_values, stats.unknown_records), (0, 0), "{what}");
        assert_eq!(outcome.map().map(|map| map.len() as u64), Some(expected.ids), "{what}: ids");
        for state in TransactionState::ALL {
            assert_eq!(stats.by_state.count(state), expected.in_state(state), "{what}: {state}");
        }
    }
}

fn log_files(partition: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(partition).expect("a partition");
    let mut files: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "log"));
    files.sort();
    files
}

fn partition(root: &Path, number: impl std::fmt::Display) -> PathBuf {
    root.join(format!("{TOPIC}-{number}"))
}

/// Gives every batch of a log file with its position, as the twin reads them.
fn batches<'a>(bytes: &'a [u8]) -> impl Iterator<Item = (usize, Batch<'a>)> + 'a {
    let mut position = 0;
    std::iter::from_fn(move || {
        let left = bytes.get(position..)?;
        let batch = naive::next_batch(left, left.len() as u64).expect("a good batch")?;
        let at = position;
        position += 12 + usize::try_from(batch.header.length).expect("a length");
        Some((at, batch))
    })
}

#[test]
fn every_scenario_loads_as_its_summary_says() {
    for (seed, scenario) in (0..).zip(SCENARIOS) {
        for versions in [ValueVersions::V0, ValueVersions::V1, ValueVersions::Mixed] {
            for (gaps, id_shape) in
                [(0.0, IdShape::Real), (0.4, IdShape::Random), (1.0, IdShape::Prefix), (0.0, IdShape::Random)]
            {
                let mut spec = small(scenario, seed);
                (spec.value_versions, spec.gaps, spec.id_shape) = (versions, gaps, id_shape);
                let what = format!("{} {versions:?} {gaps} {id_shape:?}", scenario.name());
                let (out, summary) = made(&spec);
                assert_loads_as(out.path(), &summary, &what);
                let total = summary.total();
                assert_eq!(total.ids + total.tombstoned_ids, 400, "{what}");
                assert!(total.segments > 3 || gaps == 1.0, "{what}: {} segments", total.segments);
                assert_eq!(total.gap_offsets > 0, gaps > 0.0, "{what}");
                for state in
                    [TransactionState::Empty, TransactionState::Ongoing, TransactionState::CompleteCommit]
                {
                    assert!(total.in_state(state) > 10, "{what}: {state} {}", total.in_state(state));
                }
                assert!(total.in_state(TransactionState::CompleteAbort) > 10, "{what}");
                assert!(total.in_state(TransactionState::PrepareCommit) > 2, "{what}");
                assert!(total.in_state(TransactionState::PrepareAbort) > 2, "{what}");
                assert!(total.tombstones > 10, "{what}");
            }
        }
    }
}

#[test]
fn the_default_of_every_scenario_loads() {
    for scenario in SCENARIOS {
        let mut spec = Spec::new(scenario, 3, NOW_MS);
        spec.volume = Volume::Bytes(2_000_000);
        let (out, summary) = made(&spec);
        assert_loads_as(out.path(), &summary, scenario.name());
        let bytes = summary.total().bytes;
        assert!((1_700_000..2_300_000).contains(&bytes), "{}: {bytes} bytes", scenario.name());
    }
}

#[test]
fn the_twin_finds_the_same() {
    for (seed, scenario) in (10..).zip(SCENARIOS) {
        let mut spec = small(scenario, seed);
        spec.value_versions = ValueVersions::Mixed;
        let (out, summary) = made(&spec);
        let twin = naive::load_root(out.path(), TOPIC, &NaiveOptions::default()).expect("a root");
        assert_eq!(twin.len(), summary.partitions.len());
        for (outcome, expected) in replay(out.path()).partitions.iter().zip(&summary.partitions) {
            let what = format!("{} {}", scenario.name(), outcome.topic_partition);
            let twin = twin[&expected.partition].as_ref().unwrap_or_else(|error| panic!("{what}: {error:?}"));
            judge::assert_same_counts(outcome.stats().expect("loaded"), twin, &what);
            let entries = judge::entries(outcome.map().expect("loaded"));
            judge::assert_same_entries(&entries, &twin.entries, &what);
            assert_eq!(twin.entries.len() as u64, expected.ids, "{what}");
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    for scenario in SCENARIOS {
        let spec = small(scenario, 7);
        let first = tree(made(&spec).0.path());
        let other_threads = Spec { threads: NonZero::new(3).expect("threads"), ..spec.clone() };
        assert!(first == tree(made(&other_threads).0.path()), "{}: threads", scenario.name());
        let other_seed = tree(made(&Spec { seed: 8, ..spec.clone() }).0.path());
        let other_time = tree(made(&Spec { now_ms: NOW_MS + 1, ..spec }).0.path());
        for (other, what) in [(other_seed, "seed"), (other_time, "time")] {
            let same: Vec<_> = first
                .iter()
                .filter(|(name, bytes)| !bytes.is_empty() && other.get(*name) == Some(bytes))
                .filter(|(name, _)| name.extension().is_some_and(|extension| extension == "log"))
                .collect();
            assert!(same.is_empty(), "{}: {what} changes nothing in {same:?}", scenario.name());
        }
    }
}

/// Java's hash, once more.
fn partition_of(id: &str, partitions: i32) -> i32 {
    let hash = id.encode_utf16().fold(0i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)));
    if hash == i32::MIN { 0 } else { hash.abs() % partitions }
}

#[test]
fn ids_lie_where_kafka_looks_for_them() {
    for scenario in SCENARIOS {
        for partitions in [1, 7, 200] {
            let mut spec = small(scenario, 1);
            spec.partitions = number(partitions);
            let (out, summary) = made(&spec);
            assert_eq!(summary.partitions.len(), partitions as usize);
            for outcome in &replay(out.path()).partitions {
                for entry in outcome.map().expect("loaded").iter() {
                    let entry = entry.expect("the log is still there");
                    let right = partition_of(&entry.id(), partitions.cast_signed());
                    assert_eq!(right, outcome.topic_partition.partition, "{}", entry.id());
                }
            }
            if scenario == Scenario::HotPartition && partitions > 1 {
                let hot = &summary.partitions[0];
                assert!(hot.ids + hot.tombstoned_ids > 340, "{} ids are hot", hot.ids);
            }
        }
    }
}

/// The states that a coordinator may write after a state: the matrix of its state machine. −1 is no state.
fn follows(before: i8, state: i8) -> bool {
    match before {
        -1 => state == 0,
        0 | 4 | 5 => matches!(state, 0 | 1 | 3),
        1 => matches!(state, 1..=3),
        2 => state == 4,
        3 => state == 5,
        _ => false,
    }
}

fn assert_follows(before: Option<&NaiveEntry>, entry: &NaiveEntry, what: &str) {
    assert!(follows(before.map_or(-1, |before| before.status), entry.status), "{what}: {before:?} {entry:?}");
    let is_open = entry.status != 0;
    assert_eq!(entry.start_timestamp_ms >= 0, is_open, "{what}: start");
    assert!(entry.start_timestamp_ms <= entry.last_update_timestamp_ms, "{what}: start");
    let partitions = entry.partitions.as_ref();
    assert_eq!(partitions.is_some(), is_open, "{what}: null exactly for Empty");
    let count = partitions.map_or(0, |partitions| partitions.values().map(|ids| ids.len()).sum::<usize>());
    assert_eq!(count > 0, matches!(entry.status, 1..=3), "{what}: {count} partitions");
    if entry.value_version == 0 {
        assert_eq!((entry.previous_producer_id, entry.client_transaction_version), (-1, 0), "{what}");
    } else {
        let producer_id = before.map_or(entry.producer_id, |before| before.producer_id);
        assert_eq!(entry.previous_producer_id, producer_id, "{what}: previous producer id");
    }
    let Some(before) = before else {
        assert_eq!(entry.producer_epoch, 0, "{what}: first epoch");
        return;
    };
    assert!(entry.last_update_timestamp_ms >= before.last_update_timestamp_ms, "{what}: last update");
    if entry.status == 1 && before.status == 1 {
        let known = before.partitions.as_ref().expect("an open transaction");
        let grows = known.iter().all(|(topic, ids)| partitions.expect("open")[topic].is_superset(ids));
        assert!(grows && before.partitions != entry.partitions, "{what}: partitions are added");
    }
    if matches!(entry.status, 2 | 3) {
        assert_eq!(entry.partitions, before.partitions, "{what}: a decision takes all partitions");
    }
    if matches!(entry.status, 2..=5) {
        assert_eq!(entry.start_timestamp_ms, before.start_timestamp_ms, "{what}: start is kept");
    }
    if entry.producer_id != before.producer_id {
        assert_eq!((entry.producer_epoch, before.producer_epoch >= 32_766), (0, true), "{what}: rotation");
        return;
    }
    let is_decision = matches!(entry.status, 2 | 3);
    let bumps = entry.status == 0 || is_decision && entry.client_transaction_version == 2;
    assert_eq!(entry.producer_epoch, before.producer_epoch + i16::from(bumps), "{what}: epoch");
}

#[test]
fn records_follow_each_other_as_a_coordinator_writes_them() {
    for (seed, scenario) in (20..).zip(SCENARIOS) {
        for versions in [ValueVersions::V0, ValueVersions::V1, ValueVersions::Mixed] {
            let mut spec = small(scenario, seed);
            (spec.value_versions, spec.gaps) = (versions, 0.0);
            let (out, _) = made(&spec);
            let mut producers = HashMap::new();
            let (mut versions_met, mut newer, mut in_tombstone_batches) = ([0, 0], 0, 0);
            for number in 0..3 {
                let mut states: HashMap<String, Option<NaiveEntry>> = HashMap::new();
                let (mut next_offset, mut time) = (0, 0);
                for file in log_files(&partition(out.path(), number)) {
                    let bytes = fs::read(&file).expect("a log file");
                    for (_, batch) in batches(&bytes) {
                        let header = &batch.header;
                        assert_eq!(
                            (header.attributes, header.producer_id, header.base_sequence),
                            (0, -1, -1)
                        );
                        assert_eq!((header.partition_leader_epoch, header.base_offset), (0, next_offset));
                        assert!(header.base_timestamp >= time && header.max_timestamp <= NOW_MS);
                        time = header.base_timestamp;
                        let payload = batch.decompress(1 << 20).expect("plain records");
                        let records = batch.records(&payload).expect("good records");
                        next_offset += records.len() as i64;
                        for record in &records {
                            let id =
                                naive::read_key(record.key.expect("a key")).expect("a key").expect("an id");
                            let what =
                                format!("{} {versions:?} {id} at {}", scenario.name(), header.base_offset);
                            let before = states.get(&id).cloned();
                            assert_ne!(before, Some(None), "{what}: nothing comes after a tombstone");
                            let before = before.flatten();
                            let Some(value) = record.value else {
                                let status = before.expect("a tombstone of something").status;
                                assert!(matches!(status, 0 | 4 | 5), "{what}: {status} never expires");
                                in_tombstone_batches += usize::from(records.len() > 1);
                                states.insert(id, None);
                                continue;
                            };
                            let entry = naive::read_value(value).expect("a value").expect("a known version");
                            assert_follows(before.as_ref(), &entry, &what);
                            let lag = header.base_timestamp - entry.last_update_timestamp_ms;
                            assert!((0..1000).contains(&lag), "{what}: {lag} ms from change to append");
                            versions_met[usize::from(entry.value_version == 1)] += 1;
                            newer += usize::from(entry.client_transaction_version == 2);
                            let owner = producers.insert(entry.producer_id, id.clone());
                            assert!(
                                owner.is_none_or(|owner| owner == id),
                                "{what}: a producer id of another"
                            );
                            states.insert(id, Some(entry));
                        }
                    }
                }
                assert!(time > NOW_MS - 60_000 || scenario == Scenario::Flink, "recent");
            }
            assert_eq!(versions_met[0] > 0, versions != ValueVersions::V1, "{versions_met:?}");
            assert_eq!(versions_met[1] > 0, versions != ValueVersions::V0, "{versions_met:?}");
            assert_eq!(newer > 0, versions != ValueVersions::V0);
            assert!(in_tombstone_batches > 10, "tombstones come in batches");
        }
    }
}

/// How much transactions are mixed: of the records next to each other, nearly all are of different ids.
#[test]
fn transactions_are_interleaved() {
    let mut spec = small(Scenario::UpdateHeavy, 2);
    spec.partitions = number(1);
    let (out, _) = made(&spec);
    let (mut records, mut same) = (0, 0);
    let mut previous = Vec::new();
    for file in log_files(&partition(out.path(), 0)) {
        let bytes = fs::read(&file).expect("a log file");
        for (_, batch) in batches(&bytes) {
            let payload = batch.decompress(1 << 20).expect("plain records");
            for record in batch.records(&payload).expect("good records") {
                let key = record.key.expect("a key").to_vec();
                (records, same) = (records + 1, same + usize::from(key == previous));
                previous = key;
            }
        }
    }
    assert!(records > 5000 && same * 10 < records, "{same} of {records} follow one of the same id");
}

/// The rule of LogSegment once more: an entry when more than 4096 bytes came since the last one, the largest time so
/// far beside it, and once more at the end.
#[test]
fn indexes_are_a_brokers() {
    let mut spec = small(Scenario::UpdateHeavy, 4);
    spec.gaps = 0.2;
    let (out, summary) = made(&spec);
    let mut entries = 0;
    for number in 0..3 {
        let folder = partition(out.path(), number);
        let files = log_files(&folder);
        for (index, file) in files.iter().enumerate() {
            let bytes = fs::read(file).expect("a log file");
            let name = file.file_stem().expect("a name").to_string_lossy().into_owned();
            let base: i64 = name.parse().expect("a base offset");
            let (mut offsets, mut times): (Vec<u8>, Vec<u8>) = (Vec::new(), Vec::new());
            let (mut since, mut largest, mut last_time) = (0, (-1, base), -1);
            let mut push_time = |largest: (i64, i64)| {
                if largest.0 > last_time {
                    times.extend(largest.0.to_be_bytes());
                    times.extend(((largest.1 - base) as i32).to_be_bytes());
                    last_time = largest.0;
                }
            };
            for (position, batch) in batches(&bytes) {
                let last_offset = batch.header.last_offset().expect("an offset");
                if position == 0 && index > 0 {
                    assert_eq!(batch.header.base_offset, base, "a roll is at the first offset");
                }
                if batch.header.max_timestamp > largest.0 {
                    largest = (batch.header.max_timestamp, last_offset);
                }
                if since > 4096 {
                    offsets.extend(((last_offset - base) as i32).to_be_bytes());
                    offsets.extend((position as i32).to_be_bytes());
                    push_time(largest);
                    since = 0;
                    entries += 1;
                }
                since += 12 + batch.header.length;
            }
            push_time(largest);
            assert_eq!(fs::read(file.with_extension("index")).expect("an index"), offsets, "{name}");
            assert_eq!(fs::read(file.with_extension("timeindex")).expect("an index"), times, "{name}");
            assert!(bytes.len() <= 40_000, "{name} has {} bytes", bytes.len());
            let is_last = index + 1 == files.len();
            assert!(is_last || bytes.len() > 39_000, "{name} was rolled at {} bytes", bytes.len());
        }
        let end = summary.partitions[number].log_end_offset;
        let snapshots = files.iter().skip(1).map(|file| file.with_extension("snapshot"));
        for snapshot in snapshots.chain([folder.join(format!("{end:020}.snapshot"))]) {
            assert_eq!(fs::read(&snapshot).expect("a snapshot").len(), 10, "{}", snapshot.display());
        }
    }
    assert!(entries > 100, "{entries} entries compared");
}

#[test]
fn the_files_of_the_root_say_the_end() {
    let (out, summary) = made(&small(Scenario::Distinct, 6));
    let read = |name: &str| fs::read_to_string(out.path().join(name)).expect(name);
    let ends: Vec<String> = summary
        .partitions
        .iter()
        .map(|part| format!("{TOPIC} {} {}\n", part.partition, part.log_end_offset))
        .collect();
    let expected = format!("0\n3\n{}", ends.concat());
    assert_eq!(read("recovery-point-offset-checkpoint"), expected);
    assert_eq!(read("replication-offset-checkpoint"), expected);
    assert_eq!(read("log-start-offset-checkpoint"), "0\n0\n");
    assert!(read(".kafka_cleanshutdown").contains("brokerEpoch"));
    let metadata: Vec<_> = (0..3).map(|n| read(&format!("{TOPIC}-{n}/partition.metadata"))).collect();
    assert!(metadata[0].starts_with("version: 0\ntopic_id: ") && metadata[0].len() == 43, "{}", metadata[0]);
    assert!(metadata.iter().all(|other| *other == metadata[0]));
    assert_eq!(read(&format!("{TOPIC}-1/leader-epoch-checkpoint")), "0\n1\n0 0\n");
}

#[test]
fn a_partition_without_ids_is_an_empty_log() {
    let mut spec = small(Scenario::UpdateHeavy, 1);
    (spec.volume, spec.partitions) = (Volume::Ids(3), number(50));
    let (out, summary) = made(&spec);
    assert_loads_as(out.path(), &summary, "three ids in fifty partitions");
    let empty = summary.partitions.iter().find(|part| part.records == 0).expect("an empty one");
    let folder = partition(out.path(), empty.partition);
    for kind in ["log", "index", "timeindex"] {
        let path = folder.join(format!("{:020}.{kind}", 0));
        assert_eq!(fs::metadata(&path).expect("a file").len(), 0, "{}", path.display());
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let out = folder();
    let good = small(Scenario::UpdateHeavy, 1);
    type Change = fn(&mut Spec);
    let bad: [(&str, Change); 10] = [
        ("number of ids", |spec| spec.volume = Volume::Ids(0)),
        ("number of ids", |spec| spec.volume = Volume::Ids(1 << 32)),
        ("no bytes", |spec| spec.volume = Volume::Bytes(0)),
        ("more ids than", |spec| spec.volume = Volume::Bytes(u64::MAX)),
        ("200 partitions", |spec| spec.partitions = number(201)),
        ("segment bytes", |spec| spec.segment_bytes = 0),
        ("from 0 to 1", |spec| spec.gaps = 1.5),
        ("from 0 to 1", |spec| spec.ends.empty = f64::NAN),
        ("more than all", |spec| (spec.ends.empty, spec.ends.ongoing) = (0.6, 0.6)),
        ("no moment", |spec| spec.now_ms = 5),
    ];
    for (words, change) in bad {
        let mut spec = good.clone();
        change(&mut spec);
        let refused = generate(&spec, out.path(), &mut ());
        let Err(GenerateError::Spec(sentence)) = &refused else { panic!("{words}: {refused:?}") };
        assert!(sentence.contains(words), "{words}: {sentence}");
    }
    let flink = Spec { transactions: number(2), ..small(Scenario::Flink, 1) };
    assert!(matches!(generate(&flink, out.path(), &mut ()), Err(GenerateError::Spec(_))));
    assert!(tree(out.path()).is_empty());
}

#[test]
fn nothing_is_overwritten() {
    let parent = folder();
    let spec = small(Scenario::Streams, 1);
    let full = parent.path().join("full");
    fs::create_dir(&full).expect("created");
    fs::write(full.join("precious"), "old").expect("written");
    let link = parent.path().join("link");
    std::os::unix::fs::symlink(parent.path().join("nowhere"), &link).expect("a link");
    for occupied in [full.clone(), full.join("precious")] {
        let refused = generate(&spec, &occupied, &mut ());
        assert!(matches!(refused, Err(GenerateError::Occupied { .. })), "{refused:?}");
    }
    for unreachable in [link.clone(), parent.path().join("no/such")] {
        let refused = generate(&spec, &unreachable, &mut ());
        assert!(matches!(refused, Err(GenerateError::Io { .. })), "{refused:?}");
    }
    assert_eq!(tree(&full).len(), 1);
    // An absent one is made, an empty one is filled, and nothing is left beside them.
    let absent = parent.path().join("absent");
    let summary = generate(&spec, &absent, &mut ()).expect("generated");
    assert_loads_as(&absent, &summary, "absent");
    let mut names: Vec<_> = fs::read_dir(parent.path())
        .expect("listed")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["absent", "full", "link"]);
}

/// Has enough after some calls.
struct Impatient(u32);

impl Observer for Impatient {
    fn progress(&mut self, _progress: &Progress) -> ControlFlow<()> {
        self.0 = self.0.saturating_sub(1);
        if self.0 == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// Notes what it is told.
#[derive(Default)]
struct Notes(Vec<Progress>);

impl Observer for Notes {
    fn progress(&mut self, progress: &Progress) -> ControlFlow<()> {
        self.0.push(*progress);
        ControlFlow::Continue(())
    }
}

#[test]
fn what_is_cancelled_leaves_nothing_behind() {
    // The first call comes before anything is written, the last one behind it; between them it depends.
    for calls in [1, 2] {
        let parent = folder();
        let out = parent.path().join("out");
        let cancelled = generate(&small(Scenario::UpdateHeavy, 1), &out, &mut Impatient(calls));
        assert!(matches!(cancelled, Err(GenerateError::Cancelled)), "{cancelled:?}");
        assert_eq!(fs::read_dir(parent.path()).expect("listed").count(), 0, "after {calls} calls");
    }
    // In the middle of a log that would take half a minute.
    let parent = folder();
    let mut spec = Spec::new(Scenario::UpdateHeavy, 1, NOW_MS);
    (spec.volume, spec.partitions) = (Volume::Ids(20_000), number(1));
    spec.transactions = number(100_000);
    let cancelled = generate(&spec, &parent.path().join("out"), &mut Impatient(3));
    assert!(matches!(cancelled, Err(GenerateError::Cancelled)), "{cancelled:?}");
    assert_eq!(fs::read_dir(parent.path()).expect("listed").count(), 0);
}

#[test]
fn the_last_report_is_the_summary() {
    let out = folder();
    let mut notes = Notes::default();
    let summary = generate(&small(Scenario::Flink, 1), out.path(), &mut notes).expect("generated");
    let (first, last) = (notes.0.first().expect("reports"), notes.0.last().expect("reports"));
    let total = summary.total();
    assert_eq!((first.bytes, first.partitions, first.partitions_total), (0, 0, 3));
    assert!(
        first.bytes_total.abs_diff(total.bytes) < total.bytes / 5,
        "{} {}",
        first.bytes_total,
        total.bytes
    );
    assert_eq!((last.bytes, last.bytes_total, last.records), (total.bytes, total.bytes, total.records));
    assert_eq!((last.ids, last.partitions), (400, 3));
}

/// A directory as a stopped broker leaves it, with another topic, old segments of every kind, and leader epochs.
fn broker() -> TempDir {
    let (root, summary) = made(&Spec { partitions: number(3), ..small(Scenario::Streams, 99) });
    let write = |name: &str, content: &str| {
        let path = root.path().join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("created");
        fs::write(path, content).expect("written");
    };
    write("meta.properties", "version=1\nnode.id=1\ncluster.id=abc\n");
    write(".lock", "");
    write("orders-0/00000000000000000000.log", "not looked at");
    write("orders-0/leader-epoch-checkpoint", "0\n1\n3 0\n");
    let ends: Vec<i64> = summary.partitions.iter().map(|part| part.log_end_offset).collect();
    let lines = |orders: &str| {
        let ours = ends.iter().enumerate().map(|(n, end)| format!("{TOPIC} {n} {end}\n"));
        format!("0\n4\n{}{orders}", ours.collect::<String>())
    };
    write("recovery-point-offset-checkpoint", &lines("orders 0 17\n"));
    write("replication-offset-checkpoint", &lines("orders 0 18\n"));
    write("log-start-offset-checkpoint", &format!("0\n2\n{TOPIC} 1 5\norders 0 2\n"));
    write("cleaner-offset-checkpoint", &format!("0\n2\norders 0 9\n{TOPIC} 0 7\n"));
    write(".kafka_cleanshutdown", "{\"version\":0,\"brokerEpoch\":812}");
    for number in 0..3 {
        let epochs = if number == 1 { "0\n0\n" } else { "0\n2\n0 0\n7 4\n" };
        write(&format!("{TOPIC}-{number}/leader-epoch-checkpoint"), epochs);
        for old in ["99.txnindex", "98.snapshot", "97.log.deleted", "96.index.cleaned", "95.log.swap"] {
            let name = format!("{:0>20}.{}", &old[..2], &old[3..]);
            write(&format!("{TOPIC}-{number}/{name}"), "old");
        }
    }
    root
}

#[test]
fn a_stopped_brokers_folders_are_filled() {
    let root = broker();
    let before = tree(root.path());
    let spec = small(Scenario::UpdateHeavy, 12);
    let summary = generate_into(&spec, root.path(), &mut ()).expect("filled");
    assert_loads_as(root.path(), &summary, "filled");
    let (alone, alone_summary) = made(&spec);
    assert_eq!(summary, alone_summary, "the same as in a directory of its own");

    let after = tree(root.path());
    for (name, bytes) in &after {
        let text = name.to_string_lossy();
        let is_new = text.starts_with(TOPIC) && !text.ends_with("partition.metadata")
            || text.ends_with("-checkpoint") && !text.contains('/');
        assert!(is_new || before.get(name) == Some(bytes), "{text} was changed");
    }
    // Beside the segments of the new log there are none.
    let names = |tree: &BTreeMap<PathBuf, Vec<u8>>| -> Vec<PathBuf> {
        tree.keys()
            .filter(|name| name.starts_with(TOPIC) || name.to_string_lossy().starts_with(TOPIC))
            .cloned()
            .collect()
    };
    assert_eq!(names(&after), names(&tree(alone.path())));

    let read = |name: &str| fs::read_to_string(root.path().join(name)).expect(name);
    let ends: String = summary
        .partitions
        .iter()
        .map(|part| format!("{TOPIC} {} {}\n", part.partition, part.log_end_offset))
        .collect();
    assert_eq!(read("recovery-point-offset-checkpoint"), format!("0\n4\norders 0 17\n{ends}"));
    assert_eq!(read("replication-offset-checkpoint"), format!("0\n4\norders 0 18\n{ends}"));
    assert_eq!(read("log-start-offset-checkpoint"), "0\n1\norders 0 2\n");
    assert_eq!(read("cleaner-offset-checkpoint"), "0\n1\norders 0 9\n");
    for (number, epoch) in [(0, 7), (1, 0), (2, 7)] {
        let text = read(&format!("{TOPIC}-{number}/leader-epoch-checkpoint"));
        assert_eq!(text, format!("0\n1\n{epoch} 0\n"));
        for file in log_files(&partition(root.path(), number)) {
            let bytes = fs::read(&file).expect("a log file");
            assert!(batches(&bytes).all(|(_, batch)| batch.header.partition_leader_epoch == epoch));
        }
    }
    // Once more, now that its own files are the old ones, and without a clean stop.
    fs::remove_file(root.path().join(".kafka_cleanshutdown")).expect("removed");
    let again = generate_into(&small(Scenario::Flink, 13), root.path(), &mut ()).expect("filled again");
    assert_loads_as(root.path(), &again, "filled again");
    assert!(!root.path().join(".kafka_cleanshutdown").exists(), "an unclean stop stays one");
}

#[test]
fn a_broker_directory_that_is_not_fit_is_left_alone() {
    let spec = small(Scenario::UpdateHeavy, 12);
    let refused = |root: &Path, spec: &Spec| {
        let before = tree(root);
        let refused = generate_into(spec, root, &mut ()).expect_err("refused");
        assert!(before == tree(root), "{refused}");
        refused.to_string()
    };
    let root = broker();
    let text = refused(root.path(), &Spec { partitions: number(4), ..spec.clone() });
    assert!(text.contains("holds 3 partitions") && text.contains("from 0 to 3"), "{text}");
    let text = refused(root.path(), &Spec { gaps: -1.0, ..spec.clone() });
    assert!(text.contains("from 0 to 1"), "{text}");

    let metadata = partition(root.path(), 2).join("partition.metadata");
    let good = fs::read(&metadata).expect("read");
    fs::write(&metadata, "version: 0\ntopic_id: AAAAAAAAAAEAAAAAAAAAAg").expect("written");
    let text = refused(root.path(), &spec);
    assert!(text.contains("topic id"), "{text}");
    fs::remove_file(&metadata).expect("removed");
    let text = refused(root.path(), &spec);
    assert!(text.contains("no partition.metadata"), "{text}");
    fs::write(&metadata, good).expect("written");

    let checkpoint = root.path().join("cleaner-offset-checkpoint");
    fs::write(&checkpoint, "0\n7\n").expect("written");
    let text = refused(root.path(), &spec);
    assert!(text.contains("cleaner-offset-checkpoint") && text.contains("0 entries"), "{text}");
    fs::remove_file(&checkpoint).expect("removed");

    for number in 0..3 {
        fs::rename(partition(root.path(), number), root.path().join(format!("other-{number}")))
            .expect("renamed");
    }
    let text = refused(root.path(), &spec);
    assert!(text.contains("no partition of __transaction_state"), "{text}");
    let nothing = folder();
    assert!(matches!(generate_into(&spec, nothing.path(), &mut ()), Err(GenerateError::Engine(_))));
}

#[test]
fn what_fails_half_way_is_told_and_counts_as_no_clean_stop() {
    let root = broker();
    let obstacle = root.path().join("recovery-point-offset-checkpoint.tmp");
    fs::create_dir(&obstacle).expect("created");
    let spec = small(Scenario::UpdateHeavy, 12);
    let failed = generate_into(&spec, root.path(), &mut ()).expect_err("no place for a checkpoint");
    assert!(matches!(failed, GenerateError::HalfReplaced { .. }), "{failed}");
    assert!(failed.to_string().contains("run it again"), "{failed}");
    assert!(!root.path().join(".kafka_cleanshutdown").exists());
    fs::remove_dir(&obstacle).expect("removed");
    let summary = generate_into(&spec, root.path(), &mut ()).expect("filled");
    assert_loads_as(root.path(), &summary, "after a second try");
}

#[test]
fn a_running_brokers_directory_is_refused() {
    let root = broker();
    let before = tree(root.path());
    let lock = OpenOptions::new().read(true).write(true).open(root.path().join(".lock")).expect("opened");
    set_lock(&lock, libc::F_WRLCK);
    let held = generate_into(&small(Scenario::Flink, 1), root.path(), &mut ());
    assert!(matches!(held, Err(GenerateError::Held { .. })), "{held:?}");
    assert!(before == tree(root.path()));
    set_lock(&lock, libc::F_UNLCK);
    generate_into(&small(Scenario::Flink, 1), root.path(), &mut ()).expect("filled");
    // The lock is given back.
    set_lock(&lock, libc::F_WRLCK);
}

/// Takes or gives back the lock of a broker, for an open file of its own.
fn set_lock(file: &File, kind: i32) {
    let lock = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    fcntl(file, FcntlArg::F_OFD_SETLK(&lock)).expect("locked");
}

#[test]
fn what_is_cancelled_leaves_a_broker_as_it_was() {
    let root = broker();
    let mut before = tree(root.path());
    for calls in [1, 2] {
        let cancelled = generate_into(&small(Scenario::UpdateHeavy, 1), root.path(), &mut Impatient(calls));
        assert!(matches!(cancelled, Err(GenerateError::Cancelled)), "{cancelled:?}");
        if calls == 2 {
            // Worthless to every broker, and in the way of the new files.
            before.retain(|name, _| name.extension().is_none_or(|extension| extension != "cleaned"));
        }
        assert!(before == tree(root.path()), "after {calls} calls");
    }
}
