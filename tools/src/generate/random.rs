//! Chance that is the same everywhere and for ever: files must not change with the version of a crate.

/// A generator of 64-bit numbers (Steele, Lea and Flood's SplitMix64).
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

/// Step of the generator: 2^64 divided by the golden ratio, made odd.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

impl Random {
    /// The sequence number `stream` of a seed.
    pub(super) fn new(seed: u64, stream: u64) -> Self {
        Self(mix(seed ^ mix(stream)))
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0)
    }

    /// A number below `bound`, which is not 0.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        scale(self.next(), bound)
    }
}

/// Brings a random number below `bound`, by its upper bits.
pub(super) fn scale(random: u64, bound: usize) -> usize {
    let product = u128::from(random) * bound as u128;
    usize::try_from(product >> 64).expect("below a usize")
}

/// A one-to-one map of 64-bit numbers that leaves no trace of their order.
pub(super) fn mix(number: u64) -> u64 {
    let mut mixed = number;
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// The same for 32-bit numbers: each step can be undone.
pub(super) fn mix_32(number: u32) -> u32 {
    let mut mixed = number;
    mixed = (mixed ^ mixed >> 16).wrapping_mul(0x7feb_352d);
    mixed = (mixed ^ mixed >> 15).wrapping_mul(0x846c_a68b);
    mixed ^ mixed >> 16
}

/// A probability from 0 to 1, both exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Chance(u64);

impl Chance {
    const ONE: f64 = (1u64 << 53) as f64;

    /// A share that was checked to lie within 0 and 1.
    pub(super) fn new(share: f64) -> Self {
        // In range by the check; what is cut off is below 2^-53.
        Self((share * Self::ONE) as u64)
    }

    pub(super) fn is_never(self) -> bool {
        self.0 == 0
    }

    /// Whether it happens, decided by 64 random bits.
    pub(super) fn happens(self, random: u64) -> bool {
        random >> 11 < self.0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn chances_are_exact_at_both_ends() {
        for random in [0, 1, u64::MAX / 2, u64::MAX] {
            assert!(!Chance::new(0.0).happens(random));
            assert!(Chance::new(1.0).happens(random));
        }
        let mut random = Random::new(1, 2);
        let happened = (0..100_000).filter(|_| Chance::new(0.25).happens(random.next())).count();
        assert!((24_000..26_000).contains(&happened), "{happened}");
    }

    #[test]
    fn the_sequence_is_splitmix_and_never_changes() {
        // The first numbers that other implementations give for this state.
        let mut known = Random(1_234_567);
        assert_eq!([known.next(), known.next()], [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
        let mut random = Random::new(7, 0);
        let first = random.next();
        assert_eq!(first, 9_672_475_392_221_035_855, "files of old seeds would change");
        assert_ne!(first, Random::new(7, 1).next());
        assert_ne!(first, Random::new(8, 0).next());
        assert!((0..1000).all(|_| random.below(3) < 3));
    }

    #[test]
    fn mixing_loses_nothing() {
        assert_eq!((0..100_000).map(mix).collect::<HashSet<_>>().len(), 100_000);
        assert_eq!((0..100_000).map(mix_32).collect::<HashSet<_>>().len(), 100_000);
    }
}
