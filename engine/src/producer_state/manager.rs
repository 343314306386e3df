//! Everything that a partition remembers of its producers (Kafka's ProducerStateManager).

use super::entry::{Entry, Table};
use super::transactions::Transactions;
use super::verification::Verifications;
use super::{
    ProducerRejection, ProducerSnapshot, ProducerStateEntry, VerificationGuard, VerificationStateEntry,
};
use crate::types::{Offset, ProducerId};

/// How much longer than the longest time-out allowed a transaction may be idle before it counts as late, ms
/// (`ProducerStateManager.LATE_TRANSACTION_BUFFER_MS`).
pub const LATE_TRANSACTION_BUFFER_MS: i64 = 300_000;

/// What a partition remembers of its producers, after all batches below
/// [`map_end_offset`](Self::map_end_offset). One writer; a copy is a copy of everything.
///
/// Bytes for a producer, at any load of the hash map: 75 to 102 with one batch, 171 to 198 with two to five. An open
/// transaction has some 30 more, one whose marker is not replicated some 50. Producers are not limited in number: they
/// go when they [expire](Self::remove_expired).
#[derive(Clone, Debug)]
pub struct ProducerStateManager {
    pub(super) producers: Table,
    pub(super) transactions: Transactions,
    pub(super) verifications: Verifications,
    pub(super) map_end_offset: Offset,
    producer_id_expiration_ms: i64,
    pub(super) verifies_transactions: bool,
}

impl ProducerStateManager {
    /// Of an empty log from offset 0. `producer_id_expiration_ms` is the broker's `producer.id.expiration.ms`, at least
    /// 1: how long after its last timestamp a producer is remembered.
    pub fn new(producer_id_expiration_ms: i64) -> Self {
        Self {
            producers: Table::default(),
            transactions: Transactions::default(),
            verifications: Verifications::default(),
            map_end_offset: Offset(0),
            producer_id_expiration_ms,
            verifies_transactions: false,
        }
    }

    /// Whether a transactional batch has to bring a [`VerificationGuard`] where it opens a transaction
    /// (`transaction.partition.verification.enable`). Off at first: the one who appends must ask the coordinator.
    pub fn set_transaction_verification(&mut self, is_on: bool) {
        self.verifies_transactions = is_on;
    }

    /// What is known of a producer. Cost: one look-up.
    pub fn entry(&self, producer_id: ProducerId) -> Option<ProducerStateEntry<'_>> {
        self.producers.view(producer_id)
    }

    /// All producers that something is known of, in no order.
    pub fn entries(&self) -> impl Iterator<Item = ProducerStateEntry<'_>> {
        self.producers.iter()
    }

    /// How many producers something is known of.
    pub fn len(&self) -> usize {
        self.producers.len()
    }

    /// Whether nothing is known of any producer.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All batches below this offset have been taken in.
    pub fn map_end_offset(&self) -> Offset {
        self.map_end_offset
    }

    /// Says that up to this offset there was nothing more to take in (`updateMapEndOffset`).
    pub fn set_map_end_offset(&mut self, offset: Offset) {
        self.map_end_offset = offset;
    }

    /// First offset of the oldest transaction that is not decided: no marker yet, or one that is not
    /// [completed](Self::complete).
    pub fn first_undecided_offset(&self) -> Option<Offset> {
        self.transactions.first_undecided_offset()
    }

    /// First offset of the oldest transaction that is not decided, or whose marker is not below the high watermark. It
    /// may lie below the log start.
    pub fn first_unstable_offset(&self) -> Option<Offset> {
        self.transactions.first_unstable_offset()
    }

    /// The last stable offset: below it every transaction is decided, and replicated. Exclusive; from `log_start` to
    /// `high_watermark`.
    pub fn last_stable_offset(&self, high_watermark: Offset, log_start: Offset) -> Offset {
        match self.first_unstable_offset() {
            Some(first) => first.max(log_start).min(high_watermark),
            None => high_watermark,
        }
    }

    /// First offsets and producers of the open transactions, by first offset.
    pub fn ongoing_transactions(&self) -> impl Iterator<Item = (Offset, ProducerId)> {
        self.transactions.open()
    }

    /// Whether the oldest open transaction has been idle for longer than any time-out allows: its coordinator should
    /// have ended it. `max_transaction_timeout_ms` is `transaction.max.timeout.ms`. Idle means that its producer's last
    /// timestamp is that old; one without a timestamp is never late.
    pub fn has_late_transaction(&self, now_ms: i64, max_transaction_timeout_ms: i64) -> bool {
        let oldest =
            self.transactions.open().next().and_then(|(_, producer_id)| self.producers.get(producer_id));
        let most = max_transaction_timeout_ms.saturating_add(LATE_TRANSACTION_BUFFER_MS);
        oldest.is_some_and(|entry| {
            entry.last_timestamp > 0 && now_ms.saturating_sub(entry.last_timestamp) > most
        })
    }

    /// The high watermark moved to `offset`: markers below it are replicated. Cost: by their number.
    pub fn on_high_watermark_updated(&mut self, offset: Offset) {
        self.transactions.remove_unreplicated_below(offset);
    }

    /// The log starts at `offset` now. Producers outlive their data; transactions that ended below it do not
    /// (`onLogStartOffsetIncremented`).
    pub fn on_log_start_raised(&mut self, offset: Offset) {
        self.transactions.remove_unreplicated_below(offset);
        self.map_end_offset = self.map_end_offset.max(offset);
    }

    /// Forgets producers without an open transaction whose last timestamp is `producer.id.expiration.ms` old, and
    /// verifications that began as long ago; how many producers. Open transactions never expire here. Cost: one pass
    /// over all.
    pub fn remove_expired(&mut self, now_ms: i64) -> usize {
        let expiration_ms = self.producer_id_expiration_ms;
        let is_expired = |timestamp: i64| now_ms.saturating_sub(timestamp) >= expiration_ms;
        self.verifications.remove_expired(is_expired);
        self.producers
            .retain(|entry| entry.current_txn_first_offset().is_some() || !is_expired(entry.last_timestamp))
    }

    /// Forgets all producers and transactions of a log that begins anew at `offset`. Verifications go on.
    pub fn truncate_fully_and_start_at(&mut self, offset: Offset) {
        self.producers.clear();
        self.transactions.clear();
        self.map_end_offset = offset;
    }

    /// The producers as a snapshot has them, by producer id; its file is named after
    /// [`map_end_offset`](Self::map_end_offset). Of each producer only the newest batch comes back from it.
    pub fn snapshot(&self) -> ProducerSnapshot {
        let mut entries: Vec<_> = self.producers.iter().map(|entry| entry.to_snapshot()).collect();
        entries.sort_unstable_by_key(|entry| entry.producer_id);
        ProducerSnapshot { entries }
    }

    /// Takes the producers of a snapshot in place of all that is known. Expired ones are left out. `offset` is that of
    /// the file's name. Transactions that had ended before are replicated as far as this state knows.
    pub fn load_snapshot(&mut self, snapshot: &ProducerSnapshot, offset: Offset, now_ms: i64) {
        self.truncate_fully_and_start_at(offset);
        for entry in &snapshot.entries {
            let age_ms = now_ms.saturating_sub(entry.last_timestamp);
            if entry.current_txn_first_offset.is_none() && age_ms >= self.producer_id_expiration_ms {
                continue;
            }
            *self.producers.get_or_insert(entry.producer_id) = Entry::of_snapshot(entry);
        }
        // Of a producer that is there twice the last entry counts, so this comes at the end.
        for entry in self.producers.iter() {
            if let Some(first_offset) = entry.current_txn_first_offset() {
                self.transactions.begin(entry.producer_id(), first_offset);
            }
        }
    }

    /// A batch of a producer that may open a transaction is about to come: gives the guard that it has to bring along
    /// once the coordinator has said yes; the same one as long as no transactional batch came in between. `None` if a
    /// transaction of this epoch is open: then nothing need be verified (`maybeStartTransactionVerification`).
    ///
    /// `sequence` is the batch's base sequence, `supports_epoch_bump` whether the client uses transaction version 2.
    ///
    /// # Errors
    /// [`InvalidProducerEpoch`](ProducerRejection::InvalidProducerEpoch): the producer was fenced.
    pub fn start_verification(
        &mut self,
        producer_id: ProducerId,
        sequence: i32,
        producer_epoch: i16,
        supports_epoch_bump: bool,
        now_ms: i64,
    ) -> Result<Option<VerificationGuard>, ProducerRejection> {
        if let Some(entry) = self.producers.get(producer_id) {
            let known_epoch = entry.producer_epoch();
            if known_epoch > producer_epoch {
                let offset = self.map_end_offset;
                return Err(ProducerRejection::InvalidProducerEpoch {
                    producer_id,
                    producer_epoch,
                    known_epoch,
                    offset,
                });
            }
            if known_epoch == producer_epoch && entry.current_txn_first_offset().is_some() {
                return Ok(None);
            }
        }
        let verifications = &mut self.verifications;
        Ok(Some(verifications.begin(producer_id, sequence, producer_epoch, supports_epoch_bump, now_ms)))
    }

    /// The verification of a producer that is under way.
    pub fn verification_state_entry(&self, producer_id: ProducerId) -> Option<&VerificationStateEntry> {
        self.verifications.get(producer_id)
    }
}
