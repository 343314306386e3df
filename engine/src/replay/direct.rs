//! Segments as a worker gets them past the page cache: block by block, each gone when the next one comes.

use std::io;

use super::reach::unavailable;
use super::scan::{Ground, Scan, Stop};
use crate::error::Error;
use crate::io::Storage;
use crate::log::SegmentInfo;
use crate::machine::uring::{Block, DirectReader, ReadFault};

/// Reads in flight.
const DEPTH: usize = 4;
/// Blocks have four times the bytes of a chunk, in these bounds and a multiple of the smaller.
const BLOCK_BYTES_MIN: usize = 4 << 10;
const BLOCK_BYTES_MAX: usize = 1 << 20;

/// One worker's reads: of the segment that it is at, and towards its end of the one that it takes next.
#[derive(Debug)]
pub(super) struct Direct {
    chunk_bytes: usize,
    /// Made for the first segment, and anew behind one that was left before its end.
    reader: Option<DirectReader>,
    /// The reader's number of the segment that the worker is at.
    file: Option<usize>,
    /// The segment after it, with the reader's number.
    queued: Option<(usize, usize)>,
}

impl Direct {
    /// For scans of so many bytes. Takes no memory yet.
    pub(super) fn new(chunk_bytes: usize) -> Self {
        Self { chunk_bytes, reader: None, file: None, queued: None }
    }

    /// Whether the device will have nothing to do unless [`Self::queue`] names the next segment.
    pub(super) fn is_running_dry(&self) -> bool {
        self.queued.is_none() && self.reader.as_ref().is_none_or(DirectReader::is_all_asked)
    }

    /// Names the segment, by its number in the partition, that is read after the one under way.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::IoUnavailable`]. Then nothing is queued, and [`Self::begin`] will say it again.
    pub(super) fn queue(
        &mut self,
        storage: &dyn Storage,
        number: usize,
        segment: &SegmentInfo,
    ) -> Result<(), Error> {
        self.queued = Some((number, self.push(storage, segment)?));
        Ok(())
    }

    /// Begins with a segment.
    ///
    /// # Errors
    /// As [`Self::queue`].
    pub(super) fn begin(
        &mut self,
        storage: &dyn Storage,
        number: usize,
        segment: &SegmentInfo,
    ) -> Result<(), Error> {
        let file = match self.queued.take() {
            Some((queued, file)) if queued == number => file,
            _ => self.push(storage, segment)?,
        };
        self.file = Some(file);
        Ok(())
    }

    fn push(&mut self, storage: &dyn Storage, segment: &SegmentInfo) -> Result<usize, Error> {
        let path = &segment.path;
        let direct = storage.open_direct(path).map_err(|source| match source.kind() {
            io::ErrorKind::Unsupported => unavailable(Some(path), source),
            _ => Error::io("open", path)(source),
        })?;
        let reader = match &mut self.reader {
            Some(reader) => reader,
            none => {
                let block_bytes = self.chunk_bytes.saturating_mul(4).clamp(BLOCK_BYTES_MIN, BLOCK_BYTES_MAX);
                let block_bytes = block_bytes.next_multiple_of(BLOCK_BYTES_MIN);
                let reader = DirectReader::new(DEPTH, block_bytes);
                none.insert(reader.map_err(|source| unavailable(None, source))?)
            }
        };
        reader.push(direct.into_inner(), 0..segment.len).map_err(|source| unavailable(Some(path), source))
    }

    /// The segment's bytes that are there.
    fn block(&self) -> Option<Block<'_>> {
        let block = self.reader.as_ref()?.current()?;
        (Some(block.file) == self.file).then_some(block)
    }

    /// The bytes that the last scan went over.
    pub(super) fn bytes(&self) -> &[u8] {
        self.block().map_or(&[], |block| block.bytes)
    }

    /// Scans on from byte `from` of the segment, which is where the last scan ended, until a batch begins at or behind
    /// `until` or the bytes that are there end. Returns where the scan ended, and why.
    pub(super) fn scan(
        &mut self,
        scan: &mut Scan<'_>,
        ground: &Ground<'_>,
        from: u64,
        until: u64,
    ) -> Result<(u64, Stop), ReadFault> {
        loop {
            let mut keep = 0;
            if let Some(Block { position, bytes, last, .. }) = self.block() {
                let end = position + bytes.len() as u64;
                keep = (end - from) as usize;
                if keep > 0 {
                    let at = bytes.len() - keep;
                    let border = (until.min(end) - position) as usize;
                    let (stopped, stop) = scan.run(ground, bytes, position, at, border);
                    match stop {
                        Stop::NeedsBytes if stopped > at => {
                            return Ok((position + stopped as u64, Stop::Full));
                        }
                        Stop::NeedsBytes if !last => {}
                        Stop::NeedsBytes => return Ok((from, Stop::Problem)),
                        _ => return Ok((position + stopped as u64, stop)),
                    }
                }
            }
            let Some(reader) = &mut self.reader else { return Ok((from, Stop::Problem)) };
            if reader.next(keep)?.is_none() {
                return Ok((from, Stop::Problem));
            }
        }
    }

    /// Ends with a segment. What is left of it, if anything, is not read.
    pub(super) fn end(&mut self) {
        let is_whole = self.block().is_some_and(|block| block.last);
        if self.file.take().is_some() && !is_whole {
            (self.reader, self.queued) = (None, None);
        }
    }

    /// Ends with a partition.
    pub(super) fn leave(&mut self) {
        self.end();
        if self.queued.take().is_some() {
            self.reader = None;
        }
    }
}
