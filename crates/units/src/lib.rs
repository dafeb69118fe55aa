//! Time, rate and size as types, with the text forms that people type and read.
//!
//! Nothing here reads a clock: a [`Nanos`] is an instant only because its owner says from which origin it counts.

mod histogram;
mod quantity;
mod rate;
mod size;
pub mod statistics;
mod time;

pub use histogram::{Quantiles, TimeHistogram};
pub use quantity::QuantityError;
pub use rate::{BitRate, LAYER1_OVERHEAD_BYTES};
pub use size::Bytes;
pub use time::Nanos;
