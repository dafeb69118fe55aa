//! The table in which netfilter remembers connections: where it is full, new ones are dropped.
//!
//! Source: `Documentation/networking/nf_conntrack-sysctl.rst`.

use longhaul_kernel::sysctl;
use serde::{Deserialize, Serialize};

/// The table of connections of this network namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Conntrack {
    /// Connections in it (`nf_conntrack_count`).
    pub entries: u64,
    /// Connections that it may hold (`nf_conntrack_max`).
    pub most_entries: u64,
}

impl Conntrack {
    /// Reads it; `None` in a kernel without connection tracking.
    pub(super) fn read() -> Option<Self> {
        let number = |name: &str| sysctl::read(&format!("net.netfilter.nf_conntrack_{name}")).ok()?.trim().parse().ok();
        Some(Self { entries: number("count")?, most_entries: number("max")? })
    }
}
