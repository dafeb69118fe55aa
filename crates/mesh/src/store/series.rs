//! Round trips and TCP of pairs by hour and by day: how many tests began in it, and medians of what they found.
//!
//! Medians cannot be added up as counts can. Each result that is taken leaves a note of its hour, in the same transaction; [`Series::follow`] makes the
//! hours and days of such notes again from all of their results, and the 30 days (`rollups.rs`) from these. So a result that arrives late counts at
//! its own time, and a question about a year reads no results. A median over a span is the median of its hours or days.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sqlx::any::AnyRow;
use sqlx::{AnyConnection, AnyPool, Row};

use super::address::Address;
use super::database::{Form, pool, transact};
use super::error::StoreError;
use super::figures::{Figures, Gathered, Metric, OfPair, values};
use super::flows::{HOUR_NS, Key};
use super::rollups;
use super::summary::{DAY_NS, Span};

/// Questions at the same time, with the one that follows; others wait.
const CONNECTIONS: u32 = 3;
/// How long a question waits for one of them.
const PATIENCE: Duration = Duration::from_secs(10);
/// The figures follow from the results: what a loss of power takes of them is made again, with its notes.
const SQLITE: &[&str] = &["PRAGMA busy_timeout = 10000", "PRAGMA synchronous = NORMAL"];
const POSTGRES: &[&str] = &["SET lock_timeout = '10s'", "SET jit = off"];
/// Notes that one transaction follows: others write between two of them, and each may be of a day with thousands of results.
const NOTES_MOST: i64 = 200;

pub(super) const MEDIANS: &str = "CREATE TABLE IF NOT EXISTS medians (metric TEXT NOT NULL, unit_ns BIGINT NOT NULL, flow BIGINT NOT NULL, begin BIGINT NOT NULL, \
     tests BIGINT NOT NULL, sent BIGINT NOT NULL, lost BIGINT NOT NULL, median BIGINT, beside BIGINT, outages BIGINT NOT NULL, \
     longest_outage_ns BIGINT NOT NULL, PRIMARY KEY (metric, unit_ns, flow, begin)) WITHOUT ROWID";
/// Hours with results that are not in the figures yet.
pub(super) const DUE: &str = "CREATE TABLE IF NOT EXISTS due (hour BIGINT NOT NULL, flow BIGINT NOT NULL, metric TEXT NOT NULL, \
     PRIMARY KEY (hour, flow, metric)) WITHOUT ROWID";

/// What the results of a flow in some hours found.
fn found(metric: Metric) -> &'static str {
    match metric {
        Metric::RoundTrip => by_unit!(
            "SELECT sent, lost, p50_ns, p99_ns, outages, longest_outage_ns FROM units CROSS JOIN round_trips \
             WHERE round_trips.hour = unit AND round_trips.flow = $3"
        ),
        Metric::Goodput => by_unit!(
            "SELECT CAST(0 AS BIGINT), CAST(0 AS BIGINT), goodput_bps, paced_bps, CAST(0 AS BIGINT), CAST(0 AS BIGINT) \
             FROM units CROSS JOIN tcp WHERE tcp.hour = unit AND tcp.flow = $3"
        ),
    }
}

/// Notes that a result is new, in the transaction that takes it.
pub(super) async fn note(to: &mut AnyConnection, metric: Metric, key: &Key) -> Result<(), sqlx::Error> {
    let note = sqlx::query(
        "INSERT INTO due (hour, flow, metric) VALUES ($1, $2, $3) ON CONFLICT (hour, flow, metric) DO NOTHING",
    );
    note.bind(key.hour).bind(key.flow).bind(metric.name()).execute(to).await.map(drop)
}

/// A question about all pairs. Values of a pair are in one text: a year of all pairs would be many rows. `$median` and `$beside` are the texts.
macro_rules! by_pair {
    ($median:literal, $beside:literal, $from:literal) => {
        concat!(
            "SELECT CAST(sum(tests) AS BIGINT), CAST(sum(sent) AS BIGINT), CAST(sum(lost) AS BIGINT), string_agg(",
            $median,
            ", ','), string_agg(",
            $beside,
            ", ','), CAST(sum(outages) AS BIGINT), max(longest_outage_ns), flows.sender, flows.receiver FROM flows CROSS JOIN ",
            $from,
            " GROUP BY flows.sender, flows.receiver"
        )
    };
}

/// Of hours or days, of two times.
const UNITS: &str = by_pair!(
    "CAST(median AS TEXT)",
    "CAST(beside AS TEXT)",
    "(SELECT $3 AS begins, $4 AS ends UNION ALL SELECT $5, $6) AS times CROSS JOIN medians WHERE medians.metric = $1 AND medians.unit_ns = $2 \
     AND medians.flow = flows.flow AND medians.begin >= times.begins AND medians.begin < times.ends"
);
/// Of 30 days.
const ROLLED_UP: &str = by_pair!(
    "medians",
    "besides",
    "rollups WHERE rollups.metric = $1 AND rollups.flow = flows.flow AND rollups.begin >= $2 AND rollups.begin < $3"
);
/// Of all time, without medians.
const TOTALS: &str = by_pair!(
    "CAST(NULL AS TEXT)",
    "CAST(NULL AS TEXT)",
    "rollups WHERE rollups.metric = $1 AND rollups.flow = flows.flow"
);

/// The figures of all pairs by hour and by day, and single results.
#[derive(Debug, Clone)]
pub struct Series(pub(super) AnyPool);

impl Series {
    /// Opens a store of this form.
    pub(super) async fn of(address: &Address, form: &'static Form) -> Result<Self, StoreError> {
        Ok(Self(pool(address, form, "rwc", (CONNECTIONS, PATIENCE), (SQLITE, POSTGRES)).await?))
    }

    /// Takes new results into the figures, those of the latest hours first; whether there are more of them.
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
        let (unit_ns, from, until) = (span.unit_ns, span.from_ns / span.unit_ns, span.until_ns / span.unit_ns);
        let parts = if unit_ns == DAY_NS { span.parts(&[rollups::DAYS, 1]) } else { vec![(1, from, until)] };
        // At most one part of 30 days, with days before and after it.
        let (rolled_up, units): (Vec<_>, Vec<_>) = parts.into_iter().partition(|(days, ..)| *days == rollups::DAYS);
        let time = |number: usize| units.get(number).map_or((0, 0), |(_, first, after)| (*first, *after));
        let query = sqlx::query(UNITS).bind(metric.name()).bind(unit_ns);
        let query = query.bind(time(0).0).bind(time(0).1).bind(time(1).0).bind(time(1).1);
        let rolled_up = async {
            match rolled_up.first() {
                Some((_, first, after)) => {
                    sqlx::query(ROLLED_UP).bind(metric.name()).bind(*first).bind(*after).fetch_all(&self.0).await
                }
                None => Ok(Vec::new()),
            }
        };
        // Side by side: over a year each takes a tenth of a second.
        let (units, rolled_up) = tokio::try_join!(query.fetch_all(&self.0), rolled_up)?;
        // In the order of the names' bytes: databases order texts in several ways.
        let mut pairs = BTreeMap::<(String, String), Gathered>::new();
        for row in units.iter().chain(&rolled_up) {
            let (medians, besides): (Option<&str>, Option<&str>) = (row.try_get(3)?, row.try_get(4)?);
            let gathered = pairs.entry((row.try_get(7)?, row.try_get(8)?)).or_default();
            gathered.add(&sums(row)?, values(medians), values(besides));
        }
        Ok(pairs.into_iter().map(|(pair, gathered)| (pair, gathered.figures())).collect())
    }

    /// Tests, probes and outages of all pairs over all time: figures without medians.
    ///
    /// # Errors
    /// Where the store cannot be read.
    pub async fn totals(&self, metric: Metric) -> Result<Vec<OfPair>, StoreError> {
        let rows = sqlx::query(TOTALS).bind(metric.name()).fetch_all(&self.0).await?;
        let pair = |row: &AnyRow| Ok(((row.try_get(7)?, row.try_get(8)?), sums(row)?));
        Ok(rows.iter().map(pair).collect::<Result<_, sqlx::Error>>()?)
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
            units.entry(row.try_get::<i64, _>(7)?.saturating_mul(span.unit_ns)).or_default().push(Figures::read(row)?);
        }
        Ok(units.into_iter().map(|(begin_ns, of_flows)| (begin_ns, Figures::of(&of_flows))).collect())
    }
}

/// Makes the units of some notes again.
async fn follow(to: &mut AnyConnection) -> Result<(), sqlx::Error> {
    let notes = sqlx::query("SELECT hour, flow, metric FROM due ORDER BY hour DESC, flow DESC, metric DESC LIMIT $1");
    let notes = notes.bind(NOTES_MOST).fetch_all(&mut *to).await?;
    // The hours and the days that are made again; then the units of 30 days, from the days.
    let mut units = BTreeSet::<(&'static str, i64, i64, i64)>::new();
    let mut rolled_up = BTreeSet::<(&'static str, i64, i64)>::new();
    for note in &notes {
        let (hour, flow, name): (i64, i64, String) = (note.try_get(0)?, note.try_get(1)?, note.try_get(2)?);
        let done = sqlx::query("DELETE FROM due WHERE hour = $1 AND flow = $2 AND metric = $3");
        done.bind(hour).bind(flow).bind(&name).execute(&mut *to).await?;
        if let Some(metric) = Metric::named(&name) {
            let day = hour.div_euclid(DAY_NS / HOUR_NS);
            units.insert((metric.name(), flow, DAY_NS, day));
            units.insert((metric.name(), flow, HOUR_NS, hour));
            rolled_up.insert((metric.name(), flow, day.div_euclid(rollups::DAYS)));
        }
    }
    for (name, flow, unit_ns, begin) in units {
        let Some(metric) = Metric::named(name) else { continue };
        let hours = unit_ns / HOUR_NS;
        let results = sqlx::query(found(metric)).bind(begin * hours).bind((begin + 1) * hours).bind(flow);
        let results = results.fetch_all(&mut *to).await?;
        let results = results.iter().map(one).collect::<Result<Vec<Figures>, sqlx::Error>>()?;
        put(to, metric, (unit_ns, flow, begin), Figures::of(&results)).await?;
    }
    for (name, flow, begin) in rolled_up {
        let Some(metric) = Metric::named(name) else { continue };
        rollups::make(to, metric, flow, begin).await?;
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

/// The sums of a question about all pairs, without medians.
fn sums(row: &AnyRow) -> Result<Figures, sqlx::Error> {
    Ok(Figures {
        tests: row.try_get(0)?,
        sent: row.try_get(1)?,
        lost: row.try_get(2)?,
        outages: row.try_get(5)?,
        longest_outage_ns: row.try_get(6)?,
        ..Figures::default()
    })
}
