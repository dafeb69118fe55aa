//! What is swept: the values of each axis, and every combination of them.

use longhaul_terms::{ParameterError, SoftirqPlacement};
use longhaul_udp::{Pace, ReceiveSettings, UdpParameters};
use longhaul_units::{BitRate, Nanos};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

/// Most tests of a sweep: a day of some seconds each.
pub const MOST_TESTS: usize = 20_000;
/// Empty polls that NAPI makes before interrupts are on again, where a deferral is asked for.
const POLLS: u32 = 2;

/// The values of each axis. A setting that is not swept has one value, `None`: as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Axes {
    /// Payload bytes of a packet.
    pub payload_bytes: Vec<u32>,
    /// How fast packets are sent.
    pub paces: Vec<Pace>,
    /// Socket buffers of both ends, bytes.
    pub sockbuf_bytes: Vec<Option<u64>>,
    /// Receiver and its softirq on one CPU or on two.
    pub softirq: Vec<Option<SoftirqPlacement>>,
    /// GRO of the receiving interface.
    pub gro: Vec<Option<bool>>,
    /// Time between polls by which NAPI defers interrupts; 0: it does not defer them.
    pub deferral: Vec<Option<Nanos>>,
    /// Packets that the receive ring holds.
    pub ring_packets: Vec<Option<u32>>,
    /// Time from a received packet to its interrupt.
    pub coalescing: Vec<Option<Nanos>>,
    /// The CPU that takes the interface's interrupts.
    pub irq_cpu: Vec<Option<u32>>,
}

/// One combination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Point {
    /// Payload bytes of a packet.
    pub payload_bytes: u32,
    /// How fast packets are sent.
    pub pace: Pace,
    /// The settings of the combination.
    #[serde(flatten)]
    pub setting: PointSetting,
}

/// The settings of a combination; `null`: as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PointSetting {
    /// Socket buffers of both ends, bytes.
    pub sockbuf_bytes: Option<u64>,
    /// Receiver and its softirq on one CPU or on two.
    pub softirq: Option<SoftirqPlacement>,
    /// GRO of the receiving interface.
    pub gro: Option<bool>,
    /// Time between polls by which NAPI defers interrupts, nanoseconds; 0: it does not defer them.
    pub deferral_ns: Option<u64>,
    /// Packets that the receive ring holds.
    pub ring_packets: Option<u32>,
    /// Time from a received packet to its interrupt, nanoseconds.
    pub coalescing_ns: Option<u64>,
    /// The CPU that takes the interface's interrupts.
    pub irq_cpu: Option<u32>,
}

/// Why there is no such sweep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AxesError {
    /// More than [`MOST_TESTS`].
    TooMany {
        /// How many there would be.
        tests: usize,
    },
    /// A value is out of range.
    Value(ParameterError),
}

impl Axes {
    /// Every combination, the pace changing first, then the size. Each of `repeat` repetitions has them all.
    ///
    /// # Errors
    /// There are more tests than [`MOST_TESTS`], or a test as `base` has it with a combination is out of range.
    pub fn points(&self, base: &UdpParameters, repeat: usize) -> Result<Vec<Point>, AxesError> {
        let counts = [
            self.payload_bytes.len(),
            self.paces.len(),
            self.sockbuf_bytes.len(),
            self.softirq.len(),
            self.gro.len(),
            self.deferral.len(),
            self.ring_packets.len(),
            self.coalescing.len(),
            self.irq_cpu.len(),
        ];
        let tests = counts.iter().fold(repeat, |product, count| product.saturating_mul(*count));
        if tests > MOST_TESTS {
            return Err(AxesError::TooMany { tests });
        }
        let points: Vec<Point> = self
            .settings()
            .into_iter()
            .flat_map(|setting| self.payload_bytes.iter().map(move |bytes| (setting, *bytes)))
            .flat_map(|(setting, payload_bytes)| {
                self.paces.iter().map(move |pace| Point { payload_bytes, pace: *pace, setting })
            })
            .collect();
        for point in &points {
            point.parameters(base).validate().map_err(AxesError::Value)?;
        }
        Ok(points)
    }

    fn settings(&self) -> Vec<PointSetting> {
        let mut all = vec![PointSetting::default()];
        spread(&mut all, &self.sockbuf_bytes, |setting, value| setting.sockbuf_bytes = value);
        spread(&mut all, &self.softirq, |setting, value| setting.softirq = value);
        spread(&mut all, &self.gro, |setting, value| setting.gro = value);
        spread(&mut all, &self.deferral, |setting, value| setting.deferral_ns = value.map(|time| time.0));
        spread(&mut all, &self.ring_packets, |setting, value| setting.ring_packets = value);
        spread(&mut all, &self.coalescing, |setting, value| setting.coalescing_ns = value.map(|time| time.0));
        spread(&mut all, &self.irq_cpu, |setting, value| setting.irq_cpu = value);
        all
    }
}

/// Each setting of `all` with each of `values`.
fn spread<T: Copy>(all: &mut Vec<PointSetting>, values: &[T], put: impl Fn(&mut PointSetting, T)) {
    let with = |setting: &PointSetting, value: T| {
        let mut setting = *setting;
        put(&mut setting, value);
        setting
    };
    *all = all
        .iter()
        .flat_map(|setting| values.iter().map(move |value| (setting, *value)))
        .map(|(s, v)| with(s, v))
        .collect();
}

impl Point {
    /// The test of this point, the rest of it as `base` has it.
    pub fn parameters(&self, base: &UdpParameters) -> UdpParameters {
        let PointSetting { sockbuf_bytes, softirq, gro, deferral_ns, ring_packets, coalescing_ns, irq_cpu } =
            self.setting;
        let mut parameters = UdpParameters {
            payload_bytes: self.payload_bytes,
            pace: self.pace,
            sockbuf_bytes: sockbuf_bytes.or(base.sockbuf_bytes),
            receive: ReceiveSettings {
                gro,
                napi_defer_hard_irqs: deferral_ns.map(|ns| if ns == 0 { 0 } else { POLLS }),
                gro_flush_timeout_ns: deferral_ns,
                ring_packets,
                coalesce_us: coalescing_ns.map(|ns| u32::try_from(ns / 1_000).unwrap_or(u32::MAX)),
                irq_cpus: irq_cpu.map(|cpu| vec![cpu]),
            },
            ..base.clone()
        };
        parameters.affinity.softirq = softirq.or(base.affinity.softirq);
        parameters
    }

    /// Payload bits per second asked for; `None` for as fast as possible.
    pub fn rate(&self) -> Option<BitRate> {
        UdpParameters { payload_bytes: self.payload_bytes, pace: self.pace, ..UdpParameters::default() }.rate()
    }
}

impl PointSetting {
    /// The settings that are not left as they are, as `name value`; empty where all are.
    pub fn words(&self) -> Vec<String> {
        let mut words = Vec::new();
        words.extend(self.sockbuf_bytes.map(|bytes| format!("sockbuf {}", longhaul_units::Bytes(bytes))));
        words.extend(self.softirq.map(|placement| {
            match placement {
                SoftirqPlacement::Same => "softirq same",
                SoftirqPlacement::Split => "softirq split",
            }
            .to_owned()
        }));
        words.extend(self.gro.map(|on| format!("gro {}", if on { "on" } else { "off" })));
        words.extend(self.deferral_ns.map(|ns| format!("defer {}", Nanos(ns))));
        words.extend(self.ring_packets.map(|packets| format!("ring {packets}")));
        words.extend(self.coalescing_ns.map(|ns| format!("coalesce {}", Nanos(ns))));
        words.extend(self.irq_cpu.map(|cpu| format!("irq-cpu {cpu}")));
        words
    }
}

/// The order of the tests: in each of `repeat` repetitions all `points` by number, shuffled, so that what drifts on the hosts or the
/// path falls on all points alike.
pub fn order(points: usize, repeat: usize, seed: u64) -> Vec<usize> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut all = Vec::with_capacity(points.saturating_mul(repeat).min(MOST_TESTS));
    for _ in 0..repeat {
        let mut turn: Vec<usize> = (0..points).collect();
        // Fisher and Yates. The bias of the remainder is below 10⁻¹⁵ for so few points.
        for last in (1..turn.len()).rev() {
            turn.swap(last, (random.next_u64() % (last as u64 + 1)) as usize);
        }
        all.extend(turn);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axes() -> Axes {
        Axes {
            payload_bytes: vec![64, 1448],
            paces: vec![Pace::RateBps(1_000_000), Pace::SpacingNs(50_000), Pace::Unlimited],
            sockbuf_bytes: vec![None],
            softirq: vec![None],
            gro: vec![Some(false), Some(true)],
            deferral: vec![Some(Nanos(0)), Some(Nanos(200_000))],
            ring_packets: vec![None],
            coalescing: vec![None],
            irq_cpu: vec![None],
        }
    }

    #[test]
    fn every_combination_is_a_test_of_its_own() {
        let base = UdpParameters { wire: true, ..UdpParameters::default() };
        let points = axes().points(&base, 3).unwrap();
        assert_eq!(points.len(), 2 * 3 * 2 * 2);
        let mut seen: Vec<UdpParameters> = Vec::new();
        for point in &points {
            let parameters = point.parameters(&base);
            assert!(parameters.wire && !seen.contains(&parameters));
            seen.push(parameters);
        }
        let deferred = seen.iter().filter(|parameters| parameters.receive.napi_defer_hard_irqs == Some(POLLS)).count();
        assert_eq!(deferred, 12);
        assert_eq!(points[0].rate(), Some(BitRate(1_000_000)));
        assert_eq!(points[1].rate(), Some(BitRate(64 * 8 * 20_000)));
        assert_eq!(points[0].setting.words(), ["gro off", "defer 0ns"]);
    }

    #[test]
    fn what_no_test_can_be_is_refused() {
        let base = UdpParameters::default();
        assert_eq!(axes().points(&base, 1_000), Err(AxesError::TooMany { tests: 24_000 }));
        let short = Axes { payload_bytes: vec![64, 12], ..axes() };
        assert!(matches!(short.points(&base, 1), Err(AxesError::Value(error)) if error.field == "payload_bytes"));
    }

    #[test]
    fn each_repetition_has_all_points_in_an_order_of_its_own() {
        let all = order(20, 3, 7);
        assert_eq!(all, order(20, 3, 7));
        let turns: Vec<&[usize]> = all.chunks(20).collect();
        assert!(turns[0] != turns[1] && turns[1] != turns[2]);
        for turn in turns {
            let mut sorted = turn.to_vec();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..20).collect::<Vec<_>>());
        }
        assert_eq!(order(0, 3, 7), [0_usize; 0]);
    }
}
