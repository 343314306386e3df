use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::PartitionOutcome;
use crate::io::Cache;

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
    /// How much of the log was in the page cache before it was read.
    pub cache: Cache,
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
    /// after every chunk, by default a mebibyte, and inside a search for batches behind damage.
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
}

impl Totals {
    pub(super) fn add(&self, bytes: u64, records: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.records.fetch_add(records, Ordering::Relaxed);
    }

    /// Bytes that will be walked again.
    pub(super) fn take_back(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// What one thread has not told of yet: told now and then, so that threads do not fight for the same cache line.
#[derive(Debug)]
pub(super) struct Meter<'a> {
    totals: &'a Totals,
    /// The partition's own count of bytes.
    walked: &'a AtomicU64,
    bytes: u64,
    records: u64,
}

const HAND_OVER_BYTES: u64 = 256 << 10;

impl<'a> Meter<'a> {
    pub(super) fn new(totals: &'a Totals, walked: &'a AtomicU64) -> Self {
        Self { totals, walked, bytes: 0, records: 0 }
    }

    pub(super) fn add(&mut self, bytes: u64, records: u64) {
        self.bytes += bytes;
        self.records += records;
        if self.bytes >= HAND_OVER_BYTES {
            self.hand_over();
        }
    }

    fn hand_over(&mut self) {
        self.walked.fetch_add(self.bytes, Ordering::Relaxed);
        self.totals.add(self.bytes, self.records);
        (self.bytes, self.records) = (0, 0);
    }
}

impl Drop for Meter<'_> {
    fn drop(&mut self) {
        self.hand_over();
    }
}
