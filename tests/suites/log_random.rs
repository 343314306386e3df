//! A log against a twin of it that is as plain as can be: a list of batches. Long random runs of everything that
//! changes a log, under settings that cut it into segments and index it in different ways; after each step both have the
//! same batches, offsets, epochs and producers, and so have logs of all settings.

mod log_place;

use std::collections::BTreeMap;

use log_place::{
    NOW, Place, batches_from, epochs, memory, on_disk, producers, request, state, timed, transactional,
};
use redrive::io::Region;
use redrive::log::validate::AppendOrigin;
use redrive::log::{CoordinatorRecord, LeaderRequest, Log, LogConfig, LogState};
use redrive::types::Offset;
use redrive_tests::logs::{BatchSpec, RecordSpec, Rng};

/// Plain producers have these ids, those with transactions the ones from here on.
const TRANSACTIONAL_FROM: i64 = 10;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Producer {
    epoch: i16,
    /// Last sequence, last offset and offset delta of the newest data batch.
    batch: Option<(i32, i64, i32)>,
    time: i64,
    coordinator_epoch: i32,
    open: Option<i64>,
    /// Offset of its first batch, ever.
    since: i64,
}

/// The twin.
#[derive(Clone, Debug, Default)]
struct Twin {
    /// All batches, also those below the log start.
    batches: Vec<BatchSpec>,
    start: i64,
    end: i64,
    high_watermark: i64,
    epochs: Vec<Vec<i64>>,
}

impl Twin {
    fn append(&mut self, batch: &BatchSpec) {
        let epoch = i64::from(batch.partition_leader_epoch);
        if self.epochs.last().is_none_or(|last| last[0] != epoch || last[1] > batch.base_offset) {
            self.epochs.retain(|entry| entry[0] < epoch && entry[1] < batch.base_offset);
            self.epochs.push(vec![epoch, batch.base_offset]);
        }
        self.end = batch.last_offset() + 1;
        self.batches.push(batch.clone());
    }

    fn truncate(&mut self, target: i64) {
        self.end = self.end.min(target);
        self.batches.retain(|batch| batch.last_offset() < target);
        self.epochs.retain(|entry| entry[1] < self.end);
        self.high_watermark = self.high_watermark.min(self.end);
    }

    fn restart(&mut self, offset: i64) {
        *self = Self { start: offset, end: offset, high_watermark: offset, ..Self::default() };
    }

    fn raise_start(&mut self, offset: i64) {
        self.start = offset;
        if let Some(at) = self.epochs.iter().rposition(|entry| entry[1] <= offset) {
            self.epochs.drain(..at);
            self.epochs[0][1] = offset;
        }
    }

    /// What can be read.
    fn readable(&self) -> Vec<Vec<u8>> {
        let readable = self.batches.iter().filter(|batch| batch.last_offset() >= self.start);
        readable.map(BatchSpec::encode).collect()
    }

    fn producers(&self) -> BTreeMap<i64, Producer> {
        let mut known: BTreeMap<i64, Producer> = BTreeMap::new();
        for batch in self.batches.iter().filter(|batch| batch.producer_id >= 0) {
            let fresh = Producer {
                epoch: batch.producer_epoch,
                batch: None,
                time: -1,
                coordinator_epoch: -1,
                open: None,
                since: batch.base_offset,
            };
            let producer = known.entry(batch.producer_id).or_insert(fresh);
            if producer.epoch != batch.producer_epoch {
                (producer.epoch, producer.batch) = (batch.producer_epoch, None);
            }
            let largest = batch.records.iter().map(|record| record.timestamp_delta).max().unwrap_or(0);
            producer.time = batch.base_timestamp + largest;
            if batch.attributes & 0x20 != 0 {
                (producer.open, producer.coordinator_epoch) = (None, 0);
            } else {
                let delta = batch.records.len() as i32 - 1;
                producer.batch = Some((batch.base_sequence + delta, batch.last_offset(), delta));
                if batch.attributes & 0x10 != 0 {
                    producer.open = producer.open.or(Some(batch.base_offset));
                }
            }
        }
        known
    }
}

struct Run {
    place: Place,
    config: LogConfig,
    log: Option<Log>,
    twin: Twin,
    rng: Rng,
    epoch: i32,
    /// Whether the log may be cut inside a batch: where it ends after a restart then depends on its segments.
    cuts_anywhere: bool,
    counts: BTreeMap<&'static str, usize>,
    /// What readers hold, and copies of it.
    held: Vec<(Region, Vec<u8>)>,
}

impl Run {
    fn new(place: Place, seed: u64, config: LogConfig, cuts_anywhere: bool) -> Self {
        let log = Some(place.open(&config));
        let (twin, rng) = (Twin::default(), Rng::new(seed));
        let (counts, held) = (BTreeMap::new(), Vec::new());
        Self { place, config, log, twin, rng, epoch: 0, cuts_anywhere, counts, held }
    }

    fn log(&self) -> &Log {
        self.log.as_ref().expect("an open log")
    }

    /// Now and then somebody reads all there is, and keeps it.
    fn hold(&mut self) {
        if self.rng.once_in(6) {
            let held = self.log().snapshot();
            let regions = held.segments().iter().map(|segment| segment.bytes().expect("bytes"));
            let regions: Vec<_> = regions.map(|region| (region.clone(), region.to_vec())).collect();
            self.held.extend(regions);
        } else if self.rng.once_in(6) {
            self.held.clear();
        }
    }

    fn below(&mut self, bound: i64) -> i64 {
        self.rng.below(bound.unsigned_abs()).cast_signed()
    }

    /// A batch of one to four records of random sizes and times.
    fn batch(&mut self, base_offset: i64) -> BatchSpec {
        let times: Vec<i64> = (0..=self.below(4)).map(|_| NOW - 5000 + self.below(10_000)).collect();
        let mut batch = timed(base_offset, &times);
        for record in &mut batch.records {
            let value = vec![b'v'; self.rng.below(30) as usize];
            *record = RecordSpec { value: Some(value), ..record.clone() };
        }
        BatchSpec { partition_leader_epoch: self.epoch, ..batch }
    }

    /// The same of a producer, with the sequence that comes next.
    fn produced(&mut self, base_offset: i64, producer_id: i64) -> BatchSpec {
        let batch = self.batch(base_offset);
        let known = self.twin.producers().remove(&producer_id);
        let (mut epoch, mut sequence) = (0, 0);
        if let Some(producer) = known {
            epoch = producer.epoch;
            sequence = producer.batch.map_or(0, |(last, _, _)| last + 1);
            if producer.open.is_none() && self.rng.once_in(8) {
                (epoch, sequence) = (epoch + 1, 0);
            }
        }
        BatchSpec { producer_id, producer_epoch: epoch, base_sequence: sequence, ..batch }
    }

    fn lead(&mut self, batch: &BatchSpec, origin: AppendOrigin) {
        let sent = BatchSpec { base_offset: 0, partition_leader_epoch: -1, ..batch.clone() };
        let request = LeaderRequest { origin, ..request(self.epoch, NOW) };
        let info = self.log().append_as_leader(&mut sent.encode(), &request);
        let info = info.expect("an append").expect("a batch");
        assert_eq!((info.first_offset.0, info.last_offset.0), (batch.base_offset, batch.last_offset()));
        assert!(!info.is_duplicate);
        self.twin.append(batch);
    }

    fn step(&mut self) {
        let end = self.twin.end;
        let step = match self.below(24) {
            0..=4 => {
                let batch = self.batch(end);
                self.lead(&batch, AppendOrigin::Client);
                "leader"
            }
            5..=7 => {
                let id = 1 + self.below(4);
                let batch = self.produced(end, id);
                self.lead(&batch, AppendOrigin::Client);
                "producer"
            }
            8..=10 => {
                self.follow();
                "follower"
            }
            11..=12 => {
                self.mark();
                "marker"
            }
            13..=14 => {
                self.coordinate();
                "coordinator"
            }
            15 => {
                self.log().roll(NOW).expect("rolled");
                "roll"
            }
            16 => {
                self.truncate();
                "truncate"
            }
            17 if self.rng.once_in(5) => {
                let offset = self.below(end + 20);
                self.log().truncate_fully_and_start_at(Offset(offset), None, NOW).expect("restarted");
                self.twin.restart(offset);
                "restart"
            }
            18 => {
                let to = self.below(end + 3);
                let now = self.log().update_high_watermark(Offset(to)).expect("an offset");
                self.twin.high_watermark = to.clamp(self.twin.start, end);
                assert_eq!(now.0, self.twin.high_watermark);
                "high watermark"
            }
            19 => {
                self.raise_start();
                "log start"
            }
            20 => {
                let up_to = self.below(end + 1);
                self.log().flush(Offset(up_to)).expect("flushed");
                assert!(self.log().recovery_point().0 >= up_to.min(end));
                "flush"
            }
            21 => {
                let now = if self.rng.once_in(2) { i64::MAX } else { NOW };
                self.log().remove_deleted(now).expect("removed");
                "removal"
            }
            22 => {
                self.reopen(true);
                "clean"
            }
            23 => {
                self.reopen(false);
                "unclean"
            }
            _ => {
                self.epoch += 1;
                "epoch"
            }
        };
        *self.counts.entry(step).or_default() += 1;
    }

    fn follow(&mut self) {
        let (mut at, mut batches) = (self.twin.end, Vec::new());
        let before = self.twin.clone();
        for _ in 0..=self.below(3) {
            at += if self.rng.once_in(4) { self.below(20) } else { 0 };
            let id = TRANSACTIONAL_FROM + self.below(3);
            let batch = match self.below(3) {
                0 => self.batch(at),
                1 => self.produced(at, id - TRANSACTIONAL_FROM + 1),
                _ => transactional(self.produced(at, id)),
            };
            at = batch.last_offset() + 1;
            // The next one goes on from it.
            self.twin.append(&batch);
            batches.push(batch);
        }
        self.twin = before;
        let bytes: Vec<u8> = batches.iter().flat_map(BatchSpec::encode).collect();
        let info = self.log().append_as_follower(&bytes, i32::MAX, NOW).expect("an append").expect("batches");
        assert_eq!((info.first_offset.0, info.last_offset.0), (batches[0].base_offset, at - 1));
        batches.iter().for_each(|batch| self.twin.append(batch));
    }

    fn mark(&mut self) {
        let known = self.twin.producers();
        let Some((id, producer)) = known.iter().find(|(_, producer)| producer.open.is_some()) else { return };
        let is_commit = self.rng.once_in(2);
        let marker = BatchSpec {
            base_timestamp: NOW,
            partition_leader_epoch: self.epoch,
            ..BatchSpec::marker(self.twin.end, *id, producer.epoch, is_commit, 0)
        };
        self.lead(&marker, AppendOrigin::Coordinator);
    }

    fn coordinate(&mut self) {
        let batches: Vec<BatchSpec> = (0..=self.below(4))
            .map(|number| {
                let key = vec![b'k'; 1 + self.rng.below(20) as usize];
                let value = (!self.rng.once_in(3)).then(|| vec![b'v'; self.rng.below(20) as usize]);
                BatchSpec {
                    base_timestamp: NOW + number,
                    partition_leader_epoch: self.epoch,
                    ..BatchSpec::single(self.twin.end + number, key, value)
                }
            })
            .collect();
        let records = batches.iter().map(|batch| CoordinatorRecord {
            timestamp_ms: batch.base_timestamp,
            key: batch.records[0].key.as_deref().expect("a key"),
            value: batch.records[0].value.as_deref(),
        });
        let info = self.log().append_coordinator_records(records, self.epoch, NOW).expect("an append");
        let info = info.expect("records");
        assert_eq!(info.first_offset.0, self.twin.end);
        batches.iter().for_each(|batch| self.twin.append(batch));
    }

    /// An offset behind a batch that can be read, the log start, or the end.
    fn border(&mut self) -> i64 {
        let Twin { batches, start, end, .. } = &self.twin;
        let (start, end) = (*start, *end);
        let borders = batches.iter().map(|batch| batch.last_offset() + 1).filter(|border| *border >= start);
        let borders: Vec<i64> = borders.chain([start, end]).collect();
        // Of the last ones, mostly.
        let from = borders.len() - borders.len().min(12);
        *self.rng.pick(&borders[from..])
    }

    fn truncate(&mut self) {
        let mut target = self.border();
        if self.cuts_anywhere && self.rng.once_in(3) {
            target = self.twin.start + self.below(self.twin.end - self.twin.start + 3);
        }
        let changes = self.log().truncate_to(Offset(target), NOW).expect("truncated");
        assert_eq!(changes, target < self.twin.end);
        self.twin.truncate(target);
        assert!(self.log().recovery_point().0 <= self.twin.end);
    }

    fn raise_start(&mut self) {
        let border = self.border();
        self.log().update_high_watermark(Offset(self.twin.end)).expect("an offset");
        self.twin.high_watermark = self.twin.end;
        let moved = self.log().increment_log_start_offset(Offset(border)).expect("moved");
        assert_eq!(moved, border > self.twin.start);
        if moved {
            self.twin.raise_start(border);
        }
        let before = self.log().segments_count();
        let gone = self.log().delete_before_log_start(NOW).expect("deleted");
        assert_eq!(self.log().segments_count(), before - gone);
    }

    fn reopen(&mut self, is_clean: bool) {
        let log = self.log.take().expect("an open log");
        if is_clean {
            log.close().expect("closed");
        }
        let from = LogState {
            recovery_point: log.recovery_point(),
            log_start_offset: Some(log.log_start_offset()),
            high_watermark: Some(log.high_watermark()),
            ..state(is_clean)
        };
        drop(log);
        let (log, report) = self.place.open_as(&self.config, &from);
        assert!(!report.lost_records(), "{report:?}");
        assert_eq!(is_clean, report.segments.is_empty(), "{report:?}");
        let end = log.log_end_offset().0;
        // An epoch without a batch is forgotten.
        self.twin.epochs.retain(|entry| entry[1] < end);
        let found = epochs(&log);
        if !is_clean && self.twin.epochs.is_empty() && !found.is_empty() {
            // But found again, as by a broker, where a batch below the log start is still in its segment.
            assert!(self.twin.readable().is_empty());
            let last = self.twin.batches.last().expect("a batch");
            assert_eq!(found, [[i64::from(last.partition_leader_epoch), self.twin.start]]);
            self.twin.epochs = found;
        }
        if self.cuts_anywhere && end < self.twin.end {
            // Nothing says any more that it had ended between two batches.
            let least = self.twin.batches.last().map_or(self.twin.start, |batch| batch.last_offset() + 1);
            assert!(end >= least.max(self.twin.start));
            self.twin.truncate(end);
        }
        self.log = Some(log);
    }

    fn check(&self, why: &str) {
        assert!(self.held.iter().all(|(region, copy)| region[..] == copy[..]), "held bytes changed, {why}");
        let (log, twin) = (self.log(), &self.twin);
        let offsets = log.offsets();
        assert_eq!(offsets.log_end_offset.0, twin.end, "end, {why}");
        assert_eq!(offsets.log_start_offset.0, twin.start, "start, {why}");
        assert_eq!(offsets.high_watermark.0, twin.high_watermark, "high watermark, {why}");
        assert_eq!(epochs(log), twin.epochs, "epochs, {why}");
        assert!(batches_from(log, twin.start) == twin.readable(), "batches, {why}");
        let mut known = twin.producers();
        for entry in producers(log) {
            let Some(expected) = known.remove(&entry.producer_id.0) else {
                panic!("{entry:?} has nothing in the log, {why}");
            };
            // Of producers with batches below the log start it depends on the segments what is remembered.
            if expected.since < twin.start {
                continue;
            }
            let found = Producer {
                epoch: entry.producer_epoch,
                batch: entry.last_batch.map(|b| (b.last_sequence, b.last_offset.0, b.offset_delta)),
                time: entry.last_timestamp,
                coordinator_epoch: entry.coordinator_epoch,
                open: entry.current_txn_first_offset.map(|offset| offset.0),
                since: expected.since,
            };
            assert_eq!(found, expected, "producer {}, {why}", entry.producer_id.0);
        }
        assert!(known.values().all(|producer| producer.since < twin.start), "{known:?}, {why}");
        assert_eq!(log.producer_state().map_end_offset().0, twin.end, "map end, {why}");
    }
}

fn config(segment_bytes: u32, segment_index_bytes: u32, index_interval_bytes: u32) -> LogConfig {
    LogConfig {
        segment_bytes,
        segment_index_bytes,
        index_interval_bytes,
        producer_id_expiration_ms: i64::from(i32::MAX),
        ..LogConfig::default()
    }
}

/// Small and large segments, indexes with little room, few and many entries.
fn configs() -> [LogConfig; 5] {
    [
        config(1000, 4096, 0),
        config(1000, 60, 0),
        config(4000, 4096, 300),
        config(1 << 20, 4096, 4096),
        config(1 << 20, 120, 100),
    ]
}

fn run(place: Place, seed: u64, config: &LogConfig, steps: usize, anywhere: bool) -> Run {
    let mut run = Run::new(place, seed, config.clone(), anywhere);
    for step in 0..steps {
        let before = run.counts.clone();
        run.step();
        run.hold();
        let what = run.counts.iter().find(|(step, count)| before.get(*step) != Some(count));
        run.check(&format!("seed {seed}, step {step}, {what:?}, {config:?}"));
    }
    run
}

/// All logs of a seed are like its twin, which knows nothing of segments: so they are like each other.
#[test]
fn logs_of_all_settings_are_like_their_twin() {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for seed in 0..40 {
        let mut twins = Vec::new();
        for config in &configs() {
            let run = run(memory().0, seed, config, 150, false);
            run.counts.iter().for_each(|(step, count)| *counts.entry(step).or_default() += count);
            twins.push((run.twin.readable(), run.twin.end));
        }
        assert!(twins.windows(2).all(|pair| pair[0] == pair[1]), "seed {seed}");
    }
    assert_eq!(counts.len(), 15, "{counts:?}");
    assert!(counts.values().all(|count| *count > 20), "{counts:?}");
}

#[test]
fn logs_that_are_cut_anywhere_are_like_their_twin() {
    for seed in 100..130 {
        for config in &configs() {
            run(memory().0, seed, config, 150, true);
        }
    }
}

#[test]
fn logs_on_the_file_system_are_like_their_twin() {
    for seed in 200..215 {
        for config in &configs() {
            run(on_disk(), seed, config, 80, true);
        }
    }
}
