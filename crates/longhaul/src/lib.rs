//! `longhaul`: where does the throughput of a long fat network go?
//!
//! This file only dispatches: each command has a module in `cmd/` with its arguments and what it does. It is a library of one function,
//! so that `fuzz/` runs whole commands in a process of its own.

mod args;
mod captures;
mod caveats;
mod cmd;
mod output;
#[cfg(test)]
mod schemas;
mod version;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Find out where the throughput of a long fat network goes
#[derive(Debug, Parser)]
#[command(
    name = "longhaul",
    version = version::SHORT,
    long_version = version::LONG.as_str(),
    max_term_width = 100,
    disable_help_subcommand = true,
    arg_required_else_help = false,
    // clap's template without its own two options, so that all commands fit a screen.
    help_template = "{about}\n\n{usage-heading} {usage}    (longhaul COMMAND --help lists options)\n\nCommands:\n{subcommands}\n\
        Manual, completions, man pages: longhaul docs, longhaul completion SHELL, longhaul man FOLDER\n"
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// The help of a command is the text of its `Args`: a text here would replace all of it.
#[derive(Debug, Subcommand)]
enum Command {
    Diagnose(cmd::diagnose::Args),
    Udp(cmd::udp::Args),
    Tcp(cmd::tcp::Args),
    Rtt(cmd::rtt::Args),
    Sweep(cmd::sweep::Args),
    Cc(cmd::cc::Args),
    Watch(cmd::watch::Args),
    Capture(cmd::capture::Args),
    Log(cmd::log::Args),
    Convert(cmd::convert::Args),
    Analyze(cmd::analyze::Args),
    Compare(cmd::compare::Args),
    Filter(cmd::filter::Args),
    Mix(cmd::mix::Args),
    Mesh(cmd::mesh::Args),
    Lab(cmd::lab::Args),
    Emulate(cmd::emulate::Args),
    Paths(cmd::paths::Args),
    Profile(cmd::profile::Args),
    Verify(cmd::verify::Args),
    Show(cmd::show::Args),
    Report(cmd::report::Args),
    Serve(cmd::serve::Args),
    Host(cmd::host::Args),
    Tune(cmd::tune::Args),
    Pace(cmd::pace::Args),
    Key(cmd::key::Args),
    #[command(hide = true)]
    Completion(cmd::completion::Args),
    #[command(hide = true)]
    Man(cmd::man::Args),
    #[command(hide = true)]
    Docs(cmd::docs::Args),
}

/// Runs the command that `arguments` ask for, the first of which is the program's name, and prints what comes of it.
pub fn run(arguments: Vec<OsString>) -> ExitCode {
    let json = output::json_asked(&arguments);
    let cli = match Cli::try_parse_from(&arguments) {
        Ok(cli) => cli,
        Err(error) => return output::usage(&error, &arguments, json),
    };
    let done = match cli.command {
        Command::Diagnose(args) => cmd::diagnose::run(args),
        Command::Udp(args) => cmd::udp::run(args),
        Command::Tcp(args) => cmd::tcp::run(args),
        Command::Rtt(args) => cmd::rtt::run(args),
        Command::Sweep(args) => cmd::sweep::run(args),
        Command::Cc(args) => cmd::cc::run(args),
        Command::Watch(args) => cmd::watch::run(args),
        Command::Capture(args) => cmd::capture::run(args),
        Command::Log(args) => cmd::log::run(args),
        Command::Convert(args) => cmd::convert::run(args),
        Command::Filter(args) => cmd::filter::run(args),
        Command::Analyze(args) => cmd::analyze::run(args),
        Command::Compare(args) => cmd::compare::run(args),
        Command::Show(args) => cmd::show::run(args),
        Command::Report(args) => cmd::report::run(args),
        Command::Serve(args) => cmd::serve::run(args),
        Command::Host(args) => cmd::host::run(args),
        Command::Tune(args) => cmd::tune::run(args),
        Command::Pace(args) => cmd::pace::run(args),
        Command::Key(args) => cmd::key::run(args),
        Command::Emulate(args) => cmd::emulate::run(args),
        Command::Mix(args) => cmd::mix::run(args),
        Command::Mesh(args) => cmd::mesh::run(args),
        Command::Lab(args) => cmd::lab::run(args),
        Command::Profile(args) => cmd::profile::run(args),
        Command::Verify(args) => cmd::verify::run(args),
        Command::Paths(args) => cmd::paths::run(args),
        Command::Completion(args) => cmd::completion::run(args),
        Command::Man(args) => cmd::man::run(args),
        Command::Docs(args) => cmd::docs::run(args),
    };
    match (done, output::lost()) {
        (Ok(_), Some(lost)) => lost.report_beside(),
        (Ok(code), None) => code,
        (Err(failure), _) => failure.report(json),
    }
}
