use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::checkpoint::{CheckpointFault, OffsetCheckpoint};
use super::partition_name::{DirectoryName, DirectoryState};
use super::segments::{NamedFile, segments};
use crate::error::Error;
use crate::io::{Entry, EntryKind, Storage, read_small};
use crate::log::{LogSnapshot, RecoveryPoint, RecoveryState};
use crate::segment::SegmentFileName;
use crate::types::{Offset, TopicPartition};

pub(super) const CLEAN_SHUTDOWN: &str = ".kafka_cleanshutdown";
pub(super) const LOCK: &str = ".lock";
pub(super) const RECOVERY_POINTS: &str = "recovery-point-offset-checkpoint";
pub(super) const LOG_STARTS: &str = "log-start-offset-checkpoint";
pub(super) const HIGH_WATERMARKS: &str = "replication-offset-checkpoint";
/// Plain files of a root that are known, so that a root without any partition is recognised.
const ROOT_FILES: [&str; 7] = [
    "meta.properties",
    RECOVERY_POINTS,
    LOG_STARTS,
    HIGH_WATERMARKS,
    "cleaner-offset-checkpoint",
    CLEAN_SHUTDOWN,
    LOCK,
];
/// Files of a partition's folder other than segments.
const PARTITION_FILES: [&str; 2] = ["partition.metadata", "leader-epoch-checkpoint"];
/// Folders of a root that are not this crate's and not strange either.
const OTHER_FOLDERS: [&str; 2] = ["remote-log-index-cache", "__cluster_metadata-0"];
/// A checkpoint line takes some 30 bytes; this is room for ten million partitions.
pub(super) const CHECKPOINT_BYTES_MAX: usize = 256 << 20;

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
    #[error("marked for deletion, no part of the topic")]
    DeleteMarked,
    /// A replica that the cluster does not know here.
    #[error("stray replica, no part of the topic")]
    Stray,
    /// A replica that is being moved to this directory.
    #[error("replica that is being moved, no part of the topic")]
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

impl NoticeKind {
    /// What to say of a folder in this state.
    fn of(state: DirectoryState) -> Option<Self> {
        match state {
            DirectoryState::Live => None,
            DirectoryState::Delete => Some(Self::DeleteMarked),
            DirectoryState::Stray => Some(Self::Stray),
            DirectoryState::Future => Some(Self::Future),
        }
    }
}

/// A checkpoint file of the root.
#[derive(Clone, Debug)]
enum Checkpoint {
    Absent,
    Entries(BTreeMap<TopicPartition, Offset>),
    Unreadable,
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
    recovery_points: Checkpoint,
    log_starts: BTreeMap<TopicPartition, Offset>,
}

impl LogDir {
    /// Opens a log directory, or one partition's folder (`topic-N`), whose parent is then asked for the files of the
    /// root. A copy without any of those files is fine.
    ///
    /// Cost: a listing and at most three small files.
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

    /// As [`open`](Self::open), of a root that may be empty.
    pub(super) fn open_root_for_writing(storage: Arc<dyn Storage>, root: &Path) -> Result<Self, Error> {
        let entries = storage.list(root).map_err(Error::io("list", root))?;
        let mut dir = Self::with_root_files(storage, root.to_path_buf())?;
        dir.take_entries(entries);
        Ok(dir)
    }

    fn open_partition(storage: Arc<dyn Storage>, path: &Path, name: DirectoryName) -> Result<Self, Error> {
        let root = path.parent().unwrap_or(path).to_path_buf();
        let mut dir = Self::with_root_files(storage, root)?;
        dir.partitions =
            vec![PartitionDir { topic_partition: name.topic_partition, path: path.to_path_buf() }];
        // Read because it was asked for by name, but not in silence.
        dir.notices.extend(NoticeKind::of(name.state).map(|kind| Notice { path: path.to_path_buf(), kind }));
        Ok(dir)
    }

    fn open_root(
        storage: Arc<dyn Storage>,
        given: &Path,
        root: PathBuf,
        entries: Vec<Entry>,
    ) -> Result<Self, Error> {
        let mut dir = Self::with_root_files(storage, root)?;
        if !dir.take_entries(entries) {
            return Err(Error::NotALogDirectory {
                path: given.to_path_buf(),
                reason: "it has no partition folders (topic-N), no checkpoint files and no meta.properties",
            });
        }
        Ok(dir)
    }

    /// Takes up what a root holds; whether there is anything that only a root holds.
    fn take_entries(&mut self, entries: Vec<Entry>) -> bool {
        let dir = self;
        let mut is_root = entries.iter().any(|entry| ROOT_FILES.iter().any(|name| entry.name == *name));
        for entry in entries {
            let path = dir.root.join(&entry.name);
            let partition = entry.name.to_str().and_then(DirectoryName::parse);
            let kind = match (partition, entry.kind) {
                _ if OTHER_FOLDERS.iter().any(|name| entry.name == *name) => {
                    is_root |= entry.kind == EntryKind::Directory;
                    continue;
                }
                // A link in place of a partition's folder is found again, and refused, when its files are listed.
                (Some(name), EntryKind::Directory | EntryKind::Link) => {
                    is_root = true;
                    let Some(kind) = NoticeKind::of(name.state) else {
                        dir.partitions.push(PartitionDir { topic_partition: name.topic_partition, path });
                        continue;
                    };
                    kind
                }
                (None, EntryKind::Directory) => NoticeKind::Foreign,
                // Plain files that Kafka does not know are ignored by it. What became of the files of the root was told
                // when they were read.
                (None, EntryKind::Link) if ROOT_FILES.iter().any(|name| entry.name == *name) => continue,
                (None, EntryKind::Link) if !is_within(&*dir.storage, &dir.root, &path) => NoticeKind::Link,
                _ => continue,
            };
            dir.notices.push(Notice { path, kind });
        }
        dir.partitions.sort();
        dir.notices.sort_by(|a, b| a.path.cmp(&b.path));
        is_root
    }

    /// A directory without partitions, as the files of its root describe it.
    ///
    /// They are asked for one by one: the parent of a copied folder may be one that can be entered and not listed.
    fn with_root_files(storage: Arc<dyn Storage>, root: PathBuf) -> Result<Self, Error> {
        let has = |name: &str| -> Result<bool, Error> {
            let path = root.join(name);
            match storage.resolve(&path) {
                Ok(_) => Ok(true),
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(false),
                // Taken for absent, a file that cannot be reached would let a load forgive more than it may.
                Err(e) => Err(Error::io("look for", path)(e)),
            }
        };
        let lock = root.join(LOCK);
        let is_held = has(LOCK)?
            && storage.is_locked(&lock).map_err(Error::io("look for a lock on", lock.as_path()))?;
        let mut notices = Vec::new();
        let mut checkpoint = |name: &str| -> Result<Checkpoint, Error> {
            if !has(name)? {
                return Ok(Checkpoint::Absent);
            }
            let path = root.join(name);
            let mut take = |kind| notices.push(Notice { path: path.clone(), kind });
            if !is_within(&*storage, &root, &path) {
                take(NoticeKind::Link);
                return Ok(Checkpoint::Unreadable);
            }
            let bytes =
                read_small(&*storage, &path, CHECKPOINT_BYTES_MAX).map_err(Error::io("read", &path))?;
            let parsed: Result<OffsetCheckpoint, CheckpointFault> = OffsetCheckpoint::parse(&bytes);
            match parsed {
                Ok(checkpoint) => {
                    checkpoint.repeated.iter().cloned().map(NoticeKind::RepeatedPartition).for_each(take);
                    Ok(Checkpoint::Entries(checkpoint.entries.into_iter().collect()))
                }
                Err(fault) => {
                    take(NoticeKind::Checkpoint(fault.to_string()));
                    Ok(Checkpoint::Unreadable)
                }
            }
        };
        let recovery_points = checkpoint(RECOVERY_POINTS)?;
        let log_starts = match checkpoint(LOG_STARTS)? {
            Checkpoint::Entries(entries) => entries,
            Checkpoint::Absent | Checkpoint::Unreadable => BTreeMap::new(),
        };
        let clean_shutdown = has(CLEAN_SHUTDOWN)?;
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
    /// [`Error::Io`], also for a file of an unfinished replacement that cannot be read; [`Error::NotRead`] if the folder
    /// is a link, or something with the name of a segment is no regular file of the root: a log without it would not be
    /// complete.
    pub fn snapshot(&self, partition: &PartitionDir) -> Result<(LogSnapshot, Vec<Notice>), Error> {
        let not_read = |path: &Path, kind: &NoticeKind| Error::NotRead {
            path: path.to_path_buf(),
            reason: kind.to_string(),
        };
        let folder = self.storage.resolve(&partition.path).map_err(Error::io("open", &partition.path))?;
        if folder != partition.path {
            return Err(not_read(&partition.path, &NoticeKind::Link));
        }
        let entries = self.storage.list(&folder).map_err(Error::io("list", &folder))?;
        let (mut files, mut notices) = (Vec::new(), Vec::new());
        for entry in entries {
            let path = partition.path.join(&entry.name);
            let name = entry.name.to_str().and_then(SegmentFileName::parse);
            let kind = match (name, entry.kind) {
                (Some(name), EntryKind::File { len }) => {
                    files.push(NamedFile::new(name, path, len));
                    continue;
                }
                (Some(name), EntryKind::Link) if is_within(&*self.storage, &self.root, &path) => {
                    let len = self.storage.open(&path).and_then(|file| file.size());
                    let len = len.map_err(Error::io("look at the length of", &path))?;
                    files.push(NamedFile::new(name, path, len));
                    continue;
                }
                (_, EntryKind::Link) => NoticeKind::Link,
                (Some(_), _) => NoticeKind::NotAFile,
                (None, _) if is_known_beside_segments(&entry.name) => continue,
                (None, _) => NoticeKind::Foreign,
            };
            if name.is_some_and(SegmentFileName::is_part_of_log) {
                return Err(not_read(&path, &kind));
            }
            notices.push(Notice { path, kind });
        }
        notices.sort_by(|a, b| a.path.cmp(&b.path));
        let topic_partition = partition.topic_partition.clone();
        let recovery_point = match &self.recovery_points {
            Checkpoint::Absent => RecoveryPoint::Absent,
            Checkpoint::Unreadable => RecoveryPoint::Unreadable,
            // A negative number is no offset; 0 makes a broker look at everything.
            Checkpoint::Entries(points) => {
                RecoveryPoint::At(points.get(&topic_partition).copied().unwrap_or(Offset(0)).max(Offset(0)))
            }
        };
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
    (has_segments || entries.is_empty()) && !has_partitions && !has_root_files
}

/// Whether a path, links followed, leads to something below the root.
fn is_within(storage: &dyn Storage, root: &Path, path: &Path) -> bool {
    storage.resolve(path).is_ok_and(|target| target.starts_with(root))
}

fn is_known_beside_segments(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    // Files of this engine have names of their own, and unfinished rewrites of text files are worthless.
    PARTITION_FILES.contains(&name) || name.ends_with(".tmp") || name.starts_with("redrive-")
}
