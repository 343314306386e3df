//! The slow twin and the writer of test logs against bytes whose meaning Kafka's own classes established.

use std::collections::{BTreeMap, BTreeSet};

use redrive_tests::logs::{
    self, BatchSpec, RecordSpec, TopicPartitions, TransactionValue, encode_key, unsigned_varint, varint,
    varlong,
};
use redrive_tests::naive::{self, Batch, NaiveEntry, Reason, next_batch};
use redrive_tests::vectors;
use serde_json::{Value, json};

const BYTES_MAX: usize = 1 << 20;

fn hex_of(vector: &Value) -> Vec<u8> {
    vectors::bytes(vector, "hex").expect("hex")
}

fn int(vector: &Value, member: &str) -> i64 {
    vector[member].as_i64().unwrap_or_else(|| panic!("{member} of {vector}"))
}

/// All batches of a file and their records, as far as the first error.
fn read_file(bytes: &[u8]) -> Result<Vec<usize>, Reason> {
    let mut rest = bytes;
    let mut counts = Vec::new();
    while let Some(batch) = next_batch(rest, rest.len() as u64)? {
        let payload = batch.decompress(BYTES_MAX)?;
        counts.push(batch.records(&payload)?.len());
        rest = &rest[batch.bytes.len()..];
    }
    Ok(counts)
}

fn only_batch(bytes: &[u8]) -> Batch<'_> {
    let batch = next_batch(bytes, bytes.len() as u64).expect("a valid batch").expect("a batch");
    assert_eq!(batch.bytes.len(), bytes.len());
    batch
}

/// What the vectors say of a batch's records.
fn records_json(batch: &Batch<'_>) -> Value {
    let payload = batch.decompress(BYTES_MAX).expect("decompressed");
    let hex = |bytes: Option<&[u8]>| bytes.map(vectors::to_hex);
    let records = batch.records(&payload).expect("records");
    let sequence = |offset: i64| match batch.header.base_sequence {
        -1 => -1,
        base => (i64::from(base) + offset - batch.header.base_offset) & i64::from(i32::MAX),
    };
    let records = records.iter().map(|record| {
        let headers = record.headers.iter().map(|(key, value)| json!([naive::java_text(key), hex(*value)]));
        json!({
            "offset": record.offset,
            "timestamp": record.timestamp,
            "sequence": sequence(record.offset),
            "key_hex": hex(record.key),
            "value_hex": hex(record.value),
            "headers": headers.collect::<Vec<_>>(),
        })
    });
    records.collect()
}

#[test]
fn twin_reads_record_batches() {
    for vector in vectors::list("record_batches") {
        let (bytes, decoded) = (hex_of(vector), &vector["decoded"]);
        let batch = only_batch(&bytes);
        let header = &batch.header;
        let read = json!({
            "base_offset": header.base_offset, "batch_length": header.length,
            "partition_leader_epoch": header.partition_leader_epoch, "magic": header.magic,
            "crc": header.crc, "attributes": header.attributes,
            "last_offset_delta": header.last_offset_delta, "base_timestamp": header.base_timestamp,
            "max_timestamp": header.max_timestamp, "producer_id": header.producer_id,
            "producer_epoch": header.producer_epoch, "base_sequence": header.base_sequence,
            "record_count": header.records_count, "is_control": header.is_control(),
            "last_offset": header.last_offset().expect("in range"), "size_in_bytes": batch.bytes.len(),
            "records": records_json(&batch),
        });
        for (member, value) in read.as_object().expect("an object") {
            assert_eq!(*value, decoded[member], "{}: {member}", vector["name"]);
        }
    }
}

#[test]
fn writer_reproduces_record_batches() {
    let mut reproduced = 0;
    for vector in vectors::list("record_batches") {
        let decoded = &vector["decoded"];
        if decoded["compression"] != "none" {
            continue;
        }
        let base_offset = int(decoded, "base_offset");
        let base_timestamp = int(decoded, "base_timestamp");
        // With append time the vectors give every record that time, but the first vectors of the kind tell what
        // was stored: see the bytes of `plain_three`, whose records these are.
        let is_append_time = decoded["timestamp_type"] == "LogAppendTime";
        let stored = if is_append_time {
            &vectors::named("record_batches", "plain_three")["decoded"]
        } else {
            decoded
        };
        let times =
            stored["records"].as_array().expect("records").iter().map(|record| int(record, "timestamp"));
        let records =
            decoded["records"].as_array().expect("records").iter().zip(times).map(|(record, time)| {
                RecordSpec {
                    attributes: 0,
                    timestamp_delta: time - base_timestamp,
                    offset_delta: (int(record, "offset") - base_offset) as i32,
                    key: vectors::bytes(record, "key_hex"),
                    value: vectors::bytes(record, "value_hex"),
                    headers: record["headers"].as_array().expect("headers").iter().map(header).collect(),
                }
            });
        let batch = BatchSpec {
            base_offset,
            partition_leader_epoch: int(decoded, "partition_leader_epoch") as i32,
            attributes: int(decoded, "attributes") as i16,
            last_offset_delta: Some(int(decoded, "last_offset_delta") as i32),
            base_timestamp,
            max_timestamp: Some(int(decoded, "max_timestamp")),
            producer_id: int(decoded, "producer_id"),
            producer_epoch: int(decoded, "producer_epoch") as i16,
            base_sequence: int(decoded, "base_sequence") as i32,
            records: records.collect(),
            ..BatchSpec::default()
        };
        assert_eq!(vectors::to_hex(&batch.encode()), vector["hex"], "{}", vector["name"]);
        reproduced += 1;
    }
    assert_eq!(reproduced, 19);
}

fn header(header: &Value) -> (Vec<u8>, Option<Vec<u8>>) {
    (header[0].as_str().expect("a header key").as_bytes().to_vec(), header[1].as_str().map(vectors::hex))
}

#[test]
fn short_forms_of_the_writer_equal_kafkas_batches() {
    let expect = |name: &str, batch: BatchSpec| {
        assert_eq!(vectors::to_hex(&batch.encode()), vectors::named("record_batches", name)["hex"], "{name}");
    };
    let at = |mut batch: BatchSpec, epoch: i32, time: i64| {
        (batch.partition_leader_epoch, batch.base_timestamp) = (epoch, time);
        batch
    };
    expect("plain_single", BatchSpec::single(0, b"k".to_vec(), Some(b"v".to_vec())));
    expect("commit_marker", at(BatchSpec::marker(202, 1000, 5, true, 9), 3, 1_700_000_000_150));
    let emptied = at(BatchSpec::emptied(400, 9), 4, -1);
    expect("empty_cleaned_no_producer", BatchSpec { max_timestamp: Some(1_700_000_000_300), ..emptied });
}

#[test]
fn twin_decides_as_kafka_on_codec_variants() {
    for vector in vectors::list("compressed_variants") {
        let outcome = vector["kafka_file_reader"][0].as_str().expect("an outcome");
        let read = read_file(&hex_of(vector));
        match outcome.split_once("records read=") {
            Some((_, count)) => {
                assert_eq!(read, Ok(vec![count.parse().expect("a count")]), "{}", vector["name"]);
            }
            None => {
                assert!(outcome.contains("records -> "), "{outcome}");
                assert!(
                    matches!(read, Err(Reason::Codec(_) | Reason::Record(_))),
                    "{}: {read:?}",
                    vector["name"]
                );
            }
        }
    }
}

#[test]
fn twin_refuses_invalid_batches() {
    let cut_short = |reason: &Reason| matches!(reason, Reason::CutShort { .. });
    let header = |reason: &Reason| matches!(reason, Reason::Header(_));
    let record = |reason: &Reason| matches!(reason, Reason::Record(_));
    for vector in vectors::list("invalid_batches") {
        let read = read_file(&hex_of(vector));
        let name = vector["name"].as_str().expect("a name");
        let refused = |expected: fn(&Reason) -> bool| {
            assert!(read.as_ref().is_err_and(expected), "{name}: {read:?}");
        };
        match name {
            "leader_epoch_changed" | "base_offset_changed" => assert_eq!(read, Ok(vec![3]), "{name}"),
            "count_zero_with_records" => assert_eq!(read, Ok(vec![0]), "{name}"),
            // A negative length reads as null, and nothing looks into a control record here.
            "key_length_minus_2"
            | "record_attributes_nonzero"
            | "control_key_short"
            | "control_key_negative_version"
            | "control_value_short"
            | "control_value_version_1" => assert_eq!(read, Ok(vec![1]), "{name}"),
            "bad_crc_payload" => refused(|reason| matches!(reason, Reason::Crc { .. })),
            "codec_5" => refused(|reason| matches!(reason, Reason::Codec(_))),
            "truncated_tail" | "short_header_17" | "short_header_18" => refused(cut_short),
            "length_13"
            | "length_negative"
            | "length_20_magic_2"
            | "zero_tail"
            | "magic_3"
            | "magic_minus_1"
            | "count_negative"
            | "last_offset_delta_negative" => refused(header),
            _ => refused(record),
        }
    }
    for vector in vectors::list("legacy_messages") {
        let read = read_file(&hex_of(vector));
        assert!(read.as_ref().is_err_and(header), "{}: {read:?}", vector["name"]);
    }
}

#[test]
fn twin_decodes_text_as_java() {
    for vector in vectors::list("utf8_decoding") {
        let bytes = hex_of(vector);
        let units: Vec<_> =
            naive::java_text(&bytes).encode_utf16().map(|unit| json!(format!("{unit:04x}"))).collect();
        assert_eq!(json!(units), vector["java_utf16"], "{}", vector["hex"]);
    }
}

#[test]
fn keys_are_read_and_written() {
    for vector in vectors::list("txn_log_keys") {
        let (bytes, decoded) = (hex_of(vector), &vector["decoded"]);
        let id = decoded["transactional_id"].as_str().expect("an id");
        assert_eq!(naive::read_key(&bytes), Ok(Some(id.to_owned())), "{}", vector["name"]);
        assert_eq!(encode_key(0, id.as_bytes()), bytes, "{}", vector["name"]);
    }
    for vector in vectors::list("txn_log_keys_special") {
        let read = naive::read_key(&hex_of(vector));
        match vector["kafka_result"].as_str().expect("a result") {
            unknown if unknown.starts_with("UnknownKeyVersion") => {
                assert_eq!(read, Ok(None), "{}", vector["name"])
            }
            "TxnTombstone[transactionId=my-txn-id]" => assert_eq!(read, Ok(Some("my-txn-id".to_owned()))),
            _ => assert!(read.is_err(), "{}: {read:?}", vector["name"]),
        }
    }
}

/// The entry in the words of the vectors.
fn value_json(entry: &NaiveEntry) -> Value {
    json!({
        "version": entry.value_version, "producer_id": entry.producer_id,
        "producer_epoch": entry.producer_epoch, "transaction_timeout_ms": entry.transaction_timeout_ms,
        "transaction_status": entry.status, "transaction_status_name": entry.state,
        "transaction_last_update_timestamp_ms": entry.last_update_timestamp_ms,
        "transaction_start_timestamp_ms": entry.start_timestamp_ms,
        "previous_producer_id": entry.previous_producer_id, "next_producer_id": entry.next_producer_id,
        "client_transaction_version": entry.client_transaction_version,
        "next_producer_epoch": entry.next_producer_epoch,
    })
}

fn topics(decoded: &Value) -> Option<Vec<TopicPartitions>> {
    let topics = decoded["transaction_partitions"].as_array()?;
    let topic = |topic: &Value| TopicPartitions {
        topic: topic["topic"].as_str().expect("a topic").as_bytes().to_vec(),
        partition_ids: serde_json::from_value(topic["partition_ids"].clone()).expect("ids"),
        tags: Vec::new(),
    };
    Some(topics.iter().map(topic).collect())
}

#[test]
fn values_are_read_and_written() {
    let mut written = 0;
    for vector in vectors::list("txn_log_values") {
        let (bytes, decoded) = (hex_of(vector), &vector["decoded"]);
        let entry = naive::read_value(&bytes).expect("a value").expect("a known version");
        for (member, value) in value_json(&entry).as_object().expect("an object") {
            assert_eq!(*value, decoded[member], "{}: {member}", vector["name"]);
        }
        let topics = topics(decoded);
        let partitions = topics.iter().flatten().map(|topic| {
            let name = String::from_utf8(topic.topic.clone()).expect("UTF-8");
            (name, topic.partition_ids.iter().copied().collect::<BTreeSet<_>>())
        });
        let partitions = topics.is_some().then(|| partitions.collect::<BTreeMap<_, _>>());
        assert_eq!(entry.partitions, partitions, "{}", vector["name"]);

        // Kafka's own form of the same value: tags in order, those of default value left out, nothing behind.
        let mut tags = vec![
            (0, entry.previous_producer_id.to_be_bytes().to_vec(), entry.previous_producer_id == -1),
            (1, entry.next_producer_id.to_be_bytes().to_vec(), entry.next_producer_id == -1),
            (
                2,
                entry.client_transaction_version.to_be_bytes().to_vec(),
                entry.client_transaction_version == 0,
            ),
            (3, entry.next_producer_epoch.to_be_bytes().to_vec(), entry.next_producer_epoch == -1),
        ];
        for field in decoded["unknown_tagged_fields"].as_array().expect("fields") {
            tags.push((int(field, "tag") as u32, vectors::bytes(field, "data_hex").expect("data"), false));
        }
        let value = TransactionValue {
            version: entry.value_version,
            producer_id: entry.producer_id,
            producer_epoch: entry.producer_epoch,
            transaction_timeout_ms: entry.transaction_timeout_ms,
            status: entry.status,
            partitions: topics,
            last_update_timestamp_ms: entry.last_update_timestamp_ms,
            start_timestamp_ms: entry.start_timestamp_ms,
            tags: tags
                .into_iter()
                .filter(|(_, _, is_default)| !is_default)
                .map(|(tag, field, _)| (tag, field))
                .collect(),
            trailing: Vec::new(),
        };
        assert_eq!(vectors::to_hex(&value.encode()), vector["kafka_reencoded_hex"], "{}", vector["name"]);
        written += 1;
    }
    assert_eq!(written, 16);
}

#[test]
fn special_values_are_skipped_kept_or_refused() {
    for vector in vectors::list("txn_log_values_special") {
        let name = vector["name"].as_str().expect("a name");
        let read = naive::read_value(&hex_of(vector));
        match name {
            "unknown_version_2" | "negative_version" => assert_eq!(read, Ok(None), "{name}"),
            // Kept although Kafka refuses the number; the last of two wins as in Kafka.
            "unknown_client_transaction_version" | "duplicate_tag" => {
                let entry = read.expect("a value").expect("a known version");
                let expected = if name == "duplicate_tag" { 2 } else { 9 };
                assert_eq!(entry.client_transaction_version, expected, "{name}");
            }
            // Refused although Kafka reads on and misreads what follows.
            "known_tag_wrong_size" => assert!(read.is_err(), "{name}: {read:?}"),
            _ => {
                let kafka = vector["kafka_loader"].as_str().expect("an outcome");
                assert!(kafka.ends_with("Exception"), "{name}: {kafka}");
                assert!(read.is_err(), "{name}: {read:?}");
            }
        }
    }
}

#[test]
fn writer_encodes_varints_as_kafka() {
    let group = vectors::group("varints");
    let check = |kind: &str, encode: &dyn Fn(i64) -> Vec<u8>| {
        let vectors = group[kind].as_array().expect("a list");
        assert!(!vectors.is_empty());
        for vector in vectors {
            assert_eq!(encode(int(vector, "value")), hex_of(vector), "{kind} {vector}");
        }
    };
    check("zigzag_varint32", &|value| varint(value as i32));
    check("zigzag_varlong64", &varlong);
    check("unsigned_varint32", &|value| unsigned_varint(value as u32));
}

#[test]
fn resealing_makes_a_changed_batch_valid() {
    let mut bytes = hex_of(vectors::named("invalid_batches", "bad_crc_payload"));
    assert!(matches!(read_file(&bytes), Err(Reason::Crc { .. })));
    logs::reseal(&mut bytes);
    assert!(!matches!(read_file(&bytes), Err(Reason::Crc { .. })));
}
