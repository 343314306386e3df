//! Index files, producer snapshots and small text files against bytes whose meaning Kafka's own classes established.

use redrive::log_dir::checkpoint::{LeaderEpochCheckpoint, OffsetCheckpoint, PartitionMetadata};
use redrive::producer_state::{ProducerEntry, ProducerSnapshot};
use redrive::segment::index::{
    AbortedTransaction, OffsetIndex, OffsetIndexEntry, TimeIndex, TimeIndexEntry, TransactionIndex,
};
use redrive::types::{Offset, ProducerId};
use redrive_tests::vectors;
use serde_json::{Value, json};

fn hex_of(vector: &Value) -> Vec<u8> {
    vectors::bytes(vector, "hex").expect("hex")
}

fn text<'a>(vector: &'a Value, member: &str) -> &'a str {
    vector[member].as_str().unwrap_or_else(|| panic!("{member} of {vector}"))
}

fn base_offset(vector: &Value) -> Offset {
    Offset(vector["base_offset"].as_i64().expect("base_offset"))
}

#[test]
fn offset_index() {
    let vector = &vectors::group("indexes")["offset_index"];
    let (base, file) = (base_offset(vector), hex_of(vector));
    let index = OffsetIndex::new(base, &file);
    assert_eq!(index.check(), Ok(()));
    let shown: Vec<_> = index.entries_as_kafka_tool().collect();
    let entries: Vec<_> = shown.iter().map(|entry| json!([entry.offset.0, entry.position])).collect();
    assert_eq!(json!(entries), vector["entries"]);
    assert!(index.entries_used(17_001).eq(shown.iter().copied()));
    assert_eq!(index.entries_used(17_000).count(), 2, "the last one points behind the log");

    let mut written = Vec::new();
    shown.iter().for_each(|entry| entry.encode(base, &mut written).expect("fits"));
    assert_eq!(written, file);

    // As a broker preallocates it.
    written.resize(1000, 0);
    let padded = OffsetIndex::new(base, &written);
    assert!(padded.entries_used(u64::MAX).eq(shown.iter().copied()));
    assert!(padded.entries_as_kafka_tool().eq(shown.iter().copied()));
}

#[test]
fn time_index() {
    let vector = &vectors::group("indexes")["time_index"];
    let (base, file) = (base_offset(vector), hex_of(vector));
    let index = TimeIndex::new(base, &file);
    assert_eq!(index.check(), Ok(()));
    let shown: Vec<_> = index.entries_as_kafka_tool().collect();
    let entries: Vec<_> = shown.iter().map(|entry| json!([entry.timestamp, entry.offset.0])).collect();
    assert_eq!(json!(entries), vector["entries"]);
    assert!(index.entries_used().eq(shown.iter().copied()));

    let mut written = Vec::new();
    shown.iter().for_each(|entry| entry.encode(base, &mut written).expect("fits"));
    assert_eq!(written, file);

    written.resize(996, 0);
    let padded = TimeIndex::new(base, &written);
    assert!(padded.entries_used().eq(shown.iter().copied()));
    assert!(padded.entries_as_kafka_tool().eq(shown.iter().copied()));
    assert!(padded.check().is_err(), "Kafka's check takes padding for damage");
}

#[test]
fn transaction_index() {
    for vector in vectors::list("txn_index_entries") {
        let file = hex_of(vector);
        let index = TransactionIndex::new(Offset(0), &file);
        assert_eq!((index.check(), index.trailing_bytes()), (Ok(()), 0));
        let entries: Vec<_> = index.entries().collect();
        let [Ok(entry)] = entries[..] else { panic!("{entries:?}") };
        let AbortedTransaction { producer_id, first_offset, last_offset, last_stable_offset } = entry;
        let decoded = json!({
            "version": 0,
            "producer_id": producer_id.0,
            "first_offset": first_offset.0,
            "last_offset": last_offset.0,
            "last_stable_offset": last_stable_offset.0,
        });
        assert_eq!(decoded, vector["decoded"]);
        let mut written = Vec::new();
        entry.encode(&mut written);
        assert_eq!(written, file);
    }
}

/// A snapshot's entry in the words of the vectors.
fn entry_json(entry: &ProducerEntry) -> Value {
    let (last_sequence, last_offset, offset_delta) = entry
        .last_batch
        .map_or((-1, -1, 0), |batch| (batch.last_sequence, batch.last_offset.0, batch.offset_delta));
    json!({
        "producer_id": entry.producer_id.0,
        "producer_epoch": entry.producer_epoch,
        "last_sequence": last_sequence,
        "last_offset": last_offset,
        "offset_delta": offset_delta,
        "timestamp": entry.last_timestamp,
        "coordinator_epoch": entry.coordinator_epoch,
        "current_txn_first_offset": entry.current_txn_first_offset.map_or(-1, |offset| offset.0),
    })
}

#[test]
fn producer_snapshots() {
    for vector in vectors::list("producer_snapshots") {
        let file = hex_of(vector);
        let snapshot = ProducerSnapshot::parse(&file).expect("a valid snapshot");
        let entries: Vec<_> = snapshot.entries.iter().map(entry_json).collect();
        assert_eq!(json!(entries), vector["decoded"]["entries"]);
        assert_eq!(snapshot.encode().expect("few entries"), file);
        assert_eq!(snapshot.repeated_producer_id(), None);
    }
    let three =
        ProducerSnapshot::parse(&hex_of(vectors::named("producer_snapshots", "three"))).expect("valid");
    let wrapped =
        three.entries.iter().find(|entry| entry.producer_id == ProducerId(4000)).expect("producer 4000");
    assert_eq!(wrapped.last_batch.map(|batch| batch.first_sequence()), Some(2_147_483_646));
}

#[test]
fn damaged_producer_snapshots() {
    for vector in vectors::list("producer_snapshots_invalid") {
        assert_eq!(vector["kafka_result"], "CorruptSnapshotException");
        assert!(ProducerSnapshot::parse(&hex_of(vector)).is_err(), "{}", vector["name"]);
    }
}

#[test]
fn text_files() {
    let file = |name: &str| vectors::named("text_files", name);

    let vector = file("replication-offset-checkpoint");
    let checkpoint = OffsetCheckpoint::parse(text(vector, "text").as_bytes()).expect("readable");
    let entries: Vec<_> =
        checkpoint.entries.iter().map(|(at, offset)| json!([at.topic, at.partition, offset.0])).collect();
    assert_eq!(json!(entries), vector["entries"]);
    assert_eq!(checkpoint.encode(), text(vector, "text"));

    let vector = file("leader-epoch-checkpoint");
    let checkpoint = LeaderEpochCheckpoint::parse(text(vector, "text").as_bytes()).expect("readable");
    let entries: Vec<_> =
        checkpoint.entries.iter().map(|entry| json!([entry.epoch, entry.start_offset.0])).collect();
    assert_eq!(json!(entries), vector["entries"]);
    assert_eq!(checkpoint.encode(), text(vector, "text"));

    let vector = file("partition.metadata");
    let metadata = PartitionMetadata::parse(text(vector, "text").as_bytes()).expect("readable");
    assert_eq!(vectors::to_hex(&metadata.topic_id.0), text(vector, "topic_id_hex"));
    assert_eq!(metadata.encode(), text(vector, "text"));

    assert_eq!(vectors::list("text_files").len(), 3, "another kind of file has come");
}

#[test]
fn text_files_in_every_form() {
    const REFUSED: &str = "refused";
    for vector in vectors::list("text_files_read") {
        let file = text(vector, "text").as_bytes();
        let result = match text(vector, "kind") {
            "offset_checkpoint" => OffsetCheckpoint::parse(file).ok().map(|checkpoint| {
                let entries: Vec<_> =
                    checkpoint.entries.iter().map(|(at, offset)| format!("{at}={offset}")).collect();
                format!("{{{}}}", entries.join(", "))
            }),
            "partition_metadata" => PartitionMetadata::parse(file).ok().map(|metadata| {
                let PartitionMetadata { version, topic_id } = metadata;
                format!("PartitionMetadata[version={version}, topicId={topic_id}]")
            }),
            other => panic!("{other}"),
        };
        let kafka = match text(vector, "kafka_result") {
            // Kafka takes any labels; here a file with wrong ones is another file.
            _ if text(vector, "text").starts_with("foo:") => REFUSED,
            result if result.contains("Exception") => REFUSED,
            result => result,
        };
        assert_eq!(result.as_deref().unwrap_or(REFUSED), kafka, "{vector}");
    }
}

/// What Kafka's dump tool prints of one file, from what the engine reads in it.
fn dump(name: &str, base: Offset, file: &[u8]) -> Option<String> {
    let lines: Vec<String> = match name.split_once('.')?.1 {
        "index" => OffsetIndex::new(base, file)
            .entries_as_kafka_tool()
            .map(|OffsetIndexEntry { offset, position }| format!("offset: {offset} position: {position}"))
            .collect(),
        "timeindex" => TimeIndex::new(base, file)
            .entries_as_kafka_tool()
            .map(|TimeIndexEntry { timestamp, offset }| format!("timestamp: {timestamp} offset: {offset}"))
            .collect(),
        "txnindex" => TransactionIndex::new(base, file)
            .entries()
            .map(|entry| entry.expect("version 0"))
            .map(|entry| {
                format!(
                    "version: 0 producerId: {} firstOffset: {} lastOffset: {} lastStableOffset: {}",
                    entry.producer_id, entry.first_offset, entry.last_offset, entry.last_stable_offset
                )
            })
            .collect(),
        "snapshot" => {
            ProducerSnapshot::parse(file).expect("valid").entries.iter().map(snapshot_line).collect()
        }
        _ => return None,
    };
    Some(format!("Dumping {name}\n{}", lines.iter().map(|line| format!("{line}\n")).collect::<String>()))
}

fn snapshot_line(entry: &ProducerEntry) -> String {
    let open = match entry.current_txn_first_offset {
        Some(offset) => format!("OptionalLong[{offset}]"),
        None => "OptionalLong.empty".to_owned(),
    };
    let batch = entry.last_batch.map(|batch| {
        format!(
            " firstSequence: {} lastSequence: {} lastOffset: {} offsetDelta: {} timestamp: {}",
            batch.first_sequence(),
            batch.last_sequence,
            batch.last_offset,
            batch.offset_delta,
            entry.last_timestamp
        )
    });
    format!(
        "producerId: {} producerEpoch: {} coordinatorEpoch: {} currentTxnFirstOffset: {open} lastTimestamp: {}{}",
        entry.producer_id,
        entry.producer_epoch,
        entry.coordinator_epoch,
        entry.last_timestamp,
        batch.unwrap_or_default()
    )
}

#[test]
fn files_of_a_partition_as_kafkas_tool_shows_them() {
    let golden = vectors::group("golden_log_dir");
    let mut compared = 0;
    for run in golden["dumps"].as_array().expect("dumps") {
        let name = text(run, "file");
        let file = vectors::bytes(&golden["closed"], name).expect("the dumped file");
        let base = Offset(name[..20].parse().expect("base offset"));
        if let Some(shown) = dump(name, base, &file) {
            assert_eq!(shown, text(run, "stdout"));
            compared += 1;
        }
    }
    assert_eq!(compared, 8);
}
