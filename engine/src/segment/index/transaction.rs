//! Entries of the transaction index `B.txnindex`: the aborted transactions whose marker lies in the segment with
//! base offset B (Kafka's TransactionIndex, AbortedTxn). All integers are big-endian.
//!
//! | position | bytes | field |
//! |---|---|---|
//! | 0 | 2 | version, i16: 0 |
//! | 2 | 8 | producer id, i64 |
//! | 10 | 8 | first offset of the transaction, i64; it may lie in an earlier segment |
//! | 18 | 8 | offset of its ABORT marker, i64 |
//! | 26 | 8 | last stable offset once the transaction had ended, i64 |
//!
//! The file is not preallocated and does not exist before the first entry.

use super::IndexFault;
use crate::types::{Offset, ProducerId};

const VERSION: i16 = 0;

/// An aborted transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedTransaction {
    /// Its producer.
    pub producer_id: ProducerId,
    /// First offset of its data in this partition.
    pub first_offset: Offset,
    /// Offset of its ABORT marker.
    pub last_offset: Offset,
    /// The last stable offset after it.
    pub last_stable_offset: Offset,
}

impl AbortedTransaction {
    /// Size of an entry, bytes.
    pub const BYTES: usize = 34;

    /// Reads an entry; the error is a version other than 0.
    fn read(entry: &[u8; Self::BYTES]) -> Result<Self, i16> {
        let at = |position: usize| i64::from_be_bytes(std::array::from_fn(|i| entry[position + i]));
        match i16::from_be_bytes([entry[0], entry[1]]) {
            VERSION => Ok(Self {
                producer_id: ProducerId(at(2)),
                first_offset: Offset(at(10)),
                last_offset: Offset(at(18)),
                last_stable_offset: Offset(at(26)),
            }),
            version => Err(version),
        }
    }

    /// Appends the entry to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&VERSION.to_be_bytes());
        out.extend_from_slice(&self.producer_id.0.to_be_bytes());
        for offset in [self.first_offset, self.last_offset, self.last_stable_offset] {
            out.extend_from_slice(&offset.0.to_be_bytes());
        }
    }
}

/// A transaction index file, borrowed.
#[derive(Clone, Copy, Debug)]
pub struct TransactionIndex<'a> {
    base_offset: Offset,
    entries: &'a [[u8; AbortedTransaction::BYTES]],
    trailing: usize,
}

impl<'a> TransactionIndex<'a> {
    /// The content of `B.txnindex`; `base_offset` is B.
    pub fn new(base_offset: Offset, file: &'a [u8]) -> Self {
        let (entries, rest) = file.as_chunks();
        Self { base_offset, entries, trailing: rest.len() }
    }

    /// The entries in file order. An entry of an unknown version is an error in its place, as
    /// [`IndexFault::Version`]; what follows it is still given.
    pub fn entries(&self) -> impl Iterator<Item = Result<AbortedTransaction, IndexFault>> + use<'a> {
        self.entries.iter().enumerate().map(|(index, entry)| {
            AbortedTransaction::read(entry).map_err(|version| IndexFault::Version { index, version })
        })
    }

    /// Bytes behind the last whole entry. Readers ignore them; whoever appends must rebuild the file first, as every
    /// later entry would be out of step.
    pub fn trailing_bytes(&self) -> usize {
        self.trailing
    }

    /// Kafka's sanity check of a transaction index, made of every segment at start-up.
    ///
    /// # Errors
    /// [`IndexFault::Version`]; [`IndexFault::BelowBase`] for an entry whose marker lies below the segment.
    pub fn check(&self) -> Result<(), IndexFault> {
        for (index, entry) in self.entries().enumerate() {
            let AbortedTransaction { last_offset: offset, .. } = entry?;
            if offset < self.base_offset {
                return Err(IndexFault::BelowBase { index, offset, base_offset: self.base_offset });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(last_offset: i64) -> AbortedTransaction {
        AbortedTransaction {
            producer_id: ProducerId(1001),
            first_offset: Offset(3),
            last_offset: Offset(last_offset),
            last_stable_offset: Offset(last_offset + 1),
        }
    }

    fn file(entries: &[AbortedTransaction]) -> Vec<u8> {
        let mut out = Vec::new();
        entries.iter().for_each(|entry| entry.encode(&mut out));
        out
    }

    #[test]
    fn entries_come_back_and_trailing_bytes_are_counted() {
        let entries = [entry(305), entry(900)];
        let mut bytes = file(&entries);
        assert_eq!(bytes.len(), 68);
        for trailing in 0..34 {
            let index = TransactionIndex::new(Offset(300), &bytes);
            assert_eq!(index.trailing_bytes(), trailing);
            assert!(index.entries().eq(entries.map(Ok)));
            assert_eq!(index.check(), Ok(()));
            bytes.push(0xff);
        }
        assert_eq!(TransactionIndex::new(Offset(0), &[]).check(), Ok(()));
        let cut = TransactionIndex::new(Offset(300), &bytes[..67]);
        assert_eq!((cut.entries().count(), cut.trailing_bytes()), (1, 33));
    }

    #[test]
    fn a_marker_below_the_segment_is_refused() {
        let bytes = file(&[entry(305), entry(299)]);
        let fault = IndexFault::BelowBase { index: 1, offset: Offset(299), base_offset: Offset(300) };
        assert_eq!(TransactionIndex::new(Offset(300), &bytes).check(), Err(fault));
    }

    #[test]
    fn any_other_version_is_refused() {
        for version in [1i16, 255, 256, -1] {
            let mut bytes = file(&[entry(305), entry(306)]);
            bytes[..2].copy_from_slice(&version.to_be_bytes());
            let index = TransactionIndex::new(Offset(300), &bytes);
            let fault = IndexFault::Version { index: 0, version };
            assert_eq!(index.check(), Err(fault));
            assert!(index.entries().eq([Err(fault), Ok(entry(306))]));
        }
    }
}
