//! A site behind NAT: nobody can connect to it, and it is tested in both directions.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Stdio};

use longhaul_mesh::store::Measured;
use longhaul_testing::program::Program;

use crate::PATH;
use crate::common::{Lab, MESH};

const TESTS: &str = "\
[[site]]
name = 'home'
rate = '100Mbit'
nat = true
[[test]]
name = 'probes'
kind = 'udp'
every = '60s'
time = '1s'
rate = '2M'
length = 1000
[[test]]
name = 'delay'
kind = 'rtt'
time = '5s'
";

/// A host behind `router`: a network namespace that lives as long as its program.
struct Home(Program);

impl Home {
    fn begin(lab: &Lab, router: &str) -> Self {
        let sleep = Command::new("unshare").args(["--net", "sleep", "600"]).stdin(Stdio::null()).spawn().unwrap();
        let home = Self(Program(sleep));
        // It is there as soon as it is another one than ours.
        let own = fs::read_link("/proc/self/ns/net").unwrap();
        let namespace = format!("/proc/{}/ns/net", home.0.0.id());
        lab.wait("no namespace", || (fs::read_link(&namespace).ok()? != own).then_some(()));
        let pid = home.0.0.id().to_string();
        let router = |arguments: &[&str]| {
            let output = lab.program(router, arguments).output().unwrap();
            assert!(output.status.success(), "{arguments:?}: {output:?}");
        };
        router(&["ip", "link", "add", "inside", "type", "veth", "peer", "name", "outside", "netns", &pid]);
        router(&["ip", "addr", "add", "192.168.7.1/24", "dev", "inside"]);
        router(&["ip", "link", "set", "inside", "up"]);
        router(&["sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"]);
        router(&[
            "nft",
            "add table ip nat; add chain ip nat out { type nat hook postrouting priority 100; }; \
             add rule ip nat out ip saddr 192.168.7.0/24 oif eth0 masquerade",
        ]);
        for arguments in [
            "ip link set lo up",
            "ip addr add 192.168.7.2/24 dev outside",
            "ip link set outside up",
            "ip route add default via 192.168.7.1",
        ] {
            let output = home.program(&arguments.split(' ').collect::<Vec<_>>()).output().unwrap();
            assert!(output.status.success(), "{arguments}: {output:?}");
        }
        home
    }

    fn program(&self, program: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--net", "-t", &self.0.0.id().to_string(), "--"]).args(program);
        command
    }
}

#[test]
fn a_site_behind_nat_tests_both_directions() {
    let Some(lab) = Lab::up("nat", PATH) else { return };
    let home = Home::begin(&lab, "ithaca");
    let chicago = lab.address("chicago");
    let _coordinator = lab.mesh("chicago", &["geneva", "chicago"], TESTS);
    // Nobody reaches it from outside.
    let ping = lab.program("chicago", &["ping", "-c", "1", "-W", "1", "192.168.7.2"]).output().unwrap();
    assert!(!ping.status.success(), "{ping:?}");
    let mesh = |arguments: &[&str]| {
        let mut command = home.program(&[&[MESH], arguments].concat());
        command.current_dir(&lab.folder).stdin(Stdio::null());
        command
    };
    let joined = mesh(&["join", "--folder", "home", "--token", "hub/tokens/home", &chicago]).output().unwrap();
    assert!(joined.status.success(), "{joined:?}");
    let allow = ["time=1s", "busy=100%"];
    let _sites = ["geneva", "chicago"].map(|host| lab.site(host, &allow));
    let log = fs::File::create(lab.path("home.log")).unwrap();
    let run = ["run", "--folder", "home", "--sync", "1s", "--allow", "time=1s", "--allow", "busy=100%"];
    let _home = Program(mesh(&run).stderr(log).spawn().unwrap());
    let mut archive = lab.archive();
    let all = lab.wait("home is not tested in both directions with both", || {
        let all = archive.since(0).unwrap();
        let pairs: BTreeSet<_> = all.iter().map(|one| (one.sender.clone(), one.receiver.clone())).collect();
        let probed = archive.measurements(0).unwrap().into_iter().any(|one| one.sender == "home");
        (pairs.len() == 6 && probed).then_some(all)
    });
    for one in all.iter().filter(|one| one.sender == "home" || one.receiver == "home") {
        // 250, or less where the machine is busy.
        assert!((100..=260).contains(&one.sent) && one.lost == 0, "{one:?}");
    }
    // Who is behind NAT probes; its partners cannot.
    let trips = archive.measurements(0).unwrap();
    assert!(trips.iter().all(|one| one.receiver != "home" && matches!(one.measured, Measured::Rtt(_))), "{trips:?}");
    let path = |one: &&longhaul_mesh::store::Measurement| one.sender == "home" && one.receiver == "chicago";
    let Some(Measured::Rtt(found)) = trips.iter().find(path).map(|one| one.measured.clone()) else {
        panic!("home does not probe chicago: {trips:?}");
    };
    assert!(found.quantiles.unwrap().min_ns >= 4_000_000, "{found:?}");
}
