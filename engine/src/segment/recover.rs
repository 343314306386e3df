//! What a broker does with a segment after an unclean stop: look at every batch, cut where the first bad one begins, and
//! make the indexes anew.

use std::sync::Arc;

use super::index::{
    AbortedTransaction, IndexRefusal, LiveOffsetIndex, LiveTimeIndex, OffsetIndexEntry, OffsetOutOfIndex,
    TimeIndexEntry,
};
use super::reader::{Frame, FrameAt};
use super::truncate::cut_log;
use super::walk::Walk;
use super::writer::append_closing_entry;
use super::{Segment, SegmentConfig, SegmentFileKind, TimestampOffset};
use crate::batch::{BatchFrame, CrcMismatch, FrameFault};
use crate::error::Error;
use crate::types::Offset;

/// Bytes whose pages are mapped at once before they are walked over.
const POPULATE_BYTES: u64 = 4 << 20;
/// Where a range of pages may begin.
const PAGE_BYTES: u64 = 64 << 10;

/// Why a segment was cut.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CutReason {
    /// No batch can begin there, or it is not whole.
    #[error(transparent)]
    Frame(#[from] FrameFault),
    /// Its checksum is wrong.
    #[error(transparent)]
    Crc(#[from] CrcMismatch),
    /// It begins at or below the end of the batch before it.
    #[error("offset {found} follows a batch that ends at {last}")]
    OffsetGoesBack {
        /// Last offset of the batch before.
        last: Offset,
        /// Its base offset.
        found: Offset,
    },
}

/// What was cut off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Byte position from which nothing is left.
    pub position: u64,
    /// How many bytes went.
    pub bytes: u64,
    /// What is wrong there.
    pub reason: CutReason,
}

/// A segment that was recovered.
#[derive(Debug)]
pub struct Recovered {
    /// The segment, another one if it was cut.
    pub segment: Arc<Segment>,
    /// What was cut off, if anything.
    pub cut: Option<Cut>,
    /// Batches that were kept.
    pub batches: u64,
    /// The offset behind the last batch, or the base offset.
    pub next_offset: Offset,
    /// Batches that would have got index entries, had there been room.
    pub not_indexed: u64,
}

/// Why a segment cannot be recovered as it is. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecoveryFault {
    /// A batch at this byte position has an offset out of reach of the base offset: the segment has to be split.
    #[error("at byte {position}: {fault}")]
    OffsetOverflow {
        /// Where the batch begins.
        position: u64,
        /// Its offset.
        fault: OffsetOutOfIndex,
    },
    /// Reading or writing failed, or whoever looks at the batches as well refused one.
    #[error(transparent)]
    Other(#[from] Error),
}

/// What the walk over a segment makes.
pub(crate) struct Rebuilt {
    offset_index: LiveOffsetIndex,
    time_index: LiveTimeIndex,
    transactions: Vec<AbortedTransaction>,
    max: TimestampOffset,
    /// Bytes of good batches.
    kept: u64,
    reason: Option<CutReason>,
    batches: u64,
    next_offset: Offset,
    not_indexed: u64,
}

impl Segment {
    /// Walks the segment from its first byte and checks size, checksum and offset of every batch. Cuts where the first
    /// bad one begins; makes the three indexes anew, with their entries where an append of the same batches would have
    /// put them, and the files trimmed. Everything is on the device when this returns.
    ///
    /// `observe` sees every good batch of magic 2 in turn with its byte position, and says which aborted transaction ends
    /// with it: producer state and leader epochs are the caller's. It is not called again after an error.
    ///
    /// Cost: one pass over the bytes and their checksums, no allocation per batch. Where the segment is cut,
    /// what is kept is copied to a new file, unless the file was made here and nobody reads it.
    ///
    /// # Errors
    /// [`RecoveryFault`]
    pub fn recover(
        self: Arc<Self>,
        config: &SegmentConfig,
        observe: impl FnMut(&BatchFrame<'_>, u64) -> Result<Option<AbortedTransaction>, Error>,
    ) -> Result<Recovered, RecoveryFault> {
        let rebuilt = self.walk_all(config, observe)?;
        self.rebuild(rebuilt)
    }

    /// The second half of [`recover`](Self::recover): changes the files.
    pub(crate) fn rebuild(mut self: Arc<Self>, rebuilt: Rebuilt) -> Result<Recovered, RecoveryFault> {
        let size = self.size();
        let (storage, location) = (Arc::clone(&self.storage), self.location());
        let (log, is_own_log) = cut_log(&mut self, rebuilt.kept)?;
        let Rebuilt { offset_index, time_index, transactions, max, kept, batches, next_offset, .. } = rebuilt;

        // What is open of the index files was of no use, and is opened again.
        self.files().detach();
        let segment = Self::new(storage, location.clone(), log, kept, is_own_log);
        segment.set_indexes(offset_index, time_index);
        segment.set_max_timestamp(max);
        append_closing_entry(&segment)?;
        {
            // Should this end half-way, the transaction index is right at any moment, and the offset index is missing until
            // the time index is whole.
            let mut files = segment.files();
            files.replace_transactions(&*segment.storage, &location, &transactions)?;
            files.begin_anew(&*segment.storage, &location)?;
        }
        segment.set_transactions(transactions);
        segment.write_indexes()?;
        segment.files().trim(&*segment.storage, &location)?;
        segment.flush()?;
        let cut = rebuilt.reason.map(|reason| Cut { position: kept, bytes: size - kept, reason });
        let not_indexed = rebuilt.not_indexed;
        Ok(Recovered { segment: Arc::new(segment), cut, batches, next_offset, not_indexed })
    }

    /// The first half of [`recover`](Self::recover): looks, and changes nothing.
    pub(crate) fn walk_all(
        &self,
        config: &SegmentConfig,
        mut observe: impl FnMut(&BatchFrame<'_>, u64) -> Result<Option<AbortedTransaction>, Error>,
    ) -> Result<Rebuilt, RecoveryFault> {
        let base_offset = self.base_offset();
        let index_bytes = config.index_bytes_max as usize;
        let mut rebuilt = Rebuilt {
            offset_index: LiveOffsetIndex::new(base_offset, index_bytes),
            time_index: LiveTimeIndex::new(base_offset, index_bytes),
            transactions: Vec::new(),
            max: TimestampOffset { timestamp: -1, offset: base_offset },
            kept: 0,
            reason: None,
            batches: 0,
            next_offset: base_offset,
            not_indexed: 0,
        };
        let bytes = self.bytes()?;
        let mut walk = Walk::new(&bytes, 0);
        let (mut last_indexed, mut populated) = (0, 0);
        loop {
            if walk.position() >= populated {
                let from = walk.position() - walk.position() % PAGE_BYTES;
                populated = walk.position() + POPULATE_BYTES;
                self.log.populate(from..populated);
            }
            let found = match walk.next() {
                Ok(Some(found)) => found,
                Ok(None) => break,
                Err(fault) => {
                    let position = walk.position();
                    // Whole, with the right checksum, and yet below the base offset: nothing that a cut could mend.
                    if let Ok(frame) = BatchFrame::unchecked_fields(&bytes[position as usize..])
                        && frame.last_offset() < base_offset
                        && frame.verify().is_ok()
                    {
                        super::index::check_reach(frame.last_offset(), base_offset)
                            .map_err(|fault| RecoveryFault::OffsetOverflow { position, fault })?;
                    }
                    rebuilt.reason = Some(fault.into());
                    break;
                }
            };
            let checked = match &found.frame {
                Frame::Batch(frame) => frame.verify().map(drop),
                Frame::Legacy(message) => message.verify(),
            };
            if let Err(mismatch) = checked {
                rebuilt.reason = Some(mismatch.into());
                break;
            }
            let last_offset = found.frame.last_offset();
            let first_offset = match &found.frame {
                Frame::Batch(frame) => frame.base_offset(),
                // Of a compressed message only the last offset is known.
                Frame::Legacy(_) => last_offset,
            };
            if rebuilt.batches > 0 && first_offset < rebuilt.next_offset {
                // Both orders would be served otherwise, or the whole segment emptied as by Kafka.
                let last = Offset(rebuilt.next_offset.0 - 1);
                rebuilt.reason = Some(CutReason::OffsetGoesBack { last, found: first_offset });
                break;
            }
            super::index::check_reach(last_offset, base_offset)
                .map_err(|fault| RecoveryFault::OffsetOverflow { position: found.position, fault })?;
            if found.frame.max_timestamp() > rebuilt.max.timestamp {
                rebuilt.max = TimestampOffset { timestamp: found.frame.max_timestamp(), offset: last_offset };
            }
            if found.position - last_indexed > config.index_interval_bytes.into() {
                // Offsets that go back were cut off above.
                rebuilt.index(&found).map_err(|refusal| Error::Index {
                    path: self.path(SegmentFileKind::OffsetIndex),
                    reason: refusal.to_string(),
                })?;
                last_indexed = found.position;
            }
            if let Frame::Batch(frame) = &found.frame {
                rebuilt.transactions.extend(observe(frame, found.position)?);
            }
            rebuilt.batches += 1;
            rebuilt.next_offset = last_offset.next();
            rebuilt.kept = found.position + found.size;
        }
        Ok(rebuilt)
    }
}

impl Rebuilt {
    /// Whether something is going to be cut off.
    pub(crate) fn is_cut(&self) -> bool {
        self.reason.is_some()
    }

    /// Gives a batch its entries.
    fn index(&mut self, found: &FrameAt<'_>) -> Result<(), IndexRefusal> {
        if self.offset_index.is_full() || self.time_index.is_full() {
            self.not_indexed += 1;
            return Ok(());
        }
        // No segment is opened that has 2^31 bytes.
        let entry = OffsetIndexEntry { offset: found.frame.last_offset(), position: found.position as i32 };
        self.offset_index.append(entry).and_then(|()| {
            let TimestampOffset { timestamp, offset } = self.max;
            self.time_index.append(TimeIndexEntry { timestamp, offset })
        })
    }
}
