//! Who has no business there.

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::Stdio;
use std::thread::sleep;
use std::time::{Duration, Instant};

use longhaul_channel::{Channel, Key, Role};
use longhaul_kernel::link::{Address, Netlink};
use longhaul_kernel::namespace::NetNamespace;
use longhaul_kernel::process::{Process, Signal};
use longhaul_peer::listening::CONNECTIONS_MOST;
use longhaul_session::Message;
use serde_json::json;

use crate::common::captures::server_address;
use crate::common::{longhaul, object, printed};
use crate::hosts::*;

#[test]
fn who_has_another_key_or_none_is_refused() {
    let Some(hosts) = Hosts::new("log-key", "lan", &[]) else { return };
    let (key, other) = (hosts.path("key"), hosts.path("other"));
    printed(&["key", "new", &key]);
    printed(&["key", "new", &other]);
    let log = hosts.log("log", &["--key", &key]);
    let refused = |options: &[&str]| {
        let words = [&["capture", "lo", "--to", "server"][..], options].concat();
        Program::try_start(&mut hosts.on("client", &[&[LONGHAUL][..], &words].concat())).err().expect("it is refused")
    };
    let said = refused(&["--key", &other]);
    assert!(said.contains("logging host server: the keys of the two ends differ"), "{said}");
    let said = refused(&["--no-auth"]);
    assert!(said.contains("requires a key"), "{said}");
    // Nor does one come with a key where there is none.
    let open = hosts.log("open", &["-p", "5212"]);
    let words = ["capture", "lo", "--to", "server:5212", "--key", &key];
    let said =
        Program::try_start(&mut hosts.on("client", &[&[LONGHAUL][..], &words].concat())).err().expect("it is refused");
    assert!(said.contains("the other end has no key"), "{said}");
    assert_eq!(open.finish()["result"]["refused_connections"], 1);
    assert_eq!(fs::read_dir(hosts.path("log")).unwrap().count(), 0, "nothing was written for them");

    let capture = hosts.capture(&["server"], &["--key", &key]);
    hosts.send(100);
    sleep(Duration::from_millis(300));
    assert_eq!(count(&capture.finish()["result"], "written_packets"), 100);
    let log = log.finish();
    assert_eq!((count(only(&log), "written_packets"), &log["result"]["refused_connections"]), (100, &2.into()));
}

/// Replays of the first message of who has the key, from another host and as many as there are seats: without the key they are strangers, and give
/// way.
#[test]
fn replayed_handshakes_keep_no_capture_out() {
    let Some(hosts) = Hosts::new("log-replays", "lan", &[]) else { return };
    let key = hosts.path("key");
    printed(&["key", "new", &key]);
    let log = hosts.log("log", &["--key", &key]);
    let known: Key = fs::read_to_string(&key).unwrap().parse().unwrap();
    let recorded = Channel::<Message>::keyed(Role::Client, &known, [9; 32]).poll_transmit().unwrap();
    let address: IpAddr = server_address(&hosts.lab).parse().unwrap();
    let replay = || {
        let mut stream = TcpStream::connect((address, 5211)).unwrap();
        stream.write_all(&recorded).unwrap();
        // The logging host has answered, so it has handled what it got.
        stream.read_exact(&mut [0; 16]).unwrap();
        stream
    };
    let replays = hosts.server.enter(|| (0..CONNECTIONS_MOST).map(|_| replay()).collect::<Vec<_>>()).unwrap();
    let capture = hosts.capture(&["server"], &["--key", &key]);
    hosts.send(100);
    sleep(Duration::from_millis(300));
    assert_eq!(count(&capture.finish()["result"], "written_packets"), 100);
    drop(replays);
    assert_eq!(count(only(&log.finish()), "written_packets"), 100);
}

/// `log -1` receives one capture: who only connects, or has another key, ends nothing.
#[test]
fn once_means_one_capture() {
    let Some(hosts) = Hosts::new("log-once", "lan", &[]) else { return };
    let (key, other) = (hosts.path("key"), hosts.path("other"));
    printed(&["key", "new", &key]);
    printed(&["key", "new", &other]);
    let log = hosts.log("log", &["-1", "--key", &key]);
    let address: IpAddr = server_address(&hosts.lab).parse().unwrap();
    for _ in 0..3 {
        let stream = hosts.client.enter(|| TcpStream::connect((address, 5211)).unwrap()).unwrap();
        stream.shutdown(Shutdown::Both).unwrap();
    }
    let words = [LONGHAUL, "capture", "lo", "--to", "server", "--key", &other];
    let said = Program::try_start(&mut hosts.on("client", &words)).err().expect("it is refused");
    assert!(said.contains("the keys of the two ends differ"), "{said}");
    // It would have ended by now.
    sleep(Duration::from_millis(300));
    let capture = hosts.capture(&["server"], &["--key", &key]);
    hosts.send(100);
    sleep(Duration::from_millis(300));
    assert_eq!(count(&capture.finish()["result"], "written_packets"), 100);
    assert_eq!(count(only(&log.wait()), "written_packets"), 100);
}

#[test]
fn garbage_and_strangers_do_not_matter_and_ipv6_does_as_well() {
    let Some(hosts) = Hosts::new("log-garbage", "lan", &[]) else { return };
    let log = hosts.log("log", &[]);
    let list = object(&longhaul(&["lab", "list", "--json"]).stdout);
    let lab =
        list["result"]["labs"].as_array().unwrap().iter().find(|lab| lab["name"] == hosts.lab.name.as_str()).unwrap();
    let server = lab["hosts"].as_array().unwrap().iter().find(|host| host["name"] == "server").unwrap();
    let address = server["ipv6"].as_str().unwrap_or_else(|| panic!("{server:#}"));
    let address = address.split('/').next().unwrap().to_owned();
    let to = format!("[{address}]:5211");
    // One that says nothing, one that speaks another language, and one that tests.
    let strangers = hosts.client.enter(|| {
        let silent = TcpStream::connect((address.as_str(), 5211)).unwrap();
        let mut other = TcpStream::connect((address.as_str(), 5211)).unwrap();
        other.write_all(b"GET / HTTP/1.1\r\nHost: log\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        other.read_to_end(&mut answer).unwrap();
        assert!(answer.len() <= 16, "no more than it sent, and less: {answer:?}");
        silent
    });
    let strangers = strangers.unwrap();
    let test = longhaul(&[
        "lab",
        "exec",
        "--name",
        &hosts.lab.name,
        "client",
        "--",
        LONGHAUL,
        "udp",
        "server",
        "-p",
        "5211",
        "-t",
        "1",
    ]);
    assert!(String::from_utf8_lossy(&test.stderr).contains("this is a logging host"), "{test:?}");

    let capture = hosts.capture(&[&to], &[]);
    let sockets = [&hosts.client, &hosts.server].map(|host| host.enter(|| UdpSocket::bind("[::]:0").unwrap()).unwrap());
    for number in 0..2_000_usize {
        // Some as long as one of ours, with its first bytes.
        let garbage = [&b"LHD1"[..], &vec![number as u8; number]].concat();
        let _ = sockets[number % 2].send_to(&garbage[..garbage.len().min(1_400)], (address.as_str(), 5211));
        if number % 20 == 0 {
            hosts.send(50);
        }
    }
    sleep(Duration::from_millis(400));
    let here = capture.finish();
    drop(strangers);
    let log = log.finish();
    let there = only(&log);
    assert_eq!((count(there, "seen_packets"), count(there, "written_packets")), (5_000, 5_000), "{there:#}");
    assert_eq!(count(there, "refused_datagrams"), 2_000, "{there:#}");
    assert_eq!((&there["wrong_datagrams"], &there["stale_datagrams"]), (&0.into(), &0.into()));
    assert_eq!(count(&here["result"], "written_packets"), 5_000);
}

/// Ctrl-C ends a capture that waits for its logging host, at once and without a trace, whatever it waits for.
#[test]
fn ctrl_c_ends_a_capture_that_is_not_yet_connected() {
    let Some(hosts) = Hosts::new("log-ctrl-c", "lan", &[]) else { return };
    let interrupted = |to: &[&str]| {
        let folder = hosts.path("here");
        let words = [&[LONGHAUL][..], &Hosts::capture_words(to, &["-o", &folder])].concat();
        let mut command = hosts.on("client", &words);
        let program = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        sleep(Duration::from_millis(600));
        let began = Instant::now();
        Process::open(program.id()).unwrap().expect("it waits").signal(Signal::INT).unwrap();
        let output = program.wait_with_output().unwrap();
        assert!(began.elapsed() < Duration::from_millis(1_500), "{to:?}: {:?}", began.elapsed());
        assert_eq!(output.status.code(), Some(130), "{to:?}: {output:?}");
        let said = object(&output.stdout);
        assert_eq!(said["error"]["code"], "interrupted", "{said:#}");
        assert!(!Path::new(&folder).exists(), "{to:?}");
    };
    // Nobody answers where there is no host; the kernel gives up after 3 s.
    interrupted(&["10.77.2.99"]);
    // The kernel answers, the program does not.
    let asleep = hosts.log("asleep", &[]);
    asleep.signal(Signal::STOP);
    interrupted(&["server"]);
    asleep.signal(Signal::CONT);
    drop(asleep.finish());
    // One of two is there already. It keeps nothing of what never began.
    let first = hosts.log("first", &[]);
    let asleep = hosts.log("asleep", &["-p", "5212"]);
    asleep.signal(Signal::STOP);
    interrupted(&["server", "server:5212"]);
    asleep.signal(Signal::CONT);
    let first = first.finish();
    assert_eq!(
        (&first["result"]["captures"], &first["result"]["refused_connections"]),
        (&json!([]), &1.into()),
        "{first:#}"
    );
    assert_eq!(hosts.captures.folders("first").len(), 0);
    // The program speaks, but says not whether it takes the capture.
    let listener = hosts.server.enter(|| TcpListener::bind("[::]:5213").unwrap()).unwrap();
    std::thread::spawn(move || {
        // The first connection only finds out which address of the name answers.
        for stream in listener.incoming().take(2) {
            let mut stream = stream.unwrap();
            let _ = stream.write_all(b"longhaul/1 plain");
            let _ = stream.read_to_end(&mut Vec::new());
        }
    });
    interrupted(&["server:5213"]);
}

/// Addresses of IPv6 as they are, in brackets with a port, and of a link with its name behind.
#[test]
fn addresses_of_ipv6() {
    let Some(hosts) = Hosts::new("log-ipv6", "lan", &[]) else { return };
    let of_link: IpAddr = "fe80::2".parse().unwrap();
    let add = |host: &NetNamespace, ip: IpAddr| {
        let mut netlink = host.enter(|| Netlink::open().unwrap()).unwrap();
        let ifindex = netlink.index_of("eth0").unwrap();
        netlink.add_address(&Address { ifindex, ip, prefix_bits: 64 }).unwrap();
        netlink.addresses().unwrap()
    };
    add(&hosts.client, "fe80::1".parse().unwrap());
    let addresses = add(&hosts.server, of_link);
    let global =
        addresses.iter().map(|address| address.ip).find(|ip| ip.is_ipv6() && !ip.is_loopback() && *ip != of_link);
    let global = global.unwrap_or_else(|| panic!("{addresses:?}"));
    let spelt = [format!("{global}"), format!("[{global}]"), format!("[{global}]:5211"), format!("{of_link}%eth0")];
    let key = hosts.path("key");
    printed(&["key", "new", &key]);
    for (number, to) in spelt.iter().enumerate() {
        let folder = format!("log{number}");
        let log = hosts.log(&folder, &["-1", "--key", &key]);
        let capture = hosts.capture(&[to], &["--key", &key]);
        hosts.send(200);
        sleep(Duration::from_millis(500));
        let result = &capture.finish()["result"];
        assert_eq!(count(result, "written_packets"), 200, "{to}: {result:#}");
        assert!(result["loggers"][0]["address"].as_str().unwrap().starts_with('['), "{result:#}");
        assert_eq!(count(only(&log.wait()), "written_packets"), 200, "{to}");
    }
}
