//! Codes of the caveats of watched connections: each is raised in this crate, and docs/reference/caveats.md lists them.

use longhaul_result::caveat_codes;

caveat_codes! {
    /// Connections that live shortly cannot be matched to a process.
    SHORT_LIVED_UNOWNED = "short_lived_unowned";
    /// The kernel does not report the ends of connections, so their last sample stands for the end.
    ENDS_UNSEEN = "ends_unseen";
    /// Too many connections ended at once; some show their last sample and not their end.
    ENDS_MISSED = "ends_missed";
    /// Too many connections opened at once; some have no owner.
    OWNERS_MISSED = "owners_missed";
    /// Some samples could not be taken.
    SAMPLES_MISSING = "samples_missing";
    /// There were more connections than can be followed.
    CONNECTIONS_NOT_FOLLOWED = "connections_not_followed";
    /// Samples were taken later than asked.
    SAMPLES_LATE = "samples_late";
    /// Some datagrams of the host were not counted, perhaps of a followed socket.
    DATAGRAMS_UNCOUNTED = "datagrams_uncounted";
    /// No connection or socket matched.
    NOTHING_SEEN = "nothing_seen";
    /// The processes of other users cannot be seen.
    PROCESSES_HIDDEN = "processes_hidden";
}
