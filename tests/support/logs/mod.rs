//! A writer of transaction logs for tests, independent of the engine and of the slow twin.
//!
//! - [`BatchSpec`]: one batch of any shape, lies included, to bytes.
//! - [`encode_key`], [`TransactionValue`]: keys and values of the transaction log to bytes.
//! - [`random_log`]: a whole partition by seed, with the map that it must load as.
//!
//! Fixed shapes of batches lead to fixed bytes where no codec is used. What a codec writes may change with its
//! crate; only the records in it count.

mod batch;
mod codecs;
mod random;
mod transaction_log;
mod varint;

use std::fs;
use std::io;
use std::path::Path;

pub use batch::{
    BatchSpec, CONTROL, DELETE_HORIZON, LOG_APPEND_TIME, RecordSpec, TRANSACTIONAL, encode_record, reseal,
};
pub use codecs::Codec;
pub use random::{Counts, Latest, RandomLog, Rng, Shape, random_log};
pub use transaction_log::{TopicPartitions, TransactionValue, encode_key};
pub use varint::{unsigned_varint, varint, varlong};

/// A `.log` file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentFile {
    /// Base offset, which gives the file its name.
    pub base_offset: i64,
    /// Whole content.
    pub bytes: Vec<u8>,
}

impl SegmentFile {
    /// Name of the file: the base offset in twenty digits, `.log`.
    pub fn file_name(&self) -> String {
        format!("{:020}.log", self.base_offset)
    }
}

/// Writes the `.log` files into a folder, which is made if it is missing. Nothing else is written: no index, no
/// checkpoint, no mark of a clean shutdown.
pub fn write_partition(dir: &Path, segments: &[SegmentFile]) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    segments.iter().try_for_each(|segment| fs::write(dir.join(segment.file_name()), &segment.bytes))
}
