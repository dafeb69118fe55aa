//! Clocks: what each host says of its own, gaps that they tell of, a NIC's, and steps of the responder's.

pub(crate) mod gaps;
pub(crate) mod nic;
pub(crate) mod responder;
pub(crate) mod state;

pub use gaps::{ClockReading, ClockWatch, Gap, GapReason};
pub use nic::{NicReading, NicTime};
pub use state::{ClockState, OneWayDelay, OneWayDelays};
