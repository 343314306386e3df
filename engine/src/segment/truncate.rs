//! Cutting the last segment of a log.

use std::sync::Arc;

use super::files::Location;
use super::index::TimeIndexEntry;
use super::walk::Walk;
use super::{Segment, SegmentFileKind, SegmentFileState, SegmentWriter, TimestampOffset};
use crate::error::Error;
use crate::io::{WritableFile, remove_if_there};
use crate::types::Offset;

/// Bytes copied at once.
const COPY_BYTES: u64 = 1 << 20;

impl SegmentWriter {
    /// Removes the batch that holds `offset`, or the first one above it, and all behind it; entries of the indexes at
    /// `offset` and above go as well, and what is left of the indexes gets its full length again. Everything is on the
    /// device when this returns. The number of bytes that were cut off is returned.
    ///
    /// Readers of the segment as it was go on undisturbed: where there are any, or may be since the file was there when the
    /// segment was opened, what is kept is copied to a new file that takes the place of the old one, and
    /// [`segment`](Self::segment) is another one afterwards. A copy costs as much time and room as the bytes kept.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Corrupt`] where no batch can be read on the way.
    pub fn truncate_to(&mut self, offset: Offset, now_ms: i64) -> Result<u64, Error> {
        let segment = &self.segment;
        let size = segment.size();
        let kept = segment.find(offset)?.map_or(size, |found| found.position);
        let index_bytes = self.config.index_bytes_max as usize;
        let offset_index = segment.offset_index()?.truncated(offset, index_bytes);
        let time_index = segment.time_index()?.truncated(offset, index_bytes);
        let transactions: Vec<_> =
            segment.aborted_transactions()?.take_while(|entry| entry.last_offset < offset).collect();
        let max_before = segment.max_timestamp_so_far()?;

        // The indexes first: shorter than they could be, they are still right if this ends half-way.
        let (storage, location) = (Arc::clone(&segment.storage), segment.location());
        {
            let mut files = segment.files();
            files.keep(&*storage, &location, offset_index.len(), time_index.len())?;
            files.write(&*storage, &location, &offset_index, &time_index)?;
            files.keep_transactions(&*storage, &location, transactions.len())?;
            files.grow(&*storage, &location, offset_index.capacity(), time_index.capacity())?;
            for (path, file) in files.open_files(&*storage, &location)? {
                file.sync_data().map_err(Error::io("bring to the device", path))?;
            }
            // A flush of the segment as it was must not write the entries again that have just been cut off.
            files.is_detached = true;
        }
        let (log, is_own_log) =
            cut_log(&mut self.segment, kept).inspect_err(|_| self.segment.files().is_detached = false)?;
        let cut = Segment::new(storage, location, log, kept, is_own_log);
        cut.log.reserve(self.config.segment_bytes_max.into());
        cut.set_indexes(offset_index, time_index);
        cut.set_transactions(transactions);
        *cut.files() = self.segment.files().detach();
        cut.set_max_timestamp(if max_before.timestamp >= 0 { largest_of(&cut)? } else { max_before });
        self.segment = Arc::new(cut);
        self.bytes_since_entry = 0;
        self.pending_entries = 0;
        if kept == 0 {
            self.created_ms = now_ms;
            self.roll_reference = None;
        }
        Ok(size - kept)
    }
}

/// The largest timestamp by the last entry of the time index and the batches behind it.
fn largest_of(segment: &Segment) -> Result<TimestampOffset, Error> {
    let TimeIndexEntry { timestamp, offset } = segment.time_index()?.last_entry();
    let mut largest = TimestampOffset { timestamp, offset };
    let bytes = segment.bytes()?;
    let position = segment.offset_index()?.lookup(offset).position;
    let mut walk = Walk::new(&bytes, u64::try_from(position).unwrap_or(0));
    while let Some(found) = walk.next_whole().map_err(|fault| segment.frame_fault(walk.position(), fault))? {
        if found.frame.max_timestamp() > largest.timestamp {
            let offset = found.frame.last_offset();
            largest = TimestampOffset { timestamp: found.frame.max_timestamp(), offset };
        }
    }
    Ok(largest)
}

/// A log file with the first `kept` bytes of the segment's, on the device, under its name; and whether it was made here.
/// The same file where nothing is cut off, or it was made here and nobody else has it; else a new one.
pub(super) fn cut_log(segment: &mut Arc<Segment>, kept: u64) -> Result<(Arc<dyn WritableFile>, bool), Error> {
    let path = segment.path(SegmentFileKind::Log);
    let size = segment.log.size().map_err(Error::io("look at the length of", &path))?;
    if kept == size {
        return Ok((Arc::clone(&segment.log), segment.is_own_log));
    }
    if segment.is_own_log
        && let Some(owned) = Arc::get_mut(segment)
        && let Some(log) = Arc::get_mut(&mut owned.log)
    {
        match log.shorten(kept) {
            Ok(()) => {
                log.sync_data().map_err(Error::io("bring to the device", &path))?;
                owned.set_size(kept);
                return Ok((Arc::clone(&owned.log), true));
            }
            Err(e) if e.kind() == std::io::ErrorKind::ResourceBusy => {}
            Err(e) => return Err(Error::io("shorten", path)(e)),
        }
    }
    let location = segment.location();
    // Worthless under this name, if this ends half-way: every start removes it.
    let copy_path =
        Location { state: SegmentFileState::Cleaned, ..location.clone() }.path(SegmentFileKind::Log);
    let storage = &*segment.storage;
    remove_if_there(storage, &copy_path).map_err(Error::io("remove", &copy_path))?;
    let copy = storage.create_file(&copy_path).map_err(Error::io("create", &copy_path))?;
    let mut position = 0;
    while position < kept {
        let end = kept.min(position + COPY_BYTES);
        let piece = segment.log.region(position..end).map_err(Error::io("map", &path))?;
        copy.write_at(position, &piece).map_err(Error::io("write to", &copy_path))?;
        position = end;
    }
    copy.sync_data().map_err(Error::io("bring to the device", &copy_path))?;
    storage.rename(&copy_path, &path).map_err(Error::io("rename", &copy_path))?;
    storage
        .sync_directory(&location.directory)
        .map_err(Error::io("bring to the device", &location.directory))?;
    Ok((copy, true))
}

impl Segment {
    /// Cuts off what was preallocated and not used.
    pub(super) fn trim_log(&self) -> Result<(), Error> {
        let size = self.size();
        let len = self.log.size().map_err(|e| self.io("look at the length of", e))?;
        if len > size {
            self.log.set_len(size).map_err(|e| self.io("shorten", e))?;
        }
        Ok(())
    }
}
