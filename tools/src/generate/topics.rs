//! The partitions that transactions write to, encoded once.

use redrive::transaction_log::{TopicPartitions, TransactionMetadata, TransactionState, ValueVersion};
use redrive::types::ProducerId;

use super::random::{Random, scale};
use super::spec::Scenario;

/// Different sets that transactions choose from.
const SETS: usize = 64;
/// Most times that partitions are added to a transaction.
pub(super) const ADDS_MAX: usize = 3;
/// Stream of the seed that chooses the sets.
const STREAM: u64 = u64::MAX;

/// The field `transactionPartitions` of a value, as bytes.
#[derive(Clone, Debug)]
struct Field {
    v0: Vec<u8>,
    v1: Vec<u8>,
}

/// Sets of partitions, each as it grows with every addition.
#[derive(Clone, Debug)]
pub(super) struct TopicSets {
    /// By set, then by additions less one.
    sets: Vec<[Field; ADDS_MAX]>,
    /// Of Empty.
    null: Field,
    /// Of CompleteCommit and CompleteAbort.
    none: Field,
}

/// Topics with the number of their partitions.
fn topics(scenario: Scenario) -> &'static [(&'static str, usize)] {
    match scenario {
        Scenario::UpdateHeavy | Scenario::Distinct | Scenario::HotPartition => &[
            ("orders", 48),
            ("payments.eu-west", 24),
            ("inventory-updates", 12),
            ("audit.events", 6),
            ("__consumer_offsets", 50),
        ],
        Scenario::Streams => &[
            ("order-enrichment-orders-by-customer-store-changelog", 32),
            ("__consumer_offsets", 50),
            ("order-enrichment-KSTREAM-AGGREGATE-STATE-STORE-0000000007-repartition", 32),
            ("enriched-orders", 32),
        ],
        Scenario::Flink => &[("events-clean", 64), ("events-late", 16)],
    }
}

impl TopicSets {
    pub(super) fn new(scenario: Scenario, seed: u64) -> Self {
        let mut random = Random::new(seed, STREAM);
        let sets = (0..SETS).map(|_| {
            let mut partitions: Vec<TopicPartitions> = Vec::new();
            std::array::from_fn(|_| {
                add(topics(scenario), &mut partitions, &mut random);
                Field::encode(TransactionState::Ongoing, Some(partitions.clone()))
            })
        });
        Self {
            sets: sets.collect(),
            null: Field::encode(TransactionState::Empty, None),
            none: Field::encode(TransactionState::CompleteCommit, Some(Vec::new())),
        }
    }

    /// A set for a transaction.
    pub(super) fn choose(random: u64) -> usize {
        scale(random, SETS)
    }

    /// The field of a state after `adds` additions, 1 … [`ADDS_MAX`], from this set.
    pub(super) fn field(
        &self,
        state: TransactionState,
        set: usize,
        adds: usize,
        version: ValueVersion,
    ) -> &[u8] {
        let field = match state {
            TransactionState::Empty => &self.null,
            TransactionState::Ongoing | TransactionState::PrepareCommit | TransactionState::PrepareAbort => {
                &self.sets[set][adds - 1]
            }
            _ => &self.none,
        };
        match version {
            ValueVersion::V0 => &field.v0,
            ValueVersion::V1 => &field.v1,
        }
    }
}

/// Adds one or two partitions that are not there yet.
fn add(topics: &[(&str, usize)], partitions: &mut Vec<TopicPartitions>, random: &mut Random) {
    let mut left = 1 + random.below(2);
    while left > 0 {
        let (topic, count) = topics[random.below(topics.len())];
        let id = i32::try_from(random.below(count)).expect("fewer than 2^31 partitions");
        match partitions.iter_mut().find(|known| known.topic == topic.as_bytes()) {
            Some(known) if known.partition_ids.contains(&id) => continue,
            Some(known) => known.partition_ids.push(id),
            None => partitions.push(TopicPartitions {
                topic: topic.as_bytes().to_vec(),
                partition_ids: vec![id],
                unknown_tagged_fields: Vec::new(),
            }),
        }
        left -= 1;
    }
}

/// Bytes of a value before the field: version, producer id, epoch, time-out, status.
const BEFORE: usize = 17;
/// Bytes behind it: two times.
const TIMES: usize = 16;

impl Field {
    fn encode(state: TransactionState, partitions: Option<Vec<TopicPartitions>>) -> Self {
        let metadata = TransactionMetadata {
            producer_id: ProducerId(0),
            producer_epoch: 0,
            transaction_timeout_ms: 0,
            state,
            partitions,
            last_update_timestamp_ms: 0,
            start_timestamp_ms: 0,
            previous_producer_id: ProducerId::NONE,
            next_producer_id: ProducerId::NONE,
            next_producer_epoch: -1,
            client_transaction_version: 0,
            unknown_tagged_fields: Vec::new(),
        };
        let encode = |version, behind: usize| {
            let mut value = Vec::new();
            metadata.encode(version, &mut value).expect("short names and no tagged fields");
            value.truncate(value.len() - behind);
            value.split_off(BEFORE)
        };
        // Version 1 ends in the number of tagged fields, here 0 in one byte.
        Self { v0: encode(ValueVersion::V0, TIMES), v1: encode(ValueVersion::V1, TIMES + 1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_cut_out_right() {
        let sets = TopicSets::new(Scenario::Flink, 1);
        let field = |state, version| sets.field(state, 0, 1, version).to_vec();
        assert_eq!(field(TransactionState::Empty, ValueVersion::V0), [255; 4]);
        assert_eq!(field(TransactionState::Empty, ValueVersion::V1), [0]);
        assert_eq!(field(TransactionState::CompleteAbort, ValueVersion::V0), [0; 4]);
        assert_eq!(field(TransactionState::CompleteCommit, ValueVersion::V1), [1]);
        let ongoing = field(TransactionState::Ongoing, ValueVersion::V1);
        assert!(ongoing.windows(7).any(|window| window == b"events-"), "{ongoing:?}");
        assert_eq!(ongoing, field(TransactionState::PrepareAbort, ValueVersion::V1));
        for set in 0..SETS {
            let lengths: Vec<_> = (1..=ADDS_MAX)
                .map(|adds| sets.field(TransactionState::Ongoing, set, adds, ValueVersion::V0).len())
                .collect();
            assert!(lengths.is_sorted_by(|a, b| a < b), "{lengths:?}");
        }
    }
}
