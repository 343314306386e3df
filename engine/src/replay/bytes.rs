//! The bytes of a partition's segments during its load, and the keys in them.

use std::io::ErrorKind;
use std::sync::OnceLock;

use super::direct::Direct;
use super::partition::Context;
use super::report::IoUsed;
use super::scan::{Ground, Scan, Stop};
use crate::batch::{FramePrefix, HEADER_LEN, read_varint, read_varlong};
use crate::error::Error;
use crate::io::{Region, Storage, StorageFile, read_full_at};
use crate::log::{Addresses, LogSnapshot, SegmentInfo};
use crate::machine::cpu::Cpu;
use crate::map::{Extent, Keys};
use crate::segment::{Access, SegmentReader};
use crate::transaction_log::{Key, decode_utf8};

/// For an open file whose own buffer is not used, and so not allocated.
const UNBUFFERED: Access = Access::Positioned { buffer_bytes: 0 };

/// Mappings of a partition's segments, each made when it is first asked for.
#[derive(Debug)]
pub(super) struct Mappings<'a> {
    storage: &'a dyn Storage,
    snapshot: &'a LogSnapshot,
    addresses: &'a Addresses,
    /// None are kept where keys are not looked at again.
    kept: Vec<OnceLock<Region>>,
}

impl<'a> Mappings<'a> {
    pub(super) fn new(
        storage: &'a dyn Storage,
        snapshot: &'a LogSnapshot,
        addresses: &'a Addresses,
        are_kept: bool,
    ) -> Self {
        let kept = snapshot.segments.iter().filter(|_| are_kept).map(|_| OnceLock::new()).collect();
        Self { storage, snapshot, addresses, kept }
    }

    /// An open segment with its bytes, as many as it had when it was listed.
    pub(super) fn open(&self, number: usize) -> Result<(SegmentReader, Region), Error> {
        let SegmentInfo { path, base_offset, len, .. } = &self.snapshot.segments[number];
        let open = |access| SegmentReader::open(self.storage, path, *base_offset, *len, access);
        let kept = self.kept.get(number);
        if let Some(region) = kept.and_then(OnceLock::get) {
            return Ok((open(UNBUFFERED)?, region.clone()));
        }
        let reader = open(Access::Mapped)?;
        let region = reader.mapped().unwrap_or_else(|| Region::from(Vec::new()));
        let region = kept.map_or_else(|| region.clone(), |kept| kept.get_or_init(|| region.clone()).clone());
        Ok((reader, region))
    }

    /// Bytes of the batch at an address that was read before, if it is mapped.
    pub(super) fn batch_size(&self, address: u64) -> Option<u64> {
        let batch = self.at(address);
        FramePrefix::parse(batch, batch.len() as u64).ok().map(|prefix| prefix.size)
    }

    /// The log from an address to the end of its segment, if it is mapped.
    #[inline(always)]
    fn at(&self, address: u64) -> &[u8] {
        let (segment, position) = self.addresses.locate(address);
        let region = self.kept.get(segment).and_then(OnceLock::get);
        region.and_then(|region| region.get(position as usize..)).unwrap_or_default()
    }
}

impl Keys for Mappings<'_> {
    #[inline(always)]
    fn from(&self, address: u64) -> &[u8] {
        self.at(address)
    }

    /// Where the older batch is as coordinators write it, its key is at a place that the record's length tells: it lies
    /// behind one or two bytes of that length and three of a byte each. Should these bytes be more, the place lies inside
    /// them, and what is there cannot be the same: behind its first byte or two a key has two bytes 0, which there could
    /// only be the end of those numbers and the length of a key that is empty, and such a key was refused.
    #[inline(always)]
    fn is_stored(&self, cpu: impl Cpu, address: u64, id: &[u8], stored: &[u8], len: usize) -> bool {
        let batch = self.at(address);
        let two = usize::from(batch.get(HEADER_LEN).copied().unwrap_or(0) >> 7);
        let older = batch.get(HEADER_LEN + 4 + two..).unwrap_or_default();
        cpu.is_same_start(older, stored, len) || self.is(address, id)
    }

    #[cold]
    fn is(&self, address: u64, id: &[u8]) -> bool {
        let Some((stored, len)) = only_id(self.at(address)) else { return false };
        stored.get(..len).is_some_and(|stored| stored == id || decode_utf8(stored).as_bytes() == id)
    }
}

/// The id in a batch with one uncompressed record that was read before: what begins with the id, and its length.
#[inline(always)]
pub(super) fn only_id(batch: &[u8]) -> Option<(&[u8], usize)> {
    let mut rest = batch.get(HEADER_LEN..)?;
    read_varint(&mut rest)?;
    rest = rest.get(1..)?;
    read_varlong(&mut rest)?;
    read_varint(&mut rest)?;
    let key_len = read_varint(&mut rest)?;
    let key = rest.get(..usize::try_from(key_len).ok()?)?;
    match Key::parse(key) {
        Ok(Key::TransactionalId(id)) => Some((&rest[4..], id.len())),
        _ => None,
    }
}

/// What a worker keeps from chunk to chunk.
#[derive(Debug)]
pub(super) struct Worker<'a> {
    pub(super) scan: Scan<'a>,
    pub(super) piece: Piece,
    pub(super) direct: Direct,
    pub(super) extent: Extent,
}

impl<'a> Worker<'a> {
    pub(super) fn new(context: &'a Context<'a>) -> Self {
        let scan = Scan::new(&context.rules, context.hasher);
        let direct = Direct::new(context.chunk_bytes);
        Self { scan, piece: Piece::default(), direct, extent: Extent::default() }
    }

    /// Ends the work on a partition: the rest of what was taken from its arena, and what is in flight, is no other's.
    pub(super) fn leave(&mut self) {
        self.extent = Extent::default();
        self.direct.leave();
    }
}

/// Where the bytes of a scan are.
#[derive(Debug)]
pub(super) enum Window {
    /// A mapped segment.
    Mapped(Region),
    /// The worker's piece.
    Piece,
    /// The worker's block.
    Direct,
}

impl Window {
    pub(super) fn bytes<'w>(&'w self, piece: &'w Piece, direct: &'w Direct) -> &'w [u8] {
        match self {
            Self::Mapped(region) => region,
            Self::Piece => piece.bytes(),
            Self::Direct => direct.bytes(),
        }
    }
}

/// The bytes of one segment, as a worker gets them.
#[derive(Debug)]
pub(super) struct Source<'a> {
    chunk_bytes: usize,
    reader: SegmentReader,
    region: Option<Region>,
    /// Whether the bytes come by way of the worker's reads past the page cache.
    is_direct: bool,
    segment: &'a SegmentInfo,
}

impl<'a> Source<'a> {
    pub(super) fn open(
        context: &Context<'_>,
        mappings: &Mappings<'_>,
        snapshot: &'a LogSnapshot,
        number: usize,
        worker: &mut Worker<'_>,
    ) -> Result<Self, Error> {
        let segment = &snapshot.segments[number];
        let SegmentInfo { path, base_offset, len, .. } = segment;
        let (reader, region) = if context.io == IoUsed::Mmap {
            let (reader, region) = mappings.open(number)?;
            (reader, Some(region))
        } else {
            (SegmentReader::open(context.storage, path, *base_offset, *len, UNBUFFERED)?, None)
        };
        let is_direct = context.io == IoUsed::Uring && *len > 0;
        if is_direct {
            worker.direct.begin(context.storage, number, segment)?;
        }
        Ok(Self { chunk_bytes: context.chunk_bytes, reader, region, is_direct, segment })
    }

    /// Scans on from a byte position, until a batch begins at or behind `until` or a chunk's worth is done. Returns
    /// where the bytes are, where the scan ended, and why.
    pub(super) fn scan(
        &mut self,
        ground: &Ground<'_>,
        worker: &mut Worker<'_>,
        from: u64,
        until: u64,
    ) -> Result<(Window, u64, Stop), Error> {
        let Worker { scan, piece, direct, .. } = worker;
        scan.clear();
        let until = until.min(from.saturating_add(self.chunk_bytes as u64)).max(from);
        if let Some(region) = &self.region {
            let (end, stop) = scan.run(ground, region, 0, from as usize, until as usize);
            return Ok((Window::Mapped(region.clone()), end as u64, stop));
        }
        if self.is_direct {
            let scanned = direct.scan(scan, ground, from, until).map_err(|fault| match fault.source.kind() {
                ErrorKind::UnexpectedEof => self.reader.shrunk(fault.position),
                _ => Error::io("read", &self.segment.path)(fault.source),
            });
            return scanned.map(|(end, stop)| (Window::Direct, end, stop));
        }
        piece.begin(from);
        let mut wanted = (until - from) as usize;
        loop {
            piece.fill(self.reader.file(), wanted).map_err(Error::io("read", &self.segment.path))?;
            if piece.bytes().len() < wanted {
                return Err(self.reader.shrunk(from + piece.bytes().len() as u64));
            }
            let (end, stop) = scan.run(ground, piece.bytes(), from, 0, (until - from) as usize);
            if stop != Stop::NeedsBytes {
                return Ok((Window::Piece, from + end as u64, stop));
            }
            if end > 0 {
                // The batch at the end of the piece begins the next one.
                return Ok((Window::Piece, from + end as u64, Stop::Full));
            }
            // A batch larger than a piece.
            let left = ground.len - from;
            let least = left.min(HEADER_LEN as u64);
            let size = FramePrefix::parse(piece.bytes(), left).map_or(least, |prefix| prefix.size);
            wanted = size.clamp(wanted as u64 + 1, left.max(wanted as u64 + 1)) as usize;
            if wanted as u64 > left {
                return Ok((Window::Piece, from, Stop::Problem));
            }
        }
    }

    /// Makes sure that what was read was still the file.
    pub(super) fn check_not_shrunk(&self) -> Result<(), Error> {
        self.reader.check_not_shrunk()
    }
}

/// A piece of a file in memory, which grows at its end.
#[derive(Debug, Default)]
pub(super) struct Piece {
    /// Byte position of the first byte.
    pub(super) start: u64,
    bytes: Vec<u8>,
    filled: usize,
}

impl Piece {
    /// What is there.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.filled]
    }

    /// Begins anew at a position.
    pub(super) fn begin(&mut self, start: u64) {
        (self.start, self.filled) = (start, 0);
    }

    /// Reads on until there are at least `count` bytes, of which the file should have as many.
    ///
    /// # Errors
    /// What the file says. Fewer bytes than asked for are no error here.
    pub(super) fn fill(&mut self, file: &dyn StorageFile, count: usize) -> std::io::Result<()> {
        if self.bytes.len() < count {
            self.bytes.resize(count, 0);
        }
        let from = self.filled.min(count);
        self.filled = from + read_full_at(file, self.start + from as u64, &mut self.bytes[from..count])?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{BatchBuilder, NewRecord};
    use crate::io::MemoryStorage;
    use crate::log::RecoveryState;
    use crate::machine::cpu::{CpuKind, Work};
    use crate::transaction_log::encode_key;
    use crate::types::{Offset, TopicPartition};

    /// Whether the record at an address has the key that is stored in a batch.
    struct IsStored<'a> {
        mappings: &'a Mappings<'a>,
        address: u64,
        batch: &'a [u8],
    }

    impl Work for IsStored<'_> {
        type Output = bool;

        #[inline(always)]
        fn run<C: Cpu>(self, cpu: C) -> bool {
            let (id, len) = only_id(self.batch).unwrap();
            let before = if len + 4 < 64 { 5 } else { 6 };
            let from = id.as_ptr() as usize - self.batch.as_ptr() as usize - before;
            self.mappings.is_stored(cpu, self.address, &id[..len], &self.batch[from..], before + len)
        }
    }

    /// Ids that are alike in all but one byte or in their length, in batches whose lengths take one byte or two.
    #[test]
    fn keys_are_the_same_only_where_ids_are() {
        let mut ids: Vec<Vec<u8>> = [0, 1, 20, 58, 59, 60, 61, 90].map(|len| vec![b'x'; len]).to_vec();
        ids.extend([20usize, 60, 90].map(|len| [vec![b'x'; len - 1], vec![b'y']].concat()));
        ids.push(b"yxxxxxxxxxxxxxxxxxxx".to_vec());
        let mut batches = Vec::new();
        for id in &ids {
            for value in [None, Some(&[0; 10][..]), Some(&[0; 200])] {
                // With a horizon the record's time is relative to that, and takes two bytes.
                for horizon in [None, Some(5)] {
                    let mut key = Vec::new();
                    encode_key(id, &mut key).unwrap();
                    let mut builder = BatchBuilder::new(Offset(0));
                    horizon.into_iter().for_each(|horizon| {
                        builder.delete_horizon(horizon);
                    });
                    builder
                        .push(&NewRecord { timestamp: 700, key: Some(&key), value, headers: &[] })
                        .unwrap();
                    batches.push((id, builder.build().unwrap()));
                }
            }
        }
        let storage = MemoryStorage::new();
        let bytes: Vec<u8> = batches.iter().flat_map(|(_, batch)| batch.clone()).chain([0; 64]).collect();
        let path = std::path::PathBuf::from("/t-0/00000000000000000000.log");
        let len = bytes.len() as u64;
        storage.write(&path, bytes);
        let snapshot = LogSnapshot {
            topic_partition: TopicPartition { topic: "t".to_owned(), partition: 0 },
            directory: "/t-0".into(),
            segments: vec![SegmentInfo { base_offset: Offset(0), path, len, has_index: false }],
            log_start_checkpoint: None,
            recovery: RecoveryState::default(),
        };
        let addresses = Addresses::of(&snapshot).unwrap();
        let mappings = Mappings::new(&storage, &snapshot, &addresses, true);
        mappings.open(0).unwrap();
        let step = if cfg!(miri) { 11 } else { 1 };
        for cpu in CpuKind::all() {
            let mut address = 0;
            for (older, older_batch) in &batches {
                for (id, batch) in batches.iter().step_by(step) {
                    let is = cpu.run(IsStored { mappings: &mappings, address, batch });
                    assert_eq!(is, older == id, "{} and {} bytes", older.len(), id.len());
                    assert_eq!(mappings.is(address, id), older == id);
                }
                address += older_batch.len() as u64;
            }
        }
    }
}
