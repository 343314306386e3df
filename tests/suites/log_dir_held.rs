//! Log directories on real disks: locks of other processes, links, pipes, several roots; and files that fail while
//! they are read.

mod judge;

use std::env;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::num::NonZero;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use judge::{PARTITION, ROOT, Root, run_one};
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use redrive::Error;
use redrive::error::Reason;
use redrive::io::{Fault, FileSystem, Storage};
use redrive::log_dir::NoticeKind;
use redrive::replay::{IoChoice, IoUsed, Loaded, Replay};
use redrive_tests::logs::{BatchSpec, SegmentFile, TransactionValue, encode_key};

/// Tells the child process which file to lock.
const HOLD: &str = "REDRIVE_TEST_HOLD";

/// Between fork and exec a child shares every open file of this process, and keeps a lock of an open file description
/// alive after the parent dropped it. So no child starts while a test looks at such a lock.
static FORK: Mutex<()> = Mutex::new(());

fn batch(offset: i64, id: &str) -> Vec<u8> {
    let value = TransactionValue { producer_id: offset, ..TransactionValue::default() };
    BatchSpec::single(offset, encode_key(0, id.as_bytes()), Some(value.encode())).encode()
}

fn log(ids: &[&str]) -> [SegmentFile; 1] {
    let batches = ids.iter().enumerate().map(|(offset, id)| batch(offset as i64, id));
    [SegmentFile { base_offset: 0, bytes: batches.flatten().collect() }]
}

fn replay(roots: &[&Path]) -> Replay {
    Replay::open(Arc::new(FileSystem), roots).expect("log directories").threads(NonZero::<usize>::MIN)
}

fn ids(loaded: &Loaded) -> Vec<String> {
    let mut ids: Vec<_> = loaded
        .maps()
        .flat_map(|map| map.iter())
        .map(|entry| entry.expect("still there").id().into_owned())
        .collect();
    ids.sort();
    ids
}

fn lock(kind: i32) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}

/// Another process that holds a lock as Java's FileChannel takes it.
struct Holder {
    child: Child,
    /// Kept open: the child's test harness writes to it at its end.
    _output: BufReader<ChildStdout>,
}

impl Holder {
    fn of(path: &Path) -> Self {
        let fork = FORK.lock().unwrap_or_else(PoisonError::into_inner);
        let mut child = Command::new(env::current_exe().expect("this test"))
            .args(["--exact", "a_lock_of_another_open_file_is_seen", "--nocapture"])
            .env(HOLD, path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a child process");
        drop(fork);
        let mut output = BufReader::new(child.stdout.take().expect("its output"));
        let held = output.by_ref().lines().map_while(Result::ok).any(|line| line.ends_with("held"));
        assert!(held, "the child process took no lock");
        Self { child, _output: output }
    }

    /// Lets the child end by itself.
    fn end(mut self) {
        self.child.stdin.take().expect("its input").write_all(b"end\n").expect("told");
        assert!(self.child.wait().expect("ended").success());
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // Without its input the child ends; a test that failed must not leave it behind.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// In the child process this holds the lock until its input ends. By itself it checks the look for locks within
/// one process.
#[test]
fn a_lock_of_another_open_file_is_seen() {
    if let Some(path) = env::var_os(HOLD) {
        let file = File::options().write(true).open(path).expect("the lock file");
        fcntl(&file, FcntlArg::F_SETLK(&lock(libc::F_WRLCK))).expect("locked");
        println!("held");
        io::stdin().read_to_end(&mut Vec::new()).expect("the end of the input");
        return;
    }
    let _fork = FORK.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join(".lock");
    assert!(!FileSystem.is_locked(&path).expect("no file is no lock"));
    let file = File::create(&path).expect("created");
    assert!(!FileSystem.is_locked(&path).expect("not locked"));
    fcntl(&file, FcntlArg::F_OFD_SETLK(&lock(libc::F_WRLCK))).expect("locked");
    assert!(FileSystem.is_locked(&path).expect("locked"));
    assert!(FileSystem.is_locked(&path).expect("a look changes nothing"));
    drop(file);
    assert!(!FileSystem.is_locked(&path).expect("free again"));
}

#[test]
fn a_held_directory_is_read_by_position_and_said_to_move() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    Root::of(&log(&["a", "b"])).file(".lock", &b""[..]).on_disk(folder.path());
    let lock = folder.path().join(".lock");
    let holder = Holder::of(&lock);
    for (io, used) in
        [(IoChoice::Auto, IoUsed::Pread), (IoChoice::Pread, IoUsed::Pread), (IoChoice::Uring, IoUsed::Uring)]
    {
        if io == IoChoice::Uring && !judge::has_uring(folder.path()) {
            continue;
        }
        let loaded = replay(&[folder.path()]).io(io).run().expect("a load");
        assert_eq!((loaded.io, loaded.is_moving, ids(&loaded).len()), (used, true, 2));
    }
    // A partition's folder by itself is held with its root.
    let loaded = replay(&[&folder.path().join(PARTITION)]).run().expect("a load");
    assert_eq!((loaded.io, loaded.is_moving), (IoUsed::Pread, true));
    match replay(&[folder.path()]).io(IoChoice::Mmap).run() {
        Err(Error::HeldByBroker { path }) => assert_eq!(path, folder.path().canonicalize().expect("a path")),
        other => panic!("{other:?}"),
    }
    // One held root of several is enough.
    let other = tempfile::tempdir().expect("a temporary folder");
    Root::default().partition("__transaction_state-1", &log(&["c"])).on_disk(other.path());
    let loaded = replay(&[other.path(), folder.path()]).run().expect("a load");
    assert_eq!((loaded.io, loaded.is_moving, ids(&loaded).len()), (IoUsed::Pread, true, 3));
    assert!(FileSystem.is_locked(&lock).expect("looked"), "our looks did not take the lock away");

    holder.end();
    assert!(!replay(&[folder.path()]).run().expect("a load").is_moving);
    assert!(replay(&[folder.path()]).io(IoChoice::Mmap).run().is_ok());
}

/// Kafka does not take flock(2) locks, and they say nothing.
#[test]
fn a_lock_of_the_other_kind_does_not_count() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    Root::of(&log(&["a"])).file(".lock", &b""[..]).on_disk(folder.path());
    let file = File::open(folder.path().join(".lock")).expect("the lock file");
    file.lock().expect("locked by flock");
    assert!(!replay(&[folder.path()]).run().expect("a load").is_moving);
    assert!(replay(&[folder.path()]).io(IoChoice::Mmap).run().is_ok());
}

#[test]
fn several_roots() {
    let (first, second) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    Root::of(&log(&["a"])).partition("__transaction_state-2", &log(&["c"])).on_disk(first.path());
    Root::default().partition("__transaction_state-1", &log(&["b"])).clean().on_disk(second.path());
    let loaded = replay(&[first.path(), second.path()]).run().expect("a load");
    assert_eq!(ids(&loaded), ["a", "b", "c"]);
    let numbers = loaded.partitions.iter().map(|outcome| outcome.topic_partition.partition);
    assert!(numbers.eq(0..3), "by partition number, whatever the root");

    // The same root under two names is one root.
    let link = second.path().join("again");
    symlink(first.path(), &link).expect("a link");
    let loaded = replay(&[first.path(), &link, first.path()]).run().expect("a load");
    assert_eq!(ids(&loaded), ["a", "c"]);

    // A partition in two roots is refused, the others load.
    Root::default().partition("__transaction_state-2", &log(&["x"])).on_disk(second.path());
    let loaded = replay(&[first.path(), second.path()]).run().expect("a load");
    assert_eq!(ids(&loaded), ["a", "b"]);
    match loaded.partitions[2].error() {
        Some(Error::DuplicatePartition { partition, first: one, second: other }) => {
            assert_eq!(partition.to_string(), "__transaction_state-2");
            assert!(one.starts_with(first.path()) && other.starts_with(second.path()));
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(loaded.get("c"), Err(Error::Incomplete { .. })));
}

#[test]
fn what_is_no_log_directory() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let open = |path: &Path| Replay::open(Arc::new(FileSystem), [path]).expect_err("no log directory");
    assert!(matches!(open(&folder.path().join("missing")), Error::Io { .. }));
    let file = folder.path().join("file");
    fs::write(&file, b"x").expect("written");
    assert!(matches!(open(&file), Error::Io { .. }));
    fs::remove_file(&file).expect("removed");
    assert!(matches!(open(folder.path()), Error::NotALogDirectory { .. }));
    fs::create_dir(folder.path().join("sub")).expect("created");
    let error = open(folder.path());
    assert!(matches!(error, Error::NotALogDirectory { .. }), "{error}");
    assert!(error.to_string().contains(&folder.path().display().to_string()));
    // A partition's folder by itself is one, and so is an empty root of a broker.
    Root::of(&log(&["a"])).on_disk(folder.path());
    assert_eq!(ids(&replay(&[&folder.path().join(PARTITION)]).run().expect("a load")), ["a"]);
}

/// Links that lead to regular files of the same root are read. A segment's name that leads elsewhere, to a pipe or to a
/// folder belongs to the log, which is not complete without it; none of them is waited for.
#[test]
fn links_and_pipes() {
    let (folder, outside) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let name = |base: i64| format!("{base:020}.log");
    let mode = nix::sys::stat::Mode::S_IRWXU;
    let root = folder.path();
    Root::of(&log(&["a"])).partition("__transaction_state-1", &log(&["b"])).on_disk(root);
    let partition = root.join(PARTITION);
    fs::write(root.join("elsewhere"), batch(1, "inside")).expect("written");
    symlink(root.join("elsewhere"), partition.join(name(1))).expect("a link");
    // Names without records in them are told and passed over.
    symlink(outside.path(), partition.join("00000000000000000001.index")).expect("a link");
    symlink(outside.path(), root.join("lost+found")).expect("a link");
    fs::write(outside.path().join("points"), "0\n1\n__transaction_state 0 99\n").expect("written");
    symlink(outside.path().join("points"), root.join("log-start-offset-checkpoint")).expect("a link");
    for io in [IoChoice::Mmap, IoChoice::Pread, IoChoice::Uring] {
        if io == IoChoice::Uring && !judge::has_uring(root) {
            continue;
        }
        let loaded = replay(&[root]).io(io).run().expect("a load");
        assert_eq!(ids(&loaded), ["a", "b", "inside"]);
        let notices = &loaded.partitions[0].notices;
        assert!(matches!(&notices[..], [notice] if notice.kind == NoticeKind::Link), "{notices:?}");
        assert_eq!(loaded.notices.iter().filter(|notice| notice.kind == NoticeKind::Link).count(), 2);
    }

    fs::write(outside.path().join("file"), batch(2, "outside")).expect("written");
    nix::unistd::mkfifo(&outside.path().join("pipe"), mode).expect("a pipe");
    let bad = partition.join(name(2));
    let make: [(&str, &dyn Fn()); 6] = [
        ("a link out of the root", &|| symlink(outside.path().join("file"), &bad).expect("a link")),
        ("a link to nothing", &|| symlink(root.join("nowhere"), &bad).expect("a link")),
        ("a link to a folder", &|| symlink(&partition, &bad).expect("a link")),
        ("a link to a pipe", &|| symlink(outside.path().join("pipe"), &bad).expect("a link")),
        ("a pipe", &|| nix::unistd::mkfifo(&bad, mode).expect("a pipe")),
        ("a folder", &|| fs::create_dir(&bad).expect("a folder")),
    ];
    for (what, make) in make {
        make();
        let loaded = replay(&[root]).run().expect("a load");
        assert_eq!(ids(&loaded), ["b"], "{what}");
        let error = loaded.partitions[0].error().expect("refused");
        assert!(matches!(error, Error::NotRead { .. } | Error::Io { .. }), "{what}: {error}");
        fs::remove_file(&bad).or_else(|_| fs::remove_dir(&bad)).expect("removed");
    }
    // A link in place of a partition's folder.
    Root::default().partition("__transaction_state-9", &log(&["z"])).on_disk(outside.path());
    symlink(outside.path().join("__transaction_state-9"), root.join("__transaction_state-9"))
        .expect("a link");
    let loaded = replay(&[root]).run().expect("a load");
    assert_eq!(ids(&loaded), ["a", "b", "inside"]);
    assert!(matches!(loaded.partitions[2].error(), Some(Error::NotRead { .. })));
    fs::remove_file(root.join("__transaction_state-9")).expect("removed");

    // No file of the root is waited for either.
    for name in [".lock", ".kafka_cleanshutdown"] {
        nix::unistd::mkfifo(&root.join(name), mode).expect("a pipe");
    }
    assert_eq!(ids(&replay(&[root]).run().expect("a load")), ["a", "b", "inside"]);
    // The directory itself may be given by a link.
    let link = outside.path().join("link");
    symlink(root, &link).expect("a link");
    assert_eq!(ids(&replay(&[&link]).run().expect("a load")), ["a", "b", "inside"]);
}

/// A file of the root that cannot be looked for is no absent one: here a checkpoint that is a link to itself.
#[test]
fn a_root_file_that_cannot_be_reached_is_an_error() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    Root::of(&log(&["a"])).on_disk(folder.path());
    let path = folder.path().join("recovery-point-offset-checkpoint");
    symlink(&path, &path).expect("a link");
    let opened = Replay::open(Arc::new(FileSystem), [folder.path()]);
    assert!(matches!(opened, Err(Error::Io { .. })), "{opened:?}");
}

/// Reads that give a few bytes at a time give the same map.
#[test]
fn short_reads() {
    let root = Root::of(&log(&["a", "b", "c", "d"]));
    for most in [1, 7, 60, 61, 200] {
        for buffer_bytes in [61, 1000] {
            let storage = root.in_memory();
            storage.inject(format!("{ROOT}/{PARTITION}/{:020}.log", 0), Fault::ShortReads(most));
            let replay = judge::open(storage).io(IoChoice::Pread).chunk_bytes(buffer_bytes);
            let loaded = replay.run().expect("a load");
            assert_eq!(ids(&loaded), ["a", "b", "c", "d"], "{most} bytes at a time");
        }
    }
}

/// A read that fails, and a file that gets shorter, at any byte: refused with the reason, never a part of a map.
#[test]
fn failures_at_any_byte() {
    let log = log(&["a", "b", "c"]);
    let len = log[0].bytes.len() as u64;
    let root = Root::of(&log);
    let path = format!("{ROOT}/{PARTITION}/{:020}.log", 0);
    for at in 0..len {
        for (fault, io) in [
            (Fault::ReadAt(at), IoChoice::Pread),
            (Fault::ShrinksWhenOpened(at), IoChoice::Pread),
            (Fault::ShrinksWhenOpened(at), IoChoice::Mmap),
            (Fault::ShrinksWhenRead(at), IoChoice::Pread),
            (Fault::ShrinksWhenRead(at), IoChoice::Mmap),
        ] {
            for lenient in [false, true] {
                let storage = root.in_memory();
                storage.inject(path.clone(), fault);
                let replay = judge::open(storage).io(io).chunk_bytes(100).lenient(lenient);
                let outcome = run_one(&replay);
                match (fault, outcome.error()) {
                    (Fault::ReadAt(_), Some(Error::Io { path: named, source, .. })) => {
                        assert!(named.ends_with(format!("{:020}.log", 0)));
                        assert_eq!(source.raw_os_error(), Some(libc::EIO));
                    }
                    (_, Some(Error::Corrupt(corruption))) => match corruption.reason {
                        Reason::Shrunk { expected, found } => assert_eq!((expected, found), (len, at)),
                        ref other => panic!("{fault:?}: {other}"),
                    },
                    (_, other) => panic!("{fault:?}, {io:?}, lenient {lenient}: {other:?}"),
                }
            }
        }
    }
}
