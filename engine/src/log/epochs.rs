//! Which leader epoch began at which offset (Kafka's LeaderEpochFileCache, without its file).

use super::checkpoint::{LeaderEpochCheckpoint, LeaderEpochEntry, assign};
use crate::types::Offset;

/// A leader epoch or its start offset is negative, which Kafka's IllegalArgumentException says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("leader epoch {epoch} cannot begin at offset {start_offset}: neither may be negative")]
pub struct NegativeEpoch {
    /// The epoch.
    pub epoch: i32,
    /// Its start offset.
    pub start_offset: Offset,
}

/// Where an epoch ends (Kafka's EpochEndOffset in an answer to OffsetsForLeaderEpoch).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochEndOffset {
    /// The epoch that the offset belongs to: the one asked for, or the largest below it.
    pub epoch: i32,
    /// Offset behind its last record.
    pub end_offset: Offset,
}

/// The leader epochs of one partition. Nothing here writes: each change says whether the file has to be written anew,
/// and with [`assign`](Self::assign) and [`clear`](Self::clear) Kafka has it on disk before it goes on.
///
/// Memory: 16 bytes an epoch. Look-ups take the logarithm of their number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaderEpochFileCache {
    /// Strictly rising in both numbers.
    entries: Vec<LeaderEpochEntry>,
}

impl LeaderEpochFileCache {
    /// What a checkpoint file holds.
    pub fn from_checkpoint(checkpoint: LeaderEpochCheckpoint) -> Self {
        Self { entries: checkpoint.entries }
    }

    /// The file as Kafka writes it.
    pub fn encode(&self) -> String {
        LeaderEpochCheckpoint { entries: self.entries.clone(), dropped: 0 }.encode()
    }

    /// The epochs, rising in epoch and in start offset.
    pub fn entries(&self) -> &[LeaderEpochEntry] {
        &self.entries
    }

    /// Notes that `epoch` has written a batch at `start_offset`. Nothing happens if it is the latest epoch and began
    /// there or earlier; else the later entries that contradict it go. Returns whether something changed.
    ///
    /// # Errors
    /// [`NegativeEpoch`].
    pub fn assign(&mut self, epoch: i32, start_offset: Offset) -> Result<bool, NegativeEpoch> {
        if epoch < 0 || start_offset.0 < 0 {
            return Err(NegativeEpoch { epoch, start_offset });
        }
        Ok(assign(&mut self.entries, LeaderEpochEntry { epoch, start_offset }).is_some())
    }

    /// The newest epoch.
    pub fn latest_epoch(&self) -> Option<i32> {
        self.entries.last().map(|entry| entry.epoch)
    }

    /// The largest epoch below `epoch`.
    pub fn previous_epoch(&self, epoch: i32) -> Option<i32> {
        let below = self.entries.partition_point(|entry| entry.epoch < epoch);
        self.entries[..below].last().map(|entry| entry.epoch)
    }

    /// The smallest epoch above `epoch`.
    pub fn next_epoch(&self, epoch: i32) -> Option<i32> {
        let up_to = self.entries.partition_point(|entry| entry.epoch <= epoch);
        self.entries.get(up_to).map(|entry| entry.epoch)
    }

    /// The entry of exactly this epoch.
    pub fn entry(&self, epoch: i32) -> Option<LeaderEpochEntry> {
        let at = self.entries.binary_search_by_key(&epoch, |entry| entry.epoch).ok()?;
        self.entries.get(at).copied()
    }

    /// The epoch in which the record at `offset` was written; `None` below the first start offset.
    pub fn epoch_for_offset(&self, offset: Offset) -> Option<i32> {
        let up_to = self.entries.partition_point(|entry| entry.start_offset <= offset);
        self.entries[..up_to].last().map(|entry| entry.epoch)
    }

    /// Where `epoch` ends in a log that ends at `log_end_offset`. `None` is Kafka's (−1, −1): the epoch is −1, or
    /// larger than any known here.
    pub fn end_offset_for(&self, epoch: i32, log_end_offset: Offset) -> Option<EpochEndOffset> {
        if epoch < 0 {
            return None;
        }
        if self.latest_epoch() == Some(epoch) {
            return Some(EpochEndOffset { epoch, end_offset: log_end_offset });
        }
        let up_to = self.entries.partition_point(|entry| entry.epoch <= epoch);
        let (known, later) = self.entries.split_at(up_to);
        let end_offset = later.first()?.start_offset;
        Some(EpochEndOffset { epoch: known.last().map_or(epoch, |entry| entry.epoch), end_offset })
    }

    /// Removes the epochs that began at or above `end_offset`, as after a truncation of the log. Returns whether
    /// something changed.
    pub fn truncate_from_end(&mut self, end_offset: Offset) -> bool {
        let kept = self.entries.partition_point(|entry| entry.start_offset < end_offset);
        let changed = kept < self.entries.len();
        self.entries.truncate(kept);
        changed
    }

    /// Makes the log begin at `start_offset`: of the epochs that began there or below, the last is kept, with that
    /// start. Returns whether something changed.
    pub fn truncate_from_start(&mut self, start_offset: Offset) -> bool {
        let up_to = self.entries.partition_point(|entry| entry.start_offset <= start_offset);
        let Some(last) = up_to.checked_sub(1) else { return false };
        self.entries.drain(..last);
        let changed = last > 0 || self.entries[0].start_offset != start_offset;
        self.entries[0].start_offset = start_offset;
        changed
    }

    /// Removes every epoch: the log was emptied, or a batch of a format without epochs was appended. Returns whether
    /// something changed.
    pub fn clear(&mut self) -> bool {
        let changed = !self.entries.is_empty();
        self.entries.clear();
        changed
    }
}
