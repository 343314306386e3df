//! `redrive generate`: log directories of `__transaction_state` of any size, the same bytes from the same seed.
//!
//! ```text
//! Spec ─ Plan ─ ids by partition ─ Schedule (which id goes on) ─ Transaction (what it writes) ─ batch ─ segments
//! ```
//!
//! | module | gives |
//! |---|---|
//! | `spec` | what is asked for, and what makes no sense |
//! | `plan` | the same in numbers: ids, records, times, and the ids of each partition |
//! | `ids` | the names |
//! | `life` | the records of one transaction, as a coordinator writes them (KIP-98, KIP-890) |
//! | `topics` | the partitions that transactions write to |
//! | `batch` | records to bytes |
//! | `segments` | the files of one partition: log, indexes, snapshots |
//! | `schedule` | one partition: its ids interleaved, expired, cleaned |
//! | `run` | all partitions, on threads |
//! | `out`, `into` | a directory of its own, or the folders of a stopped broker |
//! | `summary` | what was written, counted while it was written |
//! | `command` | the command line |
//!
//! Partitions share nothing but the seed, so the number of threads changes no byte. Memory: some 50 bytes an id of the
//! partitions in work, 4 bytes an id of the others; nothing grows with the number of records.
//!
//! The way from records to bytes is one of its own, made for speed: tests hold what it writes against the engine, the
//! slow twin and a real broker.

mod batch;
mod command;
mod error;
mod ids;
mod into;
mod life;
mod out;
mod plan;
mod random;
mod run;
mod schedule;
mod segments;
mod spec;
mod summary;
mod topics;

pub use command::{GenerateArgs, run};
pub use error::GenerateError;
pub use into::generate_into;
pub use out::generate;
pub use run::{Observer, Progress};
pub use spec::{EndShares, IdShape, PARTITIONS_MAX, Scenario, Spec, ValueVersions, Volume};
pub use summary::{PartitionSummary, Summary};
