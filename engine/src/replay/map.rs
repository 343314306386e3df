use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;

use super::StateCounts;
use super::records::{Cursor, FileKeys, LogRecords, Wanted};
use crate::error::Error;
use crate::map::{IdHasher, Index, Mark, Newest, Side};
use crate::transaction_log::{
    TransactionMetadata, TransactionState, TransactionView, Value, ValueFault, decode_utf8,
};
use crate::types::Offset;

/// Bytes that a look-up reads at once: mostly a whole batch.
const LOOK_UP_BYTES: usize = 1 << 10;
/// Bytes that a walk over all entries reads at once.
const WALK_BYTES: usize = 1 << 20;

/// The newest state of every transactional id of one partition.
///
/// An id is the text that Kafka decodes from the key: two keys whose invalid UTF-8 decodes to the same text are the
/// same id (see [`decode_utf8`]). The map knows of each id where its newest record lies and the transaction's state;
/// values stay in the log and are read, and checked again, when they are asked for. So the files must still be there
/// then: an answer may be [`Error::Io`], or [`Error::Changed`] where a broker was at them since.
#[derive(Debug)]
pub struct PartitionMap {
    index: Index,
    side: Side,
    hasher: Arc<IdHasher>,
    records: LogRecords,
    counts: StateCounts,
    ids: usize,
    tombstones: usize,
}

impl PartitionMap {
    /// Cost: a walk over the table.
    pub(super) fn new(index: Index, side: Side, hasher: Arc<IdHasher>, records: LogRecords) -> Self {
        let (mut counts, mut ids, mut tombstones) = (StateCounts::default(), 0, 0);
        index.for_each(|newest| match mark_of(newest, &side) {
            Mark::State(state) => {
                counts.add(state, 1);
                ids += 1;
            }
            Mark::Tombstone | Mark::Side => tombstones += 1,
        });
        Self { index, side, hasher, records, counts, ids, tombstones }
    }

    /// Number of ids.
    pub fn len(&self) -> usize {
        self.ids
    }

    /// Whether there are no ids.
    pub fn is_empty(&self) -> bool {
        self.ids == 0
    }

    /// Ids whose newest record is a tombstone. They are no ids of the map.
    pub fn tombstones(&self) -> usize {
        self.tombstones
    }

    /// Ids by state.
    pub fn by_state(&self) -> StateCounts {
        self.counts
    }

    /// Bytes of memory that the map takes; values are none of them.
    pub fn bytes(&self) -> usize {
        self.index.bytes() + self.side.bytes()
    }

    /// The entry of an id, given as the bytes of its key. Cost: one look-up, and a read of the log if the id is there.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Changed`].
    pub fn get(&self, id: impl AsRef<[u8]>) -> Result<Option<TransactionEntry>, Error> {
        let id = canonical(id.as_ref());
        let cursor = RefCell::new(Cursor::new(LOOK_UP_BYTES));
        let keys = FileKeys { records: &self.records, cursor, error: RefCell::new(None) };
        let newest = self.index.get(self.hasher.hash(&id), &id, &keys, &self.side);
        let FileKeys { cursor, error, .. } = keys;
        if let Some(error) = error.into_inner() {
            return Err(error);
        }
        let Some(wanted) = newest.and_then(|newest| self.wanted(newest)) else { return Ok(None) };
        let mut found = None;
        self.records.read(&mut cursor.into_inner(), &[wanted], |entry| found = Some(entry))?;
        // Where hashes are compared this is the only look at the id itself.
        Ok(found.filter(|entry| *canonical(entry.stored_id()) == *id))
    }

    /// Every entry, in the order of the log. Cost: a sort, and a read of the log from front to back.
    ///
    /// Ends after an error: [`Error::Io`], [`Error::Changed`].
    pub fn iter(&self) -> impl Iterator<Item = Result<TransactionEntry, Error>> + '_ {
        self.entries(|_| true)
    }

    /// The entries in some states, in the order of the log. Cost: a walk over the table, and a read for each of them.
    ///
    /// Ends after an error, as [`iter`](Self::iter) does.
    pub fn in_states<'a>(
        &'a self,
        states: &'a [TransactionState],
    ) -> impl Iterator<Item = Result<TransactionEntry, Error>> + 'a {
        self.entries(|state| states.contains(&state))
    }

    /// Every entry, sorted by the bytes of the id, all of them in memory at once.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Changed`].
    pub fn sorted(&self) -> Result<Vec<TransactionEntry>, Error> {
        let mut entries = self.iter().collect::<Result<Vec<_>, _>>()?;
        entries.sort_unstable_by(|a, b| canonical(a.stored_id()).cmp(&canonical(b.stored_id())));
        Ok(entries)
    }

    /// What a new coordinator must complete before these ids are usable: PrepareCommit and PrepareAbort, by offset.
    ///
    /// Ends after an error, as [`iter`](Self::iter) does.
    pub fn pending_completion(&self) -> impl Iterator<Item = Result<TransactionEntry, Error>> + '_ {
        self.entries(TransactionState::is_pending_completion)
    }

    fn entries(&self, keep: impl Fn(TransactionState) -> bool) -> Entries<'_> {
        let mut wanted = Vec::new();
        self.index.for_each(|newest| wanted.extend(self.wanted(newest).filter(|record| keep(record.state))));
        self.read(wanted)
    }

    fn read(&self, mut wanted: Vec<Wanted>) -> Entries<'_> {
        wanted.sort_unstable_by_key(|record| (record.batch, record.ordinal));
        // Few among many are read one by one.
        let piece_bytes = if wanted.len() * 16 < self.ids { LOOK_UP_BYTES } else { WALK_BYTES };
        Entries { map: self, wanted, next: 0, ready: VecDeque::new(), cursor: Cursor::new(piece_bytes) }
    }

    /// What to read for an entry; `None` for a tombstone.
    fn wanted(&self, newest: Newest) -> Option<Wanted> {
        let address = newest.address();
        match newest.mark() {
            Mark::State(state) => Some(Wanted { batch: address, ordinal: 0, state }),
            Mark::Tombstone => None,
            Mark::Side => self.side.with(address, |batch, record| match record.mark {
                Mark::State(state) => Some(Wanted { batch, ordinal: record.ordinal, state }),
                Mark::Tombstone | Mark::Side => None,
            })?,
        }
    }

    /// Bytes of the newest records, each with its share of the batch header: what a perfect compaction would keep.
    /// `size` gives the bytes of a batch at an address; `is_stopped` is asked now and then. Takes 8 bytes of memory an id.
    ///
    /// # Errors
    /// [`Error::Cancelled`], and as [`iter`](Self::iter).
    pub(super) fn live_bytes(
        &self,
        mut size: impl FnMut(u64) -> Result<u64, Error>,
        is_stopped: impl Fn() -> bool,
    ) -> Result<u64, Error> {
        let (mut alone, mut others) = (Vec::new(), Vec::new());
        self.index.for_each(|newest| match newest.mark() {
            Mark::State(_) => alone.push(newest.address()),
            Mark::Tombstone => {}
            Mark::Side => others.extend(self.wanted(newest)),
        });
        alone.sort_unstable();
        let mut bytes = 0;
        for some in alone.chunks(4096) {
            if is_stopped() {
                return Err(Error::Cancelled);
            }
            for address in some {
                bytes += size(*address)?;
            }
        }
        // Records of larger batches say their size when they are read.
        for entry in self.read(others) {
            if is_stopped() {
                return Err(Error::Cancelled);
            }
            bytes += u64::from(entry?.stored_bytes());
        }
        Ok(bytes)
    }

    /// The reader of its log.
    pub(super) fn records(&self) -> &LogRecords {
        &self.records
    }
}

fn mark_of(newest: Newest, side: &Side) -> Mark {
    match newest.mark() {
        Mark::Side => side.with(newest.address(), |_, record| record.mark).unwrap_or(Mark::Tombstone),
        mark => mark,
    }
}

/// The id's bytes as Kafka would write them back.
fn canonical(id: &[u8]) -> Cow<'_, [u8]> {
    match decode_utf8(id) {
        Cow::Borrowed(_) => Cow::Borrowed(id),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    }
}

/// Entries in the order of the log.
struct Entries<'a> {
    map: &'a PartitionMap,
    wanted: Vec<Wanted>,
    next: usize,
    ready: VecDeque<TransactionEntry>,
    cursor: Cursor,
}

impl Iterator for Entries<'_> {
    type Item = Result<TransactionEntry, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(entry) = self.ready.pop_front() {
            return Some(Ok(entry));
        }
        let left = self.wanted.get(self.next..)?;
        let batch = left.first()?.batch;
        // A batch is decompressed once for all its records.
        let count = left.iter().take_while(|record| record.batch == batch).count();
        let ready = &mut self.ready;
        match self.map.records.read(&mut self.cursor, &left[..count], |entry| ready.push_back(entry)) {
            Ok(()) => {
                self.next += count;
                self.ready.pop_front().map(Ok)
            }
            Err(error) => {
                (self.next, self.ready) = (self.wanted.len(), VecDeque::new());
                Some(Err(error))
            }
        }
    }
}

/// A transactional id with its newest record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionEntry {
    offset: Offset,
    state: TransactionState,
    stored_bytes: u32,
    /// The id as it is in the key, then the value.
    bytes: Box<[u8]>,
    id_len: usize,
}

impl TransactionEntry {
    pub(super) fn new(
        id: &[u8],
        value: &[u8],
        offset: Offset,
        state: TransactionState,
        stored_bytes: u32,
    ) -> Self {
        Self { offset, state, stored_bytes, bytes: [id, value].concat().into(), id_len: id.len() }
    }

    /// The id as text; malformed parts of its key are U+FFFD.
    pub fn id(&self) -> Cow<'_, str> {
        decode_utf8(self.stored_id())
    }

    /// The id's bytes as they are in the key.
    pub fn stored_id(&self) -> &[u8] {
        &self.bytes[..self.id_len]
    }

    /// Offset of the record that the value comes from.
    pub fn offset(&self) -> Offset {
        self.offset
    }

    /// State of the transaction.
    pub fn state(&self) -> TransactionState {
        self.state
    }

    /// Bytes that the record takes in the log, with its share of the batch header.
    pub fn stored_bytes(&self) -> u32 {
        self.stored_bytes
    }

    /// The value as stored.
    pub fn value(&self) -> &[u8] {
        &self.bytes[self.id_len..]
    }

    /// The value, decoded without copying. Cost: one pass over it.
    ///
    /// # Errors
    /// None for a value that was loaded: every value was looked at before its record entered the map.
    pub fn view(&self) -> Result<TransactionView<'_>, ValueFault> {
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
