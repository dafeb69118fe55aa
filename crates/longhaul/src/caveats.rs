//! Codes of the caveats of the commands: each is raised in this crate, and docs/reference/caveats.md lists them.

use longhaul_result::caveat_codes;

caveat_codes! {
    /// A capture was not closed, or ends within a packet or in zeros; the complete packets were read.
    CAPTURE_CUT = "capture_cut";
    /// A capture dropped packets while it was recorded.
    CAPTURE_DROPPED = "capture_dropped";
    /// Packets are not in order of time.
    CAPTURE_NOT_SORTED = "capture_not_sorted";
    /// Packets of an unknown link type were counted but not decoded.
    UNKNOWN_LINK_TYPE = "unknown_link_type";
    /// A capture went to several logging hosts, and not all of its parts were read.
    PARTS_MISSING = "parts_missing";
    /// There were more flows than memory holds; those that were silent longest were added up.
    FLOWS_EVICTED = "flows_evicted";
    /// The numbers of longhaul's probes skip more than a capture of this size can explain; the probes after that are not counted.
    PROBES_LEFT_OUT = "probes_left_out";
    /// Time stamps go backwards.
    TIME_STEPS_BACK = "time_steps_back";
    /// The capture holds super-packets: numbers of packets and intervals are not those of the wire.
    SUPER_PACKETS = "super_packets";
    /// The capture clipped TCP's options: the cause of some retransmissions is unknown.
    OPTIONS_CLIPPED = "options_clipped";
    /// No round trip of the whole path was captured: only timing distinguishes retransmitted, reordered and duplicate packets.
    NO_PATH_RTT = "no_path_rtt";
    /// No packet matched the filter of a capture.
    NOTHING_MATCHED = "nothing_matched";
    /// A logging host could no longer be reached.
    LOGGER_LOST = "logger_lost";
    /// Packets were lost between this host and a logging host, or not written there.
    LOGGER_DROPPED = "logger_dropped";
    /// The disk was too slow or full: not all captured data was written.
    DISK = "disk";
    /// The counts of packets do not add up.
    UNACCOUNTED = "unaccounted";
    /// An interface was removed during the capture.
    INTERFACE_GONE = "interface_gone";
    /// The NIC gave no time stamps; the kernel's are used.
    NO_NIC_CLOCK = "no_nic_clock";
    /// Sockets of some network namespaces could not be counted.
    NAMESPACES_UNSEEN = "namespaces_unseen";
    /// A network namespace has more interfaces, queueing disciplines or counters of drivers than are read.
    INTERFACES_UNREAD = "interfaces_unread";
    /// Sockets keep an unloaded congestion control until they close.
    STILL_IN_USE = "still_in_use";
    /// An unloaded congestion control is still the default of a network namespace.
    STILL_DEFAULT = "still_default";
    /// The clocks of two captures could not be related.
    OFFSET_UNKNOWN = "offset_unknown";
    /// Some datagrams of a flow look the same and cannot be distinguished.
    DATAGRAMS_ALIKE = "datagrams_alike";
    /// Too many packets were between the two points at once; some lost packets may be called unseen.
    TOO_MANY_IN_FLIGHT = "too_many_in_flight";
    /// There are more flows than a result for captures of this size lists, or than `cc table --measured` takes, or computes windows for.
    FLOWS_LEFT_OUT = "flows_left_out";
    /// Packets arrive before they were sent: the clocks of the captures differ.
    CLOCKS_DIFFER = "clocks_differ";
    /// A capture stopped sending without an end message.
    CAPTURE_VANISHED = "capture_vanished";
    /// Header snippets were lost between their host and this logging host.
    LINK_LOST = "link_lost";
    /// The captures had more gaps and marks than one result lists.
    MOMENTS_LEFT_OUT = "moments_left_out";
    /// There were more interfaces and files of captures, or more drops, than one result lists.
    ENTRIES_LEFT_OUT = "entries_left_out";
    /// The log link ignored datagrams from unknown senders.
    FOREIGN_DATAGRAMS = "foreign_datagrams";
    /// A signal ended the test early.
    INTERRUPTED = "interrupted";
    /// Some sockets of the two hosts were not watched from their beginning: datagrams that were in flight then may count as lost.
    WATCHED_IN_PART = "watched_in_part";
    /// The samples could not be written.
    SAMPLES_NOT_SAVED = "samples_not_saved";
    /// The disk did not take the whole log of probes.
    LOG_INCOMPLETE = "log_incomplete";
}
