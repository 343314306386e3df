//! Kafka's codecs, with the framing that Kafka puts around them.

use std::borrow::Cow;
use std::io::Read;

use flate2::bufread::GzDecoder;
use twox_hash::XxHash32;

/// What a snappy stream of Kafka begins with: a mark of eight bytes, then two version numbers of four.
const SNAPPY_MARK: &[u8; 8] = b"\x82SNAPPY\0";
const SNAPPY_HEADER_BYTES: usize = 16;
/// No encoding of snappy expands a byte to more than this many (it is 21 and a bit).
const SNAPPY_RATIO_MAX: usize = 32;
/// What an LZ4 frame begins with.
const LZ4_MARK: &[u8; 4] = b"\x04\x22\x4d\x18";
const LZ4_CUT_SHORT: &str = "the LZ4 frame is cut short";

/// Decompresses the records of a batch to at most `bytes_max` bytes. `codec` is the number in the attributes.
pub(super) fn decompress(codec: i16, input: &[u8], bytes_max: usize) -> Result<Cow<'_, [u8]>, String> {
    match codec {
        0 => Ok(Cow::Borrowed(input)),
        1 => gzip(input, bytes_max).map(Cow::Owned),
        2 => snappy(input, bytes_max).map(Cow::Owned),
        3 => lz4(input, bytes_max).map(Cow::Owned),
        4 => zstd(input, bytes_max).map(Cow::Owned),
        _ => Err(format!("there is no codec {codec}")),
    }
}

/// Members one after the other; what follows the last one and is no member is ignored, as in Java.
fn gzip(mut input: &[u8], bytes_max: usize) -> Result<Vec<u8>, String> {
    let mut output = Vec::new();
    loop {
        let mut member = GzDecoder::new(input);
        read_at_most(&mut member, bytes_max, &mut output)?;
        input = member.into_inner();
        if !input.starts_with(b"\x1f\x8b") {
            return Ok(output);
        }
    }
}

/// Frames one after the other, nothing after them.
fn zstd(input: &[u8], bytes_max: usize) -> Result<Vec<u8>, String> {
    let mut frames = zstd::stream::read::Decoder::with_buffer(input).map_err(|error| error.to_string())?;
    let mut output = Vec::new();
    read_at_most(&mut frames, bytes_max, &mut output)?;
    Ok(output)
}

fn read_at_most(stream: &mut impl Read, bytes_max: usize, output: &mut Vec<u8>) -> Result<(), String> {
    // One byte more than allowed, so that a stream of exactly the limit is still read to its end and checked.
    let room = (bytes_max - output.len()) as u64 + 1;
    stream.take(room).read_to_end(output).map_err(|error| error.to_string())?;
    if output.len() > bytes_max { Err(too_large(bytes_max)) } else { Ok(()) }
}

/// Blocks of [length, block] behind a header that may come again, or one bare block without a header.
fn snappy(mut input: &[u8], bytes_max: usize) -> Result<Vec<u8>, String> {
    let mut output = Vec::new();
    if !input.starts_with(SNAPPY_MARK) {
        snappy_block(input, bytes_max, &mut output)?;
        return Ok(output);
    }
    loop {
        if input.starts_with(SNAPPY_MARK) {
            input = input.get(SNAPPY_HEADER_BYTES..).ok_or("the snappy header is cut short")?;
        }
        // Java takes fewer than four bytes for the end of the stream.
        let Some((length, rest)) = input.split_first_chunk::<4>() else { return Ok(output) };
        let length =
            usize::try_from(i32::from_be_bytes(*length)).map_err(|_| "negative length of a snappy block")?;
        let (block, rest) = rest.split_at_checked(length).ok_or("a snappy block is cut short")?;
        snappy_block(block, bytes_max, &mut output)?;
        input = rest;
    }
}

fn snappy_block(block: &[u8], bytes_max: usize, output: &mut Vec<u8>) -> Result<(), String> {
    let bytes = snap::raw::decompress_len(block).map_err(|error| error.to_string())?;
    if bytes > block.len().saturating_mul(SNAPPY_RATIO_MAX) {
        return Err("a snappy block claims more bytes than it can hold".to_owned());
    }
    if bytes > bytes_max - output.len() {
        return Err(too_large(bytes_max));
    }
    output.extend(snap::raw::Decoder::new().decompress_vec(block).map_err(|error| error.to_string())?);
    Ok(())
}

/// One frame of independent blocks. Kafka checks the header's checksum and the blocks', not the content's, and
/// ignores what follows the end mark.
#[expect(clippy::little_endian_bytes, reason = "the inside of an LZ4 frame is little-endian")]
fn lz4(input: &[u8], bytes_max: usize) -> Result<Vec<u8>, String> {
    let mut rest = input.strip_prefix(LZ4_MARK).ok_or("no LZ4 frame")?;
    let [flags, block_descriptor] = *lz4_array(&mut rest)?;
    if flags & 0b1100_0011 != 0b0100_0000 {
        return Err("LZ4 frame of another version".to_owned());
    }
    if flags & 0b0010_0000 == 0 {
        return Err("LZ4 blocks that need the one before them".to_owned());
    }
    let block_bytes_max: usize = match block_descriptor {
        0x40 => 64 << 10,
        0x50 => 256 << 10,
        0x60 => 1 << 20,
        0x70 => 4 << 20,
        _ => return Err("bad LZ4 block size".to_owned()),
    };
    let mut descriptor = vec![flags, block_descriptor];
    if flags & 0b0000_1000 != 0 {
        descriptor.extend(lz4_array::<8>(&mut rest)?);
    }
    if *lz4_array(&mut rest)? != [(XxHash32::oneshot(0, &descriptor) >> 8) as u8] {
        return Err("the LZ4 header's checksum differs".to_owned());
    }
    let mut output = Vec::new();
    let mut block = vec![0; block_bytes_max];
    loop {
        let size = u32::from_le_bytes(*lz4_array(&mut rest)?);
        if size == 0 {
            return Ok(output);
        }
        let (stored, after) = rest.split_at_checked((size & 0x7fff_ffff) as usize).ok_or(LZ4_CUT_SHORT)?;
        rest = after;
        if flags & 0b0001_0000 != 0 {
            let checksum = u32::from_le_bytes(*lz4_array(&mut rest)?);
            if checksum != XxHash32::oneshot(0, stored) {
                return Err("an LZ4 block's checksum differs".to_owned());
            }
        }
        if size >> 31 == 1 {
            if stored.len() > block_bytes_max {
                return Err("an LZ4 block is larger than its frame allows".to_owned());
            }
            output.extend(stored);
        } else {
            let bytes =
                lz4_flex::block::decompress_into(stored, &mut block).map_err(|error| error.to_string())?;
            output.extend(&block[..bytes]);
        }
        if output.len() > bytes_max {
            return Err(too_large(bytes_max));
        }
    }
}

fn lz4_array<'a, const N: usize>(rest: &mut &'a [u8]) -> Result<&'a [u8; N], String> {
    let (head, tail) = rest.split_first_chunk().ok_or(LZ4_CUT_SHORT)?;
    *rest = tail;
    Ok(head)
}

fn too_large(bytes_max: usize) -> String {
    format!("the records have more than {bytes_max} bytes")
}
