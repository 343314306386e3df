//! NOTICE names every crate that is linked into the command or the library, with its version and licence.
//!
//! After a change of `Cargo.lock`: `REDRIVE_WRITE_NOTICE=1 cargo test -p redrive-tests --test notice`.

#![deny(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

const HEAD: &str = "redrive
Licensed under the Apache License, Version 2.0; see LICENSE.

Apache Kafka is a trademark of the Apache Software Foundation. This project is not part of it and contains none of its
code. The log directories under tests/fixtures were made by running Apache Kafka.

The following crates are linked into the library or the command. Their licence texts are in their sources, as published
in the registry of Rust crates.

";

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// `name version`, licence and authors of every crate below the two packages, build and test dependencies aside.
fn notice() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--locked", "--offline", "--all-features"])
        .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
        .current_dir(&root)
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo metadata is JSON");
    let packages: BTreeMap<&str, &Value> =
        metadata["packages"].as_array().expect("packages").iter().map(|p| (text(&p["id"]), p)).collect();
    let nodes: BTreeMap<&str, &Value> =
        metadata["resolve"]["nodes"].as_array().expect("nodes").iter().map(|n| (text(&n["id"]), n)).collect();
    let mut open: Vec<&str> = packages
        .iter()
        .filter(|(_, package)| ["redrive", "redrive-tools"].contains(&text(&package["name"])))
        .map(|(id, _)| *id)
        .collect();
    let mut seen = BTreeSet::new();
    while let Some(id) = open.pop() {
        if !seen.insert(id) {
            continue;
        }
        for dependency in nodes[id]["deps"].as_array().expect("deps") {
            let kinds = dependency["dep_kinds"].as_array().expect("dep_kinds");
            if kinds.iter().any(|kind| kind["kind"].is_null()) {
                open.push(text(&dependency["pkg"]));
            }
        }
    }
    let mut lines = BTreeSet::new();
    for package in seen.iter().map(|id| packages[id]).filter(|package| !package["source"].is_null()) {
        let authors: Vec<&str> = package["authors"].as_array().into_iter().flatten().map(text).collect();
        // Addresses are not needed to give credit.
        let authors: Vec<&str> =
            authors.iter().map(|author| author.split('<').next().unwrap_or_default().trim()).collect();
        let by = if authors.is_empty() { String::new() } else { format!("; {}", authors.join(", ")) };
        lines.insert(format!(
            "- {} {}: {}{by}",
            text(&package["name"]),
            text(&package["version"]),
            text(&package["license"])
        ));
    }
    lines.into_iter().fold(HEAD.to_owned(), |mut notice, line| {
        // Writing to a string cannot fail.
        let _ = writeln!(notice, "{line}");
        notice
    })
}

#[test]
fn the_notice_names_what_is_linked() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../NOTICE");
    let expected = notice();
    if std::env::var_os("REDRIVE_WRITE_NOTICE").is_some() {
        std::fs::write(&path, &expected).expect("NOTICE can be written");
    }
    let found = std::fs::read_to_string(&path).expect("NOTICE can be read");
    assert!(
        found == expected,
        "NOTICE is not up to date; write it anew with REDRIVE_WRITE_NOTICE=1. It should be:\n{expected}"
    );
}
