//! `result.json`: everything that was measured, every repeat of it.

use std::fmt;
use std::fs;
use std::num::NonZero;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::answer::Answer;
use crate::data::Made;
use crate::error::BenchError;
use crate::facts::Facts;
use crate::job::Once;
use crate::scenario::{Cache, IdentityName, IoName, Scenario};

/// Version of the file's format.
pub const FORMAT: u32 = 1;
/// Name of the file.
const NAME: &str = "result.json";

/// A run of a scenario.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    /// [`FORMAT`].
    pub format: u32,
    /// When it began, ms since 1970.
    pub started_ms: i64,
    /// What was measured, with what the command line changed.
    pub scenario: Scenario,
    /// On what.
    pub data: Made,
    /// Where.
    pub machine: Facts,
    /// Whether processors were cores of their own, before each round.
    pub probes: Vec<Probe>,
    /// A row for each thing that was measured.
    pub rows: Vec<Row>,
}

/// What several threads got done, as a multiple of what one did.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Probe {
    /// The round, from 0.
    pub round: u32,
    /// The threads.
    pub threads: NonZero<usize>,
    /// The multiple.
    pub ratio: f64,
    /// Whether figures of so many threads mean what they say.
    pub is_enough: bool,
}

/// One thing that was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// What.
    pub key: RowKey,
    /// Each repeat.
    pub samples: Vec<Sample>,
    /// The hash of what was found.
    pub answer: Option<Answer>,
}

/// What a row measures: two rows of the same key can be compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowKey {
    /// Who.
    pub loader: Loader,
    /// State of the page cache before.
    pub cache: Cache,
    /// Threads.
    pub threads: NonZero<usize>,
}

/// Who is measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Loader {
    /// Nobody: the bytes are merely read.
    Read,
    /// redrive.
    Redrive {
        /// What ids are compared by.
        identity: IdentityName,
        /// How bytes were to be reached.
        io: IoName,
        /// Memory.
        memory: Memory,
    },
    /// The naive loader, with fresh memory.
    Naive,
    /// A real broker, its loading thread alone.
    Broker {
        /// Its version.
        version: String,
        /// Fresh: the first load after its start. Reused: after another election, in a warm JVM.
        memory: Memory,
    },
}

/// What memory a load has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Memory {
    /// A new process.
    Fresh,
    /// What a load before it in the same process has given back.
    Reused,
}

impl fmt::Display for RowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let threads = |f: &mut fmt::Formatter<'_>| {
            write!(f, ", {} thread{}", self.threads, if self.threads.get() == 1 { "" } else { "s" })
        };
        match &self.loader {
            Loader::Read if self.cache == Cache::Cold => f.write_str("read past the cache")?,
            Loader::Read => {
                f.write_str("read (limit R)")?;
                threads(f)?;
            }
            Loader::Redrive { identity, io, memory } => {
                f.write_str("redrive")?;
                if *identity == IdentityName::Hash {
                    f.write_str(" hash")?;
                }
                if *io == IoName::Pread {
                    f.write_str(" pread")?;
                }
                threads(f)?;
                if *memory == Memory::Reused {
                    f.write_str(", reused")?;
                }
            }
            Loader::Naive => f.write_str("naive loader")?,
            Loader::Broker { version, memory: Memory::Fresh } => write!(f, "broker {version}, first load")?,
            Loader::Broker { version, memory: Memory::Reused } => {
                write!(f, "broker {version}, elected again")?
            }
        }
        if self.cache == Cache::Cold { f.write_str(", cold") } else { Ok(()) }
    }
}

/// One repeat.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The round, from 0. What was measured in the same round ran within moments.
    pub round: u32,
    /// Why it does not count, if it does not.
    pub invalid: Option<String>,
    /// What was measured.
    #[serde(flatten)]
    pub once: Once,
}

/// Smallest, median and largest of some numbers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The smallest.
    pub min: f64,
    /// The median; of an even number, the mean of the two in the middle.
    pub median: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// `None` for no numbers.
    pub fn of(numbers: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = numbers.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let (low, high) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
        Some(Self { min, median: (low + high) / 2.0, max })
    }
}

impl Row {
    /// The repeats that count.
    pub fn valid(&self) -> impl Iterator<Item = &Sample> {
        self.samples.iter().filter(|sample| sample.invalid.is_none())
    }

    /// Seconds of the repeats that count.
    pub fn seconds(&self) -> Option<Spread> {
        Spread::of(self.valid().map(|sample| sample.once.seconds))
    }

    /// How much longer `other` took than this, round by round.
    pub fn times_faster_than(&self, other: &Self) -> Vec<f64> {
        let same_round = |sample: &Sample| other.valid().find(|other| other.round == sample.round);
        self.valid()
            .filter_map(|sample| Some(same_round(sample)?.once.seconds / sample.once.seconds))
            .collect()
    }
}

impl RunResult {
    /// The row that tells what merely reading costs where `key` was measured.
    pub fn read_for(&self, key: &RowKey) -> Option<&Row> {
        let is_cold = key.cache == Cache::Cold;
        self.rows.iter().find(|row| {
            row.key.loader == Loader::Read
                && row.key.cache == key.cache
                && (is_cold || row.key.threads == key.threads)
        })
    }

    /// The row of the naive loader where `key` was measured.
    pub fn naive_for(&self, key: &RowKey) -> Option<&Row> {
        self.rows.iter().find(|row| row.key.loader == Loader::Naive && row.key.cache == key.cache)
    }

    /// The row of a broker's first load.
    pub fn broker(&self) -> Option<&Row> {
        self.rows.iter().find(|row| matches!(row.key.loader, Loader::Broker { memory: Memory::Fresh, .. }))
    }

    /// The different answers that loaders gave; one where they agree.
    pub fn answers(&self) -> Vec<&Answer> {
        let mut different = Vec::new();
        for answer in self.rows.iter().filter_map(|row| row.answer.as_ref()) {
            if !different.contains(&answer) {
                different.push(answer);
            }
        }
        different
    }

    /// Whether no loader found anything else than another, and than what the scenario knows to be right.
    pub fn is_right(&self) -> bool {
        let right = self.scenario.answer.as_ref();
        let answers = self.answers();
        answers.len() <= 1 && answers.iter().all(|answer| right.is_none_or(|right| answer.sha256 == *right))
    }

    /// Reads `result.json` in a folder, or the file itself.
    ///
    /// # Errors
    /// [`BenchError::Io`], [`BenchError::Content`].
    pub fn read(path: &Path) -> Result<Self, BenchError> {
        let path = if path.is_dir() { path.join(NAME) } else { path.to_path_buf() };
        let text = fs::read(&path).map_err(BenchError::io("read", &path))?;
        let name = path.to_string_lossy().into_owned();
        let result: Self = serde_json::from_slice(&text).map_err(BenchError::content(name.clone()))?;
        if result.format != FORMAT {
            let reason = format!("format {} is not {FORMAT}", result.format);
            return Err(BenchError::Content { path: name, reason });
        }
        Ok(result)
    }

    /// Writes `result.json` into a folder.
    ///
    /// # Errors
    /// [`BenchError::Io`], [`BenchError::Content`].
    pub fn write(&self, folder: &Path) -> Result<(), BenchError> {
        let path = folder.join(NAME);
        let mut text = serde_json::to_vec_pretty(self).map_err(BenchError::content(NAME))?;
        text.push(b'\n');
        fs::write(&path, text).map_err(BenchError::io("write", &path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_of_what_it_is_given() {
        let spread = Spread::of([3.0, 1.0, 2.0, 10.0]).expect("numbers");
        assert_eq!((spread.min, spread.median, spread.max), (1.0, 2.5, 10.0));
        assert_eq!(Spread::of([4.0]).expect("a number").median, 4.0);
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn ratios_are_of_the_same_round_and_of_valid_repeats() {
        let row = |seconds: &[(u32, f64, bool)]| Row {
            key: RowKey { loader: Loader::Naive, cache: Cache::Warm, threads: NonZero::<usize>::MIN },
            samples: seconds
                .iter()
                .map(|&(round, seconds, is_valid)| Sample {
                    round,
                    invalid: (!is_valid).then(|| "disturbed".to_owned()),
                    once: Once { seconds, ..Once::default() },
                })
                .collect(),
            answer: None,
        };
        let fast = row(&[(0, 1.0, true), (1, 2.0, true), (2, 1.0, false), (4, 1.0, true)]);
        let slow = row(&[(1, 8.0, true), (0, 3.0, true), (2, 9.0, true), (3, 9.0, true)]);
        assert_eq!(fast.times_faster_than(&slow), [3.0, 4.0]);
        assert_eq!(fast.seconds().expect("valid ones").max, 2.0);
    }
}
