//! Variation of a hop's delay.

use std::f64::consts::{FRAC_PI_2, PI};

use longhaul_units::Nanos;
use statrs::distribution::{ContinuousCDF, Normal};

use super::chance::{Chance, mix, unit};
use crate::spec::{JitterSpec, Law, Order};

/// Numbers this share of an epoch apart have a correlation of 1/e.
const CORRELATED_EPOCHS: f64 = 0.938_668;

/// How alike the delays are, by normal scores, of packets that are sent `apart`, where a jitter's correlation time is `time` (above 0): from 1
/// at once to 0 from 2.13 times `time` on. It is the product of `cos θ · z(k) + sin θ · z(k+1)` at two times in the mean over all phases.
pub fn jitter_correlation(apart: Nanos, time: Nanos) -> f64 {
    let epochs = apart.0 as f64 / time.0 as f64 * CORRELATED_EPOCHS;
    if epochs >= 2.0 {
        return 0.0;
    }
    let (sin, cos) = (FRAC_PI_2 * epochs).sin_cos();
    (1.0 - epochs / 2.0) * cos + sin / PI
}

/// The delay of one packet after the other around a hop's mean.
///
/// `Order::Free`: each packet has an independent value of the law.
///
/// `Order::Fifo`: the delay is a smooth function of time whose value at any instant follows the law, so packets keep
/// their order by themselves. Clamping independent values into order, as emulators do, would raise the mean the more
/// the denser the packets are. The function joins independent standard normal numbers `z(0), z(1), …`, one an epoch,
/// by `cos θ · z(k) + sin θ · z(k+1)` with θ from 0 to π/2, which is standard normal everywhere as cos² + sin² = 1;
/// the law's quantile at that number's level is the delay. Packets more than two epochs apart have independent delays.
///
/// A correlation time sets the epoch, for either order. Where it is shorter than what keeps packets in order, `Order::Fifo` lets a packet
/// wait that would leave before an earlier one, as a queue does.
#[derive(Debug, Clone)]
pub(super) struct Jitter {
    spec: JitterSpec,
    chance: Chance,
    seed: u64,
    epoch: Nanos,
    /// Epoch number and the normal numbers at its two ends.
    ends: (u64, f64, f64),
    normal: Normal,
}

impl Jitter {
    pub(super) fn new(spec: &JitterSpec, mut chance: Chance) -> Self {
        // The delay falls by at most σ·π/2 · dq/dz · |N(0,1)| in one epoch and must not fall faster than time goes on.
        // With 16 σ that takes a 10-sigma event for laws whose quantile is no steeper than the normal's; the tail of a
        // Pareto law is some ten times steeper at three sigma.
        let epochs = match spec.law {
            Law::Normal | Law::Uniform => 16,
            Law::Pareto | Law::ParetoNormal | Law::Table(_) => 128,
        };
        let epoch = match spec.correlation {
            Some(correlation) => Nanos((correlation.0 as f64 / CORRELATED_EPOCHS) as u64),
            None => Nanos(spec.stddev.0 * epochs),
        };
        let mut jitter = Self {
            epoch: epoch.max(Nanos(1)),
            spec: spec.clone(),
            seed: chance.bits(),
            chance,
            ends: (0, 0.0, 0.0),
            normal: Normal::standard(),
        };
        jitter.ends = (0, jitter.z(0), jitter.z(1));
        jitter
    }

    pub(super) fn order(&self) -> Order {
        self.spec.order
    }

    /// How much longer (positive) or shorter than the mean the delay of the packet that arrives at `arrival` is, in
    /// nanoseconds.
    pub(super) fn at(&mut self, arrival: Nanos) -> f64 {
        let stddevs = match (self.spec.order, self.spec.correlation) {
            (Order::Free, None) => {
                let u = self.chance.unit();
                self.spec.law.quantile(u)
            }
            _ => {
                let z = self.wander(arrival);
                match self.spec.law {
                    // The quantile of the normal law undoes its distribution function.
                    Law::Normal => z,
                    _ => self.spec.law.quantile(self.normal.cdf(z).clamp(1e-15, 1.0 - 1e-15)),
                }
            }
        };
        stddevs * self.spec.stddev.0 as f64
    }

    fn wander(&mut self, time: Nanos) -> f64 {
        let epoch = time.0 / self.epoch.0;
        if epoch != self.ends.0 {
            let start = if epoch == self.ends.0 + 1 { self.ends.2 } else { self.z(epoch) };
            self.ends = (epoch, start, self.z(epoch + 1));
        }
        let (sin, cos) = (FRAC_PI_2 * (time.0 % self.epoch.0) as f64 / self.epoch.0 as f64).sin_cos();
        cos * self.ends.1 + sin * self.ends.2
    }

    /// The normal number at the beginning of an epoch: a function of seed and epoch alone, whatever traffic there is.
    fn z(&self, epoch: u64) -> f64 {
        self.normal.inverse_cdf(unit(mix(self.seed ^ mix(epoch))))
    }
}
