//! The settings of a partition's log (Kafka's LogConfig).

use crate::batch::{Compression, TimestampType};

/// How the leader stores what producers send (`compression.type`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CompressionType {
    /// `producer`: with the codec that the producer chose.
    #[default]
    Producer,
    /// `uncompressed`, or the name of a codec: a batch with another one is packed anew.
    Target(Compression),
}

impl CompressionType {
    /// Kafka's name of the setting's value.
    pub fn name(self) -> &'static str {
        match self {
            Self::Producer => "producer",
            Self::Target(Compression::None) => "uncompressed",
            Self::Target(codec) => codec.name(),
        }
    }

    /// The setting with this name; `None` if there is none.
    pub fn from_name(name: &str) -> Option<Self> {
        let targets = Compression::ALL.map(Self::Target);
        std::iter::once(Self::Producer).chain(targets).find(|setting| setting.name() == name)
    }

    /// Codec under which a batch is stored that came with `source`.
    pub fn target(self, source: Compression) -> Compression {
        match self {
            Self::Producer => source,
            Self::Target(codec) => codec,
        }
    }
}

/// Settings of one partition's log. Fields have the names of Kafka's topic properties, with `_` for `.`; defaults are
/// Kafka's. [`check`](Self::check) says whether values are in range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// `segment.bytes`: most bytes of a segment and of one append; at least 14 (1 MiB for a topic's property since
    /// Kafka 4.1, which still takes less by `internal.segment.bytes`). Default 1 GiB.
    pub segment_bytes: u32,
    /// `segment.ms`: age in ms at which a segment is rolled, at least 1. Default 7 days.
    pub segment_ms: i64,
    /// `segment.jitter.ms`: most ms that a roll by age is brought forward by, at random. Default 0.
    pub segment_jitter_ms: i64,
    /// `segment.index.bytes`: most bytes of an index file, at least 4. Default 10 MiB.
    pub segment_index_bytes: u32,
    /// `index.interval.bytes`: bytes of a log between two index entries. Default 4096.
    pub index_interval_bytes: u32,
    /// `max.message.bytes`: most bytes of a batch that a leader takes. Default 1 048 588.
    pub max_message_bytes: u32,
    /// `preallocate`: whether a new segment gets its full length at once. Default false.
    pub preallocate: bool,
    /// Whether `cleanup.policy` contains `compact`: then a record needs a key. Default false.
    pub compact: bool,
    /// `compression.type`. Default `producer`.
    pub compression_type: CompressionType,
    /// `compression.gzip.level`: 1 to 9, −1 for the codec's own. Default −1.
    pub compression_gzip_level: i32,
    /// `compression.zstd.level`: −131072 to 22. Default 3.
    pub compression_zstd_level: i32,
    /// `message.timestamp.type`. Default CreateTime.
    pub message_timestamp_type: TimestampType,
    /// `message.timestamp.before.max.ms`: how far in the past a record's time may lie, in ms. Default 2^63 − 1.
    pub message_timestamp_before_max_ms: i64,
    /// `message.timestamp.after.max.ms`: how far in the future a record's time may lie, in ms. Default 1 hour.
    pub message_timestamp_after_max_ms: i64,
    /// `file.delete.delay.ms`: ms between the renaming of a file to `.deleted` and its removal. Default 60 000.
    pub file_delete_delay_ms: i64,
    /// `producer.id.expiration.ms` (of the broker): ms without a batch after which a producer is forgotten, at least
    /// 1. Default 1 day.
    pub producer_id_expiration_ms: i64,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self {
            segment_bytes: 1 << 30,
            segment_ms: 7 * 24 * 3_600_000,
            segment_jitter_ms: 0,
            segment_index_bytes: 10 << 20,
            index_interval_bytes: 4096,
            max_message_bytes: (1 << 20) + 12,
            preallocate: false,
            compact: false,
            compression_type: CompressionType::Producer,
            compression_gzip_level: -1,
            compression_zstd_level: 3,
            message_timestamp_type: TimestampType::CreateTime,
            message_timestamp_before_max_ms: i64::MAX,
            message_timestamp_after_max_ms: 3_600_000,
            file_delete_delay_ms: 60_000,
            producer_id_expiration_ms: 24 * 3_600_000,
        }
    }
}

/// A setting out of its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{property} is {value}, which must be between {least} and {most}")]
pub struct ConfigFault {
    /// Kafka's name of the property.
    pub property: &'static str,
    /// Its value.
    pub value: i64,
    /// Smallest value.
    pub least: i64,
    /// Largest value.
    pub most: i64,
}

impl LogConfig {
    /// Says whether every setting is in Kafka's range.
    ///
    /// # Errors
    /// [`ConfigFault`] for the first that is not.
    pub fn check(&self) -> Result<(), ConfigFault> {
        const INT: i64 = i32::MAX as i64;
        const LONG: i64 = i64::MAX;
        let ranges = [
            ("segment.bytes", i64::from(self.segment_bytes), 14, INT),
            ("segment.ms", self.segment_ms, 1, LONG),
            ("segment.jitter.ms", self.segment_jitter_ms, 0, LONG),
            ("segment.index.bytes", i64::from(self.segment_index_bytes), 4, INT),
            ("index.interval.bytes", i64::from(self.index_interval_bytes), 0, INT),
            ("max.message.bytes", i64::from(self.max_message_bytes), 0, INT),
            ("compression.gzip.level", i64::from(self.compression_gzip_level), -1, 9),
            ("compression.zstd.level", i64::from(self.compression_zstd_level), -131_072, 22),
            ("message.timestamp.before.max.ms", self.message_timestamp_before_max_ms, 0, LONG),
            ("message.timestamp.after.max.ms", self.message_timestamp_after_max_ms, 0, LONG),
            ("file.delete.delay.ms", self.file_delete_delay_ms, 0, LONG),
            ("producer.id.expiration.ms", self.producer_id_expiration_ms, 1, INT),
        ];
        for (property, value, least, most) in ranges {
            // Between the two legal parts of gzip's range lies 0.
            let is_gap = property == "compression.gzip.level" && value == 0;
            if !(least..=most).contains(&value) || is_gap {
                return Err(ConfigFault { property, value, least, most });
            }
        }
        Ok(())
    }

    /// Level at which a batch is packed anew with `codec`; `None` is the codec's own.
    pub(crate) fn compression_level(&self, codec: Compression) -> Option<i32> {
        match codec {
            Compression::Gzip => Some(self.compression_gzip_level).filter(|level| *level >= 0),
            Compression::Zstd => Some(self.compression_zstd_level),
            Compression::None | Compression::Snappy | Compression::Lz4 => None,
        }
    }
}
