//! Names, leftovers and checkpoint files of a log directory, against what Kafka's own classes make of them.

mod judge;

use std::path::Path;
use std::sync::Arc;

use judge::{PARTITION, ROOT, Root, run_one};
use redrive::Error;
use redrive::error::Reason;
use redrive::io::MemoryStorage;
use redrive::log_dir::{DirectoryName, DirectoryState, LogDir, NoticeKind};
use redrive::segment::{Access, Frame, Next, SegmentReader};
use redrive::types::{Offset, TopicPartition};
use redrive_tests::logs::{BatchSpec, SegmentFile, TransactionValue, encode_key};
use redrive_tests::vectors;
use serde_json::Value;

fn name(vector: &Value) -> &str {
    vector["name"].as_str().expect("a name")
}

fn open(storage: &MemoryStorage) -> LogDir {
    LogDir::open(Arc::new(storage.clone()), Path::new(ROOT)).expect("a log directory")
}

/// Kinds of the notices, with the last part of their paths.
fn notices(notices: &[redrive::log_dir::Notice]) -> Vec<(String, NoticeKind)> {
    let shown = |notice: &redrive::log_dir::Notice| {
        let name = notice.path.file_name().expect("a name").to_string_lossy().into_owned();
        (name, notice.kind.clone())
    };
    notices.iter().map(shown).collect()
}

fn batch(offset: i64, id: &str) -> Vec<u8> {
    let value = TransactionValue { producer_id: offset, ..TransactionValue::default() };
    BatchSpec::single(offset, encode_key(0, id.as_bytes()), Some(value.encode())).encode()
}

fn segment(base_offset: i64, batches: &[Vec<u8>]) -> SegmentFile {
    SegmentFile { base_offset, bytes: batches.concat() }
}

#[test]
fn directory_names() {
    // What Kafka takes and never writes: forms of numbers that are not its own. `orders--1` is none of them: it is
    // partition 1 of the topic `orders-`, which is a legal name.
    let ours_only = ["orders-+5", "orders-007"];
    let mut refused = 0;
    for vector in vectors::list("directory_names") {
        let parsed = DirectoryName::parse(name(vector));
        let kafka = vector["kafka_result"].as_str().expect("a result");
        if kafka == "rejected" || ours_only.contains(&name(vector)) {
            assert_eq!(parsed, None, "{}", name(vector));
            refused += 1;
        } else {
            let parsed = parsed.unwrap_or_else(|| panic!("{} is refused", name(vector)));
            assert_eq!(parsed.topic_partition.to_string(), kafka, "{}", name(vector));
            let suffix = [
                ("-delete", DirectoryState::Delete),
                ("-future", DirectoryState::Future),
                ("-stray", DirectoryState::Stray),
            ];
            let state = suffix.iter().find(|(suffix, _)| name(vector).ends_with(suffix));
            assert_eq!(parsed.state, state.map_or(DirectoryState::Live, |(_, state)| *state));
        }
    }
    assert_eq!(refused, 11);
}

/// The offset behind the last batch of a segment, or what is wrong with it.
fn end_offset(storage: &MemoryStorage, segment: &redrive::log::SegmentInfo) -> Result<Offset, String> {
    let access = Access::Positioned { buffer_bytes: 100 };
    let mut reader = SegmentReader::open(storage, &segment.path, segment.base_offset, segment.len, access)
        .expect("opened");
    let mut end = segment.base_offset;
    loop {
        match reader.next().expect("read") {
            Next::End => return Ok(end),
            Next::Bad(fault) => return Err(fault.to_string()),
            Next::Frame(at) => match at.frame {
                Frame::Batch(frame) => end = frame.last_offset().next(),
                Frame::Legacy(message) => end = message.offset().next(),
            },
        }
    }
}

/// The read-only view of a folder after a crash in a replacement has the segments that a broker is left with.
#[test]
fn directory_cases() {
    let mut loaded = 0;
    for vector in vectors::list("directory_cases") {
        let mut root = Root::default();
        for (file, hex) in vector["files_before"].as_object().expect("files") {
            root = root.file(&format!("orders-0/{file}"), vectors::hex(hex.as_str().expect("hex")));
        }
        if vector["clean_shutdown"] == true {
            root = root.clean();
        }
        let before = root.0.clone();
        let storage = root.in_memory();
        let dir = open(&storage);
        let partition =
            dir.partitions().iter().find(|dir| dir.topic_partition.topic == "orders").expect("orders-0");
        let (snapshot, found) = dir.snapshot(partition).expect("a snapshot");
        let found = notices(&found);
        match name(vector) {
            "foreign_log_name" => {
                assert_eq!(found, [("foo.log".to_owned(), NoticeKind::Foreign)]);
                assert!(snapshot.segments.is_empty());
            }
            "zero_tail_clean" => {
                assert_eq!(snapshot.segments.len(), 1);
                assert!(end_offset(&storage, &snapshot.segments[0]).is_err());
            }
            case => {
                assert_eq!(vector["loads"], true);
                let logs = vector["sizes_after_open"].as_object().expect("sizes").iter();
                let expected: Vec<(i64, u64)> = logs
                    .filter_map(|(file, size)| {
                        let base_offset = file.strip_suffix(".log")?.parse().expect("a number");
                        Some((base_offset, size.as_u64().expect("a size")))
                    })
                    .collect();
                let seen: Vec<_> =
                    snapshot.segments.iter().map(|segment| (segment.base_offset.0, segment.len)).collect();
                assert_eq!(seen, expected, "{case}");
                let last = snapshot.segments.last().expect("a segment");
                let end = end_offset(&storage, last).expect("whole");
                assert_eq!(Some(end.0), vector["log_end_offset"].as_i64(), "{case}");
                let foreign = ["00000000000000000003.foo", "junk.txt"];
                let foreign = foreign.map(|name| (name.to_owned(), NoticeKind::Foreign));
                assert_eq!(found, if case == "swap_complete" { &foreign[..] } else { &[] }, "{case}");
                loaded += 1;
            }
        }
        assert_eq!(dir.is_clean_shutdown(), vector["clean_shutdown"] == true);
        assert_eq!(root.0, before, "nothing is changed");
    }
    assert_eq!(loaded, 4);
}

/// A replacement that was not finished: the load takes the segments of a broker after its tidying up.
#[test]
fn unfinished_replacements_are_loaded_as_a_broker_would() {
    let old = [segment(0, &[batch(0, "a"), batch(1, "b")]), segment(2, &[batch(2, "a"), batch(3, "c")])];
    let merged = [batch(1, "b"), batch(2, "a"), batch(3, "c")].concat();
    let active = segment(4, &[batch(4, "d")]);
    let file = |base: i64, suffix: &str| format!("{PARTITION}/{base:020}.log{suffix}");
    let base = Root::of(&[old[0].clone(), old[1].clone(), active.clone()]);
    let load = |root: &Root| {
        let outcome = run_one(&root.replay());
        let (map, stats) = outcome.result.as_ref().unwrap_or_else(|error| panic!("{error}"));
        let offsets =
            ["a", "b", "c", "d"].map(|id| map.get(id).expect("a look-up").map(|entry| entry.offset().0));
        assert_eq!(offsets, [Some(2), Some(1), Some(3), Some(4)]);
        (stats.segments, stats.batches)
    };
    assert_eq!(load(&base), (3, 5), "untouched");
    // Written, not renamed: void.
    assert_eq!(load(&base.clone().file(&file(0, ".cleaned"), &b"junk"[..])), (3, 5));
    // Renamed to .swap: it takes the place of both, also where one of them is gone already.
    let swapped = base.clone().file(&file(0, ".swap"), merged.clone());
    assert_eq!(load(&swapped), (2, 4));
    let mut half = swapped.clone();
    half.0.remove(&file(2, ""));
    assert_eq!(load(&half), (2, 4));
    let mut renamed = half.clone();
    renamed.0.remove(&file(0, ""));
    assert_eq!(load(&renamed.file(&file(0, ".deleted"), &b"old"[..])), (2, 4));
    // A .cleaned at or below makes it void.
    assert_eq!(load(&swapped.file(&file(0, ".cleaned"), merged)), (3, 5));
}

/// Folders that are no live partitions are told and not read.
#[test]
fn stray_and_deleted_folders_are_reported() {
    let log = [segment(0, &[batch(0, "a")])];
    let other = [segment(0, &[batch(0, "elsewhere")])];
    let hex = "0123456789abcdef0123456789abcdef";
    let root = Root::of(&log)
        .partition(&format!("__transaction_state-1.{hex}-stray"), &other)
        .partition(&format!("__transaction_state-2.{hex}-delete"), &other)
        .partition(&format!("__transaction_state-3.{hex}-future"), &other)
        .partition("__transaction_state-007", &other)
        .partition("lost+found", &other)
        .file("remote-log-index-cache/x", &b""[..])
        .file("__cluster_metadata-0/00000000000000000000.log", &b""[..])
        .file("a-plain-file", &b""[..]);
    let loaded = root.replay().run().expect("a load");
    assert_eq!(loaded.partitions.len(), 1);
    assert!(loaded.get("elsewhere").expect("complete").is_none());
    assert_eq!(
        notices(&loaded.notices),
        [
            ("__transaction_state-007".to_owned(), NoticeKind::Foreign),
            (format!("__transaction_state-1.{hex}-stray"), NoticeKind::Stray),
            (format!("__transaction_state-2.{hex}-delete"), NoticeKind::DeleteMarked),
            (format!("__transaction_state-3.{hex}-future"), NoticeKind::Future),
            ("lost+found".to_owned(), NoticeKind::Foreign),
        ]
    );
}

/// Foreign names in a partition's folder are told; names of ours, of Kafka and unfinished rewrites are not.
#[test]
fn names_in_a_partition() {
    let log = segment(7, &[batch(7, "a")]);
    let mut root = Root::of(std::slice::from_ref(&log));
    for quiet in [
        "leader-epoch-checkpoint",
        "partition.metadata",
        "leader-epoch-checkpoint.tmp",
        "redrive-00000000000000000007.side",
        "00000000000000000007.index",
        "00000000000000000007.timeindex.deleted",
        "00000000000000000099.txnindex",
        "00000000000000000008.snapshot",
    ] {
        root = root.file(&format!("{PARTITION}/{quiet}"), &b"\xff\xff"[..]);
    }
    let foreign = ["0000000000000000007.log", "7.log", "foo.log", "x"];
    for name in foreign {
        root = root.file(&format!("{PARTITION}/{name}"), &b"\xff\xff"[..]);
    }
    let outcome = run_one(&root.replay());
    assert_eq!(outcome.map().expect("loaded").len(), 1);
    let expected: Vec<_> = foreign.iter().map(|name| ((*name).to_owned(), NoticeKind::Foreign)).collect();
    assert_eq!(notices(&outcome.notices), expected);
}

/// What the log start checkpoint says, and what counts where it cannot be read.
#[test]
fn log_start_checkpoint() {
    let name = "log-start-offset-checkpoint";
    let root =
        Root::of(&[segment(0, &[batch(0, "a"), batch(1, "b")]), segment(2, &[batch(2, "c"), batch(3, "d")])]);
    let load = |text: &str| {
        let replay = root.clone().file(name, text).replay();
        let outcome = run_one(&replay);
        let stats = outcome.stats().unwrap_or_else(|| panic!("{text:?}: {:?}", outcome.error()));
        let notices = notices(&replay.run().expect("a load").notices);
        (
            outcome.map().expect("loaded").len(),
            stats.log_start_offset.0,
            notices.into_iter().map(|n| n.1).collect(),
        )
    };
    let quiet: Vec<NoticeKind> = Vec::new();
    let line = |offset: i64| format!("0\n1\n__transaction_state 0 {offset}\n");
    assert_eq!(load(""), (4, 0, quiet.clone()));
    assert_eq!(load("0\n0\n"), (4, 0, quiet.clone()));
    assert_eq!(load(&line(0)), (4, 0, quiet.clone()));
    // A batch that ends below is not applied; a segment that lies below is not read.
    assert_eq!(load(&line(1)), (3, 1, quiet.clone()));
    assert_eq!(load(&line(2)), (2, 2, quiet.clone()));
    assert_eq!(load(&line(4)), (0, 4, quiet.clone()));
    assert_eq!(load(&line(-1)), (4, 0, quiet.clone()), "a negative offset is none");
    assert_eq!(load("0\n1\nother 0 3\n"), (4, 0, quiet));
    let (ids, start, told) = load("0\n2\n__transaction_state 0 3\n__transaction_state 0 1\n");
    let partition = TopicPartition::new("__transaction_state", 0);
    assert_eq!(
        (ids, start, told),
        (3, 1, vec![NoticeKind::RepeatedPartition(partition)]),
        "the last line counts"
    );
    for malformed in
        ["1\n0\n", "0\n2\n__transaction_state 0 3\n", "0\n1\n__transaction_state 0 x\n", "garbage"]
    {
        let (ids, start, told) = load(malformed);
        assert_eq!((ids, start), (4, 0), "{malformed:?}");
        assert!(matches!(told[..], [NoticeKind::Checkpoint(_)]), "{malformed:?}: {told:?}");
    }
    // A log that ends below its start: a broker would begin anew there, and the ids would be gone.
    let outcome = run_one(&root.clone().file(name, line(5)).replay());
    let Some(Error::Corrupt(corruption)) = outcome.error() else { panic!("loaded") };
    assert_eq!(corruption.reason, Reason::EndsBelowStart { end: Offset(4), start: Offset(5) });
    // Damage in a segment below the start is not looked at: it waits for its deletion.
    let mut damaged = root.clone().file(name, line(2));
    damaged.0.get_mut(&format!("{PARTITION}/{:020}.log", 0)).expect("a segment").fill(0xff);
    assert_eq!(run_one(&damaged.replay()).map().expect("loaded").len(), 2);
}

/// A batch that reaches over the log start is applied whole, as a fetch from there would give it whole.
#[test]
fn batch_over_the_log_start() {
    let record = |delta: i32, id: &str| {
        let value = TransactionValue::default().encode();
        redrive_tests::logs::RecordSpec::new(delta, encode_key(0, id.as_bytes()), Some(value))
    };
    let over = BatchSpec { records: vec![record(0, "a"), record(1, "b")], ..BatchSpec::default() }.encode();
    let root = Root::of(&[segment(0, &[over, batch(2, "c")])])
        .file("log-start-offset-checkpoint", "0\n1\n__transaction_state 0 1\n");
    let outcome = run_one(&root.replay());
    assert_eq!((outcome.map().expect("loaded").len(), outcome.stats().expect("loaded").records), (3, 3));
}

/// A folder without any segment, and a root without the topic.
#[test]
fn nothing_to_load() {
    let root = Root::default().file("meta.properties", "version=1\n");
    let outcome = run_one(&root.replay());
    let stats = outcome.stats().expect("loaded");
    assert_eq!(
        (stats.segments, stats.log_end_offset, outcome.map().expect("loaded").len()),
        (0, Offset(0), 0)
    );

    let storage = MemoryStorage::new();
    storage.write(format!("{ROOT}/meta.properties"), &b"version=1\n"[..]);
    let error = judge::open(storage).run().expect_err("no partition");
    assert!(matches!(&error, Error::NoPartitions { topic, .. } if topic == "__transaction_state"), "{error}");
}
