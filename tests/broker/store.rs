//! What a log directory holds, as a broker's clients and as this engine find it, and where the two differ.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redrive::batch::{BatchFrame, ControlRecord, Decompressor, Limits, Record, TimestampType};
use redrive::io::FileSystem;
use redrive::log::config::CompressionType;
use redrive::log::{Log, LogConfig, ReadUpTo};
use redrive::log_dir::{LogRoot, OpenOptions, RootRecovery};
use redrive::producer_state::{ProducerEntry, ProducerSnapshot};
use redrive::types::{Offset, TopicPartition};
use redrive_tests::vectors::to_hex;
use sha2::{Digest as _, Sha256};

/// A topic as the driver makes it, and as [`config_of`] configures its logs.
pub(crate) struct Topic {
    pub(crate) name: &'static str,
    pub(crate) partitions: i32,
    /// `property=value`, with commas between.
    pub(crate) settings: &'static str,
    /// Whether a broker writes to it before this engine does.
    pub(crate) is_brokers: bool,
}

/// Segments so small that every log rolls, and so many index entries that they matter. Topics called `money…` hold
/// transactions.
pub(crate) const TOPICS: [Topic; 7] = [
    Topic {
        name: "plain",
        partitions: 2,
        settings: "internal.segment.bytes=16384,index.interval.bytes=256",
        is_brokers: true,
    },
    Topic {
        name: "stamped",
        partitions: 1,
        settings: "internal.segment.bytes=8192,index.interval.bytes=300,message.timestamp.type=LogAppendTime",
        is_brokers: true,
    },
    Topic {
        name: "repacked",
        partitions: 1,
        settings: "internal.segment.bytes=12000,index.interval.bytes=512,compression.type=lz4",
        is_brokers: true,
    },
    Topic {
        name: "compacted",
        partitions: 1,
        settings: "internal.segment.bytes=8192,index.interval.bytes=1,segment.index.bytes=512,cleanup.policy=compact",
        is_brokers: true,
    },
    Topic {
        name: "money",
        partitions: 2,
        settings: "internal.segment.bytes=8192,index.interval.bytes=200",
        is_brokers: true,
    },
    Topic {
        name: "made",
        partitions: 2,
        settings: "internal.segment.bytes=10000,index.interval.bytes=4096",
        is_brokers: false,
    },
    Topic {
        name: "money-made",
        partitions: 1,
        settings: "internal.segment.bytes=8192,index.interval.bytes=128",
        is_brokers: false,
    },
];

pub(crate) fn topic_of(partition: &TopicPartition) -> Option<&'static Topic> {
    TOPICS.iter().find(|topic| topic.name == partition.topic)
}

/// The settings under which a broker writes the partition.
pub(crate) fn config_of(partition: &TopicPartition) -> LogConfig {
    let mut config = LogConfig::default();
    let Some(topic) = topic_of(partition) else {
        // One of the broker's own topics: nothing is appended to it.
        return LogConfig { compact: true, segment_bytes: 100 << 20, ..config };
    };
    for setting in topic.settings.split(',') {
        let (property, value) = setting.split_once('=').expect("property=value");
        let number = || value.parse().expect("a number");
        match property {
            "internal.segment.bytes" => config.segment_bytes = number(),
            "index.interval.bytes" => config.index_interval_bytes = number(),
            "segment.index.bytes" => config.segment_index_bytes = number(),
            "compression.type" => {
                config.compression_type = CompressionType::from_name(value).expect("a codec");
            }
            "message.timestamp.type" => config.message_timestamp_type = TimestampType::LogAppendTime,
            "cleanup.policy" => config.compact = true,
            other => panic!("no setting of a log: {other}"),
        }
    }
    config
}

/// Opens a root as an embedder does; every partition must come up.
pub(crate) fn open(log_dir: &Path, now_ms: i64) -> (LogRoot, RootRecovery) {
    let options = OpenOptions {
        threads: NonZero::new(2).expect("two"),
        config: &config_of,
        may_reset: false,
        now_ms,
        progress: None,
    };
    let (root, recovery) = LogRoot::open(Arc::new(FileSystem), log_dir, &options).expect("a root");
    assert!(root.failed().is_empty(), "{:?}", root.failed());
    assert!(root.notices().is_empty(), "{:?}", root.notices());
    (root, recovery)
}

/// A record as a consumer gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FoundRecord {
    pub(crate) offset: i64,
    leader_epoch: i32,
    timestamp: i64,
    timestamp_type: &'static str,
    /// Over key, value and headers; see `StoreDriver.java`.
    digest: String,
    /// Whether a read_committed consumer gets it.
    is_committed: bool,
}

/// What one partition holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// Log start, log end, last stable offset.
    pub(crate) ends: [i64; 3],
    /// Offset and time of the record with the largest timestamp.
    largest: [i64; 2],
    /// For a time that was asked for: offset and time of the first record with that time or a later one.
    at: BTreeMap<i64, [i64; 2]>,
    /// By id: epoch, last sequence, last timestamp, coordinator epoch, start of the open transaction.
    pub(crate) producers: BTreeMap<i64, [i64; 5]>,
    pub(crate) records: Vec<FoundRecord>,
}

pub(crate) type Partitions = BTreeMap<TopicPartition, Found>;

/// What the driver says that a broker serves.
pub(crate) fn told(answer: &str) -> Partitions {
    let mut partitions = Partitions::new();
    for line in answer.lines() {
        let mut words = line.split(' ');
        let [kind, topic, partition] = [(); 3].map(|()| words.next().expect("a line of the driver"));
        let partition = TopicPartition::new(topic, partition.parse().expect("a partition"));
        let found = partitions.entry(partition).or_default();
        let words: Vec<&str> = words.collect();
        let number = |index: usize| words[index].parse::<i64>().expect("a number");
        match kind {
            "end" => found.ends = [number(0), number(1), number(2)],
            "max" => found.largest = [number(0), number(1)],
            "at" => drop(found.at.insert(number(0), [number(1), number(2)])),
            "producer" => {
                found.producers.insert(number(0), [1, 2, 3, 4, 5].map(number));
            }
            "record" => found.records.push(FoundRecord {
                offset: number(0),
                leader_epoch: words[1].parse().expect("an epoch"),
                timestamp: number(2),
                timestamp_type: match words[3] {
                    "CreateTime" => "CreateTime",
                    "LogAppendTime" => "LogAppendTime",
                    other => panic!("a type of timestamps: {other}"),
                },
                digest: words[4].to_owned(),
                is_committed: words[5].parse().expect("true or false"),
            }),
            other => panic!("the driver says {other}"),
        }
    }
    partitions
}

/// What this engine finds in the logs of [`TOPICS`].
pub(crate) fn find(root: &LogRoot) -> Partitions {
    let logs = root.logs();
    let ours = logs.iter().filter(|log| topic_of(log.topic_partition()).is_some());
    ours.map(|log| (log.topic_partition().clone(), find_in(log))).collect()
}

fn find_in(log: &Log) -> Found {
    let (mut records, aborted) = records_of(log);
    let offsets = log.offsets();
    let state = log.producer_state();
    let stable = state.last_stable_offset(offsets.high_watermark, offsets.log_start_offset).0;
    for record in &mut records {
        record.is_committed = record.offset < stable && !aborted.contains(&record.offset);
    }
    let limits = Limits::default();
    let times = records.iter().map(|record| record.timestamp);
    let (first, last) = (times.clone().min().unwrap_or(0), times.max().unwrap_or(0));
    // The times that the driver asks for.
    let at = (0..6).map(|n| first + (last - first) * n / 4).map(|time| {
        let found = log.find_by_timestamp(time, ReadUpTo::HighWatermark, &limits).expect("a look-up");
        (time, found.map_or([-1, -1], |found| [found.offset.0, found.timestamp]))
    });
    let largest = log.find_max_timestamp(&limits).expect("a look-up");
    let producers = state.entries().map(|entry| {
        let sequence = entry.last_batch().map_or(-1, |batch| batch.metadata.last_sequence.into());
        let start = entry.current_txn_first_offset().map_or(-1, |offset| offset.0);
        let of_marker = entry.coordinator_epoch().into();
        let epoch = entry.producer_epoch().into();
        (entry.producer_id().0, [epoch, sequence, entry.last_timestamp(), of_marker, start])
    });
    Found {
        ends: [offsets.log_start_offset.0, offsets.high_watermark.0, stable],
        largest: largest.map_or([-1, -1], |found| [found.offset.0, found.timestamp]),
        at: at.collect(),
        producers: producers.collect(),
        records,
    }
}

/// The records of a log, and the offsets of those whose transaction was aborted.
fn records_of(log: &Log) -> (Vec<FoundRecord>, BTreeSet<i64>) {
    let (mut records, mut aborted) = (Vec::new(), BTreeSet::new());
    let mut open: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    let mut decompressor = Decompressor::new();
    let mut at = log.log_start_offset();
    loop {
        let read = log.read(at, 1 << 20, ReadUpTo::LogEnd, true).expect("a read");
        if read.bytes.is_empty() {
            assert_eq!(at, log.log_end_offset(), "{}", log.topic_partition());
            return (records, aborted);
        }
        assert_eq!(read.offset, at, "offsets follow each other in {}", log.topic_partition());
        let mut rest = &read.bytes[..];
        while let Ok((frame, after)) = BatchFrame::parse(rest) {
            (at, rest) = (frame.last_offset().next(), after);
            let batch = frame.verify().expect("a right CRC");
            let frame = *batch.frame();
            let producer = frame.producer_id().0;
            for record in batch.records(&mut decompressor, &Limits::default()).expect("records") {
                let record = record.expect("a record");
                if frame.is_control() {
                    let marker = ControlRecord::parse(&record).expect("a control record").marker;
                    let ended = open.remove(&producer).unwrap_or_default();
                    if !marker.expect("a marker").committed {
                        aborted.extend(ended);
                    }
                    continue;
                }
                if frame.is_transactional() {
                    open.entry(producer).or_default().push(record.offset.0);
                }
                records.push(FoundRecord {
                    offset: record.offset.0,
                    leader_epoch: frame.partition_leader_epoch(),
                    timestamp: record.timestamp,
                    timestamp_type: if frame.is_log_append_time() { "LogAppendTime" } else { "CreateTime" },
                    digest: digest(&record),
                    is_committed: false,
                });
            }
        }
    }
}

fn digest(record: &Record<'_>) -> String {
    let mut sha = Sha256::new();
    let mut put = |field: Option<&[u8]>| {
        let length = field.map_or(-1, |field| i32::try_from(field.len()).expect("a short field"));
        sha.update(length.to_be_bytes());
        sha.update(field.unwrap_or_default());
    };
    put(record.key);
    put(record.value);
    for header in record.headers() {
        put(Some(header.key));
        put(header.value);
    }
    to_hex(&sha.finalize()[..12])
}

/// Every way in which two sides differ, a sentence each.
pub(crate) fn differences(theirs: &Partitions, ours: &Partitions) -> Vec<String> {
    let mut differences = Vec::new();
    let names: BTreeSet<_> = theirs.keys().chain(ours.keys()).collect();
    for name in names {
        let (Some(theirs), Some(ours)) = (theirs.get(name), ours.get(name)) else {
            differences.push(format!("{name} is known to one side only"));
            continue;
        };
        let mut unlike = |what: &str, theirs: &dyn std::fmt::Debug, ours: &dyn std::fmt::Debug| {
            differences.push(format!("{name}, {what}: the broker has {theirs:?}, redrive {ours:?}"));
        };
        if theirs.ends != ours.ends {
            unlike("start, end and stable offset", &theirs.ends, &ours.ends);
        }
        if theirs.largest != ours.largest {
            unlike("largest timestamp", &theirs.largest, &ours.largest);
        }
        if theirs.at != ours.at {
            unlike("looked up by time", &theirs.at, &ours.at);
        }
        if theirs.producers != ours.producers {
            unlike("producers", &theirs.producers, &ours.producers);
        }
        let most = theirs.records.len().max(ours.records.len());
        for index in 0..most {
            let (theirs, ours) = (theirs.records.get(index), ours.records.get(index));
            if theirs != ours {
                unlike("a record", &theirs, &ours);
            }
        }
    }
    differences
}

/// Sides whose records are as many as those of a real run: an empty load must not pass for one.
pub(crate) fn assert_is_rich(found: &Partitions, records_min: usize, partitions: &[&str]) {
    for name in partitions {
        let of_topic = found.iter().filter(|(partition, _)| partition.topic == **name);
        let counts: Vec<_> = of_topic.map(|(_, found)| found.records.len()).collect();
        assert!(
            !counts.is_empty() && counts.iter().all(|&count| count >= records_min),
            "{name}: {counts:?} records, at least {records_min} expected in each partition"
        );
        if name.starts_with("money") {
            let of_topic = found.iter().filter(|(partition, _)| partition.topic == **name);
            let aborted = of_topic.flat_map(|(_, found)| &found.records).filter(|found| !found.is_committed);
            assert!(aborted.count() >= 5, "{name} was to have aborted transactions");
        }
    }
}

/// Lines in which a broker complains of what it found in its logs.
pub(crate) fn complaints(broker_log: &Path) -> Vec<String> {
    let text = fs::read(broker_log).expect("the broker's log");
    let text = String::from_utf8_lossy(&text);
    let is_complaint = |line: &&str| {
        let lower = line.to_lowercase();
        let is_loud = [" WARN ", " ERROR ", " FATAL "].iter().any(|level| line.contains(level));
        let is_of_logs =
            ["(kafka.log.", ".internals.log.", "storage."].iter().any(|name| line.contains(name));
        (is_loud && is_of_logs)
            || ["corrupt", "stray", "recovering unflushed", "truncating to", "invalid"]
                .iter()
                .any(|word| lower.contains(word))
    };
    // The settings, which it prints at its start, have many words. The log of the cluster is not ours.
    let is_ours = |line: &&str| !line.starts_with('\t') && !line.contains("__cluster_metadata");
    text.lines().filter(is_ours).filter(is_complaint).map(str::to_owned).collect()
}

/// The files of the logs of [`TOPICS`], by partition and name.
pub(crate) fn files_of(log_dir: &Path) -> BTreeMap<TopicPartition, BTreeMap<String, PathBuf>> {
    let partitions = TOPICS
        .iter()
        .flat_map(|topic| (0..topic.partitions).map(|number| TopicPartition::new(topic.name, number)));
    partitions
        .map(|partition| {
            let folder = log_dir.join(partition.to_string());
            let entries = fs::read_dir(folder).expect("a partition's folder");
            let files = entries.map(|entry| {
                let entry = entry.expect("a name");
                (entry.file_name().into_string().expect("a name of Kafka's"), entry.path())
            });
            (partition, files.collect())
        })
        .collect()
}

/// Folders of a root that a broker put aside.
pub(crate) fn strays(log_dir: &Path) -> Vec<String> {
    let names =
        fs::read_dir(log_dir).expect("a log directory").map(|entry| entry.expect("a name").file_name());
    let names = names.map(|name| name.to_string_lossy().into_owned());
    names.filter(|name| ["-stray", "-delete", "-future"].iter().any(|end| name.ends_with(end))).collect()
}

/// How far a log is acknowledged, and everything below its end is replicated.
pub(crate) fn acknowledge(log: &Log) -> Offset {
    log.update_high_watermark(log.log_end_offset()).expect("an offset")
}

/// Tears three logs as a loss of power may: the end of a batch is missing, zeros follow it, or a byte in the middle of
/// the last segment is another.
pub(crate) fn tear(log_dir: &Path) {
    use std::os::unix::fs::FileExt as _;
    let files = files_of(log_dir);
    let last_log = |topic: &str, partition: i32| {
        let files = &files[&TopicPartition::new(topic, partition)];
        // A broker that is killed while it rolls leaves an empty segment behind.
        let mut logs = files.iter().rev().filter(|(name, _)| name.ends_with(".log")).map(|(_, path)| path);
        let last = logs.find(|path| path.metadata().expect("a file").len() > 200).expect("a batch");
        let file = fs::OpenOptions::new().read(true).write(true).open(last).expect("a log");
        let len = file.metadata().expect("a file").len();
        (file, len)
    };
    let (file, len) = last_log("plain", 0);
    file.set_len(len - 7).expect("shorter");
    let (file, len) = last_log("plain", 1);
    file.set_len(len + 4096).expect("longer");
    let (file, len) = last_log("stamped", 0);
    let mut byte = [0];
    file.read_exact_at(&mut byte, len / 2).expect("a byte");
    file.write_all_at(&[byte[0] ^ 0x10], len / 2).expect("another byte");
}

/// The same logs, indexes, producers and leader epochs; of the partitions that the broker went on with, as far as ours
/// go: then the indexes of our last segment are left out. The broker adds the epoch under which it became the leader.
pub(crate) fn assert_same_files(ours: &Path, theirs: &Path, gone_on: impl Fn(&TopicPartition) -> bool) {
    let theirs = files_of(theirs);
    let mut compared = 0;
    for (partition, files) in files_of(ours) {
        let their_files = &theirs[&partition];
        let last = files.keys().rfind(|name| name.ends_with(".log")).expect("a segment");
        let last = last.trim_end_matches(".log");
        for (name, path) in &files {
            let read = |path: &Path| fs::read(path).expect("a file");
            let their_path = || their_files.get(name).unwrap_or_else(|| panic!("{partition}: no {name}"));
            let is_index = name.ends_with("index");
            if name == "leader-epoch-checkpoint" {
                let [ours, theirs] = [path, their_path()].map(|path| epochs(&read(path)));
                assert!(theirs.starts_with(&ours), "{partition}: epochs {theirs:?}, ours {ours:?}");
            } else if name.ends_with(".snapshot") && !gone_on(&partition) {
                let [ours, theirs] = [path, their_path()].map(|path| producers(&read(path)));
                assert_eq!(ours, theirs, "{partition}/{name}");
            } else if name.ends_with(".log") || is_index && !(gone_on(&partition) && name.starts_with(last)) {
                let (ours, mut theirs) = (read(path), read(their_path()));
                if gone_on(&partition) && !is_index {
                    theirs.truncate(ours.len());
                }
                assert!(ours == theirs, "{partition}/{name}: {} bytes, {} bytes", ours.len(), theirs.len());
            } else {
                continue;
            }
            compared += 1;
        }
        if !gone_on(&partition) {
            // Of a segment that goes anyway the broker first makes the index that the killed one did not get to.
            let is_kept = |name: &&String| !name.ends_with(".deleted");
            assert_eq!(
                files.keys().filter(is_kept).collect::<Vec<_>>(),
                their_files.keys().filter(is_kept).collect::<Vec<_>>(),
                "{partition}"
            );
        }
    }
    assert!(compared > 80, "{compared} files were compared");
}

/// Epochs with their start offsets, as the lines of the file behind its version and count.
fn epochs(file: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(file).lines().skip(2).map(str::to_owned).collect()
}

/// The producers of a snapshot, in the order of their ids.
fn producers(file: &[u8]) -> Vec<ProducerEntry> {
    let mut entries = ProducerSnapshot::parse(file).expect("a snapshot").entries;
    entries.sort_by_key(|entry| entry.producer_id);
    entries
}

/// Copies a folder with all that is in it.
pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("a name");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("a type").is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), &target).expect("a copy");
        }
    }
}
