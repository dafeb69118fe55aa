//! What identifies a packet: read from its own bytes, by nothing of longhaul.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const TCP: u8 = 6;
const UDP: u8 = 17;
const IPV6_FRAGMENT: u8 = 44;
const ETHERNET_BYTES: usize = 14;

/// A frame, as its headers tell. What a header lacks, or what is cut off, is `None`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Packet {
    /// Bytes of the frame, without FCS.
    pub(crate) bytes: usize,
    /// FNV-1a of the frame.
    pub(crate) hash: u64,
    /// Source and destination of an IP packet.
    pub(crate) addresses: Option<(IpAddr, IpAddr)>,
    /// IP protocol of the datagram: of IPv6 that behind the fragment header.
    pub(crate) protocol: Option<u8>,
    /// Identification: of each IPv4 packet, and of IPv6 fragments.
    pub(crate) ip_id: Option<u32>,
    /// Where a fragment lies in its datagram; `None` of a whole one.
    pub(crate) fragment: Option<Fragment>,
    /// Source and destination port, of what begins with a UDP or TCP header.
    pub(crate) ports: Option<(u16, u16)>,
    /// Bytes behind the IP headers.
    pub(crate) transport_bytes: usize,
    /// Cookie and sequence number, where the payload of UDP may be a probe of longhaul: 32 and 48 bits, big endian.
    pub(crate) probe: Option<(u32, u64)>,
    /// Of a TCP segment.
    pub(crate) tcp: Option<Tcp>,
    /// Where the IP header, the transport header and the payload begin; the frame's end where there is none.
    pub(crate) begins: [usize; 3],
}

/// Bytes of a datagram's payload that a fragment has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fragment {
    /// The first byte.
    pub(crate) offset: usize,
    /// How many.
    pub(crate) bytes: usize,
    /// Whether further fragments follow.
    pub(crate) more: bool,
}

/// A TCP header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tcp {
    pub(crate) sequence: u32,
    pub(crate) acknowledgement: u32,
    pub(crate) flags: u8,
    pub(crate) payload_bytes: usize,
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

impl Packet {
    /// Whether this byte of the frame is one of the sequence number of a probe.
    pub(crate) fn names_its_probe(&self, at: usize) -> bool {
        (self.begins[2] + 4..self.begins[2] + 10).contains(&at)
    }

    /// Reads an Ethernet frame without VLAN tag.
    pub(crate) fn read(frame: &[u8]) -> Self {
        let hash = frame
            .iter()
            .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
        let mut packet = Self {
            bytes: frame.len(),
            hash,
            addresses: None,
            protocol: None,
            ip_id: None,
            fragment: None,
            ports: None,
            transport_bytes: 0,
            probe: None,
            tcp: None,
            begins: [frame.len(); 3],
        };
        let ip = frame.get(ETHERNET_BYTES..).unwrap_or_default();
        let _ = match be16(frame, 12) {
            Some(0x0800) => packet.read_ipv4(ip),
            Some(0x86dd) => packet.read_ipv6(ip),
            _ => None,
        };
        packet
    }

    fn read_ipv4(&mut self, ip: &[u8]) -> Option<()> {
        let header = usize::from(*ip.first()? & 0xf) * 4;
        let transport = ip.get(header..usize::from(be16(ip, 2)?))?;
        self.begins[0] = ETHERNET_BYTES;
        let source: [u8; 4] = *ip.get(12..)?.first_chunk()?;
        let destination: [u8; 4] = *ip.get(16..)?.first_chunk()?;
        self.addresses = Some((Ipv4Addr::from(source).into(), Ipv4Addr::from(destination).into()));
        self.ip_id = Some(be16(ip, 4)?.into());
        let flags = be16(ip, 6)?;
        let (offset, more) = (usize::from(flags & 0x1fff) * 8, flags & 0x2000 != 0);
        self.read_transport(*ip.get(9)?, ETHERNET_BYTES + header, transport, (offset, more))
    }

    fn read_ipv6(&mut self, ip: &[u8]) -> Option<()> {
        let transport = ip.get(40..40 + usize::from(be16(ip, 4)?))?;
        self.begins[0] = ETHERNET_BYTES;
        let source: [u8; 16] = *ip.get(8..)?.first_chunk()?;
        let destination: [u8; 16] = *ip.get(24..)?.first_chunk()?;
        self.addresses = Some((Ipv6Addr::from(source).into(), Ipv6Addr::from(destination).into()));
        match *ip.get(6)? {
            IPV6_FRAGMENT => {
                let at = be16(transport, 2)?;
                self.ip_id = Some(be32(transport, 4)?);
                let place = (usize::from(at & !7), at & 1 != 0);
                self.read_transport(*transport.first()?, ETHERNET_BYTES + 48, transport.get(8..)?, place)
            }
            protocol => self.read_transport(protocol, ETHERNET_BYTES + 40, transport, (0, false)),
        }
    }

    fn read_transport(&mut self, protocol: u8, at: usize, bytes: &[u8], (offset, more): (usize, bool)) -> Option<()> {
        self.protocol = Some(protocol);
        self.transport_bytes = bytes.len();
        self.begins[1] = at;
        if offset > 0 || more {
            self.fragment = Some(Fragment { offset, bytes: bytes.len(), more });
        }
        if offset > 0 {
            return None;
        }
        match protocol {
            UDP => {
                self.ports = Some((be16(bytes, 0)?, be16(bytes, 2)?));
                self.begins[2] = at + 8;
                self.probe = Some((be32(bytes, 8)?, u64::from(be32(bytes, 12)?) << 16 | u64::from(be16(bytes, 16)?)));
            }
            TCP => {
                self.ports = Some((be16(bytes, 0)?, be16(bytes, 2)?));
                let header = usize::from(*bytes.get(12)? >> 4) * 4;
                self.begins[2] = at + header;
                self.tcp = Some(Tcp {
                    sequence: be32(bytes, 4)?,
                    acknowledgement: be32(bytes, 8)?,
                    flags: *bytes.get(13)?,
                    payload_bytes: bytes.len().checked_sub(header)?,
                });
            }
            _ => {}
        }
        Some(())
    }

    /// Whether it is (a part of) a UDP datagram.
    pub(crate) fn is_udp(&self) -> bool {
        self.protocol == Some(UDP)
    }

    /// What the fragments of one datagram have in common.
    pub(crate) fn datagram(&self) -> Option<(IpAddr, IpAddr, u8, u32)> {
        let (source, destination) = self.addresses?;
        Some((source, destination, self.protocol?, self.ip_id?))
    }
}
