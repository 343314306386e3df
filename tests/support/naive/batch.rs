//! Record batches of format 2, and the records in them.

use std::borrow::Cow;

use super::codecs;
use super::error::Reason;
use super::reader::{Bad, Reader};

/// Bytes of the header; also the smallest batch.
const HEADER_BYTES: u64 = 61;
/// Bytes before what the length field counts.
const LENGTH_END: u64 = 12;
/// Bytes that must be left for Kafka to look for a batch at all.
const LEFT_MIN: u64 = 18;
/// A length field below this is none, in any format: it would not even reach the CRC of the oldest one.
const LENGTH_MIN: i32 = 14;
/// Byte position from which on the CRC covers the batch.
const CRC_END: usize = 21;

/// Fields of the header, in their order, all big-endian.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Offset of the first record as it was written.
    pub base_offset: i64,
    /// Bytes after this field.
    pub length: i32,
    /// Epoch of the leader that appended the batch, -1 for none.
    pub partition_leader_epoch: i32,
    /// Format, always 2.
    pub magic: i8,
    /// CRC-32C of what follows this field.
    pub crc: u32,
    /// Bits 0 to 2 codec, 3 append time, 4 transactional, 5 control, 6 delete horizon.
    pub attributes: i16,
    /// Last offset minus base offset.
    pub last_offset_delta: i32,
    /// What the records' time deltas refer to, or the delete horizon.
    pub base_timestamp: i64,
    /// Largest time of a record, or the append time.
    pub max_timestamp: i64,
    /// Producer id, -1 for none.
    pub producer_id: i64,
    /// Producer epoch, -1 for none.
    pub producer_epoch: i16,
    /// Sequence of the first record, -1 for none.
    pub base_sequence: i32,
    /// Number of records.
    pub records_count: i32,
}

impl Header {
    fn read(bytes: &[u8]) -> Result<Self, Bad> {
        let mut reader = Reader(bytes);
        Ok(Self {
            base_offset: reader.i64()?,
            length: reader.i32()?,
            partition_leader_epoch: reader.i32()?,
            magic: reader.i8()?,
            crc: reader.u32()?,
            attributes: reader.i16()?,
            last_offset_delta: reader.i32()?,
            base_timestamp: reader.i64()?,
            max_timestamp: reader.i64()?,
            producer_id: reader.i64()?,
            producer_epoch: reader.i16()?,
            base_sequence: reader.i32()?,
            records_count: reader.i32()?,
        })
    }

    /// Offset of the last record as it was written.
    pub fn last_offset(&self) -> Result<i64, Reason> {
        let last_offset = self.base_offset.checked_add(i64::from(self.last_offset_delta));
        last_offset.ok_or(Reason::Header("the last offset is out of range"))
    }

    /// Whether the records are markers or other control records.
    pub fn is_control(&self) -> bool {
        self.attributes & 0x20 != 0
    }

    fn has_append_time(&self) -> bool {
        self.attributes & 0x08 != 0
    }
}

/// A batch with a sane header and a right CRC.
#[derive(Clone, Debug)]
pub struct Batch<'a> {
    /// The header.
    pub header: Header,
    /// The whole batch.
    pub bytes: &'a [u8],
}

/// One record. Slices refer to the decompressed records of its batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Log offset.
    pub offset: i64,
    /// Milliseconds since 1970, -1 for none.
    pub timestamp: i64,
    /// Key, `None` for null.
    pub key: Option<&'a [u8]>,
    /// Value, `None` for null.
    pub value: Option<&'a [u8]>,
    /// Header keys and values.
    pub headers: Vec<(&'a [u8], Option<&'a [u8]>)>,
}

/// The batch at the front of `bytes`, or `None` where more bytes are needed to see the whole of it. `file_bytes`
/// is the number of bytes from here to the end of the file: a batch that the file cannot hold is an error.
pub fn next_batch(bytes: &[u8], file_bytes: u64) -> Result<Option<Batch<'_>>, Reason> {
    if file_bytes == 0 {
        return Ok(None);
    }
    if file_bytes < LEFT_MIN {
        return Err(Reason::CutShort { bytes: file_bytes });
    }
    let Some(size) = batch_bytes(bytes) else { return Ok(None) };
    if size < LENGTH_END + LENGTH_MIN as u64 {
        return Err(Reason::Header("the length is too small for a batch"));
    }
    if size > file_bytes {
        return Err(Reason::CutShort { bytes: file_bytes });
    }
    let Some(bytes) = usize::try_from(size).ok().and_then(|size| bytes.get(..size)) else { return Ok(None) };
    match bytes[16] {
        2 if size >= HEADER_BYTES => {}
        2 => return Err(Reason::Header("the length is too small for a batch of format 2")),
        0 | 1 => return Err(Reason::Header("a message of format 0 or 1 has no place in this log")),
        _ => return Err(Reason::Header("unknown format")),
    }
    let header = Header::read(bytes).map_err(Reason::Header)?;
    let computed = crc32c::crc32c(&bytes[CRC_END..]);
    if header.crc != computed {
        return Err(Reason::Crc { stored: header.crc, computed });
    }
    if header.base_offset < 0 || header.last_offset_delta < 0 || header.records_count < 0 {
        return Err(Reason::Header("a negative offset or count"));
    }
    Ok(Some(Batch { header, bytes }))
}

/// Size that the batch at the front of `bytes` claims, at least 12; `None` where its length field is not there.
/// A negative length claims 12 bytes, which is refused like any other that is too small.
pub(super) fn batch_bytes(bytes: &[u8]) -> Option<u64> {
    let length = bytes.get(8..12)?.first_chunk::<4>()?;
    Some(LENGTH_END + u64::try_from(i32::from_be_bytes(*length)).unwrap_or(0))
}

impl<'a> Batch<'a> {
    /// The records' bytes. Those of a batch without records are not looked at.
    pub fn decompress(&self, bytes_max: usize) -> Result<Cow<'a, [u8]>, Reason> {
        let payload = &self.bytes[HEADER_BYTES as usize..];
        if self.header.records_count == 0 {
            return Ok(Cow::Borrowed(&[]));
        }
        codecs::decompress(self.header.attributes & 7, payload, bytes_max).map_err(Reason::Codec)
    }

    /// All records: as many as the header says, no byte left over.
    pub fn records<'p>(&self, payload: &'p [u8]) -> Result<Vec<Record<'p>>, Reason> {
        let mut reader = Reader(payload);
        let mut records: Vec<Record<'p>> = Vec::new();
        for _ in 0..self.header.records_count {
            let record = self.record(&mut reader).map_err(Reason::Record)?;
            if records.last().is_some_and(|before| before.offset >= record.offset) {
                return Err(Reason::Record("offsets do not increase within the batch"));
            }
            records.push(record);
        }
        if !reader.0.is_empty() {
            return Err(Reason::Record("bytes are left after the last record"));
        }
        Ok(records)
    }

    fn record<'p>(&self, batch: &mut Reader<'p>) -> Result<Record<'p>, Bad> {
        let length = usize::try_from(batch.varint()?).map_err(|_| "negative length")?;
        let mut reader = Reader(batch.take(length)?);
        let _attributes = reader.i8()?;
        let timestamp_delta = reader.varlong()?;
        let offset_delta = reader.varint()?;
        let key = nullable(&mut reader)?;
        let value = nullable(&mut reader)?;
        let mut headers = Vec::new();
        let headers_count = reader.varint()?;
        if headers_count < 0 {
            return Err("negative number of headers");
        }
        for _ in 0..headers_count {
            let key = nullable(&mut reader)?.ok_or("a header without a key")?;
            headers.push((key, nullable(&mut reader)?));
        }
        if !reader.0.is_empty() {
            return Err("the fields are shorter than the record's length");
        }
        if !(0..=self.header.last_offset_delta).contains(&offset_delta) {
            return Err("the offset lies outside the batch");
        }
        let timestamp = if self.header.has_append_time() {
            self.header.max_timestamp
        } else {
            self.header.base_timestamp.wrapping_add(timestamp_delta)
        };
        let offset = self.header.base_offset + i64::from(offset_delta);
        Ok(Record { offset, timestamp, key, value, headers })
    }
}

/// A length and that many bytes; any negative length is null, as in Kafka.
fn nullable<'p>(reader: &mut Reader<'p>) -> Result<Option<&'p [u8]>, Bad> {
    match usize::try_from(reader.varint()?) {
        Ok(length) => reader.take(length).map(Some),
        Err(_) => Ok(None),
    }
}
