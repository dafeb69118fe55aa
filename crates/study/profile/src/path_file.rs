//! From what was measured to a path, and its file with the evidence beside each value.

use std::fmt::Write as _;
use std::sync::Arc;

use longhaul_flows::compare::clocks::{self, ClockFit};
use longhaul_path::law::{Law, Table};
use longhaul_path::spec::{
    CORRELATION_MAX, CoalesceSpec, DELAY_MAX, DelayStep, DelaySteps, HopSpec, JitterSpec, Order, PathSpec, Probability,
    QueueLimit, SpecError,
};
use longhaul_units::{BitRate, Bytes, Nanos};
use serde::Serialize;

use crate::bunches::Bunches;
use crate::capacity::{SlowestQueue, of_trains};
use crate::delay::DelaySummary;
use crate::delay::levels::{DelayShift, Levels, Samples, without};
use crate::loss::{LossFit, LossLaw, fit_loss, fit_seen};
use crate::probes::{Passage, Probe, Probes};
use crate::route_changes::{self, RouteChange};

/// Answers below which nothing is fitted.
const LEAST_ANSWERS: usize = 20;
/// Variation of less than this is that of the hosts' stamps, not the path's.
const STDDEV_LEAST_NS: f64 = 100.0;

/// Wire packets of one stamp left within this.
const TOGETHER_MOST_NS: i64 = 10_000_000;

/// How to read the measurement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileOptions {
    /// The path's name in its file.
    pub name: String,
    /// Where the measurement is from: the `source` of the file.
    pub source: String,
    /// Both ends are stamped by one clock, or by clocks that agree: the delay of each direction is known.
    pub same_clock: bool,
    /// The slowest queue of the forward and of the backward direction, or why it is not known.
    pub queues: [Result<SlowestQueue, String>; 2],
}

impl Default for ProfileOptions {
    fn default() -> Self {
        let why = || Err("probes do not load the path (see longhaul diagnose, and --diagnosis)".to_owned());
        Self { name: String::new(), source: String::new(), same_clock: false, queues: [why(), why()] }
    }
}

/// Why no path can be made.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ProfileError {
    /// Too few answers.
    #[error("{answers} of {sent} probes were answered; a path needs at least {LEAST_ANSWERS}")]
    TooFew {
        /// Answers.
        answers: usize,
        /// Probes.
        sent: usize,
    },
    /// A path file cannot say it.
    #[error("no path file can say this: {0}")]
    Path(#[from] SpecError),
}

/// How the round trip was split into the two directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Split {
    /// One clock stamped both ends: each direction is known.
    OneClock,
    /// Two clocks, laid over each other: variation of each direction is known; the shortest delay is halved, which is a guess.
    ShortestHalved,
    /// There are only round trips: each direction gets half of the delay, and the forward direction gets all variation. Both are guesses.
    RoundTrips,
}

/// A path that was fitted to a measurement.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Profile {
    /// From the first probe to the last.
    pub duration_ns: u64,
    /// Usually between probes.
    pub interval_ns: u64,
    /// Probes with more than one answer count once for each answer beyond.
    pub duplicate_packets: u64,
    /// Answers that came behind those of later probes.
    pub reordered_packets: u64,
    /// Round trips.
    pub rtt: DelaySummary,
    /// To the server, where its stamps are known.
    pub forward: Option<DelaySummary>,
    /// From the server.
    pub backward: Option<DelaySummary>,
    /// Delay went to other levels, as after route changes; only of probes.
    pub delay_shifts: Vec<DelayShift>,
    /// Route changes during the measurement, by time, each with the step of the delay that came with it.
    pub route_changes: Vec<RouteChange>,
    /// How delay was split.
    pub split: Split,
    /// How the server's clock ran compared with this one's, if two clocks were aligned.
    pub clocks: Option<ClockFit>,
    /// What was lost, and the law. Of captures at both ends: in the forward direction.
    pub loss: LossFit,
    /// What was lost in the backward direction, where captures at both ends tell.
    pub backward_loss: Option<LossFit>,
    /// Packets to the server arrive in bunches, where captures at both ends show it.
    pub forward_bunches: Option<Bunches>,
    /// Those of the backward direction.
    pub backward_bunches: Option<Bunches>,
    /// The slowest queue of the forward direction, where a test loaded it.
    pub forward_queue: Option<SlowestQueue>,
    /// The slowest queue of the backward direction.
    pub backward_queue: Option<SlowestQueue>,
    /// What the measurement does not say, each a sentence.
    pub not_known: Vec<String>,
    /// The path file.
    pub path_file: String,
    /// The path of the file.
    #[serde(skip)]
    pub path: PathSpec,
    /// What the path's delay and jitter are made of.
    #[serde(skip)]
    still: Still,
    /// Probes were measured, not packets of others.
    #[serde(skip)]
    of_probes: bool,
}

/// Delays as if all were of the level before the first shift, and the shifts of each direction after it.
#[derive(Debug, Clone, PartialEq, Default)]
struct Still {
    rtt: Option<DelaySummary>,
    ways: [Option<DelaySummary>; 2],
    /// When, nanoseconds after the first probe.
    at_ns: Vec<u64>,
    /// By how much the delay of each direction then grows. Of round trips alone the forward direction has all.
    changes: [Vec<f64>; 2],
    unknown: bool,
}

impl Still {
    fn of(rtts: &Samples, ways: &[Samples; 2], known: &[i64], began_ns: i64) -> (Self, Vec<DelayShift>) {
        let levels = Levels::of(rtts, known);
        let known = ways.iter().all(|way| !way.is_empty());
        let of_ways = ways.each_ref().map(|way| levels.of_way(way));
        let told = if known { of_ways.each_ref().map(|way| Some(&way[..])) } else { [None; 2] };
        let shifts = levels.shifts(began_ns, told);
        let way = |samples: &Samples, changes: &[f64]| DelaySummary::of(&without(samples, &levels.at, changes));
        let still = Self {
            rtt: way(rtts, levels.changes()),
            ways: [way(&ways[0], &of_ways[0]), way(&ways[1], &of_ways[1])],
            at_ns: shifts.iter().map(|shift| shift.at_ns).collect(),
            changes: if known { of_ways } else { [levels.changes().to_vec(), Vec::new()] },
            unknown: levels.unknown,
        };
        (still, shifts)
    }

    /// The steps of direction `nth`, whose delay is `delay` at first and never below `least`.
    fn steps(&self, nth: usize, delay: Nanos, least: f64) -> DelaySteps {
        let (mut now, mut steps) = (delay.0 as f64, Vec::new());
        for (at_ns, change) in self.at_ns.iter().zip(&self.changes[nth]).filter(|(_, change)| **change != 0.0) {
            now += change;
            let delay = Nanos(now.max(least).max(0.0).ceil() as u64);
            steps.push(DelayStep { at: Nanos(*at_ns), delay, lasting: None, every: None });
        }
        DelaySteps::At(steps)
    }
}

impl Profile {
    /// Fits a path.
    ///
    /// # Errors
    /// With fewer than 20 answers, or where no path file can say what was seen (a delay above 10 s).
    pub fn of(probes: &Probes, options: &ProfileOptions) -> Result<Self, ProfileError> {
        let answers = probes.rows.iter().filter(|row| row.rtt_ns.is_some()).count();
        let too_few = ProfileError::TooFew { answers, sent: probes.rows.len() };
        if answers < LEAST_ANSWERS {
            return Err(too_few);
        }
        let interval_ns = probes.ways.as_ref().map_or_else(|| probes.interval_ns(), |ways| interval_of(&ways[0]));
        let (split, clocks, mut ways) = match &probes.ways {
            Some(passages) => of_passages(passages, probes.clocks),
            None => ways(probes, options.same_clock),
        };
        let rtts: Vec<(i64, f64, u32)> =
            probes.rows.iter().filter_map(|row| Some((row.sent_ns, row.rtt_ns? as f64, row.resolution_ns))).collect();
        let (mut bunches, mut queues) = ([None; 2], options.queues.clone());
        for (nth, way) in probes.ways.iter().flatten().enumerate() {
            if let Some((found, delays)) = Bunches::of(way) {
                (bunches[nth], ways[nth]) = (Some(found), delays);
                continue;
            }
            // What a test measured that loaded the path is worth more.
            if queues[nth].is_err() {
                queues[nth] = of_trains(way).map(|(queue, delays)| {
                    let known = delays.into_iter().zip(way).filter(|(delay, _)| !delay.is_nan());
                    ways[nth] = known.map(|(delay, passage)| (passage.sent_ns, delay, 1)).collect();
                    queue
                });
            }
        }
        let [forward, backward] = ways.each_ref().map(|samples| DelaySummary::of(samples));
        let of_probes = probes.ways.is_none() && probes.losses.is_none();
        // Packets of others fill queues, and so shift the delay themselves.
        let began_ns = probes.rows.first().map_or(0, |row| row.sent_ns);
        let (still, delay_shifts) = if of_probes {
            let known: Vec<i64> = probes.route_changes.iter().map(|change| change.at_ns).collect();
            Still::of(&rtts, &ways, &known, began_ns)
        } else {
            let rtt = DelaySummary::of(&rtts);
            (Still { rtt, ways: [forward.clone(), backward.clone()], ..Still::default() }, Vec::new())
        };
        let (loss, backward_loss) = match &probes.ways {
            Some(ways) => (fit_loss(&as_rows(&ways[0])), Some(fit_loss(&as_rows(&ways[1])))),
            None => (probes.losses.as_ref().map_or_else(|| fit_loss(&probes.rows), fit_seen), None),
        };
        let late = |ways: &[Vec<Passage>; 2]| ways.iter().flatten().filter(|passage| passage.reordered).count() as u64;
        let Some(rtt) = DelaySummary::of(&rtts) else { return Err(too_few) };
        let mut profile = Self {
            duration_ns: probes.duration_ns(),
            interval_ns,
            duplicate_packets: probes.rows.iter().map(|row| u64::from(row.copies)).sum(),
            reordered_packets: match &probes.ways {
                Some(ways) => late(ways),
                None => probes.rows.iter().filter(|row| row.reordered).count() as u64,
            },
            rtt,
            forward,
            backward,
            route_changes: RouteChange::all(&probes.route_changes, began_ns, &delay_shifts),
            delay_shifts,
            split,
            clocks,
            loss,
            backward_loss,
            forward_bunches: bunches[0],
            backward_bunches: bunches[1],
            forward_queue: queues[0].clone().ok(),
            backward_queue: queues[1].clone().ok(),
            not_known: Vec::new(),
            path_file: String::new(),
            path: PathSpec::default(),
            still,
            of_probes,
        };
        profile.make_path(answers as u64, probes.frame_bytes, options)?;
        profile.not_known = profile.unknown(probes, &queues);
        profile.path_file = profile.written();
        Ok(profile)
    }

    fn make_path(&mut self, answers: u64, frame_bytes: u32, options: &ProfileOptions) -> Result<(), ProfileError> {
        let order = if self.reordered_packets > 0 { Order::Free } else { Order::Fifo };
        let hop = |nth: usize, way: &DelaySummary, queue: &Option<SlowestQueue>| {
            let varies = way.stddev_ns >= STDDEV_LEAST_NS && way.table.len() > 1;
            let table = || Table::new(way.table.iter().map(|value| (value * 1e4).round() / 1e4).collect()).ok();
            let jitter = if varies { table() } else { None }.map(|table| JitterSpec {
                law: Law::Table(Arc::new(table)),
                stddev: Nanos(way.stddev_ns.round() as u64),
                order,
                correlation: way
                    .correlation
                    .map(|correlation| Nanos(correlation.time_ns).clamp(Nanos(1), CORRELATION_MAX)),
            });
            // Rounding of the table must not ask for a packet that leaves before it came.
            let reach = jitter.as_ref().map_or(0.0, |jitter| jitter.law.reach_below() * jitter.stddev.0 as f64);
            // The probe's own time at the rate is part of what was measured.
            let own = queue.as_ref().map_or(0.0, |queue| queue.serialization_ns(frame_bytes));
            let delay = Nanos((way.mean_ns - own).max(reach).ceil() as u64);
            HopSpec {
                delay,
                delay_steps: self.still.steps(nth, delay, reach),
                jitter,
                rate: queue.as_ref().map(|queue| BitRate(queue.rate_bps)),
                queue: queue
                    .as_ref()
                    .and_then(|queue| queue.bytes)
                    .map_or_else(QueueLimit::default, |bytes| QueueLimit::Bytes(Bytes(bytes))),
                ..HopSpec::default()
            }
        };
        let (mut forward, mut backward) = match &self.still.ways {
            [Some(forward), Some(backward)] => {
                (hop(0, forward, &self.forward_queue), hop(1, backward, &self.backward_queue))
            }
            _ => {
                let rtt = self.still.rtt.as_ref().unwrap_or(&self.rtt);
                let half = (rtt.min_ns / 2.0).max(0.0);
                let mut varying = rtt.clone();
                varying.mean_ns -= half;
                let constant = DelaySummary { mean_ns: half, stddev_ns: 0.0, ..rtt.clone() };
                (hop(0, &varying, &self.forward_queue), hop(1, &constant, &self.backward_queue))
            }
        };
        for way in [&forward, &backward] {
            if way.delay > DELAY_MAX {
                return Err(SpecError { message: format!("a delay of {}", way.delay), ..SpecError::default() }.into());
            }
        }
        for (hop, fit) in [(&mut forward, Some(&self.loss)), (&mut backward, self.backward_loss.as_ref())] {
            let Some(fit) = fit else { continue };
            hop.loss = fit.law.spec();
            hop.outages = fit.outages.iter().map(crate::loss::LostTime::outage).collect();
        }
        for (hop, bunches) in [(&mut forward, self.forward_bunches), (&mut backward, self.backward_bunches)] {
            hop.coalesce = bunches.map(|bunches| CoalesceSpec { time: Nanos(bunches.time_ns), count: None });
        }
        forward.duplicate = Probability((self.duplicate_packets as f64 / answers as f64).min(1.0));
        self.path = PathSpec {
            name: options.name.clone(),
            source: options.source.clone(),
            forward: vec![forward],
            backward: vec![backward],
            ..PathSpec::default()
        };
        self.path.validate()?;
        Ok(())
    }

    fn unknown(&self, probes: &Probes, queues: &[Result<SlowestQueue, String>; 2]) -> Vec<String> {
        let mut said = probes.notes.clone();
        said.extend(route_changes::not_known(&self.route_changes, self.still.unknown));
        match self.split {
            Split::OneClock => {}
            Split::ShortestHalved => said.push(
                "how the shortest delay is split between the directions: half each (a constant difference cannot be distinguished from \
                 the clocks' offset)"
                    .into(),
            ),
            Split::RoundTrips => said.push(
                "how delay and jitter are split between the directions: half of the delay each, all jitter forward".into(),
            ),
        }
        if self.backward_loss.is_none() && self.loss.lost_packets + self.duplicate_packets > 0 {
            said.push("which direction lost or duplicated packets: forward is assumed".into());
        }
        if probes.ways.is_some() {
            if queues.iter().any(Result::is_err) {
                said.push("how much of the delay is a queue that the captured packets filled themselves: where no rate is known, all of it is written as the path's".into());
            }
            said.push("duplicates".into());
        }
        let outages = self.losses().into_iter().flat_map(|fit| &fit.outages);
        if let Some(last) = outages.map(|outage| outage.lasting_ns).max() {
            let seconds = last as f64 / 1e9;
            said.push(format!(
                "whether the outage of up to {seconds:.1} s comes again: it is written once, at its time after the path's start"
            ));
        }
        if !self.delay_shifts.is_empty() {
            said.push(
                "whether the delay shifts again: each shift is written once, at its time after the path's start".into(),
            );
        }
        if self.still.unknown && self.rtt.stddev_ns >= STDDEV_LEAST_NS {
            said.push("whether jitter hides route changes: there is too little data, or the delay changes slowly all the time".into());
        }
        if let Some(correlation) = self.rtt.correlation.filter(|correlation| correlation.below_interval) {
            let apart = Nanos(correlation.neighbours_ns);
            said.push(format!("how alike delays are that are less than {apart} apart: probe more often"));
        }
        let hops = self.path.forward.iter().chain(&self.path.backward);
        if hops.filter_map(|hop| hop.jitter.as_ref()).any(|jitter| jitter.correlation == Some(CORRELATION_MAX)) {
            said.push(format!(
                "over what time delays change: more than {CORRELATION_MAX}, the longest that a path has, which is written"
            ));
        }
        if let [Err(why), Err(other)] = queues
            && why == other
        {
            said.push(format!("rate and queue: {why}"));
            return said;
        }
        for (queue, way) in queues.iter().zip(["forward", "backward"]) {
            match queue {
                Err(why) => said.push(format!("rate and queue of the {way} direction: {why}")),
                Ok(SlowestQueue { bytes: None, .. }) => {
                    said.push(format!("the size of the queue of the {way} direction"));
                }
                Ok(_) => {}
            }
        }
        said
    }

    /// The path file, with the evidence of each value above it.
    fn written(&self) -> String {
        let mut text = String::new();
        let seconds = self.duration_ns as f64 / 1e9;
        let _ = writeln!(
            text,
            "# Made from {} {} over {seconds:.0} s, {} apart, of which {} were lost.",
            self.losses().iter().map(|fit| fit.sent_packets).sum::<u64>(),
            self.packets(),
            Nanos(self.interval_ns),
            self.losses().iter().map(|fit| fit.lost_packets).sum::<u64>()
        );
        for sentence in route_changes::comments(&self.route_changes) {
            let _ = writeln!(text, "# {sentence}");
        }
        for sentence in &self.not_known {
            let _ = writeln!(text, "# Not known: {sentence}.");
        }
        let (mut way, mut queue, mut loss, mut bunches) = (None, None, &self.loss, self.forward_bunches);
        let mut still = None;
        for line in self.path.to_toml().lines() {
            match line {
                "[[forward]]" | "[[both]]" => {
                    (way, queue) = (self.forward.as_ref().or(Some(&self.rtt)), self.forward_queue.as_ref());
                    still = self.still.ways[0].as_ref().or(self.still.rtt.as_ref());
                }
                "[[backward]]" => {
                    (way, queue) = (self.backward.as_ref(), self.backward_queue.as_ref());
                    still = self.still.ways[1].as_ref();
                    loss = self.backward_loss.as_ref().unwrap_or(loss);
                    bunches = self.backward_bunches;
                }
                _ => {}
            }
            let key = line.split(" = ").next().unwrap_or_default();
            let of_queue = match key {
                "rate" => queue.map(|queue| queue.rate_evidence.clone()),
                "queue" => queue.map(|queue| queue.bytes_evidence.clone()),
                "coalesce" => bunches.map(|Bunches { share, packets, .. }| {
                    format!("{:.0} % of the packets arrive in bunches, of {packets:.1} on average", share * 100.0)
                }),
                _ => None,
            };
            let way = if key == "jitter" { still.or(way) } else { way };
            for comment in self.evidence(key, way, loss).into_iter().chain(of_queue) {
                let _ = writeln!(text, "# {comment}");
            }
            let _ = writeln!(text, "{line}");
        }
        text
    }

    fn evidence(&self, key: &str, way: Option<&DelaySummary>, loss: &LossFit) -> Vec<String> {
        let ms = |ns: f64| ns / 1e6;
        match (key, way) {
            ("delay", Some(way)) => vec![format!(
                "{} packets: min {:.3}, p10 {:.3}, median {:.3}, p90 {:.3}, p99 {:.3}, max {:.3} ms{}",
                way.samples,
                ms(way.min_ns),
                ms(way.p10_ns),
                ms(way.p50_ns),
                ms(way.p90_ns),
                ms(way.p99_ns),
                ms(way.max_ns),
                if self.split == Split::RoundTrips { " (round trip)" } else { "" }
            )],
            ("delay", None) => vec!["half of the shortest round trip".into()],
            ("delay-steps", _) => vec![format!(
                "level shifts of the round trip: {}",
                self.delay_shifts
                    .iter()
                    .map(|shift| format!("{:+.3} ms at {:.1} s", ms(shift.rtt_ns), shift.at_ns as f64 / 1e9))
                    .collect::<Vec<_>>()
                    .join(", ")
            )],
            ("jitter", Some(way)) => way
                .correlation
                .iter()
                .map(|correlation| {
                    format!(
                        "delays of neighbours {} apart: correlation {:.2}{}",
                        Nanos(correlation.neighbours_ns),
                        correlation.of_neighbours,
                        if correlation.below_interval { ", too little to see over what time they change" } else { "" }
                    )
                })
                .chain([format!("quantiles: means of {} equal parts", way.table.len())])
                .collect(),
            ("loss", _) => loss_evidence(loss),
            ("outages", _) => {
                let packets: Vec<String> = loss.outages.iter().map(|outage| outage.packets.to_string()).collect();
                vec![format!("lost in a row: {}", packets.join(", "))]
            }
            ("duplicate", _) => vec![format!("{} duplicates", self.duplicate_packets)],
            _ => Vec::new(),
        }
    }

    /// Of both directions where each is known.
    pub fn losses(&self) -> Vec<&LossFit> {
        std::iter::once(&self.loss).chain(&self.backward_loss).collect()
    }

    /// What was measured: probes, or packets of others in captures.
    pub fn packets(&self) -> &'static str {
        if self.of_probes { "probes" } else { "packets" }
    }
}

fn loss_evidence(fit: &LossFit) -> Vec<String> {
    let lost = fit.lost_packets - fit.outages.iter().map(|outage| outage.packets).sum::<u64>();
    let of = format!("{lost} lost in {} runs outside of outages", fit.runs);
    match fit.law {
        LossLaw::None { less_than } => vec![format!("{of}: less than {:.4} % (95 %)", less_than * 100.0)],
        LossLaw::Random { interval: [least, most], .. } => vec![
            of,
            format!(
                "independent: {:.4} to {:.4} % (95 %); bursts explain it no better (gain {:.1}, 6.6 needed)",
                least * 100.0,
                most * 100.0,
                fit.gain
            ),
        ],
        LossLaw::Bursts { lasting_interval_ns: lasting, every_interval_ns: every, lost_interval, .. } => vec![
            of,
            format!(
                "bursts in time (gain {:.1} over independent losses): for {:.1} to {:.1} ms, every {:.2} to {:.2} s{} (95 %)",
                fit.gain,
                lasting[0] / 1e6,
                lasting[1] / 1e6,
                every[0] / 1e9,
                every[1] / 1e9,
                lost_interval.map_or(String::new(), |[least, most]| format!(
                    ", in which {:.0} to {:.0} % are lost",
                    least * 100.0,
                    most * 100.0
                ))
            ),
        ],
    }
}

/// The delays of packets at both ends.
fn of_passages(ways: &[Vec<Passage>; 2], clocks: Option<ClockFit>) -> (Split, Option<ClockFit>, [Samples; 2]) {
    let samples = |way: &Vec<Passage>| -> Samples {
        way.iter().filter_map(|passage| Some((passage.sent_ns, passage.delay_ns?, 1))).collect()
    };
    let split = if clocks.is_some() { Split::ShortestHalved } else { Split::OneClock };
    (split, clocks, ways.each_ref().map(samples))
}

/// The mean time between packets: TCP's leave in bursts, which have a median of nothing between them.
fn interval_of(way: &[Passage]) -> u64 {
    let (Some(first), Some(last)) = (way.first(), way.last()) else { return 0 };
    last.sent_ns.abs_diff(first.sent_ns) / (way.len() as u64 - 1).max(1)
}

/// What the law of loss is fitted to. A super-packet's wire packets have one stamp: they are laid evenly up to the next one.
fn as_rows(way: &[Passage]) -> Vec<Probe> {
    let row = |passage: &Passage, sent_ns: i64| Probe {
        sent_ns,
        rtt_ns: passage.delay_ns.map(|delay| delay.max(0.0) as u64),
        ..Probe::default()
    };
    let (mut rows, mut at) = (Vec::with_capacity(way.len()), 0);
    for equal in way.chunk_by(|a, b| a.sent_ns == b.sent_ns) {
        at += equal.len();
        let from = equal[0].sent_ns;
        let until = way.get(at).map_or(from, |next| next.sent_ns.min(from.saturating_add(TOGETHER_MOST_NS)));
        let apart = until.saturating_sub(from) / equal.len() as i64;
        rows.extend((0..).zip(equal).map(|(nth, passage)| row(passage, from.saturating_add(apart * nth))));
    }
    rows
}

/// A probe that the responder stamped.
struct Stamped<'a> {
    row: &'a Probe,
    forward_ns: i64,
    backward_ns: i64,
}

/// The delays of both directions, as far as the responder's stamps tell them.
fn ways(probes: &Probes, same_clock: bool) -> (Split, Option<ClockFit>, [Samples; 2]) {
    let stamped: Vec<Stamped> = probes
        .rows
        .iter()
        .filter_map(|row| Some(Stamped { row, forward_ns: row.forward_ns?, backward_ns: row.backward_ns? }))
        .collect();
    if stamped.len() < LEAST_ANSWERS {
        return (Split::RoundTrips, None, [Vec::new(), Vec::new()]);
    }
    let forward: Vec<(i64, i64)> = stamped.iter().map(|at| (at.row.sent_ns, at.forward_ns)).collect();
    let backward: Vec<(i64, i64)> =
        stamped.iter().map(|at| (at.row.sent_ns, at.backward_ns.saturating_neg())).collect();
    let fit = clocks::fit(&forward, &backward);
    let (split, fit) = if same_clock { (Split::OneClock, None) } else { (Split::ShortestHalved, Some(fit)) };
    let offset = |at: i64| fit.as_ref().map_or(0.0, |fit| fit.offset_at(at));
    let sample = |at: &Stamped, delay: f64| (at.row.sent_ns, delay, at.row.resolution_ns);
    let forward = stamped.iter().map(|at| sample(at, at.forward_ns as f64 - offset(at.row.sent_ns))).collect();
    let backward = stamped.iter().map(|at| sample(at, at.backward_ns as f64 + offset(at.row.sent_ns))).collect();
    (split, fit, [forward, backward])
}
