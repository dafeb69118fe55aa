//! What `longhaul diagnose` says of a limit that belongs to a whole machine, in a guest: its table of connections.

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
    let modules = ["veth", "nf_tables", "nft_ct", "nf_conntrack"];
    let guest = modules.iter().fold(Guest::new(Kernel::Linux6_12)?, |guest, module| guest.with_module(module));
    let programs = [env!("CARGO_BIN_EXE_longhaul"), "/usr/sbin/ip", "/usr/sbin/nft"];
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
