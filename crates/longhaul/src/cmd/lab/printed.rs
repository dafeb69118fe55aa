//! What `longhaul lab status`, `list` and `down` print as JSON.

use std::collections::BTreeSet;

use longhaul_emulator::Status;
use longhaul_lab::LabSpec;
use longhaul_lab::control::{HostInfo, Info};
use serde::Serialize;

use super::links::{Link, links};
use super::path_of;

/// How a lab was made.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct MadeLab<'a> {
    /// How its hosts and its emulator were set up.
    lab: &'a LabSpec,
    /// The path with all live changes, as the text of a path file that names no other file (docs/reference/path-files.md).
    path: &'a str,
    /// Clients, then servers.
    #[cfg_attr(test, schemars(length(min = 2)))]
    hosts: &'a [HostInfo],
    /// Each direction of each link as it is now: each host's access hops, then the shared hops forward, then those backward.
    #[cfg_attr(test, schemars(length(min = 4)))]
    links: Vec<Link>,
}

impl<'a> MadeLab<'a> {
    pub(crate) fn of(info: &'a Info) -> Self {
        let links = links(&path_of(info));
        Self { lab: &info.spec, path: &info.path, hosts: &info.hosts, links }
    }
}

/// The caller's labs.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ListedLabs<'a> {
    /// The labs, by name.
    pub(crate) labs: Vec<ListedLab<'a>>,
}

/// A lab that is up.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ListedLab<'a> {
    /// The lab's name.
    pub(crate) name: &'a str,
    /// The process that holds it.
    #[cfg_attr(test, schemars(range(min = 1)))]
    pub(crate) pid: u32,
    /// When it came up, in UTC, in the form of RFC 3339.
    #[cfg_attr(test, schemars(extend("format" = "date-time")))]
    pub(crate) started_at: &'a str,
    /// Clients, then servers.
    #[cfg_attr(test, schemars(length(min = 2)))]
    pub(crate) hosts: &'a [HostInfo],
}

/// What was asked.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct DownParameters {
    /// Whether all labs were meant.
    pub(crate) all: bool,
}

/// What ended.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct EndedLabs<'a> {
    /// The labs that were up, by name.
    pub(crate) labs: Vec<EndedLab<'a>>,
    /// Labs that were still coming up, by name.
    pub(crate) interrupted: BTreeSet<String>,
    /// Labs that had been killed and whose programs were ended, by name.
    pub(crate) cleared: BTreeSet<String>,
}

/// A lab that was up.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct EndedLab<'a> {
    /// How it was made.
    #[serde(flatten)]
    pub(crate) made: MadeLab<'a>,
    /// When it came up, in UTC, in the form of RFC 3339.
    #[cfg_attr(test, schemars(extend("format" = "date-time")))]
    pub(crate) started_at: &'a str,
    /// Its last status.
    pub(crate) status: &'a Status,
}
