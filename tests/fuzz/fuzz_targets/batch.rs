//! Bytes as batches: nothing may panic, and what can be read must be what the slow twin reads.
#![no_main]

use libfuzzer_sys::fuzz_target;
use redrive::batch::legacy::LegacyMessage;
use redrive::batch::{BatchFrame, ControlRecord, Decompressor, Limits};
use redrive_tests::naive;

const BYTES_MAX: usize = 1 << 20;

fuzz_target!(|bytes: &[u8]| {
    let limits = Limits::default().with_decompressed_bytes_max(BYTES_MAX);
    let mut decompressor = Decompressor::new();
    if let Ok((message, _)) = LegacyMessage::parse(bytes) {
        let _ = message.verify();
        let _ = message.records(&mut decompressor, &limits);
    }
    let Ok((frame, rest)) = BatchFrame::parse(bytes) else { return };
    assert_eq!(frame.size() + rest.len(), bytes.len());
    let _ = (frame.last_offset(), frame.last_sequence(), frame.delete_horizon_ms(), frame.verify().is_ok());

    // The checksum is left aside here: random bytes would never pass it.
    let batch = frame.without_crc_check();
    let ours = batch.records(&mut decompressor, &limits).map_err(|fault| fault.to_string()).and_then(|records| {
        records.map(|record| record.map_err(|fault| fault.to_string())).collect::<Result<Vec<_>, _>>()
    });
    if let Ok(records) = &ours {
        for record in records {
            let _ = record.headers().count();
            let _ = ControlRecord::parse(record);
        }
    }
    let Ok(Some(theirs)) = naive::next_batch(bytes, bytes.len() as u64) else { return };
    let Ok(payload) = theirs.decompress(BYTES_MAX) else { return };
    let Ok(theirs) = theirs.records(&payload) else { return };
    let Ok(ours) = ours else { panic!("the twin reads {} records, we refuse: {ours:?}", theirs.len()) };
    assert_eq!(ours.len(), theirs.len());
    for (ours, theirs) in ours.iter().zip(&theirs) {
        assert_eq!((ours.key, ours.value), (theirs.key, theirs.value));
    }
});
