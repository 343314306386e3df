//! Memory-mapped files: the only place with `unsafe` code.
#![expect(unsafe_code, reason = "mapping a file cannot be made safe by types; see the argument below")]

use std::fs::File;
use std::io;

use super::Region;

/// Maps a whole file read-only and shared. Costs one system call; pages are read when touched.
///
/// The region must not outlive the promise that nobody shortens the file: touching a page that lies past the new
/// end raises SIGBUS. Callers therefore map only files of a root that no broker holds, check the length after
/// mapping and again after use, and read by position wherever somebody may be writing.
pub(super) fn map(file: &File) -> io::Result<Region> {
    // SAFETY: the mapping is read-only and private to this process's reads; nothing in this crate writes to a
    // file that it has mapped. What remains is another process that changes the file. Changed bytes cannot break
    // memory safety here, because every reader treats the bytes as hostile input and keeps no reference to
    // anything it derived from them beyond bounds that come from the mapping's own length. A shortened file
    // raises SIGBUS, which ends the process and corrupts nothing.
    let mapping = unsafe { memmap2::Mmap::map(file)? };
    Ok(Region::from_owner(mapping))
}
