//! `redrive list`: one row per transactional id, as `kafka-transactions list` shows them.

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use redrive::replay::TransactionEntry;
use redrive::transaction_log::{TransactionState, TransactionView};
use regex_lite::Regex;

use crate::console::Console;
use crate::failure::{Failure, Status};
use crate::json::{Elements, write_json, write_line};
use crate::load::{Format, Load, LoadArgs};
use crate::row::{Row, Topic, ranges};
use crate::text::{age, count, cut, duration, now_ms, parse_duration, signed};

/// Longest id in a table, in characters.
const ID_CHARS_MAX: usize = 60;
/// Longest list of partitions in a table, in characters.
const PARTITIONS_CHARS_MAX: usize = 80;
/// Rows of a table that are laid out together: a table is held as a whole to find its widths.
const PAGE_ROWS: usize = 1000;

/// Options of `redrive list`.
#[derive(Clone, Debug, clap::Args)]
pub struct ListArgs {
    /// Log directories of a broker (entries of log.dirs), or folders of single partitions
    #[arg(value_name = "LOG_DIR", required = true)]
    pub directories: Vec<PathBuf>,

    /// Form of the output; json and ndjson give ids and topics that are not UTF-8 with U+FFFD, and their stored
    /// bytes beside them in transactionalIdBase64 and topicBase64
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,

    #[command(flatten)]
    #[expect(missing_docs, reason = "a doc comment would become the help of the command")]
    pub filters: Filters,

    #[command(flatten)]
    #[expect(missing_docs, reason = "a doc comment would become the help of the command")]
    pub load: LoadArgs,
}

/// Which ids are listed: those that every given filter keeps.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Filters")]
pub struct Filters {
    /// Keep ids in this state (any case); may be repeated
    #[arg(long, value_name = "STATE", value_parser = parse_state)]
    pub state: Vec<TransactionState>,

    /// Keep ids that match this regular expression as a whole
    #[arg(long, value_name = "REGEX", value_parser = parse_pattern)]
    pub id_pattern: Option<Regex>,

    /// Keep ids with this producer id; may be repeated
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub producer_id: Vec<i64>,

    /// Keep ids whose transaction holds this partition open, given as topic-partition; may be repeated
    #[arg(long, value_name = "T-N", value_parser = parse_topic_partition)]
    pub topic_partition: Vec<(String, i32)>,

    /// Keep ids whose transaction was started longer ago than this (90s, 15m, 6h, 1d12h); where none was started,
    /// the time of the last update counts
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub older_than: Option<Duration>,

    /// List at most this many ids
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
}

fn parse_state(text: &str) -> Result<TransactionState, String> {
    TransactionState::ALL.into_iter().find(|state| state.name().eq_ignore_ascii_case(text)).ok_or_else(|| {
        let names: Vec<_> = TransactionState::ALL.iter().map(|state| state.name()).collect();
        format!("the states are {}", names.join(", "))
    })
}

fn parse_pattern(text: &str) -> Result<Regex, String> {
    let whole = |end: &str| Regex::new(&format!(r"\A(?:{text}{end})\z"));
    // Alone first: a pattern that is wrong must not be made right by what is put around it. One that is right can
    // hide the parenthesis only in a comment of `(?x)`, where a line feed ends the comment and matches nothing.
    Regex::new(text).and_then(|_| whole("").or_else(|_| whole("\n"))).map_err(|e| e.to_string())
}

fn parse_topic_partition(text: &str) -> Result<(String, i32), String> {
    text.rsplit_once('-')
        .and_then(|(topic, partition)| Some((topic.to_owned(), partition.parse().ok().filter(|n| *n >= 0)?)))
        .ok_or_else(|| "write it like orders-0".to_owned())
}

impl Filters {
    fn keeps(&self, entry: &TransactionEntry, now_ms: i64) -> bool {
        let Ok(view) = entry.view() else { return false };
        let fields = view.fields();
        (self.state.is_empty() || self.state.contains(&entry.state()))
            && (self.producer_id.is_empty() || self.producer_id.contains(&fields.producer_id.0))
            && self.id_pattern.as_ref().is_none_or(|pattern| pattern.is_match(&entry.id()))
            && self.older_than.is_none_or(|limit| age_of(&view, now_ms).is_some_and(|age| age > limit))
            && (self.topic_partition.is_empty()
                || self.topic_partition.iter().any(|wanted| holds(&view, wanted)))
    }
}

/// Time since the start of the transaction or, where none was started, since the last update.
fn age_of(view: &TransactionView<'_>, now_ms: i64) -> Option<Duration> {
    let fields = view.fields();
    let since = if fields.start_timestamp_ms >= 0 {
        fields.start_timestamp_ms
    } else {
        fields.last_update_timestamp_ms
    };
    age(since, now_ms)
}

fn holds(view: &TransactionView<'_>, (topic, partition): &(String, i32)) -> bool {
    view.partitions()
        .into_iter()
        .flatten()
        .any(|held| held.topic_name() == *topic && held.partition_ids().any(|id| id == *partition))
}

/// Runs the command.
///
/// # Errors
/// Whatever makes a load impossible.
pub fn run(args: &ListArgs, console: &mut Console) -> Result<Status, Failure> {
    let load = args.load.load(&args.directories, console)?;
    load.warn(console);
    let written = match args.format {
        Format::Text => write_table(&mut *console.out, args, &load),
        Format::Json => write_document(&mut *console.out, args, &load),
        Format::Ndjson => for_each_row(args, &load, |row| write_line(&mut *console.out, &row)),
    };
    load.check_interrupt()?;
    console.finish(written, load.status())
}

/// The rows that are kept, by partition and bytes of the id. Ctrl-C is an error of the kind `Interrupted`.
fn for_each_row(
    args: &ListArgs,
    load: &Load,
    mut each: impl FnMut(Row<'_>) -> io::Result<()>,
) -> io::Result<()> {
    let now_ms = now_ms();
    let mut left = args.filters.limit.unwrap_or(usize::MAX);
    for outcome in &load.loaded.partitions {
        let Some(map) = outcome.map() else { continue };
        for entry in map.sorted().map_err(io::Error::other)? {
            if load.cancel.is_cancelled() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            if !args.filters.keeps(&entry, now_ms) {
                continue;
            }
            if left == 0 {
                return Ok(());
            }
            left -= 1;
            each(Row::new(outcome.topic_partition.partition, &entry).map_err(io::Error::other)?)?;
        }
    }
    Ok(())
}

fn write_document(out: &mut dyn Write, args: &ListArgs, load: &Load) -> io::Result<()> {
    let loaded = &load.loaded;
    out.write_all(b"{\"topic\":")?;
    write_json(out, &loaded.topic)?;
    write!(out, ",\"moving\":{},\"lenient\":{},\"refused\":", loaded.is_moving, loaded.lenient)?;
    write_json(out, &load.refused_json())?;
    out.write_all(b",\"transactions\":[")?;
    let mut elements = Elements::default();
    for_each_row(args, load, |row| elements.push(out, &row))?;
    out.write_all(b"]}\n")
}

const COLUMNS: [&str; 8] =
    ["PARTITION", "OFFSET", "STATE", "PRODUCER ID", "EPOCH", "AGE", "TRANSACTIONAL ID", "OPEN PARTITIONS"];
/// Columns whose numbers stand at the right.
const RIGHT: [usize; 5] = [0, 1, 3, 4, 5];

fn write_table(out: &mut dyn Write, args: &ListArgs, load: &Load) -> io::Result<()> {
    let now_ms = now_ms();
    let mut page = Page::default();
    let mut rows = 0;
    for_each_row(args, load, |row| {
        page.push(out, cells(&row, now_ms))?;
        rows += 1;
        Ok(())
    })?;
    page.write(out)?;
    let of = load.loaded.maps().map(|map| map.len() as u64).sum();
    writeln!(out, "{} of {} ids", count(rows), count(of))
}

/// Rows that are laid out together. A long list is several tables, each with its heading.
#[derive(Default)]
struct Page {
    rows: Vec<[String; COLUMNS.len()]>,
}

impl Page {
    fn push(&mut self, out: &mut dyn Write, row: [String; COLUMNS.len()]) -> io::Result<()> {
        self.rows.push(row);
        if self.rows.len() == PAGE_ROWS { self.write(out) } else { Ok(()) }
    }

    fn write(&mut self, out: &mut dyn Write) -> io::Result<()> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let mut table = Table::new();
        // Rows are never broken: a line is a row, also in a pipe.
        table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(COLUMNS);
        table.add_rows(self.rows.drain(..));
        for column in RIGHT {
            if let Some(column) = table.column_mut(column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        writeln!(out, "{}\n", table.trim_fmt())
    }
}

fn cells(row: &Row<'_>, now_ms: i64) -> [String; COLUMNS.len()] {
    let fields = &row.fields;
    let start_ms = fields.transaction_start_timestamp_ms;
    let since = if start_ms >= 0 { start_ms } else { fields.transaction_last_update_timestamp_ms };
    [
        row.partition.to_string(),
        signed(row.offset),
        fields.transaction_status.to_owned(),
        fields.producer_id.to_string(),
        fields.producer_epoch.to_string(),
        age(since, now_ms).map_or_else(|| "in the future".to_owned(), duration),
        cut(&row.id.transactional_id, ID_CHARS_MAX),
        shown_partitions(&fields.transaction_partitions),
    ]
}

/// `orders-0,3 payments-1`, cut to the width of the column.
fn shown_partitions(topics: &[Topic<'_>]) -> String {
    let mut text = String::new();
    for (i, topic) in topics.iter().enumerate() {
        let shown = format!("{}-{}", cut(&topic.topic, ID_CHARS_MAX), ranges(&topic.partition_ids));
        let shown = cut_plain(&shown, PARTITIONS_CHARS_MAX);
        if text.chars().count() + shown.chars().count() > PARTITIONS_CHARS_MAX && i > 0 {
            text.push_str(&format!(" … and {} more topics", count((topics.len() - i) as u64)));
            break;
        }
        if i > 0 {
            text.push(' ');
        }
        text.push_str(&shown);
    }
    text
}

/// Cuts text that is escaped already.
fn cut_plain(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_read() {
        assert_eq!(parse_state("preparecommit"), Ok(TransactionState::PrepareCommit));
        assert!(parse_state("Open").unwrap_err().contains("Ongoing"));
        assert_eq!(parse_topic_partition("my-topic-12"), Ok(("my-topic".to_owned(), 12)));
        for bad in ["orders", "orders-", "orders-x", "orders--1x", "orders-99999999999"] {
            assert!(parse_topic_partition(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_pattern_is_for_the_whole_id() {
        let matches = |pattern: &str, id: &str| parse_pattern(pattern).unwrap().is_match(id);
        assert!(matches("a|ab", "ab"));
        assert!(!matches("a|b", "ab"));
        assert!(!matches("billing", "billing-118"));
        assert!(matches("billing-.*", "billing-118"));
        assert!(!matches("a", "a\n"));
        assert!(matches("(?x)acct-0000. # c", "acct-00007"));
        assert!(!matches("(?x)acct-0000. # c", "acct-00007\n"));
        assert!(!matches("(?x)acct # c", "my-acct"));
        assert!(matches("(?x: a # c\n) # c", "a # c"), "no comment behind the group");
        assert!(parse_pattern("a)|(b").is_err());
        assert!(parse_pattern("(").is_err());
    }

    #[test]
    fn partitions_fit_their_column() {
        let topic = |name: &str, ids: &[i32]| Topic {
            topic: name.to_owned().into(),
            topic_base64: None,
            partition_ids: ids.iter().copied().collect(),
        };
        assert_eq!(shown_partitions(&[]), "");
        assert_eq!(shown_partitions(&[topic("orders", &[0, 3]), topic("p\n", &[1])]), r"orders-0,3 p\u{a}-1");
        let long: Vec<_> = (0..100).map(|i| topic(&format!("topic-{i}"), &[0])).collect();
        let shown = shown_partitions(&long);
        assert!(shown.ends_with("more topics") && shown.chars().count() < 110, "{shown}");
        let odd: Vec<i32> = (0..1000).map(|i| 2 * i).collect();
        assert!(shown_partitions(&[topic("a", &odd)]).chars().count() <= PARTITIONS_CHARS_MAX + 1);
    }
}
