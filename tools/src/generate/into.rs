//! The folders of a stopped broker.
//!
//! A broker only serves folders whose topic id its cluster knows, so the segments go into the folders that it made
//! itself. The new files are written beside the old ones as `.cleaned`, which every broker removes at its start. Only
//! when all of them are complete and on disk:
//!
//! 1. the mark of a clean stop is taken away;
//! 2. in every folder the old segments go, the new ones get their names, and what stands beside them is renewed;
//! 3. the checkpoints get the new ends: recovery point and high watermark; log start and cleaner forget the topic;
//! 4. the mark comes back, if it was there.
//!
//! Until step 1 everything can be undone, and is. What fails later leaves a root that counts as not stopped cleanly.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use redrive::io::FileSystem;
use redrive::log_dir::checkpoint::{LeaderEpochCheckpoint, OffsetCheckpoint, PartitionMetadata};
use redrive::log_dir::{LogDir, PartitionDir};
use redrive::segment::{SegmentFileKind, SegmentFileName, SegmentFileState};

use super::error::GenerateError;
use super::out::{
    CLEAN_SHUTDOWN, CLEANED, HIGH_WATERMARKS, LEADER_EPOCHS, LOG_STARTS, RECOVERY_POINTS, TOPIC, end_offsets,
    finish_partition,
};
use super::plan::Plan;
use super::run::{Observer, Written, assign, summarize, write_all};
use super::segments::{KINDS, Place, replace_file, sync_folder};
use super::spec::Spec;
use super::summary::Summary;

const STAGED: &str = ".cleaned";

/// Replaces the transaction log of a stopped broker: all segments of `__transaction_state` in its log directory.
///
/// [`Spec::partitions`] must be the number of partitions that the broker has. Batches get the newest leader epoch of
/// their partition; new files belong to the owner of their folder. Other topics are not touched. The broker's lock is
/// held meanwhile.
///
/// # Errors
/// [`GenerateError::Held`] for the directory of a running broker; [`GenerateError::Unfit`] if the topic is not there,
/// not with all its partitions, or some file is not what it should be; [`GenerateError::HalfReplaced`] if the files
/// could not be exchanged; [`GenerateError::Spec`], [`GenerateError::Io`], [`GenerateError::Engine`],
/// [`GenerateError::Cancelled`]. After all but `HalfReplaced`, every file is as it was, except that
/// `.cleaned` files of an earlier crash may be gone.
pub fn generate_into(
    spec: &Spec,
    broker_dir: &Path,
    observer: &mut dyn Observer,
) -> Result<Summary, GenerateError> {
    let plan = Plan::new(spec)?;
    let dir = LogDir::open(Arc::new(FileSystem), broker_dir)?;
    if dir.is_held() {
        return Err(GenerateError::Held { path: broker_dir.to_path_buf() });
    }
    let _lock = lock(dir.root(), broker_dir)?;
    let places = places(&dir, spec)?;
    let checkpoints = Checkpoints::read(dir.root())?;
    let assignment = assign(&plan, observer)?;
    let staged = Staged(&places);
    let written = write_all(&plan, &assignment, &places, observer)?;
    let root = dir.root();
    // From here on undoing would make it worse.
    std::mem::forget(staged);
    exchange(root, &places, &written, checkpoints).map_err(|source| GenerateError::HalfReplaced {
        path: root.to_path_buf(),
        source: Box::new(source),
    })?;
    Ok(summarize(written))
}

/// Partitions of `__transaction_state` in a log directory.
///
/// # Errors
/// [`GenerateError::Engine`].
pub(super) fn partitions_of(broker_dir: &Path) -> Result<usize, GenerateError> {
    let dir = LogDir::open(Arc::new(FileSystem), broker_dir)?;
    Ok(dir.partitions().iter().filter(|folder| folder.topic_partition.topic == TOPIC).count())
}

/// Takes the lock that a broker takes, as it takes it: the whole file, exclusively, by `fcntl`. Released when dropped.
fn lock(root: &Path, given: &Path) -> Result<File, GenerateError> {
    let path = root.join(".lock");
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
    let file = file.map_err(GenerateError::io("open", &path))?;
    let wanted = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    match fcntl(&file, FcntlArg::F_OFD_SETLK(&wanted)) {
        Ok(_) => Ok(file),
        Err(Errno::EAGAIN | Errno::EACCES) => Err(GenerateError::Held { path: given.to_path_buf() }),
        Err(e) => Err(GenerateError::io("lock", path)(e.into())),
    }
}

/// The folders of the topic, by partition.
fn places(dir: &LogDir, spec: &Spec) -> Result<Vec<Place>, GenerateError> {
    let unfit = |path: &Path, reason: String| GenerateError::Unfit { path: path.to_path_buf(), reason };
    let folders: Vec<&PartitionDir> =
        dir.partitions().iter().filter(|folder| folder.topic_partition.topic == TOPIC).collect();
    if folders.is_empty() {
        return Err(unfit(
            dir.root(),
            format!("it has no partition of {TOPIC}; the broker has to make them first"),
        ));
    }
    let wanted = spec.partitions.get();
    let numbers = folders.iter().map(|folder| folder.topic_partition.partition.unsigned_abs());
    if !numbers.eq(0..wanted) {
        let reason = format!(
            "it holds {} partitions of {TOPIC}, and not those from 0 to {}",
            folders.len(),
            wanted - 1
        );
        return Err(unfit(dir.root(), reason));
    }
    let mut topic_id = None;
    let mut places = Vec::new();
    for folder in folders {
        let path = &folder.path;
        let metadata = fs::symlink_metadata(path).map_err(GenerateError::io("open", path))?;
        if !metadata.is_dir() {
            return Err(unfit(path, "it is a link".to_owned()));
        }
        let read = |name: &str| read_if_there(&path.join(name));
        let Some(identity) = read("partition.metadata")? else {
            return Err(unfit(
                path,
                "it has no partition.metadata, and a broker would not know it".to_owned(),
            ));
        };
        let identity = PartitionMetadata::parse(&identity)
            .map_err(|fault| unfit(path, format!("its partition.metadata cannot be read: {fault}")))?;
        if *topic_id.get_or_insert(identity.topic_id) != identity.topic_id {
            return Err(unfit(path, "its topic id is not that of partition 0".to_owned()));
        }
        let epochs = LeaderEpochCheckpoint::parse(&read(LEADER_EPOCHS)?.unwrap_or_default())
            .map_err(|fault| unfit(path, format!("its {LEADER_EPOCHS} cannot be read: {fault}")))?;
        let owner = (metadata.uid(), metadata.gid());
        let own = (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
        places.push(Place {
            folder: path.clone(),
            suffix: STAGED,
            owner: (owner != own).then_some(owner),
            leader_epoch: epochs.entries.last().map_or(0, |entry| entry.epoch),
        });
    }
    Ok(places)
}

fn read_if_there(path: &Path) -> Result<Option<Vec<u8>>, GenerateError> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(GenerateError::io("read", path)(e)),
    }
}

/// Removes the files of a work that does not come to its end.
struct Staged<'a>(&'a [Place]);

impl Drop for Staged<'_> {
    fn drop(&mut self) {
        for place in self.0 {
            // What cannot be removed is removed by the broker.
            for path in segment_files(&place.folder).into_iter().flatten() {
                if path.0.state == SegmentFileState::Cleaned {
                    let _ = fs::remove_file(path.1);
                }
            }
        }
    }
}

/// Segment files of a folder, of any kind and state.
fn segment_files(folder: &Path) -> Result<Vec<(SegmentFileName, PathBuf)>, GenerateError> {
    let failed = |e| GenerateError::io("list", folder)(e);
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if let Some(name) = entry.file_name().to_str().and_then(SegmentFileName::parse) {
            files.push((name, entry.path()));
        }
    }
    Ok(files)
}

/// The checkpoint files of the root, as they were.
struct Checkpoints {
    /// By name.
    files: Vec<(&'static str, OffsetCheckpoint)>,
    clean_shutdown: Option<Vec<u8>>,
}

impl Checkpoints {
    fn read(root: &Path) -> Result<Self, GenerateError> {
        let mut files = Vec::new();
        for name in [RECOVERY_POINTS, HIGH_WATERMARKS, LOG_STARTS, CLEANED] {
            let path = root.join(name);
            let bytes = read_if_there(&path)?.unwrap_or_default();
            let checkpoint = OffsetCheckpoint::parse(&bytes).map_err(|fault| GenerateError::Unfit {
                path,
                reason: format!("it cannot be read: {fault}"),
            })?;
            files.push((name, checkpoint));
        }
        Ok(Self { files, clean_shutdown: read_if_there(&root.join(CLEAN_SHUTDOWN))? })
    }
}

/// Puts the new files in the place of the old ones.
fn exchange(
    root: &Path,
    places: &[Place],
    written: &[Written],
    checkpoints: Checkpoints,
) -> Result<(), GenerateError> {
    let metadata = fs::metadata(root).map_err(GenerateError::io("open", root))?;
    let place = Place {
        folder: root.to_path_buf(),
        suffix: "",
        owner: places.first().and_then(|place| place.owner).map(|_| (metadata.uid(), metadata.gid())),
        leader_epoch: 0,
    };
    let mark = root.join(CLEAN_SHUTDOWN);
    if checkpoints.clean_shutdown.is_some() {
        fs::remove_file(&mark).map_err(GenerateError::io("remove", &mark))?;
        sync_folder(root)?;
    }
    for (place, written) in places.iter().zip(written) {
        exchange_segments(place, written)?;
        finish_partition(place, written)?;
    }
    for (name, mut checkpoint) in checkpoints.files {
        checkpoint.entries.retain(|(partition, _)| partition.topic != TOPIC);
        if matches!(name, RECOVERY_POINTS | HIGH_WATERMARKS) {
            checkpoint.entries.extend(end_offsets(written));
        }
        replace_file(&place, name, checkpoint.encode().as_bytes())?;
    }
    sync_folder(root)?;
    if let Some(content) = checkpoints.clean_shutdown {
        place.write(&mark, &content)?;
        sync_folder(root)?;
    }
    Ok(())
}

/// Removes the old segments, with all that a cleaner or a crash has left, and names the new ones.
fn exchange_segments(place: &Place, written: &Written) -> Result<(), GenerateError> {
    for (name, path) in segment_files(&place.folder)? {
        let is_new = name.state == SegmentFileState::Cleaned
            && matches!(
                name.kind,
                SegmentFileKind::Log | SegmentFileKind::OffsetIndex | SegmentFileKind::TimeIndex
            )
            && written.bases.binary_search(&name.offset.0).is_ok();
        if !is_new {
            fs::remove_file(&path).map_err(GenerateError::io("remove", path))?;
        }
    }
    let named = Place { suffix: "", ..place.clone() };
    for &base in &written.bases {
        for kind in KINDS {
            let path = named.path(base, kind);
            fs::rename(place.path(base, kind), &path).map_err(GenerateError::io("create", path))?;
        }
    }
    Ok(())
}
