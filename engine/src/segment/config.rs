/// The settings of a topic that a segment obeys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentConfig {
    /// `segment.bytes`, 1 GiB by default: bytes that a segment should not exceed.
    pub segment_bytes_max: u32,
    /// `segment.ms`, 7 days by default, or `max.compaction.lag.ms` where that is less and the topic is compacted.
    pub segment_ms: i64,
    /// What was drawn for this segment from 0 up to `segment.jitter.ms`: so much earlier it is rolled, ms.
    pub segment_jitter_ms: i64,
    /// `segment.index.bytes`, 10 MiB by default: bytes of the offset index, and of the time index.
    pub index_bytes_max: u32,
    /// `index.interval.bytes`, 4096 by default: more bytes than these lie between two index entries.
    pub index_interval_bytes: u32,
    /// `preallocate`, false by default: whether the log file has its full length from the start.
    pub preallocate: bool,
}

impl Default for SegmentConfig {
    fn default() -> Self {
        Self {
            segment_bytes_max: 1 << 30,
            segment_ms: 7 * 24 * 60 * 60 * 1000,
            segment_jitter_ms: 0,
            index_bytes_max: 10 << 20,
            index_interval_bytes: 4096,
            preallocate: false,
        }
    }
}
