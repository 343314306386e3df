//! What the machine offers beyond plain Rust: checksum instructions, prefetching, huge pages, mapped files, reads past
//! the page cache.
//!
//! Everything `unsafe` of the crate lies here, behind safe functions, each block with the argument why it is sound.
//! This module knows nothing of Kafka.

pub(crate) mod cpu;
pub(crate) mod crc;
pub(crate) mod lines;
pub(crate) mod mapping;
pub(crate) mod memory;
pub(crate) mod prefetch;
pub(crate) mod residency;
pub(crate) mod uring;
