//! Rows of the chapter on logs about what opening a log does: producer snapshots, unclean stops, unfinished work.
//!
//! Each runs on the storage in memory and on the file system. Right results are data, in `fixtures/cases/log.json`.

mod log_place;

use std::collections::BTreeMap;

use log_place::{
    NOW, Place, bases, bounds, first, follow, index_name, lead, lead_marker, log_name, number, numbers,
    places, produced, producers, range, row, snapshots, state, timed, transactional,
};
use redrive::Error;
use redrive::batch::Limits;
use redrive::log::{Log, LogConfig, LogState, ReadUpTo};
use redrive::types::Offset;
use redrive_tests::logs::BatchSpec;

fn every_batch() -> LogConfig {
    LogConfig {
        index_interval_bytes: 0,
        segment_index_bytes: 4096,
        producer_id_expiration_ms: i64::from(i32::MAX),
        ..LogConfig::default()
    }
}

/// Settings under which a segment holds this many batches of one record.
fn segments_of(batches: i64) -> LogConfig {
    let size = range(0, 0).encode().len() as u32;
    LogConfig { segment_bytes: size * batches as u32, ..every_batch() }
}

/// Records at offsets from the log end on, the time of each the tests' time plus its offset.
fn fill(log: &Log, records: i64) {
    for _ in 0..records {
        let offset = log.log_end_offset().0;
        lead(log, &timed(0, &[NOW + offset]));
    }
}

fn singles(offsets: std::ops::Range<i64>) -> Vec<(i64, i64)> {
    offsets.map(|offset| (offset, offset)).collect()
}

/// A closed log with segments of these bases, each full of one-record batches up to the next.
fn closed(place: &Place, bases: &[i64], end: i64) {
    let log = place.open(&every_batch());
    if bases[0] > 0 {
        log.truncate_fully_and_start_at(Offset(bases[0]), None, NOW).expect("restarted");
    }
    for next in bases[1..].iter().chain([&end]) {
        fill(&log, next - log.log_end_offset().0);
        if *next < end || bases.last() == Some(&end) {
            log.roll(NOW).expect("rolled");
        }
    }
    assert_eq!(log_place::bases(&log), bases);
    log.close().expect("closed");
}

/// A snapshot of no producer.
const EMPTY_SNAPSHOT: [u8; 10] = [0, 1, 0x48, 0x67, 0x4b, 0xc7, 0, 0, 0, 0];

fn snapshot_name(offset: i64) -> String {
    format!("{offset:020}.snapshot")
}

fn put_snapshots(place: &Place, offsets: &[i64]) {
    for name in place.with_suffix(".snapshot") {
        place.remove(name);
    }
    offsets.iter().for_each(|offset| place.put(snapshot_name(*offset), &EMPTY_SNAPSHOT));
}

// ---- producer snapshots ----

#[test]
fn c03_r160_nothing_new_gets_no_snapshot() {
    let expected = numbers(&row("c03_r160")["snapshots"]);
    for place in places() {
        let log = place.open(&every_batch());
        fill(&log, 3);
        log.close().expect("closed");
        drop(log);
        assert_eq!(snapshots(&place), expected);
        let before = place.files();
        for _ in 0..2 {
            let log = place.open(&every_batch());
            assert!(log.roll(NOW).expect("rolled") || log.log_end_offset() == Offset(3));
            log.close().expect("closed");
            drop(log);
            assert_eq!(snapshots(&place), expected);
        }
        assert_eq!(place.file(snapshot_name(3)), before[&snapshot_name(3)]);
    }
}

#[test]
fn c03_r161_snapshots_out_of_the_log() {
    let row = row("c03_r161");
    for place in places() {
        let log = place.open(&segments_of(1));
        fill(&log, number(&row["segments"]));
        log.roll(NOW).expect("rolled");
        assert_eq!(snapshots(&place), [1, 2, 3, 4, 5]);
        log.update_high_watermark(Offset(5)).expect("an offset");
        log.increment_log_start_offset(Offset(number(&row["logStart"]))).expect("moved");
        log.truncate_to(Offset(number(&row["end"])), NOW).expect("truncated");
        assert_eq!(snapshots(&place), numbers(&row["snapshots"]));
    }
}

/// A log with a producer in each of four segments; the producers are those ids.
fn produced_log(place: &Place) -> Vec<redrive::producer_state::ProducerEntry> {
    let log = place.open(&every_batch());
    for id in 1..5 {
        lead(&log, &produced(0, 1, id, 0, 0));
        if id < 4 {
            log.roll(NOW).expect("rolled");
        }
    }
    assert_eq!(snapshots(place), [1, 2, 3]);
    log.close().expect("closed");
    producers(&log)
}

#[test]
fn c03_r166_snapshots_that_cannot_be_used() {
    let row = row("c03_r166");
    for damage in ["empty", "half", "overwritten"] {
        for place in places() {
            let expected = produced_log(&place);
            assert_eq!(expected.len(), 4);
            for offset in [3, 4] {
                place.edit(snapshot_name(offset), |bytes| match damage {
                    "empty" => bytes.clear(),
                    "half" => bytes.truncate(bytes.len() / 2),
                    _ => bytes[20..28].fill(0x5a),
                });
            }
            let damaged = place.file(snapshot_name(4));
            let (log, report) = place.open_as(&every_batch(), &state(true));
            assert_eq!(report.producers.snapshot.map(|offset| offset.0), row["older"].as_i64(), "{damage}");
            assert_eq!(report.producers.unusable.len(), 2, "{damage}");
            assert_eq!(producers(&log), expected, "{damage}");
            assert_ne!(place.file(snapshot_name(4)), damaged, "{damage}");
        }
    }
}

fn check_strays(name: &str) {
    let row = row(name);
    for place in places() {
        closed(&place, &numbers(&row["bases"]), number(&row["end"]));
        put_snapshots(&place, &numbers(&row["given"]));
        let log = place.open(&every_batch());
        assert_eq!(snapshots(&place), numbers(&row["left"]), "{name}");
        assert_eq!(log.log_end_offset(), Offset(number(&row["end"])));
    }
}

#[test]
fn c03_r167_a_stray_snapshot_below() {
    check_strays("c03_r167");
}

#[test]
fn c03_r168_stray_snapshots_inside_a_segment() {
    check_strays("c03_r168");
}

#[test]
fn c03_r169_a_stray_snapshot_between() {
    check_strays("c03_r169");
}

#[test]
fn c03_r170_a_snapshot_of_an_empty_log() {
    for place in places() {
        place.put(snapshot_name(number(&row("c03_r170")["given"])), &EMPTY_SNAPSHOT);
        let log = place.open(&every_batch());
        assert!(snapshots(&place).is_empty());
        assert_eq!(log.log_end_offset(), Offset(0));
    }
}

#[test]
fn c03_r171_a_snapshot_that_is_gone_already() {
    for place in places() {
        let log = place.open(&segments_of(2));
        fill(&log, 6);
        place.remove(snapshot_name(2));
        log.update_high_watermark(Offset(6)).expect("an offset");
        log.increment_log_start_offset(Offset(4)).expect("moved");
        assert_eq!(log.delete_before_log_start(NOW).expect("deleted"), 2);
        assert_eq!(log.remove_deleted(i64::MAX).expect("removed"), 2);
        assert_eq!(snapshots(&place), [4]);
    }
}

#[test]
fn c03_r172_snapshots_of_truncated_logs() {
    for place in places() {
        let log = place.open(&every_batch());
        for (records, id) in [(2, 1), (1, 2)] {
            (0..records).for_each(|sequence| {
                lead(&log, &produced(0, 1, id, 0, sequence));
            });
            log.roll(NOW).expect("rolled");
        }
        assert_eq!(snapshots(&place), [2, 3]);
        for triple in row("c03_r172")["truncate"].as_array().expect("triples") {
            log.truncate_to(Offset(number(&triple[0])), NOW).expect("truncated");
            assert_eq!(snapshots(&place).last().copied(), triple[1].as_i64(), "{triple}");
            assert_eq!(log.producer_state().map_end_offset(), Offset(number(&triple[2])));
            assert_eq!(producers(&log).len(), usize::from(number(&triple[0]) > 0));
        }
    }
}

#[test]
fn c03_r173_a_log_that_begins_anew_knows_no_producer() {
    let start = number(&row("c03_r173")["start"]);
    for place in places() {
        let log = place.open(&every_batch());
        for id in 1..4 {
            lead(&log, &produced(0, 1, id, 0, 0));
            log.roll(NOW).expect("rolled");
        }
        log.truncate_fully_and_start_at(Offset(start), None, NOW).expect("restarted");
        assert!(snapshots(&place).is_empty() && producers(&log).is_empty());
        assert_eq!(log.producer_state().map_end_offset(), Offset(start));
    }
}

#[test]
fn c03_r174_an_open_transaction_comes_back() {
    let row = row("c03_r174");
    for place in places() {
        let log = place.open(&every_batch());
        log.truncate_fully_and_start_at(Offset(number(&row["first"])), None, NOW).expect("restarted");
        follow(&log, &[transactional(produced(99, 1, 1, 0, 0))]);
        log.roll(NOW).expect("rolled");
        fill(&log, 5);
        let marker = lead_marker(&log, 1, 0, true);
        assert_eq!(marker.first_offset, Offset(number(&row["marker"])));
        log.roll(NOW).expect("rolled");
        log.close().expect("closed");
        drop(log);
        let log = place.open(&every_batch());
        for pair in row["ends"].as_array().expect("pairs") {
            log.truncate_to(Offset(number(&pair[0])), NOW).expect("truncated");
            let open = log.producer_state().first_undecided_offset();
            assert_eq!(open.map(|offset| offset.0), pair[1].as_i64(), "{pair}");
        }
    }
}

#[test]
fn c03_r177_snapshots_that_were_lost_are_written_again() {
    let row = row("c03_r177");
    for place in places() {
        let log = place.open(&segments_of(2));
        for id in 0..10 {
            lead(&log, &produced(0, 1, id, 0, 0));
        }
        // Batches of a producer are as long as others.
        assert_eq!(log.segments_count() as i64, number(&row["segments"]));
        let expected = producers(&log);
        log.close().expect("closed");
        drop(log);
        let given = numbers(&row["given"]);
        for offset in snapshots(&place).into_iter().filter(|offset| !given.contains(offset)) {
            place.remove(snapshot_name(offset));
        }
        let from = LogState { recovery_point: Offset(2), ..state(false) };
        let (log, report) = place.open_as(&segments_of(2), &from);
        let recovered: Vec<i64> = report.segments.iter().map(|segment| segment.base_offset.0).collect();
        assert_eq!(recovered, [2, 4, 6, 8]);
        assert!(report.segments.iter().all(|segment| segment.batches == 2));
        assert_eq!(producers(&log), expected);
        assert_eq!(snapshots(&place), numbers(&row["left"]));
    }
}

fn ids(log: &Log) -> Vec<i64> {
    producers(log).iter().map(|entry| entry.producer_id.0).collect()
}

fn two_producers(place: &Place, log_start: i64, deletes: bool) -> Log {
    let log = place.open(&every_batch());
    lead(&log, &produced(0, 3, 1, 0, 0));
    log.roll(NOW).expect("rolled");
    lead(&log, &produced(0, 1, 2, 0, 0));
    lead(&log, &produced(0, 1, 2, 0, 1));
    log.update_high_watermark(log.log_end_offset()).expect("an offset");
    log.increment_log_start_offset(Offset(log_start)).expect("moved");
    if deletes {
        assert_eq!(log.delete_before_log_start(NOW).expect("deleted"), 1);
    }
    drop(log);
    let from = LogState { log_start_offset: Some(Offset(log_start)), ..state(false) };
    place.open_as(&every_batch(), &from).0
}

#[test]
fn c03_r178_a_log_start_inside_a_segment() {
    for place in places() {
        let log = two_producers(&place, 1, false);
        assert_eq!(log.log_start_offset(), Offset(1));
        assert_eq!(ids(&log), numbers(&row("c03_r178")["producers"]));
    }
}

#[test]
fn c03_r179_a_log_start_at_the_next_segment() {
    for place in places() {
        let log = two_producers(&place, 3, true);
        assert_eq!(log.log_start_offset(), Offset(3));
        assert_eq!(ids(&log), numbers(&row("c03_r179")["producers"]));
    }
}

// ---- start-up and recovery ----

#[test]
fn c03_r283_a_closed_log_is_not_gone_through() {
    for place in places() {
        let log = place.open(&segments_of(4));
        fill(&log, 10);
        log.close().expect("closed");
        drop(log);
        // A broken batch in the first segment stays what it is: nobody looks.
        place.edit(log_name(0), |bytes| bytes[75] ^= 1);
        let (log, report) = place.open_as(&segments_of(4), &state(true));
        assert_eq!((report.segments, log.log_end_offset()), (vec![], Offset(10)));
        assert_eq!(log.recovery_point(), Offset(10));
    }
}

#[test]
fn c03_r285_the_recovery_point_after_an_unclean_start() {
    let row = row("c03_r285");
    for place in places() {
        let log = place.open(&segments_of(30));
        fill(&log, number(&row["records"]));
        drop(log);
        let point = Offset(number(&row["recoveryPoint"]));
        let (log, report) =
            place.open_as(&segments_of(30), &LogState { recovery_point: point, ..state(false) });
        assert_eq!((log.log_end_offset().0, log.recovery_point()), (number(&row["records"]), point));
        assert!(!report.lost_records());
        log.flush(Offset(i64::MAX)).expect("flushed");
        assert_eq!(log.recovery_point().0, number(&row["afterFlush"]));
    }
}

/// Every offset and every time is found.
fn check_lookups(log: &Log, end: i64) {
    for offset in 0..end {
        assert_eq!(first(log, offset, 1, true), Some(offset));
        let found = log.find_by_timestamp(NOW + offset, ReadUpTo::LogEnd, &Limits::default());
        assert_eq!(found.expect("a search").map(|found| found.offset.0), Some(offset));
    }
}

/// Index files of the log when all is well.
fn index_files(place: &Place) -> BTreeMap<String, Vec<u8>> {
    let mut files = place.files();
    files.retain(|name, _| name.ends_with("index"));
    files
}

#[test]
fn c03_r286_lost_indexes() {
    for place in places() {
        let log = place.open(&segments_of(7));
        fill(&log, 20);
        log.close().expect("closed");
        drop(log);
        let before = index_files(&place);
        assert_eq!(before.len(), 6);
        before.keys().for_each(|name| place.remove(name));
        let (log, _) = place.open_unclean(&segments_of(7));
        check_lookups(&log, 20);
        log.close().expect("closed");
        drop(log);
        assert_eq!(index_files(&place), before);
    }
}

#[test]
fn c03_r287_garbage_in_indexes() {
    for place in places() {
        let log = place.open(&segments_of(7));
        fill(&log, 20);
        log.close().expect("closed");
        drop(log);
        let before = index_files(&place);
        for (name, bytes) in &before {
            place.put(name, &b"garbage.".repeat(bytes.len() / 4));
        }
        let (log, _) = place.open_unclean(&segments_of(7));
        check_lookups(&log, 20);
        log.close().expect("closed");
        drop(log);
        assert_eq!(index_files(&place), before);
    }
}

#[test]
fn c03_r288_indexes_without_a_log() {
    for place in places() {
        closed(&place, &[0], 3);
        for suffix in ["index", "timeindex", "txnindex"] {
            place.put(format!("{:020}.{suffix}", 70), &[0; 24]);
        }
        let (log, report) = place.open_as(&every_batch(), &state(true));
        assert_eq!(report.tidied.len(), 3);
        assert!(place.names().iter().all(|name| !name.contains("70.")));
        assert_eq!((log.log_end_offset(), bases(&log)), (Offset(3), vec![0]));
    }
}

#[test]
fn c03_r289_garbage_behind_the_last_batch() {
    let row = row("c03_r289");
    for length in numbers(&row["garbage"]) {
        for place in places() {
            let log = place.open(&every_batch());
            fill(&log, number(&row["records"]));
            let size = log.size();
            drop(log);
            let garbage = (0..length).map(|at| (at * 31 + 7) as u8);
            place.edit(log_name(0), |bytes| bytes.extend(garbage));
            let (log, report) = place.open_unclean(&every_batch());
            let cut = report.segments[0].cut.clone().expect("a cut");
            assert_eq!((cut.position, cut.bytes), (size, length as u64));
            assert_eq!(place.file(log_name(0)).len() as u64, size);
            fill(&log, 1);
            assert_eq!(bounds(&log), singles(0..number(&row["records"]) + 1));
        }
    }
}

#[test]
fn c03_r290_damage_at_any_byte() {
    let size = range(0, 0).encode().len();
    for at in (0..6 * size).step_by(5) {
        let (place, _) = log_place::memory();
        let log = place.open(&segments_of(2));
        fill(&log, 10);
        drop(log);
        let segment = at / (2 * size);
        let base = 2 * segment as i64;
        place.edit(log_name(base), |bytes| bytes[at % (2 * size)] ^= 0x10);
        let kept = (at / size) as i64;
        let (log, report) = place.open_unclean(&segments_of(2));
        // Changed there is no damage: a leader's epoch has no checksum, and a base offset has none either.
        let place_in_batch = at % size;
        if place_in_batch < 8 || (12..16).contains(&place_in_batch) {
            continue;
        }
        assert_eq!(log.log_end_offset(), Offset(kept), "byte {at}: {report:?}");
        assert_eq!(bounds(&log), singles(0..kept));
        let dropped: Vec<i64> = report.dropped.iter().map(|base| base.0).collect();
        assert_eq!(dropped, (base + 2..10).step_by(2).collect::<Vec<_>>());
        assert!(snapshots(&place).iter().all(|offset| *offset <= kept));
        assert_eq!(bases(&log).last(), Some(&base));
    }
}

#[test]
fn c03_r291_a_log_that_ends_below_its_start() {
    let row = row("c03_r291");
    for place in places() {
        let log = place.open(&segments_of(1));
        fill(&log, number(&row["records"]));
        drop(log);
        place.edit(log_name(1), |bytes| bytes.fill(0xff));
        let start = Offset(number(&row["logStart"]));
        let from = LogState { log_start_offset: Some(start), ..state(false) };
        // Nobody's records are thrown away unasked.
        let refused = place.try_open(&segments_of(1), &from);
        assert!(matches!(refused, Err(Error::EndsBelowLogStart { .. })), "{refused:?}");
        let (log, report) = place.open_as(&segments_of(1), &LogState { may_reset: true, ..from });
        assert!(report.was_reset && report.lost_records());
        assert_eq!(bases(&log), numbers(&row["bases"]));
        assert_eq!((log.log_start_offset(), log.log_end_offset(), log.size()), (start, start, 0));
        // What is appended now has snapshots of the same names as what is to be removed.
        fill(&log, 3);
        let kept = snapshots(&place);
        assert_eq!(kept, [5, 6]);
        log.remove_deleted(i64::MAX).expect("removed");
        assert_eq!(snapshots(&place), kept);
        assert_eq!(bounds(&log), singles(4..7));
    }
}

#[test]
fn c03_r292_an_empty_last_segment() {
    for place in places() {
        let log = place.open(&segments_of(5));
        fill(&log, 5);
        log.roll(NOW).expect("rolled");
        log.flush(Offset(i64::MAX)).expect("flushed");
        drop(log);
        if place.names().contains(&index_name(5)) {
            place.remove(index_name(5));
        }
        let (log, report) = place.open_unclean(&segments_of(5));
        assert_eq!((log.log_end_offset(), bases(&log)), (Offset(5), vec![0, 5]));
        assert!(!report.lost_records());
        assert!(place.names().contains(&index_name(5)));
    }
}

#[test]
fn c03_r293_deleted_files() {
    for place in places() {
        closed(&place, &[0, 4], 6);
        for name in ["log", "index", "timeindex", "txnindex", "snapshot"] {
            place.put(format!("{:020}.{name}.deleted", 2), &[1, 2, 3]);
        }
        let (log, report) = place.open_as(&every_batch(), &state(true));
        assert_eq!(report.tidied.len(), 5);
        assert!(place.with_suffix(".deleted").is_empty());
        assert_eq!(bounds(&log), singles(0..6));
    }
}

// ---- unfinished cleaning: segments 0 and 4 hold offsets 0 to 7, cleaned they are one with 1, 3, 5 and 7 ----

fn cleaned_batches() -> Vec<u8> {
    [1, 3, 5, 7].into_iter().flat_map(|offset| timed(offset, &[NOW + offset]).encode()).collect()
}

const CLEANED: [(i64, i64); 6] = [(1, 1), (3, 3), (5, 5), (7, 7), (8, 8), (9, 9)];

fn before_cleaning(place: &Place) {
    closed(place, &[0, 4, 8], 10);
}

fn put_cleaned(place: &Place, kinds: &[&str], state: &str) {
    for kind in kinds {
        let bytes = if *kind == "log" { cleaned_batches() } else { Vec::new() };
        place.put(format!("{:020}.{kind}{state}", 0), &bytes);
    }
}

fn set_aside(place: &Place, suffix: &str) {
    for base in [0, 4] {
        for kind in ["log", "index", "timeindex"] {
            let name = format!("{base:020}.{kind}");
            if suffix.is_empty() {
                place.remove(&name);
            } else {
                place.rename(&name, format!("{name}{suffix}"));
            }
        }
    }
}

fn check_cleaning(place: &Place, expected: &[(i64, i64)]) {
    for is_clean in [false, true] {
        let (log, report) = place.open_as(&every_batch(), &state(is_clean));
        assert_eq!(bounds(&log), expected, "{report:?}");
        assert!(!report.lost_records(), "{report:?}");
        for (base, last) in expected {
            for offset in [*base, *last] {
                assert_eq!(first(&log, offset, 1, true), Some(*base));
                let time = log.find_by_timestamp(NOW + offset, ReadUpTo::LogEnd, &Limits::default());
                assert_eq!(time.expect("a search").map(|found| found.offset.0), Some(offset));
            }
        }
        for suffix in [".cleaned", ".swap", ".deleted"] {
            assert!(place.with_suffix(suffix).is_empty(), "{suffix}");
        }
        log.close().expect("closed");
    }
}

#[test]
fn c03_r294_only_cleaned_files() {
    for place in places() {
        before_cleaning(&place);
        put_cleaned(&place, &["log", "index", "timeindex"], ".cleaned");
        check_cleaning(&place, &singles(0..10));
    }
}

#[test]
fn c03_r295_a_part_renamed() {
    for (swap, cleaned) in [(&["timeindex"][..], &["log", "index"][..]), (&["log"], &["index", "timeindex"])]
    {
        for place in places() {
            before_cleaning(&place);
            put_cleaned(&place, swap, ".swap");
            put_cleaned(&place, cleaned, ".cleaned");
            check_cleaning(&place, &singles(0..10));
        }
    }
}

#[test]
fn c03_r296_all_renamed() {
    for place in places() {
        before_cleaning(&place);
        put_cleaned(&place, &["log", "index", "timeindex"], ".swap");
        check_cleaning(&place, &CLEANED);
    }
}

#[test]
fn c03_r297_old_files_on_their_way_out() {
    for place in places() {
        before_cleaning(&place);
        set_aside(&place, ".deleted");
        put_cleaned(&place, &["log", "index", "timeindex"], ".swap");
        check_cleaning(&place, &CLEANED);
    }
}

#[test]
fn c03_r298_one_file_not_yet_in_place() {
    for place in places() {
        before_cleaning(&place);
        set_aside(&place, "");
        put_cleaned(&place, &["log", "index"], "");
        put_cleaned(&place, &["timeindex"], ".swap");
        check_cleaning(&place, &CLEANED);
    }
}

#[test]
fn c03_r299_old_files_left() {
    for place in places() {
        before_cleaning(&place);
        set_aside(&place, ".deleted");
        put_cleaned(&place, &["log", "index", "timeindex"], "");
        check_cleaning(&place, &CLEANED);
    }
}

// ---- offsets out of reach ----

const FAR: i64 = 1 << 31;

fn overflowing() -> Vec<BatchSpec> {
    [0, 5, FAR + 1, FAR + 2, 2 * FAR + 7].map(|offset| range(offset, offset)).to_vec()
}

fn check_split(place: &Place, why: &str) {
    let (log, report) = place.open_unclean(&every_batch());
    let expected: Vec<_> = overflowing().iter().map(|batch| (batch.base_offset, batch.base_offset)).collect();
    assert_eq!(bounds(&log), expected, "{why}");
    assert_eq!(bases(&log), [0, FAR + 1, 2 * FAR + 7], "{why}");
    assert!(!report.lost_records(), "{why}: {report:?}");
    log.close().expect("closed");
    drop(log);
    assert!(place.names().iter().all(|name| !name.ends_with(".deleted") && !name.ends_with(".swap")));
    let (log, report) = place.open_as(&every_batch(), &state(true));
    assert!(report.segments.is_empty() && report.tidied.is_empty(), "{why}: {report:?}");
    assert_eq!(bounds(&log), expected);
}

#[test]
fn c03_r300_a_segment_is_split() {
    for place in places() {
        let bytes: Vec<u8> = overflowing().iter().flat_map(BatchSpec::encode).collect();
        place.put(log_name(0), &bytes);
        place.put(index_name(0), &[]);
        check_split(&place, "whole");
    }
}

#[test]
fn c03_r301_a_split_that_was_cut_off() {
    let batches = overflowing();
    let part = |range: std::ops::Range<usize>| batches[range].iter().flat_map(BatchSpec::encode).collect();
    let parts: [(i64, Vec<u8>); 3] = [(0, part(0..2)), (FAR + 1, part(2..4)), (2 * FAR + 7, part(4..5))];
    let bytes: Vec<u8> = part(0..5);
    // By part: what it is called when the power goes. Renamed from the last on.
    let phases: [(&str, [&str; 3], &str); 6] = [
        ("part cleaned", [".cleaned", "", ""], "live"),
        ("all cleaned", [".cleaned", ".cleaned", ".cleaned"], "live"),
        ("part swap", [".cleaned", ".swap", ".swap"], "live"),
        ("all swap", [".swap", ".swap", ".swap"], "live"),
        ("old deleted", [".swap", ".swap", ".swap"], ".deleted"),
        ("part in place", ["in place", ".swap", ".swap"], ".deleted"),
    ];
    for (phase, suffixes, old) in phases {
        for place in places() {
            if old == "live" {
                place.put(log_name(0), &bytes);
                place.put(index_name(0), &[]);
            } else {
                place.put(format!("{}{old}", log_name(0)), &bytes);
            }
            for ((base, bytes), suffix) in parts.iter().zip(suffixes) {
                match suffix {
                    "" => {}
                    "in place" => place.put(log_name(*base), bytes),
                    suffix => place.put(format!("{}{suffix}", log_name(*base)), bytes),
                }
            }
            check_split(&place, phase);
        }
    }
}

#[test]
fn c03_r302_offsets_far_apart_are_appended() {
    let row = row("c03_r302");
    for place in places() {
        let log = place.open(&every_batch());
        numbers(&row["offsets"]).iter().for_each(|&at| {
            follow(&log, &[range(at, at)]);
        });
        drop(log);
        for is_clean in [false, true] {
            let (log, report) = place.open_as(&every_batch(), &state(is_clean));
            assert_eq!(bases(&log), numbers(&row["bases"]));
            assert!(!report.lost_records());
            for offset in numbers(&row["offsets"]) {
                assert_eq!(first(&log, offset, 1, true), Some(offset));
            }
            log.close().expect("closed");
        }
    }
}

#[test]
fn c03_r303_a_truncation_after_a_restart() {
    let row = row("c03_r303");
    for place in places() {
        let log = place.open(&segments_of(10));
        fill(&log, number(&row["records"]));
        log.close().expect("closed");
        drop(log);
        let log = place.open(&segments_of(10));
        let target = number(&row["truncate"]);
        assert!(log.truncate_to(Offset(target), NOW).expect("truncated"));
        assert_eq!((log.segments_count(), log.log_end_offset()), (1, Offset(target)));
        assert_eq!(bounds(&log), singles(0..target));
    }
}
