//! The options of every command that loads, and the load itself: with progress, and with Ctrl-C.

use std::io;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use redrive::io::FileSystem;
use redrive::replay::{Cancel, Identity, IoChoice, Loaded, Order, Replay};
use signal_hook::consts::SIGINT;

use crate::console::{Console, Style};
use crate::failure::{Failure, Status};
use crate::json::{ErrorJson, RefusedJson};
use crate::progress::Bar;
use crate::text::{parse_size, sanitize};

/// Options of the commands that load.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Loading")]
pub struct LoadArgs {
    /// Topic to load; it must have the format of __transaction_state
    #[arg(long, value_name = "NAME", default_value = "__transaction_state")]
    pub topic: String,

    /// Load this partition only; may be repeated
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..))]
    pub partition: Vec<i32>,

    /// Threads to load with [default: available cores]
    #[arg(long, value_name = "N")]
    pub threads: Option<NonZero<usize>>,

    /// How to reach the bytes; auto looks whether they are in the page cache
    #[arg(long, value_enum, default_value_t = IoArg::Auto)]
    pub io: IoArg,

    /// Which partitions to load first; as-given takes the order of --partition
    #[arg(long, value_enum, default_value_t = OrderArg::LargestFirst)]
    pub order: OrderArg,

    /// What makes two ids the same: their text, or a keyed hash of it. A hash is faster where ids have many records, and
    /// takes two of 10 million ids for one with a probability below 1 in 10^11
    #[arg(long, value_enum, default_value_t = IdentityArg::Exact)]
    pub identity: IdentityArg,

    /// Most memory that the maps may take together, in bytes or with a unit (512M, 8G); a partition that needs more is
    /// refused [default: the limit of the control group less a reserve, if there is one]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub memory: Option<u64>,

    /// Skip damaged places and count them instead of refusing their partition; the result may then be wrong, since
    /// a skipped record may have been the newest of its id
    #[arg(long)]
    pub lenient: bool,
}

/// How the bytes of segments are to be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum IoArg {
    /// mmap if all is in the page cache, uring if nothing is and the system can do it, else pread; pread too for the
    /// directory of a running broker
    Auto,
    /// Map the files: a disk that fails, or a file that gets shorter, then ends the process; not for the directory
    /// of a running broker
    Mmap,
    /// Read by position
    Pread,
    /// Read past the page cache by io_uring, several reads in flight
    Uring,
}

/// Which partitions to load first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum OrderArg {
    /// The largest, so that no thread is left alone with it at the end
    LargestFirst,
    /// The smallest, so that many partitions are ready early
    SmallestFirst,
    /// As given, else by number
    AsGiven,
}

/// What makes two ids the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum IdentityArg {
    /// Their text
    Exact,
    /// A keyed hash of it
    Hash,
}

/// Form of the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people
    #[default]
    Text,
    /// One JSON document
    Json,
    /// One JSON object a line
    Ndjson,
}

/// A finished load, and what it was made from.
#[derive(Debug)]
pub struct Load {
    /// The opened directories.
    pub replay: Replay,
    /// The result.
    pub loaded: Loaded,
    /// Set by Ctrl-C; also what follows the load looks at it.
    pub cancel: Cancel,
}

impl LoadArgs {
    /// Loads.
    ///
    /// # Errors
    /// Whatever makes a load impossible, and a partition asked for that is not there. Refused partitions are no
    /// failure: see [`Load::status`].
    pub fn load(&self, directories: &[PathBuf], console: &mut Console) -> Result<Load, Failure> {
        let cancel = cancel_on_interrupt()?;
        let mut replay = Replay::open(Arc::new(FileSystem), directories)?
            .topic(&self.topic)
            .lenient(self.lenient)
            .io(match self.io {
                IoArg::Auto => IoChoice::Auto,
                IoArg::Mmap => IoChoice::Mmap,
                IoArg::Pread => IoChoice::Pread,
                IoArg::Uring => IoChoice::Uring,
            })
            .order(match self.order {
                OrderArg::LargestFirst => Order::LargestFirst,
                OrderArg::SmallestFirst => Order::SmallestFirst,
                OrderArg::AsGiven => Order::AsGiven,
            })
            .identity(match self.identity {
                IdentityArg::Exact => Identity::Exact,
                IdentityArg::Hash => Identity::Hash,
            })
            .memory_budget(self.memory.or_else(redrive::replay::memory_limit));
        if !self.partition.is_empty() {
            replay = replay.partitions(self.partition.iter().copied());
        }
        if let Some(threads) = self.threads {
            replay = replay.threads(threads);
        }
        let loaded = {
            let mut bar = Bar::new(&self.topic, console.shows_progress);
            replay.run_with(&mut bar, &cancel)?
        };
        Ok(Load { replay, loaded, cancel })
    }
}

/// Lets Ctrl-C end the process at once, with the exit status of an interruption: for commands that hold nothing.
///
/// # Errors
/// Whatever the system says.
pub fn end_on_interrupt() -> Result<(), Failure> {
    let always = Arc::new(AtomicBool::new(true));
    signal_hook::flag::register_conditional_shutdown(SIGINT, 130, always).map(drop).map_err(no_signals)
}

fn no_signals(source: io::Error) -> Failure {
    Failure::Input(format!("cannot watch for interrupts: {source}"))
}

/// The first Ctrl-C asks the load to stop, the second ends the process at once.
pub(crate) fn cancel_on_interrupt() -> Result<Cancel, Failure> {
    let cancel = Cancel::new();
    // In this order: the conditional end must see the flag as the first signal left it.
    signal_hook::flag::register_conditional_shutdown(SIGINT, 130, cancel.flag()).map_err(no_signals)?;
    signal_hook::flag::register(SIGINT, cancel.flag()).map_err(no_signals)?;
    Ok(cancel)
}

impl Load {
    /// [`Status::FoundWrong`] if a partition was refused or a lenient load skipped something.
    pub fn status(&self) -> Status {
        if self.loaded.is_complete() { Status::Fine } else { Status::FoundWrong }
    }

    /// Says on standard error what makes the result less than the whole truth: for commands whose output does not.
    pub fn warn(&self, console: &mut Console) {
        for outcome in &self.loaded.partitions {
            let name = &outcome.topic_partition;
            if let Some(error) = outcome.error() {
                console.say(Style::Bad, format!("{name} was refused: {error}"));
            }
            let Some(stats) = outcome.stats() else { continue };
            let skipped = &stats.skipped;
            if skipped.any() {
                console.say(
                    Style::Bad,
                    format!(
                        "{name} is damaged: batches skipped {}, single records {}, bytes in all {}",
                        skipped.batches, skipped.records, skipped.bytes
                    ),
                );
            }
            if stats.unknown_records > 0 {
                console.say(
                    Style::Warning,
                    format!(
                        "{name} holds records of newer key or value versions, {} in all, skipped as a broker skips them",
                        stats.unknown_records
                    ),
                );
            }
            if let Some(tail) = &stats.tail {
                console.say(
                    Style::Warning,
                    format!(
                        "{name} ends in a torn append that a broker would cut: {} at offset {}, byte {}, {} bytes: {}",
                        tail.path.display(),
                        tail.offset,
                        tail.position,
                        tail.bytes,
                        tail.reason
                    ),
                );
            }
        }
        if self.loaded.is_moving {
            console.say(
                Style::Warning,
                "a running broker holds the directory: the files changed while they were read, and the result is a \
                 picture of no single moment",
            );
        }
    }

    /// The refused partitions for JSON.
    pub fn refused_json(&self) -> Vec<RefusedJson> {
        self.loaded
            .refused()
            .filter_map(|outcome| {
                let error = ErrorJson::from(outcome.error()?);
                Some(RefusedJson { partition: outcome.topic_partition.partition, error })
            })
            .collect()
    }

    /// # Errors
    /// [`Failure::Interrupted`] after Ctrl-C.
    pub fn check_interrupt(&self) -> Result<(), Failure> {
        if self.cancel.is_cancelled() { Err(Failure::Interrupted) } else { Ok(()) }
    }
}

/// A path for a terminal.
pub fn shown_path(path: &Path) -> String {
    sanitize(&path.display().to_string())
}
