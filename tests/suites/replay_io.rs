//! How a load reaches the bytes: the choice by what is in the page cache, what cannot be forced, and io_uring on files
//! that are large, damaged, or change while they are read.

mod judge;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use judge::{PARTITION, ROOT, Root, TwinFolder};
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use redrive::Error;
use redrive::error::Reason;
use redrive::io::{Cache, DirectFile, Entry, FileSystem, Storage, StorageFile};
use redrive::replay::{Identity, IoChoice, IoUsed, Loaded, PartitionOutcome, Replay};
use redrive_tests::logs::{
    BatchSpec, RecordSpec, Rng, SegmentFile, Shape, TransactionValue, encode_key, random_log,
};

fn value(producer_id: i64) -> Option<Vec<u8>> {
    Some(TransactionValue { producer_id, ..TransactionValue::default() }.encode())
}

/// Batches of one record each, of about 180 bytes.
fn segment(base_offset: i64, batches: i64) -> SegmentFile {
    let batch = |offset: i64| {
        let key = encode_key(0, format!("some-transactional-id-{}", offset % 1009).as_bytes());
        BatchSpec::single(offset, key, value(offset)).encode()
    };
    SegmentFile { base_offset, bytes: (base_offset..base_offset + batches).flat_map(batch).collect() }
}

fn path(root: &Path, base_offset: i64) -> PathBuf {
    root.join(PARTITION).join(format!("{base_offset:020}.log"))
}

fn replay(storage: impl Storage + 'static, root: &Path, threads: usize) -> Replay {
    let replay = Replay::open(Arc::new(storage), [root]).expect("a log directory");
    replay.threads(NonZero::new(threads).expect("threads"))
}

/// Everything that is known of an outcome but for times.
fn told(outcome: &PartitionOutcome) -> String {
    match &outcome.result {
        Ok((map, stats)) => {
            let entries: BTreeMap<_, _> = judge::entries(map).into_iter().collect();
            let offsets = (stats.log_start_offset, stats.log_end_offset, stats.gaps, stats.gap_offsets);
            let counts = (stats.bytes, stats.batches, stats.records, stats.tombstones, outcome.live_bytes());
            format!("{offsets:?} {counts:?} {:?} {:?} {entries:?}", stats.tail, stats.skipped)
        }
        Err(error) => format!("{}: {error}", error.kind()),
    }
}

/// Fails unless io_uring tells what positioned reads tell.
#[track_caller]
fn assert_told_alike(root: &Path, lenient: bool, what: &str) {
    let run = |io, threads, chunk_bytes, identity| {
        let replay = replay(FileSystem, root, threads).io(io).chunk_bytes(chunk_bytes).lenient(lenient);
        judge::run_one(&replay.identity(identity))
    };
    let expected = told(&run(IoChoice::Pread, 1, 256 << 10, Identity::Exact));
    for (threads, chunk_bytes, identity) in [
        (1, 61, Identity::Exact),
        (1, 5000, Identity::Hash),
        (3, 1000, Identity::Exact),
        (2, 256 << 10, Identity::Exact),
    ] {
        let found = told(&run(IoChoice::Uring, threads, chunk_bytes, identity));
        assert!(
            found == expected,
            "{what}, {threads} threads, chunks of {chunk_bytes}:\n{found}\n{expected}"
        );
    }
}

#[test]
fn batches_of_all_sizes_across_the_borders_of_blocks() {
    let disk = tempfile::tempdir().expect("a temporary folder");
    let twin_folder = TwinFolder::new();
    let mut rng = Rng::new(5);
    let mut segments = vec![segment(0, 40_000)];
    for number in 1..4 {
        let mut offset = number * 100_000;
        let mut bytes = Vec::new();
        // Up to three blocks of the largest size, and more than fits in front of a block of the smallest.
        for size in [1, 1000, 3, 60_000, 70_000, 1, 3_100_000, 5, 200_000, 2, 2, 1_048_576 - 61, 9] {
            let mut records = Vec::new();
            let mut filled = 0;
            while filled < size {
                let id = format!("{}-{}", "x".repeat(rng.below(9000) as usize), rng.below(50));
                filled += id.len() + 100;
                let key = encode_key(0, id.as_bytes());
                records.push(RecordSpec::new(records.len() as i32, key, value(offset)));
            }
            let batch = BatchSpec { base_offset: offset, records, ..BatchSpec::single(0, Vec::new(), None) };
            bytes.extend(batch.encode());
            offset = batch.last_offset() + 1;
        }
        segments.push(SegmentFile { base_offset: number * 100_000, bytes });
    }
    Root::of(&segments).on_disk(disk.path());
    if !judge::has_uring(disk.path()) {
        return;
    }
    let twin = twin_folder.load(&segments, false).expect("loaded by the twin");
    let outcome = judge::run_one(&replay(FileSystem, disk.path(), 1).io(IoChoice::Uring));
    let (map, stats) = outcome.result.as_ref().expect("loaded");
    judge::assert_same_entries(&judge::entries(map), &twin.entries, "by io_uring");
    judge::assert_same_counts(stats, &twin, "by io_uring");
    assert_told_alike(disk.path(), false, "all sizes");
}

#[test]
fn damage_is_told_alike() {
    let disk = tempfile::tempdir().expect("a temporary folder");
    Root::of(&[segment(0, 3)]).on_disk(disk.path());
    if !judge::has_uring(disk.path()) {
        return;
    }
    let mut refused = 0;
    for seed in 0..60 {
        let shape = Shape { segments_max: 4, batches_per_segment_max: 60, ..Shape::default() };
        let mut log = random_log(seed, &shape).segments;
        let mut rng = Rng::new(seed);
        let damaged = rng.below(log.len() as u64) as usize;
        let bytes = &mut log[damaged].bytes;
        let at = rng.below(bytes.len().max(1) as u64) as usize;
        match (seed % 3, bytes.get_mut(at)) {
            (0, Some(byte)) => *byte ^= 1 << rng.below(8),
            (1, Some(_)) => bytes.truncate(at),
            // None.
            _ => {}
        }
        fs::remove_dir_all(disk.path().join(PARTITION)).expect("removed");
        Root::of(&log).on_disk(disk.path());
        for lenient in [false, true] {
            assert_told_alike(disk.path(), lenient, &format!("seed {seed}, lenient {lenient}"));
        }
        refused += usize::from(judge::run_one(&replay(FileSystem, disk.path(), 1)).error().is_some());
    }
    assert!((10..40).contains(&refused), "{refused} refused");
}

/// A file system in which something happens to one segment when it is opened past the page cache for the second time:
/// first the load looks whether that is possible, then it reads.
#[derive(Debug)]
struct Changing {
    path: PathBuf,
    change: Change,
    opened: Mutex<u32>,
}

#[derive(Clone, Copy, Debug)]
enum Change {
    Len(u64),
    Appended,
    /// Opening fails so at both times, or at the second.
    Refused(io::ErrorKind, u32),
}

impl Changing {
    fn new(path: PathBuf, change: Change) -> Self {
        Self { path, change, opened: Mutex::new(0) }
    }
}

impl Storage for Changing {
    fn list(&self, directory: &Path) -> io::Result<Vec<Entry>> {
        FileSystem.list(directory)
    }

    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        FileSystem.resolve(path)
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn StorageFile>> {
        FileSystem.open(path)
    }

    fn is_locked(&self, path: &Path) -> io::Result<bool> {
        FileSystem.is_locked(path)
    }

    fn open_direct(&self, path: &Path) -> io::Result<DirectFile> {
        if path != self.path {
            return FileSystem.open_direct(path);
        }
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        *opened += 1;
        let file = FileSystem.open_direct(path);
        let writable = || File::options().append(true).open(path).expect("the segment");
        match self.change {
            Change::Refused(kind, from) if *opened >= from => return Err(kind.into()),
            Change::Len(len) if *opened == 2 => writable().set_len(len).expect("another length"),
            Change::Appended if *opened == 2 => writable().write_all(&[7; 9000]).expect("appended"),
            _ => {}
        }
        file
    }
}

/// A segment that gets shorter behind the look at its length is refused with both lengths; what it gets longer by is not
/// looked at.
#[test]
fn a_file_that_changes_while_it_is_read() {
    let disk = tempfile::tempdir().expect("a temporary folder");
    let segments = [segment(0, 300), segment(300, 300), segment(600, 300)];
    let root = Root::of(&segments).partition("__transaction_state-1", &[segment(0, 5)]);
    root.on_disk(disk.path());
    if !judge::has_uring(disk.path()) {
        return;
    }
    let whole = told(&replay(FileSystem, disk.path(), 1).run().expect("a load").partitions[0]);
    // Behind the last one the next partition follows.
    for (threads, lenient, changed) in
        [(1, false, 300), (1, true, 600), (3, false, 600), (3, true, 300), (1, false, 0)]
    {
        let len = segments[changed as usize / 300].bytes.len() as u64;
        let run = |change| {
            root.on_disk(disk.path());
            let storage = Changing::new(path(disk.path(), changed), change);
            let replay = replay(storage, disk.path(), threads).chunk_bytes(700).lenient(lenient);
            let loaded = replay.io(IoChoice::Uring).run().expect("a load");
            assert_eq!(loaded.io, IoUsed::Uring);
            assert_eq!(loaded.partitions[1].map().expect("not touched").len(), 5);
            loaded.partitions[0].clone()
        };
        for cut in [0, 1, 511, 512, 4095, 4096, 4097, 20_000, len - 1] {
            match run(Change::Len(cut)).error() {
                Some(Error::Corrupt(corruption)) => {
                    assert_eq!(corruption.reason, Reason::Shrunk { expected: len, found: cut });
                    assert_eq!(corruption.path, path(disk.path(), changed));
                }
                other => panic!("cut at {cut}: {other:?}"),
            }
        }
        assert_eq!(told(&run(Change::Appended)), whole);

        match run(Change::Refused(io::ErrorKind::NotFound, 2)).error() {
            Some(Error::Io { operation: "open", path: named, .. }) => {
                assert_eq!(*named, path(disk.path(), changed));
            }
            other => panic!("{other:?}"),
        }
        match run(Change::Refused(io::ErrorKind::Unsupported, 2)).error() {
            Some(Error::IoUnavailable { io: "uring", path: Some(named), .. }) => {
                assert_eq!(*named, path(disk.path(), changed));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn what_cannot_be_forced_is_an_error() {
    let root = Root::of(&[segment(0, 3)]);
    match root.replay().io(IoChoice::Uring).run() {
        Err(error @ Error::IoUnavailable { .. }) => {
            assert_eq!(error.kind(), "io-unavailable");
            assert!(error.to_string().starts_with("cannot read by uring"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    let disk = tempfile::tempdir().expect("a temporary folder");
    Root::of(&[segment(0, 3), segment(3, 3)]).on_disk(disk.path());
    if !judge::has_uring(disk.path()) {
        return;
    }
    // One segment on a file system without direct reads is enough.
    let change = Change::Refused(io::ErrorKind::Unsupported, 1);
    let loads = |io| replay(Changing::new(path(disk.path(), 3), change), disk.path(), 1).io(io).run();
    match loads(IoChoice::Uring) {
        Err(Error::IoUnavailable { io: "uring", path: Some(named), source }) => {
            assert_eq!((named, source.kind()), (path(disk.path(), 3), io::ErrorKind::Unsupported));
        }
        other => panic!("{other:?}"),
    }
    cool(disk.path());
    let loaded = loads(IoChoice::Auto).expect("a load");
    assert_ne!(loaded.io, IoUsed::Uring);
    assert_eq!(loaded.partitions[0].map().expect("loaded").len(), 6);
}

/// Drops the segments from the page cache, where that can be done.
fn cool(root: &Path) {
    for entry in fs::read_dir(root.join(PARTITION)).expect("a partition") {
        let file = File::open(entry.expect("an entry").path()).expect("a segment");
        file.sync_all().expect("written");
        posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED).expect("advice");
    }
}

#[test]
fn auto_goes_by_what_is_in_the_page_cache() {
    let disk = tempfile::tempdir().expect("a temporary folder");
    Root::of(&[segment(0, 4000), segment(4000, 10), segment(4010, 0)]).clean().on_disk(disk.path());
    let run = |io| {
        let loaded = replay(FileSystem, disk.path(), 2).io(io).counts_live_bytes(false).run();
        let loaded = loaded.expect("a load");
        assert_eq!(loaded.partitions[0].map().expect("loaded").len(), 1009);
        (loaded.cache, loaded.io)
    };
    cool(disk.path());
    if run(IoChoice::Pread).0 != Cache::Cold {
        let required = std::env::var("REDRIVE_REQUIRE").unwrap_or_default();
        assert!(!required.split(',').any(|name| name == "cold"), "cold files are required");
        eprintln!("skipped: {} cannot be dropped from the cache, or not be looked at", disk.path().display());
        return;
    }
    assert_eq!(run(IoChoice::Auto), (Cache::Warm, IoUsed::Mmap), "positioned reads have warmed it");

    cool(disk.path());
    let cold = if judge::has_uring(disk.path()) { IoUsed::Uring } else { IoUsed::Pread };
    cool(disk.path());
    assert_eq!(run(IoChoice::Auto), (Cache::Cold, cold));
    if cold == IoUsed::Uring {
        assert_eq!(run(IoChoice::Auto), (Cache::Cold, cold), "reads past the cache leave it as it was");
        assert_eq!(run(IoChoice::Uring), (Cache::Cold, IoUsed::Uring));
    }

    cool(disk.path());
    fs::read(path(disk.path(), 0)).expect("readable");
    assert_eq!(run(IoChoice::Auto), (Cache::Mixed, IoUsed::Pread), "one file of two");
    assert_eq!(run(IoChoice::Mmap), (Cache::Warm, IoUsed::Mmap), "all of it since then");
}

/// What a storage says of its files decides, also where it says what never occurs on a disk.
#[test]
fn auto_in_memory() {
    let root = Root::of(&[segment(0, 30), segment(30, 1), segment(31, 0)]);
    let names = [path(Path::new(ROOT), 0), path(Path::new(ROOT), 30)];
    use Cache::{Cold, Mixed, Warm};
    for (caches, found, used) in [
        ([None, None], Mixed, IoUsed::Pread),
        ([Some(Warm), Some(Warm)], Warm, IoUsed::Mmap),
        ([Some(Warm), None], Mixed, IoUsed::Pread),
        ([Some(Warm), Some(Cold)], Mixed, IoUsed::Pread),
        ([Some(Cold), Some(Cold)], Cold, IoUsed::Pread),
        ([Some(Mixed), Some(Cold)], Mixed, IoUsed::Pread),
    ] {
        for is_held in [false, true] {
            let storage = root.clone().file(".lock", Vec::new()).in_memory();
            for (name, cache) in names.iter().zip(caches) {
                cache.into_iter().for_each(|cache| storage.set_cached(name, cache));
            }
            if is_held {
                storage.lock(Path::new(ROOT).join(".lock"));
            }
            let loaded: Loaded = judge::open(storage).run().expect("a load");
            let used = if is_held { IoUsed::Pread } else { used };
            assert_eq!((loaded.cache, loaded.io, loaded.is_moving), (found, used, is_held), "{caches:?}");
            assert_eq!(loaded.partitions[0].map().expect("loaded").len(), 31);
        }
    }
    let loaded = Root::of(&[segment(0, 0)]).replay().run().expect("a load");
    assert_eq!((loaded.cache, loaded.io), (Warm, IoUsed::Mmap), "nothing is all there");
}
