//! Unfinished work in a partition's folder, finished or undone, as Kafka's LogLoader does it.

use std::path::Path;
use std::sync::Arc;

use crate::error::Error;
use crate::io::{EntryKind, Storage, remove_if_there};
use crate::segment::{Segment, SegmentFileKind, SegmentFileName, SegmentFileState};
use crate::types::Offset;

/// Removes `.deleted` and `.cleaned` files and lets `.swap` files take the place of what they cover. Returns the names
/// of files that went or were renamed. May be cut off at any point and begun again.
///
/// # Errors
/// [`Error::Io`]; [`Error::Corrupt`] for a `.log.swap` file that cannot be walked.
pub(super) fn tidy_up(storage: &Arc<dyn Storage>, directory: &Path) -> Result<Vec<String>, Error> {
    let mut tidied = Vec::new();
    let mut files = list(&**storage, directory)?;
    let mut remove = |names: Vec<String>| -> Result<(), Error> {
        for name in names {
            let path = directory.join(&name);
            remove_if_there(&**storage, &path).map_err(Error::io("remove", path))?;
            tidied.push(name);
        }
        Ok(())
    };
    let in_state = |files: &[SegmentFileName], state| -> Vec<SegmentFileName> {
        files.iter().copied().filter(|name| name.state == state).collect()
    };
    let names = |files: &[SegmentFileName]| files.iter().map(ToString::to_string).collect::<Vec<_>>();

    remove(names(&in_state(&files, SegmentFileState::Deleted)))?;
    let cleaned = in_state(&files, SegmentFileState::Cleaned);
    let mut swaps = in_state(&files, SegmentFileState::Swap);
    // A cleaning that did not get as far as renaming all of its files is void, and all of them with it.
    if let Some(void_from) = cleaned.iter().map(|name| name.offset).min() {
        let void: Vec<SegmentFileName> = swaps.extract_if(.., |name| name.offset >= void_from).collect();
        remove(names(&void))?;
        // Before the files that say so are gone.
        sync(&**storage, directory)?;
    }
    remove(names(&cleaned))?;

    let mut covered: Option<(Offset, Offset)> = None;
    for swap in swaps.iter().filter(|name| name.kind == SegmentFileKind::Log) {
        let segment = Segment::open(Arc::clone(storage), directory, swap.offset, SegmentFileState::Swap)?;
        let next = segment.end_by_walk()?;
        let (low, high) = covered.unwrap_or((swap.offset, next));
        covered = Some((low.min(swap.offset), high.max(next)));
    }
    if let Some((low, high)) = covered {
        files = list(&**storage, directory)?;
        let replaced: Vec<SegmentFileName> = files
            .iter()
            .copied()
            .filter(|name| name.state == SegmentFileState::Live && low <= name.offset && name.offset < high)
            .collect();
        remove(names(&replaced))?;
        sync(&**storage, directory)?;
    }
    // The log first: should this be cut off, an index without its log is not taken for complete (H-7).
    swaps.sort_by_key(|name| (name.kind != SegmentFileKind::Log, name.offset));
    for swap in &swaps {
        let live = SegmentFileName { state: SegmentFileState::Live, ..*swap };
        let from = directory.join(swap.to_string());
        storage.rename(&from, &directory.join(live.to_string())).map_err(Error::io("rename", from))?;
        tidied.push(swap.to_string());
    }
    if !tidied.is_empty() {
        sync(&**storage, directory)?;
    }
    Ok(tidied)
}

fn sync(storage: &dyn Storage, directory: &Path) -> Result<(), Error> {
    storage.sync_directory(directory).map_err(Error::io("bring to the device", directory))
}

fn list(storage: &dyn Storage, directory: &Path) -> Result<Vec<SegmentFileName>, Error> {
    let entries = storage.list(directory).map_err(Error::io("list", directory))?;
    let files = entries.iter().filter(|entry| matches!(entry.kind, EntryKind::File { .. }));
    Ok(files.filter_map(|entry| entry.name.to_str().and_then(SegmentFileName::parse)).collect())
}
