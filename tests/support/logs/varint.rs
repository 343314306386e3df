//! Variable-length integers in their shortest form.

/// Unsigned, as in tagged fields and compact arrays: at most 5 bytes.
pub fn unsigned_varint(value: u32) -> Vec<u8> {
    groups(value.into())
}

/// Signed 32-bit, as in records: at most 5 bytes.
pub fn varint(value: i32) -> Vec<u8> {
    groups(((value << 1) ^ (value >> 31)).cast_unsigned().into())
}

/// Signed 64-bit, as in records: at most 10 bytes.
pub fn varlong(value: i64) -> Vec<u8> {
    groups(((value << 1) ^ (value >> 63)).cast_unsigned())
}

fn groups(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value > 0x7f {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}
