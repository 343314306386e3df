//! One partition, by any number of threads.
//!
//! A segment is cut into chunks at entries of its offset index, which are hints and no more: a chunk may be scanned
//! early, but its records enter the map only when the chunks before it have been walked and end exactly where it
//! begins. If they end elsewhere, it is scanned again from there. Segments begin at byte 0, which needs no proof, so
//! they may be applied in any order: what is newest is a matter of addresses.
//!
//! Nothing is decided here about damage. The first problem of the log, in the order of the log, stops the fast way;
//! [`Walk`] goes on from there, batch by batch, and knows what is to be made of it.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use super::budget::{Budget, Charge};
use super::bytes::{Mappings, Source, Window, Worker};
use super::observer::{Cancel, Meter, Totals};
use super::report::{IoUsed, PartitionStats, Phases, SkippedPlace};
use super::scan::{Course, Ground, Rules, Scan, Stop};
use super::walk::Walk;
use crate::error::{BrokerView, Corruption, Error, Reason};
use crate::io::{Storage, read_small};
use crate::log::{Addresses, LogSnapshot, SegmentInfo};
use crate::map::{Extent, Form, IdHasher, Index, Side, With};
use crate::segment::index::OffsetIndex;
use crate::types::Offset;

/// Most segments of a partition that are mapped at once so that keys can be compared where they lie.
pub(super) const MAPPED_SEGMENTS_MAX: usize = 256;
/// Most segments of a load of which mappings are kept: Linux allows a process 65,530 mappings by default.
const MAPPED_IN_ALL_MAX: usize = 30_000;
/// Bytes of a log for which the table has room for one id at first.
const BYTES_PER_ROOM: u64 = 8 << 10;
/// Largest offset index that is read for hints; Kafka's default size is 10 MiB.
const INDEX_BYTES_MAX: usize = 64 << 20;
/// How many times as many ids as there are a table makes room for at most.
const GROWTH_MAX: usize = 8;
/// Looks at the chunk before, and turns of an idle loop between two of them, until a thread goes to sleep: some 50 µs.
const LOOKS: usize = if cfg!(miri) { 1 } else { 100 };
const SPINS: usize = 50;

/// What all partitions of a load share.
#[derive(Debug)]
pub(super) struct Context<'a> {
    pub(super) storage: &'a dyn Storage,
    /// How segments are read.
    pub(super) io: IoUsed,
    pub(super) rules: Rules,
    pub(super) hasher: &'a IdHasher,
    /// Threads that may work on one partition.
    pub(super) threads: usize,
    /// Segments of all partitions.
    pub(super) segments: usize,
    /// Bytes that are scanned before they are applied.
    pub(super) chunk_bytes: usize,
    pub(super) budget: &'a Budget,
    pub(super) cancel: &'a Cancel,
    /// Set when nobody waits for the result any more.
    pub(super) is_abandoned: &'a AtomicBool,
    pub(super) totals: &'a Totals,
}

impl Context<'_> {
    pub(super) fn is_stopped(&self) -> bool {
        self.cancel.is_cancelled() || self.is_abandoned.load(Ordering::Relaxed)
    }
}

/// A partition while it is loaded.
#[derive(Debug)]
pub(super) struct Run<'a> {
    snapshot: &'a Arc<LogSnapshot>,
    context: &'a Context<'a>,
    addresses: &'a Addresses,
    mappings: Mappings<'a>,
    /// Taken out at the end.
    index: RwLock<Option<Index>>,
    side: Side,
    charge: Charge<'a>,
    log_start: Offset,
    /// Workers that are on it: while there is one, it need not share.
    workers: AtomicUsize,
    ids: AtomicUsize,
    /// Bytes that progress has been told of.
    walked: AtomicU64,
    /// Ids after so many bytes.
    course_of_ids: Mutex<Vec<(u64, usize)>>,
    state: Mutex<State>,
    /// Told when a segment gets further.
    turn: Condvar,
    open: Duration,
    scan_nanos: AtomicU64,
    index_nanos: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    chunks: Vec<Chunk>,
    next: usize,
    done: usize,
    segments: Vec<Segment>,
    /// The first segment with a problem: those behind it need not be read.
    last_needed: usize,
}

/// A part of a segment that one worker takes.
#[derive(Clone, Copy, Debug)]
struct Chunk {
    segment: usize,
    /// Number in its segment.
    number: usize,
    from: u64,
    until: u64,
}

/// How far a segment has been applied.
#[derive(Debug)]
struct Segment {
    /// The chunk whose turn it is.
    turn: usize,
    /// Where the applied batches end.
    proven: u64,
    course: Course,
    stats: PartitionStats,
    end: End,
}

#[derive(Debug)]
enum End {
    /// More is to come, or all went well.
    Open,
    /// A batch cannot be used.
    Problem,
    Failed(Error),
}

impl State {
    /// Whether nothing more is to be applied to a segment.
    fn is_over(&self, segment: usize) -> bool {
        segment > self.last_needed || !matches!(self.segments[segment].end, End::Open)
    }

    fn close(&mut self, segment: usize, end: End) {
        let before = &mut self.segments[segment].end;
        // What could not be applied lies before the problem, and must not be lost behind it.
        if matches!(before, End::Open) || matches!((&*before, &end), (End::Problem, End::Failed(_))) {
            *before = end;
        }
        self.last_needed = self.last_needed.min(segment);
    }
}

/// Lets nobody wait for a chunk whose worker panicked; the panic itself goes on to whoever runs the load.
struct CloseOnPanic<'r, 'a> {
    run: &'r Run<'a>,
    segment: usize,
}

impl Drop for CloseOnPanic<'_, '_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.run.state().close(self.segment, End::Failed(Error::Cancelled));
            self.run.turn.notify_all();
        }
    }
}

/// What a loaded partition consists of.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) index: Index,
    pub(super) side: Side,
    pub(super) stats: PartitionStats,
}

impl<'a> Run<'a> {
    pub(super) fn new(
        snapshot: &'a Arc<LogSnapshot>,
        context: &'a Context<'a>,
        addresses: &'a Addresses,
    ) -> Result<Self, Error> {
        let begun = Instant::now();
        let form = form(snapshot, context);
        let charge = Charge::new(context.budget, &snapshot.topic_partition);
        let index = charge.renew(form, room(snapshot))?;
        let log_start = snapshot.log_start_offset();
        let mut state = State { last_needed: snapshot.segments.len(), ..State::default() };
        for (number, segment) in snapshot.segments.iter().enumerate() {
            let (stats, course) = (PartitionStats::default(), Course::from(segment.base_offset));
            state.segments.push(Segment { turn: 0, proven: 0, course, stats, end: End::Open });
            if !is_below(snapshot, number, log_start) {
                let borders = borders(segment, context);
                let untils = borders.iter().copied().skip(1).chain([segment.len]);
                state.chunks.extend(
                    borders.iter().zip(untils).enumerate().map(|(chunk, (&from, until))| Chunk {
                        segment: number,
                        number: chunk,
                        from,
                        until,
                    }),
                );
            }
        }
        Ok(Self {
            snapshot,
            context,
            addresses,
            mappings: Mappings::new(context.storage, snapshot, addresses, form == Form::InLog),
            index: RwLock::new(Some(index)),
            side: Side::default(),
            charge,
            log_start,
            workers: AtomicUsize::new(0),
            ids: AtomicUsize::new(0),
            walked: AtomicU64::new(0),
            course_of_ids: Mutex::default(),
            state: Mutex::new(state),
            turn: Condvar::new(),
            open: begun.elapsed(),
            scan_nanos: AtomicU64::new(0),
            index_nanos: AtomicU64::new(0),
        })
    }

    /// Whether there is something left that another worker could do.
    pub(super) fn has_chunks(&self) -> bool {
        let state = self.state();
        state.next < state.chunks.len()
    }

    /// Ids so far.
    pub(super) fn ids(&self) -> usize {
        self.ids.load(Ordering::Relaxed)
    }

    /// The map is out, with so many ids.
    pub(super) fn published(&self, ids: usize) {
        self.ids.store(ids, Ordering::Relaxed);
    }

    /// There is no map: what was held for it is free.
    pub(super) fn refused(&self) {
        self.ids.store(0, Ordering::Relaxed);
        self.charge.release();
    }

    /// The segments.
    pub(super) fn snapshot(&self) -> &'a Arc<LogSnapshot> {
        self.snapshot
    }

    /// The mapped log.
    pub(super) fn mappings(&self) -> &Mappings<'a> {
        &self.mappings
    }

    /// Takes chunks until none is left; true if this worker did the last of them and is to [`finish`](Self::finish).
    pub(super) fn work(&self, worker: &mut Worker<'_>) -> bool {
        self.workers.fetch_add(1, Ordering::AcqRel);
        let mut is_last = {
            // A partition without chunks is finished by whoever comes first.
            let mut state = self.state();
            let is_empty = state.chunks.is_empty() && state.done == 0;
            state.done += usize::from(is_empty);
            is_empty
        };
        let mut ahead = None;
        while let Some(chunk) = ahead.take().or_else(|| self.take()) {
            let guard = CloseOnPanic { run: self, segment: chunk.segment };
            let result = self.chunk(chunk, worker, &mut ahead);
            drop(guard);
            worker.direct.end();
            let mut state = self.state();
            if let Err(error) = result {
                // What is wrong with the batches before it comes first.
                state = self.await_turn(state, chunk);
                state.close(chunk.segment, End::Failed(error));
            }
            let turn = &mut state.segments[chunk.segment].turn;
            *turn = (*turn).max(chunk.number + 1);
            state.done += 1;
            is_last |= state.done == state.chunks.len();
            drop(state);
            self.turn.notify_all();
        }
        worker.leave();
        self.workers.fetch_sub(1, Ordering::AcqRel);
        is_last
    }

    fn take(&self) -> Option<Chunk> {
        let mut state = self.state();
        let chunk = state.chunks.get(state.next).copied();
        state.next += usize::from(chunk.is_some());
        chunk
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the chunks before this one are applied. They were taken before, by workers that wait for none
    /// behind them.
    fn await_turn<'g>(&'g self, mut state: MutexGuard<'g, State>, chunk: Chunk) -> MutexGuard<'g, State> {
        let is_waiting = |state: &State| {
            state.segments[chunk.segment].turn < chunk.number && !state.is_over(chunk.segment)
        };
        // The chunk before is nearly done as a rule: going to sleep and being woken takes longer than that.
        for _ in 0..LOOKS {
            if !is_waiting(&state) {
                return state;
            }
            drop(state);
            (0..SPINS).for_each(|_| std::hint::spin_loop());
            state = self.state();
        }
        while is_waiting(&state) {
            state = self.turn.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state
    }

    /// Scans one chunk and applies it. Where reads are kept in flight, it takes the one after it in time.
    fn chunk(&self, chunk: Chunk, worker: &mut Worker<'_>, ahead: &mut Option<Chunk>) -> Result<(), Error> {
        if self.state().is_over(chunk.segment) {
            return Ok(());
        }
        let ground = self.ground(chunk.segment);
        let mut source = Source::open(self.context, &self.mappings, self.snapshot, chunk.segment, worker)?;
        let mut from = chunk.from;
        // Byte 0 of a segment is where a batch begins. Any other border is to be shown first.
        let mut is_proven = chunk.number == 0;
        worker.scan.course = Course::from(ground.base_offset);
        while from < chunk.until || !is_proven {
            if self.context.is_stopped() {
                return Err(Error::Cancelled);
            }
            if self.context.io == IoUsed::Uring && ahead.is_none() && worker.direct.is_running_dry() {
                *ahead = self.take();
                let segment = ahead.map(|next| (next, &self.snapshot.segments[next.segment]));
                if let Some((next, segment)) = segment.filter(|(_, segment)| segment.len > 0) {
                    // What is wrong with that segment is told when its turn has come.
                    let _ = worker.direct.queue(self.context.storage, next.segment, segment);
                }
            }
            let begun = Instant::now();
            let (window, end, stop) = source.scan(&ground, worker, from, chunk.until)?;
            add_nanos(&self.scan_nanos, begun);

            let mut state = self.await_turn(self.state(), chunk);
            if state.is_over(chunk.segment) {
                return Ok(());
            }
            let segment = &mut state.segments[chunk.segment];
            if !is_proven && segment.proven != from {
                // The index lied, or a batch goes over the border: again, from where the batches before it end.
                (from, worker.scan.course) = (segment.proven, segment.course);
                is_proven = true;
                continue;
            }
            if is_proven {
                segment.course = worker.scan.course;
            } else if !segment.course.join(&worker.scan.course, &mut segment.stats) {
                state.close(chunk.segment, End::Problem);
                return Ok(());
            }
            is_proven = true;
            worker.scan.course = segment.course;
            segment.stats.add(&worker.scan.stats);
            segment.proven = end;
            if end >= chunk.until {
                // Whoever has the next chunk need not wait until this one is applied.
                segment.turn = segment.turn.max(chunk.number + 1);
                self.turn.notify_all();
            }
            if stop == Stop::Problem {
                state.close(chunk.segment, End::Problem);
            }
            drop(state);

            let begun = Instant::now();
            self.apply(worker, &window)?;
            add_nanos(&self.index_nanos, begun);
            let walked = self.walked.fetch_add(end - from, Ordering::Relaxed) + end - from;
            self.course_of_ids().push((walked, self.ids()));
            self.context.totals.add(end - from, worker.scan.stats.records);
            if stop == Stop::Problem {
                return Ok(());
            }
            from = end;
        }
        if chunk.until == ground.len { source.check_not_shrunk() } else { Ok(()) }
    }

    fn ground(&self, number: usize) -> Ground<'a> {
        ground(self.snapshot, self.addresses, number, self.log_start)
    }

    /// Applies what a scan found. The table grows as it must.
    fn apply(&self, worker: &mut Worker<'_>, window: &Window) -> Result<(), Error> {
        let Worker { scan, piece, direct, extent } = worker;
        scan.settle_side(&self.side);
        let ids = scan.ids(window.bytes(piece, direct));
        let mut left = &scan.candidates[..];
        let cpu = self.context.rules.cpu;
        while !left.is_empty() {
            let with = With { cpu, ids, keys: &self.mappings, side: &self.side, extent };
            let (applied, lines) = if self.workers.load(Ordering::Acquire) == 1 {
                let mut index = self.index.write().unwrap_or_else(PoisonError::into_inner);
                let Some(index) = &mut *index else { return Ok(()) };
                (index.apply_alone(left, with), index.lines())
            } else {
                let index = self.index.read().unwrap_or_else(PoisonError::into_inner);
                let Some(index) = &*index else { return Ok(()) };
                (index.apply_shared(left, with), index.lines())
            };
            let applied = applied.map_err(|source| self.charge.refused_by_system(self.ids(), &source))?;
            left = &left[applied..];
            if !left.is_empty() {
                let mut index = self.index.write().unwrap_or_else(PoisonError::into_inner);
                let Some(index) = &mut *index else { return Ok(()) };
                // Another thread may have been here before.
                if index.lines() == lines {
                    self.charge.grow(index, self.expected(index.len()))?;
                }
            }
        }
        let index = self.index.read().unwrap_or_else(PoisonError::into_inner);
        let Some(index) = index.as_ref() else { return Ok(()) };
        self.ids.store(index.len(), Ordering::Relaxed);
        self.charge.set(index, &self.side)
    }

    /// Ids that there will probably be in the end, from how their number grew over the part of the log that was walked.
    fn expected(&self, ids: usize) -> usize {
        let walked = self.walked.load(Ordering::Relaxed);
        let half = self.course_of_ids().iter().rfind(|(at, _)| *at <= walked / 2).copied();
        let Some((half_at, half_ids)) = half.filter(|(at, _)| *at > 0) else { return 0 };
        // The second half brought fewer new ids than the first where many come again. That goes on.
        let (first, second) = (half_ids as f64, ids.saturating_sub(half_ids) as f64);
        let decline = (second / first.max(1.0)).min(1.0);
        let stretches =
            self.snapshot.bytes().saturating_sub(walked) as f64 / (walked - half_at).max(1) as f64;
        let more = if decline < 0.99 {
            second * decline * (1.0 - decline.powf(stretches)) / (1.0 - decline)
        } else {
            second * stretches
        };
        // A log can begin with what is not like the rest of it, so no guess goes too far.
        ids.saturating_add(more as usize).min(ids.saturating_mul(GROWTH_MAX))
    }

    fn course_of_ids(&self) -> MutexGuard<'_, Vec<(u64, usize)>> {
        self.course_of_ids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts the segments together. To be called once, when all chunks are done.
    ///
    /// # Errors
    /// Why the partition is refused.
    pub(super) fn finish(&self) -> Result<Finished, Error> {
        let Self { snapshot, context, .. } = *self;
        let result = self.join_segments().and_then(|walk| {
            let end = walk.scan.course.expected;
            let below = snapshot.log_start_checkpoint.filter(|start| *start > end);
            let (Some(start), Some(last)) = (below, snapshot.segments.last()) else { return Ok(walk) };
            let reason = Reason::EndsBelowStart { end, start };
            let (path, offset, position) = (last.path.clone(), end, last.len);
            if context.rules.lenient {
                // The checkpoint is what is skipped: read again as if it did not name the partition.
                drop(walk);
                let mut walk = self.walk_all(snapshot.segments[0].base_offset)?;
                let place = SkippedPlace { path, offset, position, reason: reason.to_string() };
                walk.scan.stats.skipped.places.push(place);
                return Ok(walk);
            }
            Err(Error::Corrupt(Box::new(Corruption {
                path,
                offset,
                position,
                reason,
                transactional_id: None,
                broker: BrokerView::DropsLog,
            })))
        });
        let result = result.map(|Walk { index, side, scan, log_start, .. }| (index, side, scan, log_start));
        // Skipped or not read at all: it is done with.
        context.totals.add(snapshot.bytes().saturating_sub(self.walked.load(Ordering::Relaxed)), 0);
        let (index, side, scan, log_start) = result?;
        let mut stats = scan.stats;
        stats.log_start_offset = log_start;
        stats.log_end_offset = scan.course.expected;
        stats.segments = snapshot.segments.len();
        stats.phases = Phases {
            open: self.open,
            scan: Duration::from_nanos(self.scan_nanos.load(Ordering::Relaxed)),
            index: Duration::from_nanos(self.index_nanos.load(Ordering::Relaxed)),
            ..Phases::default()
        };
        Ok(Finished { index, side, stats })
    }

    /// The fast way's result, or what the slow way makes of the first problem.
    fn join_segments(&self) -> Result<Walk<'_>, Error> {
        let segments = std::mem::take(&mut self.state().segments);
        let index = self.index.write().unwrap_or_else(PoisonError::into_inner).take();
        let Some(index) = index else { return Err(Error::Cancelled) };
        let mut walk = self.walk(index, self.side.take(), self.log_start);
        for (number, segment) in segments.into_iter().enumerate() {
            let info = &self.snapshot.segments[number];
            if is_below(self.snapshot, number, self.log_start) {
                walk.scan.course.expected = self.snapshot.segments[number + 1].base_offset;
                continue;
            }
            let is_behind = info.base_offset >= walk.scan.course.expected;
            // Cancelled ones among them: whatever failed first in the log counts.
            match segment.end {
                End::Failed(error) if is_behind || self.context.rules.lenient => return Err(error),
                End::Open if is_behind => {
                    walk.join(info.base_offset, &segment.course, &segment.stats);
                    walk.scan.stats.bytes += info.len;
                    continue;
                }
                _ => {}
            }
            if self.context.rules.lenient {
                // What may be skipped depends on all that came before: the slow way, from the beginning.
                drop(walk);
                return self.walk_all(self.log_start);
            }
            if is_behind {
                walk.join(info.base_offset, &segment.course, &segment.stats);
                walk.segment(number, segment.proven)?;
            } else {
                walk.segment(number, 0)?;
            }
            if number + 1 < self.snapshot.segments.len() {
                // The bytes were not the same the second time, and what lies behind was not read for the first's sake.
                drop(walk);
                return self.walk_all(self.log_start);
            }
        }
        walk.apply()?;
        Ok(walk)
    }

    /// The whole partition the slow way, batch by batch.
    fn walk_all(&self, log_start: Offset) -> Result<Walk<'_>, Error> {
        let index = self.charge.renew(form(self.snapshot, self.context), room(self.snapshot))?;
        self.context.totals.take_back(self.walked.swap(0, Ordering::Relaxed));
        let mut walk = self.walk(index, Side::default(), log_start);
        for number in 0..self.snapshot.segments.len() {
            if is_below(self.snapshot, number, log_start) {
                walk.scan.course.expected = self.snapshot.segments[number + 1].base_offset;
            } else {
                walk.segment(number, 0)?;
            }
        }
        walk.apply()?;
        Ok(walk)
    }

    fn walk(&self, index: Index, side: Side, log_start: Offset) -> Walk<'_> {
        let first = self.snapshot.segments.first().map_or(log_start, |segment| segment.base_offset);
        Walk {
            snapshot: self.snapshot,
            context: self.context,
            addresses: self.addresses,
            mappings: &self.mappings,
            charge: &self.charge,
            index,
            side,
            scan: Scan::of_walk(&self.context.rules, self.context.hasher, first),
            extent: Extent::default(),
            log_start,
            meter: Meter::new(self.context.totals, &self.walked),
        }
    }
}

pub(super) fn ground<'a>(
    snapshot: &'a LogSnapshot,
    addresses: &Addresses,
    number: usize,
    log_start: Offset,
) -> Ground<'a> {
    let SegmentInfo { path, base_offset, len, .. } = &snapshot.segments[number];
    Ground { path, base_offset: *base_offset, address: addresses.start(number), len: *len, log_start }
}

/// Whether a segment ends below the log start offset: it waits for its deletion.
fn is_below(snapshot: &LogSnapshot, number: usize, log_start: Offset) -> bool {
    snapshot.segments.get(number + 1).is_some_and(|next| next.base_offset <= log_start)
}

/// What ids of a partition are compared with.
fn form(snapshot: &LogSnapshot, context: &Context<'_>) -> Form {
    if context.hasher.is_identity() {
        Form::ByHash
    } else if context.io == IoUsed::Mmap
        && snapshot.segments.len() <= MAPPED_SEGMENTS_MAX
        && context.segments <= MAPPED_IN_ALL_MAX
    {
        Form::InLog
    } else {
        Form::Arena
    }
}

/// Ids that a map has room for at first: so few that a log of one version an id makes it grow several times.
fn room(snapshot: &LogSnapshot) -> usize {
    usize::try_from(snapshot.bytes() / BYTES_PER_ROOM).unwrap_or(usize::MAX)
}

/// Where the chunks of a segment begin, the first at 0.
fn borders(segment: &SegmentInfo, context: &Context<'_>) -> Vec<u64> {
    let mut borders = vec![0];
    let chunk_bytes = context.chunk_bytes as u64;
    // Blocks past the page cache come in order.
    let is_whole = context.io == IoUsed::Uring || context.threads == 1;
    if is_whole || segment.len < 2 * chunk_bytes || !segment.has_index {
        return borders;
    }
    // An index that cannot be read gives no hints.
    let path = segment.path.with_extension("index");
    let Ok(file) = read_small(context.storage, &path, INDEX_BYTES_MAX) else { return borders };
    for entry in OffsetIndex::new(segment.base_offset, &file).entries_used(segment.len) {
        let last = borders.last().copied().unwrap_or(0);
        if let Ok(position) = u64::try_from(entry.position)
            && position >= last.saturating_add(chunk_bytes)
        {
            borders.push(position);
        }
    }
    borders
}

fn add_nanos(total: &AtomicU64, since: Instant) {
    let nanos = u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX);
    total.fetch_add(nanos, Ordering::Relaxed);
}
