//! Files under names that Kafka does not give them, and files that are not there.

use std::fs;

use crate::common::{Run, batches, redrive, value, write_log};
use serde_json::json;

const OWN_FORMATS: [&str; 3] = ["text", "json", "ndjson"];

fn dump(files: &str, format: &str) -> Run {
    redrive(["dump", "--files", files, "--format", format])
}

#[test]
fn a_file_that_is_not_there_is_3_under_any_name() {
    let root = tempfile::tempdir().unwrap();
    for name in [
        "nope.log",
        "nope.index",
        "nope.timeindex",
        "nope.txnindex",
        "nope.snapshot",
        "nope.checkpoint",
        "nope",
    ] {
        let path = root.path().join(name).to_str().unwrap().to_owned();
        for format in OWN_FORMATS {
            let run = dump(&path, format).expect(3);
            assert!(
                run.stderr.starts_with(&format!("{path}: cannot be read: No such file")),
                "{}",
                run.stderr
            );
            assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
        }
    }
    // Kafka's tool fails at the name before it looks for the file.
    let path = root.path().join("nope.log").to_str().unwrap().to_owned();
    let run = dump(&path, "kafka").expect(1);
    assert!(run.stderr.contains("\"nope\" is no offset"), "{}", run.stderr);
}

#[test]
fn a_copied_log_is_dumped_under_any_name() {
    let root = tempfile::tempdir().unwrap();
    let mut batches = batches(&[(b"a", Some(value(1))), (b"b", Some(value(2)))]);
    batches[0].base_offset = 41;
    batches[1].base_offset = 42;
    let log = write_log(root.path(), 0, &batches);
    let copy = root.path().join("segment.log");
    fs::copy(&log, &copy).unwrap();
    let empty = root.path().join("empty.log");
    fs::write(&empty, "").unwrap();
    let snapshot = root.path().join("segment.checkpoint");
    fs::copy(&log, &snapshot).unwrap();

    let items = |path: &std::path::Path| {
        dump(path.to_str().unwrap(), "json").expect(0).json()["files"][0]["items"].as_array().unwrap().clone()
    };
    let (named, copied) = (items(&log), items(&copy));
    assert_eq!(named[0], json!({ "kind": "log", "logStartingOffset": 0 }), "the offset in the name");
    assert_eq!(copied[0], json!({ "kind": "log", "logStartingOffset": 41 }), "the offset of the first batch");
    assert_eq!((&named[1..], named.len()), (&copied[1..], 3));
    assert_eq!(items(&empty), [json!({ "kind": "log", "logStartingOffset": 0 })]);
    assert_eq!(items(&snapshot), named[1..], "the name does not tell the end");
    let text = dump(copy.to_str().unwrap(), "text").expect(0);
    assert_eq!(text.text().lines().filter(|line| line.starts_with("batch ")).count(), 2, "{}", text.text());

    let run = dump(copy.to_str().unwrap(), "kafka").expect(1);
    assert!(run.stderr.contains("\"segment\" is no offset") && !run.text().contains("baseOffset"));
}

#[test]
fn an_index_without_its_offset_is_not_guessed_at() {
    let root = tempfile::tempdir().unwrap();
    let path = |name: &str| root.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("copy.index"), [0, 0, 0, 1, 0, 0, 0, 9]).unwrap();
    fs::write(path("copy.timeindex"), [0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 1]).unwrap();
    for name in ["copy.index", "copy.timeindex"] {
        for format in OWN_FORMATS {
            let run = dump(&path(name), format).expect(3);
            assert!(run.stderr.contains("its name is no offset"), "{}", run.stderr);
        }
        assert!(dump(&path(name), "kafka").expect(1).stderr.contains("\"copy\" is no offset"));
    }
    // Offsets of aborted transactions are whole.
    let entry: Vec<u8> = [&[0, 0][..], &[7_i64, 3, 5, 6].map(i64::to_be_bytes).concat()].concat();
    fs::write(path("copy.txnindex"), entry).unwrap();
    let document = dump(&path("copy.txnindex"), "json").expect(0).json();
    assert_eq!(
        document["files"][0]["items"],
        json!([{
            "kind": "abortedTransaction", "producerId": 7, "firstOffset": 3, "lastOffset": 5, "lastStableOffset": 6
        }])
    );
    dump(&path("copy.txnindex"), "kafka").expect(1);
}

#[test]
fn an_empty_name_is_bad_usage_except_where_kafka_takes_it() {
    let root = tempfile::tempdir().unwrap();
    let log = write_log(root.path(), 0, &batches(&[(b"a", Some(value(1)))])).to_str().unwrap().to_owned();
    for files in ["", ",", ",,", &format!("{log},"), &format!(",{log}"), &format!("{log},,{log}")] {
        for format in OWN_FORMATS {
            let run = dump(files, format).expect(2);
            assert!(run.stdout.is_empty() && run.stderr.contains("empty name"), "{files:?}: {}", run.stderr);
        }
    }
    // As the real tool answers: String.split drops empty names at the end.
    let ignored = "Ignoring unknown file \n";
    for (files, dumped, stderr) in [
        ("", vec![""], ignored),
        (",", vec![], ""),
        (&format!("{log},,"), vec![&*log], ""),
        (&format!("{log},,{log}"), vec![&*log, "", &*log], ignored),
        (&format!(",{log}"), vec!["", &*log], ignored),
    ] {
        let run = dump(files, "kafka").expect(0);
        let begun: Vec<_> = run.text().lines().filter_map(|line| line.strip_prefix("Dumping ")).collect();
        assert_eq!((begun, &*run.stderr), (dumped, stderr), "{files:?}");
    }
}
