//! Zeroed memory in cache lines, on huge pages where the system gives them.
#![expect(unsafe_code, reason = "a mapping is bytes; seeing it as words takes a cast")]

use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::AtomicU64;

use memmap2::{MmapMut, MmapRaw};

/// Words of a line.
pub(crate) const WORDS: usize = 8;

/// One cache line of 64 bytes.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Line(pub(crate) [AtomicU64; WORDS]);

impl Line {
    /// The words, of a line that no other thread can reach.
    #[inline(always)]
    pub(crate) fn words(&mut self) -> &mut [u64; WORDS] {
        // SAFETY: `AtomicU64` has the size and here also the alignment of `u64`, every bit pattern is valid for both, and
        // `&mut self` makes this the only reference for as long as it lives.
        unsafe { &mut *(&raw mut self.0).cast() }
    }
}

/// A fixed number of lines, zero at first. Memory that is never touched is never taken.
#[derive(Debug)]
pub(crate) struct Lines {
    /// `None` for no lines: nothing cannot be mapped. Raw, since a pointer that came from a reference to bytes may not be
    /// written through behind that reference's back.
    mapping: Option<MmapRaw>,
    count: usize,
}

#[cfg(not(miri))]
/// From this size on huge pages are asked for: a smaller piece cannot hold one.
const HUGE_FROM: usize = 2 << 20;

impl Lines {
    /// Reserves `count` lines.
    ///
    /// # Errors
    /// What the system says when there is no room for them.
    pub(crate) fn zeroed(count: usize) -> io::Result<Self> {
        let bytes = count.checked_mul(size_of::<Line>()).ok_or(io::ErrorKind::OutOfMemory)?;
        if bytes == 0 {
            return Ok(Self { mapping: None, count: 0 });
        }
        let mapping = MmapRaw::from(MmapMut::map_anon(bytes)?);
        #[cfg(not(miri))]
        if bytes >= HUGE_FROM {
            // A wish: without huge pages everything works, with more page faults and misses of the TLB.
            let _ = mapping.advise(memmap2::Advice::HugePage);
        }
        Ok(Self { mapping: Some(mapping), count })
    }

    /// Makes every line zero again.
    pub(crate) fn clear(&mut self) {
        for line in self.iter_mut() {
            *line.words() = [0; WORDS];
        }
    }

    /// Bytes that are reserved.
    pub(crate) fn bytes(&self) -> usize {
        self.count * size_of::<Line>()
    }
}

impl Deref for Lines {
    type Target = [Line];

    #[inline(always)]
    fn deref(&self) -> &[Line] {
        match &self.mapping {
            // SAFETY: the mapping is private, anonymous memory of exactly `count * 64` bytes that lives as long as
            // `self` and is reached through `self` only. It begins at a page and is therefore aligned for `Line`,
            // which consists of `AtomicU64` alone, for which every bit pattern is valid; the kernel zeroed it.
            Some(mapping) => unsafe {
                std::slice::from_raw_parts(mapping.as_mut_ptr().cast::<Line>(), self.count)
            },
            None => &[],
        }
    }
}

impl DerefMut for Lines {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [Line] {
        match &mut self.mapping {
            // SAFETY: as in `deref`; `&mut self` makes this the only reference.
            Some(mapping) => unsafe {
                std::slice::from_raw_parts_mut(mapping.as_mut_ptr().cast::<Line>(), self.count)
            },
            None => &mut [],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn lines_are_zero_and_keep_what_is_written() {
        for count in [0, 1, 3, 100] {
            let mut lines = Lines::zeroed(count).unwrap();
            assert_eq!((lines.len(), lines.bytes()), (count, count * 64));
            assert!(lines.iter().flat_map(|line| &line.0).all(|word| word.load(Ordering::Relaxed) == 0));
            for (number, line) in lines.iter_mut().enumerate() {
                *line.0[7].get_mut() = number as u64 + 1;
            }
            let last: Vec<u64> = lines.iter().map(|line| line.0[7].load(Ordering::Relaxed)).collect();
            assert!(last.into_iter().eq(1..=count as u64));
        }
    }

    #[test]
    fn more_than_the_machine_has_is_an_error() {
        assert!(Lines::zeroed(usize::MAX / 64).is_err());
        assert!(Lines::zeroed(usize::MAX).is_err());
    }
}
