//! `longhaul capture -w FILE`: a spool while it runs, since that stays readable whatever happens, and one file at its end.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use longhaul_captures::header_log::WriterOptions;
use longhaul_captures::writer::Form;
use longhaul_kernel::link::Netlink;
use longhaul_kernel::links::parent;
use longhaul_kernel::new_file::at_free_name;
use longhaul_kernel::open_folder::OpenFolder;

use crate::cmd::convert::write_capture;
use crate::output::overwrite::Overwrite;
use crate::output::{Failure, OutputFile};

/// The file to write, and the spool that it is written from. Who may rename things in its folder cannot put another spool in the place of this one.
#[derive(Debug)]
pub(super) struct IntoFile {
    pub(super) file: OutputFile,
    /// The spool's folder, by name and itself.
    pub(super) spool: PathBuf,
    pub(super) opened: OpenFolder,
    /// What the spool is in, and its name there.
    folder: OpenFolder,
    name: OsString,
}

impl IntoFile {
    /// Whether `-o` names a file rather than a folder.
    pub(super) fn is_meant(path: &Path) -> bool {
        !path.is_dir() && Form::of(path).is_ok()
    }

    /// The file `file`, whose spool lies beside it.
    pub(super) fn at(file: &Path) -> Result<Self, Failure> {
        Form::of(file)?;
        let failed = |error| Failure::unwritable(&spool_beside(file, ""), error);
        let folder = OpenFolder::open(parent(file)).map_err(failed)?;
        let output = OutputFile::named(file)?;
        let make = |at: &Path| folder.make_child(at.file_name().unwrap_or_default());
        let (spool, opened) = at_free_name(|more| Ok(spool_beside(file, more)), make).map_err(failed)?;
        let name = spool.file_name().unwrap_or_default().to_owned();
        Ok(Self { file: output, spool, opened, folder, name })
    }

    /// Where packets go, for the first line.
    pub(super) fn described(&self) -> String {
        format!("{} at the end, until then {}", self.file.display(), self.spool.display())
    }

    /// Writes the file, and removes the spool. Where that fails, the spool stays.
    pub(super) fn write(&self, overwrite: Overwrite) -> Result<(), Failure> {
        let options = WriterOptions { snippets: true, ..WriterOptions::default() };
        write_capture(&[self.opened.path()], &self.file, options, overwrite).map_err(|failure| {
            failure.remedy(format!("the packets are in {}: longhaul convert it", self.spool.display()))
        })?;
        self.folder.remove_child(&self.name, &self.opened).map_err(|error| Failure::unwritable(&self.spool, error))
    }
}

impl Drop for IntoFile {
    /// A spool that never began.
    fn drop(&mut self) {
        let is_empty = std::fs::read_dir(self.opened.path()).is_ok_and(|mut files| files.next().is_none());
        if is_empty {
            let _ = self.folder.remove_child(&self.name, &self.opened);
        }
    }
}

/// `.NAME.PID.spool` beside `file`, with `more` before its end.
fn spool_beside(file: &Path, more: &str) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(file.file_name().unwrap_or_default());
    name.push(format!(".{}{more}.spool", std::process::id()));
    parent(file).join(name)
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
