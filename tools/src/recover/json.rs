//! What was done, for programs.

use std::io::{self, Write};

use redrive::log::{LogRecovery, ProducerReport, RecoveryReason, SegmentRecovery};
use redrive::log_dir::Notice;
use redrive::types::Offset;
use serde::Serialize;

use super::report::{Outcome, PartitionReport, Recovered, Report};
use crate::json::{ErrorJson, path_text, write_line};

/// The whole document.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ReportJson<'a> {
    log_dir: String,
    clean_shutdown: bool,
    segments_recovered: usize,
    segments_cut: usize,
    bytes_cut: u64,
    segments_dropped: usize,
    logs_reset: usize,
    partitions_changed: usize,
    partitions_refused: usize,
    notices: Vec<NoticeJson>,
    partitions: Vec<PartitionJson<'a>>,
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

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PartitionJson<'a> {
    topic: &'a str,
    partition: i32,
    #[serde(flatten)]
    outcome: OutcomeJson<'a>,
}

#[derive(Debug, Serialize)]
#[serde(tag = "outcome", rename_all = "camelCase")]
enum OutcomeJson<'a> {
    Recovered(RecoveredJson<'a>),
    Refused { error: &'a ErrorJson },
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct RecoveredJson<'a> {
    log_start_offset: i64,
    log_end_offset: i64,
    /// Whether anything was done.
    changed: bool,
    lost_records: bool,
    tidied: &'a [String],
    segments: Vec<SegmentJson>,
    dropped: Vec<i64>,
    was_reset: bool,
    epochs_changed: bool,
    producers: ProducersJson<'a>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct SegmentJson {
    base_offset: i64,
    why: &'static str,
    reason: String,
    batches: u64,
    cut: Option<CutJson>,
    leaves_gap: bool,
}

#[derive(Debug, Serialize)]
struct CutJson {
    /// The first one that went.
    offset: Option<i64>,
    position: u64,
    bytes: u64,
    reason: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ProducersJson<'a> {
    snapshot: Option<i64>,
    unusable: Vec<UnusableJson<'a>>,
    replayed_batches: u64,
}

#[derive(Debug, Serialize)]
struct UnusableJson<'a> {
    offset: i64,
    reason: &'a str,
}

impl SegmentJson {
    fn new(segment: &SegmentRecovery, cut_at: Option<Offset>) -> Self {
        let SegmentRecovery { base_offset, why, batches, cut, leaves_gap } = segment;
        Self {
            base_offset: base_offset.0,
            why: word(why),
            reason: why.to_string(),
            batches: *batches,
            cut: cut.as_ref().map(|cut| CutJson {
                offset: cut_at.map(|offset| offset.0),
                position: cut.position,
                bytes: cut.bytes,
                reason: cut.reason.to_string(),
            }),
            leaves_gap: *leaves_gap,
        }
    }
}

/// A word for a reason that does not change with its text.
fn word(why: &RecoveryReason) -> &'static str {
    match why {
        RecoveryReason::Unclean => "unclean",
        RecoveryReason::Files(_) => "index-files",
        RecoveryReason::TornTail => "torn-tail",
        RecoveryReason::Split => "split",
        _ => "other",
    }
}

impl<'a> From<&'a Recovered> for RecoveredJson<'a> {
    fn from(recovered: &'a Recovered) -> Self {
        let LogRecovery { tidied, segments, dropped, was_reset, producers, epochs_changed } =
            &recovered.recovery;
        let ProducerReport { snapshot, unusable, replayed_batches } = producers;
        let cut_at = |segment: &SegmentRecovery| recovered.cut_at.get(&segment.base_offset).copied();
        Self {
            log_start_offset: recovered.log_start_offset.0,
            log_end_offset: recovered.log_end_offset.0,
            changed: recovered.is_changed(),
            lost_records: recovered.recovery.lost_records(),
            tidied,
            segments: segments.iter().map(|segment| SegmentJson::new(segment, cut_at(segment))).collect(),
            dropped: dropped.iter().map(|offset| offset.0).collect(),
            was_reset: *was_reset,
            epochs_changed: *epochs_changed,
            producers: ProducersJson {
                snapshot: snapshot.map(|offset| offset.0),
                unusable: unusable
                    .iter()
                    .map(|(offset, reason)| UnusableJson { offset: offset.0, reason })
                    .collect(),
                replayed_batches: *replayed_batches,
            },
        }
    }
}

impl<'a> From<&'a PartitionReport> for PartitionJson<'a> {
    fn from(report: &'a PartitionReport) -> Self {
        Self {
            topic: &report.topic_partition.topic,
            partition: report.topic_partition.partition,
            outcome: match &report.outcome {
                Outcome::Recovered(recovered) => OutcomeJson::Recovered(recovered.into()),
                Outcome::Refused { error, .. } => OutcomeJson::Refused { error },
            },
        }
    }
}

/// One document: the sums, then the partitions.
pub(super) fn write_document(out: &mut dyn Write, report: &Report) -> io::Result<()> {
    let document = ReportJson {
        log_dir: path_text(report.root.as_os_str()),
        clean_shutdown: report.was_clean,
        segments_recovered: report.segments(),
        segments_cut: report.cuts().count(),
        bytes_cut: report.cuts().sum(),
        segments_dropped: report.dropped(),
        logs_reset: report.resets(),
        partitions_changed: report.changed(),
        partitions_refused: report.refused(),
        notices: report.notices.iter().map(NoticeJson::from).collect(),
        partitions: report.partitions.iter().map(PartitionJson::from).collect(),
    };
    write_line(out, &document)
}

/// An object a line for each partition.
pub(super) fn write_lines(out: &mut dyn Write, report: &Report) -> io::Result<()> {
    report.partitions.iter().try_for_each(|partition| write_line(out, &PartitionJson::from(partition)))
}
