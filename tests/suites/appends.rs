//! What the suites about appends share: their data, and batches of the independent writer through the validator.
#![allow(dead_code, reason = "each test binary uses its part of this file")]

use std::sync::OnceLock;

use redrive::batch::{BatchFrame, Decompressor, Limits};
use redrive::log::LogConfig;
use redrive::log::validate::{
    AppendOrigin, AppendRejection, FollowerAppend, LeaderAppend, LogValidator, StoredBatch, ValidatedBatch,
};
use redrive::types::Offset;
use redrive_tests::logs::{BatchSpec, Codec, RecordSpec};
use serde_json::Value;

static DATA: OnceLock<Value> = OnceLock::new();

fn data() -> &'static Value {
    let parse = || serde_json::from_str(include_str!("../fixtures/cases/validate.json")).expect("JSON");
    DATA.get_or_init(parse)
}

pub(crate) fn row(number: &str) -> &'static Value {
    data().get(number).unwrap_or_else(|| panic!("no row {number}"))
}

pub(crate) fn int(value: &Value) -> i64 {
    value.as_i64().unwrap_or_else(|| panic!("{value} is no number"))
}

pub(crate) fn ints(value: &Value) -> Vec<i64> {
    value.as_array().unwrap_or_else(|| panic!("{value} is no list")).iter().map(int).collect()
}

pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text"))
}

pub(crate) fn now() -> i64 {
    int(row("now"))
}

pub(crate) fn codec(name: &str) -> Codec {
    match name {
        "none" => Codec::None,
        "gzip" => Codec::Gzip,
        "snappy" => Codec::Snappy,
        "lz4" => Codec::Lz4,
        "zstd" => Codec::Zstd,
        other => panic!("{other}"),
    }
}

/// A producer's batch at the time of the data.
pub(crate) fn batch(records: Vec<RecordSpec>) -> BatchSpec {
    BatchSpec { partition_leader_epoch: -1, base_timestamp: now(), records, ..BatchSpec::default() }
}

pub(crate) fn records_of(rows: &Value) -> Vec<RecordSpec> {
    let bytes = |value: &Value| value.as_str().map(|text| text.as_bytes().to_vec());
    let record = |row: &Value| RecordSpec {
        timestamp_delta: int(&row[0]),
        offset_delta: int(&row[1]) as i32,
        key: bytes(&row[2]),
        value: bytes(&row[3]),
        ..RecordSpec::default()
    };
    rows.as_array().expect("records").iter().map(record).collect()
}

/// As many small keyed records, at the batch's time.
pub(crate) fn some(count: i64) -> Vec<RecordSpec> {
    (0..count).map(|n| RecordSpec::new(n as i32, vec![b'k'], Some(vec![b'v']))).collect()
}

pub(crate) fn append(config: &LogConfig, origin: AppendOrigin) -> LeaderAppend<'_> {
    LeaderAppend { config, origin, first_offset: Offset(100), leader_epoch: 3, now_ms: now() }
}

/// A batch that was taken, with the bytes to write.
pub(crate) type Validated = Result<Option<(ValidatedBatch, Vec<u8>)>, AppendRejection>;

pub(crate) fn validate_as(bytes: &[u8], append: &LeaderAppend<'_>) -> Validated {
    let mut buffer = bytes.to_vec();
    let result = LogValidator::default().validate(&mut buffer, append);
    if !matches!(result, Ok(Some(_))) {
        assert_eq!(buffer, bytes, "an append that is not taken changes nothing");
    }
    Ok(result?.map(|batch| {
        let bytes = batch.bytes(&buffer).to_vec();
        (batch, bytes)
    }))
}

pub(crate) fn validate(bytes: &[u8], config: &LogConfig) -> Validated {
    validate_as(bytes, &append(config, AppendOrigin::Client))
}

#[track_caller]
pub(crate) fn accepted(result: Validated) -> (ValidatedBatch, Vec<u8>) {
    let (batch, bytes) = result.expect("accepted").expect("a batch");
    let (frame, rest) = BatchFrame::parse(&bytes).expect("a header in range");
    assert!(rest.is_empty());
    frame.verify().expect("a right CRC");
    assert_eq!((batch.first_offset, batch.last_offset), (frame.base_offset(), frame.last_offset()));
    assert_eq!(batch.max_timestamp, frame.max_timestamp());
    (batch, bytes)
}

#[track_caller]
pub(crate) fn refused(result: Validated, error: &Value) -> AppendRejection {
    let rejection = result.expect_err("refused");
    assert_eq!(rejection.error_name(), error.as_str(), "{rejection}");
    rejection
}

/// Indexes of the records that were refused.
pub(crate) fn failed(rejection: &AppendRejection) -> Vec<i64> {
    match rejection {
        AppendRejection::Records { records, failed, .. } => {
            assert_eq!(records.len(), *failed as usize);
            records.iter().map(|record| record.index.into()).collect()
        }
        other => panic!("{other}"),
    }
}

/// Offsets, times and values as they are read back.
pub(crate) fn read(bytes: &[u8]) -> Vec<(i64, i64, Option<Vec<u8>>)> {
    let (frame, _) = BatchFrame::parse(bytes).expect("a batch");
    let mut decompressor = Decompressor::new();
    let batch = frame.verify().expect("a right CRC");
    let records = batch.records(&mut decompressor, &Limits::default()).expect("records");
    records
        .map(|record| {
            let record = record.expect("a record");
            (record.offset.0, record.timestamp, record.value.map(<[u8]>::to_vec))
        })
        .collect()
}
pub(crate) fn compact() -> LogConfig {
    LogConfig { compact: true, ..LogConfig::default() }
}
pub(crate) fn scan(
    bytes: &[u8],
    config: &LogConfig,
    log_end_offset: i64,
    leader_epoch: i32,
) -> Result<(usize, Vec<StoredBatch>, bool), AppendRejection> {
    let append = FollowerAppend { config, log_end_offset: Offset(log_end_offset), leader_epoch };
    let mut batches = vec![];
    let scan = append.scan(bytes, &mut batches)?;
    assert_eq!(scan.valid_bytes, batches.iter().map(|batch| batch.size).sum::<usize>());
    Ok((scan.valid_bytes, batches, scan.skipped_newer_epoch))
}
