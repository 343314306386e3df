//! The whole load against the naive loader, on the shipped directory repeated in a memory file system. Before
//! anything is timed the two answers are compared.

use std::num::NonZero;
use std::path::Path;
use std::sync::Arc;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use redrive::io::FileSystem;
use redrive::replay::{IoChoice, Replay};
use redrive_bench::dataset;
use redrive_tests::naive::{self, NaiveOptions};

/// 500 partitions, 54 MB, 50,000 ids.
const TIMES: usize = 10;

fn redrive(root: &Path, threads: usize, io: IoChoice) -> (usize, u64) {
    let threads = NonZero::new(threads).expect("at least one thread");
    let replay = Replay::open(Arc::new(FileSystem), [root]).expect("a log directory").threads(threads).io(io);
    let loaded = replay.run().expect("a load");
    assert!(loaded.is_complete());
    let ids = loaded.maps().map(|map| map.len()).sum();
    (ids, loaded.partitions.iter().filter_map(|outcome| Some(outcome.stats()?.records)).sum())
}

fn naive(root: &Path) -> (usize, u64) {
    let loaded = naive::load_root(root, "__transaction_state", &NaiveOptions::default()).expect("a root");
    let maps: Vec<_> = loaded.into_values().map(|map| map.expect("a loaded partition")).collect();
    (maps.iter().map(|map| map.entries.len()).sum(), maps.iter().map(|map| map.records).sum())
}

fn load(c: &mut Criterion) {
    let root = dataset::repeated(TIMES).expect("a copy in memory");
    let root = root.path();
    let (ids, records) = naive(root);
    for io in [IoChoice::Mmap, IoChoice::Pread] {
        assert_eq!(redrive(root, 1, io), (ids, records), "both loaders see the same ids and records");
    }
    let mut group = c.benchmark_group("load");
    group.sample_size(20).throughput(Throughput::Elements(records));
    group.bench_function("naive", |b| b.iter(|| naive(root)));
    group.bench_function("redrive mmap 1 thread", |b| b.iter(|| redrive(root, 1, IoChoice::Mmap)));
    group.bench_function("redrive pread 1 thread", |b| b.iter(|| redrive(root, 1, IoChoice::Pread)));
    group.bench_function("redrive mmap 2 threads", |b| b.iter(|| redrive(root, 2, IoChoice::Mmap)));
    group.finish();
}

criterion_group!(benches, load);
criterion_main!(benches);
