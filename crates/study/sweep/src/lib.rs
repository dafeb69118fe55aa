//! A UDP test over payload sizes, rates and settings of the receiving host.
//!
//! ```text
//!  Axes ──► Point… ──► UdpParameters ──► (a test each) ──► Figures ──► Estimate ──► Knee
//! ```
//!
//! No sockets, clocks or threads. No input makes this crate panic, loop without end or take unbounded memory.

mod axes;
mod figures;
mod knee;
mod measured;
mod result;

pub use axes::{Axes, AxesError, MOST_TESTS, Point, PointSetting, order};
pub use figures::{Estimate, Figures, Metric};
pub use knee::{KNEE_LOSS, Knee, Limit, common};
pub use measured::{PointResult, Test};
pub use result::SweepResult;
