//! Finding records by their time.

use super::Segment;
use super::reader::{Frame, FrameAt};
use super::walk::Walk;
use crate::batch::{Decompressor, Limits, RecordsFault};
use crate::error::{Error, Reason};
use crate::types::Offset;

/// A record that a search by time found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimestampedRecord {
    /// Its timestamp, ms since the epoch.
    pub timestamp: i64,
    /// Its offset.
    pub offset: Offset,
    /// Leader epoch of its batch, if it has one.
    pub leader_epoch: Option<i32>,
}

impl Segment {
    /// The first record by offset, from `start` on, that has this timestamp or a later one. Cost: searches in both
    /// indexes, a look at each batch up to the one with the record, and that batch's records.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Corrupt`] and [`Error::Unsupported`] where a batch on the way cannot be read.
    pub fn find_by_timestamp(
        &self,
        timestamp: i64,
        start: Offset,
        limits: &Limits,
    ) -> Result<Option<TimestampedRecord>, Error> {
        let from = self.time_search_start(timestamp, start)?;
        self.first_record(
            from,
            |batch| batch >= timestamp,
            limits,
            |record, offset| record >= timestamp && offset >= start,
        )
    }

    /// The first record that has the largest timestamp of the segment; `None` where no record has one.
    ///
    /// # Errors
    /// As [`find_by_timestamp`](Self::find_by_timestamp).
    pub fn find_max_timestamp(&self, limits: &Limits) -> Result<Option<TimestampedRecord>, Error> {
        let max = self.max_timestamp_so_far()?.timestamp;
        if max < 0 {
            return Ok(None);
        }
        let from = self.time_search_start(max, self.base_offset())?;
        self.first_record(from, |batch| batch == max, limits, |record, _| record == max)
    }

    /// The first record that is wanted, in batches whose largest timestamp is wanted.
    fn first_record(
        &self,
        from: u64,
        wants_batch: impl Fn(i64) -> bool,
        limits: &Limits,
        wants_record: impl Fn(i64, Offset) -> bool,
    ) -> Result<Option<TimestampedRecord>, Error> {
        let bytes = self.bytes()?;
        let mut walk = Walk::new(&bytes, from);
        let mut decompressor = Decompressor::new();
        loop {
            let position = walk.position();
            let found = match walk.next_whole() {
                Ok(Some(found)) => found,
                Ok(None) => return Ok(None),
                Err(fault) => return Err(self.frame_fault(position, fault)),
            };
            if !wants_batch(found.frame.max_timestamp()) {
                continue;
            }
            let record = self.record_of(&found, &mut decompressor, limits, &wants_record)?;
            if record.is_some() {
                return Ok(record);
            }
        }
    }

    fn record_of(
        &self,
        found: &FrameAt<'_>,
        decompressor: &mut Decompressor,
        limits: &Limits,
        wants: impl Fn(i64, Offset) -> bool,
    ) -> Result<Option<TimestampedRecord>, Error> {
        let corrupt = |reason| self.corrupt(found.position, found.frame.base_offset(), reason);
        match found.frame {
            Frame::Batch(frame) => {
                let epoch = frame.partition_leader_epoch();
                let batch = frame.verify().map_err(|fault| corrupt(Reason::Crc(fault)))?;
                let records =
                    batch.records(decompressor, limits).map_err(|fault| self.records_fault(found, fault))?;
                for record in records {
                    let record = record.map_err(|fault| corrupt(Reason::Record(fault)))?;
                    if wants(record.timestamp, record.offset) {
                        return Ok(Some(TimestampedRecord {
                            timestamp: record.timestamp,
                            offset: record.offset,
                            leader_epoch: (epoch >= 0).then_some(epoch),
                        }));
                    }
                }
                Ok(None)
            }
            Frame::Legacy(message) => {
                message.verify().map_err(|fault| corrupt(Reason::Crc(fault)))?;
                let records = message
                    .records(decompressor, limits)
                    .map_err(|fault| corrupt(Reason::Records(fault.to_string())))?;
                let record = records.iter().find(|record| wants(record.timestamp, record.offset));
                Ok(record.map(|record| TimestampedRecord {
                    timestamp: record.timestamp,
                    offset: record.offset,
                    leader_epoch: None,
                }))
            }
        }
    }

    fn records_fault(&self, found: &FrameAt<'_>, fault: RecordsFault) -> Error {
        let (offset, position) = (found.frame.base_offset(), found.position);
        match Reason::from_records(fault) {
            Ok(reason) => self.corrupt(position, offset, reason),
            Err(reason) => {
                Error::Unsupported { path: self.path(super::SegmentFileKind::Log), offset, position, reason }
            }
        }
    }
}
