//! The state of one transactional id, owned, and its way back into bytes.

use super::key::STRING_BYTES_MAX;
use super::reader::write_unsigned_varint;
use super::state::TransactionState;
use super::tagged::TaggedField;
use super::text::decode_utf8;
use super::value::{
    CLIENT_TRANSACTION_VERSION_DEFAULT, NO_EPOCH, TAG_CLIENT_TRANSACTION_VERSION, TAG_NEXT_PRODUCER_EPOCH,
    TAG_NEXT_PRODUCER_ID, TAG_PREVIOUS_PRODUCER_ID, TransactionView, UNKNOWN_TAGS_FROM, ValueVersion,
};
use crate::types::ProducerId;
use std::borrow::Cow;

/// The partitions of one topic in a transaction.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TopicPartitions {
    /// Name as stored, at most 32,767 bytes; UTF-8 by contract. Kept as bytes so that it is written back unchanged.
    pub topic: Vec<u8>,
    /// Partition ids in stored order.
    pub partition_ids: Vec<i32>,
    /// Tagged fields of this topic. Kafka defines none today.
    pub unknown_tagged_fields: Vec<TaggedField>,
}

impl TopicPartitions {
    /// The name as Kafka reads it; see [`decode_utf8`].
    pub fn topic_name(&self) -> Cow<'_, str> {
        decode_utf8(&self.topic)
    }
}

/// What a coordinator knows of a transactional id (Kafka's TransactionMetadata).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TransactionMetadata {
    /// Producer id of the transactional id.
    pub producer_id: ProducerId,
    /// Its epoch.
    pub producer_epoch: i16,
    /// Time after which the coordinator aborts an open transaction, ms.
    pub transaction_timeout_ms: i32,
    /// State of the transaction.
    pub state: TransactionState,
    /// Partitions of the transaction, in stored order. `None` belongs to Empty, and to it alone.
    pub partitions: Option<Vec<TopicPartitions>>,
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
    /// Transaction version of the client that wrote last (KIP-890), 0 if not known.
    pub client_transaction_version: i16,
    /// Tagged fields that this schema does not know: tags from 4, each once. Ascending where they were decoded.
    pub unknown_tagged_fields: Vec<TaggedField>,
}

/// Why a value cannot be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeFault {
    /// Version 0 has no place for this field's value, as it differs from the default.
    #[error("value version 0 cannot hold the {field}")]
    NeedsVersion1 {
        /// Name of the field.
        field: &'static str,
    },
    /// Only Empty has no partition list.
    #[error("null partitions with state {0}, only Empty has none")]
    NullPartitions(TransactionState),
    /// A topic name longer than 32,767 bytes.
    #[error("topic name of {0} bytes, at most 32767 can be written")]
    TopicTooLong(usize),
    /// A list of more than 2^31 − 2 elements, or a tagged field of so many bytes.
    #[error("{0} elements are more than a value can count")]
    TooMany(usize),
    /// An unknown field with the tag of a known one, or with the same tag as another.
    #[error("tag {0} of an unknown field is taken")]
    Tag(u32),
}

impl TransactionMetadata {
    pub(super) fn from_view(view: &TransactionView<'_>) -> Self {
        let fields = view.fields();
        let partitions = view.partitions().map(|topics| {
            topics
                .map(|topic| TopicPartitions {
                    topic: topic.topic.to_vec(),
                    partition_ids: topic.partition_ids().collect(),
                    unknown_tagged_fields: topic.unknown_tagged_fields().to_owned_fields(),
                })
                .collect()
        });
        Self {
            producer_id: fields.producer_id,
            producer_epoch: fields.producer_epoch,
            transaction_timeout_ms: fields.transaction_timeout_ms,
            state: view.state(),
            partitions,
            last_update_timestamp_ms: fields.last_update_timestamp_ms,
            start_timestamp_ms: fields.start_timestamp_ms,
            previous_producer_id: fields.previous_producer_id,
            next_producer_id: fields.next_producer_id,
            next_producer_epoch: fields.next_producer_epoch,
            client_transaction_version: fields.client_transaction_version,
            unknown_tagged_fields: fields.unknown_tagged_fields().to_owned_fields(),
        }
    }

    /// Appends the value to `out` in the form Kafka writes: null partitions exactly for Empty, tags ascending,
    /// defaults left out.
    ///
    /// # Errors
    /// An [`EncodeFault`] where the version cannot hold the fields; `out` is unchanged then.
    pub fn encode(&self, version: ValueVersion, out: &mut Vec<u8>) -> Result<(), EncodeFault> {
        let start = out.len();
        self.write(version, out).inspect_err(|_| out.truncate(start))
    }

    fn write(&self, version: ValueVersion, out: &mut Vec<u8>) -> Result<(), EncodeFault> {
        out.extend_from_slice(&version.code().to_be_bytes());
        out.extend_from_slice(&self.producer_id.0.to_be_bytes());
        out.extend_from_slice(&self.producer_epoch.to_be_bytes());
        out.extend_from_slice(&self.transaction_timeout_ms.to_be_bytes());
        out.extend_from_slice(&self.state.code().to_be_bytes());
        match &self.partitions {
            _ if self.state == TransactionState::Empty => write_null(version, out),
            Some(topics) => write_topics(topics, version, out)?,
            None => return Err(EncodeFault::NullPartitions(self.state)),
        }
        out.extend_from_slice(&self.last_update_timestamp_ms.to_be_bytes());
        out.extend_from_slice(&self.start_timestamp_ms.to_be_bytes());

        let previous_producer_id = self.previous_producer_id.0.to_be_bytes();
        let next_producer_id = self.next_producer_id.0.to_be_bytes();
        let client_transaction_version = self.client_transaction_version.to_be_bytes();
        let next_producer_epoch = self.next_producer_epoch.to_be_bytes();
        let known: [(bool, &'static str, u32, &[u8]); 4] = [
            (
                self.previous_producer_id != ProducerId::NONE,
                "previous producer id",
                TAG_PREVIOUS_PRODUCER_ID,
                &previous_producer_id,
            ),
            (
                self.next_producer_id != ProducerId::NONE,
                "next producer id",
                TAG_NEXT_PRODUCER_ID,
                &next_producer_id,
            ),
            (
                self.client_transaction_version != CLIENT_TRANSACTION_VERSION_DEFAULT,
                "client transaction version",
                TAG_CLIENT_TRANSACTION_VERSION,
                &client_transaction_version,
            ),
            (
                self.next_producer_epoch != NO_EPOCH,
                "next producer epoch",
                TAG_NEXT_PRODUCER_EPOCH,
                &next_producer_epoch,
            ),
        ];
        let set = known.into_iter().filter(|&(set, ..)| set);
        match version {
            ValueVersion::V0 => {
                if let Some((_, field, ..)) = set.clone().next() {
                    return Err(EncodeFault::NeedsVersion1 { field });
                }
                refuse_unknown_tags(&self.unknown_tagged_fields)
            }
            ValueVersion::V1 => {
                let known: Vec<(u32, &[u8])> = set.map(|(_, _, tag, data)| (tag, data)).collect();
                write_tagged_fields(&known, &self.unknown_tagged_fields, UNKNOWN_TAGS_FROM, out)
            }
        }
    }
}

fn write_topics(
    topics: &[TopicPartitions],
    version: ValueVersion,
    out: &mut Vec<u8>,
) -> Result<(), EncodeFault> {
    write_count(topics.len(), version, out)?;
    for topic in topics {
        let length = topic.topic.len();
        if length > STRING_BYTES_MAX {
            return Err(EncodeFault::TopicTooLong(length));
        }
        match version {
            ValueVersion::V0 => out.extend_from_slice(&(length as i16).to_be_bytes()),
            ValueVersion::V1 => write_unsigned_varint(length as u32 + 1, out),
        }
        out.extend_from_slice(&topic.topic);
        write_count(topic.partition_ids.len(), version, out)?;
        for id in &topic.partition_ids {
            out.extend_from_slice(&id.to_be_bytes());
        }
        match version {
            ValueVersion::V0 => refuse_unknown_tags(&topic.unknown_tagged_fields)?,
            ValueVersion::V1 => write_tagged_fields(&[], &topic.unknown_tagged_fields, 0, out)?,
        }
    }
    Ok(())
}

fn write_null(version: ValueVersion, out: &mut Vec<u8>) {
    match version {
        ValueVersion::V0 => out.extend_from_slice(&(-1i32).to_be_bytes()),
        ValueVersion::V1 => write_unsigned_varint(0, out),
    }
}

fn write_count(count: usize, version: ValueVersion, out: &mut Vec<u8>) -> Result<(), EncodeFault> {
    let counted = countable(count)?;
    match version {
        ValueVersion::V0 => out.extend_from_slice(&counted.to_be_bytes()),
        ValueVersion::V1 => write_unsigned_varint(counted + 1, out),
    }
    Ok(())
}

/// `count` as a number that fits Kafka's signed 32 bits even after the compact form has added one.
fn countable(count: usize) -> Result<u32, EncodeFault> {
    match u32::try_from(count) {
        Ok(counted) if counted < i32::MAX.unsigned_abs() => Ok(counted),
        _ => Err(EncodeFault::TooMany(count)),
    }
}

fn refuse_unknown_tags(unknown: &[TaggedField]) -> Result<(), EncodeFault> {
    match unknown {
        [] => Ok(()),
        _ => Err(EncodeFault::NeedsVersion1 { field: "unknown tagged fields" }),
    }
}

/// Writes a tagged-field section. `known` is ascending and below `unknown_from`, so sorting the unknown ones sorts
/// all.
fn write_tagged_fields(
    known: &[(u32, &[u8])],
    unknown: &[TaggedField],
    unknown_from: u32,
    out: &mut Vec<u8>,
) -> Result<(), EncodeFault> {
    let mut sorted: Vec<(u32, &[u8])> = unknown.iter().map(|field| (field.tag, &field.data[..])).collect();
    sorted.sort_by_key(|&(tag, _)| tag);
    if let Some(&(tag, _)) = sorted.first().filter(|&&(tag, _)| tag < unknown_from) {
        return Err(EncodeFault::Tag(tag));
    }
    if let Some(pair) = sorted.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        return Err(EncodeFault::Tag(pair[0].0));
    }
    write_unsigned_varint(countable(known.len() + sorted.len())?, out);
    for &(tag, data) in known.iter().chain(&sorted) {
        write_unsigned_varint(tag, out);
        write_unsigned_varint(countable(data.len())?, out);
        out.extend_from_slice(data);
    }
    Ok(())
}
