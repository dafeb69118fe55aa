//! What `longhaul capture --flow` and `--port` let through of IPv6, between the hosts of a lab.

use std::fs;
use std::io::Read;
use std::process::{Command, Stdio};

use crate::common::TestLab;
use crate::common::captures::{Folder, json, missing, on};
use longhaul_testing::waiting::until;

const PATH: &str = "
name = 'six'
[[forward]]
delay = '1ms'
[[backward]]
delay = '1ms'
";

/// TCP and UDP to two ports of fd00::2, from ports 1000 and 1001.
const TRAFFIC: &str = "
import socket
for port in (7001, 7002):
    s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    s.bind(('fd00::1', port - 6001))
    for n in range(10):
        s.sendto(bytes(100), ('fd00::2', port))
    t = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
    t.connect_ex(('fd00::2', port))
";

#[test]
fn flow_and_port_filter_ipv6() {
    if missing("python3") {
        return;
    }
    let folder = Folder::new("six");
    let path = folder.file("six.toml");
    fs::write(&path, PATH).unwrap();
    let Some(lab) = TestLab::up("six", &path) else { return };
    for (host, address) in [("client", "fd00::1/64"), ("server", "fd00::2/64")] {
        let added = on(&lab, host, &["ip", "-6", "address", "add", address, "dev", "eth0", "nodad"]).status().unwrap();
        assert!(added.success());
    }
    // Both know where the other is before anything is captured.
    until("a neighbour", || {
        on(&lab, "client", &["ping", "-6", "-c", "1", "-W", "1", "fd00::2"]).output().unwrap().status.success()
    });
    let program = env!("CARGO_BIN_EXE_longhaul");
    let filters: [&[&str]; 4] = [
        &["--port", "7001"],
        &["--flow", "[fd00::1]:1000-[fd00::2]:7001"],
        &["--flow", "[fd00::2]:7002-[fd00::1]:1001"],
        &["--filter", "ip6 and udp port 7002"],
    ];
    let captures: Vec<_> = filters
        .iter()
        .enumerate()
        .map(|(number, filter)| {
            let spool = folder.file(&format!("spool{number}"));
            let command = [&[program, "capture", "-J", "eth0", "-o", &spool][..], filter].concat();
            let mut child = on(&lab, "client", &command).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
            let (mut said, mut byte) = (String::new(), [0]);
            while !said.contains("Ctrl-C ends\n") {
                assert_eq!(child.stderr.as_mut().unwrap().read(&mut byte).unwrap(), 1, "the capture ended: {said}");
                said.push(byte[0].into());
            }
            (child, spool)
        })
        .collect();
    assert!(on(&lab, "client", &["python3", "-c", TRAFFIC]).status().unwrap().success());
    let mut told = Vec::new();
    for (mut child, spool) in captures {
        std::thread::sleep(std::time::Duration::from_millis(300));
        assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
        child.wait().unwrap();
        let found = json(&["analyze", "--json", &spool]);
        let flows = found["result"]["flows"].as_array().unwrap();
        let mut flows: Vec<_> = flows
            .iter()
            .map(|flow| {
                let packets = flow["forward"]["packets"].as_u64().unwrap();
                (flow["protocol"].as_str().unwrap().to_owned(), flow["server"].as_str().unwrap().to_owned(), packets)
            })
            .collect();
        flows.sort();
        println!("{flows:?}");
        told.push(flows);
    }
    let flow = |protocol: &str, port: u16, packets: u64| (protocol.to_owned(), format!("[fd00::2]:{port}"), packets);
    // What is refused is answered by ICMPv6 for UDP, which has no port, and by a reset for TCP.
    assert_eq!(told[0], [flow("tcp", 7001, 1), flow("udp", 7001, 10)]);
    assert_eq!(told[1], [flow("udp", 7001, 10)]);
    assert_eq!(told[2], [flow("udp", 7002, 10)]);
    assert_eq!(told[3], [flow("udp", 7002, 10)]);
}
