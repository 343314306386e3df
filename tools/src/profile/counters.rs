//! How many records each id has, in bounded memory.

use std::collections::HashMap;

/// Most ids that are counted at once.
const IDS_MAX: usize = 1 << 20;
/// Most bytes that their names may take together.
const ID_BYTES_MAX: usize = 64 << 20;

/// Counts of texts: exact while they fit, then those of the frequent ones with a known error (a Misra-Gries sketch).
///
/// When there is no room, the median of all counts is taken from every count, and those that are left with nothing go.
/// So at least half of them go each time, and no count is ever too large, nor too small by more than what was taken in
/// all. Memory: some 150 MiB at most.
#[derive(Debug)]
pub(super) struct Counters {
    counts: HashMap<Box<str>, u64>,
    id_bytes: usize,
    /// What was taken from every count.
    taken: u64,
    ids_max: usize,
    id_bytes_max: usize,
}

impl Counters {
    pub(super) fn new() -> Self {
        Self::with_limits(IDS_MAX, ID_BYTES_MAX)
    }

    fn with_limits(ids_max: usize, id_bytes_max: usize) -> Self {
        Self { counts: HashMap::new(), id_bytes: 0, taken: 0, ids_max, id_bytes_max }
    }

    /// Counts one occurrence.
    pub(super) fn add(&mut self, id: &str) {
        if let Some(count) = self.counts.get_mut(id) {
            *count += 1;
            return;
        }
        self.counts.insert(id.into(), 1);
        self.id_bytes += id.len();
        while self.counts.len() > self.ids_max || self.id_bytes > self.id_bytes_max {
            self.make_room();
        }
    }

    fn make_room(&mut self) {
        let mut counts: Vec<u64> = self.counts.values().copied().collect();
        let middle = counts.len() / 2;
        let (_, median, _) = counts.select_nth_unstable(middle);
        let median = *median;
        let id_bytes = &mut self.id_bytes;
        self.counts.retain(|id, count| {
            *count = count.saturating_sub(median);
            if *count == 0 {
                *id_bytes -= id.len();
            }
            *count > 0
        });
        self.taken += median;
    }

    /// By how much a count may be too small; 0 if all are exact. An id without a count occurred no more often.
    pub(super) fn error(&self) -> u64 {
        self.taken
    }

    /// The `most` largest counts, largest first, equal ones by the id.
    pub(super) fn top(self, most: usize) -> Vec<(Box<str>, u64)> {
        let mut counts: Vec<_> = self.counts.into_iter().collect();
        let order = |a: &(Box<str>, u64), b: &(Box<str>, u64)| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0));
        if counts.len() > most && most > 0 {
            counts.select_nth_unstable_by(most - 1, order);
        }
        counts.truncate(most);
        counts.sort_unstable_by(order);
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Texts of which a few are frequent, from a small generator of our own.
    fn occurrences() -> Vec<String> {
        let mut state = 1u64;
        let mut next = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 33
        };
        (0..50_000)
            .map(|_| match next() % 10 {
                0..=1 => "hot".to_owned(),
                2 => "warm".to_owned(),
                _ => format!("id-{}", next() % 20_000),
            })
            .collect()
    }

    fn exact(texts: &[String]) -> HashMap<&str, u64> {
        let mut exact = HashMap::new();
        for text in texts {
            *exact.entry(text.as_str()).or_insert(0) += 1;
        }
        exact
    }

    #[test]
    fn what_fits_is_exact() {
        let texts = occurrences();
        let mut counters = Counters::new();
        texts.iter().for_each(|text| counters.add(text));
        assert_eq!(counters.error(), 0);
        let mut expected: Vec<_> = exact(&texts).into_iter().collect();
        expected.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
        let top = counters.top(10);
        assert_eq!(top.len(), 10);
        for ((id, count), expected) in top.iter().zip(expected) {
            assert_eq!((&**id, *count), expected);
        }
    }

    #[test]
    fn what_does_not_fit_is_wrong_by_no_more_than_is_said() {
        let texts = occurrences();
        let exact = exact(&texts);
        for (ids_max, id_bytes_max) in [(64, usize::MAX), (usize::MAX, 700)] {
            let mut counters = Counters::with_limits(ids_max, id_bytes_max);
            for text in &texts {
                counters.add(text);
                assert!(counters.counts.len() <= ids_max && counters.id_bytes <= id_bytes_max);
            }
            assert_eq!(counters.id_bytes, counters.counts.keys().map(|id| id.len()).sum::<usize>());
            let error = counters.error();
            assert!(error > 0 && error < 5000, "{error}");
            for (id, count) in &exact {
                let counted = counters.counts.get(*id).copied().unwrap_or(0);
                assert!(counted <= *count && counted + error >= *count, "{id}: {counted} of {count}");
            }
            let names: Vec<_> = counters.top(2).into_iter().map(|(id, _)| id).collect();
            assert_eq!(names, ["hot".into(), "warm".into()]);
        }
    }

    #[test]
    fn a_text_that_is_too_long_alone_is_let_go() {
        let mut counters = Counters::with_limits(10, 3);
        counters.add("long one");
        assert_eq!((counters.counts.len(), counters.error()), (0, 1));
        assert!(counters.top(0).is_empty());
    }
}
