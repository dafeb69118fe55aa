//! The settings that a plan is made of.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

/// A host's settings at one moment, as far as they could be read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HostState {
    /// Kernel parameters by name, numbers being separated by one space.
    pub sysctls: BTreeMap<String, String>,
    /// Those of them that nobody may set here: this is a network namespace, and they are the machine's.
    pub read_only: BTreeSet<String>,
    /// The interfaces to tune.
    pub links: Vec<LinkState>,
    /// The route to the other end; `None` where that is not known, or there is none.
    pub route: Option<RouteState>,
    /// Bytes of memory of the machine; `None` where that could not be read.
    pub memory_bytes: Option<u64>,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Congestion controls that are not loaded and that the kernel loads when they are selected.
    pub loadable_controls: BTreeSet<String>,
    /// The kernel has the queueing discipline `fq`, or may load it.
    pub has_fq: bool,
    /// What could not be read, and why.
    pub unread: Vec<Unread>,
}

/// An interface.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LinkState {
    /// Its name.
    pub name: String,
    /// Features that can be changed, and whether they are on.
    pub features: BTreeMap<String, bool>,
    /// The receive ring: packets, and the most that it can hold.
    pub receive_ring: Option<(u32, u32)>,
    /// The transmit ring, the same.
    pub transmit_ring: Option<(u32, u32)>,
    /// Packets that a queueing discipline without a limit of its own holds.
    pub queue_packets: Option<u32>,
    /// The kind of the queueing discipline at its root, and its number: 0 where the kernel attached it.
    pub root_qdisc: Option<(String, u16)>,
    /// Somebody put queueing disciplines below that one.
    pub qdisc_has_children: bool,
    /// How many transmit queues it has.
    pub transmit_queues: u32,
}

/// The route to the other end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteState {
    /// The network that it leads to: `0.0.0.0/0` is everywhere.
    pub network: String,
    /// The first congestion window that it gives, or `default`.
    pub first_window: String,
    /// The receive window that it allows, bytes, or `default`: any.
    pub receive_window: String,
    /// The congestion control that it gives, or `default`.
    pub congestion_control: String,
    /// Why a change would not last until the next start of the machine, or cannot be made; `None` where its owner keeps it.
    pub not_kept: Option<String>,
}

/// Something that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Unread {
    /// A kernel parameter, or an interface and what was asked of it.
    pub what: String,
    /// Why, in the kernel's words.
    pub reason: String,
}

impl HostState {
    /// The numbers of the kernel parameter `key`; `None` where it was not read or is no list of them.
    pub fn numbers(&self, key: &str) -> Option<Vec<u64>> {
        self.sysctls.get(key)?.split(' ').map(|word| word.parse().ok()).collect()
    }

    /// The one number of `key`.
    pub fn number(&self, key: &str) -> Option<u64> {
        match self.numbers(key)?[..] {
            [number] => Some(number),
            _ => None,
        }
    }
}
