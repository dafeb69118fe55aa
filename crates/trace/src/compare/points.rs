//! The same packets at two points, as they are read.
//!
//! Both captures come in the order of time, laid over each other by the [`Plan`]. Of each point those packets are held that may yet be
//! matched, and those behind them, as accounts are kept in the order of passing: at most what passes in the plan's window, and at most
//! [`MOST_HELD`]. So memory follows rate × delay, not the captures' length.

mod account;

use std::collections::{HashMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::behaviour::Verdict;
use super::clocks::ClockFit;
use super::identity::{Identity, Path, SegmentSizes, identities, path};
use super::plan::Plan;
use crate::flow::Intervals;
use crate::packet::Packet;
use account::Account;

/// Packets of a point that are held: 2 s at a million a second, and some 250 MB.
const MOST_HELD: usize = 1 << 21;

/// How captures are matched.
#[derive(Debug, Clone, Copy, Default)]
pub struct MatchOptions {
    /// Both stamps are of one clock: times are not corrected.
    pub same_clock: bool,
}

/// Which way, between the points.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Past A first.
    AToB,
    /// Past B first.
    BToA,
}

/// A packet of A and one of B that are one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reached {
    /// The direction of the flow, an index into [`Compared::paths`].
    pub path: u32,
    /// TCP's sequence number or the probe's.
    pub sequence: u64,
    /// A's stamp.
    pub a_ns: i64,
    /// B's stamp.
    pub b_ns: i64,
    /// From the one that it passed first to the other, the clocks corrected.
    pub delay_ns: f64,
}

/// Packets of one flow that passed the first point and not the second, in a row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
}

/// Delays, summed up. Quantiles are of all up to 131,072 packets, of longer captures of as many or half of it, evenly spread.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
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

/// What happened between the points in one direction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Between {
    /// Which.
    pub direction: Direction,
    /// Wire packets that passed the first point while the second was captured.
    pub sent_packets: u64,
    /// Of these, those that passed the second.
    pub reached_packets: u64,
    /// Those that did not.
    pub lost_packets: u64,
    /// Passed the second point alone: made in between, or changed.
    pub unknown_packets: u64,
    /// Overtaken by a later one of the same flow (RFC 4737 §3.3).
    pub reordered_packets: u64,
    /// Delay from the first point to the second; `None` without packets.
    pub delay: Option<Delay>,
    /// Which were lost, in the order of their passing; the first 10,000 runs.
    pub lost: Vec<LostRun>,
    /// Intervals at the first point and the second, by [`Intervals`]' bins.
    #[serde(skip)]
    pub intervals: [Intervals; 2],
    /// Whether the path left the packets' spacing as it was.
    pub spacing: Verdict,
}

/// What came out.
#[derive(Debug, Clone, PartialEq)]
pub struct Compared {
    /// Directions of flows.
    pub paths: Vec<Path>,
    /// How the clocks lie.
    pub clock: ClockFit,
    /// Whether IP identifications passed unchanged, and so told packets apart.
    pub by_identification: bool,
    /// From A to B, and back; a direction without packets is left out.
    pub directions: Vec<Between>,
    /// How long a packet was waited for at the other point.
    pub window_ns: i64,
    /// Packets that were taken as lost before that, as too many passed.
    pub given_up_packets: u64,
}

/// Why two captures cannot be laid over each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CompareError {
    /// Nothing in common.
    #[error("no packet of the one is in the other")]
    NothingInCommon,
}

/// A wire packet at one of the points.
#[derive(Debug, Clone, Copy)]
struct Held {
    at_ns: i64,
    key: u64,
    sequence: u64,
    payload_len: u32,
    path: u32,
    /// Not the first of its super-packet.
    follows: bool,
    /// The same one at the other point: the how manieth there, and when it passed.
    partner: Option<(u64, i64)>,
    /// The next of this point with the same key that waits.
    next: u64,
}

/// No packet.
const NONE: u64 = u64::MAX;

#[derive(Debug, Default)]
struct Point {
    held: VecDeque<Held>,
    /// The number of the first that is held.
    first: u64,
    /// The first and the last number of those that wait, by key.
    waiting: HashMap<u64, (u64, u64), foldhash::fast::FixedState>,
}

impl Point {
    fn at(&mut self, number: u64) -> Option<&mut Held> {
        self.held.get_mut(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    /// The first of those with `key` that wait, which then waits no more.
    fn take(&mut self, key: u64) -> Option<u64> {
        let (first, last) = self.waiting.get(&key).copied()?;
        let next = self.at(first).map_or(NONE, |held| held.next);
        if next == NONE {
            self.waiting.remove(&key);
        } else {
            self.waiting.insert(key, (next, last));
        }
        Some(first)
    }

    fn wait(&mut self, key: u64, number: u64) {
        let before = self.waiting.get(&key).map(|(_, last)| *last);
        let first = self.waiting.get(&key).map_or(number, |(first, _)| *first);
        self.waiting.insert(key, (first, number));
        if let Some(held) = before.and_then(|last| self.at(last)) {
            held.next = number;
        }
    }
}

/// The packets of two captures, matched as they come.
#[derive(Debug)]
pub struct Matching<'a, F> {
    plan: Plan,
    sizes: &'a SegmentSizes,
    numbers: HashMap<Path, u32>,
    paths: Vec<Path>,
    ways: Vec<Option<Direction>>,
    points: [Point; 2],
    accounts: [Account; 2],
    given_up_packets: u64,
    now_ns: i64,
    each: F,
}

impl<'a, F: FnMut(&Reached)> Matching<'a, F> {
    /// Nothing yet. `each` gets those that passed both points, in the order of A.
    pub fn new(plan: Plan, sizes: &'a SegmentSizes, each: F) -> Self {
        Self {
            plan,
            sizes,
            numbers: HashMap::new(),
            paths: Vec::new(),
            ways: Vec::new(),
            points: Default::default(),
            accounts: [Account::new(Direction::AToB), Account::new(Direction::BToA)],
            given_up_packets: 0,
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
        self.packet(packet, Direction::AToB);
    }

    /// The next packet of B.
    pub fn b(&mut self, packet: &Packet) {
        self.packet(packet, Direction::BToA);
    }

    /// Packets held at both points, by which memory is bounded.
    pub fn held(&self) -> usize {
        self.points.iter().map(|point| point.held.len()).sum()
    }

    fn packet(&mut self, packet: &Packet, from: Direction) {
        let Some(path) = path(packet) else { return };
        let number = self.number(path);
        let (sizes, by_identification) = (self.sizes, self.plan.by_identification);
        let mut follows = false;
        identities(packet, &path, sizes, |identity| {
            self.wire_packet(packet.at_ns, from, number, identity, by_identification, follows);
            follows = true;
        });
        self.now_ns = self.now_ns.max(self.plan.by_a(from, packet.at_ns));
        self.settle(self.now_ns.saturating_sub(self.plan.window_ns));
    }

    fn number(&mut self, path: Path) -> u32 {
        if let Some(number) = self.numbers.get(&path) {
            return *number;
        }
        let number = self.paths.len() as u32;
        self.numbers.insert(path, number);
        self.paths.push(path);
        let reverse = Path { src: path.dst, dst: path.src, ..path };
        let own = self.plan.ways.get(&path).copied();
        self.ways.push(own.or_else(|| self.plan.ways.get(&reverse).map(|way| way.other())));
        number
    }

    fn wire_packet(&mut self, at_ns: i64, from: Direction, path: u32, identity: Identity, strict: bool, follows: bool) {
        let key = if strict { identity.strict } else { identity.loose };
        let [a, b] = &mut self.points;
        let (own, other) = if from == Direction::AToB { (a, b) } else { (b, a) };
        let number = own.first + own.held.len() as u64;
        let mut partner = None;
        if let Some(found) = other.take(key)
            && let Some(held) = other.at(found)
        {
            held.partner = Some((number, at_ns));
            partner = Some((found, held.at_ns));
        }
        let (sequence, payload_len) = (identity.sequence, identity.payload_len);
        own.held.push_back(Held { at_ns, key, sequence, payload_len, path, follows, partner, next: NONE });
        if partner.is_none() {
            own.wait(key, number);
        }
        if let (None, Some((_, other_ns))) = (self.ways[path as usize], partner) {
            // A flow that is in no sample: the sign tells.
            let (a_ns, b_ns) = if from == Direction::AToB { (at_ns, other_ns) } else { (other_ns, at_ns) };
            let later = (b_ns - a_ns) as f64 - self.plan.clock.offset_at(a_ns);
            self.ways[path as usize] = Some(if later >= 0.0 { Direction::AToB } else { Direction::BToA });
        }
    }

    /// Accounts for packets that were matched, and those from before `until_ns` by A's clock, up to the first of each point that may yet be
    /// matched.
    fn settle(&mut self, until_ns: i64) {
        for from in [Direction::AToB, Direction::BToA] {
            let index = from as usize;
            while let Some(held) = self.points[index].held.front().copied() {
                let is_old = self.plan.by_a(from, held.at_ns) < until_ns;
                let are_many = self.points[index].held.len() > MOST_HELD;
                if held.partner.is_none() && !is_old && !are_many {
                    break;
                }
                let point = &mut self.points[index];
                if held.partner.is_none() {
                    self.given_up_packets += u64::from(!is_old);
                    // It is the oldest of its point, so the first that waits by its key.
                    point.take(held.key);
                }
                point.held.pop_front();
                point.first += 1;
                self.account(from, &held);
            }
        }
    }

    fn account(&mut self, from: Direction, held: &Held) {
        let Some(way) = self.ways[held.path as usize] else { return };
        let plan = &self.plan;
        let account = &mut self.accounts[way as usize];
        if way != from {
            account.second(held);
        } else {
            let offset_ns = plan.clock.offset_at(held.at_ns);
            let offset_ns = if way == Direction::AToB { offset_ns } else { -offset_ns };
            // What passed so early or late that the other point was not captured when it came is not lost.
            let due_ns = held.at_ns as f64 + plan.least_delay_ns[way as usize] + offset_ns;
            let (start, end) = plan.spans_ns[way.other() as usize];
            let is_captured = (start as f64..=end as f64).contains(&due_ns);
            account.first(held, is_captured);
        }
        let (Direction::AToB, Some((_, b_ns))) = (from, held.partner) else { return };
        let later = (b_ns - held.at_ns) as f64 - plan.clock.offset_at(held.at_ns);
        let delay_ns = if way == Direction::AToB { later } else { -later };
        account.delay(delay_ns);
        let (path, sequence) = (held.path, held.sequence);
        (self.each)(&Reached { path, sequence, a_ns: held.at_ns, b_ns, delay_ns });
    }

    /// Both captures are over.
    pub fn finish(mut self) -> Compared {
        self.settle(i64::MAX);
        let directions = self.accounts.into_iter().map(Account::finish);
        Compared {
            paths: self.paths,
            clock: self.plan.clock,
            by_identification: self.plan.by_identification,
            directions: directions.filter(|between| between.sent_packets > 0).collect(),
            window_ns: self.plan.window_ns,
            given_up_packets: self.given_up_packets,
        }
    }
}

impl Direction {
    fn other(self) -> Self {
        match self {
            Self::AToB => Self::BToA,
            Self::BToA => Self::AToB,
        }
    }
}

#[cfg(test)]
mod tests;
