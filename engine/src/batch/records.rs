//! Records inside a batch, one borrowed view at a time.

use super::frame::BatchFrame;
use super::varint::{read_varint, read_varlong};
use super::{CompressionFault, increment_sequence};
use crate::types::Offset;

/// Why the records of a batch cannot be read at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordsFault {
    /// The attribute bits name no codec.
    #[error("compression codec id {0} is not defined")]
    UnknownCodec(u8),
    /// The records do not decompress.
    #[error(transparent)]
    Compression(#[from] CompressionFault),
}

/// Why a record cannot be read. Kafka refuses the whole batch then, and so must the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("record {index} of {count}: {what}")]
pub struct RecordFault {
    /// Number of the record in its batch, from 0.
    pub index: i32,
    /// Records the header promises.
    pub count: i32,
    /// What is wrong with it.
    pub what: RecordDamage,
}

/// The ways in which a record can be malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordDamage {
    /// A variable-length integer has no end within its limit or the bytes run out.
    #[error("variable-length integer of {0} has no end")]
    Varint(&'static str),
    /// The record's length field is negative or larger than what is left of the batch.
    #[error("length {length} with {left} bytes left in the batch")]
    Length {
        /// The length field.
        length: i32,
        /// Bytes of the batch behind it.
        left: usize,
    },
    /// A field goes past the end of its record.
    #[error("{0} goes past the end of the record")]
    PastEnd(&'static str),
    /// The fields use fewer bytes than the record's length.
    #[error("{0} bytes left over inside the record")]
    LeftOver(usize),
    /// The number of headers is negative or cannot fit.
    #[error("header count {0}")]
    HeaderCount(i32),
    /// A header key has a negative length.
    #[error("header key length {0}")]
    HeaderKey(i32),
    /// Bytes follow the last record of the batch.
    #[error("{0} bytes follow the last record of the batch")]
    Trailing(usize),
}

/// One record, borrowed from its batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Log offset.
    pub offset: Offset,
    /// Milliseconds since the epoch, −1 = none.
    pub timestamp: i64,
    /// Sequence number, −1 = none.
    pub sequence: i32,
    /// `None` is a null key.
    pub key: Option<&'a [u8]>,
    /// `None` is a null value: a tombstone in a compacted log.
    pub value: Option<&'a [u8]>,
    /// Bytes of the record with its length field, decompressed.
    pub size: usize,
    headers: Headers<'a>,
}

impl<'a> Record<'a> {
    /// The headers in stored order.
    pub fn headers(&self) -> Headers<'a> {
        self.headers
    }
}

/// One header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    /// UTF-8 by contract, not checked.
    pub key: &'a [u8],
    /// `None` is a null value.
    pub value: Option<&'a [u8]>,
}

/// Iterator over the headers of a record. They were checked when the record was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers<'a> {
    bytes: &'a [u8],
    left: i32,
}

impl<'a> Iterator for Headers<'a> {
    type Item = Header<'a>;

    fn next(&mut self) -> Option<Header<'a>> {
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        read_header(&mut self.bytes).ok()
    }
}

/// Iterator over the records of a batch; ends after the first error.
///
/// Offsets are taken as stored: whether they rise and lie inside the batch is for the caller to judge, as in
/// Kafka.
///
/// Cost: one pass over the bytes, nothing allocated.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    bytes: &'a [u8],
    index: i32,
    count: i32,
    base_offset: i64,
    base_sequence: i32,
    base_timestamp: i64,
    /// Overrides every record's time in a batch with append time.
    append_time: Option<i64>,
}

impl<'a> Records<'a> {
    pub(super) fn new(frame: &BatchFrame<'_>, bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            index: 0,
            count: frame.records_count(),
            base_offset: frame.base_offset().0,
            base_sequence: frame.base_sequence(),
            base_timestamp: frame.base_timestamp(),
            append_time: frame.is_log_append_time().then(|| frame.max_timestamp()),
        }
    }

    fn read(&mut self) -> Result<Record<'a>, RecordDamage> {
        let before = self.bytes.len();
        let length = read_varint(&mut self.bytes).ok_or(RecordDamage::Varint("the record length"))?;
        let left = self.bytes.len();
        if length < 0 || length as usize > left {
            return Err(RecordDamage::Length { length, left });
        }
        let (mut body, rest) = self.bytes.split_at(length as usize);
        // The attribute byte of a record is unused; any value is accepted.
        body = body.get(1..).ok_or(RecordDamage::PastEnd("attributes"))?;
        let timestamp_delta = read_varlong(&mut body).ok_or(RecordDamage::Varint("the timestamp delta"))?;
        let offset_delta = read_varint(&mut body).ok_or(RecordDamage::Varint("the offset delta"))?;
        let key = read_nullable(&mut body, "key")?;
        let value = read_nullable(&mut body, "value")?;
        let header_count = read_varint(&mut body).ok_or(RecordDamage::Varint("the header count"))?;
        let headers = Headers { bytes: body, left: header_count };
        if header_count != 0 {
            // A header takes at least two bytes, so a count beyond the bytes left is refused unread.
            if header_count < 0 || header_count as usize > body.len() {
                return Err(RecordDamage::HeaderCount(header_count));
            }
            for _ in 0..header_count {
                read_header(&mut body)?;
            }
        }
        if !body.is_empty() {
            return Err(RecordDamage::LeftOver(body.len()));
        }
        self.bytes = rest;
        self.index += 1;
        if self.index == self.count && !rest.is_empty() {
            return Err(RecordDamage::Trailing(rest.len()));
        }
        Ok(Record {
            offset: Offset(self.base_offset.wrapping_add(i64::from(offset_delta))),
            timestamp: self.append_time.unwrap_or_else(|| self.base_timestamp.wrapping_add(timestamp_delta)),
            sequence: if self.base_sequence >= 0 {
                increment_sequence(self.base_sequence, offset_delta)
            } else {
                -1
            },
            key,
            value,
            size: before - rest.len(),
            headers,
        })
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, RecordFault>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.count < 0 {
            // A negative count is caught by the frame; a tool that skipped that check gets it here.
            let fault =
                RecordFault { index: 0, count: self.count, what: RecordDamage::Trailing(self.bytes.len()) };
            self.count = 0;
            return Some(Err(fault));
        }
        if self.index >= self.count {
            return None;
        }
        let index = self.index;
        Some(self.read().map_err(|what| {
            let count = self.count;
            self.count = 0;
            RecordFault { index, count, what }
        }))
    }
}

fn read_nullable<'a>(bytes: &mut &'a [u8], what: &'static str) -> Result<Option<&'a [u8]>, RecordDamage> {
    let length = read_varint(bytes).ok_or(RecordDamage::Varint(what))?;
    if length < 0 {
        // Kafka writes −1 only; it reads any negative length as null.
        return Ok(None);
    }
    let (field, rest) = bytes.split_at_checked(length as usize).ok_or(RecordDamage::PastEnd(what))?;
    *bytes = rest;
    Ok(Some(field))
}

fn read_header<'a>(bytes: &mut &'a [u8]) -> Result<Header<'a>, RecordDamage> {
    let length = read_varint(bytes).ok_or(RecordDamage::Varint("a header key"))?;
    if length < 0 {
        return Err(RecordDamage::HeaderKey(length));
    }
    let (key, rest) = bytes.split_at_checked(length as usize).ok_or(RecordDamage::PastEnd("a header key"))?;
    *bytes = rest;
    Ok(Header { key, value: read_nullable(bytes, "a header value")? })
}
