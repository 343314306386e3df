//! A specification in numbers: how many ids, records and milliseconds, and which ids lie in which partition.

use std::num::NonZero;
use std::ops::ControlFlow;

use redrive::transaction_log::partition_for;

use super::error::GenerateError;
use super::ids::Ids;
use super::life::End;
use super::random::{Chance, mix};
use super::run::Meter;
use super::schedule::write_partition;
use super::segments::SegmentWriter;
use super::spec::{DAY_MS, Scenario, Spec, ValueVersions, Volume};
use super::topics::TopicSets;

/// The partition that has most ids in [`Scenario::HotPartition`].
const HOT_PARTITION: u32 = 0;
/// Its share of them.
const HOT_SHARE: f64 = 0.9;
/// Ids of [`Scenario::Streams`] where a number of bytes was asked for.
const STREAMS_IDS: u64 = 256;
/// Ids and transactions of each that are written to nowhere, to learn what they weigh.
const SAMPLE_IDS: u32 = 1000;
const SAMPLE_TRANSACTIONS: u32 = 32;
/// Ids between two looks at whether to go on.
const LOOK_EVERY: u64 = 1 << 20;
/// One id in this many belongs to a client that is not of KIP-890.
const OLDER_CLIENTS: u64 = 8;

/// Everything that the partitions have in common.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) scenario: Scenario,
    pub(super) seed: u64,
    pub(super) partitions: NonZero<u32>,
    pub(super) segment_bytes: u32,
    pub(super) value_versions: ValueVersions,
    pub(super) threads: NonZero<usize>,
    /// Ids of all partitions.
    pub(super) ids: u64,
    /// Of each id.
    pub(super) transactions: u32,
    /// Open at once in all partitions.
    pub(super) window: u64,
    pub(super) timeout_ms: i32,
    pub(super) start_ms: i64,
    pub(super) end_ms: i64,
    pub(super) aborts: Chance,
    pub(super) gaps: Chance,
    pub(super) topics: TopicSets,
    pub(super) names: Ids,
    /// About the bytes of all log files.
    pub(super) bytes: u64,
    /// Running sums of the shares, in the order of [`ENDS`].
    ends: [Chance; ENDS.len()],
}

/// The ends that have a share of their own.
const ENDS: [End; 5] = [End::Tombstone, End::Ongoing, End::PrepareCommit, End::PrepareAbort, End::Empty];

/// The ids of every partition, by their numbers, ascending.
#[derive(Debug, Default)]
pub(super) struct Assignment {
    pub(super) partitions: Vec<Vec<u32>>,
    /// Above all numbers.
    pub(super) numbers_end: u64,
}

impl Plan {
    /// # Errors
    /// [`GenerateError::Spec`].
    pub(super) fn new(spec: &Spec) -> Result<Self, GenerateError> {
        spec.check()?;
        let weight = bytes_per_transaction(spec)?;
        let transactions = f64::from(spec.transactions.get());
        // Sizes and counts that are estimates anyway; casts from floats saturate.
        let (ids, transactions) = match (spec.volume, spec.scenario) {
            (Volume::Ids(ids), _) => (ids, spec.transactions.get()),
            (Volume::Bytes(bytes), Scenario::Streams) => {
                let in_all = (bytes as f64 / weight).max(1.0);
                let ids = STREAMS_IDS.min(in_all as u64);
                (ids, ((in_all / ids as f64).round() as u32).max(1))
            }
            (Volume::Bytes(bytes), _) => {
                let ids = (bytes as f64 / (weight * transactions)).round().max(1.0) as u64;
                if ids > u64::from(u32::MAX) {
                    let sentence = format!("{bytes} bytes take more ids than {}", u32::MAX);
                    return Err(GenerateError::Spec(sentence));
                }
                (ids, spec.transactions.get())
            }
        };
        let bytes = (weight * ids as f64 * f64::from(transactions)) as u64;
        Ok(Self::with(spec, ids, transactions, bytes))
    }

    fn with(spec: &Spec, ids: u64, transactions: u32, bytes: u64) -> Self {
        let window = u64::from(spec.window.get()).min(ids);
        let transaction_ms = if spec.scenario == Scenario::Flink { 10_000 } else { 100 };
        let span_ms = u128::from(ids) * u128::from(transactions) * transaction_ms / u128::from(window);
        // A day at most: ids that were last used a week ago would expire as soon as a broker has them.
        let span_ms = i64::try_from(span_ms).unwrap_or(DAY_MS).clamp(1000, DAY_MS);
        let mut sum = 0.0;
        let shares = &spec.ends;
        let ends =
            [shares.tombstones, shares.ongoing, shares.prepare_commit, shares.prepare_abort, shares.empty]
                .map(|share| {
                    sum += share;
                    Chance::new(sum.min(1.0))
                });
        Self {
            scenario: spec.scenario,
            seed: spec.seed,
            partitions: spec.partitions,
            segment_bytes: spec.segment_bytes,
            value_versions: spec.value_versions,
            threads: spec.threads,
            ids,
            transactions,
            window,
            timeout_ms: match spec.scenario {
                Scenario::Streams => 10_000,
                Scenario::Flink => 900_000,
                _ => 60_000,
            },
            start_ms: spec.now_ms - span_ms,
            end_ms: spec.now_ms,
            aborts: Chance::new(spec.aborts),
            gaps: Chance::new(spec.gaps),
            topics: TopicSets::new(spec.scenario, spec.seed),
            names: Ids::new(spec.id_shape, spec.scenario, spec.seed),
            bytes,
            ends,
        }
    }

    /// How the id of this number ends.
    pub(super) fn end_of(&self, number: u32) -> End {
        let random = mix(mix(u64::from(number)) ^ self.seed ^ 0xe2d);
        let at = self.ends.iter().position(|share| share.happens(random));
        at.map_or(End::Complete, |at| ENDS[at])
    }

    /// Whether the id of this number has a client that speaks the protocol of KIP-890, if the cluster does.
    pub(super) fn is_newer_client(&self, number: u32) -> bool {
        !mix(mix(u64::from(number)) ^ self.seed ^ 0xc11).is_multiple_of(OLDER_CLIENTS)
    }

    /// Finds the partition of every id. Cost: the making of every id, some 40 ns each; many times that in
    /// [`Scenario::HotPartition`], which passes over most names.
    ///
    /// # Errors
    /// [`GenerateError::Cancelled`] if `look`, called every now and then, says so; [`GenerateError::Spec`] if there are
    /// not enough names.
    pub(super) fn assign(
        &self,
        mut look: impl FnMut() -> ControlFlow<()>,
    ) -> Result<Assignment, GenerateError> {
        let mut partitions = vec![Vec::new(); self.partitions.get() as usize];
        // For each name of the hot partition there comes one of every other, and of all those only so many are taken.
        let others = f64::from((self.partitions.get() - 1).max(1));
        let is_hot = self.scenario == Scenario::HotPartition && self.partitions.get() > 1;
        let kept = Chance::new(if is_hot { (1.0 - HOT_SHARE) / HOT_SHARE / others } else { 1.0 });
        let mut id = Vec::new();
        let mut taken = 0;
        let mut numbers_end = 0;
        while taken < self.ids {
            if numbers_end % LOOK_EVERY == 0 && look().is_break() {
                return Err(GenerateError::Cancelled);
            }
            let Ok(number) = u32::try_from(numbers_end) else {
                let sentence =
                    format!("there are not enough names for {} ids with a hot partition", self.ids);
                return Err(GenerateError::Spec(sentence));
            };
            numbers_end += 1;
            id.clear();
            self.names.write(number, &mut id);
            let partition = partition_for(&id, self.partitions).unsigned_abs();
            if is_hot && partition != HOT_PARTITION {
                let random = mix(mix(u64::from(number)) ^ self.seed ^ 0x507);
                if !kept.happens(random) {
                    continue;
                }
            }
            partitions[partition as usize].push(number);
            taken += 1;
        }
        Ok(Assignment { partitions, numbers_end })
    }
}

/// Bytes in the log for each transaction of an id, from a sample.
fn bytes_per_transaction(spec: &Spec) -> Result<f64, GenerateError> {
    let transactions = match (spec.volume, spec.scenario) {
        (Volume::Bytes(_), Scenario::Streams) => SAMPLE_TRANSACTIONS,
        _ => spec.transactions.get().min(SAMPLE_TRANSACTIONS),
    };
    let one = NonZero::<u32>::MIN;
    let spec = Spec { partitions: one, segment_bytes: i32::MAX.unsigned_abs(), ..spec.clone() };
    let plan = Plan::with(&spec, u64::from(SAMPLE_IDS), transactions, 0);
    let assignment = plan.assign(|| ControlFlow::Continue(()))?;
    let mut nowhere = SegmentWriter::new(None, spec.segment_bytes)?;
    let summary = write_partition(&plan, 0, &assignment, &mut nowhere, 0, &Meter::default())?;
    Ok(summary.bytes as f64 / f64::from(SAMPLE_IDS) / f64::from(transactions))
}

#[cfg(test)]
mod tests {
    use super::super::spec::EndShares;
    use super::*;

    fn plan(change: impl FnOnce(&mut Spec)) -> Plan {
        let mut spec = Spec::new(Scenario::UpdateHeavy, 5, 1_700_000_000_000);
        change(&mut spec);
        Plan::new(&spec).expect("a good specification")
    }

    #[test]
    fn ids_end_in_the_shares_asked_for() {
        let plan = plan(|spec| {
            spec.ends = EndShares {
                tombstones: 0.3,
                ongoing: 0.2,
                prepare_commit: 0.1,
                prepare_abort: 0.05,
                empty: 0.15,
            };
        });
        let share = |end| (0..100_000).filter(|&number| plan.end_of(number) == end).count() as f64 / 1e5;
        for (end, expected) in ENDS.into_iter().zip([0.3, 0.2, 0.1, 0.05, 0.15]) {
            assert!((share(end) - expected).abs() < 0.01, "{end:?} {}", share(end));
        }
        assert!((share(End::Complete) - 0.2).abs() < 0.01);
    }

    #[test]
    fn most_ids_are_in_the_hot_partition() {
        let plan = plan(|spec| {
            spec.scenario = Scenario::HotPartition;
            spec.volume = Volume::Ids(20_000);
        });
        let assignment = plan.assign(|| ControlFlow::Continue(())).expect("enough names");
        assert_eq!(assignment.partitions.iter().map(Vec::len).sum::<usize>(), 20_000);
        let hot = assignment.partitions[0].len();
        assert!((17_500..18_500).contains(&hot), "{hot}");
        assert!(assignment.partitions.iter().all(|numbers| !numbers.is_empty()));
    }

    #[test]
    fn assigning_can_be_cancelled() {
        let plan = plan(|_| ());
        let cancelled = plan.assign(|| ControlFlow::Break(()));
        assert!(matches!(cancelled, Err(GenerateError::Cancelled)));
    }

    #[test]
    fn bytes_become_ids_or_transactions() {
        let heavy = plan(|spec| spec.volume = Volume::Bytes(100_000_000));
        assert_eq!(heavy.transactions, 5);
        assert!((15_000..30_000).contains(&heavy.ids), "{}", heavy.ids);
        let streams = plan(|spec| {
            *spec = Spec::new(Scenario::Streams, 5, 1_700_000_000_000);
            spec.volume = Volume::Bytes(100_000_000);
        });
        assert_eq!(streams.ids, STREAMS_IDS);
        assert!((200..800).contains(&streams.transactions), "{}", streams.transactions);
        assert_eq!(plan(|spec| spec.volume = Volume::Bytes(1)).ids, 1);
    }
}
