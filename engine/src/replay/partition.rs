//! One partition, batch by batch.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::PartitionMap;
use super::damage::{Fault, Inspection};
use super::observer::{Cancel, Meter, Totals};
use super::report::{PartitionStats, Skipped, SkippedPlace, UnknownKind, UnknownRecord};
use crate::batch::{Batch, BatchFrame, Decompressor, HEADER_LEN, Limits, Record};
use crate::error::{BrokerView, Corruption, Error, Reason};
use crate::io::Storage;
use crate::log::LogSnapshot;
use crate::segment::{Access, Frame, FrameAt, Next, SegmentReader};
use crate::transaction_log::{Key, Value};
use crate::types::Offset;

/// What all partitions of a load share.
pub(super) struct Context<'a> {
    pub(super) storage: &'a dyn Storage,
    pub(super) access: Access,
    pub(super) lenient: bool,
    pub(super) limits: Limits,
    pub(super) cancel: &'a Cancel,
    /// Set when nobody waits for the result any more.
    pub(super) is_abandoned: &'a AtomicBool,
    pub(super) totals: &'a Totals,
}

impl Context<'_> {
    pub(super) fn is_stopped(&self) -> bool {
        self.cancel.is_cancelled() || self.is_abandoned.load(Ordering::Relaxed)
    }
}

/// Loads one partition, complete or not at all.
pub(super) fn load(
    snapshot: &LogSnapshot,
    context: &Context<'_>,
) -> Result<(PartitionMap, PartitionStats), Error> {
    let started = Instant::now();
    let mut meter = Meter::new(context.totals);
    let mut result = read(snapshot, context, &mut meter, snapshot.log_start_offset());
    if let (Ok((_, stats)), Some(start), Some(last)) =
        (&result, snapshot.log_start_checkpoint, snapshot.segments.last())
        && start > stats.log_end_offset
    {
        let reason = Reason::EndsBelowStart { end: stats.log_end_offset, start };
        let (path, offset, position) = (last.path.clone(), stats.log_end_offset, last.len);
        result = if context.lenient {
            // The checkpoint is what is skipped: read again as if it did not name the partition.
            let first = snapshot.segments[0].base_offset;
            read(snapshot, context, &mut meter, first).map(|(map, mut stats)| {
                let place = SkippedPlace { path, offset, position, reason: reason.to_string() };
                stats.skipped.places.push(place);
                (map, stats)
            })
        } else {
            Err(Error::Corrupt(Box::new(Corruption {
                path,
                offset,
                position,
                reason,
                transactional_id: None,
                broker: BrokerView::DropsLog,
            })))
        };
    }
    meter.finish(snapshot.bytes(), result.as_ref().map_or(0, |(map, _)| map.len()));
    let (map, mut stats) = result?;
    stats.elapsed = started.elapsed();
    Ok((map, stats))
}

/// Reads the log from an offset on.
fn read(
    snapshot: &LogSnapshot,
    context: &Context<'_>,
    meter: &mut Meter<'_>,
    log_start: Offset,
) -> Result<(PartitionMap, PartitionStats), Error> {
    let stats = PartitionStats {
        log_start_offset: log_start,
        segments: snapshot.segments.len(),
        ..PartitionStats::default()
    };
    let mut load = Load {
        snapshot,
        context,
        map: PartitionMap::default(),
        stats,
        expected: snapshot.segments.first().map_or(log_start, |segment| segment.base_offset),
        expected_before: Offset(0),
        batch_end: None,
        decompressor: Decompressor::new(),
        meter,
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
    let Load { map, mut stats, expected, .. } = load;
    stats.log_end_offset = expected;
    stats.by_state = map.state_counts();
    stats.live_bytes = map.live_bytes();
    Ok((map, stats))
}

/// A load of one partition under way. Its second half, what to do about damage, is in `damage`.
pub(super) struct Load<'a, 't> {
    pub(super) snapshot: &'a LogSnapshot,
    pub(super) context: &'a Context<'a>,
    pub(super) map: PartitionMap,
    pub(super) stats: PartitionStats,
    /// The smallest offset that may come next.
    pub(super) expected: Offset,
    /// What `expected` was before the last batch: where that batch's offset is a lie, this is the last truth.
    pub(super) expected_before: Offset,
    /// The offset behind the last batch, from which gaps are measured.
    pub(super) batch_end: Option<Offset>,
    decompressor: Decompressor,
    pub(super) meter: &'a mut Meter<'t>,
}

/// A batch or record that cannot be used, and what is known about it.
pub(super) struct Problem {
    pub(super) fault: Fault,
    /// Offset of the batch, or the one that should come.
    pub(super) offset: Offset,
    pub(super) position: u64,
    /// Bytes of the batch, if its header says so credibly.
    pub(super) size: Option<u64>,
    pub(super) transactional_id: Option<Vec<u8>>,
}

impl Load<'_, '_> {
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
            self.note_place(&segment.path, problem.offset, 0, problem.fault.to_string());
            self.distrust_last_offset(segment.base_offset);
        }
        self.expected = self.expected.max(segment.base_offset);
        let mut inspection = Inspection::new(segment.len);
        loop {
            if self.context.is_stopped() {
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
            if let Some(tail) = self.forgivable_tail(&mut inspection, &reader, index, &problem)? {
                self.stats.tail = Some(tail);
                break;
            }
            if !self.context.lenient {
                return Err(self.refusal(&reader, index, problem));
            }
            self.skip(&mut inspection, &mut reader, &problem)?;
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

    fn records(
        &mut self,
        batch: &Batch<'_>,
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

    pub(super) fn note_place(&mut self, path: &Path, offset: Offset, position: u64, reason: String) {
        if self.stats.skipped.places.len() < Skipped::PLACES_MAX {
            let path = path.to_path_buf();
            self.stats.skipped.places.push(SkippedPlace { path, offset, position, reason });
        }
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
