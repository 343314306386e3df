//! Writes what the fuzzers start from: `seeds FOLDER` makes a folder per target with files from the vectors and from
//! the slow writer of random logs.

use std::fs;
use std::path::{Path, PathBuf};

use redrive_tests::logs::{Shape, random_log};
use redrive_tests::vectors;

fn main() {
    let folder = std::env::args_os().nth(1).map(PathBuf::from).expect("a folder to write to");
    let mut count = 0;
    let mut seed = |target: &str, bytes: &[u8]| {
        let target = folder.join(target);
        fs::create_dir_all(&target).expect("a folder for seeds");
        fs::write(target.join(format!("seed-{count}")), bytes).expect("a seed");
        count += 1;
    };
    for group in ["record_batches", "invalid_batches", "compressed_variants", "legacy_messages"] {
        for vector in vectors::list(group) {
            let bytes = vectors::hex(vector["hex"].as_str().expect("hex"));
            seed("batch", &bytes);
            seed("load", &[&[8], &bytes[..]].concat());
        }
    }
    for group in ["txn_log_keys", "txn_log_keys_special", "txn_log_values", "txn_log_values_special"] {
        for vector in vectors::list(group) {
            seed("key_value", &vectors::hex(vector["hex"].as_str().expect("hex")));
        }
    }
    for vector in vectors::list("text_files_read") {
        let text = vector["text"].as_str().expect("text").as_bytes();
        for kind in 0..4 {
            seed("files", &[&[kind], text].concat());
        }
    }
    for vector in vectors::list("producer_snapshots") {
        seed("files", &[&[4], &vectors::hex(vector["hex"].as_str().expect("hex"))[..]].concat());
    }
    for name in vectors::list("directory_names") {
        seed("files", &[&[7], name["name"].as_str().expect("a name").as_bytes()].concat());
    }
    for (number, shape) in (0..40).map(|number| (number, Shape::default())) {
        for segment in random_log(number, &shape).segments {
            // Small inputs go further in the same time.
            if segment.bytes.len() < 20_000 {
                seed("load", &[&[number as u8 % 16], &segment.bytes[..]].concat());
            }
        }
    }
    println!("{count} seeds in {}", Path::new(&folder).display());
}
