//! The tables of the messages that [`super::schema`] reads: keys and values of `__consumer_offsets` up to Kafka 4.4, the
//! consumer protocol inside them, and the control records of KRaft. Names, types and versions are those of Kafka's
//! message definitions.

use super::schema::Kind::{
    Array, Bytes, Embedded, Int8, Int16, Int32, Int64, ProtocolType, String as Str, Struct, Uint16, Uuid,
};
use super::schema::{Field, Message, NEVER, field};

/// Key and value of a record type of `__consumer_offsets`, which is the version in front of the key; `None` for a type
/// that Kafka 4.4 does not define.
pub(super) fn group_record(record_type: i16) -> Option<(&'static Message, &'static Message)> {
    Some(match record_type {
        0 => (&OFFSET_COMMIT_KEY, &LEGACY_OFFSET_COMMIT_VALUE),
        1 => (&OFFSET_COMMIT_KEY, &OFFSET_COMMIT_VALUE),
        2 => (&GROUP_METADATA_KEY, &GROUP_METADATA_VALUE),
        3 => (&GROUP_ID_KEY, &CONSUMER_GROUP_METADATA_VALUE),
        4 => (&GROUP_ID_KEY, &CONSUMER_GROUP_PARTITION_METADATA_VALUE),
        5 => (&GROUP_AND_MEMBER_KEY, &CONSUMER_GROUP_MEMBER_METADATA_VALUE),
        6 => (&GROUP_ID_KEY, &TARGET_ASSIGNMENT_METADATA_VALUE),
        7 => (&GROUP_AND_MEMBER_KEY, &TARGET_ASSIGNMENT_MEMBER_VALUE),
        8 => (&GROUP_AND_MEMBER_KEY, &CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE),
        10 => (&GROUP_AND_MEMBER_KEY, &SHARE_GROUP_MEMBER_METADATA_VALUE),
        11 => (&GROUP_ID_KEY, &SHARE_GROUP_METADATA_VALUE),
        12 => (&GROUP_ID_KEY, &TARGET_ASSIGNMENT_METADATA_VALUE),
        13 => (&GROUP_AND_MEMBER_KEY, &TARGET_ASSIGNMENT_MEMBER_VALUE),
        14 => (&GROUP_AND_MEMBER_KEY, &SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE),
        15 => (&GROUP_ID_KEY, &SHARE_GROUP_STATE_PARTITION_METADATA_VALUE),
        16 => (&CONSUMER_GROUP_REGULAR_EXPRESSION_KEY, &CONSUMER_GROUP_REGULAR_EXPRESSION_VALUE),
        17 => (&GROUP_ID_KEY, &STREAMS_GROUP_METADATA_VALUE),
        19 => (&GROUP_AND_MEMBER_KEY, &STREAMS_GROUP_MEMBER_METADATA_VALUE),
        20 => (&GROUP_ID_KEY, &TARGET_ASSIGNMENT_METADATA_VALUE),
        21 => (&GROUP_AND_MEMBER_KEY, &STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER_VALUE),
        22 => (&GROUP_AND_MEMBER_KEY, &STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE),
        23 => (&GROUP_ID_KEY, &STREAMS_GROUP_TOPOLOGY_VALUE),
        _ => return None,
    })
}

const TOPIC_PARTITION: &[Field] = &[field("topic", Str), field("partitions", Array(&Int32))];

const VOTER: &[Field] = &[field("voterId", Int32), field("voterDirectoryId", Uuid).since(1)];

const ENDPOINT: &[Field] = &[field("name", Str), field("host", Str), field("port", Uint16)];

const KRAFT_VERSION_FEATURE: &[Field] =
    &[field("minSupportedVersion", Int16), field("maxSupportedVersion", Int16)];

const VOTER_WITH_ENDPOINTS: &[Field] = &[
    field("voterId", Int32),
    field("voterDirectoryId", Uuid),
    field("endpoints", Array(&Struct(ENDPOINT))),
    field("kRaftVersionFeature", Struct(KRAFT_VERSION_FEATURE)),
];

const MEMBER_METADATA: &[Field] = &[
    field("memberId", Str),
    field("groupInstanceId", Str).since(3).nullable(),
    field("clientId", Str),
    field("clientHost", Str),
    field("rebalanceTimeout", Int32).since(1),
    field("sessionTimeout", Int32),
    field("subscription", Embedded(&CONSUMER_PROTOCOL_SUBSCRIPTION)),
    field("assignment", Embedded(&CONSUMER_PROTOCOL_ASSIGNMENT)),
];

const PARTITION_METADATA: &[Field] = &[field("partition", Int32), field("racks", Array(&Str))];

const TOPIC_METADATA: &[Field] = &[
    field("topicId", Uuid),
    field("topicName", Str),
    field("numPartitions", Int32),
    field("partitionMetadata", Array(&Struct(PARTITION_METADATA))),
];

const CLASSIC_PROTOCOL: &[Field] = &[field("name", Str), field("metadata", Bytes)];

const CLASSIC_MEMBER_METADATA: &[Field] =
    &[field("sessionTimeoutMs", Int32), field("supportedProtocols", Array(&Struct(CLASSIC_PROTOCOL)))];

const ASSIGNED_TOPIC: &[Field] = &[field("topicId", Uuid), field("partitions", Array(&Int32))];

const ASSIGNED_TOPIC_WITH_EPOCHS: &[Field] = &[
    field("topicId", Uuid),
    field("partitions", Array(&Int32)),
    field("assignmentEpochs", Array(&Int32)).nullable().tagged(0, "[]"),
];

const TOPIC_PARTITIONS_INFO: &[Field] =
    &[field("topicId", Uuid), field("topicName", Str), field("partitions", Array(&Int32))];

const TOPIC_INFO: &[Field] = &[field("topicId", Uuid), field("topicName", Str)];

const USER_ENDPOINT: &[Field] = &[field("host", Str), field("port", Uint16)];

const KEY_VALUE: &[Field] = &[field("key", Str), field("value", Str)];

const TASK_IDS: &[Field] = &[field("subtopologyId", Str), field("partitions", Array(&Int32))];

const TASK_IDS_WITH_EPOCHS: &[Field] = &[
    field("subtopologyId", Str),
    field("partitions", Array(&Int32)),
    field("assignmentEpochs", Array(&Int32)).nullable().tagged(0, "[]"),
];

const TOPOLOGY_TOPIC: &[Field] = &[
    field("name", Str),
    field("partitions", Int32),
    field("replicationFactor", Int16),
    field("topicConfigs", Array(&Struct(KEY_VALUE))),
];

const COPARTITION_GROUP: &[Field] = &[
    field("sourceTopics", Array(&Int16)),
    field("sourceTopicRegex", Array(&Int16)),
    field("repartitionSourceTopics", Array(&Int16)),
];

const SUBTOPOLOGY: &[Field] = &[
    field("subtopologyId", Str),
    field("sourceTopics", Array(&Str)),
    field("sourceTopicRegex", Array(&Str)),
    field("stateChangelogTopics", Array(&Struct(TOPOLOGY_TOPIC))),
    field("repartitionSinkTopics", Array(&Str)),
    field("repartitionSourceTopics", Array(&Struct(TOPOLOGY_TOPIC))),
    field("copartitionGroups", Array(&Struct(COPARTITION_GROUP))),
];

static CONSUMER_PROTOCOL_ASSIGNMENT: Message = Message {
    version_max: 3,
    flexible_since: NEVER,
    fields: &[
        field("assignedPartitions", Array(&Struct(TOPIC_PARTITION))),
        field("userData", Bytes).nullable(),
    ],
};

static CONSUMER_PROTOCOL_SUBSCRIPTION: Message = Message {
    version_max: 3,
    flexible_since: NEVER,
    fields: &[
        field("topics", Array(&Str)),
        field("userData", Bytes).nullable(),
        field("ownedPartitions", Array(&Struct(TOPIC_PARTITION))).since(1),
        field("generationId", Int32).since(2),
        field("rackId", Str).since(3).nullable(),
    ],
};

pub(super) static LEADER_CHANGE: Message = Message {
    version_max: 1,
    flexible_since: 0,
    fields: &[
        field("version", Int16),
        field("leaderId", Int32),
        field("voters", Array(&Struct(VOTER))),
        field("grantingVoters", Array(&Struct(VOTER))),
    ],
};

pub(super) static SNAPSHOT_HEADER: Message = Message {
    version_max: 0,
    flexible_since: 0,
    fields: &[field("version", Int16), field("lastContainedLogTimestamp", Int64)],
};

pub(super) static SNAPSHOT_FOOTER: Message =
    Message { version_max: 0, flexible_since: 0, fields: &[field("version", Int16)] };

pub(super) static KRAFT_VERSION: Message = Message {
    version_max: 0,
    flexible_since: 0,
    fields: &[field("version", Int16), field("kRaftVersion", Int16)],
};

pub(super) static VOTERS: Message = Message {
    version_max: 0,
    flexible_since: 0,
    fields: &[field("version", Int16), field("voters", Array(&Struct(VOTER_WITH_ENDPOINTS)))],
};

static OFFSET_COMMIT_KEY: Message = Message {
    version_max: 0,
    flexible_since: NEVER,
    fields: &[field("group", Str), field("topic", Str), field("partition", Int32)],
};

static LEGACY_OFFSET_COMMIT_VALUE: Message = Message {
    version_max: 0,
    flexible_since: NEVER,
    fields: &[field("offset", Int64), field("metadata", Str), field("commitTimestamp", Int64)],
};

static OFFSET_COMMIT_VALUE: Message = Message {
    version_max: 4,
    flexible_since: 4,
    fields: &[
        field("offset", Int64),
        field("leaderEpoch", Int32).since(3),
        field("metadata", Str),
        field("commitTimestamp", Int64),
        field("expireTimestamp", Int64).since(1).until(1),
        field("topicId", Uuid).tagged(0, "\"AAAAAAAAAAAAAAAAAAAAAA\""),
    ],
};

static GROUP_METADATA_KEY: Message =
    Message { version_max: 0, flexible_since: NEVER, fields: &[field("group", Str)] };

static GROUP_METADATA_VALUE: Message = Message {
    version_max: 4,
    flexible_since: 4,
    fields: &[
        field("protocolType", ProtocolType),
        field("generation", Int32),
        field("protocol", Str).nullable(),
        field("leader", Str).nullable(),
        field("currentStateTimestamp", Int64).since(2),
        field("members", Array(&Struct(MEMBER_METADATA))),
    ],
};

static GROUP_ID_KEY: Message =
    Message { version_max: 0, flexible_since: NEVER, fields: &[field("groupId", Str)] };

static CONSUMER_GROUP_METADATA_VALUE: Message = Message {
    version_max: 0,
    flexible_since: 0,
    fields: &[field("epoch", Int32), field("metadataHash", Int64).tagged(0, "0")],
};

static CONSUMER_GROUP_PARTITION_METADATA_VALUE: Message =
    Message { version_max: 0, flexible_since: 0, fields: &[field("topics", Array(&Struct(TOPIC_METADATA)))] };

static GROUP_AND_MEMBER_KEY: Message = Message {
    version_max: 0,
    flexible_since: NEVER,
    fields: &[field("groupId", Str), field("memberId", Str)],
};

static CONSUMER_GROUP_MEMBER_METADATA_VALUE: Message = Message {
    version_max: 0,
    flexible_since: 0,
    fields: &[
        field("instanceId", Str).nullable(),
        field("rackId", Str).nullable(),
        field("clientId", Str),
        field("clientHost", Str),
        field("subscribedTopicNames", Array(&Str)),
        field("subscribedTopicRegex", Str).nullable(),
        field("rebalanceTimeoutMs", Int32),
        field("serverAssignor", Str).nullable(),
        field("classicMemberMetadata", Struct(CLASSIC_MEMBER_METADATA))
            .nullable()
            .tagged(0, "{\"sessionTimeoutMs\":0,\"supportedProtocols\":[]}"),
    ],
};

static TARGET_ASSIGNMENT_METADATA_VALUE: Message = Message {
    version_max: 0,
    flexible_since: 0,
    fields: &[field("assignmentEpoch", Int32), field("assignmentTimestamp", Int64).tagged(0, "0")],
};

static TARGET_ASSIGNMENT_MEMBER_VALUE: Message = Message {
    version_max: 0,
    flexible_since: 0,
    fields: &[field("topicPartitions", Array(&Struct(ASSIGNED_TOPIC)))],
};

static CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE: Message = Message {
    version_max: 0,
    flexible_since: 0,
    fields: &[
        field("memberEpoch", Int32),
        field("previousMemberEpoch", Int32),
        field("state", Int8),
        field("assignedPartitions", Array(&Struct(ASSIGNED_TOPIC_WITH_EPOCHS))),
        field("partitionsPendingRevocation", Array(&Struct(ASSIGNED_TOPIC_WITH_EPOCHS))),
    ],
};

static SHARE_GROUP_MEMBER_METADATA_VALUE: Message = Message {
    version_max: 0,
    flexible_since: 0,
    fields: &[
        field("rackId", Str).nullable(),
        field("clientId", Str),
        field("clientHost", Str),
        field("subscribedTopicNames", Array(&Str)),
    ],
};

static SHARE_GROUP_METADATA_VALUE: Message = Message {
    version_max: 0,
    flexible_since: 0,
    fields: &[field("epoch", Int32), field("metadataHash", Int64)],
};

static SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE: Message = Message {
    version_max: 0,
    flexible_since: 0,
    fields: &[
        field("memberEpoch", Int32),
        field("previousMemberEpoch", Int32),
        field("state", Int8),
        field("assignedPartitions", Array(&Struct(ASSIGNED_TOPIC))),
    ],
};

static SHARE_GROUP_STATE_PARTITION_METADATA_VALUE: Message = Message {
    version_max: 0,
    flexible_since: 0,
    fields: &[
        field("initializingTopics", Array(&Struct(TOPIC_PARTITIONS_INFO))),
        field("initializedTopics", Array(&Struct(TOPIC_PARTITIONS_INFO))),
        field("deletingTopics", Array(&Struct(TOPIC_INFO))),
    ],
};

static CONSUMER_GROUP_REGULAR_EXPRESSION_KEY: Message = Message {
    version_max: 0,
    flexible_since: NEVER,
    fields: &[field("groupId", Str), field("regularExpression", Str)],
};

static CONSUMER_GROUP_REGULAR_EXPRESSION_VALUE: Message = Message {
    version_max: 0,
    flexible_since: 0,
    fields: &[field("topics", Array(&Str)), field("version", Int64), field("timestamp", Int64)],
};

static STREAMS_GROUP_METADATA_VALUE: Message = Message {
    version_max: 0,
    flexible_since: 0,
    fields: &[
        field("epoch", Int32),
        field("metadataHash", Int64),
        field("validatedTopologyEpoch", Int32).tagged(0, "-1"),
        field("lastAssignmentConfigs", Array(&Struct(KEY_VALUE))).nullable().tagged(1, "[]"),
        field("storedDescriptionTopologyEpoch", Int32).tagged(2, "-1"),
        field("failedDescriptionTopologyEpoch", Int32).tagged(3, "-1"),
    ],
};

static STREAMS_GROUP_MEMBER_METADATA_VALUE: Message = Message {
    version_max: 0,
    flexible_since: 0,
    fields: &[
        field("instanceId", Str).nullable(),
        field("rackId", Str).nullable(),
        field("clientId", Str),
        field("clientHost", Str),
        field("rebalanceTimeoutMs", Int32),
        field("topologyEpoch", Int32),
        field("processId", Str),
        field("userEndpoint", Struct(USER_ENDPOINT)).nullable(),
        field("clientTags", Array(&Struct(KEY_VALUE))),
    ],
};

static STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER_VALUE: Message = Message {
    version_max: 0,
    flexible_since: 0,
    fields: &[
        field("activeTasks", Array(&Struct(TASK_IDS))),
        field("standbyTasks", Array(&Struct(TASK_IDS))),
        field("warmupTasks", Array(&Struct(TASK_IDS))),
    ],
};

static STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE: Message = Message {
    version_max: 0,
    flexible_since: 0,
    fields: &[
        field("memberEpoch", Int32),
        field("previousMemberEpoch", Int32),
        field("state", Int8),
        field("activeTasks", Array(&Struct(TASK_IDS_WITH_EPOCHS))),
        field("standbyTasks", Array(&Struct(TASK_IDS_WITH_EPOCHS))),
        field("warmupTasks", Array(&Struct(TASK_IDS_WITH_EPOCHS))),
        field("activeTasksPendingRevocation", Array(&Struct(TASK_IDS_WITH_EPOCHS))),
        field("standbyTasksPendingRevocation", Array(&Struct(TASK_IDS_WITH_EPOCHS))),
        field("warmupTasksPendingRevocation", Array(&Struct(TASK_IDS_WITH_EPOCHS))),
    ],
};

static STREAMS_GROUP_TOPOLOGY_VALUE: Message = Message {
    version_max: 0,
    flexible_since: 0,
    fields: &[field("epoch", Int32), field("subtopologies", Array(&Struct(SUBTOPOLOGY)))],
};
