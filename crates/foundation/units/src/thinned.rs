//! Values spread evenly over a stream of any length, in bounded memory.

/// Values that are kept unless told otherwise: a scale within 5 % takes 5,500 independent ones, and 35,000 whose neighbours have a
/// correlation of 0.9.
const ROOM: usize = 65_536;

/// Values out of a stream of any length, evenly spread: each until there are too many, then every second one, and so on.
#[derive(Debug, Clone)]
pub struct Thinned<T> {
    room: usize,
    kept: Vec<T>,
    every: u64,
    skipped: u64,
    total: u64,
}

impl<T: Copy> Default for Thinned<T> {
    fn default() -> Self {
        Self::keeping(ROOM)
    }
}

impl<T: Copy> Thinned<T> {
    /// At most `room` of them are kept, and at least half of it.
    pub fn keeping(room: usize) -> Self {
        let room = room.next_multiple_of(2);
        Self { room, kept: Vec::new(), every: 1, skipped: 0, total: 0 }
    }

    /// The next value.
    #[inline]
    pub fn push(&mut self, value: T) {
        self.total += 1;
        if self.skipped + 1 < self.every {
            self.skipped += 1;
            return;
        }
        self.skipped = 0;
        self.kept.push(value);
        if self.kept.len() >= self.room {
            self.kept = self.kept.iter().copied().step_by(2).collect();
            // The last value was removed, so it counts as skipped.
            self.skipped = self.every;
            self.every *= 2;
        }
    }

    /// How many there were.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Those of two streams that are kept, each so many values apart in both.
    pub fn alike_spread(&self, other: &Self) -> [Vec<T>; 2] {
        let every = self.every.max(other.every);
        [self, other].map(|thinned| thinned.kept.iter().copied().step_by((every / thinned.every) as usize).collect())
    }
}

impl<T: Copy + Ord> Thinned<T> {
    /// What was kept, in rising order.
    pub fn sorted(mut self) -> Vec<T> {
        self.kept.sort_unstable();
        self.kept
    }
}

impl Thinned<f64> {
    /// Each less the least of them, which is what clocks that lie apart leave of delays.
    #[must_use]
    pub fn above_least(&self) -> Self {
        let least = self.kept.iter().copied().fold(f64::MAX, f64::min);
        let mut above = self.clone();
        above.kept.iter_mut().for_each(|value| *value -= least);
        above
    }

    /// What `shares` of the values are below; 0 without values.
    pub fn quantiles<const N: usize>(&self, shares: [f64; N]) -> [f64; N] {
        let mut sorted = self.kept.clone();
        sorted.sort_by(f64::total_cmp);
        shares.map(|share| {
            let index = ((sorted.len() as f64 * share) as usize).min(sorted.len().saturating_sub(1));
            sorted.get(index).copied().unwrap_or(0.0)
        })
    }
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
        let mut whole = Thinned::keeping(64);
        (0..1_000_000).for_each(|value| whole.push(value));
        let kept = whole.sorted();
        assert!((32..=64).contains(&kept.len()) && kept[0] == 0 && *kept.last().unwrap() > 950_000, "{kept:?}");
    }
}
