//! The delay of each packet as a Parquet file: a row for each that passed both points.

use std::io::Write;

use longhaul_flows::compare::Reached;
use parquet::data_type::{BoolType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::writer::SerializedFileWriter;

use crate::parquet::{ROW_GROUP, writer};

/// docs/reference/compare-results.md tells what the columns mean.
const COLUMNS: &str = "message delays {
    required int64 path;
    required int64 sequence;
    required int64 a_ns (timestamp(nanos, true));
    required int64 b_ns (timestamp(nanos, true));
    required double delay_ns;
    required boolean after_gap;
}";

/// The file, and rows that were not written yet.
pub struct DelayFile<W: Write + Send> {
    writer: SerializedFileWriter<W>,
    rows: Vec<Reached>,
    /// The first that went wrong: there is nobody to tell before the end.
    error: Option<ParquetError>,
}

impl<W: Write + Send> DelayFile<W> {
    /// Begins a file.
    ///
    /// # Errors
    /// Where `out` does not take what is written.
    pub fn new(out: W) -> Result<Self, ParquetError> {
        Ok(Self { writer: writer(out, COLUMNS)?, rows: Vec::with_capacity(ROW_GROUP), error: None })
    }

    /// Adds a row.
    pub fn push(&mut self, row: Reached) {
        self.rows.push(row);
        if self.rows.len() == ROW_GROUP
            && let Err(error) = self.write()
        {
            self.error.get_or_insert(error);
        }
    }

    fn write(&mut self) -> Result<(), ParquetError> {
        let rows = &self.rows;
        let mut group = self.writer.next_row_group()?;
        let of: [fn(&Reached) -> i64; 4] =
            [|row| row.path.into(), |row| row.sequence as i64, |row| row.a_ns, |row| row.b_ns];
        for of in of {
            let Some(mut column) = group.next_column()? else { continue };
            let values: Vec<i64> = rows.iter().map(of).collect();
            column.typed::<Int64Type>().write_batch(&values, None, None)?;
            column.close()?;
        }
        if let Some(mut column) = group.next_column()? {
            let values: Vec<f64> = rows.iter().map(|row| row.delay_ns).collect();
            column.typed::<DoubleType>().write_batch(&values, None, None)?;
            column.close()?;
        }
        if let Some(mut column) = group.next_column()? {
            let values: Vec<bool> = rows.iter().map(|row| row.after_gap).collect();
            column.typed::<BoolType>().write_batch(&values, None, None)?;
            column.close()?;
        }
        group.close()?;
        self.rows.clear();
        Ok(())
    }

    /// Ends the file.
    ///
    /// # Errors
    /// The first that went wrong.
    pub fn finish(mut self) -> Result<(), ParquetError> {
        let written = if self.rows.is_empty() { Ok(()) } else { self.write() };
        let closed = written.and_then(|()| self.writer.close().map(drop));
        self.error.map_or(closed, Err)
    }
}
