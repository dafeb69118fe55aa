//! The endpoint filter: an XDP program that tells frames for this host from those that are not, counts both, and drops the latter
//! where it is asked to.
//!
//! The algorithm, its reasons and exceptions stand in `main.bpf.c` and `docs/reference/filter.md`. A [`Filter`] is attached by a link: it goes
//! with the last descriptor of that link, thus with its process, unless it is [kept](Filter::keep). Any process may
//! [open](Filter::open) the one that is there: nothing but the kernel has its state.
//!
//! The program reads what it can where the kernel has it. Local addresses it must be told ([`Filter::follow`]), with the routing
//! generation at which they were read ([`Generations`]): a change that nobody told it of makes it pass what it would reject by
//! address.

mod class;
mod counters;
mod error;
mod reason;
mod sample;

#[cfg(not(bpf_programs))]
mod disabled;
#[cfg(bpf_programs)]
mod enabled;
#[cfg(bpf_programs)]
mod link;

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
pub use sample::{FilterSample, SAMPLE_HEAD_BYTES};

/// Where the links of filters that stay are pinned, one file an interface.
pub const KEPT: &str = "/sys/fs/bpf/longhaul/filter";
/// The program's name in the kernel, by which it is known.
pub const PROGRAM_NAME: &str = "longhaul_filter";
/// Local addresses of a family that the program has room for; beyond, it judges none.
pub const MOST_ADDRESSES: usize = 4096;
/// Networks that it has room for.
pub const MOST_NETWORKS: usize = 1024;

/// Where the program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// In the driver, before the kernel makes anything of a frame.
    Native,
    /// In the stack, after it made a packet in memory: works with any driver and saves less.
    Generic,
}

impl Mode {
    /// For programs and people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Generic => "generic",
        }
    }
}

/// A network that is always let in, or a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allow {
    /// Packets from there, with so many leading bits.
    Network(IpAddr, u8),
    /// TCP and UDP to this port.
    Port(u16),
}

/// How to filter.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FilterOptions {
    /// Where the program should run; `None`: native where the driver can.
    pub mode: Option<Mode>,
    /// Drop what is rejected.
    pub enforce: bool,
    /// Until then, on `CLOCK_MONOTONIC`, unless it is [confirmed](Filter::confirm); `None` for good.
    pub enforce_until: Option<Nanos>,
    /// Reject what goes to a port that nobody listens on.
    pub judge_ports: bool,
    /// What is never rejected by address or port.
    pub allow: Vec<Allow>,
    /// Judge although a bridge, a bond or macvlan has the interface.
    pub force: bool,
    /// Sample one rejected frame in so many.
    pub sample_every: Option<u64>,
}

/// How a filter that is attached filters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilterSettings {
    /// It drops what it rejects, unless the time for that is over.
    pub enforce: bool,
    /// As in [`FilterOptions`].
    pub enforce_until: Option<Nanos>,
    /// As in [`FilterOptions`].
    pub judge_ports: bool,
    /// As in [`FilterOptions`].
    pub force: bool,
    /// As in [`FilterOptions`].
    pub sample_every: Option<u64>,
}

impl FilterSettings {
    /// Whether frames are dropped at `now`, on `CLOCK_MONOTONIC`.
    pub fn drops_at(&self, now: Nanos) -> bool {
        self.enforce && self.enforce_until.is_none_or(|until| now < until)
    }
}

/// What follows from how the host is set up, beside its addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Judgement {
    /// IPv4 destination addresses, and ports behind them.
    pub ipv4: bool,
    /// The same of IPv6.
    pub ipv6: bool,
    /// Whom ARP asks for.
    pub arp: bool,
    /// Whom IPv6 solicits.
    pub solicitations: bool,
}

/// The kernel's routing generations: each changes with every change to a routing table of that family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RoutingGenerations {
    /// `net->ipv4.rt_genid`.
    pub ipv4: u32,
    /// `net->ipv6.fib6_sernum`.
    pub ipv6: u32,
}

/// A local address or network, with its leading bits.
pub type LocalNetwork = (IpAddr, u8);
