//! Producer state out of snapshots and batches (ProducerStateManager.truncateAndReload, UnifiedLog.rebuildProducerState).

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use super::partition::Writer;
use super::state_files::{list_snapshots, read_snapshot, remove_snapshot, write_snapshot};
use crate::batch::BatchFrame;
use crate::error::{BrokerView, Corruption, Error, Reason};
use crate::io::Storage;
use crate::producer_state::{
    CompletedTransaction, ProducerStateManager, gets_snapshot_on_rebuild, stray_snapshots,
};
use crate::segment::index::AbortedTransaction;
use crate::segment::{Frame, Segment, SegmentFileKind};
use crate::types::Offset;

/// How a producer state was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProducerReport {
    /// Offset of the snapshot that was begun with.
    pub snapshot: Option<Offset>,
    /// Snapshots that could not be used, each with the reason.
    pub unusable: Vec<(Offset, String)>,
    /// Batches that were gone through after it.
    pub replayed_batches: u64,
}

/// The part of a log that a producer state is made for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    pub(super) log_start: Offset,
    /// Where it ends: a border of batches.
    pub(super) end: Offset,
    /// Snapshots above this are not begun with: of the transactions that they know nothing more of, the markers may
    /// still be unreplicated (H-13).
    pub(super) snapshot_max: Offset,
}

/// Makes the producer state for a log, and writes it to a snapshot. Snapshots that are beyond the log, or cannot be used,
/// are removed.
pub(super) fn rebuild_producers(
    storage: &dyn Storage,
    writer: &mut Writer,
    segments: &[Arc<Segment>],
    extent: Extent,
    now_ms: i64,
) -> Result<ProducerReport, Error> {
    let Writer { directory, producers, newest_snapshot, .. } = writer;
    let mut kept = None;
    for offset in list_snapshots(storage, directory)? {
        if offset > extent.end || offset <= extent.log_start {
            remove_snapshot(storage, directory, offset)?;
        } else {
            kept = Some(offset);
        }
    }
    let mut report = load(storage, directory, producers, extent, now_ms)?;
    for (offset, _) in &report.unusable {
        remove_snapshot(storage, directory, *offset)?;
    }
    let kept = kept.filter(|kept| report.unusable.iter().all(|(offset, _)| offset != kept));
    // Where the log begins there is nothing to keep.
    *newest_snapshot = kept.or(Some(extent.log_start));
    let bases: Vec<Offset> = segments.iter().map(|segment| segment.base_offset()).collect();
    report.replayed_batches = replay(producers, segments, extent, |producers, base_offset| {
        if gets_snapshot_on_rebuild(&bases, base_offset) && producers.is_snapshot_due(*newest_snapshot) {
            write_snapshot(storage, directory, base_offset, &producers.snapshot())?;
            *newest_snapshot = Some(base_offset);
        }
        Ok(())
    })?;
    writer.take_snapshot(storage)?;
    Ok(report)
}

/// Makes the producer state for a part of a log, and changes no file.
pub(super) fn producers_at(
    storage: &dyn Storage,
    directory: &Path,
    producers: &mut ProducerStateManager,
    segments: &[Arc<Segment>],
    extent: Extent,
    now_ms: i64,
) -> Result<(), Error> {
    load(storage, directory, producers, extent, now_ms)?;
    replay(producers, segments, extent, |_, _| Ok(()))?;
    Ok(())
}

/// Begins with the newest snapshot that can be read and lies within the extent.
fn load(
    storage: &dyn Storage,
    directory: &Path,
    producers: &mut ProducerStateManager,
    extent: Extent,
    now_ms: i64,
) -> Result<ProducerReport, Error> {
    let mut report = ProducerReport::default();
    producers.truncate_fully_and_start_at(extent.log_start);
    let most = extent.end.min(extent.snapshot_max);
    for offset in list_snapshots(storage, directory)?.into_iter().rev() {
        if offset > most || offset <= extent.log_start {
            continue;
        }
        match read_snapshot(storage, directory, offset)? {
            Ok(snapshot) => {
                producers.load_snapshot(&snapshot, offset, now_ms);
                report.snapshot = Some(offset);
                break;
            }
            Err(reason) => report.unusable.push((offset, reason)),
        }
    }
    Ok(report)
}

/// Goes through the batches from the map's end to the end of the extent; their number. `begin` is told of each segment
/// that is gone through from its first batch on, with the state before.
fn replay(
    producers: &mut ProducerStateManager,
    segments: &[Arc<Segment>],
    extent: Extent,
    mut begin: impl FnMut(&ProducerStateManager, Offset) -> Result<(), Error>,
) -> Result<u64, Error> {
    let mut batches = 0;
    let from = producers.map_end_offset().max(extent.log_start);
    for (number, segment) in segments.iter().enumerate() {
        let next = segments.get(number + 1).map(|next| next.base_offset());
        if next.is_some_and(|next| next <= from) || from >= extent.end {
            continue;
        }
        if segment.base_offset() > from {
            producers.set_map_end_offset(segment.base_offset());
            begin(producers, segment.base_offset())?;
        }
        let path = segment.path(SegmentFileKind::Log);
        segment.visit_from(from, |found| {
            let Frame::Batch(frame) = &found.frame else { return Ok(ControlFlow::Continue(())) };
            if frame.base_offset() >= extent.end {
                return Ok(ControlFlow::Break(()));
            }
            // Taken in already, by the snapshot.
            if frame.base_offset() < from && from > extent.log_start {
                return Ok(ControlFlow::Continue(()));
            }
            batches += 1;
            observe(producers, frame, &path, found.position)?;
            Ok(ControlFlow::Continue(()))
        })?;
    }
    producers.set_map_end_offset(extent.end);
    Ok(batches)
}

/// Takes a batch that is in the log into the producer state; what it means for the transaction index.
///
/// # Errors
/// [`Error::Corrupt`] for a batch that no correct leader writes, with which no broker loads the partition.
pub(super) fn observe(
    producers: &mut ProducerStateManager,
    frame: &BatchFrame<'_>,
    path: &Path,
    position: u64,
) -> Result<Option<AbortedTransaction>, Error> {
    let completed = producers.replay(frame).map_err(|rejection| {
        Error::Corrupt(Box::new(Corruption {
            path: path.to_path_buf(),
            offset: frame.base_offset(),
            position,
            reason: Reason::Producer(rejection.to_string()),
            transactional_id: None,
            broker: BrokerView::RefusesToLoad,
        }))
    })?;
    Ok(completed.as_ref().and_then(aborted))
}

/// The entry of the transaction index for a transaction that ended, if it was aborted.
pub(super) fn aborted(transaction: &CompletedTransaction) -> Option<AbortedTransaction> {
    let CompletedTransaction { producer_id, first_offset, last_offset, is_aborted, last_stable_offset } =
        *transaction;
    is_aborted.then_some(AbortedTransaction { producer_id, first_offset, last_offset, last_stable_offset })
}

/// Removes the snapshots that are neither at the base of a segment nor the newest one (`removeStraySnapshots`).
pub(super) fn remove_stray_snapshots(
    storage: &dyn Storage,
    directory: &Path,
    segments: &[Arc<Segment>],
) -> Result<(), Error> {
    let bases: Vec<Offset> = segments.iter().map(|segment| segment.base_offset()).collect();
    for offset in stray_snapshots(&list_snapshots(storage, directory)?, &bases) {
        remove_snapshot(storage, directory, offset)?;
    }
    Ok(())
}
