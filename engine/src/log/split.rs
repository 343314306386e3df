//! A segment whose offsets went out of reach of its base offset becomes several (LogLoader.splitOverflowedSegment).

use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::sync::Arc;

use crate::error::{BrokerView, Corruption, Error, Reason};
use crate::io::{Storage, remove_if_there};
use crate::segment::{Segment, SegmentFileKind, SegmentFileName, SegmentFileState};
use crate::types::Offset;

/// Bytes copied at once.
const COPY_BYTES: u64 = 1 << 20;

/// Makes a segment of every stretch of batches whose offsets are within reach of its first one, and puts them in the place
/// of the segment: under `.cleaned` names first, then `.swap`, then their own, so that a crash at any point leaves the
/// old or the new ones. They have no indexes yet. Returns their base offsets.
///
/// # Errors
/// [`Error::Io`]; [`Error::Corrupt`] where a batch cannot be read, or one ends below the base offset.
pub(super) fn split(
    storage: &Arc<dyn Storage>,
    directory: &Path,
    segment: &Segment,
) -> Result<Vec<Offset>, Error> {
    let parts = parts(segment)?;
    let path = |base_offset: Offset, state| {
        directory.join(SegmentFileName { offset: base_offset, kind: SegmentFileKind::Log, state }.to_string())
    };
    let bytes = segment.bytes()?;
    for (base_offset, range) in &parts {
        let cleaned = path(*base_offset, SegmentFileState::Cleaned);
        remove_if_there(&**storage, &cleaned).map_err(Error::io("remove", &cleaned))?;
        let file = storage.create_file(&cleaned).map_err(Error::io("create", &cleaned))?;
        let part = &bytes[range.start as usize..range.end as usize];
        for (number, piece) in part.chunks(COPY_BYTES as usize).enumerate() {
            file.write_at(number as u64 * COPY_BYTES, piece).map_err(Error::io("write to", &cleaned))?;
        }
        file.sync_data().map_err(Error::io("bring to the device", &cleaned))?;
    }
    let sync = || storage.sync_directory(directory).map_err(Error::io("bring to the device", directory));
    sync()?;
    let rename = |base_offset: Offset, from, to| {
        let from = path(base_offset, from);
        storage.rename(&from, &path(base_offset, to)).map_err(Error::io("rename", from))
    };
    for (base_offset, _) in parts.iter().rev() {
        rename(*base_offset, SegmentFileState::Cleaned, SegmentFileState::Swap)?;
    }
    sync()?;
    segment.rename(SegmentFileState::Deleted)?;
    sync()?;
    for (base_offset, _) in &parts {
        rename(*base_offset, SegmentFileState::Swap, SegmentFileState::Live)?;
    }
    sync()?;
    segment.delete()?;
    Ok(parts.into_iter().map(|(base_offset, _)| base_offset).collect())
}

/// The stretches, each with its base offset and bytes. The first keeps the segment's base offset if that is in reach of
/// its batches.
fn parts(segment: &Segment) -> Result<Vec<(Offset, Range<u64>)>, Error> {
    let mut parts: Vec<(Offset, Range<u64>)> = Vec::new();
    segment.visit_from(Offset(0), |found| {
        let (base, last) = (found.frame.base_offset(), found.frame.last_offset());
        let end = found.position + found.size;
        let base_offset = parts.last().map_or(segment.base_offset(), |(base_offset, _)| *base_offset);
        if last < segment.base_offset() {
            // No segment can begin below the one that it is a part of.
            let (path, position) = (segment.path(SegmentFileKind::Log), found.position);
            let reason = Reason::OffsetGoesBack { expected: segment.base_offset(), found: base };
            return Err(Error::Corrupt(Box::new(Corruption {
                path,
                offset: base,
                position,
                reason,
                transactional_id: None,
                broker: BrokerView::RefusesToLoad,
            })));
        }
        let is_in_reach = last.0.checked_sub(base_offset.0).is_some_and(|delta| delta <= i64::from(i32::MAX));
        match parts.last_mut() {
            Some((_, range)) if is_in_reach => range.end = end,
            None if is_in_reach => parts.push((base_offset, found.position..end)),
            _ => parts.push((base, found.position..end)),
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(parts)
}
