//! Labs: hosts as network namespaces with an emulated path between them.
//!
//! [`Lab`] is one in this process: tests use it, and so does the process behind `longhaul lab up`, which answers on a
//! socket ([`control`]). Namespaces, interfaces and the socket's name all end with the process that holds them, so a lab
//! that is killed leaves nothing but the programs that were started in it; [`orphans`] ends those.

pub mod control;
pub mod enter;
mod lab;
pub mod orphans;
pub mod plan;
mod programs;
pub mod ring;
mod spec;

pub use lab::{Lab, LabError};
pub use programs::ProgramsError;
pub use spec::LabSpec;
