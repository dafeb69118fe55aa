//! Round trips by ICMP echo, which any host may answer.

use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use longhaul_kernel::address::zone_of;
use longhaul_kernel::signals::Stop;
use longhaul_kernel::udp::{EchoSocket, ReceiveSlots, UdpOpenError};
use longhaul_rtt::{Answer, Observed, RttParameters};
use longhaul_session::SessionError;
use longhaul_units::Nanos;

use super::content::{Content, sent_number};
use super::probing::{HEADERS_MOST, Probes, Probing, Shared};
use super::reading::ANSWERS_BYTES;
use super::stamps::{Nic, enter_sent, received};
use super::tcp_connect::watch;
use crate::control::random;
use crate::data::Source;

/// Packets taken in one call.
const SLOTS: usize = 32;
/// An echo's header.
pub(super) const HEADER_LEN: usize = 8;

/// Probes `peer`, whatever its port, by ICMP echo from the address of `source` until the amount is sent or a signal comes, and hands over what is seen. A second signal ends it at once.
///
/// # Errors
/// No socket is allowed, or no route leads there.
pub fn probe_by_echo(
    peer: SocketAddr,
    source: Source,
    parameters: &RttParameters,
    stop: Option<Stop>,
    observe: impl FnMut(Observed),
) -> Result<(), SessionError> {
    let (probing, events) = begin(peer, source, parameters)?;
    watch(probing, &events, stop, observe)
}

/// Begins to probe `peer` from the address of `source`; what is seen comes by the receiver.
pub(super) fn begin(
    peer: SocketAddr,
    source: Source,
    parameters: &RttParameters,
) -> Result<(Probing, Receiver<Observed>), SessionError> {
    let magic = random::<8>()?;
    let socket = open(peer, source, magic)?;
    let own = socket.socket().local_address().ip();
    let nic = parameters.nic_stamps.then(|| Nic::open(own, peer.ip(), zone_of(peer))).transpose()?;
    if nic.is_some() {
        // Else its stamps do not come, and the result says so.
        let _ = socket.socket().stamp_sent(true);
    }
    let length = parameters.payload_bytes as usize;
    let probes = Arc::new(EchoProbes {
        socket: RwLock::new(Arc::new(socket)),
        nic,
        peer,
        source,
        magic,
        asked: parameters.clone(),
        packet: Mutex::new(vec![0; HEADER_LEN + length]),
        slots: Mutex::new(ReceiveSlots::new(SLOTS, length + HEADERS_MOST, false)),
    });
    let (sender, events) = channel();
    let seed = u64::from_ne_bytes(random()?);
    let probing = Probing::start(probes, parameters, seed, move |observed| _ = sender.send(observed))
        .map_err(|error| SessionError::new("data_socket", error.to_string(), ""))?;
    Ok((probing, events))
}

/// A socket for echoes of `peer`, from the address of `source`, whose identifier is drawn with `magic`.
pub(super) fn open(peer: SocketAddr, source: Source, magic: [u8; 8]) -> Result<EchoSocket, SessionError> {
    let denied = "run as root, or let your group use it: sysctl -w net.ipv4.ping_group_range=\"0 2147483647\"";
    let opened = EchoSocket::open(peer, source.address, u16::from_ne_bytes([magic[0], magic[1]]));
    let mut socket = opened.map_err(|error| match error {
        UdpOpenError::NoEcho { .. } => SessionError::new("no_echo_socket", format!("{}: {error}", peer.ip()), denied),
        // Others say what to do, or the kernel lacks something.
        error => SessionError::new("data_socket", error.to_string(), ""),
    })?;
    // Without the TTL a change of the route back shows by the round trip alone.
    let _ = socket.socket().tell_hops();
    // With less fewer answers can wait.
    let _ = socket.grow_receive_buffer(ANSWERS_BYTES);
    Ok(socket)
}

struct EchoProbes {
    socket: RwLock<Arc<EchoSocket>>,
    nic: Option<Nic>,
    peer: SocketAddr,
    source: Source,
    /// What the answers to these probes have, and no others.
    magic: [u8; 8],
    asked: RttParameters,
    /// The sending thread's.
    packet: Mutex<Vec<u8>>,
    /// The receiving thread's.
    slots: Mutex<ReceiveSlots>,
}

impl EchoProbes {
    fn socket(&self) -> Arc<EchoSocket> {
        self.socket.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Probes for EchoProbes {
    fn send(&self, sequence: u64, program_ns: i64) {
        let mut packet = self.packet.lock().unwrap_or_else(PoisonError::into_inner);
        let content = Content { sequence, program_ns: program_ns as u64 };
        let length = HEADER_LEN + self.asked.payload_of(sequence) as usize;
        let Some(packet) = packet.get_mut(..length) else { return };
        content.emit(self.magic, sequence as u16, packet.get_mut(HEADER_LEN..).unwrap_or_default());
        // What the kernel refuses is lost.
        let _ = self.socket().send(packet, sequence as u16);
    }

    fn peer(&self) -> SocketAddr {
        self.peer
    }

    fn own(&self) -> Option<IpAddr> {
        Some(self.socket().socket().local_address().ip())
    }

    fn readdress(&self) -> bool {
        // Where there is no route at the moment it is asked again with the next look. A raw socket that is disconnected receives no more.
        if let Ok(new) = open(self.peer, self.source, self.magic) {
            let _ = new.socket().stamp_sent(self.nic.is_some());
            *self.socket.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(new);
        }
        true
    }

    fn are_stamped(&self) -> bool {
        true
    }

    fn receive(&self, account: &Shared, deadline: Nanos) -> bool {
        let socket = self.socket();
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = socket.wait_until(deadline);
        let sent = socket.socket().receive_sent(&mut slots).unwrap_or(0);
        if sent > 0 {
            account.with(|account| {
                for packet in slots.packets().filter(|packet| packet.icmp.is_none()) {
                    if let Some(sequence) = sent_number(&packet, self.magic, &self.asked) {
                        enter_sent(account, sequence, &packet, self.nic.as_ref());
                    }
                }
            });
        }
        let came = socket.receive(&mut slots).unwrap_or(0);
        if came > 0 {
            account.with(|account| {
                for packet in slots.packets() {
                    account.dropped(packet.dropped_before);
                    let Some(echo) = socket.answer(packet.bytes) else { continue };
                    let content = Content::parse(self.magic, echo.payload);
                    let whole = content.filter(|content| {
                        let length = self.asked.payload_of(content.sequence) as usize;
                        echo.payload.len() == length && content.sequence as u16 == echo.sequence
                    });
                    let Some(content) = whole else {
                        account.ignore();
                        continue;
                    };
                    let (received_ns, received_by) = received(&packet, self.nic.as_ref());
                    _ = account.answer(Answer {
                        sequence: content.sequence,
                        echoed_ns: Some(content.program_ns),
                        received_ns,
                        received_by,
                        responder: None,
                        hops_left: packet.hops_left,
                    });
                }
            });
        }
        sent.max(came) == SLOTS
    }
}
