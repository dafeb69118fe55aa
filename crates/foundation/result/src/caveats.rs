//! Codes of caveats that a crate raises and another one obeys; docs/reference/caveats.md lists them.

use crate::caveat_codes;

caveat_codes! {
    /// The server was lost during the test: the result has what was known until then.
    CUT_SHORT = "cut_short";
    /// The sender stopped early.
    SENDER_STOPPED = "sender_stopped";
}
