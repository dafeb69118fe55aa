//! Every packet that a UDP test received as a Parquet file.

use std::io::Write;

use longhaul_udp::Timestamps;
use longhaul_udp::account::{PacketRow, PacketRows};
use parquet::data_type::{ByteArray, ByteArrayType, Int32Type, Int64Type};
use parquet::errors::ParquetError;

use crate::parquet::{ROW_GROUP, writer};

/// The columns of a file of packets; docs/reference/udp-results.md tells what they mean.
const COLUMNS: &str = "message packets {
    required int32 stream (integer(8, false));
    required int64 sequence (integer(64, false));
    required int64 sent_ns (integer(64, false));
    required int64 arrived_ns (integer(64, false));
    required byte_array stamped_by (string);
    required int64 batch (integer(64, false));
}";

/// Writes the packets of each stream in the order of their arrival; `stamps` are those that the test asked for.
///
/// # Errors
/// Where `out` does not take what is written.
pub fn write_packets<'a>(
    out: impl Write + Send,
    stamps: Timestamps,
    streams: impl IntoIterator<Item = (u8, &'a PacketRows)>,
) -> Result<(), ParquetError> {
    let mut writer = writer(out, COLUMNS)?;
    for (stream, packets) in streams {
        let mut all = packets.rows();
        loop {
            let rows: Vec<PacketRow> = all.by_ref().take(ROW_GROUP).collect();
            if rows.is_empty() {
                break;
            }
            let mut group = writer.next_row_group()?;
            let int64 = |value: fn(&PacketRow) -> u64| rows.iter().map(|row| value(row) as i64).collect::<Vec<_>>();
            let stamped = |row: &PacketRow| if row.program_stamped { Timestamps::App } else { stamps };
            let mut place = 0;
            while let Some(mut column) = group.next_column()? {
                match place {
                    0 => _ = column.typed::<Int32Type>().write_batch(&vec![stream.into(); rows.len()], None, None)?,
                    4 => {
                        let names: Vec<_> = rows.iter().map(|row| ByteArray::from(stamped(row).name())).collect();
                        _ = column.typed::<ByteArrayType>().write_batch(&names, None, None)?;
                    }
                    _ => {
                        let values = match place {
                            1 => int64(|row| row.sequence),
                            2 => int64(|row| row.sent.0),
                            3 => int64(|row| row.arrived.0),
                            _ => int64(|row| row.batch),
                        };
                        _ = column.typed::<Int64Type>().write_batch(&values, None, None)?;
                    }
                }
                column.close()?;
                place += 1;
            }
            group.close()?;
        }
    }
    writer.close()?;
    Ok(())
}
