//! The check of whole log directories (`redrive verify`): every file against its own format, and against the files that
//! it has to agree with. Read-only; nothing is made, changed or locked, and a running broker may hold the directory.
//!
//! | of | is checked |
//! |---|---|
//! | `.log` | lengths, CRCs, header fields, records, control records; offsets that rise and lie in reach of their segment and inside their batch; leader epochs |
//! | `.index`, `.timeindex` | every entry against the batch that it names; order; padding told from damage |
//! | `.snapshot` | form, CRC, entries within the log; the producers against those that a replay of the log gives |
//! | `leader-epoch-checkpoint` | form, order, against the epochs of the batches |
//! | `partition.metadata`, `meta.properties`, checkpoints of the root | form; offsets against the logs |
//! | names | what no broker writes, and what an interrupted change left behind |
//!
//! What is not checked: the content of `.txnindex`, and whether an index has all the entries that it could have.
//!
//! A [`Finding`] is an error where data or a file is wrong, else a note.

mod finding;
mod indexes;
mod partition;
mod report;
mod root;
mod run;
mod snapshots;
mod walk;

pub use finding::{Finding, FindingKind, Severity};
pub use report::{LeftOut, PartitionReport, VerifyCounts, VerifyReport};
pub use run::{Verify, VerifyProgress};
