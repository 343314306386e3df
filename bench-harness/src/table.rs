//! What a run shows: the table on stdout, and `percentiles.txt`.

use std::fmt::Write as _;
use std::num::NonZero;

use hdrhistogram::Histogram;

use crate::result::{Loader, Row, RunResult, Spread};
use crate::scenario::Cache;

/// The table, a line for each row, and below it what the figures are worth.
pub fn table(result: &RunResult) -> String {
    let mut out = String::new();
    let broker = result.broker();
    let name_width = result.rows.iter().map(|row| row.key.to_string().len()).max().unwrap_or(0);
    let _ = writeln!(
        out,
        "{:name_width$}  {:>9}  {:>19}  {:>9}  {:>20}  {:>22}  {:>13}{}",
        "",
        "seconds",
        "(min … max)",
        "records/s",
        "of R (min … max)",
        "× naive (min … max)",
        "B/id (peak)",
        if broker.is_some() { "  × broker" } else { "" }
    );
    for row in &result.rows {
        let line = line(result, row, broker);
        let _ = writeln!(out, "{:name_width$}  {line}", row.key.to_string());
    }
    let _ = writeln!(out);
    for note in notes(result) {
        let _ = writeln!(out, "{note}");
    }
    out
}

fn line(result: &RunResult, row: &Row, broker: Option<&Row>) -> String {
    let Some(seconds) = row.seconds() else {
        return "no repeat counts".to_owned();
    };
    let is_read = row.key.loader == Loader::Read;
    let range = format!("{} … {}", figure(seconds.min), figure(seconds.max));
    let records = if is_read {
        "—".to_owned()
    } else {
        format!("{:.2} M", result.data.records as f64 / seconds.median / 1e6)
    };
    let of_read = result.read_for(&row.key).and_then(|read| Spread::of(row.times_faster_than(read)));
    let of_naive = match row.key.loader {
        // The naive loader has fresh memory and one thread; what has more is still told, and labelled so by its row.
        Loader::Redrive { .. } => {
            result.naive_for(&row.key).and_then(|naive| Spread::of(row.times_faster_than(naive)))
        }
        _ => None,
    };
    let spread = |spread: Option<Spread>| {
        let text = |s: Spread| format!("{} ({} … {})", figure(s.median), figure(s.min), figure(s.max));
        spread.map_or("—".to_owned(), text)
    };
    let mut line = format!(
        "{:>9}  {range:>19}  {records:>9}  {:>20}  {:>22}  {:>13}",
        figure(seconds.median),
        spread(of_read),
        spread(of_naive),
        bytes_per_id(row)
    );
    if let Some(broker) = broker.and_then(Row::seconds) {
        let times = if is_read { "—".to_owned() } else { figure(broker.median / seconds.median) };
        let _ = write!(line, "  {times:>8}");
    }
    line
}

/// Three digits; fewer of what is tiny.
fn figure(number: f64) -> String {
    match number {
        100.0.. => format!("{number:.0}"),
        10.0.. => format!("{number:.1}"),
        1.0.. => format!("{number:.2}"),
        0.1.. => format!("{number:.3}"),
        _ => format!("{number:.4}"),
    }
}

/// Of the index where it is known, else of the whole process.
fn bytes_per_id(row: &Row) -> String {
    let Some(once) = row.valid().next().map(|sample| &sample.once).filter(|once| once.ids > 0) else {
        return "—".to_owned();
    };
    let each = |bytes: u64| bytes as f64 / once.ids as f64;
    if once.map_bytes > 0 {
        format!("{:.1} ({:.1})", each(once.map_bytes), each(once.map_bytes_peak))
    } else if once.resident_bytes_peak > 0 {
        format!("({:.0})", each(once.resident_bytes_peak))
    } else {
        "—".to_owned()
    }
}

/// What the figures are worth, a sentence each.
fn notes(result: &RunResult) -> Vec<String> {
    let mut notes = Vec::new();
    let answers = result.answers();
    match answers[..] {
        [] => notes.push("no answers were compared".to_owned()),
        [answer] => {
            let loaders = result.rows.iter().filter(|row| row.answer.is_some()).count();
            notes.push(format!(
                "same answer: {} ids, sha-256 {}… (all {loaders} rows that load)",
                answer.ids,
                answer.sha256.get(..12).unwrap_or(&answer.sha256)
            ));
        }
        _ => notes.push(format!("DIFFERENT ANSWERS: {answers:?}")),
    }
    if let Some(right) = result.scenario.answer.as_ref().filter(|_| !result.is_right()) {
        notes.push(format!("WRONG ANSWER: sha-256 {right} was expected"));
    }
    notes.extend(read_note(result));
    notes.extend(cold_note(result));
    for &threads in &result.scenario.measure.threads {
        notes.extend(scaling_notes(result, threads));
    }
    for row in &result.rows {
        let reasons = row.samples.iter().filter_map(|sample| sample.invalid.as_deref());
        if let Some(reason) = reasons.clone().next() {
            let (bad, all) = (reasons.count(), row.samples.len());
            notes.push(format!("INVALID {}: {bad} of {all} repeats: {reason}", row.key));
        }
    }
    notes
}

/// What R is, beside memcpy.
fn read_note(result: &RunResult) -> Option<String> {
    let is_read = |row: &&Row| row.key.loader == Loader::Read && row.key.cache == Cache::Warm;
    let texts: Vec<String> = result
        .rows
        .iter()
        .filter(is_read)
        .filter_map(|row| {
            let of = |number: fn(&crate::job::Once) -> f64| {
                Spread::of(row.valid().map(|sample| number(&sample.once)))
            };
            let read = of(|once| once.bytes as f64 / once.seconds / 1e9)?;
            let first = of(|once| once.bytes as f64 / once.first_touch_seconds / 1e9)?;
            let copy = of(|once| once.memcpy_bytes_per_second / 1e9)?;
            Some(format!(
                "{:.1} GB/s by {} (first touch of the mapping {:.1}, memcpy {:.1})",
                read.median, row.key.threads, first.median, copy.median
            ))
        })
        .collect();
    (!texts.is_empty()).then(|| format!("R: {}", texts.join("; ")))
}

/// What the device gives.
fn cold_note(result: &RunResult) -> Option<String> {
    let is_read = |row: &&Row| row.key.loader == Loader::Read && row.key.cache == Cache::Cold;
    let row = result.rows.iter().find(is_read)?;
    let rate = Spread::of(row.valid().map(|sample| sample.once.bytes as f64 / sample.once.seconds / 1e9))?;
    let depths: Vec<usize> = row.valid().map(|sample| sample.once.depth).collect();
    Some(format!("past the cache: {:.2} GB/s, best with {depths:?} reads in flight", rate.median))
}

/// How much of a thread's speed is left when there are several, and whether that means anything.
fn scaling_notes(result: &RunResult, threads: NonZero<usize>) -> Vec<String> {
    if threads.get() == 1 {
        return Vec::new();
    }
    let probes: Vec<_> = result.probes.iter().filter(|probe| probe.threads == threads).collect();
    let mut notes = Vec::new();
    if let Some(ratio) = Spread::of(probes.iter().map(|probe| probe.ratio)) {
        let good = probes.iter().filter(|probe| probe.is_enough).count();
        notes.push(format!(
            "probe: {threads} threads do {:.2} ({:.2} … {:.2}) × the work of one; scaling counts in {good} of {} rounds",
            ratio.median,
            ratio.min,
            ratio.max,
            probes.len()
        ));
    }
    let is_good_round = |round: u32| probes.iter().any(|probe| probe.round == round && probe.is_enough);
    for row in result.rows.iter().filter(|row| row.key.threads == threads) {
        let alone = result.rows.iter().find(|alone| {
            alone.key.threads.get() == 1
                && alone.key.loader == row.key.loader
                && alone.key.cache == row.key.cache
        });
        let good = Row {
            samples: row.samples.iter().filter(|sample| is_good_round(sample.round)).cloned().collect(),
            ..row.clone()
        };
        let times = alone.map(|alone| good.times_faster_than(alone)).unwrap_or_default();
        if let Some(times) = Spread::of(times) {
            let each = threads.get() as f64;
            notes.push(format!(
                "  {}: per-thread efficiency {:.2} ({:.2} … {:.2})",
                row.key,
                times.median / each,
                times.min / each,
                times.max / each
            ));
        }
    }
    notes
}

/// Microseconds of each row at some percentiles, by an HdrHistogram of three digits.
pub fn percentiles(result: &RunResult) -> String {
    const SHOWN: [f64; 5] = [0.0, 25.0, 50.0, 75.0, 100.0];
    let mut out = String::from("microseconds at percentiles of the repeats that count\n");
    let _ = write!(out, "{:44}{:>8}", "", "repeats");
    for percentile in SHOWN {
        let _ = write!(out, "{percentile:>12}");
    }
    out.push('\n');
    for row in &result.rows {
        let mut histogram: Histogram<u64> = Histogram::new(3).expect("three digits are accepted");
        for sample in row.valid() {
            let microseconds = (sample.once.seconds * 1e6).round() as u64;
            histogram.record(microseconds).expect("a histogram that grows takes any number");
        }
        let _ = write!(out, "{:44}{:>8}", row.key.to_string(), histogram.len());
        for percentile in SHOWN {
            let _ = write!(out, "{:>12}", histogram.value_at_percentile(percentile));
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::Answer;
    use crate::compare::tests::{Noise, run};

    #[test]
    fn percentiles_are_those_of_the_repeats() {
        let mut result = run(&mut Noise(5), 5, 1.0);
        for (sample, seconds) in result.rows[1].samples.iter_mut().zip([3.0, 1.0, 2.0, 5.0, 4.0]) {
            sample.once.seconds = seconds;
        }
        let text = percentiles(&result);
        let line = text.lines().find_map(|line| line.strip_prefix("naive loader")).expect("a line");
        let numbers: Vec<f64> = line.split_whitespace().map(|word| word.parse().expect("a number")).collect();
        let expected = [5.0, 1e6, 2e6, 3e6, 4e6, 5e6];
        assert_eq!(numbers.len(), expected.len(), "{line}");
        for (number, expected) in numbers.iter().zip(expected) {
            assert!((number / expected - 1.0).abs() < 0.001, "{line}");
        }
    }

    #[test]
    fn the_table_says_what_the_rows_say() {
        let mut result = run(&mut Noise(5), 3, 1.0);
        for (row, seconds) in result.rows.iter_mut().zip([0.25, 20.0, 0.5]) {
            for sample in &mut row.samples {
                sample.once.seconds = seconds;
            }
        }
        let answer = |sha256: &str| Some(Answer { ids: 7, sha256: sha256.to_owned() });
        result.rows[1].answer = answer("aa");
        result.scenario.answer = None;
        let text = table(&result);
        let line = text.lines().find(|line| line.starts_with("redrive, 1 thread ")).expect("a line");
        assert!(line.contains("0.500 (0.500 … 0.500)") && line.contains("40.0 (40.0 … 40.0)"), "{line}");
        assert!(text.contains("same answer: 7 ids, sha-256 aa"), "{text}");
        result.scenario.answer = Some("bb".to_owned());
        assert!(table(&result).contains("WRONG ANSWER"));
        result.rows[2].answer = answer("bb");
        assert!(table(&result).contains("DIFFERENT ANSWERS"));
        result.rows[2].samples[1].invalid = Some("cold".to_owned());
        assert!(table(&result).contains("INVALID redrive, 1 thread: 1 of 3 repeats: cold"));
    }
}
