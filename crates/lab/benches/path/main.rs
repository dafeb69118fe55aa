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
mod endpoint;
mod machine;
mod measure;
mod report;
mod rig;
mod traffic;

use std::process::ExitCode;

use args::{Args, Invocation};

/// Whatever stops a measurement; its text says what and where.
type Error = Box<dyn std::error::Error + Send + Sync>;
type Result<T> = std::result::Result<T, Error>;

fn main() -> ExitCode {
    let outcome = match Args::parse(std::env::args().skip(1)) {
        Ok(Invocation::Endpoint(role)) => endpoint::run(&role).map(|()| true),
        Ok(Invocation::Help) => {
            println!("{}", args::help());
            Ok(true)
        }
        // `cargo test --all-targets` runs this too, and is not to take half an hour.
        Ok(Invocation::NotABenchmark) => {
            println!("skipped: not asked to measure; run `cargo bench -p longhaul-lab --bench path`");
            Ok(true)
        }
        Ok(Invocation::Measure(args)) => measure_all(&args),
        Err(error) => Err(error),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("path: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the cases that the filter leaves. Says whether none of them broke.
fn measure_all(args: &Args) -> Result<bool> {
    let mut report = report::Report::new(args, machine::describe());
    for case in cases::ALL.iter().filter(|case| args.wants(case.name)) {
        eprintln!("{}: {}", case.name, case.about);
        match (case.run)(&args.plan(case.name)) {
            Ok(rows) => report.add(case.name, rows),
            Err(error) => report.broke(case.name, &*error),
        }
    }
    print!("{}", report.table());
    let file = report.write()?;
    eprintln!("all samples: {}", file.display());
    Ok(report.is_whole())
}
