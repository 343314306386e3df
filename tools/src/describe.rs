//! `redrive describe`: all fields of given ids, and every record of them that is still in the log.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use redrive::Error;
use redrive::log::LogSnapshot;
use redrive::replay::PartitionOutcome;
use redrive::transaction_log::decode_utf8;

use crate::console::{Console, Paint, Style};
use crate::failure::{Failure, Status};
use crate::history::{HistoryEnd, HistoryRow, Walk};
use crate::json::{Elements, write_json, write_line};
use crate::load::{Format, Load, LoadArgs};
use crate::row::{Id, Row, Topic, ranges};
use crate::text::{age, cut, duration, now_ms, sanitize, signed, utc};

/// Width of the column of names.
const NAME: usize = 28;
/// Longest id or topic in characters.
const ID_CHARS_MAX: usize = 200;
/// Longest list of partition ids of one topic in characters.
const IDS_CHARS_MAX: usize = 400;

/// Options of `redrive describe`.
#[derive(Clone, Debug, clap::Args)]
pub struct DescribeArgs {
    /// Log directory of a broker (an entry of log.dirs), or the folder of a single partition
    #[arg(value_name = "LOG_DIR")]
    pub directory: PathBuf,

    /// Transactional ids, as bytes: what is not UTF-8 finds the id that Kafka would read there
    #[arg(value_name = "ID", required = true)]
    pub ids: Vec<OsString>,

    /// Another log directory of the same broker; may be repeated
    #[arg(long, value_name = "DIR")]
    pub log_dir: Vec<PathBuf>,

    /// Also show every record of the ids that is in the log, tombstones too, by rising offset; walks the whole log
    /// once for each id and ends in each partition at the first damaged place, with --lenient as well
    #[arg(long)]
    pub history: bool,

    /// Form of the output; with --history, ndjson is one record of the log a line
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,

    #[command(flatten)]
    #[expect(missing_docs, reason = "a doc comment would become the help of the command")]
    pub load: LoadArgs,
}

/// Runs the command.
///
/// # Errors
/// Whatever makes a load impossible.
pub fn run(args: &DescribeArgs, console: &mut Console) -> Result<Status, Failure> {
    let directories: Vec<PathBuf> = std::iter::once(&args.directory).chain(&args.log_dir).cloned().collect();
    let load = args.load.load(&directories, console)?;
    load.warn(console);
    let mut describe = Describe {
        load: &load,
        ids: unique(&args.ids),
        snapshots: if args.history { snapshots(&load, console)? } else { Vec::new() },
        history: args.history,
        now_ms: now_ms(),
        paint: console.paint_out,
        missing: Vec::new(),
        broken: Vec::new(),
    };
    let written = match args.format {
        Format::Text => describe.text(&mut *console.out),
        Format::Json => describe.document(&mut *console.out),
        Format::Ndjson => describe.lines(&mut *console.out),
    };
    load.check_interrupt()?;
    let Describe { missing, broken, .. } = describe;
    let mut status = load.status();
    if !missing.is_empty() || !broken.is_empty() {
        status = Status::FoundWrong;
    }
    // First the results, then what is said of them.
    let ended = console.finish(written, status);
    let is_complete = load.loaded.refused().next().is_none();
    for id in missing {
        let id = cut(&id, ID_CHARS_MAX);
        let but = if is_complete { "" } else { ", but partitions were refused that may hold it" };
        console.say(Style::Bad, format!("there is no transactional id {id}{but}"));
    }
    for sentence in broken {
        console.say(Style::Bad, sentence);
    }
    ended
}

/// The ids as Kafka reads them, each once.
fn unique(ids: &[OsString]) -> Vec<String> {
    let mut seen = HashSet::new();
    ids.iter()
        .map(|id| decode_utf8(id.as_bytes()).into_owned())
        .filter(|id| seen.insert(id.clone()))
        .collect()
}

/// The segments of every partition that can be walked.
fn snapshots<'a>(
    load: &'a Load,
    console: &mut Console,
) -> Result<Vec<(&'a PartitionOutcome, LogSnapshot)>, Error> {
    let directories = load.replay.directories()?;
    let mut found = Vec::new();
    for outcome in &load.loaded.partitions {
        if matches!(outcome.error(), Some(Error::DuplicatePartition { .. })) {
            continue;
        }
        let snapshot = directories
            .iter()
            .flat_map(|directory| directory.partitions().iter().map(move |partition| (directory, partition)))
            .find(|(_, partition)| partition.path == outcome.directory)
            .map(|(directory, partition)| directory.snapshot(partition));
        match snapshot {
            Some(Ok((snapshot, _))) => found.push((&**outcome, snapshot)),
            Some(Err(error)) if outcome.result.is_ok() => console.say(Style::Bad, error),
            // The load has said why.
            _ => {}
        }
    }
    Ok(found)
}

struct Describe<'a> {
    load: &'a Load,
    ids: Vec<String>,
    snapshots: Vec<(&'a PartitionOutcome, LogSnapshot)>,
    history: bool,
    now_ms: i64,
    paint: Paint,
    /// Ids that are nowhere.
    missing: Vec<String>,
    /// Why histories ended early.
    broken: Vec<String>,
}

impl<'a> Describe<'a> {
    /// Hands over the entries of an id, of which a directory that went through a change of the number of partitions can
    /// hold several; whether there is one.
    fn rows(&self, id: &str, mut receive: impl FnMut(&Row<'_>) -> io::Result<()>) -> io::Result<bool> {
        let mut found = false;
        for outcome in &self.load.loaded.partitions {
            let Some(map) = outcome.map() else { continue };
            if let Some(entry) = map.get(id).map_err(io::Error::other)? {
                receive(&Row::new(outcome.topic_partition.partition, &entry).map_err(io::Error::other)?)?;
                found = true;
            }
        }
        Ok(found)
    }

    /// Hands over every record of an id, partition by partition; returns how many there were.
    fn walk(
        &mut self,
        id: &str,
        receive: &mut dyn FnMut(HistoryRow<'_>) -> io::Result<()>,
    ) -> io::Result<u64> {
        let mut records = 0;
        let mut counted = |row: HistoryRow<'_>| {
            records += 1;
            receive(row)
        };
        for (outcome, snapshot) in &self.snapshots {
            match Walk::new(outcome, snapshot, id, &self.load.cancel).run(&mut counted) {
                Ok(()) => {}
                Err(HistoryEnd::Receiver(error)) => return Err(error),
                Err(HistoryEnd::Engine(Error::Cancelled)) => return Err(io::ErrorKind::Interrupted.into()),
                Err(end) => {
                    let partition = &outcome.topic_partition;
                    let sentence = format!("the history in {partition} ends early: {end}");
                    if !self.broken.contains(&sentence) {
                        self.broken.push(sentence);
                    }
                }
            }
        }
        Ok(records)
    }

    fn lines(&mut self, out: &mut dyn Write) -> io::Result<()> {
        for id in self.ids.clone() {
            let found = if self.history {
                self.walk(&id, &mut |row| write_line(out, &row))? > 0
            } else {
                self.rows(&id, |row| write_line(out, row))?
            };
            if !found {
                self.missing.push(id);
            }
        }
        Ok(())
    }

    fn document(&mut self, out: &mut dyn Write) -> io::Result<()> {
        let loaded = &self.load.loaded;
        out.write_all(b"{\"topic\":")?;
        write_json(out, &loaded.topic)?;
        write!(out, ",\"moving\":{},\"lenient\":{},\"refused\":", loaded.is_moving, loaded.lenient)?;
        write_json(out, &self.load.refused_json())?;
        out.write_all(b",\"transactions\":[")?;
        let mut elements = Elements::default();
        let mut absent = Vec::new();
        for id in &self.ids {
            if !self.rows(id, |row| elements.push(out, row))? {
                absent.push(id.clone());
            }
        }
        out.write_all(b"]")?;
        if self.history {
            out.write_all(b",\"history\":[")?;
            let mut elements = Elements::default();
            for id in self.ids.clone() {
                if self.walk(&id, &mut |row| elements.push(out, &row))? > 0 {
                    absent.retain(|absent| *absent != id);
                }
            }
            out.write_all(b"],\"historyEndsEarly\":")?;
            write_json(out, &self.broken)?;
        }
        out.write_all(b",\"missing\":")?;
        write_json(out, &absent.iter().map(|id| Id::new(id.as_bytes())).collect::<Vec<_>>())?;
        self.missing = absent;
        out.write_all(b"}\n")
    }

    fn text(&mut self, out: &mut dyn Write) -> io::Result<()> {
        for (i, id) in self.ids.clone().iter().enumerate() {
            if i > 0 {
                writeln!(out)?;
            }
            let mut found = self.rows(id, |row| self.fields(out, row))?;
            if self.history {
                if !found {
                    self.named(
                        out,
                        "transactional id",
                        self.paint.style(Style::Bold, cut(id, ID_CHARS_MAX)),
                    )?;
                    self.named(out, "state", "not in the map: never written, or removed by a tombstone")?;
                }
                writeln!(out, "  history")?;
                let paint = self.paint;
                let mut last_path = String::new();
                found |= self.walk(id, &mut |row| write_record(out, &row, &mut last_path, paint))? > 0;
            }
            if !found {
                self.missing.push(id.clone());
            }
        }
        Ok(())
    }

    fn named(&self, out: &mut dyn Write, name: &str, text: impl Display) -> io::Result<()> {
        writeln!(out, "  {}{text}", self.paint.style(Style::Dim, format_args!("{name:<NAME$}")))
    }

    fn fields(&self, out: &mut dyn Write, row: &Row<'_>) -> io::Result<()> {
        let fields = &row.fields;
        let id = self.paint.style(Style::Bold, cut(&row.id.transactional_id, ID_CHARS_MAX));
        self.named(out, "transactional id", id)?;
        if let Some(stored) = &row.id.transactional_id_base64 {
            self.named(out, "stored id, base64", cut(stored, ID_CHARS_MAX))?;
        }
        self.named(out, "state", fields.transaction_status)?;
        self.named(out, "partition of the log", row.partition)?;
        self.named(out, "offset", signed(row.offset))?;
        self.named(out, "value version", row.value_version)?;
        self.named(out, "producer id", fields.producer_id)?;
        self.named(out, "producer epoch", fields.producer_epoch)?;
        self.named(out, "previous producer id", or_none(fields.previous_producer_id))?;
        self.named(out, "next producer id", or_none(fields.next_producer_id))?;
        self.named(out, "next producer epoch", or_none(fields.next_producer_epoch.into()))?;
        self.named(out, "client transaction version", fields.client_transaction_version)?;
        let timeout_ms = fields.transaction_timeout_ms;
        let timeout = u64::try_from(timeout_ms).map_or_else(
            |_| format!("{timeout_ms} ms"),
            |ms| format!("{} ({timeout_ms} ms)", duration(Duration::from_millis(ms))),
        );
        self.named(out, "time-out", timeout)?;
        self.named(out, "started", self.moment(fields.transaction_start_timestamp_ms))?;
        self.named(out, "last update", self.moment(fields.transaction_last_update_timestamp_ms))?;
        let topics = &fields.transaction_partitions;
        if topics.is_empty() {
            self.named(out, "open partitions", "none")?;
        }
        for (i, topic) in topics.iter().enumerate() {
            self.named(out, if i == 0 { "open partitions" } else { "" }, shown_topic(topic))?;
        }
        for field in &fields.unknown_tagged_fields {
            let text = format!("tag {}, base64 {}", field.tag, cut(&field.data, ID_CHARS_MAX));
            self.named(out, "unknown tagged field", text)?;
        }
        if let Some(warning) = &fields.warning {
            self.named(out, "odd", self.paint.style(Style::Warning, sanitize(warning)))?;
        }
        Ok(())
    }

    fn moment(&self, ms: i64) -> String {
        if ms < 0 {
            return "none".to_owned();
        }
        match age(ms, self.now_ms) {
            Some(age) => format!("{} UTC, {} ago", utc(ms), duration(age)),
            None => format!("{} UTC, in the future by this clock", utc(ms)),
        }
    }
}

fn or_none(number: i64) -> String {
    if number < 0 { "none".to_owned() } else { number.to_string() }
}

fn shown_topic(topic: &Topic<'_>) -> String {
    let ids = ranges(&topic.partition_ids);
    let ids = match ids.char_indices().nth(IDS_CHARS_MAX) {
        Some((at, _)) => format!("{}… ({} partitions)", &ids[..at], topic.partition_ids.len()),
        None => ids,
    };
    format!("{}-{ids}", cut(&topic.topic, ID_CHARS_MAX))
}

/// One record of a history, on one line; the segment stands above the first of its records.
fn write_record(
    out: &mut dyn Write,
    row: &HistoryRow<'_>,
    last_path: &mut String,
    paint: Paint,
) -> io::Result<()> {
    if *last_path != row.path {
        last_path.clone_from(&row.path);
        writeln!(out, "    {}", paint.style(Style::Dim, sanitize(&row.path)))?;
    }
    write!(out, "    {:>14}  byte {:<12} {:<24}", signed(row.offset), row.position, utc(row.timestamp))?;
    match &row.fields {
        Some(fields) => {
            write!(
                out,
                " {:<15} producer {} epoch {}",
                fields.transaction_status, fields.producer_id, fields.producer_epoch
            )?;
            // A coordinator repeats the producer id as the previous one where nothing was rotated.
            let previous = Some(fields.previous_producer_id).filter(|id| *id != fields.producer_id);
            for (name, number) in [
                ("previous", previous.unwrap_or(-1)),
                ("next", fields.next_producer_id),
                ("next epoch", fields.next_producer_epoch.into()),
            ] {
                if number >= 0 {
                    write!(out, " {name} {number}")?;
                }
            }
            for topic in &fields.transaction_partitions {
                write!(out, "  {}", shown_topic(topic))?;
            }
            writeln!(out)
        }
        None if row.tombstone => writeln!(out, " {}", paint.style(Style::Warning, "tombstone")),
        None => {
            let version = row.value_version.unwrap_or_default();
            writeln!(out, " value of unknown version {version}")
        }
    }
}
