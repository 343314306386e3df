//! `redrive profile` as a command: its figures against a log made by hand, its files, what it refuses.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use redrive_tests::logs::{BatchSpec, TransactionValue};
use serde_json::{Value, json};

use crate::common::{batches, listing, redrive, value, write_log};

/// Bytes of batches in the log.
fn len(batches: &[BatchSpec]) -> usize {
    batches.iter().map(|batch| batch.encode().len()).sum()
}

/// Partition 0: `a` three times, `a-long-one` twice, `gone` once and removed. Partition 7: `other` once. Returns bytes,
/// and bytes of the newest records, of both.
fn write_two(root: &Path) -> [(usize, usize); 2] {
    let records: [(&[u8], Option<TransactionValue>); 7] = [
        (b"a", Some(value(0))),
        (b"a", Some(value(1))),
        (b"gone", Some(value(4))),
        (b"a-long-one", Some(value(1))),
        (b"gone", None),
        (b"a-long-one", Some(value(2))),
        (b"a", Some(value(4))),
    ];
    let first = batches(&records);
    let second = batches(&[(b"other", Some(value(3)))]);
    write_log(root, 0, &first);
    write_log(root, 7, &second);
    [(len(&first), len(&first[5..])), (len(&second), len(&second))]
}

#[test]
fn figures_are_those_of_the_log() {
    let root = tempfile::tempdir().unwrap();
    let logs = root.path().join("logs");
    fs::create_dir(&logs).unwrap();
    let [(first, first_live), (second, second_live)] = write_two(&logs);
    let before = listing(&logs);
    let out = root.path().join("out");
    let args = ["profile", "--runs", "2", "--threads", "2", "--format", "json", "--out"];
    let run = redrive(args.iter().map(AsRef::as_ref).chain([out.as_os_str(), logs.as_os_str()])).expect(0);
    let found = run.json();
    assert_eq!(listing(&logs), before);
    assert_eq!(fs::read(out.join("profile.json")).unwrap(), run.stdout);
    assert!(run.stderr.is_empty(), "{}", run.stderr);

    // Totals, and what `redrive replay` has of the same.
    assert_eq!(found["bytes"], json!(first + second));
    assert_eq!(found["liveBytes"], json!(first_live + second_live));
    assert_eq!(found["supersededBytes"], json!(first - first_live));
    assert_eq!(found["pendingCompletion"], 2);
    let replayed = redrive(["replay".as_ref(), logs.as_os_str(), "--format".as_ref(), "json".as_ref()]);
    let replayed = replayed.expect(0).json();
    for field in ["topic", "records", "ids", "tombstones", "byState", "identity", "crc", "partitionsLoaded"] {
        assert_eq!(found[field], replayed[field], "{field}");
    }
    let partitions = found["partitions"].as_array().unwrap();
    assert_eq!(partitions.len(), 2);
    for (found, replayed) in partitions.iter().zip(replayed["partitions"].as_array().unwrap()) {
        for field in ["partition", "bytes", "liveBytes", "batches", "records", "ids", "byState", "segments"] {
            assert_eq!(found[field], replayed[field], "{field}");
        }
        assert_eq!(found["damaged"], false);
        let names = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&found["phases"]), names(&replayed["phases"]));
    }

    // The last partition is the one whose end is last.
    let end = |partition: &Value| {
        partition["waitSeconds"].as_f64().unwrap() + partition["seconds"].as_f64().unwrap()
    };
    let last = partitions.iter().max_by(|a, b| end(a).total_cmp(&end(b))).unwrap();
    assert_eq!(found["last"]["partition"], last["partition"]);
    assert!((found["last"]["endSeconds"].as_f64().unwrap() - end(last)).abs() < 1e-6);
    assert!(!found["last"]["why"].as_str().unwrap().is_empty());

    let ids = |list: &Value, fields: [&str; 3]| -> Vec<Value> {
        list.as_array().unwrap().iter().map(|id| json!(fields.map(|field| &id[field]))).collect()
    };
    let busiest = ["transactionalId", "records", "recordsError"];
    let expected = [json!(["a", 3, 0]), json!(["a-long-one", 2, 0]), json!(["gone", 2, 0])];
    assert_eq!(ids(&partitions[0]["busiestIds"], busiest), expected);
    let all = [&expected[..], &[json!(["other", 1, 0])]].concat();
    assert_eq!(ids(&found["busiestIds"], busiest), all);
    let largest = ids(&partitions[0]["largestIds"], ["transactionalId", "bytes", "transactionStatus"]);
    let records = [(&b"a-long-one"[..], Some(value(2))), (b"a", Some(value(4)))];
    let lens: Vec<_> = batches(&records).iter().map(|batch| batch.encode().len()).collect();
    assert_eq!(
        largest,
        [json!(["a-long-one", lens[0], "PrepareCommit"]), json!(["a", lens[1], "CompleteCommit"])]
    );
    assert_eq!(found["largestIds"].as_array().unwrap().len(), 3);

    // Two loads by two threads and two by one, in turn, after the first.
    let runs: Vec<_> = found["runs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| (run["kind"].as_str().unwrap(), run["threads"].as_u64().unwrap()))
        .collect();
    assert_eq!(runs, [("asFound", 2), ("warm", 2), ("warm", 1), ("warm", 2), ("warm", 1)]);
    assert_eq!(
        ids(&found["spreads"], ["kind", "threads", "runs"]),
        [json!(["asFound", 2, 1]), json!(["warm", 2, 2]), json!(["warm", 1, 2])]
    );
    check_histograms(&fs::read(out.join("load.hlog")).unwrap(), runs.len(), partitions);
}

/// Two intervals a load, with a value a partition; those of the first load are the document's.
fn check_histograms(log: &[u8], runs: usize, partitions: &[Value]) {
    let mut tags = Vec::new();
    for entry in IntervalLogIterator::new(log) {
        let LogEntry::Interval(interval) = entry.expect("a line") else { continue };
        let bytes = STANDARD.decode(interval.encoded_histogram()).expect("base64");
        let histogram: Histogram<u64> =
            Deserializer::new().deserialize(&mut &bytes[..]).expect("a histogram");
        assert_eq!(histogram.len(), partitions.len() as u64);
        let tag = interval.tag().expect("a tag").as_str().to_owned();
        if tags.len() < 2 {
            let field = if tags.is_empty() { "waitSeconds" } else { "seconds" };
            for partition in partitions {
                let micros = (partition[field].as_f64().unwrap() * 1e6) as u64;
                assert!(histogram.count_at(micros) > 0, "{field} {micros}");
            }
        }
        tags.push(tag);
    }
    assert_eq!(tags, ["wait", "load"].repeat(runs));
}

#[test]
fn lines_are_partitions_and_text_has_all_parts() {
    let root = tempfile::tempdir().unwrap();
    write_two(root.path());
    let path = root.path().to_str().unwrap();
    let lines = redrive(["profile", path, "--format", "ndjson", "--runs", "0"]).expect(0).lines();
    assert_eq!(lines.iter().map(|line| line["partition"].as_i64()).collect::<Vec<_>>(), [Some(0), Some(7)]);
    let run = redrive(["profile", path, "--threads", "2", "--runs", "1", "--cold"]).expect(0);
    for part in ["last partition", "superseded", "pending completion  2", "one thread", "cold", "BUSIEST ID"]
    {
        assert!(run.text().contains(part), "{part} is not in {}", run.text());
    }
    let run = redrive(["profile", path, "--threads", "1", "--runs", "1"]).expect(0);
    assert!(!run.text().contains("one thread  "), "with one there is nothing to compare: {}", run.text());
}

#[test]
fn nothing_is_written_into_a_log_directory_or_over_a_file() {
    let root = tempfile::tempdir().unwrap();
    let logs = root.path().join("logs");
    fs::create_dir(&logs).unwrap();
    write_two(&logs);
    let broker = root.path().join("broker");
    fs::create_dir(&broker).unwrap();
    fs::write(broker.join("meta.properties"), "").unwrap();
    let link = root.path().join("link");
    symlink(&logs, &link).unwrap();
    let nowhere = root.path().join("nowhere");
    symlink(root.path().join("absent"), &nowhere).unwrap();
    let taken = root.path().join("taken");
    fs::create_dir(&taken).unwrap();
    symlink("absent", taken.join("load.hlog")).unwrap();
    let before = listing(root.path());
    for (out, code) in [
        (logs.clone(), 2),
        (logs.join("out"), 2),
        (logs.join("__transaction_state-0"), 2),
        (link.join("out"), 2),
        (link.clone(), 2),
        (broker.join("out"), 2),
        (nowhere, 3),
        (taken, 3),
        (root.path().join("absent/out"), 3),
        (logs.join("__transaction_state-0/00000000000000000000.log"), 2),
    ] {
        let args = ["profile".as_ref(), logs.as_os_str(), "--runs".as_ref(), "0".as_ref(), "--out".as_ref()];
        let run = redrive(args.into_iter().chain([out.as_os_str()])).expect(code);
        assert!(run.stdout.is_empty() && run.stderr.lines().count() == 1, "{out:?}: {}", run.stderr);
        assert_eq!(listing(root.path()), before, "{out:?}");
    }
    // A folder that was made for a load that fails goes again.
    let out = root.path().join("out");
    let absent = root.path().join("no-logs");
    let args = ["profile".as_ref(), absent.as_os_str(), "--out".as_ref(), out.as_os_str()];
    redrive(args).expect(3);
    assert_eq!(listing(root.path()), before);
    // A folder that is there is used, once.
    fs::create_dir(&out).unwrap();
    let args = ["profile".as_ref(), logs.as_os_str(), "--runs".as_ref(), "0".as_ref(), "--out".as_ref()];
    let run = redrive(args.into_iter().chain([out.as_os_str()])).expect(0);
    assert!(run.text().contains("profile.json") && run.text().contains("load.hlog"), "{}", run.text());
    redrive(args.into_iter().chain([out.as_os_str()])).expect(3);
}

#[test]
fn damage_is_in_the_exit_status() {
    let root = tempfile::tempdir().unwrap();
    let log = write_log(root.path(), 3, &batches(&[(b"x", Some(value(0))), (b"y", Some(value(0)))]));
    write_log(root.path(), 4, &batches(&[(b"z", Some(value(0)))]));
    let mut bytes = fs::read(&log).unwrap();
    let whole = bytes.clone();
    bytes[70] ^= 1;
    fs::write(&log, &bytes).unwrap();
    let path = root.path().to_str().unwrap();
    let args = ["profile", path, "--runs", "0", "--format", "json"];
    let refused = redrive(args).expect(1);
    let found = refused.json();
    assert_eq!((&found["partitionsRefused"], &found["refused"][0]["partition"]), (&json!(1), &json!(3)));
    assert_eq!(found["partitions"].as_array().unwrap().len(), 1);
    assert_eq!(found["last"]["cause"], "only");
    assert!(refused.stderr.contains("__transaction_state-3 was refused"), "{}", refused.stderr);
    // Behind a place that was skipped records are not counted, and that is said.
    let lenient = redrive(args.into_iter().chain(["--lenient"])).expect(1);
    let partition = &lenient.json()["partitions"][0];
    assert_eq!((&partition["damaged"], &partition["busiestIds"]), (&json!(true), &json!([])));
    assert!(partition["idsError"].as_str().unwrap().contains("byte 0"), "{partition}");
    // A torn tail is no damage to them.
    let mut torn = whole;
    torn.truncate(torn.len() - 1);
    fs::write(&log, &torn).unwrap();
    let found = redrive(args).expect(0).json();
    let partition = &found["partitions"][0];
    assert_eq!(
        (&partition["damaged"], &partition["busiestIds"][0]["transactionalId"]),
        (&json!(true), &json!("x"))
    );
    assert_eq!(partition["busiestIds"].as_array().unwrap().len(), 1);
}

#[test]
fn the_page_cache_of_a_running_broker_is_left_alone() {
    let root = tempfile::tempdir().unwrap();
    write_two(root.path());
    let lock = fs::File::create(root.path().join(".lock")).unwrap();
    let whole = libc::flock {
        l_type: libc::F_WRLCK as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    fcntl(&lock, FcntlArg::F_SETLK(&whole)).unwrap();
    let path = root.path().to_str().unwrap();
    let run = redrive(["profile", path, "--runs", "1", "--cold"]).expect(2);
    assert!(run.stdout.is_empty() && run.stderr.contains("running broker"), "{}", run.stderr);
    let run = redrive(["profile", path, "--runs", "1", "--format", "json"]).expect(0);
    assert_eq!(run.json()["moving"], true);
    assert!(run.stderr.contains("picture of no single moment"), "{}", run.stderr);
}

#[test]
fn hostile_ids_stay_harmless() {
    let root = tempfile::tempdir().unwrap();
    write_log(
        root.path(),
        0,
        &batches(&[("\u{1b}[31m\u{202e}\n".as_bytes(), Some(value(1))), (b"bad\xff", Some(value(1)))]),
    );
    let path = root.path().to_str().unwrap();
    for format in ["text", "json", "ndjson"] {
        let run = redrive(["profile", path, "--runs", "0", "--format", format]).expect(0);
        assert!(!run.text().contains(['\u{1b}', '\u{202e}']), "{format}");
    }
    let text = redrive(["profile", path, "--runs", "0"]).expect(0);
    assert_eq!(text.text().matches(r"\u{1b}[31m\u{202e}\u{a}").count(), 2, "{}", text.text());
    let found = redrive(["profile", path, "--runs", "0", "--format", "json"]).expect(0).json();
    let bad =
        found["largestIds"].as_array().unwrap().iter().find(|id| id["transactionalId"] == "bad\u{fffd}");
    assert_eq!(bad.unwrap()["transactionalIdBase64"], STANDARD.encode(b"bad\xff"));
}
