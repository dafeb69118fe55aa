//! Connections to a database, SQLite or PostgreSQL.
//!
//! Both take the same questions. Where their words differ this file translates: how tables are made, how a transaction begins, where the number of
//! the form is.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use rustix::process::geteuid;
use sqlx::any::AnyPoolOptions;
use sqlx::{AnyConnection, AnyPool, AssertSqlSafe, ConnectOptions, Connection};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use super::address::Address;
use super::error::StoreError;
use super::flows::Flows;

/// How long a connection may take to begin, and to say that it is there.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a question may take: longer ones are of a server that is gone and did not say so.
const LONGEST: Duration = Duration::from_secs(600);

/// A commit is on the disk before it is confirmed to anyone.
const SQLITE: &[&str] = &["PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL"];
/// Of each connection, before it reads: it waits 20 s for a writer, and a file's own definitions may do nothing beyond columns and rows (sqlite.org,
/// "Defense Against The Dark Arts").
const SQLITE_DISTRUST: &[&str] =
    &["PRAGMA busy_timeout = 20000", "PRAGMA trusted_schema = OFF", "PRAGMA cell_size_check = ON"];
/// What a file holds: the statement of each table and index, and none of the indexes that SQLite makes by itself.
const SQLITE_ENTRIES: &str = "SELECT count(*) FROM sqlite_master \
     WHERE NOT (type = 'index' AND sql IS NULL OR type IN ('table', 'index') AND sql IN (";
/// What `ANALYZE` makes.
const SQLITE_STATISTICS: &[&str] =
    &["CREATE TABLE sqlite_stat1(tbl,idx,stat)", "CREATE TABLE sqlite_stat4(tbl,idx,neq,nlt,ndlt,sample)"];
/// As [`SQLITE`]. What the server does beyond `on`, such as waiting for a second server, stays.
const POSTGRES: &[&str] = &[
    "SET lock_timeout = '20s'",
    "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'",
];

/// It waits as long as SQLite.
const POSTGRES_READ: &[&str] = &["SET default_transaction_read_only = on", "SET lock_timeout = '20s'"];

/// One writer at a time, as SQLite has it. The number is "longhaul" in ASCII.
const POSTGRES_LOCK: &str = "SELECT count(*) FROM pg_advisory_xact_lock(7813585268923004268)";
/// PostgreSQL's code of an error: the role may not do this.
const NO_RIGHT: &str = "42501";

/// The tables of a store, and the number of their form. A number that is not known is refused, not guessed.
#[derive(Debug)]
pub(super) struct Form {
    pub(super) number: i64,
    /// The oldest form that lacks tables and indexes alone: it gets them.
    pub(super) oldest: i64,
    /// In SQLite's words; an index comes after its table.
    pub(super) tables: &'static [&'static str],
    /// Tables that a file may have beside them.
    pub(super) beside: &'static [&'static str],
    /// What fills tables that an older form lacked. It may be done twice.
    pub(super) fills: &'static [&'static str],
}

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// Tables that are not there are made.
    Write,
    /// No table and no row is changed. A file that is not there has no rows.
    Read,
}

/// A connection that is open.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) connection: AnyConnection,
    /// The numbers of flows in this database. A new connection asks again: somebody may have put another database in its place.
    pub(super) flows: Flows,
}

/// A database, and the runtime that its library wants.
#[derive(Debug)]
pub(super) struct Database {
    runtime: Runtime,
    address: Address,
    form: &'static Form,
    access: Access,
    /// `None`: it failed.
    open: Option<Open>,
}

impl Database {
    /// Opens it, with these tables.
    pub(super) fn open(address: Address, form: &'static Form, access: Access) -> Result<Self, StoreError> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let open = Some(runtime.block_on(connect(&address, form, access))?);
        Ok(Self { runtime, address, form, access, open })
    }

    /// Does `work` with a connection that answers: a new one where the server was started again.
    pub(super) fn run<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut Open) -> Result<T, sqlx::Error>,
    ) -> Result<T, StoreError> {
        let Self { runtime, address, form, access, open } = self;
        runtime.block_on(async {
            // What ends in the middle, by a panic or by time, leaves no connection, and so no transaction.
            let mut own = match still_there(open.take()).await {
                Some(own) => own,
                None => connect(address, form, *access).await?,
            };
            let done = timeout(LONGEST, work(&mut own)).await.map_err(|_| StoreError::Slow(LONGEST))?;
            *open = Some(own);
            Ok(done?)
        })
    }
}

/// The connection, if it answers.
async fn still_there(open: Option<Open>) -> Option<Open> {
    let mut open = open?;
    let answer = timeout(PATIENCE, open.connection.ping()).await.ok()?;
    answer.is_ok().then_some(open)
}

fn is_postgres(connection: &AnyConnection) -> bool {
    connection.backend_name() == "PostgreSQL"
}

async fn connect(address: &Address, form: &Form, access: Access) -> Result<Open, StoreError> {
    let is_missing = match address {
        Address::File(path) if access == Access::Read => !path.try_exists().map_err(sqlx::Error::Io)?,
        _ => false,
    };
    let mode = match access {
        Access::Write => "rwc",
        Access::Read if is_missing => "memory",
        Access::Read => "ro",
    };
    let options = address.options(mode)?;
    let connected = timeout(PATIENCE, options.connect()).await.map_err(|_| StoreError::Slow(PATIENCE))?;
    let unreachable = |error| match address {
        Address::File(_) => StoreError::Database(error),
        Address::Postgres(_) => StoreError::Unreachable(error),
    };
    let mut connection = connected.map_err(unreachable)?;
    let settings = match (is_postgres(&connection), access) {
        (false, Access::Write) => SQLITE,
        (false, Access::Read) => &[],
        (true, Access::Write) => POSTGRES,
        (true, Access::Read) => POSTGRES_READ,
    };
    refuse_foreign(&mut connection, form).await?;
    if let Address::File(path) = address
        && access == Access::Read
        && !is_missing
        && is_of_another(path)
    {
        timeout(LONGEST, refuse_damaged(&mut connection)).await.map_err(|_| StoreError::Slow(LONGEST))??;
    }
    set(&mut connection, settings).await?;
    match form_of(&mut connection).await? {
        found if found > form.number => return Err(StoreError::Newer(found, form.number)),
        found if found == form.number => {}
        found if found != 0 && found < form.oldest => return Err(StoreError::Older(found, form.number)),
        0 if access == Access::Read && !is_missing => return Err(StoreError::Empty),
        found if access == Access::Read && !is_missing => return Err(StoreError::NotYet(found, form.number)),
        found => {
            let is_older = found != 0;
            let made = transact(&mut connection, async |connection| make(connection, form, is_older).await).await;
            made.map_err(no_right)?;
        }
    }
    Ok(Open { connection, flows: Flows::default() })
}

/// Refuses a file that has a table, index, view or trigger of somebody else: whoever may write to a folder can have put it there for root to open.
/// Views, triggers, virtual tables, computed columns, checks and indexes of expressions all compute, so that a small file has rows without end or of
/// any size. What a newer longhaul made is refused as such, by its number: this one does not know its tables.
async fn refuse_foreign(connection: &mut AnyConnection, form: &Form) -> Result<(), StoreError> {
    if is_postgres(connection) {
        return Ok(());
    }
    set(connection, SQLITE_DISTRUST).await?;
    let found = form_of(connection).await?;
    if found > form.number {
        return Err(StoreError::Newer(found, form.number));
    }
    // As SQLite keeps a statement.
    let own = form.tables.iter().chain(form.beside).map(|table| table.replacen("IF NOT EXISTS ", "", 1));
    let own: Vec<String> = own.chain(SQLITE_STATISTICS.iter().map(ToString::to_string)).collect();
    let places: Vec<String> = (1..=own.len()).map(|place| format!("${place}")).collect();
    let count = format!("{SQLITE_ENTRIES}{}))", places.join(", "));
    let query =
        own.into_iter().fold(sqlx::query_scalar(AssertSqlSafe(count)), |query, statement| query.bind(statement));
    match query.fetch_one(&mut *connection).await? {
        0 => Ok(()),
        foreign => Err(StoreError::Foreign(foreign)),
    }
}

/// Whether the file is another user's, who may have made its pages by hand.
fn is_of_another(path: &Path) -> bool {
    path.metadata().is_ok_and(|file| file.uid() != geteuid().as_raw())
}

/// Refuses a file whose pages name each other twice, and so give rows without end. It reads the whole file.
async fn refuse_damaged(connection: &mut AnyConnection) -> Result<(), StoreError> {
    let found: String = sqlx::query_scalar("PRAGMA quick_check(1)").fetch_one(connection).await?;
    if found == "ok" { Ok(()) } else { Err(StoreError::Damaged(found.lines().next().unwrap_or_default().to_owned())) }
}

/// Says how this connection is to behave.
async fn set(connection: &mut AnyConnection, settings: &[&'static str]) -> Result<(), sqlx::Error> {
    for setting in settings {
        sqlx::query(*setting).execute(&mut *connection).await?;
    }
    Ok(())
}

/// Connections beside the one that writes results: `mode` is SQLite's, `sqlite` and `postgres` say how each is to behave. A question waits for one of
/// `connections` for `patience`.
pub(super) async fn pool(
    address: &Address,
    form: &'static Form,
    mode: &str,
    (connections, patience): (u32, Duration),
    (sqlite, postgres): (&'static [&'static str], &'static [&'static str]),
) -> Result<AnyPool, StoreError> {
    let settings = if matches!(address, Address::File(_)) { sqlite } else { postgres };
    if let Address::File(_) = address {
        // The pool tries again for its patience, and then does not say why.
        refuse_foreign(&mut address.options(mode)?.connect().await?, form).await?;
    }
    let pool = AnyPoolOptions::new().max_connections(connections).acquire_timeout(patience).after_connect(
        move |connection, _| {
            Box::pin(async move {
                // Another file may have taken the place of the one that was looked at.
                refuse_foreign(connection, form).await.map_err(|error| sqlx::Error::Configuration(Box::new(error)))?;
                set(connection, settings).await
            })
        },
    );
    Ok(pool.connect_with(address.options(mode)?).await?)
}

fn no_right(error: sqlx::Error) -> StoreError {
    let is_right = error.as_database_error().and_then(|error| error.code()).is_some_and(|code| code == NO_RIGHT);
    if is_right { StoreError::NoRight(error) } else { StoreError::Database(error) }
}

/// The number of the form; 0: there are no tables.
async fn form_of(connection: &mut AnyConnection) -> Result<i64, sqlx::Error> {
    if !is_postgres(connection) {
        return sqlx::query_scalar("PRAGMA user_version").fetch_one(connection).await;
    }
    let is_there = "SELECT count(to_regclass('form'))";
    if sqlx::query_scalar::<_, i64>(is_there).fetch_one(&mut *connection).await? == 0 {
        return Ok(0);
    }
    sqlx::query_scalar("SELECT coalesce(max(number), 0) FROM form").fetch_one(connection).await
}

/// Makes the tables that are not there; another process may have done so in the meantime.
async fn make(connection: &mut AnyConnection, form: &Form, is_older: bool) -> Result<(), sqlx::Error> {
    let is_postgres = is_postgres(connection);
    for table in form.tables {
        let table = if is_postgres { in_postgres(table) } else { (*table).to_owned() };
        sqlx::query(AssertSqlSafe(table)).execute(&mut *connection).await?;
    }
    for fill in form.fills.iter().filter(|_| is_older) {
        sqlx::query(*fill).execute(&mut *connection).await?;
    }
    if is_postgres {
        for step in [
            "CREATE TABLE IF NOT EXISTS form (number BIGINT NOT NULL)",
            "INSERT INTO form (number) SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM form)",
        ] {
            sqlx::query(step).execute(&mut *connection).await?;
        }
        sqlx::query("UPDATE form SET number = $1").bind(form.number).execute(&mut *connection).await?;
    } else {
        let number = format!("PRAGMA user_version = {}", form.number);
        sqlx::query(AssertSqlSafe(number)).execute(&mut *connection).await?;
    }
    Ok(())
}

fn in_postgres(table: &str) -> String {
    table.replace(" WITHOUT ROWID", "").replace("BLOB", "BYTEA")
}

/// Does `work` in one transaction: all of it is on the disk when this returns, or nothing. `work` passes on each error: PostgreSQL takes a COMMIT
/// after an error for a ROLLBACK, and does not say so.
///
/// `sqlx` counts transactions itself. Where a full disk lets `COMMIT` fail, SQLite rolls back by itself, the count stays, and the connection takes
/// no transaction any more. So this says BEGIN and COMMIT without it.
pub(super) async fn transact<T>(
    connection: &mut AnyConnection,
    work: impl AsyncFnOnce(&mut AnyConnection) -> Result<T, sqlx::Error>,
) -> Result<T, sqlx::Error> {
    let done = match begin(connection).await {
        Ok(()) => work(&mut *connection).await,
        Err(error) => Err(error),
    };
    let done = match done {
        Ok(done) => sqlx::query("COMMIT").execute(&mut *connection).await.map(|_| done),
        Err(error) => Err(error),
    };
    if done.is_err() {
        // It fails where SQLite has rolled back by itself, and where there is no connection any more.
        let _ = sqlx::query("ROLLBACK").execute(&mut *connection).await;
    }
    done
}

async fn begin(connection: &mut AnyConnection) -> Result<(), sqlx::Error> {
    let steps: &[&str] = if is_postgres(connection) { &["BEGIN", POSTGRES_LOCK] } else { &["BEGIN IMMEDIATE"] };
    for step in steps {
        sqlx::query(*step).execute(&mut *connection).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_in_the_words_of_postgresql() {
        assert_eq!(
            in_postgres("CREATE TABLE early (id BLOB PRIMARY KEY) WITHOUT ROWID"),
            "CREATE TABLE early (id BYTEA PRIMARY KEY)"
        );
        assert_eq!(7_813_585_268_923_004_268i64.to_be_bytes(), *b"longhaul");
    }
}
