//! The server's data part of a measurement: it answers probes, only those of the proven address, no more bytes than it received, and no
//! more often than was agreed.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

use longhaul_host::HostSnapshot;
use longhaul_kernel::address::{at_port, zone_of};
use longhaul_kernel::clock::monotonic;
use longhaul_kernel::udp::{ReceiveSlots, ReceiverOptions, SuperPacket, TimestampMode, UdpReceiver};
use longhaul_result::Caveat;
use longhaul_rtt::{Responder, ResponderStamps, RttEndReport, RttParameters};
use longhaul_session::{EndReport, Progress, SessionError};
use longhaul_terms::StreamSent;
use longhaul_units::Nanos;
use longhaul_wire::probe::{Cookie, FIRST_RESERVED, HEADER_LEN, Probe};

use super::own_clock::clock_state;
use super::probing::realtime_ns;
use super::stamps::{Nic, received};
use crate::data::{Data, Opening, ThisEnd};
use crate::event::ProofQueue;

/// Packets taken in one call.
const SLOTS: usize = 32;
/// The longest payload of UDP over IPv6.
const DATAGRAM_BYTES_MOST: usize = 65_527;
/// How often to look whether the measurement is over.
const LOOK: Nanos = Nanos::from_millis(20);

/// The server's end.
pub(crate) struct AnsweringData {
    socket: Arc<UdpReceiver>,
    shared: Arc<State>,
    thread: Option<JoinHandle<()>>,
    peer_sent: Option<u64>,
}

#[derive(Debug, Default)]
struct State {
    stop: AtomicBool,
    /// Whom to answer, once that is proven.
    proven: Mutex<Option<SocketAddr>>,
    received: AtomicU64,
    answered: AtomicU64,
    limited: AtomicU64,
    last_arrival: AtomicU64,
    read_bytes: AtomicU64,
    /// What the socket had dropped when it began to take packets of the client alone.
    dropped_before: AtomicU32,
}

impl State {
    /// `dropped`: by the socket, since it was opened.
    fn report(&self, dropped: Option<u32>) -> RttEndReport {
        let load = |number: &AtomicU64| number.load(Ordering::Relaxed);
        RttEndReport {
            received: load(&self.received),
            answered: load(&self.answered),
            limited: load(&self.limited),
            dropped: dropped.map_or(0, |now| now.wrapping_sub(self.dropped_before.load(Ordering::Relaxed)).into()),
            clock: clock_state(),
        }
    }
}

impl AnsweringData {
    /// Opens the socket and begins to answer, as soon as it is told whom.
    ///
    /// # Errors
    /// Where the kernel gives no socket or thread.
    pub(crate) fn open(opening: Opening<'_>, parameters: &RttParameters) -> Result<Self, SessionError> {
        let Opening { plan, place, events } = opening;
        let at = match place {
            ThisEnd::Server { own, data_port, .. } => at_port(own, data_port.number()),
            ThisEnd::Client { server, .. } => at_port(server, 0),
        };
        let cap = match place {
            ThisEnd::Server { caps, .. } => caps.rate,
            ThisEnd::Client { .. } => None,
        };
        let failed = |error: String| SessionError::new("data_socket", error, "");
        // Where it cannot stamp, the kernel does, and the result says so.
        let nic = match place {
            ThisEnd::Server { peer, .. } if parameters.nic_stamps && place.may_change_host() => {
                Nic::open(at.ip(), peer, zone_of(at)).ok()
            }
            _ => None,
        };
        let timestamps = if nic.is_some() { TimestampMode::Nic } else { TimestampMode::Kernel };
        let options = ReceiverOptions { gro: false, timestamps, ..ReceiverOptions::default() };
        let socket = UdpReceiver::bind(at, &options).map_err(|error| failed(error.to_string()))?;
        let (socket, shared) = (Arc::new(socket), Arc::new(State::default()));
        let mut answering = Answering {
            socket: socket.clone(),
            nic,
            state: shared.clone(),
            responder: Responder::new(plan.cookie, parameters.payloads(), parameters.interval_ns).capped(cap),
            payload: Vec::with_capacity(parameters.payload_bytes as usize),
            cookie: plan.cookie.of(false, 0),
            probes: ProofQueue::new(0, place.client(), events),
        };
        // Longer datagrams arrive cut, and are no probes.
        let mut slots = ReceiveSlots::new(SLOTS, parameters.payload_bytes as usize + 1, true);
        let thread = Builder::new().name("answer".into()).spawn(move || answering.run(&mut slots));
        let thread = Some(thread.map_err(|error| failed(error.to_string()))?);
        Ok(Self { socket, shared, thread, peer_sent: None })
    }

    /// Packets that the socket dropped since it was opened; `None` before Linux 4.12.
    fn dropped(&self) -> Option<u32> {
        Some(self.socket.memory().ok()?.drops)
    }

    fn end(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        // A panic was printed when it happened.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Drop for AnsweringData {
    fn drop(&mut self) {
        self.end();
    }
}

struct Answering {
    socket: Arc<UdpReceiver>,
    nic: Option<Nic>,
    state: Arc<State>,
    responder: Responder,
    payload: Vec<u8>,
    cookie: Cookie,
    probes: ProofQueue,
}

impl Answering {
    fn run(&mut self, slots: &mut ReceiveSlots) {
        while !self.state.stop.load(Ordering::Relaxed) {
            if !matches!(self.socket.receive_until(slots, monotonic() + LOOK), Ok(1..)) {
                continue;
            }
            let proven = *self.state.proven.lock().unwrap_or_else(PoisonError::into_inner);
            for packet in slots.packets() {
                self.take(&packet, proven);
            }
        }
    }

    fn take(&mut self, packet: &SuperPacket<'_>, proven: Option<SocketAddr>) {
        let Some(from) = packet.source else { return };
        // Who does not know the cookie is a stranger, whatever address he has.
        let Some(probe) = Probe::parse(packet.bytes).filter(|probe| probe.cookie == self.cookie) else { return };
        let same =
            |proven: SocketAddr| (proven.ip().to_canonical(), proven.port()) == (from.ip().to_canonical(), from.port());
        let is_own = proven.is_some_and(same);
        if is_own {
            // Of one that was cut it is not known how long it was.
            let bytes = if packet.truncated { DATAGRAM_BYTES_MOST } else { packet.bytes.len() };
            self.state.read_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        }
        if probe.sequence >= FIRST_RESERVED && packet.bytes.len() == HEADER_LEN {
            self.probes.hand_over(Some(from), packet.bytes);
            return;
        }
        if packet.truncated || !is_own {
            return;
        }
        let before = self.responder.limited();
        let may = self.responder.may_answer(monotonic(), packet.bytes);
        if !may && self.responder.limited() == before {
            return;
        }
        self.state.received.fetch_add(1, Ordering::Relaxed);
        self.state.last_arrival.store(monotonic().0, Ordering::Relaxed);
        self.state.limited.store(self.responder.limited(), Ordering::Relaxed);
        if !may {
            return;
        }
        let (received_ns, received_by) = received(packet, self.nic.as_ref());
        self.payload.clear();
        self.payload.extend_from_slice(packet.bytes);
        let stamps = ResponderStamps { received_ns, sent_ns: realtime_ns().max(received_ns), received_by };
        self.responder.answer(&mut self.payload, stamps);
        if self.socket.send_to(&self.payload, from).is_ok() {
            self.state.answered.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Data for AnsweringData {
    fn ports(&self) -> Vec<u16> {
        vec![self.socket.local_address().port()]
    }

    fn take_caveats(&mut self) -> Vec<Caveat> {
        Vec::new()
    }

    fn send_probe(&self, _stream: u8, to: Option<SocketAddr>, bytes: &[u8]) {
        if let Some(to) = to {
            let _ = self.socket.send_to(bytes, to);
        }
    }

    fn start_sending(&mut self, to: &[SocketAddr]) {
        // What others send must not fill the buffer. A host may refuse to connect; the source is compared, too.
        let _ = to.first().map(|to| self.socket.take_from(*to));
        self.shared.dropped_before.store(self.dropped().unwrap_or(0), Ordering::Relaxed);
        *self.shared.proven.lock().unwrap_or_else(PoisonError::into_inner) = to.first().copied();
    }

    fn stop_sending(&self) {}

    fn stream_sent(&mut self, _stream: u8) -> Option<Vec<StreamSent>> {
        None
    }

    fn peer_finished(&mut self, streams: Vec<StreamSent>) {
        self.peer_sent = streams.first().map(|sent| sent.sent_packets);
    }

    fn is_drained(&self) -> Option<bool> {
        self.peer_sent.map(|sent| self.shared.received.load(Ordering::Relaxed) >= sent)
    }

    fn last_arrival(&self) -> Nanos {
        Nanos(self.shared.last_arrival.load(Ordering::Relaxed))
    }

    fn progress(&self) -> Progress {
        Progress::default()
    }

    fn read_bytes(&self) -> u64 {
        self.shared.read_bytes.load(Ordering::Relaxed)
    }

    fn report(mut self: Box<Self>) -> EndReport {
        self.end();
        let host = serde_json::to_value(HostSnapshot::take()).unwrap_or_default();
        EndReport { rtt: Some(self.shared.report(self.dropped())), host, ..EndReport::default() }
    }
}
