//! A run of batches of one segment → the records that may be the newest of their ids.

use std::collections::BTreeMap;
use std::path::Path;

use super::damage::Fault;
use super::report::{PartitionStats, Skipped, SkippedPlace, UnknownKind, UnknownRecord};
use super::usual::{Usual, usual};
use crate::batch::{Batch, BatchFrame, Compression, Decompressor, FramePrefix, HEADER_LEN, Limits, Record};
use crate::error::Reason;
use crate::machine::cpu::{Cpu, CpuKind, Work};
use crate::machine::prefetch::prefetch_ahead;
use crate::map::{Candidate, HASHED_SHORT, IdBytes, IdHasher, IdShape, Mark, Newest, Side, SideRecord};
use crate::transaction_log::{Key, Value, decode_utf8};
use crate::types::Offset;

/// How far ahead of a walk over bytes they are asked for.
const AHEAD: usize = 2048;
/// Bytes of ids beside the log after which a scan is applied before it goes on.
const EXTRA_BYTES_MAX: usize = 4 << 20;

/// What every scan of a load goes by.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    pub(super) lenient: bool,
    pub(super) limits: Limits,
    pub(super) cpu: CpuKind,
}

/// The segment that a scan goes through.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ground<'a> {
    pub(super) path: &'a Path,
    pub(super) base_offset: Offset,
    /// Address of its first byte.
    pub(super) address: u64,
    /// Its bytes.
    pub(super) len: u64,
    /// Offsets below this one do not count.
    pub(super) log_start: Offset,
}

/// How the offsets of a log went so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Course {
    /// Base offset of the first batch.
    pub(super) first: Option<Offset>,
    /// The smallest offset that may come next.
    pub(super) expected: Offset,
    /// What `expected` was before the last batch: where that batch's offset is a lie, this is the last truth.
    pub(super) expected_before: Offset,
    /// The offset behind the last batch, from which gaps are measured.
    pub(super) end: Option<Offset>,
}

impl Course {
    pub(super) fn from(expected: Offset) -> Self {
        Self { first: None, expected, expected_before: Offset(0), end: None }
    }

    /// Goes on as `next`, which was walked by itself; false if that begins below where this ends.
    pub(super) fn join(&mut self, next: &Self, stats: &mut PartitionStats) -> bool {
        let Some(first) = next.first else { return true };
        if first < self.expected {
            return false;
        }
        count_gap(self.end, first, stats);
        *self = Self { first: self.first.or(next.first), ..*next };
        true
    }
}

fn count_gap(end: Option<Offset>, next: Offset, stats: &mut PartitionStats) {
    if let Some(end) = end.filter(|end| next > *end) {
        stats.gaps += 1;
        stats.gap_offsets += next.0.abs_diff(end.0);
    }
}

/// Why a scan stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// The next batch begins at the border or behind it.
    Border,
    /// The next batch is not whole in the bytes that were given, of which the segment has more.
    NeedsBytes,
    /// What was found is to be applied before the scan goes on.
    Full,
    /// The next batch cannot be used.
    Problem,
}

/// A batch that cannot be used, and the id of the record in question.
pub(super) type BatchFault = (Fault, Option<Vec<u8>>);

/// A record that cannot be used, and its id as far as it was read.
type RecordFault<'r> = (Fault, Option<&'r [u8]>);

/// What came of a run of batches.
#[derive(Debug)]
pub(super) struct Scan<'a> {
    pub(super) rules: &'a Rules,
    pub(super) hasher: &'a IdHasher,
    /// Whether this goes on from all that came before, which what is put up with depends on.
    is_walk: bool,
    pub(super) candidates: Vec<Candidate>,
    extra: Vec<u8>,
    side: Vec<(u64, Vec<SideRecord>)>,
    pub(super) stats: PartitionStats,
    pub(super) course: Course,
    decompressor: Decompressor,
}

impl<'a> Scan<'a> {
    pub(super) fn new(rules: &'a Rules, hasher: &'a IdHasher) -> Self {
        Self {
            rules,
            hasher,
            is_walk: false,
            candidates: Vec::new(),
            extra: Vec::new(),
            side: Vec::new(),
            stats: PartitionStats::default(),
            course: Course::from(Offset(0)),
            decompressor: Decompressor::new(),
        }
    }

    /// One for a walk from the beginning, where an offset is expected.
    pub(super) fn of_walk(rules: &'a Rules, hasher: &'a IdHasher, expected: Offset) -> Self {
        Self { course: Course::from(expected), is_walk: true, ..Self::new(rules, hasher) }
    }

    /// Forgets what was found, keeps the memory for it, and counts on.
    pub(super) fn clear_found(&mut self) {
        self.candidates.clear();
        self.extra.clear();
        self.side.clear();
    }

    /// Forgets what was found and counted, keeps the memory for it.
    pub(super) fn clear(&mut self) {
        self.clear_found();
        self.stats = PartitionStats::default();
    }

    /// Whether what was found should be applied before more comes.
    pub(super) fn is_full(&self) -> bool {
        self.extra.len() >= EXTRA_BYTES_MAX
    }

    /// The bytes that the ids of the candidates lie in.
    pub(super) fn ids<'b>(&'b self, window: &'b [u8]) -> IdBytes<'b> {
        IdBytes { window, extra: &self.extra }
    }

    /// Hands over the side entries, which must be there before their candidates are applied.
    pub(super) fn settle_side(&mut self, side: &Side) {
        for (batch, records) in self.side.drain(..) {
            side.add(batch, records);
        }
    }

    /// Walks `window`, whose first byte is at byte `window_at` of the segment, from `from` until a batch begins at or
    /// behind `until`. Returns where it stopped, and why.
    pub(super) fn run(
        &mut self,
        ground: &Ground<'_>,
        window: &[u8],
        window_at: u64,
        from: usize,
        until: usize,
    ) -> (usize, Stop) {
        // A batch takes at least its header.
        self.candidates.reserve((until - from) / HEADER_LEN + 1);
        let cpu = self.rules.cpu;
        cpu.run(Walking { scan: self, ground, window, window_at, at: from, until })
    }

    #[cold]
    #[inline(never)]
    fn unusual(&mut self, ground: &Ground<'_>, rest: &[u8], position: u64) -> Result<usize, Stop> {
        let left = ground.len - position;
        if (rest.len() as u64) < left.min(HEADER_LEN as u64) {
            return Err(Stop::NeedsBytes);
        }
        let prefix = FramePrefix::parse(rest, left).map_err(|_| Stop::Problem)?;
        if prefix.magic != 2 {
            return Err(Stop::Problem);
        }
        let size = prefix.size as usize;
        let bytes = rest.get(..size).ok_or(Stop::NeedsBytes)?;
        let frame = BatchFrame::new(bytes).map_err(|_| Stop::Problem)?;
        self.batch(&frame, ground, position).map_err(|_| Stop::Problem)?;
        Ok(size)
    }

    /// One batch with a sane header: its checks, then its records.
    pub(super) fn batch(
        &mut self,
        frame: &BatchFrame<'_>,
        ground: &Ground<'_>,
        position: u64,
    ) -> Result<(), BatchFault> {
        let plain = |reason: Reason| (Fault::Corrupt(reason), None);
        // The CRC first: offsets lie outside it, but in a batch that was torn nothing can be trusted.
        let batch = match frame.verify() {
            Ok(batch) => batch,
            Err(mismatch) => return Err((mismatch.into(), self.first_id(frame))),
        };
        let (base, last) = (frame.base_offset(), frame.last_offset());
        if base < self.course.expected {
            let reason = Reason::OffsetGoesBack { expected: self.course.expected, found: base };
            if !self.is_walk || !self.rules.lenient || !self.distrust_last_offset(base) {
                return Err(plain(reason));
            }
            self.note_place(ground.path, base, position, reason.to_string());
        }
        let largest = Offset(ground.base_offset.0.saturating_add(i64::from(i32::MAX)));
        if last > largest {
            return Err(plain(Reason::OffsetTooLarge { found: last, last: largest }));
        }

        let before = (self.course, self.stats.gaps, self.stats.gap_offsets);
        self.stats.batches += 1;
        count_gap(self.course.end, base, &mut self.stats);
        self.course.first.get_or_insert(base);
        self.course.expected_before = self.course.expected;
        self.course.expected = last.next();
        self.course.end = Some(self.course.expected);
        if last < ground.log_start {
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
        let found = (self.candidates.len(), self.extra.len());
        let applied = self.records(&batch, ground, position);
        if applied.is_err() {
            // The batch is refused or skipped whole: its offsets may come again.
            self.candidates.truncate(found.0);
            self.extra.truncate(found.1);
            (self.course, self.stats.gaps, self.stats.gap_offsets) = before;
            self.stats.batches -= 1;
        }
        applied
    }

    fn records(&mut self, batch: &Batch<'_>, ground: &Ground<'_>, position: u64) -> Result<(), BatchFault> {
        let frame = *batch.frame();
        // Taken out while records borrow from it.
        let mut decompressor = std::mem::take(&mut self.decompressor);
        let first = self.candidates.len();
        let result = (|| {
            let records = batch.records(&mut decompressor, &self.rules.limits).map_err(|fault| {
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
            let address = ground.address + position;
            for record in records {
                let record = record.map_err(|fault| (fault.into(), None))?;
                check_offset(&record, frame.base_offset(), frame.last_offset())
                    .map_err(|reason| (reason.into(), None))?;
                self.stats.records += 1;
                match self.record(&record) {
                    Ok(None) => {}
                    // Until the batch is done, the address is the number of the record.
                    Ok(Some((id, mark))) => {
                        let newest = Newest::new((self.stats.records - 1) & NUMBER_MASK, mark);
                        self.push(id, newest)?;
                    }
                    Err((fault, id)) => {
                        let id = id.map(<[u8]>::to_vec);
                        if !self.rules.lenient {
                            return Err((fault, id));
                        }
                        self.stats.skipped.records += 1;
                        self.note_place(ground.path, record.offset, position, fault.to_string());
                    }
                }
            }
            let records_before =
                (self.stats.records - u64::from(frame.records_count().unsigned_abs())) & NUMBER_MASK;
            let is_alone = frame.records_count() == 1 && frame.compression() == Ok(Compression::None);
            self.give_addresses(first, address, records_before, is_alone, frame.size())
        })();
        self.decompressor = decompressor;
        result
    }

    /// Takes the numbers of a batch's records for their addresses. Of several records with one id the last counts.
    fn give_addresses(
        &mut self,
        first: usize,
        address: u64,
        number_before: u64,
        is_alone: bool,
        size: usize,
    ) -> Result<(), BatchFault> {
        if is_alone {
            for candidate in &mut self.candidates[first..] {
                candidate.newest = Newest::new(address, candidate.newest.mark());
            }
            return Ok(());
        }
        let ids = IdBytes { window: &[], extra: &self.extra };
        let mut last: BTreeMap<&[u8], usize> = BTreeMap::new();
        for (number, candidate) in self.candidates.iter().enumerate().skip(first) {
            last.insert(ids.id(candidate), number);
        }
        let mut last: Vec<usize> = last.into_values().collect();
        last.sort_unstable();
        if last.len() > size {
            let reason = format!(
                "{} ids in a batch of {size} bytes, more than places in it can be numbered by",
                last.len()
            );
            return Err((Fault::Unsupported(reason), None));
        }
        let mut records = Vec::with_capacity(last.len());
        for (rank, &number) in last.iter().enumerate() {
            let candidate = self.candidates[number];
            let ordinal = candidate.newest.address().wrapping_sub(number_before) & NUMBER_MASK;
            records.push(SideRecord {
                ordinal: ordinal as u32,
                mark: candidate.newest.mark(),
                id: ids.id(&candidate).into(),
            });
            let newest = Newest::new(address + rank as u64, Mark::Side);
            self.candidates[first + rank] = Candidate { newest, ..candidate };
        }
        self.candidates.truncate(first + last.len());
        if !records.is_empty() {
            self.side.push((address, records));
        }
        Ok(())
    }

    /// The id of a record, and what became of it; `None` for one of an unknown version.
    fn record<'r>(&mut self, record: &Record<'r>) -> Result<Option<(&'r [u8], Mark)>, RecordFault<'r>> {
        let offset = record.offset;
        let key = record.key.ok_or((Reason::NullKey(offset).into(), None))?;
        let id = match Key::parse(key) {
            Ok(Key::TransactionalId(id)) => id,
            Ok(Key::Unknown { version }) => {
                self.note_unknown(offset, UnknownKind::Key(version));
                return Ok(None);
            }
            Err(fault) => return Err((Reason::Key { offset, fault }.into(), None)),
        };
        let Some(value) = record.value else {
            self.stats.tombstones += 1;
            return Ok(Some((id, Mark::Tombstone)));
        };
        let bad_value = |fault| (Fault::Corrupt(Reason::Value { offset, fault }), Some(id));
        match Value::parse(value).map_err(bad_value)? {
            Value::Known(fields) => {
                let view = fields.transaction().map_err(bad_value)?;
                self.stats.odd_values += u64::from(!fields.warnings.is_empty());
                Ok(Some((id, Mark::State(view.state()))))
            }
            Value::Unknown { version } => {
                self.note_unknown(offset, UnknownKind::Value(version));
                Ok(None)
            }
        }
    }

    /// Adds a candidate whose id is copied, as Kafka reads it.
    fn push(&mut self, id: &[u8], newest: Newest) -> Result<(), BatchFault> {
        let text = decode_utf8(id);
        let id_at = u32::try_from(self.extra.len()).map_err(|_| {
            (Fault::Unsupported("more than 4 GiB of transactional ids in one batch".to_owned()), None)
        })?;
        self.extra.extend_from_slice(text.as_bytes());
        let id = IdShape::new(text.len(), true);
        let hash = self.hasher.hash(text.as_bytes());
        self.candidates.push(Candidate { hash, newest, id_at, id });
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
        let record = batch.records(&mut self.decompressor, &self.rules.limits).ok()?.next()?.ok()?;
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

    /// Where a lenient walk meets an offset that goes back: whether it could follow what came before the last batch.
    /// Then that batch's own offset must be the wrong one (it lies outside the CRC), and what follows is as it was.
    pub(super) fn distrust_last_offset(&mut self, found: Offset) -> bool {
        let is_plausible = found >= self.course.expected_before;
        if is_plausible {
            self.course.expected = found;
            self.course.end = Some(found);
        }
        is_plausible
    }
}

/// A walk over batches, in the form for a CPU. See [`Scan::run`].
struct Walking<'w, 'a, 'g> {
    scan: &'w mut Scan<'a>,
    ground: &'w Ground<'g>,
    window: &'w [u8],
    window_at: u64,
    /// Where the next batch begins in the window.
    at: usize,
    until: usize,
}

impl Work for Walking<'_, '_, '_> {
    type Output = (usize, Stop);

    #[inline(always)]
    fn run<C: Cpu>(mut self, cpu: C) -> Self::Output {
        let stop =
            if self.scan.hasher.is_identity() { self.walk::<true>(cpu) } else { self.walk::<false>(cpu) };
        (self.at, stop)
    }
}

impl Walking<'_, '_, '_> {
    #[inline(always)]
    fn walk<const IDENTITY: bool>(&mut self, cpu: impl Cpu) -> Stop {
        loop {
            // From where a gap before the next batch is measured is known behind the first.
            if self.scan.course.end == Some(self.scan.course.expected) {
                self.streak::<IDENTITY>(cpu);
            }
            if self.at >= self.until {
                return Stop::Border;
            }
            let position = self.window_at + self.at as u64;
            match self.scan.unusual(self.ground, &self.window[self.at..], position) {
                Ok(size) => self.at += size,
                Err(stop) => return stop,
            }
            if self.scan.is_full() {
                return Stop::Full;
            }
        }
    }

    /// Walks as long as batches are usual.
    #[inline(always)]
    fn streak<const IDENTITY: bool>(&mut self, cpu: impl Cpu) {
        let Self { ground, window, window_at, until, .. } = *self;
        let scan = &mut *self.scan;
        // All that changes from batch to batch is kept in registers.
        let mut at = self.at;
        let Course { mut expected_before, expected: Offset(mut expected), .. } = scan.course;
        let (mut batches, mut tombstones, mut gaps, mut gap_offsets) = (0, 0, 0, 0);
        let largest = ground.base_offset.0.saturating_add(i64::from(i32::MAX));
        let address = ground.address + window_at;
        while at < until {
            let rest = &window[at..];
            // Where the next batch begins stands in bytes that are waited for, so the processor cannot look ahead by
            // itself.
            prefetch_ahead(rest, AHEAD);
            let Some(Usual { size, base_offset, id_at, id_len, mark }) = usual(rest, cpu) else { break };
            let least = expected.max(ground.log_start.0);
            if base_offset < least || base_offset > largest || id_len > HASHED_SHORT {
                break;
            }
            let (hash, is_ascii) = scan.hasher.short::<IDENTITY>(cpu, &rest[id_at..], id_len);
            if !is_ascii {
                break;
            }
            batches += 1;
            tombstones += u64::from(mark == Mark::Tombstone);
            gaps += u64::from(base_offset != expected);
            gap_offsets += base_offset.abs_diff(expected);
            (expected_before, expected) = (Offset(expected), base_offset.saturating_add(1));
            scan.candidates.push(Candidate {
                hash,
                newest: Newest::new(address + at as u64, mark),
                id_at: (at + id_at) as u32,
                id: IdShape::new(id_len, false),
            });
            at += size;
        }
        let expected = Offset(expected);
        scan.course = Course { expected_before, expected, end: Some(expected), ..scan.course };
        scan.stats.batches += batches;
        scan.stats.records += batches;
        scan.stats.tombstones += tombstones;
        scan.stats.gaps += gaps;
        scan.stats.gap_offsets += gap_offsets;
        self.at = at;
    }
}

/// Bits in which records are numbered until their batch is done.
const NUMBER_MASK: u64 = (1 << 33) - 1;

fn check_offset(record: &Record<'_>, expected: Offset, last: Offset) -> Result<(), Reason> {
    if record.offset < expected {
        Err(Reason::OffsetGoesBack { expected, found: record.offset })
    } else if record.offset > last {
        Err(Reason::OffsetTooLarge { found: record.offset, last })
    } else {
        Ok(())
    }
}
