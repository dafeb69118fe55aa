//! `longhaul completion`.

use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::Cli;
use crate::output::{Outcome, print_text};

/// Print shell completions
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  longhaul completion bash > /etc/bash_completion.d/longhaul")]
pub(crate) struct Args {
    /// Print them for this shell
    #[arg(value_enum)]
    shell: Shell,
}

pub(crate) fn run(args: Args) -> Outcome {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "longhaul", &mut text);
    print_text(&String::from_utf8_lossy(&text));
    Ok(ExitCode::SUCCESS)
}
