//! Unit tests that need nothing but this module, so that Miri can run them too. The vectors of Kafka's own classes are
//! in the test crate.

use super::legacy::LegacyMessage;
use super::*;
use crate::types::{Offset, ProducerId};

/// Offset, key and value.
type Owned = (i64, Option<Vec<u8>>, Option<Vec<u8>>);

fn records(bytes: &[u8]) -> Result<Vec<Owned>, String> {
    let (frame, rest) = BatchFrame::parse(bytes).map_err(|fault| fault.to_string())?;
    assert!(rest.is_empty());
    let batch = frame.verify().map_err(|fault| fault.to_string())?;
    let mut decompressor = Decompressor::new();
    let records = batch.records(&mut decompressor, &Limits::default()).map_err(|fault| fault.to_string())?;
    records
        .map(|record| {
            let record = record.map_err(|fault| fault.to_string())?;
            Ok((record.offset.0, record.key.map(<[u8]>::to_vec), record.value.map(<[u8]>::to_vec)))
        })
        .collect()
}

fn three_records() -> BatchBuilder {
    let mut builder = BatchBuilder::new(Offset(100));
    builder.leader_epoch(7).producer(ProducerId(1000), 5, i32::MAX - 1);
    let headers: [(&[u8], Option<&[u8]>); 2] = [(b"h", Some(b"v")), (b"", None)];
    let new = |timestamp, key, value| NewRecord { timestamp, key, value, headers: &headers };
    builder
        .push(&new(1_700_000_000_000, Some(b"a"), Some(b"1")))
        .and_then(|builder| builder.push(&new(1_700_000_000_005, None, Some(b""))))
        .and_then(|builder| builder.push_at(Offset(109), &new(1_699_999_999_999, Some(b"c"), None)))
        .expect("three small records");
    builder
}

#[test]
fn what_was_built_is_read() {
    for compression in Compression::ALL.into_iter().filter(|codec| codec.is_supported()) {
        let bytes = three_records().compression(compression).build().expect("a batch");
        let (frame, _) = BatchFrame::parse(&bytes).expect("a frame");
        assert_eq!(
            (frame.base_offset(), frame.last_offset(), frame.records_count()),
            (Offset(100), Offset(109), 3)
        );
        assert_eq!(
            (frame.partition_leader_epoch(), frame.producer_id(), frame.producer_epoch()),
            (7, ProducerId(1000), 5)
        );
        assert_eq!(frame.max_timestamp(), 1_700_000_000_005);
        // Two sequence numbers are left before the ring begins anew.
        assert_eq!(frame.last_sequence(), 7);
        let expected = vec![
            (100, Some(b"a".to_vec()), Some(b"1".to_vec())),
            (101, None, Some(vec![])),
            (109, Some(b"c".to_vec()), None),
        ];
        assert_eq!(records(&bytes), Ok(expected));
    }
}

#[test]
fn timestamps_sequences_and_headers_of_records() {
    let bytes = three_records().build().expect("a batch");
    let batch = BatchFrame::parse(&bytes).expect("a frame").0.verify().expect("a right CRC");
    let mut decompressor = Decompressor::new();
    let read: Vec<_> =
        batch.records(&mut decompressor, &Limits::default()).expect("no codec").map(Result::unwrap).collect();
    assert_eq!(
        read.iter().map(|record| (record.timestamp, record.sequence)).collect::<Vec<_>>(),
        [(1_700_000_000_000, i32::MAX - 1), (1_700_000_000_005, i32::MAX), (1_699_999_999_999, 7)]
    );
    let headers: Vec<_> = read[0].headers().map(|header| (header.key, header.value)).collect();
    assert_eq!(headers, [(&b"h"[..], Some(&b"v"[..])), (b"", None)]);

    let bytes = three_records().log_append_time(5).build().expect("a batch");
    let batch = BatchFrame::parse(&bytes).expect("a frame").0.verify().expect("a right CRC");
    let times = batch.records(&mut decompressor, &Limits::default()).expect("no codec");
    assert!(times.map(Result::unwrap).all(|record| record.timestamp == 5));
}

#[test]
fn markers_have_78_bytes_and_say_what_they_say() {
    for committed in [false, true] {
        let marker = EndTransactionMarker { committed, coordinator_epoch: 9 };
        let mut builder = BatchBuilder::new(Offset(202));
        builder.transactional().control().producer(ProducerId(1000), 5, -1);
        let bytes = builder
            .push_marker(1_700_000_000_150, marker)
            .and_then(|builder| builder.build())
            .expect("a marker");
        assert_eq!(bytes.len(), 78);
        let (frame, _) = BatchFrame::parse(&bytes).expect("a frame");
        assert!(frame.is_control() && frame.is_transactional());
        let mut decompressor = Decompressor::new();
        let batch = frame.verify().expect("a right CRC");
        let record = batch.records(&mut decompressor, &Limits::default()).expect("no codec").next();
        let record = record.expect("one record").expect("a good one");
        assert_eq!(ControlRecord::parse(&record).expect("a marker").marker, Some(marker));
    }
}

/// Miri is some thousand times slower, so it sees a part of the cases.
const STEP: usize = if cfg!(miri) { 7 } else { 1 };

#[test]
fn every_cut_and_every_flipped_bit_is_found() {
    let bytes = three_records().build().expect("a batch");
    let whole = records(&bytes).expect("readable");
    for cut in (0..bytes.len()).step_by(STEP) {
        assert!(matches!(BatchFrame::parse(&bytes[..cut]), Err(FrameFault::Incomplete { .. })), "{cut}");
    }
    for bit in (0..bytes.len() * 8).step_by(STEP) {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        match bit / 8 {
            // A base offset and a leader epoch lie outside the CRC: a leader stamps them in place.
            0..8 | 12..16 => {
                if let Ok(records) = records(&damaged) {
                    assert!(records.iter().map(|record| &record.1).eq(whole.iter().map(|record| &record.1)));
                }
            }
            _ => assert!(
                BatchFrame::parse(&damaged).map_or(true, |(frame, _)| frame.verify().is_err()),
                "bit {bit}"
            ),
        }
    }
}

#[test]
fn damaged_records_under_a_right_crc_never_panic() {
    let bytes = three_records().build().expect("a batch");
    let mut refused = 0;
    for at in (HEADER_LEN..bytes.len()).step_by(STEP) {
        for value in [0, 1, 0x7f, 0x80, 0xff, bytes[at].wrapping_add(2)] {
            let mut damaged = bytes.clone();
            damaged[at] = value;
            let crc = crc32c::crc32c(&damaged[CRC_START..]);
            damaged[17..21].copy_from_slice(&crc.to_be_bytes());
            refused += usize::from(records(&damaged).is_err());
        }
    }
    assert!(refused > 100 / STEP, "{refused}");
}

#[test]
fn zeros_are_a_length_fault_and_not_an_end() {
    assert_eq!(FramePrefix::parse(&[0; 64], 64), Err(FrameFault::Length { length: 0, magic: 0, least: 14 }));
    assert_eq!(FramePrefix::parse(&[0; 3], 3), Err(FrameFault::Incomplete { left: 3, missing: 14 }));
}

#[test]
fn emptied_batches_keep_their_range() {
    let mut builder = BatchBuilder::new(Offset(40));
    builder.last_offset(Offset(49)).max_timestamp(77).producer(ProducerId(3), 1, 6);
    let bytes = builder.build().expect("a header");
    assert_eq!(bytes.len(), HEADER_LEN);
    let (frame, _) = BatchFrame::parse(&bytes).expect("a frame");
    assert_eq!((frame.last_offset(), frame.max_timestamp(), frame.last_sequence()), (Offset(49), 77, 15));
    assert_eq!(records(&bytes), Ok(vec![]));
}

#[test]
fn offsets_that_cannot_be_in_one_batch_are_refused() {
    let record = NewRecord::default();
    let mut builder = BatchBuilder::new(Offset(10));
    assert!(builder.push_at(Offset(9), &record).is_err());
    assert!(builder.push_at(Offset(10), &record).is_ok());
    assert!(builder.push_at(Offset(10), &record).is_err());
    assert!(builder.push_at(Offset(11 + i64::from(i32::MAX)), &record).is_err());
    assert!(builder.push_at(Offset(10 + i64::from(i32::MAX)), &record).is_ok());
}

#[test]
fn legacy_messages_of_any_bytes_never_panic() {
    // Magic 1, key "k", value "v".
    let mut message = vec![0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 24, 0, 0, 0, 0, 1, 0];
    message.extend(1_700_000_000_000i64.to_be_bytes());
    message.extend([0, 0, 0, 1, b'k', 0, 0, 0, 1, b'v']);
    let crc = crc32fast::hash(&message[16..]);
    message[12..16].copy_from_slice(&crc.to_be_bytes());
    let (read, rest) = LegacyMessage::parse(&message).expect("a message");
    assert!(rest.is_empty() && read.verify().is_ok());
    let mut decompressor = Decompressor::new();
    let record = read.records(&mut decompressor, &Limits::default()).expect("a record")[0];
    assert_eq!((record.offset, record.key, record.value), (Offset(4), Some(&b"k"[..]), Some(&b"v"[..])));
    for at in (0..message.len()).step_by(STEP) {
        for value in [0, 1, 2, 0x7f, 0x80, 0xff] {
            let mut damaged = message.clone();
            damaged[at] = value;
            if let Ok((read, _)) = LegacyMessage::parse(&damaged) {
                let _ = read.records(&mut Decompressor::new(), &Limits::default());
            }
            let _ = LegacyMessage::parse(&damaged[..at]);
        }
    }
}

#[test]
fn a_delete_horizon_that_comes_too_late_is_refused() {
    let record = NewRecord { timestamp: 1000, ..NewRecord::default() };
    let mut late = BatchBuilder::new(Offset(0));
    late.push(&record).expect("a small record");
    assert_eq!(late.delete_horizon(5000).build(), Err(BuildFault::LateDeleteHorizon));

    let mut early = BatchBuilder::new(Offset(0));
    early.delete_horizon(5000).push(&record).expect("a small record");
    let bytes = early.build().expect("a batch");
    let (frame, _) = BatchFrame::parse(&bytes).expect("a frame");
    assert_eq!(frame.delete_horizon_ms(), Some(5000));
    let mut decompressor = Decompressor::new();
    let batch = frame.verify().expect("a right CRC");
    let read = batch.records(&mut decompressor, &Limits::default()).expect("no codec").next();
    assert_eq!(read.expect("one record").expect("a good one").timestamp, 1000);
    assert!(BatchBuilder::new(Offset(i64::MIN)).push_at(Offset(i64::MAX), &record).is_err());
}
