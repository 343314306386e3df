//! The slow twin of the producer state: it keeps all that ever happened in one list and goes through the whole of it for
//! every answer. Nothing is bounded, nothing is carried along, and the rules are written down one after the other as
//! the chapter has them.

/// What a batch holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Records of a producer.
    Data,
    /// A COMMIT or ABORT of this coordinator epoch.
    Marker {
        /// COMMIT.
        committed: bool,
        /// Coordinator epoch.
        coordinator_epoch: i32,
    },
    /// A control batch without its marker.
    EmptyControl,
}

/// A batch, as far as producers go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Producer id.
    pub producer_id: i64,
    /// Producer epoch.
    pub epoch: i16,
    /// First sequence.
    pub sequence: i32,
    /// First offset.
    pub base: i64,
    /// Last offset.
    pub last: i64,
    /// Largest timestamp.
    pub time: i64,
    /// The transactional bit.
    pub transactional: bool,
    /// What is in it.
    pub kind: Kind,
}

impl Batch {
    /// Last sequence: counted up one by one; −1 without sequences.
    pub fn last_sequence(&self) -> i32 {
        if self.sequence == -1 {
            return -1;
        }
        (self.base..self.last).fold(self.sequence, |sequence, _| following(sequence))
    }
}

fn following(sequence: i32) -> i32 {
    if sequence == i32::MAX { 0 } else { sequence + 1 }
}

/// Who appends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A producer.
    Client,
    /// A coordinator.
    Coordinator,
    /// The leader.
    Replication,
}

/// What is known of a producer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Producer id.
    pub producer_id: i64,
    /// Epoch.
    pub epoch: i16,
    /// Coordinator epoch.
    pub coordinator_epoch: i32,
    /// Last timestamp.
    pub time: i64,
    /// First offset of the open transaction.
    pub open: Option<i64>,
    /// Every batch of this epoch.
    pub batches: Vec<Remembered>,
}

/// A data batch, remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remembered {
    /// First sequence.
    pub first_sequence: i32,
    /// Last sequence.
    pub last_sequence: i32,
    /// First offset.
    pub first: i64,
    /// Last offset.
    pub last: i64,
    /// Largest timestamp.
    pub time: i64,
}

/// A transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// Producer id.
    pub producer_id: i64,
    /// First offset.
    pub first: i64,
    /// Offset of its marker and whether that is an ABORT.
    pub marker: Option<(i64, bool)>,
}

/// What becomes of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is appended.
    Accepted,
    /// It was, before: first and last offset, time.
    Duplicate(i64, i64, i64),
    /// Kafka's name of the error.
    Refused(&'static str),
}

/// A verification under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verification {
    /// Of which producer.
    pub producer_id: i64,
    /// When it began.
    pub began: i64,
    /// The guard.
    pub guard: usize,
    /// Lowest sequence.
    pub lowest: i32,
    /// Epoch.
    pub epoch: i16,
    /// Transaction version 2.
    pub bump: bool,
}

#[derive(Clone, Debug)]
enum Event {
    Batch(Batch),
    Loaded(Vec<Entry>),
    Expired(i64),
    Verified { producer_id: i64, sequence: i32, epoch: i16, bump: bool, now: i64 },
    Replicated(i64),
}

/// All that happened to a partition.
#[derive(Clone, Debug)]
pub struct ProducerTwin {
    events: Vec<Event>,
    expiration: i64,
    /// Whether a guard is asked for.
    pub verifies: bool,
}

const FENCED: Verdict = Verdict::Refused("INVALID_PRODUCER_EPOCH");
const OUT_OF_ORDER: Verdict = Verdict::Refused("OUT_OF_ORDER_SEQUENCE_NUMBER");
const INVALID_TXN_STATE: Verdict = Verdict::Refused("INVALID_TXN_STATE");

impl ProducerTwin {
    /// Nothing happened yet.
    pub fn new(expiration: i64) -> Self {
        Self { events: Vec::new(), expiration, verifies: false }
    }

    /// All producers, by producer id.
    pub fn entries(&self) -> Vec<Entry> {
        let mut entries: Vec<Entry> = Vec::new();
        for event in &self.events {
            match event {
                Event::Batch(batch) => take_in(&mut entries, batch),
                Event::Loaded(loaded) => entries.clone_from(loaded),
                Event::Expired(now) => {
                    entries.retain(|entry| entry.open.is_some() || now - entry.time < self.expiration);
                }
                Event::Verified { .. } | Event::Replicated(_) => {}
            }
        }
        entries.sort_by_key(|entry| entry.producer_id);
        entries
    }

    fn entry(&self, producer_id: i64) -> Entry {
        let found = self.entries().into_iter().find(|entry| entry.producer_id == producer_id);
        found.unwrap_or_else(|| nothing(producer_id))
    }

    /// All transactions since the newest load, by first offset.
    pub fn transactions(&self) -> Vec<Transaction> {
        let mut transactions: Vec<Transaction> = Vec::new();
        for event in &self.events {
            match event {
                Event::Loaded(entries) => {
                    let open = |entry: &Entry| {
                        let producer_id = entry.producer_id;
                        entry.open.map(|first| Transaction { producer_id, first, marker: None })
                    };
                    transactions = entries.iter().filter_map(open).collect();
                }
                Event::Batch(batch) => {
                    let open = transactions
                        .iter_mut()
                        .find(|one| one.producer_id == batch.producer_id && one.marker.is_none());
                    match (batch.kind, open) {
                        (Kind::Marker { committed, .. }, Some(open)) => {
                            open.marker = Some((batch.base, !committed));
                        }
                        (Kind::Data, None) if batch.transactional => {
                            let (producer_id, first) = (batch.producer_id, batch.base);
                            transactions.push(Transaction { producer_id, first, marker: None });
                        }
                        _ => {}
                    }
                }
                _ => {}
            }
        }
        transactions.sort_by_key(|transaction| transaction.first);
        transactions
    }

    /// First undecided and first unstable offset.
    pub fn first_offsets(&self) -> (Option<i64>, Option<i64>) {
        let loaded = self.events.iter().rposition(|event| matches!(event, Event::Loaded(_)));
        // An update of the high watermark takes away what had ended before it.
        let transactions = self.transactions();
        let ended_at = |marker: i64| {
            let is_marker = |event: &Event| matches!(event, Event::Batch(batch) if batch.base == marker);
            self.events.iter().rposition(is_marker).expect("it is among what happened")
        };
        let is_replicated = |marker: i64| {
            let from = ended_at(marker).max(loaded.unwrap_or(0));
            self.events[from..].iter().any(|event| matches!(event, Event::Replicated(end) if marker < *end))
        };
        let undecided = transactions.iter().find(|one| one.marker.is_none());
        let unstable =
            transactions.iter().find(|one| one.marker.is_none_or(|(marker, _)| !is_replicated(marker)));
        (undecided.map(|one| one.first), unstable.map(|one| one.first))
    }

    /// Where everything is decided once the marker at this offset is in the log.
    pub fn stable_at_marker(&self, marker: i64) -> i64 {
        let is_open_there =
            |one: &Transaction| one.first < marker && one.marker.is_none_or(|(other, _)| other > marker);
        self.transactions().iter().find(|one| is_open_there(one)).map_or(marker + 1, |one| one.first)
    }

    /// Whether the oldest open transaction is late.
    pub fn is_late(&self, now: i64, timeout: i64) -> bool {
        let oldest = self.transactions().into_iter().find(|one| one.marker.is_none());
        let time = oldest.map_or(-1, |one| self.entry(one.producer_id).time);
        time > 0 && now - time > timeout + 300_000
    }

    /// Verifications under way, by producer id.
    pub fn verifications(&self) -> Vec<Verification> {
        let mut entries: Vec<Verification> = Vec::new();
        for (number, event) in self.events.iter().enumerate() {
            match *event {
                Event::Verified { producer_id, sequence, epoch, bump, now } => {
                    match entries.iter_mut().find(|entry| entry.producer_id == producer_id) {
                        None => entries.push(Verification {
                            producer_id,
                            began: now,
                            guard: number,
                            lowest: sequence,
                            epoch,
                            bump,
                        }),
                        Some(entry) if epoch > entry.epoch => {
                            (entry.epoch, entry.lowest) = (epoch, sequence);
                        }
                        Some(entry) if epoch == entry.epoch => entry.lowest = entry.lowest.min(sequence),
                        Some(_) => {}
                    }
                }
                Event::Batch(batch) if batch.transactional && batch.kind != Kind::EmptyControl => {
                    let is_marker = batch.kind != Kind::Data;
                    entries.retain(|entry| {
                        entry.producer_id != batch.producer_id
                            || (is_marker && entry.bump && entry.epoch == batch.epoch)
                    });
                }
                Event::Expired(now) => entries.retain(|entry| now - entry.began < self.expiration),
                _ => {}
            }
        }
        entries.sort_by_key(|entry| entry.producer_id);
        entries
    }

    /// Begins a verification; the guard, or `None` where none is needed.
    pub fn verify(
        &mut self,
        producer_id: i64,
        sequence: i32,
        epoch: i16,
        bump: bool,
        now: i64,
    ) -> Result<Option<usize>, &'static str> {
        let entry = self.entry(producer_id);
        if entry.epoch > epoch {
            return Err("INVALID_PRODUCER_EPOCH");
        }
        if entry.epoch == epoch && entry.open.is_some() {
            return Ok(None);
        }
        self.events.push(Event::Verified { producer_id, sequence, epoch, bump, now });
        let entry = self.verifications().into_iter().find(|entry| entry.producer_id == producer_id);
        Ok(entry.map(|entry| entry.guard))
    }

    /// One call with these batches, which is appended if all of them are good; the verdict on the first that is not.
    pub fn append(
        &mut self,
        batches: &[Batch],
        origin: Origin,
        guard: Option<usize>,
        version: i16,
    ) -> Verdict {
        let mut with_call = self.clone();
        for batch in batches {
            let verdict = self.judge(&with_call, batch, origin, guard, version);
            if verdict != Verdict::Accepted {
                return verdict;
            }
            with_call.events.push(Event::Batch(*batch));
        }
        *self = with_call;
        Verdict::Accepted
    }

    fn judge(
        &self,
        with_call: &Self,
        batch: &Batch,
        origin: Origin,
        guard: Option<usize>,
        version: i16,
    ) -> Verdict {
        let installed = self.entry(batch.producer_id);
        let known = with_call.entry(batch.producer_id);
        let verification =
            self.verifications().into_iter().find(|entry| entry.producer_id == batch.producer_id);
        let is_client = origin == Origin::Client;
        let is_checked = origin != Origin::Replication;
        if let Kind::Marker { coordinator_epoch, .. } = batch.kind {
            return match version {
                _ if !is_checked => Verdict::Accepted,
                0 | 1 if batch.epoch < known.epoch => FENCED,
                2 if batch.epoch < known.epoch => FENCED,
                2 if batch.epoch == known.epoch && known.open.is_some() && batch.epoch != 32767 => FENCED,
                0..=2 if coordinator_epoch < known.coordinator_epoch => {
                    Verdict::Refused("TRANSACTION_COORDINATOR_FENCED")
                }
                0..=2 => Verdict::Accepted,
                _ => Verdict::Refused("UNKNOWN_SERVER_ERROR"),
            };
        }
        if batch.kind == Kind::EmptyControl {
            return Verdict::Accepted;
        }
        // P1
        let last_sequence = batch.last_sequence();
        if is_client && installed.epoch == batch.epoch {
            let newest = installed.batches.len().saturating_sub(5);
            for old in &installed.batches[newest..] {
                if (old.first_sequence, old.last_sequence) == (batch.sequence, last_sequence) {
                    return Verdict::Duplicate(old.first, old.last, old.time);
                }
            }
        }
        // P2, P3
        let is_ongoing = known.open.is_some() && known.epoch == batch.epoch;
        if is_checked && batch.transactional && !is_ongoing {
            if known.epoch > batch.epoch {
                return FENCED;
            }
            let stored = verification.map(|entry| entry.guard);
            if self.verifies && (guard.is_none() || guard != stored) {
                return INVALID_TXN_STATE;
            }
        }
        // P4
        if is_checked && batch.epoch < known.epoch {
            return FENCED;
        }
        // P5 to P9
        if is_client {
            let last = known.batches.last();
            if let Some(entry) = verification {
                if entry.bump && batch.sequence != 0 && last.is_none() {
                    return OUT_OF_ORDER;
                }
                if batch.sequence > entry.lowest {
                    return OUT_OF_ORDER;
                }
            }
            let expected = match last {
                _ if known.epoch == -1 => batch.sequence,
                _ if known.epoch != batch.epoch => 0,
                None => 0,
                Some(last) => following(last.last_sequence),
            };
            if batch.sequence != expected {
                return OUT_OF_ORDER;
            }
        }
        // P10
        if known.open.is_some() && !batch.transactional { INVALID_TXN_STATE } else { Verdict::Accepted }
    }

    /// What a snapshot would hold.
    pub fn snapshot(&self) -> Vec<Entry> {
        let mut entries = self.entries();
        for entry in &mut entries {
            let older = entry.batches.len().saturating_sub(1);
            entry.batches.drain(..older);
        }
        entries
    }

    /// Begins anew with what a snapshot holds.
    pub fn load(&mut self, snapshot: &[Entry], now: i64) {
        let mut entries = snapshot.to_vec();
        entries.retain(|entry| entry.open.is_some() || now - entry.time < self.expiration);
        for entry in &mut entries {
            // The file has one time for the producer and its batch.
            entry.batches.iter_mut().for_each(|batch| batch.time = entry.time);
        }
        self.events.push(Event::Loaded(entries));
    }

    /// The expiry task ran.
    pub fn expire(&mut self, now: i64) {
        self.events.push(Event::Expired(now));
    }

    /// The high watermark or the log start is at this offset now.
    pub fn replicated(&mut self, offset: i64) {
        self.events.push(Event::Replicated(offset));
    }
}

fn nothing(producer_id: i64) -> Entry {
    Entry { producer_id, epoch: -1, coordinator_epoch: -1, time: -1, open: None, batches: Vec::new() }
}

fn take_in(entries: &mut Vec<Entry>, batch: &Batch) {
    if !entries.iter().any(|entry| entry.producer_id == batch.producer_id) {
        entries.push(nothing(batch.producer_id));
    }
    let entry = entries
        .iter_mut()
        .find(|entry| entry.producer_id == batch.producer_id)
        .expect("it was there or was made");
    if batch.kind == Kind::EmptyControl {
        return;
    }
    if entry.epoch != batch.epoch {
        entry.batches.clear();
    }
    entry.epoch = batch.epoch;
    entry.time = batch.time;
    match batch.kind {
        Kind::Marker { coordinator_epoch, .. } => {
            entry.coordinator_epoch = coordinator_epoch;
            entry.open = None;
        }
        _ => {
            let last_sequence = batch.last_sequence();
            entry.batches.push(Remembered {
                first_sequence: batch.sequence,
                last_sequence,
                first: batch.base,
                last: batch.last,
                time: batch.time,
            });
            if batch.transactional && entry.open.is_none() {
                entry.open = Some(batch.base);
            }
        }
    }
}
