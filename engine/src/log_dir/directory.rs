use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::checkpoint::{CheckpointFault, OffsetCheckpoint};
use super::partition_name::{DirectoryName, DirectoryState};
use super::segments::{NamedFile, segments};
use crate::error::Error;
use crate::io::{Entry, EntryKind, Storage, read_small};
use crate::log::{LogSnapshot, RecoveryState, SegmentInfo};
use crate::segment::SegmentFileName;
use crate::types::{Offset, TopicPartition};

const CLEAN_SHUTDOWN: &str = ".kafka_cleanshutdown";
const LOCK: &str = ".lock";
const RECOVERY_POINTS: &str = "recovery-point-offset-checkpoint";
const LOG_STARTS: &str = "log-start-offset-checkpoint";
/// Plain files of a root that are known, so that a root without any partition is recognised.
const ROOT_FILES: [&str; 7] = [
    "meta.properties",
    RECOVERY_POINTS,
    LOG_STARTS,
    "replication-offset-checkpoint",
    "cleaner-offset-checkpoint",
    CLEAN_SHUTDOWN,
    LOCK,
];
/// Files of a partition's folder other than segments.
const PARTITION_FILES: [&str; 2] = ["partition.metadata", "leader-epoch-checkpoint"];
/// Folders of a root that are not this crate's and not strange either.
const OTHER_FOLDERS: [&str; 2] = ["remote-log-index-cache", "__cluster_metadata-0"];
/// A checkpoint line takes some 30 bytes; this is room for ten million partitions.
const CHECKPOINT_BYTES_MAX: usize = 256 << 20;

/// Something in a log directory that was passed over or taken with a grain of salt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The file or folder.
    pub path: PathBuf,
    /// What about it.
    pub kind: NoticeKind,
}

/// Why something was passed over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoticeKind {
    /// A partition's folder that waits for deletion.
    #[error("marked for deletion, not read")]
    DeleteMarked,
    /// A replica that the cluster does not know here.
    #[error("stray replica, not read")]
    Stray,
    /// A replica that is being moved to this directory.
    #[error("replica that is being moved, not read")]
    Future,
    /// A name that Kafka does not write.
    #[error("no name that Kafka writes, not read")]
    Foreign,
    /// A link that leads out of the directory, to a folder, or nowhere.
    #[error("link that does not lead to a regular file of the same directory, not read")]
    Link,
    /// A pipe, socket, device, or a folder with a file's name.
    #[error("not a regular file, not read")]
    NotAFile,
    /// A checkpoint file that cannot be read counts as in a broker: as if it named no partition.
    #[error("unreadable, taken as if it named no partition: {0}")]
    Checkpoint(String),
    /// A checkpoint file that names a partition more than once; the last line counts.
    #[error("names {0} more than once, the last line counts")]
    RepeatedPartition(TopicPartition),
}

/// A partition's folder of a log directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PartitionDir {
    /// Which partition.
    pub topic_partition: TopicPartition,
    /// The folder.
    pub path: PathBuf,
}

/// A log directory as it is found, read-only.
#[derive(Clone, Debug)]
pub struct LogDir {
    storage: Arc<dyn Storage>,
    /// The root with all links followed; files outside it are not read.
    root: PathBuf,
    partitions: Vec<PartitionDir>,
    notices: Vec<Notice>,
    is_held: bool,
    clean_shutdown: bool,
    /// `None` without the file; empty for one that cannot be read.
    recovery_points: Option<BTreeMap<TopicPartition, Offset>>,
    log_starts: BTreeMap<TopicPartition, Offset>,
}

impl LogDir {
    /// Opens a log directory, or one partition's folder (`topic-N`), whose parent is then asked for the files of the
    /// root. A copy without any of those files is fine.
    ///
    /// Cost: two listings and three small files.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::NotALogDirectory`] for a folder with nothing of Kafka's in it.
    pub fn open(storage: Arc<dyn Storage>, path: &Path) -> Result<Self, Error> {
        let resolved = storage.resolve(path).map_err(Error::io("open", path))?;
        let entries = storage.list(&resolved).map_err(Error::io("list", path))?;
        let own_name = resolved.file_name().and_then(OsStr::to_str).and_then(DirectoryName::parse);
        match own_name {
            Some(name) if is_partition_folder(&entries) => Self::open_partition(storage, &resolved, name),
            _ => Self::open_root(storage, path, resolved, entries),
        }
    }

    fn open_partition(storage: Arc<dyn Storage>, path: &Path, name: DirectoryName) -> Result<Self, Error> {
        let root = path.parent().unwrap_or(path).to_path_buf();
        // The parent of a copied folder may be anything, also closed to us.
        let siblings = storage.list(&root).unwrap_or_default();
        let mut dir = Self::with_root_files(storage, root, &siblings)?;
        dir.partitions =
            vec![PartitionDir { topic_partition: name.topic_partition, path: path.to_path_buf() }];
        Ok(dir)
    }

    fn open_root(
        storage: Arc<dyn Storage>,
        given: &Path,
        root: PathBuf,
        entries: Vec<Entry>,
    ) -> Result<Self, Error> {
        let mut dir = Self::with_root_files(storage, root, &entries)?;
        let mut is_root = entries.iter().any(|entry| ROOT_FILES.iter().any(|name| entry.name == *name));
        for entry in entries {
            let path = dir.root.join(&entry.name);
            let kind = match entry.kind {
                EntryKind::Directory => match entry.name.to_str().and_then(DirectoryName::parse) {
                    Some(DirectoryName { topic_partition, state: DirectoryState::Live }) => {
                        is_root = true;
                        if !OTHER_FOLDERS.iter().any(|name| entry.name == *name) {
                            dir.partitions.push(PartitionDir { topic_partition, path });
                        }
                        continue;
                    }
                    Some(DirectoryName { state: DirectoryState::Delete, .. }) => NoticeKind::DeleteMarked,
                    Some(DirectoryName { state: DirectoryState::Stray, .. }) => NoticeKind::Stray,
                    Some(DirectoryName { state: DirectoryState::Future, .. }) => NoticeKind::Future,
                    None if OTHER_FOLDERS.iter().any(|name| entry.name == *name) => continue,
                    None => NoticeKind::Foreign,
                },
                // Plain files that Kafka does not know are ignored by it; a link in place of a folder is not. What
                // became of the files of the root was told when they were read.
                EntryKind::Link if ROOT_FILES.iter().any(|name| entry.name == *name) => continue,
                EntryKind::Link if !is_file_within(&*dir.storage, &dir.root, &path) => NoticeKind::Link,
                _ => continue,
            };
            is_root |= matches!(kind, NoticeKind::DeleteMarked | NoticeKind::Stray | NoticeKind::Future);
            dir.notices.push(Notice { path, kind });
        }
        if !is_root {
            return Err(Error::NotALogDirectory {
                path: given.to_path_buf(),
                reason: "it has no partition folders (topic-N), no checkpoint files and no meta.properties",
            });
        }
        dir.partitions.sort();
        dir.notices.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(dir)
    }

    /// A directory without partitions, as the files of its root describe it.
    fn with_root_files(storage: Arc<dyn Storage>, root: PathBuf, entries: &[Entry]) -> Result<Self, Error> {
        let has = |name: &str| entries.iter().any(|entry| entry.name == name);
        let lock = root.join(LOCK);
        let is_held =
            has(LOCK) && storage.is_locked(&lock).map_err(Error::io("look for a lock on", lock.as_path()))?;
        let mut notices = Vec::new();
        let mut checkpoint = |name: &str| -> Result<Option<BTreeMap<TopicPartition, Offset>>, Error> {
            if !has(name) {
                return Ok(None);
            }
            let path = root.join(name);
            let mut take = |kind| notices.push(Notice { path: path.clone(), kind });
            if !is_file_within(&*storage, &root, &path) {
                take(NoticeKind::Link);
                return Ok(Some(BTreeMap::new()));
            }
            let bytes =
                read_small(&*storage, &path, CHECKPOINT_BYTES_MAX).map_err(Error::io("read", &path))?;
            let parsed: Result<OffsetCheckpoint, CheckpointFault> = OffsetCheckpoint::parse(&bytes);
            match parsed {
                Ok(checkpoint) => {
                    checkpoint.repeated.iter().cloned().map(NoticeKind::RepeatedPartition).for_each(take);
                    Ok(Some(checkpoint.entries.into_iter().collect()))
                }
                Err(fault) => {
                    take(NoticeKind::Checkpoint(fault.to_string()));
                    Ok(Some(BTreeMap::new()))
                }
            }
        };
        let recovery_points = checkpoint(RECOVERY_POINTS)?;
        let log_starts = checkpoint(LOG_STARTS)?.unwrap_or_default();
        let clean_shutdown = has(CLEAN_SHUTDOWN);
        Ok(Self {
            storage,
            root,
            partitions: Vec::new(),
            notices,
            is_held,
            clean_shutdown,
            recovery_points,
            log_starts,
        })
    }

    /// The root, with all links followed.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The partitions, by topic and number. Folders that are stray, being moved or being deleted are not among them.
    pub fn partitions(&self) -> &[PartitionDir] {
        &self.partitions
    }

    /// What was passed over or mistrusted.
    pub fn notices(&self) -> &[Notice] {
        &self.notices
    }

    /// Whether a running broker holds the directory (its lock on `.lock`): then it changes while it is read.
    pub fn is_held(&self) -> bool {
        self.is_held
    }

    /// Whether the last broker closed the directory cleanly.
    pub fn is_clean_shutdown(&self) -> bool {
        self.clean_shutdown
    }

    /// The segments of one of the [`partitions`](Self::partitions) as they are now, and what was passed over in its
    /// folder.
    ///
    /// # Errors
    /// [`Error::Io`], also for a file of an unfinished replacement that cannot be read.
    pub fn snapshot(&self, partition: &PartitionDir) -> Result<(LogSnapshot, Vec<Notice>), Error> {
        let entries = self.storage.list(&partition.path).map_err(Error::io("list", &partition.path))?;
        let (mut files, mut notices) = (Vec::new(), Vec::new());
        for entry in entries {
            let path = partition.path.join(&entry.name);
            let name = entry.name.to_str().and_then(SegmentFileName::parse);
            let kind = match (name, entry.kind) {
                (Some(name), EntryKind::File { len }) => {
                    files.push(NamedFile { name, info: SegmentInfo { base_offset: name.offset, path, len } });
                    continue;
                }
                (Some(name), EntryKind::Link) if is_file_within(&*self.storage, &self.root, &path) => {
                    let len = self.storage.open(&path).and_then(|file| file.size());
                    let len = len.map_err(Error::io("look at the length of", &path))?;
                    files.push(NamedFile { name, info: SegmentInfo { base_offset: name.offset, path, len } });
                    continue;
                }
                (_, EntryKind::Link) => NoticeKind::Link,
                (Some(_), _) => NoticeKind::NotAFile,
                (None, _) if is_known_beside_segments(&entry.name) => continue,
                (None, _) => NoticeKind::Foreign,
            };
            notices.push(Notice { path, kind });
        }
        notices.sort_by(|a, b| a.path.cmp(&b.path));
        let topic_partition = partition.topic_partition.clone();
        let recovery_point = self
            .recovery_points
            .as_ref()
            // A negative number is no offset; 0 makes a broker look at everything.
            .map(|points| points.get(&topic_partition).copied().unwrap_or(Offset(0)).max(Offset(0)));
        let snapshot = LogSnapshot {
            segments: segments(&*self.storage, &files)?,
            directory: partition.path.clone(),
            log_start_checkpoint: self.log_starts.get(&topic_partition).copied().filter(|start| start.0 >= 0),
            recovery: RecoveryState { clean_shutdown: self.clean_shutdown, recovery_point },
            topic_partition,
        };
        Ok((snapshot, notices))
    }
}

/// Whether a folder with a partition's name holds a partition rather than partitions: `kafka-logs-1` is a good name
/// for a log directory, too.
fn is_partition_folder(entries: &[Entry]) -> bool {
    let has_partitions = entries.iter().any(|entry| {
        entry.kind == EntryKind::Directory && entry.name.to_str().and_then(DirectoryName::parse).is_some()
    });
    let has_root_files = entries.iter().any(|entry| ROOT_FILES.iter().any(|name| entry.name == *name));
    let has_segments = entries.iter().any(|entry| {
        entry
            .name
            .to_str()
            .is_some_and(|name| SegmentFileName::parse(name).is_some() || PARTITION_FILES.contains(&name))
    });
    has_segments && !has_partitions && !has_root_files
}

/// Whether a path leads to a regular file below the root, links followed.
fn is_file_within(storage: &dyn Storage, root: &Path, path: &Path) -> bool {
    storage.resolve(path).is_ok_and(|target| target.starts_with(root) && storage.open(&target).is_ok())
}

fn is_known_beside_segments(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    // Files of this engine have names of their own, and unfinished rewrites of text files are worthless.
    PARTITION_FILES.contains(&name) || name.ends_with(".tmp") || name.starts_with("redrive-")
}
