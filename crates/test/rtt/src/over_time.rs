//! Round trips over time: stretches of equal length, as few as a page shows, however long the measurement.

use serde::{Deserialize, Serialize};

/// Most stretches; then two neighbours become one.
const MOST: usize = 512;
/// The shortest stretch, nanoseconds.
const SHORTEST_NS: i64 = 100_000_000;

/// Round trips over time.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OverTime {
    /// When the first probe was sent, Unix time in nanoseconds.
    #[serde(default)]
    pub began_ns: i64,
    /// The length of a stretch, nanoseconds.
    pub stretch_ns: i64,
    /// The stretches from the first probe on.
    pub stretches: Vec<Stretch>,
}

/// The probes that were sent within a stretch of time.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Stretch {
    /// Probes sent.
    pub sent: u64,
    /// Probes answered before the time-out.
    pub received: u64,
    /// Round trips; `None` without an answer.
    pub rtt: Option<StretchRtt>,
}

/// Round trips within a stretch of time, nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StretchRtt {
    /// The least.
    pub min_ns: i64,
    /// The mean.
    pub mean_ns: f64,
    /// The greatest.
    pub max_ns: i64,
}

impl Stretch {
    /// Probes that were lost.
    pub fn lost(&self) -> u64 {
        self.sent.saturating_sub(self.received)
    }

    fn join(&mut self, other: &Self) {
        self.sent += other.sent;
        self.rtt = match (self.rtt, other.rtt) {
            (Some(one), Some(two)) => Some(StretchRtt {
                min_ns: one.min_ns.min(two.min_ns),
                mean_ns: (one.mean_ns * self.received as f64 + two.mean_ns * other.received as f64)
                    / (self.received + other.received) as f64,
                max_ns: one.max_ns.max(two.max_ns),
            }),
            (one, two) => one.or(two),
        };
        self.received += other.received;
    }
}

/// Takes probes in the order of sending.
#[derive(Debug, Default)]
pub(crate) struct Stretches {
    first_ns: Option<i64>,
    over_time: OverTime,
}

impl Stretches {
    pub(crate) fn take(&mut self, sent_ns: i64, rtt_ns: Option<i64>) {
        let first_ns = *self.first_ns.get_or_insert(sent_ns);
        self.over_time.began_ns = first_ns;
        let OverTime { stretch_ns, stretches, .. } = &mut self.over_time;
        *stretch_ns = (*stretch_ns).max(SHORTEST_NS);
        let since = sent_ns.saturating_sub(first_ns).max(0);
        while since / *stretch_ns >= MOST as i64 {
            let join = |pair: &[Stretch]| {
                let mut joined = pair[0];
                pair[1..].iter().for_each(|other| joined.join(other));
                joined
            };
            *stretches = stretches.chunks(2).map(join).collect();
            *stretch_ns = stretch_ns.saturating_mul(2);
        }
        // A clock that was set back is in the latest stretch.
        let place = ((since / *stretch_ns) as usize).max(stretches.len().saturating_sub(1));
        if stretches.len() <= place {
            stretches.resize(place + 1, Stretch::default());
        }
        let rtt = rtt_ns.map(|ns| StretchRtt { min_ns: ns, mean_ns: ns as f64, max_ns: ns });
        stretches[place].join(&Stretch { sent: 1, received: u64::from(rtt.is_some()), rtt });
    }

    pub(crate) fn finish(self) -> OverTime {
        self.over_time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    fn over_time(probes: impl Iterator<Item = (i64, Option<i64>)>) -> OverTime {
        let mut stretches = Stretches::default();
        probes.for_each(|(at, rtt)| stretches.take(at, rtt));
        stretches.finish()
    }

    #[test]
    fn a_week_has_as_few_stretches_as_a_minute() {
        // One a second for a week; each tenth is lost, and the second day is slower.
        let week = 7 * 86_400;
        let rtt = |at: i64| (at % 10 != 3).then_some(if at / 86_400 == 1 { 30 * MS } else { 20 * MS });
        let found = over_time((0..week).map(|at| (at * 1_000 * MS, rtt(at))));
        assert!((MOST / 2..=MOST).contains(&found.stretches.len()), "{}", found.stretches.len());
        assert_eq!(found.stretches.iter().map(|stretch| stretch.sent).sum::<u64>(), week as u64);
        assert_eq!(found.stretches.iter().map(Stretch::lost).sum::<u64>(), week as u64 / 10);
        let mean = |day: f64| {
            let at = (day * 86_400e9 / found.stretch_ns as f64) as usize;
            found.stretches[at].rtt.unwrap().mean_ns
        };
        assert_eq!((mean(0.5), mean(1.5), mean(6.5)), (20e6, 30e6, 20e6));
    }

    #[test]
    fn clocks_that_jump_end() {
        let found = over_time([(0, Some(5)), (i64::MAX, None), (i64::MIN, Some(7))].into_iter());
        assert!(found.stretches.len() <= MOST);
        assert_eq!(found.stretches.iter().map(|stretch| stretch.sent).sum::<u64>(), 3);
        assert_eq!(over_time(std::iter::empty()), OverTime::default());
    }
}
