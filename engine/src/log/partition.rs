//! One partition's log as it is written to (Kafka's UnifiedLog and LocalLog).

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use arc_swap::ArcSwap;

use super::config::LogConfig;
use super::epochs::LeaderEpochFileCache;
use super::state_files;
use super::validate::{LogValidator, StoredBatch};
use crate::batch::CoordinatorBatches;
use crate::error::Error;
use crate::io::Storage;
use crate::producer_state::{ProducerRejection, ProducerStateManager, VerificationGuard};
use crate::segment::{BatchFacts, Segment, SegmentConfig, SegmentFileState, SegmentWriter};
use crate::types::{Offset, ProducerId, TopicPartition};

/// One partition's log, shared by all threads that use it.
///
/// One thread at a time changes it; the others wait their turn. Reading waits for nobody and holds nobody up: a read
/// goes by a list of segments that is never changed, only replaced, and what it returns are shared bytes of mapped
/// files.
///
/// After a failed write or sync the log takes no more changes ([`Error::Poisoned`]) until it is opened again; what was
/// there before can still be read.
#[derive(Debug)]
pub struct Log {
    pub(super) storage: Arc<dyn Storage>,
    pub(super) topic_partition: TopicPartition,
    pub(super) view: ArcSwap<View>,
    /// Where the log ends; published after the bytes below it.
    log_end_offset: AtomicI64,
    log_start_offset: AtomicI64,
    high_watermark: AtomicI64,
    recovery_point: AtomicI64,
    is_poisoned: AtomicBool,
    owner: OnceLock<Arc<dyn LogOwner>>,
    /// Held by whoever brings the log to the device.
    flushing: Mutex<()>,
    pub(super) writer: Mutex<Writer>,
}

/// Whoever keeps the recovery points of logs in a file.
pub trait LogOwner: Debug + Send + Sync {
    /// Makes sure that no start after a crash takes more than this for being on the device. Called while a log is
    /// truncated, before anything is appended to it again.
    ///
    /// # Errors
    /// Whatever kept it from that: the truncation fails then.
    fn lower_recovery_point(&self, partition: &TopicPartition, offset: Offset) -> Result<(), Error>;
}

/// The segments at one moment.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub(super) directory: PathBuf,
    /// By rising base offset; never empty.
    pub(super) segments: Vec<Arc<Segment>>,
}

/// What only the thread that changes the log needs.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) directory: PathBuf,
    pub(super) config: LogConfig,
    /// The last segment; none once the log is closed.
    pub(super) active: Option<SegmentWriter>,
    pub(super) producers: ProducerStateManager,
    pub(super) epochs: LeaderEpochFileCache,
    pub(super) validator: LogValidator,
    pub(super) batches: CoordinatorBatches,
    pub(super) stored: Vec<StoredBatch>,
    pub(super) facts: Vec<BatchFacts>,
    /// Segments whose files are called `.deleted`, and when they may go.
    pub(super) deleted: Vec<(Arc<Segment>, i64)>,
    /// Offset of the newest producer snapshot, or one up to which none is due.
    pub(super) newest_snapshot: Option<Offset>,
    /// Whether files were made or renamed of which the folder on the device may know nothing.
    pub(super) is_directory_dirty: bool,
    /// How often the log was cut: what was brought to the device before may be others' bytes since.
    pub(super) truncations: u64,
}

/// Whether the producers are written down where a segment begins.
enum Snapshot {
    Taken,
    NotTaken,
}

/// The offsets that bound a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogOffsets {
    /// The smallest offset that may be read.
    pub log_start_offset: Offset,
    /// Records below it are known to be replicated.
    pub high_watermark: Offset,
    /// The offset that the next record gets.
    pub log_end_offset: Offset,
}

/// What an open log begins with.
pub(super) struct Parts {
    pub(super) storage: Arc<dyn Storage>,
    pub(super) topic_partition: TopicPartition,
    pub(super) segments: Vec<Arc<Segment>>,
    pub(super) offsets: LogOffsets,
    pub(super) recovery_point: Offset,
    pub(super) writer: Writer,
}

impl Log {
    pub(super) fn from_parts(parts: Parts) -> Self {
        let Parts { storage, topic_partition, segments, offsets, recovery_point, writer } = parts;
        let view = View { directory: writer.directory.clone(), segments };
        Self {
            storage,
            topic_partition,
            view: ArcSwap::from_pointee(view),
            log_end_offset: AtomicI64::new(offsets.log_end_offset.0),
            log_start_offset: AtomicI64::new(offsets.log_start_offset.0),
            high_watermark: AtomicI64::new(offsets.high_watermark.0),
            recovery_point: AtomicI64::new(recovery_point.0),
            is_poisoned: AtomicBool::new(false),
            owner: OnceLock::new(),
            flushing: Mutex::new(()),
            writer: Mutex::new(writer),
        }
    }

    /// Says who keeps its recovery point in a file; the first one that says so counts. Without one, whoever opens the log
    /// after a crash must not be told of a recovery point above what a truncation left.
    pub fn set_owner(&self, owner: Arc<dyn LogOwner>) {
        let _ = self.owner.set(owner);
    }

    pub(super) fn lower_recovery_point(&self, offset: Offset) -> Result<(), Error> {
        self.set_recovery_point(self.recovery_point().min(offset));
        match self.owner.get() {
            Some(owner) => owner.lower_recovery_point(&self.topic_partition, offset),
            None => Ok(()),
        }
    }

    /// Which partition it is.
    pub fn topic_partition(&self) -> &TopicPartition {
        &self.topic_partition
    }

    /// Its folder.
    pub fn directory(&self) -> PathBuf {
        self.view.load().directory.clone()
    }

    /// The offset that the next record gets.
    pub fn log_end_offset(&self) -> Offset {
        Offset(self.log_end_offset.load(Ordering::Acquire))
    }

    /// The smallest offset that may be read.
    pub fn log_start_offset(&self) -> Offset {
        Offset(self.log_start_offset.load(Ordering::Acquire))
    }

    /// Records below it are known to be replicated, and may be read by consumers.
    pub fn high_watermark(&self) -> Offset {
        Offset(self.high_watermark.load(Ordering::Acquire))
    }

    /// Everything below it is on the device.
    pub fn recovery_point(&self) -> Offset {
        Offset(self.recovery_point.load(Ordering::Acquire))
    }

    /// Bytes of all segments.
    pub fn size(&self) -> u64 {
        self.view.load().segments.iter().map(|segment| segment.size()).sum()
    }

    /// How many segments there are.
    pub fn segments_count(&self) -> usize {
        self.view.load().segments.len()
    }

    /// Base offsets of the segments, rising.
    pub fn segment_base_offsets(&self) -> Vec<Offset> {
        self.view.load().segments.iter().map(|segment| segment.base_offset()).collect()
    }

    /// Whether a write or a sync failed, so that nothing more is taken.
    pub fn is_poisoned(&self) -> bool {
        self.is_poisoned.load(Ordering::Acquire)
    }

    /// A copy of the leader epochs.
    pub fn leader_epochs(&self) -> LeaderEpochFileCache {
        self.lock().epochs.clone()
    }

    /// A copy of what is known of producers.
    pub fn producer_state(&self) -> ProducerStateManager {
        self.lock().producers.clone()
    }

    /// Forgets producers and verifications that have been idle for `producer.id.expiration.ms`; says how many producers. To
    /// be called every ten minutes or so.
    pub fn remove_expired_producers(&self, now_ms: i64) -> usize {
        self.lock().producers.remove_expired(now_ms)
    }

    /// Whether a client's batch that begins a transaction must bring a guard
    /// (`transaction.partition.verification.enable`). Off at first.
    pub fn set_transaction_verification(&self, is_on: bool) {
        self.lock().producers.set_transaction_verification(is_on);
    }

    /// Before a client's batch that begins a transaction: gives the guard that has to come with it once the coordinator
    /// has said yes; `None` while a transaction of this epoch goes on (`maybeStartTransactionVerification`).
    ///
    /// # Errors
    /// [`ProducerRejection::InvalidProducerEpoch`]
    pub fn start_verification(
        &self,
        producer_id: ProducerId,
        sequence: i32,
        producer_epoch: i16,
        supports_epoch_bump: bool,
        now_ms: i64,
    ) -> Result<Option<VerificationGuard>, ProducerRejection> {
        let producers = &mut self.lock().producers;
        producers.start_verification(producer_id, sequence, producer_epoch, supports_epoch_bump, now_ms)
    }

    /// The settings.
    pub fn config(&self) -> LogConfig {
        self.lock().config.clone()
    }

    /// Gives the log other settings, which the next append goes by. The room in the indexes of the last segment stays.
    ///
    /// # Errors
    /// [`ConfigFault`](super::config::ConfigFault) for one that is out of range; nothing changes then.
    pub fn set_config(&self, config: LogConfig) -> Result<(), super::config::ConfigFault> {
        config.check()?;
        let mut writer = self.lock();
        if let Some(active) = &mut writer.active {
            let jitter = active.config().segment_jitter_ms;
            active.set_config(segment_config(&config, jitter));
        }
        writer.config = config;
        Ok(())
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Writer> {
        // A thread that panicked left the log as after a failed write.
        self.writer.lock().unwrap_or_else(|poisoned| {
            self.is_poisoned.store(true, Ordering::Release);
            PoisonError::into_inner(poisoned)
        })
    }

    /// Makes a change. Should it fail because of the storage, no other change is made.
    pub(super) fn change<T, E: Failure>(
        &self,
        change: impl FnOnce(&mut Writer) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut writer = self.lock();
        if self.is_poisoned() {
            let partition = self.topic_partition.clone();
            return Err(E::from(Error::Poisoned { partition }));
        }
        if writer.active.is_none() {
            return Err(E::from(Error::Closed { partition: self.topic_partition.clone() }));
        }
        let result = change(&mut writer);
        if result.as_ref().err().is_some_and(Failure::is_of_storage) {
            self.is_poisoned.store(true, Ordering::Release);
        }
        result
    }

    pub(super) fn set_log_end_offset(&self, offset: Offset) {
        self.log_end_offset.store(offset.0, Ordering::Release);
    }

    pub(super) fn set_log_start_offset(&self, offset: Offset) {
        self.log_start_offset.store(offset.0, Ordering::Release);
    }

    pub(super) fn set_recovery_point(&self, offset: Offset) {
        self.recovery_point.store(offset.0, Ordering::Release);
    }

    /// Shows other segments to readers.
    pub(super) fn publish(&self, writer: &Writer, segments: Vec<Arc<Segment>>) {
        self.view.store(Arc::new(View { directory: writer.directory.clone(), segments }));
    }

    /// Gives the folder another name and takes the log out of use: it is closed without a last flush, since it is about
    /// to be removed.
    ///
    /// # Errors
    /// [`Error::Io`]
    pub fn rename_directory(&self, to: &Path) -> Result<(), Error> {
        let mut writer = self.lock();
        self.view.load().segments.iter().for_each(|segment| load_indexes(segment));
        self.storage.rename(&writer.directory, to).map_err(Error::io("rename", &writer.directory))?;
        writer.active = None;
        writer.directory = to.to_path_buf();
        let segments = self.view.load().segments.clone();
        for segment in segments.iter().chain(writer.deleted.iter().map(|(segment, _)| segment)) {
            segment.set_directory(to);
        }
        self.publish(&writer, segments);
        Ok(())
    }

    // ---- high watermark and log start ----

    /// Sets the high watermark, at least the log start and at most the log end; says what it is now
    /// (`updateHighWatermark`).
    ///
    /// # Errors
    /// [`Error::NegativeOffset`]
    pub fn update_high_watermark(&self, offset: Offset) -> Result<Offset, Error> {
        check_offset(offset)?;
        let mut writer = self.lock();
        let offset = offset.max(self.log_start_offset()).min(self.log_end_offset());
        self.store_high_watermark(&mut writer, offset);
        Ok(offset)
    }

    /// Raises the high watermark, as a leader does; says what it was if it changed (`maybeIncrementHighWatermark`).
    ///
    /// # Errors
    /// [`Error::NegativeOffset`], and [`Error::OffsetOutOfRange`] above the log end.
    pub fn increment_high_watermark(&self, offset: Offset) -> Result<Option<Offset>, Error> {
        check_offset(offset)?;
        let mut writer = self.lock();
        if offset > self.log_end_offset() {
            return Err(self.out_of_range(offset));
        }
        let before = self.high_watermark();
        if offset <= before {
            return Ok(None);
        }
        self.store_high_watermark(&mut writer, offset);
        Ok(Some(before))
    }

    pub(super) fn store_high_watermark(&self, writer: &mut Writer, offset: Offset) {
        self.high_watermark.store(offset.0, Ordering::Release);
        writer.producers.on_high_watermark_updated(offset);
    }

    pub(super) fn out_of_range(&self, offset: Offset) -> Error {
        Error::OffsetOutOfRange {
            partition: self.topic_partition.clone(),
            offset,
            log_start: self.log_start_offset(),
            log_end: self.log_end_offset(),
        }
    }

    /// Raises the log start: what lies below can no longer be read; says whether it moved. Segments that lie below it
    /// altogether go with [`delete_before_log_start`](Self::delete_before_log_start). Nothing is written: a checkpoint
    /// of the root holds the log start (`maybeIncrementLogStartOffset`).
    ///
    /// # Errors
    /// [`Error::OffsetOutOfRange`] above the high watermark; [`Error::Io`], where leader epochs cannot be written.
    pub fn increment_log_start_offset(&self, offset: Offset) -> Result<bool, Error> {
        self.change(|writer| {
            if offset > self.high_watermark() {
                return Err(self.out_of_range(offset));
            }
            self.raise_log_start(writer, offset)
        })
    }

    pub(super) fn raise_log_start(&self, writer: &mut Writer, offset: Offset) -> Result<bool, Error> {
        if offset <= self.log_start_offset() {
            return Ok(false);
        }
        self.set_log_start_offset(offset);
        self.set_recovery_point(self.recovery_point().max(offset));
        writer.producers.on_log_start_raised(offset);
        let high_watermark = self.high_watermark().max(offset);
        self.store_high_watermark(writer, high_watermark);
        if writer.epochs.truncate_from_start(offset) {
            writer.write_epochs(&*self.storage)?;
        }
        Ok(true)
    }

    /// Deletes the segments that lie below the log start; says how many (`deleteLogStartOffsetBreachedSegments`). Their
    /// files are renamed to `.deleted` and removed by [`remove_deleted`](Self::remove_deleted).
    ///
    /// # Errors
    /// [`Error::Io`]
    pub fn delete_before_log_start(&self, now_ms: i64) -> Result<usize, Error> {
        self.change(|writer| {
            let log_start = self.log_start_offset();
            let view = self.view.load_full();
            let is_below = |number: usize| {
                view.segments.get(number + 1).is_some_and(|next| next.base_offset() <= log_start)
            };
            let count = (0..view.segments.len()).take_while(|number| is_below(*number)).count();
            if count > 0 {
                self.publish(writer, view.segments[count..].to_vec());
                writer.delete_segments(&*self.storage, &view.segments[..count], now_ms)?;
            }
            Ok(count)
        })
    }

    /// Removes files that were renamed to `.deleted` at least `file.delete.delay.ms` ago; says how many segments went.
    /// Regions that were read of them stay valid.
    ///
    /// # Errors
    /// [`Error::Io`]
    pub fn remove_deleted(&self, now_ms: i64) -> Result<usize, Error> {
        let mut writer = self.lock();
        let (due, kept) = std::mem::take(&mut writer.deleted).into_iter().partition(|(_, at)| *at <= now_ms);
        writer.deleted = kept;
        let due: Vec<(Arc<Segment>, i64)> = due;
        for (segment, _) in &due {
            segment.delete()?;
        }
        Ok(due.len())
    }

    // ---- rolling, flushing, closing ----

    /// Begins a new segment at the log end, unless the last one is empty; says whether it did.
    ///
    /// # Errors
    /// [`Error::Io`]
    pub fn roll(&self, now_ms: i64) -> Result<bool, Error> {
        self.change(|writer| {
            if writer.active().size() == 0 {
                return Ok(false);
            }
            self.roll_at(writer, self.log_end_offset(), now_ms)?;
            Ok(true)
        })
    }

    pub(super) fn roll_at(&self, writer: &mut Writer, base_offset: Offset, now_ms: i64) -> Result<(), Error> {
        self.begin_segment(writer, base_offset, now_ms, Snapshot::Taken)
    }

    /// The same between two batches of an append, when the producer state is still that before it.
    pub(super) fn roll_within_append(
        &self,
        writer: &mut Writer,
        base_offset: Offset,
        now_ms: i64,
    ) -> Result<(), Error> {
        self.begin_segment(writer, base_offset, now_ms, Snapshot::NotTaken)
    }

    fn begin_segment(
        &self,
        writer: &mut Writer,
        base_offset: Offset,
        now_ms: i64,
        snapshot: Snapshot,
    ) -> Result<(), Error> {
        let mut segments = self.view.load().segments.clone();
        let config = writer.active().config().clone();
        let Some(active) = writer.active.take() else { return Ok(()) };
        if active.base_offset() == base_offset {
            // Only an empty one has the base offset that the next one gets: its indexes have no room at all.
            let empty = Arc::clone(active.segment());
            segments.pop();
            writer.delete_segments(&*self.storage, &[empty], now_ms)?;
        } else {
            active.seal()?;
            if let Snapshot::Taken = snapshot {
                writer.producers.set_map_end_offset(base_offset);
                writer.take_snapshot(&*self.storage)?;
            }
        }
        let config = SegmentConfig { segment_jitter_ms: jitter(writer.config.segment_jitter_ms), ..config };
        let active =
            SegmentWriter::create(Arc::clone(&self.storage), &writer.directory, base_offset, config, now_ms)?;
        segments.push(Arc::clone(active.segment()));
        writer.active = Some(active);
        writer.is_directory_dirty = true;
        self.publish(writer, segments);
        Ok(())
    }

    /// Brings everything below an offset to the device, and the recovery point there. Appends go on meanwhile.
    ///
    /// # Errors
    /// [`Error::Io`]; the log is poisoned then, since nobody knows what the device has.
    pub fn flush(&self, offset: Offset) -> Result<(), Error> {
        if self.is_poisoned() {
            return Err(Error::Poisoned { partition: self.topic_partition.clone() });
        }
        let _flushing = self.flushing.lock().unwrap_or_else(PoisonError::into_inner);
        let (end, from, truncations, view) = {
            let writer = self.lock();
            let end = offset.min(self.log_end_offset());
            (end, self.recovery_point(), writer.truncations, self.view.load_full())
        };
        if end <= from {
            return Ok(());
        }
        let result = flush_segments(&view, from, end).and_then(|()| {
            let is_dirty = std::mem::take(&mut self.lock().is_directory_dirty);
            if is_dirty {
                let directory = &view.directory;
                return self
                    .storage
                    .sync_directory(directory)
                    .map_err(Error::io("bring to the device", directory));
            }
            Ok(())
        });
        if result.is_err() {
            self.is_poisoned.store(true, Ordering::Release);
        } else {
            let writer = self.lock();
            // After a truncation meanwhile other bytes may have the offsets that were brought to the device.
            if writer.truncations == truncations {
                self.set_recovery_point(self.recovery_point().max(end));
            }
        }
        result
    }

    /// Ends the writing: everything is brought to the device, index files are cut to what is in them, the producers are
    /// written to a snapshot. Reading goes on; a second call does nothing.
    ///
    /// # Errors
    /// [`Error::Io`]: the root may not be marked as cleanly shut down then. [`Error::Poisoned`]
    pub fn close(&self) -> Result<(), Error> {
        let result = self.change(|writer| {
            let end = self.log_end_offset();
            let view = self.view.load_full();
            flush_segments(&view, self.recovery_point(), end)?;
            if let Some(active) = writer.active.take() {
                active.close()?;
            }
            writer.producers.set_map_end_offset(end);
            writer.take_snapshot(&*self.storage)?;
            let directory = &writer.directory;
            self.storage.sync_directory(directory).map_err(Error::io("bring to the device", directory))?;
            self.set_recovery_point(end);
            Ok(())
        });
        match result {
            Err(Error::Closed { .. }) => Ok(()),
            other => other,
        }
    }
}

/// Whoever reads a segment may look into its indexes for the first time after their files are gone. One that cannot be
/// read now is of no use then either.
fn load_indexes(segment: &Segment) {
    let (_, _, _) = (segment.offset_index(), segment.time_index(), segment.aborted_transactions());
}

/// Flushes the segments that hold offsets from `from` up to `end`.
fn flush_segments(view: &View, from: Offset, end: Offset) -> Result<(), Error> {
    for (number, segment) in view.segments.iter().enumerate() {
        let next = view.segments.get(number + 1).map(|next| next.base_offset());
        if segment.base_offset() < end.max(from.next()) && next.is_none_or(|next| next > from) {
            segment.flush()?;
        }
    }
    Ok(())
}

impl Writer {
    /// The last segment. Every change makes sure that there is one.
    pub(super) fn active(&mut self) -> &mut SegmentWriter {
        self.active.as_mut().expect("a log that is not closed has a last segment")
    }

    /// Writes the leader epochs.
    pub(super) fn write_epochs(&self, storage: &dyn Storage) -> Result<(), Error> {
        state_files::write_epochs(storage, &self.directory, &self.epochs)
    }

    /// Writes the producers to a snapshot named after the map's end, if there is none.
    pub(super) fn take_snapshot(&mut self, storage: &dyn Storage) -> Result<(), Error> {
        let end = self.producers.map_end_offset();
        if self.producers.is_snapshot_due(self.newest_snapshot) {
            state_files::write_snapshot(storage, &self.directory, end, &self.producers.snapshot())?;
            self.newest_snapshot = Some(end);
        }
        Ok(())
    }

    /// Renames the files of segments that readers no longer find, with their snapshots.
    pub(super) fn delete_segments(
        &mut self,
        storage: &dyn Storage,
        segments: &[Arc<Segment>],
        now_ms: i64,
    ) -> Result<(), Error> {
        for segment in segments {
            load_indexes(segment);
            segment.rename(SegmentFileState::Deleted)?;
            state_files::remove_snapshot(storage, &self.directory, segment.base_offset())?;
            self.deleted.push((Arc::clone(segment), now_ms.saturating_add(self.config.file_delete_delay_ms)));
        }
        self.is_directory_dirty = true;
        Ok(())
    }
}

/// An error of which some are failures of the storage.
pub(super) trait Failure: From<Error> {
    /// Whether the log can no longer be trusted.
    fn is_of_storage(&self) -> bool;
}

impl Failure for Error {
    fn is_of_storage(&self) -> bool {
        matches!(self, Self::Io { .. } | Self::Index { .. } | Self::Corrupt(_))
    }
}

pub(super) fn check_offset(offset: Offset) -> Result<(), Error> {
    if offset.0 < 0 { Err(Error::NegativeOffset { offset }) } else { Ok(()) }
}

/// What a segment goes by.
pub(super) fn segment_config(config: &LogConfig, jitter_ms: i64) -> SegmentConfig {
    SegmentConfig {
        segment_bytes_max: config.segment_bytes,
        segment_ms: config.segment_ms,
        segment_jitter_ms: jitter_ms,
        index_bytes_max: config.segment_index_bytes,
        index_interval_bytes: config.index_interval_bytes,
        preallocate: config.preallocate,
    }
}

/// A number from 0 up to `most` and below it, at random; 0 for 0.
pub(super) fn jitter(most: i64) -> i64 {
    use std::hash::BuildHasher as _;
    // Each of these hashers has keys of its own.
    let random = std::hash::RandomState::new().hash_one(most);
    if most <= 0 { 0 } else { i64::try_from(random % most.unsigned_abs()).unwrap_or(0) }
}
