//! How the bytes of a log are reached: the choice, and what it goes by.

use std::io;
use std::path::Path;

use super::report::IoUsed;
use crate::error::Error;
use crate::io::{Cache, Storage};
use crate::machine::uring;

/// How the bytes of segments are to be reached. A way that cannot be used here is an error and not replaced by another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IoChoice {
    /// By what the page cache holds, which is found out with samples: mapped if all of them are there, io_uring if none
    /// is and it can be used for every segment, else positioned reads. A directory that a broker holds, and a storage
    /// that cannot say what is cached, is read by position. An empty log counts as cached.
    ///
    /// So this maps files, and what [`Mmap`](Self::Mmap) asks for it asks for too: that nobody shortens them during the
    /// load. A broker is seen by its lock; for anything else choose [`Pread`](Self::Pread).
    #[default]
    Auto,
    /// Map the files: best if they are in the page cache. A sector that cannot be read, or a file that somebody shortens
    /// meanwhile, then ends the process with SIGBUS instead of refusing a partition; so this is for files that nobody
    /// writes, on a disk that is trusted.
    Mmap,
    /// Positioned reads: whatever goes wrong with a file is an error.
    Pread,
    /// Reads past the page cache (`O_DIRECT`) by io_uring, some of them in flight: best if nothing is in the page cache,
    /// which stays as it is. Whatever goes wrong with a file is an error. Containers often forbid io_uring, and not every
    /// file system has such reads.
    Uring,
}

/// Most pages that are looked at, and most files.
const SAMPLES_MAX: usize = 256;
const FILES_MAX: usize = 64;

/// Which of so many files to look at, and how many pages of each: spread, the first and the last always among them.
pub(super) fn samples(files: usize) -> (impl Iterator<Item = usize>, usize) {
    let looked = files.min(FILES_MAX);
    let number = move |nth: usize| nth * (files - 1) / (looked - 1).max(1);
    ((0..looked).map(number), SAMPLES_MAX / looked.max(1))
}

/// How much of the first `len` bytes of a file is in the page cache. A file that cannot be opened will be told of by
/// whoever reads it.
pub(super) fn look(storage: &dyn Storage, path: &Path, len: u64, samples: usize) -> Cache {
    storage.open(path).map_or(Cache::Mixed, |file| file.cached(len, samples))
}

/// The way in which segments with bytes at these paths are read, by so many threads.
///
/// # Errors
/// [`Error::IoUnavailable`] for a choice that cannot be followed.
pub(super) fn choose<'a>(
    choice: IoChoice,
    cache: Cache,
    is_held: bool,
    storage: &dyn Storage,
    paths: impl Iterator<Item = &'a Path>,
    threads: usize,
) -> Result<IoUsed, Error> {
    match (choice, cache) {
        (IoChoice::Mmap, _) => Ok(IoUsed::Mmap),
        (IoChoice::Pread, _) => Ok(IoUsed::Pread),
        (IoChoice::Uring, _) => check_uring(storage, paths, threads).map(|()| IoUsed::Uring),
        (IoChoice::Auto, Cache::Warm) if !is_held => Ok(IoUsed::Mmap),
        (IoChoice::Auto, Cache::Cold) if !is_held && check_uring(storage, paths, threads).is_ok() => {
            Ok(IoUsed::Uring)
        }
        (IoChoice::Auto, _) => Ok(IoUsed::Pread),
    }
}

/// Whether io_uring can be used, and every segment be read by it. One that cannot be opened for another reason does not
/// count: its partition will be refused.
fn check_uring<'a>(
    storage: &dyn Storage,
    mut paths: impl Iterator<Item = &'a Path>,
    threads: usize,
) -> Result<(), Error> {
    uring::probe(threads).map_err(|source| unavailable(None, source))?;
    paths.try_for_each(|path| match storage.open_direct(path) {
        Err(source) if source.kind() == io::ErrorKind::Unsupported => Err(unavailable(Some(path), source)),
        _ => Ok(()),
    })
}

/// That io_uring cannot be used: at all, or for a file.
pub(super) fn unavailable(path: Option<&Path>, source: io::Error) -> Error {
    Error::IoUnavailable { io: IoUsed::Uring.name(), path: path.map(Path::to_path_buf), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each thread takes a descriptor for its ring. Where those run short, that is known before the load.
    #[test]
    #[cfg_attr(miri, ignore = "starts a process")]
    fn threads_without_a_ring_of_their_own_read_by_position() {
        const CHILD: &str = "REDRIVE_TEST_FEW_DESCRIPTORS";
        let chosen = |choice, threads| {
            choose(choice, Cache::Cold, false, &crate::io::FileSystem, std::iter::empty(), threads)
        };
        if std::env::var_os(CHILD).is_some() {
            assert_eq!(chosen(IoChoice::Auto, 1).expect("a choice"), IoUsed::Uring);
            assert_eq!(chosen(IoChoice::Auto, 64).expect("a choice"), IoUsed::Pread);
            assert!(matches!(chosen(IoChoice::Uring, 64), Err(Error::IoUnavailable { .. })));
            return;
        }
        if uring::probe(1).is_err() {
            // Nothing to run short of.
            assert_eq!(chosen(IoChoice::Auto, 1).expect("a choice"), IoUsed::Pread);
            return;
        }
        let this = std::env::current_exe().expect("a path");
        let output = std::process::Command::new("sh")
            .args(["-c", r#"ulimit -n 40 && exec "$@""#, "sh"])
            .arg(this)
            .args(["--exact", "replay::reach::tests::threads_without_a_ring_of_their_own_read_by_position"])
            .env(CHILD, "1")
            .output()
            .expect("a shell");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
    }

    #[test]
    fn a_bounded_number_of_looks_spread_over_all_files() {
        assert_eq!(samples(0).0.count(), 0);
        for files in [1, 2, 3, 63, 64, 65, 1000, 100_000] {
            let (numbers, pages) = samples(files);
            let numbers: Vec<usize> = numbers.collect();
            assert!(numbers.len() * pages <= 256 && pages >= 4, "{files} files");
            assert_eq!((numbers[0], numbers[numbers.len() - 1]), (0, files - 1));
            assert!(
                numbers.is_sorted_by(|one, next| one < next && next - one <= files / 32 + 1),
                "{numbers:?}"
            );
        }
    }
}
