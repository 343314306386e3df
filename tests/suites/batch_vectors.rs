//! Record batches and legacy messages against bytes whose meaning Kafka's own classes established.

use redrive::batch::legacy::LegacyMessage;
use redrive::batch::{
    Batch, BatchBuilder, BatchFrame, Compression, ControlRecord, Decompressor, FrameFault, FramePrefix,
    LOG_OVERHEAD, Limits, NewRecord,
};
use redrive::types::{Offset, ProducerId};
use redrive_tests::logs::{BatchSpec, RecordSpec, reseal};
use redrive_tests::{naive, vectors};
use serde_json::{Value, json};

fn hex_of(vector: &Value) -> Vec<u8> {
    vectors::bytes(vector, "hex").expect("hex")
}

fn int(vector: &Value, member: &str) -> i64 {
    vector[member].as_i64().unwrap_or_else(|| panic!("{member} of {vector}"))
}

fn name(vector: &Value) -> &str {
    vector["name"].as_str().expect("a name")
}

fn records_of(vector: &Value) -> &[Value] {
    vector["decoded"]["records"].as_array().expect("records")
}

/// What the vectors say of a batch's records, or why they cannot be read.
fn records_json(batch: &Batch<'_>) -> Result<Vec<Value>, String> {
    let mut decompressor = Decompressor::new();
    let records = batch.records(&mut decompressor, &Limits::default()).map_err(|fault| fault.to_string())?;
    records
        .map(|record| {
            let record = record.map_err(|fault| fault.to_string())?;
            let hex = |bytes: Option<&[u8]>| bytes.map(vectors::to_hex);
            let headers: Vec<_> = record
                .headers()
                .map(|header| json!([naive::java_text(header.key), hex(header.value)]))
                .collect();
            Ok(json!({
                "offset": record.offset.0,
                "timestamp": record.timestamp,
                "sequence": record.sequence,
                "key_hex": hex(record.key),
                "value_hex": hex(record.value),
                "headers": headers,
            }))
        })
        .collect()
}

#[test]
fn record_batches_are_read() {
    let mut control_records = 0;
    for vector in vectors::list("record_batches") {
        let (bytes, decoded) = (hex_of(vector), &vector["decoded"]);
        let (frame, rest) =
            BatchFrame::parse(&bytes).unwrap_or_else(|fault| panic!("{}: {fault}", name(vector)));
        assert!(rest.is_empty());
        let batch = frame.verify().unwrap_or_else(|fault| panic!("{}: {fault}", name(vector)));
        let compression = frame.compression().expect("a codec");
        let read = json!({
            "base_offset": frame.base_offset().0, "batch_length": frame.size() - LOG_OVERHEAD,
            "partition_leader_epoch": frame.partition_leader_epoch(), "magic": frame.bytes()[16],
            "crc": frame.crc(), "attributes": frame.attributes(), "compression": compression.name(),
            "timestamp_type": if frame.is_log_append_time() { "LogAppendTime" } else { "CreateTime" },
            "is_transactional": frame.is_transactional(), "is_control": frame.is_control(),
            "has_delete_horizon": frame.delete_horizon_ms().is_some(),
            "delete_horizon_ms": frame.delete_horizon_ms(), "last_offset_delta": frame.last_offset_delta(),
            "last_offset": frame.last_offset().0, "base_timestamp": frame.base_timestamp(),
            "max_timestamp": frame.max_timestamp(), "producer_id": frame.producer_id().0,
            "producer_epoch": frame.producer_epoch(), "base_sequence": frame.base_sequence(),
            "last_sequence": frame.last_sequence(), "record_count": frame.records_count(),
            "size_in_bytes": frame.size(),
        });
        let members = decoded.as_object().expect("members");
        for (member, expected) in members {
            if member != "records" {
                assert_eq!(read[member], *expected, "{}: {member}", name(vector));
            }
        }
        assert_eq!(records_json(&batch), Ok(records_of(vector).to_vec()), "{}", name(vector));

        let mut decompressor = Decompressor::new();
        for record in batch.records(&mut decompressor, &Limits::default()).expect("records") {
            if frame.is_control() {
                ControlRecord::parse(&record.expect("a record")).expect("a control record");
                control_records += 1;
            }
        }
    }
    assert!(control_records >= 6, "{control_records}");
}

/// What Kafka's own writers make of the same records, to the byte. Compressed bytes differ between encoders, and
/// bits that no writer sets cannot be asked for.
#[test]
fn plain_record_batches_are_rebuilt() {
    let mut rebuilt = 0;
    for vector in vectors::list("record_batches") {
        let decoded = &vector["decoded"];
        if decoded["compression"] != "none" || name(vector) == "reserved_attribute_bits" {
            continue;
        }
        let mut builder = BatchBuilder::new(Offset(int(decoded, "base_offset")));
        builder.leader_epoch(int(decoded, "partition_leader_epoch") as i32);
        builder.last_offset(Offset(int(decoded, "last_offset")));
        builder.producer(
            ProducerId(int(decoded, "producer_id")),
            int(decoded, "producer_epoch") as i16,
            int(decoded, "base_sequence") as i32,
        );
        if decoded["is_transactional"] == true {
            builder.transactional();
        }
        if decoded["is_control"] == true {
            builder.control();
        }
        if let Some(horizon) = decoded["delete_horizon_ms"].as_i64() {
            builder.delete_horizon(horizon);
        }
        // With append time a reader gives every record that time. What was stored before are the times of
        // `plain_three`, whose records these are.
        let is_append_time = decoded["timestamp_type"] == "LogAppendTime";
        let times = if is_append_time {
            builder.log_append_time(int(decoded, "max_timestamp"));
            records_of(vectors::named("record_batches", "plain_three"))
        } else {
            records_of(vector)
        };
        if records_of(vector).is_empty() {
            builder.max_timestamp(int(decoded, "max_timestamp"));
        }
        for (record, time) in records_of(vector).iter().zip(times) {
            let (key, value) = (vectors::bytes(record, "key_hex"), vectors::bytes(record, "value_hex"));
            let headers = record["headers"].as_array().expect("headers").iter().map(|header| {
                (header[0].as_str().expect("a key").as_bytes(), header[1].as_str().map(vectors::hex))
            });
            let headers: Vec<_> = headers.collect();
            let headers: Vec<_> = headers.iter().map(|(key, value)| (*key, value.as_deref())).collect();
            let record_to_write = NewRecord {
                timestamp: int(time, "timestamp"),
                key: key.as_deref(),
                value: value.as_deref(),
                headers: &headers,
            };
            builder.push_at(Offset(int(record, "offset")), &record_to_write).expect("fits");
        }
        let built = builder.build().expect("built");
        assert_eq!(vectors::to_hex(&built), vector["hex"], "{}", name(vector));
        rebuilt += 1;
    }
    assert_eq!(rebuilt, 18);
}

/// What we make of the bytes of a file: batch by batch as far as they go, then why it ends.
fn walk(bytes: &[u8]) -> (Vec<Result<usize, String>>, Option<String>) {
    let (mut rest, mut batches) = (bytes, Vec::new());
    loop {
        if rest.is_empty() {
            return (batches, None);
        }
        match BatchFrame::parse(rest) {
            Err(fault) => return (batches, Some(format!("{fault:?}"))),
            Ok((frame, after)) => {
                let read = frame.verify().map_err(|fault| format!("{fault:?}"));
                batches.push(read.and_then(|batch| records_json(&batch)).map(|records| records.len()));
                rest = after;
            }
        }
    }
}

/// The decision on each damaged batch, where ours is Kafka's: `valid, records read=N`, or refused. Where a file
/// reader of Kafka goes on with what we refuse, the vector is named here with the reason.
#[test]
fn invalid_batches_are_refused() {
    // Kafka's file reader takes any magic above 2 for 2 and looks at no other header field by itself.
    let ours_only = ["magic_3", "last_offset_delta_negative"];
    let mut decided = 0;
    for vector in vectors::list("invalid_batches") {
        let bytes = hex_of(vector);
        let (batches, end) = walk(&bytes);
        let kafka = vector["kafka_file_reader"].as_array().expect("outcomes");
        let kafka: Vec<&str> = kafka.iter().map(|outcome| outcome.as_str().expect("text")).collect();
        let what = format!("{}: {batches:?}, {end:?}", name(vector));
        if ours_only.contains(&name(vector)) {
            assert!(batches.is_empty() && end.is_some(), "{what}");
            decided += 1;
            continue;
        }
        // A control batch is read record by record by Kafka's control record classes, not by its record classes.
        let is_read = |outcome: &str| outcome.contains("valid, records read=");
        let expected: Vec<&str> = kafka.iter().copied().filter(|outcome| is_read(outcome)).collect();
        let read: Vec<usize> = batches.iter().filter_map(|batch| batch.as_ref().ok().copied()).collect();
        if name(vector).starts_with("control_") {
            let (frame, _) = BatchFrame::parse(&bytes).expect("a frame");
            let batch = frame.verify().expect("a right CRC");
            let mut decompressor = Decompressor::new();
            let record = batch.records(&mut decompressor, &Limits::default()).expect("records").next();
            let record = record.expect("a record").expect("well-formed");
            let parsed = ControlRecord::parse(&record);
            assert_eq!(parsed.is_ok(), !expected.is_empty(), "{what}: {parsed:?}");
        } else {
            let counts: Vec<String> = read.iter().map(|count| format!("records read={count}")).collect();
            assert_eq!(counts.len(), expected.len(), "{what}, Kafka {kafka:?}");
            for (count, outcome) in counts.iter().zip(&expected) {
                assert!(outcome.ends_with(count), "{what}, Kafka {kafka:?}");
            }
            // What Kafka neither reads nor reaches is refused, not passed over.
            let is_whole = batches.iter().all(Result::is_ok) && end.is_none();
            assert_eq!(
                is_whole,
                kafka.len() == expected.len() && int(vector, "kafka_bytes_left") == 0,
                "{what}"
            );
        }
        decided += 1;
    }
    assert_eq!(decided, 33);
}

/// STOP and REFUSE are told apart where a batch begins: too few bytes is no bad length.
#[test]
fn stops_and_refusals_are_different_faults() {
    let prefix = |name: &str| {
        let bytes = hex_of(vectors::named("invalid_batches", name));
        FramePrefix::parse(&bytes, bytes.len() as u64)
    };
    for stop in ["truncated_tail", "short_header_17", "short_header_18"] {
        assert!(matches!(prefix(stop), Err(FrameFault::Incomplete { .. })), "{stop}: {:?}", prefix(stop));
    }
    for refuse in ["length_13", "length_negative", "length_20_magic_2"] {
        assert!(matches!(prefix(refuse), Err(FrameFault::Length { .. })), "{refuse}: {:?}", prefix(refuse));
    }
    assert_eq!(prefix("magic_3"), Err(FrameFault::Magic { magic: 3 }));
    assert_eq!(prefix("magic_minus_1"), Err(FrameFault::Magic { magic: -1 }));
    let zeros = FramePrefix::parse(&[0; 17], 17);
    assert_eq!(zeros, Err(FrameFault::Length { length: 0, magic: 0, least: 14 }));
}

#[test]
fn compressed_variants_are_read_or_refused_as_by_kafka() {
    let (mut read, mut refused) = (0, 0);
    for vector in vectors::list("compressed_variants") {
        let bytes = hex_of(vector);
        let (batches, end) = walk(&bytes);
        assert_eq!((batches.len(), end), (1, None), "{}", name(vector));
        let kafka = vector["kafka_file_reader"][0].as_str().expect("an outcome");
        match &batches[0] {
            Ok(count) => {
                assert!(
                    kafka.ends_with(&format!("valid, records read={count}")),
                    "{}: {kafka}",
                    name(vector)
                );
                read += 1;
            }
            Err(fault) => {
                assert!(kafka.contains("valid, records -> "), "{}: {fault}, Kafka {kafka}", name(vector));
                refused += 1;
            }
        }
    }
    assert_eq!((read, refused), (13, 10));
}

#[test]
fn legacy_messages_are_read() {
    for vector in vectors::list("legacy_messages") {
        let (bytes, decoded) = (hex_of(vector), &vector["decoded"]);
        let (message, rest) = LegacyMessage::parse(&bytes).expect("a message");
        assert!(rest.is_empty());
        message.verify().expect("a right CRC");
        let mut decompressor = Decompressor::new();
        let records = message.records(&mut decompressor, &Limits::default()).expect("records");
        let hex = |bytes: Option<&[u8]>| bytes.map(vectors::to_hex);
        let shown = records.iter().map(|record| {
            assert!(record.is_valid);
            json!({
                "offset": record.offset.0, "timestamp": record.timestamp,
                "key_hex": hex(record.key), "value_hex": hex(record.value),
            })
        });
        let read = json!({
            "magic": message.magic(), "last_offset": message.offset().0, "size_in_bytes": message.size(),
            "records": shown.collect::<Vec<_>>(),
        });
        assert_eq!(read, *decoded, "{}", name(vector));

        // No batch of magic 2, and every changed byte behind the CRC is noticed.
        assert!(matches!(BatchFrame::parse(&bytes), Err(FrameFault::Magic { magic: 0 | 1 })));
        for at in 17..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            let (message, _) = LegacyMessage::parse(&changed).expect("a message");
            assert!(message.verify().is_err(), "{} byte {at}", name(vector));
        }
    }
}

/// The checksum of known bytes, in the place where a batch has it.
#[test]
fn crc32c_of_known_bytes() {
    for vector in vectors::list("crc32c") {
        let data = vectors::bytes(vector, "data_hex").expect("hex");
        let expected = vector["crc"].as_u64().expect("a checksum") as u32;
        // A batch's CRC begins at its attributes: give the bytes behind a header and take the header out again.
        let header_only = BatchBuilder::new(Offset(0)).build().expect("built");
        let mut batch = [&header_only[..], &data].concat();
        let length = (batch.len() - LOG_OVERHEAD) as i32;
        batch[8..12].copy_from_slice(&length.to_be_bytes());
        let frame = BatchFrame::unchecked_fields(&batch).expect("a batch");
        let header = &batch[21..61];
        assert_eq!(
            frame.computed_crc(),
            crc32c::crc32c_combine(crc32c::crc32c(header), expected, data.len())
        );
    }
}

/// Variable-length integers as they stand in records: the timestamp delta is a 64-bit one, the offset delta a
/// 32-bit one.
#[test]
fn varints_in_records() {
    let varints = vectors::group("varints");
    // A record around raw bytes of the two deltas.
    let read = |timestamp_delta: &[u8], offset_delta: &[u8]| {
        let mut body = vec![0];
        body.extend(timestamp_delta);
        body.extend(offset_delta);
        body.extend([0x01, 0x01, 0x00]); // no key, no value, no headers
        let payload = [redrive_tests::logs::varint(body.len() as i32), body].concat();
        let spec = BatchSpec {
            base_timestamp: 0,
            max_timestamp: Some(0),
            last_offset_delta: Some(i32::MAX),
            payload: Some(payload),
            records: vec![RecordSpec::default()],
            ..BatchSpec::default()
        };
        let mut bytes = spec.encode();
        reseal(&mut bytes);
        let (frame, _) = BatchFrame::parse(&bytes).expect("a frame");
        let mut decompressor = Decompressor::new();
        let batch = frame.verify().expect("a right CRC");
        let mut records = batch.records(&mut decompressor, &Limits::default()).expect("records");
        records.next().expect("a record").map(|record| (record.timestamp, record.offset.0))
    };
    let list = |member: &str| varints[member].as_array().unwrap_or_else(|| panic!("{member}")).clone();
    for vector in list("zigzag_varlong64") {
        assert_eq!(read(&hex_of(&vector), &[0]), Ok((int(&vector, "value"), 0)), "{vector}");
    }
    for vector in list("zigzag_varint32") {
        assert_eq!(read(&[0], &hex_of(&vector)), Ok((0, int(&vector, "value"))), "{vector}");
    }
    for group in ["non_minimal_accepted", "overflow_bits_dropped"] {
        for vector in list(group) {
            let value = int(&vector, "value");
            match vector["kind"].as_str().expect("a kind") {
                "zigzag_varlong64" => assert_eq!(read(&hex_of(&vector), &[0]), Ok((value, 0)), "{vector}"),
                "zigzag_varint32" => assert_eq!(read(&[0], &hex_of(&vector)), Ok((0, value)), "{vector}"),
                // The same groups of seven bits, read with a sign.
                "unsigned_varint32" => {
                    let zigzag = (value >> 1) ^ -(value & 1);
                    assert_eq!(read(&[0], &hex_of(&vector)), Ok((0, zigzag)), "{vector}");
                }
                other => panic!("{other}"),
            }
        }
    }
    for vector in list("rejected") {
        let bytes = hex_of(&vector);
        // What ends inside the integer here runs into the next field, so only the endless ones are refused for sure.
        if bytes.len() < 5 {
            continue;
        }
        let result =
            if vector["kind"] == "zigzag_varlong64" { read(&bytes, &[0]) } else { read(&[0], &bytes) };
        assert!(result.is_err(), "{vector}: {result:?}");
    }
    // Every value comes back from our own writer in the shortest form, which `plain_record_batches_are_rebuilt` and
    // the independent writer agree on.
    for value in [0, 1, -1, 63, 64, -64, -65, i64::from(i32::MAX), i64::MAX - 1] {
        let mut builder = BatchBuilder::new(Offset(0));
        let record = |timestamp| NewRecord { timestamp, ..NewRecord::default() };
        builder.push(&record(0)).expect("fits").push(&record(value)).expect("fits");
        let built = builder.build().expect("built");
        let records = vec![
            RecordSpec::default(),
            RecordSpec { offset_delta: 1, timestamp_delta: value, ..RecordSpec::default() },
        ];
        let spec =
            BatchSpec { base_timestamp: 0, partition_leader_epoch: -1, records, ..BatchSpec::default() };
        assert_eq!(built, spec.encode(), "{value}");
    }
}

/// Each codec that this build has is read; the others are told to be missing, and nothing else changes.
#[test]
fn codecs_of_the_build() {
    let by_feature = [
        (Compression::None, true),
        (Compression::Gzip, cfg!(feature = "gzip")),
        (Compression::Snappy, cfg!(feature = "snappy")),
        (Compression::Lz4, cfg!(feature = "lz4")),
        (Compression::Zstd, cfg!(feature = "zstd")),
    ];
    for (compression, is_built) in by_feature {
        assert_eq!(compression.is_supported(), is_built, "{compression}");
        assert_eq!(Compression::from_id(compression.id()), Ok(compression));
    }
    for id in 5..=7 {
        assert_eq!(Compression::from_id(id), Err(id));
    }
}
