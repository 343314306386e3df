//! Keys and values of the transaction log against bytes whose meaning Kafka's own classes established.

use std::collections::BTreeSet;
use std::num::NonZero;

use redrive::transaction_log::{
    Key, TransactionState, Value, ValueFault, ValueFields, ValueVersion, decode_utf8, encode_key,
    java_string_hash, partition_for, status_code,
};
use redrive_tests::vectors;
use serde_json::{Value as Json, json};

fn hex_of(vector: &Json) -> Vec<u8> {
    vectors::bytes(vector, "hex").expect("hex")
}

fn text<'a>(vector: &'a Json, member: &str) -> &'a str {
    vector[member].as_str().unwrap_or_else(|| panic!("{member} of {vector}"))
}

fn known(value: &[u8]) -> ValueFields<'_> {
    match Value::parse(value) {
        Ok(Value::Known(fields)) => fields,
        other => panic!("{other:?}"),
    }
}

/// The fields in the words of the vectors.
fn fields_json(fields: &ValueFields<'_>) -> Json {
    let partitions = fields.partitions().map(|topics| {
        topics
            .map(|topic| {
                let ids: Vec<i32> = topic.partition_ids().collect();
                json!({ "topic": topic.topic_name(), "partition_ids": ids })
            })
            .collect::<Vec<_>>()
    });
    let unknown: Vec<_> = fields
        .unknown_tagged_fields()
        .map(|field| json!({ "tag": field.tag, "data_hex": vectors::to_hex(field.data) }))
        .collect();
    json!({
        "version": fields.version.code(),
        "producer_id": fields.producer_id.0,
        "producer_epoch": fields.producer_epoch,
        "transaction_timeout_ms": fields.transaction_timeout_ms,
        "transaction_status": fields.status,
        "transaction_partitions": partitions,
        "transaction_last_update_timestamp_ms": fields.last_update_timestamp_ms,
        "transaction_start_timestamp_ms": fields.start_timestamp_ms,
        "previous_producer_id": fields.previous_producer_id.0,
        "next_producer_id": fields.next_producer_id.0,
        "client_transaction_version": fields.client_transaction_version,
        "next_producer_epoch": fields.next_producer_epoch,
        "unknown_tagged_fields": unknown,
    })
}

fn without(object: &Json, member: &str) -> Json {
    let mut object = object.clone();
    object.as_object_mut().expect("object").remove(member);
    object
}

#[test]
fn keys_are_read_and_written() {
    for vector in vectors::list("txn_log_keys") {
        let key = hex_of(vector);
        let id = text(&vector["decoded"], "transactional_id");
        assert_eq!(Key::parse(&key), Ok(Key::TransactionalId(id.as_bytes())), "{vector}");
        let mut written = Vec::new();
        encode_key(id.as_bytes(), &mut written).expect("short enough");
        assert_eq!(written, key, "{vector}");
    }
}

#[test]
fn odd_keys_end_as_in_kafka() {
    for vector in vectors::list("txn_log_keys_special") {
        let key = hex_of(vector);
        let result = match Key::parse(&key) {
            Ok(Key::TransactionalId(id)) => format!("TxnTombstone[transactionId={}]", decode_utf8(id)),
            Ok(Key::Unknown { version }) => format!("UnknownKeyVersion[version={version}]"),
            Err(_) => "refused".to_owned(),
        };
        let kafka = text(vector, "kafka_result");
        let kafka = if kafka.ends_with("Exception") { "refused" } else { kafka };
        assert_eq!(result, kafka, "{vector}");
    }
}

#[test]
fn values_are_read_and_written() {
    for vector in vectors::list("txn_log_values") {
        let value = hex_of(vector);
        let fields = known(&value);
        assert_eq!(
            fields_json(&fields),
            without(&vector["decoded"], "transaction_status_name"),
            "{}",
            vector["name"]
        );
        assert_eq!(status_code(&value), Some(fields.status));

        let transaction = fields.transaction().expect("a coordinator takes it");
        assert_eq!(transaction.state().name(), text(&vector["decoded"], "transaction_status_name"));
        let mut written = Vec::new();
        transaction.to_metadata().encode(fields.version, &mut written).expect("what was read can be written");
        assert_eq!(vectors::to_hex(&written), text(vector, "kafka_reencoded_hex"), "{}", vector["name"]);

        // Only the vectors that are not in writer's form may come back as other bytes.
        let canonical = fields.warnings.is_empty() && vector["name"] != "v1_tags_out_of_order";
        assert_eq!(written == value, canonical, "{}", vector["name"]);

        let whole = value.len() - fields.warnings.trailing_bytes;
        for cut in 0..whole {
            assert!(Value::parse(&value[..cut]).is_err(), "{} cut at {cut}", vector["name"]);
        }
    }
}

/// What is decided about a value that is not as it should be.
#[derive(Debug, PartialEq, Eq)]
enum Decision {
    /// Skipped as another version.
    Skipped(i16),
    /// Not readable by the schema.
    Refused,
    /// Readable by the schema, refused by the coordinator's rules.
    RefusedByRule(ValueFault),
    /// Read, with these warnings.
    Accepted(&'static str),
}

#[test]
fn odd_values_are_decided_one_by_one() {
    let expected = [
        ("unknown_version_2", Decision::Skipped(2)),
        ("negative_version", Decision::Skipped(-1)),
        ("truncated_v0", Decision::Refused),
        ("truncated_version", Decision::Refused),
        ("zero_length", Decision::Refused),
        (
            "ongoing_null_partitions",
            Decision::RefusedByRule(ValueFault::NullPartitions(TransactionState::Ongoing)),
        ),
        ("unknown_status_9", Decision::RefusedByRule(ValueFault::Status(9))),
        ("huge_array_length", Decision::Refused),
        (
            "unknown_client_transaction_version",
            Decision::Accepted("client transaction version other than 0, 1 and 2"),
        ),
        // Kafka misreads what follows; here the lying size refuses the record.
        ("known_tag_wrong_size", Decision::Refused),
        ("duplicate_tag", Decision::Accepted("tagged field given more than once")),
        ("topic_negative_length", Decision::Refused),
    ];
    let names: BTreeSet<&str> =
        vectors::list("txn_log_values_special").iter().map(|vector| text(vector, "name")).collect();
    assert_eq!(names, expected.iter().map(|(name, _)| *name).collect());

    for (name, decision) in expected {
        let vector = vectors::named("txn_log_values_special", name);
        let value = hex_of(vector);
        match Value::parse(&value) {
            Ok(Value::Unknown { version }) => assert_eq!(decision, Decision::Skipped(version), "{name}"),
            Err(_) => assert_eq!(decision, Decision::Refused, "{name}"),
            Ok(Value::Known(fields)) => {
                assert_eq!(fields_json(&fields), without(&vector["kafka_decoded"], "left_over"), "{name}");
                match (fields.transaction(), decision) {
                    (Ok(_), Decision::Accepted(warnings)) => {
                        assert_eq!(fields.warnings.to_string(), warnings, "{name}");
                    }
                    (Err(fault), decision) => {
                        assert_eq!(decision, Decision::RefusedByRule(fault), "{name}");
                    }
                    (Ok(_), decision) => panic!("{name} was accepted, not {decision:?}"),
                }
            }
        }
    }
}

#[test]
fn ids_hash_as_in_java() {
    for vector in vectors::list("partition_hash") {
        let id = text(vector, "transactional_id");
        let units: Vec<u16> = decode_utf8(id.as_bytes()).encode_utf16().collect();
        assert_eq!(json!(units), vector["utf16_units"], "{id}");
        assert_eq!(json!(java_string_hash(id.as_bytes())), vector["java_hash_code"], "{id}");
        for count in [1, 3, 16, 50] {
            let partition = partition_for(id.as_bytes(), NonZero::new(count).expect("not zero"));
            assert_eq!(json!(partition), vector[format!("partition_of_{count}")], "{id} of {count}");
        }
    }
}

#[test]
fn malformed_utf8_decodes_as_in_java() {
    for vector in vectors::list("utf8_decoding") {
        let bytes = hex_of(vector);
        let decoded = decode_utf8(&bytes);
        let units: Vec<String> = decoded.encode_utf16().map(|unit| format!("{unit:04x}")).collect();
        assert_eq!(json!(units), vector["java_utf16"], "{vector}");
        let differs = decoded != String::from_utf8_lossy(&bytes);
        assert_eq!(json!(differs), vector["rust_from_utf8_lossy_differs"], "{vector}");
    }
}

/// An Ongoing value of version 1 with one topic of empty name that has one empty tagged field, whose tag is `tag`. A
/// topic knows no tags, so any unsigned varint can stand there.
fn value_with_tag(tag: &[u8]) -> Vec<u8> {
    let mut value = vec![0, 1];
    value.extend_from_slice(&[0; 8 + 2 + 4]);
    value.extend_from_slice(&[1, 2, 1, 1, 1]);
    value.extend_from_slice(tag);
    value.push(0);
    value.extend_from_slice(&[0; 8 + 8]);
    value.push(0);
    value
}

#[test]
fn unsigned_varints_are_read_and_written() {
    let group = vectors::group("varints");
    let entries = |name: &str| group[name].as_array().unwrap_or_else(|| panic!("{name}"));
    let unsigned = |name: &str| entries(name).iter().filter(|entry| entry["kind"] == "unsigned_varint32");
    let read = |vector: &Json| {
        let value = value_with_tag(&hex_of(vector));
        let topic = known(&value).partitions().expect("partitions").next().expect("topic");
        let tag = topic.unknown_tagged_fields().next().expect("tagged field").tag;
        let mut written = Vec::new();
        let metadata = known(&value).transaction().expect("taken").to_metadata();
        metadata.encode(ValueVersion::V1, &mut written).expect("written");
        (json!(tag), written == value)
    };
    for vector in entries("unsigned_varint32") {
        assert_eq!(read(vector), (vector["value"].clone(), true), "{vector}");
    }
    let odd = unsigned("non_minimal_accepted").chain(unsigned("overflow_bits_dropped"));
    assert_eq!(odd.clone().count(), 4);
    for vector in odd {
        assert_eq!(read(vector), (vector["value"].clone(), false), "{vector} is written shorter");
    }
    assert_eq!(unsigned("rejected").count(), 3);
    for vector in unsigned("rejected") {
        let value = value_with_tag(&hex_of(vector));
        let outcome = match text(vector, "why") {
            // Inside a value more bytes follow, so the value is cut where the varint ends.
            "ends inside the varint" => Value::parse(&value[..22]),
            _ => Value::parse(&value),
        };
        assert!(outcome.is_err(), "{vector}");
    }
}
