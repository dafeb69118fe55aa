//! Results of the kinds `rtt`, `tcp` and `diagnose`: a table each.

use sqlx::sqlite::SqliteRow;
use sqlx::{Row, SqliteConnection};

use super::{Diagnosis, Measured, Measurement, Quantiles, RoundTrips, TcpFlow};

pub(super) const ROUND_TRIPS: &str = "CREATE TABLE IF NOT EXISTS round_trips (id TEXT PRIMARY KEY, test TEXT NOT NULL, sender TEXT NOT NULL, receiver TEXT NOT NULL, \
     at_ns BIGINT NOT NULL, duration_ns BIGINT NOT NULL, sent BIGINT NOT NULL, lost BIGINT NOT NULL, min_ns BIGINT, p50_ns BIGINT, \
     p90_ns BIGINT, p99_ns BIGINT, max_ns BIGINT, outages BIGINT NOT NULL, longest_outage_ns BIGINT NOT NULL, gaps_ns BIGINT NOT NULL)";
pub(super) const ROUND_TRIPS_AT: &str = "CREATE INDEX IF NOT EXISTS round_trips_at ON round_trips (at_ns)";
pub(super) const TCP: &str = "CREATE TABLE IF NOT EXISTS tcp (id TEXT PRIMARY KEY, test TEXT NOT NULL, sender TEXT NOT NULL, receiver TEXT NOT NULL, \
     at_ns BIGINT NOT NULL, duration_ns BIGINT NOT NULL, bytes BIGINT NOT NULL, goodput_bps BIGINT NOT NULL, paced_bps BIGINT NOT NULL, \
     retransmits BIGINT NOT NULL, retransmitted_bytes BIGINT, min_rtt_ns BIGINT, congestion_control TEXT NOT NULL, \
     limited_by TEXT NOT NULL, limited_share DOUBLE PRECISION NOT NULL)";
pub(super) const TCP_AT: &str = "CREATE INDEX IF NOT EXISTS tcp_at ON tcp (at_ns)";
/// The diagnosis as JSON: nobody asks the database for its parts.
pub(super) const DIAGNOSES: &str = "CREATE TABLE IF NOT EXISTS diagnoses (id TEXT PRIMARY KEY, test TEXT NOT NULL, sender TEXT NOT NULL, receiver TEXT NOT NULL, \
     at_ns BIGINT NOT NULL, alarm TEXT NOT NULL, diagnosis TEXT NOT NULL)";
pub(super) const DIAGNOSES_AT: &str = "CREATE INDEX IF NOT EXISTS diagnoses_at ON diagnoses (at_ns)";

/// Takes a measurement; whether it is new.
pub(super) async fn take(to: &mut SqliteConnection, one: &Measurement) -> Result<bool, sqlx::Error> {
    let rows = match &one.measured {
        Measured::Rtt(trips) => take_round_trips(to, one, trips).await?,
        Measured::Tcp(flow) => take_tcp(to, one, flow).await?,
        Measured::Diagnose(diagnosis) => take_diagnosis(to, one, diagnosis).await?,
        Measured::Unknown => 0,
    };
    Ok(rows > 0)
}

/// Measurements of all kinds since `from_ns`, kind by kind, each in order of time.
pub(super) async fn since(from: &mut SqliteConnection, from_ns: i64) -> Result<Vec<Measurement>, sqlx::Error> {
    let mut all = Vec::new();
    let rows = sqlx::query(
        "SELECT id, test, sender, receiver, at_ns, duration_ns, sent, lost, min_ns, p50_ns, p90_ns, p99_ns, max_ns, outages, \
         longest_outage_ns, gaps_ns FROM round_trips WHERE at_ns >= $1 ORDER BY at_ns, id",
    );
    for row in rows.bind(from_ns).fetch_all(&mut *from).await? {
        all.push(read(&row, Measured::Rtt(round_trips(&row)?))?);
    }
    let rows = sqlx::query(
        "SELECT id, test, sender, receiver, at_ns, duration_ns, bytes, goodput_bps, paced_bps, retransmits, \
         retransmitted_bytes, min_rtt_ns, congestion_control, limited_by, limited_share FROM tcp \
         WHERE at_ns >= $1 ORDER BY at_ns, id",
    );
    for row in rows.bind(from_ns).fetch_all(&mut *from).await? {
        all.push(read(&row, Measured::Tcp(tcp(&row)?))?);
    }
    let rows = sqlx::query(
        "SELECT id, test, sender, receiver, at_ns, diagnosis FROM diagnoses WHERE at_ns >= $1 ORDER BY at_ns, id",
    );
    for row in rows.bind(from_ns).fetch_all(&mut *from).await? {
        let text: String = row.try_get(5)?;
        let diagnosis = serde_json::from_str(&text).map_err(|error| sqlx::Error::Decode(Box::new(error)))?;
        all.push(read(&row, Measured::Diagnose(diagnosis))?);
    }
    Ok(all)
}

type Taken = Result<u64, sqlx::Error>;

async fn take_round_trips(to: &mut SqliteConnection, head: &Measurement, trips: &RoundTrips) -> Taken {
    let quantile = |of: fn(&Quantiles) -> i64| trips.quantiles.as_ref().map(of);
    let inserted = sqlx::query(
        "INSERT INTO round_trips (id, test, sender, receiver, at_ns, duration_ns, sent, lost, min_ns, p50_ns, p90_ns, p99_ns, max_ns, \
         outages, longest_outage_ns, gaps_ns) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16) \
         ON CONFLICT (id) DO NOTHING",
    )
    .bind(&head.id)
    .bind(&head.test)
    .bind(&head.sender)
    .bind(&head.receiver)
    .bind(head.at_ns)
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
    .execute(&mut *to)
    .await?;
    Ok(inserted.rows_affected())
}

async fn take_tcp(to: &mut SqliteConnection, head: &Measurement, flow: &TcpFlow) -> Taken {
    let inserted = sqlx::query(
        "INSERT INTO tcp (id, test, sender, receiver, at_ns, duration_ns, bytes, goodput_bps, paced_bps, retransmits, retransmitted_bytes, \
         min_rtt_ns, congestion_control, limited_by, limited_share) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15) ON CONFLICT (id) DO NOTHING",
    )
    .bind(&head.id)
    .bind(&head.test)
    .bind(&head.sender)
    .bind(&head.receiver)
    .bind(head.at_ns)
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
    .execute(&mut *to)
    .await?;
    Ok(inserted.rows_affected())
}

/// The site that was asked for it need not be asked again.
async fn take_diagnosis(to: &mut SqliteConnection, head: &Measurement, diagnosis: &Diagnosis) -> Taken {
    let text = serde_json::to_string(diagnosis).map_err(|error| sqlx::Error::Encode(Box::new(error)))?;
    let inserted = sqlx::query(
        "INSERT INTO diagnoses (id, test, sender, receiver, at_ns, alarm, diagnosis) VALUES ($1, $2, $3, $4, $5, $6, $7) \
         ON CONFLICT (id) DO NOTHING",
    )
    .bind(&head.id)
    .bind(&head.test)
    .bind(&head.sender)
    .bind(&head.receiver)
    .bind(head.at_ns)
    .bind(&diagnosis.alarm)
    .bind(text)
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

fn read(row: &SqliteRow, measured: Measured) -> Result<Measurement, sqlx::Error> {
    Ok(Measurement {
        id: row.try_get(0)?,
        test: row.try_get(1)?,
        sender: row.try_get(2)?,
        receiver: row.try_get(3)?,
        at_ns: row.try_get(4)?,
        measured,
    })
}

fn round_trips(row: &SqliteRow) -> Result<RoundTrips, sqlx::Error> {
    let quantiles = match row.try_get::<Option<i64>, _>(8)? {
        None => None,
        Some(min_ns) => Some(Quantiles {
            min_ns,
            p50_ns: row.try_get(9)?,
            p90_ns: row.try_get(10)?,
            p99_ns: row.try_get(11)?,
            max_ns: row.try_get(12)?,
        }),
    };
    Ok(RoundTrips {
        duration_ns: row.try_get(5)?,
        sent: row.try_get(6)?,
        lost: row.try_get(7)?,
        quantiles,
        outages: row.try_get(13)?,
        longest_outage_ns: row.try_get(14)?,
        gaps_ns: row.try_get(15)?,
    })
}

fn tcp(row: &SqliteRow) -> Result<TcpFlow, sqlx::Error> {
    Ok(TcpFlow {
        duration_ns: row.try_get(5)?,
        bytes: row.try_get(6)?,
        goodput_bps: row.try_get(7)?,
        paced_bps: row.try_get(8)?,
        retransmits: row.try_get(9)?,
        retransmitted_bytes: row.try_get(10)?,
        min_rtt_ns: row.try_get(11)?,
        congestion_control: row.try_get(12)?,
        limited_by: row.try_get(13)?,
        limited_share: row.try_get(14)?,
    })
}
