//! The directory that ships with the repository, in the forms that benchmarks need.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use redrive_tests::corpus;
use tempfile::TempDir;

const TOPIC: &str = "__transaction_state";
/// Partitions of the shipped directory, numbered from 0.
const PARTITIONS: usize = 50;

/// Folders of the shipped directory's partitions, by number.
fn partition_folders() -> Vec<PathBuf> {
    (0..PARTITIONS).map(|number| corpus::plain_data_dir().join(format!("{TOPIC}-{number}"))).collect()
}

fn segment_files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
    files.retain(|path| path.extension().is_some_and(|extension| extension == "log"));
    files.sort();
    Ok(files)
}

/// Every batch of the shipped directory, one after the other, in one buffer.
///
/// # Errors
/// What reading the files gives.
pub fn batches() -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for folder in partition_folders() {
        for file in segment_files(&folder)? {
            bytes.extend(fs::read(file)?);
        }
    }
    Ok(bytes)
}

/// A log directory with the shipped partitions `times` over, under new numbers, in a memory file system where there
/// is one. Only the `.log` files are copied. Removed when dropped.
///
/// # Errors
/// What copying the files gives.
pub fn repeated(times: usize) -> io::Result<TempDir> {
    let memory = Path::new("/dev/shm");
    let parent = if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() };
    let root = tempfile::Builder::new().prefix("redrive-bench-").tempdir_in(parent)?;
    for round in 0..times {
        for (number, folder) in partition_folders().into_iter().enumerate() {
            let copy = root.path().join(format!("{TOPIC}-{}", round * PARTITIONS + number));
            fs::create_dir(&copy)?;
            for file in segment_files(&folder)? {
                if let Some(name) = file.file_name() {
                    fs::copy(&file, copy.join(name))?;
                }
            }
        }
    }
    Ok(root)
}
