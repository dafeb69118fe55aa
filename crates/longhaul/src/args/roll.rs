//! When a spool begins a new file and when it removes old ones, for `capture` and `log`.

use longhaul_units::{Bytes, Nanos};

use crate::output::Failure;

/// Bounds of the default file length.
const ROLL_BYTES_LEAST: u64 = 1 << 20;
const ROLL_BYTES: u64 = 1 << 30;

#[derive(Debug, clap::Args)]
pub(crate) struct Roll {
    /// Begin a new file at this length [default: 1G, or an eighth of --keep if that is less]
    #[arg(long, value_name = "BYTES")]
    roll_bytes: Option<Bytes>,
    /// Begin a new file after this time
    #[arg(long, value_name = "TIME")]
    pub(crate) roll_time: Option<Nanos>,
    /// Keep at most this much of a capture; remove its oldest files
    #[arg(long, value_name = "BYTES")]
    pub(crate) keep: Option<Bytes>,
}

impl Roll {
    /// Whether any of the options is given.
    pub(crate) fn is_given(&self) -> bool {
        self.roll_bytes.is_some() || self.roll_time.is_some() || self.keep.is_some()
    }

    /// The length at which a new file begins.
    ///
    /// # Errors
    /// `keep` has no room for two files.
    pub(crate) fn roll_bytes(&self) -> Result<Bytes, Failure> {
        let least = Bytes(2 * self.roll_bytes.map_or(ROLL_BYTES_LEAST, |bytes| bytes.0));
        if let Some(keep) = self.keep.filter(|keep| *keep < least) {
            return Err(Failure::usage(format!("--keep {keep}: give at least {least}, two files of --roll-bytes")));
        }
        let eighth = self.keep.map_or(ROLL_BYTES, |keep| keep.0 / 8);
        Ok(self.roll_bytes.unwrap_or(Bytes(eighth.clamp(ROLL_BYTES_LEAST, ROLL_BYTES))))
    }
}
