//! Message formats 0 and 1 (LegacyRecord, AbstractLegacyRecordBatch), which brokers since 4.0 read and never write.
//!
//! | byte | size | magic 0 | magic 1 |
//! |---|---|---|---|
//! | 0 | 8 | log offset, of the last inner message if compressed | same |
//! | 8 | 4 | size of what follows | same |
//! | 12 | 4 | CRC-32 (as in zlib) of byte 16 to the end | same |
//! | 16 | 1 | 0 | 1 |
//! | 17 | 1 | attributes: bits 0–2 codec | and bit 3 append time |
//! | 18 | 8 | – | timestamp in ms, −1 = none |
//! | 18 / 26 | 4 + n | key: i32 length (−1 = null), bytes | same |
//! | … | 4 + n | value: i32 length (−1 = null), bytes | same |
//!
//! A compressed message holds a stream of inner messages as its value. Inner offsets are absolute in magic 0 and
//! relative to the last inner one in magic 1. These formats know no producers, so they can be no part of a
//! transaction: the coordinator's log refuses them, other logs step over them by size and CRC.

use super::{Compression, CompressionFault, CrcMismatch, Decompressor, FrameFault, FramePrefix, Limits};
use crate::types::Offset;

/// Why a legacy message cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LegacyFault {
    /// The key or value goes past the end of the message, or bytes are left over.
    #[error("the {0} of a legacy message does not fit its size")]
    Field(&'static str),
    /// The codec is unknown, or not allowed in this format.
    #[error("codec id {id} in a message of magic {magic}")]
    Codec {
        /// Codec id from the attributes.
        id: u8,
        /// 0 or 1.
        magic: i8,
    },
    /// The wrapped messages do not decompress.
    #[error(transparent)]
    Compression(#[from] CompressionFault),
    /// The wrapped bytes are no sequence of whole messages.
    #[error("inner message: {0}")]
    Frame(#[from] FrameFault),
    /// A wrapped message has another format than its wrapper, or is itself compressed, or there is none.
    #[error("a wrapper of magic {0} with inner messages that are nested, absent or of another magic")]
    Nesting(i8),
}

/// One message of magic 0 or 1, borrowed: a record of its own, or a wrapper around compressed ones.
#[derive(Clone, Copy, Debug)]
pub struct LegacyMessage<'a> {
    bytes: &'a [u8],
}

type KeyAndValue<'a> = (Option<&'a [u8]>, Option<&'a [u8]>);

/// A record of a legacy message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LegacyRecord<'a> {
    /// Log offset.
    pub offset: Offset,
    /// Milliseconds since the epoch, −1 = none.
    pub timestamp: i64,
    /// `None` is a null key.
    pub key: Option<&'a [u8]>,
    /// `None` is a null value.
    pub value: Option<&'a [u8]>,
    /// CRC-32 as stored in the record's own message.
    pub crc: u32,
    /// Whether that CRC matches.
    pub is_valid: bool,
}

impl<'a> LegacyMessage<'a> {
    /// Takes the message at the front of `bytes`; the second value is what follows it.
    ///
    /// # Errors
    /// [`FrameFault`]: cut short, or not magic 0 or 1.
    pub fn parse(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), FrameFault> {
        let prefix = FramePrefix::parse(bytes, bytes.len() as u64)?;
        if prefix.magic > 1 {
            return Err(FrameFault::Magic { magic: prefix.magic });
        }
        let (message, rest) = bytes.split_at(prefix.size as usize);
        Ok((Self { bytes: message }, rest))
    }

    fn u32_at(&self, at: usize) -> u32 {
        self.bytes[at..at + 4].iter().fold(0, |value, &byte| value << 8 | u32::from(byte))
    }

    fn i64_at(&self, at: usize) -> i64 {
        self.bytes[at..at + 8].iter().fold(0, |value, &byte| value << 8 | i64::from(byte))
    }

    /// The offset field: of the record, or of the last one inside.
    pub fn offset(&self) -> Offset {
        Offset(self.i64_at(0))
    }

    /// Bytes of the whole message.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// 0 or 1.
    pub fn magic(&self) -> i8 {
        self.bytes[16] as i8
    }

    /// CRC-32 as stored.
    pub fn crc(&self) -> u32 {
        self.u32_at(12)
    }

    /// Codec of the inner messages.
    ///
    /// # Errors
    /// The codec id, where it names none.
    pub fn compression(&self) -> Result<Compression, u8> {
        Compression::from_id(self.bytes[17] & 0x07)
    }

    /// Timestamp in ms; −1 in magic 0.
    pub fn timestamp(&self) -> i64 {
        if self.magic() == 0 { -1 } else { self.i64_at(18) }
    }

    /// Whether the timestamp is the time of append (magic 1 only).
    pub fn is_log_append_time(&self) -> bool {
        self.magic() == 1 && self.bytes[17] & 0x08 != 0
    }

    /// Checks the CRC-32.
    ///
    /// # Errors
    /// [`CrcMismatch`] with both values.
    pub fn verify(&self) -> Result<(), CrcMismatch> {
        let (stored, computed) = (self.crc(), crc32fast::hash(&self.bytes[16..]));
        if stored == computed { Ok(()) } else { Err(CrcMismatch { stored, computed }) }
    }

    fn key_and_value(&self) -> Result<KeyAndValue<'a>, LegacyFault> {
        let mut rest = &self.bytes[if self.magic() == 0 { 18 } else { 26 }..];
        let key = read_nullable(&mut rest).ok_or(LegacyFault::Field("key"))?;
        let value = read_nullable(&mut rest).ok_or(LegacyFault::Field("value"))?;
        if rest.is_empty() { Ok((key, value)) } else { Err(LegacyFault::Field("end")) }
    }

    fn record(&self, offset: Offset, append_time: Option<i64>) -> Result<LegacyRecord<'a>, LegacyFault> {
        let (key, value) = self.key_and_value()?;
        Ok(LegacyRecord {
            offset,
            timestamp: append_time.unwrap_or_else(|| self.timestamp()),
            key,
            value,
            crc: self.crc(),
            is_valid: self.verify().is_ok(),
        })
    }

    /// The record, or the records inside, in log order. Memory: the decompressed bytes and a view per record.
    ///
    /// # Errors
    /// [`LegacyFault`].
    pub fn records<'b>(
        &self,
        decompressor: &'b mut Decompressor,
        limits: &Limits,
    ) -> Result<Vec<LegacyRecord<'b>>, LegacyFault>
    where
        'a: 'b,
    {
        let magic = self.magic();
        let compression = self.compression().map_err(|id| LegacyFault::Codec { id, magic })?;
        match compression {
            Compression::None => return Ok(vec![self.record(self.offset(), None)?]),
            // zstd came after these formats.
            Compression::Zstd => return Err(LegacyFault::Codec { id: compression.id(), magic }),
            _ => {}
        }
        let wrapped = self.key_and_value()?.1.unwrap_or_default();
        // Writers of magic 0 computed the header checksum of LZ4 frames over the wrong bytes.
        let mut rest = if magic == 0 && compression == Compression::Lz4 {
            decompressor.decompress_lz4_of_magic_0(wrapped, limits)?
        } else {
            decompressor.decompress(compression, wrapped, limits)?
        };
        let mut inner = Vec::new();
        while !rest.is_empty() {
            let (message, after) = LegacyMessage::parse(rest)?;
            if message.magic() != magic || message.compression() != Ok(Compression::None) {
                return Err(LegacyFault::Nesting(magic));
            }
            inner.push(message);
            rest = after;
        }
        let last = inner.last().ok_or(LegacyFault::Nesting(magic))?.offset().0;
        let outer = self.offset().0;
        let shift = if magic == 0 || outer == 0 { 0 } else { outer.wrapping_sub(last) };
        let append_time = self.is_log_append_time().then(|| self.timestamp());
        inner
            .iter()
            .map(|message| message.record(Offset(message.offset().0.wrapping_add(shift)), append_time))
            .collect()
    }
}

fn read_nullable<'a>(rest: &mut &'a [u8]) -> Option<Option<&'a [u8]>> {
    let (length, body) = rest.split_first_chunk()?;
    match i32::from_be_bytes(*length) {
        -1 => {
            *rest = body;
            Some(None)
        }
        length => {
            let (field, after) = body.split_at_checked(usize::try_from(length).ok()?)?;
            *rest = after;
            Some(Some(field))
        }
    }
}
