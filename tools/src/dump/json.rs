//! JSON text, written straight into a string: a value is never held as a tree, so that what a
//! record takes in memory stays within a small multiple of its bytes.

use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use redrive::transaction_log::decode_utf8;

use crate::text::is_hostile;

/// Which characters of a string are escaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// As Kafka's tool writes: quotation mark, backslash, and what lies below U+0020.
    Kafka,
    /// Also everything that can confuse a terminal or a reader; see [`is_hostile`](crate::text::is_hostile).
    Safe,
}

/// Appends a JSON string.
pub(super) fn push_string(out: &mut String, text: &str, dialect: Dialect) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\u{c}' => out.push_str("\\f"),
            '\r' => out.push_str("\\r"),
            c if c < ' ' || dialect == Dialect::Safe && is_hostile(c) => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    let _ = write!(out, "\\u{unit:04X}");
                }
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

/// Appends bytes as a JSON string in standard base64.
pub(super) fn push_base64(out: &mut String, bytes: &[u8]) {
    out.push('"');
    STANDARD.encode_string(bytes, out);
    out.push('"');
}

/// Appends a JSON string of bytes that should be UTF-8, as Java decodes them.
pub(super) fn push_utf8(out: &mut String, bytes: &[u8], dialect: Dialect) {
    push_string(out, &decode_utf8(bytes), dialect);
}

/// Appends a comma unless `out` ends where a first element stands, then the name of a member.
pub(super) fn push_name(out: &mut String, name: &str) {
    separate(out);
    out.push('"');
    out.push_str(name);
    out.push_str("\":");
}

/// Appends a comma unless `out` ends where a first element stands.
pub(super) fn separate(out: &mut String) {
    if !matches!(out.as_bytes().last(), None | Some(b'{' | b'[' | b':')) {
        out.push(',');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_of_both_dialects() {
        let text = "a\"\\/\u{8}\t\n\u{c}\r\u{1}\u{1b}\u{7f}\u{202e}é\u{e0041}";
        let mut kafka = String::new();
        push_string(&mut kafka, text, Dialect::Kafka);
        assert_eq!(kafka, "\"a\\\"\\\\/\\b\\t\\n\\f\\r\\u0001\\u001B\u{7f}\u{202e}é\u{e0041}\"");
        let mut safe = String::new();
        push_string(&mut safe, text, Dialect::Safe);
        assert_eq!(safe, r#""a\"\\/\b\t\n\f\r\u0001\u001B\u007F\u202Eé\uDB40\uDC41""#);
        for json in [kafka, safe] {
            assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
        }
    }

    #[test]
    fn members_are_separated() {
        let mut out = String::from("{");
        push_name(&mut out, "a");
        out.push('[');
        for i in 0..2 {
            separate(&mut out);
            let _ = write!(out, "{i}");
        }
        out.push(']');
        push_name(&mut out, "b");
        push_base64(&mut out, b"x");
        assert_eq!(out, r#"{"a":[0,1],"b":"eA==""#);
    }
}
