use std::fmt;

use crate::types::Offset;

/// What a file of a partition's folder holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SegmentFileKind {
    /// `.log`
    Log,
    /// `.index`
    OffsetIndex,
    /// `.timeindex`
    TimeIndex,
    /// `.txnindex`
    TransactionIndex,
    /// `.snapshot`
    Snapshot,
}

/// In which step of a replacement a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentFileState {
    /// In use.
    Live,
    /// `.deleted`: no longer part of the log.
    Deleted,
    /// `.cleaned`: worthless after a crash.
    Cleaned,
    /// `.swap`: complete, takes the place of what it covers.
    Swap,
}

/// The name of a segment file, taken apart (LogFileUtils).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentFileName {
    /// The number in the name: base offset of the segment, or the offset of a snapshot.
    pub offset: Offset,
    /// The first suffix.
    pub kind: SegmentFileKind,
    /// The second suffix.
    pub state: SegmentFileState,
}

impl SegmentFileKind {
    /// The suffix with its dot.
    pub fn suffix(self) -> &'static str {
        match self {
            Self::Log => ".log",
            Self::OffsetIndex => ".index",
            Self::TimeIndex => ".timeindex",
            Self::TransactionIndex => ".txnindex",
            Self::Snapshot => ".snapshot",
        }
    }
}

impl SegmentFileState {
    /// The second suffix with its dot; nothing for a file in use.
    pub fn suffix(self) -> &'static str {
        match self {
            Self::Live => "",
            Self::Deleted => ".deleted",
            Self::Cleaned => ".cleaned",
            Self::Swap => ".swap",
        }
    }
}

/// The name as a file has it.
impl fmt::Display for SegmentFileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:020}{}{}", self.offset.0, self.kind.suffix(), self.state.suffix())
    }
}

impl SegmentFileName {
    /// Whether records lie in the file: a `.log` that is in use or about to be.
    pub fn is_part_of_log(self) -> bool {
        self.kind == SegmentFileKind::Log
            && matches!(self.state, SegmentFileState::Live | SegmentFileState::Swap)
    }

    /// Reads a file name; `None` for any that is not a segment file's, among them numbers that are not exactly
    /// 20 digits, which Kafka would take.
    pub fn parse(name: &str) -> Option<Self> {
        let (digits, rest) = name.split_at_checked(20)?;
        if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let mut suffixes = rest.strip_prefix('.')?.split('.');
        let kind = match suffixes.next()? {
            "log" => SegmentFileKind::Log,
            "index" => SegmentFileKind::OffsetIndex,
            "timeindex" => SegmentFileKind::TimeIndex,
            "txnindex" => SegmentFileKind::TransactionIndex,
            "snapshot" => SegmentFileKind::Snapshot,
            _ => return None,
        };
        let state = match suffixes.next() {
            None => SegmentFileState::Live,
            Some("deleted") => SegmentFileState::Deleted,
            Some("cleaned") if kind != SegmentFileKind::Snapshot => SegmentFileState::Cleaned,
            Some("swap") if kind != SegmentFileKind::Snapshot => SegmentFileState::Swap,
            Some(_) => return None,
        };
        if suffixes.next().is_some() {
            return None;
        }
        // 20 digits can exceed the largest offset.
        Some(Self { offset: Offset(digits.parse().ok()?), kind, state })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_names_of_twenty_digits_count() {
        let parse = SegmentFileName::parse;
        let name = parse("00000000000000000042.log").unwrap();
        assert_eq!(
            (name.offset, name.kind, name.state),
            (Offset(42), SegmentFileKind::Log, SegmentFileState::Live)
        );
        for name in ["00000000000000000042.timeindex.swap", "09223372036854775807.snapshot.deleted"] {
            assert_eq!(parse(name).unwrap().to_string(), name);
        }
        assert_eq!(parse("09223372036854775807.index").unwrap().offset, Offset(i64::MAX));
        assert_eq!(parse("00000000000000000001.log.swap").unwrap().state, SegmentFileState::Swap);
        assert_eq!(parse("00000000000000000001.timeindex.cleaned").unwrap().state, SegmentFileState::Cleaned);
        assert_eq!(parse("00000000000000000001.snapshot.deleted").unwrap().state, SegmentFileState::Deleted);
        for foreign in [
            "foo.log",
            "42.log",
            "99999999999999999999.log",
            "+0000000000000000042.log",
            "00000000000000000042log",
            "00000000000000000042.log.tmp",
            "00000000000000000042.log.swap.swap",
            "00000000000000000042.snapshot.swap",
            "00000000000000000042",
            "leader-epoch-checkpoint",
            "1234567890123456789é.log",
        ] {
            assert_eq!(parse(foreign), None, "{foreign}");
        }
    }
}
