//! `longhaul docs`: the pages of the manual, as they were when this binary was made.

use std::io::Read;
use std::iter;
use std::process::ExitCode;

use flate2::read::GzDecoder;
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

/// The pages of the reference, then those of how-to: name and text of each, followed by a zero (`build.rs`).
const MANUAL: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/manual.gz"));

/// Name and text of each page.
pub(crate) fn pages() -> Vec<(String, String)> {
    let mut text = String::new();
    // This binary has it from its build.
    let _ = GzDecoder::new(MANUAL).read_to_string(&mut text);
    let mut fields = text.split_terminator('\0').map(str::to_owned);
    iter::from_fn(|| fields.next().zip(fields.next())).collect()
}

pub(crate) fn run(args: Args) -> Outcome {
    let pages = pages();
    let Some(topic) = args.topic else {
        for (name, text) in &pages {
            print_text(&format!("{name:<20} {}\n", title(text)));
        }
        return Ok(ExitCode::SUCCESS);
    };
    let name = topic.trim_end_matches(".md").rsplit('/').next().unwrap_or_default();
    let Some((_, text)) = pages.iter().find(|(known, _)| known == name) else {
        let meant = nearest(name, pages.iter().map(|(name, _)| name.as_str()));
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

    /// `filter` and `tune` are in both folders: the reference has them. What the pages of commands say, `--help` says, too.
    #[test]
    fn all_pages_of_the_reference_and_of_how_to_are_there() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        let mut files = BTreeSet::new();
        for folder in ["reference", "how-to"] {
            for file in std::fs::read_dir(docs.join(folder)).unwrap() {
                let name = file.unwrap().file_name().into_string().unwrap();
                let is_in_manual = |name: &&str| !["index", "commands", "mesh-commands"].contains(name);
                files.extend(name.strip_suffix(".md").filter(is_in_manual).map(str::to_owned));
            }
        }
        let pages = pages();
        let known: BTreeSet<String> = pages.iter().map(|(name, _)| name.clone()).collect();
        assert_eq!(known, files);
        assert!(pages.iter().all(|(_, text)| !title(text).is_empty()));
    }
}
