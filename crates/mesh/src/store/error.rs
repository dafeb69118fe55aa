//! Why a store cannot be used, and what to do; and rows of one that cannot be read, which are left out.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use longhaul_channel::shown;
use longhaul_kernel::stderr_line;

/// Rows that this process left out. Of a store of another version these may be all.
static LEFT_OUT: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
/// Rows that are named, and that are counted, at most.
const NAMED_MOST: usize = 20;
const COUNTED_MOST: usize = 10_000;

/// Why a store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database says so.
    #[error("{0}")]
    Database(#[from] sqlx::Error),
    /// The system gives no thread or descriptor.
    #[error("{0}")]
    System(#[from] std::io::Error),
    /// PostgreSQL does not answer, or does not let this role in.
    #[error(
        "cannot connect to PostgreSQL: {0}; look whether it runs, and whether the address in the file store is right"
    )]
    Unreachable(sqlx::Error),
    /// PostgreSQL does not let this role make tables.
    #[error("{0}; make the role the owner of the database: ALTER DATABASE … OWNER TO …")]
    NoRight(sqlx::Error),
    /// It does not end.
    #[error("the database took more than {} s for an answer; look whether it runs", .0.as_secs())]
    Slow(Duration),
    /// SQLite wants a path that is text.
    #[error("the path {} is not UTF-8: give the folder another name", .0.display())]
    Path(PathBuf),
    /// Written by a newer longhaul.
    #[error("the store has form {0}, this longhaul knows {1}: use the newer longhaul")]
    Newer(i64, i64),
    /// Written by an older longhaul.
    #[error(
        "the store has form {0}, which was never released; this longhaul knows {1}: move it away, and a new one is made"
    )]
    Older(i64, i64),
    /// Written by an older longhaul, or by none, and to be read alone.
    #[error("the store has form {0}, this longhaul reads {1}: run the coordinator of this longhaul, which changes it")]
    NotYet(i64, i64),
    /// No longhaul has made its tables.
    #[error("the store has no tables yet: run the coordinator, which makes them")]
    Empty,
    /// A file of SQLite that has more than longhaul's tables.
    #[error(
        "the store has {0} tables, indexes, views or triggers that this longhaul did not make: remove them, or move the store away"
    )]
    Foreign(i64),
    /// A file of SQLite whose pages do not fit.
    #[error("the store is damaged: {0}; move it away")]
    Damaged(String),
}

/// How many rows this process could not read and left out, 10,000 at most.
pub(crate) fn rows_left_out() -> usize {
    LEFT_OUT.lock().unwrap_or_else(PoisonError::into_inner).len()
}

/// What was read of a row. `None` where that failed, as of a row that another version wrote: it is counted and said once, by its `name`.
pub(super) fn readable<T>(read: Result<T, sqlx::Error>, name: impl FnOnce() -> String) -> Option<T> {
    read.inspect_err(|why| leave_out(name(), why)).ok()
}

fn leave_out(name: String, why: &sqlx::Error) {
    let mut all = LEFT_OUT.lock().unwrap_or_else(PoisonError::into_inner);
    if all.len() >= COUNTED_MOST || all.contains(&name) {
        return;
    }
    if all.len() < NAMED_MOST {
        stderr_line!("store: {}", shown(&format!("{name} cannot be read and is left out: {why}")));
    } else if all.len() == NAMED_MOST {
        stderr_line!("store: more than {NAMED_MOST} rows cannot be read: the others are left out without their names");
    }
    all.insert(name);
}
