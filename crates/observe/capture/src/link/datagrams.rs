//! A link's datagrams on their way out: sealed, and handed to the kernel many at a time.

use std::net::{IpAddr, SocketAddr};

use longhaul_kernel::udp::{SenderOptions, UdpOpenError, UdpSendError, UdpSender, Unsent};
use longhaul_session::secure::{DATAGRAM_OVERHEAD_BYTES, DatagramKeys};
use longhaul_units::Nanos;

/// Longest datagram where the path's MTU would allow more: what jumbo frames of 9000 bytes carry, over IPv4.
const DATAGRAM_BYTES_MOST: usize = 8972;
/// What passes everywhere: IPv6's least MTU (RFC 8200 §5) without its headers.
pub(super) const DATAGRAM_BYTES_SURE: usize = 1280 - 48;
/// Shortest that is of use.
pub const DATAGRAM_BYTES_LEAST: usize = 576;
/// Longest that the user may ask for: a Noise message in a datagram of IPv4.
pub const DATAGRAM_BYTES_LONGEST: usize = 65_000;
/// What waits in the kernel for the link.
const SEND_BUFFER_BYTES: usize = 4 << 20;

/// The socket that datagrams leave by, and those that wait to go together.
#[derive(Debug)]
pub(super) struct Datagrams {
    socket: UdpSender,
    keys: DatagramKeys,
    session: u32,
    /// Longest datagram. Longer ones than the path's MTU go in fragments.
    bytes_most: usize,
    /// Its length follows the path's MTU; else it was asked for.
    follows_path: bool,
    refused: u64,
    /// The way there takes no super-packets.
    singly: bool,
    datagram: Vec<u8>,
    /// All but the last of full length.
    batch: Vec<u8>,
}

impl Datagrams {
    /// To `peer`; of `asked_bytes`, or as long as the path's MTU allows.
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

    /// The address that they leave from.
    pub(super) fn local_ip(&self) -> IpAddr {
        self.socket.local_address().ip()
    }

    /// Longest datagram.
    pub(super) fn bytes_most(&self) -> usize {
        self.bytes_most
    }

    /// Datagrams that this host's kernel did not take.
    pub(super) fn refused(&self) -> u64 {
        self.refused
    }

    /// Longer ones do not come through.
    pub(super) fn shorten(&mut self, bytes_most: usize) {
        self.bytes_most = self.bytes_most.min(bytes_most);
    }

    /// No longer than the path's MTU, as far as the kernel knows it now, unless another length was asked for.
    pub(super) fn follow_path(&mut self) {
        let headers = if self.peer_address().is_ipv4() { 28 } else { 48 };
        let by_mtu =
            self.socket.path_mtu_bytes().map_or(DATAGRAM_BYTES_SURE, |mtu| (mtu as usize).saturating_sub(headers));
        if self.follows_path {
            self.shorten(by_mtu.max(DATAGRAM_BYTES_LEAST));
        }
        // The kernel makes no super-packet of fragments.
        self.singly |= self.bytes_most > by_mtu;
    }

    /// Sends a datagram of `bytes` without heads, to see whether it comes through. Too long for the way is an answer as well.
    pub(super) fn probe(&mut self, sequence: u64, bytes: usize) {
        self.keys.seal(self.session, sequence, &vec![0; bytes - DATAGRAM_OVERHEAD_BYTES], &mut self.datagram);
        let _ = self.socket.send(&self.datagram, true);
    }

    /// Sends a payload. Where `more_follow` at once it is filled up to its full length and may wait for those, so that one call of the
    /// kernel's takes many (`UDP_SEGMENT`).
    pub(super) fn send(&mut self, sequence: u64, payload: &mut Vec<u8>, more_follow: bool) {
        let full = self.bytes_most - DATAGRAM_OVERHEAD_BYTES;
        let is_long = payload.len() > full;
        if more_follow && !is_long {
            payload.resize(full, 0);
        }
        self.keys.seal(self.session, sequence, payload, &mut self.datagram);
        if is_long {
            // A head that is longer than what passes whole, or one packed before the path got narrower: by itself, in fragments.
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

    /// Sends what waits.
    pub(super) fn transmit(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        self.give(&batch, self.bytes_most);
        self.batch = batch;
        self.batch.clear();
    }

    /// Hands the kernel datagrams of `step` bytes, the last of which may be shorter. Waiting until it takes them keeps to the speed of
    /// this host's link. What it refuses the other end finds missing.
    fn give(&mut self, mut rest: &[u8], step: usize) {
        let (mut together, mut again, mut narrower) = (!self.singly, true, true);
        while !rest.is_empty() {
            let piece = if together { rest.len() } else { rest.len().min(step) };
            let sent = self.socket.send_segments(&rest[..piece], step, true);
            match sent.unsent {
                None => rest = &rest[(sent.datagrams * step).min(rest.len())..],
                // That was an earlier one's.
                Some(Unsent::Because(UdpSendError::ConnectionRefused)) if again => again = false,
                Some(Unsent::Because(UdpSendError::NotSegmentable)) if together => {
                    (self.singly, together) = (true, false)
                }
                // A router has said so, of an earlier one or before these: what was sealed goes in fragments, what follows is shorter.
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

/// Kernels before 6.14 say EINVAL of datagrams in a super-packet that are longer than the path's MTU.
fn is_too_long(error: &UdpSendError, is_super: bool) -> bool {
    match error {
        UdpSendError::MessageTooLong => true,
        UdpSendError::Other(error) => is_super && error.kind() == std::io::ErrorKind::InvalidInput,
        _ => false,
    }
}
