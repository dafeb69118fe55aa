//! `longhaul`: where does the throughput of a long fat network go?
//!
//! This file only dispatches: each command has a module in `cmd/` with its arguments and what it does.

mod args;
mod captures;
mod caveats;
mod cmd;
mod output;
mod version;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::output::Failure;

/// Finds out where the throughput of a long fat network goes
#[derive(Debug, Parser)]
#[command(
    name = "longhaul",
    version = version::SHORT,
    long_version = version::LONG.as_str(),
    max_term_width = 100,
    disable_help_subcommand = true,
    arg_required_else_help = false,
    // As clap has it, without its own two options: all commands are to fit a screen.
    help_template = "{about}\n\n{usage-heading} {usage}    (longhaul COMMAND --help has the rest)\n\nCommands:\n{subcommands}\n\
        For your shell and `man`: longhaul completion SHELL, longhaul man FOLDER\n"
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure UDP to a host, and where each lost packet was lost
    Udp(cmd::udp::Args),
    /// Measure TCP to a host: how fast, what limits it, where it loses bytes
    Tcp(cmd::tcp::Args),
    /// Load congestion controls that the kernel lacks; what each holds and how it recovers
    Cc(cmd::cc::Args),
    /// Watch TCP connections of other programs: how fast, what limits them
    Watch(cmd::watch::Args),
    /// Record packet headers at wire rate, and count every dropped packet
    Capture(cmd::capture::Args),
    /// Receive and store the packet headers that captures on other hosts send
    Log(cmd::log::Args),
    /// Turn captures into header logs (Parquet), pcap and pcapng, and back
    Convert(cmd::convert::Args),
    /// Tell what each flow of a capture did, and what limits it
    Analyze(cmd::analyze::Args),
    /// Compare two captures: what the path between them did, or whether they behave alike
    Compare(cmd::compare::Args),
    /// Keep frames that are for others away from the stack; see what arrives
    Filter(cmd::filter::Args),
    /// Send what a network carries: frames of many kinds, most of them for others
    Mix(cmd::mix::Args),
    /// Run programs on hosts of this machine with an emulated path between them
    Lab(cmd::lab::Args),
    /// Emulate a path between two interfaces
    Emulate(cmd::emulate::Args),
    /// List the preset paths
    Paths(cmd::paths::Args),
    /// Show a saved result as the test printed it
    Show(cmd::show::Args),
    /// Answer tests from others
    Serve(cmd::serve::Args),
    /// Show how this host is set up, as far as long fat networks care
    Host(cmd::host::Args),
    /// Make keys for tests beyond this machine
    Key(cmd::key::Args),
    /// Print shell completions
    #[command(hide = true)]
    Completion(cmd::completion::Args),
    /// Write man pages
    #[command(hide = true)]
    Man(cmd::man::Args),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return output::usage(&error),
    };
    let done = match cli.command {
        Command::Udp(args) => cmd::udp::run(args),
        Command::Tcp(args) => cmd::tcp::run(args),
        Command::Cc(args) => cmd::cc::run(args),
        Command::Watch(args) => cmd::watch::run(args),
        Command::Capture(args) => cmd::capture::run(args),
        Command::Log(args) => cmd::log::run(args),
        Command::Convert(args) => cmd::convert::run(args),
        Command::Filter(args) => cmd::filter::run(args),
        Command::Analyze(args) => cmd::analyze::run(args),
        Command::Compare(args) => cmd::compare::run(args),
        Command::Show(args) => cmd::show::run(args),
        Command::Serve(args) => cmd::serve::run(args),
        Command::Host(args) => cmd::host::run(args),
        Command::Key(args) => cmd::key::run(args),
        Command::Emulate(args) => cmd::emulate::run(args),
        Command::Mix(args) => cmd::mix::run(args),
        Command::Lab(args) => cmd::lab::run(args),
        Command::Paths(args) => cmd::paths::run(args),
        Command::Completion(args) => cmd::completion::run(args),
        Command::Man(args) => cmd::man::run(args),
    };
    done.unwrap_or_else(Failure::report)
}
