//! What a follower accepts, row by row, and the cache of leader epochs. Inputs and right results are data, in
//! `fixtures/cases/validate.json`; bytes come from the independent writer.

mod appends;

use appends::*;
use redrive::log::epochs::{EpochEndOffset, LeaderEpochFileCache, NegativeEpoch};
use redrive::log::validate::AppendRejection;
use redrive::log::{LeaderEpochCheckpoint, LogConfig};
use redrive::types::Offset;
use redrive_tests::logs::BatchSpec;
use redrive_tests::vectors::{self, hex};
use serde_json::Value;

fn at_offsets(base_offset: i64, records: i64) -> Vec<u8> {
    BatchSpec { base_offset, ..batch(some(records)) }.encode()
}

#[test]
fn c03_r097_offsets_out_of_order() {
    let config = LogConfig::default();
    let offsets = ints(&row("97")["offsets"]);
    let bytes: Vec<u8> = offsets.iter().flat_map(|offset| at_offsets(*offset, 1)).collect();
    let expected = AppendRejection::OffsetsOutOfOrder {
        previous: Offset(3),
        base_offset: Offset(2),
        last_offset: Offset(2),
    };
    assert_eq!(scan(&bytes, &config, 0, 0), Err(expected.clone()));
    assert_eq!(expected.error_name(), None, "never sent");
    // Ranges must not overlap either; gaps are allowed.
    assert!(scan(&[at_offsets(0, 3), at_offsets(2, 5)].concat(), &config, 0, 0).is_err());
    scan(&[at_offsets(0, 3), at_offsets(3, 5), at_offsets(20, 1)].concat(), &config, 0, 0).expect("accepted");
}

fn unexpected(number: &str) -> AppendRejection {
    let row = row(number);
    let (end, range) = (int(&row["logEndOffset"]), ints(&row["batch"]));
    let bytes = at_offsets(range[0], range[1] - range[0] + 1);
    let expected = AppendRejection::UnexpectedAppendOffset {
        first_offset: Offset(range[0]),
        last_offset: Offset(range[1]),
        log_end_offset: Offset(end),
    };
    let rejection = scan(&bytes, &LogConfig::default(), end, 0).expect_err("refused");
    assert_eq!(rejection, expected);
    rejection
}

#[test]
fn c03_r098_append_below_the_end() {
    assert_eq!(unexpected("98").restart_offset(Offset(0)), None, "the log is not empty");
    scan(&at_offsets(2, 1), &LogConfig::default(), 2, 0).expect("at the end");
    scan(&at_offsets(9, 1), &LogConfig::default(), 2, 0).expect("a gap");
}

#[test]
fn c03_r099_append_below_an_empty_log() {
    let rejection = unexpected("99");
    assert_eq!(rejection.restart_offset(Offset(7)), None, "the end lies outside the batch");
}

#[test]
fn c03_r100_batch_around_the_end_of_an_empty_log() {
    let row = row("100");
    let restart = unexpected("100").restart_offset(Offset(7)).expect("a way out");
    assert_eq!(restart.0, int(&row["restartsAt"]));
    let bytes = at_offsets(4, 5);
    let (_, batches, _) = scan(&bytes, &LogConfig::default(), restart.0, 0).expect("accepted");
    assert_eq!(batches[0].last_offset.0 + 1, int(&row["logEndAfter"]));
}

#[test]
fn c03_r101_batches_of_a_newer_epoch() {
    let row = row("101");
    let bytes: Vec<u8> = row["batches"]
        .as_array()
        .expect("batches")
        .iter()
        .flat_map(|fields| {
            let [epoch, first, last] = ints(fields)[..] else { panic!("{fields}") };
            let spec = batch(some(last - first + 1));
            BatchSpec { base_offset: first, partition_leader_epoch: epoch as i32, ..spec }.encode()
        })
        .collect();
    let epoch = int(&row["epoch"]) as i32;
    let (_, batches, skipped) = scan(&bytes, &LogConfig::default(), 0, epoch).expect("accepted");
    assert!(skipped);
    assert_eq!(batches.last().expect("one").last_offset.0 + 1, int(&row["logEndAfter"]));
    assert_eq!(batches.last().expect("one").leader_epoch, Some(epoch));
    let (valid, _, skipped) = scan(&bytes, &LogConfig::default(), 0, epoch + 1).expect("accepted");
    assert_eq!((valid, skipped), (bytes.len(), false));
    let mut damaged = bytes.clone();
    *damaged.last_mut().expect("bytes") ^= 1;
    scan(&damaged, &LogConfig::default(), 0, epoch).expect("what is skipped is not looked at");
}

#[test]
fn c03_r102_equal_sequences_at_a_follower() {
    let row = row("102");
    let (each, of_producer) = (int(&row["recordsEach"]), |base_offset| BatchSpec {
        base_offset,
        producer_id: 1,
        producer_epoch: 0,
        base_sequence: 0,
        ..batch(some(int(&row["recordsEach"])))
    });
    let bytes: Vec<u8> =
        ints(&row["offsets"]).into_iter().flat_map(|offset| of_producer(offset).encode()).collect();
    let (valid, batches, _) = scan(&bytes, &LogConfig::default(), 0, 0).expect("accepted");
    assert_eq!((valid, batches.len()), (bytes.len(), 2));
    assert_eq!(batches[1].last_offset.0 + 1, int(&row["logEndAfter"]));
    assert_eq!(batches[1].base_offset.0, each);
}

#[test]
fn c03_r103_sequence_repeat_in_one_call() {
    let row = row("103");
    let of_sequence = |(base_offset, sequence): (i64, i64)| BatchSpec {
        base_offset,
        producer_id: 1,
        producer_epoch: 0,
        base_sequence: sequence as i32,
        ..batch(some(1))
    };
    let bytes: Vec<u8> = (0..)
        .zip(ints(&row["sequences"]))
        .flat_map(|offset_and_sequence| of_sequence(offset_and_sequence).encode())
        .collect();
    let (_, batches, _) = scan(&bytes, &LogConfig::default(), 0, 0).expect("accepted");
    assert_eq!(batches.last().expect("some").last_offset.0 + 1, int(&row["logEndAfter"]));
}

fn cache(entries: &Value) -> LeaderEpochFileCache {
    let mut cache = LeaderEpochFileCache::default();
    for entry in entries.as_array().expect("entries") {
        assert_eq!(cache.assign(int(&entry[0]) as i32, Offset(int(&entry[1]))), Ok(true), "{entry}");
    }
    cache
}

fn pairs(cache: &LeaderEpochFileCache) -> Value {
    cache.entries().iter().map(|entry| vec![i64::from(entry.epoch), entry.start_offset.0]).collect()
}

#[test]
fn c03_r104_older_format_empties_the_cache() {
    let message = hex(text(&vectors::list("legacy_messages")[0]["hex"]));
    let (_, batches, _) = scan(&message, &LogConfig::default(), 0, 0).expect("accepted");
    assert_eq!((batches.len(), batches[0].leader_epoch), (1, None));
    let mut cache = cache(&row("107")["entries"]);
    assert!(cache.clear());
    assert!(cache.entries().is_empty() && !cache.clear());
    assert_eq!(cache.encode(), "0\n0\n");
    // A leader takes none.
    let error = validate(&message, &LogConfig::default()).expect_err("refused").error_name();
    assert_eq!(error, Some("INVALID_RECORD"));
}

fn truncations(number: &str) {
    let row = row(number);
    for (offset, left) in ints(&row["truncate"]).into_iter().zip(ints(&row["left"])) {
        let mut cache = cache(&row["entries"]);
        let before = cache.entries().len();
        let changed = cache.truncate_from_end(Offset(offset));
        assert_eq!(cache.entries().len(), left as usize, "{offset}");
        assert_eq!(changed, left as usize != before);
    }
}

#[test]
fn c03_r107_truncated_epochs() {
    truncations("107");
}

#[test]
fn c03_r108_epoch_at_the_end() {
    let row = row("108");
    let mut cache = cache(&row["entries"]);
    assert!(cache.truncate_from_end(Offset(int(&row["truncate"][0]))));
    assert_eq!(cache.entries().len(), ints(&row["left"])[0] as usize);
    // Above the end the entry at the end stays as it is where the log is: the log truncates to its end at most.
    let end = int(&row["logEndOffset"]);
    let mut cache = self::cache(&row["entries"]);
    assert!(cache.truncate_from_end(Offset(int(&row["truncate"][1]).min(end))));
    assert_eq!(cache.entries().len(), ints(&row["left"])[1] as usize);
}

#[test]
fn epochs_as_in_the_examples() {
    for example in row("epochExamples").as_array().expect("examples") {
        let mut cache = cache(&example["before"]);
        for entry in example["assign"].as_array().into_iter().flatten() {
            cache.assign(int(&entry[0]) as i32, Offset(int(&entry[1]))).expect("not negative");
        }
        if let Some(start) = example["truncateFromStart"].as_i64() {
            assert!(cache.truncate_from_start(Offset(start)));
            assert!(!cache.truncate_from_start(Offset(start)), "done");
        }
        if let Some(end) = example["truncateFromEnd"].as_i64() {
            assert!(cache.truncate_from_end(Offset(end)));
            assert!(!cache.truncate_from_end(Offset(end)), "done");
        }
        assert_eq!(pairs(&cache), example["after"], "{example}");
        let last = *cache.entries().last().expect("an entry");
        assert_eq!(cache.assign(last.epoch, last.start_offset), Ok(false), "nothing new");
        let file = LeaderEpochCheckpoint::parse(cache.encode().as_bytes()).expect("a file");
        assert_eq!((LeaderEpochFileCache::from_checkpoint(file.clone()), file.dropped), (cache, 0));
    }
    let mut cache = LeaderEpochFileCache::default();
    assert!(!cache.truncate_from_start(Offset(5)) && !cache.truncate_from_end(Offset(5)));
    for (epoch, start_offset) in [(-1, Offset(0)), (0, Offset(-1))] {
        assert_eq!(cache.assign(epoch, start_offset), Err(NegativeEpoch { epoch, start_offset }));
    }
}

#[test]
fn ends_of_epochs() {
    let row = row("epochEnds");
    let cache = cache(&row["entries"]);
    let end = Offset(int(&row["logEndOffset"]));
    for asked in row["asked"].as_array().expect("questions") {
        let expected = asked["end"]
            .as_array()
            .map(|pair| EpochEndOffset { epoch: int(&pair[0]) as i32, end_offset: Offset(int(&pair[1])) });
        assert_eq!(cache.end_offset_for(int(&asked["epoch"]) as i32, end), expected, "{asked}");
    }
    assert_eq!(LeaderEpochFileCache::default().end_offset_for(0, end), None);
    assert_eq!(
        (cache.previous_epoch(1), cache.previous_epoch(2), cache.previous_epoch(9)),
        (None, Some(1), Some(4))
    );
    assert_eq!((cache.next_epoch(0), cache.next_epoch(2), cache.next_epoch(4)), (Some(1), Some(4), None));
    assert_eq!((cache.latest_epoch(), cache.entry(3)), (Some(4), None));
    assert_eq!(cache.entry(2).map(|entry| entry.start_offset), Some(Offset(11)));
    let at = |offset| cache.epoch_for_offset(Offset(offset));
    assert_eq!(
        [at(-1), at(0), at(10), at(11), at(19), at(20), at(99)],
        [None, Some(1), Some(1), Some(2), Some(2), Some(4), Some(4)]
    );
}
