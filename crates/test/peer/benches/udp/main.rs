//! How fast and how exact the tests are: `cargo bench -p longhaul-peer --bench udp [-- FILTER] [--quick]`.
//!
//! Client and server of a test are processes of their own, in two fresh network namespaces with one veth pair between them:
//! no path, no emulator, but in the cases `long-…`. iperf3 runs over the same pair, in turns. Table, samples (`bench/udp.json`), rounds and exit code
//! are as with the lab's benchmark `path`.

#[path = "../../../../path/lab/benches/path/args.rs"]
mod args;
mod capture;
mod cases;
#[path = "../../../../path/lab/benches/path/child.rs"]
mod child;
mod endpoint;
#[path = "../../../../path/lab/benches/path/machine.rs"]
mod machine;
#[allow(dead_code)]
#[path = "../../../../path/lab/benches/path/measure.rs"]
mod measure;
#[path = "../../../../path/lab/benches/path/report.rs"]
mod report;
mod rig;
#[path = "../../../../path/lab/benches/path/run.rs"]
mod run;
mod traffic;

use std::process::ExitCode;

/// Whatever stops a measurement; its text says what and where.
type Error = Box<dyn std::error::Error + Send + Sync>;
type Result<T> = std::result::Result<T, Error>;

/// The benchmark's name, and the package that it is of.
const NAME: &str = "udp";
const PACKAGE: &str = "longhaul-peer";

fn main() -> ExitCode {
    run::main()
}
