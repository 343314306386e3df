//! Partition logs that are written to, against the system calls that they stand on.
//!
//! Every row is a time and the time of its limit in the same round: an append against a plain `pwrite` of the same bytes
//! to a file in the same folder, a recovery against reading the log. Rounds are repeated; the files are new in each.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::hint::black_box;
use std::num::NonZero;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use redrive::batch::{BatchBuilder, CoordinatorBatches, NewRecord};
use redrive::io::FileSystem;
use redrive::log::{CoordinatorRecord, Log, LogConfig, LogState, ReadUpTo};
use redrive::types::{Offset, TopicPartition};
use serde::{Deserialize, Serialize};

use crate::error::BenchError;
use crate::facts::Facts;
use crate::read;

/// Bytes of a large batch.
const BATCH_BYTES: usize = 16 << 10;
/// Bytes of key and value of a coordinator's record: with its batch some 200.
const RECORD_BYTES: (usize, usize) = (40, 85);
/// Sizes of reads.
const READS: [u32; 3] = [16 << 10, 128 << 10, 1 << 20];
const READS_A_ROUND: u64 = 20_000;
const NOW_MS: i64 = 1_700_000_000_000;

/// How much a run does.
#[derive(Clone, Copy, Debug)]
pub struct StoreSize {
    /// Rounds.
    pub repeats: NonZero<u32>,
    /// Bytes that each append row writes in a round.
    pub append_bytes: u64,
    /// Bytes of the log that is recovered.
    pub recovery_bytes: u64,
}

/// What a run found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StoreResult {
    /// The machine and the build.
    pub facts: Facts,
    /// The rows.
    pub rows: Vec<Row>,
}

/// One thing that was measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// What.
    pub name: String,
    /// What it is held against.
    pub limit: String,
    /// Nanoseconds for one of it, a number for each round.
    pub nanos: Vec<f64>,
    /// The same of the limit.
    pub limit_nanos: Vec<f64>,
}

impl Row {
    fn new(name: impl Into<String>, limit: &str) -> Self {
        Self { name: name.into(), limit: limit.to_owned(), nanos: Vec::new(), limit_nanos: Vec::new() }
    }

    /// How much of the limit's speed was reached: least, median, most of the rounds.
    pub fn ratios(&self) -> [f64; 3] {
        spread(self.limit_nanos.iter().zip(&self.nanos).map(|(limit, own)| limit / own))
    }
}

fn spread(values: impl Iterator<Item = f64>) -> [f64; 3] {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    match values.as_slice() {
        [] => [f64::NAN; 3],
        [first, .., last] => [*first, values[values.len() / 2], *last],
        [only] => [*only; 3],
    }
}

impl StoreResult {
    /// For people.
    pub fn text(&self) -> String {
        let mut text =
            format!("{:44} {:>12} {:>24} {:>26}\n", "", "ns each", "(min … max)", "of the limit (min … max)");
        for row in &self.rows {
            let [least, median, most] = spread(row.nanos.iter().copied());
            let _ = write!(text, "{:44} {median:>12.1} {:>24}", row.name, format!("{least:.1} … {most:.1}"));
            if row.limit.is_empty() {
                text.push('\n');
                continue;
            }
            let [least, median, most] = row.ratios();
            let _ = writeln!(text, "   {median:>6.2} ({least:.2} … {most:.2}) of {}", row.limit);
        }
        text
    }
}

/// Measures everything, in a new folder inside of `dir`, which goes away again.
///
/// # Errors
/// [`BenchError`] where the folder cannot be written to.
///
/// # Panics
/// If a log does not take what it must take.
pub fn run(dir: &Path, size: &StoreSize) -> Result<StoreResult, BenchError> {
    let folder = tempfile::tempdir_in(dir).map_err(io("create a folder in", dir))?;
    let mut rows = Vec::new();
    let mut appends = [Row::new("append as follower, batches of 16 KiB", "pwrite of each batch")].to_vec();
    for count in [64, 256, 1024] {
        let name = format!("append of {count} coordinator records at once, a record");
        appends.push(Row::new(name, "pwrite of the same bytes"));
    }
    let mut reads: Vec<Row> =
        READS.iter().map(|bytes| Row::new(format!("read of {} KiB, warm", bytes >> 10), "")).collect();
    let mut recovery = Row::new("recovery of an unclean log, a batch of 16 KiB", "reading it, R");
    for round in 0..size.repeats.get() {
        let place = folder.path().join(round.to_string());
        fs::create_dir(&place).map_err(io("create", &place))?;
        for (number, row) in appends.iter_mut().enumerate() {
            let count = [0, 64, 256, 1024][number];
            if count == 0 {
                follower(&place, size.append_bytes, row)?;
            } else {
                coordinator(&place, size.append_bytes, count, row)?;
            }
        }
        reads_and_recovery(&place, size.recovery_bytes, &mut reads, &mut recovery)?;
        fs::remove_dir_all(&place).map_err(io("remove", &place))?;
    }
    rows.append(&mut appends);
    rows.append(&mut reads);
    rows.push(recovery);
    Ok(StoreResult { facts: Facts::here(dir), rows })
}

fn io(operation: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> BenchError + use<> {
    let path = path.to_path_buf();
    move |source| BenchError::Io { operation, path, source }
}

fn open(place: &Path, name: &str, is_clean: bool) -> Log {
    let directory = place.join(name);
    let partition = TopicPartition::new(name.split('-').next().unwrap_or(name), 0);
    let state = LogState { clean_shutdown: is_clean, now_ms: NOW_MS, ..LogState::default() };
    let opened = Log::open(Arc::new(FileSystem), &directory, partition, LogConfig::default(), &state);
    opened.expect("a log of ours opens").0
}

/// A batch of some bytes whose first offset is to be stamped.
fn batch(bytes: usize) -> Vec<u8> {
    let value: Vec<u8> = (0..bytes - 75).map(|i| (i * 31 % 251) as u8).collect();
    let mut builder = BatchBuilder::new(Offset(0));
    let record = NewRecord { timestamp: NOW_MS, key: Some(b"k"), value: Some(&value), headers: &[] };
    builder.push(&record).expect("a record").leader_epoch(0);
    builder.build().expect("a batch")
}

fn follower(place: &Path, bytes: u64, row: &mut Row) -> Result<(), BenchError> {
    let mut batch = batch(BATCH_BYTES);
    let count = bytes / batch.len() as u64;
    let path = place.join("plain");
    let limit = time(count, || {
        let file = File::create_new(&path).map_err(io("create", &path))?;
        for number in 0..count {
            // What a leader sends has offsets; this is not what is measured.
            batch[..8].copy_from_slice(&number.to_be_bytes());
            file.write_all_at(&batch, number * batch.len() as u64).map_err(io("write to", &path))?;
        }
        Ok(())
    })?;
    fs::remove_file(&path).map_err(io("remove", &path))?;
    let log = open(place, "follower-0", true);
    let own = time(count, || {
        for number in 0..count {
            batch[..8].copy_from_slice(&number.to_be_bytes());
            black_box(log.append_as_follower(&batch, 0, NOW_MS).expect("an append"));
        }
        Ok(())
    })?;
    assert_eq!(log.log_end_offset(), Offset(count as i64));
    drop(log);
    remove(place, "follower-0")?;
    row.nanos.push(own);
    row.limit_nanos.push(limit);
    Ok(())
}

fn coordinator(place: &Path, bytes: u64, count: usize, row: &mut Row) -> Result<(), BenchError> {
    let (key, value) = (vec![b'k'; RECORD_BYTES.0], vec![7; RECORD_BYTES.1]);
    let record = CoordinatorRecord { timestamp_ms: NOW_MS, key: &key, value: Some(&value) };
    let mut batches = CoordinatorBatches::new(Offset(0), 0);
    for _ in 0..count {
        batches.push(NOW_MS, &key, Some(&value)).expect("a record");
    }
    let coalesced = batches.bytes().to_vec();
    let appends = bytes / coalesced.len() as u64;
    let records = appends * count as u64;
    let path = place.join("plain");
    let limit = time(records, || {
        let file = File::create_new(&path).map_err(io("create", &path))?;
        for number in 0..appends {
            file.write_all_at(&coalesced, number * coalesced.len() as u64).map_err(io("write to", &path))?;
        }
        Ok(())
    })?;
    fs::remove_file(&path).map_err(io("remove", &path))?;
    let log = open(place, "coordinator-0", true);
    let own = time(records, || {
        for _ in 0..appends {
            let appended = log.append_coordinator_records(std::iter::repeat_n(record, count), 0, NOW_MS);
            black_box(appended.expect("an append"));
        }
        Ok(())
    })?;
    assert_eq!(log.log_end_offset(), Offset(records as i64));
    drop(log);
    remove(place, "coordinator-0")?;
    row.nanos.push(own);
    row.limit_nanos.push(limit);
    Ok(())
}

fn reads_and_recovery(
    place: &Path,
    bytes: u64,
    reads: &mut [Row],
    recovery: &mut Row,
) -> Result<(), BenchError> {
    let mut batch = batch(BATCH_BYTES);
    // One segment, as large as a segment can be asked to be.
    let count = bytes.min(1 << 30) / batch.len() as u64;
    let log = open(place, "recovered-0", true);
    for number in 0..count {
        batch[..8].copy_from_slice(&number.to_be_bytes());
        log.append_as_follower(&batch, 0, NOW_MS).expect("an append");
    }
    for (row, bytes_max) in reads.iter_mut().zip(READS) {
        let mut sum = 0;
        let own = time(READS_A_ROUND, || {
            for number in 0..READS_A_ROUND {
                // Any batch, in an order that no prefetcher follows.
                let offset = Offset((number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20) as i64 % count as i64);
                let read = log.read(offset, bytes_max, ReadUpTo::LogEnd, true).expect("a read");
                sum += read.bytes.len() as u64;
            }
            Ok(())
        })?;
        black_box(sum);
        row.nanos.push(own);
    }
    // On the device, so that nothing is written back while the recovery is measured; not closed.
    log.flush(log.log_end_offset()).expect("flushed");
    drop(log);
    let segment: PathBuf = place.join("recovered-0/00000000000000000000.log");
    let limit = read::warm(&[segment], NonZero::<usize>::MIN)?;
    let started = Instant::now();
    let log = open(place, "recovered-0", false);
    recovery.nanos.push(started.elapsed().as_nanos() as f64 / count as f64);
    recovery.limit_nanos.push(limit.best.as_nanos() as f64 / count as f64);
    assert_eq!(log.log_end_offset(), Offset(count as i64));
    Ok(())
}

fn remove(place: &Path, name: &str) -> Result<(), BenchError> {
    let path = place.join(name);
    fs::remove_dir_all(&path).map_err(io("remove", &path))
}

/// Nanoseconds of each of `count` things that `work` does.
fn time(count: u64, work: impl FnOnce() -> Result<(), BenchError>) -> Result<f64, BenchError> {
    let started = Instant::now();
    work()?;
    Ok(started.elapsed().as_nanos() as f64 / count as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_run_has_every_row() {
        let dir = tempfile::tempdir().expect("a folder");
        let size =
            StoreSize { repeats: NonZero::new(2).unwrap(), append_bytes: 1 << 20, recovery_bytes: 1 << 20 };
        let result = run(dir.path(), &size).expect("a run");
        assert_eq!(result.rows.len(), 8);
        for row in &result.rows {
            assert!(row.nanos.len() == 2 && row.nanos.iter().all(|nanos| *nanos > 0.0), "{row:?}");
            assert!(row.limit.is_empty() || row.limit_nanos.len() == 2, "{row:?}");
        }
        assert_eq!(fs::read_dir(dir.path()).expect("a folder").count(), 0);
        let row =
            Row { nanos: vec![20.0, 10.0, 40.0], limit_nanos: vec![10.0, 10.0, 10.0], ..Row::new("a", "b") };
        assert_eq!(row.ratios(), [0.25, 0.5, 1.0]);
    }
}
