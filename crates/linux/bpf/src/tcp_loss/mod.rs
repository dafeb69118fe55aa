//! What the kernel drops of some TCP connections, why and where, and what it retransmits.
//!
//! [`TcpLoss`] attaches programs to the tracepoints `skb:kfree_skb` and `tcp:tcp_retransmit_skb`. They see the whole machine, in every
//! network namespace, and sum up what belongs to the given connections. [`tcp_place`] says on which side of TCP a drop was, and
//! which drops are no loss: duplicates and old acknowledgements are also dropped.
//!
//! It works for the connections of other programs too: it needs only their addresses and ports.

mod place;

#[cfg(not(bpf_programs))]
mod disabled;
#[cfg(bpf_programs)]
mod enabled;

#[cfg(not(bpf_programs))]
pub use disabled::TcpLoss;
#[cfg(bpf_programs)]
pub use enabled::TcpLoss;
pub use place::tcp_place;

/// The most connections that one [`TcpLoss`] watches: `MAX_CONNECTIONS` in `intf.h`.
pub const MAX_CONNECTIONS: u32 = 256;

/// Packets of one connection and direction that were dropped for one reason at one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpDropSum {
    /// The connection's number, as it was given.
    pub connection: u32,
    /// Whether the packets went from the local address to the remote one.
    pub from_here: bool,
    /// The kernel's number for why; [`ReasonNames`](crate::drops::ReasonNames) has the name.
    pub reason: u32,
    /// The address in the kernel from which they were freed; [`Symbols`](crate::symbols::Symbols) has the function.
    pub location: u64,
    /// The network namespace as in `net:[…]`; `None` where it is not known.
    pub namespace_inode: Option<u32>,
    /// Whether the namespace is only that of the task that ran.
    pub namespace_of_task: bool,
    /// Whether the receiving socket itself dropped them (known since Linux 6.11).
    pub by_socket: bool,
    /// Packets as the wire has them.
    pub packets: u64,
    /// Bytes of their IP packets.
    pub bytes: u64,
}

/// What a connection retransmitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TcpAgain {
    /// Packets as the wire has them.
    pub packets: u64,
    /// Payload bytes.
    pub payload_bytes: u64,
    /// Bytes of their IP packets.
    pub ip_bytes: u64,
}
