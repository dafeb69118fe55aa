//! Codes of the caveats of the control protocol: each is raised in this crate, and docs/reference/caveats.md lists them.

use longhaul_result::caveat_codes;

caveat_codes! {
    /// The server allows a lower rate than requested.
    RATE_CAPPED = "rate_capped";
    /// The file of losses could not be written.
    LOSSES_NOT_SAVED = "losses_not_saved";
    /// The file of packets could not be written, or not for all packets.
    PACKETS_NOT_SAVED = "packets_not_saved";
    /// There are too many losses to list in a result without a folder.
    LOSSES_NOT_LISTED = "losses_not_listed";
    /// The server has more caveats than are shown; one of each kind is shown.
    CAVEATS_LEFT_OUT = "caveats_left_out";
}
