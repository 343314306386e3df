//! Producer snapshots: each by itself, and against the producers that a replay of the log gives at its offset.

use std::collections::{HashMap, VecDeque};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::finding::FindingKind;
use super::report::{Findings, Place, VerifyCounts};
use crate::batch::BatchFrame;
use crate::io::{Storage, read_small};
use crate::producer_state::{ProducerEntry, ProducerRejection, ProducerSnapshot, ProducerStateManager};
use crate::types::{Offset, ProducerId};

/// Largest snapshot that is looked at, bytes: 5.8 million producers.
const SNAPSHOT_BYTES_MAX: usize = 256 << 20;

/// The snapshots of a partition, met one after the other as a walk over the log comes by their offsets.
#[derive(Debug)]
pub(super) struct Snapshots<'a> {
    storage: &'a dyn Storage,
    is_held: bool,
    waiting: VecDeque<(Offset, PathBuf)>,
    producers: ProducerStateManager,
    /// Whether the producers are those at the walk's place: the log was readable since its beginning or the last snapshot
    /// that was taken over.
    is_known: bool,
    /// Whether records are missing since then: a cleaner may have taken what a producer did before its newest batch.
    has_gaps: bool,
    next_offset: Offset,
}

impl<'a> Snapshots<'a> {
    /// `files` by rising offset; `first_base` is where the log's first segment begins.
    pub(super) fn new(
        storage: &'a dyn Storage,
        is_held: bool,
        files: Vec<(Offset, PathBuf)>,
        first_base: Offset,
    ) -> Self {
        Self {
            storage,
            is_held,
            waiting: files.into(),
            // Nobody expires here: when a broker let a producer go cannot be known.
            producers: ProducerStateManager::new(i64::MAX),
            is_known: first_base == Offset(0),
            has_gaps: false,
            next_offset: first_base,
        }
    }

    /// Says that batches could not be read: nothing is known of the producers until the next snapshot.
    pub(super) fn lose_track(&mut self) {
        self.is_known = false;
        self.producers.truncate_fully_and_start_at(self.next_offset);
    }

    /// A batch in which no producers are, of an older format.
    pub(super) fn pass(
        &mut self,
        first: Offset,
        last: Offset,
        counts: &mut VerifyCounts,
        findings: &mut Findings,
    ) {
        self.reach(first, counts, findings);
        self.check_inside(first, last, counts, findings);
        self.has_gaps |= first > self.next_offset;
        self.next_offset = last.next();
    }

    /// Takes in the next batch, after all snapshots up to its first offset.
    pub(super) fn see(
        &mut self,
        frame: &BatchFrame<'_>,
        path: &Path,
        position: u64,
        counts: &mut VerifyCounts,
        findings: &mut Findings,
    ) {
        let (first, last) = (frame.base_offset(), frame.last_offset());
        let is_full = i64::from(frame.records_count()) == i64::from(frame.last_offset_delta()) + 1;
        self.pass(first, last, counts, findings);
        self.has_gaps |= !is_full;
        if !frame.producer_id().is_some() {
            return;
        }
        // Also where not all is known: what contradicts a part of the log contradicts the log.
        match self.producers.replay(frame) {
            Ok(None) => {}
            // What is decided need not be remembered.
            Ok(Some(_)) => self.producers.on_high_watermark_updated(last.next()),
            // The marker between the two may have been cleaned away.
            Err(ProducerRejection::NotTransactional { .. }) if self.has_gaps => self.lose_track(),
            Err(rejection) => {
                findings.push(Place::at(path, position, first), FindingKind::Producer(rejection.to_string()));
                self.lose_track();
            }
        }
    }

    /// Looks at what is left once the log has ended.
    pub(super) fn finish(mut self, end: Offset, counts: &mut VerifyCounts, findings: &mut Findings) {
        self.reach(end, counts, findings);
        while let Some((offset, path)) = self.waiting.pop_front() {
            let place = Place { offset: Some(offset), ..Place::file(&path).repaired_if(true) };
            findings.push(place, FindingKind::SnapshotBeyondLog { end });
            self.read(offset, &path, counts, findings);
        }
    }

    fn next_up_to(&mut self, offset: Offset) -> Option<(Offset, PathBuf)> {
        let is_met = self.waiting.front().is_some_and(|(at, _)| *at <= offset);
        is_met.then(|| self.waiting.pop_front()).flatten()
    }

    /// Compares the snapshots up to an offset.
    fn reach(&mut self, offset: Offset, counts: &mut VerifyCounts, findings: &mut Findings) {
        while let Some((at, path)) = self.next_up_to(offset) {
            let Some(snapshot) = self.read(at, &path, counts, findings) else { continue };
            let is_right = !self.is_known || {
                counts.snapshots_compared += 1;
                self.compare(&snapshot, &path, at, findings)
            };
            // One that is wrong would make the next ones look wrong.
            if is_right {
                // Everybody is younger than for ever.
                self.producers.load_snapshot(&snapshot, at, 0);
                (self.is_known, self.has_gaps) = (true, false);
                self.next_offset = self.next_offset.max(at);
            }
        }
    }

    fn check_inside(
        &mut self,
        first: Offset,
        last: Offset,
        counts: &mut VerifyCounts,
        findings: &mut Findings,
    ) {
        while let Some((at, path)) = self.next_up_to(last) {
            let place = Place { offset: Some(at), ..Place::file(&path) };
            findings.push(place, FindingKind::SnapshotInsideBatch { first, last });
            self.read(at, &path, counts, findings);
        }
    }

    /// Reads a snapshot and looks at it by itself; `None` if it cannot be used.
    fn read(
        &self,
        offset: Offset,
        path: &Path,
        counts: &mut VerifyCounts,
        findings: &mut Findings,
    ) -> Option<ProducerSnapshot> {
        let place = Place { offset: Some(offset), ..Place::file(path) };
        let bytes = match read_small(self.storage, path, SNAPSHOT_BYTES_MAX) {
            Ok(bytes) => bytes,
            Err(e) if self.is_held && e.kind() == ErrorKind::NotFound => {
                findings.push(place, FindingKind::Changed(e.to_string()));
                return None;
            }
            Err(e) => {
                findings.push(place, FindingKind::Unreadable(e.to_string()));
                return None;
            }
        };
        let snapshot = match ProducerSnapshot::parse(&bytes) {
            Ok(snapshot) => snapshot,
            Err(fault) => {
                // A broker removes it and begins with the one before.
                findings.push(place.repaired_if(true), FindingKind::Snapshot(fault));
                return None;
            }
        };
        counts.snapshots += 1;
        let repeated = snapshot.repeated_producer_id();
        if let Some(producer_id) = repeated {
            findings.push(place, FindingKind::RepeatedProducer(producer_id));
        }
        let mut is_good = repeated.is_none();
        for entry in &snapshot.entries {
            if let Some((field, value)) = impossible_field(entry, offset) {
                let producer_id = entry.producer_id;
                findings.push(place, FindingKind::SnapshotEntry { producer_id, field, value });
                is_good = false;
            }
        }
        is_good.then_some(snapshot)
    }

    /// Whether the snapshot agrees with the log.
    fn compare(
        &self,
        snapshot: &ProducerSnapshot,
        path: &Path,
        offset: Offset,
        findings: &mut Findings,
    ) -> bool {
        let place = Place { offset: Some(offset), ..Place::file(path) };
        let stored: HashMap<ProducerId, &ProducerEntry> =
            snapshot.entries.iter().map(|entry| (entry.producer_id, entry)).collect();
        let mut is_right = true;
        for entry in &snapshot.entries {
            let producer_id = entry.producer_id;
            let wrong = match self.producers.entry(producer_id).map(|known| known.to_snapshot()) {
                Some(known) => difference(entry, &known, self.has_gaps),
                // Its batches may have been cleaned away.
                None if self.has_gaps => None,
                None => {
                    let last_offset = entry.last_batch.map(|batch| batch.last_offset);
                    Some(FindingKind::ProducerNotInLog { producer_id, last_offset })
                }
            };
            if let Some(kind) = wrong {
                findings.push(place, kind);
                is_right = false;
            }
        }
        let mut missing = 0;
        for known in self.producers.entries().filter(|known| !stored.contains_key(&known.producer_id())) {
            match known.current_txn_first_offset() {
                // A cleaner takes markers whose records are gone, and leaves the producer's last batch, emptied.
                Some(first_offset) if !self.has_gaps => {
                    let producer_id = known.producer_id();
                    findings.push(place, FindingKind::OpenTransactionMissing { producer_id, first_offset });
                    is_right = false;
                }
                _ => missing += 1,
            }
        }
        if missing > 0 {
            findings.push(place, FindingKind::ProducersMissing { count: missing });
        }
        is_right
    }
}

/// A field with a value that no producer can have in a snapshot of this offset.
fn impossible_field(entry: &ProducerEntry, offset: Offset) -> Option<(&'static str, i64)> {
    let is_wrong = |field, value: i64, is_wrong: bool| is_wrong.then_some((field, value));
    let batch = entry.last_batch.and_then(|batch| {
        let (last, delta) = (batch.last_offset.0, i64::from(batch.offset_delta));
        is_wrong("lastOffset", last, last >= offset.0)
            .or_else(|| is_wrong("offsetDelta", delta, delta < 0 || delta > last))
            .or_else(|| is_wrong("lastSequence", batch.last_sequence.into(), batch.last_sequence < -1))
    });
    let open = entry.current_txn_first_offset.map_or(-1, |first| first.0);
    batch
        .or_else(|| is_wrong("producerId", entry.producer_id.0, entry.producer_id.0 < 0))
        .or_else(|| is_wrong("producerEpoch", entry.producer_epoch.into(), entry.producer_epoch < -1))
        .or_else(|| is_wrong("timestamp", entry.last_timestamp, entry.last_timestamp < -1))
        .or_else(|| {
            is_wrong("coordinatorEpoch", entry.coordinator_epoch.into(), entry.coordinator_epoch < -1)
        })
        .or_else(|| is_wrong("currentTxnFirstOffset", open, open >= offset.0))
}

/// The first field in which a producer of a snapshot is not that of the log. Where records are missing only what the log
/// knows and the snapshot does not is a difference.
fn difference(stored: &ProducerEntry, known: &ProducerEntry, has_gaps: bool) -> Option<FindingKind> {
    let fields = |entry: &ProducerEntry| {
        let batch = entry.last_batch;
        [
            ("producerEpoch", i64::from(entry.producer_epoch)),
            ("lastOffset", batch.map_or(-1, |batch| batch.last_offset.0)),
            ("lastSequence", batch.map_or(-1, |batch| batch.last_sequence.into())),
            ("offsetDelta", batch.map_or(0, |batch| batch.offset_delta.into())),
            ("timestamp", entry.last_timestamp),
            ("coordinatorEpoch", entry.coordinator_epoch.into()),
            ("currentTxnFirstOffset", entry.current_txn_first_offset.map_or(-1, |first| first.0)),
        ]
    };
    /// Of the fields above, those that never go down in a log: the epoch, and within it the offset.
    const RISING: usize = 2;
    let pairs = fields(stored).into_iter().zip(fields(known));
    let differs = if has_gaps {
        let newer_epoch = stored.producer_epoch > known.producer_epoch;
        pairs.take(RISING).find(|((_, stored), (_, known))| !newer_epoch && known > stored)
    } else {
        pairs.into_iter().find(|((_, stored), (_, known))| stored != known)
    };
    differs.map(|((field, snapshot), (_, log))| FindingKind::SnapshotDiffers {
        producer_id: stored.producer_id,
        field,
        snapshot,
        log,
    })
}
