//! Codes of the caveats of the filter: each is raised in this crate, and docs/reference/caveats.md lists them.

use longhaul_result::caveat_codes;

caveat_codes! {
    /// The interface belongs to a bond, bridge or team, which accepts frames for other addresses.
    PART_OF = "part_of";
    /// The interface is a bridge, which accepts frames for the MAC addresses of its ports, too.
    BRIDGE = "bridge";
    /// Other interfaces share this one, so the filter judges their frames by MAC address alone.
    SHARED = "shared";
    /// The host forwards packets, so packets for others may have to pass.
    FORWARDING = "forwarding";
    /// A program reads frames for others on this interface.
    PROMISCUOUS = "promiscuous";
    /// Addresses or routes changed after the filter read them.
    ADDRESSES_OLD = "addresses_old";
    /// The host has more local addresses or networks of a family than the filter holds.
    TOO_MANY_ADDRESSES = "too_many_addresses";
    /// Nobody confirmed the filter in time, so it only counts.
    TIME_IS_OVER = "time_is_over";
    /// Some samples of rejected frames were dropped before they were read.
    SAMPLES_LOST = "samples_lost";
}
