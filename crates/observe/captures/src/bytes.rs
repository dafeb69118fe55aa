//! Integers out of bytes, in either order.

/// Big-endian, at `at`; `None` where the bytes end before.
#[inline]
pub(crate) fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|b| u16::from_be_bytes(*b))
}

/// Big-endian, at `at`; `None` where the bytes end before.
#[inline]
pub(crate) fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|b| u32::from_be_bytes(*b))
}

/// Little-endian, at `at`; `None` where the bytes end before.
pub(crate) fn le16(bytes: &[u8], at: usize) -> Option<u16> {
    be16(bytes, at).map(u16::swap_bytes)
}

/// Little-endian, at `at`; `None` where the bytes end before.
pub(crate) fn le32(bytes: &[u8], at: usize) -> Option<u32> {
    be32(bytes, at).map(u32::swap_bytes)
}

/// The order of a file's integers: that of the machine that wrote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    Little,
    Big,
}

impl Order {
    /// At `at`; 0 where the bytes end before, which callers exclude by length.
    #[inline]
    pub(crate) fn u16(self, bytes: &[u8], at: usize) -> u16 {
        let found: Option<&[u8; 2]> = bytes.get(at..).and_then(<[u8]>::first_chunk);
        found.map_or(0, |b| if self == Self::Little { u16::from_le_bytes(*b) } else { u16::from_be_bytes(*b) })
    }

    /// At `at`; 0 where the bytes end before.
    #[inline]
    pub(crate) fn u32(self, bytes: &[u8], at: usize) -> u32 {
        let found: Option<&[u8; 4]> = bytes.get(at..).and_then(<[u8]>::first_chunk);
        found.map_or(0, |b| if self == Self::Little { u32::from_le_bytes(*b) } else { u32::from_be_bytes(*b) })
    }

    /// At `at`; 0 where the bytes end before.
    #[inline]
    pub(crate) fn u64(self, bytes: &[u8], at: usize) -> u64 {
        let found: Option<&[u8; 8]> = bytes.get(at..).and_then(<[u8]>::first_chunk);
        found.map_or(0, |b| if self == Self::Little { u64::from_le_bytes(*b) } else { u64::from_be_bytes(*b) })
    }
}
