//! The check of whole directories: what real brokers and Kafka's classes left behind, and what Kafka's own tool says of
//! it.

#![deny(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use redrive::Error;
use redrive::io::{FileSystem, MemoryStorage, Storage};
use redrive::log_dir::verify::{FindingKind, Severity, Verify, VerifyReport};
use redrive_tests::{corpus, vectors};

fn run(storage: Arc<dyn Storage>, root: &Path) -> VerifyReport {
    let verify = Verify::open(storage, [root]).expect("a log directory");
    verify.run(&AtomicBool::new(false), &mut |_| {}).expect("a report")
}

/// File name, with the partition's folder, and kind of each finding.
fn found(report: &VerifyReport) -> Vec<(String, &'static str)> {
    report
        .all_findings()
        .map(|finding| {
            let mut tail = finding.path.iter().rev();
            let name = tail.next().unwrap_or_default().to_string_lossy();
            let folder = tail.next().unwrap_or_default().to_string_lossy();
            (format!("{folder}/{name}"), finding.kind.name())
        })
        .collect()
}

fn files_under(folder: &Path, files: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("a readable folder").path();
        if path.is_dir() {
            files_under(&path, files);
        } else {
            let bytes = fs::read(&path).expect("a readable file");
            files.insert(path, bytes);
        }
    }
}

fn is_padded(path: &Path, bytes: &[u8]) -> bool {
    let entry = match path.extension().and_then(|suffix| suffix.to_str()) {
        Some("index") => 8,
        Some("timeindex") => 12,
        _ => return false,
    };
    bytes.len() >= entry && bytes[bytes.len() - entry..].iter().all(|&byte| byte == 0)
}

/// What brokers that were stopped cleanly left behind has nothing wrong in it, nor anything to remark; those that were
/// not left preallocated indexes, and two of them a torn append.
#[test]
fn directories_of_real_brokers() {
    let (mut clean, mut unclean, mut torn) = (0, 0, 0);
    let mut compared = 0;
    for case in corpus::cases() {
        for root in &case.data_dirs {
            let report = run(Arc::new(FileSystem), root);
            let mut files = BTreeMap::new();
            files_under(root, &mut files);
            let mut expected: BTreeSet<(PathBuf, &str)> = files
                .iter()
                .filter(|(path, bytes)| is_padded(path, bytes))
                .map(|(path, _)| (path.clone(), "preallocated"))
                .collect();
            if root.join(".kafka_cleanshutdown").exists() {
                assert!(expected.is_empty(), "{}", case.name);
                clean += 1;
            } else {
                assert!(!expected.is_empty(), "{}", case.name);
                unclean += 1;
            }
            if case.name.starts_with("unclean-torn-") {
                let partition =
                    if case.name.ends_with("data") { "orders-0" } else { "__transaction_state-0" };
                let path = root.join(partition).join("00000000000000000000.log");
                assert!(files.contains_key(&path), "{}", case.name);
                expected.insert((path, "torn-tail"));
                torn += 1;
            }
            let found: BTreeSet<(PathBuf, &str)> =
                report.all_findings().map(|finding| (finding.path.clone(), finding.kind.name())).collect();
            assert_eq!(found, expected, "{}", case.name);
            assert_eq!(report.errors(), 0, "{}", case.name);
            assert!(report.all_findings().all(|finding| finding.is_repaired_at_start), "{}", case.name);
            let logs = files.keys().filter(|path| path.extension().is_some_and(|suffix| suffix == "log"));
            assert_eq!(report.counts().segments, logs.count() as u64, "{}", case.name);
            compared += report.counts().snapshots_compared;
        }
    }
    println!("{clean} clean, {unclean} unclean, {torn} torn, {compared} snapshots compared");
    assert!(
        clean >= 20 && unclean >= 10 && torn == 2 && compared >= 500,
        "{clean} {unclean} {torn} {compared}"
    );
}

/// What is torn is what a broker cut at its next start, at the offset of which its own log tells.
#[test]
fn torn_tails_are_what_a_broker_cuts() {
    for name in ["unclean-torn-data", "unclean-torn-txn-state"] {
        let case = corpus::case(name);
        let told = case.oracle_text("restart-log.txt").expect("the broker's log");
        let cut = told.lines().find(|line| line.contains("Corruption found")).expect("a cut");
        let (_, offset) = cut.trim().rsplit_once(' ').expect("an offset");
        let report = run(Arc::new(FileSystem), &case.data_dirs[0]);
        let tails: Vec<_> =
            report.all_findings().filter(|finding| finding.kind.name() == "torn-tail").collect();
        let [tail] = tails[..] else { panic!("{tails:?}") };
        assert_eq!(tail.offset.map(|offset| offset.to_string()).as_deref(), Some(offset), "{name}");
        let partition = tail.topic_partition.as_ref().expect("a partition").to_string();
        assert!(cut.contains(&format!("partition={partition},")), "{name}: {cut}");
        let FindingKind::TornTail { bytes, .. } = tail.kind else { panic!("{tail}") };
        let position = tail.position.expect("a place");
        let file = tail.path.file_name().and_then(|name| name.to_str()).expect("a name");
        let sizes = case.oracle_json("file-sizes-before-and-after-recovery.json").expect("sizes");
        let sizes = &sizes["partitions"][&partition][file];
        assert_eq!(sizes[0].as_u64(), Some(position + bytes), "{name}");
        // The broker may have appended since.
        assert!(sizes[1].as_u64().is_some_and(|size| size >= position), "{name}: {sizes}");
    }
}

/// Kafka's tool complains of every time index that is preallocated, and of no index that is not.
#[test]
fn complaints_of_kafkas_tool() {
    let (mut complaints, mut preallocated) = (0, 0);
    for case in corpus::cases() {
        for (root, dump) in case.data_dirs.iter().zip(["dump", "dump-broker-2"]) {
            let mut texts: BTreeMap<PathBuf, Vec<u8>> = BTreeMap::new();
            let folder = case.oracle.join(dump);
            if !folder.is_dir() {
                continue;
            }
            files_under(&folder, &mut texts);
            // An entry that names an emptied batch is fine: there is no record left whose time the tool could find.
            let is_about_no_record = |text: &[u8]| {
                let text = String::from_utf8_lossy(text);
                let mut times = text.lines().filter(|line| line.contains("Index timestamp:")).peekable();
                times.peek().is_some() && times.all(|line| line.ends_with("log timestamp: -1"))
            };
            let expected: BTreeSet<PathBuf> = texts
                .iter()
                .filter(|(_, text)| !is_about_no_record(text))
                .filter_map(|(path, _)| {
                    let path = path.strip_prefix(&folder).expect("inside").to_str().expect("text");
                    let index = path.split_once("index.").filter(|(_, rest)| rest.contains("err.txt"))?.0;
                    Some(root.join(format!("{index}index")))
                })
                .collect();
            complaints += expected.len();
            let report = run(Arc::new(FileSystem), root);
            let found: BTreeSet<PathBuf> = report
                .all_findings()
                .filter(|finding| finding.kind.name() == "preallocated")
                .map(|finding| finding.path.clone())
                .collect();
            preallocated += found.len();
            assert!(found.is_superset(&expected), "{}: {:?}", case.name, expected.difference(&found));
            // Of an offset index it complains only where there is no entry before the zeros.
            let silent: Vec<_> = found.difference(&expected).collect();
            let is_offset_index = |path: &&PathBuf| path.extension().is_some_and(|suffix| suffix == "index");
            assert!(silent.iter().all(is_offset_index), "{}: {silent:?}", case.name);
        }
    }
    assert!(complaints >= 30, "{complaints} complaints, {preallocated} preallocated");
}

/// Each segment that Kafka's classes recovered: what they cut or refuse is found, and what has nothing wrong is not.
#[test]
fn recovery_cases() {
    let expected: BTreeMap<&str, &[&str]> = [
        // A good batch follows, so this is no torn append.
        ("bad_crc_first", &["crc"][..]),
        ("bad_crc_second", &["crc", "epoch-goes-back"]),
        ("zero_tail", &["torn-tail"]),
        ("truncated_tail", &["torn-tail"]),
        ("length_13_second", &["torn-tail"]),
        ("codec_5", &["records"]),
        ("count_negative", &["bad-frame"]),
        ("magic_3", &["bad-frame"]),
        ("offsets_repeat_twice", &["offset-goes-back"]),
        ("offsets_repeat_three_times", &["offset-goes-back", "offset-goes-back"]),
        ("last_offset_below_base", &["bad-frame"]),
        ("first_offset_below_base", &["below-base"]),
        ("offset_overflow", &["out-of-reach"]),
        ("control_key_short", &["control-record", "producer"]),
        ("control_value_short_then_good", &["control-record", "producer"]),
        ("control_key_short_then_good", &["control-record", "producer"]),
        ("control_unknown_type_with_producer", &["producer"]),
        ("control_leader_change", &[]),
        ("nontransactional_in_transaction", &["producer"]),
        ("empty_control_unknown_producer", &[]),
        ("empty_data_unknown_producer", &[]),
        ("commit_same_epoch", &[]),
        ("abort_same_epoch", &[]),
        ("abort_bumped_epoch", &[]),
        ("abort_without_data", &[]),
        ("two_producers_interleaved", &[]),
        ("stale_epochs", &[]),
        ("legacy", &[]),
        ("leader_epochs", &["epoch-goes-back"]),
    ]
    .into();
    let cases = vectors::list("recovery_cases");
    assert_eq!(cases.len(), expected.len());
    let mut wrong = Vec::new();
    for vector in cases {
        let name = vector["name"].as_str().expect("a name");
        let segment = vector["segment_file"].as_str().expect("a file name");
        let storage = MemoryStorage::new();
        let log = vectors::bytes(vector, "hex").expect("a segment");
        storage.write(format!("/logs/orders-0/{segment}"), log);
        let report = run(Arc::new(storage), Path::new("/logs"));
        let kinds: Vec<_> = report
            .all_findings()
            .map(|finding| finding.kind.name())
            .filter(|kind| *kind != "missing-indexes")
            .collect();
        if kinds != expected[name] {
            wrong.push(format!("{name}: {:?}", found(&report)));
        }
        if vector["loads"] == false && report.errors() == 0 {
            wrong.push(format!("{name}: {:?}", report.partitions[0].findings));
        }
        // The files that a recovery left have nothing wrong, where it kept nothing that is.
        let Some(after) = vector["files_after"].as_object() else { continue };
        let storage = MemoryStorage::new();
        for (file, hex) in after {
            storage.write(format!("/logs/orders-0/{file}"), vectors::hex(hex.as_str().expect("hex")));
        }
        storage.write("/logs/.kafka_cleanshutdown", &b"{\"version\":0,\"brokerEpoch\":1}"[..]);
        let report = run(Arc::new(storage), Path::new("/logs"));
        let is_kept = ["codec_5", "count_negative", "magic_3", "first_offset_below_base"].contains(&name)
            || name == "offsets_repeat_twice"
            || name == "leader_epochs";
        if (report.errors() > 0) != is_kept {
            wrong.push(format!("{name}, recovered: {:?}", found(&report)));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Folders after a crash in a replacement, and with names of all kinds.
#[test]
fn directory_cases() {
    let expected: BTreeMap<&str, &[(&str, &str)]> = [
        (
            "orphan_indexes_and_missing_index",
            &[
                ("/orders-0", "missing-indexes"),
                ("orders-0/00000000000000000050.index", "no-segment"),
                ("orders-0/00000000000000000060.txnindex", "no-segment"),
            ][..],
        ),
        ("missing_timeindex", &[("logs/orders-0", "missing-indexes")]),
        ("zero_tail_clean", &[("orders-0/00000000000000000000.log", "longer-than-data")]),
        ("foreign_log_name", &[("orders-0/foo.log", "misleading-name")]),
    ]
    .into();
    let mut seen = 0;
    for vector in vectors::list("directory_cases") {
        let name = vector["name"].as_str().expect("a name");
        let storage = MemoryStorage::new();
        for (file, hex) in vector["files_before"].as_object().expect("files") {
            storage.write(format!("/logs/orders-0/{file}"), vectors::hex(hex.as_str().expect("hex")));
        }
        if vector["clean_shutdown"] == true {
            storage.write("/logs/.kafka_cleanshutdown", &b"{\"version\":0,\"brokerEpoch\":1}"[..]);
        }
        let report = run(Arc::new(storage), Path::new("/logs"));
        let found = found(&report);
        match expected.get(name) {
            Some(expected) => {
                let kinds: Vec<_> = found.iter().map(|(_, kind)| *kind).collect();
                assert_eq!(kinds, expected.iter().map(|(_, kind)| *kind).collect::<Vec<_>>(), "{name}");
                for ((path, _), (end, _)) in found.iter().zip(*expected) {
                    assert!(path.ends_with(end.trim_start_matches("logs")), "{name}: {path}");
                }
                seen += 1;
            }
            None => {
                assert!(found.iter().any(|(_, kind)| *kind == "leftover"), "{name}: {found:?}");
                let errors: Vec<_> =
                    report.all_findings().filter(|finding| finding.severity == Severity::Error).collect();
                assert!(errors.is_empty(), "{name}: {errors:?}");
            }
        }
        assert_eq!(report.errors() > 0, vector["loads"] == false, "{name}: {found:?}");
        if vector["loads"] == true {
            let end = Some(report.partitions[0].log_end_offset.0);
            assert_eq!(end, vector["log_end_offset"].as_i64(), "{name}");
        }
    }
    assert_eq!(seen, expected.len());
}

/// The log directory that Kafka's own classes wrote: cleanly closed it is fine, with the live indexes they are told for
/// what they are.
#[test]
fn golden_directory() {
    let golden = vectors::group("golden_log_dir");
    let files = |part: &str| -> BTreeMap<String, Vec<u8>> {
        let files = golden[part].as_object().expect("files");
        files.iter().map(|(name, hex)| (name.clone(), vectors::hex(hex.as_str().expect("hex")))).collect()
    };
    let closed = files("closed");
    let storage = |files: &BTreeMap<String, Vec<u8>>, is_clean: bool| {
        let storage = MemoryStorage::new();
        for (name, bytes) in files {
            storage.write(format!("/logs/orders-0/{name}"), bytes.clone());
        }
        if is_clean {
            storage.write("/logs/.kafka_cleanshutdown", &b"{\"version\":0,\"brokerEpoch\":1}"[..]);
        }
        Arc::new(storage)
    };
    let report = run(storage(&closed, true), Path::new("/logs"));
    assert_eq!(found(&report), []);
    let counts = report.counts();
    assert!(
        counts.segments >= 2 && counts.index_entries > 10 && counts.snapshots_compared >= 2,
        "{counts:?}"
    );

    let live = files("live");
    let mut open = closed.clone();
    open.extend(live.clone());
    let padded = live.iter().filter(|(name, bytes)| is_padded(Path::new(name), bytes)).count();
    assert!(padded > 0);
    let kinds = |report: &VerifyReport| found(report).into_iter().map(|(_, kind)| kind).collect::<Vec<_>>();
    assert_eq!(kinds(&run(storage(&open, false), Path::new("/logs"))), vec!["preallocated"; padded]);
    // After a clean stop a broker would take the zeros for entries.
    assert_eq!(kinds(&run(storage(&open, true), Path::new("/logs"))), vec!["padding"; padded]);
}

/// Nothing is made or changed, whatever there is.
#[test]
fn nothing_is_changed() {
    let folder = tempfile::tempdir().expect("a folder");
    let case = corpus::case("unclean-torn-data");
    let roots = case.copy_to(folder.path()).expect("a copy");
    let state = || {
        let mut files = BTreeMap::new();
        files_under(folder.path(), &mut files);
        let times: Vec<_> = files
            .keys()
            .map(|path| fs::metadata(path).and_then(|file| file.modified()).expect("a time"))
            .collect();
        (files, times)
    };
    let before = state();
    assert!(run(Arc::new(FileSystem), &roots[0]).notes() > 0);
    assert!(before == state());
}

/// A directory of a running broker is read like any other, and said to be moving.
#[test]
fn held_directories_cancelling_and_selection() {
    let storage = MemoryStorage::new();
    let vector = vectors::named("recovery_cases", "two_producers_interleaved");
    for partition in ["a-0", "a-1", "b-0"] {
        let path = format!("/logs/{partition}/00000000000000000000.log");
        storage.write(path, vectors::bytes(vector, "hex").expect("a segment"));
    }
    storage.write("/logs/.lock", &b""[..]);
    storage.lock("/logs/.lock");
    let storage: Arc<dyn Storage> = Arc::new(storage);
    let report = run(Arc::clone(&storage), Path::new("/logs"));
    assert!(report.is_moving && report.errors() == 0);
    assert_eq!(report.partitions.len(), 3);

    let open =
        || Verify::open(Arc::clone(&storage), [Path::new("/logs"), Path::new("/logs/a-0")]).expect("open");
    let names = |verify: Verify| -> Vec<String> {
        let mut done = 0;
        let report = verify
            .run(&AtomicBool::new(false), &mut |progress| {
                done = progress.partitions;
                assert!(progress.bytes <= progress.bytes_total);
            })
            .expect("a report");
        assert_eq!(done, report.partitions.len(), "told once at the end");
        report.partitions.iter().map(|partition| partition.topic_partition.to_string()).collect()
    };
    assert_eq!(names(open()), ["a-0", "a-1", "b-0"], "a folder that is given twice is looked at once");
    assert_eq!(names(open().topic("a")), ["a-0", "a-1"]);
    assert_eq!(names(open().partitions(&[0])), ["a-0", "b-0"]);
    let cancelled = open().run(&AtomicBool::new(true), &mut |_| {});
    assert!(matches!(cancelled, Err(Error::Cancelled)));
}
