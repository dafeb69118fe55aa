//! The law of loss, by likelihood.
//!
//! Of a path that is good or bad in turn, each for an exponential time, and loses what comes while it is bad (Gilbert, 1960, in continuous
//! time), probes see states at their times. From state to state over a time t the probabilities are those of a chain of two states:
//! bad again with b + (1 − b) e^(−(λ+μ)t), bad after good with b (1 − e^(−(λ+μ)t)), b = λ/(λ+μ). Independent losses are the case without
//! memory; twice the gain in log-likelihood says whether memory is needed (Wilks, 1938), and whether bursts lose a part only
//! ([`partial`](crate::partial)).

use std::collections::BTreeMap;

use longhaul_path::spec::{BurstLoss, LossSpec, Outage, Probability};
use longhaul_units::Nanos;
use serde::Serialize;

use crate::hill::{climb, covariance};
use crate::partial::Fates;
use crate::probes::{LossesSeen, Probe};

/// χ² of one degree of freedom at 1 %: independent losses are taken for bursts once in a hundred times.
const MEMORY_NEEDED: f64 = 6.635;
/// The same of bursts that lose a part, over independent losses: two parameters more, whose values mean nothing where losses are
/// independent, so that the gain is greater by chance. Of 1,000 independent measurements less than 10 reach it (a test counts them).
const PART_NEEDED: f64 = 16.0;
/// Probes lost in a row over this time are an outage, where there are few such.
const OUTAGE_NS: u64 = 1_000_000_000;
/// More long runs than these are a law, not events.
const OUTAGES_MAX: usize = 3;
/// Of the normal distribution, for 95 %.
const TWO_SIDED_95: f64 = 1.959_964;

/// What was lost, and by what law.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LossFit {
    /// Probes.
    pub sent_packets: u64,
    /// Of these not answered, those in outages too.
    pub lost_packets: u64,
    /// Runs of lost probes outside of outages.
    pub runs: u64,
    /// Times in which all was lost, at most 3: more of them are a law.
    pub outages: Vec<LostTime>,
    /// The law of what is left.
    pub law: LossLaw,
    /// How much more likely bursts make what was seen than independent losses do: twice the difference of log-likelihoods. More than
    /// 6.6 needs bursts (1 % of χ² with one degree of freedom); bursts that lose a part need 16, and 6.6 over those that lose all.
    pub gain: f64,
}

/// An outage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LostTime {
    /// From the first probe of the measurement to the first that was lost.
    pub at_ns: u64,
    /// From the middle between the last answered probe and the first lost one to that between the last lost one and the next answer.
    pub lasting_ns: u64,
    /// Probes that were lost in it.
    pub packets: u64,
}

/// The law of loss, with 95 % intervals.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(tag = "law", rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum LossLaw {
    /// Nothing was lost.
    None {
        /// The chance of loss is below this with 95 % confidence (3 of as many probes).
        less_than: f64,
    },
    /// Independent losses.
    Random {
        /// Their chance.
        chance: f64,
        /// Its interval (Wilson, 1927).
        interval: [f64; 2],
    },
    /// Bursts in time.
    Bursts {
        /// How long one lasts on average.
        lasting_ns: f64,
        /// Its interval.
        lasting_interval_ns: [f64; 2],
        /// From begin to begin, on average.
        every_ns: f64,
        /// Its interval.
        every_interval_ns: [f64; 2],
        /// The chance of loss in a burst.
        lost: f64,
        /// Its interval; `None` where bursts that lose all explain as much.
        lost_interval: Option<[f64; 2]>,
    },
}

impl LossLaw {
    /// As a path file says it.
    pub(crate) fn spec(&self) -> LossSpec {
        match *self {
            Self::None { .. } => LossSpec::None,
            Self::Random { chance, .. } => LossSpec::Random(Probability(chance)),
            Self::Bursts { lasting_ns, every_ns, lost, .. } => LossSpec::Bursts(BurstLoss {
                lasting: Nanos(lasting_ns.round().max(1.0) as u64),
                every: Nanos(every_ns.round().max(1_000.0) as u64),
                // A file says it as well as its interval does.
                lost: Probability((lost * 1e4).round().max(1.0) / 1e4),
                otherwise: Probability(0.0),
            }),
        }
    }
}

impl LostTime {
    /// As a path file says it.
    pub(crate) fn outage(&self) -> Outage {
        Outage { at: Nanos(self.at_ns), lasting: Nanos(self.lasting_ns.max(1)), every: None }
    }
}

/// Fits the law to packets that have no rows: they are taken as evenly apart.
pub(crate) fn fit_seen(seen: &LossesSeen) -> LossFit {
    let apart = seen.apart_ns.max(1);
    let (mut steps, mut fates) = (Steps::default(), Fates::default());
    let (mut sent, mut lost, mut runs) = (0_u64, 0_u64, 0_u64);
    for (nth, &(passed, in_a_row)) in seen.runs.iter().enumerate() {
        fates.add(false, (nth > 0).then_some(apart), passed);
        fates.add(true, Some(apart), in_a_row);
        sent = sent.saturating_add(passed).saturating_add(in_a_row);
        lost = lost.saturating_add(in_a_row);
        steps.add_times(false, false, apart, passed.saturating_sub(1));
        if in_a_row > 0 {
            runs += 1;
            steps.add_times(false, true, apart, u64::from(passed > 0));
            steps.add_times(true, true, apart, in_a_row - 1);
            steps.add_times(true, false, apart, 1);
        }
    }
    let (law, gain) = law_of(&steps, &fates, sent, lost);
    LossFit { sent_packets: sent, lost_packets: lost, runs, outages: Vec::new(), law, gain }
}

/// Fits the law to `rows`, which are in order of time.
pub fn fit_loss(rows: &[Probe]) -> LossFit {
    let (outages, within) = outages(rows);
    // What an outage or a gap cuts apart are no neighbours.
    let (mut steps, mut fates) = (Steps::default(), Fates::default());
    let (mut sent, mut lost, mut runs) = (0_u64, 0_u64, 0_u64);
    let mut before: Option<(i64, bool)> = None;
    for (index, row) in rows.iter().enumerate() {
        if within.iter().any(|range| range.contains(&index)) {
            before = None;
            continue;
        }
        if row.after_gap {
            before = None;
        }
        let bad = row.rtt_ns.is_none();
        sent += 1;
        fates.add(bad, before.map(|(at, _)| row.sent_ns.abs_diff(at)), 1);
        lost += u64::from(bad);
        runs += u64::from(bad && before.is_none_or(|(_, bad)| !bad));
        if let Some((at, was_bad)) = before {
            steps.add(was_bad, bad, row.sent_ns.abs_diff(at));
        }
        before = Some((row.sent_ns, bad));
    }
    let lost_in_outages: u64 = outages.iter().map(|outage| outage.packets).sum();
    let (law, gain) = law_of(&steps, &fates, sent, lost);
    LossFit { sent_packets: rows.len() as u64, lost_packets: lost + lost_in_outages, runs, outages, law, gain }
}

/// Long runs, where they are few, and the rows in them.
fn outages(rows: &[Probe]) -> (Vec<LostTime>, Vec<std::ops::Range<usize>>) {
    let mut found = Vec::new();
    let mut index = 0;
    while index < rows.len() {
        // Behind a gap nothing is known of the time before.
        let behind = |row: &Probe| row.rtt_ns.is_some() || row.after_gap;
        let Some(length) = rows[index..].iter().skip(1).position(behind).map(|at| at + 1) else { break };
        let length = if rows[index].rtt_ns.is_some() { 0 } else { length };
        if length > 1 && index > 0 && !rows[index].after_gap && !rows[index + length].after_gap {
            let (first, last) = (index, index + length - 1);
            let middle = |a: usize, b: usize| i64::midpoint(rows[a].sent_ns, rows[b].sent_ns);
            let lasting_ns = middle(last, last + 1).abs_diff(middle(first - 1, first));
            if rows[last].sent_ns.abs_diff(rows[first].sent_ns) >= OUTAGE_NS {
                let at_ns = middle(first - 1, first).abs_diff(rows[0].sent_ns);
                found.push((LostTime { at_ns, lasting_ns, packets: length as u64 }, first..last + 1));
            }
        }
        index += length.max(1);
    }
    if found.len() > OUTAGES_MAX { (Vec::new(), Vec::new()) } else { found.into_iter().unzip() }
}

/// Steps from one probe's state to the next one's, counted by states and the time between.
#[derive(Default)]
struct Steps(BTreeMap<(bool, bool, u32), (u64, f64)>);

impl Steps {
    fn add(&mut self, from: bool, to: bool, apart_ns: u64) {
        self.add_times(from, to, apart_ns, 1);
    }

    fn add_times(&mut self, from: bool, to: bool, apart_ns: u64, times: u64) {
        // Times within half a percent count as one.
        let time = apart_ns.max(1) as f64;
        let class = (time.ln() * 100.0).round() as u32;
        let (count, sum) = self.0.entry((from, to, class)).or_default();
        *count += times;
        *sum += time * times as f64;
    }

    /// Log-likelihood of λ and μ, given as logarithms of rates in 1/ns.
    fn of_bursts(&self, [to_bad, to_good]: [f64; 2]) -> f64 {
        let (to_bad, to_good) = (to_bad.exp(), to_good.exp());
        let (rate, bad) = (to_bad + to_good, to_bad / (to_bad + to_good));
        let chance = |from: bool, to: bool, time: f64| {
            let kept = (-rate * time).exp();
            let bad_again = if from { bad + (1.0 - bad) * kept } else { -bad * (-rate * time).exp_m1() };
            (if to { bad_again } else { 1.0 - bad_again }).max(1e-300)
        };
        let seen = self.0.iter().filter(|(_, (count, _))| *count > 0);
        let each = |(&(from, to, _), &(count, sum)): (&(bool, bool, u32), &(u64, f64))| {
            count as f64 * chance(from, to, sum / count as f64).ln()
        };
        seen.map(each).sum()
    }

    /// Log-likelihood of independent losses, each with `chance`.
    fn of_random(&self, chance: f64) -> f64 {
        let each = |(&(_, to, _), &(count, _)): (&(bool, bool, u32), &(u64, f64))| {
            count as f64 * (if to { chance } else { 1.0 - chance }).max(1e-300).ln()
        };
        self.0.iter().map(each).sum()
    }

    /// Share of the steps with these states, and their mean time.
    fn sums(&self, from: bool, to: bool) -> (f64, f64) {
        let of = self.0.iter().filter(|((a, b, _), _)| (*a, *b) == (from, to));
        of.fold((0.0, 0.0), |(count, time), (_, (n, sum))| (count + *n as f64, time + sum))
    }
}

fn law_of(steps: &Steps, fates: &Fates, sent: u64, lost: u64) -> (LossLaw, f64) {
    if lost == 0 {
        return (LossLaw::None { less_than: (3.0 / sent.max(1) as f64).min(1.0) }, 0.0);
    }
    if let Some(found) =
        fates.fit().filter(|found| 2.0 * found.over_whole >= MEMORY_NEEDED && 2.0 * found.over_random >= PART_NEEDED)
    {
        return (bursts(found.top, found.covariance, true), 2.0 * found.over_random);
    }
    let chance = lost as f64 / sent as f64;
    let random = LossLaw::Random { chance, interval: score_interval(lost, sent) };
    let (good_bad, time_a) = steps.sums(false, true);
    let (good_good, time_b) = steps.sums(false, false);
    let (bad_good, time_c) = steps.sums(true, false);
    let (bad_bad, time_d) = steps.sums(true, true);
    let time = (time_a + time_b + time_c + time_d) / (good_bad + good_good + bad_good + bad_bad).max(1.0);
    if bad_bad == 0.0 || good_bad == 0.0 || bad_good == 0.0 || time <= 0.0 {
        return (random, 0.0);
    }
    // Where the steps are equally long, the answer; else a good begin.
    let (p, r) = (good_bad / (good_bad + good_good), bad_good / (bad_good + bad_bad));
    let rate = -(1.0 - p - r).max(1e-6).ln() / time;
    let start = [(rate * p / (p + r)).ln(), (rate * r / (p + r)).ln()];
    let Some(best) = climb(|at| steps.of_bursts(at), start, 1e-6) else { return (random, 0.0) };
    let of_all = steps.sums(false, true).0 + bad_bad;
    let overall = of_all / (good_bad + good_good + bad_good + bad_bad);
    let gain = 2.0 * (steps.of_bursts(best) - steps.of_random(overall));
    if gain < MEMORY_NEEDED {
        return (random, gain.max(0.0));
    }
    let [[aa, ab], [ba, bb]] = covariance(|at| steps.of_bursts(at), best);
    let [to_bad, to_good] = best;
    (bursts([to_bad, to_good, f64::INFINITY], [[aa, ab, 0.0], [ba, bb, 0.0], [0.0; 3]], false), gain)
}

/// The law of the most likely parameters: logarithms of the rates to bad and to good, and the logit of the chance of loss in a burst.
fn bursts([to_bad, to_good, part]: [f64; 3], covariance: [[f64; 3]; 3], partial: bool) -> LossLaw {
    let (good_ns, lasting_ns) = ((-to_bad).exp(), (-to_good).exp());
    let every_ns = good_ns + lasting_ns;
    let reach = |variance: f64| TWO_SIDED_95 * variance.max(0.0).sqrt();
    let around = |value: f64, variance: f64| [value / reach(variance).exp(), value * reach(variance).exp()];
    // d ln(every) / d ln(rate), each its share.
    let (a, b) = (good_ns / every_ns, lasting_ns / every_ns);
    let of_every = a * a * covariance[0][0] + 2.0 * a * b * covariance[0][1] + b * b * covariance[1][1];
    let share = |logit: f64| 1.0 / (1.0 + (-logit).exp());
    let lost_reach = reach(covariance[2][2]);
    LossLaw::Bursts {
        lasting_ns,
        lasting_interval_ns: around(lasting_ns, covariance[1][1]),
        every_ns,
        every_interval_ns: around(every_ns, of_every),
        lost: share(part),
        lost_interval: partial.then(|| [share(part - lost_reach), share(part + lost_reach)]),
    }
}

/// The 95 % interval of a probability, after `hits` of `trials` (the score interval of Wilson, 1927).
fn score_interval(hits: u64, trials: u64) -> [f64; 2] {
    let (hits, trials) = (hits as f64, trials as f64);
    let square = TWO_SIDED_95 * TWO_SIDED_95;
    let middle = hits + square / 2.0;
    let reach = TWO_SIDED_95 * (hits * (trials - hits) / trials + square / 4.0).sqrt();
    [middle - reach, middle + reach].map(|bound| (bound / (trials + square)).clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From Brown, Cai and DasGupta (2001), equation 4, by hand.
    #[test]
    fn an_interval_is_told_of_however_many_packets() {
        let near = |[least, most]: [f64; 2], expected: [f64; 2]| {
            (least / expected[0] - 1.0).abs() < 1e-3 && (most / expected[1] - 1.0).abs() < 1e-3
        };
        assert!(near(score_interval(10, 100), [0.05523, 0.17437]));
        assert!(near(score_interval(1, 10_000_000), [1.7652e-8, 5.6649e-7]));
        assert!(near(score_interval(1, 1_000_000_000_000), [1.7652e-13, 5.6649e-12]));
        assert_eq!(score_interval(100, 100)[1], 1.0);
    }
}
