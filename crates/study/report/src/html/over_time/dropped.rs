//! What both hosts of a TCP test dropped over time, by location, as far as the kernels' drop events tell while it runs.

use crate::html::lines::{Panel, Part, Stack};

/// Intervals that are kept: of a longer test each second one goes, now and then.
const MOST: usize = 800;
/// Locations of `longhaul_tcp::LossBytes` in the order in which data travels, with colours that differ without colour vision, as `tcp_goodput/lost.rs`
/// has them.
const PLACES: [(&str, &str); 3] = [
    ("leaving the sender (snd_txloss)", "#009e73"),
    ("entering the receiver (rcv_rxloss)", "#0072b2"),
    ("in the receiver's TCP (tcp_pruning)", "#cc79a7"),
];

/// Packets with data that the hosts dropped in one direction, by the end of each interval.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DroppedOverTime {
    /// Time since the first byte arrived, and what was dropped by then at each of [`PLACES`].
    until: Vec<(u64, [u64; 3])>,
}

impl DroppedOverTime {
    /// An interval ends `at_ns` after the first byte arrived. By then so many packets were dropped leaving the sender, entering the receiver, and by the
    /// receiver's TCP.
    pub fn push(&mut self, at_ns: u64, dropped: [u64; 3]) {
        if self.until.len() == MOST {
            let mut number = 0_u32;
            self.until.retain(|_| {
                number += 1;
                number.is_multiple_of(2)
            });
        }
        if self.until.last().is_none_or(|(before, _)| *before < at_ns) {
            self.until.push((at_ns, dropped));
        }
    }

    /// The figure; `None` where no drop is known.
    pub(super) fn panel(&self, since: &'static str) -> Option<Panel<'static>> {
        let (end_ns, _) = self.until.last().filter(|(_, all)| all.iter().any(|packets| *packets > 0))?;
        let begins = || std::iter::once(&(0, [0; 3])).chain(&self.until);
        let longest = begins().zip(&self.until).map(|((before, _), (at, _))| at - before).max()?.max(1);
        let mut values = vec![[0.0; 3]; usize::try_from(end_ns.div_ceil(longest)).unwrap_or(MOST).clamp(1, MOST)];
        let last = values.len() - 1;
        for ((before_ns, before), (at_ns, by_then)) in begins().zip(&self.until) {
            let middle = before_ns.midpoint(*at_ns) / longest;
            let window = &mut values[usize::try_from(middle).unwrap_or(last).min(last)];
            for (sum, (now, then)) in window.iter_mut().zip(by_then.iter().zip(before)) {
                *sum += now.saturating_sub(*then) as f64;
            }
        }
        let part = |(place, (name, colour)): (usize, (&'static str, &'static str))| Part {
            name,
            colour: colour.into(),
            values: values.iter().map(|window| window[place]).collect(),
            ..Part::default()
        };
        let stack =
            Some(Stack { step_s: longest as f64 / 1e9, parts: PLACES.into_iter().enumerate().map(part).collect() });
        let end_s = *end_ns as f64 / 1e9;
        Some(Panel {
            title: "Dropped by the hosts, by place",
            units: &[(1.0, "packets")],
            stack,
            end_s,
            since,
            ..Panel::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(dropped: &DroppedOverTime) -> Vec<Vec<f64>> {
        dropped.panel("x").unwrap().stack.unwrap().parts.into_iter().map(|part| part.values).collect()
    }

    #[test]
    fn each_drop_stands_in_its_interval_and_at_its_place() {
        let mut dropped = DroppedOverTime::default();
        assert!(dropped.panel("x").is_none());
        for (at_ms, by_then) in [(1_001, [0, 2, 0]), (2_003, [0, 2, 0]), (3_002, [5, 9, 1])] {
            dropped.push(at_ms * 1_000_000, by_then);
        }
        assert_eq!(parts(&dropped), [[0.0, 0.0, 5.0], [2.0, 0.0, 7.0], [0.0, 0.0, 1.0]]);
        // A time that goes back says nothing.
        dropped.push(7, [100; 3]);
        assert_eq!(parts(&dropped).len(), 3);
    }

    /// What the other end says, as often as it wants.
    #[test]
    fn any_number_of_intervals_takes_bounded_memory_and_loses_no_drop() {
        let mut dropped = DroppedOverTime::default();
        for number in 1..=100_000 {
            dropped.push(number * 1_000_000, [0, number, u64::MAX / 2]);
        }
        assert!(dropped.until.len() <= MOST);
        let parts = parts(&dropped);
        assert!(parts[0].len() <= MOST && parts[1].iter().sum::<f64>() == 100_000.0, "{}", parts[1].len());
        dropped.push(u64::MAX, [u64::MAX; 3]);
        assert!(dropped.panel("x").is_some());
    }
}
