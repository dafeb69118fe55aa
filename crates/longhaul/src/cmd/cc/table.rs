//! `longhaul cc table`: the AIMD table, and response functions.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use longhaul_congestion::aimd::{Model, NoModel, model_names, window};
use longhaul_congestion::description::{AimdTable, LOSSES, formulas};
use longhaul_units::{BitRate, Nanos};
use serde::Serialize;

use crate::cmd::cc::measured::{self, Measured, Point};
use crate::cmd::cc::{packets, significant};
use crate::output::{Envelope, Failure, Outcome, print_caveats, print_json, print_text};

/// Print the AIMD table: for each rate the window, the time to recover from a loss, and the highest loss rate that allows it
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  longhaul cc table
  longhaul cc table --rate 100Gbit --rtt 71ms --mtu 9000 --algorithm all
  longhaul cc table --measured monday/result.json   # and the flows of a saved result")]
pub(crate) struct Args {
    /// Print rows for these link rates, counting whole packets with headers [default: 10M, 100M, 1G, 10G]
    #[arg(long, value_name = "RATE", value_delimiter = ',')]
    rate: Vec<BitRate>,
    /// Use this round trip
    #[arg(long, value_name = "TIME", default_value = "200ms")]
    rtt: Nanos,
    /// Use packets of this size
    #[arg(long, value_name = "BYTES", default_value_t = 1500, value_parser = clap::value_parser!(u32).range(68..=65535))]
    mtu: u32,
    /// Print rows for these controls: reno, cubic, a name from `longhaul cc list`, or all
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "reno")]
    algorithm: Vec<String>,
    /// Add the flows of a saved `longhaul tcp` or `longhaul lab run` result, and the response functions at their loss and round trip
    #[arg(long, value_name = "FILE")]
    measured: Vec<PathBuf>,
    /// Print JSON
    #[arg(short = 'J', long)]
    json: bool,
}

/// What was asked, as the result has it.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Parameters {
    /// Bits of whole packets a second.
    #[cfg_attr(test, schemars(inner(range(min = 1))))]
    rates_bps: Vec<u64>,
    /// Round trip, in nanoseconds.
    #[cfg_attr(test, schemars(range(min = 1)))]
    rtt_ns: u64,
    /// Size of a packet.
    #[cfg_attr(test, schemars(range(min = 68)))]
    mtu_bytes: u32,
    /// The names of the controls.
    algorithms: Vec<&'static str>,
}

/// The table, and the flows of saved results.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Printed {
    #[serde(flatten)]
    table: AimdTable,
    /// Flows of saved tests that lost packets (--measured).
    measured: Vec<Point>,
}

pub(crate) fn run(mut args: Args) -> Outcome {
    if args.rate.is_empty() {
        args.rate = [10_000_000, 100_000_000, 1_000_000_000, 10_000_000_000].map(BitRate).to_vec();
    }
    let zero = args.rate.iter().any(|rate| rate.0 == 0);
    if zero || args.rtt.0 == 0 {
        return Err(Failure::usage("--rate and --rtt must be more than zero"));
    }
    let models = models(&args.algorithm).map_err(|error| Failure::usage(format!("--algorithm: {error}")))?;
    let mut measured = Measured::default();
    for file in &args.measured {
        let failed = |error| Failure::usage(format!("--measured {}: {error}", file.display()));
        measured.read(file).map_err(failed)?;
    }
    let caveats = measured.caveats();
    if args.json {
        let now = jiff::Timestamp::now().to_string();
        let parameters = Parameters {
            rates_bps: args.rate.iter().map(|rate| rate.0).collect(),
            rtt_ns: args.rtt.0,
            mtu_bytes: args.mtu,
            algorithms: models.iter().map(Model::name).collect(),
        };
        let result =
            Printed { table: AimdTable::of(&models, &args.rate, args.rtt, args.mtu), measured: measured.points };
        print_json(&Envelope::new("longhaul.cc.table/1", now, parameters, result, caveats.clone()));
    } else {
        print_text(&(text(&args, &models) + &measured::text(&measured.points)));
    }
    print_caveats(&caveats);
    Ok(ExitCode::SUCCESS)
}

fn models(names: &[String]) -> Result<Vec<Model>, NoModel> {
    let mut models: Vec<Model> = Vec::new();
    for name in names {
        let these = if name == "all" { model_names() } else { vec![name.as_str()] };
        for one in these {
            let model = Model::named(one)?;
            if !models.contains(&model) {
                models.push(model);
            }
        }
    }
    Ok(models)
}

fn text(args: &Args, models: &[Model]) -> String {
    let mut text = format!("round trip {}, packets of {} bytes\n\n", args.rtt, args.mtu);
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{:<10} {:>10} {:>14} {:>14} {:>12}", "algorithm", "rate", "window", "recovery", "loss");
    for model in models {
        for rate in &args.rate {
            let exact = window(*rate, args.rtt, args.mtu);
            let rounded = two_digits(exact);
            let recovery = spoken(model.row(rounded, args.rtt).recovery_s);
            let loss = model.row(exact, args.rtt).supportable_loss;
            let shown = packets(rounded);
            let _ = writeln!(
                text,
                "{:<10} {:>10} {shown:>14} {recovery:>14} {loss:>12.1e}",
                model.name(),
                rate.to_string()
            );
        }
    }
    let _ = writeln!(
        text,
        "\nwindow: the mean window in packets, to two digits; recovery: time from one loss to that window, without queues;"
    );
    let _ = writeln!(text, "loss: the share of packets that may be lost. --json prints more digits.");
    let _ = writeln!(text, "\nmean window, packets, by rate of loss");
    let names = formulas(0.01, args.rtt).map(|(name, _)| name).into_iter().chain(models.iter().map(Model::name));
    let titles = names.fold(String::new(), |all, name| format!("{all} {name:>12}"));
    let _ = writeln!(text, "{:<6}{titles}", "loss");
    for loss in LOSSES {
        let ours = models.iter().map(|model| model.window_at(loss, args.rtt));
        let windows = formulas(loss, args.rtt).map(|(_, window)| window).into_iter().chain(ours);
        let cells = windows.fold(String::new(), |all, window| format!("{all} {:>12}", packets(window)));
        let _ = writeln!(text, "{:<6}{cells}", format!("{loss:.0e}"));
    }
    text
}

/// DataTAG's table has windows to two digits, and times that follow them.
fn two_digits(value: f64) -> f64 {
    significant(value, 2)
}

/// `17 s`, `2 min 50 s`, `28 min`, `4 h 43 min`, as DataTAG has them.
fn spoken(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match whole {
        0..10 => format!("{seconds:.2} s"),
        10..60 => format!("{whole} s"),
        60..600 => format!("{} min {} s", whole / 60, whole % 60),
        600..3600 => format!("{} min", whole / 60),
        3600..360_000 => format!("{} h {} min", whole / 3600, whole % 3600 / 60),
        _ => format!("{} d", whole / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_as_people_read_them() {
        assert_eq!([166.7, 16_666.7, 9.0].map(two_digits).map(packets), ["170", "17,000", "9.0"]);
        assert_eq!(
            [17.0, 170.0, 1700.0, 17_000.0, 2.7].map(spoken),
            ["17 s", "2 min 50 s", "28 min", "4 h 43 min", "2.70 s"]
        );
    }
}
