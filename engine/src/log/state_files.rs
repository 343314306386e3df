//! The small files of a partition's folder that a log writes: producer snapshots and leader epochs.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::checkpoint::LeaderEpochCheckpoint;
use super::epochs::LeaderEpochFileCache;
use crate::error::Error;
use crate::io::{EntryKind, Storage, read_small, remove_if_there, replace_file};
use crate::producer_state::ProducerSnapshot;
use crate::segment::{SegmentFileKind, SegmentFileName, SegmentFileState};
use crate::types::Offset;

const LEADER_EPOCHS: &str = "leader-epoch-checkpoint";
/// Most bytes of a leader-epoch checkpoint: half a million epochs.
const LEADER_EPOCHS_BYTES_MAX: usize = 16 << 20;
/// Most bytes of a producer snapshot: 46 million producers.
const SNAPSHOT_BYTES_MAX: usize = i32::MAX as usize;

pub(super) fn snapshot_path(directory: &Path, offset: Offset) -> PathBuf {
    let name = SegmentFileName { offset, kind: SegmentFileKind::Snapshot, state: SegmentFileState::Live }
        .to_string();
    directory.join(name)
}

/// Writes a snapshot in one step; on the device when this returns.
pub(super) fn write_snapshot(
    storage: &dyn Storage,
    directory: &Path,
    offset: Offset,
    snapshot: &ProducerSnapshot,
) -> Result<(), Error> {
    let path = snapshot_path(directory, offset);
    let bytes = snapshot
        .encode()
        .map_err(|fault| Error::io("write", &path)(std::io::Error::new(ErrorKind::FileTooLarge, fault)))?;
    replace_file(storage, &path, &bytes).map_err(Error::io("write", path))
}

/// A snapshot, or why it cannot be used.
pub(super) fn read_snapshot(
    storage: &dyn Storage,
    directory: &Path,
    offset: Offset,
) -> Result<Result<ProducerSnapshot, String>, Error> {
    let path = snapshot_path(directory, offset);
    match read_small(storage, &path, SNAPSHOT_BYTES_MAX) {
        Ok(bytes) => Ok(ProducerSnapshot::parse(&bytes).map_err(|fault| fault.to_string())),
        Err(e) if e.kind() == ErrorKind::FileTooLarge => Ok(Err(e.to_string())),
        Err(e) => Err(Error::io("read", path)(e)),
    }
}

/// Removes a snapshot that need not be there.
pub(super) fn remove_snapshot(
    storage: &dyn Storage,
    directory: &Path,
    offset: Offset,
) -> Result<bool, Error> {
    let path = snapshot_path(directory, offset);
    remove_if_there(storage, &path).map_err(Error::io("remove", path))
}

/// Writes the leader epochs in one step; on the device when this returns.
pub(super) fn write_epochs(
    storage: &dyn Storage,
    directory: &Path,
    epochs: &LeaderEpochFileCache,
) -> Result<(), Error> {
    let path = directory.join(LEADER_EPOCHS);
    replace_file(storage, &path, epochs.encode().as_bytes()).map_err(Error::io("write", path))
}

/// The leader epochs of the file; none where there is no file.
///
/// # Errors
/// [`Error::Io`], and [`Error::Checkpoint`] for a malformed file.
pub(super) fn read_epochs(storage: &dyn Storage, directory: &Path) -> Result<LeaderEpochFileCache, Error> {
    let path = directory.join(LEADER_EPOCHS);
    match read_small(storage, &path, LEADER_EPOCHS_BYTES_MAX) {
        Ok(bytes) => match LeaderEpochCheckpoint::parse(&bytes) {
            Ok(checkpoint) => Ok(LeaderEpochFileCache::from_checkpoint(checkpoint)),
            Err(fault) => Err(Error::Checkpoint { path, reason: fault.to_string() }),
        },
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(LeaderEpochFileCache::default()),
        Err(e) => Err(Error::io("read", path)(e)),
    }
}

/// Offsets of the snapshots in a folder, rising.
pub(super) fn list_snapshots(storage: &dyn Storage, directory: &Path) -> Result<Vec<Offset>, Error> {
    let entries = storage.list(directory).map_err(Error::io("list", directory))?;
    let mut offsets: Vec<Offset> = entries
        .iter()
        .filter(|entry| matches!(entry.kind, EntryKind::File { .. }))
        .filter_map(|entry| entry.name.to_str().and_then(SegmentFileName::parse))
        .filter(|name| name.kind == SegmentFileKind::Snapshot && name.state == SegmentFileState::Live)
        .map(|name| name.offset)
        .collect();
    offsets.sort_unstable();
    Ok(offsets)
}
