//! A run of a benchmark, of whatever cases. What the benchmarks of other packages share with this one is in files that know
//! neither: this one, `args.rs`, `child.rs`, `machine.rs`, `measure.rs` and `report.rs`.

use std::process::ExitCode;

use crate::args::{Args, Invocation, Plan};
use crate::report::{Report, Row};
use crate::{NAME, PACKAGE, Result, args, cases, endpoint, machine};

/// One thing to measure.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) run: fn(&Plan) -> Result<Vec<Row>>,
}

/// Does what the command line asks for.
pub(crate) fn main() -> ExitCode {
    let outcome = match Args::parse(std::env::args().skip(1)) {
        Ok(Invocation::Endpoint(role)) => endpoint::run(&role).map(|()| true),
        Ok(Invocation::Help) => {
            println!("{}", args::help());
            Ok(true)
        }
        // `cargo test --all-targets` runs this too, and is not to take half an hour.
        Ok(Invocation::NotABenchmark) => {
            println!("skipped: not asked to measure; run `cargo bench -p {PACKAGE} --bench {NAME}`");
            Ok(true)
        }
        Ok(Invocation::Measure(args)) => measure_all(&args),
        Err(error) => Err(error),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{NAME}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the cases that the filter leaves. Says whether none of them broke.
fn measure_all(args: &Args) -> Result<bool> {
    let mut report = Report::new(args, machine::describe());
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
