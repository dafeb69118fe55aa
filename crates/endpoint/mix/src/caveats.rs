//! Codes of the caveats of background traffic: each is raised in this crate, and docs/reference/caveats.md lists them.

use longhaul_result::caveat_codes;

caveat_codes! {
    /// Frames were sent through a packet socket, not as a driver sends them.
    PACKET_SOCKET_USED = "packet_socket_used";
    /// The interface did not take some frames.
    FRAMES_REFUSED = "frames_refused";
    /// The sender was slower than requested.
    RATE_NOT_ACHIEVED = "rate_not_achieved";
}
