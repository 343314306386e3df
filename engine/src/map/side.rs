//! What the slots cannot say about records of batches with several records, or with compressed ones.
//!
//! Such a record has the address of its batch plus its rank among the ids of that batch: no other record of the log has
//! that address, and addresses still rise in the order of the log. Here lies which record it is.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::Mark;

/// One id of a batch, with its last record there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SideRecord {
    /// Number of the record in its batch, from 0.
    pub(crate) ordinal: u32,
    /// State of the transaction, or tombstone.
    pub(crate) mark: Mark,
    /// The id as Kafka reads it.
    pub(crate) id: Box<[u8]>,
}

#[derive(Debug)]
struct SideBatch {
    records: Vec<SideRecord>,
    /// Records of it that are the newest of their id.
    newest: usize,
}

/// Side entries by the address of their batch. A batch goes when none of its records is the newest of its id.
#[derive(Debug, Default)]
pub(crate) struct Side {
    batches: RwLock<BTreeMap<u64, SideBatch>>,
    bytes: AtomicUsize,
}

impl SideBatch {
    fn bytes(&self) -> usize {
        size_of::<Self>()
            + self.records.iter().map(|record| size_of::<SideRecord>() + record.id.len()).sum::<usize>()
    }
}

impl Side {
    /// Enters the ids of a batch, before any of them enters the index.
    pub(crate) fn add(&self, batch: u64, records: Vec<SideRecord>) {
        let entry = SideBatch { newest: records.len(), records };
        self.bytes.fetch_add(entry.bytes(), Ordering::Relaxed);
        self.write().insert(batch, entry);
    }

    /// The record at an address, and the address of its batch.
    pub(crate) fn with<T>(&self, address: u64, see: impl FnOnce(u64, &SideRecord) -> T) -> Option<T> {
        let batches = self.read();
        let (batch, entry) = batches.range(..=address).next_back()?;
        let rank = usize::try_from(address - batch).ok()?;
        entry.records.get(rank).map(|record| see(*batch, record))
    }

    /// Whether the record at an address is one of this id.
    pub(crate) fn is(&self, address: u64, id: &[u8]) -> bool {
        self.with(address, |_, record| *record.id == *id).unwrap_or(false)
    }

    /// A newer record took the place of the one at an address.
    pub(crate) fn release(&self, address: u64) {
        let mut batches = self.write();
        if let Some((&batch, entry)) = batches.range_mut(..=address).next_back() {
            entry.newest = entry.newest.saturating_sub(1);
            if entry.newest == 0 {
                self.bytes.fetch_sub(entry.bytes(), Ordering::Relaxed);
                batches.remove(&batch);
            }
        }
    }

    /// Everything, leaving nothing.
    pub(crate) fn take(&self) -> Self {
        let bytes = AtomicUsize::new(self.bytes.swap(0, Ordering::Relaxed));
        Self { batches: RwLock::new(std::mem::take(&mut *self.write())), bytes }
    }

    /// Bytes of memory, about.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<u64, SideBatch>> {
        self.batches.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, BTreeMap<u64, SideBatch>> {
        self.batches.write().unwrap_or_else(PoisonError::into_inner)
    }
}
