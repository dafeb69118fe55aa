//! A Parquet file of others, read in bounded memory: [`crate::parquet_limits`] looks into it before the library does.

use std::cell::Cell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::DataType;
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaData;
use parquet::file::reader::{ChunkReader, FileReader, Length, RowGroupReader, SerializedFileReader};

use crate::parquet_limits::{
    GroupBytes, ROWS_OF_A_BYTE, Refused, check, check_footer, check_places, check_rows, guarded, rows_most,
};

/// What the pages of files of any length may unpack to together, and so many times the length of longer ones: what bounds the time that they take.
/// Columns of real packets and probes are not that much longer.
const UNPACKED_BYTES_SURE: u64 = 1 << 30;
const UNPACKED_TIMES_MOST: u64 = 1_000;
/// Batches that the rows of files of any length may be decoded in together, and one more for each so many of their bytes: each takes some ten
/// microseconds. 4,096 rows with texts of up to 8 KiB are a batch; one longer text makes all batches of its row group shorter.
const BATCHES_SURE: u64 = 1 << 16;
const BYTES_OF_A_BATCH: u64 = 16;
/// Bytes of snippets that header logs of any length may have together, and so many times the length of longer ones: a dictionary names one many times,
/// and who writes them to a file fills a disk. More than of compressed captures, which can be unpacked first: a jumbo frame of constant payload,
/// captured whole, has 9,014 bytes, which took 19 in zstd, and takes some 15 more in the other columns.
const SNIPPETS_SURE: u64 = 256 << 20;
const SNIPPETS_TIMES_MOST: u64 = 1_000;

/// What bounds the time that files take which are read one with the other: rows, batches, texts of dictionaries and unpacked bytes are bounded by the
/// length of all of them, as a folder may have thousands of small ones. Clones are the same budget.
#[derive(Debug, Clone)]
pub struct Budget {
    rows_of_a_byte: u64,
    taken: Arc<Mutex<Taken>>,
}

/// What files have taken.
#[derive(Debug, Default)]
struct Taken {
    /// Their length.
    file_bytes: u64,
    rows: u64,
    unpacked: u64,
    /// In place of what follows from their length.
    unpacked_most: Option<u64>,
    batches: u64,
    /// Of dictionaries. An empty one takes four bytes of a page and nearly none of the file, and as much time as a row.
    texts: u64,
    /// Bytes of snippets.
    snippets: u64,
}

impl Default for Budget {
    /// Of files of packets.
    fn default() -> Self {
        Self::of_rows(ROWS_OF_A_BYTE)
    }
}

impl Budget {
    /// Of files that may have so many rows for each byte, beside four million.
    pub fn of_rows(rows_of_a_byte: u64) -> Self {
        Self { rows_of_a_byte, taken: Arc::default() }
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts one more file of `bytes` with `rows`.
    ///
    /// # Errors
    /// With it there are more rows than files of their length have.
    pub fn add_file(&self, bytes: u64, rows: u64) -> Result<(), Refused> {
        let mut taken = self.taken();
        taken.file_bytes = taken.file_bytes.saturating_add(bytes);
        taken.rows = taken.rows.saturating_add(rows);
        check_rows(taken.file_bytes, self.rows_of_a_byte, taken.rows)
    }

    /// Counts a row group of `rows`.
    fn add_group(&self, group: GroupBytes, rows: u64) -> Result<(), Refused> {
        let GroupBytes { unpacked, batch_rows, dictionary_texts, .. } = group;
        let mut taken = self.taken();
        let by_length = taken.file_bytes.saturating_mul(UNPACKED_TIMES_MOST).max(UNPACKED_BYTES_SURE);
        taken.unpacked = taken.unpacked.saturating_add(unpacked);
        if taken.unpacked > taken.unpacked_most.unwrap_or(by_length) {
            return Err(Refused::Unpacked(taken.unpacked));
        }
        taken.batches = taken.batches.saturating_add(rows.div_ceil(batch_rows as u64));
        if taken.batches > BATCHES_SURE + taken.file_bytes / BYTES_OF_A_BATCH {
            return Err(Refused::Batches(taken.batches));
        }
        taken.texts = taken.texts.saturating_add(dictionary_texts);
        if taken.texts > rows_most(taken.file_bytes, self.rows_of_a_byte) {
            return Err(Refused::Texts(taken.texts));
        }
        Ok(())
    }

    /// Counts so many bytes of snippets; whether there are no more than files of their length have.
    pub(crate) fn add_snippets(&self, bytes: u64) -> bool {
        let mut taken = self.taken();
        taken.snippets = taken.snippets.saturating_add(bytes);
        taken.snippets <= taken.file_bytes.saturating_mul(SNIPPETS_TIMES_MOST).max(SNIPPETS_SURE)
    }
}

/// An open file. What reads its columns runs in [`guarded`].
pub struct ParquetFile<R: ChunkReader + 'static> {
    input: Shared<R>,
    file: SerializedFileReader<Shared<R>>,
    /// Of all its row groups.
    rows: u64,
    budget: Budget,
    held: Cell<u64>,
    batch_rows: Cell<usize>,
}

impl<R: ChunkReader + 'static> std::fmt::Debug for ParquetFile<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ParquetFile").field("groups", &self.file.num_row_groups()).finish_non_exhaustive()
    }
}

/// What is read by the library and by us.
struct Shared<R>(Arc<R>);

impl<R> Clone for Shared<R> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<R: ChunkReader> Length for Shared<R> {
    fn len(&self) -> u64 {
        self.0.len()
    }
}

impl<R: ChunkReader> ChunkReader for Shared<R> {
    type T = R::T;

    fn get_read(&self, start: u64) -> Result<R::T, ParquetError> {
        self.0.get_read(start)
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        self.0.get_bytes(start, length)
    }
}

impl<R: ChunkReader + 'static> ParquetFile<R> {
    /// Opens a file, with a budget of its own.
    ///
    /// # Errors
    /// It is none, or is damaged.
    pub fn open(input: R) -> Result<Self, Refused> {
        let input = Shared(Arc::new(input));
        check_footer(&input)?;
        let file = guarded(|| Ok::<_, Refused>(SerializedFileReader::new(input.clone())?))?;
        let groups = file.metadata().row_groups();
        check_places(&input, groups)?;
        let rows = groups.iter().map(|group| group.num_rows().unsigned_abs()).fold(0, u64::saturating_add);
        let budget = Budget::default();
        budget.add_file(input.len(), rows)?;
        Ok(Self { input, file, rows, budget, held: Cell::new(0), batch_rows: Cell::new(1) })
    }

    /// Reads it with what others have left of `budget`.
    ///
    /// # Errors
    /// It has more rows than that.
    pub fn within(self, budget: &Budget) -> Result<Self, Refused> {
        budget.add_file(self.input.len(), self.rows)?;
        Ok(Self { budget: budget.clone(), ..self })
    }

    /// Reads a file again that was counted in `budget`.
    #[must_use]
    pub(crate) fn again_within(self, budget: &Budget) -> Self {
        Self { budget: budget.clone(), ..self }
    }

    /// What its time is counted in.
    pub(crate) fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Refuses groups once all that were asked for unpack to more than `bytes`, whatever its length.
    #[must_use]
    pub fn unpacking_at_most(self, bytes: u64) -> Self {
        self.budget.taken().unpacked_most = Some(bytes);
        self
    }

    /// Memory that reading the last group takes, bytes.
    pub fn held_bytes(&self) -> u64 {
        self.held.get()
    }

    /// Rows of the last group to decode together, at least 1: a batch holds all pages that its texts are in.
    pub fn batch_rows(&self) -> usize {
        self.batch_rows.get()
    }

    /// Rows of all its row groups.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// What it says of itself.
    pub fn metadata(&self) -> &ParquetMetaData {
        self.file.metadata()
    }

    /// The row group with this number, limited to the columns in `wanted`; `None` after the last.
    ///
    /// # Errors
    /// These columns would take too much memory or time, or are damaged.
    pub fn group(
        &self,
        number: usize,
        wanted: impl Fn(usize) -> bool,
    ) -> Result<Option<Box<dyn RowGroupReader + '_>>, Refused> {
        if number >= self.file.num_row_groups() {
            return Ok(None);
        }
        let group = self.file.get_row_group(number)?;
        let takes = check(&self.input, group.metadata(), wanted)?;
        self.held.set(takes.held);
        self.batch_rows.set(takes.batch_rows);
        self.budget.add_group(takes, group.metadata().num_rows().unsigned_abs())?;
        Ok(Some(group))
    }
}

/// The next values of a column, `count` at most: fewer at its end. `None` where a row has none; `always`: each row has one.
///
/// # Errors
/// The column is damaged.
pub fn next_values<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    count: usize,
    always: bool,
) -> Result<Vec<Option<T::T>>, Refused> {
    let (mut levels, mut values) = (Vec::new(), Vec::new());
    let mut records = 0;
    while records < count {
        let (more, _, _) = reader.read_records(count - records, (!always).then_some(&mut levels), None, &mut values)?;
        if more == 0 {
            break;
        }
        records += more;
    }
    let there = levels.iter().filter(|level| **level > 0).count();
    if if always { values.len() != records } else { levels.len() != records || there != values.len() } {
        return Err(Refused::Damaged);
    }
    let mut values = values.into_iter();
    if always {
        return Ok(values.map(Some).collect());
    }
    Ok(levels.into_iter().map(|level| if level > 0 { values.next() } else { None }).collect())
}

#[cfg(test)]
mod tests {
    use parquet::basic::{Compression, ZstdLevel};
    use parquet::data_type::{BoolType, ByteArray, ByteArrayType};
    use parquet::file::properties::{EnabledStatistics, WriterProperties};
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;

    use super::*;

    /// A column for each of `lengths`, with one page of so many bytes of texts, each of `text_bytes`.
    fn texts(lengths: &[usize], text_bytes: usize) -> Bytes {
        // A footer is as long as one of ours by the names.
        let name = "x".repeat(200);
        let columns: String = (0..lengths.len()).map(|nth| format!("REQUIRED BYTE_ARRAY {name}{nth};")).collect();
        let schema = parse_message_type(&format!("message texts {{ {columns} }}")).unwrap();
        let options = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_dictionary_enabled(false)
            .set_statistics_enabled(EnabledStatistics::None)
            .set_data_page_size_limit(1 << 30)
            .build();
        let mut out = Vec::new();
        let mut writer = SerializedFileWriter::new(&mut out, Arc::new(schema), Arc::new(options)).unwrap();
        let mut group = writer.next_row_group().unwrap();
        for length in lengths {
            let mut column = group.next_column().unwrap().unwrap();
            let texts = vec![ByteArray::from(vec![b'x'; text_bytes]); length / text_bytes];
            column.typed::<ByteArrayType>().write_batch(&texts, None, None).unwrap();
            column.close().unwrap();
        }
        group.close().unwrap();
        writer.close().unwrap();
        out.into()
    }

    /// They take as long as rows, and nearly nothing of the file.
    #[test]
    fn dictionaries_have_as_many_texts_as_the_file_may_have_rows() {
        let bytes = include_bytes!("../../../../fuzz/corpus/mesh_test_file/texts_of_nothing");
        let file = ParquetFile::open(Bytes::from_static(bytes)).unwrap();
        let refused = (0..file.metadata().num_row_groups()).find_map(|number| file.group(number, |_| true).err());
        assert!(matches!(refused, Some(Refused::Texts(4_800_000))), "{refused:?}");
    }

    /// Twice 40 MiB, in some kilobytes.
    #[test]
    fn a_short_file_has_short_pages_and_few() {
        let bytes = texts(&[40 << 20; 2], 10 << 10);
        assert!(bytes.len() < 100_000, "{}", bytes.len());
        let file = ParquetFile::open(bytes).unwrap();
        let refused = file.group(0, |_| true).map(drop).unwrap_err();
        assert!(matches!(refused, Refused::LongPage(bytes) if bytes > 80 << 20), "{refused:?}");
        let mut one_alone = (0..100).map(|_| file.group(0, |column| column == 0).map(drop));
        assert_eq!(one_alone.position(|read| matches!(read, Err(Refused::Unpacked(_)))), Some(25), "1 GiB");
    }

    /// Texts are parts of their pages, which are held for as long as they are.
    #[test]
    fn long_texts_are_decoded_few_at_a_time() {
        let rows = |text_bytes| {
            let file = ParquetFile::open(texts(&[8 << 20; 2], text_bytes)).unwrap();
            file.group(0, |_| true).map(|_| file.batch_rows()).map_err(|refused| refused.to_string())
        };
        assert_eq!(rows(1 << 10), Ok(4096));
        assert_eq!(rows(1 << 20), Ok(15), "two of 1 MiB each in a row");
        assert!(rows(4 << 20).unwrap_err().contains("pages of 8388616 bytes"));
        // Millions of rows that take nothing may stand beside a long text.
        let file = ParquetFile::open(texts(&[40 << 20], 1 << 20)).unwrap();
        let most = BATCHES_SURE + file.input.len() / BYTES_OF_A_BATCH;
        file.budget.taken().batches = most - 3;
        let mut groups = (0..2).map(|_| file.group(0, |_| true).map(drop));
        assert!(groups.next().unwrap().is_ok(), "40 rows, 31 of them together");
        let refused = groups.next().unwrap().unwrap_err();
        assert!(matches!(refused, Refused::Batches(batches) if batches == most + 1), "{refused:?}");
    }

    /// A folder may have thousands of small ones.
    #[test]
    fn files_that_are_read_together_have_one_budget() {
        // A footer is as long as one of ours by the name.
        let schema = format!("message bits {{ REQUIRED BOOLEAN {}; }}", "x".repeat(200));
        let schema = Arc::new(parse_message_type(&schema).unwrap());
        let zstd = Compression::ZSTD(ZstdLevel::default());
        let options = Arc::new(WriterProperties::builder().set_compression(zstd).build());
        let mut out = Vec::new();
        let mut writer = SerializedFileWriter::new(&mut out, schema, options).unwrap();
        let mut group = writer.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<BoolType>().write_batch(&vec![false; 3 << 20], None, None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
        writer.close().unwrap();
        let bits = Bytes::from(out);
        assert!(bits.len() < 100_000, "{}", bits.len());
        let budget = Budget::default();
        let open = |bytes: Bytes| ParquetFile::open(bytes).and_then(|file| file.within(&budget));
        drop(open(bits.clone()).unwrap());
        let refused = open(bits.clone()).unwrap_err();
        assert!(matches!(refused, Refused::Rows(rows) if rows == 6 << 20), "{refused:?}");
        assert!(ParquetFile::open(bits).is_ok(), "alone it is read");
        // What they unpack to, and the batches that it takes.
        let budget = Budget::default();
        let open = || ParquetFile::open(texts(&[40 << 20], 1 << 20)).unwrap().within(&budget).unwrap();
        assert!(open().group(0, |_| true).is_ok());
        budget.taken().batches = BATCHES_SURE + (1 << 20);
        assert!(matches!(open().group(0, |_| true).map(drop), Err(Refused::Batches(batches)) if batches > 1 << 20));
        budget.taken().unpacked = 1 << 30;
        assert!(matches!(open().group(0, |_| true).map(drop), Err(Refused::Unpacked(bytes)) if bytes > 1 << 30));
        assert!(budget.add_snippets(200 << 20) && !budget.add_snippets(200 << 20));
    }
}
