//! The walk over a log.

use std::borrow::Cow;

use redrive::batch::legacy::LegacyMessage;
use redrive::batch::{Batch, BatchFrame, CrcMismatch, Decompressor, FrameFault, Limits, Record};

use super::event::{Damage, Event, RecordEvent, RecordFormat, Sink, Stop, timestamp_type};
use super::input::{Found, LogFile};

/// How a log is gone through.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogOptions {
    /// Records, too.
    pub(super) is_deep: bool,
    /// Only so many bytes of the file.
    pub(super) bytes_max: Option<u64>,
    /// Ends where Kafka's tool ends, and where it goes on, goes on.
    pub(super) as_kafka: bool,
}

/// A batch of one of the two families of formats.
pub(super) enum AnyBatch<'a> {
    Current(Batch<'a>),
    Legacy(LegacyMessage<'a>),
}

/// Sorts the bytes of a batch by their format. A magic above 2 is read as 2, from a copy.
///
/// # Errors
/// A [`FrameFault`] of the bytes; none is expected, since their size was checked.
pub(super) fn sort<'a>(bytes: &'a mut Cow<'_, [u8]>, magic: i8) -> Result<AnyBatch<'a>, FrameFault> {
    if magic < 2 {
        return LegacyMessage::parse(bytes).map(|(message, _)| AnyBatch::Legacy(message));
    }
    if magic > 2 {
        bytes.to_mut()[16] = 2;
    }
    BatchFrame::unchecked_fields(bytes).map(|frame| AnyBatch::Current(frame.without_crc_check()))
}

/// Walks a log from its first byte.
///
/// # Errors
/// [`Stop`]: what Kafka's tool ends with, or what hides everything behind it.
pub(super) fn walk(log: &mut LogFile, options: LogOptions, sink: &mut dyn Sink) -> Result<(), Stop> {
    let end = options.bytes_max.unwrap_or(u64::MAX);
    let mut state = Walk { options, sink, decompressor: Decompressor::new(), previous: -1 };
    let mut position = 0;
    let mut previous_last = None;
    loop {
        match log.batch_at(position, end)? {
            Found::Batch { bytes, magic } => {
                let size = bytes.len() as u64;
                if magic > 2 && !options.as_kafka {
                    return Err(Stop::damaged(None, Some(position), FrameFault::Magic { magic }));
                }
                let mut bytes = Cow::Borrowed(bytes);
                let batch =
                    sort(&mut bytes, magic).map_err(|fault| Stop::damaged(None, Some(position), fault))?;
                let last = match &batch {
                    AnyBatch::Current(batch) => state.current(batch, magic, position, previous_last)?,
                    AnyBatch::Legacy(message) => state.legacy(message, position)?,
                };
                previous_last = Some(last);
                position += size;
            }
            Found::End { left: 0, .. } => return Ok(()),
            Found::End { left, fault } => {
                // With a limit, bytes left over say nothing about the file.
                if options.bytes_max.is_some() {
                    return Ok(());
                }
                state.sink.event(Event::Tail { bytes: left })?;
                if let Some(fault) = fault {
                    state.problem(None, position, fault)?;
                }
                return Ok(());
            }
            Found::NegativeMagic { offset } => {
                state.sink.event(Event::NegativeMagic { offset })?;
                let magic = -1;
                return Err(Stop::damaged(Some(offset), Some(position), FrameFault::Magic { magic }));
            }
            Found::Bad(fault) => return Err(Stop::damaged(None, Some(position), fault)),
        }
    }
}

struct Walk<'s> {
    options: LogOptions,
    sink: &'s mut dyn Sink,
    decompressor: Decompressor,
    /// Offset of the record before; Kafka's tool starts with −1 in every file.
    previous: i64,
}

impl Walk<'_> {
    /// Reports damage that Kafka's tool does not speak of.
    fn problem(&mut self, offset: Option<i64>, position: u64, reason: impl ToString) -> Result<(), Stop> {
        if self.options.as_kafka {
            return Ok(());
        }
        let reason = reason.to_string();
        self.sink.event(Event::Problem(Damage { offset, position: Some(position), reason }))
    }

    /// Damage at which Kafka's tool ends, while our own formats go on behind the batch.
    fn fatal(&mut self, offset: i64, position: u64, reason: impl ToString) -> Result<(), Stop> {
        if self.options.as_kafka {
            return Err(Stop::damaged(Some(offset), Some(position), reason));
        }
        self.problem(Some(offset), position, reason)
    }

    /// Shows a batch of magic 2 or above and returns its last offset.
    fn current(
        &mut self,
        batch: &Batch<'_>,
        magic: i8,
        position: u64,
        previous_last: Option<i64>,
    ) -> Result<i64, Stop> {
        let frame = *batch.frame();
        let base = frame.base_offset().0;
        let crc = frame.verify().err();
        self.sink.event(Event::Batch { frame, magic, position, is_valid: crc.is_none() })?;
        self.crc_problem(crc, base, position)?;
        if let Err(fault) = BatchFrame::new(frame.bytes()) {
            self.problem(Some(base), position, fault)?;
        }
        if previous_last.is_some_and(|last| base <= last) {
            let last = previous_last.unwrap_or_default();
            self.problem(
                Some(base),
                position,
                format!("the offset is not above {last}, the last one before it"),
            )?;
        }
        if self.options.is_deep {
            self.records(batch, magic, position)?;
        } else if let Err(id) = frame.compression() {
            self.problem(Some(base), position, format!("compression codec id {id} is not defined"))?;
        }
        Ok(frame.last_offset().0)
    }

    fn crc_problem(&mut self, crc: Option<CrcMismatch>, offset: i64, position: u64) -> Result<(), Stop> {
        crc.map_or(Ok(()), |crc| self.problem(Some(offset), position, crc))
    }

    fn records(&mut self, batch: &Batch<'_>, magic: i8, position: u64) -> Result<(), Stop> {
        let frame = *batch.frame();
        let base = frame.base_offset().0;
        if frame.records_count() < 0 {
            let reason = format!("header field recordsCount is {}", frame.records_count());
            // Already reported as a bad field in our own formats.
            return if self.options.as_kafka { self.fatal(base, position, reason) } else { Ok(()) };
        }
        // The records borrow the buffer, which the rest of this walk does not touch meanwhile.
        let mut decompressor = std::mem::take(&mut self.decompressor);
        let result = match batch.records(&mut decompressor, &Limits::default()) {
            Ok(records) => {
                let mut result = Ok(());
                for record in records {
                    result = match record {
                        Ok(record) => self.record(&record, &frame, magic, position),
                        Err(fault) => self.fatal(base, position, fault),
                    };
                    if result.is_err() {
                        break;
                    }
                }
                result
            }
            Err(fault) => self.fatal(base, position, fault),
        };
        self.decompressor = decompressor;
        result
    }

    fn record(
        &mut self,
        record: &Record<'_>,
        frame: &BatchFrame<'_>,
        magic: i8,
        position: u64,
    ) -> Result<(), Stop> {
        self.consecutive(record.offset.0)?;
        self.sink.event(Event::Record(RecordEvent {
            offset: record.offset.0,
            timestamp: record.timestamp,
            timestamp_type: timestamp_type(magic, frame.is_log_append_time()),
            key: record.key,
            value: record.value,
            format: RecordFormat::Current { record: *record, is_control: frame.is_control(), position },
        }))
    }

    fn consecutive(&mut self, offset: i64) -> Result<(), Stop> {
        let previous = std::mem::replace(&mut self.previous, offset);
        if previous.wrapping_add(1) != offset {
            self.sink.event(Event::NonConsecutive { previous, offset })?;
        }
        Ok(())
    }

    /// Shows a message of magic 0 or 1 and returns its offset field.
    fn legacy(&mut self, message: &LegacyMessage<'_>, position: u64) -> Result<i64, Stop> {
        let offset = message.offset().0;
        let crc = message.verify().err();
        self.sink.event(Event::Legacy { message: *message, position, is_valid: crc.is_none() })?;
        self.crc_problem(crc, offset, position)?;
        if self.options.is_deep {
            let mut decompressor = std::mem::take(&mut self.decompressor);
            let records = match message.records(&mut decompressor, &Limits::default()) {
                Ok(records) => records,
                Err(fault) => {
                    self.fatal(offset, position, fault)?;
                    Vec::new()
                }
            };
            for record in records {
                self.consecutive(record.offset.0)?;
                self.sink.event(Event::Record(RecordEvent {
                    offset: record.offset.0,
                    timestamp: record.timestamp,
                    timestamp_type: timestamp_type(message.magic(), message.is_log_append_time()),
                    key: record.key,
                    value: record.value,
                    format: RecordFormat::Legacy { is_valid: record.is_valid, crc: record.crc },
                }))?;
            }
            self.decompressor = decompressor;
        }
        Ok(offset)
    }
}
