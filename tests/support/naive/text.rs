//! Bytes to text as the Java runtime does it.

use std::str;

/// Decodes UTF-8 with each malformed part replaced by U+FFFD, as `new String(bytes, UTF_8)` in Java.
///
/// Java and Rust cut malformed parts alike, but for one thing: to Rust the first byte of an encoded surrogate is
/// already wrong, to Java the surrogate is one part. Such a part is `ed`, a byte from `a0` to `bf`, and the next
/// byte if that continues it.
pub fn java_text(mut bytes: &[u8]) -> String {
    let mut text = String::new();
    loop {
        let error = match str::from_utf8(bytes) {
            Ok(rest) => return text + rest,
            Err(error) => error,
        };
        let (valid, rest) = bytes.split_at(error.valid_up_to());
        text.push_str(str::from_utf8(valid).unwrap_or_default());
        text.push('\u{fffd}');
        let malformed = match rest {
            [0xed, 0xa0..=0xbf, 0x80..=0xbf, ..] => 3,
            [0xed, 0xa0..=0xbf, ..] => 2,
            _ => error.error_len().unwrap_or(rest.len()),
        };
        bytes = &rest[malformed..];
    }
}
