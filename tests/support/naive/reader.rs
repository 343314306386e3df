//! Takes fields off the front of a slice.

/// Why a field could not be taken.
pub(super) type Bad = &'static str;

/// The bytes not yet taken.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    /// The next `count` bytes.
    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], Bad> {
        let (head, tail) = self.0.split_at_checked(count).ok_or("too few bytes")?;
        self.0 = tail;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Bad> {
        let (head, tail) = self.0.split_first_chunk::<N>().ok_or("too few bytes")?;
        self.0 = tail;
        Ok(*head)
    }

    pub(super) fn i8(&mut self) -> Result<i8, Bad> {
        self.array().map(i8::from_be_bytes)
    }

    pub(super) fn i16(&mut self) -> Result<i16, Bad> {
        self.array().map(i16::from_be_bytes)
    }

    pub(super) fn i32(&mut self) -> Result<i32, Bad> {
        self.array().map(i32::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Bad> {
        self.array().map(u32::from_be_bytes)
    }

    pub(super) fn i64(&mut self) -> Result<i64, Bad> {
        self.array().map(i64::from_be_bytes)
    }

    /// Groups of seven bits, lowest first, in at most `bytes_max` bytes. Bits beyond the 64th are dropped.
    fn groups(&mut self, bytes_max: u32) -> Result<u64, Bad> {
        let mut value = 0;
        for index in 0..bytes_max {
            let [byte] = self.array()?;
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err("a variable-length integer is too long")
    }

    pub(super) fn unsigned_varint(&mut self) -> Result<u32, Bad> {
        // Kafka drops the surplus bits of a fifth byte.
        self.groups(5).map(|value| value as u32)
    }

    pub(super) fn varint(&mut self) -> Result<i32, Bad> {
        let value = self.unsigned_varint()?;
        Ok((value >> 1) as i32 ^ -((value & 1) as i32))
    }

    pub(super) fn varlong(&mut self) -> Result<i64, Bad> {
        let value = self.groups(10)?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }
}
