//! What a follower appends: the leader's bytes as they are.

use super::AppendRejection;
use super::walk::{Found, batch_at};
use crate::batch::BatchFrame;
use crate::log::LogConfig;
use crate::types::Offset;

/// An append to a follower: what it is checked against.
#[derive(Clone, Copy, Debug)]
pub struct FollowerAppend<'a> {
    /// The log's settings; of the batches' sizes only `segment.bytes` is a limit, as in Kafka 4.4.
    pub config: &'a LogConfig,
    /// Where the log ends.
    pub log_end_offset: Offset,
    /// Leader epoch under which the bytes were fetched.
    pub leader_epoch: i32,
}

/// A batch as it will stand in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredBatch {
    /// Byte position in the append.
    pub position: usize,
    /// Bytes of the batch.
    pub size: usize,
    /// Base offset; of a compressed message of format 0 or 1 the last one.
    pub base_offset: Offset,
    /// Last offset.
    pub last_offset: Offset,
    /// Max timestamp in ms, −1 = none.
    pub max_timestamp: i64,
    /// Leader epoch that the batch carries, −1 = none. `None` for formats 0 and 1, which know none and empty the
    /// cache of epochs.
    pub leader_epoch: Option<i32>,
}

/// How much of an append a follower takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FollowerScan {
    /// Bytes from the front that are to be appended, whole batches; 0 leaves the log untouched.
    pub valid_bytes: usize,
    /// Whether batches were left out because a newer leader wrote them.
    pub skipped_newer_epoch: bool,
}

impl FollowerAppend<'_> {
    /// Looks at every batch: size, header and CRC right, offsets rising, the first not below the log end offset. A gap
    /// above it is accepted. An incomplete batch at the end is left out; so is one that carries a newer leader epoch
    /// than the fetch's, with all behind it.
    ///
    /// `batches` is emptied and gets the batches to append. After a refusal its content has no meaning.
    ///
    /// Cost: one pass over the bytes; `batches` grows to the number of batches once.
    ///
    /// # Errors
    /// [`AppendRejection`]: `Frame`, `Crc`, `OffsetsOutOfOrder`, `UnexpectedAppendOffset`, `AppendTooLarge`, in this
    /// order of precedence. A header field out of its range is `Frame` here, where Kafka stores it.
    pub fn scan(
        &self,
        bytes: &[u8],
        batches: &mut Vec<StoredBatch>,
    ) -> Result<FollowerScan, AppendRejection> {
        batches.clear();
        let mut scan = FollowerScan::default();
        let mut out_of_order = None;
        while let Some(found) = batch_at(bytes, scan.valid_bytes)? {
            let position = scan.valid_bytes;
            if let Found::Batch(frame) = &found
                && frame.partition_leader_epoch() > self.leader_epoch
            {
                scan.skipped_newer_epoch = true;
                break;
            }
            found.verify(position)?;
            let size = found.size();
            let stored = match found {
                Found::Batch(frame) => {
                    // A log must hold nothing that its own reader refuses.
                    BatchFrame::new(frame.bytes())
                        .map_err(|fault| AppendRejection::Frame { position, fault })?;
                    StoredBatch {
                        position,
                        size,
                        base_offset: frame.base_offset(),
                        last_offset: frame.last_offset(),
                        max_timestamp: frame.max_timestamp(),
                        leader_epoch: Some(frame.partition_leader_epoch()),
                    }
                }
                Found::Legacy(message) => StoredBatch {
                    position,
                    size,
                    base_offset: message.offset(),
                    last_offset: message.offset(),
                    max_timestamp: message.timestamp(),
                    leader_epoch: None,
                },
            };
            let previous = batches.last().map_or(Offset(-1), |batch| batch.last_offset);
            if stored.base_offset <= previous && out_of_order.is_none() {
                let StoredBatch { base_offset, last_offset, .. } = stored;
                out_of_order =
                    Some(AppendRejection::OffsetsOutOfOrder { previous, base_offset, last_offset });
            }
            batches.push(stored);
            scan.valid_bytes += size;
        }
        if let Some(rejection) = out_of_order {
            return Err(rejection);
        }
        let (Some(first), Some(last)) = (batches.first(), batches.last()) else { return Ok(scan) };
        if first.base_offset < self.log_end_offset {
            return Err(AppendRejection::UnexpectedAppendOffset {
                first_offset: first.base_offset,
                last_offset: last.last_offset,
                log_end_offset: self.log_end_offset,
            });
        }
        check_append_size(scan.valid_bytes, self.config)?;
        Ok(scan)
    }
}

/// A segment holds a whole append.
pub(super) fn check_append_size(size: usize, config: &LogConfig) -> Result<(), AppendRejection> {
    let most = config.segment_bytes;
    if size as u64 > u64::from(most) { Err(AppendRejection::AppendTooLarge { size, most }) } else { Ok(()) }
}
