//! `longhaul verify`.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use longhaul_path::preset;
use longhaul_profile::{Margin, Quantity, Verdict, Verification, verify};
use longhaul_units::Nanos;
use serde::Serialize;

use crate::cmd::profile::source::Measured;
use crate::output::{Envelope, Failure, Outcome, print_json, print_text};

/// Ends the command where path and measurement differ or it cannot be said.
const NOT_WITHIN: u8 = 3;

const EXAMPLES: &str = "\
Example:
  longhaul verify far.toml --against far.txt
  longhaul verify far.toml --against far.txt --margin p99=5% --margin loss=50%

The path is run in virtual time, by the code that the emulator runs, with probes at the same times as the measurement's.
A quantity is within where the 90 % interval of its difference lies within the margin, outside where it lies beyond; else more probes
would tell. The exit code is 0 where all are within, else 3.";

/// Test whether a path behaves like a path that was measured
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Test this path: a path file, or a name that longhaul paths lists
    #[arg(value_name = "PATH")]
    path: String,
    /// Compare it with this measurement: the folder of longhaul rtt -o, or the output of ping; - is standard input
    #[arg(long, value_name = "FILE")]
    against: PathBuf,
    /// Let a quantity differ by this share of its value: median, range, p99, p99.9, loss, loss-run, reordered, duplicates
    #[arg(long, value_name = "NAME=SHARE")]
    margin: Vec<Margin>,
    /// Time between probes, where the output of ping does not say
    #[arg(short, long, value_name = "TIME")]
    interval: Option<Nanos>,
    /// Seed of the path's random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
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
    /// The measurement.
    against: String,
    /// Time between probes that was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    interval_ns: Option<u64>,
    /// Seed of the path's random numbers.
    seed: u64,
}

pub(crate) fn run(args: Args) -> Outcome {
    let started_at = jiff::Timestamp::now().to_string();
    let path = preset::load(&args.path).map_err(Failure::usage)?;
    let measured = Measured::read(&args.against, args.interval)?;
    let found = verify(&path, &measured.probes, &args.margin, args.seed);
    let exit = if found.verdict == Verdict::Within { ExitCode::SUCCESS } else { ExitCode::from(NOT_WITHIN) };
    if args.json {
        let parameters = Parameters {
            path: args.path,
            against: args.against.display().to_string(),
            interval_ns: args.interval.map(|interval| interval.0),
            seed: args.seed,
        };
        print_json(&Envelope::new("longhaul.verify/1", started_at, parameters, found, Vec::new()));
    } else {
        print_text(&text(&args.path, &args.against.display().to_string(), &found));
    }
    Ok(exit)
}

fn text(path: &str, against: &str, found: &Verification) -> String {
    let mut text = String::new();
    let verdict = match found.verdict {
        Verdict::Within => "behaves like the measured path, within the margins",
        Verdict::Outside => "does not behave like the measured path",
        Verdict::TooLittleData => "may behave like the measured path: there is too little data to say",
    };
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{path} {verdict} ({against})\n");
    let _ = writeln!(text, "             measured       path      difference, 90 %       margin");
    // What neither has says nothing.
    for quantity in found.quantities.iter().filter(|quantity| quantity.measured != 0.0 || quantity.path != 0.0) {
        let _ = writeln!(text, "{}", row(quantity));
    }
    let _ = writeln!(
        text,
        "\nTimes in ms; p99 and p99.9 are above the median. {} probes, worth {} independent ones; {} over the path, in virtual time.",
        found.probes, found.effective_samples, found.path_probes
    );
    text
}

fn row(quantity: &Quantity) -> String {
    let scale = match quantity.name {
        name if name.is_time() => 1e-6,
        name if name.is_share() => 100.0,
        _ => 1.0,
    };
    let unit = if quantity.name.is_share() { " %" } else { "" };
    let value = |value: f64| format!("{:.3}{unit}", value * scale);
    let difference = quantity.difference.map_or_else(
        || "no 10 independent parts".to_owned(),
        |[low, high]| format!("{:+.3} to {:+.3}{unit}", low * scale, high * scale),
    );
    let verdict = match quantity.verdict {
        Verdict::Within => "within",
        Verdict::Outside => "OUTSIDE",
        Verdict::TooLittleData => "too little data",
    };
    format!(
        "{:<11}{:>10} {:>10} {difference:>23} {:>12}  {verdict}",
        quantity.name.name(),
        value(quantity.measured),
        value(quantity.path),
        format!("±{}", value(quantity.margin))
    )
}
