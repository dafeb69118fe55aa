//! Round trips of datagrams to a UDP port where nothing listens: the host answers that the port cannot be reached (RFC 1122 §4.1.3.1), and
//! ICMP messages come by the socket's error queue, so no right is needed. Hosts limit them, by default to one a second in Linux.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use longhaul_kernel::signals::Stop;
use longhaul_kernel::udp::{
    IcmpMessage, ReceiveSlots, ReceiverOptions, SuperPacket, TimestampMode, UdpOpenError, UdpReceiver,
};
use longhaul_rtt::probe_log::StampedBy;
use longhaul_rtt::{Account, Answer, Observed, RttParameters};
use longhaul_session::SessionError;
use longhaul_units::Nanos;

use super::content::{Content, sent_stamp};
use super::probing::{HEADERS_MOST, Probes, Probing, Shared};
use super::stamps::received;
use super::tcp_connect::watch;
use crate::control::random;
use crate::data::Source;

/// Packets taken in one call.
const SLOTS: usize = 32;

/// Probes `peer`, a port where nothing listens, from `source` until the amount is sent or a signal comes, and hands over what is seen. A second signal
/// ends it at once.
///
/// # Errors
/// The kernel gives no socket, or no route leads there.
pub fn probe_by_closed_port(
    peer: SocketAddr,
    source: Source,
    parameters: &RttParameters,
    stop: Option<Stop>,
    observe: impl FnMut(Observed),
) -> Result<(), SessionError> {
    let failed = |error: UdpOpenError| SessionError::new("data_socket", error.to_string(), "");
    let length = parameters.payload_bytes as usize;
    let probes = Arc::new(ClosedPortProbes {
        socket: RwLock::new(Arc::new(open(peer, source).map_err(failed)?)),
        peer,
        source,
        magic: random()?,
        asked: parameters.clone(),
        payload: Mutex::new(vec![0; length]),
        slots: Mutex::new(ReceiveSlots::new(SLOTS, length + HEADERS_MOST, false)),
    });
    let (sender, events) = channel();
    let seed = u64::from_ne_bytes(random()?);
    let probing = Probing::start(probes, parameters, seed, move |observed| _ = sender.send(observed))
        .map_err(|error| SessionError::new("data_socket", error.to_string(), ""))?;
    watch(probing, &events, stop, observe)
}

/// A socket from `source` to `peer` that stamps what it sends and tells ICMP errors.
pub(super) fn open(peer: SocketAddr, source: Source) -> Result<UdpReceiver, UdpOpenError> {
    let any: IpAddr = if peer.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let options = ReceiverOptions { gro: false, timestamps: TimestampMode::App, ..ReceiverOptions::default() };
    UdpReceiver::bind(source.of_data(0, peer).unwrap_or(SocketAddr::new(any, 0)), &options)?.probing(peer)
}

/// Whether `icmp` says that a port cannot be reached: type and code 3 and 3, by IPv6 1 and 4.
pub(super) fn is_port_unreachable(icmp: IcmpMessage) -> bool {
    (icmp.kind, icmp.code) == if icmp.from.is_ipv4() { (3, 3) } else { (1, 4) }
}

struct ClosedPortProbes {
    socket: RwLock<Arc<UdpReceiver>>,
    peer: SocketAddr,
    source: Source,
    /// What these probes have, and no others.
    magic: [u8; 8],
    asked: RttParameters,
    /// The sending thread's.
    payload: Mutex<Vec<u8>>,
    /// The receiving thread's.
    slots: Mutex<ReceiveSlots>,
}

impl Probes for ClosedPortProbes {
    fn send(&self, sequence: u64, program_ns: i64) {
        let mut payload = self.payload.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(payload) = payload.get_mut(..self.asked.payload_of(sequence) as usize) else { return };
        Content { sequence, program_ns: program_ns as u64 }.emit(self.magic, 0, payload);
        let _ = self.socket().send_to(payload, self.peer);
    }

    fn peer(&self) -> SocketAddr {
        self.peer
    }

    fn own(&self) -> Option<IpAddr> {
        Some(self.socket().local_address().ip())
    }

    fn readdress(&self) -> bool {
        // Where there is no route at the moment it is asked again with the next look.
        if let Ok(new) = open(self.peer, self.source) {
            *self.socket.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(new);
        }
        true
    }

    fn receive(&self, account: &Shared, deadline: Nanos) -> bool {
        let socket = self.socket();
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = socket.wait_until(deadline);
        if matches!(socket.receive_sent(&mut slots), Ok(1..)) {
            account.with(|account| slots.packets().for_each(|packet| self.take(&packet, account)));
        }
        if matches!(socket.receive(&mut slots), Ok(1..)) {
            // Something listens there.
            account.with(|account| slots.packets().for_each(|_| account.ignore()));
        }
        false
    }
}

impl ClosedPortProbes {
    fn socket(&self) -> Arc<UdpReceiver> {
        self.socket.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A packet of the error queue: the stamp of a probe that was sent, or an ICMP message.
    fn take(&self, packet: &SuperPacket<'_>, account: &mut Account) {
        let Some(icmp) = packet.icmp else {
            if let Some((sequence, at)) = sent_stamp(packet, self.magic, &self.asked) {
                account.stamp(sequence, at, StampedBy::Kernel);
            }
            return;
        };
        let ours = is_port_unreachable(icmp) && icmp.from.to_canonical() == self.peer.ip().to_canonical();
        let content = Content::parse(self.magic, packet.bytes);
        // A host that quotes the headers alone answers the latest probe: they come a second apart.
        let newest = || (packet.bytes.len() < self.magic.len()).then(|| account.next().checked_sub(1)).flatten();
        let Some(sequence) = content.map(|content| content.sequence).or_else(newest).filter(|_| ours) else {
            account.ignore();
            return;
        };
        let (received_ns, received_by) = received(packet, None);
        let echoed_ns = content.map(|content| content.program_ns);
        _ = account.answer(Answer { sequence, echoed_ns, received_ns, received_by, responder: None, hops_left: None });
    }
}
