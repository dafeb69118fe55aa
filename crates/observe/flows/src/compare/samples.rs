//! Samples of a run in bounded memory, in the order in which they came: what a verdict is made of.

use crate::Loss;

/// Samples of one kind that are kept: enough for quantiles, and blocks of them for tests.
const ROOM: usize = 8_192;
/// Counts of lost packets that are kept.
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

/// How many of each so many packets in a row were lost. Windows get longer with the stream.
#[derive(Debug, Clone)]
struct Windows {
    packets: u64,
    lost: Vec<u32>,
    /// Packets of the window that is not full, and how many of them were lost.
    begun: (u64, u32),
}

impl Default for Windows {
    fn default() -> Self {
        Self { packets: SHORTEST_WINDOW, lost: Vec::new(), begun: (0, 0) }
    }
}

impl Windows {
    fn pass(&mut self, mut packets: u64, lost: bool) {
        while packets > 0 {
            let step = packets.min(self.packets - self.begun.0);
            packets -= step;
            self.begun.0 += step;
            self.begun.1 += if lost { step as u32 } else { 0 };
            if self.begun.0 == self.packets {
                self.lost.push(self.begun.1);
                self.begun = (0, 0);
                if self.lost.len() == MOST_WINDOWS {
                    self.double();
                }
            }
        }
    }

    fn double(&mut self) {
        self.packets *= 2;
        if !self.lost.len().is_multiple_of(2) {
            let (packets, lost) = self.begun;
            let last = self.lost.pop().unwrap_or(0);
            self.begun = (packets + self.packets / 2, lost + last);
        }
        self.lost = self.lost.chunks_exact(2).map(|pair| pair[0] + pair[1]).collect();
    }
}

/// What was lost of a run in one direction: in which lengths, how far apart, and of how many.
#[derive(Debug, Clone, Default)]
pub struct Losses {
    /// Packets that were lost in a row.
    pub runs: Thinned,
    /// Packets that were not, between two such runs (RFC 3357 §3 counts one more, from loss to loss).
    pub distances: Thinned,
    windows: Windows,
}

impl Losses {
    /// The next run, in the order of a flow's packets.
    pub fn take(&mut self, loss: Loss) {
        self.windows.pass(loss.after_packets, false);
        self.windows.pass(loss.packets, true);
        if loss.packets > 0 {
            self.runs.push(loss.packets as f64);
            self.distances.push(loss.after_packets as f64);
        }
    }

    /// How many of each so many packets in a row were lost, counted alike in both: windows as short as leaves a few hundred of them in the
    /// shorter run.
    pub fn counts(&self, other: &Self) -> [Thinned; 2] {
        const ENOUGH: usize = 512;
        let mut windows = [self.windows.clone(), other.windows.clone()];
        loop {
            let [a, b] = &mut windows;
            match a.packets.cmp(&b.packets) {
                std::cmp::Ordering::Less => a.double(),
                std::cmp::Ordering::Greater => b.double(),
                std::cmp::Ordering::Equal if a.lost.len().min(b.lost.len()) >= ENOUGH => {
                    a.double();
                    b.double();
                }
                std::cmp::Ordering::Equal => break,
            }
        }
        windows.map(|windows| {
            let mut counts = Thinned::default();
            windows.lost.iter().for_each(|lost| counts.push(f64::from(*lost)));
            counts
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

    /// Each tenth of 100,000 packets in one run, each twentieth of 3,000 in the other.
    #[test]
    fn windows_of_two_runs_have_one_length() {
        let run = |packets: u64, every: u64| {
            let mut losses = Losses::default();
            (0..packets / every).for_each(|_| losses.take(Loss { after_packets: every - 1, packets: 1 }));
            losses
        };
        let [a, b] = run(100_000, 10).counts(&run(3_000, 20));
        let mean = |counts: &Thinned| counts.kept.iter().sum::<f64>() / counts.kept.len() as f64;
        assert!(
            (mean(&a) / mean(&b) - 2.0).abs() < 0.05 && a.total() > 500 && b.total() > 10,
            "{} {}",
            a.total(),
            b.total()
        );
    }
}
