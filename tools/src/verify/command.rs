use std::num::NonZero;
use std::path::PathBuf;
use std::sync::Arc;

use redrive::io::FileSystem;
use redrive::log_dir::verify::{FindingKind, Verify, VerifyReport};

use super::progress::Bar;
use super::{json, text};
use crate::console::{Console, Style};
use crate::failure::{Failure, Status};
use crate::load::{Format, cancel_on_interrupt};

/// Options of `redrive verify`.
#[derive(Clone, Debug, clap::Args)]
pub struct VerifyArgs {
    /// Log directories of one broker, or folders of single partitions
    #[arg(value_name = "LOG_DIR", required = true)]
    pub directories: Vec<PathBuf>,

    /// Form of the output: text and ndjson give a line for each finding, json one document with counts by partition
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,

    /// Look at this topic only [default: all]
    #[arg(long, value_name = "NAME")]
    pub topic: Option<String>,

    /// Look at the partitions of this number only; may be repeated
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..))]
    pub partition: Vec<i32>,

    /// Threads to check with, a partition each [default: available cores]
    #[arg(long, value_name = "N")]
    pub threads: Option<NonZero<usize>>,
}

/// Runs the command.
///
/// # Errors
/// [`Failure::Engine`] for what is no log directory; [`Failure::Input`] where no partition is left to look at;
/// [`Failure::Output`]. What is wrong with a file is no failure, and shows in the status.
pub fn run(args: &VerifyArgs, console: &mut Console) -> Result<Status, Failure> {
    let cancel = cancel_on_interrupt()?;
    let mut verify = Verify::open(Arc::new(FileSystem), &args.directories)?;
    if let Some(topic) = &args.topic {
        verify = verify.topic(topic);
    }
    if !args.partition.is_empty() {
        verify = verify.partitions(&args.partition);
    }
    if let Some(threads) = args.threads {
        verify = verify.threads(threads);
    }
    let is_narrowed = args.topic.is_some() || !args.partition.is_empty();
    if is_narrowed && verify.selected().next().is_none() {
        return Err(Failure::Input("no partition of the directories is one that was asked for".to_owned()));
    }
    let report = {
        let mut bar = Bar::new(console.shows_progress);
        verify.run(&cancel.flag(), &mut |progress| bar.show(progress))?
    };
    if report.is_moving {
        console.say(
            Style::Warning,
            "a running broker holds the directory: the files changed while they were read, and the findings are a \
             picture of no single moment",
        );
    }
    let written = match args.format {
        Format::Text => text::write(&mut *console.out, &report, console.paint_out),
        Format::Json => json::write_document(&mut *console.out, &report),
        Format::Ndjson => json::write_lines(&mut *console.out, &report),
    };
    console.finish(written, status(&report))
}

fn status(report: &VerifyReport) -> Status {
    if report.all_findings().any(|finding| matches!(finding.kind, FindingKind::Unreadable(_))) {
        Status::Unreadable
    } else if report.errors() > 0 {
        Status::FoundWrong
    } else {
        Status::Fine
    }
}
