//! Index files of segments against those that Kafka wrote.

mod segment_bytes;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use redrive::batch::BatchFrame;
use redrive::segment::index::AbortedTransaction;
use redrive::segment::{SegmentConfig, SegmentFileKind, SegmentWriter};
use redrive::types::{Offset, ProducerId};
use redrive_tests::corpus::{self, Case};
use redrive_tests::vectors::{self, hex};
use segment_bytes::{INDEXES, append, batches, create, frame, memory, open, path};
use serde_json::Value;

/// Open transactions by producer, in the plainest way: what a transaction index needs of producer state.
#[derive(Clone, Debug, Default)]
struct OpenTransactions(BTreeMap<i64, i64>);

impl OpenTransactions {
    fn observe(&mut self, frame: &BatchFrame<'_>) -> Option<AbortedTransaction> {
        let producer = frame.producer_id().0;
        if !frame.is_transactional() {
            return None;
        }
        if !frame.is_control() {
            self.0.entry(producer).or_insert(frame.base_offset().0);
            return None;
        }
        let first = self.0.remove(&producer)?;
        // The record: length, attributes, two deltas, key length, then a version and the type of the marker.
        let is_abort = frame.bytes()[61 + 5..61 + 9] == [0, 0, 0, 0];
        let stable = self.0.values().min().copied().unwrap_or(frame.last_offset().0 + 1);
        is_abort.then_some(AbortedTransaction {
            producer_id: ProducerId(producer),
            first_offset: Offset(first),
            last_offset: frame.last_offset(),
            last_stable_offset: Offset(stable),
        })
    }
}

fn append_observed(writer: &mut SegmentWriter, open: &mut OpenTransactions, batch: &[u8]) {
    append(writer, batch);
    if let Some(aborted) = open.observe(&frame(batch)) {
        writer.append_aborted(aborted).expect("an entry");
    }
}

#[test]
fn indexes_are_those_that_kafkas_classes_wrote() {
    let golden = vectors::group("golden_log_dir");
    let config =
        SegmentConfig { index_bytes_max: 1003, index_interval_bytes: 300, ..SegmentConfig::default() };
    let file = |part: &str, base: i64, kind: SegmentFileKind| {
        let name = path(base, kind);
        let name = name.file_name().and_then(|name| name.to_str()).expect("a name");
        golden[part][name].as_str().map(hex)
    };
    let log = |base| file("closed", base, SegmentFileKind::Log).expect("a log");
    let mut open_transactions = OpenTransactions::default();
    for base in [0, 51, 86] {
        let before = open_transactions.clone();
        let storage = memory();
        let mut writer = create(&storage, base, &config);
        for batch in batches(&log(base)) {
            append_observed(&mut writer, &mut open_transactions, batch);
        }
        if base == 86 {
            writer.flush().expect("flushed");
            for kind in [SegmentFileKind::OffsetIndex, SegmentFileKind::TimeIndex] {
                assert_eq!(
                    storage.content(path(base, kind)),
                    file("live", base, kind),
                    "{base} {kind:?} live"
                );
            }
        }
        drop(writer.close().expect("closed"));
        for kind in INDEXES {
            assert_eq!(storage.content(path(base, kind)), file("closed", base, kind), "{base} {kind:?}");
        }
        assert_eq!(storage.content(path(base, SegmentFileKind::Log)), Some(log(base)));

        // The same by recovery, from nothing but the log; of the last segment once with five bytes missing.
        let cuts = if base == 86 { &[0, 5][..] } else { &[0] };
        for &cut in cuts {
            let mut open_transactions = before.clone();
            let storage = memory();
            let bytes = log(base);
            storage.write(path(base, SegmentFileKind::Log), &bytes[..bytes.len() - cut]);
            let recovered = open(&storage, base)
                .recover(&config, |frame, _| Ok(open_transactions.observe(frame)))
                .expect("recovered");
            assert_eq!(recovered.cut.is_some(), cut > 0);
            let part = if cut > 0 { "recovered" } else { "closed" };
            for kind in INDEXES {
                assert_eq!(
                    storage.content(path(base, kind)),
                    file(part, base, kind),
                    "{part} {base} {kind:?}"
                );
            }
            assert_eq!(
                storage.content(path(base, SegmentFileKind::Log)),
                file(part, base, SegmentFileKind::Log)
            );
        }
    }
}

/// A setting in the form `name=value`.
fn setting(case: &Case, name: &str) -> Option<u32> {
    let settings = case.info["brokerSettings"].as_array().into_iter().flatten();
    settings.filter_map(Value::as_str).find_map(|setting| {
        let (key, value) = setting.split_once('=')?;
        (key == name).then(|| value.parse().expect("a number"))
    })
}

/// The offset at which the broker was stopped and started again, where that happened in the middle of the data.
fn restart(case: &Case, data: &Path, partition: &str) -> Option<i64> {
    if !matches!(&case.name[..], "unclean-stop" | "unclean-stop-small-index") {
        return None;
    }
    // The case says so: the recovery points are those of the clean stop in between.
    let text = fs::read_to_string(data.join("recovery-point-offset-checkpoint")).expect("a checkpoint");
    let (topic, number) = partition.rsplit_once('-').expect("a partition");
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{topic} {number} ")));
    Some(line.expect("the partition").parse().expect("an offset"))
}

#[test]
fn indexes_are_those_of_real_brokers() {
    let mut compared = BTreeMap::<&str, usize>::new();
    for case in corpus::cases() {
        let config = SegmentConfig {
            index_interval_bytes: setting(&case, "log.index.interval.bytes").unwrap_or(4096),
            index_bytes_max: setting(&case, "log.index.size.max.bytes").unwrap_or(10 << 20),
            ..SegmentConfig::default()
        };
        for data in &case.data_dirs {
            for partition in fs::read_dir(data).expect("a folder") {
                let partition = partition.expect("an entry").path();
                if partition.is_dir() {
                    compare_partition(&case, data, &partition, &config, &mut compared);
                }
            }
        }
    }
    // How many files of each kind there are, so that none is left out unseen.
    println!("{compared:?}");
    assert!(compared["index"] > 500 && compared["timeindex"] > 500, "{compared:?}");
    assert!(compared["preallocated"] > 20 && compared["txnindex"] > 50, "{compared:?}");
}

fn compare_partition(
    case: &Case,
    data: &Path,
    partition: &Path,
    config: &SegmentConfig,
    compared: &mut BTreeMap<&str, usize>,
) {
    let name = partition.file_name().and_then(|name| name.to_str()).expect("a name");
    let restart = restart(case, data, name);
    let mut logs: Vec<_> = fs::read_dir(partition)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("ASCII"))
        .filter(|file| file.ends_with(".log"))
        .collect();
    logs.sort();
    // Where data is gone, its transactions cannot be told from the log.
    let is_whole = logs.first().is_some_and(|first| first.starts_with("00000000000000000000."))
        && !["compacted", "expired", "50", "rotation"].iter().any(|word| case.name.contains(word));
    let mut open_transactions = OpenTransactions::default();
    for file in logs {
        let base = file[..20].parse().expect("an offset");
        let broker = |kind: SegmentFileKind| {
            let name = path(base, kind);
            fs::read(partition.join(name.file_name().expect("a name"))).ok()
        };
        let bytes = broker(SegmentFileKind::Log).expect("a log");
        let before = open_transactions.clone();
        let storage = memory();
        let mut writer = create(&storage, base, config);
        for batch in batches(&bytes) {
            if restart == Some(frame(batch).base_offset().0) && writer.size() > 0 {
                let segment = writer.close().expect("closed");
                writer = SegmentWriter::resume(segment, config.clone(), 0).expect("resumed");
            }
            append_observed(&mut writer, &mut open_transactions, batch);
        }
        // A segment that was still appended to when its broker died has files of full length.
        let full = (config.index_bytes_max / 8 * 8) as usize;
        let is_live = broker(SegmentFileKind::OffsetIndex).is_some_and(|index| index.len() == full);
        if is_live {
            writer.flush().expect("flushed");
        } else {
            drop(writer.close().expect("closed"));
        }
        for (kind, word) in
            [(SegmentFileKind::OffsetIndex, "index"), (SegmentFileKind::TimeIndex, "timeindex")]
        {
            assert!(
                storage.content(path(base, kind)) == broker(kind),
                "{} {name} {base} {kind:?}",
                case.name
            );
            *compared.entry(word).or_default() += 1;
            *compared.entry("preallocated").or_default() += usize::from(is_live);
        }
        if is_whole {
            let ours = storage.content(path(base, SegmentFileKind::TransactionIndex));
            let broker = broker(SegmentFileKind::TransactionIndex);
            *compared.entry("txnindex").or_default() += usize::from(broker.is_some());
            // An empty one may be left behind by a recovery.
            let is_same = ours.unwrap_or_default() == broker.unwrap_or_default();
            assert!(is_same, "{} {name} {base} transaction index", case.name);
        }
        // Recovery of the same bytes: what a segment has that was written without a stop in between.
        let closed = |kind| storage.content(path(base, kind));
        if !is_live && restart.is_none() {
            let expected = INDEXES.map(closed);
            for kind in INDEXES {
                storage.remove(path(base, kind));
            }
            let mut open_transactions = before;
            open(&storage, base)
                .recover(config, |frame, _| Ok(open_transactions.observe(frame)))
                .expect("recovered");
            assert!(INDEXES.map(closed) == expected, "{} {name} {base} recovered", case.name);
        }
    }
}
