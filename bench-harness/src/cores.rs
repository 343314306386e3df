//! Whether the processors that the machine shows are cores of their own just now.
//!
//! Two virtual processors may be the two hyper-threads of one core, or share it with a neighbour, and this changes by
//! the minute. A loop that keeps a unit of the core busy which both hyper-threads share tells: two threads of it get
//! twice as much done as one only where they have a core each.

use std::hint::black_box;
use std::num::NonZero;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

/// Independent chains of multiplications, more than any multiplier has stages.
const CHAINS: usize = 8;
/// Multiplications in one try.
const STEPS: u32 = 4_000_000;
/// Tries; the best counts, since anything that disturbs makes it longer.
const TRIES: usize = 3;
/// Least ratio at which figures of several threads mean what they say, for each thread: 1.9 for two.
const RATIO_PER_THREAD_MIN: f64 = 0.95;

/// What so many threads get done, as a multiple of what one does.
pub fn ratio(threads: NonZero<usize>) -> f64 {
    let alone = best(NonZero::<usize>::MIN);
    let together = best(threads);
    threads.get() as f64 * alone.as_secs_f64() / together.as_secs_f64()
}

/// Whether a [`ratio`] shows a core for each thread.
pub fn is_enough(ratio: f64, threads: NonZero<usize>) -> bool {
    ratio >= RATIO_PER_THREAD_MIN * threads.get() as f64
}

/// Time until the last of so many threads is done.
fn best(threads: NonZero<usize>) -> Duration {
    (0..TRIES).map(|_| together(threads)).min().unwrap_or_default()
}

fn together(threads: NonZero<usize>) -> Duration {
    let barrier = Barrier::new(threads.get());
    thread::scope(|scope| {
        let work = || {
            barrier.wait();
            let started = Instant::now();
            black_box(multiply());
            started.elapsed()
        };
        let workers: Vec<_> = (0..threads.get()).map(|_| scope.spawn(work)).collect();
        let times = workers.into_iter().map(|worker| worker.join().expect("multiplying does not panic"));
        times.max().unwrap_or_default()
    })
}

/// A core has one or two multipliers of 64 by 64 bits. No vector unit can take this over: the upper half is needed.
fn multiply() -> u64 {
    let mut chains: [u64; CHAINS] = std::array::from_fn(|chain| black_box(chain as u64 + 3));
    for _ in 0..STEPS / CHAINS as u32 {
        for chain in &mut chains {
            let product = u128::from(*chain) * 0x9E37_79B9_7F4A_7C15;
            // Both halves, so that neither is left out.
            *chain = (product >> 64) as u64 ^ product as u64;
        }
    }
    chains.iter().fold(0, |all, chain| all ^ chain)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No test can know how many cores there are at this moment; but four threads never do eight times as much.
    #[test]
    fn the_ratio_is_one_that_threads_can_have() {
        let four = NonZero::new(4).expect("not zero");
        let ratio = ratio(four);
        assert!(ratio > 0.1 && ratio < 8.0, "{ratio}");
        let two = NonZero::new(2).expect("not zero");
        assert!(is_enough(1.9, two) && !is_enough(1.89, two) && is_enough(0.96, NonZero::<usize>::MIN));
    }
}
