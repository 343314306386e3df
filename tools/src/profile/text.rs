//! The report for people.

use std::fmt::Display;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

use super::report::{Partition, Report};
use super::runs::{RunKind, Spread};
use crate::console::{Paint, Style};
use crate::load::shown_path;
use crate::text::{count, cut, duration, percent, sanitize, size};

/// Width of the column of names.
const NAME: usize = 20;
/// Most partitions that are shown; the rest is in the JSON.
const PARTITIONS_MAX: usize = 10;
/// Longest id in characters.
const ID_CHARS_MAX: usize = 60;

/// Writes the report, and where `files` are.
///
/// # Errors
/// What the writer says.
pub(super) fn write(
    out: &mut dyn Write,
    report: &Report,
    files: Option<&[PathBuf]>,
    paint: Paint,
) -> io::Result<()> {
    Text { report, paint }.write(out, files)
}

struct Text<'a> {
    report: &'a Report,
    paint: Paint,
}

impl Text<'_> {
    fn write(&self, out: &mut dyn Write, files: Option<&[PathBuf]>) -> io::Result<()> {
        self.head(out)?;
        self.last(out)?;
        self.content(out)?;
        self.loads(out)?;
        self.partitions(out)?;
        self.ids(out)?;
        for (i, path) in files.unwrap_or_default().iter().enumerate() {
            if i == 0 {
                writeln!(out)?;
            }
            self.named(out, if i == 0 { "written" } else { "" }, shown_path(path))?;
        }
        Ok(())
    }

    fn named(&self, out: &mut dyn Write, name: &str, text: impl Display) -> io::Result<()> {
        // Padded before it is painted: the codes have no width.
        writeln!(out, "  {}{text}", self.paint.style(Style::Bold, format_args!("{name:<NAME$}")))
    }

    fn head(&self, out: &mut dyn Write) -> io::Result<()> {
        let report = self.report;
        let partitions = report.partitions_loaded + report.partitions_refused;
        writeln!(
            out,
            "  {}  {} · {} · page cache: {} · {}, {}",
            self.paint.style(Style::Bold, sanitize(&report.topic)),
            numbered(partitions, "partition", "partitions"),
            size(report.bytes),
            report.cache,
            report.io,
            numbered(report.threads, "thread", "threads"),
        )?;
        let style = if report.partitions_refused == 0 { Style::Good } else { Style::Bad };
        let loaded =
            format!("loaded {} of {}", count(report.partitions_loaded as u64), count(partitions as u64));
        writeln!(
            out,
            "\n  {} {} in {}    ids {}    records {}\n",
            self.paint.style(style, loaded),
            if partitions == 1 { "partition" } else { "partitions" },
            duration(report.elapsed),
            count(report.ids),
            count(report.records),
        )
    }

    fn last(&self, out: &mut dyn Write) -> io::Result<()> {
        let Some(last) = &self.report.last else { return self.named(out, "last partition", "none") };
        let lead = last.lead.map(|lead| format!(", {} behind the one before it", duration(lead)));
        let text = format!("{} after {}{}", last.partition, duration(last.end), lead.unwrap_or_default());
        self.named(out, "last partition", text)?;
        self.named(out, "", &last.why)
    }

    fn content(&self, out: &mut dyn Write) -> io::Result<()> {
        let report = self.report;
        let text = match (report.live_bytes, report.superseded_bytes) {
            (Some(live), Some(superseded)) => {
                format!(
                    "{} live, {} superseded ({})",
                    size(live),
                    size(superseded),
                    percent(superseded, report.bytes)
                )
            }
            _ => format!("{}, live ones could not be counted", size(report.bytes)),
        };
        self.named(out, "bytes", text)?;
        let states: Vec<String> = report
            .by_state
            .iter()
            .filter(|(_, ids)| *ids > 0)
            .map(|(name, ids)| format!("{name} {}", count(*ids)))
            .collect();
        self.named(out, "states", if states.is_empty() { "no ids".to_owned() } else { states.join(" · ") })?;
        let pending = match report.pending_completion {
            0 => "none".to_owned(),
            ids => count(ids),
        };
        self.named(out, "pending completion", pending)?;
        let of = match report.ids {
            0 => String::new(),
            ids => format!(", {:.1} bytes an id", report.peak_map_bytes as f64 / ids as f64),
        };
        self.named(out, "maps", format!("{} at the peak{of}", size(report.peak_map_bytes)))
    }

    /// What loads took, and how one thread, and the page cache, compare.
    fn loads(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out)?;
        let spreads = &self.report.spreads;
        let rows = spreads.iter().map(|spread| {
            let mut kind = spread.kind.name().to_owned();
            if spread.valid_runs < spread.runs {
                kind.push_str(" (not valid)");
            }
            [
                kind,
                count(spread.threads as u64),
                count(spread.runs as u64),
                fine(spread.median),
                fine(spread.min),
                fine(spread.max),
            ]
        });
        table(out, &["LOADS", "THREADS", "RUNS", "MEDIAN", "LEAST", "MOST"], rows)?;
        let find = |kind, is_one: bool| {
            let fits = |spread: &&Spread| spread.kind == kind && (spread.threads == 1) == is_one;
            spreads.iter().find(fits)
        };
        let many = find(RunKind::Warm, false);
        if let (Some(many), Some(one)) = (many, find(RunKind::Warm, true)) {
            let text = format!(
                "{}as long as {}, warm",
                times(one.median, many.median),
                numbered(many.threads, "thread", "threads")
            );
            self.named(out, "one thread", text)?;
        }
        if let Some(warm) = many.or(find(RunKind::Warm, true)) {
            for kind in [RunKind::AsFound, RunKind::Cold] {
                let Some(other) = spreads.iter().find(|spread| spread.kind == kind) else { continue };
                let found = if kind == RunKind::AsFound {
                    format!(" ({})", self.report.cache)
                } else {
                    String::new()
                };
                self.named(
                    out,
                    &format!("{}{found}", kind.name()),
                    format!("{}as long as warm", times(other.median, warm.median)),
                )?;
            }
        }
        for spread in spreads.iter().filter(|spread| spread.valid_runs < spread.runs) {
            let text = format!(
                "{} of {} loads found a page cache that was not {}",
                spread.runs - spread.valid_runs,
                spread.runs,
                spread.kind.name()
            );
            self.named(out, "not valid", self.paint.style(Style::Warning, text))?;
        }
        Ok(())
    }

    /// The partitions that were ready last.
    fn partitions(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut partitions: Vec<&Partition> = self.report.partitions.iter().collect();
        if partitions.is_empty() {
            return Ok(());
        }
        writeln!(out)?;
        partitions.sort_by_key(|partition| std::cmp::Reverse(partition.end()));
        let rows = partitions.iter().take(PARTITIONS_MAX).map(|partition| {
            let phases = &partition.phases;
            let superseded = partition.superseded_bytes;
            [
                partition.partition.to_string(),
                fine(partition.end()),
                fine(partition.wait),
                fine(phases.open),
                fine(phases.scan),
                fine(phases.index),
                fine(phases.finish),
                fine(phases.publish),
                fine(phases.decode),
                size(partition.bytes),
                superseded.map_or_else(|| "?".to_owned(), |bytes| percent(bytes, partition.bytes)),
                count(partition.ids as u64),
            ]
        });
        let names = [
            "PARTITION",
            "READY",
            "WAIT",
            "OPEN",
            "SCAN",
            "INDEX",
            "FINISH",
            "PUBLISH",
            "DECODE",
            "BYTES",
            "SUPERSEDED",
            "IDS",
        ];
        table(out, &names, rows)?;
        match partitions.len().saturating_sub(PARTITIONS_MAX) {
            0 => Ok(()),
            more => self.named(
                out,
                "",
                format_args!("and {} before them: --format json lists them", count(more as u64)),
            ),
        }
    }

    fn ids(&self, out: &mut dyn Write) -> io::Result<()> {
        let report = self.report;
        if !report.largest_ids.is_empty() {
            writeln!(out)?;
            let rows = report.largest_ids.iter().map(|id| {
                [
                    size(u64::from(id.bytes)),
                    id.partition.to_string(),
                    id.transaction_status.to_owned(),
                    cut(&id.id.transactional_id, ID_CHARS_MAX),
                ]
            });
            table(out, &["LARGEST", "PARTITION", "STATE", "ID"], rows)?;
        }
        if !report.busiest_ids.is_empty() {
            writeln!(out)?;
            let rows = report.busiest_ids.iter().map(|id| {
                let records = match id.records_error {
                    0 => count(id.records),
                    error => format!("{} to {}", count(id.records), count(id.records.saturating_add(error))),
                };
                [records, id.partition.to_string(), cut(&id.transactional_id, ID_CHARS_MAX)]
            });
            table(out, &["RECORDS", "PARTITION", "BUSIEST ID"], rows)?;
        }
        Ok(())
    }
}

/// Rows under names, all but the texts at the right.
fn table<const N: usize>(
    out: &mut dyn Write,
    names: &[&str; N],
    rows: impl Iterator<Item = [String; N]>,
) -> io::Result<()> {
    let mut table = Table::new();
    // Rows are never broken: a line is a row, also in a pipe.
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(names);
    table.add_rows(rows);
    for (column, name) in names.iter().enumerate() {
        if !matches!(*name, "LOADS" | "STATE" | "ID" | "BUSIEST ID")
            && let Some(column) = table.column_mut(column)
        {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    writeln!(out, " {}", table.trim_fmt().replace('\n', "\n "))
}

/// A short time in a unit that still tells two of them apart.
fn fine(time: Duration) -> String {
    match time.as_micros() {
        0..1000 => format!("{} µs", time.as_micros()),
        1000..10_000 => format!("{:.1} ms", time.as_secs_f64() * 1e3),
        10_000..1_000_000 => format!("{} ms", time.as_millis()),
        1_000_000..60_000_000 => format!("{:.2} s", time.as_secs_f64()),
        _ => duration(time),
    }
}

/// `2.1 times `; nothing where a time is too short to be compared.
fn times(time: Duration, with: Duration) -> String {
    if with.is_zero() {
        return "not comparably ".to_owned();
    }
    format!("{:.1} times ", time.as_secs_f64() / with.as_secs_f64())
}

fn numbered(number: usize, one: &str, many: &str) -> String {
    format!("{} {}", count(number as u64), if number == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_stay_apart() {
        let text = |micros| fine(Duration::from_micros(micros));
        assert_eq!([text(0), text(999), text(1000), text(9949)], ["0 µs", "999 µs", "1.0 ms", "9.9 ms"]);
        assert_eq!([text(10_000), text(999_999)], ["10 ms", "999 ms"]);
        assert_eq!([text(1_000_000), text(59_940_000), text(60_000_000)], ["1.00 s", "59.94 s", "1 min"]);
        let second = Duration::from_secs(1);
        assert_eq!(times(second * 3, second * 2), "1.5 times ");
        assert_eq!(times(second, Duration::ZERO), "not comparably ");
    }
}
