use std::collections::BTreeMap;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::finding::FindingKind;
use super::partition::verify_partition;
use super::report::{Findings, PartitionReport, Place, VerifyReport};
use super::root::RootOffsets;
use super::walk::Shared;
use crate::error::Error;
use crate::io::Storage;
use crate::log_dir::{LogDir, PartitionDir};

/// How often progress is told.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// How far a check is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifyProgress {
    /// Bytes of logs that were walked.
    pub bytes: u64,
    /// Bytes of all logs, as they were when the check began.
    pub bytes_total: u64,
    /// Partitions that are done.
    pub partitions: usize,
    /// Partitions in all.
    pub partitions_total: usize,
    /// Time since the check began.
    pub elapsed: Duration,
}

/// A check of log directories, before it is run.
///
/// Cost of a run: every byte of the logs is read once, and every record decompressed and parsed. Memory, for each thread:
/// a mebibyte, the largest batch decompressed, the indexes of one segment, and the producers of one partition.
#[derive(Debug)]
pub struct Verify {
    storage: Arc<dyn Storage>,
    dirs: Vec<LogDir>,
    /// Partitions to be looked at, each with the number of its directory.
    partitions: Vec<(usize, PartitionDir)>,
    /// The same partition in two folders.
    duplicates: Vec<(PartitionDir, PathBuf)>,
    threads: NonZero<usize>,
}

impl Verify {
    /// Opens log directories, or single partitions' folders; one that is given twice is looked at once.
    ///
    /// # Errors
    /// As [`LogDir::open`].
    pub fn open<P: AsRef<Path>>(
        storage: Arc<dyn Storage>,
        directories: impl IntoIterator<Item = P>,
    ) -> Result<Self, Error> {
        let mut dirs = Vec::new();
        for directory in directories {
            dirs.push(LogDir::open(Arc::clone(&storage), directory.as_ref())?);
        }
        let mut partitions: Vec<(usize, PartitionDir)> = Vec::new();
        for (number, dir) in dirs.iter().enumerate() {
            partitions.extend(dir.partitions().iter().map(|partition| (number, partition.clone())));
        }
        partitions.sort_by(|(_, a), (_, b)| a.cmp(b));
        partitions.dedup_by(|(_, a), (_, b)| a.path == b.path);
        let duplicates = partitions
            .windows(2)
            .filter(|pair| pair[0].1.topic_partition == pair[1].1.topic_partition)
            .map(|pair| (pair[1].1.clone(), pair[0].1.path.clone()))
            .collect();
        let threads = thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN);
        Ok(Self { storage, dirs, partitions, duplicates, threads })
    }

    /// Leaves out the partitions of other topics.
    pub fn topic(mut self, topic: &str) -> Self {
        self.partitions.retain(|(_, partition)| partition.topic_partition.topic == topic);
        self
    }

    /// Leaves out the partitions with other numbers.
    pub fn partitions(mut self, numbers: &[i32]) -> Self {
        self.partitions.retain(|(_, partition)| numbers.contains(&partition.topic_partition.partition));
        self
    }

    /// At most so many threads, the caller's among them: one partition is looked at by one thread. By default as many as
    /// there are cores.
    pub fn threads(mut self, threads: NonZero<usize>) -> Self {
        self.threads = threads;
        self
    }

    /// The partitions that will be looked at.
    pub fn selected(&self) -> impl Iterator<Item = &PartitionDir> {
        self.partitions.iter().map(|(_, partition)| partition)
    }

    /// Looks at everything. `progress` is called on the calling thread, now and then and once at the end.
    ///
    /// # Errors
    /// [`Error::Cancelled`] soon after `cancel` was set; [`Error::Threads`]. Whatever is wrong with a file is a finding,
    /// also that it cannot be read.
    pub fn run(
        &self,
        cancel: &AtomicBool,
        progress: &mut dyn FnMut(&VerifyProgress),
    ) -> Result<VerifyReport, Error> {
        let began = Instant::now();
        let mut findings = Findings::new(None);
        // A folder's root may have been given as well.
        let mut roots: BTreeMap<&Path, RootOffsets> = BTreeMap::new();
        for dir in &self.dirs {
            if !roots.contains_key(dir.root()) {
                roots.insert(dir.root(), RootOffsets::read(&*self.storage, dir, &mut findings));
            }
        }
        for (partition, other) in &self.duplicates {
            let other = other.clone();
            findings.push(Place::file(&partition.path), FindingKind::DuplicatePartition { other });
        }
        let (order, bytes_total) = self.order();
        let bytes = AtomicU64::new(0);
        let next = AtomicUsize::new(0);
        let shared = Shared { storage: &*self.storage, cancel, bytes: &bytes };
        let (sender, receiver) = channel::<Result<PartitionReport, Error>>();
        let work = |sender: &std::sync::mpsc::Sender<_>| {
            while let Some(&number) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
                let (dir, partition) = &self.partitions[number];
                let dir = &self.dirs[*dir];
                let report = match roots.get(dir.root()) {
                    Some(offsets) => verify_partition(shared, dir, partition, offsets),
                    None => verify_partition(shared, dir, partition, &RootOffsets::default()),
                };
                // Nobody listens any more once the check was cancelled.
                if sender.send(report).is_err() {
                    return;
                }
            }
        };
        let work = &work;
        let mut reports: Vec<PartitionReport> = Vec::with_capacity(order.len());
        let threads = self.threads.get().min(order.len());
        thread::scope(|scope| {
            for number in 0..threads {
                let sender = sender.clone();
                thread::Builder::new()
                    .name(format!("redrive-verify-{number}"))
                    .spawn_scoped(scope, move || work(&sender))
                    .map_err(|source| {
                        // Those that run already are not waited for longer than need be.
                        next.store(order.len(), Ordering::Relaxed);
                        Error::Threads { threads, source }
                    })?;
            }
            drop(sender);
            let told = |partitions| VerifyProgress {
                bytes: bytes.load(Ordering::Relaxed),
                bytes_total,
                partitions,
                partitions_total: order.len(),
                elapsed: began.elapsed(),
            };
            let mut tell_at = Instant::now() + PROGRESS_INTERVAL;
            loop {
                match receiver.recv_timeout(tell_at.saturating_duration_since(Instant::now())) {
                    Ok(report) => reports.push(report?),
                    Err(RecvTimeoutError::Timeout) => {
                        progress(&told(reports.len()));
                        tell_at = Instant::now() + PROGRESS_INTERVAL;
                    }
                    Err(RecvTimeoutError::Disconnected) => break,
                }
            }
            progress(&told(reports.len()));
            Ok::<_, Error>(())
        })?;
        if cancel.load(Ordering::Relaxed) {
            return Err(Error::Cancelled);
        }
        reports.sort_by(|a, b| (&a.topic_partition, &a.path).cmp(&(&b.topic_partition, &b.path)));
        let (findings, left_out) = findings.finish();
        let is_moving = self.dirs.iter().any(LogDir::is_held);
        Ok(VerifyReport { partitions: reports, findings, left_out, is_moving })
    }

    /// The partitions, the largest first so that no thread is left alone with it, and the bytes of all of them. One that
    /// cannot be listed has none.
    fn order(&self) -> (Vec<usize>, u64) {
        let mut sized: Vec<(u64, usize)> = self
            .partitions
            .iter()
            .enumerate()
            .map(|(number, (dir, partition))| {
                let bytes = self.dirs[*dir].snapshot(partition).map_or(0, |(log, _)| log.bytes());
                (bytes, number)
            })
            .collect();
        sized.sort_by_key(|&(bytes, number)| (std::cmp::Reverse(bytes), number));
        (sized.iter().map(|&(_, number)| number).collect(), sized.iter().map(|&(bytes, _)| bytes).sum())
    }
}
