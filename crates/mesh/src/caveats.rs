//! Codes of the caveats of `longhaul mesh`: each is raised in this crate, and docs/reference/caveats.md lists them.

use longhaul_result::caveat_codes;

caveat_codes! {
    /// Rows of the store cannot be read and are left out.
    ROWS_LEFT_OUT = "rows_left_out";
}
