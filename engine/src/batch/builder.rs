//! The way back: batches as Kafka's writers lay them out (MemoryRecordsBuilder, DefaultRecord).

use super::varint::{write_varint, write_varlong};
use super::{CRC_START, Compression, CompressionFault, EndTransactionMarker, HEADER_LEN, LOG_OVERHEAD};
use crate::types::{Offset, ProducerId};

/// A record to be written; borrowed.
#[derive(Clone, Debug, Default)]
pub struct NewRecord<'a> {
    /// Milliseconds since the epoch, −1 = none.
    pub timestamp: i64,
    /// `None` is a null key.
    pub key: Option<&'a [u8]>,
    /// `None` is a tombstone.
    pub value: Option<&'a [u8]>,
    /// Header names and values, in this order.
    pub headers: &'a [(&'a [u8], Option<&'a [u8]>)],
}

/// Why a batch cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildFault {
    /// The codec is not in this build, or failed.
    #[error(transparent)]
    Compression(#[from] CompressionFault),
    /// The offset does not rise, or lies more than 2^31 − 1 above the base offset.
    #[error("offset {offset} cannot follow offset {previous} in a batch with base offset {base}")]
    Offset {
        /// The record's offset.
        offset: Offset,
        /// The last offset so far.
        previous: Offset,
        /// The base offset of the batch.
        base: Offset,
    },
    /// The delete horizon was set when records already referred to another time.
    #[error("a delete horizon must be set before the first record")]
    LateDeleteHorizon,
    /// The batch or a field of it would be larger than its 31-bit length can say.
    #[error("a batch cannot hold {0} bytes")]
    TooLarge(usize),
}

/// Builds one batch of magic 2.
///
/// The base timestamp is that of the first record, unless a delete horizon takes its place. Without records the
/// result is a header-only batch as the cleaner leaves behind.
///
/// ```
/// use redrive::batch::{BatchBuilder, BatchFrame, Decompressor, Limits, NewRecord};
/// use redrive::types::Offset;
///
/// let mut builder = BatchBuilder::new(Offset(7));
/// builder.push(&NewRecord { timestamp: 1000, key: Some(b"k"), value: None, headers: &[] })?;
/// let bytes = builder.build()?;
///
/// let (frame, _rest) = BatchFrame::parse(&bytes)?;
/// let mut decompressor = Decompressor::new();
/// let record = frame.verify()?.records(&mut decompressor, &Limits::default())?.next().unwrap()?;
/// assert_eq!((record.offset, record.key, record.value), (Offset(7), Some(&b"k"[..]), None));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct BatchBuilder {
    base_offset: i64,
    leader_epoch: i32,
    attributes: i16,
    compression: Compression,
    level: Option<i32>,
    producer_id: i64,
    producer_epoch: i16,
    base_sequence: i32,
    delete_horizon: Option<i64>,
    append_time: Option<i64>,
    max_timestamp: Option<i64>,
    last_offset: Option<i64>,
    base_timestamp: i64,
    /// What the timestamps of the records so far refer to.
    reference: Option<i64>,
    records_count: i32,
    /// Offset the next record gets, and whether there was one before.
    next_offset: i64,
    records: Vec<u8>,
    body: Vec<u8>,
}

impl BatchBuilder {
    /// A batch that begins at `base_offset`: no producer, no compression, leader epoch −1.
    pub fn new(base_offset: Offset) -> Self {
        Self {
            base_offset: base_offset.0,
            leader_epoch: -1,
            attributes: 0,
            compression: Compression::None,
            level: None,
            producer_id: -1,
            producer_epoch: -1,
            base_sequence: -1,
            delete_horizon: None,
            append_time: None,
            max_timestamp: None,
            last_offset: None,
            base_timestamp: -1,
            reference: None,
            records_count: 0,
            next_offset: base_offset.0,
            records: Vec::new(),
            body: Vec::new(),
        }
    }

    /// Sets the partition leader epoch.
    pub fn leader_epoch(&mut self, epoch: i32) -> &mut Self {
        self.leader_epoch = epoch;
        self
    }

    /// Compresses the records when the batch is built.
    pub fn compression(&mut self, compression: Compression) -> &mut Self {
        self.compression = compression;
        self
    }

    /// Sets the level at which the records are compressed, as in [`Compression::compress_at`].
    pub fn compression_level(&mut self, level: Option<i32>) -> &mut Self {
        self.level = level;
        self
    }

    /// Sets producer id, epoch and the sequence number of the first record (−1 for markers).
    pub fn producer(&mut self, id: ProducerId, epoch: i16, base_sequence: i32) -> &mut Self {
        (self.producer_id, self.producer_epoch, self.base_sequence) = (id.0, epoch, base_sequence);
        self
    }

    /// Marks the batch as part of a transaction.
    pub fn transactional(&mut self) -> &mut Self {
        self.attributes |= 0x10;
        self
    }

    /// Marks the batch as one of control records.
    pub fn control(&mut self) -> &mut Self {
        self.attributes |= 0x20;
        self
    }

    /// Stores when tombstones and markers may go, in ms, in place of the base timestamp (KIP-534). To be called before
    /// the first record, whose time refers to it.
    pub fn delete_horizon(&mut self, horizon_ms: i64) -> &mut Self {
        self.delete_horizon = Some(horizon_ms);
        self
    }

    /// Makes the batch one with append time: every record reads as appended at `time_ms`.
    pub fn log_append_time(&mut self, time_ms: i64) -> &mut Self {
        self.append_time = Some(time_ms);
        self
    }

    /// Keeps a max timestamp above those of the records left, as in an emptied batch.
    pub fn max_timestamp(&mut self, time_ms: i64) -> &mut Self {
        self.max_timestamp = Some(time_ms);
        self
    }

    /// Keeps a last offset above that of the last record left, as compaction does.
    pub fn last_offset(&mut self, offset: Offset) -> &mut Self {
        self.last_offset = Some(offset.0);
        self
    }

    /// Adds a record at the next offset.
    ///
    /// # Errors
    /// [`BuildFault`]: too many offsets or bytes for one batch.
    pub fn push(&mut self, record: &NewRecord<'_>) -> Result<&mut Self, BuildFault> {
        self.push_at(Offset(self.next_offset), record)
    }

    /// Adds a record at a given offset, above all before it.
    ///
    /// # Errors
    /// [`BuildFault`]: the offset does not rise or is too far away, or too many bytes for one batch.
    pub fn push_at(&mut self, offset: Offset, record: &NewRecord<'_>) -> Result<&mut Self, BuildFault> {
        let delta = offset
            .0
            .checked_sub(self.base_offset)
            .and_then(|delta| i32::try_from(delta).ok())
            .filter(|_| offset.0 >= self.next_offset && offset.0 < i64::MAX)
            .ok_or(BuildFault::Offset {
                offset,
                previous: Offset(self.next_offset.saturating_sub(1)),
                base: Offset(self.base_offset),
            })?;
        if self.records_count == 0 {
            self.base_timestamp = record.timestamp;
        }
        let reference = *self.reference.get_or_insert(self.delete_horizon.unwrap_or(self.base_timestamp));

        let body = &mut self.body;
        body.clear();
        body.push(0);
        write_varlong(record.timestamp.wrapping_sub(reference), body);
        write_varint(delta, body);
        write_bytes(record.key, body)?;
        write_bytes(record.value, body)?;
        write_varint(length(record.headers.len())?, body);
        for &(name, value) in record.headers {
            write_bytes(Some(name), body)?;
            write_bytes(value, body)?;
        }
        let body_len = length(body.len())?;
        // Ten bytes are room for any length field; a record that does not fit must leave nothing behind.
        length(HEADER_LEN + self.records.len() + 10 + body.len())?;
        write_varint(body_len, &mut self.records);
        self.records.extend_from_slice(body);

        self.records_count += 1;
        self.next_offset = offset.0 + 1;
        if self.append_time.is_none() {
            self.max_timestamp =
                Some(self.max_timestamp.map_or(record.timestamp, |max| max.max(record.timestamp)));
        }
        Ok(self)
    }

    /// Adds an end-of-transaction marker; the batch must be transactional and a control batch to be read as one.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn push_marker(
        &mut self,
        timestamp: i64,
        marker: EndTransactionMarker,
    ) -> Result<&mut Self, BuildFault> {
        let key = [0, 0, 0, u8::from(marker.committed)];
        let [e0, e1, e2, e3] = marker.coordinator_epoch.to_be_bytes();
        let value = [0, 0, e0, e1, e2, e3];
        self.push(&NewRecord { timestamp, key: Some(&key), value: Some(&value), headers: &[] })
    }

    /// The finished batch.
    ///
    /// # Errors
    /// [`BuildFault`]: compression failed, or the batch is too large.
    pub fn build(&self) -> Result<Vec<u8>, BuildFault> {
        let reference = self.delete_horizon.unwrap_or(self.base_timestamp);
        if self.reference.is_some_and(|first| first != reference) {
            return Err(BuildFault::LateDeleteHorizon);
        }
        let mut attributes = self.attributes | i16::from(self.compression.id());
        if self.append_time.is_some() {
            attributes |= 0x08;
        }
        if self.delete_horizon.is_some() {
            attributes |= 0x40;
        }
        let last_offset =
            self.last_offset.unwrap_or(self.next_offset.saturating_sub(1)).max(self.base_offset);
        let last_offset_delta =
            i32::try_from(last_offset.saturating_sub(self.base_offset)).map_err(|_| BuildFault::Offset {
                offset: Offset(last_offset),
                previous: Offset(self.next_offset.saturating_sub(1)),
                base: Offset(self.base_offset),
            })?;

        let mut out = Vec::with_capacity(HEADER_LEN + self.records.len());
        out.extend_from_slice(&self.base_offset.to_be_bytes());
        out.extend_from_slice(&0i32.to_be_bytes()); // length, below
        out.extend_from_slice(&self.leader_epoch.to_be_bytes());
        out.push(2);
        out.extend_from_slice(&0u32.to_be_bytes()); // CRC, below
        out.extend_from_slice(&attributes.to_be_bytes());
        out.extend_from_slice(&last_offset_delta.to_be_bytes());
        out.extend_from_slice(&self.delete_horizon.unwrap_or(self.base_timestamp).to_be_bytes());
        out.extend_from_slice(&self.append_time.or(self.max_timestamp).unwrap_or(-1).to_be_bytes());
        out.extend_from_slice(&self.producer_id.to_be_bytes());
        out.extend_from_slice(&self.producer_epoch.to_be_bytes());
        out.extend_from_slice(&self.base_sequence.to_be_bytes());
        out.extend_from_slice(&self.records_count.to_be_bytes());
        debug_assert_eq!(out.len(), HEADER_LEN);
        if self.records_count > 0 {
            self.compression.compress_at(self.level, &self.records, &mut out)?;
        }

        let length = length(out.len() - LOG_OVERHEAD)?;
        out[8..12].copy_from_slice(&length.to_be_bytes());
        let crc = crc32c::crc32c(&out[CRC_START..]);
        out[17..21].copy_from_slice(&crc.to_be_bytes());
        Ok(out)
    }
}

fn length(bytes: usize) -> Result<i32, BuildFault> {
    i32::try_from(bytes).map_err(|_| BuildFault::TooLarge(bytes))
}

fn write_bytes(bytes: Option<&[u8]>, out: &mut Vec<u8>) -> Result<(), BuildFault> {
    match bytes {
        None => write_varint(-1, out),
        Some(bytes) => {
            write_varint(length(bytes.len())?, out);
            out.extend_from_slice(bytes);
        }
    }
    Ok(())
}
