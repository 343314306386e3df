//! A walk over the batches of a `.log` file, from a mapping or by positioned reads, with the same answer.

use std::path::{Path, PathBuf};

use crate::batch::legacy::LegacyMessage;
use crate::batch::{BatchFrame, FrameFault, FramePrefix, HEADER_LEN};
use crate::error::{BrokerView, Corruption, Error, Reason};
use crate::io::{Region, Storage, StorageFile, read_full_at};
use crate::types::Offset;

/// How the bytes of a segment are reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Map the file: no copy, but nobody may shorten it meanwhile.
    Mapped,
    /// Read it piece by piece into a buffer of this many bytes, which grows for a larger batch.
    Positioned {
        /// Bytes of the buffer.
        buffer_bytes: usize,
    },
}

/// A batch and where it lies.
#[derive(Clone, Copy, Debug)]
pub struct FrameAt<'a> {
    /// Byte position of its first byte.
    pub position: u64,
    /// Bytes of the whole batch.
    pub size: u64,
    /// The batch itself.
    pub frame: Frame<'a>,
}

/// A batch of any message format.
#[derive(Clone, Copy, Debug)]
pub enum Frame<'a> {
    /// Magic 2.
    Batch(BatchFrame<'a>),
    /// Magic 0 or 1.
    Legacy(LegacyMessage<'a>),
}

/// The next thing in a segment.
#[derive(Clone, Debug)]
pub enum Next<'a> {
    /// A batch. The walk has moved behind it.
    Frame(FrameAt<'a>),
    /// The last batch ended exactly at the end of the file.
    End,
    /// No batch can be read here. The walk stays; [`SegmentReader::skip_to`] moves it.
    Bad(FrameFault),
}

/// Walks the batches of one segment from its first byte. Holds one descriptor, and one mapping or one buffer.
#[derive(Debug)]
pub struct SegmentReader {
    path: PathBuf,
    base_offset: Offset,
    file: Box<dyn StorageFile>,
    len: u64,
    position: u64,
    window: Window,
}

#[derive(Debug)]
enum Window {
    Mapped(Region),
    Buffer {
        /// Byte position of the first byte in `bytes`.
        start: u64,
        bytes: Vec<u8>,
        buffer_bytes: usize,
    },
}

impl SegmentReader {
    /// Opens a segment that had `len` bytes when it was listed; what was appended since is not looked at.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Corrupt`] if the file has become shorter, or is larger than any segment can be.
    pub fn open(
        storage: &dyn Storage,
        path: &Path,
        base_offset: Offset,
        len: u64,
        access: Access,
    ) -> Result<Self, Error> {
        let file = storage.open(path).map_err(Error::io("open", path))?;
        let mut reader = Self {
            path: path.to_path_buf(),
            base_offset,
            file,
            len,
            position: 0,
            window: Window::Buffer { start: 0, bytes: Vec::new(), buffer_bytes: 0 },
        };
        if len > i32::MAX as u64 {
            return Err(reader.corrupt(Reason::SegmentTooLarge(len)));
        }
        reader.check_not_shrunk()?;
        reader.window = match access {
            // An empty file cannot be mapped.
            Access::Mapped if len > 0 => {
                let region = reader.file.map().map_err(Error::io("map", path))?;
                if (region.len() as u64) < len {
                    return Err(reader.corrupt(Reason::Shrunk { expected: len, found: region.len() as u64 }));
                }
                Window::Mapped(region)
            }
            Access::Mapped => Window::Mapped(Region::from(Vec::new())),
            Access::Positioned { buffer_bytes } => {
                Window::Buffer { start: 0, bytes: Vec::new(), buffer_bytes: buffer_bytes.max(HEADER_LEN) }
            }
        };
        Ok(reader)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The open file, for looks aside from the walk.
    pub fn file(&self) -> &dyn StorageFile {
        &*self.file
    }

    /// Bytes that the walk covers.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the segment has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Byte position of what [`next`](Self::next) will look at.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Moves the walk to a byte position, at most the end.
    pub fn skip_to(&mut self, position: u64) {
        self.position = position.min(self.len);
    }

    /// The next batch. Costs no copy over a mapping, and one copy by positioned reads.
    ///
    /// # Errors
    /// [`Error::Io`], and [`Error::Corrupt`] if the file shrinks; what is wrong with the bytes is [`Next::Bad`].
    #[expect(
        clippy::should_implement_trait,
        reason = "the batch borrows the reader, which Iterator cannot say"
    )]
    #[inline]
    pub fn next(&mut self) -> Result<Next<'_>, Error> {
        let left = self.len - self.position;
        if left == 0 {
            return Ok(Next::End);
        }
        let header = self.bytes_at(self.position, (HEADER_LEN as u64).min(left) as usize)?;
        let prefix = match FramePrefix::parse(header, left) {
            Ok(prefix) => prefix,
            Err(fault) => return Ok(Next::Bad(fault)),
        };
        let position = self.position;
        let size = prefix.size;
        let Self { window, file, path, base_offset, len, position: next_position, .. } = self;
        let bytes = window_bytes(window, &**file, path, *base_offset, *len, position, size)?;
        let frame = if prefix.magic == 2 {
            BatchFrame::new(bytes).map(Frame::Batch)
        } else {
            LegacyMessage::parse(bytes).map(|(message, _)| Frame::Legacy(message))
        };
        match frame {
            Ok(frame) => {
                *next_position = position + size;
                Ok(Next::Frame(FrameAt { position, size, frame }))
            }
            Err(fault) => Ok(Next::Bad(fault)),
        }
    }

    fn bytes_at(&mut self, position: u64, count: usize) -> Result<&[u8], Error> {
        window_bytes(
            &mut self.window,
            &*self.file,
            &self.path,
            self.base_offset,
            self.len,
            position,
            count as u64,
        )
    }

    /// Makes sure that what was read was still the file: to be called when the walk is done.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the file is now shorter than the walk, [`Error::Io`].
    pub fn check_not_shrunk(&self) -> Result<(), Error> {
        let found = self.file.size().map_err(Error::io("look at the length of", &self.path))?;
        if found < self.len {
            return Err(self.corrupt(Reason::Shrunk { expected: self.len, found }));
        }
        Ok(())
    }

    fn corrupt(&self, reason: Reason) -> Error {
        corrupt(&self.path, self.base_offset, self.position, reason)
    }
}

fn corrupt(path: &Path, offset: Offset, position: u64, reason: Reason) -> Error {
    Error::Corrupt(Box::new(Corruption {
        path: path.to_path_buf(),
        offset,
        position,
        reason,
        transactional_id: None,
        broker: BrokerView::Overlooks,
    }))
}

/// `count` bytes of the file from `position` on, both inside `len`, refilling the buffer where needed.
#[inline]
fn window_bytes<'w>(
    window: &'w mut Window,
    file: &dyn StorageFile,
    path: &Path,
    base_offset: Offset,
    len: u64,
    position: u64,
    count: u64,
) -> Result<&'w [u8], Error> {
    match window {
        Window::Mapped(region) => Ok(&region[position as usize..(position + count) as usize]),
        Window::Buffer { start, bytes, buffer_bytes } => {
            if position < *start || position + count > *start + bytes.len() as u64 {
                // The window begins at the wanted byte; what is already there moves to the front.
                let kept = match position.checked_sub(*start) {
                    Some(skip) if skip <= bytes.len() as u64 => {
                        bytes.drain(..skip as usize);
                        bytes.len()
                    }
                    _ => 0,
                };
                let want = (*buffer_bytes as u64).max(count).min(len - position) as usize;
                bytes.resize(want, 0);
                *start = position;
                let read = read_full_at(file, position + kept as u64, &mut bytes[kept..])
                    .map_err(Error::io("read", path))?;
                if kept + read < want {
                    let found = position + (kept + read) as u64;
                    bytes.truncate(kept + read);
                    return Err(corrupt(
                        path,
                        base_offset,
                        position,
                        Reason::Shrunk { expected: len, found },
                    ));
                }
            }
            let from = (position - *start) as usize;
            Ok(&bytes[from..from + count as usize])
        }
    }
}
