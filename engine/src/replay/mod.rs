//! The load of `__transaction_state`: from log directories to a map of every transactional id's newest state.
//!
//! ```text
//! LogDir ─ LogSnapshot ─ SegmentReader ─ BatchFrame ─ Batch ─ Record ─ Key, Value ─ PartitionMap
//! ```
//!
//! Partitions are loaded side by side on threads of the load's own, largest first, and each is published as soon as
//! it is ready. A partition is complete or refused: a bad checksum, an undecodable key or value or an offset that
//! goes back refuses it with the place and the reason, and the others load. Only the torn tail that a crash leaves
//! is forgiven, under the conditions of [`Tail`], and then it is reported.
//!
//! Differences from Kafka's TransactionStateManager.loadTransactionMetadata, all on purpose: CRCs are checked,
//! control batches are skipped, a failed scan is never served, several threads work.

mod budget;
mod bytes;
mod damage;
mod direct;
mod load;
mod map;
mod observer;
mod partition;
mod reach;
mod records;
mod report;
mod scan;
#[cfg(test)]
mod tests;
mod usual;
mod walk;

pub use crate::machine::memory::memory_limit;
pub use load::{Order, Replay, replay};
pub use map::{PartitionMap, TransactionEntry};
pub use observer::{Cancel, Observer, Progress};
pub use reach::IoChoice;
pub use report::{
    Identity, IoUsed, Loaded, PartitionOutcome, PartitionStats, Phases, Skipped, SkippedPlace, StateCounts,
    Tail, UnknownKind, UnknownRecord,
};
