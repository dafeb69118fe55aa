//! Capturing packet heads: one thread that empties the kernel's rings, one that writes.
//!
//! The reading thread does nothing but pack heads into blocks (`reading.rs`); checksums, files and the disk's moods are the
//! writing thread's (`writing.rs`). Between them is a fixed number of blocks: where the disk does not keep up, packets stay in the
//! ring, and what the kernel then drops is entered into the ledger as dropped by the writer.
//!
//! Where heads go to logging hosts a third thread stands between the two, or in the place of the second (`forwarding.rs`): it repacks heads
//! into datagrams for its links (`link.rs`). The other end of a link is `logging.rs`, a listener, and `logging_session.rs`: datagrams into
//! the same blocks for the same writing thread.

mod files;
mod forwarding;
mod link;
mod logging;
mod logging_session;
mod pool;
mod reading;
mod writing;

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

use longhaul_kernel::capture_ring::{CaptureOptions, CaptureRing};
use longhaul_kernel::clock::realtime;
use longhaul_kernel::host::receive_queues;
use longhaul_kernel::link::{LinkError, Netlink};
use longhaul_kernel::packet::OpenError;
use longhaul_kernel::schedule::online_cpus;
use longhaul_kernel::socket_filter::SocketFilter;
use longhaul_kernel::udp::{NicStamps, NicStampsError, nic_stamps_support};
use longhaul_session::control::SessionError;
use longhaul_trace::LinkType;
use longhaul_trace::ledger::{Ledger, Place};
use longhaul_trace::spool::{Interface, Mark, Meta, PacketBlock, Share};
use longhaul_units::Nanos;

use forwarding::Forwarder;
use link::LogLink;
use pool::Pool;
use reading::{Reader, Watched};
use writing::Writer;

use crate::driver::random;

pub use files::SpoolSpec;
pub use link::{DATAGRAM_BYTES_LEAST, DATAGRAM_BYTES_LONGEST, LinkEnd, LogTarget, LogTargets, room_for_heads};
pub use logging::{LogHost, LogOptions};
pub use logging_session::{End, Logged};

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
    writer: Option<JoinHandle<writing::Written>>,
    forwarder: Option<JoinHandle<forwarding::Forwarded>>,
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
        let mut opened = open_rings(spec)?;
        let interfaces = opened.interfaces.clone();
        let meta = Meta {
            captured_by: spec.captured_by.clone(),
            host: spec.host.clone(),
            started_ns,
            file: 1,
            snap_bytes: spec.snap_bytes,
            filter: spec.filter_text.clone(),
            interfaces,
            share: None,
        };
        let mut links = Vec::new();
        if !spec.logging.targets.is_empty() {
            // Packets that pass while links are made are no part of the capture.
            drop(opened);
            links = open_links(&spec.logging, &meta)?;
            notice_own_traffic(spec, &links, &counters);
            opened = open_rings(spec)?;
        }
        let Opened { rings, stamps, nic_refusals, .. } = opened;
        let rings_count = rings.len();
        let spool = spec.spool.as_ref().map(|spool| files::SpoolFiles::create(spool, &meta)).transpose()?;

        // A file is a few blocks, or its length would not be what was asked for.
        let file_bytes = spec.spool.as_ref().map_or(u64::MAX, |spool| spool.roll_bytes.0);
        let block_bytes = (file_bytes / 4).min(BLOCK_BYTES as u64) as usize;
        let block_bytes = block_bytes.max(BLOCK_BYTES_LEAST);
        let blocks = (spec.waiting_bytes / block_bytes).max(rings.len() + 2);
        let (to_next, from_reader) = sync_channel(blocks + 1024);
        let pool = Arc::new(Pool::new(blocks, block_bytes + (64 << 10)));
        let stop = Arc::new(AtomicBool::new(false));
        let done = Arc::new(AtomicBool::new(false));
        let marks = Arc::new(Mutex::new(Vec::new()));
        let reader = Reader {
            rings,
            pool: pool.clone(),
            to_writer: to_next,
            counters: counters.clone(),
            stop: stop.clone(),
            done: done.clone(),
            marks: marks.clone(),
            packets_most: spec.packets_most,
            bytes_most: spec.bytes_most,
            snap_bytes: spec.snap_bytes as usize,
            block_bytes,
        };
        let thread = |name: &str| Builder::new().name(name.into());
        let write = |from_reader, spool| {
            let writer = Writer { from_reader, pool: pool.clone(), spool, counters: counters.clone() };
            thread("capture-write").spawn(move || writer.run()).map_err(CaptureError::Start)
        };
        let (mut writer, mut forwarder) = (None, None);
        if links.is_empty() {
            writer = spool.map(|spool| write(from_reader, spool)).transpose()?;
        } else {
            let mut to_writer = None;
            if let Some(spool) = spool {
                let (to, from_forwarder) = sync_channel(blocks + 1024);
                writer = Some(write(from_forwarder, spool)?);
                to_writer = Some(to);
            }
            let (pool, counters, started_ns) = (pool.clone(), counters.clone(), meta.started_ns);
            let forwarding = Forwarder { from_reader, to_writer, pool, counters, links, started_ns };
            forwarder = Some(thread("capture-forward").spawn(move || forwarding.run()).map_err(CaptureError::Start)?);
        }
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
            forwarder,
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
        let forwarded = self.forwarder.and_then(|thread| thread.join().ok()).unwrap_or_default();
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut written_bytes = load(&self.counters.written_bytes);
        let written = match self.writer {
            Some(writer) => {
                let written = writer.join().unwrap_or_default();
                ledger.add(&written.ledger);
                ledger.written_packets = load(&self.counters.written_packets);
                written
            }
            // The files are those of the logging hosts.
            None => {
                ledger.add(&Ledger { seen_packets: 0, ..forwarded.ledger });
                for link in &forwarded.links {
                    ledger.add(&Ledger { seen_packets: 0, ..link.ledger.clone() });
                    written_bytes += link.progress.written_bytes;
                }
                writing::Written::default()
            }
        };
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
            written_bytes,
            cpu: Nanos(load(&self.counters.cpu_ns)),
            disk_error: written.disk_error,
            loggers: forwarded.links,
            nic_refusals: self.nic_refusals,
        }
    }
}

/// Links to all logging hosts, which from then on wait for heads; each is told `meta` and which part it gets.
fn open_links(logging: &LogTargets, meta: &Meta) -> Result<Vec<LogLink>, CaptureError> {
    let failed = |name: &str| {
        let name = name.to_owned();
        move |source| CaptureError::Logger { name, source }
    };
    let capture = random().map_err(failed("")).map(|bytes| format!("{:016x}", u64::from_ne_bytes(bytes)))?;
    let parts = logging.targets.len() as u16;
    let mut links = Vec::new();
    for (part, target) in (1..).zip(&logging.targets) {
        let share = Some(Share { capture: capture.clone(), part, parts });
        let told = Meta { share, ..meta.clone() };
        links.push(LogLink::open(target, &told, logging).map_err(failed(&target.name))?);
    }
    Ok(links)
}

/// Tells the user where a link's own datagrams are captured as well. What a filter leaves out is not known here: then it says nothing.
fn notice_own_traffic(spec: &CaptureSpec, links: &[LogLink], counters: &Counters) {
    let Some(mut netlink) = Netlink::open().ok().filter(|_| spec.filter_text.is_empty()) else { return };
    let addresses = netlink.addresses().unwrap_or_default();
    for link in links {
        let index = addresses.iter().find(|address| address.ip == link.local_ip()).map(|address| address.ifindex);
        let mut is_way = |name: &&String| netlink.link_by_name(name).is_ok_and(|found| Some(found.index) == index);
        if let Some(interface) = spec.interfaces.iter().find(|name| is_way(name)) {
            let (name, port) = (link.name(), link.port());
            counters.notice(format!(
                "what goes to {name} leaves by {interface} and is captured too: --filter 'not port {port}' leaves it out"
            ));
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
