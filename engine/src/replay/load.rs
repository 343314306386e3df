use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use super::PartitionMap;
use super::budget::Budget;
use super::bytes::Worker;
use super::observer::{Cancel, Observer, Progress, Totals};
use super::partition::{Context, Run};
use super::reach::{self, IoChoice};
use super::records::{Cursor, LogRecords};
use super::report::{Decoded, Identity, Loaded, PartitionOutcome};
use super::scan::Rules;
use crate::batch::Limits;
use crate::error::Error;
use crate::io::{Cache, FileSystem, Storage};
use crate::log::{Addresses, LogSnapshot, SegmentInfo};
use crate::log_dir::{LogDir, Notice, PartitionDir};
use crate::machine::cpu::CpuKind;
use crate::map::IdHasher;
use crate::types::TopicPartition;

/// The topic that coordinators keep their state in (Kafka's Topic.TRANSACTION_STATE_TOPIC_NAME).
const TRANSACTION_STATE: &str = "__transaction_state";
/// Bytes that a thread scans before it applies what it found, and reads at once by position; Kafka's
/// `transaction.state.log.load.buffer.size` is 5 MiB.
const CHUNK_BYTES: usize = 1 << 20;
/// Smallest such number: a batch header.
const CHUNK_BYTES_MIN: usize = 61;
/// Bytes that are read at once to count live bytes where nothing is mapped.
const DECODE_BYTES: usize = 1 << 20;

/// Which partitions are loaded first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The largest: threads that are done early help with what is left, which is then little.
    #[default]
    LargestFirst,
    /// The smallest: many partitions can be answered for early.
    SmallestFirst,
    /// As [`Replay::partitions`] names them, else by number.
    AsGiven,
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
///     let pending = pending?;
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
    /// In the order in which they were asked for.
    partitions: Option<Vec<i32>>,
    threads: NonZero<usize>,
    io: IoChoice,
    order: Order,
    identity: Identity,
    memory_budget: Option<u64>,
    lenient: bool,
    limits: Limits,
    chunk_bytes: usize,
    counts_live_bytes: bool,
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
            order: Order::default(),
            identity: Identity::default(),
            memory_budget: None,
            lenient: false,
            limits: Limits::default(),
            chunk_bytes: CHUNK_BYTES,
            counts_live_bytes: true,
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
        let mut given = Vec::new();
        for partition in partitions {
            if !given.contains(&partition) {
                given.push(partition);
            }
        }
        self.partitions = Some(given);
        self
    }

    /// Threads to work with, each on a partition of its own while there are some, then together on those that are left.
    /// Default: the cores that this process may use.
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

    /// Which partitions come first. Default [`Order::LargestFirst`].
    pub fn order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    /// What makes two ids the same. Default [`Identity::Exact`].
    pub fn identity(mut self, identity: Identity) -> Self {
        self.identity = identity;
        self
    }

    /// Most bytes of memory that the maps of all partitions may take together, growing tables counted twice. A partition
    /// that would need more is refused with [`Error::Memory`]. Buffers come on top: a few MiB a thread, or one batch,
    /// decompressed, where that is larger. Default: no limit.
    pub fn memory_budget(mut self, bytes: Option<u64>) -> Self {
        self.memory_budget = bytes;
        self
    }

    /// Whether [`PartitionOutcome::live_bytes`] is found out, after all maps were published. Default: yes.
    pub fn counts_live_bytes(mut self, counts: bool) -> Self {
        self.counts_live_bytes = counts;
        self
    }

    /// Bytes that each thread scans before it applies what it found, and reads at once by position; at least 61. A larger
    /// batch makes its buffer grow. By io_uring it reads four times as many at once, 4 KiB to 1 MiB. Default 1 MiB.
    pub fn chunk_bytes(mut self, bytes: usize) -> Self {
        self.chunk_bytes = bytes.max(CHUNK_BYTES_MIN);
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
    /// Memory: 11 to 21 bytes an id, and a copy of the id where the log is not mapped; per thread 10 MiB or so, or a
    /// buffer that holds the largest batch. At most two descriptors a thread, four by io_uring, and 256 mappings a
    /// partition that is being loaded.
    ///
    /// # Errors
    /// [`Error::NoPartitions`], [`Error::HeldByBroker`], [`Error::IoUnavailable`], [`Error::Threads`],
    /// [`Error::Cancelled`]. A partition that
    /// cannot be loaded is no error of the load: see [`Loaded::refused`].
    pub fn run_with(&self, observer: &mut dyn Observer, cancel: &Cancel) -> Result<Loaded, Error> {
        let started = Instant::now();
        // A broker may have been started or stopped since the directories were opened.
        let directories = self.directories()?;
        let held = directories.iter().find(|directory| directory.is_held());
        if let (IoChoice::Mmap, Some(held)) = (self.io, held) {
            return Err(Error::HeldByBroker { path: held.root().to_path_buf() });
        }
        let mut jobs = self.jobs(&directories)?;
        let cache = self.cache(&mut jobs);
        let bytes_total = jobs.iter().filter_map(|job| Some(job.snapshot.as_ref()?.bytes())).sum();
        // No more than there can be chunks.
        let chunks = usize::try_from(bytes_total / self.chunk_bytes as u64).unwrap_or(usize::MAX);
        let threads = self.threads.get().min(chunks.saturating_add(jobs.len()));
        let paths = jobs.iter().flat_map(Job::segments).map(|segment| segment.path.as_path());
        let io = reach::choose(self.io, cache, held.is_some(), &*self.storage, paths, threads)?;
        let is_abandoned = AtomicBool::new(false);
        let totals = Totals::default();
        let budget = Budget::new(self.memory_budget);
        let cpu = CpuKind::detect();
        let hasher = Arc::new(IdHasher::new(self.identity == Identity::Hash, cpu));
        let rules = Rules { lenient: self.lenient, limits: self.limits.clone(), cpu };
        let crc = rules.cpu.name();
        let context = Context {
            storage: &*self.storage,
            io,
            rules,
            hasher: &hasher,
            threads,
            segments: jobs.iter().map(|job| job.segments().count()).sum(),
            chunk_bytes: self.chunk_bytes,
            budget: &budget,
            cancel,
            is_abandoned: &is_abandoned,
            totals: &totals,
        };
        let pool = Pool {
            jobs: &jobs,
            runs: jobs.iter().map(|_| OnceLock::new()).collect(),
            next: AtomicUsize::new(0),
            context: &context,
            storage: &self.storage,
            hasher: &hasher,
            started,
            published: Mutex::new(Vec::new()),
            next_decoded: AtomicUsize::new(0),
        };
        let progress = |done: usize| Progress {
            bytes: totals.bytes.load(Ordering::Relaxed),
            bytes_total,
            records: totals.records.load(Ordering::Relaxed),
            ids: pool.ids(),
            partitions: done,
            partitions_total: jobs.len(),
            elapsed: started.elapsed(),
            cache,
        };
        let mut partitions = Vec::with_capacity(jobs.len());
        let mut elapsed = Duration::ZERO;
        thread::scope(|scope| -> Result<(), Error> {
            // However this ends, also by a panic of the observer: nobody waits for the threads' results then.
            let _abandon = SetOnDrop(&is_abandoned);
            let (outcomes, published) = mpsc::channel();
            for number in 0..threads {
                let outcomes = outcomes.clone();
                let pool = &pool;
                let work = move || {
                    pool.load(&outcomes);
                    // The channel closes when the last map is out; live bytes do not keep anybody waiting.
                    drop(outcomes);
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
                        elapsed = started.elapsed();
                        if !cancel.is_cancelled() {
                            observer.partition(&outcome);
                        }
                        partitions.push(outcome);
                    }
                    Err(mpsc::RecvTimeoutError::Timeout) => {
                        observer.progress(&progress(partitions.len()));
                        reported = Instant::now();
                    }
                    Err(mpsc::RecvTimeoutError::Disconnected) => break,
                }
            }
            Ok(())
        })?;
        if cancel.is_cancelled() {
            return Err(Error::Cancelled);
        }
        observer.progress(&progress(partitions.len()));
        if self.counts_live_bytes {
            // That the loading came to its end is no reason to leave this.
            is_abandoned.store(false, Ordering::Relaxed);
            thread::scope(|scope| -> Result<(), Error> {
                for number in 0..threads.min(partitions.len()) {
                    thread::Builder::new()
                        .name(format!("redrive-decode-{number}"))
                        .spawn_scoped(scope, || pool.decode())
                        .map_err(|source| Error::Threads { threads, source })?;
                }
                Ok(())
            })?;
            if cancel.is_cancelled() {
                return Err(Error::Cancelled);
            }
        }
        drop(pool);
        partitions.sort_by(|a, b| a.topic_partition.cmp(&b.topic_partition));
        Ok(Loaded {
            topic: self.topic.clone(),
            partitions,
            notices: directories.iter().flat_map(LogDir::notices).cloned().collect(),
            threads,
            io,
            cache,
            identity: self.identity,
            crc,
            peak_map_bytes: budget.peak(),
            is_moving: held.is_some() || self.directories()?.iter().any(LogDir::is_held),
            lenient: self.lenient,
            elapsed,
            decoding: started.elapsed().saturating_sub(elapsed),
        })
    }

    /// The directories as they are now.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn directories(&self) -> Result<Vec<LogDir>, Error> {
        self.paths.iter().map(|path| LogDir::open(self.storage.clone(), path)).collect()
    }

    /// How much of what is to be loaded is in the page cache. Counts as time of the partitions that were looked at.
    fn cache(&self, jobs: &mut [Job]) -> Cache {
        let files: Vec<(usize, SegmentInfo)> = jobs
            .iter()
            .enumerate()
            .flat_map(|(number, job)| job.segments().map(move |segment| (number, segment.clone())))
            .collect();
        let (numbers, samples) = reach::samples(files.len());
        let mut found = None;
        for (number, segment) in numbers.map(|number| &files[number]) {
            let begun = Instant::now();
            let cache = reach::look(&*self.storage, &segment.path, segment.len, samples);
            jobs[*number].open += begun.elapsed();
            if cache == Cache::Mixed || found.is_some_and(|found| found != cache) {
                return Cache::Mixed;
            }
            found = Some(cache);
        }
        found.unwrap_or(Cache::Warm)
    }

    /// What is to be loaded, in the order in which it is.
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
        let mut missing: Vec<i32> =
            self.partitions.iter().flatten().filter(|number| !is_there(number)).copied().collect();
        missing.sort_unstable();
        if found.is_empty() || !missing.is_empty() {
            return Err(Error::NoPartitions {
                topic: self.topic.clone(),
                partitions: missing,
                paths: self.paths.clone(),
            });
        }
        let mut jobs: Vec<Job> = found.into_values().map(|places| Job::new(&places)).collect();
        let bytes = |job: &Job| job.snapshot.as_ref().map_or(0, |snapshot| snapshot.bytes());
        match (self.order, &self.partitions) {
            (Order::LargestFirst, _) => jobs.sort_by_key(|job| std::cmp::Reverse(bytes(job))),
            (Order::SmallestFirst, _) => jobs.sort_by_key(bytes),
            (Order::AsGiven, Some(given)) => jobs
                .sort_by_key(|job| given.iter().position(|number| *number == job.topic_partition.partition)),
            (Order::AsGiven, None) => {}
        }
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
    snapshot: Option<Arc<LogSnapshot>>,
    addresses: Addresses,
    /// Taken out when it is told.
    refusal: Mutex<Option<Error>>,
    /// Time that the look at the folder took.
    open: Duration,
}

impl Job {
    fn new(places: &[(&LogDir, &PartitionDir)]) -> Self {
        let begun = Instant::now();
        let (directory, partition) = places[0];
        let listed = match places.get(1) {
            Some((_, second)) => Err(Error::DuplicatePartition {
                partition: partition.topic_partition.clone(),
                first: partition.path.clone(),
                second: second.path.clone(),
            }),
            None => directory.snapshot(partition),
        };
        let addressed = listed.and_then(|(snapshot, notices)| {
            let addresses = Addresses::of(&snapshot)?;
            Ok((Arc::new(snapshot), addresses, notices))
        });
        let (snapshot, addresses, notices, refusal) = match addressed {
            Ok((snapshot, addresses, notices)) => (Some(snapshot), addresses, notices, None),
            Err(error) => (None, Addresses::default(), Vec::new(), Some(error)),
        };
        Self {
            topic_partition: partition.topic_partition.clone(),
            directory: partition.path.clone(),
            notices,
            snapshot,
            addresses,
            refusal: Mutex::new(refusal),
            open: begun.elapsed(),
        }
    }

    /// Segments with bytes in them.
    fn segments(&self) -> impl Iterator<Item = &SegmentInfo> {
        let snapshot = self.snapshot.as_ref();
        snapshot.into_iter().flat_map(|snapshot| &snapshot.segments).filter(|segment| segment.len > 0)
    }

    fn outcome(&self, result: Result<(PartitionMap, super::PartitionStats), Error>) -> Arc<PartitionOutcome> {
        Arc::new(PartitionOutcome {
            topic_partition: self.topic_partition.clone(),
            directory: self.directory.clone(),
            notices: self.notices.clone(),
            result,
            decoded: OnceLock::new(),
        })
    }
}

type Outcomes = mpsc::Sender<Arc<PartitionOutcome>>;

/// The work of a load, from which its threads help themselves.
struct Pool<'a> {
    jobs: &'a [Job],
    /// Partitions that were taken up, with the time that was.
    runs: Vec<OnceLock<Option<(Run<'a>, Instant)>>>,
    next: AtomicUsize,
    context: &'a Context<'a>,
    storage: &'a Arc<dyn Storage>,
    hasher: &'a Arc<IdHasher>,
    started: Instant,
    /// Outcomes with a map, and the numbers of their jobs.
    published: Mutex<Vec<(usize, Arc<PartitionOutcome>)>>,
    next_decoded: AtomicUsize,
}

impl<'a> Pool<'a> {
    /// One thread's part: partitions that nobody has taken up, then those that others are at.
    fn load(&self, outcomes: &Outcomes) {
        let mut worker = Worker::new(self.context);
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(job) = self.jobs.get(number) else { break };
            self.take_up(job, number, &mut worker, outcomes);
        }
        // The one that was taken up last has most left.
        for (number, job) in self.jobs.iter().enumerate().rev() {
            // Whoever took it up may still be opening it.
            if let Some((run, begun)) = self.opened(job, number, outcomes)
                && run.has_chunks()
                && run.work(&mut worker)
            {
                self.publish(job, run, *begun, outcomes);
            }
        }
    }

    fn take_up(&self, job: &'a Job, number: usize, worker: &mut Worker<'_>, outcomes: &Outcomes) {
        if let Some((run, begun)) = self.opened(job, number, outcomes)
            && run.work(worker)
        {
            self.publish(job, run, *begun, outcomes);
        }
    }

    /// A partition that is ready to be worked on; one that is not is refused by whoever opens it.
    fn opened(&self, job: &'a Job, number: usize, outcomes: &Outcomes) -> Option<&(Run<'a>, Instant)> {
        let open = || {
            let begun = Instant::now();
            let run = match &job.snapshot {
                Some(_) if self.context.is_stopped() => Err(Error::Cancelled),
                Some(snapshot) => Run::new(snapshot, self.context, &job.addresses),
                None => {
                    let refusal = job.refusal.lock().unwrap_or_else(PoisonError::into_inner).take();
                    Err(refusal.unwrap_or(Error::Cancelled))
                }
            };
            run.map(|run| (run, begun))
                .map_err(|error| {
                    // Nobody may be waiting any more.
                    let _ = outcomes.send(job.outcome(Err(error)));
                })
                .ok()
        };
        self.runs[number].get_or_init(open).as_ref()
    }

    /// Makes the map of a partition whose last chunk is done, and hands it out.
    fn publish(&self, job: &Job, run: &Run<'_>, begun: Instant, outcomes: &Outcomes) {
        let finishing = Instant::now();
        let finished = run.finish();
        let publishing = Instant::now();
        let result = finished.map(|finished| {
            let records = LogRecords {
                storage: self.storage.clone(),
                snapshot: run.snapshot().clone(),
                addresses: job.addresses.clone(),
                limits: self.context.rules.limits.clone(),
            };
            let map = PartitionMap::new(finished.index, finished.side, self.hasher.clone(), records);
            let mut stats = finished.stats;
            stats.by_state = map.by_state();
            stats.map_bytes = map.bytes() as u64;
            stats.wait = begun.saturating_duration_since(self.started);
            stats.elapsed = begun.elapsed();
            stats.phases.open += job.open;
            stats.phases.finish = publishing - finishing;
            stats.phases.publish = publishing.elapsed();
            (map, stats)
        });
        let outcome = job.outcome(result);
        if let Some(map) = outcome.map() {
            run.published(map.len());
            let number = self.jobs.iter().position(|other| std::ptr::eq(other, job)).unwrap_or(0);
            self.published.lock().unwrap_or_else(PoisonError::into_inner).push((number, outcome.clone()));
        } else {
            run.refused();
        }
        let _ = outcomes.send(outcome);
    }

    /// One thread's part of counting live bytes.
    fn decode(&self) {
        loop {
            let number = self.next_decoded.fetch_add(1, Ordering::Relaxed);
            let taken = {
                let published = self.published.lock().unwrap_or_else(PoisonError::into_inner);
                published.get(number).cloned()
            };
            let Some((number, outcome)) = taken else { break };
            let (Some(map), Some(Some((run, _)))) = (outcome.map(), self.runs[number].get()) else {
                continue;
            };
            let begun = Instant::now();
            let mut cursor = Cursor::new(DECODE_BYTES);
            let size = |address| match run.mappings().batch_size(address) {
                Some(size) => Ok(size),
                None => map.records().batch_size(&mut cursor, address),
            };
            let live_bytes = map.live_bytes(size, || self.context.is_stopped());
            let _ = outcome.decoded.set(Decoded { live_bytes, elapsed: begun.elapsed() });
        }
    }

    /// Ids of all maps so far.
    fn ids(&self) -> u64 {
        self.runs.iter().filter_map(|run| Some(run.get()?.as_ref()?.0.ids() as u64)).sum()
    }
}
