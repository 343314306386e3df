//! Going through the batches of a segment that is open.

use std::ops::ControlFlow;

use super::reader::FrameAt;
use super::walk::Walk;
use super::{Segment, SegmentFileState};
use crate::error::Error;
use crate::types::Offset;

impl Segment {
    /// Calls `see` with each batch in turn, from the one that holds `from` or the first above it, until it breaks off or
    /// the bytes end; a batch that they cut off is their end. Checksums are not looked at.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Corrupt`] where no batch can be read; what `see` returns.
    pub fn visit_from(
        &self,
        from: Offset,
        mut see: impl FnMut(&FrameAt<'_>) -> Result<ControlFlow<()>, Error>,
    ) -> Result<(), Error> {
        let Some(first) = self.find(from)? else { return Ok(()) };
        let bytes = self.bytes()?;
        let mut walk = Walk::new(&bytes, first.position);
        loop {
            let position = walk.position();
            match walk.next_whole() {
                Ok(Some(found)) => {
                    if see(&found)?.is_break() {
                        return Ok(());
                    }
                }
                Ok(None) => return Ok(()),
                Err(fault) => return Err(self.frame_fault(position, fault)),
            }
        }
    }

    /// The offset behind the last whole batch, or the base offset, and the byte position where that batch ends. Cost: a
    /// walk from the last index entry on.
    ///
    /// # Errors
    /// As [`next_offset`](Self::next_offset).
    pub fn end(&self) -> Result<(Offset, u64), Error> {
        let index = self.offset_index()?;
        let mut end = (self.base_offset(), 0);
        // An index may have entries of batches that are not there: then all are gone through.
        for from in [index.last_offset(), self.base_offset()] {
            self.visit_from(from, |found| {
                end = (found.frame.last_offset().next(), found.position + found.size);
                Ok(ControlFlow::Continue(()))
            })?;
            if end.1 > 0 {
                break;
            }
        }
        Ok(end)
    }

    /// The offset behind the last whole batch that a walk from the first byte meets, without any index.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Corrupt`] where no batch can be read.
    pub(crate) fn end_by_walk(&self) -> Result<Offset, Error> {
        let bytes = self.bytes()?;
        let mut walk = Walk::new(&bytes, 0);
        let mut next = self.base_offset();
        loop {
            let position = walk.position();
            match walk.next_whole() {
                Ok(Some(found)) => next = next.max(found.frame.last_offset().next()),
                Ok(None) => return Ok(next),
                Err(fault) => return Err(self.frame_fault(position, fault)),
            }
        }
    }

    /// In which step of a replacement its files are.
    pub fn state(&self) -> SegmentFileState {
        self.location().state
    }
}
