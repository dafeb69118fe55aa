//! The endpoint filter: an XDP program that counts frames for this host and other frames, and drops the others on request.
//!
//! `judge.h` and `docs/reference/filter.md` have the algorithm, its reasons and exceptions. A [`Filter`] is attached by a link. It ends with the
//! last descriptor of that link, so with its process, unless it is [kept](Filter::keep). Any process can [open](Filter::open) an attached
//! filter: all state is in the kernel.
//!
//! The program reads what it can from the kernel's memory. It gets the local addresses by [`Filter::follow`], with the routing generation at
//! which they were read ([`Generations`]). After a change that it did not get, it passes what it would reject by address; in another network
//! namespace, into which its interface was moved, everything.

mod class;
mod counters;
mod error;
mod reason;
mod sample;

#[cfg(not(bpf_programs))]
mod disabled;
#[cfg(bpf_programs)]
mod enabled;

use std::collections::BTreeSet;
use std::net::IpAddr;

use longhaul_units::Nanos;

pub use class::{Cast, Class, SizeRange};
pub use counters::{FilterCounters, Tally, Verdicts};
#[cfg(not(bpf_programs))]
pub use disabled::{Filter, Generations, Samples};
#[cfg(bpf_programs)]
pub use enabled::{Filter, Generations, Samples};
pub use error::FilterError;
pub use reason::Reason;
pub use sample::{FilterSample, SAMPLE_SNIPPET_BYTES};

/// The folder in which the links of kept filters are pinned, one file for each. What is where is read from the links, not from their names.
pub const KEPT: &str = "/sys/fs/bpf/longhaul/filter";
/// The name that identifies the program in the kernel.
pub const PROGRAM_NAME: &str = "longhaul_filter";
/// The most local addresses of a family; with more the program judges no address of that family.
pub const MOST_ADDRESSES: usize = 4096;
/// The most local networks of a family, as [`MOST_ADDRESSES`], and the most allowed ones.
pub const MOST_NETWORKS: usize = 1024;

/// Where the program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// In the driver, before the kernel makes an skb of a frame.
    Native,
    /// In the stack, after it made an skb: works with any driver and saves less.
    Generic,
}

impl Mode {
    /// The name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Generic => "generic",
        }
    }
}

/// What is never rejected by address or port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allow {
    /// Packets from this network: address and prefix length in bits.
    Network(IpAddr, u8),
    /// TCP and UDP packets to this port.
    Port(u16),
}

/// How to filter.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FilterOptions {
    /// Where the program should run; `None`: native where the driver can.
    pub mode: Option<Mode>,
    /// Drop rejected frames.
    pub enforce: bool,
    /// Drop until this time on `CLOCK_MONOTONIC`, unless [confirmed](Filter::confirm); `None`: without end.
    pub enforce_until: Option<Nanos>,
    /// Reject packets to ports without a listening socket.
    pub judge_ports: bool,
    /// What is never rejected by address or port.
    pub allow: Vec<Allow>,
    /// Judge although a bridge, a bond or macvlan has the interface.
    pub force: bool,
}

/// The settings of an attached filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilterSettings {
    /// It drops rejected frames until `enforce_until`.
    pub enforce: bool,
    /// As in [`FilterOptions`].
    pub enforce_until: Option<Nanos>,
    /// As in [`FilterOptions`].
    pub judge_ports: bool,
    /// As in [`FilterOptions`].
    pub force: bool,
}

impl FilterSettings {
    /// Whether frames are dropped at `now`, on `CLOCK_MONOTONIC`.
    pub fn drops_at(&self, now: Nanos) -> bool {
        self.enforce && self.enforce_until.is_none_or(|until| now < until)
    }
}

/// What the filter can judge, by the set-up of its host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Judgement {
    /// IPv4 destination addresses, and ports behind them.
    pub ipv4: bool,
    /// IPv6 destination addresses, and ports behind them.
    pub ipv6: bool,
    /// The address that an ARP request asks for.
    pub arp: bool,
    /// The address that an IPv6 solicitation asks for.
    pub solicitations: bool,
}

/// The kernel's routing generations in a network namespace: each changes with every change to a routing table of that family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RoutingGenerations {
    /// The namespace, by its cookie: no other one has had it since boot.
    pub namespace: u64,
    /// `net->ipv4.rt_genid`.
    pub ipv4: u32,
    /// `net->ipv6.fib6_sernum`.
    pub ipv6: u32,
}

/// A local address or network: address and prefix length in bits.
pub type LocalNetwork = (IpAddr, u8);

/// Whether the program can hold the local addresses and networks of a family. It judges no address of a family of which `local` has more.
pub fn holds(local: &[LocalNetwork], is_ipv4: bool) -> bool {
    let whole_bits = if is_ipv4 { 32 } else { 128 };
    let of_family = local.iter().filter(|(ip, _)| ip.is_ipv4() == is_ipv4);
    let of_family = of_family.collect::<BTreeSet<&LocalNetwork>>();
    let networks = of_family.iter().filter(|(_, bits)| *bits < whole_bits).count();
    of_family.len() - networks <= MOST_ADDRESSES && networks <= MOST_NETWORKS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_family_has_its_own_bounds() {
        let v4 = |count: usize, bits| (0..count as u32).map(move |n| (IpAddr::from((n << 8).to_be_bytes()), bits));
        let v6 = |count: usize, bits| (0..count as u128).map(move |n| (IpAddr::from((n << 64).to_be_bytes()), bits));
        let judged = |local: Vec<LocalNetwork>| [true, false].map(|is_ipv4| holds(&local, is_ipv4));
        assert_eq!(judged(v4(MOST_NETWORKS, 24).chain(v6(MOST_NETWORKS, 64)).collect()), [true, true]);
        assert_eq!(judged(v4(MOST_NETWORKS + 1, 24).chain(v6(1, 64)).collect()), [false, true]);
        assert_eq!(judged(v4(MOST_ADDRESSES, 32).chain(v6(MOST_ADDRESSES + 1, 128)).collect()), [true, false]);
    }
}
