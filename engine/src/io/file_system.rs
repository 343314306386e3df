use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::UNIX_EPOCH;

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;

use super::{Cache, DirectFile, Entry, EntryKind, FileLock, Region, Storage, StorageFile, WritableFile};
use crate::machine::mapping::{self, GrowingMap};
use crate::machine::residency;

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
        let mut lock = whole_file(libc::F_RDLCK as libc::c_short);
        // Elsewhere the crate does not build, and says so in one sentence: this must not add another error to it.
        #[cfg(target_os = "linux")]
        fcntl(&file, FcntlArg::F_OFD_GETLK(&mut lock))?;
        Ok(lock.l_type != libc::F_UNLCK as libc::c_short)
    }

    fn open_direct(&self, path: &Path) -> io::Result<DirectFile> {
        DirectFile::open(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        fs::create_dir(path)
    }

    fn create_file(&self, path: &Path) -> io::Result<Arc<dyn WritableFile>> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        Ok(Arc::new(GrowingFile::new(file, 0)))
    }

    fn open_writable(&self, path: &Path) -> io::Result<Arc<dyn WritableFile>> {
        let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        Ok(Arc::new(GrowingFile::new(file, metadata.len())))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn lock_file(&self, path: &Path) -> io::Result<FileLock> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        // A lock of the open file, not of the process: it is in the way of a Java FileChannel lock and the other way
        // round, but does not go when some other descriptor of the same file is closed.
        let lock = whole_file(libc::F_WRLCK as libc::c_short);
        #[cfg(target_os = "linux")]
        fcntl(&file, FcntlArg::F_OFD_SETLK(&lock)).map_err(|errno| match errno {
            nix::errno::Errno::EACCES | nix::errno::Errno::EAGAIN => io::ErrorKind::WouldBlock.into(),
            other => io::Error::from(other),
        })?;
        Ok(FileLock::new(file))
    }
}

/// A record lock over the whole of a file.
fn whole_file(kind: libc::c_short) -> libc::flock {
    libc::flock { l_type: kind, l_whence: libc::SEEK_SET as libc::c_short, l_start: 0, l_len: 0, l_pid: 0 }
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

    fn modified_ms(&self) -> io::Result<i64> {
        modified_ms(&self.0)
    }
}

fn modified_ms(file: &File) -> io::Result<i64> {
    let since = file.metadata()?.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// A file that is open for writing.
#[derive(Debug)]
struct GrowingFile {
    file: File,
    map: GrowingMap,
    /// Raised after the bytes below it were written, so that who reads it may share them.
    written: AtomicU64,
    /// Held while the file is made shorter, and until the first region of it is out, whichever comes first.
    first_region: Mutex<()>,
}

impl GrowingFile {
    fn new(file: File, written: u64) -> Self {
        Self {
            file,
            map: GrowingMap::new(),
            written: AtomicU64::new(written),
            first_region: Mutex::default(),
        }
    }
}

impl StorageFile for GrowingFile {
    fn size(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn read_at(&self, position: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.file.read_at(buffer, position)
    }

    fn map(&self) -> io::Result<Region> {
        self.region(0..self.written())
    }

    fn cached(&self, len: u64, samples: usize) -> Cache {
        residency::residency(&self.file, len, samples)
    }

    fn modified_ms(&self) -> io::Result<i64> {
        modified_ms(&self.file)
    }
}

impl WritableFile for GrowingFile {
    fn write_at(&self, position: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, position)?;
        self.written.fetch_max(position.saturating_add(bytes.len() as u64), Ordering::Release);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let _first = self.first_region.lock().unwrap_or_else(PoisonError::into_inner);
        if len < self.written() {
            if self.map.is_used() {
                return Err(shared_bytes());
            }
            self.written.store(len, Ordering::Release);
        }
        self.file.set_len(len)
    }

    fn shorten(&mut self, len: u64) -> io::Result<()> {
        if !self.map.release() {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        self.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    fn region(&self, range: Range<u64>) -> io::Result<Region> {
        if range.start == range.end && range.end <= self.written() {
            return Ok(Region::from(Vec::new()));
        }
        // Only the first region can meet a file that becomes shorter.
        let _first =
            (!self.map.is_used()).then(|| self.first_region.lock().unwrap_or_else(PoisonError::into_inner));
        if range.start > range.end || range.end > self.written() {
            return Err(not_written());
        }
        Ok(Region::from_owner(self.map.part(&self.file, range)?))
    }

    fn populate(&self, range: Range<u64>) {
        // Behind the end of the file there are no pages to be had.
        self.map.populate(range.start..range.end.min(self.written()));
    }

    fn reserve(&self, len: u64) {
        self.map.reserve(len);
    }
}

pub(super) fn shared_bytes() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "bytes of the file were shared and cannot be cut off")
}

pub(super) fn not_written() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "bytes that were not written")
}
