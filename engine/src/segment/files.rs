//! The index files of a segment: where they lie, what of the indexes in memory is in them already, and how long they are.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::index::{
    AbortedTransaction, LiveOffsetIndex, LiveTimeIndex, OffsetIndex, OffsetIndexEntry, TimeIndex,
    TimeIndexEntry, TransactionIndex,
};
use super::{SegmentFileKind, SegmentFileName, SegmentFileState};
use crate::error::Error;
use crate::io::{Storage, WritableFile, read_small, remove_if_there, replace_file};
use crate::types::Offset;

/// Entries that may wait in memory before they are written: what an index file lags behind its segment.
pub(super) const PENDING_ENTRIES_MAX: usize = 512;

/// Where the files of a segment lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Location {
    pub(super) directory: PathBuf,
    pub(super) base_offset: Offset,
    pub(super) state: SegmentFileState,
}

impl Location {
    pub(super) fn path(&self, kind: SegmentFileKind) -> PathBuf {
        let name = SegmentFileName { offset: self.base_offset, kind, state: self.state };
        self.directory.join(name.to_string())
    }
}

/// An open file and its path.
type NamedFile = (PathBuf, Arc<dyn WritableFile>);

/// The file of an offset or time index.
#[derive(Debug)]
struct IndexFile {
    kind: SegmentFileKind,
    entry_bytes: usize,
    file: Option<Arc<dyn WritableFile>>,
    /// Entries that are in the file.
    written: usize,
}

/// The index files of a segment, each opened when it is first written to.
#[derive(Debug)]
pub(super) struct IndexFiles {
    offset: IndexFile,
    time: IndexFile,
    transactions: Option<Arc<dyn WritableFile>>,
    buffer: Vec<u8>,
    /// Whether the files belong to another segment now, one that was cut: they must be left alone.
    pub(super) is_detached: bool,
}

impl IndexFiles {
    pub(super) fn new() -> Self {
        let file = |kind, entry_bytes| IndexFile { kind, entry_bytes, file: None, written: 0 };
        Self {
            offset: file(SegmentFileKind::OffsetIndex, OffsetIndexEntry::BYTES),
            time: file(SegmentFileKind::TimeIndex, TimeIndexEntry::BYTES),
            transactions: None,
            buffer: Vec::new(),
            is_detached: false,
        }
    }

    /// Hands the files over to the segment that takes the place of this one.
    pub(super) fn detach(&mut self) -> Self {
        let detached = Self { is_detached: true, ..Self::new() };
        Self { is_detached: false, ..std::mem::replace(self, detached) }
    }

    /// Says how many entries the files have, from which the indexes in memory were loaded.
    pub(super) fn loaded(&mut self, offset_entries: usize, time_entries: usize) {
        self.offset.written = self.offset.written.max(offset_entries);
        self.time.written = self.time.written.max(time_entries);
    }

    /// Writes the entries that are not in the files yet. Files that are not there are made, at full length.
    pub(super) fn write(
        &mut self,
        storage: &dyn Storage,
        location: &Location,
        offset_index: &LiveOffsetIndex,
        time_index: &LiveTimeIndex,
    ) -> Result<(), Error> {
        self.buffer.clear();
        for entry in time_index.entries().skip(self.time.written) {
            // Every entry of an index lies within reach of its base.
            let _ = entry.encode(time_index.base_offset(), &mut self.buffer);
        }
        self.time.append(storage, location, &self.buffer, time_index.capacity())?;
        self.buffer.clear();
        // Last, since without it a segment is not taken for sound.
        for entry in offset_index.entries().skip(self.offset.written) {
            let _ = entry.encode(offset_index.base_offset(), &mut self.buffer);
        }
        self.offset.append(storage, location, &self.buffer, offset_index.capacity())
    }

    /// Makes way for indexes that are written anew: no offset index, and a time index without entries. They are emptied,
    /// not replaced: nobody maps them.
    pub(super) fn begin_anew(&mut self, storage: &dyn Storage, location: &Location) -> Result<(), Error> {
        let path = location.path(SegmentFileKind::OffsetIndex);
        (self.offset.file, self.offset.written, self.time.written) = (None, 0, 0);
        remove_if_there(storage, &path).map_err(Error::io("remove", path))?;
        self.time.set_entries(storage, location, None)
    }

    /// Cuts both files behind their entries.
    pub(super) fn trim(&mut self, storage: &dyn Storage, location: &Location) -> Result<(), Error> {
        self.offset.set_entries(storage, location, None)?;
        self.time.set_entries(storage, location, None)
    }

    /// Makes both files as long as their capacity again.
    pub(super) fn grow(
        &mut self,
        storage: &dyn Storage,
        location: &Location,
        offset_capacity: usize,
        time_capacity: usize,
    ) -> Result<(), Error> {
        self.offset.set_entries(storage, location, Some(offset_capacity))?;
        self.time.set_entries(storage, location, Some(time_capacity))
    }

    /// Leaves only so many entries in the files.
    pub(super) fn keep(
        &mut self,
        storage: &dyn Storage,
        location: &Location,
        offset_entries: usize,
        time_entries: usize,
    ) -> Result<(), Error> {
        for (file, entries) in [(&mut self.offset, offset_entries), (&mut self.time, time_entries)] {
            file.written = file.written.min(entries);
            file.set_entries(storage, location, None)?;
        }
        Ok(())
    }

    /// Writes the entry that has this number in the transaction index, from 0. Bytes behind it are cut off when the
    /// file is opened: they belong to no whole entry.
    pub(super) fn append_transaction(
        &mut self,
        storage: &dyn Storage,
        location: &Location,
        number: usize,
        entry: &AbortedTransaction,
    ) -> Result<(), Error> {
        let path = || location.path(SegmentFileKind::TransactionIndex);
        let position = (number * AbortedTransaction::BYTES) as u64;
        let file = match &self.transactions {
            Some(file) => file,
            None => {
                let file = open_or_create(storage, &path())?.0;
                if file.size().map_err(Error::io("look at the length of", path()))? > position {
                    file.set_len(position).map_err(Error::io("shorten", path()))?;
                }
                self.transactions.insert(file)
            }
        };
        self.buffer.clear();
        entry.encode(&mut self.buffer);
        file.write_at(position, &self.buffer).map_err(Error::io("write to", path()))
    }

    /// Leaves only so many entries in the transaction index, if there is one.
    pub(super) fn keep_transactions(
        &mut self,
        storage: &dyn Storage,
        location: &Location,
        entries: usize,
    ) -> Result<(), Error> {
        let path = location.path(SegmentFileKind::TransactionIndex);
        if self.transactions.is_none() {
            self.transactions = open_if_there(storage, &path)?;
        }
        let Some(file) = &self.transactions else { return Ok(()) };
        let bytes = (entries * AbortedTransaction::BYTES) as u64;
        if file.size().map_err(Error::io("look at the length of", &path))? > bytes {
            file.set_len(bytes).map_err(Error::io("shorten", &path))?;
        }
        Ok(())
    }

    /// Gives the transaction index this content in one step, so that a crash leaves the old or the new one: of entries
    /// that are missing nobody could tell. Without any there is no file.
    pub(super) fn replace_transactions(
        &mut self,
        storage: &dyn Storage,
        location: &Location,
        entries: &[AbortedTransaction],
    ) -> Result<(), Error> {
        let path = location.path(SegmentFileKind::TransactionIndex);
        self.transactions = None;
        if entries.is_empty() {
            remove_if_there(storage, &path).map_err(Error::io("remove", &path))?;
            return Ok(());
        }
        self.buffer.clear();
        entries.iter().for_each(|entry| entry.encode(&mut self.buffer));
        replace_file(storage, &path, &self.buffer).map_err(Error::io("write to", &path))
    }

    /// The files that are there, in the order in which Kafka brings them to the device.
    pub(super) fn open_files(
        &mut self,
        storage: &dyn Storage,
        location: &Location,
    ) -> Result<Vec<NamedFile>, Error> {
        let mut files = Vec::with_capacity(3);
        for (file, kind) in [
            (&mut self.offset.file, SegmentFileKind::OffsetIndex),
            (&mut self.time.file, SegmentFileKind::TimeIndex),
            (&mut self.transactions, SegmentFileKind::TransactionIndex),
        ] {
            let path = location.path(kind);
            if file.is_none() {
                *file = open_if_there(storage, &path)?;
            }
            files.extend(file.clone().map(|file| (path, file)));
        }
        Ok(files)
    }

    /// Forgets the open files; they are opened again when they are needed.
    pub(super) fn close(&mut self) {
        (self.offset.file, self.time.file, self.transactions) = (None, None, None);
    }
}

impl IndexFile {
    /// Writes whole entries behind those that are in the file.
    fn append(
        &mut self,
        storage: &dyn Storage,
        location: &Location,
        entries: &[u8],
        capacity: usize,
    ) -> Result<(), Error> {
        let path = || location.path(self.kind);
        let file = match &self.file {
            Some(file) => file,
            None => {
                let (file, is_new) = open_or_create(storage, &path())?;
                if is_new {
                    let bytes = (capacity * self.entry_bytes) as u64;
                    file.set_len(bytes).map_err(Error::io("lengthen", path()))?;
                }
                self.file.insert(file)
            }
        };
        if entries.is_empty() {
            return Ok(());
        }
        let position = (self.written * self.entry_bytes) as u64;
        file.write_at(position, entries).map_err(Error::io("write to", path()))?;
        self.written += entries.len() / self.entry_bytes;
        Ok(())
    }

    /// Cuts the file behind its entries, then makes it as long as so many.
    fn set_entries(
        &mut self,
        storage: &dyn Storage,
        location: &Location,
        capacity: Option<usize>,
    ) -> Result<(), Error> {
        let path = || location.path(self.kind);
        let file = match &self.file {
            Some(file) => file,
            None => self.file.insert(open_or_create(storage, &location.path(self.kind))?.0),
        };
        let used = (self.written * self.entry_bytes) as u64;
        file.set_len(used).map_err(Error::io("shorten", path()))?;
        match capacity.map(|entries| (entries * self.entry_bytes) as u64) {
            Some(bytes) if bytes > used => file.set_len(bytes).map_err(Error::io("lengthen", path())),
            _ => Ok(()),
        }
    }
}

fn open_or_create(storage: &dyn Storage, path: &Path) -> Result<(Arc<dyn WritableFile>, bool), Error> {
    if let Some(file) = open_if_there(storage, path)? {
        return Ok((file, false));
    }
    Ok((storage.create_file(path).map_err(Error::io("create", path))?, true))
}

fn open_if_there(storage: &dyn Storage, path: &Path) -> Result<Option<Arc<dyn WritableFile>>, Error> {
    match storage.open_writable(path) {
        Ok(file) => Ok(Some(file)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Error::io("open", path)(e)),
    }
}

/// Bytes that an index file may have: its entries point at bytes of a segment, which has 2 GiB at most.
const INDEX_BYTES_MAX: usize = 1 << 30;

fn read_index(storage: &dyn Storage, path: &Path) -> Result<Vec<u8>, Error> {
    match read_small(storage, path, INDEX_BYTES_MAX) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        other => other.map_err(Error::io("read", path)),
    }
}

/// The offset index of a segment from its file, as far as its entries continue each other; none if there is no file.
pub(super) fn load_offset_index(
    storage: &dyn Storage,
    location: &Location,
    log_bytes: u64,
) -> Result<LiveOffsetIndex, Error> {
    let bytes = read_index(storage, &location.path(SegmentFileKind::OffsetIndex))?;
    let index = LiveOffsetIndex::new(location.base_offset, bytes.len());
    OffsetIndex::new(location.base_offset, &bytes)
        .entries_used(log_bytes)
        .for_each(|entry| index.push(entry));
    Ok(index)
}

/// The time index of a segment, likewise.
pub(super) fn load_time_index(storage: &dyn Storage, location: &Location) -> Result<LiveTimeIndex, Error> {
    let bytes = read_index(storage, &location.path(SegmentFileKind::TimeIndex))?;
    let index = LiveTimeIndex::new(location.base_offset, bytes.len());
    TimeIndex::new(location.base_offset, &bytes).entries_used().for_each(|entry| index.push(entry));
    Ok(index)
}

/// The aborted transactions of a segment from its file; none if there is no file.
///
/// # Errors
/// [`Error::Index`] for an entry of an unknown version.
pub(super) fn load_transactions(
    storage: &dyn Storage,
    location: &Location,
) -> Result<Vec<AbortedTransaction>, Error> {
    let path = location.path(SegmentFileKind::TransactionIndex);
    let bytes = read_index(storage, &path)?;
    TransactionIndex::new(location.base_offset, &bytes)
        .entries()
        .collect::<Result<_, _>>()
        .map_err(|fault| Error::Index { path, reason: fault.to_string() })
}
