//! Test vectors: small inputs whose result was established with Kafka's own classes.
//!
//! `tests/fixtures/vectors.json` is one object of groups; a group is a list of vectors or an object. Bytes are
//! lower-case hex. Integers use the whole signed 64-bit range.

use std::sync::OnceLock;

use serde_json::Value;

static ALL: OnceLock<Value> = OnceLock::new();

/// All groups.
pub fn all() -> &'static Value {
    ALL.get_or_init(|| {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/vectors.json");
        let text = std::fs::read_to_string(path).expect("vectors.json is readable");
        serde_json::from_str(&text).expect("vectors.json is JSON")
    })
}

/// One group as it stands. Panics if there is no such group: a misspelt name must not pass as an empty one.
pub fn group(name: &str) -> &'static Value {
    all().get(name).unwrap_or_else(|| panic!("no group {name} in vectors.json"))
}

/// The vectors of a group that is a list. Panics if it is not a list, or empty.
pub fn list(name: &str) -> &'static [Value] {
    let list = group(name).as_array().unwrap_or_else(|| panic!("{name} is not a list"));
    assert!(!list.is_empty(), "{name} has no vectors");
    list
}

/// The vector of that name in a group that is a list.
pub fn named(group: &str, name: &str) -> &'static Value {
    list(group).iter().find(|v| v["name"] == name).unwrap_or_else(|| panic!("no vector {name} in {group}"))
}

/// The bytes of a member that holds hex, `None` where it is JSON null.
pub fn bytes(vector: &Value, member: &str) -> Option<Vec<u8>> {
    match &vector[member] {
        Value::Null => None,
        Value::String(text) => Some(hex(text)),
        other => panic!("{member} is {other}, not hex"),
    }
}

/// Decodes hex without separators. Panics on anything else.
pub fn hex(text: &str) -> Vec<u8> {
    assert!(text.len().is_multiple_of(2), "odd number of hex digits");
    let digit =
        |byte: u8| (byte as char).to_digit(16).unwrap_or_else(|| panic!("{byte:#x} is no hex digit")) as u8;
    text.as_bytes().chunks_exact(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

/// Lower-case hex without separators.
pub fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
