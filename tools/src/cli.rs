//! The command line as a whole.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};

use crate::console::{ColorChoice, Console, Style};
use crate::dump::DumpStatus;
use crate::failure::{Failure, Status};
use crate::load::end_on_interrupt;
use crate::text::{is_hostile, sanitize};
use crate::{describe, dump, generate, list, manual, profile, recover, replay, verify};

/// Loads, lists, describes and dumps Kafka's transaction logs offline: complete or refused.
///
/// A LOG_DIR is an entry of Kafka's log.dirs, with partition folders inside, or one partition's folder named topic-N;
/// a copy without checkpoint files or indexes works. Nothing in it is changed, except by recover --in-place.
#[derive(Debug, Parser)]
#[command(name = "redrive", version, max_term_width = 100, after_help = EXIT_STATUS)]
pub struct Cli {
    /// When to use colours; auto also looks at NO_COLOR
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value_t)]
    pub color: ColorChoice,

    /// Draw no progress bar
    #[arg(long, short, global = true)]
    pub quiet: bool,

    #[command(subcommand)]
    #[expect(missing_docs, reason = "a doc comment would become the help of the command")]
    pub command: Command,
}

const EXIT_STATUS: &str = "\
Exit status:
  0    ran, nothing wrong (a torn append at the end of a log, which a broker cuts, is shown and is nothing wrong)
  1    ran, and found something wrong: a refused partition, skipped damage, an id that is not there
  2    bad usage
  3    the input could not be read, or the output not written
  130  interrupted";

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Load the transaction log and print a summary
    #[command(after_help = EXIT_STATUS)]
    Replay(replay::ReplayArgs),
    /// List transactional ids, one a row
    ///
    /// Rows are sorted by partition, then by the bytes of the id. The age is the time since the start of the
    /// transaction or, where none was started, since the last update.
    #[command(after_help = EXIT_STATUS)]
    List(list::ListArgs),
    /// Show all fields of transactional ids, and their history in the log
    #[command(after_help = EXIT_STATUS)]
    Describe(describe::DescribeArgs),
    /// Dump log, index, snapshot and checkpoint files, as kafka-dump-log does
    #[command(after_help = EXIT_STATUS)]
    Dump(dump::DumpArgs),
    /// Make a realistic log directory of any size, the same from the same seed
    ///
    /// Nothing is left behind by what fails or is interrupted.
    #[command(after_help = EXIT_STATUS)]
    Generate(generate::GenerateArgs),
    /// Load the transaction log several times, and say where the time goes
    ///
    /// Which partition was ready last and why, what is superseded, which ids are large or busy, what one thread takes
    /// against all, and a warm page cache against what was found.
    #[command(after_help = EXIT_STATUS)]
    Profile(profile::ProfileArgs),
    /// Check all CRCs, offsets, leader epochs, indexes, snapshots and checkpoints, and the rules between files
    ///
    /// A line for each finding: an error where data or a file is wrong, else a note. Only an error makes the exit status
    /// 1. Records are read and decompressed; the content of .txnindex files is not looked at.
    #[command(after_help = EXIT_STATUS)]
    Verify(verify::VerifyArgs),
    /// Do what a broker's start does after an unclean stop: cut, rebuild, report; or say what it would do
    ///
    /// Logs are cut where the first bad batch begins, segments behind a cut are dropped, indexes and producer snapshots
    /// are made anew. A directory that a running broker holds is refused.
    #[command(after_help = recover::EXIT_STATUS)]
    Recover(recover::RecoverArgs),
    /// Print the completions of a shell
    Completions(manual::CompletionsArgs),
    /// Print a manual page, or write all of them
    Man(manual::ManArgs),
}

/// Runs the command line and gives the exit status of the process. Whatever goes wrong is one sentence on standard
/// error.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    let cli = match Cli::try_parse_from(&args) {
        Ok(cli) => cli,
        Err(error) => return explain(&error, ColorChoice::guess(&args)),
    };
    let mut console = Console::new(cli.color, cli.quiet);
    let result = match &cli.command {
        Command::Replay(args) => replay::run(args, &mut console),
        Command::List(args) => list::run(args, &mut console),
        Command::Describe(args) => describe::run(args, &mut console),
        Command::Dump(args) => run_dump(args, &mut console),
        Command::Generate(args) => generate::run(args, &mut console),
        Command::Profile(args) => profile::run(args, &mut console),
        Command::Verify(args) => verify::run(args, &mut console),
        Command::Recover(args) => recover::run(args, &mut console),
        Command::Completions(args) => manual::completions(args, &mut console),
        Command::Man(args) => manual::man(args, &mut console),
    };
    match result {
        Ok(status) => ExitCode::from(status.code()),
        Err(failure) => {
            // What was written before the failure is worth having.
            let _ = console.out.flush();
            console.say(Style::Bad, &failure);
            ExitCode::from(failure.code())
        }
    }
}

/// Help, the version, or what is wrong with the command line, in the colours that were asked for.
fn explain(error: &clap::Error, color: ColorChoice) -> ExitCode {
    let is_wrong = error.use_stderr();
    let is_terminal = if is_wrong { io::stderr().is_terminal() } else { io::stdout().is_terminal() };
    let plain = error.render().to_string();
    let text = if plain.lines().any(|line| line.contains(is_hostile)) {
        // Arguments are quoted in it.
        plain.lines().map(|line| sanitize(line) + "\n").collect()
    } else if color.applies(is_terminal) {
        error.render().ansi().to_string()
    } else {
        plain
    };
    // A closed pipe has no reader to be told.
    let _ = if is_wrong {
        io::stderr().write_all(text.as_bytes())
    } else {
        io::stdout().write_all(text.as_bytes())
    };
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
        _ => ExitCode::from(2),
    }
}

fn run_dump(args: &dump::DumpArgs, console: &mut Console) -> Result<Status, Failure> {
    end_on_interrupt()?;
    match dump::run(args, console.out_is_terminal, &mut *console.out, &mut *console.err) {
        Ok(status) => {
            let status = match status {
                DumpStatus::Clean => Status::Fine,
                DumpStatus::FoundWrong => Status::FoundWrong,
                DumpStatus::Usage => Status::BadUsage,
                DumpStatus::Unreadable => Status::Unreadable,
            };
            console.finish(Ok(()), status)
        }
        Err(e) => console.finish(Err(e), Status::Fine),
    }
}
