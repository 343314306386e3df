//! JSON whose text is as safe on a terminal as the tables are.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use redrive::Error;
use serde::Serialize;
use serde_json::ser::{CompactFormatter, Formatter};

use crate::text::is_hostile;

/// Writes one JSON value without blanks. Characters that could confuse a terminal or a reader are `\u` escapes: the
/// same value to every parser.
///
/// # Errors
/// What the writer says.
pub fn write_json(out: &mut dyn Write, value: &impl Serialize) -> io::Result<()> {
    value.serialize(&mut serde_json::Serializer::with_formatter(out, SafeFormatter)).map_err(io::Error::from)
}

/// [`write_json`] and a line feed.
///
/// # Errors
/// What the writer says.
pub fn write_line(out: &mut dyn Write, value: &impl Serialize) -> io::Result<()> {
    write_json(out, value)?;
    out.write_all(b"\n")
}

/// Writes the elements of a JSON array one by one, so that a list is never held as a whole.
#[derive(Debug, Default)]
pub struct Elements {
    any: bool,
}

impl Elements {
    /// Writes one element, after a comma if it is not the first. The brackets are the caller's.
    ///
    /// # Errors
    /// What the writer says.
    pub fn push(&mut self, out: &mut dyn Write, value: &impl Serialize) -> io::Result<()> {
        if std::mem::replace(&mut self.any, true) {
            out.write_all(b",")?;
        }
        write_json(out, value)
    }
}

struct SafeFormatter;

impl Formatter for SafeFormatter {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        let mut safe = 0;
        for (at, c) in fragment.char_indices().filter(|&(_, c)| is_hostile(c)) {
            CompactFormatter.write_string_fragment(writer, &fragment[safe..at])?;
            for unit in c.encode_utf16(&mut [0; 2]) {
                write!(writer, "\\u{unit:04x}")?;
            }
            safe = at + c.len_utf8();
        }
        CompactFormatter.write_string_fragment(writer, &fragment[safe..])
    }
}

/// The stored bytes in base64, where the text that Kafka decodes from them does not give them back.
pub fn base64_unless_text(stored: &[u8]) -> Option<String> {
    str::from_utf8(stored).is_err().then(|| STANDARD.encode(stored))
}

/// Bytes in standard base64.
pub fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// A path in JSON; bytes that are not UTF-8 are U+FFFD.
pub fn path_text(path: &OsStr) -> String {
    String::from_utf8_lossy(path.as_bytes()).into_owned()
}

/// Why a partition was refused: what is known of the place, the reason, and what a broker would do there.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ErrorJson {
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    position: Option<u64>,
    reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    transactional_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    transactional_id_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    broker: Option<String>,
}

impl From<&Error> for ErrorJson {
    fn from(error: &Error) -> Self {
        let mut json = Self {
            kind: error.kind(),
            path: None,
            offset: None,
            position: None,
            reason: error.to_string(),
            transactional_id: None,
            transactional_id_base64: None,
            broker: None,
        };
        match error {
            Error::Corrupt(corruption) => {
                json.path = Some(path_text(corruption.path.as_os_str()));
                json.offset = Some(corruption.offset.0);
                json.position = Some(corruption.position);
                json.reason = corruption.reason.to_string();
                json.broker = Some(corruption.broker.to_string());
                if let Some(id) = &corruption.transactional_id {
                    json.transactional_id = Some(redrive::transaction_log::decode_utf8(id).into_owned());
                    json.transactional_id_base64 = base64_unless_text(id);
                }
            }
            Error::Unsupported { path, offset, position, reason } => {
                json.path = Some(path_text(path.as_os_str()));
                json.offset = Some(offset.0);
                json.position = Some(*position);
                json.reason.clone_from(reason);
            }
            Error::Io { operation, path, source } => {
                json.path = Some(path_text(path.as_os_str()));
                json.reason = format!("cannot {operation}: {source}");
            }
            Error::NotRead { path, reason } => {
                json.path = Some(path_text(path.as_os_str()));
                json.reason = format!("belongs to the log and is not read: {reason}");
            }
            Error::IoUnavailable { path: Some(path), .. }
            | Error::NotALogDirectory { path, .. }
            | Error::HeldByBroker { path } => {
                json.path = Some(path_text(path.as_os_str()));
            }
            _ => {}
        }
        json
    }
}

/// A refused partition beside a list.
#[derive(Debug, Serialize)]
pub struct RefusedJson {
    /// Its number.
    pub partition: i32,
    /// Why.
    pub error: ErrorJson,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_safe_and_the_same() {
        let text = "a\"\\\x1b\u{9b}\u{202e}\u{e0041}é\n\u{7f}";
        let mut json = Vec::new();
        write_line(&mut json, &text).unwrap();
        let json = String::from_utf8(json).unwrap();
        assert_eq!(json, "\"a\\\"\\\\\\u001b\\u009b\\u202e\\udb40\\udc41é\\n\\u007f\"\n");
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
    }

    #[test]
    fn stored_bytes_are_given_only_where_text_is_not_enough() {
        assert_eq!(base64_unless_text("é".as_bytes()), None);
        assert_eq!(base64_unless_text(b"a\xff"), Some("Yf8=".to_owned()));
    }
}
