//! `longhaul cc show`: the source of a control, its parameters, its response function.

use std::fmt::Write;
use std::process::ExitCode;

use longhaul_congestion::aimd::Model;
use longhaul_congestion::description::{Description, LOSSES, variants};
use longhaul_congestion::{Algorithm, Parameter, Variant};
use longhaul_units::Nanos;
use serde::Serialize;

use crate::cmd::cc::packets;
use crate::output::{Envelope, Outcome, print_json, print_text};

/// Show a congestion control: its source, its parameters in the paper and in Linux, its window by rate of loss
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  longhaul cc show highspeed --rtt 100ms")]
pub(crate) struct Args {
    /// Show the control with this name, as `longhaul cc list` has it
    name: Algorithm,
    /// Use this round trip for response functions that depend on it
    #[arg(long, value_name = "TIME", default_value = "200ms")]
    rtt: Nanos,
    /// Print JSON
    #[arg(short = 'J', long)]
    json: bool,
}

/// What was asked, as the result has it.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Parameters {
    /// The control.
    name: &'static str,
    /// Round trip of the response function, in nanoseconds.
    rtt_ns: u64,
}

pub(crate) fn run(args: Args) -> Outcome {
    let algorithm = args.name;
    if args.json {
        let now = jiff::Timestamp::now().to_string();
        let parameters = Parameters { name: algorithm.name(), rtt_ns: args.rtt.0 };
        let result = Description::of(algorithm, args.rtt);
        print_json(&Envelope::new("longhaul.cc.show/1", now, parameters, result, Vec::new()));
    } else {
        print_text(&text(algorithm, args.rtt));
    }
    Ok(ExitCode::SUCCESS)
}

fn text(algorithm: Algorithm, rtt: Nanos) -> String {
    let has_linux = algorithm.has_linux_variant();
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{}: {}", algorithm.title(), algorithm.summary());
    let _ = writeln!(text, "source    {}", algorithm.source());
    let linux_name = algorithm.kernel_name(Variant::Linux);
    let names = if has_linux { format!(", {linux_name} with --variant linux") } else { String::new() };
    let _ = writeln!(text, "name      {}{names}", algorithm.kernel_name(Variant::Paper));
    let differs = algorithm.linux_differs().unwrap_or("Linux has no such module");
    let _ = writeln!(text, "linux     {differs}\n");
    let _ = writeln!(text, "{:<24} {:>13} {:>13}  meaning", "parameter", "paper", "linux");
    for parameter in algorithm.parameters() {
        let linux = if has_linux { stored(parameter, parameter.linux) } else { "-".into() };
        let _ = writeln!(
            text,
            "{:<24} {:>13} {linux:>13}  {}",
            parameter.name,
            stored(parameter, parameter.paper),
            parameter.meaning
        );
    }
    let models = variants(algorithm);
    if models.is_empty() {
        let why = if algorithm.measures_rate() {
            "its rate is the path's, less what each round trip since the last probe has lost"
        } else {
            "the window after a loss depends only on the queue of the path"
        };
        let _ = writeln!(text, "\nThis control has no response function: {why}.");
        return text;
    }
    let _ = writeln!(text, "\nmean window, packets, at a round trip of {rtt} without queues");
    let titles: String = models.iter().fold(String::new(), |all, (variant, _)| format!("{all} {:>14}", variant.name()));
    let _ = writeln!(text, "{:<10}{titles} {:>14}", "loss", "reno");
    for loss in LOSSES {
        let cells = models
            .iter()
            .fold(String::new(), |all, (_, model)| format!("{all} {:>14}", packets(model.window_at(loss, rtt))));
        let _ =
            writeln!(text, "{:<10}{cells} {:>14}", format!("{loss:.0e}"), packets(Model::Reno.window_at(loss, rtt)));
    }
    text
}

/// As stored, and what it means: `128 (0.125)`, `100 (1e-7)`.
fn stored(parameter: &Parameter, value: u32) -> String {
    let meant = parameter.value(value);
    match parameter.unit {
        1 => value.to_string(),
        _ if meant > 0.0 && meant < 1e-3 => format!("{value} ({meant:e})"),
        _ => format!("{value} ({})", (meant * 1e4).round() / 1e4),
    }
}
