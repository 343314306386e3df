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

use crate::types::{Offset, TopicPartition};
use std::collections::HashMap;
use std::fmt::Write;

const VERSION: i32 = 0;

/// Why a checkpoint file cannot be read. What a broker falls back to differs from file to file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointFault {
    /// Bytes that are no UTF-8.
    #[error("byte {0} of the checkpoint file is no text")]
    NotText(usize),
    /// The first line is not the number 0.
    #[error("checkpoint version {0:?}, only 0 is defined")]
    Version(String),
    /// The second line is no number from 0 on.
    #[error("number of entries {0:?}")]
    CountNotANumber(String),
    /// More or fewer entries than the second line says.
    #[error("{found} entries where the checkpoint file says {stated}")]
    Count {
        /// The number on the second line.
        stated: u32,
        /// Entry lines in the file.
        found: usize,
    },
    /// A line does not have the fields of an entry.
    #[error("line {line} of the checkpoint file is no entry: {text:?}")]
    Malformed {
        /// Line number, from 1.
        line: usize,
        /// The line, cut to 100 characters.
        text: String,
    },
    /// A leader epoch or its start offset is negative.
    #[error("line {line} has epoch {epoch} and start offset {start_offset}, none may be negative")]
    NegativeEpoch {
        /// Line number, from 1.
        line: usize,
        /// The epoch.
        epoch: i32,
        /// Its start offset.
        start_offset: i64,
    },
}

/// Splits text into lines as Java does: each ends at a line feed, a carriage return, or both; the last may lack it.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text).filter(|text| !text.is_empty());
    std::iter::from_fn(move || {
        let text = rest?;
        let (line, after) = match text.split_once(['\n', '\r']) {
            Some((line, after)) if text.as_bytes().get(line.len()) == Some(&b'\r') => {
                (line, after.strip_prefix('\n').unwrap_or(after))
            }
            Some(parts) => parts,
            None => (text, ""),
        };
        rest = Some(after).filter(|after| !after.is_empty());
        Some(line)
    })
}

/// The fields of an entry line. Runs of blanks separate, trailing ones are dropped, a leading one makes an empty
/// first field; `None` unless there are exactly `N`.
fn fields<const N: usize>(line: &str) -> Option<[&str; N]> {
    const BLANKS: [char; 6] = [' ', '\t', '\n', '\x0b', '\x0c', '\r'];
    let line = line.trim_end_matches(BLANKS);
    if line.starts_with(BLANKS) {
        return None;
    }
    let mut fields = line.split(BLANKS).filter(|field| !field.is_empty());
    let mut found = [""; N];
    for slot in &mut found {
        *slot = fields.next()?;
    }
    fields.next().is_none().then_some(found)
}

/// Reads the two head lines and gives every entry line with its number to `entry`, which returns `None` for a line
/// that is no entry.
fn read_entries(
    file: &[u8],
    mut entry: impl FnMut(usize, &str) -> Option<Result<(), CheckpointFault>>,
) -> Result<(), CheckpointFault> {
    let text = str::from_utf8(file).map_err(|fault| CheckpointFault::NotText(fault.valid_up_to()))?;
    let shown = |line: &str| line.chars().take(100).collect();
    let mut lines = lines(text);
    let Some(version) = lines.next() else { return Ok(()) };
    if version.parse() != Ok(VERSION) {
        return Err(CheckpointFault::Version(shown(version)));
    }
    let Some(count) = lines.next() else { return Ok(()) };
    let stated = match count.parse::<i32>().map(u32::try_from) {
        Ok(Ok(stated)) => stated,
        _ => return Err(CheckpointFault::CountNotANumber(shown(count))),
    };
    let mut found = 0;
    for (i, text) in lines.enumerate() {
        let line = i + 3;
        entry(line, text).unwrap_or_else(|| Err(CheckpointFault::Malformed { line, text: shown(text) }))?;
        found += 1;
    }
    if usize::try_from(stated) != Ok(found) {
        return Err(CheckpointFault::Count { stated, found });
    }
    Ok(())
}

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

fn head(entries: usize) -> String {
    format!("{VERSION}\n{entries}\n")
}

/// A leader epoch and where it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaderEpochEntry {
    /// The epoch, from 0.
    pub epoch: i32,
    /// First log offset written in it, from 0.
    pub start_offset: Offset,
}

/// The leader epochs of a partition, from its `leader-epoch-checkpoint`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaderEpochCheckpoint {
    /// Strictly increasing in epoch and in start offset.
    pub entries: Vec<LeaderEpochEntry>,
    /// Lines of the file that were dropped to make it so; none in a file that Kafka wrote.
    pub dropped: usize,
}

impl LeaderEpochCheckpoint {
    /// Reads a whole file. A line that repeats the epoch before it is dropped; any other line that does not go up in
    /// both numbers drops the earlier ones that are not below it, as Kafka's LeaderEpochFileCache does.
    ///
    /// # Errors
    /// A [`CheckpointFault`]; then no entry may be used.
    pub fn parse(file: &[u8]) -> Result<Self, CheckpointFault> {
        let mut checkpoint = Self::default();
        read_entries(file, |line, text| {
            let [epoch, start_offset] = fields(text)?;
            let (epoch, start_offset) = (epoch.parse().ok()?, start_offset.parse().ok()?);
            if epoch < 0 || start_offset < 0 {
                return Some(Err(CheckpointFault::NegativeEpoch { line, epoch, start_offset }));
            }
            checkpoint.assign(LeaderEpochEntry { epoch, start_offset: Offset(start_offset) });
            Some(Ok(()))
        })?;
        Ok(checkpoint)
    }

    fn assign(&mut self, entry: LeaderEpochEntry) {
        if let Some(last) = self.entries.last()
            && last.epoch == entry.epoch
            && last.start_offset <= entry.start_offset
        {
            self.dropped += 1;
            return;
        }
        // Both numbers go up, so what is not below the new entry is at the end.
        while self
            .entries
            .pop_if(|e| e.epoch >= entry.epoch || e.start_offset >= entry.start_offset)
            .is_some()
        {
            self.dropped += 1;
        }
        self.entries.push(entry);
    }

    /// The file as Kafka writes it.
    pub fn encode(&self) -> String {
        let mut file = head(self.entries.len());
        for LeaderEpochEntry { epoch, start_offset } in &self.entries {
            // Writing to a string cannot fail.
            let _ = writeln!(file, "{epoch} {start_offset}");
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
