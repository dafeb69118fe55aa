//! What `longhaul analyze` says limits a flow, where the path and the programs leave one cause alone.

use std::fs;
use std::process::Stdio;

use crate::common::captures::{Capture, Folder, json, missing, on};
use crate::common::{TestLab, alone, printed};
use longhaul_testing::waiting::until;
use serde_json::Value;

/// A round trip of 20 ms.
const PATH: &str = "
name = 'limits'
[[forward]]
name = 'wan'
rate = '1Gbit'
queue = '64MiB'
delay = '10ms'
[[backward]]
delay = '10ms'
";

/// Runs of a case, of which one must show its limit.
const RUNS_MOST: usize = 3;

struct Case {
    /// What limits it, by its key in `limited_by`.
    limit: &'static str,
    /// What the text about the sender's capture says is the first cause.
    cause: &'static str,
    /// Its share of time is at least this.
    share: f64,
    /// Of the forward hop.
    change: &'static [&'static str],
    /// Of the program that sends.
    options: &'static [&'static str],
}

const CASES: [Case; 5] = [
    // 5 Mbit/s on a path of 1 Gbit/s, in blocks of 20 kB, 32 ms apart.
    Case {
        limit: "application",
        cause: "the sending program, which writes too slowly, at sender",
        share: 0.8,
        change: &[],
        options: &["-b", "5M", "-l", "20000", "-t", "3"],
    },
    // A buffer of 64 KiB: a 38th of what a round trip carries.
    Case {
        limit: "receive_window",
        cause: "the receive window, at receiver",
        share: 0.8,
        change: &[],
        options: &["-w", "64K", "-t", "3"],
    },
    // A window of some 12 segments, halved each 100.
    Case {
        limit: "congestion",
        cause: "loss, and the congestion control's answer to it, at network",
        share: 0.5,
        change: &["forward.wan.loss=every(100)"],
        options: &["-C", "reno", "-t", "4"],
    },
    // The queue takes whatever the window grows to.
    Case {
        limit: "path_rate",
        cause: "a queue that sends at a lower rate than the links, at network",
        share: 0.6,
        change: &["forward.wan.rate=20Mbit"],
        options: &["-C", "cubic", "-t", "5"],
    },
    // Six round trips of ten segments, doubled, are 0.9 MB.
    Case {
        limit: "slow_start",
        cause: "the beginning of each transfer, at sender",
        share: 0.7,
        change: &[],
        options: &["-C", "reno", "-n", "900K"],
    },
];

/// The direction that carried most, of all flows.
fn largest(analysed: &Value) -> &Value {
    let flows = analysed["result"]["flows"].as_array().unwrap().iter();
    let ways = flows.flat_map(|flow| [&flow["forward"], &flow["backward"]]);
    ways.max_by_key(|way| way["payload_bytes"].as_u64()).unwrap()
}

/// Runs the traffic of `case` between two captures; says where `analyze` finds too little of its limit.
fn misjudged(lab: &TestLab, folder: &Folder, case: &Case) -> Vec<String> {
    let mut wrong = Vec::new();
    let captures = ["client", "server"].map(|host| Capture::start(lab, host, folder));
    let mut server = on(lab, "server", &["iperf3", "-s", "-1"]).stdout(Stdio::null()).spawn().unwrap();
    let listens = || on(lab, "server", &["sh", "-c", "ss -ltn | grep -q :5201"]).status().unwrap().success();
    until("iperf3 to listen", listens);
    let client = [&["iperf3", "-4", "-c", "server"], case.options].concat();
    let output = on(lab, "client", &client).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    server.wait().unwrap();
    for (at, file) in ["client", "server"].iter().zip(captures.map(Capture::finish)) {
        let found = json(&["analyze", "--json", &file]);
        let way = largest(&found);
        let limits = &way["tcp"]["limits"];
        println!(
            "{} at the {at}: {} of {} bytes: {}",
            case.limit, limits["slices"], way["payload_bytes"], limits["limited_by"]
        );
        let share = limits["limited_by"][case.limit].as_f64().unwrap();
        // The same for people: the largest share first. At the receiver a queue's rate is not told from the links'.
        let said = printed(&["analyze", "--top", "1", &file]);
        let limited = format!("limited by {} {:.0} %", case.limit.replace('_', " "), share * 100.0);
        let cause = format!("cause: {} (longhaul diagnose trace says more)", case.cause);
        let has = |line: &str| said.lines().any(|one| one.trim_start().starts_with(line));
        if share >= case.share && !(has(&limited) && (*at == "server" || has(&cause))) {
            wrong.push(format!("{} at the {at}: no `{limited}` and `{cause}` in {said}", case.limit));
        }
        if share < case.share {
            wrong.push(format!("{} at the {at}: {share:.2}", case.limit));
        }
    }
    wrong
}

/// What `analyze` misjudges of a case in each of its runs: other work on the machine can spoil one.
fn misjudged_each_time(case: &Case) -> Vec<String> {
    let name = format!("limits-{}", case.limit);
    let folder = Folder::new(&name);
    let path = folder.file("limits.toml");
    fs::write(&path, PATH).unwrap();
    let Some(lab) = TestLab::up(&name, &path) else { return Vec::new() };
    for host in ["client", "server"] {
        // The kernel opens the receiver's window by what comes as one: with super-packets it lags behind the sender's.
        let wire = ["ethtool", "-K", "eth0", "tso", "off", "gso", "off", "gro", "off"];
        assert!(on(&lab, host, &wire).stdout(Stdio::null()).status().unwrap().success());
    }
    if !case.change.is_empty() {
        printed(&[&["lab", "set", "--name", &lab.name], case.change].concat());
    }
    let mut wrong = Vec::new();
    for _ in 0..RUNS_MOST {
        wrong = misjudged(&lab, &folder, case);
        if wrong.is_empty() {
            break;
        }
    }
    wrong
}

#[test]
fn each_cause_is_found_in_traffic_that_has_it() {
    let _alone = alone();
    if missing("tcpdump") || missing("iperf3") {
        return;
    }
    // Each over a path of its own, all at a time: none of them uses much of the machine.
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let cases = CASES.iter().map(|case| scope.spawn(|| misjudged_each_time(case)));
        cases.collect::<Vec<_>>().into_iter().flat_map(|case| case.join().unwrap()).collect()
    });
    assert!(wrong.is_empty(), "{wrong:?}");
}
