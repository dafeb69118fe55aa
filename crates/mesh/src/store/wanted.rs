//! Diagnoses that alarms ask of sites, each once.

use longhaul_mesh_model::result::Wanted;
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row};

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
    let read = |row: AnyRow| {
        Ok(Wanted { alarm: row.try_get(0)?, test: row.try_get(1)?, sender: row.try_get(2)?, receiver: row.try_get(3)? })
    };
    rows.bind(initiator).bind(from_ns).fetch_all(from).await?.into_iter().map(read).collect()
}
