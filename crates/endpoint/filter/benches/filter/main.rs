//! Measures what a filter saves, and how fast a mix is sent: `cargo bench -p longhaul-filter --bench filter [-- FILTER] [--quick]`.
//!
//! Each case has two new network namespaces with one veth pair between them. Frames are XDP live frames, so that a receiver that drops them
//! early has spent nothing on them. Sender and receiver share one CPU, on which nothing else runs: the cost of a frame is its time,
//! less the time to make it. Where a TCP flow runs beside a mix, the receiver has one CPU and the senders have the other
//! (`cases/tcp.rs`). Table, samples (`bench/filter.json`), rounds and exit code are those of the lab's benchmark `path`.

#[allow(dead_code)] // No case takes minutes.
#[path = "../../../../path/lab/benches/path/args.rs"]
mod args;
mod cases;
#[path = "../../../../path/lab/benches/path/child.rs"]
mod child;
mod endpoint;
#[path = "../../../../path/lab/benches/path/machine.rs"]
mod machine;
#[allow(dead_code)] // No emulator takes part here.
#[path = "../../../../path/lab/benches/path/measure.rs"]
mod measure;
mod receiver;
#[path = "../../../../path/lab/benches/path/report.rs"]
mod report;
#[path = "../../../../test/peer/benches/udp/rig.rs"]
mod rig;
#[path = "../../../../path/lab/benches/path/run.rs"]
mod run;

use std::process::ExitCode;

/// Whatever stops a measurement; its text says what and where.
type Error = Box<dyn std::error::Error + Send + Sync>;
type Result<T> = std::result::Result<T, Error>;

/// The benchmark's name, and the package that it is of.
const NAME: &str = "filter";
const PACKAGE: &str = "longhaul-filter";

fn main() -> ExitCode {
    run::main()
}
