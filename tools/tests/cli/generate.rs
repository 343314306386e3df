//! `redrive generate` as a command: output, exit status, Ctrl-C.

use std::fs;
use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::common::{command, redrive, wait_for};

#[test]
fn what_is_said_is_what_replay_finds() {
    let root = tempfile::tempdir().unwrap();
    let out = root.path().join("out");
    let out = out.to_str().unwrap();
    let args = [
        "generate",
        "update-heavy",
        "--out",
        out,
        "--ids",
        "300",
        "--partitions",
        "4",
        "--now",
        "1700000000000",
    ];
    let run = redrive(args.into_iter().chain(["--gaps", "0.2", "--format", "json"])).expect(0);
    let (said, found) = (run.json(), redrive(["replay", out, "--format", "json"]).expect(0).json());
    assert!(run.stderr.is_empty(), "{}", run.stderr);
    for field in ["topic", "bytes", "batches", "records", "ids", "tombstones", "byState"] {
        assert_eq!(said[field], found[field], "{field}");
    }
    assert_eq!((&said["seed"], &said["nowMs"]), (&1.into(), &1_700_000_000_000u64.into()));
    for (said, found) in
        said["partitions"].as_array().unwrap().iter().zip(found["partitions"].as_array().unwrap())
    {
        for field in ["partition", "logEndOffset", "segments", "records", "gaps", "gapOffsets", "liveBytes"] {
            assert_eq!(said[field], found[field], "{field}");
        }
    }
    // Into the same folders, whose number is found out.
    let into = ["generate", "flink", "--into", out, "--ids", "50", "--seed", "9", "--format", "ndjson"];
    let lines = redrive(into).expect(0).lines();
    assert_eq!(lines.len(), 4);
    let text = redrive(["generate", "streams", "--into", out, "--ids", "5", "--transactions", "3"]).expect(0);
    assert!(text.text().contains("streams · seed 1 · 4 partitions"), "{}", text.text());
}

#[test]
fn refusals_have_their_exit_status() {
    let root = tempfile::tempdir().unwrap();
    let here = root.path().to_str().unwrap();
    for args in [
        vec!["generate", "streams"],
        vec!["generate", "streams", "--out", here, "--into", here],
        vec!["generate", "nobody", "--out", here],
        vec!["generate", "streams", "--out", here, "--ids", "1", "--bytes", "1M"],
        vec!["generate", "streams", "--out", here, "--partitions", "201"],
        vec!["generate", "streams", "--out", here, "--gaps", "2"],
        vec!["generate", "flink", "--out", here, "--transactions", "2"],
        vec!["generate", "streams", "--out", here, "--segment-bytes", "2G"],
    ] {
        let run = redrive(&args).expect(2);
        assert!(run.stdout.is_empty() && !run.stderr.is_empty(), "{args:?}");
    }
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
    let absent = root.path().join("absent");
    redrive(["generate", "streams", "--into", absent.to_str().unwrap()]).expect(3);
    redrive(["generate", "streams", "--into", here]).expect(3);
    fs::write(root.path().join("x"), "x").unwrap();
    let run = redrive(["generate", "streams", "--out", here]).expect(3);
    assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
}

#[test]
fn an_interrupt_leaves_nothing() {
    let root = tempfile::tempdir().unwrap();
    let out = root.path().join("out");
    let mut child = command()
        .args(["generate", "update-heavy", "--ids", "1000", "--transactions", "1000000", "--partitions", "1"])
        .arg("--out")
        .arg(&out)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_for("work in progress", || fs::read_dir(root.path()).unwrap().count() > 0);
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
}
