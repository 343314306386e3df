//! Opening a log to go on with it, after a clean stop or another one (Kafka's LogLoader).
//!
//! 1. Leftovers are tidied up: `.deleted` and `.cleaned` files go, `.swap` files take the place of what they cover.
//! 2. A segment without its index files, or with a transaction index of another, is recovered.
//! 3. After an unclean stop so is every segment from the one that holds the recovery point on. The first one that has to
//!    be cut is the last of the log.
//! 4. Leader epochs and producer snapshots beyond the end go; the producer state is made from the newest snapshot and
//!    the batches behind it.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::config::LogConfig;
use super::partition::{Log, LogOffsets, Parts, Writer, jitter, segment_config};
use super::rebuild::{self, Extent, ProducerReport, rebuild_producers};
use super::split::split;
use super::state_files::{list_snapshots, read_epochs, remove_snapshot, write_epochs, write_snapshot};
use super::tidy_up::tidy_up;
use super::validate::LogValidator;
use crate::batch::CoordinatorBatches;
use crate::error::Error;
use crate::io::{EntryKind, Storage};
use crate::producer_state::ProducerStateManager;
use crate::segment::{
    Cut, NeedsRecovery, RecoveryFault, Segment, SegmentConfig, SegmentFileKind, SegmentFileName,
    SegmentFileState, SegmentWriter,
};
use crate::types::{Offset, TopicPartition};

/// What the root's files say of a partition, and the time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogState {
    /// Whether the root was cleanly shut down.
    pub clean_shutdown: bool,
    /// The recovery point: 0 where none is known.
    pub recovery_point: Offset,
    /// The log start, if the checkpoint names the partition.
    pub log_start_offset: Option<Offset>,
    /// The high watermark, if the checkpoint names the partition.
    pub high_watermark: Option<Offset>,
    /// Whether a log that ends below its log start may be emptied, as a broker does without asking.
    pub may_reset: bool,
    /// The time, ms since the epoch.
    pub now_ms: i64,
}

/// What opening a log took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogRecovery {
    /// Files of unfinished work that were removed or renamed, by name.
    pub tidied: Vec<String>,
    /// Segments that were recovered, in order.
    pub segments: Vec<SegmentRecovery>,
    /// Base offsets of segments that went because they lie behind a cut.
    pub dropped: Vec<Offset>,
    /// Whether the log ended below its log start, and was emptied.
    pub was_reset: bool,
    /// How the producer state was made.
    pub producers: ProducerReport,
    /// Whether leader epochs were changed.
    pub epochs_changed: bool,
}

/// One recovered segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentRecovery {
    /// Its base offset.
    pub base_offset: Offset,
    /// Why it was looked at.
    pub why: RecoveryReason,
    /// Batches that were kept.
    pub batches: u64,
    /// What was cut off.
    pub cut: Option<Cut>,
    /// Whether segments behind it were kept although it was cut: offsets are missing between them (H-5).
    pub leaves_gap: bool,
}

/// Why a segment was recovered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecoveryReason {
    /// It may hold what was never brought to the device.
    #[error("after an unclean stop it may hold what is not on the device")]
    Unclean,
    /// An index file is missing or cannot be used.
    #[error(transparent)]
    Files(#[from] NeedsRecovery),
    /// Its time index is missing, without which a broker finds no timestamps in it.
    #[error("the time index is missing")]
    NoTimeIndex,
    /// Its last batch is not whole, although the log was closed.
    #[error("its last batch is not whole, although the log was cleanly closed")]
    TornTail,
    /// Its offset index has entries of batches that are not there.
    #[error("its offset index is not of its batches")]
    WrongIndex,
    /// It is a part of one whose offsets went out of reach.
    #[error("it is a part of a segment whose offsets went out of reach of its base offset")]
    Split,
}

impl LogRecovery {
    /// Whether records were lost, or may have been.
    pub fn lost_records(&self) -> bool {
        self.was_reset
            || !self.dropped.is_empty()
            || self.segments.iter().any(|segment| segment.cut.is_some())
    }
}

impl Log {
    /// Opens a partition's folder, which is made if it is not there, and recovers it as far as it must. Nobody else may
    /// have it open.
    ///
    /// Cost after a clean stop: a look at the headers of the last segment behind its last index entry. Else one pass
    /// over the segments from the recovery point on.
    ///
    /// # Errors
    /// [`Error::Config`]; [`Error::Io`]; [`Error::Corrupt`] for what a broker would not start with either;
    /// [`Error::Checkpoint`] for malformed leader epochs; [`Error::EndsBelowLogStart`].
    pub fn open(
        storage: Arc<dyn Storage>,
        directory: &Path,
        topic_partition: TopicPartition,
        config: LogConfig,
        state: &LogState,
    ) -> Result<(Self, LogRecovery), Error> {
        config.check().map_err(|fault| Error::Config { reason: fault.to_string() })?;
        match storage.create_dir(directory) {
            Ok(()) => {
                if let Some(root) = directory.parent() {
                    storage.sync_directory(root).map_err(Error::io("bring to the device", root))?;
                }
            }
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            Err(e) => return Err(Error::io("create", directory)(e)),
        }
        let mut opening = Opening::new(storage, directory, config, *state)?;
        opening.load_segments()?;
        opening.recover()?;
        opening.finish(topic_partition)
    }
}

/// A log on its way to being open.
struct Opening {
    storage: Arc<dyn Storage>,
    directory: PathBuf,
    config: LogConfig,
    segment_config: SegmentConfig,
    state: LogState,
    report: LogRecovery,
    segments: Vec<Arc<Segment>>,
    /// Segments that cannot be used as they are.
    needs: BTreeMap<Offset, RecoveryReason>,
    writer: Writer,
}

impl Opening {
    fn new(
        storage: Arc<dyn Storage>,
        directory: &Path,
        config: LogConfig,
        state: LogState,
    ) -> Result<Self, Error> {
        let report = LogRecovery { tidied: tidy_up(&storage, directory)?, ..LogRecovery::default() };
        let epochs = read_epochs(&*storage, directory)?;
        let expiration_ms = config.producer_id_expiration_ms;
        let writer = Writer {
            directory: directory.to_path_buf(),
            config: config.clone(),
            active: None,
            producers: ProducerStateManager::new(expiration_ms),
            epochs,
            validator: LogValidator::default(),
            batches: CoordinatorBatches::new(Offset(0), -1),
            stored: Vec::new(),
            facts: Vec::new(),
            deleted: Vec::new(),
            newest_snapshot: None,
            is_directory_dirty: true,
            truncations: 0,
        };
        let segment_config = segment_config(&config, jitter(config.segment_jitter_ms));
        let (segments, needs) = (Vec::new(), BTreeMap::new());
        let directory = directory.to_path_buf();
        Ok(Self { storage, directory, config, segment_config, state, report, segments, needs, writer })
    }

    /// Opens every segment and looks which cannot be used.
    fn load_segments(&mut self) -> Result<(), Error> {
        let entries = self.storage.list(&self.directory).map_err(Error::io("list", &self.directory))?;
        let mut kinds: BTreeMap<Offset, Vec<SegmentFileKind>> = BTreeMap::new();
        for entry in &entries {
            let name = entry.name.to_str().and_then(SegmentFileName::parse);
            let Some(name) = name.filter(|name| name.state == SegmentFileState::Live) else { continue };
            if !matches!(entry.kind, EntryKind::File { .. }) {
                // Without it the log would not be complete, and its offsets be given out again.
                let reason = "no regular file, but with the name of a segment's".to_owned();
                return Err(Error::NotRead { path: self.directory.join(&entry.name), reason });
            }
            kinds.entry(name.offset).or_default().push(name.kind);
        }
        self.segments.clear();
        for (base_offset, kinds) in kinds {
            if !kinds.contains(&SegmentFileKind::Log) {
                // Snapshots stand for themselves; an index without its log means nothing.
                for kind in kinds.into_iter().filter(|kind| *kind != SegmentFileKind::Snapshot) {
                    let name = SegmentFileName { offset: base_offset, kind, state: SegmentFileState::Live };
                    let path = self.directory.join(name.to_string());
                    self.storage.remove_file(&path).map_err(Error::io("remove", path))?;
                    self.report.tidied.push(name.to_string());
                }
                continue;
            }
            let segment = Segment::open(
                Arc::clone(&self.storage),
                &self.directory,
                base_offset,
                SegmentFileState::Live,
            )?;
            if let Some(need) = segment.check()? {
                self.needs.entry(base_offset).or_insert(need.into());
            } else if !kinds.contains(&SegmentFileKind::TimeIndex) {
                self.needs.entry(base_offset).or_insert(RecoveryReason::NoTimeIndex);
            }
            self.segments.push(Arc::new(segment));
        }
        Ok(())
    }

    /// Recovers what has to be. Where a segment had to be split, begins again with its parts.
    fn recover(&mut self) -> Result<(), Error> {
        let mut unclean_from = self.state.recovery_point;
        loop {
            let first_unclean = if self.state.clean_shutdown {
                self.segments.len()
            } else {
                let holds = self.segments.partition_point(|segment| segment.base_offset() <= unclean_from);
                holds.saturating_sub(1)
            };
            match self.recover_from(first_unclean)? {
                None => return Ok(()),
                Some(split_at) => {
                    let parts = split(&self.storage, &self.directory, &self.segments[split_at])?;
                    self.needs.extend(parts.iter().map(|base| (*base, RecoveryReason::Split)));
                    // What was recovered before needs no second look.
                    unclean_from = unclean_from.max(self.segments[split_at].base_offset());
                    self.load_segments()?;
                }
            }
        }
    }

    /// Recovers segments in order; the number of one that has to be split first.
    fn recover_from(&mut self, first_unclean: usize) -> Result<Option<usize>, Error> {
        for number in 0..self.segments.len() {
            let base_offset = self.segments[number].base_offset();
            let is_unclean = number >= first_unclean;
            let why = match self.needs.get(&base_offset) {
                Some(why) => why.clone(),
                None if is_unclean => RecoveryReason::Unclean,
                None => continue,
            };
            let Some(cut) = self.recover_segment(number, why, is_unclean)? else { return Ok(Some(number)) };
            self.needs.remove(&base_offset);
            if cut && is_unclean {
                break;
            }
            if cut {
                // Snapshots behind what was cut hold producers of records that are gone.
                self.remove_snapshots_above(base_offset)?;
            }
        }
        let Some(last) = self.segments.len().checked_sub(1).filter(|last| *last < first_unclean) else {
            return Ok(None);
        };
        let segment = &self.segments[last];
        let (end, position) = segment.end()?;
        let index = segment.offset_index()?;
        // After a clean stop a batch that is not whole is nobody's, and nothing may be appended behind it.
        let why = if position < segment.size() {
            RecoveryReason::TornTail
        } else if segment.is_index_wrong() || !index.is_empty() && index.last_offset() >= end {
            // Nor can entries be appended to an index that does not fit.
            RecoveryReason::WrongIndex
        } else {
            return Ok(None);
        };
        let whole = self.recover_segment(last, why, true)?;
        Ok(whole.map_or(Some(last), |_| None))
    }

    /// Recovers one segment; whether it was cut. `None` if it has to be split.
    fn recover_segment(
        &mut self,
        number: usize,
        why: RecoveryReason,
        is_unclean: bool,
    ) -> Result<Option<bool>, Error> {
        let segment = Arc::clone(&self.segments[number]);
        let base_offset = segment.base_offset();
        let log_start = self.log_start();
        // What is known of producers where the segment begins, without touching the snapshots behind.
        let mut producers = ProducerStateManager::new(self.config.producer_id_expiration_ms);
        if self.writer.producers.map_end_offset() == base_offset && number > 0 {
            producers = self.writer.producers.clone();
        } else {
            let before = &self.segments[..number];
            rebuild::producers_at(
                &*self.storage,
                &self.directory,
                &mut producers,
                before,
                Extent { log_start, end: base_offset, snapshot_max: base_offset },
                self.state.now_ms,
            )?;
        }
        if is_unclean
            && base_offset > log_start
            && !list_snapshots(&*self.storage, &self.directory)?.contains(&base_offset)
        {
            // That behind the segment before is of another offset, where offsets are missing in between.
            write_snapshot(&*self.storage, &self.directory, base_offset, &producers.snapshot())?;
        }
        let epochs = &mut self.writer.epochs;
        let epochs_changed = &mut self.report.epochs_changed;
        let path = segment.path(SegmentFileKind::Log);
        let walked = segment.walk_all(&self.segment_config, |frame, position| {
            let epoch = frame.partition_leader_epoch();
            if epoch >= 0 && epochs.latest_epoch().is_none_or(|latest| epoch > latest) {
                *epochs_changed |= epochs.assign(epoch, frame.base_offset()).unwrap_or(false);
            }
            rebuild::observe(&mut producers, frame, &path, position)
        });
        let rebuilt = match walked {
            Ok(rebuilt) => rebuilt,
            Err(RecoveryFault::OffsetOverflow { .. }) => return Ok(None),
            Err(RecoveryFault::Other(error)) => return Err(error),
        };
        if is_unclean && rebuilt.is_cut() {
            // Before the cut: a start after a crash in between would find nothing wrong, and keep them behind a gap.
            self.drop_behind(number)?;
        }
        // It is replaced, and is cut in place where nobody else has it.
        drop(self.segments.remove(number));
        let recovered = segment.rebuild(rebuilt).map_err(|fault| match fault {
            RecoveryFault::Other(error) => error,
            RecoveryFault::OffsetOverflow { .. } => Error::Index { path, reason: fault.to_string() },
        })?;
        self.segments.insert(number, Arc::clone(&recovered.segment));
        let is_cut = recovered.cut.is_some();
        if is_unclean {
            producers.set_map_end_offset(recovered.next_offset);
            self.writer.producers = producers;
            // Where the log begins there is nothing to keep.
            self.writer.newest_snapshot = Some(log_start);
            self.remove_snapshots_above(recovered.next_offset)?;
            self.writer.take_snapshot(&*self.storage)?;
        }
        self.report.segments.push(SegmentRecovery {
            base_offset,
            why,
            batches: recovered.batches,
            leaves_gap: is_cut && !is_unclean && number + 1 < self.segments.len(),
            cut: recovered.cut,
        });
        Ok(Some(is_cut))
    }

    fn log_start(&self) -> Offset {
        let first = self.segments.first().map_or(Offset(0), |segment| segment.base_offset());
        self.state.log_start_offset.map_or(first, |start| start.max(first))
    }

    /// Lets go of the segments behind one that is cut.
    fn drop_behind(&mut self, number: usize) -> Result<(), Error> {
        let gone = self.segments.split_off(number + 1);
        if gone.is_empty() {
            return Ok(());
        }
        // From the end, so that a crash leaves no gap.
        let gone: Vec<Arc<Segment>> = gone.into_iter().rev().collect();
        self.report.dropped.extend(gone.iter().rev().map(|segment| segment.base_offset()));
        self.writer.delete_segments(&*self.storage, &gone, self.state.now_ms)?;
        self.storage
            .sync_directory(&self.directory)
            .map_err(Error::io("bring to the device", &self.directory))
    }

    fn remove_snapshots_above(&self, offset: Offset) -> Result<(), Error> {
        for snapshot in list_snapshots(&*self.storage, &self.directory)? {
            if snapshot > offset {
                remove_snapshot(&*self.storage, &self.directory, snapshot)?;
            }
        }
        Ok(())
    }

    fn finish(mut self, topic_partition: TopicPartition) -> Result<(Log, LogRecovery), Error> {
        let log_start = self.log_start();
        let mut end = match self.segments.last() {
            Some(last) => last.end()?.0,
            None => log_start,
        };
        if end < log_start {
            if !self.state.may_reset {
                return Err(Error::EndsBelowLogStart { partition: topic_partition, end, log_start });
            }
            let gone: Vec<Arc<Segment>> = self.segments.drain(..).rev().collect();
            self.writer.delete_segments(&*self.storage, &gone, self.state.now_ms)?;
            self.report.epochs_changed |= self.writer.epochs.clear();
            self.remove_snapshots_above(Offset(-1))?;
            (self.report.was_reset, end) = (true, log_start);
        }
        let (storage, now_ms) = (Arc::clone(&self.storage), self.state.now_ms);
        let config = self.segment_config.clone();
        let active = match self.segments.pop() {
            Some(last) => SegmentWriter::resume(last, config, now_ms)?,
            None => SegmentWriter::create(storage, &self.directory, end, config, now_ms)?,
        };
        self.segments.push(Arc::clone(active.segment()));
        self.writer.active = Some(active);

        let log_start = self.log_start().min(end);
        self.report.epochs_changed |= self.writer.epochs.truncate_from_end(end);
        if let Some(start) = self.state.log_start_offset {
            self.report.epochs_changed |= self.writer.epochs.truncate_from_start(start.min(end));
        }
        if self.report.epochs_changed {
            write_epochs(&*self.storage, &self.directory, &self.writer.epochs)?;
        }
        rebuild::remove_stray_snapshots(&*self.storage, &self.directory, &self.segments)?;
        let high_watermark = self.state.high_watermark.unwrap_or(end).max(log_start).min(end);
        self.report.producers = rebuild_producers(
            &*self.storage,
            &mut self.writer,
            &self.segments,
            Extent { log_start, end, snapshot_max: high_watermark },
            now_ms,
        )?;
        let recovery_point =
            if self.state.clean_shutdown { end } else { self.state.recovery_point.min(end).max(log_start) };
        let offsets = LogOffsets {
            log_start_offset: log_start,
            high_watermark: self.state.high_watermark.map_or(log_start, |_| high_watermark),
            log_end_offset: end,
        };
        self.writer.producers.on_high_watermark_updated(offsets.high_watermark);
        let log = Log::from_parts(Parts {
            storage: self.storage,
            topic_partition,
            segments: self.segments,
            offsets,
            recovery_point,
            writer: self.writer,
        });
        Ok((log, self.report))
    }
}
