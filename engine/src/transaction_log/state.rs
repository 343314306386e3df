//! The states of a transaction (Kafka's TransactionState).

use std::fmt;
use std::str::FromStr;

/// State of a transaction as the log stores it, one byte.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum TransactionState {
    /// A producer id is assigned, no transaction was started since. The only state without a partition list.
    Empty = 0,
    /// A transaction is open.
    Ongoing = 1,
    /// The decision to commit is logged, its markers may not all be written.
    PrepareCommit = 2,
    /// The decision to abort is logged, its markers may not all be written.
    PrepareAbort = 3,
    /// Committed, all markers written.
    CompleteCommit = 4,
    /// Aborted, all markers written.
    CompleteAbort = 5,
    /// About to be removed. Defined but not written: removal is a tombstone.
    Dead = 6,
    /// A newer producer epoch is being set up. Defined but not written: it exists in memory only.
    PrepareEpochFence = 7,
}

impl TransactionState {
    /// All states in the order of their codes.
    pub const ALL: [Self; 8] = [
        Self::Empty,
        Self::Ongoing,
        Self::PrepareCommit,
        Self::PrepareAbort,
        Self::CompleteCommit,
        Self::CompleteAbort,
        Self::Dead,
        Self::PrepareEpochFence,
    ];

    /// The state with this stored number, 0 … 7.
    pub const fn from_code(code: i8) -> Option<Self> {
        match code {
            0..8 => Some(Self::ALL[code as usize]),
            _ => None,
        }
    }

    /// The stored number, 0 … 7.
    pub const fn code(self) -> i8 {
        self as i8
    }

    /// Kafka's name of the state.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::Ongoing => "Ongoing",
            Self::PrepareCommit => "PrepareCommit",
            Self::PrepareAbort => "PrepareAbort",
            Self::CompleteCommit => "CompleteCommit",
            Self::CompleteAbort => "CompleteAbort",
            Self::Dead => "Dead",
            Self::PrepareEpochFence => "PrepareEpochFence",
        }
    }

    /// Whether a new coordinator has to finish this transaction: the decision is logged, the markers may be missing.
    pub const fn is_pending_completion(self) -> bool {
        matches!(self, Self::PrepareCommit | Self::PrepareAbort)
    }
}

impl fmt::Display for TransactionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A text that names no state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not a transaction state; they are Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort, \
     Dead and PrepareEpochFence"
)]
pub struct UnknownStateName;

impl FromStr for TransactionState {
    type Err = UnknownStateName;

    /// Exactly one of Kafka's names, upper and lower case told apart.
    fn from_str(name: &str) -> Result<Self, UnknownStateName> {
        Self::ALL.into_iter().find(|state| state.name() == name).ok_or(UnknownStateName)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_names_come_back() {
        for (code, state) in TransactionState::ALL.into_iter().enumerate() {
            assert_eq!(state.code(), code as i8);
            assert_eq!(TransactionState::from_code(state.code()), Some(state));
            assert_eq!(state.name().parse(), Ok(state));
            assert_eq!(format!("{state:?}"), state.name());
        }
        for code in [-128, -1, 8, 9, 127] {
            assert_eq!(TransactionState::from_code(code), None);
        }
        assert_eq!("empty".parse::<TransactionState>(), Err(UnknownStateName));
        assert_eq!(format!("{:>8}", TransactionState::Empty), "   Empty");
    }

    #[test]
    fn only_the_two_decisions_are_pending() {
        let pending: Vec<_> =
            TransactionState::ALL.into_iter().filter(|s| s.is_pending_completion()).collect();
        assert_eq!(pending, [TransactionState::PrepareCommit, TransactionState::PrepareAbort]);
    }
}
