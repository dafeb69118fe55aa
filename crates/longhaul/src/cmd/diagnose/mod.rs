//! `longhaul diagnose`.

mod steps;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use longhaul_diagnosis::plan::{self, Asked, Program, Step};
use longhaul_diagnosis::{Before, Diagnosed, Diagnosis, Evidence, Run, diagnose};
use longhaul_kernel::signals::Stop;
use longhaul_peer::client;
use longhaul_report::html::diagnosed::Report;
use longhaul_report::saved::{Content, DIAGNOSE_SCHEMA, DiagnoseAsked, Saved};
use longhaul_report::text;
use longhaul_result::Caveat;
use longhaul_terms::Directions;
use longhaul_units::{BitRate, Bytes, Nanos};

use crate::caveats;
use crate::cmd::test::Reach;
use crate::output::saved::{Folder, no_result, read_result};
use crate::output::{Envelope, Failure, Outcome, exit_code, print_result, say, write_named};

/// More tests than any plan has.
const MOST_STEPS: usize = 32;

const EXAMPLES: &str = "\
Example:
  longhaul diagnose server --rate 10G                  # where is my throughput to server?
  longhaul diagnose server --rate 10G -R               # and from it?
  longhaul diagnose server --size 20M -o monday        # transfers of 20 MiB; keep the answer
  longhaul diagnose server --before monday             # what was promised, what came?
  longhaul diagnose server --html page.html            # limits as bars beside the target
  longhaul diagnose server --gentle                    # on a path that others use

It changes nothing on either host. It loads the path with up to the target's rate, unless --gentle is given.
docs/reference/diagnosis.md explains each cause and how it is found.";

/// Find what limits throughput to a host: causes, what each costs, what to do
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    reach: Reach,
    /// Diagnose the direction from the server to the client
    #[arg(short = 'R', long)]
    reverse: bool,
    /// Diagnose both directions, one after the other
    #[arg(long, conflicts_with = "reverse")]
    bidir: bool,
    /// Expect this rate of the path, on the wire [default: the slowest link of both hosts, or what UDP carries]
    #[arg(long, value_name = "RATE")]
    rate: Option<BitRate>,
    /// Take about this time for each direction
    #[arg(short = 't', long, value_name = "TIME", default_value = "60s")]
    time: Nanos,
    /// Diagnose transfers of this size, too
    #[arg(long, value_name = "SIZE")]
    size: Option<Bytes>,
    /// Diagnose flows with this congestion control [default: the sender's]
    #[arg(short = 'C', long, value_name = "NAME")]
    congestion: Option<String>,
    /// Write at this rate, as my program does
    #[arg(short = 'b', long, value_name = "RATE")]
    write_rate: Option<BitRate>,
    /// Read at this rate, as my program does
    #[arg(long, value_name = "RATE")]
    read_rate: Option<BitRate>,
    /// Set the socket buffers to this size, as my program does
    #[arg(short = 'w', long, value_name = "SIZE")]
    window: Option<Bytes>,
    /// Send no more than a tenth of the target: fewer causes can be found
    #[arg(long)]
    gentle: bool,
    /// Say what became of an earlier answer: a folder of -o or a file of --json
    #[arg(long, value_name = "FILE|DIR")]
    before: Option<PathBuf>,
    /// Draw the answer in this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Save the answer with all its evidence in this folder
    #[arg(short = 'o', long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Print JSON
    #[arg(short = 'J', long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> Outcome {
    let target = args.reach.target()?;
    if args.time.0 < 5_000_000_000 || args.time.0 > 3_600_000_000_000 {
        return Err(Failure::usage(format!("--time {}: from 5 s to 1 hour", args.time)));
    }
    let before = args.before.as_deref().map(|path| earlier(path, &args)).transpose()?;
    let folder = args.output.clone().map(Folder::prepare).transpose()?;
    let started_at = jiff::Timestamp::now().to_string();
    let stop = Stop::install().map_err(|error| Failure::new("signals", error))?;
    let mut caveats = Vec::new();
    let mut diagnosed = |backward: bool| -> Result<Diagnosed, Failure> {
        let evidence = measure(&args, &target, backward, stop, &mut caveats)?;
        let diagnosis = diagnose(&evidence);
        let before = before.as_ref().and_then(|before| Some(Before::of(before.of(backward)?, &diagnosis)));
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
    let asked = asked(&args, target.address);
    let envelope = Envelope::new(DIAGNOSE_SCHEMA, started_at, asked, results, Caveat::unique(caveats));
    let saved = folder.map_or(Ok(()), |folder| folder.save(&envelope));
    let drawn = args.html.as_deref().map_or(Ok(()), |file| write_named(file, &page(&args, &envelope)));
    print_result(&envelope, args.json, |results| text::diagnose::report(envelope.parameters.reverse, results));
    if let Err(failure) = saved.and(drawn) {
        return Ok(failure.report_beside());
    }
    Ok(stop.requested().map_or(ExitCode::SUCCESS, |signal| ExitCode::from(exit_code(signal))))
}

/// An earlier diagnosis.
struct Earlier {
    forward: Option<Diagnosis>,
    backward: Option<Diagnosis>,
}

impl Earlier {
    fn of(&self, backward: bool) -> Option<&Diagnosis> {
        if backward { self.backward.as_ref() } else { self.forward.as_ref() }
    }
}

/// Reads an earlier diagnosis of the directions that `args` asks for.
fn earlier(path: &Path, args: &Args) -> Result<Earlier, Failure> {
    let (file, text) = read_result(path)?;
    let saved = Saved::parse(&text).map_err(|error| no_result(&file, error))?;
    let Content::Diagnose(asked, results) = saved.content else {
        return Err(Failure::usage(format!("--before {}: no {DIAGNOSE_SCHEMA}", path.display())));
    };
    let earlier = match results {
        Directions::Both { forward, backward } => {
            Earlier { forward: Some(forward.diagnosis), backward: Some(backward.diagnosis) }
        }
        Directions::One(one) if asked.reverse => Earlier { forward: None, backward: Some(one.diagnosis) },
        Directions::One(one) => Earlier { forward: Some(one.diagnosis), backward: None },
    };
    let missing = [(!args.reverse, false), (args.reverse || args.bidir, true)]
        .into_iter()
        .any(|(wanted, backward)| wanted && earlier.of(backward).is_none());
    if missing {
        let what = if asked.reverse { "with -R" } else { "without -R" };
        return Err(Failure::usage(format!("--before {}: that diagnosis was made {what}", path.display())));
    }
    if asked.host != args.reach.host {
        return Err(Failure::usage(format!("--before {}: that is of {}", path.display(), asked.host.escape_debug())));
    }
    Ok(earlier)
}

fn page(args: &Args, envelope: &Envelope<DiagnoseAsked, Directions<Diagnosed>>) -> String {
    let directions = match &envelope.result {
        Directions::One(result) => vec![(if args.reverse { "backward" } else { "forward" }, &**result)],
        Directions::Both { forward, backward } => vec![("forward", &**forward), ("backward", &**backward)],
    };
    Report {
        host: args.reach.host.clone(),
        longhaul: envelope.longhaul.into(),
        started_at: envelope.started_at.clone(),
        directions,
    }
    .html()
}

fn asked(args: &Args, address: SocketAddr) -> DiagnoseAsked {
    DiagnoseAsked {
        address,
        host: args.reach.host.clone(),
        reverse: args.reverse,
        rate_bps: args.rate.map(|rate| rate.0),
        time_ns: args.time.0,
        size_bytes: args.size.map(|size| size.0),
        congestion_control: args.congestion.clone(),
        gentle: args.gentle,
    }
}

/// Runs one test after the other, as the plan says, until nothing more would tell, or a signal ends it.
fn measure(
    args: &Args,
    target: &client::Target,
    backward: bool,
    stop: Stop,
    caveats: &mut Vec<Caveat>,
) -> Result<Evidence, Failure> {
    let asked = Asked {
        time_ns: args.time.0,
        size_bytes: args.size.map(|size| size.0),
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
        ..Evidence::default()
    };
    for number in 1..=MOST_STEPS {
        let Some(step) = plan::next(&evidence, &asked) else { break };
        say(format!("{number:>2}  {}", steps::line(&step)));
        match client::run(target, steps::parameters(&step, backward), Some(stop), |_| {}) {
            Ok(end) => steps::keep(&mut evidence, &step, &end, backward, target.address, caveats),
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
    }
    Ok(evidence)
}

fn failed(step: &Step, why: String) -> Run {
    Run::Failed { purpose: step.purpose(), why }
}
