//! All partitions, on threads.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::error::GenerateError;
use super::plan::{Assignment, Plan};
use super::schedule::write_partition;
use super::segments::{Place, SegmentWriter};
use super::summary::{PartitionSummary, Summary};

/// Time between two reports.
const REPORT_INTERVAL: Duration = Duration::from_millis(100);

/// How far the work is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Bytes of log files written.
    pub bytes: u64,
    /// About how many there will be; at the end exactly.
    pub bytes_total: u64,
    /// Records written.
    pub records: u64,
    /// Ids whose last record was written, those with tombstones included.
    pub ids: u64,
    /// Partitions done.
    pub partitions: usize,
    /// Partitions in all.
    pub partitions_total: usize,
    /// Time since the first byte.
    pub elapsed: Duration,
}

/// Is told how the work goes, on the thread that asked for it, and says whether it is to go on.
pub trait Observer {
    /// Called ten times a second or so. [`ControlFlow::Break`] ends the work with [`GenerateError::Cancelled`] within
    /// milliseconds, and nothing is left of it.
    fn progress(&mut self, progress: &Progress) -> ControlFlow<()>;
}

/// Observes nothing and lets everything go on.
impl Observer for () {
    fn progress(&mut self, _progress: &Progress) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

/// What the threads count together, and whether they are to stop.
#[derive(Debug, Default)]
pub(super) struct Meter {
    bytes: AtomicU64,
    records: AtomicU64,
    ids: AtomicU64,
    partitions: AtomicUsize,
    stops: AtomicBool,
}

impl Meter {
    /// Hands over what came since `reported`.
    ///
    /// # Errors
    /// [`GenerateError::Cancelled`] if the work is to stop.
    pub(super) fn report(
        &self,
        reported: &mut PartitionSummary,
        now: &PartitionSummary,
    ) -> Result<(), GenerateError> {
        let ids = |summary: &PartitionSummary| summary.ids + summary.tombstoned_ids;
        self.bytes.fetch_add(now.bytes - reported.bytes, Ordering::Relaxed);
        self.records.fetch_add(now.records - reported.records, Ordering::Relaxed);
        self.ids.fetch_add(ids(now) - ids(reported), Ordering::Relaxed);
        reported.clone_from(now);
        if self.stops.load(Ordering::Relaxed) { Err(GenerateError::Cancelled) } else { Ok(()) }
    }

    fn stop(&self) {
        self.stops.store(true, Ordering::Relaxed);
    }
}

/// A partition that was written.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) summary: PartitionSummary,
    /// Base offsets of its segments.
    pub(super) bases: Vec<i64>,
}

/// The summaries without the rest.
pub(super) fn summarize(written: Vec<Written>) -> Summary {
    Summary { partitions: written.into_iter().map(|written| written.summary).collect() }
}

/// Finds the partition of every id, and asks the observer every now and then.
///
/// # Errors
/// As [`Plan::assign`].
pub(super) fn assign(plan: &Plan, observer: &mut dyn Observer) -> Result<Assignment, GenerateError> {
    let progress = Progress {
        bytes_total: plan.bytes,
        partitions_total: plan.partitions.get() as usize,
        ..Progress::default()
    };
    plan.assign(|| observer.progress(&progress))
}

/// Writes every partition into its place, largest first. All files are on disk when this returns.
///
/// # Errors
/// What the first partition that failed failed with; [`GenerateError::Cancelled`].
pub(super) fn write_all(
    plan: &Plan,
    assignment: &Assignment,
    places: &[Place],
    observer: &mut dyn Observer,
) -> Result<Vec<Written>, GenerateError> {
    let meter = Meter::default();
    let started = Instant::now();
    let mut order: Vec<usize> = (0..places.len()).collect();
    order.sort_by_key(|&partition| std::cmp::Reverse(assignment.partitions[partition].len()));
    let next = AtomicUsize::new(0);
    let results: Vec<Mutex<Option<Written>>> = places.iter().map(|_| Mutex::new(None)).collect();
    let (failed, failures) = mpsc::channel();
    let progress = || Progress {
        bytes: meter.bytes.load(Ordering::Relaxed),
        bytes_total: plan.bytes.max(meter.bytes.load(Ordering::Relaxed)),
        records: meter.records.load(Ordering::Relaxed),
        ids: meter.ids.load(Ordering::Relaxed),
        partitions: meter.partitions.load(Ordering::Relaxed),
        partitions_total: places.len(),
        elapsed: started.elapsed(),
    };
    let work = || -> Result<(), GenerateError> {
        while let Some(&partition) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
            let place = &places[partition];
            let mut log = SegmentWriter::new(Some(place.clone()), plan.segment_bytes)?;
            let number = u32::try_from(partition).expect("fewer than 2^32 partitions");
            let summary = write_partition(plan, number, assignment, &mut log, place.leader_epoch, &meter)?;
            let written = Written { summary, bases: log.finish()? };
            *results[partition].lock().unwrap_or_else(PoisonError::into_inner) = Some(written);
            meter.partitions.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    };
    let mut first_failure = None;
    thread::scope(|scope| {
        let threads = plan.threads.get().min(places.len());
        for _ in 0..threads {
            let (failed, work, meter) = (failed.clone(), &work, &meter);
            let spawned = thread::Builder::new().spawn_scoped(scope, move || {
                if let Err(error) = work() {
                    meter.stop();
                    // The receiver outlives the threads.
                    let _ = failed.send(error);
                }
            });
            if let Err(source) = spawned {
                meter.stop();
                first_failure = Some(redrive::Error::Threads { threads, source }.into());
                break;
            }
        }
        // From here on only the threads hold senders, so the channel ends with them.
        drop(failed);
        loop {
            match failures.recv_timeout(REPORT_INTERVAL) {
                // Whoever was only stopped comes after the one that failed.
                Ok(error) => first_failure = first_failure.take().or(Some(error)),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    if observer.progress(&progress()).is_break() {
                        meter.stop();
                    }
                }
            }
        }
    });
    if let Some(error) = first_failure {
        return Err(error);
    }
    let end = Progress { bytes_total: meter.bytes.load(Ordering::Relaxed), ..progress() };
    if observer.progress(&end).is_break() {
        return Err(GenerateError::Cancelled);
    }
    let written =
        results.into_iter().map(|result| result.into_inner().unwrap_or_else(PoisonError::into_inner));
    // Every partition was taken by a thread, and none of them failed.
    Ok(written.map(|written| written.expect("written")).collect())
}
