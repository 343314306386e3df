//! Files, behind the one small interface that everything above reads through.
//!
//! [`Storage`] lists a folder and opens files; [`StorageFile`] reads at a position or gives the whole file as a
//! [`Region`]. [`FileSystem`] is the real one, [`MemoryStorage`] a double with faults on demand. This module
//! knows nothing of Kafka and returns plain [`std::io::Error`]s: callers add what they were doing.

mod direct;
mod file_system;
mod memory;
mod region;

pub use direct::DirectFile;
pub use file_system::FileSystem;
pub use memory::{Fault, MemoryStorage};
pub use region::Region;

pub use crate::machine::residency::Cache;

use std::ffi::OsString;
use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};

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
}

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
