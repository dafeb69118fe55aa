//! Codes of the caveats of watched connections: each is raised in this crate, and docs/reference/caveats.md lists them.

use longhaul_result::caveat_codes;

caveat_codes! {
    /// Short-lived connections cannot be matched to a process.
    SHORT_LIVED_UNOWNED = "short_lived_unowned";
    /// The kernel does not report when connections end; their last sample is used instead.
    ENDS_UNSEEN = "ends_unseen";
    /// Too many connections ended at once; for some, the last sample is used instead of the end.
    ENDS_MISSED = "ends_missed";
    /// Too many connections opened at once; the owner of some is unknown.
    OWNERS_MISSED = "owners_missed";
    /// Some samples could not be taken.
    SAMPLES_MISSING = "samples_missing";
    /// There were more connections than longhaul can follow.
    CONNECTIONS_NOT_FOLLOWED = "connections_not_followed";
    /// Samples were taken later than requested.
    SAMPLES_LATE = "samples_late";
    /// Some datagrams of this host were not counted; they may belong to a watched socket.
    DATAGRAMS_UNCOUNTED = "datagrams_uncounted";
    /// No connection or socket matched.
    NOTHING_SEEN = "nothing_seen";
    /// The processes of other users cannot be seen.
    PROCESSES_HIDDEN = "processes_hidden";
    /// Processes have more open files than one look reads; some connections may have no process.
    FILES_UNREAD = "files_unread";
    /// There are more control groups below the chosen one than one look reads; connections of the others are not shown.
    GROUPS_UNREAD = "groups_unread";
}
