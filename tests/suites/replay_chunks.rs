//! One partition split over threads: whatever an index says, the map is the twin's.

mod judge;

use std::io;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use judge::{PARTITION, Root, TwinFolder};
use redrive::Error;
use redrive::io::{Entry, MemoryStorage, Region, Storage, StorageFile};
use redrive::replay::{Identity, IoChoice, PartitionOutcome, Replay};
use redrive::segment::index::OffsetIndexEntry;
use redrive::types::Offset;
use redrive_tests::logs::{
    BatchSpec, Codec, RandomLog, RecordSpec, Rng, SegmentFile, Shape, TopicPartitions, TransactionValue,
    encode_key, random_log,
};

/// Byte positions at which batches of a segment begin, with their last offsets.
fn batches(segment: &SegmentFile) -> Vec<(u64, i64)> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < segment.bytes.len() {
        let field = |from: usize, len: usize| {
            segment.bytes[at + from..at + from + len].iter().fold(0i64, |n, byte| n << 8 | i64::from(*byte))
        };
        found.push((at as u64, field(0, 8) + field(23, 4)));
        at += 12 + field(8, 4) as usize;
    }
    found
}

fn index(base_offset: i64, entries: impl Iterator<Item = (u64, i64)>) -> Vec<u8> {
    let mut bytes = Vec::new();
    // No broker enters the first batch; an entry (0, 0) is what an index that was made longer is filled with.
    for (position, offset) in entries.filter(|(position, _)| *position > 0) {
        let entry = OffsetIndexEntry { offset: Offset(offset), position: position as i32 };
        entry.encode(Offset(base_offset), &mut bytes).expect("an offset of this segment");
    }
    bytes
}

fn with_indexes(log: &[SegmentFile], mut make: impl FnMut(&SegmentFile) -> Vec<u8>) -> Root {
    log.iter().fold(Root::of(log), |root, segment| {
        root.file(&format!("{PARTITION}/{:020}.index", segment.base_offset), make(segment))
    })
}

/// Every way in which several threads can go through the partition.
fn ways() -> impl Iterator<Item = (IoChoice, usize, usize, Identity)> {
    let io = [IoChoice::Mmap, IoChoice::Pread];
    let chunks = [61, 700, 4096];
    io.into_iter().flat_map(move |io| {
        chunks.into_iter().flat_map(move |chunk| {
            [(2, Identity::Exact), (5, Identity::Hash)]
                .map(|(threads, identity)| (io, chunk, threads, identity))
        })
    })
}

fn outcomes(root: &Root) -> impl Iterator<Item = (String, Arc<PartitionOutcome>)> {
    ways().map(|(io, chunk, threads, identity)| {
        let replay = root.replay().io(io).chunk_bytes(chunk).identity(identity);
        let threads = NonZero::new(threads).expect("threads");
        let what = format!("{io:?}, chunks of {chunk}, {threads} threads, {identity:?}");
        (what, judge::run_one(&replay.threads(threads)))
    })
}

fn random(seed: u64) -> RandomLog {
    random_log(seed, &Shape { segments_max: 3, batches_per_segment_max: 60, ..Shape::default() })
}

#[track_caller]
fn assert_is_the_twins(root: &Root, log: &[SegmentFile], folder: &TwinFolder, what: &str) {
    let twin = folder.load(log, false).unwrap_or_else(|error| panic!("{what}: {error}"));
    for (how, outcome) in outcomes(root) {
        let what = format!("{what}, {how}");
        let (map, stats) = outcome.result.as_ref().unwrap_or_else(|error| panic!("{what}: {error}"));
        judge::assert_same_entries(&judge::entries(map), &twin.entries, &what);
        judge::assert_same_counts(stats, &twin, &what);
    }
}

#[test]
fn an_index_that_names_every_batch() {
    let folder = TwinFolder::new();
    for seed in 0..12 {
        let log = random(seed);
        let root =
            with_indexes(&log.segments, |segment| index(segment.base_offset, batches(segment).into_iter()));
        assert_is_the_twins(&root, &log.segments, &folder, &format!("seed {seed}"));
    }
}

#[test]
fn an_index_that_lies() {
    let folder = TwinFolder::new();
    for seed in 100..114 {
        let log = random(seed);
        let mut rng = Rng::new(seed);
        let root = with_indexes(&log.segments, |segment| {
            // Rising positions of which few or none are those of batches, one in three of them right.
            let right = batches(segment);
            let mut position = 0;
            let mut entries = Vec::new();
            for offset in segment.base_offset.. {
                position += 1 + rng.below(200);
                if position >= segment.bytes.len() as u64 {
                    break;
                }
                let next = right.iter().map(|(at, _)| *at).find(|at| *at >= position);
                position = if rng.once_in(3) { next.unwrap_or(position) } else { position };
                entries.push((position, offset));
            }
            index(segment.base_offset, entries.into_iter())
        });
        assert_is_the_twins(&root, &log.segments, &folder, &format!("seed {seed}"));
    }
}

/// A value, and a key, that hold whole valid batches, and an index that points at them.
#[test]
fn a_batch_inside_a_value_is_no_batch() {
    let folder = TwinFolder::new();
    let value = |producer_id| TransactionValue { producer_id, ..TransactionValue::default() };
    let inner = |id: &str, offset| {
        BatchSpec::single(offset, encode_key(0, id.as_bytes()), Some(value(666).encode())).encode()
    };
    let mut bytes = Vec::new();
    let mut hidden = Vec::new();
    for offset in 0..40i64 {
        // As the name of a topic, in which any bytes may stand.
        let hide = inner(&format!("hidden-{offset}"), offset + 1);
        let topic = TopicPartitions { topic: hide.clone(), partition_ids: vec![1], tags: vec![] };
        let outer = TransactionValue { status: 1, partitions: Some(vec![topic]), ..value(offset) };
        let key = encode_key(0, format!("id-{}", offset % 7).as_bytes());
        let batch = BatchSpec::single(offset, key, Some(outer.encode())).encode();
        let at = batch.windows(hide.len()).position(|window| window == hide).expect("inside");
        hidden.push(((bytes.len() + at) as u64, offset));
        bytes.extend(batch);
    }
    let log = [SegmentFile { base_offset: 0, bytes }];
    for step in [1, 3] {
        let root = with_indexes(&log, |segment| {
            index(segment.base_offset, hidden.iter().copied().skip(1).step_by(step))
        });
        assert_is_the_twins(&root, &log, &folder, &format!("every {step}"));
    }
}

/// A cut in each chunk: the same tail as without an index, whatever the threads were at behind it. And the same refusal
/// where it is none.
#[test]
fn a_cut_in_each_chunk() {
    let folder = TwinFolder::new();
    for seed in 200..204 {
        let log = random(seed);
        let Some((last, earlier)) = log.segments.split_last() else { continue };
        for (at, _) in batches(last) {
            for cut in [at + 1, at + 20, at + 60] {
                let cut = (cut as usize).min(last.bytes.len().saturating_sub(1));
                let bytes = last.bytes[..cut].to_vec();
                let segments = [earlier, &[SegmentFile { base_offset: last.base_offset, bytes }]].concat();
                let whole = with_indexes(&log.segments, |s| index(s.base_offset, batches(s).into_iter()));
                let root = whole.partition(PARTITION, &segments);
                let twin = folder.load(&segments, true).expect("a readable prefix");
                for root in [root.clone(), root.clean()] {
                    let slow = judge::run_one(&Root(without_indexes(&root)).indexed().replay());
                    for (how, outcome) in outcomes(&root) {
                        let what = format!("seed {seed}, cut at {cut}, {how}");
                        assert_same_outcome(&outcome, &slow, &what);
                        if let Some(map) = outcome.map() {
                            judge::assert_same_entries(&judge::entries(map), &twin.entries, &what);
                        }
                    }
                }
            }
        }
    }
}

/// A byte changed in each batch: refused at that place, by whatever thread it was met.
#[test]
fn damage_in_each_chunk() {
    for seed in 300..304 {
        let log = random(seed);
        let mut rng = Rng::new(seed);
        for number in 0..log.segments.len() {
            for (at, _) in batches(&log.segments[number]) {
                let mut segments = log.segments.clone();
                let within = rng.below(61) as usize;
                segments[number].bytes[at as usize + within] ^= 1 << rng.below(8);
                let indexed = with_indexes(&log.segments, |s| index(s.base_offset, batches(s).into_iter()));
                let root = indexed.partition(PARTITION, &segments).clean();
                let slow = judge::run_one(&Root(without_indexes(&root)).indexed().replay());
                for (how, outcome) in outcomes(&root) {
                    let what = format!("seed {seed}, segment {number}, byte {at} + {within}, {how}");
                    assert_same_outcome(&outcome, &slow, &what);
                }
            }
        }
    }
}

fn without_indexes(root: &Root) -> std::collections::BTreeMap<String, Vec<u8>> {
    root.0.clone().into_iter().filter(|(name, _)| !name.ends_with(".index")).collect()
}

/// Fails unless both were refused for the same reason, or loaded to the same end.
#[track_caller]
fn assert_same_outcome(one: &PartitionOutcome, other: &PartitionOutcome, what: &str) {
    match (&one.result, &other.result) {
        (Ok((map, stats)), Ok((other_map, other_stats))) => {
            judge::assert_same_entries(&judge::entries(map), &judge::entries(other_map), what);
            assert_eq!(stats.tail, other_stats.tail, "{what}");
            let counts = |stats: &redrive::replay::PartitionStats| {
                let offsets = (stats.log_start_offset, stats.log_end_offset);
                (offsets, stats.batches, stats.records, stats.bytes, stats.gaps, stats.gap_offsets)
            };
            assert_eq!(counts(stats), counts(other_stats), "{what}");
        }
        (Err(Error::Corrupt(one)), Err(Error::Corrupt(other))) => assert_eq!(one, other, "{what}"),
        (Err(one), Err(other)) => assert_eq!(one.to_string(), other.to_string(), "{what}"),
        (one, other) => panic!("{what}: {:?} against {:?}", one.as_ref().err(), other.as_ref().err()),
    }
}

/// Segments whose files have no bytes on disk, but a length: more than can be addressed.
#[test]
fn a_partition_too_long_to_be_addressed() {
    let disk = tempfile::tempdir().expect("a temporary folder");
    let folder = disk.path().join(PARTITION);
    std::fs::create_dir(&folder).expect("created");
    let segments = (1u64 << 40) / i32::MAX as u64 + 1;
    for number in 0..segments {
        let file = std::fs::File::create(folder.join(format!("{number:020}.log"))).expect("created");
        if let Err(error) = file.set_len(i32::MAX as u64) {
            eprintln!("skipped: this file system has no sparse files of that size: {error}");
            return;
        }
    }
    let loaded = redrive::replay(disk.path()).expect("a log directory").run().expect("a load");
    match loaded.partitions[0].error() {
        Some(Error::LogTooLong { bytes, most, .. }) => {
            assert_eq!((*bytes, *most), (segments * i32::MAX as u64, 1 << 40));
        }
        other => panic!("{other:?}"),
    }
}

/// A map that may not take the memory it needs is refused with a figure; the other partitions load.
#[test]
fn a_budget_refuses_what_does_not_fit() {
    let batch = |offset: i64| {
        let key = encode_key(0, format!("id-{offset}").as_bytes());
        BatchSpec::single(offset, key, Some(TransactionValue::default().encode())).encode()
    };
    let many = SegmentFile { base_offset: 0, bytes: (0..5000).flat_map(batch).collect() };
    let few = SegmentFile { base_offset: 0, bytes: (0..3).flat_map(batch).collect() };
    // A torn tail behind what did not fit does not make it fit.
    let torn = SegmentFile { base_offset: 0, bytes: [&many.bytes[..], &[7; 30]].concat() };
    for io in [IoChoice::Mmap, IoChoice::Pread] {
        let outcome = judge::run_one(
            &Root::of(std::slice::from_ref(&torn)).replay().io(io).memory_budget(Some(40_000)),
        );
        assert!(matches!(outcome.error(), Some(Error::Memory { .. })), "{io:?}: {:?}", outcome.error());
    }
    let root = Root::of(&[many]).partition("__transaction_state-1", &[few]);
    for io in [IoChoice::Mmap, IoChoice::Pread] {
        let loaded = root.replay().io(io).memory_budget(Some(40_000)).run().expect("a load");
        match loaded.partitions[0].error() {
            Some(Error::Memory { needed, ids, .. }) => {
                assert!(*needed > 40_000 && (100..5000).contains(ids), "{needed} bytes, {ids} ids");
            }
            other => panic!("{io:?}: {other:?}"),
        }
        assert_eq!(loaded.partitions[1].map().expect("loaded").len(), 3);
        assert!(loaded.peak_map_bytes <= 40_000);
        let loaded = root.replay().io(io).memory_budget(Some(2_000_000)).run().expect("a load");
        assert_eq!(loaded.partitions[0].map().expect("loaded").len(), 5000);
        // Every id has one record, so all bytes are live; there are enough of them for every check on the way.
        let outcome = &loaded.partitions[0];
        assert_eq!(
            outcome.live_bytes(),
            outcome.stats().map(|stats| stats.bytes),
            "{:?}",
            outcome.decode_error()
        );
        let bytes: usize = loaded.maps().map(|map| map.bytes()).sum();
        assert!(loaded.peak_map_bytes >= bytes as u64 && loaded.peak_map_bytes <= 2_000_000);
    }
}

/// A log that begins with many ids in few bytes and goes on with one: what was so at first is not taken for the whole.
#[test]
fn a_forecast_from_an_odd_beginning_has_a_bound() {
    let value = || Some(TransactionValue::default().encode());
    let record = |n: i32, delta| RecordSpec::new(delta, encode_key(0, format!("id-{n}").as_bytes()), value());
    let dense = (0..60).map(|batch: i32| BatchSpec {
        codec: Codec::Gzip,
        records: (0..100).map(|delta| record(batch * 100 + delta, delta)).collect(),
        ..BatchSpec::single(i64::from(batch) * 100, Vec::new(), None)
    });
    let mut bytes: Vec<u8> = dense.flat_map(|batch| batch.encode()).collect();
    let begun = bytes.len();
    let same = |offset: i64| BatchSpec::single(6000 + offset, encode_key(0, b"id-7"), value()).encode();
    bytes.extend((0..40_000).flat_map(same));
    assert!(bytes.len() > 40 * begun, "{begun} of {} bytes", bytes.len());
    let root = Root::of(&[SegmentFile { base_offset: 0, bytes }]);
    let outcome =
        judge::run_one(&root.replay().io(IoChoice::Mmap).identity(Identity::Hash).chunk_bytes(2000));
    let map = outcome.map().expect("loaded");
    // 16 bytes a slot, of which a table with room for eight times the ids can have one in twelve in use, and two copies
    // of ids.
    assert_eq!(map.len(), 6000);
    assert!(map.bytes() < 6000 * (16 * 22 + 200), "{} bytes", map.bytes());
}

/// Is given the path, where was read, what was read, and how many reads of `.log` files came before.
type Trick = dyn Fn(&Path, u64, &mut [u8], usize) + Send + Sync;

/// A storage that does something of its own when a file is read by position.
struct Tricky {
    files: MemoryStorage,
    trick: Arc<Trick>,
    reads: Arc<AtomicUsize>,
}

impl std::fmt::Debug for Tricky {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tricky")
    }
}

struct TrickyFile {
    file: Box<dyn StorageFile>,
    path: PathBuf,
    trick: Arc<Trick>,
    reads: Arc<AtomicUsize>,
}

impl std::fmt::Debug for TrickyFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TrickyFile")
    }
}

impl Storage for Tricky {
    fn list(&self, directory: &Path) -> io::Result<Vec<Entry>> {
        self.files.list(directory)
    }

    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        self.files.resolve(path)
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn StorageFile>> {
        let (trick, reads) = (self.trick.clone(), self.reads.clone());
        Ok(Box::new(TrickyFile { file: self.files.open(path)?, path: path.to_path_buf(), trick, reads }))
    }

    fn is_locked(&self, path: &Path) -> io::Result<bool> {
        self.files.is_locked(path)
    }
}

impl StorageFile for TrickyFile {
    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }

    fn read_at(&self, position: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(position, buffer)?;
        let before = if self.path.extension().is_some_and(|end| end == "log") {
            self.reads.fetch_add(1, Ordering::SeqCst)
        } else {
            usize::MAX
        };
        (self.trick)(&self.path, position, &mut buffer[..count], before);
        Ok(count)
    }

    fn map(&self) -> io::Result<Region> {
        self.file.map()
    }
}

fn tricky(root: &Root, trick: impl Fn(&Path, u64, &mut [u8], usize) + Send + Sync + 'static) -> Replay {
    let storage = Tricky { files: root.in_memory(), trick: Arc::new(trick), reads: Arc::default() };
    Replay::open(Arc::new(storage), [judge::ROOT]).expect("a log directory").io(IoChoice::Pread)
}

/// Bytes that are wrong the first time they are read, and right from then on: whatever was left out for the first's sake
/// is read after all.
#[test]
fn bytes_that_are_not_the_same_twice() {
    let folder = TwinFolder::new();
    let mut longer = 0;
    for seed in 400..410 {
        let log = random(seed);
        let twin = folder.load(&log.segments, false).expect("a whole log");
        let replay = tricky(&Root::of(&log.segments), |_, _, bytes, before| {
            if let (0, Some(byte)) = (before, bytes.get_mut(30)) {
                *byte ^= 1;
            }
        });
        for threads in [1, 3] {
            let replay = replay.clone().threads(NonZero::new(threads).expect("threads"));
            let outcome = judge::run_one(&replay);
            let (map, stats) = outcome.result.as_ref().expect("loaded the second time");
            judge::assert_same_entries(&judge::entries(map), &twin.entries, &format!("seed {seed}"));
            judge::assert_same_counts(stats, &twin, &format!("seed {seed}"));
        }
        longer += usize::from(log.segments.len() > 1);
    }
    assert!(longer > 3, "{longer} logs of several segments");
}

/// A worker that panics lets nobody wait for what it was at. The panic reaches whoever asked for the load.
#[test]
fn a_panic_of_a_worker_ends_the_load() {
    let batch = |offset: i64| {
        let key = encode_key(0, format!("id-{offset}").as_bytes());
        BatchSpec::single(offset, key, Some(TransactionValue::default().encode())).encode()
    };
    let log = [SegmentFile { base_offset: 0, bytes: (0..2000).flat_map(batch).collect() }];
    let root = with_indexes(&log, |segment| index(segment.base_offset, batches(segment).into_iter()));
    let replay = tricky(&root, |path, position, _, _| {
        // The first chunk is late, so that others wait for it.
        if position == 0 && path.extension().is_some_and(|end| end == "log") {
            std::thread::sleep(std::time::Duration::from_millis(20));
            std::panic::resume_unwind(Box::new("of the storage"));
        }
    });
    let replay = replay.threads(NonZero::new(3).expect("threads")).chunk_bytes(1000);
    let run = std::panic::AssertUnwindSafe(|| replay.run());
    assert!(std::panic::catch_unwind(run).is_err());
}
