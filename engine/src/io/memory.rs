use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Cache, Entry, EntryKind, Region, Storage, StorageFile};

/// What goes wrong with a file of a [`MemoryStorage`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// Opening fails with this error kind.
    Open(io::ErrorKind),
    /// A read that touches this byte position fails with EIO. Mapping the file fails, too: the double cannot raise the
    /// signal that touching such a page of a real mapping would.
    ReadAt(u64),
    /// The file has this length once it is open, shorter than the listing said.
    ShrinksWhenOpened(u64),
    /// Once a read has touched this byte position, the file ends there.
    ShrinksWhenRead(u64),
    /// Reads return at most this many bytes a call.
    ShortReads(usize),
}

/// Log directories in memory, with faults on demand: the test double of [`FileSystem`](super::FileSystem).
///
/// Clones share their content. Folders exist by having files in them, or by
/// [`create_directory`](Self::create_directory).
#[derive(Clone, Debug, Default)]
pub struct MemoryStorage {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    files: BTreeMap<PathBuf, Region>,
    directories: BTreeSet<PathBuf>,
    faults: BTreeMap<PathBuf, Fault>,
    locked: BTreeSet<PathBuf>,
    cached: BTreeMap<PathBuf, Cache>,
}

impl MemoryStorage {
    /// An empty storage.
    pub fn new() -> Self {
        Self::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a file at an absolute path, with the folders above it.
    pub fn write(&self, path: impl Into<PathBuf>, bytes: impl Into<Vec<u8>>) {
        let path = path.into();
        let mut state = self.state();
        state.directories.extend(path.ancestors().skip(1).map(Path::to_path_buf));
        state.files.insert(path, Region::from(bytes.into()));
    }

    /// Makes an empty folder, with those above it.
    pub fn create_directory(&self, path: impl AsRef<Path>) {
        self.state().directories.extend(path.as_ref().ancestors().map(Path::to_path_buf));
    }

    /// Removes a file.
    pub fn remove(&self, path: impl AsRef<Path>) {
        self.state().files.remove(path.as_ref());
    }

    /// Lets something go wrong with a file from now on.
    pub fn inject(&self, path: impl Into<PathBuf>, fault: Fault) {
        self.state().faults.insert(path.into(), fault);
    }

    /// Lets a file appear locked by another process.
    pub fn lock(&self, path: impl Into<PathBuf>) {
        self.state().locked.insert(path.into());
    }

    /// Lets a file say this when it is asked how much of it is in the page cache. Until then it says "mixed".
    pub fn set_cached(&self, path: impl Into<PathBuf>, cache: Cache) {
        self.state().cached.insert(path.into(), cache);
    }
}

impl Storage for MemoryStorage {
    fn list(&self, directory: &Path) -> io::Result<Vec<Entry>> {
        let state = self.state();
        if !state.directories.contains(directory) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let named = |path: &Path, kind| {
            let name = path.file_name()?.to_owned();
            (path.parent() == Some(directory)).then_some(Entry { name, kind })
        };
        let files = state
            .files
            .iter()
            .filter_map(|(path, bytes)| named(path, EntryKind::File { len: bytes.len() as u64 }));
        let directories = state.directories.iter().filter_map(|path| named(path, EntryKind::Directory));
        Ok(files.chain(directories).collect())
    }

    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        let state = self.state();
        if state.files.contains_key(path) || state.directories.contains(path) {
            Ok(path.to_path_buf())
        } else {
            Err(io::ErrorKind::NotFound.into())
        }
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn StorageFile>> {
        let state = self.state();
        let bytes = state.files.get(path).ok_or(io::ErrorKind::NotFound)?.clone();
        let fault = state.faults.get(path).copied();
        let len = match fault {
            Some(Fault::Open(kind)) => return Err(kind.into()),
            Some(Fault::ShrinksWhenOpened(len)) => len.min(bytes.len() as u64),
            _ => bytes.len() as u64,
        };
        let cache = state.cached.get(path).copied().unwrap_or_default();
        Ok(Box::new(MemoryFile { bytes, fault, len: Mutex::new(len), cache }))
    }

    fn is_locked(&self, path: &Path) -> io::Result<bool> {
        Ok(self.state().locked.contains(path))
    }
}

#[derive(Debug)]
struct MemoryFile {
    bytes: Region,
    fault: Option<Fault>,
    len: Mutex<u64>,
    cache: Cache,
}

impl StorageFile for MemoryFile {
    fn size(&self) -> io::Result<u64> {
        Ok(*self.len.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn read_at(&self, position: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut len = self.len.lock().unwrap_or_else(PoisonError::into_inner);
        let mut end = (*len).min(position.saturating_add(buffer.len() as u64));
        match self.fault {
            Some(Fault::ReadAt(bad)) if position <= bad && bad < end => {
                return Err(io::Error::from_raw_os_error(nix::libc::EIO));
            }
            Some(Fault::ShrinksWhenRead(at)) if at < end => {
                *len = at;
                end = at;
            }
            Some(Fault::ShortReads(most)) => end = end.min(position.saturating_add(most as u64)),
            _ => {}
        }
        let Some(count) = end.checked_sub(position).filter(|&count| count > 0) else { return Ok(0) };
        let from = position as usize;
        buffer[..count as usize].copy_from_slice(&self.bytes[from..from + count as usize]);
        Ok(count as usize)
    }

    fn map(&self) -> io::Result<Region> {
        if let Some(Fault::ReadAt(_)) = self.fault {
            return Err(io::Error::from_raw_os_error(nix::libc::EIO));
        }
        let mut len = self.len.lock().unwrap_or_else(PoisonError::into_inner);
        let region = self.bytes.slice(..*len as usize);
        if let Some(Fault::ShrinksWhenRead(at)) = self.fault {
            *len = (*len).min(at);
        }
        Ok(region)
    }

    fn cached(&self, _: u64, _: usize) -> Cache {
        self.cache
    }
}
