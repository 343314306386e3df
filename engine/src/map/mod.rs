//! id → address of its newest record, in 8 to 16 bytes an id.
//!
//! An address is a place in a log whose segments lie one behind the other: 40 bits, 1 TiB. "Newest" is the maximum of
//! the address, so records may be applied in any order and by any number of threads. Nothing is ever removed: a
//! tombstone is a newest record like any other, to be left out by whoever reads the map.
//!
//! Three forms of the same map, which differ in what an id is compared with:
//!
//! | form | compared with | bytes an id, index | needs |
//! |---|---|---|---|
//! | [`Index::InLog`] | the key of the older record, in the log | 11 … 21 | the log at hand |
//! | [`Index::Arena`] | a copy of the id | 11 … 21 + 8 + id rounded up to 8 | nothing |
//! | [`Index::ByHash`] | 78 bits of a keyed hash and the place in the table | 21 … 43 | nothing |
//!
//! With hashes two ids of one partition are taken for the same with a probability of at most 2⁻⁸² for each pair, since
//! the table has at least 32 lines: with 10 million ids about 10⁻¹¹, and in practice less, since such a table starts
//! larger. Keys are fresh for each load, so nobody can choose ids that collide.

mod arena;
mod hash;
mod side;
mod table;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::atomic::AtomicU64;

pub(crate) use arena::Extent;
pub(crate) use hash::{HASHED_SHORT, IdHash, IdHasher};
pub(crate) use side::{Side, SideRecord};
pub(crate) use table::GrowFault;

use arena::{Arena, word_of};
use hash::{SHORT_BYTES, ShortId};
use table::{BY_HASH, EXACT, Entry, Found, Shape, Table, Words};

use crate::batch::HEADER_LEN;
use crate::machine::cpu::{Cpu, CpuKind, Work};
use crate::machine::lines::Lines;
use crate::machine::prefetch::prefetch;
use crate::transaction_log::TransactionState;

/// Bits of an address.
pub(crate) const ADDRESS_BITS: u32 = 40;
const MARK_BITS: u32 = table::CONTENT_BITS - ADDRESS_BITS;

/// What is known of a record without looking at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// The transaction's state.
    State(TransactionState),
    /// No value: the id is gone.
    Tombstone,
    /// The side entries know.
    Side,
}

/// An address and its mark in 44 bits, never 0. The address is the upper part, so that the newer record is the
/// larger number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Newest(u64);

impl Newest {
    #[inline(always)]
    pub(crate) fn new(address: u64, mark: Mark) -> Self {
        let mark = match mark {
            Mark::State(state) => 1 + state as u64,
            Mark::Tombstone => 9,
            Mark::Side => 10,
        };
        Self(address << MARK_BITS | mark)
    }

    #[inline(always)]
    pub(crate) fn address(self) -> u64 {
        self.0 >> MARK_BITS
    }

    #[inline(always)]
    pub(crate) fn mark(self) -> Mark {
        match self.0 & ((1 << MARK_BITS) - 1) {
            9 => Mark::Tombstone,
            state @ 1..=8 => Mark::State(TransactionState::ALL[state as usize - 1]),
            _ => Mark::Side,
        }
    }

    #[inline(always)]
    fn is_side(self) -> bool {
        self.0 & ((1 << MARK_BITS) - 1) == 10
    }
}

/// A record that may be the newest of its id.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub(crate) hash: IdHash,
    pub(crate) newest: Newest,
    /// Where the id begins in the bytes that come with the candidate.
    pub(crate) id_at: u32,
    pub(crate) id: IdShape,
}

/// Length of an id, and whether it lies in the log as it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IdShape(u32);

impl IdShape {
    const EXTRA: u32 = 1 << 31;

    #[inline(always)]
    pub(crate) fn new(len: usize, is_extra: bool) -> Self {
        Self(len as u32 | (u32::from(is_extra) << 31))
    }

    /// Bytes. A malformed id, read as Kafka does, can have three times the bytes of a key.
    #[inline(always)]
    fn len(self) -> usize {
        (self.0 & !Self::EXTRA) as usize
    }

    /// Whether the id lies among the extra bytes.
    #[inline(always)]
    fn is_extra(self) -> bool {
        self.0 & Self::EXTRA != 0
    }
}

/// The bytes that the ids of candidates lie in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IdBytes<'a> {
    /// The log.
    pub(crate) window: &'a [u8],
    /// Ids that do not lie in the log as they are read: compressed or malformed ones.
    pub(crate) extra: &'a [u8],
}

impl<'a> IdBytes<'a> {
    /// The bytes from the first of an id on.
    #[inline(always)]
    fn from(&self, candidate: &Candidate) -> &'a [u8] {
        let bytes = if candidate.id.is_extra() { self.extra } else { self.window };
        bytes.get(candidate.id_at as usize..).unwrap_or_default()
    }

    /// The key of an id that lies in the log, from the key's length on, and its bytes.
    #[inline(always)]
    fn stored_key(&self, candidate: &Candidate) -> (&'a [u8], usize) {
        // Version and length take four bytes; the length of it all is a signed number, one byte below 64.
        let key_len = candidate.id.len() + 4;
        let before = if key_len < 64 { 5 } else { 6 };
        let from = (candidate.id_at as usize).saturating_sub(before);
        (self.window.get(from..).unwrap_or_default(), before + candidate.id.len())
    }

    /// An id.
    #[inline(always)]
    pub(crate) fn id(&self, candidate: &Candidate) -> &'a [u8] {
        let bytes = self.from(candidate);
        &bytes[..candidate.id.len().min(bytes.len())]
    }
}

/// The log, where older records are compared with.
pub(crate) trait Keys {
    /// The log from an address on, as far as it is at hand.
    fn from(&self, address: u64) -> &[u8];

    /// Whether the record at an address, which is the only one of its batch, has this id as Kafka reads it.
    fn is(&self, address: u64, id: &[u8]) -> bool;

    /// The same for an id that was read from such a batch: `stored` begins with its key as it is stored there, from the
    /// key's length on, `len` bytes.
    #[inline(always)]
    fn is_stored(&self, cpu: impl Cpu, address: u64, id: &[u8], stored: &[u8], len: usize) -> bool {
        let _ = (cpu, stored, len);
        self.is(address, id)
    }
}

/// No log.
impl Keys for () {
    fn from(&self, _: u64) -> &[u8] {
        &[]
    }

    fn is(&self, _: u64, _: &[u8]) -> bool {
        false
    }
}

/// How ids are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    InLog,
    Arena,
    ByHash,
}

/// The map. See the module.
#[derive(Debug)]
pub(crate) enum Index {
    InLog(Table<EXACT>),
    Arena(Table<EXACT>, Box<Arena>),
    ByHash(Table<BY_HASH>),
}

/// Bytes behind the header of a batch with one record in which its key probably lies.
const KEY_BYTES: usize = 64;

/// Candidates whose memory is asked for together.
const GROUP: usize = 32;

/// What candidates are applied with.
pub(crate) struct With<'a, K> {
    pub(crate) cpu: CpuKind,
    pub(crate) ids: IdBytes<'a>,
    pub(crate) keys: &'a K,
    pub(crate) side: &'a Side,
    pub(crate) extent: &'a mut Extent,
}

impl Index {
    /// An empty map with room for some ids.
    pub(crate) fn new(
        form: Form,
        room: usize,
        allocate: impl FnOnce(usize) -> io::Result<Lines>,
    ) -> Result<Self, GrowFault> {
        Ok(match form {
            Form::InLog => Self::InLog(Table::with_room_for(room, allocate)?),
            Form::Arena => Self::Arena(Table::with_room_for(room, allocate)?, Box::default()),
            Form::ByHash => Self::ByHash(Table::with_room_for(room, allocate)?),
        })
    }

    /// Ids, with those that are gone.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::InLog(table) | Self::Arena(table, _) => table.len(),
            Self::ByHash(table) => table.len(),
        }
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::InLog(table) => table.bytes(),
            Self::Arena(table, arena) => table.bytes() + arena.bytes(),
            Self::ByHash(table) => table.bytes(),
        }
    }

    /// Lines of the table that [`grow`](Self::grow) would make.
    pub(crate) fn lines_to_grow(&self, ids: usize) -> usize {
        match self {
            Self::InLog(table) | Self::Arena(table, _) => table.lines_to_grow(ids),
            Self::ByHash(table) => table.lines_to_grow(ids),
        }
    }

    /// Lines of the table.
    pub(crate) fn lines(&self) -> usize {
        match self {
            Self::InLog(table) | Self::Arena(table, _) => table.lines(),
            Self::ByHash(table) => table.lines(),
        }
    }

    /// Makes room for so many ids, and for twice as many as before; gives back the old lines.
    pub(crate) fn grow(
        &mut self,
        ids: usize,
        allocate: impl FnMut(usize) -> io::Result<Lines>,
    ) -> Result<Lines, GrowFault> {
        match self {
            Self::InLog(table) | Self::Arena(table, _) => table.grow(ids, allocate),
            Self::ByHash(table) => table.grow(ids, allocate),
        }
    }

    /// Applies candidates until the table must grow; how many were applied.
    ///
    /// # Errors
    /// What the system says when there is no memory for ids.
    pub(crate) fn apply_alone(
        &mut self,
        candidates: &[Candidate],
        with: With<'_, impl Keys>,
    ) -> io::Result<usize> {
        match self {
            Self::InLog(table) => {
                apply(table.shape(), table.alone(), candidates, with.cpu, InLog::new(&with))
            }
            Self::Arena(table, arena) => {
                let cpu = with.cpu;
                apply(table.shape(), table.alone(), candidates, cpu, InArena::new(arena, with))
            }
            Self::ByHash(table) => {
                apply(table.shape(), table.alone(), candidates, with.cpu, OfHash { side: with.side })
            }
        }
    }

    /// The same for one thread of several that may be applying at this moment.
    ///
    /// # Errors
    /// As [`apply_alone`](Self::apply_alone).
    pub(crate) fn apply_shared(
        &self,
        candidates: &[Candidate],
        with: With<'_, impl Keys>,
    ) -> io::Result<usize> {
        match self {
            Self::InLog(table) => {
                apply(table.shape(), table.shared(), candidates, with.cpu, InLog::new(&with))
            }
            Self::Arena(table, arena) => {
                let cpu = with.cpu;
                apply(table.shape(), table.shared(), candidates, cpu, InArena::new(arena, with))
            }
            Self::ByHash(table) => {
                apply(table.shape(), table.shared(), candidates, with.cpu, OfHash { side: with.side })
            }
        }
    }

    /// The newest record of an id, as Kafka reads it.
    pub(crate) fn get(&self, hash: IdHash, id: &[u8], keys: &impl Keys, side: &Side) -> Option<Newest> {
        match self {
            Self::InLog(table) => table
                .find(hash, |content| {
                    let newest = Newest(content);
                    if newest.is_side() {
                        side.is(newest.address(), id)
                    } else {
                        keys.is(newest.address(), id)
                    }
                })
                .map(|found| Newest(found.content())),
            Self::Arena(table, arena) => table
                .find(hash, |content| arena.is(Newest(content).address(), id))
                .map(|found| Newest(arena.content(Newest(found.content()).address()))),
            Self::ByHash(table) => table.find(hash, |_| true).map(|found| Newest(found.content())),
        }
    }

    /// Calls `see` with the newest record of every id, in no order.
    pub(crate) fn for_each(&self, mut see: impl FnMut(Newest)) {
        match self {
            Self::InLog(table) => table.contents().for_each(|content| see(Newest(content))),
            Self::Arena(table, arena) => {
                let mut addresses = table.contents().map(|content| Newest(content).address());
                let mut group = [0; GROUP];
                loop {
                    let mut count = 0;
                    for (place, address) in group.iter_mut().zip(&mut addresses) {
                        prefetch(arena.word(address as usize));
                        *place = address;
                        count += 1;
                    }
                    group[..count].iter().for_each(|address| see(Newest(arena.content(*address))));
                    if count < GROUP {
                        break;
                    }
                }
            }
            Self::ByHash(table) => table.contents().for_each(|content| see(Newest(content))),
        }
    }
}

/// What an id is compared with, and where its newest record is kept.
trait Identity<const SLOTS: usize> {
    /// Whether looking at older keys costs memory that should be asked for.
    const LOOKS: bool;

    /// What [`is_key`](Self::is_key) will look at.
    type Place<'p>: Copy + Default
    where
        Self: 'p;

    /// Finds it, without looking at it.
    fn place(&self, content: u64) -> Self::Place<'_>;

    /// Asks for it.
    fn prefetch<'p>(place: Self::Place<'p>)
    where
        Self: 'p;

    /// Whether a slot is that of a candidate's id.
    fn is_key(&self, cpu: impl Cpu, candidate: &Candidate, content: u64) -> bool;

    /// The content of a new slot for a candidate.
    fn make(&mut self, candidate: &Candidate) -> u64;

    /// A candidate found its slot.
    fn found(&mut self, candidate: &Candidate, shape: Shape<SLOTS>, words: &mut impl Words, found: Found);

    /// Whether the last [`make`](Self::make) went well.
    fn check(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// See [`Index::InLog`].
struct InLog<'a, K> {
    ids: IdBytes<'a>,
    keys: &'a K,
    side: &'a Side,
}

impl<'a, K> InLog<'a, K> {
    fn new(with: &With<'a, K>) -> Self {
        Self { ids: with.ids, keys: with.keys, side: with.side }
    }
}

impl<K: Keys> Identity<EXACT> for InLog<'_, K> {
    const LOOKS: bool = true;

    type Place<'p>
        = Option<&'p [u8; KEY_BYTES]>
    where
        Self: 'p;

    #[inline(always)]
    fn place(&self, content: u64) -> Self::Place<'_> {
        self.keys.from(Newest(content).address()).get(HEADER_LEN..)?.first_chunk()
    }

    #[inline(always)]
    fn prefetch<'p>(place: Self::Place<'p>)
    where
        Self: 'p,
    {
        if let Some(place) = place {
            prefetch(&place[0]);
            prefetch(&place[KEY_BYTES - 1]);
        }
    }

    #[inline(always)]
    fn is_key(&self, cpu: impl Cpu, candidate: &Candidate, content: u64) -> bool {
        let older = Newest(content);
        if older.is_side() {
            self.side.is(older.address(), self.ids.id(candidate))
        } else if candidate.id.is_extra() {
            self.keys.is(older.address(), self.ids.id(candidate))
        } else {
            let (stored, len) = self.ids.stored_key(candidate);
            self.keys.is_stored(cpu, older.address(), self.ids.id(candidate), stored, len)
        }
    }

    #[inline(always)]
    fn make(&mut self, candidate: &Candidate) -> u64 {
        candidate.newest.0
    }

    #[inline(always)]
    fn found(&mut self, candidate: &Candidate, shape: Shape<EXACT>, words: &mut impl Words, found: Found) {
        let older = shape.raise(words, found, candidate.newest.0);
        supersede(self.side, Newest(older), candidate.newest);
    }
}

/// See [`Index::Arena`].
struct InArena<'a> {
    ids: IdBytes<'a>,
    arena: &'a Arena,
    side: &'a Side,
    extent: &'a mut Extent,
    /// The entry that was made for the candidate at hand.
    made: Option<io::Result<u64>>,
}

impl<'a> InArena<'a> {
    fn new<K>(arena: &'a Arena, with: With<'a, K>) -> Self {
        Self { ids: with.ids, arena, side: with.side, extent: with.extent, made: None }
    }

    #[inline(always)]
    fn short(&self, candidate: &Candidate) -> ShortId {
        ShortId::read(self.ids.from(candidate), candidate.id.len().min(SHORT_BYTES) as u8)
    }
}

impl Identity<EXACT> for InArena<'_> {
    const LOOKS: bool = true;

    type Place<'p>
        = Option<&'p AtomicU64>
    where
        Self: 'p;

    #[inline(always)]
    fn place(&self, content: u64) -> Self::Place<'_> {
        Some(self.arena.word(Newest(content).address() as usize))
    }

    #[inline(always)]
    fn prefetch<'p>(place: Self::Place<'p>)
    where
        Self: 'p,
    {
        place.into_iter().for_each(prefetch);
    }

    #[inline(always)]
    fn is_key(&self, _: impl Cpu, candidate: &Candidate, content: u64) -> bool {
        let address = Newest(content).address();
        if candidate.id.len() <= SHORT_BYTES {
            self.arena.is_short(address, &self.short(candidate))
        } else {
            self.arena.is(address, self.ids.id(candidate))
        }
    }

    #[inline(always)]
    fn make(&mut self, candidate: &Candidate) -> u64 {
        if self.made.is_none() {
            let (id, newest) = (self.ids.id(candidate), candidate.newest.0);
            self.made = Some(if id.len() <= SHORT_BYTES {
                let words = self.short(candidate).words;
                self.arena.add(self.extent, newest, id.len(), words.into_iter())
            } else {
                self.arena.add(self.extent, newest, id.len(), id.chunks(8).map(word_of))
            });
        }
        // Where the memory for an id cannot be had, the load ends: that its slot leads nowhere hurts nobody.
        let address = self.made.as_ref().and_then(|made| made.as_ref().ok()).copied().unwrap_or(0);
        Newest::new(address, Mark::Tombstone).0
    }

    #[inline(always)]
    fn found(&mut self, candidate: &Candidate, _: Shape<EXACT>, words: &mut impl Words, found: Found) {
        if let Some(Ok(address)) = self.made.take() {
            Arena::take_back(self.extent, address);
        }
        let address = Newest(found.content()).address();
        let older = self.arena.raise(address, candidate.newest.0, is_shared(words));
        supersede(self.side, Newest(older), candidate.newest);
    }

    #[inline(always)]
    fn check(&mut self) -> io::Result<()> {
        self.made.take().transpose().map(|_| ())
    }
}

#[inline(always)]
fn is_shared<W: Words>(_: &W) -> bool {
    W::IS_SHARED
}

/// See [`Index::ByHash`].
struct OfHash<'a> {
    side: &'a Side,
}

impl Identity<BY_HASH> for OfHash<'_> {
    const LOOKS: bool = false;

    type Place<'p>
        = ()
    where
        Self: 'p;

    #[inline(always)]
    fn place(&self, _: u64) {}

    #[inline(always)]
    fn prefetch<'p>((): ())
    where
        Self: 'p,
    {
    }

    #[inline(always)]
    fn is_key(&self, _: impl Cpu, _: &Candidate, _: u64) -> bool {
        true
    }

    #[inline(always)]
    fn make(&mut self, candidate: &Candidate) -> u64 {
        candidate.newest.0
    }

    #[inline(always)]
    fn found(&mut self, candidate: &Candidate, shape: Shape<BY_HASH>, words: &mut impl Words, found: Found) {
        let older = shape.raise(words, found, candidate.newest.0);
        supersede(self.side, Newest(older), candidate.newest);
    }
}

/// Applies candidates in order. See [`Apply`].
fn apply<const SLOTS: usize, W: Words, I: Identity<SLOTS>>(
    shape: Shape<SLOTS>,
    words: W,
    candidates: &[Candidate],
    cpu: CpuKind,
    identity: I,
) -> io::Result<usize> {
    cpu.run(Apply { shape, words, candidates, identity })
}

/// Candidates to be applied, each one's memory asked for in advance.
///
/// In loops of their own, each as short as can be: a request that misses the TLB holds up what follows it, and only
/// what fits into the processor's window behind it goes on meanwhile. That should be more requests.
struct Apply<'a, const SLOTS: usize, W, I> {
    shape: Shape<SLOTS>,
    words: W,
    candidates: &'a [Candidate],
    identity: I,
}

impl<const SLOTS: usize, W: Words, I: Identity<SLOTS>> Work for Apply<'_, SLOTS, W, I> {
    type Output = io::Result<usize>;

    #[inline(always)]
    fn run<C: Cpu>(mut self, cpu: C) -> io::Result<usize> {
        let mut groups = self.candidates.chunks(GROUP);
        let (mut next, mut after) = (groups.next().unwrap_or_default(), groups.next().unwrap_or_default());
        let mut guesses = [[Found::default(); GROUP]; 2];
        self.ask(next);
        self.ask(after);
        self.guess(next, &mut guesses[0]);
        let mut done = 0;
        while !next.is_empty() {
            let group = std::mem::replace(&mut next, after);
            after = groups.next().unwrap_or_default();
            if self.shape.is_full(self.words.len() + group.len()) {
                break;
            }
            self.ask(after);
            let [these, those] = &mut guesses;
            self.guess(next, those);
            for (candidate, guess) in group.iter().zip(&*these) {
                if !self.upsert(cpu, candidate, *guess) {
                    return Ok(done);
                }
                self.identity.check()?;
                done += 1;
            }
            guesses.swap(0, 1);
        }
        Ok(done)
    }
}

impl<const SLOTS: usize, W: Words, I: Identity<SLOTS>> Apply<'_, SLOTS, W, I> {
    #[inline(always)]
    fn ask(&self, group: &[Candidate]) {
        for candidate in group {
            self.words.prefetch(self.shape.home(candidate.hash));
        }
    }

    /// Looks where candidates probably are, and asks for the keys there.
    #[inline(always)]
    fn guess(&mut self, group: &[Candidate], guesses: &mut [Found; GROUP]) {
        let Self { shape, words, identity, .. } = self;
        for (candidate, guess) in group.iter().zip(&mut *guesses) {
            *guess = shape.guess(words, candidate.hash);
        }
        let mut places = [I::Place::default(); GROUP];
        for (guess, place) in guesses.iter().zip(&mut places) {
            if I::LOOKS && guess.content() != 0 {
                *place = identity.place(guess.content());
            }
        }
        places.into_iter().for_each(I::prefetch);
    }

    /// False if there is no room.
    #[inline(always)]
    fn upsert(&mut self, cpu: impl Cpu, candidate: &Candidate, guess: Found) -> bool {
        let Self { shape, words, identity, .. } = self;
        // Candidates in between may have changed the slot.
        if shape.is_still(words, guess) && identity.is_key(cpu, candidate, guess.content()) {
            identity.found(candidate, *shape, words, guess);
            return true;
        }
        self.search(cpu, candidate)
    }

    #[inline(always)]
    fn search(&mut self, cpu: impl Cpu, candidate: &Candidate) -> bool {
        let Self { shape, words, identity, .. } = self;
        let identity = std::cell::RefCell::new(identity);
        let is_key = |content: u64| identity.borrow().is_key(cpu, candidate, content);
        let make = || identity.borrow_mut().make(candidate);
        match shape.entry(words, candidate.hash, is_key, make) {
            Entry::Found(found) => {
                identity.into_inner().found(candidate, *shape, words, found);
                true
            }
            Entry::Inserted => true,
            Entry::Full => false,
        }
    }
}

/// Of two records of an id the older one is nobody's newest any more.
#[inline(always)]
fn supersede(side: &Side, one: Newest, other: Newest) {
    let older = one.min(other);
    if older.is_side() && one != other {
        side.release(older.address());
    }
}
