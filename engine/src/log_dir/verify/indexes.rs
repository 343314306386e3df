//! The entries of one segment's offset and time index, held against the batches as a walk comes by them.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::finding::FindingKind;
use super::report::{Findings, Place};
use crate::io::{Storage, read_small};
use crate::segment::index::{OffsetIndexEntry, TimeIndexEntry};
use crate::types::Offset;

/// Largest index that is looked at, bytes; Kafka's have 10 MiB unless it is told otherwise.
const INDEX_BYTES_MAX: usize = 256 << 20;

/// A batch as far as an index has to do with it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Indexed {
    pub(super) position: u64,
    /// For a compressed message of magic 0 or 1 that of its last record, which is all that is known.
    pub(super) base_offset: Offset,
    pub(super) last_offset: Offset,
    pub(super) max_timestamp: i64,
}

/// What is read from an index file: its entries, and how many bytes of zeros follow.
#[derive(Debug)]
struct Content<E> {
    path: PathBuf,
    /// The entries to be held against the log, by where the walk meets them, each with its byte position in the file.
    entries: Vec<(E, u64)>,
    met: usize,
    count: u64,
    padding: u64,
}

/// Whether a file is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    Missing,
    There,
}

/// Both indexes of a segment.
#[derive(Debug)]
pub(super) struct Indexes {
    offset: Option<Content<OffsetIndexEntry>>,
    time: Option<Content<TimeIndexEntry>>,
    /// Entries whose position is that of an earlier batch than the one that they name.
    early: Vec<(OffsetIndexEntry, u64, Offset)>,
    largest_timestamp: i64,
    first_batch: Option<Indexed>,
    /// Whether something could not be read since the batch before.
    has_passed_over: bool,
    base_offset: Offset,
    is_repaired_at_start: bool,
}

impl Indexes {
    /// Reads both files and looks at each entry by itself and beside the one before it. `is_repaired_at_start`: a
    /// broker makes the indexes of this segment anew.
    pub(super) fn read(
        storage: &dyn Storage,
        (offset_path, time_path): (&Path, &Path),
        base_offset: Offset,
        is_repaired_at_start: bool,
        findings: &mut Findings,
    ) -> (Self, [Presence; 2]) {
        let mut read = |path: &Path| match read_small(storage, path, INDEX_BYTES_MAX) {
            Ok(bytes) => (Some(bytes), Presence::There),
            Err(e) if e.kind() == ErrorKind::NotFound => (None, Presence::Missing),
            Err(e) => {
                findings.push(Place::file(path), FindingKind::Unreadable(e.to_string()));
                (None, Presence::There)
            }
        };
        let (offset, has_offset) = read(offset_path);
        let (time, has_time) = read(time_path);
        let offset = offset
            .map(|bytes| offset_entries(offset_path, &bytes, base_offset, is_repaired_at_start, findings));
        let time =
            time.map(|bytes| time_entries(time_path, &bytes, base_offset, is_repaired_at_start, findings));
        let indexes = Self {
            offset,
            time,
            early: Vec::new(),
            largest_timestamp: -1,
            first_batch: None,
            has_passed_over: false,
            base_offset,
            is_repaired_at_start,
        };
        (indexes, [has_offset, has_time])
    }

    /// How many entries the files have.
    pub(super) fn entries(&self) -> (u64, u64) {
        (
            self.offset.as_ref().map_or(0, |index| index.count),
            self.time.as_ref().map_or(0, |index| index.count),
        )
    }

    /// Holds the entries against a batch that the walk meets. Batches come by rising position; `is_above` says that this
    /// one lies above all before it by its offsets as well, without which no time can be found by it.
    pub(super) fn see(&mut self, batch: &Indexed, is_above: bool, findings: &mut Findings) {
        self.first_batch.get_or_insert(*batch);
        self.see_offset(batch, findings);
        if is_above {
            self.see_time(batch, findings);
        }
    }

    fn see_offset(&mut self, batch: &Indexed, findings: &mut Findings) {
        let Some(index) = &mut self.offset else { return };
        let path = &index.path;
        let place = |at: u64, offset| Place::at(path, at, offset).repaired_if(self.is_repaired_at_start);
        while let Some(&(entry, at)) = index.entries.get(index.met) {
            // Positions below 0 are not among them.
            let position = u64::try_from(entry.position).unwrap_or(0);
            if position > batch.position {
                break;
            }
            index.met += 1;
            if position < batch.position {
                findings
                    .push(place(at, entry.offset), FindingKind::IndexEntryFalse { position, found: None });
            } else if entry.offset > batch.last_offset {
                self.early.push((entry, at, batch.last_offset));
            } else if entry.offset < batch.last_offset {
                let found = Some(batch.last_offset);
                findings.push(place(at, entry.offset), FindingKind::IndexEntryFalse { position, found });
            }
        }
        self.early.retain(|&(entry, at, found)| {
            let position = u64::try_from(entry.position).unwrap_or(0);
            if entry.offset > batch.last_offset {
                return true;
            }
            let kind = if entry.offset == batch.last_offset {
                FindingKind::IndexEntryEarly { position, found }
            } else {
                FindingKind::IndexEntryFalse { position, found: Some(found) }
            };
            findings.push(place(at, entry.offset), kind);
            false
        });
    }

    fn see_time(&mut self, batch: &Indexed, findings: &mut Findings) {
        let is_largest = batch.max_timestamp > self.largest_timestamp;
        self.largest_timestamp = self.largest_timestamp.max(batch.max_timestamp);
        let Some(index) = &mut self.time else { return };
        while let Some(&(entry, at)) = index.entries.get(index.met) {
            if entry.offset > batch.last_offset {
                break;
            }
            index.met += 1;
            let place = Place::at(&index.path, at, entry.offset).repaired_if(self.is_repaired_at_start);
            let timestamp = entry.timestamp;
            if entry.offset < batch.base_offset {
                // Its batch may be one that could not be read.
                if !self.has_passed_over {
                    findings.push(place, FindingKind::TimeEntryFalse { timestamp, found: None });
                }
            } else if !is_largest || timestamp != batch.max_timestamp {
                let found = Some(self.largest_timestamp);
                findings.push(place, FindingKind::TimeEntryFalse { timestamp, found });
            } else if entry.offset < batch.last_offset {
                findings.push(place, FindingKind::TimeEntryInside { last: batch.last_offset });
            }
        }
        self.has_passed_over = false;
    }

    /// Says that the bytes up to here could not be read: what points into them cannot be judged.
    pub(super) fn pass_over(&mut self, to: u64) {
        self.has_passed_over = true;
        if let Some(index) = &mut self.offset {
            let ahead = &index.entries[index.met..];
            index.met += ahead.partition_point(|(entry, _)| u64::try_from(entry.position).unwrap_or(0) < to);
        }
    }

    /// Says what is left once the walk has ended at this byte position and offset. `is_preallocated`: the zeros behind
    /// the entries are what is to be expected here.
    pub(super) fn finish(
        mut self,
        data_end: u64,
        end: Offset,
        is_preallocated: bool,
        findings: &mut Findings,
    ) {
        let repaired = self.is_repaired_at_start;
        let beyond = FindingKind::IndexBeyondLog { data_end, end };
        if let Some(index) = &self.offset {
            let early = self.early.iter().map(|&(entry, at, _)| (entry, at, None));
            let ahead = index.entries[index.met..].iter().map(|&(entry, at)| {
                let position = u64::try_from(entry.position).unwrap_or(0);
                (entry, at, (position < data_end).then_some(position))
            });
            for (entry, at, inside) in ahead.chain(early) {
                let kind = match inside {
                    Some(position) => FindingKind::IndexEntryFalse { position, found: None },
                    None => beyond.clone(),
                };
                findings.push(Place::at(&index.path, at, entry.offset).repaired_if(repaired), kind);
            }
        }
        if let Some(index) = &mut self.time {
            for &(entry, at) in &index.entries[index.met..] {
                findings.push(Place::at(&index.path, at, entry.offset).repaired_if(repaired), beyond.clone());
            }
            // One entry of zeros alone is true of a first record at the base offset whose timestamp is 0.
            let is_epoch = self
                .first_batch
                .is_some_and(|first| first.last_offset == self.base_offset && first.max_timestamp == 0);
            if index.count == 0 && is_epoch {
                index.padding = index.padding.saturating_sub(TimeIndexEntry::BYTES as u64);
            }
        }
        let paddings = [
            self.offset.as_ref().map(|index| (&index.path, index.padding)),
            self.time.as_ref().map(|index| (&index.path, index.padding)),
        ];
        for (path, bytes) in paddings.into_iter().flatten().filter(|(_, bytes)| *bytes > 0) {
            let kind = match is_preallocated {
                true => FindingKind::Preallocated { bytes },
                false => FindingKind::Padding { bytes },
            };
            findings.push(Place::file(path).repaired_if(is_preallocated), kind);
        }
    }
}

/// Entries up to the last byte that is not zero, and how many bytes of zeros follow; a size that holds no whole number of
/// entries is said.
fn split<'a, const N: usize>(
    path: &Path,
    bytes: &'a [u8],
    repaired: bool,
    findings: &mut Findings,
) -> (&'a [[u8; N]], u64) {
    let (entries, rest) = bytes.as_chunks::<N>();
    if !rest.is_empty() {
        let kind = FindingKind::IndexSize { bytes: bytes.len() as u64, entry_bytes: N as u64 };
        findings.push(Place::file(path).repaired_if(repaired), kind);
    }
    let used =
        entries.iter().rposition(|entry| entry.iter().any(|&byte| byte != 0)).map_or(0, |last| last + 1);
    (&entries[..used], ((entries.len() - used) * N) as u64)
}

fn offset_entries(
    path: &Path,
    bytes: &[u8],
    base_offset: Offset,
    repaired: bool,
    findings: &mut Findings,
) -> Content<OffsetIndexEntry> {
    let (chunks, padding) = split::<{ OffsetIndexEntry::BYTES }>(path, bytes, repaired, findings);
    let mut entries = Vec::with_capacity(chunks.len());
    let mut previous: Option<OffsetIndexEntry> = None;
    for (number, chunk) in chunks.iter().enumerate() {
        let [r0, r1, r2, r3, p0, p1, p2, p3] = *chunk;
        let relative = i32::from_be_bytes([r0, r1, r2, r3]);
        let entry = OffsetIndexEntry {
            offset: Offset(base_offset.0.saturating_add(i64::from(relative))),
            position: i32::from_be_bytes([p0, p1, p2, p3]),
        };
        let at = (number * OffsetIndexEntry::BYTES) as u64;
        let place = Place::at(path, at, entry.offset).repaired_if(repaired);
        if previous.is_some_and(|last| entry.offset <= last.offset || entry.position <= last.position) {
            findings.push(place, FindingKind::IndexOrder);
        }
        if relative < 0 || entry.position < 0 {
            findings.push(place, FindingKind::IndexBelowSegment);
        } else {
            entries.push((entry, at));
        }
        previous = Some(entry);
    }
    // As the walk meets them, whatever their order in the file.
    entries.sort_by_key(|(entry, _)| (entry.position, entry.offset));
    Content { path: path.to_path_buf(), entries, met: 0, count: chunks.len() as u64, padding }
}

fn time_entries(
    path: &Path,
    bytes: &[u8],
    base_offset: Offset,
    repaired: bool,
    findings: &mut Findings,
) -> Content<TimeIndexEntry> {
    let (chunks, padding) = split::<{ TimeIndexEntry::BYTES }>(path, bytes, repaired, findings);
    let mut entries = Vec::with_capacity(chunks.len());
    let mut previous: Option<TimeIndexEntry> = None;
    for (number, chunk) in chunks.iter().enumerate() {
        let [t0, t1, t2, t3, t4, t5, t6, t7, r0, r1, r2, r3] = *chunk;
        let relative = i32::from_be_bytes([r0, r1, r2, r3]);
        let entry = TimeIndexEntry {
            timestamp: i64::from_be_bytes([t0, t1, t2, t3, t4, t5, t6, t7]),
            offset: Offset(base_offset.0.saturating_add(i64::from(relative))),
        };
        let at = (number * TimeIndexEntry::BYTES) as u64;
        let place = Place::at(path, at, entry.offset).repaired_if(repaired);
        if previous.is_some_and(|last| entry.timestamp <= last.timestamp || entry.offset < last.offset) {
            findings.push(place, FindingKind::IndexOrder);
        }
        if relative < 0 {
            findings.push(place, FindingKind::IndexBelowSegment);
        } else {
            entries.push((entry, at));
        }
        previous = Some(entry);
    }
    entries.sort_by_key(|(entry, _)| (entry.offset, entry.timestamp));
    Content { path: path.to_path_buf(), entries, met: 0, count: chunks.len() as u64, padding }
}
