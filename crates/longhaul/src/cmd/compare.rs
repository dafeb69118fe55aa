//! `longhaul compare`.

use std::path::PathBuf;
use std::process::ExitCode;

use longhaul_emulator::Warning;
use longhaul_report::saved::COMPARE_SCHEMA;
use longhaul_trace::compare::behaviour::{Thinned, verdict};
use longhaul_trace::compare::{
    CompareResult, FirstLook, MatchOptions, Matching, Plan, Reached, Sampler, segment_sizes,
};
use longhaul_trace::flow::Millisecond;
use longhaul_trace::{FlowOptions, FlowSummary, Flows, Sink};
use serde::Serialize;

use super::analyze::{Progress, pass};
use super::compare_delays::DelayFile;
use super::saved::Folder;
use super::trace_source::{End, Filter, Trace};
use crate::output::{Envelope, Failure, Outcome, print_json, print_text, print_warnings};

const EXAMPLES: &str = "\
Example:
  longhaul compare sender.pcap receiver.pcap                # what the path between them did
  longhaul compare --same-clock -o delays left.pcap right.pcap
  longhaul compare --behaviour real.pcap emulated.pcap      # two runs: do they behave alike?

Packets are known again by their heads, clipped or not, as super-packets or as segments. docs/compare-results.md tells what each
number means.";

/// Compare two captures: what the path between them did, or whether they behave alike
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The one point, or the one run
    #[arg(value_name = "A")]
    a: PathBuf,
    /// The other
    #[arg(value_name = "B")]
    b: PathBuf,
    /// Captures of different runs: test whether they behave alike
    #[arg(long)]
    behaviour: bool,
    /// The time stamps of both are of one clock: no offset is estimated
    #[arg(long, conflicts_with = "behaviour")]
    same_clock: bool,
    /// Only packets of this end, or between these two
    #[arg(long, value_name = "ADDRESS[:PORT]", value_delimiter = ',', num_args = 1..=2)]
    flow: Vec<End>,
    /// Only packets from or to this port
    #[arg(long, value_name = "PORT", default_value_t = 0, hide_default_value = true)]
    port: u16,
    /// Write the result and the delay of each packet into this folder
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Print JSON
    #[arg(short = 'J', long)]
    json: bool,
}

/// What was asked.
#[derive(Debug, Serialize)]
pub(crate) struct CompareParameters {
    a: String,
    b: String,
    behaviour: bool,
    same_clock: bool,
    flow: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    port: Option<u16>,
}

/// Samples of a run.
#[derive(Default)]
struct Run {
    intervals: [Thinned; 2],
    rtt: [Thinned; 2],
    rate: [Thinned; 2],
    loss_runs: Thinned,
    flows: u64,
}

impl Sink for Run {
    fn flow(&mut self, summary: FlowSummary) {
        self.flows += 1;
        for direction in [&summary.forward, &summary.backward] {
            for (length, count) in (1..).zip(direction.probe.iter().flat_map(|probe| probe.loss_run_lengths)) {
                (0..count).for_each(|_| self.loss_runs.push(f64::from(length)));
            }
        }
    }

    fn interval(&mut self, _: u64, forward: bool, _: i64, interval_ns: i64) {
        self.intervals[usize::from(!forward)].push(interval_ns as f64);
    }

    fn millisecond(&mut self, _: u64, forward: bool, _: i64, row: Millisecond) {
        let way = usize::from(!forward);
        if row.payload_bytes > 0 {
            self.rate[way].push(row.payload_bytes as f64 * 8e3);
        }
        if let Some(rtt_ns) = row.rtt_ns {
            self.rtt[way].push(rtt_ns as f64);
        }
    }
}

pub(crate) fn run(args: Args) -> Outcome {
    let started_at = jiff::Timestamp::now().to_string();
    if !args.behaviour {
        Trace::can_be_read_again(&[args.a.clone(), args.b.clone()], "this")?;
    }
    let folder = args.output.clone().map(Folder::prepare).transpose()?;
    let filter = Filter { ends: args.flow.clone(), port: args.port };
    let open = |path: &PathBuf| Trace::open(std::slice::from_ref(path), filter.clone());
    let (mut a, mut b) = (open(&args.a)?, open(&args.b)?);
    let result = if args.behaviour { behave(&mut a, &mut b)? } else { lay_over(&args, open, [&mut a, &mut b])? };
    let warnings = warnings([&a, &b], &result);
    let parameters = CompareParameters {
        a: args.a.display().to_string(),
        b: args.b.display().to_string(),
        behaviour: args.behaviour,
        same_clock: args.same_clock,
        flow: args.flow.iter().map(End::to_string).collect(),
        port: Some(args.port).filter(|port| *port > 0),
    };
    let text = longhaul_report::text::compare::report(&result);
    let envelope = Envelope::new(COMPARE_SCHEMA, started_at, parameters, result, warnings);
    if let Some(folder) = &folder {
        folder.save(&envelope)?;
    }
    if args.json {
        print_json(&envelope);
    } else {
        print_text(&text);
    }
    print_warnings(&envelope.warnings);
    Ok(ExitCode::SUCCESS)
}

fn behave(a: &mut Trace, b: &mut Trace) -> Result<CompareResult, Failure> {
    let read = |trace: &mut Trace| -> Result<Run, Failure> {
        let mut flows = Flows::new(FlowOptions::default(), Run::default());
        pass(trace, |packet| flows.packet(packet))?;
        Ok(flows.finish().0)
    };
    let (a, b) = (read(a)?, read(b)?);
    let verdict = verdict(&[
        ("interval_forward_ns", &a.intervals[0], &b.intervals[0]),
        ("interval_backward_ns", &a.intervals[1], &b.intervals[1]),
        ("rtt_forward_ns", &a.rtt[0], &b.rtt[0]),
        ("rtt_backward_ns", &a.rtt[1], &b.rtt[1]),
        ("rate_1ms_forward_bps", &a.rate[0], &b.rate[0]),
        ("rate_1ms_backward_bps", &a.rate[1], &b.rate[1]),
        ("loss_run_packets", &a.loss_runs, &b.loss_runs),
    ]);
    Ok(CompareResult { points: None, behaviour: Some(verdict) })
}

/// Reads both captures three times: for the segments' sizes, for the clocks, and to match packets as they come.
fn lay_over(
    args: &Args,
    again: impl Fn(&PathBuf) -> Result<Trace, Failure>,
    first: [&mut Trace; 2],
) -> Result<CompareResult, Failure> {
    let mut looks = [FirstLook::default(), FirstLook::default()];
    for (trace, look) in first.into_iter().zip(&mut looks) {
        pass(trace, |packet| look.packet(packet))?;
    }
    let looks = [&looks[0], &looks[1]];
    let sizes = segment_sizes(looks);
    let mut samplers = [Sampler::new(&sizes), Sampler::new(&sizes)];
    for (path, sampler) in [&args.a, &args.b].into_iter().zip(&mut samplers) {
        pass(&mut again(path)?, |packet| sampler.packet(packet))?;
    }
    let plan = Plan::of(looks, samplers, MatchOptions { same_clock: args.same_clock }).map_err(|error| {
        Failure::new("nothing_in_common", error)
            .remedy("of two different runs, ask with --behaviour whether they are alike")
    })?;
    let mut delays = args.output.as_deref().map(DelayFile::create_in).transpose()?;
    let mut matching = Matching::new(plan, &sizes, |reached: &Reached| {
        if let Some(delays) = &mut delays {
            delays.push(*reached);
        }
    });
    match_up(&mut again(&args.a)?, &mut again(&args.b)?, &mut matching)?;
    let compared = matching.finish();
    if let Some(delays) = delays {
        delays.finish()?;
    }
    Ok(CompareResult { points: Some(compared.into()), behaviour: None })
}

/// Hands both captures' packets to `matching` in the order of time.
fn match_up<F: FnMut(&Reached)>(a: &mut Trace, b: &mut Trace, matching: &mut Matching<'_, F>) -> Result<(), Failure> {
    let mut shown = Progress::of(&[a.so_far(), b.so_far()]);
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

fn warnings(traces: [&Trace; 2], result: &CompareResult) -> Vec<Warning> {
    let mut warnings: Vec<Warning> =
        traces.iter().flat_map(|trace| trace.warnings("they look lost on the path")).collect();
    let mut warn = |code: &str, message: String, remedy: &str| {
        warnings.push(Warning { code: code.into(), message, remedy: remedy.into() });
    };
    if let Some(points) = &result.points {
        if points.clock.corrected && points.clock.offset_error_ns.is_none() {
            let message = "packets of one direction alone passed both points: the shortest delay is taken as 0".into();
            warn("offset_unknown", message, "capture both directions, or say --same-clock");
        }
        let shifted =
            points.directions.iter().filter_map(|shown| shown.between.delay).any(|delay| delay.min_ns < -1_000.0);
        if points.given_up_packets > 0 {
            let message = format!(
                "{} packets were taken as lost before the longest plausible delay was over: too many passed to hold them all",
                points.given_up_packets
            );
            warn("window_short", message, "compare a part: --flow or --port, or shorter captures");
        }
        if shifted {
            let message = "packets arrive before they were sent: the clocks differ".into();
            warn("clocks_differ", message, "leave --same-clock away");
        }
    }
    warnings
}
