//! When the end of a log is forgiven, and what is said where it is not.

mod judge;

use judge::{Root, run_one};
use redrive::Error;
use redrive::batch::FrameFault;
use redrive::error::{BrokerView, Corruption, Reason};
use redrive::replay::{IoChoice, PartitionOutcome, Tail};
use redrive::types::Offset;
use redrive_tests::logs::{BatchSpec, RecordSpec, SegmentFile, TransactionValue, encode_key, reseal};

/// A batch with the newest state of one id.
fn batch(offset: i64, id: &str) -> Vec<u8> {
    let value = TransactionValue { producer_id: offset, ..TransactionValue::default() };
    BatchSpec::single(offset, encode_key(0, id.as_bytes()), Some(value.encode())).encode()
}

fn segment(base_offset: i64, batches: &[Vec<u8>]) -> SegmentFile {
    SegmentFile { base_offset, bytes: batches.concat() }
}

/// Two whole segments of two batches each, then a third with one whole batch and half of another at offset 5.
fn torn() -> Vec<SegmentFile> {
    let mut last = [batch(4, "e"), batch(5, "f")].concat();
    last.truncate(last.len() - 30);
    vec![
        segment(0, &[batch(0, "a"), batch(1, "b")]),
        segment(2, &[batch(2, "c"), batch(3, "d")]),
        SegmentFile { base_offset: 4, bytes: last },
    ]
}

/// A load by every way of reading; the outcomes must agree.
#[track_caller]
fn run_every_way(root: &Root) -> std::sync::Arc<PartitionOutcome> {
    let outcomes: Vec<_> =
        judge::ways().map(|(io, bytes)| run_one(&root.replay().io(io).chunk_bytes(bytes))).collect();
    let shown = |outcome: &PartitionOutcome| match &outcome.result {
        Ok((map, stats)) => format!("{} ids, {:?}", map.len(), stats.tail),
        Err(error) => error.to_string(),
    };
    for outcome in &outcomes {
        assert_eq!(shown(outcome), shown(&outcomes[0]));
    }
    outcomes[0].clone()
}

#[track_caller]
fn tail_of(root: &Root) -> Tail {
    let outcome = run_every_way(root);
    let stats = outcome.stats().unwrap_or_else(|| panic!("{}", outcome.error().expect("an error")));
    stats.tail.clone().expect("a tail")
}

#[track_caller]
fn refusal_of(root: &Root) -> Corruption {
    let outcome = run_every_way(root);
    match outcome.error() {
        Some(Error::Corrupt(corruption)) => (**corruption).clone(),
        Some(other) => panic!("{other}"),
        None => panic!("loaded: {:?}", outcome.stats().map(|stats| &stats.tail)),
    }
}

#[test]
fn a_torn_tail_is_forgiven_and_reported() {
    for root in [
        Root::of(&torn()),
        Root::of(&torn()).recovery_point(0),
        Root::of(&torn()).recovery_point(4),
        Root::of(&torn()).recovery_point(5),
        // Other partitions' points say nothing of this one.
        Root::of(&torn()).file("recovery-point-offset-checkpoint", "0\n1\n__transaction_state 1 99\n"),
    ] {
        let tail = tail_of(&root);
        let first = batch(4, "e").len() as u64;
        assert_eq!((tail.position, tail.offset), (first, Offset(5)));
        assert_eq!(tail.bytes, batch(5, "f").len() as u64 - 30);
        assert!(tail.path.ends_with("__transaction_state-0/00000000000000000004.log"));
        assert_eq!(tail.reason, Reason::Frame(FrameFault::Incomplete { left: tail.bytes, missing: 30 }));
        let outcome = run_one(&root.replay());
        let map = outcome.map().expect("loaded");
        assert_eq!(map.len(), 5);
        assert!(map.get("e").expect("a look-up").is_some() && map.get("f").expect("a look-up").is_none());
        assert_eq!(outcome.stats().expect("loaded").log_end_offset, Offset(5));
    }
}

/// Every kind of bad end is a tail: cut at any byte, zeros of any number, a header that makes no sense, a wrong CRC.
#[test]
fn every_kind_of_bad_end_is_a_tail() {
    let whole = [batch(0, "a"), batch(1, "b")].concat();
    let first = batch(0, "a").len();
    let forgiven = |bytes: Vec<u8>, what: &str| {
        let tail = tail_of(&Root::of(&[SegmentFile { base_offset: 0, bytes }]));
        assert_eq!((tail.position, tail.offset), (first as u64, Offset(1)), "{what}");
    };
    for cut in first + 1..whole.len() {
        forgiven(whole[..cut].to_vec(), &format!("cut at {cut}"));
    }
    for zeros in [1, 16, 17, 18, 61, 4096] {
        let mut bytes = whole[..first].to_vec();
        bytes.resize(first + zeros, 0);
        forgiven(bytes, &format!("{zeros} zeros"));
    }
    // Bytes inside the CRC, one after the other; the length field as far as it then claims too much or too little.
    for at in (first + 8..first + 12).chain(first + 17..whole.len()) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x80;
        forgiven(bytes, &format!("byte {at} changed"));
    }
}

/// Whatever lies outside the CRC of a batch that is whole was not torn, so it is no tail.
#[test]
fn a_whole_batch_with_a_changed_magic_or_offset_is_no_tail() {
    let whole = [batch(3, "a"), batch(4, "b")].concat();
    let first = batch(3, "a").len();
    // Recovery takes a magic below 2 for a legacy message with another CRC, and one above 2 for 2.
    // An offset below the base of the segment keeps it from loading.
    for (at, to, expected) in [
        (16, 0, "cut"),
        (16, 1, "cut"),
        (16, 0xff, "cut"),
        (16, 3, "overlook"),
        (16, 0x7f, "overlook"),
        (7, 0, "not load"),
        (0, 0x80, "not load"),
    ] {
        let mut bytes = whole.clone();
        bytes[first + at] = to;
        let refusal = refusal_of(&Root::of(&[SegmentFile { base_offset: 3, bytes }]));
        assert_eq!(refusal.position, first as u64, "byte {at} is {to}");
        let found = match refusal.broker {
            BrokerView::Cuts { .. } => "cut",
            BrokerView::Overlooks => "overlook",
            BrokerView::RefusesToLoad => "not load",
            _ => "something else",
        };
        assert_eq!(found, expected, "{refusal}");
    }
}

/// Each condition for forgiving, taken away alone, refuses the partition.
#[test]
fn each_condition_is_needed() {
    assert!(tail_of(&Root::of(&torn()).recovery_point(5)).bytes > 0, "all of them hold");

    // A recovery-point file that cannot be read shows nothing.
    let garbage = Root::of(&torn()).file("recovery-point-offset-checkpoint", "garbage");
    assert!(matches!(refusal_of(&garbage).reason, Reason::Frame(_)));

    // A clean stop.
    let refusal = refusal_of(&Root::of(&torn()).recovery_point(5).clean());
    assert_eq!((refusal.offset, refusal.position), (Offset(5), batch(4, "e").len() as u64));

    // Below the recovery point.
    let refusal = refusal_of(&Root::of(&torn()).recovery_point(6));
    assert!(matches!(refusal.reason, Reason::Frame(FrameFault::Incomplete { .. })));

    // Not in the last segment, even if that is empty.
    let mut segments = torn();
    segments.push(segment(6, &[]));
    let refusal = refusal_of(&Root::of(&segments).recovery_point(5));
    assert!(refusal.path.ends_with("00000000000000000004.log"));

    // A whole batch follows, wherever it begins, with any gap in offsets.
    for (between, offset) in [(0, 6), (1, 6), (61, 900)] {
        let mut segments = torn();
        segments[2].bytes.extend(vec![0x5a; between]);
        segments[2].bytes.extend(batch(offset, "g"));
        let refusal = refusal_of(&Root::of(&segments).recovery_point(5));
        assert_eq!(refusal.position, batch(4, "e").len() as u64);
    }

    // The bad place is no bad batch, but one that was written so.
    for (name, bad) in bad_content(5) {
        let segments = [segment(4, &[batch(4, "e"), bad])];
        let refusal = refusal_of(&Root::of(&segments).recovery_point(5));
        assert!(!matches!(refusal.reason, Reason::Frame(_) | Reason::Crc(_)), "{name}: {refusal}");
        assert_eq!(refusal.broker, BrokerView::Overlooks, "{name}");
    }
}

/// Batches with a right CRC that no coordinator can use.
fn bad_content(offset: i64) -> Vec<(&'static str, Vec<u8>)> {
    let value = || Some(TransactionValue::default().encode());
    let keyless = RecordSpec { value: value(), ..RecordSpec::default() };
    let bad_state = TransactionValue { version: 0, status: 9, ..TransactionValue::default() };
    let single = |key: Vec<u8>, value| BatchSpec::single(offset, key, value);
    let base = BatchSpec { base_offset: offset, ..BatchSpec::default() };
    [
        ("no key", BatchSpec { records: vec![keyless], ..base.clone() }),
        ("short key", single(vec![0], value())),
        ("negative id length", single(vec![0, 0, 0xff, 0xff], value())),
        ("empty value", single(encode_key(0, b"x"), Some(Vec::new()))),
        ("unknown state", single(encode_key(0, b"x"), Some(bad_state.encode()))),
        ("record count", BatchSpec { records_count: Some(2), ..single(encode_key(0, b"x"), value()) }),
        ("codec 5", BatchSpec { attributes: 5, ..single(encode_key(0, b"x"), value()) }),
        ("damaged gzip", BatchSpec { attributes: 1, ..single(encode_key(0, b"x"), value()) }),
        (
            "offset beyond the batch",
            BatchSpec {
                last_offset_delta: Some(0),
                records: vec![RecordSpec::new(1, encode_key(0, b"x"), value())],
                ..base
            },
        ),
    ]
    .into_iter()
    .map(|(name, spec)| (name, spec.encode()))
    .collect()
}

/// What a broker's own recovery would do is part of every refusal.
#[test]
fn refusals_say_what_a_broker_would_do() {
    let mut middle = torn();
    middle.truncate(2);
    middle.push(segment(4, &[batch(4, "e"), batch(5, "f")]));
    let damaged_at = batch(2, "c").len();
    middle[1].bytes[damaged_at + 80] ^= 1;
    let left_in_segment = (middle[1].bytes.len() - damaged_at) as u64;
    let later_bytes = middle[2].bytes.len() as u64;

    let cuts = refusal_of(&Root::of(&middle));
    let expected = BrokerView::Cuts { bytes: left_in_segment, later_segments: 1, later_bytes };
    assert_eq!((&cuts.broker, cuts.offset), (&expected, Offset(3)));
    let sentence = format!(
        "a broker's recovery would cut the last {left_in_segment} bytes of this segment and delete 1 later segments \
         with {later_bytes} bytes"
    );
    assert!(cuts.to_string().ends_with(&sentence), "{cuts}");
    assert!(cuts.to_string().contains("transactional id \"d\""), "{cuts}");
    assert_eq!(cuts.transactional_id.as_deref(), Some(&b"d"[..]));

    // Recovery begins with the segment that holds the recovery point: 3 lies in this segment, 4 in the next.
    assert_eq!(refusal_of(&Root::of(&middle).recovery_point(3)).broker, expected);
    let serves = refusal_of(&Root::of(&middle).indexed().recovery_point(4));
    assert_eq!(serves.broker, BrokerView::Serves);
    assert!(serves.to_string().ends_with("a broker would run no recovery here and use the log as it stands"));
    assert_eq!(refusal_of(&Root::of(&middle).indexed().clean()).broker, BrokerView::Serves);
    // Without its index the segment is recovered all the same, and the next ones stay.
    let alone = BrokerView::Cuts { bytes: left_in_segment, later_segments: 0, later_bytes: 0 };
    assert_eq!(refusal_of(&Root::of(&middle).clean()).broker, alone);

    // The end of a cleanly closed log is found by walking it, which a length of 0 ends with an error.
    let mut zeros = torn();
    zeros[2] = segment(4, &[batch(4, "e"), vec![0; 64]]);
    assert_eq!(refusal_of(&Root::of(&zeros).indexed().clean()).broker, BrokerView::RefusesToLoad);

    // An offset that its segment cannot hold.
    let mut far = torn();
    far[2] = segment(4, &[batch(4, "e"), batch(1 << 40, "f")]);
    assert_eq!(refusal_of(&Root::of(&far)).broker, BrokerView::Splits);

    // In the last segment nothing follows to be deleted.
    let mut last = torn();
    last[2].bytes.extend(batch(6, "g"));
    let cuts = refusal_of(&Root::of(&last));
    assert!(matches!(cuts.broker, BrokerView::Cuts { later_segments: 0, later_bytes: 0, .. }), "{cuts}");
    assert!(cuts.to_string().ends_with("bytes of this segment"), "{cuts}");

    let ends_below =
        Root::of(&torn()[..2]).file("log-start-offset-checkpoint", "0\n1\n__transaction_state 0 5\n");
    let drops = refusal_of(&ends_below);
    assert_eq!(drops.reason, Reason::EndsBelowStart { end: Offset(4), start: Offset(5) });
    assert_eq!(drops.broker, BrokerView::DropsLog);

    let mut content = torn();
    content[2] = segment(4, &[bad_content(4).remove(0).1]);
    let overlooks = refusal_of(&Root::of(&content));
    assert!(
        overlooks.to_string().ends_with("looks at sizes, CRCs and ranges of offsets and would not see it"),
        "{overlooks}"
    );
}

/// A value can hold the bytes of a whole batch. They are a value as long as their container can be read.
#[test]
fn a_batch_inside_a_value_is_no_batch() {
    let hidden = batch(40, "hidden");
    let carrier = |offset: i64| {
        let value = TransactionValue { tags: vec![(9, hidden.clone())], ..TransactionValue::default() };
        BatchSpec::single(offset, encode_key(0, b"carrier"), Some(value.encode())).encode()
    };
    // Whole: nothing to be seen of it, in the middle and at the end.
    for bytes in [[carrier(0), batch(1, "b")].concat(), [batch(0, "b"), carrier(1)].concat()] {
        for lenient in [false, true] {
            let replay = Root::of(&[SegmentFile { base_offset: 0, bytes: bytes.clone() }]).replay();
            let outcome = run_one(&replay.lenient(lenient));
            let map = outcome.map().expect("loaded");
            assert_eq!((map.len(), map.get("hidden").expect("a look-up").is_none()), (2, true));
        }
    }
    // A damaged batch before the container: the container is what follows it, not what it holds.
    let mut bytes = [batch(0, "a"), batch(1, "bad"), carrier(2), batch(3, "c")].concat();
    let bad = batch(0, "a").len();
    bytes[bad + 11] ^= 0x40; // its length
    let root = Root::of(&[SegmentFile { base_offset: 0, bytes }]);
    assert_eq!(refusal_of(&root).position, bad as u64);
    let outcome = run_one(&root.replay().lenient(true));
    let map = outcome.map().expect("loaded");
    assert_eq!(
        (
            map.len(),
            map.get("hidden").expect("a look-up").is_none(),
            map.get("c").expect("a look-up").is_some()
        ),
        (3, true, true)
    );
    // The container itself damaged in its payload: it is stepped over as a whole.
    let mut bytes = [batch(0, "a"), carrier(1), batch(2, "c")].concat();
    let carrier_at = batch(0, "a").len();
    bytes[carrier_at + 70] ^= 1;
    let root = Root::of(&[SegmentFile { base_offset: 0, bytes: bytes.clone() }]);
    let outcome = run_one(&root.replay().lenient(true));
    let (map, stats) = outcome.result.as_ref().expect("loaded");
    assert_eq!(
        (
            map.len(),
            map.get("hidden").expect("a look-up").is_none(),
            map.get("c").expect("a look-up").is_some()
        ),
        (2, true, true)
    );
    assert_eq!((stats.skipped.batches, stats.skipped.bytes), (1, carrier(1).len() as u64));
    // At the end of the log what it holds looks like a batch that survived: not forgiven.
    bytes.truncate(carrier_at + carrier(1).len());
    let refusal = refusal_of(&Root::of(&[SegmentFile { base_offset: 0, bytes }]));
    assert_eq!(refusal.position, carrier_at as u64);
}

/// An offset that lies on its own, since it is outside the CRC, costs no other batch in a lenient load.
#[test]
fn lenient_steps_over_an_offset_that_lies() {
    let whole: Vec<Vec<u8>> = (0..6).map(|n| batch(n, &format!("id-{n}"))).collect();
    for (at, to) in [(2, 0x01), (5, 0x01), (7, 0xff), (6, 0x10)] {
        for last_of_first in [false, true] {
            let mut batches = whole.clone();
            let wrong = if last_of_first { 2 } else { 1 };
            batches[wrong][at] = to;
            let segments = [segment(0, &batches[..3]), segment(3, &batches[3..])];
            let root = Root::of(&segments);
            let refusal = refusal_of(&root);
            assert!(
                matches!(refusal.reason, Reason::OffsetGoesBack { .. } | Reason::OffsetTooLarge { .. }),
                "{refusal}"
            );
            let outcome = run_one(&root.replay().lenient(true));
            let (map, stats) = outcome.result.as_ref().expect("loaded");
            for n in (0..6).filter(|n| *n != wrong) {
                let entry = map
                    .get(format!("id-{n}"))
                    .expect("a look-up")
                    .unwrap_or_else(|| panic!("id-{n}, byte {at}"));
                assert_eq!(entry.offset(), Offset(n as i64));
            }
            assert!(stats.skipped.any() && stats.log_end_offset == Offset(6), "{stats:?}");
        }
    }
}

/// A lenient load counts what it leaves out and names the first hundred places.
#[test]
fn lenient_counts_and_names() {
    let mut batches: Vec<Vec<u8>> = (0..300).map(|n| batch(n, &format!("id-{n}"))).collect();
    for bad in batches.iter_mut().step_by(2) {
        bad[65] ^= 1;
    }
    let bytes_bad: usize = batches.iter().step_by(2).map(Vec::len).sum();
    let root = Root::of(&[segment(0, &batches)]);
    let outcome = run_one(&root.replay().lenient(true).io(IoChoice::Pread));
    let (map, stats) = outcome.result.as_ref().expect("loaded");
    assert_eq!((map.len(), stats.batches, stats.records), (150, 150, 150));
    assert_eq!((stats.skipped.batches, stats.skipped.bytes), (150, bytes_bad as u64));
    assert_eq!(stats.skipped.places.len(), 100);
    assert_eq!(stats.skipped.places[1].offset, Offset(2));
    let loaded = root.replay().lenient(true).run().expect("a load");
    assert!(loaded.lenient && !loaded.is_complete());

    // A record that cannot be used costs itself alone.
    let key = |id: &str| encode_key(0, id.as_bytes());
    let good = || Some(TransactionValue::default().encode());
    let records = vec![
        RecordSpec::new(0, key("x"), good()),
        RecordSpec::new(1, key("y"), Some(vec![0, 0, 1])),
        RecordSpec::new(2, key("z"), good()),
    ];
    let mut bytes = BatchSpec { records, ..BatchSpec::default() }.encode();
    reseal(&mut bytes);
    let root = Root::of(&[SegmentFile { base_offset: 0, bytes }]);
    assert!(matches!(refusal_of(&root).reason, Reason::Value { offset: Offset(1), .. }));
    assert_eq!(refusal_of(&root).transactional_id.as_deref(), Some(&b"y"[..]));
    let outcome = run_one(&root.replay().lenient(true));
    let (map, stats) = outcome.result.as_ref().expect("loaded");
    assert_eq!((map.len(), stats.skipped.records, stats.skipped.batches), (2, 1, 0));
    assert_eq!(stats.skipped.places[0].offset, Offset(1));
}
