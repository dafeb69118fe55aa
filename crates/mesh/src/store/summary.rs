//! Sums that keep questions about a year short: by day, by 30 days, and how tests spread over shares of loss. They are written in the
//! transaction that takes a result, so they are always those of the results. [`Span`] says which of them a question reads.

use sqlx::{Any, AnyConnection, Executor, Row};

use super::TestResult;
use super::flows::{HOUR_NS, Key};

/// A day in nanoseconds.
pub(crate) const DAY_NS: i64 = 24 * HOUR_NS;
/// Days of the units that sums are of, the longest first; each is a multiple of the next. With the one of 6 days a year is 30 rows of a pair, not 70.
pub(super) const UNITS: [i64; 3] = [30, 6, 1];
/// Spans up to this are read by the hour.
const BY_HOUR_NS: i64 = 2 * DAY_NS;
/// Buckets of a decade in the histogram of loss.
pub(crate) const BUCKETS_A_DECADE: i32 = 4;
/// The lowest bucket: it begins at 10⁻⁶, fewer packets than one of a million.
pub(crate) const LOWEST_BUCKET: i32 = -6 * BUCKETS_A_DECADE;
/// The bucket of tests that lost nothing.
pub(super) const NOTHING_LOST: i32 = -1000;

/// Sums of a flow over `days` days from `begin`, which counts such units since 1970. Rows of a time lie together: a matrix reads them all.
pub(super) const SPANS: &str = "CREATE TABLE IF NOT EXISTS spans (days BIGINT NOT NULL, begin BIGINT NOT NULL, flow BIGINT NOT NULL, \
     tests BIGINT NOT NULL, sent BIGINT NOT NULL, lost BIGINT NOT NULL, PRIMARY KEY (days, begin, flow)) WITHOUT ROWID";
/// Tests of a day by the share that they lost.
pub(super) const LOSSES: &str = "CREATE TABLE IF NOT EXISTS losses (day BIGINT NOT NULL, test TEXT NOT NULL, bucket BIGINT NOT NULL, \
     tests BIGINT NOT NULL, PRIMARY KEY (day, test, bucket)) WITHOUT ROWID";
/// When each site was last part of a test of any kind.
pub(super) const SEEN: &str =
    "CREATE TABLE IF NOT EXISTS seen (site TEXT PRIMARY KEY, at_ns BIGINT NOT NULL) WITHOUT ROWID";

/// A span of time in whole hours or days.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Its first moment: nanoseconds since 1970.
    pub from_ns: i64,
    /// The first moment after it.
    pub until_ns: i64,
    /// An hour or a day: what sums are of.
    pub unit_ns: i64,
}

impl Span {
    /// The span that ends with `until_ns` and is `lasts_ns` long, cut to whole hours, or to days if it is longer than two days: the last one is
    /// the one with `until_ns` in it.
    pub fn ending(until_ns: i64, lasts_ns: i64) -> Self {
        let unit_ns = if lasts_ns <= BY_HOUR_NS { HOUR_NS } else { DAY_NS };
        let until_ns = (until_ns.saturating_sub(1)).div_euclid(unit_ns).saturating_add(1).saturating_mul(unit_ns);
        let units = (lasts_ns / unit_ns).max(1);
        Self { from_ns: until_ns.saturating_sub(units.saturating_mul(unit_ns)), until_ns, unit_ns }
    }

    /// The same span by the hour, if it has no more than 60 days: what a pair's figure shows.
    #[must_use]
    pub fn finer(self) -> Self {
        let unit_ns = if self.until_ns - self.from_ns <= 60 * DAY_NS { HOUR_NS } else { DAY_NS };
        Self { unit_ns, ..self }
    }

    /// The same span in whole days: it becomes longer by the rest of its first and last day.
    #[must_use]
    pub fn in_days(self) -> Self {
        let from_ns = self.from_ns.div_euclid(DAY_NS) * DAY_NS;
        let until_ns = (self.until_ns - 1).div_euclid(DAY_NS).saturating_add(1) * DAY_NS;
        Self { from_ns, until_ns, unit_ns: DAY_NS }
    }

    /// Of a span in days: units of so many days that are the span together, as few as can be: (days of the unit, first unit, first one after).
    /// `units` has the longest first; the last is one day.
    pub(super) fn parts(self, units: &[i64]) -> Vec<(i64, i64, i64)> {
        let mut parts = Vec::new();
        cover(self.from_ns / DAY_NS, self.until_ns / DAY_NS, units, &mut parts);
        parts
    }
}

/// Adds the units that are the days from `from` to `until` together, which are at most two parts of each unit but the longest.
fn cover(from: i64, until: i64, units: &[i64], parts: &mut Vec<(i64, i64, i64)>) {
    let Some((unit, shorter)) = units.split_first().filter(|_| from < until) else { return };
    let (first, after) = ((from + unit - 1).div_euclid(*unit), until.div_euclid(*unit));
    if first >= after {
        return cover(from, until, shorter, parts);
    }
    cover(from, first * unit, shorter, parts);
    parts.push((*unit, first, after));
    cover(after * unit, until, shorter, parts);
}

/// The bucket of a test: -24 begins at 10⁻⁶, -4 at 10 %, four a decade.
pub(super) fn bucket(sent: i64, lost: i64) -> i32 {
    if lost <= 0 || sent <= 0 {
        return NOTHING_LOST;
    }
    // A ten-thousandth is not quite -16 in floating point.
    let place = (lost as f64 / sent as f64).log10() * f64::from(BUCKETS_A_DECADE);
    ((place + 1e-9).floor() as i32).clamp(LOWEST_BUCKET, -1)
}

/// Counts a result that is new.
pub(super) async fn count(to: &mut AnyConnection, result: &TestResult, key: &Key) -> Result<(), sqlx::Error> {
    let day = key.at_ns().div_euclid(DAY_NS);
    for days in UNITS {
        sqlx::query(
            "INSERT INTO spans (days, begin, flow, tests, sent, lost) VALUES ($1, $2, $3, 1, $4, $5) \
             ON CONFLICT (days, begin, flow) DO UPDATE SET tests = spans.tests + 1, sent = spans.sent + excluded.sent, \
             lost = spans.lost + excluded.lost",
        )
        .bind(days)
        .bind(day.div_euclid(days))
        .bind(key.flow)
        .bind(result.sent)
        .bind(result.lost)
        .execute(&mut *to)
        .await?;
    }
    sqlx::query(
        "INSERT INTO losses (day, test, bucket, tests) VALUES ($1, $2, $3, 1) \
         ON CONFLICT (day, test, bucket) DO UPDATE SET tests = losses.tests + 1",
    )
    .bind(day)
    .bind(&result.test)
    .bind(i64::from(bucket(result.sent, result.lost)))
    .execute(&mut *to)
    .await?;
    saw(to, [&result.sender, &result.receiver], key).await
}

/// Both sites were part of a test.
pub(super) async fn saw(to: &mut AnyConnection, sites: [&str; 2], key: &Key) -> Result<(), sqlx::Error> {
    for site in sites {
        sqlx::query(
            "INSERT INTO seen (site, at_ns) VALUES ($1, $2) ON CONFLICT (site) DO UPDATE SET at_ns = excluded.at_ns \
             WHERE excluded.at_ns > seen.at_ns",
        )
        .bind(site)
        .bind(key.at_ns())
        .execute(&mut *to)
        .await?;
    }
    Ok(())
}

/// When each site was last part of a test, by its name: nanoseconds since 1970.
pub(super) async fn seen<'a>(from: impl Executor<'a, Database = Any>) -> Result<Vec<(String, i64)>, sqlx::Error> {
    let rows = sqlx::query("SELECT site, at_ns FROM seen").fetch_all(from).await?;
    let mut seen: Vec<(String, i64)> =
        rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect::<Result<_, sqlx::Error>>()?;
    seen.sort();
    Ok(seen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_by_hand() {
        assert_eq!(bucket(1000, 0), NOTHING_LOST);
        // 10⁻⁴ begins a bucket, and so does 10⁻³.
        assert_eq!([bucket(10_000, 1), bucket(1000, 1), bucket(100, 10)], [-16, -12, -4]);
        // 0.44 % lies between 10^(-2.5) and 10^(-2.25).
        assert_eq!(bucket(10_000, 44), -10);
        assert_eq!([bucket(10_000_000, 1), bucket(5, 5)], [LOWEST_BUCKET, -1]);
    }

    #[test]
    fn spans_are_whole_hours_or_days() {
        let span = Span::ending(100 * DAY_NS + 5 * HOUR_NS + 1, DAY_NS);
        assert_eq!(
            span,
            Span { from_ns: 99 * DAY_NS + 6 * HOUR_NS, until_ns: 100 * DAY_NS + 6 * HOUR_NS, unit_ns: HOUR_NS }
        );
        let span = Span::ending(100 * DAY_NS + 1, 7 * DAY_NS);
        assert_eq!(span, Span { from_ns: 94 * DAY_NS, until_ns: 101 * DAY_NS, unit_ns: DAY_NS });
    }

    #[test]
    fn long_spans_are_made_of_long_units() {
        let span = |from: i64, until: i64| Span { from_ns: from * DAY_NS, until_ns: until * DAY_NS, unit_ns: DAY_NS };
        assert_eq!(span(31, 35).parts(&UNITS), [(1, 31, 35)]);
        assert_eq!(span(31, 59).parts(&UNITS), [(1, 31, 36), (6, 6, 9), (1, 54, 59)]);
        assert_eq!(span(29, 91).parts(&UNITS), [(1, 29, 30), (30, 1, 3), (1, 90, 91)]);
        assert_eq!(span(17, 382).parts(&UNITS), [(1, 17, 18), (6, 3, 5), (30, 1, 12), (6, 60, 63), (1, 378, 382)]);
        for (from, until) in [(0, 365), (17, 382), (30, 60), (59, 61)] {
            let days =
                span(from, until).parts(&UNITS).iter().map(|(days, first, after)| days * (after - first)).sum::<i64>();
            assert_eq!(days, until - from);
        }
    }
}
