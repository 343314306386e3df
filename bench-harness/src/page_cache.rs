//! Puts files into the page cache or out of it, and looks whether they are.

use std::fs::File;
use std::path::PathBuf;
use std::process::Command;

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};

use crate::error::BenchError;
use crate::read;
use crate::scenario::Cache;

/// Bytes that `fincore` counts a page as.
const PAGE_BYTES: u64 = 4096;

/// Times that files are brought into a state before that is given up: on a busy machine pages go as others come.
const TRIES: usize = 3;

/// Brings the files into a state of the page cache, and looks whether they are in it. The inner error says what is wrong
/// if they are not.
///
/// # Errors
/// [`BenchError::Io`].
pub fn bring_and_check(files: &[PathBuf], cache: Cache) -> Result<Result<(), String>, BenchError> {
    let mut checked = Ok(());
    for _ in 0..TRIES {
        bring(files, cache)?;
        checked = check(files, cache);
        if checked.is_ok() {
            break;
        }
    }
    Ok(checked)
}

/// Brings the files into a state of the page cache. What the machine made of it is said by [`check`].
///
/// # Errors
/// [`BenchError::Io`].
pub fn bring(files: &[PathBuf], cache: Cache) -> Result<(), BenchError> {
    for path in files {
        match cache {
            Cache::Warm => {
                read::through_cache(path).map_err(BenchError::io("read", path))?;
            }
            Cache::Cold => {
                let file = File::open(path).map_err(BenchError::io("open", path))?;
                // Pages that are not on disk yet could not be dropped.
                file.sync_data().map_err(BenchError::io("sync", path))?;
                posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)
                    .map_err(|errno| BenchError::io("drop the cached pages of", path)(errno.into()))?;
            }
        }
    }
    Ok(())
}

/// Looks at every page of the files; says what is wrong if they are not all in this state.
///
/// The look is `fincore`'s (util-linux), which asks the kernel with mincore: it touches nothing, and for files that
/// the caller owns it is told the truth.
pub fn check(files: &[PathBuf], cache: Cache) -> Result<(), String> {
    let (present, all) = resident(files)?;
    match cache {
        Cache::Warm if present == all => Ok(()),
        Cache::Cold if present == 0 => Ok(()),
        Cache::Warm => Err(format!("{} of {all} pages were not in the cache", all - present)),
        Cache::Cold => Err(format!("{present} of {all} pages were in the cache")),
    }
}

/// Pages in the cache, and all pages.
fn resident(files: &[PathBuf]) -> Result<(u64, u64), String> {
    let output = Command::new("fincore")
        .args(["--bytes", "--noheadings", "--output", "PAGES,SIZE"])
        .args(files)
        .output()
        .map_err(|e| format!("the page cache was not looked at: fincore: {e}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut lines = 0;
    let (mut present, mut all) = (0, 0);
    for line in text.lines() {
        let numbers: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let [pages, bytes] = numbers[..] else { return Err(format!("fincore said {line:?}")) };
        lines += 1;
        present += pages;
        all += bytes.div_ceil(PAGE_BYTES);
    }
    if !output.status.success() || lines != files.len() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("fincore looked at {lines} of {} files: {}", files.len(), said.trim()));
    }
    Ok((present, all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_brought_about_is_seen_and_nothing_else_passes() {
        let folder = tempfile::tempdir().expect("a folder");
        let files = [folder.path().join("a"), folder.path().join("b")];
        for file in &files {
            std::fs::write(file, vec![1; 300_000]).expect("written");
        }
        if resident(&files).is_err() {
            // A machine without fincore: then nothing is ever valid there.
            assert!(check(&files, Cache::Warm).is_err() && check(&files, Cache::Cold).is_err());
            return;
        }
        bring(&files, Cache::Warm).expect("read");
        assert_eq!(check(&files, Cache::Warm), Ok(()));
        assert!(check(&files, Cache::Cold).is_err());
        bring(&files, Cache::Cold).expect("dropped");
        // A file system in memory keeps its pages, and then it is not cold.
        if check(&files, Cache::Cold).is_ok() {
            assert!(check(&files, Cache::Warm).is_err());
            bring(&files[..1], Cache::Warm).expect("read");
            assert!(check(&files, Cache::Warm).is_err() && check(&files, Cache::Cold).is_err());
        }
        assert!(check(&[folder.path().join("absent")], Cache::Warm).is_err());
    }
}
