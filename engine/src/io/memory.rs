use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::file_system::{not_written, shared_bytes};
use super::{Cache, Entry, EntryKind, FileLock, Region, Storage, StorageFile, WritableFile};

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
    /// A write that touches this byte position fails with ENOSPC, having written the bytes before it.
    WriteAt(u64),
    /// Bringing the file to the device fails with EIO.
    Sync,
}

/// Something that changes a storage. Every change passes one place, where it is counted and may be refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// A folder is made.
    CreateDir(PathBuf),
    /// A file is made.
    CreateFile(PathBuf),
    /// Bytes are written to a file. A file goes by the name under which it was opened.
    Write {
        /// The file.
        path: PathBuf,
        /// First byte position.
        position: u64,
        /// How many.
        len: u64,
    },
    /// A file gets another length.
    SetLen {
        /// The file.
        path: PathBuf,
        /// The new length.
        len: u64,
    },
    /// A file is brought to the device.
    SyncData(PathBuf),
    /// A file or folder gets another name.
    Rename {
        /// The old name.
        from: PathBuf,
        /// The new one.
        to: PathBuf,
    },
    /// A file is removed.
    RemoveFile(PathBuf),
    /// A folder is removed.
    RemoveDir(PathBuf),
    /// A folder is brought to the device.
    SyncDirectory(PathBuf),
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
    files: BTreeMap<PathBuf, Arc<Inode>>,
    directories: BTreeSet<PathBuf>,
    faults: BTreeMap<PathBuf, Fault>,
    locked: BTreeSet<PathBuf>,
    cached: BTreeMap<PathBuf, Cache>,
    operations: Vec<Operation>,
    refused_from: Option<(usize, io::ErrorKind)>,
}

impl State {
    /// Every change of the storage begins here.
    fn begin(&mut self, operation: Operation) -> io::Result<()> {
        let number = self.operations.len();
        self.operations.push(operation);
        match self.refused_from {
            Some((from, kind)) if number >= from => Err(kind.into()),
            _ => Ok(()),
        }
    }
}

/// A file, whatever names it has.
#[derive(Debug, Default)]
struct Inode {
    content: Mutex<Content>,
}

#[derive(Debug, Default)]
struct Content {
    bytes: Bytes,
    /// How many of the bytes were shared.
    shared: u64,
    modified_ms: i64,
}

/// Bytes that nobody has written to since they were shared, or bytes of our own.
#[derive(Debug)]
enum Bytes {
    Frozen(Region),
    Own(Vec<u8>),
}

impl Default for Bytes {
    fn default() -> Self {
        Self::Own(Vec::new())
    }
}

impl Inode {
    fn frozen(bytes: Vec<u8>) -> Self {
        let bytes = Bytes::Frozen(Region::from(bytes));
        Self { content: Mutex::new(Content { bytes, ..Content::default() }) }
    }

    fn content(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Content {
    fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Frozen(region) => region,
            Bytes::Own(bytes) => bytes,
        }
    }

    fn len(&self) -> u64 {
        self.bytes().len() as u64
    }

    fn bytes_mut(&mut self) -> &mut Vec<u8> {
        if let Bytes::Frozen(region) = &self.bytes {
            self.bytes = Bytes::Own(region.to_vec());
        }
        match &mut self.bytes {
            Bytes::Own(bytes) => bytes,
            Bytes::Frozen(_) => unreachable!("copied just now"),
        }
    }

    fn region(&self, range: Range<usize>) -> Region {
        match &self.bytes {
            Bytes::Frozen(region) => region.slice(range),
            Bytes::Own(bytes) => Region::from(bytes[range].to_vec()),
        }
    }
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
        state.files.insert(path, Arc::new(Inode::frozen(bytes.into())));
    }

    /// The content of a file, `None` if there is none of that name.
    pub fn content(&self, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        self.state().files.get(path.as_ref()).map(|inode| inode.content().bytes().to_vec())
    }

    /// Says when a file was changed last, ms since the epoch: the storage has no clock, and takes 0.
    pub fn set_modified(&self, path: impl AsRef<Path>, ms: i64) {
        if let Some(inode) = self.state().files.get(path.as_ref()) {
            inode.content().modified_ms = ms;
        }
    }

    /// Every change that was asked for, oldest first, also those that were refused.
    pub fn operations(&self) -> Vec<Operation> {
        self.state().operations.clone()
    }

    /// Lets the change with this number, counted from 0, and all after it fail.
    pub fn refuse_from(&self, number: usize, kind: io::ErrorKind) {
        self.state().refused_from = Some((number, kind));
    }

    fn handle(&self, path: &Path, state: &State) -> io::Result<MemoryFile> {
        let inode = Arc::clone(state.files.get(path).ok_or(io::ErrorKind::NotFound)?);
        let fault = state.faults.get(path).copied();
        let limit = match fault {
            Some(Fault::Open(kind)) => return Err(kind.into()),
            Some(Fault::ShrinksWhenOpened(len)) => len,
            _ => u64::MAX,
        };
        let cache = state.cached.get(path).copied().unwrap_or_default();
        let storage = Arc::clone(&self.state);
        let path = path.to_path_buf();
        let written = AtomicU64::new(inode.content().len());
        Ok(MemoryFile { storage, path, inode, fault, limit: Mutex::new(limit), written, cache })
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
            .filter_map(|(path, inode)| named(path, EntryKind::File { len: inode.content().len() }));
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
        Ok(Box::new(self.handle(path, &self.state())?))
    }

    fn is_locked(&self, path: &Path) -> io::Result<bool> {
        Ok(self.state().locked.contains(path))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.begin(Operation::CreateDir(path.to_path_buf()))?;
        state.parent_of(path)?;
        if state.files.contains_key(path) || !state.directories.insert(path.to_path_buf()) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        Ok(())
    }

    fn create_file(&self, path: &Path) -> io::Result<Arc<dyn WritableFile>> {
        let mut state = self.state();
        state.begin(Operation::CreateFile(path.to_path_buf()))?;
        state.parent_of(path)?;
        if state.files.contains_key(path) || state.directories.contains(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        state.files.insert(path.to_path_buf(), Arc::default());
        Ok(Arc::new(self.handle(path, &state)?))
    }

    fn open_writable(&self, path: &Path) -> io::Result<Arc<dyn WritableFile>> {
        Ok(Arc::new(self.handle(path, &self.state())?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.begin(Operation::Rename { from: from.to_path_buf(), to: to.to_path_buf() })?;
        state.parent_of(to)?;
        if let Some(inode) = state.files.remove(from) {
            state.files.insert(to.to_path_buf(), inode);
            return Ok(());
        }
        if !state.directories.contains(from) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let moved = |path: &Path| path.strip_prefix(from).map(|rest| to.join(rest)).ok();
        let files = std::mem::take(&mut state.files);
        state.files = files.into_iter().map(|(path, inode)| (moved(&path).unwrap_or(path), inode)).collect();
        let directories = std::mem::take(&mut state.directories);
        state.directories = directories.into_iter().map(|path| moved(&path).unwrap_or(path)).collect();
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.begin(Operation::RemoveFile(path.to_path_buf()))?;
        state.files.remove(path).map(drop).ok_or(io::ErrorKind::NotFound.into())
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.begin(Operation::RemoveDir(path.to_path_buf()))?;
        let is_above = |other: &PathBuf| other != path && other.starts_with(path);
        if state.files.keys().chain(&state.directories).any(is_above) {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        if state.directories.remove(path) { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.begin(Operation::SyncDirectory(path.to_path_buf()))?;
        if state.directories.contains(path) { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    fn lock_file(&self, path: &Path) -> io::Result<FileLock> {
        let mut state = self.state();
        if !state.files.contains_key(path) {
            state.begin(Operation::CreateFile(path.to_path_buf()))?;
            state.parent_of(path)?;
            state.files.insert(path.to_path_buf(), Arc::default());
        }
        if !state.locked.insert(path.to_path_buf()) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(FileLock::new(MemoryLock { storage: Arc::clone(&self.state), path: path.to_path_buf() }))
    }
}

impl State {
    /// # Errors
    /// `NotFound` where the folder of the path is not there.
    fn parent_of(&self, path: &Path) -> io::Result<()> {
        match path.parent() {
            Some(parent) if !self.directories.contains(parent) => Err(io::ErrorKind::NotFound.into()),
            _ => Ok(()),
        }
    }
}

#[derive(Debug)]
struct MemoryLock {
    storage: Arc<Mutex<State>>,
    path: PathBuf,
}

impl Drop for MemoryLock {
    fn drop(&mut self) {
        let mut state = self.storage.lock().unwrap_or_else(PoisonError::into_inner);
        state.locked.remove(&self.path);
    }
}

#[derive(Debug)]
struct MemoryFile {
    storage: Arc<Mutex<State>>,
    /// The name when it was opened.
    path: PathBuf,
    inode: Arc<Inode>,
    fault: Option<Fault>,
    /// Where the file seems to end, if it does before its end.
    limit: Mutex<u64>,
    /// Where the bytes end that count as written.
    written: AtomicU64,
    cache: Cache,
}

impl MemoryFile {
    fn begin(&self, operation: Operation) -> io::Result<()> {
        self.storage.lock().unwrap_or_else(PoisonError::into_inner).begin(operation)
    }
}

impl StorageFile for MemoryFile {
    fn size(&self) -> io::Result<u64> {
        let limit = *self.limit.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(self.inode.content().len().min(limit))
    }

    fn read_at(&self, position: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut limit = self.limit.lock().unwrap_or_else(PoisonError::into_inner);
        let content = self.inode.content();
        let mut end = content.len().min(*limit).min(position.saturating_add(buffer.len() as u64));
        match self.fault {
            Some(Fault::ReadAt(bad)) if position <= bad && bad < end => {
                return Err(io::Error::from_raw_os_error(nix::libc::EIO));
            }
            Some(Fault::ShrinksWhenRead(at)) if at < end => {
                *limit = at;
                end = at;
            }
            Some(Fault::ShortReads(most)) => end = end.min(position.saturating_add(most as u64)),
            _ => {}
        }
        let Some(count) = end.checked_sub(position).filter(|&count| count > 0) else { return Ok(0) };
        let from = position as usize;
        buffer[..count as usize].copy_from_slice(&content.bytes()[from..from + count as usize]);
        Ok(count as usize)
    }

    fn map(&self) -> io::Result<Region> {
        if let Some(Fault::ReadAt(_)) = self.fault {
            return Err(io::Error::from_raw_os_error(nix::libc::EIO));
        }
        let mut limit = self.limit.lock().unwrap_or_else(PoisonError::into_inner);
        let content = self.inode.content();
        let region = content.region(0..content.len().min(*limit) as usize);
        if let Some(Fault::ShrinksWhenRead(at)) = self.fault {
            *limit = (*limit).min(at);
        }
        Ok(region)
    }

    fn cached(&self, _: u64, _: usize) -> Cache {
        self.cache
    }

    fn modified_ms(&self) -> io::Result<i64> {
        Ok(self.inode.content().modified_ms)
    }
}

impl WritableFile for MemoryFile {
    fn write_at(&self, position: u64, bytes: &[u8]) -> io::Result<()> {
        self.begin(Operation::Write { path: self.path.clone(), position, len: bytes.len() as u64 })?;
        let end = position.saturating_add(bytes.len() as u64);
        let (good, result) = match self.fault {
            Some(Fault::WriteAt(bad)) if bad < end => {
                let good = bad.saturating_sub(position).min(bytes.len() as u64) as usize;
                (&bytes[..good], Err(io::Error::from_raw_os_error(nix::libc::ENOSPC)))
            }
            _ => (bytes, Ok(())),
        };
        let mut content = self.inode.content();
        let (from, to) = (position as usize, position as usize + good.len());
        let own = content.bytes_mut();
        if own.len() < to {
            own.resize(to, 0);
        }
        own[from..to].copy_from_slice(good);
        if result.is_ok() {
            self.written.fetch_max(end, Ordering::Release);
        }
        result
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.begin(Operation::SetLen { path: self.path.clone(), len })?;
        let mut content = self.inode.content();
        // The bytes would outlive it here. But nobody may rely on that, so the rule is the same as everywhere.
        if len < self.written() && content.shared > 0 {
            return Err(shared_bytes());
        }
        self.written.fetch_min(len, Ordering::Release);
        content.bytes_mut().resize(len as usize, 0);
        Ok(())
    }

    fn shorten(&mut self, len: u64) -> io::Result<()> {
        // Regions are copies or counted elsewhere: any may still be there.
        if len < self.written() && self.inode.content().shared > 0 {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        self.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.begin(Operation::SyncData(self.path.clone()))?;
        match self.fault {
            Some(Fault::Sync) => Err(io::Error::from_raw_os_error(nix::libc::EIO)),
            _ => Ok(()),
        }
    }

    fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    fn region(&self, range: Range<u64>) -> io::Result<Region> {
        let mut content = self.inode.content();
        if range.start > range.end || range.end > self.written() {
            return Err(not_written());
        }
        if let Some(Fault::ReadAt(bad)) = self.fault
            && range.contains(&bad)
        {
            return Err(io::Error::from_raw_os_error(nix::libc::EIO));
        }
        content.shared = content.shared.max(range.end);
        Ok(content.region(range.start as usize..range.end as usize))
    }
}
