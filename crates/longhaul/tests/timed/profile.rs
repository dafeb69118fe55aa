//! A path is measured, rebuilt from that alone, and measured again.

use std::fs;
use std::process::Stdio;

use crate::common::captures::{Folder, json, missing, on};
use crate::common::{TestLab, alone, longhaul, object, quiet};
use crate::rtt::Answered;
use serde_json::Value;

/// What is to be found again.
const TRUE: &str = "
name = 'true'
[[forward]]
delay = '20ms'
jitter = { law = 'normal', stddev = '1ms', correlation = '30ms' }
loss = { bursts = { for = '40ms', every = '500ms' } }
[[backward]]
delay = '10ms'
";

/// 1,000 probes, 10 ms apart, over a path.
fn ping(name: &str, path: &str, seed: &str, ip: &str) -> Option<String> {
    let lab = TestLab::up_with(name, path, &["--seed", seed])?;
    let output = on(&lab, "client", &["ping", ip, "-i", "0.01", "-c", "1000", "server"]).output().unwrap();
    Some(String::from_utf8(output.stdout).unwrap())
}

fn quantity<'a>(verified: &'a Value, name: &str) -> &'a Value {
    let all = verified["result"]["directions"][0]["quantities"].as_array().unwrap();
    all.iter().find(|quantity| quantity["name"] == name).unwrap_or_else(|| panic!("{name}: {verified:#}"))
}

#[test]
fn a_path_is_measured_and_rebuilt() {
    let _machine = quiet();
    if missing("ping") {
        return;
    }
    let folder = Folder::new("profile");
    let [truth, copy, first, second] =
        ["true.toml", "copy.toml", "first.txt", "second.txt"].map(|name| folder.file(name));
    fs::write(&truth, TRUE).unwrap();
    let Some(measured) = ping("profile-true", &truth, "1", "-4") else { return };
    fs::write(&first, measured).unwrap();

    let profile = json(&["profile", &first, "-o", &copy, "--json"]);
    let result = &profile["result"];
    let near = |key: &Value, want: f64, share: f64| {
        let found = key.as_f64().unwrap();
        assert!((found / want - 1.0).abs() < share, "{found} of {want}: {result:#}");
    };
    near(&result["rtt"]["p50_ns"], 30e6, 0.02);
    // The standard deviation would be that of the machine's pauses, if it had any.
    let range = result["rtt"]["p90_ns"].as_f64().unwrap() - result["rtt"]["p10_ns"].as_f64().unwrap();
    near(&range.into(), 2.563e6, 0.15);
    assert_eq!(result["loss"]["law"]["law"], "bursts", "{result:#}");
    near(&result["loss"]["law"]["lasting_ns"], 40e6, 0.8);
    assert_eq!(result["split"], "round_trips");

    // The copy, in real time, by IPv6: what was measured there behaves like the copy, and its delays like the path that it is a copy of.
    // Twenty bursts tell less about their own mean.
    let Some(measured) = ping("profile-copy", &copy, "2", "-6") else { return };
    fs::write(&second, measured).unwrap();
    let delays = &["median_ns", "range_ns", "correlation"][..];
    for (path, names) in [(&truth, delays), (&copy, &[delays, &["loss_share", "loss_run_packets"]].concat())] {
        let verified = object(&longhaul(&["verify", path, "--against", &second, "--json"]).stdout);
        for name in names {
            let quantity = quantity(&verified, name);
            println!("{name}: {quantity}");
            assert_ne!(quantity["verdict"], "outside", "{path}: {quantity:#}");
        }
        assert_ne!(quantity(&verified, "median_ns")["difference"], Value::Null);
    }
    // Another path is another path.
    let other = folder.file("other.toml");
    fs::write(&other, TRUE.replace("20ms", "22ms").replace("'500ms'", "'10s'")).unwrap();
    let output = longhaul(&["verify", &other, "--against", &second, "--json"]);
    assert_eq!(output.status.code(), Some(3));
    let verified = object(&output.stdout);
    for name in ["median_ns", "loss_share"] {
        assert_eq!(quantity(&verified, name)["verdict"], "outside", "{verified:#}");
    }
}

/// Another rate and queue in each direction.
const ASYMMETRIC: &str = "
name = 'asymmetric'
[[forward]]
rate = '60Mbit'
queue = '300KiB'
delay = '15ms'
[[backward]]
rate = '20Mbit'
queue = '128KiB'
delay = '15ms'
";

/// What TCP carries over a path in each direction, Mb/s: at the same time, each over one of its own.
fn carried(name: &str, path: &str) -> Option<[f64; 2]> {
    let labs = ["there", "back"].map(|way| Answered::on_this_machine(&format!("{name}-{way}"), path));
    let [Some(there), Some(back)] = labs else { return None };
    let tests = [(&there, &[][..]), (&back, &["-R"])].map(|(answered, way)| {
        let arguments = [&[env!("CARGO_BIN_EXE_longhaul"), "tcp", "server", "--json", "-t", "8s", "--omit", "3s"], way];
        on(&answered.lab, "client", &arguments.concat()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    });
    Some(tests.map(|test| {
        let output = test.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        object(&output.stdout)["result"]["goodput_bps"].as_f64().unwrap() / 1e6
    }))
}

#[test]
fn a_copy_carries_what_the_path_carries() {
    let _alone = alone();
    let folder = Folder::new("profile-rate");
    let [log, diagnosis, copy] = ["log", "diagnosis", "copy.toml"].map(|name| folder.file(name));
    let Some(answered) = Answered::on_this_machine("profile-rate", ASYMMETRIC) else { return };
    let client = |arguments: &[&str]| {
        let arguments = [&[env!("CARGO_BIN_EXE_longhaul")], arguments].concat();
        let output = on(&answered.lab, "client", &arguments).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    client(&["rtt", "server", "-t", "4s", "-o", &log]);
    client(&["diagnose", "server", "--bidir", "--rate", "100M", "--time", "10s", "-o", &diagnosis]);
    drop(answered);
    let Some(before) = carried("profile-carried", ASYMMETRIC) else { unreachable!("there was a lab") };
    let profile = json(&["profile", &log, "--diagnosis", &diagnosis, "-o", &copy, "--json"]);
    let file = fs::read_to_string(&copy).unwrap();
    for (way, rate, queue) in [("forward", 60e6, 300.0 * 1024.0), ("backward", 20e6, 128.0 * 1024.0)] {
        let found = &profile["result"][format!("{way}_queue")];
        let [of_rate, of_queue] =
            [("rate_bps", rate), ("bytes", queue)].map(|(key, want)| found[key].as_f64().unwrap() / want);
        println!("{way}: rate {of_rate:.3}, queue {of_queue:.3} of what they are");
        assert!((of_rate - 1.0).abs() < 0.01 && (of_queue - 1.0).abs() < 0.15, "{found} {file}");
    }
    assert!(!file.contains("rate and queue of") && file.contains("# UDP: "), "{file}");
    let Some(after) = carried("profile-copied", &file) else { unreachable!("{file}") };
    println!("TCP carried {before:.1?} Mb/s, and over the copy {after:.1?}");
    for (before, after) in before.into_iter().zip(after) {
        assert!((after / before - 1.0).abs() < 0.1, "{before} {after}");
    }
    // A queue that no test met is not made up.
    let profile = json(&["profile", &log, "--json"]);
    assert_eq!(profile["result"]["forward_queue"], Value::Null);
    assert!(profile["result"]["not_known"].to_string().contains("do not load the path"), "{profile}");
}
