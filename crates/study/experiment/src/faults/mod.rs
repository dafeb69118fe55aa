//! A catalogue of faults: labs in which one thing is wrong that is known, to see whether `longhaul diagnose` names it.
//!
//! `experiments/faults/` has a file for each ([`spec`] is their text form, `catalogue` the list). `making` raises the lab of a
//! fault, with the fault or fixed. [`run`] has every fault diagnosed, `observing` by the forms that make no test, and [`score`] compares what
//! was named with what is known.
//!
//! What is not here: the rules of a diagnosis (`longhaul-diagnosis`), and the measurements that it makes.

mod catalogue;
mod making;
mod observing;
mod program;
pub mod run;
pub mod score;
pub mod spec;
mod tuning;
mod void;

pub use catalogue::{all, find};
pub use making::{Doing, FaultLab, MakingError};
pub use program::{Ended, Programs};
