//! The small files of a root.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::Path;

use super::finding::FindingKind;
use super::report::{Findings, Place};
use crate::io::{Storage, read_small};
use crate::log_dir::checkpoint::{MetaProperties, OffsetCheckpoint};
use crate::log_dir::directory::{CHECKPOINT_BYTES_MAX, HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS};
use crate::log_dir::{LogDir, NoticeKind};
use crate::types::{Offset, TopicPartition};

const META_PROPERTIES: &str = "meta.properties";
const CLEANER_OFFSETS: &str = "cleaner-offset-checkpoint";
/// Checkpoints whose offsets cannot lie behind the end of a log. (Where a log starts is looked at with the log.)
const BOUNDED: [&str; 3] = [RECOVERY_POINTS, HIGH_WATERMARKS, CLEANER_OFFSETS];
const META_BYTES_MAX: usize = 1 << 20;

/// What the checkpoints of a root say, by file.
#[derive(Debug, Default)]
pub(super) struct RootOffsets {
    files: Vec<(&'static str, HashMap<TopicPartition, Offset>)>,
}

impl RootOffsets {
    /// Reads the files of a root and looks at each by itself; says what was passed over in it.
    pub(super) fn read(storage: &dyn Storage, dir: &LogDir, findings: &mut Findings) -> Self {
        for notice in dir.notices() {
            let kind = match &notice.kind {
                // These files are read again here.
                NoticeKind::Checkpoint(_) | NoticeKind::RepeatedPartition(_) => continue,
                NoticeKind::Foreign => FindingKind::ForeignName,
                other => FindingKind::PassedOver(other.to_string()),
            };
            findings.push(Place::file(&notice.path), kind);
        }
        let mut offsets = Self::default();
        for name in [RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS, CLEANER_OFFSETS] {
            let path = dir.root().join(name);
            let Some(bytes) = read(storage, dir.root(), &path, CHECKPOINT_BYTES_MAX, findings) else {
                continue;
            };
            let checkpoint = match OffsetCheckpoint::parse(&bytes) {
                Ok(checkpoint) => checkpoint,
                Err(fault) => {
                    findings.push(Place::file(&path), FindingKind::Checkpoint(fault));
                    continue;
                }
            };
            for partition in checkpoint.repeated {
                findings.push(Place::file(&path), FindingKind::RepeatedPartition(partition));
            }
            let mut entries = HashMap::new();
            for (partition, offset) in checkpoint.entries {
                if offset.0 < 0 {
                    findings
                        .push(Place::file(&path), FindingKind::NegativeOffset { partition, found: offset.0 });
                } else {
                    entries.insert(partition, offset);
                }
            }
            if BOUNDED.contains(&name) {
                offsets.files.push((name, entries));
            }
        }
        let path = dir.root().join(META_PROPERTIES);
        if let Some(bytes) = read(storage, dir.root(), &path, META_BYTES_MAX, findings)
            && let Err(fault) = MetaProperties::parse(&bytes)
        {
            findings.push(Place::file(&path), FindingKind::Identity(fault));
        }
        offsets
    }

    /// Holds the offsets of a partition against where its log ends.
    pub(super) fn check(
        &self,
        root: &Path,
        partition: &TopicPartition,
        end: Offset,
        findings: &mut Findings,
    ) {
        for (name, entries) in &self.files {
            let Some(&found) = entries.get(partition).filter(|&&offset| offset > end) else { continue };
            let partition = partition.clone();
            let path = root.join(name);
            let place = Place { offset: Some(found), ..Place::file(&path) };
            findings.push(place, FindingKind::CheckpointBeyondLog { partition, found, end });
        }
    }
}

/// A small file of the root; `None` if it is not there or cannot be read, which is said.
fn read(
    storage: &dyn Storage,
    root: &Path,
    path: &Path,
    bytes_max: usize,
    findings: &mut Findings,
) -> Option<Vec<u8>> {
    let bytes = match storage.resolve(path) {
        // Told among the notices of the directory.
        Ok(target) if !target.starts_with(root) => return None,
        Ok(_) => read_small(storage, path, bytes_max),
        Err(e) => Err(e),
    };
    match bytes {
        Ok(bytes) => Some(bytes),
        Err(e) => {
            if e.kind() != ErrorKind::NotFound {
                findings.push(Place::file(path), FindingKind::Unreadable(e.to_string()));
            }
            None
        }
    }
}
