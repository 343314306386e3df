//! A leader's validator against a slow twin on random appends: the twin knows what each batch was made from, applies the
//! rules one by one to that, and writes the batch that must come out with the independent writer.

use redrive::batch::{Compression, TimestampType};
use redrive::log::LogConfig;
use redrive::log::config::CompressionType;
use redrive::log::validate::{AppendOrigin, AppendRejection, LeaderAppend, LogValidator};
use redrive::types::Offset;
use redrive_tests::logs::{
    BatchSpec, CONTROL, Codec, DELETE_HORIZON, LOG_APPEND_TIME, RecordSpec, Rng, TRANSACTIONAL, encode_record,
};
use redrive_tests::naive;

const NOW: i64 = 1_700_000_000_000;
const NAMES: [&str; 5] = ["none", "gzip", "snappy", "lz4", "zstd"];

/// What must become of an append.
#[derive(Debug)]
enum Verdict {
    Nothing,
    /// Kafka's name of the error, and the records that are to blame.
    Refused(&'static str, Vec<i32>),
    /// These bytes, where the batch was.
    InPlace(Vec<u8>),
    /// A new batch of this description.
    Rewritten(BatchSpec),
}

struct Twin<'a> {
    config: &'a LogConfig,
    is_client: bool,
    first_offset: i64,
    leader_epoch: i32,
}

impl Twin<'_> {
    fn judge(&self, specs: &[BatchSpec]) -> Verdict {
        let config = self.config;
        for spec in specs {
            if self.is_client && spec.base_offset != 0 {
                return Verdict::Refused("INVALID_RECORD", vec![]);
            }
            if spec.encode().len() > config.max_message_bytes as usize {
                return Verdict::Refused("MESSAGE_TOO_LARGE", vec![]);
            }
            if spec.crc_flip != 0 {
                return Verdict::Refused("CORRUPT_MESSAGE", vec![]);
            }
        }
        let spec = match specs {
            [] => return Verdict::Nothing,
            [spec] => spec,
            _ => return Verdict::Refused("INVALID_RECORD", vec![]),
        };
        let records = spec.records.len() as i32;
        let count = spec.records_count.unwrap_or(records);
        let last_delta = i64::from(
            spec.last_offset_delta.unwrap_or_else(|| spec.records.last().map_or(0, |r| r.offset_delta)),
        );
        let is_control = spec.attributes & CONTROL != 0;
        let is_bad_header = count < 1
            || last_delta + 1 != i64::from(count)
            || count != records
            || self.is_client && (is_control || spec.producer_id >= 0 && spec.base_sequence < 0)
            || spec.base_timestamp < -1
            || spec.base_sequence < -1;
        if is_bad_header {
            return Verdict::Refused("INVALID_RECORD", vec![]);
        }

        let says_append_time = spec.attributes & LOG_APPEND_TIME != 0;
        let header_max = spec.max_timestamp.unwrap_or_else(|| {
            spec.base_timestamp + spec.records.iter().map(|r| r.timestamp_delta).max().expect("records")
        });
        let time = |record: &RecordSpec| {
            if says_append_time { header_max } else { spec.base_timestamp + record.timestamp_delta }
        };
        let source = spec.codec.id();
        let target = match config.compression_type {
            CompressionType::Target(codec) if !is_control => {
                NAMES.iter().position(|name| *name == codec.name()).expect("a codec") as i16
            }
            _ => source,
        };
        let append_time = config.message_timestamp_type == TimestampType::LogAppendTime;
        let (mut failed, mut is_about_time) = (vec![], false);
        for (index, record) in (0..).zip(&spec.records) {
            let time = time(record);
            let too_far = i128::from(NOW) - i128::from(time) > config.message_timestamp_before_max_ms.into()
                || i128::from(time) - i128::from(NOW) > config.message_timestamp_after_max_ms.into();
            let no_key = config.compact && record.key.is_none();
            let ranged = !append_time && time != -1;
            let bad_time = if ranged { too_far } else { says_append_time } || time < -1;
            let bad_delta = record.offset_delta != index && target == source && (source == 0 || is_control);
            if no_key || bad_time || bad_delta {
                failed.push(index);
                is_about_time |= bad_time && !no_key;
            }
        }
        if !failed.is_empty() {
            return Verdict::Refused(
                if is_about_time { "INVALID_TIMESTAMP" } else { "INVALID_RECORD" },
                failed,
            );
        }

        let max = spec.records.iter().map(time).max().expect("records").max(-1);
        let max = if append_time { NOW } else { max };
        let type_bit = if append_time { LOG_APPEND_TIME } else { 0 };
        let is_consecutive = (0..).zip(&spec.records).all(|(index, record)| record.offset_delta == index);
        let stamped = BatchSpec {
            base_offset: self.first_offset,
            partition_leader_epoch: self.leader_epoch,
            max_timestamp: Some(max),
            ..spec.clone()
        };
        if target == source && is_consecutive {
            let is_changed = says_append_time != append_time || header_max != max;
            let attributes = if is_changed {
                spec.attributes & (TRANSACTIONAL | CONTROL | DELETE_HORIZON) | type_bit
            } else {
                spec.attributes
            };
            let bytes = BatchSpec { attributes, ..stamped }.encode();
            return match bytes.len() > config.segment_bytes as usize {
                true => Verdict::Refused("RECORD_LIST_TOO_LARGE", vec![]),
                false => Verdict::InPlace(bytes),
            };
        }
        let base_timestamp = time(&spec.records[0]);
        let records = (0..).zip(&spec.records).map(|(index, record)| RecordSpec {
            attributes: 0,
            offset_delta: index,
            timestamp_delta: time(record) - base_timestamp,
            ..record.clone()
        });
        Verdict::Rewritten(BatchSpec {
            attributes: spec.attributes & TRANSACTIONAL | type_bit,
            codec: [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd][target as usize],
            base_timestamp,
            last_offset_delta: None,
            records_count: None,
            records: records.collect(),
            ..stamped
        })
    }
}

fn random_spec(rng: &mut Rng) -> BatchSpec {
    let count = if rng.once_in(20) { 0 } else { 1 + rng.below(6) as i32 };
    let mut records: Vec<_> = (0..count)
        .map(|n| {
            let key = (!rng.once_in(12)).then(|| vec![b'k'; rng.below(5) as usize]);
            let value = (!rng.once_in(5)).then(|| vec![n as u8; rng.below(80) as usize]);
            let headers = (0..rng.below(5).saturating_sub(2))
                .map(|n| (vec![b'h'; n as usize], (!rng.once_in(3)).then(|| vec![1, 2, 3])))
                .collect();
            let timestamp_delta = match rng.below(24) {
                0 => 5_000_000,
                1 => -5_000_000,
                2 => -NOW - 7,
                _ => rng.below(2_000) as i64 - 1_000,
            };
            let attributes = if rng.once_in(9) { 0x55 } else { 0 };
            RecordSpec { attributes, timestamp_delta, offset_delta: n, key, value, headers }
        })
        .collect();
    if rng.once_in(8) && count > 1 {
        // The last delta decides the header's range: it stays.
        records[0].offset_delta = rng.below(9) as i32;
    }
    let mut attributes = 0;
    for (bit, times) in
        [(LOG_APPEND_TIME, 12), (TRANSACTIONAL, 3), (CONTROL, 12), (DELETE_HORIZON, 20), (0x80, 15)]
    {
        attributes |= if rng.once_in(times) { bit } else { 0 };
    }
    let has_producer = rng.once_in(2);
    BatchSpec {
        base_offset: if rng.once_in(20) { 3 } else { 0 },
        partition_leader_epoch: rng.below(3) as i32 - 1,
        attributes,
        codec: *rng.pick(&Codec::ALL),
        last_offset_delta: rng.once_in(25).then(|| rng.below(8) as i32 - 2),
        base_timestamp: if rng.once_in(10) {
            -1
        } else if rng.once_in(60) {
            -2
        } else {
            NOW
        },
        max_timestamp: match rng.below(8) {
            0 => Some(NOW + rng.below(5_000) as i64),
            1 => Some(-1),
            _ => None,
        },
        producer_id: if has_producer { 77 } else { -1 },
        producer_epoch: if has_producer { 4 } else { -1 },
        base_sequence: if has_producer { rng.below(9) as i32 - 1 } else { -1 },
        records_count: rng.once_in(25).then(|| rng.below(8) as i32 - 2),
        records,
        crc_flip: if rng.once_in(30) { 1 << rng.below(32) } else { 0 },
        ..BatchSpec::default()
    }
}

fn random_config(rng: &mut Rng) -> LogConfig {
    let targets = Compression::ALL.map(CompressionType::Target);
    let types = [TimestampType::CreateTime, TimestampType::LogAppendTime];
    LogConfig {
        max_message_bytes: *rng.pick(&[1_000_000, 1_000_000, 1_000_000, 200]),
        segment_bytes: *rng.pick(&[1_000_000, 1_000_000, 1_000_000, 150]),
        compact: rng.once_in(3),
        compression_type: if rng.once_in(2) { CompressionType::Producer } else { *rng.pick(&targets) },
        message_timestamp_type: *rng.pick(&types),
        message_timestamp_before_max_ms: *rng.pick(&[i64::MAX, 2_000_000, 500]),
        message_timestamp_after_max_ms: *rng.pick(&[i64::MAX, 3_600_000, 500]),
        ..LogConfig::default()
    }
}

#[test]
fn as_the_slow_twin_decides() {
    let rounds = if cfg!(debug_assertions) { 60_000 } else { 400_000 };
    let mut rng = Rng::new(0x10_6a11);
    let mut validator = LogValidator::default();
    let mut seen = std::collections::BTreeMap::<&str, u32>::new();
    for round in 0..rounds {
        let config = random_config(&mut rng);
        let batches = if rng.once_in(40) { 2 } else { 1 };
        let mut specs: Vec<_> = (0..batches).map(|_| random_spec(&mut rng)).collect();
        let mut bytes: Vec<u8> = specs.iter().flat_map(BatchSpec::encode).collect();
        if rng.once_in(20) {
            let last = specs.pop().expect("one").encode().len();
            bytes.truncate(bytes.len() - 1 - rng.below(last as u64 - 1) as usize);
        }
        let origin = if rng.once_in(3) { AppendOrigin::Coordinator } else { AppendOrigin::Client };
        let twin = Twin {
            config: &config,
            is_client: origin == AppendOrigin::Client,
            first_offset: rng.below(1 << 40) as i64,
            leader_epoch: rng.below(100) as i32,
        };
        let append = LeaderAppend {
            config: &config,
            origin,
            first_offset: Offset(twin.first_offset),
            leader_epoch: twin.leader_epoch,
            now_ms: NOW,
        };
        let expected = twin.judge(&specs);
        let mut buffer = bytes.clone();
        let found = validator.validate(&mut buffer, &append);
        let what =
            || format!("round {round}: {specs:?}, {config:?}, {origin:?}: {expected:?}, found {found:?}");
        let outcome = match (&expected, &found) {
            (Verdict::Nothing, Ok(None)) => {
                assert_eq!(buffer, bytes);
                "nothing"
            }
            (Verdict::Refused(name, indexes), Err(rejection)) => {
                assert_eq!(rejection.error_name(), Some(*name), "{}", what());
                let listed: Vec<i32> = match rejection {
                    AppendRejection::Records { records, .. } => records.iter().map(|r| r.index).collect(),
                    _ => vec![],
                };
                assert_eq!(listed, *indexes, "{}", what());
                assert_eq!(buffer, bytes, "{}", what());
                name
            }
            (Verdict::InPlace(stamped), Ok(Some(batch))) => {
                assert!(batch.rewritten.is_none(), "{}", what());
                assert!(batch.bytes(&buffer) == stamped, "{}", what());
                "in place"
            }
            // What a codec makes of the records is its own affair, so the size limits behind it are looked at here.
            (Verdict::Rewritten(spec), Ok(Some(batch))) => {
                let stored = batch.rewritten.as_deref().unwrap_or_else(|| panic!("{}", what()));
                let most = config.max_message_bytes.min(config.segment_bytes) as usize;
                assert!(stored.len() <= most, "{}", what());
                let plain: Vec<u8> = spec.records.iter().flat_map(encode_record).collect();
                if spec.codec == Codec::None {
                    assert!(stored == spec.encode(), "{}", what());
                }
                let read = naive::next_batch(stored, stored.len() as u64).expect("a batch").expect("whole");
                assert_eq!(read.decompress(1 << 20).expect("records"), plain, "{}", what());
                // Apart from length and CRC the header is the one of the twin's batch.
                let twins = spec.encode();
                for place in [0..8, 12..17, 21..61] {
                    assert_eq!(stored[place.clone()], twins[place], "{}", what());
                }
                "rewritten"
            }
            (Verdict::Rewritten(_), Err(AppendRejection::BatchTooLarge { size, most })) => {
                assert!(*size > *most as usize);
                "rewritten, too large"
            }
            (Verdict::Rewritten(_), Err(AppendRejection::AppendTooLarge { size, most })) => {
                assert!(*size > *most as usize);
                "rewritten, too large for a segment"
            }
            _ => panic!("{}", what()),
        };
        *seen.entry(outcome).or_default() += 1;
    }
    println!("{seen:?}");
    assert_eq!(seen.len(), 10, "{seen:?}");
    assert!(seen.values().all(|times| *times > rounds / 1000), "{seen:?}");
}
