//! `longhaul completion`.

mod words;

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
    /// The words of a command line before the one that is typed: print what it can be, a line each. For the shells' own use
    #[arg(last = true, hide = true)]
    words: Vec<String>,
}

pub(crate) fn run(args: Args) -> Outcome {
    if !args.words.is_empty() {
        let words: Vec<&str> = args.words.iter().map(String::as_str).collect();
        for word in words::after(&Cli::command(), &words) {
            print_text(&format!("{word}\n"));
        }
        return Ok(ExitCode::SUCCESS);
    }
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "longhaul", &mut script);
    print_text(&asking(args.shell, &String::from_utf8_lossy(&script)));
    Ok(ExitCode::SUCCESS)
}

/// `script` with what asks longhaul for words that it knows at the time alone: interfaces, labs and their hosts, congestion controls.
fn asking(shell: Shell, script: &str) -> String {
    match shell {
        Shell::Bash => {
            format!("{script}{}", include_str!("bash.sh"))
        }
        Shell::Zsh => {
            let ask = "_longhaul() {\n    local -a known\n    \
                known=(${(f)\"$(longhaul completion zsh -- \"${(@)words[2,CURRENT-1]}\" 2>/dev/null)\"})\n    \
                (( $#known )) && compadd -a known && return\n";
            script.replacen("_longhaul() {\n", ask, 1)
        }
        Shell::Fish => {
            let ask = "complete -c longhaul -a '(longhaul completion fish -- (commandline -opc)[2..] 2>/dev/null)'\n";
            format!("{script}{ask}")
        }
        _ => script.to_owned(),
    }
}
