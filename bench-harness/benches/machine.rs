//! What the engine's innermost pieces cost by themselves: CRC-32C by every kernel of this CPU. They are private to the
//! engine, so their files are compiled in here; they need nothing of it.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};

#[path = "../../engine/src/machine/crc.rs"]
#[expect(dead_code, reason = "the engine uses the rest")]
mod crc;

use crc::Crc;

/// Bytes without a pattern, the same in every run.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let step = move |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_be_bytes()[0]
    };
    (0..length).map(step).collect()
}

/// Messages one after the other, as in a log, all of which stay in a cache of 1 MiB. The thousands of lengths repeat
/// from round to round, so a large branch predictor may learn some of them: kernels that branch look better here than
/// in a load.
fn messages(bytes: &[u8], lengths: impl Fn(usize) -> usize) -> Vec<&[u8]> {
    let mut rest = bytes;
    let mut messages = Vec::new();
    while let Some((message, after)) = rest.split_at_checked(lengths(messages.len())) {
        messages.push(message);
        rest = after;
    }
    messages
}

/// Time per group of messages; the throughput in elements gives the time of one.
fn crc32c_short(c: &mut Criterion) {
    let bytes = noise(1 << 19);
    let random = noise(1 << 16);
    let mut group = c.benchmark_group("crc short");
    let sets = [
        ("57", messages(&bytes, |_| 57)),
        ("100", messages(&bytes, |_| 100)),
        ("200", messages(&bytes, |_| 200)),
        ("100-300", messages(&bytes, |n| 100 + usize::from(random[2 * n]) * 200 / 255)),
        ("1024", messages(&bytes, |_| 1024)),
    ];
    for (name, messages) in &sets {
        group.throughput(Throughput::Elements(messages.len() as u64));
        for kernel in Crc::all() {
            group.bench_function(format!("{name}/{}", kernel.name()), |b| {
                b.iter(|| black_box(messages).iter().fold(0, |sum, message| sum ^ kernel.of(message)));
            });
        }
    }
    group.finish();
}

/// One long message.
fn crc32c_long(c: &mut Criterion) {
    let bytes = noise(1 << 20);
    let mut group = c.benchmark_group("crc long");
    for length in [64 << 10, 1 << 20] {
        group.throughput(Throughput::Bytes(length as u64));
        for kernel in Crc::all() {
            group.bench_function(format!("{} KiB/{}", length >> 10, kernel.name()), |b| {
                b.iter(|| kernel.of(black_box(&bytes[..length])));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, crc32c_short, crc32c_long);
criterion_main!(benches);
