//! A capture from start to end: its rings, its links, its threads.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};
use std::thread::{Builder, JoinHandle};

use longhaul_captures::ledger::Ledger;
use longhaul_captures::spool::{Mark, Meta, Share};
use longhaul_kernel::address::zone_of;
use longhaul_kernel::clock::realtime;
use longhaul_kernel::link::Netlink;
use longhaul_kernel::nic_stamps::NicStamps;
use longhaul_units::Nanos;

use crate::blocks::{BLOCK_BYTES, BLOCK_BYTES_LEAST, Pool};
use crate::counters::{Counters, Gone};
use crate::files::SpoolFiles;
use crate::forwarding::{Forwarded, Forwarder};
use crate::link::{LinkEnd, LogLink, LogTargets};
use crate::reading::Reader;
use crate::rings::{Opened, open_rings};
use crate::spec::{CaptureError, CaptureSpec};
use crate::streaming::Streamer;
use crate::writing::{Writer, Written};
use longhaul_peer::control::random;

/// The outcome of a capture.
#[derive(Debug)]
pub struct Captured {
    /// The complete account.
    pub ledger: Ledger,
    /// What was captured.
    pub meta: Meta,
    /// The files that exist, oldest first.
    pub files: Vec<PathBuf>,
    /// Files that `keep` removed.
    pub files_removed: u64,
    /// Moments that the user marked.
    pub marks: Vec<Mark>,
    /// Packets read from the rings; a super-packet counts as one.
    pub read_packets: u64,
    /// Bytes of their frames on the wire.
    pub frame_bytes: u64,
    /// Of those packets, the super-packets.
    pub super_packets: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// CPU time of all threads of the capture.
    pub cpu: Nanos,
    /// The last error of the disk, if there was one.
    pub disk_error: Option<String>,
    /// The outcome of each link to a logging host.
    pub loggers: Vec<LinkEnd>,
    /// Why interfaces use time stamps of the kernel although those of the NIC were requested.
    pub nic_refusals: Vec<String>,
    /// The interfaces that were removed meanwhile.
    pub gone: Vec<Gone>,
}

/// A running capture.
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
    writer: Option<JoinHandle<Written>>,
    forwarder: Option<JoinHandle<Forwarded>>,
    _stamps: Vec<NicStamps>,
}

impl Running {
    /// Opens the rings and starts. Packets are recorded from then on.
    ///
    /// # Errors
    /// Any [`CaptureError`].
    pub fn start(spec: &CaptureSpec) -> Result<Self, CaptureError> {
        if let Some(spool) = &spec.spool {
            SpoolFiles::check(spool)?;
        }
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
            // Packets that pass while the links are set up do not belong to the capture.
            drop(opened);
            links = open_links(&spec.logging, &meta)?;
            notice_own_traffic(spec, &links, &counters);
            opened = open_rings(spec)?;
        }
        let Opened { rings, stamps, nic_refusals, .. } = opened;
        let rings_count = rings.len();
        // After all that may refuse the capture: it removes the spool that it replaces.
        let spool = spec.spool.as_ref().map(|spool| SpoolFiles::create(spool, &meta)).transpose()?;

        // A file has at least a few blocks, or its length would differ from the requested one.
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
        let writes = spool.is_some() || spec.stream.is_some();
        let write = |from_reader| {
            let (pool, counters) = (pool.clone(), counters.clone());
            let thread = thread("capture-write");
            match (spool, &spec.stream) {
                (Some(spool), _) => {
                    let writer = Writer { from_reader, account: Arc::default(), pool, spool, counters };
                    thread.spawn(move || writer.run()).map(Some)
                }
                (None, Some(stream)) => {
                    let (stop, done) = (stop.clone(), done.clone());
                    let streamer = Streamer {
                        from_reader,
                        pool,
                        counters,
                        stream: stream.clone(),
                        stop,
                        done,
                        meta: meta.clone(),
                    };
                    thread.spawn(move || streamer.run()).map(Some)
                }
                (None, None) => Ok(None),
            }
            .map_err(CaptureError::Start)
        };
        let (mut writer, mut forwarder) = (None, None);
        if links.is_empty() {
            writer = write(from_reader)?;
        } else {
            let mut to_writer = None;
            if writes {
                let (to, from_forwarder) = sync_channel(blocks + 1024);
                writer = write(from_forwarder)?;
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

    /// Open rings, of all interfaces.
    pub fn rings(&self) -> usize {
        self.rings
    }

    /// The counters so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Marks this moment and returns the mark.
    pub fn mark(&self) -> Mark {
        let mut marks = self.marks.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let mark = Mark { number: marks.len() as u64 + 1, at_ns: realtime().0 as i64 };
        marks.push(mark);
        mark
    }

    /// Whether the capture has ended by itself: it has the requested packets or bytes, or all interfaces were removed.
    pub fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }

    /// Ends the capture and writes what still waits.
    pub fn stop(self) -> Captured {
        self.stop.store(true, Ordering::Release);
        // Of a thread that panicked, only the counters are left.
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
            // Only the logging hosts have files.
            None => {
                ledger.add(&Ledger { seen_packets: 0, ..forwarded.ledger });
                for link in &forwarded.links {
                    ledger.add(&Ledger { seen_packets: 0, ..link.ledger.clone() });
                    written_bytes = written_bytes.saturating_add(link.progress.written_bytes);
                }
                Written::default()
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
            gone: self.counters.take_gone(),
        }
    }
}

/// Opens the links to all logging hosts. Tells each the `meta` of the capture and which part it gets.
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

/// Tells the user if the datagrams of a link are captured too. With a filter it stays silent, as the filter may leave them out.
fn notice_own_traffic(spec: &CaptureSpec, links: &[LogLink], counters: &Counters) {
    let Some(mut netlink) = Netlink::open().ok().filter(|_| spec.filter_text.is_empty()) else { return };
    let addresses = netlink.addresses().unwrap_or_default();
    for link in links {
        let (own, zone) = (link.local_address().ip(), zone_of(link.local_address()));
        let mut indices = addresses.iter().filter(|address| address.ip == own).map(|address| address.ifindex);
        let index = indices.find(|index| zone.is_none_or(|zone| zone == *index));
        let mut is_way = |name: &&String| netlink.link_by_name(name).is_ok_and(|found| Some(found.index) == index);
        if let Some(interface) = spec.interfaces.iter().find(|name| is_way(name)) {
            let (name, port) = (link.name(), link.port());
            counters.notice(format!(
                "datagrams to {name} leave through {interface} and are captured too; a filter \"not port {port}\" leaves them out"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use longhaul_kernel::socket_filter::SocketFilter;
    use longhaul_units::Bytes;

    use super::*;
    use crate::spec::SpoolSpec;

    #[test]
    fn a_capture_that_does_not_begin_leaves_the_spool_of_before() {
        let folder = std::env::temp_dir().join(format!("longhaul-capture-before-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let before = folder.join("00000001.spool");
        fs::write(&before, "before").unwrap();
        let spec = |replace| CaptureSpec {
            interfaces: vec!["longhaul-none".into()],
            snap_bytes: 96,
            filter: SocketFilter::all(96),
            filter_text: String::new(),
            ring_bytes: 1 << 20,
            rings: Some(1),
            waiting_bytes: 1 << 20,
            promiscuous: false,
            nic_stamps: false,
            packets_most: None,
            bytes_most: None,
            stream: None,
            spool: Some(SpoolSpec {
                folder: folder.clone(),
                opened: None,
                replace,
                roll_bytes: Bytes(1 << 30),
                roll_time: None,
                keep_bytes: None,
            }),
            logging: LogTargets::default(),
            captured_by: "test".into(),
            host: "test".into(),
        };
        let error = Running::start(&spec(true)).unwrap_err();
        assert!(matches!(error, CaptureError::Link { .. }), "{error}");
        // Where it may not be replaced, no interface is opened and no logging host asked.
        let error = Running::start(&spec(false)).unwrap_err();
        assert!(matches!(error, CaptureError::Occupied(_)), "{error}");
        assert_eq!(fs::read(&before).unwrap(), b"before");
        fs::remove_dir_all(&folder).unwrap();
    }
}
