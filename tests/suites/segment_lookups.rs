//! Rows of the chapter on logs about one segment: its indexes, what is found by offset and time, and when it is rolled.
//!
//! Right results are data, in `fixtures/cases/segment.json`.

mod segment_place;

use redrive::batch::{BatchFrame, Limits};
use redrive::segment::index::{
    IndexRefusal, LiveOffsetIndex, LiveTimeIndex, OffsetIndex, OffsetIndexEntry, TimeIndexEntry,
};
use redrive::segment::{AppendFault, Incoming, RollReason, SegmentConfig, SegmentFileKind, SegmentWriter};
use redrive::types::Offset;
use redrive_tests::logs::{BatchSpec, Codec, RecordSpec};
use segment_place::{
    Place, append, batch_of, facts, find_time, first, interval, lists, number, numbers, places, range, read,
    row, time_entries, timed,
};
use serde_json::Value;

fn offset_entry(offset: i64, position: i32) -> OffsetIndexEntry {
    OffsetIndexEntry { offset: Offset(offset), position }
}

#[test]
fn c03_r026_a_full_index_takes_no_entry() {
    let index = LiveOffsetIndex::new(Offset(0), 30);
    assert_eq!(index.capacity(), 3, "rounded down to whole entries");
    for entry in 1..=3 {
        assert!(!index.is_full());
        index.append(offset_entry(entry, entry as i32)).expect("there is room");
    }
    assert!(index.is_full());
    assert_eq!(index.append(offset_entry(4, 4)), Err(IndexRefusal::Full { entries: 3 }));
    assert_eq!(index.len(), 3);
    // A segment refuses the batches before they are written.
    let config = SegmentConfig { index_bytes_max: 30, ..interval(0) };
    for place in places() {
        let mut writer = place.create(0, &config);
        let bytes: Vec<u8> = (0..9).flat_map(timed).collect();
        let refused = writer.append(&bytes, &facts(&bytes));
        assert!(matches!(refused, Err(AppendFault::Index(IndexRefusal::Full { .. }))), "{refused:?}");
        assert_eq!(writer.size(), 0);
    }
}

#[test]
fn c03_r027_offsets_of_an_index_rise() {
    let row = row("c03_r027");
    let index = LiveOffsetIndex::new(Offset(40), 1000);
    index.append(offset_entry(number(&row["entry"]), 0)).expect("an entry");
    let offset = number(&row["append"]);
    let refusal = IndexRefusal::OffsetBack { last: Offset(51), offset: Offset(offset) };
    assert_eq!(index.append(offset_entry(offset, 1)), Err(refusal));
    assert!(matches!(index.append(offset_entry(51, 1)), Err(IndexRefusal::OffsetBack { .. })));
    assert_eq!(index.len(), 1);
}

#[test]
fn batches_that_an_index_would_refuse_are_not_written() {
    for place in places() {
        let mut writer = place.create(0, &interval(0));
        let bytes = [range(5, 5), range(6, 6), range(4, 4)].concat();
        let refused = writer.append(&bytes, &facts(&bytes));
        assert!(matches!(refused, Err(AppendFault::Index(IndexRefusal::OffsetBack { .. }))), "{refused:?}");
        assert_eq!(writer.size(), 0);
        append(&mut writer, &bytes[..2 * range(5, 5).len()]);
        let again = writer.append(&range(6, 6), &facts(&range(6, 6)));
        assert!(matches!(again, Err(AppendFault::Index(IndexRefusal::OffsetBack { .. }))), "{again:?}");
        let lying = writer.append(&range(7, 7), &[]);
        assert!(matches!(lying, Err(AppendFault::Facts { described: 0, .. })), "{lying:?}");
        assert_eq!(writer.size() as usize, 2 * range(5, 5).len());
    }
}

#[test]
fn the_first_batch_after_a_cut_or_a_start_is_not_indexed() {
    let entries = |writer: &SegmentWriter| {
        let index = writer.segment().offset_index().expect("an index");
        index.entries().map(|entry| entry.offset.0).collect::<Vec<_>>()
    };
    for place in places() {
        let mut writer = place.create(0, &interval(0));
        (0..4).for_each(|offset| append(&mut writer, &range(offset, offset)));
        assert_eq!(entries(&writer), [1, 2, 3]);
        writer.truncate_to(Offset(2), 0).expect("a cut");
        (2..4).for_each(|offset| append(&mut writer, &range(offset, offset)));
        assert_eq!(entries(&writer), [1, 3]);
        let segment = writer.close().expect("closed");
        let mut writer = SegmentWriter::resume(segment, interval(0), 0).expect("resumed");
        (4..6).for_each(|offset| append(&mut writer, &range(offset, offset)));
        assert_eq!(entries(&writer), [1, 3, 5]);
    }
}

#[test]
fn c03_r028_upper_bounds() {
    let row = row("c03_r028");
    let base = number(&row["base"]);
    let index = LiveOffsetIndex::new(Offset(base), 1000);
    for (offset, position) in (base..).zip(numbers(&row["positions"])) {
        index.append(offset_entry(offset, position as i32)).expect("an entry");
    }
    for bound in row["bounds"].as_array().expect("bounds") {
        let found = index.upper_bound(number(&bound[0]) as u64, number(&bound[1]) as u64);
        assert_eq!(found.map(|offset| offset.0), bound[2].as_i64(), "{bound}");
    }
}

#[test]
fn c03_r029_an_index_can_be_cut() {
    let row = row("c03_r029");
    let mut index = LiveOffsetIndex::new(Offset(0), 1000);
    (1..=number(&row["entries"]))
        .for_each(|entry| index.append(offset_entry(entry, entry as i32)).expect("an entry"));
    for step in lists(&row["steps"]) {
        index = index.truncated(Offset(step[0]), 1000);
        assert_eq!(index.last_offset().0, step[1]);
        assert_eq!(index.len() as i64, step[1]);
    }
    index.append(offset_entry(5, 5)).expect("an entry");
    assert_eq!(index.last_offset(), Offset(5));
}

#[test]
fn c03_r030_an_entry_at_the_base_offset_is_sane() {
    let index = LiveOffsetIndex::new(Offset(100), 1000);
    index.append(offset_entry(100, 0)).expect("an entry");
    let mut file = Vec::new();
    index.entries().for_each(|entry| entry.encode(Offset(100), &mut file).expect("in reach"));
    assert_eq!(OffsetIndex::new(Offset(100), &file).check(), Ok(()));
}

#[test]
fn c03_r031_lookups_by_time() {
    let row = row("c03_r031");
    let base = Offset(number(&row["base"]));
    let index = LiveTimeIndex::new(base, 1000);
    for entry in lists(&row["entries"]) {
        index.append(TimeIndexEntry { timestamp: entry[0], offset: Offset(entry[1]) }).expect("an entry");
    }
    for lookup in lists(&row["lookups"]) {
        let found = index.lookup(lookup[0]);
        assert_eq!([found.timestamp, found.offset.0], lookup[1..]);
    }
}

#[test]
fn c03_r032_the_last_place_is_for_the_closing_entry() {
    let row = row("c03_r032");
    let index = LiveTimeIndex::new(Offset(0), number(&row["capacity"]) as usize * TimeIndexEntry::BYTES);
    let entry = |number: i64| TimeIndexEntry { timestamp: number, offset: Offset(number) };
    let entries = number(&row["entries"]);
    (0..entries).for_each(|number| index.append(entry(number)).expect("an entry"));
    assert!(index.is_full());
    assert_eq!(index.append(entry(entries)), Err(IndexRefusal::Full { entries: entries as usize }));
    index.append_closing(entry(entries)).expect("the closing entry");
    assert_eq!(index.len(), index.capacity());
    assert_eq!(index.last_entry(), entry(entries));
}

#[test]
fn c03_r033_a_closing_entry_does_not_go_back() {
    let index = LiveTimeIndex::new(Offset(0), 1000);
    index.append(TimeIndexEntry { timestamp: 10, offset: Offset(5) }).expect("an entry");
    let back = index.append_closing(TimeIndexEntry { timestamp: 11, offset: Offset(4) });
    assert_eq!(back, Err(IndexRefusal::OffsetBack { last: Offset(5), offset: Offset(4) }));
    let earlier = index.append_closing(TimeIndexEntry { timestamp: 9, offset: Offset(6) });
    assert_eq!(earlier, Err(IndexRefusal::TimestampBack { last: 10, timestamp: 9 }));
    assert_eq!(index.append(TimeIndexEntry { timestamp: 10, offset: Offset(9) }), Ok(()));
    assert_eq!(index.len(), 1, "no entry without a later time");
}

#[test]
fn c03_r036_an_index_without_room_asks_for_a_new_segment() {
    let config = SegmentConfig { index_bytes_max: 0, ..SegmentConfig::default() };
    for place in places() {
        let mut writer = place.create(0, &config);
        let incoming = Incoming { bytes: 100, max_timestamp: 1, last_offset: Offset(0) };
        let reason = writer.should_roll(&incoming, 0).expect("a decision");
        assert_eq!(reason, Some(RollReason::OffsetIndexFull));
        append(&mut writer, &timed(1));
        assert_eq!(first(writer.segment(), 0), Some(1));
        drop(writer.close().expect("closed, with a closing entry that had no room"));
        assert_eq!(time_entries(&place.open(0)), [[10, 1]]);
    }
}

#[test]
fn c03_r040_the_whole_first_batch_comes_whatever_the_limit() {
    let row = row("c03_r040");
    for place in places() {
        let mut writer = place.create(0, &SegmentConfig::default());
        let offsets = (0..5).map(|number_| number(&row["first"]) + number_ * number(&row["gap"]));
        offsets.for_each(|offset| append(&mut writer, &range(offset, offset)));
        for most in numbers(&row["most"]) {
            let segment = writer.segment();
            let found = segment.read(Offset(number(&row["read"])), most as u32, Some(segment.size()), true);
            let found = found.expect("a read").expect("a batch");
            assert_eq!(found.offset.0, number(&row["offset"]));
            assert!(!found.is_first_batch_incomplete);
            assert!(BatchFrame::new(&found.bytes[..range(57, 57).len()]).is_ok());
        }
    }
}

#[test]
fn c03_r041_without_at_least_one_the_limit_holds() {
    for place in places() {
        let mut writer = place.create(0, &SegmentConfig::default());
        append(&mut writer, &range(50, 50));
        let segment = writer.segment();
        let read = |most| {
            segment.read(Offset(50), most, Some(segment.size()), false).expect("a read").expect("a batch")
        };
        assert_eq!((read(0).bytes.len(), read(0).is_first_batch_incomplete), (0, false));
        assert_eq!((read(1).bytes.len(), read(1).is_first_batch_incomplete), (1, true));
    }
}

#[test]
fn c03_r045_a_read_inside_a_compressed_batch_gives_all_of_it() {
    let row = row("c03_r045");
    for place in places() {
        let mut writer = place.create(0, &SegmentConfig::default());
        let records =
            (0..number(&row["perBatch"])).map(|delta| RecordSpec::new(delta as i32, b"k".to_vec(), None));
        let spec = BatchSpec { codec: Codec::Gzip, records: records.collect(), ..BatchSpec::default() };
        append(&mut writer, &spec.encode());
        let found = read(writer.segment(), number(&row["read"])).expect("a batch");
        let frame = BatchFrame::new(&found.bytes).expect("a whole batch");
        assert_eq!(i64::from(frame.records_count()), number(&row["records"]));
        assert_eq!(found.offset, Offset(0));
    }
}

#[test]
fn c03_r050_no_record_no_result() {
    for place in places() {
        let writer = place.create(0, &SegmentConfig::default());
        assert_eq!(find_time(writer.segment(), 0), None);
        assert_eq!(writer.segment().find_max_timestamp(&Limits::default()).expect("a search"), None);
    }
}

#[test]
fn c03_r053_the_record_with_the_largest_time() {
    let row = row("c03_r053");
    for place in places() {
        let records = (0..).zip(numbers(&row["timestamps"])).collect::<Vec<_>>();
        for split in [false, true] {
            let mut writer = place.create(0, &interval(0));
            if split {
                records.iter().for_each(|&record| append(&mut writer, &batch_of(&[record])));
            } else {
                append(&mut writer, &batch_of(&records));
            }
            let found = writer.segment().find_max_timestamp(&Limits::default()).expect("a search");
            let found = found.expect("a record");
            assert_eq!(vec![found.timestamp, found.offset.0], numbers(&row["found"]));
            assert_eq!(found.leader_epoch, Some(0));
        }
    }
}

/// A segment with the settings of the rows about rolling by time.
fn rolling(place: &Place, segment_jitter_ms: i64) -> (SegmentWriter, i64, Value) {
    let row = row("c03_rolling");
    let segment_ms = number(&row["segmentMs"]);
    let config = SegmentConfig { segment_ms, segment_jitter_ms, ..SegmentConfig::default() };
    (place.create(0, &config), segment_ms, row)
}

fn roll(writer: &mut SegmentWriter, offset: i64, max_timestamp: i64, now: i64) -> Option<RollReason> {
    let incoming = Incoming { bytes: 70, max_timestamp, last_offset: Offset(offset) };
    writer.should_roll(&incoming, now).expect("a decision")
}

#[test]
fn c03_r056_an_empty_segment_does_not_roll_by_the_clock() {
    for place in places() {
        let (mut writer, hour, _) = rolling(&place, 0);
        assert_eq!(roll(&mut writer, 0, -1, hour + 1), None);
    }
}

#[test]
fn c03_r057_without_timestamps_the_clock_decides() {
    for place in places() {
        let (mut writer, hour, _) = rolling(&place, 0);
        append(&mut writer, &range(0, 0));
        assert_eq!(roll(&mut writer, 1, -1, hour), None);
        assert_eq!(roll(&mut writer, 1, -1, hour + 1), Some(RollReason::Time));
    }
}

#[test]
fn c03_r058_without_a_first_timestamp_a_later_one_does_not_count() {
    for place in places() {
        let (mut writer, hour, _) = rolling(&place, 0);
        append(&mut writer, &range(0, 0));
        assert_eq!(roll(&mut writer, 1, hour + 1, 0), None);
    }
}

#[test]
fn c03_r059_with_a_first_timestamp_the_clock_does_not_count() {
    for place in places() {
        let (mut writer, hour, _) = rolling(&place, 0);
        append(&mut writer, &batch_of(&[(0, 1_000_000)]));
        assert_eq!(roll(&mut writer, 1, 1_000_000, hour + 1), None);
    }
}

#[test]
fn c03_r060_with_a_first_timestamp_later_ones_count() {
    for place in places() {
        let (mut writer, hour, _) = rolling(&place, 0);
        let start = 1_000_000;
        append(&mut writer, &batch_of(&[(0, start)]));
        assert_eq!(roll(&mut writer, 1, start + hour, 0), None);
        assert_eq!(roll(&mut writer, 1, start + hour + 1, 0), Some(RollReason::Time));
        // The first batch counts, not what came later.
        append(&mut writer, &batch_of(&[(1, start + hour)]));
        assert_eq!(roll(&mut writer, 2, start + hour + 1, 0), Some(RollReason::Time));
    }
}

#[test]
fn c03_r061_an_append_of_nothing_never_rolls() {
    for place in places() {
        let (mut writer, hour, _) = rolling(&place, 0);
        append(&mut writer, &range(0, 0));
        let nothing = Incoming { bytes: 0, max_timestamp: -1, last_offset: Offset(1) };
        assert_eq!(writer.should_roll(&nothing, hour * 9).expect("a decision"), None);
    }
}

#[test]
fn c03_r062_jitter_makes_it_roll_earlier() {
    for place in places() {
        let jitter = number(&row("c03_rolling")["jitterMs"]);
        let (mut writer, hour, row) = rolling(&place, jitter);
        append(&mut writer, &range(0, 0));
        assert_eq!(roll(&mut writer, 1, -1, hour - number(&row["jitterMaxMs"])), None);
        assert_eq!(roll(&mut writer, 1, -1, hour - jitter), None);
        assert_eq!(roll(&mut writer, 1, -1, hour - jitter + 1), Some(RollReason::Time));
    }
}

#[test]
fn c03_r063_an_exact_fit_does_not_roll() {
    for place in places() {
        let size = range(0, 0).len() as u64;
        let batches = 7;
        let config = SegmentConfig { segment_bytes_max: (size * batches) as u32, ..SegmentConfig::default() };
        let mut writer = place.create(0, &config);
        for offset in 0..batches as i64 {
            let incoming = Incoming { bytes: size, max_timestamp: -1, last_offset: Offset(offset) };
            assert_eq!(writer.should_roll(&incoming, 0).expect("a decision"), None, "{offset}");
            append(&mut writer, &range(offset, offset));
        }
        let one_more = Incoming { bytes: size, max_timestamp: -1, last_offset: Offset(7) };
        assert_eq!(writer.should_roll(&one_more, 0).expect("a decision"), Some(RollReason::Size));
    }
}

#[test]
fn c03_r064_offsets_out_of_reach_roll() {
    for place in places() {
        let (mut writer, ..) = rolling(&place, 0);
        append(&mut writer, &range(0, 0));
        let reach = i64::from(i32::MAX);
        assert_eq!(roll(&mut writer, reach, -1, 0), None);
        for offset in [reach + 1, reach + 2] {
            assert_eq!(roll(&mut writer, offset, -1, 0), Some(RollReason::OffsetOverflow));
        }
    }
}

#[test]
fn c03_r067_a_preallocated_file_is_cut_when_the_next_segment_begins() {
    for place in places() {
        let config =
            SegmentConfig { segment_bytes_max: 1 << 16, preallocate: true, ..SegmentConfig::default() };
        let mut writer = place.create(0, &config);
        append(&mut writer, &timed(0));
        let size = writer.size();
        let path = writer.segment().path(SegmentFileKind::Log);
        assert_eq!(place.file(&path).len(), 1 << 16);
        let sealed = writer.seal().expect("sealed");
        assert_eq!(place.file(&path).len() as u64, size);
        assert_eq!(place.file(&sealed.path(SegmentFileKind::OffsetIndex)).len(), 0);
        assert_eq!(place.file(&sealed.path(SegmentFileKind::TimeIndex)).len(), TimeIndexEntry::BYTES);
    }
}
