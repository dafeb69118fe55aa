//! `longhaul filter status`: the paper's protocol tables.

use std::process::ExitCode;

use longhaul_bpf::filter::{
    Cast, Class, Filter, FilterCounters, FilterError, Generations, Reason, SizeRange, Tally, Verdicts,
};
use longhaul_filter::obstacles;
use longhaul_kernel::clock::monotonic;
use longhaul_kernel::link::{Link, Netlink};
use longhaul_kernel::signals::Stop;
use longhaul_kernel::wait::readable_until;
use longhaul_result::Caveat;
use longhaul_units::Nanos;
use serde::Serialize;
use serde_json::{Value, json};

use crate::cmd::filter::{failure, interface, no_link};
use crate::cmd::filter::{prometheus, text};
use crate::output::{Envelope, Failure, Outcome, print_caveats, print_json, print_text};

const SCHEMA: &str = "longhaul.filter.status/1";

/// Show what arrives, by protocol, by unicast, broadcast and multicast, by frame size; accepted and rejected by reason
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  longhaul filter status eth0
  longhaul filter status eth0 --watch 2s
  longhaul filter status eth0 --prometheus > /var/lib/node_exporter/longhaul.prom")]
pub(crate) struct Args {
    /// The interface
    #[arg(value_name = "INTERFACE")]
    interface: String,
    /// Again and again, each such time, until Ctrl-C or until the filter is gone
    #[arg(short = 'w', long, value_name = "TIME", num_args = 0..=1, default_missing_value = "1s")]
    watch: Option<Nanos>,
    /// Print JSON; with --watch an object a line
    #[arg(short = 'J', long, conflicts_with = "prometheus")]
    json: bool,
    /// Print Prometheus' text format
    #[arg(long, conflicts_with = "watch")]
    prometheus: bool,
}

pub(crate) fn run(args: Args) -> Outcome {
    let name = &args.interface;
    let (mut netlink, link) = interface(name)?;
    let filter = Filter::open(link.index).map_err(|error| failure(name, &error))?;
    let first = report(&mut netlink, &link, &filter)?;
    if args.prometheus {
        print_text(&prometheus::text(&first.result));
        return Ok(ExitCode::SUCCESS);
    }
    let Some(every) = args.watch else {
        if args.json {
            first.print_json()
        } else {
            first.print_text()
        }
        return Ok(ExitCode::SUCCESS);
    };
    if every < Nanos::from_millis(10) {
        return Err(Failure::usage(format!("--watch {every}: 10ms or more")));
    }
    let stop = Stop::install().map_err(|error| Failure::new("signals", error))?;
    // Who holds a filter keeps it, and it is to go with its own process.
    let program_id = filter.program_id();
    drop(filter);
    let mut next = first;
    let mut due = monotonic();
    let mut before: Option<(FilterCounters, Nanos)> = None;
    loop {
        let now = monotonic();
        if args.json {
            next.print_json();
        } else {
            let clear = if std::io::IsTerminal::is_terminal(&std::io::stdout()) { "\x1b[H\x1b[J" } else { "" };
            let before = before.as_ref().map(|(counters, then)| (counters, now.saturating_sub(*then)));
            print_text(&format!("{clear}{}\n", text::text(&next.result, before)));
            print_caveats(&next.caveats);
        }
        before = Some((next.result.counters.clone(), now));
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

/// A filter as it is now, and what it counted.
#[derive(Debug)]
pub(crate) struct Status {
    pub(crate) interface: String,
    pub(crate) ifindex: u32,
    pub(crate) mode: &'static str,
    pub(crate) not_native: Option<String>,
    pub(crate) enforces: bool,
    pub(crate) reverts_in: Option<Nanos>,
    pub(crate) kept: bool,
    pub(crate) judges: Value,
    pub(crate) addresses_current: bool,
    pub(crate) program_id: u32,
    pub(crate) counters: FilterCounters,
}

/// With what speaks against it.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) result: Status,
    started_at: String,
    caveats: Vec<Caveat>,
}

/// Asks the kernel.
pub(crate) fn report(netlink: &mut Netlink, link: &Link, filter: &Filter) -> Result<Report, Failure> {
    let name = &link.name;
    let failed = |error| failure(name, &error);
    let started_at = jiff::Timestamp::now().to_string();
    let settings = filter.settings().map_err(failed)?;
    let (judgement, told) = filter.followed().map_err(failed)?;
    let now = monotonic();
    let addresses_current = told == Generations::load().and_then(|generations| generations.now()).map_err(failed)?;
    let result = Status {
        interface: name.clone(),
        ifindex: link.index,
        mode: filter.mode().name(),
        not_native: filter.not_native().map(str::to_owned),
        enforces: settings.drops_at(now),
        reverts_in: settings.enforce_until.filter(|until| *until > now).map(|until| until.saturating_sub(now)),
        kept: filter.is_kept(),
        judges: json!({
            "ipv4_addresses": judgement.ipv4,
            "ipv6_addresses": judgement.ipv6,
            "arp": judgement.arp,
            "solicitations": judgement.solicitations,
            "ports": settings.judge_ports,
        }),
        addresses_current,
        program_id: filter.program_id(),
        counters: filter.counters().map_err(failed)?,
    };
    let mut caveats = Vec::new();
    let mut warn = |code: &str, message: String, remedy: String| {
        caveats.push(Caveat { code: code.into(), message, remedy });
    };
    if !addresses_current {
        warn(
            "addresses_old",
            "addresses or routes changed since the filter was told of them: what may be for a new one passes".into(),
            format!("longhaul filter follow {name}"),
        );
    }
    if settings.enforce && !settings.drops_at(now) {
        warn(
            "time_is_over",
            "it only counts, as nobody confirmed it in time".into(),
            format!("longhaul filter attach {name} --enforce"),
        );
    }
    if result.counters.lost_samples > 0 {
        warn(
            "samples_lost",
            format!("{} samples were lost, as they were read too seldom", result.counters.lost_samples),
            "sample fewer: --sample-every".into(),
        );
    }
    for obstacle in obstacles(netlink, link).map_err(|error| no_link(name, &error))? {
        warn(obstacle.code(), obstacle.message(name), obstacle.remedy());
    }
    Ok(Report { result, started_at, caveats })
}

impl Report {
    pub(crate) fn print_json(&self) {
        let parameters = json!({ "interface": self.result.interface });
        print_json(&Envelope::new(
            SCHEMA,
            self.started_at.clone(),
            parameters,
            self.result.json(),
            self.caveats.clone(),
        ));
    }

    pub(crate) fn print_text(&self) {
        print_text(&text::text(&self.result, None));
        print_caveats(&self.caveats);
    }
}

impl Status {
    fn json(&self) -> Value {
        let counters = &self.counters;
        let protocols: Vec<Value> = Class::ALL
            .iter()
            .map(|class| {
                let cast = |cast| verdicts(counters.protocol(*class, cast));
                json!({
                    "protocol": class.name(),
                    "unicast": cast(Cast::Unicast),
                    "multicast": cast(Cast::Multicast),
                    "broadcast": cast(Cast::Broadcast),
                })
            })
            .collect();
        let sizes: Vec<Value> = (SizeRange::ALL.iter().enumerate())
            .map(|(index, range)| {
                json!({
                    "least_bytes": range.least_bytes,
                    "most_bytes": range.most_bytes,
                    "frames": verdicts(counters.size(index)),
                })
            })
            .collect();
        let reasons = |rejects: bool| -> Vec<Value> {
            let these = Reason::ALL.iter().filter(|reason| reason.rejects() == rejects);
            these.map(|reason| json!({ "reason": reason.name(), "frames": tally(counters.reason(*reason)) })).collect()
        };
        json!({
            "interface": self.interface,
            "ifindex": self.ifindex,
            "program_id": self.program_id,
            "mode": self.mode,
            "not_native_because": self.not_native,
            "enforces": self.enforces,
            "reverts_in_ns": self.reverts_in.map(|time| time.0),
            "kept": self.kept,
            "judges": self.judges,
            "addresses_current": self.addresses_current,
            "total": verdicts(counters.total()),
            "dropped_packets": counters.dropped_packets,
            "lost_samples": counters.lost_samples,
            "protocols": protocols,
            "unicast": verdicts(counters.cast(Cast::Unicast)),
            "multicast": verdicts(counters.cast(Cast::Multicast)),
            "broadcast": verdicts(counters.cast(Cast::Broadcast)),
            "sizes": sizes,
            "accepted": reasons(false),
            "rejected": reasons(true),
        })
    }
}

#[derive(Debug, Serialize)]
struct TallyJson {
    packets: u64,
    bytes: u64,
}

fn tally(tally: Tally) -> TallyJson {
    TallyJson { packets: tally.packets, bytes: tally.bytes }
}

fn verdicts(verdicts: Verdicts) -> Value {
    json!({ "accepted": tally(verdicts.accepted), "rejected": tally(verdicts.rejected) })
}

/// Where it runs.
pub(crate) fn mode_in_words(filter: &Filter) -> String {
    match (filter.mode(), filter.not_native()) {
        (mode, None) => format!("{} XDP", mode.name()),
        (mode, Some(why)) => format!("{} XDP, as the driver does not take it ({why})", mode.name()),
    }
}
