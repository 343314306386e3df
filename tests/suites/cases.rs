//! Numbered fault cases and behaviour rows about the load of a transaction log.
//!
//! Inputs and right results are data, in `fixtures/cases`; here they are built and compared. Each input is loaded
//! by every way of reading, once as after a clean stop and once as after an unclean one, and the result must be the
//! same. FC-13 is in `replay_memory`, which measures the allocator.

mod judge;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use judge::{PARTITION, ROOT, Root, run_one};
use redrive::Error;
use redrive::error::Reason;
use redrive::io::{Entry, Fault, MemoryStorage, Storage, StorageFile};
use redrive::replay::{IoChoice, PartitionOutcome, Replay, TransactionEntry, UnknownKind};
use redrive::transaction_log::partition_for;
use redrive::types::Offset;
use redrive_tests::logs::{
    BatchSpec, Codec, RecordSpec, Rng, SegmentFile, TopicPartitions, TransactionValue, encode_key,
};
use redrive_tests::vectors::{hex, to_hex};
use serde_json::{Value, json};

const STATES: [&str; 8] = [
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
];

fn data(file: &str) -> Value {
    let path = redrive_tests::corpus::fixtures().join("cases").join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The variants of a case.
fn variants(number: &str) -> Vec<Value> {
    let all = data("replay.json");
    all[number].as_array().unwrap_or_else(|| panic!("{number} has no data")).clone()
}

fn value_of(record: &Value) -> Option<Vec<u8>> {
    if record["tombstone"] == true {
        return None;
    }
    if let Some(bytes) = record["valueHex"].as_str() {
        return Some(hex(bytes));
    }
    let state = record["state"].as_str().unwrap_or_else(|| panic!("{record} has no state"));
    let status = STATES.iter().position(|name| *name == state).expect("a state") as i8;
    let partitions = record["partitions"].as_object().map(|topics| {
        let topics = topics.iter().map(|(topic, ids)| TopicPartitions {
            topic: topic.clone().into_bytes(),
            partition_ids: ids
                .as_array()
                .expect("ids")
                .iter()
                .map(|id| id.as_i64().expect("an id") as i32)
                .collect(),
            tags: Vec::new(),
        });
        topics.collect()
    });
    let tags = record["tags"].as_object().map(|tags| {
        let tags =
            tags.iter().map(|(tag, bytes)| (tag.parse().expect("a tag"), hex(bytes.as_str().expect("hex"))));
        tags.collect()
    });
    let value = TransactionValue {
        version: record["version"].as_i64().unwrap_or(1) as i16,
        producer_id: record["producerId"].as_i64().unwrap_or(1000),
        status,
        partitions,
        tags: tags.unwrap_or_default(),
        ..TransactionValue::default()
    };
    Some(value.encode())
}

fn key_of(record: &Value) -> Option<Vec<u8>> {
    match (&record["id"], record.get("keyHex")) {
        (Value::String(id), None) => Some(encode_key(0, id.as_bytes())),
        (Value::Null, Some(Value::String(bytes))) => Some(hex(bytes)),
        (Value::Null, Some(Value::Null)) => None,
        _ => panic!("{record} has no key"),
    }
}

fn segments(variant: &Value) -> Vec<SegmentFile> {
    let mut next = 0;
    let segment = |segment: &Value| {
        let base_offset = segment["base"].as_i64().expect("a base offset");
        next = base_offset.max(next);
        let mut bytes = Vec::new();
        for batch in segment["batches"].as_array().expect("batches") {
            let base = batch["base"].as_i64().unwrap_or(next);
            let mut spec = match batch["marker"].as_str() {
                Some(kind) => BatchSpec::marker(base, 7, 0, kind == "COMMIT", 0),
                None => BatchSpec { base_offset: base, ..BatchSpec::default() },
            };
            for (delta, record) in batch["records"].as_array().into_iter().flatten().enumerate() {
                spec.records.push(RecordSpec {
                    offset_delta: delta as i32,
                    key: key_of(record),
                    value: value_of(record),
                    ..RecordSpec::default()
                });
            }
            if let Some(last) = batch["last"].as_i64() {
                spec.last_offset_delta = Some((last - base) as i32);
            }
            spec.attributes |= batch["codecId"].as_i64().unwrap_or(0) as i16;
            next = spec.last_offset() + 1;
            bytes.extend(spec.encode());
        }
        SegmentFile { base_offset, bytes }
    };
    variant["segments"].as_array().expect("segments").iter().map(segment).collect()
}

/// The members of an entry that data may ask for.
fn shown(entry: &TransactionEntry) -> Value {
    let metadata = entry.metadata().expect("a loaded value decodes");
    let partitions: Option<BTreeMap<_, _>> = metadata.partitions.map(|topics| {
        topics.into_iter().map(|topic| (topic.topic_name().into_owned(), topic.partition_ids)).collect()
    });
    let tags: BTreeMap<_, _> = metadata
        .unknown_tagged_fields
        .iter()
        .map(|field| (field.tag.to_string(), to_hex(&field.data)))
        .collect();
    json!({
        "state": metadata.state.name(), "offset": entry.offset().0, "partitions": partitions,
        "producerId": metadata.producer_id.0, "previousProducerId": metadata.previous_producer_id.0,
        "nextProducerId": metadata.next_producer_id.0, "unknownTags": tags,
        "clientTransactionVersion": metadata.client_transaction_version,
    })
}

#[track_caller]
fn assert_outcome(outcome: &PartitionOutcome, expect: &Value, what: &str) {
    if let Some(offset) = expect["refused"].as_i64() {
        let Some(Error::Corrupt(corruption)) = outcome.error() else { panic!("{what}: not refused") };
        assert_eq!(corruption.offset.0, offset, "{what}");
        let reason = corruption.reason.to_string();
        assert!(reason.contains(expect["reason"].as_str().expect("a reason")), "{what}: {reason}");
        assert!(outcome.map().is_none(), "{what}: a part of the map");
        return;
    }
    let (map, stats) = outcome.result.as_ref().unwrap_or_else(|error| panic!("{what}: {error}"));
    let expected = expect["map"].as_object().expect("a map");
    assert_eq!(map.len(), expected.len(), "{what}: ids");
    for (id, members) in expected {
        let entry = map.get(id).expect("a look-up").unwrap_or_else(|| panic!("{what}: no {id}"));
        let shown = shown(&entry);
        for (member, value) in members.as_object().expect("an entry") {
            assert_eq!(shown[member], *value, "{what}: {member} of {id}");
        }
    }
    let count = |member: &str| expect[member].as_u64().unwrap_or(0);
    assert_eq!(stats.log_end_offset.0, expect["end"].as_i64().expect("an end"), "{what}");
    assert_eq!(stats.empty_batches, count("emptyBatches"), "{what}: empty batches");
    assert_eq!(stats.control_batches, count("controlBatches"), "{what}: control batches");
    assert_eq!(stats.skipped.records, count("skippedRecords"), "{what}: skipped records");
    assert_eq!(stats.skipped.batches, count("skippedBatches"), "{what}: skipped batches");
    let unknown = stats.unknown.iter().map(|record| match record.kind {
        UnknownKind::Key(version) => json!({ "offset": record.offset.0, "keyVersion": version }),
        UnknownKind::Value(version) => json!({ "offset": record.offset.0, "valueVersion": version }),
    });
    let unknown: Vec<Value> = unknown.collect();
    assert_eq!(json!(unknown), *expect.get("unknown").unwrap_or(&json!([])), "{what}: unknown records");
    assert_eq!(stats.unknown_records, unknown.len() as u64, "{what}");
    assert!(stats.tail.is_none(), "{what}: {:?}", stats.tail);
}

/// Loads every variant of a case in every way.
#[track_caller]
fn check(number: &str) {
    for variant in variants(number) {
        let name = variant["name"].as_str().expect("a name");
        let root = Root::of(&segments(&variant));
        for root in [root.clone(), root.clone().clean(), root.recovery_point(1)] {
            for (io, buffer_bytes) in judge::ways() {
                let replay = root.replay().io(io).chunk_bytes(buffer_bytes);
                let what = format!("{number}, {name}, {io:?}, buffer of {buffer_bytes}");
                let outcome = run_one(&replay);
                assert_outcome(&outcome, &variant["expect"], &what);
                if let Some(stats) = outcome.stats() {
                    assert!(stats.elapsed < Duration::from_secs(1), "{what}: {:?}", stats.elapsed);
                }
                // A lenient load gives the same where nothing is wrong.
                let expect = variant.get("lenient").unwrap_or(&variant["expect"]);
                assert_outcome(&run_one(&replay.lenient(true)), expect, &format!("{what}, lenient"));
            }
        }
    }
}

/// The map as text, for a comparison to the byte.
fn dump(outcome: &PartitionOutcome) -> String {
    let map = outcome.map().unwrap_or_else(|| panic!("{:?}", outcome.error()));
    let lines =
        map.sorted().expect("the log is still there").into_iter().map(|entry| {
            format!("{} {} {}\n", to_hex(entry.stored_id()), entry.offset(), to_hex(entry.value()))
        });
    lines.collect()
}

#[test]
fn fc_01_gap_before_the_log_end() {
    check("FC-01");
}

#[test]
fn fc_02_no_usable_record_at_the_end() {
    check("FC-02");
}

/// The log of FC-03, which is also T-207's: a large batch between two small ones.
fn log_with_large_batch() -> (SegmentFile, usize) {
    let value =
        |status, partitions| TransactionValue { status, partitions, ..TransactionValue::default() }.encode();
    let partitions =
        TopicPartitions { topic: b"out".to_vec(), partition_ids: (0..3000).collect(), tags: vec![] };
    let key = |id: &str| encode_key(0, id.as_bytes());
    let batches = [
        BatchSpec::single(0, key("txn-a"), Some(value(0, None))).encode(),
        BatchSpec::single(1, key("txn-a"), Some(value(1, Some(vec![partitions])))).encode(),
        BatchSpec::single(2, key("txn-b"), Some(value(0, None))).encode(),
    ];
    (SegmentFile { base_offset: 0, bytes: batches.concat() }, batches[1].len())
}

#[test]
fn fc_03_batch_larger_than_the_buffer() {
    let (segment, large) = log_with_large_batch();
    assert!((12_000..13_000).contains(&large), "{large} bytes");
    let root = Root::of(&[segment]);
    let reference = run_one(&root.replay().io(IoChoice::Pread).chunk_bytes(5 << 20));
    for buffer_bytes in [1, 61, 1 << 10, large - 1, large, large + 1] {
        let outcome = run_one(&root.replay().io(IoChoice::Pread).chunk_bytes(buffer_bytes));
        assert_eq!(dump(&outcome), dump(&reference), "buffer of {buffer_bytes}");
        let map = outcome.map().expect("loaded");
        let metadata = map.get("txn-a").expect("a look-up").expect("txn-a").metadata().expect("decoded");
        let partitions = metadata.partitions.expect("partitions");
        assert_eq!((metadata.state.name(), partitions[0].partition_ids.len()), ("Ongoing", 3000));
        assert_eq!(map.get("txn-b").expect("a look-up").expect("txn-b").state().name(), "Empty");
    }
}

#[test]
fn fc_04_unknown_key_version_in_a_batch() {
    check("FC-04");
}

#[test]
fn fc_05_tagged_fields() {
    check("FC-05");
}

#[test]
fn fc_06_unreadable_value() {
    check("FC-06");
    // Other partitions load normally.
    for variant in variants("FC-06").iter().filter(|variant| variant.get("lenient").is_some()) {
        let good = segments(&variants("T-202")[0]);
        let root = Root::of(&segments(variant)).partition("__transaction_state-1", &good);
        let loaded = root.replay().run().expect("a load");
        assert!(loaded.partitions[0].error().is_some());
        assert_outcome(&loaded.partitions[1], &variants("T-202")[0]["expect"], "the other partition");
        assert!(!loaded.is_complete());
        // An id that is not found may lie in the refused partition; one that is found is found.
        assert!(matches!(loaded.get("txn-a"), Err(Error::Incomplete { .. })));
        assert!(loaded.get("x").expect("found").is_some());
    }
}

#[test]
fn fc_07_record_without_a_key() {
    check("FC-07");
}

/// A storage in which every opening and read takes a random while.
#[derive(Debug)]
struct Slow {
    inner: MemoryStorage,
    state: AtomicU64,
}

impl Slow {
    fn wait(&self) {
        let seed = self.state.fetch_add(1, Ordering::Relaxed);
        match Rng::new(seed).below(4) {
            0 => {}
            1 => thread::yield_now(),
            micros => thread::sleep(Duration::from_micros(micros * 20)),
        }
    }
}

impl Storage for Slow {
    fn list(&self, directory: &Path) -> io::Result<Vec<Entry>> {
        self.inner.list(directory)
    }

    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        self.inner.resolve(path)
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn StorageFile>> {
        self.wait();
        self.inner.open(path)
    }

    fn is_locked(&self, path: &Path) -> io::Result<bool> {
        self.inner.is_locked(path)
    }
}

#[test]
fn fc_08_ids_spread_over_work_units() {
    check("FC-08");
    let variant = &variants("FC-08")[0];
    let segments = segments(variant);
    let mut root = Root::default();
    for partition in 0..8 {
        root = root.partition(&format!("__transaction_state-{partition}"), &segments);
    }
    let storage = Arc::new(Slow { inner: root.in_memory(), state: AtomicU64::new(1) });
    let mut dumps = BTreeSet::new();
    for repetition in 0..200 {
        for workers in [1, 2, 4, 8] {
            let replay = Replay::open(storage.clone(), [ROOT]).expect("a log directory");
            let replay = replay.threads(NonZero::new(workers).expect("workers"));
            let io = if repetition % 2 == 0 { IoChoice::Mmap } else { IoChoice::Pread };
            let loaded = replay.io(io).run().expect("a load");
            assert_eq!((loaded.partitions.len(), loaded.threads), (8, workers));
            for outcome in &loaded.partitions {
                dumps.insert(dump(outcome));
                assert_outcome(outcome, &variant["expect"], &format!("{workers} workers, {repetition}"));
            }
        }
    }
    assert_eq!(dumps.len(), 1, "one map, to the byte");
}

#[test]
fn fc_14_any_codec_or_batch_shape() {
    check("FC-14");
    let record = |n: i64, delta: i32| {
        let value = TransactionValue { producer_id: n, ..TransactionValue::default() };
        let id = format!("txn-{}", n % 37);
        RecordSpec::new(delta, encode_key(0, id.as_bytes()), (n % 11 != 0).then(|| value.encode()))
    };
    let log = |per_batch: i64, codec: &dyn Fn(i64) -> Codec| {
        let batches = (0..500 / per_batch).map(|batch| {
            let base_offset = batch * per_batch;
            let records = (0..per_batch).map(|n| record(base_offset + n, n as i32)).collect();
            BatchSpec { base_offset, codec: codec(batch), records, ..BatchSpec::default() }.encode()
        });
        SegmentFile { base_offset: 0, bytes: batches.collect::<Vec<_>>().concat() }
    };
    let logs = [
        log(1, &|_| Codec::None),
        log(100, &|_| Codec::None),
        log(20, &|_| Codec::Gzip),
        log(20, &|_| Codec::Snappy),
        log(20, &|_| Codec::Lz4),
        log(20, &|_| Codec::Zstd),
        log(5, &|batch| Codec::ALL[batch as usize % Codec::ALL.len()]),
    ];
    let mut dumps = BTreeSet::new();
    for log in logs {
        for (io, buffer_bytes) in judge::ways() {
            let outcome =
                run_one(&Root::of(std::slice::from_ref(&log)).replay().io(io).chunk_bytes(buffer_bytes));
            assert_eq!(outcome.stats().expect("loaded").records, 500);
            dumps.insert(dump(&outcome));
        }
    }
    assert_eq!(dumps.len(), 1, "seven identical maps");
    assert!(dumps.first().is_some_and(|dump| dump.lines().count() == 34), "{dumps:?}");
}

/// Partitions of ids by the number of partitions.
#[track_caller]
fn check_partitions(number: &str) {
    let data = data("partitions.json");
    let by_count = data[number].as_object().expect("counts");
    assert_eq!(by_count.len(), 2);
    for (count, ids) in by_count {
        let count = count.parse().expect("a number of partitions");
        for (id, partition) in ids.as_object().expect("ids") {
            assert_eq!(json!(partition_for(id.as_bytes(), count)), *partition, "{id} of {count}");
        }
    }
}

#[test]
fn fc_15_id_to_partition() {
    check_partitions("FC-15");
}

#[test]
fn c02_t004_id_to_partition() {
    check_partitions("T-004");
}

#[test]
fn c02_t201_tombstone() {
    check("T-201");
}

#[test]
fn c02_t202_record_after_tombstone() {
    check("T-202");
}

#[test]
fn c02_t203_unknown_key_versions() {
    check("T-203");
}

#[test]
fn c02_t204_unknown_value_version() {
    check("T-204");
}

#[test]
fn c02_t205_nothing_to_read() {
    check("T-205");
}

#[test]
fn c02_t206_empty_batch_before_a_segment() {
    check("T-206");
}

#[test]
fn c02_t207_buffer_grows() {
    let (segment, large) = log_with_large_batch();
    let outcome = run_one(&Root::of(&[segment]).replay().io(IoChoice::Pread).chunk_bytes(large / 12));
    let stats = outcome.stats().expect("loaded");
    assert_eq!(
        (stats.records, stats.log_end_offset, outcome.map().expect("loaded").len()),
        (3, Offset(3), 2)
    );
}

/// A buffer of any size, so that each batch crosses its end at every byte: every record is read once.
#[test]
fn c02_t208_batch_across_the_read_limit() {
    let batches = (0..7).map(|n| {
        let value = TransactionValue { producer_id: n, ..TransactionValue::default() };
        BatchSpec::single(n, encode_key(0, b"x"), Some(value.encode())).encode()
    });
    let bytes: Vec<u8> = batches.flatten().collect();
    let root = Root::of(&[SegmentFile { base_offset: 0, bytes: bytes.clone() }]);
    for buffer_bytes in 1..=bytes.len() + 1 {
        let outcome = run_one(&root.replay().io(IoChoice::Pread).chunk_bytes(buffer_bytes));
        let stats = outcome.stats().expect("loaded");
        let counts = (stats.records, stats.batches, stats.bytes, stats.log_end_offset);
        assert_eq!(counts, (7, 7, bytes.len() as u64, Offset(7)), "buffer of {buffer_bytes}");
        let entry = outcome.map().expect("loaded").get("x").expect("a look-up").expect("x");
        assert_eq!((entry.offset(), entry.metadata().expect("decoded").producer_id.0), (Offset(6), 6));
    }
}

/// An error or a damaged batch in the middle: no part of a map, the other partitions load, and a later load of the
/// same directory succeeds once the fault is gone.
#[test]
fn c02_t220_failure_in_the_middle() {
    let good = segments(&variants("FC-01")[0]);
    let root = Root::of(&good).partition("__transaction_state-1", &good);
    let path = format!("{ROOT}/{PARTITION}/{}", good[0].file_name());
    let middle = good[0].bytes.len() as u64 / 2;
    let faults = [
        Some(Fault::ReadAt(middle)),
        Some(Fault::Open(io::ErrorKind::PermissionDenied)),
        Some(Fault::ShrinksWhenOpened(middle)),
        Some(Fault::ShrinksWhenRead(middle)),
        None,
    ];
    for fault in faults {
        for io in [IoChoice::Pread, IoChoice::Mmap] {
            // A mapping cannot report a sector that fails: see IoChoice::Mmap.
            if io == IoChoice::Mmap && matches!(fault, Some(Fault::ReadAt(_))) {
                continue;
            }
            let storage = root.in_memory();
            match fault {
                Some(fault) => storage.inject(path.clone(), fault),
                None => {
                    let mut damaged = good[0].bytes.clone();
                    damaged[middle as usize] ^= 1;
                    storage.write(path.clone(), damaged);
                }
            }
            let what = format!("{fault:?}, {io:?}");
            let loaded = judge::open(storage).io(io).chunk_bytes(64).run().expect("a load");
            let outcome = &loaded.partitions[0];
            assert!(outcome.map().is_none() && outcome.stats().is_none(), "{what}");
            match (fault, outcome.error().expect("refused")) {
                (Some(Fault::ReadAt(_) | Fault::Open(_)), Error::Io { path: at, .. }) => {
                    assert!(at.ends_with(good[0].file_name()), "{what}");
                }
                (
                    Some(Fault::ShrinksWhenOpened(_) | Fault::ShrinksWhenRead(_)),
                    Error::Corrupt(corruption),
                ) => {
                    assert!(matches!(corruption.reason, Reason::Shrunk { .. }), "{what}: {corruption}");
                }
                (None, Error::Corrupt(corruption)) => {
                    assert!(matches!(corruption.reason, Reason::Crc(_)), "{what}: {corruption}");
                }
                (_, other) => panic!("{what}: {other}"),
            }
            assert_outcome(&loaded.partitions[1], &variants("FC-01")[0]["expect"], &what);
            assert!(
                loaded.pending_completion().all(|entry| entry.expect("still there").offset() == Offset(9)),
                "{what}"
            );
        }
    }
    assert_outcome(
        &root.replay().run().expect("a load").partitions[0],
        &variants("FC-01")[0]["expect"],
        "again",
    );
}

#[test]
fn c02_t223_control_batches() {
    check("T-223");
}

#[test]
fn c02_t224_null_partitions() {
    check("T-224");
}

/// The number that a test's name begins with.
fn number_of(name: &str) -> Option<String> {
    let digits = |rest: &str, count: usize| {
        let digits = rest.get(..count)?;
        let ends = rest[count..].is_empty() || rest[count..].starts_with('_');
        (digits.bytes().all(|byte| byte.is_ascii_digit()) && ends).then(|| digits.to_owned())
    };
    if let Some(rest) = name.strip_prefix("fc_") {
        return Some(format!("FC-{}", digits(rest, 2)?));
    }
    if let Some(rest) = name.strip_prefix("c03_r") {
        return Some(format!("R-{}", digits(rest, 3)?));
    }
    Some(format!("T-{}", digits(name.strip_prefix("c02_t")?, 3)?))
}

/// Every numbered case has a test or a reason why it has none yet, and never both.
#[test]
fn every_number_has_a_test_or_a_reason() {
    let suites = Path::new(env!("CARGO_MANIFEST_DIR")).join("suites");
    let mut built = BTreeSet::new();
    for entry in std::fs::read_dir(suites).expect("the suites") {
        let text = std::fs::read_to_string(entry.expect("an entry").path()).expect("a source file");
        let tests = text.split("#[test]\nfn ").skip(1);
        let numbers = tests.filter_map(|rest| number_of(rest.split('(').next()?));
        for number in numbers {
            // A case may be shown where it is decided, and again where the whole log obeys it.
            built.insert(number);
        }
    }
    let numbers = data("numbers.json");
    let list = |value: &Value| -> Vec<String> {
        let strings = value.as_array().expect("a list").iter();
        strings.map(|number| number.as_str().expect("a number").to_owned()).collect()
    };
    let chapters: BTreeSet<String> =
        ["FC", "T", "R"].iter().flat_map(|chapter| list(&numbers["chapters"][chapter])).collect();
    assert_eq!(chapters.len(), 90 + 251 + 326);
    let mut reasons = BTreeSet::new();
    for group in numbers["notBuiltYet"].as_array().expect("groups") {
        assert!(group["why"].as_str().is_some_and(|why| !why.is_empty()));
        for number in list(&group["cases"]) {
            assert!(chapters.contains(&number), "{number} is in no chapter");
            assert!(!built.contains(&number), "{number} has a test: take it off the list");
            assert!(reasons.insert(number.clone()), "{number} is on the list twice");
        }
    }
    assert!(built.is_subset(&chapters), "{:?}", built.difference(&chapters).collect::<Vec<_>>());
    let open: Vec<_> = chapters.iter().filter(|n| !built.contains(*n) && !reasons.contains(*n)).collect();
    assert!(open.is_empty(), "neither a test nor a reason: {open:?}");
    for part in numbers["builtInPart"].as_array().expect("a list") {
        let number = part["case"].as_str().expect("a number");
        assert!(built.contains(number) && part["without"].is_string(), "{number}");
    }
}
