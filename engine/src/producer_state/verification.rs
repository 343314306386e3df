//! Verification of transactions (Kafka's VerificationStateEntry, VerificationGuard; KIP-890): before a batch opens a
//! transaction in a partition, the leader asks the coordinator whether there is such a transaction. The guard that is
//! given out at the question has to come back with the batch; a marker in between makes it void.

use std::collections::HashMap;

use crate::types::ProducerId;

/// What a transactional batch has to bring along. Equal only to itself, within the state that gave it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VerificationGuard(u64);

/// Verification of one producer that is under way (Kafka's VerificationStateEntry). Lives in memory only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerificationStateEntry {
    /// When it began, ms since the epoch.
    pub timestamp: i64,
    /// The guard.
    pub guard: VerificationGuard,
    /// Lowest sequence that a verification was begun for.
    pub lowest_sequence: i32,
    /// Epoch of the producer.
    pub epoch: i16,
    /// Whether the client uses transaction version 2, in which each transaction has an epoch of its own.
    pub supports_epoch_bump: bool,
}

/// Bound: one entry of 48 bytes for each producer id, until a transactional batch of it comes or the entry expires.
#[derive(Clone, Debug, Default)]
pub(super) struct Verifications {
    entries: HashMap<ProducerId, VerificationStateEntry>,
    guards: u64,
}

impl Verifications {
    pub(super) fn get(&self, producer_id: ProducerId) -> Option<&VerificationStateEntry> {
        self.entries.get(&producer_id)
    }

    /// Makes an entry, or brings the one that is there up to date (`maybeUpdateLowestSequenceAndEpoch`).
    pub(super) fn begin(
        &mut self,
        producer_id: ProducerId,
        sequence: i32,
        epoch: i16,
        supports_epoch_bump: bool,
        now_ms: i64,
    ) -> VerificationGuard {
        let guards = &mut self.guards;
        let entry = self.entries.entry(producer_id).or_insert_with(|| {
            *guards += 1;
            VerificationStateEntry {
                timestamp: now_ms,
                guard: VerificationGuard(*guards),
                lowest_sequence: sequence,
                epoch,
                supports_epoch_bump,
            }
        });
        if epoch > entry.epoch {
            entry.epoch = epoch;
            entry.lowest_sequence = sequence;
        } else if epoch == entry.epoch && sequence < entry.lowest_sequence {
            entry.lowest_sequence = sequence;
        }
        entry.guard
    }

    /// A transactional batch of the producer is in the log. A marker of the epoch of an entry of transaction version 2
    /// ended the transaction before: there each has an epoch of its own, so the entry is for the next one.
    pub(super) fn on_transactional_batch(&mut self, producer_id: ProducerId, epoch: i16, is_marker: bool) {
        let is_of_next =
            |entry: &VerificationStateEntry| is_marker && entry.supports_epoch_bump && entry.epoch == epoch;
        if !self.get(producer_id).is_some_and(is_of_next) {
            self.entries.remove(&producer_id);
        }
    }

    pub(super) fn remove_expired(&mut self, is_expired: impl Fn(i64) -> bool) {
        self.entries.retain(|_, entry| !is_expired(entry.timestamp));
    }
}
