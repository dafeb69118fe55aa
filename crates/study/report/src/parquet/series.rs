//! What each flow did over time as a Parquet file: a row for each millisecond of a direction in which something went by.

use std::io::Write;

use longhaul_flows::Millisecond;
use parquet::data_type::{BoolType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::writer::SerializedFileWriter;

use crate::parquet::{ROW_GROUP, writer};

/// docs/reference/analyze-results.md tells what the columns mean.
const COLUMNS: &str = "message series {
    required int64 flow (integer(64, false));
    required boolean forward;
    required int64 at_ns (timestamp(nanos, true));
    required int64 payload_bytes;
    required int64 packets;
    required int64 retransmitted_bytes;
    required int64 sequence;
    optional int64 in_flight_bytes;
    optional int64 acknowledged;
    optional int64 window_bytes;
    optional int64 rtt_ns;
    optional int64 rate_1s_bps;
    required boolean in_gap;
}";

/// The file, and rows that were not written yet.
pub struct SeriesFile<W: Write + Send> {
    writer: SerializedFileWriter<W>,
    rows: Vec<(u64, bool, i64, Millisecond)>,
    /// The first that went wrong: there is nobody to tell before the end.
    error: Option<ParquetError>,
}

impl<W: Write + Send> SeriesFile<W> {
    /// Begins a file.
    ///
    /// # Errors
    /// Where `out` does not take what is written.
    pub fn new(out: W) -> Result<Self, ParquetError> {
        Ok(Self { writer: writer(out, COLUMNS)?, rows: Vec::with_capacity(ROW_GROUP), error: None })
    }

    /// Adds a row: what `flow` did in one direction in the millisecond that began at `at_ns` of the Unix epoch.
    pub fn push(&mut self, flow: u64, forward: bool, at_ns: i64, row: Millisecond) {
        self.rows.push((flow, forward, at_ns, row));
        if self.rows.len() == ROW_GROUP
            && let Err(error) = self.write()
        {
            self.error.get_or_insert(error);
        }
    }

    fn write(&mut self) -> Result<(), ParquetError> {
        let rows = std::mem::take(&mut self.rows);
        let mut group = self.writer.next_row_group()?;
        type Required = fn(&(u64, bool, i64, Millisecond)) -> i64;
        type Optional = fn(&(u64, bool, i64, Millisecond)) -> Option<i64>;
        let optional: [Optional; 5] = [
            |row| row.3.in_flight_bytes.map(|bytes| bytes as i64),
            |row| row.3.acknowledged.map(|bytes| bytes as i64),
            |row| row.3.window_bytes.map(|bytes| bytes as i64),
            |row| row.3.rtt_ns,
            |row| row.3.rate_1s_bps(row.2).map(|rate| rate as i64),
        ];
        let required: [Option<Required>; 7] = [
            Some(|row| row.0 as i64),
            None,
            Some(|row| row.2),
            Some(|row| row.3.payload_bytes as i64),
            Some(|row| row.3.packets.into()),
            Some(|row| row.3.retransmitted_bytes as i64),
            Some(|row| row.3.sequence as i64),
        ];
        for of in required {
            let Some(mut column) = group.next_column()? else { continue };
            match of {
                Some(of) => {
                    let values: Vec<i64> = rows.iter().map(of).collect();
                    column.typed::<Int64Type>().write_batch(&values, None, None)?;
                }
                None => {
                    let values: Vec<bool> = rows.iter().map(|row| row.1).collect();
                    column.typed::<BoolType>().write_batch(&values, None, None)?;
                }
            }
            column.close()?;
        }
        for of in optional {
            let Some(mut column) = group.next_column()? else { continue };
            let values: Vec<i64> = rows.iter().filter_map(of).collect();
            let there: Vec<i16> = rows.iter().map(|row| of(row).is_some().into()).collect();
            column.typed::<Int64Type>().write_batch(&values, Some(&there), None)?;
            column.close()?;
        }
        if let Some(mut column) = group.next_column()? {
            let values: Vec<bool> = rows.iter().map(|row| row.3.in_gap).collect();
            column.typed::<BoolType>().write_batch(&values, None, None)?;
            column.close()?;
        }
        group.close()?;
        Ok(())
    }

    /// Ends the file.
    ///
    /// # Errors
    /// The first that went wrong.
    pub fn finish(mut self) -> Result<(), ParquetError> {
        if !self.rows.is_empty() {
            self.write()?;
        }
        match self.error {
            Some(error) => Err(error),
            None => self.writer.close().map(drop),
        }
    }
}
