//! The slow twin against the logs of real brokers, and the corpus against its own checksums.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use redrive_tests::corpus::{self, Case, MapEntry, TRANSACTION_STATE};
use redrive_tests::naive::{self, NaiveEntry, NaiveMap, NaiveOptions, Reason};

/// The one case whose transaction log ends within a batch.
const TORN: &str = "unclean-torn-txn-state";

/// Loads the transaction log of a case; every partition must load.
fn load(case: &Case, options: &NaiveOptions) -> BTreeMap<i32, NaiveMap> {
    let partitions =
        naive::load_root(&case.data_dirs[0], TRANSACTION_STATE, options).expect("a readable root");
    let loaded = partitions.into_iter().map(|(partition, result)| match result {
        Ok(map) => (partition, map),
        Err(error) => panic!("{}: {error}", case.name),
    });
    loaded.collect()
}

fn options(case: &Case) -> NaiveOptions {
    NaiveOptions { readable_prefix: case.name == TORN, ..NaiveOptions::default() }
}

/// An entry in the words of the oracle.
fn as_oracle(partition: i32, id: &str, entry: &NaiveEntry) -> MapEntry {
    MapEntry {
        id: id.to_owned(),
        partition,
        offset: entry.offset,
        value_version: entry.value_version,
        producer_id: entry.producer_id,
        previous_producer_id: entry.previous_producer_id,
        next_producer_id: entry.next_producer_id,
        producer_epoch: entry.producer_epoch,
        next_producer_epoch: entry.next_producer_epoch,
        timeout_ms: entry.transaction_timeout_ms,
        status: entry.status,
        state: entry.state.to_owned(),
        partitions: entry.partitions.clone(),
        last_update_ms: entry.last_update_timestamp_ms,
        start_ms: entry.start_timestamp_ms,
        client_transaction_version: entry.client_transaction_version,
    }
}

fn as_oracle_lines(loaded: &BTreeMap<i32, NaiveMap>) -> Vec<MapEntry> {
    let mut lines: Vec<_> = loaded
        .iter()
        .flat_map(|(partition, map)| map.entries.iter().map(|(id, entry)| as_oracle(*partition, id, entry)))
        .collect();
    lines.sort_by_key(|line| (line.id.encode_utf16().collect::<Vec<_>>(), line.partition));
    lines
}

#[test]
fn map_of_every_case_equals_kafkas() {
    let mut with_map = 0;
    let mut ids = 0;
    for case in corpus::cases() {
        let Some(expected) = case.map() else { continue };
        let loaded = as_oracle_lines(&load(&case, &options(&case)));
        assert_eq!(loaded.len(), expected.len(), "{}", case.name);
        for (loaded, expected) in loaded.iter().zip(&expected) {
            assert_eq!(loaded, expected, "{}", case.name);
        }
        with_map += 1;
        ids += expected.len();
    }
    assert_eq!((with_map, ids), (23, 6660), "cases with a map and ids in them");
}

#[test]
fn counts_of_every_case_equal_kafkas() {
    let mut compared = 0;
    for case in corpus::cases() {
        let expected = &case.info["transactionLog"];
        if expected.is_null() {
            continue;
        }
        let loaded = load(&case, &options(&case));
        let sum = |count: fn(&NaiveMap) -> u64| -> Option<u64> { Some(loaded.values().map(count).sum()) };
        assert_eq!(sum(|map| map.segments), expected["segments"].as_u64(), "{}: segments", case.name);
        assert_eq!(sum(|map| map.batches), expected["batches"].as_u64(), "{}: batches", case.name);
        assert_eq!(sum(|map| map.empty_batches), expected["emptyBatches"].as_u64(), "{}: empty", case.name);
        assert_eq!(sum(|map| map.records), expected["records"].as_u64(), "{}: records", case.name);
        assert_eq!(
            sum(|map| map.tombstones),
            expected["tombstoneRecords"].as_u64(),
            "{}: tombstones",
            case.name
        );
        assert_eq!(
            sum(|map| map.control_batches + map.unknown_keys + map.unknown_values),
            Some(0),
            "{}",
            case.name
        );
        let gaps = (sum(|map| map.offset_gaps), expected["offsetGaps"].as_u64());
        if expected["batches"] == expected["records"] {
            assert_eq!(gaps.0, gaps.1, "{}: gaps", case.name);
        } else {
            // Kafka's side counts those between the records of one batch, too.
            assert!(gaps.0 <= gaps.1, "{}: {gaps:?}", case.name);
        }
        compared += 1;
    }
    assert_eq!(compared, 23);
}

#[test]
fn a_small_buffer_gives_the_same_map() {
    for name in ["txn-state-mixed", "txn-state-expired-0-before", TORN] {
        let case = corpus::case(name);
        let whole = load(&case, &options(&case));
        for read_bytes in [1, 100, 4096] {
            assert_eq!(
                load(&case, &NaiveOptions { read_bytes, ..options(&case) }),
                whole,
                "{name}, {read_bytes}"
            );
        }
    }
}

#[test]
fn a_torn_tail_is_refused_or_reported() {
    let case = corpus::case(TORN);
    let strict = naive::load_root(&case.data_dirs[0], TRANSACTION_STATE, &NaiveOptions::default());
    let error = strict.expect("a readable root").remove(&0).expect("partition 0").expect_err("a torn tail");
    assert!(matches!(error.reason, Reason::CutShort { bytes: 1.. }), "{error}");

    let tail = load(&case, &options(&case)).remove(&0).expect("partition 0").tail;
    assert_eq!(tail, Some(error.clone()));
    let length = fs::metadata(&error.path).expect("the segment").len();
    assert!(error.position < length, "{error}");
}

/// Every file of the corpus is there unchanged, and no other: what a test wrote by mistake would show up here.
#[test]
fn corpus_equals_its_checksums() {
    let plain = Path::new(corpus::PLAIN_CASE).join("data");
    let root = corpus::case(corpus::PLAIN_CASE).oracle.join("../..");
    let place = |name: &Path| match name.strip_prefix(&plain) {
        Ok(rest) => corpus::plain_data_dir().join(rest),
        Err(_) => root.join(name),
    };
    let list = corpus::read_text(&corpus::fixtures().join("corpus.sha256")).expect("the list of checksums");
    let mut listed = BTreeSet::new();
    for line in list.lines() {
        let (checksum, name) = line.split_once("  ").expect("a checksum and a name");
        assert_eq!(corpus::sha256_of(&place(Path::new(name))), checksum, "{name}");
        listed.insert(PathBuf::from(name));
    }
    let mut found = BTreeSet::new();
    files_below(&root, Path::new(""), &mut found);
    files_below(&corpus::plain_data_dir(), &plain, &mut found);
    found.remove(Path::new(".archive-sha256"));
    assert!(
        found == listed,
        "not on one side: {:?}",
        found.symmetric_difference(&listed).collect::<Vec<_>>()
    );
}

/// The description names the checksums of the packed files.
#[test]
fn corpus_md_names_the_archive() {
    let description = fs::read_to_string(corpus::fixtures().join("CORPUS.md")).expect("CORPUS.md");
    for file in ["corpus.tar.zst", "vectors.json"] {
        let row = format!("| `{file}` | `{}` |", corpus::sha256_of(&corpus::fixtures().join(file)));
        assert!(description.contains(&row), "CORPUS.md lacks: {row}");
    }
}

#[test]
fn a_copy_can_be_written_to() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let case = corpus::case("txn-state-prepared");
    let copies = case.copy_to(folder.path()).expect("the copy");
    assert_eq!(copies, [folder.path().join("data"), folder.path().join("data-broker-2")]);
    for (copy, original) in copies.iter().zip(&case.data_dirs) {
        let (mut copied, mut there) = (BTreeSet::new(), BTreeSet::new());
        files_below(copy, Path::new(""), &mut copied);
        files_below(original, Path::new(""), &mut there);
        assert!(!there.is_empty());
        assert_eq!(copied, there);
        for name in there {
            assert_eq!(
                fs::read(copy.join(&name)).expect("a copy"),
                fs::read(original.join(&name)).expect("a file")
            );
            fs::write(copy.join(&name), b"changed").expect("copies are writable");
        }
    }
}

fn files_below(dir: &Path, name: &Path, files: &mut BTreeSet<PathBuf>) {
    for entry in fs::read_dir(dir).expect("a readable folder") {
        let entry = entry.expect("a readable folder");
        let name = name.join(entry.file_name());
        if entry.path().is_dir() {
            files_below(&entry.path(), &name, files);
        } else {
            files.insert(name);
        }
    }
}
