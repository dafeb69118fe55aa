//! `longhaul compare --behaviour` on runs of real traffic over lab paths: one path twice is alike whatever its seed, and of paths that
//! differ in one thing that thing is named.

use std::fs;
use std::process::Stdio;

use crate::common::captures::{Capture, Folder, json, missing, on, probes, until};
use crate::common::{TestLab, alone};
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

/// What the verdict says, names of what differs, and of what does so beyond doubt: at 5 % one of twenty pairs of alike runs differs, and
/// times differ by what the hosts were busy.
fn told(arguments: &[&str]) -> (Value, Vec<String>, Vec<String>) {
    let compared = json(&[&["compare", "--behaviour", "--json"][..], arguments].concat());
    let verdict = compared["result"]["behaviour"].clone();
    let differ = |counts: &dyn Fn(&Value) -> bool| -> Vec<String> {
        let tests = verdict["tests"].as_array().unwrap().iter();
        let differ = tests.filter(|test| test["differs"] == true && counts(test));
        differ.map(|test| test["of"].as_str().unwrap().to_owned()).collect()
    };
    let apart = |test: &Value| {
        let [first, second] = [0, 1].map(|nth| test["medians"][nth].as_f64().unwrap());
        !test["of"].as_str().unwrap().ends_with("_ns") || (first - second).abs() > SHARED_NS
    };
    let names = differ(&|_| true);
    let certain = differ(&|test| test["adjusted_p"].as_f64().unwrap() < 0.01 && apart(test));
    for test in verdict["tests"].as_array().unwrap() {
        println!(
            "  {} {} {} of {} samples in {} blocks: distance {:.3}, p {:.4}",
            if test["differs"] == true { "DIFFERS" } else { "-" },
            test["of"],
            test["medians"],
            test["samples"],
            test["blocks"],
            test["distance"].as_f64().unwrap(),
            test["adjusted_p"].as_f64().unwrap()
        );
    }
    println!("  not tested {}", verdict["not_tested"]);
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
    // Two at a time: the first two, which are to be alike, share the machine in the same way.
    let runs: Vec<Option<Run>> = (runs.chunks(2))
        .flat_map(|pair| {
            std::thread::scope(|scope| {
                let over = |&(name, seed, delay, stddev, loss)| {
                    scope.spawn(move || Run::over(name, seed, delay, stddev, loss))
                };
                let started: Vec<_> = pair.iter().map(over).collect();
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
    assert!(alike.is_boolean() && names.is_empty() == (alike == true), "{names:?}");
    // Intervals are the sender's own, and it had the machine to itself or not.
    assert!(certain.iter().all(|found| found.starts_with("interval")), "one path twice: {certain:?}");
    for (run, name) in [(&losses, "loss_run_a_to_b_packets"), (&jitter, "delay_a_to_b_ns"), (&delay, "delay_a_to_b_ns")]
    {
        let (alike, names, certain) = points(run, &probes);
        assert!(alike == false && names.iter().any(|found| found == name), "{name}: {names:?}");
        let lost_alike = certain.iter().all(|found| !found.starts_with("loss_run"));
        assert!(lost_alike || name.starts_with("loss_run"), "{certain:?}");
    }
    // Without one clock a delay is known to the least alone: jitter shows, another delay does not. Drift takes both directions.
    let (_, names, _) = points(&jitter, &[]);
    assert!(names.contains(&"delay_variation_a_to_b_ns".to_owned()), "{names:?}");

    // TCP, and at one point each: losses from retransmissions, delay from round trips. Behind the loss there are holes, in front of it
    // what was sent passes twice.
    for host in ["client", "server"] {
        let one = |other: &Run| {
            println!("{} at the {host}", other.folder.0.display());
            told(&["--port", "5201", &base.at(host), &other.at(host)])
        };
        let (_, _, certain) = one(&again);
        assert!(certain.iter().all(|found| !found.starts_with("loss") && !found.starts_with("rtt")), "{certain:?}");
        let (alike, names, _) = one(&losses);
        assert!(alike == false && names.contains(&"loss_run_forward_packets".to_owned()), "{names:?}");
    }
    let (_, names, _) = told(&["--port", "5201", &base.at("client"), &delay.at("client")]);
    assert!(names.contains(&"rtt_forward_ns".to_owned()), "{names:?}");
}
