//! The codecs of the records block, in the framings that Kafka writes and reads (Compression, CompressionType).
//!
//! | id | codec | framing | feature |
//! |---|---|---|---|
//! | 0 | none | | |
//! | 1 | gzip | RFC 1952, several members | `gzip` |
//! | 2 | snappy | xerial stream, or one raw block | `snappy` |
//! | 3 | lz4 | frame, independent blocks | `lz4` |
//! | 4 | zstd | frames | `zstd` |
//!
//! A codec that was left out of the build gives [`CompressionFault::Unsupported`]; nothing else changes.
//! Compressed bytes differ between encoders: batches that are moved unchanged keep their bytes.

#[cfg(feature = "gzip")]
mod gzip;
#[cfg(feature = "lz4")]
mod lz4;
#[cfg(feature = "snappy")]
mod snappy;
#[cfg(feature = "zstd")]
mod zstd;

use std::fmt;

/// Bounds on what a batch may ask for beyond the bytes it has on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Largest decompressed size of one batch, in bytes. Default 256 MiB.
    pub decompressed_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { decompressed_bytes_max: 256 << 20 }
    }
}

impl Limits {
    /// These limits with another largest decompressed size, in bytes.
    pub fn with_decompressed_bytes_max(mut self, bytes: usize) -> Self {
        self.decompressed_bytes_max = bytes;
        self
    }
}

/// Codec of a batch's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Compression {
    /// 0
    None = 0,
    /// 1
    Gzip = 1,
    /// 2
    Snappy = 2,
    /// 3
    Lz4 = 3,
    /// 4
    Zstd = 4,
}

impl Compression {
    /// Every codec, by id.
    pub const ALL: [Self; 5] = [Self::None, Self::Gzip, Self::Snappy, Self::Lz4, Self::Zstd];

    /// The codec with this id.
    ///
    /// # Errors
    /// The id itself where it is not defined.
    pub fn from_id(id: u8) -> Result<Self, u8> {
        Self::ALL.get(usize::from(id)).copied().ok_or(id)
    }

    /// Id in the attributes.
    pub fn id(self) -> u8 {
        self as u8
    }

    /// Kafka's name.
    pub fn name(self) -> &'static str {
        ["none", "gzip", "snappy", "lz4", "zstd"][usize::from(self.id())]
    }

    /// Whether this build can read the codec.
    pub fn is_supported(self) -> bool {
        match self {
            Self::None => true,
            Self::Gzip => cfg!(feature = "gzip"),
            Self::Snappy => cfg!(feature = "snappy"),
            Self::Lz4 => cfg!(feature = "lz4"),
            Self::Zstd => cfg!(feature = "zstd"),
        }
    }

    /// Compresses a records block with the codec's default level, appending to `out`.
    ///
    /// # Errors
    /// [`CompressionFault::Unsupported`] for a codec that was left out of the build.
    pub fn compress(self, records: &[u8], out: &mut Vec<u8>) -> Result<(), CompressionFault> {
        self.compress_at(None, records, out)
    }

    /// Compresses a records block with a level, appending to `out`: 0 to 9 for gzip, −131072 to 22 for zstd; beyond
    /// its range the nearest in it. `None` is the codec's default, and the only one of lz4 and snappy, whose encoders
    /// here know no levels.
    ///
    /// # Errors
    /// [`CompressionFault::Unsupported`] for a codec that was left out of the build.
    #[cfg_attr(
        not(any(feature = "gzip", feature = "zstd")),
        expect(unused_variables, reason = "the codecs of this build know no levels")
    )]
    pub fn compress_at(
        self,
        level: Option<i32>,
        records: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), CompressionFault> {
        match self {
            Self::None => {
                out.extend_from_slice(records);
                Ok(())
            }
            #[cfg(feature = "gzip")]
            Self::Gzip => gzip::compress(level, records, out),
            #[cfg(feature = "snappy")]
            Self::Snappy => snappy::compress(records, out),
            #[cfg(feature = "lz4")]
            Self::Lz4 => lz4::compress(records, out),
            #[cfg(feature = "zstd")]
            Self::Zstd => zstd::compress(level, records, out),
            #[cfg(not(all(feature = "gzip", feature = "snappy", feature = "lz4", feature = "zstd")))]
            _ => Err(CompressionFault::Unsupported(self)),
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a records block cannot be decompressed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CompressionFault {
    /// This build has no support for the codec.
    #[error("this build cannot read {0} (its feature is switched off)")]
    Unsupported(Compression),
    /// The compressed bytes are damaged.
    #[error("{codec} stream: {reason}")]
    Damaged {
        /// The codec.
        codec: Compression,
        /// What is wrong, from the decoder.
        reason: String,
    },
    /// The records would take more memory than allowed.
    #[error("records decompress to more than the limit of {limit} bytes")]
    TooLarge {
        /// [`Limits::decompressed_bytes_max`].
        limit: usize,
    },
}

/// A buffer that compressed records are unpacked into, reused from batch to batch.
///
/// It grows with what is really decompressed, never by what a header promises, and never above the limit.
#[derive(Debug, Default)]
pub struct Decompressor {
    buffer: Vec<u8>,
}

impl Decompressor {
    /// An empty buffer.
    pub fn new() -> Self {
        Self::default()
    }

    /// Decompresses one records block; the result lives until the next call.
    ///
    /// # Errors
    /// [`CompressionFault`].
    #[cfg_attr(
        not(any(feature = "gzip", feature = "snappy", feature = "lz4", feature = "zstd")),
        expect(unused_variables, reason = "without codecs nothing is decompressed")
    )]
    pub fn decompress(
        &mut self,
        compression: Compression,
        stored: &[u8],
        limits: &Limits,
    ) -> Result<&[u8], CompressionFault> {
        self.buffer.clear();
        match compression {
            Compression::None => self.buffer.extend_from_slice(stored),
            #[cfg(feature = "gzip")]
            Compression::Gzip => gzip::decompress(stored, &mut self.buffer, limits)?,
            #[cfg(feature = "snappy")]
            Compression::Snappy => snappy::decompress(stored, &mut self.buffer, limits)?,
            #[cfg(feature = "lz4")]
            Compression::Lz4 => lz4::decompress(stored, &mut self.buffer, limits, true)?,
            #[cfg(feature = "zstd")]
            Compression::Zstd => zstd::decompress(stored, &mut self.buffer, limits)?,
            #[cfg(not(all(feature = "gzip", feature = "snappy", feature = "lz4", feature = "zstd")))]
            _ => return Err(CompressionFault::Unsupported(compression)),
        }
        Ok(&self.buffer)
    }

    /// As [`decompress`](Self::decompress) for LZ4, without a look at the frame's header checksum.
    #[cfg_attr(not(feature = "lz4"), expect(unused_variables, reason = "refused before a look at the bytes"))]
    pub(super) fn decompress_lz4_of_magic_0(
        &mut self,
        stored: &[u8],
        limits: &Limits,
    ) -> Result<&[u8], CompressionFault> {
        self.buffer.clear();
        #[cfg(not(feature = "lz4"))]
        return Err(CompressionFault::Unsupported(Compression::Lz4));
        #[cfg(feature = "lz4")]
        {
            lz4::decompress(stored, &mut self.buffer, limits, false)?;
            Ok(&self.buffer)
        }
    }
}

/// Reads `reader` to its end into `out`, refusing to hold more than the limit.
#[cfg(any(feature = "gzip", feature = "zstd"))]
fn read_bounded(
    codec: Compression,
    reader: &mut dyn std::io::Read,
    out: &mut Vec<u8>,
    limits: &Limits,
) -> Result<(), CompressionFault> {
    use std::io::Read;
    let room = limits.decompressed_bytes_max.saturating_sub(out.len());
    let read = reader
        .take(room as u64 + 1)
        .read_to_end(out)
        .map_err(|e| CompressionFault::Damaged { codec, reason: e.to_string() })?;
    if read > room {
        return Err(CompressionFault::TooLarge { limit: limits.decompressed_bytes_max });
    }
    Ok(())
}
