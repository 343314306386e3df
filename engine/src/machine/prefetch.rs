//! Hints that memory will be read soon. They change nothing but the time a later read takes.
#![cfg_attr(not(miri), expect(unsafe_code, reason = "the instructions are intrinsics that take pointers"))]

/// Asks for the cache line that holds `place`, for reading or writing soon.
#[inline(always)]
pub(crate) fn prefetch<T>(place: &T) {
    hint(std::ptr::from_ref(place).cast());
}

/// Asks for the four cache lines from byte `ahead` on, if `bytes` goes on for so long.
#[inline(always)]
pub(crate) fn prefetch_ahead(bytes: &[u8], ahead: usize) {
    if let Some(lines) = bytes.get(ahead..ahead + 256) {
        for line in 0..4 {
            hint(&lines[64 * line]);
        }
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
fn hint(place: *const u8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: prefetching reads nothing the program can see and does not fault, whatever the address.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(place.cast()) };
}

#[cfg(all(target_arch = "aarch64", not(miri)))]
#[inline(always)]
fn hint(place: *const u8) {
    // SAFETY: as above; the instruction touches no register and no memory that the program can see.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{0}]", in(reg) place, options(nostack, preserves_flags, readonly));
    }
}

#[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
#[inline(always)]
fn hint(_: *const u8) {}
