//! The summary that `redrive replay` prints for people.

use std::fmt::Display;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use redrive::Error;
use redrive::replay::{PartitionOutcome, TransactionEntry};
use redrive::transaction_log::{TransactionState, decode_utf8};

use crate::console::{Paint, Style, shell_word};
use crate::load::{Load, shown_path};
use crate::replay::Totals;
use crate::text::{age, count, cut, duration, now_ms, percent, sanitize, signed, size};

/// Width of the column of names.
const NAME: usize = 20;
/// Most items of a list that are shown; the rest is in the JSON.
const ITEMS_MAX: usize = 10;
/// Longest id in characters.
const ID_CHARS_MAX: usize = 60;

/// Writes the summary.
pub(crate) fn write(
    out: &mut dyn Write,
    load: &Load,
    directories: &[PathBuf],
    paint: Paint,
) -> io::Result<()> {
    Summary { load, totals: Totals::of(&load.loaded), directories, paint, now_ms: now_ms() }.write(out)
}

struct Summary<'a> {
    load: &'a Load,
    totals: Totals,
    directories: &'a [PathBuf],
    paint: Paint,
    now_ms: i64,
}

impl Summary<'_> {
    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        self.head(out)?;
        self.refused(out)?;
        self.skipped(out)?;
        self.tails(out)?;
        writeln!(out)?;
        self.states(out)?;
        self.pending(out)?;
        self.open(out)?;
        self.oddities(out)?;
        self.notices(out)
    }

    fn named(&self, out: &mut dyn Write, name: &str, text: impl Display) -> io::Result<()> {
        // Padded before it is painted: the codes have no width.
        writeln!(out, "  {}{text}", self.paint.style(Style::Bold, format_args!("{name:<NAME$}")))
    }

    fn head(&self, out: &mut dyn Write) -> io::Result<()> {
        let (loaded, totals) = (&self.load.loaded, &self.totals);
        let partitions = loaded.partitions.len();
        writeln!(
            out,
            "  {}  {} · {} · page cache: {} · {}, {}",
            self.paint.style(Style::Bold, sanitize(&loaded.topic)),
            numbered(partitions as u64, "partition", "partitions"),
            size(totals.bytes),
            loaded.cache.name(),
            loaded.io.name(),
            numbered(loaded.threads as u64, "thread", "threads"),
        )?;
        if loaded.is_moving {
            let text = "a running broker holds the directory: its files changed while they were read, and this is a \
                        picture of no single moment";
            writeln!(out, "  {}", self.paint.style(Style::Warning, text))?;
        }
        let style = if totals.refused == 0 { Style::Good } else { Style::Bad };
        let text = format!("loaded {} of {}", count(totals.loaded as u64), count(partitions as u64));
        let dead = totals.records.saturating_sub(totals.ids + totals.unknown_records);
        let what = if totals.tombstones > 0 { "superseded or tombstones" } else { "superseded" };
        writeln!(
            out,
            "\n  {} {} in {}    ids {}    records {} ({} {what})",
            self.paint.style(style, text),
            plural(partitions as u64, "partition", "partitions"),
            duration(loaded.elapsed),
            count(totals.ids),
            count(totals.records),
            percent(dead, totals.records),
        )
    }

    fn refused(&self, out: &mut dyn Write) -> io::Result<()> {
        for outcome in self.load.loaded.refused() {
            let Some(error) = outcome.error() else { continue };
            self.refusal(out, outcome, error)?;
        }
        if self.totals.refused > 0 {
            writeln!(out, "  {:13}ids of refused partitions are in no figure here", "")?;
        }
        Ok(())
    }

    fn refusal(&self, out: &mut dyn Write, outcome: &PartitionOutcome, error: &Error) -> io::Result<()> {
        let head = format!("refused      {}", sanitize(&outcome.topic_partition.to_string()));
        let head = self.paint.style(Style::Bad, head);
        match error {
            Error::Corrupt(corruption) => {
                writeln!(out, "  {head}  {}", sanitize(&corruption.reason.to_string()))?;
                self.place(out, &corruption.path, corruption.offset.0, corruption.position)?;
                if let Some(id) = &corruption.transactional_id {
                    writeln!(out, "  {:13}transactional id {}", "", cut(&decode_utf8(id), ID_CHARS_MAX))?;
                }
                writeln!(out, "  {:13}{}", "", sanitize(&corruption.broker.to_string()))
            }
            Error::Unsupported { path, offset, position, reason } => {
                writeln!(out, "  {head}  {}", sanitize(reason))?;
                self.place(out, path, offset.0, *position)
            }
            other => writeln!(out, "  {head}  {}", sanitize(&other.to_string())),
        }
    }

    fn place(&self, out: &mut dyn Write, path: &Path, offset: i64, position: u64) -> io::Result<()> {
        writeln!(out, "  {:13}{}", "", shown_path(path))?;
        writeln!(out, "  {:13}offset {}  byte {}", "", signed(offset), count(position))
    }

    fn skipped(&self, out: &mut dyn Write) -> io::Result<()> {
        for outcome in &self.load.loaded.partitions {
            let Some(skipped) = outcome.stats().map(|stats| &stats.skipped).filter(|skipped| skipped.any())
            else {
                continue;
            };
            let head = format!("skipped      {}", sanitize(&outcome.topic_partition.to_string()));
            writeln!(
                out,
                "  {}  {}, {}, {} in all; ids may be missing or out of date",
                self.paint.style(Style::Bad, head),
                numbered(skipped.batches, "batch", "batches"),
                numbered(skipped.records, "single record", "single records"),
                size(skipped.bytes),
            )?;
            for place in skipped.places.iter().take(ITEMS_MAX) {
                self.place(out, &place.path, place.offset.0, place.position)?;
                writeln!(out, "  {:13}{}", "", sanitize(&place.reason))?;
            }
            self.more(out, skipped.places.len())?;
        }
        Ok(())
    }

    fn tails(&self, out: &mut dyn Write) -> io::Result<()> {
        for outcome in &self.load.loaded.partitions {
            let Some(tail) = outcome.stats().and_then(|stats| stats.tail.as_ref()) else { continue };
            let head = format!("torn tail    {}", sanitize(&outcome.topic_partition.to_string()));
            writeln!(
                out,
                "  {}  {} left out: an append that never finished, which a broker's recovery would cut",
                self.paint.style(Style::Warning, head),
                size(tail.bytes),
            )?;
            self.place(out, &tail.path, tail.offset.0, tail.position)?;
            writeln!(out, "  {:13}{}", "", sanitize(&tail.reason.to_string()))?;
        }
        Ok(())
    }

    fn states(&self, out: &mut dyn Write) -> io::Result<()> {
        let states: Vec<String> = self
            .totals
            .by_state
            .iter()
            .filter(|(_, ids)| *ids > 0)
            .map(|(name, ids)| format!("{name} {}", count(*ids)))
            .collect();
        let states = if states.is_empty() { "no ids".to_owned() } else { states.join(" · ") };
        self.named(out, "states", states)
    }

    fn pending(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.totals.pending_completion() == 0 {
            return self.named(out, "pending completion", "none");
        }
        let states: Vec<(&str, u64)> = ["PrepareCommit", "PrepareAbort"]
            .into_iter()
            .map(|name| (name, self.totals.count(name)))
            .filter(|(_, ids)| *ids > 0)
            .collect();
        let counts: Vec<String> =
            states.iter().map(|(name, ids)| format!("{name} {}", count(*ids))).collect();
        let text = format!("{} · a coordinator must write their markers first", counts.join(" · "));
        self.named(out, "pending completion", self.paint.style(Style::Warning, text))?;
        let mut command = "redrive list".to_owned();
        for (name, _) in states {
            command.push_str(&format!(" --state {name}"));
        }
        if self.load.loaded.topic != "__transaction_state" {
            command.push_str(&format!(" --topic {}", shell_word(self.load.loaded.topic.as_ref())));
        }
        for directory in self.directories {
            command.push_str(&format!(" {}", shell_word(directory.as_os_str())));
        }
        self.named(out, "", command)
    }

    fn open(&self, out: &mut dyn Write) -> io::Result<()> {
        let open = self.totals.count(TransactionState::Ongoing.name());
        let mut oldest: Option<(i64, TransactionEntry)> = None;
        for entry in self.load.loaded.maps().flat_map(|map| map.in_states(&[TransactionState::Ongoing])) {
            let entry = entry.map_err(io::Error::other)?;
            // Every value was looked at when it was loaded, so none is passed over here.
            let Ok(start_ms) = entry.view().map(|view| view.fields().start_timestamp_ms) else { continue };
            let age = |start_ms: i64, entry: &TransactionEntry| (start_ms, entry.offset());
            if start_ms >= 0
                && oldest.as_ref().is_none_or(|(before, other)| age(start_ms, &entry) < age(*before, other))
            {
                oldest = Some((start_ms, entry));
            }
        }
        let mut text = if open == 0 { "none".to_owned() } else { format!("Ongoing {}", count(open)) };
        if let Some((start_ms, entry)) = oldest {
            let id = cut(&entry.id(), ID_CHARS_MAX);
            match age(start_ms, self.now_ms) {
                Some(age) => text.push_str(&format!(" · oldest {}: {id}", duration(age))),
                None => text.push_str(&format!(" · the oldest begins in the future by this clock: {id}")),
            }
        }
        self.named(out, "open", text)
    }

    fn oddities(&self, out: &mut dyn Write) -> io::Result<()> {
        let totals = &self.totals;
        if totals.gaps > 0 {
            let text = format!(
                "{}, {} missing: compaction leaves such gaps, and so does a lost segment",
                count(totals.gaps),
                numbered(totals.gap_offsets, "offset", "offsets")
            );
            self.named(out, "gaps", self.paint.style(Style::Dim, text))?;
        }
        for (number, name, what) in [
            (
                totals.unknown_records,
                "unknown records",
                "of newer key or value versions, skipped as a broker skips them",
            ),
            (totals.control_batches, "control batches", "which do not belong into this log, skipped"),
            (
                totals.odd_values,
                "odd values",
                "readable, but not as Kafka writes them (redrive describe says what)",
            ),
        ] {
            if number > 0 {
                self.named(
                    out,
                    name,
                    self.paint.style(Style::Warning, format!("{}, {what}", count(number))),
                )?;
            }
        }
        Ok(())
    }

    fn notices(&self, out: &mut dyn Write) -> io::Result<()> {
        let loaded = &self.load.loaded;
        let notices: Vec<_> =
            loaded.notices.iter().chain(loaded.partitions.iter().flat_map(|p| &p.notices)).collect();
        for (i, notice) in notices.iter().take(ITEMS_MAX).enumerate() {
            let name = if i == 0 { "notices" } else { "" };
            let text = format!("{}: {}", shown_path(&notice.path), sanitize(&notice.kind.to_string()));
            self.named(out, name, self.paint.style(Style::Dim, text))?;
        }
        self.more(out, notices.len())
    }

    fn more(&self, out: &mut dyn Write, items: usize) -> io::Result<()> {
        match items.saturating_sub(ITEMS_MAX) {
            0 => Ok(()),
            more => {
                self.named(out, "", format_args!("and {} more: --format json lists them", count(more as u64)))
            }
        }
    }
}

fn numbered(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(number), plural(number, one, many))
}

fn plural<'a>(number: u64, one: &'a str, many: &'a str) -> &'a str {
    if number == 1 { one } else { many }
}
