//! Every index, snapshot and small text file that real brokers left behind: read, judged, and written back.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use redrive::log_dir::checkpoint::{
    CleanShutdown, LeaderEpochCheckpoint, MetaProperties, OffsetCheckpoint, PartitionMetadata,
};
use redrive::producer_state::ProducerSnapshot;
use redrive::segment::index::{OffsetIndex, TimeIndex, TransactionIndex};
use redrive::types::Offset;
use redrive_tests::corpus;

fn files_under(dir: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("a readable folder") {
        let path = entry.expect("a readable folder").path();
        if path.is_dir() {
            files_under(&path, files);
        } else {
            files.push(path);
        }
    }
}

/// Checks one file and returns its kind; `None` for a kind that is not looked at here.
fn check(path: &Path, unclean: bool) -> Option<&'static str> {
    let name = path.file_name().and_then(|name| name.to_str()).expect("a plain name");
    let file = fs::read(path).expect("a readable file");
    let shown = path.display();
    let base = || Offset(name[..20].parse().expect("base offset"));
    let log_bytes = || fs::metadata(path.with_extension("log")).map_or(0, |log| log.len());
    Some(match name.split_once('.').map_or(name, |(_, kind)| kind) {
        "index" => {
            let index = OffsetIndex::new(base(), &file);
            assert_eq!(index.check(), Ok(()), "{shown}");
            let mut written = Vec::new();
            for entry in index.entries_used(log_bytes()) {
                entry.encode(base(), &mut written).expect("fits");
            }
            assert!(file.starts_with(&written), "{shown}");
            let padding = &file[written.len()..];
            assert!(padding.iter().all(|&byte| byte == 0), "{shown}: only zeros behind the entries used");
            assert!(unclean || padding.is_empty(), "{shown}: trimmed by a clean stop");
            "index"
        }
        "timeindex" => {
            let index = TimeIndex::new(base(), &file);
            assert!(unclean || index.check().is_ok(), "{shown}");
            let mut written = Vec::new();
            for entry in index.entries_used() {
                entry.encode(base(), &mut written).expect("fits");
            }
            assert!(file.starts_with(&written), "{shown}");
            let padding = &file[written.len()..];
            assert!(padding.iter().all(|&byte| byte == 0), "{shown}: only zeros behind the entries used");
            assert!(unclean || padding.is_empty(), "{shown}: trimmed by a clean stop");
            "timeindex"
        }
        "txnindex" => {
            let index = TransactionIndex::new(base(), &file);
            assert_eq!((index.check(), index.trailing_bytes()), (Ok(()), 0), "{shown}");
            let mut written = Vec::new();
            index.entries().for_each(|entry| entry.expect("version 0").encode(&mut written));
            assert_eq!(written, file, "{shown}");
            "txnindex"
        }
        "snapshot" => {
            let snapshot = ProducerSnapshot::parse(&file).unwrap_or_else(|fault| panic!("{shown}: {fault}"));
            assert_eq!(snapshot.repeated_producer_id(), None, "{shown}");
            assert_eq!(snapshot.encode().expect("few entries"), file, "{shown}");
            "snapshot"
        }
        "leader-epoch-checkpoint" => {
            let checkpoint =
                LeaderEpochCheckpoint::parse(&file).unwrap_or_else(|fault| panic!("{shown}: {fault}"));
            assert_eq!(checkpoint.dropped, 0, "{shown}");
            assert!(file.is_empty() || checkpoint.encode().as_bytes() == file, "{shown}");
            "leader-epoch-checkpoint"
        }
        "metadata" if name == "partition.metadata" => {
            let metadata = PartitionMetadata::parse(&file).unwrap_or_else(|fault| panic!("{shown}: {fault}"));
            assert_eq!(metadata.encode().as_bytes(), file, "{shown}");
            "partition.metadata"
        }
        "properties" => {
            let properties = MetaProperties::parse(&file).unwrap_or_else(|fault| panic!("{shown}: {fault}"));
            assert_eq!(properties.version, 1, "{shown}");
            assert!(properties.node_id.is_some_and(|id| id > 0), "{shown}");
            assert!(properties.directory_id.is_some(), "{shown}");
            "meta.properties"
        }
        "kafka_cleanshutdown" => {
            let epoch = CleanShutdown::parse(&file).broker_epoch.expect("a known epoch");
            assert_eq!(CleanShutdown::encode(epoch).as_bytes(), file, "{shown}");
            ".kafka_cleanshutdown"
        }
        kind if kind.ends_with("-offset-checkpoint") => {
            let checkpoint =
                OffsetCheckpoint::parse(&file).unwrap_or_else(|fault| panic!("{shown}: {fault}"));
            assert!(checkpoint.repeated.is_empty(), "{shown}");
            assert!(file.is_empty() || checkpoint.encode().as_bytes() == file, "{shown}");
            "offset checkpoint"
        }
        _ => return None,
    })
}

#[test]
fn every_file_of_real_brokers() {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for case in corpus::cases() {
        for root in &case.data_dirs {
            let unclean = !root.join(".kafka_cleanshutdown").exists();
            let mut files = Vec::new();
            files_under(root, &mut files);
            for kind in files.iter().filter_map(|path| check(path, unclean)) {
                *counts.entry(kind).or_default() += 1;
            }
        }
    }
    let floors = [
        ("index", 500),
        ("timeindex", 500),
        ("txnindex", 50),
        ("snapshot", 500),
        ("leader-epoch-checkpoint", 100),
        ("partition.metadata", 100),
        ("meta.properties", 20),
        (".kafka_cleanshutdown", 20),
        ("offset checkpoint", 50),
    ];
    for (kind, floor) in floors {
        let count = counts.get(kind).copied().unwrap_or(0);
        assert!(count >= floor, "{count} files of kind {kind}, at least {floor} expected: {counts:?}");
    }
    println!("{counts:?}");
}
