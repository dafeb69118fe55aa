//! Diagnoses that alarms ask of sites, each once.

use longhaul_mesh_model::result::Wanted;
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, AnyPool, Row};

pub(super) const WANTED: &str = "CREATE TABLE IF NOT EXISTS wanted (alarm TEXT PRIMARY KEY, test TEXT NOT NULL, sender TEXT NOT NULL, receiver TEXT NOT NULL, \
     initiator TEXT NOT NULL, asked_ns BIGINT NOT NULL)";

/// A diagnosis is wanted of the site `initiator`.
pub(super) async fn want(
    to: &mut AnyConnection,
    initiator: &str,
    now_ns: i64,
    wanted: &Wanted,
) -> Result<(), sqlx::Error> {
    sqlx::query(
        "INSERT INTO wanted (alarm, test, sender, receiver, initiator, asked_ns) VALUES ($1, $2, $3, $4, $5, $6)",
    )
    .bind(&wanted.alarm)
    .bind(&wanted.test)
    .bind(&wanted.sender)
    .bind(&wanted.receiver)
    .bind(initiator)
    .bind(now_ns)
    .execute(to)
    .await
    .map(drop)
}

/// What is wanted of a site.
pub(super) async fn of(from: &mut AnyConnection, initiator: &str, from_ns: i64) -> Result<Vec<Wanted>, sqlx::Error> {
    let rows = sqlx::query(
        "SELECT alarm, test, sender, receiver FROM wanted WHERE initiator = $1 AND asked_ns >= $2 ORDER BY asked_ns, alarm LIMIT 32",
    );
    rows.bind(initiator).bind(from_ns).fetch_all(from).await?.iter().map(read).collect()
}

/// What is wanted of all sites, each with the time at which it was asked for.
pub(super) async fn all(from: &AnyPool, from_ns: i64, most: u32) -> Result<Vec<(i64, Wanted)>, sqlx::Error> {
    let rows = sqlx::query(
        "SELECT alarm, test, sender, receiver, asked_ns FROM wanted WHERE asked_ns >= $1 ORDER BY asked_ns, alarm LIMIT $2",
    );
    let rows = rows.bind(from_ns).bind(i64::from(most)).fetch_all(from).await?;
    rows.iter().map(|row| Ok((row.try_get(4)?, read(row)?))).collect()
}

fn read(row: &AnyRow) -> Result<Wanted, sqlx::Error> {
    Ok(Wanted { alarm: row.try_get(0)?, test: row.try_get(1)?, sender: row.try_get(2)?, receiver: row.try_get(3)? })
}
