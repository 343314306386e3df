//! One segment of a partition: the names of its files, its index files, and a walk over its batches.
//!
//! | name | content |
//! |---|---|
//! | `B.log` | batches, back to back |
//! | `B.index`, `B.timeindex`, `B.txnindex` | see [`index`] |
//! | `S.snapshot` | producer state below offset S |
//! | any of them + `.deleted` | waits for its removal |
//! | any but snapshots + `.cleaned` | output of a cleaner that did not finish |
//! | any but snapshots + `.swap` | finished output that is to replace what it covers |
//!
//! B and S are log offsets of exactly 20 decimal digits. No record of a segment lies below B, and none above
//! B + 2^31 − 1.
//!
//! [`SegmentReader`] walks a file that somebody else may own. [`Segment`] is one of ours, shared by its readers, and
//! [`SegmentWriter`] appends to it.

mod batches;
mod config;
mod files;
pub mod index;
mod live;
mod name;
mod published;
mod reader;
mod recover;
mod tail;
#[cfg(test)]
mod tests;
mod time;
mod truncate;
mod walk;
mod writer;

pub use config::SegmentConfig;
pub use live::{BatchPosition, NeedsRecovery, Segment, SegmentRead, TimestampOffset};
pub use name::{SegmentFileKind, SegmentFileName, SegmentFileState};
pub use reader::{Access, Frame, FrameAt, Next, SegmentReader};
pub use recover::{Cut, CutReason, Recovered, RecoveryFault};
pub(crate) use tail::{Survivor, crc_of_range, find_survivor, search_budget};
pub use time::TimestampedRecord;
pub use walk::BatchFacts;
pub use writer::{AppendFault, Incoming, RollReason, SegmentWriter};
