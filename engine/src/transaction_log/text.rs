//! Text of ids and topics as a Java broker reads it.

use std::borrow::Cow;

/// Decodes UTF-8 as the Java runtime does, each malformed part becoming U+FFFD. Valid text is borrowed.
///
/// Java and [`String::from_utf8_lossy`] agree except on encoded surrogates and their beginnings (`ed` followed by
/// `a0` … `bf`, and possibly one more continuation byte): Java replaces such a sequence by one U+FFFD, Rust
/// replaces each byte. The rule matters because Kafka hashes and compares the decoded text.
pub fn decode_utf8(bytes: &[u8]) -> Cow<'_, str> {
    let fault = match str::from_utf8(bytes) {
        Ok(text) => return Cow::Borrowed(text),
        Err(fault) => fault,
    };
    let mut text = String::with_capacity(bytes.len());
    let mut rest = bytes;
    let mut fault = Some(fault);
    while let Some(at) = fault {
        let (valid, malformed) = rest.split_at(at.valid_up_to());
        // Valid up to here by the checker's own word, so nothing is replaced in this part.
        text.push_str(&String::from_utf8_lossy(valid));
        text.push(char::REPLACEMENT_CHARACTER);
        rest = &malformed[malformed_bytes(malformed, at.error_len())..];
        fault = match str::from_utf8(rest) {
            Ok(valid) => {
                text.push_str(valid);
                None
            }
            Err(fault) => Some(fault),
        };
    }
    Cow::Owned(text)
}

/// How many bytes at the start of `malformed` one replacement character stands for, at least one.
fn malformed_bytes(malformed: &[u8], error_len: Option<usize>) -> usize {
    match malformed {
        [0xed, 0xa0..=0xbf, 0x80..=0xbf, ..] => 3,
        [0xed, 0xa0..=0xbf, ..] => 2,
        // No length means that the text ends inside a character: all of it is one malformed part.
        _ => error_len.unwrap_or(malformed.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_text_is_borrowed() {
        for text in ["", "abc", "café", "日本語", "😀"] {
            assert!(matches!(decode_utf8(text.as_bytes()), Cow::Borrowed(same) if same == text));
        }
    }

    #[test]
    fn surrogates_are_one_replacement() {
        assert_eq!(decode_utf8(b"a\xed\xa0\x80b"), "a\u{fffd}b");
        assert_eq!(decode_utf8(b"\xed\xa0"), "\u{fffd}");
        assert_eq!(decode_utf8(b"\xed"), "\u{fffd}");
        assert_eq!(decode_utf8(b"\xed\xa0\xc2"), "\u{fffd}\u{fffd}");
        assert_eq!(decode_utf8(b"\xed\xa0\x80\xed\xb0\x80"), "\u{fffd}\u{fffd}");
        assert_eq!(decode_utf8(b"\xed\x9f\xbf"), "\u{d7ff}");
    }

    #[test]
    fn everything_else_is_as_in_rust() {
        // All sequences of up to three bytes out of the values that matter, except those with an encoded surrogate.
        let values =
            [0x41, 0x7f, 0x80, 0x9f, 0xa0, 0xbf, 0xc0, 0xc3, 0xe0, 0xe2, 0xed, 0xf0, 0xf4, 0xf5, 0xff];
        for a in values {
            for b in values {
                for c in values {
                    let bytes = [a, b, c];
                    let surrogate =
                        bytes.windows(2).any(|pair| pair[0] == 0xed && (0xa0..=0xbf).contains(&pair[1]));
                    if !surrogate {
                        assert_eq!(decode_utf8(&bytes), String::from_utf8_lossy(&bytes), "{bytes:02x?}");
                    }
                }
            }
        }
    }

    #[test]
    fn long_garbage_takes_linear_time() {
        let times = if cfg!(miri) { 1 << 8 } else { 1 << 18 };
        let bytes = [0xed, 0xa0, 0x41].repeat(times);
        assert_eq!(decode_utf8(&bytes).chars().count(), 2 * times);
    }
}
