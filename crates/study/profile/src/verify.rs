//! Does a path behave like what was measured? The path is run, and each quantity tested by the test that `compare --behaviour` has
//! ([`longhaul_flows::compare::equivalence`]).

use longhaul_flows::compare::equivalence::{Equivalence, Item, Margin, Margins, Quantity, QuantityName, Verdict};
use longhaul_path::spec::PathSpec;
use longhaul_units::Nanos;
use serde::Serialize;

use crate::curves::Curves;
use crate::probes::{Passage, Probe, Probes};
use crate::simulate::{simulate, simulate_ways, work};

/// The path is run until it has so many times the probes measured, or [`RUN_MOST`].
const RUN_TIMES: usize = 8;
const RUN_MOST: usize = 4_000_000;
/// All runs take this [`work`] at most, some two seconds; a single one may take more, for each packet measured: a day of ten a second over four hops
/// with jitter and losses in bursts passes.
const WORK_MOST: f64 = (1_u64 << 28) as f64;
const WORK_OF_A_PACKET: f64 = 512.0;
/// What scheduling adds to a packet's time on a host.
const LEAST_NS: f64 = 20_000.0;
/// Some thousand probes cannot tell rarer losses.
const LEAST_LOSS: f64 = 0.001;

/// Of round trips.
const ROUND_TRIP: [QuantityName; 9] = [
    QuantityName::MedianNs,
    QuantityName::RangeNs,
    QuantityName::P99Ns,
    QuantityName::P999Ns,
    QuantityName::Correlation,
    QuantityName::LossShare,
    QuantityName::LossRunPackets,
    QuantityName::ReorderedShare,
    QuantityName::DuplicateShare,
];

/// What says something of losses.
const LOSSES: [QuantityName; 3] = [QuantityName::LossShare, QuantityName::LossRunPackets, QuantityName::ReorderedShare];

/// Where the packets went that are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum DirectionName {
    /// Round trips.
    RoundTrip,
    /// To the server.
    Forward,
    /// From the server.
    Backward,
}

impl VerifiedDirection {
    /// A sentence on how coarse the measured times are, where that is more than the hosts' own scheduling.
    pub fn coarse(&self) -> Option<String> {
        let step = Nanos(self.resolution_ns);
        (self.resolution_ns as f64 > LEAST_NS)
            .then(|| format!("Measured times are read to {step}: how they vary within that is not known."))
    }
}

impl DirectionName {
    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Self::RoundTrip => "round trip",
            Self::Forward => "forward",
            Self::Backward => "backward",
        }
    }
}

/// Figures of the packets of one direction, or of round trips.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct VerifiedDirection {
    /// Which.
    pub of: DirectionName,
    /// Packets measured.
    pub packets: u64,
    /// Independent samples that they are worth: less where neighbours are alike.
    pub effective_samples: u64,
    /// Packets sent over the path.
    pub path_packets: u64,
    /// How coarse most of the measured times are, nanoseconds: ping(8) prints 1 ms from 100 ms on. Margins of times are no smaller.
    pub resolution_ns: u64,
    /// Each quantity: the measurement is the reference, the path is tested.
    pub quantities: Vec<Quantity>,
    /// Both as curves.
    #[serde(skip)]
    pub curves: Curves,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Verification {
    /// Outside where any quantity is; within where all are.
    pub verdict: Verdict,
    /// Round trips; for captures at both ends, each direction.
    pub directions: Vec<VerifiedDirection>,
    /// How late the emulator was, where the path ran in real time; `None` in virtual time, which is never late.
    pub lateness: Option<Lateness>,
}

/// How late the emulator sent packets. It may have been late in both directions of a round trip, so intervals of times are extended downwards by
/// twice this.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Lateness {
    /// Half of the packets were no later; for the median.
    pub p50_ns: u64,
    /// 99 % were no later; for the range and the tails.
    pub p99_ns: u64,
}

impl Lateness {
    /// What of a difference may be the emulator's.
    fn leave_out(self, quantity: &mut Quantity) {
        let late_ns = match quantity.name {
            QuantityName::MedianNs => self.p50_ns,
            name if name.is_time() => self.p99_ns,
            _ => return,
        };
        *quantity = quantity.less(2.0 * late_ns as f64);
    }
}

impl Verification {
    fn of(directions: Vec<VerifiedDirection>, lateness: Option<Lateness>) -> Self {
        let all = directions.iter().flat_map(|one| &one.quantities).map(|quantity| quantity.verdict);
        Self { verdict: Verdict::of_all(all), directions, lateness }
    }
}

/// A path that cannot be run with the packets of a measurement in a time that somebody would wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the path has so many hops, hosts, outages, delay steps or duplicates that {0} packets over it take too long")]
pub struct TooLong(pub usize);

/// How often `path` is run with the packets of `measured`.
fn runs(path: &PathSpec, measured: &Probes) -> Result<u64, TooLong> {
    let ([forward, backward], copies) = work(path);
    let (packets, work) = match &measured.ways {
        Some([there, back]) => (there.len() + back.len(), there.len() as f64 * forward + back.len() as f64 * backward),
        None => (measured.rows.len(), measured.rows.len() as f64 * (forward + copies * backward)),
    };
    if work > WORK_MOST + packets as f64 * WORK_OF_A_PACKET {
        return Err(TooLong(packets));
    }
    let runs = (RUN_MOST / packets.max(1)).min((WORK_MOST / work.max(1.0)) as usize);
    Ok(runs.clamp(1, RUN_TIMES) as u64)
}

/// Runs `path` in virtual time with the packets of `measured` and compares, quantity by quantity.
///
/// # Errors
/// That would take too long.
pub fn verify(path: &PathSpec, measured: &Probes, margins: &[Margin], seed: u64) -> Result<Verification, TooLong> {
    let runs = runs(path, measured)?;
    if let Some(ways) = &measured.ways {
        let margins = margins_with(margins, 1);
        let simulated: Vec<[Vec<Passage>; 2]> =
            (0..runs).map(|run| simulate_ways(path, ways, seed.wrapping_add(run))).collect();
        let way = |of: DirectionName, nth: usize| {
            let runs: Vec<Vec<Probe>> = simulated.iter().map(|ways| rows(&ways[nth])).collect();
            verified(of, &rows(&ways[nth]), &runs, &margins, seed)
        };
        let both = [(DirectionName::Forward, 0), (DirectionName::Backward, 1)];
        let both = both.into_iter().filter(|(_, nth)| !ways[*nth].is_empty()).map(|(of, nth)| way(of, nth));
        return Ok(Verification::of(both.collect(), None));
    }
    let sent: Vec<i64> = measured.rows.iter().map(|row| row.sent_ns).collect();
    let simulated: Vec<Vec<Probe>> =
        (0..runs).map(|run| simulate(path, &sent, measured.frame_bytes, seed.wrapping_add(run)).rows).collect();
    let margins = margins_with(margins, resolution_ns(&measured.rows));
    let mut round_trip = verified(DirectionName::RoundTrip, &measured.rows, &simulated, &margins, seed);
    if measured.losses.is_some() {
        // The rows are answered packets alone.
        round_trip.quantities.retain(|quantity| !LOSSES.contains(&quantity.name));
    }
    Ok(Verification::of(vec![round_trip], None))
}

/// The same where the path was measured in real time, as `tested`, over an emulator that was `lateness` late.
pub fn verify_measured(tested: &Probes, measured: &Probes, margins: &[Margin], lateness: Lateness) -> Verification {
    let runs = std::slice::from_ref(&tested.rows);
    let margins = margins_with(margins, resolution_ns(&measured.rows));
    let mut way = verified(DirectionName::RoundTrip, &measured.rows, runs, &margins, 1);
    way.quantities.iter_mut().for_each(|quantity| lateness.leave_out(quantity));
    Verification::of(vec![way], Some(lateness))
}

/// A quantile of what was read to `resolution_ns` is wrong by up to half of that, and a difference of two by all of it.
fn margins_with(asked: &[Margin], resolution_ns: u64) -> Margins {
    Margins { asked: asked.to_vec(), least_ns: LEAST_NS.max(resolution_ns as f64), least_loss: LEAST_LOSS }
}

/// How coarse most of the measured round trips are, nanoseconds.
fn resolution_ns(measured: &[Probe]) -> u64 {
    let answered = measured.iter().filter(|row| row.rtt_ns.is_some());
    let mut all: Vec<u32> = answered.map(|row| row.resolution_ns).collect();
    let middle = all.len() / 2;
    if all.is_empty() { 1 } else { u64::from(*all.select_nth_unstable(middle).1).max(1) }
}

/// Passages as rows with the delay as their time.
fn rows(ways: &[Passage]) -> Vec<Probe> {
    let row = |passage: &Passage| Probe {
        sent_ns: passage.sent_ns,
        rtt_ns: passage.delay_ns.map(|delay| delay.max(0.0) as u64),
        reordered: passage.reordered,
        ..Probe::default()
    };
    ways.iter().map(row).collect()
}

fn verified(
    of: DirectionName,
    measured: &[Probe],
    runs: &[Vec<Probe>],
    margins: &Margins,
    seed: u64,
) -> VerifiedDirection {
    fn item(row: &Probe) -> Item {
        Item {
            value: row.rtt_ns.map(|rtt| rtt as f64),
            sent: 1,
            lost: u32::from(row.rtt_ns.is_none()),
            runs: None,
            reordered: row.reordered,
            copies: row.copies,
        }
    }
    let tested: Vec<_> = runs.iter().map(|rows| rows.iter().map(item)).collect();
    let found = Equivalence::of(measured.iter().map(item), &tested, seed);
    // What neither has says nothing.
    let nothing = |quantity: &Quantity| quantity.reference == 0.0 && quantity.tested == 0.0;
    let quantities: Vec<Quantity> = ROUND_TRIP.iter().filter_map(|name| found.quantity(*name, margins)).collect();
    // Delays that vary by less than may differ: how alike neighbours are is that of the hosts' scheduling.
    let hardly_varies = quantities.iter().any(|quantity| {
        quantity.name == QuantityName::RangeNs && quantity.reference.max(quantity.tested) <= margins.least_ns
    });
    let left_out = |quantity: &Quantity| hardly_varies && quantity.name == QuantityName::Correlation;
    VerifiedDirection {
        of,
        packets: measured.len() as u64,
        effective_samples: found.effective_samples[0],
        path_packets: runs.iter().map(|rows| rows.len() as u64).sum(),
        resolution_ns: resolution_ns(measured),
        quantities: quantities.into_iter().filter(|one| !nothing(one) && !left_out(one)).collect(),
        curves: Curves::of(measured, runs),
    }
}

#[cfg(test)]
mod tests {
    use longhaul_path::spec::no_files;

    use super::*;

    /// How often `hops` of both directions are run with so many packets.
    fn runs_of(packets: usize, hops: usize, does: &str) -> Result<u64, TooLong> {
        let path = format!("[[both]]\ndelay = '1ms'\n{does}\n").repeat(hops);
        let path = PathSpec::parse(&path, &no_files).unwrap();
        runs(&path, &Probes { rows: vec![Probe::default(); packets], frame_bytes: 98, ..Probes::default() })
    }

    #[test]
    fn packets_and_hops_together_are_limited() {
        // An hour of a hundred a second, and a day of ten.
        for packets in [360_000, 864_000] {
            for does in ["", "jitter = { law = 'normal', stddev = '50us' }"] {
                assert!(runs_of(packets, 4, does).is_ok(), "{packets} {does}");
            }
        }
        assert_eq!(runs_of(60_000, 4, ""), Ok(8));
        // Half a minute each: one run, or several.
        assert_eq!(runs_of(588_001, 28, ""), Err(TooLong(588_001)));
        assert_eq!(runs_of(73_000, 28, ""), Ok(1));
        // Random numbers count, too.
        let random = "delay-steps = { every = '52us', delays = ['2ms'] }";
        assert!(runs_of(588_001, 7, "").is_ok() && runs_of(588_001, 7, random).is_err());
    }
}
