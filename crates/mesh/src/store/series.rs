//! Round trips and TCP of pairs by hour and by day: how many tests began in it, and medians of what they found.
//!
//! Medians cannot be added up as counts can. [`Series::follow`] reads results that are new, by their row numbers, and makes each hour and day in which one
//! of them began again from all of its results. So a result that arrives late counts at its own time, and a question about a year reads no results.
//! A median over a span is the median of its hours or days.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions, SqliteRow, SqliteSynchronous};
use sqlx::{ConnectOptions, Row, SqliteConnection, SqlitePool};

use super::Span;
use super::database::{StoreError, transact};
use super::summary::{DAY_NS, HOUR_NS};

/// Questions at the same time, with the one that follows; others wait.
const CONNECTIONS: u32 = 3;
/// How long a question waits for one of them, or the writer for another one.
const PATIENCE: Duration = Duration::from_secs(10);
/// New results of a kind that one transaction follows: others write between two of them.
const ROWS_MOST: i64 = 2000;

const TABLES: [&str; 5] = [
    "CREATE INDEX IF NOT EXISTS round_trips_of ON round_trips (sender, receiver, at_ns)",
    "CREATE INDEX IF NOT EXISTS tcp_of ON tcp (sender, receiver, at_ns)",
    "CREATE TABLE IF NOT EXISTS medians (metric TEXT NOT NULL, unit_ns BIGINT NOT NULL, begin BIGINT NOT NULL, sender TEXT NOT NULL, \
     receiver TEXT NOT NULL, tests BIGINT NOT NULL, sent BIGINT NOT NULL, lost BIGINT NOT NULL, median BIGINT, beside BIGINT, \
     outages BIGINT NOT NULL, longest_outage_ns BIGINT NOT NULL, PRIMARY KEY (metric, unit_ns, sender, receiver, begin)) WITHOUT ROWID",
    // A matrix looks up each pair: its units lie together.
    "CREATE TABLE IF NOT EXISTS medians_pairs (metric TEXT NOT NULL, sender TEXT NOT NULL, receiver TEXT NOT NULL, \
     PRIMARY KEY (metric, sender, receiver)) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS medians_followed (metric TEXT PRIMARY KEY, up_to BIGINT NOT NULL)",
];

/// What is measured of a pair beside the loss of UDP packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metric {
    /// Round trips of probes.
    RoundTrip,
    /// What a TCP flow carries.
    Goodput,
}

impl Metric {
    const ALL: [Self; 2] = [Self::RoundTrip, Self::Goodput];

    /// Its name, also in the store.
    pub fn name(self) -> &'static str {
        match self {
            Self::RoundTrip => "rtt",
            Self::Goodput => "goodput",
        }
    }

    fn newest(self) -> &'static str {
        match self {
            Self::RoundTrip => "SELECT coalesce(max(rowid), 0) FROM round_trips",
            Self::Goodput => "SELECT coalesce(max(rowid), 0) FROM tcp",
        }
    }

    /// Pairs and hours of the rows after one and up to another.
    fn changed(self) -> &'static str {
        match self {
            Self::RoundTrip => {
                "SELECT DISTINCT sender, receiver, at_ns / 3600000000000 FROM round_trips WHERE rowid > $1 AND rowid <= $2"
            }
            Self::Goodput => {
                "SELECT DISTINCT sender, receiver, at_ns / 3600000000000 FROM tcp WHERE rowid > $1 AND rowid <= $2"
            }
        }
    }

    /// What the results of a pair within a time found.
    fn found(self) -> &'static str {
        match self {
            Self::RoundTrip => {
                "SELECT sent, lost, p50_ns, p99_ns, outages, longest_outage_ns FROM round_trips \
                 WHERE sender = $1 AND receiver = $2 AND at_ns >= $3 AND at_ns < $4"
            }
            Self::Goodput => {
                "SELECT 0, 0, goodput_bps, paced_bps, 0, 0 FROM tcp \
                 WHERE sender = $1 AND receiver = $2 AND at_ns >= $3 AND at_ns < $4"
            }
        }
    }
}

/// What the tests of one pair and direction found over a time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    /// Tests that began in it.
    pub tests: i64,
    /// Probes that they sent; 0 of TCP.
    pub sent: i64,
    /// Probes that were lost; 0 of TCP.
    pub lost: i64,
    /// Of round trips the median of the tests' medians, nanoseconds; of TCP the median goodput, payload bits a second. `None`: no test has one.
    pub median: Option<i64>,
    /// Of round trips the median of the tests' 99 % quantiles; of TCP the median of the rates that the flows were paced to.
    pub beside: Option<i64>,
    /// Runs of lost probes that lasted a second or more.
    pub outages: i64,
    /// The longest of them, nanoseconds.
    pub longest_outage_ns: i64,
}

impl Figures {
    /// Figures of a time from those of its parts.
    fn of(parts: &[Self]) -> Self {
        let sum = |of: fn(&Self) -> i64| parts.iter().map(of).sum();
        Self {
            tests: sum(|part| part.tests),
            sent: sum(|part| part.sent),
            lost: sum(|part| part.lost),
            median: median(parts.iter().filter_map(|part| part.median).collect()),
            beside: median(parts.iter().filter_map(|part| part.beside).collect()),
            outages: sum(|part| part.outages),
            longest_outage_ns: parts.iter().map(|part| part.longest_outage_ns).max().unwrap_or(0),
        }
    }
}

/// The middle value; of two in the middle the greater one, which is a value that was measured.
fn median(mut values: Vec<i64>) -> Option<i64> {
    values.sort_unstable();
    values.get(values.len() / 2).copied()
}

/// Values that the database has written in one text.
fn values(text: Option<&str>) -> Vec<i64> {
    text.map(|text| text.split(',').filter_map(|value| value.parse().ok()).collect()).unwrap_or_default()
}

/// Figures of a pair.
pub type OfPair = ((String, String), Figures);

/// The figures of all pairs by hour and by day, and single results.
#[derive(Debug, Clone)]
pub struct Series(pub(super) SqlitePool);

impl Series {
    /// Opens a store that [`super::Archive`] has made, and makes the tables of these figures in it.
    ///
    /// # Errors
    /// Where the file cannot be used.
    pub async fn open(path: &Path) -> Result<Self, StoreError> {
        // The figures follow from the results: what a loss of power takes is made again.
        let options = SqliteConnectOptions::new()
            .filename(path)
            .synchronous(SqliteSynchronous::Normal)
            .busy_timeout(PATIENCE)
            .disable_statement_logging();
        let pool = SqlitePoolOptions::new().max_connections(CONNECTIONS).acquire_timeout(PATIENCE);
        let pool = pool.connect_with(options).await?;
        for table in TABLES {
            sqlx::query(table).execute(&pool).await?;
        }
        Ok(Self(pool))
    }

    /// Takes new results into the figures; whether there are more of them.
    ///
    /// # Errors
    /// Where the disk is full or fails: nothing has changed.
    pub async fn follow(&self) -> Result<bool, StoreError> {
        let mut connection = self.0.acquire().await?;
        let mut has_more = false;
        for metric in Metric::ALL {
            let (followed, newest) = state(&mut connection, metric).await?;
            if newest > followed {
                has_more |= transact(&mut connection, async |to| follow(to, metric).await).await?;
            }
        }
        Ok(has_more)
    }

    /// Figures of all pairs over a span, by sender and receiver.
    ///
    /// # Errors
    /// Where the file cannot be read.
    pub async fn matrix(&self, metric: Metric, span: Span) -> Result<Vec<OfPair>, StoreError> {
        // Values of a pair in one text: a year of all pairs would be many rows.
        let rows = sqlx::query(
            "SELECT pairs.sender, pairs.receiver, sum(tests), sum(sent), sum(lost), group_concat(median), group_concat(beside), sum(outages), \
             max(longest_outage_ns) FROM medians_pairs AS pairs CROSS JOIN medians ON medians.metric = $1 AND medians.unit_ns = $2 \
             AND medians.sender = pairs.sender AND medians.receiver = pairs.receiver AND medians.begin >= $3 AND medians.begin < $4 \
             WHERE pairs.metric = $1 GROUP BY pairs.sender, pairs.receiver ORDER BY pairs.sender, pairs.receiver",
        )
        .bind(metric.name())
        .bind(span.unit_ns)
        .bind(span.from_ns.div_euclid(span.unit_ns))
        .bind(span.until_ns.div_euclid(span.unit_ns))
        .fetch_all(&self.0)
        .await?;
        let pair = |row: &SqliteRow| {
            let figures = Figures {
                tests: row.try_get(2)?,
                sent: row.try_get(3)?,
                lost: row.try_get(4)?,
                median: median(values(row.try_get(5)?)),
                beside: median(values(row.try_get(6)?)),
                outages: row.try_get(7)?,
                longest_outage_ns: row.try_get(8)?,
            };
            Ok(((row.try_get(0)?, row.try_get(1)?), figures))
        };
        Ok(rows.iter().map(pair).collect::<Result<_, sqlx::Error>>()?)
    }

    /// Figures of one pair by hour or day, in order of time, each with its begin: nanoseconds since 1970.
    ///
    /// # Errors
    /// Where the file cannot be read.
    pub async fn pair(
        &self,
        metric: Metric,
        sender: &str,
        receiver: &str,
        span: Span,
    ) -> Result<Vec<(i64, Figures)>, StoreError> {
        let rows = sqlx::query(
            "SELECT tests, sent, lost, median, beside, outages, longest_outage_ns, begin FROM medians \
             WHERE metric = $1 AND unit_ns = $2 AND sender = $3 AND receiver = $4 AND begin >= $5 AND begin < $6 ORDER BY begin",
        )
        .bind(metric.name())
        .bind(span.unit_ns)
        .bind(sender)
        .bind(receiver)
        .bind(span.from_ns.div_euclid(span.unit_ns))
        .bind(span.until_ns.div_euclid(span.unit_ns))
        .fetch_all(&self.0)
        .await?;
        let unit = |row: &SqliteRow| Ok((row.try_get::<i64, _>(7)?.saturating_mul(span.unit_ns), figures(row)?));
        Ok(rows.iter().map(unit).collect::<Result<_, sqlx::Error>>()?)
    }
}

/// Up to which row the results of a kind are in the figures, and which is the last.
async fn state(from: &mut SqliteConnection, metric: Metric) -> Result<(i64, i64), sqlx::Error> {
    let followed = sqlx::query_scalar("SELECT coalesce(max(up_to), 0) FROM medians_followed WHERE metric = $1");
    let followed = followed.bind(metric.name()).fetch_one(&mut *from).await?;
    Ok((followed, sqlx::query_scalar(metric.newest()).fetch_one(&mut *from).await?))
}

/// Makes the units of some new results again; whether there are more of them.
async fn follow(to: &mut SqliteConnection, metric: Metric) -> Result<bool, sqlx::Error> {
    let (followed, newest) = state(to, metric).await?;
    let up_to = newest.min(followed.saturating_add(ROWS_MOST));
    let rows = sqlx::query(metric.changed()).bind(followed).bind(up_to).fetch_all(&mut *to).await?;
    let mut units = BTreeSet::<(String, String, i64, i64)>::new();
    for row in &rows {
        let (sender, receiver, hour): (String, String, i64) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        units.insert((sender.clone(), receiver.clone(), DAY_NS, hour.div_euclid(DAY_NS / HOUR_NS)));
        units.insert((sender, receiver, HOUR_NS, hour));
    }
    for (sender, receiver, unit_ns, begin) in &units {
        let results = sqlx::query(metric.found())
            .bind(sender)
            .bind(receiver)
            .bind(begin * unit_ns)
            .bind((begin + 1) * unit_ns)
            .fetch_all(&mut *to)
            .await?;
        let found = results.iter().map(one).collect::<Result<Vec<Figures>, sqlx::Error>>()?;
        put(to, metric, (sender, receiver, *unit_ns, *begin), Figures::of(&found)).await?;
    }
    sqlx::query(
        "INSERT INTO medians_followed (metric, up_to) VALUES ($1, $2) \
         ON CONFLICT (metric) DO UPDATE SET up_to = excluded.up_to",
    )
    .bind(metric.name())
    .bind(up_to)
    .execute(&mut *to)
    .await?;
    Ok(up_to < newest)
}

async fn put(
    to: &mut SqliteConnection,
    metric: Metric,
    (sender, receiver, unit_ns, begin): (&str, &str, i64, i64),
    figures: Figures,
) -> Result<(), sqlx::Error> {
    sqlx::query(
        "INSERT INTO medians (metric, unit_ns, begin, sender, receiver, tests, sent, lost, median, beside, outages, longest_outage_ns) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) ON CONFLICT (metric, unit_ns, sender, receiver, begin) DO UPDATE SET \
         tests = excluded.tests, sent = excluded.sent, lost = excluded.lost, median = excluded.median, beside = excluded.beside, \
         outages = excluded.outages, longest_outage_ns = excluded.longest_outage_ns",
    )
    .bind(metric.name())
    .bind(unit_ns)
    .bind(begin)
    .bind(sender)
    .bind(receiver)
    .bind(figures.tests)
    .bind(figures.sent)
    .bind(figures.lost)
    .bind(figures.median)
    .bind(figures.beside)
    .bind(figures.outages)
    .bind(figures.longest_outage_ns)
    .execute(&mut *to)
    .await?;
    let pair = sqlx::query(
        "INSERT INTO medians_pairs (metric, sender, receiver) VALUES ($1, $2, $3) ON CONFLICT (metric, sender, receiver) DO NOTHING",
    );
    pair.bind(metric.name()).bind(sender).bind(receiver).execute(&mut *to).await?;
    Ok(())
}

/// What one result found.
fn one(row: &SqliteRow) -> Result<Figures, sqlx::Error> {
    Ok(Figures {
        tests: 1,
        sent: row.try_get(0)?,
        lost: row.try_get(1)?,
        median: row.try_get(2)?,
        beside: row.try_get(3)?,
        outages: row.try_get(4)?,
        longest_outage_ns: row.try_get(5)?,
    })
}

fn figures(row: &SqliteRow) -> Result<Figures, sqlx::Error> {
    Ok(Figures {
        tests: row.try_get(0)?,
        sent: row.try_get(1)?,
        lost: row.try_get(2)?,
        median: row.try_get(3)?,
        beside: row.try_get(4)?,
        outages: row.try_get(5)?,
        longest_outage_ns: row.try_get(6)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_a_time_are_those_of_its_parts() {
        let part = |median, lost, outages, longest_outage_ns| Figures {
            tests: 2,
            sent: 100,
            lost,
            median,
            beside: median.map(|value| value * 2),
            outages,
            longest_outage_ns,
        };
        let whole = Figures::of(&[part(Some(9), 1, 0, 0), part(None, 100, 1, 7), part(Some(5), 0, 2, 3)]);
        let expected = Figures {
            tests: 6,
            sent: 300,
            lost: 101,
            median: Some(9),
            beside: Some(18),
            outages: 3,
            longest_outage_ns: 7,
        };
        assert_eq!(whole, expected);
        assert_eq!(Figures::of(&[]), Figures::default());
    }
}
