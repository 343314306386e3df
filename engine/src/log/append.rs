//! Appending to a log, as its leader and as a follower.

use super::epochs::NegativeEpoch;
use super::partition::{Failure, Log, Writer};
use super::rebuild::aborted;
use super::validate::{AppendOrigin, AppendRejection, FollowerAppend, LeaderAppend, StoredBatch};
use crate::batch::{BatchFrame, BuildFault};
use crate::error::Error;
use crate::producer_state::{
    AppendAnalysis, DuplicateBatch, ProducerAppendOrigin, ProducerRejection, VerificationGuard,
};
use crate::segment::index::IndexRefusal;
use crate::segment::{AppendFault, BatchFacts, Incoming};
use crate::types::Offset;

/// An append by the leader.
#[derive(Clone, Copy, Debug)]
pub struct LeaderRequest {
    /// Who appends.
    pub origin: AppendOrigin,
    /// The leader's epoch, from 0.
    pub leader_epoch: i32,
    /// The time, ms since the epoch.
    pub now_ms: i64,
    /// What [`start_verification`](Log::start_verification) gave before a transactional batch of a client.
    pub verification_guard: Option<VerificationGuard>,
    /// Version of transactions that the producer of a marker uses: 0, 1 or 2.
    pub transaction_version: i16,
}

/// What was appended (Kafka's LogAppendInfo).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppendInfo {
    /// Offset of the first record.
    pub first_offset: Offset,
    /// Offset of the last record.
    pub last_offset: Offset,
    /// Largest timestamp of the records, −1 = none.
    pub max_timestamp: i64,
    /// The time of the append where the topic has LogAppendTime; of a duplicate its timestamp.
    pub append_time_ms: Option<i64>,
    /// The log start.
    pub log_start_offset: Offset,
    /// Bytes that were written.
    pub bytes: usize,
    /// Whether the producer sent the batch before: nothing was written, and offsets and time are those of then.
    pub is_duplicate: bool,
}

/// One record of a coordinator: its time, key and value; no value is a tombstone.
#[derive(Clone, Copy, Debug)]
pub struct CoordinatorRecord<'a> {
    /// Create time, ms since the epoch, −1 = none.
    pub timestamp_ms: i64,
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: Option<&'a [u8]>,
}

/// Why nothing was appended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AppendError {
    /// The bytes break a rule.
    #[error(transparent)]
    Rejected(#[from] AppendRejection),
    /// A batch does not fit what is known of its producer.
    #[error(transparent)]
    Producer(#[from] ProducerRejection),
    /// A record cannot be encoded.
    #[error(transparent)]
    Record(#[from] BuildFault),
    /// The leader epoch is negative.
    #[error(transparent)]
    LeaderEpoch(#[from] NegativeEpoch),
    /// The log could not be written to, or takes nothing more.
    #[error(transparent)]
    Log(#[from] Error),
}

impl AppendError {
    /// Kafka's name of the error that a client is told; `None` for what stays inside a broker.
    pub fn error_name(&self) -> Option<&'static str> {
        match self {
            Self::Rejected(rejection) => rejection.error_name(),
            Self::Producer(rejection) => Some(rejection.error_name()),
            Self::Log(_) => Some("KAFKA_STORAGE_ERROR"),
            Self::Record(_) | Self::LeaderEpoch(_) => None,
        }
    }
}

impl Failure for AppendError {
    fn is_of_storage(&self) -> bool {
        matches!(self, Self::Log(error) if error.is_of_storage())
    }
}

impl Log {
    /// Appends one batch as the leader: checks it, stamps offsets, epoch and, if the topic says so, time in `buffer`
    /// itself, or packs it anew where the topic has another codec. `None` if the buffer holds no whole batch.
    ///
    /// Unlike in Kafka a refused batch leaves nothing behind: no rolled segment and no new leader epoch (H-1).
    ///
    /// Cost in the usual case: the checks, one write, no allocation.
    ///
    /// # Errors
    /// [`AppendError`]
    pub fn append_as_leader(
        &self,
        buffer: &mut [u8],
        request: &LeaderRequest,
    ) -> Result<Option<AppendInfo>, AppendError> {
        let LeaderRequest { origin, leader_epoch, now_ms, .. } = *request;
        self.change(|writer| {
            self.check_epoch(leader_epoch)?;
            let first_offset = self.log_end_offset();
            let Writer { validator, config, .. } = &mut *writer;
            let append = LeaderAppend { config, origin, first_offset, leader_epoch, now_ms };
            let Some(batch) = validator.validate(buffer, &append)? else { return Ok(None) };
            let bytes = batch.bytes(buffer);
            let frame =
                BatchFrame::new(bytes).map_err(|fault| AppendRejection::Frame { position: 0, fault })?;
            let origin = match origin {
                AppendOrigin::Client => ProducerAppendOrigin::Client,
                AppendOrigin::Coordinator => ProducerAppendOrigin::Coordinator,
            };
            let mut analysis = writer.producers.begin_append(origin);
            let verdict = writer.producers.analyze(
                &mut analysis,
                &frame,
                request.verification_guard,
                request.transaction_version,
            )?;
            if let Some(DuplicateBatch { first_offset, last_offset, timestamp }) = verdict {
                return Ok(Some(AppendInfo {
                    first_offset,
                    last_offset,
                    max_timestamp: timestamp,
                    append_time_ms: Some(timestamp),
                    log_start_offset: self.log_start_offset(),
                    bytes: 0,
                    is_duplicate: true,
                }));
            }
            writer.facts.clear();
            writer.facts.push(BatchFacts::of(&frame));
            writer.stored.clear();
            writer.stored.push(stored(&frame, 0));
            self.write(writer, bytes, analysis, now_ms)?;
            Ok(Some(AppendInfo {
                first_offset: batch.first_offset,
                last_offset: batch.last_offset,
                max_timestamp: batch.max_timestamp,
                append_time_ms: batch.append_time_ms,
                log_start_offset: self.log_start_offset(),
                bytes: bytes.len(),
                is_duplicate: false,
            }))
        })
    }

    /// Appends records as coordinators do, a batch of its own for each, all of them by one write. `None` for no record.
    ///
    /// Cost: the encoding and one write; no allocation once the log's buffers have grown.
    ///
    /// # Errors
    /// [`AppendError`]; then none of the records was appended.
    pub fn append_coordinator_records<'r>(
        &self,
        records: impl IntoIterator<Item = CoordinatorRecord<'r>>,
        leader_epoch: i32,
        now_ms: i64,
    ) -> Result<Option<AppendInfo>, AppendError> {
        self.change(|writer| {
            self.check_epoch(leader_epoch)?;
            let first_offset = self.log_end_offset();
            // Taken out while the bytes are borrowed; an error loses no more than its memory.
            let mut batches = std::mem::replace(
                &mut writer.batches,
                crate::batch::CoordinatorBatches::new(first_offset, leader_epoch),
            );
            batches.restart(first_offset, leader_epoch);
            writer.facts.clear();
            writer.stored.clear();
            let mut max_timestamp = -1;
            for record in records {
                let base_offset = batches.next_offset();
                let place = batches.push(record.timestamp_ms, record.key, record.value)?;
                let size = place.len();
                if size > writer.config.max_message_bytes as usize {
                    let most = writer.config.max_message_bytes;
                    return Err(AppendRejection::BatchTooLarge { size, most }.into());
                }
                max_timestamp = max_timestamp.max(record.timestamp_ms);
                let (last_offset, max_timestamp) = (base_offset, record.timestamp_ms);
                writer.facts.push(BatchFacts { size: size as u32, base_offset, last_offset, max_timestamp });
                if writer.stored.is_empty() {
                    let leader_epoch = Some(leader_epoch);
                    let position = place.start;
                    writer.stored.push(StoredBatch {
                        position,
                        size,
                        base_offset,
                        last_offset,
                        max_timestamp,
                        leader_epoch,
                    });
                }
            }
            let bytes = batches.bytes();
            if bytes.is_empty() {
                writer.batches = batches;
                return Ok(None);
            }
            if bytes.len() > writer.config.segment_bytes as usize {
                let most = writer.config.segment_bytes;
                return Err(AppendRejection::AppendTooLarge { size: bytes.len(), most }.into());
            }
            let analysis = writer.producers.begin_append(ProducerAppendOrigin::Coordinator);
            self.write(writer, bytes, analysis, now_ms)?;
            let info = AppendInfo {
                first_offset,
                last_offset: Offset(batches.next_offset().0 - 1),
                max_timestamp,
                append_time_ms: None,
                log_start_offset: self.log_start_offset(),
                bytes: bytes.len(),
                is_duplicate: false,
            };
            writer.batches = batches;
            Ok(Some(info))
        })
    }

    /// Appends what a leader sent, as it is. `None` if there is no whole batch, or none that was written under the epoch
    /// of the fetch. Where the log is empty and the leader's log start lies inside its first batch, the log begins anew
    /// with that batch.
    ///
    /// # Errors
    /// [`AppendError`]
    pub fn append_as_follower(
        &self,
        bytes: &[u8],
        leader_epoch: i32,
        now_ms: i64,
    ) -> Result<Option<AppendInfo>, AppendError> {
        self.change(|writer| match self.append_verbatim(writer, bytes, leader_epoch, now_ms) {
            Err(AppendError::Rejected(rejection)) => {
                match rejection.restart_offset(self.log_start_offset()) {
                    Some(offset) => {
                        self.restart_at(writer, offset, offset, now_ms)?;
                        self.append_verbatim(writer, bytes, leader_epoch, now_ms)
                    }
                    None => Err(rejection.into()),
                }
            }
            other => other,
        })
    }

    /// Begins a leader epoch at the log end, before anything is appended under it; says whether it is new
    /// (`assignEpochStartOffset`).
    ///
    /// # Errors
    /// [`AppendError::LeaderEpoch`]; [`AppendError::Log`]
    pub fn assign_leader_epoch(&self, epoch: i32) -> Result<bool, AppendError> {
        self.change(|writer| {
            let is_new = writer.epochs.assign(epoch, self.log_end_offset())?;
            if is_new {
                writer.write_epochs(&*self.storage)?;
            }
            Ok(is_new)
        })
    }

    fn append_verbatim(
        &self,
        writer: &mut Writer,
        bytes: &[u8],
        leader_epoch: i32,
        now_ms: i64,
    ) -> Result<Option<AppendInfo>, AppendError> {
        let log_end_offset = self.log_end_offset();
        let Writer { config, stored, facts, producers, .. } = &mut *writer;
        let scan = FollowerAppend { config, log_end_offset, leader_epoch }.scan(bytes, stored)?;
        let bytes = &bytes[..scan.valid_bytes];
        let (Some(first), Some(last)) = (stored.first().copied(), stored.last().copied()) else {
            return Ok(None);
        };
        facts.clear();
        let mut analysis = producers.begin_append(ProducerAppendOrigin::Replication);
        for batch in &*stored {
            let StoredBatch { position, size, base_offset, last_offset, max_timestamp, leader_epoch } =
                *batch;
            facts.push(BatchFacts { size: size as u32, base_offset, last_offset, max_timestamp });
            if let Some(epoch) = leader_epoch {
                self.check_epoch(epoch)?;
                let frame = BatchFrame::new(&bytes[position..position + size])
                    .map_err(|fault| AppendRejection::Frame { position, fault })?;
                producers.analyze(&mut analysis, &frame, None, 0)?;
            }
        }
        let max_timestamp = stored.iter().map(|batch| batch.max_timestamp).max().unwrap_or(-1);
        self.write(writer, bytes, analysis, now_ms)?;
        Ok(Some(AppendInfo {
            first_offset: first.base_offset,
            last_offset: last.last_offset,
            max_timestamp,
            append_time_ms: None,
            log_start_offset: self.log_start_offset(),
            bytes: bytes.len(),
            is_duplicate: false,
        }))
    }

    /// Before anything is changed: what a log cannot take for an epoch.
    fn check_epoch(&self, epoch: i32) -> Result<(), NegativeEpoch> {
        let start_offset = self.log_end_offset();
        if epoch < 0 { Err(NegativeEpoch { epoch, start_offset }) } else { Ok(()) }
    }

    /// Writes batches that were found good: `facts` has them all, `stored` those whose epochs may be new.
    fn write(
        &self,
        writer: &mut Writer,
        bytes: &[u8],
        analysis: AppendAnalysis,
        now_ms: i64,
    ) -> Result<(), AppendError> {
        let (Some(first), Some(last)) = (writer.facts.first().copied(), writer.facts.last().copied()) else {
            return Ok(());
        };
        let incoming = Incoming {
            bytes: bytes.len() as u64,
            max_timestamp: writer.facts.iter().map(|batch| batch.max_timestamp).max().unwrap_or(-1),
            last_offset: last.last_offset,
        };
        if writer.active().should_roll(&incoming, now_ms)?.is_some() {
            self.roll_at(writer, first.base_offset.max(self.log_end_offset()), now_ms)?;
        }
        let mut is_epoch_new = false;
        for batch in &writer.stored {
            is_epoch_new |= match batch.leader_epoch {
                Some(epoch) => writer.epochs.assign(epoch, batch.base_offset)?,
                // A format that knows no epochs.
                None => writer.epochs.clear(),
            };
        }
        if is_epoch_new {
            writer.write_epochs(&*self.storage)?;
        }
        let Some(active) = &mut writer.active else { return Ok(()) };
        match active.append(bytes, &writer.facts) {
            Ok(_) => {}
            // Nothing was written. One segment after the other takes what its indexes have room for.
            Err(AppendFault::Index(IndexRefusal::Full { .. }) | AppendFault::OffsetOverflow(_))
                if writer.facts.len() > 1 =>
            {
                self.append_one_by_one(writer, bytes, now_ms)?;
            }
            Err(fault) => return Err(self.append_fault(fault).into()),
        }
        let log_end = last.last_offset.next();
        self.set_log_end_offset(log_end);
        let completed = writer.producers.apply(analysis, log_end);
        for transaction in completed {
            if let Some(entry) = aborted(&transaction) {
                // The index may be made by this.
                writer.is_directory_dirty = true;
                writer.active().append_aborted(entry)?;
            }
            writer.producers.complete(&transaction);
        }
        Ok(())
    }

    fn append_one_by_one(&self, writer: &mut Writer, bytes: &[u8], now_ms: i64) -> Result<(), AppendError> {
        let (mut rest, mut at) = (bytes, 0);
        while let Some(facts) = writer.facts.get(at).copied() {
            let BatchFacts { size, base_offset, last_offset, max_timestamp } = facts;
            let incoming = Incoming { bytes: size.into(), max_timestamp, last_offset };
            if writer.active().should_roll(&incoming, now_ms)?.is_some() {
                self.roll_within_append(writer, base_offset, now_ms)?;
            }
            let (batch, behind) = rest.split_at((size as usize).min(rest.len()));
            writer.active().append(batch, &[facts]).map_err(|fault| self.append_fault(fault))?;
            (rest, at) = (behind, at + 1);
        }
        Ok(())
    }

    fn append_fault(&self, fault: AppendFault) -> Error {
        match fault {
            AppendFault::Storage(error) => error,
            // What was checked before cannot be refused here, unless the files are not what they were.
            other => Error::Index { path: self.directory(), reason: other.to_string() },
        }
    }
}

fn stored(frame: &BatchFrame<'_>, position: usize) -> StoredBatch {
    StoredBatch {
        position,
        size: frame.size(),
        base_offset: frame.base_offset(),
        last_offset: frame.last_offset(),
        max_timestamp: frame.max_timestamp(),
        leader_epoch: Some(frame.partition_leader_epoch()),
    }
}
