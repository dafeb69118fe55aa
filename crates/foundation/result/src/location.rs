//! The one vocabulary of places where a packet can be lost.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Where a packet was lost, in the order in which it travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Location {
    /// The sender's socket: the send failed.
    SenderSocket,
    /// Netfilter, neighbour, route at the sender.
    SenderStack,
    /// The sender's queueing discipline.
    SenderQdisc,
    /// The sender's device or its driver.
    SenderDevice,
    /// Between the two hosts.
    Network,
    /// The receive ring of the receiver's device.
    ReceiverRing,
    /// The receiver's softnet backlog.
    ReceiverBacklog,
    /// XDP, tc or netfilter at the receiver.
    ReceiverFilter,
    /// Checksum, IP, UDP at the receiver.
    ReceiverStack,
    /// The receiving socket's buffer was full.
    ReceiverSocketBuffer,
    /// Delivered to the socket, unread at close.
    ReceiverApplication,
    /// No evidence locates it.
    Unexplained,
}

impl Location {
    /// All, in the order of travel.
    pub const ALL: [Self; 12] = [
        Self::SenderSocket,
        Self::SenderStack,
        Self::SenderQdisc,
        Self::SenderDevice,
        Self::Network,
        Self::ReceiverRing,
        Self::ReceiverBacklog,
        Self::ReceiverFilter,
        Self::ReceiverStack,
        Self::ReceiverSocketBuffer,
        Self::ReceiverApplication,
        Self::Unexplained,
    ];

    /// Its name in results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SenderSocket => "sender_socket",
            Self::SenderStack => "sender_stack",
            Self::SenderQdisc => "sender_qdisc",
            Self::SenderDevice => "sender_device",
            Self::Network => "network",
            Self::ReceiverRing => "receiver_ring",
            Self::ReceiverBacklog => "receiver_backlog",
            Self::ReceiverFilter => "receiver_filter",
            Self::ReceiverStack => "receiver_stack",
            Self::ReceiverSocketBuffer => "receiver_socket_buffer",
            Self::ReceiverApplication => "receiver_application",
            Self::Unexplained => "unexplained",
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// How losses were placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LocationMethod {
    /// Packet by packet, from the kernel's drop events.
    Bpf,
    /// By totals, from counters before and after.
    #[default]
    Counters,
}

impl LocationMethod {
    /// The method of a result whose ends used these: per packet only where both did.
    pub fn of_both(self, other: Self) -> Self {
        if self == Self::Bpf && other == Self::Bpf { Self::Bpf } else { Self::Counters }
    }
}

/// What one loss stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Granularity {
    /// Every packet travelled alone.
    #[default]
    Wire,
    /// Packets travelled in super-packets, and may have been lost in super-packets that a real wire would have parted.
    Superpacket,
}

/// Where a host's TCP lost a packet, as figure 6c of the NLR Rings paper has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TcpLocation {
    /// Between TCP and the wire, going out: netfilter, qdisc, device.
    Transmit,
    /// Between the wire and TCP, coming in: ring, backlog, filters, IP.
    Receive,
    /// In TCP: its memory was full.
    Pruned,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_json_and_in_the_order_of_travel() {
        for location in Location::ALL {
            assert_eq!(serde_json::to_string(&location).unwrap(), format!("\"{location}\""));
        }
        assert!(Location::ALL.is_sorted());
    }
}
