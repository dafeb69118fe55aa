//! A driver's settings: rings, interrupt coalescing, channels, pause frames, by `SIOCETHTOOL`. All may be read without rights.
//!
//! Source: `<linux/ethtool.h>`, `Documentation/networking/ethtool-netlink.rst`.

use std::io;

use serde::Serialize;

use crate::link_ioctl::ask;

const SIOCETHTOOL: libc::Ioctl = 0x8946;
const ETHTOOL_GCOALESCE: u32 = 0x0e;
const ETHTOOL_GRINGPARAM: u32 = 0x10;
const ETHTOOL_GPAUSEPARAM: u32 = 0x12;
const ETHTOOL_GCHANNELS: u32 = 0x3c;

/// Descriptor rings, in packets (`ethtool -g`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Rings {
    /// Packets that a receive ring holds.
    pub receive_packets: u32,
    /// Packets that it could hold.
    pub receive_max_packets: u32,
    /// Packets that a transmit ring holds.
    pub transmit_packets: u32,
    /// Packets that it could hold.
    pub transmit_max_packets: u32,
}

/// When the NIC interrupts (`ethtool -c`); 0 for what a driver has not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Coalescing {
    /// At the latest so long after a packet came.
    pub receive_us: u32,
    /// At the latest after so many packets came.
    pub receive_max_packets: u32,
    /// At the latest so long after a packet was sent.
    pub transmit_us: u32,
    /// At the latest after so many packets were sent.
    pub transmit_max_packets: u32,
    /// The driver adapts receiving to the load.
    pub receive_adaptive: bool,
    /// The driver adapts sending to the load.
    pub transmit_adaptive: bool,
}

/// Queues with an interrupt of their own (`ethtool -l`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Channels {
    /// Receive queues.
    pub receive: u32,
    /// Transmit queues.
    pub transmit: u32,
    /// Pairs of both.
    pub combined: u32,
    /// As many receive queues there could be.
    pub receive_max: u32,
    /// As many transmit queues.
    pub transmit_max: u32,
    /// As many pairs.
    pub combined_max: u32,
}

/// Ethernet flow control (`ethtool -a`): a full receive ring may stop the sender's port instead of losing packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Pause {
    /// It is negotiated with the link's other end.
    pub negotiated: bool,
    /// The NIC stops sending when told to.
    pub receive: bool,
    /// The NIC tells the other end to stop.
    pub transmit: bool,
}

/// The words of a structure of `N` that begins with its command.
fn words<const N: usize>(link: &str, command: u32) -> io::Result<[u32; N]> {
    let mut words = [0; N];
    words[0] = command;
    ask(link, SIOCETHTOOL, &mut words)?;
    Ok(words)
}

pub(super) fn rings(link: &str) -> io::Result<Rings> {
    // struct ethtool_ringparam: cmd; at most: rx, mini, jumbo, tx; now: rx, mini, jumbo, tx.
    let [_, receive_max_packets, _, _, transmit_max_packets, receive_packets, _, _, transmit_packets] =
        words(link, ETHTOOL_GRINGPARAM)?;
    Ok(Rings { receive_packets, receive_max_packets, transmit_packets, transmit_max_packets })
}

pub(super) fn coalescing(link: &str) -> io::Result<Coalescing> {
    // struct ethtool_coalesce: cmd, rx usecs, rx frames, two for IRQ context, tx usecs, tx frames, two for IRQ context,
    // statistics usecs, adaptive rx, adaptive tx, eleven more.
    let all: [u32; 23] = words(link, ETHTOOL_GCOALESCE)?;
    Ok(Coalescing {
        receive_us: all[1],
        receive_max_packets: all[2],
        transmit_us: all[5],
        transmit_max_packets: all[6],
        receive_adaptive: all[10] != 0,
        transmit_adaptive: all[11] != 0,
    })
}

pub(super) fn channels(link: &str) -> io::Result<Channels> {
    // struct ethtool_channels: cmd; at most: rx, tx, other, combined; now: the same.
    let [_, receive_max, transmit_max, _, combined_max, receive, transmit, _, combined] =
        words(link, ETHTOOL_GCHANNELS)?;
    Ok(Channels { receive, transmit, combined, receive_max, transmit_max, combined_max })
}

/// Receive queues that interface `link` of the calling thread's network namespace has in use; 1 where it does not say.
pub fn receive_queues(link: &str) -> u32 {
    channels(link).map_or(1, |channels| channels.receive + channels.combined).max(1)
}

pub(super) fn pause(link: &str) -> io::Result<Pause> {
    // struct ethtool_pauseparam: cmd, autoneg, rx, tx.
    let [_, negotiated, receive, transmit] = words(link, ETHTOOL_GPAUSEPARAM)?;
    Ok(Pause { negotiated: negotiated != 0, receive: receive != 0, transmit: transmit != 0 })
}
