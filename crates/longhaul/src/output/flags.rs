//! The flags of what library crates name by field. They write a field between backticks, as JSON names it.

/// Each field and its flag, in all commands.
const FLAGS: [(&str, &str); 39] = [
    ("affinity", "-A"),
    ("block_bytes", "-l"),
    ("burst_packets", "--burst"),
    ("bytes", "-n"),
    ("bytes_cap", "--bytes-cap"),
    ("folder_cap", "--folder-cap"),
    ("captures", "--captures"),
    ("collect", "--collect"),
    ("congestion", "-C"),
    ("cpus", "--cpu"),
    ("dont_fragment", "--df"),
    ("duration_ns", "-t"),
    ("host_settings", "longhaul serve --host-settings allow"),
    ("interval_ns", "-i"),
    ("key", "--key FILE"),
    ("memory", "--memory"),
    ("most_hops", "--max-hops"),
    ("mss_bytes", "-M"),
    ("no_auth", "--no-auth"),
    ("omit_ns", "--omit"),
    ("pace_bps", "--pace"),
    ("packets", "-k"),
    ("payload_bytes", "-l"),
    ("probes", "-c"),
    ("rate_bps", "-b"),
    ("rate_goal_bps", "--rate-goal"),
    ("read_rate_bps", "--read-rate"),
    ("realtime", "--realtime"),
    ("sample_ns", "--sample"),
    ("sockbuf_bytes", "-w"),
    ("softirq", "--softirq"),
    ("spacing_ns", "--spacing"),
    ("spin", "--spin"),
    ("streams", "-P"),
    ("timeout_ns", "--timeout"),
    ("timestamps", "--timestamps"),
    ("window_bytes", "-w"),
    ("wire", "--wire"),
    ("write_rate_bps", "-b"),
];

/// `text` with flags in place of fields.
pub(crate) fn with_flags(text: &str) -> String {
    FLAGS.iter().fold(text.to_owned(), |text, (field, flag)| text.replace(&format!("`{field}`"), flag))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_fields_become_flags() {
        assert_eq!(with_flags("`streams` 0: 1 to 64 streams"), "-P 0: 1 to 64 streams");
        assert_eq!(with_flags("use `bytes` or `duration_ns`, see `longhaul tcp`"), "use -n or -t, see `longhaul tcp`");
    }
}
