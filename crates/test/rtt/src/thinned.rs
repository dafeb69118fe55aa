//! Values spread evenly over a measurement of any length, in bounded memory.

/// Keeps each value until there are too many, then every second one, and so on.
#[derive(Debug, Clone, Default)]
pub(crate) struct Thinned {
    most: usize,
    kept: Vec<i64>,
    /// One of so many is kept, less one.
    stride: u64,
    seen: u64,
}

impl Thinned {
    /// Keeps at most `most` values.
    pub(crate) fn new(most: usize) -> Self {
        Self { most, ..Self::default() }
    }

    pub(crate) fn take(&mut self, value: i64) {
        if self.seen & self.stride == 0 {
            if self.kept.len() >= self.most {
                let mut place = 0;
                self.kept.retain(|_| {
                    place += 1;
                    place % 2 == 1
                });
                self.stride = self.stride * 2 + 1;
            }
            if self.seen & self.stride == 0 {
                self.kept.push(value);
            }
        }
        self.seen += 1;
    }

    /// What was kept, in rising order.
    pub(crate) fn sorted(mut self) -> Vec<i64> {
        self.kept.sort_unstable();
        self.kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_spread_over_all() {
        let mut thinned = Thinned::new(64);
        (0..1_000_000).for_each(|value| thinned.take(value));
        let kept = thinned.sorted();
        assert!((32..=64).contains(&kept.len()), "{}", kept.len());
        assert!(kept.windows(2).all(|pair| pair[1] - pair[0] == kept[1] - kept[0]), "{kept:?}");
        assert!(kept[0] == 0 && *kept.last().unwrap() > 950_000, "{kept:?}");
    }
}
