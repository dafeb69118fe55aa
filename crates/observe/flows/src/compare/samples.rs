//! Samples of a run in bounded memory, in the order in which they came: what a verdict is made of.

use super::equivalence::Item;
use crate::Loss;

/// Windows that are kept.
const MOST_WINDOWS: usize = 4_096;
/// Packets of a window at first.
const SHORTEST_WINDOW: u64 = 16;

/// Samples of one kind: at most so many that a scale within 5 % is told, see [`longhaul_units::Thinned`].
pub type Thinned = longhaul_units::Thinned<f64>;

/// How many of each so many packets in a row were lost, and in how many runs. Windows get longer with the stream.
#[derive(Debug, Clone)]
struct Windows {
    packets: u64,
    /// Packets lost, and runs of them that began.
    full: Vec<[u32; 2]>,
    /// Packets of the window that is not full, and the same of these.
    begun: (u64, [u32; 2]),
}

impl Default for Windows {
    fn default() -> Self {
        Self { packets: SHORTEST_WINDOW, full: Vec::new(), begun: (0, [0; 2]) }
    }
}

impl Windows {
    fn pass(&mut self, mut packets: u64, lost: bool) {
        self.begun.1[1] += u32::from(lost && packets > 0);
        while packets > 0 {
            let step = packets.min(self.packets - self.begun.0);
            packets -= step;
            self.begun.0 += step;
            let lost_packets = if lost { u32::try_from(step).unwrap_or(u32::MAX) } else { 0 };
            self.begun.1[0] = self.begun.1[0].saturating_add(lost_packets);
            if self.begun.0 == self.packets {
                self.full.push(self.begun.1);
                self.begun = (0, [0; 2]);
                if self.full.len() == MOST_WINDOWS {
                    self.double();
                }
            }
        }
    }

    fn double(&mut self) {
        self.packets *= 2;
        let sum = |a: [u32; 2], b: [u32; 2]| [a[0].saturating_add(b[0]), a[1].saturating_add(b[1])];
        if !self.full.len().is_multiple_of(2) {
            let (packets, of_begun) = self.begun;
            let last = self.full.pop().unwrap_or_default();
            self.begun = (packets + self.packets / 2, sum(of_begun, last));
        }
        self.full = self.full.chunks_exact(2).map(|pair| sum(pair[0], pair[1])).collect();
    }
}

/// What was lost of a run in one direction, of all flows together in the order of their packets.
#[derive(Debug, Clone, Default)]
pub struct Losses {
    packets: u64,
    lost: u64,
    windows: Windows,
}

impl Losses {
    /// The next run, in the order of a flow's packets.
    pub fn take(&mut self, loss: Loss) {
        self.packets += loss.after_packets + loss.packets;
        self.lost += loss.packets;
        self.windows.pass(loss.after_packets, false);
        self.windows.pass(loss.packets, true);
    }

    /// Packets.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Of these lost.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Windows of both with equal numbers of packets: as short as leaves a thousand of them in the shorter run.
    pub(super) fn windows_like(&self, other: &Self) -> [Vec<Item>; 2] {
        const ENOUGH: usize = 1_024;
        let mut windows = [self.windows.clone(), other.windows.clone()];
        loop {
            let [a, b] = &mut windows;
            match a.packets.cmp(&b.packets) {
                std::cmp::Ordering::Less => a.double(),
                std::cmp::Ordering::Greater => b.double(),
                std::cmp::Ordering::Equal if a.full.len().min(b.full.len()) >= 2 * ENOUGH => {
                    a.double();
                    b.double();
                }
                std::cmp::Ordering::Equal => break,
            }
        }
        windows.map(|windows| {
            let sent = u32::try_from(windows.packets).unwrap_or(u32::MAX);
            let item = |[lost, runs]: &[u32; 2]| Item { sent, lost: *lost, runs: Some(*runs), ..Item::default() };
            windows.full.iter().map(item).collect()
        })
    }
}

/// What was sampled of one direction between two points.
#[derive(Debug, Clone, Default)]
pub struct Samples {
    /// One-way delays.
    pub delays_ns: Thinned,
    /// Between data packets at the second point.
    pub intervals_ns: Thinned,
    /// Between packets without payload there.
    pub ack_intervals_ns: Thinned,
    /// What was lost between the points.
    pub losses: Losses,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A packet of TCP that jumps over half of all numbers stands for 2^31 lost ones where segments have a byte.
    #[test]
    fn any_number_of_packets_may_be_lost() {
        let mut losses = Losses::default();
        (0..20_000).for_each(|_| losses.take(Loss { after_packets: 1, packets: 1 << 31 }));
        assert_eq!(losses.lost(), 20_000 << 31);
        assert!(losses.windows.packets > 1 << 32, "{}", losses.windows.packets);
    }

    /// Each tenth of 100,000 packets in one run, each twentieth of 30,000 in the other.
    #[test]
    fn windows_of_two_runs_have_one_length() {
        let run = |packets: u64, every: u64| {
            let mut losses = Losses::default();
            (0..packets / every).for_each(|_| losses.take(Loss { after_packets: every - 1, packets: 1 }));
            losses
        };
        let (long, short) = (run(100_000, 10), run(30_000, 20));
        assert_eq!([long.packets(), long.lost(), short.packets(), short.lost()], [100_000, 10_000, 30_000, 1_500]);
        let [a, b] = long.windows_like(&short);
        let mean = |items: &[Item]| {
            assert!(items.iter().all(|item| item.sent == items[0].sent && item.runs == Some(item.lost)));
            items.iter().map(|item| f64::from(item.lost)).sum::<f64>() / items.len() as f64
        };
        assert_eq!(a[0].sent, b[0].sent);
        assert!((mean(&a) / mean(&b) - 2.0).abs() < 0.05 && a.len() > 500 && b.len() > 500, "{} {}", a.len(), b.len());
    }
}
