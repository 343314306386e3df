//! What a broker would make of a refused partition, in every form of output.

use std::fs;
use std::path::Path;

use redrive::error::BrokerView;
use redrive_tests::logs::BatchSpec;

use crate::common::{batches, redrive, value, write_log};

/// Refuses one log, and fails unless every form of output says what a broker would do about it.
fn assert_said(root: &Path, view: BrokerView) {
    let dir = root.to_str().unwrap();
    let sentence = view.to_string();
    for format in ["json", "ndjson"] {
        let document = redrive(["replay", "--format", format, dir]).expect(1).json();
        let partition = if format == "json" { &document["partitions"][0] } else { &document };
        assert_eq!(partition["error"]["broker"], *sentence, "{partition}");
    }
    let document = redrive(["list", "--format", "json", dir]).expect(1).json();
    assert_eq!(document["refused"][0]["error"]["broker"], *sentence, "{document}");
    let text = redrive(["replay", dir]).expect(1);
    assert!(text.text().lines().any(|line| line.trim() == sentence), "{sentence:?} in {}", text.text());
    let list = redrive(["list", dir]).expect(1);
    assert!(list.stderr.trim_end().ends_with(&sentence), "{sentence:?} in {}", list.stderr);
}

fn three() -> Vec<BatchSpec> {
    batches(&[(b"a", Some(value(1))), (b"b", Some(value(2))), (b"c", Some(value(4)))])
}

/// As a broker leaves a root that it closed.
fn close(log: &Path) {
    fs::write(log.with_extension("index"), "").unwrap();
    fs::write(
        log.parent().unwrap().with_file_name(".kafka_cleanshutdown"),
        "{\"version\":0,\"brokerEpoch\":1}",
    )
    .unwrap();
}

#[test]
fn a_wrong_crc_is_cut_unless_the_log_was_closed() {
    let root = tempfile::tempdir().unwrap();
    let mut batches = three();
    batches[1].crc_flip = 1;
    let log = write_log(root.path(), 0, &batches);
    let bytes = batches[1..].iter().map(|batch| batch.encode().len() as u64).sum();
    assert_said(root.path(), BrokerView::Cuts { bytes, later_segments: 0, later_bytes: 0 });
    close(&log);
    assert_said(root.path(), BrokerView::Serves);
}

#[test]
fn a_length_that_is_none_ends_the_start_on_a_closed_log() {
    let root = tempfile::tempdir().unwrap();
    let log = write_log(root.path(), 0, &three());
    close(&log);
    let mut bytes = fs::read(&log).unwrap();
    let at = three()[0].encode().len();
    bytes[at + 8..at + 12].copy_from_slice(&3_i32.to_be_bytes());
    fs::write(&log, bytes).unwrap();
    assert_said(root.path(), BrokerView::RefusesToLoad);
}

#[test]
fn an_offset_too_far_above_the_base_is_split_off() {
    let root = tempfile::tempdir().unwrap();
    let mut batches = three();
    batches[2].base_offset = i64::from(i32::MAX) + 1;
    write_log(root.path(), 0, &batches);
    assert_said(root.path(), BrokerView::Splits);
}

#[test]
fn a_value_that_cannot_be_read_is_overlooked() {
    let root = tempfile::tempdir().unwrap();
    let mut batches = three();
    batches[1].records[0].value = Some(vec![0, 0, 1]);
    write_log(root.path(), 0, &batches);
    assert_said(root.path(), BrokerView::Overlooks);
}

#[test]
fn a_log_that_ends_below_its_start_is_dropped() {
    let root = tempfile::tempdir().unwrap();
    write_log(root.path(), 0, &three());
    fs::write(root.path().join("log-start-offset-checkpoint"), "0\n1\n__transaction_state 0 9\n").unwrap();
    assert_said(root.path(), BrokerView::DropsLog);
}
