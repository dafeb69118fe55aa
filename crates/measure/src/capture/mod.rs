//! Capturing packet heads: one thread that empties the kernel's rings, one that writes.
//!
//! The reading thread does nothing but pack heads into blocks (`reading.rs`); checksums, files and the disk's moods are the
//! writing thread's (`writing.rs`). Between them is a fixed number of blocks: where the disk does not keep up, packets stay in the
//! ring, and what the kernel then drops is entered into the ledger as dropped by the writer.

mod files;
mod pool;
mod reading;
mod writing;

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::{Builder, JoinHandle};

use longhaul_kernel::capture_ring::{CaptureOptions, CaptureRing};
use longhaul_kernel::clock::realtime;
use longhaul_kernel::host::receive_queues;
use longhaul_kernel::link::{LinkError, Netlink};
use longhaul_kernel::packet::OpenError;
use longhaul_kernel::schedule::online_cpus;
use longhaul_kernel::socket_filter::SocketFilter;
use longhaul_kernel::udp::{NicStamps, NicStampsError, nic_stamps_support};
use longhaul_trace::LinkType;
use longhaul_trace::ledger::{Ledger, Place};
use longhaul_trace::spool::{Interface, Mark, Meta, PacketBlock};
use longhaul_units::Nanos;

use pool::Pool;
use reading::{Reader, Watched};
use writing::Writer;

pub use files::SpoolSpec;

/// A block is handed on when it is this long: what a write past the page cache costs beside its bytes is then little. What a kill loses
/// is bounded by time, not by this.
const BLOCK_BYTES: usize = 2 << 20;
/// Nor shorter than this, where files are short.
const BLOCK_BYTES_LEAST: usize = 64 << 10;
/// A block that is not full is handed over by the kernel after this long.
const KERNEL_BLOCK_TIMEOUT_MS: u32 = 20;
/// Rings that an interface has unasked, at most: beyond, memory for each is small.
const RINGS_MOST_UNASKED: usize = 16;

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
    /// The files.
    pub spool: SpoolSpec,
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
}

impl Counters {
    fn add(counter: &AtomicU64, amount: u64) {
        counter.fetch_add(amount, Ordering::Relaxed);
    }

    fn dropped_at(&self, place: Place, packets: u64) {
        let at = Place::ALL.iter().position(|known| *known == place).unwrap_or(0);
        Self::add(&self.dropped[at], packets);
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
    /// Why interfaces have the kernel's stamps although their own were asked for.
    pub nic_refusals: Vec<String>,
}

/// A capture that runs.
#[derive(Debug)]
pub struct Running {
    meta: Meta,
    rings: usize,
    nic_refusals: Vec<String>,
    counters: Arc<Counters>,
    stop: Arc<AtomicBool>,
    done: Arc<AtomicBool>,
    marks: Arc<Mutex<Vec<Mark>>>,
    reader: JoinHandle<Ledger>,
    writer: JoinHandle<writing::Written>,
    _stamps: Vec<NicStamps>,
}

impl Running {
    /// Opens the rings and starts. Packets are seen from then on.
    ///
    /// # Errors
    /// Any [`CaptureError`].
    pub fn start(spec: &CaptureSpec) -> Result<Self, CaptureError> {
        let started_ns = realtime().0 as i64;
        let counters = Arc::new(Counters::default());
        let Opened { rings, interfaces, stamps, nic_refusals } = open_rings(spec)?;
        let rings_count = rings.len();
        let meta = Meta {
            captured_by: spec.captured_by.clone(),
            host: spec.host.clone(),
            started_ns,
            file: 1,
            snap_bytes: spec.snap_bytes,
            filter: spec.filter_text.clone(),
            interfaces,
        };
        let spool = files::SpoolFiles::create(&spec.spool, &meta)?;

        // A file is a few blocks, or its length would not be what was asked for.
        let block_bytes = (spec.spool.roll_bytes.0 / 4).min(BLOCK_BYTES as u64) as usize;
        let block_bytes = block_bytes.max(BLOCK_BYTES_LEAST);
        let blocks = (spec.waiting_bytes / block_bytes).max(rings.len() + 2);
        let (to_writer, from_reader) = sync_channel(blocks + 1024);
        let pool = Arc::new(Pool::new(blocks, block_bytes + (64 << 10)));
        let stop = Arc::new(AtomicBool::new(false));
        let done = Arc::new(AtomicBool::new(false));
        let marks = Arc::new(Mutex::new(Vec::new()));
        let reader = Reader {
            rings,
            pool: pool.clone(),
            to_writer,
            counters: counters.clone(),
            stop: stop.clone(),
            done: done.clone(),
            marks: marks.clone(),
            packets_most: spec.packets_most,
            bytes_most: spec.bytes_most,
            snap_bytes: spec.snap_bytes as usize,
            block_bytes,
        };
        let writer = Writer { from_reader, pool, spool, counters: counters.clone() };
        let thread = |name: &str| Builder::new().name(name.into());
        let writer = thread("capture-write").spawn(move || writer.run()).map_err(CaptureError::Start)?;
        let reader = thread("capture-read").spawn(move || reader.run()).map_err(CaptureError::Start)?;
        Ok(Self {
            meta,
            rings: rings_count,
            nic_refusals,
            counters,
            stop,
            done,
            marks,
            reader,
            writer,
            _stamps: stamps,
        })
    }

    /// What it is.
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// Rings of all interfaces together.
    pub fn rings(&self) -> usize {
        self.rings
    }

    /// What it has done so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Marks this moment; which mark it is.
    pub fn mark(&self) -> Mark {
        let mut marks = self.marks.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let mark = Mark { number: marks.len() as u64 + 1, at_ns: realtime().0 as i64 };
        marks.push(mark);
        mark
    }

    /// Whether it has ended by itself: the packets or bytes that were asked for are there, or all interfaces are gone.
    pub fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }

    /// Ends it, writes what waits, and says what came of it.
    pub fn stop(self) -> Captured {
        self.stop.store(true, Ordering::Release);
        // A thread of ours that panicked leaves nothing to tell but what the counters say.
        let mut ledger = self.reader.join().unwrap_or_default();
        let written = self.writer.join().unwrap_or_default();
        ledger.add(&written.ledger);
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ledger.written_packets = load(&self.counters.written_packets);
        let marks = self.marks.lock().map(|marks| marks.clone()).unwrap_or_default();
        Captured {
            ledger,
            meta: self.meta,
            files: written.files,
            files_removed: written.files_removed,
            marks,
            read_packets: load(&self.counters.read_packets),
            frame_bytes: load(&self.counters.frame_bytes),
            super_packets: load(&self.counters.super_packets),
            written_bytes: load(&self.counters.written_bytes),
            cpu: Nanos(load(&self.counters.cpu_ns)),
            disk_error: written.disk_error,
            nic_refusals: self.nic_refusals,
        }
    }
}

/// What a capture listens to.
#[derive(Default)]
struct Opened {
    /// Those of an interface one after the other.
    rings: Vec<Watched>,
    interfaces: Vec<Interface>,
    /// What NICs were told, for as long as it lasts.
    stamps: Vec<NicStamps>,
    nic_refusals: Vec<String>,
}

fn open_rings(spec: &CaptureSpec) -> Result<Opened, CaptureError> {
    let link_error = |name: &str| {
        let name = name.to_owned();
        move |source| CaptureError::Link { name, source }
    };
    let mut netlink = Netlink::open().map_err(link_error(spec.interfaces.first().map_or("", String::as_str)))?;
    let mut opened = Opened::default();
    for name in &spec.interfaces {
        let link = netlink.link_by_name(name).map_err(link_error(name))?;
        let refused = |error: NicStampsError| opened.nic_refusals.push(error.to_string());
        let nic = spec.nic_stamps.then(|| NicStamps::enable(name).map_err(refused).ok()).flatten();
        let count = spec.rings.unwrap_or_else(|| rings_of(name));
        let options = CaptureOptions {
            ring_bytes: spec.ring_bytes / count.max(1),
            block_timeout_ms: KERNEL_BLOCK_TIMEOUT_MS,
            filter: spec.filter.clone(),
            promiscuous: spec.promiscuous,
            nic_stamps: nic.is_some(),
        };
        let rings = CaptureRing::open_several(link.index, &options, count)
            .map_err(|source| CaptureError::Open { name: name.clone(), source })?;
        let link_type = match rings.first().map_or(0, CaptureRing::hardware_type) {
            1 | 772 => LinkType::Ethernet,
            65_534 => LinkType::RawIp,
            hardware_type => return Err(CaptureError::LinkType { name: name.clone(), hardware_type }),
        };
        let clock = match (&nic, nic_stamps_support(name)) {
            (Some(_), Ok(support)) => match support.clock_index {
                Some(index) => format!("received: NIC ptp{index}; sent: kernel CLOCK_REALTIME"),
                None => "received: NIC; sent: kernel CLOCK_REALTIME".into(),
            },
            _ => "kernel CLOCK_REALTIME".into(),
        };
        opened.stamps.extend(nic);
        let number = opened.interfaces.len() as u16;
        opened.interfaces.push(Interface { name: name.clone(), link: link_type, mtu_bytes: link.mtu_bytes, clock });
        opened.rings.extend(rings.into_iter().map(|ring| Watched::new(ring, number, link_type, link.index)));
    }
    Ok(opened)
}

/// How many rings serve interface `name` without being asked for.
fn rings_of(name: &str) -> usize {
    let cpus = online_cpus().map_or(1, |cpus| cpus.len());
    (receive_queues(name) as usize).min(cpus).min(RINGS_MOST_UNASKED)
}

type ToWriterSender = SyncSender<ToWriter>;
