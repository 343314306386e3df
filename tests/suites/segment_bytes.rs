//! What the suites about the files of segments share: segments on the storage in memory, and their batches.
#![allow(dead_code, reason = "each test binary uses its part of this file")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use redrive::Error;
use redrive::batch::BatchFrame;
use redrive::io::{MemoryStorage, Storage};
use redrive::segment::index::AbortedTransaction;
use redrive::segment::{
    BatchFacts, Segment, SegmentConfig, SegmentFileKind, SegmentFileName, SegmentFileState, SegmentWriter,
};
use redrive::types::Offset;

pub(crate) const FOLDER: &str = "/log/data-0";
pub(crate) const INDEXES: [SegmentFileKind; 3] =
    [SegmentFileKind::OffsetIndex, SegmentFileKind::TimeIndex, SegmentFileKind::TransactionIndex];

pub(crate) fn memory() -> MemoryStorage {
    let memory = MemoryStorage::new();
    memory.create_directory(FOLDER);
    memory
}

pub(crate) fn create(
    storage: &(impl Storage + Clone + 'static),
    base: i64,
    config: &SegmentConfig,
) -> SegmentWriter {
    let storage = Arc::new(storage.clone());
    SegmentWriter::create(storage, Path::new(FOLDER), Offset(base), config.clone(), 0).expect("a new segment")
}

pub(crate) fn open(storage: &(impl Storage + Clone + 'static), base: i64) -> Arc<Segment> {
    let segment =
        Segment::open(Arc::new(storage.clone()), Path::new(FOLDER), Offset(base), SegmentFileState::Live);
    Arc::new(segment.expect("a segment that is there"))
}

pub(crate) fn path(base: i64, kind: SegmentFileKind) -> PathBuf {
    let name = SegmentFileName { offset: Offset(base), kind, state: SegmentFileState::Live };
    Path::new(FOLDER).join(name.to_string())
}

/// The batches of a log, as far as they are whole.
pub(crate) fn batches(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut batches = Vec::new();
    while let Some(prefix) = bytes.first_chunk::<12>() {
        let length = u32::from_be_bytes([prefix[8], prefix[9], prefix[10], prefix[11]]) as usize + 12;
        let Some((batch, rest)) = bytes.split_at_checked(length) else { break };
        batches.push(batch);
        bytes = rest;
    }
    batches
}

pub(crate) fn frame(batch: &[u8]) -> BatchFrame<'_> {
    BatchFrame::new(batch).expect("a batch")
}

pub(crate) fn append(writer: &mut SegmentWriter, batch: &[u8]) {
    writer.append(batch, &[BatchFacts::of(&frame(batch))]).expect("an append");
}

pub(crate) fn no_producers(_: &BatchFrame<'_>, _: u64) -> Result<Option<AbortedTransaction>, Error> {
    Ok(None)
}
