//! `longhaul cc show`: what a control is, takes, and holds.

use std::fmt::Write;
use std::process::ExitCode;

use longhaul_congestion::aimd::Model;
use longhaul_congestion::{Algorithm, Parameter, Settings, Variant};
use longhaul_units::Nanos;
use serde_json::{Value, json};

use crate::cmd::cc::table::{LOSSES, packets};
use crate::output::{Envelope, Outcome, print_json, print_text};

/// Show a congestion control: its paper, its parameters there and in Linux, the window it holds at a rate of loss
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  longhaul cc show highspeed --rtt 100ms")]
pub(crate) struct Args {
    /// A name from `longhaul cc list`
    name: Algorithm,
    /// Round trip of the response function, for controls that depend on it
    #[arg(long, value_name = "TIME", default_value = "200ms")]
    rtt: Nanos,
    /// Print JSON
    #[arg(short = 'J', long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> Outcome {
    let algorithm = args.name;
    if args.json {
        let now = jiff::Timestamp::now().to_string();
        let parameters = json!({ "name": algorithm.name(), "rtt_ns": args.rtt.0 });
        print_json(&Envelope::new("longhaul.cc.show/1", now, parameters, result(algorithm, args.rtt), Vec::new()));
    } else {
        print_text(&text(algorithm, args.rtt));
    }
    Ok(ExitCode::SUCCESS)
}

/// The paper's and, where Linux has such a module, Linux's.
fn models(algorithm: Algorithm) -> Vec<(Variant, Model)> {
    let has_model = Model::named(algorithm.name()).is_ok();
    let variants = [Variant::Paper, Variant::Linux].into_iter().filter(|_| has_model);
    variants.filter_map(|variant| Some((variant, Model::Ours(Settings::new(algorithm, variant).ok()?)))).collect()
}

fn result(algorithm: Algorithm, rtt: Nanos) -> Value {
    let has_linux = algorithm.has_linux_module();
    let parameters = algorithm.parameters().iter().map(|parameter| {
        json!({
            "name": parameter.name,
            "paper": parameter.paper,
            "linux": has_linux.then_some(parameter.linux),
            "unit": parameter.unit,
            "most": parameter.most,
            "meaning": parameter.meaning,
        })
    });
    let models = models(algorithm);
    let response = LOSSES.into_iter().map(|loss| {
        let window = |wanted| {
            let found = models.iter().find(|(variant, _)| *variant == wanted);
            found.map(|(_, model)| model.window_at(loss, rtt))
        };
        let reno = Model::Reno.window_at(loss, rtt);
        json!({ "loss": loss, "paper": window(Variant::Paper), "linux": window(Variant::Linux), "reno": reno })
    });
    json!({
        "algorithm": algorithm.name(),
        "title": algorithm.title(),
        "source": algorithm.source(),
        "summary": algorithm.summary(),
        "name": algorithm.kernel_name(Variant::Paper),
        "linux_variant": has_linux.then(|| algorithm.kernel_name(Variant::Linux)),
        "linux_differs": algorithm.linux_differs(),
        "parameters": parameters.collect::<Vec<_>>(),
        "response_window_packets": response.collect::<Vec<_>>(),
    })
}

fn text(algorithm: Algorithm, rtt: Nanos) -> String {
    let has_linux = algorithm.has_linux_module();
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{}: {}", algorithm.title(), algorithm.summary());
    let _ = writeln!(text, "source    {}", algorithm.source());
    let linux_name = algorithm.kernel_name(Variant::Linux);
    let names = if has_linux { format!(", {linux_name} with --variant linux") } else { String::new() };
    let _ = writeln!(text, "name      {}{names}", algorithm.kernel_name(Variant::Paper));
    let differs = algorithm.linux_differs().unwrap_or("it has no such module");
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
    let models = models(algorithm);
    if models.is_empty() {
        let _ =
            writeln!(text, "\nWhat a loss leaves depends on the path's queue alone: there is no response function.");
        return text;
    }
    let _ = writeln!(text, "\nmean window, packets, at a round trip of {rtt} without queues");
    let heads: String = models.iter().fold(String::new(), |all, (variant, _)| format!("{all} {:>14}", variant.name()));
    let _ = writeln!(text, "{:<10}{heads} {:>14}", "loss", "reno");
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
