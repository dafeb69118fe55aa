//! Codes of the caveats of a UDP test: each is raised in this crate, and docs/reference/caveats.md lists them.

use longhaul_result::caveat_codes;

caveat_codes! {
    /// Sender and receiver count differently.
    ACCOUNTS_DIFFER = "accounts_differ";
    /// Packets shared their time stamps, so jitter is unknown.
    JITTER_UNKNOWN = "jitter_unknown";
    /// Some drops at the ends could not be seen.
    DROPS_UNSEEN = "drops_unseen";
    /// Counters saw more drops than packets were lost: other traffic was dropped too.
    COUNTERS_EXCEED_LOSSES = "counters_exceed_losses";
    /// Packets with the test's cookie came from another address, or had numbers that the sender never sent.
    FOREIGN_PACKETS = "foreign_packets";
    /// Packets travelled in super-packets, so one drop may stand for a whole super-packet.
    BATCHES_HIDE_THE_WIRE = "batches_hide_the_wire";
    /// Packets arrived in larger batches than they left: GRO, interrupts or the reader joined them.
    ARRIVALS_IN_BATCHES = "arrivals_in_batches";
    /// Packets were sent in batches, so their spacing on the wire is not the requested one.
    OFFLOAD_HIDES_SPACING = "offload_hides_spacing";
}
