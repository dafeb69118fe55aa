//! Which packets of a test the kernel drops, why and where: per-packet evidence of loss.
//!
//! [`Drops`] attaches a program to the tracepoint `skb:kfree_skb`. It sees the drops of the whole machine, in every network
//! namespace, and reports those whose probe header (that of `longhaul-wire`) carries the
//! cookie of one of the flows asked for. [`place`] says where on the way that was.
//!
//! Of a later IP fragment it tells to which datagram it belonged, where [`DropOptions::fragments`] is on and the first one passed
//! this host.
//!
//! It does not see packets that are no skb yet (a NIC's full ring; XDP on a NIC's driver or of a redirected frame), what is wrapped in a tunnel or has an 802.1Q tag in its data. Packets that are consumed (`consume_skb`) are no
//! drops.

// Nothing writes events in a build without programs.
#[cfg_attr(not(bpf_programs), allow(dead_code))]
mod event;
mod place;

#[cfg(not(bpf_programs))]
mod disabled;
#[cfg(bpf_programs)]
mod enabled;

pub use crate::reasons::ReasonNames;
#[cfg(not(bpf_programs))]
pub use disabled::Drops;
#[cfg(bpf_programs)]
pub use enabled::Drops;
pub use event::DropEvent;
pub use place::{HostRole, place};

/// The most flows that one [`Drops`] watches: `MAX_FLOWS` in `intf.h`.
pub const MAX_FLOWS: usize = 256;

/// Packets to watch: those to a UDP port whose probe header has a cookie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Flow {
    /// UDP destination port.
    pub port: u16,
    /// Cookie of the probe header.
    pub cookie: u32,
}

/// How a [`Drops`] is set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DropOptions {
    /// Memory for events that wait to be read: a power of two, and at least a page. An event of one packet takes 64 bytes, one of
    /// a super-packet 8 more for each further packet.
    pub ring_bytes: u32,
    /// The network namespace whose drops are reported, as `SO_NETNS_COOKIE` names it; `None`: all of the machine. The program leaves
    /// other drops out: those of an emulator or a bridge, one for each packet that passes, would fill the ring.
    pub namespace_cookie: Option<u64>,
    /// Reads payload that lies in pages through `bpf_dynptr_from_skb` where the kernel lets the program do so; without it such
    /// packets go to [`Lost::unread_packets`]. To turn it off is for tests.
    pub paged_payload: bool,
    /// Datagrams may be longer than a packet: notes the identification of each first fragment that passes, some 100 ns for every packet
    /// of the machine.
    pub fragments: bool,
}

impl Default for DropOptions {
    /// 8 MiB: 130,000 drops of single packets, some 50 ms of all that one CPU can drop.
    fn default() -> Self {
        Self { ring_bytes: 8 << 20, namespace_cookie: None, paged_payload: true, fragments: false }
    }
}

/// Drops for whose events the ring had no room: how many at each place, but not which.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unrecorded {
    /// As [`DropEvent::reason`].
    pub reason: u32,
    /// As [`DropEvent::location`].
    pub location: u64,
    /// Cookie of the probe headers.
    pub cookie: u32,
    /// Packets and super-packets.
    pub units: u64,
    /// Wire packets in them.
    pub packets: u64,
}

/// Drops without any evidence. Where a number is not zero, as many losses may stay unexplained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lost {
    /// Packets for which there was no room, neither in the ring nor among the [`Unrecorded`].
    pub packets: u64,
    /// Packets to one of the ports whose payload could not be read; they may be those of other programs.
    pub unread_packets: u64,
    /// Drops of any packet on the machine that an interrupt made while the program, and its twin for such drops, dealt with others on
    /// the same CPU. The kernel does not run a program twice at once.
    ///
    /// Not in it are drops for which the kernel left all BPF programs out without counting that: some 1 in a minute of Linux 6.18 with
    /// many programs at work. A counter of perf at the same tracepoint does see them (it and the program's own count of its runs,
    /// read around each other on each CPU, agree to the drop otherwise). It cannot be used for a bound: it does not tell whose packet it
    /// was. As each may have been a batch of the test, one stranger's packet would make all of 40 losses in the network `unexplained`.
    pub skipped_runs: u64,
}

impl Lost {
    /// Whether every drop was reported.
    pub fn is_none(self) -> bool {
        self == Self::default()
    }
}
