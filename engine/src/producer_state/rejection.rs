//! Why a batch does not fit what is known of its producer.

use crate::batch::{ControlFault, ControlRecordType, RecordFault, RecordsFault};
use crate::types::{Offset, ProducerId};

/// The rule that a base sequence breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SequenceRule {
    /// Nothing is known of a producer that verifies as transaction version 2 does: it begins at 0.
    FirstOfVerified,
    /// A batch with a lower sequence was verified and is not here yet.
    AboveVerified,
    /// An epoch begins at 0.
    FirstOfEpoch,
    /// A batch follows the one before it.
    Next,
}

impl SequenceRule {
    fn text(self) -> &'static str {
        match self {
            Self::FirstOfVerified => "the first sequence of this producer is",
            Self::AboveVerified => "the lowest verified sequence is",
            Self::FirstOfEpoch => "the first sequence of an epoch is",
            Self::Next => "the next sequence is",
        }
    }
}

/// Why a batch does not fit what is known of its producer. Nothing has changed then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProducerRejection {
    /// The producer was fenced: its epoch is older than the newest one, or, for a marker of transaction version 2,
    /// not newer (Kafka's InvalidProducerEpochException).
    #[error(
        "epoch {producer_epoch} of producer {producer_id} at offset {offset} does not follow epoch {known_epoch}"
    )]
    InvalidProducerEpoch {
        /// The producer.
        producer_id: ProducerId,
        /// The epoch that was sent.
        producer_epoch: i16,
        /// The newest one that is known.
        known_epoch: i16,
        /// The batch's base offset.
        offset: Offset,
    },
    /// Records are missing before this batch, or it was sent before and is no longer remembered
    /// (OutOfOrderSequenceException).
    #[error(
        "sequence {base_sequence} of producer {producer_id} at offset {offset} is out of order: {} {bound}",
        rule.text()
    )]
    OutOfOrderSequence {
        /// The producer.
        producer_id: ProducerId,
        /// The batch's first sequence.
        base_sequence: i32,
        /// What the rule allows: exactly this, or at most this for [`SequenceRule::AboveVerified`].
        bound: i32,
        /// The rule.
        rule: SequenceRule,
        /// The batch's base offset.
        offset: Offset,
    },
    /// A transactional batch begins a transaction that was not verified with the coordinator (InvalidTxnStateException).
    #[error("the transaction of producer {producer_id} at offset {offset} was not verified")]
    NotVerified {
        /// The producer.
        producer_id: ProducerId,
        /// The batch's base offset.
        offset: Offset,
    },
    /// A batch outside transactions while the producer has an open one (InvalidTxnStateException).
    #[error(
        "a batch outside of transactions at offset {offset}: producer {producer_id} has one open from {first_offset}"
    )]
    NotTransactional {
        /// The producer.
        producer_id: ProducerId,
        /// Where its open transaction begins.
        first_offset: Offset,
        /// The batch's base offset.
        offset: Offset,
    },
    /// The marker comes from a transaction coordinator that is no longer in charge
    /// (TransactionCoordinatorFencedException).
    #[error(
        "marker of coordinator epoch {coordinator_epoch} for producer {producer_id} at offset {offset}, \
         epoch {known_epoch} is known"
    )]
    TransactionCoordinatorFenced {
        /// The producer.
        producer_id: ProducerId,
        /// The marker's coordinator epoch.
        coordinator_epoch: i32,
        /// The newest one that is known.
        known_epoch: i32,
        /// The marker's offset.
        offset: Offset,
    },
    /// Whoever appends a marker has to say its transaction version: 0, 1 or 2 (IllegalArgumentException).
    #[error("transaction version {0} of a marker, 0 to 2 are defined")]
    TransactionVersion(i16),
    /// A control batch of a producer holds something else than a marker (IllegalArgumentException).
    #[error("control record {} at offset {offset} is no transaction marker", kind.name())]
    NotAMarker {
        /// What it is.
        kind: ControlRecordType,
        /// Its offset.
        offset: Offset,
    },
    /// The key or value of a marker cannot be read.
    #[error(transparent)]
    Marker(#[from] ControlFault),
    /// The records of a control batch cannot be read.
    #[error(transparent)]
    Records(#[from] RecordsFault),
    /// The first record of a control batch is malformed.
    #[error(transparent)]
    Record(#[from] RecordFault),
}

impl ProducerRejection {
    /// Kafka's name of the error that whoever appended is told.
    pub fn error_name(&self) -> &'static str {
        self.error().0
    }

    /// The code of [`error_name`](Self::error_name) on the wire.
    pub fn error_code(&self) -> i16 {
        self.error().1
    }

    fn error(&self) -> (&'static str, i16) {
        match self {
            Self::InvalidProducerEpoch { .. } => ("INVALID_PRODUCER_EPOCH", 47),
            Self::OutOfOrderSequence { .. } => ("OUT_OF_ORDER_SEQUENCE_NUMBER", 45),
            Self::NotVerified { .. } | Self::NotTransactional { .. } => ("INVALID_TXN_STATE", 48),
            Self::TransactionCoordinatorFenced { .. } => ("TRANSACTION_COORDINATOR_FENCED", 52),
            Self::Records(_) | Self::Record(_) => ("CORRUPT_MESSAGE", 2),
            // What a broker makes of an exception that has no error of its own.
            Self::TransactionVersion(_) | Self::NotAMarker { .. } | Self::Marker(_) => {
                ("UNKNOWN_SERVER_ERROR", -1)
            }
        }
    }
}
