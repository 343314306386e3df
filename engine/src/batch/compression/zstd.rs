//! zstd frames in a row; anything behind the last one, and a cut stream, is an error.

use super::{Compression, CompressionFault, Limits, read_bounded};

/// The level that Kafka's `compression.zstd.level` has by default.
const LEVEL: i32 = 3;
/// The range of that setting.
const LEVEL_MIN: i32 = -131_072;
const LEVEL_MAX: i32 = 22;
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

pub(super) fn compress(
    level: Option<i32>,
    records: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), CompressionFault> {
    zstd::stream::copy_encode(records, out, level.map_or(LEVEL, |level| level.clamp(LEVEL_MIN, LEVEL_MAX)))
        .map_err(damaged)
}
