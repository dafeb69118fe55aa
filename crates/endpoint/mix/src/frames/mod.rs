//! The bytes of each kind of frame. A frame has the length that is asked for, without FCS, or the least that its kind needs.
//!
//! Kinds that carry data are filled with it. Others are padded with zeros, as Ethernet pads short frames (IEEE 802.3 §3.2.8).

mod ip;
mod link;
mod novell;

use crate::draw::Random;
use crate::kind::{Framing, Kind};
use crate::target::Target;

/// The shortest frame, in bytes without FCS.
pub(crate) const LEAST: usize = 60;

/// A frame of `kind`, the `variant`th of its class, for as many as `bytes`. What is for a target needs one
/// of its family.
pub(crate) fn frame(kind: Kind, variant: usize, bytes: usize, random: &mut Random, target: Option<&Target>) -> Vec<u8> {
    let bytes = bytes.max(LEAST);
    let mut frame = match kind {
        Kind::Stream => target.map_or_else(Vec::new, |target| ip::stream(bytes, random, target)),
        Kind::Udp => ip::udp(bytes, random),
        Kind::Tcp => ip::tcp(bytes, random),
        Kind::Icmp => ip::icmp(bytes, random),
        Kind::Broadcast => ip::broadcast(bytes, random),
        Kind::Multicast => ip::multicast(bytes, random),
        Kind::Igmp => ip::igmp(random),
        Kind::Ipv6 => match variant % 3 {
            0 => ip::udp6(bytes, random),
            1 => ip::tcp6(bytes, random),
            _ => ip::icmp6(bytes, random),
        },
        Kind::NeighbourSolicitation => ip::neighbour_solicitation(random, None),
        Kind::Vlan => ip::vlan(bytes, random, false),
        Kind::Qinq => ip::vlan(bytes, random, true),
        Kind::Arp => link::arp(random, None),
        Kind::ArpForTarget => link::arp(random, target),
        Kind::SolicitationForTarget => ip::neighbour_solicitation(random, target),
        Kind::Disl => link::disl(random),
        Kind::Edp => link::edp(random),
        Kind::Stp => link::stp(random),
        Kind::Cdp => link::cdp(random),
        Kind::Vtp => link::vtp(random),
        Kind::Lldp => link::lldp(random),
        Kind::Ipx(Framing::Any) => {
            let framing = Framing::EACH[variant % Framing::EACH.len()];
            novell::ipx(framing, (variant / Framing::EACH.len()).is_multiple_of(2), bytes, random)
        }
        Kind::Ipx(framing) => novell::ipx(framing, variant.is_multiple_of(2), bytes, random),
        Kind::Netbeui => novell::netbeui(random),
        Kind::AppleTalk => novell::appletalk(random),
    };
    if frame.len() < bytes {
        frame.resize(bytes, 0);
    }
    frame
}

/// The MAC address of another station: unicast, locally administered.
pub(crate) fn stranger(random: &mut Random) -> [u8; 6] {
    let [a, b, c, d] = random.bytes();
    [0x02, 0x4c, a, b, c, d]
}

/// A frame in the making.
struct Writer(Vec<u8>);

impl Writer {
    /// With the addresses of an Ethernet header.
    fn to(destination: [u8; 6], source: [u8; 6]) -> Self {
        let mut frame = Vec::with_capacity(1518);
        frame.extend(destination);
        frame.extend(source);
        Self(frame)
    }

    fn put(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    fn u8(self, value: u8) -> Self {
        self.put(&[value])
    }

    fn u16(self, value: u16) -> Self {
        self.put(&value.to_be_bytes())
    }

    fn u32(self, value: u32) -> Self {
        self.put(&value.to_be_bytes())
    }

    /// Data that is easy to recognise: the letters that ping sends on some systems.
    fn data(mut self, bytes: usize) -> Self {
        self.0.extend((b'a'..=b'w').cycle().take(bytes));
        self
    }

    fn zeros(mut self, bytes: usize) -> Self {
        self.0.resize(self.0.len() + bytes, 0);
        self
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    /// Overwrites the bytes at `at` with `value`.
    fn set16(&mut self, at: usize, value: u16) {
        self.0[at..at + 2].copy_from_slice(&value.to_be_bytes());
    }
}

/// An 802.3 frame: its length field stands for what follows it.
fn length_framed(destination: [u8; 6], source: [u8; 6], contents: &[u8]) -> Vec<u8> {
    Writer::to(destination, source).u16(contents.len() as u16).put(contents).0
}

/// `contents` behind a SNAP header (IEEE 802 §9.4).
fn snap(organisation: [u8; 3], protocol: u16, contents: &[u8]) -> Vec<u8> {
    Writer(vec![0xaa, 0xaa, 0x03]).put(&organisation).u16(protocol).put(contents).0
}
