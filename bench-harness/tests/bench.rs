//! The program as a whole, on the smallest scenario.

#![deny(unsafe_code)]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use redrive_bench::result::{Loader, RunResult};
use serde_json::Value;

fn bench(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bench")).args(arguments).output().expect("bench starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs the smallest scenario into a folder of its own.
fn run(folder: &Path, more: &[&str]) -> Output {
    let path = |name: &str| folder.join(name).to_string_lossy().into_owned();
    let (out, data) = (path("out"), path("data"));
    bench(&[&["run", "load/smoke", "--out", &out, "--data", &data], more].concat())
}

#[test]
fn a_run_measures_all_loaders_and_they_agree() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = run(folder.path(), &["--cache", "warm,cold", "--io", "mmap,pread"]);
    let (table, told) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{told}");
    assert!(table.contains("same answer: 1984 ids"), "{table}");

    let result = RunResult::read(&folder.path().join("out")).expect("a result");
    // Warm: 2 reads, 2 threads × 2 identities × 2 ways × 2 memories, naive. Cold: 1 read, 2 × 2, naive.
    assert_eq!(result.rows.len(), 2 + 16 + 1 + 1 + 4 + 1);
    assert!(result.rows.iter().all(|row| row.samples.len() == 2), "two repeats of each");
    for row in &result.rows {
        let is_read = row.key.loader == Loader::Read;
        assert_eq!(row.answer.is_some(), !is_read, "{}", row.key);
        for sample in &row.samples {
            let once = &sample.once;
            assert!(once.seconds > 0.0 && once.bytes == result.data.bytes, "{}: {once:?}", row.key);
            if is_read {
                continue;
            }
            assert_eq!(once.ids, result.data.ids, "{}", row.key);
            assert_eq!(once.by_state.values().sum::<u64>(), once.ids, "{}", row.key);
            let prepared = ["PrepareCommit", "PrepareAbort"].map(|state| once.by_state.get(state));
            let prepared: u64 = prepared.into_iter().flatten().sum();
            assert_eq!(once.pending, prepared, "{}", row.key);
            assert!(once.resident_bytes_peak > 1 << 20, "{}", row.key);
            // The figures of an unoptimised build must not look like some.
            assert_eq!(sample.invalid.is_some(), cfg!(debug_assertions), "{}: {sample:?}", row.key);
        }
    }
    assert_eq!(result.probes.len(), 2, "a probe for each round");
    for name in ["percentiles.txt", "table.txt"] {
        let written = fs::read_to_string(folder.path().join("out").join(name)).expect(name);
        assert!(written.contains("redrive hash, 2 threads"), "{written}");
    }
}

/// An answer that all loaders agree on is still wrong if it is not the one that the scenario has always had.
#[test]
fn a_wrong_answer_fails_the_run() {
    let folder = tempfile::tempdir().expect("a folder");
    let shipped = include_str!("../scenarios/load/smoke.toml");
    let right = shipped.lines().find(|line| line.starts_with("answer")).expect("an answer");
    let scenario = folder.path().join("other.toml");
    fs::write(&scenario, shipped.replace(right, "answer = \"00\"")).expect("written");
    let data = folder.path().join("data");
    let output = bench(&[
        "run",
        &scenario.to_string_lossy(),
        "--data",
        &data.to_string_lossy(),
        "--repeats",
        "1",
        "--against",
        "naive",
    ]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("WRONG ANSWER"), "{}", text(&output.stdout));
}

/// The exit status of a comparison, on results that were made longer by hand.
#[test]
fn compare_exits_with_1_on_a_regression_only() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = run(folder.path(), &["--repeats", "1", "--threads", "1", "--identity", "exact"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let result = fs::read_to_string(folder.path().join("out/result.json")).expect("a result");
    let result: Value = serde_json::from_str(&result).expect("JSON");

    // Nine repeats that differ by up to 1 %, each row in another order.
    let write = |name: &str, shift: u64, slower: f64| {
        let mut result = result.clone();
        let rows = result["rows"].as_array_mut().expect("rows");
        for (number, row) in (0_u64..).zip(rows) {
            let sample = row["samples"][0].clone();
            let factor = if row["key"]["loader"].get("redrive").is_some() { slower } else { 1.0 };
            let repeat = |round: u64| {
                let mut sample = sample.clone();
                let noise = 1.0 + ((round * (number + 2) + shift) % 9) as f64 * 0.001;
                sample["round"] = round.into();
                sample["seconds"] = (0.5 * factor * noise).into();
                sample["invalid"] = Value::Null;
                sample
            };
            row["samples"] = (0..9).map(repeat).collect();
        }
        let path = folder.path().join(name);
        fs::write(&path, result.to_string()).expect("written");
        path.to_string_lossy().into_owned()
    };
    let (before, same, slower) = (write("a", 0, 1.0), write("b", 4, 1.0), write("c", 4, 1.05));
    let noise = bench(&["compare", &before, &same]);
    assert_eq!(noise.status.code(), Some(0), "{}", text(&noise.stdout));
    let worse = bench(&["compare", &before, &slower]);
    assert_eq!(worse.status.code(), Some(1), "{}", text(&worse.stdout));
    assert!(text(&worse.stdout).contains("SLOWER"), "{}", text(&worse.stdout));
    let better = bench(&["compare", &slower, &before]);
    assert_eq!(better.status.code(), Some(0), "{}", text(&better.stdout));
    let unreadable = bench(&["compare", &before, "nowhere"]);
    assert_eq!(unreadable.status.code(), Some(3));
}

#[test]
fn scenarios_are_listed_and_others_are_refused() {
    let list = bench(&["list"]);
    assert!(list.status.success());
    for name in ["load/distinct", "load/one-partition", "load/smoke", "load/update-heavy"] {
        assert!(text(&list.stdout).contains(name));
    }
    assert_eq!(bench(&["run", "load/nothing"]).status.code(), Some(3));
    assert_eq!(bench(&["run"]).status.code(), Some(2));
}
