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
                self.give_back(lines.bytes() as u64);
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
            self.give_back(bytes);
        }
    }

    fn spare(&self) -> MutexGuard<'_, Vec<Lines>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes bytes; `Err` with what would have been taken in all, if that is too much.
    fn take(&self, bytes: u64) -> Result<(), u64> {
        let add = || {
            self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                used.checked_add(bytes).filter(|used| *used <= self.limit)
            })
        };
        let before = add().or_else(|_| {
            // What is kept for later goes first.
            let spare: u64 = self.spare().drain(..).map(|lines| lines.bytes() as u64).sum();
            self.give_back(spare);
            add()
        });
        let used = before.map_err(|used| used.saturating_add(bytes))? + bytes;
        self.peak.fetch_max(used, Ordering::Relaxed);
        Ok(())
    }

    fn give_back(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// One partition's share of a budget, given back when it goes.
#[derive(Debug)]
pub(super) struct Charge<'a> {
    budget: &'a Budget,
    partition: &'a TopicPartition,
    held: Mutex<u64>,
}

impl Drop for Charge<'_> {
    fn drop(&mut self) {
        self.release();
    }
}

impl<'a> Charge<'a> {
    pub(super) fn new(budget: &'a Budget, partition: &'a TopicPartition) -> Self {
        Self { budget, partition, held: Mutex::new(0) }
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
        let mut result = Ok(());
        for ids in [ids, 0] {
            result = self.grow_to(index, ids);
            if result.is_ok() {
                break;
            }
        }
        result
    }

    fn grow_to(&self, index: &mut Index, ids: usize) -> Result<(), Error> {
        let bytes = (index.lines_to_grow(ids) * size_of::<Line>()) as u64;
        self.budget.take(bytes).map_err(|needed| self.refused(needed, index.len()))?;
        match index.grow(ids, |count| self.budget.lines(count)) {
            Ok(old) => {
                // What was taken is held from now on, in place of the old lines.
                self.budget.give_back(old.bytes() as u64);
                let mut held = self.held();
                *held = (*held + bytes).saturating_sub(old.bytes() as u64);
                drop(held);
                self.budget.keep(old);
                Ok(())
            }
            Err(fault) => {
                self.budget.give_back(bytes);
                Err(self.fault(index.len(), fault))
            }
        }
    }

    /// Holds as much as a map has now.
    ///
    /// # Errors
    /// [`Error::Memory`].
    pub(super) fn set(&self, index: &Index, side: &Side) -> Result<(), Error> {
        let bytes = (index.bytes() + side.bytes()) as u64;
        let mut held = self.held();
        match bytes.checked_sub(*held) {
            Some(more) => self.budget.take(more).map_err(|needed| self.refused(needed, index.len()))?,
            None => self.budget.give_back(*held - bytes),
        }
        *held = bytes;
        Ok(())
    }

    /// Holds nothing any more.
    pub(super) fn release(&self) {
        self.budget.give_back(std::mem::take(&mut *self.held()));
    }

    fn held(&self) -> MutexGuard<'_, u64> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(count: usize) -> Lines {
        Lines::zeroed(count).unwrap()
    }

    #[test]
    fn what_is_kept_for_later_goes_before_anything_is_refused() {
        let budget = Budget::new(Some(1000));
        budget.take(640).unwrap();
        budget.give_back(640);
        budget.keep(lines(10));
        assert_eq!(budget.take(361).map(|()| budget.spare().len()), Ok(0), "the kept ones went");
        assert_eq!(budget.take(640), Err(1001));
        budget.give_back(361);
        assert_eq!((budget.used.load(Ordering::Relaxed), budget.peak()), (0, 640));
        budget.keep(lines(10));
        let again = budget.lines(10).unwrap();
        assert_eq!(
            (again.bytes(), budget.used.load(Ordering::Relaxed)),
            (640, 0),
            "charged by whoever takes them"
        );
    }

    /// There is no room for the lines, and others are kept: to look for room is to empty those.
    #[test]
    fn lines_that_do_not_fit_are_let_go() {
        let budget = Budget::new(Some(1000));
        budget.keep(lines(5));
        budget.take(600).unwrap();
        budget.keep(lines(10));
        assert_eq!((budget.spare().len(), budget.used.load(Ordering::Relaxed)), (0, 600));
    }

    #[test]
    fn a_table_that_grows_is_held_from_then_on() {
        let partition = TopicPartition { topic: "t".to_owned(), partition: 0 };
        let budget = Budget::new(Some(100_000));
        let charge = Charge::new(&budget, &partition);
        let mut index = charge.renew(Form::ByHash, 1).unwrap();
        let mut bytes = index.bytes() as u64;
        assert_eq!(budget.used.load(Ordering::Relaxed), bytes);
        // An expectation that does not fit is given up for what is needed.
        charge.grow(&mut index, 1_000_000).unwrap();
        assert_eq!(index.bytes() as u64, 2 * bytes);
        assert_eq!(*charge.held(), 2 * bytes);
        assert_eq!(budget.used.load(Ordering::Relaxed), 3 * bytes, "with the old lines, kept");
        bytes *= 2;
        while let Ok(()) = charge.grow(&mut index, 0) {
            bytes *= 2;
        }
        assert!(bytes <= 100_000 && 3 * bytes > 100_000, "{bytes}: the old and the new table together");
        assert_eq!((index.bytes() as u64, *charge.held()), (bytes, bytes), "as it was");
        drop(charge);
        let spare: u64 = budget.spare().iter().map(|lines| lines.bytes() as u64).sum();
        assert_eq!(budget.used.load(Ordering::Relaxed), spare);
        assert!(budget.peak() <= 100_000);
    }
}
