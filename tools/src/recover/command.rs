use std::num::NonZero;
use std::path::PathBuf;
use std::sync::Arc;

use redrive::Error;
use redrive::io::{FileSystem, Overlay, Storage};

use super::report::{self, Report, Settings};
use super::{json, text};
use crate::console::{Console, Style};
use crate::failure::{Failure, Status};
use crate::load::{Format, end_on_interrupt};

/// What the exit status of the command means.
pub const EXIT_STATUS: &str = "\
Exit status:
  0    ran, and no record was lost
  1    ran, and found something wrong: a log that was cut or emptied, segments dropped, a partition refused
  2    bad usage
  3    the directory could not be read or written, or a running broker holds it
  130  interrupted; with --in-place, run it again";

/// Options of `redrive recover`.
#[derive(Clone, Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("mode").required(true).args(["in_place", "dry_run"])))]
pub struct RecoverArgs {
    /// Log directory of a broker that does not run (an entry of log.dirs)
    #[arg(value_name = "LOG_DIR")]
    pub directory: PathBuf,

    /// Recover, and leave the directory as after a clean stop
    #[arg(long)]
    pub in_place: bool,

    /// Change nothing, and print what --in-place would print
    #[arg(long)]
    pub dry_run: bool,

    /// Empty a log that ends below its log start, as a broker does without asking; else it is refused
    #[arg(long)]
    pub reset: bool,

    /// Form of the output: text names what was done, json is one document, ndjson one partition a line
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,

    /// Threads to recover with, a partition each [default: available cores]
    #[arg(long, value_name = "N")]
    pub threads: Option<NonZero<usize>>,

    /// Bytes of a log between two entries of an index that is made anew (index.interval.bytes of the topic)
    #[arg(long, value_name = "BYTES", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(..=MOST))]
    pub index_interval_bytes: u32,

    /// Most bytes of an index file (segment.index.bytes of the topic): batches get no entries beyond it
    #[arg(
        long,
        value_name = "BYTES",
        default_value_t = 10 << 20,
        value_parser = clap::value_parser!(u32).range(FEWEST..=MOST)
    )]
    pub segment_index_bytes: u32,
}

/// Largest value of both settings.
const MOST: i64 = i32::MAX as i64;
/// Smallest size of an index file: one entry of a time index, and the one that a close needs.
const FEWEST: i64 = 24;

/// Runs the command.
///
/// # Errors
/// [`Failure::Usage`] for the folder of one partition; [`Failure::Input`] for a directory that a running broker holds;
/// [`Failure::Engine`] for what is no log directory or cannot be read or written; [`Failure::Output`]. Partitions that
/// cannot be opened are no failure, and show in the status.
pub fn run(args: &RecoverArgs, console: &mut Console) -> Result<Status, Failure> {
    // A recovery that is cut off is begun again by the next one.
    end_on_interrupt()?;
    let file_system: Arc<dyn Storage> = Arc::new(FileSystem);
    let storage = if args.in_place { file_system } else { Arc::new(Overlay::new(file_system)) };
    let settings = Settings {
        threads: args
            .threads
            .or_else(|| std::thread::available_parallelism().ok())
            .unwrap_or(NonZero::<usize>::MIN),
        may_reset: args.reset,
        index_interval_bytes: args.index_interval_bytes,
        segment_index_bytes: args.segment_index_bytes,
    };
    let (report, closed) = report::recover(storage, &args.directory, &settings, console.shows_progress)
        .map_err(|failure| match failure {
            Failure::Engine(Error::HeldByBroker { path }) => Failure::Input(format!(
                "a running broker holds {}: it recovers what it opens; stop it first",
                path.display()
            )),
            other => other,
        })?;
    let written = match args.format {
        Format::Text => text::write(&mut *console.out, &report, console.paint_out),
        Format::Json => json::write_document(&mut *console.out, &report),
        Format::Ndjson => json::write_lines(&mut *console.out, &report),
    };
    let status = console.finish(written, status(&report))?;
    closed?;
    if args.dry_run && args.format == Format::Text {
        console.say(Style::Dim, "this was a dry run: nothing was changed");
    }
    Ok(status)
}

fn status(report: &Report) -> Status {
    if report.partitions.iter().all(|partition| partition.is_fine()) {
        Status::Fine
    } else {
        Status::FoundWrong
    }
}
