//! `longhaul filter status`.

use std::io::Write;
use std::process::ExitCode;

use longhaul_bpf::filter::{Filter, FilterCounters, FilterError};
use longhaul_filter::{FilterStatus, StatusError};
use longhaul_kernel::clock::monotonic;
use longhaul_kernel::link::{Link, Netlink};
use longhaul_kernel::signals::Stop;
use longhaul_kernel::wait::readable_until;
use longhaul_result::Caveat;
use longhaul_units::Nanos;
use serde::Serialize;

use crate::cmd::filter::{failure, interface, no_link};
use crate::cmd::filter::{prometheus, text};
use crate::output::{Envelope, Failure, Outcome, print_caveats, print_json, print_text};

const SCHEMA: &str = "longhaul.filter.status/1";

/// Show received frames by protocol, destination (unicast, multicast, broadcast), size, and reason to accept or reject
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  longhaul filter status eth0
  longhaul filter status eth0 -i 2s
  longhaul filter status eth0 --prometheus > /var/lib/node_exporter/longhaul.prom")]
pub(crate) struct Args {
    /// Show the filter at this interface
    #[arg(value_name = "INTERFACE")]
    interface: String,
    /// Report every TIME until Ctrl-C or until the filter is detached
    #[arg(short, long, value_name = "TIME", value_parser = crate::args::interval::interval)]
    interval: Option<Nanos>,
    /// Print JSON; with --interval one object a line
    #[arg(short = 'J', long, conflicts_with = "prometheus")]
    json: bool,
    /// Print the text format of Prometheus
    #[arg(long, conflicts_with = "interval")]
    prometheus: bool,
}

pub(crate) fn run(args: Args) -> Outcome {
    let name = &args.interface;
    let (mut netlink, link) = interface(name)?;
    let filter = Filter::open(link.index).map_err(|error| failure(name, &error))?;
    let first = report(&mut netlink, &link, &filter)?;
    if args.prometheus {
        print_text(&prometheus::text(&first.status));
        return Ok(ExitCode::SUCCESS);
    }
    let Some(every) = args.interval else {
        if args.json {
            first.print_json()
        } else {
            first.print_text()
        }
        return Ok(ExitCode::SUCCESS);
    };
    if every < Nanos::from_millis(10) {
        return Err(Failure::usage(format!("--interval {every}: 10ms or more")));
    }
    let stop = Stop::install().map_err(|error| Failure::new("signals", error))?;
    // Holding the filter would keep it alive beyond the process that attached it.
    let program_id = filter.program_id();
    drop(filter);
    let mut next = first;
    let mut due = monotonic();
    let mut before: Option<(FilterCounters, Nanos)> = None;
    loop {
        let now = monotonic();
        let counters = next.status.counters.clone();
        if args.json {
            next.print_json();
        } else {
            if std::io::IsTerminal::is_terminal(&std::io::stdout()) {
                let _ = std::io::stdout().write_all(b"\x1b[H\x1b[J");
            }
            let before = before.as_ref().map(|(counters, then)| (counters, now.saturating_sub(*then)));
            print_text(&format!("{}\n", text::text(&next.status, before)));
            print_caveats(&next.caveats);
        }
        before = Some((counters, now));
        due += every;
        if readable_until(stop, Some(due)).map_err(|error| Failure::new("wait", error))? {
            return Ok(ExitCode::SUCCESS);
        }
        let filter = match Filter::open(link.index) {
            Ok(filter) if filter.program_id() == program_id => filter,
            Ok(_) | Err(FilterError::NotThere { .. } | FilterError::OtherProgram { .. }) => {
                return Ok(ExitCode::SUCCESS);
            }
            Err(error) => return Err(failure(name, &error)),
        };
        next = report(&mut netlink, &link, &filter)?;
    }
}

/// A filter's status, when it was read, and its caveats.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) status: FilterStatus,
    started_at: String,
    caveats: Vec<Caveat>,
}

/// What was asked, as the result has it.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Parameters<'a> {
    /// Its name.
    interface: &'a str,
}

/// Asks the kernel.
pub(crate) fn report(netlink: &mut Netlink, link: &Link, filter: &Filter) -> Result<Report, Failure> {
    let started_at = jiff::Timestamp::now().to_string();
    let (status, caveats) = FilterStatus::read(netlink, link, filter).map_err(|error| not_read(&link.name, error))?;
    Ok(Report { status, started_at, caveats })
}

/// Why the status of the filter at interface `name` could not be read.
pub(crate) fn not_read(name: &str, error: StatusError) -> Failure {
    match error {
        StatusError::Filter(error) => failure(name, &error),
        StatusError::Link(error) => no_link(name, &error),
    }
}

impl Report {
    pub(crate) fn print_json(self) {
        let Self { status, started_at, caveats } = self;
        print_json(&Envelope::new(SCHEMA, started_at, Parameters { interface: &status.interface }, &status, caveats));
    }

    pub(crate) fn print_text(&self) {
        print_text(&text::text(&self.status, None));
        print_caveats(&self.caveats);
    }
}

/// Where it runs.
pub(crate) fn mode_in_words(filter: &Filter) -> String {
    match (filter.mode(), filter.not_native()) {
        (mode, None) => format!("{} XDP", mode.name()),
        (mode, Some(why)) => format!("{} XDP, as the driver does not take it ({why})", mode.name()),
    }
}
