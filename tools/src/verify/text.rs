//! Findings for people.

use std::io::{self, Write};

use redrive::log_dir::verify::{Finding, LeftOut, Severity, VerifyReport};

use crate::console::{Paint, Style};
use crate::load::shown_path;
use crate::text::{count, sanitize, size};

/// A line for each finding, then what was looked at.
pub(super) fn write(out: &mut dyn Write, report: &VerifyReport, paint: Paint) -> io::Result<()> {
    write_findings(out, &report.findings, &report.left_out, paint)?;
    for partition in &report.partitions {
        write_findings(out, &partition.findings, &partition.left_out, paint)?;
    }
    let (errors, notes) = (report.errors(), report.notes());
    if errors + notes > 0 {
        writeln!(out)?;
    }
    let counts = report.counts();
    writeln!(
        out,
        "  {} · {} · {} · {} batches · {} records",
        counted(report.partitions.len() as u64, "partition"),
        counted(counts.segments, "segment"),
        size(counts.bytes),
        count(counts.batches),
        count(counts.records),
    )?;
    writeln!(
        out,
        "  {} index entries · {} time index entries · {} producer snapshots, {} compared with the log",
        count(counts.index_entries),
        count(counts.time_index_entries),
        count(counts.snapshots),
        count(counts.snapshots_compared),
    )?;
    let verdict = match errors {
        0 => paint.style(Style::Good, "no errors"),
        errors => paint.style(Style::Bad, counted(errors, "error")),
    };
    writeln!(out, "  {verdict}, {}", counted(notes, "note"))
}

fn counted(number: u64, what: &str) -> String {
    format!("{} {what}{}", count(number), if number == 1 { "" } else { "s" })
}

fn write_findings(
    out: &mut dyn Write,
    findings: &[Finding],
    left_out: &[LeftOut],
    paint: Paint,
) -> io::Result<()> {
    for finding in findings {
        let style = match finding.severity {
            Severity::Error => Style::Bad,
            Severity::Note => Style::Warning,
        };
        // Padded before it is painted: the codes have no width.
        let severity = paint.style(style, format_args!("{:<5}", finding.severity.name()));
        let kind = paint.style(Style::Dim, format_args!("[{}]", finding.kind.name()));
        let sentence = sanitize(&finding.to_string());
        let repaired = match finding.is_repaired_at_start && finding.severity == Severity::Error {
            true => "; a broker puts it right at its start",
            false => "",
        };
        writeln!(out, "{severity}  {sentence}{repaired} {kind}")?;
    }
    for LeftOut { path, errors, notes } in left_out {
        let path = shown_path(path);
        writeln!(out, "…      {path}: {} more errors, {} more notes", count(*errors), count(*notes))?;
    }
    Ok(())
}
