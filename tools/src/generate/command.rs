//! `redrive generate` on the command line.

use std::io::{self, Write};
use std::num::NonZero;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use redrive::replay::{self, Cancel, Observer as _};
use redrive::transaction_log::TransactionState;
use serde::Serialize;

use super::into::partitions_of;
use super::out::TOPIC;
use super::spec::SEGMENT_BYTES;
use super::{
    GenerateError, IdShape, Observer, PARTITIONS_MAX, PartitionSummary, Progress, Scenario, Spec, Summary,
    ValueVersions, Volume, generate, generate_into,
};
use crate::console::{Console, Paint, Style};
use crate::failure::{Failure, Status};
use crate::json::write_line;
use crate::load::{Format, cancel_on_interrupt};
use crate::progress::Bar;
use crate::text::{count, duration, now_ms, parse_size, size};

/// Options of `redrive generate`.
#[derive(Clone, Debug, clap::Args)]
pub struct GenerateArgs {
    /// Who writes the log
    #[arg(value_name = "SPEC", value_enum)]
    pub scenario: Scenario,

    /// Make a new log directory here; must not exist, or be empty
    #[arg(long, value_name = "DIR", required_unless_present = "into")]
    pub out: Option<PathBuf>,

    /// Replace the transaction log of a stopped broker: an entry of its log.dirs that holds all partitions of
    /// __transaction_state, whose folders, topic id and leader epochs are kept
    #[arg(long, value_name = "BROKER_DIR", conflicts_with = "out")]
    pub into: Option<PathBuf>,

    /// Form of the output: text is a summary, json one document, ndjson one partition a line
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,

    #[command(flatten)]
    #[expect(missing_docs, reason = "a doc comment would become the help of the command")]
    pub size: SizeArgs,

    #[command(flatten)]
    #[expect(missing_docs, reason = "a doc comment would become the help of the command")]
    pub content: ContentArgs,
}

/// How much.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Size")]
pub struct SizeArgs {
    /// Transactional ids [default: 100000, streams 256]
    #[arg(long, value_name = "N", conflicts_with = "bytes")]
    pub ids: Option<u64>,

    /// About that many bytes of log files instead, such as 4G or 512K: by the number of ids, for streams by that
    /// of transactions
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub bytes: Option<u64>,

    /// Transactions of each id [default: 5, streams 1000, distinct and flink 1]
    #[arg(long, value_name = "N")]
    pub transactions: Option<NonZero<u32>>,

    /// Partitions of the topic, at most 200 [default: 50; with --into as many as the broker has]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(PARTITIONS_MAX)))]
    pub partitions: Option<u32>,

    /// Size that a segment is kept below
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value_t = u64::from(SEGMENT_BYTES))]
    pub segment_bytes: u64,

    /// Threads to write with [default: available cores]
    #[arg(long, value_name = "N")]
    pub threads: Option<NonZero<usize>>,
}

/// What.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Content")]
pub struct ContentArgs {
    /// Chooses everything that is left to chance
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Moment at which the log ends, ms since 1970; the same seed gives the same bytes for the same moment only
    /// [default: now]
    #[arg(long, value_name = "MS")]
    pub now: Option<i64>,

    /// Versions of values
    #[arg(long, value_enum, value_name = "VERSION", default_value_t = ValueVersions::V1)]
    pub value_version: ValueVersions,

    /// What ids look like [default: prefix, streams and flink real]
    #[arg(long, value_enum, value_name = "SHAPE")]
    pub id_shape: Option<IdShape>,

    /// Transactions open at once [default: 2000, flink 64, streams all ids]
    #[arg(long, value_name = "N")]
    pub window: Option<NonZero<u32>>,

    /// Share of records with a newer one of the same id that the cleaner has taken away, leaving gaps between offsets
    /// [default: 0, distinct 1]
    #[arg(long, value_name = "SHARE")]
    pub gaps: Option<f64>,

    /// Share of transactions that are aborted [default: 0.04]
    #[arg(long, value_name = "SHARE")]
    pub aborts: Option<f64>,

    /// Share of ids that end in a tombstone [default: 0.01]
    #[arg(long, value_name = "SHARE")]
    pub tombstones: Option<f64>,

    /// Share of ids that end in Ongoing [default: 0.02]
    #[arg(long, value_name = "SHARE")]
    pub ongoing: Option<f64>,

    /// Share of ids that end in PrepareCommit [default: 0.001]
    #[arg(long, value_name = "SHARE")]
    pub prepare_commit: Option<f64>,

    /// Share of ids that end in PrepareAbort [default: 0.0005]
    #[arg(long, value_name = "SHARE")]
    pub prepare_abort: Option<f64>,

    /// Share of ids that end in Empty [default: 0.01]
    #[arg(long, value_name = "SHARE")]
    pub empty: Option<f64>,
}

impl GenerateArgs {
    fn spec(&self) -> Result<Spec, Failure> {
        let (size, content) = (&self.size, &self.content);
        let mut spec = Spec::new(self.scenario, content.seed, content.now.unwrap_or_else(now_ms));
        spec.volume = match (size.ids, size.bytes) {
            (_, Some(bytes)) => Volume::Bytes(bytes),
            (Some(ids), None) => Volume::Ids(ids),
            (None, None) => spec.volume,
        };
        spec.segment_bytes = u32::try_from(size.segment_bytes).map_err(|_| {
            Failure::Usage(format!("segment bytes must be below 2 GiB, not {}", size.segment_bytes))
        })?;
        let cores = || thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN);
        spec.threads = size.threads.unwrap_or_else(cores);
        spec.value_versions = content.value_version;
        fn set<T>(field: &mut T, given: Option<T>) {
            if let Some(given) = given {
                *field = given;
            }
        }
        set(&mut spec.transactions, size.transactions);
        set(&mut spec.partitions, size.partitions.and_then(NonZero::new));
        set(&mut spec.id_shape, content.id_shape);
        set(&mut spec.window, content.window);
        set(&mut spec.gaps, content.gaps);
        set(&mut spec.aborts, content.aborts);
        set(&mut spec.ends.tombstones, content.tombstones);
        set(&mut spec.ends.ongoing, content.ongoing);
        set(&mut spec.ends.prepare_commit, content.prepare_commit);
        set(&mut spec.ends.prepare_abort, content.prepare_abort);
        set(&mut spec.ends.empty, content.empty);
        if let (Some(broker_dir), None) = (&self.into, size.partitions) {
            let found = partitions_of(broker_dir)?;
            // A directory without any, or with too many, is refused with a better sentence later.
            set(&mut spec.partitions, u32::try_from(found).ok().and_then(NonZero::new));
        }
        Ok(spec)
    }
}

/// Runs the command.
///
/// # Errors
/// As [`generate`] and [`generate_into`].
pub fn run(args: &GenerateArgs, console: &mut Console) -> Result<Status, Failure> {
    let cancel = cancel_on_interrupt()?;
    let spec = args.spec()?;
    let started = Instant::now();
    let summary = {
        let mut watch = Watch { bar: Bar::new(TOPIC, console.shows_progress), cancel };
        match (&args.out, &args.into) {
            (_, Some(broker_dir)) => generate_into(&spec, broker_dir, &mut watch)?,
            (Some(out), None) => generate(&spec, out, &mut watch)?,
            (None, None) => return Err(Failure::Usage("give --out or --into".to_owned())),
        }
    };
    let elapsed = started.elapsed();
    let out = &mut *console.out;
    let written = match args.format {
        Format::Text => write_text(out, &spec, &summary, elapsed, console.paint_out),
        Format::Json => write_line(out, &GenerateJson::new(&spec, &summary, elapsed)),
        Format::Ndjson => {
            summary.partitions.iter().try_for_each(|part| write_line(out, &PartitionJson::new(part)))
        }
    };
    console.finish(written, Status::Fine)
}

/// Draws the progress, and asks whether Ctrl-C was pressed.
struct Watch {
    bar: Bar,
    cancel: Cancel,
}

impl Observer for Watch {
    fn progress(&mut self, progress: &Progress) -> ControlFlow<()> {
        let mut shown = replay::Progress::default();
        shown.bytes = progress.bytes;
        shown.bytes_total = progress.bytes_total;
        shown.records = progress.records;
        shown.ids = progress.ids;
        shown.partitions = progress.partitions;
        shown.partitions_total = progress.partitions_total;
        shown.elapsed = progress.elapsed;
        self.bar.progress(&shown);
        if self.cancel.is_cancelled() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

impl From<GenerateError> for Failure {
    fn from(error: GenerateError) -> Self {
        match error {
            GenerateError::Spec(sentence) => Self::Usage(sentence),
            GenerateError::Engine(error) => Self::Engine(error),
            GenerateError::Cancelled => Self::Interrupted,
            other => Self::Input(other.to_string()),
        }
    }
}

/// Ids by state, those that there are.
fn states(part: &PartitionSummary) -> impl Iterator<Item = (TransactionState, u64)> {
    let counted = TransactionState::ALL.into_iter().map(|state| (state, part.in_state(state)));
    counted.filter(|&(_, count)| count > 0)
}

fn write_text(
    out: &mut dyn Write,
    spec: &Spec,
    summary: &Summary,
    elapsed: Duration,
    paint: Paint,
) -> io::Result<()> {
    let total = summary.total();
    let partitions = summary.partitions.len();
    let plural = if partitions == 1 { "partition" } else { "partitions" };
    writeln!(
        out,
        "  {}  {} · seed {} · {} {plural} · {} in {}",
        paint.style(Style::Bold, TOPIC),
        spec.scenario.name(),
        spec.seed,
        count(partitions as u64),
        size(total.bytes),
        duration(elapsed),
    )?;
    writeln!(
        out,
        "\n  ids {}    records {}    tombstones {}    segments {}    offsets missing {}",
        count(total.ids),
        count(total.records),
        count(total.tombstones),
        count(total.segments),
        count(total.gap_offsets),
    )?;
    let states: Vec<String> = states(&total).map(|(state, ids)| format!("{state} {}", count(ids))).collect();
    writeln!(out, "  states  {}", if states.is_empty() { "none".to_owned() } else { states.join(" · ") })
}

/// The whole document.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct GenerateJson {
    topic: &'static str,
    scenario: &'static str,
    seed: u64,
    now_ms: i64,
    seconds: f64,
    #[serde(flatten)]
    total: CountsJson,
    partitions: Vec<PartitionJson>,
}

impl GenerateJson {
    fn new(spec: &Spec, summary: &Summary, elapsed: Duration) -> Self {
        Self {
            topic: TOPIC,
            scenario: spec.scenario.name(),
            seed: spec.seed,
            now_ms: spec.now_ms,
            seconds: elapsed.as_secs_f64(),
            total: CountsJson::new(&summary.total()),
            partitions: summary.partitions.iter().map(PartitionJson::new).collect(),
        }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PartitionJson {
    partition: i32,
    log_end_offset: i64,
    #[serde(flatten)]
    counts: CountsJson,
}

impl PartitionJson {
    fn new(part: &PartitionSummary) -> Self {
        let counts = CountsJson::new(part);
        Self { partition: part.partition, log_end_offset: part.log_end_offset, counts }
    }
}

/// The words of `replay`, so that both can be compared.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct CountsJson {
    segments: u64,
    bytes: u64,
    batches: u64,
    records: u64,
    ids: u64,
    tombstones: u64,
    gaps: u64,
    gap_offsets: u64,
    live_bytes: u64,
    by_state: serde_json::Map<String, serde_json::Value>,
}

impl CountsJson {
    fn new(part: &PartitionSummary) -> Self {
        let by_state =
            TransactionState::ALL.into_iter().map(|s| (s.name().to_owned(), part.in_state(s).into()));
        Self {
            segments: part.segments,
            bytes: part.bytes,
            batches: part.batches,
            records: part.records,
            ids: part.ids,
            tombstones: part.tombstones,
            gaps: part.gaps,
            gap_offsets: part.gap_offsets,
            live_bytes: part.live_bytes,
            by_state: by_state.collect(),
        }
    }
}
