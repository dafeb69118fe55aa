//! `longhaul man`.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::CommandFactory;
use clap_mangen::Man;
use longhaul_kernel::new_file;

use crate::Cli;
use crate::output::saved::open_folder_at;
use crate::output::{Failure, Outcome};

/// Write man pages
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  longhaul man /usr/local/share/man/man1")]
pub(crate) struct Args {
    /// Write one page per command into this folder; create it if it is missing
    folder: PathBuf,
}

pub(crate) fn run(args: Args) -> Outcome {
    let unwritable = |error: io::Error| Failure::unwritable(&args.folder, error);
    let folder = open_folder_at(&args.folder).map_err(unwritable)?;
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    write_pages(command, &folder.path()).map_err(unwritable)?;
    Ok(ExitCode::SUCCESS)
}

/// As `clap_mangen::generate_to`, which follows links that another user put into the folder.
fn write_pages(command: clap::Command, folder: &Path) -> io::Result<()> {
    for shown in command.get_subcommands().filter(|command| !command.is_hide_set()) {
        write_pages(shown.clone(), folder)?;
    }
    let page = Man::new(command);
    let mut text = Vec::new();
    page.render(&mut text)?;
    new_file::write(&folder.join(page.get_filename()), text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Help is at most 100 columns wide (`Cli`): a longer example would be cut in two, and what is written in several lines would be
    /// broken in odd places.
    #[test]
    fn what_follows_the_options_has_lines_that_need_no_break() {
        fn check(command: &clap::Command, wrong: &mut Vec<String>) {
            let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            let indented = |line: &str| line.starts_with(' ');
            for (at, line) in lines.iter().enumerate() {
                let goes_on = |next: &&str| !next.is_empty() && !indented(next) && !line.is_empty() && !indented(line);
                if (indented(line) && line.chars().count() > 98) || lines.get(at + 1).is_some_and(goes_on) {
                    wrong.push(format!("{}: {line}", command.get_name()));
                }
            }
            command.get_subcommands().for_each(|command| check(command, wrong));
        }
        let mut wrong = Vec::new();
        check(&Cli::command(), &mut wrong);
        assert!(wrong.is_empty(), "{wrong:#?}");
    }
}
