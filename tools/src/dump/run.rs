//! Goes through the files of a command line.

use std::io::{self, BufWriter, Write};
use std::path::Path;

use super::args::{DumpArgs, DumpFormat};
use super::checkpoint::{self, CheckpointFile};
use super::event::{Damage, Event, Sink, Stop};
use super::index::{self, IndexOptions};
use super::input::LogFile;
use super::kafka::{KafkaOptions, KafkaSink};
use super::log::{self, LogOptions};
use super::own::{OwnOptions, OwnSink};
use super::snapshot;
use crate::text::sanitize;

/// How a dump ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DumpStatus {
    /// Everything was shown and nothing was wrong; with `--format kafka` also what Kafka's tool only reports.
    Clean,
    /// Something was wrong with the content of a file.
    FoundWrong,
    /// An option cannot be had.
    Usage,
    /// A file could not be read, or is of no kind that this command knows.
    Unreadable,
}

impl DumpStatus {
    /// Exit status of the process.
    pub fn code(self) -> u8 {
        match self {
            Self::Clean => 0,
            Self::FoundWrong => 1,
            Self::Usage => 2,
            Self::Unreadable => 3,
        }
    }
}

/// What a file is by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileKind {
    Log,
    KraftSnapshot,
    OffsetIndex,
    TimeIndex,
    ProducerSnapshot,
    TransactionIndex,
    Checkpoint(CheckpointFile),
    Unknown,
}

impl FileKind {
    fn of(name: &str) -> Self {
        match name.rsplit_once('.').map(|(_, suffix)| suffix) {
            Some("log") => Self::Log,
            Some("checkpoint") => Self::KraftSnapshot,
            Some("index") => Self::OffsetIndex,
            Some("timeindex") => Self::TimeIndex,
            Some("snapshot") => Self::ProducerSnapshot,
            Some("txnindex") => Self::TransactionIndex,
            _ => CheckpointFile::named(name).map_or(Self::Unknown, Self::Checkpoint),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::KraftSnapshot => "kraftSnapshot",
            Self::OffsetIndex => "offsetIndex",
            Self::TimeIndex => "timeIndex",
            Self::ProducerSnapshot => "producerSnapshot",
            Self::TransactionIndex => "transactionIndex",
            Self::Checkpoint(file) => file.kind(),
            Self::Unknown => "unknown",
        }
    }
}

/// Dumps the files of `args` to `out`; errors and warnings go to `err`. `escape_control` says that `out` is a terminal,
/// where Kafka's text, too, must not carry control characters; our own formats never do.
///
/// # Errors
/// Only what a writer says; a closed pipe comes back as such.
pub fn run(
    args: &DumpArgs,
    escape_control: bool,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> io::Result<DumpStatus> {
    if let Some(sentence) = args.refusal() {
        writeln!(err, "{sentence}")?;
        return Ok(DumpStatus::Usage);
    }
    let mut out = BufWriter::with_capacity(1 << 16, out);
    let status = match args.format {
        DumpFormat::Kafka => run_kafka(args, escape_control, &mut out, err),
        _ => run_own(args, &mut out, err),
    }?;
    out.flush()?;
    Ok(status)
}

fn run_kafka(
    args: &DumpArgs,
    escape_control: bool,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> io::Result<DumpStatus> {
    let options = KafkaOptions {
        prints_data: args.prints_data(),
        skip_record_metadata: args.skip_record_metadata,
        decoder: args.decoder(),
        escape_control,
    };
    let working_directory = std::env::current_dir().unwrap_or_default();
    let mut sink = KafkaSink::new(out, options);
    let mut ended = None;
    for path in args.paths() {
        let name = path.to_string_lossy();
        let result = sink.begin(&name, &working_directory.join(path).to_string_lossy()).and_then(|()| {
            let kind = FileKind::of(&file_name(path));
            if matches!(kind, FileKind::Checkpoint(_) | FileKind::Unknown) {
                sink.unknown_file();
                return Ok(());
            }
            dump(kind, path, args, &mut sink)
        });
        match result {
            Ok(()) => {}
            Err(Stop::Output(error)) => return Err(error),
            Err(stop) => {
                ended = Some((name.into_owned(), stop));
                break;
            }
        }
    }
    sink.finish(ended.is_some(), err)?;
    let (sentence, status) = match ended {
        None => return Ok(DumpStatus::Clean),
        Some((path, Stop::Damaged(damage))) => (damage_sentence(&path, &damage), DumpStatus::FoundWrong),
        Some((_, Stop::Unreadable { path, source })) => {
            (format!("cannot read {}: {source}", path.display()), DumpStatus::Unreadable)
        }
        Some((_, Stop::Output(error))) => return Err(error),
    };
    write_sentence(err, &sentence)?;
    Ok(status)
}

fn run_own(args: &DumpArgs, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<DumpStatus> {
    let options = OwnOptions {
        format: args.format,
        prints_data: args.prints_data(),
        skip_record_metadata: args.skip_record_metadata,
        decoder: args.decoder(),
    };
    let mut unreadable = false;
    let mut sink = OwnSink::new(out, err, options);
    sink.begin()?;
    for path in args.paths() {
        let kind = FileKind::of(&file_name(path));
        sink.begin_file(&path.to_string_lossy(), kind.name())?;
        let damage = match dump(kind, path, args, &mut sink) {
            Ok(()) => None,
            Err(Stop::Output(error)) => return Err(error),
            Err(Stop::Damaged(damage)) => Some(damage),
            Err(Stop::Unreadable { path: unread, source }) => {
                unreadable = true;
                // It may be a file beside the one asked for.
                let reason = match unread == path {
                    true => format!("cannot be read: {source}"),
                    false => format!("cannot read {}: {source}", unread.display()),
                };
                Some(Damage { offset: None, position: None, reason })
            }
        };
        // Ending a file reads nothing, so only the output can fail.
        if let Err(Stop::Output(error)) = sink.end_file(damage) {
            return Err(error);
        }
    }
    let found_wrong = sink.finish()?;
    Ok(match (unreadable, found_wrong) {
        (true, _) => DumpStatus::Unreadable,
        (_, true) => DumpStatus::FoundWrong,
        _ => DumpStatus::Clean,
    })
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn damage_sentence(path: &str, damage: &Damage) -> String {
    let offset = damage.offset.map(|offset| format!(" at offset {offset}")).unwrap_or_default();
    let position = damage.position.map(|position| format!(" at byte {position}")).unwrap_or_default();
    format!("{path}{offset}{position}: {}", damage.reason)
}

fn write_sentence(err: &mut dyn Write, sentence: &str) -> io::Result<()> {
    writeln!(err, "{}", sanitize(sentence))
}

/// The number in front of the first dot of a file name.
fn base_offset(path: &Path) -> Result<i64, Stop> {
    let name = file_name(path);
    let number = name.split_once('.').map_or("", |(number, _)| number);
    number.parse().map_err(|_| Stop::damaged(None, None, format!("the file name {number:?} is no offset")))
}

/// The base offset that the entries of an index count from. Kafka's tool ends at the name of a file before it looks
/// whether there is one.
fn index_base(path: &Path, as_kafka: bool) -> Result<i64, Stop> {
    if as_kafka {
        return base_offset(path);
    }
    LogFile::open(path)?;
    base_offset(path)
        .map_err(|_| unusable(path, "its name is no offset, and the entries of an index count from there"))
}

/// A file that is there and that nothing can be made of.
fn unusable(path: &Path, reason: &str) -> Stop {
    Stop::Unreadable { path: path.to_path_buf(), source: io::Error::new(io::ErrorKind::InvalidInput, reason) }
}

fn dump(kind: FileKind, path: &Path, args: &DumpArgs, sink: &mut dyn Sink) -> Result<(), Stop> {
    let as_kafka = args.format == DumpFormat::Kafka;
    let log_options = LogOptions { is_deep: args.is_deep(), bytes_max: args.log_bytes_max(), as_kafka };
    let index_options = IndexOptions {
        verify_only: args.verify_index_only,
        sanity_check: args.index_sanity_check,
        message_bytes_max: u64::try_from(args.max_message_size).unwrap_or(0),
        as_kafka,
    };
    match kind {
        FileKind::Log if as_kafka => {
            sink.event(Event::LogStart(base_offset(path)?))?;
            log::walk(&mut LogFile::open(path)?, log_options, sink)
        }
        FileKind::Log => {
            let mut log = LogFile::open(path)?;
            let base = base_offset(path).or_else(|_| log.first_offset())?;
            sink.event(Event::LogStart(base))?;
            log::walk(&mut log, log_options, sink)
        }
        FileKind::KraftSnapshot if as_kafka => {
            let (end_offset, epoch) = snapshot_id(path)?;
            sink.event(Event::SnapshotStart { end_offset, epoch })?;
            log::walk(&mut LogFile::open(path)?, log_options, sink)
        }
        FileKind::KraftSnapshot => {
            let mut log = LogFile::open(path)?;
            if let Ok((end_offset, epoch)) = snapshot_id(path) {
                sink.event(Event::SnapshotStart { end_offset, epoch })?;
            }
            log::walk(&mut log, log_options, sink)
        }
        FileKind::OffsetIndex => index::offset_index(path, index_base(path, as_kafka)?, index_options, sink),
        FileKind::TimeIndex => index::time_index(path, index_base(path, as_kafka)?, index_options, sink),
        // Its entries are whole offsets; the base only tells which of them are too low.
        FileKind::TransactionIndex => {
            let base = base_offset(path).or_else(|stop| if as_kafka { Err(stop) } else { Ok(0) })?;
            index::transaction_index(path, base, index_options, sink)
        }
        FileKind::ProducerSnapshot => snapshot::walk(path, sink),
        FileKind::Checkpoint(file) => checkpoint::walk(file, path, sink),
        FileKind::Unknown => {
            LogFile::open(path)?;
            Err(unusable(path, "no kind of file that dump knows"))
        }
    }
}

/// End offset and epoch from the name of a KRaft snapshot, `OFFSET-EPOCH.checkpoint`.
fn snapshot_id(path: &Path) -> Result<(i64, i32), Stop> {
    let name = file_name(path);
    name.split_once('.')
        .and_then(|(name, _)| name.split_once('-'))
        .and_then(|(offset, epoch)| Some((offset.parse().ok()?, epoch.parse().ok()?)))
        .ok_or_else(|| Stop::damaged(None, None, format!("the file name {name:?} is no offset and epoch")))
}
