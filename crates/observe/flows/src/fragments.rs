//! IP fragments: those of one datagram made one packet again, by their headers alone (RFC 791 §3.2, RFC 8200 §4.5).
//!
//! Only lengths are put together: the first fragment's ports and sequence number, with all fragments' payload. The time is that of
//! the last fragment to come.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use longhaul_captures::packet::{Ip, Packet, Transport};

/// Datagrams that are waited for at the same time. The oldest makes room.
const MOST_DATAGRAMS: usize = 256;

/// What fragments of one datagram have in common: addresses, identification and protocol.
type Name = (IpAddr, IpAddr, u32, u8);

#[derive(Debug)]
struct Datagram {
    /// In the order in which their first fragments came.
    number: u64,
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
    /// Seeded at random: others choose the names.
    waiting: HashMap<Name, Datagram, foldhash::fast::RandomState>,
    /// The oldest first, and some that are whole by now: their numbers are no more among those that wait.
    order: VecDeque<(Name, u64)>,
    numbers: u64,
    pub(crate) incomplete: u64,
}

impl Fragments {
    /// Takes in a fragment. The datagram, when this was the last of it to come.
    pub(crate) fn take(&mut self, packet: &Packet, ip: &Ip) -> Option<Packet> {
        // RFC 8200 §4.5: of IPv6 the protocol does not count; behind extension headers it is another in the first than in the others.
        let protocol = if ip.src.is_ipv4() { ip.protocol } else { 0 };
        let name = (ip.src, ip.dst, ip.id.unwrap_or(0), protocol);
        if !self.waiting.contains_key(&name) {
            self.begin(name);
        }
        let datagram = self.waiting.get_mut(&name)?;
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
        let datagram = self.waiting.remove(&name)?;
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

    /// A datagram whose first fragment has come.
    fn begin(&mut self, name: Name) {
        while self.waiting.len() >= MOST_DATAGRAMS {
            let Some((oldest, number)) = self.order.pop_front() else { break };
            if Self::waits(&self.waiting, &oldest, number) {
                self.waiting.remove(&oldest);
                self.incomplete += 1;
            }
        }
        self.numbers += 1;
        let number = self.numbers;
        self.waiting.insert(name, Datagram { number, first: None, came: 0, whole: None, frame_len: 0 });
        self.order.push_back((name, number));
        if self.order.len() > 2 * self.waiting.len() {
            self.order.retain(|(name, number)| Self::waits(&self.waiting, name, *number));
        }
    }

    /// Whether it still waits: another one may have its name by now.
    fn waits(waiting: &HashMap<Name, Datagram, foldhash::fast::RandomState>, name: &Name, number: u64) -> bool {
        waiting.get(name).is_some_and(|datagram| datagram.number == number)
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The first or the last fragment of two.
    fn fragment(id: u32, is_first: bool) -> Packet {
        let ip = Ip {
            src: [10, 0, 0, 1].into(),
            dst: [10, 0, 0, 2].into(),
            protocol: 17,
            ttl: 64,
            traffic_class: 0,
            id: Some(id),
            len: 520,
            fragment_offset: if is_first { 0 } else { 500 },
            more_fragments: is_first,
        };
        Packet { ip: Some(ip), frame_len: 534, ..Packet::default() }
    }

    fn take(fragments: &mut Fragments, id: u32, is_first: bool) -> bool {
        let packet = fragment(id, is_first);
        fragments.take(&packet, &packet.ip.unwrap()).is_some()
    }

    proptest! {
        /// A list of those that wait, the oldest first, that is looked through for each fragment, says the same. Names of datagrams
        /// that became whole come again, and never are many kept of these.
        #[test]
        fn the_oldest_makes_room(fragments in prop::collection::vec((0_u32..600, any::<bool>()), 0..3_000)) {
            let mut list: VecDeque<(u32, [bool; 2])> = VecDeque::new();
            let (mut taken, mut forgotten) = (Fragments::default(), 0);
            for (id, is_first) in fragments {
                let index = list.iter().position(|(waiting, _)| *waiting == id).unwrap_or_else(|| {
                    if list.len() >= MOST_DATAGRAMS {
                        list.pop_front();
                        forgotten += 1;
                    }
                    list.push_back((id, [false; 2]));
                    list.len() - 1
                });
                let came = &mut list[index].1;
                came[usize::from(is_first)] = true;
                let is_whole = came.iter().all(|came| *came);
                if is_whole {
                    list.remove(index);
                }
                prop_assert_eq!(take(&mut taken, id, is_first), is_whole);
                prop_assert_eq!((taken.waiting.len(), taken.incomplete), (list.len(), forgotten));
                prop_assert!(taken.order.len() <= 2 * MOST_DATAGRAMS);
            }
        }
    }

    /// One that waits, and many behind it that become whole at once.
    #[test]
    fn names_of_datagrams_that_are_whole_are_forgotten() {
        let mut fragments = Fragments::default();
        assert!(!take(&mut fragments, 0, true));
        for id in 1..10_000 {
            assert!(!take(&mut fragments, id, false) && take(&mut fragments, id, true));
            assert!(fragments.order.len() <= 4, "{}", fragments.order.len());
        }
        assert!(take(&mut fragments, 0, false));
        assert_eq!(fragments.incomplete(), 0);
    }
}
