//! `longhaul compare --behaviour` on runs of real traffic over lab paths: one path twice is alike whatever its seed, and of paths that
//! differ in one thing that thing is named.

use std::fs;
use std::process::Stdio;

use crate::common::captures::{Capture, Folder, json, missing, on, probes};
use crate::common::{TestLab, alone};
use longhaul_testing::waiting::until;
use serde_json::Value;

/// A way whose losses come alone: 1 % of all.
const ALONE: &str = "loss = { gilbert-elliott = { p = \"1%\", r = \"100%\" } }";
/// As many, four in a row on average.
const IN_RUNS: &str = "loss = { gilbert-elliott = { p = \"0.25%\", r = \"25%\" } }";

struct Run {
    folder: Folder,
}

impl Run {
    /// Probes, and beside them one TCP connection, over a path.
    fn over(name: &str, seed: u32, delay: &str, stddev: &str, loss: &str) -> Option<Self> {
        let folder = Folder::new(&format!("runs-{name}"));
        let path = folder.file("run.toml");
        let jitter = format!("jitter = {{ law = 'normal', stddev = '{stddev}', order = 'fifo' }}");
        let text = format!(
            "name = 'run'\n[[forward]]\nrate = '1Gbit'\nqueue = '64MiB'\ndelay = '{delay}'\n{jitter}\n{loss}\n[[backward]]\ndelay = '10ms'\n"
        );
        fs::write(&path, text).unwrap();
        let lab = TestLab::up_with(&format!("runs-{name}"), &path, &["--seed", &seed.to_string()])?;
        let captures = ["client", "server"].map(|host| Capture::start(&lab, host, &folder));
        let mut server = on(&lab, "server", &["iperf3", "-s", "-1"]).stdout(Stdio::null()).spawn().unwrap();
        let listens = || on(&lab, "server", &["sh", "-c", "ss -ltn | grep -q :5201"]).status().unwrap().success();
        until("iperf3 to listen", listens);
        let iperf = ["iperf3", "-4", "-c", "server", "-t", "10", "-C", "reno"];
        let mut tcp = on(&lab, "client", &iperf).stdout(Stdio::null()).spawn().unwrap();
        assert!(probes(&lab, 20_000, 4, 1.0).status().unwrap().success());
        assert!(tcp.wait().unwrap().success());
        server.wait().unwrap();
        captures.into_iter().for_each(|capture| drop(capture.finish()));
        Some(Self { folder })
    }

    fn at(&self, host: &str) -> String {
        self.folder.file(&format!("{host}.pcap"))
    }
}

/// What a machine shared with others adds to one of two runs: less than a tenth of what another delay adds here.
const SHARED_NS: f64 = 200_000.0;

/// What the verdict says, names of quantities that are outside, and of quantities that are clearly outside: a machine that is busy makes round trips
/// and intervals of its own.
fn told(arguments: &[&str]) -> (Value, Vec<String>, Vec<String>) {
    let compared = json(&[&["compare", "--behaviour", "--json"][..], arguments].concat());
    let verdict = compared["result"]["behaviour"].clone();
    let (mut names, mut certain) = (Vec::new(), Vec::new());
    for test in verdict["tests"].as_array().unwrap() {
        println!("  {} of {} samples, worth {}", test["of"], test["samples"], test["effective_samples"]);
        for quantity in test["quantities"].as_array().unwrap() {
            println!(
                "    {}: {} and {}, {} within {}: {}",
                quantity["name"],
                quantity["reference"],
                quantity["tested"],
                quantity["difference"],
                quantity["margin"],
                quantity["verdict"]
            );
            if quantity["verdict"] != "outside" {
                continue;
            }
            let (of, name) = (test["of"].as_str().unwrap(), quantity["name"].as_str().unwrap());
            names.push(format!("{of} {name}"));
            let apart = (quantity["reference"].as_f64().unwrap() - quantity["tested"].as_f64().unwrap()).abs();
            if of.starts_with("loss") || name == "median_ns" && apart > SHARED_NS {
                certain.push(format!("{of} {name}"));
            }
        }
    }
    (verdict["alike"].clone(), names, certain)
}

#[test]
fn what_differs_between_runs_is_named() {
    let _alone = alone();
    if missing("tcpdump") || missing("iperf3") || missing("python3") {
        return;
    }
    let runs = [
        ("base", 1, "10ms", "200us", ALONE),
        ("again", 2, "10ms", "200us", ALONE),
        ("losses", 3, "10ms", "200us", IN_RUNS),
        ("jitter", 4, "10ms", "1ms", ALONE),
        ("delay", 5, "12ms", "200us", ALONE),
    ];
    // Three at a time: the first two, which are to be alike, share the machine in the same way.
    let runs: Vec<Option<Run>> = (runs.chunks(3))
        .flat_map(|three| {
            std::thread::scope(|scope| {
                let over = |&(name, seed, delay, stddev, loss)| {
                    scope.spawn(move || Run::over(name, seed, delay, stddev, loss))
                };
                let started: Vec<_> = three.iter().map(over).collect();
                started.into_iter().map(|run| run.join().unwrap()).collect::<Vec<_>>()
            })
        })
        .collect();
    let Ok(runs) = <[Option<Run>; 5]>::try_from(runs) else { unreachable!("as many as asked") };
    let [Some(base), Some(again), Some(losses), Some(jitter), Some(delay)] = runs else { return };
    let points = |other: &Run, of: &[&str]| {
        println!("{} by two points", other.folder.0.display());
        let files = [base.at("client"), base.at("server"), other.at("client"), other.at("server")];
        told(&[of, &files.each_ref().map(String::as_str)].concat())
    };
    let probes = ["--same-clock", "--port", "9000"];
    let (alike, names, certain) = points(&again, &probes);
    assert_eq!(names.is_empty(), alike != false, "{names:?}");
    assert_eq!(certain, [""; 0], "one path twice");
    for (run, name) in [
        (&losses, "loss_a_to_b loss_run_packets"),
        (&jitter, "delay_a_to_b_ns range_ns"),
        (&delay, "delay_a_to_b_ns median_ns"),
    ] {
        let (alike, names, certain) = points(run, &probes);
        // Where this machine held a run up, the interval of its range is too wide to be sure of; the distance of the distributions is not.
        let distance = name.replace("range_ns", "distance");
        assert!(alike == false && names.iter().any(|found| found == name || *found == distance), "{name}: {names:?}");
        let lost_alike = certain.iter().all(|found| !found.starts_with("loss"));
        assert!(lost_alike || name.starts_with("loss"), "{certain:?}");
    }
    // Without one clock a delay is known to the least alone: jitter shows, another delay does not. Drift takes both directions.
    let (_, names, _) = points(&jitter, &[]);
    assert!(names.contains(&"delay_variation_a_to_b_ns range_ns".to_owned()), "{names:?}");

    // TCP, and at one point each: losses from retransmissions, delay from round trips. Behind the loss there are holes, in front of it
    // what was sent passes twice.
    for host in ["client", "server"] {
        let one = |other: &Run| {
            println!("{} at the {host}", other.folder.0.display());
            told(&["--port", "5201", &base.at(host), &other.at(host)])
        };
        let (_, _, certain) = one(&again);
        assert_eq!(certain, [""; 0]);
        let (alike, names, _) = one(&losses);
        assert!(alike == false && names.contains(&"loss_forward loss_run_packets".to_owned()), "{names:?}");
    }
    let (_, names, _) = told(&["--port", "5201", &base.at("client"), &delay.at("client")]);
    assert!(names.contains(&"rtt_forward_ns median_ns".to_owned()), "{names:?}");
}
