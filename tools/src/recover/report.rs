//! The recovery itself, and what is to be told of it.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use redrive::Error;
use redrive::io::{Storage, read_small};
use redrive::log::{Log, LogConfig, LogRecovery};
use redrive::log_dir::checkpoint::CleanShutdown;
use redrive::log_dir::{LogDir, LogRoot, Notice, OpenOptions};
use redrive::segment::{Segment, SegmentFileState};
use redrive::types::{Offset, TopicPartition};

use crate::failure::Failure;
use crate::json::ErrorJson;
use crate::text::now_ms;

/// The file of a root that says that it was cleanly shut down.
const CLEAN_SHUTDOWN: &str = ".kafka_cleanshutdown";
/// Most bytes that are read of it.
const CLEAN_SHUTDOWN_BYTES_MAX: usize = 64 << 10;

/// How to recover.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) threads: NonZero<usize>,
    pub(super) may_reset: bool,
    pub(super) index_interval_bytes: u32,
    pub(super) segment_index_bytes: u32,
}

/// What was done to a root.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) root: PathBuf,
    /// Whether it had been shut down cleanly.
    pub(super) was_clean: bool,
    /// All partitions, sorted.
    pub(super) partitions: Vec<PartitionReport>,
    /// Folders and files that were passed over.
    pub(super) notices: Vec<Notice>,
}

/// What became of a partition.
#[derive(Debug)]
pub(super) struct PartitionReport {
    pub(super) topic_partition: TopicPartition,
    pub(super) outcome: Outcome,
}

#[derive(Debug)]
pub(super) enum Outcome {
    Recovered(Recovered),
    Refused {
        sentence: String,
        /// Whether leave to empty the log would help.
        needs_reset: bool,
        error: Box<ErrorJson>,
    },
}

/// A partition that is fit for use.
#[derive(Debug)]
pub(super) struct Recovered {
    pub(super) log_start_offset: Offset,
    pub(super) log_end_offset: Offset,
    pub(super) recovery: LogRecovery,
    /// Of each segment that was cut, by its base offset: the first offset that went.
    pub(super) cut_at: BTreeMap<Offset, Offset>,
}

impl PartitionReport {
    /// Whether nothing was lost, nor refused.
    pub(super) fn is_fine(&self) -> bool {
        self.recovered().is_some_and(|recovered| !recovered.recovery.lost_records())
    }

    pub(super) fn recovered(&self) -> Option<&Recovered> {
        match &self.outcome {
            Outcome::Recovered(recovered) => Some(recovered),
            Outcome::Refused { .. } => None,
        }
    }
}

impl Recovered {
    /// Whether anything had to be done.
    pub(super) fn is_changed(&self) -> bool {
        let LogRecovery { tidied, segments, producers, epochs_changed, .. } = &self.recovery;
        self.recovery.lost_records()
            || !(tidied.is_empty() && segments.is_empty() && producers.unusable.is_empty())
            || *epochs_changed
    }
}

impl Report {
    /// The partitions that are fit for use.
    pub(super) fn recovered(&self) -> impl Iterator<Item = &Recovered> {
        self.partitions.iter().filter_map(PartitionReport::recovered)
    }

    /// Segments that were gone through.
    pub(super) fn segments(&self) -> usize {
        self.recovered().map(|recovered| recovered.recovery.segments.len()).sum()
    }

    /// Bytes that went, by cut.
    pub(super) fn cuts(&self) -> impl Iterator<Item = u64> {
        let segments = self.recovered().flat_map(|recovered| &recovered.recovery.segments);
        segments.filter_map(|segment| Some(segment.cut.as_ref()?.bytes))
    }

    /// Segments that went because they lay behind a cut.
    pub(super) fn dropped(&self) -> usize {
        self.recovered().map(|recovered| recovered.recovery.dropped.len()).sum()
    }

    /// Logs that were emptied.
    pub(super) fn resets(&self) -> usize {
        self.recovered().filter(|recovered| recovered.recovery.was_reset).count()
    }

    /// Partitions that could not be opened.
    pub(super) fn refused(&self) -> usize {
        self.partitions.len() - self.recovered().count()
    }

    /// Partitions to which something was done.
    pub(super) fn changed(&self) -> usize {
        self.recovered().filter(|recovered| recovered.is_changed()).count()
    }
}

/// Recovers a root and closes it; the second result says how the closing went.
pub(super) fn recover(
    storage: Arc<dyn Storage>,
    directory: &Path,
    settings: &Settings,
    shows_progress: bool,
) -> Result<(Report, Result<(), Error>), Failure> {
    // What is to be opened for writing is made if it is not there: a slip of the pen must not make a folder.
    let found = LogDir::open(Arc::clone(&storage), directory)?;
    let resolved = storage.resolve(directory).map_err(|source| Error::Io {
        operation: "open",
        path: directory.to_path_buf(),
        source,
    })?;
    if found.root() != resolved {
        return Err(Failure::Usage(format!(
            "{} is the folder of one partition: give the log directory that it lies in",
            directory.display()
        )));
    }
    let broker_epoch = read_small(&*storage, &resolved.join(CLEAN_SHUTDOWN), CLEAN_SHUTDOWN_BYTES_MAX)
        .ok()
        .and_then(|bytes| CleanShutdown::parse(&bytes).broker_epoch);

    let now_ms = now_ms();
    let config = LogConfig {
        index_interval_bytes: settings.index_interval_bytes,
        segment_index_bytes: settings.segment_index_bytes,
        // Nobody reads what is dropped.
        file_delete_delay_ms: 0,
        ..LogConfig::default()
    };
    let bar = progress_bar(shows_progress);
    let progress = |_, total: usize| {
        bar.set_length(total as u64);
        bar.inc(1);
    };
    let opened = LogRoot::open(
        Arc::clone(&storage),
        &resolved,
        &OpenOptions {
            threads: settings.threads,
            config: &|_| config.clone(),
            may_reset: settings.may_reset,
            now_ms,
            progress: Some(&progress),
        },
    );
    bar.finish_and_clear();
    let (root, recovery) = opened?;
    let was_clean = recovery.was_clean;
    let mut partitions = Vec::with_capacity(recovery.partitions.len() + root.failed().len());
    for (topic_partition, recovery) in recovery.partitions {
        let Some(log) = root.log(&topic_partition) else { continue };
        log.remove_deleted(now_ms)?;
        let recovered = Recovered {
            log_start_offset: log.log_start_offset(),
            log_end_offset: log.log_end_offset(),
            cut_at: cut_at(&storage, &log, &recovery)?,
            recovery,
        };
        partitions.push(PartitionReport { topic_partition, outcome: Outcome::Recovered(recovered) });
    }
    partitions.extend(root.failed().iter().map(|(topic_partition, error)| PartitionReport {
        topic_partition: topic_partition.clone(),
        outcome: Outcome::Refused {
            sentence: error.to_string(),
            needs_reset: matches!(error, Error::EndsBelowLogStart { .. }),
            error: Box::new(error.into()),
        },
    }));
    partitions.sort_by(|a, b| a.topic_partition.cmp(&b.topic_partition));
    let report =
        Report { root: root.path().to_path_buf(), was_clean, partitions, notices: root.notices().to_vec() };
    // The epoch of the last run says that nothing it wrote is missing.
    let keeps_epoch = was_clean && report.partitions.iter().all(PartitionReport::is_fine);
    let closed = root.close(broker_epoch.filter(|_| keeps_epoch).unwrap_or(-1));
    Ok((report, closed))
}

/// Where the segments end that were cut and are still there.
fn cut_at(
    storage: &Arc<dyn Storage>,
    log: &Log,
    recovery: &LogRecovery,
) -> Result<BTreeMap<Offset, Offset>, Error> {
    let there: BTreeSet<Offset> = log.segment_base_offsets().into_iter().collect();
    let mut ends = BTreeMap::new();
    for segment in recovery.segments.iter().filter(|segment| segment.cut.is_some()) {
        let base_offset = segment.base_offset;
        if there.contains(&base_offset) {
            let storage = Arc::clone(storage);
            let segment = Segment::open(storage, &log.directory(), base_offset, SegmentFileState::Live)?;
            ends.insert(base_offset, segment.next_offset()?);
        }
    }
    Ok(ends)
}

fn progress_bar(shows: bool) -> ProgressBar {
    let target = if shows { ProgressDrawTarget::stderr_with_hz(10) } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(None, target);
    if let Ok(style) = ProgressStyle::with_template("  {wide_bar} {pos} of {len} partitions · {eta} left") {
        bar.set_style(style.progress_chars("█▉▊▋▌▍▎▏ "));
    }
    bar
}
