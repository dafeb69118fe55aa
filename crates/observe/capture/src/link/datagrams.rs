//! The datagrams of a link: encrypted, and passed to the kernel in batches.

use std::net::SocketAddr;

use longhaul_channel::{DATAGRAM_OVERHEAD_BYTES, DatagramKeys};
use longhaul_kernel::udp::{SenderOptions, UdpOpenError, UdpSendError, UdpSender, Unsent};
use longhaul_units::Nanos;

/// The longest datagram, even if the path's MTU allows more: what jumbo frames of 9000 bytes carry over IPv4.
const DATAGRAM_BYTES_MOST: usize = 8972;
/// Passes everywhere: the minimum MTU of IPv6 (RFC 8200 §5) without headers.
pub(super) const DATAGRAM_BYTES_SURE: usize = 1280 - 48;
/// The shortest useful datagram.
pub const DATAGRAM_BYTES_LEAST: usize = 576;
/// The longest datagram that a user may ask for: a Noise message over IPv4.
pub const DATAGRAM_BYTES_LONGEST: usize = 65_000;
/// The socket's send buffer.
const SEND_BUFFER_BYTES: usize = 4 << 20;

/// The sending socket, and the datagrams that wait for a batch.
#[derive(Debug)]
pub(super) struct Datagrams {
    socket: UdpSender,
    keys: DatagramKeys,
    session: u32,
    /// Longest datagram. If it is longer than the path's MTU, it goes in fragments.
    bytes_most: usize,
    /// The length follows the path's MTU; otherwise the user chose it.
    follows_path: bool,
    refused: u64,
    /// The kernel takes no batches for this path.
    singly: bool,
    datagram: Vec<u8>,
    /// Datagrams of full length; the last may be shorter.
    batch: Vec<u8>,
}

impl Datagrams {
    /// Sends to `peer`, in datagrams of `asked_bytes` or as long as the path's MTU allows.
    pub(super) fn connect(
        peer: SocketAddr,
        keys: DatagramKeys,
        session: u32,
        asked_bytes: Option<usize>,
    ) -> Result<Self, UdpOpenError> {
        let options = SenderOptions {
            send_buffer_bytes: Some(SEND_BUFFER_BYTES),
            report_drops: false,
            wait_most: Nanos::from_secs(1),
            ..SenderOptions::default()
        };
        let socket = UdpSender::connect(None, peer, &options)?;
        let mut datagrams = Self {
            socket,
            keys,
            session,
            bytes_most: asked_bytes.unwrap_or(DATAGRAM_BYTES_MOST),
            follows_path: asked_bytes.is_none(),
            refused: 0,
            singly: false,
            datagram: Vec::new(),
            batch: Vec::new(),
        };
        datagrams.follow_path();
        Ok(datagrams)
    }

    pub(super) fn peer_address(&self) -> SocketAddr {
        self.socket.peer_address()
    }

    /// The local address.
    pub(super) fn local_address(&self) -> SocketAddr {
        self.socket.local_address()
    }

    /// Longest datagram.
    pub(super) fn bytes_most(&self) -> usize {
        self.bytes_most
    }

    /// Datagrams that the kernel did not take.
    pub(super) fn refused(&self) -> u64 {
        self.refused
    }

    /// Makes datagrams no longer than this, and no shorter than the least that there are, whatever the other end says that it got.
    pub(super) fn shorten(&mut self, bytes_most: usize) {
        self.bytes_most = self.bytes_most.min(bytes_most.max(DATAGRAM_BYTES_LEAST));
    }

    /// Adapts the length to the path MTU that the kernel knows now, unless the user chose a length.
    pub(super) fn follow_path(&mut self) {
        let headers = if self.peer_address().is_ipv4() { 28 } else { 48 };
        let by_mtu =
            self.socket.path_mtu_bytes().map_or(DATAGRAM_BYTES_SURE, |mtu| (mtu as usize).saturating_sub(headers));
        if self.follows_path {
            self.shorten(by_mtu);
        }
        // The kernel does not batch datagrams that need fragments.
        self.singly |= self.bytes_most > by_mtu;
    }

    /// Sends a datagram of `bytes` without snippets, to find out whether it arrives. The error "too long" is an answer too.
    pub(super) fn probe(&mut self, sequence: u64, bytes: usize) {
        self.keys.seal(self.session, sequence, &vec![0; bytes - DATAGRAM_OVERHEAD_BYTES], &mut self.datagram);
        let _ = self.socket.send(&self.datagram, true);
    }

    /// Sends a payload. If `more_follow` at once, it is padded to full length and may wait for them, so that one system call sends many
    /// (`UDP_SEGMENT`).
    pub(super) fn send(&mut self, sequence: u64, payload: &mut Vec<u8>, more_follow: bool) {
        let full = self.bytes_most - DATAGRAM_OVERHEAD_BYTES;
        let is_long = payload.len() > full;
        if more_follow && !is_long {
            payload.resize(full, 0);
        }
        self.keys.seal(self.session, sequence, payload, &mut self.datagram);
        if is_long {
            // A snippet longer than a datagram, or packed before the path MTU shrank: it goes alone, in fragments.
            self.transmit();
            let datagram = std::mem::take(&mut self.datagram);
            self.give(&datagram, datagram.len());
            self.datagram = datagram;
            return;
        }
        self.batch.extend_from_slice(&self.datagram);
        if !more_follow || self.batch.len() / self.bytes_most >= self.socket.segments_most(self.bytes_most) {
            self.transmit();
        }
    }

    /// Sends the batch.
    pub(super) fn transmit(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        self.give(&batch, self.bytes_most);
        self.batch = batch;
        self.batch.clear();
    }

    /// Passes datagrams of `step` bytes to the kernel; the last may be shorter. Waiting until the kernel takes them adapts to the speed of
    /// this host's link. The other end misses what the kernel refuses.
    fn give(&mut self, mut rest: &[u8], step: usize) {
        let (mut together, mut narrower) = (!self.singly, true);
        while !rest.is_empty() {
            let piece = if together { rest.len() } else { rest.len().min(step) };
            let sent = self.socket.send_segments(&rest[..piece], step, true);
            match sent.unsent {
                None => rest = &rest[(sent.datagrams * step).min(rest.len())..],
                Some(Unsent::Because(UdpSendError::NotSegmentable)) if together => {
                    (self.singly, together) = (true, false)
                }
                // A router reported a smaller MTU. These datagrams go in fragments, later ones are shorter.
                Some(Unsent::Because(error)) if narrower && is_too_long(&error, piece > step) => {
                    self.follow_path();
                    (together, narrower) = (false, false);
                }
                Some(_) => {
                    self.refused += piece.div_ceil(step) as u64;
                    rest = &rest[piece..];
                }
            }
        }
    }
}

/// Kernels before 6.14 return EINVAL for a batch whose datagrams are longer than the path's MTU.
fn is_too_long(error: &UdpSendError, is_super: bool) -> bool {
    match error {
        UdpSendError::MessageTooLong => true,
        UdpSendError::Other(error) => is_super && error.kind() == std::io::ErrorKind::InvalidInput,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    /// Whatever the other end says that it heard.
    #[test]
    fn datagrams_keep_room_for_a_packet() {
        let other = UdpSocket::bind("127.0.0.1:0").unwrap();
        let keys = DatagramKeys::plain(Default::default());
        let mut datagrams = Datagrams::connect(other.local_addr().unwrap(), keys, 1, None).unwrap();
        datagrams.shorten(1);
        assert_eq!(datagrams.bytes_most(), DATAGRAM_BYTES_LEAST);
        datagrams.send(0, &mut vec![7; 100], true);
        datagrams.transmit();
        assert_eq!(other.recv(&mut [0; 2_000]).unwrap(), DATAGRAM_BYTES_LEAST);
    }
}
