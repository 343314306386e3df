//! Whether a file lies in the page cache, found out by asking for some of its pages.
#![expect(unsafe_code, reason = "preadv2 has no safe form here")]

use std::collections::hash_map::RandomState;
use std::fs::File;
use std::hash::BuildHasher;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use nix::libc;

/// How much of a file is in the page cache, as far as samples tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cache {
    /// All of the pages looked at.
    Warm,
    /// None of them.
    Cold,
    /// Some of them; or nobody can tell.
    #[default]
    Mixed,
}

impl Cache {
    /// `warm`, `cold` or `mixed`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Warm => "warm",
            Self::Cold => "cold",
            Self::Mixed => "mixed",
        }
    }
}

/// Pages are at least this large. Where they are larger, one may be looked at twice.
const PAGE: u64 = 4096;

/// Looks at `samples` pages of the first `len` bytes of a file, at least two: one in each of as many equal stretches,
/// the first and the last page always among them. An empty file is warm; one about which the kernel gives no clear
/// answer (a file system without such reads, a file shorter than `len`, a failing disk) is mixed.
///
/// A page is looked at by reading one byte with `RWF_NOWAIT`, which is refused when it would have to wait. The kernel
/// does not leave it at that: Linux 6.18 fetches the page all the same, and what follows it by its read-ahead. So
/// read-ahead is switched off meanwhile, which leaves that one page, and afterwards the fetched pages are dropped
/// again: the file is as it was, and the next look says the same. (Between the ends, chance chooses the pages, in case
/// that one could not be dropped.) The open file's access advice is "normal" afterwards.
///
/// On a busy machine the fetched page can be there before the kernel looks whether it would have to wait, once in some
/// thousand looks. So where most pages are absent, one that is present counts only if the page beside it is, too:
/// pages that somebody read come in runs.
///
/// Costs about a microsecond for a warm page and a read from the device for a cold one, those of all samples at once.
pub(crate) fn residency(file: &File, len: u64, samples: usize) -> Cache {
    let pages = sampled(len.div_ceil(PAGE), samples.max(2) as u64);
    let (mut absent, mut beside) = (Vec::new(), Vec::new());
    let result = advise(file, 0, 0, PosixFadviseAdvice::POSIX_FADV_RANDOM)
        .and_then(|()| pages.iter().try_for_each(|page| look(file, *page, &mut absent)))
        .and_then(|()| look_beside(file, &pages, &mut absent, &mut beside));
    let result = result.and(clear(file, &absent)).and(clear(file, &beside));
    match advise(file, 0, 0, PosixFadviseAdvice::POSIX_FADV_NORMAL).and(result) {
        Ok(()) if absent.is_empty() => Cache::Warm,
        Ok(()) if absent.len() == pages.len() => Cache::Cold,
        _ => Cache::Mixed,
    }
}

/// Adds to the absent pages those that are there by themselves, where these are few.
fn look_beside(file: &File, pages: &[u64], absent: &mut Vec<u64>, beside: &mut Vec<u64>) -> io::Result<()> {
    let present: Vec<u64> = pages.iter().filter(|page| !absent.contains(page)).copied().collect();
    if present.len() >= absent.len() {
        return Ok(());
    }
    let last = pages.last().copied().unwrap_or(0);
    for page in present {
        let other = if page < last { page + 1 } else { page.saturating_sub(1) };
        if !absent.contains(&other) {
            look(file, other, beside)?;
        }
        if absent.contains(&other) || beside.contains(&other) {
            absent.push(page);
        }
    }
    Ok(())
}

/// The pages to look at, in order, each once.
fn sampled(pages: u64, samples: u64) -> Vec<u64> {
    let count = samples.min(pages);
    let chance = RandomState::new();
    (0..count)
        .map(|sample| {
            let at = |sample: u64| (u128::from(pages) * u128::from(sample) / u128::from(count)) as u64;
            let (start, end) = (at(sample), at(sample + 1));
            match sample {
                0 => 0,
                _ if sample == count - 1 => pages - 1,
                _ => start + chance.hash_one(sample) % (end - start),
            }
        })
        .collect()
}

/// Looks at a page, and notes it if it was absent: it is on its way into the cache now.
fn look(file: &File, page: u64, absent: &mut Vec<u64>) -> io::Result<()> {
    if !is_present(file, page * PAGE)? {
        absent.push(page);
    }
    Ok(())
}

/// Whether the byte at `position` can be read without waiting.
fn is_present(file: &File, position: u64) -> io::Result<bool> {
    let position = libc::off_t::try_from(position).map_err(io::Error::other)?;
    let mut byte = 0_u8;
    let buffer = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    loop {
        // SAFETY: one buffer of one byte, which outlives the call; the descriptor is open.
        let read =
            unsafe { libc::preadv2(file.as_raw_fd(), &raw const buffer, 1, position, libc::RWF_NOWAIT) };
        match read {
            1 => return Ok(true),
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            _ => {}
        }
        let error = io::Error::last_os_error();
        match error.kind() {
            io::ErrorKind::WouldBlock => return Ok(false),
            io::ErrorKind::Interrupted => {}
            _ => return Err(error),
        }
    }
}

/// Drops pages that were fetched because we looked: first all must have come, or they could not be dropped.
fn clear(file: &File, pages: &[u64]) -> io::Result<()> {
    for page in pages {
        file.read_exact_at(&mut [0], page * PAGE)?;
    }
    for page in pages {
        advise(file, page * PAGE, PAGE, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
    }
    Ok(())
}

/// Advises on so many bytes from `position`; 0 for all.
fn advise(file: &File, position: u64, bytes: u64, advice: PosixFadviseAdvice) -> io::Result<()> {
    let offset = |n: u64| libc::off_t::try_from(n).map_err(io::Error::other);
    Ok(posix_fadvise(file, offset(position)?, offset(bytes)?, advice)?)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    const BYTES: usize = 8 << 20;

    /// A file that is on the disk, and is removed in the end.
    struct Scratch(PathBuf, File);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("redrive-residency-{name}-{}", std::process::id()));
            std::fs::write(&path, vec![7; BYTES]).expect("a writable directory");
            let file = File::open(&path).expect("the file");
            file.sync_all().expect("written");
            Self(path, file)
        }

        /// Drops the file from the cache; false where that cannot be done, or not be seen.
        fn cool(&self) -> bool {
            advise(&self.1, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED).expect("advice");
            advise(&self.1, 0, 0, PosixFadviseAdvice::POSIX_FADV_RANDOM).expect("advice");
            let mut absent = Vec::new();
            let mut pages = [0, 777, BYTES as u64 / PAGE - 1].into_iter();
            let looked = pages.try_for_each(|page| look(&self.1, page, &mut absent));
            let cold = looked.and(clear(&self.1, &absent)).is_ok() && absent.len() == 3;
            if !cold {
                let required = std::env::var("REDRIVE_REQUIRE").unwrap_or_default();
                assert!(!required.split(',').any(|name| name == "cold"), "cold files are required");
                eprintln!(
                    "skipped: {} cannot be dropped from the cache, or not be looked at",
                    self.0.display()
                );
            }
            cold
        }

        fn look(&self, samples: usize) -> Cache {
            residency(&self.1, BYTES as u64, samples)
        }

        fn read(&self, bytes: usize) {
            self.1.read_exact_at(&mut vec![0; bytes], 0).expect("a readable file");
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "no page cache there")]
    fn looking_at_every_page_of_a_cold_file_leaves_it_cold() {
        let file = Scratch::new("cold");
        if !file.cool() {
            return;
        }
        let pages = BYTES / 4096;
        for samples in [pages, pages, 64, 0, pages] {
            assert_eq!(file.look(samples), Cache::Cold, "{samples} samples");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "no page cache there")]
    fn what_was_read_is_warm() {
        let file = Scratch::new("warm");
        if !file.cool() {
            return;
        }
        file.read(BYTES / 2);
        assert_eq!(file.look(64), Cache::Mixed);
        assert_eq!(residency(&file.1, BYTES as u64 / 2, 64), Cache::Warm);
        file.read(BYTES);
        assert_eq!(file.look(64), Cache::Warm);
        assert_eq!(residency(&file.1, 2 * BYTES as u64, 64), Cache::Mixed, "shorter than it should be");
    }

    /// As our own looks leave one behind when the device is faster than the look.
    #[test]
    #[cfg_attr(miri, ignore = "no page cache there")]
    fn a_page_by_itself_is_nothing_that_somebody_read() {
        let file = Scratch::new("alone");
        let last = BYTES as u64 / PAGE - 1;
        for (page, others, expected) in [
            (0, 0, Cache::Cold),
            (last, 0, Cache::Cold),
            (0, 1, Cache::Mixed),
            (last - 1, 1, Cache::Mixed),
            (last - 9, 9, Cache::Mixed),
        ] {
            if !file.cool() {
                return;
            }
            for samples in [2, 3, 64] {
                // A look ends with the advice that makes reads bring more than they ask for.
                advise(&file.1, 0, 0, PosixFadviseAdvice::POSIX_FADV_RANDOM).expect("advice");
                for page in page..=page + others {
                    file.1.read_exact_at(&mut [0], page * PAGE).expect("a readable file");
                }
                // Of two pages one is not few.
                let expected = if samples == 2 { Cache::Mixed } else { expected };
                assert_eq!(file.look(samples), expected, "{others} beside page {page}, {samples} samples");
                if expected == Cache::Cold {
                    assert_eq!(file.look(2), Cache::Cold, "the page was dropped");
                }
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "no page cache there")]
    fn an_empty_file_is_warm_and_a_pipe_is_unclear() {
        let file = Scratch::new("empty");
        assert_eq!(residency(&file.1, 0, 64), Cache::Warm);
        let (reader, _writer) = io::pipe().expect("a pipe");
        assert_eq!(residency(&File::from(std::os::fd::OwnedFd::from(reader)), 10, 64), Cache::Mixed);
    }

    #[test]
    fn samples_are_spread_and_have_both_ends() {
        assert!(sampled(0, 64).is_empty());
        for pages in [1, 2, 3, 63, 64, 65, 100, 10_000, u64::MAX / 4096] {
            let sample = sampled(pages, 64);
            assert_eq!(sample.len() as u64, pages.min(64));
            assert_eq!((sample.first(), sample.last()), (Some(&0), Some(&(pages - 1))));
            let widest = pages / 64 * 2 + 2;
            assert!(
                sample.windows(2).all(|pair| pair[0] < pair[1] && pair[1] - pair[0] <= widest),
                "{sample:?}"
            );
        }
    }
}
