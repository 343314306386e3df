//! The steps of a load by themselves, over every batch of the shipped directory: header hop, CRC, records, key and
//! value. Each next to a plainer way of doing the same.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use redrive::batch::{BatchFrame, Decompressor, FramePrefix, Limits};
use redrive::transaction_log::{Key, Value, status_code};
use redrive_bench::dataset;
use redrive_tests::naive;

fn frames(mut bytes: &[u8]) -> Vec<BatchFrame<'_>> {
    let mut frames = Vec::new();
    while !bytes.is_empty() {
        let (frame, rest) = BatchFrame::parse(bytes).expect("shipped batches are whole");
        frames.push(frame);
        bytes = rest;
    }
    frames
}

/// Keys and values of every record that has a value.
fn values(frames: &[BatchFrame<'_>]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut decompressor = Decompressor::new();
    let limits = Limits::default();
    let mut values = Vec::new();
    for frame in frames {
        let batch = frame.verify().expect("shipped batches have right CRCs");
        for record in batch.records(&mut decompressor, &limits).expect("readable records") {
            let record = record.expect("a readable record");
            if let (Some(key), Some(value)) = (record.key, record.value) {
                values.push((key.to_vec(), value.to_vec()));
            }
        }
    }
    values
}

fn hop(c: &mut Criterion) {
    let bytes = dataset::batches().expect("the shipped directory");
    let count = frames(&bytes).len() as u64;
    let mut group = c.benchmark_group("hop");
    group.throughput(Throughput::Elements(count));
    group.bench_function("prefix", |b| {
        b.iter(|| {
            let mut rest = black_box(&bytes[..]);
            while !rest.is_empty() {
                let prefix = FramePrefix::parse(rest, rest.len() as u64).expect("whole batches");
                rest = &rest[prefix.size as usize..];
            }
        });
    });
    group.bench_function("frame", |b| {
        b.iter(|| {
            let mut rest = black_box(&bytes[..]);
            while !rest.is_empty() {
                rest = BatchFrame::parse(rest).expect("whole batches").1;
            }
        });
    });
    group.bench_function("naive", |b| {
        b.iter(|| {
            let mut rest = black_box(&bytes[..]);
            while let Some(batch) = naive::next_batch(rest, rest.len() as u64).expect("whole batches") {
                rest = &rest[batch.bytes.len()..];
            }
        });
    });
    group.finish();
}

fn crc(c: &mut Criterion) {
    let bytes = dataset::batches().expect("the shipped directory");
    let frames = frames(&bytes);
    let mut group = c.benchmark_group("crc");
    group.throughput(Throughput::Bytes(bytes.len() as u64));
    group.bench_function("batch by batch", |b| {
        b.iter(|| black_box(&frames).iter().all(|frame| frame.verify().is_ok()));
    });
    group.bench_function("in one go", |b| b.iter(|| crc32c::crc32c(black_box(&bytes))));
    group.finish();
}

fn records(c: &mut Criterion) {
    let bytes = dataset::batches().expect("the shipped directory");
    let frames = frames(&bytes);
    let limits = Limits::default();
    let mut group = c.benchmark_group("records");
    group.throughput(Throughput::Elements(frames.len() as u64));
    group.bench_function("borrowed", |b| {
        let mut decompressor = Decompressor::new();
        b.iter(|| {
            for frame in black_box(&frames) {
                let batch = frame.without_crc_check();
                for record in batch.records(&mut decompressor, &limits).expect("readable") {
                    black_box(record.expect("a readable record"));
                }
            }
        });
    });
    group.finish();
}

fn value(c: &mut Criterion) {
    let bytes = dataset::batches().expect("the shipped directory");
    let values = values(&frames(&bytes));
    let mut group = c.benchmark_group("value");
    group.throughput(Throughput::Elements(values.len() as u64));
    group.bench_function("status only", |b| {
        b.iter(|| black_box(&values).iter().filter(|(_, value)| status_code(value) == Some(1)).count());
    });
    group.bench_function("borrowed", |b| {
        b.iter(|| {
            for (key, value) in black_box(&values) {
                black_box(Key::parse(key).expect("a key"));
                let Value::Known(fields) = Value::parse(value).expect("a value") else { continue };
                black_box(fields.transaction().expect("a transaction"));
            }
        });
    });
    group.bench_function("owned", |b| {
        b.iter(|| {
            for (key, value) in black_box(&values) {
                black_box(Key::parse(key).expect("a key"));
                let Value::Known(fields) = Value::parse(value).expect("a value") else { continue };
                black_box(fields.transaction().expect("a transaction").to_metadata());
            }
        });
    });
    group.bench_function("naive", |b| {
        b.iter(|| {
            for (key, value) in black_box(&values) {
                black_box(naive::read_key(key).expect("a key"));
                black_box(naive::read_value(value).expect("a value"));
            }
        });
    });
    group.finish();
}

criterion_group!(benches, hop, crc, records, value);
criterion_main!(benches);
