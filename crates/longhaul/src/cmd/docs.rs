//! `longhaul docs`: the pages of the manual, as they were when this binary was made.

use std::process::ExitCode;

use longhaul_units::nearest;

use crate::output::{Failure, Outcome, print_text};

/// Print a page of the manual
///
/// The pages are those of the version that runs. Without a topic, lists them.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  longhaul docs udp-results | less")]
pub(crate) struct Args {
    /// Page, such as udp-results [default: a list of all]
    #[arg(value_name = "TOPIC")]
    topic: Option<String>,
}

macro_rules! pages {
    ($($folder:literal: $($name:literal)*;)*) => {
        &[$($(($name, include_str!(concat!("../../../../docs/", $folder, "/", $name, ".md"))),)*)*]
    };
}

/// The pages of the reference, then those of how-to, with their names. A test compares them with the folders.
pub(crate) const PAGES: &[(&str, &str)] = pages! {
    "reference":
        "analyze-results" "caveats" "compare-results" "congestion-controls" "diagnosis" "experiments" "faults" "filter" "header-log"
        "json" "labs" "log-link" "loss-locations" "mix" "path-files" "presets" "profile" "rtt-log" "rtt-results" "sweep-results" "tcp-results"
        "tune" "udp-results" "watch-results";
    "how-to":
        "congestion-control" "copy-a-path" "experiment" "from-iperf3" "logging-host" "long-path" "mesh" "record-a-day" "round-trips" "services" "slow-transfer"
        "two-captures" "udp-loss";
};

pub(crate) fn run(args: Args) -> Outcome {
    let Some(topic) = args.topic else {
        for (name, text) in PAGES {
            print_text(&format!("{name:<20} {}\n", title(text)));
        }
        return Ok(ExitCode::SUCCESS);
    };
    let name = topic.trim_end_matches(".md").rsplit('/').next().unwrap_or_default();
    let Some((_, text)) = PAGES.iter().find(|(known, _)| *known == name) else {
        let meant = nearest(name, PAGES.iter().map(|(name, _)| *name));
        let remedy =
            meant.map_or_else(|| "`longhaul docs` lists them".into(), |meant| format!("did you mean {meant}?"));
        return Err(Failure::usage(format!("{topic}: no such page")).remedy(remedy));
    };
    print_text(text);
    Ok(ExitCode::SUCCESS)
}

/// The first heading.
fn title(text: &str) -> &str {
    text.lines().find_map(|line| line.strip_prefix("# ")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    /// `filter` and `tune` are in both folders: the reference has them. What `commands.md` says each command's help says, too.
    #[test]
    fn all_pages_of_the_reference_and_of_how_to_are_there() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        let mut files = BTreeSet::new();
        for folder in ["reference", "how-to"] {
            for file in std::fs::read_dir(docs.join(folder)).unwrap() {
                let name = file.unwrap().file_name().into_string().unwrap();
                files.extend(
                    name.strip_suffix(".md").filter(|name| !["index", "commands"].contains(name)).map(str::to_owned),
                );
            }
        }
        let known: BTreeSet<String> = PAGES.iter().map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(known, files);
        assert!(PAGES.iter().all(|(_, text)| !title(text).is_empty()));
    }
}
