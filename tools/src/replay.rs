//! `redrive replay`: loads the transaction log and says what is in it.

use std::path::PathBuf;
use std::time::Duration;

use redrive::log_dir::Notice;
use redrive::replay::{
    Loaded, PartitionOutcome, PartitionStats, Phases, Skipped, StateCounts, Tail, UnknownKind, UnknownRecord,
};
use serde::Serialize;

use crate::console::Console;
use crate::failure::{Failure, Status};
use crate::json::{ErrorJson, path_text, write_line};
use crate::load::{Format, LoadArgs};
use crate::replay_text;

/// Options of `redrive replay`.
#[derive(Clone, Debug, clap::Args)]
pub struct ReplayArgs {
    /// Log directories of a broker (entries of log.dirs), or folders of single partitions
    #[arg(value_name = "LOG_DIR", required = true)]
    pub directories: Vec<PathBuf>,

    /// Form of the output: text is a summary, json one document, ndjson one partition a line
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,

    #[command(flatten)]
    #[expect(missing_docs, reason = "a doc comment would become the help of the command")]
    pub load: LoadArgs,
}

/// Runs the command.
///
/// # Errors
/// Whatever makes a load impossible.
pub fn run(args: &ReplayArgs, console: &mut Console) -> Result<Status, Failure> {
    let load = args.load.load(&args.directories, console)?;
    let status = load.status();
    let out = &mut *console.out;
    let written = match args.format {
        Format::Text => replay_text::write(out, &load, &args.directories, console.paint_out),
        Format::Json => write_line(out, &ReplayJson::new(&load.loaded)),
        Format::Ndjson => load
            .loaded
            .partitions
            .iter()
            .try_for_each(|outcome| write_line(out, &PartitionJson::new(outcome))),
    };
    console.finish(written, status)
}

/// The whole document.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ReplayJson<'a> {
    topic: &'a str,
    threads: usize,
    io: &'static str,
    /// What was in the page cache before.
    cache: &'static str,
    identity: &'static str,
    /// Instructions that checksums were computed with.
    crc: &'static str,
    /// A running broker holds a directory: the result is a picture of no single moment.
    moving: bool,
    lenient: bool,
    /// Until the last map was published.
    seconds: f64,
    /// From there until live bytes were counted.
    decode_seconds: f64,
    peak_map_bytes: u64,
    bytes: u64,
    batches: u64,
    records: u64,
    ids: u64,
    tombstones: u64,
    by_state: ByState,
    pending_completion: u64,
    partitions_loaded: usize,
    partitions_refused: usize,
    notices: Vec<NoticeJson>,
    partitions: Vec<PartitionJson>,
}

impl<'a> ReplayJson<'a> {
    fn new(loaded: &'a Loaded) -> Self {
        let totals = Totals::of(loaded);
        Self {
            topic: &loaded.topic,
            threads: loaded.threads,
            io: loaded.io.name(),
            cache: loaded.cache.name(),
            identity: loaded.identity.name(),
            crc: loaded.crc,
            moving: loaded.is_moving,
            lenient: loaded.lenient,
            seconds: loaded.elapsed.as_secs_f64(),
            decode_seconds: loaded.decoding.as_secs_f64(),
            peak_map_bytes: loaded.peak_map_bytes,
            bytes: totals.bytes,
            batches: totals.batches,
            records: totals.records,
            ids: totals.ids,
            tombstones: totals.tombstones,
            pending_completion: totals.pending_completion(),
            by_state: ByState(totals.by_state),
            partitions_loaded: totals.loaded,
            partitions_refused: totals.refused,
            notices: loaded.notices.iter().map(NoticeJson::from).collect(),
            partitions: loaded.partitions.iter().map(|outcome| PartitionJson::new(outcome)).collect(),
        }
    }
}

/// Sums over the loaded partitions.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub(crate) loaded: usize,
    pub(crate) refused: usize,
    pub(crate) bytes: u64,
    pub(crate) batches: u64,
    pub(crate) records: u64,
    pub(crate) ids: u64,
    pub(crate) tombstones: u64,
    pub(crate) unknown_records: u64,
    pub(crate) control_batches: u64,
    pub(crate) odd_values: u64,
    pub(crate) gaps: u64,
    pub(crate) gap_offsets: u64,
    /// All eight states, by their codes.
    pub(crate) by_state: Vec<(&'static str, u64)>,
}

impl Totals {
    pub(crate) fn of(loaded: &Loaded) -> Self {
        let mut totals = Self { by_state: named(&StateCounts::default()), ..Self::default() };
        for outcome in &loaded.partitions {
            let Ok((map, stats)) = &outcome.result else {
                totals.refused += 1;
                continue;
            };
            totals.loaded += 1;
            totals.bytes += stats.bytes;
            totals.batches += stats.batches;
            totals.records += stats.records;
            totals.ids += map.len() as u64;
            totals.tombstones += stats.tombstones;
            totals.unknown_records += stats.unknown_records;
            totals.control_batches += stats.control_batches;
            totals.odd_values += stats.odd_values;
            totals.gaps += stats.gaps;
            totals.gap_offsets += stats.gap_offsets;
            for ((_, total), (_, ids)) in totals.by_state.iter_mut().zip(stats.by_state.iter()) {
                *total += ids;
            }
        }
        totals
    }

    /// Ids in a state.
    pub(crate) fn count(&self, state: &str) -> u64 {
        self.by_state.iter().find(|(name, _)| *name == state).map_or(0, |(_, ids)| *ids)
    }

    /// Ids in PrepareCommit or PrepareAbort.
    pub(crate) fn pending_completion(&self) -> u64 {
        self.count("PrepareCommit") + self.count("PrepareAbort")
    }
}

fn named(counts: &StateCounts) -> Vec<(&'static str, u64)> {
    counts.iter().map(|(state, ids)| (state.name(), ids)).collect()
}

/// All eight states, so that a script need not know which ones occur.
#[derive(Debug)]
struct ByState(Vec<(&'static str, u64)>);

impl Serialize for ByState {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().copied())
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PartitionJson {
    partition: i32,
    outcome: &'static str,
    directory: String,
    #[serde(flatten)]
    loaded: Option<LoadedJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ErrorJson>,
    notices: Vec<NoticeJson>,
}

impl PartitionJson {
    fn new(outcome: &PartitionOutcome) -> Self {
        Self {
            partition: outcome.topic_partition.partition,
            outcome: if outcome.result.is_ok() { "loaded" } else { "refused" },
            directory: path_text(outcome.directory.as_os_str()),
            loaded: outcome
                .result
                .as_ref()
                .ok()
                .map(|(map, stats)| LoadedJson::new(outcome, map.len(), stats)),
            error: outcome.error().map(ErrorJson::from),
            notices: outcome.notices.iter().map(NoticeJson::from).collect(),
        }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct LoadedJson {
    log_start_offset: i64,
    log_end_offset: i64,
    segments: usize,
    bytes: u64,
    batches: u64,
    records: u64,
    ids: usize,
    tombstones: u64,
    unknown_records: u64,
    empty_batches: u64,
    control_batches: u64,
    odd_values: u64,
    gaps: u64,
    gap_offsets: u64,
    by_state: ByState,
    pending_completion: u64,
    /// Absent where the log could not be read again.
    live_bytes: Option<u64>,
    map_bytes: u64,
    wait_seconds: f64,
    seconds: f64,
    phases: PhasesJson,
    /// The first unknown records, as many as were kept.
    unknown: Vec<UnknownJson>,
    /// The torn append at the end that was forgiven.
    tail: Option<TailJson>,
    /// What a lenient load left out.
    skipped: SkippedJson,
}

impl LoadedJson {
    fn new(outcome: &PartitionOutcome, ids: usize, stats: &PartitionStats) -> Self {
        Self {
            log_start_offset: stats.log_start_offset.0,
            log_end_offset: stats.log_end_offset.0,
            segments: stats.segments,
            bytes: stats.bytes,
            batches: stats.batches,
            records: stats.records,
            ids,
            tombstones: stats.tombstones,
            unknown_records: stats.unknown_records,
            empty_batches: stats.empty_batches,
            control_batches: stats.control_batches,
            odd_values: stats.odd_values,
            gaps: stats.gaps,
            gap_offsets: stats.gap_offsets,
            by_state: ByState(named(&stats.by_state)),
            pending_completion: stats.by_state.pending_completion(),
            live_bytes: outcome.live_bytes(),
            map_bytes: stats.map_bytes,
            wait_seconds: stats.wait.as_secs_f64(),
            seconds: stats.elapsed.as_secs_f64(),
            phases: PhasesJson::new(&stats.phases, outcome.decode_time()),
            unknown: stats.unknown.iter().map(UnknownJson::from).collect(),
            tail: stats.tail.as_ref().map(TailJson::from),
            skipped: SkippedJson::from(&stats.skipped),
        }
    }
}

/// Seconds of one partition's load; with several threads on it, `scan` and `index` are their sum.
#[derive(Debug, Serialize)]
struct PhasesJson {
    open: f64,
    scan: f64,
    index: f64,
    finish: f64,
    publish: f64,
    /// After publication.
    decode: f64,
}

impl PhasesJson {
    fn new(phases: &Phases, decode: Option<Duration>) -> Self {
        Self {
            open: phases.open.as_secs_f64(),
            scan: phases.scan.as_secs_f64(),
            index: phases.index.as_secs_f64(),
            finish: phases.finish.as_secs_f64(),
            publish: phases.publish.as_secs_f64(),
            decode: decode.unwrap_or_default().as_secs_f64(),
        }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct UnknownJson {
    offset: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_version: Option<i16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_version: Option<i16>,
}

impl From<&UnknownRecord> for UnknownJson {
    fn from(record: &UnknownRecord) -> Self {
        let (key_version, value_version) = match record.kind {
            UnknownKind::Key(version) => (Some(version), None),
            UnknownKind::Value(version) => (None, Some(version)),
        };
        Self { offset: record.offset.0, key_version, value_version }
    }
}

#[derive(Debug, Serialize)]
struct TailJson {
    path: String,
    offset: i64,
    position: u64,
    bytes: u64,
    reason: String,
}

impl From<&Tail> for TailJson {
    fn from(tail: &Tail) -> Self {
        Self {
            path: path_text(tail.path.as_os_str()),
            offset: tail.offset.0,
            position: tail.position,
            bytes: tail.bytes,
            reason: tail.reason.to_string(),
        }
    }
}

#[derive(Debug, Serialize)]
struct SkippedJson {
    batches: u64,
    records: u64,
    bytes: u64,
    /// The first places, as many as were kept.
    places: Vec<PlaceJson>,
}

#[derive(Debug, Serialize)]
struct PlaceJson {
    path: String,
    offset: i64,
    position: u64,
    reason: String,
}

impl From<&Skipped> for SkippedJson {
    fn from(skipped: &Skipped) -> Self {
        let places = skipped.places.iter().map(|place| PlaceJson {
            path: path_text(place.path.as_os_str()),
            offset: place.offset.0,
            position: place.position,
            reason: place.reason.clone(),
        });
        Self {
            batches: skipped.batches,
            records: skipped.records,
            bytes: skipped.bytes,
            places: places.collect(),
        }
    }
}

#[derive(Debug, Serialize)]
struct NoticeJson {
    path: String,
    reason: String,
}

impl From<&Notice> for NoticeJson {
    fn from(notice: &Notice) -> Self {
        Self { path: path_text(notice.path.as_os_str()), reason: notice.kind.to_string() }
    }
}
