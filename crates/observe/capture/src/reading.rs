//! The reading thread: moves packets from the rings into blocks.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use longhaul_captures::ledger::{DroppedAt, Gap, Ledger};
use longhaul_captures::spool::{Mark, PacketBlock};
use longhaul_captures::{InterfaceDirection, LinkType, Record};
use longhaul_kernel::capture_ring::{CaptureRing, RingStatistics, Snippet};
use longhaul_kernel::clock::{monotonic, realtime, thread_cpu_time};
use longhaul_kernel::link::Netlink;
use longhaul_kernel::wait::Poller;
use longhaul_units::Nanos;
use longhaul_wire::{Shape, VnetHeader};

use crate::blocks::{Pool, ToWriter};
use crate::counters::{Counters, Gone};

/// The kernel passes on a block that is not full after this time.
pub(crate) const KERNEL_BLOCK_TIMEOUT_MS: u32 = 20;
/// How often the kernel's drop count is read: the precision of a gap's start and end.
const STATISTICS_EVERY: Nanos = Nanos::from_millis(10);
/// How often blocks that are not full are passed on. Together with the flushes of [`crate::writing`], a power cut loses less than a
/// second.
const FLUSH_EVERY: Nanos = Nanos::from_millis(200);
/// How often the NIC's own counters are read.
const NIC_EVERY: Nanos = Nanos::from_secs(1);
/// The longest sleep of the thread.
const SLEEP_MOST: Nanos = Nanos::from_millis(50);
/// A time stamp is taken before the packet gets its place in the ring. Packets of other CPUs may get there first.
const STAMP_SLACK_NS: i64 = 5_000_000;
/// How old a packet may be in a block that the kernel still fills.
const HELD_BACK_NS: i64 = 3 * KERNEL_BLOCK_TIMEOUT_MS as i64 * 1_000_000;
/// A tick comes at least after this many bytes. It bounds the memory of whoever reads the file.
const TICK_EVERY_BYTES: usize = 8 << 20;
/// Drops less than this apart make one gap.
const JOINED_NS: i64 = 25_000_000;
/// The assumed headers of a super-packet whose own cannot be parsed: Ethernet, IPv4, TCP.
const USUAL_HEADER_BYTES: u32 = 54;
/// The longest wait for the last packets.
const DRAIN_MOST: Nanos = Nanos::from_secs(2);

/// A ring and the state of its interface.
#[derive(Debug)]
pub(crate) struct OpenRing {
    ring: CaptureRing,
    interface: u16,
    name: String,
    link: LinkType,
    ifindex: u32,
    block: Option<PacketBlock>,
    statistics: RingStatistics,
    /// When the statistics were read: drops happen between two readings.
    looked_ns: i64,
    /// No packet that follows is older than this.
    complete_ns: i64,
    read: u64,
    nic_missed: Option<u64>,
    removed: bool,
}

impl OpenRing {
    pub(crate) fn new(ring: CaptureRing, interface: u16, name: String, link: LinkType, ifindex: u32) -> Self {
        let now_ns = realtime().0 as i64;
        Self {
            ring,
            interface,
            name,
            link,
            ifindex,
            block: None,
            statistics: RingStatistics::default(),
            looked_ns: now_ns,
            complete_ns: now_ns - HELD_BACK_NS,
            read: 0,
            nic_missed: None,
            removed: false,
        }
    }
}

pub(crate) struct Reader {
    pub(crate) rings: Vec<OpenRing>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) to_writer: SyncSender<ToWriter>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) stop: Arc<AtomicBool>,
    pub(crate) done: Arc<AtomicBool>,
    pub(crate) marks: Arc<Mutex<Vec<Mark>>>,
    pub(crate) packets_most: Option<u64>,
    pub(crate) bytes_most: Option<u64>,
    pub(crate) snap_bytes: usize,
    /// A block is passed on at this length.
    pub(crate) block_bytes: usize,
}

/// When the periodic tasks are due.
struct Due {
    statistics: Nanos,
    flush: Nanos,
    nic: Nanos,
    unticked_bytes: usize,
    marks_sent: usize,
}

impl Reader {
    /// Runs to the end. Returns the whole ledger, without the writer's part.
    pub(crate) fn run(mut self) -> Ledger {
        let mut whole = Ledger::default();
        let mut part = Ledger::default();
        let now = monotonic();
        let mut due = Due {
            statistics: now + STATISTICS_EVERY,
            flush: now + FLUSH_EVERY,
            nic: now,
            unticked_bytes: 0,
            marks_sent: 0,
        };
        let mut netlink = Netlink::open().ok();
        // Without a poller the thread looks often.
        let poller = Poller::new().ok();
        for (key, open) in self.rings.iter().enumerate() {
            if let Some(poller) = &poller {
                let _ = poller.add(&open.ring, key as u64);
            }
        }
        let mut stalled = false;
        let mut read_packets = 0;
        let mut frame_bytes = 0;
        while !self.stop.load(Ordering::Acquire) && !self.is_enough(read_packets, frame_bytes) {
            let mut found = false;
            for at in 0..self.rings.len() {
                let most = self.packets_most.unwrap_or(u64::MAX).saturating_sub(read_packets);
                let bytes_most = self.bytes_most.unwrap_or(u64::MAX).saturating_sub(frame_bytes);
                let taken = self.take_block(at, most, bytes_most, &mut stalled);
                if let Some((packets, bytes)) = taken {
                    (read_packets, frame_bytes) = (read_packets + packets, frame_bytes + bytes);
                    found = true;
                    due.unticked_bytes += packets as usize * self.snap_bytes;
                }
            }
            let now = monotonic();
            if now >= due.statistics {
                due.statistics = now + STATISTICS_EVERY;
                self.look_at_statistics(&mut part, &mut stalled);
            }
            if now >= due.nic {
                due.nic = now + NIC_EVERY;
                if let Some(netlink) = &mut netlink {
                    self.look_at_nics(netlink, &mut part);
                }
                if self.rings.iter().all(|open| open.removed) {
                    break;
                }
            }
            if now >= due.flush || due.unticked_bytes > TICK_EVERY_BYTES {
                due.flush = now + FLUSH_EVERY;
                due.unticked_bytes = 0;
                self.flush(&mut whole, &mut part, &mut due.marks_sent);
            }
            if !found {
                let until = Some(due.statistics.max(monotonic() + STATISTICS_EVERY).min(monotonic() + SLEEP_MOST));
                match &poller {
                    Some(poller) => {
                        let woken = poller.wait(until).into_iter().flatten();
                        woken.filter_map(|key| self.rings.get(key as usize)).for_each(|open| open.ring.take_error());
                    }
                    None => std::thread::sleep(Duration::from_millis(1)),
                }
            }
        }
        self.done.store(true, Ordering::Release);
        let discarded = self.drain(read_packets, frame_bytes, &mut stalled);
        self.look_at_statistics(&mut part, &mut stalled);
        if let Some(netlink) = &mut netlink {
            self.look_at_nics(netlink, &mut part);
        }
        whole.add(&part);
        // Packets after the last requested one do not belong to the capture.
        part.seen_packets = part.seen_packets.saturating_sub(discarded);
        whole.seen_packets = whole.seen_packets.saturating_sub(discarded);
        let mut last = Ledger::default();
        self.flush(&mut last, &mut part, &mut due.marks_sent);
        Counters::add(&self.counters.cpu_ns, thread_cpu_time().0);
        whole
    }

    fn is_enough(&self, packets: u64, bytes: u64) -> bool {
        self.packets_most.is_some_and(|most| packets >= most) || self.bytes_most.is_some_and(|most| bytes >= most)
    }

    /// Stops the rings and reads what they still hold. Returns how many packets came after the last requested one.
    fn drain(&mut self, mut packets: u64, mut bytes: u64, stalled: &mut bool) -> u64 {
        for open in &self.rings {
            let _ = open.ring.stop();
        }
        let deadline = monotonic() + DRAIN_MOST;
        let mut quiet_since = monotonic();
        loop {
            let mut found = false;
            for at in 0..self.rings.len() {
                if self.is_enough(packets, bytes) {
                    let open = &mut self.rings[at];
                    while let Some(block) = open.ring.next_block() {
                        found = true;
                        open.read += u64::from(block.packets());
                    }
                } else {
                    let most = self.packets_most.unwrap_or(u64::MAX).saturating_sub(packets);
                    let bytes_most = self.bytes_most.unwrap_or(u64::MAX).saturating_sub(bytes);
                    while let Some((more, more_bytes)) = self.take_block(at, most, bytes_most, stalled) {
                        (packets, bytes) = (packets + more, bytes + more_bytes);
                        found = true;
                        if self.is_enough(packets, bytes) {
                            break;
                        }
                    }
                }
            }
            let now = monotonic();
            if found {
                quiet_since = now;
            }
            // The kernel's count says whether every packet has been read.
            let complete = self.rings.iter_mut().all(|open| {
                let counted = open.ring.statistics();
                open.removed || counted.seen - counted.dropped.min(counted.seen) <= open.read
            });
            let quiet = now.saturating_sub(quiet_since) >= Nanos(HELD_BACK_NS as u64);
            if (complete && quiet) || now >= deadline {
                break;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let read: u64 = self.rings.iter().map(|open| open.read).sum();
        read.saturating_sub(packets)
    }

    /// Takes the kernel's next block from ring `at`. Returns its packets and bytes of frames; `None` if no block is ready.
    fn take_block(&mut self, at: usize, packets_most: u64, bytes_most: u64, stalled: &mut bool) -> Option<(u64, u64)> {
        let Self { rings, pool, to_writer, counters, snap_bytes, block_bytes, .. } = self;
        let OpenRing { ring, interface, link, block: own, read, complete_ns, .. } = &mut rings[at];
        // Read the clock first: a packet that arrives in between is then newer.
        let looked_ns = realtime().0 as i64;
        let Some(mut block) = ring.next_block() else {
            *complete_ns = (*complete_ns).max(looked_ns - HELD_BACK_NS);
            return None;
        };
        *read += u64::from(block.packets());
        let (mut packets, mut bytes, mut supers) = (0, 0, 0);
        while packets < packets_most && bytes < bytes_most {
            let Some(snippet) = block.next() else { break };
            let filling = match own {
                Some(filling) if filling.len() < *block_bytes => filling,
                _ => {
                    if let Some(full) = own.take() {
                        // The channel has room for every block.
                        let _ = to_writer.send(ToWriter::Block(full));
                    }
                    own.insert(next_empty(pool, *interface, stalled)?)
                }
            };
            let is_super = push(filling, *interface, *link, *snap_bytes, &snippet);
            *complete_ns = snippet.stamp_ns;
            packets += 1;
            bytes += u64::from(snippet.frame_bytes);
            supers += u64::from(is_super);
        }
        Counters::add(&counters.read_packets, packets);
        Counters::add(&counters.frame_bytes, bytes);
        Counters::add(&counters.super_packets, supers);
        Some((packets, bytes))
    }

    fn look_at_statistics(&mut self, part: &mut Ledger, stalled: &mut bool) {
        for open in &mut self.rings {
            let now_ns = realtime().0 as i64;
            let counted = open.ring.statistics();
            let before = std::mem::replace(&mut open.statistics, counted);
            let dropped = counted.dropped - before.dropped;
            part.seen_packets += counted.seen - before.seen;
            if dropped > 0 {
                let place = if *stalled { DroppedAt::Writer } else { DroppedAt::KernelRing };
                self.counters.dropped_at(place, dropped);
                let interface = Some(open.interface);
                let gap = Gap { place, interface, from_ns: open.looked_ns, to_ns: now_ns, packets: dropped };
                part.drop_packets(gap, JOINED_NS);
            }
            open.looked_ns = now_ns;
        }
        *stalled = false;
    }

    /// Reads what the NICs dropped, which includes packets that the filter would leave out, and which interfaces are gone.
    fn look_at_nics(&mut self, netlink: &mut Netlink, part: &mut Ledger) {
        let mut last = None;
        for open in &mut self.rings {
            let goes = !open.removed && open.ring.socket().link_is_gone();
            open.removed |= goes;
            // The rings of an interface are adjacent. Ask its NIC once.
            if last.replace(open.interface) == Some(open.interface) {
                continue;
            }
            if goes {
                self.counters.gone(Gone { interface: open.name.clone(), at_ns: realtime().0 as i64 });
            }
            let stats = netlink.link_by_index(open.ifindex).ok().and_then(|link| link.stats);
            let Some(stats) = stats else { continue };
            let missed = stats.rx_missed_errors + stats.rx_fifo_errors;
            let before = open.nic_missed.replace(missed).unwrap_or(missed);
            let packets = missed.saturating_sub(before);
            if packets > 0 {
                let to_ns = realtime().0 as i64;
                let from_ns = to_ns - NIC_EVERY.0 as i64;
                self.counters.dropped_at(DroppedAt::Nic, packets);
                part.seen_packets += packets;
                let interface = Some(open.interface);
                part.drop_packets(Gap { place: DroppedAt::Nic, interface, from_ns, to_ns, packets }, JOINED_NS);
            }
        }
    }

    /// Passes on all packets, marks and the account.
    fn flush(&mut self, whole: &mut Ledger, part: &mut Ledger, marks_sent: &mut usize) {
        for open in &mut self.rings {
            if let Some(block) = open.block.take_if(|block| !block.is_empty()) {
                let _ = self.to_writer.send(ToWriter::Block(block));
            }
        }
        let marks = self.marks.lock().map(|marks| marks[*marks_sent..].to_vec()).unwrap_or_default();
        *marks_sent += marks.len();
        for mark in marks {
            let _ = self.to_writer.send(ToWriter::Mark(mark));
        }
        if !part.is_empty() {
            whole.add(part);
            let _ = self.to_writer.send(ToWriter::Ledger(part.take()));
        }
        let watermark_ns = self.rings.iter().map(|open| open.complete_ns).min().unwrap_or(0) - STAMP_SLACK_NS;
        let _ = self.to_writer.send(ToWriter::Tick(watermark_ns));
    }
}

/// An empty block. Waits if the writer has them all; `None` if the writer has ended.
fn next_empty(pool: &Pool, interface: u16, stalled: &mut bool) -> Option<PacketBlock> {
    let mut block = match pool.take() {
        Some(block) => block,
        None => {
            *stalled = true;
            pool.wait()?
        }
    };
    block.reset(interface);
    Some(block)
}

/// Appends a packet as a record. Returns whether it is a super-packet.
#[inline]
fn push(block: &mut PacketBlock, interface: u16, link: LinkType, snap_bytes: usize, snippet: &Snippet<'_>) -> bool {
    let (gso_segs, gso_size) = if snippet.vnet[1] == 0 { (1, 0) } else { super_packet(snippet) };
    let mut record = Record {
        at_ns: snippet.stamp_ns,
        interface,
        direction: if snippet.outgoing { InterfaceDirection::Outbound } else { InterfaceDirection::Inbound },
        link,
        frame_len: snippet.frame_bytes,
        gso_segs,
        gso_size,
        snippet: snippet.bytes,
    };
    match snippet.vlan {
        Some(tag) if snippet.bytes.len() >= 12 => {
            record.frame_len += 4;
            let [a, b] = tag.tpid.to_be_bytes();
            let [c, d] = tag.tci.to_be_bytes();
            let rest = &snippet.bytes[12..snippet.bytes.len().min(snap_bytes.saturating_sub(4)).max(12)];
            block.push_snippet(&record, &[&snippet.bytes[..12], &[a, b, c, d], rest]);
        }
        _ => block.push(&record),
    }
    gso_segs != 1
}

/// The number of wire packets that a super-packet stands for, and the payload bytes of each.
#[cold]
fn super_packet(snippet: &Snippet<'_>) -> (u16, u16) {
    let vnet = VnetHeader::parse(snippet.vnet);
    let size = vnet.gso_size;
    if size == 0 {
        return (1, 0);
    }
    let segments = match Shape::parse(snippet.bytes, snippet.frame_bytes as usize, &vnet) {
        Ok(shape) => shape.segments,
        // Its headers are cut off, or of an unknown kind.
        Err(_) => snippet.frame_bytes.saturating_sub(USUAL_HEADER_BYTES).div_ceil(size.into()).max(1),
    };
    (u16::try_from(segments).unwrap_or(u16::MAX), size)
}
