//! Sums that keep questions about a year short: by day, by 30 days, and how tests spread over shares of loss. They are written in the
//! transaction that takes a result, so they are always those of the results.

use sqlx::{Connection, Row, SqliteConnection};

use super::TestResult;

/// An hour in nanoseconds.
pub(crate) const HOUR_NS: i64 = 3_600_000_000_000;
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

/// Sums of a pair over `days` days from `begin`, which counts such units since 1970. Rows of a time lie together: a matrix reads them all.
pub(super) const SPANS: &str = "CREATE TABLE IF NOT EXISTS spans (days BIGINT NOT NULL, begin BIGINT NOT NULL, test TEXT NOT NULL, \
     sender TEXT NOT NULL, receiver TEXT NOT NULL, tests BIGINT NOT NULL, sent BIGINT NOT NULL, lost BIGINT NOT NULL, \
     PRIMARY KEY (days, begin, test, sender, receiver)) WITHOUT ROWID";
/// Tests of a day by the share that they lost.
pub(super) const LOSSES: &str = "CREATE TABLE IF NOT EXISTS losses (day BIGINT NOT NULL, test TEXT NOT NULL, bucket BIGINT NOT NULL, \
     tests BIGINT NOT NULL, PRIMARY KEY (day, test, bucket)) WITHOUT ROWID";
/// When each site was last part of a test.
pub(super) const SEEN: &str =
    "CREATE TABLE IF NOT EXISTS seen (site TEXT PRIMARY KEY, at_ns BIGINT NOT NULL) WITHOUT ROWID";
/// A matrix of hours.
pub(super) const HOURS_AT: &str = "CREATE INDEX IF NOT EXISTS hours_at ON hours (hour)";

const LOSSES_ADD: &str = "INSERT INTO losses (day, test, bucket, tests) VALUES ($1, $2, $3, $4) \
     ON CONFLICT (day, test, bucket) DO UPDATE SET tests = losses.tests + excluded.tests";

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
pub(super) async fn count(connection: &mut SqliteConnection, result: &TestResult) -> Result<(), sqlx::Error> {
    let day = result.at_ns.div_euclid(DAY_NS);
    for days in UNITS {
        sqlx::query(
            "INSERT INTO spans (days, begin, test, sender, receiver, tests, sent, lost) VALUES ($1, $2, $3, $4, $5, 1, $6, $7) \
             ON CONFLICT (days, begin, test, sender, receiver) DO UPDATE SET tests = spans.tests + 1, \
             sent = spans.sent + excluded.sent, lost = spans.lost + excluded.lost",
        )
        .bind(days)
        .bind(day.div_euclid(days))
        .bind(&result.test)
        .bind(&result.sender)
        .bind(&result.receiver)
        .bind(result.sent)
        .bind(result.lost)
        .execute(&mut *connection)
        .await?;
    }
    sqlx::query(LOSSES_ADD)
        .bind(day)
        .bind(&result.test)
        .bind(bucket(result.sent, result.lost))
        .bind(1)
        .execute(&mut *connection)
        .await?;
    for site in [&result.sender, &result.receiver] {
        sqlx::query(
            "INSERT INTO seen (site, at_ns) VALUES ($1, $2) \
             ON CONFLICT (site) DO UPDATE SET at_ns = max(seen.at_ns, excluded.at_ns)",
        )
        .bind(site)
        .bind(result.at_ns)
        .execute(&mut *connection)
        .await?;
    }
    Ok(())
}

/// Counts all results of a store that has none of these sums: one that was written before there were any.
pub(super) async fn fill(connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    let empty = "SELECT NOT EXISTS (SELECT 1 FROM seen) AND EXISTS (SELECT 1 FROM results)";
    if !sqlx::query_scalar::<_, bool>(empty).fetch_one(&mut *connection).await? {
        return Ok(());
    }
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    // Another process may have done it in the meantime.
    if sqlx::query_scalar::<_, bool>(empty).fetch_one(&mut *transaction).await? {
        // In the order of the rows: by an index each would be read from another place.
        let days = "INSERT INTO spans SELECT 1, hour / 24, test, sender, receiver, sum(tests), sum(sent), sum(lost) FROM hours NOT INDEXED \
             GROUP BY hour / 24, test, sender, receiver";
        sqlx::query(days).execute(&mut *transaction).await?;
        let long = "INSERT INTO spans SELECT $1, begin / $1, test, sender, receiver, sum(tests), sum(sent), sum(lost) FROM spans \
             WHERE days = 1 GROUP BY begin / $1, test, sender, receiver";
        for unit in UNITS.into_iter().filter(|unit| *unit > 1) {
            sqlx::query(long).bind(unit).execute(&mut *transaction).await?;
        }
        let alike = "SELECT at_ns / $1, test, sent, lost, count(*) FROM results NOT INDEXED GROUP BY 1, 2, 3, 4";
        for row in sqlx::query(alike).bind(DAY_NS).fetch_all(&mut *transaction).await? {
            sqlx::query(LOSSES_ADD)
                .bind(row.try_get::<i64, _>(0)?)
                .bind(row.try_get::<String, _>(1)?)
                .bind(bucket(row.try_get(2)?, row.try_get(3)?))
                .bind(row.try_get::<i64, _>(4)?)
                .execute(&mut *transaction)
                .await?;
        }
        sqlx::query(
            "INSERT INTO seen SELECT site, max(at_ns) FROM (SELECT sender AS site, max(at_ns) AS at_ns FROM results NOT INDEXED \
             GROUP BY sender UNION ALL SELECT receiver, max(at_ns) FROM results NOT INDEXED GROUP BY receiver) GROUP BY site",
        )
        .execute(&mut *transaction)
        .await?;
    }
    transaction.commit().await
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
