//! A log directory of its own.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use redrive::log_dir::checkpoint::{
    CleanShutdown, LeaderEpochCheckpoint, LeaderEpochEntry, OffsetCheckpoint, PartitionMetadata, Uuid,
};
use redrive::types::{Offset, TopicPartition};

use super::error::GenerateError;
use super::plan::Plan;
use super::random::Random;
use super::run::{Observer, Written, assign, summarize, write_all};
use super::segments::{Place, replace_file, sync_folder, write_snapshots};
use super::spec::Spec;
use super::summary::Summary;

/// The topic.
pub(super) const TOPIC: &str = "__transaction_state";
pub(super) const LEADER_EPOCHS: &str = "leader-epoch-checkpoint";
pub(super) const RECOVERY_POINTS: &str = "recovery-point-offset-checkpoint";
pub(super) const HIGH_WATERMARKS: &str = "replication-offset-checkpoint";
pub(super) const LOG_STARTS: &str = "log-start-offset-checkpoint";
pub(super) const CLEANED: &str = "cleaner-offset-checkpoint";
pub(super) const CLEAN_SHUTDOWN: &str = ".kafka_cleanshutdown";
/// Stream of the seed that makes the topic's id.
const STREAM: u64 = u64::MAX - 1;

/// Makes a log directory, as a broker that was stopped cleanly leaves it, but for `meta.properties`.
///
/// `out` must be absent, in a folder that exists, or an empty directory. It gets its content in one step at the end: the
/// work is done in a folder beside it, which is removed if it fails. The same [`Spec`] gives the same bytes.
///
/// Cost: on one thread some seconds per GB, mostly of the device; memory is said at the [module](super).
///
/// # Errors
/// [`GenerateError::Spec`], [`GenerateError::Occupied`], [`GenerateError::Io`], [`GenerateError::Cancelled`].
pub fn generate(spec: &Spec, out: &Path, observer: &mut dyn Observer) -> Result<Summary, GenerateError> {
    let plan = Plan::new(spec)?;
    let (target, parent) = target(out)?;
    let assignment = assign(&plan, observer)?;
    let staging = Staging::beside(&target, &parent)?;
    let root = &staging.0;

    let topic_id = topic_id(plan.seed);
    let mut places = Vec::new();
    for partition in 0..plan.partitions.get() {
        let folder = root.join(format!("{TOPIC}-{partition}"));
        fs::create_dir(&folder).map_err(GenerateError::io("create", &folder))?;
        let place = Place { folder, suffix: "", owner: None, leader_epoch: 0 };
        place.write(&place.folder.join("partition.metadata"), topic_id.encode().as_bytes())?;
        places.push(place);
    }
    let written = write_all(&plan, &assignment, &places, observer)?;
    for (place, written) in places.iter().zip(&written) {
        finish_partition(place, written)?;
    }
    let place = Place { folder: root.clone(), suffix: "", owner: None, leader_epoch: 0 };
    let ends = OffsetCheckpoint { entries: end_offsets(&written).collect(), repeated: Vec::new() };
    for (name, checkpoint) in [
        (RECOVERY_POINTS, &ends),
        (HIGH_WATERMARKS, &ends),
        (LOG_STARTS, &OffsetCheckpoint::default()),
        (CLEANED, &OffsetCheckpoint::default()),
    ] {
        replace_file(&place, name, checkpoint.encode().as_bytes())?;
    }
    sync_folder(root)?;
    place.write(&root.join(CLEAN_SHUTDOWN), CleanShutdown::encode(1).as_bytes())?;
    sync_folder(root)?;
    staging.publish(&target)?;
    sync_folder(&parent)?;
    Ok(summarize(written))
}

/// Where the directory goes, links followed, and the folder that holds it.
fn target(out: &Path) -> Result<(PathBuf, PathBuf), GenerateError> {
    let occupied = || GenerateError::Occupied { path: out.to_path_buf() };
    let target = match fs::canonicalize(out) {
        Ok(found) => {
            let mut entries = match fs::read_dir(&found) {
                Ok(entries) => entries,
                Err(e) if e.kind() == io::ErrorKind::NotADirectory => return Err(occupied()),
                Err(e) => return Err(GenerateError::io("list", out)(e)),
            };
            if entries.next().is_some() {
                return Err(occupied());
            }
            found
        }
        // A link that leads nowhere is there, too.
        Err(e) if e.kind() == io::ErrorKind::NotFound && fs::symlink_metadata(out).is_err() => {
            let parent = out.parent().filter(|parent| !parent.as_os_str().is_empty());
            let parent = parent.unwrap_or(Path::new("."));
            let name = out.file_name().ok_or_else(occupied)?;
            fs::canonicalize(parent).map_err(GenerateError::io("open", parent))?.join(name)
        }
        Err(e) => return Err(GenerateError::io("open", out)(e)),
    };
    match target.parent() {
        Some(parent) => Ok((target.clone(), parent.to_path_buf())),
        // The root of the file system.
        None => Err(occupied()),
    }
}

/// A folder that goes away with its content, unless it was published.
#[derive(Debug)]
struct Staging(PathBuf);

impl Staging {
    fn beside(target: &Path, parent: &Path) -> Result<Self, GenerateError> {
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        let path = parent.join(format!(".{name}.generating-{}", std::process::id()));
        fs::create_dir(&path).map_err(GenerateError::io("create", &path))?;
        Ok(Self(path))
    }

    fn publish(mut self, target: &Path) -> Result<(), GenerateError> {
        // Takes the place of an empty directory, and of nothing else.
        fs::rename(&self.0, target).map_err(GenerateError::io("create", target))?;
        self.0 = PathBuf::new();
        Ok(())
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if !self.0.as_os_str().is_empty() {
            // There is no better place to say that it could not be removed than the error that led here.
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}

fn topic_id(seed: u64) -> PartitionMetadata {
    let mut random = Random::new(seed, STREAM);
    let bits = u128::from(random.next()) << 64 | u128::from(random.next());
    // A random UUID has its version and variant; it is never the zero that Kafka keeps for itself.
    let bits = bits & !(0xf << 76) & !(0x3 << 62) | 4 << 76 | 2 << 62;
    PartitionMetadata { version: 0, topic_id: Uuid(bits.to_be_bytes()) }
}

/// Writes what stands beside the segments of a partition.
///
/// # Errors
/// [`GenerateError::Io`].
pub(super) fn finish_partition(place: &Place, written: &Written) -> Result<(), GenerateError> {
    write_snapshots(place, &written.bases, written.summary.log_end_offset)?;
    let entry = LeaderEpochEntry { epoch: place.leader_epoch, start_offset: Offset(0) };
    let epochs = LeaderEpochCheckpoint { entries: vec![entry], dropped: 0 };
    replace_file(place, LEADER_EPOCHS, epochs.encode().as_bytes())?;
    sync_folder(&place.folder)
}

/// The log end offset of every partition.
pub(super) fn end_offsets(written: &[Written]) -> impl Iterator<Item = (TopicPartition, Offset)> {
    written.iter().map(|written| {
        let summary = &written.summary;
        (TopicPartition::new(TOPIC, summary.partition), Offset(summary.log_end_offset))
    })
}
