//! The indexes of a segment in memory, as they are used: appended to by the segment's one writer, looked up by any
//! number of readers meanwhile (Kafka's OffsetIndex and TimeIndex, which lie in mapped files).

use std::sync::atomic::{AtomicI32, AtomicI64, AtomicU64, AtomicUsize, Ordering};

use super::{OffsetIndexEntry, OffsetOutOfIndex, TimeIndexEntry, absolute, relative};
use crate::segment::published::{Published, Slot};
use crate::types::Offset;

/// Why an index does not take an entry. It is as before then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IndexRefusal {
    /// There is no room (IllegalArgumentException).
    #[error("the index is full with {entries} entries")]
    Full {
        /// Entries it has.
        entries: usize,
    },
    /// The offset is not above that of the last entry, or below it in a time index (InvalidOffsetException).
    #[error("offset {offset} does not follow {last}, the one before it in the index")]
    OffsetBack {
        /// Offset of the last entry.
        last: Offset,
        /// The offset.
        offset: Offset,
    },
    /// The timestamp is below that of the last entry (IllegalStateException).
    #[error("timestamp {timestamp} is below {last}, the one before it in the index")]
    TimestampBack {
        /// Timestamp of the last entry.
        last: i64,
        /// The timestamp.
        timestamp: i64,
    },
    /// The offset is too far from the base of the segment.
    #[error(transparent)]
    Range(#[from] OffsetOutOfIndex),
}

#[derive(Debug, Default)]
struct OffsetSlot(AtomicU64);

impl Slot for OffsetSlot {
    /// Relative offset and position.
    type Value = (i32, i32);

    fn store(&self, (relative, position): (i32, i32)) {
        let packed = u64::from(relative.cast_unsigned()) << 32 | u64::from(position.cast_unsigned());
        self.0.store(packed, Ordering::Relaxed);
    }

    fn load(&self) -> (i32, i32) {
        let packed = self.0.load(Ordering::Relaxed);
        ((packed >> 32) as u32 as i32, packed as u32 as i32)
    }
}

/// The offset index of a segment: last offset of a batch → where it begins. 8 bytes per entry.
#[derive(Debug)]
pub struct LiveOffsetIndex {
    base_offset: Offset,
    capacity: AtomicUsize,
    entries: Published<OffsetSlot>,
}

impl LiveOffsetIndex {
    /// An empty index with room for `⌊bytes / 8⌋` entries. Takes memory as entries come.
    pub fn new(base_offset: Offset, bytes: usize) -> Self {
        let capacity = AtomicUsize::new(bytes / OffsetIndexEntry::BYTES);
        Self { base_offset, capacity, entries: Published::default() }
    }

    /// Base offset of the segment.
    pub fn base_offset(&self) -> Offset {
        self.base_offset
    }

    /// Entries that fit.
    pub fn capacity(&self) -> usize {
        self.capacity.load(Ordering::Relaxed)
    }

    /// Gives room for `⌊bytes / 8⌋` entries, or for those it has where that is more.
    pub fn resize(&self, bytes: usize) {
        self.capacity.store((bytes / OffsetIndexEntry::BYTES).max(self.len()), Ordering::Relaxed);
    }

    /// Entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether it has no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether no further entry fits.
    pub fn is_full(&self) -> bool {
        self.len() >= self.capacity()
    }

    fn entry(&self, (relative, position): (i32, i32)) -> OffsetIndexEntry {
        OffsetIndexEntry { offset: absolute(relative, self.base_offset), position }
    }

    /// The entry with this number, from 0.
    pub fn get(&self, index: usize) -> Option<OffsetIndexEntry> {
        self.entries.get(index).map(|entry| self.entry(entry))
    }

    /// The entries, by rising offset.
    pub fn entries(&self) -> impl Iterator<Item = OffsetIndexEntry> {
        self.entries.iter().map(|entry| self.entry(entry))
    }

    /// Offset of the last entry, or the base offset.
    pub fn last_offset(&self) -> Offset {
        self.entries.last().map_or(self.base_offset, |entry| self.entry(entry).offset)
    }

    /// Appends an entry. To be called by one thread at a time.
    ///
    /// # Errors
    /// [`IndexRefusal`]
    pub fn append(&self, entry: OffsetIndexEntry) -> Result<(), IndexRefusal> {
        if self.is_full() {
            return Err(IndexRefusal::Full { entries: self.len() });
        }
        let last = self.last_offset();
        if !self.is_empty() && entry.offset <= last {
            return Err(IndexRefusal::OffsetBack { last, offset: entry.offset });
        }
        self.entries.push((relative(entry.offset, self.base_offset)?, entry.position));
        Ok(())
    }

    /// The entry with the largest offset that is not above `target`, or (base offset, 0). Cost: a binary search.
    pub fn lookup(&self, target: Offset) -> OffsetIndexEntry {
        let above = self.entries.partition_point(|entry| self.entry(entry).offset <= target);
        let found = above.checked_sub(1).and_then(|index| self.get(index));
        found.unwrap_or(OffsetIndexEntry { offset: self.base_offset, position: 0 })
    }

    /// Offset of the first entry that lies `size` bytes behind `position` or further; an upper bound of the offsets
    /// in these bytes. `None` if no entry lies so far.
    pub fn upper_bound(&self, position: u64, size: u64) -> Option<Offset> {
        let end = i64::try_from(position.saturating_add(size)).unwrap_or(i64::MAX);
        let index = self.entries.partition_point(|(_, position)| i64::from(position) < end);
        self.get(index).map(|entry| entry.offset)
    }

    /// The same index without the entries at `offset` or above, with room for `⌊bytes / 8⌋`. Whoever reads this one
    /// goes on undisturbed.
    pub fn truncated(&self, offset: Offset, bytes: usize) -> Self {
        let kept = Self::new(self.base_offset, bytes);
        self.entries().take_while(|entry| entry.offset < offset).for_each(|entry| kept.push(entry));
        kept.resize(bytes);
        kept
    }

    /// Takes an entry that is known to follow, whether there is room or not.
    pub(in crate::segment) fn push(&self, entry: OffsetIndexEntry) {
        if let Ok(relative) = relative(entry.offset, self.base_offset) {
            self.entries.push((relative, entry.position));
        }
    }
}

#[derive(Debug, Default)]
struct TimeSlot {
    timestamp: AtomicI64,
    relative: AtomicI32,
}

impl Slot for TimeSlot {
    /// Timestamp and relative offset.
    type Value = (i64, i32);

    fn store(&self, (timestamp, relative): (i64, i32)) {
        self.timestamp.store(timestamp, Ordering::Relaxed);
        self.relative.store(relative, Ordering::Relaxed);
    }

    fn load(&self) -> (i64, i32) {
        (self.timestamp.load(Ordering::Relaxed), self.relative.load(Ordering::Relaxed))
    }
}

/// The time index of a segment: largest timestamp so far → last offset of the first batch that has it. 16 bytes per
/// entry.
#[derive(Debug)]
pub struct LiveTimeIndex {
    base_offset: Offset,
    capacity: AtomicUsize,
    entries: Published<TimeSlot>,
}

impl LiveTimeIndex {
    /// An empty index with room for `⌊bytes / 12⌋` entries. Takes memory as entries come.
    pub fn new(base_offset: Offset, bytes: usize) -> Self {
        let capacity = AtomicUsize::new(bytes / TimeIndexEntry::BYTES);
        Self { base_offset, capacity, entries: Published::default() }
    }

    /// Base offset of the segment.
    pub fn base_offset(&self) -> Offset {
        self.base_offset
    }

    /// Entries that fit, among them the closing one.
    pub fn capacity(&self) -> usize {
        self.capacity.load(Ordering::Relaxed)
    }

    /// Gives room for `⌊bytes / 12⌋` entries, or for those it has where that is more.
    pub fn resize(&self, bytes: usize) {
        self.capacity.store((bytes / TimeIndexEntry::BYTES).max(self.len()), Ordering::Relaxed);
    }

    /// Entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether it has no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether no further entry fits but the closing one, for which the last place is kept.
    pub fn is_full(&self) -> bool {
        self.len() + 1 >= self.capacity()
    }

    fn entry(&self, (timestamp, relative): (i64, i32)) -> TimeIndexEntry {
        TimeIndexEntry { timestamp, offset: absolute(relative, self.base_offset) }
    }

    /// The entry with this number, from 0.
    pub fn get(&self, index: usize) -> Option<TimeIndexEntry> {
        self.entries.get(index).map(|entry| self.entry(entry))
    }

    /// The entries, by rising timestamp.
    pub fn entries(&self) -> impl Iterator<Item = TimeIndexEntry> {
        self.entries.iter().map(|entry| self.entry(entry))
    }

    /// The last entry, or (−1, base offset).
    pub fn last_entry(&self) -> TimeIndexEntry {
        self.entries.last().map_or(self.none(), |entry| self.entry(entry))
    }

    fn none(&self) -> TimeIndexEntry {
        TimeIndexEntry { timestamp: -1, offset: self.base_offset }
    }

    /// Appends an entry, or does nothing if its timestamp is not above the last one's. To be called by one thread at
    /// a time.
    ///
    /// # Errors
    /// [`IndexRefusal`]
    pub fn append(&self, entry: TimeIndexEntry) -> Result<(), IndexRefusal> {
        if self.is_full() {
            return Err(IndexRefusal::Full { entries: self.len() });
        }
        self.append_anyway(entry)
    }

    /// Appends the entry that closes the index, for which there is always room.
    ///
    /// # Errors
    /// [`IndexRefusal`], but not [`Full`](IndexRefusal::Full)
    pub fn append_closing(&self, entry: TimeIndexEntry) -> Result<(), IndexRefusal> {
        self.append_anyway(entry)
    }

    fn append_anyway(&self, entry: TimeIndexEntry) -> Result<(), IndexRefusal> {
        let last = self.last_entry();
        if !self.is_empty() && entry.offset < last.offset {
            return Err(IndexRefusal::OffsetBack { last: last.offset, offset: entry.offset });
        }
        if !self.is_empty() && entry.timestamp < last.timestamp {
            return Err(IndexRefusal::TimestampBack { last: last.timestamp, timestamp: entry.timestamp });
        }
        if entry.timestamp > last.timestamp {
            self.entries.push((entry.timestamp, relative(entry.offset, self.base_offset)?));
        }
        Ok(())
    }

    /// The entry with the largest timestamp that is not above `timestamp`, or (−1, base offset). Cost: a binary search.
    pub fn lookup(&self, timestamp: i64) -> TimeIndexEntry {
        let above = self.entries.partition_point(|(other, _)| other <= timestamp);
        above.checked_sub(1).and_then(|index| self.get(index)).unwrap_or_else(|| self.none())
    }

    /// The same index without the entries at `offset` or above, with room for `⌊bytes / 12⌋`.
    pub fn truncated(&self, offset: Offset, bytes: usize) -> Self {
        let kept = Self::new(self.base_offset, bytes);
        self.entries().take_while(|entry| entry.offset < offset).for_each(|entry| kept.push(entry));
        kept.resize(bytes);
        kept
    }

    /// Takes an entry that is known to follow, whether there is room or not.
    pub(in crate::segment) fn push(&self, entry: TimeIndexEntry) {
        if let Ok(relative) = relative(entry.offset, self.base_offset) {
            self.entries.push((entry.timestamp, relative));
        }
    }
}
