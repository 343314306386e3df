//! The memory into which the kernel reads, and who may touch which part of it when.
#![expect(unsafe_code, reason = "the kernel writes into this memory, which references cannot express")]

use std::io;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::slice;

use memmap2::MmapMut;

/// Bytes in front of every block for what was kept of the last one.
pub(super) const ROOM: usize = 64 << 10;

/// Memory into which the kernel reads: buffers of equal size, each with [`ROOM`] in front of its block. Dropping them
/// frees nothing, since the kernel may still be writing; [`Buffers::free`] does.
pub(super) struct Buffers {
    memory: ManuallyDrop<MmapMut>,
    /// Its beginning. All access goes by way of this.
    base: *mut u8,
    block_bytes: usize,
    /// By buffer: whether its block is the kernel's just now.
    away: Vec<bool>,
}

impl Buffers {
    /// # Errors
    /// What the system says when there is no memory.
    pub(super) fn new(count: usize, block_bytes: usize) -> io::Result<Self> {
        let mut memory = MmapMut::map_anon(count * (ROOM + block_bytes))?;
        let base = memory.as_mut_ptr();
        Ok(Self { memory: ManuallyDrop::new(memory), base, block_bytes, away: vec![false; count] })
    }

    /// Bytes of a block.
    pub(super) fn block_bytes(&self) -> usize {
        self.block_bytes
    }

    /// The address of a byte of a buffer, whose block begins at [`ROOM`]; the end is allowed.
    fn at(&self, index: usize, byte: usize) -> *mut u8 {
        let stride = ROOM + self.block_bytes;
        assert!(index < self.away.len() && byte <= stride, "byte {byte} of a stride of {stride}");
        // SAFETY: within the memory, or at its end: it has a stride for every element of `away`.
        unsafe { self.base.add(index * stride + byte) }
    }

    /// Bytes of a buffer's room and block, which must not be the kernel's.
    pub(super) fn bytes(&self, index: usize, range: Range<usize>) -> &[u8] {
        assert!(!self.away[index], "the block is away");
        assert!(range.start <= range.end);
        self.at(index, range.end);
        // SAFETY: in bounds of one buffer, as `at` checked; initialised, since a new mapping is zeroes. Nobody writes
        // into it for the life of the reference: the kernel has not got it, and to give it to the kernel, like our own
        // writing, takes `&mut self`.
        unsafe { slice::from_raw_parts(self.at(index, range.start), range.len()) }
    }

    /// Copies bytes of one buffer to where the block of another follows on them.
    pub(super) fn carry(&mut self, from: usize, range: Range<usize>, to: usize) {
        assert!(from != to && range.len() <= ROOM);
        let to = self.at(to, ROOM - range.len());
        let bytes = self.bytes(from, range);
        // SAFETY: the target is the end of the other buffer's room, `bytes.len()` bytes, into which the kernel never
        // writes and to which there is no reference: that would borrow `self`. Different buffers do not overlap.
        unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    /// Copies `bytes` to where the block of a buffer follows on them.
    pub(super) fn put_before(&mut self, index: usize, bytes: &[u8]) {
        assert!(bytes.len() <= ROOM);
        let to = self.at(index, ROOM - bytes.len());
        // SAFETY: as in `carry`; `bytes` are not ours, since a reference into our memory would borrow `self`.
        unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    /// Gives `length` bytes of a block, from byte `from` of it, to the kernel, until [`Self::take_back`].
    pub(super) fn give_away(&mut self, index: usize, from: usize, length: usize) -> (*mut u8, u32) {
        assert!(!self.away[index], "the block is away");
        self.at(index, ROOM + from + length);
        self.away[index] = true;
        (self.at(index, ROOM + from), u32::try_from(length).expect("at most the bytes of a block"))
    }

    /// Takes a block back from the kernel.
    ///
    /// # Safety
    /// The kernel has answered, and will not write into the block any more.
    pub(super) unsafe fn take_back(&mut self, index: usize) {
        self.away[index] = false;
    }

    /// Frees the memory.
    ///
    /// # Safety
    /// The kernel has none of it, and this is the last use of the buffers.
    pub(super) unsafe fn free(&mut self) {
        // SAFETY: the caller's promise; references into the memory borrow `self`, so there are none.
        unsafe { ManuallyDrop::drop(&mut self.memory) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_follow_on_what_was_carried() {
        let mut buffers = Buffers::new(2, 8192).expect("memory");
        for (index, text) in [b"first", b"other"].into_iter().enumerate() {
            let (to, length) = buffers.give_away(index, 3, text.len());
            assert_eq!(length, 5);
            // SAFETY: the test is the kernel here: it writes as much as it was given.
            unsafe { to.copy_from_nonoverlapping(text.as_ptr(), text.len()) };
            // SAFETY: and does so no more.
            unsafe { buffers.take_back(index) };
        }
        buffers.carry(0, ROOM + 5..ROOM + 8, 1);
        assert_eq!(buffers.bytes(1, ROOM - 3..ROOM + 8), b"rst\0\0\0other");
        buffers.put_before(1, b"last ");
        assert_eq!(buffers.bytes(1, ROOM - 5..ROOM + 8), b"last \0\0\0other");
        assert_eq!(buffers.bytes(0, ROOM..ROOM + 8192)[8192 - 2..], [0, 0]);
        // SAFETY: nothing of it is used after this.
        unsafe { buffers.free() };
    }

    #[test]
    #[should_panic(expected = "away")]
    fn what_the_kernel_has_cannot_be_seen() {
        let mut buffers = Buffers::new(2, 8192).expect("memory");
        let _ = buffers.give_away(1, 0, 4096);
        let _ = buffers.bytes(1, 0..ROOM);
    }

    #[test]
    #[should_panic(expected = "stride")]
    fn nothing_is_given_away_beyond_a_block() {
        let _ = Buffers::new(2, 8192).expect("memory").give_away(0, 4096, 4097);
    }
}
