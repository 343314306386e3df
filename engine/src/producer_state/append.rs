//! An append in two phases: [`analyze`](ProducerStateManager::analyze) looks at the batches of one call, one after the
//! other, and changes nothing; the log writes them; [`apply`](ProducerStateManager::apply) then takes over what they
//! mean.

use std::collections::HashMap;

use super::entry::{CachedBatch, Entry};
use super::rules::{self, Content, Data, Known};
use super::{
    BatchMetadata, CompletedTransaction, ProducerAppendOrigin, ProducerRejection, ProducerStateManager,
    VerificationGuard,
};
use crate::batch::{BatchFrame, decrement_sequence};
use crate::types::{Offset, ProducerId};

/// A batch that the producer sent before: nothing is appended, and the producer is told this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DuplicateBatch {
    /// Offset that its first record got then.
    pub first_offset: Offset,
    /// Offset that its last record got then.
    pub last_offset: Offset,
    /// Its largest timestamp, ms since the epoch.
    pub timestamp: i64,
}

/// What the batches of one call mean for their producers. Nothing has come of it until it is applied; dropping it undoes
/// nothing because nothing was done.
///
/// Bound: some 100 bytes for each batch after the first, and for each producer after the first.
#[derive(Clone, Debug)]
pub struct AppendAnalysis {
    origin: ProducerAppendOrigin,
    /// Apart from the others so that the usual call, of one batch, allocates nothing.
    first: Option<(ProducerId, Content)>,
    others: Vec<(ProducerId, Content)>,
    /// What is known of the producer of the newest batch, once it is in the log.
    newest: Option<(ProducerId, Known)>,
    /// The same of the other producers of this call.
    before: HashMap<ProducerId, Known>,
}

impl AppendAnalysis {
    /// What this call knows of a producer.
    fn known(&self, producer_id: ProducerId) -> Option<Known> {
        match self.newest {
            Some((id, known)) if id == producer_id => Some(known),
            _ => self.before.get(&producer_id).copied(),
        }
    }

    fn push(&mut self, producer_id: ProducerId, content: Content, known: Known) {
        match self.newest.replace((producer_id, known)) {
            Some((before, known)) if before != producer_id => {
                self.before.insert(before, known);
            }
            _ => {}
        }
        match self.first {
            None => self.first = Some((producer_id, content)),
            Some(_) => self.others.push((producer_id, content)),
        }
    }
}

impl ProducerStateManager {
    /// Begins with the batches of one call.
    pub fn begin_append(&self, origin: ProducerAppendOrigin) -> AppendAnalysis {
        AppendAnalysis { origin, first: None, others: Vec::new(), newest: None, before: HashMap::new() }
    }

    /// Looks at the next batch of the call, with its final offsets. Batches without a producer id pass.
    ///
    /// | argument | needed for |
    /// |---|---|
    /// | `guard` | a transactional batch that opens a transaction, if [verification](Self::set_transaction_verification) is on |
    /// | `transaction_version` | a marker that is not replicated: 0, 1 or 2 |
    ///
    /// `Some` is a batch that was sent before: then the call has come to its end and nothing is appended. Only batches
    /// that were applied are compared, so a repetition within the call is out of order.
    ///
    /// Cost: one look-up; nothing is allocated for a call with one batch.
    ///
    /// # Errors
    /// [`ProducerRejection`], which tells Kafka's error. Replicated batches meet only
    /// [`NotTransactional`](ProducerRejection::NotTransactional) and what a marker that cannot be read gives.
    pub fn analyze(
        &self,
        analysis: &mut AppendAnalysis,
        frame: &BatchFrame<'_>,
        guard: Option<VerificationGuard>,
        transaction_version: i16,
    ) -> Result<Option<DuplicateBatch>, ProducerRejection> {
        let producer_id = frame.producer_id();
        if !producer_id.is_some() {
            return Ok(None);
        }
        let content = Content::of(frame)?;
        let installed = self.producers.get(producer_id);
        let known =
            analysis.known(producer_id).or_else(|| installed.map(Known::of)).unwrap_or(Known::NOTHING);
        let verification = self.verifications.get(producer_id);
        let origin = analysis.origin;
        match &content {
            Content::Data(data) => {
                if origin == ProducerAppendOrigin::Client
                    && let Some(duplicate) = installed.and_then(|entry| entry.duplicate_of(data))
                {
                    return Ok(Some(duplicate));
                }
                let opens = data.is_transactional
                    && (known.current_txn_first_offset.is_none()
                        || known.producer_epoch != data.producer_epoch);
                if opens && origin != ProducerAppendOrigin::Replication {
                    // Before the guard: one that was fenced is told so.
                    rules::check_epoch(producer_id, data.producer_epoch, &known, data.base_offset)?;
                    let is_verified = guard.is_some() && guard == verification.map(|entry| entry.guard);
                    if self.verifies_transactions && !is_verified {
                        return Err(ProducerRejection::NotVerified { producer_id, offset: data.base_offset });
                    }
                }
                rules::check_data(producer_id, data, &known, verification, origin)?;
            }
            Content::Marker(marker) if origin != ProducerAppendOrigin::Replication => {
                rules::check_marker(producer_id, marker, &known, transaction_version)?;
            }
            Content::Marker(_) | Content::EmptyControl => {}
        }
        let known = known.after(&content);
        analysis.push(producer_id, content, known);
        Ok(None)
    }

    /// The batches are in the log, which ends at `log_end_offset` now: takes over what they mean. Gives the transactions
    /// that ended, in the order of their markers. Each goes on holding the last stable offset back until it is
    /// [completed](Self::complete), so that an index of aborted transactions that cannot be written hides nothing.
    ///
    /// The analysis must be of this state as it is: nothing else was applied in between.
    pub fn apply(&mut self, analysis: AppendAnalysis, log_end_offset: Offset) -> Vec<CompletedTransaction> {
        let mut completed = Vec::new();
        for (producer_id, content) in analysis.first.into_iter().chain(analysis.others) {
            let entry = self.producers.get_or_insert(producer_id);
            match content {
                Content::Data(data) => {
                    entry.append(&data);
                    if data.is_transactional {
                        if entry.current_txn_first_offset().is_none() {
                            entry.set_current_txn_first_offset(Some(data.base_offset));
                            self.transactions.begin(producer_id, data.base_offset);
                        }
                        self.verifications.on_transactional_batch(producer_id, data.producer_epoch, false);
                    }
                }
                Content::Marker(marker) => {
                    let open = entry.current_txn_first_offset();
                    entry.set_producer_epoch(marker.producer_epoch);
                    entry.set_current_txn_first_offset(None);
                    entry.coordinator_epoch = marker.coordinator_epoch;
                    entry.last_timestamp = marker.timestamp;
                    if let Some(first_offset) = open {
                        completed.push(self.transactions.end(
                            producer_id,
                            first_offset,
                            marker.offset,
                            marker.is_aborted,
                        ));
                    }
                    if marker.is_transactional {
                        self.verifications.on_transactional_batch(producer_id, marker.producer_epoch, true);
                    }
                }
                Content::EmptyControl => {}
            }
        }
        self.map_end_offset = log_end_offset;
        completed
    }

    /// A transaction that [`apply`](Self::apply) gave is in the index of aborted transactions, if it belongs there: from
    /// now on only the replication of its marker is waited for. False if it was not waited for.
    pub fn complete(&mut self, transaction: &CompletedTransaction) -> bool {
        self.transactions.complete(transaction)
    }

    /// Takes over a batch that is in the log already: at loading, after a truncation, on recovery. The transaction that
    /// it ended, which is completed already; its entry in the index of aborted transactions is up to the caller.
    ///
    /// # Errors
    /// As [`analyze`](Self::analyze) for a replicated batch: no leader writes such a batch. The state is as before.
    pub fn replay(
        &mut self,
        frame: &BatchFrame<'_>,
    ) -> Result<Option<CompletedTransaction>, ProducerRejection> {
        let mut analysis = self.begin_append(ProducerAppendOrigin::Replication);
        self.analyze(&mut analysis, frame, None, 0)?;
        let completed = self.apply(analysis, frame.last_offset().next()).pop();
        if let Some(completed) = &completed {
            self.complete(completed);
        }
        Ok(completed)
    }
}

impl Known {
    fn of(entry: &Entry) -> Self {
        Self {
            producer_epoch: entry.producer_epoch(),
            coordinator_epoch: entry.coordinator_epoch,
            last_sequence: entry.last_batch().map(|batch| batch.metadata.last_sequence),
            current_txn_first_offset: entry.current_txn_first_offset(),
        }
    }
}

impl Entry {
    fn append(&mut self, data: &Data) {
        self.set_producer_epoch(data.producer_epoch);
        self.last_timestamp = data.timestamp;
        let delta = data.last_offset.0.saturating_sub(data.base_offset.0);
        self.push(CachedBatch {
            metadata: BatchMetadata {
                last_sequence: data.last_sequence,
                last_offset: data.last_offset,
                // The header has it in 31 bits.
                offset_delta: i32::try_from(delta).unwrap_or(i32::MAX),
            },
            timestamp: data.timestamp,
        });
    }

    /// The remembered batch with the same epoch, first and last sequence.
    fn duplicate_of(&self, data: &Data) -> Option<DuplicateBatch> {
        if self.producer_epoch() != data.producer_epoch {
            return None;
        }
        self.batches()
            .find(|batch| {
                let BatchMetadata { last_sequence, offset_delta, .. } = batch.metadata;
                last_sequence == data.last_sequence
                    && decrement_sequence(last_sequence, offset_delta) == data.base_sequence
            })
            .map(|batch| DuplicateBatch {
                first_offset: batch.metadata.first_offset(),
                last_offset: batch.metadata.last_offset,
                timestamp: batch.timestamp,
            })
    }
}
