//! The header log: one row a packet, in Parquet, as docs/reference/header-log.md describes it.
//!
//! [`HeaderLogWriter`] turns [`Packet`](crate::Packet)s into columns, [`HeaderLogReader`] turns them back, in batches. What the capture
//! was, its ledger and its marks are in the file's key-value metadata as [`About`].

mod chunk;
mod columns;
mod hybrid;
mod read;
mod write;

pub use read::HeaderLogReader;
pub use write::{HeaderLogWriter, WriterOptions};

use parquet::errors::ParquetError;
use serde::{Deserialize, Serialize};

use crate::ledger::Ledger;
use crate::parquet_limits::Refused;
use crate::spool::{Mark, Meta};

/// The key of [`About`] in a file's metadata.
pub const ABOUT_KEY: &str = "longhaul.header_log";
/// What [`About::schema`] says.
pub const SCHEMA: &str = "longhaul.header_log/1";

/// What a header log says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct About {
    /// [`SCHEMA`].
    pub schema: String,
    /// What the capture was.
    pub meta: Meta,
    /// Its account.
    pub ledger: Ledger,
    /// Moments that were marked.
    pub marks: Vec<Mark>,
    /// Whether every row is as old as the one before or later.
    pub sorted: bool,
    /// The capture was cut off (a kill, a power cut): the account of its last second is missing.
    pub was_cut: bool,
}

/// Why a header log cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum HeaderLogError {
    /// It is no Parquet, or cannot be written.
    #[error("header log: {0}")]
    Parquet(#[from] ParquetError),
    /// A column is missing or of another kind.
    #[error("this Parquet file is not a header log: it has no column `{0}` of the right kind")]
    Column(&'static str),
    /// Columns that belong together do not have their values in the same rows.
    #[error("the header log is damaged: column `{0}` does not have as many values as it should")]
    Length(&'static str),
    /// Pages say that they are longer than those of a header log of its length.
    #[error("the header log has pages of {0} bytes, more than longhaul reads of one of its length")]
    LongPage(u64),
    /// The pages of it and of the logs that are read with it unpack to so many bytes.
    #[error(
        "the header log has pages that unpack to {0} bytes, with those of the logs before it: more than longhaul reads of files of their length"
    )]
    Unpacked(u64),
    /// Its rows, and those of the logs that are read with it, have so long texts that they are decoded in so many batches.
    #[error(
        "the header log has so long texts that its rows are decoded in {0} batches, with those of the logs before it: more than longhaul reads of files of their length"
    )]
    Batches(u64),
    /// A page has an encoding in which a few bytes may stand for any number of values.
    #[error("the header log uses an encoding that longhaul does not read: write it with PLAIN or a dictionary")]
    Encoding,
    /// It and the logs that are read with it have so many rows, or say so.
    #[error(
        "the header log has {0} rows, with those of the logs before it: more than longhaul reads of files of their length"
    )]
    Rows(u64),
    /// The dictionaries of it and of the logs that are read with it have so many texts.
    #[error(
        "the header log has dictionaries of {0} texts, with those of the logs before it: more than longhaul reads of files of their length"
    )]
    Texts(u64),
    /// Snippets take more than files of their length have.
    #[error(
        "the snippets of header logs take more than 256 MiB and 1,000 times their length, which is not what captures are like"
    )]
    Snippets,
    /// What Parquet says of itself cannot be: the library that reads it gave up in the middle.
    #[error("the header log is damaged: it cannot be read on")]
    Damaged,
    /// An address is none.
    #[error("the header log is damaged: column `{0}` has a value that is not an address")]
    Address(&'static str),
}

impl From<Refused> for HeaderLogError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Parquet(error) => Self::Parquet(error),
            Refused::LongPage(bytes) => Self::LongPage(bytes),
            Refused::Unpacked(bytes) => Self::Unpacked(bytes),
            Refused::Batches(batches) => Self::Batches(batches),
            Refused::Encoding => Self::Encoding,
            Refused::Rows(rows) => Self::Rows(rows),
            Refused::Texts(texts) => Self::Texts(texts),
            Refused::Damaged => Self::Damaged,
        }
    }
}

#[cfg(test)]
mod tests;
