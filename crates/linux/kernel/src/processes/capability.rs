//! What the process may do, known before it tries.
//!
//! Source: capabilities(7), proc_pid_status(5).

use std::fs;

/// A right that the kernel gives apart from being root. Numbers from `<linux/capability.h>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capability {
    /// Replace and remove what is another user's, also in a folder where only owners may (sticky).
    Fowner = 3,
    /// Change links, addresses, routes, driver features.
    NetAdmin = 12,
    /// Open packet sockets.
    NetRaw = 13,
    /// Mount, enter namespaces.
    SysAdmin = 21,
}

/// Whether the calling thread holds `capability` in its own user namespace (its effective set).
///
/// In a user namespace that the thread made itself it holds all of them, over what that namespace owns only.
pub fn has(capability: Capability) -> bool {
    fs::read_to_string("/proc/thread-self/status")
        .ok()
        .and_then(|status| effective_set(&status))
        .is_some_and(|set| set & (1 << capability as u32) != 0)
}

/// Whether the thread can make namespaces, links and packet sockets: `CAP_SYS_ADMIN`, `CAP_NET_ADMIN` and `CAP_NET_RAW`.
pub fn is_root_in_namespace() -> bool {
    [Capability::SysAdmin, Capability::NetAdmin, Capability::NetRaw].into_iter().all(has)
}

/// The effective set out of `/proc/PID/status`; `None` where the text has none.
fn effective_set(status: &str) -> Option<u64> {
    let hex = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(hex.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_effective_set() {
        let status = "CapPrm:\t000001ffffffffff\nCapEff:\t0000000000003000\nCapBnd:\t000001ffffffffff\n";
        let set = effective_set(status).unwrap();
        assert_ne!(set & (1 << Capability::NetAdmin as u32), 0);
        assert_ne!(set & (1 << Capability::NetRaw as u32), 0);
        assert_eq!(set & (1 << Capability::SysAdmin as u32), 0);
        assert_eq!(effective_set("Name:\tx\n"), None);
    }
}
