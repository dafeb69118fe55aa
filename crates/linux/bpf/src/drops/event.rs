//! One drop, as the kernel program reports it. The layout is that of `struct drop_event` in `intf.h`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;

use longhaul_units::Nanos;

/// `EVENT_HEADER_BYTES`.
pub(crate) const HEADER_BYTES: usize = 56;
const GSO: u8 = 1;
const IPV6: u8 = 2;
const CONTINUED: u8 = 8;
const TASKS_NAMESPACE: u8 = 16;
const FRAGMENT: u8 = 32;
const UNIDENTIFIED: u8 = 64;

/// A packet, or a super-packet, that the kernel dropped.
///
/// It is evidence, not a loss: a packet arrives all the same if only a copy of it was dropped, or if it was retransmitted. Join the
/// event with the sequence numbers that the receiver misses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DropEvent<'a> {
    /// When, on `CLOCK_MONOTONIC`.
    pub at: Nanos,
    /// The kernel's number for why; not the same on all kernels. [`ReasonNames`](super::ReasonNames) has the name.
    pub reason: u32,
    /// The address in the kernel from which the packet was freed. [`Symbols`](crate::symbols::Symbols) has the function.
    pub location: u64,
    /// The network namespace as `SO_NETNS_COOKIE` names it: the device's, else the socket's, else the current task's. `None`
    /// where that task had left it, as it ended.
    pub namespace_cookie: Option<u64>,
    /// The same as `net:[…]`; numbers are used again.
    pub namespace_inode: Option<u32>,
    /// Whether the namespace is only that of the task that ran: right in a system call (a read, a send), and by chance where a
    /// closed socket's memory is given back later, by RCU.
    pub namespace_of_task: bool,
    /// The device at the time, counted in its namespace; `None` in a socket's queue and before routing.
    pub ifindex: Option<u32>,
    /// Cookie of the probe headers.
    pub cookie: u32,
    /// UDP destination port.
    pub port: u16,
    /// Wire packets that were dropped as one: more than 1 only of a super-packet. As many as all events of it list together, if
    /// each segment was of this cookie.
    pub unit_packets: u32,
    /// Whether it was a super-packet, to be segmented yet (`UDP_SEGMENT`) or merged before (GRO).
    pub super_packet: bool,
    /// Whether another event of the same super-packet came before, with its first sequence numbers.
    pub continued: bool,
    /// Whether it ran over IPv6.
    pub ipv6: bool,
    /// Where only a fragment of the datagram was dropped: the bytes of the IP payload that it had.
    pub fragment: Option<Range<u32>>,
    /// Where it was damaged so that its sequence number cannot be told, and [`DropEvent::sequences`] are none: a wrong checksum, and
    /// only the port is a flow's. Anyone may have sent it: this is what its headers say of that.
    pub unidentified: Option<SocketAddr>,
    sequences: &'a [u8],
}

impl<'a> DropEvent<'a> {
    /// The sequence number of each wire packet in it, in the order of the super-packet.
    pub fn sequences(&self) -> impl ExactSizeIterator<Item = u64> + use<'a> {
        let (chunks, _) = self.sequences.as_chunks::<8>();
        chunks.iter().map(|bytes| u64::from_ne_bytes(*bytes))
    }

    /// Reads what the program wrote. `None` where it is cut off.
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (header, rest) = bytes.split_first_chunk::<HEADER_BYTES>()?;
        let u64_at = |at: usize| header[at..].first_chunk().map(|bytes| u64::from_ne_bytes(*bytes));
        let u32_at = |at: usize| header[at..].first_chunk().map(|bytes| u32::from_ne_bytes(*bytes));
        let nonzero = |number: u32| (number != 0).then_some(number);
        let (flags, offset) = (header[46], u32_at(48)?);
        let unidentified = flags & UNIDENTIFIED != 0;
        let count = if unidentified { 0 } else { header[47] };
        let source = || {
            let bytes: &[u8; 16] = rest.first_chunk()?;
            let v4: &[u8; 4] = rest.first_chunk()?;
            let ip = if flags & IPV6 != 0 { Ipv6Addr::from(*bytes).into() } else { IpAddr::V4(Ipv4Addr::from(*v4)) };
            Some(SocketAddr::new(ip, offset as u16))
        };
        Some(Self {
            at: Nanos(u64_at(0)?),
            location: u64_at(8)?,
            namespace_cookie: u64_at(16).filter(|cookie| *cookie != 0),
            namespace_inode: nonzero(u32_at(24)?),
            ifindex: nonzero(u32_at(28)?),
            reason: u32_at(32)?,
            cookie: u32_at(36)?,
            unit_packets: u32_at(40)?,
            port: u16::from_ne_bytes([header[44], header[45]]),
            super_packet: flags & GSO != 0,
            ipv6: flags & IPV6 != 0,
            fragment: if flags & FRAGMENT != 0 { Some(offset..offset.checked_add(u32_at(52)?)?) } else { None },
            unidentified: if unidentified { Some(source()?) } else { None },
            namespace_of_task: flags & TASKS_NAMESPACE != 0,
            continued: flags & CONTINUED != 0,
            // The ring pads to 8 bytes; the count rules.
            sequences: rest.get(..usize::from(count) * 8)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An event with two sequence numbers, as the program lays it out.
    fn bytes() -> Vec<u8> {
        let mut bytes = Vec::new();
        for word in [1_000_000_007_u64, 0xffff_ffff_8100_0010, 77] {
            bytes.extend(word.to_ne_bytes());
        }
        for word in [4_026_532_000_u32, 3, 6, 0xabcd_ef05, 2] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend(5201_u16.to_ne_bytes());
        bytes.extend([GSO | CONTINUED | FRAGMENT, 2]);
        bytes.extend([1480_u32, 1000].map(u32::to_ne_bytes).concat());
        for sequence in [10_u64, 1 << 47] {
            bytes.extend(sequence.to_ne_bytes());
        }
        bytes
    }

    #[test]
    fn reads_what_the_program_wrote() {
        let bytes = bytes();
        let event = DropEvent::parse(&bytes).unwrap();
        assert_eq!((event.at, event.location, event.reason), (Nanos(1_000_000_007), 0xffff_ffff_8100_0010, 6));
        assert_eq!(
            (event.namespace_cookie, event.namespace_inode, event.ifindex),
            (Some(77), Some(4_026_532_000), Some(3))
        );
        assert_eq!((event.cookie, event.port, event.unit_packets), (0xabcd_ef05, 5201, 2));
        assert_eq!((event.super_packet, event.continued, event.ipv6), (true, true, false));
        assert_eq!(event.fragment, Some(1480..2480));
        assert_eq!(event.sequences().collect::<Vec<_>>(), [10, 1 << 47]);
    }

    #[test]
    fn of_an_unidentified_packet_the_source_is_told() {
        let mut bytes = bytes();
        let event = |bytes: &[u8], flags: u8| {
            let mut bytes = bytes.to_vec();
            bytes[46] = flags;
            bytes[48..52].copy_from_slice(&12_345_u32.to_ne_bytes());
            DropEvent::parse(&bytes).map(|event| (event.unidentified, event.sequences().len()))
        };
        bytes[HEADER_BYTES..].copy_from_slice(&[10, 77, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9]);
        let said = |text: &str| Some((Some(text.parse().unwrap()), 0));
        assert_eq!(event(&bytes, UNIDENTIFIED), said("10.77.1.1:12345"));
        assert_eq!(event(&bytes, UNIDENTIFIED | IPV6), said("[a4d:101::9]:12345"));
        assert_eq!(event(&bytes[..HEADER_BYTES + 15], UNIDENTIFIED), None);
    }

    #[test]
    fn what_is_cut_off_is_none() {
        let bytes = bytes();
        for end in 0..bytes.len() {
            assert_eq!(DropEvent::parse(&bytes[..end]), None, "{end}");
        }
    }

    #[test]
    fn zero_is_unknown() {
        let bytes = [0; HEADER_BYTES];
        let event = DropEvent::parse(&bytes).unwrap();
        assert_eq!((event.namespace_cookie, event.namespace_inode, event.ifindex), (None, None, None));
        assert_eq!(event.sequences().len(), 0);
    }
}
