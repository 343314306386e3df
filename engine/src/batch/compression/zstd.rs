//! zstd frames in a row; anything behind the last one, and a cut stream, is an error.

use super::{Compression, CompressionFault, Limits, read_bounded};

/// The level that Kafka's `compression.zstd.level` has by default.
const LEVEL: i32 = 3;
/// Largest window that is accepted, as a power of two: 8 MiB suffices for every level below 20; a batch that
/// asks for more than 128 MiB is refused as the reference decoder does.
const WINDOW_LOG_MAX: u32 = 27;

fn damaged(reason: impl ToString) -> CompressionFault {
    CompressionFault::Damaged { codec: Compression::Zstd, reason: reason.to_string() }
}

pub(super) fn decompress(stored: &[u8], out: &mut Vec<u8>, limits: &Limits) -> Result<(), CompressionFault> {
    let mut decoder = zstd::stream::read::Decoder::with_buffer(stored).map_err(damaged)?;
    decoder.window_log_max(WINDOW_LOG_MAX).map_err(damaged)?;
    read_bounded(Compression::Zstd, &mut decoder, out, limits)
}

pub(super) fn compress(records: &[u8], out: &mut Vec<u8>) -> Result<(), CompressionFault> {
    zstd::stream::copy_encode(records, out, LEVEL).map_err(damaged)
}
