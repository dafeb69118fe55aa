//! How fast and how exact the emulated path is: `cargo bench -p longhaul-lab --bench path [-- FILTER] [--quick]`.
//!
//! Every figure is measured beside its reference in the same run, in turns, so that what disturbs the machine disturbs
//! both; what is judged is the median over the rounds of each round's ratio. Endpoints are processes of their own: this
//! program again, with a hidden argument, in the namespaces of the hosts. The table goes to stdout, progress to stderr,
//! all samples to `bench/path.json` in Cargo's target directory.
//!
//! It ends with 0 though a target was missed, and with 1 where a measurement broke.

mod args;
mod cases;
mod child;
mod endpoint;
mod machine;
mod measure;
mod report;
mod rig;
mod run;
mod traffic;

use std::process::ExitCode;

/// Whatever stops a measurement; its text says what and where.
type Error = Box<dyn std::error::Error + Send + Sync>;
type Result<T> = std::result::Result<T, Error>;

/// The benchmark's name, and the package that it is of.
const NAME: &str = "path";
const PACKAGE: &str = "longhaul-lab";

fn main() -> ExitCode {
    run::main()
}
