//! `load.hlog`: waits and loads of partitions, as a HdrHistogram interval log.
//!
//! For every load two intervals, tagged `wait` and `load`, with one value a partition in microseconds, three digits
//! exact. The log is version 1.3 of Java's HistogramLogWriter: its readers and viewers open it.

use std::io::{self, Write};
use std::time::{Duration, UNIX_EPOCH};

use hdrhistogram::Histogram;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, IntervalLogWriterError, Tag};

use super::runs::Run;

/// Digits that stay exact.
const DIGITS: u8 = 3;
/// Readers show the largest value of an interval in milliseconds.
const MICROS_PER_MILLI: f64 = 1000.0;

/// Writes the log.
///
/// # Errors
/// What the writer says.
pub(super) fn write(mut out: &mut dyn Write, runs: &[Run]) -> io::Result<()> {
    let begun_ms = runs.first().map_or(0, |run| run.begun_ms);
    let begun = UNIX_EPOCH + Duration::from_millis(u64::try_from(begun_ms).unwrap_or(0));
    let mut serializer = V2DeflateSerializer::new();
    let mut log = IntervalLogWriterBuilder::new()
        .add_comment("[Histogram log format version 1.3]")
        .add_comment("[redrive profile: microseconds a partition, an interval for each load]")
        .with_start_time(begun)
        .with_base_time(begun)
        .with_max_value_divisor(MICROS_PER_MILLI)
        .begin_log_with(&mut out, &mut serializer)?;
    for run in runs {
        let threads = if run.threads == 1 { "thread" } else { "threads" };
        log.write_comment(&format!("[{}, {} {threads}, {}]", run.kind.name(), run.threads, run.io))?;
        let since = u64::try_from(run.begun_ms.saturating_sub(begun_ms)).unwrap_or(0);
        let waits = histogram(run.partitions.iter().map(|(wait, _)| *wait))?;
        let loads = histogram(run.partitions.iter().map(|(_, load)| *load))?;
        for (tag, histogram) in [("wait", waits), ("load", loads)] {
            log.write_histogram(&histogram, Duration::from_millis(since), run.elapsed, Tag::new(tag))
                .map_err(|error| match error {
                    IntervalLogWriterError::IoError(error) => error,
                    IntervalLogWriterError::SerializeError(error) => io::Error::other(error.to_string()),
                })?;
        }
    }
    Ok(())
}

fn histogram(times: impl Iterator<Item = Duration>) -> io::Result<Histogram<u64>> {
    let mut histogram = Histogram::new(DIGITS).map_err(|error| io::Error::other(error.to_string()))?;
    for time in times {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        histogram.record(micros).map_err(|error| io::Error::other(error.to_string()))?;
    }
    Ok(histogram)
}

#[cfg(test)]
mod tests {
    use hdrhistogram::serialization::Deserializer;
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
    use redrive::io::Cache;

    use super::super::runs::RunKind;
    use super::*;

    fn run(begun_ms: i64, partitions: &[(u64, u64)]) -> Run {
        let micros = Duration::from_micros;
        Run {
            kind: RunKind::Warm,
            threads: 2,
            io: "mmap",
            cache: Cache::Warm,
            valid: true,
            partitions_loaded: partitions.len(),
            begun_ms,
            elapsed: Duration::from_millis(1500),
            partitions: partitions.iter().map(|(wait, load)| (micros(*wait), micros(*load))).collect(),
        }
    }

    #[test]
    fn every_load_is_two_intervals() {
        let runs = [run(1_700_000_000_000, &[(0, 7), (1000, 90_000_000)]), run(1_700_000_002_250, &[])];
        let mut log = Vec::new();
        write(&mut log, &runs).unwrap();
        let text = String::from_utf8(log.clone()).unwrap();
        assert!(text.starts_with("#[Histogram log format version 1.3]\n"), "{text}");
        let (mut found, mut times) = (Vec::new(), Vec::new());
        for entry in IntervalLogIterator::new(&log) {
            match entry.expect("a line") {
                LogEntry::StartTime(time) | LogEntry::BaseTime(time) => times.push(time.as_millis()),
                LogEntry::Interval(interval) => {
                    use base64::Engine as _;
                    let bytes = base64::engine::general_purpose::STANDARD
                        .decode(interval.encoded_histogram())
                        .expect("base64");
                    let histogram: Histogram<u64> =
                        Deserializer::new().deserialize(&mut &bytes[..]).expect("a histogram");
                    let values: Vec<_> =
                        histogram.iter_recorded().map(|value| value.value_iterated_to()).collect();
                    found.push((
                        interval.tag().map(|tag| tag.as_str().to_owned()),
                        interval.start_timestamp().as_millis(),
                        interval.duration().as_millis(),
                        values,
                    ));
                }
            }
        }
        assert_eq!(times, [1_700_000_000_000; 2]);
        let tag = |tag: &str| Some(tag.to_owned());
        // Three digits: a value stands for those up to 65,535 behind it.
        let expected = [
            (tag("wait"), 0, 1500, vec![0, 1000]),
            (tag("load"), 0, 1500, vec![7, 90_046_463]),
            (tag("wait"), 2250, 1500, vec![]),
            (tag("load"), 2250, 1500, vec![]),
        ];
        assert_eq!(found, expected);
    }
}
