//! Keys and values of the transaction log, in any version and with any tags.

use super::varint::unsigned_varint;

/// A value. Strings are bytes: a log may hold ids and topics that are not UTF-8.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionValue {
    /// 0 is written in its fixed form, 1 and anything else in the form with tags.
    pub version: i16,
    /// Producer id.
    pub producer_id: i64,
    /// Producer epoch.
    pub producer_epoch: i16,
    /// Transaction time-out in milliseconds.
    pub transaction_timeout_ms: i32,
    /// Number of the state.
    pub status: i8,
    /// Topics with their partitions; `None` for a null array.
    pub partitions: Option<Vec<TopicPartitions>>,
    /// Time of the last update, milliseconds since 1970.
    pub last_update_timestamp_ms: i64,
    /// Start of the transaction, milliseconds since 1970, -1 for none.
    pub start_timestamp_ms: i64,
    /// Tagged fields in the order in which they are written; not part of version 0.
    pub tags: Vec<(u32, Vec<u8>)>,
    /// Bytes behind the last field.
    pub trailing: Vec<u8>,
}

/// Partitions of a topic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicPartitions {
    /// Topic.
    pub topic: Vec<u8>,
    /// Partition numbers.
    pub partition_ids: Vec<i32>,
    /// Tagged fields; not part of version 0.
    pub tags: Vec<(u32, Vec<u8>)>,
}

impl Default for TransactionValue {
    /// What a coordinator of 4.4 writes for an id that has just been initialised.
    fn default() -> Self {
        Self {
            version: 1,
            producer_id: 1000,
            producer_epoch: 0,
            transaction_timeout_ms: 60_000,
            status: 0,
            partitions: None,
            last_update_timestamp_ms: 1_700_000_000_000,
            start_timestamp_ms: -1,
            tags: Vec::new(),
            trailing: Vec::new(),
        }
    }
}

/// A key. Panics if the id has more than 32,767 bytes, which a key cannot hold.
pub fn encode_key(version: i16, id: &[u8]) -> Vec<u8> {
    let mut key = version.to_be_bytes().to_vec();
    short_string(&mut key, id);
    key
}

impl TransactionValue {
    /// The bytes of the value.
    pub fn encode(&self) -> Vec<u8> {
        let mut value = self.version.to_be_bytes().to_vec();
        value.extend(self.producer_id.to_be_bytes());
        value.extend(self.producer_epoch.to_be_bytes());
        value.extend(self.transaction_timeout_ms.to_be_bytes());
        value.extend(self.status.to_be_bytes());
        if self.version == 0 {
            self.partitions_v0(&mut value)
        } else {
            self.partitions_v1(&mut value)
        }
        value.extend(self.last_update_timestamp_ms.to_be_bytes());
        value.extend(self.start_timestamp_ms.to_be_bytes());
        if self.version != 0 {
            tagged_fields(&mut value, &self.tags);
        }
        value.extend(&self.trailing);
        value
    }

    /// The last field of that tag.
    pub fn tag(&self, tag: u32) -> Option<&[u8]> {
        self.tags.iter().rev().find(|(number, _)| *number == tag).map(|(_, field)| field.as_slice())
    }

    fn partitions_v0(&self, value: &mut Vec<u8>) {
        let Some(topics) = &self.partitions else {
            value.extend((-1_i32).to_be_bytes());
            return;
        };
        value.extend((topics.len() as i32).to_be_bytes());
        for topic in topics {
            short_string(value, &topic.topic);
            value.extend((topic.partition_ids.len() as i32).to_be_bytes());
            value.extend(topic.partition_ids.iter().flat_map(|id| id.to_be_bytes()));
        }
    }

    fn partitions_v1(&self, value: &mut Vec<u8>) {
        let Some(topics) = &self.partitions else {
            value.push(0);
            return;
        };
        value.extend(unsigned_varint(topics.len() as u32 + 1));
        for topic in topics {
            value.extend(unsigned_varint(topic.topic.len() as u32 + 1));
            value.extend(&topic.topic);
            value.extend(unsigned_varint(topic.partition_ids.len() as u32 + 1));
            value.extend(topic.partition_ids.iter().flat_map(|id| id.to_be_bytes()));
            tagged_fields(value, &topic.tags);
        }
    }
}

fn short_string(bytes: &mut Vec<u8>, text: &[u8]) {
    let length = i16::try_from(text.len()).expect("a string of at most 32767 bytes");
    bytes.extend(length.to_be_bytes());
    bytes.extend(text);
}

fn tagged_fields(bytes: &mut Vec<u8>, tags: &[(u32, Vec<u8>)]) {
    bytes.extend(unsigned_varint(tags.len() as u32));
    for (tag, field) in tags {
        bytes.extend(unsigned_varint(*tag));
        bytes.extend(unsigned_varint(field.len() as u32));
        bytes.extend(field);
    }
}
