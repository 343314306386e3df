//! The slow twin on random logs: what was written comes back, and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use redrive_tests::logs::{
    self, BatchSpec, Codec, Counts, Latest, RandomLog, RecordSpec, Rng, SegmentFile, Shape, TransactionValue,
    encode_key, random_log, write_partition,
};
use redrive_tests::naive::{self, NaiveEntry, NaiveMap, NaiveOptions, Reason, load_partition};

const SEEDS: u64 = 300;

fn load(segments: &[SegmentFile], options: &NaiveOptions) -> Result<NaiveMap, naive::NaiveError> {
    let dir = tempfile::tempdir().expect("a temporary folder");
    write_partition(dir.path(), segments).expect("written");
    load_partition(dir.path(), options)
}

/// The entry that a loader must make of a value, from the description of the value.
fn entry(latest: &Latest) -> NaiveEntry {
    let Latest { offset, value } = latest;
    let long =
        |tag| value.tag(tag).map_or(-1, |field| i64::from_be_bytes(field.try_into().expect("8 bytes")));
    let short = |tag, default| {
        value.tag(tag).map_or(default, |field| i16::from_be_bytes(field.try_into().expect("2 bytes")))
    };
    // A coordinator does not look at what an Empty transaction lists.
    let partitions = value.partitions.as_ref().filter(|_| value.status != 0).map(|topics| {
        let topics = topics.iter().map(|topic| {
            let name = String::from_utf8(topic.topic.clone()).expect("topics are drawn from ASCII");
            (name, topic.partition_ids.iter().copied().collect::<BTreeSet<_>>())
        });
        topics.collect::<BTreeMap<_, _>>()
    });
    NaiveEntry {
        offset: *offset,
        value_version: value.version,
        producer_id: value.producer_id,
        producer_epoch: value.producer_epoch,
        transaction_timeout_ms: value.transaction_timeout_ms,
        status: value.status,
        state: naive::state_name(value.status).expect("a state"),
        partitions,
        last_update_timestamp_ms: value.last_update_timestamp_ms,
        start_timestamp_ms: value.start_timestamp_ms,
        previous_producer_id: long(0),
        next_producer_id: long(1),
        client_transaction_version: short(2, 0),
        next_producer_epoch: short(3, -1),
    }
}

/// What a loader must make of a random log.
fn expected(log: &RandomLog) -> NaiveMap {
    let Counts { bytes, batches, empty_batches, control_batches, offset_gaps, records, .. } = log.counts;
    let Counts { tombstones, unknown_keys, unknown_values, .. } = log.counts;
    NaiveMap {
        entries: log.latest.iter().map(|(id, latest)| (id.clone(), entry(latest))).collect(),
        segments: log.segments.len() as u64,
        bytes,
        batches,
        empty_batches,
        control_batches,
        offset_gaps,
        records,
        tombstones,
        unknown_keys,
        unknown_values,
        log_end_offset: log.log_end_offset,
        tail: None,
    }
}

#[test]
fn random_logs_load_as_they_were_written() {
    let mut met = NaiveMap::default();
    let (mut empty_segments, mut ids) = (0, BTreeSet::new());
    for seed in 0..SEEDS {
        let log = random_log(seed, &Shape::default());
        let read_bytes = [64, 1000, 5 << 20][seed as usize % 3];
        let loaded = load(&log.segments, &NaiveOptions { read_bytes, ..NaiveOptions::default() });
        let loaded = loaded.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(loaded == expected(&log), "seed {seed} with a buffer of {read_bytes} bytes");
        met.empty_batches += loaded.empty_batches;
        met.control_batches += loaded.control_batches;
        met.offset_gaps += loaded.offset_gaps;
        met.tombstones += loaded.tombstones;
        met.unknown_keys += loaded.unknown_keys;
        met.unknown_values += loaded.unknown_values;
        empty_segments += log.segments.iter().filter(|segment| segment.bytes.is_empty()).count();
        ids.extend(loaded.entries.into_keys());
    }
    let kinds =
        [met.empty_batches, met.control_batches, met.tombstones, met.unknown_keys, met.unknown_values];
    assert!(kinds.iter().all(|count| *count > SEEDS) && empty_segments > 10, "{kinds:?}, {empty_segments}");
    assert!(ids.contains("") && ids.contains("\u{fffd}") && ids.iter().any(|id| id.len() == 32_767));
}

#[test]
fn logs_like_a_brokers_load_as_they_were_written() {
    for seed in 0..50 {
        let log = random_log(seed, &Shape::broker_like());
        assert_eq!(load(&log.segments, &NaiveOptions::default()), Ok(expected(&log)), "seed {seed}");
        assert_eq!(log.counts.records, log.log_end_offset as u64, "seed {seed}: no gaps");
    }
}

#[test]
fn a_seed_gives_one_log() {
    let shape = Shape { codecs: false, ..Shape::default() };
    let (first, second, other) = (random_log(7, &shape), random_log(7, &shape), random_log(8, &shape));
    assert_eq!(first.segments, second.segments);
    assert_eq!(first.latest, second.latest);
    assert_ne!(first.segments, other.segments);
}

#[test]
fn every_codec_comes_back() {
    let records: Vec<_> =
        (0..3000).map(|n| RecordSpec::new(n, encode_key(0, b"id"), Some(value(n.into())))).collect();
    for codec in Codec::ALL {
        let batch = BatchSpec { codec, records: records.clone(), ..BatchSpec::default() };
        let map = load(&[segment(0, &[batch])], &NaiveOptions::default()).expect("loads");
        assert_eq!(map.records, 3000, "{codec:?}");
        assert_eq!((map.entries["id"].offset, map.entries["id"].producer_id), (2999, 2999), "{codec:?}");
    }
}

fn value(producer_id: i64) -> Vec<u8> {
    TransactionValue { producer_id, ..TransactionValue::default() }.encode()
}

fn put(offset: i64, id: &str) -> BatchSpec {
    BatchSpec::single(offset, encode_key(0, id.as_bytes()), Some(value(offset)))
}

fn segment(base_offset: i64, batches: &[BatchSpec]) -> SegmentFile {
    SegmentFile { base_offset, bytes: batches.iter().flat_map(BatchSpec::encode).collect() }
}

/// Error of a log, with where it is.
fn refused(segments: &[SegmentFile]) -> (String, u64, Option<i64>, Reason) {
    let error = load(segments, &NaiveOptions::default()).expect_err("refused");
    let name = error.path.file_name().expect("a file").to_string_lossy().into_owned();
    (name, error.position, error.offset, error.reason)
}

#[test]
fn damage_is_refused_with_its_place() {
    let first = "00000000000000000000.log".to_owned();
    let second = "00000000000000000001.log".to_owned();
    let at = put(0, "a").encode().len() as u64;

    let back = refused(&[segment(0, &[put(0, "a"), put(1, "a"), put(1, "b")])]);
    assert_eq!(back, (first.clone(), 2 * at, Some(1), Reason::OffsetGoesBack { expected_at_least: 2 }));
    let across = refused(&[segment(0, &[put(0, "a"), put(5, "a")]), segment(1, &[put(1, "b")])]);
    assert_eq!(across, (second.clone(), 0, Some(1), Reason::OffsetGoesBack { expected_at_least: 6 }));
    let below_base = refused(&[segment(1, &[put(0, "a")])]);
    assert_eq!(below_base, (second, 0, Some(0), Reason::OffsetGoesBack { expected_at_least: 1 }));

    let null_key = BatchSpec { records: vec![RecordSpec::default()], ..BatchSpec::default() };
    let (_, _, offset, reason) = refused(&[segment(0, &[null_key])]);
    assert!(offset == Some(0) && matches!(reason, Reason::Key(_)), "{reason:?}");
    let bad_value = BatchSpec::single(0, encode_key(0, b"a"), Some(vec![0, 0, 1]));
    let (_, _, offset, reason) = refused(&[segment(0, &[bad_value])]);
    assert!(offset == Some(0) && matches!(reason, Reason::Value(_)), "{reason:?}");
    let outside = BatchSpec {
        last_offset_delta: Some(0),
        records: vec![RecordSpec::new(1, encode_key(0, b"a"), None)],
        ..BatchSpec::default()
    };
    let (_, _, _, reason) = refused(&[segment(0, &[outside])]);
    assert!(matches!(reason, Reason::Record(_)), "{reason:?}");

    let flipped = BatchSpec { crc_flip: 1, ..put(1, "b") };
    let (name, position, offset, reason) = refused(&[segment(0, &[put(0, "a"), flipped, put(2, "c")])]);
    assert_eq!((name, position, offset), (first, at, None));
    assert!(matches!(reason, Reason::Crc { stored, computed } if stored ^ computed == 1), "{reason:?}");
}

#[test]
fn a_readable_prefix_is_taken_from_the_last_segment_only() {
    let options = NaiveOptions { readable_prefix: true, ..NaiveOptions::default() };
    let whole = segment(0, &[put(0, "a"), put(1, "b")]);
    for cut in 1..whole.bytes.len() {
        let torn = SegmentFile { bytes: whole.bytes[..cut].to_vec(), ..whole.clone() };
        let map = load(std::slice::from_ref(&torn), &options).expect("a prefix");
        let batches = u64::from(cut >= whole.bytes.len() / 2);
        assert_eq!((map.batches, map.entries.len() as u64), (batches, batches), "cut at {cut}");
        assert_eq!(map.tail.is_some(), cut != whole.bytes.len() / 2, "cut at {cut}");
        if map.tail.is_some() {
            assert!(load(&[torn, segment(2, &[put(2, "c")])], &options).is_err(), "cut at {cut}");
        }
    }
    let zeros = SegmentFile { bytes: [&whole.bytes[..], &[0; 64]].concat(), ..whole.clone() };
    let tail = load(&[zeros], &options).expect("a prefix").tail.expect("a tail");
    assert_eq!(tail.position, whole.bytes.len() as u64);
    // What a right CRC covers is no tail.
    let bad_value = BatchSpec::single(2, encode_key(0, b"a"), Some(vec![0]));
    assert!(load(&[segment(0, &[put(0, "a"), bad_value])], &options).is_err());
}

#[test]
fn lying_lengths_reserve_nothing() {
    // The largest length that a header can state, at the end of a short file.
    let mut bytes = put(0, "a").encode();
    bytes[8..12].copy_from_slice(&i32::MAX.to_be_bytes());
    let (_, _, _, reason) = refused(&[SegmentFile { base_offset: 0, bytes }]);
    assert!(matches!(reason, Reason::CutShort { .. }), "{reason:?}");
    // A snappy block that claims 4 GiB.
    let payload = Some([&logs::unsigned_varint(u32::MAX)[..], &[0; 40]].concat());
    let snappy =
        BatchSpec { codec: Codec::SnappyBlock, payload, records_count: Some(1), ..BatchSpec::default() };
    let (_, _, _, reason) = refused(&[segment(0, &[snappy])]);
    assert!(matches!(reason, Reason::Codec(_)), "{reason:?}");
    // Megabytes of zeros in a few bytes, beyond the limit.
    let bomb = RecordSpec::new(0, encode_key(0, b"a"), Some(vec![0; 1 << 20]));
    for codec in Codec::ALL.into_iter().skip(1) {
        let batch = BatchSpec { codec, records: vec![bomb.clone()], ..BatchSpec::default() };
        let options = NaiveOptions { decompressed_bytes_max: 1 << 16, ..NaiveOptions::default() };
        let error = load(&[segment(0, &[batch])], &options).expect_err("too large");
        assert!(matches!(error.reason, Reason::Codec(_)), "{codec:?}: {error}");
    }
}

/// A flipped bit under the CRC is always found. With the CRC made right again anything may come out but a panic.
#[test]
fn flipped_bits_are_found() {
    let mut loaded = 0;
    for seed in 0..SEEDS {
        let mut rng = Rng::new(seed);
        let log = random_log(seed, &Shape { segments_max: 1, ..Shape::default() });
        let file = &log.segments[0];
        let mut batches = Vec::new();
        let mut rest = file.bytes.as_slice();
        while let Some(batch) = naive::next_batch(rest, rest.len() as u64).expect("a valid batch") {
            let size = batch.bytes.len();
            batches.push((file.bytes.len() - rest.len(), size));
            rest = &rest[size..];
        }
        if batches.is_empty() {
            continue;
        }
        let (start, size) = *rng.pick(&batches);
        let mut damaged = file.clone();
        damaged.bytes[start + 17 + rng.below(size as u64 - 17) as usize] ^= 1 << rng.below(8);
        let error = load(&[damaged.clone()], &NaiveOptions::default()).expect_err("damaged");
        assert!(matches!(error.reason, Reason::Crc { .. }), "seed {seed}: {error}");
        assert_eq!(error.position, start as u64, "seed {seed}: {error}");
        logs::reseal(&mut damaged.bytes[start..start + size]);
        loaded += u32::from(load(&[damaged], &NaiveOptions::default()).is_ok());
    }
    assert!(loaded > 10, "{loaded} loaded with another content");
}

#[test]
fn a_root_gives_its_partitions() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let write = |name: &str, batches: &[BatchSpec]| {
        write_partition(&root.path().join(name), &[segment(0, batches)]).expect("written");
    };
    let topic = "__transaction_state";
    write("__transaction_state-0", &[put(0, "a")]);
    write("__transaction_state-12", &[put(0, "a"), put(1, "b"), put(2, "c")]);
    write("__transaction_state-3", &[BatchSpec { crc_flip: 1, ..put(0, "a") }]);
    for other in [
        "-1.0123456789abcdef0123456789abcdef-delete",
        "-2.0123456789abcdef0123456789abcdef-stray",
        "-007",
        "--1",
        "-+5",
    ] {
        write(&format!("{topic}{other}"), &[put(0, "a")]);
    }
    write("orders-0", &[put(0, "a")]);
    fs::write(root.path().join("log-start-offset-checkpoint"), "0\n1\n__transaction_state 12 2\n")
        .expect("written");
    let loaded = naive::load_root(root.path(), topic, &NaiveOptions::default()).expect("a readable root");
    assert_eq!(loaded.keys().copied().collect::<Vec<_>>(), [0, 3, 12]);
    assert!(loaded[&3].is_err());
    let ids = |partition: i32| {
        let mut ids: Vec<_> = loaded[&partition].as_ref().expect("loaded").entries.keys().cloned().collect();
        ids.sort();
        ids
    };
    assert_eq!((ids(0), ids(12)), (vec!["a".to_owned()], vec!["c".to_owned()]));
    assert!(naive::load_root(Path::new("/nowhere at all"), topic, &NaiveOptions::default()).is_err());
}
