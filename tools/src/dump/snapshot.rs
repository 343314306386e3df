//! The walk over a producer snapshot, and what Kafka's tool says about a bad one.

use std::path::Path;

use redrive::producer_state::{ProducerSnapshot, SnapshotFault};

use super::event::{Event, Sink, Stop};
use super::input::read_whole;

/// Shows every producer in file order, or why the file cannot be used.
///
/// # Errors
/// [`Stop`].
pub(super) fn walk(path: &Path, sink: &mut dyn Sink) -> Result<(), Stop> {
    let file = read_whole(path)?;
    match ProducerSnapshot::parse(&file) {
        Ok(snapshot) => snapshot.entries.iter().try_for_each(|entry| sink.event(Event::Producer(entry))),
        Err(fault) => {
            let reason = fault.to_string();
            sink.event(Event::BadSnapshot { kafka: kafka_reason(&file, &fault), reason })
        }
    }
}

/// Kafka checks the version, then the structure, then the CRC, and has no words for bytes that are missing.
fn kafka_reason(file: &[u8], fault: &SnapshotFault) -> String {
    const ENTRIES_AT: usize = 10;
    const ENTRY_BYTES: u64 = 46;
    let schema = |reason: &str| format!("Snapshot failed schema validation: {reason}");
    if let Some(version) = file.first_chunk().copied().map(i16::from_be_bytes)
        && version != 1
    {
        return schema(&format!("Snapshot contained an unknown file version {version}"));
    }
    let count =
        file.first_chunk::<ENTRIES_AT>().map(|&[.., n0, n1, n2, n3]| i32::from_be_bytes([n0, n1, n2, n3]));
    match (count, fault) {
        (Some(count), _) if count < 0 => schema("non-nullable field producerEntries was serialized as null"),
        (Some(count), SnapshotFault::Crc { stored, computed })
            if u64::from(count.unsigned_abs()) * ENTRY_BYTES <= (file.len() - ENTRIES_AT) as u64 =>
        {
            format!(
                "Snapshot is corrupt (CRC is no longer valid). Stored crc: {stored}. Computed crc: {computed}"
            )
        }
        _ => schema("null"),
    }
}
