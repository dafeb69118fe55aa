//! How long the pages of a Parquet file say that they are, before anything is made of them.
//!
//! The library takes as much memory for a page as its header asks for, up to 2 GiB, and a page of some kilobytes may unpack to that. So
//! each header is looked into before: two of its fields, all others are passed over.
//!
//! ```text
//! PageHeader, Thrift's compact protocol:
//!   1: i32 type   2: i32 uncompressed_page_size   3: i32 compressed_page_size   4…: what is in the page
//!   a field: | distance from the last id << 4 | type | value |, or with a distance of 0 the id as a varint before the value
//! ```
//!
//! Source: `parquet.thrift` of apache/parquet-format, `doc/specs/thrift-compact-protocol.md` of apache/thrift.

use parquet::file::metadata::RowGroupMetaData;
use parquet::file::reader::ChunkReader;

use super::HeaderLogError;

/// A page of ours has 1 MiB; other writers make larger ones, none this large.
pub(super) const PAGE_BYTES_MOST: u64 = 64 << 20;
/// Bytes of a page to read at first, and at most: its header has least and greatest values, which may be long.
const HEADER_BYTES: [u64; 2] = [256, 1 << 20];
/// Structures within structures of a header; the deepest that there is has two.
const DEPTH_MOST: u32 = 8;

/// Whether no page of the columns that `wanted` says is longer than [`PAGE_BYTES_MOST`].
pub(super) fn check(
    file: &impl ChunkReader,
    group: &RowGroupMetaData,
    wanted: impl Fn(usize) -> bool,
) -> Result<(), HeaderLogError> {
    for (_, column) in group.columns().iter().enumerate().filter(|(place, _)| wanted(*place)) {
        let (mut at, bytes) = column.byte_range();
        let end = at.checked_add(bytes).filter(|end| *end <= file.len()).ok_or(HeaderLogError::Damaged)?;
        while at < end {
            let (header_bytes, unpacked, packed) = header_at(file, at, end)?;
            let longest = unpacked.max(packed);
            if longest > PAGE_BYTES_MOST {
                return Err(HeaderLogError::LongPage(longest));
            }
            at += header_bytes + packed;
        }
    }
    Ok(())
}

/// The length of the page header at `at`, and of what follows, unpacked and packed.
pub(super) fn header_at(file: &impl ChunkReader, at: u64, end: u64) -> Result<(u64, u64, u64), HeaderLogError> {
    for most in HEADER_BYTES {
        let bytes = file.get_bytes(at, most.min(end - at) as usize)?;
        let mut left = Thrift(&bytes);
        if let Some([unpacked, packed]) = left.page_header() {
            let size =
                |size: Option<i64>| size.and_then(|size| u64::try_from(size).ok()).ok_or(HeaderLogError::Damaged);
            return Ok(((bytes.len() - left.0.len()) as u64, size(unpacked)?, size(packed)?));
        }
    }
    Err(HeaderLogError::Damaged)
}

/// What was not read of a text in the compact protocol.
struct Thrift<'a>(&'a [u8]);

impl Thrift<'_> {
    /// Fields 2 and 3 of the structure that begins here; `None` where it is not whole.
    fn page_header(&mut self) -> Option<[Option<i64>; 2]> {
        let mut sizes = [None; 2];
        let mut id = 0;
        while let Some(kind) = self.field(&mut id)? {
            match (id, kind) {
                (2 | 3, 5) => sizes[id as usize - 2] = Some(self.integer()?),
                _ => self.skip(kind, DEPTH_MOST)?,
            }
        }
        Some(sizes)
    }

    /// The next field's type, its number in `id`; an inner `None` at the structure's end.
    fn field(&mut self, id: &mut i64) -> Option<Option<u8>> {
        let byte = self.byte()?;
        if byte == 0 {
            return Some(None);
        }
        *id = match byte >> 4 {
            0 => self.integer()?,
            distance => id.checked_add(distance.into())?,
        };
        Some(Some(byte & 15))
    }

    fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*byte)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn integer(&mut self) -> Option<i64> {
        let value = self.varint()?;
        Some((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    fn pass(&mut self, bytes: u64) -> Option<()> {
        self.0 = self.0.get(usize::try_from(bytes).ok()?..)?;
        Some(())
    }

    /// Passes over a value. `depth`: structures and lists that may yet begin in it.
    fn skip(&mut self, kind: u8, depth: u32) -> Option<()> {
        match kind {
            // The type itself says true or false.
            1 | 2 => Some(()),
            3 => self.pass(1),
            4..=6 => self.varint().map(drop),
            7 => self.pass(8),
            8 => {
                let length = self.varint()?;
                self.pass(length)
            }
            9 | 10 => {
                let head = self.byte()?;
                let count = if head >> 4 == 15 { self.varint()? } else { u64::from(head >> 4) };
                let depth = depth.checked_sub(1)?;
                // In a list a truth value takes a byte.
                let kind = if matches!(head & 15, 1 | 2) { 3 } else { head & 15 };
                (0..count).try_for_each(|_| self.skip(kind, depth))
            }
            12 => {
                let depth = depth.checked_sub(1)?;
                let mut id = 0;
                while let Some(kind) = self.field(&mut id)? {
                    self.skip(kind, depth)?;
                }
                Some(())
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Type 0, 21 bytes unpacked, 19 packed, a CRC, and a data page's own header with statistics.
    const HEADER: [u8; 24] =
        [0x15, 0, 0x15, 42, 0x15, 38, 0x15, 7, 0x1c, 0x15, 8, 0x15, 0, 0x15, 6, 0x15, 6, 0x1c, 0x18, 1, b'x', 0, 0, 0];

    #[test]
    fn sizes_stand_among_other_fields() {
        let mut all = Thrift(&HEADER);
        assert_eq!(all.page_header(), Some([Some(21), Some(19)]));
        assert!(all.0.is_empty());
        for length in 0..HEADER.len() {
            assert_eq!(Thrift(&HEADER[..length]).page_header(), None, "{length}");
        }
    }

    #[test]
    fn lists_ids_and_depth() {
        // A list of three truth values, one of sixteen bytes, field 300 by its own number.
        let text = [&[0x19, 0x31, 1, 2, 1, 0x19, 0xf3, 16][..], &[7; 16], &[0x05, 0xd8, 0x04, 2, 0]].concat();
        let mut all = Thrift(&text);
        assert_eq!(all.page_header(), Some([None, None]));
        assert!(all.0.is_empty());
        assert_eq!(Thrift(&[0x1c; 1000]).page_header(), None);
        assert_eq!(Thrift(&[0x19; 1000]).page_header(), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_passed_over_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Thrift(&bytes).page_header();
        }
    }
}
