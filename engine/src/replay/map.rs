use std::borrow::Cow;
use std::collections::HashMap;

use super::StateCounts;
use crate::transaction_log::{
    TransactionMetadata, TransactionState, TransactionView, Value, ValueFault, decode_utf8,
};
use crate::types::Offset;

/// The newest state of every transactional id of one partition.
///
/// An id is the text that Kafka decodes from the key: two keys whose invalid UTF-8 decodes to the same text are the
/// same id (see [`decode_utf8`]). Values are kept as stored, one copy per id, and decoded when asked for.
#[derive(Clone, Debug, Default)]
pub struct PartitionMap {
    /// By the id's bytes in well-formed UTF-8.
    winners: HashMap<Box<[u8]>, Winner>,
}

/// The newest record of an id.
#[derive(Clone, Debug)]
struct Winner {
    offset: Offset,
    state: TransactionState,
    /// Bytes that the record takes in the log, with its share of the batch header.
    stored_bytes: u32,
    value: Box<[u8]>,
    /// The key's bytes where they are not well-formed.
    stored_id: Option<Box<[u8]>>,
}

impl PartitionMap {
    /// Number of ids.
    pub fn len(&self) -> usize {
        self.winners.len()
    }

    /// Whether there are no ids.
    pub fn is_empty(&self) -> bool {
        self.winners.is_empty()
    }

    /// The entry of an id, given as the bytes of its key. Cost: one look-up.
    pub fn get(&self, id: impl AsRef<[u8]>) -> Option<TransactionEntry<'_>> {
        let id = canonical(id.as_ref());
        self.winners.get_key_value(&*id).map(|(id, winner)| TransactionEntry { id, winner })
    }

    /// Every entry, in no order.
    pub fn iter(&self) -> impl Iterator<Item = TransactionEntry<'_>> {
        self.winners.iter().map(|(id, winner)| TransactionEntry { id, winner })
    }

    /// Every entry, sorted by the bytes of the id. Cost: a sort.
    pub fn sorted(&self) -> Vec<TransactionEntry<'_>> {
        let mut entries: Vec<_> = self.iter().collect();
        entries.sort_unstable_by(|a, b| a.id.cmp(b.id));
        entries
    }

    /// What a new coordinator must complete before these ids are usable: PrepareCommit and PrepareAbort, sorted by
    /// offset. Cost: a walk over all entries.
    pub fn pending_completion(&self) -> Vec<TransactionEntry<'_>> {
        let mut pending: Vec<_> = self.iter().filter(|entry| entry.state().is_pending_completion()).collect();
        pending.sort_unstable_by_key(TransactionEntry::offset);
        pending
    }

    pub(super) fn state_counts(&self) -> StateCounts {
        let mut counts = StateCounts::default();
        self.winners.values().for_each(|winner| counts.add(winner.state, 1));
        counts
    }

    pub(super) fn live_bytes(&self) -> u64 {
        self.winners.values().map(|winner| u64::from(winner.stored_bytes)).sum()
    }

    /// Makes this record the newest of its id.
    pub(super) fn insert(
        &mut self,
        id: &[u8],
        offset: Offset,
        view: &TransactionView<'_>,
        value: &[u8],
        stored_bytes: u32,
    ) {
        let canonical = canonical(id);
        let stored_id = matches!(canonical, Cow::Owned(_)).then(|| id.into());
        let state = view.state();
        if let Some(winner) = self.winners.get_mut(&*canonical) {
            // Values of one id mostly keep their length, so the allocation is reused.
            if winner.value.len() == value.len() {
                winner.value.copy_from_slice(value);
            } else {
                winner.value = value.into();
            }
            (winner.offset, winner.state, winner.stored_bytes) = (offset, state, stored_bytes);
            winner.stored_id = stored_id;
        } else {
            let winner = Winner { offset, state, stored_bytes, value: value.into(), stored_id };
            self.winners.insert(canonical.into(), winner);
        }
    }

    /// Applies a tombstone.
    pub(super) fn remove(&mut self, id: &[u8]) {
        self.winners.remove(&*canonical(id));
    }
}

/// The id's bytes as Kafka would write them back.
fn canonical(id: &[u8]) -> Cow<'_, [u8]> {
    match decode_utf8(id) {
        Cow::Borrowed(_) => Cow::Borrowed(id),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    }
}

/// A transactional id with its newest record.
#[derive(Clone, Copy, Debug)]
pub struct TransactionEntry<'a> {
    id: &'a [u8],
    winner: &'a Winner,
}

impl<'a> TransactionEntry<'a> {
    /// The id as text; malformed parts of its key are U+FFFD.
    pub fn id(&self) -> Cow<'a, str> {
        decode_utf8(self.id)
    }

    /// The id's bytes as they are in the key.
    pub fn stored_id(&self) -> &'a [u8] {
        self.winner.stored_id.as_deref().unwrap_or(self.id)
    }

    /// Offset of the record that the value comes from.
    pub fn offset(&self) -> Offset {
        self.winner.offset
    }

    /// State of the transaction.
    pub fn state(&self) -> TransactionState {
        self.winner.state
    }

    /// Bytes that the record takes in the log, with its share of the batch header.
    pub fn stored_bytes(&self) -> u32 {
        self.winner.stored_bytes
    }

    /// The value as stored.
    pub fn value(&self) -> &'a [u8] {
        &self.winner.value
    }

    /// The value, decoded without copying. Cost: one pass over it.
    ///
    /// # Errors
    /// None for a value that was loaded: it was decoded before it entered the map.
    pub fn view(&self) -> Result<TransactionView<'a>, ValueFault> {
        match Value::parse(self.value())? {
            Value::Known(fields) => fields.transaction(),
            Value::Unknown { version } => Err(ValueFault::Version(version)),
        }
    }

    /// An owned copy of the value.
    ///
    /// # Errors
    /// As [`view`](Self::view).
    pub fn metadata(&self) -> Result<TransactionMetadata, ValueFault> {
        Ok(self.view()?.to_metadata())
    }
}
