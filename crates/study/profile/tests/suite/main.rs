//! Measurements with a known truth, in virtual time.

mod loss;
mod netem;
mod ping;
mod profile;
mod shifts;
mod verify;

use longhaul_path::spec::{PathSpec, no_files};
use longhaul_profile::Probes;

/// The path of a file's text.
fn path(text: &str) -> PathSpec {
    PathSpec::parse(text, &no_files).unwrap()
}

/// How many seeded runs: what `LONGHAUL_RUNS` says, or as many as a test has time for.
fn runs(usually: u64) -> u64 {
    std::env::var("LONGHAUL_RUNS").map_or(usually, |runs| runs.parse().unwrap())
}

/// `count` probes each `interval_ms` over a path.
fn probes(text: &str, count: usize, interval_ms: f64, seed: u64) -> Probes {
    let sent: Vec<i64> = (0..count).map(|n| (n as f64 * interval_ms * 1e6) as i64).collect();
    longhaul_profile::simulate(&path(text), &sent, 98, seed)
}
