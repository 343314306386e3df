//! Runs the rows about producers: a row is a list of steps, data in `fixtures/cases/producer.json`, whose `about` says what
//! the steps are.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use redrive::batch::BatchFrame;
use redrive::producer_state::{
    CompletedTransaction, DuplicateBatch, ProducerAppendOrigin, ProducerSnapshot, ProducerStateManager,
    VerificationGuard,
};
use redrive::types::{Offset, ProducerId};
use redrive_tests::logs::{BatchSpec, CONTROL, RecordSpec, TRANSACTIONAL};
use serde_json::{Value, json};

/// The data of a row.
pub(crate) fn row(name: &str) -> Value {
    let path = redrive_tests::corpus::fixtures().join("cases/producer.json");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let all: Value = serde_json::from_str(&text).expect("producer.json is JSON");
    all.get(name).unwrap_or_else(|| panic!("no data for {name}")).clone()
}

/// Runs all steps of a row.
pub(crate) fn run(name: &str) {
    let row = row(name);
    let mut partition = Partition::new(row["expirationMs"].as_i64().unwrap_or(86_400_000));
    let steps = row["steps"].as_array().unwrap_or_else(|| panic!("no steps in {name}"));
    for (number, step) in steps.iter().enumerate() {
        let fields = Fields::of(step);
        let (did, expected) = partition.step(&fields);
        assert_eq!(did, expected, "{name}, step {number}: {step}");
        fields.assert_all_used();
    }
}

pub(crate) fn offsets(value: &Value) -> Vec<Offset> {
    let list = value.as_array().unwrap_or_else(|| panic!("{value} is no list"));
    list.iter().map(|offset| Offset(offset.as_i64().expect("an offset"))).collect()
}

/// The members of a step. One that nobody asks for is a mistake in the data.
struct Fields<'a> {
    value: &'a Value,
    used: RefCell<BTreeSet<&'a str>>,
}

impl<'a> Fields<'a> {
    fn of(value: &'a Value) -> Self {
        Self { value, used: RefCell::default() }
    }

    fn get(&self, name: &'a str) -> Option<&'a Value> {
        self.used.borrow_mut().insert(name);
        self.value.get(name)
    }

    fn number(&self, name: &'a str) -> Option<i64> {
        self.get(name).map(|value| value.as_i64().unwrap_or_else(|| panic!("{name} of {}", self.value)))
    }

    fn or<T: TryFrom<i64>>(&self, name: &'a str, usual: i64) -> T {
        let number = self.number(name).unwrap_or(usual);
        T::try_from(number).unwrap_or_else(|_| panic!("{name} of {}", self.value))
    }

    fn text(&self, name: &'a str) -> Option<&'a str> {
        self.get(name).map(|value| value.as_str().unwrap_or_else(|| panic!("{name} of {}", self.value)))
    }

    fn is(&self, name: &'a str) -> bool {
        self.get(name).is_some_and(|value| value.as_bool().unwrap_or_else(|| panic!("{name}")))
    }

    fn assert_all_used(&self) {
        for (name, _) in self.value.as_object().expect("a step is an object") {
            assert!(self.used.borrow().contains(&name[..]), "{name} in {}", self.value);
        }
    }
}

/// A partition without files.
struct Partition {
    state: ProducerStateManager,
    expiration_ms: i64,
    log: Vec<Vec<u8>>,
    snapshots: BTreeMap<i64, Vec<u8>>,
    guards: BTreeMap<String, Option<VerificationGuard>>,
    end: i64,
    high_watermark: i64,
    log_start: i64,
    loaded: Option<i64>,
}

impl Partition {
    fn new(expiration_ms: i64) -> Self {
        Self {
            state: ProducerStateManager::new(expiration_ms),
            expiration_ms,
            log: Vec::new(),
            snapshots: BTreeMap::new(),
            guards: BTreeMap::new(),
            end: 0,
            high_watermark: 0,
            log_start: 0,
            loaded: None,
        }
    }

    /// What came of a step, and what should have.
    fn step<'a>(&mut self, fields: &Fields<'a>) -> (Value, Value) {
        let expected = |name: &'a str| fields.get(name).cloned().unwrap_or(Value::Null);
        match fields.text("do").expect("a step does something") {
            "client" => self.append(fields, ProducerAppendOrigin::Client),
            "coordinator" => self.append(fields, ProducerAppendOrigin::Coordinator),
            "replication" => self.append(fields, ProducerAppendOrigin::Replication),
            "look" => self.look(fields),
            "producer" => (self.producer(fields), expected("is")),
            "verify" => self.verify(fields),
            "verification" => {
                self.state.set_transaction_verification(fields.is("on"));
                (Value::Null, Value::Null)
            }
            "guard" => {
                let entry = self.state.verification_state_entry(ProducerId(fields.or("pid", 1)));
                let held =
                    entry.map(|entry| json!({ "lowest": entry.lowest_sequence, "epoch": entry.epoch }));
                (json!(held), expected("is"))
            }
            "compare" => {
                let guard = |name| self.guards[fields.text(name).expect("a guard's name")];
                (json!(guard("one") == guard("other")), expected("is"))
            }
            "highWatermark" => {
                self.high_watermark = fields.number("is").expect("an offset");
                self.state.on_high_watermark_updated(Offset(self.high_watermark));
                (Value::Null, Value::Null)
            }
            "logStart" => {
                self.log_start = fields.number("is").expect("an offset");
                self.state.on_log_start_raised(Offset(self.log_start));
                (Value::Null, Value::Null)
            }
            "expire" => (json!(self.state.remove_expired(fields.or("now", 0))), expected("gone")),
            "late" => {
                let (now, timeout) = (fields.or("now", 0), fields.or("timeout", 0));
                (json!(self.state.has_late_transaction(now, timeout)), expected("is"))
            }
            "snapshot" => (json!(self.take_snapshot()), expected("isNew")),
            "damage" => {
                let file = self.snapshots.get_mut(&fields.or("snapshot", 0)).expect("a snapshot");
                match fields.text("how").expect("a way") {
                    "empty" => file.clear(),
                    "half" => file.truncate(file.len() / 2),
                    "overwritten" => file[20..30].fill(37),
                    other => panic!("{other} is no damage"),
                }
                (Value::Null, Value::Null)
            }
            "forgetSnapshots" => {
                self.snapshots.clear();
                (Value::Null, Value::Null)
            }
            "restart" => {
                self.state = ProducerStateManager::new(self.expiration_ms);
                // Nothing is known, of no offset that a log can end at.
                self.state.set_map_end_offset(Offset(-1));
                self.reload(self.end, fields.or("now", 2000));
                (Value::Null, Value::Null)
            }
            "truncate" => {
                self.reload(fields.or("to", 0), fields.or("now", 2000));
                (Value::Null, Value::Null)
            }
            "truncateFully" => {
                self.end = fields.or("to", 0);
                self.log_start = self.end;
                self.log.clear();
                self.snapshots.clear();
                self.state.truncate_fully_and_start_at(Offset(self.end));
                (Value::Null, Value::Null)
            }
            other => panic!("{other} is no step"),
        }
    }

    fn append(&mut self, fields: &Fields<'_>, origin: ProducerAppendOrigin) -> (Value, Value) {
        let one = [fields.value.clone()];
        let list = fields.get("batches").map(|list| list.as_array().expect("a list").as_slice());
        let mut analysis = self.state.begin_append(origin);
        let guard = fields.text("guard").and_then(|name| self.guards[name]);
        let version = fields.or("version", 0);
        let (mut end, mut batches, mut outcome) = (self.end, Vec::new(), json!("ok"));
        for value in list.unwrap_or(&one) {
            let batch = Fields::of(value);
            let bytes = encode(&batch, end);
            match list {
                Some(_) => batch.assert_all_used(),
                None => fields.used.borrow_mut().extend(BATCH_MEMBERS),
            }
            let frame = BatchFrame::new(&bytes).expect("a batch");
            match self.state.analyze(&mut analysis, &frame, guard, version) {
                Ok(None) => {}
                Ok(Some(DuplicateBatch { first_offset, last_offset, .. })) => {
                    outcome = json!({ "duplicate": [first_offset.0, last_offset.0] });
                }
                Err(rejection) => outcome = json!(rejection.error_name()),
            }
            end = frame.last_offset().next().0;
            batches.push(bytes);
        }
        let expected = fields.get("then").cloned().unwrap_or(json!("ok"));
        let ended = fields.get("ended").cloned().unwrap_or(json!([]));
        if outcome != "ok" || fields.is("dropped") {
            return (outcome, expected);
        }
        let completed = self.state.apply(analysis, Offset(end));
        self.end = end;
        self.log.extend(batches);
        completed.iter().for_each(|transaction| assert!(self.state.complete(transaction)));
        let completed: Vec<_> = completed
            .iter()
            .map(|transaction| {
                let CompletedTransaction { first_offset, last_offset, is_aborted, .. } = *transaction;
                let how = if is_aborted { "aborted" } else { "committed" };
                json!([first_offset.0, last_offset.0, how, transaction.last_stable_offset.0])
            })
            .collect();
        (json!([outcome, completed]), json!([expected, ended]))
    }

    fn look(&self, fields: &Fields<'_>) -> (Value, Value) {
        let number = |offset: Option<Offset>| json!(offset.map(|offset| offset.0));
        let stable = self.state.last_stable_offset(Offset(self.high_watermark), Offset(self.log_start)).0;
        let all = [
            ("end", json!(self.end)),
            ("mapEnd", json!(self.state.map_end_offset().0)),
            ("unstable", number(self.state.first_unstable_offset())),
            ("undecided", number(self.state.first_undecided_offset())),
            ("stable", json!(stable)),
            ("producers", json!(self.state.len())),
            ("snapshots", json!(self.snapshots.keys().collect::<Vec<_>>())),
            ("loaded", json!(self.loaded)),
        ];
        let asked = all.into_iter().filter_map(|(name, is)| Some((name, is, fields.get(name)?.clone())));
        let (mut did, mut expected) = (serde_json::Map::new(), serde_json::Map::new());
        for (name, is, should) in asked {
            did.insert(name.to_owned(), is);
            expected.insert(name.to_owned(), should);
        }
        assert!(!did.is_empty(), "a look at nothing");
        (Value::Object(did), Value::Object(expected))
    }

    /// The members of the producer that the step asks for.
    fn producer(&self, fields: &Fields<'_>) -> Value {
        let Some(entry) = self.state.entry(ProducerId(fields.or("pid", 1))) else { return Value::Null };
        let last = entry.last_batch().map(|batch| batch.metadata);
        let of_last = |first: i64, last: i64| json!([first, last]);
        let all = json!({
            "epoch": entry.producer_epoch(),
            "coordinatorEpoch": entry.coordinator_epoch(),
            "time": entry.last_timestamp(),
            "open": entry.current_txn_first_offset().map(|first| first.0),
            "sequences": last.map(|last| of_last(last.first_sequence().into(), last.last_sequence.into())),
            "offsets": last.map(|last| of_last(last.first_offset().0, last.last_offset.0)),
            "batches": entry.batches().count(),
        });
        let Some(Value::Object(asked)) = fields.get("is") else { return all };
        asked.keys().map(|name| (name.clone(), all[name].clone())).collect()
    }

    fn verify(&mut self, fields: &Fields<'_>) -> (Value, Value) {
        let result = self.state.start_verification(
            ProducerId(fields.or("pid", 1)),
            fields.or("sequence", 0),
            fields.or("epoch", 0),
            fields.is("bump"),
            fields.or("now", 1000),
        );
        let outcome = match &result {
            Ok(Some(_)) => json!("guard"),
            Ok(None) => json!("no guard needed"),
            Err(rejection) => json!(rejection.error_name()),
        };
        if let (Some(name), Ok(guard)) = (fields.text("as"), result) {
            self.guards.insert(name.to_owned(), guard);
        }
        (outcome, fields.get("then").cloned().unwrap_or(json!("guard")))
    }

    fn take_snapshot(&mut self) -> bool {
        let newest = self.snapshots.last_key_value().map(|(&offset, _)| Offset(offset));
        let is_due = self.state.is_snapshot_due(newest);
        if is_due {
            let file = self.state.snapshot().encode().expect("few producers");
            self.snapshots.insert(self.state.map_end_offset().0, file);
        }
        is_due
    }

    fn reload(&mut self, end: i64, now: i64) {
        let offsets: Vec<_> = self.snapshots.keys().map(|&offset| Offset(offset)).collect();
        let reload = self.state.begin_reload(&offsets, Offset(self.log_start), Offset(end));
        self.snapshots.retain(|offset, _| !reload.outside.contains(&Offset(*offset)));
        let frames = self.log.iter().map(|bytes| BatchFrame::new(bytes).expect("a batch"));
        let kept = frames.filter(|frame| frame.base_offset().0 < end).count();
        self.log.truncate(kept);
        self.loaded = None;
        for offset in &reload.candidates {
            match ProducerSnapshot::parse(&self.snapshots[&offset.0]) {
                Ok(snapshot) => {
                    self.state.load_snapshot(&snapshot, *offset, now);
                    self.loaded = Some(offset.0);
                    break;
                }
                Err(_) => _ = self.snapshots.remove(&offset.0),
            }
        }
        if let Some(from) = reload.replay_from(&self.state) {
            for bytes in &self.log {
                let frame = BatchFrame::new(bytes).expect("a batch");
                if frame.base_offset() >= from {
                    self.state.replay(&frame).expect("it is in the log");
                }
            }
        }
        self.state.set_map_end_offset(Offset(end));
        self.end = end;
        self.high_watermark = self.high_watermark.min(end);
        self.take_snapshot();
    }
}

const BATCH_MEMBERS: [&str; 12] = [
    "pid",
    "epoch",
    "sequence",
    "records",
    "left",
    "at",
    "txn",
    "time",
    "marker",
    "coordinatorEpoch",
    "emptied",
    "control",
];

/// The batch that a step describes; at `end`, unless it says where.
fn encode<'a>(fields: &Fields<'a>, end: i64) -> Vec<u8> {
    BATCH_MEMBERS.iter().for_each(|name| _ = fields.get(name));
    let base_offset = fields.or("at", end);
    let (producer_id, producer_epoch) = (fields.or("pid", 1), fields.or("epoch", 0));
    let base_timestamp = fields.or("time", 1000);
    if let Some(marker) = fields.text("marker") {
        let is_commit = match marker {
            "commit" => true,
            "abort" => false,
            other => panic!("{other} is no marker"),
        };
        let coordinator_epoch = fields.or("coordinatorEpoch", 0);
        let marker =
            BatchSpec::marker(base_offset, producer_id, producer_epoch, is_commit, coordinator_epoch);
        return BatchSpec { base_timestamp, ..marker }.encode();
    }
    let records: i32 = fields.or("records", 1);
    let left: Vec<i32> = match fields.get("left") {
        Some(list) => serde_json::from_value(list.clone()).expect("offset deltas"),
        None if fields.is("emptied") => Vec::new(),
        None => (0..records).collect(),
    };
    let transactional = if fields.is("txn") { TRANSACTIONAL } else { 0 };
    let control = if fields.is("control") { TRANSACTIONAL | CONTROL } else { 0 };
    BatchSpec {
        base_offset,
        attributes: transactional | control,
        last_offset_delta: Some(records - 1),
        base_timestamp,
        max_timestamp: Some(base_timestamp),
        producer_id,
        producer_epoch,
        base_sequence: fields.or("sequence", 0),
        records: left
            .into_iter()
            .map(|delta| RecordSpec::new(delta, b"key".to_vec(), Some(b"value".to_vec())))
            .collect(),
        ..BatchSpec::default()
    }
    .encode()
}
