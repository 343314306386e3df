use std::path::PathBuf;

use crate::types::{Offset, TopicPartition};

/// A segment as it was when the partition's folder was listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentInfo {
    /// Base offset, from the name.
    pub base_offset: Offset,
    /// The `.log` file; still called `.log.swap` where a replacement was not finished.
    pub path: PathBuf,
    /// Its length in bytes.
    pub len: u64,
    /// Whether its `.index` is there; a broker recovers a segment without one.
    pub has_index: bool,
}

/// What the recovery-point file says of a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RecoveryPoint {
    /// There is no such file.
    #[default]
    Absent,
    /// Everything below this offset was flushed; 0 for a partition that the file does not name.
    At(Offset),
    /// The file cannot be read. A broker takes 0.
    Unreadable,
}

impl RecoveryPoint {
    /// The offset from which a broker recovers.
    pub fn as_broker(self) -> Offset {
        match self {
            Self::At(offset) => offset,
            Self::Absent | Self::Unreadable => Offset(0),
        }
    }
}

/// What is known about how the log was last closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoveryState {
    /// Whether the root has a clean-shutdown file: then nothing of the log may be damaged.
    pub clean_shutdown: bool,
    /// The recovery point.
    pub recovery_point: RecoveryPoint,
}

/// The immutable list of segments of a partition that a reader works on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSnapshot {
    /// Which partition.
    pub topic_partition: TopicPartition,
    /// Its folder.
    pub directory: PathBuf,
    /// Segments by rising base offset; empty for a folder without any.
    pub segments: Vec<SegmentInfo>,
    /// Log start offset of the checkpoint file, if it names the partition.
    pub log_start_checkpoint: Option<Offset>,
    /// How the log was closed.
    pub recovery: RecoveryState,
}

impl LogSnapshot {
    /// Smallest offset that a reader may ask for: the checkpoint, or the first base offset where that is larger.
    pub fn log_start_offset(&self) -> Offset {
        let first = self.segments.first().map_or(Offset(0), |segment| segment.base_offset);
        self.log_start_checkpoint.map_or(first, |start| start.max(first))
    }

    /// Bytes of all segments.
    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.len).sum()
    }
}
