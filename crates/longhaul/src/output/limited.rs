//! Lines about what others do. They connect as often as they like, and each line takes room in the file or the journal that it goes to.

use std::fmt::Display;
use std::sync::{Mutex, PoisonError};

use longhaul_kernel::clock::monotonic;
use longhaul_units::Nanos;

use crate::output::say;

/// Lines of a minute. At a hundred bytes each they are 17 MB a day.
const LINES_MOST: u64 = 120;
const MINUTE: Nanos = Nanos::from_secs(60);

/// Lines of one kind: of a minute so many are written, and then how many were left out.
#[derive(Debug, Default)]
pub(crate) struct LimitedLines(Mutex<Minute>);

#[derive(Debug, Default)]
struct Minute {
    /// When it began, by the monotonic clock.
    began: Nanos,
    lines: u64,
    /// Lines since the last that was written.
    left_out: u64,
}

impl LimitedLines {
    /// Says `line`, unless there were too many in this minute.
    pub(crate) fn say(&self, line: impl Display) {
        // Each of its steps is whole.
        let left_out = self.0.lock().unwrap_or_else(PoisonError::into_inner).take(monotonic());
        if let Some(left_out) = left_out {
            say_left_out(left_out);
            say(line);
        }
    }
}

impl Drop for LimitedLines {
    fn drop(&mut self) {
        say_left_out(self.0.get_mut().unwrap_or_else(PoisonError::into_inner).left_out);
    }
}

fn say_left_out(lines: u64) {
    if lines > 0 {
        say(format_args!("{lines} lines were left out here: at most {LINES_MOST} of a kind are written in a minute"));
    }
}

impl Minute {
    /// A line more at `now`: how many were left out before it; `None` where it is left out itself.
    fn take(&mut self, now: Nanos) -> Option<u64> {
        if now.saturating_sub(self.began) >= MINUTE {
            (self.began, self.lines) = (now, 0);
        }
        if self.lines == LINES_MOST {
            self.left_out += 1;
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thousand connections a second for ten minutes.
    #[test]
    fn a_flood_has_few_lines_and_its_number_is_told() {
        let mut minute = Minute::default();
        let (mut written, mut left_out) = (0, 0);
        for number in 0..600_000 {
            if let Some(before) = minute.take(Nanos::from_secs(1_000) + Nanos::from_millis(number)) {
                written += 1;
                left_out += before;
            }
        }
        assert_eq!(written, 10 * LINES_MOST);
        assert_eq!(written + left_out + minute.left_out, 600_000, "each is written or counted");
        // Who comes later is told of, and of how many there were.
        let rest = minute.left_out;
        assert_eq!(minute.take(Nanos::from_secs(5_000)), Some(rest));
        assert_eq!(minute.take(Nanos::from_secs(5_001)), Some(0));
    }
}
