//! What readers hold of a log while it changes: nothing of it may change, and no page of it may vanish, since touching
//! one that has kills the process. And readers beside a writer see whole batches, in order, without a gap.

mod log_place;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

use log_place::{NOW, Place, bounds, follow, lead, log_name, on_disk, places, range, state, timed};
use redrive::batch::{BatchFrame, Limits};
use redrive::io::Region;
use redrive::log::{HeldLog, Log, LogConfig, LogRecovery, LogState, ReadUpTo};
use redrive::types::Offset;
use redrive_tests::logs::Rng;

fn config(segment_bytes: u32) -> LogConfig {
    LogConfig { segment_bytes, index_interval_bytes: 100, segment_index_bytes: 4096, ..LogConfig::default() }
}

/// Everything that a reader can get hold of, and copies of it.
struct Held {
    log: HeldLog,
    end: i64,
    regions: Vec<(Region, Vec<u8>)>,
}

impl Held {
    fn of(log: &Log) -> Self {
        let held = log.snapshot();
        let mut regions: Vec<Region> =
            held.segments().iter().map(|segment| segment.bytes().expect("bytes")).collect();
        let start = held.offsets().log_start_offset.0;
        // The log may end behind its last batch.
        let end = bounds(log).last().map_or(start, |(_, last)| last + 1);
        for offset in start..end {
            for limit in [1, 200, 1 << 20] {
                let read = held.read(Offset(offset), limit, ReadUpTo::LogEnd, true).expect("a read");
                regions.push(read.bytes);
            }
        }
        let regions = regions.into_iter().map(|region| (region.clone(), region.to_vec())).collect();
        Self { log: held, end, regions }
    }

    fn check(&self, why: &str) {
        for (region, copy) in &self.regions {
            assert!(region[..] == copy[..], "held bytes changed: {why}");
        }
        // The held log still finds what was there, also what was never looked for before.
        let start = self.log.offsets().log_start_offset.0;
        assert!(self.log.offsets().log_end_offset.0 >= self.end);
        for offset in start..self.end {
            let read = self.log.read(Offset(offset), 1, ReadUpTo::LogEnd, true).expect("a read");
            let frame = BatchFrame::new(&read.bytes).expect("a batch");
            assert!(frame.verify().is_ok() && frame.base_offset().0 <= offset, "{offset}: {why}");
            assert!(frame.last_offset().0 >= offset, "{offset}: {why}");
            let time = self.log.find_by_timestamp(NOW + offset, ReadUpTo::LogEnd, &Limits::default());
            let found = time.unwrap_or_else(|error| panic!("{why}: {error}"));
            assert_eq!(found.map(|found| found.offset.0), Some(offset), "{why}");
        }
    }
}

fn fill(log: &Log, records: i64) {
    for _ in 0..records {
        let at = log.log_end_offset().0;
        lead(log, &timed(0, &[NOW + at, NOW + at + 1]));
    }
}

#[test]
fn held_bytes_stay_what_they_are() {
    for place in places() {
        for segment_bytes in [500, 1 << 20] {
            let config = config(segment_bytes);
            let log = place.open(&config);
            log.truncate_fully_and_start_at(Offset(0), None, NOW).expect("emptied");
            let mut held: Vec<Held> = Vec::new();
            let mut check = |log: &Log, what: &str| {
                held.iter().for_each(|held| held.check(&format!("{what}, segments of {segment_bytes}")));
                held.push(Held::of(log));
            };
            fill(&log, 20);
            check(&log, "appended");
            // Inside a batch, inside a segment.
            assert!(log.truncate_to(Offset(31), NOW).expect("truncated"));
            check(&log, "truncated");
            log.truncate_to(Offset(30), NOW).expect("truncated");
            fill(&log, 20);
            check(&log, "other bytes at the same offsets");
            log.truncate_to(Offset(4), NOW).expect("truncated");
            check(&log, "truncated over segments");
            fill(&log, 10);
            log.roll(NOW).expect("rolled");
            check(&log, "rolled, indexes trimmed");
            log.remove_deleted(i64::MAX).expect("removed");
            check(&log, "files removed");
            log.update_high_watermark(log.log_end_offset()).expect("an offset");
            log.increment_log_start_offset(Offset(16)).expect("moved");
            log.delete_before_log_start(NOW).expect("deleted");
            check(&log, "segments deleted");
            log.remove_deleted(i64::MAX).expect("removed");
            check(&log, "their files removed");
            log.truncate_fully_and_start_at(Offset(24), None, NOW).expect("emptied");
            check(&log, "emptied");
            fill(&log, 3);
            log.remove_deleted(i64::MAX).expect("removed");
            check(&log, "all files removed");
            log.close().expect("closed");
            check(&log, "closed, indexes trimmed");
            let elsewhere = place.directory.with_file_name("t-0-delete");
            log.rename_directory(&elsewhere).expect("renamed");
            check(&log, "renamed");
            for name in place.storage.list(&elsewhere).expect("a folder") {
                place.storage.remove_file(&elsewhere.join(name.name)).expect("removed");
            }
            place.storage.remove_dir(&elsewhere).expect("removed");
            check_all(&held, "folder removed");
        }
    }
}

fn check_all(held: &[Held], why: &str) {
    held.iter().for_each(|held| held.check(why));
}

#[test]
fn held_bytes_outlive_a_recovery_that_cuts() {
    for place in places() {
        let config = config(1000);
        let log = place.open(&config);
        fill(&log, 30);
        let held = Held::of(&log);
        drop(log);
        // Damage that nobody holds: behind the last batch, and a whole segment behind it.
        let last = place.with_suffix(".log").last().expect("a segment").clone();
        place
            .storage
            .open_writable(&place.path(&last))
            .expect("a file")
            .write_at(4000, &[7; 100])
            .expect("written");
        place.put(log_name(900), &range(900, 901).encode());
        let (log, report) = place.open_unclean(&config);
        assert!(report.lost_records(), "{report:?}");
        assert_eq!(log.log_end_offset(), Offset(60));
        held.check("recovered");
        let again = Held::of(&log);
        fill(&log, 10);
        log.truncate_to(Offset(7), NOW).expect("truncated");
        log.remove_deleted(i64::MAX).expect("removed");
        held.check("truncated after a recovery");
        again.check("truncated after a recovery");
    }
}

/// A closed log of one segment, opened anew: nothing of its indexes has been looked at.
fn fresh(place: &Place, config: &LogConfig) -> Log {
    let log = place.open(config);
    fill(&log, 200);
    log.close().expect("closed");
    drop(log);
    place.open(config)
}

/// What the one writer does.
fn write(log: &Log) {
    for round in 0..6 {
        fill(log, 40);
        if round % 2 == 0 {
            log.roll(NOW).expect("rolled");
        }
    }
}

#[test]
fn fc_90_many_readers_open_one_index_at_once() {
    let config = config(1 << 20);
    for _ in 0..4 {
        let place = on_disk();
        let log = Arc::new(fresh(&place, &config));
        let barrier = Arc::new(Barrier::new(65));
        let threads: Vec<_> = (0..64)
            .map(|number| {
                let (log, barrier) = (Arc::clone(&log), Arc::clone(&barrier));
                thread::spawn(move || {
                    let mut rng = Rng::new(number);
                    barrier.wait();
                    for _ in 0..100 {
                        let end = log.log_end_offset().0;
                        let offset = rng.below(end as u64) as i64;
                        let read = log.read(Offset(offset), 1, ReadUpTo::LogEnd, true).expect("a read");
                        let base = BatchFrame::new(&read.bytes).expect("a batch").base_offset().0;
                        assert_eq!(base, offset / 2 * 2);
                        let time = NOW + offset;
                        let found = log.find_by_timestamp(time, ReadUpTo::LogEnd, &Limits::default());
                        assert_eq!(found.expect("a search").map(|found| found.offset.0), Some(offset));
                    }
                    let held = log.snapshot();
                    let first = &held.segments()[0];
                    std::ptr::from_ref(first.offset_index().expect("an index")) as usize
                })
            })
            .collect();
        barrier.wait();
        write(&log);
        let indexes: Vec<usize> = threads.into_iter().map(|t| t.join().expect("no panic")).collect();
        assert!(indexes.windows(2).all(|pair| pair[0] == pair[1]), "one index, shared by all");
        log.close().expect("closed");
        let alone = on_disk();
        let single = fresh(&alone, &config);
        write(&single);
        single.close().expect("closed");
        assert!(place.files() == alone.files(), "files as with one thread");
    }
}

#[test]
fn readers_beside_a_writer_see_whole_prefixes() {
    let config = LogConfig { segment_index_bytes: 400, ..config(3000) };
    let place = on_disk();
    let log = place.open(&config);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for number in 0..4 {
            let (log, done) = (&log, &done);
            scope.spawn(move || {
                let mut rng = Rng::new(number);
                let (mut looks, mut last_end) = (0, 0);
                while !done.load(Ordering::Acquire) || looks < 50 {
                    looks += 1;
                    let end = log.log_end_offset().0;
                    assert!(end >= last_end, "the end goes back");
                    last_end = end;
                    let mut at = if end == 0 { 0 } else { rng.below(end as u64) as i64 };
                    let mut is_first = true;
                    while at < end {
                        let read = log.read(Offset(at), 700, ReadUpTo::LogEnd, true).expect("a read");
                        let mut rest = &read.bytes[..];
                        assert!(!rest.is_empty(), "{at} is below the end {end}, and not there");
                        while let Ok((frame, after)) = BatchFrame::parse(rest) {
                            let base = frame.base_offset().0;
                            assert!(base == at || (is_first && base < at), "{base} where {at} is due");
                            frame.verify().expect("a whole batch");
                            (at, rest, is_first) = (frame.last_offset().0 + 1, after, false);
                        }
                    }
                }
            });
        }
        let mut rng = Rng::new(99);
        for _ in 0..1500 {
            let mut at = log.log_end_offset().0;
            let batches: Vec<_> = (0..=rng.below(3))
                .map(|_| {
                    let last = at + rng.below(4) as i64;
                    let batch = range(at, last);
                    at = last + 1;
                    batch
                })
                .collect();
            follow(&log, &batches);
        }
        done.store(true, Ordering::Release);
    });
    assert!(log.segments_count() > 50);
}

/// An unclean start while a former log of the folder is still read: two logs, one folder, as in a fail-over.
#[test]
fn held_logs_outlive_the_log() {
    for place in places() {
        let log = place.open(&config(500));
        fill(&log, 20);
        let held = Held::of(&log);
        log.close().expect("closed");
        drop(log);
        let from = LogState { recovery_point: Offset(0), ..state(false) };
        let (log, report): (Log, LogRecovery) = place.open_as(&config(500), &from);
        assert!(!report.lost_records());
        // This log gave nobody anything, but the former one of the same files did.
        assert!(log.truncate_to(Offset(21), NOW).expect("truncated"));
        held.check("the folder has another log, which was cut");
        log.truncate_fully_and_start_at(Offset(3), None, NOW).expect("emptied");
        log.remove_deleted(i64::MAX).expect("removed");
        held.check("the folder has another log");
    }
}
