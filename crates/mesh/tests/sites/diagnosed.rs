//! An alarm starts one diagnosis.

use std::fs;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use longhaul_mesh::store::{Diagnosis, Measured, Measurement, TestResult};

use serde_json::Value;

use crate::PATH;
use crate::common::Lab;

const TESTS: &str = "\
[[test]]
name = 'probes'
kind = 'udp'
every = '1h'
time = '1s'
[[test]]
name = 'why'
kind = 'diagnose'
time = '5s'
share = '10%'
";
const HOUR: i64 = 3_600_000_000_000;
const HOSTS: [&str; 3] = ["ithaca", "geneva", "chicago"];

/// Probes of 130 hours, as the sites would have delivered them. From ithaca to chicago 0.8 % are lost in the last thirty.
fn past() -> Vec<TestResult> {
    let now = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos()).unwrap();
    let mut all = Vec::new();
    for hour in (1..=130).rev() {
        for (sender, receiver) in HOSTS.iter().flat_map(|one| HOSTS.map(|other| (*one, other))) {
            let broken = hour <= 30 && (sender, receiver) == ("ithaca", "chicago");
            let result = TestResult {
                id: format!("{:032x}", all.len()),
                test: "probes".into(),
                sender: sender.into(),
                receiver: receiver.into(),
                at_ns: now - hour * HOUR,
                sent: 1000,
                lost: if broken { 8 } else { 0 },
                at_sender: Some(0),
                at_receiver: Some(0),
                received_rate_bps: 1_000_000,
            };
            if sender != receiver {
                all.push(result);
            }
        }
    }
    all
}

fn diagnoses(all: Vec<Measurement>) -> Vec<(Measurement, Diagnosis)> {
    let diagnosis = |one: Measurement| match &one.measured {
        Measured::Diagnose(found) => Some((one.clone(), found.clone())),
        _ => None,
    };
    all.into_iter().filter_map(diagnosis).collect()
}

#[test]
fn an_alarm_starts_one_diagnosis() {
    // A fiftieth of what the mesh believes.
    let Some(lab) = Lab::up("diagnosed", &PATH.replace("1Gbit", "20Mbit")) else { return };
    let mut coordinator = lab.mesh("chicago", &HOSTS, TESTS);
    lab.archive().take(&past()).unwrap();
    // It looks at its start, and after each hour.
    coordinator.kill();
    coordinator = lab.coordinator("chicago");
    let allow = ["diagnose=yes", "time=5s", "busy=100%"];
    let _sites = HOSTS.map(|host| lab.site(host, &allow));
    let mut archive = lab.archive();
    let (one, found) = lab.wait("no diagnosis", || diagnoses(archive.measurements(0).unwrap()).pop());
    assert_eq!((one.sender.as_str(), one.receiver.as_str(), one.test.as_str()), ("ithaca", "chicago", "why"));
    assert_eq!((found.target_bps, found.failed.as_deref()), (Some(100_000_000), None), "{found:?}");
    assert!(found.goodput_bps.is_some_and(|bps| (5_000_000..20_000_000).contains(&bps)), "{found:?}");
    let cause = &found.causes[0];
    assert!(cause.bound_bps.is_some_and(|bps| bps <= 20_000_000) && !cause.remedy.is_empty(), "{found:?}");
    // The alarm leads to it.
    lab.wait("the alarm does not know its diagnosis", || {
        let known: Value = serde_json::from_str(&fs::read_to_string(lab.path("hub/alarms.json")).ok()?).ok()?;
        let shown = &known["path:ithaca:chicago"]["alarm"]["diagnosis"];
        (shown["progress"] == "done" && shown["test"] == one.id).then_some(())
    });
    let shown = lab.run("chicago", &["show", "--folder", "hub"]);
    println!("{shown}");
    assert!(shown.contains("ithaca to chicago: TCP carried"), "{shown}");

    // The alarm lasts: a coordinator that starts anew looks for alarms again, and asks for nothing.
    coordinator.kill();
    let _coordinator = lab.coordinator("chicago");
    let begun = || lab.logs().matches("coordinator of three").count() == 3;
    lab.wait("no coordinator", || begun().then_some(()));
    thread::sleep(Duration::from_secs(3));
    assert_eq!(lab.logs().matches("alarm: ").count(), 1, "{}", lab.logs());
    assert_eq!(archive.wanted("ithaca", 0).unwrap(), []);
    assert_eq!(diagnoses(archive.measurements(0).unwrap()).len(), 1);
    let status = lab.run("chicago", &["status", "--folder", "hub"]);
    assert!(status.contains("the path from ithaca to chicago loses 0."), "{status}");
}
