//! Netlink attributes: length, type, value, padded to four bytes.
//!
//! ```text
//!   0        2      4
//!   | length | type | value … | padding |     the host's byte order; length counts the header
//! ```

/// Bit 15 of the type says that the value is made of attributes, bit 14 that it is in network order (netlink(7)).
const TYPE_MASK: u16 = 0x3fff;

/// The attributes in `bytes`, up to the first broken one.
pub(crate) fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes(rest.get(0..2)?.try_into().ok()?));
        let kind = u16::from_ne_bytes(rest.get(2..4)?.try_into().ok()?);
        let value = rest.get(4..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind & TYPE_MASK, value))
    })
}

/// Attribute `kind` of those in `bytes`.
pub(crate) fn attribute(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(found, _)| *found == kind).map(|(_, value)| value)
}

/// Adds an attribute to a request.
pub(crate) fn push(bytes: &mut Vec<u8>, kind: u16, value: &[u8]) {
    bytes.extend_from_slice(&((value.len() + 4) as u16).to_ne_bytes());
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

/// The 32 bits at word `index`.
pub(crate) fn u32_at(bytes: &[u8], index: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(index * 4..index * 4 + 4)?.try_into().ok()?))
}

/// The 64 bits at double word `index`.
pub(crate) fn u64_at(bytes: &[u8], index: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(index * 8..index * 8 + 8)?.try_into().ok()?))
}

/// Text up to its NUL.
pub(crate) fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// An unsigned integer of 32 or 64 bits, as a `NLA_UINT` may be either.
pub(super) fn uint(bytes: &[u8]) -> Option<u64> {
    match bytes.len() {
        4 => u32_at(bytes, 0).map(u64::from),
        8 => u64_at(bytes, 0),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn attributes_read_back() {
        let mut bytes = Vec::new();
        push(&mut bytes, 3, b"eth0\0");
        push(&mut bytes, 0x8000 | 7, &9_u32.to_ne_bytes());
        assert_eq!(attribute(&bytes, 3).map(text).as_deref(), Some("eth0"));
        assert_eq!(attribute(&bytes, 7).and_then(uint), Some(9));
        assert_eq!(attributes(&bytes[..bytes.len() - 1]).count(), 1);
        assert_eq!(attribute(&bytes, 4), None);
    }

    proptest! {
        #[test]
        fn no_bytes_panic_or_loop(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            for (_, value) in attributes(&bytes) {
                let _ = (u32_at(value, 1), u64_at(value, 1), text(value), uint(value));
            }
        }
    }
}
