//! Round trips by the stamps of NICs. No NIC that QEMU has stamps every packet, so that the guest gets two virtual ones which do
//! (`clocked_nics`): each keeps what it received for half a millisecond, as a NIC that moderates its interrupts.

use std::path::Path;

use longhaul_testing::guest::{Guest, Kernel};
use longhaul_testing::no_judge;
use serde_json::Value;

use crate::common::object;

const HOSTS: &str =
    "set -e; ip() { /usr/bin/ip \"$@\"; }; mkdir -p /run/netns; ip netns add far; ip link set clocked1 netns far
    ip link set clocked0 up; ip address add 10.1.1.1/24 dev clocked0; ip address add fd01::1/64 dev clocked0 nodad
    ip -n far link set lo up; ip -n far link set clocked1 up; ip -n far address add 10.1.1.2/24 dev clocked1
    ip -n far address add fd01::2/64 dev clocked1 nodad
    ip netns exec far sh -c 'longhaul serve --bind :: --no-auth --host-settings allow >/tmp/serve 2>&1 &'
    ip netns exec far sh -c 'longhaul serve --bind :: -p 6001 --no-auth --host-settings refuse >/tmp/refuses 2>&1 &'
    for i in $(seq 100); do cat /tmp/serve /tmp/refuses | grep -c listening | grep -q 2 && ping -c 1 -W 1 10.1.1.2 >/dev/null && break; sleep 0.1; done
    cat /tmp/serve /tmp/refuses";
/// Whether each NIC stamps what it receives.
const STAMPS: &str = "cat /sys/module/clocked_nics/parameters/stamps_received";

/// What a VLAN is told goes to the NIC below it, which one command has stamp packets at a time.
const TWO_OF_ONE_NIC: &str = "set -e; ip() { /usr/bin/ip \"$@\"; }
    ip link add link clocked0 name tagged0 type vlan id 5; ip link set tagged0 up
    longhaul capture clocked0,tagged0 --clock nic -t 3s -J -o /tmp/two >/tmp/two.json 2>/tmp/said & sleep 1
    stamps() { cat /sys/module/clocked_nics/parameters/stamps_received; }
    stamps; longhaul capture tagged0 --clock nic -t 100ms -J -o /tmp/other >/tmp/other.json 2>&1; stamps; wait; stamps
    grep -q 'NIC of tagged0' /tmp/other.json && echo refused; cat /tmp/two.json";

/// Whether each NIC stamps while a test has them do so, and after its client was killed: then the server's end ends as well.
const AFTER_KILL: &str = "stamps() { cat /sys/module/clocked_nics/parameters/stamps_received; }
    becomes() { for i in $(seq 100); do [ \"$(stamps)\" = $1 ] && break; sleep 0.1; done; stamps; }
    longhaul rtt 10.1.1.2 --no-auth -t 60s --timestamps nic -i 5ms >/tmp/killed 2>&1 & rtt=$!
    becomes 1,1; kill -9 $rtt; becomes 0,0";

/// Median and 99th percentile of round trips, microseconds, and who stamped: sent, received, at the responder.
fn measured(said: &str) -> ([f64; 2], [String; 3]) {
    let all = object(said.as_bytes());
    assert_eq!(all["result"]["lost"], 0, "{all}");
    assert!(all["caveats"].as_array().is_none_or(Vec::is_empty), "{}", all["caveats"]);
    let (rtt, stamps) = (&all["result"]["rtt"], &all["result"]["timestamps"]);
    let by = |end: &Value| end.as_str().unwrap_or("none").to_owned();
    let us = |quantile: &str| rtt[quantile].as_f64().unwrap() / 1e3;
    (
        [us("p50_ns"), us("p99_ns")],
        [by(&stamps["client"]["sent"]), by(&stamps["client"]["received"]), by(&stamps["server"]["received"])],
    )
}

#[test]
fn nics_leave_out_what_their_interrupts_wait() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/endpoint/clocked_nics");
    let guest = Guest::new(Kernel::Linux6_1).and_then(|guest| guest.with_own_module(&source, "clocked_nics"));
    let guest = match guest {
        Ok(guest) => guest,
        Err(why) => return no_judge!("{why}"),
    };
    let programs = [env!("CARGO_BIN_EXE_longhaul"), "/usr/sbin/ip"];
    let guest = programs.iter().fold(guest, |guest, program| guest.with_program(program)).with_module("8021q");
    let nic = "--timestamps nic -i 5ms --json";
    let watched =
        format!("longhaul rtt 10.1.1.2 --no-auth -t 5s {nic} >/tmp/out & sleep 2; {STAMPS}; wait; cat /tmp/out");
    let commands = [
        HOSTS,
        STAMPS,
        "longhaul rtt 10.1.1.2 --no-auth -t 2s -i 5ms --json",
        &watched,
        STAMPS,
        &format!("longhaul rtt fd01::2 --no-auth -t 2s {nic}"),
        &format!("longhaul rtt 10.1.1.2 -p 6001 --no-auth -t 2s {nic}"),
        &format!("longhaul rtt 10.1.1.2 --icmp -t 2s {nic}"),
        &format!("longhaul rtt fd01::2 --icmp -t 2s {nic}"),
        &format!("longhaul rtt 127.0.0.1 --icmp -c 2 {nic}"),
        STAMPS,
        TWO_OF_ONE_NIC,
        AFTER_KILL,
    ];
    let exits = guest.run(&commands);
    for (command, exit) in commands.iter().zip(&exits) {
        println!("$ {command}\n{}\n[{}]", exit.output, exit.status);
    }
    let said = |nth: usize| exits[nth].output.as_str();
    let nth = |nth: usize| measured(said(nth));
    let by = |stamps: [&str; 3]| stamps.map(str::to_owned);
    let (kernels, who) = nth(2);
    assert_eq!(who, by(["kernel"; 3]));
    let (during, watched) = said(3).split_once('\n').unwrap();
    assert_eq!([said(1), during, said(4), said(10)].map(str::trim), ["0,0", "1,1", "0,0", "0,0"]);
    let (nics, who) = measured(watched);
    assert_eq!(who, by(["nic"; 3]));
    println!("round trips of UDP, median and 99th percentile: {kernels:?} us by kernels, {nics:?} us by NICs");
    // Each NIC keeps a packet for half a millisecond, and what is left is a sendto and a cable without length.
    assert!((1_000.0..1_200.0).contains(&kernels[0]), "{kernels:?}");
    assert!((1.0..60.0).contains(&nics[0]) && nics[1] < 100.0, "{nics:?}");
    assert_eq!(nth(5).1, by(["nic"; 3]), "IPv6");
    // The responder's NIC may not be set, and its interrupts count.
    let (half, who) = nth(6);
    assert_eq!(who, by(["nic", "nic", "kernel"]));
    assert!((500.0..600.0).contains(&half[0]), "{half:?}");
    // A kernel answers echoes by itself, when the interrupt comes.
    for echo in [7, 8] {
        let (echo, who) = nth(echo);
        assert_eq!(who, by(["nic", "nic", "none"]));
        assert!((500.0..600.0).contains(&echo[0]), "{echo:?}");
    }
    let [before, other, after, refused, whole] = said(11).splitn(5, '\n').collect::<Vec<_>>()[..] else {
        panic!("{}", said(11));
    };
    assert_eq!([before, other, after, refused], ["1,0", "1,0", "0,0", "refused"]);
    let interfaces = &object(whole.as_bytes())["result"]["interfaces"];
    for at in [0, 1] {
        assert!(interfaces[at]["clock"].as_str().unwrap().contains("NIC"), "{interfaces}");
    }
    assert_eq!(said(12).split_whitespace().collect::<Vec<_>>(), ["1,1", "0,0"], "{}", said(12));
    assert!(exits[9].status != 0 && said(9).contains("no_nic_timestamps"), "{}", said(9));
}
