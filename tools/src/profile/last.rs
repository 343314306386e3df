//! Which partition was ready last, and why.

use std::time::Duration;

use serde::Serialize;

use super::report::{Partition, seconds};
use crate::text::{count, duration, percent, size};

/// The partition whose map was published last: the end of the load window.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Last {
    pub(super) partition: i32,
    /// From the begin of the load until its map was published.
    #[serde(rename = "endSeconds", serialize_with = "seconds")]
    pub(super) end: Duration,
    /// How much earlier the last but one was ready; absent if there is none.
    #[serde(rename = "leadSeconds", serialize_with = "some_seconds")]
    pub(super) lead: Option<Duration>,
    pub(super) cause: Cause,
    /// The cause as a sentence, with the figures that it was concluded from.
    pub(super) why: String,
}

fn some_seconds<S: serde::Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    time.map(|time| time.as_secs_f64()).serialize(serializer)
}

/// What explains the last partition, the first that applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Cause {
    /// There is no other.
    Only,
    /// More than half of the window went into its end: putting segments together, or the slow way through damage.
    Finish,
    /// It waited for a thread longer than it took to load.
    Queue,
    /// At least half as large again as the mean, by what is superseded in it.
    Superseded,
    /// At least half as large again as the mean.
    Size,
    /// Nothing sets it apart.
    Level,
}

impl Last {
    /// `None` if nothing was loaded.
    pub(super) fn of(partitions: &[Partition], threads: usize) -> Option<Self> {
        // Of several that are ready at once, the lowest number.
        let last = partitions.iter().rev().max_by_key(|partition| partition.end())?;
        let others = partitions.iter().filter(|other| other.partition != last.partition);
        let before = others.map(Partition::end).max();
        let (cause, why) = why(last, partitions, threads);
        let lead = before.map(|before| last.end().saturating_sub(before));
        Some(Self { partition: last.partition, end: last.end(), lead, cause, why })
    }
}

fn why(last: &Partition, all: &[Partition], threads: usize) -> (Cause, String) {
    let threads_text = match threads {
        1 => "one thread".to_owned(),
        more => format!("{} threads", count(more as u64)),
    };
    if all.len() == 1 {
        return (Cause::Only, "it is the only one".to_owned());
    }
    let finish = last.phases.finish;
    if finish * 2 > last.end() {
        let what = if last.is_damaged {
            "for the slow way through a torn tail or damage"
        } else {
            "to put its segments together"
        };
        return (
            Cause::Finish,
            format!("{} of the {} were needed {what}", duration(finish), duration(last.end())),
        );
    }
    if last.wait > last.elapsed {
        let before = all.iter().filter(|other| other.wait < last.wait).count() as u64;
        let verb = if threads == 1 { "was" } else { "were" };
        return (
            Cause::Queue,
            format!(
                "it was taken up after {}, loaded in {}: until then {threads_text} {verb} busy with {} others",
                duration(last.wait),
                duration(last.elapsed),
                count(before),
            ),
        );
    }
    let bytes: u64 = all.iter().map(|partition| partition.bytes).sum();
    if is_large(last.bytes, bytes, all.len()) {
        let live: Option<u64> = all.iter().map(|partition| partition.live_bytes).sum();
        let head = format!(
            "it is {} of {} ({}), {} a partition on average",
            size(last.bytes),
            size(bytes),
            percent(last.bytes, bytes),
            size(bytes / all.len() as u64),
        );
        return match (last.live_bytes, live) {
            (Some(own), Some(live)) if !is_large(own, live, all.len()) => {
                let text = format!(
                    "{head}; but only {} of it are live, no more than elsewhere: the rest is superseded, which a \
                     compaction takes away",
                    size(own)
                );
                (Cause::Superseded, text)
            }
            _ => (Cause::Size, head),
        };
    }
    (Cause::Level, format!("nothing sets it apart: {threads_text} shared the work to the end"))
}

/// Whether a part is at least half as large again as the mean of `parts` parts.
fn is_large(part: u64, whole: u64, parts: usize) -> bool {
    u128::from(part) * 2 * parts as u128 >= u128::from(whole) * 3
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A partition of 100 bytes, 50 of them live, loaded at once in 10 ms.
    fn partition(number: i32) -> Partition {
        let mut partition = Partition::default();
        partition.partition = number;
        (partition.bytes, partition.live_bytes) = (100, Some(50));
        partition.elapsed = Duration::from_millis(10);
        partition
    }

    fn last(partitions: &[Partition], threads: usize) -> (i32, Cause, String) {
        let last = Last::of(partitions, threads).unwrap();
        assert_eq!(last.lead.is_none(), partitions.len() == 1);
        (last.partition, last.cause, last.why)
    }

    #[test]
    fn every_cause_has_its_figures() {
        assert_eq!(Last::of(&[], 1), None);
        let one = partition(3);
        assert_eq!(last(std::slice::from_ref(&one), 2), (3, Cause::Only, "it is the only one".to_owned()));

        // Of two that are ready at once, the lower number is named.
        let (number, cause, why) = last(&[partition(0), partition(1)], 2);
        assert_eq!((number, cause), (0, Cause::Level));
        assert!(why.contains("2 threads"), "{why}");

        let mut late = partition(2);
        late.wait = Duration::from_millis(11);
        let (number, cause, why) = last(&[partition(0), partition(1), late.clone()], 1);
        assert_eq!((number, cause), (2, Cause::Queue));
        assert!(why.contains("after 11 ms") && why.contains("one thread was busy with 2 others"), "{why}");
        late.wait = Duration::from_millis(10);
        assert_eq!(last(&[partition(0), partition(1), late], 1).1, Cause::Level, "not longer than it took");

        let mut large = partition(1);
        (large.bytes, large.live_bytes) = (900, Some(450));
        large.elapsed = Duration::from_millis(90);
        let (number, cause, why) = last(&[partition(0), large.clone(), partition(2)], 2);
        assert_eq!((number, cause), (1, Cause::Size));
        assert!(why.contains("900 B of 1.1 kB (82 %), 366 B a partition"), "{why}");
        large.live_bytes = Some(50);
        let (_, cause, why) = last(&[partition(0), large.clone(), partition(2)], 2);
        assert_eq!(cause, Cause::Superseded);
        assert!(why.contains("only 50 B of it are live"), "{why}");
        large.live_bytes = None;
        assert_eq!(last(&[partition(0), large.clone(), partition(2)], 2).1, Cause::Size, "nothing is known");

        large.phases.finish = Duration::from_millis(46);
        let (_, cause, why) = last(&[partition(0), large.clone()], 2);
        assert_eq!(cause, Cause::Finish);
        assert!(why.contains("46 ms of the 90 ms were needed to put its segments together"), "{why}");
        large.is_damaged = true;
        assert!(last(&[partition(0), large], 2).2.contains("damage"));
    }

    #[test]
    fn the_lead_is_the_time_to_the_one_before() {
        let mut late = partition(2);
        late.wait = Duration::from_millis(7);
        let mut early = partition(1);
        early.elapsed = Duration::from_millis(4);
        let last = Last::of(&[partition(0), late, early], 1).unwrap();
        assert_eq!((last.partition, last.end.as_millis()), (2, 17));
        assert_eq!(last.lead, Some(Duration::from_millis(7)));
    }
}
