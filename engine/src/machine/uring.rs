//! Cold files: sequential reads past the page cache, several in flight, by io_uring.
//!
//! A disk gives its full speed only when it always has something to do, and the page cache costs more time for pages
//! that are used once than the copy itself. So a [`DirectReader`] asks for blocks of some 1 MiB with `O_DIRECT`, a few
//! at a time, into buffers that it uses again and again, and gives them to its caller in order. There is no thread:
//! the kernel is asked, and its answers are taken, when the caller comes for its next block.
//!
//! # What lies across a border
//!
//! The caller walks over items that do not care for blocks, and needs each in one piece. It says with
//! [`DirectReader::next`] how many bytes at the end of its block it could not use yet. They are copied into room that
//! every buffer has in front of its block:
//!
//! ```text
//! buffer k        [ room ][ block ......................| kept ]
//! buffer k + 1             [ .. | kept ][ block ................ ]
//!                                └─ bytes of the next answer ───┘
//! ```
//!
//! An item is a few hundred bytes, so this copies next to nothing, and buffer k is free for the next read at once; in
//! one ring-shaped arena it would have to wait until the caller had gone over the border, and the border at the end of
//! the arena would remain. What does not fit into the room goes a slower way: kept bytes and block are put together in
//! memory of their own, of whatever size it takes.
#![expect(unsafe_code, reason = "the kernel writes into our buffers while we do other things")]

use std::collections::VecDeque;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use io_uring::{IoUring, Probe, opcode, types};
use nix::libc;

use buffers::{Buffers, ROOM};

mod buffers;

/// Whether so many readers can use io_uring here at once, found out by using it: containers often forbid it (`EPERM`),
/// kernels may lack it (`ENOSYS`) or have it switched off, and each takes a descriptor.
///
/// # Errors
/// What the kernel answers; `Unsupported` where it has io_uring but not this kind of read (before Linux 5.6).
pub(crate) fn probe(readers: usize) -> io::Result<()> {
    let mut ring = IoUring::new(2)?;
    let _others: Vec<IoUring> = (1..readers).map(|_| IoUring::new(2)).collect::<io::Result<_>>()?;
    let mut operations = Probe::new();
    ring.submitter().register_probe(&mut operations)?;
    if !operations.is_supported(opcode::Read::CODE) {
        return Err(io::ErrorKind::Unsupported.into());
    }
    // SAFETY: the operation has no arguments.
    unsafe { ring.submission().push(&opcode::Nop::new().build()) }.map_err(io::Error::other)?;
    enter(&ring, 1)?;
    match ring.completion().next() {
        Some(answer) if answer.result() >= 0 => Ok(()),
        Some(answer) => Err(io::Error::from_raw_os_error(-answer.result())),
        None => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// Why a file cannot be opened for direct reads.
#[derive(Debug)]
pub(crate) enum OpenFault {
    /// Its file system has no direct reads, or none that our buffers are aligned for: read it in another way.
    Refused,
    /// It cannot be opened at all, or not looked at.
    Io(io::Error),
}

impl fmt::Display for OpenFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused => f.write_str("the file system does not support direct reads"),
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for OpenFault {}

/// A file opened for direct reads.
#[derive(Debug)]
pub(crate) struct DirectFile {
    file: File,
    /// Positions and lengths of reads are multiples of this many bytes, a power of two.
    alignment: u64,
}

/// Buffers begin at multiples of this: the smallest page there is.
const BUFFER_ALIGNMENT: usize = 4096;

impl DirectFile {
    /// Opens a file for reading with `O_DIRECT` and asks for the alignment that this needs (`statx`, Linux 6.1; before
    /// that and for file systems that do not say, 4096 bytes, which is enough for all common ones).
    ///
    /// # Errors
    /// See [`OpenFault`].
    pub(crate) fn open(path: &Path) -> Result<Self, OpenFault> {
        let file =
            OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path).map_err(|error| {
                if error.raw_os_error() == Some(libc::EINVAL) {
                    OpenFault::Refused
                } else {
                    OpenFault::Io(error)
                }
            })?;
        // SAFETY: the structure is integers, for which zeroes are values; the empty path is a C string; the
        // descriptor is open; and the structure is of the size that the kernel writes.
        let (status, facts) = unsafe {
            let mut facts: libc::statx = std::mem::zeroed();
            let empty = c"".as_ptr();
            let mask = libc::STATX_DIOALIGN;
            (libc::statx(file.as_raw_fd(), empty, libc::AT_EMPTY_PATH, mask, &raw mut facts), facts)
        };
        let known = status == 0 && facts.stx_mask & libc::STATX_DIOALIGN != 0;
        let (memory, offset) =
            if known { (facts.stx_dio_mem_align, facts.stx_dio_offset_align) } else { (4096, 4096) };
        // Zero says that this very file has no direct reads (it is encrypted, or its data lies in the inode).
        if !memory.is_power_of_two() || !offset.is_power_of_two() || memory as usize > BUFFER_ALIGNMENT {
            return Err(OpenFault::Refused);
        }
        Ok(Self { file, alignment: u64::from(memory.max(offset)) })
    }
}

/// A read that failed. The reader stays where it is: asked again, it says the same.
#[derive(Debug)]
pub(crate) struct ReadFault {
    /// The file's number, as [`DirectReader::push`] gave it.
    pub(crate) file: usize,
    /// The first byte of the file that could not be read.
    pub(crate) position: u64,
    /// Why; `UnexpectedEof` where the file is shorter than it was said to be.
    pub(crate) source: io::Error,
}

impl fmt::Display for ReadFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a direct read failed at byte {} of file {}: {}", self.position, self.file, self.source)
    }
}

impl std::error::Error for ReadFault {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// Bytes of a file, in order.
#[derive(Debug)]
pub(crate) struct Block<'a> {
    /// The file's number, as [`DirectReader::push`] gave it.
    pub(crate) file: usize,
    /// Where in the file `bytes` begin. Kept bytes are part of them.
    pub(crate) position: u64,
    /// What was kept of the last block, and then what follows.
    pub(crate) bytes: &'a [u8],
    /// Whether these are the last bytes of the file's range. Every file has exactly one such block, which is empty where
    /// the range is; nothing can be kept of it.
    pub(crate) last: bool,
}

/// Reads ranges of files in sequence, the next ones while the caller works. See the module's text.
pub(crate) struct DirectReader {
    ring: IoUring,
    buffers: Buffers,
    /// What is, or was, read into each buffer. Block n of all is in slot n modulo their number.
    slots: Vec<Slot>,
    /// The files that are not done with, in order.
    sources: VecDeque<Source>,
    /// The number of the first of them.
    first_source: usize,
    /// Blocks that the caller has been given, and blocks that were asked for.
    given: usize,
    asked: usize,
    /// Buffers whose blocks, or the rest of them, the kernel is to be asked for.
    to_read: VecDeque<usize>,
    /// Reads that the kernel was asked for and has not answered.
    in_flight: usize,
    /// The block that the caller was given last, unless it has been dealt with.
    lent: Option<Lent>,
    /// Kept bytes that are too many for the room, and the block behind them.
    spill: Vec<u8>,
}

struct Source {
    direct: DirectFile,
    end: u64,
    /// Bytes before the range that alignment makes us read.
    skip: usize,
    /// Where the next block is to be read; `None` when all have been.
    next: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The kernel has been asked, or will be.
    Reading,
    /// The block is there.
    Ready,
    /// It will not come; the error's number, or none for an end of the file that came too early.
    Failed(Option<i32>),
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    file: usize,
    /// Where in the file the buffer's block begins.
    position: u64,
    /// Bytes at its beginning that were not asked for.
    skip: usize,
    /// Bytes that it must have, with those, and bytes that it has.
    needed: usize,
    present: usize,
    last: bool,
    retries: u32,
    state: State,
}

struct Lent {
    /// The buffer that it is in; `spill` where none is named.
    buffer: Option<usize>,
    /// Where in there.
    bytes: Range<usize>,
    position: u64,
    last: bool,
}

/// How often a read that the kernel puts off (`EINTR`, `EAGAIN`) is tried again before it counts as failed.
const RETRIES_MAX: u32 = 1000;

/// Most bytes of a block, and most blocks in flight: far more than any device gains from.
const BLOCK_BYTES_MAX: usize = 64 << 20;
const DEPTH_MAX: usize = 256;

impl DirectReader {
    /// A reader that has up to `depth` reads of up to `block_bytes` in flight while its caller works, 1 to 256 and 4 KiB
    /// to 64 MiB (a multiple of 4 KiB). Takes memory for one block more, and 64 KiB for each.
    ///
    /// # Errors
    /// `InvalidInput` for other numbers; what the kernel says where it refuses io_uring or memory.
    pub(crate) fn new(depth: usize, block_bytes: usize) -> io::Result<Self> {
        if !(1..=DEPTH_MAX).contains(&depth)
            || !(BUFFER_ALIGNMENT..=BLOCK_BYTES_MAX).contains(&block_bytes)
            || !block_bytes.is_multiple_of(BUFFER_ALIGNMENT)
        {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let count = depth + 1;
        let idle = Slot {
            file: 0,
            position: 0,
            skip: 0,
            needed: 0,
            present: 0,
            last: false,
            retries: 0,
            state: State::Ready,
        };
        Ok(Self {
            ring: IoUring::new(u32::try_from(count).map_err(io::Error::other)?)?,
            buffers: Buffers::new(count, block_bytes)?,
            slots: vec![idle; count],
            sources: VecDeque::new(),
            first_source: 0,
            given: 0,
            asked: 0,
            to_read: VecDeque::with_capacity(count),
            in_flight: 0,
            lent: None,
            spill: Vec::new(),
        })
    }

    /// Puts a range of a file at the end of what is to be read, and returns the file's number: 0, 1, 2 and so on.
    /// Nothing is read before [`Self::next`]. The file stays open until its last block has been dealt with.
    ///
    /// # Errors
    /// `InvalidInput` where the range runs backwards, or where the blocks are no multiple of what the file system wants.
    pub(crate) fn push(&mut self, direct: DirectFile, range: Range<u64>) -> io::Result<usize> {
        let skip = range.start % direct.alignment;
        if range.start > range.end || !(self.buffers.block_bytes() as u64).is_multiple_of(direct.alignment) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let next = Some(range.start - skip);
        // Less than the alignment, which divides the bytes of a block.
        let skip = skip as usize;
        self.sources.push_back(Source { direct, end: range.end, skip, next });
        Ok(self.first_source + self.sources.len() - 1)
    }

    /// The next block, with the last `keep` bytes of the block before in front of it; `None` when all ranges have been
    /// given. Waits for the device unless the block is there. One system call.
    ///
    /// # Errors
    /// A read that failed, or a file that is shorter than its range. `InvalidInput` where `keep` is more than the last
    /// block had, or not zero after the last block of a file; that changes nothing.
    pub(crate) fn next(&mut self, keep: usize) -> Result<Option<Block<'_>>, ReadFault> {
        let may_keep = self.lent.as_ref().filter(|lent| !lent.last).map_or(0, |lent| lent.bytes.len());
        if keep > may_keep {
            let position = self.lent.as_ref().map_or(0, |lent| lent.position);
            let source = io::ErrorKind::InvalidInput.into();
            return Err(ReadFault { file: self.first_source, position, source });
        }
        let index = self.given % self.slots.len();
        self.keep(keep, index);
        self.fill();
        if self.given == self.asked {
            return Ok(None);
        }
        self.wait(index)?;

        let Slot { position, skip, needed, last, .. } = self.slots[index];
        let block = ROOM + skip..ROOM + needed;
        let (buffer, bytes) = if keep <= ROOM {
            (Some(index), block.start - keep..block.end)
        } else {
            self.spill.extend_from_slice(self.buffers.bytes(index, block));
            (None, 0..self.spill.len())
        };
        // Bytes are kept within a file only, and `skip` is 0 after its first block: this is not negative.
        let position = position + skip as u64 - keep as u64;
        self.given += 1;
        self.lent = Some(Lent { buffer, bytes, position, last });
        Ok(self.current())
    }

    /// The block that [`Self::next`] gave last, unless that was a fault or the end.
    pub(crate) fn current(&self) -> Option<Block<'_>> {
        let Lent { buffer, ref bytes, position, last } = *self.lent.as_ref()?;
        let bytes = match buffer {
            Some(index) => self.buffers.bytes(index, bytes.clone()),
            None => &self.spill[bytes.clone()],
        };
        // A source goes when its last block has been dealt with.
        Some(Block { file: self.first_source, position, bytes, last })
    }

    /// Whether the kernel was asked for everything, so that buffers will lie idle unless another range is pushed.
    pub(crate) fn is_all_asked(&self) -> bool {
        self.sources.back().is_none_or(|source| source.next.is_none())
    }

    /// Copies the last `keep` bytes of the block that the caller had to where the block of buffer `index` follows on
    /// them, which may still be on its way; and gives that block up.
    fn keep(&mut self, keep: usize, index: usize) {
        let Some(lent) = self.lent.take() else { return };
        if lent.last {
            self.sources.pop_front();
            self.first_source += 1;
        }
        let kept = lent.bytes.end - keep..lent.bytes.end;
        match (lent.buffer, keep <= ROOM) {
            (Some(buffer), true) => self.buffers.carry(buffer, kept, index),
            (None, true) => self.buffers.put_before(index, &self.spill[kept]),
            (Some(buffer), false) => {
                self.spill.clear();
                self.spill.extend_from_slice(self.buffers.bytes(buffer, kept));
            }
            (None, false) => drop(self.spill.drain(..kept.start)),
        }
    }

    /// Asks for as many blocks as there are free buffers.
    fn fill(&mut self) {
        let mut sources = self.sources.iter_mut().zip(self.first_source..);
        let mut source = sources.next();
        while self.asked - self.given < self.slots.len() {
            let Some((Source { end, skip, next, .. }, file)) = source.as_mut() else { return };
            let Some(position) = *next else {
                source = sources.next();
                continue;
            };
            let index = self.asked % self.slots.len();
            // At most the bytes of a block.
            let needed = (*end - position).min(self.buffers.block_bytes() as u64) as usize;
            let last = position + needed as u64 == *end;
            let state = if needed == *skip { State::Ready } else { State::Reading };
            let skip = std::mem::take(skip);
            self.slots[index] =
                Slot { file: *file, position, skip, needed, present: 0, last, retries: 0, state };
            *next = if last { None } else { Some(position + needed as u64) };
            self.asked += 1;
            if state == State::Reading {
                self.to_read.push_back(index);
            }
        }
    }

    /// Hands the kernel the reads that are due.
    fn hand_over(&mut self) {
        while let Some(index) = self.to_read.pop_front() {
            let slot = self.slots[index];
            let direct = &self.sources[slot.file - self.first_source].direct;
            // The alignment divides the bytes of a block, of which `present` ones end at a multiple of it.
            let length = (slot.needed - slot.present).next_multiple_of(direct.alignment as usize);
            let descriptor = types::Fd(direct.file.as_raw_fd());
            let (to, length) = self.buffers.give_away(index, slot.present, length);
            let read = opcode::Read::new(descriptor, to, length)
                .offset(slot.position + slot.present as u64)
                .build()
                .user_data(index as u64);
            // SAFETY: the memory is the kernel's until its answer comes: `give_away` says so to `buffers`, which
            // gives it to nobody else and is not freed before. The descriptor is open: its source is dropped after
            // the last of its blocks was given to the caller, and with the reader.
            let pushed = unsafe { self.ring.submission().push(&read) };
            // There are as many entries as buffers, and each buffer has one read at most.
            pushed.expect("an entry for every buffer");
            self.in_flight += 1;
        }
    }

    /// Waits for the block of a buffer, and hands over what is due meanwhile.
    fn wait(&mut self, index: usize) -> Result<(), ReadFault> {
        loop {
            self.take_answers();
            self.hand_over();
            let slot = self.slots[index];
            let reading = slot.state == State::Reading;
            if let State::Failed(error) = slot.state {
                let source =
                    error.map_or_else(|| io::ErrorKind::UnexpectedEof.into(), io::Error::from_raw_os_error);
                let position = slot.position + slot.present as u64;
                return Err(ReadFault { file: slot.file, position, source });
            }
            let due = reading || !self.ring.submission().is_empty();
            if due && let Err(error) = enter(&self.ring, usize::from(reading)) {
                self.slots[index].state = State::Failed(error.raw_os_error());
            }
            if !reading && self.slots[index].state == State::Ready {
                return Ok(());
            }
        }
    }

    /// Takes the answers that have come.
    fn take_answers(&mut self) {
        while let Some(answer) = self.ring.completion().next() {
            // It is an index that `hand_over` gave.
            let index = answer.user_data() as usize;
            self.in_flight -= 1;
            // SAFETY: this is the answer to the read of that buffer, which had one only.
            unsafe { self.buffers.take_back(index) };
            let slot = &mut self.slots[index];
            if slot.state != State::Reading {
                continue;
            }
            slot.answered(answer.result(), self.sources[slot.file - self.first_source].direct.alignment);
            if slot.state == State::Reading {
                self.to_read.push_back(index);
            }
        }
    }
}

impl fmt::Debug for DirectReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { given, asked, in_flight, .. } = self;
        write!(f, "DirectReader({given} blocks given of {asked}, {in_flight} in flight)")
    }
}

impl Drop for DirectReader {
    /// Waits for the reads in flight, some milliseconds: the kernel writes into our memory until they are done.
    fn drop(&mut self) {
        while self.in_flight > 0 {
            if enter(&self.ring, 1).is_err() {
                // No way to know when the kernel is done: the memory stays its own.
                return;
            }
            while let Some(_answer) = self.ring.completion().next() {
                self.in_flight -= 1;
            }
        }
        // SAFETY: every read was answered, and the reader is not used after this.
        unsafe { self.buffers.free() };
    }
}

impl Slot {
    /// What an answer of the kernel makes of a read: the number of bytes, or an error's number, negative. Still
    /// [`State::Reading`] afterwards: the rest is to be asked for.
    fn answered(&mut self, result: i32, alignment: u64) {
        let Ok(bytes) = usize::try_from(result) else {
            self.retries += 1;
            let put_off = matches!(-result, libc::EINTR | libc::EAGAIN) && self.retries <= RETRIES_MAX;
            if !put_off {
                self.state = State::Failed(Some(-result));
            }
            return;
        };
        self.present += bytes;
        if self.present >= self.needed {
            self.state = State::Ready;
        } else if bytes == 0 || !(self.present as u64).is_multiple_of(alignment) {
            // Only the end of the file cuts a read short at a place where no read can begin.
            self.state = State::Failed(None);
        }
    }
}

/// Hands over what was pushed and waits for so many answers.
fn enter(ring: &IoUring, answers: usize) -> io::Result<()> {
    let mut retries = 0;
    loop {
        match ring.submit_and_wait(answers) {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // For lack of memory, or of room for answers.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY)) => {
                retries += 1;
                if retries > RETRIES_MAX {
                    return Err(error);
                }
                std::thread::yield_now();
            }
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests;
