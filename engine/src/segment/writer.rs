//! Appending to the last segment of a log.

use std::path::Path;
use std::sync::Arc;

use super::files::PENDING_ENTRIES_MAX;
use super::index::{
    AbortedTransaction, IndexRefusal, LiveOffsetIndex, LiveTimeIndex, OffsetIndexEntry, TimeIndexEntry,
    check_reach,
};
use super::{BatchFacts, Segment, SegmentConfig, TimestampOffset};
use crate::error::Error;
use crate::io::Storage;
use crate::types::Offset;

/// What is about to be appended, as far as it decides whether a new segment begins (RollParams).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Incoming {
    /// Bytes of all batches.
    pub bytes: u64,
    /// Largest timestamp of all records, ms, −1 = none.
    pub max_timestamp: i64,
    /// Offset of the last record.
    pub last_offset: Offset,
}

/// Why a new segment has to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RollReason {
    /// The batches would make it larger than `segment.bytes`.
    Size,
    /// It has lasted longer than `segment.ms` less its jitter.
    Time,
    /// The offset index is full.
    OffsetIndexFull,
    /// The time index is full.
    TimeIndexFull,
    /// The last offset is more than 2^31 − 1 above the base offset, or below it.
    OffsetOverflow,
}

/// Why batches were not appended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AppendFault {
    /// An offset is not within 2^31 − 1 above the base offset (LogSegmentOffsetOverflowException). Nothing was written.
    #[error(transparent)]
    OffsetOverflow(#[from] super::index::OffsetOutOfIndex),
    /// An index would not take its entries; one that is full asks for a new segment. Nothing was written.
    #[error(transparent)]
    Index(#[from] IndexRefusal),
    /// The segment would have more bytes than an index can point at. Nothing was written.
    #[error("{0} bytes are more than the 2147483647 that a segment can have")]
    TooLarge(u64),
    /// The facts do not describe the bytes. Nothing was written.
    #[error("batches of {described} bytes are described, and {given} bytes given")]
    Facts {
        /// Bytes of the batches that the facts are about.
        described: u64,
        /// Bytes that were given.
        given: u64,
    },
    /// The bytes could not be written, or not the index entries after them. The segment must be recovered.
    #[error(transparent)]
    Storage(#[from] Error),
}

/// The one writer of a segment (Kafka's LogSegment, as the append path sees it). It holds the segment that readers share,
/// and what only an append needs to know.
#[derive(Debug)]
pub struct SegmentWriter {
    pub(super) segment: Arc<Segment>,
    pub(super) config: SegmentConfig,
    pub(super) created_ms: i64,
    /// Largest timestamp of the first batch, once it was looked at.
    pub(super) roll_reference: Option<i64>,
    /// Bytes since the batch of the last index entry, that batch included.
    pub(super) bytes_since_entry: u64,
    /// Index entries that are in memory only.
    pub(super) pending_entries: usize,
}

impl SegmentWriter {
    /// Makes a new, empty segment in a partition's folder. Files that have its names are removed; index files appear
    /// when they are first written to.
    ///
    /// # Errors
    /// [`Error::Io`]
    pub fn create(
        storage: Arc<dyn Storage>,
        directory: &Path,
        base_offset: Offset,
        config: SegmentConfig,
        now_ms: i64,
    ) -> Result<Self, Error> {
        let segment = Arc::new(Segment::create(storage, directory, base_offset, &config)?);
        Ok(Self::around(segment, config, now_ms))
    }

    /// Goes on with a segment that is there and sound. Its indexes get their full length again.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Corrupt`] where the last batches cannot be read; [`Error::Index`] for an offset index that
    /// does not end with one of them, as no entry could follow: the segment has to be recovered.
    pub fn resume(segment: Arc<Segment>, config: SegmentConfig, now_ms: i64) -> Result<Self, Error> {
        let (offset_index, time_index) = (segment.offset_index()?, segment.time_index()?);
        let next_offset = segment.next_offset()?;
        if segment.is_index_wrong() || (!offset_index.is_empty() && offset_index.last_offset() >= next_offset)
        {
            let path = segment.path(super::SegmentFileKind::OffsetIndex);
            return Err(Error::Index { path, reason: "an entry is not that of a batch".to_owned() });
        }
        let bytes = config.index_bytes_max as usize;
        offset_index.resize(bytes);
        time_index.resize(bytes);
        // What was in memory only is written first: then the files have all there is, and nothing behind it counts.
        let location = segment.location();
        let mut files = segment.files();
        files.write(&*segment.storage, &location, offset_index, time_index)?;
        files.grow(&*segment.storage, &location, offset_index.capacity(), time_index.capacity())?;
        drop(files);
        segment.log.reserve(config.segment_bytes_max.into());
        segment.transactions_count()?;
        segment.set_max_timestamp(segment.max_timestamp_so_far()?);
        Ok(Self::around(segment, config, now_ms))
    }

    fn around(segment: Arc<Segment>, config: SegmentConfig, created_ms: i64) -> Self {
        Self { segment, config, created_ms, roll_reference: None, bytes_since_entry: 0, pending_entries: 0 }
    }

    /// The segment, to be shared with readers. It is another one after [`truncate_to`](Self::truncate_to).
    pub fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }

    /// Its settings.
    pub fn config(&self) -> &SegmentConfig {
        &self.config
    }

    /// Gives it other settings. The room in its indexes stays as it is.
    pub fn set_config(&mut self, config: SegmentConfig) {
        self.config = config;
    }

    /// Bytes of its batches.
    pub fn size(&self) -> u64 {
        self.segment.size()
    }

    /// Smallest offset that it may hold.
    pub fn base_offset(&self) -> Offset {
        self.segment.base_offset()
    }

    fn offset_index(&self) -> Result<&LiveOffsetIndex, Error> {
        self.segment.offset_index()
    }

    fn time_index(&self) -> Result<&LiveTimeIndex, Error> {
        self.segment.time_index()
    }

    /// How long it has lasted, ms: from the first batch's largest timestamp to `max_timestamp`, or from when it was made
    /// to now where that batch has no timestamp or there is none. Negative where time went back.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Corrupt`]: the first batch is looked at once.
    pub fn time_waited_for_roll(&mut self, now_ms: i64, max_timestamp: i64) -> Result<i64, Error> {
        if self.roll_reference.is_none() {
            self.roll_reference = self.segment.first_batch_timestamp()?;
        }
        Ok(match self.roll_reference {
            Some(reference) if reference >= 0 => max_timestamp.saturating_sub(reference),
            _ => now_ms.saturating_sub(self.created_ms),
        })
    }

    /// Whether a new segment has to begin before this is appended, and why. Nothing incoming never does that.
    ///
    /// # Errors
    /// As [`time_waited_for_roll`](Self::time_waited_for_roll).
    pub fn should_roll(&mut self, incoming: &Incoming, now_ms: i64) -> Result<Option<RollReason>, Error> {
        if incoming.bytes == 0 {
            return Ok(None);
        }
        let size = self.size();
        if size.saturating_add(incoming.bytes) > self.config.segment_bytes_max.into() {
            return Ok(Some(RollReason::Size));
        }
        let least = self.config.segment_ms.saturating_sub(self.config.segment_jitter_ms);
        if size > 0 && self.time_waited_for_roll(now_ms, incoming.max_timestamp)? > least {
            return Ok(Some(RollReason::Time));
        }
        if self.offset_index()?.is_full() {
            return Ok(Some(RollReason::OffsetIndexFull));
        }
        if self.time_index()?.is_full() {
            return Ok(Some(RollReason::TimeIndexFull));
        }
        let is_in_reach = check_reach(incoming.last_offset, self.base_offset()).is_ok();
        Ok((!is_in_reach).then_some(RollReason::OffsetOverflow))
    }

    /// Appends whole batches whose offsets and epochs are final, `facts` being one for each, in order. One write of all
    /// bytes; index entries by the rule of Kafka 4.4, as many as the batches ask for. Readers see the batches once this
    /// returns. The byte position at which they begin is returned.
    ///
    /// Cost: one system call, and one more for every 512 index entries. No allocation but for the indexes, which take
    /// memory in blocks that double.
    ///
    /// # Errors
    /// [`AppendFault`]
    pub fn append(&mut self, bytes: &[u8], facts: &[BatchFacts]) -> Result<u64, AppendFault> {
        let position = self.size();
        self.check(position, bytes, facts)?;
        if bytes.is_empty() {
            return Ok(position);
        }
        let segment = &self.segment;
        segment.log.write_at(position, bytes).map_err(|e| segment.io("write to", e))?;
        segment.set_size(position + bytes.len() as u64);
        if position == 0 {
            self.roll_reference = facts.first().map(|first| first.max_timestamp);
        }
        self.index(position, facts)?;
        Ok(position)
    }

    /// Whether all of that can be appended and indexed.
    fn check(&self, position: u64, bytes: &[u8], facts: &[BatchFacts]) -> Result<(), AppendFault> {
        let (given, described) = (bytes.len() as u64, facts.iter().map(|batch| u64::from(batch.size)).sum());
        if given != described {
            return Err(AppendFault::Facts { described, given });
        }
        if position + given > i32::MAX as u64 {
            return Err(AppendFault::TooLarge(position + given));
        }
        let base_offset = self.base_offset();
        let (offset_index, time_index) = (self.offset_index()?, self.time_index()?);
        let (mut entries, mut times) = (offset_index.len(), time_index.len());
        let mut last = (entries > 0).then(|| offset_index.last_offset());
        let mut last_time = time_index.last_entry().timestamp;
        let (mut since, mut max_timestamp) = (self.bytes_since_entry, self.max_timestamp()?.timestamp);
        for batch in facts {
            check_reach(batch.base_offset, base_offset)?;
            check_reach(batch.last_offset, base_offset)?;
            max_timestamp = max_timestamp.max(batch.max_timestamp);
            if since > self.config.index_interval_bytes.into() {
                if entries >= offset_index.capacity() {
                    return Err(IndexRefusal::Full { entries }.into());
                }
                if times + 1 >= time_index.capacity() {
                    return Err(IndexRefusal::Full { entries: times }.into());
                }
                if let Some(last) = last.filter(|last| batch.last_offset <= *last) {
                    return Err(IndexRefusal::OffsetBack { last, offset: batch.last_offset }.into());
                }
                last = Some(batch.last_offset);
                entries += 1;
                if max_timestamp > last_time {
                    (last_time, times) = (max_timestamp, times + 1);
                }
                since = 0;
            }
            since += u64::from(batch.size);
        }
        Ok(())
    }

    /// Indexes batches that were written at a position.
    fn index(&mut self, mut position: u64, facts: &[BatchFacts]) -> Result<(), AppendFault> {
        let mut max = self.max_timestamp()?;
        for batch in facts {
            if batch.max_timestamp > max.timestamp {
                max = TimestampOffset { timestamp: batch.max_timestamp, offset: batch.last_offset };
                self.segment.set_max_timestamp(max);
            }
            if self.bytes_since_entry > self.config.index_interval_bytes.into() {
                // Positions were checked to be below 2^31.
                let entry = OffsetIndexEntry { offset: batch.last_offset, position: position as i32 };
                self.offset_index()?.append(entry)?;
                self.time_index()?.append(TimeIndexEntry { timestamp: max.timestamp, offset: max.offset })?;
                self.bytes_since_entry = 0;
                self.pending_entries += 1;
            }
            position += u64::from(batch.size);
            self.bytes_since_entry += u64::from(batch.size);
        }
        if self.pending_entries >= PENDING_ENTRIES_MAX {
            self.segment.write_indexes()?;
            self.pending_entries = 0;
        }
        Ok(())
    }

    fn max_timestamp(&self) -> Result<TimestampOffset, Error> {
        self.segment.max_timestamp_so_far()
    }

    /// Appends an aborted transaction, whose marker lies in this segment, to the transaction index.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Index`] for a marker that does not lie above that of the entry before.
    pub fn append_aborted(&mut self, entry: AbortedTransaction) -> Result<(), Error> {
        let segment = &self.segment;
        if let Some(last) = segment.last_aborted()?
            && last.last_offset >= entry.last_offset
        {
            let reason =
                format!("a marker at {} cannot follow one at {}", entry.last_offset, last.last_offset);
            return Err(Error::Index {
                path: segment.path(super::SegmentFileKind::TransactionIndex),
                reason,
            });
        }
        let number = segment.transactions_count()?;
        segment.files().append_transaction(&*segment.storage, &segment.location(), number, &entry)?;
        segment.push_transaction(entry)
    }

    /// Brings the segment to the device.
    ///
    /// # Errors
    /// As [`Segment::flush`].
    pub fn flush(&mut self) -> Result<(), Error> {
        self.segment.flush()?;
        self.pending_entries = 0;
        Ok(())
    }

    /// Ends the writing, because another segment follows: closing entry of the time index, files cut to what is in them.
    /// Nothing is brought to the device yet.
    ///
    /// # Errors
    /// [`Error::Io`]
    pub fn seal(self) -> Result<Arc<Segment>, Error> {
        let segment = &self.segment;
        append_closing_entry(segment)?;
        segment.write_indexes()?;
        segment.files().trim(&*segment.storage, &segment.location())?;
        segment.trim_log()?;
        Ok(self.segment)
    }

    /// Ends the writing, because the log is closed: as [`seal`](Self::seal), and everything is brought to the device.
    ///
    /// # Errors
    /// [`Error::Io`]
    pub fn close(self) -> Result<Arc<Segment>, Error> {
        let segment = self.seal()?;
        segment.flush()?;
        Ok(segment)
    }
}

/// The entry that ends a time index, even one without room.
pub(super) fn append_closing_entry(segment: &Segment) -> Result<(), Error> {
    let max = segment.max_timestamp_so_far()?;
    let entry = TimeIndexEntry { timestamp: max.timestamp, offset: max.offset };
    segment.time_index()?.append_closing(entry).map_err(|refusal| Error::Index {
        path: segment.path(super::SegmentFileKind::TimeIndex),
        reason: refusal.to_string(),
    })
}
