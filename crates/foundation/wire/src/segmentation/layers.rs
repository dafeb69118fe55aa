//! Finding the headers of a super-packet, through tunnels, down to the TCP or UDP header that is repeated in each segment.
//!
//! A tunnel's super-packet carries the label of the *inner* packet; only `csum_start`, which points to the inner TCP or UDP
//! header, tells it from a plain one (seen on Linux 6.18; see also `virtio_net_hdr_from_skb`). So the walk has a goal: the
//! protocol, and where the offload header says so the place of the header.
//!
//! Sources: VXLAN RFC 7348 §5, VXLAN-GPE draft-ietf-nvo3-vxlan-gpe §3, GENEVE RFC 8926 §3.4, GRE RFC 2784 §2 and RFC 2890 §2,
//! IP in IP RFC 2003 and RFC 4213.

use super::error::ShapeError;
use crate::ethernet::{self, Network, ether_type};
use crate::{be16, ipv4, ipv6, tcp, udp};

/// Headers that may be stacked: three tunnels of IP and UDP around IP and TCP.
const MOST_LAYERS: usize = 8;

/// A kind of header that knows a length, a checksum or a number of its own and so differs between segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Ipv4,
    Ipv6,
    Udp,
    Tcp,
    /// GRE with a checksum; without one nothing in it changes.
    Gre,
}

/// A header and where it begins, from the start of the frame.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layer {
    pub(crate) kind: Kind,
    pub(crate) offset: u16,
}

/// The headers of a super-packet, outermost first. The last is TCP or UDP, the one before it its IP header.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layers {
    stack: [Layer; MOST_LAYERS],
    depth: u8,
    /// Where the payload that is cut begins.
    pub(crate) payload_offset: u16,
    /// Where the jumbo header of IPv6 BIG TCP lies, 0 where there is none.
    pub(crate) jumbo_offset: u16,
    /// Whether the innermost destination is not the one that the checksum covers.
    pub(crate) route_ahead: bool,
    pub(crate) is_tunnel: bool,
}

/// Which header is looked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Goal {
    /// [`tcp::PROTOCOL`] or [`udp::PROTOCOL`].
    pub(crate) protocol: u8,
    /// The version of the IP header before it, where the label says.
    pub(crate) ip_version: Option<u8>,
    /// Where it lies, where the offload header says.
    pub(crate) offset: Option<usize>,
}

impl Layers {
    /// Walks the headers of the frame that begins with `headers`.
    pub(crate) fn find(headers: &[u8], goal: Goal) -> Result<Self, ShapeError> {
        let none = Layer { kind: Kind::Ipv4, offset: 0 };
        let empty = Self {
            stack: [none; MOST_LAYERS],
            depth: 0,
            payload_offset: 0,
            jumbo_offset: 0,
            route_ahead: false,
            is_tunnel: false,
        };
        empty.behind_ethernet(headers, 0, goal)
    }

    /// Outermost first.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = Layer> + ExactSizeIterator {
        self.stack[..usize::from(self.depth)].iter().copied()
    }

    /// The TCP or UDP header that each segment repeats, and its IP header.
    pub(crate) fn innermost(&self) -> (Layer, Layer) {
        // `find` gives out no stack without both.
        let depth = usize::from(self.depth).max(2);
        (self.stack[depth - 2], self.stack[depth - 1])
    }

    /// Where `layer` lies after what is behind the jumbo header has moved forward by `moved`.
    pub(crate) fn place(&self, layer: Layer, moved: usize) -> usize {
        usize::from(layer.offset) - if layer.offset > self.jumbo_offset { moved } else { 0 }
    }

    fn push(&mut self, kind: Kind, offset: usize) -> Result<(), ShapeError> {
        let offset = u16::try_from(offset).map_err(|_| ShapeError::Truncated)?;
        *self.stack.get_mut(usize::from(self.depth)).ok_or(ShapeError::TooDeep)? = Layer { kind, offset };
        self.depth += 1;
        Ok(())
    }

    fn behind_ethernet(self, headers: &[u8], offset: usize, goal: Goal) -> Result<Self, ShapeError> {
        let frame = headers.get(offset..).and_then(ethernet::Frame::new_checked).ok_or(ShapeError::Truncated)?;
        let network = frame.network().ok_or(ShapeError::Truncated)?;
        self.behind(headers, Network { offset: offset + network.offset, ..network }, goal)
    }

    /// Walks from an IP header to the goal. Each turn takes one IP header and, on the way through a tunnel, what carries the
    /// next; the stack bounds the turns.
    fn behind(mut self, headers: &[u8], mut network: Network, goal: Goal) -> Result<Self, ShapeError> {
        loop {
            let (protocol, upper) = self.take_ip(headers, network)?;
            let version = if network.ether_type == ether_type::IPV4 { 4 } else { 6 };
            if protocol == goal.protocol
                && goal.offset.is_none_or(|offset| offset == upper)
                && goal.ip_version.is_none_or(|wanted| wanted == version)
            {
                return self.take_goal(headers, upper, goal);
            }
            self.is_tunnel = true;
            network = match protocol {
                IP_IN_IP => Network { ether_type: ether_type::IPV4, offset: upper },
                IPV6_IN_IP => Network { ether_type: ether_type::IPV6, offset: upper },
                GRE => match self.take_gre(headers, upper)? {
                    Network { ether_type: ether_type::BRIDGED, offset } => {
                        return self.behind_ethernet(headers, offset, goal);
                    }
                    network => network,
                },
                udp::PROTOCOL => {
                    self.push(Kind::Udp, upper)?;
                    return self.behind_udp(headers, upper, goal);
                }
                _ => return Err(ShapeError::Protocol),
            }
        }
    }

    /// Takes an IP header; what lies behind it, and where.
    fn take_ip(&mut self, headers: &[u8], network: Network) -> Result<(u8, usize), ShapeError> {
        let bytes = headers.get(network.offset..).ok_or(ShapeError::Truncated)?;
        match network.ether_type {
            ether_type::IPV4 => {
                let ip = ipv4::Packet::new_checked(bytes).ok_or(ShapeError::Truncated)?;
                if ip.is_fragment() {
                    return Err(ShapeError::Fragment);
                }
                self.push(Kind::Ipv4, network.offset)?;
                self.route_ahead = false;
                Ok((ip.protocol(), network.offset + ip.header_len()))
            }
            ether_type::IPV6 => {
                let ip = ipv6::Packet::new_checked(bytes).ok_or(ShapeError::Truncated)?;
                let upper = ip.upper_layer().ok_or(ShapeError::Truncated)?;
                if upper.fragment {
                    return Err(ShapeError::Fragment);
                }
                self.push(Kind::Ipv6, network.offset)?;
                self.route_ahead = upper.route_ahead;
                if ip.jumbo_payload_len().is_some() {
                    if self.jumbo_offset != 0 {
                        return Err(ShapeError::TooDeep);
                    }
                    // `push` has seen that the header before it lies below 65536, and so does this within the 256 allowed.
                    self.jumbo_offset = (network.offset + ipv6::HEADER_LEN) as u16;
                }
                Ok((upper.protocol, network.offset + upper.offset))
            }
            _ => Err(ShapeError::Protocol),
        }
    }

    fn take_goal(mut self, headers: &[u8], offset: usize, goal: Goal) -> Result<Self, ShapeError> {
        let bytes = headers.get(offset..).ok_or(ShapeError::Truncated)?;
        let (kind, header_len) = if goal.protocol == tcp::PROTOCOL {
            (Kind::Tcp, tcp::Segment::new_checked(bytes).ok_or(ShapeError::Truncated)?.header_len())
        } else {
            udp::Datagram::new_checked(bytes).ok_or(ShapeError::Truncated)?;
            (Kind::Udp, udp::HEADER_LEN)
        };
        self.push(kind, offset)?;
        self.payload_offset = u16::try_from(offset + header_len).map_err(|_| ShapeError::HeadersTooLong)?;
        Ok(self)
    }

    /// Takes a GRE header; what it carries.
    fn take_gre(&mut self, headers: &[u8], offset: usize) -> Result<Network, ShapeError> {
        const CHECKSUM: u16 = 0x8000;
        const KEY: u16 = 0x2000;
        let header = headers.get(offset..offset + 4).ok_or(ShapeError::Truncated)?;
        let flags = be16(header, 0);
        // What is left: routing (RFC 1701), a sequence number, which only the sender can give, and PPTP's version 1.
        if flags & !(CHECKSUM | KEY) != 0 {
            return Err(ShapeError::Protocol);
        }
        if flags & CHECKSUM != 0 {
            self.push(Kind::Gre, offset)?;
        }
        let length = 4 + 4 * usize::from(flags & CHECKSUM != 0) + 4 * usize::from(flags & KEY != 0);
        Ok(Network { ether_type: be16(header, 2), offset: offset + length })
    }

    /// Walks what a UDP tunnel carries. By its port where that is known; by trial where not, provided that the place of the
    /// inner header is known and so a wrong guess is seen.
    fn behind_udp(self, headers: &[u8], offset: usize, goal: Goal) -> Result<Self, ShapeError> {
        let udp = headers.get(offset..).and_then(udp::Datagram::new_checked).ok_or(ShapeError::Truncated)?;
        let inner = offset + udp::HEADER_LEN;
        match udp.destination_port() {
            // 8472 is Linux's default for a VXLAN device without `dstport`.
            4789 | 8472 => self.behind_vxlan(headers, inner, goal),
            4790 => self.behind_vxlan_gpe(headers, inner, goal),
            6081 => self.behind_geneve(headers, inner, goal),
            _ if goal.offset.is_some() => self
                .behind_vxlan(headers, inner, goal)
                .or_else(|_| self.behind_geneve(headers, inner, goal))
                .or_else(|_| self.behind_nothing(headers, inner, goal)),
            _ => Err(ShapeError::Protocol),
        }
    }

    fn behind_vxlan(self, headers: &[u8], offset: usize, goal: Goal) -> Result<Self, ShapeError> {
        match headers.get(offset) {
            Some(flags) if flags & 0x08 != 0 => self.behind_ethernet(headers, offset + 8, goal),
            Some(_) => Err(ShapeError::Protocol),
            None => Err(ShapeError::Truncated),
        }
    }

    fn behind_vxlan_gpe(self, headers: &[u8], offset: usize, goal: Goal) -> Result<Self, ShapeError> {
        let header = headers.get(offset..offset + 8).ok_or(ShapeError::Truncated)?;
        let names_its_payload = header[0] & 0x04 != 0;
        match header[3] {
            1 if names_its_payload => {
                self.behind(headers, Network { ether_type: ether_type::IPV4, offset: offset + 8 }, goal)
            }
            2 if names_its_payload => {
                self.behind(headers, Network { ether_type: ether_type::IPV6, offset: offset + 8 }, goal)
            }
            3 if names_its_payload => self.behind_ethernet(headers, offset + 8, goal),
            _ if names_its_payload => Err(ShapeError::Protocol),
            _ => self.behind_vxlan(headers, offset, goal),
        }
    }

    fn behind_geneve(self, headers: &[u8], offset: usize, goal: Goal) -> Result<Self, ShapeError> {
        let header = headers.get(offset..offset + 8).ok_or(ShapeError::Truncated)?;
        if header[0] >> 6 != 0 {
            return Err(ShapeError::Protocol);
        }
        let inner = offset + 8 + usize::from(header[0] & 0x3f) * 4;
        match be16(header, 2) {
            ether_type::BRIDGED => self.behind_ethernet(headers, inner, goal),
            ether_type => self.behind(headers, Network { ether_type, offset: inner }, goal),
        }
    }

    /// Foo over UDP: IP at once.
    fn behind_nothing(self, headers: &[u8], offset: usize, goal: Goal) -> Result<Self, ShapeError> {
        let ether_type = match headers.get(offset).map(|first| first >> 4) {
            Some(4) => ether_type::IPV4,
            Some(6) => ether_type::IPV6,
            Some(_) => return Err(ShapeError::Protocol),
            None => return Err(ShapeError::Truncated),
        };
        self.behind(headers, Network { ether_type, offset }, goal)
    }
}

/// IP protocol numbers of tunnels.
const IP_IN_IP: u8 = 4;
const IPV6_IN_IP: u8 = 41;
const GRE: u8 = 47;
