//! One partition's log, seen at one moment.

mod addresses;
mod snapshot;

pub(crate) use addresses::Addresses;

pub use snapshot::{LogSnapshot, RecoveryPoint, RecoveryState, SegmentInfo};
