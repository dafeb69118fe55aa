//! Questions behind the page over a store with a year of hourly results of 40 sites. Ignored: it writes some gigabytes and takes minutes.
//!
//! `cargo test --workspace --test page -- --ignored --nocapture a_year`

use std::fs;
use std::time::{Duration, Instant};

use longhaul_mesh::store::{Archive, TestResult};

use crate::common::{Coordinator, Folder, HOUR_NS, hub, now_ns};

#[test]
#[ignore = "writes some gigabytes and takes minutes"]
fn a_year_of_forty_sites_is_read_in_time() {
    let days: i64 = std::env::var("LONGHAUL_MESH_DAYS").ok().and_then(|text| text.parse().ok()).unwrap_or(365);
    let folder = Folder::new("year");
    let sites: Vec<String> = (1..=40).map(|number| format!("site-{number:02}")).collect();
    let hub = hub(&folder, &sites, &[]);
    let begin = Instant::now();
    let mut archive = Archive::open(&hub.join("archive")).unwrap();
    let first = now_ns() / HOUR_NS - days * 24;
    let (mut number, mut seed) = (0u64, 1u64);
    for hour in first..first + days * 24 {
        let mut results = Vec::new();
        for (from, sender) in sites.iter().enumerate() {
            for (to, receiver) in sites.iter().enumerate().filter(|(to, _)| *to != from) {
                number += 1;
                // Most tests lose nothing; the others over four decades. (xorshift64)
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                let lost = if seed.is_multiple_of(4) { 1i64 << (seed >> 8 & 7) } else { 0 };
                results.push(TestResult {
                    id: format!("{:032x}", u128::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)),
                    test: "probes".into(),
                    sender: sender.clone(),
                    receiver: receiver.clone(),
                    at_ns: hour * HOUR_NS + (from * 40 + to) as i64 * 2_000_000_000,
                    sent: 7500,
                    lost,
                    at_sender: None,
                    at_receiver: None,
                    received_rate_bps: 1_000_000,
                });
            }
        }
        archive.take(&results).unwrap();
    }
    drop(archive);
    let bytes: u64 = ["archive", "archive-wal"]
        .iter()
        .filter_map(|name| fs::metadata(hub.join(name)).ok())
        .map(|file| file.len())
        .sum();
    println!(
        "{number} results of {days} days: {:.2} GB, written in {:.0} s",
        bytes as f64 / 1e9,
        begin.elapsed().as_secs_f64()
    );
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
        "pairs/site-01/site-02/tests?days=7",
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
