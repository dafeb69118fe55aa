//! What the way to a logging host lets through: long datagrams, short ones, another width from one moment to the next.

use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use longhaul_kernel::capability::is_root_in_namespace;
use longhaul_kernel::link::{Address, Netlink, VethEnd};
use longhaul_kernel::namespace::NetNamespace;
use longhaul_kernel::sysctl;

use crate::hosts::*;

const SENT: Duration = Duration::from_millis(500);

/// A host that captures, a router, and a host that logs, with a cable of its own width on either side of the router.
struct Line {
    near: NetNamespace,
    router: NetNamespace,
    far: NetNamespace,
    captures: Captures,
    traffic: Traffic,
}

/// The two ends' addresses.
const NEAR: &str = "10.77.1.2";
const FAR: &str = "10.77.2.2";

/// Runs `ip` in a namespace.
fn ip(namespace: &NetNamespace, words: &str) {
    let status = namespace.enter(|| Command::new("ip").args(words.split(' ')).status()).unwrap().unwrap();
    assert!(status.success(), "ip {words}");
}

impl Line {
    fn new(name: &str, near_mtu: u32, far_mtu: u32) -> Option<Self> {
        if !is_root_in_namespace() {
            longhaul_testing::no_judge!("needs CAP_SYS_ADMIN and CAP_NET_ADMIN (run as root)");
            return None;
        }
        let [near, router, far] = std::array::from_fn(|_| NetNamespace::create().unwrap());
        for (end, name, mtu, of_router, of_end) in
            [(&near, "left", near_mtu, "10.77.1.1", NEAR), (&far, "right", far_mtu, "10.77.2.1", FAR)]
        {
            let veth = |name, namespace| VethEnd { name, namespace: Some(namespace), mtu_bytes: Some(mtu), mac: None };
            let mut here = router.enter(|| Netlink::open().unwrap()).unwrap();
            here.create_veth(&veth(name, &router), &veth("eth0", end)).unwrap();
            let mut there = end.enter(|| Netlink::open().unwrap()).unwrap();
            for (netlink, name, ip) in [(&mut here, name, of_router), (&mut there, "eth0", of_end)] {
                let ifindex = netlink.index_of(name).unwrap();
                netlink.add_address(&Address { ifindex, ip: ip.parse().unwrap(), prefix_bits: 24 }).unwrap();
                netlink.set_up(ifindex, true).unwrap();
            }
            there.set_up(1, true).unwrap();
            ip(end, &format!("route add default via {of_router}"));
        }
        router.enter(|| sysctl::write("net.ipv4.ip_forward", "1").unwrap()).unwrap();
        let traffic = Traffic::of(&near);
        Some(Self { near, router, far, captures: Captures::new(name), traffic })
    }

    fn widen(&self, host: &NetNamespace, name: &str, mtu: u32) {
        ip(host, &format!("link set {name} mtu {mtu}"));
    }

    fn log(&self) -> Program {
        let folder = self.captures.path("log");
        let words = ["log", "-J", "-1", "--no-auth", "--bind", FAR, "-o", &folder];
        self.far.enter(|| Program::start(Command::new(LONGHAUL).args(words))).unwrap()
    }

    fn capture(&self, more: &[&str]) -> Program {
        let words = Hosts::capture_words(&[FAR], more);
        self.near.enter(|| Program::start(Command::new(LONGHAUL).args(words).arg("--no-auth"))).unwrap()
    }
}

/// A capture whose datagrams have to be of `bytes`: all of its packets come, and no datagram is lost.
fn all_comes_in_datagrams_of(line: &Line, bytes: u64) {
    let log = line.log();
    let capture = line.capture(&[]);
    line.traffic.send(5_000);
    sleep(SENT);
    let here = capture.finish();
    let logger = &here["result"]["loggers"][0];
    assert_eq!(count(logger, "datagram_bytes"), bytes, "{logger:#}");
    assert_eq!((count(logger, "written_packets"), count(logger, "lost_datagrams")), (5_000, 0), "{logger:#}");
    assert_eq!(count(only(&log.wait()), "written_packets"), 5_000);
}

/// Long datagrams vanish without a word: short ones do.
#[test]
fn a_hole_for_long_datagrams_makes_them_short() {
    let Some(line) = Line::new("log-hole", 9000, 9000) else { return };
    // What the router sends in full the far host's end takes for too long (veth(4): no ICMP, as from a switch).
    line.widen(&line.far, "eth0", 1500);
    all_comes_in_datagrams_of(&line, 1_232);
}

/// A router says that they are too long: then they are as long as it lets through.
#[test]
fn a_router_says_how_long_datagrams_may_be() {
    let Some(line) = Line::new("log-router", 9000, 1400) else { return };
    all_comes_in_datagrams_of(&line, 1_400 - 28);
}

/// The path gets narrower while a capture runs. Datagrams that go together do so in fragments, as Linux sends a super-packet, which is
/// longer than any MTU, without DF; the first that goes alone is lost, and a router says why.
#[test]
fn datagrams_get_shorter_when_the_path_gets_narrower() {
    let Some(line) = Line::new("log-narrower", 9000, 9000) else { return };
    let log = line.log();
    let capture = line.capture(&[]);
    line.traffic.send(5_000);
    sleep(SENT);
    line.widen(&line.router, "right", 1300);
    // So few each time that they go in one datagram.
    for round in 0..8 {
        line.traffic.send_from(5_000 + 60 * round, 60);
        sleep(Duration::from_millis(250));
    }
    line.traffic.send_from(5_480, 5_000);
    sleep(SENT);
    let here = capture.finish();
    let result = &here["result"];
    assert_balanced(result);
    let logger = &result["loggers"][0];
    assert_eq!(count(logger, "datagram_bytes"), 1_300 - 28, "{logger:#}");
    let written = count(logger, "written_packets");
    assert_eq!(dropped_at(logger, "log_link"), 10_480 - written, "{logger:#}");
    let log = log.wait();
    assert_eq!(count(only(&log), "written_packets"), written);
    let kept = line.captures.packets(&["log"]);
    assert_eq!(kept.len() as u64, written);
    let lost = (0..10_480).filter(|number| kept.binary_search_by_key(number, |(number, _)| *number).is_err());
    let (first, last) = (lost.clone().next(), lost.clone().next_back());
    assert!(first >= Some(5_000) && last < Some(5_480), "{first:?} to {last:?}");
    assert!((1..300).contains(&lost.count()), "{result:#}");
}

/// Longer ones than the path's MTU, because they were asked for: in fragments.
#[test]
fn datagrams_that_were_asked_for_go_in_fragments() {
    let Some(line) = Line::new("log-fragments", 1500, 1500) else { return };
    let log = line.log();
    let capture = line.capture(&["--datagram", "8000"]);
    line.traffic.send(5_000);
    sleep(SENT);
    let here = capture.finish();
    let logger = &here["result"]["loggers"][0];
    assert_eq!(count(logger, "datagram_bytes"), 8_000, "{logger:#}");
    assert_eq!((count(logger, "written_packets"), count(logger, "refused_datagrams")), (5_000, 0), "{logger:#}");
    assert_eq!(count(only(&log.wait()), "written_packets"), 5_000);
}
