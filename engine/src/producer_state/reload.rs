//! Which snapshots a partition has, and how its state is made from one of them and the batches behind it
//! (ProducerStateManager.truncateAndReload, UnifiedLog.rebuildProducerState). Decisions only: the caller lists, reads,
//! writes and removes the files, and walks over the batches.
//!
//! | when | snapshot at |
//! |---|---|
//! | roll | base of the new segment |
//! | close, end of a rebuild | log end |
//! | a segment was recovered | next offset of the segment |
//! | rebuild goes through a segment that [`gets_snapshot_on_rebuild`] | its base |
//! | clean start, and there is none | [`clean_start_snapshots`] |
//!
//! Each only if it is [due](ProducerStateManager::is_snapshot_due).

use std::collections::BTreeSet;

use super::ProducerStateManager;
use crate::types::Offset;

/// How to make the state at an offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reload {
    /// Snapshots that lie outside of the log: to be removed.
    pub outside: Vec<Offset>,
    /// Snapshots to load, the first that can be read; those that cannot are to be removed. Empty if what is known is
    /// that of the offset.
    pub candidates: Vec<Offset>,
    log_start: Offset,
    end: Offset,
    needs_no_replay: bool,
}

impl Reload {
    /// Where to begin with the batches, once a candidate is loaded or none is left: those from here up to the end go
    /// through [`replay`](ProducerStateManager::replay). A batch may begin before and be taken in already: it is to be
    /// passed over. `None` if there is nothing to go through. In the end
    /// [`set_map_end_offset`](ProducerStateManager::set_map_end_offset) gets the end.
    pub fn replay_from(&self, state: &ProducerStateManager) -> Option<Offset> {
        let from = state.map_end_offset();
        (self.end > from && !self.needs_no_replay).then(|| from.max(self.log_start))
    }
}

impl ProducerStateManager {
    /// Begins to make the state at `end`, the end of a log that starts at `log_start`, with these snapshots there. All
    /// is forgotten, unless it is the state at `end`.
    pub fn begin_reload(&mut self, snapshots: &[Offset], log_start: Offset, end: Offset) -> Reload {
        let outside = snapshots_outside(snapshots, log_start, end);
        // Where no producer was known further on, none was known before.
        let needs_no_replay = self.is_empty() && self.map_end_offset() >= end;
        let mut candidates: Vec<Offset> = Vec::new();
        if self.map_end_offset() == end {
            self.on_log_start_raised(log_start);
        } else {
            self.truncate_fully_and_start_at(log_start);
            candidates.extend(snapshots.iter().filter(|&&offset| !is_outside(offset, log_start, end)));
            candidates.sort_unstable();
            candidates.reverse();
        }
        Reload { outside, candidates, log_start, end, needs_no_replay }
    }

    /// Whether a snapshot at [`map_end_offset`](Self::map_end_offset) would be newer than the newest there is. At offset
    /// 0 there is nothing to keep.
    pub fn is_snapshot_due(&self, newest: Option<Offset>) -> bool {
        self.map_end_offset() > newest.unwrap_or(Offset(0))
    }
}

/// The snapshots above `end`, or not above `log_start`.
pub fn snapshots_outside(snapshots: &[Offset], log_start: Offset, end: Offset) -> Vec<Offset> {
    snapshots.iter().filter(|&&offset| is_outside(offset, log_start, end)).copied().collect()
}

fn is_outside(snapshot: Offset, log_start: Offset, end: Offset) -> bool {
    snapshot > end || snapshot <= log_start
}

/// At loading: the snapshots that are of no use. Of use are those at the base of a segment, and the largest of the
/// others if it is not below every base: that was made at closing (`removeStraySnapshots`).
pub fn stray_snapshots(snapshots: &[Offset], segment_bases: &[Offset]) -> Vec<Offset> {
    let bases: BTreeSet<_> = segment_bases.iter().collect();
    let is_stray = |offset: &&Offset| !bases.contains(offset);
    let largest_base = bases.last().copied();
    let kept = snapshots.iter().filter(is_stray).max().filter(|&largest| Some(largest) >= largest_base);
    snapshots.iter().filter(is_stray).filter(|&offset| Some(offset) != kept).copied().collect()
}

/// Whether a rebuild that goes through the segment from its base on takes a snapshot there: so for the last two of
/// `segment_bases`, which are ascending. A truncation then need not begin far below.
pub fn gets_snapshot_on_rebuild(segment_bases: &[Offset], base: Offset) -> bool {
    segment_bases.iter().rev().take(2).any(|&last| last == base)
}

/// Offsets of the snapshots, ascending, that a log without any gets after a clean shutdown: nothing is known of
/// producers then, and no batch is gone through. `segment_bases` are ascending.
pub fn clean_start_snapshots(segment_bases: &[Offset], log_end_offset: Offset) -> Vec<Offset> {
    let last_two = &segment_bases[segment_bases.len().saturating_sub(2)..];
    let mut offsets = last_two.to_vec();
    offsets.push(log_end_offset);
    offsets.dedup();
    offsets
}
