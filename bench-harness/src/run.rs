//! A run: everything once in each round, so that what the machine does to one it does to all.

use std::fs;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::broker;
use crate::cores;
use crate::data;
use crate::error::BenchError;
use crate::facts::Facts;
use crate::job::{Job, Measured, Work};
use crate::page_cache;
use crate::result::{FORMAT, Loader, Memory, Probe, Row, RowKey, RunResult, Sample};
use crate::scenario::{Against, Cache, IoName, Scenario};

/// How a run is made, besides what the scenario says.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The program that answers to [`SUBCOMMAND`](crate::job::SUBCOMMAND).
    pub program: PathBuf,
    /// Where log directories are kept.
    pub data: PathBuf,
    /// How often a broker is started, if one is measured.
    pub broker_starts: NonZero<u32>,
}

/// A process that is started in each round, and the rows that it fills.
struct Step {
    work: Work,
    cache: Cache,
    /// One for each time that the work is done; positions in the result.
    rows: Vec<usize>,
}

/// Makes the data if need be, and measures. `says` is told what is going on, a line at a time.
///
/// # Errors
/// [`BenchError`]: a load that fails ends the run. A repeat that was not made as asked for is kept and marked.
pub fn run(
    scenario: Scenario,
    settings: &Settings,
    says: &mut dyn FnMut(&str),
) -> Result<RunResult, BenchError> {
    fs::create_dir_all(&settings.data).map_err(BenchError::io("create", &settings.data))?;
    says("making the data, if they are not there");
    let (root, made) = data::prepare(&scenario.data, &settings.data)?;
    let files = data::segments(&root)?;
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut result = RunResult {
        format: FORMAT,
        started_ms: i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
        machine: Facts::here(&settings.data),
        data: made,
        probes: Vec::new(),
        rows: Vec::new(),
        scenario,
    };
    let steps = steps(&mut result);
    let threads: Vec<_> = result.scenario.measure.threads.iter().copied().filter(|n| n.get() > 1).collect();
    let rounds = result.scenario.measure.repeats.get();
    for round in 0..rounds {
        for &threads in &threads {
            let ratio = cores::ratio(threads);
            says(&format!(
                "round {} of {rounds}: {threads} threads do {ratio:.2} × the work of one",
                round + 1
            ));
            result.probes.push(Probe { round, threads, ratio, is_enough: cores::is_enough(ratio, threads) });
        }
        // Every round begins with another one: nobody always runs after the same neighbour.
        for position in 0..steps.len() {
            let step = &steps[(position + round as usize) % steps.len()];
            let measured = measure(step, round, &root, &files, settings, &result)?;
            record(&mut result, step, round, measured, says);
        }
    }
    for against in result.scenario.measure.against.clone() {
        if let Against::Broker(version) = against {
            says(&format!("starting a broker {version} on the same log"));
            let answer = result.answers().first().copied();
            let rows = broker::rows(&version, &result.data, answer, settings, says)?;
            result.rows.extend(rows);
        }
    }
    Ok(result)
}

/// What is done in each round; its rows are added to the result.
fn steps(result: &mut RunResult) -> Vec<Step> {
    let measure = result.scenario.measure.clone();
    let mut steps: Vec<Step> = Vec::new();
    let mut add = |work: Work, cache: Cache, threads: NonZero<usize>, loaders: Vec<Loader>| {
        let first = result.rows.len();
        result.rows.extend(loaders.into_iter().map(|loader| Row {
            key: RowKey { loader, cache, threads },
            samples: Vec::new(),
            answer: None,
        }));
        steps.push(Step { work, cache, rows: (first..result.rows.len()).collect() });
    };
    let one = NonZero::<usize>::MIN;
    for &cache in &measure.caches {
        if measure.against.contains(&Against::Read) {
            match cache {
                Cache::Warm => {
                    for &threads in &measure.threads {
                        add(Work::Read { threads }, cache, threads, vec![Loader::Read]);
                    }
                }
                Cache::Cold => add(Work::ReadDirect, cache, one, vec![Loader::Read]),
            }
        }
        // A load of cold files takes its own way, and leaves nothing for a second load.
        let (ios, memories) = match cache {
            Cache::Warm => (&measure.io[..], &[Memory::Fresh, Memory::Reused][..]),
            Cache::Cold => (&[IoName::Auto][..], &[Memory::Fresh][..]),
        };
        for &threads in &measure.threads {
            for &identity in &measure.identities {
                for &io in ios {
                    let loads = u32::try_from(memories.len()).unwrap_or(u32::MAX);
                    let work = Work::Redrive { threads, identity, io, loads };
                    let loader = |&memory| Loader::Redrive { identity, io, memory };
                    add(work, cache, threads, memories.iter().map(loader).collect());
                }
            }
        }
        if measure.against.contains(&Against::Naive) {
            add(Work::Naive, cache, one, vec![Loader::Naive]);
        }
    }
    steps
}

/// One process, and why its figures do not count, if they do not.
fn measure(
    step: &Step,
    round: u32,
    root: &Path,
    files: &[PathBuf],
    settings: &Settings,
    result: &RunResult,
) -> Result<(Measured, Option<String>), BenchError> {
    let cache = page_cache::bring_and_check(files, step.cache)?;
    // Answers are hashed once: that takes longer than a load.
    let job = Job { root: root.to_path_buf(), work: step.work.clone(), answer: round == 0 };
    let measured = job.run_in(&settings.program)?;
    if measured.times.len() != step.rows.len() {
        let times = measured.times.len();
        return Err(BenchError::Load(format!("{job:?} was done {times} times, not {}", step.rows.len())));
    }
    let asked = match &step.work {
        Work::Redrive { io, .. } => io.reported(),
        _ => None,
    };
    let mut reasons: Vec<String> = cache.err().into_iter().collect();
    for once in &measured.times {
        if let Some(asked) = asked.filter(|asked| *asked != once.io) {
            reasons.push(format!("io was {}, not {asked}", once.io));
        }
        let is_load = !matches!(step.work, Work::Read { .. } | Work::ReadDirect);
        if once.bytes != result.data.bytes || is_load && once.ids != result.data.ids {
            return Err(BenchError::Load(format!(
                "{job:?} found {} bytes and {} ids, but {} and {} were written",
                once.bytes, once.ids, result.data.bytes, result.data.ids
            )));
        }
        let rate = once.bytes as f64 / once.seconds;
        if matches!(step.work, Work::Read { .. }) && rate < once.memcpy_bytes_per_second {
            reasons.push("reading was slower than memcpy, so it is no limit".to_owned());
        }
    }
    if result.machine.build != "release" {
        reasons.push("not an optimised build".to_owned());
    }
    Ok((measured, (!reasons.is_empty()).then(|| reasons.join("; "))))
}

fn record(
    result: &mut RunResult,
    step: &Step,
    round: u32,
    (measured, invalid): (Measured, Option<String>),
    says: &mut dyn FnMut(&str),
) {
    for (&row, once) in step.rows.iter().zip(measured.times) {
        let row = &mut result.rows[row];
        let mark = invalid.as_ref().map(|reason| format!(" (invalid: {reason})")).unwrap_or_default();
        says(&format!("  {}: {:.3} s{mark}", row.key, once.seconds));
        row.samples.push(Sample { round, invalid: invalid.clone(), once });
        if let Some(answer) = &measured.answer {
            row.answer = Some(answer.clone());
        }
    }
}
