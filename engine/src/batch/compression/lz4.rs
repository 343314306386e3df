//! LZ4 frames as Kafka's Lz4BlockInputStream reads them: one frame of independent blocks.
//!
//! | bytes | field |
//! |---|---|
//! | 4 | magic number `04 22 4d 18` |
//! | 1 | FLG: version (2 bits), independent blocks, block checksums, content size, content checksum, 2 × reserved |
//! | 1 | BD: block size class in bits 4–6 (4 = 64 KiB … 7 = 4 MiB) |
//! | 0 or 8 | content size |
//! | 1 | header checksum: second byte of XXH32 over FLG … content size |
//! | 4 + n (+ 4) | blocks: length (top bit = stored plain), data, checksum if FLG says so |
//! | 4 | end mark 0 |
//! | 0 or 4 | content checksum, which Kafka does not look at |
//!
//! Bytes after the end mark are ignored. Kafka refuses linked blocks, and so do we. LZ4's own integers are the
//! one little-endian thing in a log; they are put together by shifts.

use super::{Compression, CompressionFault, Limits};

const MAGIC: [u8; 4] = [0x04, 0x22, 0x4d, 0x18];
/// Version 1, independent blocks, nothing else: what Kafka writes.
const FLG: u8 = 0x60;
/// Blocks of 64 KiB.
const BD: u8 = 0x40;
const BLOCK_BYTES: usize = 64 << 10;

fn damaged(reason: impl ToString) -> CompressionFault {
    CompressionFault::Damaged { codec: Compression::Lz4, reason: reason.to_string() }
}

fn take<'a>(rest: &mut &'a [u8], count: usize, what: &str) -> Result<&'a [u8], CompressionFault> {
    let (taken, after) =
        rest.split_at_checked(count).ok_or_else(|| damaged(format!("{what} is cut short")))?;
    *rest = after;
    Ok(taken)
}

fn take_u32(rest: &mut &[u8], what: &str) -> Result<u32, CompressionFault> {
    let bytes = take(rest, 4, what)?;
    Ok(bytes.iter().rev().fold(0, |value, &byte| value << 8 | u32::from(byte)))
}

fn put_u32(value: u32, out: &mut Vec<u8>) {
    out.extend((0..4).map(|i| (value >> (8 * i)) as u8));
}

fn header_checksum(descriptor: &[u8]) -> u8 {
    (twox_hash::XxHash32::oneshot(0, descriptor) >> 8) as u8
}

pub(super) fn decompress(
    stored: &[u8],
    out: &mut Vec<u8>,
    limits: &Limits,
    check_header: bool,
) -> Result<(), CompressionFault> {
    let mut rest = stored;
    if take(&mut rest, 4, "the magic number")? != MAGIC {
        return Err(damaged("no frame magic number"));
    }
    let descriptor = rest;
    let &[flg, bd] = take(&mut rest, 2, "the frame descriptor")? else {
        return Err(damaged("the frame descriptor is cut short"));
    };
    if flg >> 6 != 1 || flg & 0x03 != 0 || bd & 0x8f != 0 || bd >> 4 < 4 {
        return Err(damaged(format!("frame descriptor {flg:02x} {bd:02x}")));
    }
    if flg & 0x20 == 0 {
        return Err(damaged("linked blocks"));
    }
    let (block_checksums, has_content_size) = (flg & 0x10 != 0, flg & 0x08 != 0);
    let block_bytes_max = 1usize << (8 + 2 * (bd >> 4));
    if has_content_size {
        take(&mut rest, 8, "the content size")?;
    }
    let descriptor = &descriptor[..descriptor.len() - rest.len()];
    if take(&mut rest, 1, "the header checksum")?[0] != header_checksum(descriptor) && check_header {
        return Err(damaged("header checksum does not match"));
    }
    loop {
        let word = take_u32(&mut rest, "a block length")?;
        if word == 0 {
            return Ok(());
        }
        let (length, plain) = ((word & 0x7fff_ffff) as usize, word >> 31 != 0);
        if length > block_bytes_max {
            return Err(damaged(format!("block of {length} bytes in a frame of {block_bytes_max}")));
        }
        let block = take(&mut rest, length, "a block")?;
        if block_checksums
            && take_u32(&mut rest, "a block checksum")? != twox_hash::XxHash32::oneshot(0, block)
        {
            return Err(damaged("block checksum does not match"));
        }
        let room = limits.decompressed_bytes_max.saturating_sub(out.len());
        let too_large = CompressionFault::TooLarge { limit: limits.decompressed_bytes_max };
        if plain {
            if block.len() > room {
                return Err(too_large);
            }
            out.extend_from_slice(block);
        } else {
            // A sequence byte extends a match by at most 255 bytes, so small blocks need little memory.
            let most = block_bytes_max.min(block.len().saturating_mul(255) + 64);
            let start = out.len();
            out.resize(start + most, 0);
            let written = lz4_flex::block::decompress_into(block, &mut out[start..]).map_err(damaged)?;
            out.truncate(start + written);
            if written > room {
                return Err(too_large);
            }
        }
    }
}

pub(super) fn compress(records: &[u8], out: &mut Vec<u8>) -> Result<(), CompressionFault> {
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&[FLG, BD, header_checksum(&[FLG, BD])]);
    for block in records.chunks(BLOCK_BYTES) {
        let compressed = lz4_flex::block::compress(block);
        if compressed.len() < block.len() {
            put_u32(compressed.len() as u32, out);
            out.extend_from_slice(&compressed);
        } else {
            put_u32(block.len() as u32 | 1 << 31, out);
            out.extend_from_slice(block);
        }
    }
    put_u32(0, out);
    Ok(())
}
