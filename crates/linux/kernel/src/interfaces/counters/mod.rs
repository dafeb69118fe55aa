//! Everything that Linux counts about packets, before and after: what changed in between, and nothing else.
//!
//! | scope | where | sees |
//! |---|---|---|
//! | the network namespace | `/proc/net/snmp`, `snmp6`, `netstat`, `stat/nf_conntrack` | `Udp.RcvbufErrors`, `TcpExt.TCPRcvQDrop`, … |
//! | the machine | `/proc/net/softnet_stat`, `/proc/net/stat/arp_cache`, `ndisc_cache` | all namespaces together |
//! | this process | [`GroupLimits`] | what its control groups withheld |
//! | an interface | `rtnl_link_stats64`, the netdev family's `qstats`, `ethtool -S` | what the driver says |
//! | a queueing discipline | rtnetlink `TCA_STATS2` | drops on egress |
//!
//! A [`Snapshot`] is of the network namespace that the calling thread is in. It needs no rights: what it may not or cannot read
//! it names ([`Unread`]) and goes on.
//!
//! What is not here: what a driver's counters mean ([`crate::driver_statistics`]), and which of them a loss explains.

pub(crate) mod attributes;
mod change;
mod conntrack;
mod interfaces;
mod neighbours;
pub(crate) mod netlink;
mod proc_net;
mod qstats;

pub use change::{Change, Doubt};

use std::collections::BTreeMap;
use std::fmt;

use longhaul_units::Nanos;
use serde::Serialize;

use crate::clock::monotonic;
use crate::ethtool::{Ethtool, EthtoolError};
use crate::group_limits::GroupLimits;
use crate::procfs::softnet;

/// What a counter is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "of", rename_all = "snake_case")]
pub enum Scope {
    /// One network namespace: a host, as its IP stack sees it.
    Namespace,
    /// The control groups of this process.
    ControlGroup,
    /// One CPU of the whole machine, all network namespaces together.
    MachineCpu {
        /// The CPU's number.
        cpu: u32,
    },
    /// An interface, in the kernel's standard words (`rtnl_link_stats64`).
    Interface {
        /// Its name.
        interface: String,
    },
    /// An interface's queues summed, in the netdev family's words (`qstats`).
    InterfaceQueues {
        /// Its name.
        interface: String,
    },
    /// An interface, in its driver's own words (`ethtool -S`); [`crate::driver_statistics`] translates.
    Driver {
        /// The interface's name.
        interface: String,
        /// The driver's name.
        driver: String,
    },
    /// A queueing discipline at an interface.
    Qdisc {
        /// The interface's name.
        interface: String,
        /// What it is: `fq_codel`, `tbf`.
        kind: String,
        /// Where it sits, as tc(8) prints it: `root`, `ingress`, `1:10`.
        parent: String,
        /// Its number, as tc(8) prints it: `1:`.
        handle: String,
    },
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Namespace => write!(f, "host"),
            Self::ControlGroup => write!(f, "control group"),
            Self::MachineCpu { cpu } => write!(f, "machine, CPU {cpu}"),
            Self::Interface { interface } => write!(f, "{interface}"),
            Self::InterfaceQueues { interface } => write!(f, "{interface}, queues"),
            Self::Driver { interface, driver } => write!(f, "{interface}, driver {driver}"),
            Self::Qdisc { interface, kind, parent, .. } => write!(f, "{interface}, qdisc {kind} at {parent}"),
        }
    }
}

/// Interfaces and queueing disciplines that are read: a user can have tens of thousands in a network namespace of his own.
const INTERFACES_MOST: usize = 1_024;
const QDISCS_MOST: usize = 16_384;
/// Counters of drivers that are read, of all interfaces together. Each takes some 300 bytes, and a veth can have tens of thousands: some for each
/// of its queues.
const DRIVER_COUNTERS_MOST: usize = 65_536;

/// How a number moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Counts up in 64 bits, or in as many as the kernel's `long` has; drivers' may be narrower and not say so.
    Counter,
    /// Counts up in 32 bits and wraps.
    Counter32,
    /// Goes up and down: a length, a number of connections, a setting.
    Level,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Value {
    kind: Kind,
    /// Levels may be negative (`Tcp.MaxConn` is −1): as a bit pattern.
    bits: u64,
}

/// Counters that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Unread {
    /// Which: `ethtool -S eth0`, `/proc/net/snmp6`.
    pub what: String,
    /// Why, in the kernel's words.
    pub reason: String,
}

/// All counters at one moment (they are read one after the other, within some milliseconds).
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// When it ended.
    pub ended_at: Nanos,
    /// What could not be read.
    pub unread: Vec<Unread>,
    /// Interfaces with an XDP program in generic mode: what it drops no counter has.
    pub generic_xdp: Vec<String>,
    /// Interfaces whose receive ring is counted at the other end where it is full: veth with GRO.
    pub unseen_rings: Vec<String>,
    /// Whether there are more interfaces, queueing disciplines or counters of drivers than are read: 1,024, 16,384 and 65,536.
    pub is_cut: bool,
    values: BTreeMap<(Scope, String), Value>,
}

impl Snapshot {
    /// Reads everything in the calling thread's network namespace.
    pub fn take() -> Self {
        let mut snapshot = Self::default();
        snapshot.read_stack();
        snapshot.read_groups();
        snapshot.read_softnet();
        snapshot.read_neighbours();
        match interfaces::read(INTERFACES_MOST, QDISCS_MOST) {
            Ok(found) => snapshot.add_interfaces(found),
            Err(error) => snapshot.unread("rtnetlink", error),
        }
        snapshot.ended_at = monotonic();
        snapshot
    }

    /// The counter `name` of `scope`; `None` where it is not there.
    pub fn value(&self, scope: &Scope, name: &str) -> Option<u64> {
        self.values.get(&(scope.clone(), name.to_owned())).map(|value| value.bits)
    }

    /// Every counter there is, by scope and name.
    pub fn values(&self) -> impl Iterator<Item = (&Scope, &str, u64)> {
        self.values.iter().map(|((scope, name), value)| (scope, name.as_str(), value.bits))
    }

    /// What changed since `earlier`, a snapshot of the same namespace; nothing else.
    pub fn since(&self, earlier: &Self) -> Vec<Change> {
        let mut changes = change::between(&earlier.values, &self.values);
        // What is not among the first ones before may have been there.
        changes.retain(|change| !earlier.is_cut || change.doubt != Some(Doubt::Appeared));
        changes
    }

    fn read_stack(&mut self) {
        for (file, parse) in proc_net::FILES {
            // The thread's own namespace: /proc/net is that of the process's first thread.
            match std::fs::read_to_string(format!("/proc/thread-self/net/{file}")) {
                Ok(text) => {
                    for (name, bits) in parse(&text) {
                        let kind = if proc_net::is_level(&name) { Kind::Level } else { Kind::Counter };
                        self.add(&Scope::Namespace, name, Value { kind, bits });
                    }
                }
                Err(error) => self.unread(&format!("/proc/net/{file}"), error),
            }
        }
    }

    fn read_groups(&mut self) {
        for (name, bits) in conntrack::read() {
            self.add(&Scope::Namespace, name, Value { kind: Kind::Counter, bits });
        }
        let limits = GroupLimits::read();
        for (name, bits) in [("cpu.throttled_ns", limits.throttled_ns), ("memory.limit_hits", limits.memory_limit_hits)]
        {
            self.add(&Scope::ControlGroup, name.into(), Value { kind: Kind::Counter, bits });
        }
    }

    fn read_softnet(&mut self) {
        match softnet() {
            Ok(rows) => {
                for row in rows {
                    let scope = Scope::MachineCpu { cpu: row.cpu };
                    let fields =
                        [("processed", row.processed), ("dropped", row.dropped), ("time_squeezed", row.time_squeezed)];
                    for (name, value) in fields {
                        self.add(&scope, name.into(), Value { kind: Kind::Counter32, bits: value.into() });
                    }
                }
            }
            Err(error) => self.unread("/proc/net/softnet_stat", error),
        }
    }

    fn read_neighbours(&mut self) {
        match neighbours::read() {
            Ok(rows) => {
                for (cpu, name, bits) in rows {
                    self.add(&Scope::MachineCpu { cpu }, name, Value { kind: Kind::Counter, bits });
                }
            }
            Err(error) => self.unread("/proc/net/stat/arp_cache", error),
        }
    }

    fn add_interfaces(&mut self, found: interfaces::Found) {
        self.generic_xdp = found.generic_xdp;
        self.is_cut = found.is_cut;
        if found.is_cut {
            let reason = format!("there are more than {INTERFACES_MOST} and {QDISCS_MOST}");
            self.unread("further interfaces or queueing disciplines", reason);
        }
        let mut left = Some(DRIVER_COUNTERS_MOST);
        for (interface, stats) in found.links {
            let scope = Scope::Interface { interface: interface.clone() };
            for (name, bits) in stats {
                self.add(&scope, name.into(), Value { kind: Kind::Counter, bits });
            }
            left = self.read_driver(interface, left);
        }
        for (scope, stats) in found.qdiscs {
            for (name, kind, bits) in stats {
                self.add(&scope, name.into(), Value { kind, bits });
            }
        }
        match qstats::read() {
            Ok(rows) => {
                for (index, stats) in rows {
                    let Some(interface) = found.names.get(&index) else { continue };
                    let scope = Scope::InterfaceQueues { interface: interface.clone() };
                    for (name, bits) in stats {
                        self.add(&scope, name.into(), Value { kind: Kind::Counter, bits });
                    }
                }
            }
            Err(error) => self.unread("netdev qstats (Linux 6.10)", error),
        }
    }

    /// Reads at most `left` counters, none where that is `None`. Gives how many of other drivers may follow; `None` where there were more.
    fn read_driver(&mut self, interface: String, left: Option<usize>) -> Option<usize> {
        let read = |interface: &str| {
            let ethtool = Ethtool::open(interface)?;
            let statistics = if left.is_some() { ethtool.statistics()? } else { Vec::new() };
            let driver = ethtool.driver().map(|driver| driver.name).unwrap_or_default();
            // Only with GRO do frames go by a ring, and who finds it full counts it: the peer.
            let unseen = driver == "veth"
                && ethtool.features()?.iter().any(|feature| feature.name == "rx-gro" && feature.active);
            Ok::<_, EthtoolError>((driver, statistics, unseen))
        };
        match read(&interface) {
            Ok((driver, statistics, unseen)) => {
                if unseen {
                    self.unseen_rings.push(interface.clone());
                }
                return self.add_driver(&Scope::Driver { interface, driver }, statistics, left?);
            }
            // Loopback and the like have no driver.
            Err(EthtoolError::Unsupported { .. }) => {}
            Err(error) => self.unread(&format!("ethtool -S {interface}"), error),
        }
        left
    }

    /// Takes the first `left` of a driver's counters. Gives how many may follow; `None`, and says so, where there were more.
    fn add_driver(&mut self, scope: &Scope, statistics: Vec<(String, u64)>, left: usize) -> Option<usize> {
        let rest = left.checked_sub(statistics.len());
        for (name, bits) in statistics.into_iter().take(left) {
            self.add(scope, name, Value { kind: Kind::Counter, bits });
        }
        if rest.is_none() {
            self.is_cut = true;
            let reason = format!("there are more than {DRIVER_COUNTERS_MOST}");
            self.unread("further counters of drivers (ethtool -S)", reason);
        }
        rest
    }

    /// Names that a driver uses twice (it happens) are summed.
    fn add(&mut self, scope: &Scope, name: String, value: Value) {
        self.values
            .entry((scope.clone(), name))
            .and_modify(|known| known.bits = known.bits.wrapping_add(value.bits))
            .or_insert(value);
    }

    fn unread(&mut self, what: &str, reason: impl fmt::Display) {
        self.unread.push(Unread { what: what.into(), reason: reason.to_string() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(interface: &str) -> Scope {
        Scope::Driver { interface: interface.into(), driver: "veth".into() }
    }

    fn statistics(count: u64) -> Vec<(String, u64)> {
        (0..count).map(|queue| (format!("rx_queue_{queue}_drops"), 7)).collect()
    }

    #[test]
    fn no_more_counters_of_drivers_are_kept_than_asked_for() {
        let mut snapshot = Snapshot::default();
        let left = snapshot.add_driver(&scope("eth0"), statistics(3), 5);
        assert_eq!(left, Some(2));
        let left = snapshot.add_driver(&scope("eth1"), statistics(2), 2);
        assert_eq!(left, Some(0));
        assert!(!snapshot.is_cut && snapshot.unread.is_empty(), "{:?}", snapshot.unread);
        assert_eq!(snapshot.add_driver(&scope("eth2"), statistics(1), 0), None);
        assert!(snapshot.is_cut);
        assert_eq!(snapshot.values().count(), 5);
        assert_eq!(snapshot.unread[0].what, "further counters of drivers (ethtool -S)");
    }

    #[test]
    fn a_counter_that_was_not_read_before_is_no_change() {
        let (mut before, mut after) = (Snapshot::default(), Snapshot::default());
        before.add_driver(&scope("eth0"), statistics(4), 3);
        after.add_driver(&scope("eth0"), statistics(4), 4);
        assert_eq!(before.values().count(), 3);
        assert_eq!(after.since(&before), []);
    }
}
