//! What to capture and where to write it; why a capture does not begin.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use longhaul_kernel::link::LinkError;
use longhaul_kernel::open_folder::OpenFolder;
use longhaul_kernel::packet::OpenError;
use longhaul_kernel::socket_filter::SocketFilter;
use longhaul_session::SessionError;
use longhaul_units::{Bytes, Nanos};

use crate::link::LogTargets;

/// What to capture, and how much of it.
#[derive(Debug, Clone)]
pub struct CaptureSpec {
    /// Interfaces, by their names in the calling thread's network namespace.
    pub interfaces: Vec<String>,
    /// Bytes of each frame.
    pub snap_bytes: u32,
    /// Selects the frames. It must keep `snap_bytes` of each.
    pub filter: SocketFilter,
    /// The filter as the user wrote it, for the files.
    pub filter_text: String,
    /// Memory of all rings of an interface.
    pub ring_bytes: usize,
    /// Rings per interface. `None`: one per receive queue, at most one per CPU.
    pub rings: Option<usize>,
    /// Memory of the blocks that wait for the writing thread.
    pub waiting_bytes: usize,
    /// Also record frames for other hosts.
    pub promiscuous: bool,
    /// Use time stamps of the NIC where it has them.
    pub nic_stamps: bool,
    /// End after this many packets.
    pub packets_most: Option<u64>,
    /// End after this many bytes of frames.
    pub bytes_most: Option<u64>,
    /// Where to write pcapng while the capture runs, in place of files: stdout.
    pub stream: Option<Arc<OwnedFd>>,
    /// The files; `None` if snippets go only to logging hosts or to `stream`.
    pub spool: Option<SpoolSpec>,
    /// The logging hosts.
    pub logging: LogTargets,
    /// Name and version of the program, for the files.
    pub captured_by: String,
    /// The host name, for the files.
    pub host: String,
}

/// Where to write a spool, and how much of it to keep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpoolSpec {
    /// The folder. It is created if it is missing.
    pub folder: PathBuf,
    /// The folder itself, where it is open already; `folder` then only names it.
    pub opened: Option<OpenFolder>,
    /// A spool that is there is removed when this one begins, or is [`CaptureError::InUse`]; else its folder is [`CaptureError::Occupied`].
    pub replace: bool,
    /// A new file begins at this length.
    pub roll_bytes: Bytes,
    /// A new file also begins at this age.
    pub roll_time: Option<Nanos>,
    /// The oldest files are removed when all files together are longer than this.
    pub keep_bytes: Option<Bytes>,
}

/// Why a capture does not begin.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The interface cannot be looked up.
    #[error("interface {name}: {source}")]
    Link {
        /// Its name.
        name: String,
        /// The kernel's error.
        source: LinkError,
    },
    /// The kernel does not open a ring.
    #[error("interface {name}: {source}")]
    Open {
        /// Its name.
        name: String,
        /// Why.
        source: OpenError,
    },
    /// Its frames begin with neither Ethernet nor IP.
    #[error("interface {name}: its frames begin with neither Ethernet nor IP (ARPHRD {hardware_type})")]
    LinkType {
        /// Its name.
        name: String,
        /// `ARPHRD_…`.
        hardware_type: u16,
    },
    /// The folder cannot be written.
    #[error("folder {folder}: {source}")]
    Folder {
        /// Which.
        folder: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The folder already holds a capture.
    #[error("folder {0} already holds a capture")]
    Occupied(PathBuf),
    /// The folder holds a capture that goes on.
    #[error("folder {0} holds a capture that still writes to it")]
    InUse(PathBuf),
    /// A logging host does not accept the capture.
    #[error("logging host {name}: {source}")]
    Logger {
        /// The name that the user gave.
        name: String,
        /// Why.
        source: SessionError,
    },
    /// A thread or a descriptor is missing.
    #[error("cannot start: {0}")]
    Start(io::Error),
}
