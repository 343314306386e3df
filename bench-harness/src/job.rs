//! One measurement in a process of its own: what it is told, what it does, and what it answers.
//!
//! A fresh process has fresh memory and no warmed-up allocator. The clock of a load runs from opening the directory
//! until any id can be answered, ids by state are known and everything that must be completed is listed.

use std::collections::BTreeMap;
use std::fs;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use redrive::io::FileSystem;
use redrive::replay::{Loaded, Replay};
use redrive_tests::naive::{self, NaiveMap, NaiveOptions};
use serde::{Deserialize, Serialize};

use crate::answer::{self, Answer};
use crate::data;
use crate::error::BenchError;
use crate::read;
use crate::scenario::{IdentityName, IoName};

/// The topic.
const TOPIC: &str = "__transaction_state";

/// The subcommand under which a program must call [`Job::answer_on_stdout`] with the argument after it.
pub const SUBCOMMAND: &str = "measure-once";

/// What a process is to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// The log directory.
    pub root: PathBuf,
    /// What with.
    pub work: Work,
    /// Whether to make the hash of what was found, after the clock was stopped.
    pub answer: bool,
}

/// The kinds of work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Work {
    /// Read mapped bytes.
    Read {
        /// Threads to do so.
        threads: NonZero<usize>,
    },
    /// Read past the page cache.
    ReadDirect,
    /// Load with redrive, several times one after the other; from the second time on memory is used again.
    Redrive {
        /// Threads to load with.
        threads: NonZero<usize>,
        /// What ids are compared by.
        identity: IdentityName,
        /// How bytes are to be reached.
        io: IoName,
        /// How often.
        loads: u32,
    },
    /// Load with the naive loader.
    Naive,
}

/// What a process answers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Measured {
    /// Each time that the work was done.
    pub times: Vec<Once>,
    /// The hash of what was found.
    pub answer: Option<Answer>,
}

/// The work done once. What does not apply is zero or empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Once {
    /// By the clock described at the [module](self); for reads, the best of a few passes.
    pub seconds: f64,
    /// Bytes of the segments.
    pub bytes: u64,
    /// Ids with a state.
    pub ids: u64,
    /// Records.
    pub records: u64,
    /// Ids that must be completed.
    pub pending: u64,
    /// Ids by state.
    pub by_state: BTreeMap<String, u64>,
    /// Bytes of redrive's maps when they were published.
    pub map_bytes: u64,
    /// Most bytes of redrive's maps at any time.
    pub map_bytes_peak: u64,
    /// Most memory that the process had so far, mapped files included, bytes.
    pub resident_bytes_peak: u64,
    /// How bytes were reached.
    pub io: String,
    /// Which checksum kernel was used.
    pub crc: String,
    /// For reads of mapped bytes: seconds of the first pass, with opening, mapping and page faults.
    pub first_touch_seconds: f64,
    /// For reads of mapped bytes: bytes per second that memcpy copied in the same process.
    pub memcpy_bytes_per_second: f64,
    /// For reads past the page cache: reads in flight.
    pub depth: usize,
}

impl Job {
    /// Does the work in a new process of this program.
    ///
    /// # Errors
    /// [`BenchError::Load`] with what the process wrote to stderr.
    pub fn run_in(&self, program: &Path) -> Result<Measured, BenchError> {
        let job = serde_json::to_string(self).map_err(BenchError::content("a job"))?;
        let output = Command::new(program)
            .args([SUBCOMMAND, &job])
            .stdin(Stdio::null())
            .output()
            .map_err(BenchError::io("start", program))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(BenchError::Load(format!("{job}: {}: {}", output.status, said.trim())));
        }
        serde_json::from_slice(&output.stdout).map_err(BenchError::content("the answer of a process"))
    }

    /// Does the work of a job that was given as text; what is to be written to stdout.
    ///
    /// # Errors
    /// As the work says.
    pub fn answer_on_stdout(job: &str) -> Result<String, BenchError> {
        let job: Self = serde_json::from_str(job).map_err(BenchError::content("a job"))?;
        serde_json::to_string(&job.run()?).map_err(BenchError::content("an answer"))
    }

    /// Does the work in this process.
    ///
    /// # Errors
    /// [`BenchError::Io`], [`BenchError::Load`].
    pub fn run(&self) -> Result<Measured, BenchError> {
        match &self.work {
            Work::Read { threads } => {
                let read = read::warm(&data::segments(&self.root)?, *threads)?;
                let (copied, time) = read.copied;
                let once = Once {
                    seconds: read.best.as_secs_f64(),
                    bytes: read.bytes,
                    first_touch_seconds: read.first.as_secs_f64(),
                    memcpy_bytes_per_second: copied as f64 / time.as_secs_f64(),
                    io: "mmap".to_owned(),
                    ..Once::default()
                };
                Ok(Measured { times: vec![once], answer: None })
            }
            Work::ReadDirect => {
                let read = read::cold(&data::segments(&self.root)?)?;
                let once = Once {
                    seconds: read.best.as_secs_f64(),
                    bytes: read.bytes,
                    depth: read.depth,
                    io: "direct".to_owned(),
                    ..Once::default()
                };
                Ok(Measured { times: vec![once], answer: None })
            }
            Work::Redrive { threads, identity, io, loads } => {
                let mut measured = Measured::default();
                for _ in 0..*loads {
                    let (once, loaded) = redrive_once(&self.root, *threads, *identity, *io)?;
                    measured.times.push(once);
                    if self.answer && measured.times.len() == *loads as usize {
                        measured.answer = Some(answer::of_redrive(&loaded)?);
                    }
                }
                Ok(measured)
            }
            Work::Naive => {
                let (once, partitions) = naive_once(&self.root)?;
                let answer = self.answer.then(|| answer::of_naive(&partitions));
                Ok(Measured { times: vec![once], answer })
            }
        }
    }
}

fn redrive_once(
    root: &Path,
    threads: NonZero<usize>,
    identity: IdentityName,
    io: IoName,
) -> Result<(Once, Loaded), BenchError> {
    let failed = |error: redrive::Error| BenchError::Load(format!("redrive: {error}"));
    let started = Instant::now();
    let loaded = Replay::open(Arc::new(FileSystem), [root])
        .map_err(failed)?
        .threads(threads)
        .identity(identity.into())
        .io(io.into())
        .counts_live_bytes(false)
        .run()
        .map_err(failed)?;
    let mut by_state = BTreeMap::new();
    for (state, count) in loaded.maps().flat_map(|map| map.by_state().iter().collect::<Vec<_>>()) {
        *by_state.entry(state.name()).or_insert(0) += count;
    }
    let pending: Vec<_> = loaded.pending_completion().collect::<Result<_, _>>().map_err(failed)?;
    let elapsed = started.elapsed();

    if let Some(error) = loaded.refused().find_map(|outcome| outcome.error()) {
        return Err(BenchError::Load(format!("redrive refused a partition: {error}")));
    }
    let stats = || loaded.partitions.iter().filter_map(|outcome| outcome.stats());
    let once = Once {
        bytes: stats().map(|stats| stats.bytes).sum(),
        ids: loaded.maps().map(|map| map.len() as u64).sum(),
        records: stats().map(|stats| stats.records).sum(),
        map_bytes: stats().map(|stats| stats.map_bytes).sum(),
        map_bytes_peak: loaded.peak_map_bytes,
        io: loaded.io.name().to_owned(),
        crc: loaded.crc.to_owned(),
        ..found(elapsed, by_state, pending.len())
    };
    Ok((once, loaded))
}

fn naive_once(root: &Path) -> Result<(Once, BTreeMap<i32, NaiveMap>), BenchError> {
    let failed = |error| BenchError::Load(format!("the naive loader: {error}"));
    let started = Instant::now();
    let loaded = naive::load_root(root, TOPIC, &NaiveOptions::default()).map_err(failed)?;
    let partitions: BTreeMap<i32, NaiveMap> = loaded
        .into_iter()
        .map(|(number, map)| map.map(|map| (number, map)))
        .collect::<Result<_, _>>()
        .map_err(failed)?;
    let mut by_state = BTreeMap::new();
    let mut pending = Vec::new();
    for (id, entry) in partitions.values().flat_map(|map| &map.entries) {
        *by_state.entry(entry.state).or_insert(0) += 1;
        if matches!(entry.state, "PrepareCommit" | "PrepareAbort") {
            pending.push((id, entry));
        }
    }
    let elapsed = started.elapsed();

    let once = Once {
        bytes: partitions.values().map(|map| map.bytes).sum(),
        ids: partitions.values().map(|map| map.entries.len() as u64).sum(),
        records: partitions.values().map(|map| map.records).sum(),
        io: "pread".to_owned(),
        ..found(elapsed, by_state, pending.len())
    };
    Ok((once, partitions))
}

/// What both loaders say; read from the system when the clock has stopped.
fn found(elapsed: Duration, by_state: BTreeMap<&'static str, u64>, pending: usize) -> Once {
    Once {
        seconds: elapsed.as_secs_f64(),
        // States without an id are not worth a line, and the two loaders list them differently.
        by_state: by_state
            .into_iter()
            .filter(|(_, count)| *count > 0)
            .map(|(state, count)| (state.to_owned(), count))
            .collect(),
        pending: pending as u64,
        resident_bytes_peak: resident_bytes_peak(),
        ..Once::default()
    }
}

/// `VmHWM` of this process.
fn resident_bytes_peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    let kilobytes = line.split_whitespace().next().and_then(|number| number.parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}
