//! `longhaul tune status`, `confirm` and `undo`.

use std::process::ExitCode;

use longhaul_tune::{Outcome as Became, PutBack, Status, confirm as keep, status as look, undo as put_back};
use serde::Serialize;

use crate::cmd::tune::{StateArgs, failure, text};
use crate::output::{Envelope, NothingAsked, Outcome, print_json, print_text};

/// Show the settings that were changed: their values before, then and now
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  longhaul tune status")]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    state: StateArgs,
    /// Print JSON
    #[arg(short = 'J', long)]
    json: bool,
}

/// Keep the settings that wait for a confirmation
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  longhaul tune confirm")]
pub(crate) struct ConfirmArgs {
    #[command(flatten)]
    state: StateArgs,
    /// Print JSON
    #[arg(short = 'J', long)]
    json: bool,
}

/// Restore the settings that were changed, and remove the files that apply them at boot
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  longhaul tune undo")]
pub(crate) struct UndoArgs {
    #[command(flatten)]
    state: StateArgs,
    /// Print JSON
    #[arg(short = 'J', long)]
    json: bool,
}

/// What `tune status` prints.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Shown {
    /// The file that remembers what was before.
    state: String,
    /// The changed settings; `None` where there are none.
    changed: Option<Status>,
}

/// What `tune confirm` prints.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Confirmed {
    /// The files that apply the settings at boot; empty without `--persist`.
    drop_ins: Vec<String>,
}

/// What `tune undo` prints.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Undone {
    /// What became of each setting and file.
    put_back: Vec<PutBack>,
}

fn now() -> String {
    jiff::Timestamp::now().to_string()
}

pub(crate) fn status(args: StatusArgs) -> Outcome {
    let store = args.state.store()?;
    let changed = look(&store).map_err(|error| failure(&error))?;
    if args.json {
        let result = Shown { state: store.file().display().to_string(), changed };
        print_json(&Envelope::new("longhaul.tune.status/1", now(), NothingAsked {}, result, Vec::new()));
    } else {
        print_text(&text::status(changed.as_ref()));
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn confirm(args: ConfirmArgs) -> Outcome {
    let drop_ins = keep(&args.state.store()?).map_err(|error| failure(&error))?;
    if args.json {
        print_json(&Envelope::new(
            "longhaul.tune.confirm/1",
            now(),
            NothingAsked {},
            Confirmed { drop_ins },
            Vec::new(),
        ));
    } else {
        print_text("the settings are kept; `longhaul tune undo` puts them back\n");
        drop_ins.iter().for_each(|file| print_text(&format!("wrote {file}\n")));
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn undo(args: UndoArgs) -> Outcome {
    let put_back = put_back(&args.state.store()?, &mut || {}).map_err(|error| failure(&error))?;
    let failed = put_back.iter().any(|one| one.outcome == Became::Failed);
    if args.json {
        print_json(&Envelope::new("longhaul.tune.undo/1", now(), NothingAsked {}, Undone { put_back }, Vec::new()));
    } else {
        print_text(&text::put_back(&put_back));
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
