//! What the coordinator keeps: every result once, and sums.

use std::collections::BTreeMap;
use std::ops::Range;

use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row};

use super::address::Address;
use super::database::{Access, Database, Open, transact};
use super::error::{StoreError, readable};
use super::flows::{Delivery, Flows, HOUR_NS, Head, Key, Named, Names, Outcome, digits, name_of, time};
use super::{FORM, Measurement, Series, TestResult, Wanted, measurements, summary, wanted};

/// Hours since 1970, and nanoseconds after the hour.
pub(super) const RESULTS: &str = "CREATE TABLE IF NOT EXISTS results (hour BIGINT NOT NULL, flow BIGINT NOT NULL, after_ns BIGINT NOT NULL, id BLOB NOT NULL, \
     sent BIGINT NOT NULL, lost BIGINT NOT NULL, at_sender BIGINT, at_receiver BIGINT, received_rate_bps BIGINT NOT NULL, \
     PRIMARY KEY (hour, flow, after_ns, id)) WITHOUT ROWID";
/// Who delivers what is of no real site.
const NOBODY: &str = "";
/// Hours that are read at once: of 40 sites they have 10,000 rows.
const HOURS_AT_ONCE: i64 = 6;

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

/// What came of a delivery.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Taken {
    /// Results that are new.
    pub new: usize,
    /// Results that are not kept: the hour of their pair has no room for more of the site that delivered them.
    pub left_out: usize,
}

/// The results of the whole mesh.
#[derive(Debug)]
pub struct Archive(Database);

impl Series {
    /// Opens a store that [`Archive`] has made.
    ///
    /// # Errors
    /// Where the store cannot be used.
    pub async fn open(address: impl Into<Address>) -> Result<Self, StoreError> {
        Self::of(&address.into(), &FORM).await
    }
}

impl Archive {
    /// Opens or makes it: a SQLite file, whose path is enough, or a database of PostgreSQL.
    ///
    /// # Errors
    /// Where the file or the database cannot be used, or a longhaul with another form wrote it.
    pub fn open(address: impl Into<Address>) -> Result<Self, StoreError> {
        Ok(Self(Database::open(address.into(), &FORM, Access::Write)?))
    }

    /// Opens it, to be read alone: no table and no result is changed. A file that is not there has no results.
    ///
    /// # Errors
    /// As [`Archive::open`], and where no coordinator of this form has made its tables.
    pub fn open_to_read(address: impl Into<Address>) -> Result<Self, StoreError> {
        Ok(Self(Database::open(address.into(), &FORM, Access::Read)?))
    }

    /// All of `results` at any time, as [`Archive::take_within`]: for tests and fuzz targets, whose results are of no real site.
    #[doc(hidden)]
    pub fn take(&mut self, results: &[TestResult]) -> Result<usize, StoreError> {
        self.take_within((NOBODY, i64::MAX), results, |_| i64::MAX).map(|taken| taken.new)
    }

    /// Takes results that the site `by` delivers, those that it has already once. All are on the disk when this returns; after an error none is.
    /// `now_ns` is the time, in nanoseconds since 1970: a result that is later, by the clock of its site, counts as one of this time. Of a pair in an
    /// hour it takes as many results of a test of each of the two sites as `most` says, which is given the test's name.
    ///
    /// # Errors
    /// Where the disk is full or fails, PostgreSQL does not answer, or an id is no 32 hexadecimal digits.
    pub fn take_within(
        &mut self,
        (by, now_ns): (&str, i64),
        results: &[TestResult],
        most: impl Fn(&str) -> i64,
    ) -> Result<Taken, StoreError> {
        self.take_each(results, async |to, flows, one| {
            take(to, flows, one, Delivery { by, now_ns, most: most(&one.test) }).await
        })
    }

    /// Does `take` with each of `all` in one transaction.
    fn take_each<T>(
        &mut self,
        all: &[T],
        take: impl AsyncFn(&mut AnyConnection, &mut Flows, &T) -> Result<Outcome, sqlx::Error>,
    ) -> Result<Taken, StoreError> {
        self.transact(async |transaction, flows| {
            let mut taken = Taken::default();
            for one in all {
                match take(transaction, flows, one).await? {
                    Outcome::New => taken.new += 1,
                    Outcome::NotNew => {}
                    Outcome::NoRoom => taken.left_out += 1,
                }
            }
            Ok(taken)
        })
    }

    /// Does `work` in one transaction.
    fn transact<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut AnyConnection, &mut Flows) -> Result<T, sqlx::Error>,
    ) -> Result<T, StoreError> {
        self.0.run(async |Open { connection, flows }| {
            let done = transact(connection, async |transaction| work(transaction, flows).await).await;
            if done.is_err() {
                flows.forget();
            }
            done
        })
    }

    /// Whether there are results of a flow: test, sender, receiver.
    ///
    /// # Errors
    /// Where the store cannot be read.
    pub fn has_flow(&mut self, names: [&str; 3]) -> Result<bool, StoreError> {
        self.0.run(async |Open { connection, flows }| flows.has(connection, names).await)
    }

    /// Results since `from_ns`, in order of time.
    ///
    /// # Errors
    /// Where the store cannot be read.
    pub fn since(&mut self, from_ns: i64) -> Result<Vec<TestResult>, StoreError> {
        self.0.run(async |open| since(&mut open.connection, from_ns).await)
    }

    /// Hands the results of some hours since 1970 to `take`, in order of time: it holds few of them at a time.
    ///
    /// # Errors
    /// Where the store cannot be read.
    pub(crate) fn each(&mut self, hours: Range<i64>, take: impl FnMut(&Names, Counted)) -> Result<(), StoreError> {
        self.0.run(async |open| each(&mut open.connection, hours, take).await)
    }

    /// How many results there are of some hours since 1970.
    ///
    /// # Errors
    /// Where the store cannot be read.
    pub(crate) fn rows(&mut self, hours: Range<i64>) -> Result<i64, StoreError> {
        let count = "SELECT count(*) FROM results WHERE hour >= $1 AND hour < $2";
        self.0.run(async |Open { connection, .. }| {
            sqlx::query_scalar(count).bind(hours.start).bind(hours.end).fetch_one(connection).await
        })
    }

    /// Sums by hour of all pairs since `from_ns`, by pair and hour.
    ///
    /// # Errors
    /// Where the store cannot be read.
    pub fn hours(&mut self, from_ns: i64) -> Result<Vec<Hour>, StoreError> {
        self.0.run(async |open| hours(&mut open.connection, from_ns).await)
    }

    /// All of `all` at any time, as [`Archive::take_measurements_within`]: for tests and fuzz targets, whose measurements are of no real site.
    #[doc(hidden)]
    pub fn take_measurements(&mut self, all: &[Measurement]) -> Result<usize, StoreError> {
        self.take_measurements_within((NOBODY, i64::MAX), all, |_| i64::MAX).map(|taken| taken.new)
    }

    /// Takes measurements, those that it has already once, of a site, at a time and up to a number, as [`Archive::take_within`]. All are on the disk
    /// when this returns; after an error none is. What is of an unknown kind is left.
    ///
    /// # Errors
    /// As [`Archive::take_within`].
    pub fn take_measurements_within(
        &mut self,
        (by, now_ns): (&str, i64),
        all: &[Measurement],
        most: impl Fn(&str) -> i64,
    ) -> Result<Taken, StoreError> {
        self.take_each(all, async |to, flows, one| {
            measurements::take(to, flows, one, Delivery { by, now_ns, most: most(&one.test) }).await
        })
    }

    /// Measurements of all kinds since `from_ns`: round trips, TCP, diagnoses, each in order of time.
    ///
    /// # Errors
    /// Where the store cannot be read.
    pub fn measurements(&mut self, from_ns: i64) -> Result<Vec<Measurement>, StoreError> {
        self.0.run(async |open| measurements::since(&mut open.connection, from_ns).await)
    }

    /// Of each site by its name: how many tests of any kind it was part of since `from_ns`, and when the last of them began, nanoseconds since 1970.
    ///
    /// # Errors
    /// Where the store cannot be read.
    pub fn took_part(&mut self, from_ns: i64) -> Result<BTreeMap<String, (u64, i64)>, StoreError> {
        self.0.run(async |open| measurements::took_part(&mut open.connection, from_ns).await)
    }

    /// When each site was last part of a test of any kind, by its name: nanoseconds since 1970.
    ///
    /// # Errors
    /// Where the store cannot be read.
    pub fn seen(&mut self) -> Result<Vec<(String, i64)>, StoreError> {
        self.0.run(async |open| summary::seen(&mut open.connection).await)
    }

    /// The diagnosis that came of what was wanted, of those that began since `from_ns` the first.
    ///
    /// # Errors
    /// Where the store cannot be read.
    pub fn diagnosis_of(&mut self, wanted: &Wanted, from_ns: i64) -> Result<Option<Measurement>, StoreError> {
        self.0.run(async |open| measurements::diagnosis_of(&mut open.connection, wanted, from_ns).await)
    }

    /// This diagnosis is wanted of the site `initiator` from `now_ns` on.
    ///
    /// # Errors
    /// Where the disk is full or fails: nothing has changed.
    pub fn want(&mut self, initiator: &str, now_ns: i64, wanted: &Wanted) -> Result<(), StoreError> {
        self.0.run(async |open| wanted::want(&mut open.connection, initiator, now_ns, wanted).await)
    }

    /// What is wanted of a site and was asked for since `from_ns`, 32 at most.
    ///
    /// # Errors
    /// Where the store cannot be read.
    pub fn wanted(&mut self, initiator: &str, from_ns: i64) -> Result<Vec<Wanted>, StoreError> {
        self.0.run(async |open| wanted::of(&mut open.connection, initiator, from_ns).await)
    }
}

/// What alarms are judged by.
pub(crate) struct Counted {
    pub(crate) at_ns: i64,
    pub(crate) sent: i64,
    pub(crate) lost: i64,
    pub(crate) at_sender: Option<i64>,
    pub(crate) at_receiver: Option<i64>,
}

/// Takes a result and counts it, where its hour has room for it.
async fn take(
    to: &mut AnyConnection,
    flows: &mut Flows,
    result: &TestResult,
    delivery: Delivery<'_>,
) -> Result<Outcome, sqlx::Error> {
    let head = Head { id: &result.id, names: [&result.test, &result.sender, &result.receiver], at_ns: result.at_ns };
    let Some(key) = flows.key(to, &head, delivery.now_ns).await? else { return Ok(Outcome::NotNew) };
    let room = Flows::room(to, &key, &head, delivery).await?;
    let inserted = sqlx::query(
        "INSERT INTO results (hour, flow, after_ns, id, sent, lost, at_sender, at_receiver, received_rate_bps) \
         SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9 \
         WHERE (SELECT count(*) FROM (SELECT 1 FROM results WHERE hour = $1 AND flow = $2 LIMIT $10) AS kept) < $10 \
         ON CONFLICT (hour, flow, after_ns, id) DO NOTHING",
    )
    .bind(key.hour)
    .bind(key.flow)
    .bind(key.after_ns)
    .bind(key.id.clone())
    .bind(result.sent)
    .bind(result.lost)
    .bind(result.at_sender)
    .bind(result.at_receiver)
    .bind(result.received_rate_bps)
    .bind(room)
    .execute(&mut *to)
    .await?;
    if inserted.rows_affected() == 0 {
        return Flows::not_taken(to, "results", &key).await;
    }
    Flows::taken(to, &key, &head, delivery.by).await?;
    summary::count(to, result, &key).await?;
    Ok(Outcome::New)
}

async fn since(from: &mut AnyConnection, from_ns: i64) -> Result<Vec<TestResult>, sqlx::Error> {
    let mut results = Vec::new();
    read(from, from_ns.div_euclid(HOUR_NS)..i64::MAX, |names, key, row| {
        let at_ns = key.at_ns();
        if at_ns >= from_ns {
            let [test, sender, receiver] = names.clone();
            results.push(TestResult {
                id: digits(&key.id),
                test,
                sender,
                receiver,
                at_ns,
                sent: row.try_get(4)?,
                lost: row.try_get(5)?,
                at_sender: row.try_get(6)?,
                at_receiver: row.try_get(7)?,
                received_rate_bps: row.try_get(8)?,
            });
        }
        Ok(())
    })
    .await?;
    Ok(results)
}

async fn each(
    from: &mut AnyConnection,
    hours: Range<i64>,
    mut take: impl FnMut(&Names, Counted),
) -> Result<(), sqlx::Error> {
    read(from, hours, |names, key, row| {
        take(
            names,
            Counted {
                at_ns: key.at_ns(),
                sent: row.try_get(4)?,
                lost: row.try_get(5)?,
                at_sender: row.try_get(6)?,
                at_receiver: row.try_get(7)?,
            },
        );
        Ok(())
    })
    .await
}

/// Reads results of some hours in order of time, some hours of them at once: a row in the library's hands takes more memory than a result. What
/// cannot be read is left out.
async fn read(
    from: &mut AnyConnection,
    hours: Range<i64>,
    mut take: impl FnMut(&Names, &Key, &AnyRow) -> Result<(), sqlx::Error>,
) -> Result<(), sqlx::Error> {
    let mut named = Named::default();
    let mut begin = hours.start;
    loop {
        // The next hour that has any: there may be none for years.
        let next = sqlx::query_scalar("SELECT min(hour) FROM results WHERE hour >= $1 AND hour < $2");
        let next: Option<i64> = next.bind(begin).bind(hours.end).fetch_one(&mut *from).await?;
        let Some(hour) = next else { return Ok(()) };
        let rows = sqlx::query(
            "SELECT hour, flow, after_ns, id, sent, lost, at_sender, at_receiver, received_rate_bps FROM results \
             WHERE hour >= $1 AND hour < $2 ORDER BY hour, after_ns, id",
        );
        begin = hours.end.min(hour.saturating_add(HOURS_AT_ONCE));
        for row in rows.bind(hour).bind(begin).fetch_all(&mut *from).await? {
            let name = || name_of("results", &row);
            let Some(key) = readable(Key::of(&row), name) else { continue };
            let Some(names) = readable(named.of(from, key.flow).await?, name) else { continue };
            readable(take(names, &key, &row), name);
        }
    }
}

/// Sums by hour. The database adds up; the order is that of the names' bytes, in each database.
async fn hours(from: &mut AnyConnection, from_ns: i64) -> Result<Vec<Hour>, sqlx::Error> {
    let rows = sqlx::query(
        "SELECT hour, flow, count(*), CAST(sum(sent) AS BIGINT), CAST(sum(lost) AS BIGINT) FROM results WHERE hour >= $1 \
         GROUP BY hour, flow",
    );
    let rows = rows.bind(from_ns.div_euclid(HOUR_NS)).fetch_all(&mut *from).await?;
    let (mut hours, mut named) = (Vec::new(), Named::default());
    for row in rows {
        let name = || "an hour of results".to_owned();
        let Some((flow, begin_ns, [tests, sent, lost])) = readable(sums(&row), name) else { continue };
        let name = || format!("results of flow {flow}");
        let Some([test, sender, receiver]) = readable(named.of(from, flow).await?, name).cloned() else { continue };
        hours.push(Hour { test, sender, receiver, begin_ns, tests, sent, lost });
    }
    hours.sort_by(|one, other| order(one).cmp(&order(other)));
    Ok(hours)
}

/// Of a flow in an hour: its number, when the hour began, and tests, packets sent and packets lost.
fn sums(row: &AnyRow) -> Result<(i64, i64, [i64; 3]), sqlx::Error> {
    Ok((row.try_get(1)?, time(row.try_get(0)?, 0)?, [row.try_get(2)?, row.try_get(3)?, row.try_get(4)?]))
}

fn order(hour: &Hour) -> (&str, &str, &str, i64) {
    (&hour.test, &hour.sender, &hour.receiver, hour.begin_ns)
}
