//! Transactions of a partition by their first offsets: open ones, and ended ones whose marker is not replicated yet
//! (Kafka's TxnMetadata, CompletedTxn).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::types::{Offset, ProducerId};

/// A transaction that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletedTransaction {
    /// Its producer.
    pub producer_id: ProducerId,
    /// First offset of its data.
    pub first_offset: Offset,
    /// Offset of its marker.
    pub last_offset: Offset,
    /// Whether the marker is an ABORT: then the transaction belongs into the index of aborted transactions.
    pub is_aborted: bool,
    /// Where the oldest transaction begins that is still open at the marker, of whatever producer; the offset after the
    /// marker if there is none. Everything below it is decided.
    pub last_stable_offset: Offset,
}

/// Bound: one open transaction for each producer; of ended ones what was written since the high watermark.
#[derive(Clone, Debug, Default)]
pub(super) struct Transactions {
    open: BTreeMap<Offset, ProducerId>,
    /// First offsets of those whose marker is in the log, and [`complete`](Self::complete) not yet called.
    ended: BTreeSet<Offset>,
    /// Marker offset and first offset, as the markers lie in the log.
    unreplicated: VecDeque<(Offset, Offset)>,
    /// First offsets of `unreplicated`.
    unreplicated_first: BTreeSet<Offset>,
}

impl Transactions {
    pub(super) fn begin(&mut self, producer_id: ProducerId, first_offset: Offset) {
        self.open.insert(first_offset, producer_id);
    }

    /// The marker of a transaction is in the log. Transactions that begin behind the marker must not be registered yet.
    pub(super) fn end(
        &mut self,
        producer_id: ProducerId,
        first_offset: Offset,
        marker: Offset,
        is_aborted: bool,
    ) -> CompletedTransaction {
        self.open.remove(&first_offset);
        self.ended.insert(first_offset);
        CompletedTransaction {
            producer_id,
            first_offset,
            last_offset: marker,
            is_aborted,
            last_stable_offset: self.open.first_key_value().map_or(marker.next(), |(&first, _)| first),
        }
    }

    /// False if it did not end before, or was completed already.
    pub(super) fn complete(&mut self, transaction: &CompletedTransaction) -> bool {
        let CompletedTransaction { first_offset, last_offset, .. } = *transaction;
        if !self.ended.remove(&first_offset) {
            return false;
        }
        self.unreplicated.push_back((last_offset, first_offset));
        self.unreplicated_first.insert(first_offset);
        true
    }

    /// Markers below this offset are replicated, or no longer in the log.
    pub(super) fn remove_unreplicated_below(&mut self, offset: Offset) {
        while let Some(&(marker, first)) = self.unreplicated.front() {
            if marker >= offset {
                break;
            }
            self.unreplicated.pop_front();
            self.unreplicated_first.remove(&first);
        }
    }

    pub(super) fn first_undecided_offset(&self) -> Option<Offset> {
        let open = self.open.first_key_value().map(|(first, _)| first);
        open.into_iter().chain(self.ended.first()).min().copied()
    }

    pub(super) fn first_unstable_offset(&self) -> Option<Offset> {
        let unreplicated = self.unreplicated_first.first().copied();
        self.first_undecided_offset().into_iter().chain(unreplicated).min()
    }

    /// First offsets and producers of the open transactions, by first offset.
    pub(super) fn open(&self) -> impl Iterator<Item = (Offset, ProducerId)> {
        self.open.iter().map(|(&first, &producer_id)| (first, producer_id))
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}
