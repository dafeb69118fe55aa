//! What the coordinator keeps: every result once, and sums by hour.

use std::path::Path;

use sqlx::Row;

use super::database::{Database, StoreError, transact};
use super::{Measurement, TestResult, Wanted};
use super::{measurements, summary, wanted};

const TABLES: &[&str] = &[
    measurements::ROUND_TRIPS,
    measurements::ROUND_TRIPS_AT,
    measurements::TCP,
    measurements::TCP_AT,
    measurements::DIAGNOSES,
    measurements::DIAGNOSES_AT,
    wanted::ALARMS,
    wanted::WANTED,
    "CREATE TABLE IF NOT EXISTS results (id TEXT PRIMARY KEY, test TEXT NOT NULL, sender TEXT NOT NULL, receiver TEXT NOT NULL, \
     at_ns BIGINT NOT NULL, sent BIGINT NOT NULL, lost BIGINT NOT NULL, at_sender BIGINT, at_receiver BIGINT, \
     received_rate_bps BIGINT NOT NULL)",
    "CREATE INDEX IF NOT EXISTS results_at ON results (at_ns)",
    "CREATE TABLE IF NOT EXISTS hours (test TEXT NOT NULL, sender TEXT NOT NULL, receiver TEXT NOT NULL, hour BIGINT NOT NULL, \
     tests BIGINT NOT NULL, sent BIGINT NOT NULL, lost BIGINT NOT NULL, PRIMARY KEY (test, sender, receiver, hour))",
    summary::HOURS_AT,
    summary::SPANS,
    summary::LOSSES,
    summary::SEEN,
];
const HOUR_NS: i64 = 3_600_000_000_000;

/// The sums of one pair's tests over an hour.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hour {
    /// The test's name.
    pub test: String,
    /// The site that sent.
    pub sender: String,
    /// The site that received.
    pub receiver: String,
    /// When the hour began: nanoseconds since 1970.
    pub begin_ns: i64,
    /// Tests that began in it.
    pub tests: i64,
    /// Packets that they sent.
    pub sent: i64,
    /// Packets that they lost.
    pub lost: i64,
}

/// The results of the whole mesh.
#[derive(Debug)]
pub struct Archive(Database);

impl Archive {
    /// Opens or makes it.
    ///
    /// # Errors
    /// Where the file cannot be used, or a newer longhaul wrote it.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let mut database = Database::open(path, TABLES)?;
        let Database { runtime, connection } = &mut database;
        runtime.block_on(summary::fill(connection))?;
        Ok(Self(database))
    }

    /// Takes results, those that it has already once. All are on the disk when this returns the number of new ones; after an error none is.
    ///
    /// # Errors
    /// Where the disk is full or fails.
    pub fn take(&mut self, results: &[TestResult]) -> Result<usize, StoreError> {
        let Database { runtime, connection } = &mut self.0;
        let new = runtime.block_on(transact(connection, async |transaction| {
            let mut new = 0;
            for result in results {
                let inserted = sqlx::query(
                    "INSERT INTO results (id, test, sender, receiver, at_ns, sent, lost, at_sender, at_receiver, received_rate_bps) \
                     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT (id) DO NOTHING",
                )
                .bind(&result.id)
                .bind(&result.test)
                .bind(&result.sender)
                .bind(&result.receiver)
                .bind(result.at_ns)
                .bind(result.sent)
                .bind(result.lost)
                .bind(result.at_sender)
                .bind(result.at_receiver)
                .bind(result.received_rate_bps)
                .execute(&mut *transaction)
                .await?;
                if inserted.rows_affected() == 0 {
                    continue;
                }
                new += 1;
                sqlx::query(
                    "INSERT INTO hours (test, sender, receiver, hour, tests, sent, lost) VALUES ($1, $2, $3, $4, 1, $5, $6) \
                     ON CONFLICT (test, sender, receiver, hour) DO UPDATE SET tests = hours.tests + 1, \
                     sent = hours.sent + excluded.sent, lost = hours.lost + excluded.lost",
                )
                .bind(&result.test)
                .bind(&result.sender)
                .bind(&result.receiver)
                .bind(result.at_ns.div_euclid(HOUR_NS))
                .bind(result.sent)
                .bind(result.lost)
                .execute(&mut *transaction)
                .await?;
                summary::count(&mut *transaction, result).await?;
            }
            Ok(new)
        }))?;
        Ok(new)
    }

    /// Results since `from_ns`, in order of time.
    ///
    /// # Errors
    /// Where the file cannot be read.
    pub fn since(&mut self, from_ns: i64) -> Result<Vec<TestResult>, StoreError> {
        let Database { runtime, connection } = &mut self.0;
        let rows = runtime.block_on(
            sqlx::query(
                "SELECT id, test, sender, receiver, at_ns, sent, lost, at_sender, at_receiver, received_rate_bps FROM results \
                 WHERE at_ns >= $1 ORDER BY at_ns, id",
            )
            .bind(from_ns)
            .fetch_all(connection),
        )?;
        let read = |row: sqlx::sqlite::SqliteRow| {
            Ok(TestResult {
                id: row.try_get(0)?,
                test: row.try_get(1)?,
                sender: row.try_get(2)?,
                receiver: row.try_get(3)?,
                at_ns: row.try_get(4)?,
                sent: row.try_get(5)?,
                lost: row.try_get(6)?,
                at_sender: row.try_get(7)?,
                at_receiver: row.try_get(8)?,
                received_rate_bps: row.try_get(9)?,
            })
        };
        rows.into_iter().map(read).collect()
    }

    /// Sums by hour of all pairs since `from_ns`, by pair and hour.
    ///
    /// # Errors
    /// Where the file cannot be read.
    pub fn hours(&mut self, from_ns: i64) -> Result<Vec<Hour>, StoreError> {
        let Database { runtime, connection } = &mut self.0;
        let rows = runtime.block_on(
            sqlx::query(
                "SELECT test, sender, receiver, hour, tests, sent, lost FROM hours WHERE hour >= $1 \
                 ORDER BY test, sender, receiver, hour",
            )
            .bind(from_ns.div_euclid(HOUR_NS))
            .fetch_all(connection),
        )?;
        let read = |row: sqlx::sqlite::SqliteRow| {
            Ok(Hour {
                test: row.try_get(0)?,
                sender: row.try_get(1)?,
                receiver: row.try_get(2)?,
                begin_ns: row.try_get::<i64, _>(3)? * HOUR_NS,
                tests: row.try_get(4)?,
                sent: row.try_get(5)?,
                lost: row.try_get(6)?,
            })
        };
        rows.into_iter().map(read).collect()
    }

    /// Takes measurements, those that it has already once. All are on the disk when this returns the number of new ones; after an error none is.
    /// What is of an unknown kind is left.
    ///
    /// # Errors
    /// Where the disk is full or fails.
    pub fn take_measurements(&mut self, all: &[Measurement]) -> Result<usize, StoreError> {
        let Database { runtime, connection } = &mut self.0;
        let new = runtime.block_on(transact(connection, async |transaction| {
            let mut new = 0;
            for one in all {
                new += usize::from(measurements::take(transaction, one).await?);
            }
            Ok(new)
        }))?;
        Ok(new)
    }

    /// Measurements of all kinds since `from_ns`: round trips, TCP, diagnoses, each in order of time.
    ///
    /// # Errors
    /// Where the file cannot be read.
    pub fn measurements(&mut self, from_ns: i64) -> Result<Vec<Measurement>, StoreError> {
        let Database { runtime, connection } = &mut self.0;
        Ok(runtime.block_on(measurements::since(connection, from_ns))?)
    }

    /// Alarms are open at `now_ns` of these and no others: `who` names what each is about. Those that were [`Archive::raised`] before, and were
    /// not over for more than six hours since.
    ///
    /// # Errors
    /// Where the disk is full or fails: nothing has changed.
    pub fn alarms_are(&mut self, now_ns: i64, who: &[String]) -> Result<Vec<String>, StoreError> {
        let Database { runtime, connection } = &mut self.0;
        Ok(runtime.block_on(wanted::alarms_are(connection, now_ns, who))?)
    }

    /// An alarm was raised, and this diagnosis is wanted of a site for it.
    ///
    /// # Errors
    /// Where the disk is full or fails: nothing has changed.
    pub fn raised(
        &mut self,
        id: &str,
        who: &str,
        now_ns: i64,
        diagnosis: Option<(&str, &Wanted)>,
    ) -> Result<(), StoreError> {
        let Database { runtime, connection } = &mut self.0;
        Ok(runtime.block_on(wanted::raised(connection, (id, who), now_ns, diagnosis))?)
    }

    /// What is wanted of a site and was asked for since `from_ns`, 32 at most.
    ///
    /// # Errors
    /// Where the file cannot be read.
    pub fn wanted(&mut self, initiator: &str, from_ns: i64) -> Result<Vec<Wanted>, StoreError> {
        let Database { runtime, connection } = &mut self.0;
        Ok(runtime.block_on(wanted::of(connection, initiator, from_ns))?)
    }
}
