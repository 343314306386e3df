//! What a partition remembers of its producers, against the slow twin on long random runs: appends of every origin,
//! markers, repetitions, calls of many batches, truncations, snapshots, expiry, verification.

use std::collections::{BTreeMap, HashMap};

use redrive::batch::BatchFrame;
use redrive::producer_state::{
    CompletedTransaction, ProducerAppendOrigin, ProducerSnapshot, ProducerStateManager, VerificationGuard,
};
use redrive::types::{Offset, ProducerId};
use redrive_tests::logs::{BatchSpec, CONTROL, Rng, TRANSACTIONAL};
use redrive_tests::producer_twin::{
    Batch, Entry, Kind, Origin, ProducerTwin, Remembered, Transaction, Verdict,
};

const SEEDS: u64 = 160;
const STEPS: usize = 300;
const EXPIRATION_MS: i64 = 400;
const TIMEOUT_MS: i64 = 100;
const PRODUCERS: u64 = 5;

fn encode(batch: &Batch) -> Vec<u8> {
    let transactional = if batch.transactional { TRANSACTIONAL } else { 0 };
    let spec = match batch.kind {
        Kind::Marker { committed, coordinator_epoch } => BatchSpec {
            base_timestamp: batch.time,
            ..BatchSpec::marker(batch.base, batch.producer_id, batch.epoch, committed, coordinator_epoch)
        },
        kind => BatchSpec {
            base_offset: batch.base,
            last_offset_delta: Some((batch.last - batch.base).try_into().expect("small")),
            attributes: transactional | if kind == Kind::Data { 0 } else { CONTROL },
            producer_id: batch.producer_id,
            producer_epoch: batch.epoch,
            base_sequence: batch.sequence,
            base_timestamp: batch.time,
            max_timestamp: Some(batch.time),
            ..BatchSpec::default()
        },
    };
    spec.encode()
}

/// The engine's state and the twin of it, with the log that both are about.
struct Pair {
    state: ProducerStateManager,
    twin: ProducerTwin,
    log: Vec<Batch>,
    snapshots: BTreeMap<i64, (ProducerSnapshot, Vec<Entry>)>,
    guards: HashMap<VerificationGuard, usize>,
    end: i64,
    high_watermark: i64,
    log_start: i64,
    now: i64,
    rng: Rng,
    seen: BTreeMap<&'static str, usize>,
}

impl Pair {
    fn new(seed: u64) -> Self {
        Self {
            state: ProducerStateManager::new(EXPIRATION_MS),
            twin: ProducerTwin::new(EXPIRATION_MS),
            log: Vec::new(),
            snapshots: BTreeMap::new(),
            guards: HashMap::new(),
            end: 0,
            high_watermark: 0,
            log_start: 0,
            now: 1000,
            rng: Rng::new(seed),
            seen: BTreeMap::new(),
        }
    }

    fn below(&mut self, bound: i64) -> i64 {
        self.rng.below(bound.unsigned_abs()).cast_signed()
    }

    fn known(&self, producer_id: i64) -> Option<Entry> {
        self.twin.entries().into_iter().find(|entry| entry.producer_id == producer_id)
    }

    fn epoch(&mut self, known: i16) -> i16 {
        match self.below(12) {
            0 => known.saturating_add(1).max(0),
            1 => known.saturating_sub(1).max(0),
            2 if self.rng.once_in(20) => i16::MAX,
            _ => known.max(0),
        }
    }

    fn data(&mut self, base: i64, client: bool) -> Batch {
        let producer_id = self.below(PRODUCERS.cast_signed());
        let entry = self.known(producer_id);
        let epoch = self.epoch(entry.as_ref().map_or(-1, |entry| entry.epoch));
        let records = 1 + self.below(4);
        let is_open = entry.as_ref().is_some_and(|entry| entry.open.is_some());
        let mut batch = Batch {
            producer_id,
            epoch,
            sequence: 0,
            base,
            last: base + records - 1,
            time: self.now - self.below(40),
            transactional: if is_open { !self.rng.once_in(15) } else { self.rng.once_in(2) },
            kind: Kind::Data,
        };
        let batches = entry.map(|entry| entry.batches).unwrap_or_default();
        batch.sequence = match (self.below(10), batches.last()) {
            (0, _) => i32::try_from(self.below(6)).expect("small"),
            (1..=2, Some(_)) => {
                // One of the newest seven again: five of them are remembered.
                let back = self.rng.below(batches.len().min(7) as u64) as usize;
                let old = batches[batches.len() - 1 - back];
                batch.last = base + (old.last - old.first);
                old.first_sequence
            }
            (_, Some(last)) if last.last_sequence != i32::MAX => last.last_sequence + 1,
            (3, None) => i32::MAX - 3,
            _ => 0,
        };
        if client {
            // A client's batch without sequences does not come as far as here.
            batch.sequence = batch.sequence.max(0);
        } else if self.rng.once_in(4) {
            batch.sequence = -1;
        }
        batch
    }

    fn marker(&mut self, base: i64) -> Batch {
        let producer_id = self.below(PRODUCERS.cast_signed());
        let entry = self.known(producer_id);
        let epoch = entry.as_ref().map_or(0, |entry| entry.epoch);
        let coordinator_epoch = entry.map_or(0, |entry| entry.coordinator_epoch);
        let step = [0, 0, 1, 1, -1, -1][self.rng.below(6) as usize];
        let kind = match self.rng.once_in(20) {
            true => Kind::EmptyControl,
            false => Kind::Marker {
                committed: self.rng.once_in(2),
                coordinator_epoch: (coordinator_epoch + step).max(0),
            },
        };
        let (epoch, time) = (self.epoch(epoch), self.now - self.below(40));
        Batch { producer_id, epoch, sequence: -1, base, last: base, time, transactional: true, kind }
    }

    fn call(&mut self) {
        let origin = match self.below(10) {
            0..=4 => Origin::Client,
            5..=6 => Origin::Coordinator,
            _ => Origin::Replication,
        };
        let batches = if origin == Origin::Replication { 1 + self.below(6) } else { 1 + self.below(8) / 7 };
        let mut call: Vec<Batch> = Vec::new();
        for _ in 0..batches {
            let base = call.last().map_or(self.end, |batch| batch.last + 1);
            let is_marker = match origin {
                Origin::Client => false,
                Origin::Coordinator => self.rng.once_in(2),
                Origin::Replication => self.rng.once_in(3),
            };
            let batch = if is_marker { self.marker(base) } else { self.data(base, origin == Origin::Client) };
            call.push(batch);
        }
        let version = [0, 1, 2, 2, 2, 2, 3, -1][self.rng.below(8) as usize];
        let of_first = self.state.verification_state_entry(ProducerId(call[0].producer_id));
        let guard = of_first.map(|entry| entry.guard).filter(|_| !self.rng.once_in(5));
        self.append(&call, origin, guard, version);
    }

    fn append(&mut self, call: &[Batch], origin: Origin, guard: Option<VerificationGuard>, version: i16) {
        let before = format!("{:?}", self.state.snapshot());
        let expected = self.twin.append(call, origin, guard.map(|guard| self.guards[&guard]), version);
        let mut analysis = self.state.begin_append(match origin {
            Origin::Client => ProducerAppendOrigin::Client,
            Origin::Coordinator => ProducerAppendOrigin::Coordinator,
            Origin::Replication => ProducerAppendOrigin::Replication,
        });
        let mut verdict = Verdict::Accepted;
        for batch in call {
            let bytes = encode(batch);
            let frame = BatchFrame::new(&bytes).expect("a batch");
            verdict = match self.state.analyze(&mut analysis, &frame, guard, version) {
                Ok(None) => Verdict::Accepted,
                Ok(Some(same)) => Verdict::Duplicate(same.first_offset.0, same.last_offset.0, same.timestamp),
                Err(rejection) => Verdict::Refused(rejection.error_name()),
            };
            if verdict != Verdict::Accepted {
                break;
            }
        }
        assert_eq!(verdict, expected, "{origin:?}, {call:?}");
        assert_eq!(format!("{:?}", self.state.snapshot()), before, "an analysis changes nothing");
        let name = match verdict {
            Verdict::Accepted => "accepted",
            Verdict::Duplicate(..) => "duplicate",
            Verdict::Refused(name) => name,
        };
        *self.seen.entry(name).or_default() += 1;
        if verdict == Verdict::Accepted {
            let (first, end) = (self.end, call.last().expect("a batch").last + 1);
            (self.end, _) = (end, self.log.extend(call));
            let completed = self.state.apply(analysis, Offset(end));
            self.judge_completed(&completed, first);
            for transaction in &completed {
                assert!(self.state.complete(transaction) && !self.state.complete(transaction));
            }
        }
    }

    /// Those that ended from `first` on, in the order of their markers.
    fn judge_completed(&mut self, completed: &[CompletedTransaction], first: i64) {
        let mut expected: Vec<(i64, Transaction, bool)> = Vec::new();
        for transaction in self.twin.transactions() {
            if let Some((marker, is_aborted)) = transaction.marker.filter(|(marker, _)| *marker >= first) {
                expected.push((marker, transaction, is_aborted));
            }
        }
        expected.sort_by_key(|(marker, ..)| *marker);
        let expected: Vec<_> = expected
            .into_iter()
            .map(|(marker, Transaction { producer_id, first, .. }, is_aborted)| CompletedTransaction {
                producer_id: ProducerId(producer_id),
                first_offset: Offset(first),
                last_offset: Offset(marker),
                is_aborted,
                last_stable_offset: Offset(self.twin.stable_at_marker(marker)),
            })
            .collect();
        *self.seen.entry("ended").or_default() += expected.len();
        assert_eq!(completed, expected);
    }

    fn truncate(&mut self) {
        let borders: Vec<i64> = self.log.iter().map(|batch| batch.last + 1).collect();
        let end = match borders.is_empty() || self.rng.once_in(3) {
            true => self.end,
            false => *self.rng.pick(&borders),
        };
        if end < self.log_start {
            return;
        }
        let offsets: Vec<_> = self.snapshots.keys().map(|&offset| Offset(offset)).collect();
        // At the same end all is kept; a restart forgets.
        if self.rng.once_in(2) {
            self.state.truncate_fully_and_start_at(Offset(-1));
            self.twin.load(&[], self.now);
        }
        let was_kept = self.state.map_end_offset().0 == end;
        let needs_no_replay = self.twin.entries().is_empty() && self.state.map_end_offset().0 >= end;
        let reload = self.state.begin_reload(&offsets, Offset(self.log_start), Offset(end));
        self.snapshots.retain(|offset, _| !reload.outside.contains(&Offset(*offset)));
        assert!(self.snapshots.keys().all(|&offset| offset > self.log_start && offset <= end));
        self.log.retain(|batch| batch.base < end);
        (self.end, self.high_watermark) = (end, self.high_watermark.min(end));
        if was_kept {
            assert!(reload.candidates.is_empty() && reload.replay_from(&self.state).is_none());
            return;
        }
        let newest = self.snapshots.last_key_value().map(|(&offset, _)| Offset(offset));
        assert_eq!(reload.candidates.first().copied(), newest);
        let mut from = self.log_start;
        match newest {
            Some(offset) => {
                let (snapshot, entries) = &self.snapshots[&offset.0];
                self.state.load_snapshot(snapshot, offset, self.now);
                self.twin.load(entries, self.now);
                from = offset.0;
            }
            None => self.twin.load(&[], self.now),
        }
        let replays = end > from && !needs_no_replay;
        assert_eq!(reload.replay_from(&self.state), replays.then_some(Offset(from)));
        for batch in self.log.clone() {
            if replays && batch.base >= from {
                let bytes = encode(&batch);
                let frame = BatchFrame::new(&bytes).expect("a batch");
                let completed = self.state.replay(&frame).expect("it is in the log");
                assert_eq!(self.twin.append(&[batch], Origin::Replication, None, 0), Verdict::Accepted);
                self.judge_completed(completed.as_slice(), batch.base);
            }
        }
        self.state.set_map_end_offset(Offset(end));
        *self.seen.entry("reloaded").or_default() += 1;
    }

    fn verify(&mut self) {
        let producer_id = self.below(PRODUCERS.cast_signed());
        let known = self.known(producer_id).map_or(0, |entry| entry.epoch);
        let (epoch, sequence) = (self.epoch(known), i32::try_from(self.below(4)).expect("small"));
        let bump = self.rng.once_in(2);
        let expected = self.twin.verify(producer_id, sequence, epoch, bump, self.now);
        let guard = self.state.start_verification(ProducerId(producer_id), sequence, epoch, bump, self.now);
        match (expected, guard) {
            (Ok(Some(number)), Ok(Some(guard))) => {
                assert_eq!(*self.guards.entry(guard).or_insert(number), number);
            }
            (Ok(None), Ok(None)) => {}
            (Err(name), Err(rejection)) => assert_eq!(name, rejection.error_name()),
            (expected, guard) => panic!("{expected:?} but {guard:?}"),
        }
    }

    fn step(&mut self) {
        self.now += self.below(12);
        match self.below(24) {
            0..=13 => self.call(),
            14..=15 => {
                self.high_watermark += self.below(self.end - self.high_watermark + 1);
                self.state.on_high_watermark_updated(Offset(self.high_watermark));
                self.twin.replicated(self.high_watermark);
            }
            16..=17 => self.verify(),
            18 => {
                let removed = self.twin.entries().len();
                self.twin.expire(self.now);
                let removed = removed - self.twin.entries().len();
                assert_eq!(self.state.remove_expired(self.now), removed);
                *self.seen.entry("expired").or_default() += removed;
            }
            19..=20 => {
                let newest = self.snapshots.last_key_value().map(|(&offset, _)| Offset(offset));
                assert_eq!(
                    self.state.is_snapshot_due(newest),
                    self.end > newest.map_or(0, |newest| newest.0)
                );
                let file = self.state.snapshot().encode().expect("few producers");
                let snapshot = ProducerSnapshot::parse(&file).expect("just made");
                self.snapshots.insert(self.end, (snapshot, self.twin.snapshot()));
            }
            21 => self.truncate(),
            22 => {
                let border = self.log.iter().map(|batch| batch.last + 1);
                let borders: Vec<_> = border.filter(|&border| border <= self.high_watermark).collect();
                if self.rng.once_in(4) && !borders.is_empty() {
                    self.log_start = self.log_start.max(*self.rng.pick(&borders));
                    self.state.on_log_start_raised(Offset(self.log_start));
                    self.twin.replicated(self.log_start);
                }
            }
            _ => {
                let is_on = self.rng.once_in(2);
                self.state.set_transaction_verification(is_on);
                self.twin.verifies = is_on;
            }
        }
    }

    fn judge(&self) {
        let mut expected = self.twin.entries();
        for entry in &mut expected {
            let forgotten = entry.batches.len().saturating_sub(5);
            entry.batches.drain(..forgotten);
        }
        let mut entries: Vec<_> = self
            .state
            .entries()
            .map(|entry| Entry {
                producer_id: entry.producer_id().0,
                epoch: entry.producer_epoch(),
                coordinator_epoch: entry.coordinator_epoch(),
                time: entry.last_timestamp(),
                open: entry.current_txn_first_offset().map(|offset| offset.0),
                batches: entry
                    .batches()
                    .map(|batch| Remembered {
                        first_sequence: match batch.metadata.last_sequence {
                            -1 => -1,
                            _ => batch.metadata.first_sequence(),
                        },
                        last_sequence: batch.metadata.last_sequence,
                        first: batch.metadata.first_offset().0,
                        last: batch.metadata.last_offset.0,
                        time: batch.timestamp,
                    })
                    .collect(),
            })
            .collect();
        entries.sort_by_key(|entry| entry.producer_id);
        assert_eq!(entries, expected);
        assert_eq!(self.state.len(), expected.len());
        let number = |offset: Option<Offset>| offset.map(|offset| offset.0);
        let (undecided, unstable) = self.twin.first_offsets();
        assert_eq!(number(self.state.first_undecided_offset()), undecided);
        assert_eq!(number(self.state.first_unstable_offset()), unstable);
        let stable = unstable.unwrap_or(i64::MAX).max(self.log_start).min(self.high_watermark);
        let (high_watermark, log_start) = (Offset(self.high_watermark), Offset(self.log_start));
        assert_eq!(self.state.last_stable_offset(high_watermark, log_start).0, stable);
        let open: Vec<_> = self.state.ongoing_transactions().map(|(first, id)| (first.0, id.0)).collect();
        let transactions = self.twin.transactions();
        let expected = transactions.iter().filter(|one| one.marker.is_none());
        assert_eq!(open, expected.map(|one| (one.first, one.producer_id)).collect::<Vec<_>>());
        for now in [self.now, self.now + 300_080] {
            assert_eq!(self.state.has_late_transaction(now, TIMEOUT_MS), self.twin.is_late(now, TIMEOUT_MS));
        }
        let mut verifications = self.twin.verifications().into_iter();
        for producer_id in 0..PRODUCERS.cast_signed() {
            if let Some(entry) = self.state.verification_state_entry(ProducerId(producer_id)) {
                let expected = verifications.next().expect("one more");
                assert_eq!(producer_id, expected.producer_id);
                assert_eq!(
                    (entry.timestamp, self.guards[&entry.guard], entry.lowest_sequence),
                    (expected.began, expected.guard, expected.lowest)
                );
                assert_eq!((entry.epoch, entry.supports_epoch_bump), (expected.epoch, expected.bump));
            }
        }
        assert_eq!(verifications.next(), None);
    }
}

#[test]
fn a_random_run_is_remembered_as_the_twin_remembers_it() {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for seed in 0..SEEDS {
        let mut pair = Pair::new(seed);
        for step in 0..STEPS {
            let what = format!("seed {seed}, step {step}");
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                pair.step();
                pair.judge();
            }));
            result.unwrap_or_else(|_| panic!("{what}"));
        }
        pair.seen.iter().for_each(|(what, times)| *seen.entry(what).or_default() += times);
    }
    for (what, least) in [
        ("accepted", 5000),
        ("duplicate", 200),
        ("INVALID_PRODUCER_EPOCH", 300),
        ("OUT_OF_ORDER_SEQUENCE_NUMBER", 300),
        ("INVALID_TXN_STATE", 300),
        ("TRANSACTION_COORDINATOR_FENCED", 100),
        ("UNKNOWN_SERVER_ERROR", 100),
        ("ended", 1000),
        ("expired", 50),
        ("reloaded", 300),
    ] {
        assert!(seen.get(what).is_some_and(|&times| times >= least), "{what}: {seen:?}");
    }
}
