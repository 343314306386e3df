use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use super::PartitionOutcome;

/// How far a load is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Bytes walked.
    pub bytes: u64,
    /// Bytes of all segments to be walked.
    pub bytes_total: u64,
    /// Records read.
    pub records: u64,
    /// Transactional ids in the maps so far.
    pub ids: u64,
    /// Partitions loaded or refused.
    pub partitions: usize,
    /// Partitions in all.
    pub partitions_total: usize,
    /// Time since the load began.
    pub elapsed: Duration,
}

/// Is told how a load goes, always on the thread that called [`Replay::run_with`](super::Replay::run_with).
pub trait Observer {
    /// Called at the interval that was asked for, and once at the end.
    fn progress(&mut self, progress: &Progress) {
        let _ = progress;
    }

    /// A partition is ready: from now on every id in it can be answered, while others still load.
    fn partition(&mut self, outcome: &Arc<PartitionOutcome>) {
        let _ = outcome;
    }
}

/// Observes nothing.
impl Observer for () {}

/// Stops a load from another thread or a signal handler. Clones stop the same load.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Not cancelled.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets the load end with [`Error::Cancelled`](crate::Error::Cancelled) as soon as its threads look, which they do
    /// after every batch and inside a search for batches behind damage.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether [`cancel`](Self::cancel) was called.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// The flag itself, for signal handlers that can only set one.
    pub fn flag(&self) -> Arc<AtomicBool> {
        self.0.clone()
    }
}

/// What the threads of a load count together.
#[derive(Debug, Default)]
pub(super) struct Totals {
    pub(super) bytes: AtomicU64,
    pub(super) records: AtomicU64,
    pub(super) ids: AtomicI64,
}

/// One partition's share of [`Totals`], handed over now and then so that threads do not fight for the same cache line.
#[derive(Debug)]
pub(super) struct Meter<'a> {
    totals: &'a Totals,
    /// Not handed over yet.
    bytes: u64,
    records: u64,
    /// Handed over.
    bytes_before: u64,
    ids_before: usize,
}

const HAND_OVER_BYTES: u64 = 256 << 10;

impl<'a> Meter<'a> {
    pub(super) fn new(totals: &'a Totals) -> Self {
        Self { totals, bytes: 0, records: 0, bytes_before: 0, ids_before: 0 }
    }

    pub(super) fn add(&mut self, bytes: u64, records: u64, ids_now: usize) {
        self.bytes += bytes;
        self.records += records;
        if self.bytes >= HAND_OVER_BYTES {
            self.hand_over(ids_now);
        }
    }

    fn hand_over(&mut self, ids_now: usize) {
        self.totals.bytes.fetch_add(self.bytes, Ordering::Relaxed);
        self.totals.records.fetch_add(self.records, Ordering::Relaxed);
        self.totals.ids.fetch_add(ids_now as i64 - self.ids_before as i64, Ordering::Relaxed);
        self.bytes_before += self.bytes;
        (self.bytes, self.records, self.ids_before) = (0, 0, ids_now);
    }

    /// The partition is done: all its bytes count as walked, and these ids are what came of it.
    pub(super) fn finish(mut self, bytes_in_all: u64, ids: usize) {
        self.hand_over(ids);
        // A partition that was read twice has handed over more; wrapping sums come out right.
        self.totals.bytes.fetch_add(bytes_in_all.wrapping_sub(self.bytes_before), Ordering::Relaxed);
    }
}
