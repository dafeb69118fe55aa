//! What a running measurement hands over.

use longhaul_result::Caveat;
use longhaul_units::Nanos;

use crate::account::{Counts, Recent};
use crate::probe_log::ProbeRow;

/// What was seen of a measurement since the last time.
#[derive(Debug, Default)]
pub struct Observed {
    /// Probes whose time is over, in the order of sending.
    pub rows: Vec<ProbeRow>,
    /// Probes and answers of now, for live lines.
    pub recent: Recent,
    /// Sums so far.
    pub counts: Counts,
    /// At the end of the measurement.
    pub ended: Option<Ended>,
}

/// What is known at the end of a measurement.
#[derive(Debug, Default)]
pub struct Ended {
    /// Time by which the schedule was put off.
    pub skipped: Nanos,
    /// A caveat where `CLOCK_REALTIME` was stepped.
    pub stepped: Option<Caveat>,
}
