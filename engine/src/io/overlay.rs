use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use super::file_system::{not_written, shared_bytes};
use super::{Entry, EntryKind, FileLock, Region, Storage, StorageFile, WritableFile, read_full_at};

/// A storage over another one that keeps every change in memory and never touches what lies below: for dry runs.
///
/// Clones share their content. Below, files are opened for reading, and asked whether they are locked; nothing else. The
/// storage below must not change meanwhile. Nothing can be written through a link. Paths are taken as they are: two that
/// lead to the same file by a link in a folder's place are two files once one of them is changed.
///
/// Memory: some 300 bytes for each file that was opened, made, renamed or removed, and the bytes that were written. A file
/// that is only cut, lengthened or renamed holds no bytes, however long it is. Bytes written behind the end of what is
/// kept of a file take the room from there on; a write into what is kept copies the kept part first. A region of written
/// bytes is a copy.
#[derive(Clone, Debug)]
pub struct Overlay {
    base: Arc<dyn Storage>,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    nodes: BTreeMap<PathBuf, Node>,
    locked: BTreeSet<PathBuf>,
}

/// What a name leads to that is not, or not only, what it is below.
#[derive(Debug)]
enum Node {
    /// Nothing any more.
    Gone,
    /// A folder that was made or renamed: of the names in it, all are here.
    Directory,
    /// A regular file that was made, or opened.
    File(Arc<Inode>),
    /// A renamed link, pipe, socket or device, and its name below.
    Through(PathBuf, EntryKind),
}

/// What a path leads to.
#[derive(Debug)]
enum Kind {
    Nothing,
    Directory,
    File(Arc<Inode>),
    /// Something that is read below, under this name.
    Through(PathBuf, EntryKind),
}

/// A file, whatever names it has.
#[derive(Debug)]
struct Inode {
    /// Its name below, if it was there.
    base: Option<PathBuf>,
    content: Mutex<Content>,
}

/// Bytes kept from below, then our own, then zeros.
#[derive(Debug, Default)]
struct Content {
    kept: u64,
    own: Vec<u8>,
    len: u64,
    changed_ms: Option<i64>,
}

impl Inode {
    fn new(base: Option<PathBuf>, len: u64) -> Arc<Self> {
        let content = Mutex::new(Content { kept: len, len, ..Content::default() });
        Arc::new(Self { base, content })
    }

    fn content(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Content {
    fn touch(&mut self) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.changed_ms = Some(i64::try_from(since.as_millis()).unwrap_or(i64::MAX));
    }

    fn set_len(&mut self, len: u64) {
        self.touch();
        self.kept = self.kept.min(len);
        let own = usize::try_from(len - self.kept).unwrap_or(usize::MAX);
        if own < self.own.len() {
            self.own.truncate(own);
            self.own.shrink_to_fit();
        }
        self.len = len;
    }
}

impl Overlay {
    /// A storage that begins as `base` is.
    pub fn new(base: Arc<dyn Storage>) -> Self {
        Self { base, state: Arc::default() }
    }

    /// Bytes of files that are held in memory.
    pub fn held_bytes(&self) -> u64 {
        let held = |node: &Node| match node {
            Node::File(inode) => inode.content().own.capacity() as u64,
            _ => 0,
        };
        self.state().nodes.values().map(held).sum()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a path leads to. A regular file that is looked at for the first time is taken up.
    fn look(&self, state: &mut State, path: &Path) -> io::Result<Kind> {
        match state.nodes.get(path) {
            Some(Node::Gone) => return Ok(Kind::Nothing),
            Some(Node::Directory) => return Ok(Kind::Directory),
            Some(Node::File(inode)) => return Ok(Kind::File(Arc::clone(inode))),
            Some(Node::Through(base, kind)) => return Ok(Kind::Through(base.clone(), *kind)),
            None if state.hides(path) => return Ok(Kind::Nothing),
            None => {}
        }
        let resolved = match self.base.resolve(path) {
            Ok(resolved) => resolved,
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(Kind::Nothing);
            }
            Err(e) => return Err(e),
        };
        if let (Some(parent), Some(name)) = (path.parent(), path.file_name())
            && self.base.resolve(&parent.join("."))?.join(name) != resolved
        {
            return Ok(Kind::Through(path.to_path_buf(), EntryKind::Link));
        }
        match self.base.open(path) {
            Ok(file) => {
                let inode = Inode::new(Some(path.to_path_buf()), file.size()?);
                state.nodes.insert(path.to_path_buf(), Node::File(Arc::clone(&inode)));
                Ok(Kind::File(inode))
            }
            Err(_) if self.base.list(path).is_ok() => Ok(Kind::Directory),
            Err(e) if e.kind() == io::ErrorKind::InvalidInput => {
                Ok(Kind::Through(path.to_path_buf(), EntryKind::Other))
            }
            Err(e) => Err(e),
        }
    }

    /// # Errors
    /// `NotFound` where this is no folder.
    fn check_directory(&self, state: &State, path: &Path) -> io::Result<()> {
        match state.nodes.get(path) {
            Some(Node::Directory) => Ok(()),
            Some(_) => Err(io::ErrorKind::NotFound.into()),
            None if state.hides(path) => Err(io::ErrorKind::NotFound.into()),
            // With the dot it is found only if it is a folder, and need not be listed.
            None => self.base.resolve(&path.join(".")).map(drop),
        }
    }

    fn check_parent(&self, state: &State, path: &Path) -> io::Result<()> {
        path.parent().map_or(Ok(()), |parent| self.check_directory(state, parent))
    }

    fn list_with(&self, state: &State, directory: &Path) -> io::Result<Vec<Entry>> {
        self.check_directory(state, directory)?;
        let mut entries = match state.nodes.get(directory) {
            Some(_) => Vec::new(),
            None => self.base.list(directory)?,
        };
        let children = state.children(directory);
        entries.retain(|entry| !children.contains_key(&*entry.name));
        entries.extend(children.into_iter().filter_map(|(name, node)| {
            let kind = match node {
                Node::Gone => return None,
                Node::Directory => EntryKind::Directory,
                Node::File(inode) => EntryKind::File { len: inode.content().len },
                Node::Through(_, kind) => *kind,
            };
            Some(Entry { name: name.to_owned(), kind })
        }));
        Ok(entries)
    }

    /// Everything below a folder, by its path from there.
    fn collect(
        &self,
        state: &mut State,
        directory: &Path,
        under: &Path,
        found: &mut Vec<(PathBuf, Node)>,
    ) -> io::Result<()> {
        for entry in self.list_with(state, directory)? {
            let (path, relative) = (directory.join(&entry.name), under.join(&entry.name));
            match self.look(state, &path)? {
                Kind::Nothing => {}
                Kind::Directory => {
                    found.push((relative.clone(), Node::Directory));
                    self.collect(state, &path, &relative, found)?;
                }
                Kind::File(inode) => found.push((relative, Node::File(inode))),
                Kind::Through(base, kind) => found.push((relative, Node::Through(base, kind))),
            }
        }
        Ok(())
    }

    fn handle(&self, inode: Arc<Inode>) -> io::Result<OverlayFile> {
        let (len, needs_base) = {
            let content = inode.content();
            (content.len, content.kept > 0 || content.changed_ms.is_none())
        };
        let base = match &inode.base {
            Some(path) if needs_base => Some(self.base.open(path)?),
            _ => None,
        };
        Ok(OverlayFile {
            inode,
            base,
            map: OnceLock::new(),
            written: AtomicU64::new(len),
            is_shared: AtomicBool::new(false),
            regions: Arc::default(),
        })
    }

    fn create(&self, state: &mut State, path: &Path) -> io::Result<Arc<Inode>> {
        self.check_parent(state, path)?;
        let Kind::Nothing = self.look(state, path)? else {
            return Err(io::ErrorKind::AlreadyExists.into());
        };
        let inode = Inode::new(None, 0);
        inode.content().touch();
        state.nodes.insert(path.to_path_buf(), Node::File(Arc::clone(&inode)));
        Ok(inode)
    }

    fn is_locked_with(&self, state: &State, path: &Path) -> io::Result<bool> {
        if state.locked.contains(path) {
            return Ok(true);
        }
        match state.nodes.get(path) {
            Some(Node::File(inode)) => {
                inode.base.as_ref().map_or(Ok(false), |base| self.base.is_locked(base))
            }
            Some(_) => Ok(false),
            None if state.hides(path) => Ok(false),
            None => self.base.is_locked(path),
        }
    }
}

impl State {
    /// Whether names above a path keep it from being looked for below.
    fn hides(&self, path: &Path) -> bool {
        path.ancestors().skip(1).any(|above| self.nodes.contains_key(above))
    }

    /// The names in a folder that are known here.
    fn children(&self, directory: &Path) -> BTreeMap<&OsStr, &Node> {
        let below = self.nodes.range(directory.to_path_buf()..);
        below
            .take_while(|(path, _)| path.starts_with(directory))
            .filter(|(path, _)| path.parent() == Some(directory))
            .filter_map(|(path, node)| Some((path.file_name()?, node)))
            .collect()
    }

    fn forget_below(&mut self, directory: &Path) {
        self.nodes.retain(|path, _| path == directory || !path.starts_with(directory));
    }
}

impl Storage for Overlay {
    fn list(&self, directory: &Path) -> io::Result<Vec<Entry>> {
        self.list_with(&self.state(), directory)
    }

    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        let base = {
            let state = self.state();
            match state.nodes.get(path) {
                Some(Node::Gone) => return Err(io::ErrorKind::NotFound.into()),
                Some(Node::Through(base, _)) => Some(base.clone()),
                Some(Node::Directory | Node::File(_)) => None,
                None if state.hides(path) => return Err(io::ErrorKind::NotFound.into()),
                None => Some(path.to_path_buf()),
            }
        };
        match (base, path.parent(), path.file_name()) {
            (Some(base), ..) => self.base.resolve(&base),
            (None, Some(parent), Some(name)) => Ok(self.resolve(parent)?.join(name)),
            (None, ..) => Ok(path.to_path_buf()),
        }
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn StorageFile>> {
        let kind = self.look(&mut self.state(), path)?;
        match kind {
            Kind::File(inode) => Ok(Box::new(self.handle(inode)?)),
            Kind::Through(base, _) => self.base.open(&base),
            Kind::Directory => Err(not_regular()),
            Kind::Nothing => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn is_locked(&self, path: &Path) -> io::Result<bool> {
        self.is_locked_with(&self.state(), path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        self.check_parent(&state, path)?;
        let Kind::Nothing = self.look(&mut state, path)? else {
            return Err(io::ErrorKind::AlreadyExists.into());
        };
        state.nodes.insert(path.to_path_buf(), Node::Directory);
        Ok(())
    }

    fn create_file(&self, path: &Path) -> io::Result<Arc<dyn WritableFile>> {
        let inode = self.create(&mut self.state(), path)?;
        Ok(Arc::new(self.handle(inode)?))
    }

    fn open_writable(&self, path: &Path) -> io::Result<Arc<dyn WritableFile>> {
        let kind = self.look(&mut self.state(), path)?;
        match kind {
            Kind::File(inode) => Ok(Arc::new(self.handle(inode)?)),
            Kind::Through(..) | Kind::Directory => Err(not_regular()),
            Kind::Nothing => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let state = &mut *self.state();
        self.check_parent(state, to)?;
        let (moved, target) = (self.look(state, from)?, self.look(state, to)?);
        if from == to && !matches!(moved, Kind::Nothing) {
            return Ok(());
        }
        match (&moved, &target) {
            (Kind::Nothing, _) => return Err(io::ErrorKind::NotFound.into()),
            (Kind::Directory, _) if to.starts_with(from) => return Err(io::ErrorKind::InvalidInput.into()),
            (Kind::Directory, Kind::Directory) if !self.list_with(state, to)?.is_empty() => {
                return Err(io::ErrorKind::DirectoryNotEmpty.into());
            }
            (Kind::Directory, Kind::File(_) | Kind::Through(..)) => {
                return Err(io::ErrorKind::NotADirectory.into());
            }
            (Kind::File(_) | Kind::Through(..), Kind::Directory) => {
                return Err(io::ErrorKind::IsADirectory.into());
            }
            _ => {}
        }
        let (node, below) = match moved {
            Kind::File(inode) => (Node::File(inode), Vec::new()),
            Kind::Through(base, kind) => (Node::Through(base, kind), Vec::new()),
            Kind::Directory | Kind::Nothing => {
                let mut below = Vec::new();
                self.collect(state, from, Path::new(""), &mut below)?;
                state.forget_below(from);
                state.forget_below(to);
                (Node::Directory, below)
            }
        };
        state.nodes.insert(from.to_path_buf(), Node::Gone);
        state.nodes.insert(to.to_path_buf(), node);
        state.nodes.extend(below.into_iter().map(|(path, node)| (to.join(path), node)));
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        match self.look(&mut state, path)? {
            Kind::Nothing => Err(io::ErrorKind::NotFound.into()),
            Kind::Directory => Err(io::ErrorKind::IsADirectory.into()),
            Kind::File(_) | Kind::Through(..) => {
                state.nodes.insert(path.to_path_buf(), Node::Gone);
                Ok(())
            }
        }
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        match self.look(&mut state, path)? {
            Kind::Nothing => return Err(io::ErrorKind::NotFound.into()),
            Kind::File(_) | Kind::Through(..) => return Err(io::ErrorKind::NotADirectory.into()),
            Kind::Directory => {}
        }
        if !self.list_with(&state, path)?.is_empty() {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        state.forget_below(path);
        state.nodes.insert(path.to_path_buf(), Node::Gone);
        Ok(())
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.check_directory(&self.state(), path)
    }

    /// The lock keeps out who goes through this storage. Of the file below it is only looked whether somebody has it.
    fn lock_file(&self, path: &Path) -> io::Result<FileLock> {
        let mut state = self.state();
        match self.look(&mut state, path)? {
            Kind::File(_) => {}
            Kind::Nothing => drop(self.create(&mut state, path)?),
            Kind::Directory | Kind::Through(..) => return Err(not_regular()),
        }
        if self.is_locked_with(&state, path)? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        state.locked.insert(path.to_path_buf());
        Ok(FileLock::new(OverlayLock { state: Arc::clone(&self.state), path: path.to_path_buf() }))
    }
}

fn not_regular() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")
}

#[derive(Debug)]
struct OverlayLock {
    state: Arc<Mutex<State>>,
    path: PathBuf,
}

impl Drop for OverlayLock {
    fn drop(&mut self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).locked.remove(&self.path);
    }
}

#[derive(Debug)]
struct OverlayFile {
    inode: Arc<Inode>,
    /// The file below, where anything may be read from it.
    base: Option<Box<dyn StorageFile>>,
    map: OnceLock<Region>,
    /// Where the bytes end that count as written.
    written: AtomicU64,
    /// Whether a region was given out since the file was opened or last made shorter.
    is_shared: AtomicBool,
    /// Held by every region.
    regions: Arc<()>,
}

impl OverlayFile {
    /// # Errors
    /// `UnexpectedEof` where the file below has become shorter.
    fn base(&self) -> io::Result<&dyn StorageFile> {
        self.base.as_deref().ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    fn read_base(&self, position: u64, buffer: &mut [u8]) -> io::Result<()> {
        let wanted = buffer.len();
        if wanted > 0 && read_full_at(self.base()?, position, buffer)? < wanted {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }

    /// Bytes of the file, which must be there.
    fn copy(&self, content: &Content, range: Range<u64>, buffer: &mut [u8]) -> io::Result<()> {
        let part = |end: u64| usize::try_from(end.clamp(range.start, range.end) - range.start);
        let too_long = |_| io::Error::from(io::ErrorKind::FileTooLarge);
        let kept = part(content.kept).map_err(too_long)?;
        let own_end = content.kept + content.own.len() as u64;
        let own = part(own_end).map_err(too_long)?;
        self.read_base(range.start, &mut buffer[..kept])?;
        if own > kept {
            let from = usize::try_from(range.start.max(content.kept) - content.kept).map_err(too_long)?;
            buffer[kept..own].copy_from_slice(&content.own[from..from + own - kept]);
        }
        buffer[own..].fill(0);
        Ok(())
    }

    fn region_of(&self, content: &Content, range: Range<u64>) -> io::Result<Region> {
        if range.is_empty() {
            return Ok(Region::from(Vec::new()));
        }
        if range.end > content.len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let too_long = |_| io::Error::from(io::ErrorKind::FileTooLarge);
        let from = usize::try_from(range.start).map_err(too_long)?;
        let to = usize::try_from(range.end).map_err(too_long)?;
        let bytes = if range.end <= content.kept {
            let map = match self.map.get() {
                Some(map) => map,
                None => {
                    let map = self.base()?.map()?;
                    self.map.get_or_init(|| map)
                }
            };
            if map.len() < to {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            map.slice(from..to)
        } else {
            let mut bytes = vec![0; to - from];
            self.copy(content, range, &mut bytes)?;
            Region::from(bytes)
        };
        self.is_shared.store(true, Ordering::Relaxed);
        Ok(Region::from_owner(Counted { bytes, _counted: Arc::clone(&self.regions) }))
    }
}

/// Bytes of a region that can be told to be there.
struct Counted {
    bytes: Region,
    _counted: Arc<()>,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl StorageFile for OverlayFile {
    fn size(&self) -> io::Result<u64> {
        Ok(self.inode.content().len)
    }

    fn read_at(&self, position: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let content = self.inode.content();
        let end = content.len.min(position.saturating_add(buffer.len() as u64));
        let Some(count) = end.checked_sub(position).and_then(|count| usize::try_from(count).ok()) else {
            return Ok(0);
        };
        self.copy(&content, position..end, &mut buffer[..count])?;
        Ok(count)
    }

    fn map(&self) -> io::Result<Region> {
        let content = self.inode.content();
        self.region_of(&content, 0..content.len)
    }

    fn modified_ms(&self) -> io::Result<i64> {
        let changed_ms = self.inode.content().changed_ms;
        changed_ms.map_or_else(|| self.base()?.modified_ms(), Ok)
    }
}

impl WritableFile for OverlayFile {
    fn write_at(&self, position: u64, bytes: &[u8]) -> io::Result<()> {
        let too_long = |_| io::Error::from(io::ErrorKind::FileTooLarge);
        let mut content = self.inode.content();
        if position < content.kept && !bytes.is_empty() {
            let mut own = vec![0; usize::try_from(content.kept).map_err(too_long)?];
            self.read_base(0, &mut own)?;
            own.append(&mut content.own);
            (content.own, content.kept) = (own, 0);
        }
        let end = position.saturating_add(bytes.len() as u64);
        if !bytes.is_empty() {
            let from = usize::try_from(position - content.kept).map_err(too_long)?;
            let to = usize::try_from(end - content.kept).map_err(too_long)?;
            if content.own.len() < to {
                content.own.resize(to, 0);
            }
            content.own[from..to].copy_from_slice(bytes);
            content.len = content.len.max(end);
            content.touch();
        }
        self.written.fetch_max(end, Ordering::Release);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut content = self.inode.content();
        // The bytes would outlive it here. But nobody may rely on that, so the rule is the same as everywhere.
        if len < self.written() && self.is_shared.load(Ordering::Relaxed) {
            return Err(shared_bytes());
        }
        self.written.fetch_min(len, Ordering::Release);
        content.set_len(len);
        Ok(())
    }

    fn shorten(&mut self, len: u64) -> io::Result<()> {
        if Arc::strong_count(&self.regions) > 1 {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        self.is_shared.store(false, Ordering::Relaxed);
        self.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    fn region(&self, range: Range<u64>) -> io::Result<Region> {
        let content = self.inode.content();
        if range.start > range.end || range.end > self.written() {
            return Err(not_written());
        }
        self.region_of(&content, range)
    }
}
