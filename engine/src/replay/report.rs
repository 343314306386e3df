use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::{PartitionMap, TransactionEntry};
use crate::error::{Error, Reason};
use crate::io::Cache;
use crate::log_dir::Notice;
use crate::transaction_log::TransactionState;
use crate::types::{Offset, TopicPartition};

/// Ids by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateCounts([u64; TransactionState::ALL.len()]);

impl StateCounts {
    pub(super) fn add(&mut self, state: TransactionState, count: u64) {
        if let Some(slot) = self.0.get_mut(state.code() as usize) {
            *slot += count;
        }
    }

    /// Ids in this state.
    pub fn count(&self, state: TransactionState) -> u64 {
        self.0.get(state.code() as usize).copied().unwrap_or(0)
    }

    /// Every state and its ids, by status code.
    pub fn iter(&self) -> impl Iterator<Item = (TransactionState, u64)> {
        TransactionState::ALL.into_iter().map(|state| (state, self.count(state)))
    }

    /// Ids in PrepareCommit or PrepareAbort.
    pub fn pending_completion(&self) -> u64 {
        self.iter().filter(|(state, _)| state.is_pending_completion()).map(|(_, count)| count).sum()
    }
}

/// Bytes at the end of a log that an append never finished, and that a broker's recovery would cut.
///
/// Forgiven only if all of this holds, and reported then:
/// - there is no clean-shutdown file;
/// - the place is in the last segment and, where there is a recovery-point file, at or above the recovery point;
/// - no batch with a sane header and a right CRC begins at any byte behind it, and it is itself none but for its
///   magic.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tail {
    /// The last segment.
    pub path: PathBuf,
    /// Byte position at which the log ends.
    pub position: u64,
    /// Bytes behind it.
    pub bytes: u64,
    /// Offset at which the log ends.
    pub offset: Offset,
    /// What is wrong there.
    pub reason: Reason,
}

/// Which part of a record was of an unknown version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownKind {
    /// The key's version.
    Key(i16),
    /// The value's version.
    Value(i16),
}

/// A record that was skipped because a newer Kafka must have written it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownRecord {
    /// Its offset.
    pub offset: Offset,
    /// What is unknown.
    pub kind: UnknownKind,
}

/// A place that a lenient load skipped.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SkippedPlace {
    /// The segment.
    pub path: PathBuf,
    /// Base offset of the batch, or the offset that should have come.
    pub offset: Offset,
    /// Byte position of the batch.
    pub position: u64,
    /// What is wrong there; a sentence, since codecs that this build lacks are among it.
    pub reason: String,
}

/// What a lenient load skipped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Skipped {
    /// Whole batches.
    pub batches: u64,
    /// Single records of batches that were read otherwise.
    pub records: u64,
    /// Bytes in which no batch could be told apart, and those of skipped batches.
    pub bytes: u64,
    /// The first places, at most [`Skipped::PLACES_MAX`].
    pub places: Vec<SkippedPlace>,
}

impl Skipped {
    /// Most places that are kept; the counts go on.
    pub const PLACES_MAX: usize = 100;

    /// Whether anything was skipped, or put up with: an offset that lies is noted as a place, and no more.
    pub fn any(&self) -> bool {
        self.batches + self.records + self.bytes > 0 || !self.places.is_empty()
    }
}

/// Counts of one partition's load.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartitionStats {
    /// Smallest offset that was applied or could have been.
    pub log_start_offset: Offset,
    /// The offset after the last batch, or the base offset of an empty last segment.
    pub log_end_offset: Offset,
    /// Segments of the log, also those below the log start offset.
    pub segments: usize,
    /// Bytes walked.
    pub bytes: u64,
    /// Batches walked, all kinds together.
    pub batches: u64,
    /// Records of data batches at or above the log start offset.
    pub records: u64,
    /// Records without a value.
    pub tombstones: u64,
    /// Records of unknown key or value versions.
    pub unknown_records: u64,
    /// The first of them, at most [`PartitionStats::UNKNOWN_KEPT_MAX`].
    pub unknown: Vec<UnknownRecord>,
    /// Header-only batches as the cleaner leaves them behind.
    pub empty_batches: u64,
    /// Control batches, which do not belong here.
    pub control_batches: u64,
    /// Values with something odd about them: trailing bytes, partitions of an Empty transaction, a repeated tag, an
    /// undefined client transaction version.
    pub odd_values: u64,
    /// Places where offsets are missing between two batches, as compaction leaves them.
    pub gaps: u64,
    /// Offsets missing in them.
    pub gap_offsets: u64,
    /// Ids by state.
    pub by_state: StateCounts,
    /// The tail that was forgiven.
    pub tail: Option<Tail>,
    /// What a lenient load skipped.
    pub skipped: Skipped,
    /// Bytes of memory that the map takes.
    pub map_bytes: u64,
    /// Time from the begin of the load until a thread took up this partition.
    pub wait: Duration,
    /// Time from there until its map was published.
    pub elapsed: Duration,
    /// Where that time went.
    pub phases: Phases,
}

/// Where the time of one partition's load went. With several threads on it, `scan` and `index` are their sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Phases {
    /// Looking at the folder and the index files, and getting the first memory.
    pub open: Duration,
    /// Reading batches: lengths, checksums, keys, values.
    pub scan: Duration,
    /// Finding out which records are the newest of their ids.
    pub index: Duration,
    /// Putting segments together, and the slow way through damage.
    pub finish: Duration,
    /// Counting states, and handing the map out.
    pub publish: Duration,
}

impl PartitionStats {
    /// Most unknown records that are kept with their offsets.
    pub const UNKNOWN_KEPT_MAX: usize = 100;

    /// Adds what was counted in a part of the log behind this one.
    pub(super) fn add(&mut self, part: &Self) {
        self.batches += part.batches;
        self.records += part.records;
        self.tombstones += part.tombstones;
        self.unknown_records += part.unknown_records;
        let room = Self::UNKNOWN_KEPT_MAX - self.unknown.len();
        self.unknown.extend(part.unknown.iter().take(room));
        self.empty_batches += part.empty_batches;
        self.control_batches += part.control_batches;
        self.odd_values += part.odd_values;
        self.gaps += part.gaps;
        self.gap_offsets += part.gap_offsets;
        self.skipped.batches += part.skipped.batches;
        self.skipped.records += part.skipped.records;
        self.skipped.bytes += part.skipped.bytes;
        let room = Skipped::PLACES_MAX.saturating_sub(self.skipped.places.len());
        self.skipped.places.extend(part.skipped.places.iter().take(room).cloned());
    }
}

/// What became of one partition.
#[derive(Debug)]
#[non_exhaustive]
pub struct PartitionOutcome {
    /// Which partition.
    pub topic_partition: TopicPartition,
    /// Its folder.
    pub directory: PathBuf,
    /// Names in the folder that were passed over.
    pub notices: Vec<Notice>,
    /// The map, complete; or why there is none.
    pub result: Result<(PartitionMap, PartitionStats), Error>,
    pub(super) decoded: OnceLock<Decoded>,
}

/// What is found out about a partition after its map was published.
#[derive(Debug)]
pub(super) struct Decoded {
    pub(super) live_bytes: Result<u64, Error>,
    pub(super) elapsed: Duration,
}

impl PartitionOutcome {
    /// The map, if the partition was loaded.
    pub fn map(&self) -> Option<&PartitionMap> {
        self.result.as_ref().ok().map(|(map, _)| map)
    }

    /// The counts, if the partition was loaded.
    pub fn stats(&self) -> Option<&PartitionStats> {
        self.result.as_ref().ok().map(|(_, stats)| stats)
    }

    /// Bytes of the newest records: what a perfect compaction would keep. Known when the load has ended, not yet when the
    /// map is published; `None` too for a refused partition, for a load that was told to leave it, and where the log
    /// could not be read again.
    pub fn live_bytes(&self) -> Option<u64> {
        self.decoded.get().and_then(|decoded| decoded.live_bytes.as_ref().ok().copied())
    }

    /// Time that finding out [`live_bytes`](Self::live_bytes) took, after publication.
    pub fn decode_time(&self) -> Option<Duration> {
        self.decoded.get().map(|decoded| decoded.elapsed)
    }

    /// Why [`live_bytes`](Self::live_bytes) could not be found out, if that is so.
    pub fn decode_error(&self) -> Option<&Error> {
        self.decoded.get().and_then(|decoded| decoded.live_bytes.as_ref().err())
    }

    /// Why the partition was refused, if it was.
    pub fn error(&self) -> Option<&Error> {
        self.result.as_ref().err()
    }
}

/// How the bytes were reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoUsed {
    /// Mapped files.
    Mmap,
    /// Positioned reads.
    Pread,
    /// Reads past the page cache by io_uring.
    Uring,
}

impl IoUsed {
    /// `mmap`, `pread` or `uring`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mmap => "mmap",
            Self::Pread => "pread",
            Self::Uring => "uring",
        }
    }
}

/// The result of a load: an outcome for every partition that was asked for.
#[derive(Debug)]
#[non_exhaustive]
pub struct Loaded {
    /// The topic.
    pub topic: String,
    /// Outcomes by partition number.
    pub partitions: Vec<Arc<PartitionOutcome>>,
    /// What was passed over in the directories themselves.
    pub notices: Vec<Notice>,
    /// Threads that worked.
    pub threads: usize,
    /// How bytes were reached.
    pub io: IoUsed,
    /// How much of the log was in the page cache before it was read, by samples; [`Cache::Mixed`] also where the storage
    /// cannot tell.
    pub cache: Cache,
    /// What an id was compared by.
    pub identity: Identity,
    /// The way in which checksums were computed: a set of instructions, or the portable one.
    pub crc: &'static str,
    /// Most bytes of memory that the maps took at once, with tables that were growing.
    pub peak_map_bytes: u64,
    /// A running broker holds one of the directories: the files changed while they were read, and the result is a
    /// picture of no single moment.
    pub is_moving: bool,
    /// Damaged places were skipped instead of refusing their partitions.
    pub lenient: bool,
    /// Time from opening the first folder until the last map was published: from then on any id can be answered.
    pub elapsed: Duration,
    /// Time from there to the end of the load, in which live bytes were counted.
    pub decoding: Duration,
}

/// What makes two ids the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Identity {
    /// Their text.
    #[default]
    Exact,
    /// 78 bits of a hash with keys that are fresh for each load, and their place in the table: two ids of a partition
    /// are taken for one with a probability of at most 2⁻⁸² for each pair. It spares the look at the older record.
    Hash,
}

impl Identity {
    /// `exact` or `hash`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Hash => "hash",
        }
    }
}

impl Loaded {
    /// The entry of an id, wherever it lies. Cost: a look-up in each partition, since a copy may hold only some of
    /// the topic's partitions and the number of them is not written anywhere. An id that lies in several partitions,
    /// which no broker writes, gives the entry of the lowest.
    ///
    /// # Errors
    /// [`Error::Incomplete`] if the id was not found and a partition was refused; as [`PartitionMap::get`].
    pub fn get(&self, id: impl AsRef<[u8]>) -> Result<Option<TransactionEntry>, Error> {
        let id = id.as_ref();
        for map in self.maps() {
            if let Some(entry) = map.get(id)? {
                return Ok(Some(entry));
            }
        }
        let partitions: Vec<_> = self.refused().map(|outcome| outcome.topic_partition.clone()).collect();
        if partitions.is_empty() { Ok(None) } else { Err(Error::Incomplete { partitions }) }
    }

    /// Entries in PrepareCommit and PrepareAbort of all loaded partitions, in no order across partitions.
    ///
    /// Ends a partition after an error, as [`PartitionMap::iter`] does.
    pub fn pending_completion(&self) -> impl Iterator<Item = Result<TransactionEntry, Error>> + '_ {
        self.maps().flat_map(PartitionMap::pending_completion)
    }

    /// Partitions that were refused.
    pub fn refused(&self) -> impl Iterator<Item = &Arc<PartitionOutcome>> {
        self.partitions.iter().filter(|outcome| outcome.result.is_err())
    }

    /// Whether every partition was loaded, and nothing was skipped in it.
    pub fn is_complete(&self) -> bool {
        self.partitions.iter().all(|outcome| outcome.stats().is_some_and(|stats| !stats.skipped.any()))
    }

    /// The maps of the loaded partitions.
    pub fn maps(&self) -> impl Iterator<Item = &PartitionMap> {
        self.partitions.iter().filter_map(|outcome| outcome.map())
    }
}
