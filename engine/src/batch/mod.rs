//! Record batches, magic 2 (Kafka's DefaultRecordBatch), as views over bytes that somebody else holds.
//!
//! A `.log` file is a sequence of batches and nothing else. Reading climbs three steps, each of which can be
//! the last one a caller needs:
//!
//! | step | type | promises |
//! |---|---|---|
//! | bytes at a place | [`FramePrefix`] | size and format of what begins there |
//! | header | [`BatchFrame`] | one whole batch, header fields in range |
//! | checksum | [`Batch`] | CRC-32C matches; records may be read |
//! | records | [`Records`] | every record well-formed, and nothing behind the last one |
//!
//! Layout of a batch, all integers big-endian:
//!
//! | byte | size | field | | byte | size | field |
//! |---|---|---|---|---|---|---|
//! | 0 | 8 | base offset | | 27 | 8 | base timestamp, or delete horizon |
//! | 8 | 4 | length: bytes after this field | | 35 | 8 | max timestamp |
//! | 12 | 4 | partition leader epoch | | 43 | 8 | producer id |
//! | 16 | 1 | magic = 2 | | 51 | 2 | producer epoch |
//! | 17 | 4 | CRC-32C of byte 21 to the end | | 53 | 4 | base sequence |
//! | 21 | 2 | attributes | | 57 | 4 | records count |
//! | 23 | 4 | last offset delta | | 61 | … | records, compressed as one block |
//!
//! Attributes: bits 0–2 codec, 3 append time, 4 transactional, 5 control, 6 delete horizon set; higher bits
//! are ignored on reading and kept where bytes are copied.
//!
//! The way back is [`BatchBuilder`], or [`CoordinatorBatches`] for many batches of one record; what a leader changes in
//! place is in [`MutableBatch`]. Formats 0 and 1 are in [`legacy`]. Everything here is pure: no files, no
//! threads, no clock.

mod builder;
mod compression;
mod control;
mod coordinator;
mod frame;
pub mod legacy;
mod mutable;
mod records;
mod sequence;
#[cfg(test)]
mod tests;
mod varint;

pub use builder::{BatchBuilder, BuildFault, NewRecord};
pub use compression::{Compression, CompressionFault, Decompressor, Limits};
pub use control::{ControlFault, ControlRecord, ControlRecordType, EndTransactionMarker};
pub use coordinator::CoordinatorBatches;
pub(crate) use frame::CRC_START;
pub use frame::{
    Batch, BatchFrame, CrcMismatch, FrameFault, FramePrefix, HEADER_LEN, LOG_OVERHEAD, PREFIX_LEN,
};
pub use mutable::{MutableBatch, TimestampType};
pub use records::{Header, Headers, Record, RecordDamage, RecordFault, Records, RecordsFault};
pub use sequence::{decrement_sequence, increment_sequence};
pub(crate) use varint::{read_varint, read_varlong};
