//! Rows of the chapter on logs, and fault cases, about whole log directories: the clean-shutdown file, checkpoints,
//! partitions that cannot be opened.

mod log_place;

use std::io::ErrorKind;
use std::num::NonZero;
use std::path::Path;
use std::sync::Arc;

use log_place::{NOW, lead, range};
use redrive::Error;
use redrive::io::{Fault, FileSystem, MemoryStorage, Storage};
use redrive::log::{Log, LogConfig};
use redrive::log_dir::checkpoint::Uuid;
use redrive::log_dir::{LogRoot, OpenOptions, RootRecovery, check_duplicates};
use redrive::types::{Offset, TopicPartition};

const CLEAN: &str = ".kafka_cleanshutdown";
const ROOT: &str = "/root";

fn config(_: &TopicPartition) -> LogConfig {
    LogConfig { index_interval_bytes: 0, segment_index_bytes: 4096, ..LogConfig::default() }
}

fn open(storage: &Arc<dyn Storage>, root: &Path) -> Result<(LogRoot, RootRecovery), Error> {
    let options = OpenOptions {
        threads: NonZero::new(2).expect("two"),
        config: &config,
        may_reset: false,
        now_ms: NOW,
        progress: None,
    };
    LogRoot::open(Arc::clone(storage), root, &options)
}

fn partition(number: i32) -> TopicPartition {
    TopicPartition::new("t", number)
}

fn memory() -> (MemoryStorage, Arc<dyn Storage>) {
    let memory = MemoryStorage::new();
    memory.create_directory(ROOT);
    (memory.clone(), Arc::new(memory))
}

fn opened(storage: &Arc<dyn Storage>) -> (LogRoot, RootRecovery) {
    open(storage, Path::new(ROOT)).expect("a root")
}

/// A root with partitions of so many records, open.
fn filled(storage: &Arc<dyn Storage>, records: &[i64]) -> LogRoot {
    let (root, _) = opened(storage);
    for (number, records) in (0..).zip(records) {
        let log = create(&root, number);
        (0..*records).for_each(|_| {
            lead(&log, &range(0, 0));
        });
    }
    root
}

fn create(root: &LogRoot, number: i32) -> Arc<Log> {
    root.create(&partition(number), None, config(&partition(number)), NOW).expect("a log")
}

fn ends(root: &LogRoot) -> Vec<i64> {
    root.logs().iter().map(|log| log.log_end_offset().0).collect()
}

#[test]
fn c03_r284_a_crash_while_loading() {
    let (memory, storage) = memory();
    filled(&storage, &[3, 5]).close(1).expect("closed");
    assert!(memory.content(format!("{ROOT}/{CLEAN}")).is_some());
    // Stopped at every change in turn: once the marker is gone the next start recovers, and before it is clean.
    let from = memory.operations().len();
    let (root, recovery) = opened(&storage);
    assert!(recovery.was_clean);
    assert_eq!(ends(&root), [3, 5]);
    assert!(memory.content(format!("{ROOT}/{CLEAN}")).is_none(), "gone as soon as the root is open");
    let operations = memory.operations().len() - from;
    drop(root);
    for crash in 0..operations {
        let (memory, storage) = self::memory();
        filled(&storage, &[3, 5]).close(1).expect("closed");
        memory.refuse_from(memory.operations().len() + crash, ErrorKind::Other);
        let died = open(&storage, Path::new(ROOT));
        drop(died);
        memory.refuse_from(usize::MAX, ErrorKind::Other);
        let is_marked = memory.content(format!("{ROOT}/{CLEAN}")).is_some();
        let (root, recovery) = opened(&storage);
        assert_eq!(recovery.was_clean, is_marked, "after change {crash}");
        assert_eq!(ends(&root), [3, 5]);
    }
    assert!(operations > 3);
}

#[test]
fn c03_r305_a_log_that_fails_to_close() {
    let (memory, storage) = memory();
    let root = filled(&storage, &[3]);
    memory.inject(format!("{ROOT}/t-1/{:020}.log", 0), Fault::Sync);
    let log = create(&root, 1);
    lead(&log, &range(0, 0));
    assert!(matches!(root.close(1), Err(Error::Io { .. })));
    assert!(memory.content(format!("{ROOT}/{CLEAN}")).is_none());
    drop(log);
    memory.inject(format!("{ROOT}/t-1/{:020}.log", 0), Fault::ShortReads(1 << 20));
    let (root, recovery) = opened(&storage);
    assert!(!recovery.was_clean);
    assert_eq!(ends(&root), [3, 1]);
}

#[test]
fn c03_r306_one_partition_in_two_directories() {
    let folders = [tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder")];
    let storage: Arc<dyn Storage> = Arc::new(FileSystem);
    let roots = folders.each_ref().map(|folder| open(&storage, folder.path()).expect("a root").0);
    drop((create(&roots[0], 0), create(&roots[1], 1)));
    check_duplicates(&roots).expect("no partition twice");
    drop(create(&roots[1], 0));
    let refused = check_duplicates(&roots);
    let Err(Error::DuplicatePartition { partition, first, second }) = refused else { panic!("{refused:?}") };
    assert_eq!(partition, self::partition(0));
    assert!(first.starts_with(roots[0].path()) && second.starts_with(roots[1].path()));
}

/// (a), and (b): a start that failed says nothing of a clean stop.
#[test]
fn fc_76_clean_shutdown_marker() {
    let (memory, storage) = memory();
    drop(filled(&storage, &[4, 4]));
    // One partition cannot be opened. An orderly exit then does not make the root clean.
    let epochs = format!("{ROOT}/t-1/leader-epoch-checkpoint");
    let right = memory.content(&epochs).expect("epochs");
    memory.write(&epochs, "0\n9\n");
    let (root, recovery) = opened(&storage);
    assert!(!recovery.was_clean && root.failed().contains_key(&partition(1)));
    assert_eq!(ends(&root), [4]);
    root.close(1).expect("closed");
    assert!(memory.content(format!("{ROOT}/{CLEAN}")).is_none());
    memory.write(&epochs, right);
    let (root, recovery) = opened(&storage);
    assert!(!recovery.was_clean && root.failed().is_empty());
    assert!(recovery.partitions.values().all(|report| !report.segments.is_empty()), "{recovery:?}");
    root.close(1).expect("closed");
    assert!(opened(&storage).1.was_clean);
}

#[test]
fn fc_76_recovery_points_that_were_written() {
    let (memory, storage) = memory();
    let root = filled(&storage, &[9]);
    let log = root.log(&partition(0)).expect("a log");
    log.flush(Offset(i64::MAX)).expect("flushed");
    root.checkpoint().expect("written");
    let file = format!("{ROOT}/recovery-point-offset-checkpoint");
    let text = || String::from_utf8(memory.content(&file).expect("a file")).expect("text");
    assert_eq!(text(), "0\n1\nt 0 9\n");
    // Cut, and the power goes once the checkpoint is written: it does not lie above the log end.
    log.truncate_to(Offset(4), NOW).expect("truncated");
    root.checkpoint().expect("written");
    assert_eq!(text(), "0\n1\nt 0 4\n");
    drop((log, root));
    // Above the end.
    memory.write(&file, "0\n1\nt 0 99\n");
    let (root, _) = opened(&storage);
    let log = root.log(&partition(0)).expect("a log");
    assert_eq!((log.recovery_point(), log.log_end_offset()), (Offset(4), Offset(4)));
    // What was recovered is not thought to be on the device: the point stays where it was.
    drop((log, root));
    memory.write(&file, "0\n1\nt 0 2\n");
    drop(opened(&storage));
    assert_eq!(text(), "0\n1\nt 0 2\n");
}

#[test]
fn fc_77_checkpoint_files_of_a_root() {
    let names =
        ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint"];
    let contents = [
        ("", true),
        ("0\n0\n", true),
        ("0\n3\nt 0 1\n", false),
        ("0\n1\nt 0", false),
        ("0\n1\nt 0 x\n", false),
        ("x\n", false),
    ];
    for name in names {
        for (content, loads) in contents {
            let (memory, storage) = memory();
            drop(filled(&storage, &[6]));
            memory.write(format!("{ROOT}/{name}"), content);
            match open(&storage, Path::new(ROOT)) {
                Ok((root, recovery)) => {
                    assert!(loads, "{name}: {content:?} is half used");
                    let log = root.log(&partition(0)).expect("a log");
                    assert_eq!((log.log_start_offset(), log.log_end_offset()), (Offset(0), Offset(6)));
                    assert_eq!(log.recovery_point(), Offset(0));
                    assert!(!recovery.partitions[&partition(0)].segments.is_empty());
                }
                Err(Error::Checkpoint { path, reason }) => {
                    assert!(!loads && path.ends_with(name), "{name}: {content:?}: {reason}");
                    assert!(!reason.is_empty());
                    let left = memory.content(format!("{ROOT}/{name}")).expect("the file");
                    assert_eq!(left, content.as_bytes());
                }
                Err(other) => panic!("{name}: {content:?}: {other}"),
            }
        }
    }
}

#[test]
fn c03_r035_an_empty_segment_is_not_rolled() {
    let (_, storage) = memory();
    let root = filled(&storage, &[0]);
    let log = root.log(&partition(0)).expect("open");
    assert!(!log.roll(NOW).expect("nothing to roll"));
    assert_eq!(log.segments_count(), 1);
    assert_eq!(lead(&log, &range(0, 0)).first_offset, Offset(0));
    assert_eq!((log.roll(NOW).ok(), log.segments_count()), (Some(true), 2));
}

#[test]
fn c03_r052_an_epoch_without_data_is_the_latest() {
    let (_, storage) = memory();
    let root = filled(&storage, &[2]);
    let log = root.log(&partition(0)).expect("open");
    assert_ne!(log.leader_epochs().latest_epoch(), Some(2));
    assert!(log.assign_leader_epoch(2).expect("assigned"));
    assert!(!log.assign_leader_epoch(2).expect("known"));
    let latest = log.leader_epochs();
    let latest = latest.entries().last().expect("an entry");
    assert_eq!((latest.epoch, latest.start_offset), (2, Offset(2)));
    assert!(log.assign_leader_epoch(-1).is_err());
    assert!(!log.is_poisoned());
}

#[test]
fn c03_r108_an_epoch_at_the_end_goes_with_a_truncation_above_it() {
    let (_, storage) = memory();
    let root = filled(&storage, &[3]);
    let log = root.log(&partition(0)).expect("open");
    let before = log.leader_epochs();
    for target in [3, 9] {
        log.assign_leader_epoch(7).expect("assigned");
        assert_ne!(log.leader_epochs(), before);
        assert!(!log.truncate_to(Offset(target), NOW).expect("nothing removed"));
        assert_eq!((log.leader_epochs(), log.log_end_offset()), (before.clone(), Offset(3)));
    }
}

#[test]
fn c03_r304_the_folder_of_another_topic() {
    let (memory, storage) = memory();
    let root = filled(&storage, &[1]);
    let (one, other) = (Uuid([1; 16]), Uuid([2; 16]));
    let create = |id| root.create(&partition(0), Some(id), config(&partition(0)), NOW);
    create(one).expect("written");
    create(one).expect("the same");
    let error = create(other).expect_err("another");
    assert!(matches!(&error, Error::InconsistentTopicId { .. }), "{error}");
    assert!(error.to_string().contains(&other.to_string()), "{error}");
    let metadata = memory.content(format!("{ROOT}/t-0/partition.metadata")).expect("written");
    assert!(String::from_utf8(metadata).expect("text").contains(&one.to_string()));
}
