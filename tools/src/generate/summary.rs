//! What was written, counted while it was written.

use redrive::transaction_log::TransactionState;

/// What one partition holds: what a complete load of it must find.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartitionSummary {
    /// Number of the partition, from 0.
    pub partition: i32,
    /// Segments, at least 1.
    pub segments: u64,
    /// Bytes of the log files.
    pub bytes: u64,
    /// Batches.
    pub batches: u64,
    /// Records, tombstones included.
    pub records: u64,
    /// Records without a value.
    pub tombstones: u64,
    /// Places between two batches where offsets are missing.
    pub gaps: u64,
    /// Offsets missing there.
    pub gap_offsets: u64,
    /// Ids with a state: those that a load finds.
    pub ids: u64,
    /// Ids whose last record is a tombstone.
    pub tombstoned_ids: u64,
    /// Ids by the code of their state.
    pub by_state: [u64; TransactionState::ALL.len()],
    /// Bytes of the batches with the newest records of those ids.
    pub live_bytes: u64,
    /// Offset after the last record.
    pub log_end_offset: i64,
}

impl PartitionSummary {
    /// Ids in this state.
    pub fn in_state(&self, state: TransactionState) -> u64 {
        usize::try_from(state.code()).map_or(0, |code| self.by_state[code])
    }

    pub(super) fn count_state(&mut self, state: TransactionState, bytes: u64) {
        self.ids += 1;
        self.live_bytes += bytes;
        if let Ok(code) = usize::try_from(state.code()) {
            self.by_state[code] += 1;
        }
    }
}

/// What was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// Every partition, by number.
    pub partitions: Vec<PartitionSummary>,
}

impl Summary {
    /// All partitions as if they were one; its number and offset mean nothing.
    pub fn total(&self) -> PartitionSummary {
        let mut total = PartitionSummary::default();
        for part in &self.partitions {
            total.segments += part.segments;
            total.bytes += part.bytes;
            total.batches += part.batches;
            total.records += part.records;
            total.tombstones += part.tombstones;
            total.gaps += part.gaps;
            total.gap_offsets += part.gap_offsets;
            total.ids += part.ids;
            total.tombstoned_ids += part.tombstoned_ids;
            total.live_bytes += part.live_bytes;
            total.by_state.iter_mut().zip(part.by_state).for_each(|(sum, count)| *sum += count);
        }
        total
    }
}
