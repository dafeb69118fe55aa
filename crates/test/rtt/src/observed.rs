//! What a running measurement hands over.

use longhaul_units::Nanos;

use crate::account::{Counts, Recent};
use crate::clocks::Gap;
use crate::path_change::PathChange;
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
    /// Times in which probes told nothing, that ended since the last time.
    pub gaps: Vec<Gap>,
    /// Route changes since the last time.
    pub path_changes: Vec<PathChange>,
    /// The address that probes were sent from is no longer this host's: no answer can come, and the session is over.
    pub address_gone: bool,
    /// At the end of the measurement.
    pub ended: Option<Ended>,
}

/// What is known at the end of a measurement.
#[derive(Debug, Clone, Copy, Default)]
pub struct Ended {
    /// Time by which the schedule was put off.
    pub skipped: Nanos,
}
