//! The producer snapshot file, `S.snapshot`: every producer of a partition after all records below offset S
//! (Kafka's ProducerStateManager, ProducerSnapshot). All integers are big-endian.
//!
//! | position | bytes | field |
//! |---|---|---|
//! | 0 | 2 | version, i16: 1 |
//! | 2 | 4 | CRC-32C of everything from position 6 on |
//! | 6 | 4 | number of entries, i32 |
//! | 10 | 46 each | entries |
//!
//! | in an entry | bytes | field | none |
//! |---|---|---|---|
//! | 0 | 8 | producer id, i64 | |
//! | 8 | 2 | producer epoch, i16 | |
//! | 10 | 4 | last sequence of the newest data batch, i32 | −1 |
//! | 14 | 8 | last offset of that batch, i64 | −1 |
//! | 22 | 4 | offsets in that batch less one, i32 | 0 |
//! | 26 | 8 | last timestamp of the producer, i64, ms | −1 |
//! | 34 | 4 | coordinator epoch of its last marker, i32 | −1 |
//! | 38 | 8 | first offset of its open transaction, i64 | −1 |

use crate::batch::decrement_sequence;
use crate::types::{Offset, ProducerId};
use std::collections::HashSet;

const VERSION: i16 = 1;
const CRC_FROM: usize = 6;
const HEADER_BYTES: usize = 10;
const ENTRY_BYTES: usize = 46;

/// Why a snapshot cannot be used. Kafka deletes such a file and takes the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotFault {
    /// Shorter than its header.
    #[error("snapshot of {0} bytes is shorter than its header of 10")]
    TooShort(usize),
    /// Another version than 1.
    #[error("snapshot version {0} is not defined")]
    Version(i16),
    /// The bytes do not match their checksum; surplus bytes count as well.
    #[error("snapshot CRC does not match: stored {stored:#010x}, computed {computed:#010x}")]
    Crc {
        /// The CRC in the file.
        stored: u32,
        /// The CRC of the bytes.
        computed: u32,
    },
    /// The number of entries is not what the file's size holds.
    #[error("snapshot says {count} entries in {bytes} bytes of entries of 46 bytes")]
    Count {
        /// The number in the file.
        count: i32,
        /// Bytes behind the header.
        bytes: usize,
    },
}

/// The newest data batch of a producer. (In memory Kafka keeps up to five for finding duplicates, the file has one.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchMetadata {
    /// Sequence number of the batch's last record.
    pub last_sequence: i32,
    /// Log offset of the batch's last record, from 0.
    pub last_offset: Offset,
    /// Last offset less first offset of the batch; the same difference lies between its sequence numbers.
    pub offset_delta: i32,
}

impl BatchMetadata {
    /// Sequence number of the batch's first record.
    pub const fn first_sequence(&self) -> i32 {
        decrement_sequence(self.last_sequence, self.offset_delta)
    }

    /// Log offset of the batch's first record.
    pub const fn first_offset(&self) -> Offset {
        Offset(self.last_offset.0.saturating_sub(self.offset_delta as i64))
    }
}

/// One producer in a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerEntry {
    /// Producer id.
    pub producer_id: ProducerId,
    /// Its epoch, −1 if none is known.
    pub producer_epoch: i16,
    /// Its newest data batch; `None` if only markers were seen (a negative last offset in the file).
    pub last_batch: Option<BatchMetadata>,
    /// The producer's last timestamp, ms since the epoch, −1 if none: a batch's largest or a marker's own.
    pub last_timestamp: i64,
    /// Coordinator epoch of its last marker, −1 if none.
    pub coordinator_epoch: i32,
    /// First offset of its open transaction; `None` if none is open (negative in the file).
    pub current_txn_first_offset: Option<Offset>,
}

impl ProducerEntry {
    fn read(entry: &[u8; ENTRY_BYTES]) -> Self {
        fn at<const N: usize>(entry: &[u8; ENTRY_BYTES], position: usize) -> [u8; N] {
            std::array::from_fn(|i| entry[position + i])
        }
        let last_offset = i64::from_be_bytes(at(entry, 14));
        let current_txn_first_offset = i64::from_be_bytes(at(entry, 38));
        Self {
            producer_id: ProducerId(i64::from_be_bytes(at(entry, 0))),
            producer_epoch: i16::from_be_bytes(at(entry, 8)),
            last_batch: (last_offset >= 0).then(|| BatchMetadata {
                last_sequence: i32::from_be_bytes(at(entry, 10)),
                last_offset: Offset(last_offset),
                offset_delta: i32::from_be_bytes(at(entry, 22)),
            }),
            last_timestamp: i64::from_be_bytes(at(entry, 26)),
            coordinator_epoch: i32::from_be_bytes(at(entry, 34)),
            current_txn_first_offset: (current_txn_first_offset >= 0)
                .then_some(Offset(current_txn_first_offset)),
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        let (last_sequence, last_offset, offset_delta) = match self.last_batch {
            Some(batch) => (batch.last_sequence, batch.last_offset.0, batch.offset_delta),
            None => (-1, -1, 0),
        };
        out.extend_from_slice(&self.producer_id.0.to_be_bytes());
        out.extend_from_slice(&self.producer_epoch.to_be_bytes());
        out.extend_from_slice(&last_sequence.to_be_bytes());
        out.extend_from_slice(&last_offset.to_be_bytes());
        out.extend_from_slice(&offset_delta.to_be_bytes());
        out.extend_from_slice(&self.last_timestamp.to_be_bytes());
        out.extend_from_slice(&self.coordinator_epoch.to_be_bytes());
        out.extend_from_slice(&self.current_txn_first_offset.map_or(-1, |offset| offset.0).to_be_bytes());
    }
}

/// Content of a snapshot file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProducerSnapshot {
    /// The producers in file order. Kafka's order is that of a hash map: compare as a map.
    pub entries: Vec<ProducerEntry>,
}

impl ProducerSnapshot {
    /// Reads a whole file. Nothing is allocated before version, CRC and number of entries were found right.
    ///
    /// # Errors
    /// A [`SnapshotFault`], at which the file must not be used at all.
    pub fn parse(file: &[u8]) -> Result<Self, SnapshotFault> {
        let (header, entries) =
            file.split_first_chunk::<HEADER_BYTES>().ok_or(SnapshotFault::TooShort(file.len()))?;
        let [v0, v1, c0, c1, c2, c3, n0, n1, n2, n3] = *header;
        let version = i16::from_be_bytes([v0, v1]);
        if version != VERSION {
            return Err(SnapshotFault::Version(version));
        }
        let stored = u32::from_be_bytes([c0, c1, c2, c3]);
        let computed = crc32c::crc32c(&file[CRC_FROM..]);
        if stored != computed {
            return Err(SnapshotFault::Crc { stored, computed });
        }
        let count = i32::from_be_bytes([n0, n1, n2, n3]);
        let (chunks, rest) = entries.as_chunks::<ENTRY_BYTES>();
        if !rest.is_empty() || usize::try_from(count) != Ok(chunks.len()) {
            return Err(SnapshotFault::Count { count, bytes: entries.len() });
        }
        Ok(Self { entries: chunks.iter().map(ProducerEntry::read).collect() })
    }

    /// The file with these entries in this order.
    ///
    /// # Errors
    /// [`SnapshotFault::Count`] for more than 2^31 − 1 entries.
    pub fn encode(&self) -> Result<Vec<u8>, SnapshotFault> {
        let bytes = self.entries.len().saturating_mul(ENTRY_BYTES);
        let count =
            i32::try_from(self.entries.len()).map_err(|_| SnapshotFault::Count { count: i32::MAX, bytes })?;
        let mut file = Vec::with_capacity(HEADER_BYTES + bytes);
        file.extend_from_slice(&VERSION.to_be_bytes());
        file.extend_from_slice(&[0; 4]);
        file.extend_from_slice(&count.to_be_bytes());
        for entry in &self.entries {
            entry.write(&mut file);
        }
        let crc = crc32c::crc32c(&file[CRC_FROM..]);
        file[2..CRC_FROM].copy_from_slice(&crc.to_be_bytes());
        Ok(file)
    }

    /// The first producer id that an earlier entry has as well. Kafka takes the last entry; a strict check refuses.
    pub fn repeated_producer_id(&self) -> Option<ProducerId> {
        let mut seen = HashSet::with_capacity(self.entries.len());
        self.entries.iter().map(|entry| entry.producer_id).find(|&id| !seen.insert(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> ProducerSnapshot {
        let entry = |id, last_batch, open: Option<i64>| ProducerEntry {
            producer_id: ProducerId(id),
            producer_epoch: 3,
            last_batch,
            last_timestamp: 1_700_000_000_000,
            coordinator_epoch: -1,
            current_txn_first_offset: open.map(Offset),
        };
        let batch = BatchMetadata { last_sequence: 0, last_offset: Offset(42), offset_delta: 2 };
        let first = BatchMetadata { last_sequence: 0, last_offset: Offset(0), offset_delta: 0 };
        ProducerSnapshot {
            entries: vec![
                entry(7, Some(batch), Some(40)),
                entry(8, None, None),
                entry(9, Some(first), Some(0)),
            ],
        }
    }

    #[test]
    fn entries_come_back() {
        for snapshot in [sample(), ProducerSnapshot::default()] {
            let file = snapshot.encode().unwrap();
            assert_eq!(file.len(), 10 + 46 * snapshot.entries.len());
            assert_eq!(ProducerSnapshot::parse(&file), Ok(snapshot));
        }
    }

    #[test]
    fn the_first_record_of_a_batch_that_wraps() {
        let batch = sample().entries[0].last_batch.unwrap();
        assert_eq!(batch.first_sequence(), 2_147_483_646);
        assert_eq!(batch.first_offset(), Offset(40));
    }

    #[test]
    fn every_cut_flip_and_surplus_byte_is_refused() {
        let file = sample().encode().unwrap();
        // Miri is some thousand times slower, so it sees a part of the cases.
        let step = if cfg!(miri) { 11 } else { 1 };
        for cut in (0..file.len()).step_by(step) {
            assert!(ProducerSnapshot::parse(&file[..cut]).is_err(), "cut at {cut}");
        }
        for position in (0..file.len()).step_by(step) {
            for bit in 0..8 {
                let mut damaged = file.clone();
                damaged[position] ^= 1 << bit;
                assert!(ProducerSnapshot::parse(&damaged).is_err(), "bit {bit} of byte {position}");
            }
        }
        let longer = [&file[..], &[0]].concat();
        assert!(matches!(ProducerSnapshot::parse(&longer), Err(SnapshotFault::Crc { .. })));
    }

    #[test]
    fn a_count_that_lies_under_a_right_crc() {
        for count in [2, 4, -1, i32::MAX] {
            let mut file = sample().encode().unwrap();
            file[6..10].copy_from_slice(&i32::to_be_bytes(count));
            let crc = crc32c::crc32c(&file[6..]);
            file[2..6].copy_from_slice(&crc.to_be_bytes());
            assert_eq!(ProducerSnapshot::parse(&file), Err(SnapshotFault::Count { count, bytes: 138 }));
        }
    }

    #[test]
    fn a_repeated_producer_is_found() {
        let mut snapshot = sample();
        assert_eq!(snapshot.repeated_producer_id(), None);
        snapshot.entries.push(snapshot.entries[0]);
        assert_eq!(snapshot.repeated_producer_id(), Some(ProducerId(7)));
    }
}
