//! The order in which a sender sent packets, by their IP identifications, where it increments them.

/// So many increments in a row make an IP identification evidence.
const STEADY_IDS: u8 = 8;
/// Further apart, two identifications say nothing about order.
const NEAR_IDS: i16 = 2_048;
/// Further apart, they were not incremented for each packet of this connection.
const FAR_IDS: i16 = 64;
/// So many identifications up to the highest are remembered.
const RECENT_IDS: usize = 256;

/// What IP identifications say of when packets were sent.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Identifications {
    highest: u16,
    steady: u8,
    /// Which of the [`RECENT_IDS`] up to the highest came: bit 0 of the first is the highest.
    came: [u64; RECENT_IDS / 64],
}

/// A packet's own identification, where it is evidence.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Identified {
    pub(crate) id: u16,
    /// Whether a packet with this one came before; `None` where it is too far behind to know.
    pub(crate) came_before: Option<bool>,
}

impl Identifications {
    /// Takes in that of a packet which stands for `segments`.
    #[inline]
    pub(crate) fn take(&mut self, id: Option<u32>, segments: u32) -> Option<Identified> {
        let id = u16::try_from(id.filter(|id| *id != 0)?).ok()?;
        let ahead = id.wrapping_sub(self.highest) as i16;
        let last = id.wrapping_add(segments.saturating_sub(1) as u16);
        let known = self.steady >= STEADY_IDS && ahead.unsigned_abs() < NEAR_IDS as u16;
        if (1..FAR_IDS).contains(&ahead) {
            self.steady = (self.steady + 1).min(2 * STEADY_IDS);
            self.rise(last, segments);
        } else if ahead > 0 || !known && ahead <= -FAR_IDS {
            self.steady = self.steady.saturating_sub(STEADY_IDS);
            self.rise(last, segments);
        } else {
            // Reordered, a duplicate, or no increment at all: this says nothing about the others.
            let came_before = self.mark(ahead.unsigned_abs().into());
            return known.then_some(Identified { id, came_before });
        }
        known.then_some(Identified { id, came_before: Some(false) })
    }

    /// `last` is the highest now, and it and the `segments - 1` before came.
    fn rise(&mut self, last: u16, segments: u32) {
        let by = usize::from(last.wrapping_sub(self.highest));
        if by >= RECENT_IDS {
            self.came = [0; RECENT_IDS / 64];
        } else {
            let (words, bits) = (by / 64, by % 64);
            for index in (0..self.came.len()).rev() {
                let at = |index: Option<usize>| index.map_or(0, |index| self.came[index]);
                let low = at(index.checked_sub(words));
                let carry = at(index.checked_sub(words + 1));
                self.came[index] = if bits == 0 { low } else { low << bits | carry >> (64 - bits) };
            }
        }
        self.highest = last;
        for behind in 0..segments.min(RECENT_IDS as u32) {
            self.mark(behind as usize);
        }
    }

    /// Notes that the one that is `behind` the highest came, and tells whether it had before, as far as that is remembered.
    fn mark(&mut self, behind: usize) -> Option<bool> {
        let word = self.came.get_mut(behind / 64)?;
        let bit = 1 << (behind % 64);
        let had = *word & bit != 0;
        *word |= bit;
        Some(had)
    }
}
