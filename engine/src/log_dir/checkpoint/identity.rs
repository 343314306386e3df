//! The small text files that say who a log root or a partition is and how it was left: `meta.properties`
//! (Kafka's MetaProperties), `partition.metadata` (PartitionMetadataFile) and `.kafka_cleanshutdown`
//! (CleanShutdownFileHandler).
//!
//! | file | content |
//! |---|---|
//! | `meta.properties` | Java properties: `version`, `node.id` (version 0: `broker.id`), `cluster.id`, `directory.id` |
//! | `partition.metadata` | `version: 0`, line feed, `topic_id: ` and 22 characters, no line feed |
//! | `.kafka_cleanshutdown` | `{"version":0,"brokerEpoch":N}`; up to Kafka 3.6 no bytes |

use super::lines;
use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

/// Why one of these files cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityFault {
    /// Bytes that are no UTF-8.
    #[error("byte {0} is no text")]
    NotText(usize),
    /// A line or key is missing.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// The content behind a label or key is not what it must be.
    #[error("{name} is {text:?}")]
    Invalid {
        /// The label or key.
        name: &'static str,
        /// What stands there, cut to 100 characters.
        text: String,
    },
}

impl IdentityFault {
    fn invalid(name: &'static str, text: &str) -> Self {
        Self::Invalid { name, text: text.chars().take(100).collect() }
    }
}

/// Kafka's Uuid: 16 bytes, written as 22 characters of URL-safe base64 without padding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Uuid(
    /// Most significant byte first.
    pub [u8; 16],
);

const BASE64_URL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = u128::from_be_bytes(self.0);
        // 21 characters of six bits; the last has two bits and four zeros behind them.
        let digits = (0..22).map(|i| if i < 21 { bits >> (122 - 6 * i) } else { bits << 4 } & 63);
        f.pad(&digits.map(|digit| char::from(BASE64_URL[digit as usize])).collect::<String>())
    }
}

/// A text that is no Uuid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an id of 22 characters of URL-safe base64")]
pub struct NotAUuid;

impl FromStr for Uuid {
    type Err = NotAUuid;

    /// 22 characters. The four surplus bits of the last one are ignored, as Java ignores them.
    fn from_str(text: &str) -> Result<Self, NotAUuid> {
        let characters: &[u8; 22] = text.as_bytes().try_into().map_err(|_| NotAUuid)?;
        let mut bits = 0u128;
        for (i, &character) in characters.iter().enumerate() {
            let digit = BASE64_URL.iter().position(|&known| known == character).ok_or(NotAUuid)? as u128;
            bits = if i < 21 { bits << 6 | digit } else { bits << 2 | digit >> 4 };
        }
        Ok(Self(bits.to_be_bytes()))
    }
}

/// Content of a partition's `partition.metadata`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionMetadata {
    /// 0 today; any number from 0 on is read.
    pub version: i32,
    /// Id of the partition's topic, not all zero.
    pub topic_id: Uuid,
}

impl PartitionMetadata {
    /// Reads a whole file. Lines behind the second are ignored. Unlike Kafka, which takes any, the labels must be
    /// right.
    ///
    /// # Errors
    /// An [`IdentityFault`]; then the topic id is not known.
    pub fn parse(file: &[u8]) -> Result<Self, IdentityFault> {
        let text = str::from_utf8(file).map_err(|fault| IdentityFault::NotText(fault.valid_up_to()))?;
        let mut lines = lines(text);
        let version = labelled(lines.next(), "version")?;
        let version = match version.parse() {
            Ok(version @ 0..) => version,
            _ => return Err(IdentityFault::invalid("version", version)),
        };
        let topic_id = labelled(lines.next(), "topic_id")?;
        match topic_id.parse() {
            Ok(id) if id != Uuid([0; 16]) => Ok(Self { version, topic_id: id }),
            _ => Err(IdentityFault::invalid("topic_id", topic_id)),
        }
    }

    /// The file as Kafka writes it.
    pub fn encode(&self) -> String {
        format!("version: {}\ntopic_id: {}", self.version, self.topic_id)
    }
}

/// What stands behind `label`, a colon and at least one blank.
fn labelled<'a>(line: Option<&'a str>, label: &'static str) -> Result<&'a str, IdentityFault> {
    let line = line.ok_or(IdentityFault::Missing(label))?;
    let rest = line.strip_prefix(label).and_then(|rest| rest.strip_prefix(':'));
    let text =
        rest.filter(|rest| rest.starts_with([' ', '\t'])).ok_or(IdentityFault::invalid(label, line))?;
    Ok(text.trim_start_matches([' ', '\t']))
}

/// Content of a log root's `.kafka_cleanshutdown`. That the file exists is what counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CleanShutdown {
    /// Epoch of the broker that stopped; `None` where the file does not say it in a readable way, as the empty file
    /// of Kafka up to 3.6.
    pub broker_epoch: Option<i64>,
}

impl CleanShutdown {
    /// Reads a whole file. Content that cannot be read is no error: the epoch is unknown then.
    pub fn parse(file: &[u8]) -> Self {
        Self { broker_epoch: str::from_utf8(file).ok().and_then(|text| json_integer(text, "brokerEpoch")) }
    }

    /// The file as Kafka writes it since 3.7.
    pub fn encode(broker_epoch: i64) -> String {
        format!("{{\"version\":0,\"brokerEpoch\":{broker_epoch}}}")
    }
}

/// The integer member `name` of the JSON object that is all of `text`. Other members are skipped by their brackets
/// and quotes without being judged. `None` where there is no such member or the object does not end.
fn json_integer(text: &str, name: &str) -> Option<i64> {
    let mut rest = text.trim().strip_prefix('{')?.trim_start();
    let mut found = None;
    loop {
        let key_bytes = json_string_bytes(rest)?;
        let key = &rest[1..key_bytes - 1];
        rest = rest[key_bytes..].trim_start().strip_prefix(':')?.trim_start();
        let value_bytes = json_value_bytes(rest)?;
        let (value, after) = rest.split_at(value_bytes);
        if key == name {
            found = value.trim_end().parse().ok();
        }
        rest = match after.strip_prefix(',') {
            Some(next) => next.trim_start(),
            None => return (after == "}").then_some(found)?,
        };
    }
}

/// Length of the string literal at the start of `text`, quotes included.
fn json_string_bytes(text: &str) -> Option<usize> {
    let mut escaped = false;
    let inside = text.strip_prefix('"')?;
    let end = inside.bytes().position(|byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    })?;
    Some(end + 2)
}

/// Length of the value at the start of `text`: up to the comma or bracket that ends it.
fn json_value_bytes(text: &str) -> Option<usize> {
    let mut depth = 0usize;
    let mut position = 0;
    while let Some(&byte) = text.as_bytes().get(position) {
        match byte {
            b'"' => {
                position += json_string_bytes(&text[position..])?;
                continue;
            }
            b'{' | b'[' => depth += 1,
            b',' | b'}' | b']' if depth == 0 => return Some(position),
            b'}' | b']' => depth -= 1,
            _ => {}
        }
        position += 1;
    }
    None
}

/// Content of a log root's `meta.properties`. Read only: rewriting it would lose the keys not known here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaProperties {
    /// 0 or 1.
    pub version: i32,
    /// Id of the node (`node.id`, in version 0 `broker.id`); version 1 always has it.
    pub node_id: Option<i32>,
    /// Id of the cluster; version 1 always has it.
    pub cluster_id: Option<String>,
    /// Id of this log root.
    pub directory_id: Option<Uuid>,
}

impl MetaProperties {
    /// Reads a whole file. Keys not known here are ignored; of a repeated key the last one counts.
    ///
    /// # Errors
    /// An [`IdentityFault`] for another version than 0 and 1, a missing key that version 1 demands, or a value that
    /// is not of its type.
    pub fn parse(file: &[u8]) -> Result<Self, IdentityFault> {
        let properties = java_properties(file);
        let get = |key| properties.get(key).map(String::as_str);
        let integer = |key: &'static str| match get(key) {
            Some(text) => text.parse::<i32>().map(Some).map_err(|_| IdentityFault::invalid(key, text)),
            None => Ok(None),
        };
        let version = match integer("version")?.unwrap_or(0) {
            version @ 0..=1 => version,
            other => return Err(IdentityFault::invalid("version", &other.to_string())),
        };
        let node_id_key = if version == 0 { "broker.id" } else { "node.id" };
        let directory_id = match get("directory.id") {
            Some(text) => Some(text.parse().map_err(|_| IdentityFault::invalid("directory.id", text))?),
            None => None,
        };
        let read = Self {
            version,
            node_id: integer(node_id_key)?,
            cluster_id: get("cluster.id").map(str::to_owned),
            directory_id,
        };
        if version == 1 && read.node_id.is_none() {
            return Err(IdentityFault::Missing("node.id"));
        }
        if version == 1 && read.cluster_id.is_none() {
            return Err(IdentityFault::Missing("cluster.id"));
        }
        Ok(read)
    }
}

/// Reads Java properties: Latin-1 text, comments, escapes, and lines that go on after a backslash.
fn java_properties(file: &[u8]) -> HashMap<String, String> {
    const BLANKS: [char; 3] = [' ', '\t', '\x0c'];
    let text: String = file.iter().map(|&byte| char::from(byte)).collect();
    let mut properties = HashMap::new();
    let mut lines = lines(&text);
    while let Some(line) = lines.next() {
        let line = line.trim_start_matches(BLANKS);
        if line.is_empty() || line.starts_with(['#', '!']) {
            continue;
        }
        let mut logical = line.to_owned();
        while logical.bytes().rev().take_while(|&byte| byte == b'\\').count() % 2 == 1 {
            logical.pop();
            logical.push_str(lines.next().unwrap_or_default().trim_start_matches(BLANKS));
        }
        let mut escaped = false;
        let key_bytes = logical.find(|c| {
            let ends = !escaped && (c == '=' || c == ':' || BLANKS.contains(&c));
            escaped = c == '\\' && !escaped;
            ends
        });
        let (key, value) = logical.split_at(key_bytes.unwrap_or(logical.len()));
        let value = value.trim_start_matches(BLANKS);
        let value = value.strip_prefix(['=', ':']).unwrap_or(value).trim_start_matches(BLANKS);
        properties.insert(unescaped(key), unescaped(value));
    }
    properties
}

fn unescaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(c) = characters.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match characters.next() {
            Some('t') => out.push('\t'),
            Some('n') => out.push('\n'),
            Some('r') => out.push('\r'),
            Some('f') => out.push('\x0c'),
            Some('u') => {
                let digits = characters.as_str().get(..4).and_then(|hex| u32::from_str_radix(hex, 16).ok());
                out.push(digits.and_then(char::from_u32).unwrap_or(char::REPLACEMENT_CHARACTER));
                characters.by_ref().take(4).for_each(drop);
            }
            Some(other) => out.push(other),
            None => {}
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "AAAAAAAAAAEAAAAAAAAAAg";

    #[test]
    fn uuids_come_back() {
        let id: Uuid = ID.parse().unwrap();
        assert_eq!(id, Uuid([0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2]));
        assert_eq!(id.to_string(), ID);
        let text = "wR8Dva9ErDYsgOQ4GGYaaQ";
        assert_eq!(text.parse::<Uuid>().unwrap().to_string(), text);
        assert_eq!(Uuid([0xff; 16]).to_string(), "_____________________w");
        assert_eq!("_____________________w".parse(), Ok(Uuid([0xff; 16])));
        for wrong in [
            "",
            "short",
            "AAAAAAAAAAEAAAAAAAAAA",
            "AAAAAAAAAAEAAAAAAAAAAgg",
            "AAAAAAAAAA+AAAAAAAAAAg",
            "éAAAAAAAAAAAAAAAAAAAg",
        ] {
            assert_eq!(wrong.parse::<Uuid>(), Err(NotAUuid), "{wrong}");
        }
    }

    #[test]
    fn partition_metadata_that_is_read() {
        let text = format!("version: 0\ntopic_id: {ID}");
        let read = PartitionMetadata::parse(text.as_bytes()).unwrap();
        assert_eq!(read.encode(), text);
        for more in ["\n", "\nextra", "\r\n"] {
            assert_eq!(PartitionMetadata::parse(format!("{text}{more}").as_bytes()), Ok(read));
        }
        let other = PartitionMetadata::parse(format!("version:  3\r\ntopic_id:\t{ID}").as_bytes()).unwrap();
        assert_eq!((other.version, other.topic_id), (3, read.topic_id));
    }

    #[test]
    fn partition_metadata_that_is_refused() {
        let parse = |text: &str| PartitionMetadata::parse(text.as_bytes());
        assert_eq!(parse(""), Err(IdentityFault::Missing("version")));
        assert_eq!(parse("version: 0"), Err(IdentityFault::Missing("topic_id")));
        for text in ["version:0", "Version: 0", "version : 0", "version: -1", "version: x", "version: 0 "] {
            let fault = parse(&format!("{text}\ntopic_id: {ID}"));
            assert!(matches!(fault, Err(IdentityFault::Invalid { name: "version", .. })), "{text}");
        }
        for text in [
            "topic_id:",
            "bar: AAAAAAAAAAEAAAAAAAAAAg",
            "topic_id: short",
            "topic_id: AAAAAAAAAAAAAAAAAAAAAA",
        ] {
            let fault = parse(&format!("version: 0\n{text}"));
            assert!(matches!(fault, Err(IdentityFault::Invalid { name: "topic_id", .. })), "{text}");
        }
        assert_eq!(PartitionMetadata::parse(b"v\xff"), Err(IdentityFault::NotText(1)));
    }

    #[test]
    fn the_broker_epoch_of_a_clean_shutdown() {
        for (text, epoch) in [
            ("{\"version\":0,\"brokerEpoch\":12}", Some(12)),
            (" { \"brokerEpoch\" : -9223372036854775808 , \"version\" : 0 } \n", Some(i64::MIN)),
            ("{\"x\":{\"brokerEpoch\":1,\"y\":[\"}\",{}]},\"z\":\"a\\\"b,}\",\"brokerEpoch\":7}", Some(7)),
            ("{\"version\":0}", None),
            ("{}", None),
            ("", None),
            ("garbage", None),
            ("{\"brokerEpoch\":12", None),
            ("{\"brokerEpoch\":12}}", None),
            ("{\"brokerEpoch\":\"12\"}", None),
            ("{\"brokerEpoch\":1.5}", None),
            ("{\"brokerEpoch\":9223372036854775808}", None),
            ("{\"brokerEpoch", None),
            ("{\"é\\", None),
            ("{\"a\":]}", None),
        ] {
            assert_eq!(CleanShutdown::parse(text.as_bytes()).broker_epoch, epoch, "{text}");
        }
        assert_eq!(CleanShutdown::parse(b"\xff").broker_epoch, None);
        assert_eq!(CleanShutdown::encode(12), "{\"version\":0,\"brokerEpoch\":12}");
    }

    #[test]
    fn meta_properties_of_both_versions() {
        let text = "#\n#Mon Nov 30 19:34:32 UTC 2026\nnode.id=1\ndirectory.id=wR8Dva9ErDYsgOQ4GGYaaQ\nversion=1\n\
                    cluster.id=AAAAAAAAAAAAAAAAAAAAAQ\n";
        let read = MetaProperties::parse(text.as_bytes()).unwrap();
        assert_eq!((read.version, read.node_id), (1, Some(1)));
        assert_eq!(read.cluster_id.as_deref(), Some("AAAAAAAAAAAAAAAAAAAAAQ"));
        assert_eq!(read.directory_id.unwrap().to_string(), "wR8Dva9ErDYsgOQ4GGYaaQ");

        let read = MetaProperties::parse(b"broker.id=7\nnode.id=9\n").unwrap();
        let expected = MetaProperties { version: 0, node_id: Some(7), cluster_id: None, directory_id: None };
        assert_eq!(read, expected);
        assert_eq!(MetaProperties::parse(b"").unwrap().node_id, None);
    }

    #[test]
    fn meta_properties_that_are_refused() {
        let parse = |text: &str| MetaProperties::parse(text.as_bytes()).unwrap_err();
        assert_eq!(parse("version=2"), IdentityFault::invalid("version", "2"));
        assert_eq!(parse("version=x"), IdentityFault::invalid("version", "x"));
        assert_eq!(parse("version=1\ncluster.id=a"), IdentityFault::Missing("node.id"));
        assert_eq!(parse("version=1\nnode.id=1"), IdentityFault::Missing("cluster.id"));
        assert_eq!(parse("broker.id=4294967296"), IdentityFault::invalid("broker.id", "4294967296"));
        assert_eq!(parse("directory.id=x").to_string(), "directory.id is \"x\"");
    }

    #[test]
    fn properties_text_of_java() {
        let text = b"! note\n  a : b\\:c \\\n   d\nk\\ ey=\\u00e9\\t\\\\\nplain\nlast=1\nlast=2\nx=\\u00\nlatin=\xe9\nend\\";
        let properties = java_properties(text);
        let expected = [
            ("a", "b:c d"),
            ("k ey", "é\t\\"),
            ("plain", ""),
            ("last", "2"),
            ("x", "\u{fffd}"),
            ("latin", "é"),
            ("end", ""),
        ];
        assert_eq!(properties.len(), expected.len());
        for (key, value) in expected {
            assert_eq!(properties.get(key).map(String::as_str), Some(value), "{key}");
        }
    }
}
