//! Segments of random batches against a plain list of them: searches, cuts, faults, readers beside a writer.

mod segment_bytes;

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use redrive::Error;
use redrive::batch::Limits;
use redrive::io::{
    Entry, Fault, FileSystem, MemoryStorage, Operation, Region, Storage, StorageFile, WritableFile,
};
use redrive::segment::index::{AbortedTransaction, OffsetIndexEntry};
use redrive::segment::{
    AppendFault, BatchFacts, Segment, SegmentConfig, SegmentFileKind, SegmentFileState, SegmentWriter,
};
use redrive::types::{Offset, ProducerId};
use redrive_tests::logs::{BatchSpec, RecordSpec, Rng};
use segment_bytes::{FOLDER, INDEXES, append, create, frame, memory, no_producers, open, path};

/// A batch and what is needed to judge searches for it.
#[derive(Clone, Debug)]
struct Known {
    bytes: Vec<u8>,
    position: u64,
    /// Offset and timestamp of each record.
    records: Vec<(i64, i64)>,
    last: i64,
    max: i64,
}

/// Random batches from an offset on, with gaps and times that go back and forth.
fn random_batches(rng: &mut Rng, base: i64, count: usize) -> Vec<Known> {
    let (mut next, mut time, mut position) = (base, 1_000_000i64, 0);
    (0..count)
        .map(|_| {
            next += if rng.once_in(4) { rng.below(30) as i64 } else { 0 };
            let records: Vec<_> = (0..1 + rng.below(4) as i64)
                .map(|delta| {
                    time += rng.below(30) as i64 - 12;
                    (next + delta, time)
                })
                .collect();
            let last_offset_delta = (records.len() as i64 - 1 + rng.below(2) as i64 * 2) as i32;
            let specs = records.iter().map(|(offset, time)| {
                let value = vec![7; rng.below(120) as usize];
                RecordSpec {
                    timestamp_delta: time - records[0].1,
                    ..RecordSpec::new((offset - next) as i32, b"k".to_vec(), Some(value))
                }
            });
            let spec = BatchSpec {
                base_offset: next,
                base_timestamp: records[0].1,
                last_offset_delta: Some(last_offset_delta),
                records: specs.collect(),
                ..BatchSpec::default()
            };
            let bytes = spec.encode();
            let known = Known {
                position,
                last: next + i64::from(last_offset_delta),
                max: records.iter().map(|(_, time)| *time).max().expect("a record"),
                records,
                bytes,
            };
            position += known.bytes.len() as u64;
            next = known.last + 1;
            known
        })
        .collect()
}

/// Compares every search in a segment with a look at each batch in turn.
fn judge(segment: &Segment, known: &[Known], rng: &mut Rng) {
    let all: Vec<u8> = known.iter().flat_map(|batch| batch.bytes.clone()).collect();
    assert!(*segment.bytes().expect("bytes") == all);
    let base = segment.base_offset().0;
    let end = known.last().map_or(base, |batch| batch.last + 1);
    assert_eq!(segment.next_offset().expect("an offset").0, end);
    for offset in base..end + 3 {
        let expected = known.iter().find(|batch| batch.last >= offset);
        let found = segment.find(Offset(offset)).expect("a search");
        assert_eq!(found.map(|found| found.position), expected.map(|batch| batch.position), "{offset}");
        let most = rng.below(400) as u32;
        let limit = rng.below(all.len() as u64 + 10);
        let at_least_one = rng.once_in(2);
        let read = segment.read(Offset(offset), most, Some(limit), at_least_one).expect("a read");
        assert_eq!(read.is_some(), expected.is_some());
        if let (Some(read), Some(batch)) = (read, expected) {
            let size = batch.bytes.len() as u64;
            let most = if at_least_one { u64::from(most).max(size) } else { most.into() };
            let end = (batch.position + most).min(limit).min(all.len() as u64).max(batch.position);
            assert!(*read.bytes == all[batch.position as usize..end as usize], "{offset}");
            assert_eq!(read.is_first_batch_incomplete, most > 0 && most < size);
        }
    }
    let max = known.iter().map(|batch| batch.max).max().unwrap_or(-1);
    assert_eq!(segment.max_timestamp_so_far().expect("a time").timestamp, max);
    let limits = Limits::default();
    for _ in 0..40 {
        let time = 1_000_000 + rng.below(1200) as i64 - 600;
        let start = base + rng.below((end - base + 2) as u64) as i64;
        let wanted = |&&(offset, record): &&(i64, i64)| record >= time && offset >= start;
        let expected = known.iter().find_map(|batch| batch.records.iter().find(wanted)).copied();
        let found = segment.find_by_timestamp(time, Offset(start), &limits).expect("a search");
        assert_eq!(
            found.map(|found| (found.offset.0, found.timestamp)),
            expected,
            "time {time} from {start}"
        );
    }
    let expected = known.iter().find_map(|batch| batch.records.iter().find(|record| record.1 == max));
    let found = segment.find_max_timestamp(&limits).expect("a search");
    assert_eq!(found.map(|found| (found.offset.0, found.timestamp)), expected.copied());
}

#[test]
fn searches_do_not_depend_on_the_index_interval() {
    for seed in 0..12 {
        let mut rng = Rng::new(seed);
        let known = random_batches(&mut rng, 100, 80);
        for interval in [0, 1, 150, 700, 4096, u32::MAX] {
            let config = SegmentConfig { index_interval_bytes: interval, ..SegmentConfig::default() };
            let storage = memory();
            let mut writer = create(&storage, 100, &config);
            let mut rest = &known[..];
            while !rest.is_empty() {
                // Several batches at once give the same entries as one after the other.
                let (now, later) = rest.split_at(1 + rng.below(5.min(rest.len() as u64)) as usize);
                let bytes: Vec<u8> = now.iter().flat_map(|batch| batch.bytes.clone()).collect();
                let facts: Vec<_> = now.iter().map(|batch| BatchFacts::of(&frame(&batch.bytes))).collect();
                let position = writer.append(&bytes, &facts).expect("an append");
                assert_eq!(position, now[0].position);
                rest = later;
            }
            judge(writer.segment(), &known, &mut rng);
            drop(writer.close().expect("closed"));
            let closed = INDEXES.map(|kind| storage.content(path(100, kind)));
            // As the next start finds it, as it recovers it, and without its time index.
            judge(&open(&storage, 100), &known, &mut rng);
            let recovered = open(&storage, 100).recover(&config, no_producers).expect("recovered");
            assert_eq!((recovered.cut, recovered.batches), (None, known.len() as u64));
            judge(&recovered.segment, &known, &mut rng);
            assert_eq!(INDEXES.map(|kind| storage.content(path(100, kind))), closed);

            // Cut anywhere, it is as if the rest had never been appended, but for the counter of the index.
            let at = rng.below(known.last().expect("a batch").last as u64 - 98) as i64 + 100;
            let kept = known.iter().take_while(|batch| batch.last < at).count();
            let mut writer = SegmentWriter::resume(recovered.segment, config.clone(), 0).expect("resumed");
            let entries = |segment: &Segment| {
                let index = segment.offset_index().expect("an index");
                index.entries().filter(|entry| entry.offset.0 < at).collect::<Vec<_>>()
            };
            let before = entries(writer.segment());
            writer.truncate_to(Offset(at), 0).expect("a cut");
            judge_without_end(writer.segment(), &known[..kept], &mut rng);
            assert_eq!(entries(writer.segment()), before);
            assert_eq!(writer.segment().offset_index().expect("an index").len(), before.len());
            assert_eq!(index_file(&storage), padded(writer.segment(), 10 << 20));
            known[kept..].iter().for_each(|batch| append(&mut writer, &batch.bytes));
            judge(writer.segment(), &known, &mut rng);
            let segment = writer.close().expect("closed");
            assert_eq!(index_file(&storage), padded(&segment, 0));
            judge(&open(&storage, 100), &known, &mut rng);
        }
    }
}

fn index_file(storage: &MemoryStorage) -> Vec<u8> {
    storage.content(path(100, SegmentFileKind::OffsetIndex)).expect("an index file")
}

/// The entries of a segment's offset index as a file, at least so long.
fn padded(segment: &Segment, bytes: usize) -> Vec<u8> {
    let mut file = Vec::new();
    let entries = segment.offset_index().expect("an index").entries();
    entries.for_each(|entry| entry.encode(segment.base_offset(), &mut file).expect("in reach"));
    file.resize(file.len().max(bytes), 0);
    file
}

fn judge_without_end(segment: &Segment, known: &[Known], rng: &mut Rng) {
    if known.is_empty() {
        assert_eq!((segment.size(), segment.next_offset().expect("an offset")), (0, segment.base_offset()));
    } else {
        judge(segment, known, rng);
    }
}

/// A folder of the file system with a segment in it.
struct OnDisk {
    folder: tempfile::TempDir,
    config: SegmentConfig,
}

impl OnDisk {
    fn new() -> Self {
        let config = SegmentConfig { index_interval_bytes: 500, ..SegmentConfig::default() };
        Self { folder: tempfile::tempdir().expect("a folder"), config }
    }

    fn create(&self) -> SegmentWriter {
        let storage = Arc::new(FileSystem);
        SegmentWriter::create(storage, self.folder.path(), Offset(0), self.config.clone(), 0)
            .expect("created")
    }

    fn open(&self) -> Arc<Segment> {
        let state = SegmentFileState::Live;
        Arc::new(Segment::open(Arc::new(FileSystem), self.folder.path(), Offset(0), state).expect("opened"))
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("00000000000000000000.log")
    }
}

#[test]
fn regions_outlive_whatever_happens_to_their_file() {
    let disk = OnDisk::new();
    let mut rng = Rng::new(7);
    let known = random_batches(&mut rng, 0, 400);
    let all: Vec<u8> = known.iter().flat_map(|batch| batch.bytes.clone()).collect();
    let mut writer = disk.create();
    known.iter().for_each(|batch| append(&mut writer, &batch.bytes));
    let read = |segment: &Segment, offset| {
        let found = segment.read(Offset(offset), u32::MAX, Some(segment.size()), true).expect("a read");
        found.expect("a batch").bytes
    };
    let mut held: Vec<(Region, Vec<u8>)> = vec![(read(writer.segment(), 0), all.clone())];

    // Truncated while regions are held, and a reader has the segment: the old one is still whole.
    let reader = Arc::clone(writer.segment());
    writer.truncate_to(Offset(known[200].records[0].0), 0).expect("a cut");
    let kept = known[200].position as usize;
    assert_eq!(fs::metadata(disk.log()).expect("a file").len() as usize, kept);
    judge(&reader, &known, &mut rng);
    judge(writer.segment(), &known[..200], &mut rng);
    held.push((read(writer.segment(), 0), all[..kept].to_vec()));
    // What is appended now does not show in the old regions.
    known[200..300].iter().for_each(|batch| append(&mut writer, &batch.bytes));
    judge(writer.segment(), &known[..300], &mut rng);
    drop(writer.close().expect("closed"));

    // Recovered with a damaged batch while regions are held.
    let segment = disk.open();
    held.push((read(&segment, 0), all[..known[300].position as usize].to_vec()));
    let damaged = disk.folder.path().join("copy");
    fs::copy(disk.log(), &damaged).expect("copied");
    let file = FileSystem.open_writable(&damaged).expect("opened");
    file.write_at(known[250].position + 30, &[0xff; 4]).expect("written");
    fs::rename(&damaged, disk.log()).expect("renamed");
    let segment_again = disk.open();
    let before_damage =
        segment_again.read(Offset(0), 5000, Some(5000), true).expect("a read").expect("a batch");
    held.push((before_damage.bytes, all[..5000].to_vec()));
    let recovered = segment_again.recover(&disk.config, no_producers).expect("recovered");
    assert_eq!(recovered.cut.expect("a cut").position, known[250].position);
    judge(&recovered.segment, &known[..250], &mut rng);
    held.push((read(&recovered.segment, 0), all[..known[250].position as usize].to_vec()));

    // Renamed and removed.
    recovered.segment.rename(SegmentFileState::Deleted).expect("renamed");
    judge(&recovered.segment, &known[..250], &mut rng);
    assert!(!disk.log().exists());
    recovered.segment.delete().expect("removed");
    assert_eq!(fs::read_dir(disk.folder.path()).expect("a folder").count(), 0);
    judge(&recovered.segment, &known[..250], &mut rng);
    drop((recovered.segment, segment, reader, writer_of(&disk)));
    for (region, bytes) in &held {
        assert!(**region == **bytes, "a held region of {} bytes", bytes.len());
    }
}

/// Something else under the same names.
fn writer_of(disk: &OnDisk) -> SegmentWriter {
    let mut writer = disk.create();
    append(&mut writer, &BatchSpec::single(0, b"other".to_vec(), None).encode());
    writer
}

#[test]
fn a_file_that_nobody_reads_is_cut_in_place() {
    let disk = OnDisk::new();
    let known = random_batches(&mut Rng::new(3), 0, 50);
    let mut writer = disk.create();
    known.iter().for_each(|batch| append(&mut writer, &batch.bytes));
    let inode = || fs::metadata(disk.log()).expect("a file").ino();
    let before = inode();
    writer.truncate_to(Offset(known[40].records[0].0), 0).expect("a cut");
    assert_eq!(inode(), before);
    assert_eq!(writer.size(), known[40].position);
    let held = writer.segment().bytes().expect("bytes");
    writer.truncate_to(Offset(known[30].records[0].0), 0).expect("a cut");
    assert_ne!(inode(), before, "a region is held");
    assert_eq!(held.len() as u64, known[40].position);
    known[30..].iter().for_each(|batch| append(&mut writer, &batch.bytes));
    judge(writer.segment(), &known, &mut Rng::new(1));
}

#[test]
fn a_wrong_index_hides_nothing() {
    for seed in 0..30 {
        let mut rng = Rng::new(seed);
        let known = random_batches(&mut rng, 0, 60);
        let config = SegmentConfig { index_interval_bytes: 300, ..SegmentConfig::default() };
        let storage = memory();
        let mut writer = create(&storage, 0, &config);
        known.iter().for_each(|batch| append(&mut writer, &batch.bytes));
        drop(writer.close().expect("closed"));
        let log_bytes = known.last().map_or(0, |batch| batch.position);
        // Rising offsets and positions that have nothing to do with the batches.
        let (mut offset, mut position) = (0, 0);
        let mut index = Vec::new();
        for _ in 0..8 {
            offset += 1 + rng.below(20) as i64;
            position += 1 + rng.below(log_bytes / 9) as i32;
            let entry = OffsetIndexEntry { offset: Offset(offset), position };
            entry.encode(Offset(0), &mut index).expect("in reach");
        }
        storage.write(path(0, SegmentFileKind::OffsetIndex), index);
        let segment = open(&storage, 0);
        judge(&segment, &known, &mut rng);
        assert!(segment.is_index_wrong());
        // Nothing can be appended to it before it is recovered.
        let resumed = SegmentWriter::resume(Arc::clone(&segment), config.clone(), 0);
        assert!(matches!(resumed, Err(Error::Index { .. })));
        // A time index that promises too much.
        let mut times = Vec::new();
        for (at, batch) in known.iter().enumerate().step_by(9) {
            let entry = redrive::segment::index::TimeIndexEntry {
                timestamp: 999_000 + at as i64 * 40,
                offset: Offset(batch.last),
            };
            entry.encode(Offset(0), &mut times).expect("in reach");
        }
        storage.write(path(0, SegmentFileKind::TimeIndex), times);
        let segment = open(&storage, 0);
        for time in (999_500..1_000_600).step_by(7) {
            let expected =
                known.iter().find_map(|batch| batch.records.iter().find(|record| record.1 >= time));
            let found = segment.find_by_timestamp(time, Offset(0), &Limits::default()).expect("a search");
            assert_eq!(found.map(|found| (found.offset.0, found.timestamp)), expected.copied(), "{time}");
        }
    }
}

#[test]
fn readers_see_whole_batches_while_one_appends() {
    let disk = OnDisk::new();
    let known = random_batches(&mut Rng::new(11), 0, 3000);
    let mut writer = disk.create();
    append(&mut writer, &known[0].bytes);
    let (segment, is_done) = (Arc::clone(writer.segment()), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for seed in 0..3 {
            let (segment, is_done, known) = (&segment, &is_done, &known);
            scope.spawn(move || {
                let mut rng = Rng::new(seed);
                let mut held = Vec::new();
                while !is_done.load(Ordering::Relaxed) {
                    let size = segment.size();
                    let there = known.partition_point(|batch| batch.position < size);
                    let batch = &known[rng.below(there as u64) as usize];
                    let read = segment.read(Offset(batch.last), 2000, Some(size), true).expect("a read");
                    let read = read.expect("a batch that was there");
                    assert_eq!(read.position, batch.position);
                    assert!(read.bytes.starts_with(&batch.bytes));
                    if rng.once_in(50) {
                        held.push((read.bytes, batch));
                    }
                    let found = segment.find_by_timestamp(batch.max, Offset(0), &Limits::default());
                    assert!(found.expect("a search").is_some_and(|found| found.timestamp >= batch.max));
                }
                for (bytes, batch) in held {
                    assert!(bytes.starts_with(&batch.bytes));
                }
            });
        }
        for (number, batch) in known.iter().enumerate().skip(1) {
            append(&mut writer, &batch.bytes);
            if number % 100 == 0 {
                segment.flush().expect("flushed");
                std::thread::yield_now();
            }
        }
        is_done.store(true, Ordering::Relaxed);
    });
    drop(writer.seal().expect("sealed"));
    judge(
        &disk.open(),
        &known[..500].iter().chain(&known[500..]).cloned().collect::<Vec<_>>(),
        &mut Rng::new(1),
    );
}

#[test]
fn index_entries_are_written_in_batches() {
    let storage = memory();
    let config = SegmentConfig { index_interval_bytes: 0, ..SegmentConfig::default() };
    let mut writer = create(&storage, 0, &config);
    let batch = |offset| BatchSpec::single(offset, b"k".to_vec(), None).encode();
    for offset in 0..600 {
        append(&mut writer, &batch(offset));
        let file = storage.content(path(0, SegmentFileKind::OffsetIndex));
        let written =
            file.map(|file| file.as_chunks::<8>().0.iter().filter(|entry| **entry != [0; 8]).count());
        assert_eq!(written, (offset >= 512).then_some(512), "{offset}");
    }
    writer.flush().expect("flushed");
    let file = storage.content(path(0, SegmentFileKind::OffsetIndex)).expect("a file");
    assert_eq!(file.as_chunks::<8>().0.iter().filter(|entry| **entry != [0; 8]).count(), 599);
}

#[test]
fn what_could_not_be_written_is_not_there() {
    let batch = |offset| BatchSpec::single(offset, b"k".to_vec(), Some(vec![1; 50])).encode();
    let size = batch(0).len() as u64;
    for bad in [2 * size, 2 * size + 20, 3 * size - 1] {
        let storage = memory();
        // The fault holds for files that are opened after it was injected.
        storage.inject(path(0, SegmentFileKind::Log), Fault::WriteAt(bad));
        let mut writer = create(&storage, 0, &SegmentConfig::default());
        (0..2).for_each(|offset| append(&mut writer, &batch(offset)));
        let third = batch(2);
        let refused = writer.append(&third, &[BatchFacts::of(&frame(&third))]);
        assert!(matches!(refused, Err(AppendFault::Storage(Error::Io { .. }))), "{refused:?}");
        assert_eq!(writer.size(), 2 * size);
        assert_eq!(writer.segment().next_offset().expect("an offset"), Offset(2));
        assert!(writer.segment().find(Offset(2)).expect("a search").is_none());
        storage.inject(path(0, SegmentFileKind::Log), Fault::ShortReads(usize::MAX));
        let recovered =
            open(&storage, 0).recover(&SegmentConfig::default(), no_producers).expect("recovered");
        assert_eq!((recovered.next_offset, recovered.cut.is_some()), (Offset(2), bad > 2 * size));
    }
}

#[test]
fn a_cut_that_ends_half_way_leaves_a_log_that_can_be_recovered() {
    let mut rng = Rng::new(5);
    let known = random_batches(&mut rng, 0, 40);
    let config = SegmentConfig { index_interval_bytes: 200, ..SegmentConfig::default() };
    let at = known[25].records[0].0;
    let mut step = 0;
    loop {
        let storage = memory();
        let mut writer = create(&storage, 0, &config);
        known.iter().for_each(|batch| append(&mut writer, &batch.bytes));
        for offset in [known[10].last, known[30].last] {
            let last_offset = Offset(offset);
            let producer_id = ProducerId(1);
            let entry = AbortedTransaction {
                producer_id,
                first_offset: Offset(0),
                last_offset,
                last_stable_offset: last_offset,
            };
            writer.append_aborted(entry).expect("an entry");
        }
        writer.flush().expect("flushed");
        storage.refuse_from(storage.operations().len() + step, ErrorKind::Other);
        let result = writer.truncate_to(Offset(at), 0);
        storage.refuse_from(usize::MAX, ErrorKind::Other);
        drop(writer);
        let segment = open(&storage, 0);
        let whole = segment.size() == known.iter().map(|batch| batch.bytes.len() as u64).sum::<u64>();
        let left = if whole { &known[..] } else { &known[..25] };
        assert!(whole || segment.size() == known[25].position, "step {step}");
        judge_reads(&segment, left);
        drop(segment);
        let recovered = open(&storage, 0).recover(&config, no_producers).expect("recovered");
        assert!(recovered.cut.is_none());
        judge(&recovered.segment, left, &mut rng);
        if result.is_ok() {
            assert!(!whole);
            break;
        }
        step += 1;
    }
    assert!(step > 8, "{step} steps");
}

/// Reads only: the time index may have lost its last entry.
fn judge_reads(segment: &Segment, known: &[Known]) {
    for batch in known {
        let found = segment.find(Offset(batch.last)).expect("a search").expect("a batch");
        assert_eq!(found.position, batch.position);
    }
}

/// Flushes a segment whenever a file is renamed, as another thread may at that moment.
#[derive(Debug, Clone)]
struct Flushing {
    storage: MemoryStorage,
    segment: Arc<Mutex<Option<Arc<Segment>>>>,
}

impl Storage for Flushing {
    fn list(&self, directory: &Path) -> io::Result<Vec<Entry>> {
        self.storage.list(directory)
    }

    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        self.storage.resolve(path)
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn StorageFile>> {
        self.storage.open(path)
    }

    fn is_locked(&self, path: &Path) -> io::Result<bool> {
        self.storage.is_locked(path)
    }

    fn create_file(&self, path: &Path) -> io::Result<Arc<dyn WritableFile>> {
        self.storage.create_file(path)
    }

    fn open_writable(&self, path: &Path) -> io::Result<Arc<dyn WritableFile>> {
        self.storage.open_writable(path)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.storage.remove_file(path)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.storage.sync_directory(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        if let Some(segment) = &*self.segment.lock().expect("a lock") {
            segment.flush().expect("flushed");
        }
        self.storage.rename(from, to)
    }
}

#[test]
fn a_flush_in_the_middle_of_a_cut_does_not_bring_entries_back() {
    let known = random_batches(&mut Rng::new(9), 100, 60);
    let config = SegmentConfig { index_interval_bytes: 0, ..SegmentConfig::default() };
    let storage = Flushing { storage: memory(), segment: Arc::default() };
    let mut writer = create(&storage, 100, &config);
    known.iter().for_each(|batch| append(&mut writer, &batch.bytes));
    *storage.segment.lock().expect("a lock") = Some(Arc::clone(writer.segment()));
    writer.truncate_to(Offset(known[20].last), 0).expect("a cut");
    assert_eq!(index_file(&storage.storage), padded(writer.segment(), 10 << 20));
    append(&mut writer, &known[20].bytes);
    writer.flush().expect("flushed");
    assert_eq!(index_file(&storage.storage), padded(writer.segment(), 10 << 20));
}

#[test]
fn everything_is_brought_to_the_device_before_a_cut_is_done() {
    let storage = memory();
    let known = random_batches(&mut Rng::new(5), 0, 40);
    let mut writer = create(&storage, 0, &SegmentConfig::default());
    known.iter().for_each(|batch| append(&mut writer, &batch.bytes));
    let from = storage.operations().len();
    let _held = writer.segment().bytes().expect("bytes");
    writer.truncate_to(Offset(known[20].last), 0).expect("a cut");
    let log = path(0, SegmentFileKind::Log);
    let copy = Path::new(FOLDER).join("00000000000000000000.log.cleaned");
    let operations = &storage.operations()[from..];
    let place = |wanted: Operation| {
        operations
            .iter()
            .rposition(|operation| *operation == wanted)
            .unwrap_or_else(|| panic!("no {wanted:?}"))
    };
    let synced = place(Operation::SyncData(copy.clone()));
    let renamed = place(Operation::Rename { from: copy, to: log });
    let listed = place(Operation::SyncDirectory(FOLDER.into()));
    assert!(synced < renamed && renamed < listed && listed + 1 == operations.len());
    for kind in [SegmentFileKind::OffsetIndex, SegmentFileKind::TimeIndex] {
        assert!(place(Operation::SyncData(path(0, kind))) < renamed);
    }
}
