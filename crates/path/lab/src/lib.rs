//! Labs: hosts as network namespaces with an emulated path between them.
//!
//! [`Lab`] is a lab in this process. Tests use it, and so does the process behind `longhaul lab up`, which answers on a
//! socket ([`control`]). Namespaces, interfaces and the socket's name end with the process that holds them. A killed lab leaves only
//! the programs that were started in it; [`orphans`] ends them.

pub mod control;
pub mod enter;
mod lab;
mod lines;
pub mod orphans;
pub mod plan;
mod programs;
pub mod ring;
mod spec;

pub use lab::{Lab, LabError};
pub use programs::ProgramsError;
pub use spec::LabSpec;
