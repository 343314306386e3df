//! A segment as it is read: shared by any number of threads, while one may append to it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

use super::files::{IndexFiles, Location, load_offset_index, load_time_index, load_transactions};
use super::index::{
    AbortedTransaction, LiveOffsetIndex, LiveTimeIndex, OffsetIndexEntry, TimeIndexEntry, TransactionIndex,
};
use super::published::{Published, Slot};
use super::reader::FrameAt;
use super::walk::Walk;
use super::{SegmentConfig, SegmentFileKind, SegmentFileState};
use crate::batch::FrameFault;
use crate::error::{BrokerView, Corruption, Error, Reason};
use crate::io::{Region, Storage, WritableFile, read_small, remove_if_there};
use crate::types::{Offset, ProducerId};

/// One segment of a partition, readable by any number of threads that share it (Kafka's LogSegment, as its readers see
/// it). A [`SegmentWriter`](super::SegmentWriter) appends to the last one of a log meanwhile; neither waits for the other.
///
/// Holds one descriptor and, once it was read, one mapping. The indexes of a segment that is not written to are loaded
/// when they are first needed.
#[derive(Debug)]
pub struct Segment {
    pub(super) storage: Arc<dyn Storage>,
    base_offset: Offset,
    /// Changes when the files are renamed.
    location: RwLock<Location>,
    pub(super) log: Arc<dyn WritableFile>,
    /// Whether the file was made here, so that nobody can have bytes of it but by this segment. Of one that was there,
    /// readers of a former log of this folder may still hold some.
    pub(super) is_own_log: bool,
    /// Bytes of whole batches.
    size: AtomicU64,
    /// The largest timestamp so far, and the last offset of the batch that has it.
    max_timestamp: AtomicI64,
    max_timestamp_offset: AtomicI64,
    offset_index: OnceLock<LiveOffsetIndex>,
    time_index: OnceLock<LiveTimeIndex>,
    /// The offset index as it should be, made when an entry of the other was found to be wrong.
    rebuilt_index: OnceLock<LiveOffsetIndex>,
    transactions: OnceLock<Published<TransactionSlot>>,
    /// Not locked by readers.
    files: Mutex<IndexFiles>,
}

/// Not known yet: to be taken from the time index.
const UNKNOWN: i64 = i64::MIN;

/// The batch that a search in a segment found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchPosition {
    /// Byte position of its first byte.
    pub position: u64,
    /// Bytes of the whole batch.
    pub size: u64,
    /// Offset of its first record.
    pub base_offset: Offset,
    /// Offset of its last record.
    pub last_offset: Offset,
}

/// What a read gives.
#[derive(Clone, Debug)]
pub struct SegmentRead {
    /// Bytes from the start of a batch on; may end within one, and may be none.
    pub bytes: Region,
    /// Base offset of the first batch.
    pub offset: Offset,
    /// Byte position of the first batch.
    pub position: u64,
    /// Whether the bytes do not hold the whole first batch because it is larger than was asked for.
    pub is_first_batch_incomplete: bool,
}

/// A timestamp and an offset that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimestampOffset {
    /// Milliseconds since the epoch.
    pub timestamp: i64,
    /// The offset.
    pub offset: Offset,
}

/// Why a segment has to be recovered before it is used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NeedsRecovery {
    /// Its offset index is not there.
    #[error("the offset index is missing")]
    NoOffsetIndex,
    /// Its transaction index has an entry of another segment.
    #[error("the transaction index is not of this segment: {0}")]
    TransactionIndex(super::index::IndexFault),
}

impl Segment {
    /// Makes a new, empty segment. Files that have its names are removed. Index files appear when they are first
    /// written to.
    ///
    /// # Errors
    /// [`Error::Io`]
    pub(super) fn create(
        storage: Arc<dyn Storage>,
        directory: &Path,
        base_offset: Offset,
        config: &SegmentConfig,
    ) -> Result<Self, Error> {
        let location =
            Location { directory: directory.to_path_buf(), base_offset, state: SegmentFileState::Live };
        for kind in FILES {
            let path = location.path(kind);
            remove_if_there(&*storage, &path).map_err(Error::io("remove", &path))?;
        }
        let path = location.path(SegmentFileKind::Log);
        let log = storage.create_file(&path).map_err(Error::io("create", &path))?;
        if config.preallocate {
            log.set_len(config.segment_bytes_max.into()).map_err(Error::io("lengthen", &path))?;
        }
        log.reserve(config.segment_bytes_max.into());
        let segment = Self::new(storage, location, log, 0, true);
        let bytes = config.index_bytes_max as usize;
        segment.set_indexes(LiveOffsetIndex::new(base_offset, bytes), LiveTimeIndex::new(base_offset, bytes));
        let _ = segment.transactions.set(Published::default());
        segment.set_max_timestamp(TimestampOffset { timestamp: -1, offset: base_offset });
        Ok(segment)
    }

    /// Opens a segment that is there. Its indexes are looked at when they are needed.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Corrupt`] for more bytes than a segment can have.
    pub fn open(
        storage: Arc<dyn Storage>,
        directory: &Path,
        base_offset: Offset,
        state: SegmentFileState,
    ) -> Result<Self, Error> {
        let location = Location { directory: directory.to_path_buf(), base_offset, state };
        let path = location.path(SegmentFileKind::Log);
        let log = storage.open_writable(&path).map_err(Error::io("open", &path))?;
        let size = log.written();
        let segment = Self::new(storage, location, log, size, false);
        if size > i32::MAX as u64 {
            return Err(segment.corrupt(0, base_offset, Reason::SegmentTooLarge(size)));
        }
        Ok(segment)
    }

    pub(super) fn new(
        storage: Arc<dyn Storage>,
        location: Location,
        log: Arc<dyn WritableFile>,
        size: u64,
        is_own_log: bool,
    ) -> Self {
        Self {
            storage,
            base_offset: location.base_offset,
            location: RwLock::new(location),
            log,
            is_own_log,
            size: AtomicU64::new(size),
            max_timestamp: AtomicI64::new(UNKNOWN),
            max_timestamp_offset: AtomicI64::new(0),
            offset_index: OnceLock::new(),
            time_index: OnceLock::new(),
            rebuilt_index: OnceLock::new(),
            transactions: OnceLock::new(),
            files: Mutex::new(IndexFiles::new()),
        }
    }

    /// Smallest offset that it may hold.
    pub fn base_offset(&self) -> Offset {
        self.base_offset
    }

    /// Bytes of its batches now.
    pub fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    /// One of its files, whether it is there or not.
    pub fn path(&self, kind: SegmentFileKind) -> PathBuf {
        self.location().path(kind)
    }

    /// When its bytes were changed last, ms since the epoch.
    ///
    /// # Errors
    /// [`Error::Io`]
    pub fn modified_ms(&self) -> Result<i64, Error> {
        self.log.modified_ms().map_err(|e| self.io("look at the times of", e))
    }

    pub(super) fn location(&self) -> Location {
        self.location.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn files(&self) -> MutexGuard<'_, IndexFiles> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All its bytes, shared.
    ///
    /// # Errors
    /// [`Error::Io`]
    pub fn bytes(&self) -> Result<Region, Error> {
        self.log.region(0..self.size()).map_err(|e| self.io("map", e))
    }

    pub(super) fn io(&self, operation: &'static str, source: std::io::Error) -> Error {
        Error::Io { operation, path: self.path(SegmentFileKind::Log), source }
    }

    pub(super) fn corrupt(&self, position: u64, offset: Offset, reason: Reason) -> Error {
        let broker = match reason {
            Reason::SegmentTooLarge(_) => BrokerView::RefusesToLoad,
            _ => BrokerView::Unknown,
        };
        let path = self.path(SegmentFileKind::Log);
        Error::Corrupt(Box::new(Corruption {
            path,
            offset,
            position,
            reason,
            transactional_id: None,
            broker,
        }))
    }

    pub(super) fn frame_fault(&self, position: u64, fault: FrameFault) -> Error {
        self.corrupt(position, self.base_offset, Reason::Frame(fault))
    }

    // ---- indexes ----

    pub(super) fn set_indexes(&self, offset_index: LiveOffsetIndex, time_index: LiveTimeIndex) {
        let _ = self.offset_index.set(offset_index);
        let _ = self.time_index.set(time_index);
    }

    pub(super) fn set_transactions(&self, entries: impl IntoIterator<Item = AbortedTransaction>) {
        let published = Published::default();
        entries.into_iter().for_each(|entry| published.push(entry));
        let _ = self.transactions.set(published);
    }

    /// Its offset index.
    ///
    /// # Errors
    /// [`Error::Io`] where it is read from its file for the first time and cannot be.
    pub fn offset_index(&self) -> Result<&LiveOffsetIndex, Error> {
        if let Some(index) = self.offset_index.get() {
            return Ok(index);
        }
        let index = load_offset_index(&*self.storage, &self.location(), self.size())?;
        self.files().loaded(index.len(), 0);
        Ok(self.offset_index.get_or_init(|| index))
    }

    /// Its time index.
    ///
    /// # Errors
    /// [`Error::Io`] where it is read from its file for the first time and cannot be.
    pub fn time_index(&self) -> Result<&LiveTimeIndex, Error> {
        if let Some(index) = self.time_index.get() {
            return Ok(index);
        }
        let index = load_time_index(&*self.storage, &self.location())?;
        self.files().loaded(0, index.len());
        Ok(self.time_index.get_or_init(|| index))
    }

    fn transactions(&self) -> Result<&Published<TransactionSlot>, Error> {
        if let Some(transactions) = self.transactions.get() {
            return Ok(transactions);
        }
        self.set_transactions(load_transactions(&*self.storage, &self.location())?);
        Ok(self.transactions.get_or_init(Published::default))
    }

    /// The aborted transactions whose marker lies in it, by rising offset of the marker.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Index`] for an entry of an unknown version.
    pub fn aborted_transactions(&self) -> Result<impl Iterator<Item = AbortedTransaction>, Error> {
        Ok(self.transactions()?.iter())
    }

    pub(super) fn last_aborted(&self) -> Result<Option<AbortedTransaction>, Error> {
        Ok(self.transactions()?.last())
    }

    /// How many aborted transactions there are.
    pub(super) fn transactions_count(&self) -> Result<usize, Error> {
        Ok(self.transactions()?.len())
    }

    pub(super) fn push_transaction(&self, entry: AbortedTransaction) -> Result<(), Error> {
        self.transactions()?.push(entry);
        Ok(())
    }

    /// Looks whether the segment can be used as it is, as a broker does with every segment when it starts.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Index`] for a transaction index of an unknown version, with which no broker starts.
    pub fn check(&self) -> Result<Option<NeedsRecovery>, Error> {
        let open = |kind| {
            let path = self.path(kind);
            match self.storage.open(&path) {
                Ok(file) => Ok(Some(file)),
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
                Err(e) => Err(Error::io("open", path)(e)),
            }
        };
        if open(SegmentFileKind::OffsetIndex)?.is_none() {
            return Ok(Some(NeedsRecovery::NoOffsetIndex));
        }
        if open(SegmentFileKind::TransactionIndex)?.is_none() {
            return Ok(None);
        }
        let path = self.path(SegmentFileKind::TransactionIndex);
        let bytes = read_small(&*self.storage, &path, i32::MAX as usize).map_err(Error::io("read", &path))?;
        match TransactionIndex::new(self.base_offset, &bytes).check() {
            Ok(()) => Ok(None),
            Err(fault @ super::index::IndexFault::BelowBase { .. }) => {
                Ok(Some(NeedsRecovery::TransactionIndex(fault)))
            }
            Err(fault) => Err(Error::Index { path, reason: fault.to_string() }),
        }
    }

    // ---- searches ----

    /// The batch that holds an offset, or the first one above it; `None` if all batches lie below. Cost: a search in
    /// the index, then a look at each batch up to the next index entry.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Corrupt`] where no batch can be read on the way.
    pub fn find(&self, target: Offset) -> Result<Option<BatchPosition>, Error> {
        let start = self.offset_index()?.lookup(target);
        let bytes = self.bytes()?;
        Ok(self.find_in(&bytes, start, target)?.map(|found| found.at))
    }

    /// As [`find`](Self::find), from the index entry `start`.
    fn find_in(&self, bytes: &[u8], start: OffsetIndexEntry, target: Offset) -> Result<Option<Found>, Error> {
        let mut walk = Walk::new(bytes, self.checked_start(bytes, start, target)?);
        loop {
            let position = walk.position();
            match walk.next_whole() {
                Ok(Some(found)) if found.frame.last_offset() >= target => return Ok(Some(Found::of(&found))),
                Ok(Some(_)) => {}
                Ok(None) => return Ok(None),
                Err(fault) => return Err(self.frame_fault(position, fault)),
            }
        }
    }

    /// Where to begin a walk to `target`: what the index says if there really is a batch that does not lie above it,
    /// else what it should say. Kafka trusts the file, and does not find records that it hides.
    fn checked_start(&self, bytes: &[u8], start: OffsetIndexEntry, target: Offset) -> Result<u64, Error> {
        let Ok(position) = u64::try_from(start.position) else { return Ok(0) };
        if position == 0 {
            return Ok(0);
        }
        if let Ok(Some(first)) = Walk::new(bytes, position).next()
            && first.frame.base_offset() <= target.min(start.offset)
            && first.frame.base_offset() >= self.base_offset
        {
            return Ok(position);
        }
        let rebuilt = self.rebuilt_index.get_or_init(|| self.rebuild_offset_index(bytes));
        Ok(u64::try_from(rebuilt.lookup(target).position).unwrap_or(0))
    }

    /// Whether an entry of the offset index was found to be wrong, so that another one is used in its place.
    pub fn is_index_wrong(&self) -> bool {
        self.rebuilt_index.get().is_some()
    }

    /// An index with an entry every 4 KiB, as far as the batches can be read.
    fn rebuild_offset_index(&self, bytes: &[u8]) -> LiveOffsetIndex {
        let index = LiveOffsetIndex::new(self.base_offset, 0);
        let (mut walk, mut from) = (Walk::new(bytes, 0), 0);
        while let Ok(Some(FrameAt { position, frame, .. })) = walk.next() {
            if let Ok(at) = i32::try_from(position)
                && position - from > 4096
                && frame.last_offset() > index.last_offset()
            {
                index.push(OffsetIndexEntry { offset: frame.last_offset(), position: at });
                from = position;
            }
        }
        index
    }

    /// Reads from the batch that holds `start`, or the first one above it. At most `bytes_max` bytes, or the whole first
    /// batch where that is larger and `at_least_one` is set, and none at or behind `position_max`; with `None` for a
    /// limit whose position is not known nothing is read. The result is `None` if all batches lie below `start`.
    /// Costs no copy, and a system call only where the file was never read.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Corrupt`] where no batch can be read on the way.
    pub fn read(
        &self,
        start: Offset,
        bytes_max: u32,
        position_max: Option<u64>,
        at_least_one: bool,
    ) -> Result<Option<SegmentRead>, Error> {
        let entry = self.offset_index()?.lookup(start);
        let bytes = self.bytes()?;
        let Some(Found { at, .. }) = self.find_in(&bytes, entry, start)? else { return Ok(None) };
        let mut most = u64::from(bytes_max);
        if at_least_one {
            most = most.max(at.size);
        }
        let nothing = SegmentRead {
            bytes: Region::from(Vec::new()),
            offset: at.base_offset,
            position: at.position,
            is_first_batch_incomplete: false,
        };
        let Some(limit) = position_max.filter(|_| most > 0) else { return Ok(Some(nothing)) };
        let end = limit.min(bytes.len() as u64).min(at.position + most);
        let range = at.position as usize..end.max(at.position) as usize;
        Ok(Some(SegmentRead {
            bytes: bytes.slice(range),
            is_first_batch_incomplete: most < at.size,
            ..nothing
        }))
    }

    /// The offset behind the last batch, or the base offset. Cost: a walk from the last index entry on.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Corrupt`] where no batch can be read on the way, except one that the end of the file
    /// cuts off.
    pub fn next_offset(&self) -> Result<Offset, Error> {
        let index = self.offset_index()?;
        let last = index.lookup(index.last_offset());
        let bytes = self.bytes()?;
        let mut walk = Walk::new(&bytes, self.checked_start(&bytes, last, last.offset)?);
        let mut next = self.base_offset;
        loop {
            let position = walk.position();
            match walk.next_whole() {
                Ok(Some(found)) => next = found.frame.last_offset().next(),
                Ok(None) => return Ok(next),
                Err(fault) => return Err(self.frame_fault(position, fault)),
            }
        }
    }

    // ---- timestamps ----

    pub(super) fn set_max_timestamp(&self, max: TimestampOffset) {
        // A reader takes the offset first: what it then finds beside it is of the same batch or a later one.
        self.max_timestamp.store(max.timestamp, Ordering::Release);
        self.max_timestamp_offset.store(max.offset.0, Ordering::Release);
    }

    /// The largest timestamp so far, −1 if there is none, and the last offset of the first batch that has it. From the
    /// time index for a segment that was not written to since it was opened.
    ///
    /// # Errors
    /// [`Error::Io`]
    pub fn max_timestamp_so_far(&self) -> Result<TimestampOffset, Error> {
        let offset = Offset(self.max_timestamp_offset.load(Ordering::Acquire));
        match self.max_timestamp.load(Ordering::Acquire) {
            UNKNOWN => {
                let TimeIndexEntry { timestamp, offset } = self.time_index()?.last_entry();
                Ok(TimestampOffset { timestamp, offset })
            }
            timestamp => Ok(TimestampOffset { timestamp, offset }),
        }
    }

    /// What retention, compaction and searches by time take for the largest timestamp: that of the records, or the
    /// time of the file where they have none.
    ///
    /// # Errors
    /// [`Error::Io`]
    pub fn largest_timestamp(&self) -> Result<i64, Error> {
        let timestamp = self.max_timestamp_so_far()?.timestamp;
        if timestamp >= 0 { Ok(timestamp) } else { self.modified_ms() }
    }

    /// Largest timestamp of the first batch, which decides when the segment has lasted long enough; `None` while it is
    /// empty.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Corrupt`]
    pub fn first_batch_timestamp(&self) -> Result<Option<i64>, Error> {
        let bytes = self.bytes()?;
        let first = Walk::new(&bytes, 0).next_whole().map_err(|fault| self.frame_fault(0, fault))?;
        Ok(first.map(|first| first.frame.max_timestamp()))
    }

    /// The position from which a search by time begins: no record before it has a timestamp of `timestamp` or above
    /// and an offset of `start` or above.
    pub(super) fn time_search_start(&self, timestamp: i64, start: Offset) -> Result<u64, Error> {
        let hint = self.time_index()?.lookup(timestamp);
        let mut target = hint.offset;
        if hint.timestamp >= 0 {
            // An entry is right if the batch it points at has that timestamp. If not, the search begins at the front.
            let entry = self.offset_index()?.lookup(hint.offset);
            let is_right = self.find_in(&self.bytes()?, entry, hint.offset)?.is_some_and(|found| {
                found.at.base_offset <= hint.offset && found.max_timestamp == hint.timestamp
            });
            if !is_right {
                target = self.base_offset;
            }
        }
        let target = target.max(start);
        let entry = self.offset_index()?.lookup(target);
        self.checked_start(&self.bytes()?, entry, target)
    }

    // ---- changes that readers do not see ----

    pub(super) fn set_size(&self, size: u64) {
        self.size.store(size, Ordering::Release);
    }

    /// Writes the index entries that are only in memory yet.
    pub(super) fn write_indexes(&self) -> Result<(), Error> {
        let (offset_index, time_index) = (self.offset_index()?, self.time_index()?);
        let mut files = self.files();
        if files.is_detached {
            return Ok(());
        }
        files.write(&*self.storage, &self.location(), offset_index, time_index)
    }

    /// Brings the segment to the device: its batches, then its indexes. Any thread may do that while another appends;
    /// what is appended meanwhile may not be included.
    ///
    /// # Errors
    /// [`Error::Io`]. What was written since the last success must then be taken for lost.
    pub fn flush(&self) -> Result<(), Error> {
        self.log.sync_data().map_err(|e| self.io("bring to the device", e))?;
        if self.offset_index.get().is_some() && self.time_index.get().is_some() {
            self.write_indexes()?;
        }
        let mut files = self.files();
        if files.is_detached {
            return Ok(());
        }
        let open = files.open_files(&*self.storage, &self.location())?;
        drop(files);
        for (path, file) in open {
            file.sync_data().map_err(Error::io("bring to the device", path))?;
        }
        Ok(())
    }

    /// Renames its files, those that are there, `.log` first: into `.deleted` before they are removed, for instance.
    /// Readers go on undisturbed. Does nothing to a segment that was cut and has handed its files over.
    ///
    /// # Errors
    /// [`Error::Io`]; some of the files may have their new names then.
    pub fn rename(&self, state: SegmentFileState) -> Result<(), Error> {
        // Held: entries that are written meanwhile would make files of the old names again.
        let files = self.files();
        if files.is_detached {
            return Ok(());
        }
        let mut location = self.location.write().unwrap_or_else(PoisonError::into_inner);
        let renamed = Location { state, ..location.clone() };
        for kind in FILES {
            let (from, to) = (location.path(kind), renamed.path(kind));
            match self.storage.rename(&from, &to) {
                Err(e) if e.kind() == std::io::ErrorKind::NotFound && kind != SegmentFileKind::Log => {}
                other => other.map_err(Error::io("rename", from))?,
            }
        }
        *location = renamed;
        Ok(())
    }

    /// Says that the folder has another name now.
    pub fn set_directory(&self, directory: &Path) {
        let mut location = self.location.write().unwrap_or_else(PoisonError::into_inner);
        location.directory = directory.to_path_buf();
    }

    /// Removes its files. Regions that were read stay valid. Files that are not there are not missed. Does nothing to a
    /// segment that was cut and has handed its files over.
    ///
    /// # Errors
    /// [`Error::Io`]
    pub fn delete(&self) -> Result<(), Error> {
        let location = self.location();
        let mut files = self.files();
        if files.is_detached {
            return Ok(());
        }
        files.close();
        for kind in FILES {
            let path = location.path(kind);
            remove_if_there(&*self.storage, &path).map_err(Error::io("remove", &path))?;
        }
        Ok(())
    }
}

/// The files of a segment, the one first without which the others mean nothing.
pub(super) const FILES: [SegmentFileKind; 4] = [
    SegmentFileKind::Log,
    SegmentFileKind::OffsetIndex,
    SegmentFileKind::TimeIndex,
    SegmentFileKind::TransactionIndex,
];

struct Found {
    at: BatchPosition,
    max_timestamp: i64,
}

impl Found {
    fn of(found: &FrameAt<'_>) -> Self {
        let FrameAt { position, size, frame } = found;
        let (base_offset, last_offset) = (frame.base_offset(), frame.last_offset());
        let at = BatchPosition { position: *position, size: *size, base_offset, last_offset };
        Self { at, max_timestamp: frame.max_timestamp() }
    }
}

#[derive(Debug, Default)]
struct TransactionSlot([AtomicI64; 4]);

impl Slot for TransactionSlot {
    type Value = AbortedTransaction;

    fn store(&self, entry: AbortedTransaction) {
        let fields =
            [entry.producer_id.0, entry.first_offset.0, entry.last_offset.0, entry.last_stable_offset.0];
        for (slot, field) in self.0.iter().zip(fields) {
            slot.store(field, Ordering::Relaxed);
        }
    }

    fn load(&self) -> AbortedTransaction {
        let [producer_id, first_offset, last_offset, last_stable_offset] =
            [0, 1, 2, 3].map(|field: usize| self.0[field].load(Ordering::Relaxed));
        AbortedTransaction {
            producer_id: ProducerId(producer_id),
            first_offset: Offset(first_offset),
            last_offset: Offset(last_offset),
            last_stable_offset: Offset(last_stable_offset),
        }
    }
}
