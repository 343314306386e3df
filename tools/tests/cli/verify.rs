//! `redrive verify`: what it says of directories of real brokers, sound and damaged, and its exit status.

use std::fs;

use crate::common::{batches, listing, redrive, value, write_log};
use redrive_tests::corpus;

#[test]
fn sound_directories_have_no_errors() {
    for case in corpus::cases().iter().filter(|case| case.name.starts_with("txn-state-")) {
        let root = &case.data_dirs[0];
        let before = listing(root);
        let run = redrive(["verify".as_ref(), root.as_os_str(), "--format".as_ref(), "json".as_ref()]);
        let report = run.expect(0).json();
        assert_eq!(report["errors"], 0, "{}", case.name);
        let partitions = report["partitions"].as_array().expect("partitions");
        let sum = |name: &str| -> u64 {
            partitions.iter().map(|partition| partition[name].as_u64().expect("a count")).sum()
        };
        for name in ["bytes", "batches", "records", "indexEntries", "timeIndexEntries", "snapshots"] {
            assert_eq!(report["counts"][name].as_u64(), Some(sum(name)), "{} {name}", case.name);
        }
        assert!(sum("records") > 0);
        assert_eq!(before, listing(root), "nothing is changed");
    }
}

#[test]
fn damage_is_found_in_every_form_of_the_output() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = &corpus::case("txn-state-v0").copy_to(folder.path()).expect("a copy")[0];
    let path = root.join("__transaction_state-0/00000000000000000000.index");
    let mut index = fs::read(&path).expect("an index");
    index[7] ^= 1;
    fs::write(&path, index).expect("a file");
    let root = root.to_str().expect("text");

    let lines = redrive(["verify", root, "--format", "ndjson"]).expect(1).lines();
    let [finding] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!(finding["kind"], "index-entry-false");
    assert_eq!(finding["severity"], "error");
    assert_eq!(finding["topic"], "__transaction_state");
    assert_eq!((finding["partition"].as_i64(), finding["position"].as_u64()), (Some(0), Some(0)));
    assert_eq!(finding["path"].as_str(), path.to_str());
    assert!(finding["offset"].as_i64().is_some() && finding["logPosition"].as_u64().is_some());
    assert!(finding["message"].as_str().is_some_and(|text| text.contains("where no batch begins")));

    let text = redrive(["verify", root, "--threads", "1"]).expect(1);
    assert!(text.text().contains("index-entry-false") && text.text().contains("1 error, 0 notes"));
    let document = redrive(["verify", root, "--format", "json"]).expect(1).json();
    assert_eq!((&document["errors"], &document["notes"]), (&1.into(), &0.into()));
    // The other partitions are sound.
    redrive(["verify", root, "--partition", "1"]).expect(0);
    redrive(["verify", root, "--topic", "nothing"]).expect(3);
    redrive(["verify", root, "--threads", "0"]).expect(2);
    redrive(["verify", folder.path().join("absent").to_str().expect("text")]).expect(3);
}

#[test]
fn names_of_files_are_hostile() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = write_log(folder.path(), 0, &batches(&[(b"a", Some(value(0)))]));
    fs::write(log.with_file_name("\u{1b}[31mred"), b"x").expect("a file");
    let root = folder.path().to_str().expect("text");
    let run = redrive(["verify", root]).expect(0);
    assert!(run.text().contains("foreign-name") && !run.text().contains('\u{1b}'));
    let run = redrive(["verify", root, "--format", "ndjson"]).expect(0);
    assert!(!run.text().contains('\u{1b}'));
    let path = run.lines().into_iter().find(|line| line["kind"] == "foreign-name").expect("a finding");
    assert!(path["path"].as_str().is_some_and(|path| path.ends_with("\u{1b}[31mred")));
}
