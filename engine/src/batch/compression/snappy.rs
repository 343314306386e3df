//! snappy in the xerial framing of snappy-java, which Kafka uses: a 16-byte header, then blocks of a 32-bit
//! length and a raw snappy block. A stream without that header is one raw block.
//!
//! | byte | size | field |
//! |---|---|---|
//! | 0 | 8 | `82 53 4e 41 50 50 59 00` |
//! | 8 | 4 | version |
//! | 12 | 4 | lowest compatible version |
//! | 16 | 4 + n | blocks: length i32, raw snappy block |
//!
//! A second header may stand where a block would begin; up to three bytes behind the last block are ignored.

use super::{Compression, CompressionFault, Limits};

const MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
const HEADER_LEN: usize = 16;
/// Input bytes per block that snappy-java writes.
const BLOCK_BYTES: usize = 32 << 10;
const VERSION: i32 = 1;

fn damaged(reason: impl ToString) -> CompressionFault {
    CompressionFault::Damaged { codec: Compression::Snappy, reason: reason.to_string() }
}

pub(super) fn decompress(stored: &[u8], out: &mut Vec<u8>, limits: &Limits) -> Result<(), CompressionFault> {
    if !stored.starts_with(&MAGIC) {
        return raw_block(stored, out, limits);
    }
    let mut rest = stored;
    while !rest.is_empty() {
        if rest.starts_with(&MAGIC) {
            rest = rest.get(HEADER_LEN..).ok_or_else(|| damaged("the header is cut short"))?;
            continue;
        }
        // snappy-java takes fewer than four bytes for the end of the stream (asked of the one in Kafka 4.4.0).
        let Some((length, body)) = rest.split_first_chunk() else { break };
        let length = i32::from_be_bytes(*length);
        let length = usize::try_from(length).map_err(|_| damaged(format!("block length {length}")))?;
        let (block, after) = body.split_at_checked(length).ok_or_else(|| damaged("a block is cut short"))?;
        raw_block(block, out, limits)?;
        rest = after;
    }
    Ok(())
}

fn raw_block(block: &[u8], out: &mut Vec<u8>, limits: &Limits) -> Result<(), CompressionFault> {
    let promised = snap::raw::decompress_len(block).map_err(damaged)?;
    if promised > limits.decompressed_bytes_max.saturating_sub(out.len()) {
        return Err(CompressionFault::TooLarge { limit: limits.decompressed_bytes_max });
    }
    // The longest copy element makes 64 bytes of three: a larger promise is a lie, and no memory is taken for it.
    if promised / 64 > block.len() {
        return Err(damaged(format!("{} bytes cannot expand to {promised}", block.len())));
    }
    let start = out.len();
    out.resize(start + promised, 0);
    let written = snap::raw::Decoder::new().decompress(block, &mut out[start..]).map_err(damaged)?;
    out.truncate(start + written);
    Ok(())
}

pub(super) fn compress(records: &[u8], out: &mut Vec<u8>) -> Result<(), CompressionFault> {
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&VERSION.to_be_bytes());
    out.extend_from_slice(&VERSION.to_be_bytes());
    let mut encoder = snap::raw::Encoder::new();
    for block in records.chunks(BLOCK_BYTES) {
        let compressed = encoder.compress_vec(block).map_err(damaged)?;
        out.extend_from_slice(&(compressed.len() as i32).to_be_bytes());
        out.extend_from_slice(&compressed);
    }
    Ok(())
}
