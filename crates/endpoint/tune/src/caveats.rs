//! Codes of the caveats of tuning: each is raised in this crate, and docs/reference/caveats.md lists them.

use longhaul_result::caveat_codes;

caveat_codes! {
    /// The largest buffer that a socket can have is smaller than the target needs.
    BUFFER_CAPPED = "buffer_capped";
    /// The memory limit of all TCP connections is below that of one connection.
    TCP_MEMORY_SHORT = "tcp_memory_short";
    /// A running service changes such settings too.
    OTHER_TUNER = "other_tuner";
    /// A file that is read later overrides a persistent setting.
    DROP_IN_OVERRULED = "drop_in_overruled";
}
