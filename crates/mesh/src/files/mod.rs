//! Files of tests at the coordinator, beside the results: which packets were lost, and samples of TCP.
//!
//! ```text
//! losses/site=ithaca/day=2026-01-31/ID.parquet      ithaca: the site that delivered it. The rest is as at a site
//! samples/site=ithaca/day=2026-01-31/ID.parquet
//! ```
//!
//! Each site may take the same share of what all may take. What a site delivers is read and written again (`longhaul_report::parquet::rewrite`), so
//! that all files have longhaul's columns, and gets its name when it is on the disk as a whole. Nobody waits for the folder of another site, which may
//! have very many files.

mod day_files;
#[cfg(test)]
mod tests;

pub(crate) use day_files::{DayFiles, NoRoom, day_of};

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirEntry, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use longhaul_channel::shown;
use longhaul_mesh_model::printed::Files;
use longhaul_mesh_model::result::{FILE_BYTES_MOST, FileKind, TestFile};
use longhaul_report::parquet::{Table, rewrite};
use longhaul_units::Bytes;

use crate::error::Failure;
use crate::folder::Folder;
use crate::store::DAY_NS;

/// How far a site's clock may be ahead of the coordinator's.
const AHEAD_NS: i64 = DAY_NS;

/// How much is kept, of a site or of all sites at the coordinator.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct KeepOptions {
    /// Keep the list of lost packets of UDP tests, in Parquet files by day in losses/ of the folder: at most this many bytes, such as 1G; the
    /// oldest days are deleted. At the coordinator all sites share this equally [default: keep none]
    #[arg(long, value_name = "BYTES")]
    pub(crate) keep_losses: Option<Bytes>,
    /// Keep TCP_INFO of TCP tests over time, in the same way, in samples/ [default: keep none]
    #[arg(long, value_name = "BYTES")]
    pub(crate) keep_samples: Option<Bytes>,
    /// Delete these files after this many days [default: when newer ones need the space]
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..=36500))]
    pub(crate) keep_days: Option<u32>,
}

impl KeepOptions {
    /// How much of a kind may be kept; `None`: none. And what allows more.
    pub(crate) fn most(&self, kind: FileKind) -> (Option<Bytes>, &'static str) {
        match kind {
            FileKind::Losses => (self.keep_losses, "--keep-losses"),
            FileKind::Samples => (self.keep_samples, "--keep-samples"),
            FileKind::Unknown => (None, ""),
        }
    }
}

/// The coordinator's files of one kind.
#[derive(Debug)]
struct OfKind {
    most: Bytes,
    days: Option<u32>,
    option: &'static str,
    folder: PathBuf,
    /// Locked for a moment: each has a lock of its own for its folder.
    sites: Mutex<Sites>,
}

/// The files of one kind by site, those of former sites, too.
#[derive(Debug, Default)]
struct Sites {
    own: BTreeMap<String, Arc<DayFiles>>,
    /// Bytes that each may take.
    share: u64,
}

/// The coordinator's files.
#[derive(Debug, Default)]
pub(crate) struct KeptFiles {
    kinds: BTreeMap<FileKind, OfKind>,
    /// Who reads what others wrote: that takes memory.
    reading: Mutex<()>,
    /// Who calls [`KeptFiles::sweep`].
    sweeper: OnceLock<Thread>,
}

impl KeptFiles {
    pub(crate) fn new(folder: &Folder, options: &KeepOptions) -> Self {
        let of = |kind: FileKind| {
            let (most, option) = options.most(kind);
            let folder = folder.file(kind.name());
            let of = |most| OfKind { most, days: options.keep_days, option, folder, sites: Mutex::default() };
            Some((kind, most.map(of)?))
        };
        Self { kinds: FileKind::ALL.into_iter().filter_map(of).collect(), ..Self::default() }
    }

    /// What sites should deliver.
    pub(crate) fn kinds(&self) -> Vec<FileKind> {
        self.kinds.keys().copied().collect()
    }

    /// A thread that calls [`KeptFiles::sweep`] now and then: it is woken where sites have more than they may.
    pub(crate) fn swept_by(&self, thread: Thread) {
        // There is one.
        let _ = self.sweeper.set(thread);
    }

    /// Removes what is too old at `now_ns`, also of sites that deliver nothing any more, and what is above a site's share.
    ///
    /// # Errors
    /// Where a folder cannot be read, or a file cannot be removed.
    pub(crate) fn sweep(&self, sites: &BTreeSet<String>, now_ns: i64) -> Result<(), Failure> {
        // Also those of a kind after one that fails.
        self.kinds.values().map(|of| of.sweep(sites, now_ns)).fold(Ok(()), Result::and)
    }

    /// Keeps the file that `site` delivers, which is one of `sites`. It is on the disk as a whole when this returns.
    ///
    /// # Errors
    /// Where the disk does not take it: it may come again. Inside: why it is not kept, now and later.
    pub(crate) fn take(
        &self,
        (site, sites): (&str, &BTreeSet<String>),
        file: &TestFile,
        now_ns: i64,
    ) -> Result<Result<(), NoRoom>, Failure> {
        let never = |why: &dyn std::fmt::Display| Ok(Err(NoRoom(Failure::new(shown(&why.to_string())))));
        let Some(of) = self.kinds.get(&file.of) else {
            return Err(Failure::new(format_args!("this coordinator keeps no {}", file.of.name())));
        };
        if file.at_ns > now_ns.saturating_add(AHEAD_NS) {
            return never(&"it is of a day to come");
        }
        let (all, is_another_share) = of.shared(sites);
        let own = all.own.get(site).cloned();
        drop(all);
        if is_another_share {
            self.sweeper.get().into_iter().for_each(Thread::unpark);
        }
        let Some(own) = own else { return never(&"the mesh has no such site") };
        let content = match self.rewritten(file) {
            Ok(content) => content,
            Err(why) => return never(&why),
        };
        own.keep((&file.id, file.at_ns), now_ns, |mut to: &File| to.write_all(&content))
    }

    /// The content of a file as longhaul writes it, or why it cannot be read. One at a time.
    fn rewritten(&self, file: &TestFile) -> Result<Vec<u8>, String> {
        let table = if file.of == FileKind::Losses { Table::Losses } else { Table::Samples };
        let _one = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let content = STANDARD.decode(&file.content).map_err(|error| error.to_string())?;
        let content = rewrite(table, content.into()).map_err(|error| error.to_string())?;
        if content.len() > 2 * FILE_BYTES_MOST { Err("it is too long".to_owned()) } else { Ok(content) }
    }
}

impl OfKind {
    fn of_site(&self, site: &str) -> Arc<DayFiles> {
        Arc::new(DayFiles::new(self.folder.join(format!("site={site}")), (Bytes(0), self.days), self.option))
    }

    fn sites(&self) -> MutexGuard<'_, Sites> {
        // Each of its steps is whole.
        self.sites.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All that have files, and all of the mesh, each with its share; and whether that is another one than before. Who has more keeps it until the next
    /// sweep, or until it brings a file.
    fn shared(&self, sites: &BTreeSet<String>) -> (MutexGuard<'_, Sites>, bool) {
        let mut all = self.sites();
        let Sites { own, share } = &mut *all;
        if own.is_empty() {
            own.extend(former(&self.folder).into_iter().map(|site| (site.clone(), self.of_site(&site))));
        }
        for site in sites {
            own.entry(site.clone()).or_insert_with(|| self.of_site(site));
        }
        let each = self.most.0 / u64::try_from(own.len().max(1)).unwrap_or(u64::MAX);
        own.values().for_each(|files| files.allow(Bytes(each)));
        let is_another = *share != each;
        *share = each;
        (all, is_another)
    }

    fn sweep(&self, sites: &BTreeSet<String>, now_ns: i64) -> Result<(), Failure> {
        let all: Vec<_> = self.shared(sites).0.own.values().cloned().collect();
        // Also those after one that fails.
        let trimmed = all.iter().map(|files| files.trim(now_ns)).fold(Ok(()), Result::and);
        drop(all);
        // Of who is gone, and has no files any more, no room is kept. Who brings one just now has another count of it.
        let is_used = |files: &Arc<DayFiles>| Arc::strong_count(files) > 1;
        self.sites().own.retain(|site, files| sites.contains(site) || is_used(files) || !is_empty(&self.folder, site));
        trimmed
    }
}

/// What there is in a coordinator's folder, of each kind that has files.
pub(crate) fn found(folder: &Folder) -> Vec<Files> {
    let of = |kind: FileKind| {
        let own = folder.file(kind.name());
        let sites = former(&own).into_iter().map(|site| own.join(format!("site={site}")));
        let days = sites.flat_map(|site| entries(&site)).filter(|day| day.path().is_dir());
        let (mut files, mut bytes) = (0_u64, 0_u64);
        for about in days.flat_map(|day| entries(&day.path())).filter_map(|file| file.metadata().ok()) {
            (files, bytes) = (files + 1, bytes.saturating_add(about.len()));
        }
        let paths = own.join("site=*/day=*/*.parquet").display().to_string();
        (files > 0).then(|| Files { kind: kind.name().into(), files, bytes, paths })
    };
    FileKind::ALL.into_iter().filter_map(of).collect()
}

/// The file of a test, which one of `sites` delivered. `id` is one of a test that the store has.
pub(crate) fn of_test(folder: &Folder, kind: FileKind, sites: [&str; 2], (id, at_ns): (&str, i64)) -> Option<PathBuf> {
    let path =
        |site| folder.file(kind.name()).join(format!("site={site}")).join(day_of(at_ns)).join(format!("{id}.parquet"));
    // Names of sites have none; this is for a database that says otherwise.
    sites.into_iter().filter(|site| !site.contains('/')).map(path).find(|path| path.is_file())
}

fn entries(folder: &Path) -> Vec<DirEntry> {
    fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok).collect()
}

/// The sites that have a folder.
fn former(folder: &Path) -> Vec<String> {
    let site = |entry: DirEntry| Some(entry.file_name().to_str()?.strip_prefix("site=")?.to_owned());
    entries(folder).into_iter().filter_map(site).collect()
}

/// Whether a site has no file; its folder goes then.
fn is_empty(folder: &Path, site: &str) -> bool {
    let own = folder.join(format!("site={site}"));
    !own.exists() || fs::remove_dir(own).is_ok()
}
