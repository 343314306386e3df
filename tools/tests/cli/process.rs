//! What surrounds the command: pipes that close, signals, terminals, a broker that runs.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use redrive_tests::corpus;
use serde_json::json;

use crate::common::{batches, command, finish, handles_interrupt, redrive, value, wait_for, write_log};

fn plain() -> String {
    corpus::plain_data_dir().to_string_lossy().into_owned()
}

#[test]
fn a_closed_pipe_ends_quietly() {
    let dir = plain();
    let log = corpus::case("txn-state-small-v1").data_dirs[0]
        .join("__transaction_state-0/00000000000000000000.log");
    let log = log.to_string_lossy().into_owned();
    for args in [
        vec!["list", &dir],
        vec!["list", "--format", "json", &dir],
        vec!["list", "--format", "ndjson", &dir],
        vec!["replay", "--format", "json", &dir],
        vec!["replay", &dir],
        vec!["describe", "--history", &dir, "acct-00004"],
        vec!["dump", "--transaction-log-decoder", "--files", &log],
        vec!["dump", "--transaction-log-decoder", "--format", "kafka", "--files", &log],
        vec!["completions", "bash"],
        vec!["man"],
        vec!["--help"],
    ] {
        let mut child = command().args(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // Closed before the first byte, so that the first write fails, however little there is to write.
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{args:?}");
    }
    let mut child =
        command().args(["list", "--format", "ndjson", &dir]).stdout(Stdio::piped()).spawn().unwrap();
    let mut head = [0; 100];
    child.stdout.take().unwrap().read_exact(&mut head).unwrap();
    assert!(head.starts_with(b"{\"partition\":0,"));
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_closed_pipe_does_not_hide_a_refused_partition() {
    let root = tempfile::tempdir().unwrap();
    let mut damaged = batches(&[(b"a", Some(value(1))), (b"b", Some(value(1)))]);
    damaged[0].crc_flip = 1;
    write_log(root.path(), 0, &damaged);
    write_log(root.path(), 1, &batches(&[(b"c", Some(value(1)))]));
    let args = ["list", "--format", "ndjson", root.path().to_str().unwrap()];
    let mut child = command().args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(String::from_utf8_lossy(&output.stderr).lines().count(), 1);
}

/// A directory that takes tens of seconds to load and little space: one segment of 16 MB under 3,000 names.
fn endless(root: &Path) {
    let value = value(1);
    let ids: Vec<Vec<u8>> =
        (0..80_000).map(|i| format!("id-{}-{}", i % 100, "x".repeat(60)).into_bytes()).collect();
    let records: Vec<_> = ids.iter().map(|id| (&**id, Some(value.clone()))).collect();
    let segment = write_log(root, 0, &batches(&records));
    for partition in 1..3000 {
        let folder = root.join(format!("__transaction_state-{partition}"));
        fs::create_dir(&folder).unwrap();
        fs::hard_link(&segment, folder.join(segment.file_name().unwrap())).unwrap();
    }
}

/// Presses Ctrl-C until the process is gone.
fn interrupt(child: &mut Child) -> ExitStatus {
    let pid = Pid::from_raw(child.id().cast_signed());
    let mut status = None;
    wait_for("the end of an interrupted process", || {
        status = child.try_wait().unwrap();
        if status.is_none() {
            kill(pid, Signal::SIGINT).unwrap();
            std::thread::sleep(Duration::from_millis(50));
        }
        status.is_some()
    });
    status.unwrap()
}

/// A terminal: the end that a process writes to, and everything that it wrote, as it comes.
fn terminal() -> (OwnedFd, mpsc::Receiver<Vec<u8>>) {
    let size = Winsize { ws_row: 24, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 };
    let pty = openpty(&size, None).unwrap();
    let mut master = File::from(pty.master);
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut piece = [0; 4096];
        // Reading fails once nobody holds the other end.
        while let Ok(read) = master.read(&mut piece) {
            if read == 0 || sender.send(piece[..read].to_vec()).is_err() {
                break;
            }
        }
    });
    (pty.slave, receiver)
}

fn all_of(terminal: mpsc::Receiver<Vec<u8>>) -> String {
    String::from_utf8_lossy(&terminal.into_iter().flatten().collect::<Vec<_>>()).into_owned()
}

#[test]
fn interrupts_progress_and_quiet() {
    let root = tempfile::tempdir().unwrap();
    endless(root.path());
    let dir = root.path().to_str().unwrap();

    // One press is enough.
    let mut child = command()
        .args(["replay", "--threads", "1", dir])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for("a handler for interrupts", || handles_interrupt(child.id()));
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).unwrap();
    wait_for("the end", || child.try_wait().unwrap().is_some());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "redrive: interrupted\n");
    assert!(output.stdout.is_empty(), "no part of a result");

    // On a terminal there is a bar that says how far the load is.
    let (slave, screen) = terminal();
    let mut child = command()
        .args(["replay", "--threads", "1", dir])
        .env("TERM", "xterm")
        .stdout(Stdio::null())
        .stderr(slave)
        .spawn()
        .unwrap();
    let mut seen = String::new();
    wait_for("progress", || {
        seen.extend(screen.try_iter().map(|piece| String::from_utf8_lossy(&piece).into_owned()));
        ["of 3000 partitions", " records · ", " ids", "/s · ", " left", " %"]
            .iter()
            .all(|part| seen.contains(part))
    });
    assert_eq!(interrupt(&mut child).code(), Some(130));

    // Not with --quiet.
    let (slave, screen) = terminal();
    let mut child = command()
        .args(["replay", "--quiet", "--color", "never", "--threads", "1", dir])
        .env("TERM", "xterm")
        .stdout(Stdio::null())
        .stderr(slave)
        .spawn()
        .unwrap();
    wait_for("a handler for interrupts", || handles_interrupt(child.id()));
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(interrupt(&mut child).code(), Some(130));
    let seen = all_of(screen);
    assert!(seen.is_empty() || seen == "redrive: interrupted\r\n", "{seen:?}");
}

#[test]
fn interrupts_end_output_that_nobody_reads() {
    let root = tempfile::tempdir().unwrap();
    let ids: Vec<Vec<u8>> = (0..5000).map(|i| format!("id-{i}").into_bytes()).collect();
    let records: Vec<_> = ids.iter().map(|id| (&**id, Some(value(1)))).collect();
    let log = write_log(root.path(), 0, &batches(&records));
    for args in [
        vec!["list", "--format", "ndjson", &plain()],
        vec!["dump", "--transaction-log-decoder", "--files", log.to_str().unwrap()],
    ] {
        let mut child = command().args(&args).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        wait_for("a handler for interrupts", || handles_interrupt(child.id()));
        assert_eq!(interrupt(&mut child).code(), Some(130), "{args:?}");
    }
}

#[test]
fn colours_go_to_terminals_that_want_them() {
    let dir = plain();
    let on_terminal = |args: &[&str], no_color: Option<&str>| {
        let (slave, screen) = terminal();
        let mut command = command();
        command.args(args).env("TERM", "xterm").stdout(slave).stderr(Stdio::null());
        if let Some(value) = no_color {
            command.env("NO_COLOR", value);
        }
        let status = command.spawn().unwrap().wait().unwrap();
        assert!(status.success());
        // The command holds the terminal's other end until it is gone.
        drop(command);
        all_of(screen).contains('\x1b')
    };
    assert!(on_terminal(&["replay", &dir], None));
    assert!(on_terminal(&["replay", &dir], Some("")), "an empty NO_COLOR counts for nothing");
    assert!(!on_terminal(&["replay", &dir], Some("1")));
    assert!(!on_terminal(&["replay", "--color", "never", &dir], None));
    assert!(on_terminal(&["replay", "--color", "always", &dir], Some("1")));
    assert!(on_terminal(&["--help"], None));
    assert!(!on_terminal(&["--help", "--color", "never"], None));
    assert!(!on_terminal(&["--help"], Some("1")));

    let piped = |args: &[&str]| redrive(args).expect(0).stdout.contains(&0x1b);
    assert!(!piped(&["replay", &dir]));
    assert!(piped(&["replay", "--color", "always", &dir]));
}

#[test]
fn a_directory_of_a_running_broker_is_a_moving_picture() {
    let root = tempfile::tempdir().unwrap();
    write_log(root.path(), 0, &batches(&[(b"a", Some(value(1)))]));
    let mut lock = File::create(root.path().join(".lock")).unwrap();
    lock.write_all(b"").unwrap();
    let dir = root.path().to_str().unwrap();
    for (choice, used) in [("pread", "pread"), ("mmap", "mmap")] {
        let document = redrive(["replay", "--format", "json", "--io", choice, dir]).expect(0).json();
        assert_eq!((&document["moving"], &document["io"]), (&json!(false), &json!(used)));
    }

    // As FileChannel.tryLock of a broker does it.
    let whole = libc::flock {
        l_type: libc::F_WRLCK as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    fcntl(&lock, FcntlArg::F_SETLK(&whole)).unwrap();
    let document = redrive(["replay", "--format", "json", dir]).expect(0).json();
    assert_eq!((&document["moving"], &document["io"]), (&json!(true), &json!("pread")));
    assert!(redrive(["replay", dir]).expect(0).text().contains("picture of no single moment"));
    let list = redrive(["list", dir]).expect(0);
    assert!(list.stderr.contains("picture of no single moment"), "{}", list.stderr);
    let run = finish(command().args(["replay", "--io", "mmap", dir])).expect(3);
    assert!(run.stderr.contains("a running broker holds"), "{}", run.stderr);
}

#[test]
fn how_the_bytes_were_reached_is_told() {
    let root = tempfile::tempdir().unwrap();
    write_log(root.path(), 0, &batches(&[(b"a", Some(value(1)))]));
    let dir = root.path().to_str().unwrap();
    // What was written just now is in the page cache, on file systems that can say so.
    let document = redrive(["replay", "--format", "json", dir]).expect(0).json();
    let (cache, io) = (document["cache"].as_str().unwrap(), document["io"].as_str().unwrap());
    assert!(matches!((cache, io), ("warm", "mmap") | ("mixed", "pread")), "{cache} {io}");
    let text = redrive(["replay", "--io", "pread", dir]).expect(0);
    assert!(text.text().contains(&format!(" · page cache: {cache} · pread, 1 thread\n")), "{}", text.text());

    let run = redrive(["replay", "--format", "json", "--io", "uring", dir]);
    if run.code == Some(0) {
        assert_eq!(run.json()["io"], "uring");
    } else {
        let run = run.expect(3);
        assert!(run.stderr.contains("cannot read by uring") && run.stdout.is_empty(), "{}", run.stderr);
        let required = std::env::var("REDRIVE_REQUIRE").unwrap_or_default();
        assert!(!required.split(',').any(|name| name == "io_uring"), "{}", run.stderr);
        eprintln!("skipped, no loads by io_uring here: {}", run.stderr);
    }
}
