//! End to end: a path is measured in real time, a path file made of that alone, that path emulated and measured again, and `verify` says how
//! alike both are.

use std::fs;
use std::process::Stdio;

use crate::common::captures::{Capture, Folder, json, missing, on};
use crate::common::{TestLab, alone, longhaul, object, quiet, side_by_side};
use crate::rtt::Answered;
use longhaul_testing::waiting::until;
use serde_json::Value;

const LONGHAUL: &str = env!("CARGO_BIN_EXE_longhaul");

/// A path that ECMP splits: one of two ways, 3 ms apart, three packets of five by the shorter one: half and half have no certain median.
const BIMODAL: &str = "
[[forward]]
delay = '20ms'
jitter = { law = 'table', stddev = '1500us', order = 'free', correlation = '1ms', quantiles = QUANTILES }
[[backward]]
delay = '20ms'
";
const GILBERT_ELLIOTT: &str = "
[[forward]]
delay = '10ms'
jitter = { law = 'normal', stddev = '500us', correlation = '20ms' }
loss = { gilbert-elliott = { p = '2%', r = '25%' } }
[[backward]]
delay = '10ms'
";
const OUTAGE: &str = "
[[forward]]
delay = '15ms'
jitter = { law = 'normal', stddev = '400us', correlation = '10ms' }
outages = [{ at = '5s', for = '1500ms' }]
[[backward]]
delay = '15ms'
";
const REORDERING: &str = "
[[forward]]
delay = '20ms'
jitter = { law = 'normal', stddev = '3ms', order = 'free' }
[[backward]]
delay = '10ms'
";

/// Measures `truth`, makes a path file, and verifies it against that measurement in virtual time and in real time.
fn copied(name: &str, truth: &str, time: &str) -> Option<[Value; 2]> {
    let folder = Folder::new(&format!("copies-{name}"));
    let [log, copy, again] = ["log", "copy.toml", "again"].map(|name| folder.file(name));
    let answered = Answered::on_this_machine(&format!("copies-{name}"), truth)?;
    let rtt = [LONGHAUL, "rtt", "server", "-i", "2ms", "-t", time, "-o", &log];
    let output = on(&answered.lab, "client", &rtt).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    drop(answered);
    let made = json(&["profile", &log, "--same-clock", "-o", &copy, "--json"]);
    println!("{name}: {}", made["result"]["path_file"].as_str().unwrap());
    let verify = ["verify", &copy, "--against", &log, "--json"];
    let found = [&verify[..], &[&verify[..], &["--measure", &again, "-t", time]].concat()].map(|arguments| {
        let output = longhaul(arguments);
        println!("{}", String::from_utf8_lossy(&output.stderr));
        object(&output.stdout)["result"].clone()
    });
    for (found, how) in found.iter().zip(["in virtual time", "in real time"]) {
        for quantity in found["directions"][0]["quantities"].as_array().unwrap() {
            println!(
                "{name} {how}: {} {} and {}, {} within {}: {}",
                quantity["name"],
                quantity["reference"],
                quantity["tested"],
                quantity["difference"],
                quantity["margin"],
                quantity["verdict"]
            );
        }
    }
    Some(found)
}

fn verdict(found: &Value, name: &str) -> String {
    let all = found["directions"][0]["quantities"].as_array().unwrap();
    let quantity = all.iter().find(|quantity| quantity["name"] == name);
    quantity.unwrap_or_else(|| panic!("{name}: {found:#}"))["verdict"].as_str().unwrap().to_owned()
}

/// Nothing is outside in virtual time; in real time none of those that the machine's own pauses leave alone; and `within` are within.
fn judged(name: &str, truth: &str, time: &str, within: &[&str]) {
    let Some([virtually, really]) = copied(name, truth, time) else { return };
    assert_ne!(virtually["verdict"], "outside", "{name}: {virtually:#}");
    assert!(really["lateness"]["p99_ns"].as_u64().is_some(), "{really:#}");
    for quantity in within {
        assert_eq!(verdict(&virtually, quantity), "within", "{name}: {virtually:#}");
        assert_ne!(verdict(&really, quantity), "outside", "{name}: {really:#}");
    }
}

#[test]
fn the_path_to_san_diego_is_copied() {
    let _alone = alone();
    let preset = include_str!("../../../../paths/amsterdam-sandiego.toml");
    // Where hosts add more than the path's 8 us of jitter, they are not independent for long.
    judged("san-diego", preset, "8s", &[]);
}

#[test]
fn bursts_of_loss_are_copied() {
    let _shared = side_by_side();
    judged("bursts", GILBERT_ELLIOTT, "20s", &["median_ns"]);
}

#[test]
fn two_ways_at_once_are_copied() {
    let _shared = side_by_side();
    let quantiles: Vec<&str> = [vec!["-0.8"; 600], vec!["1.2"; 400]].concat();
    let path = BIMODAL.replace("QUANTILES", &format!("[{}]", quantiles.join(", ")));
    judged("two-ways", &path, "10s", &["median_ns"]);
}

#[test]
fn an_outage_is_copied() {
    let _shared = side_by_side();
    // An outage of 1.5 s in 10 s leaves too few independent parts to be within anything.
    judged("outage", OUTAGE, "10s", &[]);
}

#[test]
fn reordering_is_copied() {
    let _shared = side_by_side();
    judged("reordering", REORDERING, "10s", &["median_ns", "reordered_share"]);
}

/// Captures of both ends while TCP runs: each direction by itself, with its losses, and the copy is within; one capture tells the round trip.
#[test]
fn captures_make_a_copy() {
    let _machine = quiet();
    if missing("tcpdump") || missing("iperf3") {
        return;
    }
    let folder = Folder::new("copies-captures");
    let [path, copy, single] = ["true.toml", "copy.toml", "single.toml"].map(|name| folder.file(name));
    let truth = "name = 'true'\n[[forward]]\nrate = '100Mbit'\nqueue = '4MiB'\ndelay = '18ms'\nloss = { random = '1%' }\n\
                 [[backward]]\ndelay = '7ms'\n";
    fs::write(&path, truth).unwrap();
    let Some(lab) = TestLab::up("copies-captures", &path) else { return };
    let captures = ["client", "server"].map(|host| Capture::start(&lab, host, &folder));
    let mut server = on(&lab, "server", &["iperf3", "-s", "-1"]).stdout(Stdio::null()).spawn().unwrap();
    let listens = || on(&lab, "server", &["sh", "-c", "ss -ltn | grep -q :5201"]).status().unwrap().success();
    until("iperf3 to listen", listens);
    let client = on(&lab, "client", &["iperf3", "-4", "-c", "server", "-t", "10", "-b", "8M"]).output();
    assert!(client.unwrap().status.success());
    server.wait().unwrap();
    let [near, far] = captures.map(Capture::finish);
    drop(lab);
    let made = json(&["profile", &near, &far, "--same-clock", "-o", &copy, "--json"]);
    let result = &made["result"];
    println!("{}", result["path_file"].as_str().unwrap());
    for (way, want) in [("forward", 18e6), ("backward", 7e6)] {
        let found = result[way]["p50_ns"].as_f64().unwrap();
        assert!((found / want - 1.0).abs() < 0.05, "{way}: {found}");
    }
    let interval = &result["loss"]["law"]["interval"];
    assert!(interval[0].as_f64().unwrap() < 0.01 && interval[1].as_f64().unwrap() > 0.01, "{:#}", result["loss"]);
    assert_eq!(result["backward_loss"]["lost_packets"], 0, "{:#}", result["backward_loss"]);
    let output = longhaul(&["verify", &copy, "--against", &near, "--against", &far, "--same-clock", "--json"]);
    let verified = object(&output.stdout)["result"].clone();
    println!("{verified:#}");
    assert_ne!(verified["verdict"], "outside");
    assert_eq!(verified["directions"][1]["of"], "backward");

    let of_one = json(&["profile", &near, "-o", &single, "--json"]);
    let result = &of_one["result"];
    println!("{}", result["path_file"].as_str().unwrap());
    let shortest = result["rtt"]["min_ns"].as_f64().unwrap();
    assert!((shortest / 25e6 - 1.0).abs() < 0.05, "{:#}", result["rtt"]);
    let lost = result["loss"]["lost_packets"].as_f64().unwrap() / result["loss"]["sent_packets"].as_f64().unwrap();
    assert!((0.005..0.02).contains(&lost), "{:#}", result["loss"]);
    assert!(result["not_known"].to_string().contains("acknowledge"), "{result:#}");
}

/// The kernel's round trips of a `tcp` test, and the losses that it repaired.
#[test]
fn a_tcp_result_makes_a_copy() {
    let _shared = side_by_side();
    let folder = Folder::new("copies-tcp");
    let [saved, copy] = ["saved", "copy.toml"].map(|name| folder.file(name));
    let truth = "[[forward]]\nrate = '50Mbit'\nqueue = '100KiB'\ndelay = '15ms'\nloss = { random = '0.1%' }\n\
                 [[backward]]\ndelay = '15ms'\n";
    let Some(answered) = Answered::on_this_machine("copies-tcp", truth) else { return };
    let output = on(&answered.lab, "client", &[LONGHAUL, "tcp", "server", "-t", "6s", "-o", &saved]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    drop(answered);
    let made = json(&["profile", &saved, "-o", &copy, "--json"]);
    let result = &made["result"];
    println!("{}", result["path_file"].as_str().unwrap());
    assert!((result["rtt"]["min_ns"].as_f64().unwrap() / 30e6 - 1.0).abs() < 0.1, "{:#}", result["rtt"]);
    assert!(result["loss"]["lost_packets"].as_u64().unwrap() > 0, "{:#}", result["loss"]);
    assert!(result["not_known"].to_string().contains("smooths"), "{result:#}");
}
