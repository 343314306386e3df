//! The slow way through a partition: batch by batch, by one thread, with everything that can be said about damage.
//!
//! A load comes here with its first problem, and stays. What is to be made of damage is in `damage`.

use super::budget::Charge;
use super::bytes::Mappings;
use super::damage::{Fault, Inspection};
use super::observer::Meter;
use super::partition::{Context, ground};
use super::report::{IoUsed, PartitionStats};
use super::scan::{Course, Scan};
use crate::error::{Error, Reason};
use crate::log::{Addresses, LogSnapshot};
use crate::map::{Extent, Index, Side, With};
use crate::segment::{Access, Frame, FrameAt, Next, SegmentReader};
use crate::types::Offset;

/// Records that are found before they are applied.
const CANDIDATES_MAX: usize = 1024;

/// A load of one partition under way.
pub(super) struct Walk<'a> {
    pub(super) snapshot: &'a LogSnapshot,
    pub(super) context: &'a Context<'a>,
    pub(super) addresses: &'a Addresses,
    pub(super) mappings: &'a Mappings<'a>,
    pub(super) charge: &'a Charge<'a>,
    pub(super) index: Index,
    pub(super) side: Side,
    /// Also what was counted so far.
    pub(super) scan: Scan<'a>,
    pub(super) extent: Extent,
    pub(super) log_start: Offset,
    pub(super) meter: Meter<'a>,
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

impl Walk<'_> {
    /// Takes over what the fast way did in the next segment, whose base offset is not below what may follow.
    pub(super) fn join(&mut self, base_offset: Offset, course: &Course, stats: &PartitionStats) {
        self.scan.course.expected = base_offset;
        // Offsets rise here too: a fast scan takes no batch below the base offset of its segment.
        let is_joined = self.scan.course.join(course, &mut self.scan.stats);
        debug_assert!(is_joined, "a batch below the base offset of its segment");
        self.scan.stats.add(stats);
    }

    /// Walks a segment from a byte position on, where a batch begins.
    pub(super) fn segment(&mut self, index: usize, from: u64) -> Result<(), Error> {
        let segment = &self.snapshot.segments[index];
        let ground = ground(self.snapshot, self.addresses, index, self.log_start);
        let access = if self.context.io == IoUsed::Mmap {
            // Keys of this segment may be compared with later.
            self.mappings.open(index)?;
            Access::Mapped
        } else {
            Access::Positioned { buffer_bytes: self.context.chunk_bytes }
        };
        let mut reader = SegmentReader::open(
            self.context.storage,
            &segment.path,
            segment.base_offset,
            segment.len,
            access,
        )?;
        // Further on in the segment its batches have been looked at.
        if from == 0 && segment.base_offset < self.scan.course.expected {
            let reason =
                Reason::OffsetGoesBack { expected: self.scan.course.expected, found: segment.base_offset };
            let problem = Problem {
                fault: reason.into(),
                offset: segment.base_offset,
                position: 0,
                size: None,
                transactional_id: None,
            };
            if !self.context.rules.lenient {
                return Err(self.refusal(&reader, index, problem));
            }
            self.scan.note_place(&segment.path, problem.offset, 0, problem.fault.to_string());
            self.scan.distrust_last_offset(segment.base_offset);
        }
        self.scan.course.expected = self.scan.course.expected.max(segment.base_offset);
        reader.skip_to(from);
        let mut inspection = Inspection::new(segment.len);
        loop {
            if self.context.is_stopped() {
                return Err(Error::Cancelled);
            }
            if self.scan.candidates.len() >= CANDIDATES_MAX || self.scan.is_full() {
                self.apply()?;
            }
            let position = reader.position();
            let problem = match reader.next()? {
                Next::End => break,
                Next::Frame(FrameAt { frame: Frame::Batch(frame), position, size }) => {
                    let records = self.scan.stats.records;
                    match self.scan.batch(&frame, &ground, position) {
                        Ok(()) => {
                            self.meter.add(size, self.scan.stats.records - records);
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
                    offset: self.scan.course.expected,
                    position,
                    size: None,
                    transactional_id: None,
                },
            };
            if let Some(tail) = self.forgivable_tail(&mut inspection, &reader, index, &problem)? {
                self.scan.stats.tail = Some(tail);
                break;
            }
            if !self.context.rules.lenient {
                return Err(self.refusal(&reader, index, problem));
            }
            self.skip(&mut inspection, &mut reader, &problem)?;
        }
        self.scan.stats.bytes += reader.position();
        reader.check_not_shrunk()
    }

    /// Applies what was found.
    pub(super) fn apply(&mut self) -> Result<(), Error> {
        self.scan.settle_side(&self.side);
        let mut done = 0;
        loop {
            let (cpu, ids) = (self.context.rules.cpu, self.scan.ids(&[]));
            let with = With { cpu, ids, keys: self.mappings, side: &self.side, extent: &mut self.extent };
            let applied = self.index.apply_alone(&self.scan.candidates[done..], with);
            done += applied.map_err(|source| self.charge.refused_by_system(self.index.len(), &source))?;
            if done == self.scan.candidates.len() {
                break;
            }
            self.charge.grow(&mut self.index, 0)?;
        }
        self.scan.clear_found();
        self.charge.set(&self.index, &self.side)
    }
}
