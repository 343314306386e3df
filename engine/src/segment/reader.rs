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
    source: Source,
    position: u64,
    window: Window,
}

#[derive(Debug)]
struct Source {
    path: PathBuf,
    base_offset: Offset,
    file: Box<dyn StorageFile>,
    len: u64,
}

/// The part of the file that is in memory.
#[derive(Debug)]
enum Window {
    Mapped(Region),
    Buffer(Buffer),
}

#[derive(Debug, Default)]
struct Buffer {
    /// Byte position of the first byte.
    start: u64,
    /// Filled up to `filled`; keeps its size so that it is zeroed once.
    bytes: Vec<u8>,
    filled: usize,
    /// Bytes to read at once.
    read_bytes: usize,
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
        let source = Source { path: path.to_path_buf(), base_offset, file, len };
        if len > i32::MAX as u64 {
            return Err(source.corrupt(0, Reason::SegmentTooLarge(len)));
        }
        source.check_not_shrunk(0)?;
        let window = match access {
            // An empty file cannot be mapped.
            Access::Mapped if len > 0 => {
                let region = source.file.map().map_err(Error::io("map", path))?;
                if (region.len() as u64) < len {
                    return Err(
                        source.corrupt(0, Reason::Shrunk { expected: len, found: region.len() as u64 })
                    );
                }
                Window::Mapped(region)
            }
            Access::Mapped => Window::Mapped(Region::from(Vec::new())),
            Access::Positioned { buffer_bytes } => {
                Window::Buffer(Buffer { read_bytes: buffer_bytes.max(HEADER_LEN), ..Buffer::default() })
            }
        };
        Ok(Self { source, position: 0, window })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.source.path
    }

    /// The open file, for looks aside from the walk.
    pub fn file(&self) -> &dyn StorageFile {
        &*self.source.file
    }

    /// Bytes that the walk covers.
    pub fn len(&self) -> u64 {
        self.source.len
    }

    /// Whether the segment has no bytes.
    pub fn is_empty(&self) -> bool {
        self.source.len == 0
    }

    /// Byte position of what [`next`](Self::next) will look at.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The mapped bytes of the segment; `None` where it is read by position.
    pub fn mapped(&self) -> Option<Region> {
        match &self.window {
            // A broker may have appended to the file since it was listed.
            Window::Mapped(region) => Some(region.slice(..self.source.len as usize)),
            Window::Buffer(_) => None,
        }
    }

    /// An error about this segment as a file.
    pub(crate) fn shrunk(&self, found: u64) -> Error {
        self.source.corrupt(self.position, Reason::Shrunk { expected: self.source.len, found })
    }

    /// Moves the walk to a byte position, at most the end.
    pub fn skip_to(&mut self, position: u64) {
        self.position = position.min(self.source.len);
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
        let position = self.position;
        let left = self.source.len - position;
        if left == 0 {
            return Ok(Next::End);
        }
        let header = self.window.bytes(&self.source, position, (HEADER_LEN as u64).min(left))?;
        let FramePrefix { size, magic } = match FramePrefix::parse(header, left) {
            Ok(prefix) => prefix,
            Err(fault) => return Ok(Next::Bad(fault)),
        };
        let bytes = self.window.bytes(&self.source, position, size)?;
        let frame = if magic == 2 {
            BatchFrame::new(bytes).map(Frame::Batch)
        } else {
            LegacyMessage::parse(bytes).map(|(message, _)| Frame::Legacy(message))
        };
        Ok(match frame {
            Ok(frame) => {
                self.position = position + size;
                Next::Frame(FrameAt { position, size, frame })
            }
            Err(fault) => Next::Bad(fault),
        })
    }

    /// Makes sure that what was read was still the file: to be called when the walk is done.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the file is now shorter than the walk, [`Error::Io`].
    pub fn check_not_shrunk(&self) -> Result<(), Error> {
        self.source.check_not_shrunk(self.position)
    }
}

impl Source {
    fn check_not_shrunk(&self, position: u64) -> Result<(), Error> {
        let found = self.file.size().map_err(Error::io("look at the length of", &self.path))?;
        if found < self.len {
            return Err(self.corrupt(position, Reason::Shrunk { expected: self.len, found }));
        }
        Ok(())
    }

    fn corrupt(&self, position: u64, reason: Reason) -> Error {
        let broker = match reason {
            Reason::SegmentTooLarge(_) => BrokerView::RefusesToLoad,
            _ => BrokerView::Unknown,
        };
        Error::Corrupt(Box::new(Corruption {
            path: self.path.clone(),
            offset: self.base_offset,
            position,
            reason,
            transactional_id: None,
            broker,
        }))
    }
}

impl Window {
    /// `count` bytes of the file from `position` on, both inside its length.
    #[inline]
    fn bytes(&mut self, source: &Source, position: u64, count: u64) -> Result<&[u8], Error> {
        match self {
            Self::Mapped(region) => Ok(&region[position as usize..(position + count) as usize]),
            Self::Buffer(buffer) => {
                if position < buffer.start || position + count > buffer.start + buffer.filled as u64 {
                    buffer.refill(source, position, count)?;
                }
                let from = (position - buffer.start) as usize;
                Ok(&buffer.bytes[from..from + count as usize])
            }
        }
    }
}

impl Buffer {
    /// Makes the buffer begin at `position` and hold at least `count` bytes from there.
    fn refill(&mut self, source: &Source, position: u64, count: u64) -> Result<(), Error> {
        // What is already there moves to the front.
        let kept = match position.checked_sub(self.start) {
            Some(skip) if skip < self.filled as u64 => {
                self.bytes.copy_within(skip as usize..self.filled, 0);
                self.filled - skip as usize
            }
            _ => 0,
        };
        (self.start, self.filled) = (position, kept);
        let want = (self.read_bytes as u64).max(count).min(source.len - position) as usize;
        if self.bytes.len() < want {
            self.bytes.resize(want, 0);
        }
        self.filled += read_full_at(&*source.file, position + kept as u64, &mut self.bytes[kept..want])
            .map_err(Error::io("read", &source.path))?;
        if self.filled < want {
            let found = position + self.filled as u64;
            return Err(source.corrupt(position, Reason::Shrunk { expected: source.len, found }));
        }
        Ok(())
    }
}
