use std::fmt;
use std::ops::{Deref, RangeBounds};

use bytes::Bytes;

/// Immutable bytes that are shared instead of copied: a mapped file, a buffer, or a part of one.
///
/// Cloning and slicing cost a reference count. What lies behind is released when the last region of it goes.
#[derive(Clone, PartialEq, Eq)]
pub struct Region(Bytes);

impl Region {
    /// Shares bytes that `owner` keeps alive.
    pub fn from_owner(owner: impl AsRef<[u8]> + Send + 'static) -> Self {
        Self(Bytes::from_owner(owner))
    }

    /// A part of this region, sharing its memory.
    ///
    /// # Panics
    /// If the range reaches outside, as slicing does.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Self {
        Self(self.0.slice(range))
    }
}

impl From<Vec<u8>> for Region {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes.into())
    }
}

impl Deref for Region {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for Region {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Region({} bytes)", self.0.len())
    }
}
