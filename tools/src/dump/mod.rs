//! `redrive dump`: what lies in a log, an index, a snapshot or a checkpoint file (Kafka's `kafka-dump-log`).
//!
//! With `--format kafka` the text is that of the tool of Kafka 4.4, byte by byte, with its exit status 0 or 1 and its
//! collected problems on standard error. Where that tool ends with an exception, this one ends with a sentence. It
//! differs on purpose in these points:
//!
//! - It creates no file. Kafka's makes an empty `.index` where a time index lacks one, and then fails.
//! - A file that cannot be opened gives exit status 3, not 1.
//! - A `LeaderChange` of version 1 is read as version 1. Kafka's reads it as version 0 and shows garbage.
//! - A snapshot with bytes behind its last entry is refused. Kafka's reads it if the CRC covers them.
//! - The reason behind `skipping.` of a record that cannot be decoded is in our own words.
//!
//! The other formats are ours: every file is gone through to its end, damage is reported with its place, and the exit
//! status is 1 if there was any. They also know the checkpoint files, which Kafka's tool ignores.
//!
//! The way of the data: `run` opens each file and hands it to a walk (`log`, `index`, `snapshot`, `checkpoint`), which
//! knows nothing of formats and sends events to one of two sinks, `kafka` or `own`. Everything is streamed: a log is read
//! through a window of 1 MiB or one batch, whichever is larger. Of records, one batch is held at a time.

mod args;
mod checkpoint;
mod decoder;
mod event;
mod index;
mod input;
mod json;
mod kafka;
mod log;
mod own;
mod run;
mod schema;
mod snapshot;
mod tables;

pub use args::{DumpArgs, DumpFormat};
pub use run::{DumpStatus, run};
