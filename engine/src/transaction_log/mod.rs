//! Keys and values of the transaction log `__transaction_state` (Kafka's TransactionLog, TransactionLogKey,
//! TransactionLogValue; KIP-98, KIP-890, KIP-915, KIP-939): bytes ↔ [`TransactionMetadata`], and which partition
//! an id lives in.
//!
//! Pure: no batches, no files. All integers are big-endian.
//!
//! ## Key
//!
//! | position | bytes | field |
//! |---|---|---|
//! | 0 | 2 | version, i16: 0. Any other is no transactional id: skip the record |
//! | 2 | 2 | length of the id, i16, 0 … 32767 |
//! | 4 | n | transactional id, UTF-8 |
//!
//! ## Value
//!
//! A null value is a tombstone: the id is gone. Otherwise:
//!
//! | position | field | version 0 | version 1 |
//! |---|---|---|---|
//! | 0 | version | i16 = 0 | i16 = 1 |
//! | 2 | producer id | i64 | i64 |
//! | 10 | producer epoch | i16 | i16 |
//! | 12 | transaction timeout, ms | i32 | i32 |
//! | 16 | status, see [`TransactionState`] | i8 | i8 |
//! | 17 | partitions: number of topics | i32, −1 = null | unsigned varint of number + 1, 0 = null |
//! | … | last update, ms | i64 | i64 |
//! | … | start, ms; −1 = none started | i64 | i64 |
//! | … | tagged fields | – | unsigned varint number, then the fields |
//!
//! | each topic | version 0 | version 1 |
//! |---|---|---|
//! | name | i16 length, UTF-8 | unsigned varint of length + 1, UTF-8 |
//! | partition ids | i32 number, i32 each | unsigned varint of number + 1, i32 each |
//! | tagged fields | – | unsigned varint number, then the fields (none defined) |
//!
//! A tagged field is an unsigned varint tag, an unsigned varint size, and `size` bytes. Known tags of a value; each
//! is left out where it has its default:
//!
//! | tag | field | type | default |
//! |---|---|---|---|
//! | 0 | previous producer id | i64 | −1 |
//! | 1 | next producer id | i64 | −1 |
//! | 2 | client transaction version | i16 | 0 |
//! | 3 | next producer epoch | i16 | −1 |
//!
//! Unknown tags are kept and written back: a newer Kafka may have written them.
//!
//! ## Two layers
//!
//! [`Value::parse`] reads what the schema says and judges nothing else, so it also reads records that no coordinator
//! accepts. [`ValueFields::transaction`] adds the coordinator's rules and gives a [`TransactionView`]. Both borrow.

mod key;
mod metadata;
mod partition;
mod plain;
mod reader;
mod state;
mod tagged;
#[cfg(test)]
mod tests;
mod text;
mod topics;
mod value;

pub use key::{IdTooLong, Key, KeyFault, encode_key};
pub use metadata::{EncodeFault, TopicPartitions, TransactionMetadata};
pub use partition::{java_string_hash, partition_for};
pub(crate) use plain::plain_state;
pub use state::{TransactionState, UnknownStateName};
pub use tagged::{TaggedField, TaggedFieldView, TaggedFields};
pub use text::decode_utf8;
pub use topics::{PartitionIds, TopicView, Topics};
pub use value::{TransactionView, Value, ValueFault, ValueFields, ValueVersion, ValueWarnings, status_code};
