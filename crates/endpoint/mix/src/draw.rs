//! Random numbers, and choosing by weights in constant time.
//!
//! The n-th number of SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014) is a function
//! of seed and n alone: a sender keeps a counter and no other state, so that a program in the kernel and one in user space
//! make the same choices. Choosing is Walker's alias method as Vose builds it (IEEE Trans. Software Eng. 17(9), 1991), in whole numbers,
//! so that it is the same on every machine. `crates/linux/bpf/src/mix/main.bpf.c` has the same two steps in C.

/// The golden ratio's fraction, by which SplitMix64 steps.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The `number`th random number of `seed`; all 64 bits are uniform.
pub(crate) const fn random(seed: u64, number: u64) -> u64 {
    let mut z = seed.wrapping_add(number.wrapping_add(1).wrapping_mul(STEP));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The random numbers of a seed, in order.
#[derive(Debug, Clone)]
pub(crate) struct Random {
    seed: u64,
    next: u64,
}

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, next: 0 }
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.next += 1;
        random(self.seed, self.next - 1)
    }

    /// Below `bound`, which is at least 1; uniform but for one part in 2³².
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        (((self.next() >> 32) * u64::from(bound)) >> 32) as u32
    }

    pub(crate) fn bytes<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| (self.next() >> 56) as u8)
    }
}

/// A column of the alias table: itself, or another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// 32 random bits below this choose the column itself, others `other`.
    pub threshold: u32,
    /// The column that shares this one.
    pub other: u32,
}

/// A choice among the numbers from 0, by weights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alias {
    entries: Vec<Entry>,
}

impl Alias {
    /// A choice by `weights`, none of them negative and one at least positive. Fewer than 2³¹.
    pub(crate) fn new(weights: &[f64]) -> Self {
        const WHOLE: u64 = 1 << 32;
        let count = weights.len() as u64;
        let sum: f64 = weights.iter().sum();
        // In units of a column's room; what rounding leaves over goes to the heaviest, so that all rooms are full.
        let mut shares: Vec<u64> =
            weights.iter().map(|weight| (weight / sum * (count * WHOLE) as f64).round() as u64).collect();
        let over: i128 = (i128::from(count * WHOLE)) - shares.iter().map(|share| i128::from(*share)).sum::<i128>();
        if let Some(heaviest) = shares.iter_mut().max_by_key(|share| **share) {
            *heaviest = (i128::from(*heaviest) + over) as u64;
        }
        let mut entries: Vec<Entry> = (0..count).map(|own| Entry { threshold: u32::MAX, other: own as u32 }).collect();
        let (mut small, mut large): (Vec<usize>, Vec<usize>) =
            (0..shares.len()).partition(|index| shares[*index] < WHOLE);
        while let (Some(less), Some(more)) = (small.pop(), large.pop()) {
            entries[less] = Entry { threshold: shares[less] as u32, other: more as u32 };
            shares[more] -= WHOLE - shares[less];
            if shares[more] < WHOLE { small.push(more) } else { large.push(more) }
        }
        Self { entries }
    }

    /// The table, for a program that chooses elsewhere.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }
}

/// The choice of `alias` for the frame with `number` (from 0).
#[inline]
pub fn draw(alias: &Alias, seed: u64, number: u64) -> usize {
    let bits = random(seed, number);
    let column = (((bits >> 32) * alias.entries.len() as u64) >> 32) as usize;
    let entry = alias.entries[column];
    if (bits as u32) < entry.threshold { column } else { entry.other as usize }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reference implementation by S. Vigna (splitmix64.c, public domain) with seed 1234567.
    #[test]
    fn the_numbers_are_those_of_splitmix64() {
        let first: Vec<u64> = (0..3).map(|number| random(1_234_567, number)).collect();
        assert_eq!(first, [6457827717110365317, 3203168211198807973, 9817491932198370423]);
    }

    #[test]
    fn choices_follow_the_weights() {
        let weights = [5.0, 60.0, 2.0, 3.0, 1.0, 20.0, 5.0, 4.0];
        let alias = Alias::new(&weights);
        let mut counts = [0_u64; 8];
        let draws = 1_000_000;
        (0..draws).for_each(|number| counts[draw(&alias, 7, number)] += 1);
        let expected: Vec<f64> = weights.iter().map(|weight| weight / 100.0 * draws as f64).collect();
        // Pearson's X² with seven degrees of freedom: beyond 24.32 once in a thousand times.
        let deviation: f64 = counts.iter().zip(&expected).map(|(count, e)| (*count as f64 - e).powi(2) / e).sum();
        assert!(deviation < 24.32, "{counts:?} {deviation}");
    }

    #[test]
    fn a_weight_of_nothing_is_never_chosen() {
        let alias = Alias::new(&[0.0, 1.0, 0.0, 3.0]);
        assert!((0..100_000).all(|number| [1, 3].contains(&draw(&alias, 3, number))));
        assert_eq!(Alias::new(&[2.0]).entries(), [Entry { threshold: u32::MAX, other: 0 }]);
    }
}
