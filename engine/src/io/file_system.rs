use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;

use super::{Cache, DirectFile, Entry, EntryKind, Region, Storage, StorageFile};
use crate::machine::{mapping, residency};

/// The machine's file system. Holds no descriptors of its own.
#[derive(Clone, Copy, Debug, Default)]
pub struct FileSystem;

impl Storage for FileSystem {
    fn list(&self, directory: &Path) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            // A file may be renamed or removed between the listing and the look at it, as brokers do all the time.
            let kind = match entry.metadata() {
                Ok(metadata) if metadata.is_file() => EntryKind::File { len: metadata.len() },
                Ok(metadata) if metadata.is_dir() => EntryKind::Directory,
                Ok(metadata) if metadata.is_symlink() => EntryKind::Link,
                Ok(_) => EntryKind::Other,
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                Err(e) => return Err(e),
            };
            entries.push(Entry { name: entry.file_name(), kind });
        }
        Ok(entries)
    }

    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        fs::canonicalize(path)
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn StorageFile>> {
        let file = open_at_once(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        Ok(Box::new(FileSystemFile(file)))
    }

    fn is_locked(&self, path: &Path) -> io::Result<bool> {
        let file = match open_at_once(path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(e) => return Err(e),
        };
        if !file.metadata()?.is_file() {
            // No broker locks a pipe or a folder.
            return Ok(false);
        }
        // A Java FileChannel lock is a POSIX record lock, which flock(2) does not see. Asking (GETLK) instead of
        // trying keeps us from standing in the way of a broker that starts at this moment.
        let mut lock = libc::flock {
            l_type: libc::F_RDLCK as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: 0,
            l_len: 0,
            l_pid: 0,
        };
        // Elsewhere the crate does not build, and says so in one sentence: this must not add another error to it.
        #[cfg(target_os = "linux")]
        fcntl(&file, FcntlArg::F_OFD_GETLK(&mut lock))?;
        Ok(lock.l_type != libc::F_UNLCK as libc::c_short)
    }

    fn open_direct(&self, path: &Path) -> io::Result<DirectFile> {
        DirectFile::open(path)
    }
}

/// Opens for reading. Should the name be a pipe, that must not wait for a writer.
fn open_at_once(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)
}

#[derive(Debug)]
struct FileSystemFile(File);

impl StorageFile for FileSystemFile {
    fn size(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_at(&self, position: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read_at(buffer, position)
    }

    fn map(&self) -> io::Result<Region> {
        Ok(Region::from_owner(mapping::map(&self.0)?))
    }

    fn cached(&self, len: u64, samples: usize) -> Cache {
        residency::residency(&self.0, len, samples)
    }
}
