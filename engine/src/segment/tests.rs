//! A segment's life on the storage in memory, small enough for Miri. The comparisons with Kafka's files are in the test
//! crate.

use std::path::Path;
use std::sync::Arc;
use std::thread;

use super::index::AbortedTransaction;
use super::live::FILES;
use super::*;
use crate::batch::{BatchBuilder, BatchFrame, Limits, NewRecord};
use crate::io::MemoryStorage;
use crate::types::{Offset, ProducerId};

const FOLDER: &str = "/log/data-0";

fn batch(offset: i64, timestamp: i64) -> Vec<u8> {
    let mut builder = BatchBuilder::new(Offset(offset));
    builder
        .push(&NewRecord { timestamp, key: Some(b"key"), value: Some(b"value"), headers: &[] })
        .expect("a small record");
    builder.build().expect("a small batch")
}

fn config() -> SegmentConfig {
    SegmentConfig { index_interval_bytes: 100, index_bytes_max: 600, ..SegmentConfig::default() }
}

fn append(writer: &mut SegmentWriter, bytes: &[u8]) {
    let facts = BatchFacts::of(&BatchFrame::new(bytes).unwrap());
    writer.append(bytes, &[facts]).unwrap();
}

/// A segment with batches at offsets 10, 12, 14 … whose times are ten times their offsets.
fn segment(storage: &MemoryStorage, batches: i64) -> SegmentWriter {
    storage.create_directory(FOLDER);
    let storage = Arc::new(storage.clone());
    let mut writer = SegmentWriter::create(storage, Path::new(FOLDER), Offset(10), config(), 0).unwrap();
    (0..batches).for_each(|number| append(&mut writer, &batch(10 + 2 * number, 100 + 20 * number)));
    writer
}

fn reopen(storage: &MemoryStorage) -> Arc<Segment> {
    let storage = Arc::new(storage.clone());
    let segment = Segment::open(storage, Path::new(FOLDER), Offset(10), SegmentFileState::Live);
    Arc::new(segment.unwrap())
}

fn check(segment: &Segment, batches: i64) {
    for number in 0..batches {
        let offset = 10 + 2 * number;
        for target in [offset - 1, offset] {
            let read = segment.read(Offset(target), 1, Some(u64::MAX), true).unwrap().unwrap();
            assert_eq!(*read.bytes, batch(offset, 100 + 20 * number));
        }
        let found = segment.find_by_timestamp(81 + 20 * number, Offset(0), &Limits::default()).unwrap();
        assert_eq!(found.unwrap().offset, Offset(offset));
    }
    let end = 10 + 2 * batches - 1;
    assert!(segment.read(Offset(end), 1, Some(u64::MAX), true).unwrap().is_none());
    assert_eq!(segment.next_offset().unwrap(), Offset(end));
}

#[test]
fn what_was_appended_is_read_and_can_be_cut() {
    let storage = MemoryStorage::new();
    let mut writer = segment(&storage, 12);
    check(writer.segment(), 12);
    let held = writer.segment().bytes().unwrap();
    let reader = Arc::clone(writer.segment());
    writer.truncate_to(Offset(19), 0).unwrap();
    check(writer.segment(), 5);
    check(&reader, 12);
    // The segment as it was has nothing to say any more about the files.
    let files = || FILES.map(|kind| storage.content(writer.segment().path(kind)));
    let before = files();
    reader.flush().unwrap();
    reader.rename(SegmentFileState::Deleted).unwrap();
    reader.delete().unwrap();
    assert_eq!(files(), before);
    append(&mut writer, &batch(20, 200));
    check(writer.segment(), 6);
    drop(writer.close().unwrap());
    check(&reopen(&storage), 6);
    check(&reader, 12);
    assert_eq!(
        *held,
        (0..12).flat_map(|number| batch(10 + 2 * number, 100 + 20 * number)).collect::<Vec<_>>()
    );
}

#[test]
fn recovery_cuts_what_is_damaged() {
    let storage = MemoryStorage::new();
    let closed = segment(&storage, 9).close().unwrap();
    let path = closed.path(SegmentFileKind::Log);
    let mut bytes = storage.content(&path).unwrap();
    let size = batch(10, 0).len();
    bytes[6 * size + 70] ^= 1;
    storage.write(&path, bytes);
    let aborted = |offset| AbortedTransaction {
        producer_id: ProducerId(1),
        first_offset: Offset(3),
        last_offset: offset,
        last_stable_offset: offset,
    };
    let mut seen = 0;
    let recovered = reopen(&storage)
        .recover(&config(), |frame, _| {
            seen += 1;
            Ok((seen == 4).then(|| aborted(frame.last_offset())))
        })
        .unwrap();
    let cut = recovered.cut.unwrap();
    assert_eq!((cut.position, cut.bytes), (6 * size as u64, 3 * size as u64));
    assert!(matches!(cut.reason, CutReason::Crc(_)));
    assert_eq!((seen, recovered.batches, recovered.next_offset), (6, 6, Offset(21)));
    check(&recovered.segment, 6);
    check(&reopen(&storage), 6);
    let entries = reopen(&storage);
    assert!(entries.aborted_transactions().unwrap().eq([aborted(Offset(16))]));
    check(&closed, 9);
}

#[test]
fn one_appends_while_others_read() {
    let storage = MemoryStorage::new();
    let mut writer = segment(&storage, 1);
    let last = if cfg!(miri) { 12 } else { 49 };
    let segment = Arc::clone(writer.segment());
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let end = segment.next_offset().unwrap();
                    let found = segment.find(Offset(end.0 - 1)).unwrap().unwrap();
                    assert_eq!(found.last_offset, Offset(end.0 - 1));
                    assert!(segment.max_timestamp_so_far().unwrap().timestamp >= end.0 * 10 - 30);
                    if end.0 > 10 + 2 * last {
                        break;
                    }
                    thread::yield_now();
                }
            });
        }
        (1..=last).for_each(|number| append(&mut writer, &batch(10 + 2 * number, 100 + 20 * number)));
    });
    check(&segment, last + 1);
}
