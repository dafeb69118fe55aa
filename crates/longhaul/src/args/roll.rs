//! How long the files of a spool grow, and how many are kept: `capture` and `log` alike.

use longhaul_units::{Bytes, Nanos};

use crate::output::Failure;

/// Files are not shorter unless somebody says so, nor longer.
const ROLL_BYTES_LEAST: u64 = 1 << 20;
const ROLL_BYTES: u64 = 1 << 30;

#[derive(Debug, clap::Args)]
pub(crate) struct Roll {
    /// Begin a new file at this length [default: 1G, or an eighth of --keep where that is less]
    #[arg(long, value_name = "BYTES")]
    roll_bytes: Option<Bytes>,
    /// Begin a new file after this time
    #[arg(long, value_name = "TIME")]
    pub(crate) roll_time: Option<Nanos>,
    /// Remove a capture's oldest files when all of its files are longer than this
    #[arg(long, value_name = "BYTES")]
    pub(crate) keep: Option<Bytes>,
}

impl Roll {
    /// The length at which a new file begins.
    ///
    /// # Errors
    /// Where not even two such files may be kept.
    pub(crate) fn roll_bytes(&self) -> Result<Bytes, Failure> {
        let least = Bytes(2 * self.roll_bytes.map_or(ROLL_BYTES_LEAST, |bytes| bytes.0));
        if let Some(keep) = self.keep.filter(|keep| *keep < least) {
            return Err(Failure::usage(format!("--keep {keep}: {least} at least, two files of --roll-bytes")));
        }
        let eighth = self.keep.map_or(ROLL_BYTES, |keep| keep.0 / 8);
        Ok(self.roll_bytes.unwrap_or(Bytes(eighth.clamp(ROLL_BYTES_LEAST, ROLL_BYTES))))
    }
}
