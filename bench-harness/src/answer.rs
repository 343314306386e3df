//! What a loader found, as one hash: loaders that agree on every id, offset and state have the same.
//!
//! SHA-256 over all partitions by number and in each over all ids by their bytes:
//!
//! | field | |
//! |---|---|
//! | partition | int32 |
//! | bytes of the id | uint32 |
//! | id | UTF-8 |
//! | offset of the newest record | int64 |
//! | state | int8, Kafka's code |

use std::collections::BTreeMap;

use redrive::replay::Loaded;
use redrive_tests::naive::NaiveMap;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::data::hex;
use crate::error::BenchError;

/// What a loader found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// Ids with a state.
    pub ids: u64,
    /// See the [module](self); hexadecimal.
    pub sha256: String,
}

struct Hasher {
    sha256: Sha256,
    ids: u64,
}

impl Hasher {
    fn new() -> Self {
        Self { sha256: Sha256::new(), ids: 0 }
    }

    fn partition(&mut self, partition: i32, mut entries: Vec<(Box<str>, i64, i8)>) {
        entries.sort_unstable();
        for (id, offset, state) in entries {
            self.sha256.update(partition.to_be_bytes());
            // Kafka's ids have at most 32767 bytes.
            self.sha256.update(u32::try_from(id.len()).unwrap_or(u32::MAX).to_be_bytes());
            self.sha256.update(id.as_bytes());
            self.sha256.update(offset.to_be_bytes());
            self.sha256.update(state.to_be_bytes());
            self.ids += 1;
        }
    }

    fn end(self) -> Answer {
        Answer { ids: self.ids, sha256: hex(&self.sha256.finalize()) }
    }
}

/// What redrive found. Cost: a walk over all values, and the ids of a partition in memory.
///
/// # Errors
/// [`BenchError::Load`] if a partition was refused, or its log cannot be read again.
pub fn of_redrive(loaded: &Loaded) -> Result<Answer, BenchError> {
    let mut hasher = Hasher::new();
    for outcome in &loaded.partitions {
        let map = match &outcome.result {
            Ok((map, _)) => map,
            Err(error) => return Err(BenchError::Load(format!("redrive refused a partition: {error}"))),
        };
        let entries = map.iter().map(|entry| {
            let entry = entry.map_err(|error| BenchError::Load(format!("the log changed: {error}")))?;
            Ok((entry.id().into(), entry.offset().0, entry.state().code()))
        });
        hasher.partition(outcome.topic_partition.partition, entries.collect::<Result<_, BenchError>>()?);
    }
    Ok(hasher.end())
}

/// What the naive loader found.
pub fn of_naive(partitions: &BTreeMap<i32, NaiveMap>) -> Answer {
    let mut hasher = Hasher::new();
    for (partition, map) in partitions {
        let entries = map.entries.iter().map(|(id, entry)| (id.as_str().into(), entry.offset, entry.status));
        hasher.partition(*partition, entries.collect());
    }
    hasher.end()
}

#[cfg(test)]
mod tests {
    use super::*;

    type Partition<'a> = (i32, &'a [(&'a str, i64, i8)]);

    fn hash(partitions: &[Partition<'_>]) -> Answer {
        let mut hasher = Hasher::new();
        for (partition, entries) in partitions {
            let entries = entries.iter().map(|(id, offset, state)| ((*id).into(), *offset, *state));
            hasher.partition(*partition, entries.collect());
        }
        hasher.end()
    }

    #[test]
    fn every_field_is_in_the_hash_and_the_order_is_not() {
        let base = hash(&[(0, &[("a", 1, 4), ("b", 2, 1)])]);
        assert_eq!(base, hash(&[(0, &[("b", 2, 1), ("a", 1, 4)])]));
        let others: [&[Partition<'_>]; 6] = [
            &[(1, &[("a", 1, 4), ("b", 2, 1)])],
            &[(0, &[("a", 1, 4), ("c", 2, 1)])],
            &[(0, &[("a", 1, 4), ("b", 3, 1)])],
            &[(0, &[("a", 1, 4), ("b", 2, 0)])],
            &[(0, &[("a", 1, 4)])],
            &[(0, &[("a", 1, 4)]), (1, &[("b", 2, 1)])],
        ];
        for other in others {
            assert_ne!(base.sha256, hash(other).sha256, "{other:?}");
        }
    }
}
