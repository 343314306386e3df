//! From bytes to a batch whose header makes sense, and from there to one whose checksum matches.

use super::records::Records;
use super::{Compression, Decompressor, Limits, RecordsFault};
use crate::types::{Offset, ProducerId};

/// Bytes of base offset and length field, which every message format shares; `length` counts what follows.
pub const LOG_OVERHEAD: usize = 12;
/// Bytes needed to read the size and the magic of a batch.
pub const PREFIX_LEN: usize = 17;
/// Bytes of a magic 2 header; records begin here.
pub const HEADER_LEN: usize = 61;
/// Where the bytes covered by the CRC begin.
pub(crate) const CRC_START: usize = 21;
/// Smallest legal length field of any message format.
const LENGTH_MIN: i32 = 14;

/// Why the bytes at a place cannot be a batch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameFault {
    /// The length field is below what any batch of that format needs.
    #[error("{}", length_fault(*length, *magic, *least))]
    Length {
        /// The length field as stored.
        length: i32,
        /// The magic byte beside it.
        magic: i8,
        /// Smallest legal value.
        least: i32,
    },
    /// The magic byte names no message format.
    #[error("magic byte is {magic}, known are 0, 1 and 2")]
    Magic {
        /// The byte as stored.
        magic: i8,
    },
    /// The file ends before the batch does, or before its header does.
    #[error("the file ends {missing} bytes before the batch does ({left} bytes left)")]
    Incomplete {
        /// Bytes from the start of the batch to the end of the file.
        left: u64,
        /// How many more bytes the header asks for; with fewer than 17 bytes left, up to those 17.
        missing: u64,
    },
    /// A header field holds a value that no writer produces.
    #[error("header field {field} is {value}")]
    Field {
        /// Kafka's name of the field.
        field: &'static str,
        /// Its value.
        value: i64,
    },
}

fn length_fault(length: i32, magic: i8, least: i32) -> String {
    if length == 0 {
        // What a file looks like that was made longer and never written.
        "length field is 0: no batch was written here".to_owned()
    } else {
        format!("length field is {length}, a batch of magic {magic} needs at least {least}")
    }
}

/// The checksum of a batch does not match its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("CRC does not match: stored 0x{stored:08x}, computed 0x{computed:08x}")]
pub struct CrcMismatch {
    /// The checksum in the header.
    pub stored: u32,
    /// The checksum of the bytes.
    pub computed: u32,
}

/// Size and format of the batch that begins at a place of a file, from its first 17 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FramePrefix {
    /// Bytes of the whole batch, 12 + length.
    pub size: u64,
    /// Message format: 0, 1 or 2.
    pub magic: i8,
}

impl FramePrefix {
    /// Reads the prefix of a batch. `bytes` begins at the batch and holds at least `min(17, left)` bytes;
    /// `left` is how many bytes of the file remain from there.
    ///
    /// # Errors
    /// [`FrameFault`] where Kafka's `FileLogInputStream` would throw or stop (`Incomplete`), and for a magic
    /// byte that is not 0, 1 or 2.
    #[inline]
    pub fn parse(bytes: &[u8], left: u64) -> Result<Self, FrameFault> {
        let Some(prefix) = bytes.first_chunk::<PREFIX_LEN>() else {
            return Err(FrameFault::Incomplete { left, missing: (PREFIX_LEN as u64).saturating_sub(left) });
        };
        let length = i32::from_be_bytes([prefix[8], prefix[9], prefix[10], prefix[11]]);
        let magic = prefix[16] as i8;
        // Kafka looks at the length before the magic; a zero-filled tail must show as length 0.
        if length < LENGTH_MIN {
            return Err(FrameFault::Length { length, magic, least: LENGTH_MIN });
        }
        let least = match magic {
            0 => LENGTH_MIN,
            1 => 22,
            2 => (HEADER_LEN - LOG_OVERHEAD) as i32,
            _ => return Err(FrameFault::Magic { magic }),
        };
        let size = LOG_OVERHEAD as u64 + length as u64;
        if size > left {
            return Err(FrameFault::Incomplete { left, missing: size - left });
        }
        if length < least {
            return Err(FrameFault::Length { length, magic, least });
        }
        Ok(Self { size, magic })
    }
}

/// One whole batch of magic 2 whose header is sane; its checksum has not been looked at.
#[derive(Clone, Copy, Debug)]
pub struct BatchFrame<'a> {
    /// Exactly the batch: `12 + length` bytes, at least 61.
    bytes: &'a [u8],
}

macro_rules! header_field {
    ($(#[$doc:meta])* $name:ident: $type:ty = $at:literal) => {
        $(#[$doc])*
        #[inline]
        pub fn $name(&self) -> $type {
            const LEN: usize = size_of::<$type>();
            let mut field = [0; LEN];
            field.copy_from_slice(&self.bytes[$at..$at + LEN]);
            <$type>::from_be_bytes(field)
        }
    };
}

impl<'a> BatchFrame<'a> {
    /// Takes the batch at the front of `bytes`; the second value is what follows it.
    ///
    /// # Errors
    /// [`FrameFault`]: not a magic 2 batch, cut short, or a header field outside its range.
    pub fn parse(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), FrameFault> {
        let prefix = FramePrefix::parse(bytes, bytes.len() as u64)?;
        if prefix.magic != 2 {
            return Err(FrameFault::Magic { magic: prefix.magic });
        }
        let (batch, rest) = bytes.split_at(prefix.size as usize);
        Ok((Self::new(batch)?, rest))
    }

    /// Wraps exactly one batch after its [`FramePrefix`] said magic 2.
    ///
    /// # Errors
    /// [`FrameFault`] for bytes that are not one batch and for a header field outside its range.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<Self, FrameFault> {
        let frame = Self::unchecked_fields(bytes)?;
        frame.check_fields()?;
        Ok(frame)
    }

    /// As [`new`](Self::new), but accepts any value in the header fields behind the magic byte: for tools that
    /// show what is there.
    ///
    /// # Errors
    /// [`FrameFault`] for bytes that are not one whole batch of magic 2.
    pub fn unchecked_fields(bytes: &'a [u8]) -> Result<Self, FrameFault> {
        let left = bytes.len() as u64;
        let prefix = FramePrefix::parse(bytes, left)?;
        if prefix.magic != 2 {
            return Err(FrameFault::Magic { magic: prefix.magic });
        }
        // Surplus bytes are the caller's mistake in cutting; keep the invariant by dropping them.
        Ok(Self { bytes: &bytes[..prefix.size as usize] })
    }

    /// The rules of the header's "valid when read" column. One of them fails almost never, so they are tested
    /// together and told apart only then.
    #[inline]
    fn check_fields(&self) -> Result<(), FrameFault> {
        // A negative number shows in its sign bit; the fields that may be −1 are moved up by one.
        let signs = self.base_offset().0
            | i64::from(self.last_offset_delta())
            | i64::from(self.records_count())
            | self.base_timestamp().saturating_add(1)
            | self.max_timestamp().saturating_add(1)
            | self.producer_id().0.saturating_add(1)
            | i64::from(self.partition_leader_epoch()).saturating_add(1)
            | i64::from(self.producer_epoch()).saturating_add(1)
            | i64::from(self.base_sequence()).saturating_add(1)
            | self.base_offset().0.wrapping_add(i64::from(self.last_offset_delta()));
        if signs >= 0 { Ok(()) } else { self.name_bad_field() }
    }

    #[cold]
    fn name_bad_field(&self) -> Result<(), FrameFault> {
        let at_least = |field, value: i64, least: i64| {
            if value < least { Err(FrameFault::Field { field, value }) } else { Ok(()) }
        };
        at_least("baseOffset", self.base_offset().0, 0)?;
        at_least("partitionLeaderEpoch", i64::from(self.partition_leader_epoch()), -1)?;
        at_least("lastOffsetDelta", i64::from(self.last_offset_delta()), 0)?;
        at_least("baseTimestamp", self.base_timestamp(), -1)?;
        at_least("maxTimestamp", self.max_timestamp(), -1)?;
        at_least("producerId", self.producer_id().0, -1)?;
        at_least("producerEpoch", i64::from(self.producer_epoch()), -1)?;
        at_least("baseSequence", i64::from(self.base_sequence()), -1)?;
        at_least("recordsCount", i64::from(self.records_count()), 0)?;
        at_least("lastOffset", self.base_offset().0.wrapping_add(i64::from(self.last_offset_delta())), 0)
    }

    /// The batch as stored, `12 + length` bytes.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Bytes of the whole batch.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Offset of the first record as originally written; kept when that record is compacted away.
    #[inline]
    pub fn base_offset(&self) -> Offset {
        let mut field = [0; 8];
        field.copy_from_slice(&self.bytes[..8]);
        Offset(i64::from_be_bytes(field))
    }

    header_field! {
        /// Leader epoch of the broker that appended the batch, −1 = none; outside the CRC.
        partition_leader_epoch: i32 = 12
    }
    header_field! {
        /// CRC-32C of byte 21 to the end, as stored.
        crc: u32 = 17
    }
    header_field! {
        /// The attribute bits as stored.
        attributes: i16 = 21
    }
    header_field! {
        /// Last offset − base offset.
        last_offset_delta: i32 = 23
    }
    header_field! {
        /// What record timestamps are relative to, in ms; or the delete horizon.
        base_timestamp: i64 = 27
    }
    header_field! {
        /// Largest record timestamp in ms, or the append time.
        max_timestamp: i64 = 35
    }
    header_field! {
        /// −1 = none.
        producer_epoch: i16 = 51
    }
    header_field! {
        /// Sequence number of the first record, −1 = none.
        base_sequence: i32 = 53
    }
    header_field! {
        /// Records that follow; fewer than offsets once the batch was compacted.
        records_count: i32 = 57
    }

    /// Producer id, −1 = none.
    #[inline]
    pub fn producer_id(&self) -> ProducerId {
        let mut field = [0; 8];
        field.copy_from_slice(&self.bytes[43..51]);
        ProducerId(i64::from_be_bytes(field))
    }

    /// Offset of the last record as originally written.
    #[inline]
    pub fn last_offset(&self) -> Offset {
        Offset(self.base_offset().0.wrapping_add(i64::from(self.last_offset_delta())))
    }

    /// Sequence number of the last record: −1 if there is none, else wrapping from 2^31 − 1 to 0.
    pub fn last_sequence(&self) -> i32 {
        match self.base_sequence() {
            -1 => -1,
            base => super::increment_sequence(base, self.last_offset_delta()),
        }
    }

    /// Codec of the records.
    ///
    /// # Errors
    /// The codec id, where it names no codec (5, 6, 7).
    pub fn compression(&self) -> Result<Compression, u8> {
        Compression::from_id((self.attributes() & 0x07) as u8)
    }

    /// Whether record timestamps are the time of append (all equal to `max_timestamp`).
    pub fn is_log_append_time(&self) -> bool {
        self.attributes() & 0x08 != 0
    }

    /// Whether the batch belongs to a transaction.
    pub fn is_transactional(&self) -> bool {
        self.attributes() & 0x10 != 0
    }

    /// Whether the batch holds control records instead of data.
    pub fn is_control(&self) -> bool {
        self.attributes() & 0x20 != 0
    }

    /// When tombstones and markers of this batch may go, in ms, if a cleaner has set it (KIP-534).
    pub fn delete_horizon_ms(&self) -> Option<i64> {
        (self.attributes() & 0x40 != 0).then(|| self.base_timestamp())
    }

    /// CRC-32C of byte 21 to the end of the batch.
    #[inline]
    pub fn computed_crc(&self) -> u32 {
        crate::machine::crc::crc32c(&self.bytes[CRC_START..])
    }

    /// Checks the CRC. Costs one pass over the bytes.
    ///
    /// # Errors
    /// [`CrcMismatch`] with both values.
    #[inline]
    pub fn verify(self) -> Result<Batch<'a>, CrcMismatch> {
        let (stored, computed) = (self.crc(), self.computed_crc());
        if stored == computed { Ok(Batch { frame: self }) } else { Err(CrcMismatch { stored, computed }) }
    }

    /// Goes on without a look at the CRC: for tools that show damaged batches as far as they can be read.
    pub fn without_crc_check(self) -> Batch<'a> {
        Batch { frame: self }
    }
}

/// A batch whose records may be read.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    frame: BatchFrame<'a>,
}

impl<'a> Batch<'a> {
    /// The header.
    #[inline]
    pub fn frame(&self) -> &BatchFrame<'a> {
        &self.frame
    }

    /// The records in stored order, decompressed into `decompressor`'s buffer where needed.
    ///
    /// # Errors
    /// [`RecordsFault`]: unknown or left-out codec, or bytes that do not decompress within the limits. Records
    /// themselves are checked as they are iterated.
    #[inline]
    pub fn records<'b>(
        &self,
        decompressor: &'b mut Decompressor,
        limits: &Limits,
    ) -> Result<Records<'b>, RecordsFault>
    where
        'a: 'b,
    {
        let stored = &self.frame.bytes[HEADER_LEN..];
        let compression = self.frame.compression().map_err(RecordsFault::UnknownCodec)?;
        // A header-only batch has nothing to decompress, whatever its codec bits say.
        let bytes: &'b [u8] = if compression == Compression::None || self.frame.records_count() == 0 {
            stored
        } else {
            decompressor.decompress(compression, stored, limits)?
        };
        Ok(Records::new(&self.frame, bytes))
    }
}
