//! The search that decides whether a damaged tail may be forgiven: does any whole batch follow it?
//!
//! Every byte position is a candidate, because a damaged length field hides where the next batch begins. Most
//! candidates fail on the magic byte. Those with a sane header get their CRC computed, within a budget that one segment
//! has for all searches: bytes that were made to look like headers everywhere must not cost their square. When the budget
//! is spent the answer is "undecided", and the caller must not forgive.

use std::io;

use crate::batch::{BatchFrame, CRC_START, HEADER_LEN, LOG_OVERHEAD};
use crate::io::{StorageFile, read_full_at};

/// What follows a bad place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Survivor {
    /// No batch with a sane header and a right CRC.
    None,
    /// One begins at this byte position.
    At(u64),
    /// Too many bytes look like headers to try them all, or the search was stopped.
    Undecided,
}

/// What the search reads at once: little at first, since a good batch mostly follows soon.
const WINDOW_BYTES_MIN: usize = 4 << 10;
const WINDOW_BYTES_MAX: usize = 1 << 20;

/// Bytes of CRCs that all searches in a segment of this length may compute together.
pub(crate) fn search_budget(len: u64) -> u64 {
    len.saturating_mul(16).saturating_add(64 << 20)
}

/// Looks for a whole batch that begins at `from` or behind, and ends by `len`.
///
/// Cost: one pass over the bytes up to the answer, and CRCs that are taken off `budget`.
///
/// # Errors
/// What reading the file gives.
pub(crate) fn find_survivor(
    file: &dyn StorageFile,
    from: u64,
    len: u64,
    budget: &mut u64,
    is_stopped: &dyn Fn() -> bool,
) -> io::Result<Survivor> {
    let mut window = Vec::new();
    let mut start = from;
    while start + HEADER_LEN as u64 <= len {
        let want = (window.len() * 2).clamp(WINDOW_BYTES_MIN, WINDOW_BYTES_MAX);
        window.resize(want.min((len - start) as usize), 0);
        let read = read_full_at(file, start, &mut window)?;
        let bytes = &window[..read];
        let Some(candidates) = (read + 1).checked_sub(HEADER_LEN) else { break };
        for at in 0..candidates {
            // The magic byte first: it alone rules out nearly every position.
            if bytes[at + 16] != 2 {
                continue;
            }
            let position = start + at as u64;
            let Some(size) = sane_size(&bytes[at..at + HEADER_LEN], len - position) else { continue };
            if size > *budget || is_stopped() {
                return Ok(Survivor::Undecided);
            }
            *budget -= size;
            let stored = u32::from_be_bytes([bytes[at + 17], bytes[at + 18], bytes[at + 19], bytes[at + 20]]);
            if stored == crc_of_range(file, position + CRC_START as u64, position + size)? {
                return Ok(Survivor::At(position));
            }
        }
        if is_stopped() {
            return Ok(Survivor::Undecided);
        }
        start += candidates as u64;
    }
    Ok(Survivor::None)
}

/// Bytes of the batch if the 61 bytes are a header that a writer could have made.
fn sane_size(header: &[u8], left: u64) -> Option<u64> {
    let length = i32::from_be_bytes([header[8], header[9], header[10], header[11]]);
    let size = LOG_OVERHEAD as u64 + u64::try_from(length).ok()?;
    if size < HEADER_LEN as u64 || size > left {
        return None;
    }
    // The header rules live in one place: give them a header-only batch with the same fields.
    let mut lone = [0u8; HEADER_LEN];
    lone.copy_from_slice(header);
    lone[8..12].copy_from_slice(&((HEADER_LEN - LOG_OVERHEAD) as i32).to_be_bytes());
    let frame = BatchFrame::new(&lone).ok()?;
    (frame.compression().is_ok()
        && i64::from(frame.records_count()) <= i64::from(frame.last_offset_delta()) + 1)
        .then_some(size)
}

/// CRC-32C of the bytes from `from` to `to`, as far as the file has them.
pub(crate) fn crc_of_range(file: &dyn StorageFile, from: u64, to: u64) -> io::Result<u32> {
    let mut piece = [0; 16 << 10];
    let (mut crc, mut position) = (0, from);
    while position < to {
        let want = (piece.len() as u64).min(to - position) as usize;
        let read = read_full_at(file, position, &mut piece[..want])?;
        if read == 0 {
            break;
        }
        crc = crc32c::crc32c_append(crc, &piece[..read]);
        position += read as u64;
    }
    Ok(crc)
}
