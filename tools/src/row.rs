//! One transactional id, or one record of it, in JSON. Names are Kafka's schema names in camelCase.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use redrive::replay::TransactionEntry;
use redrive::transaction_log::{TaggedFields, TransactionView, ValueFault, decode_utf8};
use serde::Serialize;

use crate::json::{base64, base64_unless_text};

/// The newest state of a transactional id.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row<'a> {
    /// Partition of the transaction log.
    pub partition: i32,
    /// Offset of the record that the value comes from.
    pub offset: i64,
    /// Schema version of the value.
    pub value_version: i16,
    /// The id.
    #[serde(flatten)]
    pub id: Id<'a>,
    /// The value.
    #[serde(flatten)]
    pub fields: Fields<'a>,
}

/// A transactional id as text, with its stored bytes where they are not UTF-8.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Id<'a> {
    /// As Kafka reads it: malformed parts are U+FFFD.
    pub transactional_id: Cow<'a, str>,
    /// The key's bytes, base64; only where they differ from the text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transactional_id_base64: Option<String>,
}

impl<'a> Id<'a> {
    /// From the bytes of a key.
    pub fn new(stored: &'a [u8]) -> Self {
        Self { transactional_id: decode_utf8(stored), transactional_id_base64: base64_unless_text(stored) }
    }
}

/// The fields of a value.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "the names are Kafka's, documented at ValueFields")]
pub struct Fields<'a> {
    pub producer_id: i64,
    pub previous_producer_id: i64,
    pub next_producer_id: i64,
    pub producer_epoch: i16,
    pub next_producer_epoch: i16,
    pub transaction_timeout_ms: i32,
    pub transaction_status: &'static str,
    /// By the bytes of the topic, ids ascending and each once; empty where the value has none.
    pub transaction_partitions: Vec<Topic<'a>>,
    pub transaction_last_update_timestamp_ms: i64,
    pub transaction_start_timestamp_ms: i64,
    pub client_transaction_version: i16,
    /// Tagged fields of the value that the schema does not know.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unknown_tagged_fields: Vec<Tagged>,
    /// What is odd about the value, as a phrase.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
}

/// The partitions of one topic.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Topic<'a> {
    /// As Kafka reads it.
    pub topic: Cow<'a, str>,
    /// The stored bytes, base64; only where they differ from the text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topic_base64: Option<String>,
    /// Ascending.
    pub partition_ids: BTreeSet<i32>,
}

/// A tagged field that the schema does not know.
#[derive(Clone, Debug, Serialize)]
pub struct Tagged {
    /// Its tag.
    pub tag: u32,
    /// Its bytes, base64.
    pub data: String,
}

impl<'a> Row<'a> {
    /// The row of an entry.
    ///
    /// # Errors
    /// None for an entry of a map: its value was decoded before it went in.
    pub fn new(partition: i32, entry: &'a TransactionEntry) -> Result<Self, ValueFault> {
        let view = entry.view()?;
        Ok(Self {
            partition,
            offset: entry.offset().0,
            value_version: view.fields().version.code(),
            id: Id::new(entry.stored_id()),
            fields: Fields::new(&view),
        })
    }
}

impl<'a> Fields<'a> {
    /// The fields of a value.
    pub fn new(view: &TransactionView<'a>) -> Self {
        let fields = view.fields();
        Self {
            producer_id: fields.producer_id.0,
            previous_producer_id: fields.previous_producer_id.0,
            next_producer_id: fields.next_producer_id.0,
            producer_epoch: fields.producer_epoch,
            next_producer_epoch: fields.next_producer_epoch,
            transaction_timeout_ms: fields.transaction_timeout_ms,
            transaction_status: view.state().name(),
            transaction_partitions: topics(view),
            transaction_last_update_timestamp_ms: fields.last_update_timestamp_ms,
            transaction_start_timestamp_ms: fields.start_timestamp_ms,
            client_transaction_version: fields.client_transaction_version,
            unknown_tagged_fields: tagged(fields.unknown_tagged_fields()),
            warning: (!fields.warnings.is_empty()).then(|| fields.warnings.to_string()),
        }
    }
}

/// A broker keeps a set of topic-partitions, so what a value says twice counts once.
fn topics<'a>(view: &TransactionView<'a>) -> Vec<Topic<'a>> {
    let mut by_topic: BTreeMap<&'a [u8], BTreeSet<i32>> = BTreeMap::new();
    for topic in view.partitions().into_iter().flatten() {
        by_topic.entry(topic.topic).or_default().extend(topic.partition_ids());
    }
    by_topic
        .into_iter()
        .map(|(stored, partition_ids)| Topic {
            topic: decode_utf8(stored),
            topic_base64: base64_unless_text(stored),
            partition_ids,
        })
        .collect()
}

fn tagged(fields: TaggedFields<'_>) -> Vec<Tagged> {
    fields.map(|field| Tagged { tag: field.tag, data: base64(field.data) }).collect()
}

/// Partition ids as people write them, runs drawn together: `0-2,7`.
pub fn ranges(ids: &BTreeSet<i32>) -> String {
    let mut text = String::new();
    let mut ids = ids.iter().copied().peekable();
    while let Some(first) = ids.next() {
        let mut last = first;
        while let Some(next) = ids.next_if(|&next| last.checked_add(1) == Some(next)) {
            last = next;
        }
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(&first.to_string());
        if last > first {
            text.push(if last == first + 1 { ',' } else { '-' });
            text.push_str(&last.to_string());
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_ids() {
        let text = |ids: &[i32]| ranges(&ids.iter().copied().collect());
        assert_eq!(text(&[]), "");
        assert_eq!(text(&[3]), "3");
        assert_eq!(text(&[0, 1]), "0,1");
        assert_eq!(text(&[7, 0, 2, 1, 9, 10]), "0-2,7,9,10");
        assert_eq!(text(&[i32::MIN, -1, i32::MAX]), "-2147483648,-1,2147483647");
    }
}
