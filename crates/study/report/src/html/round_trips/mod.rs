//! Round trips as pages: as they were measured, and beside those of a path.

pub mod measured;
pub mod verified;

/// The label of a power of ten: those between have none.
fn power_of_ten(power: f64) -> Option<String> {
    (power.fract() == 0.0).then(|| format!("{}", 10_f64.powf(power)))
}
