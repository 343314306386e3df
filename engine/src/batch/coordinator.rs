//! Many small appends of a coordinator, one batch each, in one buffer.

use std::ops::Range;

use super::varint::{put_varint, varint_len};
use super::{BuildFault, CRC_START, HEADER_LEN, LOG_OVERHEAD};
use crate::machine::crc::Crc;
use crate::types::Offset;

/// Encodes records as batches of one record each, one behind the other, as Kafka's coordinators append them: no
/// producer, no compression, create time, no headers.
///
/// The bytes are those of [`BatchBuilder`](super::BatchBuilder). Offsets go up by one from batch to batch. The
/// buffer is kept from one use to the next, so an append allocates only while it is still growing; its cost is a
/// header from a template, two copies and the CRC.
///
/// ```
/// use redrive::batch::{BatchFrame, CoordinatorBatches};
/// use redrive::types::Offset;
///
/// let mut batches = CoordinatorBatches::new(Offset(7), 3);
/// batches.push(1000, b"k", Some(b"v"))?;
/// batches.push(1001, b"k", None)?;
/// let (first, rest) = BatchFrame::parse(batches.bytes())?;
/// let (second, rest) = BatchFrame::parse(rest)?;
/// assert_eq!((first.base_offset(), second.base_offset()), (Offset(7), Offset(8)));
/// assert!(rest.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct CoordinatorBatches {
    /// The batches, and behind them room whose content has no meaning: it is not cleared for each use.
    bytes: Vec<u8>,
    /// Where the batches end.
    filled: usize,
    crc: Crc,
    next_offset: Offset,
    leader_epoch: i32,
}

/// The header of every batch but for offset, length, epoch, CRC and times.
const TEMPLATE: [u8; HEADER_LEN] = {
    let mut header = [0; HEADER_LEN];
    header[16] = 2;
    // Producer id, producer epoch and base sequence are −1.
    let mut at = 43;
    while at < 57 {
        header[at] = 0xff;
        at += 1;
    }
    // One record.
    header[60] = 1;
    header
};

/// Bytes of a record's body beside key, value and their lengths: attributes, both deltas, header count.
const FIXED: usize = 4;

impl CoordinatorBatches {
    /// An empty buffer whose first batch gets `base_offset`, all of them `leader_epoch` (−1 = none).
    pub fn new(base_offset: Offset, leader_epoch: i32) -> Self {
        Self { bytes: Vec::new(), filled: 0, crc: Crc::detect(), next_offset: base_offset, leader_epoch }
    }

    /// Forgets the batches and begins again; the memory is kept.
    pub fn restart(&mut self, base_offset: Offset, leader_epoch: i32) {
        self.filled = 0;
        (self.next_offset, self.leader_epoch) = (base_offset, leader_epoch);
    }

    /// Appends a batch with this record and gives its place in [`bytes`](Self::bytes). `timestamp_ms` is −1 for
    /// none; without a value the record is a tombstone.
    ///
    /// # Errors
    /// [`BuildFault::TooLarge`] beyond the 31 bits of a batch's length, [`BuildFault::Offset`] where no offset is
    /// left. Nothing is appended then.
    pub fn push(
        &mut self,
        timestamp_ms: i64,
        key: &[u8],
        value: Option<&[u8]>,
    ) -> Result<Range<usize>, BuildFault> {
        let offset = self.next_offset;
        if !(0..i64::MAX).contains(&offset.0) {
            let previous = Offset(offset.0.saturating_sub(1));
            return Err(BuildFault::Offset { offset, previous, base: offset });
        }
        let given = key.len().saturating_add(value.map_or(0, <[u8]>::len));
        let too_large = |_| BuildFault::TooLarge(given);
        let key_len = i32::try_from(key.len()).map_err(too_large)?;
        let value_len = value.map_or(Ok(-1), |value| i32::try_from(value.len())).map_err(too_large)?;
        let body = FIXED + varint_len(key_len) + varint_len(value_len) + given;
        let body_len = i32::try_from(body).map_err(too_large)?;
        let size = HEADER_LEN + varint_len(body_len) + body;
        let length = i32::try_from(size - LOG_OVERHEAD).map_err(too_large)?;

        let place = self.filled..self.filled + size;
        if self.bytes.len() < place.end {
            self.bytes.resize(place.end.next_power_of_two(), 0);
        }
        let out = &mut self.bytes[place.clone()];
        let Some((header, mut rest)) = out.split_first_chunk_mut() else {
            return Err(BuildFault::TooLarge(given));
        };
        *header = TEMPLATE;
        set(header, 0, offset.0.to_be_bytes());
        set(header, 8, length.to_be_bytes());
        set(header, 12, self.leader_epoch.to_be_bytes());
        set(header, 27, timestamp_ms.to_be_bytes());
        set(header, 35, timestamp_ms.to_be_bytes());
        put_varint(body_len, &mut rest);
        put(&[0; FIXED - 1], &mut rest);
        put_varint(key_len, &mut rest);
        put(key, &mut rest);
        put_varint(value_len, &mut rest);
        put(value.unwrap_or_default(), &mut rest);
        put(&[0], &mut rest);
        debug_assert!(rest.is_empty());
        let crc = self.crc.of(&out[CRC_START..]);
        out[17..CRC_START].copy_from_slice(&crc.to_be_bytes());
        self.filled = place.end;
        self.next_offset = offset.next();
        Ok(place)
    }

    /// All batches, ready to be written.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.filled]
    }

    /// Offset that the next record gets.
    pub fn next_offset(&self) -> Offset {
        self.next_offset
    }
}

/// Sets a field of the header. A store each, where a copy of a slice would be a call.
#[inline(always)]
fn set<const LEN: usize>(header: &mut [u8; HEADER_LEN], at: usize, field: [u8; LEN]) {
    if let Some(slot) = header[at..].first_chunk_mut() {
        *slot = field;
    }
}

/// Writes to the front of `rest`, which is long enough, and moves it on.
#[inline(always)]
fn put(bytes: &[u8], rest: &mut &mut [u8]) {
    let (front, behind) = std::mem::take(rest).split_at_mut(bytes.len());
    front.copy_from_slice(bytes);
    *rest = behind;
}
