//! `redrive recover`: real directories after an unclean stop, against what a broker's start made of them; dry runs,
//! which change nothing and say the same; a recovery that is killed.

#![deny(unsafe_code)]

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command as Process, Stdio};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::thread;
use std::time::{Duration, SystemTime};

use clap::Parser;
use redrive::io::{FileSystem, Storage};
use redrive_tests::corpus;
use redrive_tools::cli::{Cli, Command};
use redrive_tools::console::{Console, Paint};
use redrive_tools::recover;
use serde_json::Value;
use tempfile::TempDir;

/// Until a new process has begun its program it shares every open file of this one, and with them locks. So none begins
/// while a directory is locked here.
static LOCKS: RwLock<()> = RwLock::new(());

fn no_fork() -> RwLockReadGuard<'static, ()> {
    LOCKS.read().unwrap_or_else(PoisonError::into_inner)
}

/// What the command printed, and its exit status.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Run {
    out: String,
    err: String,
    status: u8,
}

#[derive(Clone, Default)]
struct Captured(Arc<Mutex<Vec<u8>>>);

impl Write for Captured {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Captured {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()).expect("UTF-8")
    }
}

fn parse(root: &Path, options: &[&str]) -> Result<Cli, clap::Error> {
    let start = ["redrive".as_ref(), "recover".as_ref(), root.as_os_str()];
    Cli::try_parse_from(start.into_iter().chain(options.iter().map(AsRef::as_ref)))
}

fn run(root: &Path, options: &[&str]) -> Run {
    let cli = parse(root, options).expect("a command line");
    let Command::Recover(args) = cli.command else { panic!("another command") };
    let (out, err) = (Captured::default(), Captured::default());
    let mut console = Console {
        out: Box::new(out.clone()),
        err: Box::new(err.clone()),
        out_is_terminal: false,
        paint_out: Paint(false),
        paint_err: Paint(false),
        shows_progress: false,
    };
    let (status, failure) = match recover::run(&args, &mut console) {
        Ok(status) => (status.code(), String::new()),
        Err(failure) => (failure.code(), failure.to_string()),
    };
    Run { out: out.text(), err: err.text() + &failure, status }
}

fn json(run: &Run) -> Value {
    serde_json::from_str(&run.out).unwrap_or_else(|error| panic!("{error}: {run:?}"))
}

/// Every file below a folder, by its path from there, with its bytes.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    fn walk(root: &Path, folder: &Path, found: &mut BTreeMap<String, Vec<u8>>) {
        for entry in fs::read_dir(folder).expect("a readable folder") {
            let path = entry.expect("a readable folder").path();
            if path.is_dir() {
                walk(root, &path, found);
            } else {
                let name = path.strip_prefix(root).expect("below").to_string_lossy().into_owned();
                found.insert(name, fs::read(&path).expect("a readable file"));
            }
        }
    }
    let mut found = BTreeMap::new();
    walk(folder, folder, &mut found);
    found
}

/// When each file and folder was changed last.
fn times(folder: &Path) -> BTreeMap<PathBuf, SystemTime> {
    let mut found = BTreeMap::new();
    let modified = |path: &Path| fs::metadata(path).and_then(|file| file.modified()).expect("a time");
    found.insert(folder.to_path_buf(), modified(folder));
    for entry in fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("a readable folder").path();
        if path.is_dir() {
            found.extend(times(&path));
        }
        found.insert(path.clone(), modified(&path));
    }
    found
}

/// A dry run must change nothing.
#[track_caller]
fn dry_run(root: &Path, options: &[&str]) -> Run {
    let before = (files(root), times(root));
    let run = run(root, &[&["--dry-run"], options].concat());
    assert!(before == (files(root), times(root)), "a dry run changed something");
    run
}

/// Recovers in every form of output, on a copy each, and checks that a dry run says the same before and has nothing to
/// say afterwards. Gives the document and a recovered copy.
#[track_caller]
fn recover_every_way(make: &dyn Fn() -> (TempDir, PathBuf), options: &[&str]) -> (Value, TempDir, PathBuf) {
    let mut last = None;
    for format in ["text", "ndjson", "json"] {
        let (folder, root) = make();
        let options = [options, &["--format", format, "--threads", "2"]].concat();
        let dry = dry_run(&root, &options);
        let real = run(&root, &[&["--in-place"], &options[..]].concat());
        assert_eq!((&dry.out, dry.status), (&real.out, real.status), "{real:?}");
        assert_eq!(real.err, "");
        assert_eq!(dry.err.contains("nothing was changed"), format == "text");
        let has_refused = real.out.contains("refused:") || real.out.contains("\"outcome\":\"refused\"");
        if !has_refused {
            let again = dry_run(&root, &["--format", "json"]);
            let report = json(&again);
            assert_eq!((report["partitionsChanged"].as_u64(), again.status), (Some(0), 0), "{again:?}");
            assert_eq!(report["cleanShutdown"], true);
            assert!(dry_run(&root, &[]).out.ends_with("\n  nothing to do\n"));
        }
        last = Some((real, folder, root));
    }
    let (real, folder, root) = last.expect("three forms");
    let report = json(&real);
    let is_fine = report["partitions"]
        .as_array()
        .expect("partitions")
        .iter()
        .all(|partition| partition["outcome"] == "recovered" && partition["lostRecords"] == false);
    assert_eq!(real.status, u8::from(!is_fine));
    (report, folder, root)
}

fn copy_of(case: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let roots = corpus::case(case).copy_to(folder.path()).expect("a copy");
    let root = roots[0].canonicalize().expect("a folder");
    (folder, root)
}

fn partition<'v>(report: &'v Value, topic: &str, number: i64) -> &'v Value {
    let all = report["partitions"].as_array().expect("partitions");
    let found = all.iter().find(|partition| partition["topic"] == topic && partition["partition"] == number);
    found.unwrap_or_else(|| panic!("no {topic}-{number} in {report}"))
}

const UNCLEAN: [&str; 4] =
    ["unclean-stop", "unclean-stop-small-index", "unclean-torn-data", "unclean-torn-txn-state"];

/// Sizes of all files after a broker recovered the same directory and was stopped, and where the logs end.
#[test]
fn real_directories_become_what_a_broker_makes_of_them() {
    let _no_fork = no_fork();
    let (mut compared, mut cuts) = (0, 0);
    for name in UNCLEAN {
        let case = corpus::case(name);
        let (report, _folder, root) = recover_every_way(&|| copy_of(name), &[]);
        let sizes = case.oracle_json("file-sizes-before-and-after-recovery.json").expect("sizes");
        let before = files(&case.data_dirs[0]);
        let after = files(&root);
        for (folder, expected) in sizes["partitions"].as_object().expect("partitions") {
            let expected = expected.as_object().expect("files");
            // Transactions of the last broker were completed by the one that was started: of the segment that grew, only
            // the log as it was can be compared.
            let grown = expected.iter().find_map(|(file, both)| {
                let base = file.strip_suffix(".log")?;
                (both[0].as_u64() < both[1].as_u64()).then_some(base.to_owned())
            });
            let is_compared = |file: &str| match (&grown, file.split_once('.')) {
                // The broker that was started led the partition in a new epoch.
                _ if file == "leader-epoch-checkpoint" => false,
                (Some(grown), Some((base, suffix))) => base < &grown[..] || suffix == "log",
                _ => true,
            };
            let of_folder = |files: &BTreeMap<String, Vec<u8>>| -> BTreeMap<String, usize> {
                let own = files.iter().filter_map(|(path, bytes)| {
                    Some((path.strip_prefix(&format!("{folder}/"))?.to_owned(), bytes.len()))
                });
                own.filter(|(file, _)| is_compared(file)).collect()
            };
            let mut sizes = of_folder(&before);
            let is_grown = |file: &str| grown.as_ref().is_some_and(|base| *file == format!("{base}.log"));
            for (file, both) in expected.iter().filter(|(file, _)| is_compared(file) && !is_grown(file)) {
                match both[1].as_u64() {
                    Some(size) => sizes.insert(file.clone(), size as usize),
                    None => sizes.remove(file),
                };
                compared += 1;
            }
            assert_eq!(of_folder(&after), sizes, "{name}/{folder}");
        }
        let offsets = case.oracle_json("offsets.json").expect("offsets");
        for (partition, expected) in offsets.as_object().expect("partitions") {
            let (topic, number) = partition.rsplit_once('-').expect("a partition");
            let found = self::partition(&report, topic, number.parse().expect("a number"));
            assert_eq!(found["logEndOffset"], expected["latest_read_uncommitted"], "{name}/{partition}");
            assert_eq!(found["logStartOffset"], expected["earliest"], "{name}/{partition}");
        }
        assert_eq!(report["cleanShutdown"], false);
        cuts += report["segmentsCut"].as_u64().expect("a number");
        // A recovered root is no proof that a broker with its last epoch wrote everything.
        assert_eq!(after[".kafka_cleanshutdown"], b"{\"version\":0,\"brokerEpoch\":-1}");
        assert!(after.keys().all(|file| !file.ends_with(".deleted") && !file.ends_with(".tmp")));
    }
    assert!(compared > 30 && cuts == 2, "{compared} sizes, {cuts} cuts");
}

/// The one cut of a case, as people and programs are told of it.
#[test]
fn a_cut_is_told_with_its_place() {
    let _no_fork = no_fork();
    let (_folder, root) = copy_of("unclean-torn-data");
    let text = dry_run(&root, &[]);
    let line = "    cut 00000000000000000000.log at offset 49, byte 289,966, 150,000 bytes: ";
    assert!(text.out.contains("orders-0  offsets 0 to 49\n"), "{}", text.out);
    assert!(text.out.contains(line), "{}", text.out);
    assert!(text.out.ends_with("  1 cut, 150,000 bytes\n"), "{}", text.out);
    let report = json(&dry_run(&root, &["--format", "json"]));
    let segment = &partition(&report, "orders", 0)["segments"][0];
    assert_eq!(segment["why"], "unclean");
    let cut = &segment["cut"];
    assert_eq!(
        (cut["offset"].as_i64(), cut["position"].as_i64(), cut["bytes"].as_i64()),
        (Some(49), Some(289_966), Some(150_000))
    );
    assert!(cut["reason"].as_str().is_some_and(|reason| !reason.is_empty()));
    assert_eq!((&report["segmentsCut"], &report["bytesCut"]), (&Value::from(1), &Value::from(150_000)));
    let lines = dry_run(&root, &["--format", "ndjson"]);
    let lines: Vec<Value> =
        lines.out.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    assert_eq!(Value::from(lines), report["partitions"]);
}

/// The `.log` files of a folder, by base offset.
fn logs(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a readable folder");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("a readable folder").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|suffix| suffix == "log"));
    paths.sort();
    paths
}

fn base_offset(path: &Path) -> i64 {
    path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse().ok()).expect("an offset")
}

/// Behind a cut nothing stays; the same damage after a clean stop is not looked for.
#[test]
fn segments_behind_a_cut_are_dropped() {
    let _no_fork = no_fork();
    let make = || {
        let (folder, root) = copy_of("unclean-stop");
        let logs = logs(&root.join("events-0"));
        let damaged = &logs[logs.len() - 3];
        let mut bytes = fs::read(damaged).expect("a log");
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(damaged, bytes).expect("written");
        (folder, root)
    };
    let (_clean, root) = make();
    let before = logs(&root.join("events-0"));
    let (report, _folder, root) = recover_every_way(&make, &[]);
    let events = partition(&report, "events", 0);
    let gone: Vec<i64> = before[before.len() - 2..].iter().map(|path| base_offset(path)).collect();
    assert_eq!(events["dropped"], Value::from(gone));
    assert_eq!(report["segmentsDropped"], 2);
    let last = events["segments"].as_array().and_then(|segments| segments.last()).expect("a segment");
    assert_eq!(last["baseOffset"].as_i64(), Some(base_offset(&before[before.len() - 3])));
    assert_eq!(last["cut"]["offset"], events["logEndOffset"]);
    let after = logs(&root.join("events-0"));
    assert_eq!(after.len(), before.len() - 2);
    let size = fs::metadata(&after[after.len() - 1]).expect("there").len();
    assert_eq!(last["cut"]["position"].as_u64(), Some(size));
    let (_folder, root) = make();
    let text = dry_run(&root, &[]).out;
    assert!(text.contains("    dropped the segments behind the cut, by base offset: "), "{text}");
    assert!(text.contains("1 cut, ") && text.contains(" · 2 segments dropped\n"), "{text}");
}

/// A log that ends below its log start is refused, or emptied where that is allowed; the others are recovered.
#[test]
fn a_reset_has_to_be_asked_for() {
    let _no_fork = no_fork();
    let make = || {
        let (folder, root) = copy_of("unclean-torn-data");
        fs::write(root.join("log-start-offset-checkpoint"), "0\n1\norders 0 1000\n").expect("written");
        (folder, root)
    };
    let (report, _folder, root) = recover_every_way(&make, &[]);
    let orders = partition(&report, "orders", 0);
    assert_eq!((&orders["outcome"], &report["partitionsRefused"]), (&"refused".into(), &1.into()));
    assert_eq!(orders["error"]["kind"], "ends-below-log-start");
    assert_eq!(partition(&report, "__transaction_state", 0)["outcome"], "recovered");
    assert!(!root.join(".kafka_cleanshutdown").exists());
    let text = dry_run(&root, &[]).out;
    assert!(text.contains("orders-0  refused: ") && text.contains("--reset empties it"), "{text}");

    let (report, _folder, root) = recover_every_way(&make, &["--reset"]);
    let orders = partition(&report, "orders", 0);
    assert_eq!((&orders["wasReset"], &report["logsReset"]), (&true.into(), &1.into()));
    assert_eq!((&orders["logStartOffset"], &orders["logEndOffset"]), (&1000.into(), &1000.into()));
    assert_eq!(logs(&root.join("orders-0")), [root.join("orders-0/00000000000000001000.log")]);
}

/// Producer snapshots that cannot be used, and leftovers of all kinds.
#[test]
fn snapshots_and_leftovers() {
    let _no_fork = no_fork();
    let make = || {
        let (folder, root) = copy_of("unclean-stop");
        let events = root.join("events-0");
        let base = base_offset(logs(&events).last().expect("segments"));
        for name in ["99.log.deleted", "98.index.deleted", "97.log.cleaned"] {
            fs::write(events.join(format!("{:0>20}.{}", &name[..2], &name[3..])), "old").expect("written");
        }
        fs::write(events.join(format!("{base:020}.snapshot")), "no snapshot").expect("written");
        (folder, root)
    };
    let (report, _folder, root) = recover_every_way(&make, &[]);
    let events = partition(&report, "events", 0);
    let tidied = events["tidied"].as_array().expect("names");
    assert_eq!(tidied.len(), 3, "{tidied:?}");
    assert!(tidied.contains(&"00000000000000000099.log.deleted".into()));
    assert!(files(&root).keys().all(|name| !name.ends_with(".deleted") && !name.ends_with(".cleaned")));
    assert_eq!((&events["lostRecords"], &events["changed"]), (&false.into(), &true.into()));
    let (_folder, root) = make();
    let text = dry_run(&root, &[]).out;
    assert!(text.contains("    leftovers tidied up: "), "{text}");
    assert!(text.ends_with("\n  recovered, no record lost\n"), "{text}");
}

/// A cleanly closed directory stays as it is, with the epoch of the broker that closed it.
#[test]
fn after_a_clean_stop_nothing_is_done() {
    let _no_fork = no_fork();
    let (_folder, root) = copy_of(corpus::PLAIN_CASE);
    let before = files(&root);
    let mark = before.get(".kafka_cleanshutdown").expect("a clean stop");
    assert!(!String::from_utf8_lossy(mark).contains("-1"), "the epoch of a broker");
    let run = run(&root, &["--in-place"]);
    assert_eq!((run.status, &run.err[..]), (0, ""));
    assert!(
        run.out.contains("was cleanly shut down") && run.out.ends_with("  nothing to do\n"),
        "{}",
        run.out
    );
    let after = files(&root);
    for (name, bytes) in &before {
        if name.ends_with("-checkpoint") && !name.contains('/') {
            // In another order.
            let lines = |bytes: &[u8]| {
                let mut lines: Vec<_> = bytes.split(|&byte| byte == b'\n').map(<[u8]>::to_vec).collect();
                lines.sort();
                lines
            };
            assert_eq!(lines(&after[name]), lines(bytes), "{name}");
        } else {
            assert!(after.get(name) == Some(bytes), "{name}");
        }
    }
    let new: Vec<_> = after.keys().filter(|name| !before.contains_key(*name)).collect();
    assert!(new.iter().all(|name| *name == ".lock"), "{new:?}");
}

/// A last batch that is not whole goes although the log was cleanly closed; then the broker's epoch proves nothing.
#[test]
fn a_torn_tail_behind_a_clean_stop() {
    let _no_fork = no_fork();
    let make = || {
        let (folder, root) = copy_of(corpus::PLAIN_CASE);
        let log = torn_log(&root);
        let bytes = fs::read(&log).expect("a log");
        fs::write(&log, &bytes[..bytes.len() - 1]).expect("written");
        (folder, root)
    };
    let (report, _folder, root) = recover_every_way(&make, &[]);
    let torn = torn_log(&root);
    let folder = torn.parent().and_then(Path::file_name).and_then(|name| name.to_str()).expect("a folder");
    let (topic, number) = folder.rsplit_once('-').expect("a partition");
    let partition = partition(&report, topic, number.parse().expect("a number"));
    let segments = partition["segments"].as_array().expect("segments");
    assert_eq!((segments.len(), &segments[0]["why"]), (1, &"torn-tail".into()));
    assert_eq!((&report["cleanShutdown"], &report["segmentsRecovered"]), (&true.into(), &1.into()));
    assert_eq!(segments[0]["cut"]["position"].as_u64(), Some(fs::metadata(&torn).expect("there").len()));
    assert_eq!(files(&root)[".kafka_cleanshutdown"], b"{\"version\":0,\"brokerEpoch\":-1}");
}

/// The longest log of a root.
fn torn_log(root: &Path) -> PathBuf {
    let folders = fs::read_dir(root).expect("a root").map(|entry| entry.expect("an entry").path());
    let all = folders.filter(|path| path.is_dir()).filter_map(|folder| logs(&folder).pop());
    let longest = all.max_by_key(|path| fs::metadata(path).expect("there").len());
    longest.expect("a log")
}

/// The interval of index entries is that of the broker's settings: offline nobody knows it.
#[test]
fn index_settings_are_taken() {
    let _no_fork = no_fork();
    let (_folder, root) = copy_of("unclean-torn-data");
    let report = json(&dry_run(&root, &["--format", "json"]));
    let batches = partition(&report, "orders", 0)["segments"][0]["batches"].as_u64().expect("a number");
    let entries = |options: &[&str]| {
        let (_folder, root) = copy_of("unclean-torn-data");
        run(&root, &[&["--in-place"], options].concat());
        let size = |name: &str| fs::metadata(root.join("orders-0").join(name)).expect("there").len();
        (size("00000000000000000000.index") / 8, size("00000000000000000000.timeindex") / 12)
    };
    assert_eq!(entries(&[]), (1, 2));
    // The first batch never gets one.
    let (dense, _) = entries(&["--index-interval-bytes", "0"]);
    assert!(dense == batches - 1 && dense > 10, "{dense} of {batches}");
    let (offsets, times) = entries(&["--index-interval-bytes", "0", "--segment-index-bytes", "64"]);
    assert!(offsets <= 8 && times <= 5, "{offsets}, {times}");
}

/// What a broker holds is left alone in either mode; so is what is no log directory.
#[test]
fn what_is_refused() {
    let _no_fork = no_fork();
    let (folder, root) = copy_of("unclean-torn-data");
    let lock = FileSystem.lock_file(&root.join(".lock")).expect("free");
    let before = (files(&root), times(&root));
    for mode in ["--in-place", "--dry-run"] {
        let held = run(&root, &[mode]);
        assert_eq!((held.status, &held.out[..]), (3, ""), "{held:?}");
        assert!(held.err.starts_with("a running broker holds "), "{}", held.err);

        let one = run(&root.join("orders-0"), &[mode]);
        assert_eq!(one.status, 2, "{one:?}");
        assert!(one.err.contains("folder of one partition"), "{}", one.err);

        let missing = folder.path().join("missing");
        assert_eq!(run(&missing, &[mode]).status, 3);
        assert!(!missing.exists());
        let foreign = folder.path().join("foreign");
        fs::create_dir_all(foreign.join("pictures")).expect("made");
        assert_eq!(run(&foreign, &[mode]).status, 3);
        assert_eq!(fs::read_dir(&foreign).expect("a folder").count(), 1);
    }
    assert!(before == (files(&root), times(&root)));
    drop(lock);
    assert_eq!(run(&root, &["--dry-run"]).status, 1);

    for options in [
        &[][..],
        &["--in-place", "--dry-run"],
        &["--dry-run", "--segment-index-bytes", "8"],
        &["--dry-run", "--index-interval-bytes", "4294967295"],
        &["--dry-run", "--threads", "0"],
    ] {
        let error = parse(&root, options).expect_err("no command line");
        assert_eq!(error.exit_code(), 2, "{options:?}");
    }
}

/// Tells the child which directory to recover.
const KILLED: &str = "REDRIVE_TEST_RECOVER";

/// Only of use to [`killed_in_the_middle`], which runs it in a process of its own.
#[test]
fn child_that_recovers() {
    if let Some(root) = env::var_os(KILLED) {
        let args = ["redrive".into(), "recover".into(), root, "--in-place".into(), "--threads=1".into()];
        redrive_tools::run(args);
    }
}

/// Killed at any moment, a recovery is begun again, and ends as if nothing had been.
#[test]
fn killed_in_the_middle() {
    const COPIES: usize = 12;
    let make = || {
        let (folder, root) = copy_of("unclean-stop");
        let torn = corpus::case("unclean-torn-data");
        for number in 1..COPIES {
            // Whole ones and torn ones in turn.
            let from = match number % 2 {
                0 => root.join("events-0"),
                _ => torn.data_dirs[0].join("orders-0"),
            };
            let to = root.join(format!("events-{number}"));
            fs::create_dir(&to).expect("made");
            for entry in fs::read_dir(from).expect("a readable folder") {
                let entry = entry.expect("a readable folder");
                fs::copy(entry.path(), to.join(entry.file_name())).expect("copied");
            }
        }
        (folder, root)
    };
    let (_whole, root) = make();
    let begun = SystemTime::now();
    {
        let _no_fork = no_fork();
        assert_eq!(run(&root, &["--in-place", "--threads=1"]).status, 1);
    }
    let took = begun.elapsed().expect("a clock that goes on");
    let expected = files(&root);
    let mut in_the_middle = 0;
    for round in 0..8_u32 {
        let (_folder, root) = make();
        let before = files(&root);
        let mut child = {
            let _no_locks = LOCKS.write().unwrap_or_else(PoisonError::into_inner);
            Process::new(env::current_exe().expect("this program"))
                .args(["--exact", "child_that_recovers", "--test-threads=1"])
                .env(KILLED, &root)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("started")
        };
        // From where it begins: the first change that it makes is its lock file.
        while !root.join(".lock").exists() && child.try_wait().expect("a child").is_none() {
            thread::sleep(Duration::from_micros(200));
        }
        thread::sleep(took * round / 9);
        child.kill().expect("killed or at its end");
        child.wait().expect("a child");
        let is_closed = root.join(".kafka_cleanshutdown").exists();
        let is_begun = files(&root).iter().any(|(name, bytes)| {
            name.ends_with(".index") && before.get(name).is_some_and(|old| old.len() != bytes.len())
        });
        in_the_middle += usize::from(is_begun && !is_closed);
        let _no_fork = no_fork();
        let status = run(&root, &["--in-place"]).status;
        assert!(status <= 1);
        let after = files(&root);
        for (name, bytes) in &expected {
            // Cleanly closed by the child it says so, with the same epoch.
            assert!(after.get(name) == Some(bytes), "round {round}: {name}");
        }
        let more: Vec<_> = after.keys().filter(|name| !expected.contains_key(*name)).collect();
        assert!(more.is_empty(), "round {round}: {more:?}");
    }
    assert!(in_the_middle > 0, "no recovery was cut off");
}
