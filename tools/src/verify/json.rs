//! Findings for programs.

use std::io::{self, Write};

use redrive::log_dir::verify::{
    Finding, FindingKind, LeftOut, PartitionReport, Severity, VerifyCounts, VerifyReport,
};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::json::{Elements, path_text, write_json, write_line};

/// A finding, with the fields that belong to its kind.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct FindingJson {
    kind: &'static str,
    severity: &'static str,
    path: String,
    topic: Option<String>,
    partition: Option<i32>,
    offset: Option<i64>,
    position: Option<u64>,
    repaired_at_start: bool,
    message: String,
    #[serde(flatten)]
    fields: Map<String, Value>,
}

impl From<&Finding> for FindingJson {
    fn from(finding: &Finding) -> Self {
        let partition = finding.topic_partition.as_ref();
        Self {
            kind: finding.kind.name(),
            severity: finding.severity.name(),
            path: path_text(finding.path.as_os_str()),
            topic: partition.map(|partition| partition.topic.clone()),
            partition: partition.map(|partition| partition.partition),
            offset: finding.offset.map(|offset| offset.0),
            position: finding.position,
            repaired_at_start: finding.is_repaired_at_start,
            message: finding.kind.to_string(),
            fields: fields(&finding.kind),
        }
    }
}

/// The numbers of a kind by themselves; what is a sentence only is in the message.
fn fields(kind: &FindingKind) -> Map<String, Value> {
    use FindingKind as Kind;
    let pairs: Vec<(&str, Value)> = match kind {
        Kind::Crc(mismatch) => {
            vec![("stored", mismatch.stored.into()), ("computed", mismatch.computed.into())]
        }
        Kind::TornTail { bytes, .. }
        | Kind::LongerThanData { bytes, .. }
        | Kind::PayloadOfNoRecords { bytes }
        | Kind::SegmentTooLarge { bytes }
        | Kind::Preallocated { bytes }
        | Kind::Padding { bytes } => vec![("bytes", (*bytes).into())],
        Kind::HeaderField { field, value } => vec![("field", (*field).into()), ("value", (*value).into())],
        Kind::OffsetGoesBack { expected, found } => {
            vec![("expected", expected.0.into()), ("found", found.0.into())]
        }
        Kind::BelowBase { base, found } | Kind::OutOfReach { base, found } => {
            vec![("baseOffset", base.0.into()), ("found", found.0.into())]
        }
        Kind::RecordBeyondBatch { last, found } => {
            vec![("lastOffset", last.0.into()), ("found", found.0.into())]
        }
        Kind::MaxTimestamp { header, records } => {
            vec![("header", (*header).into()), ("records", (*records).into())]
        }
        Kind::EndsBelowLogStart { end, start } => {
            vec![("logEndOffset", end.0.into()), ("logStartOffset", start.0.into())]
        }
        Kind::EpochGoesBack { last, found } => vec![("last", (*last).into()), ("found", (*found).into())],
        Kind::EpochMismatch { batch, checkpoint } => {
            vec![("batch", (*batch).into()), ("checkpoint", (*checkpoint).into())]
        }
        Kind::EpochsNotRising { dropped } => vec![("dropped", (*dropped).into())],
        Kind::EpochBeyondLog { epoch, found, end } => {
            vec![("epoch", (*epoch).into()), ("startOffset", found.0.into()), ("logEndOffset", end.0.into())]
        }
        Kind::IndexSize { bytes, entry_bytes } => {
            vec![("bytes", (*bytes).into()), ("entryBytes", (*entry_bytes).into())]
        }
        Kind::IndexEntryFalse { position, found } => {
            vec![("logPosition", (*position).into()), ("found", found.map(|offset| offset.0).into())]
        }
        Kind::IndexEntryEarly { position, found } => {
            vec![("logPosition", (*position).into()), ("found", found.0.into())]
        }
        Kind::IndexBeyondLog { data_end, end } => {
            vec![("logBytes", (*data_end).into()), ("logEndOffset", end.0.into())]
        }
        Kind::TimeEntryFalse { timestamp, found } => {
            vec![("timestamp", (*timestamp).into()), ("found", (*found).into())]
        }
        Kind::TimeEntryInside { last } => vec![("lastOffset", last.0.into())],
        Kind::MissingIndexes { count, suffix } => {
            vec![("count", (*count).into()), ("suffix", (*suffix).into())]
        }
        Kind::RepeatedProducer(producer_id) => vec![("producerId", producer_id.0.into())],
        Kind::SnapshotBeyondLog { end } => vec![("logEndOffset", end.0.into())],
        Kind::SnapshotInsideBatch { first, last } => {
            vec![("firstOffset", first.0.into()), ("lastOffset", last.0.into())]
        }
        Kind::SnapshotEntry { producer_id, field, value } => {
            vec![("producerId", producer_id.0.into()), ("field", (*field).into()), ("value", (*value).into())]
        }
        Kind::SnapshotDiffers { producer_id, field, snapshot, log } => vec![
            ("producerId", producer_id.0.into()),
            ("field", (*field).into()),
            ("snapshot", (*snapshot).into()),
            ("log", (*log).into()),
        ],
        Kind::OpenTransactionMissing { producer_id, first_offset } => {
            vec![("producerId", producer_id.0.into()), ("firstOffset", first_offset.0.into())]
        }
        Kind::ProducerNotInLog { producer_id, last_offset } => {
            vec![
                ("producerId", producer_id.0.into()),
                ("lastOffset", last_offset.map(|offset| offset.0).into()),
            ]
        }
        Kind::ProducersMissing { count } => vec![("count", (*count).into())],
        Kind::RepeatedPartition(partition) => vec![("topicPartition", partition.to_string().into())],
        Kind::CheckpointBeyondLog { partition, found, end } => vec![
            ("topicPartition", partition.to_string().into()),
            ("found", found.0.into()),
            ("logEndOffset", end.0.into()),
        ],
        Kind::NegativeOffset { partition, found } => {
            vec![("topicPartition", partition.to_string().into()), ("found", (*found).into())]
        }
        Kind::DuplicatePartition { other } => vec![("other", path_text(other.as_os_str()).into())],
        _ => Vec::new(),
    };
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// How many findings of a file are not given one by one.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct LeftOutJson {
    kind: &'static str,
    severity: &'static str,
    path: String,
    errors: u64,
    notes: u64,
    message: String,
}

impl From<&LeftOut> for LeftOutJson {
    fn from(left_out: &LeftOut) -> Self {
        let LeftOut { path, errors, notes } = left_out;
        let severity = if *errors > 0 { Severity::Error } else { Severity::Note };
        Self {
            kind: "left-out",
            severity: severity.name(),
            path: path_text(path.as_os_str()),
            errors: *errors,
            notes: *notes,
            message: format!("{errors} more errors and {notes} more notes of this file are not listed"),
        }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct CountsJson {
    segments: u64,
    bytes: u64,
    batches: u64,
    records: u64,
    index_entries: u64,
    time_index_entries: u64,
    snapshots: u64,
    snapshots_compared: u64,
}

impl From<&VerifyCounts> for CountsJson {
    fn from(counts: &VerifyCounts) -> Self {
        Self {
            segments: counts.segments,
            bytes: counts.bytes,
            batches: counts.batches,
            records: counts.records,
            index_entries: counts.index_entries,
            time_index_entries: counts.time_index_entries,
            snapshots: counts.snapshots,
            snapshots_compared: counts.snapshots_compared,
        }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PartitionJson {
    topic: String,
    partition: i32,
    directory: String,
    log_start_offset: i64,
    log_end_offset: i64,
    #[serde(flatten)]
    counts: CountsJson,
    findings: Vec<FindingJson>,
    left_out: Vec<LeftOutJson>,
}

impl From<&PartitionReport> for PartitionJson {
    fn from(report: &PartitionReport) -> Self {
        Self {
            topic: report.topic_partition.topic.clone(),
            partition: report.topic_partition.partition,
            directory: path_text(report.path.as_os_str()),
            log_start_offset: report.log_start_offset.0,
            log_end_offset: report.log_end_offset.0,
            counts: (&report.counts).into(),
            findings: report.findings.iter().map(FindingJson::from).collect(),
            left_out: report.left_out.iter().map(LeftOutJson::from).collect(),
        }
    }
}

/// One document: the sums, what belongs to the roots, then the partitions.
pub(super) fn write_document(out: &mut dyn Write, report: &VerifyReport) -> io::Result<()> {
    write!(
        out,
        "{{\"moving\":{},\"errors\":{},\"notes\":{},\"counts\":",
        report.is_moving,
        report.errors(),
        report.notes()
    )?;
    write_json(out, &CountsJson::from(&report.counts()))?;
    out.write_all(b",\"findings\":[")?;
    let mut elements = Elements::default();
    for finding in &report.findings {
        elements.push(out, &FindingJson::from(finding))?;
    }
    out.write_all(b"],\"leftOut\":[")?;
    let mut elements = Elements::default();
    for left_out in &report.left_out {
        elements.push(out, &LeftOutJson::from(left_out))?;
    }
    out.write_all(b"],\"partitions\":[")?;
    let mut elements = Elements::default();
    for partition in &report.partitions {
        elements.push(out, &PartitionJson::from(partition))?;
    }
    out.write_all(b"]}\n")
}

/// An object a line: the findings, then how many of which files are not among them.
pub(super) fn write_lines(out: &mut dyn Write, report: &VerifyReport) -> io::Result<()> {
    for finding in report.all_findings() {
        write_line(out, &FindingJson::from(finding))?;
    }
    for left_out in report.all_left_out() {
        write_line(out, &LeftOutJson::from(left_out))?;
    }
    Ok(())
}
