//! `redrive dump` over files made on purpose: what Kafka's tool prints for each of them, hostile text in every format,
//! and damage of every kind.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser;
use redrive_tests::vectors;
use redrive_tools::dump::{self, DumpArgs, DumpStatus};
use serde_json::Value;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: DumpArgs,
}

struct Answer {
    status: DumpStatus,
    out: String,
    err: String,
}

fn dump_as(files: OsString, options: &[&str], escape_control: bool) -> Answer {
    let mut words: Vec<OsString> = vec!["dump".into(), "--files".into(), files];
    words.extend(options.iter().map(OsString::from));
    let args = Cli::try_parse_from(words).expect("options of dump").args;
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let status = dump::run(&args, escape_control, &mut out, &mut err).expect("a vector takes everything");
    let text = |bytes| String::from_utf8(bytes).expect("dumps are UTF-8");
    Answer { status, out: text(out), err: text(err) }
}

fn dump(path: &Path, options: &[&str]) -> Answer {
    dump_as(path.into(), options, false)
}

fn in_kafkas_form(path: &Path, options: &[&str]) -> Answer {
    dump(path, &[options, &["--format", "kafka"]].concat())
}

fn write(folder: &Path, path: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.join(path);
    fs::create_dir_all(path.parent().expect("inside the folder")).expect("a writable folder");
    fs::write(&path, bytes).expect("a writable folder");
    path
}

fn text<'a>(run: &'a Value, member: &str) -> &'a str {
    run[member].as_str().unwrap_or_else(|| panic!("{member} of {run}"))
}

fn options(run: &Value) -> Vec<&str> {
    let options = run["options"].as_array().expect("a list of options");
    options.iter().map(|option| option.as_str().expect("an option")).collect()
}

/// A line without the reason why a record was skipped, which is in each tool's own words.
fn without_reason(line: &str) -> &str {
    match line.find("Error at offset ").and_then(|at| line[at..].find("skipping.").map(|end| at + end)) {
        Some(end) => &line[..end + "skipping.".len()],
        None => line,
    }
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

/// Runs what Kafka's tool was asked and compares everything it answered.
fn compare(folder: &Path, path: &str, run: &Value) {
    let what = format!("{path} {:?}", options(run));
    let answer = in_kafkas_form(&folder.join(path), &options(run));
    let relative = |text: &str| text.replace(&format!("{}/", folder.display()), "");
    let (out, err) = (relative(&answer.out), relative(&answer.err));
    let expected = text(run, "stdout");
    for (number, (found, expected)) in out.split('\n').zip(expected.split('\n')).enumerate() {
        assert_eq!(without_reason(found), without_reason(expected), "{what}, line {}", number + 1);
    }
    assert_eq!(out.split('\n').count(), expected.split('\n').count(), "lines of {what}");
    match run["exit_code"].as_i64() {
        None | Some(0) => {
            assert_eq!(sorted(&err), sorted(text(run, "stderr")), "{what}");
            assert_eq!(answer.status, DumpStatus::Clean, "{what}");
        }
        Some(1) => {
            assert_eq!(answer.status, DumpStatus::FoundWrong, "{what}");
            assert_eq!(err.lines().count(), 1, "one sentence in {err:?} of {what}");
        }
        other => panic!("exit code {other:?} of {what}"),
    }
}

#[test]
fn dump_files() {
    let folder = tempfile::tempdir().unwrap();
    let files = vectors::list("dump_files");
    for file in files {
        let bytes = vectors::bytes(file, "hex").expect("every file has bytes");
        write(folder.path(), text(file, "path"), &bytes);
    }
    let mut runs = 0;
    for file in files {
        for run in file["runs"].as_array().expect("a list of runs") {
            compare(folder.path(), text(file, "path"), run);
            runs += 1;
        }
    }
    assert_eq!(runs, 27);
}

/// Files that no broker writes; `fixtures/dump/make_cases.py` says how they and the answers were made.
#[test]
fn files_made_on_purpose() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/dump/cases.json");
    let cases: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let cases = cases.as_array().expect("a list of files");
    let folder = tempfile::tempdir().unwrap();
    for file in cases {
        write(folder.path(), text(file, "path"), &vectors::bytes(file, "hex").expect("every file has bytes"));
    }
    let mut runs = 0;
    for file in cases {
        for run in file["runs"].as_array().expect("a list of runs") {
            compare(folder.path(), text(file, "path"), run);
            runs += 1;
        }
    }
    assert_eq!(runs, 136);
}

#[test]
fn directory_written_by_kafkas_log_classes() {
    let golden = vectors::group("golden_log_dir");
    let folder = tempfile::tempdir().unwrap();
    let files = golden["closed"].as_object().expect("files of the closed directory");
    for (name, hex) in files {
        write(folder.path(), name, &vectors::hex(hex.as_str().expect("hex")));
    }
    let dumps = golden["dumps"].as_array().expect("a list of dumps");
    assert_eq!(dumps.len(), 11);
    for run in dumps {
        compare(folder.path(), text(run, "file"), run);
    }
}

/// Up to 4.3 the tool printed numbers for states; that is the whole difference.
#[test]
fn dump_transaction_log_4_1_to_4_3() {
    let older = vectors::group("dump_transaction_log_4_1_to_4_3");
    let newer = vectors::named("dump_files", "transaction_state_segment");
    let folder = tempfile::tempdir().unwrap();
    let bytes = vectors::bytes(newer, "hex").expect("the file has bytes");
    let path = write(folder.path(), text(older, "path"), &bytes);
    let answer = in_kafkas_form(&path, &options(older));
    let names = [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
        "8",
        "9",
    ];
    let mut expected = text(older, "stdout").to_owned();
    for (number, name) in names.iter().enumerate() {
        let member = "\"transactionStatus\":";
        expected = expected.replace(&format!("{member}{number},"), &format!("{member}\"{name}\","));
    }
    let found = answer.out.replace(&format!("{}/", folder.path().display()), "");
    let reasons_cut = |text: &str| text.lines().map(without_reason).collect::<Vec<_>>().join("\n");
    assert_eq!(reasons_cut(&found), reasons_cut(&expected));
}

#[test]
fn options_that_cannot_be_had_are_refused_with_a_sentence() {
    for option in ["--value-decoder-class", "--key-decoder-class"] {
        for words in [&[option][..], &[option, "org.example.Decoder"]] {
            let answer = dump(Path::new("x.log"), words);
            assert_eq!((answer.status, &answer.out[..]), (DumpStatus::Usage, ""));
            assert!(answer.err.starts_with(option) && answer.err.lines().count() == 1, "{}", answer.err);
        }
    }
}

#[test]
fn what_cannot_be_read_is_status_3_and_nothing_is_created() {
    let folder = tempfile::tempdir().unwrap();
    let time_index = write(folder.path(), "t-0/00000000000000000000.timeindex", &[0; 12]);
    for format in ["kafka", "text", "json", "ndjson"] {
        for name in ["log", "index", "snapshot", "txnindex"] {
            let path = folder.path().join(format!("t-0/00000000000000000007.{name}"));
            let answer = dump(&path, &["--format", format]);
            assert_eq!(answer.status, DumpStatus::Unreadable, "{format} {name}");
            assert_eq!(answer.err.lines().count(), 1, "{}", answer.err);
        }
        dump(&time_index, &["--format", format]);
    }
    assert_eq!(dump(&folder.path().join("t-0"), &[]).status, DumpStatus::Unreadable);
    assert_eq!(fs::read_dir(folder.path().join("t-0")).unwrap().count(), 1);
}

#[test]
fn json_is_one_document_over_all_files() {
    let folder = tempfile::tempdir().unwrap();
    let log = write(folder.path(), "a-0/00000000000000000000.log", &hostile_log());
    let meta =
        write(folder.path(), "a-0/partition.metadata", b"version: 0\ntopic_id: AAAAAAAAAAEAAAAAAAAAAg");
    let files = [&log, &meta, &log].map(|path| path.to_str().unwrap()).join(",");
    let answer = dump_as(files.into(), &["--format", "json", "--transaction-log-decoder"], false);
    let document: Value = serde_json::from_str(&answer.out).unwrap();
    let files = document["files"].as_array().unwrap();
    assert_eq!(files.len(), 3);
    assert_eq!(files[0]["items"], files[2]["items"]);
    assert_eq!(files[1]["items"][0]["topicId"], "AAAAAAAAAAEAAAAAAAAAAg");
    let record = &files[0]["items"][2];
    assert_eq!(record["decodedKey"]["data"]["transactionalId"], HOSTILE[0]);
}

const HOSTILE: [&str; 8] = [
    "\u{1b}[2J\u{1b}]0;title\u{7}",
    "two\nlines\r\n| offset: 7",
    "right\u{202e}to left\u{2066}\u{200f}",
    "<script>alert(1)</script>",
    "=cmd|' /C calc'!A0",
    "\u{9b}31m\u{7f}\u{0}",
    "\"quotes\" and \\backslashes\\",
    "\u{feff}\u{e0041}",
];

fn hostile_ids() -> Vec<Vec<u8>> {
    let mut ids: Vec<Vec<u8>> = HOSTILE.iter().map(|id| id.as_bytes().to_vec()).collect();
    ids.push(b"\xff\xed\xa0\x80 no UTF-8".to_vec());
    ids.push(vec![b'x'; 32_767]);
    ids
}

/// A transaction log with a record per hostile id, whose topic has the same name.
fn hostile_log() -> Vec<u8> {
    use redrive::batch::{BatchBuilder, NewRecord};
    use redrive::types::Offset;
    let mut log = Vec::new();
    for (offset, id) in (0..).zip(hostile_ids()) {
        let mut key = Vec::new();
        redrive::transaction_log::encode_key(&id, &mut key).unwrap();
        let mut value = Vec::new();
        value.extend_from_slice(&0i16.to_be_bytes());
        value.extend_from_slice(&1000i64.to_be_bytes());
        value.extend_from_slice(&5i16.to_be_bytes());
        value.extend_from_slice(&60_000i32.to_be_bytes());
        value.push(1);
        value.extend_from_slice(&1i32.to_be_bytes());
        value.extend_from_slice(&i16::try_from(id.len()).unwrap().to_be_bytes());
        value.extend_from_slice(&id);
        value.extend_from_slice(&1i32.to_be_bytes());
        value.extend_from_slice(&3i32.to_be_bytes());
        value.extend_from_slice(&[0; 16]);
        let mut builder = BatchBuilder::new(Offset(offset));
        let header = (&id[..], Some(&id[..]));
        builder
            .push(&NewRecord {
                key: Some(&key),
                value: Some(&value),
                headers: &[header],
                ..NewRecord::default()
            })
            .unwrap();
        log.extend_from_slice(&builder.build().unwrap());
    }
    log
}

/// Whether a terminal could be confused.
fn is_hostile(c: char) -> bool {
    c != '\n' && (c.is_control() || "\u{202e}\u{2066}\u{200f}\u{feff}\u{e0041}".contains(c))
}

#[test]
fn hostile_text_is_escaped_and_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let log = write(folder.path(), "\u{1b}]0;x\u{7}\u{202e}-0/00000000000000000000.log", &hostile_log());
    let ids = hostile_ids();
    for decoder in ["--print-data-log", "--transaction-log-decoder", "--offsets-decoder"] {
        for format in ["text", "json", "ndjson"] {
            let answer = dump(&log, &["--format", format, decoder]);
            assert_eq!(answer.out.chars().find(|&c| is_hostile(c)), None, "{format} {decoder}");
            assert_eq!(answer.err.chars().find(|&c| is_hostile(c)), None, "{format} {decoder}");
        }
        let answer = dump_as(log.clone().into(), &["--format", "kafka", decoder], true);
        assert_eq!(answer.out.chars().find(|&c| is_hostile(c)), None, "kafka {decoder}");
        assert_eq!(answer.out.lines().count(), 2 + 2 * ids.len(), "no line can be made up");
        let raw = in_kafkas_form(&log, &[decoder]);
        assert!(raw.out.contains("\u{1b}]0;x\u{7}"), "as Kafka's tool, where no terminal is");
    }

    let answer = dump(&log, &["--format", "ndjson", "--transaction-log-decoder"]);
    assert_eq!(answer.status, DumpStatus::Clean, "{}", answer.err);
    let items: Vec<Value> = answer.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let records: Vec<&Value> = items.iter().filter(|item| item["kind"] == "record").collect();
    assert_eq!(records.len(), ids.len());
    for (record, id) in records.into_iter().zip(&ids) {
        let key = &record["decodedKey"]["data"];
        let topic = &record["decodedValue"]["data"]["transactionPartitions"][0];
        let header = &record["headers"][0];
        let base64 = base64_of(id);
        for (object, name, base64_name) in [
            (key, "transactionalId", "transactionalIdBase64"),
            (topic, "topic", "topicBase64"),
            (header, "key", "keyBase64"),
        ] {
            let shown = object[name].as_str().expect("an id is text");
            match str::from_utf8(id) {
                Ok(text) => assert_eq!((shown, &object[base64_name]), (text, &Value::Null)),
                Err(_) => assert_eq!(object[base64_name], base64),
            }
        }
        assert_eq!(header["value"], base64);
    }
}

/// Standard base64, by the book.
fn base64_of(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let bits = (0..3).fold(0u32, |bits, i| bits << 8 | u32::from(chunk.get(i).copied().unwrap_or(0)));
        for i in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * i) & 63) as usize];
            text.push(if i <= chunk.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

/// The smaller files of every kind, to be damaged.
fn samples() -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<(String, Vec<u8>)> = vectors::list("dump_files")
        .iter()
        .map(|file| (text(file, "path").to_owned(), vectors::bytes(file, "hex").expect("bytes")))
        .filter(|(path, bytes)| path.starts_with("orders-0/") || bytes.len() < 400)
        .collect();
    for (path, text) in [
        ("r/recovery-point-offset-checkpoint", "0\n2\na 0 1\nb 1 2\n"),
        ("r/leader-epoch-checkpoint", "0\n2\n0 0\n5 200\n"),
        ("r/partition.metadata", "version: 0\ntopic_id: AAAAAAAAAAEAAAAAAAAAAg"),
        ("r/meta.properties", "#\nversion=1\nnode.id=3\ncluster.id=abc\n"),
        ("r/.kafka_cleanshutdown", "{\"version\":0,\"brokerEpoch\":7}"),
    ] {
        files.push((path.to_owned(), text.as_bytes().to_vec()));
    }
    for snapshot in vectors::list("producer_snapshots") {
        let path = format!("{}-0/00000000000000000100.snapshot", text(snapshot, "name"));
        files.push((path, vectors::bytes(snapshot, "hex").expect("bytes")));
    }
    files
}

/// Dumps a damaged file in every way. Nothing may panic, every line of JSON is JSON, and damage has a sentence.
fn dump_in_every_way(path: &Path) {
    for decoder in ["--print-data-log", "--offsets-decoder"] {
        in_kafkas_form(path, &[decoder]);
    }
    for options in [&["--format", "ndjson", "--transaction-log-decoder"][..], &["--print-data-log"]] {
        let answer = dump(path, options);
        if options.contains(&"ndjson") {
            let lines = answer.out.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
            let errors = lines.filter(|item| item["kind"] == "error").count();
            assert_eq!(answer.err.lines().count(), errors, "{}", answer.err);
        }
        assert_eq!(answer.status == DumpStatus::Clean, answer.err.is_empty(), "{}", answer.err);
    }
}

#[test]
fn damaged_files_of_every_kind_never_panic() {
    let folder = tempfile::tempdir().unwrap();
    let samples = samples();
    for (path, bytes) in &samples {
        write(folder.path(), path, bytes);
    }
    let mut dumps = 0;
    for (path, bytes) in samples {
        let place = folder.path().join(&path);
        let step = if bytes.len() < 400 { 1 } else { 7 };
        for at in (0..bytes.len()).step_by(step) {
            fs::write(&place, &bytes[..at]).unwrap();
            dump_in_every_way(&place);
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            fs::write(&place, &damaged).unwrap();
            dump_in_every_way(&place);
            dumps += 2;
        }
        // What follows in the same folder is compared with the file as it was.
        fs::write(&place, &bytes).unwrap();
    }
    assert!(dumps > 2000, "{dumps} damaged files dumped");
}
