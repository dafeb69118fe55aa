//! Bursts that lose a part of what comes (Gilbert, 1960, in continuous time: Elliott's chain without losses in its good state).
//!
//! The state is hidden: a packet that arrived may have come in a burst. The likelihood is that of a hidden chain of two states (Baum and
//! Petrie, 1966), by the forward recursion over runs of packets with one fate. From packet to packet over a time t the state changes with
//! the probabilities of [`loss`](crate::loss); a lost packet has the chances (0, h) in the good and the bad state, another (1, 1 − h).
//!
//! Difference from an exact likelihood: packets of a run are taken as evenly apart, so that a run takes as many steps as its length has
//! binary digits.

use crate::hill::{climb, covariance};

/// Work of the runs that are looked at, which are the first of a measurement: of each run the binary digits of its length, and one. Some 40,000
/// runs of lengths as losses have them, which tell all that can be told.
const WORK_MOST: u64 = 200_000;
/// Losses below which no part can be told.
const LOST_LEAST: u64 = 20;
/// How exactly the top is looked for, as a logarithm: far below any interval.
const FINEST: f64 = 1e-3;

/// Packets in a row that had one fate.
#[derive(Debug, Clone, Copy)]
struct RunOfFate {
    lost: bool,
    packets: u64,
    /// From the packet before the run to its last one, nanoseconds; from its first one where nothing is before it.
    time_ns: f64,
    /// Nothing is known of the time before it.
    begins: bool,
}

/// The fates of packets in the order of time.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fates {
    runs: Vec<RunOfFate>,
    /// What one look at all runs costs, see [`RunOfFate::work`].
    work: u64,
    lost: u64,
    packets: u64,
    full: bool,
}

impl RunOfFate {
    /// What a look at it costs: a product of matrices for each binary digit of its length, and what each run takes.
    fn work(&self) -> u64 {
        2 + u64::from(self.packets.max(1).ilog2())
    }
}

/// What the likelihood says.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Partial {
    /// Natural logarithms of the rates to bad and to good, 1/ns, and the logit of the chance of loss in a burst.
    pub(crate) top: [f64; 3],
    pub(crate) covariance: [[f64; 3]; 3],
    /// Log-likelihood less that of bursts that lose all.
    pub(crate) over_whole: f64,
    /// Log-likelihood less that of independent losses.
    pub(crate) over_random: f64,
}

impl Fates {
    /// `times` packets with one fate, each `apart_ns` behind the one before; of the first one this is `None` where that is not known.
    pub(crate) fn add(&mut self, lost: bool, apart_ns: Option<u64>, times: u64) {
        if times == 0 || self.full {
            return;
        }
        let steps = if apart_ns.is_some() { times } else { times - 1 };
        let time_ns = apart_ns.map_or(0.0, |apart| apart.max(1) as f64 * steps as f64);
        match self.runs.last_mut() {
            Some(run) if run.lost == lost && apart_ns.is_some() => {
                self.work -= run.work();
                run.packets += times;
                run.time_ns += time_ns;
                self.work += run.work();
            }
            _ if self.work < WORK_MOST => {
                let run = RunOfFate { lost, packets: times, time_ns, begins: apart_ns.is_none() };
                self.work += run.work();
                self.runs.push(run);
            }
            _ => {
                self.full = true;
                return;
            }
        }
        self.packets += times;
        self.lost += if lost { times } else { 0 };
    }

    /// The most likely bursts that lose a part; `None` with too few losses, and where no such bursts are the most likely ones.
    pub(crate) fn fit(&self) -> Option<Partial> {
        if self.lost < LOST_LEAST || self.lost == self.packets {
            return None;
        }
        let time: f64 = self.runs.iter().map(|run| run.time_ns).sum();
        let apart = time / self.packets as f64;
        let share = self.lost as f64 / self.packets as f64;
        // Bursts of these lengths, of which this part is lost: as many of them as the losses say.
        let start = |packets: f64, part: f64| {
            let bad = (share / part).min(0.9);
            let to_good = 1.0 / (packets * apart);
            [(to_good * bad / (1.0 - bad)).ln(), to_good.ln(), logit(part)]
        };
        let lengths = [2.0, 8.0, 32.0, 128.0, 512.0];
        let starts = lengths.iter().flat_map(|packets| [0.2, 0.5, 0.8].map(|part| start(*packets, part)));
        let (from, at_start) = starts.map(|start| (start, self.of(start))).max_by(|a, b| a.1.total_cmp(&b.1))?;
        let (kept, lost) = ((self.packets - self.lost) as f64, self.lost as f64);
        let of_random = kept * (1.0 - share).ln() + lost * share.ln();
        if at_start < of_random {
            return None;
        }
        let top = climb(|at| self.of(at), from, FINEST)?;
        let whole = |[to_bad, to_good]: [f64; 2]| self.log_likelihood(to_bad.exp(), to_good.exp(), 1.0);
        let starts = lengths.iter().map(|packets| start(*packets, 1.0)).map(|[to_bad, to_good, _]| [to_bad, to_good]);
        let from = starts.max_by(|a, b| whole(*a).total_cmp(&whole(*b)))?;
        let of_whole = whole(climb(whole, from, FINEST)?);
        let height = self.of(top);
        Some(Partial {
            top,
            covariance: covariance(|at| self.of(at), top),
            over_whole: height - of_whole,
            over_random: height - of_random,
        })
    }

    fn of(&self, [to_bad, to_good, part]: [f64; 3]) -> f64 {
        self.log_likelihood(to_bad.exp(), to_good.exp(), 1.0 / (1.0 + (-part).exp()))
    }

    /// Of rates in 1/ns and a chance of loss in bursts.
    fn log_likelihood(&self, to_bad: f64, to_good: f64, part: f64) -> f64 {
        let rate = to_bad + to_good;
        let bad = to_bad / rate;
        let step = |time: f64| {
            let left = -(-rate * time).exp_m1();
            [[1.0 - bad * left, bad * left], [(1.0 - bad) * left, 1.0 - (1.0 - bad) * left]]
        };
        let (mut state, mut log) = ([1.0 - bad, bad], 0.0);
        // Packets are often equally far apart.
        let (mut last_apart, mut last_step) = (f64::NAN, [[0.0; 2]; 2]);
        for run in &self.runs {
            let fate = if run.lost { [0.0, part] } else { [1.0, 1.0 - part] };
            let mut steps = run.packets;
            if run.begins {
                state = [(1.0 - bad) * fate[0], bad * fate[1]];
                steps -= 1;
            }
            if steps > 0 {
                let apart = run.time_ns / steps as f64;
                if apart != last_apart {
                    (last_apart, last_step) = (apart, step(apart));
                }
                let (power, scale) = power(last_step.map(|[a, b]| [a * fate[0], b * fate[1]]), steps);
                log += scale;
                state = [0, 1].map(|to| state[0] * power[0][to] + state[1] * power[1][to]);
            }
            let sum = (state[0] + state[1]).max(1e-300);
            log += sum.ln();
            state = state.map(|share| share / sum);
        }
        log
    }
}

fn logit(share: f64) -> f64 {
    let share = share.clamp(1e-6, 1.0 - 1e-6);
    (share / (1.0 - share)).ln()
}

/// A matrix multiplied with itself, and the logarithm of what it was divided by so that its numbers stay above nothing.
fn power(mut of: [[f64; 2]; 2], mut times: u64) -> ([[f64; 2]; 2], f64) {
    /// A product of two such numbers is still one.
    const SMALL: f64 = 1e-100;
    let product_of = |a: [[f64; 2]; 2], b: [[f64; 2]; 2]| {
        let of = a.map(|[x, y]| [x * b[0][0] + y * b[1][0], x * b[0][1] + y * b[1][1]]);
        let most = of.iter().flatten().fold(1e-300, |most: f64, value| most.max(*value));
        if most > SMALL { (of, 0.0) } else { (of.map(|row| row.map(|value| value / most)), most.ln()) }
    };
    let (mut product, mut log, mut log_of) = ([[1.0, 0.0], [0.0, 1.0]], 0.0, 0.0);
    while times > 0 {
        if times & 1 == 1 {
            let (next, by) = product_of(product, of);
            (product, log) = (next, log + log_of + by);
        }
        times >>= 1;
        if times > 0 {
            let (next, by) = product_of(of, of);
            (of, log_of) = (next, 2.0 * log_of + by);
        }
    }
    (product, log)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The chances of all fates of eight packets add up to one, however they are cut into runs.
    #[test]
    fn chances_of_all_fates_add_up() {
        let of = |fates: u32| {
            let mut all = Fates::default();
            (0..8).for_each(|n| all.add(fates >> n & 1 == 1, (n > 0).then_some(7_000_000), 1));
            all.log_likelihood(1.0 / 2e9, 1.0 / 40e6, 0.3).exp()
        };
        let sum: f64 = (0..256).map(of).sum();
        assert!((sum - 1.0).abs() < 1e-9, "{sum}");
        // A run by itself is as likely as its packets one by one.
        let mut alike = Fates::default();
        alike.add(false, None, 1);
        alike.add(false, Some(7_000_000), 7);
        assert!((alike.log_likelihood(1.0 / 2e9, 1.0 / 40e6, 0.3).exp() - of(0)).abs() < 1e-12);
    }

    /// Few bytes of a list of losses stand for runs of any length: what a look at them costs has a bound, not their number.
    #[test]
    fn long_runs_are_fewer() {
        let of = |packets: u64| {
            let mut all = Fates::default();
            (0..200_000).for_each(|n| all.add(n % 2 == 1, (n > 0).then_some(1_000), packets));
            all
        };
        assert_eq!((of(1).runs.len(), of(20).runs.len(), of(1 << 40).runs.len()), (100_000, 33_334, 4_762));
        // One that grows costs what its length then does, and is never cut.
        let mut grown = Fates::default();
        (0..1_000_000).for_each(|n| grown.add(false, (n > 0).then_some(1_000), 1));
        assert_eq!((grown.runs.len(), grown.work, grown.packets), (1, 21, 1_000_000));
    }

    #[test]
    fn powers_of_any_size() {
        let (power, log) = power([[0.5, 0.25], [0.0, 0.125]], 3);
        let expected = [[0.125, 0.082_031_25], [0.0, 0.001_953_125]];
        for (found, expected) in power.iter().flatten().zip(expected.iter().flatten()) {
            assert!((found * log.exp() - expected).abs() < 1e-12, "{power:?} {log}");
        }
        let (none, log) = super::power([[1e-3, 0.0], [0.0, 1e-4]], 1 << 40);
        assert!(none.iter().flatten().all(|value| value.is_finite()) && log < -1e12, "{none:?} {log}");
    }
}
