//! Results of the kinds `rtt`, `tcp` and `diagnose`: a table each.

use std::collections::BTreeMap;

use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row};

use super::error::readable;
use super::figures::Metric;
use super::flows::{Delivery, Flows, HOUR_NS, Head, Key, Named, Names, Outcome, digits, name_of};
use super::series;
use super::summary;
use super::{Diagnosis, Measured, Measurement, Quantiles, RoundTrips, TcpFlow, Wanted};

pub(super) const ROUND_TRIPS: &str = "CREATE TABLE IF NOT EXISTS round_trips (hour BIGINT NOT NULL, flow BIGINT NOT NULL, after_ns BIGINT NOT NULL, \
     id BLOB NOT NULL, duration_ns BIGINT NOT NULL, sent BIGINT NOT NULL, lost BIGINT NOT NULL, min_ns BIGINT, p50_ns BIGINT, \
     p90_ns BIGINT, p99_ns BIGINT, max_ns BIGINT, outages BIGINT NOT NULL, longest_outage_ns BIGINT NOT NULL, gaps_ns BIGINT NOT NULL, \
     PRIMARY KEY (hour, flow, after_ns, id)) WITHOUT ROWID";
pub(super) const TCP: &str = "CREATE TABLE IF NOT EXISTS tcp (hour BIGINT NOT NULL, flow BIGINT NOT NULL, after_ns BIGINT NOT NULL, id BLOB NOT NULL, \
     duration_ns BIGINT NOT NULL, bytes BIGINT NOT NULL, goodput_bps BIGINT NOT NULL, paced_bps BIGINT NOT NULL, \
     retransmits BIGINT NOT NULL, retransmitted_bytes BIGINT, min_rtt_ns BIGINT, congestion_control TEXT NOT NULL, \
     limited_by TEXT NOT NULL, limited_share DOUBLE PRECISION NOT NULL, PRIMARY KEY (hour, flow, after_ns, id)) WITHOUT ROWID";
/// The diagnosis as JSON: nobody asks the database for its parts.
pub(super) const DIAGNOSES: &str = "CREATE TABLE IF NOT EXISTS diagnoses (hour BIGINT NOT NULL, flow BIGINT NOT NULL, after_ns BIGINT NOT NULL, \
     id BLOB NOT NULL, alarm TEXT NOT NULL, diagnosis TEXT NOT NULL, PRIMARY KEY (hour, flow, after_ns, id)) WITHOUT ROWID";
/// A pair has few diagnoses in years: by the key alone each hour would be looked at for them.
pub(super) const DIAGNOSES_OF_FLOW: &str =
    "CREATE INDEX IF NOT EXISTS diagnoses_of_flow ON diagnoses (flow, hour, after_ns, id)";

/// Takes a measurement, where its hour has room for it.
pub(super) async fn take(
    to: &mut AnyConnection,
    flows: &mut Flows,
    one: &Measurement,
    delivery: Delivery<'_>,
) -> Result<Outcome, sqlx::Error> {
    if one.measured == Measured::Unknown {
        return Ok(Outcome::NotNew);
    }
    let head = Head { id: &one.id, names: [&one.test, &one.sender, &one.receiver], at_ns: one.at_ns };
    let Some(key) = flows.key(to, &head, delivery.now_ns).await? else { return Ok(Outcome::NotNew) };
    let room = Flows::room(to, &key, &head, delivery).await?;
    let (table, rows) = match &one.measured {
        Measured::Rtt(trips) => ("round_trips", take_round_trips(to, (&key, room), trips).await?),
        Measured::Tcp(flow) => ("tcp", take_tcp(to, (&key, room), flow).await?),
        Measured::Diagnose(diagnosis) => ("diagnoses", take_diagnosis(to, (&key, room), one, diagnosis).await?),
        Measured::Unknown => return Ok(Outcome::NotNew),
    };
    if rows == 0 {
        return Flows::not_taken(to, table, &key).await;
    }
    Flows::taken(to, &key, &head, delivery.by).await?;
    let metric = match &one.measured {
        Measured::Rtt(_) => Some(Metric::RoundTrip),
        Measured::Tcp(_) => Some(Metric::Goodput),
        Measured::Diagnose(_) | Measured::Unknown => None,
    };
    if let Some(metric) = metric {
        series::note(to, metric, &key).await?;
    }
    if has_run(&one.measured) {
        summary::saw(to, [&one.sender, &one.receiver], &key).await?;
    }
    Ok(Outcome::New)
}

/// Whether both sites took part: probes without any answer say nothing of the other, and a diagnosis that failed may never have begun.
fn has_run(measured: &Measured) -> bool {
    match measured {
        Measured::Rtt(trips) => trips.quantiles.is_some(),
        Measured::Tcp(_) => true,
        Measured::Diagnose(diagnosis) => diagnosis.failed.is_none(),
        Measured::Unknown => false,
    }
}

/// How many tests of a flow began since an hour and a time, and when the last of them did.
macro_rules! by_flow {
    ($those_of:literal) => {
        concat!(
            "SELECT flow, count(*), max(hour * 3600000000000 + after_ns) FROM ",
            $those_of,
            " hour >= $1 AND hour * 3600000000000 + after_ns >= $2 GROUP BY flow"
        )
    };
}

/// Of each site: how many tests of any kind it was part of since `from_ns`, and when the last of them began.
pub(super) async fn took_part(
    from: &mut AnyConnection,
    from_ns: i64,
) -> Result<BTreeMap<String, (u64, i64)>, sqlx::Error> {
    let mut sites = BTreeMap::<String, (u64, i64)>::new();
    let mut add = |[_, sender, receiver]: &Names, tests: i64, at_ns: i64| {
        for site in [sender, receiver] {
            let (all, last) = sites.entry(site.clone()).or_default();
            (*all, *last) = (all.saturating_add(tests.unsigned_abs()), (*last).max(at_ns));
        }
    };
    let mut named = Named::default();
    let counted = [
        by_flow!("results WHERE"),
        by_flow!("round_trips WHERE p50_ns IS NOT NULL AND"),
        by_flow!("tcp WHERE"),
        // Those that did not fail, as `take_diagnosis` writes them: the last key says so. A text that says it, too, ends with a quote.
        by_flow!("diagnoses WHERE diagnosis LIKE '%,\"failed\":null}' AND"),
    ];
    for query in counted {
        let rows = sqlx::query(query).bind(from_ns.div_euclid(HOUR_NS)).bind(from_ns).fetch_all(&mut *from).await?;
        for row in rows {
            let Some((flow, tests, at_ns)) = readable(counts(&row), || "tests of a flow".to_owned()) else { continue };
            if let Some(names) = readable(named.of(from, flow).await?, || format!("tests of flow {flow}")) {
                add(names, tests, at_ns);
            }
        }
    }
    Ok(sites)
}

/// A flow, how many tests it had, and when the last of them began.
fn counts(row: &AnyRow) -> Result<(i64, i64, i64), sqlx::Error> {
    Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?))
}

/// Measurements of all kinds since `from_ns`, kind by kind, each in order of time. What cannot be read is left out.
pub(super) async fn since(from: &mut AnyConnection, from_ns: i64) -> Result<Vec<Measurement>, sqlx::Error> {
    let mut reading = Reading { from, from_ns, named: Named::default(), all: Vec::new() };
    reading
        .read(
            "round_trips",
            "SELECT hour, flow, after_ns, id, duration_ns, sent, lost, min_ns, p50_ns, p90_ns, p99_ns, max_ns, outages, \
             longest_outage_ns, gaps_ns FROM round_trips WHERE hour >= $1 ORDER BY hour, after_ns, id",
            |row| Ok(Measured::Rtt(round_trips(row)?)),
        )
        .await?;
    reading
        .read(
            "tcp",
            "SELECT hour, flow, after_ns, id, duration_ns, bytes, goodput_bps, paced_bps, retransmits, retransmitted_bytes, \
             min_rtt_ns, congestion_control, limited_by, limited_share FROM tcp WHERE hour >= $1 ORDER BY hour, after_ns, id",
            |row| Ok(Measured::Tcp(tcp(row)?)),
        )
        .await?;
    let query =
        "SELECT hour, flow, after_ns, id, diagnosis FROM diagnoses WHERE hour >= $1 ORDER BY hour, after_ns, id";
    reading.read("diagnoses", query, diagnosed).await?;
    Ok(reading.all)
}

/// What an alarm's diagnosis of a pair was since `from_ns`: the first of them.
pub(super) async fn diagnosis_of(
    from: &mut AnyConnection,
    wanted: &Wanted,
    from_ns: i64,
) -> Result<Option<Measurement>, sqlx::Error> {
    let query = "SELECT hour, diagnoses.flow, after_ns, id, diagnosis FROM flows JOIN diagnoses ON diagnoses.flow = flows.flow \
         WHERE flows.sender = $1 AND flows.receiver = $2 AND alarm = $3 AND hour >= $4 AND hour * 3600000000000 + after_ns >= $5 \
         ORDER BY hour, after_ns, id LIMIT 16";
    let rows = sqlx::query(query)
        .bind(&wanted.sender)
        .bind(&wanted.receiver)
        .bind(&wanted.alarm)
        .bind(from_ns.div_euclid(HOUR_NS))
        .bind(from_ns);
    let mut named = Named::default();
    for row in rows.fetch_all(&mut *from).await? {
        if let Some(found) = one(from, &mut named, ("diagnoses", &row), diagnosed).await? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// The measurement of a row of this table, whose first columns are its key. `None` where it cannot be read.
async fn one(
    from: &mut AnyConnection,
    named: &mut Named,
    (table, row): (&str, &AnyRow),
    measured: fn(&AnyRow) -> Result<Measured, sqlx::Error>,
) -> Result<Option<Measurement>, sqlx::Error> {
    let name = || name_of(table, row);
    let Some(key) = readable(Key::of(row), name) else { return Ok(None) };
    let Some([test, sender, receiver]) = readable(named.of(from, key.flow).await?, name).cloned() else {
        return Ok(None);
    };
    let (id, at_ns) = (digits(&key.id), key.at_ns());
    let measured = readable(measured(row), name);
    Ok(measured.map(|measured| Measurement { id, test, sender, receiver, at_ns, measured }))
}

/// Measurements that are being read.
struct Reading<'a> {
    from: &'a mut AnyConnection,
    from_ns: i64,
    named: Named,
    all: Vec<Measurement>,
}

impl Reading<'_> {
    /// Adds those of one table. `query` has the key in its first columns, and asks from an hour on.
    async fn read(
        &mut self,
        table: &str,
        query: &'static str,
        measured: fn(&AnyRow) -> Result<Measured, sqlx::Error>,
    ) -> Result<(), sqlx::Error> {
        let rows = sqlx::query(query).bind(self.from_ns.div_euclid(HOUR_NS)).fetch_all(&mut *self.from).await?;
        for row in rows {
            let found = one(self.from, &mut self.named, (table, &row), measured).await?;
            self.all.extend(found.filter(|one| one.at_ns >= self.from_ns));
        }
        Ok(())
    }
}

type Taken = Result<u64, sqlx::Error>;

async fn take_round_trips(to: &mut AnyConnection, (key, room): (&Key, i64), trips: &RoundTrips) -> Taken {
    let quantile = |of: fn(&Quantiles) -> i64| trips.quantiles.as_ref().map(of);
    let inserted = sqlx::query(
        "INSERT INTO round_trips (hour, flow, after_ns, id, duration_ns, sent, lost, min_ns, p50_ns, p90_ns, p99_ns, max_ns, \
         outages, longest_outage_ns, gaps_ns) SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15 \
         WHERE (SELECT count(*) FROM (SELECT 1 FROM round_trips WHERE hour = $1 AND flow = $2 LIMIT $16) AS kept) < $16 \
         ON CONFLICT (hour, flow, after_ns, id) DO NOTHING",
    )
    .bind(key.hour)
    .bind(key.flow)
    .bind(key.after_ns)
    .bind(key.id.clone())
    .bind(trips.duration_ns)
    .bind(trips.sent)
    .bind(trips.lost)
    .bind(quantile(|of| of.min_ns))
    .bind(quantile(|of| of.p50_ns))
    .bind(quantile(|of| of.p90_ns))
    .bind(quantile(|of| of.p99_ns))
    .bind(quantile(|of| of.max_ns))
    .bind(trips.outages)
    .bind(trips.longest_outage_ns)
    .bind(trips.gaps_ns)
    .bind(room)
    .execute(&mut *to)
    .await?;
    Ok(inserted.rows_affected())
}

async fn take_tcp(to: &mut AnyConnection, (key, room): (&Key, i64), flow: &TcpFlow) -> Taken {
    let inserted = sqlx::query(
        "INSERT INTO tcp (hour, flow, after_ns, id, duration_ns, bytes, goodput_bps, paced_bps, retransmits, retransmitted_bytes, \
         min_rtt_ns, congestion_control, limited_by, limited_share) \
         SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14 \
         WHERE (SELECT count(*) FROM (SELECT 1 FROM tcp WHERE hour = $1 AND flow = $2 LIMIT $15) AS kept) < $15 ON CONFLICT (hour, flow, after_ns, id) DO NOTHING",
    )
    .bind(key.hour)
    .bind(key.flow)
    .bind(key.after_ns)
    .bind(key.id.clone())
    .bind(flow.duration_ns)
    .bind(flow.bytes)
    .bind(flow.goodput_bps)
    .bind(flow.paced_bps)
    .bind(flow.retransmits)
    .bind(flow.retransmitted_bytes)
    .bind(flow.min_rtt_ns)
    .bind(&flow.congestion_control)
    .bind(&flow.limited_by)
    .bind(flow.limited_share)
    .bind(room)
    .execute(&mut *to)
    .await?;
    Ok(inserted.rows_affected())
}

/// The site that was asked for it need not be asked again.
async fn take_diagnosis(
    to: &mut AnyConnection,
    (key, room): (&Key, i64),
    head: &Measurement,
    diagnosis: &Diagnosis,
) -> Taken {
    let text = serde_json::to_string(diagnosis).map_err(|error| sqlx::Error::Encode(Box::new(error)))?;
    let inserted = sqlx::query(
        "INSERT INTO diagnoses (hour, flow, after_ns, id, alarm, diagnosis) SELECT $1, $2, $3, $4, $5, $6 \
         WHERE (SELECT count(*) FROM (SELECT 1 FROM diagnoses WHERE hour = $1 AND flow = $2 LIMIT $7) AS kept) < $7 \
         ON CONFLICT (hour, flow, after_ns, id) DO NOTHING",
    )
    .bind(key.hour)
    .bind(key.flow)
    .bind(key.after_ns)
    .bind(key.id.clone())
    .bind(&diagnosis.alarm)
    .bind(text)
    .bind(room)
    .execute(&mut *to)
    .await?;
    sqlx::query("DELETE FROM wanted WHERE alarm = $1 AND sender = $2 AND receiver = $3")
        .bind(&diagnosis.alarm)
        .bind(&head.sender)
        .bind(&head.receiver)
        .execute(&mut *to)
        .await?;
    Ok(inserted.rows_affected())
}

pub(super) fn round_trips(row: &AnyRow) -> Result<RoundTrips, sqlx::Error> {
    let quantiles = match row.try_get::<Option<i64>, _>(7)? {
        None => None,
        Some(min_ns) => Some(Quantiles {
            min_ns,
            p50_ns: row.try_get(8)?,
            p90_ns: row.try_get(9)?,
            p99_ns: row.try_get(10)?,
            max_ns: row.try_get(11)?,
        }),
    };
    Ok(RoundTrips {
        duration_ns: row.try_get(4)?,
        sent: row.try_get(5)?,
        lost: row.try_get(6)?,
        quantiles,
        outages: row.try_get(12)?,
        longest_outage_ns: row.try_get(13)?,
        gaps_ns: row.try_get(14)?,
    })
}

pub(super) fn tcp(row: &AnyRow) -> Result<TcpFlow, sqlx::Error> {
    Ok(TcpFlow {
        duration_ns: row.try_get(4)?,
        bytes: row.try_get(5)?,
        goodput_bps: row.try_get(6)?,
        paced_bps: row.try_get(7)?,
        retransmits: row.try_get(8)?,
        retransmitted_bytes: row.try_get(9)?,
        min_rtt_ns: row.try_get(10)?,
        congestion_control: row.try_get(11)?,
        limited_by: row.try_get(12)?,
        limited_share: row.try_get(13)?,
    })
}

fn diagnosed(row: &AnyRow) -> Result<Measured, sqlx::Error> {
    Ok(Measured::Diagnose(diagnosis(row)?))
}

pub(super) fn diagnosis(row: &AnyRow) -> Result<Diagnosis, sqlx::Error> {
    serde_json::from_str(&row.try_get::<String, _>(4)?).map_err(|error| sqlx::Error::Decode(Box::new(error)))
}
