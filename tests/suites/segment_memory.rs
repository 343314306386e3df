//! Appending to a segment allocates nothing per batch, and reading from it a fixed amount. The peak is that of the whole
//! process, so this binary has one test.

use std::sync::Arc;

use peak_alloc::PeakAlloc;
use redrive::batch::BatchFrame;
use redrive::io::FileSystem;
use redrive::segment::{BatchFacts, SegmentConfig, SegmentFileKind, SegmentWriter};
use redrive::types::Offset;
use redrive_tests::logs::BatchSpec;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// Most bytes that `work` has allocated at once.
fn peak_of(work: impl FnOnce()) -> usize {
    let before = ALLOCATOR.current_usage();
    ALLOCATOR.reset_peak_usage();
    work();
    ALLOCATOR.peak_usage() - before
}

#[test]
fn appends_allocate_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let batch = |offset| BatchSpec::single(offset, b"key".to_vec(), Some(vec![7; 100])).encode();
    let batches: Vec<_> = (0..64).map(batch).collect();
    let mut bytes = batches.concat();
    let mut facts: Vec<_> =
        batches.iter().map(|bytes| BatchFacts::of(&BatchFrame::new(bytes).expect("a batch"))).collect();
    let create = |index_interval_bytes| {
        let config = SegmentConfig { index_interval_bytes, ..SegmentConfig::default() };
        SegmentWriter::create(Arc::new(FileSystem), folder.path(), Offset(0), config, 0).expect("created")
    };
    let size = batches[0].len();
    let mut append = |writer: &mut SegmentWriter, times: i64| {
        for _ in 0..times {
            let first = (writer.size() / size as u64) as i64;
            for (number, facts) in facts.iter_mut().enumerate() {
                let offset = Offset(first + number as i64);
                (facts.base_offset, facts.last_offset) = (offset, offset);
                bytes[number * size..number * size + 8].copy_from_slice(&offset.0.to_be_bytes());
            }
            writer.append(&bytes, &facts).expect("an append");
        }
    };

    let mut writer = create(u32::MAX);
    assert_eq!(peak_of(|| append(&mut writer, 200)), 0, "without index entries");
    // With them, what the indexes need: 8 bytes an entry of the one, 16 of the other, in blocks that double.
    let mut writer = create(4096);
    append(&mut writer, 10);
    let peak = peak_of(|| append(&mut writer, 100));
    let entries = writer.segment().offset_index().expect("an index").len();
    assert!(entries > 200 && peak <= entries * 2 * 24, "{peak} bytes for {entries} entries");

    let segment = writer.segment();
    assert!(segment.find(Offset(100)).expect("a search").is_some());
    let peak = peak_of(|| {
        for offset in 0..6000 {
            let read = segment.read(Offset(offset), 1 << 20, Some(segment.size()), true).expect("a read");
            assert!(!read.expect("a batch").bytes.is_empty());
        }
    });
    assert!(peak <= 256, "{peak} bytes for reads of a mebibyte each");
    assert!(segment.path(SegmentFileKind::Log).exists());
}
