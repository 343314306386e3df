//! Loops that are compiled several times, for what each kind of CPU has.
//!
//! A release is built for any CPU of its architecture. The loops that a load spends its time in are worth more: they
//! are written once, as [`Work`], and compiled again with each set of instructions that makes a difference; which one
//! runs is decided when the process runs.
#![cfg_attr(
    target_arch = "x86_64",
    expect(
        unsafe_code,
        reason = "code for instructions that the build's baseline lacks may be called only where they are"
    )
)]

#[cfg(target_arch = "x86_64")]
use super::crc;
use super::crc::Crc;

/// Something to do on a CPU, in a generic function that must be `#[inline(always)]`, and all that it calls in its
/// inner loop too: only what is inlined is compiled for that CPU.
pub(crate) trait Work {
    type Output;

    fn run<C: Cpu>(self, cpu: C) -> Self::Output;
}

/// Bytes of a block: one cache line, one vector.
pub(crate) const BLOCK: usize = 64;

/// A CPU with what it has: a value of this type proves that it is there.
pub(crate) trait Cpu: Copy {
    /// Whether [`fold`](Self::fold) is done by instructions made for it.
    const FOLDS: bool;

    /// CRC-32C of `bytes`.
    fn crc32c(self, bytes: &[u8]) -> u32;

    /// Whether `bytes` has the bits of `expected` where `mask` is set.
    fn is_like(self, bytes: &[u8; BLOCK], expected: &[u8; BLOCK], mask: &[u8; BLOCK]) -> bool;

    /// Whether two byte strings begin with the same `len` bytes. No branch per byte up to 64 of them.
    fn is_same_start(self, one: &[u8], other: &[u8], len: usize) -> bool;

    /// At most 63 bytes, with a byte 0x80 and then zeros behind them up to 64, as eight numbers of 64 bits, lowest byte
    /// first; each has the key at its place added without carry, then the first is multiplied by the second without
    /// carry, the third by the fourth and so on, and the four products are added without carry: lower and upper half.
    /// And whether all bytes are below 0x80.
    ///
    /// For keys that are random this tells any two strings apart but for a chance of 2⁻⁶⁴: where they differ, the
    /// difference of one factor is multiplied by the key of the other (the family CLNH of universal hashes).
    fn fold(self, bytes: &[u8], keys: &[u64; 8]) -> ([u64; 2], bool);
}

/// The kinds that loops are compiled for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CpuKind {
    /// x86-64 with 512-bit vectors, carry-less multiplication of them, and bit manipulation.
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
    /// The build's baseline, with the best checksum there is.
    Baseline(Baseline),
}

/// See [`CpuKind::Avx512`]. Made by [`CpuKind::all`] alone.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx512(());

/// See [`CpuKind::Baseline`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Baseline(Crc);

#[cfg(target_arch = "x86_64")]
impl Cpu for Avx512 {
    const FOLDS: bool = true;

    // SAFETY, of every call here: a value of this type is made only where all features of `run_avx512` were found, and
    // those of the functions are among them.

    #[inline(always)]
    fn crc32c(self, bytes: &[u8]) -> u32 {
        // SAFETY: see above.
        unsafe { crc::x86::avx512(bytes) }
    }

    #[inline(always)]
    fn is_like(self, bytes: &[u8; BLOCK], expected: &[u8; BLOCK], mask: &[u8; BLOCK]) -> bool {
        // SAFETY: see above.
        unsafe { avx512::is_like(bytes, expected, mask) }
    }

    #[inline(always)]
    fn is_same_start(self, one: &[u8], other: &[u8], len: usize) -> bool {
        if len <= BLOCK && len <= one.len() && len <= other.len() {
            // SAFETY: see above; both have `len` bytes.
            unsafe { avx512::is_same(one.as_ptr(), other.as_ptr(), len) }
        } else {
            is_same_start(one, other, len)
        }
    }

    #[inline(always)]
    fn fold(self, bytes: &[u8], keys: &[u64; 8]) -> ([u64; 2], bool) {
        debug_assert!(bytes.len() < BLOCK, "a byte of the block ends the string");
        // SAFETY: see above.
        unsafe { avx512::fold(bytes, keys) }
    }
}

impl Cpu for Baseline {
    const FOLDS: bool = false;

    #[inline(always)]
    fn crc32c(self, bytes: &[u8]) -> u32 {
        self.0.of(bytes)
    }

    #[inline(always)]
    fn is_like(self, bytes: &[u8; BLOCK], expected: &[u8; BLOCK], mask: &[u8; BLOCK]) -> bool {
        let word = |bytes: &[u8; BLOCK], number: usize| u64::from_be_bytes(bytes.as_chunks().0[number]);
        let odd = |number| (word(bytes, number) ^ word(expected, number)) & word(mask, number);
        (0..BLOCK / 8).fold(0, |all, number| all | odd(number)) == 0
    }

    #[inline(always)]
    fn is_same_start(self, one: &[u8], other: &[u8], len: usize) -> bool {
        is_same_start(one, other, len)
    }

    fn fold(self, bytes: &[u8], keys: &[u64; 8]) -> ([u64; 2], bool) {
        let mut block = [0; BLOCK];
        block[..bytes.len()].copy_from_slice(bytes);
        block[bytes.len()] = 0x80;
        let factor = |number: usize| {
            let bytes: [u8; 8] = block.as_chunks().0[number];
            u64::from_be_bytes(bytes).swap_bytes() ^ keys[number]
        };
        let product = (0..4).fold(0, |sum, pair| sum ^ carry_less(factor(2 * pair), factor(2 * pair + 1)));
        ([product as u64, (product >> 64) as u64], bytes.is_ascii())
    }
}

#[inline(always)]
fn is_same_start(one: &[u8], other: &[u8], len: usize) -> bool {
    one.get(..len).zip(other.get(..len)).is_some_and(|(one, other)| one == other)
}

/// The product of two polynomials over GF(2).
fn carry_less(a: u64, b: u64) -> u128 {
    (0..64).filter(|bit| b >> bit & 1 == 1).fold(0, |sum, bit| sum ^ u128::from(a) << bit)
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use std::arch::x86_64::*;

    use super::BLOCK;

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    pub(super) fn is_like(bytes: &[u8; BLOCK], expected: &[u8; BLOCK], mask: &[u8; BLOCK]) -> bool {
        // SAFETY: 64 bytes are read from arrays of 64.
        let [bytes, expected, mask] =
            [bytes, expected, mask].map(|block| unsafe { _mm512_loadu_si512(block.as_ptr().cast()) });
        _mm512_test_epi64_mask(_mm512_xor_si512(bytes, expected), mask) == 0
    }

    /// # Safety
    /// `len` bytes, at most 64, can be read from both.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,bmi2")]
    pub(super) unsafe fn is_same(one: *const u8, other: *const u8, len: usize) -> bool {
        let present = first(len);
        // SAFETY: a masked load touches the bytes whose bits are set, no others: the first `len`, which can be read.
        let [one, other] =
            [one, other].map(|start| unsafe { _mm512_maskz_loadu_epi8(present, start.cast()) });
        _mm512_cmpneq_epu8_mask(one, other) == 0
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,vpclmulqdq,bmi2")]
    pub(super) fn fold(bytes: &[u8], keys: &[u64; 8]) -> ([u64; 2], bool) {
        let present = first(bytes.len());
        // SAFETY: the masked load touches the bytes of the slice and no others; the keys are 64 bytes.
        let (block, keys) = unsafe {
            (
                _mm512_maskz_loadu_epi8(present, bytes.as_ptr().cast()),
                _mm512_loadu_si512(keys.as_ptr().cast()),
            )
        };
        let is_ascii = _mm512_movepi8_mask(block) == 0;
        // The bit behind the last byte.
        let block = _mm512_mask_set1_epi8(block, present.wrapping_add(1), i8::MIN);
        let factors = _mm512_xor_si512(block, keys);
        let products = _mm512_clmulepi64_epi128::<0x01>(factors, factors);
        let half =
            _mm256_xor_si256(_mm512_castsi512_si256(products), _mm512_extracti64x4_epi64::<1>(products));
        let sum = _mm_xor_si128(_mm256_castsi256_si128(half), _mm256_extracti128_si256::<1>(half));
        let halves = [_mm_cvtsi128_si64(sum), _mm_extract_epi64::<1>(sum)].map(i64::cast_unsigned);
        (halves, is_ascii)
    }

    /// A bit for each of the first `len` bytes of a block.
    #[inline]
    #[target_feature(enable = "bmi2")]
    fn first(len: usize) -> u64 {
        _bzhi_u64(u64::MAX, len as u32)
    }
}

impl CpuKind {
    /// What this CPU is best served with.
    pub(crate) fn detect() -> Self {
        Self::all()[0]
    }

    /// Every kind that this CPU can run as, the best first.
    pub(crate) fn all() -> Vec<Self> {
        let mut kinds = Vec::new();
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("vpclmulqdq")
            && is_x86_feature_detected!("sse4.2")
            && is_x86_feature_detected!("popcnt")
            && is_x86_feature_detected!("lzcnt")
            && is_x86_feature_detected!("movbe")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
        {
            kinds.push(Self::Avx512(Avx512(())));
        }
        kinds.extend(Crc::all().into_iter().map(|crc| Self::Baseline(Baseline(crc))));
        kinds
    }

    /// The instructions that make the difference, for people.
    pub(crate) fn name(self) -> &'static str {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(_) => "avx512+vpclmulqdq",
            Self::Baseline(Baseline(crc)) => crc.name(),
        }
    }

    /// Does something in the form for this kind.
    #[inline]
    pub(crate) fn run<W: Work>(self, work: W) -> W::Output {
        match self {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `all` looked for every feature before it made this value.
            Self::Avx512(cpu) => unsafe { run_avx512(cpu, work) },
            Self::Baseline(cpu) => work.run(cpu),
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512vl,vpclmulqdq,sse4.2,popcnt,lzcnt,movbe,bmi1,bmi2"
)]
fn run_avx512<W: Work>(cpu: Avx512, work: W) -> W::Output {
    work.run(cpu)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every function of a CPU's kind, on the same input.
    struct All<'a> {
        one: &'a [u8; BLOCK],
        other: &'a [u8; BLOCK],
        len: usize,
        keys: &'a [u64; 8],
    }

    impl Work for All<'_> {
        type Output = (bool, bool, bool, ([u64; 2], bool), u32);

        #[inline(always)]
        fn run<C: Cpu>(self, cpu: C) -> Self::Output {
            let Self { one, other, len, keys } = self;
            let mut mask = [0; BLOCK];
            mask[..len].fill(0xff);
            (
                cpu.is_like(one, other, &mask),
                cpu.is_same_start(one, other, len),
                cpu.is_same_start(&one[..len], &other[..len], len),
                cpu.fold(&one[..len.min(BLOCK - 1)], keys),
                cpu.crc32c(&one[..len]),
            )
        }
    }

    #[test]
    fn every_kind_says_the_same() {
        let keys = std::array::from_fn(|key| 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(key as u64 + 1));
        let mut one = [0u8; BLOCK];
        for (at, byte) in one.iter_mut().enumerate() {
            *byte = (at * 29 + 3) as u8 & 0x7f;
        }
        let mut folds = std::collections::BTreeSet::new();
        for len in 0..=BLOCK {
            for changed in [None, Some(0), len.checked_sub(1), Some(len).filter(|at| *at < BLOCK), Some(63)] {
                let mut other = one;
                if let Some(at) = changed {
                    other[at] ^= 0x80;
                }
                let is_same = changed.is_none_or(|at| at >= len);
                for (one, other) in [(&one, &other), (&other, &one)] {
                    let results: Vec<_> = CpuKind::all()
                        .into_iter()
                        .map(|kind| kind.run(All { one, other, len, keys: &keys }))
                        .collect();
                    assert_eq!(
                        (results[0].0, results[0].1, results[0].2),
                        (is_same, is_same, is_same),
                        "{len}"
                    );
                    assert!(results.iter().all(|result| *result == results[0]), "{len}: {results:x?}");
                    assert_eq!(results[0].3.1, one[..len.min(BLOCK - 1)].is_ascii());
                    folds.insert((one[..len.min(BLOCK - 1)].to_vec(), results[0].3.0));
                }
            }
        }
        let strings: std::collections::BTreeSet<_> = folds.iter().map(|(string, _)| string).collect();
        let sums: std::collections::BTreeSet<_> = folds.iter().map(|(_, sum)| sum).collect();
        assert_eq!(
            (folds.len(), folds.len()),
            (strings.len(), sums.len()),
            "equal strings alone have equal sums"
        );
    }

    #[test]
    fn products_without_carry() {
        assert_eq!(carry_less(0b101, 0b11), 0b1111);
        assert_eq!(carry_less(u64::MAX, 1 << 63), u128::from(u64::MAX) << 63);
    }
}
