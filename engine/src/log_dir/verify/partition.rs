//! One partition's folder: its names, its small files, and the walk over its log.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::finding::FindingKind;
use super::indexes::{Indexes, Presence};
use super::report::{Findings, PartitionReport, Place, VerifyCounts};
use super::root::RootOffsets;
use super::snapshots::Snapshots;
use super::walk::{LogWalk, SegmentFacts, Shared, kind_of};
use crate::error::Error;
use crate::io::{EntryKind, Storage, read_small};
use crate::log::{LeaderEpochCheckpoint, LeaderEpochFileCache, LogSnapshot, RecoveryPoint};
use crate::log_dir::checkpoint::PartitionMetadata;
use crate::log_dir::{LogDir, Notice, NoticeKind, PartitionDir};
use crate::segment::{SegmentFileKind, SegmentFileName, SegmentFileState};
use crate::types::Offset;

const LEADER_EPOCHS: &str = "leader-epoch-checkpoint";
const PARTITION_METADATA: &str = "partition.metadata";
/// Half a million epochs.
const LEADER_EPOCHS_BYTES_MAX: usize = 16 << 20;
const METADATA_BYTES_MAX: usize = 1 << 20;

/// Looks at everything in a partition's folder.
///
/// # Errors
/// [`Error::Cancelled`] only.
pub(super) fn verify_partition(
    shared: Shared<'_>,
    dir: &LogDir,
    partition: &PartitionDir,
    offsets: &RootOffsets,
) -> Result<PartitionReport, Error> {
    let mut findings = Findings::new(Some(partition.topic_partition.clone()));
    let mut report = PartitionReport {
        topic_partition: partition.topic_partition.clone(),
        path: partition.path.clone(),
        log_start_offset: Offset(0),
        log_end_offset: Offset(0),
        counts: VerifyCounts::default(),
        findings: Vec::new(),
        left_out: Vec::new(),
    };
    match dir.snapshot(partition) {
        Ok((snapshot, notices)) => {
            let snapshots = names(shared.storage, &partition.path, &notices, &mut findings);
            let end = log(shared, dir, &snapshot, snapshots, &mut report, &mut findings)?;
            if !snapshot.segments.is_empty() {
                offsets.check(dir.root(), &partition.topic_partition, end, &mut findings);
            }
        }
        Err(error) => {
            let path = match &error {
                Error::Io { path, .. } | Error::NotRead { path, .. } => path.clone(),
                _ => partition.path.clone(),
            };
            findings.push(Place::file(&path), kind_of(&error, dir.is_held()));
        }
    }
    (report.findings, report.left_out) = findings.finish();
    Ok(report)
}

/// Looks at the names in a folder; the snapshots by rising offset.
fn names(
    storage: &dyn Storage,
    folder: &Path,
    notices: &[Notice],
    findings: &mut Findings,
) -> Vec<(Offset, PathBuf)> {
    for Notice { path, kind } in notices {
        let kind = match kind {
            NoticeKind::Foreign if is_misleading(path) => FindingKind::MisleadingName,
            NoticeKind::Foreign => FindingKind::ForeignName,
            other => FindingKind::PassedOver(other.to_string()),
        };
        findings.push(Place::file(path), kind);
    }
    let entries = match storage.list(folder) {
        Ok(entries) => entries,
        Err(e) => {
            findings.push(Place::file(folder), FindingKind::Unreadable(e.to_string()));
            return Vec::new();
        }
    };
    let mut files: Vec<(SegmentFileName, PathBuf)> = Vec::new();
    for entry in entries {
        let path = folder.join(&entry.name);
        match (entry.name.to_str().and_then(SegmentFileName::parse), entry.kind) {
            (Some(name), EntryKind::File { .. } | EntryKind::Link) => match name.state {
                SegmentFileState::Live => files.push((name, path)),
                _ => findings.push(Place::file(&path).repaired_if(true), FindingKind::Leftover),
            },
            (None, EntryKind::File { .. }) if entry.name.as_encoded_bytes().ends_with(b".tmp") => {
                findings.push(Place::file(&path), FindingKind::Leftover);
            }
            _ => {}
        }
    }
    files.sort_by_key(|(name, _)| (name.offset, name.kind));
    let logs: HashSet<Offset> = files
        .iter()
        .filter(|(name, _)| name.kind == SegmentFileKind::Log)
        .map(|(name, _)| name.offset)
        .collect();
    let mut snapshots = Vec::new();
    for (name, path) in files {
        match name.kind {
            SegmentFileKind::Snapshot => snapshots.push((name.offset, path)),
            SegmentFileKind::Log => {}
            _ if logs.contains(&name.offset) => {}
            _ => findings.push(Place::file(&path).repaired_if(true), FindingKind::NoSegment),
        }
    }
    snapshots
}

/// Whether a broker goes by the ending of a name that is not one of its own.
fn is_misleading(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    [
        SegmentFileKind::Log,
        SegmentFileKind::OffsetIndex,
        SegmentFileKind::TimeIndex,
        SegmentFileKind::TransactionIndex,
        SegmentFileKind::Snapshot,
    ]
    .iter()
    .any(|kind| name.ends_with(kind.suffix().as_bytes()))
}

/// Walks over the log and looks at everything that names a place in it; where it ends.
fn log(
    shared: Shared<'_>,
    dir: &LogDir,
    log: &LogSnapshot,
    snapshots: Vec<(Offset, PathBuf)>,
    report: &mut PartitionReport,
    findings: &mut Findings,
) -> Result<Offset, Error> {
    let storage = shared.storage;
    let is_held = dir.is_held();
    // Read before the log: what is appended meanwhile is then behind all that they name.
    let epochs = leader_epochs(storage, &log.directory, findings);
    let metadata = log.directory.join(PARTITION_METADATA);
    if let Some(bytes) = read_if_there(storage, &metadata, METADATA_BYTES_MAX, findings)
        && let Err(fault) = PartitionMetadata::parse(&bytes)
    {
        findings.push(Place::file(&metadata), FindingKind::Identity(fault));
    }
    let log_start = log.log_start_offset();
    let first_base = log.segments.first().map_or(Offset(0), |first| first.base_offset);
    let snapshots = Snapshots::new(storage, is_held, snapshots, first_base);
    let mut walk = LogWalk::new(shared, is_held, log_start, epochs.clone(), snapshots, first_base);
    let (is_clean, recovery_point) = (log.recovery.clean_shutdown, log.recovery.recovery_point.as_broker());
    let flushed_below = match log.recovery.recovery_point {
        // It says nothing, so nothing is forgiven by it.
        RecoveryPoint::Unreadable => Offset(i64::MAX),
        point => point.as_broker(),
    };
    let mut missing = [0; 2];
    for (number, info) in log.segments.iter().enumerate() {
        let next_base = log.segments.get(number + 1).map(|next| next.base_offset);
        let is_recovered_at_start = !is_clean && next_base.is_none_or(|next| next > recovery_point);
        let paths =
            [SegmentFileKind::OffsetIndex, SegmentFileKind::TimeIndex].map(|kind| beside(&info.path, kind));
        let (indexes, there) =
            Indexes::read(storage, (&paths[0], &paths[1]), info.base_offset, is_recovered_at_start, findings);
        for (count, presence) in missing.iter_mut().zip(there) {
            *count += u64::from(presence == Presence::Missing);
        }
        let (offset_entries, time_entries) = indexes.entries();
        walk.counts.index_entries += offset_entries;
        walk.counts.time_index_entries += time_entries;
        let segment = SegmentFacts {
            path: info.path.clone(),
            base_offset: info.base_offset,
            is_last: next_base.is_none(),
            is_recovered_at_start,
            is_clean,
            flushed_below,
        };
        walk.segment(&segment, indexes, findings)?;
    }
    for (count, kind) in missing.into_iter().zip([SegmentFileKind::OffsetIndex, SegmentFileKind::TimeIndex]) {
        if count > 0 {
            let place = Place::file(&log.directory).repaired_if(true);
            findings.push(place, FindingKind::MissingIndexes { count, suffix: kind.suffix() });
        }
    }
    let (end, counts) = walk.finish(findings);
    if let Some(start) = log.log_start_checkpoint
        && start > end
        && !log.segments.is_empty()
    {
        let place = Place { offset: Some(end), ..Place::file(&log.directory) };
        findings.push(place, FindingKind::EndsBelowLogStart { end, start });
    }
    let beyond = epochs.iter().flat_map(|epochs| epochs.entries()).filter(|entry| entry.start_offset > end);
    for entry in beyond {
        let (epoch, found) = (entry.epoch, entry.start_offset);
        let path = log.directory.join(LEADER_EPOCHS);
        let place = Place { offset: Some(found), ..Place::file(&path).repaired_if(true) };
        findings.push(place, FindingKind::EpochBeyondLog { epoch, found, end });
    }
    report.log_start_offset = log_start;
    report.log_end_offset = end;
    report.counts = counts;
    Ok(end)
}

/// The file of another kind that belongs to the same segment, in the same step of a replacement.
fn beside(log: &Path, kind: SegmentFileKind) -> PathBuf {
    let name = log.file_name().and_then(|name| name.to_str()).and_then(SegmentFileName::parse);
    // Segments are found by such names.
    name.map_or_else(
        || log.to_path_buf(),
        |name| log.with_file_name(SegmentFileName { kind, ..name }.to_string()),
    )
}

fn leader_epochs(
    storage: &dyn Storage,
    folder: &Path,
    findings: &mut Findings,
) -> Option<LeaderEpochFileCache> {
    let path = folder.join(LEADER_EPOCHS);
    let bytes = read_if_there(storage, &path, LEADER_EPOCHS_BYTES_MAX, findings)?;
    match LeaderEpochCheckpoint::parse(&bytes) {
        Ok(checkpoint) => {
            if checkpoint.dropped > 0 {
                let kind = FindingKind::EpochsNotRising { dropped: checkpoint.dropped };
                findings.push(Place::file(&path), kind);
            }
            Some(LeaderEpochFileCache::from_checkpoint(checkpoint))
        }
        Err(fault) => {
            findings.push(Place::file(&path), FindingKind::Checkpoint(fault));
            None
        }
    }
}

fn read_if_there(
    storage: &dyn Storage,
    path: &Path,
    bytes_max: usize,
    findings: &mut Findings,
) -> Option<Vec<u8>> {
    match read_small(storage, path, bytes_max) {
        Ok(bytes) => Some(bytes),
        Err(e) => {
            if e.kind() != ErrorKind::NotFound {
                findings.push(Place::file(path), FindingKind::Unreadable(e.to_string()));
            }
            None
        }
    }
}
