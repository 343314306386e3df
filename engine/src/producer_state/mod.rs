//! What a partition remembers of its producers (Kafka's ProducerStateManager): here, the snapshot file that carries
//! it over a restart.

mod snapshot;

pub use snapshot::{BatchMetadata, ProducerEntry, ProducerSnapshot, SnapshotFault};
