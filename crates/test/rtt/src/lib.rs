//! Round trips of probes: what is asked for, the account of every probe, its figures, and the log that has a row for each.
//!
//! ```text
//!  sent, stamped, answered ──► Account ──► ProbeRow ──┬─► Statistics ──► RttResult
//!                                                     └─► probe_log
//! ```
//!
//! No sockets, clocks or threads. No input makes this crate panic, loop without end or take unbounded memory.

mod account;
mod by_size;
mod caveats;
mod clocks;
mod exchange;
mod hops;
mod observed;
mod over_time;
mod parameters;
mod path_change;
pub mod probe_log;
mod result;
mod schedule;
mod statistics;

pub use account::{Account, Answer, Arrival, Counts, Recent};
pub use by_size::{BySize, MOST_SIZES, OfSize, SizeLine, SizeRtt, SizeStep};
pub use clocks::{
    ClockReading, ClockState, ClockWatch, Gap, GapReason, NicReading, NicTime, OneWayDelay, OneWayDelays,
};
pub use exchange::{Answered, Responder, ResponderStamps, question, reply};
pub use hops::{
    HopAccount, HopAddress, HopAnswer, HopAnswerer, HopRtt, HopsParameters, HopsResult, LEAST_ROUND, MOST_HOPS, OfHop,
    RouteChange,
};
pub use longhaul_captures::packet::within_times;
pub use observed::{Ended, Observed};
pub use over_time::{OverTime, Stretch, StretchRtt};
pub use parameters::{MIN_PAYLOAD_BYTES, RttEndReport, RttParameters};
pub use path_change::{ChangedRoute, OwnRoute, PathChange};
pub use result::{
    Clocks, EndsStamps, HistogramBucket, LossRun, OneWayVariation, RttQuantiles, RttResult, Spread, caveats_of,
    caveats_of_gaps, caveats_of_path_changes,
};
pub use schedule::Schedule;
pub use statistics::Statistics;
