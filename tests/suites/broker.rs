//! What a real broker wrote, loaded and held against what its transaction coordinator had answered.
//!
//! `tests/broker/README.md` says what runs here and what it needs. Where that is missing the tests pass and say so,
//! unless the environment variable `REDRIVE_REQUIRE` names this suite.

#![deny(unsafe_code)]

#[path = "../broker/harness.rs"]
mod harness;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use harness::{Run, say};
use redrive::transaction_log::TransactionState;
use redrive_tests::naive::{self, NaiveEntry, NaiveOptions};
use redrive_tools::generate::{Scenario, Spec, ValueVersions, Volume, generate_into};
use serde_json::Value;

/// What both sides know of a transactional id, under the names of DescribeTransactions.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Transaction {
    transactional_id: String,
    /// Partition of `__transaction_state`.
    partition: i32,
    state: String,
    producer_id: i64,
    producer_epoch: i16,
    transaction_timeout_ms: i32,
    /// -1 where no transaction was ever begun.
    transaction_start_time_ms: i64,
    topic_partitions: BTreeSet<(String, i32)>,
}

/// Reads every partition of `__transaction_state` under a log directory into one list, ids in any order.
type Loader = fn(&Path) -> Vec<Transaction>;

/// Whoever can load a log directory is judged by the coordinator's answer.
const LOADERS: [(&str, Loader); 2] = [("redrive", load_redrive), ("the naive loader", load_naive)];

fn load_redrive(log_dir: &Path) -> Vec<Transaction> {
    let loaded = redrive::replay(log_dir).expect("a log directory").run().expect("a load");
    let mut transactions = Vec::new();
    for outcome in &loaded.partitions {
        let (map, _) = outcome.result.as_ref().expect("no partition is refused");
        for entry in map.iter() {
            let entry = entry.expect("the log is still there");
            let value = entry.metadata().expect("values in a map were decoded before");
            transactions.push(Transaction {
                transactional_id: entry.id().into_owned(),
                partition: outcome.topic_partition.partition,
                state: value.state.to_string(),
                producer_id: value.producer_id.0,
                producer_epoch: value.producer_epoch,
                transaction_timeout_ms: value.transaction_timeout_ms,
                transaction_start_time_ms: value.start_timestamp_ms,
                topic_partitions: value
                    .partitions
                    .unwrap_or_default()
                    .iter()
                    .flat_map(|topic| {
                        topic.partition_ids.iter().map(|&id| (topic.topic_name().into_owned(), id))
                    })
                    .collect(),
            });
        }
    }
    transactions
}

fn load_naive(log_dir: &Path) -> Vec<Transaction> {
    let mut transactions = Vec::new();
    for (partition, id, entry) in naive_entries(log_dir) {
        let topics = entry.partitions.unwrap_or_default();
        transactions.push(Transaction {
            transactional_id: id,
            partition,
            state: entry.state.to_owned(),
            producer_id: entry.producer_id,
            producer_epoch: entry.producer_epoch,
            transaction_timeout_ms: entry.transaction_timeout_ms,
            transaction_start_time_ms: entry.start_timestamp_ms,
            topic_partitions: topics
                .into_iter()
                .flat_map(|(topic, ids)| ids.into_iter().map(move |id| (topic.clone(), id)))
                .collect(),
        });
    }
    transactions
}

fn naive_entries(log_dir: &Path) -> Vec<(i32, String, NaiveEntry)> {
    let partitions = naive::load_root(log_dir, "__transaction_state", &NaiveOptions::default());
    let partitions = partitions.expect("the log directory can be listed");
    let entries = partitions.into_iter().flat_map(|(partition, outcome)| {
        let map = outcome.unwrap_or_else(|error| panic!("partition {partition} was refused: {error}"));
        map.entries.into_iter().map(move |(id, entry)| (partition, id, entry))
    });
    entries.collect()
}

/// Commits, aborts, open, fenced and merely initialised ids, odd names; the broker ends in good order.
#[test]
fn the_map_of_a_cleanly_stopped_broker_is_what_its_coordinator_said() {
    let Some(run) = Run::begin() else { return };
    let broker = run.kafka.start(run.folder.path(), "");
    let log_dir = broker.log_dir();
    let described = parse(&run.kafka.drive(&broker, "scenario"));
    broker.stop();

    assert!(log_dir.join(".kafka_cleanshutdown").exists(), "the broker did not end in good order");
    assert_scenario_is_rich(&described, &log_dir);
    assert_all_loaders_agree(&described, &log_dir);
}

/// The same scenario under the first protocol, which writes values of version 0, and a broker that is killed when all
/// is quiet: indexes keep their reserved size and nothing says that the logs are whole.
#[test]
fn the_map_of_a_killed_broker_is_what_its_coordinator_said() {
    let Some(run) = Run::begin() else { return };
    let broker = run.kafka.start(run.folder.path(), "--feature transaction.version=0");
    let log_dir = broker.log_dir();
    let described = parse(&run.kafka.drive(&broker, "scenario"));
    broker.crash();

    assert!(!log_dir.join(".kafka_cleanshutdown").exists(), "the broker was to be killed");
    let old = naive_entries(&log_dir).iter().filter(|(_, _, entry)| entry.value_version == 0).count();
    assert_eq!(old, described.len(), "all values were to be of version 0");
    assert_scenario_is_rich(&described, &log_dir);
    assert_all_loaders_agree(&described, &log_dir);
}

/// A broker killed in the middle of its work, loaded by us and by itself.
#[test]
fn the_map_after_a_crash_is_what_the_restarted_broker_loads() {
    let Some(run) = Run::begin() else { return };
    let broker = run.kafka.start(run.folder.path(), "");
    let log_dir = broker.log_dir();
    run.kafka.crash_in_a_storm(broker);
    // The restarted broker writes to these logs: what the crash left is loaded before.
    let left: Vec<_> = LOADERS.iter().map(|(name, load)| (name, load(&log_dir))).collect();

    let broker = run.kafka.start(run.folder.path(), "");
    let described = parse(&run.kafka.drive(&broker, "describe"));
    broker.stop();

    assert!(left.iter().all(|(_, loaded)| loaded.len() == 8), "the storm has eight ids: {left:#?}");
    for (name, loaded) in left {
        let unfinished = loaded.iter().filter(|found| found.state.starts_with("Prepare")).count();
        say(&format!(
            "{name}: {unfinished} of {} transactions were left for the restart to complete",
            loaded.len()
        ));
        let completed: Vec<_> = loaded.into_iter().map(completed).collect();
        assert_eq!(differences(&described, &completed), [""; 0], "{name} on what the crash left");
    }
    assert_all_loaders_agree(&described, &log_dir);
}

/// A generated transaction log in place of the broker's own: the broker finds in every partition as many ids as we do,
/// and says the same of a sample in every state.
#[test]
fn a_generated_log_is_what_a_broker_takes_it_for() {
    const PARTITIONS: u32 = 50;
    const IDS: u64 = 100_000;
    const SAMPLE: usize = 60;
    let Some(run) = Run::begin() else { return };
    let settings = ["transaction.state.log.num.partitions=50"];
    let partitions = std::ffi::OsStr::new("50");
    let broker = run.kafka.start_with(run.folder.path(), "", &settings);
    let log_dir = broker.log_dir();
    run.kafka.drive_with(&broker, "topics", &[partitions]);
    broker.stop();

    let now_ms = std::time::UNIX_EPOCH.elapsed().expect("a clock").as_millis() as i64;
    let mut spec = Spec::new(Scenario::UpdateHeavy, 4, now_ms);
    (spec.volume, spec.transactions) = (Volume::Ids(IDS), std::num::NonZero::new(2).expect("two"));
    spec.partitions = std::num::NonZero::new(PARTITIONS).expect("fifty");
    (spec.value_versions, spec.gaps) = (ValueVersions::Mixed, 0.1);
    let written = generate_into(&spec, &log_dir, &mut ()).expect("a stopped broker's directory");

    let loaded = redrive::replay(&log_dir).expect("a log directory").run().expect("a load");
    assert!(loaded.is_complete());
    let ours: BTreeMap<i32, usize> = loaded
        .partitions
        .iter()
        .map(|outcome| (outcome.topic_partition.partition, outcome.map().expect("loaded").len()))
        .collect();
    let expected = written.partitions.iter().map(|part| (part.partition, part.ids as usize)).collect();
    assert_eq!(ours, expected, "what was written");
    assert!(ours.len() == 50 && ours.values().sum::<usize>() > 95_000, "{ours:?}");

    let mut sample = BTreeMap::new();
    for state in TransactionState::ALL {
        let entries = loaded.maps().flat_map(|map| {
            map.in_states(std::slice::from_ref(&TransactionState::ALL[state as usize])).take(3)
        });
        for entry in entries.take(SAMPLE) {
            let entry = entry.expect("the log is still there");
            sample.insert(entry.id().into_owned(), state);
        }
    }
    let states: BTreeSet<_> = sample.values().collect();
    assert!(states.len() == 6 && sample.len() > 200, "{states:?}, {} ids", sample.len());
    let ids = run.folder.path().join("sample");
    fs::write(&ids, sample.keys().map(|id| format!("{id}\n")).collect::<String>()).expect("written");
    let left: Vec<_> = load_redrive(&log_dir)
        .into_iter()
        .filter(|found| sample.contains_key(&found.transactional_id))
        .map(completed)
        .collect();

    let broker = run.kafka.start_with(run.folder.path(), "", &settings);
    let lines = broker.await_lines("Finished loading", 50);
    let theirs: BTreeMap<i32, usize> = lines.iter().filter_map(|line| finished_loading(line)).collect();
    assert_eq!(theirs, ours, "the broker's own counts");
    let described = run.kafka.drive_with(&broker, "sample", &[partitions, ids.as_os_str()]);
    broker.stop();
    assert_eq!(differences(&parse(&described), &left), [""; 0], "a sample of {} ids", left.len());
    let strays = fs::read_dir(&log_dir).expect("a log directory").filter_map(Result::ok);
    let strays = strays.filter(|entry| entry.file_name().to_string_lossy().ends_with("-stray")).count();
    assert_eq!(strays, 0, "folders that the broker put aside");
    say(&format!("{} ids in 50 partitions, and a sample of {}", ours.values().sum::<usize>(), left.len()));
}

/// Partition and ids of a line in which a broker says that it has loaded a partition.
fn finished_loading(line: &str) -> Option<(i32, usize)> {
    let (before, after) = line.split_once(" transaction metadata from __transaction_state-")?;
    let ids = before.rsplit(' ').next()?.parse().ok()?;
    Some((after.split(' ').next()?.parse().ok()?, ids))
}

/// What a coordinator makes of an id that it loads: a decision that was written is carried out.
fn completed(mut found: Transaction) -> Transaction {
    let complete = match found.state.as_str() {
        "PrepareCommit" => "CompleteCommit",
        "PrepareAbort" => "CompleteAbort",
        _ => return found,
    };
    found.state = complete.to_owned();
    found.topic_partitions.clear();
    found
}

/// Guards against a driver or a broker that has come to do less than this suite is for.
fn assert_scenario_is_rich(described: &[Transaction], log_dir: &Path) {
    let count = |state: &str| described.iter().filter(|id| id.state == state).count();
    for (state, floor) in [("Empty", 5), ("Ongoing", 10), ("CompleteCommit", 10), ("CompleteAbort", 8)] {
        assert!(count(state) >= floor, "{state}: {} ids, at least {floor} expected", count(state));
    }
    let partitions: BTreeSet<_> = described.iter().map(|id| id.partition).collect();
    assert_eq!(partitions.len(), 7, "every partition holds ids: {partitions:?}");
    let segments: usize = (0..7)
        .map(|partition| log_dir.join(format!("__transaction_state-{partition}")))
        .flat_map(|folder| fs::read_dir(folder).expect("a partition's folder"))
        .filter(|entry| {
            entry.as_ref().is_ok_and(|entry| entry.path().extension().is_some_and(|e| e == "log"))
        })
        .count();
    assert!(segments >= 14, "{segments} segments in 7 partitions: the logs were to roll");
}

fn assert_all_loaders_agree(described: &[Transaction], log_dir: &Path) {
    for (name, load) in LOADERS {
        let loaded = load(log_dir);
        assert_eq!(differences(described, &loaded), [""; 0], "{name} against DescribeTransactions");
        say(&format!("{name} agrees with the coordinator on all {} ids", loaded.len()));
    }
}

/// Every way in which a loaded list departs from the coordinator's answer, a sentence each.
fn differences(described: &[Transaction], loaded: &[Transaction]) -> Vec<String> {
    let mut found: BTreeMap<&str, Vec<&Transaction>> = BTreeMap::new();
    for transaction in loaded {
        found.entry(&transaction.transactional_id).or_default().push(transaction);
    }
    let mut differences = Vec::new();
    for expected in described {
        let id = expected.transactional_id.as_str();
        match found.remove(id).as_deref() {
            None => differences.push(format!("{id:?} was not loaded")),
            Some([one]) if *one == expected => {}
            Some([one]) => differences.push(format!("{id:?}: described {expected:?}, loaded {one:?}")),
            Some(several) => {
                let partitions: Vec<_> = several.iter().map(|found| found.partition).collect();
                differences.push(format!("{id:?} was loaded from partitions {partitions:?}"));
            }
        }
    }
    differences.extend(found.keys().map(|id| format!("{id:?} was loaded, the coordinator does not know it")));
    differences
}

/// The times of a profile, as HdrHistogram's own Java reader finds them.
#[test]
fn javas_reader_opens_the_histograms_of_a_profile() {
    let Some(run) = Run::begin() else { return };
    let log_dir = redrive_tests::corpus::fixtures().join("txn-state-50");
    let out = run.folder.path().join("profile");
    let arguments = ["redrive", "profile", "--quiet", "--runs", "2"];
    let arguments = arguments.iter().map(Into::into);
    redrive_tools::run(arguments.chain([log_dir.into(), "--out".into(), out.clone().into()]));

    let profile = fs::read_to_string(out.join("profile.json")).expect("a profile");
    let profile: Value = serde_json::from_str(&profile).expect("JSON");
    let (runs, partitions) = (as_array(&profile["runs"]), as_array(&profile["partitions"]));
    assert!(
        runs.len() == 5 && partitions.len() == 50,
        "{} runs, {} partitions",
        runs.len(),
        partitions.len()
    );

    let text = run.kafka.read_histograms(&out.join("load.hlog"));
    let intervals: Vec<Vec<&str>> = text.lines().map(|line| line.split(' ').collect()).collect();
    assert_eq!(intervals.len(), 2 * runs.len(), "{text}");
    for (interval, number) in intervals.iter().zip(0..) {
        let load = &runs[number / 2];
        assert_eq!(interval[0], ["wait", "load"][number % 2]);
        let [begun, end] = [1, 2].map(|column: usize| interval[column].parse::<i64>().expect("a time"));
        // The log has milliseconds since its first line.
        assert!(begun.abs_diff(number_of(&load["begunMs"])) <= 1, "{interval:?}, {load}");
        let seconds = load["seconds"].as_f64().expect("a duration");
        assert!(((end - begun) as f64 - seconds * 1000.0).abs() <= 2.0, "{interval:?}, {load}");
        assert_eq!(interval[3], "50", "a value for each partition");
    }
    // The first load is that of the partitions. Three digits: a value stands for less than a thousandth more.
    for (interval, field) in intervals.iter().zip(["waitSeconds", "seconds"]) {
        let mut micros: Vec<f64> = partitions
            .iter()
            .map(|partition| (partition[field].as_f64().expect("a duration") * 1e6).floor())
            .collect();
        micros.sort_by(f64::total_cmp);
        let found: Vec<f64> = interval[4..].iter().map(|value| value.parse().expect("a value")).collect();
        assert_eq!(found.len(), micros.len());
        for (found, micros) in found.iter().zip(&micros) {
            assert!((found - micros).abs() <= 1.0 + micros / 1000.0, "{field}: {found}, {micros}");
        }
    }
}

fn as_array(value: &Value) -> &[Value] {
    value.as_array().expect("an array")
}

fn number_of(value: &Value) -> i64 {
    value.as_i64().expect("a number")
}

/// The comparison itself must see a change of any field.
#[test]
fn a_difference_in_any_field_is_seen() {
    let described = parse(concat!(
        r#"{"transactionalId":"a","partition":3,"coordinatorId":1,"state":"Ongoing","producerId":4000,"#,
        r#""producerEpoch":2,"transactionTimeoutMs":60000,"transactionStartTimeMs":1700000000000,"#,
        r#""topicPartitions":[["orders",0],["orders",1]]}"#
    ));
    let a = described[0].clone();
    assert_eq!(differences(&described, &described), [""; 0]);

    let planted = [
        vec![],
        vec![a.clone(), Transaction { transactional_id: "b".to_owned(), ..a.clone() }],
        vec![a.clone(), Transaction { partition: 4, ..a.clone() }],
        vec![Transaction { partition: 4, ..a.clone() }],
        vec![Transaction { state: "Empty".to_owned(), ..a.clone() }],
        vec![Transaction { producer_id: 4001, ..a.clone() }],
        vec![Transaction { producer_epoch: 3, ..a.clone() }],
        vec![Transaction { transaction_timeout_ms: 60001, ..a.clone() }],
        vec![Transaction { transaction_start_time_ms: -1, ..a.clone() }],
        vec![Transaction { topic_partitions: BTreeSet::from([("orders".to_owned(), 0)]), ..a }],
    ];
    for loaded in planted {
        assert_eq!(differences(&described, &loaded).len(), 1, "not seen: {loaded:?}");
    }
}

/// Reads the driver's answer, one JSON object a line.
fn parse(answer: &str) -> Vec<Transaction> {
    answer
        .lines()
        .map(|line| {
            let object: Value = serde_json::from_str(line).expect("the driver writes JSON");
            assert_eq!(object["coordinatorId"], 1, "there is only one broker: {line}");
            let text = |value: &Value| value.as_str().expect("a string").to_owned();
            Transaction {
                transactional_id: text(&object["transactionalId"]),
                partition: number(&object["partition"]),
                state: text(&object["state"]),
                producer_id: number(&object["producerId"]),
                producer_epoch: number(&object["producerEpoch"]),
                transaction_timeout_ms: number(&object["transactionTimeoutMs"]),
                transaction_start_time_ms: number(&object["transactionStartTimeMs"]),
                topic_partitions: object["topicPartitions"]
                    .as_array()
                    .expect("an array")
                    .iter()
                    .map(|pair| (text(&pair[0]), number(&pair[1])))
                    .collect(),
            }
        })
        .collect()
}

fn number<T: TryFrom<i64>>(value: &Value) -> T {
    let number = value.as_i64().and_then(|number| T::try_from(number).ok());
    number.unwrap_or_else(|| panic!("{value} is no number of its field's width"))
}
