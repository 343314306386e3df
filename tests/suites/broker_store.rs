//! Logs that a real broker and this engine write by turns, each going on where the other stopped, cleanly or not.
//!
//! `tests/broker/README.md` says what runs here and what it needs. Where that is missing the tests pass and say so,
//! unless the environment variable `REDRIVE_REQUIRE` names the suite `broker`.

#![deny(unsafe_code)]

#[path = "../broker/harness.rs"]
mod harness;
#[path = "../broker/store.rs"]
mod store;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use harness::{Driver, Run, say};
use redrive::batch::{BatchBuilder, BatchFrame, Compression, EndTransactionMarker, NewRecord};
use redrive::log::validate::AppendOrigin;
use redrive::log::{AppendInfo, CoordinatorRecord, LeaderRequest, Log};
use redrive::log_dir::checkpoint::CleanShutdown;
use redrive::types::{ProducerId, TopicPartition};
use redrive_tests::logs::{Rng, reseal};
use store::{
    Partitions, TOPICS, acknowledge, assert_is_rich, assert_same_files, complaints, copy, differences,
    files_of, find, open, strays, tear, told, topic_of,
};

/// Ids of producers that no broker of these tests gives out.
const FIRST_PRODUCER_ID: i64 = 900_000;
/// Where the child finds the root to which it appends until it is killed.
const CHILD: &str = "REDRIVE_STORE_CHILD";

// ---- what redrive writes ----

/// Appends to one log as the leader.
struct Leader<'l> {
    log: &'l Log,
    leader_epoch: i32,
    now_ms: i64,
    rng: Rng,
    /// By producer id: its next sequence number.
    sequences: BTreeMap<i64, i32>,
    /// Records appended, markers too.
    appended: i64,
}

impl<'l> Leader<'l> {
    fn of(log: &'l Log, leader_epoch: i32) -> Self {
        let seed = log.topic_partition().to_string().bytes().map(u64::from).sum();
        Self {
            log,
            leader_epoch,
            now_ms: now_ms(),
            rng: Rng::new(seed),
            sequences: BTreeMap::new(),
            appended: 0,
        }
    }

    fn append(&mut self, bytes: &[u8], origin: AppendOrigin) -> AppendInfo {
        self.now_ms += 1;
        let request = LeaderRequest {
            origin,
            leader_epoch: self.leader_epoch,
            now_ms: self.now_ms,
            verification_guard: None,
            transaction_version: 1,
        };
        let info = self.log.append_as_leader(&mut bytes.to_vec(), &request);
        let info = info.expect("an append").expect("a batch");
        if !info.is_duplicate {
            self.appended += info.last_offset.0 - info.first_offset.0 + 1;
        }
        info
    }

    /// A batch of so many records, of a producer if one is named.
    fn batch(&mut self, codec: Compression, producer: Option<(i64, i16)>, in_transaction: bool) -> Vec<u8> {
        let mut builder = BatchBuilder::new(redrive::types::Offset(0));
        builder.compression(codec);
        let count = 1 + self.rng.below(6);
        if let Some((id, epoch)) = producer {
            let next = self.sequences.entry(id).or_insert(0);
            builder.producer(ProducerId(id), epoch, *next);
            *next += i32::try_from(count).expect("few");
        }
        if in_transaction {
            builder.transactional();
        }
        for _ in 0..count {
            let long = if self.rng.once_in(10) { 1200 } else { 120 };
            let length = usize::try_from(self.rng.below(long)).expect("short");
            let value: Vec<u8> = (0..length).map(|_| *self.rng.pick(b"abcdefgh")).collect();
            let key = format!("key-{}", self.rng.below(40));
            let (name, header) = (b"h\xc3\xa9".as_slice(), value.get(..length / 8));
            let headers = [(name, header), (b"", None)];
            self.now_ms += i64::from(self.rng.once_in(2));
            let record = NewRecord {
                timestamp: self.now_ms - 500,
                key: Some(key.as_bytes()),
                value: (!self.rng.once_in(9)).then_some(&value[..]),
                headers: if self.rng.once_in(3) { &headers } else { &[] },
            };
            builder.push(&record).expect("a record");
        }
        builder.build().expect("a batch")
    }

    fn marker(&mut self, id: i64, epoch: i16, committed: bool) {
        let mut builder = BatchBuilder::new(redrive::types::Offset(0));
        builder.producer(ProducerId(id), epoch, -1).transactional().control();
        let marker = EndTransactionMarker { committed, coordinator_epoch: 0 };
        builder.push_marker(self.now_ms, marker).expect("a marker");
        let bytes = builder.build().expect("a batch");
        self.append(&bytes, AppendOrigin::Coordinator);
    }

    /// Three producers whose transactions overlap; every third is aborted; none is left open.
    fn transactions(&mut self, count: i64) {
        let producer_of = |n: i64| FIRST_PRODUCER_ID + n % 3;
        for n in 0..count {
            for _ in 0..2 {
                let codec = Compression::ALL[self.rng.below(5) as usize];
                let bytes = self.batch(codec, Some((producer_of(n), 3)), true);
                self.append(&bytes, AppendOrigin::Client);
            }
            if n > 0 {
                self.marker(producer_of(n - 1), 3, n % 3 != 1);
            }
        }
        self.marker(producer_of(count - 1), 3, false);
    }

    /// Plain and idempotent batches of every codec, one of them twice.
    fn batches(&mut self, count: i64) {
        for n in 0..count {
            for codec in Compression::ALL {
                let producer = (n % 2 == 1).then_some((FIRST_PRODUCER_ID + 10 + n % 4, 0));
                let bytes = self.batch(codec, producer, false);
                let info = self.append(&bytes, AppendOrigin::Client);
                if producer.is_some() {
                    let again = self.append(&bytes, AppendOrigin::Client);
                    let offsets = |info: &AppendInfo| (info.first_offset, info.last_offset);
                    assert!(again.is_duplicate && offsets(&again) == offsets(&info), "{again:?}");
                }
            }
        }
    }

    /// Goes on as producers that a broker knows; says how many there are.
    fn known_producers(&mut self) -> usize {
        let state = self.log.producer_state();
        let mut known = 0;
        for entry in state.entries() {
            let (id, epoch) = (entry.producer_id().0, entry.producer_epoch());
            let Some(batch) = entry.last_batch().filter(|_| id < FIRST_PRODUCER_ID) else { continue };
            // Those that know of markers have transactional ids, and their coordinator in the broker.
            if entry.coordinator_epoch() < 0 && entry.current_txn_first_offset().is_none() {
                self.sequences.insert(id, batch.metadata.last_sequence + 1);
                let bytes = self.batch(Compression::Snappy, Some((id, epoch)), false);
                self.append(&bytes, AppendOrigin::Client);
                known += 1;
            }
        }
        known
    }

    /// As a coordinator, many at a time.
    fn coordinator_records(&mut self, count: usize) {
        for size in [1, 64, 7] {
            for _ in 0..count {
                let keys: Vec<_> = (0..size).map(|_| format!("id-{}", self.rng.below(99))).collect();
                self.now_ms += 1;
                let timestamp_ms = self.now_ms - 500;
                let records = keys.iter().enumerate().map(|(n, key)| CoordinatorRecord {
                    timestamp_ms,
                    key: key.as_bytes(),
                    value: (n % 7 != 6).then_some(&b"a state, say"[..]),
                });
                let info = self.log.append_coordinator_records(records, self.leader_epoch, self.now_ms);
                let info = info.expect("an append").expect("records");
                self.appended += info.last_offset.0 - info.first_offset.0 + 1;
            }
        }
    }

    /// Everything that fits the topic.
    fn everything(&mut self) {
        match self.log.topic_partition().topic.as_str() {
            topic if topic.starts_with("money") => self.transactions(20),
            "compacted" => {
                self.coordinator_records(3);
                self.batches(2);
            }
            _ => self.batches(10),
        }
    }
}

// ---- the tests ----

/// A broker writes, redrive goes on, the broker goes on, redrive opens the result: each finds what the other left.
#[test]
fn broker_and_redrive_go_on_where_the_other_stopped_cleanly() {
    let Some(run) = Run::begin() else { return };
    let folder = run.folder.path();
    let broker = run.kafka.start(folder, "");
    let log_dir = broker.log_dir();
    make_topics(&run, &broker);
    let written: Vec<_> = TOPICS.iter().filter(|topic| topic.is_brokers).map(|topic| topic.name).collect();
    run.kafka.drive_by(Driver::Store, &broker, "write", &arguments(&written));
    let served = told(&run.kafka.drive_by(Driver::Store, &broker, "read", &all_topics()));
    broker.stop();
    assert_is_rich(&served, 50, &written);

    let broker_epoch = broker_epoch(&log_dir);
    let (root, recovery) = open(&log_dir, now_ms());
    assert!(recovery.was_clean && recovery.partitions.values().all(|done| done.segments.is_empty()));
    assert_eq!(differences(&served, &find(&root)), [""; 0], "what the broker left");
    let mut known = 0;
    for log in root.logs() {
        if topic_of(log.topic_partition()).is_none_or(|topic| !topic.is_brokers) {
            continue;
        }
        let before = log.log_end_offset();
        let epoch = log.leader_epochs().latest_epoch().unwrap_or(0);
        let mut leader = Leader::of(&log, epoch);
        known += leader.known_producers();
        leader.everything();
        log.roll(leader.now_ms).expect("a roll");
        leader.everything();
        assert_eq!(acknowledge(&log).0, before.0 + leader.appended, "{}", log.topic_partition());
    }
    assert!(known >= 6, "{known} producers of the broker went on: at least two in each of three logs");
    let ours = find(&root);
    root.close(broker_epoch).expect("a close");
    assert_is_rich(&ours, 250, &["plain", "stamped", "repacked", "compacted", "money"]);
    assert_broker_goes_on(&run, folder, &ours, How::Cleanly);
}

/// Redrive writes whole logs into the empty folders of a stopped broker.
#[test]
fn a_broker_goes_on_with_logs_that_redrive_wrote_from_their_first_byte() {
    let Some(run) = Run::begin() else { return };
    let folder = run.folder.path();
    let broker = run.kafka.start(folder, "");
    let log_dir = broker.log_dir();
    make_topics(&run, &broker);
    broker.stop();

    let broker_epoch = broker_epoch(&log_dir);
    let (root, _) = open(&log_dir, now_ms());
    for log in root.logs() {
        if topic_of(log.topic_partition()).is_none() {
            continue;
        }
        assert_eq!(log.log_end_offset().0, 0, "{}", log.topic_partition());
        let mut appended = 0;
        for epoch in 0..2 {
            let mut leader = Leader::of(&log, epoch);
            leader.sequences = log
                .producer_state()
                .entries()
                .filter_map(|entry| {
                    Some((entry.producer_id().0, entry.last_batch()?.metadata.last_sequence + 1))
                })
                .collect();
            leader.everything();
            appended += leader.appended;
        }
        assert_eq!(acknowledge(&log).0, appended, "{}", log.topic_partition());
        assert!(log.segments_count() >= 2, "{}", log.topic_partition());
        assert_eq!(log.leader_epochs().entries().len(), 2);
    }
    let ours = find(&root);
    root.close(broker_epoch).expect("a close");
    assert_is_rich(&ours, 150, &TOPICS.map(|topic| topic.name));
    assert_broker_goes_on(&run, folder, &ours, How::Cleanly);
}

/// A broker is killed while it appends, and some of its logs are torn, as by a loss of power. Redrive recovers them, and
/// a broker recovers a copy: both keep the same bytes, rebuild the same indexes, know the same producers.
#[test]
fn redrive_recovers_a_killed_brokers_logs_as_the_broker_does() {
    let Some(run) = Run::begin() else { return };
    let (ours_dir, theirs_dir) = (run.folder.path().join("ours"), run.folder.path().join("theirs"));
    let broker = run.kafka.start(&ours_dir, "");
    let log_dir = broker.log_dir();
    make_topics(&run, &broker);
    let written: Vec<_> = TOPICS.iter().filter(|topic| topic.is_brokers).map(|topic| topic.name).collect();
    run.kafka.drive_by(Driver::Store, &broker, "write", &arguments(&written));
    run.kafka.crash_in_a_storm_of(Driver::Store, broker, &arguments(&written));
    assert!(!log_dir.join(".kafka_cleanshutdown").exists(), "the broker was to be killed");
    tear(&log_dir);
    copy(&log_dir, &theirs_dir.join("data"));

    let (root, recovery) = open(&log_dir, now_ms());
    assert!(!recovery.was_clean);
    let ends: BTreeMap<_, _> = root
        .logs()
        .iter()
        .map(|log| (log.topic_partition().clone(), acknowledge(log).0))
        .filter(|(partition, _)| topic_of(partition).is_some())
        .collect();
    let cut = recovery.partitions.values().filter(|done| done.lost_records()).count();
    assert!(cut >= 3, "{cut} logs were cut, three were torn");
    let mut ours = find(&root);
    root.close(-1).expect("a close");
    assert_indexes_are_sane(&run, &log_dir);

    let broker = run.kafka.start(&theirs_dir, "");
    let mut theirs = told(&run.kafka.drive_by(Driver::Store, &broker, "read", &all_topics()));
    let log_file = broker.log_file();
    let their_dir = broker.log_dir();
    broker.stop();
    let torn = complaints(&log_file);
    assert!(torn.len() >= 3, "a broker complains of three torn logs: {torn:?}");
    // What the broker itself says of each log's end, before its coordinator ends transactions.
    let text = fs::read(&log_file).expect("the broker's log");
    let loaded = ends_when_loaded(&String::from_utf8_lossy(&text));
    assert_eq!(loaded, ends, "the ends that the broker logs");
    // The others are as they were when they were loaded.
    let is_money = |partition: &TopicPartition| partition.topic.starts_with("money");
    for (partition, found) in &theirs {
        let end = ends[partition];
        assert!(found.ends[1] == end || is_money(partition) && found.ends[1] > end, "{partition}");
    }
    theirs.retain(|partition, _| !is_money(partition));
    ours.retain(|partition, _| !is_money(partition));
    assert_eq!(differences(&theirs, &ours), [""; 0], "what both recovered");
    assert_is_rich(&ours, 150, &["plain", "stamped", "repacked", "compacted"]);
    assert_same_files(&log_dir, &their_dir, is_money);
    assert_eq!(strays(&their_dir), [""; 0]);
}

/// Redrive is killed while it appends. A broker recovers its logs, and redrive a copy of them.
#[test]
fn a_broker_recovers_a_killed_redrives_logs_as_redrive_does() {
    let Some(run) = Run::begin() else { return };
    let (theirs_dir, copy_dir) = (run.folder.path().join("theirs"), run.folder.path().join("copy"));
    let broker = run.kafka.start(&theirs_dir, "");
    let log_dir = broker.log_dir();
    make_topics(&run, &broker);
    broker.stop();

    let acknowledged = append_until_killed(&log_dir);
    assert!(!log_dir.join(".kafka_cleanshutdown").exists(), "the child was to be killed");
    let index_files = files_of(&log_dir).into_values().flatten().filter(|(name, _)| name.ends_with(".index"));
    let lengths: Vec<_> = index_files.map(|(_, path)| path.metadata().expect("a file").len()).collect();
    let reserved = lengths.iter().filter(|&&length| length == 10 << 20).count();
    assert!(reserved >= 4, "index files were to be left at their reserved length: {lengths:?}");
    copy(&log_dir, &copy_dir);

    let (root, recovery) = open(&copy_dir, now_ms());
    assert!(!recovery.was_clean);
    root.logs().iter().for_each(|log| assert_eq!(acknowledge(log), log.log_end_offset()));
    let ours = find(&root);
    root.close(-1).expect("a close");
    assert_indexes_are_sane(&run, &copy_dir);
    let appended = ours.values().filter(|found| found.ends[1] >= 100).count();
    assert!(appended == ours.len(), "{appended} logs of {} were appended to", ours.len());
    for (partition, end) in &acknowledged {
        let recovered = ours[partition].ends[1];
        assert!(recovered >= *end, "{partition}: {end} was acknowledged, {recovered} recovered");
    }
    assert_broker_goes_on(&run, &theirs_dir, &ours, How::Recovering(&copy_dir));
}

/// The other process of the test above: appends to all logs by turns and says how far it is, until it is killed.
#[test]
fn child_that_appends_until_it_is_killed() {
    let Some(log_dir) = std::env::var_os(CHILD) else { return };
    let (root, _) = open(Path::new(&log_dir), now_ms());
    let logs: Vec<_> =
        root.logs().into_iter().filter(|log| topic_of(log.topic_partition()).is_some()).collect();
    let mut leaders: Vec<_> = logs.iter().map(|log| Leader::of(log, 0)).collect();
    for n in 0.. {
        for leader in &mut leaders {
            let partition = leader.log.topic_partition();
            let codec = Compression::ALL[n as usize % 5];
            if partition.topic.starts_with("money") {
                let bytes = leader.batch(codec, Some((FIRST_PRODUCER_ID + n % 3, 1)), true);
                leader.append(&bytes, AppendOrigin::Client);
                if n % 3 == 2 {
                    leader.marker(FIRST_PRODUCER_ID + n % 2, 1, n % 4 < 2);
                }
            } else {
                let producer = (n % 2 == 1).then_some((FIRST_PRODUCER_ID + n % 5, 0));
                let bytes = leader.batch(codec, producer, false);
                leader.append(&bytes, AppendOrigin::Client);
            }
            // One write, so that a line is whole or not there.
            let line =
                format!("at {} {} {}\n", partition.topic, partition.partition, acknowledge(leader.log));
            std::io::stdout().write_all(line.as_bytes()).expect("the parent listens");
            if n % 16 == 15 {
                leader.log.flush(leader.log.log_end_offset()).expect("a flush");
            }
        }
        if n % 48 == 47 {
            root.checkpoint().expect("a checkpoint");
        }
    }
}

/// Runs the child, kills it, and returns the ends that it had acknowledged.
fn append_until_killed(log_dir: &Path) -> BTreeMap<TopicPartition, i64> {
    const LINES_MIN: usize = 900;
    let mut child = Command::new(std::env::current_exe().expect("this very program"))
        .args(["--exact", "child_that_appends_until_it_is_killed", "--nocapture", "--test-threads=1"])
        .env(CHILD, log_dir)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the child starts");
    let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let (mut ends, mut count) = (BTreeMap::new(), 0);
    for line in lines {
        let line = line.expect("text");
        let Some(at) = line.split_once("at ").map(|(_, at)| at) else { continue };
        let [topic, partition, end] = at.split(' ').collect::<Vec<_>>()[..] else { continue };
        let partition = TopicPartition::new(topic, partition.parse().expect("a partition"));
        ends.insert(partition, end.parse().expect("an offset"));
        count += 1;
        if count == LINES_MIN {
            // What it still says meanwhile is read to the end of the pipe.
            child.kill().expect("it runs until it is killed");
        }
    }
    let status = child.wait().expect("our child");
    assert!(!status.success() && count >= LINES_MIN, "the child ended by itself: {status}, {count} lines");
    ends
}

/// The comparison must see a record whose value, time or place was changed, and a missing one.
#[test]
fn a_changed_record_is_seen() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let partition = TopicPartition::new("plain", 0);
    let (root, _) = open(folder.path(), now_ms());
    let log = root.create(&partition, None, store::config_of(&partition), now_ms()).expect("a log");
    let mut leader = Leader::of(&log, 0);
    for codec in [Compression::None, Compression::None, Compression::Zstd] {
        let bytes = leader.batch(codec, None, false);
        leader.append(&bytes, AppendOrigin::Client);
    }
    acknowledge(&log);
    let told = find(&root);
    root.close(1).expect("a close");
    drop(log);
    assert_eq!(told[&partition].records.len(), leader_count(&told, &partition));
    assert_eq!(differences(&told, &find(&open(folder.path(), now_ms()).0)), [""; 0]);

    let path = folder.path().join("plain-0/00000000000000000000.log");
    let whole = fs::read(&path).expect("a log");
    let plant = |bytes: Vec<u8>| {
        fs::write(&path, bytes).expect("written");
        differences(&told, &find(&open(folder.path(), now_ms()).0))
    };
    assert_eq!(plant(with_another_key(&whole)).len(), 1, "a key");
    // The leader epoch lies outside the checksum, and is that of every record of the batch.
    let mut bytes = whole.clone();
    bytes[15] ^= 1;
    let epochs = plant(bytes).len();
    let records = BatchFrame::parse(&whole).expect("a batch").0.records_count();
    assert_eq!(epochs, usize::try_from(records).expect("few"), "an epoch");

    let mut fewer = told.clone();
    let found = fewer.get_mut(&partition).expect("the partition");
    found.records.pop();
    found.ends[1] -= 1;
    assert_eq!(differences(&told, &fewer).len(), 2);
    assert_eq!(differences(&told, &Partitions::new()).len(), 1);
}

fn leader_count(found: &Partitions, partition: &TopicPartition) -> usize {
    usize::try_from(found[partition].ends[1]).expect("an offset")
}

// ---- what the tests share ----

/// How redrive stopped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How<'p> {
    Cleanly,
    /// Here lies what redrive recovered of a copy.
    Recovering(&'p Path),
}

/// A broker starts on what redrive left, finds in it what redrive did, and goes on; then redrive finds what the broker
/// made of it. A record that is changed afterwards is seen.
fn assert_broker_goes_on(run: &Run, folder: &Path, ours: &Partitions, how: How<'_>) {
    let log_dir = folder.join("data");
    if how == How::Cleanly {
        assert_indexes_are_sane(run, &log_dir);
    }
    let broker = run.kafka.start(folder, "");
    let served = told(&run.kafka.drive_by(Driver::Store, &broker, "read", &all_topics()));
    assert_eq!(differences(&served, ours), [""; 0], "what redrive left");
    let gone_on = told(&run.kafka.drive_by(Driver::Store, &broker, "go-on", &all_topics()));
    let log_file = broker.log_file();
    broker.stop();
    let text = fs::read(&log_file).expect("the broker's log");
    let loaded = ends_when_loaded(&String::from_utf8_lossy(&text));
    assert_eq!(loaded, ours.iter().map(|(partition, found)| (partition.clone(), found.ends[1])).collect());
    match how {
        How::Cleanly => assert_eq!(complaints(&log_file), [""; 0]),
        How::Recovering(copy) => assert_same_files(copy, &log_dir, |_| true),
    }
    assert_eq!(strays(&log_dir), [""; 0]);
    for (partition, found) in &gone_on {
        assert!(found.ends[1] >= ours[partition].ends[1] + 2, "{partition} was to be gone on with");
    }

    let broker_epoch = broker_epoch(&log_dir);
    let (root, recovery) = open(&log_dir, now_ms());
    assert!(recovery.was_clean && recovery.partitions.values().all(|done| done.segments.is_empty()));
    assert_eq!(differences(&gone_on, &find(&root)), [""; 0], "what the broker left");
    root.close(broker_epoch).expect("a close");
    assert_indexes_are_sane(run, &log_dir);
    let records: usize = gone_on.values().map(|found| found.records.len()).sum();
    say(&format!("{records} records in {} partitions are the same on both sides", gone_on.len()));

    let path = log_dir.join("plain-0/00000000000000000000.log");
    fs::write(&path, with_another_key(&fs::read(&path).expect("a log"))).expect("written");
    let seen = differences(&gone_on, &find(&open(&log_dir, now_ms()).0));
    assert!(seen.len() == 1 && seen[0].contains("plain-0, a record"), "a changed record: {seen:?}");
}

/// The log with another key in one record of its first batches, under a checksum that is right.
fn with_another_key(log: &[u8]) -> Vec<u8> {
    let mut log = log.to_vec();
    let mut at = 0;
    loop {
        let size =
            BatchFrame::parse(&log[at..]).expect("a batch that is not compressed, with a key").0.size();
        let batch = &mut log[at..at + size];
        if let Some(key) = batch.windows(4).position(|window| window == b"key-") {
            batch[key] ^= 1;
            reseal(batch);
            return log;
        }
        at += size;
    }
}

/// Kafka's own tool finds nothing to say against the offset and time indexes, nor against any of their entries.
fn assert_indexes_are_sane(run: &Run, log_dir: &Path) {
    let is_index = |name: &str| name.ends_with(".index") || name.ends_with(".timeindex");
    let files = files_of(log_dir).into_values().flatten();
    let indexes: Vec<PathBuf> = files.filter(|(name, _)| is_index(name)).map(|(_, path)| path).collect();
    assert!(indexes.len() >= 40, "{} index files", indexes.len());
    let report = run.kafka.dump_log(&["--index-sanity-check"], &indexes);
    let (mut passed, mut said) = (0, Vec::new());
    for line in report.lines().filter(|line| !line.starts_with("Dumping ")) {
        let is_empty = |path: &str| fs::metadata(path).is_ok_and(|file| file.len() == 0);
        if line.ends_with(" passed sanity check.") || line.strip_suffix(" is empty.").is_some_and(is_empty) {
            passed += 1;
        } else {
            said.push(line);
        }
    }
    assert_eq!((passed, said), (indexes.len(), vec![]));
    // Every entry against the log that it points into.
    let report = run.kafka.dump_log(&["--verify-index-only"], &indexes);
    let is_news = |line: &&str| !line.starts_with("Dumping ") && !line.ends_with(" is empty.");
    let said: Vec<_> = report.lines().filter(is_news).collect();
    assert_eq!(said, [""; 0]);
}

/// End offsets as a broker's lines say at which it loads its logs.
fn ends_when_loaded(log: &str) -> BTreeMap<TopicPartition, i64> {
    let mut ends = BTreeMap::new();
    for line in log.lines() {
        let Some((before, after)) = line.split_once("Loading producer state till offset ") else { continue };
        let name = before.split("partition=").nth(1).and_then(|rest| rest.split([',', ']']).next());
        let Some((topic, number)) = name.and_then(|name| name.rsplit_once('-')) else { continue };
        let partition = TopicPartition::new(topic, number.parse().expect("a partition"));
        let end = after.split(|c: char| !c.is_ascii_digit()).next().and_then(|end| end.parse().ok());
        if topic_of(&partition).is_some() {
            ends.insert(partition, end.expect("an offset"));
        }
    }
    ends
}

fn make_topics(run: &Run, broker: &harness::Broker) {
    let specs = TOPICS.map(|topic| format!("{}:{}:{}", topic.name, topic.partitions, topic.settings));
    let specs: Vec<&OsStr> = specs.iter().map(OsStr::new).collect();
    run.kafka.drive_by(Driver::Store, broker, "topics", &specs);
}

fn arguments<'a>(names: &[&'a str]) -> Vec<&'a OsStr> {
    names.iter().map(|name| OsStr::new(*name)).collect()
}

fn all_topics() -> Vec<&'static OsStr> {
    arguments(&TOPICS.map(|topic| topic.name))
}

/// The epoch under which the broker stopped: the next one tells its controller of it.
fn broker_epoch(log_dir: &Path) -> i64 {
    let file = fs::read(log_dir.join(".kafka_cleanshutdown")).expect("a clean stop");
    CleanShutdown::parse(&file).broker_epoch.expect("an epoch")
}

fn now_ms() -> i64 {
    let now = std::time::UNIX_EPOCH.elapsed().expect("a clock");
    i64::try_from(now.as_millis()).expect("a time")
}
