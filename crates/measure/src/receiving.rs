//! The thread that receives one stream.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};

use longhaul_kernel::clock::monotonic;
use longhaul_kernel::udp::{ReceiveSlots, SuperPacket, UdpReceiver};
use longhaul_session::account::SequenceTracker;
use longhaul_units::Nanos;
use longhaul_wire::probe::{Cookie, FIRST_RESERVED, Probe};

use crate::driver::Event;

/// Packets taken in one call.
const SLOTS: usize = 32;
/// Room for the longest datagram, and the longest super-packet.
const SLOT_BYTES: usize = 65_536;
/// Between two looks whether the test is over.
const LOOK: Nanos = Nanos::from_millis(20);

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

/// Receives until `stop` is set: bulk packets of `cookie` go to `account`, others to the driver.
pub(crate) fn receive_stream(
    socket: &UdpReceiver,
    cookie: Cookie,
    account: &Account,
    stop: &Arc<AtomicBool>,
    events: &Sender<Event>,
) {
    let mut slots = ReceiveSlots::new(SLOTS, SLOT_BYTES, true);
    while !stop.load(Ordering::Relaxed) {
        let received = socket.receive_until(&mut slots, monotonic() + LOOK);
        if !matches!(received, Ok(1..)) {
            continue;
        }
        let now = monotonic();
        account.with(|tracker| {
            for packet in slots.packets() {
                take(&packet, cookie, now, tracker, events);
            }
        });
    }
}

/// Accounts for the datagrams of one super-packet. One that GRO made may have gaps, so each header is read.
fn take(packet: &SuperPacket<'_>, cookie: Cookie, now: Nanos, tracker: &mut SequenceTracker, events: &Sender<Event>) {
    let mut run: Option<(u64, u32)> = None;
    let single = packet.datagrams() == 1;
    for datagram in packet.segments() {
        let Some(probe) = Probe::parse(datagram) else { continue };
        if probe.sequence >= FIRST_RESERVED {
            let from = packet.source.unwrap_or(SocketAddr::from(([0; 4], 0)));
            // The driver may be gone already.
            let _ = events.send(Event::Probe { stream: cookie.stream(), from, bytes: datagram.to_vec() });
            continue;
        }
        if probe.cookie != cookie {
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
