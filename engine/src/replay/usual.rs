//! The batch that a coordinator writes, told from every other one at once.
//!
//! Nearly every batch of a transaction log has one record, no compression, no headers, no producer, and a value in which
//! nothing is odd. Such a batch is checked here by a straight line of code; whatever does not fit is left to
//! [`Scan::batch`](super::scan::Scan::batch), which knows everything and can say what is wrong.

use crate::batch::{CRC_START, HEADER_LEN, LOG_OVERHEAD};
use crate::machine::cpu::{BLOCK, Cpu};
use crate::map::Mark;
use crate::transaction_log::plain_state;

/// What is needed of a usual batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Usual {
    /// Bytes of the batch.
    pub(super) size: usize,
    pub(super) base_offset: i64,
    /// Where the id begins in the batch.
    pub(super) id_at: usize,
    pub(super) id_len: usize,
    pub(super) mark: Mark,
}

/// What the header of a usual batch has, byte by byte, and which bits of it must be so.
///
/// The base offset, the leader epoch and the time stamps are not negative; magic 2; no attribute but the type of the
/// time stamp; last offset delta 0; no producer id, epoch and sequence (−1); one record.
static HEADER: ([u8; BLOCK], [u8; BLOCK]) = {
    let (mut expected, mut mask) = ([0; BLOCK], [0; BLOCK]);
    let mut at = 0;
    while at < BLOCK {
        match at {
            0 | 12 | 27 | 35 => mask[at] = 0x80,
            16 => (expected[at], mask[at]) = (2, 0xff),
            21 | 23..=26 | 57..=59 => mask[at] = 0xff,
            22 => mask[at] = !0x08,
            43..=56 => (expected[at], mask[at]) = (0xff, 0xff),
            60 => (expected[at], mask[at]) = (1, 0xff),
            _ => {}
        }
        at += 1;
    }
    (expected, mask)
};

/// Reads the batch at the front of `bytes`, with its checksum. `None` says only that the long way must be taken; so it
/// does for a batch at the very end of `bytes`, where a few bytes more than it needs are looked at.
#[inline(always)]
pub(super) fn usual(bytes: &[u8], cpu: impl Cpu) -> Option<Usual> {
    let head = bytes.first_chunk::<80>()?;
    let size = LOG_OVERHEAD + be_u32(head, 8) as usize;
    let batch = bytes.get(..size)?;
    if !cpu.is_like(head.first_chunk()?, &HEADER.0, &HEADER.1)
        || cpu.crc32c(batch.get(CRC_START..)?) != be_u32(head, 17)
    {
        return None;
    }

    // The record has all bytes behind the header. So its length is known, and must be the one that is stored; it takes
    // one byte or two. Then come attributes, time stamp and offset relative to the batch, all 0.
    let len_bytes = if size < HEADER_LEN + 65 { 1 } else { 2 };
    let zigzag = 2 * size.checked_sub(HEADER_LEN + len_bytes)? as u64;
    let stored = if len_bytes == 1 { zigzag } else { (zigzag & 0x7f | 0x80) << 8 | zigzag >> 7 };
    let lead = u64::from_be_bytes(*head[HEADER_LEN..].first_chunk()?);
    if lead >> (40 - 8 * len_bytes) != stored << 24 || zigzag >= 1 << 14 {
        return None;
    }

    let (key_len, key_at) = length(batch, HEADER_LEN + len_bytes + 3)?;
    let (id_at, id_len) = (key_at + 4, key_len.checked_sub(4)?);
    // The key's version 0, and the length of the id that is the rest of it.
    let key_head = be_u32(batch.get(key_at..)?.first_chunk::<4>()?, 0);
    let value_at = key_at + key_len;
    let (mark, end) = if *batch.get(value_at)? == 1 {
        (Mark::Tombstone, value_at + 1)
    } else {
        let (len, at) = length(batch, value_at)?;
        (Mark::State(plain_state(batch.get(at..at + len)?)?), at + len)
    };
    // No headers, and nothing behind their number.
    let is_usual = key_head as usize == id_len && end + 1 == size && batch.get(end) == Some(&0);
    is_usual.then_some(Usual {
        size,
        base_offset: i64::from_be_bytes(*head.first_chunk()?),
        id_at,
        id_len,
        mark,
    })
}

/// A length of one or two bytes that is not negative, and where what follows it begins.
#[inline(always)]
fn length(bytes: &[u8], at: usize) -> Option<(usize, usize)> {
    let [first, second] = *bytes.get(at..)?.first_chunk::<2>()?;
    let (raw, behind) = if first < 0x80 {
        (usize::from(first), at + 1)
    } else {
        (usize::from(first & 0x7f) | usize::from(second) << 7, at + 2)
    };
    (raw & 1 == 0 && raw < 1 << 14).then_some((raw >> 1, behind))
}

#[inline(always)]
fn be_u32<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
