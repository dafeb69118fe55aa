//! Every loss of a UDP test as a Parquet file.

use std::io::Write;

use longhaul_udp::locate::Loss;
use parquet::data_type::{ByteArray, ByteArrayType, Int32Type, Int64Type};
use parquet::errors::ParquetError;

use crate::parquet::{ROW_GROUP, writer};

/// The columns of a file of losses; docs/reference/udp-results.md tells what they mean.
pub(super) const COLUMNS: &str = "message losses {
    required int32 stream (integer(8, false));
    required int64 first_sequence (integer(64, false));
    required int64 packets (integer(64, false));
    required int32 unit_packets (integer(32, false));
    required byte_array location (string);
    required byte_array reason (string);
}";

/// Writes a row for each run of `losses`.
///
/// # Errors
/// Where `out` does not take what is written.
pub fn write_losses(out: impl Write + Send, mut losses: impl Iterator<Item = Loss>) -> Result<(), ParquetError> {
    let mut writer = writer(out, COLUMNS)?;
    loop {
        let rows: Vec<Loss> = losses.by_ref().take(ROW_GROUP).collect();
        if rows.is_empty() {
            break;
        }
        let mut group = writer.next_row_group()?;
        let int32 = |value: fn(&Loss) -> u32| rows.iter().map(|loss| value(loss) as i32).collect::<Vec<_>>();
        let int64 = |value: fn(&Loss) -> u64| rows.iter().map(|loss| value(loss) as i64).collect::<Vec<_>>();
        let text = |value: fn(&Loss) -> &str| rows.iter().map(|loss| ByteArray::from(value(loss))).collect::<Vec<_>>();
        // Numbers keep their bits: the schema says that they have no sign.
        let columns = [
            Column::Int32(int32(|loss| loss.stream.into())),
            Column::Int64(int64(|loss| loss.first_sequence)),
            Column::Int64(int64(|loss| loss.packets)),
            Column::Int32(int32(|loss| loss.unit_packets)),
            Column::Text(text(|loss| loss.location.name())),
            Column::Text(text(|loss| &loss.reason)),
        ];
        for values in &columns {
            let Some(mut column) = group.next_column()? else { break };
            match values {
                Column::Int32(values) => _ = column.typed::<Int32Type>().write_batch(values, None, None)?,
                Column::Int64(values) => _ = column.typed::<Int64Type>().write_batch(values, None, None)?,
                Column::Text(values) => _ = column.typed::<ByteArrayType>().write_batch(values, None, None)?,
            }
            column.close()?;
        }
        group.close()?;
    }
    writer.close()?;
    Ok(())
}

enum Column {
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    Text(Vec<ByteArray>),
}

#[cfg(test)]
mod tests {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;

    use std::fs::{self, File};

    use super::*;
    use longhaul_result::Location;

    #[test]
    fn losses_read_back_over_several_row_groups() {
        let loss = |at: u64| Loss {
            stream: (at % 3) as u8,
            first_sequence: u64::MAX - at,
            packets: at + 1,
            unit_packets: u32::MAX,
            location: Location::ALL[at as usize % 12],
            reason: format!("reason {}", at % 5).into(),
        };
        let count = ROW_GROUP as u64 + 10;
        let path = std::env::temp_dir().join(format!("longhaul-losses-{}.parquet", std::process::id()));
        write_losses(File::create(&path).unwrap(), (0..count).map(loss)).unwrap();
        let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
        fs::remove_file(&path).unwrap();
        let mut rows = 0;
        for (at, row) in reader.get_row_iter(None).unwrap().enumerate() {
            let (row, loss) = (row.unwrap(), loss(at as u64));
            assert_eq!(
                (
                    row.get_ubyte(0).unwrap(),
                    row.get_ulong(1).unwrap(),
                    row.get_ulong(2).unwrap(),
                    row.get_uint(3).unwrap()
                ),
                (loss.stream, loss.first_sequence, loss.packets, loss.unit_packets)
            );
            assert_eq!(
                (row.get_string(4).unwrap().as_str(), row.get_string(5).unwrap()),
                (loss.location.name(), &loss.reason.into_owned())
            );
            rows += 1;
        }
        assert_eq!((rows, reader.num_row_groups()), (count, 2));
    }
}
