//! One partition's log, seen at one moment.

mod snapshot;

pub use snapshot::{LogSnapshot, RecoveryPoint, RecoveryState, SegmentInfo};
