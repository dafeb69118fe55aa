//! What a Parquet file says of its own lengths, before anything is made of them.
//!
//! The library takes as much memory as a file asks for: for a list as many elements as it says to have, for a page up to 2 GiB, for a
//! dictionary as many values as it says; and a page of some kilobytes may unpack to that. So footer and page headers are looked into
//! before: some fields, all others are passed over.
//!
//! ```text
//! footer:      | FileMetaData | its length, 4 bytes LE | "PAR1" |   FileMetaData: 4: list of row groups
//! PageHeader:  1: i32 type   2: i32 uncompressed_page_size   3: i32 compressed_page_size
//!              5: data page {1: values, 2: encoding}   7: dictionary {1: values, 2: encoding}   8: data page 2 {1: values, 4: encoding}
//!
//! Thrift's compact protocol, a field: | distance from the last id << 4 | type | value |, or with a distance of 0 the id as a varint
//! before the value. A list: | count << 4 | type |, or with a count of 15 the count as a varint; then the elements.
//! ```
//!
//! Source: `parquet.thrift` of apache/parquet-format, `doc/specs/thrift-compact-protocol.md` of apache/thrift.

mod schema;

use std::panic::{AssertUnwindSafe, catch_unwind};

use parquet::errors::ParquetError;
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::reader::ChunkReader;

/// A page of ours has 1 MiB; other writers make larger ones, none this large.
const PAGE_BYTES_MOST: u64 = 64 << 20;
/// Memory for a page and a dictionary of each column and for the texts of a batch, which are held together: in a file of any length, for each
/// byte of a longer one, and at most. Pages of 1 MiB, as most writers make them, take 100 MiB, in files of some megabytes.
const GROUP_BYTES_SURE: u64 = 64 << 20;
const GROUP_TIMES_MOST: u64 = 64;
const GROUP_BYTES_MOST: u64 = 256 << 20;
/// Rows that are decoded together: columns of so many fit a second-level cache.
const BATCH_ROWS: u64 = 4096;
/// Memory for the pages that a batch holds, as its texts are parts of them. Where rows take more, fewer are decoded together.
const BATCH_TEXT_BYTES: u64 = 32 << 20;
/// What a row takes of a page of texts at most. The longest text that we write is a snippet of 1 MiB.
const ROW_TEXT_BYTES_MOST: u64 = 2 << 20;
/// The longest footer that a file of any length may have, the part of a longer file that may be one, and the longest of all. That of our header
/// logs takes some 7 KiB for each 131,072 packets, and some 100 bytes for each gap.
const FOOTER_BYTES_SURE: u64 = 16 << 20;
const FOOTER_PART_MOST: u64 = 2;
const FOOTER_BYTES_MOST: u64 = 128 << 20;
/// Memory for a value of a dictionary, beside its bytes.
const VALUE_BYTES: u64 = 40;
/// Bytes of a page to read at first, then, and at most: its header has least and greatest values, which may be long.
const HEADER_BYTES: [u64; 3] = [256, 1 << 12, 1 << 20];
/// Structures within structures; the deepest that there is, in a footer, has six.
const DEPTH_MOST: u32 = 12;
/// What a row group takes in a footer at least, which names the place of each of our columns.
const GROUP_TEXT_BYTES: u64 = 256;
/// What any other structure takes at least.
const STRUCT_TEXT_BYTES: u64 = 2;
/// Encodings of a page in which a few bytes may stand for values of any length or number (`DELTA_LENGTH_BYTE_ARRAY`, `DELTA_BYTE_ARRAY`).
const LONG_ENCODINGS: [i64; 2] = [6, 7];
/// Rows that files of any length may have together: some seconds.
const ROWS_SURE: u64 = 4 << 20;
/// Rows for each of the first bytes beside them, and for each of the bytes of longer ones. A packet takes some bytes; where all packets are
/// alike and their times rise evenly, 15 take one.
pub(crate) const ROWS_OF_A_BYTE: u64 = 4;
const FIRST_BYTES: u64 = 64 << 20;
const ROWS_OF_A_LATER_BYTE: u64 = 32;

/// Why a Parquet file is not read.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The library says so.
    #[error("{0}")]
    Parquet(#[from] ParquetError),
    /// A page, or what is held of a row group, would take so many bytes.
    #[error("it has pages of {0} bytes, more than longhaul reads of a file of its length")]
    LongPage(u64),
    /// A page has an encoding in which a few bytes may stand for any number of values.
    #[error("it uses an encoding that longhaul does not read: write it with PLAIN or a dictionary")]
    Encoding,
    /// Its pages, and those of the files that are read with it, unpack to so many bytes.
    #[error(
        "its pages unpack to {0} bytes, with those of the files before it: more than longhaul reads of files of their length"
    )]
    Unpacked(u64),
    /// Its rows, and those of the files that are read with it, have so long texts that they are decoded in so many batches.
    #[error(
        "its rows have so long texts that they are decoded in {0} batches, with those of the files before it: more than longhaul reads of files of their length"
    )]
    Batches(u64),
    /// It and the files that are read with it have so many rows, or say so.
    #[error("it has {0} rows, with those of the files before it: more than longhaul reads of files of their length")]
    Rows(u64),
    /// The dictionaries of it and of the files that are read with it have so many texts.
    #[error(
        "its dictionaries have {0} texts, with those of the files before it: more than longhaul reads of files of their length"
    )]
    Texts(u64),
    /// What it says of itself cannot be.
    #[error("it is damaged")]
    Damaged,
}

/// Runs `work`, in which the Parquet library may panic where a file was made to deceive it (its decoders trust what the file says of
/// itself). What `work` changes must not be used after an error.
///
/// # Errors
/// Those of `work`, and [`Refused::Damaged`] where it panicked.
pub fn guarded<T, E: From<Refused>>(work: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err(Refused::Damaged.into()))
}

/// What structures consist of: of each its fields, by number, with their types. The library reads a field that it knows as the type that it
/// knows, whatever the file says, and cuts numbers to that; where a field comes twice it takes the last. So a known field of another type, a
/// number that does not fit and fields out of order are refused, lest the two read different things.
type Fields = &'static [(i64, Type)];

#[derive(Clone, Copy)]
enum Type {
    Bool,
    Byte,
    Short,
    Int,
    Long,
    Binary,
    /// Of elements that take so many bytes at least.
    List(u64, &'static Type),
    Struct(Fields),
}

use Type::{Binary, Bool, Byte, Int, List, Long, Short, Struct};

const FILE: Fields = &[
    (1, Int),
    (2, List(STRUCT_TEXT_BYTES, &Struct(SCHEMA_ELEMENT))),
    (3, Long),
    (4, List(GROUP_TEXT_BYTES, &Struct(ROW_GROUP))),
    (5, List(STRUCT_TEXT_BYTES, &Struct(KEY_VALUE))),
    (6, Binary),
    (7, List(STRUCT_TEXT_BYTES, &Struct(&[(1, Struct(&[]))]))),
    (9, Binary),
];
const SCHEMA_ELEMENT: Fields = &[
    (1, Int),
    (2, Int),
    (3, Int),
    (4, Binary),
    (5, Int),
    (6, Int),
    (7, Int),
    (8, Int),
    (9, Int),
    (10, Struct(LOGICAL_TYPE)),
];
const LOGICAL_TYPE: Fields = &[
    (5, Struct(&[(1, Int), (2, Int)])),
    (7, Struct(TIME)),
    (8, Struct(TIME)),
    (10, Struct(&[(1, Byte), (2, Bool)])),
    (16, Struct(&[(1, Byte)])),
    (17, Struct(&[(1, Binary)])),
    (18, Struct(&[(1, Binary), (2, Int)])),
];
const TIME: Fields = &[(1, Bool), (2, Struct(&[(1, Struct(&[])), (2, Struct(&[])), (3, Struct(&[]))]))];
const KEY_VALUE: Fields = &[(1, Binary), (2, Binary)];
const ROW_GROUP: Fields = &[
    (1, List(STRUCT_TEXT_BYTES, &Struct(COLUMN))),
    (2, Long),
    (3, Long),
    (4, List(STRUCT_TEXT_BYTES, &Struct(&[(1, Int), (2, Bool), (3, Bool)]))),
    (5, Long),
    (6, Long),
    (7, Short),
];
const COLUMN: Fields =
    &[(1, Binary), (2, Long), (3, Struct(COLUMN_DATA)), (4, Long), (5, Int), (6, Long), (7, Int), (9, Binary)];
const COLUMN_DATA: Fields = &[
    (1, Int),
    (2, List(1, &Int)),
    (3, List(1, &Binary)),
    (4, Int),
    (5, Long),
    (6, Long),
    (7, Long),
    (8, List(STRUCT_TEXT_BYTES, &Struct(KEY_VALUE))),
    (9, Long),
    (10, Long),
    (11, Long),
    (12, Struct(STATISTICS)),
    (13, List(STRUCT_TEXT_BYTES, &Struct(&[(1, Int), (2, Int), (3, Int)]))),
    (14, Long),
    (15, Int),
    (16, Struct(&[(1, Long), (2, List(1, &Long)), (3, List(1, &Long))])),
];
const STATISTICS: Fields =
    &[(1, Binary), (2, Binary), (3, Long), (4, Long), (5, Binary), (6, Binary), (7, Bool), (8, Bool)];

/// `DataPageHeader`, `DictionaryPageHeader` and `DataPageHeaderV2`.
const DATA_PAGE: Fields = &[(1, Int), (2, Int), (3, Int), (4, Int), (5, Struct(STATISTICS))];
const DICTIONARY_PAGE: Fields = &[(1, Int), (2, Int), (3, Bool)];
const DATA_PAGE_2: Fields =
    &[(1, Int), (2, Int), (3, Int), (4, Int), (5, Int), (6, Int), (7, Bool), (8, Struct(STATISTICS))];
/// Of each kind of page, by number: the field of a page header that has its own header, what that consists of, and its field with the encoding.
/// No writer has index pages (1).
const PAGES: [(i64, i64, Fields, i64); 3] = [(0, 5, DATA_PAGE, 2), (2, 7, DICTIONARY_PAGE, 2), (3, 8, DATA_PAGE_2, 4)];

impl Type {
    fn is(self, kind: u8) -> bool {
        match self {
            Bool => matches!(kind, 1 | 2),
            Byte => kind == 3,
            Short => kind == 4,
            Int => kind == 5,
            Long => kind == 6,
            Binary => kind == 8,
            List(..) => kind == 9,
            Struct(_) => kind == 12,
        }
    }
}

/// Whether the footer is no longer than those of such files, its lists can be as long as they say, and its schema is a tree, so that the library may
/// read it.
///
/// # Errors
/// Where not.
pub(crate) fn check_footer(file: &impl ChunkReader) -> Result<(), Refused> {
    let Some(tail) = file.len().checked_sub(8) else { return Err(Refused::Damaged) };
    let last = file.get_bytes(tail, 8)?;
    let length = u64::from(u32::from_le_bytes([last[0], last[1], last[2], last[3]]));
    let most = (file.len() / FOOTER_PART_MOST).clamp(FOOTER_BYTES_SURE, FOOTER_BYTES_MOST);
    let Some(start) = tail.checked_sub(length).filter(|_| length <= most) else { return Err(Refused::Damaged) };
    let footer = file.get_bytes(start, length as usize)?;
    Thrift(&footer).footer().and_then(|()| Thrift(&footer).schema()).ok_or(Refused::Damaged)
}

/// Rows that files of so many bytes can have, `of_a_byte` for each of the first bytes: what costs time for each.
pub(crate) fn rows_most(file_bytes: u64, of_a_byte: u64) -> u64 {
    let (first, later) = (file_bytes.min(FIRST_BYTES), file_bytes.saturating_sub(FIRST_BYTES));
    let (first, later) = (first.saturating_mul(of_a_byte), later.saturating_mul(ROWS_OF_A_LATER_BYTE.max(of_a_byte)));
    ROWS_SURE.saturating_add(first).saturating_add(later)
}

/// Whether files of so many bytes can have so many rows.
///
/// # Errors
/// Where not.
pub(crate) fn check_rows(file_bytes: u64, of_a_byte: u64, rows: u64) -> Result<(), Refused> {
    if rows > rows_most(file_bytes, of_a_byte) { Err(Refused::Rows(rows)) } else { Ok(()) }
}

/// Whether the columns of all row groups lie within the file, each in a place of its own as far as their lengths tell, so that the library may
/// read them.
///
/// # Errors
/// Where not.
pub(crate) fn check_places(file: &impl ChunkReader, groups: &[RowGroupMetaData]) -> Result<(), Refused> {
    let inside = groups.iter().all(|group| {
        group.num_rows() >= 0
            && group.columns().iter().all(|chunk| {
                let starts = [Some(chunk.data_page_offset()), chunk.dictionary_page_offset()];
                let start = starts.into_iter().flatten().min().unwrap_or(-1);
                let end = u64::try_from(start).ok().zip(u64::try_from(chunk.compressed_size()).ok());
                end.is_some_and(|(start, bytes)| start.saturating_add(bytes) <= file.len())
            })
    });
    let sizes = groups.iter().flat_map(RowGroupMetaData::columns).map(|chunk| chunk.compressed_size().unsigned_abs());
    if inside && sizes.fold(0, u64::saturating_add) <= file.len() { Ok(()) } else { Err(Refused::Damaged) }
}

/// What it takes to read a row group.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GroupBytes {
    /// What all its pages are unpacked, or packed where that is more, one after the other, bytes.
    pub(crate) unpacked: u64,
    /// What is held at once, bytes.
    pub(crate) held: u64,
    /// Rows that are decoded together.
    pub(crate) batch_rows: usize,
    /// Texts in its dictionaries.
    pub(crate) dictionary_texts: u64,
}

/// Whether the columns of a row group that `wanted` says can be read in bounded memory.
///
/// # Errors
/// Where not.
pub(crate) fn check(
    file: &impl ChunkReader,
    group: &RowGroupMetaData,
    wanted: impl Fn(usize) -> bool,
) -> Result<GroupBytes, Refused> {
    let (mut held, mut unpacked) = (0, 0_u64);
    // Of the columns of texts: what a row takes at most, the longest pages, and all pages but those.
    let (mut row_texts, mut long_texts, mut other_texts) = (0_u64, 0_u64, 0_u64);
    let mut dictionary_texts = 0_u64;
    for (_, column) in group.columns().iter().enumerate().filter(|(place, _)| wanted(*place)) {
        let (mut at, bytes) = column.byte_range();
        let end = at.checked_add(bytes).filter(|end| *end <= file.len()).ok_or(Refused::Damaged)?;
        let is_text = column.column_type() == parquet::basic::Type::BYTE_ARRAY;
        let (mut longest_page, mut dictionary, mut row, mut all) = (0, 0, 0_u64, 0_u64);
        while at < end {
            let (header_bytes, page) = header_at(file, at, end)?;
            let longest = page.unpacked.max(page.packed);
            if longest > PAGE_BYTES_MOST {
                return Err(Refused::LongPage(longest));
            }
            if LONG_ENCODINGS.contains(&page.encoding) {
                return Err(Refused::Encoding);
            }
            longest_page = longest_page.max(longest);
            all = all.saturating_add(longest);
            if page.is_dictionary {
                if page.values > page.unpacked {
                    return Err(Refused::Damaged);
                }
                dictionary = page.unpacked + page.values * VALUE_BYTES;
                dictionary_texts = dictionary_texts.saturating_add(if is_text { page.values } else { 0 });
            } else {
                row = row.max(longest.div_ceil(page.values.max(1)));
            }
            at += header_bytes + page.packed;
        }
        held += longest_page + dictionary;
        unpacked = unpacked.saturating_add(all);
        if is_text {
            if row > ROW_TEXT_BYTES_MOST {
                return Err(Refused::LongPage(longest_page));
            }
            row_texts += row;
            long_texts += longest_page;
            other_texts = other_texts.saturating_add(all - longest_page);
        }
    }
    let batch_rows = (BATCH_TEXT_BYTES / row_texts.max(1)).clamp(1, BATCH_ROWS);
    // A batch may begin within one page and end within another.
    held += other_texts.min(batch_rows * row_texts + long_texts);
    let most = file.len().saturating_mul(GROUP_TIMES_MOST).saturating_add(GROUP_BYTES_SURE).min(GROUP_BYTES_MOST);
    if held > most {
        return Err(Refused::LongPage(held));
    }
    Ok(GroupBytes { unpacked, held, batch_rows: batch_rows as usize, dictionary_texts })
}

/// What a page header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Page {
    pub(crate) unpacked: u64,
    pub(crate) packed: u64,
    is_dictionary: bool,
    values: u64,
    encoding: i64,
}

/// The length of the page header at `at`, and what it says.
pub(crate) fn header_at(file: &impl ChunkReader, at: u64, end: u64) -> Result<(u64, Page), Refused> {
    for most in HEADER_BYTES {
        let bytes = file.get_bytes(at, most.min(end - at) as usize)?;
        let mut left = Thrift(&bytes);
        if let Some(fields) = left.page_header() {
            let size = |size: Option<i64>| size.and_then(|size| u64::try_from(size).ok()).ok_or(Refused::Damaged);
            let page = Page {
                unpacked: size(fields.unpacked)?,
                packed: size(fields.packed)?,
                is_dictionary: fields.is_dictionary,
                values: size(fields.values)?,
                encoding: fields.encoding,
            };
            return Ok(((bytes.len() - left.0.len()) as u64, page));
        }
    }
    Err(Refused::Damaged)
}

/// Fields of a page header as they stand there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct PageFields {
    unpacked: Option<i64>,
    packed: Option<i64>,
    is_dictionary: bool,
    values: Option<i64>,
    encoding: i64,
}

/// What was not read of a text in the compact protocol.
struct Thrift<'a>(&'a [u8]);

impl Thrift<'_> {
    /// A `FileMetaData` whose lists are as long as they say; `None` where it is not whole.
    fn footer(&mut self) -> Option<()> {
        self.structure(FILE)
    }

    /// Passes over a structure whose fields are those that `known` says, and unknown ones.
    fn structure(&mut self, known: Fields) -> Option<()> {
        let mut id = 0;
        while let Some(kind) = self.field(&mut id)? {
            match known.iter().find(|(known, _)| *known == id) {
                None => self.skip(kind, DEPTH_MOST)?,
                Some((_, wanted)) if !wanted.is(kind) => return None,
                Some((_, wanted)) => self.value(*wanted, kind)?,
            }
        }
        Some(())
    }

    /// Passes over a value of a known type, which is `kind`.
    fn value(&mut self, wanted: Type, kind: u8) -> Option<()> {
        match wanted {
            Struct(fields) => self.structure(fields),
            List(least_bytes, element) => {
                let (count, kind) = self.list_head(least_bytes)?;
                (0..count).try_for_each(|_| if element.is(kind) { self.value(*element, kind) } else { None })
            }
            Short => i16::try_from(self.integer()?).ok().map(drop),
            Int => self.int().map(drop),
            Bool | Byte | Long | Binary => self.skip(kind, DEPTH_MOST),
        }
    }

    /// The page header that begins here; `None` where it is not whole, or the library may read something else in it.
    fn page_header(&mut self) -> Option<PageFields> {
        let mut fields = PageFields::default();
        let (mut id, mut kind_of_page) = (0, None);
        while let Some(kind) = self.field(&mut id)? {
            let of_page = PAGES.iter().find(|(number, ..)| Some(*number) == kind_of_page);
            match (id, kind) {
                (1, 5) => kind_of_page = Some(self.int()?),
                (2, 5) => fields.unpacked = Some(self.int()?),
                (3, 5) => fields.packed = Some(self.int()?),
                (4, 5) => drop(self.int()?),
                (5 | 7 | 8, 12) => {
                    // Only that of its kind.
                    let (_, _, known, encoding) = of_page.filter(|(_, own, ..)| *own == id)?;
                    fields.is_dictionary = id == 7;
                    self.page(&mut fields, known, *encoding)?;
                }
                (1..=8, _) => return None,
                _ => self.skip(kind, DEPTH_MOST)?,
            }
        }
        Some(fields)
    }

    /// The header of one kind of page, whose field `encoding` has the encoding.
    fn page(&mut self, fields: &mut PageFields, known: Fields, encoding: i64) -> Option<()> {
        let mut id = 0;
        while let Some(kind) = self.field(&mut id)? {
            match known.iter().find(|(known, _)| *known == id) {
                None => self.skip(kind, DEPTH_MOST)?,
                Some((_, wanted)) if !wanted.is(kind) => return None,
                Some((1, _)) => fields.values = Some(self.int()?),
                Some((at, _)) if *at == encoding => fields.encoding = self.int()?,
                Some((_, wanted)) => self.value(*wanted, kind)?,
            }
        }
        Some(())
    }

    /// The next field's type, its number in `id`; an inner `None` at the structure's end.
    fn field(&mut self, id: &mut i64) -> Option<Option<u8>> {
        let byte = self.byte()?;
        if byte == 0 {
            return Some(None);
        }
        let next = match byte >> 4 {
            0 => self.integer()?,
            distance => id.checked_add(distance.into())?,
        };
        // All writers have fields in order.
        (next > *id && next <= i16::MAX.into()).then(|| *id = next)?;
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

    /// A number of 32 bits.
    fn int(&mut self) -> Option<i64> {
        i32::try_from(self.integer()?).ok().map(i64::from)
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
                let depth = depth.checked_sub(1)?;
                let (count, kind) = self.list_head(1)?;
                // A truth value in a list takes a byte, which the library may not pass over. No list of a footer or a page header has any.
                if matches!(kind, 1 | 2) {
                    return None;
                }
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

    /// Length and type of a list that can be as long as it says, where an element takes `least_bytes`.
    fn list_head(&mut self, least_bytes: u64) -> Option<(u64, u8)> {
        let head = self.byte()?;
        let count = if head >> 4 == 15 { self.varint()? } else { u64::from(head >> 4) };
        (count.saturating_mul(least_bytes) <= self.0.len() as u64).then_some((count, head & 15))
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
        let read =
            PageFields { unpacked: Some(21), packed: Some(19), is_dictionary: false, values: Some(4), encoding: 0 };
        assert_eq!(all.page_header(), Some(read));
        assert!(all.0.is_empty());
        for length in 0..HEADER.len() {
            assert_eq!(Thrift(&HEADER[..length]).page_header(), None, "{length}");
        }
    }

    /// The library makes many times as much of a footer.
    #[test]
    fn a_footer_is_a_part_of_its_file() {
        let with = |footer: u32, rest: usize| {
            let mut file = vec![0; footer as usize + rest];
            file.extend(footer.to_le_bytes());
            file.extend(b"PAR1");
            check_footer(&bytes::Bytes::from(file))
        };
        assert!(with(16 << 20, 0).is_ok() && with(17 << 20, 17 << 20).is_ok());
        assert!(matches!(with(17 << 20, 16 << 20), Err(Refused::Damaged)));
    }

    #[test]
    fn few_bytes_stand_for_few_rows() {
        let rows = |bytes: u64, rows: u64| check_rows(bytes, ROWS_OF_A_BYTE, rows);
        assert!(rows(1_000, 4_198_304).is_ok(), "they take some seconds");
        assert!(matches!(rows(1_000, 4_198_305), Err(Refused::Rows(4_198_305))));
        assert!(rows(5_000_000, 24_194_304).is_ok());
        assert!(rows(5_000_000, 24_194_305).is_err());
        let long = (64 << 20) + 1_000_000;
        assert!(rows(long, 304_629_760).is_ok());
        assert!(rows(long, 304_629_761).is_err());
        assert!(rows(5_000_000, u64::MAX).is_err());
        assert!(check_rows(1_000, 16, 4_210_304).is_ok() && check_rows(1_000, 16, 4_210_305).is_err());
    }

    /// Each reads as small here and as large there, unless it is refused.
    #[test]
    fn what_the_library_reads_otherwise_is_refused() {
        // A dictionary page whose own header says 2^31-1 values, and a data page's own header that says one.
        let dictionary = [0x15, 4, 0x15, 42, 0x15, 38, 0x4c, 0x15, 0xfe, 0xff, 0xff, 0xff, 0x0f, 0x15, 0, 0];
        let data = [0x15, 2, 0x35, 0, 0x15, 0, 0x15, 0, 0];
        let other = [&dictionary[..], &[0x1c], &data, &[0]].concat();
        let alone = [&dictionary[..], &[0]].concat();
        let read = Thrift(&alone).page_header().unwrap();
        assert_eq!((read.values, read.is_dictionary), (Some(i64::from(i32::MAX)), true));
        assert_eq!(Thrift(&other).page_header(), None, "two kinds of page");
        let with = |at: usize, bytes: &[u8]| [&HEADER[..at], bytes, &HEADER[at..]].concat();
        assert!(Thrift(&with(6, &[])).page_header().is_some());
        assert_eq!(Thrift(&with(4, &[0x05, 4, 42])).page_header(), None, "a size twice");
        assert_eq!(Thrift(&with(4, &[0x06, 4, 42])).page_header(), None, "a size twice, the second of 64 bits");
        let mut type_of_64_bits = HEADER;
        type_of_64_bits[2] = 0x16;
        assert_eq!(Thrift(&type_of_64_bits).page_header(), None, "a size of 64 bits");
        let wide = [&HEADER[..3], &[0xaa, 0x80, 0x80, 0x80, 0x20], &HEADER[4..]].concat();
        assert_eq!(Thrift(&wide).page_header(), None, "2^33 and 21 bytes");
        let far = [&HEADER[..23], &[0x05, 0x88, 0x80, 0x08, 42], &HEADER[23..]].concat();
        assert_eq!(Thrift(&far).page_header(), None, "field 65,540 is field 4 there");
        let mut index_page = HEADER;
        index_page[1] = 2;
        assert_eq!(Thrift(&index_page).page_header(), None);
    }

    #[test]
    fn lists_ids_and_depth() {
        // A list of three bytes, one of sixteen, field 300 by its own number: none of them is known.
        let text = [&[0x19, 0x33, 1, 2, 1, 0x19, 0xf3, 16][..], &[7; 16], &[0x05, 0xd8, 0x04, 2, 0]].concat();
        let mut all = Thrift(&text);
        assert_eq!(all.structure(&[]), Some(()));
        assert!(all.0.is_empty());
        assert_eq!(Thrift(&[0x19, 0x31, 1, 2, 1, 0]).structure(&[]), None, "truth values in a list");
        assert_eq!(Thrift(&[0x1c; 1000]).page_header(), None);
        assert_eq!(Thrift(&[0x19; 1000]).page_header(), None);
    }

    #[test]
    fn lists_are_as_long_as_they_say() {
        // Version 2, no schema, no rows, and two thousand million row groups.
        let footer = [0x15, 4, 0x19, 0x0c, 0x16, 0, 0x19, 0xfc, 0xff, 0xff, 0xff, 0xff, 7, 0];
        assert_eq!(Thrift(&footer).footer(), None);
        let none = [0x15, 4, 0x19, 0x0c, 0x16, 0, 0x19, 0x0c, 0];
        assert_eq!(Thrift(&none).footer(), Some(()));
        // A truth value where the number of rows belongs, which the library reads as a number.
        let other = [0x15, 4, 0x19, 0x0c, 0x12, 0, 0x19, 0xfc, 0xff, 0xff, 0xff, 0xff, 7, 0];
        assert_eq!(Thrift(&other).footer(), None);
        let strings = [0x19, 0xf8, 0xff, 0xff, 0xff, 0xff, 7, 0];
        assert_eq!(Thrift(&strings).footer(), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_passed_over_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Thrift(&bytes).page_header();
        }
    }
}
