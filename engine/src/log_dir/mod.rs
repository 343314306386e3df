//! A log directory (an entry of Kafka's `log.dirs`): which partitions it holds, and what its own files say.
//!
//! Opened read-only: what a broker would delete, rename or create at its start is computed and left undone.

pub mod checkpoint;
mod directory;
mod partition_name;
mod segments;

pub use directory::{LogDir, Notice, NoticeKind, PartitionDir};
pub use partition_name::{DirectoryName, DirectoryState};
