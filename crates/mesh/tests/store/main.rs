//! Nothing is lost and nothing is stored twice: a writer is killed at a random moment, again and again, and delivery goes on. The coordinator's
//! store is tested as a file of SQLite and as a database of PostgreSQL, by the same tests.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};
use std::{fs, thread};

use longhaul_mesh::store::{
    Address, Archive, Cause, Diagnosis, FileKind, Kept, Measured, Measurement, Outbox, PairSum, Point, Quantiles,
    Reader, RoundTrips, Span, Taken, TcpFlow, TestFile, TestResult, Tested, Wanted,
};
use longhaul_testing::postgres::Postgres;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{Connection, SqliteConnection};
use tokio::runtime::Runtime;

const CHILD: &str = "LONGHAUL_MESH_STORE_CHILD";
const ADDRESS: &str = "LONGHAUL_MESH_STORE_ADDRESS";
const HOUR_NS: i64 = 3_600_000_000_000;
const DAY_NS: i64 = 24 * HOUR_NS;
/// Midnight of 2026-01-01.
const BEGIN_NS: i64 = 1_767_225_600_000_000_000;

/// Each of these runs on both stores.
macro_rules! on_both {
    ($($name:ident),* $(,)?) => {
        mod sqlite {
            $(#[test] fn $name() { super::$name(&super::Place::sqlite(stringify!($name))); })*
        }
        mod postgres {
            $(#[test] fn $name() { super::$name(&super::Place::postgres(stringify!($name))); })*
        }
    };
}

mod encrypted;
mod figures;
mod forms;
mod shown;

use forms::{
    a_row_that_cannot_be_read_is_left_out, a_store_of_another_form_is_refused, a_store_that_is_read_is_not_changed,
};

on_both! {
    a_killed_writer_loses_and_doubles_nothing,
    what_is_delivered_twice_is_there_once,
    each_site_of_a_pair_has_room_of_its_own,
    what_is_kept_comes_back,
    sums_are_those_of_the_results,
    what_fails_in_the_middle_leaves_nothing,
    a_diagnosis_is_wanted_until_it_is_there,
    a_diagnosis_is_found_by_what_was_wanted,
    a_store_of_another_form_is_refused,
    a_store_that_is_read_is_not_changed,
    a_row_that_cannot_be_read_is_left_out,
}

/// Where a test has its stores.
struct Place {
    folder: Folder,
    server: Option<Postgres>,
}

impl Place {
    fn sqlite(name: &str) -> Self {
        Self { folder: Folder::new(&format!("sqlite-{name}")), server: None }
    }

    fn postgres(name: &str) -> Self {
        Self { folder: Folder::new(&format!("postgres-{name}")), server: Some(Postgres::start()) }
    }

    fn address(&self) -> Address {
        match &self.server {
            None => Address::from(&self.folder.0.join("archive")),
            Some(server) => server.address().parse().unwrap(),
        }
    }

    fn open(&self) -> Archive {
        Archive::open(self.address()).unwrap()
    }

    /// Does something to the archive that no program of longhaul does.
    fn change(&self, sql: &str) {
        match &self.server {
            None => change(&self.folder.0.join("archive"), sql),
            Some(server) => drop(server.ask(sql)),
        }
    }

    /// Changes the number of the archive's form.
    fn set_form(&self, number: i64) {
        match &self.server {
            None => self.change(&format!("PRAGMA user_version = {number}")),
            Some(_) => self.change(&format!("UPDATE form SET number = {number}")),
        }
    }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn change(path: &Path, sql: &str) {
    runtime().block_on(async {
        let options = SqliteConnectOptions::new().filename(path);
        let mut connection = SqliteConnection::connect_with(&options).await.unwrap();
        sqlx::query(sqlx::AssertSqlSafe(sql.to_owned())).execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
    });
}

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("longhaul-mesh-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn result(number: u64) -> TestResult {
    TestResult {
        id: format!("{number:032x}"),
        test: "probes".into(),
        sender: "ithaca".into(),
        receiver: "geneva".into(),
        at_ns: BEGIN_NS + number as i64 * 1_000_000_000,
        sent: 1000,
        lost: (number % 7) as i64,
        at_sender: None,
        at_receiver: Some(0),
        received_rate_bps: 1_000_000,
    }
}

/// Not a test by itself: what a killed process does. It measures results with the numbers after the greatest that it finds written down, and says
/// of each that it is kept once `put` returned; and it delivers, and confirms.
#[test]
fn child() {
    let Ok(folder) = std::env::var(CHILD) else { return };
    let folder = Path::new(&folder);
    let mut outbox = Outbox::open(&folder.join("outbox")).unwrap();
    let address = std::env::var(ADDRESS).unwrap();
    let mut archive = Archive::open(address.parse().unwrap_or_else(|_| Address::from(&address))).unwrap();
    fs::write(folder.join("begun"), "").unwrap();
    let kept = folder.join("kept");
    let mut next = fs::read_to_string(&kept).unwrap_or_default().lines().count() as u64;
    loop {
        for _ in 0..3 {
            outbox.put(&Kept::Udp(result(next))).unwrap();
            let mut all = fs::read_to_string(&kept).unwrap_or_default();
            all.push_str(&format!("{next}\n"));
            fs::write(folder.join("kept.part"), all).unwrap();
            fs::rename(folder.join("kept.part"), &kept).unwrap();
            next += 1;
        }
        let waiting = oldest(&mut outbox, 2);
        archive.take(&waiting).unwrap();
        let ids: Vec<String> = waiting.into_iter().map(|result| result.id).collect();
        outbox.confirmed(&ids).unwrap();
    }
}

/// UDP results that wait, `most` of them.
fn oldest(outbox: &mut Outbox, most: u32) -> Vec<TestResult> {
    let udp = |(_, kept)| if let Kept::Udp(result) = kept { Some(result) } else { None };
    outbox.after(0, most).unwrap().into_iter().filter_map(udp).collect()
}

fn start(place: &Place) -> Child {
    let address = match &place.server {
        None => place.folder.0.join("archive").display().to_string(),
        Some(server) => server.address(),
    };
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture"])
        .env(CHILD, &place.folder.0)
        .env(ADDRESS, address)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn a_killed_writer_loses_and_doubles_nothing(place: &Place) {
    let folder = &place.folder;
    let kills = std::env::var("LONGHAUL_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(20u64);
    // Somewhere between its steps, which take a few milliseconds each; one in four somewhere in its beginning.
    let begun = folder.0.join("begun");
    for kill in 0..kills {
        let _ = fs::remove_file(&begun);
        let mut child = start(place);
        let begin = Instant::now();
        while kill % 4 < 3 && !begun.exists() {
            assert!(begin.elapsed() < Duration::from_secs(60), "the writer does not begin");
            thread::sleep(Duration::from_millis(1));
        }
        thread::sleep(Duration::from_millis(kill * 7919 % 61));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let kept = fs::read_to_string(folder.0.join("kept")).unwrap().lines().count() as u64;
    assert!(kept > kills, "{kept} results in {kills} lives");
    let mut outbox = Outbox::open(&folder.0.join("outbox")).unwrap();
    let mut archive = place.open();
    let rest = oldest(&mut outbox, 1_000_000);
    assert!(!rest.is_empty(), "the test must not have delivered all");
    archive.take(&rest).unwrap();
    let all = archive.since(0).unwrap();
    let ids: BTreeSet<&String> = all.iter().map(|result| &result.id).collect();
    assert_eq!(ids.len(), all.len(), "a result is there twice");
    for number in 0..kept {
        assert!(all.contains(&result(number)), "result {number} of {kept} is missing");
    }
    // The last one may be there although the child was killed before it wrote that down.
    assert!(all.len() as u64 <= kept + 1);
    let sums = archive.hours(0).unwrap().iter().fold((0, 0), |sum, hour| (sum.0 + hour.tests, sum.1 + hour.lost));
    assert_eq!(
        sums,
        (all.len() as i64, all.iter().map(|result| result.lost).sum()),
        "sums by hour are those of the results"
    );
}

fn what_is_delivered_twice_is_there_once(place: &Place) {
    let mut archive = place.open();
    let results: Vec<TestResult> = (0..10).map(result).collect();
    assert_eq!(archive.take(&results).unwrap(), 10);
    assert_eq!(archive.take(&results[5..]).unwrap(), 0);
    assert_eq!(archive.since(0).unwrap(), results);
    let hours = archive.hours(0).unwrap();
    assert_eq!((hours.len(), hours[0].tests, hours[0].sent), (1, 10, 10_000));
    assert_eq!(archive.take_measurements(&measurements()).unwrap(), 3);
    assert_eq!(archive.take_measurements(&measurements()).unwrap(), 0);

    // A clock that is an hour ahead: the result has the time at which it came first, however often and late it comes.
    let ahead = TestResult { at_ns: BEGIN_NS + HOUR_NS, ..result(10) };
    let now = BEGIN_NS + 20_000_000_000;
    for (later, new) in [(0, 1), (5, 0), (2 * HOUR_NS, 0)] {
        let taken = archive.take_within(("ithaca", now + later), std::slice::from_ref(&ahead), |_| i64::MAX).unwrap();
        assert_eq!(taken, Taken { new, left_out: 0 });
    }
    assert_eq!(archive.since(0).unwrap().last().unwrap(), &TestResult { at_ns: now, ..ahead });
    // One that the hour has no room for is not remembered: a site can send any number of them.
    let ahead = TestResult { at_ns: BEGIN_NS + HOUR_NS, ..result(11) };
    for (most, new) in [(0, 0), (i64::MAX, 1)] {
        let taken = archive.take_within(("ithaca", now), std::slice::from_ref(&ahead), |_| most).unwrap();
        assert_eq!(taken, Taken { new, left_out: 1 - new });
    }
}

/// Of each of its two sites an hour has as many results, whoever comes first, and also in a store that did not count them. What comes twice takes no
/// room.
fn each_site_of_a_pair_has_room_of_its_own(place: &Place) {
    let back = |number| TestResult { sender: "geneva".into(), receiver: "ithaca".into(), ..result(number) };
    let there: [fn(u64) -> TestResult; 2] = [result, back];
    for (first, of) in [(0, there[0]), (100, there[1])] {
        let mut archive = place.open();
        let mut deliver = |by: &str, from: u64, count: u64| {
            let results: Vec<_> = (first + from..first + from + count).map(of).collect();
            let Taken { new, left_out } = archive.take_within((by, i64::MAX), &results, |_| 3).unwrap();
            (new, left_out)
        };
        assert_eq!([deliver("geneva", 0, 5), deliver("geneva", 5, 1)], [(3, 2), (0, 1)]);
        assert_eq!([deliver("ithaca", 6, 2), deliver("ithaca", 6, 4)], [(2, 0), (1, 1)]);
        assert_eq!([deliver("geneva", 0, 3), deliver("ithaca", 6, 3)], [(0, 0), (0, 0)]);
        assert_eq!(archive.since(0).unwrap().len() as u64, 6 + first / 100 * 6);
    }
    // As an older longhaul left it.
    place.change("DROP TABLE by_receiver");
    place.set_form(4);
    let taken = place.open().take_within(("geneva", i64::MAX), &[result(50), result(51)], |_| 1).unwrap();
    assert_eq!(taken, Taken { new: 1, left_out: 1 });
}

/// One of each kind.
fn measurements() -> Vec<Measurement> {
    let measurement = |number: u64, sender: &str, receiver: &str, measured| {
        let TestResult { id, at_ns, .. } = result(1000 + number);
        Measurement { id, test: "kind".into(), sender: sender.into(), receiver: receiver.into(), at_ns, measured }
    };
    let quantiles = Quantiles { min_ns: 1, p50_ns: 2, p90_ns: 3, p99_ns: 4, max_ns: i64::MAX };
    let trips = RoundTrips {
        duration_ns: 600_000_000_000,
        sent: 6000,
        lost: 3,
        quantiles: Some(quantiles),
        outages: 1,
        longest_outage_ns: 7,
        gaps_ns: 8,
    };
    let flow = TcpFlow {
        duration_ns: 1,
        bytes: 2,
        goodput_bps: 3,
        paced_bps: 4,
        retransmits: 5,
        retransmitted_bytes: None,
        min_rtt_ns: Some(6),
        congestion_control: "cubic".into(),
        limited_by: "pacing".into(),
        limited_share: 0.1,
    };
    let cause = Cause { code: "loss".into(), place: "path".into(), bound_bps: Some(9), remedy: "fix it".into() };
    let diagnosis =
        Diagnosis { alarm: "a1".into(), target_bps: None, goodput_bps: Some(8), causes: vec![cause], failed: None };
    vec![
        measurement(1, "geneva", "ithaca", Measured::Rtt(trips)),
        measurement(2, "ithaca", "geneva", Measured::Tcp(flow)),
        measurement(3, "geneva", "chicago", Measured::Diagnose(diagnosis)),
    ]
}

fn what_is_kept_comes_back(place: &Place) {
    let mut archive = place.open();
    // Over some days, and not in order of time.
    let mut results: Vec<TestResult> = (0..50).map(|number| result(number * 9973)).collect();
    results[7].at_sender = Some(3);
    results[8].at_receiver = None;
    results[9].test = "other \u{fc}".into();
    results.rotate_left(20);
    archive.take(&results).unwrap();
    archive.take_measurements(&measurements()).unwrap();
    // What an old connection knows of flows is in the database.
    let mut again = place.open();
    results.sort_by_key(|result| result.at_ns);
    assert_eq!(again.since(0).unwrap(), results);
    assert_eq!(again.since(results[30].at_ns).unwrap(), results[30..]);
    assert_eq!(again.measurements(0).unwrap(), measurements());
    assert_eq!(again.measurements(measurements()[1].at_ns).unwrap(), measurements()[1..]);
}

/// Some days of results of three sites and two tests: their tests, packets and losses add up by each way of asking.
fn sums_are_those_of_the_results(place: &Place) {
    let sites = ["chicago", "geneva", "ithaca"];
    let one = |number: u64| {
        let (from, to) = ([0, 1, 2, 0, 1, 2][number as usize % 6], [1, 2, 0, 2, 0, 1][number as usize % 6]);
        let random = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        TestResult {
            test: if number.is_multiple_of(5) { "probes" } else { "more" }.into(),
            sender: sites[from].into(),
            receiver: sites[to].into(),
            at_ns: BEGIN_NS + (random % 40) as i64 * DAY_NS / 7 + number as i64 * 1_000_003,
            lost: (random % 1000) as i64 * i64::from(random.is_multiple_of(3)),
            ..result(number)
        }
    };
    let results: Vec<TestResult> = (0..1000).map(one).collect();
    let mut archive = place.open();
    archive.take(&results).unwrap();
    // Two of them, as two pages have them, while there is somebody who writes.
    let runtime = runtime();
    let readers = [(); 2].map(|()| runtime.block_on(Reader::open(place.address())).unwrap());
    let before = runtime.block_on(readers[0].newest()).unwrap();
    for reader in &readers {
        runtime.block_on(is_right(reader, &results, &sites));
    }
    archive.take(&[one(1000)]).unwrap();
    assert!(runtime.block_on(readers[1].newest()).unwrap() > before);
}

async fn is_right(reader: &Reader, results: &[TestResult], sites: &[&str]) {
    assert_eq!(reader.totals().await.unwrap(), by_pair(results, (0, i64::MAX)));
    for (days, until) in [(1, 2), (2, 3), (5, 6), (3, 5), (40, 30)] {
        let span = Span::ending(BEGIN_NS + until * DAY_NS - 7, days * DAY_NS);
        assert_eq!(reader.matrix(span).await.unwrap(), by_pair(results, (span.from_ns, span.until_ns)), "{days} days");
        let of = within(results, (span.in_days().from_ns, span.in_days().until_ns));
        let (nothing, buckets) = reader.losses(span.in_days()).await.unwrap();
        assert_eq!(nothing, of.iter().filter(|result| result.lost == 0).count() as i64);
        assert_eq!(nothing + buckets.iter().map(|(_, tests)| tests).sum::<i64>(), of.len() as i64);
        for span in [span, span.finer()] {
            let points = reader.pair("geneva", "ithaca", span, &["probes".into()]).await.unwrap();
            assert_eq!(points, over_time(results, span), "{span:?}");
        }
    }
    let span = (BEGIN_NS + DAY_NS, BEGIN_NS + 3 * DAY_NS + 5);
    let tests = reader.tests("geneva", "ithaca", span, 1000).await.unwrap();
    let mut of = within(results, span);
    of.retain(|result| (result.sender.as_str(), result.receiver.as_str()) == ("geneva", "ithaca"));
    of.sort_by_key(|result| -result.at_ns);
    assert!(of.len() > 10);
    let is_same = |(one, other): (&Tested, &&TestResult)| {
        (&one.id, &one.test, one.at_ns, one.sent, one.lost, one.at_sender, one.at_receiver)
            == (&other.id, &other.test, other.at_ns, other.sent, other.lost, other.at_sender, other.at_receiver)
    };
    assert!(tests.len() == of.len() && tests.iter().zip(&of).all(is_same), "{tests:?}");
    assert_eq!(reader.tests("geneva", "ithaca", span, 3).await.unwrap(), tests[..3]);
    let last = |site: &&str| {
        let of = results.iter().filter(|result| result.sender == *site || result.receiver == *site);
        ((*site).to_owned(), of.map(|result| result.at_ns).max().unwrap())
    };
    assert_eq!(reader.seen().await.unwrap(), sites.iter().map(last).collect::<Vec<_>>());
}

fn within(results: &[TestResult], (from_ns, until_ns): (i64, i64)) -> Vec<&TestResult> {
    results.iter().filter(|result| (from_ns..until_ns).contains(&result.at_ns)).collect()
}

fn by_pair(results: &[TestResult], span: (i64, i64)) -> Vec<PairSum> {
    let mut sums = BTreeMap::new();
    for result in within(results, span) {
        let sum: &mut (i64, i64, i64) = sums.entry((&result.sender, &result.receiver)).or_default();
        *sum = (sum.0 + 1, sum.1 + result.sent, sum.2 + result.lost);
    }
    let sums = sums.into_iter().map(|((sender, receiver), (tests, sent, lost))| PairSum {
        sender: sender.clone(),
        receiver: receiver.clone(),
        tests,
        sent,
        lost,
    });
    sums.collect()
}

/// Sums over time of the test `probes` from Geneva to Ithaca.
fn over_time(results: &[TestResult], span: Span) -> Vec<Point> {
    let mut points = BTreeMap::new();
    for result in within(results, (span.from_ns, span.until_ns)) {
        let names = [&result.test, &result.sender, &result.receiver].map(String::as_str);
        if names == ["probes", "geneva", "ithaca"] {
            let begin_ns = result.at_ns / span.unit_ns * span.unit_ns;
            let point = points.entry(begin_ns).or_insert(Point { begin_ns, tests: 0, sent: 0, lost: 0 });
            (point.tests, point.sent, point.lost) =
                (point.tests + 1, point.sent + result.sent, point.lost + result.lost);
        }
    }
    points.into_values().collect()
}

/// An id that is none fails after two results of new flows are written.
fn what_fails_in_the_middle_leaves_nothing(place: &Place) {
    let mut archive = place.open();
    let other = TestResult { receiver: "chicago".into(), ..result(2) };
    let all = [result(1), other, TestResult { id: "x".into(), ..result(3) }];
    let error = archive.take(&all).unwrap_err().to_string();
    assert!(error.contains("32 hexadecimal digits"), "{error}");
    assert_eq!(archive.since(0).unwrap(), []);
    assert_eq!(archive.take(&all[..2]).unwrap(), 2);
    assert_eq!(archive.since(0).unwrap(), all[..2]);
    assert_eq!(place.open().hours(0).unwrap().len(), 2);
}

fn a_diagnosis_is_wanted_until_it_is_there(place: &Place) {
    let mut archive = place.open();
    let wanted =
        Wanted { alarm: "a1".into(), test: "kind".into(), sender: "geneva".into(), receiver: "chicago".into() };
    archive.want("geneva", BEGIN_NS, &wanted).unwrap();
    assert_eq!(archive.wanted("geneva", BEGIN_NS).unwrap(), [wanted]);
    assert_eq!(archive.wanted("chicago", BEGIN_NS).unwrap(), []);
    archive.take_measurements(&measurements()).unwrap();
    assert_eq!(archive.wanted("geneva", BEGIN_NS).unwrap(), [], "it is diagnosed");
}

fn a_diagnosis_is_found_by_what_was_wanted(place: &Place) {
    let mut archive = place.open();
    archive.take_measurements(&measurements()).unwrap();
    let one = measurements().into_iter().find(|one| matches!(one.measured, Measured::Diagnose(_))).unwrap();
    let Measured::Diagnose(diagnosis) = &one.measured else { unreachable!() };
    let wanted = Wanted {
        alarm: diagnosis.alarm.clone(),
        test: one.test.clone(),
        sender: one.sender.clone(),
        receiver: one.receiver.clone(),
    };
    assert_eq!(archive.diagnosis_of(&wanted, one.at_ns).unwrap(), Some(one.clone()));
    assert_eq!(archive.diagnosis_of(&wanted, one.at_ns + 1).unwrap(), None, "it began before");
    for other in [
        Wanted { alarm: "another".into(), ..wanted.clone() },
        Wanted { sender: one.receiver.clone(), receiver: one.sender.clone(), ..wanted.clone() },
    ] {
        assert_eq!(archive.diagnosis_of(&other, 0).unwrap(), None, "{other:?}");
    }
}

#[test]
fn a_path_may_have_any_name() {
    let folder = Folder::new("a b?mode=ro#%41");
    fs::create_dir(folder.0.join("in")).unwrap();
    let path = folder.0.join("in/../archive");
    Archive::open(&path).unwrap().take(&[result(1)]).unwrap();
    assert!(folder.0.join("archive").is_file());
}

#[test]
fn a_database_that_was_started_again_is_used_again() {
    let mut place = Place::postgres("restarted");
    let mut archive = place.open();
    let runtime = runtime();
    let reader = runtime.block_on(Reader::open(place.address())).unwrap();
    archive.take(&[result(1)]).unwrap();
    assert_eq!(runtime.block_on(reader.totals()).unwrap()[0].tests, 1);
    place.server.as_mut().unwrap().stop();
    let error = archive.take(&[result(2)]).unwrap_err().to_string();
    assert!(error.starts_with("cannot connect to PostgreSQL: ") && error.contains("look whether it runs"), "{error}");
    assert!(runtime.block_on(reader.totals()).is_err());
    place.server.as_mut().unwrap().run();
    assert_eq!(archive.take(&[result(1), result(2)]).unwrap(), 1);
    assert_eq!(runtime.block_on(reader.totals()).unwrap()[0].tests, 2);
}

/// Somebody cuts the connection again and again, mostly in the middle of a transaction.
#[test]
fn a_connection_that_is_cut_keeps_what_was_confirmed() {
    let place = Place::postgres("cut");
    let server = place.server.as_ref().unwrap();
    let mut archive = place.open();
    let (stop, stopped) = mpsc::channel::<()>();
    let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'";
    let mut confirmed = Vec::new();
    thread::scope(|scope| {
        scope.spawn(move || {
            while stopped.recv_timeout(Duration::from_millis(30)) == Err(RecvTimeoutError::Timeout) {
                server.ask(cut);
            }
        });
        let mut failed = 0;
        for number in (0..).step_by(5) {
            let part: Vec<TestResult> = (number..number + 5).map(result).collect();
            match archive.take(&part) {
                Ok(new) => assert_eq!((new, confirmed.extend(part)), (5, ())),
                Err(_) => failed += 1,
            }
            if failed == 10 {
                break;
            }
            assert!(number < 50_000, "nobody cuts the connection");
        }
        drop(stop);
    });
    let all = archive.since(0).unwrap();
    assert!(confirmed.len() > 20 && confirmed.iter().all(|result| all.contains(result)), "{}", confirmed.len());
    // The answer to a COMMIT may be what was cut: then five results are there that were not confirmed.
    assert!(all.len().is_multiple_of(5) && all.len() <= confirmed.len() + 50);
    let sums = archive.hours(0).unwrap().iter().map(|hour| hour.tests).sum::<i64>();
    assert_eq!(sums, all.len() as i64);
    let runtime = runtime();
    let reader = runtime.block_on(Reader::open(place.address())).unwrap();
    assert_eq!(runtime.block_on(reader.totals()).unwrap()[0].tests, all.len() as i64);
}

#[test]
fn what_postgresql_refuses_is_said_with_a_remedy_and_without_a_password() {
    let place = Place::postgres("refused");
    let server = place.server.as_ref().unwrap();
    server.ask("CREATE ROLE guest LOGIN PASSWORD 'open-sesame'");
    let refused = |address: String| {
        let error = Archive::open(address.parse::<Address>().unwrap()).unwrap_err();
        let said = format!("{error} {error:?}");
        assert!(!said.contains("open-sesame"), "{said}");
        error.to_string()
    };
    let may_not = refused(server.address_as("guest", "postgres") + "&password=open-sesame");
    assert!(may_not.contains("permission denied") && may_not.contains("make the role the owner"), "{may_not}");
    let no_database = refused(server.address_as("longhaul", "none") + "&password=open-sesame");
    assert!(no_database.contains("\"none\" does not exist") && no_database.contains("the address"), "{no_database}");
    let nobody = refused("postgres://guest:open-sesame@127.0.0.1:1/longhaul".into());
    assert!(nobody.starts_with("cannot connect to PostgreSQL: "), "{nobody}");
    // Who owns a database makes the tables.
    server.ask("CREATE DATABASE mesh OWNER guest");
    drop(Archive::open(server.address_as("guest", "mesh").parse::<Address>().unwrap()).unwrap());
}

#[test]
fn a_full_disk_is_said_and_what_was_kept_stays() {
    let folder = Folder::new("full");
    let path = folder.0.join("outbox");
    let mut outbox = Outbox::open(&path).unwrap();
    outbox.put(&Kept::Udp(result(1))).unwrap();
    drop(outbox);
    // A limit of the size of a file stands for the disk: 150 KiB, more than the empty store.
    let mut small = Command::new("sh");
    small.args(["-c", "ulimit -f 300; trap '' XFSZ; exec \"$0\" --exact filler --nocapture"]);
    let output = small.arg(std::env::current_exe().unwrap()).env("LONGHAUL_MESH_FILL", &folder.0).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let mut outbox = Outbox::open(&path).unwrap();
    let kept = oldest(&mut outbox, 100_000);
    let said: u64 = fs::read_to_string(folder.0.join("count")).unwrap().trim().parse().unwrap();
    assert!(kept.contains(&result(1)));
    assert_eq!(kept.len() as u64, said + 1, "what was said to be kept is kept, and no more");
}

/// The process of the test above: puts results until the disk takes no more.
#[test]
fn filler() {
    let Ok(folder) = std::env::var("LONGHAUL_MESH_FILL") else { return };
    let folder = Path::new(&folder);
    let mut outbox = Outbox::open(&folder.join("outbox")).unwrap();
    for count in 0.. {
        if outbox.put(&Kept::Udp(result(100 + count))).is_err() {
            fs::write(folder.join("count"), count.to_string()).unwrap();
            return;
        }
        assert!(count < 100_000, "the limit is no limit");
    }
}

fn beside(number: u64, content: &str) -> TestFile {
    let TestResult { id, test, sender, receiver, at_ns, .. } = result(number);
    TestFile { of: FileKind::Losses, id, test, sender, receiver, at_ns, content: content.into() }
}

/// A file is there with its result; the oldest files make room, and results stay.
#[test]
fn files_wait_beside_their_results_in_bounded_space() {
    let folder = Folder::new("files");
    let path = folder.0.join("outbox");
    // As an older longhaul left it: without the table.
    drop(Outbox::open(&path).unwrap());
    runtime().block_on(async {
        let options = SqliteConnectOptions::new().filename(&path);
        let mut connection = SqliteConnection::connect_with(&options).await.unwrap();
        sqlx::query("DROP TABLE files").execute(&mut connection).await.unwrap();
    });
    let mut outbox = Outbox::open_for(&path, 10_000).unwrap();
    for number in 1..=20 {
        let file = beside(number, &"A".repeat(1_000));
        outbox.put_both(&Kept::Udp(result(number)), Some(&file)).unwrap();
        outbox.put_both(&Kept::Udp(result(number)), Some(&file)).unwrap();
    }
    assert_eq!(outbox.all().unwrap().len(), 20);
    let waiting = |outbox: &mut Outbox, kind| {
        let (mut last, mut ids) = (0, Vec::new());
        while let Some((number, file)) = outbox.file_after(last, kind).unwrap() {
            last = number;
            ids.push(file.id);
        }
        ids
    };
    let ids = waiting(&mut outbox, None);
    let newest: Vec<String> = (21 - ids.len() as u64..=20).map(|number| result(number).id).collect();
    assert!((7..10).contains(&ids.len()) && ids == newest, "{ids:?}");
    assert_eq!(waiting(&mut outbox, Some(FileKind::Samples)), [""; 0]);
    assert_eq!(waiting(&mut outbox, Some(FileKind::Losses)), ids);
    outbox.file_confirmed(&ids[0]).unwrap();
    assert_eq!(waiting(&mut outbox, None), ids[1..]);
    // A month later they are too old.
    let late = TestFile { at_ns: result(20).at_ns + 31 * 86_400_000_000_000, ..beside(21, "AAAA") };
    outbox.put_both(&Kept::Udp(result(21)), Some(&late)).unwrap();
    assert_eq!(waiting(&mut outbox, None), [late.id]);
    assert_eq!(outbox.all().unwrap().len(), 21);
}
