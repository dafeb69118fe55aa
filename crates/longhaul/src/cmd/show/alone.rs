//! Pages of saved results that need no table: of `rtt`, `sweep` and `diagnose`.

use longhaul_diagnosis::Diagnosed;
use longhaul_report::html::round_trips::measured;
use longhaul_report::html::{diagnosed, sweep};
use longhaul_report::saved::DiagnoseAsked;
use longhaul_rtt::RttResult;
use longhaul_sweep::{MOST_TESTS, SweepResult};
use longhaul_terms::Directions;
use serde::Deserialize;

use crate::cmd::show::read::Read;
use crate::output::Failure;

/// Sizes times steps of a line by size: the page looks at each step for each size. Measurements have some sizes and a few steps.
const STEPS_MOST: usize = 1 << 20;

/// Buckets of a distribution: each is drawn.
const BUCKETS_MOST: usize = 1 << 16;

/// The host that was asked.
#[derive(Deserialize)]
struct Host {
    host: String,
}

/// Of `longhaul rtt`.
///
/// # Errors
/// The result is longer than any, or names no host.
pub(super) fn measured(read: &Read<'_>, result: &RttResult) -> Result<String, Failure> {
    let steps = result.by_size.as_ref().map_or(0, |all| all.sizes.len().saturating_mul(all.steps.len()));
    if steps > STEPS_MOST || result.histogram.len() > BUCKETS_MOST {
        return Err(read.too_long());
    }
    let about = read.about(&read.asked::<Host>()?.host);
    Ok(measured::Report { about, result, text: read.saved.text() }.html())
}

/// Of `longhaul sweep`.
///
/// # Errors
/// The result is longer than any, or names no host.
pub(super) fn swept(read: &Read<'_>, result: &SweepResult) -> Result<String, Failure> {
    if result.points.len() > MOST_TESTS {
        return Err(read.too_long());
    }
    let about = read.about(&read.asked::<Host>()?.host);
    Ok(sweep::Report { about, result, text: read.saved.text() }.html())
}

/// Of `longhaul diagnose` of a host.
pub(super) fn diagnosed(read: &Read<'_>, asked: &DiagnoseAsked, results: &Directions<Diagnosed>) -> String {
    diagnosed::Report::of(read.about(&asked.host), asked.reverse, results).html()
}
