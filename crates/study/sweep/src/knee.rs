//! At which rate losses begin.
//!
//! For each size and setting the rates are gone through as they rise. The last one that is carried and the first one that is not enclose
//! the knee. A rate is carried if the sender kept it and at most [`KNEE_LOSS`] of its packets were lost, in the mean of its tests.
//! (RFC 2544 §26.1 asks for no loss at all: on hosts that do other work, too, that would be luck.)

use std::collections::BTreeMap;

use longhaul_result::Location;
use serde::{Deserialize, Serialize};

use crate::axes::PointSetting;
use crate::figures::Metric;
use crate::measured::PointResult;

/// The greatest share of lost packets at which a rate counts as carried.
pub const KNEE_LOSS: f64 = 0.001;
/// A rate is kept if at least this share of it was sent.
const KEPT: f64 = 0.97;
/// A thread that uses this share of a CPU has none left.
const FULL: f64 = 0.95;

/// What limits the rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// The sender cannot send faster.
    Sender,
    /// Packets are lost, mostly at this location.
    Loss(Location),
    /// The greatest rate of the sweep was carried.
    None,
    /// No test has a result.
    NoResult,
}

/// Where losses begin at one size and setting.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Knee {
    /// Payload bytes of a packet.
    pub payload_bytes: u32,
    /// The setting.
    #[serde(flatten)]
    pub setting: PointSetting,
    /// Payload bits per second received at the greatest rate that was carried; `null` if none was.
    pub carried_bps: Option<u64>,
    /// The same in packets per second.
    pub carried_pps: Option<u64>,
    /// Payload bits per second sent at the least rate that was not carried; `null` if all were.
    pub broken_bps: Option<u64>,
    /// What limits the rate there.
    pub limit: Limit,
    /// Share of the packets lost at that rate; `null` if all rates were carried.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1)))]
    pub lost: Option<f64>,
    /// What speaks for it, in words.
    pub evidence: Vec<String>,
}

impl Knee {
    /// Where losses begin and what limits the rate, in a line.
    pub fn verdict(&self) -> String {
        let carried = self.carried_bps.zip(self.carried_pps);
        let carried = carried.map(|(bps, packets)| format!("carried {} ({packets} packets/s)", mbit(bps as f64)));
        let broken = self.broken_bps.map(|bps| mbit(bps as f64)).unwrap_or_default();
        let lost = self.lost.map(|share| format!("{:.2} %", share * 100.0)).unwrap_or_default();
        match (self.limit, carried) {
            (Limit::None, Some(carried)) => format!("{carried}, the greatest rate: no limit found"),
            (Limit::Loss(at), Some(carried)) => format!("{carried}; at {broken} lost {lost}, most at {at}"),
            (Limit::Loss(at), None) => format!("at {broken}, the least rate, lost {lost}, most at {at}"),
            (Limit::Sender, Some(carried)) => format!("{carried}; the sender reached {broken}"),
            (Limit::Sender, None) => format!("the sender reached {broken}, less than the least rate"),
            (Limit::NoResult | Limit::None, _) => "no test has a result".into(),
        }
    }
}

/// The knee of each size and setting, in the order of `points`.
pub(crate) fn knees(points: &[PointResult]) -> Vec<Knee> {
    let mut curves: Vec<(u32, PointSetting, Vec<&PointResult>)> = Vec::new();
    for point in points {
        let (bytes, setting) = (point.point.payload_bytes, point.point.setting);
        match curves.iter_mut().find(|curve| (curve.0, curve.1) == (bytes, setting)) {
            Some(curve) => curve.2.push(point),
            None => curves.push((bytes, setting, vec![point])),
        }
    }
    curves.into_iter().map(|(bytes, setting, points)| knee(bytes, setting, points)).collect()
}

fn knee(payload_bytes: u32, setting: PointSetting, mut points: Vec<&PointResult>) -> Knee {
    points.retain(|point| point.mean(Metric::SentBps).is_some());
    points.sort_by_key(|point| point.point.rate().map_or(u64::MAX, |rate| rate.0));
    let carries = |point: &&&PointResult| kept(point) && point.mean(Metric::Lost).is_some_and(|lost| lost <= KNEE_LOSS);
    let carried = points.iter().take_while(carries).last();
    let broken = points.iter().find(|point| !carries(point));
    let received = carried.and_then(|point| point.mean(Metric::ReceivedBps)).map(|bps| bps as u64);
    let mut evidence = Vec::new();
    let limit = match (carried, broken) {
        (_, Some(broken)) => {
            evidence = words(broken);
            limit(broken)
        }
        (Some(_), None) => Limit::None,
        (None, None) => Limit::NoResult,
    };
    Knee {
        payload_bytes,
        setting,
        carried_bps: received,
        carried_pps: received.map(|bps| bps / 8 / u64::from(payload_bytes.max(1))),
        broken_bps: broken.and_then(|point| point.mean(Metric::SentBps)).map(|bps| bps as u64),
        limit,
        lost: broken.and_then(|point| point.mean(Metric::Lost)),
        evidence,
    }
}

/// Whether the sender sent as fast as it was asked to. As fast as possible is whatever it can.
fn kept(point: &PointResult) -> bool {
    let sent = point.mean(Metric::SentBps).unwrap_or(0.0);
    point.point.rate().is_none_or(|asked| sent >= asked.0 as f64 * KEPT)
}

/// What limits a rate that is not carried.
fn limit(point: &PointResult) -> Limit {
    let mut places: BTreeMap<Location, u64> = BTreeMap::new();
    for figures in point.figures() {
        figures.loss_by_location.iter().for_each(|(at, packets)| *places.entry(*at).or_default() += packets);
    }
    match places.into_iter().max_by_key(|(_, packets)| *packets) {
        Some((at, _)) if point.mean(Metric::Lost).is_some_and(|lost| lost > KNEE_LOSS) => Limit::Loss(at),
        _ => Limit::Sender,
    }
}

fn mbit(bps: f64) -> String {
    format!("{:.1} Mbit/s", bps / 1e6)
}

fn words(point: &PointResult) -> Vec<String> {
    let mut words = Vec::new();
    let sent = point.mean(Metric::SentBps).unwrap_or(0.0);
    if let Some(asked) = point.point.rate().filter(|_| !kept(point)) {
        words.push(format!("the sender sent {} of {} asked", mbit(sent), mbit(asked.0 as f64)));
    }
    let full = |metric: Metric, what: &str| {
        let share = point.mean(metric).filter(|share| *share >= FULL)?;
        Some(format!("{what} was busy for {:.0} % of the time", share * 100.0))
    };
    if !kept(point) {
        words.extend(full(Metric::SenderCpu, "the sending thread"));
    }
    // A busy receiver does not explain what never reached it.
    if matches!(limit(point), Limit::Loss(at) if at > Location::Network) {
        words.extend(full(Metric::ReceiverCpu, "the receiving thread"));
        words.extend(full(Metric::BusiestCpu, "the receiver's busiest CPU"));
    }
    words
}

/// What the knees of several sizes have in common, in a sentence; `None` where they have nothing, or are fewer than two.
///
/// A host has a limit in packets per second, the same at every size; a link or shaper has one in bits per second.
pub fn common(knees: &[Knee]) -> Option<String> {
    let broken: Vec<&Knee> =
        knees.iter().filter(|knee| knee.limit != Limit::None && knee.carried_bps.is_some()).collect();
    if broken.len() < 2 {
        return None;
    }
    let spread = |of: fn(&Knee) -> u64| {
        let values = || broken.iter().map(|knee| of(knee));
        let (least, most) = (values().min()?.max(1), values().max()?);
        Some((most as f64 / least as f64, least, most))
    };
    let (packets, least_pps, most_pps) = spread(|knee| knee.carried_pps.unwrap_or(0))?;
    let (bits, least_bps, most_bps) = spread(|knee| knee.carried_bps.unwrap_or(0))?;
    const ALIKE: f64 = 1.5;
    if packets <= ALIKE && bits > packets * ALIKE {
        Some(format!(
            "At every size {least_pps} to {most_pps} packets/s are carried: the limit is in packets per second, as that of a host"
        ))
    } else if bits <= ALIKE && packets > bits * ALIKE {
        Some(format!(
            "At every size {} to {} are carried: the limit is in bits per second, as that of a link or shaper",
            mbit(least_bps as f64),
            mbit(most_bps as f64)
        ))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use longhaul_udp::Pace;

    use super::*;
    use crate::axes::Point;
    use crate::figures::Figures;
    use crate::measured::Test;

    /// Two tests at each rate, over what carries `most_bps`: the rest is lost at the receiver's socket.
    fn curve(payload_bytes: u32, rates: &[Option<u64>], most_bps: u64, sender_bps: u64) -> Vec<PointResult> {
        let one = |rate: &Option<u64>| {
            let pace = rate.map_or(Pace::Unlimited, Pace::RateBps);
            let mut result = PointResult::new(Point { payload_bytes, pace, setting: PointSetting::default() });
            for number in 0..2 {
                let sent = rate.unwrap_or(u64::MAX).min(sender_bps);
                let received = sent.min(most_bps);
                let lost = 1.0 - received as f64 / sent as f64;
                let places = [(Location::ReceiverSocketBuffer, (lost * 1e6) as u64), (Location::Network, 1)];
                let loss_by_location = if lost > 0.0 { places.into() } else { BTreeMap::new() };
                let figures = Figures {
                    sent_packets: 1_000_000,
                    sent_bps: sent,
                    received_bps: received,
                    lost,
                    loss_by_location,
                    receiver_cpu: Some(if lost > 0.0 { 0.99 } else { 0.4 }),
                    kept_pace: true,
                    ..Figures::default()
                };
                result.add(Test { number, figures: Some(figures), error: None, caveats: Vec::new() });
            }
            result
        };
        rates.iter().map(one).collect()
    }

    const RATES: [Option<u64>; 4] = [Some(10_000_000), None, Some(1_000_000_000), Some(100_000_000)];

    #[test]
    fn a_knee_lies_between_the_last_carried_and_the_first_broken() {
        let found = knees(&curve(1000, &RATES, 300_000_000, 2_000_000_000));
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].carried_bps, found[0].broken_bps), (Some(100_000_000), Some(1_000_000_000)));
        assert_eq!(found[0].carried_pps, Some(12_500));
        assert_eq!(found[0].limit, Limit::Loss(Location::ReceiverSocketBuffer));
        assert_eq!(
            found[0].verdict(),
            "carried 100.0 Mbit/s (12500 packets/s); at 1000.0 Mbit/s lost 70.00 %, most at receiver_socket_buffer"
        );
        assert_eq!(found[0].evidence, ["the receiving thread was busy for 99 % of the time"]);
        assert!((found[0].lost.unwrap() - 0.7).abs() < 1e-9);
    }

    #[test]
    fn a_sender_that_is_too_slow_is_the_limit() {
        let found = &knees(&curve(1000, &RATES, u64::MAX, 400_000_000))[0];
        assert_eq!((found.limit, found.carried_bps), (Limit::Sender, Some(100_000_000)));
        assert_eq!(found.evidence, ["the sender sent 400.0 Mbit/s of 1000.0 Mbit/s asked"]);
    }

    #[test]
    fn without_a_knee_it_says_so() {
        let all = &knees(&curve(1000, &RATES, u64::MAX, 2_000_000_000))[0];
        assert_eq!((all.limit, all.carried_bps, all.broken_bps), (Limit::None, Some(2_000_000_000), None));
        let none = &knees(&curve(1000, &RATES, 1_000_000, 2_000_000_000))[0];
        assert_eq!((none.carried_bps, none.limit), (None, Limit::Loss(Location::ReceiverSocketBuffer)));
        let untested = PointResult::new(curve(1000, &RATES, 1, 1)[0].point);
        assert_eq!(knees(&[untested])[0].limit, Limit::NoResult);
        assert_eq!(knees(&[]), []);
    }

    #[test]
    fn packets_or_bits() {
        let rates: Vec<Option<u64>> = (0..40).map(|step| Some((1e6 * 1.2_f64.powi(step)) as u64)).collect();
        let of = |most: fn(u32) -> u64| -> Vec<Knee> {
            [64, 512, 1448].into_iter().flat_map(|bytes| knees(&curve(bytes, &rates, most(bytes), u64::MAX))).collect()
        };
        assert!(common(&of(|bytes| 100_000 * 8 * u64::from(bytes))).unwrap().contains("packets/s"));
        assert!(common(&of(|_| 95_000_000)).unwrap().contains("in bits per second"));
        assert_eq!(common(&of(|bytes| 10_000_000 + 40_000 * u64::from(bytes))), None);
        assert_eq!(common(&of(|_| u64::MAX)), None);
    }
}
