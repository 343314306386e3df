//! Our own formats: a line of text, or a JSON object, for everything found.

use std::fmt::Write as _;
use std::io::{self, Write};

use redrive::batch::legacy::LegacyMessage;
use redrive::batch::{BatchFrame, Compression, ControlRecord, Record};
use redrive::producer_state::ProducerEntry;
use redrive::transaction_log::decode_utf8;

use super::args::{DecoderKind, DumpFormat};
use super::decoder::{self, Decoded};
use super::event::{Damage, Event, FieldValue, RecordEvent, RecordFormat, Sink, Stop, timestamp_type};
use super::json::{self, Dialect};
use crate::text::sanitize;

/// What the options ask of the output.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnOptions {
    pub(super) format: DumpFormat,
    pub(super) prints_data: bool,
    pub(super) skip_record_metadata: bool,
    pub(super) decoder: DecoderKind,
}

/// Writes our own formats; damage goes to standard error as well.
pub(super) struct OwnSink<'w> {
    out: &'w mut dyn Write,
    err: &'w mut dyn Write,
    options: OwnOptions,
    path: String,
    files: usize,
    items: usize,
    found_wrong: bool,
}

/// One line or object under construction.
struct Item {
    is_json: bool,
    text: String,
}

impl Item {
    fn new(is_json: bool, kind: &str) -> Self {
        let mut item = Self { is_json, text: String::new() };
        if is_json {
            item.text.push('{');
            item.word("kind", kind);
        } else {
            item.text.push_str(kind);
        }
        item
    }

    fn name(&mut self, name: &str) {
        if self.is_json {
            json::push_name(&mut self.text, name);
        } else {
            let _ = write!(self.text, " {name}=");
        }
    }

    fn number(&mut self, name: &str, value: impl Into<i128>) {
        self.name(name);
        let _ = write!(self.text, "{}", value.into());
    }

    fn number_or_null(&mut self, name: &str, value: Option<i64>) {
        match value {
            Some(value) => self.number(name, value),
            None => self.raw(name, "null"),
        }
    }

    fn flag(&mut self, name: &str, value: bool) {
        self.raw(name, if value { "true" } else { "false" });
    }

    /// A word of ours: no quotation marks in text.
    fn word(&mut self, name: &str, word: &str) {
        if self.is_json { self.string(name, word) } else { self.raw(name, word) }
    }

    fn string(&mut self, name: &str, text: &str) {
        self.name(name);
        json::push_string(&mut self.text, text, Dialect::Safe);
    }

    /// Bytes: base64 in JSON, escaped text for people.
    fn bytes(&mut self, name: &str, bytes: Option<&[u8]>) {
        self.name(name);
        match bytes {
            None => self.text.push_str("null"),
            Some(bytes) if self.is_json => json::push_base64(&mut self.text, bytes),
            Some(bytes) => json::push_utf8(&mut self.text, bytes, Dialect::Safe),
        }
    }

    /// JSON text.
    fn raw(&mut self, name: &str, json: &str) {
        self.name(name);
        self.text.push_str(json);
    }
}

impl<'w> OwnSink<'w> {
    pub(super) fn new(out: &'w mut dyn Write, err: &'w mut dyn Write, options: OwnOptions) -> Self {
        Self { out, err, options, path: String::new(), files: 0, items: 0, found_wrong: false }
    }

    fn item(&self, kind: &str) -> Item {
        Item::new(self.options.format != DumpFormat::Text, kind)
    }

    /// Begins the output, once.
    pub(super) fn begin(&mut self) -> io::Result<()> {
        if self.options.format == DumpFormat::Json { self.out.write_all(b"{\"files\":[") } else { Ok(()) }
    }

    /// Begins a file of this kind.
    pub(super) fn begin_file(&mut self, path: &str, kind: &str) -> io::Result<()> {
        path.clone_into(&mut self.path);
        let mut text = String::new();
        match self.options.format {
            DumpFormat::Json => {
                text.push_str(if self.files > 0 { ",\n{" } else { "\n{" });
                json::push_name(&mut text, "path");
                json::push_string(&mut text, path, Dialect::Safe);
                json::push_name(&mut text, "fileKind");
                json::push_string(&mut text, kind, Dialect::Safe);
                json::push_name(&mut text, "items");
                text.push('[');
            }
            _ => {
                let mut item = self.item("file");
                item.string("path", path);
                item.word("fileKind", kind);
                text = item.text;
                text.push_str(if item.is_json { "}\n" } else { "\n" });
            }
        }
        self.files += 1;
        self.items = 0;
        self.out.write_all(text.as_bytes())
    }

    /// Ends a file, with what ended it early.
    pub(super) fn end_file(&mut self, damage: Option<Damage>) -> Result<(), Stop> {
        if let Some(damage) = damage {
            self.problem(&damage)?;
        }
        if self.options.format == DumpFormat::Json {
            self.out.write_all(b"]}")?;
        }
        Ok(())
    }

    /// Ends the output; whether anything was wrong.
    pub(super) fn finish(self) -> io::Result<bool> {
        if self.options.format == DumpFormat::Json {
            self.out.write_all(b"\n]}\n")?;
        }
        Ok(self.found_wrong)
    }

    fn write(&mut self, mut item: Item, indent: &str) -> Result<(), Stop> {
        match self.options.format {
            DumpFormat::Json => {
                item.text.insert_str(0, if self.items > 0 { ",\n" } else { "\n" });
                item.text.push('}');
            }
            DumpFormat::Ndjson => item.text.push_str("}\n"),
            _ => {
                item.text.insert_str(0, indent);
                item.text.push('\n');
            }
        }
        self.items += 1;
        Ok(self.out.write_all(item.text.as_bytes())?)
    }

    fn problem(&mut self, damage: &Damage) -> Result<(), Stop> {
        self.found_wrong = true;
        if self.options.format != DumpFormat::Text {
            let mut item = self.item("error");
            item.string("path", &self.path);
            item.number_or_null("offset", damage.offset);
            item.name("position");
            match damage.position {
                Some(position) => push_display(&mut item.text, position),
                None => item.text.push_str("null"),
            }
            item.string("reason", &damage.reason);
            self.write(item, "")?;
        }
        // Where both streams lead to the same terminal, the order should be that of the file.
        self.out.flush()?;
        let mut place = String::new();
        if let Some(offset) = damage.offset {
            let _ = write!(place, " at offset {offset}");
        }
        if let Some(position) = damage.position {
            let _ = write!(place, "{} byte {position}", if place.is_empty() { " at" } else { "," });
        }
        let sentence = format!("{}{place}: {}", self.path, damage.reason);
        Ok(writeln!(self.err, "{}", sanitize(&sentence))?)
    }

    fn wrong(&mut self, offset: Option<i64>, position: Option<u64>, reason: String) -> Result<(), Stop> {
        self.problem(&Damage { offset, position, reason })
    }

    fn batch(
        &mut self,
        frame: &BatchFrame<'_>,
        magic: i8,
        position: u64,
        is_valid: bool,
    ) -> Result<(), Stop> {
        let mut item = self.item("batch");
        item.number("baseOffset", frame.base_offset().0);
        item.number("lastOffset", frame.last_offset().0);
        item.number("count", frame.records_count());
        item.number("baseSequence", frame.base_sequence());
        item.number("lastSequence", frame.last_sequence());
        item.number("producerId", frame.producer_id().0);
        item.number("producerEpoch", frame.producer_epoch());
        item.number("partitionLeaderEpoch", frame.partition_leader_epoch());
        item.flag("isTransactional", frame.is_transactional());
        item.flag("isControl", frame.is_control());
        item.number_or_null("deleteHorizonMs", frame.delete_horizon_ms());
        item.number("position", position);
        item.word("timestampType", timestamp_type(magic, frame.is_log_append_time()));
        item.number("maxTimestamp", frame.max_timestamp());
        item.number("size", frame.size() as u64);
        item.number("magic", magic);
        codec(&mut item, frame.compression());
        item.number("crc", frame.crc());
        item.flag("isValid", is_valid);
        self.write(item, "")
    }

    fn legacy(&mut self, message: &LegacyMessage<'_>, position: u64, is_valid: bool) -> Result<(), Stop> {
        let mut item = self.item("message");
        item.number("offset", message.offset().0);
        item.number("position", position);
        item.word("timestampType", timestamp_type(message.magic(), message.is_log_append_time()));
        item.number("timestamp", message.timestamp());
        item.number("size", message.size() as u64);
        item.number("magic", message.magic());
        codec(&mut item, message.compression());
        item.number("crc", message.crc());
        item.flag("isValid", is_valid);
        self.write(item, "")
    }

    fn record(&mut self, event: &RecordEvent<'_>) -> Result<(), Stop> {
        let mut item = self.item("record");
        item.number("offset", event.offset);
        if !self.options.skip_record_metadata {
            record_metadata(&mut item, event);
        }
        let mut failed = None;
        match event.format {
            RecordFormat::Current { record, is_control: true, position } => {
                failed = control(&mut item, &record).map(|reason| (Some(position), reason));
            }
            _ if self.options.prints_data => {
                failed = self.data(&mut item, event).map(|reason| (None, reason));
            }
            _ => {}
        }
        self.write(item, "  ")?;
        match failed {
            Some((position, reason)) => self.wrong(Some(event.offset), position, reason),
            None => Ok(()),
        }
    }

    /// Adds key and value, and what the decoder makes of them; why it could not, if that is damage. People get the
    /// bytes only where there is nothing better.
    fn data(&self, item: &mut Item, event: &RecordEvent<'_>) -> Option<String> {
        let decoded = match (self.options.decoder, event.key) {
            (DecoderKind::Plain, _) => None,
            (_, None) => Some(Decoded::Failed("the record has no key to decode".to_owned())),
            (kind, Some(key)) => Some(decoder::decode(kind, event.offset, key, event.value, Dialect::Safe)),
        };
        if item.is_json || !matches!(decoded, Some(Decoded::Record { .. })) {
            item.bytes("key", event.key);
            item.bytes("value", event.value);
        }
        match decoded? {
            Decoded::Record { key, value } => {
                item.raw("decodedKey", &key);
                item.raw("decodedValue", value.as_deref().unwrap_or("null"));
                None
            }
            Decoded::Unknown(sentence) => {
                item.string("unknown", &sentence);
                None
            }
            Decoded::Failed(sentence) => Some(sentence),
        }
    }

    fn producer(&mut self, entry: &ProducerEntry) -> Result<(), Stop> {
        let mut item = self.item("producer");
        item.number("producerId", entry.producer_id.0);
        item.number("producerEpoch", entry.producer_epoch);
        item.number("coordinatorEpoch", entry.coordinator_epoch);
        item.number_or_null("currentTxnFirstOffset", entry.current_txn_first_offset.map(|offset| offset.0));
        item.number("lastTimestamp", entry.last_timestamp);
        if let Some(batch) = entry.last_batch {
            item.number("firstSequence", batch.first_sequence());
            item.number("lastSequence", batch.last_sequence);
            item.number("lastOffset", batch.last_offset.0);
            item.number("offsetDelta", batch.offset_delta);
        }
        self.write(item, "")
    }

    fn numbers(&mut self, kind: &str, fields: &[(&str, i64)]) -> Result<(), Stop> {
        let mut item = self.item(kind);
        fields.iter().for_each(|&(name, value)| item.number(name, value));
        self.write(item, "")
    }
}

fn push_display(out: &mut String, value: u64) {
    let _ = write!(out, "{value}");
}

fn codec(item: &mut Item, compression: Result<Compression, u8>) {
    match compression {
        Ok(compression) => item.word("compressionCodec", compression.name()),
        Err(id) => item.number("compressionCodec", id),
    }
}

fn record_metadata(item: &mut Item, event: &RecordEvent<'_>) {
    let size = |bytes: Option<&[u8]>| bytes.map_or(-1, |bytes| bytes.len() as i64);
    item.word("timestampType", event.timestamp_type);
    item.number("timestamp", event.timestamp);
    item.number("keySize", size(event.key));
    item.number("valueSize", size(event.value));
    match event.format {
        RecordFormat::Legacy { is_valid, crc } => {
            item.flag("isValid", is_valid);
            item.number("crc", crc);
        }
        RecordFormat::Current { record, .. } => {
            item.number("sequence", record.sequence);
            item.name("headers");
            item.text.push('[');
            for header in record.headers() {
                json::separate(&mut item.text);
                header_fields(&mut item.text, header.key, header.value, item.is_json);
            }
            item.text.push(']');
        }
    }
}

/// A header as an object in JSON, as `key=value` for people.
fn header_fields(out: &mut String, key: &[u8], value: Option<&[u8]>, is_json: bool) {
    if !is_json {
        json::push_utf8(out, key, Dialect::Safe);
        out.push('=');
        match value {
            Some(value) => json::push_utf8(out, value, Dialect::Safe),
            None => out.push_str("null"),
        }
        return;
    }
    out.push('{');
    json::push_name(out, "key");
    let text = decode_utf8(key);
    json::push_string(out, &text, Dialect::Safe);
    if text.as_bytes() != key {
        json::push_name(out, "keyBase64");
        json::push_base64(out, key);
    }
    json::push_name(out, "value");
    match value {
        Some(value) => json::push_base64(out, value),
        None => out.push_str("null"),
    }
    out.push('}');
}

/// Adds what a control record says; why it could not be read.
fn control(item: &mut Item, record: &Record<'_>) -> Option<String> {
    let control = match ControlRecord::parse(record) {
        Ok(control) => control,
        Err(fault) => return Some(fault.to_string()),
    };
    item.word("controlType", control.kind.name());
    if let Some(marker) = control.marker {
        item.number("coordinatorEpoch", marker.coordinator_epoch);
        return None;
    }
    item.number("controlTypeId", control.kind.code());
    match decoder::kraft_control(control.kind.code(), control.value, Dialect::Safe) {
        Some(Ok((_, json))) => item.raw("controlValue", &json),
        Some(Err(reason)) => return Some(reason),
        None => item.bytes("value", control.value),
    }
    None
}

impl Sink for OwnSink<'_> {
    fn event(&mut self, event: Event<'_>) -> Result<(), Stop> {
        match event {
            Event::LogStart(base) => self.numbers("log", &[("logStartingOffset", base)]),
            Event::SnapshotStart { end_offset, epoch } => {
                self.numbers("snapshot", &[("endOffset", end_offset), ("epoch", epoch.into())])
            }
            Event::Batch { frame, magic, position, is_valid } => {
                self.batch(&frame, magic, position, is_valid)
            }
            Event::Legacy { message, position, is_valid } => self.legacy(&message, position, is_valid),
            Event::Record(record) => self.record(&record),
            Event::Producer(entry) => self.producer(entry),
            Event::Aborted(entry) => self.numbers(
                "abortedTransaction",
                &[
                    ("producerId", entry.producer_id.0),
                    ("firstOffset", entry.first_offset.0),
                    ("lastOffset", entry.last_offset.0),
                    ("lastStableOffset", entry.last_stable_offset.0),
                ],
            ),
            Event::Tail { bytes } => {
                self.numbers("tail", &[("invalidBytes", i64::try_from(bytes).unwrap_or(i64::MAX))])
            }
            Event::EmptyIndex => self.numbers("emptyIndex", &[]),
            Event::Sane => self.numbers("passedSanityCheck", &[]),
            Event::Padding { bytes } => {
                self.numbers("padding", &[("bytes", i64::try_from(bytes).unwrap_or(i64::MAX))])
            }
            Event::OffsetIndexEntry { offset, position } => {
                self.numbers("offsetIndexEntry", &[("offset", offset), ("position", position.into())])
            }
            Event::TimeIndexEntry { timestamp, offset } => {
                self.numbers("timeIndexEntry", &[("timestamp", timestamp), ("offset", offset)])
            }
            Event::NonConsecutive { previous, offset } if offset <= previous => {
                self.wrong(Some(offset), None, format!("the record follows one with offset {previous}"))
            }
            // Gaps are what compaction leaves, and a message before version 2 shows its magic in the error.
            Event::NonConsecutive { .. } | Event::NegativeMagic { .. } => Ok(()),
            Event::IndexMismatch { index_offset, log_offset } => self.wrong(
                Some(index_offset),
                None,
                format!("the batch that the index entry points at ends with offset {log_offset}"),
            ),
            Event::TimestampMismatch { index_timestamp, log_timestamp } => self.wrong(
                None,
                None,
                format!("time index entry with timestamp {index_timestamp}, the batch has {log_timestamp}"),
            ),
            Event::TimestampOutOfOrder { timestamp, previous } => self.wrong(
                None,
                None,
                format!("time index entry with timestamp {timestamp} after {previous}"),
            ),
            Event::OffsetNotFound { index_offset, log_offset: -1 } => {
                self.wrong(Some(index_offset), None, "no batch ends with the offset of the entry".to_owned())
            }
            Event::OffsetNotFound { index_offset, log_offset } => self.wrong(
                Some(index_offset),
                None,
                format!("no batch ends with the offset of the entry, the next one ends with {log_offset}"),
            ),
            Event::BadSnapshot { reason, .. } => self.wrong(None, None, reason),
            Event::Item(kind, fields) => {
                let mut item = self.item(kind);
                for (name, value) in fields {
                    match value {
                        FieldValue::Number(value) => item.number(name, value),
                        FieldValue::Text(text) => item.string(name, &text),
                        FieldValue::Null => item.raw(name, "null"),
                    }
                }
                self.write(item, "")
            }
            Event::Problem(damage) => self.problem(&damage),
        }
    }
}
