//! The value of a record: what its schema says, then what a coordinator demands on top.

use super::metadata::TransactionMetadata;
use super::reader::Reader;
use super::state::TransactionState;
use super::tagged::{TaggedFieldView, TaggedFields, read_tagged_fields};
use super::topics::{Topics, read_topics};
use crate::types::ProducerId;
use std::fmt;

/// Position of the status byte, the same in both versions.
pub(super) const STATUS_POSITION: usize = 16;

pub(super) const TAG_PREVIOUS_PRODUCER_ID: u32 = 0;
pub(super) const TAG_NEXT_PRODUCER_ID: u32 = 1;
pub(super) const TAG_CLIENT_TRANSACTION_VERSION: u32 = 2;
pub(super) const TAG_NEXT_PRODUCER_EPOCH: u32 = 3;
pub(super) const UNKNOWN_TAGS_FROM: u32 = 4;

pub(super) const NO_EPOCH: i16 = -1;
pub(super) const CLIENT_TRANSACTION_VERSION_DEFAULT: i16 = 0;
/// Highest client transaction version that Kafka defines (KIP-890).
const CLIENT_TRANSACTION_VERSION_MAX: i16 = 2;

/// Version of a value's schema.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ValueVersion {
    /// Fixed fields only: what a cluster at `transaction.version` 0 writes.
    V0,
    /// Compact lengths and tagged fields: `transaction.version` 1 and 2.
    V1,
}

impl ValueVersion {
    /// The version with this number; `None` for any but 0 and 1.
    pub const fn from_code(code: i16) -> Option<Self> {
        match code {
            0 => Some(Self::V0),
            1 => Some(Self::V1),
            _ => None,
        }
    }

    /// The number stored in a value's first two bytes.
    pub const fn code(self) -> i16 {
        self as i16
    }
}

/// Why a value cannot be read. A record with such a value refuses the partition. Positions count bytes from the
/// start of the value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ValueFault {
    /// A version that this schema does not know, where only a known one can be used.
    #[error("version {0} is not known")]
    Version(i16),
    /// The value ends inside a field.
    #[error("value ends inside {field} at its byte {position}: {needed} bytes needed, {left} left")]
    Truncated {
        /// Name of the field.
        field: &'static str,
        /// Where the field begins.
        position: usize,
        /// Bytes that the field takes, or the least that it could take.
        needed: u64,
        /// Bytes that are there.
        left: usize,
    },
    /// A variable-length integer goes on after its fifth byte.
    #[error("variable-length integer of {field} at byte {position} of the value has no end")]
    Varint {
        /// Name of the field.
        field: &'static str,
        /// Where the integer begins.
        position: usize,
    },
    /// An array's number of elements is negative (and not null) or larger than the bytes left.
    #[error("{count} {field} at byte {position} of the value with {left} bytes left")]
    Count {
        /// Name of the array.
        field: &'static str,
        /// Where the number stands.
        position: usize,
        /// The number.
        count: i64,
        /// Bytes behind it.
        left: usize,
    },
    /// A topic name is null (−1), of negative length, or longer than 32,767 bytes.
    #[error("topic name of length {length} at byte {position} of the value")]
    TopicLength {
        /// Where the length stands.
        position: usize,
        /// The length; −1 is null.
        length: i64,
    },
    /// A topic's list of partition ids is null.
    #[error("null list of partition ids at byte {position} of the value")]
    NullPartitionIds {
        /// Where the list stands.
        position: usize,
    },
    /// A known tagged field has another size than its type. Kafka ignores the size and misreads what follows.
    #[error("tagged field {tag} ending at byte {end} of the value has {size} bytes, not {expected}")]
    TagSize {
        /// The tag, 0 … 3.
        tag: u32,
        /// Position of the first byte behind the field.
        end: usize,
        /// Stated size, bytes.
        size: usize,
        /// Size of the field's type, bytes.
        expected: usize,
    },
    /// The status is none of the eight states.
    #[error("transaction status {0} is not defined")]
    Status(i8),
    /// The partitions are null although the state is not Empty.
    #[error("null partitions with state {0}, only Empty has none")]
    NullPartitions(TransactionState),
}

/// What is odd about a value without making it unreadable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ValueWarnings {
    /// Bytes behind the last field. Ignored, and not written back.
    pub trailing_bytes: usize,
    /// State Empty with partitions. Kafka ignores them, and so does [`TransactionView::partitions`].
    pub partitions_with_empty: bool,
    /// The client transaction version is none of 0, 1 and 2. Kafka stops loading there; here the number is kept.
    pub odd_client_transaction_version: bool,
    /// A tag comes more than once; its last content counts.
    pub repeated_tag: bool,
}

impl ValueWarnings {
    /// Whether there is nothing to warn of.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for ValueWarnings {
    /// A plain phrase per warning, joined by commas; nothing if there is none.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        if self.trailing_bytes > 0 {
            write!(f, "{} bytes behind the last field", self.trailing_bytes)?;
            separator = ", ";
        }
        for (holds, phrase) in [
            (self.partitions_with_empty, "partitions given with state Empty"),
            (self.odd_client_transaction_version, "client transaction version other than 0, 1 and 2"),
            (self.repeated_tag, "tagged field given more than once"),
        ] {
            if holds {
                write!(f, "{separator}{phrase}")?;
                separator = ", ";
            }
        }
        Ok(())
    }
}

/// A value, read by its schema alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// Schema version 0 or 1.
    Known(ValueFields<'a>),
    /// Another schema version. Loaders skip it; whoever rewrites the log keeps it.
    Unknown {
        /// The value's version field.
        version: i16,
    },
}

/// The fields of a value as they are stored. Only the structure was checked: the status may be undefined and the
/// partitions may not fit it. [`transaction`](Self::transaction) applies the coordinator's rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueFields<'a> {
    /// Schema version.
    pub version: ValueVersion,
    /// Producer id of the transactional id.
    pub producer_id: ProducerId,
    /// Its epoch.
    pub producer_epoch: i16,
    /// Time after which the coordinator aborts an open transaction, ms.
    pub transaction_timeout_ms: i32,
    /// Status as stored; see [`TransactionState::from_code`].
    pub status: i8,
    /// Time of the last state change, ms since the epoch.
    pub last_update_timestamp_ms: i64,
    /// Time at which the transaction was started, ms since the epoch; −1 if none was.
    pub start_timestamp_ms: i64,
    /// Producer id before the last rotation; [`ProducerId::NONE`] if there is none.
    pub previous_producer_id: ProducerId,
    /// Producer id after the rotation under way; [`ProducerId::NONE`] if there is none.
    pub next_producer_id: ProducerId,
    /// Epoch to use with a prepared transaction (KIP-939); −1 if there is none.
    pub next_producer_epoch: i16,
    /// Transaction version of the client that wrote last (KIP-890): 0, 1, 2, or an odd one that is warned of.
    pub client_transaction_version: i16,
    /// What is odd about this value.
    pub warnings: ValueWarnings,
    topics: Option<Topics<'a>>,
    tagged_fields: TaggedFields<'a>,
}

impl<'a> Value<'a> {
    /// Reads a value that is not null (a null one is a tombstone). Everything is checked in one pass, so no accessor
    /// can fail later. Bytes behind the last field are ignored and warned of.
    ///
    /// Allocates nothing, except for values whose tags are out of order.
    ///
    /// # Errors
    /// A [`ValueFault`] where the bytes do not follow the schema.
    pub fn parse(value: &'a [u8]) -> Result<Self, ValueFault> {
        let mut reader = Reader::new(value);
        let version = reader.i16("version")?;
        match ValueVersion::from_code(version) {
            Some(version) => ValueFields::read(reader, version).map(Self::Known),
            None => Ok(Self::Unknown { version }),
        }
    }
}

impl<'a> ValueFields<'a> {
    fn read(mut reader: Reader<'a>, version: ValueVersion) -> Result<Self, ValueFault> {
        let producer_id = ProducerId(reader.i64("producer id")?);
        let producer_epoch = reader.i16("producer epoch")?;
        let transaction_timeout_ms = reader.i32("transaction timeout")?;
        let status = reader.i8("transaction status")?;
        let (topics, repeated_in_topic) = read_topics(&mut reader, version)?;
        let last_update_timestamp_ms = reader.i64("last update timestamp")?;
        let start_timestamp_ms = reader.i64("start timestamp")?;
        let mut fields = Self {
            version,
            producer_id,
            producer_epoch,
            transaction_timeout_ms,
            status,
            last_update_timestamp_ms,
            start_timestamp_ms,
            previous_producer_id: ProducerId::NONE,
            next_producer_id: ProducerId::NONE,
            next_producer_epoch: NO_EPOCH,
            client_transaction_version: CLIENT_TRANSACTION_VERSION_DEFAULT,
            warnings: ValueWarnings::default(),
            topics,
            tagged_fields: TaggedFields::NONE,
        };
        let mut repeated_in_value = false;
        if version >= ValueVersion::V1 {
            let known = |field, end| fields.read_known_tag(field, end);
            (fields.tagged_fields, repeated_in_value) =
                read_tagged_fields(&mut reader, UNKNOWN_TAGS_FROM, known)?;
        }
        fields.warnings = ValueWarnings {
            trailing_bytes: reader.left(),
            partitions_with_empty: status == TransactionState::Empty.code()
                && topics.is_some_and(|topics| topics.len() > 0),
            odd_client_transaction_version: !(CLIENT_TRANSACTION_VERSION_DEFAULT
                ..=CLIENT_TRANSACTION_VERSION_MAX)
                .contains(&fields.client_transaction_version),
            repeated_tag: repeated_in_topic || repeated_in_value,
        };
        Ok(fields)
    }

    fn read_known_tag(&mut self, field: TaggedFieldView<'a>, end: usize) -> Result<(), ValueFault> {
        fn sized<const N: usize>(field: TaggedFieldView<'_>, end: usize) -> Result<[u8; N], ValueFault> {
            let TaggedFieldView { tag, data } = field;
            data.try_into().map_err(|_| ValueFault::TagSize { tag, end, size: data.len(), expected: N })
        }
        match field.tag {
            TAG_PREVIOUS_PRODUCER_ID => {
                self.previous_producer_id = ProducerId(i64::from_be_bytes(sized(field, end)?))
            }
            TAG_NEXT_PRODUCER_ID => {
                self.next_producer_id = ProducerId(i64::from_be_bytes(sized(field, end)?))
            }
            TAG_CLIENT_TRANSACTION_VERSION => {
                self.client_transaction_version = i16::from_be_bytes(sized(field, end)?)
            }
            TAG_NEXT_PRODUCER_EPOCH => self.next_producer_epoch = i16::from_be_bytes(sized(field, end)?),
            _ => {}
        }
        Ok(())
    }

    /// The partition array as stored: `None` is null, which is not the same as empty.
    pub fn partitions(&self) -> Option<Topics<'a>> {
        self.topics
    }

    /// Tagged fields of the value that the schema does not know, in stored order.
    pub fn unknown_tagged_fields(&self) -> TaggedFields<'a> {
        self.tagged_fields
    }

    /// The state that the status stands for; `None` if it is undefined.
    pub fn state(&self) -> Option<TransactionState> {
        TransactionState::from_code(self.status)
    }

    /// The transaction that a coordinator takes from this value.
    ///
    /// # Errors
    /// [`ValueFault::Status`] for an undefined status, [`ValueFault::NullPartitions`] for null partitions with
    /// another state than Empty. Kafka stops loading at both.
    pub fn transaction(&self) -> Result<TransactionView<'a>, ValueFault> {
        let state = self.state().ok_or(ValueFault::Status(self.status))?;
        if self.topics.is_none() && state != TransactionState::Empty {
            return Err(ValueFault::NullPartitions(state));
        }
        Ok(TransactionView { state, fields: *self })
    }
}

/// The status byte of a value without reading the rest of it: `None` if the value has another version than 0 and 1
/// or is too short. Says nothing about the other bytes.
#[inline]
pub fn status_code(value: &[u8]) -> Option<i8> {
    let (version, _) = value.split_first_chunk()?;
    ValueVersion::from_code(i16::from_be_bytes(*version))?;
    value.get(STATUS_POSITION).map(|status| status.cast_signed())
}

/// A transaction as a coordinator takes it from a value: the state is defined and the partitions fit it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransactionView<'a> {
    state: TransactionState,
    fields: ValueFields<'a>,
}

impl<'a> TransactionView<'a> {
    /// State of the transaction.
    pub fn state(&self) -> TransactionState {
        self.state
    }

    /// The other fields.
    pub fn fields(&self) -> &ValueFields<'a> {
        &self.fields
    }

    /// The partitions: `None` exactly for Empty, whose partitions do not count even where they are given.
    pub fn partitions(&self) -> Option<Topics<'a>> {
        self.fields.topics.filter(|_| self.state != TransactionState::Empty)
    }

    /// An owned copy. Allocates in proportion to the value.
    pub fn to_metadata(&self) -> TransactionMetadata {
        TransactionMetadata::from_view(self)
    }
}
