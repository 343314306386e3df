//! redrive: a storage engine for Kafka's transaction logs, byte-compatible with Kafka's own files.
//!
//! Its one job is to make the time short in which a new transaction coordinator has to answer
//! `COORDINATOR_LOAD_IN_PROGRESS`. Modules in the order in which data passes through them; each uses only those
//! above it:
//!
//! | module | gives | must not know |
//! |---|---|---|
//! | [`types`] | offsets, producer ids, topic-partitions | the rest |
//! | `machine` (private) | everything `unsafe`: CPU kernels, huge pages, mappings, io_uring | Kafka |
//! | [`io`] | files and shared bytes | Kafka |
//! | [`batch`] | bytes → header → checked batch → records, and back | files, neighbours |
//! | [`transaction_log`] | keys and values of `__transaction_state` ↔ metadata | batches, files |
//! | `map` (private) | id → address of its newest record, by any number of threads | files, batches |
//! | [`producer_state`] | what is known of producers: sequences, epochs, open transactions | files, transactional ids |
//! | [`error`] | what went wrong, where, and what to do | |
//! | [`segment`] | one segment and its index files: find, append, cut, recover | other segments |
//! | [`log`] | one partition: append, roll, read, truncate, recover | keys |
//! | [`log_dir`] | a log directory: names, checkpoints, lock, all its logs | keys, ids |
//! | [`mod@replay`] | snapshots → the newest state of every transactional id | coordinators |
//!
//! The first thing to do with it:
//!
//! ```no_run
//! let loaded = redrive::replay("/backup/broker-3/kafka-logs")?.run()?;
//! let entry = loaded.get("billing-118")?;
//! # Ok::<(), redrive::Error>(())
//! ```

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
compile_error!("redrive runs on Linux on x86-64 and aarch64 only");

pub mod types;

pub(crate) mod machine;

pub mod io;

pub mod batch;

pub mod transaction_log;

pub(crate) mod map;

pub mod producer_state;

pub mod error;

pub mod segment;

pub mod log;

pub mod log_dir;

pub mod replay;

pub use error::Error;
pub use replay::replay;
