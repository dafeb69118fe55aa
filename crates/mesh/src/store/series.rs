//! Round trips and TCP of pairs by hour and by day: how many tests began in it, and medians of what they found.
//!
//! Medians cannot be added up as counts can. Each result that is taken leaves a note of its hour, in the same transaction; [`Series::follow`] makes the
//! hours and days of such notes again from all of their results. So a result that arrives late counts at its own time, and a question about a year
//! reads no results. A median over a span is the median of its hours or days.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sqlx::any::AnyRow;
use sqlx::{AnyConnection, AnyPool, Row};

use super::Span;
use super::address::Address;
use super::database::{pool, transact};
use super::error::StoreError;
use super::flows::{HOUR_NS, Key};
use super::summary::DAY_NS;

/// Questions at the same time, with the one that follows; others wait.
const CONNECTIONS: u32 = 3;
/// How long a question waits for one of them.
const PATIENCE: Duration = Duration::from_secs(10);
/// The figures follow from the results: what a loss of power takes of them is made again, with its notes.
const SQLITE: &[&str] = &["PRAGMA busy_timeout = 10000", "PRAGMA synchronous = NORMAL"];
const POSTGRES: &[&str] = &["SET lock_timeout = '10s'", "SET jit = off"];
/// Notes that one transaction follows: others write between two of them.
const NOTES_MOST: i64 = 2000;

pub(super) const MEDIANS: &str = "CREATE TABLE IF NOT EXISTS medians (metric TEXT NOT NULL, unit_ns BIGINT NOT NULL, flow BIGINT NOT NULL, begin BIGINT NOT NULL, \
     tests BIGINT NOT NULL, sent BIGINT NOT NULL, lost BIGINT NOT NULL, median BIGINT, beside BIGINT, outages BIGINT NOT NULL, \
     longest_outage_ns BIGINT NOT NULL, PRIMARY KEY (metric, unit_ns, flow, begin)) WITHOUT ROWID";
/// Hours with results that are not in the figures yet.
pub(super) const DUE: &str = "CREATE TABLE IF NOT EXISTS due (hour BIGINT NOT NULL, flow BIGINT NOT NULL, metric TEXT NOT NULL, \
     PRIMARY KEY (hour, flow, metric)) WITHOUT ROWID";

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

    fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|metric| metric.name() == name)
    }

    /// What the results of a flow in some hours found.
    fn found(self) -> &'static str {
        match self {
            Self::RoundTrip => by_unit!(
                "SELECT sent, lost, p50_ns, p99_ns, outages, longest_outage_ns FROM units CROSS JOIN round_trips \
                 WHERE round_trips.hour = unit AND round_trips.flow = $3"
            ),
            Self::Goodput => by_unit!(
                "SELECT CAST(0 AS BIGINT), CAST(0 AS BIGINT), goodput_bps, paced_bps, CAST(0 AS BIGINT), CAST(0 AS BIGINT) \
                 FROM units CROSS JOIN tcp WHERE tcp.hour = unit AND tcp.flow = $3"
            ),
        }
    }
}

/// Notes that a result is new, in the transaction that takes it.
pub(super) async fn note(to: &mut AnyConnection, metric: Metric, key: &Key) -> Result<(), sqlx::Error> {
    let note = sqlx::query(
        "INSERT INTO due (hour, flow, metric) VALUES ($1, $2, $3) ON CONFLICT (hour, flow, metric) DO NOTHING",
    );
    note.bind(key.hour).bind(key.flow).bind(metric.name()).execute(to).await.map(drop)
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
fn values(text: Option<String>) -> Vec<i64> {
    text.map(|text| text.split(',').filter_map(|value| value.parse().ok()).collect()).unwrap_or_default()
}

/// Figures of a pair.
pub type OfPair = ((String, String), Figures);

/// The figures of all pairs by hour and by day, and single results.
#[derive(Debug, Clone)]
pub struct Series(pub(super) AnyPool);

impl Series {
    /// Opens a store that [`super::Archive`] has made.
    ///
    /// # Errors
    /// Where the store cannot be used.
    pub async fn open(address: impl Into<Address>) -> Result<Self, StoreError> {
        Ok(Self(pool(&address.into(), "rwc", (CONNECTIONS, PATIENCE), (SQLITE, POSTGRES)).await?))
    }

    /// Takes new results into the figures; whether there are more of them.
    ///
    /// # Errors
    /// Where the disk is full or fails: nothing has changed.
    pub async fn follow(&self) -> Result<bool, StoreError> {
        let mut connection = self.0.acquire().await?;
        let notes: i64 = sqlx::query_scalar("SELECT count(*) FROM (SELECT 1 FROM due LIMIT $1) AS notes")
            .bind(NOTES_MOST + 1)
            .fetch_one(&mut *connection)
            .await?;
        if notes > 0 {
            transact(&mut connection, async |to| follow(to).await).await?;
        }
        Ok(notes > NOTES_MOST)
    }

    /// Figures of all pairs over a span, by sender and receiver.
    ///
    /// # Errors
    /// Where the store cannot be read.
    pub async fn matrix(&self, metric: Metric, span: Span) -> Result<Vec<OfPair>, StoreError> {
        // Values of a pair in one text: a year of all pairs would be many rows.
        let rows = sqlx::query(
            "SELECT flows.sender, flows.receiver, CAST(sum(tests) AS BIGINT), CAST(sum(sent) AS BIGINT), CAST(sum(lost) AS BIGINT), \
             string_agg(CAST(median AS TEXT), ','), string_agg(CAST(beside AS TEXT), ','), CAST(sum(outages) AS BIGINT), \
             max(longest_outage_ns) FROM flows CROSS JOIN medians WHERE medians.metric = $1 AND medians.unit_ns = $2 \
             AND medians.flow = flows.flow AND medians.begin >= $3 AND medians.begin < $4 GROUP BY flows.sender, flows.receiver",
        )
        .bind(metric.name())
        .bind(span.unit_ns)
        .bind(span.from_ns.div_euclid(span.unit_ns))
        .bind(span.until_ns.div_euclid(span.unit_ns))
        .fetch_all(&self.0)
        .await?;
        let pair = |row: &AnyRow| {
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
        let mut pairs: Vec<OfPair> = rows.iter().map(pair).collect::<Result<_, sqlx::Error>>()?;
        // In the order of the names' bytes: databases order texts in several ways.
        pairs.sort_by(|one, other| one.0.cmp(&other.0));
        Ok(pairs)
    }

    /// Figures of one pair by hour or day, in order of time, each with its begin: nanoseconds since 1970.
    ///
    /// # Errors
    /// Where the store cannot be read.
    pub async fn pair(
        &self,
        metric: Metric,
        sender: &str,
        receiver: &str,
        span: Span,
    ) -> Result<Vec<(i64, Figures)>, StoreError> {
        let rows = sqlx::query(
            "SELECT tests, sent, lost, median, beside, outages, longest_outage_ns, begin FROM flows CROSS JOIN medians \
             WHERE flows.sender = $1 AND flows.receiver = $2 AND medians.metric = $3 AND medians.unit_ns = $4 \
             AND medians.flow = flows.flow AND medians.begin >= $5 AND medians.begin < $6",
        )
        .bind(sender)
        .bind(receiver)
        .bind(metric.name())
        .bind(span.unit_ns)
        .bind(span.from_ns.div_euclid(span.unit_ns))
        .bind(span.until_ns.div_euclid(span.unit_ns))
        .fetch_all(&self.0)
        .await?;
        let mut units = BTreeMap::<i64, Vec<Figures>>::new();
        for row in &rows {
            units.entry(row.try_get::<i64, _>(7)?.saturating_mul(span.unit_ns)).or_default().push(figures(row)?);
        }
        Ok(units.into_iter().map(|(begin_ns, of_flows)| (begin_ns, Figures::of(&of_flows))).collect())
    }
}

/// Makes the units of some notes again.
async fn follow(to: &mut AnyConnection) -> Result<(), sqlx::Error> {
    let notes = sqlx::query("SELECT hour, flow, metric FROM due ORDER BY hour, flow, metric LIMIT $1");
    let notes = notes.bind(NOTES_MOST).fetch_all(&mut *to).await?;
    let mut units = BTreeSet::<(&'static str, i64, i64, i64)>::new();
    for note in &notes {
        let (hour, flow, name): (i64, i64, String) = (note.try_get(0)?, note.try_get(1)?, note.try_get(2)?);
        let done = sqlx::query("DELETE FROM due WHERE hour = $1 AND flow = $2 AND metric = $3");
        done.bind(hour).bind(flow).bind(&name).execute(&mut *to).await?;
        if let Some(metric) = Metric::named(&name) {
            units.insert((metric.name(), flow, DAY_NS, hour.div_euclid(DAY_NS / HOUR_NS)));
            units.insert((metric.name(), flow, HOUR_NS, hour));
        }
    }
    for (name, flow, unit_ns, begin) in units {
        let Some(metric) = Metric::named(name) else { continue };
        let hours = unit_ns / HOUR_NS;
        let results = sqlx::query(metric.found()).bind(begin * hours).bind((begin + 1) * hours).bind(flow);
        let results = results.fetch_all(&mut *to).await?;
        let found = results.iter().map(one).collect::<Result<Vec<Figures>, sqlx::Error>>()?;
        put(to, metric, (unit_ns, flow, begin), Figures::of(&found)).await?;
    }
    Ok(())
}

async fn put(
    to: &mut AnyConnection,
    metric: Metric,
    (unit_ns, flow, begin): (i64, i64, i64),
    figures: Figures,
) -> Result<(), sqlx::Error> {
    sqlx::query(
        "INSERT INTO medians (metric, unit_ns, flow, begin, tests, sent, lost, median, beside, outages, longest_outage_ns) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) ON CONFLICT (metric, unit_ns, flow, begin) DO UPDATE SET \
         tests = excluded.tests, sent = excluded.sent, lost = excluded.lost, median = excluded.median, beside = excluded.beside, \
         outages = excluded.outages, longest_outage_ns = excluded.longest_outage_ns",
    )
    .bind(metric.name())
    .bind(unit_ns)
    .bind(flow)
    .bind(begin)
    .bind(figures.tests)
    .bind(figures.sent)
    .bind(figures.lost)
    .bind(figures.median)
    .bind(figures.beside)
    .bind(figures.outages)
    .bind(figures.longest_outage_ns)
    .execute(&mut *to)
    .await
    .map(drop)
}

/// What one result found.
fn one(row: &AnyRow) -> Result<Figures, sqlx::Error> {
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

fn figures(row: &AnyRow) -> Result<Figures, sqlx::Error> {
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
