//! A log directory that is written to (Kafka's LogManager, one directory of it).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::ErrorKind;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use super::checkpoint::{CleanShutdown, OffsetCheckpoint, PartitionMetadata, Uuid};
use super::directory::{
    CHECKPOINT_BYTES_MAX, CLEAN_SHUTDOWN, HIGH_WATERMARKS, LOCK, LOG_STARTS, LogDir, Notice, PartitionDir,
    RECOVERY_POINTS,
};
use super::partition_name::{DirectoryName, DirectoryState, deleted_name};
use crate::error::Error;
use crate::io::{EntryKind, FileLock, Storage, read_small, remove_if_there, replace_file};
use crate::log::{Log, LogConfig, LogOwner, LogRecovery, LogState};
use crate::types::{Offset, TopicPartition};

/// How a root is opened.
pub struct OpenOptions<'a> {
    /// Threads that recover partitions (`num.recovery.threads.per.data.dir`).
    pub threads: NonZero<usize>,
    /// The settings of each partition.
    pub config: &'a (dyn Fn(&TopicPartition) -> LogConfig + Sync),
    /// Whether a log that ends below its log start may be emptied, as a broker does without asking.
    pub may_reset: bool,
    /// The time, ms since the epoch.
    pub now_ms: i64,
    /// Told after each partition: how many are done, and of how many.
    pub progress: Option<&'a (dyn Fn(usize, usize) + Sync)>,
}

impl fmt::Debug for OpenOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { threads, may_reset, now_ms, .. } = self;
        f.debug_struct("OpenOptions")
            .field("threads", threads)
            .field("may_reset", may_reset)
            .field("now_ms", now_ms)
            .finish_non_exhaustive()
    }
}

/// A log directory that this process alone writes to: it holds the lock that a broker would hold. Partitions whose
/// folders could not be opened do not keep the others from being used.
#[derive(Debug)]
pub struct LogRoot {
    storage: Arc<dyn Storage>,
    path: PathBuf,
    logs: RwLock<BTreeMap<TopicPartition, Arc<Log>>>,
    failed: BTreeMap<TopicPartition, Error>,
    notices: Vec<Notice>,
    /// What the checkpoints said of partitions that are not open: to be written again.
    kept: Mutex<[BTreeMap<TopicPartition, Offset>; 3]>,
    was_clean: bool,
    points: Arc<Points>,
}

/// The checkpoint files as they were written last. Every log holds it, and with it the lock of the root.
#[derive(Debug)]
struct Points {
    storage: Arc<dyn Storage>,
    path: PathBuf,
    /// In the order of [`CHECKPOINTS`]. Files are written by one thread at a time.
    files: Mutex<[BTreeMap<TopicPartition, Offset>; 3]>,
    _lock: FileLock,
}

impl Points {
    fn write(&self, name: &str, entries: &BTreeMap<TopicPartition, Offset>) -> Result<(), Error> {
        let entries = entries.iter().map(|(partition, offset)| (partition.clone(), *offset)).collect();
        let checkpoint = OffsetCheckpoint { entries, repeated: Vec::new() };
        let path = self.path.join(name);
        replace_file(&*self.storage, &path, checkpoint.encode().as_bytes()).map_err(Error::io("write", path))
    }
}

impl LogOwner for Points {
    fn lower_recovery_point(&self, partition: &TopicPartition, offset: Offset) -> Result<(), Error> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        match files[0].get_mut(partition) {
            Some(point) if *point > offset => *point = offset,
            _ => return Ok(()),
        }
        self.write(RECOVERY_POINTS, &files[0])
    }
}

/// What opening a root took.
#[derive(Debug, Default)]
pub struct RootRecovery {
    /// Whether the root had been shut down cleanly.
    pub was_clean: bool,
    /// What was done to each partition that is open now.
    pub partitions: BTreeMap<TopicPartition, LogRecovery>,
}

/// Most bytes of `partition.metadata`, which has 43.
const PARTITION_METADATA_BYTES_MAX: usize = 4096;
/// The checkpoint files of a root, in the order of [`LogRoot::kept`].
const CHECKPOINTS: [&str; 3] = [RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS];

impl LogRoot {
    /// Opens a root: takes its lock, removes the clean-shutdown file, so that a crash from here on counts as one, and
    /// opens and recovers every partition.
    ///
    /// # Errors
    /// [`Error::HeldByBroker`]; [`Error::Checkpoint`] for a malformed checkpoint file of the root: nothing was changed
    /// then but the clean-shutdown file is still there; [`Error::Io`]; [`Error::Threads`].
    pub fn open(
        storage: Arc<dyn Storage>,
        path: &Path,
        options: &OpenOptions<'_>,
    ) -> Result<(Self, RootRecovery), Error> {
        match storage.create_dir(path) {
            Ok(()) => {}
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            Err(e) => return Err(Error::io("create", path)(e)),
        }
        let path = storage.resolve(path).map_err(Error::io("open", path))?;
        let lock_path = path.join(LOCK);
        let lock = storage.lock_file(&lock_path).map_err(|e| match e.kind() {
            ErrorKind::WouldBlock => Error::HeldByBroker { path: path.clone() },
            _ => Error::io("lock", &lock_path)(e),
        })?;
        let mut checkpoints = Vec::with_capacity(CHECKPOINTS.len());
        for name in CHECKPOINTS {
            checkpoints.push(read_checkpoint(&*storage, &path.join(name))?);
        }
        let [recovery_points, log_starts, high_watermarks] =
            <[BTreeMap<TopicPartition, Offset>; 3]>::try_from(checkpoints).unwrap_or_default();
        let found = LogDir::open_root_for_writing(Arc::clone(&storage), &path)?;
        let was_clean = found.is_clean_shutdown();
        let clean = path.join(CLEAN_SHUTDOWN);
        if remove_if_there(&*storage, &clean).map_err(Error::io("remove", &clean))? {
            storage.sync_directory(&path).map_err(Error::io("bring to the device", &path))?;
        }

        let state_of = |partition: &TopicPartition| LogState {
            clean_shutdown: was_clean,
            recovery_point: recovery_points.get(partition).copied().unwrap_or(Offset(0)).max(Offset(0)),
            log_start_offset: log_starts.get(partition).copied().filter(|start| start.0 >= 0),
            high_watermark: high_watermarks.get(partition).copied().filter(|offset| offset.0 >= 0),
            may_reset: options.may_reset,
            now_ms: options.now_ms,
        };
        let opened = open_all(&storage, found.partitions(), &state_of, options)?;
        let mut recovery = RootRecovery { was_clean, ..RootRecovery::default() };
        let (mut logs, mut failed) = (BTreeMap::new(), BTreeMap::new());
        for (partition, result) in opened {
            match result {
                Ok((log, report)) => {
                    recovery.partitions.insert(partition.clone(), report);
                    logs.insert(partition, Arc::new(log));
                }
                Err(error) => drop(failed.insert(partition, error)),
            }
        }
        let kept = [recovery_points, log_starts, high_watermarks].map(|mut entries| {
            entries.retain(|partition, _| !logs.contains_key(partition));
            entries
        });
        let points = Points {
            storage: Arc::clone(&storage),
            path: path.clone(),
            files: Mutex::default(),
            _lock: lock,
        };
        let root = Self {
            storage,
            path,
            logs: RwLock::new(logs),
            failed,
            notices: found.notices().to_vec(),
            kept: Mutex::new(kept),
            was_clean,
            points: Arc::new(points),
        };
        root.checkpoint()?;
        root.logs().iter().for_each(|log| log.set_owner(Arc::clone(&root.points) as _));
        Ok((root, recovery))
    }

    /// The root, with all links followed.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The log of a partition, if it is open.
    pub fn log(&self, partition: &TopicPartition) -> Option<Arc<Log>> {
        self.logs.read().unwrap_or_else(PoisonError::into_inner).get(partition).cloned()
    }

    /// All open logs.
    pub fn logs(&self) -> Vec<Arc<Log>> {
        self.logs.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Partitions that could not be opened, and why.
    pub fn failed(&self) -> &BTreeMap<TopicPartition, Error> {
        &self.failed
    }

    /// Folders and files that were passed over.
    pub fn notices(&self) -> &[Notice] {
        &self.notices
    }

    /// Makes the log of a new partition, with the id of its topic if there is one; an open one is returned as it is.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Config`]; [`Error::InconsistentTopicId`]; [`Error::NotRead`] for a partition that could not be opened, or a name that no
    /// topic can have.
    pub fn create(
        &self,
        partition: &TopicPartition,
        topic_id: Option<Uuid>,
        config: LogConfig,
        now_ms: i64,
    ) -> Result<Arc<Log>, Error> {
        let mut logs = self.logs.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(log) = logs.get(partition) {
            if let Some(topic_id) = topic_id {
                self.keep_topic_id(&log.directory(), topic_id)?;
            }
            return Ok(Arc::clone(log));
        }
        let name = partition.to_string();
        let path = self.path.join(&name);
        let is_name = DirectoryName::parse(&name).is_some_and(|parsed| {
            parsed.state == DirectoryState::Live && parsed.topic_partition == *partition
        });
        if !is_name || self.failed.contains_key(partition) {
            let reason = match self.failed.get(partition) {
                Some(error) => error.to_string(),
                None => "no name that a partition can have".to_owned(),
            };
            return Err(Error::NotRead { path, reason });
        }
        let is_known = {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.iter_mut().filter_map(|entries| entries.remove(partition)).count() > 0
        };
        if is_known {
            // What was true of another partition of this name must not come to count for the new one.
            self.write_checkpoints(&logs)?;
        }
        let state = LogState { clean_shutdown: true, now_ms, ..LogState::default() };
        let (log, _) = Log::open(Arc::clone(&self.storage), &path, partition.clone(), config, &state)?;
        if let Some(topic_id) = topic_id {
            self.keep_topic_id(&path, topic_id)?;
        }
        log.set_owner(Arc::clone(&self.points) as _);
        let log = Arc::new(log);
        logs.insert(partition.clone(), Arc::clone(&log));
        Ok(log)
    }

    /// Writes a topic's id into a partition's folder, or makes sure that it is the one that is there.
    fn keep_topic_id(&self, directory: &Path, topic_id: Uuid) -> Result<(), Error> {
        let path = directory.join("partition.metadata");
        match read_small(&*self.storage, &path, PARTITION_METADATA_BYTES_MAX) {
            Ok(bytes) => match PartitionMetadata::parse(&bytes) {
                Ok(found) if found.topic_id == topic_id => Ok(()),
                Ok(found) => Err(Error::InconsistentTopicId {
                    path: directory.to_path_buf(),
                    expected: topic_id.to_string(),
                    found: found.topic_id.to_string(),
                }),
                Err(fault) => Err(Error::Checkpoint { path, reason: fault.to_string() }),
            },
            Err(e) if e.kind() == ErrorKind::NotFound => {
                let text = PartitionMetadata { version: 0, topic_id }.encode();
                replace_file(&*self.storage, &path, text.as_bytes()).map_err(Error::io("write", path))
            }
            Err(e) => Err(Error::io("read", path)(e)),
        }
    }

    /// Takes a partition out of use: its folder is renamed so that every start takes it for one that waits for its
    /// removal, which [`remove_deleted`](Self::remove_deleted) does. Says whether there was one. Readers that hold bytes
    /// of it go on undisturbed.
    ///
    /// # Errors
    /// [`Error::Io`]
    pub fn delete(&self, partition: &TopicPartition) -> Result<bool, Error> {
        let mut logs = self.logs.write().unwrap_or_else(PoisonError::into_inner);
        let Some(log) = logs.get(partition).cloned() else { return Ok(false) };
        // Nobody may make one of the same name meanwhile; and where it cannot be renamed it stays.
        log.rename_directory(&self.path.join(deleted_name(partition)))?;
        logs.remove(partition);
        drop(logs);
        self.storage.sync_directory(&self.path).map_err(Error::io("bring to the device", &self.path))?;
        self.checkpoint()?;
        Ok(true)
    }

    /// Removes the folders of partitions that wait for it; says how many.
    ///
    /// # Errors
    /// The first failure; every folder was tried.
    pub fn remove_deleted(&self) -> Result<usize, Error> {
        let (mut removed, mut result) = (0, Ok(()));
        for entry in self.storage.list(&self.path).map_err(Error::io("list", &self.path))? {
            let name = entry.name.to_str().and_then(DirectoryName::parse);
            // A link is not gone through: what lies behind it is not this root's.
            if entry.kind == EntryKind::Directory
                && name.is_some_and(|name| name.state == DirectoryState::Delete)
            {
                match self.remove_folder(&self.path.join(&entry.name)) {
                    Ok(()) => removed += 1,
                    Err(error) => result = result.and(Err(error)),
                }
            }
        }
        result?;
        if removed > 0 {
            self.storage.sync_directory(&self.path).map_err(Error::io("bring to the device", &self.path))?;
        }
        Ok(removed)
    }

    fn remove_folder(&self, folder: &Path) -> Result<(), Error> {
        for file in self.storage.list(folder).map_err(Error::io("list", folder))? {
            let path = folder.join(&file.name);
            remove_if_there(&*self.storage, &path).map_err(Error::io("remove", path))?;
        }
        self.storage.remove_dir(folder).map_err(Error::io("remove", folder))
    }

    /// Writes the checkpoint files: recovery points, log starts and high watermarks of all partitions, those of partitions
    /// that could not be opened as they were.
    ///
    /// # Errors
    /// [`Error::Io`]
    pub fn checkpoint(&self) -> Result<(), Error> {
        let logs = self.logs.read().unwrap_or_else(PoisonError::into_inner).clone();
        self.write_checkpoints(&logs)
    }

    fn write_checkpoints(&self, logs: &BTreeMap<TopicPartition, Arc<Log>>) -> Result<(), Error> {
        let mut written = self.points.files.lock().unwrap_or_else(PoisonError::into_inner);
        let mut files = self.kept.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for (partition, log) in logs {
            files[0].insert(partition.clone(), log.recovery_point());
            let first = log.segment_base_offsets().first().copied().unwrap_or(Offset(0));
            let log_start = log.log_start_offset();
            if log_start > first {
                files[1].insert(partition.clone(), log_start);
            }
            files[2].insert(partition.clone(), log.high_watermark());
        }
        for (name, entries) in CHECKPOINTS.iter().zip(&files) {
            self.points.write(name, entries)?;
        }
        *written = files;
        Ok(())
    }

    /// Brings every log to the device and closes it, writes the checkpoint files and, if all went well, the
    /// clean-shutdown file last; the lock is given up. Where partitions could not be opened the root stays marked as not
    /// cleanly shut down, unless it was before.
    ///
    /// # Errors
    /// The first failure; every log was tried. The next start recovers.
    pub fn close(self, broker_epoch: i64) -> Result<(), Error> {
        let mut result = Ok(());
        for log in self.logs() {
            result = result.and(log.close());
        }
        result = result.and(self.checkpoint());
        result?;
        if self.failed.is_empty() || self.was_clean {
            let path = self.path.join(CLEAN_SHUTDOWN);
            let text = CleanShutdown::encode(broker_epoch);
            replace_file(&*self.storage, &path, text.as_bytes()).map_err(Error::io("write", path))?;
        }
        Ok(())
    }
}

/// The partitions that several roots hold, each with the folders.
///
/// # Errors
/// [`Error::DuplicatePartition`] for one that lies in two of them, with which no broker starts.
pub fn check_duplicates<'r>(roots: impl IntoIterator<Item = &'r LogRoot>) -> Result<(), Error> {
    let mut seen: BTreeMap<TopicPartition, PathBuf> = BTreeMap::new();
    for root in roots {
        let open: BTreeSet<TopicPartition> = root
            .logs()
            .iter()
            .map(|log| log.topic_partition().clone())
            .chain(root.failed.keys().cloned())
            .collect();
        for partition in open {
            let second = root.path.join(partition.to_string());
            if let Some(first) = seen.insert(partition.clone(), second.clone()) {
                return Err(Error::DuplicatePartition { partition, first, second });
            }
        }
    }
    Ok(())
}

fn read_checkpoint(storage: &dyn Storage, path: &Path) -> Result<BTreeMap<TopicPartition, Offset>, Error> {
    match read_small(storage, path, CHECKPOINT_BYTES_MAX) {
        Ok(bytes) => match OffsetCheckpoint::parse(&bytes) {
            Ok(checkpoint) => Ok(checkpoint.entries.into_iter().collect()),
            Err(fault) => Err(Error::Checkpoint { path: path.to_path_buf(), reason: fault.to_string() }),
        },
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(BTreeMap::new()),
        Err(e) => Err(Error::io("read", path)(e)),
    }
}

type Opened = Vec<(TopicPartition, Result<(Log, LogRecovery), Error>)>;

/// Opens partitions, as many at once as there are threads.
fn open_all(
    storage: &Arc<dyn Storage>,
    partitions: &[PartitionDir],
    state_of: &(dyn Fn(&TopicPartition) -> LogState + Sync),
    options: &OpenOptions<'_>,
) -> Result<Opened, Error> {
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let opened = Mutex::new(Vec::with_capacity(partitions.len()));
    let work = || {
        while let Some(partition) = partitions.get(next.fetch_add(1, Ordering::Relaxed)) {
            let PartitionDir { topic_partition, path } = partition;
            let (config, state) = ((options.config)(topic_partition), state_of(topic_partition));
            let resolved = storage.resolve(path).map_err(Error::io("open", path));
            let result = resolved.and_then(|resolved| {
                if resolved != *path {
                    // What lies elsewhere is under no lock of ours.
                    let reason = "a link in place of a partition's folder".to_owned();
                    return Err(Error::NotRead { path: path.clone(), reason });
                }
                Log::open(Arc::clone(storage), path, topic_partition.clone(), config, &state)
            });
            opened.lock().unwrap_or_else(PoisonError::into_inner).push((topic_partition.clone(), result));
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            if let Some(progress) = options.progress {
                progress(done, partitions.len());
            }
        }
    };
    let threads = options.threads.get().min(partitions.len());
    std::thread::scope(|scope| {
        for number in 1..threads {
            let name = format!("redrive-recover-{number}");
            std::thread::Builder::new()
                .name(name)
                .spawn_scoped(scope, work)
                .map_err(|source| Error::Threads { threads, source })?;
        }
        work();
        Ok(())
    })?;
    Ok(opened.into_inner().unwrap_or_else(PoisonError::into_inner))
}
