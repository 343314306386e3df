//! The limit: what it costs merely to touch every byte.
//!
//! Warm, the segments are mapped and every byte is taken into a sum by the widest loads that the CPU has, two streams
//! at a time: one stream of loads leaves a few percent of the memory's speed unused. That is held against memcpy in the
//! same process. Cold, the files are read past the page cache by several threads, a piece each.

use std::fs::{File, OpenOptions};
use std::hint::black_box;
use std::io;
use std::num::NonZero;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fearless_simd::prelude::*;
use fearless_simd::{Level, Simd, dispatch};
use nix::libc;
use redrive::io::{FileSystem, Region, Storage};

use crate::error::BenchError;

/// Bytes that are summed at once; two streams of half of it.
const BLOCK_BYTES: usize = 4 << 20;
/// Passes over bytes that were touched before. The best of them counts: this is a limit, not a contender.
const PASSES: usize = 3;
/// Most bytes that memcpy copies.
const COPY_BYTES_MAX: usize = 1 << 30;
/// Fewest, so that no cache holds them.
const COPY_BYTES_MIN: usize = 64 << 20;
/// Bytes of one read past the page cache.
const DIRECT_BYTES: usize = 1 << 20;
/// Alignment that every device here accepts.
const DIRECT_ALIGN: usize = 4096;
/// Reads in flight past the page cache; the best counts.
const DEPTHS: [usize; 3] = [4, 8, 16];

/// What reading warm bytes costs.
#[derive(Clone, Copy, Debug)]
pub struct WarmRead {
    /// Bytes touched.
    pub bytes: u64,
    /// Time of the first pass, with the opening and mapping of the files.
    pub first: Duration,
    /// Best time of the later passes.
    pub best: Duration,
    /// Bytes copied by memcpy, and its best time, by as many threads.
    pub copied: (u64, Duration),
    /// Exclusive or of all bytes.
    pub sum: u8,
}

/// Reads every byte of the files by so many threads, an equal share each.
///
/// # Errors
/// [`BenchError::Io`].
pub fn warm(files: &[PathBuf], threads: NonZero<usize>) -> Result<WarmRead, BenchError> {
    let started = Instant::now();
    let mut blocks = Vec::new();
    for path in files {
        let region =
            FileSystem.open(path).and_then(|file| file.map()).map_err(BenchError::io("map", path))?;
        let mut at = 0;
        while at < region.len() {
            let end = region.len().min(at + BLOCK_BYTES);
            blocks.push(region.slice(at..end));
            at = end;
        }
    }
    let sum = sum_blocks(&blocks, threads);
    let first = started.elapsed();
    let best = best_of(|| {
        black_box(sum_blocks(&blocks, threads));
    });
    let bytes = blocks.iter().map(|block| block.len() as u64).sum();
    Ok(WarmRead { bytes, first, best, copied: copy(bytes, threads), sum })
}

fn best_of(mut work: impl FnMut()) -> Duration {
    let timed = (0..PASSES).map(|_| {
        let started = Instant::now();
        work();
        started.elapsed()
    });
    timed.min().unwrap_or_default()
}

fn sum_blocks(blocks: &[Region], threads: NonZero<usize>) -> u8 {
    let share = blocks.len().div_ceil(threads.get()).max(1);
    thread::scope(|scope| {
        let sum = |part: &[Region]| part.iter().fold(0, |sum, block| sum ^ sum_block(block));
        let workers: Vec<_> =
            blocks.chunks(share).skip(1).map(|part| scope.spawn(move || sum(part))).collect();
        let own = sum(blocks.chunks(share).next().unwrap_or_default());
        workers.into_iter().fold(own, |all, worker| all ^ worker.join().expect("a sum does not panic"))
    })
}

/// Exclusive or of all bytes, by the widest instructions of this CPU.
fn sum_block(bytes: &[u8]) -> u8 {
    dispatch!(Level::new(), simd => sum_by(simd, bytes))
}

#[inline(always)]
fn sum_by<S: Simd>(simd: S, bytes: &[u8]) -> u8 {
    simd.vectorize(
        #[inline(always)]
        || {
            let lane = S::u8s::LEN;
            let half = bytes.len() / 2 / (2 * lane) * (2 * lane);
            let (left, rest) = bytes.split_at(half);
            let (right, tail) = rest.split_at(half);
            let zero = S::u8s::splat(simd, 0);
            let mut sums = [zero; 4];
            for (left, right) in left.chunks_exact(2 * lane).zip(right.chunks_exact(2 * lane)) {
                sums[0] ^= S::u8s::from_slice(simd, &left[..lane]);
                sums[1] ^= S::u8s::from_slice(simd, &right[..lane]);
                sums[2] ^= S::u8s::from_slice(simd, &left[lane..]);
                sums[3] ^= S::u8s::from_slice(simd, &right[lane..]);
            }
            let sum = sums[0] ^ sums[1] ^ sums[2] ^ sums[3];
            sum.as_slice().iter().chain(tail).fold(0, |sum, byte| sum ^ byte)
        },
    )
}

/// Copies about so many bytes from memory to memory; bytes copied, and the best time.
fn copy(bytes: u64, threads: NonZero<usize>) -> (u64, Duration) {
    let bytes = usize::try_from(bytes).unwrap_or(COPY_BYTES_MAX).clamp(COPY_BYTES_MIN, COPY_BYTES_MAX);
    let from = vec![1_u8; bytes];
    // Not zero: memory that was never written to would be taken from the system inside the first copy.
    let mut to = vec![2_u8; bytes];
    let share = bytes.div_ceil(threads.get());
    let best = best_of(|| {
        thread::scope(|scope| {
            for (from, to) in from.chunks(share).zip(to.chunks_mut(share)) {
                scope.spawn(move || to.copy_from_slice(black_box(from)));
            }
        });
        black_box(&mut to);
    });
    (bytes as u64, best)
}

/// What reading cold bytes costs.
#[derive(Clone, Copy, Debug)]
pub struct ColdRead {
    /// Bytes read.
    pub bytes: u64,
    /// Best time.
    pub best: Duration,
    /// Reads in flight then.
    pub depth: usize,
}

/// Reads every byte of the files past the page cache, 1 MiB at a time, with 4, 8 and 16 reads in flight.
///
/// # Errors
/// [`BenchError::Io`]; file systems that live in memory refuse such reads.
pub fn cold(files: &[PathBuf]) -> Result<ColdRead, BenchError> {
    let mut best: Option<ColdRead> = None;
    for depth in DEPTHS {
        let started = Instant::now();
        let bytes = direct(files, depth)?;
        let elapsed = started.elapsed();
        if best.is_none_or(|best| elapsed < best.best) {
            best = Some(ColdRead { bytes, best: elapsed, depth });
        }
    }
    best.ok_or_else(|| BenchError::Load("there is nothing to read".to_owned()))
}

fn direct(files: &[PathBuf], depth: usize) -> Result<u64, BenchError> {
    let open = |path: &PathBuf| -> io::Result<(File, u64)> {
        let file = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path)?;
        let bytes = file.metadata()?.len();
        Ok((file, bytes))
    };
    let mut pieces: Vec<(usize, u64)> = Vec::new();
    let mut opened = Vec::new();
    for (number, path) in files.iter().enumerate() {
        let (file, bytes) = open(path).map_err(BenchError::io("open", path))?;
        let starts = (0..bytes).step_by(DIRECT_BYTES);
        pieces.extend(starts.map(|start| (number, start)));
        opened.push(file);
    }
    let next = AtomicUsize::new(0);
    let work = || -> Result<u64, BenchError> {
        let mut room = vec![0_u8; DIRECT_BYTES + DIRECT_ALIGN];
        let skip = room.as_ptr().align_offset(DIRECT_ALIGN);
        let buffer = &mut room[skip..skip + DIRECT_BYTES];
        let mut bytes = 0;
        while let Some(&(number, start)) = pieces.get(next.fetch_add(1, Ordering::Relaxed)) {
            bytes +=
                read_piece(&opened[number], start, buffer).map_err(BenchError::io("read", &files[number]))?;
        }
        Ok(bytes)
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..depth).map(|_| scope.spawn(work)).collect();
        workers.into_iter().map(|worker| worker.join().expect("a read does not panic")).sum()
    })
}

/// Only the last piece of a file is short.
fn read_piece(file: &File, start: u64, buffer: &mut [u8]) -> io::Result<u64> {
    loop {
        match file.read_at(buffer, start) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            read => return Ok(read? as u64),
        }
    }
}

/// Reads a file through the page cache, which holds it afterwards. Bytes read.
///
/// # Errors
/// Whatever the file system says.
pub(crate) fn through_cache(path: &Path) -> io::Result<u64> {
    io::copy(&mut File::open(path)?, &mut Discard(vec![0; BLOCK_BYTES]))
}

/// Takes bytes by copying them: `io::sink` would let the kernel skip the work.
struct Discard(Vec<u8>);

impl io::Write for Discard {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(self.0.len());
        self.0[..taken].copy_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(bytes: usize) -> Vec<u8> {
        let mut state = 7_u64;
        let step = |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state.to_be_bytes()[0]
        };
        (0..bytes).map(step).collect()
    }

    /// A byte that is left out changes the sum with a probability of 255 in 256, and each is left out once.
    #[test]
    fn every_byte_is_in_the_sum() {
        for bytes in [0, 1, 63, 64, 65, 127, 128, 255, 256, 257, 511, 513, 1000, 4096, 4099] {
            let mut block = noise(bytes);
            let expected = block.iter().fold(0, |sum, byte| sum ^ byte);
            assert_eq!(sum_block(&block), expected, "{bytes} bytes");
            for at in 0..bytes {
                block[at] ^= 0x5A;
                assert_eq!(sum_block(&block), expected ^ 0x5A, "byte {at} of {bytes}");
                block[at] ^= 0x5A;
            }
        }
    }

    #[test]
    fn warm_and_cold_reads_see_whole_files() {
        let folder = tempfile::tempdir().expect("a folder");
        let content = noise(BLOCK_BYTES + 12_345);
        let files = [folder.path().join("a"), folder.path().join("b"), folder.path().join("empty")];
        std::fs::write(&files[0], &content).expect("written");
        std::fs::write(&files[1], &content[..5000]).expect("written");
        std::fs::write(&files[2], []).expect("written");
        let expected = content.iter().chain(&content[..5000]).fold(0, |sum, byte| sum ^ byte);
        for threads in [1, 2, 3, 50] {
            let read = warm(&files, NonZero::new(threads).expect("not zero")).expect("read");
            assert_eq!((read.bytes, read.sum), (content.len() as u64 + 5000, expected), "{threads} threads");
        }
        match cold(&files) {
            Ok(read) => assert_eq!(read.bytes, content.len() as u64 + 5000),
            // A file system in memory.
            Err(BenchError::Io { source, .. }) if source.kind() == io::ErrorKind::InvalidInput => {}
            Err(other) => panic!("{other}"),
        }
    }
}
