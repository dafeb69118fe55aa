//! Flows: a test from one site to another. Rows have a small number in place of three names.
//!
//! All tables of results have the same key: hour, flow, time in the hour, id. So a result that comes twice is there once, rows are added at the
//! end, and those of a pair in an hour lie together: its year is found by single look-ups.

use std::collections::{BTreeMap, HashMap};

use sqlx::any::AnyRow;
use sqlx::{AnyConnection, AssertSqlSafe, Row};

use super::error::readable;

/// An hour in nanoseconds.
pub(crate) const HOUR_NS: i64 = 3_600_000_000_000;

pub(super) const FLOWS: &str = "CREATE TABLE IF NOT EXISTS flows (flow BIGINT PRIMARY KEY, test TEXT NOT NULL, sender TEXT NOT NULL, \
     receiver TEXT NOT NULL, UNIQUE (sender, receiver, test)) WITHOUT ROWID";
/// Ids of results that came before their time, by a clock that was ahead. Their rows have another time each time they come.
pub(super) const EARLY: &str = "CREATE TABLE IF NOT EXISTS early (id BLOB PRIMARY KEY) WITHOUT ROWID";

/// How many results of a flow and hour, of any kind, the receiver delivered. Nearly all are the sender's: those are all others.
pub(super) const BY_RECEIVER: &str = "CREATE TABLE IF NOT EXISTS by_receiver (hour BIGINT NOT NULL, flow BIGINT NOT NULL, tests BIGINT NOT NULL, \
     PRIMARY KEY (hour, flow)) WITHOUT ROWID";

/// Numbers that are remembered at most: those of 500 sites.
const KNOWN_MOST: usize = 300_000;

/// Test, sender, receiver.
pub(crate) type Names = [String; 3];

/// The numbers of flows, as far as they were asked for.
#[derive(Debug, Default)]
pub(super) struct Flows(HashMap<Names, i64>);

/// What a result of any kind says of itself.
pub(super) struct Head<'a> {
    pub(super) id: &'a str,
    /// Test, sender, receiver.
    pub(super) names: [&'a str; 3],
    pub(super) at_ns: i64,
}

/// A delivery of results.
#[derive(Debug, Clone, Copy)]
pub(super) struct Delivery<'a> {
    /// The site that delivers.
    pub(super) by: &'a str,
    /// The time, in nanoseconds since 1970: what is later counts as one of this time.
    pub(super) now_ns: i64,
    /// Results of a flow and hour that are kept of one site.
    pub(super) most: i64,
}

/// What came of one result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It is kept.
    New,
    /// It was there already, or is of an unknown kind.
    NotNew,
    /// Its hour has no room for more of this site.
    NoRoom,
}

/// The key of a row.
pub(super) struct Key {
    pub(super) hour: i64,
    pub(super) flow: i64,
    pub(super) after_ns: i64,
    pub(super) id: Vec<u8>,
    /// The result came before its time: see [`Flows::taken`].
    is_early: bool,
}

impl Key {
    fn new(at_ns: i64, flow: i64, id: Vec<u8>) -> Self {
        Self { hour: at_ns.div_euclid(HOUR_NS), flow, after_ns: at_ns.rem_euclid(HOUR_NS), id, is_early: false }
    }

    /// That of a row whose first columns are `hour, flow, after_ns, id`.
    pub(super) fn of(row: &AnyRow) -> Result<Self, sqlx::Error> {
        let (hour, flow, after_ns, id) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?, row.try_get(3)?);
        time(hour, after_ns)?;
        Ok(Self { hour, flow, after_ns, id, is_early: false })
    }

    /// When it began: nanoseconds since 1970.
    pub(super) fn at_ns(&self) -> i64 {
        self.hour * HOUR_NS + self.after_ns
    }
}

impl Flows {
    /// A transaction failed: the numbers that it gave are not in the database.
    pub(super) fn forget(&mut self) {
        self.0.clear();
    }

    /// The key of a result, within a transaction. Where its time is after `now_ns`, that is its time. `None`: it came before, with another time.
    pub(super) async fn key(
        &mut self,
        to: &mut AnyConnection,
        head: &Head<'_>,
        now_ns: i64,
    ) -> Result<Option<Key>, sqlx::Error> {
        let id = bytes(head.id)?;
        let early = sqlx::query_scalar::<_, i64>("SELECT count(*) FROM early WHERE id = $1").bind(id.clone());
        if early.fetch_one(&mut *to).await? > 0 {
            return Ok(None);
        }
        let flow = self.number(to, head.names).await?;
        Ok(Some(Key { is_early: head.at_ns > now_ns, ..Key::new(head.at_ns.min(now_ns), flow, id) }))
    }

    /// A row with this key, which the site `by` delivered, is new, within the same transaction: only of these an early one is remembered, which the
    /// limits of an hour bound.
    pub(super) async fn taken(to: &mut AnyConnection, key: &Key, head: &Head<'_>, by: &str) -> Result<(), sqlx::Error> {
        if key.is_early {
            let early =
                sqlx::query("INSERT INTO early (id) VALUES ($1) ON CONFLICT (id) DO NOTHING").bind(key.id.clone());
            early.execute(&mut *to).await?;
        }
        if by == head.names[2] {
            let count = sqlx::query(
                "INSERT INTO by_receiver (hour, flow, tests) VALUES ($1, $2, 1) \
                 ON CONFLICT (hour, flow) DO UPDATE SET tests = by_receiver.tests + 1",
            );
            count.bind(key.hour).bind(key.flow).execute(to).await?;
        }
        Ok(())
    }

    /// How many rows of a table the flow and hour of `key` may have before one more of this delivery is taken, within the same transaction. Each of
    /// its two sites has its own room: neither takes that of what the other one measured.
    pub(super) async fn room(
        from: &mut AnyConnection,
        key: &Key,
        head: &Head<'_>,
        Delivery { by, most, .. }: Delivery<'_>,
    ) -> Result<i64, sqlx::Error> {
        let counted = sqlx::query_scalar("SELECT tests FROM by_receiver WHERE hour = $1 AND flow = $2");
        let counted: Option<i64> = counted.bind(key.hour).bind(key.flow).fetch_optional(from).await?;
        let of_receiver = counted.unwrap_or(0);
        Ok(if by != head.names[2] {
            most.saturating_add(of_receiver)
        } else if of_receiver < most {
            i64::MAX
        } else {
            0
        })
    }

    /// Why no row with this key was added to a table.
    pub(super) async fn not_taken(from: &mut AnyConnection, table: &str, key: &Key) -> Result<Outcome, sqlx::Error> {
        let there = format!("SELECT count(*) FROM {table} WHERE hour = $1 AND flow = $2 AND after_ns = $3 AND id = $4");
        let there = sqlx::query_scalar::<_, i64>(AssertSqlSafe(there));
        let there = there.bind(key.hour).bind(key.flow).bind(key.after_ns).bind(key.id.clone());
        Ok(if there.fetch_one(from).await? > 0 { Outcome::NotNew } else { Outcome::NoRoom })
    }

    /// Whether there is such a flow.
    pub(super) async fn has(&self, from: &mut AnyConnection, names: [&str; 3]) -> Result<bool, sqlx::Error> {
        Ok(self.0.contains_key(&names.map(str::to_owned)) || find(from, names).await?.is_some())
    }

    /// The number of a flow, within a transaction.
    async fn number(&mut self, to: &mut AnyConnection, names: [&str; 3]) -> Result<i64, sqlx::Error> {
        let key = names.map(str::to_owned);
        if let Some(flow) = self.0.get(&key) {
            return Ok(*flow);
        }
        let [test, sender, receiver] = names;
        let flow = match find(to, names).await? {
            Some(flow) => flow,
            None => {
                let new = "INSERT INTO flows (flow, test, sender, receiver) SELECT coalesce(max(flow), 0) + 1, $1, $2, $3 FROM flows \
                     RETURNING flow";
                sqlx::query_scalar(new).bind(test).bind(sender).bind(receiver).fetch_one(&mut *to).await?
            }
        };
        if self.0.len() >= KNOWN_MOST {
            self.0.clear();
        }
        self.0.insert(key, flow);
        Ok(flow)
    }
}

/// The number of a flow, if it has one.
async fn find(from: &mut AnyConnection, [test, sender, receiver]: [&str; 3]) -> Result<Option<i64>, sqlx::Error> {
    let known = sqlx::query_scalar("SELECT flow FROM flows WHERE test = $1 AND sender = $2 AND receiver = $3");
    known.bind(test).bind(sender).bind(receiver).fetch_optional(from).await
}

/// The names of flows by their number, for one reader; `None`: it has none.
#[derive(Debug, Default)]
pub(super) struct Named(BTreeMap<i64, Option<Names>>);

impl Named {
    /// The names of a row's flow. Inside: it has none.
    pub(super) async fn of(
        &mut self,
        from: &mut AnyConnection,
        flow: i64,
    ) -> Result<Result<&Names, sqlx::Error>, sqlx::Error> {
        // Those of a flow that is new are in the database before its first row is.
        if !self.0.contains_key(&flow) {
            let rows = sqlx::query("SELECT flow, test, sender, receiver FROM flows").fetch_all(from).await?;
            let named = rows.iter().filter_map(|row| readable(named(row), || "a row of flows".to_owned()));
            self.0.extend(named.map(|(flow, names)| (flow, Some(names))));
            self.0.entry(flow).or_default();
        }
        let nameless = || sqlx::Error::Decode(format!("the flow {flow} has no names").into());
        Ok(self.0.get(&flow).and_then(Option::as_ref).ok_or_else(nameless))
    }
}

fn named(row: &AnyRow) -> Result<(i64, Names), sqlx::Error> {
    Ok((row.try_get(0)?, [row.try_get(1)?, row.try_get(2)?, row.try_get(3)?]))
}

/// When something began, as rows have it: nanoseconds since 1970.
///
/// # Errors
/// There is no such time. Somebody else may have written to the store.
pub(super) fn time(hour: i64, after_ns: i64) -> Result<i64, sqlx::Error> {
    let time = hour.checked_mul(HOUR_NS).and_then(|begin| begin.checked_add(after_ns));
    time.ok_or_else(|| sqlx::Error::Decode(format!("a result of hour {hour} since 1970").into()))
}

/// What a row of a table is called that cannot be read. Its first columns are `hour, flow, after_ns, id`.
pub(super) fn name_of(table: &str, row: &AnyRow) -> String {
    let id = row.try_get::<Vec<u8>, _>(3).map_or_else(|_| "without an id".to_owned(), |id| digits(&id));
    format!("the row {id} of {table}")
}

/// The bytes of 32 hexadecimal digits.
pub(super) fn bytes(id: &str) -> Result<Vec<u8>, sqlx::Error> {
    let number = (id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()))
        .then(|| u128::from_str_radix(id, 16).ok())
        .flatten();
    let number = number.ok_or_else(|| sqlx::Error::Encode("an id has 32 hexadecimal digits".into()))?;
    Ok(number.to_be_bytes().to_vec())
}

/// The 32 hexadecimal digits of an id.
pub(super) fn digits(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_times_come_back() {
        let id = "00112233445566778899aabbccddeeff";
        assert_eq!(digits(&bytes(id).unwrap()), id);
        assert!(["", "12", "+0112233445566778899aabbccddeeff"].into_iter().all(|id| bytes(id).is_err()));
        let key = Key::new(1_767_225_600_123_456_789, 7, Vec::new());
        assert_eq!((key.hour, key.after_ns, key.at_ns()), (490_896, 123_456_789, 1_767_225_600_123_456_789));
    }
}
