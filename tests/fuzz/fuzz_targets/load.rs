//! Bytes as segments of a partition: a load must end, complete or refused, by mapping as by positioned reads, and a
//! complete one must be what the slow twin makes of the same files.
//!
//! The first byte says how: bit 0 clean shutdown, bit 1 lenient, bit 2 two segments (cut in the middle), bit 3 repair
//! the checksum of every batch, so that random changes get past it, bit 4 compare ids by their hash.
#![no_main]

use std::collections::BTreeMap;
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use redrive::io::MemoryStorage;
use redrive::replay::{Identity, IoChoice, PartitionOutcome, Replay};
use redrive_tests::naive::{self, NaiveOptions};

const FOLDER: &str = "/logs/__transaction_state-0";

fn repair(bytes: &mut [u8]) {
    let mut at = 0;
    while let Some(header) = bytes.get(at..at + 61) {
        let length = i32::from_be_bytes(header[8..12].try_into().expect("four bytes"));
        let Ok(length) = usize::try_from(length) else { return };
        let end = at + 12 + length;
        if length < 49 || header[16] != 2 || end > bytes.len() {
            return;
        }
        redrive_tests::logs::reseal(&mut bytes[at..end]);
        at = end;
    }
}

fn describe(outcome: &PartitionOutcome) -> Result<BTreeMap<String, (i64, String)>, String> {
    let (map, _) = outcome.result.as_ref().map_err(ToString::to_string)?;
    let entries = map.iter().map(|entry| {
        let entry = entry.expect("the log is still there");
        (entry.id().into_owned(), (entry.offset().0, entry.state().to_string()))
    });
    Ok(entries.collect())
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&how, bytes)) = bytes.split_first() else { return };
    let (clean, lenient, two, repaired) = (how & 1 != 0, how & 2 != 0, how & 4 != 0, how & 8 != 0);
    let mut bytes = bytes.to_vec();
    if repaired {
        repair(&mut bytes);
    }
    let cut = if two { bytes.len() / 2 } else { bytes.len() };
    let files = [("00000000000000000000.log", &bytes[..cut]), ("00000000000000000020.log", &bytes[cut..])];

    let storage = MemoryStorage::new();
    for (name, bytes) in &files[..if two { 2 } else { 1 }] {
        storage.write(format!("{FOLDER}/{name}"), *bytes);
    }
    if clean {
        storage.write("/logs/.kafka_cleanshutdown", *b"");
    }
    let identity = if how & 16 == 0 { Identity::Exact } else { Identity::Hash };
    let run = |io| {
        let replay = Replay::open(Arc::new(storage.clone()), ["/logs"]).expect("a log directory");
        let loaded = replay.io(io).lenient(lenient).identity(identity).chunk_bytes(64).run().expect("a load");
        describe(&loaded.partitions[0]).map(|map| (map, loaded.partitions[0].stats().cloned()))
    };
    let mapped = run(IoChoice::Mmap);
    let read = run(IoChoice::Pread);
    match (&mapped, &read) {
        (Ok((a, _)), Ok((b, _))) => assert_eq!(a, b),
        (Err(a), Err(b)) => assert_eq!(a, b),
        _ => panic!("mapped {mapped:?}, read {read:?}"),
    }
    let Ok((ours, Some(stats))) = mapped else { return };
    if lenient {
        return;
    }
    let memory = std::path::Path::new("/dev/shm");
    let parent = if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() };
    let folder = tempfile::tempdir_in(parent).expect("a temporary folder");
    for (name, bytes) in &files[..if two { 2 } else { 1 }] {
        std::fs::write(folder.path().join(name), bytes).expect("a small file");
    }
    let options = NaiveOptions { readable_prefix: stats.tail.is_some(), ..NaiveOptions::default() };
    let theirs = naive::load_partition(folder.path(), &options).expect("the twin loads what we load");
    let theirs: BTreeMap<_, _> =
        theirs.entries.into_iter().map(|(id, entry)| (id, (entry.offset, entry.state.to_string()))).collect();
    assert_eq!(ours, theirs);
});
