//! The text of checkpoint files (Kafka's CheckpointFile), and the one that lies in a partition's folder
//! (LeaderEpochCheckpointFile). Layout: a line with the version, one with the number of entries, one for each entry.

use crate::types::Offset;
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
pub(crate) fn lines(text: &str) -> impl Iterator<Item = &str> {
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
pub(crate) fn fields<const N: usize>(line: &str) -> Option<[&str; N]> {
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
pub(crate) fn read_entries(
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

/// The two head lines of a file.
pub(crate) fn head(entries: usize) -> String {
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
            let entry = LeaderEpochEntry { epoch, start_offset: Offset(start_offset) };
            // What is not added was there before.
            checkpoint.dropped += assign(&mut checkpoint.entries, entry).unwrap_or(1);
            Some(Ok(()))
        })?;
        Ok(checkpoint)
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

/// Adds an entry and removes those at the end that are not below it in both numbers; returns how many. `None` if it
/// says nothing new: its epoch is the last, and began no later.
pub(crate) fn assign(entries: &mut Vec<LeaderEpochEntry>, entry: LeaderEpochEntry) -> Option<usize> {
    if let Some(last) = entries.last()
        && last.epoch == entry.epoch
        && last.start_offset <= entry.start_offset
    {
        return None;
    }
    let before = entries.len();
    // Both numbers go up, so what is not below the new entry is at the end.
    while entries.pop_if(|e| e.epoch >= entry.epoch || e.start_offset >= entry.start_offset).is_some() {}
    let removed = before - entries.len();
    entries.push(entry);
    Some(removed)
}
