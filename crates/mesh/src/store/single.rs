//! Single results with all that is kept of them: what the page of one test and the lists of a pair show. What cannot be read is left out.

use sqlx::Row;
use sqlx::any::AnyRow;

use super::error::{StoreError, readable};
use super::flows::{HOUR_NS, Key, bytes, digits, name_of};
use super::{Kept, Measured, Measurement, Series, TestResult, measurements};

/// Rows of each kind in which an id is looked for at most, the latest first, unless its hour is known. Who makes up ids must not have the results of
/// days read for each.
const LOOKED_THROUGH_MOST: i64 = 50_000;

/// How a row is found by its id.
struct ById {
    table: &'static str,
    /// Its key, in some hours. Of other rows no more than the key is read.
    key: &'static str,
    /// The row of a key: that, what was measured, names.
    row: &'static str,
}

macro_rules! by_id {
    ($table:literal, $columns:literal) => {
        ById {
            table: $table,
            key: concat!(
                "SELECT hour, flow, after_ns, id FROM (SELECT hour, flow, after_ns, id FROM ", $table,
                " WHERE hour >= $1 AND hour < $2 ORDER BY hour DESC, flow DESC, after_ns DESC, id DESC LIMIT $3) AS latest WHERE id = $4"
            ),
            row: concat!(
                "SELECT hour, flow, after_ns, id, ", $columns, ", test, sender, receiver FROM ", $table,
                " JOIN flows USING (flow) WHERE hour = $1 AND flow = $2 AND after_ns = $3 AND id = $4"
            ),
        }
    };
}

/// How a table of measurements is asked: for one by its id, and for those of a flow between two times, the latest first.
macro_rules! questions {
    ($table:literal, $columns:literal) => {
        (
            by_id!($table, $columns),
            by_unit!(
                "SELECT hour, flow, after_ns, id, ",
                $columns,
                ", test, sender, receiver FROM units CROSS JOIN ",
                $table,
                " JOIN flows USING (flow) WHERE hour = unit AND flow = $3 AND hour * $4 + after_ns >= $5 \
                 AND hour * $4 + after_ns < $6 ORDER BY hour DESC, after_ns DESC, id DESC LIMIT $7"
            ),
        )
    };
}

const UDP: ById = by_id!("results", "sent, lost, at_sender, at_receiver, received_rate_bps");

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

impl Listed {
    const ALL: [Self; 3] = [Self::RoundTrips, Self::Tcp, Self::Diagnoses];

    fn questions(self) -> (ById, &'static str) {
        match self {
            Self::RoundTrips => questions!(
                "round_trips",
                "duration_ns, sent, lost, min_ns, p50_ns, p90_ns, p99_ns, max_ns, outages, longest_outage_ns, gaps_ns"
            ),
            Self::Tcp => questions!(
                "tcp",
                "duration_ns, bytes, goodput_bps, paced_bps, retransmits, retransmitted_bytes, min_rtt_ns, congestion_control, limited_by, \
                 limited_share"
            ),
            // Over ten years, by the index of its flow: no row is read that is not asked for, as each is long.
            Self::Diagnoses => (
                by_id!("diagnoses", "diagnosis"),
                "SELECT hour, flow, after_ns, id, diagnosis, test, sender, receiver FROM diagnoses JOIN flows USING (flow) \
                 WHERE hour >= $1 AND hour < $2 AND flow = $3 AND hour * $4 + after_ns >= $5 AND hour * $4 + after_ns < $6 \
                 ORDER BY hour DESC, after_ns DESC, id DESC LIMIT $7",
            ),
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
    /// The result with this id that began from `from_ns` on and before `until_ns`, in whole hours, of any kind; `None`: there is none. Of more hours
    /// than one the latest 50,000 results of each kind are looked through.
    ///
    /// # Errors
    /// Where the store cannot be read, or an id is no 32 hexadecimal digits.
    pub async fn test(&self, id: &str, (from_ns, until_ns): (i64, i64)) -> Result<Option<Kept>, StoreError> {
        let (from, until) = (from_ns.div_euclid(HOUR_NS), until_ns.saturating_sub(1).div_euclid(HOUR_NS) + 1);
        let most = if until - from > 1 { LOOKED_THROUGH_MOST } else { i64::MAX };
        let (within, id) = ((from, until, most), bytes(id)?);
        if let Some(row) = self.by_id(&UDP, within, &id).await?
            && let Some(result) = readable(udp(&row), || name_of(UDP.table, &row))
        {
            return Ok(Some(Kept::Udp(result)));
        }
        for listed in Listed::ALL {
            let (by_id, _) = listed.questions();
            if let Some(row) = self.by_id(&by_id, within, &id).await?
                && let Some(found) = readable(listed.read(&row), || name_of(by_id.table, &row))
            {
                return Ok(Some(Kept::Measurement(found)));
            }
        }
        Ok(None)
    }

    /// The row with this id, in hours since 1970 from one on and before another, of so many rows.
    async fn by_id(
        &self,
        question: &ById,
        (from, until, most): (i64, i64, i64),
        id: &[u8],
    ) -> Result<Option<AnyRow>, StoreError> {
        let key = sqlx::query(question.key).bind(from).bind(until).bind(most).bind(id.to_vec());
        let key = key.fetch_optional(&self.0).await?;
        let key = key.and_then(|row| readable(Key::of(&row), || name_of(question.table, &row)));
        let Some(Key { hour, flow, after_ns, id, .. }) = key else { return Ok(None) };
        let row = sqlx::query(question.row).bind(hour).bind(flow).bind(after_ns).bind(id);
        Ok(row.fetch_optional(&self.0).await?)
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
        let flows = sqlx::query_scalar("SELECT flow FROM flows WHERE sender = $1 AND receiver = $2");
        let flows: Vec<i64> = flows.bind(sender).bind(receiver).fetch_all(&self.0).await?;
        let (ById { table, .. }, latest) = listed.questions();
        let mut all = Vec::new();
        for flow in flows {
            let rows = sqlx::query(latest)
                .bind(from_ns.div_euclid(HOUR_NS))
                .bind(until_ns.saturating_sub(1).div_euclid(HOUR_NS) + 1)
                .bind(flow)
                .bind(HOUR_NS)
                .bind(from_ns)
                .bind(until_ns)
                .bind(i64::from(most))
                .fetch_all(&self.0)
                .await?;
            all.extend(rows.iter().filter_map(|row| readable(listed.read(row), || name_of(table, row))));
        }
        all.sort_by(|one, other| (other.at_ns, &other.id).cmp(&(one.at_ns, &one.id)));
        all.truncate(most as usize);
        Ok(all)
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

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use sqlx::sqlite::SqliteConnectOptions;
    use sqlx::{AssertSqlSafe, ConnectOptions};

    use super::*;
    use crate::store::Archive;

    /// A store in a file that goes with the first part, with a result of UDP in each of ten hours.
    fn store(name: &str) -> (impl Sized + use<>, PathBuf, Vec<TestResult>) {
        struct Gone(PathBuf);
        impl Drop for Gone {
            fn drop(&mut self) {
                let _ = std::fs::remove_dir_all(&self.0);
            }
        }
        let folder = std::env::temp_dir().join(format!("longhaul-mesh-single-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir(&folder).unwrap();
        let path = folder.join("archive");
        let result = |hour: i64| TestResult {
            id: format!("{hour:032x}"),
            test: "probes".into(),
            sender: "ithaca".into(),
            receiver: "geneva".into(),
            at_ns: hour * HOUR_NS,
            sent: 1000,
            lost: 0,
            at_sender: None,
            at_receiver: None,
            received_rate_bps: 1_000_000,
        };
        let all: Vec<TestResult> = (480_000..480_010).map(result).collect();
        Archive::open(&path).unwrap().take(&all).unwrap();
        (Gone(folder), path, all)
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    }

    #[test]
    fn an_id_is_looked_for_in_the_latest_results() {
        let (_folder, path, all) = store("latest");
        let runtime = runtime();
        let series = runtime.block_on(Series::open(&path)).unwrap();
        let is_found = |number: usize, most: usize| {
            let (id, most) = (bytes(&all[number].id).unwrap(), most as i64);
            runtime.block_on(series.by_id(&UDP, (480_000, 480_010, most), &id)).unwrap().is_some()
        };
        for most in [5, 10] {
            let found: Vec<bool> = (0..10).map(|number| is_found(number, most)).collect();
            assert_eq!(found, (0..10).map(|number| number >= 10 - most).collect::<Vec<_>>(), "{most}");
        }
    }

    /// A list of ten years looks a pair's diagnoses up, and sorts none; an id that is not there has keys looked through and no more.
    #[test]
    fn questions_over_long_times_are_look_ups() {
        let (_folder, path, _) = store("plan");
        let plan = |question: &str| {
            let explain = format!("EXPLAIN QUERY PLAN {question}");
            let steps = runtime().block_on(async {
                let mut connection = SqliteConnectOptions::new().filename(&path).connect().await.unwrap();
                sqlx::query(AssertSqlSafe(explain)).fetch_all(&mut connection).await.unwrap()
            });
            steps.iter().map(|step| step.get::<String, _>(3)).collect::<Vec<_>>().join("\n")
        };
        let (by_id, latest) = Listed::Diagnoses.questions();
        let listed = plan(latest);
        assert!(listed.contains("diagnoses_of_flow (flow=? AND hour>? AND hour<?)"), "{listed}");
        assert!(!listed.contains("TEMP B-TREE"), "{listed}");
        for question in [by_id, UDP] {
            let (key, row) = (plan(question.key), plan(question.row));
            assert!(key.contains("PRIMARY KEY (hour>? AND hour<?)") && !key.contains("MATERIALIZE"), "{key}");
            assert!(row.contains("PRIMARY KEY (hour=? AND flow=? AND after_ns=? AND id=?)"), "{row}");
        }
    }
}
