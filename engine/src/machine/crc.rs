//! CRC-32C by what this CPU has: carry-less multiplication, CRC instructions, or the portable crate.
//!
//! The bytes that a log asks for are 100 to 400 long, of a length that no branch predictor can guess, and already in
//! the cache. There a loop costs one wrong guess per message, which is more than the sum itself. So the fastest
//! kernel has no branch on the length from 64 to 319 bytes: it always works on five blocks of 64, where those that the
//! message does not have read as zero.
//!
//! # Arithmetic
//!
//! Bytes are a polynomial over GF(2) whose highest power is the lowest bit of the first byte, so that a register
//! loaded in little-endian order holds x^127 in bit 0 and x^0 in bit 127. Modulo the polynomial P of CRC-32C:
//!
//! 1. `crc(M) = !(M · x^32 + ones · x^(8n))`, with n bytes and the start value `ones` = 0xFFFFFFFF. The second term
//!    depends on n alone: a table for short messages ([`START`]).
//! 2. Zeroes before a message do not change M. So blocks are counted from its end, and the odd bytes are at its
//!    start, in a block filled up with zeroes on the left.
//! 3. A block may be replaced by any other that is congruent. `H · x^64 + L`, moved D bits to the left, is congruent
//!    to `H · (x^(64 + D) mod P) + L · (x^D mod P)`: two multiplications, of at most 96 bits each ([`fold_by`]).
//! 4. A carry-less product of two reflected registers has its bits one place too low, so each factor is a power less.
//! 5. Everything is moved onto one last 128-bit lane; two `crc32` instructions there give `lane · x^32 mod P`.
#![expect(unsafe_code, reason = "CPU instructions that the build's baseline lacks, and loads from pointers")]

use std::sync::OnceLock;

/// P without its x^32, reflected: bit 31 is x^0.
const POLYNOMIAL: u32 = 0x82F6_3B78;

/// CRC-32C of `bytes` by the fastest kernel of this CPU, as the batch header's field has it: start value and result
/// inverted.
///
/// Costs one atomic load and an indirect call over the sum; a hot loop holds a [`Crc`] instead.
#[inline]
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    static KERNEL: OnceLock<Crc> = OnceLock::new();
    KERNEL.get_or_init(Crc::detect).of(bytes)
}

/// A way of computing CRC-32C that this CPU can run. All give the same sums.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crc {
    /// Invariant: this CPU has every feature that the function enables.
    kernel: unsafe fn(&[u8]) -> u32,
    name: &'static str,
}

impl Crc {
    /// The fastest kernel of this CPU. Looks at the CPU's features, which the standard library remembers.
    pub(crate) fn detect() -> Self {
        Self::all()[0]
    }

    /// Every kernel that this CPU can run, the fastest first and the portable one last.
    pub(crate) fn all() -> Vec<Self> {
        let mut kernels = Vec::with_capacity(4);
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("vpclmulqdq")
                && is_x86_feature_detected!("sse4.2")
                && is_x86_feature_detected!("bmi2")
            {
                kernels.push(Self { kernel: x86::avx512, name: "avx512+vpclmulqdq" });
            }
            if is_x86_feature_detected!("sse4.2") {
                kernels.push(Self { kernel: x86::sse42, name: "sse4.2" });
            }
        }
        #[cfg(target_arch = "aarch64")]
        if std::arch::is_aarch64_feature_detected!("crc") {
            kernels.push(Self { kernel: arm::crc, name: "aarch64 crc" });
        }
        kernels.push(Self::portable());
        kernels
    }

    /// The crc32c crate, which chooses for itself and judges the other kernels.
    pub(crate) fn portable() -> Self {
        Self { kernel: crc32c::crc32c, name: "crc32c crate" }
    }

    /// CRC-32C of `bytes`: one indirect call, no look at the CPU.
    #[inline]
    pub(crate) fn of(self, bytes: &[u8]) -> u32 {
        // SAFETY: all that a kernel asks for is a CPU that has its features. `all` looked before it built this value,
        // and the only other function that builds one, `portable`, has a kernel that needs none.
        unsafe { (self.kernel)(bytes) }
    }

    /// The CPU features used, for people.
    pub(crate) fn name(self) -> &'static str {
        self.name
    }
}

/// `a · x mod P`.
const fn times_x(a: u32) -> u32 {
    (a >> 1) ^ (POLYNOMIAL * (a & 1))
}

/// `a / x mod P`: P has the term 1, so x has an inverse.
const fn over_x(a: u32) -> u32 {
    if a >> 31 == 1 { ((a ^ POLYNOMIAL) << 1) | 1 } else { a << 1 }
}

/// `a · b mod P`.
const fn times(a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    let mut power = 0;
    while power < 32 {
        product ^= b * ((a >> (31 - power)) & 1);
        b = times_x(b);
        power += 1;
    }
    product
}

/// `x^n mod P`, by squaring.
const fn x_to(n: u32) -> u32 {
    let (mut result, mut square, mut left) = (1 << 31, 1 << 30, n);
    while left > 0 {
        if left & 1 == 1 {
            result = times(result, square);
        }
        square = times(square, square);
        left >>= 1;
    }
    result
}

/// The factors that move a 128-bit lane `bits` to the left: for its first and its last eight bytes, each as the upper
/// half of a reflected 64-bit register, and a power less (see 3 and 4 above).
const fn fold_by(bits: u32) -> [u64; 2] {
    let last = over_x(x_to(bits));
    [(times(last, x_to(64)) as u64) << 32, (last as u64) << 32]
}

/// Most bytes that the kernel without branches takes.
const SHORT_MAX: usize = 319;

/// `START[n]` is `ones · x^(8n - 32) mod P`: what the start value adds to the *block* that ends after n bytes; and
/// `START[n + 4]` what it adds to the *sum* after n bytes.
static START: [u32; SHORT_MAX + 5] = {
    let mut table = [0; SHORT_MAX + 5];
    let mut value = u32::MAX;
    let mut step = 0;
    while step < 32 {
        value = over_x(value);
        step += 1;
    }
    let mut n = 0;
    while n < table.len() {
        table[n] = value;
        step = 0;
        while step < 8 {
            value = times_x(value);
            step += 1;
        }
        n += 1;
    }
    table
};

#[cfg(target_arch = "x86_64")]
pub(super) mod x86 {
    use std::arch::x86_64::*;

    use super::{SHORT_MAX, START, fold_by};

    /// Factors for the four lanes of a block.
    #[repr(align(64))]
    struct Block([[u64; 2]; 4]);

    /// `LAST[k]` moves every lane of the block that has k blocks behind it onto the very last lane. Even that lane is
    /// multiplied (by x^0), so that all are treated alike.
    static LAST: [Block; 4] = {
        let mut blocks = [const { Block([[0; 2]; 4]) }; 4];
        let mut k = 0;
        while k < 16 {
            blocks[k / 4].0[k % 4] = fold_by(128 * (k as u32 / 4 * 4 + 3 - k as u32 % 4));
            k += 1;
        }
        blocks
    };

    /// Folds 512 bits at a time, blocks counted from the end of the message.
    #[target_feature(enable = "avx512f,avx512bw,vpclmulqdq,sse4.2,bmi2")]
    pub(crate) fn avx512(bytes: &[u8]) -> u32 {
        let (start, length) = (bytes.as_ptr(), bytes.len());
        // SAFETY: `length` bytes from `start` are the slice's, and readable.
        unsafe {
            if length <= SHORT_MAX {
                if length >= 64 { short(start, length) } else { tiny(start, length) }
            } else {
                long(start, length)
            }
        }
    }

    /// The first `odd` < 64 bytes from `start`, at the end of a block that begins with zeroes.
    ///
    /// # Safety
    /// `odd` bytes from `start` are readable.
    #[target_feature(enable = "avx512f,avx512bw,bmi2")]
    unsafe fn head(start: *const u8, odd: usize) -> __m512i {
        let present = !(u64::MAX >> odd);
        // SAFETY: a masked load touches the bytes whose bits are set, no others: the last `odd` of the 64 that end
        // at `start + odd`, which the caller vouches for. The address is computed with wrapping, since it may lie
        // before the allocation.
        unsafe { _mm512_maskz_loadu_epi8(present, start.wrapping_add(odd).wrapping_sub(64).cast()) }
    }

    /// # Safety
    /// `length` < 64 bytes from `start` are readable.
    #[target_feature(enable = "avx512f,avx512bw,vpclmulqdq,sse4.2,bmi2")]
    unsafe fn tiny(start: *const u8, length: usize) -> u32 {
        // SAFETY: the caller's promise, passed on.
        let block = unsafe { head(start, length) };
        !(finish(multiply(block, &LAST[0])) as u32 ^ START[length + 4])
    }

    /// Four blocks, the first of them partly there, are multiplied. The last 64 bytes go through the `crc32`
    /// instruction, which has a unit of its own: the multiplier is what this waits for.
    ///
    /// # Safety
    /// `length` bytes from `start` are readable, 64 to [`SHORT_MAX`].
    #[target_feature(enable = "avx512f,avx512bw,vpclmulqdq,sse4.2,bmi2")]
    unsafe fn short(start: *const u8, length: usize) -> u32 {
        let (whole, odd) = (length / 64 - 1, length % 64);
        // Eight bits for each of three blocks, the last block lowest: set where the message has the block.
        let present = (1_u32 << (8 * whole)) - 1;
        // SAFETY: the last 64 bytes exist, since length >= 64, and `head` is told that odd <= length. A block's load
        // touches all its bytes (mask 0xFF) where `whole` says that the message has that block before the last 64
        // bytes, and none (mask 0) where not; addresses wrap, since they may lie before the allocation.
        let (odd, a, b, c, tail) = unsafe {
            let tail = start.add(length - 64);
            (
                head(start, odd),
                _mm512_maskz_loadu_epi64((present >> 16) as u8, tail.wrapping_sub(192).cast()),
                _mm512_maskz_loadu_epi64((present >> 8) as u8, tail.wrapping_sub(128).cast()),
                _mm512_maskz_loadu_epi64(present as u8, tail.wrapping_sub(64).cast()),
                tail.cast::<[[u8; 8]; 8]>().read(),
            )
        };
        let sum = add(multiply(odd, &LAST[whole]), multiply(a, &LAST[2]), multiply(b, &LAST[1]));
        let start_value = u64::from(START[length - 60]);
        let sum = finish(_mm512_xor_si512(sum, multiply(c, &LAST[0]))) ^ start_value;
        let sum = tail.iter().fold(sum, |sum, word| _mm_crc32_u64(sum, super::word(*word)));
        !(sum as u32)
    }

    /// # Safety
    /// `length` >= 256 bytes from `start` are readable.
    #[target_feature(enable = "avx512f,avx512bw,vpclmulqdq,sse4.2,bmi2")]
    unsafe fn long(start: *const u8, length: usize) -> u32 {
        const BY_512: [u64; 2] = fold_by(512);
        const BY_2048: [u64; 2] = fold_by(2048);
        let [by_512, by_2048] = [broadcast(BY_512), broadcast(BY_2048)];
        // SAFETY: `next` reads the 64 bytes at `at`. First the odd bytes are read, then the whole blocks in order, of
        // which there are length / 64 >= 4: `single` of them, the remainder by four, so that what is left is a
        // multiple of four and not zero; four; and four per turn of the loop, while `at` has not reached `end`.
        unsafe {
            let odd = length % 64;
            let end = start.add(length);
            let start_value = _mm512_maskz_set1_epi32(1 << 15, START[odd].cast_signed());
            let mut first = _mm512_xor_si512(head(start, odd), start_value);
            let mut at = start.add(odd);
            let next = |at: *const u8| _mm512_loadu_si512(at.cast());
            let single = length / 64 % 4;
            for _ in 0..single {
                first = fold(first, by_512, next(at));
                at = at.add(64);
            }
            let mut a = fold(first, by_512, next(at));
            let (mut b, mut c, mut d) = (next(at.add(64)), next(at.add(128)), next(at.add(192)));
            at = at.add(256);
            while at < end {
                a = fold(a, by_2048, next(at));
                b = fold(b, by_2048, next(at.add(64)));
                c = fold(c, by_2048, next(at.add(128)));
                d = fold(d, by_2048, next(at.add(192)));
                at = at.add(256);
            }
            let sum = add(multiply(a, &LAST[3]), multiply(b, &LAST[2]), multiply(c, &LAST[1]));
            !(finish(_mm512_xor_si512(sum, multiply(d, &LAST[0]))) as u32)
        }
    }

    #[target_feature(enable = "avx512f")]
    fn broadcast(factors: [u64; 2]) -> __m512i {
        let [first, last] = factors.map(u64::cast_signed);
        _mm512_set_epi64(last, first, last, first, last, first, last, first)
    }

    #[target_feature(enable = "avx512f")]
    fn add(a: __m512i, b: __m512i, c: __m512i) -> __m512i {
        _mm512_ternarylogic_epi64::<0x96>(a, b, c)
    }

    /// Moves each lane by its own factors.
    #[target_feature(enable = "avx512f,vpclmulqdq")]
    fn multiply(block: __m512i, factors: &Block) -> __m512i {
        // SAFETY: a `Block` is 64 bytes, aligned to 64.
        let factors = unsafe { _mm512_load_si512((&raw const *factors).cast()) };
        _mm512_xor_si512(
            _mm512_clmulepi64_epi128::<0x00>(block, factors),
            _mm512_clmulepi64_epi128::<0x11>(block, factors),
        )
    }

    #[target_feature(enable = "avx512f,vpclmulqdq")]
    fn fold(block: __m512i, factors: __m512i, next: __m512i) -> __m512i {
        add(
            _mm512_clmulepi64_epi128::<0x00>(block, factors),
            _mm512_clmulepi64_epi128::<0x11>(block, factors),
            next,
        )
    }

    /// The sum of four lanes that all stand for the last one, times x^32, mod P; in the lower half.
    #[target_feature(enable = "avx512f,sse4.2")]
    fn finish(lanes: __m512i) -> u64 {
        let half = _mm256_xor_si256(_mm512_castsi512_si256(lanes), _mm512_extracti64x4_epi64::<1>(lanes));
        let lane = _mm_xor_si128(_mm256_castsi256_si128(half), _mm256_extracti128_si256::<1>(half));
        let first = _mm_cvtsi128_si64(lane).cast_unsigned();
        let last = _mm_extract_epi64::<1>(lane).cast_unsigned();
        _mm_crc32_u64(_mm_crc32_u64(0, first), last)
    }

    /// Eight bytes per instruction; from where one chain of them is too slow, the crate.
    #[target_feature(enable = "sse4.2")]
    pub(super) fn sse42(bytes: &[u8]) -> u32 {
        if bytes.len() >= super::INTERLEAVED_MIN {
            return crc32c::crc32c(bytes);
        }
        let Some((odd, words)) = super::odd_first(bytes) else {
            return !bytes.iter().fold(u32::MAX, |sum, byte| _mm_crc32_u8(sum, *byte));
        };
        // The instruction zeroes the upper half.
        let sum = _mm_crc32_u64(0, odd);
        !(words.iter().fold(sum, |sum, word| _mm_crc32_u64(sum, super::word(*word))) as u32)
    }
}

#[cfg(target_arch = "aarch64")]
mod arm {
    use std::arch::aarch64::{__crc32cb, __crc32cd};

    /// Eight bytes per instruction; from where one chain of them is too slow, the crate.
    #[target_feature(enable = "crc")]
    pub(super) fn crc(bytes: &[u8]) -> u32 {
        if bytes.len() >= super::INTERLEAVED_MIN {
            return crc32c::crc32c(bytes);
        }
        let Some((odd, words)) = super::odd_first(bytes) else {
            return !bytes.iter().fold(u32::MAX, |sum, byte| __crc32cb(sum, *byte));
        };
        let sum = __crc32cd(0, odd);
        !words.iter().fold(sum, |sum, word| __crc32cd(sum, super::word(*word)))
    }
}

/// Bytes from which several interleaved sums beat one chain of instructions.
const INTERLEAVED_MIN: usize = 512;

/// The bytes before the last whole number of words, as a word that begins with zeroes and has the start value in it, and
/// those words. None where there are not eight bytes.
#[inline]
fn odd_first(bytes: &[u8]) -> Option<(u64, &[[u8; 8]])> {
    let (odd, words) = bytes.as_rchunks::<8>();
    let moved = word(*bytes.first_chunk()?) << 1 << (63 - 8 * odd.len());
    Some((moved ^ (u64::from(START[odd.len()]) << 32), words))
}

/// Eight bytes as the CRC instructions take them: the first in the lowest bits.
#[inline]
#[expect(clippy::little_endian_bytes, reason = "the instructions' order, not a field of a log")]
fn word(bytes: [u8; 8]) -> u64 {
    u64::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes without a pattern, the same in every run.
    fn noise(length: usize) -> Vec<u8> {
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        (0..length)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state.to_be_bytes()[0]
            })
            .collect()
    }

    /// Compares all kernels on `length` bytes that lie `shift` bytes behind a multiple of 64.
    fn compare(noise: &[u8], shift: usize, length: usize) {
        let start = noise.as_ptr().align_offset(64) + shift;
        let bytes = &noise[start..start + length];
        let expected = ::crc32c::crc32c(bytes);
        for kernel in Crc::all() {
            assert_eq!(kernel.of(bytes), expected, "{}: {length} bytes, shifted by {shift}", kernel.name());
        }
        assert_eq!(crc32c(bytes), expected);
    }

    #[test]
    fn a_known_answer() {
        // RFC 3720, B.4.
        for kernel in Crc::all() {
            assert_eq!(kernel.of(&[0; 32]), 0x8A91_36AA, "{}", kernel.name());
            assert_eq!(kernel.of(&[0xFF; 32]), 0x62A8_AB43, "{}", kernel.name());
            assert_eq!(kernel.of(b"123456789"), 0xE306_9283, "{}", kernel.name());
            assert_eq!(kernel.of(&[]), 0, "{}", kernel.name());
        }
    }

    #[test]
    fn every_length_equals_the_crate() {
        let length_max = if cfg!(miri) { 100 } else { 4096 };
        let noise = noise(length_max + 128);
        for length in 0..=length_max {
            for turn in 0..4 {
                compare(&noise, (length * 5 + turn * 17) % 64, length);
            }
        }
    }

    #[test]
    fn every_alignment_equals_the_crate() {
        let lengths: &[usize] =
            if cfg!(miri) { &[9, 70] } else { &[3, 15, 63, 64, 65, 127, 200, 319, 320, 999] };
        let noise = noise(1200);
        for shift in 0..64 {
            for length in lengths {
                compare(&noise, shift, *length);
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "megabytes")]
    fn long_inputs_equal_the_crate() {
        let noise = noise((3 << 20) + 256);
        for length in [65_535, 65_536, 65_537, (1 << 20) - 1, 1 << 20, (1 << 20) + 63, 3 << 20] {
            compare(&noise, length % 64, length);
        }
    }

    /// A load beyond either end of the slice would meet a page that cannot be read.
    #[test]
    #[cfg_attr(miri, ignore = "no guard pages there")]
    fn nothing_is_read_outside_of_the_slice() {
        use nix::libc::{MAP_ANONYMOUS, MAP_FAILED, MAP_PRIVATE, PROT_NONE, PROT_READ, PROT_WRITE};
        // A multiple of every page size, so that the first and the last are whole pages.
        const PAGE: usize = 64 << 10;
        // SAFETY: a new mapping at an address of the kernel's choice, of which the middle is made accessible.
        // It stays for the life of the process, so the slice is valid.
        let middle = unsafe {
            let flags = MAP_PRIVATE | MAP_ANONYMOUS;
            let pages = nix::libc::mmap(std::ptr::null_mut(), 3 * PAGE, PROT_NONE, flags, -1, 0);
            assert_ne!(pages, MAP_FAILED);
            let middle = pages.cast::<u8>().add(PAGE);
            assert_eq!(nix::libc::mprotect(middle.cast(), PAGE, PROT_READ | PROT_WRITE), 0);
            std::slice::from_raw_parts_mut(middle, PAGE)
        };
        middle.copy_from_slice(&noise(PAGE));
        for length in 0..1500 {
            for bytes in [&middle[..length], &middle[PAGE - length..]] {
                let expected = ::crc32c::crc32c(bytes);
                for kernel in Crc::all() {
                    assert_eq!(kernel.of(bytes), expected, "{}: {length} bytes", kernel.name());
                }
            }
        }
    }
}
