//! What was done, for people. The same words for a recovery and for a dry run of it.

use std::collections::BTreeMap;
use std::io::{self, Write};

use redrive::log::SegmentRecovery;

use super::report::{Outcome, PartitionReport, Recovered, Report};
use crate::console::{Paint, Style};
use crate::load::shown_path;
use crate::text::{count, sanitize};

/// Most names of a list that are shown.
const NAMES_MAX: usize = 6;

/// A paragraph for each partition to which something was done, then the sum.
pub(super) fn write(out: &mut dyn Write, report: &Report, paint: Paint) -> io::Result<()> {
    for partition in &report.partitions {
        write_partition(out, partition, paint)?;
    }
    for notice in &report.notices {
        writeln!(out, "passed over {}: {}", shown_path(&notice.path), sanitize(&notice.kind.to_string()))?;
    }
    if report.changed() + report.refused() + report.notices.len() > 0 {
        writeln!(out)?;
    }
    let before = if report.was_clean { "was cleanly shut down" } else { "was not cleanly shut down" };
    writeln!(
        out,
        "  {} {before} · {} · {} gone through",
        shown_path(&report.root),
        counted(report.partitions.len(), "partition"),
        counted(report.segments(), "segment"),
    )?;
    let cuts: Vec<u64> = report.cuts().collect();
    let mut verdict = Vec::new();
    if !cuts.is_empty() {
        verdict.push(format!("{}, {} bytes", counted(cuts.len(), "cut"), count(cuts.iter().sum())));
    }
    for (number, what) in [
        (report.dropped(), "segment dropped"),
        (report.resets(), "log emptied"),
        (report.refused(), "partition refused"),
    ] {
        if number > 0 {
            // The noun comes first.
            let (noun, participle) = what.split_once(' ').unwrap_or((what, ""));
            verdict.push(format!("{} {participle}", counted(number, noun)));
        }
    }
    let verdict = match (verdict.is_empty(), report.changed()) {
        (true, 0) => paint.style(Style::Good, "nothing to do"),
        (true, _) => paint.style(Style::Good, "recovered, no record lost"),
        (false, _) => paint.style(Style::Bad, verdict.join(" · ")),
    };
    writeln!(out, "  {verdict}")
}

fn counted(number: usize, what: &str) -> String {
    format!("{} {what}{}", count(number as u64), if number == 1 { "" } else { "s" })
}

fn write_partition(out: &mut dyn Write, partition: &PartitionReport, paint: Paint) -> io::Result<()> {
    let name = sanitize(&partition.topic_partition.to_string());
    match &partition.outcome {
        Outcome::Refused { sentence, needs_reset, .. } => {
            let hint =
                if *needs_reset { "; --reset empties it, as a broker does without asking" } else { "" };
            let refused = paint.style(Style::Bad, "refused");
            writeln!(out, "{}  {refused}: {}{hint}", paint.style(Style::Bold, name), sanitize(sentence))
        }
        Outcome::Recovered(recovered) if recovered.is_changed() => {
            writeln!(
                out,
                "{}  offsets {} to {}",
                paint.style(Style::Bold, name),
                recovered.log_start_offset,
                recovered.log_end_offset
            )?;
            write_recovery(out, recovered, paint)
        }
        Outcome::Recovered(_) => Ok(()),
    }
}

fn write_recovery(out: &mut dyn Write, recovered: &Recovered, paint: Paint) -> io::Result<()> {
    let recovery = &recovered.recovery;
    for segment in &recovery.segments {
        if let Some(sentence) = cut_sentence(recovered, segment) {
            writeln!(out, "    {} {}", paint.style(Style::Bad, "cut"), sanitize(&sentence))?;
        }
    }
    if recovery.was_reset {
        let emptied = paint.style(Style::Bad, "emptied");
        writeln!(out, "    {emptied}: the log ended below its log start")?;
    }
    if !recovery.dropped.is_empty() {
        let dropped = paint.style(Style::Bad, "dropped");
        let bases = names(recovery.dropped.iter().map(ToString::to_string));
        writeln!(out, "    {dropped} the segments behind the cut, by base offset: {bases}")?;
    }
    let mut by_reason: BTreeMap<String, (usize, u64)> = BTreeMap::new();
    for segment in &recovery.segments {
        let (segments, batches) = by_reason.entry(segment.why.to_string()).or_default();
        (*segments, *batches) = (*segments + 1, *batches + segment.batches);
    }
    for (reason, (segments, batches)) in by_reason {
        writeln!(
            out,
            "    indexes made anew of {}, {} batches: {}",
            counted(segments, "segment"),
            count(batches),
            sanitize(&reason)
        )?;
    }
    for (offset, reason) in &recovery.producers.unusable {
        let unusable = paint.style(Style::Warning, "unusable");
        writeln!(out, "    producer snapshot {offset} {unusable}, removed: {}", sanitize(reason))?;
    }
    if recovery.epochs_changed {
        writeln!(out, "    leader epochs put right")?;
    }
    if !recovery.tidied.is_empty() {
        writeln!(
            out,
            "    leftovers tidied up: {}",
            names(recovery.tidied.iter().map(|name| sanitize(name)))
        )?;
    }
    Ok(())
}

/// Where a segment was cut, and why.
fn cut_sentence(recovered: &Recovered, segment: &SegmentRecovery) -> Option<String> {
    let cut = segment.cut.as_ref()?;
    let offset = match recovered.cut_at.get(&segment.base_offset) {
        Some(offset) => format!("offset {offset}, "),
        None => String::new(),
    };
    let gap =
        if segment.leaves_gap { "; segments behind it are kept, so offsets are missing between" } else { "" };
    Some(format!(
        "{:020}.log at {offset}byte {}, {} bytes: {}{gap}",
        segment.base_offset.0,
        count(cut.position),
        count(cut.bytes),
        cut.reason
    ))
}

/// The first names of a list, and how many more there are.
fn names(all: impl ExactSizeIterator<Item = String>) -> String {
    let more = all.len().saturating_sub(NAMES_MAX);
    let shown = all.take(NAMES_MAX).collect::<Vec<_>>().join(", ");
    if more == 0 { shown } else { format!("{shown} and {} more", count(more as u64)) }
}
