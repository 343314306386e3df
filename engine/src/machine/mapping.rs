//! Memory-mapped files.
#![expect(unsafe_code, reason = "mapping a file cannot be made safe by types; see the argument below")]

use std::fs::File;
use std::io;

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use memmap2::{Advice, Mmap, MmapOptions, MmapRaw};

/// Maps a whole file read-only and shared. Costs one system call; pages are read when touched.
///
/// The mapping must not outlive the promise that nobody shortens the file: touching a page that lies past the new
/// end raises SIGBUS. Callers therefore map only files of a root that no broker holds, check the length after
/// mapping and again after use, and read by position wherever somebody may be writing.
pub(crate) fn map(file: &File) -> io::Result<Mmap> {
    // SAFETY: the mapping is read-only and private to this process's reads; nothing in this crate writes to a
    // file that it has mapped. What remains is another process that changes the file. Changed bytes cannot break
    // memory safety here, because every reader treats the bytes as hostile input and keeps no reference to
    // anything it derived from them beyond bounds that come from the mapping's own length. A shortened file
    // raises SIGBUS, which ends the process and corrupts nothing.
    let mapping = unsafe { Mmap::map(file)? };
    // A wish: with large pages in the page cache a walk over a warm file meets few faults.
    let _ = mapping.advise(Advice::HugePage);
    Ok(mapping)
}

/// Address space for a file that grows, taken once for the length that it may reach and again, twice as large, whenever
/// it has grown beyond that. Parts of it are handed out without a lock; each keeps its mapping alive.
#[derive(Debug)]
pub(crate) struct GrowingMap {
    /// Mapping k covers `first_len << k` bytes.
    maps: [OnceLock<Arc<MmapRaw>>; 32],
    first_len: OnceLock<u64>,
}

/// Shorter mappings are not worth the system call.
const FIRST_LEN_MIN: u64 = 64 << 10;

impl GrowingMap {
    pub(crate) fn new() -> Self {
        Self { maps: [const { OnceLock::new() }; 32], first_len: OnceLock::new() }
    }

    /// Says how long the file may become; ignored once a length is known.
    pub(crate) fn reserve(&self, len: u64) {
        let _ = self.first_len.set(len.max(FIRST_LEN_MIN));
    }

    /// Whether a part was ever handed out.
    pub(crate) fn is_used(&self) -> bool {
        self.maps.iter().any(|map| map.get().is_some())
    }

    /// Gives the mappings back. Says whether it could: not while a part is held.
    pub(crate) fn release(&mut self) -> bool {
        let idle = self.maps.iter().all(|map| map.get().is_none_or(|map| Arc::strong_count(map) == 1));
        if idle {
            self.maps = [const { OnceLock::new() }; 32];
        }
        idle
    }

    /// Maps the pages of a range that was handed out before, reading those that are not in memory. A wish: nothing is
    /// lost where the system does not know it.
    pub(crate) fn populate(&self, range: Range<u64>) {
        let mapping = self.maps.iter().filter_map(OnceLock::get).find(|map| range.end <= map.len() as u64);
        if let (Some(mapping), Ok(start), Ok(len)) =
            (mapping, usize::try_from(range.start), usize::try_from(range.end.saturating_sub(range.start)))
        {
            let _ = mapping.advise_range(Advice::PopulateRead, start, len);
        }
    }

    /// Bytes of the file, which has at least `range.end` bytes now and, for as long as the part is held, will neither
    /// lose nor change one of them: that is the caller's promise.
    pub(crate) fn part(&self, file: &File, range: Range<u64>) -> io::Result<MappedPart> {
        let too_long = || io::Error::new(io::ErrorKind::InvalidInput, "more bytes than can be mapped");
        let first_len = *self.first_len.get_or_init(|| range.end.max(FIRST_LEN_MIN));
        let (map, len) = self
            .maps
            .iter()
            .enumerate()
            .map(|(k, map)| (map, first_len.saturating_mul(1 << k)))
            .find(|(_, len)| range.end <= *len)
            .ok_or_else(too_long)?;
        let mapping = match map.get() {
            Some(mapping) => mapping,
            None => {
                let len = usize::try_from(len).map_err(|_| too_long())?;
                let new = MmapOptions::new().len(len).map_raw_read_only(file)?;
                map.get_or_init(|| Arc::new(new))
            }
        };
        let start = usize::try_from(range.start).map_err(|_| too_long())?;
        let len = usize::try_from(range.end.saturating_sub(range.start)).map_err(|_| too_long())?;
        if start.checked_add(len).is_none_or(|end| end > mapping.len()) {
            return Err(too_long());
        }
        Ok(MappedPart { mapping: Arc::clone(mapping), start, len })
    }
}

/// A part of a [`GrowingMap`].
#[derive(Debug)]
pub(crate) struct MappedPart {
    mapping: Arc<MmapRaw>,
    start: usize,
    len: usize,
}

impl AsRef<[u8]> for MappedPart {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: `part` checked that start + len lies inside the mapping, which lives as long as `self`; the bytes are
        // initialised, being a file's. The file has these bytes: `part` is called by `io` alone, for ranges below its
        // count of written bytes, and `io` never shortens a file of which a part was handed out below that count, nor
        // do its callers write there again. So within this process they neither vanish nor change. Another process
        // may do either; see `map`: changed bytes are hostile input like any, and a shortened file raises SIGBUS.
        unsafe { std::slice::from_raw_parts(self.mapping.as_ptr().add(self.start), self.len) }
    }
}
