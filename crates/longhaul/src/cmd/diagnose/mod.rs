//! `longhaul diagnose`.

mod before;
mod counted;
mod disk;
mod long_path;
mod observed;
mod steps;
mod trace;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use longhaul_diagnosis::plan::{self, Asked, Program, Step};
use longhaul_diagnosis::{Diagnosed, Evidence, HostFacts, Run, diagnose, host_facts};
use longhaul_host::HostSnapshot;
use longhaul_kernel::signals::Stop;
use longhaul_peer::client;
use longhaul_report::html::AboutHost;
use longhaul_report::html::diagnosed::Report;
use longhaul_report::saved::{DIAGNOSE_SCHEMA, DiagnoseAsked};
use longhaul_report::text;
use longhaul_result::Caveat;
use longhaul_terms::Directions;
use longhaul_units::{BitRate, Bytes, Nanos};
use serde::Deserialize;
use serde_json::Value;

use crate::args::quantity::seconds;
use crate::caveats;
use crate::cmd::test::Reach;
use crate::output::overwrite::Overwrite;
use crate::output::saved::Folder;
use crate::output::{Envelope, Failure, Outcome, OutputFile, exit_code, print_result, report_unwritten, say};

/// More tests than any plan has.
const MOST_STEPS: usize = 32;
/// Of these, tests that are repeated as a hypervisor took the CPUs away.
const MOST_REPEATS: usize = 3;

const EXAMPLES: &str = "\
Example:
  longhaul diagnose server --rate 10G                  # where is my throughput to server?
  longhaul diagnose server --rate 10G -R               # and from it?
  longhaul diagnose server --size 20M -o monday        # transfers of 20 MiB; keep the answer
  longhaul diagnose server --size 20M --every 5s       # over one connection, with pauses
  longhaul diagnose server --read big.tar              # is it the disk?
  longhaul diagnose server --before monday             # did the change bring what was promised?
  longhaul diagnose server --html page.html            # limits as bars beside the target
  longhaul diagnose server --gentle                    # on a path that others use
  longhaul diagnose server --rate 10G --rtt 150ms      # good enough for a long path?
  longhaul diagnose -- curl -O https://example.org/a   # without a test: why is this slow?
  longhaul diagnose --watch 4711 -t 10s --rate 10G     # the connections of a process
  longhaul diagnose trace monday.pcapng                # the connections of a capture

It changes nothing on either host. A test loads the path with up to the target's rate, unless --gentle is given; --watch, COMMAND \
and trace load nothing. The exit code of a COMMAND is that of `longhaul watch`. \
`longhaul docs diagnosis` explains each cause and how it is found.";

/// Find what limits throughput to a host: causes, what each costs, what to do
#[derive(Debug, clap::Args)]
#[command(
    after_help = EXAMPLES,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    mut_arg("host", |host| host.index(1).required(false).required_unless_present("observed")),
)]
pub(crate) struct Args {
    #[command(subcommand)]
    captured: Option<Captured>,
    #[command(flatten)]
    reach: Option<Reach>,
    /// Diagnose connections of this process and its descendants, without a test
    #[arg(long, value_name = "PID", group = "observed", conflicts_with = "Reach")]
    watch: Option<u32>,
    /// Run this command, and diagnose its connections, without a test
    #[arg(last = true, index = 2, value_name = "COMMAND", group = "observed", conflicts_with_all = ["Reach", "time"])]
    command: Vec<String>,
    /// Diagnose the direction from the server to the client
    #[arg(short = 'R', long, conflicts_with = "observed")]
    reverse: bool,
    /// Diagnose both directions, one after the other
    #[arg(long, conflicts_with_all = ["reverse", "observed"])]
    bidir: bool,
    /// Expect this rate of the path, on the wire [default: the slowest link of both hosts, or what UDP carries]
    #[arg(long, value_name = "RATE")]
    rate: Option<BitRate>,
    /// Test whether this short path is good enough to be part of a path with this round trip: losses rare enough, queues long enough
    /// (RFC 8337; needs --rate)
    #[arg(long, value_name = "TIME", requires = "rate", conflicts_with_all = ["observed", "bidir", "size", "before", "html", "gentle"])]
    rtt: Option<Nanos>,
    /// Take about this time for each direction [default: 60s]; with --watch, watch for this time [default: until Ctrl-C]
    #[arg(short = 't', long, value_name = "TIME", value_parser = seconds)]
    time: Option<Nanos>,
    /// Also diagnose transfers of this size
    #[arg(long, value_name = "SIZE", conflicts_with = "observed")]
    size: Option<Bytes>,
    /// Send the transfers of --size over one connection, one every TIME
    #[arg(long, value_name = "TIME", requires = "size", conflicts_with_all = ["observed", "gentle"])]
    every: Option<Nanos>,
    /// Also measure how fast this host's disk reads FILE
    #[arg(long, value_name = "FILE", conflicts_with_all = ["observed", "reverse", "rtt"])]
    read: Option<PathBuf>,
    /// Also measure how fast this host's disk writes into DIR (with -R or --bidir; at most 4 GiB, which it then removes)
    #[arg(long, value_name = "DIR", conflicts_with_all = ["observed", "rtt"])]
    write: Option<PathBuf>,
    /// Diagnose flows with this congestion control [default: the sender's]
    #[arg(short = 'C', long, value_name = "NAME", conflicts_with = "observed")]
    congestion: Option<String>,
    /// Limit writing to this rate, to imitate my program
    #[arg(short = 'b', long, value_name = "RATE", conflicts_with = "observed")]
    write_rate: Option<BitRate>,
    /// Limit reading to this rate, to imitate my program
    #[arg(long, value_name = "RATE", conflicts_with = "observed")]
    read_rate: Option<BitRate>,
    /// Set the socket buffers to this size, to imitate my program
    #[arg(short = 'w', long, value_name = "SIZE", conflicts_with = "observed")]
    window: Option<Bytes>,
    /// Use at most a tenth of the target rate (finds fewer causes)
    #[arg(long, conflicts_with = "observed")]
    gentle: bool,
    /// Compare with an earlier answer: a folder of -o or a file of --json
    #[arg(long, value_name = "FILE|DIR", conflicts_with = "observed")]
    before: Option<PathBuf>,
    /// Draw the answer in this HTML file
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    html: Option<OutputFile>,
    /// Save the answer with all its evidence in this folder
    #[arg(short = 'o', long, value_name = "DIR")]
    output: Option<PathBuf>,
    #[command(flatten)]
    overwrite: Overwrite,
    /// Print JSON
    #[arg(short = 'J', long)]
    json: bool,
}

/// Connections of captures.
#[derive(Debug, clap::Subcommand)]
enum Captured {
    Trace(trace::Args),
}

/// The time of the tests of a direction, if none is named.
const TEST_TIME: Nanos = Nanos::from_secs(60);

pub(crate) fn run(args: Args) -> Outcome {
    match (&args.captured, &args.reach) {
        (Some(Captured::Trace(trace)), _) => trace::run(trace),
        (None, Some(reach)) => args.rtt.map_or_else(|| tests(&args, reach), |rtt| long_path::run(&args, reach, rtt)),
        (None, None) => observed::run(&args),
    }
}

/// Diagnoses by tests with a server.
fn tests(args: &Args, reach: &Reach) -> Outcome {
    let target = reach.target()?;
    let time = args.time.unwrap_or(TEST_TIME);
    if time < Nanos::from_secs(5) || time > Nanos::from_secs(3600) {
        return Err(Failure::usage(format!("--time {time}: from 5 s to 1 hour")));
    }
    if args.write.is_some() && !args.reverse && !args.bidir {
        return Err(Failure::usage(
            "--write: this host writes what it receives: give -R or --bidir, or run diagnose at the other host",
        ));
    }
    let asked = asked(args, time, reach, target.address);
    let before = args.before.as_deref().map(|path| before::earlier(path, &asked, args.bidir)).transpose()?;
    args.overwrite.file(args.html.as_deref())?;
    let folder = args.output.clone().map(|folder| Folder::prepare(folder, args.overwrite)).transpose()?;
    let started_at = jiff::Timestamp::now().to_string();
    let stop = Stop::install().map_err(|error| Failure::new("signals", error))?;
    let (mut caveats, mut are_whole) = (Vec::new(), true);
    let mut diagnosed = |backward: bool| -> Result<Diagnosed, Failure> {
        let evidence = measure(args, time, &target, backward, stop, (&mut caveats, &mut are_whole))?;
        let diagnosis = diagnose(&evidence);
        let before = before.as_ref().and_then(|before| before.beside(backward, &diagnosis));
        Ok(Diagnosed { diagnosis, before, evidence })
    };
    let results = match (args.reverse, args.bidir) {
        (_, true) => Directions::Both { forward: Box::new(diagnosed(false)?), backward: Box::new(diagnosed(true)?) },
        (backward, false) => Directions::One(Box::new(diagnosed(backward)?)),
    };
    Stop::release();
    if stop.requested().is_some() {
        let message = "the diagnosis was interrupted before its end";
        caveats.push(Caveat::new(caveats::INTERRUPTED, message, "let it run to its end"));
    }
    let envelope = Envelope::new(DIAGNOSE_SCHEMA, started_at, asked, results, Caveat::unique(caveats));
    let saved = folder.map_or(Ok(()), |folder| folder.save(&envelope));
    let html = args.html.as_ref();
    let drawn = html.map_or(Ok(()), |file| file.write(&page(&envelope), args.overwrite));
    print_result(&envelope, args.json, |results| text::diagnose::report(envelope.parameters.reverse, results));
    if let Some(failed) = report_unwritten([saved, drawn]) {
        return Ok(failed);
    }
    let otherwise = if are_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    Ok(stop.requested().map_or(otherwise, |signal| ExitCode::from(exit_code(signal))))
}

fn page(envelope: &Envelope<DiagnoseAsked, Directions<Diagnosed>>) -> String {
    let asked = &envelope.parameters;
    Report::of(AboutHost::of(&asked.host, envelope), asked.reverse, &envelope.result).html()
}

fn asked(args: &Args, time: Nanos, reach: &Reach, address: SocketAddr) -> DiagnoseAsked {
    DiagnoseAsked {
        address,
        host: reach.host.clone(),
        reverse: args.reverse,
        rate_bps: args.rate.map(|rate| rate.0),
        time_ns: time.0,
        size_bytes: args.size.map(|size| size.0),
        every_ns: args.every.map(|every| every.0),
        congestion_control: args.congestion.clone(),
        gentle: args.gentle,
    }
}

/// Runs one test after the other, as the plan says, until nothing more would tell, or a signal ends it. Adds their caveats. Where the sender of one
/// stopped early, they are not whole.
fn measure(
    args: &Args,
    time: Nanos,
    target: &client::Target,
    backward: bool,
    stop: Stop,
    (caveats, are_whole): (&mut Vec<Caveat>, &mut bool),
) -> Result<Evidence, Failure> {
    let asked = Asked {
        time_ns: time.0,
        size_bytes: args.size.map(|size| size.0),
        every_ns: args.every.map(|every| every.0),
        gentle: args.gentle,
        control: args.congestion.clone(),
        program: Program {
            window_bytes: args.window.map(|size| size.0),
            write_rate_bps: args.write_rate.map(|rate| rate.0),
            read_rate_bps: args.read_rate.map(|rate| rate.0),
        },
    };
    let mut evidence = Evidence {
        named_target_bps: args.rate.map(|rate| rate.0),
        ipv6: target.address.ip().to_canonical().is_ipv6(),
        disks: disk::measure(args, backward, stop)?.into_iter().collect(),
        ..Evidence::default()
    };
    let mut repeats = MOST_REPEATS;
    for number in 1..=MOST_STEPS {
        let Some(step) = plan::next(&evidence, &asked) else { break };
        say(format!("{number:>2}  {}", steps::line(&step)));
        match client::run(target, steps::parameters(&step, backward), Some(stop), |_| {}) {
            Ok(end) => *are_whole &= steps::keep(&mut evidence, &step, &end, backward, target.address, caveats),
            Err(error) if stop.requested().is_some() || evidence.runs.is_empty() => {
                let failure = Failure::from(error);
                return Err(match stop.requested() {
                    Some(signal) if evidence.runs.is_empty() => failure.exit(exit_code(signal)),
                    Some(_) => break,
                    None => failure,
                });
            }
            Err(error) => evidence.runs.push(failed(&step, error.to_string())),
        }
        if stop.requested().is_some() {
            break;
        }
        if repeats > 0
            && let Some(share) = evidence.runs.last().and_then(Run::stolen)
        {
            repeats -= 1;
            evidence.runs.pop();
            say(format!(
                "    discarded: a hypervisor gave {:.0} % of a host's CPU time to others; the test is repeated",
                share * 100.0
            ));
        }
    }
    Ok(evidence)
}

/// What the snapshot of a host says, and what `longhaul host` would advise there: the other end may have another version, whose snapshot is
/// read as far as it can be.
fn host(snapshot: &Value) -> HostFacts {
    let host = HostSnapshot::deserialize(snapshot).map(HostSnapshot::of_peer);
    let advice = host.map_or_else(|_| Vec::new(), |host| host.caveats_beside_buffers());
    host_facts(snapshot, advice)
}

fn failed(step: &Step, why: String) -> Run {
    Run::Failed { purpose: step.purpose(), why }
}
