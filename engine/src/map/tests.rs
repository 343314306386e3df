//! The map against a plain one, in every form, alone and by several threads.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::table::{BY_HASH, EXACT};
use super::*;
use crate::transaction_log::TransactionState::{CompleteCommit, Ongoing};

/// A log of ids: an id's address is the number of its record. Keys are compared where they lie.
struct Log {
    ids: Vec<Vec<u8>>,
}

impl Keys for &Log {
    fn from(&self, _: u64) -> &[u8] {
        &[]
    }

    fn is(&self, address: u64, id: &[u8]) -> bool {
        self.ids[address as usize] == id
    }
}

fn lines(count: usize) -> io::Result<Lines> {
    Lines::zeroed(count)
}

/// A small generator of numbers, the same for the same seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % end
    }
}

fn log(records: usize, ids: usize, seed: u64) -> Log {
    let mut numbers = Numbers(seed);
    let id = |number: usize| match number % 7 {
        0 => format!("{number}").into_bytes(),
        1 => format!("payments-{number:060}").into_bytes(),
        2 => vec![0; number % 90],
        _ => format!("id-{number}").into_bytes(),
    };
    Log { ids: (0..records).map(|_| id(numbers.below(ids))).collect() }
}

/// Every record as a candidate whose id lies among the extra bytes.
fn candidates(log: &Log, hasher: &IdHasher) -> (Vec<Candidate>, Vec<u8>) {
    let mut extra = Vec::new();
    let candidates = log.ids.iter().enumerate().map(|(address, id)| {
        let id_at = extra.len() as u32;
        extra.extend_from_slice(id);
        let state = if address % 3 == 0 { Ongoing } else { CompleteCommit };
        Candidate {
            hash: hasher.hash(id),
            newest: Newest::new(address as u64, Mark::State(state)),
            id_at,
            id: IdShape::new(id.len(), true),
        }
    });
    (candidates.collect(), extra)
}

fn newest(log: &Log) -> HashMap<&[u8], u64> {
    log.ids.iter().enumerate().map(|(address, id)| (&id[..], address as u64)).collect()
}

const FORMS: [Form; 3] = [Form::InLog, Form::Arena, Form::ByHash];

#[track_caller]
fn assert_is(index: &Index, log: &Log, hasher: &IdHasher) {
    let expected = newest(log);
    let side = Side::default();
    assert_eq!(index.len(), expected.len());
    for (id, address) in &expected {
        let found = index.get(hasher.hash(id), id, &log, &side).expect("every id is there");
        assert_eq!(found.address(), *address);
        let state = if address % 3 == 0 { Ongoing } else { CompleteCommit };
        assert_eq!(found.mark(), Mark::State(state));
    }
    let mut all = Vec::new();
    index.for_each(|newest| all.push(newest.address()));
    all.sort_unstable();
    let mut addresses: Vec<u64> = expected.into_values().collect();
    addresses.sort_unstable();
    assert_eq!(all, addresses);
    for absent in [&b"absent"[..], b"id-", &[0; 91]] {
        assert!(index.get(hasher.hash(absent), absent, &log, &side).is_none());
    }
}

fn apply_all(index: &mut Index, candidates: &[Candidate], extra: &[u8], log: &Log, expected: usize) {
    let (side, mut extent) = (Side::default(), Extent::default());
    let mut left = candidates;
    while !left.is_empty() {
        let ids = IdBytes { window: &[], extra };
        let cpu = CpuKind::detect();
        let with = With { cpu, ids, keys: &log, side: &side, extent: &mut extent };
        let applied = index.apply_alone(left, with).expect("memory");
        left = &left[applied..];
        if !left.is_empty() {
            index.grow(expected, lines).expect("room");
        }
    }
}

#[test]
fn the_newest_of_each_id_in_every_form_and_any_order() {
    let (records, ids) = if cfg!(miri) { (40, 15) } else { (20_000, 6_000) };
    for (seed, form) in FORMS.into_iter().enumerate() {
        let hasher = IdHasher::new(form == Form::ByHash, CpuKind::detect());
        let log = log(records, ids, seed as u64);
        let (mut candidates, extra) = candidates(&log, &hasher);
        let mut numbers = Numbers(seed as u64 + 100);
        for is_shuffled in [false, true] {
            if is_shuffled {
                for at in (1..candidates.len()).rev() {
                    candidates.swap(at, numbers.below(at + 1));
                }
            }
            // From the smallest table, by doublings; and with a guess that is right at once.
            for expected in [0, ids] {
                let mut index = Index::new(form, 0, lines).expect("memory");
                apply_all(&mut index, &candidates, &extra, &log, expected);
                assert_is(&index, &log, &hasher);
            }
        }
    }
}

#[test]
fn threads_that_insert_the_same_ids_leave_one_entry_each() {
    let (records, ids) = if cfg!(miri) { (30, 10) } else { (6_000, 1_500) };
    for form in FORMS {
        let rounds = if cfg!(miri) { 1 } else { 8 };
        for round in 0..rounds {
            let hasher = IdHasher::new(form == Form::ByHash, CpuKind::detect());
            let log = log(records, ids, round);
            let (candidates, extra) = candidates(&log, &hasher);
            // Room for all, so that nobody has to stop for it.
            let index = Index::new(form, 2 * ids, lines).expect("memory");
            let side = Side::default();
            let next = AtomicUsize::new(0);
            let chunks: Vec<&[Candidate]> = candidates.chunks(10).collect();
            thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        let mut extent = Extent::default();
                        while let Some(chunk) = chunks.get(next.fetch_add(1, Ordering::Relaxed)) {
                            let ids = IdBytes { window: &[], extra: &extra };
                            let cpu = CpuKind::detect();
                            let with = With { cpu, ids, keys: &&log, side: &side, extent: &mut extent };
                            let applied = index.apply_shared(chunk, with).expect("memory");
                            assert_eq!(applied, chunk.len());
                        }
                    });
                }
            });
            assert_is(&index, &log, &hasher);
        }
    }
}

/// Records of one batch that is compressed or has several: their slots lead to side entries, which go with the last of
/// them that is the newest of its id.
#[test]
fn side_entries_are_told_apart_and_let_go() {
    let side = Side::default();
    let record = |ordinal, id: &[u8]| SideRecord { ordinal, mark: Mark::Tombstone, id: id.into() };
    side.add(100, vec![record(0, b"a"), record(4, b"b")]);
    side.add(200, vec![record(9, b"a")]);
    assert!(side.is(100, b"a") && side.is(101, b"b") && side.is(200, b"a"));
    assert!(!side.is(100, b"b") && !side.is(102, b"a") && !side.is(99, b"a") && !side.is(201, b"a"));
    assert_eq!(side.with(101, |batch, record| (batch, record.ordinal)), Some((100, 4)));
    let bytes = side.bytes();
    let holds = |side: &Side, batch| side.with(batch, |_, _| ()).is_some();
    supersede(&side, Newest::new(100, Mark::Side), Newest::new(200, Mark::Side));
    assert!(side.is(101, b"b"), "one of two is left");
    supersede(&side, Newest::new(300, Mark::Tombstone), Newest::new(101, Mark::Side));
    assert!(!holds(&side, 100) && holds(&side, 200) && side.bytes() < bytes);
    // The same record twice is no newer one.
    supersede(&side, Newest::new(200, Mark::Side), Newest::new(200, Mark::Side));
    assert!(holds(&side, 200));
    let taken = side.take();
    assert!(holds(&taken, 200) && !holds(&side, 200));
    assert_eq!((side.bytes(), taken.bytes() > 0), (0, true));
}

#[test]
fn newest_keeps_address_and_mark_and_sorts_by_address() {
    let marks = TransactionState::ALL.map(Mark::State).into_iter().chain([Mark::Tombstone, Mark::Side]);
    let largest = (1 << ADDRESS_BITS) - 1;
    for mark in marks {
        for address in [0, 1, largest] {
            let newest = Newest::new(address, mark);
            assert_eq!((newest.address(), newest.mark()), (address, mark));
            assert!(newest.0 > 0 && newest.0 < 1 << table::CONTENT_BITS);
            assert_eq!(newest.is_side(), mark == Mark::Side);
        }
        assert!(Newest::new(1, Mark::State(TransactionState::Empty)) > Newest::new(0, mark));
    }
}

/// Tags and places by hand: what a table does when its bits run out, and that entries survive each doubling.
#[test]
fn a_table_grows_until_its_bits_run_out() {
    fn grow<const SLOTS: usize>(doublings: u32) -> Result<(), GrowFault> {
        let mut table = Table::<SLOTS>::with_room_for(1, lines).expect("memory");
        let mut numbers = Numbers(7);
        let mut number = || (numbers.below(1 << 30) as u64) << 34 | (numbers.below(1 << 30) as u64) << 4;
        let hashes: Vec<IdHash> = (0..40).map(|_| IdHash { place: number(), identity: number() }).collect();
        for (content, hash) in hashes.iter().enumerate() {
            let shape = table.shape();
            let is_key = |found: u64| found == content as u64 + 1;
            let entry = shape.entry(&mut table.alone(), *hash, is_key, || content as u64 + 1);
            assert!(matches!(entry, Entry::Inserted));
        }
        for _ in 0..doublings {
            let lines_before = table.bytes();
            table.grow(0, lines)?;
            assert_eq!(table.bytes(), 2 * lines_before);
            for (content, hash) in hashes.iter().enumerate() {
                let found = table.find(*hash, |found| SLOTS == BY_HASH || found == content as u64 + 1);
                assert_eq!(found.expect("still there").content(), content as u64 + 1);
            }
        }
        Ok(())
    }
    let doublings = if cfg!(miri) { 2 } else { 12 };
    grow::<EXACT>(doublings).expect("bits are left");
    grow::<BY_HASH>(doublings).expect("bits are left");
    if !cfg!(miri) {
        assert!(matches!(grow::<EXACT>(16), Err(GrowFault::Exhausted(15))));
    }
    let mut table = Table::<EXACT>::with_room_for(1, lines).expect("memory");
    let refuses = |_| Err(io::ErrorKind::OutOfMemory.into());
    assert!(matches!(table.grow(0, refuses), Err(GrowFault::Memory { .. })));
    assert_eq!(table.len(), 0, "as it was");
}

/// Two ids whose hashes agree but for the tag are two, whether the second is met beside the first or later.
#[test]
fn by_hash_the_tag_counts_too() {
    let hash = |tag: u64| IdHash { place: tag << 40 | 3, identity: 77 };
    let hashes =
        [hash(0), IdHash { place: 1 << 12 | 3, ..hash(0) }, IdHash { place: 2 << 12 | 3, ..hash(0) }];
    let candidate = |address: usize| Candidate {
        hash: hashes[address],
        newest: Newest::new(address as u64, Mark::Tombstone),
        id_at: 0,
        id: IdShape::new(0, true),
    };
    let mut index = Index::new(Form::ByHash, 0, lines).expect("memory");
    let (side, mut extent) = (Side::default(), Extent::default());
    for candidates in [vec![candidate(0), candidate(1)], vec![candidate(2)], vec![candidate(0), candidate(1)]]
    {
        let (cpu, ids) = (CpuKind::detect(), IdBytes { window: &[], extra: &[] });
        let with = With { cpu, ids, keys: &(), side: &side, extent: &mut extent };
        assert_eq!(index.apply_alone(&candidates, with).expect("memory"), candidates.len());
    }
    assert_eq!(index.len(), 3);
    for (address, hash) in hashes.into_iter().enumerate() {
        let found = index.get(hash, b"", &(), &side).expect("each is there");
        assert_eq!(found.address(), address as u64);
    }
}
