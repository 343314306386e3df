use crate::types::TopicPartition;

/// What a partition's folder is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectoryState {
    /// The partition's log.
    Live,
    /// `-delete`: waits for its removal.
    Delete,
    /// `-future`: a replica that is being moved here.
    Future,
    /// `-stray`: a replica that should not be here.
    Stray,
}

/// The name of a partition's folder, taken apart (LocalLog.parseTopicPartitionName).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryName {
    /// Topic and partition. The topic of a `-delete` or `-stray` folder may have been cut.
    pub topic_partition: TopicPartition,
    /// From the suffix.
    pub state: DirectoryState,
}

/// Longest topic name.
const TOPIC_LEN_MAX: usize = 249;

impl DirectoryName {
    /// Reads a folder's name; `None` for one that is not a partition's.
    ///
    /// Stricter than Kafka where Kafka takes what it never writes: a partition is `0|[1-9][0-9]*`, and a topic has
    /// legal characters only.
    pub fn parse(name: &str) -> Option<Self> {
        let (state, base) = [
            ("-delete", DirectoryState::Delete),
            ("-future", DirectoryState::Future),
            ("-stray", DirectoryState::Stray),
        ]
        .into_iter()
        .find_map(|(suffix, state)| Some((state, name.strip_suffix(suffix)?)))
        .map_or(Some((DirectoryState::Live, name)), |(state, rest)| {
            let (base, unique) = rest.rsplit_once('.')?;
            (!unique.is_empty()).then_some((state, base))
        })?;
        let (topic, digits) = base.rsplit_once('-')?;
        let canonical = digits == "0" || !digits.starts_with('0');
        if !canonical || !digits.bytes().all(|byte| byte.is_ascii_digit()) || !is_topic(topic) {
            return None;
        }
        Some(Self { topic_partition: TopicPartition::new(topic, digits.parse().ok()?), state })
    }
}

/// Most characters of a folder's name.
const NAME_LEN_MAX: usize = 255;

/// A new name for the folder of a partition that waits for its removal (LocalLog.logDeleteDirName): the topic is cut
/// where the name would be too long.
pub(super) fn deleted_name(partition: &TopicPartition) -> String {
    use std::hash::BuildHasher as _;
    // Each of these hashers has keys of its own.
    let half = |number: u8| std::hash::RandomState::new().hash_one(number);
    let unique = format!("{:016x}{:016x}", half(0), half(1));
    let suffix = format!("-{}.{unique}-delete", partition.partition);
    // A topic's name is ASCII.
    let topic: String = partition.topic.chars().take(NAME_LEN_MAX.saturating_sub(suffix.len())).collect();
    format!("{topic}{suffix}")
}

/// Whether a topic may have this name (Topic.validate).
fn is_topic(name: &str) -> bool {
    (1..=TOPIC_LEN_MAX).contains(&name.len())
        && name != "."
        && name != ".."
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_only_look_like_partitions() {
        for name in ["", "-", "a-", "-0", "a", "a-00", "a-+1", "a b-1", "..-1", "é-1", "a-0.-delete"] {
            assert_eq!(DirectoryName::parse(name), None, "{name}");
        }
        assert_eq!(DirectoryName::parse(&format!("{}-0", "t".repeat(250))), None);
        assert!(DirectoryName::parse(&format!("{}-2147483647", "t".repeat(249))).is_some());
    }
}
