//! `longhaul report`.

use std::path::PathBuf;
use std::process::ExitCode;

use longhaul_report::saved::Saved;
use longhaul_report::side_by_side::{SavedExperiment, SideBySide};
use serde::Serialize;

use crate::cmd::show::shown;
use crate::output::overwrite::Overwrite;
use crate::output::saved::{no_result, read_result};
use crate::output::{Envelope, Failure, Outcome, OutputFile, print_json, print_text, with_flags};

/// Show saved results of experiments, or compare several
///
/// With one result, shows its tables or its page. With several, compares each point of the first with the same point of the others:
/// means, and the difference with its 95 % interval. Use it to compare two kernels, two machines, or before and after a change.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  longhaul report results --html page.html          # the page of a result
  longhaul report before after                      # what differs by more than chance
  longhaul report before after --markdown           # for an issue or a wiki")]
pub(crate) struct Args {
    /// Read these folders that `longhaul lab run -o` wrote, or files that its --json printed; with --html also one result that `longhaul show` shows
    #[arg(value_name = "FILE|DIR", required = true, num_args = 1..=16)]
    results: Vec<PathBuf>,
    /// Print a table of Markdown
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
    /// Write a page of HTML
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    html: Option<OutputFile>,
    #[command(flatten)]
    overwrite: Overwrite,
    /// Print JSON
    #[arg(short = 'J', long)]
    json: bool,
}

/// `parameters` of the result.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Parameters<'a> {
    /// What was read.
    results: &'a [PathBuf],
}

pub(crate) fn run(args: Args) -> Outcome {
    args.overwrite.file(args.html.as_deref())?;
    let parsed = |path: &PathBuf, (file, text): (PathBuf, String)| {
        let saved = SavedExperiment::parse(&text).map_err(|error| {
            no_result(&file, error)
                .remedy("give a folder that `longhaul lab run -o` wrote; `longhaul show` shows others")
        })?;
        Ok::<_, Failure>((path.display().to_string(), saved))
    };
    let saved = match &args.results[..] {
        [path] => {
            let (file, text) = read_result(path)?;
            // Of other commands there is a page, too.
            if args.html.is_some()
                && !args.markdown
                && let Ok(saved) = Saved::parse(&text)
            {
                return shown(&file, &text, &saved, (args.html.as_ref(), args.overwrite), args.json);
            }
            vec![parsed(path, (file, text))?]
        }
        several => several.iter().map(|path| parsed(path, read_result(path)?)).collect::<Result<Vec<_>, _>>()?,
    };
    let beside = SideBySide::of(&saved).map_err(|error| Failure::new("not_compared", error))?;
    let several = saved.len() > 1;
    if let Some(file) = &args.html {
        let page = if several { beside.to_html() } else { saved[0].1.to_html() };
        file.write(&with_flags(&page), args.overwrite)?;
    }
    if args.json {
        let parameters = Parameters { results: &args.results };
        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        print_json(&Envelope::new("longhaul.report/1", now, parameters, &beside, Vec::new()));
    } else if args.markdown {
        print_text(&beside.markdown());
    } else if several {
        print_text(&beside.text());
    } else {
        print_text(&saved[0].1.text());
    }
    Ok(ExitCode::SUCCESS)
}
