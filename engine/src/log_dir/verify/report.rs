use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::finding::{Finding, FindingKind, Severity};
use crate::types::{Offset, TopicPartition};

/// Findings that are kept of one file; the others are counted.
const FINDINGS_PER_FILE_MAX: u64 = 20;

/// What was looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifyCounts {
    /// Segments.
    pub segments: u64,
    /// Bytes of their logs.
    pub bytes: u64,
    /// Batches with a good checksum.
    pub batches: u64,
    /// Records in them.
    pub records: u64,
    /// Entries of offset indexes.
    pub index_entries: u64,
    /// Entries of time indexes.
    pub time_index_entries: u64,
    /// Producer snapshots that could be read.
    pub snapshots: u64,
    /// Of those, the ones whose producers were compared with a replay of the log.
    pub snapshots_compared: u64,
}

impl VerifyCounts {
    fn add(&mut self, other: &Self) {
        let Self {
            segments,
            bytes,
            batches,
            records,
            index_entries,
            time_index_entries,
            snapshots,
            snapshots_compared,
        } = other;
        self.segments += segments;
        self.bytes += bytes;
        self.batches += batches;
        self.records += records;
        self.index_entries += index_entries;
        self.time_index_entries += time_index_entries;
        self.snapshots += snapshots;
        self.snapshots_compared += snapshots_compared;
    }
}

/// Findings of one file beyond those that are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// The file.
    pub path: PathBuf,
    /// Errors that are not listed.
    pub errors: u64,
    /// Notes that are not listed.
    pub notes: u64,
}

/// What was found in one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionReport {
    /// Which partition.
    pub topic_partition: TopicPartition,
    /// Its folder.
    pub path: PathBuf,
    /// Log start offset.
    pub log_start_offset: Offset,
    /// Offset behind the last batch that can be read.
    pub log_end_offset: Offset,
    /// What was looked at.
    pub counts: VerifyCounts,
    /// By path and byte position; at most 20 of a file.
    pub findings: Vec<Finding>,
    /// How many more there were.
    pub left_out: Vec<LeftOut>,
}

/// What was found in all directories.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// By topic, number and path.
    pub partitions: Vec<PartitionReport>,
    /// What belongs to the roots; at most 20 of a file.
    pub findings: Vec<Finding>,
    /// How many more of those there were.
    pub left_out: Vec<LeftOut>,
    /// Whether a running broker holds one of the directories: then the files changed while they were read.
    pub is_moving: bool,
}

impl VerifyReport {
    /// All findings, those of the roots first.
    pub fn all_findings(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().chain(self.partitions.iter().flat_map(|partition| &partition.findings))
    }

    /// All counts of findings that are not listed.
    pub fn all_left_out(&self) -> impl Iterator<Item = &LeftOut> {
        self.left_out.iter().chain(self.partitions.iter().flat_map(|partition| &partition.left_out))
    }

    /// Errors, also those that are not listed.
    pub fn errors(&self) -> u64 {
        self.of(Severity::Error) + self.all_left_out().map(|more| more.errors).sum::<u64>()
    }

    /// Notes, also those that are not listed.
    pub fn notes(&self) -> u64 {
        self.of(Severity::Note) + self.all_left_out().map(|more| more.notes).sum::<u64>()
    }

    fn of(&self, severity: Severity) -> u64 {
        self.all_findings().filter(|finding| finding.severity == severity).count() as u64
    }

    /// What was looked at in all partitions.
    pub fn counts(&self) -> VerifyCounts {
        let mut counts = VerifyCounts::default();
        self.partitions.iter().for_each(|partition| counts.add(&partition.counts));
        counts
    }
}

/// Takes findings, and keeps so many of each file.
#[derive(Debug, Default)]
pub(super) struct Findings {
    topic_partition: Option<TopicPartition>,
    kept: Vec<Finding>,
    /// By path: how many findings, and what was not kept.
    files: HashMap<PathBuf, Tally>,
}

#[derive(Debug, Default)]
struct Tally {
    found: u64,
    errors: u64,
    notes: u64,
}

/// Where something was found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    pub(super) path: &'a Path,
    pub(super) position: Option<u64>,
    pub(super) offset: Option<Offset>,
    pub(super) is_repaired_at_start: bool,
}

impl<'a> Place<'a> {
    /// A file as a whole.
    pub(super) fn file(path: &'a Path) -> Self {
        Self { path, position: None, offset: None, is_repaired_at_start: false }
    }

    pub(super) fn at(path: &'a Path, position: u64, offset: Offset) -> Self {
        Self { position: Some(position), offset: Some(offset), ..Self::file(path) }
    }

    pub(super) fn repaired_if(self, is_repaired_at_start: bool) -> Self {
        Self { is_repaired_at_start, ..self }
    }
}

impl Findings {
    pub(super) fn new(topic_partition: Option<TopicPartition>) -> Self {
        Self { topic_partition, ..Self::default() }
    }

    pub(super) fn push(&mut self, place: Place<'_>, kind: FindingKind) {
        let severity = kind.severity();
        if !self.files.contains_key(place.path) {
            self.files.insert(place.path.to_path_buf(), Tally::default());
        }
        let Some(tally) = self.files.get_mut(place.path) else { return };
        tally.found += 1;
        if tally.found > FINDINGS_PER_FILE_MAX {
            match severity {
                Severity::Error => tally.errors += 1,
                Severity::Note => tally.notes += 1,
            }
            return;
        }
        self.kept.push(Finding {
            severity,
            topic_partition: self.topic_partition.clone(),
            path: place.path.to_path_buf(),
            position: place.position,
            offset: place.offset,
            is_repaired_at_start: place.is_repaired_at_start,
            kind,
        });
    }

    /// The findings by path and position, and how many of which files were not kept.
    pub(super) fn finish(self) -> (Vec<Finding>, Vec<LeftOut>) {
        let Self { mut kept, files, .. } = self;
        // Stable: what is found at one place stays in the order in which it was found.
        kept.sort_by(|a, b| (&a.path, a.position).cmp(&(&b.path, b.position)));
        let mut left_out: Vec<LeftOut> = files
            .into_iter()
            .filter(|(_, tally)| tally.found > FINDINGS_PER_FILE_MAX)
            .map(|(path, Tally { errors, notes, .. })| LeftOut { path, errors, notes })
            .collect();
        left_out.sort_by(|a, b| a.path.cmp(&b.path));
        (kept, left_out)
    }
}
