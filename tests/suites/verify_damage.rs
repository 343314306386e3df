//! Damage that is put into whole directories: every byte of the small files, and each thing that can be found.

#![deny(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use redrive::io::MemoryStorage;
use redrive::log_dir::verify::{Finding, FindingKind, Severity, Verify, VerifyReport};
use redrive_tests::corpus;
use redrive_tests::logs::{BatchSpec, RecordSpec, TRANSACTIONAL, reseal};
use redrive_tests::naive;

const CLEAN: (&str, &[u8]) = (".kafka_cleanshutdown", b"{\"version\":0,\"brokerEpoch\":1}");

/// A log directory in memory, by path below its root.
#[derive(Clone, Default)]
struct Root(BTreeMap<String, Vec<u8>>);

impl Root {
    fn file(mut self, name: &str, bytes: impl Into<Vec<u8>>) -> Self {
        self.0.insert(name.to_owned(), bytes.into());
        self
    }

    fn clean(self) -> Self {
        self.file(CLEAN.0, CLEAN.1)
    }

    fn verify(&self) -> VerifyReport {
        let storage = MemoryStorage::new();
        for (name, bytes) in &self.0 {
            storage.write(format!("/logs/{name}"), bytes.clone());
        }
        let verify = Verify::open(Arc::new(storage), ["/logs"]).expect("a log directory");
        let verify = verify.threads(std::num::NonZero::<usize>::MIN);
        verify.run(&AtomicBool::new(false), &mut |_| {}).expect("a report")
    }

    /// The findings of one file.
    fn findings_of(&self, name: &str) -> Vec<Finding> {
        let path = Path::new("/logs").join(name);
        self.verify().all_findings().filter(|finding| finding.path == path).cloned().collect()
    }
}

/// A partition of a case of the corpus as a directory of its own, which was closed cleanly.
fn partition_of(case: &str, partition: &str) -> Root {
    let folder = corpus::case(case).data_dirs[0].join(partition);
    let mut root = Root::default().clean();
    for entry in fs::read_dir(folder).expect("a partition") {
        let path = entry.expect("a file").path();
        let name = path.file_name().expect("a name").to_str().expect("text");
        root = root.file(&format!("{partition}/{name}"), fs::read(&path).expect("a readable file"));
    }
    root
}

/// What the slow twin knows of a segment: batches by first byte, and those that were the first with the largest timestamp
/// so far.
struct Twin {
    batches: BTreeMap<u64, i64>,
    largest: BTreeSet<(i64, i64)>,
}

impl Twin {
    fn new(log: &[u8]) -> Self {
        let mut twin = Self { batches: BTreeMap::new(), largest: BTreeSet::new() };
        let (mut at, mut largest) = (0, i64::MIN);
        while let Some(batch) = naive::next_batch(&log[at..], (log.len() - at) as u64).expect("a good log") {
            let last = batch.header.last_offset().expect("in range");
            twin.batches.insert(at as u64, last);
            if batch.header.max_timestamp > largest {
                largest = batch.header.max_timestamp;
                twin.largest.insert((largest, last));
            }
            at += batch.bytes.len();
        }
        twin
    }

    /// Whether a file has true and rising entries only.
    fn is_true(&self, name: &str, base: i64, file: &[u8]) -> bool {
        let number = |bytes: &[u8]| bytes.iter().fold(0u64, |value, &byte| value << 8 | u64::from(byte));
        let relative = |bytes: &[u8]| base + i64::from(number(bytes) as u32 as i32);
        if name.ends_with(".timeindex") {
            let entries: Vec<(i64, i64)> =
                file.chunks(12).map(|entry| (number(&entry[..8]) as i64, relative(&entry[8..]))).collect();
            entries.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1)
                && entries.iter().all(|entry| self.largest.contains(entry))
        } else {
            let entries: Vec<(i64, u64)> =
                file.chunks(8).map(|entry| (relative(&entry[..4]), number(&entry[4..]))).collect();
            entries.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1)
                && entries.iter().all(|(last, position)| self.batches.get(position) == Some(last))
        }
    }
}

/// Every byte of every index file, changed in several ways: the check sees it exactly where the twin does.
#[test]
fn every_byte_of_an_index() {
    let (mut changes, mut harmless) = (0, 0);
    for (case, partition) in
        [("txn-state-v0", "__transaction_state-0"), ("data-many-producers", ""), ("data-append-time", "")]
    {
        let partition = match partition {
            "" => partition_with_index(case),
            partition => partition.to_owned(),
        };
        let root = partition_of(case, &partition);
        assert_eq!(root.verify().errors() + root.verify().notes(), 0, "{case}");
        let indexes = root.0.keys().filter(|name| name.ends_with("index") && !name.ends_with("txnindex"));
        for name in indexes.cloned().collect::<Vec<_>>() {
            let (stem, _) = name.rsplit_once('.').expect("a suffix");
            let base: i64 = stem[stem.len() - 20..].parse().expect("an offset");
            let twin = Twin::new(&root.0[&format!("{stem}.log")]);
            assert!(twin.is_true(&name, base, &root.0[&name]), "{case} {name}");
            for at in 0..root.0[&name].len() {
                for mask in [0x01, 0x04, 0x80, 0xff] {
                    let mut damaged = root.clone();
                    damaged.0.get_mut(&name).expect("a file")[at] ^= mask;
                    let is_true = twin.is_true(&name, base, &damaged.0[&name]);
                    let findings = damaged.findings_of(&name);
                    assert_eq!(
                        findings.is_empty(),
                        is_true,
                        "{case} {name}, byte {at} ^ {mask}: {findings:?}"
                    );
                    changes += 1;
                    harmless += usize::from(is_true);
                }
            }
            // Cut inside an entry, and with zeros behind it.
            let mut cut = root.clone();
            let len = root.0[&name].len();
            if len > 0 {
                cut.0.get_mut(&name).expect("a file").truncate(len - 1);
                assert!(cut.findings_of(&name).iter().any(|finding| finding.kind.name() == "index-size"));
            }
            let mut padded = root.clone();
            padded.0.get_mut(&name).expect("a file").extend([0; 24]);
            let [padding] = &padded.findings_of(&name)[..] else { panic!("{name}") };
            assert_eq!(padding.kind, FindingKind::Padding { bytes: 24 });
        }
    }
    println!("{changes} changes, {harmless} harmless");
    assert!(changes > 1000 && harmless < changes / 20, "{changes} {harmless}");
}

/// The smallest partition that has entries in an offset index.
fn partition_with_index(case: &str) -> String {
    let root = &corpus::case(case).data_dirs[0];
    let mut found: Vec<(u64, String)> = Vec::new();
    for entry in fs::read_dir(root).expect("a root").flatten().filter(|entry| entry.path().is_dir()) {
        let files = fs::read_dir(entry.path()).expect("a folder").flatten();
        let (mut bytes, mut has_index) = (0, false);
        for file in files {
            let len = file.metadata().expect("a file").len();
            bytes += len;
            has_index |= len > 0 && file.path().extension().is_some_and(|suffix| suffix == "index");
        }
        if has_index {
            found.push((bytes, entry.file_name().into_string().expect("text")));
        }
    }
    found.into_iter().min().expect("a partition with an index").1
}

/// Every byte of snapshots, leader epochs and the log itself. Of the log, only the first offset of the last batch can be
/// another one without a contradiction: offsets may be missing before it.
#[test]
fn every_byte_of_the_other_files() {
    let partition = partition_with_index("data-many-producers");
    let root = partition_of("data-many-producers", &partition);
    let mut changes = 0;
    for (name, bytes) in &root.0 {
        let kind = name.rsplit('.').next().expect("a suffix");
        let step = match kind {
            "snapshot" => 7,
            "log" => 5,
            _ if name.ends_with("leader-epoch-checkpoint") => 1,
            _ => continue,
        };
        let last_batch = if kind == "log" {
            usize::try_from(*Twin::new(bytes).batches.keys().next_back().expect("a batch")).expect("small")
        } else {
            bytes.len()
        };
        // Of a log the bytes of the last two batches all, of the rest some.
        let positions = (0..bytes.len()).filter(|at| at % step == 0 || *at >= last_batch.saturating_sub(200));
        for at in positions.filter(|at| !(last_batch..last_batch + 8).contains(at)) {
            let mut damaged = root.clone();
            damaged.0.get_mut(name).expect("a file")[at] ^= 0x05;
            let report = damaged.verify();
            assert!(
                report.errors() > 0,
                "{name}, byte {at}: {:?}",
                report.all_findings().collect::<Vec<_>>()
            );
            changes += 1;
        }
    }
    assert!(changes > 500, "{changes}");
}

const LOG: &str = "orders-0/00000000000000000000.log";
const INDEX: &str = "orders-0/00000000000000000000.index";
const TIME_INDEX: &str = "orders-0/00000000000000000000.timeindex";
const SNAPSHOT: &str = "orders-0/00000000000000000004.snapshot";
const EPOCHS: &str = "orders-0/leader-epoch-checkpoint";
const TIME: i64 = 1_700_000_000_000;

fn data(base_offset: i64, producer_id: i64, records: i32) -> BatchSpec {
    BatchSpec {
        base_offset,
        attributes: TRANSACTIONAL,
        producer_id,
        producer_epoch: 0,
        base_sequence: 0,
        records: (0..records)
            .map(|delta| RecordSpec::new(delta, b"k".to_vec(), Some(b"v".to_vec())))
            .collect(),
        ..BatchSpec::default()
    }
}

/// A transaction of two records by producer 7 and its marker at offset 2; an open one by producer 8 at offset 3.
fn batches() -> [BatchSpec; 3] {
    [data(0, 7, 2), BatchSpec::marker(2, 7, 0, true, 3), data(3, 8, 1)]
}

fn log(batches: &[BatchSpec]) -> Vec<u8> {
    batches.iter().flat_map(BatchSpec::encode).collect()
}

/// Producer, epoch, last sequence, last offset, delta, timestamp, coordinator epoch, first offset of the transaction.
type Producer = (i64, i16, i32, i64, i32, i64, i32, i64);

const PRODUCERS: [Producer; 2] = [(7, 0, 1, 1, 1, TIME, 3, -1), (8, 0, 0, 3, 0, TIME, -1, 3)];

fn snapshot(producers: &[Producer]) -> Vec<u8> {
    let mut body = (producers.len() as i32).to_be_bytes().to_vec();
    for (id, epoch, sequence, offset, delta, time, coordinator, first) in producers {
        body.extend(id.to_be_bytes());
        body.extend(epoch.to_be_bytes());
        body.extend(sequence.to_be_bytes());
        body.extend(offset.to_be_bytes());
        body.extend(delta.to_be_bytes());
        body.extend(time.to_be_bytes());
        body.extend(coordinator.to_be_bytes());
        body.extend(first.to_be_bytes());
    }
    [&[0, 1][..], &crc32c::crc32c(&body).to_be_bytes(), &body].concat()
}

fn index(entries: &[(i32, i32)]) -> Vec<u8> {
    entries
        .iter()
        .flat_map(|(offset, position)| [offset.to_be_bytes(), position.to_be_bytes()].concat())
        .collect()
}

fn time_index(entries: &[(i64, i32)]) -> Vec<u8> {
    entries
        .iter()
        .flat_map(|(timestamp, offset)| [&timestamp.to_be_bytes()[..], &offset.to_be_bytes()].concat())
        .collect()
}

/// Byte positions of the second and the third batch.
fn positions() -> (i32, i32) {
    let [first, second, _] = batches().map(|batch| batch.encode().len() as i32);
    (first, first + second)
}

fn small() -> Root {
    let (second, third) = positions();
    Root::default()
        .clean()
        .file(LOG, log(&batches()))
        .file(INDEX, index(&[(2, second), (3, third)]))
        .file(TIME_INDEX, time_index(&[(TIME, 1)]))
        .file(SNAPSHOT, snapshot(&PRODUCERS))
        .file(EPOCHS, *b"0\n1\n0 0\n")
        .file("recovery-point-offset-checkpoint", *b"0\n1\norders 0 4\n")
        .file("replication-offset-checkpoint", *b"0\n1\norders 0 4\n")
}

/// What was done, the root then, and what must be found in it, by file and kind.
type Damage<'a> = (&'a str, Root, Vec<(&'a str, &'a str)>);

/// Looks at each root.
fn check(cases: Vec<Damage<'_>>) {
    let mut wrong = Vec::new();
    for (label, root, expected) in cases {
        let report = root.verify();
        let found: Vec<(String, &str)> = report
            .all_findings()
            .map(|finding| {
                let path = finding.path.strip_prefix("/logs").expect("below the root");
                (path.to_str().expect("text").to_owned(), finding.kind.name())
            })
            .collect();
        let expected: Vec<_> = expected.into_iter().map(|(file, kind)| (file.to_owned(), kind)).collect();
        if found != expected {
            let told: Vec<_> = report.all_findings().map(|finding| finding.to_string()).collect();
            wrong.push(format!("{label}: {found:?}, not {expected:?}: {told:#?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The small log with one batch made another one, under a right checksum.
fn with_batch(number: usize, change: impl FnOnce(&mut BatchSpec)) -> Root {
    let mut specs = batches();
    change(&mut specs[number]);
    small().file(LOG, log(&specs))
}

#[test]
fn damage_to_the_log() {
    let whole = log(&batches());
    let (second, third) = positions();
    let (second, third) = (second as usize, third as usize);
    let with_bytes = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = whole.clone();
        change(&mut bytes);
        bytes
    };
    let unclean = |root: Root| Root(root.0.into_iter().filter(|(name, _)| name != CLEAN.0).collect());
    check(vec![
        ("nothing", small(), vec![]),
        ("a checksum", small().file(LOG, with_bytes(&|bytes| bytes[second + 70] ^= 1)), vec![(LOG, "crc")]),
        (
            "a length of 5 in the middle",
            small().file(
                LOG,
                with_bytes(&|bytes| bytes[second + 8..second + 12].copy_from_slice(&[0, 0, 0, 5])),
            ),
            vec![(LOG, "bad-frame")],
        ),
        (
            "zeros behind a log that was closed cleanly",
            small().file(LOG, [&whole[..], &[0; 100]].concat()),
            vec![(LOG, "longer-than-data")],
        ),
        (
            "zeros behind one that was not",
            unclean(small()).file(LOG, [&whole[..], &[0; 100]].concat()),
            vec![(LOG, "torn-tail")],
        ),
        (
            "half a batch behind one that was not",
            unclean(small()).file(LOG, [&whole[..], &data(4, 9, 3).encode()[..80]].concat()),
            vec![(LOG, "torn-tail")],
        ),
        (
            "a last batch that was flushed and is bad",
            unclean(small()).file(LOG, with_bytes(&|bytes| bytes[third + 66] ^= 1)),
            vec![
                (LOG, "crc"),
                (SNAPSHOT, "snapshot-beyond-log"),
                ("recovery-point-offset-checkpoint", "checkpoint-beyond-log"),
                ("replication-offset-checkpoint", "checkpoint-beyond-log"),
            ],
        ),
        (
            "a bad batch before a good one, after a crash",
            unclean(small()).file(LOG, with_bytes(&|bytes| bytes[second + 70] ^= 1)),
            vec![(LOG, "crc")],
        ),
        (
            "a flushed log that lost its end",
            small().file(LOG, whole[..third].to_vec()),
            vec![
                (INDEX, "index-beyond-log"),
                (SNAPSHOT, "snapshot-beyond-log"),
                ("recovery-point-offset-checkpoint", "checkpoint-beyond-log"),
                ("replication-offset-checkpoint", "checkpoint-beyond-log"),
            ],
        ),
    ]);
}

/// Five records under a last offset delta of 0 are flagged.
#[test]
fn fc_85_records_beyond_the_last_offset() {
    check(vec![(
        "five records",
        Root::default().clean().file(LOG, {
            BatchSpec { last_offset_delta: Some(0), ..data(0, -1, 5) }.with(|batch| batch.attributes = 0)
        }),
        vec![
            ("orders-0", "missing-indexes"),
            ("orders-0", "missing-indexes"),
            (LOG, "record-beyond-batch"),
            (LOG, "record-beyond-batch"),
            (LOG, "record-beyond-batch"),
            (LOG, "record-beyond-batch"),
        ],
    )]);
}

/// What the fields of a batch can say that cannot be.
#[test]
fn contradictions_in_batches() {
    let two = |change: &dyn Fn(&mut [RecordSpec])| {
        with_batch(0, |batch| {
            batch.last_offset_delta = Some(1);
            batch.max_timestamp = Some(TIME);
            change(&mut batch.records);
        })
    };
    let mut sealed = log(&batches());
    sealed[23..27].copy_from_slice(&0i32.to_be_bytes());
    let first = usize::try_from(positions().0).expect("small");
    reseal(&mut sealed[..first]);
    check(vec![
        (
            "a record beyond the last offset",
            small().file(LOG, sealed),
            vec![(LOG, "record-beyond-batch"), (TIME_INDEX, "time-entry-false")],
        ),
        (
            "records that go back",
            two(&|records| records[1].offset_delta = 0),
            vec![(LOG, "offset-goes-back")],
        ),
        ("a later record", two(&|records| records[1].timestamp_delta = 5), vec![(LOG, "max-timestamp")]),
        (
            "a transaction of nobody",
            with_batch(0, |batch| (batch.producer_id, batch.producer_epoch) = (-1, -1)),
            vec![(LOG, "header-field"), (SNAPSHOT, "snapshot-differs")],
        ),
        (
            "a producer without an epoch",
            with_batch(0, |batch| batch.producer_epoch = -1),
            vec![(LOG, "header-field"), (SNAPSHOT, "snapshot-differs")],
        ),
        (
            "a marker with a sequence",
            with_batch(1, |batch| batch.base_sequence = 5),
            vec![(LOG, "header-field")],
        ),
        (
            "a marker with half a value",
            with_batch(1, |batch| batch.records[0].value = Some(vec![0; 3])),
            // The batch behind it has moved.
            vec![(INDEX, "index-entry-false"), (LOG, "control-record"), (LOG, "producer")],
        ),
        (
            "a batch of no records with bytes",
            with_batch(0, |batch| {
                batch.records_count = Some(0);
                batch.last_offset_delta = Some(1);
            }),
            vec![(LOG, "payload-of-no-records")],
        ),
        (
            "a batch outside of its transaction",
            small().file(
                LOG,
                log(&[batches()[0].clone(), data(2, 7, 1).with_spec(|batch| batch.attributes = 0)]),
            ),
            vec![
                (INDEX, "index-beyond-log"),
                (LOG, "producer"),
                (SNAPSHOT, "snapshot-beyond-log"),
                ("recovery-point-offset-checkpoint", "checkpoint-beyond-log"),
                ("replication-offset-checkpoint", "checkpoint-beyond-log"),
            ],
        ),
        (
            "an older leader epoch",
            with_batch(0, |batch| batch.partition_leader_epoch = 1),
            vec![(LOG, "epoch-mismatch"), (LOG, "epoch-goes-back")],
        ),
        (
            "an epoch that the checkpoint does not know",
            with_batch(2, |batch| batch.partition_leader_epoch = 4),
            vec![(LOG, "epoch-mismatch")],
        ),
        (
            "offsets that repeat",
            with_batch(2, |batch| batch.base_offset = 2),
            vec![
                (INDEX, "index-beyond-log"),
                (LOG, "offset-goes-back"),
                (SNAPSHOT, "snapshot-beyond-log"),
                ("recovery-point-offset-checkpoint", "checkpoint-beyond-log"),
                ("replication-offset-checkpoint", "checkpoint-beyond-log"),
            ],
        ),
    ]);
}

trait With {
    fn with(self, change: impl FnOnce(&mut BatchSpec)) -> Vec<u8>;
    fn with_spec(self, change: impl FnOnce(&mut BatchSpec)) -> BatchSpec;
}

impl With for BatchSpec {
    fn with(self, change: impl FnOnce(&mut BatchSpec)) -> Vec<u8> {
        self.with_spec(change).encode()
    }

    fn with_spec(mut self, change: impl FnOnce(&mut BatchSpec)) -> BatchSpec {
        change(&mut self);
        self
    }
}

#[test]
fn contradictions_of_indexes() {
    let (second, third) = positions();
    let with_index = |entries: &[(i32, i32)]| small().file(INDEX, index(entries));
    let with_time = |entries: &[(i64, i32)]| small().file(TIME_INDEX, time_index(entries));
    check(vec![
        ("double", with_index(&[(2, second), (2, second)]), vec![(INDEX, "index-order")]),
        ("backward", with_index(&[(3, third), (2, second)]), vec![(INDEX, "index-order")]),
        ("no batch begins there", with_index(&[(2, second + 1)]), vec![(INDEX, "index-entry-false")]),
        ("a batch of other offsets", with_index(&[(1, second)]), vec![(INDEX, "index-entry-false")]),
        ("beyond", with_index(&[(9, 9999)]), vec![(INDEX, "index-beyond-log")]),
        ("below", with_index(&[(-1, second)]), vec![(INDEX, "index-below-segment")]),
        // As brokers before 4.0 write it for several batches that came together.
        ("the last of several batches", with_index(&[(3, second)]), vec![(INDEX, "index-entry-early")]),
        ("an offset that no batch ends at", with_index(&[(7, second)]), vec![(INDEX, "index-beyond-log")]),
        (
            "zeros in between",
            with_index(&[(2, second), (0, 0), (3, third)]),
            vec![(INDEX, "index-order"), (INDEX, "index-entry-false")],
        ),
        ("another time", with_time(&[(TIME + 1, 1)]), vec![(TIME_INDEX, "time-entry-false")]),
        ("not the first with it", with_time(&[(TIME, 2)]), vec![(TIME_INDEX, "time-entry-false")]),
        ("inside of the batch", with_time(&[(TIME, 0)]), vec![(TIME_INDEX, "time-entry-inside")]),
        ("double time", with_time(&[(TIME, 1), (TIME, 1)]), vec![(TIME_INDEX, "index-order")]),
        ("beyond the log", with_time(&[(TIME, 1), (TIME + 5, 8)]), vec![(TIME_INDEX, "index-beyond-log")]),
        ("below the base", with_time(&[(TIME, -1)]), vec![(TIME_INDEX, "index-below-segment")]),
    ]);
    // A first record of the year 1970 has an entry of zeros.
    let epoch = BatchSpec { base_timestamp: 0, ..BatchSpec::single(0, b"k".to_vec(), None) };
    let root = Root::default().clean().file(LOG, epoch.encode()).file(INDEX, *b"");
    check(vec![
        ("one", root.clone().file(TIME_INDEX, time_index(&[(0, 0)])), vec![]),
        ("two", root.file(TIME_INDEX, time_index(&[(0, 0), (0, 0)])), vec![(TIME_INDEX, "padding")]),
    ]);
}

#[test]
fn contradictions_of_snapshots() {
    let with = |change: &dyn Fn(&mut Vec<Producer>)| {
        let mut producers = PRODUCERS.to_vec();
        change(&mut producers);
        small().file(SNAPSHOT, snapshot(&producers))
    };
    let differs = vec![(SNAPSHOT, "snapshot-differs")];
    let mut cases = vec![
        ("another epoch", with(&|producers| producers[0].1 = 1), differs.clone()),
        ("another sequence", with(&|producers| producers[0].2 = 2), differs.clone()),
        ("another offset", with(&|producers| producers[0].3 = 2), differs.clone()),
        ("another delta", with(&|producers| producers[0].4 = 0), differs.clone()),
        ("another time", with(&|producers| producers[0].5 += 1), differs.clone()),
        ("another coordinator", with(&|producers| producers[0].6 = 4), differs.clone()),
        ("a transaction that ended", with(&|producers| producers[0].7 = 0), differs.clone()),
        ("a transaction that did not", with(&|producers| producers[1].7 = -1), differs.clone()),
        (
            "an offset above its own",
            with(&|producers| producers[1].3 = 4),
            vec![(SNAPSHOT, "snapshot-entry")],
        ),
        ("twice", with(&|producers| producers.push(producers[0])), vec![(SNAPSHOT, "repeated-producer")]),
        (
            "a stranger",
            with(&|producers| producers.push((9, 0, 0, 2, 0, TIME, -1, -1))),
            vec![(SNAPSHOT, "producer-not-in-log")],
        ),
        (
            "without an idle one",
            with(&|producers| *producers = vec![PRODUCERS[1]]),
            vec![(SNAPSHOT, "producers-missing")],
        ),
        (
            "without an open one",
            with(&|producers| *producers = vec![PRODUCERS[0]]),
            vec![(SNAPSHOT, "open-transaction-missing")],
        ),
        (
            "version 2",
            small().file(SNAPSHOT, [&[0, 2][..], &snapshot(&PRODUCERS)[2..]].concat()),
            vec![(SNAPSHOT, "snapshot")],
        ),
    ];
    let inside = "orders-0/00000000000000000001.snapshot";
    cases.push(("in a batch", small().file(inside, snapshot(&[])), vec![(inside, "snapshot-inside-batch")]));
    check(cases);
    // Where a cleaner was at work, a producer may have been further than the log shows, and not the other way.
    let cleaned = with_batch(1, |batch| *batch = BatchSpec { base_offset: 1, ..batch.clone() });
    assert!(cleaned.verify().errors() > 0, "the marker lies in the first batch");
    let cleaned = |producers: &[Producer]| {
        let batches =
            [BatchSpec { base_offset: 1, ..data(1, 7, 1) }, batches()[1].clone(), batches()[2].clone()];
        small().file(LOG, log(&batches)).file(INDEX, *b"").file(SNAPSHOT, snapshot(producers))
    };
    let (mut older, mut newer) = (PRODUCERS, PRODUCERS);
    (older[0].2, older[0].3, older[0].4) = (0, 0, 0);
    (newer[0].2, newer[0].3) = (2, 2);
    check(vec![
        ("newer than the log", cleaned(&newer), vec![]),
        ("older than the log", cleaned(&older), vec![(SNAPSHOT, "snapshot-differs")]),
    ]);
}

#[test]
fn small_files_and_names() {
    let recovery = "recovery-point-offset-checkpoint";
    let log_start = "log-start-offset-checkpoint";
    let checkpoint = |text: &'static str| small().file(recovery, text.as_bytes());
    check(vec![
        ("version", checkpoint("1\n0\n"), vec![(recovery, "checkpoint")]),
        ("twice", checkpoint("0\n2\norders 0 3\norders 0 4\n"), vec![(recovery, "repeated-partition")]),
        ("negative", checkpoint("0\n1\norders 0 -1\n"), vec![(recovery, "negative-offset")]),
        ("beyond", checkpoint("0\n1\norders 0 5\n"), vec![(recovery, "checkpoint-beyond-log")]),
        ("empty", checkpoint(""), vec![]),
        (
            "start",
            small().file(log_start, *b"0\n1\norders 0 9\n"),
            vec![("orders-0", "ends-below-log-start")],
        ),
        ("meta", small().file("meta.properties", *b"version=x\n"), vec![("meta.properties", "identity")]),
        (
            "id",
            small().file("orders-0/partition.metadata", *b"version: 0\ntopic_id: x\n"),
            vec![("orders-0/partition.metadata", "identity")],
        ),
        ("epochs", small().file(EPOCHS, *b"0\n1\n0 x\n"), vec![(EPOCHS, "checkpoint")]),
        ("not rising", small().file(EPOCHS, *b"0\n2\n0 0\n0 2\n"), vec![(EPOCHS, "epochs-not-rising")]),
        ("beyond", small().file(EPOCHS, *b"0\n2\n0 0\n1 5\n"), vec![(EPOCHS, "epoch-beyond-log")]),
        ("at the end", small().file(EPOCHS, *b"0\n2\n0 0\n1 4\n"), vec![]),
        (
            "leftover",
            small().file("orders-0/00000000000000000000.log.deleted", *b"x"),
            vec![("orders-0/00000000000000000000.log.deleted", "leftover")],
        ),
        (
            "tmp",
            small().file("orders-0/leader-epoch-checkpoint.tmp", *b"x"),
            vec![("orders-0/leader-epoch-checkpoint.tmp", "leftover")],
        ),
        ("foreign", small().file("orders-0/notes.txt", *b"x"), vec![("orders-0/notes.txt", "foreign-name")]),
        ("short", small().file("orders-0/42.log", *b""), vec![("orders-0/42.log", "misleading-name")]),
        (
            "alone",
            small().file("orders-0/00000000000000000042.index", *b""),
            vec![("orders-0/00000000000000000042.index", "no-segment")],
        ),
        (
            "stray",
            small().file("orders-1.0123456789abcdef-stray/x", *b""),
            vec![("orders-1.0123456789abcdef-stray", "passed-over")],
        ),
        ("no place", small().file("lost+found/x", *b""), vec![("lost+found", "foreign-name")]),
    ]);
}

/// A file with very many findings gives some, and the number of the others.
#[test]
fn findings_are_bounded() {
    let entries: Vec<_> = (0..1000).map(|number| (number + 100, number + 5000)).collect();
    let report = small().file(INDEX, index(&entries)).verify();
    assert_eq!(report.all_findings().count(), 20);
    let left_out: Vec<_> = report.all_left_out().collect();
    assert_eq!((left_out.len(), left_out[0].errors, left_out[0].notes), (1, 980, 0));
    assert_eq!((report.errors(), report.notes()), (1000, 0));
    assert!(report.all_findings().all(|finding| finding.severity == Severity::Error));
}
