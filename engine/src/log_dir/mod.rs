//! A log directory (an entry of Kafka's `log.dirs`): which partitions it holds, and what its own files say.
//!
//! [`LogDir`] opens one read-only: what a broker would delete, rename or create at its start is computed and left undone.
//! [`LogRoot`] opens one to write to it, in a broker's place: it holds the lock, recovers, and keeps the checkpoints.

pub mod checkpoint;
mod directory;
mod partition_name;
mod root;
mod segments;
pub mod verify;

pub use directory::{LogDir, Notice, NoticeKind, PartitionDir};
pub use partition_name::{DirectoryName, DirectoryState};
pub use root::{LogRoot, OpenOptions, RootRecovery, check_duplicates};
