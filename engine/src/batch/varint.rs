//! Zigzag variable-length integers of records (Kafka's ByteUtils): base 128, least significant group first,
//! top bit = "more follows", at most 5 bytes for 32 bits and 10 for 64.
//!
//! Longer encodings than needed are accepted and surplus bits of the last byte are dropped, as Kafka does;
//! writers emit the shortest form.

/// Takes a zigzag 32-bit integer off the front of `bytes`; `None` if the bytes end or a fifth byte goes on.
#[inline]
pub(crate) fn read_varint(bytes: &mut &[u8]) -> Option<i32> {
    let raw = read_unsigned::<5>(bytes)? as u32;
    Some((raw >> 1) as i32 ^ -((raw & 1) as i32))
}

/// Takes a zigzag 64-bit integer off the front of `bytes`; `None` if the bytes end or a tenth byte goes on.
#[inline]
pub(crate) fn read_varlong(bytes: &mut &[u8]) -> Option<i64> {
    let raw = read_unsigned::<10>(bytes)?;
    Some((raw >> 1) as i64 ^ -((raw & 1) as i64))
}

#[inline]
fn read_unsigned<const BYTES_MAX: usize>(bytes: &mut &[u8]) -> Option<u64> {
    // Nearly every integer in a record takes one byte.
    let (&first, rest) = bytes.split_first()?;
    if first < 0x80 {
        *bytes = rest;
        return Some(u64::from(first));
    }
    let mut value = 0u64;
    for (i, &byte) in bytes.iter().take(BYTES_MAX).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * i);
        if byte < 0x80 {
            *bytes = &bytes[i + 1..];
            return Some(value);
        }
    }
    None
}

/// Appends the shortest zigzag encoding of a 32-bit integer.
pub(crate) fn write_varint(value: i32, out: &mut Vec<u8>) {
    write_unsigned(u64::from(((value << 1) ^ (value >> 31)) as u32), out);
}

/// Writes the shortest zigzag encoding of a 32-bit integer to the front of `rest`, which has [`varint_len`] bytes for
/// it, and moves it on.
#[inline]
pub(crate) fn put_varint(value: i32, rest: &mut &mut [u8]) {
    let mut zigzag = ((value << 1) ^ (value >> 31)) as u32;
    let out = std::mem::take(rest);
    let mut at = 0;
    while zigzag >= 0x80 {
        out[at] = zigzag as u8 | 0x80;
        zigzag >>= 7;
        at += 1;
    }
    out[at] = zigzag as u8;
    *rest = &mut out[at + 1..];
}

/// Bytes of the shortest zigzag encoding of a 32-bit integer: 1 to 5.
#[inline]
pub(crate) fn varint_len(value: i32) -> usize {
    let zigzag = ((value << 1) ^ (value >> 31)) as u32;
    // Seven bits a byte, and at least one byte.
    ((38 - zigzag.leading_zeros()) / 7).max(1) as usize
}

/// Appends the shortest zigzag encoding of a 64-bit integer.
pub(crate) fn write_varlong(value: i64, out: &mut Vec<u8>) {
    write_unsigned(((value << 1) ^ (value >> 63)) as u64, out);
}

fn write_unsigned(mut value: u64, out: &mut Vec<u8>) {
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
    fn round_trip_at_every_length() {
        for shift in 0..64 {
            for delta in [-1i64, 0, 1] {
                let value = (1i64 << shift).wrapping_add(delta);
                for value in [value, value.wrapping_neg()] {
                    let mut bytes = Vec::new();
                    write_varlong(value, &mut bytes);
                    assert!(bytes.len() <= 10);
                    let mut rest = &bytes[..];
                    assert_eq!(read_varlong(&mut rest), Some(value));
                    assert!(rest.is_empty());
                    let value = value as i32;
                    bytes.clear();
                    write_varint(value, &mut bytes);
                    assert!(bytes.len() <= 5);
                    assert_eq!(varint_len(value), bytes.len(), "{value}");
                    let mut put = [0; 5];
                    let mut rest = &mut put[..varint_len(value)];
                    put_varint(value, &mut rest);
                    assert!(rest.is_empty());
                    assert_eq!(put[..bytes.len()], bytes);
                    let mut rest = &bytes[..];
                    assert_eq!(read_varint(&mut rest), Some(value));
                }
            }
        }
    }

    #[test]
    fn examples_of_the_format() {
        for (value, hex) in
            [(0, "00"), (-1, "01"), (1, "02"), (-64, "7f"), (64, "8001"), (i32::MIN, "ffffffff0f")]
        {
            let mut bytes = Vec::new();
            write_varint(value, &mut bytes);
            assert_eq!(bytes.iter().map(|b| format!("{b:02x}")).collect::<String>(), hex);
        }
    }

    #[test]
    fn surplus_bits_are_dropped_and_endless_ones_refused() {
        assert_eq!(read_varint(&mut &[0xff, 0xff, 0xff, 0xff, 0x7f][..]), Some(i32::MIN));
        assert_eq!(read_varint(&mut &[0x80, 0x80, 0x00][..]), Some(0));
        assert_eq!(read_varint(&mut &[0x80, 0x80, 0x80, 0x80, 0x80, 0x00][..]), None);
        assert_eq!(read_varint(&mut &[0x80][..]), None);
        assert_eq!(read_varint(&mut &[][..]), None);
        assert_eq!(read_varlong(&mut &[0xff; 10][..]), None);
    }
}
