//! The keyed hash of transactional ids.
//!
//! Clients choose the ids, so the hash is one whose collisions nobody can plan: both of its forms have keys that are
//! random and fresh, and a bound on the chance that two different ids, chosen without knowledge of the keys, come
//! together.
//!
//! 1. Multilinear, by plain multiplication: with 128-bit keys k and the id as 64-bit words m,
//!    `h = (k₀ + k₁·length + Σ kᵢ·mᵢ) mod 2¹²⁸`, of which the upper 64 bits are used. Any j of them are the same with
//!    probability 2⁻ʲ (strongly universal).
//! 2. By multiplication without carry, where the CPU has it for whole cache lines: the id in blocks of 63 bytes is
//!    folded to 128 bits ([`Cpu::fold`]), two different ids to the same ones with probability 2⁻⁶⁴, and these go through
//!    the first form. Any j bits are then the same with probability 2⁻ʲ + 2⁻⁶⁴.
//!
//! Which form it is depends on the CPU alone. The place in a table and the identity come from two such hashes with keys of
//! their own.

use std::hash::{BuildHasher, RandomState};

use crate::machine::cpu::{BLOCK, Cpu, CpuKind, Work};

/// Words of an id that the short form takes: 64 bytes.
pub(crate) const SHORT_WORDS: usize = 8;
/// Bytes of an id that the short form takes.
pub(crate) const SHORT_BYTES: usize = SHORT_WORDS * 8;
/// Words behind the short form whose keys are kept: ids of up to 576 bytes.
const LONG_WORDS: usize = 64;

/// An id in words, most significant byte first, zeros behind its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShortId {
    pub(crate) words: [u64; SHORT_WORDS],
    /// Bytes, at most 64.
    pub(crate) len: u8,
}

/// For each length the bits of each word that belong to an id.
static MASKS: [[u64; SHORT_WORDS]; SHORT_BYTES + 1] = masks();

const fn masks() -> [[u64; SHORT_WORDS]; SHORT_BYTES + 1] {
    let mut masks = [[0; SHORT_WORDS]; SHORT_BYTES + 1];
    let mut len = 0;
    while len <= SHORT_BYTES {
        let mut byte = 0;
        while byte < len {
            masks[len][byte / 8] |= 0xff << (56 - 8 * (byte % 8));
            byte += 1;
        }
        len += 1;
    }
    masks
}

impl ShortId {
    /// Reads an id of `len` bytes, at most 64, at the front of `bytes`. What follows the id does not matter; 64 bytes
    /// there spare a copy.
    #[inline(always)]
    pub(crate) fn read(bytes: &[u8], len: u8) -> Self {
        let Some(block) = bytes.first_chunk::<SHORT_BYTES>() else {
            return Self::read_end(bytes, len);
        };
        // The clamp costs nothing and shows the compiler that the table is large enough.
        let masks = &MASKS[usize::from(len).min(SHORT_BYTES)];
        let (chunks, _) = block.as_chunks::<8>();
        let mut words = [0; SHORT_WORDS];
        for (word, (chunk, mask)) in words.iter_mut().zip(chunks.iter().zip(masks)) {
            *word = u64::from_be_bytes(*chunk) & mask;
        }
        Self { words, len }
    }

    #[cold]
    fn read_end(bytes: &[u8], len: u8) -> Self {
        let mut block = [0; SHORT_BYTES];
        let there = bytes.len().min(usize::from(len));
        block[..there].copy_from_slice(&bytes[..there]);
        Self::read(&block, len)
    }

    /// Whether no byte is above 0x7f.
    #[inline(always)]
    fn is_ascii(&self) -> bool {
        self.words.iter().fold(0, |all, word| all | word) & 0x8080_8080_8080_8080 == 0
    }
}

/// The hash of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IdHash {
    /// Decides the place in a table.
    pub(crate) place: u64,
    /// Stands for the id where the hash is the identity; 0 where that was not asked for.
    pub(crate) identity: u64,
}

/// Keys of one of the two hashes.
#[derive(Clone, Debug)]
struct Keys {
    constant: u128,
    length: u128,
    words: [u128; SHORT_WORDS],
    fold: [u64; 8],
}

/// Hashes ids with keys of its own, fresh and random for each hasher.
#[derive(Debug)]
pub(crate) struct IdHasher {
    place: Keys,
    identity: Keys,
    /// Whether the second hash is wanted.
    is_identity: bool,
    cpu: CpuKind,
    source: RandomState,
    /// Keys of the first words behind the short form, both hashes.
    long: Vec<[u128; 2]>,
}

/// Most bytes of an id that are hashed by the keys of the short form, whatever the CPU.
pub(crate) const HASHED_SHORT: usize = BLOCK - 1;

impl IdHasher {
    /// Takes keys from the randomness that the standard library seeds its maps with.
    pub(crate) fn new(is_identity: bool, cpu: CpuKind) -> Self {
        let source = RandomState::new();
        let keys = |hash| Keys {
            constant: key(&source, hash, 0),
            length: key(&source, hash, 1),
            words: std::array::from_fn(|word| key(&source, hash, 2 + word as u64)),
            fold: std::array::from_fn(|word| key(&source, hash, u64::MAX - word as u64) as u64),
        };
        let (place, identity) = (keys(0), keys(1));
        let long = (0..LONG_WORDS).map(|word| long_key(&source, word)).collect();
        Self { place, identity, is_identity, cpu, source, long }
    }

    /// Whether the identity is computed.
    pub(crate) fn is_identity(&self) -> bool {
        self.is_identity
    }

    /// The hash of an id of at most [`HASHED_SHORT`] bytes at the front of `bytes`, and whether all its bytes are below
    /// 0x80. `IDENTITY` must be what [`is_identity`](Self::is_identity) says, and `cpu` of the kind that the hasher was
    /// made for.
    #[inline(always)]
    pub(crate) fn short<const IDENTITY: bool>(
        &self,
        cpu: impl Cpu,
        bytes: &[u8],
        len: usize,
    ) -> (IdHash, bool) {
        if folds(cpu) {
            let id = bytes.get(..len).unwrap_or_default();
            let (sum, is_ascii) = cpu.fold(id, &self.place.fold);
            let place = self.place.two(sum);
            let identity = if IDENTITY { self.identity.two(cpu.fold(id, &self.identity.fold).0) } else { 0 };
            return (IdHash { place, identity }, is_ascii);
        }
        let id = ShortId::read(bytes, len as u8);
        let len = len as u64;
        let place = upper(self.place.sum(&id.words, len));
        let identity = if IDENTITY { upper(self.identity.sum(&id.words, len)) } else { 0 };
        (IdHash { place, identity }, id.is_ascii())
    }

    /// The hash of any id. Equal to [`short`](Self::short) where both can be had.
    pub(crate) fn hash(&self, id: &[u8]) -> IdHash {
        self.cpu.run(Hash { hasher: self, id })
    }

    /// Keys of a word behind the short form, both hashes. Those of ids so long that none was kept are made again.
    fn long(&self, word: usize) -> [u128; 2] {
        self.long.get(word).copied().unwrap_or_else(|| long_key(&self.source, word))
    }

    /// The second form for an id of any length.
    fn folded(&self, cpu: impl Cpu, id: &[u8]) -> [u64; 2] {
        let (first, rest) = id.split_at(id.len().min(HASHED_SHORT));
        let mut sums = [&self.place, &self.identity].map(|keys| cpu.fold(first, &keys.fold).0);
        for (number, block) in rest.chunks(HASHED_SHORT).enumerate() {
            // Four keys of 128 bits are eight of 64.
            for (hash, sum) in sums.iter_mut().enumerate() {
                let keys = std::array::from_fn(|word| {
                    let [lower, upper] =
                        [0, 64].map(|shift| (self.long(number * 4 + word / 2)[hash] >> shift) as u64);
                    if word % 2 == 0 { lower } else { upper }
                });
                let more = cpu.fold(block, &keys).0;
                *sum = [sum[0] ^ more[0], sum[1] ^ more[1]];
            }
        }
        [self.place.two(sums[0]), self.identity.two(sums[1])]
    }

    /// The first form for an id of any length.
    fn multilinear(&self, id: &[u8]) -> [u64; 2] {
        let (head, tail) = id.split_at(id.len().min(SHORT_BYTES));
        let head = ShortId::read(head, head.len() as u8);
        let len = id.len() as u64;
        let mut sums = [self.place.sum(&head.words, len), self.identity.sum(&head.words, len)];
        if !tail.is_empty() {
            for (number, bytes) in tail.chunks(8).enumerate() {
                let keys = self.long(number);
                let mut word = [0; 8];
                word[..bytes.len()].copy_from_slice(bytes);
                let word = u128::from(u64::from_be_bytes(word));
                sums = [0, 1].map(|hash: usize| sums[hash].wrapping_add(keys[hash].wrapping_mul(word)));
            }
        }
        sums.map(upper)
    }
}

/// See [`IdHasher::hash`].
struct Hash<'a> {
    hasher: &'a IdHasher,
    id: &'a [u8],
}

impl Work for Hash<'_> {
    type Output = IdHash;

    #[inline(always)]
    fn run<C: Cpu>(self, cpu: C) -> IdHash {
        let Self { hasher, id } = self;
        let [place, identity] = if C::FOLDS { hasher.folded(cpu, id) } else { hasher.multilinear(id) };
        IdHash { place, identity: if hasher.is_identity { identity } else { 0 } }
    }
}

#[inline(always)]
fn folds<C: Cpu>(_: C) -> bool {
    C::FOLDS
}

impl Keys {
    #[inline(always)]
    fn sum(&self, words: &[u64; SHORT_WORDS], len: u64) -> u128 {
        let length = self.constant.wrapping_add(self.length.wrapping_mul(u128::from(len)));
        words
            .iter()
            .zip(&self.words)
            .fold(length, |sum, (word, key)| sum.wrapping_add(key.wrapping_mul(u128::from(*word))))
    }

    /// The first form for two words.
    #[inline(always)]
    fn two(&self, words: [u64; 2]) -> u64 {
        let [one, other] = words.map(u128::from);
        let sum = self.constant.wrapping_add(self.words[0].wrapping_mul(one));
        upper(sum.wrapping_add(self.words[1].wrapping_mul(other)))
    }
}

#[inline(always)]
fn upper(sum: u128) -> u64 {
    (sum >> 64) as u64
}

/// Keys of a word behind the short form, for both hashes.
fn long_key(source: &RandomState, word: usize) -> [u128; 2] {
    [0, 1].map(|hash| key(source, hash, (2 + SHORT_WORDS + word) as u64))
}

/// A key out of the standard library's keyed hash (SipHash) of its number.
fn key(source: &RandomState, hash: u64, number: u64) -> u128 {
    let half = |half: u64| u128::from(source.hash_one((hash, number, half)));
    half(0) << 64 | half(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_the_bytes_and_nothing_behind_them() {
        let bytes: Vec<u8> = (1..=100).collect();
        for len in 0..=64u8 {
            let padded: Vec<u8> =
                bytes[..usize::from(len)].iter().copied().chain(std::iter::repeat(0)).take(64).collect();
            for there in [usize::from(len), 64, 100] {
                let id = ShortId::read(&bytes[..there.max(usize::from(len))], len);
                let words: Vec<u8> = id.words.iter().flat_map(|word| word.to_be_bytes()).collect();
                assert_eq!(words, padded);
                assert!(id.is_ascii());
            }
        }
        assert!(!ShortId::read(&[0x80; 64], 1).is_ascii());
        assert!(ShortId::read(&[0x80; 64], 0).is_ascii());
    }

    const LENS: [usize; 15] = [0, 1, 7, 8, 9, 40, 62, 63, 64, 65, 72, 126, 127, 300, 98_301];

    fn id_of(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i * 37 + len) as u8).collect()
    }

    /// The first form again, written as the formula says.
    #[test]
    fn the_first_form_follows_its_formula() {
        let hasher = IdHasher::new(true, CpuKind::detect());
        for len in LENS {
            let id = id_of(len);
            let expected = [0u64, 1].map(|hash| {
                let key = |number| key(&hasher.source, hash, number);
                let mut sum = key(0).wrapping_add(key(1).wrapping_mul(len as u128));
                for (number, chunk) in id.chunks(8).enumerate() {
                    let byte = |i: usize| u128::from(chunk.get(i).copied().unwrap_or(0));
                    let word = (0..8).fold(0u128, |word, i| word << 8 | byte(i));
                    sum = sum.wrapping_add(key(2 + number as u64).wrapping_mul(word));
                }
                (sum >> 64) as u64
            });
            assert_eq!(hasher.multilinear(&id), expected, "{len} bytes");
        }
    }

    struct Short<'a>(&'a IdHasher, &'a [u8]);

    impl Work for Short<'_> {
        type Output = ((IdHash, bool), (IdHash, bool));

        #[inline(always)]
        fn run<C: Cpu>(self, cpu: C) -> Self::Output {
            (
                self.0.short::<true>(cpu, self.1, self.1.len()),
                self.0.short::<false>(cpu, self.1, self.1.len()),
            )
        }
    }

    #[test]
    fn short_ids_have_the_hash_that_all_have() {
        for cpu in CpuKind::all() {
            let hasher = IdHasher::new(true, cpu);
            let exact = IdHasher { is_identity: false, ..IdHasher::new(true, cpu) };
            for len in LENS.into_iter().filter(|len| *len <= HASHED_SHORT) {
                let id = id_of(len);
                let hash = hasher.hash(&id);
                let place = IdHash { identity: 0, ..hash };
                let is_ascii = id.is_ascii();
                assert_eq!(
                    cpu.run(Short(&hasher, &id)),
                    ((hash, is_ascii), (place, is_ascii)),
                    "{len} bytes"
                );
                assert_eq!(exact.hash(&id).identity, 0);
            }
        }
    }

    #[test]
    fn ids_that_differ_anywhere_differ_in_both_halves() {
        for cpu in CpuKind::all() {
            let hasher = IdHasher::new(true, cpu);
            let other = IdHasher::new(true, cpu);
            for len in LENS.into_iter().filter(|len| *len < 1000) {
                let id = id_of(len);
                let hash = hasher.hash(&id);
                let differs = |changed: &[u8]| {
                    let changed = hasher.hash(changed);
                    changed.place != hash.place && changed.identity != hash.identity
                };
                for at in 0..len {
                    let mut changed = id.clone();
                    changed[at] ^= 1 << (at % 8);
                    assert!(differs(&changed), "byte {at} of {len}");
                }
                // Zeros count, and so does what ends a block.
                for more in [0, 0x80] {
                    assert!(differs(&[&id[..], &[more]].concat()), "{len} bytes and {more}");
                }
                assert_ne!(other.hash(&id), hash, "keys are fresh");
            }
        }
    }
}
