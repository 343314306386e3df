use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use super::observer::{Cancel, Observer, Progress, Totals};
use super::partition::{Context, load};
use super::report::{IoUsed, Loaded, PartitionOutcome};
use crate::batch::Limits;
use crate::error::Error;
use crate::io::{FileSystem, Storage};
use crate::log::LogSnapshot;
use crate::log_dir::{LogDir, Notice, PartitionDir};
use crate::segment::Access;
use crate::types::TopicPartition;

/// The topic that coordinators keep their state in (Kafka's Topic.TRANSACTION_STATE_TOPIC_NAME).
const TRANSACTION_STATE: &str = "__transaction_state";
/// Bytes a thread reads at once by position; Kafka's `transaction.state.log.load.buffer.size` is 5 MiB.
const BUFFER_BYTES: usize = 1 << 20;

/// How the bytes of segments are to be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IoChoice {
    /// Positioned reads: as fast as mappings where both were measured, and whatever goes wrong with a file is an error.
    #[default]
    Auto,
    /// Map the files. A sector that cannot be read, or a file that somebody shortens meanwhile, then ends the process with
    /// SIGBUS instead of refusing a partition; so this is for files that nobody writes, on a disk that is trusted.
    Mmap,
    /// Positioned reads.
    Pread,
}

/// A load that is about to begin: where from, what of it, and how.
///
/// ```no_run
/// let loaded = redrive::replay("/var/lib/kafka/data")?.run()?;
/// for refused in loaded.refused() {
///     eprintln!("{}: {}", refused.topic_partition, refused.error().unwrap());
/// }
/// if let Some(entry) = loaded.get("billing-118")? {
///     println!("{} is {} since offset {}", entry.id(), entry.state(), entry.offset());
/// }
/// for pending in loaded.pending_completion() {
///     println!("{} must be completed: {:?}", pending.id(), pending.metadata()?.partitions);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Replay {
    storage: Arc<dyn Storage>,
    /// Each directory once.
    paths: Vec<PathBuf>,
    topic: String,
    partitions: Option<BTreeSet<i32>>,
    threads: NonZero<usize>,
    io: IoChoice,
    lenient: bool,
    limits: Limits,
    buffer_bytes: usize,
    progress_interval: Duration,
}

/// Opens a log directory (an entry of `log.dirs`), or one partition's folder, to load its transaction state.
///
/// # Errors
/// [`Error::Io`], [`Error::NotALogDirectory`].
pub fn replay(path: impl AsRef<Path>) -> Result<Replay, Error> {
    Replay::open(Arc::new(FileSystem), [path])
}

impl Replay {
    /// Opens several log directories of one broker. One that is named twice is opened once.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::NotALogDirectory`]: one bad directory fails the whole.
    pub fn open<P: AsRef<Path>>(
        storage: Arc<dyn Storage>,
        paths: impl IntoIterator<Item = P>,
    ) -> Result<Self, Error> {
        let mut opened = Self {
            storage,
            paths: Vec::new(),
            topic: TRANSACTION_STATE.to_owned(),
            partitions: None,
            threads: thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN),
            io: IoChoice::Auto,
            lenient: false,
            limits: Limits::default(),
            buffer_bytes: BUFFER_BYTES,
            progress_interval: Duration::from_millis(100),
        };
        let mut seen = BTreeSet::new();
        for path in paths {
            let path = path.as_ref();
            let resolved = opened.storage.resolve(path).map_err(Error::io("open", path))?;
            if seen.insert(resolved) {
                // What is wrong with a directory is said now. What is in it is looked at when the load begins.
                LogDir::open(opened.storage.clone(), path)?;
                opened.paths.push(path.to_path_buf());
            }
        }
        Ok(opened)
    }

    /// Loads another topic of the same format. Default `__transaction_state`.
    pub fn topic(mut self, topic: impl Into<String>) -> Self {
        self.topic = topic.into();
        self
    }

    /// Loads these partitions only, all of which must be there. Default: all that are.
    pub fn partitions(mut self, partitions: impl IntoIterator<Item = i32>) -> Self {
        self.partitions = Some(partitions.into_iter().collect());
        self
    }

    /// Threads to work with, never more than partitions. Default: the cores that this process may use.
    pub fn threads(mut self, threads: NonZero<usize>) -> Self {
        self.threads = threads;
        self
    }

    /// How to reach the bytes. Default [`IoChoice::Auto`].
    pub fn io(mut self, io: IoChoice) -> Self {
        self.io = io;
        self
    }

    /// Skips and counts what would refuse a partition. The map may then be wrong in either direction: a skipped
    /// record may have been the newest of its id.
    pub fn lenient(mut self, lenient: bool) -> Self {
        self.lenient = lenient;
        self
    }

    /// Bounds on decompression. Default [`Limits::default`].
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Bytes each thread reads at once by position. A larger batch makes its buffer grow. Default 1 MiB.
    pub fn buffer_bytes(mut self, bytes: usize) -> Self {
        self.buffer_bytes = bytes;
        self
    }

    /// How often an observer hears of progress, at least a millisecond apart. Default 100 ms.
    pub fn progress_interval(mut self, interval: Duration) -> Self {
        self.progress_interval = interval.max(Duration::from_millis(1));
        self
    }

    /// Loads.
    ///
    /// # Errors
    /// As [`run_with`](Self::run_with).
    pub fn run(&self) -> Result<Loaded, Error> {
        self.run_with(&mut (), &Cancel::new())
    }

    /// Loads, with an observer and a way to stop.
    ///
    /// Memory: a copy of each id and its newest value, and per thread one mapping, or one buffer that holds the
    /// largest batch. Never more descriptors than threads.
    ///
    /// # Errors
    /// [`Error::NoPartitions`], [`Error::HeldByBroker`], [`Error::Threads`], [`Error::Cancelled`]. A partition that
    /// cannot be loaded is no error of the load: see [`Loaded::refused`].
    pub fn run_with(&self, observer: &mut dyn Observer, cancel: &Cancel) -> Result<Loaded, Error> {
        let started = Instant::now();
        // A broker may have been started or stopped since the directories were opened.
        let directories = self.directories()?;
        let held = directories.iter().find(|directory| directory.is_held());
        let io = match (self.io, held) {
            (IoChoice::Mmap, Some(held)) => {
                return Err(Error::HeldByBroker { path: held.root().to_path_buf() });
            }
            (IoChoice::Mmap, None) => IoUsed::Mmap,
            (IoChoice::Auto | IoChoice::Pread, _) => IoUsed::Pread,
        };
        let jobs = self.jobs(&directories)?;
        let is_abandoned = AtomicBool::new(false);
        let totals = Totals::default();
        let context = Context {
            storage: &*self.storage,
            access: match io {
                IoUsed::Mmap => Access::Mapped,
                IoUsed::Pread => Access::Positioned { buffer_bytes: self.buffer_bytes },
            },
            lenient: self.lenient,
            limits: self.limits.clone(),
            cancel,
            is_abandoned: &is_abandoned,
            totals: &totals,
        };
        let threads = self.threads.get().min(jobs.len());
        let progress = |done: usize| Progress {
            bytes: totals.bytes.load(Ordering::Relaxed),
            bytes_total: jobs.iter().filter_map(|job| Some(job.snapshot.as_ref()?.bytes())).sum(),
            records: totals.records.load(Ordering::Relaxed),
            ids: totals.ids.load(Ordering::Relaxed).max(0).unsigned_abs(),
            partitions: done,
            partitions_total: jobs.len(),
            elapsed: started.elapsed(),
        };
        let mut partitions = Vec::with_capacity(jobs.len());
        let next_job = AtomicUsize::new(0);
        thread::scope(|scope| -> Result<(), Error> {
            // However this ends, also by a panic of the observer: nobody waits for the threads' results then.
            let _abandon = SetOnDrop(&is_abandoned);
            let (outcomes, published) = mpsc::channel();
            for number in 0..threads {
                let outcomes = outcomes.clone();
                let (jobs, next_job, context) = (&jobs, &next_job, &context);
                let work = move || {
                    while let Some(job) = jobs.get(next_job.fetch_add(1, Ordering::Relaxed)) {
                        let outcome = job.run(context);
                        if outcomes.send(Arc::new(outcome)).is_err() {
                            break;
                        }
                    }
                };
                thread::Builder::new()
                    .name(format!("redrive-load-{number}"))
                    .spawn_scoped(scope, work)
                    .map_err(|source| Error::Threads { threads, source })?;
            }
            drop(outcomes);
            let mut reported = Instant::now();
            loop {
                let wait = self.progress_interval.saturating_sub(reported.elapsed());
                match published.recv_timeout(wait) {
                    Ok(outcome) => {
                        if !cancel.is_cancelled() {
                            observer.partition(&outcome);
                        }
                        partitions.push(outcome);
                    }
                    Err(mpsc::RecvTimeoutError::Timeout) => {
                        observer.progress(&progress(partitions.len()));
                        reported = Instant::now();
                    }
                    Err(mpsc::RecvTimeoutError::Disconnected) => return Ok(()),
                }
            }
        })?;
        if cancel.is_cancelled() {
            return Err(Error::Cancelled);
        }
        observer.progress(&progress(partitions.len()));
        partitions.sort_by(|a, b| a.topic_partition.cmp(&b.topic_partition));
        Ok(Loaded {
            topic: self.topic.clone(),
            partitions,
            notices: directories.iter().flat_map(LogDir::notices).cloned().collect(),
            threads,
            io,
            is_moving: held.is_some() || self.directories()?.iter().any(LogDir::is_held),
            lenient: self.lenient,
            elapsed: started.elapsed(),
        })
    }

    /// The directories as they are now.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn directories(&self) -> Result<Vec<LogDir>, Error> {
        self.paths.iter().map(|path| LogDir::open(self.storage.clone(), path)).collect()
    }

    /// What is to be loaded, largest first, so that no thread is left alone with the largest at the end.
    fn jobs(&self, directories: &[LogDir]) -> Result<Vec<Job>, Error> {
        let mut found: BTreeMap<&TopicPartition, Vec<(&LogDir, &PartitionDir)>> = BTreeMap::new();
        for directory in directories {
            for partition in directory.partitions() {
                let TopicPartition { topic, partition: number } = &partition.topic_partition;
                if *topic == self.topic && self.partitions.as_ref().is_none_or(|some| some.contains(number)) {
                    let places = found.entry(&partition.topic_partition).or_default();
                    // A folder given by itself and with its root is still one.
                    if places.iter().all(|(_, known)| known.path != partition.path) {
                        places.push((directory, partition));
                    }
                }
            }
        }
        let is_there = |number: &i32| found.keys().any(|partition| partition.partition == *number);
        let missing: Vec<i32> =
            self.partitions.iter().flatten().filter(|number| !is_there(number)).copied().collect();
        if found.is_empty() || !missing.is_empty() {
            return Err(Error::NoPartitions {
                topic: self.topic.clone(),
                partitions: missing,
                paths: self.paths.clone(),
            });
        }
        let mut jobs: Vec<Job> = found.into_values().map(|places| Job::new(&places)).collect();
        jobs.sort_by_key(|job| std::cmp::Reverse(job.snapshot.as_ref().map_or(0, LogSnapshot::bytes)));
        Ok(jobs)
    }
}

/// Sets a flag when it goes.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// One partition to be loaded.
struct Job {
    topic_partition: TopicPartition,
    directory: PathBuf,
    notices: Vec<Notice>,
    /// The segments, unless the partition is refused before any of them is looked at.
    snapshot: Option<LogSnapshot>,
    refusal: std::sync::Mutex<Option<Error>>,
}

impl Job {
    fn new(places: &[(&LogDir, &PartitionDir)]) -> Self {
        let (directory, partition) = places[0];
        let (snapshot, notices, refusal) = match (places.get(1), directory.snapshot(partition)) {
            (Some((_, second)), _) => {
                let error = Error::DuplicatePartition {
                    partition: partition.topic_partition.clone(),
                    first: partition.path.clone(),
                    second: second.path.clone(),
                };
                (None, Vec::new(), Some(error))
            }
            (None, Ok((snapshot, notices))) => (Some(snapshot), notices, None),
            (None, Err(error)) => (None, Vec::new(), Some(error)),
        };
        Self {
            topic_partition: partition.topic_partition.clone(),
            directory: partition.path.clone(),
            notices,
            snapshot,
            refusal: std::sync::Mutex::new(refusal),
        }
    }

    fn run(&self, context: &Context<'_>) -> PartitionOutcome {
        let result = match &self.snapshot {
            Some(snapshot) => load(snapshot, context),
            // Errors cannot be cloned; a job runs once.
            None => Err(self
                .refusal
                .lock()
                .ok()
                .and_then(|mut refusal| refusal.take())
                .unwrap_or(Error::Cancelled)),
        };
        PartitionOutcome {
            topic_partition: self.topic_partition.clone(),
            directory: self.directory.clone(),
            notices: self.notices.clone(),
            result,
        }
    }
}
