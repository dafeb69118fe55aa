//! Why settings were not changed or put back.

use std::io;
use std::path::PathBuf;

use longhaul_kernel::namespace::NamespaceError;

use crate::place::HostSetting;

/// Why settings were not changed or put back.
#[derive(Debug, thiserror::Error)]
pub enum TuneError {
    /// The network namespace cannot be identified.
    #[error("cannot identify this network namespace: {0}")]
    Namespace(NamespaceError),
    /// The boot cannot be identified.
    #[error("cannot identify this boot: {0}")]
    Boot(String),
    /// The state cannot be read or written.
    #[error("{}: {source}", path.display())]
    Store {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The state could not be written after settings were changed. What was written before the first of them is enough to put them back.
    #[error("{}: {source}; some settings are changed", path.display())]
    LeftChanged {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The state is not what longhaul wrote.
    #[error("{}: {why}", path.display())]
    Broken {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// Another command changes settings, and did not end within some seconds.
    #[error("{}: {} changes settings there", folder.display(), by.map_or("another process".into(), |pid| format!("process {pid}")))]
    Busy {
        /// The folder of the states.
        folder: PathBuf,
        /// The number of its process.
        by: Option<u32>,
    },
    /// Settings of an earlier command wait to be confirmed, or it was killed while it changed them.
    #[error("settings that were changed before are not confirmed")]
    Pending,
    /// Settings of an earlier command are kept: what goes back without a confirmation would take them along.
    #[error("earlier changes are kept, and would be put back together with these")]
    Earlier,
    /// Nothing is changed.
    #[error("no settings are changed here")]
    Nothing,
    /// No setting could be changed: this is the first.
    #[error("no setting could be changed: {place} = {value}: {why}")]
    Refused {
        /// The setting.
        place: HostSetting,
        /// What it should have become.
        value: String,
        /// The error of the kernel, or that somebody else has set it meanwhile, that a test holds it, or that the command was asked to end.
        why: String,
    },
    /// Drop-ins are for the whole machine.
    #[error("settings of this network namespace cannot be made to last: it is not the machine's first one")]
    NotFirst,
    /// A drop-in could not be written.
    #[error("{}: {source}", path.display())]
    DropIn {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
}
