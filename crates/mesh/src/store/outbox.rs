//! What a site has measured and the coordinator has not confirmed: results, and files beside them.

use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row};

use super::address::Address;
use super::database::{Access, Database, Form, transact};
use super::error::{StoreError, readable};
use super::summary::DAY_NS;
use super::{FileKind, Measurement, TestFile, TestResult};

const FORM: Form = Form {
    number: 1,
    oldest: 1,
    tables: &[
        "CREATE TABLE IF NOT EXISTS outbox (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, result TEXT NOT NULL)",
    ],
    beside: &[FILES],
    fills: &[],
};
/// An older longhaul knows nothing of this table and goes on without it, so it does not change the number of the form.
const FILES: &str = "CREATE TABLE IF NOT EXISTS files \
    (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, kind TEXT NOT NULL, at_ns INTEGER NOT NULL, bytes INTEGER NOT NULL, \
    file TEXT NOT NULL)";
/// Results that are kept at most: a year of a mesh of 40 sites. Then the oldest go, so that a disk does not fill.
const KEPT_MOST: i64 = 400_000;
/// Letters of files that are kept at most, and for how long: files of a TCP test every ten minutes for a week. Then the oldest go.
const FILES_LETTERS_MOST: i64 = 256 << 20;
const FILES_NS: i64 = 30 * DAY_NS;

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
    pub(crate) fn id(&self) -> &String {
        match self {
            Self::Measurement(measurement) => &measurement.id,
            Self::Udp(result) => &result.id,
        }
    }
}

/// Results that wait for their delivery.
#[derive(Debug)]
pub struct Outbox {
    database: Database,
    /// Letters that all files may take.
    files_most: i64,
}

impl Outbox {
    /// Opens or makes it.
    ///
    /// # Errors
    /// Where the file cannot be used, or a newer longhaul wrote it.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Self::open_for(path, FILES_LETTERS_MOST)
    }

    /// The same, where all files may take so many letters.
    ///
    /// # Errors
    /// As those of [`Self::open`].
    pub fn open_for(path: &Path, files_most: i64) -> Result<Self, StoreError> {
        let mut database = Database::open(Address::from(path), &FORM, Access::Write)?;
        database.run(async |open| sqlx::query(FILES).execute(&mut open.connection).await.map(drop))?;
        Ok(Self { database, files_most })
    }

    /// Keeps a result. It is on the disk when this returns.
    ///
    /// # Errors
    /// Where the disk is full or fails: the result is not kept.
    pub fn put(&mut self, result: &Kept) -> Result<(), StoreError> {
        self.put_both(result, None)
    }

    /// Keeps a result, and the file beside it. Both are on the disk when this returns, or neither.
    ///
    /// # Errors
    /// As those of [`Self::put`].
    pub fn put_both(&mut self, result: &Kept, file: Option<&TestFile>) -> Result<(), StoreError> {
        let (text, files_most) = (text_of(result)?, self.files_most);
        let file = file.map(|file| Ok::<_, sqlx::Error>((file, text_of(file)?))).transpose()?;
        self.database.run(async |open| {
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
                match file {
                    Some((file, text)) => put_file(transaction, (file, text), files_most).await,
                    None => Ok(()),
                }
            })
            .await
        })
    }

    /// The oldest results after the one with the number `after`, `most` of them, each with its number. Numbers are above 0. What cannot be read is
    /// passed over and stays: another version may read it.
    ///
    /// # Errors
    /// Where the file cannot be read.
    pub fn after(&mut self, mut after: i64, most: u32) -> Result<Vec<(i64, Kept)>, StoreError> {
        loop {
            let rows = self.database.run(async |open| {
                sqlx::query("SELECT number, id, result FROM outbox WHERE number > $1 ORDER BY number LIMIT $2")
                    .bind(after)
                    .bind(i64::from(most))
                    .fetch_all(&mut open.connection)
                    .await
            })?;
            let Some(last) = rows.last() else { return Ok(Vec::new()) };
            after = last.try_get(0)?;
            let kept: Vec<_> = rows.iter().filter_map(|row| read(row, "result")).collect();
            if !kept.is_empty() {
                return Ok(kept);
            }
        }
    }

    /// All results that wait, the oldest first.
    ///
    /// # Errors
    /// Where the file cannot be read.
    pub fn all(&mut self) -> Result<Vec<Kept>, StoreError> {
        Ok(self.after(0, u32::MAX)?.into_iter().map(|(_, kept)| kept).collect())
    }

    /// The oldest file after the one with the number `after`, with its number; `None` as the kind: of any. Numbers are above 0. What cannot be read is
    /// passed over, as by [`Self::after`].
    ///
    /// # Errors
    /// Where the outbox cannot be read.
    pub fn file_after(
        &mut self,
        mut after: i64,
        kind: Option<FileKind>,
    ) -> Result<Option<(i64, TestFile)>, StoreError> {
        loop {
            let row = self.database.run(async |open| {
                let question =
                    "SELECT number, id, file FROM files WHERE number > $1 AND $2 IN ('', kind) ORDER BY number LIMIT 1";
                sqlx::query(question)
                    .bind(after)
                    .bind(kind.map_or("", FileKind::name))
                    .fetch_optional(&mut open.connection)
                    .await
            })?;
            let Some(row) = row else { return Ok(None) };
            if let Some(file) = read(&row, "file") {
                return Ok(Some(file));
            }
            after = row.try_get(0)?;
        }
    }

    /// The coordinator has this file.
    ///
    /// # Errors
    /// Where the outbox cannot be written: it will be delivered again.
    pub fn file_confirmed(&mut self, id: &str) -> Result<(), StoreError> {
        self.database.run(async |open| {
            sqlx::query("DELETE FROM files WHERE id = $1").bind(id).execute(&mut open.connection).await.map(drop)
        })
    }

    /// The coordinator has these.
    ///
    /// # Errors
    /// Where the file cannot be written: they will be delivered again.
    pub fn confirmed(&mut self, ids: &[String]) -> Result<(), StoreError> {
        self.database.run(async |open| {
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

/// The number of a row and what its text says. Between them is the id.
fn read<T: DeserializeOwned>(row: &AnyRow, what: &str) -> Option<(i64, T)> {
    let both = || -> Result<(i64, T), sqlx::Error> {
        let text: String = row.try_get(2)?;
        Ok((row.try_get(0)?, serde_json::from_str(&text).map_err(|error| sqlx::Error::Decode(Box::new(error)))?))
    };
    readable(both(), || format!("the {what} {} of the outbox", row.try_get::<String, _>(1).unwrap_or_default()))
}

fn text_of<T: Serialize>(value: &T) -> Result<String, sqlx::Error> {
    serde_json::to_string(value).map_err(|error| sqlx::Error::Encode(Box::new(error)))
}

/// Adds a file; the oldest make room.
async fn put_file(
    transaction: &mut AnyConnection,
    (file, text): (&TestFile, String),
    most: i64,
) -> Result<(), sqlx::Error> {
    sqlx::query(
        "INSERT INTO files (id, kind, at_ns, bytes, file) VALUES ($1, $2, $3, $4, $5) ON CONFLICT (id) DO NOTHING",
    )
    .bind(&file.id)
    .bind(file.of.name())
    .bind(file.at_ns)
    .bind(i64::try_from(text.len()).unwrap_or(i64::MAX))
    .bind(text)
    .execute(&mut *transaction)
    .await?;
    sqlx::query(
        "DELETE FROM files WHERE at_ns < $1 OR number <= (SELECT coalesce(max(number), 0) FROM \
         (SELECT number, sum(bytes) OVER (ORDER BY number DESC) AS letters FROM files) AS sums WHERE letters > $2)",
    )
    .bind(file.at_ns.saturating_sub(FILES_NS))
    .bind(most)
    .execute(&mut *transaction)
    .await?;
    Ok(())
}
