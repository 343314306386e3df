//! What is to be made of a damaged place: forgiven, refused with what a broker would do, or skipped.

use super::report::Tail;
use super::walk::{Problem, Walk};
use crate::batch::{FrameFault, HEADER_LEN, LOG_OVERHEAD};
use crate::error::{BrokerView, Corruption, Error, Reason};
use crate::io::read_full_at;
use crate::log::RecoveryPoint;
use crate::segment::{SegmentReader, Survivor, crc_of_range, find_survivor, search_budget};

/// Why a batch or record cannot be used.
pub(super) enum Fault {
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

/// Looks at the bytes of one segment aside from the walk, within a budget of bytes that keeps the cost of any amount of
/// damage a multiple of the segment's size.
pub(super) struct Inspection {
    budget: u64,
    /// The last search: where it began, and its answer.
    found: Option<(u64, Survivor)>,
}

impl Inspection {
    pub(super) fn new(len: u64) -> Self {
        Self { budget: search_budget(len), found: None }
    }

    /// Takes bytes off the budget; false if there are not enough left.
    fn spend(&mut self, bytes: u64) -> bool {
        let left = self.budget.checked_sub(bytes);
        self.budget = left.unwrap_or(0);
        left.is_some()
    }

    /// The first whole batch behind a position. Asked again for a position before its answer, costs nothing.
    fn survivor(
        &mut self,
        reader: &SegmentReader,
        from: u64,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Survivor, Error> {
        match self.found {
            Some((begun, Survivor::At(at))) if begun <= from && from <= at => return Ok(Survivor::At(at)),
            Some((begun, Survivor::None)) if begun <= from => return Ok(Survivor::None),
            _ => {}
        }
        let survivor = find_survivor(reader.file(), from, reader.len(), &mut self.budget, is_stopped)
            .map_err(Error::io("read", reader.path()))?;
        self.found = Some((from, survivor));
        Ok(survivor)
    }

    /// The bytes at a position as a batch of magic 2, whatever its magic byte and base offset say: both lie outside the
    /// CRC, so a batch whose CRC is right was damaged in place and not torn. `None` if the CRC is not right, or the
    /// budget does not suffice to tell.
    fn whole_but_for_magic(&mut self, reader: &SegmentReader, position: u64) -> Result<Option<Whole>, Error> {
        let io = |source| Error::Io { operation: "read", path: reader.path().to_path_buf(), source };
        let mut prefix = [0; 27];
        let read = read_full_at(reader.file(), position, &mut prefix).map_err(io)?;
        let Some(left) = reader.len().checked_sub(position).filter(|_| read == prefix.len()) else {
            return Ok(None);
        };
        let [
            b0,
            b1,
            b2,
            b3,
            b4,
            b5,
            b6,
            b7,
            l0,
            l1,
            l2,
            l3,
            _,
            _,
            _,
            _,
            _,
            c0,
            c1,
            c2,
            c3,
            _,
            _,
            d0,
            d1,
            d2,
            d3,
        ] = prefix;
        let size = LOG_OVERHEAD as u64 + i32::from_be_bytes([l0, l1, l2, l3]).max(0) as u64;
        if size < HEADER_LEN as u64 || size > left || !self.spend(size) {
            return Ok(None);
        }
        let crc_start = position + crate::batch::CRC_START as u64;
        let computed = crc_of_range(reader.file(), crc_start, position + size).map_err(io)?;
        let base = i64::from_be_bytes([b0, b1, b2, b3, b4, b5, b6, b7]);
        let delta = i32::from_be_bytes([d0, d1, d2, d3]);
        Ok((computed == u32::from_be_bytes([c0, c1, c2, c3]))
            .then_some(Whole { last_offset: base.wrapping_add(i64::from(delta)) }))
    }
}

/// A batch whose CRC is right.
struct Whole {
    last_offset: i64,
}

impl Walk<'_> {
    /// The tail, if the log from the problem on is what an append left behind that never finished.
    pub(super) fn forgivable_tail(
        &self,
        inspection: &mut Inspection,
        reader: &SegmentReader,
        index: usize,
        problem: &Problem,
    ) -> Result<Option<Tail>, Error> {
        let Fault::Corrupt(reason @ (Reason::Frame(_) | Reason::Crc(_))) = &problem.fault else {
            return Ok(None);
        };
        let recovery = self.snapshot.recovery;
        let is_above_recovery_point = match recovery.recovery_point {
            RecoveryPoint::Absent => true,
            RecoveryPoint::At(point) => self.scan.course.expected >= point,
            // That it holds cannot be shown.
            RecoveryPoint::Unreadable => false,
        };
        if recovery.clean_shutdown || index + 1 != self.snapshot.segments.len() || !is_above_recovery_point {
            return Ok(None);
        }
        let whole = inspection.whole_but_for_magic(reader, problem.position)?;
        // Without a budget nothing was shown, and what is not shown is not forgiven.
        if whole.is_some() || inspection.budget == 0 {
            return Ok(None);
        }
        let is_stopped = || self.context.is_stopped();
        let survivor = inspection.survivor(reader, problem.position + 1, &is_stopped)?;
        Ok((survivor == Survivor::None).then(|| Tail {
            path: reader.path().to_path_buf(),
            position: problem.position,
            bytes: reader.len() - problem.position,
            offset: self.scan.course.expected,
            reason: reason.clone(),
        }))
    }

    pub(super) fn refusal(&self, reader: &SegmentReader, index: usize, problem: Problem) -> Error {
        let Problem { fault, offset, position, transactional_id, .. } = problem;
        let path = reader.path().to_path_buf();
        match fault {
            Fault::Unsupported(reason) => Error::Unsupported { path, offset, position, reason },
            Fault::Corrupt(reason) => {
                let broker =
                    self.broker_view(reader, index, position, &reason).unwrap_or(BrokerView::Unknown);
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
    ) -> Result<BrokerView, Error> {
        let recovery = self.snapshot.recovery;
        let segment = &self.snapshot.segments[index];
        let later = &self.snapshot.segments[index + 1..];
        let point = recovery.recovery_point.as_broker();
        // Recovery of the log begins with the segment that holds the recovery point. A segment without index is
        // recovered by itself in any case, and what follows it stays.
        let is_log_recovered =
            !recovery.clean_shutdown && later.first().is_none_or(|next| next.base_offset > point);
        if !is_log_recovered && segment.has_index {
            // The end of a log that was closed cleanly is looked for by walking its last segment.
            let is_walked = recovery.clean_shutdown && later.is_empty();
            return Ok(match reason {
                Reason::Frame(FrameFault::Length { .. }) if is_walked => BrokerView::RefusesToLoad,
                _ => BrokerView::Serves,
            });
        }
        let whole = Inspection::new(reader.len()).whole_but_for_magic(reader, position)?;
        let is_cut = match reason {
            // A magic below 2 is taken for a legacy message, whose CRC is another; one above for 2.
            Reason::Crc(_) | Reason::Frame(FrameFault::Magic { magic: ..0 }) => true,
            Reason::Frame(_) => whole.is_none(),
            _ => false,
        };
        if is_cut {
            let later = if is_log_recovered { later } else { &[] };
            return Ok(BrokerView::Cuts {
                bytes: reader.len() - position,
                later_segments: later.len(),
                later_bytes: later.iter().map(|segment| segment.len).sum(),
            });
        }
        let relative = whole.map(|whole| whole.last_offset.saturating_sub(segment.base_offset.0));
        Ok(match relative {
            Some(..0) => BrokerView::RefusesToLoad,
            Some(relative) if relative > i64::from(i32::MAX) => BrokerView::Splits,
            _ => BrokerView::Overlooks,
        })
    }

    /// Moves a lenient walk behind a problem.
    pub(super) fn skip(
        &mut self,
        inspection: &mut Inspection,
        reader: &mut SegmentReader,
        problem: &Problem,
    ) -> Result<(), Error> {
        let len = reader.len();
        // The batch was looked at once for its CRC: that counts too, or batches that claim the rest of the file would
        // each cost as much.
        let has_budget = inspection.spend(problem.size.unwrap_or(0));
        let end = problem.size.map(|size| problem.position + size);
        let behind = match end {
            _ if !has_budget => len,
            // A batch is skipped by its length if that leads to a batch or to the end; else the length may lie.
            Some(end) if end == len || inspection.whole_but_for_magic(reader, end)?.is_some() => {
                self.scan.stats.skipped.batches += 1;
                end
            }
            _ => {
                let is_stopped = || self.context.is_stopped();
                match inspection.survivor(reader, problem.position + 1, &is_stopped)? {
                    Survivor::At(position) => position,
                    Survivor::None | Survivor::Undecided => len,
                }
            }
        };
        self.scan.stats.skipped.bytes += behind - problem.position;
        self.meter.add(behind - problem.position, 0);
        self.scan.note_place(reader.path(), problem.offset, problem.position, problem.fault.to_string());
        reader.skip_to(behind);
        Ok(())
    }
}
