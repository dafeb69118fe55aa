//! Alarms that were raised, and the diagnosis that each asks of a site, once.

use longhaul_mesh_model::result::Wanted;
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row};

use super::database::transact;

/// `who`: what the alarm is about.
pub(super) const ALARMS: &str = "CREATE TABLE IF NOT EXISTS alarms (id TEXT PRIMARY KEY, who TEXT NOT NULL, raised_ns BIGINT NOT NULL, over_ns BIGINT)";
pub(super) const WANTED: &str = "CREATE TABLE IF NOT EXISTS wanted (alarm TEXT PRIMARY KEY, test TEXT NOT NULL, sender TEXT NOT NULL, receiver TEXT NOT NULL, \
     initiator TEXT NOT NULL, asked_ns BIGINT NOT NULL)";

/// An alarm that was over for less is the same one: at the edge of what is judged it may come and go.
const SAME_WITHIN_NS: i64 = 6 * 3_600_000_000_000;

/// Which of the alarms that are open now were raised before.
pub(super) async fn alarms_are(
    to: &mut AnyConnection,
    now_ns: i64,
    who: &[String],
) -> Result<Vec<String>, sqlx::Error> {
    transact(to, async |transaction| {
        let rows = sqlx::query("SELECT id, who, over_ns FROM alarms WHERE over_ns IS NULL OR over_ns > $1")
            .bind(now_ns.saturating_sub(SAME_WITHIN_NS))
            .fetch_all(&mut *transaction)
            .await?;
        let mut known = Vec::new();
        for row in rows {
            let (id, own, over): (String, String, Option<i64>) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
            let is_open = who.contains(&own);
            let now_over = if is_open { None } else { over.or(Some(now_ns)) };
            if now_over != over {
                let update = sqlx::query("UPDATE alarms SET over_ns = $1 WHERE id = $2").bind(now_over).bind(id);
                update.execute(&mut *transaction).await?;
            }
            if is_open {
                known.push(own);
            }
        }
        Ok(known)
    })
    .await
}

/// An alarm was raised, and a diagnosis is wanted of a site.
pub(super) async fn raised(
    to: &mut AnyConnection,
    (id, who): (&str, &str),
    now_ns: i64,
    diagnosis: Option<(&str, &Wanted)>,
) -> Result<(), sqlx::Error> {
    transact(to, async |transaction| {
        let alarm = sqlx::query("INSERT INTO alarms (id, who, raised_ns) VALUES ($1, $2, $3)");
        alarm.bind(id).bind(who).bind(now_ns).execute(&mut *transaction).await?;
        if let Some((initiator, wanted)) = diagnosis {
            sqlx::query(
            "INSERT INTO wanted (alarm, test, sender, receiver, initiator, asked_ns) VALUES ($1, $2, $3, $4, $5, $6)",
        )
        .bind(&wanted.alarm)
        .bind(&wanted.test)
        .bind(&wanted.sender)
        .bind(&wanted.receiver)
        .bind(initiator)
        .bind(now_ns)
        .execute(&mut *transaction)
        .await?;
        }
        Ok(())
    })
    .await
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
