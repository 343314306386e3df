//! The load of `__transaction_state`: from log directories to a map of every transactional id's newest state.
//!
//! ```text
//! load       which partitions, by which threads; maps are published as they are ready, then live bytes are counted
//! reach      how bytes are reached: mapped, by position, past the page cache
//! partition  a partition in chunks: scanned early, applied when the border before them is proven
//!   bytes, direct   a chunk's bytes
//!   scan ─ usual    bytes → candidates: hash, address and state of each record; the batch that coordinators write
//!                   takes a short way
//!   map (crate)     candidates → the newest of each id
//!   walk ─ damage   the slow way, from the first problem on, and what is to be made of it
//! records    values read back from the log, for PartitionMap
//! ```
//!
//! Partitions are loaded side by side on threads of the load's own, and each is published as soon as it is ready;
//! threads without a partition of their own help with those that are left. A partition is complete or refused: a bad checksum, an undecodable key or value or an offset that
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
