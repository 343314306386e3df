//! A cursor over the bytes of one value, and the unsigned varint of Kafka's flexible message versions.

use super::value::ValueFault;

/// Reads forward through a value; every failure names the field and its byte position in the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Reader<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0 }
    }

    pub(super) const fn position(&self) -> usize {
        self.position
    }

    /// Bytes not read yet.
    pub(super) const fn left(&self) -> usize {
        self.bytes.len() - self.position
    }

    #[inline]
    pub(super) fn take(&mut self, count: usize, field: &'static str) -> Result<&'a [u8], ValueFault> {
        let Some(taken) = self.bytes[self.position..].get(..count) else {
            return Err(ValueFault::Truncated {
                field,
                position: self.position,
                needed: count as u64,
                left: self.left(),
            });
        };
        self.position += count;
        Ok(taken)
    }

    #[inline]
    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], ValueFault> {
        let Some(taken) = self.bytes[self.position..].first_chunk::<N>() else {
            return Err(ValueFault::Truncated {
                field,
                position: self.position,
                needed: N as u64,
                left: self.left(),
            });
        };
        self.position += N;
        Ok(*taken)
    }

    #[inline]
    pub(super) fn i8(&mut self, field: &'static str) -> Result<i8, ValueFault> {
        self.array(field).map(i8::from_be_bytes)
    }

    #[inline]
    pub(super) fn i16(&mut self, field: &'static str) -> Result<i16, ValueFault> {
        self.array(field).map(i16::from_be_bytes)
    }

    #[inline]
    pub(super) fn i32(&mut self, field: &'static str) -> Result<i32, ValueFault> {
        self.array(field).map(i32::from_be_bytes)
    }

    #[inline]
    pub(super) fn i64(&mut self, field: &'static str) -> Result<i64, ValueFault> {
        self.array(field).map(i64::from_be_bytes)
    }

    /// An unsigned 32-bit varint. Longer encodings than needed are accepted and surplus bits of the fifth byte are
    /// dropped, as in Kafka's ByteUtils; a fifth byte that goes on is refused.
    #[inline]
    pub(super) fn unsigned_varint(&mut self, field: &'static str) -> Result<u32, ValueFault> {
        let rest = &self.bytes[self.position..];
        let mut value = 0u32;
        for (i, &byte) in rest.iter().take(5).enumerate() {
            value |= u32::from(byte & 0x7f) << (7 * i);
            if byte < 0x80 {
                self.position += i + 1;
                return Ok(value);
            }
        }
        Err(match rest.len() {
            left @ 0..5 => {
                ValueFault::Truncated { field, position: self.position, needed: left as u64 + 1, left }
            }
            _ => ValueFault::Varint { field, position: self.position },
        })
    }
}

/// Appends the shortest unsigned varint.
pub(super) fn write_unsigned_varint(mut value: u32, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsigned_varints_of_the_format() {
        let read = |bytes: &[u8]| {
            let mut reader = Reader::new(bytes);
            reader.unsigned_varint("x").map(|value| (value, reader.left()))
        };
        for (value, bytes) in [
            (0, &[0u8][..]),
            (1, &[1]),
            (127, &[0x7f]),
            (128, &[0x80, 1]),
            (255, &[0xff, 1]),
            (300, &[0xac, 2]),
            (16383, &[0xff, 0x7f]),
            (16384, &[0x80, 0x80, 1]),
            (2_097_151, &[0xff, 0xff, 0x7f]),
            (2_097_152, &[0x80, 0x80, 0x80, 1]),
            (268_435_455, &[0xff, 0xff, 0xff, 0x7f]),
            (268_435_456, &[0x80, 0x80, 0x80, 0x80, 1]),
            (2_147_483_647, &[0xff, 0xff, 0xff, 0xff, 7]),
            (u32::MAX, &[0xff, 0xff, 0xff, 0xff, 15]),
        ] {
            let mut out = Vec::new();
            write_unsigned_varint(value, &mut out);
            assert_eq!(out, bytes);
            assert_eq!(read(bytes), Ok((value, 0)));
        }
        assert_eq!(read(&[0x80, 0, 9]), Ok((0, 1)), "longer than needed");
        assert_eq!(read(&[0x80, 0x80, 0x80, 0x80, 0]), Ok((0, 0)));
        assert_eq!(read(&[0xff, 0xff, 0xff, 0xff, 0x7f]), Ok((u32::MAX, 0)), "surplus bits");
        assert_eq!(read(&[0xff; 5]), Err(ValueFault::Varint { field: "x", position: 0 }));
        assert_eq!(
            read(&[0x80, 0x80, 0x80, 0x80, 0x80, 1]),
            Err(ValueFault::Varint { field: "x", position: 0 })
        );
        assert!(matches!(read(&[0x80]), Err(ValueFault::Truncated { .. })));
        assert!(matches!(read(&[]), Err(ValueFault::Truncated { .. })));
    }
}
