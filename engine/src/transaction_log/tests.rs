//! Values written, read, cut and damaged.

use super::value::STATUS_POSITION;
use super::*;
use crate::types::ProducerId;

fn sample(state: TransactionState) -> TransactionMetadata {
    let topic = |name: &str, ids: &[i32]| TopicPartitions {
        topic: name.as_bytes().to_vec(),
        partition_ids: ids.to_vec(),
        unknown_tagged_fields: vec![],
    };
    TransactionMetadata {
        producer_id: ProducerId(1000),
        producer_epoch: 5,
        transaction_timeout_ms: 60_000,
        state,
        partitions: (state != TransactionState::Empty)
            .then(|| vec![topic("orders", &[0, 5]), topic("payments.eu-west", &[2])]),
        last_update_timestamp_ms: 1_700_000_000_050,
        start_timestamp_ms: 1_700_000_000_000,
        previous_producer_id: ProducerId::NONE,
        next_producer_id: ProducerId::NONE,
        next_producer_epoch: -1,
        client_transaction_version: 0,
        unknown_tagged_fields: vec![],
    }
}

fn with_tags() -> TransactionMetadata {
    let mut metadata = sample(TransactionState::Ongoing);
    metadata.previous_producer_id = ProducerId(999);
    metadata.next_producer_id = ProducerId(i64::MAX);
    metadata.client_transaction_version = 2;
    metadata.next_producer_epoch = 4;
    metadata.unknown_tagged_fields =
        vec![TaggedField { tag: 4, data: vec![0, 31] }, TaggedField { tag: u32::MAX, data: vec![] }];
    metadata.partitions.as_mut().unwrap()[1].unknown_tagged_fields =
        vec![TaggedField { tag: 0, data: vec![9; 200] }];
    metadata
}

fn encoded(metadata: &TransactionMetadata, version: ValueVersion) -> Vec<u8> {
    let mut out = Vec::new();
    metadata.encode(version, &mut out).unwrap();
    out
}

fn fields(value: &[u8]) -> ValueFields<'_> {
    match Value::parse(value).unwrap() {
        Value::Known(fields) => fields,
        Value::Unknown { version } => panic!("version {version}"),
    }
}

fn samples() -> Vec<Vec<u8>> {
    let mut samples = vec![encoded(&with_tags(), ValueVersion::V1)];
    for version in [ValueVersion::V0, ValueVersion::V1] {
        samples.extend(TransactionState::ALL.map(|state| encoded(&sample(state), version)));
    }
    samples
}

#[test]
fn owned_values_come_back() {
    for state in TransactionState::ALL {
        for version in [ValueVersion::V0, ValueVersion::V1] {
            let metadata = sample(state);
            let value = encoded(&metadata, version);
            let view = fields(&value).transaction().unwrap();
            assert_eq!(view.fields().version, version);
            assert!(view.fields().warnings.is_empty());
            assert_eq!(view.to_metadata(), metadata);
            assert_eq!(status_code(&value), Some(state.code()));
        }
    }
    let metadata = with_tags();
    assert_eq!(fields(&encoded(&metadata, ValueVersion::V1)).transaction().unwrap().to_metadata(), metadata);
}

/// Miri is some thousand times slower, so it sees a part of the cases.
const STEP: usize = if cfg!(miri) { 23 } else { 1 };

#[test]
fn a_cut_at_any_byte_is_refused() {
    for value in samples() {
        for cut in (0..value.len()).step_by(STEP) {
            let fault = Value::parse(&value[..cut]).expect_err("cut value was read");
            assert!(!fault.to_string().is_empty());
        }
    }
}

#[test]
fn no_single_byte_makes_it_panic() {
    for value in samples() {
        for position in (0..value.len()).step_by(STEP) {
            for byte in [0, 1, 0x7f, 0x80, 0xff, value[position] ^ 0x10] {
                let mut damaged = value.clone();
                damaged[position] = byte;
                if let Ok(Value::Known(fields)) = Value::parse(&damaged) {
                    // What was accepted must be readable to its end.
                    let topics = fields.partitions().into_iter().flatten();
                    assert_eq!(topics.count(), fields.partitions().map_or(0, |topics| topics.len()));
                    if let Ok(view) = fields.transaction() {
                        let again = encoded(&view.to_metadata(), ValueVersion::V1);
                        assert_eq!(
                            self::fields(&again).transaction().unwrap().to_metadata(),
                            view.to_metadata()
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn warnings_of_odd_values() {
    let mut value = encoded(&sample(TransactionState::Ongoing), ValueVersion::V0);
    value[STATUS_POSITION] = 0;
    value.extend_from_slice(&[0, 1]);
    let view = fields(&value).transaction().unwrap();
    assert_eq!(
        view.fields().warnings.to_string(),
        "2 bytes behind the last field, partitions given with state Empty"
    );
    assert!(view.partitions().is_none(), "a coordinator ignores them");
    assert_eq!(view.fields().partitions().unwrap().len(), 2, "the schema does not");
    assert!(view.to_metadata().partitions.is_none());
}

#[test]
fn repeated_tags_are_found_in_any_order() {
    let base = encoded(&sample(TransactionState::Empty), ValueVersion::V1);
    let read = |tags: &[u8]| {
        let mut value = base[..base.len() - 1].to_vec();
        value.push(tags.len() as u8);
        for (i, &tag) in tags.iter().enumerate() {
            value.extend_from_slice(&[tag, 1, i as u8]);
        }
        let fields = fields(&value);
        let kept = fields.transaction().unwrap().to_metadata().unknown_tagged_fields;
        (fields.warnings.repeated_tag, kept.iter().map(|f| (f.tag as u8, f.data[0])).collect::<Vec<_>>())
    };
    assert_eq!(read(&[5, 6, 7]), (false, vec![(5, 0), (6, 1), (7, 2)]));
    assert_eq!(read(&[7, 5, 6]), (false, vec![(5, 1), (6, 2), (7, 0)]));
    assert_eq!(read(&[5, 7, 5]), (true, vec![(5, 2), (7, 1)]), "the last one counts");
    assert_eq!(read(&[9, 9, 9]), (true, vec![(9, 2)]));
}

#[test]
fn lengths_that_lie_are_refused() {
    let base = encoded(&sample(TransactionState::Ongoing), ValueVersion::V0);
    let fault = |count: i32| {
        let mut value = base.clone();
        value[17..21].copy_from_slice(&count.to_be_bytes());
        Value::parse(&value).unwrap_err()
    };
    assert_eq!(
        fault(-2),
        ValueFault::Count { field: "topics", position: 17, count: -2, left: base.len() - 21 }
    );
    assert!(matches!(fault(i32::MAX), ValueFault::Count { .. }));
    assert!(matches!(fault(3), ValueFault::Truncated { .. } | ValueFault::Count { .. }));

    let mut value = encoded(&sample(TransactionState::Ongoing), ValueVersion::V1);
    value.splice(18..19, [0x81, 0x80, 0x02]);
    assert_eq!(
        Value::parse(&value).unwrap_err().to_string(),
        "topic name of length 32768 at byte 18 of the value"
    );
    value.splice(18..21, [0]);
    assert_eq!(
        Value::parse(&value).unwrap_err().to_string(),
        "topic name of length -1 at byte 18 of the value"
    );
}

#[test]
fn rules_of_the_coordinator() {
    let mut value = encoded(&sample(TransactionState::Dead), ValueVersion::V0);
    value[STATUS_POSITION] = 9;
    assert_eq!(fields(&value).status, 9);
    assert_eq!(fields(&value).transaction(), Err(ValueFault::Status(9)));
    let mut value = encoded(&sample(TransactionState::Empty), ValueVersion::V1);
    value[STATUS_POSITION] = 1;
    assert_eq!(
        fields(&value).transaction().unwrap_err().to_string(),
        "null partitions with state Ongoing, only Empty has none"
    );
}

#[test]
fn version_0_refuses_what_it_cannot_hold() {
    let plain = sample(TransactionState::Ongoing);
    let refused = |change: fn(&mut TransactionMetadata)| {
        let mut metadata = plain.clone();
        change(&mut metadata);
        let mut out = vec![1];
        let fault = metadata.encode(ValueVersion::V0, &mut out).unwrap_err();
        assert_eq!(out, [1], "nothing is left behind");
        metadata.encode(ValueVersion::V1, &mut out).unwrap();
        fault
    };
    let needs = |field| EncodeFault::NeedsVersion1 { field };
    assert_eq!(refused(|m| m.previous_producer_id = ProducerId(1)), needs("previous producer id"));
    assert_eq!(refused(|m| m.next_producer_id = ProducerId(1)), needs("next producer id"));
    assert_eq!(refused(|m| m.client_transaction_version = 2), needs("client transaction version"));
    assert_eq!(refused(|m| m.next_producer_epoch = 0), needs("next producer epoch"));
    const UNKNOWN: TaggedField = TaggedField { tag: 9, data: vec![] };
    assert_eq!(refused(|m| m.unknown_tagged_fields = vec![UNKNOWN]), needs("unknown tagged fields"));
    assert_eq!(
        refused(|m| m.partitions.as_mut().unwrap()[0].unknown_tagged_fields = vec![UNKNOWN]),
        needs("unknown tagged fields")
    );
}

#[test]
fn other_values_that_cannot_be_written() {
    let refused = |change: fn(&mut TransactionMetadata)| {
        let mut metadata = sample(TransactionState::Ongoing);
        change(&mut metadata);
        let mut out = vec![1];
        let fault = metadata.encode(ValueVersion::V1, &mut out).unwrap_err();
        assert_eq!(out, [1], "nothing is left behind");
        fault
    };
    assert_eq!(refused(|m| m.partitions = None), EncodeFault::NullPartitions(TransactionState::Ongoing));
    assert_eq!(
        refused(|m| m.partitions.as_mut().unwrap()[1].topic = vec![b'x'; 32768]),
        EncodeFault::TopicTooLong(32768)
    );
    let tags = |tags: &[u32]| tags.iter().map(|&tag| TaggedField { tag, data: vec![] }).collect::<Vec<_>>();
    for wrong in [&[3][..], &[8, 4, 8]] {
        let mut metadata = sample(TransactionState::Empty);
        metadata.unknown_tagged_fields = tags(wrong);
        assert_eq!(
            metadata.encode(ValueVersion::V1, &mut vec![]),
            Err(EncodeFault::Tag(*wrong.last().unwrap()))
        );
    }
}

#[test]
fn the_status_is_found_without_reading_the_rest() {
    assert_eq!(status_code(&[]), None);
    assert_eq!(status_code(&[0, 0]), None);
    assert_eq!(status_code(&[0; 17]), Some(0));
    assert_eq!(status_code(&[0; 16]), None);
    let mut value = [0; 17];
    value[1] = 2;
    assert_eq!(status_code(&value), None, "another version may have it elsewhere");
}
