//! Ids, topics and file names as an enemy would choose them, in every command.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use redrive_tests::logs::{TopicPartitions, TransactionValue};
use serde_json::{Value, json};

use crate::common::{Run, batches, redrive, value, write_log};

/// Longest id that a key can hold.
const ID_BYTES_MAX: usize = 32_767;

/// The ids, as stored.
fn hostile_ids() -> Vec<Vec<u8>> {
    let mut ids: Vec<Vec<u8>> = [
        "\u{1b}[31mred\u{1b}]0;title\u{7}",
        "two\nlines\r\n",
        "back\u{8}\u{8}\u{7f}tab\t",
        "right\u{202e}tfel",
        "iso\u{2066}late\u{2069}\u{61c}\u{200f}",
        "zero\u{200b}\u{feff}width",
        "line\u{2028}\u{2029}separators",
        "c1\u{9b}31m\u{85}",
        "<script>alert(1)</script>",
        "=cmd|' /C calc'!A0",
        "\\u{1b}",
        "\"quoted\"",
        "",
        " ",
        "e\u{301}\u{1f600}",
        "tag\u{e0041}",
    ]
    .iter()
    .map(|text| text.as_bytes().to_vec())
    .collect();
    ids.push(b"nul\0".to_vec());
    ids.push(b"bad\xff\xfe".to_vec());
    ids.push(b"cut\xe2\x80".to_vec());
    ids.push(vec![b'x'; ID_BYTES_MAX]);
    ids.push("\u{202e}".repeat(ID_BYTES_MAX / 3).into_bytes());
    ids
}

/// A log with every hostile id, open in hostile topics.
fn write_hostile(root: &Path) -> Vec<Vec<u8>> {
    let ids = hostile_ids();
    let records: Vec<(&[u8], Option<TransactionValue>)> = ids
        .iter()
        .map(|id| {
            let topic = TopicPartitions { topic: id.clone(), partition_ids: vec![1], tags: Vec::new() };
            (&**id, Some(TransactionValue { partitions: Some(vec![topic]), ..value(1) }))
        })
        .collect();
    write_log(root, 0, &batches(&records));
    ids
}

/// Fails if anything that was printed could move a cursor, break a line, or reorder or hide text.
fn assert_harmless(run: &Run) {
    for text in [run.text(), &run.stderr] {
        let bad = text.chars().find(|&c| {
            let n = u32::from(c);
            n < 0x20 && c != '\n'
                || (0x7f..0xa0).contains(&n)
                || (0x200b..=0x200f).contains(&n)
                || (0x2028..=0x202e).contains(&n)
                || (0x2066..=0x2069).contains(&n)
                || [0x61c, 0xfeff].contains(&n)
                || (0xe0000..=0xe007f).contains(&n)
        });
        assert_eq!(bad, None, "{:?}", text.chars().take(2000).collect::<String>());
    }
}

/// The stored bytes of an id or topic as the JSON gives them.
fn stored(row: &Value, name: &str) -> Vec<u8> {
    let text = row[name].as_str().expect("the text");
    match row.get(format!("{name}Base64")) {
        Some(bytes) => {
            let bytes = STANDARD.decode(bytes.as_str().expect("base64")).expect("base64");
            assert!(String::from_utf8(bytes.clone()).is_err(), "given although the text is enough");
            assert!(text.contains('\u{fffd}'));
            bytes
        }
        None => text.as_bytes().to_vec(),
    }
}

#[test]
fn hostile_ids_come_whole_out_of_lists() {
    let root = tempfile::tempdir().unwrap();
    let mut ids = write_hostile(root.path());
    let dir = root.path().to_str().unwrap();
    let lines = redrive(["list", "--format", "ndjson", dir]).expect(0);
    assert_harmless(&lines);
    let rows = lines.lines();
    let mut listed: Vec<_> = rows.iter().map(|row| stored(row, "transactionalId")).collect();
    listed.sort();
    ids.sort();
    assert_eq!(listed, ids);
    for row in &rows {
        let topic = &row["transactionPartitions"][0];
        assert_eq!(stored(topic, "topic"), stored(row, "transactionalId"));
    }
    let document = redrive(["list", "--format", "json", dir]).expect(0);
    assert_harmless(&document);
    assert_eq!(document.json()["transactions"], Value::Array(rows));

    let table = redrive(["list", dir]).expect(0);
    assert_harmless(&table);
    let lines: Vec<_> = table.text().lines().collect();
    assert_eq!(lines.len(), 1 + ids.len() + 2, "a heading, a line for each id, a blank one and the count");
    assert!(lines.iter().all(|line| line.chars().count() < 300), "long ids are cut");
    for part in [
        "x… (32,767 bytes)",
        r"right\u{202e}tfel",
        r"two\u{a}lines\u{d}\u{a}",
        r"\\u{1b}",
        r"\u{1b}[31mred\u{1b}]0;title\u{7}",
        "<script>alert(1)</script>",
        "=cmd|",
    ] {
        assert!(table.text().contains(part), "{part:?} in {}", table.text());
    }
}

#[test]
fn hostile_ids_are_harmless_in_every_command() {
    let root = tempfile::tempdir().unwrap();
    let ids = write_hostile(root.path());
    let dir = root.path().as_os_str();
    let log = root.path().join("__transaction_state-0/00000000000000000000.log");
    for format in ["text", "json", "ndjson"] {
        let format = OsStr::new(format);
        assert_harmless(&redrive([OsStr::new("replay"), "--format".as_ref(), format, dir]).expect(0));
        let dump = ["dump", "--transaction-log-decoder", "--files"].map(OsStr::new);
        assert_harmless(
            &redrive(dump.into_iter().chain([log.as_os_str(), "--format".as_ref(), format])).expect(0),
        );
        for id in ids.iter().filter(|id| !id.contains(&0)) {
            for history in [None, Some(OsStr::new("--history"))] {
                let id = OsStr::from_bytes(id);
                let args = [OsStr::new("describe"), "--format".as_ref(), format];
                let args = args.into_iter().chain(history).chain([dir, id]);
                let run = redrive(args).expect(0);
                assert_harmless(&run);
                assert!(!run.stdout.is_empty() && run.stderr.is_empty(), "{id:?}: {}", run.stderr);
            }
            let mut missing = id.clone();
            missing.truncate(1000);
            missing.insert(0, b'\x1b');
            let args =
                [OsStr::new("describe"), "--format".as_ref(), format, dir, OsStr::from_bytes(&missing)];
            assert_harmless(&redrive(args).expect(1));
        }
    }
}

#[test]
fn the_damaged_record_of_a_hostile_id_is_harmless() {
    for id in hostile_ids() {
        let root = tempfile::tempdir().unwrap();
        let mut batches = batches(&[(&id, Some(value(1))), (b"next", Some(value(1)))]);
        batches[0].crc_flip = 1;
        write_log(root.path(), 0, &batches);
        let dir = root.path().to_str().unwrap();
        let text = redrive(["replay", dir]).expect(1);
        assert_harmless(&text);
        assert!(text.text().contains("transactional id "), "{}", text.text());
        let document = redrive(["replay", "--format", "json", dir]).expect(1);
        assert_harmless(&document);
        let error = &document.json()["partitions"][0]["error"];
        assert_eq!(stored(error, "transactionalId"), id);
        let list = redrive(["list", dir]).expect(1);
        assert_harmless(&list);
        assert_eq!(list.stderr.lines().count(), 1, "one sentence");
    }
}

#[test]
fn hostile_names_of_files_are_harmless() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("\u{1b}[2J\n\u{202e}logs");
    write_log(&dir, 0, &batches(&[(b"a", Some(value(2)))]));
    fs::create_dir(dir.join("\u{1b}]0;x\u{7}\n")).unwrap();
    fs::write(dir.join("__transaction_state-0/\u{9b}31m"), "").unwrap();
    for args in
        [vec!["replay"], vec!["replay", "--format", "json"], vec!["list"], vec!["list", "--partition", "9"]]
    {
        let code = if args.contains(&"9") { 3 } else { 0 };
        let args = args.iter().map(OsStr::new).chain([dir.as_os_str()]);
        assert_harmless(&redrive(args).expect(code));
    }
    assert_harmless(&redrive(["list", "--state", "\u{1b}[31m\u{202e}", "."]).expect(2));
    let missing = dir.join("missing\n\u{1b}[31m");
    let run = redrive([OsStr::new("replay"), missing.as_os_str()]).expect(3);
    assert_harmless(&run);
    assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
}

/// Loads partition 0 in every way, which must refuse it because of this path, and nothing else.
fn assert_not_read(dir: &Path, path: &Path) {
    let dir = dir.to_str().unwrap();
    for io in ["mmap", "pread"] {
        let run = redrive(["replay", "--format", "json", "--io", io, dir]).expect(1);
        assert_harmless(&run);
        let document = run.json();
        assert_eq!((&document["partitionsLoaded"], &document["partitionsRefused"]), (&json!(1), &json!(1)));
        let error = &document["partitions"][0]["error"];
        assert_eq!((&error["kind"], &error["path"]), (&json!("not-read"), &json!(path.to_str().unwrap())));
        let reason = error["reason"].as_str().unwrap();
        assert!(reason.starts_with("belongs to the log and is not read: "), "{reason}");
    }
    let text = redrive(["replay", dir]).expect(1);
    assert!(text.text().contains(path.to_str().unwrap()), "{}", text.text());
    redrive(["describe", "--history", dir, "a"]).expect(1);
}

#[test]
fn pipes_and_devices_are_never_opened() {
    let folder = tempfile::tempdir().unwrap();
    let root = fs::canonicalize(folder.path()).unwrap();
    write_log(&root, 0, &batches(&[(b"a", Some(value(1)))]));
    write_log(&root, 1, &batches(&[(b"b", Some(value(1)))]));
    let mode = Mode::S_IRUSR | Mode::S_IWUSR;
    let partition = root.join("__transaction_state-0");
    // Without them the log is whole.
    for pipe in [
        partition.join("00000000000000000500.index"),
        partition.join("00000000000000000500.log.deleted"),
        root.join("__transaction_state-2"),
        root.join(".lock"),
    ] {
        mkfifo(&pipe, mode).unwrap();
    }
    let dir = root.to_str().unwrap();
    let document = redrive(["replay", "--format", "json", dir]).expect(0).json();
    assert_eq!(document["ids"], 2);
    let notices = document["partitions"][0]["notices"].as_array().unwrap();
    assert_eq!(notices.len(), 2, "{notices:?}");
    redrive(["describe", "--history", dir, "a"]).expect(0);

    for name in ["00000000000000000500.log", "00000000000000000600.log.swap"] {
        let pipe = partition.join(name);
        mkfifo(&pipe, mode).unwrap();
        assert_not_read(&root, &pipe);
        redrive([OsStr::new("replay"), pipe.as_os_str()]).expect(3);
        redrive([OsStr::new("dump"), "--files".as_ref(), pipe.as_os_str()]).expect(3);
        fs::remove_file(pipe).unwrap();
    }
    let device = partition.join("00000000000000000700.log");
    symlink("/dev/zero", &device).unwrap();
    assert_not_read(&root, &device);
    fs::remove_file(device).unwrap();
    redrive(["replay", "/dev/zero"]).expect(3);

    let checkpoint = root.join("recovery-point-offset-checkpoint");
    mkfifo(&checkpoint, mode).unwrap();
    let run = redrive(["replay", dir]).expect(3);
    assert!(run.stderr.contains(checkpoint.to_str().unwrap()), "{}", run.stderr);
}

#[test]
fn links_out_of_the_directory_are_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let root = fs::canonicalize(folder.path()).unwrap();
    let (inside, outside) = (root.join("inside"), root.join("outside"));
    write_log(&inside, 0, &batches(&[(b"mine", Some(value(1)))]));
    let foreign = write_log(&outside, 1, &batches(&[(b"foreign", Some(value(1)))]));
    symlink(&foreign, inside.join("__transaction_state-0/00000000000000000900.log")).unwrap();
    symlink(outside.join("__transaction_state-1"), inside.join("__transaction_state-1")).unwrap();
    // One that leads to a file of the same root is followed.
    let own = write_log(&inside, 3, &batches(&[(b"mine", Some(value(1)))]));
    fs::create_dir(inside.join("__transaction_state-2")).unwrap();
    let name = "00000000000000000000.log";
    symlink(&own, inside.join("__transaction_state-2").join(name)).unwrap();
    let link = root.join("link");
    symlink(&inside, &link).unwrap();
    for dir in [&inside, &link] {
        let list = redrive(["list", "--format", "json", dir.to_str().unwrap()]).expect(1);
        assert!(!list.text().contains("foreign") && !list.stderr.contains("foreign"), "{}", list.text());
        let document = list.json();
        let numbers = |member: &str| {
            let rows = document[member].as_array().unwrap().iter();
            rows.map(|row| row["partition"].as_i64().unwrap()).collect::<Vec<_>>()
        };
        assert_eq!((numbers("transactions"), numbers("refused")), (vec![2, 3], vec![0, 1]));
        assert!(document["refused"].as_array().unwrap().iter().all(|row| row["error"]["kind"] == "not-read"));
    }
}
