//! Column chunks with a dictionary, encoded here.
//!
//! The library encodes any column value by value: 49 of them took 540 ns a packet on a mix of frames, where two million packets a
//! second leave 500 for all. Most columns of a header log hold few different values, and many share their levels. Statistics over the
//! dictionary alone, addresses that become text once, and levels encoded once for all columns of a class brought it to 230 ns. The
//! library still frames the pages, and writes what is no dictionary.
//!
//! ```text
//! chunk:  dictionary page | each value once, plain |       (none where no row has a value)
//!         data page       | levels' length, 32 bits | levels | bits a place | places in the dictionary |
//! ```
//!
//! Source: `README.md` and `Encodings.md` of apache/parquet-format.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::hash::Hash;
use std::io::Write;
use std::net::IpAddr;

use bytes::Bytes;
use parquet::basic::{Compression, Encoding, PageType, ZstdLevel};
use parquet::column::page::{CompressedPage, Page, PageWriter};
use parquet::column::writer::ColumnCloseResult;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, PageEncodingStats};
use parquet::file::statistics::Statistics;
use parquet::file::writer::{SerializedPageWriter, SerializedRowGroupWriter, TrackedWrite};
use parquet::schema::types::ColumnDescPtr;

use super::hybrid;

/// What a dictionary can be made of.
pub(super) trait Value: Copy + Eq + Hash {
    /// Appends it as Parquet's `PLAIN` encoding has it.
    fn plain(self, out: &mut Vec<u8>);
    /// The least and the greatest of `values`, in the order of its logical type.
    fn statistics(values: &[Self], nulls: u64) -> Statistics;
}

/// Whole numbers without a sign, as the schema says of all that have 32 bits.
impl Value for i32 {
    fn plain(self, out: &mut Vec<u8>) {
        out.extend(self.to_le_bytes());
    }

    fn statistics(values: &[Self], nulls: u64) -> Statistics {
        let numbers = || values.iter().map(|value| *value as u32);
        Statistics::int32(
            numbers().min().map(|n| n as i32),
            numbers().max().map(|n| n as i32),
            None,
            Some(nulls),
            false,
        )
    }
}

impl Value for IpAddr {
    fn plain(self, out: &mut Vec<u8>) {
        plain_text(&self.to_string(), out);
    }

    fn statistics(values: &[Self], nulls: u64) -> Statistics {
        text_statistics(values.iter().map(IpAddr::to_string), nulls)
    }
}

impl Value for [u8; 6] {
    fn plain(self, out: &mut Vec<u8>) {
        plain_text(&mac_text(self), out);
    }

    fn statistics(values: &[Self], nulls: u64) -> Statistics {
        text_statistics(values.iter().map(|mac| mac_text(*mac)), nulls)
    }
}

fn plain_text(text: &str, out: &mut Vec<u8>) {
    // An address is short.
    out.extend((text.len() as u32).to_le_bytes());
    out.extend(text.as_bytes());
}

fn text_statistics(texts: impl Iterator<Item = String> + Clone, nulls: u64) -> Statistics {
    let [least, greatest] =
        [texts.clone().min(), texts.max()].map(|text| text.map(|text| ByteArray::from(text.into_bytes())));
    Statistics::byte_array(least, greatest, None, Some(nulls), false)
}

fn mac_text(mac: [u8; 6]) -> String {
    let mut text = String::with_capacity(17);
    for (at, byte) in mac.iter().enumerate() {
        let colon = if at > 0 { ":" } else { "" };
        // Writing to a string does not fail.
        let _ = write!(text, "{colon}{byte:02x}");
    }
    text
}

/// Encodes column chunks, one after another.
pub(super) struct ChunkEncoder {
    zstd: zstd::bulk::Compressor<'static>,
    level: ZstdLevel,
    places: Vec<u32>,
}

impl ChunkEncoder {
    /// One that packs as hard as `level` says.
    pub(super) fn new(level: ZstdLevel) -> Result<Self, ParquetError> {
        Ok(Self { zstd: zstd::bulk::Compressor::new(level.compression_level())?, level, places: Vec::new() })
    }

    /// Appends the next column of `group`. `levels`: for each of its `rows` whether it has a value, encoded; empty where all have one.
    pub(super) fn append<V: Value, W: Write + Send>(
        &mut self,
        group: &mut SerializedRowGroupWriter<'_, W>,
        column: ColumnDescPtr,
        rows: usize,
        levels: &[u8],
        values: &[V],
    ) -> Result<(), ParquetError> {
        let dictionary = self.look_up(values);
        let mut chunk = Vec::new();
        let mut sink = TrackedWrite::new(&mut chunk);
        let mut pages = SerializedPageWriter::new(&mut sink);
        let mut unpacked_bytes = 0;
        let mut dictionary_at = None;
        let mut body = Vec::new();
        if !dictionary.is_empty() {
            dictionary.iter().for_each(|value| value.plain(&mut body));
            let page = Page::DictionaryPage {
                buf: self.zstd.compress(&body)?.into(),
                num_values: dictionary.len() as u32,
                encoding: Encoding::PLAIN,
                is_sorted: false,
            };
            let written = pages.write_page(CompressedPage::new(page, body.len()))?;
            (dictionary_at, unpacked_bytes) = (Some(written.offset as i64), written.uncompressed_size);
        }
        body.clear();
        if !levels.is_empty() {
            body.extend((levels.len() as u32).to_le_bytes());
            body.extend(levels);
        }
        let encoding = if let Some(greatest) = dictionary.len().checked_sub(1) {
            let bits = hybrid::bits_for(greatest as u32);
            body.push(bits as u8);
            hybrid::encode(&self.places, bits, |place| place, &mut body);
            Encoding::RLE_DICTIONARY
        } else {
            Encoding::PLAIN
        };
        let page = Page::DataPage {
            buf: self.zstd.compress(&body)?.into(),
            num_values: rows as u32,
            encoding,
            def_level_encoding: Encoding::RLE,
            rep_level_encoding: Encoding::RLE,
            statistics: None,
        };
        let written = pages.write_page(CompressedPage::new(page, body.len()))?;
        unpacked_bytes += written.uncompressed_size;
        pages.close()?;
        sink.flush()?;
        drop(sink);
        let mut parts = vec![PageEncodingStats { page_type: PageType::DATA_PAGE, encoding, count: 1 }];
        if dictionary_at.is_some() {
            parts.insert(
                0,
                PageEncodingStats { page_type: PageType::DICTIONARY_PAGE, encoding: Encoding::PLAIN, count: 1 },
            );
        }
        let metadata = ColumnChunkMetaData::builder(column)
            .set_compression(Compression::ZSTD(self.level))
            .set_encodings(vec![Encoding::PLAIN, Encoding::RLE, encoding])
            .set_page_encoding_stats(parts)
            .set_total_compressed_size(chunk.len() as i64)
            .set_total_uncompressed_size(unpacked_bytes as i64)
            .set_num_values(rows as i64)
            .set_dictionary_page_offset(dictionary_at)
            .set_data_page_offset(written.offset as i64)
            .set_statistics(V::statistics(&dictionary, (rows - values.len()) as u64))
            .build()?;
        let close = ColumnCloseResult {
            bytes_written: chunk.len() as u64,
            rows_written: rows as u64,
            metadata,
            bloom_filter: None,
            column_index: None,
            offset_index: None,
        };
        group.append_column(&Bytes::from(chunk), close)
    }

    /// Each of `values` once, and in `self.places` where each has its own.
    fn look_up<V: Value>(&mut self, values: &[V]) -> Vec<V> {
        let mut known: HashMap<V, u32, foldhash::quality::RandomState> = HashMap::default();
        let mut dictionary = Vec::new();
        // Packets come in runs.
        let mut last = None;
        self.places.clear();
        self.places.extend(values.iter().map(|value| match last {
            Some((before, place)) if before == *value => place,
            _ => {
                let place = *known.entry(*value).or_insert_with(|| {
                    dictionary.push(*value);
                    dictionary.len() as u32 - 1
                });
                last = Some((*value, place));
                place
            }
        }));
        dictionary
    }
}
