//! Refuses files that are nearly all holes: what memory and time a file may take follows its length, and a hole costs nobody anything.

use std::path::{Path, PathBuf};

use longhaul_kernel::holes::is_nearly_all_holes;
use longhaul_rtt::probe_log::{ProbeLogError, ProbeLogReader, segments};
use longhaul_units::regular_file;

use crate::output::Failure;

/// Refuses each of `files` that says to be four times as long as what it stores. One that cannot be looked at is left to whoever reads it.
pub(crate) fn refuse_holes(files: &[PathBuf]) -> Result<(), Failure> {
    let is_refused =
        |path: &&PathBuf| regular_file::open(path).is_ok_and(|file| is_nearly_all_holes(&file).unwrap_or(false));
    let Some(path) = files.iter().find(is_refused) else { return Ok(()) };
    let message = format!("{}: it is mostly holes: less than a quarter of its length is stored", path.display());
    let remedy =
        "if it is whole, copy it without holes (cp --sparse=never); if a copy was broken off, get it once more";
    Err(Failure::new("not_read", message).remedy(remedy))
}

/// Opens the log of probes at `path`, one segment or a folder of them. What rows it may have follows from the lengths of these.
pub(crate) fn open_probe_log(
    path: &Path,
    unreadable: impl Fn(ProbeLogError) -> Failure,
) -> Result<ProbeLogReader, Failure> {
    refuse_holes(&segments(path).map_err(&unreadable)?)?;
    ProbeLogReader::open(path).map_err(unreadable)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn a_file_of_holes_is_refused_by_its_name() {
        let folder = std::env::temp_dir().join(format!("longhaul-nearly-holes-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        let made = |name: &str, stored: usize, length: u64| {
            let path = folder.join(name);
            let file = File::create(&path).unwrap();
            file.write_all_at(&vec![1; stored], 0).unwrap();
            file.set_len(length).unwrap();
            path
        };
        let (short, half) = (made("short", 1, 1 << 20), made("half", 4 << 20, 8 << 20));
        assert!(refuse_holes(&[short.clone(), half, folder.join("none"), folder.clone()]).is_ok());
        let refused = refuse_holes(&[short, made("long", 1 << 20, 1 << 40)]).unwrap_err();
        assert!(refused.message().contains("/long: it is mostly holes"), "{refused:?}");
        fs::remove_dir_all(&folder).unwrap();
    }
}
