//! IP fragments: those of one datagram made one packet again, by their headers alone (RFC 791 §3.2, RFC 8200 §4.5).
//!
//! Only lengths are put together: the first fragment's ports and sequence number, with all fragments' payload. The time is that of
//! the last fragment to come.

use std::collections::VecDeque;
use std::net::IpAddr;

use longhaul_captures::packet::{Ip, Packet, Transport};

/// Datagrams that are waited for at the same time. The oldest makes room.
const MOST_DATAGRAMS: usize = 256;

#[derive(Debug)]
struct Datagram {
    name: (IpAddr, IpAddr, u32, u8),
    first: Option<Packet>,
    /// Bytes of payload that came, headers of the upper layer among them.
    came: u32,
    /// Bytes of payload in all, once the last fragment came.
    whole: Option<u32>,
    frame_len: u32,
}

/// Datagrams that are not whole yet.
#[derive(Debug, Default)]
pub(crate) struct Fragments {
    waiting: VecDeque<Datagram>,
    pub(crate) incomplete: u64,
}

impl Fragments {
    /// Takes in a fragment. The datagram, when this was the last of it to come.
    pub(crate) fn take(&mut self, packet: &Packet, ip: &Ip) -> Option<Packet> {
        // RFC 8200 §4.5: of IPv6 the protocol does not count; behind extension headers it is another in the first than in the others.
        let protocol = if ip.src.is_ipv4() { ip.protocol } else { 0 };
        let name = (ip.src, ip.dst, ip.id.unwrap_or(0), protocol);
        let index = self.waiting.iter().position(|datagram| datagram.name == name).unwrap_or_else(|| {
            if self.waiting.len() >= MOST_DATAGRAMS {
                self.waiting.pop_front();
                self.incomplete += 1;
            }
            self.waiting.push_back(Datagram { name, first: None, came: 0, whole: None, frame_len: 0 });
            self.waiting.len() - 1
        });
        let datagram = &mut self.waiting[index];
        let carried = carried(packet, ip);
        datagram.came = datagram.came.saturating_add(carried);
        datagram.frame_len = datagram.frame_len.saturating_add(packet.frame_len);
        if ip.fragment_offset == 0 {
            datagram.first = Some(*packet);
        }
        if !ip.more_fragments {
            datagram.whole = Some(ip.fragment_offset.saturating_add(carried));
        }
        if datagram.first.is_none() || datagram.whole.is_none_or(|whole| datagram.came < whole) {
            return None;
        }
        let datagram = self.waiting.remove(index)?;
        let (mut whole, payload) = (datagram.first?, datagram.whole?);
        let first_ip = whole.ip.as_mut()?;
        let own = carried_by_first(&datagram.first?)?;
        let more = payload.saturating_sub(own);
        first_ip.len = first_ip.len.saturating_add(more);
        first_ip.more_fragments = false;
        match &mut whole.transport {
            Transport::Tcp(tcp) => tcp.payload_len = tcp.payload_len.saturating_add(more),
            Transport::Udp { payload_len, .. } => *payload_len = payload_len.saturating_add(more),
            Transport::Other => {}
        }
        whole.at_ns = packet.at_ns;
        whole.frame_len = datagram.frame_len;
        Some(whole)
    }

    /// Datagrams that never became whole.
    pub(crate) fn incomplete(&self) -> u64 {
        self.incomplete + self.waiting.len() as u64
    }
}

/// Bytes behind IP's own headers. Of IPv4 the header is taken for 20 bytes and of IPv6 for 48, as options in fragments are not
/// kept; they would only make the datagram seem longer.
fn carried(packet: &Packet, ip: &Ip) -> u32 {
    if ip.fragment_offset == 0 {
        return carried_by_first(packet).unwrap_or(0);
    }
    ip.len.saturating_sub(if ip.src.is_ipv4() { 20 } else { 48 })
}

fn carried_by_first(packet: &Packet) -> Option<u32> {
    let ip = packet.ip?;
    Some(ip.len.saturating_sub(if ip.src.is_ipv4() { 20 } else { 48 }))
}
