//! Round trips without pause and TCP, measured over a path whose delay and rate are known.

use std::collections::BTreeSet;

use longhaul_mesh::store::{Measured, Measurement, RoundTrips, TcpFlow};
use serde_json::Value;

use crate::PATH;
use crate::common::Lab;

const TESTS: &str = "\
[[test]]
name = 'delay'
kind = 'rtt'
time = '6s'
[[test]]
name = 'bulk'
kind = 'tcp'
between = ['ithaca', 'chicago']
every = '20s'
time = '2s'
share = '5%'
";
const MS: i64 = 1_000_000;
const SECOND: i64 = 1_000_000_000;

fn trips<'a>(all: &'a [Measurement], from: &str, to: &str) -> Vec<(&'a Measurement, &'a RoundTrips)> {
    let own = all.iter().filter(|one| (one.sender.as_str(), one.receiver.as_str()) == (from, to));
    own.filter_map(|one| if let Measured::Rtt(trips) = &one.measured { Some((one, trips)) } else { None }).collect()
}

fn flows<'a>(all: &'a [Measurement]) -> Vec<(&'a Measurement, &'a TcpFlow)> {
    let tcp = |one: &'a Measurement| match &one.measured {
        Measured::Tcp(flow) => Some((one, flow)),
        _ => None,
    };
    all.iter().filter_map(tcp).collect()
}

#[test]
fn round_trips_and_tcp_are_those_of_the_path() {
    let Some(lab) = Lab::alone("kinds", PATH) else { return };
    let hosts = ["ithaca", "geneva", "chicago"];
    let _coordinator = lab.mesh("chicago", &hosts, TESTS);
    let allow = ["tcp=100M", "time=2s", "busy=100%"];
    let _sites = hosts.map(|host| lab.site(host, &allow));
    let mut archive = lab.archive();
    let all = lab.wait("no round trips of three pairs and TCP in both directions", || {
        let all = archive.measurements(0).unwrap();
        let pairs: BTreeSet<_> = flows(&all).iter().map(|(one, _)| (&one.sender, &one.receiver)).collect();
        let probed = [("ithaca", "geneva"), ("ithaca", "chicago"), ("geneva", "chicago")];
        let done = pairs.len() == 2 && probed.iter().all(|(from, to)| trips(&all, from, to).len() >= 3);
        done.then_some(all)
    });
    for (one, trips) in trips(&all, "ithaca", "chicago") {
        let quantiles = trips.quantiles.unwrap();
        assert!((4 * MS..6 * MS).contains(&quantiles.min_ns), "{one:?}");
        assert!(quantiles.p50_ns >= quantiles.min_ns && one.is_sound(), "{one:?}");
        // Ten a second for 6 s.
        assert!((55..=61).contains(&trips.sent) && trips.lost == 0 && trips.outages == 0, "{one:?}");
    }
    // Without pause: each begins when the time of the one before is over.
    for (from, to) in [("ithaca", "chicago"), ("geneva", "chicago")] {
        let begins: Vec<i64> = trips(&all, from, to).iter().map(|(one, _)| one.at_ns).collect();
        for pair in begins.windows(2) {
            assert!((6 * SECOND..8 * SECOND).contains(&(pair[1] - pair[0])), "{begins:?}");
        }
    }
    // A twentieth of 1 Gb/s on the wire: 46.4 Mb/s of payload.
    for (one, flow) in flows(&all) {
        assert_eq!(flow.paced_bps, 46_423_927, "{one:?}");
        assert!((30_000_000..=47_000_000).contains(&flow.goodput_bps), "{one:?}");
        assert!(flow.min_rtt_ns.unwrap() >= 4 * MS && flow.limited_share > 0.5 && one.is_sound(), "{one:?}");
    }
    // TCP ran beside the probes of the same hosts.
    let beside = flows(&all).into_iter().filter(|(flow, _)| {
        let probes = trips(&all, "ithaca", "chicago");
        probes.iter().any(|(one, _)| (one.at_ns..one.at_ns + 6 * SECOND).contains(&flow.at_ns))
    });
    assert!(beside.count() > 0, "{all:?}");

    a_change_of_the_path_shows(&lab);
    shown(&lab);
}

/// A longer path, and one that is down for two seconds.
fn a_change_of_the_path_shows(lab: &Lab) {
    let mut archive = lab.archive();
    lab.set("forward.delay=12ms");
    lab.wait("the path is longer, and no round trip shows it", || {
        let all = archive.measurements(0).unwrap();
        let longer = |trips: &RoundTrips| trips.quantiles.is_some_and(|of| of.min_ns >= 14 * MS);
        trips(&all, "ithaca", "chicago").iter().any(|(_, trips)| longer(trips)).then_some(())
    });
    lab.set("forward.loss=random(100%)");
    std::thread::sleep(std::time::Duration::from_secs(2));
    lab.set("forward.loss=none");
    lab.wait("the path was down, and no outage shows it", || {
        let all = archive.measurements(0).unwrap();
        let outage = |trips: &RoundTrips| trips.outages > 0 && trips.longest_outage_ns > 1_500 * MS && trips.lost >= 10;
        trips(&all, "ithaca", "chicago").iter().any(|(_, trips)| outage(trips)).then_some(())
    });
}

fn shown(lab: &Lab) {
    // No test of this mesh is of kind udp.
    let status: Value = serde_json::from_str(&lab.run("chicago", &["status", "--folder", "hub", "--json"])).unwrap();
    for site in status["result"]["sites"].as_array().unwrap() {
        assert!(site["tests"].as_u64().unwrap() > 0 && site["last_at"].is_string(), "{site}");
    }
    let text = lab.run("chicago", &["show", "--folder", "hub"]);
    println!("{text}");
    for part in ["Round trips", "TCP", "paced to", "congestion_window"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let each = lab.run("chicago", &["show", "--folder", "hub", "ithaca", "chicago"]);
    assert!(each.lines().count() > text.lines().count(), "{each}");
    let json: Value = serde_json::from_str(&lab.run("chicago", &["show", "--folder", "hub", "--json"])).unwrap();
    let found = |kind: &str| json["result"][kind].as_array().unwrap().clone();
    assert!(found("round_trips").len() > 9 && found("diagnoses").is_empty(), "{json}");
    let goodput = |flow: &Value| flow["found"]["goodput_bps"].as_u64().unwrap();
    assert!(found("tcp").len() >= 2 && found("tcp").iter().all(|flow| goodput(flow) > 1_000_000), "{json}");
}
