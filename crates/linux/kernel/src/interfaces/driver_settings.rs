//! A driver's settings: rings, interrupt coalescing, channels, pause frames, by `SIOCETHTOOL`. Reading them needs no rights; rings can be set.
//!
//! Each function takes the name of an interface in the calling thread's network namespace. It returns `None` where the driver has no
//! such setting, and fails as ioctl(2) does: `ENODEV` where there is no such interface.
//!
//! Source: `<linux/ethtool.h>`, `Documentation/networking/ethtool-netlink.rst`.

use std::io;

use serde::{Deserialize, Serialize};

use crate::link_ioctl::ask;

const SIOCETHTOOL: libc::Ioctl = 0x8946;
const ETHTOOL_GCOALESCE: u32 = 0x0e;
const ETHTOOL_GRINGPARAM: u32 = 0x10;
const ETHTOOL_SRINGPARAM: u32 = 0x11;
const ETHTOOL_GPAUSEPARAM: u32 = 0x12;
const ETHTOOL_GCHANNELS: u32 = 0x3c;

/// Descriptor rings, in packets (`ethtool -g`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Rings {
    /// Packets that a receive ring holds.
    pub receive_packets: u32,
    /// The most packets that it can hold.
    pub receive_max_packets: u32,
    /// Packets that a transmit ring holds.
    pub transmit_packets: u32,
    /// The most packets that it can hold.
    pub transmit_max_packets: u32,
}

/// When the NIC interrupts (`ethtool -c`); 0 for what a driver does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Coalescing {
    /// The longest time from a received packet to its interrupt.
    pub receive_us: u32,
    /// The most received packets before an interrupt.
    pub receive_max_packets: u32,
    /// The longest time from a sent packet to its interrupt.
    pub transmit_us: u32,
    /// The most sent packets before an interrupt.
    pub transmit_max_packets: u32,
    /// The driver adapts receive coalescing to the load.
    pub receive_adaptive: bool,
    /// The driver adapts transmit coalescing to the load.
    pub transmit_adaptive: bool,
}

/// Queues with an interrupt of their own (`ethtool -l`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Channels {
    /// Receive queues.
    pub receive: u32,
    /// Transmit queues.
    pub transmit: u32,
    /// Pairs of both.
    pub combined: u32,
    /// The most receive queues possible.
    pub receive_max: u32,
    /// The most transmit queues possible.
    pub transmit_max: u32,
    /// The most pairs possible.
    pub combined_max: u32,
}

/// Ethernet flow control (`ethtool -a`): a full receive ring may stop the sender's port instead of losing packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Pause {
    /// The setting is negotiated with the link's other end.
    pub negotiated: bool,
    /// The NIC stops sending when told to.
    pub receive: bool,
    /// The NIC tells the other end to stop.
    pub transmit: bool,
}

/// A structure of `N` words, the first of which is `command`, as the driver filled it in.
fn words<const N: usize>(link: &str, command: u32) -> io::Result<Option<[u32; N]>> {
    let mut words = [0; N];
    words[0] = command;
    match ask(link, SIOCETHTOOL, &mut words) {
        Ok(()) => Ok(Some(words)),
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The rings of `link`.
///
/// # Errors
/// See the module.
pub fn rings(link: &str) -> io::Result<Option<Rings>> {
    // struct ethtool_ringparam: cmd; at most: rx, mini, jumbo, tx; now: rx, mini, jumbo, tx.
    Ok(words(link, ETHTOOL_GRINGPARAM)?.map(|words: [u32; 9]| Rings {
        receive_max_packets: words[1],
        transmit_max_packets: words[4],
        receive_packets: words[5],
        transmit_packets: words[8],
    }))
}

/// Sets the rings of `link`, each where it is given. The driver may round the numbers, and may stop the link for a moment.
///
/// # Errors
/// As ioctl(2) does: `EPERM` without rights, `EINVAL` for more than the most, `EOPNOTSUPP` where the driver cannot.
pub fn set_rings(link: &str, receive_packets: Option<u32>, transmit_packets: Option<u32>) -> io::Result<()> {
    let mut words: [u32; 9] =
        words(link, ETHTOOL_GRINGPARAM)?.ok_or_else(|| io::Error::from_raw_os_error(libc::EOPNOTSUPP))?;
    words[0] = ETHTOOL_SRINGPARAM;
    words[5] = receive_packets.unwrap_or(words[5]);
    words[8] = transmit_packets.unwrap_or(words[8]);
    ask(link, SIOCETHTOOL, &mut words)
}

/// When `link` interrupts.
///
/// # Errors
/// See the module.
pub fn coalescing(link: &str) -> io::Result<Option<Coalescing>> {
    // struct ethtool_coalesce: cmd, rx usecs, rx frames, two for IRQ context, tx usecs, tx frames, two for IRQ context,
    // statistics usecs, adaptive rx, adaptive tx, eleven more.
    Ok(words(link, ETHTOOL_GCOALESCE)?.map(|all: [u32; 23]| Coalescing {
        receive_us: all[1],
        receive_max_packets: all[2],
        transmit_us: all[5],
        transmit_max_packets: all[6],
        receive_adaptive: all[10] != 0,
        transmit_adaptive: all[11] != 0,
    }))
}

/// The channels of `link`.
///
/// # Errors
/// See the module.
pub fn channels(link: &str) -> io::Result<Option<Channels>> {
    // struct ethtool_channels: cmd; at most: rx, tx, other, combined; now: the same.
    Ok(words(link, ETHTOOL_GCHANNELS)?.map(|words: [u32; 9]| Channels {
        receive_max: words[1],
        transmit_max: words[2],
        combined_max: words[4],
        receive: words[5],
        transmit: words[6],
        combined: words[8],
    }))
}

/// Receive queues that `link` uses; 1 where the driver does not say.
pub fn receive_queues(link: &str) -> u32 {
    channels(link).ok().flatten().map_or(1, |channels| channels.receive + channels.combined).max(1)
}

/// The flow control of `link`.
///
/// # Errors
/// See the module.
pub fn pause(link: &str) -> io::Result<Option<Pause>> {
    // struct ethtool_pauseparam: cmd, autoneg, rx, tx.
    Ok(words(link, ETHTOOL_GPAUSEPARAM)?.map(|words: [u32; 4]| Pause {
        negotiated: words[1] != 0,
        receive: words[2] != 0,
        transmit: words[3] != 0,
    }))
}
