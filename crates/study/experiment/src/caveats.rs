//! Codes of the caveats of experiments: each is raised in this crate, and docs/reference/caveats.md lists them.

use longhaul_result::caveat_codes;

caveat_codes! {
    /// A lab could not be set up or ended badly.
    LAB = "lab";
    /// The report of the server has no result.
    NO_REPORT = "no_report";
    /// A hypervisor, or other programs, had the machine's CPUs for a tenth of a run or more.
    CPU_TAKEN = "cpu_taken";
}
