//! What several suites of the engine's load share: log directories in memory and on disk, and the comparison of a
//! loaded map with the slow twin's.
#![allow(dead_code, reason = "each test binary uses its part of this file")]

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redrive::Error;
use redrive::io::{FileSystem, MemoryStorage};
use redrive::replay::{
    IoChoice, Loaded, PartitionMap, PartitionOutcome, PartitionStats, Replay, TransactionEntry,
};
use redrive_tests::logs::SegmentFile;
use redrive_tests::naive::{self, NaiveEntry, NaiveMap, NaiveOptions};

/// Where roots lie in memory.
pub(crate) const ROOT: &str = "/logs";
/// The partition that single-partition tests use.
pub(crate) const PARTITION: &str = "__transaction_state-0";
/// A file that marks a clean stop.
pub(crate) const CLEAN_SHUTDOWN: (&str, &[u8]) =
    (".kafka_cleanshutdown", b"{\"version\":0,\"brokerEpoch\":7}");

/// Files of a log root by their path below it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Root(pub(crate) BTreeMap<String, Vec<u8>>);

impl Root {
    /// A root with one partition.
    pub(crate) fn of(segments: &[SegmentFile]) -> Self {
        Self::default().partition(PARTITION, segments)
    }

    /// Adds a partition's segments.
    pub(crate) fn partition(mut self, folder: &str, segments: &[SegmentFile]) -> Self {
        for segment in segments {
            self.0.insert(format!("{folder}/{}", segment.file_name()), segment.bytes.clone());
        }
        self
    }

    /// Adds or replaces a file.
    pub(crate) fn file(mut self, name: &str, bytes: impl Into<Vec<u8>>) -> Self {
        self.0.insert(name.to_owned(), bytes.into());
        self
    }

    /// Adds the mark of a clean stop.
    pub(crate) fn clean(self) -> Self {
        self.file(CLEAN_SHUTDOWN.0, CLEAN_SHUTDOWN.1)
    }

    /// Adds an index without entries beside every segment: a broker recovers a segment that has none.
    pub(crate) fn indexed(mut self) -> Self {
        let logs: Vec<_> =
            self.0.keys().filter_map(|name| name.strip_suffix(".log")).map(str::to_owned).collect();
        self.0.extend(logs.into_iter().map(|name| (name + ".index", Vec::new())));
        self
    }

    /// Adds a recovery-point file that names the partition.
    pub(crate) fn recovery_point(self, offset: i64) -> Self {
        let text = format!("0\n1\n__transaction_state 0 {offset}\n");
        self.file("recovery-point-offset-checkpoint", text)
    }

    /// In memory, under [`ROOT`].
    pub(crate) fn in_memory(&self) -> MemoryStorage {
        let storage = MemoryStorage::new();
        storage.create_directory(Path::new(ROOT).join(PARTITION));
        for (name, bytes) in &self.0 {
            storage.write(Path::new(ROOT).join(name), bytes.clone());
        }
        storage
    }

    /// On disk, in a folder that exists.
    pub(crate) fn on_disk(&self, folder: &Path) {
        for (name, bytes) in &self.0 {
            let path = folder.join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("created");
            fs::write(path, bytes).expect("written");
        }
    }

    /// A load from memory that is about to begin.
    pub(crate) fn replay(&self) -> Replay {
        open(self.in_memory())
    }
}

/// A load of the root in a storage.
pub(crate) fn open(storage: MemoryStorage) -> Replay {
    Replay::open(Arc::new(storage), [ROOT]).expect("a log directory").threads(NonZero::<usize>::MIN)
}

/// Every way to reach the bytes that a test should try, with the positioned buffer's size.
pub(crate) fn ways() -> impl Iterator<Item = (IoChoice, usize)> {
    [(IoChoice::Mmap, 1 << 20), (IoChoice::Pread, 61), (IoChoice::Pread, 4096), (IoChoice::Pread, 1 << 20)]
        .into_iter()
}

/// Whether the log directory of a file system can be loaded by io_uring. Says so where not, and fails where
/// `REDRIVE_REQUIRE`, a list of suites, names `io_uring`.
pub(crate) fn has_uring(root: &Path) -> bool {
    let replay = Replay::open(Arc::new(FileSystem), [root]).expect("a log directory");
    let Err(error @ Error::IoUnavailable { .. }) = replay.io(IoChoice::Uring).run() else { return true };
    let required = std::env::var("REDRIVE_REQUIRE").unwrap_or_default();
    assert!(!required.split(',').any(|name| name == "io_uring"), "io_uring is required: {error}");
    eprintln!("skipped, no loads by io_uring here: {error}");
    false
}

/// The only partition of a load.
pub(crate) fn only(loaded: &Loaded) -> &Arc<PartitionOutcome> {
    let [outcome] = &loaded.partitions[..] else { panic!("{} partitions", loaded.partitions.len()) };
    outcome
}

/// Runs a load of one partition.
pub(crate) fn run_one(replay: &Replay) -> Arc<PartitionOutcome> {
    only(&replay.run().expect("a load")).clone()
}

/// An entry in the twin's words.
pub(crate) fn as_naive(entry: &TransactionEntry) -> NaiveEntry {
    let view = entry.view().expect("a loaded value decodes");
    let fields = view.fields();
    let partitions = view.partitions().map(|topics| {
        let mut by_topic = BTreeMap::<String, std::collections::BTreeSet<i32>>::new();
        for topic in topics {
            by_topic.entry(topic.topic_name().into_owned()).or_default().extend(topic.partition_ids());
        }
        by_topic
    });
    assert_eq!(entry.state(), view.state());
    NaiveEntry {
        offset: entry.offset().0,
        value_version: fields.version.code(),
        producer_id: fields.producer_id.0,
        producer_epoch: fields.producer_epoch,
        transaction_timeout_ms: fields.transaction_timeout_ms,
        status: view.state().code(),
        state: view.state().name(),
        partitions,
        last_update_timestamp_ms: fields.last_update_timestamp_ms,
        start_timestamp_ms: fields.start_timestamp_ms,
        previous_producer_id: fields.previous_producer_id.0,
        next_producer_id: fields.next_producer_id.0,
        client_transaction_version: fields.client_transaction_version,
        next_producer_epoch: fields.next_producer_epoch,
    }
}

/// A whole map in the twin's words.
pub(crate) fn entries(map: &PartitionMap) -> HashMap<String, NaiveEntry> {
    let entries: HashMap<_, _> = map
        .iter()
        .map(|entry| entry.expect("the log is still there"))
        .map(|entry| (entry.id().into_owned(), as_naive(&entry)))
        .collect();
    assert_eq!(entries.len(), map.len(), "ids are unique as text");
    entries
}

/// Fails unless two maps are equal, and then names an entry that differs.
#[track_caller]
pub(crate) fn assert_same_entries(
    loaded: &HashMap<String, NaiveEntry>,
    expected: &HashMap<String, NaiveEntry>,
    what: &str,
) {
    if loaded == expected {
        return;
    }
    for (id, entry) in expected {
        assert_eq!(loaded.get(id), Some(entry), "{what}: id {id:?}");
    }
    let surplus: Vec<_> = loaded.keys().filter(|id| !expected.contains_key(*id)).collect();
    panic!("{what}: surplus ids {surplus:?}");
}

/// Fails unless the counts of a whole log are the twin's.
#[track_caller]
pub(crate) fn assert_same_counts(stats: &PartitionStats, twin: &NaiveMap, what: &str) {
    assert_eq!(stats.segments as u64, twin.segments, "{what}: segments");
    assert_eq!(stats.bytes, twin.bytes, "{what}: bytes");
    assert_eq!(stats.batches, twin.batches, "{what}: batches");
    assert_eq!(stats.empty_batches, twin.empty_batches, "{what}: empty batches");
    assert_eq!(stats.control_batches, twin.control_batches, "{what}: control batches");
    assert_eq!(stats.records, twin.records, "{what}: records");
    assert_eq!(stats.tombstones, twin.tombstones, "{what}: tombstones");
    assert_eq!(stats.unknown_records, twin.unknown_keys + twin.unknown_values, "{what}: unknown");
    assert_eq!(stats.gaps, twin.offset_gaps, "{what}: gaps");
    assert_eq!(stats.log_end_offset.0, twin.log_end_offset, "{what}: log end offset");
    assert_eq!(stats.tail.is_some(), twin.tail.is_some(), "{what}: tail");
    let states: u64 = stats.by_state.iter().map(|(_, count)| count).sum();
    assert_eq!(states, twin.entries.len() as u64, "{what}: ids by state");
}

/// A folder for the twin, which reads real files only.
#[derive(Debug)]
pub(crate) struct TwinFolder(tempfile::TempDir);

impl TwinFolder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary folder"))
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.0.path().join(PARTITION)
    }

    /// What the twin makes of these segments; with `readable_prefix` as far as it can read.
    pub(crate) fn load(
        &self,
        segments: &[SegmentFile],
        readable_prefix: bool,
    ) -> Result<NaiveMap, naive::NaiveError> {
        let folder = self.path();
        if folder.exists() {
            fs::remove_dir_all(&folder).expect("emptied");
        }
        redrive_tests::logs::write_partition(&folder, segments).expect("written");
        naive::load_partition(&folder, &NaiveOptions { readable_prefix, ..NaiveOptions::default() })
    }
}
