//! `longhaul verify`.

mod measuring;

use std::path::PathBuf;
use std::process::ExitCode;

use longhaul_flows::compare::equivalence::{Margin, Verdict};
use longhaul_path::preset;
use longhaul_profile::{verify, verify_measured};
use longhaul_report::html::round_trips::verified::Report;
use longhaul_report::text;
use longhaul_units::Nanos;
use serde::Serialize;

use crate::args::quantity::seconds;
use crate::cmd::profile::measured::Measured;
use crate::output::overwrite::Overwrite;
use crate::output::{Envelope, Failure, Outcome, OutputFile, print_caveats, print_json, print_text};

/// Ends the command where path and measurement differ or it cannot be said.
const NOT_WITHIN: u8 = 3;

const EXAMPLES: &str = "\
Example:
  longhaul verify far.toml --against far.txt
  longhaul verify far.toml --against far.txt --margin p99=5% --margin loss=50%
  longhaul verify far.toml --against far.txt --html page.html       # both drawn
  longhaul verify far.toml --against near.pcap --against far.pcap   # captures of both ends
  longhaul verify far.toml --against far.txt --measure copy         # in real time

The emulator's code runs the path in virtual time, with packets at the times of the measurement. With --measure it runs in real time, and \
longhaul rtt measures it at the same interval.

A quantity is \"within\" if the 90 % confidence interval of its difference is inside the margin, and \"outside\" if the 99 % interval is outside \
it. Otherwise there is too little data. The exit code is 0 if all quantities are within, else 3.";

/// Test whether a path behaves like a path that was measured
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Test this path: a path file, or a name that longhaul paths lists
    #[arg(value_name = "PATH")]
    path: String,
    /// Compare it with this measurement: the folder of longhaul rtt -o or tcp -o, the output of ping (- is standard input), a capture of
    /// TCP; or, given twice, two captures: of the client's end of the path, then of the server's
    #[arg(long, value_name = "FILE", required = true)]
    against: Vec<PathBuf>,
    /// Run the path in real time between two hosts on this machine, measure it in the same way, and save that measurement in this folder
    #[arg(long, value_name = "DIR")]
    measure: Option<PathBuf>,
    /// Measure for this time, with --measure [default: as long as the measurement lasted, 60s at most]
    #[arg(short, long, value_name = "TIME", requires = "measure")]
    time: Option<Nanos>,
    /// Trust that both captures use one clock: one-way delays are then exact
    #[arg(long)]
    same_clock: bool,
    /// Accept a difference of this share of the measured value: median, range, p99, p99.9, loss, loss-run, reordered, duplicates
    #[arg(long, value_name = "NAME=SHARE")]
    margin: Vec<Margin>,
    /// Take this time between probes, if the output of ping does not show it
    #[arg(short, long, value_name = "TIME", value_parser = seconds)]
    interval: Option<Nanos>,
    /// Seed the path's random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Draw both in this HTML page: the verdict, both distributions, quantile against quantile, round trips over time
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    html: Option<OutputFile>,
    #[command(flatten)]
    overwrite: Overwrite,
    /// Print JSON
    #[arg(short = 'J', long)]
    json: bool,
}

/// What was asked.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Parameters {
    /// The path.
    path: String,
    /// The measurement, or captures of both ends.
    against: Vec<String>,
    /// The folder of the measurement over the emulated path, where that ran in real time.
    #[serde(skip_serializing_if = "Option::is_none")]
    measure: Option<String>,
    /// Time between probes that was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    interval_ns: Option<u64>,
    /// Seed of the path's random numbers.
    seed: u64,
}

pub(crate) fn run(args: Args) -> Outcome {
    let started_at = jiff::Timestamp::now().to_string();
    args.overwrite.file(args.html.as_deref())?;
    let path = preset::load(&args.path).map_err(Failure::usage)?;
    let measured = Measured::read(&args.against, args.interval, args.same_clock)?;
    let mut caveats = Vec::new();
    let found = match &args.measure {
        Some(folder) => {
            let (tested, lateness, late) = measuring::over(&path, &measured, folder, args.time, args.seed)?;
            caveats = late;
            verify_measured(&tested.probes, &measured.probes, &args.margin, lateness)
        }
        None => verify(&path, &measured.probes, &args.margin, args.seed).map_err(|error| {
            let remedy = "give a shorter measurement, or a path with fewer hops, outages or duplicates";
            Failure::new("too_long", error).remedy(remedy)
        })?,
    };
    let exit = if found.verdict == Verdict::Within { ExitCode::SUCCESS } else { ExitCode::from(NOT_WITHIN) };
    let names: Vec<String> = args.against.iter().map(|path| path.display().to_string()).collect();
    let against = names.join(" and ");
    let drawn = args.html.as_ref().map_or(Ok(()), |file| {
        let (path, against, longhaul) = (args.path.clone(), against.clone(), env!("CARGO_PKG_VERSION").to_owned());
        let started_at = started_at.clone();
        let report = Report { path, against, longhaul, started_at, found: &found, caveats: &caveats };
        file.write(&report.html(), args.overwrite)
    });
    if args.json {
        let parameters = Parameters {
            path: args.path,
            against: names,
            measure: args.measure.map(|folder| folder.display().to_string()),
            interval_ns: args.interval.map(|interval| interval.0),
            seed: args.seed,
        };
        print_json(&Envelope::new("longhaul.verify/1", started_at, parameters, found, caveats.clone()));
    } else {
        print_text(&text::verify::report(&args.path, &against, &found));
    }
    print_caveats(&caveats);
    if let Err(failure) = drawn {
        // The result is printed already; with --json it is the only object.
        return Ok(failure.report_beside());
    }
    Ok(exit)
}
