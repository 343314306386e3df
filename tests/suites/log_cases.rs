//! Rows of the chapter on logs about a whole log: reads, high watermark, rolling, followers, epochs, truncation.
//!
//! Each runs on the storage in memory and on the file system, unless it needs faults. Right results are data, in
//! `fixtures/cases/log.json`.

mod log_place;

use log_place::{
    NOW, Place, bases, bounds, epochs, first, follow, follow_at, lead, lead_at, lists, log_name, memory,
    number, numbers, places, produced, range, row, snapshots, state, timed,
};
use redrive::Error;
use redrive::batch::Limits;
use redrive::io::Fault;
use redrive::log::validate::AppendRejection;
use redrive::log::{AppendError, Log, LogConfig, ReadUpTo, RecoveryReason};
use redrive::segment::SegmentFileKind;
use redrive::types::Offset;
use redrive_tests::logs::{BatchSpec, Codec};
use redrive_tests::vectors;

fn every_batch() -> LogConfig {
    LogConfig { index_interval_bytes: 0, ..LogConfig::default() }
}

/// Settings under which a segment holds this many batches of one record.
fn segments_of(batches: i64) -> LogConfig {
    let size = range(0, 0).encode().len() as u32;
    LogConfig { segment_bytes: size * batches as u32, ..every_batch() }
}

fn fill(log: &Log, records: i64) {
    (0..records).for_each(|_| {
        lead(log, &range(0, 0));
    });
}

fn is_out_of_range(log: &Log, offset: i64) -> bool {
    let read = log.read(Offset(offset), 1000, ReadUpTo::LogEnd, true);
    matches!(read, Err(Error::OffsetOutOfRange { .. }))
}

// ---- reads, offsets, timestamps ----

#[test]
fn c03_r038_reads_at_the_ends() {
    let row = row("c03_r038");
    for place in places() {
        let log = place.open(&every_batch());
        fill(&log, number(&row["records"]));
        assert_eq!(first(&log, number(&row["empty"]), 1000, true), None);
        log.update_high_watermark(log.log_end_offset()).expect("an offset");
        assert_eq!(first(&log, 1, 1000, true), Some(1));
        assert!(log.increment_log_start_offset(Offset(number(&row["logStart"]))).expect("moved"));
        for offset in numbers(&row["outOfRange"]) {
            assert!(is_out_of_range(&log, offset), "{offset}");
        }
        assert_eq!(first(&log, number(&row["logStart"]), 1000, true), row["logStart"].as_i64());
    }
}

#[test]
fn c03_r039_reads_around_the_only_record() {
    let row = row("c03_r039");
    let base = number(&row["base"]);
    for place in places() {
        for kind in ["log", "index", "timeindex"] {
            place.put(format!("{base:020}.{kind}"), &[]);
        }
        let log = place.open(&every_batch());
        assert_eq!(lead(&log, &range(0, 0)).first_offset.0, base);
        assert_eq!(first(&log, number(&row["empty"]), 1000, true), None);
        for offset in numbers(&row["outOfRange"]) {
            assert!(is_out_of_range(&log, offset), "{offset}");
        }
        assert_eq!(first(&log, base, 1000, true), Some(base));
    }
}

#[test]
fn c03_r040_at_least_one_batch_over_a_gap() {
    let row = row("c03_r040");
    for place in places() {
        let log = place.open(&LogConfig { segment_bytes: 160, ..every_batch() });
        numbers(&row["records"]).iter().for_each(|&at| {
            follow(&log, &[range(at, at)]);
        });
        for limit in numbers(&row["limits"]) {
            let found = first(&log, number(&row["read"]), limit as u32, true);
            assert_eq!(found, row["offset"].as_i64(), "{limit}");
        }
    }
}

#[test]
fn c03_r041_less_than_one_batch() {
    let row = row("c03_r041");
    for place in places() {
        let log = place.open(&every_batch());
        numbers(&row["records"]).iter().for_each(|&at| {
            follow(&log, &[range(at, at)]);
        });
        for pair in lists(&row["lengths"]) {
            let at = Offset(number(&row["read"]));
            let read = log.read(at, pair[0] as u32, ReadUpTo::LogEnd, false).expect("a read");
            assert_eq!(read.bytes.len() as i64, pair[1]);
            assert_eq!(read.is_first_batch_incomplete, pair[1] > 0);
            if pair[1] > 0 {
                assert_eq!(read.offset.0, number(&row["offset"]));
            }
        }
    }
}

#[test]
fn c03_r042_a_gap_at_the_end_of_a_segment() {
    let row = row("c03_r042");
    for place in places() {
        for base in numbers(&row["segments"]) {
            place.put(log_name(base), &range(base, base).encode());
            place.put(format!("{base:020}.index"), &[]);
            place.put(format!("{base:020}.timeindex"), &[]);
        }
        let log = place.open(&every_batch());
        assert_eq!(first(&log, number(&row["read"]), 1000, true), row["offset"].as_i64());
    }
}

#[test]
fn c03_r043_a_limit_below_the_start() {
    let row = row("c03_r043");
    for place in places() {
        let log = place.open(&every_batch());
        fill(&log, number(&row["records"]));
        log.update_high_watermark(Offset(number(&row["highWatermark"]))).expect("an offset");
        let at = Offset(number(&row["read"]));
        assert!(log.read(at, 1000, ReadUpTo::HighWatermark, true).expect("a read").bytes.is_empty());
        assert!(!log.read(at, 1000, ReadUpTo::LogEnd, true).expect("a read").bytes.is_empty());
    }
}

#[test]
fn c03_r045_a_read_inside_a_compressed_batch() {
    let row = row("c03_r045");
    for place in places() {
        let log = place.open(&every_batch());
        for codec in [Codec::Gzip, Codec::Lz4, Codec::Zstd] {
            lead(&log, &BatchSpec { codec, ..range(0, 1) });
        }
        for pair in lists(&row["batches"]) {
            assert_eq!(first(&log, pair[1], 1 << 20, false), Some(pair[0]));
        }
    }
}

#[test]
fn c03_r046_the_high_watermark_through_appends_and_truncations() {
    let expected = numbers(&row("c03_r046")["highWatermarks"]);
    for place in places() {
        let log = place.open(&every_batch());
        let mut found = vec![log.high_watermark().0];
        fill(&log, 3);
        log.increment_high_watermark(Offset(1)).expect("raised");
        found.push(log.high_watermark().0);
        log.update_high_watermark(Offset(5)).expect("an offset");
        found.push(log.high_watermark().0);
        follow(&log, &[range(3, 5)]);
        log.update_high_watermark(Offset(6)).expect("an offset");
        found.push(log.high_watermark().0);
        assert!(log.truncate_to(Offset(3), NOW).expect("truncated"));
        found.push(log.high_watermark().0);
        fill(&log, 3);
        found.push(log.high_watermark().0);
        log.truncate_fully_and_start_at(Offset(4), None, NOW).expect("emptied");
        found.push(log.high_watermark().0);
        assert_eq!(found, expected);
    }
}

#[test]
fn c03_r047_what_an_update_changes() {
    let row = row("c03_r047");
    let (place, _) = memory();
    let log = place.open(&every_batch());
    fill(&log, number(&row["end"]));
    for update in row["updates"].as_array().expect("updates") {
        let before = log.high_watermark();
        let now = log.update_high_watermark(Offset(number(&update[0]))).expect("an offset");
        assert_eq!(Some(now.0).filter(|now| *now != before.0), update[1].as_i64(), "{update}");
    }
}

#[test]
fn c03_r048_a_high_watermark_above_the_end() {
    let row = row("c03_r048");
    let (place, _) = memory();
    let log = place.open(&every_batch());
    fill(&log, number(&row["end"]));
    let refused = log.increment_high_watermark(Offset(number(&row["above"])));
    assert!(matches!(refused, Err(Error::OffsetOutOfRange { .. })), "{refused:?}");
    assert_eq!(log.high_watermark(), Offset(0));
}

#[test]
fn c03_r049_a_log_start_above_the_high_watermark() {
    let row = row("c03_r049");
    let (place, _) = memory();
    let log = place.open(&every_batch());
    fill(&log, number(&row["end"]));
    log.update_high_watermark(Offset(number(&row["highWatermark"]))).expect("an offset");
    let refused = log.increment_log_start_offset(Offset(number(&row["above"])));
    assert!(matches!(refused, Err(Error::OffsetOutOfRange { .. })), "{refused:?}");
    assert_eq!(log.log_start_offset(), Offset(0));
    assert!(!log.is_poisoned());
}

#[test]
fn c03_r050_no_timestamps_in_an_empty_log() {
    for place in places() {
        let log = place.open(&every_batch());
        assert_eq!(log.find_by_timestamp(0, ReadUpTo::LogEnd, &Limits::default()).expect("a search"), None);
        assert_eq!(log.find_max_timestamp(&Limits::default()).expect("a search"), None);
    }
}

#[test]
fn c03_r051_timestamps_of_two_epochs() {
    let row = row("c03_r051");
    for place in places() {
        let log = place.open(&every_batch());
        for epoch in 0..2 {
            lead_at(&log, &timed(0, &[NOW + i64::from(epoch)]), epoch, NOW).expect("an append");
        }
        for lookup in lists(&row["lookups"]) {
            let found = log.find_by_timestamp(NOW + lookup[0], ReadUpTo::LogEnd, &Limits::default());
            let found = found.expect("a search").expect("a record");
            let epoch = found.leader_epoch.map(i64::from);
            assert_eq!((found.timestamp, found.offset.0), (NOW + lookup[0], lookup[1]));
            assert_eq!(epoch, Some(lookup[2]));
        }
        let later = log.find_by_timestamp(NOW + 2, ReadUpTo::LogEnd, &Limits::default());
        assert_eq!(later.expect("a search"), None);
        let below = log.find_by_timestamp(NOW, ReadUpTo::HighWatermark, &Limits::default());
        assert_eq!(below.expect("a search"), None, "nothing is replicated yet");
        let epoch_of = |offset| log.leader_epochs().epoch_for_offset(offset).map(i64::from);
        let (start, end) = (log.log_start_offset(), log.log_end_offset());
        assert_eq!(vec![start.0, epoch_of(start).expect("an epoch")], numbers(&row["earliest"]));
        let latest = log.leader_epochs().latest_epoch().expect("an epoch");
        assert_eq!(vec![end.0, latest.into()], numbers(&row["latest"]));
    }
}

#[test]
fn c03_r053_the_largest_timestamp() {
    let row = row("c03_r053");
    let found = numbers(&row["found"]);
    for place in places() {
        let log = place.open(&segments_of(1));
        numbers(&row["times"]).iter().for_each(|&time| {
            lead(&log, &timed(0, &[NOW + time]));
        });
        let max = log.find_max_timestamp(&Limits::default()).expect("a search").expect("a record");
        assert_eq!(vec![max.timestamp - NOW, max.offset.0], found);
    }
}

#[test]
fn c03_r054_the_high_watermark_at_a_new_segment() {
    for place in places() {
        let log = place.open(&every_batch());
        fill(&log, 3);
        log.update_high_watermark(Offset(3)).expect("an offset");
        assert!(log.roll(NOW).expect("rolled"));
        assert!(!log.roll(NOW).expect("an empty segment is not rolled"));
        let read = || log.read(Offset(3), 1000, ReadUpTo::HighWatermark, true).expect("a read");
        assert_eq!(read().position, None);
        fill(&log, 1);
        assert_eq!(read().position, None);
        log.update_high_watermark(Offset(4)).expect("an offset");
        assert_eq!(read().position, Some((Offset(3), 0)));
    }
}

// ---- rolling ----

const HOUR: i64 = 3_600_000;

fn hourly() -> LogConfig {
    LogConfig { segment_ms: HOUR, message_timestamp_after_max_ms: i64::MAX, ..every_batch() }
}

/// A record without a time.
fn timeless() -> BatchSpec {
    timed(0, &[-1])
}

fn check_segments(log: &Log, name: &str) {
    assert_eq!(log.segments_count() as i64, number(&row(name)["segments"]), "{name}");
}

#[test]
fn c03_r056_an_empty_segment_is_not_rolled() {
    for place in places() {
        let log = place.open(&hourly());
        lead_at(&log, &timeless(), 0, NOW + HOUR + 1).expect("an append");
        check_segments(&log, "c03_r056");
    }
}

#[test]
fn c03_r057_without_times_the_clock_counts() {
    for place in places() {
        let log = place.open(&hourly());
        lead_at(&log, &timeless(), 0, NOW + HOUR + 1).expect("an append");
        lead_at(&log, &timeless(), 0, NOW + HOUR + 1).expect("an append");
        check_segments(&log, "c03_r057");
        let base = log.segment_base_offsets()[1];
        assert_eq!(base, Offset(1));
    }
}

#[test]
fn c03_r058_a_time_behind_a_record_without_one() {
    for place in places() {
        let log = place.open(&hourly());
        lead_at(&log, &timeless(), 0, NOW + HOUR + 1).expect("an append");
        lead_at(&log, &timeless(), 0, NOW + HOUR + 1).expect("an append");
        lead_at(&log, &timed(0, &[NOW + 3 * HOUR]), 0, NOW + HOUR + 1).expect("an append");
        check_segments(&log, "c03_r058");
    }
}

#[test]
fn c03_r059_with_times_the_clock_does_not_count() {
    for place in places() {
        let log = place.open(&hourly());
        lead(&log, &timed(0, &[NOW]));
        lead_at(&log, &timed(0, &[NOW]), 0, NOW + HOUR + 1).expect("an append");
        check_segments(&log, "c03_r059");
    }
}

#[test]
fn c03_r060_a_later_time_rolls() {
    for place in places() {
        let log = place.open(&hourly());
        lead(&log, &timed(0, &[NOW]));
        lead_at(&log, &timed(0, &[NOW + HOUR]), 0, NOW).expect("an append");
        assert_eq!(log.segments_count(), 1);
        lead_at(&log, &timed(0, &[NOW + HOUR + 1]), 0, NOW).expect("an append");
        check_segments(&log, "c03_r060");
    }
}

#[test]
fn c03_r061_an_empty_append_does_not_roll() {
    for place in places() {
        let log = place.open(&hourly());
        lead(&log, &timeless());
        let request = log_place::request(0, NOW + 3 * HOUR);
        assert!(log.append_as_leader(&mut [], &request).expect("nothing to do").is_none());
        assert!(log.append_as_follower(&[], 0, NOW + 3 * HOUR).expect("nothing to do").is_none());
        let none = log.append_coordinator_records([], 0, NOW + 3 * HOUR).expect("nothing to do");
        assert!(none.is_none());
        assert_eq!((log.segments_count(), log.log_end_offset()), (1, Offset(1)));
    }
}

#[test]
fn c03_r062_jitter_brings_rolls_forward() {
    let mut rolled = 0;
    for _ in 0..64 {
        let (place, _) = memory();
        let log = place.open(&LogConfig { segment_jitter_ms: HOUR / 2, ..hourly() });
        lead_at(&log, &timeless(), 0, NOW).expect("an append");
        lead_at(&log, &timeless(), 0, NOW + HOUR / 2).expect("an append");
        assert_eq!(log.segments_count(), 1, "no jitter is that large");
        lead_at(&log, &timeless(), 0, NOW + HOUR * 3 / 4).expect("an append");
        rolled += log.segments_count() - 1;
        if log.segments_count() == 1 {
            lead_at(&log, &timeless(), 0, NOW + HOUR + 1).expect("an append");
            assert_eq!(log.segments_count(), 2);
        }
    }
    // Half of them, so that neither none nor all has a chance of 2^-63.
    assert!((1..64).contains(&rolled), "{rolled} of 64");
}

#[test]
fn c03_r063_a_full_segment() {
    let row = row("c03_r063");
    let batches = number(&row["batches"]);
    for place in places() {
        let log = place.open(&segments_of(batches));
        fill(&log, batches);
        assert_eq!(log.segments_count(), 1);
        fill(&log, 1);
        assert_eq!(bases(&log), numbers(&row["bases"]));
    }
}

#[test]
fn c03_r064_offsets_out_of_reach_of_the_base() {
    let row = row("c03_r064");
    for place in places() {
        let log = place.open(&every_batch());
        numbers(&row["offsets"]).iter().for_each(|&at| {
            follow(&log, &[range(at, at)]);
        });
        assert_eq!(bases(&log), numbers(&row["bases"]));
    }
}

#[test]
fn c03_r065_a_snapshot_at_each_roll() {
    let expected = numbers(&row("c03_r065")["snapshots"]);
    for place in places() {
        let log = place.open(&every_batch());
        for _ in 0..3 {
            fill(&log, 1);
            log.roll(NOW).expect("rolled");
        }
        assert_eq!(snapshots(&place), expected);
        log.flush(Offset(i64::MAX)).expect("flushed");
        assert_eq!(snapshots(&place), expected);
        assert_eq!(log.recovery_point(), log.log_end_offset());
    }
}

#[test]
fn c03_r066_a_snapshot_that_cannot_be_synced() {
    let (place, storage) = memory();
    let log = place.open(&every_batch());
    fill(&log, 2);
    log.flush(Offset(1)).expect("flushed");
    let point = log.recovery_point();
    fill(&log, 1);
    storage.inject(place.path(format!("{:020}.snapshot.tmp", 3)), Fault::Sync);
    assert!(matches!(log.roll(NOW), Err(Error::Io { .. })));
    assert_eq!(log.recovery_point(), point);
    assert!(snapshots(&place).is_empty());
    let later = log.flush(Offset(3));
    assert!(matches!(later, Err(Error::Poisoned { .. })), "{later:?}");
    assert_eq!(log.recovery_point(), point);
}

#[test]
fn c03_r067_a_preallocated_segment_is_cut_when_it_is_full() {
    for place in places() {
        let config = LogConfig { preallocate: true, segment_bytes: 4096, ..every_batch() };
        let log = place.open(&config);
        fill(&log, 2);
        let used = log.size();
        assert_eq!(place.file(log_name(0)).len(), 4096);
        log.roll(NOW).expect("rolled");
        assert_eq!(place.file(log_name(0)).len() as u64, used);
        assert_eq!(place.file(log_name(2)).len(), 4096);
        assert_eq!(log.size(), used);
        fill(&log, 1);
        drop(log);
        // The zeros behind the last batch are no batches.
        let (log, report) = place.open_unclean(&config);
        assert_eq!(log.log_end_offset(), Offset(3), "{report:?}");
        assert_eq!(bounds(&log), [(0, 0), (1, 1), (2, 2)]);
    }
}

// ---- followers and epochs ----

#[test]
fn c03_r091_more_than_a_segment_in_one_append() {
    let row = row("c03_r091");
    for place in places() {
        let log = place.open(&segments_of(1));
        let refused = lead_at(&log, &range(0, 9), 0, NOW).expect_err("too large");
        assert_eq!(refused.error_name(), row["error"].as_str());
        let refused = follow_at(&log, &[range(0, 0), range(1, 1)], 0).expect_err("too large");
        assert_eq!(refused.error_name(), row["error"].as_str());
        assert_eq!((log.log_end_offset(), log.size()), (Offset(0), 0));
        assert!(!log.is_poisoned());
    }
}

fn unexpected(refused: &AppendError) -> Option<(i64, i64, i64)> {
    match refused {
        AppendError::Rejected(AppendRejection::UnexpectedAppendOffset {
            first_offset,
            last_offset,
            log_end_offset,
        }) => Some((first_offset.0, last_offset.0, log_end_offset.0)),
        _ => None,
    }
}

#[test]
fn c03_r098_an_append_below_the_end() {
    let row = row("c03_r098");
    let batch = numbers(&row["batch"]);
    for place in places() {
        let log = place.open(&every_batch());
        follow(&log, &[range(0, 1)]);
        let refused = follow_at(&log, &[range(batch[0], batch[1])], 0).expect_err("refused");
        assert_eq!(unexpected(&refused), Some((batch[0], batch[1], number(&row["end"]))));
        assert_eq!(bounds(&log), [(0, 1)]);
    }
}

#[test]
fn c03_r099_an_append_below_an_empty_log() {
    let row = row("c03_r099");
    let (start, batch) = (number(&row["start"]), numbers(&row["batch"]));
    for place in places() {
        let log = place.open(&every_batch());
        log.truncate_fully_and_start_at(Offset(start), None, NOW).expect("restarted");
        let refused = follow_at(&log, &[range(batch[0], batch[1])], 0).expect_err("refused");
        assert_eq!(unexpected(&refused), Some((batch[0], batch[1], start)));
        assert_eq!((log.log_start_offset(), log.log_end_offset()), (Offset(start), Offset(start)));
    }
}

#[test]
fn c03_r100_an_append_around_the_end_of_an_empty_log() {
    let row = row("c03_r100");
    let batch = numbers(&row["batch"]);
    for place in places() {
        let log = place.open(&every_batch());
        log.truncate_fully_and_start_at(Offset(number(&row["start"])), None, NOW).expect("restarted");
        follow(&log, &[range(batch[0], batch[1])]);
        assert_eq!(log.log_start_offset(), Offset(number(&row["logStart"])));
        assert_eq!(log.log_end_offset(), Offset(number(&row["end"])));
        assert_eq!((bases(&log), bounds(&log)), (vec![batch[0]], vec![(batch[0], batch[1])]));
    }
}

#[test]
fn c03_r102_repeated_sequences_are_stored_by_a_follower() {
    for place in places() {
        let log = place.open(&every_batch());
        follow(&log, &[produced(0, 2, 1, 0, 0), produced(2, 2, 1, 0, 0)]);
        assert_eq!(log.log_end_offset(), Offset(number(&row("c03_r102")["end"])));
        assert_eq!(bounds(&log), [(0, 1), (2, 3)]);
    }
}

#[test]
fn c03_r103_a_repeated_sequence_in_one_call() {
    for place in places() {
        let log = place.open(&every_batch());
        let batches = [0, 1, 2, 3, 3].iter().zip(0..);
        let batches: Vec<_> = batches.map(|(sequence, at)| produced(at, 1, 1, 0, *sequence)).collect();
        follow(&log, &batches);
        assert_eq!(log.log_end_offset(), Offset(number(&row("c03_r103")["end"])));
        assert_eq!(bounds(&log).len(), 5);
    }
}

#[test]
fn c03_r104_an_older_format_has_no_epochs() {
    let legacy = vectors::named("recovery_cases", "legacy");
    let bytes = vectors::bytes(legacy, "hex").expect("messages");
    for place in places() {
        let log = place.open(&every_batch());
        follow(&log, &[range(0, 2)]);
        assert_eq!(epochs(&log), [[0, 0]]);
        log.append_as_follower(&bytes, 0, NOW).expect("an append").expect("messages");
        assert_eq!(log.log_end_offset(), Offset(number(&row("c03_r104")["end"])));
        assert!(epochs(&log).is_empty());
        assert_eq!(place.file("leader-epoch-checkpoint"), b"0\n0\n");
    }
}

/// A log of one-record batches whose epochs began at these offsets.
fn with_epochs(place: &Place, config: &LogConfig, given: &[Vec<i64>], end: i64) -> Log {
    let log = place.open(config);
    let start = given[0][1];
    if start > 0 {
        log.truncate_fully_and_start_at(Offset(start), None, NOW).expect("restarted");
    }
    for at in start..end {
        let epoch = given.iter().rev().find(|entry| entry[1] <= at).expect("an epoch")[0];
        lead_at(&log, &range(0, 0), epoch as i32, NOW).expect("an append");
    }
    assert_eq!(epochs(&log), given);
    log
}

fn check_first_segment_gone(name: &str) {
    let row = row(name);
    for place in places() {
        let log = with_epochs(&place, &segments_of(5), &lists(&row["epochs"]), 15);
        log.update_high_watermark(Offset(15)).expect("an offset");
        assert!(log.increment_log_start_offset(Offset(5)).expect("moved"));
        assert_eq!(log.delete_before_log_start(NOW).expect("deleted"), 1);
        assert_eq!(epochs(&log), lists(&row["left"]));
        log.close().expect("closed");
        drop(log);
        assert_eq!(epochs(&place.open(&segments_of(5))), lists(&row["left"]));
    }
}

#[test]
fn c03_r105_an_epoch_of_the_first_segment_only() {
    check_first_segment_gone("c03_r105");
}

#[test]
fn c03_r106_an_epoch_that_goes_on_behind_the_first_segment() {
    check_first_segment_gone("c03_r106");
}

#[test]
fn c03_r107_truncated_epochs() {
    let row = row("c03_r107");
    for place in places() {
        let log = with_epochs(&place, &segments_of(7), &lists(&row["epochs"]), number(&row["end"]));
        for pair in lists(&row["truncate"]) {
            log.truncate_to(Offset(pair[0]), NOW).expect("truncated");
            assert_eq!(epochs(&log).len() as i64, pair[1], "{pair:?}");
            let file = String::from_utf8(place.file("leader-epoch-checkpoint")).expect("text");
            assert_eq!(file.lines().nth(1), Some(&*pair[1].to_string()), "{file}");
        }
    }
}

#[test]
fn c03_r109_all_segments_went() {
    let row = row("c03_r109");
    for place in places() {
        let log = with_epochs(&place, &segments_of(10), &lists(&row["epochs"]), number(&row["end"]));
        let end = log.log_end_offset();
        log.roll(NOW).expect("rolled");
        log.update_high_watermark(end).expect("an offset");
        log.increment_log_start_offset(end).expect("moved");
        assert_eq!(log.delete_before_log_start(NOW).expect("deleted"), 6);
        assert_eq!(epochs(&log), lists(&row["left"]));
    }
}

#[test]
fn c03_r110_epochs_that_the_file_lost() {
    let row = row("c03_r110");
    for place in places() {
        let log = with_epochs(&place, &segments_of(4), &lists(&row["epochs"]), 12);
        log.close().expect("closed");
        drop(log);
        place.put("leader-epoch-checkpoint", row["file"].as_str().expect("text").as_bytes());
        let (log, report) = place.open_unclean(&segments_of(4));
        assert_eq!(epochs(&log), lists(&row["epochs"]));
        assert!(report.epochs_changed && !report.lost_records());
        assert!(report.segments.iter().all(|segment| segment.why == RecoveryReason::Unclean));
    }
}

// ---- truncation ----

#[test]
fn c03_r321_truncation_to_several_offsets() {
    let row = row("c03_r321");
    for place in places() {
        let log = place.open(&segments_of(number(&row["perSegment"])));
        fill(&log, number(&row["records"]));
        let size = log.size();
        for pair in lists(&row["truncate"]) {
            let changes = log.truncate_to(Offset(pair[0]), NOW).expect("truncated");
            assert_eq!(changes, pair[1] < number(&row["records"]), "{pair:?}");
            assert_eq!(log.log_end_offset(), Offset(pair[1]));
            assert_eq!(log.size(), size / 30 * pair[1] as u64);
            assert_eq!(bounds(&log), (0..pair[1]).map(|at| (at, at)).collect::<Vec<_>>());
        }
        assert_eq!(lead(&log, &range(0, 0)).first_offset, Offset(0));
    }
}

#[test]
fn c03_r322_truncation_below_the_log_start() {
    let row = row("c03_r322");
    for place in places() {
        let log = place.open(&every_batch());
        log.truncate_fully_and_start_at(Offset(number(&row["start"])), None, NOW).expect("restarted");
        fill(&log, number(&row["records"]));
        assert!(log.truncate_to(Offset(number(&row["truncate"])), NOW).expect("truncated"));
        assert_eq!((log.log_start_offset(), log.log_end_offset()), (Offset(0), Offset(0)));
        assert_eq!((log.size(), bases(&log)), (0, vec![0]));
        fill(&log, 1);
        assert_eq!(bounds(&log), [(0, 0)]);
    }
}

#[test]
fn c03_r323_room_of_the_indexes_after_a_truncation() {
    let row = row("c03_r323");
    for place in places() {
        let bytes = number(&row["indexBytes"]) as u32;
        let config = LogConfig { segment_index_bytes: bytes, ..every_batch() };
        let log = place.open(&config);
        fill(&log, 30);
        let rolled_at = log.segment_base_offsets()[1].0;
        assert!(log.segments_count() > 2);
        log.truncate_to(Offset(0), NOW).expect("truncated");
        let held = log.snapshot();
        let [segment] = held.segments() else { panic!("one segment") };
        let capacity = |kind: &str| match kind {
            "offsetEntries" => segment.offset_index().expect("an index").capacity(),
            _ => segment.time_index().expect("an index").capacity(),
        };
        for kind in ["offsetEntries", "timeEntries"] {
            assert_eq!(capacity(kind) as i64, number(&row[kind]), "{kind}");
        }
        drop(held);
        fill(&log, 30);
        assert_eq!(log.segment_base_offsets()[1].0, rolled_at, "the segment takes as much as before");
    }
}

#[test]
fn c03_r324_truncation_to_a_negative_offset() {
    let (place, _) = memory();
    let log = place.open(&every_batch());
    fill(&log, 3);
    let refused = log.truncate_to(Offset(-1), NOW);
    assert!(matches!(refused, Err(Error::NegativeOffset { .. })), "{refused:?}");
    let refused = log.truncate_fully_and_start_at(Offset(-1), None, NOW);
    assert!(matches!(refused, Err(Error::NegativeOffset { .. })), "{refused:?}");
    assert_eq!((log.log_end_offset(), log.is_poisoned()), (Offset(3), false));
}

#[test]
fn c03_r326_the_recovery_point_after_a_truncation() {
    let row = row("c03_r326");
    for place in places() {
        let log = place.open(&segments_of(10));
        fill(&log, number(&row["records"]));
        log.flush(Offset(i64::MAX)).expect("flushed");
        assert_eq!(log.recovery_point(), Offset(number(&row["records"])));
        let target = Offset(number(&row["truncate"]));
        log.truncate_to(target, NOW).expect("truncated");
        assert!(log.recovery_point() <= target);
        let segments = log.snapshot().segments().len();
        assert_eq!(segments, 2);
        // The power goes: what is there is there, whatever the checkpoint file says.
        drop(log);
        let stale = redrive::log::LogState { recovery_point: Offset(30), ..state(false) };
        let (log, report) = place.open_as(&segments_of(10), &stale);
        assert_eq!((log.log_end_offset(), log.recovery_point()), (target, target));
        assert!(!report.lost_records());
        assert!(place.names().contains(&log_name(10)));
        assert!(log.snapshot().segments()[1].path(SegmentFileKind::Log).ends_with(log_name(10)));
    }
}
