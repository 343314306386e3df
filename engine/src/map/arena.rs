//! Keys kept beside the table, for loads whose input is gone once it was read.
//!
//! ```text
//! entry: │ content 44 bits │ bytes of the id 20 │ id, 8 bytes a word, zeros behind its end │ …
//! ```
//!
//! The first word rises; the others never change after their slot was published. Entries are addressed by the number
//! of their first word. Blocks double in size, so that an address tells its block without a search.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::hash::{SHORT_WORDS, ShortId};
use crate::machine::lines::{Lines, WORDS};

const CONTENT_SHIFT: u32 = 20;
const LEN_MASK: u64 = 0xf_ffff;

/// Words of the first block: 64 KiB.
const FIRST_WORDS: usize = 1 << 13;
/// Blocks that an arena can have; the last would hold 16 TiB.
const BLOCKS: usize = 28;
/// Words that a worker takes at once.
const EXTENT_WORDS: usize = 1 << 10;

/// Ids and the contents that belong to them.
#[derive(Debug)]
pub(crate) struct Arena {
    blocks: [OnceLock<Lines>; BLOCKS],
    /// Words given out.
    used: AtomicUsize,
}

/// What a worker took from an arena and has not used yet.
#[derive(Debug, Default)]
pub(crate) struct Extent {
    next: usize,
    end: usize,
}

impl Default for Arena {
    fn default() -> Self {
        Self { blocks: [const { OnceLock::new() }; BLOCKS], used: AtomicUsize::new(0) }
    }
}

impl Arena {
    /// Bytes of memory that are reserved. Pages that no entry has reached yet are not taken.
    pub(crate) fn bytes(&self) -> usize {
        self.used.load(Ordering::Relaxed) * 8
    }

    /// Makes an entry that no slot points to yet; its address. `words` are the id's, as many as it needs.
    ///
    /// # Errors
    /// What the system says when there is no memory.
    pub(crate) fn add(
        &self,
        extent: &mut Extent,
        content: u64,
        len: usize,
        words: impl Iterator<Item = u64>,
    ) -> io::Result<u64> {
        let count = 1 + len.div_ceil(8);
        if extent.end - extent.next < count {
            *extent = self.take(count.max(EXTENT_WORDS))?;
        }
        let address = extent.next;
        extent.next += count;
        // An entry lies in one block.
        let (block, at) = place(address);
        let Some(lines) = self.blocks[block].get() else { return Err(io::ErrorKind::OutOfMemory.into()) };
        let first = content << CONTENT_SHIFT | len as u64;
        for (number, word) in std::iter::once(first).chain(words.take(count - 1)).enumerate() {
            let number = at + number;
            lines[number / WORDS].0[number % WORDS].store(word, Ordering::Relaxed);
        }
        Ok(address as u64)
    }

    /// Gives back the entry that was made last, because another thread was faster with the same id.
    pub(crate) fn take_back(extent: &mut Extent, address: u64) {
        extent.next = address as usize;
    }

    /// Room for `count` words in one block.
    fn take(&self, count: usize) -> io::Result<Extent> {
        loop {
            let next = self.used.fetch_add(count, Ordering::Relaxed);
            let (first, last) = (place(next).0, place(next + count - 1).0);
            let Some(blocks) = self.blocks.get(first..=last) else {
                return Err(io::ErrorKind::OutOfMemory.into());
            };
            for (block, number) in blocks.iter().zip(first..) {
                if block.get().is_none() {
                    let lines = Lines::zeroed((FIRST_WORDS << number) / WORDS)?;
                    // Should another thread have been faster, its block stays.
                    let _ = block.set(lines);
                }
            }
            // An entry never crosses from block to block; what is left of the first is lost.
            if first == last {
                return Ok(Extent { next, end: next + count });
            }
        }
    }

    /// The content of an entry.
    #[inline(always)]
    pub(crate) fn content(&self, address: u64) -> u64 {
        self.word(address as usize).load(Ordering::Relaxed) >> CONTENT_SHIFT
    }

    /// Makes the content of an entry at least `content`; says what it was. Plain stores serve where no other thread
    /// does this.
    #[inline(always)]
    pub(crate) fn raise(&self, address: u64, content: u64, is_shared: bool) -> u64 {
        let first = self.word(address as usize);
        let word = first.load(Ordering::Relaxed);
        let raised = content << CONTENT_SHIFT | word & LEN_MASK;
        if is_shared {
            return first.fetch_max(raised, Ordering::Relaxed) >> CONTENT_SHIFT;
        }
        first.store(word.max(raised), Ordering::Relaxed);
        word >> CONTENT_SHIFT
    }

    /// Whether an entry is that of an id of at most 64 bytes.
    #[inline(always)]
    pub(crate) fn is_short(&self, address: u64, id: &ShortId) -> bool {
        let (block, at) = place(address as usize);
        let Some(lines) = self.blocks[block].get() else { return false };
        let word = |number: usize| {
            let number = at + number;
            lines[number / WORDS].0[number % WORDS].load(Ordering::Relaxed)
        };
        if word(0) & LEN_MASK != u64::from(id.len) {
            return false;
        }
        let count = usize::from(id.len).div_ceil(8).min(SHORT_WORDS);
        (0..count).fold(0, |different, number| different | (word(1 + number) ^ id.words[number])) == 0
    }

    /// Whether an entry is that of an id.
    pub(crate) fn is(&self, address: u64, id: &[u8]) -> bool {
        self.len(address) == id.len()
            && id.chunks(8).enumerate().all(|(number, bytes)| {
                self.word(address as usize + 1 + number).load(Ordering::Relaxed) == word_of(bytes)
            })
    }

    fn len(&self, address: u64) -> usize {
        (self.word(address as usize).load(Ordering::Relaxed) & LEN_MASK) as usize
    }

    /// A word; the one at an entry's address is its first.
    #[inline(always)]
    pub(crate) fn word(&self, number: usize) -> &AtomicU64 {
        static NONE: AtomicU64 = AtomicU64::new(0);
        let (block, at) = place(number);
        match self.blocks[block].get() {
            Some(lines) => &lines[at / WORDS].0[at % WORDS],
            // Addresses come from `add`, so their blocks are there.
            None => &NONE,
        }
    }
}

/// Up to eight bytes as a word, the first most significant.
pub(crate) fn word_of(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_be_bytes(word)
}

/// The block of a word, and its number there.
#[inline(always)]
fn place(number: usize) -> (usize, usize) {
    // Block b begins at FIRST_WORDS * (2^b − 1).
    let shifted = number + FIRST_WORDS;
    let block = (shifted / FIRST_WORDS).ilog2() as usize;
    (block, shifted - (FIRST_WORDS << block))
}
