//! What a partition's leader and its followers accept, before anything is written (Kafka's LogValidator and the scan
//! in UnifiedLog that comes before it). Pure: no files, no clock.
//!
//! | who | what | result |
//! |---|---|---|
//! | leader | [`LogValidator::validate`]: scan, rules for batch and records, offsets, epoch, times, codec | one batch, stamped where it lies or packed anew |
//! | follower | [`FollowerAppend::scan`]: CRC and order | how much of the bytes to append as they are |
//!
//! An append that breaks a rule is an [`AppendRejection`], which knows Kafka's name and code for it; nothing of the
//! caller's buffer has changed then.

mod follower;
mod leader;
mod rejection;
mod walk;

pub use follower::{FollowerAppend, FollowerScan, StoredBatch};
pub use leader::{AppendOrigin, LeaderAppend, LogValidator, ValidatedBatch};
pub use rejection::{AppendRejection, InvalidBatch, RECORDS_LISTED_MAX, RecordRejection, RejectedRecord};
