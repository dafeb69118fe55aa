//! Codes of the caveats of the drop events of the kernel: raised by those who attach to them, and docs/reference/caveats.md lists them.

use longhaul_result::caveat_codes;

caveat_codes! {
    /// The kernel gave no drop events: counters say where packets were lost, or nothing does.
    NO_DROP_EVENTS = "no_drop_events";
}
