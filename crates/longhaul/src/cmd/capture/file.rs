//! `longhaul capture -w FILE`: a spool while it runs, since that stays readable whatever happens, and one file at its end.

use std::fs;
use std::path::{Path, PathBuf};

use longhaul_captures::header_log::WriterOptions;
use longhaul_captures::writer::Form;
use longhaul_kernel::link::Netlink;

use crate::cmd::convert::write_capture;
use crate::output::Failure;

/// The file to write, and the spool that it is written from.
#[derive(Debug)]
pub(super) struct IntoFile {
    pub(super) file: PathBuf,
    pub(super) spool: PathBuf,
}

impl IntoFile {
    /// Whether `-o` names a file rather than a folder.
    pub(super) fn is_meant(path: &Path) -> bool {
        !path.is_dir() && Form::of(path).is_ok()
    }

    /// The file `file`, whose spool lies beside it.
    pub(super) fn at(file: &Path) -> Result<Self, Failure> {
        Form::of(file)?;
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let spool = folder.join(format!(".{name}.{}.spool", std::process::id()));
        Ok(Self { file: file.to_owned(), spool })
    }

    /// Where packets go, for the first line.
    pub(super) fn described(&self) -> String {
        format!("{} at the end, until then {}", self.file.display(), self.spool.display())
    }

    /// Writes the file, and removes the spool. Where that fails, the spool stays.
    pub(super) fn write(&self) -> Result<(), Failure> {
        let options = WriterOptions { snippets: true, ..WriterOptions::default() };
        write_capture(std::slice::from_ref(&self.spool), &self.file, options).map_err(|failure| {
            failure.remedy(format!("the packets are in {}: longhaul convert it", self.spool.display()))
        })?;
        fs::remove_dir_all(&self.spool).map_err(|error| Failure::unwritable(&self.spool, error))
    }
}

/// All interfaces of this network namespace that are up.
pub(super) fn every_interface() -> Result<Vec<String>, Failure> {
    let links = Netlink::open().and_then(|mut links| links.links());
    let links = links.map_err(|error| Failure::new("no_interface", error))?;
    let up: Vec<String> = links.into_iter().filter(|link| link.up).map(|link| link.name).collect();
    if up.is_empty() {
        return Err(Failure::new("no_interface", "no interface is up").remedy("see ip link"));
    }
    Ok(up)
}
