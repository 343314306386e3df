//! Which files of a partition's folder are its segments, as a broker would find after tidying up (LogLoader):
//!
//! 1. what ends in `.deleted` is gone;
//! 2. the smallest base offset of `.cleaned` files makes every `.swap` at or above it void;
//! 3. `.cleaned` files are void;
//! 4. the `.log.swap` files left cover a range of offsets, and every other file whose number lies in it is void;
//! 5. they take the place of what they cover.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::io::Storage;
use crate::log::SegmentInfo;
use crate::segment::{
    Access, Frame, Next, SegmentFileKind, SegmentFileName, SegmentFileState, SegmentReader,
};
use crate::types::Offset;

/// A regular file of a partition's folder with a segment file's name.
pub(super) struct NamedFile {
    pub(super) name: SegmentFileName,
    pub(super) info: SegmentInfo,
}

impl NamedFile {
    pub(super) fn new(name: SegmentFileName, path: PathBuf, len: u64) -> Self {
        Self { name, info: SegmentInfo { base_offset: name.offset, path, len, has_index: false } }
    }
}

/// Buffer for the walk over a `.swap` file; such files are rare and read once.
const BUFFER_BYTES: usize = 256 << 10;

/// The segments by rising base offset.
///
/// Cost: nothing beyond the listing, except for a folder with an unfinished replacement, whose `.log.swap` files are
/// walked by their headers.
///
/// # Errors
/// [`Error::Io`] for a `.log.swap` file that cannot be read.
pub(super) fn segments(storage: &dyn Storage, files: &[NamedFile]) -> Result<Vec<SegmentInfo>, Error> {
    let in_state = |state| files.iter().filter(move |file| file.name.state == state);
    let void_from = in_state(SegmentFileState::Cleaned).map(|file| file.name.offset).min();
    let swaps: Vec<&NamedFile> = in_state(SegmentFileState::Swap)
        .filter(|file| file.name.kind == SegmentFileKind::Log)
        .filter(|file| void_from.is_none_or(|from| file.name.offset < from))
        .collect();
    let mut replaced: Option<(Offset, Offset)> = None;
    for swap in &swaps {
        let end = next_offset(storage, &swap.info)?;
        let (low, high) = replaced.unwrap_or((swap.name.offset, end));
        replaced = Some((low.min(swap.name.offset), high.max(end)));
    }
    let is_swap = |name: SegmentFileName| name.state == SegmentFileState::Swap;
    let indexes: BTreeSet<(bool, Offset)> = in_state(SegmentFileState::Live)
        .chain(in_state(SegmentFileState::Swap))
        .filter(|file| file.name.kind == SegmentFileKind::OffsetIndex)
        .map(|file| (is_swap(file.name), file.name.offset))
        .collect();
    let mut segments: Vec<SegmentInfo> = in_state(SegmentFileState::Live)
        .filter(|file| file.name.kind == SegmentFileKind::Log)
        .filter(|file| replaced.is_none_or(|(low, high)| file.name.offset < low || file.name.offset >= high))
        // Renaming a `.swap` overwrites a file of that name, even where the swap file is empty.
        .filter(|file| swaps.iter().all(|swap| swap.name.offset != file.name.offset))
        .chain(swaps.iter().copied())
        .map(|log| SegmentInfo {
            has_index: indexes.contains(&(is_swap(log.name), log.name.offset)),
            ..log.info.clone()
        })
        .collect();
    segments.sort_by_key(|segment| segment.base_offset);
    Ok(segments)
}

/// The offset behind the last batch that can be read, or the base offset.
fn next_offset(storage: &dyn Storage, segment: &SegmentInfo) -> Result<Offset, Error> {
    let access = Access::Positioned { buffer_bytes: BUFFER_BYTES };
    let mut reader =
        SegmentReader::open(storage, Path::new(&segment.path), segment.base_offset, segment.len, access)?;
    let mut next = segment.base_offset;
    while let Next::Frame(at) = reader.next()? {
        let last = match at.frame {
            Frame::Batch(frame) => frame.last_offset(),
            Frame::Legacy(message) => message.offset(),
        };
        next = next.max(last.next());
    }
    Ok(next)
}
