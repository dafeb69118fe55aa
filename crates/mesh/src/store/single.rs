//! Single results with all that is kept of them: what the page of one test and the lists of a pair show.

use sqlx::Row;
use sqlx::any::AnyRow;

use super::error::StoreError;
use super::flows::{HOUR_NS, Key, bytes, digits};
use super::{Kept, Measured, Measurement, Series, TestResult, measurements};

/// Of some hours, by its id: the key, what was measured, names.
const UDP: &str = "SELECT hour, results.flow, after_ns, id, sent, lost, at_sender, at_receiver, received_rate_bps, flows.test, flows.sender, flows.receiver \
     FROM results JOIN flows ON flows.flow = results.flow WHERE hour >= $1 AND hour < $2 AND id = $3";

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

/// The key, what was measured, and names, of a table: one of some hours by its id, and those of a pair, the latest first.
macro_rules! select {
    ($table:literal, $columns:literal) => {
        (
            concat!(
                "SELECT hour, ", $table, ".flow, after_ns, id, ", $columns, ", flows.test, flows.sender, flows.receiver FROM ", $table,
                " JOIN flows ON flows.flow = ", $table, ".flow WHERE hour >= $1 AND hour < $2 AND id = $3"
            ),
            // It looks for the latest keys first, and reads only their rows: a diagnosis is long, and a pair may have thousands.
            by_unit!(
                "SELECT hour, ", $table, ".flow, after_ns, id, ", $columns, ", flows.test, flows.sender, flows.receiver FROM ", $table,
                " JOIN flows ON flows.flow = ", $table, ".flow WHERE (hour, ", $table, ".flow, after_ns, id) IN (\
                 SELECT hour, flow, after_ns, id FROM (SELECT hour, ", $table, ".flow AS flow, after_ns, id \
                 FROM units CROSS JOIN flows CROSS JOIN ", $table,
                " WHERE flows.sender = $3 AND flows.receiver = $4 AND hour = unit AND ", $table, ".flow = flows.flow \
                 AND hour * $5 + after_ns >= $6 AND hour * $5 + after_ns < $7 ORDER BY hour DESC, after_ns DESC, id LIMIT $8) AS latest) \
                 ORDER BY hour DESC, after_ns DESC, id"
            ),
        )
    };
}

impl Listed {
    const ALL: [Self; 3] = [Self::RoundTrips, Self::Tcp, Self::Diagnoses];

    fn queries(self) -> (&'static str, &'static str) {
        match self {
            Self::RoundTrips => select!(
                "round_trips",
                "duration_ns, sent, lost, min_ns, p50_ns, p90_ns, p99_ns, max_ns, outages, longest_outage_ns, gaps_ns"
            ),
            Self::Tcp => select!(
                "tcp",
                "duration_ns, bytes, goodput_bps, paced_bps, retransmits, retransmitted_bytes, min_rtt_ns, congestion_control, limited_by, \
                 limited_share"
            ),
            Self::Diagnoses => select!("diagnoses", "diagnosis"),
        }
    }

    fn read(self, row: &AnyRow) -> Result<Measurement, sqlx::Error> {
        let measured = match self {
            Self::RoundTrips => Measured::Rtt(measurements::round_trips(row)?),
            Self::Tcp => Measured::Tcp(measurements::tcp(row)?),
            Self::Diagnoses => Measured::Diagnose(measurements::diagnosis(row)?),
        };
        let key = Key::of(row)?;
        Ok(Measurement {
            id: digits(&key.id),
            test: row.try_get("test")?,
            sender: row.try_get("sender")?,
            receiver: row.try_get("receiver")?,
            at_ns: key.at_ns(),
            measured,
        })
    }
}

impl Series {
    /// The result with this id that began from `from_ns` on and before `until_ns`, in whole hours, of any kind; `None`: there is none.
    ///
    /// # Errors
    /// Where the store cannot be read, or an id is no 32 hexadecimal digits.
    pub async fn test(&self, id: &str, (from_ns, until_ns): (i64, i64)) -> Result<Option<Kept>, StoreError> {
        let (from, until) = (from_ns.div_euclid(HOUR_NS), until_ns.saturating_sub(1).div_euclid(HOUR_NS) + 1);
        let id = bytes(id)?;
        let row = sqlx::query(UDP).bind(from).bind(until).bind(id.clone()).fetch_optional(&self.0).await?;
        if let Some(row) = row {
            return Ok(Some(Kept::Udp(udp(&row)?)));
        }
        for listed in Listed::ALL {
            let query = sqlx::query(listed.queries().0).bind(from).bind(until).bind(id.clone());
            if let Some(row) = query.fetch_optional(&self.0).await? {
                return Ok(Some(Kept::Measurement(listed.read(&row)?)));
            }
        }
        Ok(None)
    }

    /// Measurements of a pair that began from `from_ns` on and before `until_ns`, the latest first, `most` of them.
    ///
    /// # Errors
    /// Where the store cannot be read.
    pub async fn measurements(
        &self,
        listed: Listed,
        (sender, receiver): (&str, &str),
        (from_ns, until_ns): (i64, i64),
        most: u32,
    ) -> Result<Vec<Measurement>, StoreError> {
        let rows = sqlx::query(listed.queries().1)
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
        Ok(rows.iter().map(|row| listed.read(row)).collect::<Result<_, _>>()?)
    }
}

fn udp(row: &AnyRow) -> Result<TestResult, sqlx::Error> {
    let key = Key::of(row)?;
    Ok(TestResult {
        id: digits(&key.id),
        test: row.try_get("test")?,
        sender: row.try_get("sender")?,
        receiver: row.try_get("receiver")?,
        at_ns: key.at_ns(),
        sent: row.try_get(4)?,
        lost: row.try_get(5)?,
        at_sender: row.try_get(6)?,
        at_receiver: row.try_get(7)?,
        received_rate_bps: row.try_get(8)?,
    })
}
