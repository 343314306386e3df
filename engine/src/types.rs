//! The few words that every module shares: offsets, producer ids, topic-partitions.
//!
//! A log offset numbers records; a byte position is a plain `u64`. They get different types because mixing
//! them up is the easiest mistake to make in a log engine.

use std::fmt;

/// A log offset: the number of a record in its partition. Valid offsets are 0 … 2^63 − 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Offset(pub i64);

impl Offset {
    /// The offset after this one, saturating at 2^63 − 1.
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A producer id as handed out by a coordinator; −1 means that there is none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ProducerId(pub i64);

impl ProducerId {
    /// The value that stands for "no producer id" in every format.
    pub const NONE: Self = Self(-1);

    /// Whether this is a real producer id (Kafka's `hasProducerId`: above −1).
    pub const fn is_some(self) -> bool {
        self.0 > -1
    }
}

impl fmt::Display for ProducerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A topic and a partition number of it, written `topic-partition`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TopicPartition {
    /// Topic name.
    pub topic: String,
    /// Partition number, from 0.
    pub partition: i32,
}

impl TopicPartition {
    /// Partition `partition` of `topic`.
    pub fn new(topic: impl Into<String>, partition: i32) -> Self {
        Self { topic: topic.into(), partition }
    }
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}
