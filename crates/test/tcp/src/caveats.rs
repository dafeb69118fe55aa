//! Codes of the caveats of a TCP test: each is raised in this crate, and docs/reference/caveats.md lists them.

use longhaul_result::caveat_codes;

caveat_codes! {
    /// A stream broke before the end of the test.
    FLOW_FAILED = "flow_failed";
    /// Some drop events could not be read.
    DROPS_MISSED = "drops_missed";
    /// The congestion window was larger than any receiver can grant.
    IMPOSSIBLE_WINDOW = "impossible_window";
}
