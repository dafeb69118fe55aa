//! Codes of the caveats of a measurement of round trips: each is raised in this crate, and docs/reference/caveats.md lists them.

use longhaul_result::caveat_codes;

caveat_codes! {
    /// Some probes have the program's time stamps where others have the kernel's, or the kernel's where others have the NIC's: their round trips are longer.
    STAMPS_MISSING = "stamps_missing";
    /// Answers that cannot be answers to what was sent were ignored.
    ANSWERS_IGNORED = "answers_ignored";
    /// Answers came after the time-out, and their probes count as lost.
    ANSWERS_LATE = "answers_late";
    /// This host's socket dropped packets, as it was full or they were damaged: answers among them count as lost.
    ANSWERS_DROPPED = "answers_dropped";
    /// The responder did not answer every probe that reached it, to keep to its rate.
    ANSWERS_LIMITED = "answers_limited";
    /// The responder's socket dropped packets, as it was full or they were damaged: probes among them count as lost.
    PROBES_DROPPED = "probes_dropped";
    /// There were times in which probes told nothing of the path: a pause, a host that was suspended, a clock that was set, a server that ended.
    MEASUREMENT_HAS_GAPS = "measurement_has_gaps";
    /// The way to the host or back changed while probes were sent.
    PATH_CHANGED = "path_changed";
    /// Probes were sent in bursts or late, as this host could not keep the interval.
    INTERVAL_NOT_KEPT = "interval_not_kept";
}
