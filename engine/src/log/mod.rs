//! One partition's log: its settings, what a leader and a follower accept, its leader epochs; and the log itself, seen
//! at one moment.

mod addresses;
mod append;
pub(crate) mod checkpoint;
pub mod config;
pub mod epochs;
mod open;
mod partition;
mod read;
mod rebuild;
mod snapshot;
mod split;
mod state_files;
#[cfg(test)]
mod tests;
mod tidy_up;
mod truncate;
pub mod validate;

pub(crate) use addresses::Addresses;

pub use append::{AppendError, AppendInfo, CoordinatorRecord, LeaderRequest};
pub use checkpoint::{CheckpointFault, LeaderEpochCheckpoint, LeaderEpochEntry};
pub use config::LogConfig;
pub use epochs::LeaderEpochFileCache;
pub use open::{LogRecovery, LogState, RecoveryReason, SegmentRecovery};
pub use partition::{Log, LogOffsets, LogOwner};
pub use read::{HeldLog, LogRead, ReadUpTo};
pub use rebuild::ProducerReport;
pub use snapshot::{LogSnapshot, RecoveryPoint, RecoveryState, SegmentInfo};
