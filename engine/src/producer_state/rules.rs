//! The rules for one batch (Kafka's ProducerAppendInfo): what must hold, given what is known of its producer.
//! Nothing here changes anything.

use super::verification::VerificationStateEntry;
use super::{ProducerRejection, SequenceRule};
use crate::batch::{
    BatchFrame, ControlRecord, Decompressor, EndTransactionMarker, Limits, increment_sequence,
};
use crate::types::{Offset, ProducerId};

/// Who appends (Kafka's AppendOrigin, as far as producers are concerned).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProducerAppendOrigin {
    /// A producer: everything is checked.
    Client,
    /// A coordinator, also of markers: epochs and verification are checked, sequences are not.
    Coordinator,
    /// A follower, or a log at its loading: the leader has checked it, the state only follows.
    Replication,
}

/// What the rules ask about a producer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub(super) producer_epoch: i16,
    pub(super) coordinator_epoch: i32,
    /// Of the newest batch of the epoch.
    pub(super) last_sequence: Option<i32>,
    pub(super) current_txn_first_offset: Option<Offset>,
}

/// What the state takes over from a data batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Data {
    pub(super) producer_epoch: i16,
    pub(super) base_sequence: i32,
    pub(super) last_sequence: i32,
    pub(super) base_offset: Offset,
    pub(super) last_offset: Offset,
    pub(super) timestamp: i64,
    pub(super) is_transactional: bool,
}

/// What the state takes over from a marker.
#[derive(Clone, Copy, Debug)]
pub(super) struct Marker {
    pub(super) producer_epoch: i16,
    pub(super) coordinator_epoch: i32,
    pub(super) offset: Offset,
    pub(super) timestamp: i64,
    pub(super) is_aborted: bool,
    /// Whether the batch has the transactional bit, as every marker of a coordinator has.
    pub(super) is_transactional: bool,
}

/// A batch with a producer id.
#[derive(Clone, Copy, Debug)]
pub(super) enum Content {
    Data(Data),
    Marker(Marker),
    /// A control batch whose marker was compacted away.
    EmptyControl,
}

impl Known {
    pub(super) const NOTHING: Self = Self {
        producer_epoch: -1,
        coordinator_epoch: -1,
        last_sequence: None,
        current_txn_first_offset: None,
    };

    /// What is known once the batch is in the log.
    pub(super) fn after(mut self, content: &Content) -> Self {
        match content {
            Content::Data(data) => {
                self.producer_epoch = data.producer_epoch;
                self.last_sequence = Some(data.last_sequence);
                if data.is_transactional {
                    self.current_txn_first_offset.get_or_insert(data.base_offset);
                }
            }
            Content::Marker(marker) => {
                if self.producer_epoch != marker.producer_epoch {
                    self.last_sequence = None;
                }
                self.producer_epoch = marker.producer_epoch;
                self.coordinator_epoch = marker.coordinator_epoch;
                self.current_txn_first_offset = None;
            }
            Content::EmptyControl => {}
        }
        self
    }
}

impl Content {
    /// Reads what matters. Of a control batch the first record is decoded; of data only the header is looked at.
    pub(super) fn of(frame: &BatchFrame<'_>) -> Result<Self, ProducerRejection> {
        if !frame.is_control() {
            return Ok(Self::Data(Data {
                producer_epoch: frame.producer_epoch(),
                base_sequence: frame.base_sequence(),
                last_sequence: frame.last_sequence(),
                base_offset: frame.base_offset(),
                last_offset: frame.last_offset(),
                timestamp: frame.max_timestamp(),
                is_transactional: frame.is_transactional(),
            }));
        }
        // Whoever gives the frame has checked its bytes, or has them from its own log.
        let batch = frame.without_crc_check();
        let mut decompressor = Decompressor::new();
        let mut records = batch.records(&mut decompressor, &Limits::default())?;
        let Some(record) = records.next() else { return Ok(Self::EmptyControl) };
        let record = record?;
        let control = ControlRecord::parse(&record)?;
        let Some(EndTransactionMarker { committed, coordinator_epoch }) = control.marker else {
            return Err(ProducerRejection::NotAMarker { kind: control.kind, offset: frame.base_offset() });
        };
        Ok(Self::Marker(Marker {
            producer_epoch: frame.producer_epoch(),
            coordinator_epoch,
            offset: frame.base_offset(),
            timestamp: record.timestamp,
            is_aborted: !committed,
            is_transactional: frame.is_transactional(),
        }))
    }
}

/// Epoch, sequence and transaction of a data batch. That it is no duplicate, and verified, is known already.
pub(super) fn check_data(
    producer_id: ProducerId,
    data: &Data,
    known: &Known,
    verification: Option<&VerificationStateEntry>,
    origin: ProducerAppendOrigin,
) -> Result<(), ProducerRejection> {
    let offset = data.base_offset;
    if origin != ProducerAppendOrigin::Replication {
        check_epoch(producer_id, data.producer_epoch, known, offset)?;
    }
    if origin == ProducerAppendOrigin::Client {
        check_sequence(producer_id, data, known, verification)?;
    }
    match known.current_txn_first_offset {
        Some(first_offset) if !data.is_transactional => {
            Err(ProducerRejection::NotTransactional { producer_id, first_offset, offset })
        }
        _ => Ok(()),
    }
}

/// An epoch that is older than the known one was fenced.
pub(super) fn check_epoch(
    producer_id: ProducerId,
    producer_epoch: i16,
    known: &Known,
    offset: Offset,
) -> Result<(), ProducerRejection> {
    let known_epoch = known.producer_epoch;
    if producer_epoch < known_epoch {
        return Err(ProducerRejection::InvalidProducerEpoch {
            producer_id,
            producer_epoch,
            known_epoch,
            offset,
        });
    }
    Ok(())
}

fn check_sequence(
    producer_id: ProducerId,
    data: &Data,
    known: &Known,
    verification: Option<&VerificationStateEntry>,
) -> Result<(), ProducerRejection> {
    let base_sequence = data.base_sequence;
    let out_of_order = |rule, bound| {
        let offset = data.base_offset;
        Err(ProducerRejection::OutOfOrderSequence { producer_id, base_sequence, bound, rule, offset })
    };
    if let Some(entry) = verification {
        if entry.supports_epoch_bump && base_sequence != 0 && known.last_sequence.is_none() {
            return out_of_order(SequenceRule::FirstOfVerified, 0);
        }
        if base_sequence > entry.lowest_sequence {
            return out_of_order(SequenceRule::AboveVerified, entry.lowest_sequence);
        }
    }
    // Where nothing is known any sequence will do: what was known may have expired (KIP-360).
    if known.producer_epoch == -1 {
        return Ok(());
    }
    if data.producer_epoch != known.producer_epoch {
        return if base_sequence == 0 { Ok(()) } else { out_of_order(SequenceRule::FirstOfEpoch, 0) };
    }
    let expected = known.last_sequence.map_or(0, |last| increment_sequence(last, 1));
    if base_sequence == expected { Ok(()) } else { out_of_order(SequenceRule::Next, expected) }
}

/// Epochs of a marker that a leader appends (KIP-1228). `transaction_version` is that of the producer.
pub(super) fn check_marker(
    producer_id: ProducerId,
    marker: &Marker,
    known: &Known,
    transaction_version: i16,
) -> Result<(), ProducerRejection> {
    if !(0..=2).contains(&transaction_version) {
        return Err(ProducerRejection::TransactionVersion(transaction_version));
    }
    let (producer_epoch, known_epoch) = (marker.producer_epoch, known.producer_epoch);
    // Version 2 raises the epoch with each transaction. Of the same epoch are only a marker that is sent again, and one
    // whose epoch cannot be raised.
    let may_be_equal =
        transaction_version < 2 || known.current_txn_first_offset.is_none() || producer_epoch == i16::MAX;
    let offset = marker.offset;
    if producer_epoch < known_epoch || producer_epoch == known_epoch && !may_be_equal {
        return Err(ProducerRejection::InvalidProducerEpoch {
            producer_id,
            producer_epoch,
            known_epoch,
            offset,
        });
    }
    let (coordinator_epoch, known_epoch) = (marker.coordinator_epoch, known.coordinator_epoch);
    if coordinator_epoch < known_epoch {
        return Err(ProducerRejection::TransactionCoordinatorFenced {
            producer_id,
            coordinator_epoch,
            known_epoch,
            offset,
        });
    }
    Ok(())
}
