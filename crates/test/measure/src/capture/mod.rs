//! Capturing packet heads: one thread that empties the kernel's rings, one that writes.
//!
//! The reading thread does nothing but pack heads into blocks (`reading.rs`); checksums, files and the disk's moods are the
//! writing thread's (`writing.rs`). Between them is a fixed number of blocks: where the disk does not keep up, packets stay in the
//! ring, and what the kernel then drops is entered into the ledger as dropped by the writer.
//!
//! Where heads go to logging hosts a third thread stands between the two, or in the place of the second (`forwarding.rs`): it repacks heads
//! into datagrams for its links (`link/`). The other end of a link is `logging/`, a listener: datagrams into the same blocks for the same
//! writing thread.

mod files;
mod forwarding;
mod link;
mod logging;
mod pool;
mod reading;
mod rings;
mod running;
mod writing;

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Mutex, PoisonError};

use longhaul_kernel::link::LinkError;
use longhaul_kernel::packet::OpenError;
use longhaul_kernel::socket_filter::SocketFilter;
use longhaul_session::control::SessionError;
use longhaul_trace::ledger::{Ledger, Place};
use longhaul_trace::spool::{Mark, Meta, PacketBlock};
use longhaul_units::Nanos;

pub use files::SpoolSpec;
pub use link::{DATAGRAM_BYTES_LEAST, DATAGRAM_BYTES_LONGEST, LinkEnd, LogTarget, LogTargets, room_for_heads};
pub use logging::{End, LogHost, LogOptions, Logged};
pub use running::Running;

/// A block is handed on when it is this long: what a write past the page cache costs beside its bytes is then little. What a kill loses
/// is bounded by time, not by this.
const BLOCK_BYTES: usize = 2 << 20;
/// A block that is not full is handed over by the kernel after this long.
const KERNEL_BLOCK_TIMEOUT_MS: u32 = 20;

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

/// What a capture has done so far; readable while it runs.
#[derive(Debug, Default)]
pub struct Counters {
    /// Packets taken out of the rings.
    pub read_packets: AtomicU64,
    /// Bytes that their frames had.
    pub frame_bytes: AtomicU64,
    /// Super-packets among them.
    pub super_packets: AtomicU64,
    /// Packets written.
    pub written_packets: AtomicU64,
    /// Bytes written.
    pub written_bytes: AtomicU64,
    /// By place.
    pub dropped: [AtomicU64; Place::ALL.len()],
    /// The disk is full at the moment.
    pub disk_full: AtomicBool,
    /// CPU time of the reading and the writing thread, once they have ended.
    pub cpu_ns: AtomicU64,
    /// What the user should hear at once.
    notices: Mutex<Vec<String>>,
}

impl Counters {
    fn add(counter: &AtomicU64, amount: u64) {
        counter.fetch_add(amount, Ordering::Relaxed);
    }

    fn dropped_at(&self, place: Place, packets: u64) {
        let at = Place::ALL.iter().position(|known| *known == place).unwrap_or(0);
        Self::add(&self.dropped[at], packets);
    }

    fn notice(&self, text: String) {
        self.notices.lock().unwrap_or_else(PoisonError::into_inner).push(text);
    }

    /// What the user should hear at once, since the last time.
    pub fn take_notices(&self) -> Vec<String> {
        std::mem::take(&mut self.notices.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Packets dropped so far, in all places.
    pub fn dropped_packets(&self) -> u64 {
        self.dropped.iter().map(|counter| counter.load(Ordering::Relaxed)).sum()
    }
}

/// What the reading thread hands to the writing one.
#[derive(Debug)]
enum ToWriter {
    Block(PacketBlock),
    /// No later packet is older than this.
    Tick(i64),
    /// Since the one before, but for what the writer does itself.
    Ledger(Ledger),
    Mark(Mark),
    /// The capture ended elsewhere without its last word: the files must not say that they are whole.
    Cut,
}

/// What came of a capture.
#[derive(Debug)]
pub struct Captured {
    /// The whole account.
    pub ledger: Ledger,
    /// What it was.
    pub meta: Meta,
    /// Files that are there, oldest first.
    pub files: Vec<PathBuf>,
    /// Files that `keep` removed.
    pub files_removed: u64,
    /// Moments that were marked.
    pub marks: Vec<Mark>,
    /// Packets read, super-packets among them.
    pub read_packets: u64,
    /// Bytes of their frames.
    pub frame_bytes: u64,
    /// Super-packets.
    pub super_packets: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// CPU time of both threads.
    pub cpu: Nanos,
    /// What the disk said last, where something could not be written.
    pub disk_error: Option<String>,
    /// What became of each link to a logging host.
    pub loggers: Vec<LinkEnd>,
    /// Why interfaces have the kernel's stamps although their own were asked for.
    pub nic_refusals: Vec<String>,
}

type ToWriterSender = SyncSender<ToWriter>;
