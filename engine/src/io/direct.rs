use std::io;
use std::path::Path;

use crate::machine::uring;

/// A file of the file system, open for reads past the page cache (`O_DIRECT`).
#[derive(Debug)]
pub struct DirectFile(uring::DirectFile);

impl DirectFile {
    /// Opens a regular file. Cost: two system calls.
    ///
    /// # Errors
    /// `Unsupported` where its file system has no such reads; else whatever the file system says.
    pub fn open(path: &Path) -> io::Result<Self> {
        match uring::DirectFile::open(path) {
            Ok(file) => Ok(Self(file)),
            Err(uring::OpenFault::Io(error)) => Err(error),
            Err(refused @ uring::OpenFault::Refused) => {
                Err(io::Error::new(io::ErrorKind::Unsupported, refused))
            }
        }
    }

    pub(crate) fn into_inner(self) -> uring::DirectFile {
        self.0
    }
}
