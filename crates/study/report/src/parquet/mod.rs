//! Tables as Parquet files: losses and packets of a UDP test, samples of TCP flows, what flows of a capture did over time, delays between two
//! captures.

mod delays;
mod losses;
mod packets;
mod read;
mod rewritten;
mod samples;
mod series;

use std::io::Write;
use std::sync::Arc;

use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

pub use delays::DelayFile;
pub use losses::write_losses;
pub use packets::write_packets;
pub use read::{ReadSamples, read_delays, read_losses, read_series};
pub use rewritten::{RewriteError, Table, rewrite};
pub use samples::{End, FlowSamples, write_samples};
pub use series::SeriesFile;

/// Rows that are held in memory and compressed together.
const ROW_GROUP: usize = 65_536;

/// A writer of a compressed file with the columns that `schema` lists.
fn writer<W: Write + Send>(out: W, schema: &str) -> Result<SerializedFileWriter<W>, ParquetError> {
    let properties = WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::default())).build();
    SerializedFileWriter::new(out, Arc::new(parse_message_type(schema)?), Arc::new(properties))
}
