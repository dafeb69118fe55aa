//! Rows to one segment.

use std::io::Write;
use std::sync::Arc;

use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::data_type::{DataType, Int32Type, Int64Type};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;

use super::{ABOUT_KEY, About, COLUMNS, ProbeLogError, ProbeRow, SENT_QUANTUM_NS};

/// zstd's level: a segment a minute has time, and beyond it nothing gets smaller.
const ZSTD_LEVEL: i32 = 9;
/// Powers of two that a round trip may be rounded to, in nanoseconds: below the least no stamp of a host tells anything, and half of the
/// most is what a host's scheduling adds.
const QUANTA_OF_RTT_NS: [i64; 2] = [1 << 6, 1 << 13];
/// The same of the one-way difference, which has the clocks' offset in it and is read for what changes.
const QUANTA_OF_DIFFERENCE_NS: [i64; 2] = [1 << 6, 1 << 18];
/// Into how many quanta the variation of round trips is divided.
const PARTS_OF_RTT: u64 = 32;
/// The same of the one-way difference.
const PARTS_OF_DIFFERENCE: u64 = 16;

/// The columns of nanoseconds, rounded.
struct Rounded {
    sent: Vec<i64>,
    rtt: Vec<i64>,
    forward: Vec<i64>,
}

/// Writes a segment of `rows`, which are in the order of their numbers. Times are rounded to powers of two that follow from how much they
/// vary, so that a row takes as much space on any path; `about` says to which, whatever it said before.
///
/// # Errors
/// Where `out` does not take what is written.
pub fn write_segment(out: impl Write + Send, about: &About, rows: &[ProbeRow]) -> Result<(), ProbeLogError> {
    let column = |value: fn(&ProbeRow) -> Option<i64>| rows.iter().filter_map(value).collect::<Vec<i64>>();
    let (rtt, forward) = (column(|row| row.rtt_ns), column(|row| row.forward_ns));
    let rtt_quantum = quantum(&rtt, PARTS_OF_RTT, QUANTA_OF_RTT_NS);
    let difference_quantum = quantum(&forward, PARTS_OF_DIFFERENCE, QUANTA_OF_DIFFERENCE_NS);
    let rounded = Rounded {
        sent: rounded(column(|row| Some(row.sent_ns)), SENT_QUANTUM_NS),
        rtt: rounded(rtt, rtt_quantum),
        forward: rounded(forward, difference_quantum),
    };
    let about = About {
        quantum_ns: rtt_quantum,
        difference_quantum_ns: difference_quantum,
        sent_quantum_ns: SENT_QUANTUM_NS,
        ..about.clone()
    };
    let text = serde_json::to_string(&about).map_err(|error| std::io::Error::other(error.to_string()));
    let text = text.map_err(|error| ProbeLogError::File(ABOUT_KEY.into(), error))?;
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL)?))
        .set_statistics_enabled(EnabledStatistics::None)
        .set_offset_index_disabled(true)
        .set_max_row_group_row_count(Some(usize::MAX))
        .set_data_page_row_count_limit(usize::MAX)
        .set_key_value_metadata(Some(vec![KeyValue::new(ABOUT_KEY.to_owned(), text)]))
        .set_created_by(concat!("longhaul ", env!("CARGO_PKG_VERSION")).into());
    for (name, ..) in COLUMNS {
        let encoding = match name {
            // The quantum's zeros and the bytes that hardly change are then columns of their own, which zstd makes vanish.
            "rtt_ns" | "forward_ns" => Encoding::BYTE_STREAM_SPLIT,
            _ => Encoding::DELTA_BINARY_PACKED,
        };
        let path = ColumnPath::from(name);
        properties = properties.set_column_dictionary_enabled(path.clone(), false).set_column_encoding(path, encoding);
    }
    let columns = COLUMNS.map(|(_, always, kind)| format!("{} {kind};", if always { "required" } else { "optional" }));
    let schema = parse_message_type(&format!("message probes {{ {} }}", columns.concat()))?;
    let mut writer = SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties.build()))?;
    let mut group = writer.next_row_group()?;
    // Numbers keep their bits: the schema says which have no sign.
    let there = |value: fn(&ProbeRow) -> bool| rows.iter().map(|row| value(row).into()).collect::<Vec<i16>>();
    let sequences: Vec<i64> = rows.iter().map(|row| row.sequence as i64).collect();
    put::<Int64Type>(&mut group, &sequences, None)?;
    put::<Int32Type>(&mut group, &rows.iter().map(|row| row.payload_bytes as i32).collect::<Vec<_>>(), None)?;
    put::<Int64Type>(&mut group, &rounded.sent, None)?;
    put::<Int64Type>(&mut group, &rounded.rtt, Some(&there(|row| row.rtt_ns.is_some())))?;
    put::<Int64Type>(&mut group, &rounded.forward, Some(&there(|row| row.forward_ns.is_some())))?;
    put::<Int32Type>(&mut group, &rows.iter().map(|row| row.copies as i32).collect::<Vec<_>>(), None)?;
    put::<Int32Type>(&mut group, &rows.iter().map(|row| row.late_by as i32).collect::<Vec<_>>(), None)?;
    group.close()?;
    writer.close()?;
    Ok(())
}

/// Each of `values` to the nearest multiple of `quantum`.
fn rounded(values: Vec<i64>, quantum: i64) -> Vec<i64> {
    let round = |ns: i64| ns.saturating_add(quantum / 2).div_euclid(quantum).saturating_mul(quantum);
    values.into_iter().map(round).collect()
}

/// The power of two that divides the variation of `values` into `parts`: the distance of the 10th and the 90th percentile of what lies
/// between one value and the next, which a drifting clock does not change.
fn quantum(values: &[i64], parts: u64, [least, most]: [i64; 2]) -> i64 {
    let mut steps: Vec<i64> = values.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).collect();
    steps.sort_unstable();
    let at = |tenths: usize| steps.get(steps.len() * tenths / 10).copied().unwrap_or(0);
    let variation = at(9).abs_diff(at(1)) / parts;
    let power = variation.checked_ilog2().map_or(0, |power| 1_i64 << power.min(62));
    power.clamp(least, most)
}

fn put<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, impl Write + Send>,
    values: &[T::T],
    there: Option<&[i16]>,
) -> Result<(), ProbeLogError> {
    let Some(mut column) = group.next_column()? else { return Ok(()) };
    column.typed::<T>().write_batch(values, there, None)?;
    Ok(column.close()?)
}
