//! `longhaul compare` on captures of lab traffic with clocks apart, and on runs that are alike or are not.

use std::fs;
use std::process::Stdio;

use crate::common::captures::{Capture, Folder, json, missing, on, probes, rewrite};
use crate::common::{TestLab, alone, quiet};
use longhaul_testing::waiting::until;

/// 5 ms either way; the forward hop loses each 100th packet.
const EVEN: &str = "
name = 'even'
[[forward]]
rate = '1Gbit'
queue = '64MiB'
delay = '5ms'
loss = { every = 100 }
[[backward]]
rate = '1Gbit'
delay = '5ms'
";
const DELAY_NS: f64 = 5e6;
/// How near delay and offset are to be found.
const ERROR_NS: f64 = 20_000.0;

/// One clock stamps both captures, so of the server's capture with an offset and a drift that are made up, both must be found again, and with
/// them delay and losses as they were.
#[test]
fn clocks_apart_are_laid_over_each_other() {
    let _alone = alone();
    if missing("tcpdump") || missing("iperf3") {
        return;
    }
    let folder = Folder::new("clocks");
    let path = folder.file("even.toml");
    fs::write(&path, EVEN).unwrap();
    let Some(lab) = TestLab::up("clocks", &path) else { return };
    let captures = ["client", "server"].map(|host| Capture::start(&lab, host, &folder));
    let mut server = on(&lab, "server", &["iperf3", "-s", "-1"]).stdout(Stdio::null()).spawn().unwrap();
    let listens = || on(&lab, "server", &["sh", "-c", "ss -ltn | grep -q :5201"]).status().unwrap().success();
    until("iperf3 to listen", listens);
    let client = on(&lab, "client", &["iperf3", "-4", "-c", "server", "-t", "4", "-b", "4M", "-l", "1400"]).output();
    assert!(client.unwrap().status.success());
    server.wait().unwrap();
    let [a, b] = captures.map(Capture::finish);
    let plain = json(&["compare", "--same-clock", "--json", &a, &b]);
    let plain = &plain["result"]["points"]["directions"][0];
    assert!(plain["lost_packets"].as_u64().unwrap() > 10, "{plain:#}");

    for (offset_ns, drift_ppb) in [(0, 0), (3_700_000_000, 40_000), (-90_000_000_123, -100_000)] {
        let (moved, mut first_ns) = (folder.file("moved.pcap"), None);
        rewrite(&b, &moved, |at_ns, _| {
            let since_ns = *at_ns - *first_ns.get_or_insert(*at_ns);
            *at_ns += offset_ns + since_ns / 1_000 * drift_ppb / 1_000_000;
        });
        let compared = json(&["compare", "--json", &a, &moved]);
        let points = &compared["result"]["points"];
        let (clock, forward) = (&points["clock"], &points["directions"][0]);
        println!("{offset_ns} ns, {drift_ppb} ppb: {clock}, {}, window {}", forward["delay"], points["window_ns"]);
        let of = |name: &str| clock[name].as_f64().unwrap();
        assert!((of("offset_ns") - offset_ns as f64).abs() < ERROR_NS, "{clock}");
        assert!((of("offset_ns") - offset_ns as f64).abs() <= of("offset_error_ns"), "{clock}");
        assert!((of("offset_error_ns") - DELAY_NS).abs() < ERROR_NS, "half of the shortest round trip: {clock}");
        assert!((of("drift_ppb") - drift_ppb as f64).abs() < 10_000.0, "{clock}");
        let delay_ns = forward["delay"]["min_ns"].as_f64().unwrap();
        assert!((delay_ns - DELAY_NS).abs() < ERROR_NS, "{delay_ns}");
        let without_times = |between: &serde_json::Value| {
            let runs = between["lost"].as_array().unwrap().iter();
            runs.map(|run| (run["first_sequence"].clone(), run["packets"].clone())).collect::<Vec<_>>()
        };
        assert_eq!(without_times(forward), without_times(plain), "each lost packet by name");
        assert_eq!(forward["unknown_packets"], 0, "{forward:#}");
    }
}

/// Probes at the server of a path with `stddev` of jitter. The folder keeps the capture.
fn run_over(stddev: &str, number: usize) -> Option<(Folder, String)> {
    let name = format!("run{number}");
    let folder = Folder::new(&name);
    let path = folder.file("run.toml");
    let jitter = format!("jitter = {{ law = 'normal', stddev = '{stddev}', order = 'free' }}");
    let text = format!("name = 'run'\n[[forward]]\ndelay = '20ms'\n{jitter}\n[[backward]]\ndelay = '20ms'\n");
    fs::write(&path, text).unwrap();
    let lab = TestLab::up(&name, &path)?;
    let capture = Capture::start(&lab, "server", &folder);
    assert!(probes(&lab, 3_000, 1, 2.0).status().unwrap().success());
    Some((folder, capture.finish()))
}

#[test]
fn one_path_twice_is_alike_and_another_jitter_is_not() {
    let _machine = quiet();
    if missing("tcpdump") || missing("python3") {
        return;
    }
    let runs = std::thread::scope(|scope| {
        let runs = ["3ms", "3ms", "300us"].into_iter().enumerate();
        let runs: Vec<_> = runs.map(|(number, stddev)| scope.spawn(move || run_over(stddev, number))).collect();
        runs.into_iter().map(|run| run.join().unwrap()).collect::<Option<Vec<_>>>()
    });
    let Some(runs) = runs else { return };
    let verdict = |a: &str, b: &str| json(&["compare", "--behaviour", "--json", a, b])["result"]["behaviour"].clone();
    let (same, other) = (verdict(&runs[0].1, &runs[1].1), verdict(&runs[0].1, &runs[2].1));
    println!("{same}\n{other}");
    // A machine that pauses makes intervals of its own.
    assert_ne!(same["alike"], false, "{same:#}");
    assert_eq!(other["alike"], false, "{other:#}");
}
