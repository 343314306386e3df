//! gzip as `java.util.zip.GZIPInputStream` reads it: members in a row; what follows the last trailer without
//! being a member is ignored; a wrong trailer or a cut stream is an error.

use flate2::bufread::GzDecoder;
use flate2::write::GzEncoder;
use std::io::Write;

use super::{Compression, CompressionFault, Limits, read_bounded};

pub(super) fn decompress(stored: &[u8], out: &mut Vec<u8>, limits: &Limits) -> Result<(), CompressionFault> {
    let mut rest = stored;
    loop {
        let mut member = GzDecoder::new(rest);
        read_bounded(Compression::Gzip, &mut member, out, limits)?;
        rest = member.into_inner();
        // The next member is known by its magic number.
        if !rest.starts_with(&[0x1f, 0x8b]) {
            return Ok(());
        }
    }
}

pub(super) fn compress(
    level: Option<i32>,
    records: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), CompressionFault> {
    let level = level.map(|level| flate2::Compression::new(level.clamp(0, 9).unsigned_abs()));
    let mut encoder = GzEncoder::new(out, level.unwrap_or_default());
    encoder
        .write_all(records)
        .and_then(|()| encoder.try_finish())
        .map_err(|e| CompressionFault::Damaged { codec: Compression::Gzip, reason: e.to_string() })
}
