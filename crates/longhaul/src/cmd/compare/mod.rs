//! `longhaul compare`.

pub(crate) mod figures;
pub(crate) mod matched;
pub(crate) mod runs;
pub(crate) mod udp;

use crate::caveats;
use crate::output::overwrite::Overwrite;
use std::path::PathBuf;
use std::process::ExitCode;

use longhaul_flows::Gaps;
use longhaul_flows::compare::behaviour::Behaviour;
use longhaul_flows::compare::equivalence::{Margin, Margins};
use longhaul_flows::compare::{CompareResult, Compared, Reached};
use longhaul_report::html::compared::Report;
use longhaul_report::parquet::DelayFile;
use longhaul_report::saved::COMPARE_SCHEMA;
use longhaul_result::{Caveat, CaveatCode};
use longhaul_units::Nanos;
use serde::Serialize;

use crate::captures::source::{End, Filter, Trace};
use crate::cmd::compare::figures::{Delays, numbered};
use crate::cmd::compare::matched::{LONGER_SNIPPETS, matched};
use crate::cmd::compare::runs::{of_points, of_runs};
use crate::output::saved::{DELAYS, Folder, Table};
use crate::output::{Envelope, Failure, Outcome, OutputFile, print_result};

const EXAMPLES: &str = "\
Example:
  longhaul compare sender.pcap receiver.pcap                # what the path between them did
  longhaul compare --same-clock -o delays left.pcap right.pcap
  longhaul compare --html path.html sender.pcap receiver.pcap   # drawn over time
  longhaul compare --behaviour real.pcap emulated.pcap      # two runs: do they behave alike?
  longhaul compare --behaviour --same-clock real-a.pcap real-b.pcap copy-a.pcap copy-b.pcap
                                                            # delay and loss between two points
  longhaul compare at-client at-server                      # of watch --udp: where each was lost

Packets are identified at both points by their header snippets, clipped or not, as super-packets or as segments. \
`longhaul docs compare-results` explains each number.";

/// A tenth of what one loss in 30,000 is, which costs a flow over a long path most of its rate.
const LEAST_LOSS: f64 = 1e-5;

/// Compare two captures: what the path between them did, or whether they behave alike
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Read the capture of this point or run, or the result of `longhaul watch --udp` at one host
    #[arg(value_name = "A")]
    a: PathBuf,
    /// Compare it with the capture of this point or run, or with the result of the other host
    #[arg(value_name = "B")]
    b: PathBuf,
    /// Compare the run A, B with a second run, captured at the same two points (needs --behaviour)
    #[arg(value_names = ["A2", "B2"], num_args = 2, requires = "behaviour")]
    second_run: Vec<PathBuf>,
    /// Test whether captures of different runs behave alike
    #[arg(long)]
    behaviour: bool,
    /// Trust that all time stamps are from one clock; estimate no offset
    #[arg(long)]
    same_clock: bool,
    /// Accept differences of delays and round trips up to this time, whatever their margin is (needs --behaviour)
    #[arg(long, value_name = "TIME", default_value = "20us", requires = "behaviour")]
    tolerance: Nanos,
    /// Accept a difference of this share of the value in A (needs --behaviour): median, range, p99, loss, loss-run, loss-dispersion
    #[arg(long, value_name = "NAME=SHARE", requires = "behaviour")]
    margin: Vec<Margin>,
    /// Read only packets of this endpoint, or between these two
    #[arg(long, value_name = "ADDRESS[:PORT]", value_delimiter = ',', num_args = 1..=2)]
    flow: Vec<End>,
    /// Read only packets from or to this port
    #[arg(long, value_name = "PORT", default_value_t = 0, hide_default_value = true)]
    port: u16,
    /// Draw one-way delay, losses and intervals at both points into this HTML file
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    html: Option<OutputFile>,
    /// Write the result and the delay of each packet into this folder
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    #[command(flatten)]
    overwrite: Overwrite,
    /// Print JSON
    #[arg(short = 'J', long)]
    json: bool,
}

/// What was asked.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct CompareParameters {
    /// The one capture.
    a: String,
    /// The other.
    b: String,
    /// Whether captures of different runs were compared.
    behaviour: bool,
    /// The second run's captures at the two points, where A and B are those of the first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(test, schemars(length(equal = 2)))]
    second_run: Vec<String>,
    /// Whether both are stamped by one clock.
    same_clock: bool,
    /// Differences of delays and round trips that count as none; of two runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    tolerance_ns: Option<u64>,
    /// Ends that were named; none is any.
    flow: Vec<String>,
    /// The port that was named.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(range(min = 1)))]
    port: Option<u16>,
}

pub(crate) fn run(args: Args) -> Outcome {
    if udp::is_result(&args.a) && udp::is_result(&args.b) {
        let inputs = [args.a.clone(), args.b.clone()];
        let beside = |folder| Folder::prepare_beside(folder, args.overwrite, &inputs, |_| false);
        let folder = args.output.clone().map(beside).transpose()?;
        return udp::run(&args.a, &args.b, folder, args.json);
    }
    let started_at = jiff::Timestamp::now().to_string();
    let of_two_points = !args.behaviour || !args.second_run.is_empty();
    if of_two_points {
        let all: Vec<PathBuf> = [&args.a, &args.b].into_iter().chain(&args.second_run).cloned().collect();
        Trace::can_be_read_again(&all, "this")?;
    } else if args.same_clock {
        return Err(Failure::usage("--same-clock compares two points: give both points of each run, A B A2 B2"));
    }
    if args.html.is_some() && !of_two_points {
        return Err(Failure::usage(
            "--html draws the path between two points: give both points of each run, A B A2 B2",
        ));
    }
    args.overwrite.file(args.html.as_deref())?;
    let inputs: Vec<PathBuf> = [&args.a, &args.b].into_iter().chain(&args.second_run).cloned().collect();
    let beside = |folder| Folder::prepare_beside(folder, args.overwrite, &inputs, |name| name == DELAYS);
    let folder = args.output.clone().map(beside).transpose()?;
    let filter = Filter { ends: args.flow.clone(), port: args.port, ..Filter::default() };
    let open = |path: &PathBuf| Trace::open(std::slice::from_ref(path), filter.clone());
    let (mut a, mut b) = (open(&args.a)?, open(&args.b)?);
    let table = folder.as_ref().filter(|_| of_two_points).map(|folder| folder.table(DELAYS)).transpose()?;
    let margins = Margins { asked: args.margin.clone(), least_ns: args.tolerance.0 as f64, least_loss: LEAST_LOSS };
    let mut delays = [Delays::default(), Delays::default()];
    let mut drawn: Vec<[Gaps; 2]> = Vec::new();
    let gaps = [a.gaps(), b.gaps()];
    let (result, caveats) = match args.second_run.as_slice() {
        [c, d] => {
            let (mut c, mut d) = (open(c)?, open(d)?);
            let first = lay_over(&args, [&args.a, &args.b], table.as_ref(), open, [&mut a, &mut b], &mut delays[0])?;
            let other = [&args.second_run[0], &args.second_run[1]];
            let second = lay_over(&args, other, None, open, [&mut c, &mut d], &mut delays[1])?;
            let behaviour = of_points([&first, &second], args.same_clock, &margins);
            let points = (Some((&first).into()), Some((&second).into()));
            let result = CompareResult { points: points.0, second_points: points.1, behaviour: Some(behaviour) };
            drawn = vec![gaps, [c.gaps(), d.gaps()]];
            let said = caveats(&[&a, &b, &c, &d], &result);
            (result, said)
        }
        _ if args.behaviour => {
            let behaviour = of_runs(&mut a, &mut b, &margins)?;
            let result = CompareResult { points: None, second_points: None, behaviour: Some(behaviour) };
            let said = caveats(&[&a, &b], &result);
            (result, said)
        }
        _ => {
            let compared = lay_over(&args, [&args.a, &args.b], table.as_ref(), open, [&mut a, &mut b], &mut delays[0])?;
            let result = CompareResult { points: Some((&compared).into()), second_points: None, behaviour: None };
            drawn = vec![gaps];
            let said = caveats(&[&a, &b], &result);
            (result, said)
        }
    };
    let parameters = CompareParameters {
        a: args.a.display().to_string(),
        b: args.b.display().to_string(),
        behaviour: args.behaviour,
        second_run: args.second_run.iter().map(|path| path.display().to_string()).collect(),
        same_clock: args.same_clock,
        tolerance_ns: args.behaviour.then_some(args.tolerance.0),
        flow: args.flow.iter().map(End::to_string).collect(),
        port: Some(args.port).filter(|port| *port > 0),
    };
    let text = longhaul_report::text::compare::report(&result);
    let envelope = Envelope::new(COMPARE_SCHEMA, started_at, parameters, result, caveats);
    if let Some(table) = table {
        table.finish()?;
    }
    if let Some(folder) = &folder {
        folder.save(&envelope)?;
    }
    if let Some(file) = &args.html {
        let result = &envelope.result;
        let points = [&result.points, &result.second_points].into_iter().flatten();
        let drawn = drawn.iter().zip(points).zip(delays).map(|((gaps, points), delays)| delays.drawn(gaps, points));
        let directions = numbered(drawn.collect());
        let said = |behaviour: &Behaviour| (behaviour.alike, longhaul_report::text::compare::alike(behaviour));
        let report = Report {
            title: format!("{} and {}", args.a.display(), args.b.display()),
            started_at: envelope.started_at.clone(),
            longhaul: env!("CARGO_PKG_VERSION").to_owned(),
            alike: result.behaviour.as_ref().map(said),
            found: longhaul_report::text::compare::found(result),
            caveats: envelope.caveats.clone(),
            directions,
            text: text.clone(),
            left_out: Vec::new(),
        };
        file.write(&report.html(), args.overwrite)?;
    }
    print_result(&envelope, args.json, |_| text);
    Ok(ExitCode::SUCCESS)
}

/// Lays both captures over each other, and writes the delay of each packet into `table`.
fn lay_over(
    args: &Args,
    paths: [&PathBuf; 2],
    table: Option<&Table>,
    again: impl Fn(&PathBuf) -> Result<Trace, Failure>,
    first: [&mut Trace; 2],
    drawn: &mut Delays,
) -> Result<Compared, Failure> {
    let mut delays = match table {
        Some(table) => Some(DelayFile::new(table.file()?).map_err(|error| table.unwritable(error))?),
        None => None,
    };
    let compared = matched(paths, args.same_clock, again, first, |reached: &Reached| {
        drawn.add(reached);
        if let Some(delays) = &mut delays {
            delays.push(*reached);
        }
    })?;
    if let (Some(delays), Some(table)) = (delays, table) {
        delays.finish().map_err(|error| table.unwritable(error))?;
    }
    Ok(compared)
}

fn caveats(traces: &[&Trace], result: &CompareResult) -> Vec<Caveat> {
    let so = |trace: &Trace| match trace.gaps().sum() {
        (0, _) => "it does not say when, so they look lost on the path",
        _ => "that time is left out",
    };
    let mut caveats: Vec<Caveat> = traces.iter().flat_map(|trace| trace.caveats(so(trace))).collect();
    let mut warn = |code: CaveatCode, message: String, remedy: &str| {
        caveats.push(Caveat::new(code, message, remedy));
    };
    for points in [&result.points, &result.second_points].into_iter().flatten() {
        if points.clock.corrected && points.clock.offset_error_ns.is_none() {
            let message = "packets of only one direction passed both points: the shortest delay is taken as 0".into();
            warn(caveats::OFFSET_UNKNOWN, message, "capture both directions, or give --same-clock");
        }
        let shifted =
            points.directions.iter().filter_map(|shown| shown.between.delay).any(|delay| delay.min_ns < -1_000.0);
        let alike: u64 = points.directions.iter().map(|shown| shown.between.alike_packets).sum();
        if alike > 0 {
            let message = format!("{alike} datagrams look like others of their flow and were left out");
            warn(caveats::DATAGRAMS_ALIKE, message, LONGER_SNIPPETS);
        }
        if points.given_up_packets > 0 {
            let message = format!(
                "{} packets were dropped from memory before they were due at the other point, because there were too many: they may have reached it",
                points.given_up_packets
            );
            warn(caveats::TOO_MANY_IN_FLIGHT, message, "compare a part: --flow or --port, or shorter captures");
        }
        if points.left_out_packets > 0 {
            let message = format!(
                "{} captured packets belong to flows after the first {} directions and were left out",
                points.left_out_packets,
                points.paths.len()
            );
            warn(caveats::FLOWS_LEFT_OUT, message, "compare a part: --flow or --port, or shorter captures");
        }
        // Of two clocks that were laid over each other, it is drift that is not one line.
        if shifted && !points.clock.corrected {
            let message = "packets arrive before they were sent: the clocks differ".into();
            let remedy = if points.clock.corrected {
                "a clock was set, or does not run evenly: compare a shorter part of the captures"
            } else {
                "omit --same-clock"
            };
            warn(caveats::CLOCKS_DIFFER, message, remedy);
        }
    }
    caveats
}
