//! Random numbers, and which packets are lost.

use longhaul_units::Nanos;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::spec::{LossSpec, Outage, PacketList, Probability};

/// A stream of random numbers of its own for each use in each hop, so that a change in one leaves the others as they
/// were.
#[derive(Debug, Clone)]
pub(super) struct Chance(Xoshiro256PlusPlus);

impl Chance {
    /// The stream that `seed` and `stream` name.
    pub(super) fn new(seed: u64, stream: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(mix(seed ^ mix(stream))))
    }

    pub(super) fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Evenly from the open interval (0, 1).
    pub(super) fn unit(&mut self) -> f64 {
        unit(self.bits())
    }

    /// How many trials of chance `p` it takes until the first success: 1, 2, …; `u64::MAX` where `p` is 0.
    fn geometric(&mut self, p: f64) -> u64 {
        if p >= 1.0 {
            return 1;
        }
        if p <= 0.0 {
            return u64::MAX;
        }
        // ln_1p keeps the precision that 1 - p loses for small p.
        ((self.unit().ln() / (-p).ln_1p()).floor() as u64).saturating_add(1)
    }
}

/// The 52 upper bits of `bits` as a number in the open interval (0, 1).
pub(super) fn unit(bits: u64) -> f64 {
    ((bits >> 12) as f64 + 0.5) / (1u64 << 52) as f64
}

/// The finalizer of SplitMix64 (Steele, Lea, Flood 2014): spreads neighbouring seeds.
pub(super) fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Picks packets out of a numbered stream, one after the other.
///
/// It says the number of the next packet picked rather than deciding on each, so that a train in which nothing happens
/// costs one comparison.
#[derive(Debug, Clone)]
pub(super) struct Picker {
    /// The packets that were before the first that it counts.
    before: u64,
    next: u64,
    law: PickLaw,
    chance: Chance,
}

#[derive(Debug, Clone)]
enum PickLaw {
    Never,
    Random(f64),
    Every(u64),
    GilbertElliott(GilbertElliott),
    List { list: PacketList, range: usize },
}

impl Picker {
    /// Picks by `loss`, of bursts what is lost between them; its first packet is the one after packet number `before`.
    pub(super) fn new(loss: &LossSpec, chance: Chance, before: u64) -> Self {
        let law = match loss {
            LossSpec::None => PickLaw::Never,
            LossSpec::Random(p) => PickLaw::Random(p.0),
            LossSpec::Bursts(bursts) => PickLaw::Random(bursts.otherwise.0),
            LossSpec::Every(n) => PickLaw::Every(n.get()),
            &LossSpec::GilbertElliott { p, r, h, k } => PickLaw::GilbertElliott(GilbertElliott::new(p, r, h, k)),
            LossSpec::List(list) => PickLaw::List { list: list.clone(), range: 0 },
        };
        let mut picker = Self { before, next: 0, law, chance };
        picker.step();
        picker
    }

    /// The number of the next packet picked, `u64::MAX` where there is none.
    pub(super) fn next(&self) -> u64 {
        self.before.saturating_add(self.next)
    }

    /// Goes on to the packet picked after [`Picker::next`].
    pub(super) fn step(&mut self) {
        self.next = match &mut self.law {
            PickLaw::Never => u64::MAX,
            PickLaw::Random(p) => self.next.saturating_add(self.chance.geometric(*p)),
            PickLaw::Every(n) => self.next.saturating_add(*n),
            PickLaw::GilbertElliott(chain) => chain.next_lost(&mut self.chance),
            PickLaw::List { list, range } => match list.ranges().get(*range) {
                None => u64::MAX,
                Some(&(first, last)) => {
                    // `range` has the next packet: one within it, or its first.
                    let next = self.next.saturating_add(1).max(first);
                    if next >= last {
                        *range += 1;
                    }
                    next
                }
            },
        };
    }
}

/// The loss chain of Gilbert and Elliott: a packet meets a state, then the chain takes one step.
///
/// Stays in a state and survivals within it are geometric, so both are drawn as lengths.
#[derive(Debug, Clone)]
struct GilbertElliott {
    /// For the good state and the bad one: chance to leave it after a packet, chance that a packet in it is lost.
    states: [(f64, f64); 2],
    state: usize,
    /// The last packet decided on.
    at: u64,
    /// The last packet in the present stay, 0 before the first.
    stay_until: u64,
}

impl GilbertElliott {
    fn new(p: Probability, r: Probability, h: Probability, k: Probability) -> Self {
        Self { states: [(p.0, 1.0 - k.0), (r.0, 1.0 - h.0)], state: 0, at: 0, stay_until: 0 }
    }

    fn next_lost(&mut self, chance: &mut Chance) -> u64 {
        if self.stay_until == 0 {
            self.stay_until = chance.geometric(self.states[0].0);
        }
        if self.states.iter().all(|&(_, lost)| lost <= 0.0) {
            return u64::MAX;
        }
        let in_two = self.chance_in_two_stays();
        if in_two < RARE && self.states.iter().all(|&(leaves, _)| leaves > 0.0) {
            return self.next_rare(in_two, chance);
        }
        loop {
            let (_, lost) = self.states[self.state];
            let candidate = self.at.saturating_add(chance.geometric(lost));
            if candidate <= self.stay_until {
                self.at = candidate;
                return candidate;
            }
            if self.stay_until == u64::MAX {
                return u64::MAX;
            }
            self.at = self.stay_until;
            self.state = 1 - self.state;
            self.stay_until = self.at.saturating_add(chance.geometric(self.states[self.state].0));
        }
    }
}

/// Where fewer pairs of stays have a loss, those without one are not drawn one by one.
const RARE: f64 = 1e-4;

impl GilbertElliott {
    /// Chance that a packet ends what was without event in `state`: it is lost, or is the last of its stay.
    fn ends(&self, state: usize) -> f64 {
        let (leaves, lost) = self.states[state];
        lost + (1.0 - lost) * leaves
    }

    /// Chance that a stay in `state` has a loss.
    fn in_stay(&self, state: usize) -> f64 {
        self.states[state].1 / self.ends(state)
    }

    /// Chance that a stay and the one after it have a loss.
    fn chance_in_two_stays(&self) -> f64 {
        let [good, bad] = [0, 1].map(|state| self.in_stay(state));
        good + (1.0 - good) * bad
    }

    /// The next loss where losses are rare: how many pairs of stays have none is drawn at once, and they are as long as they are in the mean.
    fn next_rare(&mut self, in_two: f64, chance: &mut Chance) -> u64 {
        if self.at >= self.stay_until {
            self.state = 1 - self.state;
        }
        let pairs = chance.geometric(in_two) - 1;
        let packets = (1.0 / self.ends(0) + 1.0 / self.ends(1)) * pairs as f64;
        self.at = self.at.saturating_add(packets as u64);
        if chance.unit() * in_two >= self.in_stay(self.state) {
            self.at = self.at.saturating_add(chance.geometric(self.ends(self.state)));
            self.state = 1 - self.state;
        }
        self.at = self.at.saturating_add(chance.geometric(self.ends(self.state)));
        self.stay_until = self.at.saturating_add(chance.geometric(self.states[self.state].0) - 1);
        self.at
    }
}

/// Whether `time` since the path's start lies in one of `outages`.
pub(super) fn in_outage(outages: &[Outage], time: Nanos) -> bool {
    outages.iter().any(|outage| {
        let Some(since) = time.0.checked_sub(outage.at.0) else { return false };
        match outage.every {
            Some(every) => since % every.0 < outage.lasting.0,
            None => since < outage.lasting.0,
        }
    })
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;

    fn picked(loss: &LossSpec, upto: u64) -> Vec<u64> {
        let mut picker = Picker::new(loss, Chance::new(7, 1), 0);
        let mut picked = Vec::new();
        while picker.next() <= upto {
            picked.push(picker.next());
            picker.step();
        }
        picked
    }

    #[test]
    fn every_is_exact() {
        let every = LossSpec::Every(NonZeroU64::new(30_000).unwrap());
        assert_eq!(picked(&every, 100_000), [30_000, 60_000, 90_000]);
        assert_eq!(picked(&LossSpec::List([2, 3, 4, 7, 9, 10].into()), 100), [2, 3, 4, 7, 9, 10]);
        assert!(picked(&LossSpec::List(PacketList::of(Vec::new())), u64::MAX - 1).is_empty());
        assert!(picked(&LossSpec::None, u64::MAX - 1).is_empty());
    }

    /// Gaps between random losses are geometric: chi-square over ten classes of equal chance, 9 degrees of freedom.
    #[test]
    fn random_loss_is_random() {
        let p: f64 = 0.01;
        let lost = picked(&LossSpec::Random(Probability(p)), 10_000_000);
        let share = lost.len() as f64 / 1e7;
        assert!((share - p).abs() < 4.0 * (p / 1e7).sqrt(), "{share}");
        // In each block of 100 packets the number of losses is binomial(100, 0.01).
        let mut counts = [0u32; 5];
        let mut block = vec![0u8; 100_000];
        for n in &lost {
            block[((n - 1) / 100) as usize] += 1;
        }
        for b in &block {
            counts[usize::from(*b).min(4)] += 1;
        }
        let binomial = |k: i32| {
            let choose = (0..k).fold(1.0, |c, i| c * f64::from(100 - i) / f64::from(i + 1));
            choose * p.powi(k) * (1.0 - p).powi(100 - k)
        };
        let mut expected: Vec<f64> = (0..4).map(|k| binomial(k) * 1e5).collect();
        expected.push(1e5 - expected.iter().sum::<f64>());
        let chi2: f64 = counts.iter().zip(&expected).map(|(&o, e)| (f64::from(o) - e).powi(2) / e).sum();
        // 0.999 quantile of chi-square with 4 degrees of freedom.
        assert!(chi2 < 18.47, "chi-square {chi2}, counts {counts:?}, expected {expected:?}");
    }

    /// Bursts of the simple Gilbert chain are geometric with mean 1/r, gaps with mean 1/p.
    #[test]
    fn gilbert_elliott_bursts_fit() {
        let (p, r) = (0.01, 0.25);
        let chain =
            LossSpec::GilbertElliott { p: Probability(p), r: Probability(r), h: Probability(0.0), k: Probability(1.0) };
        let lost = picked(&chain, 5_000_000);
        let share = lost.len() as f64 / 5e6;
        assert!((share - p / (p + r)).abs() < 0.001, "stationary loss {share}, expected {}", p / (p + r));
        let mut lengths = [0f64; 12];
        let mut bursts = 0.0;
        let mut length = 0;
        for pair in lost.windows(2) {
            length += 1;
            if pair[1] != pair[0] + 1 {
                lengths[length.min(12) - 1] += 1.0;
                bursts += 1.0;
                length = 0;
            }
        }
        let chi2: f64 = (0..11)
            .map(|i| {
                let expected = bursts * r * (1.0f64 - r).powi(i);
                (lengths[i as usize] - expected).powi(2) / expected
            })
            .sum();
        // 0.999 quantile of chi-square with 11 degrees of freedom.
        assert!(chi2 < 31.26, "chi-square {chi2}: {lengths:?}");
    }

    /// Where nearly no stay has a loss, the next one is found at once, and the share is as it should be.
    #[test]
    fn rare_losses_of_a_chain_are_found_at_once() {
        let chain = |p, r, h, k| LossSpec::GilbertElliott {
            p: Probability(p),
            r: Probability(r),
            h: Probability(h),
            k: Probability(k),
        };
        // 40 % of the packets are in the bad state, of which one in 100,000 is lost.
        let (upto, expected) = (10_000_000_000, 0.4 * 1e-5);
        let share = picked(&chain(0.2, 0.3, 1.0 - 1e-5, 1.0), upto).len() as f64 / upto as f64;
        assert!((share / expected - 1.0).abs() < 0.02, "{share}, expected {expected}");
        let (least, most) =
            (picked(&chain(1.0, 1.0, 1.0 - 1e-16, 1.0), 1 << 40), picked(&chain(1.0, 1.0, 1.0, 1.0), 1 << 40));
        assert!(least.len() < 3 && most.is_empty(), "{least:?}");
    }

    #[test]
    fn gilbert_elliott_survival_within_states() {
        let chain = LossSpec::GilbertElliott {
            p: Probability(0.2),
            r: Probability(0.3),
            h: Probability(0.5),
            k: Probability(0.9),
        };
        let expected = 0.4 * 0.5 + 0.6 * 0.1;
        let share = picked(&chain, 1_000_000).len() as f64 / 1e6;
        assert!((share - expected).abs() < 0.003, "{share} against {expected}");
        let lossless = LossSpec::GilbertElliott {
            p: Probability(0.1),
            r: Probability(0.1),
            h: Probability(1.0),
            k: Probability(1.0),
        };
        assert!(picked(&lossless, 1_000_000).is_empty());
        let never_bad = LossSpec::GilbertElliott {
            p: Probability(0.0),
            r: Probability(0.0),
            h: Probability(0.0),
            k: Probability(1.0),
        };
        assert!(picked(&never_bad, 1_000_000).is_empty());
    }

    #[test]
    fn outages_repeat() {
        let outages =
            [Outage { at: Nanos::from_secs(10), lasting: Nanos::from_millis(50), every: Some(Nanos::from_secs(60)) }];
        for (ms, lost) in [(0, false), (10_000, true), (10_049, true), (10_050, false), (70_020, true)] {
            assert_eq!(in_outage(&outages, Nanos::from_millis(ms)), lost, "{ms} ms");
        }
    }
}
