//! From round trips that were measured to a path that behaves like them, and whether it does.
//!
//! [`Profile::of`] fits a path to [`Probes`]; [`verify`] sends the same probes over a path in virtual time and compares.

mod bunches;
mod capacity;
mod curves;
mod delay;
mod gaps;
mod hill;
mod loss;
mod netem;
mod partial;
mod path_file;
mod ping;
mod probes;
mod route_changes;
mod simulate;
mod verify;

pub use bunches::Bunches;
pub use capacity::SlowestQueue;
pub use curves::{Curves, Level, Stretch};
pub use delay::DelaySummary;
pub use delay::correlation::Correlation;
pub use delay::levels::DelayShift;
pub use loss::{LossFit, LossLaw, LostTime, fit_loss};
pub use netem::Netem;
pub use path_file::{Profile, ProfileError, ProfileOptions, Split};
pub use ping::{PingError, read_ping};
pub use probes::{LossesSeen, Passage, Probe, Probes, probes_most};
pub use route_changes::RouteChange;
pub use simulate::{simulate, simulate_ways};
pub use verify::{DirectionName, Lateness, TooLong, Verification, VerifiedDirection, verify, verify_measured};
