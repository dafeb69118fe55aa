//! `longhaul host` against what ethtool, ip and sysctl say of the same interface.

use std::collections::BTreeMap;
use std::process::{Command, Output};

use crate::common::{TestLab, alone, object};
use longhaul_kernel::capability::is_root_in_namespace;
use serde_json::{Value, json};

fn on_server(lab: &TestLab, command: &[&str]) -> Output {
    let mut run = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    run.args(["lab", "exec", "server", "--name", &lab.name, "--"]).args(command).output().unwrap()
}

fn said(lab: &TestLab, command: &[&str]) -> Option<String> {
    let output = on_server(lab, command);
    output.status.success().then(|| String::from_utf8(output.stdout).unwrap().trim().to_owned())
}

/// `name: value` lines, without what is indented in front.
fn fields(text: &str) -> Vec<(String, String)> {
    let field =
        |line: &str| line.split_once(':').map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()));
    text.lines().filter_map(field).collect()
}

/// ethtool has names of its own for some features.
fn kernel_name(name: &str) -> &str {
    match name {
        "rx-checksumming" => "rx-checksum",
        "generic-segmentation-offload" => "tx-generic-segmentation",
        "generic-receive-offload" => "rx-gro",
        "large-receive-offload" => "rx-lro",
        "rx-vlan-offload" => "rx-vlan-hw-parse",
        "tx-vlan-offload" => "tx-vlan-hw-insert",
        "ntuple-filters" => "rx-ntuple-filter",
        "receive-hashing" => "rx-hashing",
        other => other,
    }
}

#[test]
fn a_host_is_described_as_other_tools_do() {
    let _alone = alone();
    if !is_root_in_namespace() {
        longhaul_testing::no_judge!("setting up an interface takes root");
        return;
    }
    let Some(lab) = TestLab::up("host-tools", "lan") else { return };
    // Values that no default has.
    let set = "echo 3 > /sys/class/net/eth0/queues/rx-0/rps_cpus && echo 7 > /sys/class/net/eth0/napi_defer_hard_irqs && \
               echo 21000 > /sys/class/net/eth0/gro_flush_timeout && ip link set eth0 txqueuelen 345 && \
               sysctl -qw net.ipv4.tcp_rmem='4096 131072 7654321'";
    assert!(on_server(&lab, &["sh", "-c", set]).status.success());
    let longhaul = env!("CARGO_BIN_EXE_longhaul");
    let host = object(said(&lab, &[longhaul, "host", "--json", "eth0"]).unwrap().as_bytes())["result"].clone();
    let eth0 = host["interfaces"][0].clone();

    offloads(&lab, &eth0);
    let driver: BTreeMap<_, _> = fields(&said(&lab, &["ethtool", "-i", "eth0"]).unwrap()).into_iter().collect();
    assert_eq!((&eth0["driver"], &eth0["driver_version"]), (&json!(driver["driver"]), &json!(driver["version"])));
    let settings: BTreeMap<_, _> = fields(&said(&lab, &["ethtool", "eth0"]).unwrap()).into_iter().collect();
    let mbps: u64 = settings["Speed"].trim_end_matches("Mb/s").parse().unwrap();
    assert_eq!(eth0["link_speed_bps"], mbps * 1_000_000);
    for (flag, key, names) in [
        ("-l", "channels", &[("RX", "receive"), ("TX", "transmit"), ("Combined", "combined")][..]),
        ("-g", "rings", &[("RX", "receive_packets"), ("TX", "transmit_packets")]),
        (
            "-c",
            "coalescing",
            &[("rx-usecs", "receive_us"), ("rx-frames", "receive_max_packets"), ("tx-usecs", "transmit_us")],
        ),
    ] {
        let Some(text) = said(&lab, &["ethtool", flag, "eth0"]) else {
            assert!(eth0[key].is_null(), "ethtool {flag} has nothing: {}", eth0[key]);
            continue;
        };
        // What is set now comes behind what could be.
        for (name, own) in names {
            let value = fields(&text).into_iter().rfind(|field| field.0 == *name).unwrap().1;
            assert_eq!(eth0[key][own], value.parse::<u64>().unwrap_or(0), "ethtool {flag}: {name}");
        }
    }

    let link = said(&lab, &["ip", "-j", "-d", "link", "show", "eth0"]).unwrap();
    let link = serde_json::from_str::<Value>(&link).unwrap()[0].clone();
    for (own, theirs) in [
        ("name", "ifname"),
        ("index", "ifindex"),
        ("mtu_bytes", "mtu"),
        ("qdisc", "qdisc"),
        ("transmit_queue_packets", "txqlen"),
        ("gso_max_bytes", "gso_max_size"),
        ("gro_max_bytes", "gro_max_size"),
    ] {
        assert_eq!(eth0[own], link[theirs], "{own}");
    }
    assert_eq!(eth0["kind"], link["linkinfo"]["info_kind"]);
    assert_eq!((&eth0["up"], &eth0["carrier"]), (&json!(true), &json!(link["operstate"] == "UP")));
    let queues = eth0["queues"].as_array().unwrap();
    for direction in ["receive", "transmit"] {
        // ethtool -l, looked at above.
        let of = queues.iter().filter(|queue| queue["direction"] == direction).count() as u64;
        let channels = [direction, "combined"].iter().filter_map(|kind| eth0["channels"][kind].as_u64()).sum::<u64>();
        assert_eq!(of, channels, "{direction} queues");
    }
    assert_eq!(queues[0]["cpus"], json!([0, 1]));
    assert_eq!((&eth0["napi_defer_hard_irqs"], &eth0["gro_flush_timeout_ns"]), (&json!(7), &json!(21_000)));
    assert_eq!(eth0["transmit_queue_packets"], 345);

    let sysctls = host["sysctls"].as_object().unwrap();
    assert!(sysctls.len() > 30 && sysctls.contains_key("net.ipv4.tcp_available_congestion_control"));
    for (key, value) in sysctls {
        let own = match value {
            Value::Array(numbers) => numbers.iter().map(Value::to_string).collect::<Vec<_>>().join(" "),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let theirs = said(&lab, &["sysctl", "-n", key]).unwrap();
        assert_eq!(own, theirs.split_whitespace().collect::<Vec<_>>().join(" "), "{key}");
    }
    assert_eq!(host["sysctls"]["net.ipv4.tcp_rmem"], json!([4096, 131_072, 7_654_321]));
    let clock = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    assert_eq!(json!(said(&lab, &["cat", clock]).unwrap()), host["kernel"]["clocksource"]);
    assert_eq!(json!(said(&lab, &["uname", "-r"]).unwrap()), host["kernel"]["release"]);
    let cpus: usize = said(&lab, &["getconf", "_NPROCESSORS_ONLN"]).unwrap().parse().unwrap();
    assert_eq!(host["cpu"]["online_cpus"].as_array().unwrap().len(), cpus);

    let text = said(&lab, &[longhaul, "host", "eth0"]).unwrap();
    for part in ["RPS CPU 0-1", "defers interrupts for 7 polls, GRO for 21us", "txqueuelen 345", "7654321", "rx-gro"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let long: Vec<&str> =
        text.lines().filter(|line| line.chars().count() > 80 && !line.starts_with("unread")).collect();
    assert!(long.is_empty(), "{long:#?}");
}

fn offloads(lab: &TestLab, eth0: &Value) {
    let theirs: BTreeMap<String, String> = fields(&said(lab, &["ethtool", "-k", "eth0"]).unwrap())
        .into_iter()
        .map(|(name, value)| (kernel_name(&name).to_owned(), value))
        .collect();
    let own: BTreeMap<&str, &Value> =
        eth0["offloads"].as_array().unwrap().iter().map(|o| (o["name"].as_str().unwrap(), o)).collect();
    let mut compared = 0;
    for (name, value) in &theirs {
        let Some(offload) = own.get(name.as_str()) else { continue };
        compared += 1;
        assert_eq!(offload["active"], value.starts_with("on"), "{name}: {value}");
        assert_eq!(offload["changeable"], !value.contains("fixed"), "{name}: {value}");
    }
    assert!(compared >= 15, "{compared} of {}", own.len());
    assert!(theirs.contains_key("rx-gro") && own.contains_key("rx-gro") && own.contains_key("tx-tcp-segmentation"));
}
