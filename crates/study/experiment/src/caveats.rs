//! Codes of the caveats of experiments: each is raised in this crate, and docs/reference/caveats.md lists them.

use longhaul_result::caveat_codes;

caveat_codes! {
    /// A lab could not be set up or ended badly.
    LAB_FAILED = "lab_failed";
    /// The report of the server has no result.
    NO_REPORT = "no_report";
    /// A hypervisor gave a tenth of the machine's time to others, or other programs used a twentieth of it.
    CPU_TAKEN = "cpu_taken";
    /// The captures at the ends of a test could not be made or read.
    NOT_CAPTURED = "not_captured";
    /// A program of an experiment did not run, or its output cannot be read.
    PROGRAM_FAILED = "program_failed";
    /// A run of background traffic could not be measured.
    NOT_MEASURED = "not_measured";
    /// Points that need netem were left out: this machine cannot use it.
    NETEM_MISSING = "netem_missing";
    /// Goodput exceeds the path's rate: data that was queued before the measured time was counted.
    MORE_THAN_CARRIED = "more_than_carried";
}
