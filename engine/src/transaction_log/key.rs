//! The key of a record: which transactional id it is about.

/// Longest transactional id that a key can hold, in bytes.
pub(super) const STRING_BYTES_MAX: usize = i16::MAX as usize;

const VERSION: i16 = 0;

/// A decoded key, borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key<'a> {
    /// The bytes of a transactional id, 0 … 32,767 of them, as stored. UTF-8 by contract, not checked: see
    /// [`decode_utf8`](super::decode_utf8).
    TransactionalId(&'a [u8]),
    /// A record of a type that Kafka does not define today. Loaders skip it; whoever rewrites the log keeps it.
    Unknown {
        /// The key's version field, never 0.
        version: i16,
    },
}

/// Why a key cannot be read. Kafka stops loading there; a record with such a key refuses the partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyFault {
    /// Fewer than the two bytes of the version.
    #[error("key of {0} bytes is too short for its version")]
    Version(usize),
    /// Fewer than the two bytes of the id's length.
    #[error("key of {0} bytes is too short for the length of its transactional id")]
    Length(usize),
    /// The length is negative: −1 would be a null id.
    #[error("transactional id of length {0}")]
    NegativeLength(i16),
    /// The length goes past the end of the key.
    #[error("transactional id of {length} bytes with {left} bytes left in the key")]
    PastEnd {
        /// The length field.
        length: i16,
        /// Bytes of the key behind it.
        left: usize,
    },
}

impl<'a> Key<'a> {
    /// Reads a key. Bytes behind the id are ignored, as Kafka ignores them.
    ///
    /// # Errors
    /// A [`KeyFault`] where the bytes are cut short or the length is negative.
    pub fn parse(key: &'a [u8]) -> Result<Self, KeyFault> {
        let (version, rest) = key.split_first_chunk().ok_or(KeyFault::Version(key.len()))?;
        let version = i16::from_be_bytes(*version);
        if version != VERSION {
            return Ok(Self::Unknown { version });
        }
        let (length, rest) = rest.split_first_chunk().ok_or(KeyFault::Length(key.len()))?;
        let length = i16::from_be_bytes(*length);
        let bytes = usize::try_from(length).map_err(|_| KeyFault::NegativeLength(length))?;
        let id = rest.get(..bytes).ok_or(KeyFault::PastEnd { length, left: rest.len() })?;
        Ok(Self::TransactionalId(id))
    }
}

/// A transactional id that no key can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("transactional id of {0} bytes, at most 32767 fit into a key")]
pub struct IdTooLong(
    /// Length of the id, bytes.
    pub usize,
);

/// Appends the key of a transactional id to `out`.
///
/// # Errors
/// [`IdTooLong`] above 32,767 bytes; nothing is appended then.
pub fn encode_key(id: &[u8], out: &mut Vec<u8>) -> Result<(), IdTooLong> {
    let length = i16::try_from(id.len()).map_err(|_| IdTooLong(id.len()))?;
    out.extend_from_slice(&VERSION.to_be_bytes());
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(id);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_every_size_come_back() {
        for length in [0, 1, 9, 255, 256, STRING_BYTES_MAX] {
            let id = vec![0xf0; length];
            let mut key = Vec::new();
            encode_key(&id, &mut key).unwrap();
            assert_eq!(Key::parse(&key), Ok(Key::TransactionalId(&id)));
            // Miri is some thousand times slower, so it sees a part of the cases.
            let step = if cfg!(miri) { 1 + length / 8 } else { 1 };
            for cut in (0..key.len()).step_by(step) {
                assert!(Key::parse(&key[..cut]).is_err(), "{length} cut at {cut}");
            }
            key.extend_from_slice(b"more");
            assert_eq!(Key::parse(&key), Ok(Key::TransactionalId(&id)));
        }
    }

    #[test]
    fn an_id_too_long_appends_nothing() {
        let mut out = vec![7];
        let id = vec![b'x'; STRING_BYTES_MAX + 1];
        assert_eq!(encode_key(&id, &mut out), Err(IdTooLong(32768)));
        assert_eq!(out, [7]);
    }

    #[test]
    fn faults_say_what_is_wrong() {
        let text = |key: &[u8]| Key::parse(key).unwrap_err().to_string();
        assert_eq!(text(&[0]), "key of 1 bytes is too short for its version");
        assert_eq!(text(&[0, 0, 0]), "key of 3 bytes is too short for the length of its transactional id");
        assert_eq!(text(&[0, 0, 0xff, 0xff]), "transactional id of length -1");
        assert_eq!(text(&[0, 0, 0, 5, 1]), "transactional id of 5 bytes with 1 bytes left in the key");
        assert_eq!(Key::parse(&[0, 1]), Ok(Key::Unknown { version: 1 }), "needs no more than its version");
    }
}
