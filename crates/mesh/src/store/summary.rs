//! Sums that keep questions about a year short: by day, by 30 days, and how tests spread over shares of loss. They are written in the
//! transaction that takes a result, so they are always those of the results.

use sqlx::{Any, AnyConnection, Executor, Row};

use super::TestResult;
use super::flows::{HOUR_NS, Key};

/// A day in nanoseconds.
pub(crate) const DAY_NS: i64 = 24 * HOUR_NS;
/// Days of the units that sums are of, the longest first; each is a multiple of the next. With the one of 6 days a year is 30 rows of a pair, not 70.
pub(super) const UNITS: [i64; 3] = [30, 6, 1];
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
}
