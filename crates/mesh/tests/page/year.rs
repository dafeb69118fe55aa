//! Questions behind the page over a store with a year of hourly results of 40 sites. Ignored: it writes some gigabytes and takes minutes.
//!
//! `LONGHAUL_MESH_DAYS` makes it shorter; `LONGHAUL_MESH_STORE` is a coordinator's folder that there is already.
//!
//! `cargo test --workspace --test page -- --ignored --nocapture a_year`

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use longhaul_mesh::store::Archive;
use sqlx::sqlite::{SqliteConnectOptions, SqliteSynchronous};
use sqlx::{Connection, SqliteConnection};

use crate::common::{Coordinator, Folder, HOUR_NS, hub, now_ns};

/// Results of 1560 pairs for each hour up to now, written by the database itself: a quarter of the tests loses 1 to 128 of 7500 packets.
fn fill(file: &std::path::Path, days: i64) -> i64 {
    let options =
        SqliteConnectOptions::new().filename(file).synchronous(SqliteSynchronous::Off).pragma("cache_size", "-400000");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let number = days * 24 * 1560;
    runtime.block_on(async {
        let mut connection = SqliteConnection::connect_with(&options).await.unwrap();
        let results = "WITH RECURSIVE counted(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM counted WHERE n + 1 < $1), \
             pairs AS (SELECT n, $2 + n / 1560 AS hour, n % 1560 / 39 AS one, n % 39 AS other FROM counted) \
             INSERT INTO results SELECT printf('%032x', n), 'probes', printf('site-%02d', one + 1), \
             printf('site-%02d', other + 1 + (other >= one)), hour * 3600000000000 + n % 1560 * 2000000000, 7500, \
             CASE WHEN abs(random() % 4) = 0 THEN 1 << abs(random() % 8) ELSE 0 END, NULL, NULL, 1000000 FROM pairs";
        sqlx::query(results).bind(number).bind(now_ns() / HOUR_NS - days * 24).execute(&mut connection).await.unwrap();
        let hours =
            "INSERT INTO hours SELECT test, sender, receiver, at_ns / 3600000000000, 1, sent, lost FROM results";
        sqlx::query(hours).execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
    });
    number
}

/// A coordinator's folder with so many days of 40 sites.
fn generated(folder: &Folder, days: i64) -> PathBuf {
    let sites: Vec<String> = (1..=40).map(|number| format!("site-{number:02}")).collect();
    let hub = hub(folder, &sites, &[]);
    let file = hub.join("archive");
    drop(Archive::open(&file).unwrap());
    println!("{} results of {days} days", fill(&file, days));
    // It adds up what has no sums yet.
    drop(Archive::open(&file).unwrap());
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
    let begin = Instant::now();
    coordinator.get("/metrics");
    println!("/metrics: {} ms", begin.elapsed().as_millis());
    assert!(slow.is_empty(), "slower than 200 ms: {slow:?}");
}
