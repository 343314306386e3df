//! The checkpoint and identity files of a log root and of a partition, which Kafka's tool does not know.

use redrive::log_dir::checkpoint::{
    CleanShutdown, LeaderEpochCheckpoint, MetaProperties, OffsetCheckpoint, PartitionMetadata,
};

use super::event::FieldValue::{Null, Number, Text};
use super::event::{Damage, Event, FieldValue, Sink, Stop};
use super::input::read_whole;
use std::path::Path;

/// The files that are known by their whole name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CheckpointFile {
    Offsets,
    LeaderEpochs,
    PartitionMetadata,
    MetaProperties,
    CleanShutdown,
}

impl CheckpointFile {
    /// The kind of file with this name.
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "recovery-point-offset-checkpoint"
            | "log-start-offset-checkpoint"
            | "replication-offset-checkpoint"
            | "cleaner-offset-checkpoint" => Self::Offsets,
            "leader-epoch-checkpoint" => Self::LeaderEpochs,
            "partition.metadata" => Self::PartitionMetadata,
            "meta.properties" => Self::MetaProperties,
            ".kafka_cleanshutdown" => Self::CleanShutdown,
            _ => return None,
        })
    }

    /// Word for the kind of file.
    pub(super) fn kind(self) -> &'static str {
        match self {
            Self::Offsets => "offsetCheckpoint",
            Self::LeaderEpochs => "leaderEpochCheckpoint",
            Self::PartitionMetadata => "partitionMetadata",
            Self::MetaProperties => "metaProperties",
            Self::CleanShutdown => "cleanShutdown",
        }
    }
}

/// Shows the content of such a file.
///
/// # Errors
/// [`Stop`].
pub(super) fn walk(file: CheckpointFile, path: &Path, sink: &mut dyn Sink) -> Result<(), Stop> {
    let bytes = read_whole(path)?;
    let whole = |fault: &dyn ToString| Stop::damaged(None, None, fault.to_string());
    match file {
        CheckpointFile::Offsets => {
            let checkpoint = OffsetCheckpoint::parse(&bytes).map_err(|fault| whole(&fault))?;
            for (partition, offset) in checkpoint.entries {
                let fields = vec![
                    ("topic", Text(partition.topic)),
                    ("partition", Number(partition.partition.into())),
                    ("offset", Number(offset.0)),
                ];
                sink.event(Event::Item("offset", fields))?;
            }
            for partition in checkpoint.repeated {
                problem(format!("{partition} comes more than once; the last offset counts"), sink)?;
            }
        }
        CheckpointFile::LeaderEpochs => {
            let checkpoint = LeaderEpochCheckpoint::parse(&bytes).map_err(|fault| whole(&fault))?;
            for entry in &checkpoint.entries {
                let fields = vec![
                    ("epoch", Number(entry.epoch.into())),
                    ("startOffset", Number(entry.start_offset.0)),
                ];
                sink.event(Event::Item("leaderEpoch", fields))?;
            }
            if checkpoint.dropped > 0 {
                problem(format!("{} lines do not go up and do not count", checkpoint.dropped), sink)?;
            }
        }
        CheckpointFile::PartitionMetadata => {
            let metadata = PartitionMetadata::parse(&bytes).map_err(|fault| whole(&fault))?;
            let fields = vec![
                ("version", Number(metadata.version.into())),
                ("topicId", Text(metadata.topic_id.to_string())),
            ];
            sink.event(Event::Item("partitionMetadata", fields))?;
        }
        CheckpointFile::MetaProperties => {
            let properties = MetaProperties::parse(&bytes).map_err(|fault| whole(&fault))?;
            let node_id = if properties.version == 0 { "brokerId" } else { "nodeId" };
            let fields = vec![
                ("version", Number(properties.version.into())),
                (node_id, or_null(properties.node_id.map(|id| Number(id.into())))),
                ("clusterId", or_null(properties.cluster_id.map(Text))),
                ("directoryId", or_null(properties.directory_id.map(|id| Text(id.to_string())))),
            ];
            sink.event(Event::Item("metaProperties", fields))?;
        }
        CheckpointFile::CleanShutdown => {
            let epoch = CleanShutdown::parse(&bytes).broker_epoch;
            sink.event(Event::Item("cleanShutdown", vec![("brokerEpoch", or_null(epoch.map(Number)))]))?;
        }
    }
    Ok(())
}

fn or_null(value: Option<FieldValue>) -> FieldValue {
    value.unwrap_or(Null)
}

fn problem(reason: String, sink: &mut dyn Sink) -> Result<(), Stop> {
    sink.event(Event::Problem(Damage { offset: None, position: None, reason }))
}
