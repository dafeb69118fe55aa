//! Files of tests at the coordinator, beside the results: which packets were lost, and samples of TCP.
//!
//! ```text
//! losses/site=ithaca/day=2026-01-31/ID.parquet      ithaca: the site that delivered it. The rest is as at a site
//! samples/site=ithaca/day=2026-01-31/ID.parquet
//! ```
//!
//! Each site may take the same share of what all may take. What a site delivers is read and written again (`longhaul_report::parquet::rewrite`), so
//! that all files have longhaul's columns, and gets its name when it is on the disk as a whole.

mod day_files;
#[cfg(test)]
mod tests;

pub(crate) use day_files::{DayFiles, NoRoom, day_of};

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirEntry, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

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
    /// By site, those of former sites, too; and what each may take.
    sites: Mutex<(BTreeMap<String, DayFiles>, u64)>,
}

/// The coordinator's files.
#[derive(Debug, Default)]
pub(crate) struct KeptFiles(BTreeMap<FileKind, OfKind>);

impl KeptFiles {
    pub(crate) fn new(folder: &Folder, options: &KeepOptions) -> Self {
        let of = |kind: FileKind| {
            let (most, option) = options.most(kind);
            let folder = folder.file(kind.name());
            let of = |most| OfKind { most, days: options.keep_days, option, folder, sites: Mutex::default() };
            Some((kind, most.map(of)?))
        };
        Self(FileKind::ALL.into_iter().filter_map(of).collect())
    }

    /// What sites should deliver.
    pub(crate) fn kinds(&self) -> Vec<FileKind> {
        self.0.keys().copied().collect()
    }

    /// Removes what is too old at `now_ns`: also of sites that deliver nothing any more.
    ///
    /// # Errors
    /// Where a folder cannot be read, or a file cannot be removed.
    pub(crate) fn sweep(&self, sites: &BTreeSet<String>, now_ns: i64) -> Result<(), Failure> {
        self.0.values().try_for_each(|of| of.sweep(sites, now_ns))
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
        let Some(of) = self.0.get(&file.of) else {
            return Err(Failure::new(format_args!("this coordinator keeps no {}", file.of.name())));
        };
        if file.at_ns > now_ns.saturating_add(AHEAD_NS) {
            return never(&"it is of a day to come");
        }
        let table = if file.of == FileKind::Losses { Table::Losses } else { Table::Samples };
        // One at a time: reading what others wrote takes memory.
        let mut all = of.sites.lock().unwrap_or_else(PoisonError::into_inner);
        let written = match STANDARD.decode(&file.content) {
            Ok(content) => rewrite(table, content.into()),
            Err(error) => return never(&error),
        };
        let content = match written {
            Ok(content) if content.len() <= 2 * FILE_BYTES_MOST => content,
            Ok(_) => return never(&"it is too long"),
            Err(error) => return never(&error),
        };
        of.share(&mut all, sites, now_ns)?;
        let Some(own) = all.0.get(site) else { return never(&"the mesh has no such site") };
        own.keep((&file.id, file.at_ns), now_ns, |mut to: &File| to.write_all(&content))
    }
}

impl OfKind {
    fn of_site(&self, site: &str, most: u64) -> DayFiles {
        DayFiles::new(self.folder.join(format!("site={site}")), (Bytes(most), self.days), self.option)
    }

    /// Gives each site its share: all that have files, and all of the mesh.
    fn share(
        &self,
        (all, share): &mut (BTreeMap<String, DayFiles>, u64),
        sites: &BTreeSet<String>,
        now_ns: i64,
    ) -> Result<(), Failure> {
        if all.is_empty() {
            former(&self.folder).into_iter().for_each(|site| {
                all.insert(site.clone(), self.of_site(&site, 0));
            });
        }
        for site in sites {
            all.entry(site.clone()).or_insert_with(|| self.of_site(site, 0));
        }
        let each = self.most.0 / u64::try_from(all.len().max(1)).unwrap_or(u64::MAX);
        if *share != each {
            all.values().try_for_each(|files| files.trim(Bytes(each), now_ns))?;
            *share = each;
        }
        Ok(())
    }

    fn sweep(&self, sites: &BTreeSet<String>, now_ns: i64) -> Result<(), Failure> {
        let mut all = self.sites.lock().unwrap_or_else(PoisonError::into_inner);
        self.share(&mut all, sites, now_ns)?;
        let share = Bytes(all.1);
        all.0.values().try_for_each(|files| files.trim(share, now_ns))?;
        // Of who is gone, and has no files any more, no room is kept.
        all.0.retain(|site, _| sites.contains(site) || !is_empty(&self.folder, site));
        Ok(())
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
