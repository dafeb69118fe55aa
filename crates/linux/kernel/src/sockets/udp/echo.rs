//! Sockets for ICMP echo.
//!
//! A raw socket, where the process may open one (`CAP_NET_RAW`), sees all echo answers that come from the peer. A datagram socket is open to the
//! groups in `net.ipv4.ping_group_range`, for IPv6 too: the kernel chooses the identifier and hands over answers to it alone.
//!
//! Source: icmp(7), raw(7), RFC 792, RFC 3542 §3.2, RFC 4443 §4, `net/ipv4/ping.c`.

use std::ffi::c_int;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use longhaul_units::Nanos;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, ipproto, socket_with};

use super::option::set_bytes;
use super::{ReceiveSlots, ReceiverOptions, TimestampMode, UdpOpenError, UdpReceiveError, UdpReceiver, UdpSendError};
use crate::address::at_port;

/// Bytes of an echo's header: type, code, checksum, identifier, sequence.
const HEADER_LEN: usize = 8;
/// Types of an answer, ICMP's and ICMPv6's.
const ANSWER_V4: u8 = 0;
const ANSWER_V6: u8 = 129;
/// Of `<linux/icmp.h>` and `<linux/icmpv6.h>`.
const ICMP_FILTER: c_int = 1;
const ICMPV6_FILTER: c_int = 1;
/// Least bytes of an IPv4 header.
pub(super) const IPV4_LEAST: usize = 20;

/// A socket that sends echo requests to one host, and receives its answers.
#[derive(Debug)]
pub struct EchoSocket {
    socket: UdpReceiver,
    peer: SocketAddr,
    raw: bool,
    identifier: u16,
}

/// An echo answer or request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Echo<'a> {
    /// The low 16 bits of its number.
    pub sequence: u16,
    /// What follows the header.
    pub payload: &'a [u8],
}

impl EchoSocket {
    /// Opens a socket from the own address `from`, where that is some, towards `peer`, whatever their ports: a raw one with `identifier`, or else
    /// a datagram socket. The kernel stamps what is sent and received. ICMP errors come once they are asked for ([`UdpReceiver::report_errors`]): who forges
    /// them need not guess the identifier of a raw socket, and they would take its receive buffer.
    ///
    /// # Errors
    /// [`UdpOpenError::NoEcho`] where neither is allowed; any other [`UdpOpenError`].
    pub fn open(peer: SocketAddr, from: Option<SocketAddr>, identifier: u16) -> Result<Self, UdpOpenError> {
        let (family, protocol) = match peer {
            SocketAddr::V4(_) => (AddressFamily::INET, ipproto::ICMP),
            SocketAddr::V6(_) => (AddressFamily::INET6, ipproto::ICMPV6),
        };
        let open = |kind| socket_with(family, kind, SocketFlags::CLOEXEC, Some(protocol)).map_err(io::Error::from);
        let (fd, raw) = match open(SocketType::RAW) {
            Ok(fd) => (fd, true),
            Err(raw) => {
                let datagram = open(SocketType::DGRAM);
                (datagram.map_err(|datagram| UdpOpenError::NoEcho { raw, datagram })?, false)
            }
        };
        if raw {
            // Without it they are read and left out.
            let _ = receive_answers_alone(fd.as_fd(), peer.is_ipv4());
        }
        if let Some(own) = from.map(|own| at_port(own, 0)) {
            bind(&fd, &own).map_err(|source| UdpOpenError::bind("ICMP", own, source.into()))?;
        }
        let options = ReceiverOptions { gro: false, timestamps: TimestampMode::App, ..ReceiverOptions::default() };
        let peer = at_port(peer, 0);
        let mut socket = UdpReceiver::of(fd, &options)?;
        socket.connect(peer)?;
        socket.stamp_sent(false)?;
        Ok(Self { socket, peer, raw, identifier })
    }

    /// The socket, to wait for it and to receive.
    pub fn socket(&self) -> &UdpReceiver {
        &self.socket
    }

    /// As [`UdpReceiver::grow_receive_buffer`].
    ///
    /// # Errors
    /// [`UdpOpenError::Step`].
    pub fn grow_receive_buffer(&mut self, bytes: usize) -> Result<(), UdpOpenError> {
        self.socket.grow_receive_buffer(bytes)
    }

    /// Sends a request whose header lies in the first eight bytes of `packet`; never waits.
    ///
    /// # Errors
    /// Any [`UdpSendError`].
    pub fn send(&self, packet: &mut [u8], sequence: u16) -> Result<(), UdpSendError> {
        if let Some(header) = packet.first_chunk_mut::<HEADER_LEN>() {
            header[0] = if self.peer.is_ipv4() { 8 } else { 128 };
            header[1..4].fill(0);
            header[4..6].copy_from_slice(&self.identifier.to_be_bytes());
            header[6..8].copy_from_slice(&sequence.to_be_bytes());
        }
        if self.raw && self.peer.is_ipv4() {
            // The kernel does so for datagram sockets and for IPv6.
            let sum = checksum(packet).to_be_bytes();
            if let Some(place) = packet.get_mut(2..4) {
                place.copy_from_slice(&sum);
            }
        }
        self.socket.send_to(packet, self.peer)
    }

    /// The answer in what the socket received; `None` for everything else.
    pub fn answer<'a>(&self, bytes: &'a [u8]) -> Option<Echo<'a>> {
        let bytes = match (self.raw, self.peer.is_ipv4()) {
            (true, true) => {
                let header = usize::from(bytes.first()? & 15) * 4;
                bytes.get(header.max(IPV4_LEAST)..)?
            }
            _ => bytes,
        };
        let wanted = if self.peer.is_ipv4() { ANSWER_V4 } else { ANSWER_V6 };
        let header = bytes.first_chunk::<HEADER_LEN>()?;
        let own = !self.raw || header[4..6] == self.identifier.to_be_bytes();
        (header[..2] == [wanted, 0] && own)
            .then(|| Echo { sequence: u16::from_be_bytes([header[6], header[7]]), payload: &bytes[HEADER_LEN..] })
    }

    /// The request that an ICMP message quotes: what the error queue has of it. Eight bytes of it are always quoted.
    pub fn quoted<'a>(&self, bytes: &'a [u8]) -> Option<Echo<'a>> {
        let header = bytes.first_chunk::<HEADER_LEN>()?;
        let own = !self.raw || header[4..6] == self.identifier.to_be_bytes();
        let request = if self.peer.is_ipv4() { 8 } else { 128 };
        (header[0] == request && own)
            .then(|| Echo { sequence: u16::from_be_bytes([header[6], header[7]]), payload: &bytes[HEADER_LEN..] })
    }

    /// As [`UdpReceiver::receive`].
    ///
    /// # Errors
    /// Any [`UdpReceiveError`].
    pub fn receive(&self, slots: &mut ReceiveSlots) -> Result<usize, UdpReceiveError> {
        self.socket.receive(slots)
    }

    /// As [`UdpReceiver::wait_until`].
    ///
    /// # Errors
    /// Does not fail in practice on an open socket.
    pub fn wait_until(&self, deadline: Nanos) -> io::Result<bool> {
        self.socket.wait_until(deadline)
    }
}

/// Has a raw `socket` receive echo answers alone: what else comes from the peer, or is forged in its name, would take their room.
fn receive_answers_alone(socket: BorrowedFd<'_>, is_ipv4: bool) -> io::Result<()> {
    let (level, name, answer, words) = if is_ipv4 {
        (libc::SOL_RAW, ICMP_FILTER, ANSWER_V4, 1)
    } else {
        (libc::SOL_ICMPV6, ICMPV6_FILTER, ANSWER_V6, 8)
    };
    // A bit that is set keeps a type out.
    let mut kept_out = [u32::MAX; 8];
    kept_out[usize::from(answer / 32)] &= !(1_u32 << (answer % 32));
    let bytes: Vec<u8> = kept_out[..words].iter().flat_map(|word| word.to_ne_bytes()).collect();
    set_bytes(socket, level, name, &bytes)
}

/// The Internet checksum (RFC 1071) of `bytes`, whose own place is zero.
pub(super) fn checksum(bytes: &[u8]) -> u16 {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u32::from(*low));
    let mut sum: u32 = bytes.chunks(2).map(word).fold(0, u32::wrapping_add);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_by_hand() {
        // RFC 1071 §3: 0001 f203 f4f5 f6f7 sum to ddf2 without carry beyond.
        assert_eq!(checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), !0xddf2);
        assert_eq!(checksum(&[0x01]), !0x0100);
    }
}
