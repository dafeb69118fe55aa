//! A mesh of sites that test each other: what `longhaul mesh` decides, without sockets, clocks and disks.
//!
//! [`Sample`] is what one test says about loss.

mod sample;

pub use sample::{Evidence, Sample, SiteId};
