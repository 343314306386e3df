//! Bytes as the small files of a log directory; the first byte chooses which. Nothing may panic, and what was read and
//! written again must read the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use redrive::log_dir::DirectoryName;
use redrive::log_dir::checkpoint::{
    CleanShutdown, LeaderEpochCheckpoint, MetaProperties, OffsetCheckpoint, PartitionMetadata,
};
use redrive::producer_state::ProducerSnapshot;
use redrive::segment::SegmentFileName;
use redrive::segment::index::{OffsetIndex, TimeIndex, TransactionIndex};
use redrive::types::Offset;

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    match kind % 8 {
        0 => {
            if let Ok(checkpoint) = OffsetCheckpoint::parse(bytes) {
                let again = OffsetCheckpoint::parse(checkpoint.encode().as_bytes()).expect("written by us");
                assert_eq!(again.entries, checkpoint.entries);
            }
        }
        1 => {
            if let Ok(checkpoint) = LeaderEpochCheckpoint::parse(bytes) {
                let again = LeaderEpochCheckpoint::parse(checkpoint.encode().as_bytes()).expect("written by us");
                assert_eq!(again.entries, checkpoint.entries);
            }
        }
        2 => {
            if let Ok(metadata) = PartitionMetadata::parse(bytes) {
                assert_eq!(PartitionMetadata::parse(metadata.encode().as_bytes()), Ok(metadata));
            }
        }
        3 => {
            let _ = CleanShutdown::parse(bytes);
            let _ = MetaProperties::parse(bytes);
        }
        4 => {
            if let Ok(snapshot) = ProducerSnapshot::parse(bytes) {
                let written = snapshot.encode().expect("as many entries as were read");
                assert_eq!(ProducerSnapshot::parse(&written), Ok(snapshot));
            }
        }
        5 => {
            let index = OffsetIndex::new(Offset(100), bytes);
            let _ = (index.check(), index.entries_as_kafka_tool().count());
            let used: Vec<_> = index.entries_used(1 << 20).collect();
            assert!(used.is_sorted_by(|a, b| a.offset < b.offset && a.position < b.position));
            let index = TimeIndex::new(Offset(100), bytes);
            let _ = (index.check(), index.entries_as_kafka_tool().count(), index.entries_used().count());
        }
        6 => {
            let _ = TransactionIndex::new(Offset(100), bytes).entries().count();
        }
        _ => {
            let name = String::from_utf8_lossy(bytes);
            if let Some(directory) = DirectoryName::parse(&name) {
                assert!(name.starts_with(&directory.topic_partition.to_string()));
            }
            let _ = SegmentFileName::parse(&name);
        }
    }
});
