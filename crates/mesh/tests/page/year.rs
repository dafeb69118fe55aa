//! Questions behind the page over a store with a year of hourly results of 40 sites, in SQLite and in PostgreSQL. Ignored: it writes some gigabytes
//! and takes minutes.
//!
//! `LONGHAUL_MESH_DAYS` makes it shorter; `LONGHAUL_MESH_STORE` is a coordinator's folder that there is already.
//!
//! `cargo test --workspace --test page -- --ignored --nocapture a_year`

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use longhaul_mesh::store::{Address, Archive};
use longhaul_testing::postgres::Postgres;
use sqlx::sqlite::{SqliteConnectOptions, SqliteSynchronous};
use sqlx::{AssertSqlSafe, Connection, SqliteConnection};

use crate::common::{Coordinator, Folder, HOUR_NS, hub, now_ns};

/// Pairs of 40 sites.
const PAIRS: i64 = 1560;

/// Results of 1560 pairs for each hour up to now, and their sums: a quarter of the tests loses 1 to 128 of 7500 packets. The pairs of an hour come in
/// an order that is not theirs in the tables. Of round trips and TCP it writes what follows from the results: days and units of 30 days, and the
/// hours of the last 60 days. `$1`: results, `$2`: the first hour, `$3`: days; `$id` and `$random(N)`, from 0 to N - 1, are other words in each
/// database.
const STEPS: [&str; 13] = [
    "WITH RECURSIVE counted(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM counted WHERE n + 1 < 1560) \
     INSERT INTO flows SELECT n + 1, 'probes', 'site-' || substr(CAST(101 + n / 39 AS TEXT), 2), \
     'site-' || substr(CAST(101 + n % 39 + CASE WHEN n % 39 >= n / 39 THEN 1 ELSE 0 END AS TEXT), 2) FROM counted",
    "WITH RECURSIVE counted(n) AS (SELECT CAST(0 AS BIGINT) UNION ALL SELECT n + 1 FROM counted WHERE n + 1 < $1) \
     INSERT INTO results SELECT $2 + n / 1560, n % 1560 * 1009 % 1560 + 1, n % 1560 * 2000000000 + $random(1000000000), \
     $id, 7500, CASE WHEN $random(4) = 0 THEN 1 << $random(8) ELSE 0 END, NULL, NULL, 1000000 + $random(1000) FROM counted",
    "INSERT INTO spans SELECT 1, hour / 24, flow, count(*), sum(sent), sum(lost) FROM results GROUP BY hour / 24, flow",
    "INSERT INTO spans SELECT 6, begin / 6, flow, sum(tests), sum(sent), sum(lost) FROM spans WHERE days = 1 GROUP BY begin / 6, flow",
    "INSERT INTO spans SELECT 30, begin / 30, flow, sum(tests), sum(sent), sum(lost) FROM spans WHERE days = 1 GROUP BY begin / 30, flow",
    // Four buckets a decade; -1000 has the tests that lost nothing.
    "INSERT INTO losses SELECT hour / 24, 'probes', CASE lost WHEN 0 THEN -1000 WHEN 1 THEN -16 WHEN 2 THEN -15 WHEN 4 THEN -14 \
     WHEN 8 THEN -12 WHEN 16 THEN -11 WHEN 32 THEN -10 WHEN 64 THEN -9 ELSE -8 END AS bucket, count(*) FROM results GROUP BY 1, 2, 3",
    "INSERT INTO flows SELECT flow + 1560, 'goodput', sender, receiver FROM flows WHERE test = 'probes'",
    "INSERT INTO flows SELECT flow + 3120, 'delay', sender, receiver FROM flows WHERE test = 'probes' AND sender < receiver",
    "WITH RECURSIVE counted(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM counted WHERE n < $3) \
     INSERT INTO medians SELECT 'goodput', 86400000000000, flow, $2 / 24 + n, 4, 0, 0, 40000000 + $random(6000000), 46423927, 0, 0 \
     FROM flows CROSS JOIN counted WHERE test = 'goodput'",
    "WITH RECURSIVE counted(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM counted WHERE n < $3) \
     INSERT INTO medians SELECT 'rtt', 86400000000000, flow, $2 / 24 + n, 144, 864000, $random(90), \
     90000000 + $random(6000000), 99000000 + $random(6000000), $random(2), 1000000000 FROM flows CROSS JOIN counted WHERE test = 'delay'",
    "INSERT INTO rollups SELECT metric, flow, begin / 30, sum(tests), sum(sent), sum(lost), string_agg(CAST(median AS TEXT), ','), \
     string_agg(CAST(beside AS TEXT), ','), sum(outages), max(longest_outage_ns) FROM medians GROUP BY metric, flow, begin / 30",
    "WITH RECURSIVE counted(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counted WHERE n < 1440) \
     INSERT INTO medians SELECT metric, 3600000000000, flow, $2 + $3 * 24 - n, 6, sent / 24, 0, median, beside, 0, 0 \
     FROM medians CROSS JOIN counted WHERE unit_ns = 86400000000000 AND begin = $2 / 24 + $3 AND (metric = 'rtt' OR n % 6 = 0)",
    "INSERT INTO seen SELECT DISTINCT sender, ($2 + $1 / 1560) * 3600000000000 FROM flows",
];

/// [`STEPS`] for so many days; `id` is how the database makes 16 bytes, `random` what stands around a number below which it makes one.
fn steps(days: i64, id: &str, [before, behind]: [&str; 2]) -> Vec<String> {
    let (number, first) = (days * 24 * PAIRS, now_ns() / HOUR_NS - days * 24);
    let step = |step: &str| {
        let mut parts = step.split("$random(");
        let mut text = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (below, rest) = part.split_once(')').unwrap();
            text += &format!("{before}{below}{behind}{rest}");
        }
        let values = [("$id", id), ("$1", &number.to_string()), ("$2", &first.to_string()), ("$3", &days.to_string())];
        values.iter().fold(text, |text, (name, value)| text.replace(name, value))
    };
    STEPS.map(step).to_vec()
}

/// Has the database itself write them. Returns its size, bytes.
fn fill_sqlite(file: &Path, days: i64) -> u64 {
    let options =
        SqliteConnectOptions::new().filename(file).synchronous(SqliteSynchronous::Off).pragma("cache_size", "-400000");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut connection = SqliteConnection::connect_with(&options).await.unwrap();
        for step in steps(days, "randomblob(16)", ["abs(random() % ", ")"]) {
            sqlx::query(AssertSqlSafe(step)).execute(&mut connection).await.unwrap();
        }
        connection.close().await.unwrap();
    });
    let files = [file.to_owned(), file.with_file_name("archive-wal")];
    files.iter().filter_map(|file| fs::metadata(file).ok()).map(|file| file.len()).sum()
}

/// The same. A database that grew for a year has been looked at by its autovacuum.
fn fill_postgres(server: &Postgres, days: i64) -> u64 {
    for step in steps(days, "decode(md5(random()::text), 'hex')", ["floor(random() * ", ")::int"]) {
        server.ask(&step);
    }
    server.ask("VACUUM ANALYZE");
    server.ask("SELECT pg_database_size('postgres')").parse().unwrap()
}

/// How many days: a year, if nobody says otherwise.
fn days() -> i64 {
    std::env::var("LONGHAUL_MESH_DAYS").ok().and_then(|text| text.parse().ok()).unwrap_or(365)
}

/// A coordinator's folder with 40 sites.
fn forty_sites(folder: &Folder) -> PathBuf {
    let sites: Vec<String> = (1..=40).map(|number| format!("site-{number:02}")).collect();
    hub(folder, &sites, &[])
}

#[test]
#[ignore = "writes some gigabytes and takes minutes"]
fn a_year_of_forty_sites_is_read_in_time() {
    let folder = Folder::new("year");
    let hub = std::env::var_os("LONGHAUL_MESH_STORE").map(PathBuf::from).unwrap_or_else(|| {
        let (hub, begin) = (forty_sites(&folder), Instant::now());
        say_made(fill_sqlite(&hub.join("archive"), days()), begin);
        hub
    });
    is_read_in_time(&hub);
}

#[test]
#[ignore = "writes some gigabytes and takes minutes"]
fn a_year_of_forty_sites_is_read_in_time_from_postgresql() {
    let (folder, server) = (Folder::new("year-postgresql"), Postgres::start());
    let (hub, begin) = (forty_sites(&folder), Instant::now());
    fs::write(hub.join("store"), server.address()).unwrap();
    fs::set_permissions(hub.join("store"), fs::Permissions::from_mode(0o600)).unwrap();
    // It makes the tables.
    drop(Archive::open(server.address().parse::<Address>().unwrap()).unwrap());
    say_made(fill_postgres(&server, days()), begin);
    is_read_in_time(&hub);
}

fn say_made(bytes: u64, begin: Instant) {
    println!("a store of {:.2} GB, made in {:.0} s", bytes as f64 / 1e9, begin.elapsed().as_secs_f64());
}

/// Each question takes 200 ms at most in the median.
fn is_read_in_time(hub: &Path) {
    let coordinator = Coordinator::start(hub, &[]);
    // It judges the last days first.
    let begin = Instant::now();
    coordinator.alarms();
    println!("alarms judged after {:.1} s", begin.elapsed().as_secs_f64());
    let mut slow = Vec::new();
    for question in [
        "mesh",
        "sites",
        "alarms",
        "schedule?next=12",
        "pairs?days=1",
        "pairs?days=2",
        "pairs?days=7",
        "pairs?days=30",
        "pairs?days=100",
        "pairs?days=365",
        "losses?days=100",
        "losses?days=365",
        "pairs/site-01/site-02?days=7",
        "pairs/site-01/site-02?days=30",
        "pairs/site-01/site-02?days=365",
        "pairs/site-01/site-02/tests?days=2",
        "pairs?days=2&metric=rtt",
        "pairs?days=7&metric=rtt",
        "pairs?days=100&metric=rtt",
        "pairs?days=365&metric=rtt",
        "pairs?days=2&metric=goodput",
        "pairs?days=100&metric=goodput",
        "pairs?days=365&metric=goodput",
        "pairs/site-01/site-02?days=30&metric=rtt",
        "pairs/site-01/site-02?days=365&metric=rtt",
        "pairs/site-01/site-02?days=365&metric=goodput",
    ] {
        let mut times: Vec<Duration> = (0..7)
            .map(|_| {
                let begin = Instant::now();
                coordinator.json(question);
                begin.elapsed()
            })
            .collect();
        times.sort();
        println!(
            "{question}: {} ms (first to last: {} to {})",
            times[3].as_millis(),
            times[0].as_millis(),
            times[6].as_millis()
        );
        if times[3] > Duration::from_millis(200) {
            slow.push(question);
        }
    }
    for (metric, expected) in [("loss", PAIRS), ("goodput", PAIRS), ("rtt", PAIRS / 2)] {
        let answer = coordinator.json(&format!("pairs?days=365&metric={metric}"));
        assert_eq!(answer["pairs"].as_array().unwrap().len() as i64, expected, "{metric}");
    }
    let begin = Instant::now();
    coordinator.get("/metrics");
    println!("/metrics: {} ms", begin.elapsed().as_millis());
    assert!(slow.is_empty(), "slower than 200 ms: {slow:?}");
}
