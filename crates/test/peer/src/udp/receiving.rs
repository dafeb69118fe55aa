//! The thread that receives one stream.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use longhaul_kernel::clock::monotonic;
use longhaul_kernel::udp::{ReceiveSlots, SuperPacket, UdpReceiver};
use longhaul_result::Location;
use longhaul_terms::ThreadCpu;
use longhaul_udp::account::{PacketRows, Receipt, SequenceTracker};
use longhaul_udp::locate::{Evidence, EvidenceRecorder};
use longhaul_udp::{SLOT_BYTES, UdpParameters};
use longhaul_units::Nanos;
use longhaul_wire::probe::{Cookie, FIRST_RESERVED, Probe};

use super::stamping::{Arrival, Stamping};
use crate::cpu_use::ThreadWatch;
use crate::event::ProofQueue;

/// How often to look whether the test is over.
const LOOK: Nanos = Nanos::from_millis(20);
/// Packets of it taken in one call.
const UNREAD_SLOTS: usize = 8;
/// How long to read what lies unread in all sockets.
pub(super) const UNREAD_MOST: Nanos = Nanos::from_secs(1);

/// What a stream has received, shared between its thread and the driver.
#[derive(Debug, Clone)]
pub(super) struct Account(Arc<Mutex<SequenceTracker>>);

impl Account {
    pub(super) fn new(tracker: SequenceTracker) -> Self {
        Self(Arc::new(Mutex::new(tracker)))
    }

    /// Runs `work` on the account, between two batches of the receiving thread.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut SequenceTracker) -> T) -> T {
        // A tracker that panicked half-way would be wrong, and so would the test; no place in it panics.
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Account {
    /// The tracker itself, once its thread has ended: a copy would take its memory twice.
    pub(super) fn into_tracker(self) -> SequenceTracker {
        match Arc::try_unwrap(self.0) {
            Ok(tracker) => tracker.into_inner().unwrap_or_else(PoisonError::into_inner),
            Err(shared) => Self(shared).with(|tracker| tracker.clone()),
        }
    }
}

/// Where the packets of a stream come from. Who has its cookie, 24 random bits, can send from any address.
#[derive(Debug, Clone)]
pub(super) enum Source {
    /// The kernel hands over what the peer at this address sends, and nothing else.
    Connected(SocketAddr),
    /// The address that the client has proven; nothing is of the test before.
    Proven(Arc<OnceLock<SocketAddr>>),
}

impl Default for Source {
    /// Nothing is proven yet.
    fn default() -> Self {
        Self::Proven(Arc::default())
    }
}

impl Source {
    /// From now on packets from `address` are of the test.
    pub(super) fn prove(&self, address: SocketAddr) {
        if let Self::Proven(proven) = self {
            proven.get_or_init(|| address);
        }
    }

    /// Whether what the socket received from `from` is of the test.
    fn is(&self, from: Option<SocketAddr>) -> bool {
        matches!(self, Self::Connected(_)) || from.is_some_and(|from| self.is_at(from))
    }

    /// Whether the peer's packets come from `from`.
    pub(super) fn is_at(&self, from: SocketAddr) -> bool {
        let of_peer = match self {
            Self::Connected(peer) => Some(peer),
            Self::Proven(proven) => proven.get(),
        };
        of_peer.is_some_and(|peer| (peer.port(), peer.ip().to_canonical()) == (from.port(), from.ip().to_canonical()))
    }
}

/// What is received of a stream, where, and from where.
pub(super) struct Receiving<'a> {
    pub(super) socket: &'a UdpReceiver,
    pub(super) cookie: Cookie,
    pub(super) source: &'a Source,
    pub(super) account: &'a Account,
    pub(super) parameters: &'a UdpParameters,
    /// Counts what came from the source with its cookie, whatever its number and length.
    pub(super) read_bytes: &'a AtomicU64,
}

/// Receives until `stop` is set. Bulk packets of the cookie go to the account and, where each has a row, to `rows`, others of it to the
/// driver. Returns what it used of its CPU from the first packet on, and the rows.
pub(super) fn receive_stream(
    of: &Receiving<'_>,
    stamping: &mut Stamping,
    stop: &Arc<AtomicBool>,
    probes: &ProofQueue,
    mut rows: Option<PacketRows>,
) -> StreamIn {
    let mut cpu = None;
    let mut slots = ReceiveSlots::new(of.parameters.slots(), SLOT_BYTES, true);
    let opened = monotonic();
    while !stop.load(Ordering::Relaxed) {
        let received = of.socket.receive_until(&mut slots, monotonic() + LOOK);
        if !matches!(received, Ok(1..)) {
            continue;
        }
        let now = monotonic();
        // What comes before the first packet is no time of the test.
        cpu.get_or_insert_with(ThreadWatch::start);
        let sent_most = of.parameters.packets_most_by(now.saturating_sub(opened));
        let read: usize = of.account.with(|tracker| {
            let take = |packet: SuperPacket<'_>| {
                let arrival = stamping.arrival(&packet, now);
                take(&packet, of, arrival, sent_most, tracker, rows.as_mut(), probes)
            };
            slots.packets().map(take).sum()
        });
        of.read_bytes.fetch_add(read as u64, Ordering::Relaxed);
    }
    StreamIn { cpu: cpu.map(|cpu| cpu.used()), rows }
}

/// What the thread of a stream leaves.
#[derive(Debug, Default)]
pub(super) struct StreamIn {
    /// What it used of its CPU, once there was a packet.
    pub(super) cpu: Option<ThreadCpu>,
    /// A row for each packet, where that was asked for.
    pub(super) rows: Option<PacketRows>,
}

/// Reads what still lies in the socket when its reader has ended: packets that arrived and were not read. They go into `evidence`, as far
/// as that has room. A sender that continues does not keep this end waiting beyond `deadline`.
pub(super) fn unread(
    socket: &UdpReceiver,
    cookie: Cookie,
    deadline: Nanos,
    mut evidence: EvidenceRecorder,
) -> Evidence {
    let mut slots = ReceiveSlots::new(UNREAD_SLOTS, SLOT_BYTES, true);
    while monotonic() < deadline && matches!(socket.receive(&mut slots), Ok(1..)) {
        for packet in slots.packets() {
            let unit = packet.datagrams() as u32;
            for probe in packet.segments().filter_map(Probe::parse).filter(|probe| probe.cookie == cookie) {
                evidence.add(probe.sequence, 1, Location::ReceiverApplication, "unread at close", unit);
            }
        }
    }
    evidence.recorded()
}

/// Accounts for the datagrams of one super-packet, and returns how many bytes those of the test have. One that GRO made may have gaps, so each
/// header is read. The sender has sent no more than `sent_most` by now.
fn take(
    packet: &SuperPacket<'_>,
    of: &Receiving<'_>,
    arrival: Arrival,
    sent_most: u64,
    tracker: &mut SequenceTracker,
    mut rows: Option<&mut PacketRows>,
    probes: &ProofQueue,
) -> usize {
    let now = arrival.at;
    let mut run: Option<(u64, u32)> = None;
    let single = packet.datagrams() == 1;
    let is_own = of.source.is(packet.source);
    let (mut first, mut read) = (true, 0);
    for datagram in packet.segments() {
        let Some(probe) = Probe::parse(datagram) else { continue };
        if probe.cookie != of.cookie {
            continue;
        }
        read += if is_own { datagram.len() } else { 0 };
        if probe.sequence >= FIRST_RESERVED {
            probes.hand_over(packet.source, datagram);
            continue;
        }
        if !is_own || probe.sequence >= sent_most {
            tracker.foreign();
            continue;
        }
        if let Some(rows) = &mut rows {
            rows.push(probe.sequence, Nanos(probe.sent_ns), now, arrival.program_stamped);
        }
        if std::mem::take(&mut first) {
            if !single && probe.sequence < tracker.limit() {
                tracker.delayed(now, Nanos(probe.sent_ns));
            }
            if let Some(class) = packet.traffic_class {
                tracker.classed(class, packet.datagrams() as u64);
            }
        }
        if single {
            let receipt = tracker.receive(probe.sequence, now, Nanos(probe.sent_ns));
            if matches!(receipt, Receipt::InOrder | Receipt::Reordered(_)) {
                tracker.delayed(now, Nanos(probe.sent_ns));
            }
            return read;
        }
        run = match run {
            Some((first, count)) if first + u64::from(count) == probe.sequence => Some((first, count + 1)),
            before => {
                flush(before, now, tracker);
                Some((probe.sequence, 1))
            }
        };
    }
    flush(run, now, tracker);
    read
}

fn flush(run: Option<(u64, u32)>, now: Nanos, tracker: &mut SequenceTracker) {
    if let Some((first, count)) = run {
        tracker.receive_run(first, count, now);
    }
}
