//! Whether one run was slower than another, or only looks so.
//!
//! Each row of both runs is a sample of times, or, where both runs have measured what merely reading costs, of times
//! as multiples of that in the same round: then a machine that is slower as a whole does not count as a regression.
//! For each row two questions:
//!
//! 1. How much slower is B? The median of all ratios of a time in B to a time in A (the Hodges–Lehmann estimate, on
//!    logarithms).
//! 2. Could chance alone have ordered the times so? The exact one-sided Mann–Whitney test, which assumes nothing of
//!    how times are distributed; its p is multiplied over the rows by Holm's rule, so that many rows give chance no
//!    more room than one.
//!
//! A row is a regression where B is slower by at least 2 %, and p is below 5 %. Few repeats cannot show anything: 4
//! against 4 are the least for one row, 5 against 5 for up to twelve; the verdict says where that is so.

use std::fmt::Write as _;

use crate::result::{Loader, Row, RunResult, Spread};

/// Least slowdown that counts, as a share.
const SLOWDOWN_MIN: f64 = 0.02;
/// Chance that is accepted to call mere noise a regression, for all rows together.
const ERROR_MAX: f64 = 0.05;

/// What became of one row from A to B.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The row.
    pub row: String,
    /// Times of B as a multiple of those of A.
    pub ratio: f64,
    /// Chance that equal rows come out like this or slower, over all rows.
    pub p_slower: f64,
    /// The same for faster.
    pub p_faster: f64,
    /// Whether so few repeats could have shown anything.
    pub could_tell: bool,
}

impl Change {
    /// Whether B is slower.
    pub fn is_regression(&self) -> bool {
        self.ratio >= 1.0 + SLOWDOWN_MIN && self.p_slower < ERROR_MAX
    }

    /// Whether B is faster.
    pub fn is_improvement(&self) -> bool {
        self.ratio <= 1.0 / (1.0 + SLOWDOWN_MIN) && self.p_faster < ERROR_MAX
    }
}

/// The comparison of two runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// Rows that both have, without those that merely read.
    pub changes: Vec<Change>,
    /// What stands in the way of comparing them, a sentence each.
    pub differences: Vec<String>,
    /// B found something else than A in the same log, or its loaders do not agree.
    pub is_other_answer: bool,
    /// Times are multiples of what merely reading cost.
    pub is_relative: bool,
}

impl Verdict {
    /// Whether B is worse than A.
    pub fn is_worse(&self) -> bool {
        self.is_other_answer || self.changes.iter().any(Change::is_regression)
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let width = self.changes.iter().map(|change| change.row.len()).max().unwrap_or(0);
        for change in &self.changes {
            let word = match change {
                _ if change.is_regression() => "SLOWER",
                _ if change.is_improvement() => "faster",
                _ if !change.could_tell => "too few repeats to tell",
                _ => "no difference that noise does not explain",
            };
            let (percent, p) = ((change.ratio - 1.0) * 100.0, change.p_slower.min(change.p_faster));
            let _ = writeln!(out, "{:width$}  {percent:+6.1} %  p {p:.3}  {word}", change.row);
        }
        for difference in &self.differences {
            let _ = writeln!(out, "note: {difference}");
        }
        let what = if self.is_relative { "times over the time of merely reading" } else { "times" };
        let slower = self.changes.iter().filter(|change| change.is_regression()).count();
        let silent = self.changes.iter().filter(|change| !change.could_tell).count();
        let verdict = match (self.is_other_answer, slower, self.changes.len()) {
            (true, ..) => "the answers differ".to_owned(),
            (_, _, 0) => "nothing that both runs measured".to_owned(),
            (_, 0, _) if silent > 0 => format!("no regression seen, but {silent} rows cannot tell"),
            (_, 0, rows) => format!("no regression in {rows} rows"),
            (_, slower, rows) => format!("regression in {slower} of {rows} rows"),
        };
        let _ = writeln!(out, "verdict: {verdict} ({what})");
        out
    }
}

/// Compares run `b` with run `a`, which came before.
pub fn compare(a: &RunResult, b: &RunResult) -> Verdict {
    let is_same_log = a.data.data == b.data.data && a.data.now_ms == b.data.now_ms;
    let mut differences = Vec::new();
    let mut differ = |what: &str, a: &dyn std::fmt::Debug, b: &dyn std::fmt::Debug| {
        let (a, b) = (format!("{a:?}"), format!("{b:?}"));
        if a != b {
            differences.push(format!("{what} differs: {a}, then {b}"));
        }
    };
    differ("the log", &(&a.data.data, a.data.now_ms), &(&b.data.data, b.data.now_ms));
    differ("the CPU", &a.machine.cpu, &b.machine.cpu);
    differ("the number of processors", &a.machine.processors, &b.machine.processors);
    differ("the kernel", &a.machine.kernel, &b.machine.kernel);
    differ("the build", &a.machine.build, &b.machine.build);
    for (name, run) in [("the first", a), ("the second", b)] {
        let bad = run.rows.iter().flat_map(|row| &row.samples).filter(|s| s.invalid.is_some()).count();
        if bad > 0 {
            differences.push(format!("{bad} repeats of {name} run are invalid and were left out"));
        }
    }
    let is_relative = [a, b].iter().all(|run| run.rows.iter().any(|row| row.key.loader == Loader::Read));
    let (mut changes, mut p_least) = (Vec::new(), Vec::new());
    for row in b.rows.iter().filter(|row| row.key.loader != Loader::Read) {
        let Some(before) = a.rows.iter().find(|before| before.key == row.key) else { continue };
        let (before, after) = (times(a, before, is_relative), times(b, row, is_relative));
        if let Some(ratio) = ratio(&before, &after) {
            p_least.push(1.0 / orders(before.len(), after.len()).iter().sum::<f64>());
            changes.push(Change {
                row: row.key.to_string(),
                ratio,
                p_slower: p_greater(&before, &after),
                p_faster: p_greater(&after, &before),
                could_tell: true,
            });
        }
    }
    let count = changes.len() as f64;
    for (change, p_least) in changes.iter_mut().zip(p_least) {
        change.could_tell = p_least * count < ERROR_MAX;
    }
    holm(&mut changes, |change| &mut change.p_slower);
    holm(&mut changes, |change| &mut change.p_faster);
    let (found_a, found_b) = (a.answers(), b.answers());
    let is_same_answer = found_a.is_empty() || found_b.is_empty() || found_a == found_b;
    let is_other_answer = found_b.len() > 1 || is_same_log && !is_same_answer;
    Verdict { changes, differences, is_other_answer, is_relative }
}

/// Times of the repeats that count; relative ones where that was measured for this row, too.
fn times(run: &RunResult, row: &Row, is_relative: bool) -> Vec<f64> {
    match run.read_for(&row.key).filter(|_| is_relative) {
        Some(read) => row.times_faster_than(read).into_iter().map(|share| 1.0 / share).collect(),
        None => row.valid().map(|sample| sample.once.seconds).collect(),
    }
}

/// The median of all ratios of a time after to a time before.
fn ratio(before: &[f64], after: &[f64]) -> Option<f64> {
    let ratios = before.iter().flat_map(|before| after.iter().map(move |after| (after / before).ln()));
    Spread::of(ratios).map(|spread| spread.median.exp())
}

/// The chance that `after` is ordered behind `before` as much as it is, or more, if both are the same.
fn p_greater(before: &[f64], after: &[f64]) -> f64 {
    // Ties count as half, and are rounded to the side that says less.
    let halves: usize = before
        .iter()
        .flat_map(|before| {
            after.iter().map(move |after| usize::from(after > before) + usize::from(after >= before))
        })
        .sum();
    let orders = orders(before.len(), after.len());
    let all: f64 = orders.iter().sum();
    orders.iter().skip(halves / 2).sum::<f64>() / all
}

/// How many orders of m and n values have so many pairs with the value of the second group behind that of the first;
/// by the number of pairs, from 0 to m × n.
fn orders(m: usize, n: usize) -> Vec<f64> {
    // The largest value is of the first group, and behind it is nothing; or of the second, and it is behind all m.
    let mut shorter = vec![vec![1.0]; m + 1];
    for of_second in 1..=n {
        let mut rows: Vec<Vec<f64>> = vec![vec![1.0]];
        for of_first in 1..=m {
            let mut counts = vec![0.0; of_first * of_second + 1];
            for (pairs, count) in rows[of_first - 1].iter().enumerate() {
                counts[pairs] += count;
            }
            for (pairs, count) in shorter[of_first].iter().enumerate() {
                counts[pairs + of_first] += count;
            }
            rows.push(counts);
        }
        shorter = rows;
    }
    shorter.swap_remove(m)
}

/// Holm's correction for many questions at once.
fn holm(changes: &mut [Change], p: impl Fn(&mut Change) -> &mut f64) {
    let mut all: Vec<&mut f64> = changes.iter_mut().map(p).collect();
    all.sort_by(|x, y| x.total_cmp(y));
    let (count, mut least) = (all.len(), 0.0_f64);
    for (rank, value) in all.into_iter().enumerate() {
        least = least.max(*value * (count - rank) as f64).min(1.0);
        *value = least;
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::num::NonZero;

    use super::*;
    use crate::answer::Answer;
    use crate::data::Made;
    use crate::facts::Facts;
    use crate::job::Once;
    use crate::result::{FORMAT, Memory, RowKey, Sample};
    use crate::scenario::{Cache, IdentityName, IoName, Scenario};

    /// Numbers of a normal distribution, near enough: twelve uniform ones added up.
    pub(crate) struct Noise(pub(crate) u64);

    impl Noise {
        fn next(&mut self) -> f64 {
            let mut uniform = || {
                self.0 ^= self.0 << 13;
                self.0 ^= self.0 >> 7;
                self.0 ^= self.0 << 17;
                (self.0 >> 11) as f64 / (1_u64 << 53) as f64
            };
            (0..12).map(|_| uniform()).sum::<f64>() - 6.0
        }
    }

    fn loaders() -> Vec<(Loader, f64)> {
        let mut loaders = vec![(Loader::Read, 0.3), (Loader::Naive, 20.0)];
        for identity in [IdentityName::Exact, IdentityName::Hash] {
            for memory in [Memory::Fresh, Memory::Reused] {
                for io in [IoName::Mmap, IoName::Pread] {
                    loaders.push((Loader::Redrive { identity, io, memory }, 0.7));
                }
            }
        }
        loaders
    }

    /// A run in which each time is off by 1 %, and each round of a machine that changes by 5 %. `slower` is a factor
    /// on one of the nine rows.
    pub(crate) fn run(noise: &mut Noise, repeats: u32, slower: f64) -> RunResult {
        let scenario = Scenario::find("load/smoke").expect("shipped");
        let data = scenario.data.clone();
        let speed: Vec<f64> = (0..repeats).map(|_| 1.0 + 0.05 * noise.next()).collect();
        let rows = loaders().into_iter().map(|(loader, seconds)| {
            let factor = if loader == loaders()[3].0 { slower } else { 1.0 };
            let sample = |round: u32| {
                let seconds = seconds * factor * speed[round as usize] * (1.0 + 0.01 * noise.next());
                Sample { round, invalid: None, once: Once { seconds, ..Once::default() } }
            };
            let samples = (0..repeats).map(sample).collect();
            let key = RowKey { loader, cache: Cache::Warm, threads: NonZero::<usize>::MIN };
            Row { key, samples, answer: None }
        });
        let rows = rows.collect();
        let made = Made { data, now_ms: 0, generator: String::new(), ids: 1, records: 1, bytes: 1 };
        let machine = Facts::default();
        RunResult { format: FORMAT, started_ms: 0, scenario, data: made, machine, probes: Vec::new(), rows }
    }

    #[test]
    fn a_planted_regression_of_five_percent_is_seen_and_noise_is_not() {
        const TRIES: usize = 200;
        let mut noise = Noise(0x5EED);
        let mut worse = |slower: f64, repeats: u32| {
            let is_worse = |_: &usize| {
                compare(&run(&mut noise, repeats, 1.0), &run(&mut noise, repeats, slower)).is_worse()
            };
            (0..TRIES).filter(is_worse).count()
        };
        // By the design of the test at most one in twenty; by the least slowdown that counts, hardly any.
        let alarms = worse(1.0, 9) + worse(1.0, 5);
        assert!(alarms <= TRIES / 20, "{alarms} false alarms in {} comparisons of noise", 2 * TRIES);
        let seen = worse(1.05, 9);
        assert!(seen >= TRIES * 99 / 100, "{seen} of {TRIES} regressions of 5 % were seen");
        // What is faster is not worse.
        let alarms = worse(0.95, 9);
        assert!(alarms <= TRIES / 20, "{alarms} false alarms in {TRIES} comparisons with something faster");
    }

    #[test]
    fn the_row_that_was_slowed_down_is_the_one_that_is_named() {
        let mut noise = Noise(77);
        let verdict = compare(&run(&mut noise, 9, 1.0), &run(&mut noise, 9, 1.05));
        let named: Vec<&str> =
            verdict.changes.iter().filter(|c| c.is_regression()).map(|c| &c.row[..]).collect();
        assert_eq!(named, ["redrive pread, 1 thread"]);
        let text = verdict.text();
        assert!(text.contains("SLOWER") && text.contains("verdict: regression in 1 of 9 rows"), "{text}");
        let back = compare(&run(&mut noise, 9, 1.05), &run(&mut noise, 9, 1.0)).text();
        assert!(back.contains("faster") && back.contains("no regression in 9 rows"), "{back}");
        let few = compare(&run(&mut noise, 3, 1.0), &run(&mut noise, 3, 1.5));
        assert!(!few.is_worse() && few.text().contains("too few repeats to tell"), "{}", few.text());
        assert!(few.text().contains("but 9 rows cannot tell"), "{}", few.text());
    }

    #[test]
    fn other_answers_and_other_machines_are_told() {
        let mut noise = Noise(3);
        let (a, mut b) = (run(&mut noise, 5, 1.0), run(&mut noise, 5, 1.0));
        let answer = |sha256: &str| Some(Answer { ids: 1, sha256: sha256.to_owned() });
        b.machine.cpu = "another".to_owned();
        b.rows[2].samples[1].invalid = Some("cold".to_owned());
        b.rows[1].answer = answer("00");
        let verdict = compare(&a, &b);
        assert!(!verdict.is_worse());
        assert_eq!(verdict.differences.len(), 2, "{:?}", verdict.differences);
        // Loaders of one run that do not agree.
        b.rows[2].answer = answer("01");
        assert!(compare(&a, &b).is_worse());
        b.rows[2].answer = answer("00");
        let mut a = a;
        a.rows[1].answer = answer("01");
        assert!(compare(&a, &b).is_worse(), "another answer on the same log");
        b.data.now_ms += 1;
        assert!(!compare(&a, &b).is_worse(), "another log has another answer");
    }

    /// Against the table of Mann and Whitney: 3 and 4 values, and the sum of all orders is the binomial coefficient.
    #[test]
    fn orders_are_those_of_the_table() {
        assert_eq!(orders(3, 4), [1.0, 1.0, 2.0, 3.0, 4.0, 4.0, 5.0, 4.0, 4.0, 3.0, 2.0, 1.0, 1.0]);
        assert_eq!(orders(5, 5).iter().sum::<f64>(), 252.0);
        assert_eq!(orders(10, 10).iter().sum::<f64>(), 184_756.0);
        assert_eq!(p_greater(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0]), 0.05);
        assert_eq!(p_greater(&[4.0, 5.0, 6.0], &[1.0, 2.0, 3.0]), 1.0);
        assert_eq!(p_greater(&[1.0], &[1.0]), 1.0);
    }
}
