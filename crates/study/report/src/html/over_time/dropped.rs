//! What both hosts of a TCP test dropped over time, by location, as far as the kernels' drop events tell while it runs.

use serde::{Deserialize, Serialize};

use crate::html::lines::{Panel, Part, Stack};
use crate::html::over_time::runs::Windows;
use crate::html::over_time::sampled::PACKETS;

/// Intervals that are kept: of a longer test each second one goes, now and then.
const MOST: usize = 800;
pub(super) const TITLE: &str = "Dropped by the hosts, by location";
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

/// Packets with data that the hosts dropped, in windows of equal length, the first of which begins when the first byte arrived. Each interval
/// counts in the window of its middle.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DroppedPackets {
    /// How long each window is.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub window_ns: u64,
    /// Dropped at the sender, between TCP and the wire.
    pub snd_txloss: Vec<u64>,
    /// Dropped at the receiver, before its TCP.
    pub rcv_rxloss: Vec<u64>,
    /// Dropped in the receiver's TCP, for lack of memory.
    pub tcp_pruning: Vec<u64>,
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

    /// In at most `most` windows of equal length; `None` where no drop is known.
    pub(super) fn in_windows(&self, most: usize) -> Option<DroppedPackets> {
        let (end_ns, _) = self.until.last().filter(|(_, all)| all.iter().any(|packets| *packets > 0))?;
        let begins = || std::iter::once(&(0, [0; 3])).chain(&self.until);
        let longest = begins().zip(&self.until).map(|((before, _), (at, _))| at - before).max()?;
        let window_ns = longest.max(end_ns.div_ceil(most.max(1) as u64)).max(1);
        let count = usize::try_from(end_ns.div_ceil(window_ns)).unwrap_or(most).max(1);
        let mut places = PLACES.map(|_| vec![0_u64; count]);
        for ((before_ns, before), (at_ns, by_then)) in begins().zip(&self.until) {
            let middle = before_ns.midpoint(*at_ns) / window_ns;
            let window = usize::try_from(middle).unwrap_or(count).min(count - 1);
            for ((packets, now), then) in places.iter_mut().zip(by_then).zip(before) {
                packets[window] = packets[window].saturating_add(now.saturating_sub(*then));
            }
        }
        let [snd_txloss, rcv_rxloss, tcp_pruning] = places;
        Some(DroppedPackets { window_ns, snd_txloss, rcv_rxloss, tcp_pruning })
    }

    /// The figure; `None` where no drop is known.
    pub(super) fn panel(&self, since: &'static str) -> Option<Panel<'static>> {
        Some(Panel { since, ..self.in_windows(MOST)?.panel(TITLE, MOST) })
    }
}

impl DroppedPackets {
    /// The figure, in at most `most` windows.
    pub(super) fn panel<'a>(&self, title: &'a str, most: usize) -> Panel<'a> {
        let places = [&self.snd_txloss, &self.rcv_rxloss, &self.tcp_pruning];
        // Their ends matter to rates alone.
        let windows = Windows::of(self.window_ns, 0, places.map(Vec::len), most);
        let part = |((name, colour), packets): ((&'static str, &'static str), &Vec<u64>)| Part {
            name,
            colour: colour.into(),
            values: windows.sums(packets),
            ..Part::default()
        };
        let parts = PLACES.into_iter().zip(places).map(part).collect();
        let stack = Some(Stack { step_s: windows.step_s, parts });
        Panel { title, units: &PACKETS, stack, ..Panel::default() }
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
        // In two windows of 1501 ms: the middle of the second interval is in the second.
        let kept = dropped.in_windows(2).unwrap();
        assert_eq!((kept.window_ns, kept.rcv_rxloss, kept.snd_txloss), (1_501_000_000, vec![2, 7], vec![0, 5]));
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
