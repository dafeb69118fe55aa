//! A line each second while a measurement runs.

use longhaul_kernel::clock::monotonic;
use longhaul_report::text::short;
use longhaul_rtt::Recent;
use longhaul_units::Nanos;
use serde::Serialize;

use crate::output::live::{Lines, Stamp};

const EVERY: Nanos = Nanos::from_secs(1);

/// What was seen in a second.
#[derive(Debug, Serialize)]
struct Interval {
    schema: &'static str,
    #[serde(flatten)]
    stamp: Stamp,
    /// Probes sent.
    sent: u64,
    /// Answers, also to probes of earlier intervals.
    answered: u64,
    /// Least, mean and greatest round trip; `None` without an answer.
    least_ns: Option<i64>,
    mean_ns: Option<i64>,
    greatest_ns: Option<i64>,
}

impl Interval {
    fn of(sum: &Recent) -> Self {
        let answered = i64::try_from(sum.answered).ok().filter(|answered| *answered > 0);
        Self {
            schema: "longhaul.rtt.interval/1",
            stamp: Stamp::now(),
            sent: sum.sent,
            answered: sum.answered,
            least_ns: answered.map(|_| sum.least_ns),
            mean_ns: answered.map(|answered| sum.sum_ns / answered),
            greatest_ns: answered.map(|_| sum.greatest_ns),
        }
    }
}

/// Sums up what comes until the next line.
pub(crate) struct Live {
    lines: Lines,
    began: Nanos,
    due: Nanos,
    sum: Recent,
}

impl Live {
    pub(crate) fn new(lines: Lines) -> Self {
        let now = monotonic();
        Self { lines, began: now, due: now + EVERY, sum: Recent::default() }
    }

    pub(crate) fn take(&mut self, recent: &Recent) {
        let sum = &mut self.sum;
        sum.sent += recent.sent;
        if recent.answered > 0 {
            sum.least_ns = if sum.answered == 0 { recent.least_ns } else { sum.least_ns.min(recent.least_ns) };
            sum.greatest_ns = sum.greatest_ns.max(recent.greatest_ns);
            sum.sum_ns = sum.sum_ns.saturating_add(recent.sum_ns);
            sum.answered += recent.answered;
        }
        let now = monotonic();
        if now >= self.due {
            self.due = now + EVERY;
            let sum = std::mem::take(&mut self.sum);
            self.lines.print(&line(now.saturating_sub(self.began), &sum), &Interval::of(&sum));
        }
    }

    pub(crate) fn end(&mut self) {
        self.lines.end();
    }
}

/// Fits a line of 80 characters.
fn line(since: Nanos, sum: &Recent) -> String {
    let counts = format!("{:>7.1} s {:>6} sent {:>6} answered", since.as_secs_f64(), sum.sent, sum.answered);
    let time = |ns: i64| short(ns.unsigned_abs());
    match i64::try_from(sum.answered) {
        Ok(answered @ 1..) => {
            let (least, mean, greatest) = (time(sum.least_ns), time(sum.sum_ns / answered), time(sum.greatest_ns));
            format!("{counts}   rtt {least} / {mean} / {greatest}")
        }
        _ => counts,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_least_mean_and_greatest() {
        let sum = Recent { sent: 100, answered: 4, least_ns: 20_000_000, sum_ns: 84_000_000, greatest_ns: 22_000_000 };
        let text = line(Nanos::from_millis(2_000), &sum);
        assert_eq!(text, "    2.0 s    100 sent      4 answered   rtt 20.0ms / 21.0ms / 22.0ms");
        assert_eq!(line(Nanos::ZERO, &Recent::default()), "    0.0 s      0 sent      0 answered");
    }
}
