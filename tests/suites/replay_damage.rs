//! Random damage to random logs: what a load then gives is the truth, or says that it is not.
//!
//! Every log is loaded by the slow twin as it was and as it was left. A strict load of what was left must
//! - refuse the partition; or
//! - report a tail, and then only where one may be forgiven, with the map of what precedes it; or
//! - give the twin's map, and then the bytes could not show that anything is missing: their batches are a selection
//!   of those that were written, in the same order, each unchanged as far as its checksum reaches.
//!
//! A lenient load must give a map, with every id in it whose newest record lies in a batch that was not touched.

mod judge;

use std::ops::Range;

use judge::{PARTITION, Root, TwinFolder};
use redrive::Error;
use redrive::replay::{IoChoice, PartitionStats, Tail};
use redrive_tests::logs::{Rng, SegmentFile, Shape, random_log};
use redrive_tests::naive::{NaiveMap, next_batch};

/// Logs that are drawn; each is damaged several times.
const LOGS: u64 = 250;
const DAMAGES_PER_LOG: u64 = 12;

fn shape() -> Shape {
    Shape {
        segments_max: 4,
        batches_per_segment_max: 8,
        records_per_batch_max: 4,
        ids: 8,
        ..Shape::default()
    }
}

/// What was done to a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    BitFlip,
    HeaderFlip,
    Cut,
    Swapped,
    Missing,
    Duplicated,
    LyingFiles,
    AppendedGarbage,
    AppendedZeros,
    Inserted,
    Removed,
    Copied,
    Emptied,
}

const KINDS: [Kind; 13] = [
    Kind::BitFlip,
    Kind::HeaderFlip,
    Kind::Cut,
    Kind::Swapped,
    Kind::Missing,
    Kind::Duplicated,
    Kind::LyingFiles,
    Kind::AppendedGarbage,
    Kind::AppendedZeros,
    Kind::Inserted,
    Kind::Removed,
    Kind::Copied,
    Kind::Emptied,
];

/// A damaged log.
struct Damaged {
    kind: Kind,
    segments: Vec<SegmentFile>,
    /// Files beside the segments.
    others: Vec<(String, Vec<u8>)>,
    /// The segment and the bytes of it, as it was written, that are no longer there; `None` where the order of
    /// batches changed.
    touched: Option<(usize, Range<usize>)>,
}

fn garbage(rng: &mut Rng, bytes_max: u64) -> Vec<u8> {
    // Low bytes are frequent, so that magic bytes and small lengths come up.
    (0..1 + rng.below(bytes_max)).map(|_| rng.below(256) as u8 & rng.below(256) as u8).collect()
}

fn damage(rng: &mut Rng, original: &[SegmentFile]) -> Option<Damaged> {
    let kind = *rng.pick(&KINDS);
    let mut segments = original.to_vec();
    let count = segments.len();
    let index = rng.below(count as u64) as usize;
    let len = segments[index].bytes.len();
    let bytes = &mut segments[index].bytes;
    let mut others = Vec::new();
    let mut touched = None;
    let somewhere = |rng: &mut Rng| rng.below(len as u64 + 1) as usize;
    match kind {
        Kind::BitFlip if len > 0 => {
            let at = rng.below(len as u64) as usize;
            bytes[at] ^= 1 << rng.below(8);
            touched = Some((index, at..at + 1));
        }
        Kind::HeaderFlip if len > 0 => {
            let ranges = batches_of(&original[index].bytes);
            let at = rng.pick(&ranges).range.start + rng.below(61) as usize;
            bytes[at] ^= 1 << rng.below(8);
            touched = Some((index, at..at + 1));
        }
        Kind::Cut => {
            let at = somewhere(rng);
            bytes.truncate(at);
            touched = Some((index, at..len));
        }
        Kind::Emptied => {
            bytes.clear();
            touched = Some((index, 0..len));
        }
        Kind::Swapped if count > 1 => {
            let other = (index + 1 + rng.below(count as u64 - 1) as usize) % count;
            let content = std::mem::take(&mut segments[index].bytes);
            segments[index].bytes = std::mem::replace(&mut segments[other].bytes, content);
        }
        Kind::Missing if count > 1 => {
            segments.remove(index);
            touched = Some((index, 0..len));
        }
        Kind::Duplicated => {
            let mut copy = segments[index].clone();
            copy.base_offset += 1 + rng.below(100) as i64;
            if segments.iter().any(|segment| segment.base_offset == copy.base_offset) {
                return None;
            }
            segments.push(copy);
            segments.sort_by_key(|segment| segment.base_offset);
        }
        Kind::LyingFiles => {
            for suffix in ["index", "timeindex", "txnindex", "snapshot"] {
                let name = format!("{PARTITION}/{:020}.{suffix}", segments[index].base_offset);
                others.push((name, garbage(rng, 200)));
            }
            others.push((format!("{PARTITION}/leader-epoch-checkpoint"), garbage(rng, 50)));
            touched = Some((index, 0..0));
        }
        Kind::AppendedGarbage => {
            bytes.extend(garbage(rng, 300));
            touched = Some((index, len..len));
        }
        Kind::AppendedZeros => {
            bytes.extend(vec![0; 1 + rng.below(5000) as usize]);
            touched = Some((index, len..len));
        }
        Kind::Inserted => {
            let at = somewhere(rng);
            bytes.splice(at..at, garbage(rng, 100));
            touched = Some((index, at..at));
        }
        Kind::Removed => {
            let (a, b) = (somewhere(rng), somewhere(rng));
            let range = a.min(b)..a.max(b);
            bytes.drain(range.clone());
            touched = Some((index, range));
        }
        Kind::Copied => {
            let (a, b, at) = (somewhere(rng), somewhere(rng), somewhere(rng));
            let piece = bytes[a.min(b)..a.max(b)].to_vec();
            bytes.splice(at..at, piece);
        }
        _ => return None,
    }
    Some(Damaged { kind, segments, others, touched })
}

/// A whole batch: where it lies and its log offsets.
struct Written {
    range: Range<usize>,
    offsets: Range<i64>,
}

/// The whole batches at the front of a segment.
fn batches_of(bytes: &[u8]) -> Vec<Written> {
    let (mut batches, mut at) = (Vec::new(), 0);
    while let Ok(Some(batch)) = next_batch(&bytes[at..], (bytes.len() - at) as u64) {
        let end = at + batch.bytes.len();
        let Ok(last) = batch.header.last_offset() else { break };
        batches.push(Written { range: at..end, offsets: batch.header.base_offset..last + 1 });
        at = end;
    }
    batches
}

/// Each batch as far as its checksum reaches, with its length: what is left of it under any offset.
fn bodies(segments: &[SegmentFile]) -> Vec<Vec<u8>> {
    let of_segment = |segment: &SegmentFile| {
        let batches = batches_of(&segment.bytes);
        let body = |batch: &Written| {
            [&segment.bytes[batch.range.clone()][8..12], &segment.bytes[batch.range.clone()][16..]].concat()
        };
        batches.iter().map(body).collect::<Vec<_>>()
    };
    segments.iter().flat_map(of_segment).collect()
}

fn is_selection(part: &[Vec<u8>], whole: &[Vec<u8>]) -> bool {
    let mut whole = whole.iter();
    part.iter().all(|wanted| whole.any(|batch| batch == wanted))
}

/// How the root says that the log was closed.
#[derive(Clone, Copy, Debug)]
struct Closed {
    clean: bool,
    recovery_point: Option<i64>,
}

/// The conditions under which a tail may be forgiven, looked at one by one in the plainest way.
#[track_caller]
fn assert_forgivable(tail: &Tail, damaged: &Damaged, closed: Closed, twin: &NaiveMap, what: &str) {
    assert!(!closed.clean, "{what}: a tail after a clean stop");
    assert!(
        closed.recovery_point.is_none_or(|point| tail.offset.0 >= point),
        "{what}: below the recovery point"
    );
    let last = damaged.segments.last().expect("a segment");
    assert!(tail.path.ends_with(last.file_name()), "{what}: not the last segment");
    assert_eq!(tail.position + tail.bytes, last.bytes.len() as u64, "{what}");
    let error = twin.tail.as_ref().unwrap_or_else(|| panic!("{what}: the twin sees no tail"));
    assert_eq!(tail.position, error.position, "{what}");
    for at in tail.position as usize + 1..last.bytes.len() {
        let rest = &last.bytes[at..];
        assert!(
            !matches!(next_batch(rest, rest.len() as u64), Ok(Some(_))),
            "{what}: a batch follows at {at}"
        );
    }
}

#[derive(Default)]
struct Seen {
    refused: u64,
    tails: u64,
    silent: u64,
    lossless: u64,
    lenient_ids: u64,
}

#[test]
fn damage_is_refused_or_reported_or_cannot_be_seen() {
    let twin_folder = TwinFolder::new();
    let mut seen = std::collections::BTreeMap::<Kind, Seen>::new();
    for seed in 0..LOGS {
        let log = random_log(seed, &shape());
        let twin = twin_folder.load(&log.segments, false).expect("the twin loads what was written");
        let written = bodies(&log.segments);
        let mut rng = Rng::new(seed ^ 0xda3a_6e00);
        for round in 0..DAMAGES_PER_LOG {
            let Some(damaged) = damage(&mut rng, &log.segments) else { continue };
            let closed = Closed {
                clean: rng.once_in(3),
                recovery_point: rng.once_in(2).then(|| rng.below(log.log_end_offset as u64 + 2) as i64),
            };
            let what = format!("seed {seed}, round {round}, {:?}, {closed:?}", damaged.kind);
            let mut root = Root::of(&damaged.segments);
            for (name, bytes) in &damaged.others {
                root = root.file(name, bytes.clone());
            }
            if closed.clean {
                root = root.clean();
            }
            if let Some(point) = closed.recovery_point {
                root = root.recovery_point(point);
            }
            let (io, buffer_bytes) = judge::ways().nth(rng.below(4) as usize).expect("a way");
            let replay = root.replay().io(io).chunk_bytes(buffer_bytes);
            let seen = seen.entry(damaged.kind).or_default();
            let outcome = judge::run_one(&replay);
            match &outcome.result {
                Err(Error::Corrupt(corruption)) => {
                    assert!(damaged.kind != Kind::LyingFiles, "{what}: {corruption}");
                    let name = corruption.path.file_name().expect("a file").to_str().expect("text");
                    let file = damaged.segments.iter().find(|segment| segment.file_name() == name);
                    let file = file.unwrap_or_else(|| panic!("{what}: {corruption}"));
                    assert!(corruption.position <= file.bytes.len() as u64, "{what}: {corruption}");
                    seen.refused += 1;
                }
                Err(other) => panic!("{what}: {other}"),
                Ok((map, stats)) => {
                    let left = twin_folder.load(&damaged.segments, stats.tail.is_some());
                    let left = left.unwrap_or_else(|error| panic!("{what}: loaded in spite of {error}"));
                    judge::assert_same_entries(&judge::entries(map), &left.entries, &what);
                    assert!(!stats.skipped.any(), "{what}");
                    if let Some(tail) = &stats.tail {
                        assert_forgivable(tail, &damaged, closed, &left, &what);
                        assert_eq!(stats.gaps, left.offset_gaps, "{what}");
                        seen.tails += 1;
                    } else {
                        judge::assert_same_counts(stats, &left, &what);
                        let left_over = bodies(&damaged.segments);
                        assert!(is_selection(&left_over, &written), "{what}: batches that nobody wrote");
                        if left_over.len() == written.len() && left.log_end_offset == twin.log_end_offset {
                            seen.lossless += 1;
                        } else {
                            seen.silent += 1;
                        }
                    }
                }
            }
            seen.lenient_ids += assert_lenient(&replay, &damaged, &log.segments, &twin, &what);
        }
    }
    // Each kind of damage was met, and each is seen where it can be.
    assert_eq!(seen.len(), KINDS.len());
    for (kind, Seen { refused, tails, silent, lossless, lenient_ids }) in &seen {
        println!(
            "{kind:?}: {refused} refused, {tails} tails, {silent} silent, {lossless} lossless, {lenient_ids} ids"
        );
        match kind {
            Kind::LyingFiles => assert!(*refused + *silent + *tails == 0 && *lossless > 0),
            Kind::Missing | Kind::Emptied => assert!(*silent > 0 && *tails == 0),
            Kind::Swapped | Kind::Duplicated | Kind::Copied => assert!(*refused > 0),
            _ => assert!(*refused > 0 && *tails > 0 && *lenient_ids > 0),
        }
    }
}

/// A lenient load ends, and knows every id whose newest record was not touched. Returns how many such ids there are.
#[track_caller]
fn assert_lenient(
    replay: &redrive::replay::Replay,
    damaged: &Damaged,
    original: &[SegmentFile],
    twin: &NaiveMap,
    what: &str,
) -> u64 {
    let outcome = judge::run_one(&replay.clone().lenient(true).io(IoChoice::Mmap));
    let Ok((map, stats)) = &outcome.result else { panic!("{what}: lenient, yet {:?}", outcome.error()) };
    assert_counted(stats, what);
    let Some((segment, touched)) = &damaged.touched else { return 0 };
    let loaded = judge::entries(map);
    let mut ids = 0;
    for (id, entry) in &twin.entries {
        let is_touched = |batch: &Written| {
            let inside = touched.start < batch.range.end && touched.end > batch.range.start;
            // An insertion touches the batch that it parts.
            inside && (!touched.is_empty() || touched.start > batch.range.start)
        };
        let lost = batches_of(&original[*segment].bytes)
            .iter()
            .any(|batch| batch.offsets.contains(&entry.offset) && is_touched(batch));
        if !lost {
            assert_eq!(loaded.get(id), Some(entry), "{what}: lenient, id {id:?}");
            ids += 1;
        }
    }
    ids
}

/// What is skipped is counted, and what is counted is told.
#[track_caller]
fn assert_counted(stats: &PartitionStats, what: &str) {
    let skipped = &stats.skipped;
    assert_eq!(skipped.any(), !skipped.places.is_empty(), "{what}: {skipped:?}");
    assert!(skipped.batches == 0 || skipped.bytes >= skipped.batches * 61, "{what}: {skipped:?}");
}
