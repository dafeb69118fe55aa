//! The same packets at two points.

use std::collections::HashMap;

use serde::Serialize;

use super::behaviour::{Thinned, Verdict, verdict};
use super::clocks::{ClockFit, fit};
use super::identity::{Identity, Path, SegmentSizes, identities, path};
use crate::flow::Intervals;
use crate::packet::{Packet, Transport};

/// Runs of lost packets that are listed.
const MOST_RUNS: usize = 10_000;
/// Differences of stamps that tell which way a flow goes.
const MOST_SAMPLED: usize = 4_096;

/// How captures are matched.
#[derive(Debug, Clone, Copy, Default)]
pub struct MatchOptions {
    /// Both stamps are of one clock: times are not corrected.
    pub same_clock: bool,
}

/// Which way, between the points.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Past A first.
    AToB,
    /// Past B first.
    BToA,
}

/// A wire packet that was read.
#[derive(Debug, Clone, Copy)]
struct Seen {
    at_ns: i64,
    identity: Identity,
    path: u32,
    /// Not the first of its super-packet.
    follows: bool,
}

/// One capture, as far as it takes part in the comparison.
#[derive(Debug, Default)]
pub struct Reading {
    packets: Vec<Packet>,
}

/// The wire packets of one capture.
#[derive(Debug, Default)]
struct Point {
    seen: Vec<Seen>,
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
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

/// Delays, summed up.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
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
#[derive(Debug, Clone, PartialEq, Serialize)]
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
    /// Packets that passed both, in the order of A.
    pub reached: Vec<Reached>,
}

/// Why two captures cannot be laid over each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CompareError {
    /// Nothing in common.
    #[error("no packet of the one is in the other")]
    NothingInCommon,
}

impl Reading {
    /// The next packet of the capture. What is neither TCP nor UDP takes no part.
    pub fn packet(&mut self, packet: &Packet) {
        if path(packet).is_some() {
            self.packets.push(*packet);
        }
    }

    /// Full segments of each direction: what its handshake says, else its largest packet.
    fn learn_sizes(&self, offered: &mut SegmentSizes, largest: &mut SegmentSizes) {
        let mut most = SegmentSizes::new();
        for packet in &self.packets {
            let (Transport::Tcp(tcp), Some(path)) = (&packet.transport, path(packet)) else { continue };
            if let Some(mss) = tcp.options.mss {
                let reverse = Path { src: path.dst, dst: path.src, ..path };
                let stamps = if tcp.options.timestamps.is_some() { 12 } else { 0 };
                offered.insert(reverse, u32::from(mss).saturating_sub(stamps).max(1));
            }
            if packet.gso_size == 0 && packet.gso_segs < 2 && tcp.payload_len > 0 {
                let size = most.entry(path).or_default();
                *size = tcp.payload_len.max(*size);
            }
        }
        for (path, size) in most {
            // The capture nearer to the wire has the smaller ones.
            let known = largest.entry(path).or_insert(u32::MAX);
            *known = size.min(*known);
        }
    }

    fn point(&self, numbers: &mut HashMap<Path, u32>, sizes: &SegmentSizes) -> Point {
        let mut point = Point::default();
        for packet in &self.packets {
            let Some(path) = path(packet) else { continue };
            let next = numbers.len() as u32;
            let number = *numbers.entry(path).or_insert(next);
            let mut follows = false;
            identities(packet, &path, sizes, |identity| {
                point.seen.push(Seen { at_ns: packet.at_ns, identity, path: number, follows });
                follows = true;
            });
        }
        point
    }
}

/// For each packet of A the index of the same one in B. Of several with one identity the first is the first's.
fn matched(a: &Point, b: &Point, name: impl Fn(&Identity) -> u64) -> (Vec<Option<u32>>, u64) {
    const END: u32 = u32::MAX;
    let mut first: HashMap<u64, (u32, u32), foldhash::fast::FixedState> = HashMap::default();
    let mut next = vec![END; b.seen.len()];
    for (index, seen) in (0..).zip(&b.seen) {
        let entry = first.entry(name(&seen.identity)).or_insert((index, END));
        if entry.1 != END {
            next[entry.1 as usize] = index;
        }
        entry.1 = index;
    }
    let mut count = 0;
    let of = a.seen.iter().map(|seen| {
        let entry = first.get_mut(&name(&seen.identity)).filter(|entry| entry.0 != END)?;
        let found = entry.0;
        entry.0 = next[found as usize];
        count += 1;
        Some(found)
    });
    (of.collect(), count)
}

/// Lays the captures of two points over each other.
///
/// # Errors
/// Where they have nothing in common.
pub fn match_points(a: &Reading, b: &Reading, options: MatchOptions) -> Result<Compared, CompareError> {
    let (mut offered, mut sizes) = (SegmentSizes::new(), SegmentSizes::new());
    for reading in [a, b] {
        reading.learn_sizes(&mut offered, &mut sizes);
    }
    for (path, size) in offered {
        let known = sizes.entry(path).or_insert(size);
        *known = size.min(*known);
    }
    let mut numbers = HashMap::new();
    let (a, b) = (a.point(&mut numbers, &sizes), b.point(&mut numbers, &sizes));
    let (strict, by_id) = matched(&a, &b, |identity| identity.strict);
    let (loose, by_rest) = matched(&a, &b, |identity| identity.loose);
    // Where a router or an offload writes identifications anew, few are the same.
    let by_identification = by_id * 2 > by_rest;
    let of = if by_identification { strict } else { loose };
    if of.iter().all(Option::is_none) {
        return Err(CompareError::NothingInCommon);
    }
    let mut paths: Vec<(Path, u32)> = numbers.into_iter().collect();
    paths.sort_by_key(|(_, number)| *number);
    let paths: Vec<Path> = paths.into_iter().map(|(path, _)| path).collect();
    let ways = ways(&a, &b, &of, &paths);
    let differences = |way| -> Vec<(i64, i64)> {
        let pairs = a.seen.iter().zip(&of).filter(|(seen, _)| ways[seen.path as usize] == Some(way));
        pairs.filter_map(|(seen, of)| Some((seen.at_ns, b.seen[(*of)? as usize].at_ns - seen.at_ns))).collect()
    };
    let (forward, backward) = (differences(Direction::AToB), differences(Direction::BToA));
    let clock = ClockFit { corrected: !options.same_clock, ..fit(&forward, &backward) };
    let mut back = vec![None; b.seen.len()];
    for (index, of) in (0..).zip(&of) {
        if let Some(of) = of {
            back[*of as usize] = Some(index);
        }
    }
    let mut reached = Vec::new();
    for (seen, of) in a.seen.iter().zip(&of) {
        let (Some(of), Some(way)) = (of, ways[seen.path as usize]) else { continue };
        let b_ns = b.seen[*of as usize].at_ns;
        let later = (b_ns - seen.at_ns) as f64 - clock.offset_at(seen.at_ns);
        let delay_ns = if way == Direction::AToB { later } else { -later };
        reached.push(Reached { path: seen.path, sequence: seen.identity.sequence, a_ns: seen.at_ns, b_ns, delay_ns });
    }
    let directions = [
        between(Direction::AToB, (&a, &of), (&b, &back), &ways, &reached, &clock),
        between(Direction::BToA, (&b, &back), (&a, &of), &ways, &reached, &clock),
    ];
    Ok(Compared {
        paths,
        clock,
        by_identification,
        directions: directions.into_iter().filter(|between| between.sent_packets > 0).collect(),
        reached,
    })
}

/// Which way each direction of flow goes. Of a flow's two directions the one with the greater difference of stamps goes from A to B,
/// as it has the delay added and the other subtracted. Where there is one alone, it goes with those that it is nearer to, and where
/// there are none, the sign tells, if the clocks are near.
fn ways(a: &Point, b: &Point, of: &[Option<u32>], paths: &[Path]) -> Vec<Option<Direction>> {
    let mut differences: Vec<Vec<i64>> = vec![Vec::new(); paths.len()];
    for (seen, of) in a.seen.iter().zip(of) {
        let sampled = &mut differences[seen.path as usize];
        if let Some(of) = of.filter(|_| sampled.len() < MOST_SAMPLED) {
            sampled.push(b.seen[of as usize].at_ns - seen.at_ns);
        }
    }
    let median = |mut all: Vec<i64>| {
        all.sort_unstable();
        all.get(all.len() / 2).copied()
    };
    let medians: HashMap<Path, i64> =
        paths.iter().zip(differences).filter_map(|(path, all)| Some((*path, median(all)?))).collect();
    let reverse = |path: &Path| Path { src: path.dst, dst: path.src, protocol: path.protocol };
    let paired = || paths.iter().filter_map(|path| Some((*medians.get(path)?, *medians.get(&reverse(path))?)));
    let forward = median(paired().map(|(one, other)| one.max(other)).collect());
    let backward = median(paired().map(|(one, other)| one.min(other)).collect());
    let way = |path: &Path| {
        let own = *medians.get(path)?;
        let forward = match (medians.get(&reverse(path)), forward, backward) {
            (Some(other), ..) => own > *other,
            (None, Some(forward), Some(backward)) => own.abs_diff(forward) <= own.abs_diff(backward),
            _ => own >= 0,
        };
        Some(if forward { Direction::AToB } else { Direction::BToA })
    };
    paths.iter().map(way).collect()
}

type WithPartners<'a> = (&'a Point, &'a [Option<u32>]);

fn between(
    direction: Direction,
    (first, partners): WithPartners<'_>,
    (second, origins): WithPartners<'_>,
    ways: &[Option<Direction>],
    reached: &[Reached],
    clock: &ClockFit,
) -> Between {
    let goes = |seen: &Seen| ways[seen.path as usize] == Some(direction);
    let mut delays: Vec<f64> =
        reached.iter().filter(|one| ways[one.path as usize] == Some(direction)).map(|one| one.delay_ns).collect();
    delays.sort_by(f64::total_cmp);
    // What passed the first point so early or late that the second was not captured when it came is not lost.
    let least_delay = delays.first().copied().unwrap_or(0.0);
    let shift = |at_ns: i64| {
        let offset = clock.offset_at(at_ns);
        at_ns as f64 + least_delay + if direction == Direction::AToB { offset } else { -offset }
    };
    let window = second
        .seen
        .iter()
        .fold((f64::MAX, f64::MIN), |(start, end), seen| (start.min(seen.at_ns as f64), end.max(seen.at_ns as f64)));
    let mut between = Between {
        direction,
        sent_packets: 0,
        reached_packets: 0,
        lost_packets: 0,
        unknown_packets: 0,
        reordered_packets: 0,
        delay: summed_up(&delays),
        lost: Vec::new(),
        intervals: Default::default(),
        spacing: verdict(&[]),
    };
    let mut open: HashMap<u32, usize> = HashMap::new();
    for (seen, partner) in first.seen.iter().zip(partners).filter(|(seen, _)| goes(seen)) {
        if partner.is_some() {
            between.sent_packets += 1;
            between.reached_packets += 1;
            open.remove(&seen.path);
            continue;
        }
        let due = shift(seen.at_ns);
        if due < window.0 || due > window.1 {
            continue;
        }
        between.sent_packets += 1;
        between.lost_packets += 1;
        if let Some(index) = open.get(&seen.path) {
            let run: &mut LostRun = &mut between.lost[*index];
            run.packets += 1;
            run.last_sequence = seen.identity.sequence;
            run.payload_bytes += u64::from(seen.identity.payload_len);
        } else if between.lost.len() < MOST_RUNS {
            open.insert(seen.path, between.lost.len());
            between.lost.push(LostRun {
                path: seen.path,
                first_sequence: seen.identity.sequence,
                last_sequence: seen.identity.sequence,
                packets: 1,
                payload_bytes: seen.identity.payload_len.into(),
                at_ns: seen.at_ns,
            });
        }
    }
    let mut highest: HashMap<u32, u32> = HashMap::new();
    for (seen, origin) in second.seen.iter().zip(origins).filter(|(seen, _)| goes(seen)) {
        let Some(origin) = origin else {
            between.unknown_packets += 1;
            continue;
        };
        let before = highest.entry(seen.path).or_insert(*origin);
        between.reordered_packets += u64::from(*origin < *before);
        *before = (*before).max(*origin);
    }
    let mut samples = [Thinned::default(), Thinned::default()];
    for (index, point) in [first, second].into_iter().enumerate() {
        let mut last: HashMap<u32, i64> = HashMap::new();
        for seen in point.seen.iter().filter(|seen| goes(seen) && !seen.follows && seen.identity.payload_len > 0) {
            if let Some(before) = last.insert(seen.path, seen.at_ns) {
                let interval = (seen.at_ns - before).max(0);
                between.intervals[index].add(interval);
                samples[index].push(interval as f64);
            }
        }
    }
    between.spacing = verdict(&[("interval_ns", &samples[0], &samples[1])]);
    between
}

/// Of sorted delays.
fn summed_up(delays: &[f64]) -> Option<Delay> {
    let count = delays.len() as f64;
    let at = |share: f64| delays[((count * share) as usize).min(delays.len() - 1)];
    let (min_ns, max_ns) = (*delays.first()?, *delays.last()?);
    let mean_ns = delays.iter().sum::<f64>() / count;
    let variance = delays.iter().map(|delay| (delay - mean_ns).powi(2)).sum::<f64>() / count;
    let [p50_ns, p90_ns, p99_ns] = [0.5, 0.9, 0.99].map(at);
    Some(Delay { min_ns, p50_ns, p90_ns, p99_ns, max_ns, mean_ns, stddev_ns: variance.sqrt() })
}

#[cfg(test)]
mod tests;
