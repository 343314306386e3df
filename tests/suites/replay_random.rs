//! The load of random logs of every batch shape against the slow twin.

mod judge;

use std::num::NonZero;
use std::sync::Arc;

use judge::{Root, TwinFolder};
use redrive::io::FileSystem;
use redrive::replay::{IoChoice, Replay};
use redrive_tests::logs::{BatchSpec, SegmentFile, Shape, TransactionValue, encode_key, random_log};

const SEEDS: u64 = 300;

/// Shapes from what brokers write to everything at once.
fn shape(seed: u64) -> Shape {
    match seed % 4 {
        0 => Shape::broker_like(),
        1 => Shape { records_per_batch_max: 40, ids: 200, ..Shape::default() },
        2 => Shape { segments_max: 12, batches_per_segment_max: 4, ..Shape::default() },
        _ => Shape::default(),
    }
}

#[test]
fn random_logs_load_as_the_twin_loads_them() {
    let twin_folder = TwinFolder::new();
    let mut ids = 0;
    for seed in 0..SEEDS {
        let log = random_log(seed, &shape(seed));
        let twin = twin_folder.load(&log.segments, false);
        let twin = twin.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let root = Root::of(&log.segments);
        for (io, buffer_bytes) in judge::ways() {
            let what = format!("seed {seed}, {io:?}, buffer of {buffer_bytes}");
            let outcome = judge::run_one(&root.replay().io(io).chunk_bytes(buffer_bytes));
            let (map, stats) = outcome.result.as_ref().unwrap_or_else(|error| panic!("{what}: {error}"));
            judge::assert_same_entries(&judge::entries(map), &twin.entries, &what);
            judge::assert_same_counts(stats, &twin, &what);
            let stored: u64 = map.iter().map(|entry| u64::from(entry.expect("there").stored_bytes())).sum();
            assert_eq!(outcome.live_bytes(), Some(stored), "{what}");
        }
        ids += twin.entries.len();
    }
    assert!(ids > 5 * SEEDS as usize, "{ids} ids met");
}

#[test]
fn random_logs_load_alike_from_real_files_in_any_number_of_threads() {
    let twin_folder = TwinFolder::new();
    for seed in 1000..1040 {
        let logs: Vec<_> = (0..5).map(|n| random_log(seed * 10 + n, &shape(seed + n))).collect();
        let disk = tempfile::tempdir().expect("a temporary folder");
        let mut root = Root::default();
        for (partition, log) in logs.iter().enumerate() {
            root = root.partition(&format!("__transaction_state-{partition}"), &log.segments);
        }
        // An index file tells a load nothing, whatever it holds.
        root = root.file("__transaction_state-0/00000000000000000000.index", vec![0xff; 77]);
        root.on_disk(disk.path());
        let has_uring = judge::has_uring(disk.path());
        for (threads, io, chunk_bytes) in [
            (1, IoChoice::Mmap, 256 << 10),
            (2, IoChoice::Pread, 256 << 10),
            (5, IoChoice::Mmap, 256 << 10),
            (16, IoChoice::Pread, 256 << 10),
            (1, IoChoice::Uring, 256 << 10),
            (1, IoChoice::Uring, 61),
            (3, IoChoice::Uring, 1500),
        ] {
            if io == IoChoice::Uring && !has_uring {
                continue;
            }
            let replay = Replay::open(Arc::new(FileSystem), [disk.path()]).expect("a log directory");
            let replay = replay.threads(NonZero::new(threads).expect("threads")).io(io);
            let loaded = replay.chunk_bytes(chunk_bytes).run().expect("a load");
            assert_eq!(loaded.partitions.len(), 5);
            assert!((threads.min(5)..=threads).contains(&loaded.threads));
            for (outcome, log) in loaded.partitions.iter().zip(&logs) {
                let what = format!("seed {seed}, {}, {io:?}, {threads} threads", outcome.topic_partition);
                let twin = twin_folder.load(&log.segments, false).expect("loaded by the twin");
                let map = outcome.map().unwrap_or_else(|| panic!("{what}: {:?}", outcome.error()));
                judge::assert_same_entries(&judge::entries(map), &twin.entries, &what);
            }
        }
    }
}

/// Two keys that Kafka decodes to one text are one id: the later record wins, its bytes are kept, and each form
/// finds it.
#[test]
fn invalid_utf8_collapses_as_in_kafka() {
    let forms: [&[u8]; 4] = [b"\xff", b"\xed\xa0\x80", b"\xf0\x9f\x98", "\u{fffd}".as_bytes()];
    let twin_folder = TwinFolder::new();
    for (last, stored) in forms.iter().enumerate() {
        let order = (0..forms.len()).map(|n| forms[(last + 1 + n) % forms.len()]);
        let mut bytes = Vec::new();
        for (offset, id) in order.enumerate() {
            let value = TransactionValue { producer_id: offset as i64, ..TransactionValue::default() };
            bytes.extend(BatchSpec::single(offset as i64, encode_key(0, id), Some(value.encode())).encode());
        }
        let mut segments = vec![SegmentFile { base_offset: 0, bytes }];
        let outcome = judge::run_one(&Root::of(&segments).replay());
        let map = outcome.map().expect("loaded");
        assert_eq!(map.len(), 1);
        for form in forms {
            let entry = map.get(form).expect("a look-up").expect("each form finds it");
            assert_eq!((entry.offset().0, entry.id().as_ref()), (3, "\u{fffd}"));
            assert_eq!(entry.stored_id(), *stored);
        }
        let twin = twin_folder.load(&segments, false).expect("loaded by the twin");
        judge::assert_same_entries(&judge::entries(map), &twin.entries, "collapsed");

        // A tombstone under another form removes it.
        let other = forms[(last + 2) % forms.len()];
        segments[0].bytes.extend(BatchSpec::single(4, encode_key(0, other), None).encode());
        assert!(judge::run_one(&Root::of(&segments).replay()).map().expect("loaded").is_empty());
    }
}
