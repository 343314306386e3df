//! Rows of the chapter on logs about one segment: appends, reads, truncation, recovery.
//!
//! Each runs on the storage in memory and on the file system. Right results are data, in `fixtures/cases/segment.json`.

mod segment_place;

use std::sync::Arc;

use redrive::Error;
use redrive::batch::BatchFrame;
use redrive::segment::index::AbortedTransaction;
use redrive::segment::{
    AppendFault, BatchFacts, CutReason, Incoming, NeedsRecovery, RecoveryFault, RollReason, Segment,
    SegmentConfig, SegmentFileKind, SegmentFileState, SegmentWriter,
};
use redrive::types::{Offset, ProducerId};
use redrive_tests::logs::{BatchSpec, RecordSpec, TRANSACTIONAL};
use segment_place::{
    Place, append, batch_of, facts, find_time, first, interval, lists, no_producers, number, numbers,
    offset_entries, places, range, read, row, time_entries, timed,
};

#[test]
fn c03_r001_an_empty_segment_has_nothing() {
    for place in places() {
        let writer = place.create(40, &SegmentConfig::default());
        assert!(read(writer.segment(), 40).is_none());
    }
}

#[test]
fn c03_r002_a_read_below_the_first_record_starts_with_it() {
    let row = row("c03_r002");
    for place in places() {
        let mut writer = place.create(number(&row["base"]), &SegmentConfig::default());
        numbers(&row["records"]).iter().for_each(|&offset| append(&mut writer, &range(offset, offset)));
        assert_eq!(first(writer.segment(), number(&row["read"])), row["offset"].as_i64());
    }
}

#[test]
fn c03_r003_the_whole_batch_is_read() {
    let row = row("c03_r003");
    for place in places() {
        let mut writer = place.create(40, &SegmentConfig::default());
        let batch = numbers(&row["batch"]);
        let bytes = range(batch[0], batch[1]);
        append(&mut writer, &bytes);
        let found = read(writer.segment(), number(&row["read"])).expect("a batch");
        assert_eq!(&*found.bytes, &bytes[..]);
        assert_eq!(found.offset.0, number(&row["offset"]));
        assert_eq!((found.position, found.is_first_batch_incomplete), (0, false));
        let frame = BatchFrame::new(&found.bytes).expect("a batch");
        assert_eq!(i64::from(frame.records_count()), number(&row["records"]));
    }
}

#[test]
fn c03_r004_nothing_lies_behind_the_last_record() {
    for place in places() {
        let mut writer = place.create(40, &SegmentConfig::default());
        append(&mut writer, &range(50, 51));
        assert!(read(writer.segment(), 52).is_none());
    }
}

#[test]
fn c03_r005_a_gap_is_stepped_over() {
    let row = row("c03_r005");
    for place in places() {
        let mut writer = place.create(40, &SegmentConfig::default());
        numbers(&row["records"]).iter().for_each(|&offset| append(&mut writer, &range(offset, offset)));
        assert_eq!(first(writer.segment(), number(&row["read"])), row["offset"].as_i64());
    }
}

#[test]
fn c03_r006_without_a_limit_nothing_is_read() {
    let row = row("c03_r006");
    for place in places() {
        let mut writer = place.create(40, &SegmentConfig::default());
        numbers(&row["records"]).iter().for_each(|&offset| append(&mut writer, &range(offset, offset)));
        for at_least_one in [false, true] {
            let read =
                |offset| writer.segment().read(Offset(offset), 300, None, at_least_one).expect("a read");
            for offset in numbers(&row["empty"]) {
                let found = read(offset).expect("metadata");
                assert!(found.bytes.is_empty());
                assert_eq!(found.offset.0, offset);
            }
            for offset in numbers(&row["nothing"]) {
                assert!(read(offset).is_none());
            }
        }
    }
}

#[test]
fn c03_r007_offsets_out_of_reach_are_not_appended() {
    let row = row("c03_r007");
    for place in places() {
        for pair in lists(&row["baseAndLast"]) {
            let mut writer = place.create(pair[0], &SegmentConfig::default());
            let bytes = range(0, 0);
            let last_offset = Offset(pair[1]);
            let facts = BatchFacts {
                size: bytes.len() as u32,
                base_offset: last_offset,
                last_offset,
                max_timestamp: -1,
            };
            let refused = writer.append(&bytes, &[facts]);
            assert!(matches!(refused, Err(AppendFault::OffsetOverflow(_))), "{pair:?}: {refused:?}");
            assert_eq!(writer.size(), 0);
            assert!(place.file(&writer.segment().path(SegmentFileKind::Log)).is_empty());
        }
    }
}

#[test]
fn c03_r008_what_was_cut_off_can_be_appended_again() {
    let row = row("c03_r008");
    for place in places() {
        let mut writer = place.create(number(&row["base"]), &SegmentConfig::default());
        let base = number(&row["base"]);
        for offset in base..base + number(&row["rounds"]) {
            append(&mut writer, &range(offset, offset));
            append(&mut writer, &range(offset + 1, offset + 1));
            assert!(writer.truncate_to(Offset(offset + 1), 0).expect("a cut") > 0);
            assert_eq!(first(writer.segment(), offset), Some(offset));
            assert_eq!(first(writer.segment(), offset + 1), None);
        }
    }
}

#[test]
fn c03_r009_an_empty_segment_that_is_cut_is_new() {
    let row = row("c03_r009");
    let config = SegmentConfig { segment_ms: 1000, ..SegmentConfig::default() };
    for place in places() {
        drop(place.create(0, &config).close().expect("closed"));
        let mut writer = SegmentWriter::resume(place.open(0), config.clone(), 0).expect("resumed");
        writer.truncate_to(Offset(number(&row["truncate"])), 50).expect("a cut");
        assert_eq!(writer.time_waited_for_roll(50, -1).expect("a time"), 0);
        assert!(!writer.segment().offset_index().expect("an index").is_full());
        assert!(!writer.segment().time_index().expect("an index").is_full());
        let incoming = |last_offset| Incoming { bytes: 100, max_timestamp: -1, last_offset };
        let later = 50 + 1001;
        assert_eq!(writer.should_roll(&incoming(Offset(60)), later).expect("a decision"), None);
        let far = incoming(Offset(number(&row["nextOffset"])));
        assert_eq!(writer.should_roll(&far, later).expect("a decision"), Some(RollReason::OffsetOverflow));
    }
}

#[test]
fn c03_r010_truncation_takes_entries_and_the_largest_timestamp_back() {
    let row = row("c03_r010");
    for place in places() {
        let size = timed(40).len() as u32;
        let mut writer = place.create(40, &interval(2 * size - 1));
        for offset in number(&row["first"])..=number(&row["last"]) {
            let bytes = timed(offset);
            assert_eq!(bytes.len() as u32, size, "batches of equal size");
            append(&mut writer, &bytes);
        }
        let entries = |writer: &SegmentWriter| time_entries(writer.segment()).len() as i64;
        assert_eq!(entries(&writer), number(&row["entriesBefore"]));
        writer.truncate_to(Offset(number(&row["truncate"])), 0).expect("a cut");
        assert_eq!(entries(&writer), number(&row["entriesAfter"]));
        assert_eq!(writer.segment().largest_timestamp().expect("a time"), number(&row["largest"]));
        assert_eq!(writer.segment().next_offset().expect("an offset").0, number(&row["next"]));
        let index = place.file(&writer.segment().path(SegmentFileKind::OffsetIndex));
        assert_eq!(index.len(), 10 << 20, "the full length is back");
    }
}

#[test]
fn c03_r011_a_segment_can_be_emptied() {
    let row = row("c03_r011");
    for place in places() {
        let mut writer = place.create(40, &SegmentConfig::default());
        let batch = numbers(&row["batch"]);
        append(&mut writer, &range(batch[0], batch[1]));
        writer.truncate_to(Offset(number(&row["truncate"])), 77).expect("a cut");
        assert_eq!(writer.size(), 0);
        assert_eq!(writer.time_waited_for_roll(77, -1).expect("a time"), 0);
        assert!(place.file(&writer.segment().path(SegmentFileKind::Log)).is_empty());
        let again = number(&row["again"]);
        append(&mut writer, &range(again, again));
        assert_eq!(first(writer.segment(), again), Some(again));
    }
}

#[test]
fn c03_r012_truncation_inside_a_gap() {
    let row = row("c03_r012");
    for place in places() {
        let mut writer = place.create(40, &SegmentConfig::default());
        numbers(&row["records"]).iter().for_each(|&offset| append(&mut writer, &range(offset, offset)));
        writer.truncate_to(Offset(number(&row["truncate"])), 0).expect("a cut");
        let left = numbers(&row["left"]);
        assert_eq!(facts(&writer.segment().bytes().expect("bytes")).len(), left.len());
        assert_eq!(first(writer.segment(), 40), Some(left[0]));
        assert_eq!(first(writer.segment(), left[0] + 1), None);
    }
}

#[test]
fn c03_r013_records_are_found_by_time() {
    let row = row("c03_r013");
    for place in places() {
        for interval_bytes in [0, 1, 100, 4096] {
            let mut writer = place.create(40, &interval(interval_bytes));
            (number(&row["first"])..=number(&row["last"]))
                .for_each(|offset| append(&mut writer, &timed(offset)));
            for lookup in row["lookups"].as_array().expect("lookups") {
                let found = find_time(writer.segment(), number(&lookup[0]));
                assert_eq!(found, lookup[1].as_i64(), "{lookup}");
            }
        }
    }
}

#[test]
fn c03_r014_the_next_offset_follows_the_last_batch() {
    let row = row("c03_r014");
    for place in places() {
        let mut writer = place.create(number(&row["base"]), &SegmentConfig::default());
        let expected = numbers(&row["next"]);
        let batch = numbers(&row["batch"]);
        assert_eq!(writer.segment().next_offset().expect("an offset").0, expected[0]);
        append(&mut writer, &range(batch[0], batch[1]));
        assert_eq!(writer.segment().next_offset().expect("an offset").0, expected[1]);
    }
}

#[test]
fn c03_r015_each_batch_of_an_append_is_indexed() {
    let row = row("c03_r015");
    for place in places() {
        let mut writer = place.create(0, &interval(1));
        let batch = |offset| batch_of(&[(offset, offset)]);
        append(&mut writer, &[batch(0), batch(1)].concat());
        append(&mut writer, &batch(2));
        assert_eq!(offset_entries(writer.segment()), numbers(&row["offsetEntries"]));
        assert_eq!(time_entries(writer.segment()), lists(&row["timeEntries"]));
    }
}

#[test]
fn c03_r016_the_time_index_has_the_largest_time_so_far() {
    let row = row("c03_r016");
    for place in places() {
        let mut writer = place.create(0, &interval(1));
        let batches = numbers(&row["timestamps"])
            .into_iter()
            .enumerate()
            .flat_map(|(offset, timestamp)| batch_of(&[(offset as i64, timestamp)]));
        append(&mut writer, &batches.collect::<Vec<_>>());
        assert_eq!(time_entries(writer.segment()), lists(&row["timeEntries"]));
    }
}

/// A closed segment of single records, whose file of that kind is then overwritten with garbage.
fn with_garbage(place: &Place, batches: i64, kind: SegmentFileKind) -> Arc<Segment> {
    let mut writer = place.create(0, &interval(100));
    (0..batches).for_each(|offset| append(&mut writer, &timed(offset)));
    let segment = writer.close().expect("closed");
    let path = segment.path(kind);
    let len = place.file(&path).len();
    assert!(len > 0);
    place.overwrite(&path, 0, &(0..len).map(|at| (at * 37 + 11) as u8).collect::<Vec<_>>());
    place.open(0)
}

#[test]
fn c03_r017_recovery_makes_the_offset_index_anew() {
    let batches = number(&row("c03_r017")["batches"]);
    for place in places() {
        let segment = with_garbage(&place, batches, SegmentFileKind::OffsetIndex);
        let recovered = segment.recover(&interval(100), no_producers).expect("recovered");
        assert_eq!((recovered.batches as i64, recovered.cut), (batches, None));
        for offset in 0..batches {
            assert_eq!(first(&recovered.segment, offset), Some(offset));
        }
    }
}

#[test]
fn c03_r018_recovery_makes_the_time_index_anew() {
    let batches = number(&row("c03_r018")["batches"]);
    for place in places() {
        let segment = with_garbage(&place, batches, SegmentFileKind::TimeIndex);
        let segment = segment.recover(&interval(100), no_producers).expect("recovered").segment;
        for offset in 0..batches {
            assert_eq!(find_time(&segment, offset * 10), Some(offset));
            let later = find_time(&segment, offset * 10 + 1);
            assert_eq!(later, Some(offset + 1).filter(|&next| next < batches));
        }
    }
}

#[test]
fn c03_r019_recovery_cuts_at_the_first_bad_batch() {
    let batches = number(&row("c03_r019")["batches"]);
    for place in places() {
        for (bad, kept_of_it) in (0..batches).map(|bad| (bad, (bad * 7) as usize % 60)) {
            let mut writer = place.create(0, &interval(100));
            let mut start = 0;
            for offset in 0..batches {
                if offset == bad {
                    start = writer.size();
                }
                append(&mut writer, &timed(offset));
            }
            let segment = writer.close().expect("closed");
            let (path, size) = (segment.path(SegmentFileKind::Log), segment.size());
            drop(segment);
            let garbage_at = start + kept_of_it as u64;
            place.overwrite(&path, garbage_at, &vec![0xa5; (size - garbage_at) as usize]);
            let recovered = place.open(0).recover(&interval(100), no_producers).expect("recovered");
            let cut = recovered.cut.expect("a cut");
            assert_eq!((cut.position, cut.bytes), (start, size - start));
            assert!(matches!(cut.reason, CutReason::Frame(_) | CutReason::Crc(_)));
            assert_eq!((recovered.batches as i64, recovered.next_offset.0), (bad, bad));
            assert_eq!(place.file(&path).len() as u64, start);
            for offset in 0..batches {
                assert_eq!(first(&recovered.segment, offset), Some(offset).filter(|&offset| offset < bad));
            }
        }
    }
}

/// What the rows about aborted transactions need of producer state: open transactions by producer.
#[derive(Default)]
struct OpenTransactions(Vec<(i64, i64)>);

impl OpenTransactions {
    fn observe(&mut self, frame: &BatchFrame<'_>) -> Option<AbortedTransaction> {
        let producer = frame.producer_id().0;
        if !frame.is_transactional() {
            return None;
        }
        if !frame.is_control() {
            if !self.0.iter().any(|(open, _)| *open == producer) {
                self.0.push((producer, frame.base_offset().0));
            }
            return None;
        }
        let at = self.0.iter().position(|(open, _)| *open == producer)?;
        let (_, first) = self.0.remove(at);
        let is_abort = frame.bytes()[61 + 8] == 0;
        let others = self.0.iter().map(|(_, first)| *first).min();
        is_abort.then(|| AbortedTransaction {
            producer_id: ProducerId(producer),
            first_offset: Offset(first),
            last_offset: frame.base_offset(),
            last_stable_offset: Offset(others.unwrap_or(frame.base_offset().0 + 1)),
        })
    }
}

fn transactions(place: &Place, mut open: OpenTransactions) -> (Vec<Vec<i64>>, i64) {
    let data = |offset: i64, producer_id: i64| BatchSpec {
        producer_id,
        producer_epoch: 0,
        base_sequence: 0,
        attributes: if producer_id < 0 { 0 } else { TRANSACTIONAL },
        records: (0..2).map(|delta| RecordSpec::new(delta, b"k".to_vec(), None)).collect(),
        base_offset: offset,
        ..BatchSpec::default()
    };
    let mut writer = place.create(100, &SegmentConfig::default());
    for spec in [
        data(100, 5),
        data(102, 10),
        BatchSpec { producer_epoch: -1, base_sequence: -1, ..data(104, -1) },
        BatchSpec::marker(106, 10, 0, false, 0),
        BatchSpec::marker(107, 5, 0, true, 0),
    ] {
        append(&mut writer, &spec.encode());
    }
    let segment = writer.close().expect("closed");
    let recovered = segment.recover(&SegmentConfig::default(), |frame, _| Ok(open.observe(frame)));
    let recovered = recovered.expect("recovered");
    let path = recovered.segment.path(SegmentFileKind::TransactionIndex);
    assert_eq!(place.file(&path).len(), AbortedTransaction::BYTES);
    // As the next start reads it from its file.
    let entries = place.open(100);
    let entries = entries.aborted_transactions().expect("entries").map(|entry| {
        let AbortedTransaction { producer_id, first_offset, last_offset, last_stable_offset } = entry;
        vec![producer_id.0, first_offset.0, last_offset.0, last_stable_offset.0]
    });
    (entries.collect(), recovered.next_offset.0)
}

#[test]
fn c03_r020_recovery_makes_the_transaction_index_anew() {
    let row = row("c03_r020");
    for place in places() {
        let (entries, end) = transactions(&place, OpenTransactions::default());
        assert_eq!(entries, [numbers(&row["entry"])]);
        assert_eq!(end, number(&row["end"]));
    }
}

#[test]
fn c03_r021_a_transaction_may_begin_in_an_earlier_segment() {
    let row = row("c03_r021");
    for place in places() {
        let open = numbers(&row["open"]);
        let (entries, _) = transactions(&place, OpenTransactions(vec![(open[0], open[1])]));
        assert_eq!(entries, [numbers(&row["entry"])]);
    }
}

#[test]
fn c03_r022_recovery_shows_the_leader_epochs() {
    let row = row("c03_r022");
    for place in places() {
        let mut writer = place.create(100, &SegmentConfig::default());
        for batch in lists(&row["batches"]) {
            let mut spec = BatchSpec::single(batch[1], b"k".to_vec(), None);
            spec.partition_leader_epoch = batch[0] as i32;
            append(&mut writer, &spec.encode());
        }
        let mut epochs: Vec<Vec<i64>> = Vec::new();
        let segment = writer.close().expect("closed");
        segment
            .recover(&SegmentConfig::default(), |frame, _| {
                let epoch = i64::from(frame.partition_leader_epoch());
                if epochs.last().is_none_or(|last| last[0] < epoch) {
                    epochs.push(vec![epoch, frame.base_offset().0]);
                }
                Ok(None)
            })
            .expect("recovered");
        assert_eq!(epochs, lists(&row["epochs"]));
    }
}

#[test]
fn c03_r023_a_preallocated_file_is_cut_when_it_is_closed() {
    let row = row("c03_r023");
    for (place, bytes) in places().into_iter().zip([1 << 20, number(&row["segmentBytes"]) as u32]) {
        let config =
            SegmentConfig { segment_bytes_max: bytes, preallocate: true, ..SegmentConfig::default() };
        let mut writer = place.create(0, &config);
        (0..number(&row["records"])).for_each(|offset| append(&mut writer, &timed(offset)));
        let path = writer.segment().path(SegmentFileKind::Log);
        let len = |place: &Place| place.storage.open(&path).and_then(|file| file.size()).expect("a length");
        assert_eq!(len(&place), u64::from(bytes));
        let before = writer.segment().bytes().expect("bytes");
        let end = writer.size();
        drop(writer.close().expect("closed"));
        assert_eq!(len(&place), end);
        let segment = place.open(0);
        assert_eq!(segment.size(), end);
        assert_eq!(segment.bytes().expect("bytes"), before);
        let writer = SegmentWriter::resume(segment, config.clone(), 0).expect("resumed");
        assert_eq!(writer.size(), end);
    }
}

#[test]
fn c03_r024_batches_are_taken_while_they_are_in_reach() {
    let row = row("c03_r024");
    for place in places() {
        let batches: Vec<_> = numbers(&row["offsets"])
            .into_iter()
            .map(|offset| {
                let value = vec![7; if offset == 500 { 1 << 20 } else { 10 }];
                BatchSpec::single(offset, b"k".to_vec(), Some(value)).encode()
            })
            .collect();
        let mut writer = place.create(number(&row["base"]), &SegmentConfig::default());
        let taken = batches.iter().take_while(|bytes| writer.append(bytes, &facts(bytes)).is_ok()).count();
        assert_eq!(taken as i64, number(&row["kept"]));
        assert_eq!(writer.size() as usize, batches[..taken].concat().len());
        let mut later = place.create(number(&row["laterBase"]), &SegmentConfig::default());
        append(&mut later, &batches[taken]);
    }
}

#[test]
fn c03_r025_files_that_were_not_made_are_not_renamed() {
    for place in places() {
        let writer = place.create(7, &SegmentConfig::default());
        assert_eq!(place.names(), ["00000000000000000007.log"]);
        writer.segment().rename(SegmentFileState::Cleaned).expect("renamed");
        assert_eq!(place.names(), ["00000000000000000007.log.cleaned"]);
        writer.segment().flush().expect("flushed");
        assert_eq!(
            place.names(),
            [
                "00000000000000000007.index.cleaned",
                "00000000000000000007.log.cleaned",
                "00000000000000000007.timeindex.cleaned",
            ]
        );
    }
}

#[test]
fn segments_that_need_recovery_say_so() {
    for place in places() {
        let mut writer = place.create(100, &SegmentConfig::default());
        append(&mut writer, &range(100, 101));
        let marker = |offset| AbortedTransaction {
            producer_id: ProducerId(1),
            first_offset: Offset(3),
            last_offset: Offset(offset),
            last_stable_offset: Offset(3),
        };
        writer.append_aborted(marker(101)).expect("an entry");
        assert!(matches!(writer.append_aborted(marker(101)), Err(Error::Index { .. })), "no marker twice");
        let segment = writer.close().expect("closed");
        assert_eq!(segment.check().expect("a look"), None);
        let path = segment.path(SegmentFileKind::TransactionIndex);
        drop(segment);
        // Byte 18 is where the marker's offset begins.
        place.overwrite(&path, 18, &99i64.to_be_bytes());
        let needs = place.open(100).check().expect("a look");
        assert!(matches!(needs, Some(NeedsRecovery::TransactionIndex(_))), "{needs:?}");
        place.overwrite(&path, 0, &[0, 1]);
        assert!(matches!(place.open(100).check(), Err(Error::Index { .. })));
        let segment = place.open(100);
        place.storage.remove_file(&segment.path(SegmentFileKind::OffsetIndex)).expect("removed");
        assert_eq!(segment.check().expect("a look"), Some(NeedsRecovery::NoOffsetIndex));
        let recovered = segment.recover(&SegmentConfig::default(), no_producers).expect("recovered");
        assert_eq!(recovered.segment.check().expect("a look"), None);
        assert!(!place.names().iter().any(|name| name.ends_with(".txnindex")), "nothing was aborted");
    }
}

#[test]
fn recovery_looks_at_the_offsets() {
    for place in places() {
        let size = range(0, 0).len() as u64;
        let recover = |offsets: &[i64]| {
            let path = place.create(0, &interval(0)).close().expect("closed").path(SegmentFileKind::Log);
            let bytes: Vec<u8> = offsets.iter().flat_map(|&offset| range(offset, offset)).collect();
            place.overwrite(&path, 0, &bytes);
            (place.open(0).recover(&interval(0), no_producers), place.file(&path) == bytes)
        };
        let (far, is_unchanged) = recover(&[0, 1, 1 << 31]);
        let far = far.expect_err("a segment that has to be split");
        assert!(
            matches!(far, RecoveryFault::OffsetOverflow { position, .. } if position == 2 * size),
            "{far}"
        );
        assert!(is_unchanged);
        for back in [4, 5] {
            let recovered = recover(&[0, 5, back, 9]).0.expect("recovered");
            assert_eq!((recovered.batches, recovered.next_offset), (2, Offset(6)));
            let reason = CutReason::OffsetGoesBack { last: Offset(5), found: Offset(back) };
            let cut = recovered.cut.expect("a cut");
            assert_eq!((cut.position, cut.bytes, cut.reason), (2 * size, 2 * size, reason));
        }
    }
}
