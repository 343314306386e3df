//! Places in a log as single numbers.

use super::LogSnapshot;
use crate::error::Error;

/// Most bytes that a log can have to be addressed: 1 TiB.
const LOG_BYTES_MAX: u64 = 1 << 40;

/// The segments of a log, one behind the other: an address is the number of bytes before a place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Addresses {
    /// Address of the first byte of each segment, rising.
    starts: Vec<u64>,
    /// For each stretch of `1 << STRETCH_BITS` bytes the last segment that begins at or before its first byte.
    stretches: Vec<u32>,
}

/// Long enough that there are few, short enough that few segments begin inside one.
const STRETCH_BITS: u32 = 22;

impl Addresses {
    /// # Errors
    /// [`Error::LogTooLong`].
    pub(crate) fn of(snapshot: &LogSnapshot) -> Result<Self, Error> {
        let mut next = 0u64;
        let mut starts = Vec::with_capacity(snapshot.segments.len());
        for segment in &snapshot.segments {
            starts.push(next);
            next = next.saturating_add(segment.len);
        }
        if next > LOG_BYTES_MAX {
            let partition = snapshot.topic_partition.clone();
            return Err(Error::LogTooLong { partition, bytes: next, most: LOG_BYTES_MAX });
        }
        let first_of =
            |address: u64| starts.partition_point(|start| *start <= address).saturating_sub(1) as u32;
        let stretches = (0..=next >> STRETCH_BITS).map(|stretch| first_of(stretch << STRETCH_BITS)).collect();
        Ok(Self { starts, stretches })
    }

    /// Address of the first byte of a segment.
    #[inline(always)]
    pub(crate) fn start(&self, segment: usize) -> u64 {
        self.starts.get(segment).copied().unwrap_or(0)
    }

    /// Number of the segment that holds an address, and the byte position there.
    #[inline(always)]
    pub(crate) fn locate(&self, address: u64) -> (usize, u64) {
        let mut segment =
            self.stretches.get((address >> STRETCH_BITS) as usize).copied().unwrap_or(0) as usize;
        let mut start = self.start(segment);
        // Of segments that begin at the same address all but the last are empty.
        while let Some(&next) = self.starts.get(segment + 1)
            && next <= address
        {
            (segment, start) = (segment + 1, next);
        }
        (segment, address.saturating_sub(start))
    }
}
