//! Opening folders that are not as a clean stop leaves them, against what Kafka's own classes and brokers made of the
//! same files.

mod log_place;

use std::collections::BTreeMap;
use std::fs;
use std::num::NonZero;
use std::path::Path;
use std::sync::Arc;

use log_place::{NOW, Place, batches_from, memory, producers, state};
use redrive::Error;
use redrive::batch::BatchFrame;
use redrive::io::FileSystem;
use redrive::log::LogConfig;
use redrive::log_dir::{LogRoot, OpenOptions};
use redrive::types::{Offset, TopicPartition};
use redrive_tests::corpus;
use redrive_tests::vectors::{self, hex};
use serde_json::Value;

const EPOCHS: &str = "leader-epoch-checkpoint";

fn config() -> LogConfig {
    LogConfig {
        segment_index_bytes: 1000,
        index_interval_bytes: 0,
        producer_id_expiration_ms: i64::from(i32::MAX),
        ..LogConfig::default()
    }
}

fn put_files(place: &Place, files: &Value) {
    for (name, bytes) in files.as_object().expect("files") {
        place.put(name, &hex(bytes.as_str().expect("hex")));
    }
}

/// The files without an epoch file that says nothing: Kafka leaves an empty one, we leave none.
fn told(mut files: BTreeMap<String, Vec<u8>>) -> BTreeMap<String, Vec<u8>> {
    files.retain(|name, bytes| name != EPOCHS || !(bytes.is_empty() || bytes == b"0\n0\n"));
    files
}

/// What of `recovery_cases` is decided otherwise, by name: the log end, and the files.
fn ours(name: &str) -> Option<(i64, BTreeMap<String, Vec<u8>>)> {
    let same_as = match name {
        // Offsets that go back are cut off where they do, in place of going unnoticed or emptying the segment: what is
        // left is the first batch, as if it had been alone.
        "offsets_repeat_twice" | "offsets_repeat_three_times" => "bad_crc_second",
        // No batch that anybody could read later: cut off, as one with a wrong checksum.
        "count_negative" | "magic_3" => "bad_crc_first",
        _ => return None,
    };
    let vector = vectors::named("recovery_cases", same_as);
    Some((vector["log_end_offset"].as_i64().expect("an offset"), files_of(&vector["files_after"])))
}

fn files_of(files: &Value) -> BTreeMap<String, Vec<u8>> {
    let files = files.as_object().expect("files");
    files.iter().map(|(name, bytes)| (name.clone(), hex(bytes.as_str().expect("hex")))).collect()
}

#[test]
fn a_segment_is_recovered_to_the_files_that_kafkas_classes_leave() {
    let mut refused = Vec::new();
    let cases = vectors::list("recovery_cases");
    assert_eq!(cases.len(), 29);
    for case in cases {
        let name = case["name"].as_str().expect("a name");
        let file = case["segment_file"].as_str().expect("a name");
        let bytes = hex(case["hex"].as_str().expect("hex"));
        let (place, _) = memory();
        place.put(file, &bytes);
        for suffix in ["index", "timeindex"] {
            place.put(Path::new(file).with_extension(suffix), &[]);
        }
        let opened = place.try_open(&config(), &state(false));
        if case["loads"] == false {
            assert!(opened.is_err(), "{name} opens");
            // Also where a broker cuts the file on its way to the error.
            assert_eq!(place.file(file), bytes, "{name} is left as it was");
            refused.push(name);
            continue;
        }
        let (log, report) = opened.unwrap_or_else(|error| panic!("{name}: {error}"));
        let (end, files) = ours(name).unwrap_or_else(|| {
            (case["log_end_offset"].as_i64().expect("an offset"), files_of(&case["files_after"]))
        });
        assert_eq!(log.log_end_offset(), Offset(end), "{name}");
        let kept = place.with_suffix(".log").iter().map(|name| place.file(name).len()).sum::<usize>();
        let is_cut = report.segments.iter().any(|segment| segment.cut.is_some());
        assert_eq!(is_cut, kept < bytes.len(), "{name}: {report:?}");
        assert_eq!(report.lost_records(), is_cut, "{name}");
        log.close().expect("closed");
        drop(log);
        assert_eq!(told(place.files()), told(files), "{name}");
        // Once more: nothing is left to do.
        let before = place.files();
        let (log, report) = place.open_as(&config(), &state(false));
        assert!(!report.lost_records(), "{name}: {report:?}");
        assert_eq!(log.log_end_offset(), Offset(end), "{name}");
        log.close().expect("closed");
        drop(log);
        assert_eq!(told(place.files()), told(before), "{name}, again");
    }
    assert_eq!(refused.len(), 6, "{refused:?}");
}

#[test]
fn a_folder_is_tidied_up_to_the_files_that_kafkas_classes_leave() {
    let cases = vectors::list("directory_cases");
    assert_eq!(cases.len(), 6);
    for case in cases {
        let name = case["name"].as_str().expect("a name");
        let (place, _) = memory();
        put_files(&place, &case["files_before"]);
        let clean = case["clean_shutdown"].as_bool().expect("a truth value");
        let before = place.files();
        let opened = place.try_open(&config(), &state(clean));
        if case["loads"] == false {
            match name {
                // As with a broker: what is not whole at the end of a closed log might be whole records of somebody.
                "zero_tail_clean" => {
                    assert!(matches!(opened, Err(Error::Corrupt(_))), "{opened:?}");
                    assert_eq!(place.files(), before);
                }
                // A broker does not start. A name that is no segment's is not part of a log of ours.
                "foreign_log_name" => {
                    assert_eq!(opened.expect("an empty log").0.log_end_offset(), Offset(0));
                    assert!(place.names().contains(&"foo.log".to_owned()));
                }
                other => panic!("{other}"),
            }
            continue;
        }
        let (log, report) = opened.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(log.log_end_offset().0, case["log_end_offset"].as_i64().expect("an offset"), "{name}");
        let mut expected: BTreeMap<String, usize> = case["sizes_after_open"]
            .as_object()
            .expect("files")
            .iter()
            .map(|(name, size)| (name.clone(), size.as_u64().expect("a size") as usize))
            .collect();
        expected.retain(|name, size| name != EPOCHS || *size > 0);
        if name == "missing_timeindex" {
            // Ours is made anew by a recovery of the segment, which finds its epochs as well.
            expected.insert(EPOCHS.to_owned(), 8);
        }
        if name == "swap_complete" {
            // Of an offset inside the swapped range, but no file of a log: not ours to remove.
            expected.insert("00000000000000000003.foo".to_owned(), 1);
        }
        let sizes: BTreeMap<String, usize> =
            place.files().into_iter().map(|(name, bytes)| (name, bytes.len())).collect();
        assert_eq!(sizes, expected, "{name}: {report:?}");
        drop(log);
    }
}

fn open_root(path: &Path, config: &LogConfig) -> (LogRoot, redrive::log_dir::RootRecovery) {
    let config = |_: &TopicPartition| config.clone();
    let options = OpenOptions {
        threads: NonZero::new(2).expect("two"),
        config: &config,
        may_reset: false,
        now_ms: NOW,
        progress: None,
    };
    LogRoot::open(Arc::new(FileSystem), path, &options).expect("a root")
}

/// Sizes of the files of a partition, and text where it is one.
fn sizes(folder: &Path) -> BTreeMap<String, u64> {
    fs::read_dir(folder)
        .expect("a folder")
        .map(|entry| {
            let entry = entry.expect("an entry");
            let name = entry.file_name().into_string().expect("ASCII");
            (name, entry.metadata().expect("a file").len())
        })
        .collect()
}

/// Offset, epoch, timestamp and key of the records that a consumer got, by a look at the batches alone.
fn records_of(batches: &[Vec<u8>]) -> Vec<(i64, i64)> {
    let mut found = Vec::new();
    for bytes in batches {
        let frame = BatchFrame::new(bytes).expect("a batch");
        if frame.is_control() {
            continue;
        }
        let epoch = i64::from(frame.partition_leader_epoch());
        let batch = frame.verify().expect("a good checksum");
        let mut decompressor = redrive::batch::Decompressor::default();
        let records = batch.records(&mut decompressor, &redrive::batch::Limits::default()).expect("records");
        for record in records {
            found.push((record.expect("a record").offset.0, epoch));
        }
    }
    found
}

#[test]
fn logs_of_killed_brokers_are_recovered_as_brokers_do() {
    let names = ["unclean-stop", "unclean-stop-small-index", "unclean-torn-data", "unclean-torn-txn-state"];
    let (mut cut, mut compared, mut files_compared) = (0, 0, 0);
    for name in names {
        let case = corpus::case(name);
        let folder = tempfile::tempdir().expect("a folder");
        let [root_path] = &case.copy_to(folder.path()).expect("copied")[..] else { panic!("one folder") };
        let before: BTreeMap<_, _> = partitions(root_path);
        let index_bytes = if name == "unclean-stop" { 10_485_760 } else { 65_536 };
        let config = LogConfig {
            segment_index_bytes: index_bytes,
            producer_id_expiration_ms: i64::from(i32::MAX),
            ..LogConfig::default()
        };
        let (root, recovery) = open_root(root_path, &config);
        assert!(root.failed().is_empty(), "{name}: {:?}", root.failed());
        assert!(!recovery.was_clean);
        let offsets = case.oracle_json("offsets.json").expect("offsets");
        let described = case.oracle_json("producers.json").expect("producers");
        for log in root.logs() {
            let partition = log.topic_partition().to_string();
            let lost = recovery.partitions[log.topic_partition()].lost_records();
            let is_torn = (name == "unclean-torn-data" && partition == "orders-0")
                || (name == "unclean-torn-txn-state" && partition == "__transaction_state-0");
            assert_eq!(lost, is_torn, "{name} {partition}");
            cut += usize::from(lost);
            if let Some(latest) = offsets[&partition]["latest_read_uncommitted"].as_i64() {
                assert_eq!(log.log_end_offset(), Offset(latest), "{name} {partition}");
                let consumed = case
                    .oracle_text(&format!("consumed/{partition}.read_uncommitted.jsonl"))
                    .expect("consumed records");
                let consumed: Vec<(i64, i64)> = consumed
                    .lines()
                    .map(|line| {
                        let record: Value = serde_json::from_str(line).expect("JSON");
                        let number = |member: &str| record[member].as_i64().expect("a number");
                        (number("offset"), number("leaderEpoch"))
                    })
                    .collect();
                assert_eq!(records_of(&batches_from(&log, 0)), consumed, "{name} {partition}");
                compared += consumed.len();
            }
            if let Some(list) = described[&partition].as_array() {
                let ours: Vec<_> = producers(&log)
                    .iter()
                    .map(|entry| {
                        let sequence = entry.last_batch.map_or(-1, |batch| batch.last_sequence);
                        let open = entry.current_txn_first_offset.map_or(-1, |offset| offset.0);
                        let epoch = i64::from(entry.producer_epoch);
                        let coordinator = i64::from(entry.coordinator_epoch);
                        let time = entry.last_timestamp;
                        [entry.producer_id.0, epoch, coordinator, i64::from(sequence), time, open]
                    })
                    .collect();
                let number = |producer: &Value, member: &str| producer[member].as_i64().unwrap_or(-1);
                let theirs: Vec<_> = list
                    .iter()
                    .map(|producer| {
                        [
                            "producerId",
                            "producerEpoch",
                            "coordinatorEpoch",
                            "lastSequence",
                            "lastTimestamp",
                            "currentTransactionStartOffset",
                        ]
                        .map(|member| number(producer, member))
                    })
                    .collect();
                assert_eq!(ours, theirs, "{name} {partition}");
            }
        }
        root.close(7).expect("closed");
        let text = case.oracle_json("file-sizes-before-and-after-recovery.json").expect("sizes");
        for (partition, before) in before {
            let after = sizes(&root_path.join(&partition));
            let mut expected = before.clone();
            for (file, change) in text["partitions"][&partition].as_object().into_iter().flatten() {
                match change[1].as_u64() {
                    Some(size) => drop(expected.insert(file.clone(), size)),
                    None => drop(expected.remove(file)),
                }
            }
            // The broker that was started again leads in an epoch of its own, which it writes down, and its coordinator
            // went on with transactions: segments that it appended to have more than recovery left.
            let grown: Vec<&str> = before
                .iter()
                .filter(|(file, size)| file.ends_with(".log") && expected.get(*file) > Some(*size))
                .map(|(file, _)| &file[..20])
                .collect();
            let is_told = |file: &str| {
                file != EPOCHS && grown.first().is_none_or(|base| file < *base || !file.starts_with("0"))
            };
            let told = |files: BTreeMap<String, u64>| -> BTreeMap<String, u64> {
                files.into_iter().filter(|(file, _)| is_told(file)).collect()
            };
            files_compared += usize::from(grown.is_empty());
            assert_eq!(told(after), told(expected), "{name} {partition}");
        }
    }
    assert_eq!(cut, 2);
    assert!(files_compared >= 6, "{files_compared} partitions as the broker left them");
    assert!(compared > 5000, "{compared} records");
}

fn partitions(root: &Path) -> BTreeMap<String, BTreeMap<String, u64>> {
    fs::read_dir(root)
        .expect("a root")
        .map(|entry| entry.expect("an entry"))
        .filter(|entry| entry.path().is_dir())
        .map(|entry| (entry.file_name().into_string().expect("ASCII"), sizes(&entry.path())))
        .collect()
}

/// What stands in a folder after a clean stop is taken as it stands.
#[test]
fn logs_of_brokers_that_were_stopped_need_no_recovery() {
    for case in corpus::cases() {
        let stop = case.info["stop"].as_str().unwrap_or_default().to_owned();
        let clean = case.data_dirs[0].join(".kafka_cleanshutdown").exists();
        if !clean || case.name == "txn-state-50" {
            continue;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let roots = case.copy_to(folder.path()).expect("copied");
        let before = partitions(&roots[0]);
        let config = LogConfig { segment_index_bytes: 65_536, ..LogConfig::default() };
        let (root, recovery) = open_root(&roots[0], &config);
        assert!(root.failed().is_empty(), "{} ({stop}): {:?}", case.name, root.failed());
        for (partition, report) in &recovery.partitions {
            assert!(report.segments.is_empty() && report.tidied.is_empty(), "{partition}: {report:?}");
        }
        root.close(1).expect("closed");
        let after = partitions(&roots[0]);
        for (partition, files) in before {
            let logs = |files: &BTreeMap<String, u64>| -> Vec<(String, u64)> {
                // Snapshots are made anew, and an epoch that began at the log end is forgotten.
                let indexes =
                    files.iter().filter(|(name, _)| !name.ends_with(".snapshot") && *name != EPOCHS);
                indexes.map(|(name, size)| (name.clone(), *size)).collect()
            };
            assert_eq!(logs(&after[&partition]), logs(&files), "{} {partition}", case.name);
        }
    }
}
