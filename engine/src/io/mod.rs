//! Files, behind the one small interface that everything above reads through.
//!
//! [`Storage`] lists a folder, opens and changes files; [`StorageFile`] reads at a position or gives the whole file as a
//! [`Region`]; [`WritableFile`] also writes, and shares what is written without a copy. [`FileSystem`] is the real one,
//! [`MemoryStorage`] a double with faults on demand, and [`Overlay`] keeps the changes of another one in memory. This
//! module knows nothing of Kafka and returns plain [`std::io::Error`]s: callers add what they were doing.
//!
//! A region may be held for any time, also while its file is renamed, removed or written to behind it. So no file of
//! which a region was given out is ever made shorter than that: whoever has to cut one writes a new file and puts it in
//! the place of the old one. [`WritableFile::set_len`] refuses anything else.

mod direct;
mod file_system;
mod memory;
mod overlay;
mod region;

pub use direct::DirectFile;
pub use file_system::FileSystem;
pub use memory::{Fault, MemoryStorage, Operation};
pub use overlay::Overlay;
pub use region::Region;

pub use crate::machine::residency::Cache;

use std::ffi::OsString;
use std::fmt::Debug;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a name in a folder leads to. Links are not followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file and its length in bytes.
    File {
        /// Bytes.
        len: u64,
    },
    /// A folder.
    Directory,
    /// A symbolic link.
    Link,
    /// A pipe, socket or device: never opened.
    Other,
}

/// A name in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name, without its folder; need not be UTF-8.
    pub name: OsString,
    /// What it leads to.
    pub kind: EntryKind,
}

/// A place where log directories lie. Shared by all threads of a load.
pub trait Storage: Debug + Send + Sync {
    /// The names in a folder, in any order.
    ///
    /// # Errors
    /// Whatever the file system says; also for something that is no folder.
    fn list(&self, directory: &Path) -> io::Result<Vec<Entry>>;

    /// The path with every link in it followed, absolute.
    ///
    /// # Errors
    /// Whatever the file system says; `NotFound` for a link that leads nowhere.
    fn resolve(&self, path: &Path) -> io::Result<PathBuf>;

    /// Opens a regular file for reading; a descriptor is held until the result is dropped.
    ///
    /// # Errors
    /// Whatever the file system says, and `InvalidInput` for anything but a regular file.
    fn open(&self, path: &Path) -> io::Result<Box<dyn StorageFile>>;

    /// Whether another process holds a lock over the file, as a running broker does over `.lock`. A file that is
    /// not there is not held.
    ///
    /// # Errors
    /// Whatever the file system says.
    fn is_locked(&self, path: &Path) -> io::Result<bool>;

    /// Opens a regular file for reads past the page cache; a descriptor is held until the result is dropped.
    ///
    /// # Errors
    /// `Unsupported` where the storage or its file system has no such reads, as here by default; else whatever the file
    /// system says.
    fn open_direct(&self, path: &Path) -> io::Result<DirectFile> {
        let _ = path;
        Err(io::Error::new(io::ErrorKind::Unsupported, "the storage is no file system"))
    }

    /// Makes a folder; those above it must be there.
    ///
    /// # Errors
    /// `AlreadyExists`, or whatever the file system says. `Unsupported` here and in all that follow where a storage
    /// is read-only, as by default.
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let _ = path;
        Err(read_only())
    }

    /// Makes a new, empty regular file that is open for reading and writing.
    ///
    /// # Errors
    /// `AlreadyExists`, or whatever the file system says.
    fn create_file(&self, path: &Path) -> io::Result<Arc<dyn WritableFile>> {
        let _ = path;
        Err(read_only())
    }

    /// Opens a regular file that is there for reading and writing. All that is in it counts as written.
    ///
    /// # Errors
    /// `NotFound`, `InvalidInput` for anything but a regular file, or whatever the file system says.
    fn open_writable(&self, path: &Path) -> io::Result<Arc<dyn WritableFile>> {
        let _ = path;
        Err(read_only())
    }

    /// Gives a file or folder another name, in one step that no other process sees half done; a file that has the new
    /// name is replaced. Files that are open stay what they are.
    ///
    /// # Errors
    /// Whatever the file system says.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let _ = (from, to);
        Err(read_only())
    }

    /// Takes a file's name away; its bytes go once nobody holds them any more.
    ///
    /// # Errors
    /// `NotFound`, or whatever the file system says.
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let _ = path;
        Err(read_only())
    }

    /// Removes an empty folder.
    ///
    /// # Errors
    /// Whatever the file system says.
    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let _ = path;
        Err(read_only())
    }

    /// Returns once the names in a folder are on the device: files made, renamed and removed.
    ///
    /// # Errors
    /// Whatever the file system says.
    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        let _ = path;
        Err(read_only())
    }

    /// Takes an exclusive lock over a whole file, which is made if it is not there, as a broker does over `.lock`:
    /// either of us keeps the other out. The lock is given back when the result is dropped.
    ///
    /// # Errors
    /// `WouldBlock` where somebody has it, or whatever the file system says.
    fn lock_file(&self, path: &Path) -> io::Result<FileLock> {
        let _ = path;
        Err(read_only())
    }
}

fn read_only() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "the storage is read-only")
}

/// A lock that is held until this is dropped.
#[derive(Debug)]
pub struct FileLock {
    _held: Box<dyn Held>,
}

impl FileLock {
    /// The lock that `held` keeps until it is dropped.
    pub fn new(held: impl Debug + Send + Sync + 'static) -> Self {
        Self { _held: Box::new(held) }
    }
}

trait Held: Debug + Send + Sync {}

impl<T: Debug + Send + Sync> Held for T {}

/// An open file.
pub trait StorageFile: Debug + Send + Sync {
    /// Its length in bytes at this moment.
    ///
    /// # Errors
    /// Whatever the file system says.
    fn size(&self) -> io::Result<u64>;

    /// Reads up to `buffer.len()` bytes from a byte position; 0 only at or past the end.
    ///
    /// # Errors
    /// Whatever the file system says.
    fn read_at(&self, position: u64, buffer: &mut [u8]) -> io::Result<usize>;

    /// The whole file as shared memory, without copying where the storage can do that.
    ///
    /// # Errors
    /// Whatever the file system says.
    fn map(&self) -> io::Result<Region>;

    /// How much of the first `len` bytes is in the page cache, by a look at `samples` pages, two at least and each at
    /// most once. [`Cache::Mixed`] where that cannot be found out, as here by default. Changes nothing in the cache.
    fn cached(&self, len: u64, samples: usize) -> Cache {
        let _ = (len, samples);
        Cache::Mixed
    }

    /// When its content was changed last, ms since the epoch.
    ///
    /// # Errors
    /// Whatever the file system says; `Unsupported` where a storage has no such times, as by default.
    fn modified_ms(&self) -> io::Result<i64> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "the storage has no times"))
    }
}

/// An open file that can be written to, by one thread at a time, while any number of others read.
pub trait WritableFile: StorageFile {
    /// Writes all the bytes at a byte position, which may lie behind the end. Bytes of which regions were given out
    /// must not be written again: holders of a region take it for immutable.
    ///
    /// # Errors
    /// Whatever the file system says. Some of the bytes may have been written then, but do not count as such.
    fn write_at(&self, position: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes the file longer, with zeros that need no room, or shorter.
    ///
    /// # Errors
    /// `InvalidInput` for a length below [`written`](Self::written) once a region of this file was given out; else
    /// whatever the file system says.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Makes the file shorter although regions of it were given out, if all of them are gone: nobody else has the file
    /// then, so no new one can appear meanwhile.
    ///
    /// # Errors
    /// `ResourceBusy` while there is a region, the file being as before; else whatever the file system says.
    fn shorten(&mut self, len: u64) -> io::Result<()>;

    /// Returns once the bytes and the length are on the device (fdatasync).
    ///
    /// # Errors
    /// Whatever the file system says. What was written since the last success must then be taken for lost.
    fn sync_data(&self) -> io::Result<()>;

    /// Where the bytes end that count as written: those that were there when the file was opened and those that were
    /// written since. Zeros from [`set_len`](Self::set_len) do not count.
    fn written(&self) -> u64;

    /// Written bytes, shared. Cost where the storage has no copy to make: one small allocation; the first one of a
    /// file, and one each time the file has doubled beyond what [`reserve`](Self::reserve) was told, a system call.
    ///
    /// # Errors
    /// `InvalidInput` for a range beyond [`written`](Self::written); else what mapping the file gives.
    fn region(&self, range: Range<u64>) -> io::Result<Region>;

    /// Says that a region of these bytes is about to be read from front to back: a wish, which saves page faults. It may
    /// wait for the device.
    fn populate(&self, range: Range<u64>) {
        let _ = range;
    }

    /// Says how long the file is expected to become, before the first region; costs address space only, and nothing
    /// before the first region.
    fn reserve(&self, len: u64) {
        let _ = len;
    }
}

/// Fills `buffer` from a byte position on, as far as the file goes; returns the bytes read.
///
/// # Errors
/// What [`StorageFile::read_at`] says, except interruptions, which are tried again.
pub fn read_full_at(file: &dyn StorageFile, position: u64, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(position + filled as u64, &mut buffer[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(filled)
}

/// Reads a small file whole.
///
/// # Errors
/// What the storage says, and `FileTooLarge` for more than `bytes_max` bytes.
pub fn read_small(storage: &dyn Storage, path: &Path, bytes_max: usize) -> io::Result<Vec<u8>> {
    let file = storage.open(path)?;
    let len = usize::try_from(file.size()?).unwrap_or(usize::MAX);
    if len > bytes_max {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("{len} bytes, more than the {bytes_max} that such a file may have"),
        ));
    }
    let mut bytes = vec![0; len];
    let read = read_full_at(&*file, 0, &mut bytes)?;
    bytes.truncate(read);
    Ok(bytes)
}

/// Gives a small file this content in one step: after a crash it has the old or the new one, whole. Writes `path` +
/// `.tmp`, brings it to the device, renames it over `path` and brings the folder to the device.
///
/// # Errors
/// What the storage says; `path` may then have either content.
pub fn replace_file(storage: &dyn Storage, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".tmp");
    let temporary = PathBuf::from(temporary);
    remove_if_there(storage, &temporary)?;
    let file = storage.create_file(&temporary)?;
    file.write_at(0, bytes)?;
    file.sync_data()?;
    storage.rename(&temporary, path)?;
    match path.parent() {
        Some(folder) => storage.sync_directory(folder),
        None => Ok(()),
    }
}

/// Removes a file that need not be there; says whether it was.
///
/// # Errors
/// What the storage says, except `NotFound`.
pub fn remove_if_there(storage: &dyn Storage, path: &Path) -> io::Result<bool> {
    match storage.remove_file(path) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}
