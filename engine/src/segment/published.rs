//! An array that one thread appends to while any number of threads read, without a lock on either side.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A place for a value that is stored once and read by other threads afterwards.
pub(super) trait Slot: Default {
    /// What it holds.
    type Value: Copy;

    fn store(&self, value: Self::Value);

    fn load(&self) -> Self::Value;
}

/// Values in the order in which they were pushed. Memory is taken in blocks, each twice as large as the one before, and
/// never moved.
#[derive(Debug)]
pub(super) struct Published<S> {
    blocks: [OnceLock<Box<[S]>>; BLOCKS],
    /// Raised after the value below it was stored.
    len: AtomicUsize,
}

/// Slots of the first block.
const FIRST_BLOCK: usize = 64;
/// Enough for 2^30 values.
const BLOCKS: usize = 24;

impl<S: Slot> Default for Published<S> {
    fn default() -> Self {
        Self { blocks: [const { OnceLock::new() }; BLOCKS], len: AtomicUsize::new(0) }
    }
}

impl<S: Slot> Published<S> {
    pub(super) fn len(&self) -> usize {
        self.len.load(Ordering::Acquire)
    }

    /// Appends a value. For one thread at a time.
    pub(super) fn push(&self, value: S::Value) {
        let index = self.len.load(Ordering::Relaxed);
        let (block, at) = place(index);
        let block =
            self.blocks[block].get_or_init(|| (0..FIRST_BLOCK << block).map(|_| S::default()).collect());
        block[at].store(value);
        self.len.store(index + 1, Ordering::Release);
    }

    /// The value at an index, `None` at [`len`](Self::len) and behind.
    pub(super) fn get(&self, index: usize) -> Option<S::Value> {
        if index >= self.len() {
            return None;
        }
        let (block, at) = place(index);
        Some(self.blocks[block].get()?.get(at)?.load())
    }

    /// The last value.
    pub(super) fn last(&self) -> Option<S::Value> {
        self.get(self.len().checked_sub(1)?)
    }

    /// The values that are there now.
    pub(super) fn iter(&self) -> impl Iterator<Item = S::Value> {
        (0..self.len()).map_while(|index| self.get(index))
    }

    /// How many values at the front satisfy a condition that none behind them does.
    pub(super) fn partition_point(&self, is_before: impl Fn(S::Value) -> bool) -> usize {
        let (mut from, mut to) = (0, self.len());
        while from < to {
            let middle = from + (to - from) / 2;
            match self.get(middle) {
                Some(value) if is_before(value) => from = middle + 1,
                _ => to = middle,
            }
        }
        from
    }
}

/// Block of an index, and the place there.
fn place(index: usize) -> (usize, usize) {
    let block = (index / FIRST_BLOCK + 1).ilog2() as usize;
    (block, index - FIRST_BLOCK * ((1 << block) - 1))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    impl Slot for AtomicU64 {
        type Value = u64;

        fn store(&self, value: u64) {
            AtomicU64::store(self, value, Ordering::Relaxed);
        }

        fn load(&self) -> u64 {
            AtomicU64::load(self, Ordering::Relaxed)
        }
    }

    #[test]
    fn what_was_pushed_is_read_by_others_meanwhile() {
        let many = if cfg!(miri) { 200 } else { 100_000u64 };
        let array = Published::<AtomicU64>::default();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut seen = 0;
                    while seen < many as usize {
                        let len = array.len();
                        assert!(len >= seen);
                        seen = len;
                        if let Some(last) = len.checked_sub(1) {
                            assert_eq!(array.get(last), Some(last as u64 * 3));
                        }
                        std::thread::yield_now();
                    }
                });
            }
            (0..many).for_each(|value| array.push(value * 3));
        });
        assert!(array.iter().eq((0..many).map(|value| value * 3)));
        assert_eq!(array.get(many as usize), None);
        assert_eq!(array.last(), Some((many - 1) * 3));
        for value in [0, 1, 2, 3, 100, 383, many * 3] {
            let expected = (0..many).filter(|other| other * 3 < value).count();
            assert_eq!(array.partition_point(|other| other < value), expected, "{value}");
        }
    }

    #[test]
    fn places_follow_each_other() {
        let mut expected = Vec::new();
        for block in 0..4 {
            expected.extend((0..FIRST_BLOCK << block).map(|at| (block, at)));
        }
        assert!((0..expected.len()).map(place).eq(expected));
    }
}
