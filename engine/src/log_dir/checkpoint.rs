//! The checkpoint files of a log root and of a partition (Kafka's CheckpointFile, OffsetCheckpointFile,
//! LeaderEpochCheckpointFile): text, one item a line.
//!
//! | line | content |
//! |---|---|
//! | 1 | version: 0 |
//! | 2 | number of entries |
//! | 3 … | one entry each |
//!
//! | file | entry |
//! |---|---|
//! | `recovery-point-offset-checkpoint`, `log-start-offset-checkpoint`, `replication-offset-checkpoint`, `cleaner-offset-checkpoint` | topic, partition, offset |
//! | `leader-epoch-checkpoint` | epoch, start offset |
//!
//! A file of no bytes is normal: Kafka creates it before it has anything to store. Reading keeps at most a fixed
//! multiple of the file's size in memory.
//!
//! The small text files that are no checkpoints are here as well: [`CleanShutdown`], [`MetaProperties`],
//! [`PartitionMetadata`].

mod identity;

pub use identity::{CleanShutdown, IdentityFault, MetaProperties, NotAUuid, PartitionMetadata, Uuid};

pub use crate::log::{CheckpointFault, LeaderEpochCheckpoint, LeaderEpochEntry};

use crate::log::checkpoint::{fields, head, lines, read_entries};
use crate::types::{Offset, TopicPartition};
use std::collections::HashMap;
use std::fmt::Write;

/// Offsets by partition, from one of the four files of a log root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OffsetCheckpoint {
    /// Partitions with their offsets, each partition once, in the order in which they first come in the file. The
    /// order has no meaning. A negative offset is kept as it stands and must not be used.
    pub entries: Vec<(TopicPartition, Offset)>,
    /// Partitions that the file names more than once; the last offset counts.
    pub repeated: Vec<TopicPartition>,
}

impl OffsetCheckpoint {
    /// Reads a whole file.
    ///
    /// # Errors
    /// A [`CheckpointFault`]; then no entry may be used.
    pub fn parse(file: &[u8]) -> Result<Self, CheckpointFault> {
        let mut entries: Vec<(TopicPartition, Offset)> = Vec::new();
        let mut repeated = Vec::new();
        let mut index_of: HashMap<TopicPartition, usize> = HashMap::new();
        read_entries(file, |_, line| {
            let [topic, partition, offset] = fields(line)?;
            let partition = TopicPartition::new(topic, partition.parse().ok()?);
            let offset = Offset(offset.parse().ok()?);
            match index_of.get(&partition) {
                Some(&index) => {
                    entries[index].1 = offset;
                    repeated.push(partition);
                }
                None => {
                    index_of.insert(partition.clone(), entries.len());
                    entries.push((partition, offset));
                }
            }
            Some(Ok(()))
        })?;
        Ok(Self { entries, repeated })
    }

    /// The offset of one partition. Looks at every entry: collect [`entries`](Self::entries) into a map to ask for
    /// many.
    pub fn get(&self, partition: &TopicPartition) -> Option<Offset> {
        self.entries.iter().find(|(named, _)| named == partition).map(|&(_, offset)| offset)
    }

    /// The file as Kafka writes it, entries in their order here.
    pub fn encode(&self) -> String {
        let mut file = head(self.entries.len());
        for (TopicPartition { topic, partition }, offset) in &self.entries {
            // Writing to a string cannot fail.
            let _ = writeln!(file, "{topic} {partition} {offset}");
        }
        file
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offsets(text: &str) -> Result<Vec<(String, i64)>, CheckpointFault> {
        let checkpoint = OffsetCheckpoint::parse(text.as_bytes())?;
        Ok(checkpoint.entries.iter().map(|(partition, offset)| (partition.to_string(), offset.0)).collect())
    }

    fn epochs(text: &str) -> Result<(Vec<(i32, i64)>, usize), CheckpointFault> {
        let checkpoint = LeaderEpochCheckpoint::parse(text.as_bytes())?;
        Ok((checkpoint.entries.iter().map(|e| (e.epoch, e.start_offset.0)).collect(), checkpoint.dropped))
    }

    #[test]
    fn forms_that_are_read() {
        let orders = vec![("orders-0".to_owned(), 42)];
        for text in [
            "0\n1\norders 0 42\n",
            "0\n1\norders 0 42",
            "0\r\n1\r\norders 0 42\r\n",
            "0\r1\rorders 0 42",
            "0\n1\norders\t 0   42 \t\n",
        ] {
            assert_eq!(offsets(text), Ok(orders.clone()), "{text:?}");
        }
        for text in ["", "0", "0\n", "0\n0", "0\n0\n"] {
            assert_eq!(offsets(text), Ok(vec![]), "{text:?}");
        }
        assert_eq!(offsets("0\n1\norders 0 -5\n"), Ok(vec![("orders-0".to_owned(), -5)]));
    }

    #[test]
    fn forms_that_are_refused() {
        for text in ["1\n0\n", "x\n", " 0\n0\n", "\n0\n0\n", "-1\n"] {
            assert!(matches!(offsets(text), Err(CheckpointFault::Version(_))), "{text:?}");
        }
        for text in ["0\n-1\n", "0\n\n", "0\nx\n", "0\n99999999999\n"] {
            assert!(matches!(offsets(text), Err(CheckpointFault::CountNotANumber(_))), "{text:?}");
        }
        for text in ["0\n2\na 0 1\n", "0\n0\na 0 1\n", "0\n2147483647\n"] {
            assert!(matches!(offsets(text), Err(CheckpointFault::Count { .. })), "{text:?}");
        }
        for line in
            [" a 0 1", "", "a 0", "a 0 1 2", "a 0 x", "a x 1", "a 2147483648 1", "a 0 9223372036854775808"]
        {
            let fault = CheckpointFault::Malformed { line: 4, text: line.to_owned() };
            assert_eq!(offsets(&format!("0\n2\nb 0 1\n{line}\n")), Err(fault), "{line:?}");
        }
        assert_eq!(OffsetCheckpoint::parse(b"0\n1\n\xff 0 1"), Err(CheckpointFault::NotText(4)));
        let fault = offsets(&format!("0\n1\n{}", "é".repeat(200))).unwrap_err();
        assert!(matches!(fault, CheckpointFault::Malformed { text, .. } if text == "é".repeat(100)));
    }

    #[test]
    fn the_last_of_a_repeated_partition_counts() {
        let checkpoint = OffsetCheckpoint::parse(b"0\n4\na 0 1\nb 0 2\na 0 3\na 0 4\n").unwrap();
        let (a, b) = (TopicPartition::new("a", 0), TopicPartition::new("b", 0));
        assert_eq!(checkpoint.repeated, [a.clone(), a.clone()]);
        assert_eq!(checkpoint.get(&a), Some(Offset(4)));
        assert_eq!(checkpoint.get(&b), Some(Offset(2)));
        assert_eq!(checkpoint.get(&TopicPartition::new("a", 1)), None);
        assert_eq!(checkpoint.encode(), "0\n2\na 0 4\nb 0 2\n");
    }

    #[test]
    fn epochs_are_made_to_go_up() {
        assert_eq!(epochs("0\n2\n0 0\n5 200\n"), Ok((vec![(0, 0), (5, 200)], 0)));
        assert_eq!(
            epochs("0\n3\n0 0\n5 200\n5 300\n"),
            Ok((vec![(0, 0), (5, 200)], 1)),
            "later start ignored"
        );
        assert_eq!(
            epochs("0\n3\n0 0\n5 200\n5 100\n"),
            Ok((vec![(0, 0), (5, 100)], 1)),
            "earlier start wins"
        );
        assert_eq!(epochs("0\n3\n1 10\n5 200\n3 150\n"), Ok((vec![(1, 10), (3, 150)], 1)));
        assert_eq!(epochs("0\n3\n1 10\n5 200\n6 5\n"), Ok((vec![(6, 5)], 2)));
        assert_eq!(epochs("0\n2\n1 10\n2 10\n"), Ok((vec![(2, 10)], 1)));
        let negative = CheckpointFault::NegativeEpoch { line: 3, epoch: -1, start_offset: 0 };
        assert_eq!(epochs("0\n1\n-1 0\n"), Err(negative));
        assert!(epochs("0\n1\n0 -1\n").is_err());
        assert!(epochs("0\n1\n0 0 0\n").is_err());
        assert_eq!(epochs(""), Ok((vec![], 0)));
        let text = "0\n2\n0 0\n5 200\n";
        assert_eq!(LeaderEpochCheckpoint::parse(text.as_bytes()).unwrap().encode(), text);
    }
}
