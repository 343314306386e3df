//! One partition: its ids interleaved, expired and cleaned.
//!
//! A window of transactions is open at once; a random one of them writes its next record. Where one ends, a random id
//! that has transactions left takes its place, so the updates of an id are spread over the log. Transactions that stay
//! open begin last, as in a log that is cut off at some moment.

use redrive::transaction_log::ValueVersion;

use super::batch::{set_key, write_state, write_tombstones};
use super::error::GenerateError;
use super::life::{Choices, Life, Moment, Progress, Transaction};
use super::plan::{Assignment, Plan};
use super::random::{Random, scale};
use super::run::Meter;
use super::segments::SegmentWriter;
use super::spec::{Scenario, ValueVersions};
use super::summary::PartitionSummary;
use super::topics::{ADDS_MAX, TopicSets};

/// One transaction in this many is the first after a restart of its client.
const RESTARTS: u64 = 64;
/// One transaction in this many adds partitions once more than the others, which do it twice.
const THIRD_ADDS: u64 = 4;
/// Records between two reports, which are also looks at whether to go on.
const REPORT_EVERY: u64 = 4096;
/// Largest batch of tombstones.
const TOMBSTONES_MAX: usize = 100;
/// Fractions of a millisecond, in bits.
const TICK_BITS: u32 = 20;

/// Writes a partition, all but the end of its last segment.
///
/// # Errors
/// [`GenerateError::Io`]; [`GenerateError::Cancelled`].
pub(super) fn write_partition(
    plan: &Plan,
    partition: u32,
    assignment: &Assignment,
    log: &mut SegmentWriter,
    leader_epoch: i32,
    meter: &Meter,
) -> Result<PartitionSummary, GenerateError> {
    let numbers = &assignment.partitions[partition as usize];
    let mut schedule = Schedule::new(plan, partition, numbers, assignment.numbers_end);
    let mut writer = Writer { log, leader_epoch, batch: Vec::new(), summary: PartitionSummary::default() };
    writer.summary.partition = partition.cast_signed();
    schedule.run(&mut writer, meter)?;
    writer.summary.segments = writer.log.segments();
    Ok(writer.summary)
}

/// The log, and what was counted of it.
struct Writer<'a> {
    log: &'a mut SegmentWriter,
    leader_epoch: i32,
    /// The batch in work.
    batch: Vec<u8>,
    summary: PartitionSummary,
}

impl Writer<'_> {
    /// Appends the batch in work, of `records` records from `offset` on.
    fn append(&mut self, offset: i64, records: u64, timestamp_ms: i64) -> Result<(), GenerateError> {
        let summary = &mut self.summary;
        let missing = (offset - summary.log_end_offset).unsigned_abs();
        if missing > 0 && summary.batches > 0 {
            summary.gaps += 1;
            summary.gap_offsets += missing;
        }
        let end_offset = offset + records.cast_signed();
        self.log.append(&self.batch, offset, end_offset - 1, timestamp_ms)?;
        summary.bytes += self.batch.len() as u64;
        summary.batches += 1;
        summary.records += records;
        summary.log_end_offset = end_offset;
        self.batch.clear();
        Ok(())
    }
}

struct Schedule<'a> {
    plan: &'a Plan,
    random: Random,
    /// Every id of the partition.
    lives: Vec<Life>,
    /// Ids with transactions left that are not under way.
    waiting: Vec<usize>,
    /// The last of them is the next, not any.
    is_in_order: bool,
    /// Ids whose last transaction stays open: they wait for the end of the log.
    held_back: Vec<usize>,
    is_closing: bool,
    /// Transactions begun, and all there will be.
    begun: u64,
    transactions: u64,
    /// Keys of ids that expired and whose tombstones are not written yet.
    expired: Vec<Vec<u8>>,
    /// How many of them make a batch.
    expired_batch: usize,
    /// Offset of the next record, written or cleaned away.
    offset: i64,
    /// Time since the start, and what each record adds, in fractions of ms.
    ticks: u64,
    ticks_per_record: u64,
    next_producer_id: i64,
    /// The id in work.
    id: Vec<u8>,
}

impl<'a> Schedule<'a> {
    fn new(plan: &'a Plan, partition: u32, numbers: &[u32], numbers_end: u64) -> Self {
        let mut random = Random::new(plan.seed, u64::from(partition));
        let mut numbers = numbers.to_vec();
        let is_in_order = plan.scenario == Scenario::Flink || plan.transactions == 1;
        if plan.scenario != Scenario::Flink && is_in_order {
            // Ids that are used once are drawn beforehand: in the loop each would cost two misses of the cache.
            for last in (1..numbers.len()).rev() {
                numbers.swap(last, random.below(last + 1));
            }
        }
        let lives: Vec<Life> = numbers.iter().map(|&number| Life::new(number, i64::from(number))).collect();
        let waiting = (0..lives.len()).rev().collect();
        let transactions = lives.len() as u64 * u64::from(plan.transactions);
        // Two additions and a part of a third, decision, completion; then the restarts, and a start for each id.
        let records =
            transactions * 4 + transactions / THIRD_ADDS + transactions / RESTARTS + lives.len() as u64;
        let span = (plan.end_ms - plan.start_ms).unsigned_abs() << TICK_BITS;
        Self {
            plan,
            random,
            lives,
            waiting,
            is_in_order,
            held_back: Vec::new(),
            is_closing: false,
            begun: 0,
            transactions,
            expired: Vec::new(),
            expired_batch: TOMBSTONES_MAX,
            offset: 0,
            ticks: 0,
            // A little less than a fair share, so that the log does not end before its last records.
            ticks_per_record: span / (records + records / 64).max(1),
            // First producer ids are the ids' numbers; later ones lie above all of them, and each partition has its own.
            next_producer_id: numbers_end.cast_signed() + i64::from(partition),
            id: Vec::new(),
        }
    }

    fn run(&mut self, writer: &mut Writer<'_>, meter: &Meter) -> Result<(), GenerateError> {
        // The partition's share of the transactions that are open everywhere.
        let ids = self.lives.len() as u128;
        let window = u128::from(self.plan.window) * ids / u128::from(self.plan.ids.max(1));
        let window = usize::try_from(window.clamp(1, ids.max(1))).expect("not more than there are ids");
        let mut open = Vec::with_capacity(window);
        while open.len() < window
            && let Some(transaction) = self.begin(Vec::new())
        {
            open.push(transaction);
        }
        let mut reported = PartitionSummary::default();
        let mut until_report = REPORT_EVERY;
        while !open.is_empty() {
            let random = self.random.next();
            let at = scale(random, open.len());
            let progress = self.advance(&mut open[at], random & 3, writer)?;
            if progress != Progress::GoesOn {
                self.replace(&mut open, at, progress);
                if self.expired.len() >= self.expired_batch {
                    self.write_tombstones(writer)?;
                }
            }
            until_report -= 1;
            if until_report == 0 {
                until_report = REPORT_EVERY;
                meter.report(&mut reported, &writer.summary)?;
            }
        }
        self.write_tombstones(writer)?;
        meter.report(&mut reported, &writer.summary)
    }

    fn now_ms(&self) -> i64 {
        let elapsed = (self.ticks >> TICK_BITS).cast_signed();
        (self.plan.start_ms + elapsed).min(self.plan.end_ms)
    }

    fn version(&self) -> ValueVersion {
        match self.plan.value_versions {
            ValueVersions::V0 => ValueVersion::V0,
            ValueVersions::V1 => ValueVersion::V1,
            ValueVersions::Mixed if self.begun * 2 > self.transactions => ValueVersion::V1,
            ValueVersions::Mixed => ValueVersion::V0,
        }
    }

    /// Writes the next record of a transaction, unless the cleaner has taken it away. The state change was `lag_ms`
    /// before the append.
    fn advance(
        &mut self,
        transaction: &mut Transaction,
        lag_ms: u64,
        writer: &mut Writer<'_>,
    ) -> Result<Progress, GenerateError> {
        self.ticks += self.ticks_per_record;
        let timestamp_ms = self.now_ms();
        let moment = Moment {
            version: self.version(),
            timeout_ms: self.plan.timeout_ms,
            now_ms: timestamp_ms - lag_ms.cast_signed(),
            topics: &self.plan.topics,
        };
        let step = i64::from(self.plan.partitions.get());
        let next_producer_id = &mut self.next_producer_id;
        let allocate = || {
            let allocated = *next_producer_id;
            *next_producer_id += step;
            allocated
        };
        let (image, progress) = transaction.advance(&mut self.lives[transaction.life], &moment, allocate);
        let offset = self.offset;
        self.offset += 1;
        let is_newest = matches!(progress, Progress::Ended(_));
        let gaps = self.plan.gaps;
        if !is_newest && !gaps.is_never() && gaps.happens(self.random.next()) {
            return Ok(progress);
        }
        let epoch = writer.leader_epoch;
        write_state(&mut writer.batch, offset, epoch, timestamp_ms, &transaction.key, &image);
        if let Progress::Ended(state) = progress {
            let bytes = writer.batch.len() as u64;
            writer.summary.count_state(state, bytes);
        }
        writer.append(offset, 1, timestamp_ms)?;
        Ok(progress)
    }

    /// Puts another transaction in the place of one that is over.
    fn replace(&mut self, open: &mut Vec<Transaction>, at: usize, progress: Progress) {
        let over = &mut open[at];
        let mut key = std::mem::take(&mut over.key);
        match progress {
            Progress::Done => self.waiting.push(over.life),
            Progress::Expires => self.expired.push(std::mem::take(&mut key)),
            Progress::GoesOn | Progress::Ended(_) => {}
        }
        match self.begin(key) {
            Some(next) => *over = next,
            None => {
                open.swap_remove(at);
            }
        }
    }

    /// Begins a transaction of an id that has one left; `key` is memory to use.
    fn begin(&mut self, mut key: Vec<u8>) -> Option<Transaction> {
        let index = self.pick()?;
        let plan = self.plan;
        let life = &self.lives[index];
        let version = self.version();
        self.begun += 1;
        self.id.clear();
        plan.names.write(life.number, &mut self.id);
        set_key(&mut key, &self.id);
        let random = self.random.next();
        let choices = Choices {
            restarts: random.is_multiple_of(RESTARTS),
            adds: if (random >> 8).is_multiple_of(THIRD_ADDS) { ADDS_MAX } else { ADDS_MAX - 1 },
            topic_set: TopicSets::choose(random),
            commits: !plan.aborts.happens(self.random.next()),
            is_newer_client: version == ValueVersion::V1 && plan.is_newer_client(life.number),
            end: self.is_last(index).then(|| plan.end_of(life.number)),
        };
        Some(Transaction::begin(key, index, life, choices))
    }

    fn is_last(&self, index: usize) -> bool {
        self.lives[index].done + 1 == self.plan.transactions
    }

    fn pick(&mut self) -> Option<usize> {
        loop {
            if self.waiting.is_empty() {
                if self.held_back.is_empty() {
                    return None;
                }
                std::mem::swap(&mut self.waiting, &mut self.held_back);
                self.is_closing = true;
            }
            let index = if self.is_in_order {
                self.waiting.pop()?
            } else {
                let at = self.random.below(self.waiting.len());
                self.waiting.swap_remove(at)
            };
            let stays_open = self.is_last(index) && self.plan.end_of(self.lives[index].number).is_open();
            if !stays_open || self.is_closing {
                return Some(index);
            }
            self.held_back.push(index);
        }
    }

    /// Writes the tombstones of all that expired.
    fn write_tombstones(&mut self, writer: &mut Writer<'_>) -> Result<(), GenerateError> {
        let count = self.expired.len() as u64;
        if count == 0 {
            return Ok(());
        }
        let timestamp_ms = self.now_ms();
        write_tombstones(&mut writer.batch, self.offset, writer.leader_epoch, timestamp_ms, &self.expired);
        writer.append(self.offset, count, timestamp_ms)?;
        writer.summary.tombstones += count;
        writer.summary.tombstoned_ids += count;
        self.offset += count.cast_signed();
        self.expired.clear();
        self.expired_batch = 1 + self.random.below(TOMBSTONES_MAX);
        Ok(())
    }
}
