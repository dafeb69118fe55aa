//! Round trips over an idle cable, beside what another program measures there.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Command, Stdio};

use longhaul_kernel::capability::is_root_in_namespace;
use longhaul_kernel::link::{Address, Netlink, VethEnd};
use longhaul_kernel::namespace::NetNamespace;
use longhaul_testing::program::Program;
use longhaul_testing::waiting::until;

use super::LONGHAUL;
use crate::common::captures::missing;
use crate::common::{alone, object};

const CLIENT: [u8; 4] = [10, 98, 0, 1];
const SERVER: [u8; 4] = [10, 98, 0, 2];
pub(crate) const SERVER_TEXT: &str = "10.98.0.2";

/// A veth pair between two namespaces, without an emulator; each end has the name `cable`.
pub(crate) fn cable() -> (NetNamespace, NetNamespace) {
    let (client, server) = (NetNamespace::create().unwrap(), NetNamespace::create().unwrap());
    let end = |host| VethEnd { name: "cable", namespace: Some(host), mtu_bytes: None, mac: None };
    Netlink::open().unwrap().create_veth(&end(&client), &end(&server)).unwrap();
    for (host, own) in [(&client, CLIENT), (&server, SERVER)] {
        let mut netlink = host.enter(Netlink::open).unwrap().unwrap();
        let ifindex = netlink.index_of("cable").unwrap();
        netlink.set_up(ifindex, true).unwrap();
        netlink.add_address(&Address { ifindex, ip: IpAddr::V4(Ipv4Addr::from(own)), prefix_bits: 24 }).unwrap();
    }
    (client, server)
}

fn command(words: &[&str]) -> Command {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).stderr(Stdio::null());
    command
}

/// Starts `words` on `host` and waits until it listens at `port`, by UDP or TCP.
pub(crate) fn serve(host: &NetNamespace, words: &[&str], port: u16) -> Program {
    let server = host.enter(|| command(words).stdout(Stdio::null()).spawn()).unwrap().unwrap();
    let wanted = format!(":{port:04X} 00000000:0000");
    until(words[0], || {
        let tables = ["udp", "tcp"].map(|table| format!("/proc/thread-self/net/{table}"));
        host.enter(|| tables.iter().any(|table| fs::read_to_string(table).unwrap().contains(&wanted))).unwrap()
    });
    Program(server)
}

pub(crate) fn printed(host: &NetNamespace, words: &[&str]) -> String {
    let output = host.enter(|| command(words).output()).unwrap().unwrap();
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Both send a probe of 64 bytes each millisecond. sockperf's stamps are those of programs, longhaul's those of the kernel.
#[test]
fn the_median_over_an_idle_cable_is_no_worse_than_that_of_sockperf() {
    if missing("sockperf") {
        return;
    }
    if !is_root_in_namespace() {
        longhaul_testing::no_judge!("needs root");
        return;
    }
    let _machine = alone();
    let (client, server) = cable();
    let _servers = [
        serve(&server, &["sockperf", "server", "-i", SERVER_TEXT], 11_111),
        serve(&server, &[LONGHAUL, "serve", "--no-auth", "--bind", SERVER_TEXT], 5_210),
    ];
    let by_sockperf = || {
        let asked = ["sockperf", "ping-pong", "-i", SERVER_TEXT, "--full-rtt", "--mps", "1000", "-m", "64", "-t", "2"];
        let said = printed(&client, &asked);
        let median = said.lines().find_map(|line| line.split_once("percentile 50.000 =")?.1.trim().parse().ok());
        let median: f64 = median.unwrap_or_else(|| panic!("{said}"));
        median
    };
    let by_longhaul = || {
        let asked = [LONGHAUL, "rtt", SERVER_TEXT, "--no-auth", "-i", "1ms", "-t", "2s", "--json"];
        let result = object(printed(&client, &asked).as_bytes());
        result["result"]["rtt"]["p50_ns"].as_f64().unwrap() / 1e3
    };
    // In turns, so that what the machine does beside meets both.
    let (mut theirs, mut ours): (Vec<f64>, Vec<f64>) = (0..3).map(|_| (by_sockperf(), by_longhaul())).unzip();
    theirs.sort_by(f64::total_cmp);
    ours.sort_by(f64::total_cmp);
    println!("median round trips, us: sockperf {theirs:?}, longhaul {ours:?}");
    // Its own stamps would be above; and no round trip is nothing.
    assert!(ours[1] <= theirs[1] && ours[0] > 0.5, "{ours:?} {theirs:?}");
}
