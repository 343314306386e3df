//! Winners read back from the log, after the load.

use std::cell::RefCell;
use std::sync::Arc;

use super::bytes::{Piece, only_id};
use crate::batch::{Batch, BatchFrame, Decompressor, FramePrefix, HEADER_LEN, Limits, Record};
use crate::error::Error;
use crate::io::{Storage, StorageFile};
use crate::log::{Addresses, LogSnapshot};
use crate::map::Keys;
use crate::replay::TransactionEntry;
use crate::transaction_log::{Key, TransactionState, decode_utf8, status_code};

/// The segments of a log as they were when it was loaded, to be read by position. Holds no descriptor.
#[derive(Clone, Debug)]
pub(super) struct LogRecords {
    pub(super) storage: Arc<dyn Storage>,
    pub(super) snapshot: Arc<LogSnapshot>,
    pub(super) addresses: Addresses,
    pub(super) limits: Limits,
}

/// Where a reader is: one open file, and a piece of it.
#[derive(Debug)]
pub(super) struct Cursor {
    file: Option<(usize, Box<dyn StorageFile>)>,
    piece: Piece,
    /// Bytes to read at once.
    piece_bytes: usize,
    decompressor: Decompressor,
}

impl Cursor {
    /// One that reads so many bytes at once, or a batch where that is larger.
    pub(super) fn new(piece_bytes: usize) -> Self {
        Self { file: None, piece: Piece::default(), piece_bytes, decompressor: Decompressor::new() }
    }
}

/// A record to be read: its address, that of its batch, and which of the batch it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) batch: u64,
    pub(super) ordinal: u32,
    pub(super) state: TransactionState,
}

impl LogRecords {
    /// The batch at an address, checked again: a broker may have been at the log since.
    fn batch<'c>(&self, cursor: &'c mut Cursor, address: u64) -> Result<&'c [u8], Error> {
        let (number, position) = self.addresses.locate(address);
        let segment = &self.snapshot.segments[number];
        let is_open = cursor.file.as_ref().is_some_and(|(open, _)| *open == number);
        let Cursor { file, piece, piece_bytes, .. } = cursor;
        if !is_open {
            *file =
                Some((number, self.storage.open(&segment.path).map_err(Error::io("open", &segment.path))?));
            piece.begin(0);
        }
        let Some((_, file)) = file else { return Err(self.changed(address, "it cannot be opened")) };
        let left = segment.len - position;
        let mut want = (left.min(HEADER_LEN as u64)) as usize;
        loop {
            let skip = position
                .checked_sub(piece.start)
                .filter(|skip| skip + want as u64 <= piece.bytes().len() as u64);
            if skip.is_none() {
                piece.begin(position);
                let most = (left.min((*piece_bytes).max(want) as u64)) as usize;
                piece.fill(&**file, most).map_err(Error::io("read", &segment.path))?;
                if piece.bytes().len() < want {
                    return Err(self.changed(address, "the file is shorter"));
                }
            }
            let from = (position - piece.start) as usize;
            let prefix = FramePrefix::parse(&piece.bytes()[from..], left)
                .map_err(|fault| self.changed(address, &fault.to_string()))?;
            if from + prefix.size as usize <= piece.bytes().len() {
                return Ok(&cursor.piece.bytes()[from..from + prefix.size as usize]);
            }
            want = prefix.size as usize;
        }
    }

    /// Bytes that the batch at an address takes.
    pub(super) fn batch_size(&self, cursor: &mut Cursor, address: u64) -> Result<u64, Error> {
        self.batch(cursor, address).map(|batch| batch.len() as u64)
    }

    /// Calls `each` with the wanted records of one batch, in the order of the batch. `wanted` rises in ordinals.
    pub(super) fn read(
        &self,
        cursor: &mut Cursor,
        wanted: &[Wanted],
        mut each: impl FnMut(TransactionEntry),
    ) -> Result<(), Error> {
        let Some(&Wanted { batch: address, .. }) = wanted.first() else { return Ok(()) };
        let changed = |reason: &dyn std::fmt::Display| self.changed(address, &reason.to_string());
        let mut decompressor = std::mem::take(&mut cursor.decompressor);
        let frame = BatchFrame::new(self.batch(cursor, address)?).map_err(|fault| changed(&fault))?;
        let batch: Batch<'_> = frame.verify().map_err(|fault| changed(&fault))?;
        let share = (HEADER_LEN as u32).div_ceil(frame.records_count().unsigned_abs().max(1));
        let records = batch.records(&mut decompressor, &self.limits).map_err(|fault| changed(&fault))?;
        let mut left = wanted.iter().peekable();
        for (ordinal, record) in records.enumerate() {
            let Some(next) = left.peek() else { break };
            let record = record.map_err(|fault| changed(&fault))?;
            if ordinal as u64 == u64::from(next.ordinal) {
                let entry =
                    entry(&record, share, next.state).ok_or_else(|| changed(&"the record is another one"))?;
                each(entry);
                left.next();
            }
        }
        if left.peek().is_some() {
            return Err(changed(&"the batch has fewer records"));
        }
        cursor.decompressor = decompressor;
        Ok(())
    }

    fn changed(&self, address: u64, reason: &str) -> Error {
        let (number, position) = self.addresses.locate(address);
        Error::Changed {
            path: self.snapshot.segments[number].path.clone(),
            position,
            reason: reason.to_owned(),
        }
    }
}

fn entry(record: &Record<'_>, share: u32, state: TransactionState) -> Option<TransactionEntry> {
    let Ok(Key::TransactionalId(id)) = Key::parse(record.key?) else { return None };
    let value = record.value?;
    if status_code(value) != Some(state.code()) {
        return None;
    }
    let stored_bytes = share.saturating_add(u32::try_from(record.size).unwrap_or(u32::MAX));
    Some(TransactionEntry::new(id, value, record.offset, state, stored_bytes))
}

/// Keys in the files of a log, for a look-up. What goes wrong is kept for whoever looked.
pub(super) struct FileKeys<'a> {
    pub(super) records: &'a LogRecords,
    pub(super) cursor: RefCell<Cursor>,
    pub(super) error: RefCell<Option<Error>>,
}

impl Keys for FileKeys<'_> {
    fn from(&self, _: u64) -> &[u8] {
        &[]
    }

    fn is(&self, address: u64, id: &[u8]) -> bool {
        let mut cursor = self.cursor.borrow_mut();
        match self.records.batch(&mut cursor, address) {
            Ok(batch) => only_id(batch)
                .and_then(|(stored, len)| stored.get(..len))
                .is_some_and(|stored| stored == id || decode_utf8(stored).as_bytes() == id),
            Err(error) => {
                self.error.borrow_mut().get_or_insert(error);
                false
            }
        }
    }
}
