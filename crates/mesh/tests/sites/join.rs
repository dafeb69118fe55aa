//! Sites join, test each other by UDP, deliver, and lose nothing while the coordinator is away.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use longhaul_mesh::store::{Archive, Kept, Outbox, TestResult};
use serde_json::Value;

use crate::PATH;
use crate::common::{Lab, PATIENCE};

fn has_plan(folder: &Path) -> bool {
    // The site's keys are written after its plan.
    fs::read_to_string(folder.join("members.json")).is_ok_and(|text| text.matches("longhaul-site-1").count() == 3)
}

#[test]
fn three_sites_join_test_and_deliver() {
    let Some(lab) = Lab::up("join", PATH) else { return };
    let hosts = ["ithaca", "geneva", "chicago"];
    let addresses = hosts.map(|host| lab.address(host));
    let sites: String = hosts
        .iter()
        .zip(&addresses)
        .map(|(host, address)| format!("[[site]]\nname = '{host}'\naddress = '{address}'\nrate = '1Gbit'\n"))
        .collect();
    let test = "[[test]]\nname = 'probes'\nkind = 'udp'\nevery = '45s'\ntime = '1s'\nrate = '4M'\nlength = 1000\n";
    // Of 8 Mb/s 5.6 are leased; a site that does not reach the coordinator may take 1.2.
    let link = "[[link]]\nname = 'cable'\nbetween = ['ithaca', 'geneva']\nrate = '100Mbit'\nshare = '8%'\n";
    fs::write(lab.folder.join("mesh.toml"), format!("name = 'three'\n{sites}{link}{test}")).unwrap();
    let said = lab.run("chicago", &["init", "--folder", "hub", "mesh.toml"]);
    assert!(said.contains("probes: 6 tests of 1s in 6 slots take 36 s of every 45 s"), "{said}");

    let hub = ["run", "--folder", "hub", "--coordinator"];
    let mut coordinator = lab.start("chicago", &hub);
    let joins = |host: &str, folder: &str| {
        let coordinator = addresses[2].as_str();
        let token = format!("hub/tokens/{host}");
        lab.on(host, &["join", "--folder", folder, "--token", &token, coordinator]).output().unwrap()
    };
    // The coordinator has to listen first.
    let begin = Instant::now();
    fs::copy(lab.folder.join("hub/tokens/geneva"), lab.folder.join("used")).unwrap();
    for host in hosts {
        loop {
            let output = joins(host, host);
            if output.status.success() {
                assert_eq!(String::from_utf8_lossy(&output.stdout), format!("this is {host}\n"));
                break;
            }
            assert!(begin.elapsed() < PATIENCE, "{output:?}\n{}", lab.logs());
            thread::sleep(Duration::from_millis(200));
        }
    }
    // A token works once.
    let again = ["join", "--folder", "thief", "--token", "used", &addresses[2]];
    let refused = lab.on("ithaca", &again).output().unwrap();
    assert!(!refused.status.success(), "{refused:?}");

    // A site that starts again waits for as long as the longest test that it allows: a partner may be in one with it.
    let allow = ["--allow", "udp=4M", "--allow", "time=1s"];
    let run = |host: &str| lab.start(host, &[&["run", "--folder", host, "--sync", "1s"][..], &allow].concat());
    let mut agents = hosts.map(run);
    let archive = lab.folder.join("hub/archive");
    let pairs = |all: &[TestResult]| {
        let mut pairs: Vec<_> = all.iter().map(|result| (&result.sender, &result.receiver)).collect();
        pairs.sort();
        pairs.dedup();
        pairs.len()
    };
    let wait_for = |tests: usize| {
        let begin = Instant::now();
        loop {
            let all = Archive::open(&archive).unwrap().since(0).unwrap();
            if all.len() >= tests {
                return all;
            }
            assert!(begin.elapsed() < PATIENCE, "{} of {tests} tests\n{}", all.len(), lab.logs());
            thread::sleep(Duration::from_millis(500));
        }
    };
    // As soon as all have the plan the coordinator is killed: a round goes on without it, and nothing is lost.
    let begin = Instant::now();
    let in_time = |begin: Instant, what: &str| {
        assert!(begin.elapsed() < PATIENCE, "{what}\n{}", lab.logs());
        thread::sleep(Duration::from_millis(300));
    };
    while !hosts.iter().all(|host| lab.folder.join(host).join("outbox").exists() && has_plan(&lab.folder.join(host))) {
        in_time(begin, "the sites fetch no plan");
    }
    coordinator.kill();
    let delivered = || Archive::open(&archive).unwrap().since(0).unwrap().len();
    let before = delivered();
    let waiting = || -> Vec<TestResult> {
        let outbox = |host: &&str| Outbox::open(&lab.folder.join(host).join("outbox")).unwrap().all().unwrap();
        let udp = |kept| if let Kept::Udp(result) = kept { Some(result) } else { None };
        hosts.iter().flat_map(outbox).filter_map(udp).collect()
    };
    while pairs(&waiting()) < 6 {
        in_time(begin, "no six pairs without the coordinator");
    }
    assert_eq!(delivered(), before);
    // A site is killed, too: its results are still there.
    // In the middle of a test of its own: of one that a partner began that would have a result.
    while lab.begun_by("ithaca").is_empty() {
        in_time(begin, "no program of a test");
    }
    agents[0].kill();
    let begin = Instant::now();
    while !lab.begun_by("ithaca").is_empty() {
        in_time(begin, "a killed agent leaves a test behind");
    }
    // These were measured without the coordinator, and all arrive.
    let without = waiting();
    let _coordinator = lab.start("chicago", &hub);
    agents[0] = run("ithaca");
    let begin = Instant::now();
    let is_shared = |result: &TestResult| result.sender != "chicago" && result.receiver != "chicago";
    let mut all = wait_for(without.len());
    while !all.iter().any(|result| is_shared(result) && result.sent > 400) {
        in_time(begin, "no test over the shared link with a lease");
        all = wait_for(without.len());
    }
    for result in &without {
        assert!(all.contains(result), "{result:?} is missing in {all:?}");
    }
    for result in &all {
        assert!(result.is_sound());
        // 4 Mb/s of 1000 bytes for a second: 500 packets. Over the shared link without a lease: 1.2 Mb/s on the wire.
        let leased = !is_shared(result) || result.sent > 400;
        let packets = if leased { 401..=550 } else { 120..=150 };
        assert!(packets.contains(&result.sent), "{result:?}");
    }
    assert!(without.iter().filter(|result| is_shared(result)).all(|result| result.sent < 400), "{without:?}");
    let status: Value = serde_json::from_str(&lab.run("chicago", &["status", "--folder", "hub", "--json"])).unwrap();
    assert_eq!(status["result"]["sites"].as_array().unwrap().len(), 3);
    let sites = &status["result"]["sites"];
    assert!(sites.as_array().unwrap().iter().all(|site| site["joined"] == true), "{status}");
    let shown = lab.run("chicago", &["show", "--folder", "hub"]);
    assert_eq!(shown.lines().count(), 7, "{shown}");
    println!("{shown}\n{}", lab.run("chicago", &["status", "--folder", "hub"]));
    drop(agents);
}
