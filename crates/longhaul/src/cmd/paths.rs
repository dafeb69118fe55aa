//! `longhaul paths`.

use std::process::ExitCode;

use clap::Subcommand;
use longhaul_path::preset;
use longhaul_path::spec::Direction;
use serde_json::json;

use crate::output::{Envelope, Failure, Outcome, print_json, print_text};

/// List the preset paths
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  longhaul paths show tokyo > mine.toml")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Option<Action>,
    /// Print JSON
    #[arg(short = 'J', long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Print a path as TOML
    #[command(after_help = "Example:\n  longhaul paths show nlr-small > mine.toml")]
    Show {
        /// Path: a name from the list, or a path file
        path: String,
    },
}

pub(crate) fn run(args: Args) -> Outcome {
    match args.action {
        Some(Action::Show { path }) => show(&path),
        None => list(args.json),
    }
}

fn show(name: &str) -> Outcome {
    match preset::find(name) {
        // As it was written, with its comments.
        Some(preset) => print_text(preset.text),
        None => print_text(&preset::load(name).map_err(Failure::usage)?.to_toml()),
    }
    Ok(ExitCode::SUCCESS)
}

fn list(as_json: bool) -> Outcome {
    let specs = preset::list()
        .iter()
        .map(|preset| preset.spec().map_err(|error| Failure::new("preset", error)))
        .collect::<Result<Vec<_>, _>>()?;
    let [forward, backward] = Direction::BOTH;
    if as_json {
        let rows: Vec<_> = specs
            .iter()
            .map(|path| {
                json!({
                    "name": path.name,
                    "forward_delay_ns": path.one_way_delay(forward).0,
                    "backward_delay_ns": path.one_way_delay(backward).0,
                    "forward_rate_bps": path.bottleneck(forward).map(|rate| rate.0),
                    "backward_rate_bps": path.bottleneck(backward).map(|rate| rate.0),
                    "source": path.source,
                })
            })
            .collect();
        let now = jiff::Timestamp::now().to_string();
        print_json(&Envelope::new("longhaul.paths/1", now, json!({}), json!({ "paths": rows }), Vec::new()));
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = format!("{:<20} {:>15} {:>10}  {}\n", "path", "round trip", "rate", "source");
    for path in &specs {
        let rate = path.bottleneck(forward).map_or_else(|| "-".to_owned(), |rate| rate.to_string());
        text += &format!("{:<20} {:>15} {:>10}  {}\n", path.name, path.round_trip(), rate, path.source);
    }
    print_text(&text);
    Ok(ExitCode::SUCCESS)
}
