//! `longhaul sweep`.

mod axes;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::ExitCode;

use longhaul_kernel::clock::monotonic;
use longhaul_kernel::signals::Stop;
use longhaul_peer::caveats::PACING_NOT_ACHIEVED;
use longhaul_peer::client::{self, Target};
use longhaul_report::html::AboutHost;
use longhaul_report::html::sweep::Report;
use longhaul_report::saved::{SWEEP_SCHEMA, SweepAsked};
use longhaul_report::text;
use longhaul_result::Caveat;
use longhaul_result::caveats::SENDER_STOPPED;
use longhaul_session::kind;
use longhaul_sweep::{Axes, AxesError, Figures, MOST_TESTS, Point, PointResult, SweepResult, Test, order};
use longhaul_terms::{Amount, SoftirqPlacement, TestDirection};
use longhaul_udp::{Pace, Timestamps, UdpParameters};
use longhaul_units::{BitRate, Bytes, Nanos};
use serde::Serialize;

use crate::args::quantity::seconds;
use crate::caveats;
use crate::cmd::rtt::Sizes;
use crate::cmd::sweep::axes::{Rates, Values};
use crate::cmd::test::{Reach, are_whole, no_report, word};
use crate::output::live::{Lines, Show, Stamp};
use crate::output::overwrite::Overwrite;
use crate::output::prometheus::PrometheusArgs;
use crate::output::saved::Folder;
use crate::output::{Envelope, Failure, Outcome, OutputFile, exit_code, print_result, print_text, report_unwritten};

/// What a test takes beside its own time: connecting, waiting for the last packet, the report.
const AROUND_A_TEST: Nanos = Nanos::from_millis(1_300);
/// So many tests without a result one after the other end a sweep.
const FAILURES_MOST: usize = 3;

const EXAMPLES: &str = "\
Example:
  longhaul sweep server                                       # over sizes and rates
  longhaul sweep server --sizes 64,512,1448 -b 10M-1G --repeat 5 --html page.html
  longhaul sweep server --spacings 10us,20us,50us --gro on,off
  longhaul sweep server -w 256K,1M,4M --softirq same,split
  longhaul sweep server --defer 0,50us,200us -b 100M --plan   # what would be done

Each test restores the settings of the receiving host, also if it is killed. \
`longhaul docs sweep-results` explains each number of the result.";

/// Send UDP at many sizes, rates and settings: find at which rate losses begin, and where
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    reach: Reach,
    /// Send from the server to the client
    #[arg(short = 'R', long)]
    reverse: bool,
    /// Send payloads of these sizes: 64,512,1448, or 32 sizes from one to the other: 64-1448
    #[arg(short = 'l', long, value_name = "SIZES", default_value = "64,512,1448")]
    sizes: Sizes,
    /// Send these payload rates (0: as fast as possible), or 8 rates from one to the other: 10M-1G
    #[arg(
        short = 'b',
        long,
        value_name = "RATES",
        default_value = "10M,30M,100M,300M,1G,0",
        conflicts_with = "spacings"
    )]
    rates: Rates,
    /// Send a packet every TIME, for each TIME of this list
    #[arg(long, value_name = "TIMES")]
    spacings: Option<Values<Nanos>>,
    /// Set the socket buffers at both ends to each of these sizes
    #[arg(short = 'w', long, value_name = "SIZES")]
    sockbuf: Option<Values<Bytes>>,
    /// Run the receiver and its softirq on the same CPU, on two (split), or each in turn: same,split
    #[arg(long, value_name = "HOW", value_delimiter = ',', value_parser = word::<SoftirqPlacement>(&["same", "split"]))]
    softirq: Vec<SoftirqPlacement>,
    /// Turn GRO of the receiving interface on, off, or each in turn: on,off
    #[arg(long, value_name = "HOW", value_delimiter = ',', value_parser = on_or_off)]
    gro: Vec<bool>,
    /// Defer interrupts of the receiving interface: let NAPI poll at each of these intervals (0: off)
    #[arg(long, value_name = "TIMES")]
    defer: Option<Values<Nanos>>,
    /// Set the receive ring to each of these sizes, in packets
    #[arg(long, value_name = "PACKETS")]
    ring: Option<Values<u32>>,
    /// Set interrupt coalescing (rx-usecs) of the receiving NIC to each of these times
    #[arg(long, value_name = "TIMES")]
    coalesce: Option<Values<Nanos>>,
    /// Move the receiving NIC's interrupts to each of these CPUs in turn
    #[arg(long, value_name = "CPUS")]
    irq_cpu: Option<Values<u32>>,
    /// Allow batches (UDP_SEGMENT, UDP_GRO): less CPU time, uneven spacing
    #[arg(long)]
    batches: bool,
    /// Take arrival times in the application, in the kernel, or from the NIC
    #[arg(long, value_name = "WHERE", default_value = "kernel", value_parser = word::<Timestamps>(&["app", "kernel", "nic"]))]
    timestamps: Timestamps,
    /// Send for this time in each test
    #[arg(short = 't', long, value_name = "TIME", default_value = "1s", value_parser = seconds)]
    time: Nanos,
    /// Run each test N times, in a new random order each time
    #[arg(long, value_name = "N", default_value_t = 3)]
    repeat: usize,
    /// Seed the random order [default: another one each time]
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// Print what would be tested and how long it takes, and stop
    #[arg(long)]
    plan: bool,
    /// Draw a heat map of each metric in this HTML file
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    html: Option<OutputFile>,
    /// Save the result in this folder
    #[arg(short = 'o', long, value_name = "DIR")]
    output: Option<PathBuf>,
    #[command(flatten)]
    prometheus: PrometheusArgs,
    #[command(flatten)]
    overwrite: Overwrite,
    /// Print JSON
    #[arg(short = 'J', long)]
    json: bool,
}

fn on_or_off(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("use on, off or on,off".into()),
    }
}

impl Args {
    fn axes(&self) -> Axes {
        fn of<T, U>(values: Option<&Values<T>>, to: impl Fn(&T) -> U) -> Vec<Option<U>> {
            values.map_or_else(|| vec![None], |values| values.0.iter().map(|value| Some(to(value))).collect())
        }
        fn list<T: Copy>(values: &[T]) -> Vec<Option<T>> {
            if values.is_empty() { vec![None] } else { values.iter().copied().map(Some).collect() }
        }
        let rate = |rate: &BitRate| if rate.0 == 0 { Pace::Unlimited } else { Pace::RateBps(rate.0) };
        Axes {
            payload_bytes: self.sizes.0.clone(),
            paces: match &self.spacings {
                Some(spacings) => spacings.0.iter().map(|gap| Pace::SpacingNs(gap.0)).collect(),
                None => self.rates.0.iter().map(rate).collect(),
            },
            sockbuf_bytes: of(self.sockbuf.as_ref(), |bytes| bytes.0),
            softirq: list(&self.softirq),
            gro: list(&self.gro),
            deferral: of(self.defer.as_ref(), |time| *time),
            ring_packets: of(self.ring.as_ref(), |packets| *packets),
            coalescing: of(self.coalesce.as_ref(), |time| *time),
            irq_cpu: of(self.irq_cpu.as_ref(), |cpu| *cpu),
        }
    }

    /// What all tests have in common.
    fn base(&self) -> UdpParameters {
        UdpParameters {
            amount: Amount::DurationNs(self.time.0),
            direction: if self.reverse { TestDirection::Reverse } else { TestDirection::Forward },
            wire: !self.batches,
            timestamps: self.timestamps,
            interval_ns: None,
            ..UdpParameters::default()
        }
    }

    fn points(&self, base: &UdpParameters) -> Result<Vec<Point>, Failure> {
        if self.repeat == 0 {
            return Err(Failure::usage("--repeat 0: at least 1"));
        }
        self.axes().points(base, self.repeat).map_err(|error| match error {
            AxesError::TooMany { tests } => {
                Failure::usage(format!("{tests} tests: at most {MOST_TESTS}; give fewer values or a smaller --repeat"))
            }
            AxesError::Value(error) => error.into(),
        })
    }
}

pub(crate) fn run(args: Args) -> Outcome {
    let base = args.base();
    let points = args.points(&base)?;
    if args.plan {
        print_text(&plan(&args, &points));
        return Ok(ExitCode::SUCCESS);
    }
    let target = args.reach.target()?;
    args.overwrite.file(args.html.as_deref())?;
    let metrics = args.prometheus.open(args.overwrite)?;
    let folder = args.output.clone().map(|folder| Folder::prepare(folder, args.overwrite)).transpose()?;
    let started_at = jiff::Timestamp::now();
    let stop = Stop::install().map_err(|error| Failure::new("signals", error))?;
    let seed = args.seed.unwrap_or(started_at.as_microsecond().unsigned_abs());
    let mut results: Vec<PointResult> = points.iter().copied().map(PointResult::new).collect();
    let mut lines = Lines::with_metrics(Show::choose(None, args.json, false), metrics);
    let swept = sweep(&args, &target, &base, seed, stop, &mut results, &mut lines);
    lines.end();
    Stop::release();
    let mut caveats = swept?;
    if stop.requested().is_some() {
        let message = "the sweep was interrupted before its end";
        caveats.push(Caveat::new(caveats::INTERRUPTED, message, "let it run to its end"));
    }
    let asked = SweepAsked {
        address: target.address,
        host: args.reach.host.clone(),
        reverse: args.reverse,
        repeat: args.repeat as u64,
        seed,
        udp: base,
    };
    let result = SweepResult::new(results);
    let envelope = Envelope::new(SWEEP_SCHEMA, started_at.to_string(), asked, result, Caveat::unique(caveats));
    let saved = folder.map_or(Ok(()), |folder| folder.save(&envelope));
    let drawn = args.html.as_ref().map_or(Ok(()), |file| file.write(&page(&envelope), args.overwrite));
    print_result(&envelope, args.json, text::sweep::report);
    if let Some(failed) = report_unwritten([saved, drawn]) {
        return Ok(failed);
    }
    let otherwise = if are_whole(&envelope.caveats) { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    Ok(stop.requested().map_or(otherwise, |signal| ExitCode::from(exit_code(signal))))
}

/// Runs all tests into `results`, until a signal. Returns their caveats.
///
/// The first test must have a result, and not too many in a row may have none: then the server is gone.
fn sweep(
    args: &Args,
    target: &Target,
    base: &UdpParameters,
    seed: u64,
    stop: Stop,
    results: &mut [PointResult],
    lines: &mut Lines,
) -> Result<Vec<Caveat>, Failure> {
    let mut all_doubts = Doubts::default();
    let order = order(results.len(), args.repeat, seed);
    let (began, mut in_a_row) = (monotonic(), 0);
    for (number, at) in order.iter().copied().enumerate() {
        if stop.requested().is_some() {
            break;
        }
        let parameters = results[at].point.parameters(base);
        lines.print(&progress(number, order.len(), began, args.time, &results[at].point), &());
        let test = match client::run(target, parameters, Some(stop), |_| {}) {
            _ if stop.requested().is_some() => break,
            Ok(end) => match kind::udp::results(&end, None) {
                Some((found, doubts)) => {
                    let codes: Vec<String> = doubts.iter().map(|doubt| doubt.code.clone()).collect();
                    let kept = !doubts.iter().any(|doubt| doubt.is(PACING_NOT_ACHIEVED));
                    // What was sent before it stopped is not what was asked for.
                    let error = doubts.iter().find(|doubt| doubt.is(SENDER_STOPPED)).cloned();
                    all_doubts.add(doubts);
                    let figures = error.is_none().then(|| Figures::of(&found.into_first(), kept));
                    in_a_row = 0;
                    Test { number: number as u64, figures, error, caveats: codes }
                }
                None => return Err(no_report(&end)),
            },
            Err(error) => {
                in_a_row += 1;
                if number == 0 || in_a_row == FAILURES_MOST {
                    return Err(error.into());
                }
                let error = Some(Caveat::of_error(&error.code, error.message, error.remedy));
                Test { number: number as u64, figures: None, error, caveats: Vec::new() }
            }
        };
        lines.measure(&Interval {
            schema: "longhaul.sweep.interval/1",
            stamp: Stamp::now(),
            done_tests: number + 1,
            all_tests: order.len(),
            point: &results[at].point,
            figures: test.figures.as_ref(),
        });
        results[at].add(test);
    }
    let tests = results.iter().map(|point| point.tests.len()).sum();
    Ok(all_doubts.caveats(tests))
}

/// What `--prometheus` has of the test that ended last.
#[derive(Serialize)]
struct Interval<'a> {
    schema: &'static str,
    #[serde(flatten)]
    stamp: Stamp,
    done_tests: usize,
    all_tests: usize,
    point: &'a Point,
    /// `null`: the test failed.
    figures: Option<&'a Figures>,
}

/// Caveats of tests: each kind once, with the number of tests.
#[derive(Default)]
struct Doubts(BTreeMap<String, (Caveat, usize)>);

impl Doubts {
    fn add(&mut self, doubts: Vec<Caveat>) {
        let mut seen = BTreeSet::new();
        for doubt in doubts.into_iter().filter(|doubt| seen.insert(doubt.code.clone())) {
            self.0.entry(doubt.code.clone()).or_insert((doubt, 0)).1 += 1;
        }
    }

    fn caveats(self, tests: usize) -> Vec<Caveat> {
        let of_all = |(mut caveat, count): (Caveat, usize)| {
            caveat.message = format!("in {count} of {tests} tests, such as this one: {}", caveat.message);
            caveat
        };
        self.0.into_values().map(of_all).collect()
    }
}

/// Which test runs, and how long the rest takes.
fn progress(number: usize, all: usize, began: Nanos, time: Nanos, point: &Point) -> String {
    let each = match number {
        0 => time.saturating_add(AROUND_A_TEST).0,
        done => monotonic().saturating_sub(began).0 / done as u64,
    };
    let left = each.saturating_mul((all - number) as u64) / 1_000_000_000;
    let rate = point.rate().map_or_else(|| "unlimited".into(), |rate| format!("{}/s", text::rate(rate)));
    format!("test {} of {all}, {}:{:02} left: {} bytes, {rate}", number + 1, left / 60, left % 60, point.payload_bytes)
}

/// What would be tested.
fn plan(args: &Args, points: &[Point]) -> String {
    let tests = points.len() * args.repeat;
    let each = args.time.saturating_add(AROUND_A_TEST);
    let seconds = each.0.saturating_mul(tests as u64) / 1_000_000_000;
    let mut text = format!(
        "{tests} tests of {} ({} combinations, each {} times), some {} min {} s\n",
        args.time,
        points.len(),
        args.repeat,
        seconds / 60,
        seconds % 60
    );
    let mut settings: Vec<Vec<String>> = points.iter().map(|point| point.setting.words()).collect();
    settings.dedup();
    for words in settings {
        let words = if words.is_empty() { "settings as they are".into() } else { words.join(", ") };
        text += &format!("  {words}\n");
    }
    let sizes = args.sizes.0.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    let paces: Vec<String> = match &args.spacings {
        Some(spacings) => spacings.0.iter().map(|gap| format!("each {gap}")).collect(),
        None => {
            args.rates.0.iter().map(|rate| if rate.0 == 0 { "unlimited".into() } else { rate.to_string() }).collect()
        }
    };
    text + &format!("  payloads of {sizes} bytes\n  rates: {}\n", paces.join(", "))
}

fn page(envelope: &Envelope<SweepAsked, SweepResult>) -> String {
    let about = AboutHost::of(&envelope.parameters.host, envelope);
    Report { about, result: &envelope.result, text: text::sweep::report(&envelope.result) }.html()
}
