//! Reading files piece by piece, always by position: a running broker may hold them, so they are never mapped.

use std::io;
use std::path::{Path, PathBuf};

use redrive::batch::{FrameFault, FramePrefix, PREFIX_LEN};
use redrive::io::{FileSystem, Storage, StorageFile, read_full_at, read_small};

use super::event::Stop;

/// Bytes that are read at once; a larger batch makes the window as large as itself.
const WINDOW_BYTES: u64 = 1 << 20;

/// Largest index, snapshot or checkpoint file, bytes: these are read whole. Kafka's indexes have 10 MiB.
const WHOLE_BYTES_MAX: usize = 256 << 20;

/// Reads an index, snapshot or checkpoint file whole.
///
/// # Errors
/// [`Stop::Unreadable`].
pub(super) fn read_whole(path: &Path) -> Result<Vec<u8>, Stop> {
    read_small(&FileSystem, path, WHOLE_BYTES_MAX).map_err(|source| unreadable(path, source))
}

fn unreadable(path: &Path, source: io::Error) -> Stop {
    Stop::Unreadable { path: path.to_path_buf(), source }
}

/// A log file, read through a window.
#[derive(Debug)]
pub(super) struct LogFile {
    file: Box<dyn StorageFile>,
    path: PathBuf,
    /// Bytes when it was opened; what a broker appends later is not looked at.
    len: u64,
    window: Vec<u8>,
    /// Byte position of the window's first byte.
    start: u64,
}

/// What stands at a position of a log.
#[derive(Debug)]
pub(super) enum Found<'a> {
    /// A whole batch of this magic, 0 or higher. One above 2 has a header like 2.
    Batch { bytes: &'a [u8], magic: i8 },
    /// A whole message with a negative magic and this offset field.
    NegativeMagic { offset: i64 },
    /// No further batch; so many bytes are left, and why they are none.
    End { left: u64, fault: Option<FrameFault> },
    /// Bytes that cannot be a batch.
    Bad(FrameFault),
}

impl LogFile {
    /// # Errors
    /// [`Stop::Unreadable`].
    pub(super) fn open(path: &Path) -> Result<Self, Stop> {
        let file = FileSystem.open(path).map_err(|source| unreadable(path, source))?;
        let len = file.size().map_err(|source| unreadable(path, source))?;
        Ok(Self { file, path: path.to_path_buf(), len, window: Vec::new(), start: 0 })
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// The offset field of the first batch, 0 if there is none. All formats begin with it; in a compressed message
    /// before version 2 it is the last offset inside.
    ///
    /// # Errors
    /// [`Stop::Unreadable`].
    pub(super) fn first_offset(&mut self) -> Result<i64, Stop> {
        Ok(match self.batch_at(0, u64::MAX)? {
            Found::Batch { bytes, .. } => bytes.first_chunk().map_or(0, |offset| i64::from_be_bytes(*offset)),
            Found::NegativeMagic { offset } => offset,
            Found::End { .. } | Found::Bad(_) => 0,
        })
    }

    /// `count` bytes from `position` on; both inside the file.
    fn bytes(&mut self, position: u64, count: u64) -> Result<&[u8], Stop> {
        let end = self.start + self.window.len() as u64;
        if position < self.start || position + count > end {
            let want = WINDOW_BYTES.max(count).min(self.len - position) as usize;
            self.window.clear();
            // A batch far above the usual size is not kept room for once it has been dealt with.
            self.window.shrink_to(want.max(WINDOW_BYTES as usize));
            self.window.resize(want, 0);
            self.start = position;
            let read = read_full_at(&*self.file, position, &mut self.window)
                .map_err(|source| unreadable(&self.path, source))?;
            if read < want {
                self.window.clear();
                let reason = format!("it was cut to {} bytes while it was read", position + read as u64);
                return Err(unreadable(&self.path, io::Error::new(io::ErrorKind::UnexpectedEof, reason)));
            }
        }
        let at = (position - self.start) as usize;
        Ok(&self.window[at..at + count as usize])
    }

    /// What begins at `position`, as if the file ended at `end`.
    ///
    /// The order of the checks is that of Kafka's FileLogInputStream: too few bytes for a header end the walk, whatever
    /// they are; a length that is too small is an error; a batch that goes past the end ends the walk.
    ///
    /// # Errors
    /// [`Stop::Unreadable`].
    pub(super) fn batch_at(&mut self, position: u64, end: u64) -> Result<Found<'_>, Stop> {
        let left = end.min(self.len).saturating_sub(position);
        if left <= PREFIX_LEN as u64 {
            let missing = PREFIX_LEN as u64 + 1 - left;
            let fault = (left > 0).then_some(FrameFault::Incomplete { left, missing });
            return Ok(Found::End { left, fault });
        }
        let mut prefix = [0; PREFIX_LEN];
        prefix.copy_from_slice(self.bytes(position, PREFIX_LEN as u64)?);
        let magic = prefix[16].cast_signed();
        // Sizes are the same for every magic that Kafka does not know and takes for 1 or 2.
        prefix[16] = magic.clamp(0, 2).cast_unsigned();
        match FramePrefix::parse(&prefix, left) {
            Ok(_) if magic < 0 => {
                let [o0, o1, o2, o3, o4, o5, o6, o7, ..] = prefix;
                Ok(Found::NegativeMagic { offset: i64::from_be_bytes([o0, o1, o2, o3, o4, o5, o6, o7]) })
            }
            Ok(FramePrefix { size, .. }) => {
                let bytes = self.bytes(position, size)?;
                Ok(Found::Batch { bytes, magic })
            }
            Err(fault @ FrameFault::Incomplete { .. }) => Ok(Found::End { left, fault: Some(fault) }),
            Err(fault) => Ok(Found::Bad(fault)),
        }
    }
}
