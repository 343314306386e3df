//! The loads of a profile, and what they took.

use std::fs::File;
use std::io;
use std::num::NonZero;
use std::time::Duration;

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use redrive::io::Cache;
use redrive::log::LogSnapshot;
use redrive::replay::{Cancel, Loaded, Replay};
use serde::{Serialize, Serializer};

use super::ProfileArgs;
use super::report::seconds;
use crate::console::Console;
use crate::failure::Failure;
use crate::progress::Bar;
use crate::text::now_ms;

/// Why a load was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum RunKind {
    /// The first, whatever was in the page cache.
    AsFound,
    /// Right after another.
    Warm,
    /// After the kernel was asked to forget the segments.
    Cold,
}

impl RunKind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::AsFound => "as found",
            Self::Warm => "warm",
            Self::Cold => "cold",
        }
    }
}

/// One load.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Run {
    pub(super) kind: RunKind,
    /// Threads that worked.
    pub(super) threads: usize,
    pub(super) io: &'static str,
    /// What was in the page cache before.
    #[serde(serialize_with = "cache_name")]
    pub(super) cache: Cache,
    /// Whether the page cache was as the kind says.
    pub(super) valid: bool,
    pub(super) partitions_loaded: usize,
    /// Its beginning, ms since 1970.
    pub(super) begun_ms: i64,
    /// Until the last map was published.
    #[serde(rename = "seconds", serialize_with = "seconds")]
    pub(super) elapsed: Duration,
    /// Wait and load of every loaded partition.
    #[serde(skip)]
    pub(super) partitions: Vec<(Duration, Duration)>,
}

fn cache_name<S: Serializer>(cache: &Cache, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(cache.name())
}

impl Run {
    pub(super) fn new(kind: RunKind, begun_ms: i64, loaded: &Loaded) -> Self {
        let stats = loaded.partitions.iter().filter_map(|outcome| outcome.stats());
        let partitions: Vec<_> = stats.map(|stats| (stats.wait, stats.elapsed)).collect();
        Self {
            kind,
            threads: loaded.threads,
            io: loaded.io.name(),
            cache: loaded.cache,
            valid: match kind {
                RunKind::AsFound => true,
                RunKind::Warm => loaded.cache == Cache::Warm,
                RunKind::Cold => loaded.cache == Cache::Cold,
            },
            partitions_loaded: partitions.len(),
            begun_ms,
            elapsed: loaded.elapsed,
            partitions,
        }
    }
}

/// Makes the loads after the first: kinds take turns, so that a machine that gets slower does so for all of them.
///
/// # Errors
/// [`Failure::Engine`]; [`Failure::Interrupted`] by way of it.
pub(super) fn more_runs(
    runs: &mut Vec<Run>,
    replay: &Replay,
    cancel: &Cancel,
    args: &ProfileArgs,
    threads: usize,
    snapshots: &[Option<LogSnapshot>],
    console: &Console,
) -> Result<(), Failure> {
    // Live bytes are counted after publication and are known by now.
    let replay = replay.clone().counts_live_bytes(false);
    let one = replay.clone().threads(NonZero::<usize>::MIN);
    let mut run = |kind: RunKind, replay: &Replay| -> Result<(), Failure> {
        let begun_ms = now_ms();
        let mut bar = Bar::new(&args.load.topic, console.shows_progress);
        let loaded = replay.run_with(&mut bar, cancel)?;
        runs.push(Run::new(kind, begun_ms, &loaded));
        Ok(())
    };
    for _ in 0..args.runs {
        run(RunKind::Warm, &replay)?;
        if threads > 1 {
            run(RunKind::Warm, &one)?;
        }
    }
    // Behind the warm ones, which they would make cold.
    if args.cold {
        for _ in 0..args.runs {
            forget(snapshots)?;
            run(RunKind::Cold, &replay)?;
        }
    }
    Ok(())
}

/// Asks the kernel to drop the segments from the page cache. Whether it did is seen in the load that follows.
fn forget(snapshots: &[Option<LogSnapshot>]) -> Result<(), Failure> {
    for segment in snapshots.iter().flatten().flat_map(|snapshot| &snapshot.segments) {
        let failed = |source: io::Error| {
            Failure::Input(format!("cannot drop {} from the page cache: {source}", segment.path.display()))
        };
        let file = File::open(&segment.path).map_err(failed)?;
        // Pages that are not yet on the disk cannot be dropped.
        file.sync_data().map_err(failed)?;
        posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)
            .map_err(|errno| failed(errno.into()))?;
    }
    Ok(())
}

/// Loads of one kind with the same number of threads.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Spread {
    pub(super) kind: RunKind,
    pub(super) threads: usize,
    /// How many.
    pub(super) runs: usize,
    /// How many of them found the page cache as the kind says.
    pub(super) valid_runs: usize,
    #[serde(rename = "medianSeconds", serialize_with = "seconds")]
    pub(super) median: Duration,
    #[serde(rename = "minSeconds", serialize_with = "seconds")]
    pub(super) min: Duration,
    #[serde(rename = "maxSeconds", serialize_with = "seconds")]
    pub(super) max: Duration,
}

/// One spread for each kind and number of threads, in the order of their first loads. The median of an even number is
/// the mean of the two in the middle.
pub(super) fn spreads(runs: &[Run]) -> Vec<Spread> {
    let mut kinds: Vec<(RunKind, usize)> = Vec::new();
    for run in runs {
        if !kinds.contains(&(run.kind, run.threads)) {
            kinds.push((run.kind, run.threads));
        }
    }
    let spread = |(kind, threads)| {
        let same = runs.iter().filter(|run| (run.kind, run.threads) == (kind, threads));
        let mut times: Vec<Duration> = same.clone().map(|run| run.elapsed).collect();
        times.sort_unstable();
        let middle = times.len() / 2;
        let median = if times.len().is_multiple_of(2) {
            (times[middle - 1] + times[middle]) / 2
        } else {
            times[middle]
        };
        Spread {
            kind,
            threads,
            runs: times.len(),
            valid_runs: same.filter(|run| run.valid).count(),
            median,
            min: times[0],
            max: times[times.len() - 1],
        }
    };
    kinds.into_iter().map(spread).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(kind: RunKind, threads: usize, ms: u64) -> Run {
        Run {
            kind,
            threads,
            io: "pread",
            cache: Cache::Warm,
            valid: kind != RunKind::Cold,
            partitions_loaded: 0,
            begun_ms: 0,
            elapsed: Duration::from_millis(ms),
            partitions: Vec::new(),
        }
    }

    #[test]
    fn loads_of_a_kind_are_put_together() {
        use RunKind::{AsFound, Cold, Warm};
        let runs: Vec<Run> = [
            (AsFound, 2, 90),
            (Warm, 2, 30),
            (Warm, 1, 50),
            (Warm, 2, 10),
            (Warm, 1, 70),
            (Warm, 2, 20),
            (Cold, 2, 5),
        ]
        .map(|(kind, threads, ms)| run(kind, threads, ms))
        .into();
        let found: Vec<_> = spreads(&runs)
            .iter()
            .map(|s| {
                (s.kind, s.threads, s.runs, s.valid_runs, [s.median, s.min, s.max].map(|d| d.as_millis()))
            })
            .collect();
        let expected = [
            (AsFound, 2, 1, 1, [90, 90, 90]),
            (Warm, 2, 3, 3, [20, 10, 30]),
            (Warm, 1, 2, 2, [60, 50, 70]),
            (Cold, 2, 1, 0, [5, 5, 5]),
        ];
        assert_eq!(found, expected);
        assert!(spreads(&[]).is_empty());
    }
}
