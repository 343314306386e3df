//! One partition's log, seen at one moment.

mod snapshot;

pub use snapshot::{LogSnapshot, RecoveryState, SegmentInfo};
