//! Everything that a profile finds, as it is in JSON.

use std::time::Duration;

use redrive::replay::{PartitionOutcome, PartitionStats};
use serde::{Serialize, Serializer};

use super::ids::{BusiestId, IDS_MAX, LargestId, PartitionIds};
use super::last::Last;
use super::runs::{Run, Spread, spreads};
use crate::json::RefusedJson;
use crate::load::Load;
use crate::replay::Totals;

/// The whole document. Figures of partitions are those of the first load.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    pub(super) topic: String,
    /// Threads that worked in the first load.
    pub(super) threads: usize,
    pub(super) io: &'static str,
    /// What was in the page cache before the first load.
    pub(super) cache: &'static str,
    identity: &'static str,
    /// Instructions that checksums were computed with.
    crc: &'static str,
    /// A running broker holds a directory: the result is a picture of no single moment.
    pub(super) moving: bool,
    lenient: bool,
    /// Until the last map was published.
    #[serde(rename = "seconds", serialize_with = "seconds")]
    pub(super) elapsed: Duration,
    /// From there until live bytes were counted.
    #[serde(rename = "decodeSeconds", serialize_with = "seconds")]
    decoding: Duration,
    pub(super) peak_map_bytes: u64,
    pub(super) bytes: u64,
    /// Bytes of the newest records; `None` where they could not be counted.
    pub(super) live_bytes: Option<u64>,
    pub(super) superseded_bytes: Option<u64>,
    pub(super) records: u64,
    pub(super) ids: u64,
    tombstones: u64,
    #[serde(serialize_with = "by_state")]
    pub(super) by_state: Vec<(&'static str, u64)>,
    pub(super) pending_completion: u64,
    pub(super) partitions_loaded: usize,
    pub(super) partitions_refused: usize,
    /// `None` if nothing was loaded.
    pub(super) last: Option<Last>,
    pub(super) runs: Vec<Run>,
    pub(super) spreads: Vec<Spread>,
    /// Of all partitions, largest first.
    pub(super) largest_ids: Vec<LargestId>,
    /// Of all partitions, busiest first.
    pub(super) busiest_ids: Vec<BusiestId>,
    pub(super) partitions: Vec<Partition>,
    refused: Vec<RefusedJson>,
}

/// One loaded partition.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Partition {
    pub(super) partition: i32,
    pub(super) bytes: u64,
    pub(super) live_bytes: Option<u64>,
    /// Why live bytes could not be counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    live_bytes_error: Option<String>,
    pub(super) superseded_bytes: Option<u64>,
    segments: usize,
    batches: u64,
    records: u64,
    pub(super) ids: usize,
    tombstones: u64,
    #[serde(serialize_with = "by_state")]
    by_state: Vec<(&'static str, u64)>,
    pending_completion: u64,
    map_bytes: u64,
    /// From the begin of the load until a thread took it up.
    #[serde(rename = "waitSeconds", serialize_with = "seconds")]
    pub(super) wait: Duration,
    /// From there until its map was published.
    #[serde(rename = "seconds", serialize_with = "seconds")]
    pub(super) elapsed: Duration,
    pub(super) phases: Phases,
    /// A torn tail was forgiven, or a lenient load skipped something.
    #[serde(rename = "damaged")]
    pub(super) is_damaged: bool,
    largest_ids: Vec<LargestId>,
    busiest_ids: Vec<BusiestId>,
    /// Why ids are missing from these lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    ids_error: Option<String>,
}

/// Where the time of one partition went; with several threads on it, `scan` and `index` are their sum.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Phases {
    #[serde(serialize_with = "seconds")]
    pub(super) open: Duration,
    #[serde(serialize_with = "seconds")]
    pub(super) scan: Duration,
    #[serde(serialize_with = "seconds")]
    pub(super) index: Duration,
    #[serde(serialize_with = "seconds")]
    pub(super) finish: Duration,
    #[serde(serialize_with = "seconds")]
    pub(super) publish: Duration,
    /// After publication.
    #[serde(serialize_with = "seconds")]
    pub(super) decode: Duration,
}

pub(super) fn seconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}

fn by_state<S: Serializer>(counts: &[(&'static str, u64)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(counts.iter().copied())
}

impl Partition {
    fn new(outcome: &PartitionOutcome, ids: usize, stats: &PartitionStats, found: PartitionIds) -> Self {
        let live_bytes = outcome.live_bytes();
        let phases = &stats.phases;
        Self {
            partition: outcome.topic_partition.partition,
            bytes: stats.bytes,
            live_bytes,
            live_bytes_error: outcome.decode_error().map(ToString::to_string),
            superseded_bytes: live_bytes.map(|live| stats.bytes.saturating_sub(live)),
            segments: stats.segments,
            batches: stats.batches,
            records: stats.records,
            ids,
            tombstones: stats.tombstones,
            by_state: stats.by_state.iter().map(|(state, ids)| (state.name(), ids)).collect(),
            pending_completion: stats.by_state.pending_completion(),
            map_bytes: stats.map_bytes,
            wait: stats.wait,
            elapsed: stats.elapsed,
            phases: Phases {
                open: phases.open,
                scan: phases.scan,
                index: phases.index,
                finish: phases.finish,
                publish: phases.publish,
                decode: outcome.decode_time().unwrap_or_default(),
            },
            is_damaged: stats.tail.is_some() || stats.skipped.any(),
            largest_ids: found.largest,
            busiest_ids: found.busiest,
            ids_error: found.error,
        }
    }

    /// From the begin of the load until its map was published.
    pub(super) fn end(&self) -> Duration {
        self.wait + self.elapsed
    }
}

impl Report {
    /// From the first load, and the ids that were found in its partitions, in the same order.
    pub(super) fn new(load: &Load, ids: Vec<PartitionIds>) -> Self {
        let loaded = &load.loaded;
        let totals = Totals::of(loaded);
        let partitions: Vec<Partition> = loaded
            .partitions
            .iter()
            .zip(ids)
            .filter_map(|(outcome, found)| {
                let (map, stats) = outcome.result.as_ref().ok()?;
                Some(Partition::new(outcome, map.len(), stats, found))
            })
            .collect();
        let mut largest_ids: Vec<LargestId> =
            partitions.iter().flat_map(|partition| &partition.largest_ids).cloned().collect();
        largest_ids.sort_by_key(|id| std::cmp::Reverse(id.bytes));
        largest_ids.truncate(IDS_MAX);
        let mut busiest_ids: Vec<BusiestId> =
            partitions.iter().flat_map(|partition| &partition.busiest_ids).cloned().collect();
        busiest_ids.sort_by_key(|id| std::cmp::Reverse(id.records));
        busiest_ids.truncate(IDS_MAX);
        Self {
            topic: loaded.topic.clone(),
            threads: loaded.threads,
            io: loaded.io.name(),
            cache: loaded.cache.name(),
            identity: loaded.identity.name(),
            crc: loaded.crc,
            moving: loaded.is_moving,
            lenient: loaded.lenient,
            elapsed: loaded.elapsed,
            decoding: loaded.decoding,
            peak_map_bytes: loaded.peak_map_bytes,
            bytes: totals.bytes,
            live_bytes: partitions.iter().map(|partition| partition.live_bytes).sum(),
            superseded_bytes: partitions.iter().map(|partition| partition.superseded_bytes).sum(),
            records: totals.records,
            ids: totals.ids,
            tombstones: totals.tombstones,
            pending_completion: totals.pending_completion(),
            partitions_loaded: totals.loaded,
            partitions_refused: totals.refused,
            by_state: totals.by_state,
            last: Last::of(&partitions, loaded.threads),
            runs: Vec::new(),
            spreads: Vec::new(),
            largest_ids,
            busiest_ids,
            partitions,
            refused: load.refused_json(),
        }
    }

    /// All loads, the first among them.
    pub(super) fn set_runs(&mut self, runs: Vec<Run>) {
        self.spreads = spreads(&runs);
        self.runs = runs;
    }
}
