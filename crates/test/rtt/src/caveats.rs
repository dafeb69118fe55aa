//! Codes of the caveats of a measurement of round trips: each is raised in this crate, and docs/reference/caveats.md lists them.

use longhaul_result::caveat_codes;

caveat_codes! {
    /// Some probes have time stamps of a coarser source than others (the program instead of the kernel, or the kernel instead of the NIC): their round trips look longer.
    STAMPS_MISSING = "stamps_missing";
    /// Packets that cannot be answers to these probes were ignored.
    ANSWERS_IGNORED = "answers_ignored";
    /// Answers came after the time-out, and their probes count as lost.
    ANSWERS_LATE = "answers_late";
    /// This host's socket dropped packets, because it was full or they were damaged: answers among them count as lost.
    ANSWERS_DROPPED = "answers_dropped";
    /// The responder left some probes without an answer, to keep to its rate.
    ANSWERS_LIMITED = "answers_limited";
    /// The responder's socket dropped packets, because it was full or they were damaged: probes among them count as lost.
    PROBES_DROPPED = "probes_dropped";
    /// At times the probes said nothing about the path: a pause, a suspended host, a clock that was set, a server that ended.
    MEASUREMENT_HAS_GAPS = "measurement_has_gaps";
    /// The route to the host or back changed during the measurement.
    PATH_CHANGED = "path_changed";
    /// Probes left in bursts or late, because this host could not keep the interval.
    INTERVAL_NOT_KEPT = "interval_not_kept";
}
