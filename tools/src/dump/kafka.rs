//! The text of kafka-dump-log of Kafka 4.4.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::io::{self, Write};

use redrive::batch::legacy::LegacyMessage;
use redrive::batch::{BatchFrame, Compression, ControlRecord, ControlRecordType, Record};
use redrive::producer_state::ProducerEntry;
use redrive::transaction_log::decode_utf8;

use super::args::DecoderKind;
use super::decoder::{self, Decoded};
use super::event::{Event, RecordEvent, RecordFormat, Sink, Stop, timestamp_type};
use super::json::Dialect;
use crate::text::sanitize;

/// What the options ask of the printed lines.
#[derive(Clone, Copy, Debug)]
pub(super) struct KafkaOptions {
    pub(super) prints_data: bool,
    pub(super) skip_record_metadata: bool,
    pub(super) decoder: DecoderKind,
    /// Hostile characters are escaped: standard output is a terminal.
    pub(super) escape_control: bool,
}

/// Writes Kafka's lines and collects what its tool prints at the end on standard error.
pub(super) struct KafkaSink<'w> {
    out: &'w mut dyn Write,
    options: KafkaOptions,
    /// Paths as given and absolute of the file under way.
    path: String,
    absolute_path: String,
    problems: Vec<(String, Problems)>,
    /// Lines for standard error that Kafka's tool prints at once.
    messages: Vec<String>,
    line: String,
}

/// What is wrong with one file. The order of lines is that of Kafka's tool, whose maps forget all but the last problem
/// with the same first number.
#[derive(Default)]
struct Problems {
    index_mismatches: BTreeMap<i64, i64>,
    timestamp_mismatches: Vec<(i64, i64)>,
    out_of_order: Vec<(i64, i64)>,
    not_found: Vec<(i64, i64)>,
    non_consecutive: BTreeMap<i64, i64>,
}

/// An optional number as Java prints it.
struct OptionalLong(Option<i64>);

impl fmt::Display for OptionalLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(value) => write!(f, "OptionalLong[{value}]"),
            None => f.write_str("OptionalLong.empty"),
        }
    }
}

/// Appends formatted text to the line; writing to a string cannot fail.
macro_rules! push {
    ($line:expr, $($format:tt)+) => {{
        let _ = write!($line, $($format)+);
    }};
}

impl<'w> KafkaSink<'w> {
    pub(super) fn new(out: &'w mut dyn Write, options: KafkaOptions) -> Self {
        let (path, absolute_path) = (String::new(), String::new());
        Self {
            out,
            options,
            path,
            absolute_path,
            problems: Vec::new(),
            messages: Vec::new(),
            line: String::new(),
        }
    }

    /// Begins a file.
    pub(super) fn begin(&mut self, path: &str, absolute_path: &str) -> Result<(), Stop> {
        path.clone_into(&mut self.path);
        absolute_path.clone_into(&mut self.absolute_path);
        push!(self.line, "Dumping {path}");
        self.end_line()
    }

    /// A file that Kafka's tool does not know.
    pub(super) fn unknown_file(&mut self) {
        self.messages.push(format!("Ignoring unknown file {}", self.path));
    }

    fn problems(&mut self) -> &mut Problems {
        let at =
            self.problems.iter().position(|(path, _)| *path == self.absolute_path).unwrap_or_else(|| {
                self.problems.push((self.absolute_path.clone(), Problems::default()));
                self.problems.len() - 1
            });
        &mut self.problems[at].1
    }

    /// Writes what is in `line`, without a line end.
    fn write_line(&mut self) -> Result<(), Stop> {
        if self.options.escape_control {
            self.out.write_all(sanitize(&self.line).as_bytes())?;
        } else {
            self.out.write_all(self.line.as_bytes())?;
        }
        self.line.clear();
        // One huge record must not hold memory until the end.
        self.line.shrink_to(1 << 20);
        Ok(())
    }

    fn end_line(&mut self) -> Result<(), Stop> {
        self.write_line()?;
        Ok(self.out.write_all(b"\n")?)
    }

    /// Leaves the line unfinished, as Kafka's tool does where it fails.
    fn fail(&mut self, offset: i64, position: u64, reason: impl ToString) -> Result<(), Stop> {
        self.write_line()?;
        Err(Stop::damaged(Some(offset), Some(position), reason))
    }

    /// Everything for standard error, after the last file or the failure.
    ///
    /// # Errors
    /// What the writer says.
    pub(super) fn finish(self, ended: bool, err: &mut dyn Write) -> io::Result<()> {
        let mut text = String::new();
        for message in &self.messages {
            push!(text, "{message}\n");
        }
        // A tool that has failed does not come to its summary.
        for (path, problems) in self.problems.iter().filter(|_| !ended) {
            problems.push(path, &mut text);
        }
        if self.options.escape_control {
            for line in text.lines() {
                writeln!(err, "{}", sanitize(line))?;
            }
            Ok(())
        } else {
            err.write_all(text.as_bytes())
        }
    }

    fn batch(
        &mut self,
        frame: &BatchFrame<'_>,
        magic: i8,
        position: u64,
        is_valid: bool,
    ) -> Result<(), Stop> {
        push!(
            self.line,
            "baseOffset: {} lastOffset: {} count: {} baseSequence: {} lastSequence: {} producerId: {} \
             producerEpoch: {} partitionLeaderEpoch: {} isTransactional: {} isControl: {} deleteHorizonMs: {}",
            frame.base_offset(),
            frame.last_offset(),
            frame.records_count(),
            frame.base_sequence(),
            frame.last_sequence(),
            frame.producer_id(),
            frame.producer_epoch(),
            frame.partition_leader_epoch(),
            frame.is_transactional(),
            frame.is_control(),
            OptionalLong(frame.delete_horizon_ms())
        );
        let head = BatchEnd {
            position,
            timestamp_type: timestamp_type(magic, frame.is_log_append_time()),
            timestamp: frame.max_timestamp(),
            size: frame.size(),
            magic,
            compression: frame.compression(),
            crc: frame.crc(),
            is_valid,
        };
        self.batch_end(frame.base_offset().0, &head)
    }

    fn legacy(&mut self, message: &LegacyMessage<'_>, position: u64, is_valid: bool) -> Result<(), Stop> {
        push!(self.line, "offset: {}", message.offset());
        let end = BatchEnd {
            position,
            timestamp_type: timestamp_type(message.magic(), message.is_log_append_time()),
            timestamp: message.timestamp(),
            size: message.size(),
            magic: message.magic(),
            compression: message.compression(),
            crc: message.crc(),
            is_valid,
        };
        self.batch_end(message.offset().0, &end)
    }

    fn batch_end(&mut self, offset: i64, end: &BatchEnd) -> Result<(), Stop> {
        let compression = match end.compression {
            Ok(compression) => compression,
            Err(id) => {
                return self.fail(offset, end.position, format!("compression codec id {id} is not defined"));
            }
        };
        push!(
            self.line,
            " position: {} {}: {} size: {} magic: {} compresscodec: {} crc: {} isvalid: {}",
            end.position,
            end.timestamp_type,
            end.timestamp,
            end.size,
            end.magic,
            compression,
            end.crc,
            end.is_valid
        );
        self.end_line()
    }

    fn record(&mut self, event: &RecordEvent<'_>) -> Result<(), Stop> {
        let is_control = matches!(event.format, RecordFormat::Current { is_control: true, .. });
        let with_metadata = !self.options.skip_record_metadata;
        if with_metadata {
            self.record_metadata(event);
        }
        match event.format {
            RecordFormat::Current { record, is_control: true, position } => {
                if with_metadata {
                    self.control(&record, position)?;
                }
            }
            _ if self.options.prints_data => {}
            _ => return self.end_line(),
        }
        if self.options.prints_data && !is_control {
            self.data(event)?;
        }
        self.end_line()
    }

    fn record_metadata(&mut self, event: &RecordEvent<'_>) {
        let size = |bytes: Option<&[u8]>| bytes.map_or(-1, |bytes| bytes.len() as i64);
        push!(
            self.line,
            "| offset: {} {}: {} keySize: {} valueSize: {}",
            event.offset,
            event.timestamp_type,
            event.timestamp,
            size(event.key),
            size(event.value)
        );
        match event.format {
            RecordFormat::Legacy { is_valid, crc } => push!(self.line, " isValid: {is_valid} crc: {crc}"),
            RecordFormat::Current { record, .. } => {
                push!(self.line, " sequence: {} headerKeys: [", record.sequence);
                for (number, header) in record.headers().enumerate() {
                    if number > 0 {
                        self.line.push(',');
                    }
                    self.line.push_str(&decode_utf8(header.key));
                }
                self.line.push(']');
            }
        }
    }

    fn control(&mut self, record: &Record<'_>, position: u64) -> Result<(), Stop> {
        let offset = record.offset.0;
        let control = match ControlRecord::parse(record) {
            Ok(control) => control,
            Err(fault) => return self.fail(offset, position, fault),
        };
        if let Some(marker) = control.marker {
            let (name, epoch) = (control.kind.name(), marker.coordinator_epoch);
            push!(self.line, " endTxnMarker: {name} coordinatorEpoch: {epoch}");
            return Ok(());
        }
        match (control.kind, decoder::kraft_control(control.kind.code(), control.value, Dialect::Kafka)) {
            (ControlRecordType::Kraft(_), Some(Ok((label, json)))) => push!(self.line, " {label} {json}"),
            (ControlRecordType::Kraft(_), Some(Err(reason))) => return self.fail(offset, position, reason),
            (kind, _) => push!(self.line, " controlType: UNKNOWN({})", kind.code()),
        }
        Ok(())
    }

    fn data(&mut self, event: &RecordEvent<'_>) -> Result<(), Stop> {
        if self.options.decoder == DecoderKind::Plain {
            let text = |bytes| decode_utf8(bytes);
            self.key_and_payload(event.key.map(text).as_deref(), event.value.map(text).as_deref());
            return Ok(());
        }
        let Some(key) = event.key else {
            self.write_line()?;
            return Err(Stop::damaged(Some(event.offset), None, "the record has no key to decode"));
        };
        match decoder::decode(self.options.decoder, event.offset, key, event.value, Dialect::Kafka) {
            Decoded::Record { key, value } => {
                self.key_and_payload(Some(&key), Some(value.as_deref().unwrap_or("<DELETE>")));
            }
            Decoded::Unknown(sentence) | Decoded::Failed(sentence) => {
                self.key_and_payload(Some(&sentence), None);
            }
        }
        Ok(())
    }

    fn key_and_payload(&mut self, key: Option<&str>, payload: Option<&str>) {
        for (name, text) in [("key", key), ("payload", payload)] {
            let Some(text) = text else { continue };
            if self.line.is_empty() {
                self.line.push('|');
            }
            push!(self.line, " {name}: {text}");
        }
    }

    fn producer(&mut self, entry: &ProducerEntry) -> Result<(), Stop> {
        push!(
            self.line,
            "producerId: {} producerEpoch: {} coordinatorEpoch: {} currentTxnFirstOffset: {} lastTimestamp: {}",
            entry.producer_id,
            entry.producer_epoch,
            entry.coordinator_epoch,
            OptionalLong(entry.current_txn_first_offset.map(|offset| offset.0)),
            entry.last_timestamp
        );
        if let Some(batch) = entry.last_batch {
            push!(
                self.line,
                " firstSequence: {} lastSequence: {} lastOffset: {} offsetDelta: {} timestamp: {}",
                batch.first_sequence(),
                batch.last_sequence,
                batch.last_offset,
                batch.offset_delta,
                entry.last_timestamp
            );
        }
        self.end_line()
    }
}

/// The part of a batch line that all formats share.
struct BatchEnd {
    position: u64,
    timestamp_type: &'static str,
    timestamp: i64,
    size: usize,
    magic: i8,
    compression: Result<Compression, u8>,
    crc: u32,
    is_valid: bool,
}

impl Problems {
    fn push(&self, path: &str, text: &mut String) {
        let mut section = |heading: String, lines: &mut dyn Iterator<Item = String>| {
            let mut lines = lines.peekable();
            if lines.peek().is_some() {
                push!(text, "{heading}\n");
                lines.for_each(|line| push!(text, "{line}\n"));
            }
        };
        section(
            format!("Mismatches in :{path}"),
            &mut self
                .index_mismatches
                .iter()
                .rev()
                .map(|(index, log)| format!("  Index offset: {index}, log offset: {log}")),
        );
        section(
            format!("Found timestamp mismatch in :{path}"),
            &mut self
                .timestamp_mismatches
                .iter()
                .map(|(index, log)| format!("  Index timestamp: {index}, log timestamp: {log}")),
        );
        section(
            format!("Found out of order timestamp in :{path}"),
            &mut self.out_of_order.iter().map(|(index, previous)| {
                format!("  Index timestamp: {index}, Previously indexed timestamp: {previous}")
            }),
        );
        section(
            format!("The following indexed offsets are not found in :{path}"),
            &mut self
                .not_found
                .iter()
                .map(|(index, log)| format!("Indexed offset: {index}, found log offset: {log}")),
        );
        section(
            format!("Non-consecutive offsets in {path}"),
            &mut self
                .non_consecutive
                .iter()
                .map(|(previous, this)| format!("  {previous} is followed by {this}")),
        );
    }
}

impl Sink for KafkaSink<'_> {
    fn event(&mut self, event: Event<'_>) -> Result<(), Stop> {
        match event {
            Event::Batch { frame, magic, position, is_valid } => {
                return self.batch(&frame, magic, position, is_valid);
            }
            Event::Legacy { message, position, is_valid } => {
                return self.legacy(&message, position, is_valid);
            }
            Event::Record(record) => return self.record(&record),
            Event::Producer(entry) => return self.producer(entry),
            Event::NegativeMagic { offset } => {
                push!(self.line, "offset: {offset}");
                return self.write_line();
            }
            Event::LogStart(base) => push!(self.line, "Log starting offset: {base}"),
            Event::SnapshotStart { end_offset, epoch } => {
                push!(self.line, "Snapshot end offset: {end_offset}, epoch: {epoch}");
            }
            Event::Tail { bytes } => {
                let name = self.path.rsplit('/').next().unwrap_or_default();
                push!(self.line, "Found {bytes} invalid bytes at the end of {name}");
            }
            Event::EmptyIndex => push!(self.line, "{} is empty.", self.path),
            Event::Sane => push!(self.line, "{} passed sanity check.", self.path),
            Event::OffsetIndexEntry { offset, position } => {
                push!(self.line, "offset: {offset} position: {position}");
            }
            Event::TimeIndexEntry { timestamp, offset } => {
                push!(self.line, "timestamp: {timestamp} offset: {offset}");
            }
            Event::Aborted(entry) => push!(
                self.line,
                "version: 0 producerId: {} firstOffset: {} lastOffset: {} lastStableOffset: {}",
                entry.producer_id,
                entry.first_offset,
                entry.last_offset,
                entry.last_stable_offset
            ),
            Event::NonConsecutive { previous, offset } => {
                self.problems().non_consecutive.insert(previous, offset);
                return Ok(());
            }
            Event::IndexMismatch { index_offset, log_offset } => {
                self.problems().index_mismatches.insert(index_offset, log_offset);
                return Ok(());
            }
            Event::TimestampMismatch { index_timestamp, log_timestamp } => {
                self.problems().timestamp_mismatches.push((index_timestamp, log_timestamp));
                return Ok(());
            }
            Event::TimestampOutOfOrder { timestamp, previous } => {
                self.problems().out_of_order.push((timestamp, previous));
                return Ok(());
            }
            Event::OffsetNotFound { index_offset, log_offset } => {
                self.problems().not_found.push((index_offset, log_offset));
                return Ok(());
            }
            Event::BadSnapshot { kafka, .. } => {
                self.messages.push(kafka);
                return Ok(());
            }
            // Of our own formats only.
            Event::Padding { .. } | Event::Item(..) | Event::Problem(_) => return Ok(()),
        }
        self.end_line()
    }
}
