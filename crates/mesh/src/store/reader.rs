//! Reads the coordinator's store beside the one that writes it: what the page and the interface for programs show.

use std::collections::BTreeMap;
use std::time::Duration;

use sqlx::any::AnyRow;
use sqlx::{AnyPool, Row};

use super::address::Address;
use super::database::pool;
use super::error::{StoreError, readable};
use super::flows::{HOUR_NS, Key, digits, name_of};
use super::summary::{self, DAY_NS, NOTHING_LOST, Span, UNITS};
use super::{FORM, Wanted, wanted};

/// Questions at the same time; others wait.
const CONNECTIONS: u32 = 4;
/// A connection waits 5 s for a writer. Its memory holds 64 MiB: more than a matrix of the last two days reads, of 40 sites.
const SQLITE: &[&str] = &["PRAGMA busy_timeout = 5000", "PRAGMA cache_size = -65536"];
/// Questions are short: to compile them takes longer than to answer them.
const POSTGRES: &[&str] = &["SET default_transaction_read_only = on", "SET jit = off", "SET statement_timeout = '30s'"];
/// How long a question waits for one of them.
const PATIENCE: Duration = Duration::from_secs(5);

/// A store that is read only.
#[derive(Debug, Clone)]
pub struct Reader(AnyPool);

/// Sums of the tests of one pair and direction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PairSum {
    /// The site that sent.
    pub sender: String,
    /// The site that received.
    pub receiver: String,
    /// Tests.
    pub tests: i64,
    /// Packets that they sent.
    pub sent: i64,
    /// Packets that they lost.
    pub lost: i64,
}

/// Sums of one pair over an hour or a day.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Point {
    /// When it began: nanoseconds since 1970.
    pub begin_ns: i64,
    /// Tests that began in it.
    pub tests: i64,
    /// Packets that they sent.
    pub sent: i64,
    /// Packets that they lost.
    pub lost: i64,
}

/// One test of a pair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tested {
    /// 32 hexadecimal digits.
    pub id: String,
    /// The test's name in the mesh.
    pub test: String,
    /// When it began: nanoseconds since 1970.
    pub at_ns: i64,
    /// Packets sent.
    pub sent: i64,
    /// Packets lost.
    pub lost: i64,
    /// Of them at the sending host; `None` where the hosts could not see their drops.
    pub at_sender: Option<i64>,
    /// Of them at the receiving host.
    pub at_receiver: Option<i64>,
    /// Payload bits a second that were received.
    pub received_rate_bps: i64,
}

fn pair_sum(row: &AnyRow) -> Result<PairSum, sqlx::Error> {
    Ok(PairSum {
        sender: row.try_get(0)?,
        receiver: row.try_get(1)?,
        tests: row.try_get(2)?,
        sent: row.try_get(3)?,
        lost: row.try_get(4)?,
    })
}

/// Sums of pairs, in the order of their names' bytes: databases order texts in several ways.
fn pair_sums(rows: &[AnyRow]) -> Result<Vec<PairSum>, StoreError> {
    let mut sums = rows.iter().map(pair_sum).collect::<Result<Vec<_>, _>>()?;
    sums.sort_by(|one, other| (&one.sender, &one.receiver).cmp(&(&other.sender, &other.receiver)));
    Ok(sums)
}

fn tested(row: &AnyRow) -> Result<Tested, sqlx::Error> {
    let key = Key::of(row)?;
    Ok(Tested {
        id: digits(&key.id),
        test: row.try_get(4)?,
        at_ns: key.at_ns(),
        sent: row.try_get(5)?,
        lost: row.try_get(6)?,
        at_sender: row.try_get(7)?,
        at_receiver: row.try_get(8)?,
        received_rate_bps: row.try_get(9)?,
    })
}

/// A question that adds up sums of flows to those of pairs. `$flows` has the columns flow, tests, sent, lost.
macro_rules! by_pair {
    ($flows:literal) => {
        concat!(
            "SELECT flows.sender, flows.receiver, CAST(sum(part.tests) AS BIGINT), CAST(sum(part.sent) AS BIGINT), \
             CAST(sum(part.lost) AS BIGINT) FROM (",
            $flows,
            ") AS part JOIN flows ON flows.flow = part.flow GROUP BY flows.sender, flows.receiver"
        )
    };
}

impl Reader {
    /// Opens a store that [`super::Archive`] has made.
    ///
    /// # Errors
    /// Where the file or the database cannot be used.
    pub async fn open(address: impl Into<Address>) -> Result<Self, StoreError> {
        Ok(Self(pool(&address.into(), &FORM, "ro", (CONNECTIONS, PATIENCE), (SQLITE, POSTGRES)).await?))
    }

    /// Sums of all pairs over a span, by sender and receiver.
    ///
    /// # Errors
    /// Where the file cannot be read.
    pub async fn matrix(&self, span: Span) -> Result<Vec<PairSum>, StoreError> {
        let rows = if span.unit_ns == HOUR_NS {
            sqlx::query(
                by_pair!(
                    "SELECT flow, count(*) AS tests, sum(sent) AS sent, sum(lost) AS lost FROM results WHERE hour >= $1 AND hour < $2 \
                     GROUP BY flow"
                ),
            )
            .bind(span.from_ns / HOUR_NS)
            .bind(span.until_ns / HOUR_NS)
            .fetch_all(&self.0)
            .await?
        } else {
            let parts = span.parts(&UNITS);
            let part = |number: usize| parts.get(number).copied().unwrap_or((1, 0, 0));
            let query = by_pair!(
                "SELECT flow, tests, sent, lost FROM spans WHERE days = $1 AND begin >= $2 AND begin < $3 UNION ALL \
                 SELECT flow, tests, sent, lost FROM spans WHERE days = $4 AND begin >= $5 AND begin < $6 UNION ALL \
                 SELECT flow, tests, sent, lost FROM spans WHERE days = $7 AND begin >= $8 AND begin < $9 UNION ALL \
                 SELECT flow, tests, sent, lost FROM spans WHERE days = $10 AND begin >= $11 AND begin < $12 UNION ALL \
                 SELECT flow, tests, sent, lost FROM spans WHERE days = $13 AND begin >= $14 AND begin < $15"
            );
            let bound = (0..2 * UNITS.len() - 1)
                .map(part)
                .fold(sqlx::query(query), |query, (days, first, after)| query.bind(days).bind(first).bind(after));
            bound.fetch_all(&self.0).await?
        };
        pair_sums(&rows)
    }

    /// Sums of one pair by hour or day, in order of time.
    ///
    /// # Errors
    /// Where the file cannot be read.
    pub async fn pair(
        &self,
        sender: &str,
        receiver: &str,
        span: Span,
        tests: &[String],
    ) -> Result<Vec<Point>, StoreError> {
        let query = if span.unit_ns == HOUR_NS {
            by_unit!(
                "SELECT unit, count(*), CAST(sum(sent) AS BIGINT), CAST(sum(lost) AS BIGINT) FROM units CROSS JOIN results \
                 WHERE results.hour = unit AND results.flow = $3 GROUP BY unit"
            )
        } else {
            by_unit!(
                "SELECT unit, tests, sent, lost FROM units CROSS JOIN spans WHERE spans.days = 1 AND spans.begin = unit AND spans.flow = $3"
            )
        };
        let mut points = BTreeMap::<i64, Point>::new();
        for flow in self.flows(sender, receiver, tests).await? {
            let (from, until) = (span.from_ns / span.unit_ns, span.until_ns / span.unit_ns);
            let rows = sqlx::query(query).bind(from).bind(until).bind(flow).fetch_all(&self.0).await?;
            for row in rows {
                let begin_ns = row.try_get::<i64, _>(0)? * span.unit_ns;
                let point = points.entry(begin_ns).or_insert(Point { begin_ns, tests: 0, sent: 0, lost: 0 });
                point.tests = point.tests.saturating_add(row.try_get(1)?);
                point.sent = point.sent.saturating_add(row.try_get(2)?);
                point.lost = point.lost.saturating_add(row.try_get(3)?);
            }
        }
        Ok(points.into_values().collect())
    }

    /// The flows of a pair that are of one of these tests, [`TESTS_MOST`] at most.
    async fn flows(&self, sender: &str, receiver: &str, tests: &[String]) -> Result<Vec<i64>, StoreError> {
        let rows = sqlx::query("SELECT flow, test FROM flows WHERE sender = $1 AND receiver = $2");
        let mut flows = Vec::new();
        for row in rows.bind(sender).bind(receiver).fetch_all(&self.0).await? {
            if tests.contains(&row.try_get(1)?) {
                flows.push(row.try_get(0)?);
            }
        }
        flows.truncate(TESTS_MOST);
        Ok(flows)
    }

    /// Tests of one pair that began from `from_ns` on and before `until_ns`, the latest first, `most` of them. What cannot be read is left out.
    ///
    /// # Errors
    /// Where the file cannot be read.
    pub async fn tests(
        &self,
        sender: &str,
        receiver: &str,
        (from_ns, until_ns): (i64, i64),
        most: u32,
    ) -> Result<Vec<Tested>, StoreError> {
        let query = by_unit!(
            "SELECT results.hour, results.flow, results.after_ns, results.id, flows.test, results.sent, results.lost, results.at_sender, \
             results.at_receiver, results.received_rate_bps FROM units CROSS JOIN flows CROSS JOIN results \
             WHERE flows.sender = $3 AND flows.receiver = $4 AND results.hour = unit AND results.flow = flows.flow \
             AND results.hour * $5 + results.after_ns >= $6 AND results.hour * $5 + results.after_ns < $7 \
             ORDER BY results.hour DESC, results.after_ns DESC, results.id LIMIT $8"
        );
        let rows = sqlx::query(query)
            .bind(from_ns.div_euclid(HOUR_NS))
            .bind(until_ns.saturating_sub(1).div_euclid(HOUR_NS) + 1)
            .bind(sender)
            .bind(receiver)
            .bind(HOUR_NS)
            .bind(from_ns)
            .bind(until_ns)
            .bind(i64::from(most))
            .fetch_all(&self.0)
            .await?;
        Ok(rows.iter().filter_map(|row| readable(tested(row), || name_of("results", row))).collect())
    }

    /// How many tests lost nothing, and how many lost a share in which bucket (`summary.rs`), over a span of days.
    ///
    /// # Errors
    /// Where the file cannot be read.
    pub async fn losses(&self, span: Span) -> Result<(i64, Vec<(i32, i64)>), StoreError> {
        let rows = sqlx::query(
            "SELECT bucket, CAST(sum(tests) AS BIGINT) FROM losses WHERE day >= $1 AND day < $2 GROUP BY bucket ORDER BY bucket",
        )
        .bind(span.from_ns.div_euclid(DAY_NS))
        .bind(span.until_ns.div_euclid(DAY_NS))
        .fetch_all(&self.0)
        .await?;
        let all = rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?)));
        let mut all: Vec<(i32, i64)> = all.collect::<Result<_, sqlx::Error>>()?;
        let nothing = all.iter().find(|(bucket, _)| *bucket == NOTHING_LOST).map_or(0, |(_, tests)| *tests);
        all.retain(|(bucket, _)| *bucket != NOTHING_LOST);
        Ok((nothing, all))
    }

    /// When each site was last part of a test, by its name: nanoseconds since 1970.
    ///
    /// # Errors
    /// Where the file cannot be read.
    pub async fn seen(&self) -> Result<Vec<(String, i64)>, StoreError> {
        Ok(summary::seen(&self.0).await?)
    }

    /// Diagnoses that were asked for since `from_ns` and have not come, the oldest first, `most` of them, each with the time at which it was asked
    /// for: nanoseconds since 1970.
    ///
    /// # Errors
    /// Where the file cannot be read.
    pub async fn wanted(&self, from_ns: i64, most: u32) -> Result<Vec<(i64, Wanted)>, StoreError> {
        Ok(wanted::all(&self.0, from_ns, most).await?)
    }

    /// Sums of all pairs over all time.
    ///
    /// # Errors
    /// Where the file cannot be read.
    pub async fn totals(&self) -> Result<Vec<PairSum>, StoreError> {
        let rows = sqlx::query(by_pair!("SELECT flow, tests, sent, lost FROM spans WHERE days = $1"))
            .bind(UNITS[0])
            .fetch_all(&self.0)
            .await?;
        pair_sums(&rows)
    }

    /// A number that grows with each result.
    ///
    /// # Errors
    /// Where the file cannot be read.
    pub async fn newest(&self) -> Result<i64, StoreError> {
        Ok(sqlx::query_scalar("SELECT CAST(coalesce(sum(tests), 0) AS BIGINT) FROM losses").fetch_one(&self.0).await?)
    }
}

/// Test plans that are added up for a pair at most.
const TESTS_MOST: usize = 16;
