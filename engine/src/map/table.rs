//! The hash table under the map: cache lines of slots, entries that are never removed, growth from stored bits alone.
//!
//! ```text
//! line, exact:     │ slot 0 │ slot 1 │ … │ slot 7 │               8 × 8 bytes
//! line, identity:  │ slot 0 │ … │ slot 3 │ hash 0 │ … │ hash 3 │  4 × (8 + 8) bytes
//! slot:            │ content 44 bits │ displacement 5 │ tag 15 │  0 = empty; content is never 0
//! ```
//!
//! An entry lies in the line that its hash names, its home, or in one of the 31 behind it; the displacement says in
//! which. Lines fill from slot 0 on and nothing is ever removed, so a search ends at the first empty slot, and two
//! threads that insert the same id meet in that slot: one of them wins and the other finds it there.
//!
//! A table of 2^b lines takes the home from b bits of the hash. The lowest, as many as the table had at first, can be
//! told from where an entry lies and its displacement. Each doubling asks for one more, which comes from the tag, or
//! from the stored hash. So growing reads the table from front to back and nothing else.
//!
//! One thread that has the table for itself works on plain words, which the compiler compares all at once ([`Alone`]);
//! several on atomic ones ([`Shared`]). The search is the same.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::hash::IdHash;
use crate::machine::lines::{Line, Lines, WORDS};
use crate::machine::prefetch::prefetch;

/// Bits of a slot that belong to whoever uses the table.
pub(crate) const CONTENT_BITS: u32 = 44;

const TAG_BITS: u32 = 15;
const TAG_MASK: u64 = (1 << TAG_BITS) - 1;
const DISPLACEMENT_BITS: u32 = 5;
const DISPLACEMENT_MAX: u64 = (1 << DISPLACEMENT_BITS) - 1;
const CONTENT_SHIFT: u32 = TAG_BITS + DISPLACEMENT_BITS;
/// Displacement and tag of a slot.
const PLACE_MASK: u64 = (1 << CONTENT_SHIFT) - 1;

/// Slots of a line in a table whose entries are compared by their keys.
pub(crate) const EXACT: usize = 8;
/// Slots of a line in a table that takes a hash for the key.
pub(crate) const BY_HASH: usize = 4;

/// Fewest lines, as a power of two: an entry can be displaced through all of them.
const BITS_MIN: u32 = DISPLACEMENT_BITS;
/// Most lines, as a power of two: 64 TiB.
const BITS_MAX: u32 = 40;

/// How full a table gets before it grows, in eighths.
const FULL_EIGHTHS: usize = 6;

/// A table with `SLOTS` slots a line: [`EXACT`] or [`BY_HASH`].
#[derive(Debug)]
pub(crate) struct Table<const SLOTS: usize> {
    lines: Lines,
    shape: Shape<SLOTS>,
    entries: AtomicUsize,
}

/// Where entries belong.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape<const SLOTS: usize> {
    /// The table has 2^bits lines.
    bits: u32,
    /// What `bits` was at first.
    first_bits: u32,
}

/// A slot with what it held at the moment it was looked at.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Found {
    line: usize,
    slot: usize,
    /// 0 where nothing was found.
    word: u64,
}

impl Found {
    /// What the slot held; 0 for nothing.
    #[inline(always)]
    pub(crate) fn content(&self) -> u64 {
        self.word >> CONTENT_SHIFT
    }
}

/// The answer to a search that inserts what it does not find.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Entry {
    /// The key was there.
    Found(Found),
    /// The key is there now.
    Inserted,
    /// There is no room in reach of the key's home: the table must grow.
    Full,
}

/// Why a table cannot grow.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GrowFault {
    /// The machine gives no more memory.
    #[error("{bytes} bytes cannot be had: {source}")]
    Memory { bytes: usize, source: io::Error },
    /// The stored bits do not tell the entries apart any further.
    #[error("the table has grown {0} times, and no stored bits are left to grow by")]
    Exhausted(u32),
}

/// The lines of a table, as they may be used.
pub(crate) trait Words {
    /// Whether other threads may be writing.
    const IS_SHARED: bool;

    /// A line as it is at this moment.
    fn line(&mut self, line: usize) -> [u64; WORDS];

    /// One word of it.
    fn word(&mut self, line: usize, word: usize) -> u64;

    /// Asks for a line.
    fn prefetch(&self, line: usize);

    /// Writes a word where 0 was; false if it is not 0 any more.
    fn claim(&mut self, line: usize, word: usize, value: u64) -> bool;

    /// Makes a word at least `value`; says what it was.
    fn raise(&mut self, line: usize, word: usize, value: u64) -> u64;

    /// There is an entry more.
    fn count(&mut self);

    /// Entries.
    fn len(&self) -> usize;
}

/// The lines for one thread that has them for itself.
pub(crate) struct Alone<'t> {
    lines: &'t mut [Line],
    entries: &'t mut usize,
}

/// The lines for any number of threads.
pub(crate) struct Shared<'t> {
    lines: &'t [Line],
    entries: &'t AtomicUsize,
}

impl Words for Alone<'_> {
    const IS_SHARED: bool = false;

    #[inline(always)]
    fn line(&mut self, line: usize) -> [u64; WORDS] {
        *self.lines[line].words()
    }

    #[inline(always)]
    fn word(&mut self, line: usize, word: usize) -> u64 {
        self.lines[line].words()[word]
    }

    #[inline(always)]
    fn prefetch(&self, line: usize) {
        prefetch(&self.lines[line]);
    }

    #[inline(always)]
    fn claim(&mut self, line: usize, word: usize, value: u64) -> bool {
        self.lines[line].words()[word] = value;
        true
    }

    #[inline(always)]
    fn raise(&mut self, line: usize, word: usize, value: u64) -> u64 {
        let place = &mut self.lines[line].words()[word];
        let old = *place;
        *place = old.max(value);
        old
    }

    #[inline(always)]
    fn count(&mut self) {
        *self.entries += 1;
    }

    #[inline(always)]
    fn len(&self) -> usize {
        *self.entries
    }
}

impl Words for Shared<'_> {
    const IS_SHARED: bool = true;

    #[inline(always)]
    fn line(&mut self, line: usize) -> [u64; WORDS] {
        let line = &self.lines[line].0;
        std::array::from_fn(|word| line[word].load(Ordering::Acquire))
    }

    #[inline(always)]
    fn word(&mut self, line: usize, word: usize) -> u64 {
        self.lines[line].0[word].load(Ordering::Acquire)
    }

    #[inline(always)]
    fn prefetch(&self, line: usize) {
        prefetch(&self.lines[line]);
    }

    #[inline(always)]
    fn claim(&mut self, line: usize, word: usize, value: u64) -> bool {
        self.lines[line].0[word].compare_exchange(0, value, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    #[inline(always)]
    fn raise(&mut self, line: usize, word: usize, value: u64) -> u64 {
        self.lines[line].0[word].fetch_max(value, Ordering::AcqRel)
    }

    #[inline(always)]
    fn count(&mut self) {
        self.entries.fetch_add(1, Ordering::Relaxed);
    }

    #[inline(always)]
    fn len(&self) -> usize {
        self.entries.load(Ordering::Relaxed)
    }
}

impl<const SLOTS: usize> Shape<SLOTS> {
    /// Whether `entries` would make the table fuller than is good for it.
    #[inline(always)]
    pub(crate) fn is_full(self, entries: usize) -> bool {
        entries > ((1usize << self.bits) * SLOTS / 8) * FULL_EIGHTHS
    }

    /// The line where the search for a key begins.
    #[inline(always)]
    pub(crate) fn home(self, hash: IdHash) -> usize {
        let more =
            if SLOTS == BY_HASH { hash.identity >> 1 } else { hash.place >> self.first_bits & TAG_MASK };
        ((hash.place & mask(self.first_bits) | more << self.first_bits) & mask(self.bits)) as usize
    }

    /// Displacement and tag of a key's slot.
    #[inline(always)]
    fn place_of(self, hash: IdHash, displacement: u64) -> u64 {
        displacement << TAG_BITS | hash.place >> self.first_bits & TAG_MASK
    }

    /// Slots of a line that may belong to a key, by what the line says alone: a bit for each.
    #[inline(always)]
    fn may_be(words: &[u64; WORDS], place: u64, hash: IdHash) -> u32 {
        let mut maybe = 0;
        for slot in 0..SLOTS {
            let is = if SLOTS == BY_HASH {
                words[SLOTS + slot] == hash.identity | 1
            } else {
                // An empty slot can look like tag 0 in its home.
                words[slot] != 0 && (words[slot] ^ place) & PLACE_MASK == 0
            };
            maybe |= u32::from(is) << slot;
        }
        maybe
    }

    /// The word of a slot that is claimed first.
    #[inline(always)]
    const fn claim_word(slot: usize) -> usize {
        if SLOTS == BY_HASH { SLOTS + slot } else { slot }
    }

    /// The first slot of the home line that may be this key's, if there is one.
    #[inline(always)]
    pub(crate) fn guess(self, words: &mut impl Words, hash: IdHash) -> Found {
        let line = self.home(hash);
        let place = self.place_of(hash, 0);
        let now = words.line(line);
        let slot = Self::may_be(&now, place, hash).trailing_zeros() as usize;
        // Where hashes are compared, the tag and the place count too.
        let is_there = slot < SLOTS && (now[slot] ^ place) & PLACE_MASK == 0;
        if is_there { Found { line, slot, word: now[slot] } } else { Found::default() }
    }

    /// The slot of a key, or a new one whose content `make` gives; it is not asked for a content that it gives twice.
    /// `is_key` is asked of contents of other keys too, and of those of keys that are being inserted at this moment.
    #[inline(always)]
    pub(crate) fn entry(
        self,
        words: &mut impl Words,
        hash: IdHash,
        mut is_key: impl FnMut(u64) -> bool,
        mut make: impl FnMut() -> u64,
    ) -> Entry {
        self.search(words, hash, &mut is_key, |words, line, slot, displacement| {
            let word = make() << CONTENT_SHIFT | self.place_of(hash, displacement);
            // The hash, or the slot where there is none, is claimed; whoever comes second looks at it again.
            let first = if SLOTS == BY_HASH { hash.identity | 1 } else { word };
            if !words.claim(line, Self::claim_word(slot), first) {
                return None;
            }
            if SLOTS == BY_HASH {
                words.raise(line, slot, word);
            }
            words.count();
            Some(Entry::Inserted)
        })
    }

    /// Makes the content of a slot at least `content`; says what it was before.
    #[inline(always)]
    pub(crate) fn raise(self, words: &mut impl Words, found: Found, content: u64) -> u64 {
        // Displacement and tag are the same in every content that this slot ever holds.
        let word = content << CONTENT_SHIFT | found.word & PLACE_MASK;
        words.raise(found.line, found.slot, word) >> CONTENT_SHIFT
    }

    /// Whether a slot still holds what it held when it was found.
    #[inline(always)]
    pub(crate) fn is_still(self, words: &mut impl Words, found: Found) -> bool {
        found.word != 0 && words.word(found.line, found.slot) == found.word
    }

    /// Looks at the slots from home on. `empty` is shown the first empty one and says what comes of it: `None` asks to
    /// look at it again.
    #[inline(always)]
    fn search<W: Words>(
        self,
        words: &mut W,
        hash: IdHash,
        is_key: &mut impl FnMut(u64) -> bool,
        mut empty: impl FnMut(&mut W, usize, usize, u64) -> Option<Entry>,
    ) -> Entry {
        let home = self.home(hash) as u64;
        for displacement in 0..=DISPLACEMENT_MAX {
            let line = ((home + displacement) & mask(self.bits)) as usize;
            let place = self.place_of(hash, displacement);
            let mut from = 0;
            loop {
                let now = words.line(line);
                let mut maybe = Self::may_be(&now, place, hash) & (!0 << from);
                while maybe != 0 {
                    let slot = maybe.trailing_zeros() as usize;
                    if let Some(found) = Self::settle(words, line, slot, now[slot], place, is_key) {
                        return Entry::Found(found);
                    }
                    maybe &= maybe - 1;
                }
                let mut taken = 0u32;
                for slot in 0..SLOTS {
                    taken |= u32::from(now[Self::claim_word(slot)] != 0) << slot;
                }
                from = taken.trailing_ones() as usize;
                if from >= SLOTS {
                    break;
                }
                if let Some(entry) = empty(words, line, from, displacement) {
                    return entry;
                }
            }
        }
        Entry::Full
    }

    /// Whether a slot that may belong to a key does.
    #[inline(always)]
    fn settle<W: Words>(
        words: &mut W,
        line: usize,
        slot: usize,
        mut word: u64,
        place: u64,
        is_key: &mut impl FnMut(u64) -> bool,
    ) -> Option<Found> {
        loop {
            if SLOTS == BY_HASH {
                // The hash is there; the thread that wrote it may not have come to the slot yet.
                while word == 0 {
                    std::hint::spin_loop();
                    word = words.word(line, slot);
                }
                return ((word ^ place) & PLACE_MASK == 0).then_some(Found { line, slot, word });
            }
            if is_key(word >> CONTENT_SHIFT) {
                return Some(Found { line, slot, word });
            }
            if !W::IS_SHARED {
                return None;
            }
            // What the slot held may have been given up for a newer record of the key meanwhile.
            let now = words.word(line, slot);
            if now == word {
                return None;
            }
            word = now;
        }
    }
}

impl<const SLOTS: usize> Table<SLOTS> {
    /// A table that begins with room for `entries`.
    pub(crate) fn with_room_for(
        entries: usize,
        allocate: impl FnOnce(usize) -> io::Result<Lines>,
    ) -> Result<Self, GrowFault> {
        let bits = bits_for::<SLOTS>(entries);
        let shape = Shape { bits, first_bits: bits };
        Ok(Self { lines: lines(bits, allocate)?, shape, entries: AtomicUsize::new(0) })
    }

    /// Entries.
    pub(crate) fn len(&self) -> usize {
        self.entries.load(Ordering::Relaxed)
    }

    /// Lines.
    pub(crate) fn lines(&self) -> usize {
        self.lines.len()
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> usize {
        self.lines.bytes()
    }

    /// Where entries belong.
    pub(crate) fn shape(&self) -> Shape<SLOTS> {
        self.shape
    }

    /// The lines for the only thread.
    pub(crate) fn alone(&mut self) -> Alone<'_> {
        Alone { lines: &mut self.lines, entries: self.entries.get_mut() }
    }

    /// The lines for one thread among several.
    pub(crate) fn shared(&self) -> Shared<'_> {
        Shared { lines: &self.lines, entries: &self.entries }
    }

    /// The slot of a key.
    pub(crate) fn find(&self, hash: IdHash, mut is_key: impl FnMut(u64) -> bool) -> Option<Found> {
        match self.shape.search(&mut self.shared(), hash, &mut is_key, |_, _, _, _| Some(Entry::Full)) {
            Entry::Found(found) => Some(found),
            Entry::Inserted | Entry::Full => None,
        }
    }

    /// Every content, in no order.
    pub(crate) fn contents(&self) -> impl Iterator<Item = u64> {
        self.lines
            .iter()
            .flat_map(|line| line.0[..SLOTS].iter())
            .map(|word| word.load(Ordering::Relaxed) >> CONTENT_SHIFT)
            .filter(|content| *content != 0)
    }

    /// Lines that a table has which has grown until it has room for `entries`, and at least twice as many as this one.
    pub(crate) fn lines_to_grow(&self, entries: usize) -> usize {
        1 << self.bits_to_grow(entries)
    }

    fn bits_to_grow(&self, entries: usize) -> u32 {
        bits_for::<SLOTS>(entries).max(self.shape.bits + 1).min(BITS_MAX)
    }

    /// Makes room for `entries`, at least twice as much as there is. Cost: one pass over the old lines, which are given
    /// back.
    ///
    /// # Errors
    /// [`GrowFault`]; the table is then as it was.
    pub(crate) fn grow(
        &mut self,
        entries: usize,
        mut allocate: impl FnMut(usize) -> io::Result<Lines>,
    ) -> Result<Lines, GrowFault> {
        let mut bits = self.bits_to_grow(entries).min(self.shape.first_bits + Self::STORED_BITS);
        while bits > self.shape.bits && bits <= BITS_MAX {
            // An entry that finds no room at once, which hardly ever happens, asks for yet more lines.
            if let Some(grown) = self.grown(bits, &mut allocate)? {
                return Ok(std::mem::replace(self, grown).lines);
            }
            bits += 1;
            if bits > self.shape.first_bits + Self::STORED_BITS {
                break;
            }
        }
        Err(GrowFault::Exhausted(self.shape.bits - self.shape.first_bits))
    }

    /// Bits beyond the first that say where an entry belongs.
    const STORED_BITS: u32 = if SLOTS == BY_HASH { u64::BITS - 1 } else { TAG_BITS };

    /// The same entries in 2^bits lines; `None` if one of them finds no room.
    fn grown(
        &self,
        bits: u32,
        allocate: &mut impl FnMut(usize) -> io::Result<Lines>,
    ) -> Result<Option<Self>, GrowFault> {
        let Shape { bits: old_bits, first_bits } = self.shape;
        let shape = Shape { bits, first_bits };
        let mut grown = Self { lines: lines(bits, allocate)?, shape, entries: AtomicUsize::new(self.len()) };
        let mut words = self.shared();
        let mut into = grown.alone();
        for number in 0..self.lines.len() {
            let line = words.line(number);
            for slot in 0..SLOTS {
                let word = line[slot];
                if word == 0 {
                    break;
                }
                let displacement = word >> TAG_BITS & DISPLACEMENT_MAX;
                let old_home = (number as u64).wrapping_sub(displacement) & mask(old_bits);
                let identity = if SLOTS == BY_HASH { line[SLOTS + slot] } else { 0 };
                let more = if SLOTS == BY_HASH { identity >> 1 } else { word & TAG_MASK };
                let home = (old_home & mask(first_bits) | more << first_bits) & mask(bits);
                if !place(&mut into, shape, home, word, identity) {
                    return Ok(None);
                }
            }
        }
        Ok(Some(grown))
    }
}

/// Puts a word into the first empty slot from a line on.
fn place<const SLOTS: usize>(
    into: &mut Alone<'_>,
    shape: Shape<SLOTS>,
    home: u64,
    word: u64,
    identity: u64,
) -> bool {
    for displacement in 0..=DISPLACEMENT_MAX {
        let line = into.lines[((home + displacement) & mask(shape.bits)) as usize].words();
        for slot in 0..SLOTS {
            if line[slot] == 0 {
                line[slot] = word & !(DISPLACEMENT_MAX << TAG_BITS) | displacement << TAG_BITS;
                if SLOTS == BY_HASH {
                    line[SLOTS + slot] = identity;
                }
                return true;
            }
        }
    }
    false
}

const fn mask(bits: u32) -> u64 {
    (1 << bits) - 1
}

/// Lines that hold `entries` without being too full, as a power of two.
fn bits_for<const SLOTS: usize>(entries: usize) -> u32 {
    let lines = entries.div_ceil(SLOTS * FULL_EIGHTHS / 8).next_power_of_two();
    lines.trailing_zeros().clamp(BITS_MIN, BITS_MAX)
}

fn lines(bits: u32, allocate: impl FnOnce(usize) -> io::Result<Lines>) -> Result<Lines, GrowFault> {
    let count = 1usize << bits;
    let memory = |source| GrowFault::Memory { bytes: count.saturating_mul(size_of::<Line>()), source };
    allocate(count).map_err(memory)
}
