//! What a leader accepts, row by row. Inputs and right results are data, in `fixtures/cases/validate.json`; bytes come from
//! the independent writer.

mod appends;

use std::io::Write;

use appends::*;
use redrive::batch::{BatchFrame, Compression, TimestampType};
use redrive::log::LogConfig;
use redrive::log::config::CompressionType;
use redrive::log::validate::{AppendOrigin, AppendRejection, InvalidBatch, LeaderAppend};
use redrive::types::Offset;
use redrive_tests::logs::{BatchSpec, Codec, LOG_APPEND_TIME, RecordSpec, Rng, TRANSACTIONAL};
use serde_json::Value;

#[test]
fn c03_r068_two_batches() {
    let row = row("68");
    let bytes = batch(some(1)).encode().repeat(int(&row["batches"]) as usize);
    refused(validate(&bytes, &LogConfig::default()), &row["error"]);
    let config = LogConfig::default();
    let result = validate_as(&bytes, &append(&config, AppendOrigin::Coordinator));
    assert_eq!(result, Err(InvalidBatch::SeveralBatches.into()), "for every origin");
}

#[test]
fn c03_r069_no_records() {
    let row = row("69");
    for name in row["codecs"].as_array().expect("codecs") {
        let codec = codec(text(name));
        for payload in [None, Some(Vec::new())] {
            let bytes = BatchSpec { codec, payload, ..batch(vec![]) }.encode();
            refused(validate(&bytes, &LogConfig::default()), &row["error"]);
        }
    }
}

fn with_header(row: &Value, pair: &Value, codec: Codec) -> Vec<u8> {
    let spec = BatchSpec {
        codec,
        last_offset_delta: Some(int(&pair[0]) as i32),
        records_count: Some(int(&pair[1]) as i32),
        ..batch(some(int(&row["records"])))
    };
    spec.encode()
}

#[test]
fn c03_r070_right_header() {
    let row = row("70");
    for pair in row["accepted"].as_array().expect("pairs") {
        for codec in Codec::ALL {
            accepted(validate(&with_header(row, pair, codec), &LogConfig::default()));
        }
    }
}

#[test]
fn c03_r071_range_is_not_count() {
    let row = row("71");
    for pair in row["refused"].as_array().expect("pairs") {
        for codec in Codec::ALL {
            refused(validate(&with_header(row, pair, codec), &LogConfig::default()), &row["error"]);
        }
    }
}

#[test]
fn c03_r072_count_is_not_records() {
    let row = row("72");
    for pair in row["refused"].as_array().expect("pairs") {
        for codec in Codec::ALL {
            let result = validate(&with_header(row, pair, codec), &LogConfig::default());
            let rejection = refused(result, &row["error"]);
            assert!(matches!(rejection, AppendRejection::Batch(InvalidBatch::Record(_))), "{rejection}");
        }
    }
}

#[test]
fn c03_r073_compressed_records_of_one_offset() {
    let row = row("73");
    let spec = BatchSpec { codec: codec(text(&row["codec"])), ..batch(records_of(&row["records"])) };
    refused(validate(&spec.encode(), &LogConfig::default()), &row["error"]);
}

#[test]
fn c03_r074_producer_without_sequence() {
    let row = row("74");
    let spec = |base_sequence| BatchSpec {
        producer_id: int(&row["producerId"]),
        producer_epoch: 0,
        base_sequence,
        ..batch(some(1))
    };
    let wrong = int(&row["baseSequence"]) as i32;
    refused(validate(&spec(wrong).encode(), &LogConfig::default()), &row["error"]);
    refused(validate(&spec(-1).encode(), &LogConfig::default()), &row["error"]);
    accepted(validate(&spec(0).encode(), &LogConfig::default()));
}

#[test]
fn c03_r075_control_batch() {
    let row = row("75");
    let bytes = BatchSpec::marker(0, 5, 1, true, 9).encode();
    let target = Compression::Gzip;
    assert_eq!(text(&row["topicCodec"]), target.name());
    let config = LogConfig { compression_type: CompressionType::Target(target), ..LogConfig::default() };
    refused(validate(&bytes, &config), &row["clientError"]);
    let (batch, stored) = accepted(validate_as(&bytes, &append(&config, AppendOrigin::Coordinator)));
    assert!(batch.rewritten.is_none());
    let (frame, _) = BatchFrame::parse(&stored).expect("a batch");
    assert_eq!(frame.compression().expect("a codec").name(), text(&row["storedCodec"]));
    assert!(frame.is_control() && frame.is_transactional());
}

#[test]
fn c03_r076_base_offset_of_a_client() {
    let row = row("76");
    let base_offset = int(&row["baseOffset"]);
    let bytes = BatchSpec { base_offset, ..batch(some(2)) }.encode();
    refused(validate(&bytes, &LogConfig::default()), &row["error"]);
    let config = LogConfig::default();
    let (_, stored) = accepted(validate_as(&bytes, &append(&config, AppendOrigin::Coordinator)));
    assert_eq!(read(&stored).iter().map(|record| record.0).collect::<Vec<_>>(), [100, 101]);
}

fn keyless(number: &str) {
    let row = row(number);
    let spec = BatchSpec { codec: codec(text(&row["codec"])), ..batch(records_of(&row["records"])) };
    let rejection = refused(validate(&spec.encode(), &compact()), &row["error"]);
    assert_eq!(failed(&rejection), ints(&row["failed"]));
    accepted(validate(&spec.encode(), &LogConfig::default()));
}

#[test]
fn c03_r077_first_record_without_key() {
    keyless("77");
}

#[test]
fn c03_r078_second_record_without_key() {
    keyless("78");
}

#[test]
fn c03_r079_keyed_records() {
    let spec = batch(records_of(&row("79")["records"]));
    assert!(accepted(validate(&spec.encode(), &compact())).0.rewritten.is_none());
}

fn too_far(row: &Value, config: &LogConfig, limit: i64) {
    for codec in Codec::ALL {
        let at = |time: i64| {
            let spec = BatchSpec { codec, base_timestamp: now() + time, ..batch(some(int(&row["records"]))) };
            validate(&spec.encode(), config)
        };
        let rejection = refused(at(int(&row["time"])), &row["error"]);
        assert_eq!(failed(&rejection), ints(&row["failed"]));
        accepted(at(limit));
        refused(at(limit + limit.signum()), &row["error"]);
    }
}

#[test]
fn c03_r080_too_old() {
    let row = row("80");
    let before = int(&row["beforeMaxMs"]);
    too_far(row, &LogConfig { message_timestamp_before_max_ms: before, ..LogConfig::default() }, -before);
}

#[test]
fn c03_r081_too_new() {
    let row = row("81");
    let after = int(&row["afterMaxMs"]);
    too_far(row, &LogConfig { message_timestamp_after_max_ms: after, ..LogConfig::default() }, after);
    assert_eq!(LogConfig::default().message_timestamp_after_max_ms, after, "the default");
}

#[test]
fn c03_r082_no_timestamp() {
    let base_timestamp = int(&row("82")["time"]);
    let config = LogConfig { message_timestamp_before_max_ms: 10, ..LogConfig::default() };
    let bytes = BatchSpec { base_timestamp, ..batch(some(1)) }.encode();
    assert_eq!(accepted(validate(&bytes, &config)).0.max_timestamp, base_timestamp);
}

#[test]
fn c03_r083_producer_says_append_time() {
    let row = row("83");
    let attributes = LOG_APPEND_TIME;
    let spec = BatchSpec { attributes, base_timestamp: int(&row["time"]), ..batch(some(2)) };
    let rejection = refused(validate(&spec.encode(), &LogConfig::default()), &row["error"]);
    assert_eq!(failed(&rejection), [0, 1]);
    // The same to a topic with append time, whatever the time in the batch.
    let config = LogConfig { message_timestamp_type: TimestampType::LogAppendTime, ..LogConfig::default() };
    for base_timestamp in [-1, now()] {
        let spec = BatchSpec { base_timestamp, ..spec.clone() };
        refused(validate(&spec.encode(), &config), &row["error"]);
    }
}

#[test]
fn c03_r084_several_errors() {
    let row = row("84");
    let spec = batch(records_of(&row["records"]));
    let rejection = refused(validate(&spec.encode(), &compact()), &row["error"]);
    assert_eq!(failed(&rejection), ints(&row["failed"]));
    let AppendRejection::Records { records, .. } = &rejection else { panic!("{rejection}") };
    let names: Vec<_> = records.iter().map(|record| record.why.error_name()).collect();
    let expected: Vec<_> = row["recordErrors"].as_array().expect("names").iter().map(text).collect();
    assert_eq!(names, expected);
    assert_eq!(rejection.error_code(), Some(32));
}

#[test]
fn c03_r085_append_time() {
    let row = row("85");
    let config = LogConfig { message_timestamp_type: TimestampType::LogAppendTime, ..LogConfig::default() };
    for codec in Codec::ALL {
        let spec = BatchSpec { codec, ..batch(records_of(&row["records"])) };
        let (batch, stored) = accepted(validate(&spec.encode(), &config));
        assert!(batch.rewritten.is_none());
        assert_eq!(batch.append_time_ms, Some(now() + int(&row["appendTime"])));
        assert_eq!(batch.max_timestamp, now() + int(&row["maxTime"]));
        let times: Vec<_> = read(&stored).iter().map(|record| record.1 - now()).collect();
        assert_eq!(times, ints(&row["times"]));
    }
}

#[test]
fn c03_r086_create_time() {
    let row = row("86");
    let config = LogConfig::default();
    let first_offset = Offset(int(&row["logEndOffset"]));
    // Right and wrong in the producer's header.
    for max_timestamp in [None, Some(now()), Some(-1), Some(i64::MAX)] {
        for codec in Codec::ALL {
            let spec = BatchSpec { codec, max_timestamp, ..batch(records_of(&row["records"])) };
            let append = LeaderAppend { first_offset, ..append(&config, AppendOrigin::Client) };
            let (batch, stored) = accepted(validate_as(&spec.encode(), &append));
            assert!(batch.rewritten.is_none());
            assert_eq!(batch.append_time_ms, None);
            assert_eq!(batch.max_timestamp, now() + int(&row["maxTime"]));
            let offsets: Vec<_> = read(&stored).iter().map(|record| record.0).collect();
            assert_eq!(offsets, ints(&row["offsets"]));
            let stamped = BatchSpec {
                base_offset: first_offset.0,
                partition_leader_epoch: append.leader_epoch,
                max_timestamp: None,
                ..spec
            };
            assert_eq!(stored, stamped.encode());
        }
    }
}

#[test]
fn c03_r087_another_level_of_the_same_codec() {
    let row = row("87");
    let plain: Vec<u8> = some(200).iter().flat_map(redrive_tests::logs::encode_record).collect();
    let level = |member: &str| int(&row[member]) as u32;
    let mut encoder =
        flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(level("producerLevel")));
    encoder.write_all(&plain).expect("in memory");
    let payload = encoder.finish().expect("in memory");
    let config = LogConfig {
        compression_type: CompressionType::Target(Compression::Gzip),
        compression_gzip_level: level("topicLevel") as i32,
        ..LogConfig::default()
    };
    let bytes = BatchSpec { codec: Codec::Gzip, payload: Some(payload), ..batch(some(200)) }.encode();
    let (batch, stored) = accepted(validate(&bytes, &config));
    assert!(batch.rewritten.is_none());
    // Base offset and epoch are outside the CRC.
    assert_eq!(stored[16..], bytes[16..]);
}

/// The level is used where a batch is packed anew: more effort makes fewer bytes.
#[test]
fn levels_of_recompression() {
    let records: Vec<_> = (0..2000)
        .map(|n| RecordSpec::new(n, format!("key-{}", n % 37).into_bytes(), Some(vec![n as u8; 20])))
        .collect();
    let bytes = batch(records).encode();
    let size = |config: LogConfig| accepted(validate(&bytes, &config)).1.len();
    let gzip = |compression_gzip_level| LogConfig {
        compression_type: CompressionType::Target(Compression::Gzip),
        compression_gzip_level,
        ..LogConfig::default()
    };
    assert!(size(gzip(9)) < size(gzip(1)));
    assert!(size(gzip(-1)) < size(gzip(1)));
    let zstd = |compression_zstd_level| LogConfig {
        compression_type: CompressionType::Target(Compression::Zstd),
        compression_zstd_level,
        ..LogConfig::default()
    };
    assert!(size(zstd(19)) < size(zstd(-100)));
}

#[test]
fn c03_r088_recompressed() {
    let row = row("88");
    let target = Compression::Lz4;
    assert_eq!(text(&row["target"]), target.name());
    let config = LogConfig { compression_type: CompressionType::Target(target), ..LogConfig::default() };
    let spec = BatchSpec {
        codec: codec(text(&row["source"])),
        attributes: TRANSACTIONAL,
        producer_id: int(&row["producerId"]),
        producer_epoch: int(&row["producerEpoch"]) as i16,
        base_sequence: int(&row["baseSequence"]) as i32,
        ..batch(some(5))
    };
    let (batch, stored) = accepted(validate(&spec.encode(), &config));
    assert!(batch.rewritten.is_some());
    let (frame, _) = BatchFrame::parse(&stored).expect("a batch");
    assert_eq!(frame.compression(), Ok(target));
    assert!(frame.is_transactional());
    assert_eq!(frame.producer_id().0, int(&row["producerId"]));
    assert_eq!(i64::from(frame.producer_epoch()), int(&row["producerEpoch"]));
    assert_eq!(i64::from(frame.base_sequence()), int(&row["baseSequence"]));
    assert_eq!(frame.partition_leader_epoch(), 3);
    let expected: Vec<_> = (100..105).map(|offset| (offset, now(), Some(vec![b'v']))).collect();
    assert_eq!(read(&stored), expected);
}

#[test]
fn c03_r089_too_large_when_recompressed() {
    let records = vec![RecordSpec::new(0, vec![b'k'], Some(vec![0; 10_000]))];
    let bytes = BatchSpec { codec: Codec::Zstd, ..batch(records) }.encode();
    let plain = CompressionType::Target(Compression::None);
    let config = |max_message_bytes, compression_type| LogConfig {
        max_message_bytes,
        compression_type,
        ..LogConfig::default()
    };
    assert!(bytes.len() < 200);
    accepted(validate(&bytes, &config(200, CompressionType::Producer)));
    refused(validate(&bytes, &config(200, plain)), &row("89")["error"]);
    let size = accepted(validate(&bytes, &config(20_000, plain))).1.len();
    accepted(validate(&bytes, &config(size as u32, plain)));
    refused(validate(&bytes, &config(size as u32 - 1, plain)), &row("89")["error"]);
}

#[test]
fn c03_r090_batch_above_max_message_bytes() {
    let bytes = batch(some(10)).encode();
    let config = |most: usize| LogConfig { max_message_bytes: most as u32, ..LogConfig::default() };
    refused(validate(&bytes, &config(bytes.len() - 1)), &row("90")["leaderError"]);
    accepted(validate(&bytes, &config(bytes.len())));
    assert_eq!(scan(&bytes, &config(bytes.len() - 1), 0, 0).expect("accepted").0, bytes.len());
}

#[test]
fn c03_r091_append_above_segment_bytes() {
    let row = row("91");
    let bytes = batch(some(10)).encode();
    let config = |most: usize| LogConfig { segment_bytes: most as u32, ..LogConfig::default() };
    refused(validate(&bytes, &config(bytes.len() - 1)), &row["leaderError"]);
    let rejection = scan(&bytes, &config(bytes.len() - 1), 0, 0).expect_err("refused");
    assert_eq!(rejection.error_name(), row["followerError"].as_str());
    accepted(validate(&bytes, &config(bytes.len())));
    scan(&bytes, &config(bytes.len()), 0, 0).expect("accepted");
    // The whole append counts, not its largest batch.
    let two = [bytes.clone(), BatchSpec { base_offset: 10, ..batch(some(10)) }.encode()].concat();
    assert!(scan(&two, &config(bytes.len()), 0, 0).is_err());
}

#[test]
fn c03_r092_broken_crc() {
    let row = row("92");
    let good = batch(some(2)).encode();
    for at in 21..good.len() {
        let mut bytes = good.clone();
        bytes[at] ^= 4;
        refused(validate(&bytes, &LogConfig::default()), &row["error"]);
        let rejection = scan(&bytes, &LogConfig::default(), 0, 0).expect_err("refused");
        assert_eq!(rejection.error_name(), row["error"].as_str());
        assert_eq!(rejection.error_code(), Some(2));
    }
}

#[test]
fn c03_r093_half_a_batch_behind_a_whole_one() {
    let config = LogConfig::default();
    let first = batch(some(2)).encode();
    let second = BatchSpec { base_offset: 2, ..batch(some(2)) }.encode();
    for cut in 0..second.len() {
        let bytes = [&first[..], &second[..cut]].concat();
        let (valid, batches, _) = scan(&bytes, &config, 0, 0).expect("accepted");
        assert_eq!((valid, batches.len()), (first.len(), 1));
        let (taken, _) = accepted(validate(&bytes, &config));
        assert_eq!(taken.source_size, first.len());
    }
    let whole = [first, second].concat();
    assert_eq!(scan(&whole, &config, 0, 0).expect("accepted").0, whole.len());
}

#[test]
fn c03_r094_leader_epoch() {
    let config = LogConfig::default();
    let leader_epoch = int(&row("94")["leaderEpoch"]) as i32;
    for codec in Codec::ALL {
        for epoch in [-1, 0, 99] {
            let spec = BatchSpec { codec, partition_leader_epoch: epoch, ..batch(some(3)) };
            let append = LeaderAppend { leader_epoch, ..append(&config, AppendOrigin::Client) };
            let (_, stored) = accepted(validate_as(&spec.encode(), &append));
            let (frame, _) = BatchFrame::parse(&stored).expect("a batch");
            assert_eq!(frame.partition_leader_epoch(), leader_epoch);
        }
    }
}

#[test]
fn c03_r095_no_value_and_no_timestamp() {
    let spec = BatchSpec { base_timestamp: -1, ..batch(vec![RecordSpec::new(0, vec![b'k'], None)]) };
    let config = LogConfig::default();
    let (_, stored) = accepted(validate(&spec.encode(), &config));
    assert_eq!(read(&stored), [(100, -1, None)]);
    let lz4 = CompressionType::Target(Compression::Lz4);
    let (_, stored) = accepted(validate(&spec.encode(), &LogConfig { compression_type: lz4, ..config }));
    assert_eq!(read(&stored), [(100, -1, None)]);
}

#[test]
fn c03_r096_random_and_truncated_bytes() {
    let row = row("96");
    let config = LogConfig::default();
    let good = batch(some(3)).encode();
    for cut in 0..good.len() {
        assert_eq!(validate(&good[..cut], &config), Ok(None), "{cut}");
        assert_eq!(scan(&good[..cut], &config, 0, 0), Ok((0, vec![], false)), "{cut}");
    }
    let (mut corrupt, mut incomplete) = (0, 0);
    let mut rng = Rng::new(96);
    for _ in 0..20_000 {
        let mut bytes: Vec<u8> = (0..rng.below(200)).map(|_| rng.draw() as u8).collect();
        if bytes.len() > 16 && rng.once_in(2) {
            bytes[8..10].fill(0);
            bytes[16] = rng.below(4) as u8;
        }
        // A follower's check of epochs would come first.
        for result in [validate(&bytes, &config).map(|_| ()), scan(&bytes, &config, 0, i32::MAX).map(|_| ())]
        {
            match result {
                Ok(()) => incomplete += 1,
                Err(rejection) => {
                    // What a client's base offset or the size says comes before the CRC.
                    let name = rejection.error_name();
                    let is_early = matches!(rejection, AppendRejection::Batch(InvalidBatch::BaseOffset(_)));
                    assert!(is_early || name == row["error"].as_str(), "{rejection}");
                    corrupt += 1;
                }
            }
        }
    }
    assert!(corrupt > 5_000 && incomplete > 1_000, "{corrupt}, {incomplete}");
    // Twelve bytes show a bad length, though not the magic byte.
    for bytes in [&[0; 12][..], &[0; 16]] {
        refused(validate(bytes, &config), &row["error"]);
    }
    assert_eq!(validate(&[0; 11], &config), Ok(None));
}
