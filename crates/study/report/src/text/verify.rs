//! The verdict of `longhaul verify` as text.

use std::fmt::Write;

use longhaul_profile::{DirectionName, Verification};

use crate::equivalence::{Cells, header, verdict, why};

/// The result for a terminal: of `path` against the measurement `against`.
pub fn report(path: &str, against: &str, found: &Verification) -> String {
    let mut text = format!("{} ({against})\n", verdict(path, found.verdict));
    let single = found.directions.len() == 1;
    let all = found.directions.iter().flat_map(|direction| {
        let of = if single { String::new() } else { direction.of.name().to_owned() };
        direction.quantities.iter().map(move |quantity| (of.clone(), quantity))
    });
    let why = why(found.verdict, all);
    if !why.is_empty() {
        text += &format!("{why}\n");
    }
    text += &format!("\n{}", header("measured", "path"));
    let how = if found.lateness.is_some() { "in real time" } else { "in virtual time" };
    for direction in &found.directions {
        if !single {
            text += &format!("{}\n", direction.of.name());
        }
        for quantity in &direction.quantities {
            text += &Cells::of(quantity).row(quantity.name.name());
        }
        let packets = if direction.of == DirectionName::RoundTrip { "probes" } else { "packets" };
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{} {packets} (effective sample size {}); {} over the path, {how}.{}",
            direction.packets,
            direction.effective_samples,
            direction.path_packets,
            if single { "" } else { "\n" }
        );
        text.extend(direction.coarse().map(|coarse| coarse + "\n"));
    }
    if let Some(late) = found.lateness {
        let us = |ns: u64| ns as f64 / 1e3;
        let _ = writeln!(
            text,
            "The emulator was late by {:.0} us in the median and {:.0} us at 99 %: intervals of times are extended downwards by twice that.",
            us(late.p50_ns),
            us(late.p99_ns)
        );
    }
    text += "Times in ms; p99 and p99.9 are above the median.\n";
    text
}
