//! A table that another host wrote, read and written again: what comes out has longhaul's columns, whoever made what went in.
//!
//! Columns that this longhaul does not know are left out, and optional ones that the file lacks are null: files of older and newer hosts can be read
//! together.

use std::sync::Arc;

use bytes::Bytes;
use longhaul_captures::parquet_file::{ParquetFile, next_values};
use longhaul_captures::parquet_limits::{Refused, guarded};
use parquet::basic::Type;
use parquet::column::reader::{ColumnReader, get_typed_column_reader};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::reader::RowGroupReader;
use parquet::file::writer::SerializedRowGroupWriter;
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::{ColumnDescriptor, SchemaDescriptor};

use crate::parquet::{losses, samples, writer};

/// Our files have two row groups at most. Many small ones take more bytes than their rows.
const GROUPS_MOST: usize = 16;
/// Our files unpack to some megabytes.
const UNPACKED_MOST: u64 = 64 << 20;
/// The longest text is a kernel's drop reason.
const TEXT_BYTES_MOST: usize = 200;

/// What a file has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Table {
    /// As [`super::write_losses`] writes it.
    Losses,
    /// As [`super::write_samples`] writes it.
    Samples,
}

impl Table {
    /// A list of losses has 10,000 runs at most; samples are some thousands.
    fn rows_most(self) -> u64 {
        match self {
            Self::Losses => 10_000,
            Self::Samples => 20_000,
        }
    }

    fn columns(self) -> String {
        match self {
            Self::Losses => losses::COLUMNS.to_owned(),
            Self::Samples => samples::columns(),
        }
    }
}

/// Why a file is not written again.
#[derive(Debug, thiserror::Error)]
pub enum RewriteError {
    /// It is damaged, or takes too much memory.
    #[error("{0}")]
    Refused(#[from] Refused),
    /// The library says so.
    #[error("{0}")]
    Parquet(#[from] ParquetError),
    /// A column is missing, or is none of ours.
    #[error("it has no column {0} as longhaul writes it")]
    Column(String),
    /// It has no rows, too many, or too many groups of them.
    #[error(
        "it has {rows} rows in {groups} groups, where 1 to {most} rows in {GROUPS_MOST} groups at most are allowed"
    )]
    Rows {
        /// Rows.
        rows: u64,
        /// Row groups.
        groups: usize,
        /// Rows that are allowed.
        most: u64,
    },
    /// A text is long, or has other letters than those of ASCII.
    #[error("it has a text that is not a word or name")]
    Text,
}

/// Reads the Parquet file `file`, which may be hostile, and writes its rows again. It takes 256 MiB of memory at most, and the time that
/// 64 MiB take to unpack.
///
/// # Errors
/// [`RewriteError`].
pub fn rewrite(table: Table, file: Bytes) -> Result<Vec<u8>, RewriteError> {
    guarded(|| rewritten(table, file))
}

fn rewritten(table: Table, file: Bytes) -> Result<Vec<u8>, RewriteError> {
    let file = ParquetFile::open(file)?.unpacking_at_most(UNPACKED_MOST);
    let (rows, groups) = (file.rows(), file.metadata().num_row_groups());
    if groups > GROUPS_MOST || !(1..=table.rows_most()).contains(&rows) {
        return Err(RewriteError::Rows { rows, groups, most: table.rows_most() });
    }
    let columns = table.columns();
    let own = SchemaDescriptor::new(Arc::new(parse_message_type(&columns)?));
    let theirs = file.metadata().file_metadata().schema_descr_ptr();
    let places: Vec<Option<usize>> = own.columns().iter().map(|own| place(own, &theirs)).collect::<Result<_, _>>()?;
    let mut out = Vec::new();
    let mut writer = writer(&mut out, &columns)?;
    for number in 0.. {
        let Some(group) = file.group(number, |at| places.contains(&Some(at)))? else { break };
        if group.metadata().num_rows() > 0 {
            let mut to = writer.next_row_group()?;
            for (own, place) in own.columns().iter().zip(&places) {
                copy(&*group, place.map(|place| (place, theirs.column(place).max_def_level() == 0)), own, &mut to)?;
            }
            to.close()?;
        }
    }
    writer.close()?;
    Ok(out)
}

/// Where the file has this column of ours; `None`: it lacks an optional one.
fn place(own: &ColumnDescriptor, theirs: &SchemaDescriptor) -> Result<Option<usize>, RewriteError> {
    let is_same = |column: &ColumnDescriptor| {
        column.path() == own.path()
            && column.physical_type() == own.physical_type()
            && column.max_rep_level() == 0
            && column.max_def_level() <= 1
    };
    match theirs.columns().iter().position(|column| column.path() == own.path()) {
        Some(place) if is_same(&theirs.column(place)) => Ok(Some(place)),
        None if own.max_def_level() > 0 => Ok(None),
        _ => Err(RewriteError::Column(own.path().string())),
    }
}

type Group<'a> = dyn RowGroupReader + 'a;

/// Copies a column of a group; `from`: where it is, and whether each row has a value.
fn copy<W: std::io::Write + Send>(
    group: &Group<'_>,
    from: Option<(usize, bool)>,
    own: &ColumnDescriptor,
    to: &mut SerializedRowGroupWriter<'_, W>,
) -> Result<(), RewriteError> {
    let rows = usize::try_from(group.metadata().num_rows()).map_err(|_| Refused::Damaged)?;
    let reader = from.map(|(place, always)| Ok::<_, ParquetError>((group.get_column_reader(place)?, always)));
    let reader = reader.transpose()?;
    let is_optional = own.max_def_level() > 0;
    match own.physical_type() {
        Type::INT32 => typed::<Int32Type, _>(reader, (rows, is_optional), |_| true, to),
        Type::INT64 => typed::<Int64Type, _>(reader, (rows, is_optional), |_| true, to),
        Type::BYTE_ARRAY => typed::<ByteArrayType, _>(reader, (rows, is_optional), is_text, to),
        _ => Err(RewriteError::Column(own.path().string())),
    }
}

fn typed<T: DataType, W: std::io::Write + Send>(
    reader: Option<(ColumnReader, bool)>,
    (rows, is_optional): (usize, bool),
    is_sound: impl Fn(&T::T) -> bool,
    to: &mut SerializedRowGroupWriter<'_, W>,
) -> Result<(), RewriteError> {
    let values = match reader {
        Some((reader, always)) => next_values(&mut get_typed_column_reader::<T>(reader), rows, always)?,
        None => vec![None; rows],
    };
    if values.len() != rows || (!is_optional && values.iter().any(Option::is_none)) {
        return Err(Refused::Damaged.into());
    }
    let there: Vec<i16> = values.iter().map(|value| value.is_some().into()).collect();
    let values: Vec<T::T> = values.into_iter().flatten().collect();
    if !values.iter().all(is_sound) {
        return Err(RewriteError::Text);
    }
    let Some(mut column) = to.next_column()? else { return Ok(()) };
    column.typed::<T>().write_batch(&values, is_optional.then_some(&there), None)?;
    Ok(column.close()?)
}

/// A text that is printed on a terminal one day: names, reasons and times are ASCII.
fn is_text(text: &ByteArray) -> bool {
    text.len() <= TEXT_BYTES_MOST && text.data().iter().all(|letter| letter.is_ascii_graphic() || *letter == b' ')
}

#[cfg(test)]
mod tests {
    use longhaul_result::Location;
    use longhaul_tcp::{Sample, Series, TcpInfo};
    use longhaul_udp::locate::Loss;
    use parquet::basic::{Compression, ZstdLevel};
    use parquet::column::writer::ColumnWriter;
    use parquet::file::properties::{EnabledStatistics, WriterProperties};
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::file::writer::SerializedFileWriter;

    use super::*;
    use crate::parquet::{End, FlowSamples, write_losses, write_samples};

    fn losses(count: u64, reason: &'static str) -> Bytes {
        let loss = |at: u64| Loss {
            stream: 0,
            first_sequence: at * 10,
            packets: at % 7 + 1,
            unit_packets: 1,
            location: Location::ALL[at as usize % 12],
            reason: reason.into(),
        };
        let mut out = Vec::new();
        write_losses(&mut out, (0..count).map(loss)).unwrap();
        out.into()
    }

    fn tcp() -> Bytes {
        let mut series = Series::new(100);
        for at in 0..50_u8 {
            // An older kernel's, so that some columns are null.
            let mut bytes = [0; 168];
            bytes[68] = 40 + at;
            series.push(Sample { at_ns: u64::from(at), congestion: 0, info: TcpInfo::parse(&bytes) });
        }
        let flow = FlowSamples { end: "sender", direction: "forward", stream: 0, congestion: &[], series };
        let mut out = Vec::new();
        write_samples(&mut out, &[End { flows: vec![flow], unix_offset_ns: None }]).unwrap();
        out.into()
    }

    fn rows(file: Vec<u8>) -> Vec<String> {
        let reader = SerializedFileReader::new(Bytes::from(file)).unwrap();
        reader.get_row_iter(None).unwrap().map(|row| row.unwrap().to_string()).collect()
    }

    /// A file of one row with these columns of texts.
    fn other(columns: &str) -> Bytes {
        let mut out = Vec::new();
        let mut writer = writer(&mut out, &format!("message other {{ {columns} }}")).unwrap();
        let mut group = writer.next_row_group().unwrap();
        while let Some(mut column) = group.next_column().unwrap() {
            column.typed::<ByteArrayType>().write_batch(&[ByteArray::from("x")], None, None).unwrap();
            column.close().unwrap();
        }
        group.close().unwrap();
        writer.close().unwrap();
        out.into()
    }

    #[test]
    fn rows_are_those_that_were_there() {
        for (table, file, count) in [(Table::Losses, losses(3_000, "full"), 3_000), (Table::Samples, tcp(), 50)] {
            let again = rows(rewrite(table, file.clone()).unwrap());
            assert_eq!((again.len(), &again), (count, &rows(file.to_vec())), "{table:?}");
        }
    }

    #[test]
    fn what_longhaul_does_not_write_is_refused() {
        let why = |table, file| rewrite(table, file).unwrap_err().to_string();
        assert!(why(Table::Losses, Bytes::from_static(b"PAR1")).contains("damaged"));
        assert!(why(Table::Losses, tcp()).contains("no column"));
        assert!(why(Table::Samples, losses(5, "full")).contains("no column"));
        let texts = ["stream", "first_sequence", "packets", "unit_packets", "location", "reason"];
        let texts = texts.map(|name| format!("required byte_array {name} (string);")).concat();
        assert!(why(Table::Losses, other(&texts)).contains("no column stream"));
        assert!(why(Table::Losses, losses(0, "")).contains("0 rows"));
        assert!(why(Table::Losses, losses(10_001, "")).contains("10001 rows"));
        for reason in ["\u{1b}[2J", "two\nlines", "\u{9b}1m", "\u{202e}"] {
            assert!(why(Table::Losses, losses(5, reason)).contains("not a word"), "{reason:?}");
        }
    }

    /// Each two of a hundred rows are a page of their own of 2 MB, which takes some hundred bytes: such a file may be half a megabyte long and unpack
    /// to gigabytes.
    #[test]
    fn what_takes_long_to_unpack_is_refused() {
        let columns = Table::Losses.columns();
        let options = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_dictionary_enabled(false)
            .set_statistics_enabled(EnabledStatistics::None)
            .set_write_batch_size(1)
            .build();
        let (mut out, schema) = (Vec::new(), parse_message_type(&columns).unwrap());
        let mut writer = SerializedFileWriter::new(&mut out, Arc::new(schema), Arc::new(options)).unwrap();
        let mut group = writer.next_row_group().unwrap();
        let long = vec![ByteArray::from(vec![b'x'; 1_000_000]); 100];
        while let Some(mut column) = group.next_column().unwrap() {
            match column.untyped() {
                ColumnWriter::Int32ColumnWriter(to) => to.write_batch(&[1; 100], None, None).unwrap(),
                ColumnWriter::Int64ColumnWriter(to) => to.write_batch(&[1; 100], None, None).unwrap(),
                ColumnWriter::ByteArrayColumnWriter(to) => to.write_batch(&long, None, None).unwrap(),
                _ => unreachable!("losses have no other columns"),
            };
            column.close().unwrap();
        }
        group.close().unwrap();
        writer.close().unwrap();
        assert!(out.len() < 100_000, "{}", out.len());
        let refused = rewrite(Table::Losses, out.into()).unwrap_err().to_string();
        assert!(refused.contains("unpack to"), "{refused}");
    }

    /// Each byte of a file changed, and each end cut off: it is read or refused, and what is written of it is whole.
    #[test]
    fn damage_is_refused_or_makes_a_whole_file() {
        let file = losses(20, "full");
        let (mut read, mut refused) = (0, 0);
        let mut try_one = |bytes: Vec<u8>| match rewrite(Table::Losses, bytes.into()) {
            Ok(again) => read += usize::from(rows(again).len() <= 10_000),
            Err(_) => refused += 1,
        };
        for at in 0..file.len() {
            for change in [1, 0x80, 0xff] {
                let mut bytes = file.to_vec();
                bytes[at] ^= change;
                try_one(bytes);
            }
            try_one(file[..at].to_vec());
        }
        assert_eq!(read + refused, file.len() * 4);
        assert!(refused > file.len() * 2, "{read} read, {refused} refused");
    }
}
