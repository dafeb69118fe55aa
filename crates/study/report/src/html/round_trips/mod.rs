//! Round trips as pages: as they were measured, and beside those of a path.

pub mod measured;
pub mod verified;

use crate::html::lines::Across;

/// An axis of powers of ten, of which those between have no label: a round trip is that of one in so many.
const ONE_IN: Across<'static> = Across {
    what: "one in so many is longer",
    label: |power| (power.fract() == 0.0).then(|| format!("{}", 10_f64.powf(power))),
    value: |power| 10_f64.powf(power),
};
