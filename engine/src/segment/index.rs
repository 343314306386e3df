//! The index files of a segment with base offset B: the offset index `B.index` and the time index `B.timeindex`
//! (Kafka's AbstractIndex, OffsetIndex, TimeIndex), drawn here, and the [`TransactionIndex`] `B.txnindex`. All
//! integers are big-endian; an offset in the first two is stored less the base offset.
//!
//! | `.index`, 8 bytes each | bytes | field |
//! |---|---|---|
//! | 0 | 4 | last offset of a batch, relative, i32 |
//! | 4 | 4 | byte position of that batch in the log file, i32 |
//!
//! | `.timeindex`, 12 bytes each | bytes | field |
//! |---|---|---|
//! | 0 | 8 | largest timestamp in the segment so far, i64, ms |
//! | 8 | 4 | last offset of the batch that has it, relative, i32 |
//!
//! A live broker preallocates both files and fills them with zeros, and a crash leaves them so: the file's size says
//! nothing about the number of entries. There are two ways to find their end, Kafka's dump tool's and ours, which
//! trusts an entry only where it continues those before it. An entry is a hint: what it points at is still checked.
//!
//! Those types look at files; [`LiveOffsetIndex`] and [`LiveTimeIndex`] are what a log in use works with.

mod live;
mod transaction;

pub use live::{IndexRefusal, LiveOffsetIndex, LiveTimeIndex};
pub use transaction::{AbortedTransaction, TransactionIndex};

use crate::types::Offset;

/// Why an index file is not sane, by the checks that Kafka has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IndexFault {
    /// The size is no multiple of the entry size.
    #[error("index of {bytes} bytes is not made of entries of {entry_bytes}")]
    Size {
        /// Size of the file, bytes.
        bytes: usize,
        /// Size of an entry, bytes.
        entry_bytes: usize,
    },
    /// An entry's offset lies below the base offset of the segment.
    #[error("entry {index} has offset {offset}, below the base offset {base_offset}")]
    BelowBase {
        /// Number of the entry, from 0.
        index: usize,
        /// Its offset.
        offset: Offset,
        /// Base offset of the segment.
        base_offset: Offset,
    },
    /// The last timestamp is below the first. Zeros behind real entries look like that as well.
    #[error("last timestamp {last} is below the first, {first}")]
    TimestampBack {
        /// Timestamp of the first entry.
        first: i64,
        /// Timestamp of the last entry.
        last: i64,
    },
    /// An aborted-transaction entry of another version than 0.
    #[error("entry {index} has version {version}, only 0 is defined")]
    Version {
        /// Number of the entry, from 0.
        index: usize,
        /// Its version.
        version: i16,
    },
}

/// An offset that an index of this segment cannot hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("offset {offset} is not within 2147483647 above the base offset {base_offset}")]
pub struct OffsetOutOfIndex {
    /// The offset.
    pub offset: Offset,
    /// Base offset of the segment.
    pub base_offset: Offset,
}

/// Whether an offset can be said relative to the base of its segment.
pub(super) fn check_reach(offset: Offset, base_offset: Offset) -> Result<(), OffsetOutOfIndex> {
    relative(offset, base_offset).map(drop)
}

fn relative(offset: Offset, base_offset: Offset) -> Result<i32, OffsetOutOfIndex> {
    let relative = offset.0.checked_sub(base_offset.0).and_then(|difference| i32::try_from(difference).ok());
    relative.filter(|&relative| relative >= 0).ok_or(OffsetOutOfIndex { offset, base_offset })
}

fn absolute(relative: i32, base_offset: Offset) -> Offset {
    Offset(base_offset.0.saturating_add(i64::from(relative)))
}

/// An entry of the offset index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetIndexEntry {
    /// Last offset of a batch.
    pub offset: Offset,
    /// Byte position of that batch's first byte in the log file. Negative only in a damaged file.
    pub position: i32,
}

impl OffsetIndexEntry {
    /// Size of an entry, bytes.
    pub const BYTES: usize = 8;

    fn read(entry: &[u8; Self::BYTES], base_offset: Offset) -> Self {
        let [r0, r1, r2, r3, p0, p1, p2, p3] = *entry;
        Self {
            offset: absolute(i32::from_be_bytes([r0, r1, r2, r3]), base_offset),
            position: i32::from_be_bytes([p0, p1, p2, p3]),
        }
    }

    /// Appends the entry to `out`.
    ///
    /// # Errors
    /// [`OffsetOutOfIndex`] where the offset cannot be stored; nothing is appended then.
    pub fn encode(&self, base_offset: Offset, out: &mut Vec<u8>) -> Result<(), OffsetOutOfIndex> {
        let relative = relative(self.offset, base_offset)?;
        out.extend_from_slice(&relative.to_be_bytes());
        out.extend_from_slice(&self.position.to_be_bytes());
        Ok(())
    }
}

/// An offset index file, borrowed.
#[derive(Clone, Copy, Debug)]
pub struct OffsetIndex<'a> {
    base_offset: Offset,
    file: &'a [u8],
    entries: &'a [[u8; OffsetIndexEntry::BYTES]],
}

impl<'a> OffsetIndex<'a> {
    /// The content of `B.index`; `base_offset` is B. Bytes behind the last whole entry are left to
    /// [`check`](Self::check).
    pub fn new(base_offset: Offset, file: &'a [u8]) -> Self {
        Self { base_offset, file, entries: file.as_chunks().0 }
    }

    fn all(&self) -> impl Iterator<Item = OffsetIndexEntry> + use<'a> {
        let base_offset = self.base_offset;
        self.entries.iter().map(move |entry| OffsetIndexEntry::read(entry, base_offset))
    }

    /// The entries that Kafka's dump tool shows: up to the first one, except entry 0, whose offset is the base
    /// offset. A file of zeros gives one entry, (base offset, 0); nothing else is checked.
    pub fn entries_as_kafka_tool(&self) -> impl Iterator<Item = OffsetIndexEntry> + use<'a> {
        let base_offset = self.base_offset;
        self.all()
            .enumerate()
            .take_while(move |(i, entry)| *i == 0 || entry.offset != base_offset)
            .map(|(_, e)| e)
    }

    /// The entries to use: up to the first one that is all zero, does not lie above the one before it in offset and
    /// position, or points at or behind `log_bytes`, the size of the log file. A file of zeros gives none.
    pub fn entries_used(&self, log_bytes: u64) -> impl Iterator<Item = OffsetIndexEntry> + use<'a> {
        let base_offset = self.base_offset;
        let mut previous: Option<OffsetIndexEntry> = None;
        self.all().take_while(move |entry| {
            let padding = entry.offset == base_offset && entry.position == 0;
            let ascending = match previous {
                Some(previous) => entry.offset > previous.offset && entry.position > previous.position,
                None => entry.offset >= base_offset,
            };
            let inside = u64::try_from(entry.position).is_ok_and(|position| position < log_bytes);
            previous = Some(*entry);
            !padding && ascending && inside
        })
    }

    /// Kafka's sanity check of an offset index. It passes a file with zeros behind its entries.
    ///
    /// # Errors
    /// [`IndexFault::Size`]; [`IndexFault::BelowBase`] for the last entry.
    pub fn check(&self) -> Result<(), IndexFault> {
        check_size(self.file, OffsetIndexEntry::BYTES)?;
        let last = self.entries.last().map(|last| OffsetIndexEntry::read(last, self.base_offset).offset);
        check_last(last, self.entries.len(), self.base_offset)
    }
}

/// An entry of the time index: every record with a later timestamp lies above the offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeIndexEntry {
    /// Largest timestamp in the segment so far, ms since the epoch.
    pub timestamp: i64,
    /// Last offset of the first batch that has it.
    pub offset: Offset,
}

impl TimeIndexEntry {
    /// Size of an entry, bytes.
    pub const BYTES: usize = 12;

    fn read(entry: &[u8; Self::BYTES], base_offset: Offset) -> Self {
        let [t0, t1, t2, t3, t4, t5, t6, t7, r0, r1, r2, r3] = *entry;
        Self {
            timestamp: i64::from_be_bytes([t0, t1, t2, t3, t4, t5, t6, t7]),
            offset: absolute(i32::from_be_bytes([r0, r1, r2, r3]), base_offset),
        }
    }

    /// Appends the entry to `out`.
    ///
    /// # Errors
    /// [`OffsetOutOfIndex`] where the offset cannot be stored; nothing is appended then.
    pub fn encode(&self, base_offset: Offset, out: &mut Vec<u8>) -> Result<(), OffsetOutOfIndex> {
        let relative = relative(self.offset, base_offset)?;
        out.extend_from_slice(&self.timestamp.to_be_bytes());
        out.extend_from_slice(&relative.to_be_bytes());
        Ok(())
    }
}

/// A time index file, borrowed.
#[derive(Clone, Copy, Debug)]
pub struct TimeIndex<'a> {
    base_offset: Offset,
    file: &'a [u8],
    entries: &'a [[u8; TimeIndexEntry::BYTES]],
}

impl<'a> TimeIndex<'a> {
    /// The content of `B.timeindex`; `base_offset` is B. Bytes behind the last whole entry are left to
    /// [`check`](Self::check).
    pub fn new(base_offset: Offset, file: &'a [u8]) -> Self {
        Self { base_offset, file, entries: file.as_chunks().0 }
    }

    fn all(&self) -> impl Iterator<Item = TimeIndexEntry> + use<'a> {
        let base_offset = self.base_offset;
        self.entries.iter().map(move |entry| TimeIndexEntry::read(entry, base_offset))
    }

    /// The entries that Kafka's dump tool shows: up to the first one, except entry 0, whose offset is the base
    /// offset. A file of zeros gives one entry, (0, base offset); nothing else is checked.
    pub fn entries_as_kafka_tool(&self) -> impl Iterator<Item = TimeIndexEntry> + use<'a> {
        let base_offset = self.base_offset;
        self.all()
            .enumerate()
            .take_while(move |(i, entry)| *i == 0 || entry.offset != base_offset)
            .map(|(_, e)| e)
    }

    /// The entries to use: up to the first one that is all zero, that has the base offset without being entry 0,
    /// whose timestamp is not above the one before it, or whose offset is below the one before it. A file of zeros
    /// gives none.
    pub fn entries_used(&self) -> impl Iterator<Item = TimeIndexEntry> + use<'a> {
        let base_offset = self.base_offset;
        let mut previous: Option<TimeIndexEntry> = None;
        self.all().take_while(move |entry| {
            let continues = match previous {
                Some(previous) => {
                    entry.offset != base_offset
                        && entry.timestamp > previous.timestamp
                        && entry.offset >= previous.offset
                }
                None => entry.offset > base_offset || (entry.offset == base_offset && entry.timestamp != 0),
            };
            previous = Some(*entry);
            continues
        })
    }

    /// Kafka's sanity check of a time index. It fails a file with zeros behind its entries, which every unclean stop
    /// leaves behind.
    ///
    /// # Errors
    /// [`IndexFault::Size`]; [`IndexFault::TimestampBack`]; [`IndexFault::BelowBase`] for the last entry.
    pub fn check(&self) -> Result<(), IndexFault> {
        check_size(self.file, TimeIndexEntry::BYTES)?;
        let read = |entry| TimeIndexEntry::read(entry, self.base_offset);
        if let (Some(first), Some(last)) = (self.entries.first().map(read), self.entries.last().map(read)) {
            if last.timestamp < first.timestamp {
                return Err(IndexFault::TimestampBack { first: first.timestamp, last: last.timestamp });
            }
            check_last(Some(last.offset), self.entries.len(), self.base_offset)?;
        }
        Ok(())
    }
}

fn check_size(file: &[u8], entry_bytes: usize) -> Result<(), IndexFault> {
    match file.len() % entry_bytes {
        0 => Ok(()),
        _ => Err(IndexFault::Size { bytes: file.len(), entry_bytes }),
    }
}

/// Kafka looks at the last entry by the file's size, which may be padding.
fn check_last(last: Option<Offset>, entries: usize, base_offset: Offset) -> Result<(), IndexFault> {
    match last {
        Some(offset) if offset < base_offset => {
            Err(IndexFault::BelowBase { index: entries.saturating_sub(1), offset, base_offset })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: Offset = Offset(100);

    fn offset_file(entries: &[(i32, i32)]) -> Vec<u8> {
        entries
            .iter()
            .flat_map(|(relative, position)| [relative.to_be_bytes(), position.to_be_bytes()].concat())
            .collect()
    }

    fn time_file(entries: &[(i64, i32)]) -> Vec<u8> {
        entries
            .iter()
            .flat_map(|(timestamp, relative)| {
                [&timestamp.to_be_bytes()[..], &relative.to_be_bytes()].concat()
            })
            .collect()
    }

    fn used(entries: &[(i32, i32)], log_bytes: u64) -> usize {
        OffsetIndex::new(BASE, &offset_file(entries)).entries_used(log_bytes).count()
    }

    fn shown(entries: &[(i32, i32)]) -> usize {
        OffsetIndex::new(BASE, &offset_file(entries)).entries_as_kafka_tool().count()
    }

    fn time_used(entries: &[(i64, i32)]) -> usize {
        TimeIndex::new(BASE, &time_file(entries)).entries_used().count()
    }

    #[test]
    fn padding_ends_both_lists() {
        let padded = [(5, 4200), (31, 9001), (0, 0), (0, 0), (77, 9999)];
        assert_eq!(used(&padded, 10_000), 2);
        assert_eq!(shown(&padded), 2);
        assert_eq!(used(&[(0, 0); 9], 10_000), 0, "a file of zeros has no entries");
        assert_eq!(shown(&[(0, 0); 9]), 1, "Kafka's tool shows one");
        assert_eq!(used(&[(0, 61)], 10_000), 1, "entry 0 may have the base offset");
        assert_eq!((used(&[], 1), shown(&[])), (0, 0));
    }

    #[test]
    fn lying_entries_end_the_list_of_ours_only() {
        for (entries, log_bytes, good) in [
            (&[(5, 100), (5, 200), (9, 300)][..], 1000, 1),
            (&[(5, 100), (9, 100)], 1000, 1),
            (&[(5, 100), (3, 200)], 1000, 1),
            (&[(5, 100), (9, 1000)], 1000, 1),
            (&[(5, 100), (9, 999)], 1000, 2),
            (&[(5, -100), (9, 200)], 1000, 0),
            (&[(-5, 100), (9, 200)], 1000, 0),
            (&[(5, 100)], 0, 0),
        ] {
            assert_eq!(used(entries, log_bytes), good, "{entries:?}");
            assert_eq!(shown(entries), entries.len(), "{entries:?}");
        }
        assert_eq!(time_used(&[(10, 5), (10, 6)]), 1);
        assert_eq!(time_used(&[(10, 5), (11, 4)]), 1);
        assert_eq!(time_used(&[(10, 5), (11, 5)]), 2, "offsets may stay");
        assert_eq!(time_used(&[(10, 0), (11, 5), (0, 0)]), 2);
        assert_eq!(time_used(&[(0, 0), (0, 0)]), 0);
        assert_eq!(time_used(&[(10, -1)]), 0);
    }

    #[test]
    fn sanity_checks_are_kafkas() {
        let offsets = |entries: &[(i32, i32)]| OffsetIndex::new(BASE, &offset_file(entries)).check();
        assert_eq!(offsets(&[]), Ok(()));
        assert_eq!(offsets(&[(5, 100), (0, 0)]), Ok(()));
        let below = IndexFault::BelowBase { index: 1, offset: Offset(99), base_offset: BASE };
        assert_eq!(offsets(&[(5, 100), (-1, 0)]), Err(below));
        assert_eq!(
            OffsetIndex::new(BASE, &[0; 9]).check(),
            Err(IndexFault::Size { bytes: 9, entry_bytes: 8 })
        );

        let times = |entries: &[(i64, i32)]| TimeIndex::new(BASE, &time_file(entries)).check();
        assert_eq!(times(&[]), Ok(()));
        assert_eq!(times(&[(0, 0), (0, 0)]), Ok(()));
        assert_eq!(times(&[(5, 1), (7, 9), (5, 3)]), Ok(()));
        assert_eq!(times(&[(5, 1), (0, 0)]), Err(IndexFault::TimestampBack { first: 5, last: 0 }));
        assert_eq!(times(&[(5, 1), (6, -1)]), Err(below));
        assert_eq!(
            TimeIndex::new(BASE, &[0; 8]).check(),
            Err(IndexFault::Size { bytes: 8, entry_bytes: 12 })
        );
    }

    #[test]
    fn entries_come_back() {
        let mut out = Vec::new();
        let entry = OffsetIndexEntry { offset: Offset(100 + i64::from(i32::MAX)), position: 7 };
        entry.encode(BASE, &mut out).unwrap();
        assert!(OffsetIndex::new(BASE, &out).entries_used(8).eq([entry]));
        for offset in [99, 101 + i64::from(i32::MAX), i64::MIN, i64::MAX] {
            let offset = Offset(offset);
            let fault = OffsetOutOfIndex { offset, base_offset: BASE };
            assert_eq!(OffsetIndexEntry { offset, position: 0 }.encode(BASE, &mut out), Err(fault));
            assert_eq!(TimeIndexEntry { timestamp: 0, offset }.encode(BASE, &mut out), Err(fault));
        }
        assert_eq!(out.len(), 8, "a refused entry appends nothing");
        let mut out = Vec::new();
        let entry = TimeIndexEntry { timestamp: -1, offset: BASE };
        entry.encode(BASE, &mut out).unwrap();
        assert!(TimeIndex::new(BASE, &out).entries_used().eq([entry]));
    }
}
