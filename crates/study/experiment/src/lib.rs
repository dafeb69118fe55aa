//! Experiments: many tests in labs, as a TOML file says them.
//!
//! [`Experiment`] is their text form. [`Runner`] runs them, and tells what happens as [`Event`]s.
//!
//! What is not here: printing, files, and the form of the results, which `longhaul-report` has beside the pages that show them.

mod capture;
mod caveats;
pub mod faults;
mod folder;
mod machine;
mod run;
mod spec;

pub use folder::remove_leftovers;
pub use run::netem::missing as netem_missing;
pub use run::plan::{Choice, Plan, Planned};
pub use run::{Event, FACTORS, Hosts, Made, MadeAt, Ran, Runner, SaveLosses, TRIES_MOST, calibration_time};
pub use spec::{
    Emulator, Experiment, ExperimentError, Faulty, HostSettings, MixSeries, PaperFinding, PaperValues, Parser, PollAt,
    Program, ReceiverKind, Repeats, Setting, TcpFlows, TcpSeries, TcpTest, UdpSeries, UdpTest, names,
};
