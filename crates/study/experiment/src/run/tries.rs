//! Which runs of a point were made, and how often each may still be tried.
//!
//! What others wrote into a journal comes here, too: no run is counted more often than it can have been made.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use longhaul_result::Caveat;

use crate::caveats;
use crate::spec::Repeats;

/// How often a command makes a run at most: `--tries` goes to this.
pub const TRIES_MOST: u32 = 100;

/// The runs of a point, by their numbers.
#[derive(Debug, Clone)]
pub(super) struct Tries {
    /// How often a run is made at most until it counts.
    most: u32,
    counted: BTreeSet<u32>,
    rejected: BTreeMap<u32, Rejections>,
    /// Those that were rejected at each try, and never for what others did.
    spoiled: BTreeSet<u32>,
}

/// How often a run was rejected.
#[derive(Debug, Clone, Copy, Default)]
struct Rejections {
    all: u32,
    /// Without those for what others did at that time, which they may not do again.
    by_itself: u32,
}

impl Tries {
    /// No run was made yet. Each is made `most` times at most until it counts.
    pub(super) fn new(most: u32) -> Self {
        Self { most, counted: BTreeSet::new(), rejected: BTreeMap::new(), spoiled: BTreeSet::new() }
    }

    /// Takes run `repeat` as made; with a `why` it was rejected. Returns whether that was the last of its tries and none counts. `None` for
    /// one that is to be left out: no run has its number, it counts already, or it was rejected [`TRIES_MOST`] times before.
    pub(super) fn take(&mut self, repeat: u32, why: Option<&Caveat>) -> Option<bool> {
        if !(1..=Repeats::MOST).contains(&repeat) || self.counted.contains(&repeat) {
            return None;
        }
        let Some(why) = why else {
            self.counted.insert(repeat);
            return Some(false);
        };
        let rejections = self.rejected.entry(repeat).or_default();
        if rejections.all >= TRIES_MOST {
            return None;
        }
        rejections.all += 1;
        rejections.by_itself += u32::from(!why.is(caveats::CPU_TAKEN));
        if rejections.by_itself >= self.most {
            self.spoiled.insert(repeat);
        }
        Some(rejections.all >= self.most)
    }

    /// The tries that run `repeat` has left: none if it counts. It has one in all where another run was rejected at each try and none
    /// counts: what spoils this point is no chance.
    pub(super) fn left(&self, repeat: u32) -> Range<u32> {
        let is_hopeless = || self.counted.is_empty() && self.spoiled.iter().any(|other| *other != repeat);
        let tries = match self.counted.contains(&repeat) {
            true => 0,
            false if is_hopeless() => 1,
            false => self.most,
        };
        self.rejected.get(&repeat).map_or(0, |rejections| rejections.all)..tries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn late() -> Caveat {
        Caveat::of_error("emulator_late", "late", "")
    }

    #[test]
    fn what_spoils_each_try_of_a_run_is_no_chance() {
        let taken = Caveat::new(caveats::CPU_TAKEN, "others used 9 %", "");
        let mut tries = Tries::new(2);
        // Others may be gone when the next run is made.
        assert_eq!((tries.take(1, Some(&late())), tries.take(1, Some(&taken))), (Some(false), Some(true)));
        assert_eq!((tries.left(1), tries.left(2)), (2..2, 0..2));
        assert_eq!((tries.take(2, Some(&late())), tries.take(2, Some(&late()))), (Some(false), Some(true)));
        assert_eq!((tries.left(2), tries.left(3)), (2..2, 0..1));
        // Once one counts, there is hope.
        assert_eq!(tries.take(3, None), Some(false));
        assert_eq!((tries.left(3), tries.left(4)), (0..0, 0..2));
    }

    #[test]
    fn what_cannot_have_been_made_is_left_out() {
        let mut tries = Tries::new(1);
        for repeat in [0, Repeats::MOST + 1, u32::MAX] {
            assert_eq!((tries.take(repeat, None), tries.take(repeat, Some(&late()))), (None, None), "{repeat}");
        }
        assert_eq!((tries.take(1, None), tries.take(1, None), tries.take(1, Some(&late()))), (Some(false), None, None));
        // With more tries it was made more often, and may be made once more.
        assert!((0..TRIES_MOST).all(|_| tries.take(2, Some(&late())) == Some(true)));
        assert!(tries.left(2).is_empty());
        assert_eq!((tries.take(2, Some(&late())), tries.take(2, None)), (None, Some(false)));
    }
}
