//! What is to be generated.

use std::num::NonZero;

use super::error::GenerateError;

/// Most partitions of the topic.
pub const PARTITIONS_MAX: u32 = 200;

/// Who writes the log. The variants' texts are the command line's help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Scenario {
    /// Many ids, each with several transactions, 2000 of them open at once
    UpdateHeavy,
    /// Every id once: a log of which the cleaner has left nothing but the newest records
    Distinct,
    /// As update-heavy, with nine of ten ids in one partition
    HotPartition,
    /// Kafka Streams, exactly-once v2: few and busy ids, one per stream thread, each commits every 100 ms
    Streams,
    /// Flink: a new id per subtask and checkpoint, never used again
    Flink,
}

impl Scenario {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::UpdateHeavy => "update-heavy",
            Self::Distinct => "distinct",
            Self::HotPartition => "hot-partition",
            Self::Streams => "streams",
            Self::Flink => "flink",
        }
    }
}

/// How much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Volume {
    /// That many transactional ids, 1 … 2^32 − 1.
    Ids(u64),
    /// About that many bytes of log files, give or take a few percent where there are more than some thousand
    /// records: as many ids as that takes or, for [`Scenario::Streams`], as many transactions.
    Bytes(u64),
}

/// Versions of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ValueVersions {
    /// transaction.version 0: no tagged fields
    V0,
    /// transaction.version 2: tagged fields; one client in eight still uses the older protocol
    V1,
    /// v0 up to the middle of each partition, then v1, as after an upgrade of the cluster
    Mixed,
}

/// What ids look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum IdShape {
    /// One long prefix and 16 hexadecimal digits: 41 bytes
    Prefix,
    /// 32 random hexadecimal digits, grouped as in a UUID: 36 bytes
    Random,
    /// Names as services, Kafka Streams or Flink give them
    Real,
}

/// Shares of ids by how they end; the rest ends in CompleteCommit or CompleteAbort.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EndShares {
    /// Expired: the last record is a tombstone.
    pub tombstones: f64,
    /// Open transactions.
    pub ongoing: f64,
    /// A commit that was decided and not completed.
    pub prepare_commit: f64,
    /// An abort that was decided and not completed.
    pub prepare_abort: f64,
    /// A client that started again and did nothing since.
    pub empty: f64,
}

impl EndShares {
    /// Every id ends with a completed transaction.
    pub const COMPLETE: Self =
        Self { tombstones: 0.0, ongoing: 0.0, prepare_commit: 0.0, prepare_abort: 0.0, empty: 0.0 };

    fn all(&self) -> [f64; 5] {
        [self.tombstones, self.ongoing, self.prepare_commit, self.prepare_abort, self.empty]
    }
}

/// What is to be generated. The same value gives the same bytes, whatever the number of threads.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// Who writes.
    pub scenario: Scenario,
    /// Chooses everything that is left to chance.
    pub seed: u64,
    /// How much.
    pub volume: Volume,
    /// Transactions of each id.
    pub transactions: NonZero<u32>,
    /// Partitions of the topic, at most [`PARTITIONS_MAX`].
    pub partitions: NonZero<u32>,
    /// Size that a segment is kept below, bytes, 1 … 2^31 − 1; a batch larger than that gets a segment of its own.
    /// Kafka: `transaction.state.log.segment.bytes`.
    pub segment_bytes: u32,
    /// Versions of values.
    pub value_versions: ValueVersions,
    /// How ids end.
    pub ends: EndShares,
    /// Share of completed transactions that were aborted.
    pub aborts: f64,
    /// Share of the records with a newer one of the same id that a cleaner has taken away, their offsets with them.
    pub gaps: f64,
    /// What ids look like.
    pub id_shape: IdShape,
    /// Transactions open at once, in all partitions together.
    pub window: NonZero<u32>,
    /// Moment at which the log ends, ms since 1970.
    pub now_ms: i64,
    /// Threads to work with; never more than partitions are used.
    pub threads: NonZero<usize>,
}

/// The default of [`Spec::segment_bytes`], Kafka's own.
pub(super) const SEGMENT_BYTES: u32 = 104_857_600;

const fn some(number: u32) -> NonZero<u32> {
    NonZero::new(number).expect("not zero")
}

impl Spec {
    /// The scenario as it is without any options: 100,000 ids in 50 partitions, or for [`Scenario::Streams`] 256 ids
    /// with 1,000 transactions each; values of version 1; one thread.
    pub fn new(scenario: Scenario, seed: u64, now_ms: i64) -> Self {
        let (ids, transactions, window, id_shape) = match scenario {
            Scenario::UpdateHeavy | Scenario::HotPartition => (100_000, 5, 2000, IdShape::Prefix),
            Scenario::Distinct => (100_000, 1, 2000, IdShape::Prefix),
            Scenario::Streams => (256, 1000, u32::MAX, IdShape::Real),
            Scenario::Flink => (100_000, 1, FLINK_SUBTASKS, IdShape::Real),
        };
        Self {
            scenario,
            seed,
            volume: Volume::Ids(ids),
            transactions: some(transactions),
            partitions: some(50),
            segment_bytes: SEGMENT_BYTES,
            value_versions: ValueVersions::V1,
            ends: EndShares {
                tombstones: 0.01,
                ongoing: 0.02,
                prepare_commit: 0.001,
                prepare_abort: 0.0005,
                empty: 0.01,
            },
            aborts: 0.04,
            gaps: if scenario == Scenario::Distinct { 1.0 } else { 0.0 },
            id_shape,
            window: some(window),
            now_ms,
            threads: NonZero::<usize>::MIN,
        }
    }

    /// # Errors
    /// [`GenerateError::Spec`] with a sentence that says what is accepted.
    pub(super) fn check(&self) -> Result<(), GenerateError> {
        let refuse = |sentence: String| Err(GenerateError::Spec(sentence));
        match self.volume {
            Volume::Ids(ids) if ids == 0 || ids > u64::from(u32::MAX) => {
                return refuse(format!("the number of ids must be from 1 to {}, not {ids}", u32::MAX));
            }
            Volume::Bytes(0) => return refuse("a log of no bytes needs no generator".to_owned()),
            _ => {}
        }
        if self.partitions.get() > PARTITIONS_MAX {
            return refuse(format!("at most {PARTITIONS_MAX} partitions, not {}", self.partitions));
        }
        if self.segment_bytes == 0 || i32::try_from(self.segment_bytes).is_err() {
            return refuse(format!(
                "segment bytes must be from 1 to {}, not {}",
                i32::MAX,
                self.segment_bytes
            ));
        }
        if self.scenario == Scenario::Flink && self.transactions.get() > 1 {
            return refuse("an id of Flink has one transaction; more of them are more ids".to_owned());
        }
        let is_share = |share: &f64| (0.0..=1.0).contains(share);
        let mut shares = self.ends.all().into_iter().chain([self.aborts, self.gaps]);
        if let Some(bad) = shares.find(|share| !is_share(share)) {
            return refuse(format!("a share must be from 0 to 1, not {bad}"));
        }
        let sum: f64 = self.ends.all().iter().sum();
        // Decimal shares that make one whole may miss it by a rounding error.
        if sum > 1.0 + 1e-9 {
            return refuse(format!("the shares of how ids end make {sum}, which is more than all"));
        }
        // Logs go back by a day at most; the room above keeps sums of times in range.
        if !(DAY_MS * 2..=i64::MAX / 4).contains(&self.now_ms) {
            return refuse(format!("{} ms since 1970 is no moment at which a log could end", self.now_ms));
        }
        Ok(())
    }
}

/// Milliseconds of a day.
pub(super) const DAY_MS: i64 = 86_400_000;

/// Subtasks that write in parallel, each with an id per checkpoint.
pub(super) const FLINK_SUBTASKS: u32 = 64;
