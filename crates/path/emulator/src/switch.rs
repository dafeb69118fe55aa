//! Chooses the port for a frame: a learning bridge, whose two halves are the two ends of the path.

use std::collections::HashMap;

use longhaul_path::network::{Destination, PortId};

/// Addresses kept at most. A host that invents more is served by flooding.
const ADDRESSES_MOST: usize = 4096;

/// The ports behind which MAC addresses were seen.
#[derive(Debug, Default)]
pub(crate) struct Switch {
    ports: u16,
    seen: HashMap<[u8; 6], PortId>,
}

impl Switch {
    /// A switch with a port for each of `hosts`, whose addresses it knows as far as they are given.
    pub(crate) fn new(hosts: impl ExactSizeIterator<Item = Option<[u8; 6]>>) -> Self {
        let ports = hosts.len() as u16;
        let known = (0..).map(PortId).zip(hosts);
        Self { ports, seen: known.filter_map(|(port, mac)| Some((mac?, port))).collect() }
    }

    /// Where the frame `header` from port `from` goes; `None` where it stays on its own port's side of a wire, as its
    /// receiver sits behind the port it came from.
    pub(crate) fn destination(&mut self, header: &[u8], from: PortId) -> Option<Destination> {
        if self.ports == 2 {
            return Some(Destination::Port(PortId(1 - from.0)));
        }
        let (to, source) = addresses(header)?;
        // The group bit: no host sends from such an address (IEEE 802.3 §3.2.3).
        if source[0] & 1 == 0 && (self.seen.len() < ADDRESSES_MOST || self.seen.contains_key(&source)) {
            self.seen.insert(source, from);
        }
        match self.seen.get(&to) {
            Some(&port) if port == from => None,
            Some(&port) => Some(Destination::Port(port)),
            None => Some(Destination::All),
        }
    }
}

fn addresses(header: &[u8]) -> Option<([u8; 6], [u8; 6])> {
    Some((header.get(..6)?.try_into().ok()?, header.get(6..12)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(to: u8, from: u8) -> [u8; 14] {
        [2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from, 8, 0]
    }

    #[test]
    fn learns_where_hosts_are() {
        let mut switch = Switch::new([None; 3].into_iter());
        assert_eq!(switch.destination(&frame(9, 1), PortId(0)), Some(Destination::All));
        assert_eq!(switch.destination(&frame(1, 9), PortId(2)), Some(Destination::Port(PortId(0))));
        assert_eq!(switch.destination(&frame(9, 1), PortId(0)), Some(Destination::Port(PortId(2))));
        assert_eq!(switch.destination(&frame(1, 7), PortId(0)), None, "both behind port 0");
        assert_eq!(switch.destination(&[0; 11], PortId(0)), None, "shorter than its addresses");
        for i in 0..100_000_u32 {
            let [_, a, b, c] = i.to_be_bytes();
            switch.destination(&[2, 0, 0, 0, 0, 9, 2, 1, 0, a, b, c, 8, 0], PortId(1));
        }
        assert!(switch.seen.len() <= ADDRESSES_MOST);
        assert_eq!(switch.destination(&frame(9, 1), PortId(1)), Some(Destination::Port(PortId(2))), "moved and known");
    }

    #[test]
    fn knows_what_it_was_told() {
        let mut switch = Switch::new([None, Some([2, 0, 0, 0, 0, 5]), None].into_iter());
        assert_eq!(switch.destination(&frame(5, 1), PortId(0)), Some(Destination::Port(PortId(1))));
        assert_eq!(switch.destination(&frame(6, 1), PortId(0)), Some(Destination::All));
        switch.destination(&frame(1, 5), PortId(2));
        assert_eq!(switch.destination(&frame(5, 1), PortId(0)), Some(Destination::Port(PortId(2))), "it has moved");
    }
}
