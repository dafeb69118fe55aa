//! The tests of one path over the last days, and what it usually loses.

use std::collections::VecDeque;

use longhaul_units::Nanos;
use statrs::function::gamma::ln_gamma;

use crate::sample::Sample;

/// An hour.
pub(super) const HOUR: Nanos = Nanos(3_600_000_000_000);
/// The fault that is looked for: what one site of TeraGrid lost.
pub(super) const FAULT_LOSS: f64 = 0.0044;
/// How far back a path's usual loss is taken from: a week has all hours and days once.
const USUAL_HOURS: u64 = 7 * 24;
/// The latest tests are not part of what is usual: they are what is judged.
const JUDGED_HOURS: u64 = 24;
/// Tests that are kept for a path at most: one an hour, and some more.
const KEPT_MOST: usize = 512;
/// What a path is thought to lose before it was tested, and how many packets that is worth: little, or paths that lose would look clean.
const PRIOR_LOSS: f64 = 5e-5;
const PRIOR_PACKETS: f64 = 2_000.0;
/// Loss of a weekday beside the mean of the week, where the weekend has half.
const WEEKDAY: f64 = 7.0 / 6.0;
/// Packets that are lost together, about.
const RUN: f64 = 1.5;
/// Packets that the mean of all hours is worth beside those of the same time of day.
const NEAR_PACKETS: f64 = 2_000.0;
/// Nobody knows of less: a week of thin tests has 17,000 packets.
const USUAL_LEAST: f64 = 3e-5;
/// Tests before a path can be judged: two days of tests an hour.
const TESTS_LEAST: usize = 48;
/// Variance of a count of lost packets over its mean, where runs have `RUN` packets on average and lengths of a geometric distribution.
const SPREAD: f64 = 2.0 * RUN - 1.0;
/// Weight of a loss of any size, a burst's: this over one more than the packets lost. About one test in a hundred has a burst, of 1 to 1000 packets,
/// as likely from 1 to 10 as from 10 to 100.
const BURSTS: f64 = 0.002;
/// How much more likely such a loss is with a fault, which may lose more than the one that is looked for. A test that loses far more than that says
/// this, and not more.
const BURSTS_OF_FAULT: f64 = 3.0;
/// More packets in a test say no more: what a path usually loses is not known better than that, and no site's report outweighs those of all others.
const PACKETS_MOST: f64 = 5_000.0;
/// A path counts as losing so much less than usual at most, as a share of its packets. One of its two sites may have made up that it usually loses much:
/// without a bound that would hide what all others lose. Few paths usually lose more than this.
const BELOW_USUAL_MOST: f64 = FAULT_LOSS / 2.0;
/// What one test can say at most for or against a fault, natural logarithm: a burst is one test and must not be an alarm.
pub(super) const LIKELIHOOD_MOST: f64 = 4.0;

/// One test as it is judged.
#[derive(Debug, Clone, Copy)]
pub(super) struct Judged {
    pub(super) sample: Sample,
    /// Whole hours since 1970.
    pub(super) hour: u64,
    /// Sent packets: of more than `PACKETS_MOST` as many as these, and losses in proportion.
    pub(super) sent: f64,
    /// Lost packets of these.
    pub(super) lost: f64,
    /// The same, bounded.
    pub(super) bounded: f64,
    /// Share that the path usually loses at this time of day.
    pub(super) usual: f64,
    /// How much more likely the loss is with the fault than without: natural logarithm, bounded.
    pub(super) likelihood: f64,
    /// Belongs to a fault that was named, not to what is usual.
    pub(super) of_fault: bool,
    /// Whether the path was known long enough.
    pub(super) known: bool,
}

impl Judged {
    /// How many of `lost` packets are above the usual. Below 0 where fewer were lost than usual: bounded.
    pub(super) fn above(&self, lost: f64) -> f64 {
        (lost - self.usual * self.sent).max(-BELOW_USUAL_MOST * self.sent)
    }
}

/// The tests of a path.
#[derive(Debug, Clone, Default)]
pub(super) struct History {
    tests: VecDeque<Judged>,
}

impl History {
    /// Takes a test. `of_fault`: a fault is named that explains its losses. Tests come in order of time; an older one than the last is
    /// taken as if it was of the same hour.
    pub(super) fn push(&mut self, sample: Sample, of_fault: bool) {
        let hour = (sample.at.0 / HOUR.0).max(self.tests.back().map_or(0, |last| last.hour));
        let (usual, known) = self.usual(hour);
        let (sent, lost) = scaled(f64::from(sample.sent.max(1)), f64::from(sample.lost));
        // Three times what the fault loses in a test, rounded up.
        let bounded = lost.min((3.0 * FAULT_LOSS * sent).ceil());
        let likelihood = likelihood(sent, lost, usual);
        self.tests.push_back(Judged { sample, hour, sent, lost, bounded, usual, likelihood, of_fault, known });
        // What is usual stays known as long as a fault lasts.
        let oldest = hour.saturating_sub(USUAL_HOURS + JUDGED_HOURS);
        while !of_fault && self.tests.front().is_some_and(|test| test.hour < oldest) {
            self.tests.pop_front();
        }
        if self.tests.len() > KEPT_MOST {
            let drop = self.tests.iter().position(|test| test.of_fault && test.hour + JUDGED_HOURS < hour).unwrap_or(0);
            self.tests.remove(drop);
        }
    }

    /// The share that is usually lost at this time of day, and whether that is known. Load follows the day: it is the mean of two hours around
    /// this one, drawn to that of all hours where few packets say it.
    fn usual(&self, hour: u64) -> (f64, bool) {
        let mut all = (PRIOR_LOSS * PRIOR_PACKETS, PRIOR_PACKETS);
        let mut near = all;
        let mut tests = 0;
        for test in self.tests.iter().filter(|test| test.hour + JUDGED_HOURS <= hour && !test.of_fault) {
            let sent = test.sent;
            tests += 1;
            all = (all.0 + test.bounded, all.1 + sent);
            let apart = (hour - test.hour) % 24;
            if apart <= 2 || apart >= 22 {
                near = (near.0 + test.bounded, near.1 + sent);
            }
        }
        let all_day = all.0 / all.1;
        let near_packets = near.1 - PRIOR_PACKETS + NEAR_PACKETS;
        let near = (near.0 - PRIOR_LOSS * PRIOR_PACKETS + all_day * NEAR_PACKETS) / near_packets;
        let mean = near.max(USUAL_LEAST);
        // A standard error more, as what few packets say of a path that loses in runs is uncertain.
        let error = (mean * RUN / (near_packets + all.1 / 4.0)).sqrt();
        (mean * WEEKDAY + error, tests >= TESTS_LEAST)
    }

    /// Tests from this hour on, the latest first.
    pub(super) fn since(&self, hour: u64) -> impl Iterator<Item = &Judged> {
        self.tests.iter().rev().take_while(move |test| test.hour >= hour)
    }

    /// All tests that are kept, the latest first.
    #[cfg(test)]
    fn all(&self) -> impl Iterator<Item = &Judged> {
        self.tests.iter().rev()
    }

    /// A fault is named that explains what was lost from this hour on.
    pub(super) fn mark(&mut self, hour: u64) {
        self.tests.iter_mut().rev().take_while(|test| test.hour >= hour).for_each(|test| test.of_fault = true);
    }
}

/// Packets sent and lost as they count: of more than [`PACKETS_MOST`] as many as these, and losses in proportion.
fn scaled(sent: f64, lost: f64) -> (f64, f64) {
    let scale = (PACKETS_MOST / sent).min(1.0);
    (sent * scale, lost * scale)
}

/// How much more likely `lost` of `sent` packets, both [`scaled`], are with the fault than with the usual loss alone: the logarithm of the ratio of
/// two probabilities, bounded. Packets are lost in runs, so each is a negative binomial one, and a burst may be the cause in both.
fn likelihood(sent: f64, lost: f64, usual: f64) -> f64 {
    let burst = BURSTS / (lost + 1.0);
    let of_fault = if lost > (usual + FAULT_LOSS) * sent { BURSTS_OF_FAULT } else { 1.0 };
    let runs = |share: f64| {
        let size = share * sent / (SPREAD - 1.0);
        let ways = ln_gamma(lost + size) - ln_gamma(size) - ln_gamma(lost + 1.0);
        (ways - size * SPREAD.ln() + lost * (1.0 - 1.0 / SPREAD).ln()).exp()
    };
    let ratio = (runs(usual + FAULT_LOSS) + of_fault * burst) / (runs(usual) + burst);
    ratio.ln().clamp(-LIKELIHOOD_MOST, LIKELIHOOD_MOST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::SiteId;

    fn sample(hour: u64, lost: u32) -> Sample {
        Sample { at: Nanos(hour * HOUR.0), from: SiteId(0), to: SiteId(1), sent: 1000, lost, placed: None }
    }

    /// The variance is twice the mean: with a mean of m packets, k are lost with probability 2^-(m + k) · m (m + 1) … (m + k - 1) / k!.
    #[test]
    fn likelihoods_by_hand() {
        let none = (2f64.powf(-0.45) + 0.002) / (2f64.powf(-0.01) + 0.002);
        assert!((likelihood(100.0, 0.0, 1e-4) - none.ln()).abs() < 1e-6);
        let [fault, usual] = [0.54 * 1.54 / 2.0 * 2f64.powf(-2.54), 0.1 * 1.1 / 2.0 * 2f64.powf(-2.1)];
        let two = (fault + 0.002) / (usual + 0.002 / 3.0);
        assert!((likelihood(100.0, 2.0, 1e-3) - two.ln()).abs() < 1e-6);
        assert_eq!([likelihood(1000.0, 4.0, 1e-4), likelihood(5000.0, 0.0, 1e-4)], [4.0, -4.0]);
        // Fewer losses than usual are no sign of a fault.
        assert!(likelihood(5000.0, 0.0, 3e-3) <= 0.0 && likelihood(5000.0, 1.0, 1e-4) < -2.0);
        // A burst says little.
        assert!((likelihood(100.0, 30.0, 1e-4) - 3f64.ln()).abs() < 0.01);
    }

    /// A test of twenty times as many packets counts once for 5,000 of them: it says what these say.
    #[test]
    fn more_packets_say_no_more() {
        let last = |sent, lost| {
            let mut history = History::default();
            history.push(Sample { sent, lost, ..sample(0, 0) }, false);
            history.tests[0]
        };
        let (many, same) = (last(100_000, 200), last(5_000, 10));
        assert!((many.sent - 5_000.0).abs() < 1e-6 && (many.lost - 10.0).abs() < 1e-6, "{many:?}");
        assert!(many.likelihood > 0.0 && many.likelihood < LIKELIHOOD_MOST, "{many:?}");
        assert!((many.likelihood - same.likelihood).abs() < 1e-6, "{many:?} {same:?}");
    }

    #[test]
    fn likelihoods_of_all_counts_are_numbers() {
        let most = f64::from(u32::MAX);
        for (sent, lost) in [(1.0, 0.0), (1.0, most), (most, 0.0), (most, most), (most, 0.0044 * most)] {
            let (sent, lost) = scaled(sent, lost);
            assert!([USUAL_LEAST, 1e-3, 1.0].iter().all(|usual| likelihood(sent, lost, *usual).is_finite()));
        }
    }

    #[test]
    fn usual_is_what_a_week_had_without_its_last_day() {
        let mut history = History::default();
        for hour in 0..200 {
            history.push(sample(hour, u32::from(hour >= 190) * 50), false);
        }
        let last = history.all().next().unwrap();
        assert!(last.known && last.usual < 1e-4 && last.likelihood > 1.0, "{last:?}");
        // A day later it is.
        for hour in 200..240 {
            history.push(sample(hour, 50), false);
        }
        assert!(history.all().next().unwrap().usual > 5e-4);
    }

    #[test]
    fn a_named_fault_is_never_usual_and_memory_is_bounded() {
        let mut history = History::default();
        for hour in 0..10_000 {
            history.push(sample(hour, u32::from(hour >= 300) * 5), hour >= 300);
        }
        assert!(history.tests.len() <= KEPT_MOST);
        let last = history.all().next().unwrap();
        assert!(last.known && last.usual < 1e-4, "{last:?}");
    }
}
