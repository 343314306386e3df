//! Bytes as keys and values of the transaction log: nothing may panic, and the slow twin must agree.
#![no_main]

use libfuzzer_sys::fuzz_target;
use redrive::transaction_log::{Key, Value, decode_utf8, java_string_hash};
use redrive_tests::naive;

fuzz_target!(|bytes: &[u8]| {
    assert_eq!(decode_utf8(bytes), naive::java_text(bytes));
    let _ = java_string_hash(bytes);

    match (Key::parse(bytes), naive::read_key(bytes)) {
        (Ok(Key::TransactionalId(id)), Ok(Some(theirs))) => assert_eq!(decode_utf8(id), theirs),
        (Ok(Key::Unknown { .. }), Ok(None)) | (Err(_), Err(_)) => {}
        (ours, theirs) => panic!("key: {ours:?} against {theirs:?}"),
    }

    let ours = Value::parse(bytes).and_then(|value| match value {
        Value::Known(fields) => fields.transaction().map(Some),
        Value::Unknown { .. } => Ok(None),
    });
    match (ours, naive::read_value(bytes)) {
        (Ok(Some(view)), Ok(Some(theirs))) => {
            let ours = view.to_metadata();
            assert_eq!(ours.producer_id.0, theirs.producer_id);
            assert_eq!(ours.producer_epoch, theirs.producer_epoch);
            assert_eq!(ours.transaction_timeout_ms, theirs.transaction_timeout_ms);
            assert_eq!(ours.state.name(), theirs.state);
            assert_eq!(ours.last_update_timestamp_ms, theirs.last_update_timestamp_ms);
            assert_eq!(ours.start_timestamp_ms, theirs.start_timestamp_ms);
            assert_eq!(ours.previous_producer_id.0, theirs.previous_producer_id);
            assert_eq!(ours.next_producer_id.0, theirs.next_producer_id);
            assert_eq!(ours.next_producer_epoch, theirs.next_producer_epoch);
            assert_eq!(ours.client_transaction_version, theirs.client_transaction_version);
            // What was read can be written, and reads the same again.
            let mut written = Vec::new();
            if ours.encode(view.fields().version, &mut written).is_ok() {
                let Ok(Value::Known(again)) = Value::parse(&written) else { panic!("{written:?}") };
                assert_eq!(again.transaction().expect("written by us").to_metadata(), ours);
            }
        }
        (Ok(None), Ok(None)) | (Err(_), Err(_)) => {}
        (ours, theirs) => panic!("value: {ours:?} against {theirs:?}"),
    }
});
