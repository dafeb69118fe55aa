//! The same packets at two points, as they are read.
//!
//! Both captures come in the order of time, laid over each other by the [`Plan`]. Of each point those packets are held that may yet be
//! matched, and those behind them, as accounts are kept in the order of passing: at most what passes in the plan's window, and as many as
//! [`super::Bounds`] has room for. So memory follows rate × delay, not the captures' length. Each direction of a flow is kept to the end, as
//! many as there is room for.

mod account;
mod held;

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::behaviour::Behaviour;
use super::clocks::ClockFit;
use super::identity::{Identity, Path, PathDirection, Recognition, identities, path};
use super::plan::Plan;
use super::samples::Samples;
use crate::{Gaps, Intervals};
use account::{Account, Elsewhere, OfPath};
use held::{Held, Point};
use longhaul_captures::packet::Packet;

/// The IP protocol of datagrams, which may have no number of their own.
const UDP: u8 = 17;

/// A packet of A and one of B that are one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reached {
    /// Which way it went.
    pub direction: PathDirection,
    /// The direction of the flow, an index into [`Compared::paths`].
    pub path: u32,
    /// TCP's sequence number or the probe's.
    pub sequence: u64,
    /// Bytes of its payload.
    pub payload_bytes: u32,
    /// A's stamp.
    pub a_ns: i64,
    /// B's stamp.
    pub b_ns: i64,
    /// From the one that it passed first to the other, the clocks corrected.
    pub delay_ns: f64,
    /// One of the captures lost packets since the one before of this flow and direction: the series is cut here.
    pub after_gap: bool,
}

/// Packets of one flow that passed the first point and not the second, in a row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LostRun {
    /// The direction of the flow, an index into the list of paths.
    pub path: u32,
    /// The first one's number: TCP's sequence number, the probe's, or IP's identification.
    pub first_sequence: u64,
    /// The last one's.
    pub last_sequence: u64,
    /// How many.
    pub packets: u64,
    /// Payload bytes of all.
    pub payload_bytes: u64,
    /// When the first passed, by the clock of that point.
    pub at_ns: i64,
    /// When the last passed.
    #[serde(default)]
    pub last_at_ns: i64,
}

/// Delays, summed up. Quantiles are of all up to 131,072 packets, of longer captures of as many or half of it, evenly spread.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Delay {
    /// The shortest.
    pub min_ns: f64,
    /// Half are shorter.
    pub p50_ns: f64,
    /// Nine tenths are shorter.
    pub p90_ns: f64,
    /// All but a hundredth are shorter.
    pub p99_ns: f64,
    /// The longest.
    pub max_ns: f64,
    /// Their mean.
    pub mean_ns: f64,
    /// Their standard deviation.
    pub stddev_ns: f64,
}

/// Packets that only one point captured while the other captured nothing: it is unknown whether they passed the other point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NotObservable {
    /// Passed the first point, and were due at the second while that lost packets by its own account (or were given up before they were
    /// due).
    pub at_second_packets: u64,
    /// Passed the second point, and were due at the first while that lost packets.
    pub at_first_packets: u64,
    /// Passed one point, and were due at the other before its capture began or after it ended.
    pub outside_packets: u64,
}

/// What happened between the points in one direction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Between {
    /// Which.
    pub direction: PathDirection,
    /// Wire packets that passed the first point while the second was captured.
    pub sent_packets: u64,
    /// Of these, received at the second.
    pub reached_packets: u64,
    /// Of these, not received there.
    pub lost_packets: u64,
    /// Seen only at the second point: created or changed in between.
    pub unknown_packets: u64,
    /// Packets that count as none of these.
    pub not_observable: NotObservable,
    /// Datagrams that passed the first point and look like others of their flow that passed it within `window_ns`: they are left out.
    pub alike_packets: u64,
    /// Reordered within their flow (RFC 4737 §3.3).
    pub reordered_packets: u64,
    /// Delay from the first point to the second; `None` without packets.
    pub delay: Option<Delay>,
    /// Runs of packets of one flow that were lost in a row, all of them.
    pub loss_runs: u64,
    /// Packets of the longest.
    pub longest_loss_run: u64,
    /// Which were lost, in the order of their passing; the first 10,000 runs.
    pub lost: Vec<LostRun>,
    /// Intervals between data packets at the first point and the second, by [`Intervals`]' bins; those that reach across a gap of either
    /// capture are left out.
    #[serde(skip)]
    pub intervals: [Intervals; 2],
    /// The same between packets without payload, which are TCP's acknowledgments.
    #[serde(skip)]
    pub ack_intervals: [Intervals; 2],
    /// Whether the path kept the packets' spacing.
    pub spacing: Behaviour,
}

/// The result.
#[derive(Debug, Clone)]
pub struct Compared {
    /// Directions of flows.
    pub paths: Vec<Path>,
    /// How the clocks lie.
    pub clock: ClockFit,
    /// Whether IP identifications passed unchanged, and so identified packets.
    pub by_identification: bool,
    /// From A to B, and back; a direction without packets is left out.
    pub directions: Vec<Between>,
    /// Of the same directions, what a verdict about runs is made of.
    pub samples: Vec<(PathDirection, Samples)>,
    /// How often A and B lost packets by their own accounts, and for how long together, nanoseconds.
    pub gaps: [(u64, i64); 2],
    /// How long a packet was waited for at the other point.
    pub window_ns: i64,
    /// Packets that were given up before they were due at the other point, as too many passed; not observable.
    pub given_up_packets: u64,
    /// Captured packets of directions that came after as many as are kept, see [`super::Bounds`]; not observable.
    pub left_out_packets: u64,
}

/// The packets of two captures, matched as they come.
#[derive(Debug)]
pub struct Matching<'a, F> {
    plan: Plan,
    known: &'a Recognition,
    gaps: [Gaps; 2],
    numbers: HashMap<Path, u32>,
    paths: Vec<Path>,
    directions: Vec<Option<PathDirection>>,
    flows: Vec<OfPath>,
    points: [Point; 2],
    accounts: [Account; 2],
    given_up_packets: u64,
    left_out_packets: u64,
    now_ns: i64,
    each: F,
}

impl<'a, F: FnMut(&Reached)> Matching<'a, F> {
    /// Nothing yet. `gaps` are A's and B's, by the clock of each. `each` gets the packets that passed both points, in the order of A.
    pub fn new(plan: Plan, known: &'a Recognition, gaps: [Gaps; 2], each: F) -> Self {
        Self {
            plan,
            known,
            gaps,
            numbers: HashMap::new(),
            paths: Vec::new(),
            directions: Vec::new(),
            flows: Vec::new(),
            points: Default::default(),
            accounts: [Account::new(PathDirection::AToB), Account::new(PathDirection::BToA)],
            given_up_packets: 0,
            left_out_packets: 0,
            now_ns: i64::MIN,
            each,
        }
    }

    /// Whether the packet of B that is next comes before the one of A.
    pub fn b_is_next(&self, a_ns: i64, b_ns: i64) -> bool {
        self.plan.b_is_next(a_ns, b_ns)
    }

    /// The next packet of A.
    pub fn a(&mut self, packet: &Packet) {
        self.packet(packet, PathDirection::AToB);
    }

    /// The next packet of B.
    pub fn b(&mut self, packet: &Packet) {
        self.packet(packet, PathDirection::BToA);
    }

    /// Packets held at both points, by which memory is bounded.
    pub fn held(&self) -> usize {
        self.points.iter().map(Point::len).sum()
    }

    fn packet(&mut self, packet: &Packet, from: PathDirection) {
        let Some(path) = path(packet) else { return };
        if let Some(number) = self.number(path) {
            let (known, by_identification) = (self.known, self.plan.by_identification);
            let mut follows = false;
            identities(packet, &path, known, |identity| {
                self.wire_packet(packet.at_ns, from, number, identity, by_identification, follows);
                follows = true;
            });
        } else {
            self.left_out_packets += 1;
        }
        self.now_ns = self.now_ns.max(self.plan.by_a(from, packet.at_ns));
        self.settle(self.now_ns.saturating_sub(self.plan.window_ns));
    }

    /// The place of `path` among all; `None` where it is new and there is no room for it. It comes to that at both points alike.
    fn number(&mut self, path: Path) -> Option<u32> {
        if let Some(number) = self.numbers.get(&path) {
            return Some(*number);
        }
        if self.paths.len() >= self.known.bounds.paths {
            return None;
        }
        let number = self.paths.len() as u32;
        self.numbers.insert(path, number);
        self.paths.push(path);
        self.flows.push(OfPath::default());
        self.directions.push(self.plan.sides.direction(&path));
        Some(number)
    }

    fn wire_packet(
        &mut self,
        at_ns: i64,
        from: PathDirection,
        path: u32,
        identity: Identity,
        strict: bool,
        follows: bool,
    ) {
        let key = if strict { identity.strict } else { identity.loose };
        let [a, b] = &mut self.points;
        let (own, other) = if from == PathDirection::AToB { (a, b) } else { (b, a) };
        if identity.is_plain {
            own.recent.add(key, at_ns, self.plan.window_ns, self.known.bounds.held);
        }
        // Which of several that look alike this is can be told neither where they pass first, nor behind.
        let comes_first = self.directions[path as usize].is_none_or(|direction| direction == from);
        let is_alike =
            if comes_first { own.recent.is_alike(key) | own.others_wait(key) } else { other.recent.is_alike(key) };
        let partner = other.meet(key, own.next_number(), at_ns, is_alike);
        let held = Held::new(at_ns, path, identity.sequence, identity.payload_len, follows);
        own.push(if is_alike { held.alike() } else { held }, key, partner);
        let partner = partner.map(|(number, other_ns, _)| (number, other_ns));
        if let (None, Some((_, other_ns))) = (self.directions[path as usize], partner) {
            // A flow that is in no sample: the sign tells.
            let (a_ns, b_ns) = if from == PathDirection::AToB { (at_ns, other_ns) } else { (other_ns, at_ns) };
            let later = (b_ns - a_ns) as f64 - self.plan.clock.offset_at(a_ns);
            self.directions[path as usize] = Some(if later >= 0.0 { PathDirection::AToB } else { PathDirection::BToA });
        }
    }

    /// Accounts for packets that were matched, and those from before `until_ns` by A's clock, up to the first of each point that may yet be
    /// matched.
    fn settle(&mut self, until_ns: i64) {
        for from in [PathDirection::AToB, PathDirection::BToA] {
            let index = from as usize;
            while let Some(held) = self.points[index].front() {
                let is_old = self.plan.by_a(from, held.at_ns) < until_ns;
                if !held.has_partner() && !is_old && self.points[index].len() <= self.known.bounds.held {
                    break;
                }
                if let Some(held) = self.points[index].pop() {
                    self.account(from, &held, is_old);
                }
            }
        }
    }

    /// What is known of `held`, that did not pass the other point; unless it `is_old`, it was not waited for to the end.
    fn elsewhere(&mut self, direction: PathDirection, from: PathDirection, held: &Held, is_old: bool) -> Elsewhere {
        let (earliest_ns, latest_ns) = self.plan.due(direction, from, held.at_ns);
        let there = from.other();
        if !is_old && self.plan.by_a(there, latest_ns) >= self.now_ns {
            self.given_up_packets += 1;
            return Elsewhere::InGap;
        }
        if self.gaps[there as usize].meet(earliest_ns, latest_ns) {
            return Elsewhere::InGap;
        }
        // Any delay among the samples may be this packet's.
        let margin_ns = (self.plan.margin_ns(direction) as i64).saturating_add(1);
        let (start_ns, end_ns) = self.plan.spans_ns[there as usize];
        let is_within =
            start_ns <= earliest_ns.saturating_add(margin_ns) && latest_ns.saturating_sub(margin_ns) <= end_ns;
        if is_within { Elsewhere::Captured } else { Elsewhere::Outside }
    }

    fn account(&mut self, from: PathDirection, held: &Held, is_old: bool) {
        let path = held.path as usize;
        let Some(direction) = self.directions[path] else { return };
        let elsewhere = match held.has_partner() {
            true => Elsewhere::Captured,
            false => self.elsewhere(direction, from, held, is_old),
        };
        let (plan, gaps, account, flow) =
            (&self.plan, &self.gaps, &mut self.accounts[direction as usize], &mut self.flows[path]);
        let (here, there) = (&gaps[from as usize], &gaps[from.other() as usize]);
        let is_cut = |since_ns, now_ns| {
            here.lie_between(since_ns, now_ns)
                || *there != Gaps::default()
                    && there.meet(plan.due(direction, from, since_ns).0, plan.due(direction, from, now_ns).1)
        };
        account.interval(usize::from(direction != from), held, flow, is_cut);
        let is_plain = self.paths[path].protocol == UDP;
        if held.is_alike() && is_plain {
            if direction == from {
                account.alike(flow);
            }
            return;
        }
        if direction == from {
            let since_ns = std::mem::replace(&mut flow.passed_first_ns, held.at_ns);
            if since_ns != 0 && here.lie_between(since_ns, held.at_ns) {
                account.cut(flow);
            }
            match held.has_partner() {
                true => account.reached(flow),
                false => account.first_alone(held, flow, elsewhere),
            }
        } else {
            account.second(held, flow, elsewhere);
        }
        let (PathDirection::AToB, Some((_, b_ns))) = (from, held.partner().filter(|_| !held.is_alike())) else {
            return;
        };
        let a_ns = held.at_ns;
        let later = (b_ns - a_ns) as f64 - plan.clock.offset_at(a_ns);
        let delay_ns = if direction == PathDirection::AToB { later } else { -later };
        if delay_ns < 0.0 && delay_ns < plan.least_ns(direction) {
            // A copy that the path made of an earlier one that looks the same.
            return;
        }
        account.delay(delay_ns);
        let before = flow.reached_ns.replace((a_ns, b_ns));
        let after_gap = before.is_some_and(|(before_a_ns, before_b_ns)| {
            gaps[0].lie_between(before_a_ns, a_ns) || gaps[1].lie_between(before_b_ns.min(b_ns), b_ns.max(before_b_ns))
        });
        (self.each)(&Reached {
            direction,
            path: held.path,
            sequence: held.sequence,
            payload_bytes: held.payload_len(),
            a_ns,
            b_ns,
            delay_ns,
            after_gap,
        });
    }

    /// Both captures are over.
    pub fn finish(mut self) -> Compared {
        self.settle(i64::MAX);
        let (mut directions, mut samples) = (Vec::new(), Vec::new());
        for account in self.accounts {
            let direction = account.direction();
            let mut flows: Vec<OfPath> = self
                .flows
                .iter()
                .zip(&self.directions)
                .filter(|(_, of)| **of == Some(direction))
                .map(|(flow, _)| *flow)
                .collect();
            let (between, sampled) = account.finish(&mut flows);
            if between.sent_packets + between.alike_packets > 0 {
                directions.push(between);
                samples.push((direction, sampled));
            }
        }
        Compared {
            paths: self.paths,
            clock: self.plan.clock,
            by_identification: self.plan.by_identification,
            directions,
            samples,
            gaps: self.gaps.each_ref().map(Gaps::sum),
            window_ns: self.plan.window_ns,
            given_up_packets: self.given_up_packets,
            left_out_packets: self.left_out_packets,
        }
    }
}

impl PathDirection {
    fn other(self) -> Self {
        match self {
            Self::AToB => Self::BToA,
            Self::BToA => Self::AToB,
        }
    }
}

#[cfg(test)]
mod tests;
