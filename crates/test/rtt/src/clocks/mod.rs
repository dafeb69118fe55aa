//! Clocks: what each host says of its own, gaps that they tell of, and steps of the responder's.

pub(crate) mod gaps;
pub(crate) mod responder;
pub(crate) mod state;

pub use gaps::{ClockReading, ClockWatch, Gap, GapReason};
pub use state::{ClockState, OneWayDelay, OneWayDelays};
