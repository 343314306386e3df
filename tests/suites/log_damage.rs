//! Fault cases of files: torn tails, damage, indexes, checkpoints and snapshots that cannot be used.

mod log_place;

use log_place::{
    NOW, Place, bases, batches_from, bounds, epochs, first, follow, follow_at, index_name, lead, lead_at,
    lead_marker, log_name, memory, places, produced, producers, range, snapshots, state, timed,
    transactional,
};
use redrive::Error;
use redrive::batch::{BatchFrame, Limits};
use redrive::io::Operation;
use redrive::log::{Log, LogConfig, LogState, ReadUpTo};
use redrive::types::{Offset, ProducerId};
use redrive_tests::logs::{BatchSpec, RecordSpec, reseal};

fn config() -> LogConfig {
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
    LogConfig { segment_bytes: size * batches as u32, ..config() }
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

fn check_lookups(log: &Log, end: i64, why: &str) {
    for offset in 0..end {
        assert_eq!(first(log, offset, 1, true), Some(offset), "{why}");
        let found = log.find_by_timestamp(NOW + offset, ReadUpTo::LogEnd, &Limits::default());
        assert_eq!(found.expect("a search").map(|found| found.offset.0), Some(offset), "{why}");
    }
}

/// Three batches of a producer; the files after an unclean stop before the third, and the bytes of the log with it.
fn three_batches(place: &Place) -> (Vec<u8>, usize) {
    let log = place.open(&config());
    (0..2).for_each(|at| {
        lead(&log, &produced(0, 3, 1, 0, 3 * at));
    });
    let kept = log.size() as usize;
    lead(&log, &produced(0, 3, 1, 0, 6));
    drop(log);
    (place.file(log_name(0)), kept)
}

fn check_two_left(place: &Place, kept: usize, why: &str) {
    let (log, report) = place.open_unclean(&config());
    assert_eq!((log.log_end_offset(), bounds(&log)), (Offset(6), vec![(0, 2), (3, 5)]), "{why}: {report:?}");
    assert_eq!(place.file(log_name(0)).len(), kept, "{why}");
    let entry = producers(&log)[0];
    assert_eq!(entry.last_batch.map(|batch| batch.last_sequence), Some(5), "{why}");
    let held = log.snapshot();
    let segment = &held.segments()[0];
    let entries = segment.offset_index().expect("an index").entries();
    assert_eq!(entries.map(|entry| entry.offset.0).collect::<Vec<_>>(), [5], "{why}");
    assert_eq!(snapshots(place), [6], "{why}");
    // And the producer goes on where it was.
    assert_eq!(lead(&log, &produced(0, 1, 1, 0, 6)).first_offset, Offset(6), "{why}");
}

#[test]
fn fc_68_a_torn_last_batch() {
    for place in places() {
        let (bytes, kept) = three_batches(&place);
        for length in kept..bytes.len() {
            for name in place.names() {
                place.remove(name);
            }
            place.put(log_name(0), &bytes[..length]);
            check_two_left(&place, kept, &format!("{length} of {} bytes", bytes.len()));
        }
    }
}

#[test]
fn fc_69_a_tail_of_zeros() {
    for place in places() {
        let (bytes, kept) = three_batches(&place);
        for zeros in [1, 16, 17, 18, 61, 4096] {
            for name in place.names() {
                place.remove(name);
            }
            place.put(log_name(0), &[&bytes[..kept], &vec![0; zeros]].concat());
            check_two_left(&place, kept, &format!("{zeros} zeros"));
        }
    }
}

#[test]
fn fc_70_impossible_headers() {
    type Damage = fn(&mut [u8]);
    let damages: [(&str, Damage); 9] = [
        ("length -1", |batch| batch[8..12].copy_from_slice(&(-1i32).to_be_bytes())),
        ("length 0", |batch| batch[8..12].copy_from_slice(&0i32.to_be_bytes())),
        ("length 13", |batch| batch[8..12].copy_from_slice(&13i32.to_be_bytes())),
        ("length 2147483647", |batch| batch[8..12].copy_from_slice(&i32::MAX.to_be_bytes())),
        ("magic 9", |batch| batch[16] = 9),
        ("last offset delta -5", |batch| batch[23..27].copy_from_slice(&(-5i32).to_be_bytes())),
        ("records count -1", |batch| batch[57..61].copy_from_slice(&(-1i32).to_be_bytes())),
        ("sealed, records count -1", |batch| {
            batch[57..61].copy_from_slice(&(-1i32).to_be_bytes());
            reseal(batch);
        }),
        ("a flipped bit", |batch| batch[70] ^= 4),
    ];
    let size = range(0, 0).encode().len();
    for (what, damage) in damages {
        for place in places() {
            let log = place.open(&config());
            fill(&log, 5);
            drop(log);
            place.edit(log_name(0), |bytes| damage(&mut bytes[2 * size..3 * size]));
            let (log, report) = place.open_unclean(&config());
            assert_eq!(bounds(&log), singles(0..2), "{what}");
            let cut = report.segments[0].cut.clone().expect("a cut");
            assert_eq!((cut.position, cut.bytes), (2 * size as u64, 3 * size as u64), "{what}");
            assert!(!cut.reason.to_string().is_empty());
        }
    }
}

#[test]
fn fc_71_damage_below_the_recovery_point() {
    for place in places() {
        let log = place.open(&segments_of(2));
        fill(&log, 20);
        drop(log);
        place.edit(log_name(2), |bytes| bytes[70] ^= 1);
        let damaged = place.file(log_name(2));
        let from = LogState { recovery_point: Offset(10), ..state(false) };
        let (log, report) = place.open_as(&segments_of(2), &from);
        assert!(!report.lost_records(), "{report:?}");
        assert!(report.segments.iter().all(|segment| segment.base_offset >= Offset(10)));
        assert_eq!((log.log_end_offset(), log.segments_count()), (Offset(20), 10));
        assert_eq!(place.file(log_name(2)), damaged);
        for offset in 0..20 {
            let read = log.read(Offset(offset), 1, ReadUpTo::LogEnd, true).expect("a read");
            let (frame, _) = BatchFrame::parse(&read.bytes).expect("a batch");
            assert_eq!(frame.base_offset(), Offset(offset));
            assert_eq!(frame.verify().is_ok(), offset != 2, "{offset}");
        }
    }
}

#[test]
fn fc_72_index_entries_that_are_wrong() {
    type Damage = fn(&mut Vec<u8>);
    let damages: [(&str, Damage); 3] = [
        ("beyond the log", |index| {
            index.extend([0, 0, 0, 200, 0, 0x10, 0, 0]);
        }),
        ("twice", |index| {
            let last = index[index.len() - 8..].to_vec();
            index.extend(last);
        }),
        ("backwards", |index| {
            let (a, b) = (index[8..16].to_vec(), index[16..24].to_vec());
            index[8..16].copy_from_slice(&b);
            index[16..24].copy_from_slice(&a);
        }),
    ];
    for (what, damage) in damages {
        for is_clean in [true, false] {
            for place in places() {
                let log = place.open(&segments_of(8));
                fill(&log, 12);
                log.close().expect("closed");
                drop(log);
                let right = place.file(index_name(0));
                place.edit(index_name(0), damage);
                let (log, report) = place.open_as(&segments_of(8), &state(is_clean));
                let why = format!("{what}, clean {is_clean}");
                check_lookups(&log, 12, &why);
                assert_eq!(bounds(&log), singles(0..12), "{why}");
                assert!(!report.lost_records(), "{why}");
                log.close().expect("closed");
                drop(log);
                // After a clean stop another index is used in its place, and the file stays for `verify` to tell of.
                if !is_clean {
                    assert_eq!(place.file(index_name(0)), right, "{why}");
                }
            }
        }
    }
}

#[test]
fn fc_73_index_files_that_are_missing() {
    for (base, has_records) in [(0, true), (8, true), (8, false)] {
        for kinds in [&["index"][..], &["timeindex"], &["index", "timeindex"]] {
            for is_clean in [true, false] {
                for place in places() {
                    let log = place.open(&segments_of(8));
                    let end = if has_records { 12 } else { 8 };
                    fill(&log, end);
                    log.roll(NOW).expect("rolled");
                    log.truncate_to(Offset(end), NOW).expect("nothing to do");
                    log.close().expect("closed");
                    drop(log);
                    let before: Vec<_> =
                        kinds.iter().map(|kind| place.file(format!("{base:020}.{kind}"))).collect();
                    kinds.iter().for_each(|kind| place.remove(format!("{base:020}.{kind}")));
                    let (log, report) = place.open_as(&segments_of(8), &state(is_clean));
                    let why = format!("{base} {kinds:?}, clean {is_clean}: {report:?}");
                    assert_eq!(log.log_end_offset(), Offset(end), "{why}");
                    check_lookups(&log, end, &why);
                    log.close().expect("closed");
                    drop(log);
                    for (kind, before) in kinds.iter().zip(before) {
                        let path = format!("{base:020}.{kind}");
                        assert_eq!(place.file(path), before, "{kind} of {why}");
                    }
                }
            }
        }
    }
}

fn aborted_log(place: &Place) {
    let log = place.open(&config());
    follow(&log, &[transactional(produced(0, 1, 1, 0, 0))]);
    lead_marker(&log, 1, 0, false);
    fill(&log, 1);
    log.roll(NOW).expect("rolled");
    fill(&log, 1);
    log.close().expect("closed");
}

/// The reader of committed records, which must return offset 2 and 3 only, comes with the chapter on consumers.
#[test]
fn fc_74_transaction_indexes_that_are_missing_or_damaged() {
    let name = format!("{:020}.txnindex", 0);
    for damage in ["missing", "33 bytes", "version", "below the base"] {
        for place in places() {
            aborted_log(&place);
            let right = place.file(&name);
            assert_eq!(right.len(), 34);
            match damage {
                "missing" => place.remove(&name),
                "33 bytes" => place.edit(&name, |bytes| bytes.truncate(33)),
                "version" => place.edit(&name, |bytes| bytes[1] = 1),
                _ => place.edit(&name, |bytes| bytes[18..26].copy_from_slice(&(-9i64).to_be_bytes())),
            }
            if damage == "version" {
                // As with a broker. Without the file the segment is recovered.
                let refused = place.try_open(&config(), &state(false));
                assert!(
                    matches!(&refused, Err(Error::Index { path, .. }) if path.ends_with(&name)),
                    "{refused:?}"
                );
                place.remove(&name);
            }
            let (log, report) = place.open_unclean(&config());
            assert!(report.segments.iter().any(|segment| segment.base_offset == Offset(0)), "{damage}");
            assert_eq!(place.file(&name), right, "{damage}");
            let held = log.snapshot();
            let aborted: Vec<_> = held.segments()[0].aborted_transactions().expect("entries").collect();
            let found: Vec<_> =
                aborted.iter().map(|e| (e.producer_id, e.first_offset, e.last_offset)).collect();
            assert_eq!(found, [(ProducerId(1), Offset(0), Offset(1))], "{damage}");
        }
    }
}

#[test]
fn fc_75_one_bad_index_in_an_old_segment() {
    let (place, storage) = memory();
    let log = place.open(&segments_of(50));
    for sequence in 0..1000 {
        lead(&log, &produced(0, 1, 1, 0, sequence));
    }
    log.close().expect("closed");
    let expected = producers(&log);
    drop(log);
    let right = place.file(index_name(50));
    place.remove(index_name(50));
    let before = snapshots(&place);
    assert_eq!(before.len(), 20);
    let operations = storage.operations().len();
    let (log, report) = place.open_as(&segments_of(50), &state(true));
    let [segment] = &report.segments[..] else { panic!("{report:?}") };
    assert_eq!((segment.base_offset, segment.batches, segment.cut.is_none()), (Offset(50), 50, true));
    // The newest snapshot is at the log end: nothing has to be gone through for the producers.
    assert_eq!((report.producers.snapshot, report.producers.replayed_batches), (Some(Offset(1000)), 0));
    assert_eq!((snapshots(&place), producers(&log)), (before, expected));
    let done = storage.operations();
    let touched = done[operations..].iter().filter(|operation| {
        let path = match operation {
            Operation::Write { path, .. } | Operation::CreateFile(path) | Operation::RemoveFile(path) => path,
            _ => return false,
        };
        path.to_string_lossy().ends_with(".snapshot")
    });
    assert_eq!(touched.count(), 0, "snapshots stay as they are");
    log.close().expect("closed");
    drop(log);
    assert_eq!(place.file(index_name(50)), right);

    // Where it lost bytes, what lies above says something of producers that may not be so.
    place.remove(index_name(50));
    place.edit(log_name(50), |bytes| bytes[10 * 74 + 70] ^= 1);
    let (log, report) = place.open_as(&segments_of(50), &state(true));
    let [segment] = &report.segments[..] else { panic!("{report:?}") };
    assert!(segment.cut.is_some() && segment.leaves_gap && report.lost_records());
    assert!(report.producers.snapshot.is_none_or(|offset| offset <= Offset(50)));
    assert!(report.producers.replayed_batches > 800, "{report:?}");
    assert_eq!(log.log_end_offset(), Offset(1000));
}

#[test]
fn fc_76_recovery_points() {
    for place in places() {
        let log = place.open(&segments_of(4));
        fill(&log, 10);
        drop(log);
        // Above the log end: brought down to it.
        let above = LogState { recovery_point: Offset(99), ..state(false) };
        let (log, report) = place.open_as(&segments_of(4), &above);
        assert_eq!((log.recovery_point(), log.log_end_offset()), (Offset(10), Offset(10)));
        assert!(!report.lost_records());
        drop(log);
        // What was recovered once is recovered again at the next start: the point has not moved.
        for _ in 0..2 {
            let from = LogState { recovery_point: Offset(5), ..state(false) };
            let (log, report) = place.open_as(&segments_of(4), &from);
            let recovered: Vec<i64> = report.segments.iter().map(|segment| segment.base_offset.0).collect();
            assert_eq!((recovered, log.recovery_point()), (vec![4, 8], Offset(5)));
        }
    }
}

#[test]
fn fc_76_a_crash_at_any_point_of_a_recovery() {
    let prepare = || {
        let (place, storage) = memory();
        let log = place.open(&segments_of(3));
        (0..11).for_each(|sequence| {
            lead(&log, &produced(0, 1, 1, 0, sequence));
        });
        drop(log);
        place.edit(log_name(6), |bytes| bytes[74 + 70] ^= 1);
        (place, storage)
    };
    let (place, storage) = prepare();
    let from = storage.operations().len();
    drop(place.open_unclean(&segments_of(3)));
    let operations = storage.operations().len() - from;
    assert!(operations > 10, "{operations}");
    for crash in 0..operations {
        let (place, storage) = prepare();
        storage.refuse_from(storage.operations().len() + crash, std::io::ErrorKind::Other);
        let died = place.try_open(&segments_of(3), &state(false));
        assert!(died.is_err(), "operation {crash} of {operations} is not noticed");
        storage.refuse_from(usize::MAX, std::io::ErrorKind::Other);
        let (log, _) = place.open_unclean(&segments_of(3));
        assert_eq!(bounds(&log), singles(0..7), "after operation {crash}");
        assert_eq!(lead(&log, &produced(0, 1, 1, 0, 7)).first_offset, Offset(7));
    }
}

#[test]
fn fc_77_leader_epoch_files() {
    let name = "leader-epoch-checkpoint";
    for (content, loads) in
        [("", true), ("0\n0\n", true), ("0\n3\n0 0\n", false), ("0\n1\n0", false), ("0\n1\nx 0\n", false)]
    {
        for place in places() {
            let log = place.open(&segments_of(4));
            for at in 0..10 {
                lead_at(&log, &range(0, 0), at / 5, NOW).expect("an append");
            }
            drop(log);
            place.put(name, content.as_bytes());
            let before = place.files();
            match place.try_open(&segments_of(4), &state(false)) {
                Ok((log, _)) => {
                    assert!(loads, "{content:?} is half used");
                    assert_eq!(epochs(&log), [[0, 0], [1, 5]], "{content:?}");
                    assert_eq!(place.file(name), b"0\n2\n0 0\n1 5\n");
                }
                Err(Error::Checkpoint { path, .. }) => {
                    assert!(!loads && path.ends_with(name), "{content:?}");
                    assert_eq!(place.files(), before, "{content:?}");
                }
                Err(other) => panic!("{content:?}: {other}"),
            }
        }
    }
}

#[test]
fn fc_78_producer_snapshots() {
    type Damage = fn(&Place);
    fn edit(place: &Place, change: impl Fn(&mut Vec<u8>)) {
        place.edit(format!("{:020}.snapshot", 9), change);
    }
    fn seal(bytes: &mut [u8]) {
        let crc = crc32c::crc32c(&bytes[6..]);
        bytes[2..6].copy_from_slice(&crc.to_be_bytes());
    }
    let damages: [(&str, Damage); 6] = [
        ("no bytes", |place| edit(place, Vec::clear)),
        ("wrong CRC", |place| edit(place, |bytes| bytes[3] ^= 1)),
        ("version 7", |place| edit(place, |bytes| bytes[1] = 7)),
        ("count too large", |place| {
            edit(place, |bytes| {
                bytes[6] = 0x7f;
                seal(bytes);
            });
        }),
        ("above the end", |place| {
            let newest = format!("{:020}.snapshot", 9);
            place.rename(&newest, format!("{:020}.snapshot", 12));
        }),
        ("none is good", |place| {
            place.with_suffix(".snapshot").iter().for_each(|name| place.edit(name, |bytes| bytes[2] ^= 8));
        }),
    ];
    for (what, damage) in damages {
        for is_clean in [true, false] {
            for place in places() {
                let log = place.open(&segments_of(3));
                (0..9).for_each(|at| {
                    lead(&log, &produced(0, 1, at % 4, 0, (at / 4) as i32));
                });
                log.close().expect("closed");
                let expected = producers(&log);
                assert_eq!((expected.len(), snapshots(&place)), (4, vec![3, 6, 9]));
                drop(log);
                damage(&place);
                let (log, _) = place.open_as(&segments_of(3), &state(is_clean));
                assert_eq!(producers(&log), expected, "{what}");
                drop(log);
                // What cannot be used is gone.
                let (_, report) = place.open_as(&segments_of(3), &state(true));
                assert!(report.producers.unusable.is_empty(), "{what}: {report:?}");
                assert!(snapshots(&place).iter().all(|offset| *offset <= 9), "{what}");
            }
        }
    }
}

#[test]
fn fc_80_an_open_transaction_across_a_restart() {
    for place in places() {
        let log = place.open(&config());
        follow(&log, &[transactional(produced(0, 1, 1, 0, 0))]);
        fill(&log, 9);
        log.close().expect("closed");
        drop(log);
        assert_eq!(snapshots(&place), [10]);
        let log = place.open(&config());
        assert_eq!(log.producer_state().first_undecided_offset(), Some(Offset(0)));
        let stable = |log: &Log| {
            log.update_high_watermark(log.log_end_offset()).expect("an offset");
            log.producer_state().last_stable_offset(log.high_watermark(), log.log_start_offset()).0
        };
        assert_eq!(stable(&log), 0);
        assert_eq!(lead_marker(&log, 1, 0, false).first_offset, Offset(10));
        assert_eq!(stable(&log), 11);
        let held = log.snapshot();
        let entries: Vec<_> = held.segments()[0].aborted_transactions().expect("entries").collect();
        let [entry] = entries[..] else { panic!("{entries:?}") };
        assert_eq!((entry.producer_id, entry.first_offset), (ProducerId(1), Offset(0)));
        assert_eq!((entry.last_offset, entry.last_stable_offset), (Offset(10), Offset(11)));
    }
}

#[test]
fn fc_81_truncation_to_an_empty_segment() {
    for place in places() {
        let log = place.open(&config());
        fill(&log, 100);
        log.close().expect("closed");
        drop(log);
        let log = place.open(&config());
        assert!(log.truncate_to(Offset(0), NOW).expect("truncated"));
        assert_eq!(lead(&log, &range(0, 0)).first_offset, Offset(0));
        assert_eq!((bases(&log), bounds(&log)), (vec![0], vec![(0, 0)]));
        let held = log.snapshot();
        assert_eq!(held.segments()[0].offset_index().expect("an index").capacity(), 4096 / 8);
        assert_eq!(held.segments()[0].time_index().expect("an index").capacity(), 4096 / 12);
    }
}

#[test]
fn fc_82_offsets_too_far_from_the_base() {
    for place in places() {
        let log = place.open(&config());
        follow(&log, &[range(0, 0)]);
        for (first, last) in [(2_147_483_646, 2_147_483_648), (4_294_967_300, 4_294_967_300)] {
            follow(&log, &[range(first, last)]);
        }
        let bounds_of_all = [(0, 0), (2_147_483_646, 2_147_483_648), (4_294_967_300, 4_294_967_300)];
        assert_eq!(bases(&log), [0, 2_147_483_646, 4_294_967_300]);
        assert_eq!(bounds(&log), bounds_of_all);
        drop(log);
        let (log, report) = place.open_unclean(&config());
        assert!(!report.lost_records());
        assert_eq!(bounds(&log), bounds_of_all);
    }
}

#[test]
fn fc_83_positions_near_2_gib() {
    // On the file system only, where holes need no room.
    let place = log_place::on_disk();
    place.put(log_name(0), &[]);
    place.put(index_name(0), &[]);
    place.put(format!("{:020}.timeindex", 0), &[]);
    let path = place.path(log_name(0));
    let file = place.storage.open_writable(&path).expect("a file");
    // One batch up to position 2 147 483 000, of which nothing but the header is written.
    const END: u64 = 2_147_483_000;
    let mut head = range(0, 0).encode()[..61].to_vec();
    head[8..12].copy_from_slice(&(END as i32 - 12).to_be_bytes());
    file.write_at(0, &head).expect("written");
    let mut torn = range(1, 1).encode()[..61].to_vec();
    torn[8..12].copy_from_slice(&988i32.to_be_bytes());
    torn.resize(647, 0);
    file.write_at(END, &torn).expect("written");
    drop(file);
    let config = LogConfig { segment_bytes: i32::MAX as u32, ..config() };
    // A tail that is not whole, at a position that has all bits of an i32: after a clean stop it is cut off.
    let (log, report) = place.open_as(&config, &state(true));
    let cut = report.segments.first().and_then(|segment| segment.cut.clone());
    assert!(cut.is_some(), "{report:?}");
    assert!(log.size() <= END, "{report:?}");
    // What would go past the limit goes to the next segment.
    drop(log);
    let other = log_place::on_disk();
    let small = LogConfig { segment_bytes: 1 << 20, ..config };
    let log = other.open(&small);
    let size = range(0, 9999).encode().len() as u64;
    let each = (1 << 20) / size;
    for number in 0..3 * each as i64 {
        follow(&log, &[range(number * 10_000, number * 10_000 + 9999)]);
    }
    assert!(log.snapshot().segments().iter().all(|segment| segment.size() <= 1 << 20));
    assert_eq!(log.segments_count(), 3);
}

#[test]
fn fc_84_offsets_that_go_backwards() {
    for place in places() {
        let batches = [(0, 9), (15, 19), (12, 14), (20, 24)];
        let bytes: Vec<u8> = batches.iter().flat_map(|(first, last)| range(*first, *last).encode()).collect();
        let position = range(0, 9).encode().len() + range(15, 19).encode().len();
        place.put(log_name(0), &bytes);
        let (log, report) = place.open_unclean(&config());
        assert_eq!(bounds(&log), [(0, 9), (15, 19)]);
        assert_eq!(report.segments[0].cut.as_ref().map(|cut| cut.position), Some(position as u64));
        assert_eq!(log.log_end_offset(), Offset(20));
    }
}

#[test]
fn fc_85_attributes_are_kept_as_they_are() {
    for place in places() {
        let log = place.open(&config());
        let mut batches = Vec::new();
        for (offset, bits) in (0..).zip([0x08i16, 0x10, 0x20, 0x40, 0x78, 0x7f80 | 0x10]) {
            let spec = BatchSpec { attributes: bits, ..produced(offset, 1, 9, 0, offset as i32) };
            // Control bits without a marker's record are of nobody.
            let is_control = bits & 0x20 != 0;
            let spec = BatchSpec { producer_id: if is_control { -1 } else { 9 }, ..spec };
            let spec = if is_control {
                BatchSpec { producer_epoch: -1, base_sequence: -1, ..spec }
            } else {
                BatchSpec { producer_id: 100 + offset, base_sequence: 0, ..spec }
            };
            batches.push(spec);
        }
        // Five records, but a last offset delta of 0: kept as it is.
        let lying = BatchSpec { last_offset_delta: Some(0), ..timed(6, &[NOW; 5]) };
        batches.push(lying);
        batches.iter().for_each(|batch| {
            follow(&log, std::slice::from_ref(batch));
        });
        let expected: Vec<Vec<u8>> = batches.iter().map(BatchSpec::encode).collect();
        assert_eq!(batches_from(&log, 0), expected);
        // Through a truncation that copies, and a recovery.
        let held = log.read(Offset(0), 1 << 20, ReadUpTo::LogEnd, true).expect("a read");
        follow(&log, &[range(7, 7)]);
        assert!(log.truncate_to(Offset(7), NOW).expect("truncated"));
        assert_eq!(batches_from(&log, 0), expected);
        assert_eq!(&held.bytes[..], &expected.concat()[..]);
        drop(log);
        assert_eq!(batches_from(&place.open_unclean(&config()).0, 0), expected);
    }
}

#[test]
fn fc_86_sequences_that_wrap() {
    for is_clean in [true, false] {
        for place in places() {
            let log = place.open(&config());
            follow(&log, &[produced(0, 4, 1, 0, 2_147_483_646)]);
            let last_sequence = |log: &Log| producers(log)[0].last_batch.map(|batch| batch.last_sequence);
            assert_eq!(last_sequence(&log), Some(1));
            if is_clean {
                log.close().expect("closed");
            }
            drop(log);
            let (log, _) = place.open_as(&config(), &state(is_clean));
            assert_eq!(last_sequence(&log), Some(1));
            lead(&log, &produced(0, 1, 1, 0, 2));
            assert!(lead_at(&log, &produced(0, 1, 1, 0, 7), 0, NOW).is_err());
            follow(&log, &[produced(5, 1, 2, 0, i32::MAX)]);
            lead(&log, &produced(0, 1, 2, 0, 0));
        }
    }
}

#[test]
fn fc_87_timestamps_out_of_order() {
    let config = LogConfig { index_interval_bytes: 1, ..config() };
    for place in places() {
        let log = place.open(&config);
        for (offset, time) in (0..).zip([5000, 100, 4999, 9000, -1]) {
            follow_at(&log, &[timed(offset, &[time])], 0).expect("an append");
        }
        drop(log);
        let (log, _) = place.open_unclean(&config);
        let held = log.snapshot();
        let index = held.segments()[0].time_index().expect("an index");
        let entries: Vec<_> = index.entries().map(|entry| (entry.timestamp, entry.offset.0)).collect();
        assert_eq!(entries, [(5000, 0), (9000, 3)]);
        let found = log.find_by_timestamp(4999, ReadUpTo::LogEnd, &Limits::default()).expect("a search");
        assert_eq!(found.map(|found| (found.timestamp, found.offset.0)), Some((5000, 0)));
        let found = log.find_by_timestamp(5001, ReadUpTo::LogEnd, &Limits::default()).expect("a search");
        assert_eq!(found.map(|found| (found.timestamp, found.offset.0)), Some((9000, 3)));
        assert_eq!(held.segments()[0].largest_timestamp().expect("a time"), 9000);
    }
}

#[test]
fn fc_88_many_producers_that_expired() {
    let (place, _) = memory();
    let aging = LogConfig { producer_id_expiration_ms: 1000, ..config() };
    let log = place.open(&aging);
    let ids = 20_000;
    let batches: Vec<BatchSpec> = (0..ids)
        .map(|id| BatchSpec {
            records: vec![RecordSpec::new(0, b"k".to_vec(), None)],
            ..produced(id, 1, id, 0, 0)
        })
        .collect();
    follow(&log, &batches);
    follow(&log, &[transactional(produced(ids, 1, ids, 0, 0))]);
    log.close().expect("closed");
    assert_eq!(producers(&log).len() as i64, ids + 1);
    drop(log);
    let later = LogState { now_ms: NOW + 2000, ..state(true) };
    let (log, report) = place.open_as(&aging, &later);
    assert_eq!(report.producers.snapshot, Some(Offset(ids + 1)));
    let left = producers(&log);
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].current_txn_first_offset, Some(Offset(ids)));
}
