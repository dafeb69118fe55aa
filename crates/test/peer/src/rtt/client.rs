//! The client's data part of a measurement with longhaul's server.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

use longhaul_host::HostSnapshot;
use longhaul_kernel::address::{at_port, zone_of};
use longhaul_kernel::clock::monotonic;
use longhaul_kernel::udp::{ReceiveSlots, ReceiverOptions, SuperPacket, TimestampMode, UdpOpenError, UdpReceiver};
use longhaul_result::Caveat;
use longhaul_rtt::{Answer, Observed, RttParameters, question, reply};
use longhaul_session::{DataPlan, EndReport, Progress, SessionError};
use longhaul_terms::StreamSent;
use longhaul_units::Nanos;
use longhaul_wire::probe::{Cookie, FIRST_RESERVED, Probe};

use super::probing::{HEADERS_MOST, Probes, Probing, Shared, read_behind_headers};
use super::reading::ANSWERS_BYTES;
use super::stamps::{Nic, enter_sent, received};
use crate::control::random;
use crate::data::{Data, Opening, Source, ThisEnd};
use crate::event::{Event, ProofQueue};

/// Packets taken in one call.
const SLOTS: usize = 32;
/// How often to look whether the proof is over.
const LOOK: Nanos = Nanos::from_millis(20);

/// The client's end: its socket, and its threads once it sends.
pub(crate) struct ProbingData {
    plan: DataPlan,
    parameters: RttParameters,
    socket: Arc<UdpReceiver>,
    /// Until it probes.
    nic: Option<Nic>,
    peer: SocketAddr,
    proof: Option<(JoinHandle<()>, Arc<AtomicBool>)>,
    probing: Option<Probing>,
    events: Sender<Event>,
    sent: Arc<Mutex<u64>>,
}

impl ProbingData {
    /// Opens the socket and receives what belongs to the proof.
    ///
    /// # Errors
    /// Where the kernel gives no socket or thread, and `no_nic_timestamps`.
    pub(crate) fn open(opening: Opening<'_>, parameters: RttParameters) -> Result<Self, SessionError> {
        let Opening { plan, place, events } = opening;
        let (server, source) = match place {
            ThisEnd::Client { server, source } => (server, source),
            ThisEnd::Server { peer, .. } => (SocketAddr::new(peer, 0), Source::default()),
        };
        let peer = at_port(server, plan.server_ports.first().copied().unwrap_or_default());
        let failed = |error: UdpOpenError| SessionError::new("data_socket", error.to_string(), "");
        let socket = Arc::new(socket_to(peer, source.of_data(0, server)).map_err(failed)?);
        let own = socket.local_address().ip();
        let nic = parameters.nic_stamps.then(|| Nic::open(own, server.ip(), zone_of(server))).transpose()?;
        let over = Arc::new(AtomicBool::new(false));
        let thread = {
            let (socket, over, probes) = (socket.clone(), over.clone(), ProofQueue::new(0, None, events));
            let receive = move || receive_proof(&socket, peer, &over, &probes);
            let io = |error: std::io::Error| SessionError::new("data_socket", error.to_string(), "");
            Builder::new().name("proof".into()).spawn(receive).map_err(io)?
        };
        let events = events.clone();
        Ok(Self {
            plan,
            parameters,
            socket,
            nic,
            peer,
            proof: Some((thread, over)),
            probing: None,
            events,
            sent: Arc::default(),
        })
    }

    fn end_proof(&mut self) {
        if let Some((thread, over)) = self.proof.take() {
            over.store(true, Ordering::Relaxed);
            // A panic was printed when it happened.
            let _ = thread.join();
        }
    }
}

fn socket_to(peer: SocketAddr, from: Option<SocketAddr>) -> Result<UdpReceiver, UdpOpenError> {
    let any: IpAddr = if peer.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let options = ReceiverOptions {
        gro: false,
        timestamps: TimestampMode::App,
        receive_buffer_bytes: Some(ANSWERS_BYTES),
        ..ReceiverOptions::default()
    };
    let mut socket = UdpReceiver::bind(from.unwrap_or(SocketAddr::new(any, 0)), &options)?;
    socket.connect(peer)?;
    Ok(socket)
}

fn receive_proof(socket: &UdpReceiver, from: SocketAddr, over: &AtomicBool, probes: &ProofQueue) {
    let mut slots = ReceiveSlots::new(SLOTS, 64, false);
    while !over.load(Ordering::Relaxed) {
        if !matches!(socket.receive_until(&mut slots, monotonic() + LOOK), Ok(1..)) {
            continue;
        }
        slots.packets().for_each(|packet| probes.hand_over(Some(from), packet.bytes));
    }
}

impl Data for ProbingData {
    fn ports(&self) -> Vec<u16> {
        vec![self.socket.local_address().port()]
    }

    fn take_caveats(&mut self) -> Vec<Caveat> {
        Vec::new()
    }

    fn send_probe(&self, _stream: u8, _to: Option<SocketAddr>, bytes: &[u8]) {
        let _ = self.socket.send_to(bytes, self.peer);
    }

    fn start_sending(&mut self, _to: &[SocketAddr]) {
        self.end_proof();
        // Without the kernel's stamps the program's are used, and the result says so.
        let nic = self.nic.take();
        let stamped = self.socket.stamp_sent(nic.is_some()).is_ok();
        // Without the TTL a change of the route back shows by the round trip alone.
        let _ = self.socket.tell_hops();
        let probes = Arc::new(UdpProbes {
            socket: self.socket.clone(),
            nic,
            peer: self.peer,
            cookie: self.plan.cookie,
            asked: self.parameters.clone(),
            stamped,
            payload: Mutex::new(vec![0; self.parameters.payload_bytes as usize]),
            slots: Mutex::new(ReceiveSlots::new(SLOTS, self.parameters.payload_bytes as usize + HEADERS_MOST, false)),
        });
        let (events, total) = (self.events.clone(), self.sent.clone());
        let seed = random().map_or(0, u64::from_ne_bytes);
        let observe = move |observed: Observed| {
            *total.lock().unwrap_or_else(PoisonError::into_inner) += observed.rows.len() as u64;
            let ended = observed.ended.is_some();
            let _ = events.send(Event::Observed(Box::new(observed)));
            if ended {
                let _ = events.send(Event::StreamSent(0));
            }
        };
        match Probing::start(probes, &self.parameters, seed, observe) {
            Ok(probing) => self.probing = Some(probing),
            // The report then has no probes.
            Err(_) => _ = self.events.send(Event::StreamSent(0)),
        }
    }

    fn stop_sending(&self) {
        if let Some(probing) = &self.probing {
            probing.stop();
        }
    }

    fn stream_sent(&mut self, _stream: u8) -> Option<Vec<StreamSent>> {
        let sent_packets = *self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        Some(vec![StreamSent { sent_packets, ..StreamSent::default() }])
    }

    fn peer_finished(&mut self, _streams: Vec<StreamSent>) {}

    fn is_drained(&self) -> Option<bool> {
        None
    }

    fn last_arrival(&self) -> Nanos {
        Nanos::ZERO
    }

    fn progress(&self) -> Progress {
        Progress::default()
    }

    fn read_bytes(&self) -> u64 {
        0
    }

    fn report(mut self: Box<Self>) -> EndReport {
        if let Some(mut probing) = self.probing.take() {
            probing.stop();
            probing.join();
        }
        EndReport { host: serde_json::to_value(HostSnapshot::take()).unwrap_or_default(), ..EndReport::default() }
    }
}

impl Drop for ProbingData {
    fn drop(&mut self) {
        self.end_proof();
    }
}

struct UdpProbes {
    socket: Arc<UdpReceiver>,
    nic: Option<Nic>,
    peer: SocketAddr,
    cookie: Cookie,
    asked: RttParameters,
    stamped: bool,
    /// The sending thread's.
    payload: Mutex<Vec<u8>>,
    /// The receiving thread's.
    slots: Mutex<ReceiveSlots>,
}

impl Probes for UdpProbes {
    fn send(&self, sequence: u64, program_ns: i64) {
        let mut payload = self.payload.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(payload) = payload.get_mut(..self.asked.payload_of(sequence) as usize) else { return };
        if question(payload, self.cookie, sequence, program_ns as u64).is_some() {
            // What the kernel refuses is lost.
            let _ = self.socket.send_to(payload, self.peer);
        }
    }

    fn peer(&self) -> SocketAddr {
        self.peer
    }

    fn own(&self) -> Option<IpAddr> {
        Some(self.socket.local_address().ip())
    }

    fn are_stamped(&self) -> bool {
        self.stamped
    }

    fn receive(&self, account: &Shared, deadline: Nanos) -> bool {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = self.socket.wait_until(deadline);
        let sent = self.socket.receive_sent(&mut slots).unwrap_or(0);
        if sent > 0 {
            account.with(|account| {
                for packet in slots.packets() {
                    if let Some(sequence) = self.sent(&packet) {
                        enter_sent(account, sequence, &packet, self.nic.as_ref());
                    }
                }
            });
        }
        let came = self.socket.receive(&mut slots).unwrap_or(0);
        if came > 0 {
            account.with(|account| {
                for packet in slots.packets() {
                    account.dropped(packet.dropped_before);
                    self.take(&packet, account);
                }
            });
        }
        sent.max(came) == SLOTS
    }
}

impl UdpProbes {
    /// The number of the probe at the end of a packet that was sent.
    fn sent(&self, packet: &SuperPacket<'_>) -> Option<u64> {
        let parse = |payload: &[u8]| {
            let probe = Probe::parse(payload).filter(|probe| probe.cookie == self.cookie.of(false, 0))?;
            Some((probe.sequence, probe.sequence))
        };
        read_behind_headers(packet.bytes, &self.asked, parse)
    }

    fn take(&self, packet: &SuperPacket<'_>, account: &mut longhaul_rtt::Account) {
        let (received_ns, received_by) = received(packet, self.nic.as_ref());
        match reply(packet.bytes, self.cookie, |sequence| self.asked.payload_of(sequence)) {
            Some(answered) => {
                _ = account.answer(Answer {
                    sequence: answered.sequence,
                    echoed_ns: Some(answered.echoed_ns),
                    received_ns,
                    received_by,
                    responder: Some(answered.stamps),
                    hops_left: packet.hops_left,
                });
            }
            // A datagram of the proof that came late.
            None if Probe::parse(packet.bytes).is_some_and(|probe| probe.sequence >= FIRST_RESERVED) => {}
            None => account.ignore(),
        }
    }
}
