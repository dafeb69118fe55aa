//! The folder in which a command saves its result.

use std::collections::HashSet;
use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longhaul_experiment::faults::{find, run::of_evidence_name};
use longhaul_kernel::capability::{self, Capability};
use longhaul_kernel::holes::is_nearly_all_holes;
use longhaul_kernel::new_file::{NewFile, PUBLIC, without_name};
use longhaul_kernel::open_folder::OpenFolder;
use longhaul_report::saved::{ANALYZE_SCHEMA, COMPARE_SCHEMA, RTT_SCHEMA};
use longhaul_units::{read_text, regular_file};
use parking_lot::Mutex;
use parquet::errors::ParquetError;
use serde::{Deserialize, Serialize};

use crate::output::Failure;
use crate::output::overwrite::{Overwrite, there_already};

/// The result's name in its folder.
const RESULT: &str = "result.json";
/// The runs of an experiment, beside its result.
pub(crate) const RUNS: &str = "runs.jsonl";
/// Its page.
pub(crate) const REPORT: &str = "report.html";
/// The form of a result of the catalogue of faults, which has its diagnoses beside it.
pub(crate) const FAULTS_SCHEMA: &str = "longhaul.lab.run.faults/1";
/// What the forms of all experiments begin with.
const EXPERIMENTS: &str = "longhaul.lab.run";
/// The table of an analysis.
pub(crate) const SERIES: &str = "series.parquet";
/// The table of a comparison.
pub(crate) const DELAYS: &str = "delays.parquet";
/// The bit of a folder's mode by which only owners replace and remove what is in it (`S_ISVTX`, inode(7)).
const STICKY: u32 = 0o1000;
/// Longest file that is read: twice the longest result with two directions of 10,000 losses and two hosts of 1,000 queues.
const MOST_BYTES: u64 = 64 << 20;

/// A folder for a result. It is opened once: what is written later is written there, whatever has its name then.
///
/// A result of before (`--force`) stays whole until all of the new one is on the disk: where that is full, the old one is what is left. Commands that
/// write while they measure replace it with their first file that is on the disk: an experiment, the catalogue of faults, a log of probes.
///
/// Without `--force` no file is replaced, neither one of before nor one that was made since the start. Links of before are.
#[derive(Debug, Clone)]
pub(crate) struct Folder {
    name: PathBuf,
    open: OpenFolder,
    /// Clones share it.
    contents: Arc<Mutex<Contents>>,
}

/// What becomes of the files of a folder.
#[derive(Debug, Default)]
struct Contents {
    /// Those of a result of before, which go when the new one is on the disk, the last one first.
    replaced: Vec<String>,
    /// One of them is removed.
    has_removed: bool,
    /// Those of the new result that are complete and get these names with it.
    waiting: Vec<(String, NewFile)>,
    /// Any file may be replaced.
    replaces_all: bool,
    /// Names whose file may be replaced all the same: a link was there at the start, or it is this command's.
    known: HashSet<String>,
}

impl Folder {
    /// A folder whose measurement goes on: later writes replace files of the same name.
    ///
    /// # Errors
    /// There is none, or as [`Self::claim`].
    pub(crate) fn open(path: PathBuf) -> Result<Self, Failure> {
        let open = OpenFolder::open(&path).map_err(|error| {
            Failure::new("not_resumed", format!("--resume {}: {error}", path.display()))
                .remedy("give the folder of the measurement to continue")
        })?;
        let folder = Self::claim("--resume", path, open)?;
        folder.contents.lock().replaces_all = true;
        Ok(folder)
    }

    /// Takes the folder for this command, until that ends, however it ends: of two that write, one would overwrite what the other measures.
    ///
    /// # Errors
    /// Another command has it, or what this one may write cannot be written.
    fn claim(option: &str, name: PathBuf, open: OpenFolder) -> Result<Self, Failure> {
        let failed = |code, why: &str| Failure::new(code, format!("{option} {}: {why}", name.display()));
        // Where the file system has no locks (NFS), nobody can tell.
        if open.lock().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
            let failure = failed("folder_in_use", "another command writes its result into this folder");
            return Err(failure.remedy("wait until it has ended, or give another folder"));
        }
        let unusable =
            |error: io::Error| failed("not_written", &error.to_string()).remedy("give a folder that you can write to");
        without_name(&open.path()).map_err(unusable)?;
        let user = rustix::process::geteuid().as_raw();
        if !capability::has(Capability::Fowner)
            && let Some(file) = of_another(&open.path(), user).map_err(unusable)?
        {
            let why = format!(
                "{file} in it belongs to another user, and only that user may replace it (the folder has the sticky bit)"
            );
            return Err(failed("not_written", &why).remedy("give a folder of your own"));
        }
        Ok(Self { name, open, contents: Arc::default() })
    }

    /// A way to it that no rename changes.
    pub(crate) fn path(&self) -> PathBuf {
        self.open.path()
    }

    /// Makes the folder if it is missing, before the test: no result is lost because it cannot be saved. A result that is there is refused, or
    /// goes with all its files when the new one is on the disk: a test that fails before leaves it.
    pub(crate) fn prepare(path: PathBuf, overwrite: Overwrite) -> Result<Self, Failure> {
        Self::prepare_beside(path, overwrite, &[], |_| false)
    }

    /// The same for a result that has more files, whose names `writes` tells, and is made of `inputs`: none of these is removed, or written over.
    /// Files of the user's own with such names are refused, too.
    pub(crate) fn prepare_beside(
        path: PathBuf,
        overwrite: Overwrite,
        inputs: &[PathBuf],
        writes: fn(&str) -> bool,
    ) -> Result<Self, Failure> {
        let failed = |why: String| Failure::new("not_written", format!("-o {}: {why}", path.display()));
        let unusable = |error: io::Error| failed(error.to_string()).remedy("give a folder that you can write to");
        let folder = Self::claim("-o", path.clone(), open_folder_at(&path).map_err(unusable)?)?;
        let has_runs = folder.has(RUNS);
        let mut replaced = Vec::new();
        if has_runs || folder.has(RESULT) {
            if !overwrite.allowed() {
                let refused = there_already(&path, "the folder has a result already");
                let remedy = "give another name, go on by --resume, or replace it by --force";
                return Err(if has_runs { refused.remedy(remedy) } else { refused });
            }
            replaced = files_of_result(&folder.path()).map_err(unusable)?;
        }
        let inputs = files_of(inputs);
        let there = names_of_results(&folder.path()).map_err(unusable)?;
        let written = || there.iter().map(String::as_str).filter(move |name| *name == RESULT || writes(name));
        for name in replaced.iter().map(String::as_str).chain(written()) {
            let there = identity(&folder.path().join(name));
            if let Some((_, input)) = inputs.iter().find(|(file, _)| Some(*file) == there) {
                let why = format!("the result would take the place of {}", input.display());
                return Err(failed(why).remedy("give another folder"));
            }
        }
        let replaces_all = overwrite.allowed();
        let is_file = |name: &&str| folder.path().join(name).symlink_metadata().is_ok_and(|there| there.is_file());
        if !replaces_all && let Some(own) = written().filter(is_file).min() {
            return Err(there_already(&path.join(own), "the file is there already"));
        }
        let known = if replaces_all { HashSet::new() } else { there };
        *folder.contents.lock() = Contents { replaced, replaces_all, known, ..Contents::default() };
        Ok(folder)
    }

    /// Whether it has a file of this name that stays.
    pub(crate) fn has(&self, name: &str) -> bool {
        !self.contents.lock().replaced.iter().any(|old| old == name) && self.path().join(name).exists()
    }

    /// Whether the result of before is still there.
    pub(crate) fn replaces(&self) -> bool {
        !self.contents.lock().replaced.is_empty()
    }

    /// Removes the result of before, if it is still there.
    ///
    /// # Errors
    /// A file of it cannot be removed.
    fn make_way(&self) -> io::Result<()> {
        let mut contents = self.contents.lock();
        while let Some(name) = contents.replaced.last() {
            match fs::remove_file(self.path().join(name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {
                    contents.replaced.pop();
                    contents.has_removed = true;
                }
            }
        }
        Ok(())
    }

    /// What to say of the result of before where the new one is not saved.
    fn of_before(&self) -> &'static str {
        let contents = self.contents.lock();
        match (contents.replaced.is_empty(), contents.has_removed) {
            (false, false) => ", and the previous result is kept",
            (false, true) => ", and a part of the previous result is removed",
            (true, true) => ", and the previous result is removed",
            (true, false) => "",
        }
    }

    /// Begins the file `name`, for [`Self::put`].
    ///
    /// # Errors
    /// As [`NewFile::create`].
    pub(crate) fn create(&self, name: &str) -> io::Result<NewFile> {
        NewFile::create(&self.path().join(name), PUBLIC)
    }

    /// Gives `new` the name `name` while the measurement goes on. The result of before goes.
    ///
    /// # Errors
    /// As [`Overwrite::finish`].
    pub(crate) fn put(&self, name: &str, new: NewFile) -> io::Result<()> {
        self.give_name(name, new, Overwrite::finish)
    }

    /// Gives `new` the name `name` by `finish`. The result of before goes when it is on the disk.
    fn give_name(&self, name: &str, new: NewFile, finish: fn(Overwrite, NewFile) -> io::Result<()>) -> io::Result<()> {
        if self.replaces() {
            new.file().sync_all()?;
            self.make_way()?;
        }
        let mut contents = self.contents.lock();
        finish(Overwrite::by(contents.replaces_all || contents.known.contains(name)), new)?;
        contents.known.insert(name.to_owned());
        Ok(())
    }

    /// Has `new`, which is complete, wait for the result where that replaces one. Otherwise it gets its name now: it is there whatever else fails.
    fn hold(&self, name: &str, new: NewFile) -> io::Result<()> {
        if !self.replaces() {
            return self.give_name(name, new, Overwrite::finish_or_keep);
        }
        new.file().sync_all()?;
        self.contents.lock().waiting.push((name.to_owned(), new));
        Ok(())
    }

    /// Begins the table `name`, which is written before the result is known.
    pub(crate) fn table(&self, name: &str) -> Result<Table, Failure> {
        let new = self.create(name).map_err(|error| Failure::unwritable(&self.name.join(name), error))?;
        Ok(Table { folder: self.clone(), new, name: name.to_owned() })
    }

    /// Saves `envelope` as it is printed, with the tables that wait for it. A reader never sees a partial file.
    pub(crate) fn save(&self, envelope: &impl Serialize) -> Result<(), Failure> {
        self.save_by(envelope, Overwrite::finish_or_keep)
    }

    /// Saves what there is of a result that will be saved again. Where it cannot get its name it is not kept under another one: the last one is.
    pub(crate) fn save_meanwhile(&self, envelope: &impl Serialize) -> Result<(), Failure> {
        self.save_by(envelope, Overwrite::finish)
    }

    fn save_by(
        &self,
        envelope: &impl Serialize,
        finish: fn(Overwrite, NewFile) -> io::Result<()>,
    ) -> Result<(), Failure> {
        let write = |text: String| {
            let new = self.create(RESULT)?;
            new.file().write_all((text + "\n").as_bytes())?;
            if self.replaces() {
                new.file().sync_all()?;
            }
            // A result without its tables would be taken for a whole one: it comes after them.
            let waiting = std::mem::take(&mut self.contents.lock().waiting);
            for (name, table) in waiting {
                self.give_name(&name, table, Overwrite::finish_or_keep)?;
            }
            self.give_name(RESULT, new, finish)
        };
        serde_json::to_string(envelope).map_err(io::Error::from).and_then(write).map_err(|error| {
            let name = self.name.display();
            let why = match error.kind() {
                io::ErrorKind::AlreadyExists => format!("-o {name}: {RESULT}: {error}"),
                _ => format!("-o {name}: {error}; the result is not saved{}", self.of_before()),
            };
            Failure::new("not_written", why)
        })
    }

    /// Writes `text` as the file `name`, while the measurement goes on.
    pub(crate) fn write_text(&self, name: &str, text: &str) -> Result<(), String> {
        let write = || {
            let new = self.create(name)?;
            new.file().write_all(text.as_bytes())?;
            self.put(name, new)
        };
        write().map_err(|error| self.not_written(name, error))
    }

    /// Writes the file `name` by `write`, or nothing, while the measurement goes on.
    pub(crate) fn write_now(
        &self,
        name: &str,
        write: impl FnOnce(File) -> Result<(), ParquetError>,
    ) -> Result<(), String> {
        let new = self.written(name, write).map_err(|error| self.not_written(name, error))?;
        self.put(name, new).map_err(|error| self.not_written(name, error))
    }

    /// Writes the file `name` by `write`, or nothing, as a part of the result that [`Self::save`] saves.
    pub(crate) fn write(&self, name: &str, write: impl FnOnce(File) -> Result<(), ParquetError>) -> Result<(), String> {
        let new = self.written(name, write).map_err(|error| self.not_written(name, error))?;
        self.hold(name, new).map_err(|error| self.not_written(name, error))
    }

    fn written(
        &self,
        name: &str,
        write: impl FnOnce(File) -> Result<(), ParquetError>,
    ) -> Result<NewFile, ParquetError> {
        let new = self.create(name)?;
        write(new.file().try_clone()?)?;
        Ok(new)
    }

    fn not_written(&self, name: &str, error: impl Display) -> String {
        format!("{}: {error}", self.name.join(name).display())
    }
}

/// A table that is being written.
#[derive(Debug)]
pub(crate) struct Table {
    folder: Folder,
    new: NewFile,
    name: String,
}

impl Table {
    /// What to write to.
    pub(crate) fn file(&self) -> Result<File, Failure> {
        self.new.file().try_clone().map_err(|error| self.unwritable(error))
    }

    /// Tells that it is complete. Where a result of before is replaced, it gets its name with the new one.
    pub(crate) fn finish(self) -> Result<(), Failure> {
        let Self { folder, new, name } = self;
        folder.hold(&name, new).map_err(|error| Failure::unwritable(&folder.name.join(&name), error))
    }

    /// The failure to write it.
    pub(crate) fn unwritable(&self, error: impl Display) -> Failure {
        Failure::unwritable(&self.folder.name.join(&self.name), error)
    }
}

/// What tells a file from all others, whatever its names: its device and its inode.
type Identity = (u64, u64);

/// That of the file that `path` leads to.
fn identity(path: &Path) -> Option<Identity> {
    fs::metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

/// The files that `inputs` lead to, those in folders among them, each with the input.
fn files_of(inputs: &[PathBuf]) -> Vec<(Identity, &Path)> {
    let mut files = Vec::new();
    for input in inputs {
        let path: &Path = if input.as_os_str() == "-" { Path::new("/dev/stdin") } else { input };
        files.extend(identity(path).map(|file| (file, input.as_path())));
        for entry in path.read_dir().into_iter().flatten().flatten() {
            files.extend(identity(&entry.path()).map(|file| (file, input.as_path())));
        }
    }
    files
}

/// What the names of a direction's tables end in.
const ENDINGS: [&str; 2] = ["forward", "backward"];

/// Whether a command gives this name to a table of its result: `losses.parquet` and `packets-backward.parquet` (`udp`),
/// `losses-1-2-3-try2.parquet` (`lab run`), `samples.parquet` (`tcp`, `watch`), `probes-00001.parquet` (`rtt`), [`SERIES`], [`DELAYS`]. What is
/// not one is somebody else's file.
fn is_table(name: &str) -> bool {
    let Some(stem) = name.strip_suffix(".parquet") else { return false };
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let is_ending =
        |part: &str| is_number(part) || part.strip_prefix("try").is_some_and(is_number) || ENDINGS.contains(&part);
    match stem.split_once('-') {
        None => ["losses", "packets", "samples"].contains(&stem) || [SERIES, DELAYS].contains(&name),
        Some(("losses", endings)) => endings.split('-').all(is_ending),
        Some(("packets", ending)) => ENDINGS.contains(&ending),
        Some(("probes", number)) => is_number(number),
        Some(_) => false,
    }
}

/// Whether it is a table of `udp`, `tcp` or `watch`.
pub(crate) fn is_of_test(name: &str) -> bool {
    is_table(name) && ["losses", "packets", "samples"].iter().any(|begin| name.starts_with(begin))
}

/// Whether it is a file of an experiment.
pub(crate) fn is_of_experiment(name: &str) -> bool {
    name == REPORT || is_table(name) && name.starts_with("losses-")
}

/// Whether the name is that of a diagnosis of the catalogue of faults: `receive-buffer-80ms-1.json`.
pub(crate) fn is_diagnosis(name: &str) -> bool {
    of_evidence_name(name).is_some_and(|(fault, ..)| find(fault).is_ok())
}

/// Whether a command gives this name to a file of its result.
fn is_of_result(name: &str) -> bool {
    [RESULT, RUNS, REPORT].contains(&name) || is_table(name) || is_diagnosis(name)
}

/// The names in `folder` that a result may have.
fn names_of_results(folder: &Path) -> io::Result<HashSet<String>> {
    let mut names = HashSet::new();
    for entry in fs::read_dir(folder)? {
        names.extend(entry?.file_name().into_string().ok().filter(|name| is_of_result(name)));
    }
    Ok(names)
}

/// A file in `folder` with a name of a result's that `user` may not replace: in a sticky folder another user's.
fn of_another(folder: &Path, user: u32) -> io::Result<Option<String>> {
    let about = fs::metadata(folder)?;
    if about.mode() & STICKY == 0 || about.uid() == user {
        return Ok(None);
    }
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        if is_of_result(&name) && entry.metadata().is_ok_and(|file| file.uid() != user) {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

/// What tells one form of result from another.
#[derive(Deserialize)]
struct Form {
    schema: String,
}

/// The files of the result in `folder`: itself, its tables, its page where it is an experiment's, and its diagnoses. A table that it does not
/// have is somebody else's: what `convert` made of a capture may be called `packets.parquet`, too.
fn files_of_result(folder: &Path) -> io::Result<Vec<String>> {
    let text = read_text(&folder.join(RESULT), MOST_BYTES).unwrap_or_default();
    let form = serde_json::from_str::<Form>(&text).map_or_else(|_| String::new(), |form| form.schema);
    let has_runs = folder.join(RUNS).exists();
    let has_table = |name: &str| match form.as_str() {
        ANALYZE_SCHEMA => name == SERIES,
        COMPARE_SCHEMA => name == DELAYS,
        RTT_SCHEMA => name.starts_with("probes-"),
        // Others name theirs; of an experiment that was killed there may be no result yet.
        _ => text.contains(&format!("\"{name}\"")) || has_runs && name.starts_with("losses-"),
    };
    let is_beside = |name: &str| match form.as_str() {
        FAULTS_SCHEMA => is_diagnosis(name),
        form => name == REPORT && (has_runs || form.starts_with(EXPERIMENTS)),
    };
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        if let Ok(name) = entry?.file_name().into_string()
            && (is_table(&name) && has_table(&name) || is_beside(&name))
        {
            files.push(name);
        }
    }
    // A result without its tables would be taken for a whole one: it goes before them.
    for name in [RUNS, RESULT] {
        if folder.join(name).exists() {
            files.push(name.to_owned());
        }
    }
    Ok(files)
}

/// The folder that the user names, made if it is missing, and open.
///
/// # Errors
/// It cannot be made, or is a link of another user.
pub(crate) fn open_folder_at(path: &Path) -> io::Result<OpenFolder> {
    OpenFolder::make(path).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
            io::Error::new(error.kind(), "it is a file, not a folder")
        }
        _ => error,
    })
}

const NO_RESULT_REMEDY: &str = "give a folder that -o wrote, or a file that --json printed";

/// The text of the result at `path`, a file or a folder with one, and the file's name.
///
/// # Errors
/// There is none; in one line.
pub(crate) fn read_result(path: &Path) -> Result<(PathBuf, String), Failure> {
    if path.is_dir() && holds_a_capture(path) {
        let remedy = format!("run `longhaul analyze {}`", path.display());
        return Err(
            Failure::new("no_result", format!("{} holds a capture, not a result", path.display())).remedy(remedy)
        );
    }
    let in_folder = path.is_dir();
    let file = if in_folder { path.join(RESULT) } else { path.to_owned() };
    let mut text = String::new();
    let mut read = || {
        // Opening a pipe waits for its writer: whoever names one wants that, and in a folder nobody named it.
        let opened = if in_folder { regular_file::open(&file) } else { File::open(&file) };
        // A device or a pipe may have no end.
        opened?.take(MOST_BYTES + 1).read_to_string(&mut text)
    };
    let why = match read() {
        Ok(_) if text.len() as u64 > MOST_BYTES => {
            format!("the file is longer than any result ({} MiB)", MOST_BYTES >> 20)
        }
        Ok(_) => return Ok((file, text)),
        Err(error) => error.to_string(),
    };
    Err(no_result(&file, why))
}

/// Opens the table `name` of the result that was read from `file`: one that is beside it in its folder, wherever the name would lead.
///
/// # Errors
/// It has no folder, the folder no such table, or the table is mostly holes: how many rows it may have follows from its length.
pub(crate) fn open_table(file: &Path, name: &str) -> io::Result<File> {
    let none = |why: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    if file.file_name().is_none_or(|own| own != RESULT) {
        return none("tables are beside the result in the folder that -o wrote");
    }
    if !is_table(name) {
        return none("no name of a table");
    }
    let table = file.with_file_name(name);
    // A link leads to another place.
    if table.symlink_metadata()?.is_symlink() {
        return none("a link, not a file");
    }
    let open = regular_file::open(&table)?;
    if is_nearly_all_holes(&open)? {
        return none("it is mostly holes: less than a quarter of its length is stored");
    }
    Ok(open)
}

fn holds_a_capture(folder: &Path) -> bool {
    let is_spool = |path: PathBuf| path.extension().is_some_and(|end| end == longhaul_captures::spool::EXTENSION);
    fs::read_dir(folder).is_ok_and(|entries| entries.flatten().any(|entry| is_spool(entry.path())))
}

/// The failure for a file that holds no result.
pub(crate) fn no_result(file: &Path, why: impl Display) -> Failure {
    Failure::new("no_result", format!("{}: {why}", file.display())).remedy(NO_RESULT_REMEDY)
}

#[cfg(test)]
mod tests;
