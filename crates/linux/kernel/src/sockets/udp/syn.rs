//! Raw sockets for TCP SYNs of one flow, which open nothing: what the host answers finds no socket here, and the kernel resets it.
//!
//! Source: raw(7), RFC 9293 §3.1 (header), §3.10.7 (what a SYN is answered with).

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, ipproto, socket_with};

use super::echo::{IPV4_LEAST, checksum};
use super::socket::local_address;
use super::{ReceiverOptions, TimestampMode, UdpOpenError, UdpReceiver, UdpSendError};
use crate::address::at_port;

/// Bytes of a header without options.
const HEADER_LEN: usize = 20;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// A socket that sends SYNs to one port of one host from one port, and receives what they are answered with.
#[derive(Debug)]
pub struct SynSocket {
    socket: UdpReceiver,
    peer: SocketAddr,
    own_port: u16,
    /// Holds the port, so that no other program's connection has it.
    _holder: OwnedFd,
}

impl SynSocket {
    /// Opens a socket towards `peer`, from the own address and port `from` where that is some; the kernel chooses what it leaves open.
    ///
    /// # Errors
    /// [`UdpOpenError::Step`] without `CAP_NET_RAW`; any other [`UdpOpenError`].
    pub fn open(peer: SocketAddr, from: Option<SocketAddr>) -> Result<Self, UdpOpenError> {
        let family = if peer.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let open = |kind| socket_with(family, kind, SocketFlags::CLOEXEC, Some(ipproto::TCP)).map_err(io::Error::from);
        let raw = open(SocketType::RAW).map_err(UdpOpenError::step("socket(TCP, raw)"))?;
        if let Some(own) = from.map(|own| at_port(own, 0)) {
            bind(&raw, &own).map_err(|source| UdpOpenError::bind("TCP", own, source.into()))?;
        }
        let options = ReceiverOptions { gro: false, timestamps: TimestampMode::App, ..ReceiverOptions::default() };
        // A raw socket has no port.
        let socket = UdpReceiver::of(raw, &options)?.probing(at_port(peer, 0))?;
        let own = at_port(socket.local_address(), from.map_or(0, |from| from.port()));
        let holder = open(SocketType::STREAM).map_err(UdpOpenError::step("socket(TCP)"))?;
        bind(&holder, &own).map_err(|source| UdpOpenError::bind("TCP", own, source.into()))?;
        let own_port = local_address(&holder)?.port();
        Ok(Self { socket, peer, own_port, _holder: holder })
    }

    /// The socket, to wait for it and to receive.
    pub fn socket(&self) -> &UdpReceiver {
        &self.socket
    }

    /// Sends a SYN with this sequence number; never waits.
    ///
    /// # Errors
    /// Any [`UdpSendError`].
    pub fn send(&self, sequence: u32) -> Result<(), UdpSendError> {
        let mut header = [0; HEADER_LEN];
        header[..2].copy_from_slice(&self.own_port.to_be_bytes());
        header[2..4].copy_from_slice(&self.peer.port().to_be_bytes());
        header[4..8].copy_from_slice(&sequence.to_be_bytes());
        header[12] = (HEADER_LEN as u8 / 4) << 4;
        header[13] = SYN;
        header[14..16].copy_from_slice(&u16::MAX.to_be_bytes());
        let mut summed: Vec<u8> = match (self.socket.local_address().ip(), self.peer.ip()) {
            (IpAddr::V4(own), IpAddr::V4(peer)) => [own.octets(), peer.octets()].concat(),
            (own, peer) => [octets(own), octets(peer)].concat(),
        };
        // The rest of a pseudo header in any order of words: protocol and length.
        summed.extend([0, 6, 0, HEADER_LEN as u8]);
        summed.extend(header);
        header[16..18].copy_from_slice(&checksum(&summed).to_be_bytes());
        self.socket.send_to(&header, at_port(self.peer, 0))
    }

    /// The sequence number of the SYN that was answered, by a SYN and ACK or by a reset; `None` for everything else.
    pub fn answered(&self, bytes: &[u8]) -> Option<u32> {
        let bytes = if self.peer.is_ipv4() {
            let header = usize::from(bytes.first()? & 15) * 4;
            bytes.get(header.max(IPV4_LEAST)..)?
        } else {
            bytes
        };
        let header = bytes.first_chunk::<HEADER_LEN>()?;
        let ports = [self.peer.port().to_be_bytes(), self.own_port.to_be_bytes()].concat();
        let acknowledged = u32::from_be_bytes([header[8], header[9], header[10], header[11]]);
        (header[..4] == ports && header[13] & ACK > 0 && header[13] & (SYN | RST) > 0)
            .then(|| acknowledged.wrapping_sub(1))
    }

    /// The sequence number of the SYN that an ICMP message quotes: what the error queue has of it. Eight bytes of it are always quoted.
    pub fn quoted(&self, bytes: &[u8]) -> Option<u32> {
        let ports = [self.own_port.to_be_bytes(), self.peer.port().to_be_bytes()].concat();
        let [a, b, c, d] = *bytes.get(4..)?.first_chunk::<4>()?;
        (bytes[..4] == ports).then(|| u32::from_be_bytes([a, b, c, d]))
    }

    /// The sequence number of a SYN that was sent, in a copy with all headers of the layers below.
    pub fn sent(&self, bytes: &[u8]) -> Option<u32> {
        let at = bytes.len().checked_sub(HEADER_LEN)?;
        self.quoted(&bytes[at..])
    }
}

/// As IPv6 has it.
fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}
