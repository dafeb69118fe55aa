//! One packet's snippet as it was captured.

use serde::{Deserialize, Serialize};

/// What the captured bytes begin with, by the numbers of the pcap formats (draft-ietf-opsawg-pcaplinktype).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LinkType {
    /// LINKTYPE_ETHERNET, 1.
    #[default]
    Ethernet,
    /// LINKTYPE_RAW, 101: IPv4 or IPv6 without a link header.
    RawIp,
    /// LINKTYPE_LINUX_SLL, 113: what `tcpdump -i any` wrote.
    LinuxCooked,
    /// LINKTYPE_LINUX_SLL2, 276: what it writes now.
    LinuxCooked2,
    /// LINKTYPE_NULL, 0: what BSD's and macOS's loopback and many tunnels have.
    Null,
    /// LINKTYPE_LOOP, 108: OpenBSD's.
    Loop,
    /// LINKTYPE_PPP, 9, and LINKTYPE_PPP_HDLC, 50.
    Ppp,
    /// LINKTYPE_IEEE802_11, 105.
    #[serde(rename = "ieee_802_11")]
    Ieee80211,
    /// LINKTYPE_IEEE802_11_RADIOTAP, 127: 802.11 behind what the radio says of it.
    Radiotap,
    /// Any other, by its number: its packets are counted and not looked into.
    Other(u16),
}

/// Which way a packet passed the interface where it was captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum InterfaceDirection {
    /// The file does not say.
    #[default]
    Unknown,
    /// Received by the host (or seen as someone else's).
    Inbound,
    /// Sent by the host.
    Outbound,
}

/// One packet's snippet as it was captured, borrowed from its reader. The default is an empty one of Ethernet, of which the file says nothing
/// else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Record<'a> {
    /// Nanoseconds since 1970-01-01 UTC by the clock that the file names.
    pub at_ns: i64,
    /// The interface, an index into the file's own list; 0 where it has one alone.
    pub interface: u16,
    /// Which way it passed.
    pub direction: InterfaceDirection,
    /// What `snippet` begins with.
    pub link: LinkType,
    /// Bytes of the whole frame, without FCS. Of a super-packet: of the super-packet.
    pub frame_len: u32,
    /// Wire packets that it stands for; 0 where the file does not say, 1 for one.
    pub gso_segs: u16,
    /// Payload bytes of each wire packet in a super-packet but the last; 0 for a single packet.
    pub gso_size: u16,
    /// The first bytes of the frame, at most `frame_len`.
    pub snippet: &'a [u8],
}
