//! One partition, batch by batch.

use std::path::Path;
use std::time::Instant;

use super::PartitionMap;
use super::observer::{Cancel, Meter, Totals};
use super::report::{PartitionStats, Skipped, SkippedPlace, Tail, UnknownKind, UnknownRecord};
use crate::batch::{BatchFrame, Decompressor, FrameFault, HEADER_LEN, LOG_OVERHEAD, Limits, Record};
use crate::error::{BrokerView, Corruption, Error, Reason};
use crate::io::{Storage, read_full_at};
use crate::log::LogSnapshot;
use crate::segment::{Access, Frame, FrameAt, Next, SegmentReader, Survivor, crc_of_range, find_survivor};
use crate::transaction_log::{Key, Value};
use crate::types::Offset;

/// What all partitions of a load share.
pub(super) struct Context<'a> {
    pub(super) storage: &'a dyn Storage,
    pub(super) access: Access,
    pub(super) lenient: bool,
    pub(super) limits: Limits,
    pub(super) cancel: &'a Cancel,
    pub(super) totals: &'a Totals,
}

/// Loads one partition, complete or not at all.
pub(super) fn load(
    snapshot: &LogSnapshot,
    context: &Context<'_>,
) -> Result<(PartitionMap, PartitionStats), Error> {
    let started = Instant::now();
    let log_start = snapshot.log_start_offset();
    let mut load = Load {
        snapshot,
        context,
        map: PartitionMap::default(),
        stats: PartitionStats {
            log_start_offset: log_start,
            segments: snapshot.segments.len(),
            ..PartitionStats::default()
        },
        expected: snapshot.segments.first().map_or(log_start, |segment| segment.base_offset),
        expected_before: Offset(0),
        batch_end: None,
        decompressor: Decompressor::new(),
        meter: Meter::new(context.totals),
    };
    for index in 0..snapshot.segments.len() {
        // A segment that ends below the log start offset waits for its deletion.
        if snapshot.segments.get(index + 1).is_some_and(|next| next.base_offset <= log_start) {
            load.meter.add(snapshot.segments[index].len, 0, 0);
            load.expected = snapshot.segments[index + 1].base_offset;
            continue;
        }
        load.segment(index)?;
    }
    load.meter.hand_over(load.map.len());
    load.finish(started)
}

struct Load<'a> {
    snapshot: &'a LogSnapshot,
    context: &'a Context<'a>,
    map: PartitionMap,
    stats: PartitionStats,
    /// The smallest offset that may come next.
    expected: Offset,
    /// What `expected` was before the last batch: where that batch's offset is a lie, this is the last truth.
    expected_before: Offset,
    /// The offset behind the last batch, from which gaps are measured.
    batch_end: Option<Offset>,
    decompressor: Decompressor,
    meter: Meter<'a>,
}

/// Why a batch or record cannot be used.
enum Fault {
    Corrupt(Reason),
    Unsupported(String),
}

impl<R: Into<Reason>> From<R> for Fault {
    fn from(reason: R) -> Self {
        Self::Corrupt(reason.into())
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Corrupt(reason) => reason.fmt(f),
            Self::Unsupported(reason) => f.write_str(reason),
        }
    }
}

/// A batch or record that cannot be used, and what is known about it.
struct Problem {
    fault: Fault,
    /// Offset of the batch, or the one that should come.
    offset: Offset,
    position: u64,
    /// Bytes of the batch, if its header says so credibly.
    size: Option<u64>,
    transactional_id: Option<Vec<u8>>,
}

impl Load<'_> {
    fn segment(&mut self, index: usize) -> Result<(), Error> {
        let segment = &self.snapshot.segments[index];
        let Context { storage, access, .. } = *self.context;
        let mut reader =
            SegmentReader::open(storage, &segment.path, segment.base_offset, segment.len, access)?;
        if segment.base_offset < self.expected {
            let reason = Reason::OffsetGoesBack { expected: self.expected, found: segment.base_offset };
            let problem = Problem {
                fault: reason.into(),
                offset: segment.base_offset,
                position: 0,
                size: None,
                transactional_id: None,
            };
            if !self.context.lenient {
                return Err(self.refusal(&reader, index, problem));
            }
            self.note_skipped(&segment.path, &problem);
            self.distrust_last_offset(segment.base_offset);
        }
        self.expected = self.expected.max(segment.base_offset);
        loop {
            if self.context.cancel.is_cancelled() {
                return Err(Error::Cancelled);
            }
            let position = reader.position();
            let problem = match reader.next()? {
                Next::End => break,
                Next::Frame(FrameAt { frame: Frame::Batch(frame), position, size }) => {
                    let records = self.stats.records;
                    match self.batch(&frame, segment.base_offset, &segment.path, position) {
                        Ok(()) => {
                            let records = self.stats.records - records;
                            self.meter.add(size, records, self.map.len());
                            continue;
                        }
                        Err((fault, transactional_id)) => Problem {
                            fault,
                            offset: frame.base_offset(),
                            position,
                            size: Some(size),
                            transactional_id,
                        },
                    }
                }
                Next::Frame(FrameAt { frame: Frame::Legacy(message), position, size }) => {
                    let fault = match message.verify() {
                        Ok(()) => Fault::Corrupt(Reason::LegacyFormat(message.magic())),
                        Err(mismatch) => mismatch.into(),
                    };
                    let offset = message.offset();
                    Problem { fault, offset, position, size: Some(size), transactional_id: None }
                }
                Next::Bad(fault) => Problem {
                    fault: fault.into(),
                    offset: self.expected,
                    position,
                    size: None,
                    transactional_id: None,
                },
            };
            if self.is_forgivable_tail(&reader, index, &problem)? {
                let Fault::Corrupt(reason) = problem.fault else { break };
                self.stats.tail = Some(Tail {
                    path: segment.path.clone(),
                    position: problem.position,
                    bytes: segment.len - problem.position,
                    offset: self.expected,
                    reason,
                });
                break;
            }
            if !self.context.lenient {
                return Err(self.refusal(&reader, index, problem));
            }
            self.skip(&mut reader, &problem)?;
        }
        self.stats.bytes += reader.position();
        reader.check_not_shrunk()
    }

    /// One batch with a sane header: its checks, then its records.
    fn batch(
        &mut self,
        frame: &BatchFrame<'_>,
        segment_base: Offset,
        path: &Path,
        position: u64,
    ) -> Result<(), (Fault, Option<Vec<u8>>)> {
        let plain = |reason: Reason| (Fault::Corrupt(reason), None);
        // The CRC first: offsets lie outside it, but in a batch that was torn nothing can be trusted.
        let batch = match frame.verify() {
            Ok(batch) => batch,
            Err(mismatch) => return Err((mismatch.into(), self.first_id(frame))),
        };
        let (base, last) = (frame.base_offset(), frame.last_offset());
        if base < self.expected {
            let reason = Reason::OffsetGoesBack { expected: self.expected, found: base };
            if !self.context.lenient || !self.distrust_last_offset(base) {
                return Err(plain(reason));
            }
            self.note_place(path, base, position, reason.to_string());
        }
        let largest = Offset(segment_base.0.saturating_add(i64::from(i32::MAX)));
        if last > largest {
            return Err(plain(Reason::OffsetTooLarge { found: last, last: largest }));
        }

        let before =
            (self.expected, self.expected_before, self.batch_end, self.stats.gaps, self.stats.gap_offsets);
        self.stats.batches += 1;
        if let Some(end) = self.batch_end.filter(|end| base > *end) {
            self.stats.gaps += 1;
            self.stats.gap_offsets += base.0.abs_diff(end.0);
        }
        self.expected_before = self.expected;
        self.expected = last.next();
        self.batch_end = Some(self.expected);
        if last < self.stats.log_start_offset {
            return Ok(());
        }
        if frame.is_control() {
            self.stats.control_batches += 1;
            return Ok(());
        }
        if frame.records_count() == 0 {
            self.stats.empty_batches += 1;
            return Ok(());
        }
        let applied = self.records(&batch, path, position);
        if applied.is_err() {
            // The batch is refused or skipped whole: its offsets may come again.
            (self.expected, self.expected_before, self.batch_end, self.stats.gaps, self.stats.gap_offsets) =
                before;
            self.stats.batches -= 1;
        }
        applied
    }

    /// Where a lenient walk meets an offset that goes back: whether it could follow what came before the last batch.
    /// Then that batch's own offset must be the wrong one (it lies outside the CRC), and what follows is as it was.
    fn distrust_last_offset(&mut self, found: Offset) -> bool {
        let is_plausible = found >= self.expected_before;
        if is_plausible {
            self.expected = found;
            self.batch_end = Some(found);
        }
        is_plausible
    }

    fn records(
        &mut self,
        batch: &crate::batch::Batch<'_>,
        path: &Path,
        position: u64,
    ) -> Result<(), (Fault, Option<Vec<u8>>)> {
        let frame = *batch.frame();
        // Taken out while records borrow from it.
        let mut decompressor = std::mem::take(&mut self.decompressor);
        let result = (|| {
            let records = batch.records(&mut decompressor, &self.context.limits).map_err(|fault| {
                (Reason::from_records(fault).map_or_else(Fault::Unsupported, Fault::Corrupt), None)
            })?;
            // A batch whose records cannot all be read is not read at all, as in Kafka: look before the first is
            // applied. With one record, the usual case here, looking and applying are the same.
            if frame.records_count() > 1 {
                let mut expected = frame.base_offset();
                for record in records.clone() {
                    let record = record.map_err(|fault| (fault.into(), None))?;
                    check_offset(&record, expected, frame.last_offset())
                        .map_err(|reason| (reason.into(), None))?;
                    expected = record.offset.next();
                }
            }
            let share = (HEADER_LEN as u32).div_ceil(frame.records_count().unsigned_abs());
            for record in records {
                let record = record.map_err(|fault| (fault.into(), None))?;
                check_offset(&record, frame.base_offset(), frame.last_offset())
                    .map_err(|reason| (reason.into(), None))?;
                self.stats.records += 1;
                if let Err((fault, id)) = self.record(&record, share) {
                    let id = id.map(<[u8]>::to_vec);
                    if !self.context.lenient {
                        return Err((fault, id));
                    }
                    self.stats.skipped.records += 1;
                    self.note_place(path, record.offset, position, fault.to_string());
                }
            }
            Ok(())
        })();
        self.decompressor = decompressor;
        result
    }

    fn record<'r>(
        &mut self,
        record: &Record<'r>,
        header_share: u32,
    ) -> Result<(), (Fault, Option<&'r [u8]>)> {
        let offset = record.offset;
        let key = record.key.ok_or((Reason::NullKey(offset).into(), None))?;
        let id = match Key::parse(key) {
            Ok(Key::TransactionalId(id)) => id,
            Ok(Key::Unknown { version }) => {
                self.note_unknown(offset, UnknownKind::Key(version));
                return Ok(());
            }
            Err(fault) => return Err((Reason::Key { offset, fault }.into(), None)),
        };
        let Some(value) = record.value else {
            self.stats.tombstones += 1;
            self.map.remove(id);
            return Ok(());
        };
        let bad_value = |fault| (Fault::Corrupt(Reason::Value { offset, fault }), Some(id));
        match Value::parse(value).map_err(bad_value)? {
            Value::Known(fields) => {
                let view = fields.transaction().map_err(bad_value)?;
                self.stats.odd_values += u64::from(!fields.warnings.is_empty());
                let stored_bytes =
                    header_share.saturating_add(u32::try_from(record.size).unwrap_or(u32::MAX));
                self.map.insert(id, offset, &view, value, stored_bytes);
            }
            Value::Unknown { version } => self.note_unknown(offset, UnknownKind::Value(version)),
        }
        Ok(())
    }

    fn note_unknown(&mut self, offset: Offset, kind: UnknownKind) {
        self.stats.unknown_records += 1;
        if self.stats.unknown.len() < PartitionStats::UNKNOWN_KEPT_MAX {
            self.stats.unknown.push(UnknownRecord { offset, kind });
        }
    }

    /// The id of the first record of a batch whose CRC is wrong, as far as it can be read: a hint for people.
    fn first_id(&mut self, frame: &BatchFrame<'_>) -> Option<Vec<u8>> {
        let batch = frame.without_crc_check();
        let record = batch.records(&mut self.decompressor, &self.context.limits).ok()?.next()?.ok()?;
        match Key::parse(record.key?).ok()? {
            Key::TransactionalId(id) => Some(id.to_vec()),
            Key::Unknown { .. } => None,
        }
    }

    /// Whether the rest of the log, from the problem on, is what an append left behind that never finished.
    fn is_forgivable_tail(
        &self,
        reader: &SegmentReader,
        index: usize,
        problem: &Problem,
    ) -> Result<bool, Error> {
        let recovery = self.snapshot.recovery;
        let is_candidate = matches!(&problem.fault, Fault::Corrupt(Reason::Frame(_) | Reason::Crc(_)))
            && !recovery.clean_shutdown
            && index + 1 == self.snapshot.segments.len()
            && recovery.recovery_point.is_none_or(|point| self.expected >= point);
        if !is_candidate || is_whole_but_for_magic(reader, problem.position)? {
            return Ok(false);
        }
        let survivor = find_survivor(reader.file(), problem.position + 1, reader.len())
            .map_err(Error::io("read", reader.path()))?;
        Ok(survivor == Survivor::None)
    }

    fn refusal(&self, reader: &SegmentReader, index: usize, problem: Problem) -> Error {
        let Problem { fault, offset, position, transactional_id, .. } = problem;
        let path = reader.path().to_path_buf();
        match fault {
            Fault::Unsupported(reason) => Error::Unsupported { path, offset, position, reason },
            Fault::Corrupt(reason) => {
                let broker = self.broker_view(reader, index, position, &reason);
                Error::Corrupt(Box::new(Corruption {
                    path,
                    offset,
                    position,
                    reason,
                    transactional_id,
                    broker,
                }))
            }
        }
    }

    /// What a broker's own start would do about a bad place (LogLoader.recoverLog, LogSegment.recover).
    fn broker_view(
        &self,
        reader: &SegmentReader,
        index: usize,
        position: u64,
        reason: &Reason,
    ) -> BrokerView {
        let recovery = self.snapshot.recovery;
        let later = &self.snapshot.segments[index + 1..];
        let point = recovery.recovery_point.unwrap_or(Offset(0));
        // Recovery begins with the segment that holds the recovery point.
        if recovery.clean_shutdown || later.first().is_some_and(|next| next.base_offset <= point) {
            return BrokerView::Serves;
        }
        let is_seen = match reason {
            Reason::Crc(_) => true,
            // A negative magic is taken for a legacy message, whose CRC is another; a large one for magic 2.
            Reason::Frame(FrameFault::Magic { magic: ..0 }) => true,
            Reason::Frame(FrameFault::Field { .. } | FrameFault::Magic { .. }) => {
                !is_whole_but_for_magic(reader, position).unwrap_or(false)
            }
            Reason::Frame(_) => true,
            _ => false,
        };
        if !is_seen {
            return BrokerView::Overlooks;
        }
        BrokerView::Cuts {
            bytes: reader.len() - position,
            later_segments: later.len(),
            later_bytes: later.iter().map(|segment| segment.len).sum(),
        }
    }

    /// Moves a lenient walk behind a problem.
    fn skip(&mut self, reader: &mut SegmentReader, problem: &Problem) -> Result<(), Error> {
        let path = reader.path().to_path_buf();
        let behind = match problem.size.map(|size| problem.position + size) {
            // A batch is skipped by its length if that leads to a batch or to the end; else the length may lie.
            Some(end) if end == reader.len() || leads_to_batch(reader, end)? => {
                self.stats.skipped.batches += 1;
                end
            }
            _ => match find_survivor(reader.file(), problem.position + 1, reader.len())
                .map_err(Error::io("read", &path))?
            {
                Survivor::At(position) => position,
                Survivor::None | Survivor::Undecided => reader.len(),
            },
        };
        self.stats.skipped.bytes += behind - problem.position;
        self.meter.add(behind - problem.position, 0, self.map.len());
        self.note_place(&path, problem.offset, problem.position, problem.fault.to_string());
        reader.skip_to(behind);
        Ok(())
    }

    fn note_skipped(&mut self, path: &Path, problem: &Problem) {
        self.note_place(path, problem.offset, problem.position, problem.fault.to_string());
    }

    fn note_place(&mut self, path: &Path, offset: Offset, position: u64, reason: String) {
        if self.stats.skipped.places.len() < Skipped::PLACES_MAX {
            let path = path.to_path_buf();
            self.stats.skipped.places.push(SkippedPlace { path, offset, position, reason });
        }
    }

    fn finish(mut self, started: Instant) -> Result<(PartitionMap, PartitionStats), Error> {
        let end = self.expected;
        let start = self.snapshot.log_start_checkpoint.filter(|start| *start > end && !self.context.lenient);
        if let (Some(start), Some(last)) = (start, self.snapshot.segments.last()) {
            return Err(Error::Corrupt(Box::new(Corruption {
                path: last.path.clone(),
                offset: end,
                position: last.len,
                reason: Reason::EndsBelowStart { end, start },
                transactional_id: None,
                broker: BrokerView::DropsLog,
            })));
        }
        self.stats.log_end_offset = end;
        self.stats.by_state = self.map.state_counts();
        self.stats.live_bytes = self.map.live_bytes();
        self.stats.elapsed = started.elapsed();
        Ok((self.map, self.stats))
    }
}

fn check_offset(record: &Record<'_>, expected: Offset, last: Offset) -> Result<(), Reason> {
    if record.offset < expected {
        Err(Reason::OffsetGoesBack { expected, found: record.offset })
    } else if record.offset > last {
        Err(Reason::OffsetTooLarge { found: record.offset, last })
    } else {
        Ok(())
    }
}

/// Whether the CRC of magic 2 is right for the bytes at a position, whatever the magic byte and the base offset say:
/// both lie outside it, so such a batch is damaged in place and was not torn.
fn is_whole_but_for_magic(reader: &SegmentReader, position: u64) -> Result<bool, Error> {
    let io = |source| Error::Io { operation: "read", path: reader.path().to_path_buf(), source };
    let mut prefix = [0; 21];
    if read_full_at(reader.file(), position, &mut prefix).map_err(io)? < prefix.len() {
        return Ok(false);
    }
    let length = i32::from_be_bytes([prefix[8], prefix[9], prefix[10], prefix[11]]);
    let stored = u32::from_be_bytes([prefix[17], prefix[18], prefix[19], prefix[20]]);
    let size = LOG_OVERHEAD as u64 + length.max(0) as u64;
    if size < HEADER_LEN as u64 || size > reader.len() - position {
        return Ok(false);
    }
    Ok(crc_of_range(reader.file(), position + prefix.len() as u64, position + size).map_err(io)? == stored)
}

/// Whether a whole batch with a right CRC begins exactly at a position.
fn leads_to_batch(reader: &SegmentReader, position: u64) -> Result<bool, Error> {
    if position >= reader.len() {
        return Ok(false);
    }
    is_whole_but_for_magic(reader, position)
}
