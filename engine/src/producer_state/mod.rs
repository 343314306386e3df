//! What a partition remembers of its producers (Kafka's ProducerStateManager, KIP-98, KIP-360, KIP-890, KIP-1228). Pure:
//! no files, no threads, no clock; times are arguments.
//!
//! | what | where | over a restart |
//! |---|---|---|
//! | producer: epochs, last timestamp, five newest batches, open transaction | [`ProducerStateEntry`] | by a [`ProducerSnapshot`], with one batch |
//! | open transactions by first offset | [`first_undecided_offset`](ProducerStateManager::first_undecided_offset) | from the producers |
//! | ended ones whose marker is not below the high watermark | [`first_unstable_offset`](ProducerStateManager::first_unstable_offset) | by replay |
//! | verifications under way | [`VerificationStateEntry`] | no |
//!
//! | step of an append | call | changes |
//! |---|---|---|
//! | is it in order? | [`begin_append`](ProducerStateManager::begin_append), [`analyze`](ProducerStateManager::analyze) for each batch | nothing |
//! | the log writes | | |
//! | take it over | [`apply`](ProducerStateManager::apply) | producers, transactions |
//! | aborted ones go to the index | [`complete`](ProducerStateManager::complete) for each ended one | the last stable offset may move |
//!
//! | refusal | Kafka's error |
//! |---|---|
//! | [`InvalidProducerEpoch`](ProducerRejection::InvalidProducerEpoch) | INVALID_PRODUCER_EPOCH |
//! | [`OutOfOrderSequence`](ProducerRejection::OutOfOrderSequence) | OUT_OF_ORDER_SEQUENCE_NUMBER |
//! | [`NotVerified`](ProducerRejection::NotVerified), [`NotTransactional`](ProducerRejection::NotTransactional) | INVALID_TXN_STATE |
//! | [`TransactionCoordinatorFenced`](ProducerRejection::TransactionCoordinatorFenced) | TRANSACTION_COORDINATOR_FENCED |
//! | a batch that was sent before | none: [`DuplicateBatch`] is the answer |
//!
//! Unlike Kafka's, the last stable offset of an aborted transaction is that at its marker also where one call brings a
//! later transaction of the same producer: Kafka leaves that one out, and a look-up in its index may miss an abort.

mod append;
mod entry;
mod manager;
mod rejection;
mod reload;
mod rules;
mod snapshot;
mod transactions;
mod verification;

pub use append::{AppendAnalysis, DuplicateBatch};
pub use entry::{BATCHES_RETAINED, CachedBatch, ProducerStateEntry};
pub use manager::{LATE_TRANSACTION_BUFFER_MS, ProducerStateManager};
pub use rejection::{ProducerRejection, SequenceRule};
pub use reload::{
    Reload, clean_start_snapshots, gets_snapshot_on_rebuild, snapshots_outside, stray_snapshots,
};
pub use rules::ProducerAppendOrigin;
pub use snapshot::{BatchMetadata, ProducerEntry, ProducerSnapshot, SnapshotFault};
pub use transactions::CompletedTransaction;
pub use verification::{VerificationGuard, VerificationStateEntry};
