//! `redrive profile` on the command line.

use std::path::PathBuf;

use super::out::Out;
use super::report::Report;
use super::runs::{Run, RunKind, more_runs};
use super::{ids, text};
use crate::console::{Console, Style};
use crate::failure::{Failure, Status};
use crate::json::write_line;
use crate::load::{Format, LoadArgs};
use crate::text::now_ms;

/// Options of `redrive profile`.
#[derive(Clone, Debug, clap::Args)]
pub struct ProfileArgs {
    /// Log directories of a broker (entries of log.dirs), or folders of single partitions
    #[arg(value_name = "LOG_DIR", required = true)]
    pub directories: Vec<PathBuf>,

    /// Write profile.json and load.hlog into this folder, which is made if its parent exists; neither file may be there
    /// yet, and the folder may not lie in a log directory
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,

    /// Loads of each kind after the first: with all threads, with one, and with --cold; their median is shown
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub runs: u32,

    /// Load from a cold page cache as well: asks the kernel to forget the segments, which a program that uses them then
    /// reads again; not for the directory of a running broker
    #[arg(long)]
    pub cold: bool,

    /// Form of the output: text is a report, json what profile.json holds, ndjson one partition a line
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,

    #[command(flatten)]
    #[expect(missing_docs, reason = "a doc comment would become the help of the command")]
    pub load: LoadArgs,
}

/// Runs the command.
///
/// # Errors
/// Whatever makes a load impossible; an output folder that cannot be used.
pub fn run(args: &ProfileArgs, console: &mut Console) -> Result<Status, Failure> {
    let out = args.out.as_ref().map(|dir| Out::prepare(dir, &args.directories)).transpose()?;
    let begun_ms = now_ms();
    let load = args.load.load(&args.directories, console)?;
    if args.cold && load.loaded.is_moving {
        return Err(Failure::Usage(
            "--cold would take the page cache from a running broker; profile a copy, or leave the option out"
                .to_owned(),
        ));
    }
    load.warn(console);
    let mut status = load.status();
    let mut runs = vec![Run::new(RunKind::AsFound, begun_ms, &load.loaded)];
    let snapshots = ids::snapshots(&load)?;
    let by_partition = ids::find(&load, &snapshots)?;
    for found in by_partition.iter().filter_map(|found| found.error.as_ref()) {
        console.say(Style::Bad, format!("largest and busiest ids are not all known: {found}"));
        status = Status::FoundWrong;
    }
    let mut report = Report::new(&load, by_partition);
    // The next load has the memory of this one.
    let (replay, cancel) = (load.replay, load.cancel);
    let threads = load.loaded.threads;
    drop(load.loaded);
    more_runs(&mut runs, &replay, &cancel, args, threads, &snapshots, console)?;
    report.set_runs(runs);
    let files = out.map(|out| out.write(&report)).transpose()?;
    let paint = console.paint_out;
    let written = match args.format {
        Format::Text => text::write(&mut *console.out, &report, files.as_deref(), paint),
        Format::Json => write_line(&mut *console.out, &report),
        Format::Ndjson => {
            report.partitions.iter().try_for_each(|partition| write_line(&mut *console.out, partition))
        }
    };
    console.finish(written, status)
}
