//! The packets of a loss list, kept as ranges: `list(1-10000000)` takes as little memory as `list(1)`.

use std::fmt::{self, Display};
use std::sync::Arc;

/// Numbers of packets, each once. Copies share their memory. Shown as `1,5,9-12`.
#[derive(Clone, PartialEq, Eq)]
pub struct PacketList {
    /// First and last number of each range, ascending. Between two ranges at least one number is missing, so equal lists have equal ranges.
    ranges: Arc<[(u64, u64)]>,
}

impl PacketList {
    /// The packets of ranges, each with its first and last number, in any order. They may overlap.
    pub(crate) fn of(mut ranges: Vec<(u64, u64)>) -> Self {
        ranges.sort_unstable();
        ranges.dedup_by(|next, kept| {
            let joins = next.0 <= kept.1.saturating_add(1);
            if joins {
                kept.1 = kept.1.max(next.1);
            }
            joins
        });
        Self { ranges: ranges.into() }
    }

    /// How many packets it names.
    pub fn count(&self) -> usize {
        self.ranges.iter().map(|(first, last)| (last - first) as usize + 1).sum()
    }

    /// First and last number of each range, ascending. At least one number is missing between two ranges.
    pub fn ranges(&self) -> &[(u64, u64)] {
        &self.ranges
    }
}

impl FromIterator<u64> for PacketList {
    fn from_iter<I: IntoIterator<Item = u64>>(numbers: I) -> Self {
        Self::of(numbers.into_iter().map(|number| (number, number)).collect())
    }
}

impl<const N: usize> From<[u64; N]> for PacketList {
    fn from(numbers: [u64; N]) -> Self {
        numbers.into_iter().collect()
    }
}

impl Display for PacketList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (first, last)) in self.ranges.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            write!(f, "{first}")?;
            if first != last {
                write!(f, "-{last}")?;
            }
        }
        Ok(())
    }
}

/// As ranges, too: millions of numbers are no help to whoever reads it.
impl fmt::Debug for PacketList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_become_ranges() {
        let list = PacketList::from([9, 1, 11, 5, 10, 12, 5]);
        assert_eq!(list.ranges(), [(1, 1), (5, 5), (9, 12)]);
        assert_eq!((list.count(), list.to_string(), format!("{list:?}")), (6, "1,5,9-12".into(), "1,5,9-12".into()));
        let empty = PacketList::of(Vec::new());
        assert_eq!((empty.count(), empty.to_string()), (0, String::new()));
    }

    /// The same packets are the same list, however they were written.
    #[test]
    fn ranges_that_touch_are_one() {
        let list = PacketList::of(vec![(4, 6), (1, 3), (2, 2), (8, 9), (5, 5)]);
        assert_eq!(list, PacketList::from([1, 2, 3, 4, 5, 6, 8, 9]));
        assert_ne!(list, PacketList::from([1, 2, 3, 4, 5, 6, 7, 8, 9]));
        let last = PacketList::of(vec![(u64::MAX, u64::MAX), (u64::MAX - 1, u64::MAX)]);
        assert_eq!((last.ranges(), last.count()), ([(u64::MAX - 1, u64::MAX)].as_slice(), 2));
    }
}
