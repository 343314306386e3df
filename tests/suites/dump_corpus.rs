//! `redrive dump` over every file of the corpus: in Kafka's form equal to what Kafka's own tool printed, in our own
//! forms complete.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser;
use redrive_tests::corpus::{self, Case};
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

fn dump(path: &Path, options: &[&str]) -> Answer {
    let mut words: Vec<OsString> = vec!["dump".into(), "--files".into(), path.into()];
    words.extend(options.iter().map(OsString::from));
    let args = Cli::try_parse_from(words).expect("options of dump").args;
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let status = dump::run(&args, false, &mut out, &mut err).expect("a vector takes everything");
    let text = |bytes| String::from_utf8(bytes).expect("dumps are UTF-8");
    Answer { status, out: text(out), err: text(err) }
}

/// A file of a partition, with the folder of its answers by Kafka's tool.
struct Dumped {
    path: PathBuf,
    /// Log directory as this test and as Kafka's tool saw it.
    data_dir: String,
    data_name: &'static str,
    oracle: PathBuf,
    partition: String,
    name: String,
}

impl Dumped {
    /// What Kafka's tool said, `None` if it said nothing.
    fn oracle_text(&self, suffix: &str) -> Option<String> {
        corpus::read_text(&self.oracle.join(format!("{}{suffix}", self.name)))
    }

    /// An answer with the paths of the oracle.
    fn relative(&self, text: &str) -> String {
        text.replace(&self.data_dir, self.data_name)
    }

    fn dump(&self, options: &[&str]) -> Answer {
        let mut answer = dump(&self.path, options);
        answer.out = self.relative(&answer.out);
        answer.err = self.relative(&answer.err);
        answer
    }

    fn suffix(&self) -> &str {
        self.path.extension().and_then(|suffix| suffix.to_str()).unwrap_or_default()
    }
}

/// Every file of a case for which Kafka's tool was run.
fn files(case: &Case) -> Vec<Dumped> {
    let mut files = Vec::new();
    for (data_dir, (data_name, dumps)) in
        case.data_dirs.iter().zip([("data", "dump"), ("data-broker-2", "dump-broker-2")])
    {
        let Ok(partitions) = fs::read_dir(case.oracle.join(dumps)) else { continue };
        for partition in partitions {
            let oracle = partition.expect("a readable folder").path();
            let partition = oracle.file_name().unwrap_or_default().to_string_lossy().into_owned();
            for entry in fs::read_dir(data_dir.join(&partition)).expect("a partition that was dumped") {
                let path = entry.expect("a readable folder").path();
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                let (data_dir, partition) = (data_dir.display().to_string(), partition.clone());
                files.push(Dumped { path, data_dir, data_name, oracle: oracle.clone(), partition, name });
            }
        }
    }
    files.retain(|file| ["log", "index", "timeindex", "snapshot", "txnindex"].contains(&file.suffix()));
    files.sort_by(|a, b| a.path.cmp(&b.path));
    let all = files.len();
    files.retain(|file| file.oracle_text(".txt").is_some());
    // Of two partitions of one case, as its case.json says, only the logs were dumped.
    assert_eq!(all - files.len(), if case.name == "txn-state-50" { 48 } else { 0 }, "{}", case.name);
    files
}

/// The options with which Kafka's tool was run.
fn oracle_options(partition: &str, oracle: &str) -> Vec<&'static str> {
    let mut options = vec!["--format", "kafka", "--deep-iteration"];
    if partition.starts_with("__transaction_state-") {
        options.push("--transaction-log-decoder");
    } else if partition.starts_with("__consumer_offsets-") {
        options.push("--offsets-decoder");
    } else if oracle.contains(" payload: ") || oracle.contains(" key: ") {
        // Left out where values are huge.
        options.push("--print-data-log");
    }
    options
}

fn assert_lines(what: &str, found: &str, expected: &str) {
    for (number, (found, expected)) in found.split('\n').zip(expected.split('\n')).enumerate() {
        assert_eq!(found, expected, "{what}, line {}", number + 1);
    }
    assert_eq!(found.split('\n').count(), expected.split('\n').count(), "lines of {what}");
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn text_of_every_file_is_that_of_kafka() {
    let (mut compared, mut bytes) = (0, 0);
    for case in corpus::cases() {
        for file in files(&case) {
            let what = format!("{} {}/{}", case.name, file.partition, file.name);
            let dumping = format!("Dumping {}/{}/{}\n", file.data_name, file.partition, file.name);
            let expected = file.oracle_text(".txt").expect("only such files are listed");
            assert!(expected.starts_with(&dumping), "{what}");
            let answer = file.dump(&oracle_options(&file.partition, &expected));
            assert_lines(&what, &answer.out, &expected);
            let expected_err = file.oracle_text(".err.txt").unwrap_or_default();
            assert_eq!(sorted(&answer.err), sorted(&expected_err), "{what}");
            assert_eq!(answer.status, DumpStatus::Clean, "{what}");
            compared += 1;
            bytes += expected.len();
        }
    }
    assert_eq!(compared, 857);
    assert!(bytes > 20_000_000, "{bytes} bytes compared");
}

#[test]
fn index_checks_complain_where_kafka_does() {
    let (mut insane, mut mismatched) = (0, 0);
    for case in corpus::cases() {
        for file in files(&case).iter().filter(|file| ["index", "timeindex"].contains(&file.suffix())) {
            let what = format!("{} {}/{}", case.name, file.partition, file.name);
            let dumping = format!("Dumping {}/{}/{}\n", file.data_name, file.partition, file.name);

            let answer = file.dump(&["--format", "kafka", "--index-sanity-check"]);
            if file.oracle_text(".sanity.err.txt").is_some() {
                assert_eq!(answer.status, DumpStatus::FoundWrong, "{what}");
                assert_eq!(answer.out, dumping, "{what}");
                assert_eq!(answer.err.lines().count(), 1, "{what}: {}", answer.err);
                insane += 1;
            } else {
                let path = dumping.trim_start_matches("Dumping ").trim_end();
                let sane = format!("{dumping}{path} passed sanity check.\n");
                let empty = format!("{dumping}{path} is empty.\n");
                let no_entries = file.suffix() == "index" && file.path.metadata().unwrap().len() == 0;
                assert_eq!(answer.out, if no_entries { empty } else { sane }, "{what}");
                assert_eq!((answer.status, &answer.err[..]), (DumpStatus::Clean, ""), "{what}");
            }

            let answer = file.dump(&["--format", "kafka", "--verify-index-only"]);
            let expected = file.oracle_text(".verify.err.txt").unwrap_or_default();
            assert_eq!(sorted(&answer.err), sorted(&expected), "{what}");
            assert_eq!(answer.status, DumpStatus::Clean, "{what}");
            mismatched += usize::from(!expected.is_empty());
        }
    }
    assert_eq!((insane, mismatched), (14, 35));
}

/// What a broker wrote and closed is right; what a kill left behind shows as padding and tails, and only these are wrong.
#[test]
fn own_formats_show_the_same_files() {
    let mut wrong = Vec::new();
    for case in corpus::cases() {
        for file in files(&case) {
            let what = format!("{} {}/{}", case.name, file.partition, file.name);
            let options = ["--format", "ndjson", "--deep-iteration"];
            let answer = file.dump(&options);
            let mut kinds = Vec::new();
            for line in answer.out.lines() {
                let item: Value =
                    serde_json::from_str(line).unwrap_or_else(|e| panic!("{what}: {e}: {line}"));
                kinds.push(item["kind"].as_str().expect("every item has a kind").to_owned());
            }
            let count = |kind: &str| kinds.iter().filter(|found| *found == kind).count();
            let kafka = file.oracle_text(".txt").expect("only such files are listed");
            let lines = |start: &str| kafka.lines().filter(|line| line.starts_with(start)).count();
            match file.suffix() {
                "log" => {
                    assert_eq!(
                        (count("batch"), count("record")),
                        (lines("baseOffset: "), lines("| ")),
                        "{what}"
                    );
                }
                "snapshot" => assert_eq!(count("producer"), lines("producerId: "), "{what}"),
                "txnindex" => assert_eq!(count("abortedTransaction"), lines("version: "), "{what}"),
                // Kafka's tool shows one entry of zeros for an index that is all padding.
                "index" => assert_eq!(
                    count("offsetIndexEntry") + usize::from(kinds == ["file", "padding"]),
                    lines("offset: "),
                    "{what}"
                ),
                _ => assert_eq!(
                    count("timeIndexEntry") + usize::from(kinds == ["file", "padding"]),
                    lines("timestamp: "),
                    "{what}"
                ),
            }
            if answer.status != DumpStatus::Clean {
                assert_eq!(answer.status, DumpStatus::FoundWrong, "{what}");
                assert_eq!(answer.err.lines().count(), count("error"), "{what}");
                wrong.push(what);
            }
        }
    }
    // Both end within a batch.
    assert_eq!(
        wrong,
        [
            "unclean-torn-data orders-0/00000000000000000000.log",
            "unclean-torn-txn-state __transaction_state-0/00000000000000000000.log"
        ]
    );
}

#[test]
fn checkpoint_files_are_shown_in_our_formats_and_ignored_in_kafkas() {
    let mut items = 0;
    for case in corpus::cases() {
        for data_dir in &case.data_dirs {
            let mut paths = vec![];
            for entry in fs::read_dir(data_dir).expect("a readable folder") {
                let path = entry.expect("a readable folder").path();
                if path.is_dir() {
                    paths.extend(
                        ["leader-epoch-checkpoint", "partition.metadata"].map(|name| path.join(name)),
                    );
                } else {
                    paths.push(path);
                }
            }
            for path in paths.iter().filter(|path| path.is_file()) {
                let what = path.display();
                let answer = dump(path, &["--format", "ndjson"]);
                assert_eq!((answer.status, &answer.err[..]), (DumpStatus::Clean, ""), "{what}");
                items += answer.out.lines().count() - 1;
                let answer = dump(path, &["--format", "kafka"]);
                assert_eq!(answer.out, format!("Dumping {what}\n"));
                assert_eq!(answer.err, format!("Ignoring unknown file {what}\n"));
                assert_eq!(answer.status, DumpStatus::Clean, "{what}");
            }
        }
    }
    assert!(items > 500, "{items} items shown");
}
