//! Reading a log, by any number of threads.

use std::sync::Arc;

use super::partition::{Log, LogOffsets, View};
use crate::batch::Limits;
use crate::error::Error;
use crate::io::Region;
use crate::segment::{Segment, SegmentRead, TimestampedRecord};
use crate::types::Offset;

/// Up to where a read goes (Kafka's FetchIsolation).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadUpTo {
    /// The log end: for followers.
    LogEnd,
    /// The high watermark: for consumers.
    HighWatermark,
}

/// What a read gives (Kafka's FetchDataInfo).
#[derive(Clone, Debug)]
pub struct LogRead {
    /// Bytes of one segment from the start of a batch on, shared. That batch may begin below the offset that was asked
    /// for; the last one may be cut off. None where there is nothing to read.
    pub bytes: Region,
    /// Base offset of the first batch, or the offset that was asked for where there is none.
    pub offset: Offset,
    /// Base offset of its segment, and its byte position there; `None` where there is no batch.
    pub position: Option<(Offset, u64)>,
    /// Whether the bytes do not hold the whole first batch.
    pub is_first_batch_incomplete: bool,
    /// The offsets that bounded the log when it was read.
    pub offsets: LogOffsets,
}

/// A log at one moment: its segments and offsets then. Nothing that happens to the log afterwards changes it: appends,
/// rolls, truncation, deletion. Holds the descriptors of its segments, and the room of those that are deleted meanwhile.
#[derive(Clone, Debug)]
pub struct HeldLog {
    view: Arc<View>,
    offsets: LogOffsets,
}

impl Log {
    /// The offsets that bound the log, as they are at one moment.
    pub fn offsets(&self) -> LogOffsets {
        // The end last: the others never lie above it, and it only falls when the log is truncated.
        let (log_start_offset, high_watermark) = (self.log_start_offset(), self.high_watermark());
        let log_end_offset = self.log_end_offset();
        LogOffsets { log_start_offset, high_watermark: high_watermark.min(log_end_offset), log_end_offset }
    }

    /// The log as it is now, for a reader that needs more than one look at it.
    pub fn snapshot(&self) -> HeldLog {
        let mut offsets = self.offsets();
        // After the end: it has all that lies below.
        let view = self.view.load_full();
        // Should the log have been cut in between, what was appended since is not to be seen before it is replicated.
        offsets.high_watermark = offsets.high_watermark.min(self.high_watermark());
        HeldLog { view, offsets }
    }

    /// Reads from the batch that holds `start`, or the first one above it, bytes of one segment. At most `bytes_max`
    /// bytes, or the whole first batch where that is larger and `at_least_one` is set.
    ///
    /// Cost: a search in the offset index and a look at each batch up to the next entry, twice where the limit lies in
    /// the same segment; no copy, no lock, and no system call but where a segment is read for the first time.
    ///
    /// # Errors
    /// [`Error::OffsetOutOfRange`] below the log start or above the log end; [`Error::Io`] and [`Error::Corrupt`] where
    /// a segment cannot be read.
    pub fn read(
        &self,
        start: Offset,
        bytes_max: u32,
        up_to: ReadUpTo,
        at_least_one: bool,
    ) -> Result<LogRead, Error> {
        let LogOffsets { log_start_offset, log_end_offset, .. } = self.offsets();
        if start < log_start_offset || start > log_end_offset {
            return Err(self.out_of_range(start));
        }
        self.snapshot().read(start, bytes_max, up_to, at_least_one)
    }

    /// The first record, by offset, that has this timestamp or a later one, among those that `up_to` allows
    /// (ListOffsets). Only the first segment that has such a timestamp is looked at, as in Kafka.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Corrupt`] and [`Error::Unsupported`] where a batch on the way cannot be read.
    pub fn find_by_timestamp(
        &self,
        timestamp: i64,
        up_to: ReadUpTo,
        limits: &Limits,
    ) -> Result<Option<TimestampedRecord>, Error> {
        self.snapshot().find_by_timestamp(timestamp, up_to, limits)
    }

    /// The record with the largest timestamp, the first of them (ListOffsets −3).
    ///
    /// # Errors
    /// As [`find_by_timestamp`](Self::find_by_timestamp).
    pub fn find_max_timestamp(&self, limits: &Limits) -> Result<Option<TimestampedRecord>, Error> {
        self.snapshot().find_max_timestamp(limits)
    }
}

impl HeldLog {
    /// The offsets that bound it.
    pub fn offsets(&self) -> LogOffsets {
        self.offsets
    }

    /// Its segments, by rising base offset. The last one may hold more than belongs to this moment.
    pub fn segments(&self) -> &[Arc<Segment>] {
        &self.view.segments
    }

    /// As [`Log::read`], of this moment.
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::Corrupt`] where a segment cannot be read. An offset outside the log reads nothing.
    pub fn read(
        &self,
        start: Offset,
        bytes_max: u32,
        up_to: ReadUpTo,
        at_least_one: bool,
    ) -> Result<LogRead, Error> {
        let nothing = LogRead {
            bytes: Region::from(Vec::new()),
            offset: start,
            position: None,
            is_first_batch_incomplete: false,
            offsets: self.offsets,
        };
        let limit = self.limit(up_to);
        let segments = &self.view.segments;
        let Some(first) = segments.partition_point(|segment| segment.base_offset() <= start).checked_sub(1)
        else {
            return Ok(nothing);
        };
        if start >= limit {
            return Ok(nothing);
        }
        // The segment that holds the limit. All before it are read whole.
        let last = segments.partition_point(|segment| segment.base_offset() <= limit).saturating_sub(1);
        for (number, segment) in segments.iter().enumerate().take(last + 1).skip(first) {
            let position_max = if number < last {
                segment.size()
            } else {
                let size = segment.size();
                segment.find(limit)?.map_or(size, |found| found.position)
            };
            let found = segment.read(start, bytes_max, Some(position_max), at_least_one)?;
            // What lies behind the limit only is not there.
            if let Some(found) = found.filter(|found| found.position < position_max) {
                let SegmentRead { bytes, offset, position, is_first_batch_incomplete } = found;
                let position = Some((segment.base_offset(), position));
                return Ok(LogRead { bytes, offset, position, is_first_batch_incomplete, ..nothing });
            }
        }
        Ok(nothing)
    }

    fn limit(&self, up_to: ReadUpTo) -> Offset {
        match up_to {
            ReadUpTo::LogEnd => self.offsets.log_end_offset,
            ReadUpTo::HighWatermark => self.offsets.high_watermark,
        }
    }

    /// As [`Log::find_by_timestamp`], of this moment.
    ///
    /// # Errors
    /// As there.
    pub fn find_by_timestamp(
        &self,
        timestamp: i64,
        up_to: ReadUpTo,
        limits: &Limits,
    ) -> Result<Option<TimestampedRecord>, Error> {
        for segment in &self.view.segments {
            if segment.largest_timestamp()? >= timestamp {
                let found = segment.find_by_timestamp(timestamp, self.offsets.log_start_offset, limits)?;
                return Ok(found.filter(|found| found.offset < self.limit(up_to)));
            }
        }
        Ok(None)
    }

    /// As [`Log::find_max_timestamp`], of this moment.
    ///
    /// # Errors
    /// As there.
    pub fn find_max_timestamp(&self, limits: &Limits) -> Result<Option<TimestampedRecord>, Error> {
        let mut largest: Option<(i64, &Arc<Segment>)> = None;
        for segment in &self.view.segments {
            let timestamp = segment.max_timestamp_so_far()?.timestamp;
            if timestamp >= 0 && largest.is_none_or(|(before, _)| timestamp > before) {
                largest = Some((timestamp, segment));
            }
        }
        largest.map_or(Ok(None), |(_, segment)| segment.find_max_timestamp(limits))
    }
}
