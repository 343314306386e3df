//! What is known of one producer (Kafka's ProducerStateEntry), and where the entries lie.

use std::collections::HashMap;

use super::{BatchMetadata, ProducerEntry};
use crate::types::{Offset, ProducerId};

/// Newest batches of a producer that are remembered, for finding a batch that was sent twice
/// (`ProducerStateEntry.NUM_BATCHES_TO_RETAIN`).
pub const BATCHES_RETAINED: usize = 5;

/// Stands for "no offset" in an entry, as in the snapshot file.
const NO_OFFSET: Offset = Offset(-1);

/// A data batch that a producer sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachedBatch {
    /// Its sequence numbers and offsets.
    pub metadata: BatchMetadata,
    /// Its largest timestamp, ms since the epoch, −1 if none.
    pub timestamp: i64,
}

/// The stored form: 56 bytes, and 96 more once a second batch has come.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) last_timestamp: i64,
    current_txn_first_offset: Offset,
    /// Means something only if `batches` is above 0.
    newest: CachedBatch,
    /// The `batches − 1` before it, oldest first.
    older: Option<Box<[CachedBatch; BATCHES_RETAINED - 1]>>,
    pub(super) coordinator_epoch: i32,
    producer_epoch: i16,
    batches: u8,
}

const NO_BATCH: CachedBatch = CachedBatch {
    metadata: BatchMetadata { last_sequence: -1, last_offset: NO_OFFSET, offset_delta: 0 },
    timestamp: -1,
};

impl Entry {
    /// Of a producer of which nothing is known.
    pub(super) const EMPTY: Self = Self {
        last_timestamp: -1,
        current_txn_first_offset: NO_OFFSET,
        newest: NO_BATCH,
        older: None,
        coordinator_epoch: -1,
        producer_epoch: -1,
        batches: 0,
    };

    pub(super) fn of_snapshot(entry: &ProducerEntry) -> Self {
        let mut made = Self {
            last_timestamp: entry.last_timestamp,
            coordinator_epoch: entry.coordinator_epoch,
            producer_epoch: entry.producer_epoch,
            ..Self::EMPTY
        };
        made.set_current_txn_first_offset(entry.current_txn_first_offset);
        if let Some(metadata) = entry.last_batch {
            made.push(CachedBatch { metadata, timestamp: entry.last_timestamp });
        }
        made
    }

    pub(super) fn producer_epoch(&self) -> i16 {
        self.producer_epoch
    }

    /// Another epoch begins: batches of the one before can no longer be sent twice.
    pub(super) fn set_producer_epoch(&mut self, epoch: i16) {
        if self.producer_epoch != epoch {
            self.producer_epoch = epoch;
            self.batches = 0;
            self.older = None;
        }
    }

    pub(super) fn current_txn_first_offset(&self) -> Option<Offset> {
        (self.current_txn_first_offset != NO_OFFSET).then_some(self.current_txn_first_offset)
    }

    pub(super) fn set_current_txn_first_offset(&mut self, offset: Option<Offset>) {
        self.current_txn_first_offset = offset.unwrap_or(NO_OFFSET);
    }

    pub(super) fn last_batch(&self) -> Option<&CachedBatch> {
        (self.batches > 0).then_some(&self.newest)
    }

    /// Remembers a batch, and forgets the oldest of five.
    pub(super) fn push(&mut self, batch: CachedBatch) {
        let batches = usize::from(self.batches);
        if batches > 0 {
            let older = self.older.get_or_insert_with(|| Box::new([NO_BATCH; BATCHES_RETAINED - 1]));
            if batches == BATCHES_RETAINED {
                older.rotate_left(1);
                older[BATCHES_RETAINED - 2] = self.newest;
            } else {
                older[batches - 1] = self.newest;
            }
        }
        self.newest = batch;
        if batches < BATCHES_RETAINED {
            self.batches += 1;
        }
    }

    /// Oldest first.
    pub(super) fn batches(&self) -> impl DoubleEndedIterator<Item = &CachedBatch> {
        let before = usize::from(self.batches).saturating_sub(1);
        let older = self.older.as_deref().map_or(&[][..], |older| &older[..before]);
        older.iter().chain(self.last_batch())
    }
}

/// What is known of one producer, borrowed from the state (Kafka's ProducerStateEntry).
#[derive(Clone, Copy, Debug)]
pub struct ProducerStateEntry<'a> {
    producer_id: ProducerId,
    entry: &'a Entry,
}

impl<'a> ProducerStateEntry<'a> {
    /// The producer id.
    pub fn producer_id(&self) -> ProducerId {
        self.producer_id
    }

    /// The newest epoch seen, of data or a marker; −1 if nothing but an emptied control batch was seen.
    pub fn producer_epoch(&self) -> i16 {
        self.entry.producer_epoch
    }

    /// Coordinator epoch of the newest marker, −1 if none.
    pub fn coordinator_epoch(&self) -> i32 {
        self.entry.coordinator_epoch
    }

    /// Largest timestamp of the newest data batch, or the timestamp of the newest marker if that came later. Ms since
    /// the epoch, −1 if none.
    pub fn last_timestamp(&self) -> i64 {
        self.entry.last_timestamp
    }

    /// First offset of the open transaction.
    pub fn current_txn_first_offset(&self) -> Option<Offset> {
        self.entry.current_txn_first_offset()
    }

    /// The newest batches of this epoch, at most [`BATCHES_RETAINED`], oldest first.
    pub fn batches(&self) -> impl DoubleEndedIterator<Item = &'a CachedBatch> {
        self.entry.batches()
    }

    /// The newest batch of this epoch.
    pub fn last_batch(&self) -> Option<&'a CachedBatch> {
        self.entry.last_batch()
    }

    /// The entry as a snapshot has it.
    pub fn to_snapshot(&self) -> ProducerEntry {
        ProducerEntry {
            producer_id: self.producer_id,
            producer_epoch: self.entry.producer_epoch,
            last_batch: self.entry.last_batch().map(|batch| batch.metadata),
            last_timestamp: self.entry.last_timestamp,
            coordinator_epoch: self.entry.coordinator_epoch,
            current_txn_first_offset: self.entry.current_txn_first_offset(),
        }
    }
}

/// Producer id → entry.
///
/// A hash map is between 7/16 and 7/8 full, so a wide value in it costs up to 2.3 times its size. The map has only the
/// number of a slot; the slots lie in one vector that grows by an eighth.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    numbers: HashMap<ProducerId, u32>,
    slots: Vec<Entry>,
    free: Vec<u32>,
}

impl Table {
    pub(super) fn len(&self) -> usize {
        self.numbers.len()
    }

    pub(super) fn get(&self, producer_id: ProducerId) -> Option<&Entry> {
        self.numbers.get(&producer_id).map(|&number| &self.slots[number as usize])
    }

    pub(super) fn view(&self, producer_id: ProducerId) -> Option<ProducerStateEntry<'_>> {
        self.get(producer_id).map(|entry| ProducerStateEntry { producer_id, entry })
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = ProducerStateEntry<'_>> {
        self.numbers.iter().map(|(&producer_id, &number)| ProducerStateEntry {
            producer_id,
            entry: &self.slots[number as usize],
        })
    }

    /// The entry, an empty one if there was none.
    pub(super) fn get_or_insert(&mut self, producer_id: ProducerId) -> &mut Entry {
        let (slots, free) = (&mut self.slots, &mut self.free);
        let number = *self.numbers.entry(producer_id).or_insert_with(|| {
            free.pop().unwrap_or_else(|| {
                if slots.len() == slots.capacity() {
                    slots.reserve_exact((slots.len() / 8).max(4));
                }
                slots.push(Entry::EMPTY);
                u32::try_from(slots.len() - 1).expect("4 billion entries do not fit the memory")
            })
        });
        &mut self.slots[number as usize]
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Forgets the entries for which `keep` is false; how many. Gives memory back once three quarters are unused.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(&Entry) -> bool) -> usize {
        let before = self.numbers.len();
        let (slots, free) = (&mut self.slots, &mut self.free);
        self.numbers.retain(|_, number| {
            let slot = &mut slots[*number as usize];
            let keeps = keep(slot);
            if !keeps {
                *slot = Entry::EMPTY;
                free.push(*number);
            }
            keeps
        });
        if self.numbers.len() * 4 < self.slots.len() {
            self.shrink();
        }
        before - self.numbers.len()
    }

    fn shrink(&mut self) {
        let mut slots = Vec::with_capacity(self.numbers.len());
        for number in self.numbers.values_mut() {
            let entry = std::mem::replace(&mut self.slots[*number as usize], Entry::EMPTY);
            *number = u32::try_from(slots.len()).expect("there are fewer than before");
            slots.push(entry);
        }
        self.slots = slots;
        self.free = Vec::new();
        self.numbers.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_has_the_promised_size() {
        assert_eq!(size_of::<Entry>(), 56);
        assert_eq!(size_of::<CachedBatch>(), 24);
        assert_eq!(size_of::<(ProducerId, u32)>(), 16);
    }

    #[test]
    fn five_batches_are_kept_oldest_first() {
        let mut entry = Entry::EMPTY;
        for count in 1..20 {
            let metadata = BatchMetadata { last_sequence: count, last_offset: Offset(0), offset_delta: 0 };
            entry.push(CachedBatch { metadata, timestamp: 0 });
            let sequences: Vec<_> = entry.batches().map(|batch| batch.metadata.last_sequence).collect();
            assert_eq!(sequences, ((count - 4).max(1)..=count).collect::<Vec<_>>());
        }
        entry.set_producer_epoch(1);
        assert!(entry.batches().next().is_none() && entry.last_batch().is_none());
    }

    #[test]
    fn slots_are_used_again_and_given_back() {
        let mut table = Table::default();
        let fill = |table: &mut Table, ids: std::ops::Range<i64>| {
            ids.for_each(|id| table.get_or_insert(ProducerId(id)).last_timestamp = id);
        };
        fill(&mut table, 0..1000);
        assert_eq!(table.retain(|entry| entry.last_timestamp % 2 == 0), 500);
        fill(&mut table, 2000..2500);
        assert_eq!((table.len(), table.slots.len()), (1000, 1000));
        assert_eq!(table.retain(|entry| entry.last_timestamp % 100 == 0), 985);
        assert_eq!((table.len(), table.slots.len(), table.free.len()), (15, 15, 0));
        for view in table.iter() {
            assert_eq!(view.last_timestamp(), view.producer_id().0);
        }
        fill(&mut table, 5000..5001);
        assert_eq!(table.get(ProducerId(5000)).map(|entry| entry.last_timestamp), Some(5000));
        assert!(table.get(ProducerId(1)).is_none());
    }
}
