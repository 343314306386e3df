//! Keys and values of the transaction log.

use std::collections::{BTreeMap, BTreeSet};

use super::reader::{Bad, Reader};
use super::text::java_text;

/// Longest string that Kafka reads, in bytes.
const STRING_BYTES_MAX: u32 = 32_767;

/// The last value of a transactional id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NaiveEntry {
    /// Log offset of the record; 0 from [`read_value`], which does not know it.
    pub offset: i64,
    /// Version of the value, 0 or 1.
    pub value_version: i16,
    /// Producer id.
    pub producer_id: i64,
    /// Producer epoch.
    pub producer_epoch: i16,
    /// Transaction time-out in milliseconds.
    pub transaction_timeout_ms: i32,
    /// Number of the state, 0 to 7.
    pub status: i8,
    /// Name of the state.
    pub state: &'static str,
    /// Partitions by topic, as stored; `None` for a null array.
    pub partitions: Option<BTreeMap<String, BTreeSet<i32>>>,
    /// Time of the last update, milliseconds since 1970.
    pub last_update_timestamp_ms: i64,
    /// Start of the transaction, milliseconds since 1970, -1 for none.
    pub start_timestamp_ms: i64,
    /// Tag 0: producer id before the last rotation, -1 if absent.
    pub previous_producer_id: i64,
    /// Tag 1: producer id after the coming rotation, -1 if absent.
    pub next_producer_id: i64,
    /// Tag 2: protocol version of the client, 0 if absent. Any number is kept.
    pub client_transaction_version: i16,
    /// Tag 3: reserved for two-phase commit, -1 if absent.
    pub next_producer_epoch: i16,
}

/// Kafka's name of a state; `None` for a number that is not one.
pub fn state_name(status: i8) -> Option<&'static str> {
    Some(match status {
        0 => "Empty",
        1 => "Ongoing",
        2 => "PrepareCommit",
        3 => "PrepareAbort",
        4 => "CompleteCommit",
        5 => "CompleteAbort",
        6 => "Dead",
        7 => "PrepareEpochFence",
        _ => return None,
    })
}

/// The transactional id in a key; `None` for an unknown key version. Bytes after the id are ignored.
pub fn read_key(key: &[u8]) -> Result<Option<String>, &'static str> {
    let mut reader = Reader(key);
    match reader.i16()? {
        0 => short_string(&mut reader).map(Some),
        _ => Ok(None),
    }
}

/// A value; `None` for an unknown value version. Bytes after the last field are ignored.
pub fn read_value(value: &[u8]) -> Result<Option<NaiveEntry>, &'static str> {
    let mut reader = Reader(value);
    let value_version = reader.i16()?;
    if !(0..=1).contains(&value_version) {
        return Ok(None);
    }
    let producer_id = reader.i64()?;
    let producer_epoch = reader.i16()?;
    let transaction_timeout_ms = reader.i32()?;
    let status = reader.i8()?;
    let state = state_name(status).ok_or("unknown state")?;
    let partitions =
        if value_version == 0 { partitions_v0(&mut reader) } else { partitions_v1(&mut reader) }?;
    if partitions.is_none() && status != 0 {
        return Err("no partitions array in a state other than Empty");
    }
    let mut entry = NaiveEntry {
        offset: 0,
        value_version,
        producer_id,
        producer_epoch,
        transaction_timeout_ms,
        status,
        state,
        // What an Empty transaction lists is not looked at.
        partitions: partitions.filter(|_| status != 0),
        last_update_timestamp_ms: reader.i64()?,
        start_timestamp_ms: reader.i64()?,
        previous_producer_id: -1,
        next_producer_id: -1,
        client_transaction_version: 0,
        next_producer_epoch: -1,
    };
    if value_version == 1 {
        for (tag, field) in tagged_fields(&mut reader)? {
            let mut field = Reader(field);
            match tag {
                0 => entry.previous_producer_id = field.i64()?,
                1 => entry.next_producer_id = field.i64()?,
                2 => entry.client_transaction_version = field.i16()?,
                3 => entry.next_producer_epoch = field.i16()?,
                _ => continue,
            }
            if !field.0.is_empty() {
                return Err("a known tagged field is too long");
            }
        }
    }
    Ok(Some(entry))
}

type Partitions = Option<BTreeMap<String, BTreeSet<i32>>>;

fn partitions_v0(reader: &mut Reader<'_>) -> Result<Partitions, Bad> {
    let topics = match reader.i32()? {
        -1 => return Ok(None),
        count => u32::try_from(count).map_err(|_| "negative number of topics")?,
    };
    let mut partitions = BTreeMap::<_, BTreeSet<i32>>::new();
    for _ in 0..topics {
        let topic = short_string(reader)?;
        let count = u32::try_from(reader.i32()?).map_err(|_| "negative number of partition ids")?;
        partitions.entry(topic).or_default().extend(partition_ids(reader, count)?);
    }
    Ok(Some(partitions))
}

fn partitions_v1(reader: &mut Reader<'_>) -> Result<Partitions, Bad> {
    let Some(topics) = reader.unsigned_varint()?.checked_sub(1) else { return Ok(None) };
    let mut partitions = BTreeMap::<_, BTreeSet<i32>>::new();
    for _ in 0..topics {
        let topic = compact_string(reader)?;
        let count = reader.unsigned_varint()?.checked_sub(1).ok_or("a null list of partition ids")?;
        partitions.entry(topic).or_default().extend(partition_ids(reader, count)?);
        tagged_fields(reader)?;
    }
    Ok(Some(partitions))
}

/// The vector grows with what is there: the count alone reserves nothing.
fn partition_ids(reader: &mut Reader<'_>, count: u32) -> Result<Vec<i32>, Bad> {
    (0..count).map(|_| reader.i32()).collect()
}

fn short_string(reader: &mut Reader<'_>) -> Result<String, Bad> {
    let length = usize::try_from(reader.i16()?).map_err(|_| "a null string")?;
    reader.take(length).map(java_text)
}

fn compact_string(reader: &mut Reader<'_>) -> Result<String, Bad> {
    let length = reader.unsigned_varint()?.checked_sub(1).ok_or("a null string")?;
    if length > STRING_BYTES_MAX {
        return Err("a string is too long");
    }
    reader.take(length as usize).map(java_text)
}

fn tagged_fields<'a>(reader: &mut Reader<'a>) -> Result<Vec<(u32, &'a [u8])>, Bad> {
    let count = reader.unsigned_varint()?;
    let mut fields = Vec::new();
    for _ in 0..count {
        let tag = reader.unsigned_varint()?;
        let size = reader.unsigned_varint()?;
        fields.push((tag, reader.take(size as usize)?));
    }
    Ok(fields)
}
