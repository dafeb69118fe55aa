//! A `tcp` result as a measurement: the kernel's round trips over time, and its count of lost segments.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use longhaul_profile::{LossesSeen, PROBES_MAX, Probe, Probes};
use longhaul_tcp::fields;
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};

use crate::cmd::profile::measured::{Measured, SAMPLES, name_of};
use crate::output::Failure;

/// A full segment of a path of 1,500 bytes.
const SEGMENT_FRAME: u32 = 1_514;
/// Rows that are decoded together.
const BATCH_ROWS: usize = 4_096;

/// What the sender's kernel knew of a stream.
#[derive(Default)]
struct Stream {
    rtts: Vec<(i64, u64)>,
    segments: u64,
    retransmitted: u64,
}

/// By direction and number.
type Streams = BTreeMap<(String, u64), Stream>;

/// Reads the folder of `longhaul tcp -o`.
pub(super) fn read(folder: &Path) -> Result<Measured, Failure> {
    let file = folder.join(SAMPLES);
    let unreadable = |error: &dyn std::fmt::Display| Failure::new("unreadable", format!("{}: {error}", file.display()));
    let opened = File::open(&file).map_err(|error| unreadable(&error))?;
    let reader = SerializedFileReader::new(opened).map_err(|error| unreadable(&error))?;
    let mut streams = Streams::new();
    let mut left = PROBES_MAX;
    for number in 0..reader.num_row_groups() {
        let group = reader.get_row_group(number).map_err(|error| unreadable(&error))?;
        take(&*group, &mut left, &mut streams).map_err(|error| unreadable(&error))?;
    }
    let mut rows: Vec<Probe> = Vec::new();
    for stream in streams.values() {
        // A value that stays is the same sample seen again.
        let mut before = None;
        for &(at_ns, rtt_ns) in &stream.rtts {
            if before.replace(rtt_ns) != Some(rtt_ns) {
                let sent_ns = at_ns.saturating_sub_unsigned(rtt_ns);
                rows.push(Probe { sent_ns, rtt_ns: Some(rtt_ns), resolution_ns: 1_000, ..Probe::default() });
            }
        }
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

/// Adds a group of rows, `left` at the most.
fn take(group: &dyn RowGroupReader, left: &mut usize, streams: &mut Streams) -> Result<(), ParquetError> {
    let schema = group.metadata().schema_descr_ptr();
    let open = |name: &str| {
        let place = schema.columns().iter().position(|column| column.path().string() == name);
        place.map(|place| group.get_column_reader(place)).transpose()
    };
    let [mut end, mut direction] = [open("end")?, open("direction")?];
    let [mut stream, mut at, mut rtt, mut segments, mut retransmitted] = [
        open("stream")?,
        open("at_ns")?,
        open(fields::RTT.name)?,
        open(fields::DATA_SEGS_OUT.name)?,
        open(fields::TOTAL_RETRANS.name)?,
    ];
    loop {
        let rows = BATCH_ROWS.min(*left);
        let [ends, directions] = [texts(end.as_mut(), rows)?, texts(direction.as_mut(), rows)?];
        if ends.is_empty() {
            return Ok(());
        }
        *left -= ends.len();
        let numbers = |column: &mut Option<ColumnReader>| numbers(column.as_mut(), rows);
        let [stream, at, rtt] = [numbers(&mut stream)?, numbers(&mut at)?, numbers(&mut rtt)?];
        let [segments, retransmitted] = [numbers(&mut segments)?, numbers(&mut retransmitted)?];
        let of = |column: &[Option<u64>], row: usize| column.get(row).copied().flatten();
        for (row, direction) in
            directions.into_iter().enumerate().filter(|(row, _)| ends.get(*row).is_some_and(|end| end == "sender"))
        {
            let stream = streams.entry((direction, of(&stream, row).unwrap_or_default())).or_default();
            let at_ns = of(&at, row).and_then(|at| i64::try_from(at).ok()).unwrap_or_default();
            let rtt_us = of(&rtt, row).filter(|rtt| *rtt > 0);
            stream.rtts.extend(rtt_us.map(|rtt| (at_ns, rtt.saturating_mul(1_000))));
            stream.segments = stream.segments.max(of(&segments, row).unwrap_or_default());
            stream.retransmitted = stream.retransmitted.max(of(&retransmitted, row).unwrap_or_default());
        }
    }
}

/// The next `rows` of a column of texts, fewer at its end; none of a column that is missing or of another kind.
fn texts(column: Option<&mut ColumnReader>, rows: usize) -> Result<Vec<String>, ParquetError> {
    let Some(ColumnReader::ByteArrayColumnReader(reader)) = column else { return Ok(Vec::new()) };
    let text = |value: Option<parquet::data_type::ByteArray>| {
        value.map_or_else(String::new, |bytes| String::from_utf8_lossy(bytes.data()).into_owned())
    };
    Ok(values(reader, rows)?.into_iter().map(text).collect())
}

/// The same of a column of unsigned numbers.
fn numbers(column: Option<&mut ColumnReader>, rows: usize) -> Result<Vec<Option<u64>>, ParquetError> {
    Ok(match column {
        Some(ColumnReader::Int32ColumnReader(reader)) => {
            let values = values::<Int32Type>(reader, rows)?.into_iter();
            values.map(|value| value.map(|value| u64::from(value.cast_unsigned()))).collect()
        }
        Some(ColumnReader::Int64ColumnReader(reader)) => {
            values::<Int64Type>(reader, rows)?.into_iter().map(|value| value.map(i64::cast_unsigned)).collect()
        }
        _ => Vec::new(),
    })
}

fn values<T: DataType>(reader: &mut ColumnReaderImpl<T>, rows: usize) -> Result<Vec<Option<T::T>>, ParquetError> {
    let (mut levels, mut values) = (Vec::new(), Vec::new());
    let mut records = 0;
    while records < rows {
        let (more, _, _) = reader.read_records(rows - records, Some(&mut levels), None, &mut values)?;
        if more == 0 {
            break;
        }
        records += more;
    }
    // A column that always has a value has no levels.
    let mut values = values.into_iter();
    if levels.is_empty() {
        return Ok(values.map(Some).collect());
    }
    Ok(levels.into_iter().map(|level| if level > 0 { values.next() } else { None }).collect())
}
