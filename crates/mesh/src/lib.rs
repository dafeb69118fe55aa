//! `longhaul mesh`: sites that test each other all the time, and a coordinator that says who loses packets.
//!
//! A program of its own, as its database costs minutes of build: `longhaul mesh` starts it. What it decides is in `longhaul-mesh-model`; here are
//! sockets, clocks, the disk, and the `longhaul` that runs the tests.

/// A line on standard output, as `println!`, an empty one before it where the text begins with that. What a terminal would obey is left out: texts
/// of a store may come from anybody. A closed pipe is no error.
macro_rules! say {
    ($($argument:tt)*) => {{
        use std::io::Write;
        let _ = writeln!(std::io::stdout(), "{}", crate::shown_line(&format!($($argument)*)));
    }};
}

mod agent;
mod alarm;
mod beside;
mod caveats;
mod cmd;
mod coordinator;
mod delivery;
mod diagnoses;
mod error;
mod files;
mod folder;
mod judging;
mod link;
mod shares;
mod shown;
#[cfg(test)]
mod stolen;
pub mod store;
mod view;
pub mod web;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;
use longhaul_kernel::stderr_line;
use longhaul_units::without_controls;

/// Runs the command that `arguments` ask for.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    if arguments.get(1).is_some_and(|word| word == beside::WORD) {
        stderr_line!("longhaul mesh: {}", beside::become_program(&arguments[2..]));
        return ExitCode::FAILURE;
    }
    let cli = cmd::Cli::parse_from(arguments);
    match cmd::run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            stderr_line!("longhaul mesh: {}", without_controls(&failure.to_string()));
            ExitCode::FAILURE
        }
    }
}

fn shown_line(text: &str) -> String {
    let (before, line) = text.strip_prefix('\n').map_or(("", text), |line| ("\n", line));
    format!("{before}{}", without_controls(line).replace('\n', " "))
}
