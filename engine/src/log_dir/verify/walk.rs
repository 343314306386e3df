//! The walk over a partition's segments: every batch by itself, beside the one before it, and against everything that
//! names it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::finding::FindingKind;
use super::indexes::{Indexed, Indexes};
use super::report::{Findings, Place, VerifyCounts};
use super::snapshots::Snapshots;
use crate::batch::legacy::{LegacyFault, LegacyMessage};
use crate::batch::{
    BatchFrame, CRC_START, CompressionFault, ControlRecord, CrcMismatch, Decompressor, FrameFault,
    HEADER_LEN, LOG_OVERHEAD, Limits, RecordsFault,
};
use crate::error::{Error, Reason};
use crate::io::{Storage, read_full_at};
use crate::log::LeaderEpochFileCache;
use crate::segment::{
    Access, Frame, Next, SegmentReader, Survivor, crc_of_range, find_survivor, search_budget,
};
use crate::types::Offset;

/// Bytes that are read at once. Files are never mapped: a running broker may shorten them.
const BUFFER_BYTES: usize = 1 << 20;

/// Most that a segment may hold, bytes.
const SEGMENT_BYTES_MAX: u64 = i32::MAX as u64;

/// What a walk shares with the other threads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shared<'a> {
    pub(super) storage: &'a dyn Storage,
    pub(super) cancel: &'a AtomicBool,
    pub(super) bytes: &'a AtomicU64,
}

impl Shared<'_> {
    fn is_cancelled(&self) -> bool {
        self.cancel.load(Ordering::Relaxed)
    }
}

/// One segment and what is to be expected of it.
#[derive(Debug)]
pub(super) struct SegmentFacts {
    pub(super) path: PathBuf,
    pub(super) base_offset: Offset,
    pub(super) is_last: bool,
    /// A broker looks at every batch of it at its start, cuts what is torn, and makes the indexes anew.
    pub(super) is_recovered_at_start: bool,
    /// The broker that wrote it was stopped cleanly.
    pub(super) is_clean: bool,
    /// What lies below was brought to the device, and no crash can have torn it.
    pub(super) flushed_below: Offset,
}

/// The walk over the segments of one partition.
#[derive(Debug)]
pub(super) struct LogWalk<'a> {
    shared: Shared<'a>,
    is_held: bool,
    /// Below it batches need not be covered by the leader epochs.
    log_start: Offset,
    /// `None` if there is no checkpoint that can be read.
    epochs: Option<LeaderEpochFileCache>,
    snapshots: Snapshots<'a>,
    decompressor: Decompressor,
    pub(super) counts: VerifyCounts,
    expected: Offset,
    /// Behind the largest offset so far.
    end: Offset,
    latest_epoch: i32,
    /// The last pair of epochs that did not agree, so that a run of batches is told of once.
    last_mismatch: Option<(i32, Option<i32>)>,
}

/// A place where the walk cannot go on batch by batch.
#[derive(Debug)]
struct Bad {
    position: u64,
    reason: BadReason,
    /// Bytes of the batch, where its length can be trusted.
    size: Option<u64>,
}

#[derive(Debug)]
enum BadReason {
    Frame(FrameFault),
    Crc(CrcMismatch),
}

impl<'a> LogWalk<'a> {
    pub(super) fn new(
        shared: Shared<'a>,
        is_held: bool,
        log_start: Offset,
        epochs: Option<LeaderEpochFileCache>,
        snapshots: Snapshots<'a>,
        first_base: Offset,
    ) -> Self {
        Self {
            shared,
            is_held,
            log_start,
            epochs,
            snapshots,
            decompressor: Decompressor::new(),
            counts: VerifyCounts::default(),
            expected: Offset(0),
            end: first_base,
            latest_epoch: -1,
            last_mismatch: None,
        }
    }

    /// Looks at what is left once all segments were walked; the offset behind the last batch, and what was counted.
    pub(super) fn finish(mut self, findings: &mut Findings) -> (Offset, VerifyCounts) {
        self.snapshots.finish(self.end, &mut self.counts, findings);
        (self.end, self.counts)
    }

    /// Walks a segment.
    ///
    /// # Errors
    /// [`Error::Cancelled`] only.
    pub(super) fn segment(
        &mut self,
        segment: &SegmentFacts,
        mut indexes: Indexes,
        findings: &mut Findings,
    ) -> Result<(), Error> {
        let path = &segment.path;
        self.counts.segments += 1;
        self.end = self.end.max(segment.base_offset);
        if self.expected > segment.base_offset {
            // Told at the first batch that goes back; an empty segment may lie anywhere.
            self.snapshots.lose_track();
        }
        let mut reader = match self.open(path, segment.base_offset) {
            Ok(reader) if reader.len() > SEGMENT_BYTES_MAX => {
                findings.push(Place::file(path), FindingKind::SegmentTooLarge { bytes: reader.len() });
                return Ok(());
            }
            Ok(reader) => reader,
            Err(error) => {
                self.failed(path, &error, findings);
                return Ok(());
            }
        };
        let len = reader.len();
        self.counts.bytes += len;
        let mut budget = search_budget(len);
        // Behind the largest offset in this segment.
        let mut highest = segment.base_offset;
        let data_end = loop {
            if self.shared.is_cancelled() {
                return Err(Error::Cancelled);
            }
            let position = reader.position();
            let bad = match reader.next() {
                Ok(Next::End) => break position,
                Ok(Next::Frame(at)) => {
                    let checked = match &at.frame {
                        Frame::Batch(frame) => self.batch(segment, frame, position, findings),
                        Frame::Legacy(message) => self.legacy(segment, message, position, findings),
                    };
                    match checked {
                        Ok(batch) => {
                            self.shared.bytes.fetch_add(at.size, Ordering::Relaxed);
                            self.expected = batch.last_offset.next();
                            self.end = self.end.max(self.expected);
                            let is_above = batch.base_offset >= highest || batch.position == 0;
                            indexes.see(&batch, is_above, findings);
                            highest = highest.max(self.expected);
                            continue;
                        }
                        Err(mismatch) => {
                            Bad { position, reason: BadReason::Crc(mismatch), size: Some(at.size) }
                        }
                    }
                }
                Ok(Next::Bad(fault)) => Bad { position, reason: BadReason::Frame(fault), size: None },
                Err(error) => {
                    self.failed(path, &error, findings);
                    break position;
                }
            };
            match self.bad(segment, &reader, bad, &mut budget, findings) {
                Ok(Some(next)) => {
                    reader.skip_to(next);
                    indexes.pass_over(reader.position());
                }
                Ok(None) => break position,
                Err(error) => {
                    self.failed(path, &error, findings);
                    break position;
                }
            }
            self.shared.bytes.fetch_add(reader.position() - position, Ordering::Relaxed);
            self.snapshots.lose_track();
        };
        if data_end < len {
            self.shared.bytes.fetch_add(len - data_end, Ordering::Relaxed);
            self.snapshots.lose_track();
        }
        let is_preallocated = segment.is_recovered_at_start || segment.is_last && !segment.is_clean;
        indexes.finish(data_end, highest, is_preallocated, findings);
        Ok(())
    }

    fn open(&self, path: &Path, base_offset: Offset) -> Result<SegmentReader, Error> {
        // Its length now and not that of the listing: what was read before may name batches that came in between.
        let file = self.shared.storage.open(path).map_err(Error::io("open", path))?;
        let len = file.size().map_err(Error::io("look at the length of", path))?;
        let access = Access::Positioned { buffer_bytes: BUFFER_BYTES };
        SegmentReader::open(self.shared.storage, path, base_offset, len, access)
    }

    /// A file that cannot be read to its end.
    fn failed(&mut self, path: &Path, error: &Error, findings: &mut Findings) {
        self.snapshots.lose_track();
        findings.push(Place::file(path), kind_of(error, self.is_held));
    }

    /// Says what is wrong at a bad place; where to go on, `None` at the end of what can be read.
    fn bad(
        &self,
        segment: &SegmentFacts,
        reader: &SegmentReader,
        bad: Bad,
        budget: &mut u64,
        findings: &mut Findings,
    ) -> Result<Option<u64>, Error> {
        let Bad { position, reason, mut size } = bad;
        let (path, len) = (reader.path(), reader.len());
        let is_stopped = || self.shared.is_cancelled();
        let offset = self.expected.max(segment.base_offset);
        let mut may_be_tail =
            segment.is_last && segment.is_recovered_at_start && offset >= segment.flushed_below;
        if let BadReason::Frame(FrameFault::Field { .. } | FrameFault::Magic { .. }) = reason
            && let Some(sealed) = sealed_size(reader, position).map_err(Error::io("read", path))?
        {
            // Written as it stands: no broker cuts it.
            size = Some(sealed);
            may_be_tail = false;
        }
        let survivor = if size.is_none() || may_be_tail {
            find_survivor(reader.file(), position + 1, len, budget, &is_stopped)
                .map_err(Error::io("read", path))?
        } else {
            Survivor::Undecided
        };
        let place = Place::at(path, position, offset);
        let bytes = len - position;
        if survivor == Survivor::None && may_be_tail {
            let reason = match reason {
                BadReason::Frame(fault) => fault.to_string(),
                BadReason::Crc(mismatch) => mismatch.to_string(),
            };
            findings.push(place.repaired_if(true), FindingKind::TornTail { bytes, reason });
            return Ok(None);
        }
        let next = match (size, survivor) {
            (Some(size), _) => Some(position + size),
            (None, Survivor::At(next)) => Some(next),
            (None, _) => None,
        };
        let kind = match reason {
            BadReason::Crc(mismatch) => FindingKind::Crc(mismatch),
            BadReason::Frame(fault) if next.is_none() && segment.is_last && segment.is_clean => {
                FindingKind::LongerThanData { bytes, fault }
            }
            BadReason::Frame(fault) => FindingKind::Frame(fault),
        };
        findings.push(place, kind);
        Ok(next)
    }

    /// Offsets of a batch against those before it and against its segment.
    fn offsets(&mut self, segment: &SegmentFacts, batch: &Indexed, findings: &mut Findings) {
        let place = Place::at(&segment.path, batch.position, batch.base_offset);
        let (base, found) = (segment.base_offset, batch.base_offset);
        if found < self.expected {
            findings.push(place, FindingKind::OffsetGoesBack { expected: self.expected, found });
            self.snapshots.lose_track();
        }
        if found < base {
            findings.push(place, FindingKind::BelowBase { base, found });
        }
        let found = batch.last_offset;
        if found.0.checked_sub(base.0).is_none_or(|distance| distance > i64::from(i32::MAX)) {
            findings.push(place, FindingKind::OutOfReach { base, found });
        }
    }

    /// A batch of magic 2.
    fn batch(
        &mut self,
        segment: &SegmentFacts,
        frame: &BatchFrame<'_>,
        position: u64,
        findings: &mut Findings,
    ) -> Result<Indexed, CrcMismatch> {
        frame.verify()?;
        let batch = Indexed {
            position,
            base_offset: frame.base_offset(),
            last_offset: frame.last_offset(),
            max_timestamp: frame.max_timestamp(),
        };
        self.counts.batches += 1;
        self.offsets(segment, &batch, findings);
        let place = Place::at(&segment.path, position, batch.base_offset);
        self.leader_epoch(frame, place, findings);
        check_header(frame, place, findings);
        self.counts.records += check_records(frame, place, &mut self.decompressor, findings);
        self.snapshots.see(frame, &segment.path, position, &mut self.counts, findings);
        Ok(batch)
    }

    /// A message of magic 0 or 1.
    fn legacy(
        &mut self,
        segment: &SegmentFacts,
        message: &LegacyMessage<'_>,
        position: u64,
        findings: &mut Findings,
    ) -> Result<Indexed, CrcMismatch> {
        message.verify()?;
        self.counts.batches += 1;
        let last_offset = message.offset();
        let place = Place::at(&segment.path, position, last_offset);
        let mut base_offset = last_offset;
        match message.records(&mut self.decompressor, &Limits::default()) {
            Ok(records) => {
                self.counts.records += records.len() as u64;
                base_offset = records.first().map_or(last_offset, |record| record.offset);
                let mut expected = base_offset;
                for record in &records {
                    let found = record.offset;
                    if found < expected {
                        findings.push(place, FindingKind::OffsetGoesBack { expected, found });
                    }
                    if found > last_offset {
                        findings.push(place, FindingKind::RecordBeyondBatch { last: last_offset, found });
                    }
                    if !record.is_valid {
                        findings.push(
                            place,
                            FindingKind::Records(format!("CRC of the record at offset {found}")),
                        );
                    }
                    expected = found.next();
                }
            }
            Err(fault @ LegacyFault::Compression(CompressionFault::Unsupported(_))) => {
                findings.push(place, FindingKind::NotChecked(fault.to_string()));
            }
            Err(fault) => findings.push(place, FindingKind::Records(fault.to_string())),
        }
        let batch = Indexed { position, base_offset, last_offset, max_timestamp: message.timestamp() };
        self.offsets(segment, &batch, findings);
        self.snapshots.pass(base_offset, last_offset, &mut self.counts, findings);
        Ok(batch)
    }

    fn leader_epoch(&mut self, frame: &BatchFrame<'_>, place: Place<'_>, findings: &mut Findings) {
        let found = frame.partition_leader_epoch();
        if found < 0 {
            return;
        }
        if found < self.latest_epoch {
            findings.push(place, FindingKind::EpochGoesBack { last: self.latest_epoch, found });
        }
        self.latest_epoch = found;
        let Some(epochs) = &self.epochs else { return };
        if frame.base_offset() < self.log_start {
            return;
        }
        let checkpoint = epochs.epoch_for_offset(frame.base_offset());
        if checkpoint == Some(found) {
            self.last_mismatch = None;
        } else if self.last_mismatch.replace((found, checkpoint)) != Some((found, checkpoint)) {
            findings.push(place, FindingKind::EpochMismatch { batch: found, checkpoint });
        }
    }
}

/// What an error of the reader is as a finding.
pub(super) fn kind_of(error: &Error, is_held: bool) -> FindingKind {
    match error {
        Error::Io { source, .. } if is_held && source.kind() == std::io::ErrorKind::NotFound => {
            FindingKind::Changed(source.to_string())
        }
        Error::Io { source, .. } => FindingKind::Unreadable(source.to_string()),
        Error::Corrupt(corruption) => match &corruption.reason {
            reason @ Reason::Shrunk { .. } if is_held => FindingKind::Changed(reason.to_string()),
            &Reason::SegmentTooLarge(bytes) => FindingKind::SegmentTooLarge { bytes },
            reason => FindingKind::Unreadable(reason.to_string()),
        },
        other => FindingKind::Unreadable(other.to_string()),
    }
}

/// Bytes of what begins here, if that is whole and has a right checksum at the place where magic 2 has it.
fn sealed_size(reader: &SegmentReader, position: u64) -> std::io::Result<Option<u64>> {
    let mut header = [0; HEADER_LEN];
    if read_full_at(reader.file(), position, &mut header)? < HEADER_LEN {
        return Ok(None);
    }
    let [.., l0, l1, l2, l3] = header[..LOG_OVERHEAD] else { return Ok(None) };
    let size = LOG_OVERHEAD as i64 + i64::from(i32::from_be_bytes([l0, l1, l2, l3]));
    let Ok(size) = u64::try_from(size) else { return Ok(None) };
    if size < HEADER_LEN as u64 || size > reader.len() - position {
        return Ok(None);
    }
    let [.., c0, c1, c2, c3] = header[..CRC_START] else { return Ok(None) };
    let computed = crc_of_range(reader.file(), position + CRC_START as u64, position + size)?;
    Ok((u32::from_be_bytes([c0, c1, c2, c3]) == computed).then_some(size))
}

/// Fields that go together, beyond their own ranges.
fn check_header(frame: &BatchFrame<'_>, place: Place<'_>, findings: &mut Findings) {
    let mut wrong = |field, value| findings.push(place, FindingKind::HeaderField { field, value });
    let has_producer = frame.producer_id().is_some();
    if has_producer && frame.producer_epoch() < 0 {
        wrong("producerEpoch", frame.producer_epoch().into());
    }
    if frame.is_transactional() && !has_producer {
        wrong("producerId", frame.producer_id().0);
    }
    if frame.is_control() && frame.base_sequence() != -1 {
        wrong("baseSequence", frame.base_sequence().into());
    }
}

/// Reads every record; how many there are.
fn check_records(
    frame: &BatchFrame<'_>,
    place: Place<'_>,
    decompressor: &mut Decompressor,
    findings: &mut Findings,
) -> u64 {
    let payload = frame.size() - HEADER_LEN;
    if frame.records_count() == 0 {
        if payload > 0 {
            findings.push(place, FindingKind::PayloadOfNoRecords { bytes: payload as u64 });
        }
        return 0;
    }
    // The checksum was looked at before.
    let records = match frame.without_crc_check().records(decompressor, &Limits::default()) {
        Ok(records) => records,
        Err(RecordsFault::Compression(fault @ CompressionFault::Unsupported(_))) => {
            findings.push(place, FindingKind::NotChecked(fault.to_string()));
            return 0;
        }
        Err(fault) => {
            findings.push(place, FindingKind::Records(fault.to_string()));
            return 0;
        }
    };
    let last = frame.last_offset();
    let (mut expected, mut max_timestamp, mut count) = (frame.base_offset(), -1, 0);
    for record in records {
        let record = match record {
            Ok(record) => record,
            Err(fault) => {
                findings.push(place, FindingKind::Record(fault));
                return count;
            }
        };
        let at = Place { offset: Some(record.offset), ..place };
        if record.offset < expected {
            findings.push(at, FindingKind::OffsetGoesBack { expected, found: record.offset });
        }
        if record.offset > last {
            findings.push(at, FindingKind::RecordBeyondBatch { last, found: record.offset });
        }
        if frame.is_control()
            && let Err(fault) = ControlRecord::parse(&record)
        {
            findings.push(at, FindingKind::Control(fault));
        }
        expected = record.offset.next();
        max_timestamp = max_timestamp.max(record.timestamp);
        count += 1;
    }
    let header = frame.max_timestamp();
    if header != max_timestamp {
        findings.push(place, FindingKind::MaxTimestamp { header, records: max_timestamp });
    }
    count
}
