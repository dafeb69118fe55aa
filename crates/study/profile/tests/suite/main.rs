//! Measurements with a known truth, in virtual time.

mod loss;
mod netem;
mod ping;
mod profile;
mod verify;

use longhaul_path::spec::{PathSpec, no_files};
use longhaul_profile::Probes;

/// The path of a file's text.
fn path(text: &str) -> PathSpec {
    PathSpec::parse(text, &no_files).unwrap()
}

/// `count` probes each `interval_ms` over a path.
fn probes(text: &str, count: usize, interval_ms: f64, seed: u64) -> Probes {
    let sent: Vec<i64> = (0..count).map(|n| (n as f64 * interval_ms * 1e6) as i64).collect();
    longhaul_profile::simulate(&path(text), &sent, 98, seed)
}
