//! Questions behind the page over a store with a year of hourly results of 40 sites. Ignored: it writes some gigabytes and takes minutes.
//!
//! `LONGHAUL_MESH_DAYS` makes it shorter; `LONGHAUL_MESH_STORE` is a coordinator's folder that there is already.
//!
//! `cargo test --workspace --test page -- --ignored --nocapture a_year`

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sqlx::sqlite::{SqliteConnectOptions, SqliteSynchronous};
use sqlx::{AssertSqlSafe, Connection, SqliteConnection};

use crate::common::{Coordinator, Folder, HOUR_NS, hub, now_ns};

/// Pairs of 40 sites.
const PAIRS: i64 = 1560;

/// Writes results of 1560 pairs for each hour up to now, and their sums, by the database itself: a quarter of the tests loses 1 to 128 of 7500
/// packets. The pairs of an hour come in an order that is not theirs in the tables. Of round trips and TCP it writes what follows from the results:
/// days and units of 30 days, and the hours of the last 60 days.
fn fill(file: &Path, days: i64) -> i64 {
    let options =
        SqliteConnectOptions::new().filename(file).synchronous(SqliteSynchronous::Off).pragma("cache_size", "-400000");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (number, first) = (days * 24 * PAIRS, now_ns() / HOUR_NS - days * 24);
    runtime.block_on(async {
        let mut connection = SqliteConnection::connect_with(&options).await.unwrap();
        for step in [
            "WITH RECURSIVE counted(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM counted WHERE n + 1 < 1560) \
             INSERT INTO flows SELECT n + 1, 'probes', printf('site-%02d', n / 39 + 1), \
             printf('site-%02d', n % 39 + 1 + (n % 39 >= n / 39)) FROM counted",
            "WITH RECURSIVE counted(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM counted WHERE n + 1 < $1) \
             INSERT INTO results SELECT $2 + n / 1560, n % 1560 * 1009 % 1560 + 1, n % 1560 * 2000000000 + abs(random() % 1000000000), \
             randomblob(16), 7500, CASE WHEN abs(random() % 4) = 0 THEN 1 << abs(random() % 8) ELSE 0 END, NULL, NULL, \
             1000000 + abs(random() % 1000) FROM counted",
            "INSERT INTO spans SELECT 1, hour / 24, flow, count(*), sum(sent), sum(lost) FROM results GROUP BY hour / 24, flow",
            "INSERT INTO spans SELECT 6, begin / 6, flow, sum(tests), sum(sent), sum(lost) FROM spans WHERE days = 1 GROUP BY begin / 6, flow",
            "INSERT INTO spans SELECT 30, begin / 30, flow, sum(tests), sum(sent), sum(lost) FROM spans WHERE days = 1 \
             GROUP BY begin / 30, flow",
            // Four buckets a decade; -1000 has the tests that lost nothing.
            "INSERT INTO losses SELECT hour / 24, 'probes', CASE lost WHEN 0 THEN -1000 WHEN 1 THEN -16 WHEN 2 THEN -15 WHEN 4 THEN -14 \
             WHEN 8 THEN -12 WHEN 16 THEN -11 WHEN 32 THEN -10 WHEN 64 THEN -9 ELSE -8 END AS bucket, count(*) FROM results GROUP BY 1, 2, 3",
            "INSERT INTO flows SELECT flow + 1560, 'goodput', sender, receiver FROM flows WHERE test = 'probes'",
            "INSERT INTO flows SELECT flow + 3120, 'delay', sender, receiver FROM flows WHERE test = 'probes' AND sender < receiver",
            "WITH RECURSIVE counted(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM counted WHERE n < $3) \
             INSERT INTO medians SELECT 'goodput', 86400000000000, flow, $2 / 24 + n, 4, 0, 0, 40000000 + abs(random() % 6000000), 46423927, 0, 0 \
             FROM flows CROSS JOIN counted WHERE test = 'goodput'",
            "WITH RECURSIVE counted(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM counted WHERE n < $3) \
             INSERT INTO medians SELECT 'rtt', 86400000000000, flow, $2 / 24 + n, 144, 864000, abs(random() % 90), \
             90000000 + abs(random() % 6000000), 99000000 + abs(random() % 6000000), abs(random() % 2), 1000000000 \
             FROM flows CROSS JOIN counted WHERE test = 'delay'",
            "INSERT INTO rollups SELECT metric, flow, begin / 30, sum(tests), sum(sent), sum(lost), string_agg(CAST(median AS TEXT), ','), \
             string_agg(CAST(beside AS TEXT), ','), sum(outages), max(longest_outage_ns) FROM medians GROUP BY metric, flow, begin / 30",
            "WITH RECURSIVE counted(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counted WHERE n < 1440) \
             INSERT INTO medians SELECT metric, 3600000000000, flow, $2 + $3 * 24 - n, 6, sent / 24, 0, median, beside, 0, 0 \
             FROM medians CROSS JOIN counted WHERE unit_ns = 86400000000000 AND begin = $2 / 24 + $3 AND (metric = 'rtt' OR n % 6 = 0)",
            "INSERT INTO seen SELECT DISTINCT sender, ($2 + $1 / 1560) * 3600000000000 FROM flows",
        ] {
            let step = step.replace("$1", &number.to_string()).replace("$2", &first.to_string()).replace("$3", &days.to_string());
            sqlx::query(AssertSqlSafe(step)).execute(&mut connection).await.unwrap();
        }
        connection.close().await.unwrap();
    });
    number
}

/// A coordinator's folder with so many days of 40 sites.
fn generated(folder: &Folder, days: i64) -> PathBuf {
    let sites: Vec<String> = (1..=40).map(|number| format!("site-{number:02}")).collect();
    let hub = hub(folder, &sites, &[]);
    println!("{} results of {days} days", fill(&hub.join("archive"), days));
    hub
}

#[test]
#[ignore = "writes some gigabytes and takes minutes"]
fn a_year_of_forty_sites_is_read_in_time() {
    let days: i64 = std::env::var("LONGHAUL_MESH_DAYS").ok().and_then(|text| text.parse().ok()).unwrap_or(365);
    let folder = Folder::new("year");
    let begin = Instant::now();
    let hub = std::env::var_os("LONGHAUL_MESH_STORE").map_or_else(|| generated(&folder, days), PathBuf::from);
    let bytes: u64 = ["archive", "archive-wal"]
        .iter()
        .filter_map(|name| fs::metadata(hub.join(name)).ok())
        .map(|file| file.len())
        .sum();
    println!("a store of {:.2} GB, made in {:.0} s", bytes as f64 / 1e9, begin.elapsed().as_secs_f64());
    let coordinator = Coordinator::start(&hub, &[]);
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
