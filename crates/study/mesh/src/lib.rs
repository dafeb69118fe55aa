//! A mesh of sites that test each other: what `longhaul mesh` decides, without sockets, clocks and disks.
//!
//! [`file::Mesh`] is what a mesh file says. [`Sample`] is what one test says about loss; [`place::Locator`] names who loses.

pub mod admission;
pub mod file;
pub mod message;
pub mod place;
pub mod printed;
pub mod result;
mod sample;
pub mod schedule;

pub use sample::{Evidence, Sample, SiteId};
