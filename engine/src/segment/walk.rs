//! A walk over batches that lie in memory.

use crate::batch::legacy::LegacyMessage;
use crate::batch::{BatchFrame, FrameFault, FramePrefix};
use crate::types::Offset;

use super::reader::{Frame, FrameAt};

/// What a segment has to know of a batch that it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchFacts {
    /// Bytes of the whole batch.
    pub size: u32,
    /// Offset of its first record.
    pub base_offset: Offset,
    /// Offset of its last record, as originally written.
    pub last_offset: Offset,
    /// Its largest record timestamp, ms, −1 = none.
    pub max_timestamp: i64,
}

impl BatchFacts {
    /// The facts of a batch, from its header.
    pub fn of(frame: &BatchFrame<'_>) -> Self {
        Self {
            // A length field is an i32.
            size: frame.size() as u32,
            base_offset: frame.base_offset(),
            last_offset: frame.last_offset(),
            max_timestamp: frame.max_timestamp(),
        }
    }
}

impl<'a> Frame<'a> {
    /// Reads the batch that begins at the front of `bytes`, which may go on behind it.
    ///
    /// # Errors
    /// [`FrameFault`], as a walk over a segment finds it.
    #[inline]
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, FrameFault> {
        let FramePrefix { size, magic } = FramePrefix::parse(bytes, bytes.len() as u64)?;
        if magic == 2 {
            Ok(Frame::Batch(BatchFrame::new(&bytes[..size as usize])?))
        } else {
            Ok(Frame::Legacy(LegacyMessage::parse(bytes)?.0))
        }
    }

    /// Bytes of the whole batch.
    #[inline]
    pub(super) fn size(&self) -> u64 {
        match self {
            Frame::Batch(frame) => frame.size() as u64,
            Frame::Legacy(message) => message.size() as u64,
        }
    }

    /// Offset of the first record; for a compressed message of magic 0 or 1 that of the last, which is all it says.
    #[inline]
    pub(crate) fn base_offset(&self) -> Offset {
        match self {
            Frame::Batch(frame) => frame.base_offset(),
            Frame::Legacy(message) => message.offset(),
        }
    }

    /// Offset of the last record.
    #[inline]
    pub(crate) fn last_offset(&self) -> Offset {
        match self {
            Frame::Batch(frame) => frame.last_offset(),
            Frame::Legacy(message) => message.offset(),
        }
    }

    /// Largest timestamp, ms, −1 = none.
    #[inline]
    pub(super) fn max_timestamp(&self) -> i64 {
        match self {
            Frame::Batch(frame) => frame.max_timestamp(),
            Frame::Legacy(message) => message.timestamp(),
        }
    }
}

/// Walks the batches of a piece of a log from a byte position on.
#[derive(Clone, Debug)]
pub(super) struct Walk<'a> {
    bytes: &'a [u8],
    position: u64,
}

impl<'a> Walk<'a> {
    /// `position` must be where a batch begins; one behind the bytes is taken for their end.
    pub(super) fn new(bytes: &'a [u8], position: u64) -> Self {
        Self { bytes, position: position.min(bytes.len() as u64) }
    }

    /// Where it stands: the byte position of what the next step looks at.
    #[inline]
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// The batch that begins here; the walk moves behind it. `None` at the end.
    ///
    /// # Errors
    /// [`FrameFault`] where no batch can be read; the walk stays.
    #[inline]
    pub(super) fn next(&mut self) -> Result<Option<FrameAt<'a>>, FrameFault> {
        let rest = &self.bytes[self.position as usize..];
        if rest.is_empty() {
            return Ok(None);
        }
        let frame = Frame::parse(rest)?;
        let (position, size) = (self.position, frame.size());
        self.position += size;
        Ok(Some(FrameAt { position, size, frame }))
    }

    /// As [`next`](Self::next), but a batch that the bytes cut off is their end, as for Kafka's iterators.
    #[inline]
    pub(super) fn next_whole(&mut self) -> Result<Option<FrameAt<'a>>, FrameFault> {
        match self.next() {
            Err(FrameFault::Incomplete { .. }) => Ok(None),
            other => other,
        }
    }
}
