//! What a site has measured and the coordinator has not confirmed.

use std::path::Path;

use serde::{Deserialize, Serialize};
use sqlx::Row;

use super::address::Address;
use super::database::{Database, Form, transact};
use super::error::StoreError;
use super::{Measurement, TestResult};

const FORM: Form = Form {
    number: 1,
    oldest: 1,
    tables: &[
        "CREATE TABLE IF NOT EXISTS outbox (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, result TEXT NOT NULL)",
    ],
    fills: &[],
};
/// Results that are kept at most: a year of a mesh of 40 sites. Then the oldest go, so that a disk does not fill.
const KEPT_MOST: i64 = 400_000;

/// A result of any kind. A [`Measurement`] says its kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Kept {
    /// Of kind `rtt`, `tcp` or `diagnose`.
    Measurement(Measurement),
    /// Of kind `udp`.
    Udp(TestResult),
}

impl Kept {
    fn id(&self) -> &String {
        match self {
            Self::Measurement(measurement) => &measurement.id,
            Self::Udp(result) => &result.id,
        }
    }
}

/// Results that wait for their delivery.
#[derive(Debug)]
pub struct Outbox(Database);

impl Outbox {
    /// Opens or makes it.
    ///
    /// # Errors
    /// Where the file cannot be used, or a newer longhaul wrote it.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Ok(Self(Database::open(Address::from(path), &FORM)?))
    }

    /// Keeps a result. It is on the disk when this returns.
    ///
    /// # Errors
    /// Where the disk is full or fails: the result is not kept.
    pub fn put(&mut self, result: &Kept) -> Result<(), StoreError> {
        let text = serde_json::to_string(result).map_err(|error| sqlx::Error::Encode(Box::new(error)))?;
        self.0.run(async |open| {
            transact(&mut open.connection, async |transaction| {
                sqlx::query("INSERT INTO outbox (id, result) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING")
                    .bind(result.id())
                    .bind(text)
                    .execute(&mut *transaction)
                    .await?;
                sqlx::query("DELETE FROM outbox WHERE number <= (SELECT max(number) FROM outbox) - $1")
                    .bind(KEPT_MOST)
                    .execute(&mut *transaction)
                    .await?;
                Ok(())
            })
            .await
        })
    }

    /// The oldest results after the one with the number `after`, `most` of them, each with its number. Numbers are above 0.
    ///
    /// # Errors
    /// Where the file cannot be read.
    pub fn after(&mut self, after: i64, most: u32) -> Result<Vec<(i64, Kept)>, StoreError> {
        let rows = self.0.run(async |open| {
            sqlx::query("SELECT number, result FROM outbox WHERE number > $1 ORDER BY number LIMIT $2")
                .bind(after)
                .bind(i64::from(most))
                .fetch_all(&mut open.connection)
                .await
        })?;
        let read = |row: sqlx::any::AnyRow| {
            let kept = serde_json::from_str(&row.try_get::<String, _>(1)?)
                .map_err(|error| sqlx::Error::Decode(Box::new(error)))?;
            Ok((row.try_get(0)?, kept))
        };
        rows.into_iter().map(read).collect()
    }

    /// All results that wait, the oldest first.
    ///
    /// # Errors
    /// Where the file cannot be read.
    pub fn all(&mut self) -> Result<Vec<Kept>, StoreError> {
        Ok(self.after(0, u32::MAX)?.into_iter().map(|(_, kept)| kept).collect())
    }

    /// The coordinator has these.
    ///
    /// # Errors
    /// Where the file cannot be written: they will be delivered again.
    pub fn confirmed(&mut self, ids: &[String]) -> Result<(), StoreError> {
        self.0.run(async |open| {
            transact(&mut open.connection, async |transaction| {
                for id in ids {
                    sqlx::query("DELETE FROM outbox WHERE id = $1").bind(id).execute(&mut *transaction).await?;
                }
                Ok(())
            })
            .await
        })
    }
}
