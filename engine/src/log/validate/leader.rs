//! What a leader appends: one batch, with offsets, epoch and times of its own.

use super::follower::check_append_size;
use super::walk::{Found, batch_at};
use super::{AppendRejection, InvalidBatch, RECORDS_LISTED_MAX, RecordRejection, RejectedRecord};
use crate::batch::{
    BatchBuilder, BatchFrame, BuildFault, Compression, CompressionFault, Decompressor, Limits, MutableBatch,
    NewRecord, Record, Records, RecordsFault, TimestampType,
};
use crate::log::LogConfig;
use crate::types::Offset;

/// Who appends to a leader (Kafka's AppendOrigin).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendOrigin {
    /// A produce request.
    Client,
    /// A coordinator of this broker, or the end of a transaction: may write control batches and base offsets.
    Coordinator,
}

/// An append to a leader: what it is checked against and stamped with.
#[derive(Clone, Copy, Debug)]
pub struct LeaderAppend<'a> {
    /// The log's settings.
    pub config: &'a LogConfig,
    /// Who appends.
    pub origin: AppendOrigin,
    /// The log end offset, which the first record gets.
    pub first_offset: Offset,
    /// The leader's epoch, from 0.
    pub leader_epoch: i32,
    /// The time, in ms since the epoch.
    pub now_ms: i64,
}

/// A batch that may be written (Kafka's ValidationResult).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValidatedBatch {
    /// Offset of the first record.
    pub first_offset: Offset,
    /// Offset of the last record.
    pub last_offset: Offset,
    /// Max timestamp of the batch in ms, −1 = none.
    pub max_timestamp: i64,
    /// The time of append where the topic has LogAppendTime; `None` is −1 in a response.
    pub append_time_ms: Option<i64>,
    /// Records in the batch.
    pub records_count: i32,
    /// Bytes of the batch that came, from the front of the caller's buffer.
    pub source_size: usize,
    /// The batch where it had to be packed anew; else it lies stamped where it was.
    pub rewritten: Option<Vec<u8>>,
}

impl ValidatedBatch {
    /// The batch to write, given the buffer that was validated.
    pub fn bytes<'b>(&'b self, buffer: &'b [u8]) -> &'b [u8] {
        match &self.rewritten {
            Some(bytes) => bytes,
            None => buffer.get(..self.source_size).unwrap_or_default(),
        }
    }
}

/// Checks appends to a leader and makes them ready to be written (Kafka's LogValidator).
///
/// The usual batch, which stays in its codec, keeps its time and counts its records from 0, is checked in one pass and
/// stamped where it lies: nothing is copied and, once the decompression buffer has grown, nothing allocated.
///
/// Beyond Kafka's rules, for both origins: a log gets no header that [`BatchFrame::parse`] refuses, no time below −1,
/// and no batch whose records do not number its range of offsets (Kafka's coordinators make none).
///
/// ```
/// use redrive::batch::{BatchBuilder, BatchFrame, NewRecord};
/// use redrive::log::LogConfig;
/// use redrive::log::validate::{AppendOrigin, LeaderAppend, LogValidator};
/// use redrive::types::Offset;
///
/// let mut builder = BatchBuilder::new(Offset(0));
/// builder.push(&NewRecord { timestamp: 1000, key: Some(b"k"), value: Some(b"v"), headers: &[] })?;
/// let mut buffer = builder.build()?;
///
/// let config = LogConfig::default();
/// let append = LeaderAppend {
///     config: &config,
///     origin: AppendOrigin::Client,
///     first_offset: Offset(40),
///     leader_epoch: 3,
///     now_ms: 1000,
/// };
/// let batch = LogValidator::default().validate(&mut buffer, &append)?.expect("a whole batch");
/// assert!(batch.rewritten.is_none());
/// let (frame, _) = BatchFrame::parse(batch.bytes(&buffer))?;
/// assert_eq!((frame.base_offset(), frame.partition_leader_epoch()), (Offset(40), 3));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct LogValidator {
    decompressor: Decompressor,
    limits: Limits,
}

/// What becomes of a batch that was accepted.
enum Decision {
    InPlace { max_timestamp: i64 },
    Rewritten { max_timestamp: i64, bytes: Vec<u8> },
}

impl LogValidator {
    /// A validator with other bounds on decompressed batches.
    pub fn with_limits(limits: Limits) -> Self {
        Self { decompressor: Decompressor::new(), limits }
    }

    /// Checks the append in `buffer` and stamps its batch there, or gives it packed anew. `None` if the buffer holds no
    /// whole batch: the log stays untouched. Bytes of an incomplete batch at the end are left out.
    ///
    /// The CRC is computed anew only if the batch's time or its type changes.
    ///
    /// # Errors
    /// [`AppendRejection`]; the buffer is unchanged.
    pub fn validate(
        &mut self,
        buffer: &mut [u8],
        append: &LeaderAppend<'_>,
    ) -> Result<Option<ValidatedBatch>, AppendRejection> {
        let Some(frame) = scan(buffer, append)? else { return Ok(None) };
        let (source_size, records_count) = (frame.size(), frame.records_count());
        let decision = self.decide(&frame, append)?;
        let last_delta = i64::from(records_count) - 1;
        let timestamp_type = append.config.message_timestamp_type;
        let (max_timestamp, rewritten) = match decision {
            Decision::InPlace { max_timestamp } => {
                check_append_size(source_size, append.config)?;
                let refused = |fault| AppendRejection::Frame { position: 0, fault };
                let mut batch = MutableBatch::parse(buffer).map_err(refused)?;
                batch.set_base_offset(append.first_offset).set_partition_leader_epoch(append.leader_epoch);
                batch.set_max_timestamp(timestamp_type, max_timestamp);
                (max_timestamp, None)
            }
            Decision::Rewritten { max_timestamp, bytes } => {
                check_batch_size(bytes.len(), append.config)?;
                check_append_size(bytes.len(), append.config)?;
                (max_timestamp, Some(bytes))
            }
        };
        Ok(Some(ValidatedBatch {
            first_offset: append.first_offset,
            last_offset: Offset(append.first_offset.0 + last_delta),
            max_timestamp,
            append_time_ms: (timestamp_type == TimestampType::LogAppendTime).then_some(append.now_ms),
            records_count,
            source_size,
            rewritten,
        }))
    }

    fn decide(
        &mut self,
        frame: &BatchFrame<'_>,
        append: &LeaderAppend<'_>,
    ) -> Result<Decision, AppendRejection> {
        check_header(frame, append)?;
        let source = frame.compression().map_err(InvalidBatch::UnknownCodec)?;
        // Control batches keep their form, whatever the topic's codec.
        let target = if frame.is_control() { source } else { append.config.compression_type.target(source) };
        // A batch that is packed anew gets right offsets by that.
        let is_kept = target == source && (source == Compression::None || frame.is_control());

        // The scan has looked at the CRC.
        let batch = frame.without_crc_check();
        let records = batch.records(&mut self.decompressor, &self.limits).map_err(|fault| match fault {
            RecordsFault::UnknownCodec(id) => InvalidBatch::UnknownCodec(id).into(),
            RecordsFault::Compression(fault) => refuse_compression(fault),
        })?;
        let rules = RecordRules::new(frame, append, is_kept);
        let (records_max, is_consecutive) = rules.check(records.clone())?;
        let max_timestamp = match append.config.message_timestamp_type {
            TimestampType::CreateTime => records_max,
            TimestampType::LogAppendTime => append.now_ms,
        };
        if target == source && is_consecutive {
            return Ok(Decision::InPlace { max_timestamp });
        }
        let bytes = rewrite(frame, records, target, append)?;
        Ok(Decision::Rewritten { max_timestamp, bytes })
    }
}

fn refuse_compression(fault: CompressionFault) -> AppendRejection {
    match fault {
        CompressionFault::Unsupported(codec) => AppendRejection::UnsupportedCompression(codec),
        CompressionFault::TooLarge { .. } => AppendRejection::DecompressedTooLarge(fault),
        fault => InvalidBatch::Compression(fault).into(),
    }
}

fn check_batch_size(size: usize, config: &LogConfig) -> Result<(), AppendRejection> {
    let most = config.max_message_bytes;
    if size as u64 > u64::from(most) { Err(AppendRejection::BatchTooLarge { size, most }) } else { Ok(()) }
}

/// Looks at every batch that came and gives the only one.
fn scan<'a>(bytes: &'a [u8], append: &LeaderAppend<'_>) -> Result<Option<BatchFrame<'a>>, AppendRejection> {
    let (mut position, mut only, mut batches) = (0, None, 0u32);
    while let Some(found) = batch_at(bytes, position)? {
        if let Found::Batch(frame) = &found
            && append.origin == AppendOrigin::Client
            && frame.base_offset() != Offset(0)
        {
            return Err(InvalidBatch::BaseOffset(frame.base_offset()).into());
        }
        check_batch_size(found.size(), append.config)?;
        found.verify(position)?;
        position += found.size();
        batches = batches.saturating_add(1);
        match found {
            Found::Batch(frame) => only = Some(frame),
            Found::Legacy(message) => return Err(InvalidBatch::LegacyFormat(message.magic()).into()),
        }
    }
    if batches > 1 { Err(InvalidBatch::SeveralBatches.into()) } else { Ok(only) }
}

/// The rules about a batch's header. Those of Kafka for clients come first, in its order; then what no log may hold.
fn check_header(frame: &BatchFrame<'_>, append: &LeaderAppend<'_>) -> Result<(), InvalidBatch> {
    let (last_offset_delta, records_count) = (frame.last_offset_delta(), frame.records_count());
    if last_offset_delta < 0 {
        return Err(InvalidBatch::LastOffsetDelta(last_offset_delta));
    }
    if records_count <= 0 {
        return Err(InvalidBatch::RecordsCount(records_count));
    }
    if last_offset_delta != records_count - 1 {
        return Err(InvalidBatch::RangeLength { last_offset_delta, records_count });
    }
    if append.origin == AppendOrigin::Client {
        if frame.is_control() {
            return Err(InvalidBatch::Control);
        }
        if frame.producer_id().0 > -1 && frame.base_sequence() < 0 {
            return Err(InvalidBatch::BaseSequence(frame.base_sequence()));
        }
    }
    let fields = [
        ("baseTimestamp", frame.base_timestamp()),
        ("producerId", frame.producer_id().0),
        ("producerEpoch", i64::from(frame.producer_epoch())),
        ("baseSequence", i64::from(frame.base_sequence())),
    ];
    if let Some(&(field, value)) = fields.iter().find(|(_, value)| *value < -1) {
        return Err(InvalidBatch::Field { field, value });
    }
    let has_room =
        append.first_offset.0.checked_add(i64::from(records_count)).is_some() && append.first_offset.0 >= 0;
    if has_room { Ok(()) } else { Err(InvalidBatch::NoOffsetsLeft(append.first_offset)) }
}

/// The rules about records, with what they need of settings and header.
struct RecordRules {
    needs_key: bool,
    needs_index_as_delta: bool,
    is_create_time: bool,
    says_append_time: bool,
    base_offset: i64,
    earliest: i64,
    latest: i64,
}

impl RecordRules {
    fn new(frame: &BatchFrame<'_>, append: &LeaderAppend<'_>, needs_index_as_delta: bool) -> Self {
        let config = append.config;
        Self {
            needs_key: config.compact,
            needs_index_as_delta,
            is_create_time: config.message_timestamp_type == TimestampType::CreateTime,
            says_append_time: frame.is_log_append_time(),
            base_offset: frame.base_offset().0,
            earliest: append.now_ms.saturating_sub(config.message_timestamp_before_max_ms),
            latest: append.now_ms.saturating_add(config.message_timestamp_after_max_ms),
        }
    }

    /// The largest time, −1 if there is none, and whether the records count from 0. Every record is looked at before a
    /// refusal.
    fn check(&self, records: Records<'_>) -> Result<(i64, bool), AppendRejection> {
        let (mut max_timestamp, mut is_consecutive) = (-1, true);
        let (mut rejected, mut failed, mut has_invalid_timestamp) = (Vec::new(), 0, false);
        for (index, record) in (0..).zip(records) {
            let record = record.map_err(InvalidBatch::Record)?;
            let delta = record.offset.0.wrapping_sub(self.base_offset);
            is_consecutive &= delta == i64::from(index);
            max_timestamp = max_timestamp.max(record.timestamp);
            if let Some(why) = self.check_record(&record, delta == i64::from(index), delta) {
                failed += 1;
                has_invalid_timestamp |= why.is_timestamp();
                if rejected.len() < RECORDS_LISTED_MAX {
                    rejected.push(RejectedRecord { index, why });
                }
            }
        }
        if failed > 0 {
            return Err(AppendRejection::Records { records: rejected, failed, has_invalid_timestamp });
        }
        Ok((max_timestamp, is_consecutive))
    }

    #[inline]
    fn check_record(&self, record: &Record<'_>, is_in_place: bool, delta: i64) -> Option<RecordRejection> {
        let timestamp = record.timestamp;
        if self.needs_key && record.key.is_none() {
            return Some(RecordRejection::NullKey);
        }
        if self.is_create_time && timestamp != -1 {
            if !(self.earliest..=self.latest).contains(&timestamp) {
                let (earliest, latest) = (self.earliest, self.latest);
                return Some(RecordRejection::Timestamp { timestamp, earliest, latest });
            }
        } else if self.says_append_time {
            return Some(RecordRejection::TimestampType);
        }
        if timestamp < -1 {
            return Some(RecordRejection::NegativeTimestamp(timestamp));
        }
        (self.needs_index_as_delta && !is_in_place).then_some(RecordRejection::OffsetDelta(delta))
    }
}

/// Packs the records into a new batch, as Kafka's MemoryRecordsBuilder does.
fn rewrite(
    frame: &BatchFrame<'_>,
    records: Records<'_>,
    target: Compression,
    append: &LeaderAppend<'_>,
) -> Result<Vec<u8>, AppendRejection> {
    let mut builder = BatchBuilder::new(append.first_offset);
    builder
        .leader_epoch(append.leader_epoch)
        .producer(frame.producer_id(), frame.producer_epoch(), frame.base_sequence())
        .compression(target)
        .compression_level(append.config.compression_level(target));
    if frame.is_transactional() {
        builder.transactional();
    }
    if append.config.message_timestamp_type == TimestampType::LogAppendTime {
        builder.log_append_time(append.now_ms);
    }
    let refuse = |fault| match fault {
        BuildFault::Compression(fault) => refuse_compression(fault),
        // Offsets were seen to have room, so the records are too many bytes for one batch.
        _ => AppendRejection::BatchTooLarge { size: usize::MAX, most: append.config.max_message_bytes },
    };
    let mut headers = Vec::new();
    for record in records {
        let record = record.map_err(InvalidBatch::Record)?;
        headers.clear();
        headers.extend(record.headers().map(|header| (header.key, header.value)));
        let Record { timestamp, key, value, .. } = record;
        builder.push(&NewRecord { timestamp, key, value, headers: &headers }).map_err(refuse)?;
    }
    builder.build().map_err(refuse)
}
