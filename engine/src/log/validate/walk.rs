//! From batch to batch through the bytes of an append.

use super::AppendRejection;
use crate::batch::legacy::LegacyMessage;
use crate::batch::{BatchFrame, FrameFault, FramePrefix, LOG_OVERHEAD, PREFIX_LEN};

/// One whole batch, with any values in its header.
pub(super) enum Found<'a> {
    /// Magic 2.
    Batch(BatchFrame<'a>),
    /// Magic 0 or 1.
    Legacy(LegacyMessage<'a>),
}

impl Found<'_> {
    pub(super) fn size(&self) -> usize {
        match self {
            Self::Batch(frame) => frame.size(),
            Self::Legacy(message) => message.size(),
        }
    }

    /// Checks the CRC, which costs a pass over the bytes.
    pub(super) fn verify(&self, position: usize) -> Result<(), AppendRejection> {
        let verified = match self {
            Self::Batch(frame) => frame.verify().map(|_| ()),
            Self::Legacy(message) => message.verify(),
        };
        verified.map_err(|mismatch| AppendRejection::Crc { position, mismatch })
    }
}

/// The batch at `position`; `None` where the bytes end before it does (Kafka's ByteBufferLogInputStream).
pub(super) fn batch_at(bytes: &[u8], position: usize) -> Result<Option<Found<'_>>, AppendRejection> {
    let rest = bytes.get(position..).unwrap_or_default();
    let refused = |fault| AppendRejection::Frame { position, fault };
    // The length is looked at before it is known whether the magic byte is there.
    let (head, after) = rest.split_at(rest.len().min(LOG_OVERHEAD));
    if let (Some(&length), true) = (head.last_chunk::<4>(), head.len() == LOG_OVERHEAD)
        && after.len() < PREFIX_LEN - LOG_OVERHEAD
    {
        let length = i32::from_be_bytes(length);
        const LEAST: i32 = 14;
        return if length < LEAST {
            Err(refused(FrameFault::Length { length, magic: 0, least: LEAST }))
        } else {
            Ok(None)
        };
    }
    let prefix = match FramePrefix::parse(rest, rest.len() as u64) {
        Ok(prefix) => prefix,
        Err(FrameFault::Incomplete { .. }) => return Ok(None),
        Err(fault) => return Err(refused(fault)),
    };
    let found = match prefix.magic {
        2 => BatchFrame::unchecked_fields(rest).map(Found::Batch),
        _ => LegacyMessage::parse(rest).map(|(message, _)| Found::Legacy(message)),
    };
    found.map(Some).map_err(refused)
}
