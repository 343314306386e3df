//! House rules that a compiler does not check.

#![deny(unsafe_code)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const LINES_MAX: usize = 800;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the repository")
}

/// Files of the repository with one of these endings, but for built and fetched ones and test data.
fn files(endings: &[&str]) -> Vec<(PathBuf, String)> {
    fn walk(folder: &Path, endings: &[&str], found: &mut Vec<(PathBuf, String)>) {
        for entry in fs::read_dir(folder).expect("a readable folder") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            if path.is_dir() {
                let is_ours = !matches!(&name[..], ".git" | "target" | "fixtures" | "corpus" | "artifacts");
                if is_ours && !path.is_symlink() {
                    walk(&path, endings, found);
                }
            } else if endings.iter().any(|ending| name.ends_with(ending)) {
                let text =
                    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
                found.push((path, text));
            }
        }
    }
    let mut found = Vec::new();
    walk(&root(), endings, &mut found);
    assert!(!found.is_empty());
    found
}

/// The lines of a Rust file that are code, numbered from 1.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let code = |line: &'_ str| !line.trim_start().starts_with("//");
    text.lines().enumerate().filter(move |(_, line)| code(line)).map(|(n, line)| (n + 1, line))
}

/// Whether a line has this word, and not as a part of another.
fn has_word(line: &str, word: &str) -> bool {
    let is_part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    line.match_indices(word).any(|(at, _)| {
        !is_part(line[..at].chars().next_back()) && !is_part(line[at + word.len()..].chars().next())
    })
}

/// Modules of the engine, bottom-up, as `lib.rs` declares them.
fn engine_modules(lib: &str) -> Vec<String> {
    let name = |line: &str| {
        let line = line.strip_prefix("pub mod ").or_else(|| line.strip_prefix("pub(crate) mod "))?;
        Some(line.strip_suffix(';')?.to_owned())
    };
    lib.lines().filter_map(name).collect()
}

/// Modules named after `crate::`, in a path or as the items of a list.
fn modules_used<'a>(text: &'a str, modules: &'a [String]) -> BTreeSet<(usize, &'a str)> {
    let mut used = BTreeSet::new();
    for (number, line) in code(text) {
        for (at, path) in line.match_indices("crate::") {
            let rest = &line[at + path.len()..];
            let names = rest.strip_prefix('{').unwrap_or(rest).split([',', '{']);
            for name in names {
                let name = name.trim_start().split(|c: char| !c.is_alphanumeric() && c != '_').next();
                used.extend(modules.iter().filter(|m| Some(&m[..]) == name).map(|m| (number, &m[..])));
            }
        }
    }
    used
}

#[test]
fn each_engine_module_uses_only_those_above_it() {
    let source = root().join("engine/src");
    let modules = engine_modules(&fs::read_to_string(source.join("lib.rs")).expect("lib.rs"));
    assert!(modules.len() >= 9, "{modules:?}");
    let position = |module: &str| modules.iter().position(|m| m == module);
    let mut uses = 0;
    for (path, text) in files(&[".rs"]) {
        let Ok(inside) = path.strip_prefix(&source) else { continue };
        let first = inside.components().next().expect("a name").as_os_str().to_string_lossy().into_owned();
        let module = first.strip_suffix(".rs").unwrap_or(&first).to_owned();
        if module == "lib" {
            continue;
        }
        let own = position(&module).unwrap_or_else(|| panic!("{} is not declared in lib.rs", path.display()));
        for (line, used) in modules_used(&text, &modules) {
            assert!(position(used) <= Some(own), "{}:{line}: {module} must not use {used}", path.display());
            uses += 1;
        }
    }
    assert!(uses > 50, "{uses} uses found");
    // The look for uses sees every form of them.
    let sample =
        "use crate::io::{Storage, read};\nuse crate::{batch, log::X};\nfn f() { crate::error::Error }";
    let seen = modules_used(sample, &modules);
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), [(1, "io"), (2, "batch"), (2, "log"), (3, "error")]);
}

#[test]
fn no_file_is_too_long() {
    for (path, text) in files(&[".rs", ".java", ".sh", ".md"]) {
        let lines = text.lines().count();
        assert!(lines <= LINES_MAX, "{} has {lines} lines", path.display());
    }
}

/// How far above a block its argument may begin, in lines.
const SAFETY_LINES: usize = 14;

/// The word itself is spelt in two parts here, so that this file does not find itself.
#[test]
fn unsafe_code_is_in_one_module_and_every_block_is_argued() {
    let word = concat!("un", "safe");
    let machine = root().join("engine/src/machine");
    let mut blocks = 0;
    for (path, text) in files(&[".rs"]) {
        let lines: Vec<&str> = text.lines().collect();
        for (line, code) in code(&text) {
            if !has_word(code, word) {
                continue;
            }
            // The one bench of a kernel takes its file in; it has no such code of its own.
            assert!(path.starts_with(&machine), "{}:{line}: {code}", path.display());
            if code.contains(concat!("un", "safe {")) {
                let before = &lines[line.saturating_sub(SAFETY_LINES)..line];
                let argued = before.iter().any(|line| line.contains("// SAFETY:"));
                assert!(argued, "{}:{line}: no argument: {code}", path.display());
                blocks += 1;
            }
        }
    }
    assert!(blocks > 5, "{blocks} blocks found");
    // Lints that deny it hold in every crate.
    let lints = fs::read_to_string(root().join("Cargo.toml")).expect("Cargo.toml");
    assert!(lints.contains(concat!("un", "safe_code = \"deny\"")));
    for (path, text) in files(&["Cargo.toml"]) {
        let is_member = !text.contains("[workspace]");
        assert!(!is_member || text.contains("[lints]\nworkspace = true"), "{}", path.display());
    }
}

#[test]
fn nothing_is_left_for_later() {
    let words = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("XX", "X"),
        concat!("unimpl", "emented!"),
        concat!("to", "do!("),
    ];
    let ignored = concat!("#[ig", "nore");
    for (path, text) in files(&[".rs", ".java", ".sh", ".toml", "run"]) {
        for (n, line) in text.lines().enumerate() {
            let place = || format!("{}:{}: {line}", path.display(), n + 1);
            assert!(!words.iter().any(|word| line.contains(word)), "{}", place());
            assert!(!line.contains(ignored), "{}", place());
        }
    }
}

/// Nothing refers to a place outside the clone.
#[test]
fn no_path_of_a_machine() {
    let places =
        [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/"), concat!("../sha", "red")];
    for (path, text) in files(&[".rs", ".java", ".sh", ".toml", ".md", ".json", "run"]) {
        for (n, line) in text.lines().enumerate() {
            let found = places.iter().find(|place| line.contains(*place));
            assert!(found.is_none(), "{}:{}: {line}", path.display(), n + 1);
        }
    }
}

/// Cargo looks for tests in another folder, so one that is not declared would never run.
#[test]
fn every_suite_is_declared() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manifest = fs::read_to_string(folder.join("Cargo.toml")).expect("Cargo.toml");
    let declared: BTreeSet<String> = manifest
        .split("[[test]]\n")
        .skip(1)
        .map(|entry| {
            let path = entry.lines().find_map(|line| line.strip_prefix("path = \"")?.strip_suffix('"'));
            path.expect("a path").to_owned()
        })
        .collect();
    let (mut found, mut others, mut modules) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for entry in fs::read_dir(folder.join("suites")).expect("the suites") {
        let path = entry.expect("an entry").path();
        let text = fs::read_to_string(&path).expect("a source file");
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        for module in text.lines().filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';')) {
            modules.insert(format!("suites/{module}.rs"));
        }
        let is_suite = text.contains("#[test]") || text.contains("fn main()");
        if is_suite { &mut found } else { &mut others }.insert(format!("suites/{name}"));
    }
    assert_eq!(declared, found);
    assert!(others.is_subset(&modules), "nobody uses all of {others:?}");
    assert!(!others.is_empty(), "the look for modules sees none");
}
