//! Round trips and TCP of pairs by 30 days: what questions about a year read.
//!
//! A median over a year is the median of its days, and medians cannot be added up. So a row has the sums of 30 days and the median of each of
//! them, in one text: a thirtieth of the rows, and the same answer.

use sqlx::AnyConnection;

use super::figures::{Figures, Metric, text};
use super::summary::DAY_NS;

/// Days of a row.
pub(super) const DAYS: i64 = 30;

/// `begin` counts units of 30 days since 1970. `medians` and `besides` have a value for each day that has one, in the order of days.
pub(super) const ROLLUPS: &str = "CREATE TABLE IF NOT EXISTS rollups (metric TEXT NOT NULL, flow BIGINT NOT NULL, begin BIGINT NOT NULL, \
     tests BIGINT NOT NULL, sent BIGINT NOT NULL, lost BIGINT NOT NULL, medians TEXT, besides TEXT, outages BIGINT NOT NULL, \
     longest_outage_ns BIGINT NOT NULL, PRIMARY KEY (metric, flow, begin)) WITHOUT ROWID";
/// A store without these rows makes them of its days: the first hour with results of each 30 days counts as new. The unit is an hour.
pub(super) const FILL: &str = "INSERT INTO due (hour, flow, metric) SELECT min(begin), flow, metric FROM medians WHERE unit_ns = 3600000000000 \
     GROUP BY metric, flow, begin / 720 ON CONFLICT (hour, flow, metric) DO NOTHING";

/// Makes the row of 30 days again from the days.
pub(super) async fn make(to: &mut AnyConnection, metric: Metric, flow: i64, begin: i64) -> Result<(), sqlx::Error> {
    let days = sqlx::query(
        "SELECT tests, sent, lost, median, beside, outages, longest_outage_ns FROM medians \
         WHERE metric = $1 AND unit_ns = $2 AND flow = $3 AND begin >= $4 AND begin < $5 ORDER BY begin",
    )
    .bind(metric.name())
    .bind(DAY_NS)
    .bind(flow)
    .bind(begin * DAYS)
    .bind((begin + 1) * DAYS)
    .fetch_all(&mut *to)
    .await?;
    let days = days.iter().map(Figures::read).collect::<Result<Vec<_>, _>>()?;
    let whole = Figures::of(&days);
    sqlx::query(
        "INSERT INTO rollups (metric, flow, begin, tests, sent, lost, medians, besides, outages, longest_outage_ns) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT (metric, flow, begin) DO UPDATE SET \
         tests = excluded.tests, sent = excluded.sent, lost = excluded.lost, medians = excluded.medians, besides = excluded.besides, \
         outages = excluded.outages, longest_outage_ns = excluded.longest_outage_ns",
    )
    .bind(metric.name())
    .bind(flow)
    .bind(begin)
    .bind(whole.tests)
    .bind(whole.sent)
    .bind(whole.lost)
    .bind(text(days.iter().filter_map(|day| day.median)))
    .bind(text(days.iter().filter_map(|day| day.beside)))
    .bind(whole.outages)
    .bind(whole.longest_outage_ns)
    .execute(to)
    .await
    .map(drop)
}
