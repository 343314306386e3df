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

pub mod index;
mod name;
mod reader;
mod tail;

pub use name::{SegmentFileKind, SegmentFileName, SegmentFileState};
pub use reader::{Access, Frame, FrameAt, Next, SegmentReader};
pub(crate) use tail::{Survivor, crc_of_range, find_survivor, search_budget};
