//! Batches of Kafka's own classes through the validator, what this engine refuses beyond Kafka, and the fast writer of a
//! coordinator's batches.

mod appends;

use appends::*;
use redrive::batch::{BatchBuilder, Compression, CoordinatorBatches, Limits, NewRecord};
use redrive::log::LogConfig;
use redrive::log::config::{CompressionType, ConfigFault};
use redrive::log::validate::{
    AppendOrigin, AppendRejection, InvalidBatch, LeaderAppend, LogValidator, RECORDS_LISTED_MAX,
    RecordRejection,
};
use redrive::types::Offset;
use redrive_tests::logs::{BatchSpec, Codec, RecordSpec, Rng, reseal};
use redrive_tests::vectors::{self, hex};

/// H-2: what a leader of Kafka lets into its log, and what it packs anew.
#[test]
fn offset_deltas_that_do_not_count_up() {
    let mut records = some(3);
    (records[0].offset_delta, records[1].offset_delta) = (1, 0);
    let spec = |codec| BatchSpec { codec, ..batch(records.clone()) };
    let config = LogConfig::default();
    let rejection = validate(&spec(Codec::None).encode(), &config).expect_err("refused");
    assert_eq!((failed(&rejection), rejection.error_name()), (vec![0, 1], Some("INVALID_RECORD")));
    let AppendRejection::Records { records: listed, .. } = &rejection else { panic!("{rejection}") };
    assert_eq!(listed[0].why, RecordRejection::OffsetDelta(1));
    for (codec, compression_type) in [
        (Codec::Zstd, CompressionType::Producer),
        (Codec::None, CompressionType::Target(Compression::Zstd)),
        (Codec::Gzip, CompressionType::Target(Compression::None)),
    ] {
        let config = LogConfig { compression_type, ..LogConfig::default() };
        let (batch, stored) = accepted(validate(&spec(codec).encode(), &config));
        assert!(batch.rewritten.is_some(), "{codec:?}");
        assert_eq!(read(&stored).iter().map(|record| record.0).collect::<Vec<_>>(), [100, 101, 102]);
    }
}

/// What no log may hold, since our own reader would refuse it.
#[test]
fn headers_and_times_that_no_reader_takes() {
    let config = LogConfig::default();
    for (spec, field) in [
        (BatchSpec { base_timestamp: -2, max_timestamp: Some(0), ..batch(some(1)) }, "baseTimestamp"),
        (BatchSpec { producer_id: -2, ..batch(some(1)) }, "producerId"),
        (BatchSpec { producer_epoch: -2, ..batch(some(1)) }, "producerEpoch"),
        (BatchSpec { base_sequence: -2, ..batch(some(1)) }, "baseSequence"),
    ] {
        match validate(&spec.encode(), &config) {
            Err(AppendRejection::Batch(InvalidBatch::Field { field: found, .. })) => assert_eq!(found, field),
            other => panic!("{field}: {other:?}"),
        }
        let rejection = scan(&spec.encode(), &config, 0, 0).expect_err("refused");
        assert_eq!(rejection.error_name(), Some("CORRUPT_MESSAGE"), "{field}");
    }
    let mut records = some(1);
    records[0].timestamp_delta = -now() - 5;
    let rejection = validate(&batch(records).encode(), &config).expect_err("refused");
    assert_eq!(rejection.error_name(), Some("INVALID_TIMESTAMP"));

    let end_of_offsets = |first_offset| {
        let append =
            LeaderAppend { first_offset: Offset(first_offset), ..append(&config, AppendOrigin::Client) };
        validate_as(&batch(some(2)).encode(), &append)
    };
    accepted(end_of_offsets(i64::MAX - 2));
    assert!(matches!(
        end_of_offsets(i64::MAX - 1),
        Err(AppendRejection::Batch(InvalidBatch::NoOffsetsLeft(_)))
    ));
}

/// A refusal of very many records counts them all and lists some.
#[test]
fn a_bound_on_the_list_of_records() {
    let count = RECORDS_LISTED_MAX as i64 + 10;
    let bytes = BatchSpec {
        codec: Codec::Zstd,
        ..batch(some(count).into_iter().map(|r| RecordSpec { key: None, ..r }).collect())
    };
    match validate(&bytes.encode(), &compact()) {
        Err(AppendRejection::Records { records, failed, .. }) => {
            assert_eq!((records.len(), i64::from(failed)), (RECORDS_LISTED_MAX, count));
        }
        other => panic!("{:?}", other.map(|_| ())),
    }
    let small = Limits::default().with_decompressed_bytes_max(1000);
    let config = LogConfig::default();
    let mut buffer = bytes.encode();
    let result =
        LogValidator::with_limits(small).validate(&mut buffer, &append(&config, AppendOrigin::Client));
    assert_eq!(result.expect_err("refused").error_name(), Some("MESSAGE_TOO_LARGE"));
}

/// Batches of Kafka's own classes: those that a producer may send are stamped and else unchanged.
#[test]
fn record_batches_of_kafka() {
    let config = LogConfig { message_timestamp_after_max_ms: i64::MAX, ..LogConfig::default() };
    let (mut taken, mut refused) = (0, 0);
    for vector in vectors::list("record_batches") {
        let bytes = hex(text(&vector["hex"]));
        let decoded = &vector["decoded"];
        let count = int(&decoded["record_count"]);
        let offsets =
            decoded["records"].as_array().expect("records").iter().map(|record| int(&record["offset"]));
        let is_whole = count > 0
            && int(&decoded["last_offset_delta"]) == count - 1
            && offsets.eq(int(&decoded["base_offset"])..=int(&decoded["last_offset"]));
        let result = validate_as(&bytes, &append(&config, AppendOrigin::Coordinator));
        // Followers take what a leader has, cleaned batches too.
        let (valid, ..) = scan(&bytes, &config, 0, i32::MAX).expect("accepted");
        assert_eq!(valid, bytes.len());
        if !is_whole {
            assert!(result.is_err(), "{}", vector["name"]);
            refused += 1;
            continue;
        }
        let (batch, stored) = accepted(result);
        assert!(batch.rewritten.is_none(), "{}", vector["name"]);
        let is_append_time = decoded["timestamp_type"] == "LogAppendTime";
        let mut expected = bytes.clone();
        expected[..8].copy_from_slice(&100i64.to_be_bytes());
        expected[12..16].copy_from_slice(&3i32.to_be_bytes());
        if is_append_time {
            expected[22] &= !8;
            reseal(&mut expected);
        }
        assert_eq!(stored, expected, "{}", vector["name"]);
        // As a client's, with base offset 0, all but control batches.
        let mut sent = bytes.clone();
        sent[..8].fill(0);
        let is_control = decoded["is_control"] == true;
        assert_eq!(validate(&sent, &config).is_err(), is_control, "{}", vector["name"]);
        taken += 1;
    }
    assert!(taken >= 15 && refused >= 3, "{taken}, {refused}");
}

/// Damaged batches: a leader takes none but those whose damage is none.
#[test]
fn invalid_batches_of_kafka() {
    let config = LogConfig { message_timestamp_after_max_ms: i64::MAX, ..LogConfig::default() };
    // Base offset and epoch lie outside the CRC, a length below −1 reads as null, a record's attributes are unused; what
    // a marker says is read after this.
    let harmless = [
        "leader_epoch_changed",
        "base_offset_changed",
        "key_length_minus_2",
        "record_attributes_nonzero",
        "control_key_short",
        "control_key_negative_version",
        "control_value_short",
        "control_value_version_1",
    ];
    let incomplete = ["truncated_tail", "short_header_17", "short_header_18"];
    for vector in vectors::list("invalid_batches") {
        let bytes = hex(text(&vector["hex"]));
        let name = text(&vector["name"]);
        let is_corrupt = ["kafka_memory_reader", "kafka_file_reader"].iter().any(|reader| {
            vector[reader]
                .as_array()
                .expect("outcomes")
                .iter()
                .any(|what| text(what).contains("CorruptRecord"))
        });
        let result = validate_as(&bytes, &append(&config, AppendOrigin::Coordinator));
        let decided = result.map(|batch| batch.is_some()).map_err(|rejection| rejection.error_name());
        let expected = match name {
            _ if harmless.contains(&name) => Ok(true),
            _ if incomplete.contains(&name) => Ok(false),
            _ if is_corrupt => Err(Some("CORRUPT_MESSAGE")),
            _ => Err(Some("INVALID_RECORD")),
        };
        assert_eq!(decided, expected, "{name}");
    }
}

/// Framings that Kafka's decoders take or refuse.
#[test]
fn compressed_variants_of_kafka() {
    let config = LogConfig { message_timestamp_after_max_ms: i64::MAX, ..LogConfig::default() };
    let (mut taken, mut refused) = (0, 0);
    for vector in vectors::list("compressed_variants") {
        let bytes = hex(text(&vector["hex"]));
        let is_read = text(&vector["kafka_file_reader"][0]).contains("records read=");
        let target = CompressionType::Target(Compression::None);
        for compression_type in [CompressionType::Producer, target] {
            let config = LogConfig { compression_type, ..config.clone() };
            match validate_as(&bytes, &append(&config, AppendOrigin::Coordinator)) {
                Ok(taken_as) => {
                    assert!(is_read, "{}", vector["name"]);
                    let (batch, stored) = accepted(Ok(taken_as));
                    assert_eq!(batch.rewritten.is_some(), compression_type == target);
                    assert_eq!(read(&stored).len(), 4, "{}", vector["name"]);
                    taken += 1;
                }
                Err(rejection) => {
                    assert!(!is_read, "{}: {rejection}", vector["name"]);
                    assert_eq!(rejection.error_name(), Some("INVALID_RECORD"));
                    refused += 1;
                }
            }
        }
    }
    assert_eq!((taken, refused), (26, 20));
}

/// Many appends of a coordinator are the batches that the general writer and the independent one make.
#[test]
fn coordinator_batches_are_those_of_the_builder() {
    let mut rng = Rng::new(7);
    let mut batches = CoordinatorBatches::new(Offset(0), 0);
    for round in 0..50i64 {
        let (first, epoch) = (round * 1000, round as i32 - 1);
        batches.restart(Offset(first), epoch);
        let mut expected = vec![];
        for n in 0..rng.below(30) as i64 {
            let size = |rng: &mut Rng| *rng.pick(&[0, 1, 2, 60, 63, 64, 65, 200, 8_191, 8_192, 20_000]);
            let (key, value) = (vec![b'k'; size(&mut rng)], vec![n as u8; size(&mut rng)]);
            let value = (!rng.once_in(4)).then_some(value);
            let time = if rng.once_in(5) { -1 } else { rng.below(1 << 50) as i64 };
            let place = batches.push(time, &key, value.as_deref()).expect("fits");
            let mut builder = BatchBuilder::new(Offset(first + n));
            let record =
                NewRecord { timestamp: time, key: Some(&key), value: value.as_deref(), headers: &[] };
            builder.leader_epoch(epoch).push(&record).expect("fits");
            assert_eq!(batches.bytes()[place], builder.build().expect("built"));
            let spec = BatchSpec {
                partition_leader_epoch: epoch,
                base_timestamp: time,
                ..BatchSpec::single(first + n, key, value)
            };
            expected.extend(spec.encode());
        }
        assert!(batches.bytes() == expected);
        let config = LogConfig { segment_bytes: i32::MAX as u32, ..LogConfig::default() };
        scan(batches.bytes(), &config, first, epoch).expect("accepted by a follower");
    }
    let mut batches = CoordinatorBatches::new(Offset(i64::MAX - 1), 0);
    batches.push(0, b"k", None).expect("the last offset");
    assert!(batches.push(0, b"k", None).is_err());
    assert_eq!(batches.bytes().len(), BatchSpec::single(0, b"k".to_vec(), None).encode().len());
}

#[test]
fn settings_in_range() {
    LogConfig::default().check().expect("Kafka's defaults are in range");
    let faults = [
        (LogConfig { segment_bytes: 13, ..LogConfig::default() }, "segment.bytes"),
        (LogConfig { segment_bytes: 1 << 31, ..LogConfig::default() }, "segment.bytes"),
        (LogConfig { segment_ms: 0, ..LogConfig::default() }, "segment.ms"),
        (LogConfig { segment_jitter_ms: -1, ..LogConfig::default() }, "segment.jitter.ms"),
        (LogConfig { segment_index_bytes: 3, ..LogConfig::default() }, "segment.index.bytes"),
        (LogConfig { compression_gzip_level: 0, ..LogConfig::default() }, "compression.gzip.level"),
        (LogConfig { compression_gzip_level: 10, ..LogConfig::default() }, "compression.gzip.level"),
        (LogConfig { compression_zstd_level: 23, ..LogConfig::default() }, "compression.zstd.level"),
        (LogConfig { producer_id_expiration_ms: 0, ..LogConfig::default() }, "producer.id.expiration.ms"),
    ];
    for (config, property) in faults {
        let fault = config.check().expect_err(property);
        assert!(matches!(fault, ConfigFault { property: found, .. } if found == property), "{fault}");
    }
    for name in ["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"] {
        assert_eq!(CompressionType::from_name(name).map(CompressionType::name), Some(name));
    }
    assert_eq!(CompressionType::from_name("none"), None);
}
