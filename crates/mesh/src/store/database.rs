//! One connection to a SQLite file.

use std::path::Path;
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection, SqliteConnection};
use tokio::runtime::{Builder, Runtime};

/// The form of the tables. A newer one is refused, not guessed.
const FORM: i64 = 1;
/// How long a writer waits for another one.
const PATIENCE: Duration = Duration::from_secs(20);

/// Why a store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database says so.
    #[error("{0}")]
    Database(#[from] sqlx::Error),
    /// The system gives no thread or descriptor.
    #[error("{0}")]
    System(#[from] std::io::Error),
    /// Written by a newer longhaul.
    #[error("the store has form {0}, this longhaul knows {FORM}: use the newer longhaul")]
    Newer(i64),
}

/// Does `work` in one transaction: all of it is on the disk when this returns, or nothing.
///
/// `sqlx` counts transactions itself. Where a full disk lets `COMMIT` fail, SQLite rolls back by itself, the count stays, and the connection takes
/// no transaction any more. So this says BEGIN and COMMIT without it.
pub(super) async fn transact<T>(
    connection: &mut SqliteConnection,
    work: impl AsyncFnOnce(&mut SqliteConnection) -> Result<T, sqlx::Error>,
) -> Result<T, sqlx::Error> {
    sqlx::query("BEGIN IMMEDIATE").execute(&mut *connection).await?;
    let done = match work(&mut *connection).await {
        Ok(done) => sqlx::query("COMMIT").execute(&mut *connection).await.map(|_| done),
        Err(error) => Err(error),
    };
    if done.is_err() {
        // It fails where SQLite has rolled back by itself.
        let _ = sqlx::query("ROLLBACK").execute(&mut *connection).await;
    }
    done
}

/// A connection, and the runtime that its library wants.
#[derive(Debug)]
pub(super) struct Database {
    pub(super) runtime: Runtime,
    pub(super) connection: SqliteConnection,
}

impl Database {
    /// Opens or makes the file, with these tables.
    pub(super) fn open(path: &Path, tables: &'static [&'static str]) -> Result<Self, StoreError> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let options = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            // A commit is on the disk before it is confirmed to anyone.
            .synchronous(SqliteSynchronous::Full)
            .busy_timeout(PATIENCE)
            .disable_statement_logging();
        let connection = runtime.block_on(async {
            let mut connection = SqliteConnection::connect_with(&options).await?;
            let form: i64 = sqlx::query_scalar("PRAGMA user_version").fetch_one(&mut connection).await?;
            if form > FORM {
                return Err(StoreError::Newer(form));
            }
            let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
            for table in tables {
                sqlx::query(*table).execute(&mut *transaction).await?;
            }
            // The number is FORM.
            sqlx::query("PRAGMA user_version = 1").execute(&mut *transaction).await?;
            transaction.commit().await?;
            Ok(connection)
        })?;
        Ok(Self { runtime, connection })
    }
}
