//! `longhaul compare`.

pub(crate) mod figures;
pub(crate) mod runs;

use crate::caveats;
use crate::output::overwrite::Overwrite;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use longhaul_flows::compare::{
    CompareError, CompareResult, Compared, FirstLook, MatchOptions, Matching, Plan, Reached, Sampler, recognition,
};
use longhaul_kernel::new_file::{NewFile, PUBLIC};
use longhaul_report::html::compared::Report;
use longhaul_report::parquet::DelayFile;
use longhaul_report::saved::COMPARE_SCHEMA;
use longhaul_result::{Caveat, CaveatCode};
use longhaul_units::Nanos;
use serde::Serialize;

use crate::captures::progress::{Progress, pass};
use crate::captures::source::{End, Filter, Trace};
use crate::cmd::compare::figures::Delays;
use crate::cmd::compare::runs::{of_points, of_runs};
use crate::output::saved::Folder;
use crate::output::{Envelope, Failure, Outcome, print_result, write_named};

const EXAMPLES: &str = "\
Example:
  longhaul compare sender.pcap receiver.pcap                # what the path between them did
  longhaul compare --same-clock -o delays left.pcap right.pcap
  longhaul compare --html path.html sender.pcap receiver.pcap   # delay, losses and intervals, drawn
  longhaul compare --behaviour real.pcap emulated.pcap      # two runs: do they behave alike?
  longhaul compare --behaviour --same-clock real-a.pcap real-b.pcap emulated-a.pcap emulated-b.pcap
                                                            # compare delay and loss between two points of each run

Packets are identified at both points by their header snippets, clipped or not, as super-packets or as segments.
`longhaul docs compare-results` explains each number.";

const LONGER_SNIPPETS: &str = "capture longer snippets, at least 66 bytes of IPv4 and 86 of IPv6, or send datagrams that differ in their first bytes";

/// Compare two captures: what the path between them did, or whether they behave alike
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Read the capture of this point or run
    #[arg(value_name = "A")]
    a: PathBuf,
    /// Compare it with the capture of this point or run
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
    /// Count delays and round trips as alike up to this difference (needs --behaviour)
    #[arg(long, value_name = "TIME", default_value = "20us", requires = "behaviour")]
    tolerance: Nanos,
    /// Read only packets of this endpoint, or between these two
    #[arg(long, value_name = "ADDRESS[:PORT]", value_delimiter = ',', num_args = 1..=2)]
    flow: Vec<End>,
    /// Read only packets from or to this port
    #[arg(long, value_name = "PORT", default_value_t = 0, hide_default_value = true)]
    port: u16,
    /// Draw one-way delay, losses and intervals at both points into this HTML file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
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
    let folder = args.output.clone().map(|folder| Folder::prepare(folder, args.overwrite)).transpose()?;
    let filter = Filter { ends: args.flow.clone(), port: args.port, ..Filter::default() };
    let open = |path: &PathBuf| Trace::open(std::slice::from_ref(path), filter.clone());
    let (mut a, mut b) = (open(&args.a)?, open(&args.b)?);
    let tolerance_ns = args.tolerance.0 as f64;
    let (mut delays, mut drawn) = (Delays::default(), None);
    let gaps = [a.gaps(), b.gaps()];
    let (result, caveats) = match args.second_run.as_slice() {
        [c, d] => {
            let (mut c, mut d) = (open(c)?, open(d)?);
            let delays_in = args.output.as_deref();
            let first = lay_over(&args, [&args.a, &args.b], delays_in, open, [&mut a, &mut b], &mut delays)?;
            let other = [&args.second_run[0], &args.second_run[1]];
            let second = lay_over(&args, other, None, open, [&mut c, &mut d], &mut Delays::default())?;
            let behaviour = of_points([&first, &second], args.same_clock, tolerance_ns);
            let result = CompareResult { points: Some((&first).into()), behaviour: Some(behaviour) };
            drawn = Some(first);
            let mut said = caveats(&[&a, &b, &c, &d], &result);
            said.extend(caveats(&[], &CompareResult { points: Some((&second).into()), behaviour: None }));
            (result, said)
        }
        _ if args.behaviour => {
            let behaviour = of_runs(&mut a, &mut b, tolerance_ns)?;
            let result = CompareResult { points: None, behaviour: Some(behaviour) };
            let said = caveats(&[&a, &b], &result);
            (result, said)
        }
        _ => {
            let compared =
                lay_over(&args, [&args.a, &args.b], args.output.as_deref(), open, [&mut a, &mut b], &mut delays)?;
            let result = CompareResult { points: Some((&compared).into()), behaviour: None };
            drawn = Some(compared);
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
    if let Some(folder) = &folder {
        folder.save(&envelope)?;
    }
    if let (Some(file), Some(compared), Some(points)) = (&args.html, &drawn, &envelope.result.points) {
        let report = Report {
            title: format!("{} and {}", args.a.display(), args.b.display()),
            started_at: envelope.started_at.clone(),
            longhaul: env!("CARGO_PKG_VERSION").to_owned(),
            directions: delays.drawn(compared, &gaps, points),
            text: text.clone(),
        };
        write_named(file, &report.html())?;
    }
    print_result(&envelope, args.json, |_| text);
    Ok(ExitCode::SUCCESS)
}

/// Reads both captures three times: for the segments' sizes, for the clocks, and to match packets as they come.
fn lay_over(
    args: &Args,
    paths: [&PathBuf; 2],
    delays_in: Option<&Path>,
    again: impl Fn(&PathBuf) -> Result<Trace, Failure>,
    first: [&mut Trace; 2],
    drawn: &mut Delays,
) -> Result<Compared, Failure> {
    let gaps = [first[0].gaps(), first[1].gaps()];
    let mut looks = [FirstLook::default(), FirstLook::default()];
    for (trace, look) in first.into_iter().zip(&mut looks) {
        pass(trace, |packet| look.packet(packet))?;
        trace.was_readable()?;
    }
    let looks = [&looks[0], &looks[1]];
    let known = recognition(looks);
    let mut samplers = [Sampler::new(&known), Sampler::new(&known)];
    for (path, sampler) in paths.into_iter().zip(&mut samplers) {
        pass(&mut again(path)?, |packet| sampler.packet(packet))?;
    }
    let plan =
        Plan::of(looks, samplers, MatchOptions { same_clock: args.same_clock }).map_err(|error| match error {
            CompareError::NothingInCommon => Failure::new("nothing_in_common", error)
                .remedy("for two different runs, test with --behaviour whether they are alike"),
            CompareError::AllAlike => Failure::new("all_alike", error).remedy(LONGER_SNIPPETS),
        })?;
    let delays_file = delays_in.map(|folder| folder.join("delays.parquet"));
    let unwritable =
        |error: &dyn std::fmt::Display| Failure::unwritable(delays_file.as_deref().unwrap_or(Path::new("")), error);
    let create = |path: &PathBuf| NewFile::create(path, PUBLIC);
    let new = delays_file.as_ref().map(create).transpose().map_err(|error| unwritable(&error))?;
    let file = new.as_ref().map(|new| new.file().try_clone()).transpose().map_err(|error| unwritable(&error))?;
    let mut delays = file.map(DelayFile::new).transpose().map_err(|error| unwritable(&error))?;
    let mut matching = Matching::new(plan, &known, gaps, |reached: &Reached| {
        drawn.add(reached);
        if let Some(delays) = &mut delays {
            delays.push(*reached);
        }
    });
    match_up(&mut again(paths[0])?, &mut again(paths[1])?, &mut matching)?;
    let compared = matching.finish();
    if let Some(delays) = delays {
        delays.finish().map_err(|error| unwritable(&error))?;
    }
    if let Some(new) = new {
        new.finish().map_err(|error| unwritable(&error))?;
    }
    Ok(compared)
}

/// Hands both captures' packets to `matching` in the order of time.
fn match_up<F: FnMut(&Reached)>(a: &mut Trace, b: &mut Trace, matching: &mut Matching<'_, F>) -> Result<(), Failure> {
    let mut shown = Progress::of(&[a.progress(), b.progress()]);
    let (mut first, mut second) = (a.next()?, b.next()?);
    loop {
        shown.packet();
        match (&first, &second) {
            (Some(one), Some(other)) if matching.b_is_next(one.at_ns, other.at_ns) => {
                matching.b(other);
                second = b.next()?;
            }
            (Some(one), _) => {
                matching.a(one);
                first = a.next()?;
            }
            (None, Some(other)) => {
                matching.b(other);
                second = b.next()?;
            }
            (None, None) => return Ok(()),
        }
    }
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
    if let Some(points) = &result.points {
        if points.clock.corrected && points.clock.offset_error_ns.is_none() {
            let message = "packets of only one direction passed both points: the shortest delay is taken as 0".into();
            warn(caveats::OFFSET_UNKNOWN, message, "capture both directions, or say --same-clock");
        }
        let shifted =
            points.directions.iter().filter_map(|shown| shown.between.delay).any(|delay| delay.min_ns < -1_000.0);
        let alike: u64 = points.directions.iter().map(|shown| shown.between.alike_packets).sum();
        if alike > 0 {
            let message = format!("{alike} datagrams look like others of their flow: nothing is told of them");
            warn(caveats::ALIKE, message, LONGER_SNIPPETS);
        }
        if points.given_up_packets > 0 {
            let message = format!(
                "{} packets were forgotten before they were due at the other point, because too many passed: whether they reached it is not known",
                points.given_up_packets
            );
            warn(caveats::WINDOW_SHORT, message, "compare a part: --flow or --port, or shorter captures");
        }
        if shifted {
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
