//! Memory-mapped files.
#![expect(unsafe_code, reason = "mapping a file cannot be made safe by types; see the argument below")]

use std::fs::File;
use std::io;

use memmap2::Mmap;

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
    let _ = mapping.advise(memmap2::Advice::HugePage);
    Ok(mapping)
}
