//! The largest and the busiest ids of every partition, read from the log after the load.

use std::fmt::Display;
use std::path::Path;

use redrive::Error;
use redrive::batch::{Decompressor, Limits};
use redrive::io::FileSystem;
use redrive::log::LogSnapshot;
use redrive::replay::{Cancel, PartitionMap, PartitionOutcome, PartitionStats, TransactionEntry};
use redrive::segment::{Access, Frame, Next, SegmentReader};
use redrive::transaction_log::{Key, decode_utf8};
use serde::Serialize;

use super::counters::Counters;
use crate::failure::Failure;
use crate::load::Load;
use crate::row::Id;

/// Ids of each list.
pub(super) const IDS_MAX: usize = 10;
/// Bytes read at once.
const BUFFER_BYTES: usize = 1 << 20;

/// An id whose newest record is large.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LargestId {
    /// Partition of the transaction log.
    pub(super) partition: i32,
    /// Offset of the record.
    offset: i64,
    #[serde(flatten)]
    pub(super) id: Id<'static>,
    pub(super) transaction_status: &'static str,
    /// Bytes in the log, with the record's share of its batch.
    pub(super) bytes: u32,
}

/// An id with many records.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BusiestId {
    /// Partition of the transaction log.
    pub(super) partition: i32,
    /// As Kafka reads it.
    pub(super) transactional_id: String,
    /// Records in the log, tombstones among them; may be too small by `records_error`.
    pub(super) records: u64,
    /// 0 where records are counted exactly.
    pub(super) records_error: u64,
}

/// What was found in one partition.
#[derive(Clone, Debug, Default)]
pub(super) struct PartitionIds {
    /// Largest first.
    pub(super) largest: Vec<LargestId>,
    /// Busiest first; none if the log could not be walked to its end.
    pub(super) busiest: Vec<BusiestId>,
    /// Why something is missing, as a sentence.
    pub(super) error: Option<String>,
}

/// The segments of every partition of a load, in its order; `None` where the partition was refused or has gone.
///
/// # Errors
/// A directory that can no longer be opened.
pub(super) fn snapshots(load: &Load) -> Result<Vec<Option<LogSnapshot>>, Failure> {
    let directories = load.replay.directories()?;
    let snapshot = |outcome: &PartitionOutcome| {
        outcome.stats()?;
        let (directory, partition) = directories
            .iter()
            .flat_map(|directory| directory.partitions().iter().map(move |partition| (directory, partition)))
            .find(|(_, partition)| partition.path == outcome.directory)?;
        directory.snapshot(partition).ok().map(|(snapshot, _)| snapshot)
    };
    Ok(load.loaded.partitions.iter().map(|outcome| snapshot(outcome)).collect())
}

/// Looks through every loaded partition, in the order of the load. What cannot be read is said in
/// [`PartitionIds::error`].
///
/// Cost: reads every log once, and the newest records once more.
///
/// # Errors
/// [`Failure::Interrupted`].
pub(super) fn find(load: &Load, snapshots: &[Option<LogSnapshot>]) -> Result<Vec<PartitionIds>, Failure> {
    let mut found = Vec::with_capacity(snapshots.len());
    for (outcome, snapshot) in load.loaded.partitions.iter().zip(snapshots) {
        let mut ids = PartitionIds::default();
        if let Ok((map, stats)) = &outcome.result {
            let name = &outcome.topic_partition;
            let partition = name.partition;
            let largest = largest(map, partition, &load.cancel);
            let busiest = match snapshot {
                Some(snapshot) => busiest(snapshot, stats, &load.cancel),
                None => Err("its segments can no longer be listed".to_owned()),
            };
            load.check_interrupt()?;
            match largest {
                Ok(largest) => ids.largest = largest,
                Err(error) => ids.error = Some(format!("{name}: {error}")),
            }
            match busiest {
                Ok(counters) => ids.busiest = named(counters, partition),
                Err(reason) => ids.error = Some(format!("{name}: {reason}")),
            }
        }
        found.push(ids);
    }
    Ok(found)
}

fn named(counters: Counters, partition: i32) -> Vec<BusiestId> {
    let records_error = counters.error();
    let id = |(id, records): (Box<str>, u64)| BusiestId {
        partition,
        transactional_id: id.into(),
        records,
        records_error,
    };
    counters.top(IDS_MAX).into_iter().map(id).collect()
}

/// The ids with the largest newest records, largest first, equal ones by offset.
fn largest(map: &PartitionMap, partition: i32, cancel: &Cancel) -> Result<Vec<LargestId>, Error> {
    let mut largest: Vec<TransactionEntry> = Vec::with_capacity(IDS_MAX + 1);
    for entry in map.iter() {
        if cancel.is_cancelled() {
            return Err(Error::Cancelled);
        }
        let entry = entry?;
        let at = largest.partition_point(|other| other.stored_bytes() >= entry.stored_bytes());
        if at < IDS_MAX {
            largest.insert(at, entry);
            largest.truncate(IDS_MAX);
        }
    }
    let id = |entry: &TransactionEntry| {
        let Id { transactional_id, transactional_id_base64 } = Id::new(entry.stored_id());
        LargestId {
            partition,
            offset: entry.offset().0,
            id: Id { transactional_id: transactional_id.into_owned().into(), transactional_id_base64 },
            transaction_status: entry.state().name(),
            bytes: entry.stored_bytes(),
        }
    };
    Ok(largest.iter().map(id).collect())
}

/// Counts the records of every id of one log, up to a forgiven tail.
///
/// # Errors
/// A sentence; also for damage that a lenient load skipped, since records behind it would be missing.
fn busiest(snapshot: &LogSnapshot, stats: &PartitionStats, cancel: &Cancel) -> Result<Counters, String> {
    let log_start = snapshot.log_start_offset();
    let end = stats.tail.as_ref().map(|tail| (&*tail.path, tail.position));
    let segments = &snapshot.segments;
    let mut counters = Counters::new();
    let mut decompressor = Decompressor::new();
    for (i, segment) in segments.iter().enumerate() {
        // What lies below the log start offset is deleted, and only waits for its removal.
        if segments.get(i + 1).is_some_and(|next| next.base_offset <= log_start) {
            continue;
        }
        let access = Access::Positioned { buffer_bytes: BUFFER_BYTES };
        let reader =
            SegmentReader::open(&FileSystem, &segment.path, segment.base_offset, segment.len, access);
        let mut reader = reader.map_err(|error| error.to_string())?;
        loop {
            let position = reader.position();
            if end == Some((&segment.path, position)) {
                return Ok(counters);
            }
            if cancel.is_cancelled() {
                return Err(Error::Cancelled.to_string());
            }
            let bad = |reason: &dyn Display| at(&segment.path, position, reason);
            let frame = match reader.next().map_err(|error| error.to_string())? {
                Next::End => break,
                Next::Bad(fault) => return Err(bad(&fault)),
                Next::Frame(found) => match found.frame {
                    Frame::Batch(frame) => frame,
                    Frame::Legacy(_) => return Err(bad(&"legacy message format")),
                },
            };
            let batch = frame.verify().map_err(|fault| bad(&fault))?;
            if frame.is_control() || frame.last_offset() < log_start {
                continue;
            }
            let records =
                batch.records(&mut decompressor, &Limits::default()).map_err(|fault| bad(&fault))?;
            for record in records {
                let record = record.map_err(|fault| bad(&fault))?;
                let key = record.key.ok_or_else(|| bad(&"record without a key"))?;
                if let Key::TransactionalId(id) = Key::parse(key).map_err(|fault| bad(&fault))? {
                    counters.add(&decode_utf8(id));
                }
            }
        }
    }
    Ok(counters)
}

fn at(path: &Path, position: u64, reason: &dyn Display) -> String {
    format!("{} at byte {position}: {reason}", path.display())
}
