//! What to capture and where to write it; why a capture does not begin.

use std::io;
use std::path::PathBuf;

use longhaul_kernel::link::LinkError;
use longhaul_kernel::packet::OpenError;
use longhaul_kernel::socket_filter::SocketFilter;
use longhaul_session::control::SessionError;
use longhaul_units::{Bytes, Nanos};

use crate::link::LogTargets;

/// What to capture, and until when.
#[derive(Debug, Clone)]
pub struct CaptureSpec {
    /// Names of interfaces in the calling thread's network namespace.
    pub interfaces: Vec<String>,
    /// Bytes of each frame.
    pub snap_bytes: u32,
    /// Which frames; must keep `snap_bytes`.
    pub filter: SocketFilter,
    /// The same in the user's words, for the files.
    pub filter_text: String,
    /// Memory of each interface's rings together.
    pub ring_bytes: usize,
    /// Rings of each interface; `None`: as many as it has receive queues and this host CPUs.
    pub rings: Option<usize>,
    /// Memory of blocks that wait for the writing thread.
    pub waiting_bytes: usize,
    /// See frames for other hosts too.
    pub promiscuous: bool,
    /// Stamps of the NIC where it has them.
    pub nic_stamps: bool,
    /// End after this many packets.
    pub packets_most: Option<u64>,
    /// End after this many bytes of frames.
    pub bytes_most: Option<u64>,
    /// The files; `None` where heads go to logging hosts alone.
    pub spool: Option<SpoolSpec>,
    /// Where heads go besides.
    pub logging: LogTargets,
    /// What names the program in the files.
    pub captured_by: String,
    /// The host's name.
    pub host: String,
}

/// Where to write, and how much.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpoolSpec {
    /// The folder; made where it is missing.
    pub folder: PathBuf,
    /// A file is closed and the next begun at this length.
    pub roll_bytes: Bytes,
    /// Or at this age.
    pub roll_time: Option<Nanos>,
    /// The oldest files go when all together are longer.
    pub keep_bytes: Option<Bytes>,
}

/// Why a capture does not begin.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// There is no such interface.
    #[error("interface {name}: {source}")]
    Link {
        /// Its name.
        name: String,
        /// What the kernel said.
        source: LinkError,
    },
    /// Its frames cannot be had.
    #[error("interface {name}: {source}")]
    Open {
        /// Its name.
        name: String,
        /// Why.
        source: OpenError,
    },
    /// Its frames begin with something else than Ethernet or IP.
    #[error(
        "interface {name}: its frames begin with something that is neither Ethernet nor IP (ARPHRD {hardware_type})"
    )]
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
    /// The folder holds another capture.
    #[error("folder {0} holds a capture already")]
    Occupied(PathBuf),
    /// A logging host does not take the capture.
    #[error("logging host {name}: {source}")]
    Logger {
        /// As the user names it.
        name: String,
        /// Why.
        source: SessionError,
    },
    /// No thread, no descriptor.
    #[error("cannot start: {0}")]
    Start(io::Error),
}
