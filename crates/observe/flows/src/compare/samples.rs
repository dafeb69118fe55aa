//! Samples of a run in bounded memory, in the order in which they came: what a verdict is made of.

use super::equivalence::Item;
use crate::Loss;

/// Samples of one kind that are kept: a scale within 5 % takes 5,500 independent ones, and 35,000
/// whose neighbours have a correlation of 0.9.
const ROOM: usize = 65_536;
/// Windows that are kept.
const MOST_WINDOWS: usize = 4_096;
/// Packets of a window at first.
const SHORTEST_WINDOW: u64 = 16;

/// Samples out of a stream of any length, evenly spread.
#[derive(Debug, Clone)]
pub struct Thinned {
    room: usize,
    kept: Vec<f64>,
    every: u64,
    skipped: u64,
    total: u64,
}

impl Default for Thinned {
    fn default() -> Self {
        Self::keeping(ROOM)
    }
}

impl Thinned {
    /// At most `room` of them are kept, and at least half of it.
    pub fn keeping(room: usize) -> Self {
        let room = room.next_multiple_of(2);
        Self { room, kept: Vec::new(), every: 1, skipped: 0, total: 0 }
    }

    /// The next sample.
    #[inline]
    pub fn push(&mut self, sample: f64) {
        self.total += 1;
        if self.skipped + 1 < self.every {
            self.skipped += 1;
            return;
        }
        self.skipped = 0;
        self.kept.push(sample);
        if self.kept.len() >= self.room {
            self.kept = self.kept.iter().copied().step_by(2).collect();
            // The one that was thrown away last counts among those that are passed over.
            self.skipped = self.every;
            self.every *= 2;
        }
    }

    /// How many there were.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Those of two streams that are kept, each so many samples apart in both.
    pub fn alike_spread(&self, other: &Self) -> [Vec<f64>; 2] {
        let every = self.every.max(other.every);
        [self, other].map(|thinned| thinned.kept.iter().copied().step_by((every / thinned.every) as usize).collect())
    }

    /// Each less the least of them, which is what clocks that lie apart leave of delays.
    #[must_use]
    pub fn above_least(&self) -> Self {
        let least = self.kept.iter().copied().fold(f64::MAX, f64::min);
        let mut above = self.clone();
        above.kept.iter_mut().for_each(|sample| *sample -= least);
        above
    }

    /// What `shares` of the samples are below; 0 without samples.
    pub fn quantiles<const N: usize>(&self, shares: [f64; N]) -> [f64; N] {
        let mut sorted = self.kept.clone();
        sorted.sort_by(f64::total_cmp);
        shares.map(|share| {
            let index = ((sorted.len() as f64 * share) as usize).min(sorted.len().saturating_sub(1));
            sorted.get(index).copied().unwrap_or(0.0)
        })
    }
}

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
            self.begun.1[0] += if lost { step as u32 } else { 0 };
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
        let sum = |a: [u32; 2], b: [u32; 2]| [a[0] + b[0], a[1] + b[1]];
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

    #[test]
    fn streams_of_any_length_are_spread_alike() {
        let stream = |count: u32| {
            let mut thinned = Thinned::keeping(100);
            (0..count).for_each(|n| thinned.push(f64::from(n)));
            thinned
        };
        let (long, short) = (stream(100_000), stream(300));
        assert_eq!((long.total(), long.kept.len() >= 50 && long.kept.len() < 100), (100_000, true));
        let [a, b] = long.alike_spread(&short);
        assert!(a.windows(2).chain(b.windows(2)).all(|pair| pair[1] - pair[0] == long.every as f64), "{a:?} {b:?}");
        assert_eq!(short.above_least().quantiles([0.0]), [0.0]);
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
