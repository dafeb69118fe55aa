//! A `tcp` result as a measurement: the kernel's round trips over time, and its count of lost segments.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use longhaul_captures::parquet_file::{ParquetFile, next_values};
use longhaul_captures::parquet_limits::{Refused, guarded};
use longhaul_profile::{LossesSeen, Probe, Probes, probes_most};
use longhaul_tcp::fields;
use longhaul_units::regular_file;
use parquet::column::reader::ColumnReader;
use parquet::data_type::ByteArray;
use parquet::file::reader::Length;
use parquet::schema::types::ColumnDescriptor;

use crate::cmd::profile::measured::{Measured, SAMPLES, name_of};
use crate::output::Failure;

/// A full segment of a path of 1,500 bytes.
const SEGMENT_FRAME: u32 = 1_514;
/// A test has 128 streams in two directions at most.
const STREAMS_MOST: usize = 1024;
/// A row of ours takes dozens of bytes. Of a file that says to have many more the rest is not read: each takes memory.
const ROWS_OF_A_BYTE: usize = 4;
/// `forward`, `backward`.
const DIRECTION_BYTES_MOST: usize = 16;
/// What is read of a row.
const COLUMNS: [&str; 7] =
    ["end", "direction", "stream", "at_ns", fields::RTT.name, fields::DATA_SEGS_OUT.name, fields::TOTAL_RETRANS.name];

/// A column's reader, and whether each row has a value; `None` where the file has no such column.
type Column = Option<(ColumnReader, bool)>;

/// What the sender's kernel knew of a stream.
#[derive(Default)]
struct Stream {
    /// When, and the round trip, nanoseconds: where it differs from the one before.
    rtts: Vec<(i64, u64)>,
    latest_ns: u64,
    segments: u64,
    retransmitted: u64,
}

/// By direction and number.
type Streams = BTreeMap<(String, u64), Stream>;

/// Reads the folder of `longhaul tcp -o`.
pub(super) fn read(folder: &Path) -> Result<Measured, Failure> {
    let file = folder.join(SAMPLES);
    let unreadable = |error: &dyn std::fmt::Display| Failure::new("unreadable", format!("{}: {error}", file.display()));
    let opened = regular_file::open(&file).map_err(|error| unreadable(&error))?;
    let (mut streams, is_whole) = guarded(|| streams(opened)).map_err(|error| unreadable(&error))?;
    // As many as there are at once: a vector that grows takes twice as much.
    let mut rows: Vec<Probe> = Vec::with_capacity(streams.values().map(|stream| stream.rtts.len()).sum());
    for (at_ns, rtt_ns) in streams.values_mut().flat_map(|stream| std::mem::take(&mut stream.rtts)) {
        let sent_ns = at_ns.saturating_sub_unsigned(rtt_ns);
        rows.push(Probe { sent_ns, rtt_ns: Some(rtt_ns), resolution_ns: 1_000, ..Probe::default() });
    }
    if rows.is_empty() {
        let failure = Failure::new("no_round_trips", format!("{}: no samples of a sender", file.display()));
        return Err(failure.remedy("give the folder of longhaul tcp -o"));
    }
    rows.sort_by_key(|row| row.sent_ns);
    let [segments, lost] = [|stream: &Stream| stream.segments, |stream: &Stream| stream.retransmitted]
        .map(|of| streams.values().map(of).fold(0, u64::saturating_add));
    let mut notes = vec![
        "how fast delay varies: the kernel smooths its round trips over some eight of them, so jitter is larger than written".to_owned(),
        "how much of the delay is a queue that the test filled itself: all of it is written as the path's".into(),
        "reordering and duplicates".into(),
    ];
    if !is_whole {
        notes.push("the samples that followed: the file has more than are read".into());
    }
    let runs = match lost {
        0 => vec![(segments, 0)],
        _ => {
            notes.push(
                "in which runs packets were lost: the kernel counts retransmitted segments, needless ones too".into(),
            );
            alone(segments, lost)
        }
    };
    let span = rows.last().map_or(0, |last| last.sent_ns.abs_diff(rows[0].sent_ns));
    let losses = Some(LossesSeen { runs, apart_ns: span / segments.max(1) });
    let name = name_of(folder);
    let probes = Probes { rows, losses, frame_bytes: SEGMENT_FRAME, notes, ..Probes::default() };
    Ok(Measured { probes, source: format!("{name}, longhaul tcp"), name })
}

/// `lost` of `segments`, each alone.
fn alone(segments: u64, lost: u64) -> Vec<(u64, u64)> {
    const MOST: u64 = 1 << 20;
    let runs = lost.min(MOST);
    let passed = segments.saturating_sub(lost) / runs.max(1);
    vec![(passed, 1); runs as usize]
}

/// The streams of a file, of as many rows as are read, and whether that is all of it.
fn streams(opened: File) -> Result<(Streams, bool), Refused> {
    let bytes = opened.len();
    let file = ParquetFile::open(opened)?;
    let schema = file.metadata().file_metadata().schema_descr_ptr();
    let places = COLUMNS.map(|name| {
        let is_flat = |column: &ColumnDescriptor| column.max_rep_level() == 0 && column.max_def_level() <= 1;
        schema.columns().iter().position(|column| column.path().string() == name && is_flat(column))
    });
    let (mut streams, mut left) =
        (Streams::new(), probes_most(bytes).min((bytes as usize).saturating_mul(ROWS_OF_A_BYTE)));
    for number in 0.. {
        let Some(group) = file.group(number, |place| places.contains(&Some(place)))? else { break };
        let open = |place: usize| {
            Ok::<_, Refused>((group.get_column_reader(place)?, schema.column(place).max_def_level() == 0))
        };
        let mut columns = Vec::new();
        for place in places {
            columns.push(place.map(open).transpose()?);
        }
        if let Ok(columns) = columns.try_into() {
            take(columns, file.batch_rows(), &mut left, &mut streams)?;
        }
    }
    Ok((streams, left > 0))
}

/// Adds a group of rows, `left` at the most, of which `batch_rows` are decoded together.
fn take(
    columns: [Column; COLUMNS.len()],
    batch_rows: usize,
    left: &mut usize,
    streams: &mut Streams,
) -> Result<(), Refused> {
    let [mut end, mut direction, mut stream, mut at, mut rtt, mut segments, mut retransmitted] = columns;
    loop {
        let rows = batch_rows.min(*left);
        let [ends, directions] = [texts(&mut end, rows)?, texts(&mut direction, rows)?];
        if ends.is_empty() {
            return Ok(());
        }
        *left -= ends.len();
        let [stream, at, rtt] = [numbers(&mut stream, rows)?, numbers(&mut at, rows)?, numbers(&mut rtt, rows)?];
        let [segments, retransmitted] = [numbers(&mut segments, rows)?, numbers(&mut retransmitted, rows)?];
        let of = |column: &[Option<u64>], row: usize| column.get(row).copied().flatten();
        for (row, (end, direction)) in ends.iter().zip(directions).enumerate() {
            if end.data() != b"sender" {
                continue;
            }
            let direction =
                String::from_utf8_lossy(&direction.data()[..direction.len().min(DIRECTION_BYTES_MOST)]).into();
            let stream = streams.entry((direction, of(&stream, row).unwrap_or_default())).or_default();
            let at_ns = of(&at, row).and_then(|at| i64::try_from(at).ok()).unwrap_or_default();
            let rtt_us = of(&rtt, row).filter(|rtt| *rtt > 0);
            // A value that stays is the same sample seen again.
            let new = rtt_us.map(|rtt| rtt.saturating_mul(1_000)).filter(|rtt| *rtt != stream.latest_ns);
            if let Some(rtt_ns) = new {
                stream.rtts.push((at_ns, rtt_ns));
                stream.latest_ns = rtt_ns;
            }
            stream.segments = stream.segments.max(of(&segments, row).unwrap_or_default());
            stream.retransmitted = stream.retransmitted.max(of(&retransmitted, row).unwrap_or_default());
        }
        if streams.len() > STREAMS_MOST {
            return Err(Refused::Damaged);
        }
    }
}

/// The next `rows` of a column of texts, fewer at its end; none of a column that is missing or of another kind.
fn texts(column: &mut Column, rows: usize) -> Result<Vec<ByteArray>, Refused> {
    let Some((ColumnReader::ByteArrayColumnReader(reader), always)) = column else { return Ok(Vec::new()) };
    let values = next_values(reader, rows, *always)?.into_iter();
    Ok(values.map(|value| value.unwrap_or_else(|| ByteArray::from(Vec::new()))).collect())
}

/// The same of a column of unsigned numbers.
fn numbers(column: &mut Column, rows: usize) -> Result<Vec<Option<u64>>, Refused> {
    Ok(match column {
        Some((ColumnReader::Int32ColumnReader(reader), always)) => {
            let values = next_values(reader, rows, *always)?.into_iter();
            values.map(|value| value.map(|value| u64::from(value.cast_unsigned()))).collect()
        }
        Some((ColumnReader::Int64ColumnReader(reader), always)) => {
            let values = next_values(reader, rows, *always)?.into_iter();
            values.map(|value| value.map(i64::cast_unsigned)).collect()
        }
        _ => Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parquet::data_type::{ByteArrayType, Int64Type};
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;

    use super::*;

    /// A column of two values in turn takes a bit a row, and one of one value nothing: a few bytes stand for many rows.
    #[test]
    fn a_file_has_no_more_rows_than_its_length_has_room_for() {
        let rows = 1_000_000;
        let path = std::env::temp_dir().join(format!("longhaul-samples-{}.parquet", std::process::id()));
        let schema = format!(
            "message samples {{ REQUIRED BYTE_ARRAY end; REQUIRED BYTE_ARRAY direction; REQUIRED INT64 {}; }}",
            fields::RTT.name
        );
        let schema = Arc::new(parse_message_type(&schema).unwrap());
        let options = Arc::new(WriterProperties::builder().build());
        let mut writer = SerializedFileWriter::new(File::create(&path).unwrap(), schema, options).unwrap();
        let mut group = writer.next_row_group().unwrap();
        for name in ["sender", "forward"] {
            let mut column = group.next_column().unwrap().unwrap();
            let values = vec![ByteArray::from(name); rows];
            column.typed::<ByteArrayType>().write_batch(&values, None, None).unwrap();
            column.close().unwrap();
        }
        let mut column = group.next_column().unwrap().unwrap();
        let values: Vec<i64> = (0..rows).map(|row| 1_000 + row as i64 % 2).collect();
        column.typed::<Int64Type>().write_batch(&values, None, None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
        writer.close().unwrap();

        let bytes = std::fs::metadata(&path).unwrap().len() as usize;
        let (streams, is_whole) = streams(File::open(&path).unwrap()).unwrap();
        std::fs::remove_file(&path).unwrap();
        let taken = streams[&("forward".to_owned(), 0)].rtts.len();
        assert_eq!(taken, bytes * ROWS_OF_A_BYTE, "of {rows} rows in {bytes} bytes");
        assert!(taken < rows && !is_whole, "{bytes} bytes");
    }
}
