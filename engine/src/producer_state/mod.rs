//! What a partition remembers of its producers (Kafka's ProducerStateManager): here, the snapshot file that carries
//! it over a restart, and the arithmetic of sequence numbers.

mod sequence;
mod snapshot;

pub use sequence::{decrement_sequence, increment_sequence};
pub use snapshot::{BatchMetadata, ProducerEntry, ProducerSnapshot, SnapshotFault};
