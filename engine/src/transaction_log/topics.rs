//! The partitions of a transaction, grouped by topic, as they stand in a value.

use super::key::STRING_BYTES_MAX;
use super::reader::Reader;
use super::tagged::{TaggedFields, read_tagged_fields};
use super::text::decode_utf8;
use super::value::{ValueFault, ValueVersion};
use std::borrow::Cow;

const TOPICS: &str = "topics";
const TOPIC: &str = "topic name";
const PARTITION_IDS: &str = "partition ids";

/// One topic of a transaction with its partition ids, borrowed from the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopicView<'a> {
    /// Name as stored, 0 … 32,767 bytes: UTF-8 by contract, not checked.
    pub topic: &'a [u8],
    partition_ids: &'a [u8],
    tagged_fields: TaggedFields<'a>,
}

impl<'a> TopicView<'a> {
    /// The name as Kafka reads it; see [`decode_utf8`].
    pub fn topic_name(&self) -> Cow<'a, str> {
        decode_utf8(self.topic)
    }

    /// The partition ids in stored order, unchecked.
    pub fn partition_ids(&self) -> PartitionIds<'a> {
        PartitionIds(self.partition_ids)
    }

    /// Tagged fields of this topic. Kafka defines none today.
    pub fn unknown_tagged_fields(&self) -> TaggedFields<'a> {
        self.tagged_fields
    }
}

/// Iterator over the partition ids of one topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionIds<'a>(&'a [u8]);

impl Iterator for PartitionIds<'_> {
    type Item = i32;

    fn next(&mut self) -> Option<i32> {
        let (id, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(i32::from_be_bytes(*id))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.0.len() / 4;
        (left, Some(left))
    }
}

impl ExactSizeIterator for PartitionIds<'_> {}

/// Iterator over the topics of a value, in stored order. The bytes were checked when the value was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Topics<'a> {
    reader: Reader<'a>,
    left: u32,
    version: ValueVersion,
}

impl<'a> Iterator for Topics<'a> {
    type Item = TopicView<'a>;

    fn next(&mut self) -> Option<TopicView<'a>> {
        self.left = self.left.checked_sub(1)?;
        let (topic, _) = read_topic(&mut self.reader, self.version).ok()?;
        Some(topic)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left as usize, Some(self.left as usize))
    }
}

impl ExactSizeIterator for Topics<'_> {}

/// Reads the partition array: `None` where it is null, and whether a topic repeats a tag.
#[inline]
pub(super) fn read_topics<'a>(
    reader: &mut Reader<'a>,
    version: ValueVersion,
) -> Result<(Option<Topics<'a>>, bool), ValueFault> {
    let Some(left) = read_count(reader, version, TOPICS)? else {
        return Ok((None, false));
    };
    let topics = Topics { reader: *reader, left, version };
    let mut repeated_tag = false;
    for _ in 0..left {
        repeated_tag |= read_topic(reader, version)?.1;
    }
    Ok((Some(topics), repeated_tag))
}

fn read_topic<'a>(
    reader: &mut Reader<'a>,
    version: ValueVersion,
) -> Result<(TopicView<'a>, bool), ValueFault> {
    let position = reader.position();
    let length = match version {
        ValueVersion::V0 => i64::from(reader.i16(TOPIC)?),
        ValueVersion::V1 => i64::from(reader.unsigned_varint(TOPIC)?) - 1,
    };
    let length = match usize::try_from(length) {
        Ok(length) if length <= STRING_BYTES_MAX => length,
        _ => return Err(ValueFault::TopicLength { position, length }),
    };
    let topic = reader.take(length, TOPIC)?;

    let position = reader.position();
    let count = read_count(reader, version, PARTITION_IDS)?
        .ok_or(ValueFault::NullPartitionIds { position })? as usize;
    let partition_ids = reader.take(count * size_of::<i32>(), PARTITION_IDS)?;

    let (tagged_fields, repeated_tag) = match version {
        ValueVersion::V0 => (TaggedFields::NONE, false),
        ValueVersion::V1 => read_tagged_fields(reader, 0, |_, _| Ok(()))?,
    };
    Ok((TopicView { topic, partition_ids, tagged_fields }, repeated_tag))
}

/// Reads an array's number of elements, `None` for null. No element is smaller than a byte, so a number above the
/// bytes left is refused here: what follows may trust it.
#[inline]
fn read_count(
    reader: &mut Reader<'_>,
    version: ValueVersion,
    field: &'static str,
) -> Result<Option<u32>, ValueFault> {
    let position = reader.position();
    let count = match version {
        ValueVersion::V0 => i64::from(reader.i32(field)?),
        ValueVersion::V1 => i64::from(reader.unsigned_varint(field)?) - 1,
    };
    match u32::try_from(count) {
        Ok(count) if count as usize <= reader.left() => Ok(Some(count)),
        Err(_) if count == -1 => Ok(None),
        _ => Err(ValueFault::Count { field, position, count, left: reader.left() }),
    }
}
