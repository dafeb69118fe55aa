//! `--read FILE` and `--write DIR`: how fast this host's disk is.

use std::path::Path;

use longhaul_diagnosis::{DiskFacts, Role};
use longhaul_host::{DiskRate, read_rate, write_rate};
use longhaul_kernel::signals::Stop;
use longhaul_units::{Bytes, Nanos};

use super::Args;
use crate::output::{Failure, say};

/// Long enough for what a disk's own cache takes to be little of it.
const TIME: Nanos = Nanos::from_secs(5);
/// No more is written than this: a disk has room for it, and it is many times a disk's cache.
const MOST_WRITTEN: u64 = 4 << 30;

/// The disk that the user named for a direction: this host reads what it sends, and writes what it receives.
pub(super) fn measure(args: &Args, backward: bool, stop: Stop) -> Result<Option<DiskFacts>, Failure> {
    let stopped = || stop.requested().is_some();
    match (backward, &args.read, &args.write) {
        (false, Some(file), _) => {
            say(format!(" -  reading {}, {TIME} at most", file.display()));
            known("--read", file, Role::Sender, read_rate(file, TIME, u64::MAX, stopped)).map(Some)
        }
        (true, _, Some(folder)) => {
            say(format!(" -  writing into {}, {TIME} and {} at most", folder.display(), Bytes(MOST_WRITTEN)));
            known("--write", folder, Role::Receiver, write_rate(folder, TIME, MOST_WRITTEN, stopped)).map(Some)
        }
        _ => Ok(None),
    }
}

fn known(flag: &str, path: &Path, host: Role, rate: std::io::Result<DiskRate>) -> Result<DiskFacts, Failure> {
    let failed = |error| Failure::new("disk", format!("{flag} {}: {error}", path.display()));
    let DiskRate { bytes, elapsed, past_cache } = rate.map_err(failed)?;
    Ok(DiskFacts { host, path: path.display().to_string(), bytes, elapsed_ns: elapsed.0, past_cache })
}
