//! How much memory the maps of a load may take.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::Error;
use crate::machine::lines::{Line, Lines};
use crate::map::{Form, GrowFault, Index, Side};
use crate::types::TopicPartition;

/// Most tables that are kept for later.
const SPARE_MAX: usize = 64;

/// The memory of all partitions' maps together.
///
/// Memory that was used once is worth more than fresh memory, which the system has to find and to clear: the lines of a
/// table that grew are kept for the next that asks for as many.
#[derive(Debug)]
pub(super) struct Budget {
    /// Bytes; `u64::MAX` for no limit.
    limit: u64,
    /// Also what lies in `spare`.
    used: AtomicU64,
    peak: AtomicU64,
    spare: Mutex<Vec<Lines>>,
}

impl Budget {
    pub(super) fn new(limit: Option<u64>) -> Self {
        Self {
            limit: limit.unwrap_or(u64::MAX),
            used: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            spare: Mutex::default(),
        }
    }

    /// Most bytes that were taken at once.
    pub(super) fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    /// Lines of zeros; from `spare`, where some are left that fit.
    fn lines(&self, count: usize) -> io::Result<Lines> {
        let found = {
            let mut spare = self.spare();
            let at = spare.iter().position(|lines| lines.len() == count);
            at.map(|at| spare.swap_remove(at))
        };
        match found {
            Some(mut lines) => {
                // They are charged for by whoever takes them.
                self.used.fetch_sub(lines.bytes() as u64, Ordering::Relaxed);
                lines.clear();
                Ok(lines)
            }
            None => Lines::zeroed(count),
        }
    }

    /// Keeps lines for later.
    fn keep(&self, lines: Lines) {
        let bytes = lines.bytes() as u64;
        // Not under the lock: it may have to empty what is kept.
        if self.take(bytes).is_err() {
            return;
        }
        let mut spare = self.spare();
        if spare.len() < SPARE_MAX {
            spare.push(lines);
        } else {
            self.used.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    fn spare(&self) -> MutexGuard<'_, Vec<Lines>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes bytes; `Err` with what would have been taken in all, if that is too much.
    fn take(&self, bytes: u64) -> Result<(), u64> {
        let mut used = self.used.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        if used > self.limit {
            // What is kept for later goes first.
            let spare: u64 = self.spare().drain(..).map(|lines| lines.bytes() as u64).sum();
            used = self.used.fetch_sub(spare, Ordering::Relaxed).saturating_sub(spare);
        }
        if used > self.limit {
            self.used.fetch_sub(bytes, Ordering::Relaxed);
            return Err(used);
        }
        self.peak.fetch_max(used, Ordering::Relaxed);
        Ok(())
    }
}

/// One partition's share of a budget, given back when it goes.
#[derive(Debug)]
pub(super) struct Charge<'a> {
    budget: &'a Budget,
    partition: &'a TopicPartition,
    held: AtomicU64,
}

impl Drop for Charge<'_> {
    fn drop(&mut self) {
        self.release();
    }
}

impl<'a> Charge<'a> {
    pub(super) fn new(budget: &'a Budget, partition: &'a TopicPartition) -> Self {
        Self { budget, partition, held: AtomicU64::new(0) }
    }

    /// A new map in place of what was held.
    ///
    /// # Errors
    /// [`Error::Memory`].
    pub(super) fn renew(&self, form: Form, room: usize) -> Result<Index, Error> {
        self.release();
        let index =
            Index::new(form, room, |count| self.budget.lines(count)).map_err(|fault| self.fault(0, fault))?;
        self.set(&index, &Side::default())?;
        Ok(index)
    }

    /// Makes room in a map for so many ids, and for twice as many as it has.
    ///
    /// # Errors
    /// [`Error::Memory`]; the map is then as it was.
    pub(super) fn grow(&self, index: &mut Index, ids: usize) -> Result<(), Error> {
        // What is expected may cost too much where what is needed does not.
        let wanted = [ids, 0].map(|ids| (ids, (index.lines_to_grow(ids) * size_of::<Line>()) as u64));
        let mut taken = Err(0);
        for (ids, bytes) in wanted {
            taken = self.budget.take(bytes).map(|()| (ids, bytes));
            if taken.is_ok() {
                break;
            }
        }
        let (ids, bytes) = taken.map_err(|needed| self.refused(needed, index.len()))?;
        let grown = index.grow(ids, |count| self.budget.lines(count));
        self.budget.used.fetch_sub(bytes, Ordering::Relaxed);
        let old = grown.map_err(|fault| self.fault(index.len(), fault))?;
        self.budget.keep(old);
        Ok(())
    }

    /// Holds as much as a map has now.
    ///
    /// # Errors
    /// [`Error::Memory`].
    pub(super) fn set(&self, index: &Index, side: &Side) -> Result<(), Error> {
        let bytes = (index.bytes() + side.bytes()) as u64;
        let held = self.held.swap(bytes, Ordering::Relaxed);
        if bytes >= held {
            self.budget.take(bytes - held).map_err(|needed| {
                self.held.fetch_sub(bytes - held, Ordering::Relaxed);
                self.refused(needed, index.len())
            })
        } else {
            self.budget.used.fetch_sub(held - bytes, Ordering::Relaxed);
            Ok(())
        }
    }

    /// Holds nothing any more.
    pub(super) fn release(&self) {
        self.budget.used.fetch_sub(self.held.swap(0, Ordering::Relaxed), Ordering::Relaxed);
    }

    /// The system gives no more memory.
    pub(super) fn refused_by_system(&self, ids: usize, source: &io::Error) -> Error {
        let needed = self.budget.used.load(Ordering::Relaxed);
        self.error(needed, ids, format!("the system gives no more: {source}"))
    }

    fn refused(&self, needed: u64, ids: usize) -> Error {
        self.error(
            needed,
            ids,
            format!("the budget is {} bytes for all partitions together", self.budget.limit),
        )
    }

    fn fault(&self, ids: usize, fault: GrowFault) -> Error {
        self.error(self.budget.used.load(Ordering::Relaxed), ids, fault.to_string())
    }

    fn error(&self, needed: u64, ids: usize, reason: String) -> Error {
        Error::Memory { partition: self.partition.clone(), needed, ids: ids as u64, reason }
    }
}
