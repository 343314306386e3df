//! Memory of a load, measured at the allocator.
//!
//! The peak is that of the whole process, so the tests of this binary take turns.

mod judge;

use std::num::NonZero;
use std::sync::{Mutex, MutexGuard, PoisonError};

use judge::{ROOT, Root};
use peak_alloc::PeakAlloc;
use redrive::Error;
use redrive::batch::{CompressionFault, Limits};
use redrive::error::Reason;
use redrive::io::MemoryStorage;
use redrive::replay::{IoChoice, Replay};
use redrive_tests::logs::{
    BatchSpec, Codec, RecordSpec, Rng, SegmentFile, Shape, TransactionValue, encode_key, random_log,
};
use serde_json::Value;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes that the heap grew by at most while `work` ran.
fn peak_of<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = ALLOCATOR.current_usage();
    ALLOCATOR.reset_peak_usage();
    let result = work();
    (result, ALLOCATOR.peak_usage().saturating_sub(before))
}

/// FC-13: the heap follows the live ids, not the records. The numbers are in `fixtures/cases/memory.json`.
#[test]
fn fc_13_memory_follows_live_ids() {
    let _turn = turn();
    let case: Value =
        serde_json::from_str(include_str!("../fixtures/cases/memory.json")).expect("memory.json is JSON");
    let case = &case["FC-13"];
    let number = |member: &str| case[member].as_u64().unwrap_or_else(|| panic!("{member}"));
    let (records, ids, workers) = (number("records"), number("ids"), number("workers"));
    let (partitions, per_batch) = (number("partitions"), number("recordsPerBatch"));
    let buffer_bytes = number("bufferBytes");

    // Every batch of a partition has the same records, so one is encoded and stamped with its offset.
    let storage = MemoryStorage::new();
    let mut log_bytes = 0;
    for partition in 0..partitions {
        let keys = (0..per_batch)
            .map(|n| encode_key(0, format!("id-{partition}-{}", n % (ids / partitions)).as_bytes()));
        let value = TransactionValue::default().encode();
        let records_of_batch =
            keys.enumerate().map(|(n, key)| RecordSpec::new(n as i32, key, Some(value.clone()))).collect();
        let batch = BatchSpec { records: records_of_batch, ..BatchSpec::default() }.encode();
        let mut segment = Vec::new();
        for index in 0..records / partitions / per_batch {
            let at = segment.len();
            segment.extend_from_slice(&batch);
            segment[at..at + 8].copy_from_slice(&(index * per_batch).to_be_bytes());
        }
        log_bytes += segment.len();
        storage.write(format!("{ROOT}/__transaction_state-{partition}/{:020}.log", 0), segment);
    }
    for io in [IoChoice::Pread, IoChoice::Mmap] {
        let replay = Replay::open(std::sync::Arc::new(storage.clone()), [ROOT]).expect("a log directory");
        let replay = replay
            .threads(NonZero::new(workers as usize).expect("workers"))
            .io(io)
            .chunk_bytes(buffer_bytes as usize);
        let (loaded, peak) = peak_of(|| replay.run().expect("a load"));
        let sums = loaded.partitions.iter().map(|outcome| outcome.stats().expect("loaded"));
        let (read, live) = sums.fold((0, 0), |(read, live), stats| {
            (read + stats.records, live + stats.by_state.iter().map(|(_, count)| count).sum::<u64>())
        });
        assert_eq!((read, live), (records, ids));
        let entries_and_buffers = ids * number("bytesPerEntry") + workers * buffer_bytes;
        println!("{io:?}: peak {peak} bytes, log of {log_bytes}, entries and buffers {entries_and_buffers}");
        assert!(peak as u64 <= number("smallMultiple") * entries_and_buffers, "{io:?}: {peak} bytes");
        assert!(
            peak as u64 * number("timesBelowLogSize") <= log_bytes as u64,
            "{io:?}: {peak} of {log_bytes}"
        );
    }
}

/// Length fields that lie, at every level: none makes a load take more than a small multiple of the bytes there.
#[test]
fn damage_takes_no_memory_that_the_input_does_not_have() {
    let _turn = turn();
    let shape = Shape { ids: 6, odd_ids: false, codecs: true, ..Shape::default() };
    let mut worst = 0;
    for seed in 0..400 {
        let mut rng = Rng::new(seed);
        let mut log = random_log(seed, &shape);
        for segment in &mut log.segments {
            for _ in 0..1 + rng.below(4) {
                if segment.bytes.is_empty() {
                    continue;
                }
                // Runs of ones make the largest lengths and counts there are.
                let at = rng.below(segment.bytes.len() as u64) as usize;
                let end = (at + 1 + rng.below(5) as usize).min(segment.bytes.len());
                segment.bytes[at..end].fill(*rng.pick(&[0xff, 0x7f, 0x80]));
            }
            // With a right CRC the lie is believed as far as it can be.
            for batch in split_by_length(&mut segment.bytes) {
                redrive_tests::logs::reseal(batch);
            }
        }
        let input: usize = log.segments.iter().map(|segment| segment.bytes.len()).sum();
        let root = Root::of(&log.segments);
        for (io, lenient) in [(IoChoice::Mmap, false), (IoChoice::Pread, false), (IoChoice::Pread, true)] {
            let limits = Limits::default().with_decompressed_bytes_max(1 << 20);
            let replay = root.replay().io(io).lenient(lenient).chunk_bytes(4096).limits(limits);
            let (_, peak) = peak_of(|| judge::run_one(&replay));
            // The tail search has a window of at most the input, and threads and channels take their part.
            let most = 8 * input + (1 << 20) + (256 << 10);
            assert!(peak <= most, "seed {seed}, {io:?}, lenient {lenient}: {peak} bytes for {input}");
            worst = worst.max(peak);
        }
    }
    println!("largest peak {worst} bytes");
    assert!(worst > 0, "the allocator counts");
}

/// Batches by their length fields, as far as these lead.
fn split_by_length(mut bytes: &mut [u8]) -> Vec<&mut [u8]> {
    let mut batches = Vec::new();
    while let Some(length) = bytes.get(8..12) {
        let length = i32::from_be_bytes(length.try_into().expect("four bytes"));
        let Ok(size) = usize::try_from(i64::from(length) + 12) else { break };
        if size < 61 || size > bytes.len() {
            break;
        }
        let (batch, rest) = bytes.split_at_mut(size);
        batches.push(batch);
        bytes = rest;
    }
    batches
}

/// A few kilobytes that unpack to a gigabyte are refused at the limit, not after it.
#[test]
fn a_bomb_is_refused_without_unpacking_it() {
    let _turn = turn();
    let limit = 1 << 20;
    for codec in [Codec::Gzip, Codec::Lz4, Codec::Zstd, Codec::Snappy] {
        // Far above the limit, far below the memory of any machine, in case the limit fails.
        let zeros = vec![0; 64 << 20];
        let payload = Some(codec.compress(&zeros));
        drop(zeros);
        let record = RecordSpec::new(0, encode_key(0, b"x"), None);
        let bytes = BatchSpec { codec, payload, records: vec![record], ..BatchSpec::default() }.encode();
        let input = bytes.len();
        let root = Root::of(&[SegmentFile { base_offset: 0, bytes }]);
        let replay = root.replay().limits(Limits::default().with_decompressed_bytes_max(limit));
        let (outcome, peak) = peak_of(|| judge::run_one(&replay));
        match outcome.error() {
            Some(Error::Corrupt(corruption)) => {
                assert_eq!(corruption.reason, Reason::Compression(CompressionFault::TooLarge { limit }));
            }
            other => panic!("{codec:?}: {other:?}"),
        }
        // Vectors grow by doubling; zstd has a window of its own.
        assert!(peak <= 4 * limit + 2 * input + (2 << 20), "{codec:?}: {peak} bytes for {input}");
    }
}
