//! Round trips to each router of a path, by probes of one flow that may pass only so many routers.
//!
//! ICMP messages come by the error queue of the socket that sent the probe, raw or not, so where datagram sockets for ICMP are allowed
//! no right is needed.

use std::net::{IpAddr, SocketAddr};

use longhaul_kernel::clock::monotonic;
use longhaul_kernel::signals::Stop;
use longhaul_kernel::udp::{EchoSocket, IcmpMessage, ReceiveSlots, SuperPacket, SynSocket, UdpOpenError, UdpReceiver};
use longhaul_rtt::probe_log::ProbeKind;
use longhaul_rtt::{HopAccount, HopAnswer, HopAnswerer, HopsParameters, HopsResult, RttParameters};
use longhaul_session::SessionError;
use longhaul_units::Nanos;

use super::closed_port::{self, is_port_unreachable};
use super::content::{Content, sent_stamp};
use super::echo::{HEADER_LEN, open as open_echo};
use super::probing::{HEADERS_MOST, kernel_stamp, realtime_ns};
use super::stamps::received;
use crate::control::{interrupted, random};
use crate::data::Source;

/// Packets taken in one call.
const SLOTS: usize = 32;
/// How often to look for signals and for probes whose time is over.
const LOOK: Nanos = Nanos::from_millis(50);

/// Probes the hops towards `peer` by ICMP echo, by datagrams to its port or by TCP SYNs to it, from `source`, until the amount is sent or a signal comes.
/// Calls `live` each second with the round and the hops that are asked. A second signal ends it at once.
///
/// # Errors
/// No socket is allowed, or no route leads there.
pub fn probe_hops(
    peer: SocketAddr,
    source: Source,
    kind: ProbeKind,
    asked: &HopsParameters,
    stop: Stop,
    mut live: impl FnMut(u64, u8),
) -> Result<HopsResult, SessionError> {
    let mut probes = HopProbes::open(peer, source, kind, asked)?;
    let mut slots = ReceiveSlots::new(SLOTS, asked.payload_bytes as usize + HEADERS_MOST, false);
    let mut account = HopAccount::new(asked.clone(), monotonic());
    let mut told = monotonic();
    while let Some((due, _)) = account.next() {
        if stop.count() > 0 {
            break;
        }
        probes.receive(&mut slots, &mut account, due.min(monotonic() + LOOK));
        let now = monotonic();
        account.retire(realtime_ns());
        if now >= told {
            told = now + Nanos::from_secs(1);
            let (round, reach) = account.now();
            live(round, reach);
        }
        // An answer may have ended the round.
        if let Some((_, hop)) = account.next().filter(|(due, _)| now >= *due) {
            probes.send(&mut account, now, hop);
        }
    }
    let over = monotonic().saturating_add(Nanos(asked.timeout_ns));
    while monotonic() < over && !account.all_answered() {
        if stop.count() > 1 {
            return Err(interrupted());
        }
        probes.receive(&mut slots, &mut account, over.min(monotonic() + LOOK));
    }
    Ok(account.finish(kind))
}

enum Socket {
    Echo(EchoSocket),
    Udp(UdpReceiver),
    /// With the first probe's sequence number of TCP.
    Syn(SynSocket, u32),
}

struct HopProbes {
    socket: Socket,
    peer: SocketAddr,
    magic: [u8; 8],
    /// For the lengths of payloads.
    asked: RttParameters,
    packet: Vec<u8>,
}

impl HopProbes {
    fn open(peer: SocketAddr, source: Source, kind: ProbeKind, asked: &HopsParameters) -> Result<Self, SessionError> {
        let magic = random::<8>()?;
        let failed = |error: UdpOpenError| SessionError::new("data_socket", error.to_string(), "");
        let socket = match kind {
            ProbeKind::ClosedPort => Socket::Udp(closed_port::open(peer, source).map_err(failed)?),
            ProbeKind::Tcp => {
                let denied = |error: UdpOpenError| match error {
                    UdpOpenError::Step { .. } => {
                        let remedy = "run as root, or probe by ICMP echo or UDP";
                        SessionError::new("no_raw_socket", error.to_string(), remedy)
                    }
                    error => failed(error),
                };
                let from = source.of_data(0, peer);
                Socket::Syn(SynSocket::open(peer, from).map_err(denied)?, u32::from_ne_bytes(random()?))
            }
            ProbeKind::Icmp | ProbeKind::Udp => {
                let socket = open_echo(peer, source, magic)?;
                socket.socket().report_errors().map_err(failed)?;
                Socket::Echo(socket)
            }
        };
        let length = asked.payload_bytes as usize;
        Ok(Self {
            socket,
            peer,
            magic,
            asked: RttParameters { payload_bytes: asked.payload_bytes, ..RttParameters::default() },
            packet: vec![0; HEADER_LEN + length],
        })
    }

    fn socket(&self) -> &UdpReceiver {
        match &self.socket {
            Socket::Echo(socket) => socket.socket(),
            Socket::Udp(socket) => socket,
            Socket::Syn(socket, _) => socket.socket(),
        }
    }

    fn send(&mut self, account: &mut HopAccount, now: Nanos, hop: u8) {
        // A probe that cannot be told to end early would be answered by the destination.
        let told = self.socket().set_hops(hop).is_ok();
        let program_ns = realtime_ns();
        let sequence = account.send(now, program_ns);
        let content = Content { sequence, program_ns: program_ns as u64 };
        let beside = if matches!(self.socket, Socket::Echo(_)) { sequence as u16 } else { 0 };
        let Some(payload) = self.packet.get_mut(HEADER_LEN..).filter(|_| told) else { return };
        content.emit(self.magic, beside, payload);
        // What the kernel refuses is lost.
        let _ = match &self.socket {
            Socket::Echo(socket) => socket.send(&mut self.packet, sequence as u16),
            Socket::Udp(socket) => socket.send_to(&self.packet[HEADER_LEN..], self.peer),
            Socket::Syn(socket, first) => socket.send(first.wrapping_add(sequence as u32)),
        };
    }

    /// Receives what is there, waiting until `deadline` for something.
    fn receive(&self, slots: &mut ReceiveSlots, account: &mut HopAccount, deadline: Nanos) {
        let _ = self.socket().wait_until(deadline);
        if matches!(self.socket().receive_sent(slots), Ok(1..)) {
            for packet in slots.packets() {
                match packet.icmp {
                    Some(icmp) => self.take_error(&packet, icmp, account),
                    None => self.take_stamp(&packet, account),
                }
            }
        }
        if matches!(self.socket().receive(slots), Ok(1..)) {
            slots.packets().for_each(|packet| self.take_answer(&packet, account));
        }
    }

    fn take_stamp(&self, packet: &SuperPacket<'_>, account: &mut HopAccount) {
        let stamp = match &self.socket {
            Socket::Syn(socket, first) => {
                let number = socket.sent(packet.bytes).map(|number| u64::from(number.wrapping_sub(*first)));
                number.zip(kernel_stamp(packet))
            }
            Socket::Echo(_) | Socket::Udp(_) => sent_stamp(packet, self.magic, &self.asked),
        };
        if let Some((sequence, at)) = stamp {
            account.stamp(sequence, at);
        }
    }

    /// An ICMP message about a probe.
    fn take_error(&self, packet: &SuperPacket<'_>, icmp: IcmpMessage, account: &mut HopAccount) {
        let number = match &self.socket {
            Socket::Echo(socket) => {
                // Another program's echo has another identifier.
                let Some(echo) = socket.quoted(packet.bytes) else { return };
                account.latest(echo.sequence)
            }
            Socket::Udp(_) => Content::parse(self.magic, packet.bytes).map(|content| content.sequence),
            // Another program's connection has another port.
            Socket::Syn(socket, first) => {
                let Some(number) = socket.quoted(packet.bytes) else { return };
                Some(u64::from(number.wrapping_sub(*first)))
            }
        };
        let Some(sequence) = number else { return account.unattributed() };
        let exceeded = if icmp.from.is_ipv4() { (11, 0) } else { (3, 0) };
        let at_destination = icmp.from.to_canonical() == self.peer.ip().to_canonical();
        let place = if (icmp.kind, icmp.code) == exceeded {
            HopAnswerer::Router
        } else if is_port_unreachable(icmp) && at_destination {
            HopAnswerer::Destination
        } else {
            HopAnswerer::Barrier
        };
        self.answer(packet, sequence, None, icmp.from, place, account);
    }

    /// An echo's answer, or a SYN's.
    fn take_answer(&self, packet: &SuperPacket<'_>, account: &mut HopAccount) {
        let socket = match &self.socket {
            Socket::Echo(socket) => socket,
            Socket::Udp(_) => return account.unattributed(),
            Socket::Syn(socket, first) => {
                // The socket sees all TCP of that host.
                let Some(number) = socket.answered(packet.bytes) else { return };
                let sequence = u64::from(number.wrapping_sub(*first));
                return self.answer(packet, sequence, None, self.peer.ip(), HopAnswerer::Destination, account);
            }
        };
        let Some(echo) = socket.answer(packet.bytes) else { return };
        if let Some(Content { sequence, program_ns }) = Content::parse(self.magic, echo.payload) {
            self.answer(packet, sequence, Some(program_ns), self.peer.ip(), HopAnswerer::Destination, account);
        }
    }

    fn answer(
        &self,
        packet: &SuperPacket<'_>,
        sequence: u64,
        echoed_ns: Option<u64>,
        from: IpAddr,
        place: HopAnswerer,
        account: &mut HopAccount,
    ) {
        let (received_ns, received_by) = received(packet, None);
        account.answer(HopAnswer { sequence, from, place, echoed_ns, received_ns, received_by });
    }
}
