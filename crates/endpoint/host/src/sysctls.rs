//! The kernel parameters that matter to throughput.
//!
//! Source: `Documentation/admin-guide/sysctl/net.rst`, `Documentation/networking/ip-sysctl.rst`.

use std::collections::BTreeMap;

use longhaul_kernel::sysctl::{self, SysctlError};
use serde::{Deserialize, Serialize};

use super::Reasons;

/// The parameters that are read, as in sysctl(8).
const KEYS: [&str; 47] = [
    "kernel.numa_balancing",
    "kernel.sched_rt_runtime_us",
    "net.core.busy_poll",
    "net.core.busy_read",
    "net.core.default_qdisc",
    "net.core.dev_weight",
    "net.core.gro_normal_batch",
    "net.core.netdev_budget",
    "net.core.netdev_budget_usecs",
    "net.core.netdev_max_backlog",
    "net.core.optmem_max",
    "net.core.rmem_default",
    "net.core.rmem_max",
    "net.core.rps_sock_flow_entries",
    "net.core.wmem_default",
    "net.core.wmem_max",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_adv_win_scale",
    "net.ipv4.tcp_allowed_congestion_control",
    "net.ipv4.tcp_app_win",
    "net.ipv4.tcp_available_congestion_control",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_dsack",
    "net.ipv4.tcp_ecn",
    "net.ipv4.tcp_frto",
    "net.ipv4.tcp_limit_output_bytes",
    "net.ipv4.tcp_mem",
    "net.ipv4.tcp_min_tso_segs",
    "net.ipv4.tcp_moderate_rcvbuf",
    "net.ipv4.tcp_mtu_probing",
    "net.ipv4.tcp_no_metrics_save",
    "net.ipv4.tcp_notsent_lowat",
    "net.ipv4.tcp_pacing_ca_ratio",
    "net.ipv4.tcp_pacing_ss_ratio",
    "net.ipv4.tcp_recovery",
    "net.ipv4.tcp_reordering",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_sack",
    "net.ipv4.tcp_shrink_window",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_timestamps",
    "net.ipv4.tcp_tso_win_divisor",
    "net.ipv4.tcp_window_scaling",
    "net.ipv4.tcp_wmem",
    "net.ipv4.udp_mem",
    "net.ipv4.udp_rmem_min",
    "net.ipv4.udp_wmem_min",
];

/// A parameter's value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum SysctlValue {
    /// One whole number.
    Number(i64),
    /// Several: `tcp_rmem` has minimum, default, maximum.
    Numbers(Vec<i64>),
    /// Anything else.
    Text(String),
}

impl std::fmt::Display for SysctlValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Numbers(numbers) => f.write_str(&numbers.iter().map(i64::to_string).collect::<Vec<_>>().join(" ")),
            Self::Text(text) => f.write_str(text),
        }
    }
}

impl SysctlValue {
    fn parse(text: &str) -> Self {
        let numbers: Result<Vec<i64>, _> = text.split_ascii_whitespace().map(str::parse).collect();
        match numbers.as_deref() {
            Ok([number]) => Self::Number(*number),
            Ok([_, ..]) => Self::Numbers(numbers.unwrap_or_default()),
            _ => Self::Text(text.to_owned()),
        }
    }

    /// The last of its numbers: the number itself, or the maximum of minimum, default, maximum.
    pub fn maximum(&self) -> Option<i64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Numbers(numbers) => numbers.last().copied(),
            Self::Text(_) => None,
        }
    }
}

/// Reads them in the calling thread's network namespace. Leaves out what this kernel does not have, and notes it.
pub(super) fn read(reasons: &mut Reasons) -> BTreeMap<String, SysctlValue> {
    let mut values = BTreeMap::new();
    for key in KEYS {
        match sysctl::read(key) {
            Ok(text) => {
                values.insert(key.to_owned(), SysctlValue::parse(&text));
            }
            Err(SysctlError::Missing { .. }) => {
                reasons.note(key, "this kernel or this network namespace does not have it");
            }
            Err(error) => reasons.note(key, error),
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn values_are_numbers_where_they_can_be() {
        assert_eq!(SysctlValue::parse("212992"), SysctlValue::Number(212_992));
        let triple = SysctlValue::parse("4096\t131072\t6291456");
        assert_eq!(triple, SysctlValue::Numbers(vec![4096, 131_072, 6_291_456]));
        assert_eq!(triple.maximum(), Some(6_291_456));
        assert_eq!(SysctlValue::parse("fq_codel"), SysctlValue::Text("fq_codel".into()));
        assert_eq!(SysctlValue::parse(""), SysctlValue::Text(String::new()));
    }

    #[test]
    fn keys_are_sorted_and_unique() {
        assert!(KEYS.is_sorted_by(|a, b| a < b));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[0-9a-z \\t\\-]{0,40}") {
            let _ = SysctlValue::parse(&text).maximum();
        }
    }
}
