//! The thread that receives one stream.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};

use longhaul_kernel::clock::{RealtimeOffset, monotonic, realtime_offset};
use longhaul_kernel::udp::{ReceiveSlots, SuperPacket, UdpReceiver};
use longhaul_result::{Caveat, Location};
use longhaul_udp::Timestamps;
use longhaul_udp::account::SequenceTracker;
use longhaul_udp::locate::Evidence;
use longhaul_units::Nanos;
use longhaul_wire::probe::{Cookie, FIRST_RESERVED, HEADER_LEN, Probe};

use crate::driver::Event;

/// Packets taken in one call.
const SLOTS: usize = 32;
/// Room for the longest datagram, and the longest super-packet.
const SLOT_BYTES: usize = 65_536;
/// Between two looks whether the test is over.
const LOOK: Nanos = Nanos::from_millis(20);
/// Datagrams of the proof that a stream takes: those of the longest proof, 40 rounds of 3.5, and room for copies on the way, but no
/// more, as anyone may send them.
const PROBES_MOST: usize = 256;
/// How long what lies unread is read.
const UNREAD_MOST: Nanos = Nanos::from_secs(1);

/// What a stream has received, shared between its thread and the driver.
#[derive(Debug, Clone)]
pub(crate) struct Account(Arc<Mutex<SequenceTracker>>);

impl Account {
    pub(crate) fn new(tracker: SequenceTracker) -> Self {
        Self(Arc::new(Mutex::new(tracker)))
    }

    /// Does `work` with the account, between two batches of the receiving thread.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut SequenceTracker) -> T) -> T {
        // A tracker that panicked half-way would be wrong, and the test with it; it has no such place.
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Account {
    /// The account itself, once its thread has ended: copying it would take its memory twice.
    pub(crate) fn into_tracker(self) -> SequenceTracker {
        match Arc::try_unwrap(self.0) {
            Ok(tracker) => tracker.into_inner().unwrap_or_else(PoisonError::into_inner),
            Err(shared) => Self(shared).with(|tracker| tracker.clone()),
        }
    }
}

/// Which stamp of a packet is its arrival, on `CLOCK_MONOTONIC`; a NIC's clock counts from its first stamp there.
#[derive(Debug, Clone)]
pub(crate) struct Stamping {
    timestamps: Timestamps,
    /// When the test was opened.
    realtime: RealtimeOffset,
    /// `CLOCK_MONOTONIC` less the NIC's clock.
    nic_offset_ns: Option<i64>,
    /// Packets without the stamp that was asked for, all streams together.
    unstamped: Arc<AtomicU64>,
}

impl Stamping {
    pub(crate) fn new(timestamps: Timestamps) -> Self {
        Self { timestamps, realtime: realtime_offset(), nic_offset_ns: None, unstamped: Arc::default() }
    }

    /// When `packet`, which a call brought `now`, arrived.
    fn arrival(&mut self, packet: &SuperPacket<'_>, now: Nanos) -> Nanos {
        let stamp = match self.timestamps {
            Timestamps::App => return now,
            Timestamps::Kernel => packet.received_at_kernel.map(|stamp| self.realtime.monotonic_of(stamp)),
            Timestamps::Nic => packet.received_at_nic.map(|stamp| {
                let offset = *self.nic_offset_ns.get_or_insert(now.0.wrapping_sub(stamp.0) as i64);
                Nanos(stamp.0.wrapping_add_signed(offset))
            }),
        };
        stamp.unwrap_or_else(|| {
            self.unstamped.fetch_add(1, Ordering::Relaxed);
            now
        })
    }

    /// What speaks against the stamps, at the end of the test.
    pub(crate) fn caveats(&self) -> Vec<Caveat> {
        let mut caveats = Vec::new();
        let unstamped = self.unstamped.load(Ordering::Relaxed);
        if unstamped > 0 {
            let message =
                format!("{unstamped} packets came without the stamp that was asked for and have the program's");
            caveats.push(Caveat::new("packets_unstamped", message, "use --timestamps kernel or app"));
        }
        caveats
    }
}

/// Receives until `stop` is set: bulk packets of `cookie` go to `account`, others to the driver.
pub(crate) fn receive_stream(
    socket: &UdpReceiver,
    cookie: Cookie,
    account: &Account,
    stamping: &mut Stamping,
    stop: &Arc<AtomicBool>,
    events: &Sender<Event>,
) {
    let mut slots = ReceiveSlots::new(SLOTS, SLOT_BYTES, true);
    let mut probes = Probes { stream: cookie.stream(), events, left: PROBES_MOST };
    while !stop.load(Ordering::Relaxed) {
        let received = socket.receive_until(&mut slots, monotonic() + LOOK);
        if !matches!(received, Ok(1..)) {
            continue;
        }
        let now = monotonic();
        account.with(|tracker| {
            for packet in slots.packets() {
                let arrival = stamping.arrival(&packet, now);
                take(&packet, cookie, arrival, tracker, &mut probes);
            }
        });
    }
}

/// Reads what still lies in the socket when its reader has ended: those packets came and were not read.
pub(crate) fn unread(socket: &UdpReceiver, cookie: Cookie) -> Evidence {
    let mut evidence = Evidence::default();
    let mut slots = ReceiveSlots::new(SLOTS, SLOT_BYTES, true);
    // A sender that goes on does not keep the account open.
    let deadline = monotonic() + UNREAD_MOST;
    while matches!(socket.receive(&mut slots), Ok(1..)) && monotonic() < deadline {
        for packet in slots.packets() {
            let unit = packet.datagrams() as u32;
            for probe in packet.segments().filter_map(Probe::parse).filter(|probe| probe.cookie == cookie) {
                evidence.add(probe.sequence, 1, Location::ReceiverApplication, "unread at close", unit);
            }
        }
    }
    evidence
}

/// Hands the datagrams of the proof to the driver.
struct Probes<'a> {
    stream: u8,
    events: &'a Sender<Event>,
    left: usize,
}

impl Probes<'_> {
    fn hand_over(&mut self, source: Option<SocketAddr>, datagram: &[u8]) {
        let (Some(from), Some(left)) = (source, self.left.checked_sub(1)) else { return };
        if datagram.len() == HEADER_LEN {
            self.left = left;
            // The driver may be gone already.
            let _ = self.events.send(Event::Probe { stream: self.stream, from, bytes: datagram.to_vec() });
        }
    }
}

/// Accounts for the datagrams of one super-packet. One that GRO made may have gaps, so each header is read.
fn take(packet: &SuperPacket<'_>, cookie: Cookie, now: Nanos, tracker: &mut SequenceTracker, probes: &mut Probes<'_>) {
    let mut run: Option<(u64, u32)> = None;
    let single = packet.datagrams() == 1;
    for datagram in packet.segments() {
        let Some(probe) = Probe::parse(datagram) else { continue };
        if probe.cookie != cookie {
            continue;
        }
        if probe.sequence >= FIRST_RESERVED {
            probes.hand_over(packet.source, datagram);
            continue;
        }
        if single {
            tracker.receive(probe.sequence, now, Nanos(probe.sent_ns));
            return;
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
}

fn flush(run: Option<(u64, u32)>, now: Nanos, tracker: &mut SequenceTracker) {
    if let Some((first, count)) = run {
        tracker.receive_run(first, count, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(received_at_kernel: Option<Nanos>, received_at_nic: Option<Nanos>) -> SuperPacket<'static> {
        SuperPacket {
            bytes: &[0],
            segment_bytes: 1,
            source: None,
            received_at_app: Nanos(0),
            received_at_kernel,
            received_at_nic,
            dropped_before: 0,
            truncated: false,
        }
    }

    #[test]
    fn arrivals_are_on_the_monotonic_clock() {
        let now = monotonic();
        let mut app = Stamping::new(Timestamps::App);
        assert_eq!(app.arrival(&packet(Some(Nanos(5)), None), now), now);

        let mut kernel = Stamping::new(Timestamps::Kernel);
        let stamp = kernel.realtime.realtime_of(now);
        assert_eq!(kernel.arrival(&packet(Some(stamp), None), now + Nanos::from_secs(9)), now);
        assert_eq!(kernel.caveats(), []);
        // A packet without a stamp is taken, and told.
        assert_eq!(kernel.arrival(&packet(None, None), now), now);
        assert_eq!(kernel.caveats()[0].code, "packets_unstamped");

        // A NIC's clock may begin anywhere; what counts is what passes on it.
        let mut nic = Stamping::new(Timestamps::Nic);
        assert_eq!(nic.arrival(&packet(None, Some(Nanos(1_000))), now), now);
        assert_eq!(nic.arrival(&packet(None, Some(Nanos(1_250))), now + Nanos::from_secs(1)), now + Nanos(250));
    }
}
