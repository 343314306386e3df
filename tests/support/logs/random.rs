//! Random transaction logs by seed, each with the map that it must load as.
//!
//! The map is kept while the log is drawn, from the descriptions, never from the bytes: it judges readers without
//! reading anything itself.

use std::collections::BTreeMap;

use super::SegmentFile;
use super::batch::{BatchSpec, CONTROL, DELETE_HORIZON, LOG_APPEND_TIME, RecordSpec, TRANSACTIONAL};
use super::codecs::Codec;
use super::transaction_log::{TopicPartitions, TransactionValue, encode_key};

/// What a random log may be made of. Numbers are inclusive bounds.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Most segments; at least one is written.
    pub segments_max: u64,
    /// Most batches in a segment.
    pub batches_per_segment_max: u64,
    /// Most records in a batch; at least one unless the batch was emptied.
    pub records_per_batch_max: u64,
    /// Number of ordinary transactional ids.
    pub ids: u64,
    /// Batches of every codec, not only plain ones.
    pub codecs: bool,
    /// Ids that are empty, not ASCII, not UTF-8, full of control characters, or as long as a key allows. Some of
    /// those that are not UTF-8 are the same text to Kafka, and thus one id.
    pub odd_ids: bool,
    /// Emptied batches, control batches, delete horizons, append time, producer fields, headers.
    pub odd_batches: bool,
    /// Unknown tags, tags out of order, unknown client versions, states that are never written, bytes behind the
    /// last field, partitions in state Empty.
    pub odd_values: bool,
    /// Unknown versions of keys and values.
    pub unknown_versions: bool,
    /// Missing offsets within, after and between batches and segments; segments without a byte.
    pub gaps: bool,
}

impl Default for Shape {
    /// Everything, in some tens of batches.
    fn default() -> Self {
        Self {
            segments_max: 5,
            batches_per_segment_max: 20,
            records_per_batch_max: 6,
            ids: 12,
            codecs: true,
            odd_ids: true,
            odd_batches: true,
            odd_values: true,
            unknown_versions: true,
            gaps: true,
        }
    }
}

impl Shape {
    /// What brokers write: version 1, one plain record a batch, a few tombstones, no gaps.
    pub fn broker_like() -> Self {
        Self {
            records_per_batch_max: 1,
            codecs: false,
            odd_ids: false,
            odd_batches: false,
            odd_values: false,
            unknown_versions: false,
            gaps: false,
            ..Self::default()
        }
    }
}

/// A log and what must come out of it.
#[derive(Clone, Debug)]
pub struct RandomLog {
    /// The files, by ascending base offset.
    pub segments: Vec<SegmentFile>,
    /// Transactional id, as Kafka decodes it, to its last value.
    pub latest: BTreeMap<String, Latest>,
    /// What a loader must count.
    pub counts: Counts,
    /// Offset after the last batch, or the base offset of the last segment where that is larger.
    pub log_end_offset: i64,
}

/// The last value of an id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Latest {
    /// Log offset of the record.
    pub offset: i64,
    /// The value.
    pub value: TransactionValue,
}

/// What was written, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Bytes of all batches.
    pub bytes: u64,
    /// Batches of any kind.
    pub batches: u64,
    /// Batches without records that are not control batches.
    pub empty_batches: u64,
    /// Control batches, with a record or without.
    pub control_batches: u64,
    /// Places between two batches where offsets are missing.
    pub offset_gaps: u64,
    /// Records outside control batches.
    pub records: u64,
    /// Records with a known key and a null value.
    pub tombstones: u64,
    /// Records with an unknown key version.
    pub unknown_keys: u64,
    /// Records with a known key and an unknown value version.
    pub unknown_values: u64,
}

/// A small generator of pseudo-random numbers (splitmix64): the same seed gives the same log for ever, whatever
/// becomes of other crates.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator that starts at `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.draw() % bound
    }

    /// True once in `times` on average.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// One of the items. Panics on an empty slice.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len() as u64) as usize]
    }
}

/// Draws a log. The same seed and shape give the same descriptions, and the same bytes where no codec is used.
pub fn random_log(seed: u64, shape: &Shape) -> RandomLog {
    let mut writer = Writer {
        rng: Rng::new(seed),
        shape,
        ids: id_pool(shape),
        next_offset: 0,
        last_batch_end: None,
        log: RandomLog {
            segments: Vec::new(),
            latest: BTreeMap::new(),
            counts: Counts::default(),
            log_end_offset: 0,
        },
    };
    writer.write_segments();
    writer.log
}

/// Ids as stored and as Kafka decodes them.
fn id_pool(shape: &Shape) -> Vec<(Vec<u8>, String)> {
    let mut ids: Vec<_> = (0..shape.ids.max(1)).map(|n| format!("txn-{n}")).collect();
    if shape.odd_ids {
        let odd = [
            "",
            "tx-😀",
            "日本語",
            "\u{1b}[31mred",
            "two\nlines",
            "\u{202e}gnp",
            "<script>",
            "=cmd",
            "\0",
            "\u{fffd}",
        ];
        ids.extend(odd.map(str::to_owned));
        ids.push("x".repeat(32_767));
    }
    let mut pool: Vec<_> = ids.into_iter().map(|id| (id.clone().into_bytes(), id)).collect();
    if shape.odd_ids {
        // The first three are one id to Kafka; it also is the last of the valid ones above.
        for (bytes, text) in [
            (&b"\xff"[..], "\u{fffd}"),
            (&b"\xed\xa0\x80"[..], "\u{fffd}"),
            (&b"\xf0\x9f\x98"[..], "\u{fffd}"),
            (&b"a\xc0\x80b"[..], "a\u{fffd}\u{fffd}b"),
            (&b"cut\xe2\x82"[..], "cut\u{fffd}"),
        ] {
            pool.push((bytes.to_vec(), text.to_owned()));
        }
    }
    pool
}

struct Writer<'a> {
    rng: Rng,
    shape: &'a Shape,
    ids: Vec<(Vec<u8>, String)>,
    next_offset: i64,
    last_batch_end: Option<i64>,
    log: RandomLog,
}

impl Writer<'_> {
    fn write_segments(&mut self) {
        let segments = 1 + self.rng.below(self.shape.segments_max.max(1));
        if self.shape.gaps && self.rng.once_in(2) {
            self.next_offset = self.rng.below(1 << 40) as i64;
        }
        for index in 0..segments {
            self.skip_offsets();
            let mut segment = SegmentFile { base_offset: self.next_offset, bytes: Vec::new() };
            // Two segments cannot have one base offset: without gaps only the last one may be empty.
            let batches_min = u64::from(!self.shape.gaps && index + 1 < segments);
            let batches = self.rng.below(self.shape.batches_per_segment_max + 1).max(batches_min);
            for _ in 0..batches {
                self.skip_offsets();
                let batch = self.batch();
                let is_gap = self.last_batch_end.is_some_and(|end| batch.base_offset > end);
                self.log.counts.offset_gaps += u64::from(is_gap);
                self.next_offset = batch.last_offset() + 1;
                self.last_batch_end = Some(self.next_offset);
                let bytes = batch.encode();
                self.log.counts.batches += 1;
                self.log.counts.bytes += bytes.len() as u64;
                segment.bytes.extend(bytes);
            }
            self.log.log_end_offset = self.next_offset;
            if batches == 0 {
                self.next_offset += 1;
            }
            self.log.segments.push(segment);
        }
    }

    fn skip_offsets(&mut self) {
        if self.shape.gaps && self.rng.once_in(5) {
            self.next_offset += 1 + self.rng.below(40) as i64;
        }
    }

    fn batch(&mut self) -> BatchSpec {
        let mut batch = BatchSpec {
            base_offset: self.next_offset,
            partition_leader_epoch: self.rng.below(9) as i32,
            base_timestamp: self.time(),
            ..BatchSpec::default()
        };
        if self.shape.odd_batches {
            match self.rng.below(12) {
                0 => return self.emptied(batch),
                1 => return self.control(batch),
                2 => batch.attributes |= DELETE_HORIZON,
                3 => batch.attributes |= LOG_APPEND_TIME,
                4 => {
                    // Never written to this topic, but a batch all the same.
                    batch.attributes |= TRANSACTIONAL;
                    batch.producer_id = self.rng.below(100) as i64;
                    batch.producer_epoch = self.rng.below(100) as i16;
                    batch.base_sequence = self.rng.below(1 << 31) as i32;
                }
                _ => {}
            }
        }
        if self.shape.codecs && self.rng.once_in(2) {
            batch.codec = *self.rng.pick(&Codec::ALL);
        }
        let records = 1 + self.rng.below(self.shape.records_per_batch_max.max(1));
        let mut offset_delta = 0;
        for _ in 0..records {
            offset_delta += self.gap();
            let record = self.record(batch.base_offset, offset_delta);
            batch.records.push(record);
            offset_delta += 1;
        }
        batch.last_offset_delta = Some(offset_delta - 1 + self.gap());
        batch
    }

    fn gap(&mut self) -> i32 {
        if self.shape.gaps && self.rng.once_in(6) { self.rng.below(9) as i32 } else { 0 }
    }

    fn emptied(&mut self, batch: BatchSpec) -> BatchSpec {
        self.log.counts.empty_batches += 1;
        BatchSpec {
            partition_leader_epoch: batch.partition_leader_epoch,
            ..BatchSpec::emptied(batch.base_offset, self.gap())
        }
    }

    fn control(&mut self, batch: BatchSpec) -> BatchSpec {
        self.log.counts.control_batches += 1;
        let producer_id = self.rng.below(100) as i64;
        match self.rng.below(3) {
            0 => BatchSpec {
                attributes: CONTROL | TRANSACTIONAL,
                producer_id,
                producer_epoch: 0,
                ..BatchSpec::emptied(batch.base_offset, 0)
            },
            1 => BatchSpec {
                producer_id: -1,
                producer_epoch: -1,
                attributes: CONTROL,
                ..BatchSpec::marker(batch.base_offset, 0, 0, true, 3)
            },
            _ => BatchSpec::marker(batch.base_offset, producer_id, 1, self.rng.once_in(2), 7),
        }
    }

    fn record(&mut self, base_offset: i64, offset_delta: i32) -> RecordSpec {
        self.log.counts.records += 1;
        let (id, text) = self.id();
        let mut record = RecordSpec::new(offset_delta, encode_key(0, &id), None);
        record.timestamp_delta = self.rng.below(2000) as i64 - 1000;
        if self.shape.odd_batches && self.rng.once_in(8) {
            record.attributes = self.rng.draw() as i8;
            record.headers = vec![(b"h".to_vec(), Some(vec![1, 2])), (Vec::new(), None)];
        }
        if self.shape.unknown_versions && self.rng.once_in(10) {
            self.log.counts.unknown_keys += 1;
            let version = *self.rng.pick(&[1, 2, -1, i16::MAX, i16::MIN]);
            // What follows an unknown version may be anything, and so may the value.
            record.key = Some([&version.to_be_bytes()[..], b"\x05any"].concat());
            record.value = self.rng.once_in(2).then(|| vec![9]);
        } else if self.rng.once_in(6) {
            self.log.counts.tombstones += 1;
            self.log.latest.remove(&text);
        } else if self.shape.unknown_versions && self.rng.once_in(10) {
            self.log.counts.unknown_values += 1;
            let version: i16 = *self.rng.pick(&[2, 3, -1, i16::MAX, i16::MIN]);
            record.value = Some([&version.to_be_bytes()[..], b"any"].concat());
        } else {
            let value = self.value();
            record.value = Some(value.encode());
            self.log.latest.insert(text, Latest { offset: base_offset + i64::from(offset_delta), value });
        }
        record
    }

    fn id(&mut self) -> (Vec<u8>, String) {
        let mut picked = self.rng.pick(&self.ids).clone();
        if picked.0.len() > 1000 && !self.rng.once_in(8) {
            // The longest id is there to be met, not to fill the log.
            picked = self.ids[0].clone();
        }
        picked
    }

    fn value(&mut self) -> TransactionValue {
        let status = self.rng.below(if self.shape.odd_values { 8 } else { 6 }) as i8;
        let partitions = match status {
            0 if self.shape.odd_values && self.rng.once_in(10) => Some(self.partitions()),
            0 => None,
            4 | 5 => Some(Vec::new()),
            _ => Some(self.partitions()),
        };
        let version = if self.shape.odd_values && self.rng.once_in(3) { 0 } else { 1 };
        let tags = if version == 1 { self.tags() } else { Vec::new() };
        TransactionValue {
            version,
            producer_id: self.rng.below(1 << 40) as i64,
            producer_epoch: self.rng.below(1 << 15) as i16,
            transaction_timeout_ms: *self.rng.pick(&[0, 1, 60_000, i32::MAX]),
            status,
            partitions,
            last_update_timestamp_ms: self.time(),
            start_timestamp_ms: if status == 0 { -1 } else { self.time() },
            tags,
            trailing: if self.shape.odd_values && self.rng.once_in(12) { vec![0, 255] } else { Vec::new() },
        }
    }

    /// Distinct topics, each with at least one partition, as a coordinator writes them: in no order.
    fn partitions(&mut self) -> Vec<TopicPartitions> {
        let topics = 1 + self.rng.below(3);
        let first = self.rng.below(50);
        let mut partitions = Vec::new();
        for topic in 0..topics {
            let ids = 1 + self.rng.below(4);
            let tags = if self.shape.odd_values && self.rng.once_in(8) {
                vec![(7, vec![1, 2, 3])]
            } else {
                Vec::new()
            };
            let first_id = self.rng.below(100) as i32;
            partitions.push(TopicPartitions {
                topic: format!("topic.{}", (first + topic * 17) % 51).into_bytes(),
                partition_ids: (0..ids as i32).map(|id| first_id + id * 31 % 7).collect(),
                tags,
            });
        }
        partitions
    }

    fn tags(&mut self) -> Vec<(u32, Vec<u8>)> {
        let mut tags = Vec::new();
        if self.rng.once_in(2) {
            tags.push((0, self.rng.below(1 << 40).to_be_bytes().to_vec()));
        }
        if self.rng.once_in(4) {
            tags.push((1, self.rng.below(1 << 40).to_be_bytes().to_vec()));
        }
        if self.rng.once_in(2) {
            let versions: &[i16] = if self.shape.odd_values { &[0, 1, 2, 9, -1] } else { &[1, 2] };
            tags.push((2, self.rng.pick(versions).to_be_bytes().to_vec()));
        }
        if self.shape.odd_values {
            if self.rng.once_in(4) {
                tags.push((3, (self.rng.below(1 << 15) as i16).to_be_bytes().to_vec()));
            }
            if self.rng.once_in(4) {
                tags.push((4, vec![0, 1]));
                tags.push((*self.rng.pick(&[300, u32::MAX]), Vec::new()));
            }
            if self.rng.once_in(4) {
                tags.reverse();
            }
        }
        tags
    }

    fn time(&mut self) -> i64 {
        1_700_000_000_000 + self.rng.below(1_000_000_000) as i64
    }
}
