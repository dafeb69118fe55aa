//! What `longhaul diagnose` says of limits that belong to a whole machine, in a guest: its table of connections, its memory for TCP.

use longhaul_testing::guest::{Exit, Guest, Kernel};
use longhaul_testing::no_judge;
use serde_json::Value;

/// client (10.1.1.1, the guest itself) ── far (10.1.1.2). The shell of busybox takes its own ip where no path is given.
const HOSTS: &str = "set -e; ip() { /usr/bin/ip \"$@\"; }; mkdir -p /run/netns
    ip netns add far; ip link add eth0 type veth peer name eth1 netns far; ip link set lo up; ip link set eth0 up
    ip address add 10.1.1.1/24 dev eth0; ip -n far link set lo up; ip -n far link set eth1 up
    ip -n far address add 10.1.1.2/24 dev eth1";
const SERVE: &str = "/usr/bin/ip netns exec far sh -c 'longhaul serve --bind 10.1.1.2 --no-auth >/tmp/serve 2>&1 &'; sleep 1; cat /tmp/serve";

fn guest() -> Result<Guest, String> {
    // The library for checksums, which connection tracking takes, asks for its algorithm by name.
    let modules = ["crc32c_generic", "veth", "nf_tables", "nft_ct", "nf_conntrack", "sch_netem"];
    let guest = modules.iter().fold(Guest::new(Kernel::Linux6_12)?, |guest, module| guest.with_module(module));
    let programs = [env!("CARGO_BIN_EXE_longhaul"), "/usr/sbin/ip", "/usr/sbin/nft", "/usr/sbin/tc"];
    Ok(programs.iter().fold(guest, |guest, program| guest.with_program(program)))
}

fn run(guest: &Guest, commands: &[&str]) -> Vec<Exit> {
    let exits = guest.run(commands);
    for (command, exit) in commands.iter().zip(&exits) {
        let shown: String = exit.output.chars().take(3000).collect();
        println!("$ {command}\n{shown}\n[{}]", exit.status);
    }
    exits
}

/// The diagnosis among the lines of a command's output.
fn diagnosis(exit: &Exit) -> Value {
    let line = exit.output.lines().find(|line| line.starts_with("{\"schema\":\"longhaul.diagnose/1\""));
    let line = line.unwrap_or_else(|| panic!("no diagnosis: {}", exit.output));
    serde_json::from_str::<Value>(line).unwrap()["result"].clone()
}

/// Twenty closed connections stay in the server's table for two minutes; there is no room for many more.
#[test]
fn a_full_table_of_connections_is_told() {
    let guest = match guest() {
        Ok(guest) => guest,
        Err(why) => return no_judge!("{why}"),
    };
    let commands = [
        HOSTS,
        "/usr/bin/ip netns exec far nft 'add table inet few; add chain inet few in { type filter hook input priority 0; }; \
         add rule inet few in ct state invalid counter'",
        SERVE,
        "longhaul tcp 10.1.1.2 --no-auth -P 20 -t 200ms -b 1M",
        "count=$(/usr/bin/ip netns exec far cat /proc/sys/net/netfilter/nf_conntrack_count); echo $count
         echo $((count + 2)) >/proc/sys/net/netfilter/nf_conntrack_max",
        "longhaul diagnose 10.1.1.2 --no-auth --rate 20M -t 5s --gentle -J",
    ];
    let exits = run(&guest, &commands);
    let result = diagnosis(&exits[5]);
    let findings = result["findings"].as_array().unwrap();
    let told = findings.iter().find(|finding| finding["code"] == "conntrack").unwrap_or_else(|| panic!("{result:#}"));
    assert_eq!(told["host"], "receiver", "{told:#}");
    assert!(told["remedy"].as_str().unwrap().contains("nf_conntrack_max"), "{told:#}");
}

/// 100 Mbit/s over 80 ms takes 1 MB in flight at each end, and what the kernel keeps with each packet: 1.6 MB are too few. The server is in the
/// guest's first namespace: `net.ipv4.tcp_mem` is there alone.
#[test]
fn too_little_memory_for_tcp_is_told() {
    const DIAGNOSE: &str = "/usr/bin/ip netns exec far longhaul diagnose 10.1.1.1 --no-auth --rate 100M -t 20s -J";
    let guest = match guest() {
        Ok(guest) => guest,
        Err(why) => return no_judge!("{why}"),
    };
    let commands = [
        HOSTS,
        "/usr/bin/tc qdisc add dev eth0 root netem delay 40ms limit 10000
         /usr/bin/ip netns exec far tc qdisc add dev eth1 root netem delay 40ms rate 100mbit limit 10000",
        "longhaul serve --bind 10.1.1.1 --no-auth >/tmp/serve 2>&1 & sleep 1; cat /tmp/serve",
        "echo 300 350 400 >/proc/sys/net/ipv4/tcp_mem",
        DIAGNOSE,
        "sysctl -w net.ipv4.tcp_mem=\"1200 1400 1600\"",
        DIAGNOSE,
    ];
    let exits = run(&guest, &commands);
    let result = diagnosis(&exits[4]);
    let cause = &result["causes"][0];
    assert_eq!((&cause["code"], &cause["host"]), (&"memory_limit".into(), &"receiver".into()), "{}", result["causes"]);
    let [text, remedy] =
        [&cause["evidence"][0]["text"], &cause["remedies"][0]["command"]].map(|said| said.as_str().unwrap());
    assert!(text.contains("was short of memory for"), "{text}");
    assert_eq!(remedy, "sysctl -w net.ipv4.tcp_mem=\"1200 1400 1600\"");
    // It is the one that fixes it.
    let fixed = diagnosis(&exits[6]);
    let goodput = |result: &Value| result["goodput_bps"].as_f64().unwrap();
    println!("{:.1} and {:.1} Mbit/s", goodput(&result) / 1e6, goodput(&fixed) / 1e6);
    assert!(
        fixed["causes"].as_array().unwrap().is_empty() && goodput(&fixed) > 2.0 * goodput(&result),
        "{}",
        fixed["causes"]
    );
}
