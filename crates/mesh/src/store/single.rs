//! Single results with all that is kept of them: what the page of one test and the lists of a pair show.

use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use super::database::StoreError;
use super::{Diagnosis, Kept, Measured, Measurement, Quantiles, RoundTrips, Series, TcpFlow, TestResult};

const UDP: &str = "SELECT id, test, sender, receiver, at_ns, sent, lost, at_sender, at_receiver, received_rate_bps FROM results WHERE id = $1";

/// A table of measurements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listed {
    /// Of round trips.
    RoundTrips,
    /// Of TCP.
    Tcp,
    /// Of diagnoses.
    Diagnoses,
}

/// The same columns, chosen by id or by pair and time.
macro_rules! select {
    ($columns:literal) => {
        (
            concat!("SELECT id, test, sender, receiver, at_ns, ", $columns, " WHERE id = $1"),
            concat!(
                "SELECT id, test, sender, receiver, at_ns, ",
                $columns,
                " WHERE sender = $1 AND receiver = $2 AND at_ns >= $3 AND at_ns < $4 ORDER BY at_ns DESC, id LIMIT $5"
            ),
        )
    };
}

impl Listed {
    const ALL: [Self; 3] = [Self::RoundTrips, Self::Tcp, Self::Diagnoses];

    /// One by its id, and those of a pair, the latest first.
    fn queries(self) -> (&'static str, &'static str) {
        match self {
            Self::RoundTrips => select!(
                "duration_ns, sent, lost, min_ns, p50_ns, p90_ns, p99_ns, max_ns, outages, longest_outage_ns, gaps_ns FROM round_trips"
            ),
            Self::Tcp => select!(
                "duration_ns, bytes, goodput_bps, paced_bps, retransmits, retransmitted_bytes, min_rtt_ns, congestion_control, limited_by, \
                 limited_share FROM tcp"
            ),
            Self::Diagnoses => select!("diagnosis FROM diagnoses"),
        }
    }

    fn read(self, row: &SqliteRow) -> Result<Measurement, sqlx::Error> {
        let measured = match self {
            Self::RoundTrips => Measured::Rtt(round_trips(row)?),
            Self::Tcp => Measured::Tcp(tcp(row)?),
            Self::Diagnoses => Measured::Diagnose(diagnosis(row)?),
        };
        Ok(Measurement {
            id: row.try_get("id")?,
            test: row.try_get("test")?,
            sender: row.try_get("sender")?,
            receiver: row.try_get("receiver")?,
            at_ns: row.try_get("at_ns")?,
            measured,
        })
    }
}

impl Series {
    /// The result with this id, of any kind; `None`: there is none.
    ///
    /// # Errors
    /// Where the file cannot be read.
    pub async fn test(&self, id: &str) -> Result<Option<Kept>, StoreError> {
        if let Some(row) = sqlx::query(UDP).bind(id).fetch_optional(&self.0).await? {
            return Ok(Some(Kept::Udp(udp(&row)?)));
        }
        for listed in Listed::ALL {
            if let Some(row) = sqlx::query(listed.queries().0).bind(id).fetch_optional(&self.0).await? {
                return Ok(Some(Kept::Measurement(listed.read(&row)?)));
            }
        }
        Ok(None)
    }

    /// Measurements of a pair that began from `from_ns` on and before `until_ns`, the latest first, `most` of them.
    ///
    /// # Errors
    /// Where the file cannot be read.
    pub async fn measurements(
        &self,
        listed: Listed,
        (sender, receiver): (&str, &str),
        (from_ns, until_ns): (i64, i64),
        most: u32,
    ) -> Result<Vec<Measurement>, StoreError> {
        let rows = sqlx::query(listed.queries().1)
            .bind(sender)
            .bind(receiver)
            .bind(from_ns)
            .bind(until_ns)
            .bind(most)
            .fetch_all(&self.0)
            .await?;
        Ok(rows.iter().map(|row| listed.read(row)).collect::<Result<_, _>>()?)
    }
}

fn udp(row: &SqliteRow) -> Result<TestResult, sqlx::Error> {
    Ok(TestResult {
        id: row.try_get("id")?,
        test: row.try_get("test")?,
        sender: row.try_get("sender")?,
        receiver: row.try_get("receiver")?,
        at_ns: row.try_get("at_ns")?,
        sent: row.try_get("sent")?,
        lost: row.try_get("lost")?,
        at_sender: row.try_get("at_sender")?,
        at_receiver: row.try_get("at_receiver")?,
        received_rate_bps: row.try_get("received_rate_bps")?,
    })
}

fn round_trips(row: &SqliteRow) -> Result<RoundTrips, sqlx::Error> {
    let quantiles = match row.try_get::<Option<i64>, _>("min_ns")? {
        None => None,
        Some(min_ns) => Some(Quantiles {
            min_ns,
            p50_ns: row.try_get("p50_ns")?,
            p90_ns: row.try_get("p90_ns")?,
            p99_ns: row.try_get("p99_ns")?,
            max_ns: row.try_get("max_ns")?,
        }),
    };
    Ok(RoundTrips {
        duration_ns: row.try_get("duration_ns")?,
        sent: row.try_get("sent")?,
        lost: row.try_get("lost")?,
        quantiles,
        outages: row.try_get("outages")?,
        longest_outage_ns: row.try_get("longest_outage_ns")?,
        gaps_ns: row.try_get("gaps_ns")?,
    })
}

fn tcp(row: &SqliteRow) -> Result<TcpFlow, sqlx::Error> {
    Ok(TcpFlow {
        duration_ns: row.try_get("duration_ns")?,
        bytes: row.try_get("bytes")?,
        goodput_bps: row.try_get("goodput_bps")?,
        paced_bps: row.try_get("paced_bps")?,
        retransmits: row.try_get("retransmits")?,
        retransmitted_bytes: row.try_get("retransmitted_bytes")?,
        min_rtt_ns: row.try_get("min_rtt_ns")?,
        congestion_control: row.try_get("congestion_control")?,
        limited_by: row.try_get("limited_by")?,
        limited_share: row.try_get("limited_share")?,
    })
}

fn diagnosis(row: &SqliteRow) -> Result<Diagnosis, sqlx::Error> {
    let text: String = row.try_get("diagnosis")?;
    serde_json::from_str(&text).map_err(|error| sqlx::Error::Decode(Box::new(error)))
}
