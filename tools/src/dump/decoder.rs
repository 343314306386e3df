//! Keys and values of the internal topics as text (CoordinatorRecordMessageFormatter and the decoders of Kafka's dump
//! tool).

use std::fmt::Write;

use redrive::transaction_log::{Key, Topics, TransactionState, Value, ValueFields, decode_utf8};

use super::args::DecoderKind;
use super::json::{self, Dialect};
use super::{schema, tables};

/// What became of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Decoded {
    /// Key and value are JSON objects.
    Record {
        /// `{"type":"…","data":{…}}`
        key: String,
        /// `{"version":"…","data":{…}}`; `None` for a tombstone.
        value: Option<String>,
    },
    /// A type or version that Kafka 4.4 does not define, in a sentence. That is no damage.
    Unknown(String),
    /// Bytes that do not follow their schema, in a sentence.
    Failed(String),
}

/// Reads the record at `offset`.
///
/// [`Dialect::Safe`] also puts ids and topics that are no UTF-8 beside their text, in base64.
pub(super) fn decode(
    kind: DecoderKind,
    offset: i64,
    key: &[u8],
    value: Option<&[u8]>,
    dialect: Dialect,
) -> Decoded {
    let read = match kind {
        DecoderKind::TransactionLog => transaction_log(key, value, dialect),
        _ => offsets(key, value, dialect),
    };
    let error = |what: String| format!("Error at offset {offset}, skipping. {what}");
    match read {
        Ok((key, value)) => Decoded::Record { key, value },
        Err(Skipped::Type(version)) => {
            Decoded::Unknown(format!("Unknown record type {version} at offset {offset}, skipping."))
        }
        Err(Skipped::Version(version, of)) => {
            Decoded::Unknown(error(format!("Found an unknown record version {version} for {of} type")))
        }
        Err(Skipped::NoVersion(part)) => {
            Decoded::Failed(error(format!("Could not read version from {part}'s buffer.")))
        }
        Err(Skipped::Damaged { part, version, why }) => Decoded::Failed(error(format!(
            "Could not read record with version {version} from {part}'s buffer due to: {why}."
        ))),
    }
}

/// Why a record is skipped.
enum Skipped {
    Type(i16),
    Version(i16, i16),
    NoVersion(&'static str),
    Damaged { part: &'static str, version: i16, why: String },
}

impl Skipped {
    fn damaged(part: &'static str, version: i16, why: impl ToString) -> Self {
        Self::Damaged { part, version, why: why.to_string() }
    }
}

type Texts = (String, Option<String>);

/// Takes the version off the front of a key or value.
fn split_version<'a>(bytes: &'a [u8], part: &'static str) -> Result<(i16, &'a [u8]), Skipped> {
    let (version, rest) = bytes.split_first_chunk().ok_or(Skipped::NoVersion(part))?;
    Ok((i16::from_be_bytes(*version), rest))
}

fn offsets(key: &[u8], value: Option<&[u8]>, dialect: Dialect) -> Result<Texts, Skipped> {
    let (record_type, body) = split_version(key, "key")?;
    let (key_message, value_message) = tables::group_record(record_type).ok_or(Skipped::Type(record_type))?;
    let mut key_text = format!(r#"{{"type":"{record_type}","data":"#);
    schema::decode(key_message, 0, body, dialect, &mut key_text)
        .map_err(|fault| Skipped::damaged("key", record_type, fault))?;
    key_text.push('}');
    let Some(value) = value else { return Ok((key_text, None)) };
    let (version, body) = split_version(value, "value")?;
    if !(0..=value_message.version_max).contains(&version) {
        return Err(Skipped::Version(version, record_type));
    }
    let mut value_text = format!(r#"{{"version":"{version}","data":"#);
    schema::decode(value_message, version, body, dialect, &mut value_text)
        .map_err(|fault| Skipped::damaged("value", version, fault))?;
    value_text.push('}');
    Ok((key_text, Some(value_text)))
}

fn transaction_log(key: &[u8], value: Option<&[u8]>, dialect: Dialect) -> Result<Texts, Skipped> {
    let (record_type, _) = split_version(key, "key")?;
    let id = match Key::parse(key) {
        Ok(Key::TransactionalId(id)) => id,
        Ok(Key::Unknown { version }) => return Err(Skipped::Type(version)),
        Err(fault) => return Err(Skipped::damaged("key", record_type, fault)),
    };
    let mut key_text = format!(r#"{{"type":"{record_type}","data":{{"#);
    push_named_utf8(&mut key_text, "transactionalId", "transactionalIdBase64", id, dialect);
    key_text.push_str("}}");
    let Some(value) = value else { return Ok((key_text, None)) };
    let (version, _) = split_version(value, "value")?;
    match Value::parse(value) {
        Ok(Value::Known(fields)) => {
            let mut value_text = format!(r#"{{"version":"{version}","data":"#);
            push_transaction(&mut value_text, &fields, dialect);
            value_text.push('}');
            Ok((key_text, Some(value_text)))
        }
        Ok(Value::Unknown { version }) => Err(Skipped::Version(version, record_type)),
        Err(fault) => Err(Skipped::damaged("value", version, fault)),
    }
}

fn push_named_utf8(out: &mut String, name: &str, base64_name: &str, bytes: &[u8], dialect: Dialect) {
    json::push_name(out, name);
    let text = decode_utf8(bytes);
    json::push_string(out, &text, dialect);
    if dialect == Dialect::Safe && text.as_bytes() != bytes {
        json::push_name(out, base64_name);
        json::push_base64(out, bytes);
    }
}

/// The fields in the order of Kafka's schema; tagged ones only where they differ from their defaults.
fn push_transaction(out: &mut String, value: &ValueFields<'_>, dialect: Dialect) {
    let number = |out: &mut String, name: &str, number: i64| {
        json::push_name(out, name);
        let _ = write!(out, "{number}");
    };
    let tagged = |out: &mut String, name: &str, value: i64, default: i64| {
        if value != default {
            number(out, name, value);
        }
    };
    out.push('{');
    number(out, "producerId", value.producer_id.0);
    tagged(out, "previousProducerId", value.previous_producer_id.0, -1);
    tagged(out, "nextProducerId", value.next_producer_id.0, -1);
    number(out, "producerEpoch", value.producer_epoch.into());
    tagged(out, "nextProducerEpoch", value.next_producer_epoch.into(), -1);
    number(out, "transactionTimeoutMs", value.transaction_timeout_ms.into());
    json::push_name(out, "transactionStatus");
    match value.state().map(TransactionState::name) {
        Some(name) => json::push_string(out, name, dialect),
        None => json::push_string(out, &value.status.to_string(), dialect),
    }
    json::push_name(out, "transactionPartitions");
    push_topics(out, value.partitions(), dialect);
    number(out, "transactionLastUpdateTimestampMs", value.last_update_timestamp_ms);
    number(out, "transactionStartTimestampMs", value.start_timestamp_ms);
    tagged(out, "clientTransactionVersion", value.client_transaction_version.into(), 0);
    out.push('}');
}

fn push_topics(out: &mut String, topics: Option<Topics<'_>>, dialect: Dialect) {
    let Some(topics) = topics else { return out.push_str("null") };
    out.push('[');
    for topic in topics {
        json::separate(out);
        out.push('{');
        push_named_utf8(out, "topic", "topicBase64", topic.topic, dialect);
        json::push_name(out, "partitionIds");
        out.push('[');
        for id in topic.partition_ids() {
            json::separate(out);
            let _ = write!(out, "{id}");
        }
        out.push_str("]}");
    }
    out.push(']');
}

/// The message of a KRaft control record (types 2 to 6) as JSON, with the word before it; `None` for other types.
///
/// # Errors
/// Why the value is no such message.
pub(super) fn kraft_control(
    record_type: i16,
    value: Option<&[u8]>,
    dialect: Dialect,
) -> Option<Result<(&'static str, String), String>> {
    let (label, message) = match record_type {
        2 => ("LeaderChange:", &tables::LEADER_CHANGE),
        3 => ("SnapshotHeader", &tables::SNAPSHOT_HEADER),
        4 => ("SnapshotFooter", &tables::SNAPSHOT_FOOTER),
        5 => ("KRaftVersion", &tables::KRAFT_VERSION),
        6 => ("KRaftVoters", &tables::VOTERS),
        _ => return None,
    };
    let value = value.unwrap_or_default();
    let Some((version, _)) = value.split_first_chunk() else {
        return Some(Err(format!("value of {} bytes is too short for its version", value.len())));
    };
    // The version is a field of the message itself; what is out of range is read as the nearest, as Kafka does.
    let version = i16::from_be_bytes(*version).clamp(0, message.version_max);
    let mut text = String::new();
    Some(
        schema::decode(message, version, value, dialect, &mut text)
            .map(|()| (label, text))
            .map_err(|fault| fault.to_string()),
    )
}
