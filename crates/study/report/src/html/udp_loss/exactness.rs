//! What a path did to the packets of a UDP test, beside what it was asked for.

use serde::{Deserialize, Serialize};

/// Names of means.
pub(crate) const DELAY: &str = "delay_p50_ns";
pub(crate) const DELAY_MOST: &str = "delay_p99_ns";
pub(crate) const DELAY_ERROR_LEAST: &str = "delay_error_min_ns";
pub(crate) const DELAY_ERROR: &str = "delay_error_p50_ns";
pub(crate) const DELAY_ERROR_MOST: &str = "delay_error_p99_ns";
pub(crate) const DROPPED: &str = "dropped_percent";
pub(crate) const MISCOUNTED: &str = "miscounted_packets";

/// Delay and loss from client to server, packet by packet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Exactness {
    /// What emulated the path: `longhaul` or `netem`.
    pub emulator: String,
    /// One-way delays; `None` where no packet arrived.
    pub delay: Option<OneWayDelay>,
    /// The delay of each packet that the path asks for; `None` where it asks for more than a constant (jitter, a rate, batches).
    pub asked_delay_ns: Option<u64>,
    /// Packets of all protocols that the client sent into the path, by its interface.
    pub entered_packets: u64,
    /// Packets of all protocols that the server received, by its interface.
    pub left_packets: u64,
    /// Packets that the emulator says it dropped.
    pub dropped_packets: u64,
}

/// From just before a packet was given to the kernel until the receiving kernel stamped it: what both hosts take is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OneWayDelay {
    /// Packets that it comes from.
    pub packets: u64,
    /// The shortest. Negative if a clock is wrong.
    pub min_ns: i64,
    /// The median.
    pub p50_ns: i64,
    /// The 99th percentile.
    pub p99_ns: i64,
    /// The longest.
    pub max_ns: i64,
}

impl OneWayDelay {
    /// Of delays in any order; `None` without one.
    pub fn of(mut delays_ns: Vec<i64>) -> Option<Self> {
        delays_ns.sort_unstable();
        let last = delays_ns.len().checked_sub(1)?;
        let at = |share: f64| delays_ns[(last as f64 * share).round() as usize];
        Some(Self {
            packets: delays_ns.len() as u64,
            min_ns: delays_ns[0],
            p50_ns: at(0.5),
            p99_ns: at(0.99),
            max_ns: delays_ns[last],
        })
    }
}

impl Exactness {
    /// Packets that were lost without the emulator's word, or that it says it dropped and that arrived.
    pub fn miscounted_packets(&self) -> u64 {
        let lost = i128::from(self.entered_packets) - i128::from(self.left_packets);
        (lost - i128::from(self.dropped_packets)).unsigned_abs().try_into().unwrap_or(u64::MAX)
    }

    /// Each quantity that there is.
    pub(crate) fn quantities(&self) -> Vec<(&'static str, f64)> {
        let mut all = vec![
            (DROPPED, self.dropped_packets as f64 * 100.0 / self.entered_packets.max(1) as f64),
            (MISCOUNTED, self.miscounted_packets() as f64),
        ];
        let Some(delay) = &self.delay else { return all };
        all.extend([(DELAY, delay.p50_ns as f64), (DELAY_MOST, delay.p99_ns as f64)]);
        if let Some(asked) = self.asked_delay_ns {
            let error = |ns: i64| ns as f64 - asked as f64;
            all.extend([
                (DELAY_ERROR_LEAST, error(delay.min_ns)),
                (DELAY_ERROR, error(delay.p50_ns)),
                (DELAY_ERROR_MOST, error(delay.p99_ns)),
            ]);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1,000 packets of 10 ms that came 0 to 999 us late; 20 of 1,020 lost, of which the emulator knows 18.
    #[test]
    fn errors_are_beside_what_was_asked() {
        let delays = (0..1_000).rev().map(|late| 10_000_000 + late * 1_000).collect();
        let exactness = Exactness {
            emulator: "longhaul".into(),
            delay: OneWayDelay::of(delays),
            asked_delay_ns: Some(10_000_000),
            entered_packets: 1_020,
            left_packets: 1_000,
            dropped_packets: 18,
        };
        let quantities = exactness.quantities();
        let of = |name: &str| quantities.iter().find(|(known, _)| *known == name).unwrap().1;
        assert_eq!((of(DELAY_ERROR_LEAST), of(DELAY_ERROR), of(DELAY_ERROR_MOST)), (0.0, 500_000.0, 989_000.0));
        assert_eq!((of(MISCOUNTED), of(DELAY)), (2.0, 10_500_000.0));
        assert!((of(DROPPED) - 1.7647).abs() < 1e-4);
        assert!(quantities.iter().all(|(name, _)| crate::html::udp_loss::QUANTITIES.contains(name)));
        assert_eq!(OneWayDelay::of(Vec::new()), None);
        let more = Exactness { left_packets: 1_021, asked_delay_ns: None, ..exactness };
        assert_eq!((more.miscounted_packets(), more.quantities().len()), (19, 4));
    }
}
