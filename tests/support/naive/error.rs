//! Why a partition is refused.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The first thing that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NaiveError {
    /// File, or folder where that could not be listed.
    pub path: PathBuf,
    /// Byte position in the file of the batch or read that failed.
    pub position: u64,
    /// Base offset of the batch, where its header could be trusted.
    pub offset: Option<i64>,
    /// What is wrong.
    pub reason: Reason,
}

/// What is wrong with a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The file system failed, or the file got shorter.
    Io(String),
    /// The file ends within the batch.
    CutShort {
        /// Bytes from the start of the batch to the end of the file.
        bytes: u64,
    },
    /// The header says something that no batch of format 2 can say.
    Header(&'static str),
    /// The checksum differs.
    Crc {
        /// What the header says.
        stored: u32,
        /// What the bytes give.
        computed: u32,
    },
    /// The batch begins below the end of the one before it, or below its segment's base offset.
    OffsetGoesBack {
        /// Smallest offset that could have followed.
        expected_at_least: i64,
    },
    /// The records cannot be decompressed.
    Codec(String),
    /// A record cannot be taken apart.
    Record(&'static str),
    /// The key cannot be decoded.
    Key(&'static str),
    /// The value cannot be decoded.
    Value(&'static str),
}

impl Reason {
    /// The kinds of damage that an append leaves when it was interrupted: the batch is not there as it was sent.
    pub fn is_bad_batch(&self) -> bool {
        matches!(self, Self::CutShort { .. } | Self::Header(_) | Self::Crc { .. })
    }
}

impl NaiveError {
    pub(super) fn io(path: &Path, error: &io::Error) -> Self {
        Self { path: path.to_owned(), position: 0, offset: None, reason: Reason::Io(error.to_string()) }
    }
}

impl fmt::Display for NaiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}", self.path.display(), self.position)?;
        if let Some(offset) = self.offset {
            write!(f, ", offset {offset}")?;
        }
        write!(f, ": {}", self.reason)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(what) => write!(f, "reading failed: {what}"),
            Self::CutShort { bytes } => write!(f, "the file ends {bytes} bytes into a batch"),
            Self::Header(what) => write!(f, "bad header: {what}"),
            Self::Crc { stored, computed } => write!(f, "CRC is {stored:08x} but should be {computed:08x}"),
            Self::OffsetGoesBack { expected_at_least } => {
                write!(f, "the offset goes back below {expected_at_least}")
            }
            Self::Codec(what) => write!(f, "decompression failed: {what}"),
            Self::Record(what) => write!(f, "bad record: {what}"),
            Self::Key(what) => write!(f, "bad key: {what}"),
            Self::Value(what) => write!(f, "bad value: {what}"),
        }
    }
}

impl Error for NaiveError {}
