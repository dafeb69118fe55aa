//! The verdict of `longhaul verify` as text.

use std::fmt::Write;

use longhaul_profile::Verification;

use crate::equivalence::{Cells, said, verdict};

/// The result for a terminal: of `path` against the measurement `against`.
pub fn report(path: &str, against: &str, found: &Verification) -> String {
    let mut text = format!("{} ({against})\n\n", verdict(path, found.verdict));
    text += "             measured       path      difference, 90 %       margin\n";
    for quantity in said(found) {
        let Cells { measured, path, difference, margin, verdict } = Cells::of(quantity);
        let name = quantity.name.name();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name:<11}{measured:>10} {path:>10} {difference:>23} {margin:>12}  {verdict}");
    }
    let _ = writeln!(
        text,
        "\nTimes in ms; p99 and p99.9 are above the median. {} probes, worth {} independent ones; {} over the path, in virtual time.",
        found.probes, found.effective_samples, found.path_probes
    );
    text
}
