//! A filter that stays while its interface is moved to another network namespace, renamed, or replaced by one of the same name and number.

use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

use longhaul_bpf::filter::{Filter, FilterOptions, Generations, KEPT};
use longhaul_bpf::support::has_bpf_fs;
use longhaul_filter::Following;
use longhaul_kernel::link::{Address, Netlink};
use longhaul_kernel::namespace::NetNamespace;
use longhaul_kernel::packet::{PacketOptions, PacketSocket};
use longhaul_kernel::sysctl;
use longhaul_testing::waiting::until;
use serde_json::Value;

use crate::common::object;
use crate::filter::{Hosts, OUR_MAC, OURS, THEIR_MAC, THEIRS};

/// `None` where filters cannot stay, and says why.
fn hosts() -> Option<Hosts> {
    if !has_bpf_fs() {
        longhaul_testing::no_judge!("no BPF file system");
        return None;
    }
    Hosts::new()
}

/// The binary in a namespace.
fn run(namespace: &NetNamespace, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    command.args(arguments);
    namespace.enter(|| command.output()).unwrap().unwrap()
}

fn succeeds(namespace: &NetNamespace, arguments: &[&str]) {
    let output = run(namespace, arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
}

/// What `filter status` prints of an interface; `None` where it has no filter.
fn status(namespace: &NetNamespace, interface: &str) -> Option<Value> {
    let output = run(namespace, &["filter", "status", interface, "--json"]);
    let object = object(&output.stdout);
    if output.status.success() {
        return Some(object);
    }
    assert_eq!(object["error"]["code"], "no_filter", "{output:?}");
    None
}

fn is_kept(namespace: &NetNamespace, interface: &str) -> bool {
    status(namespace, interface).is_some_and(|status| status["result"]["kept"] == true)
}

/// The files that keep filters.
fn pins() -> Vec<PathBuf> {
    std::fs::read_dir(KEPT).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// Moves the interface that is filtered; its number there.
fn moved(hosts: &Hosts, to: &NetNamespace) -> u32 {
    hosts.ip(&format!("link set lf0 netns /proc/{}/fd/{}", std::process::id(), to.as_fd().as_raw_fd()));
    let mut netlink = to.enter(Netlink::open).unwrap().unwrap();
    let index = netlink.index_of("lf0").unwrap();
    netlink.set_up(index, true).unwrap();
    index
}

/// Sockets that join `count` groups of the loopback interface: each changes the generation of IPv4 by one.
fn join(namespace: &NetNamespace, first: u8, count: u8) -> Vec<UdpSocket> {
    let join = |number: u8| {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        socket.join_multicast_v4(&Ipv4Addr::new(239, 8, 8, number), &Ipv4Addr::LOCALHOST).unwrap();
        socket
    };
    namespace.enter(|| (first..first + count).map(join).collect()).unwrap()
}

/// The other host has come to the same generations, so that these tell nothing.
#[test]
fn a_moved_one_drops_nothing_of_another_host() {
    let Some(hosts) = hosts() else { return };
    let other = NetNamespace::create().unwrap();
    for namespace in [&hosts.ours, &other] {
        let mut netlink = namespace.enter(Netlink::open).unwrap().unwrap();
        let loopback = netlink.index_of("lo").unwrap();
        netlink.set_up(loopback, true).unwrap();
    }
    let _groups = join(&hosts.ours, 1, 60);
    succeeds(&hosts.ours, &["filter", "attach", "lf0", "--pin", "--enforce"]);
    let told = hosts.ours.enter(|| Filter::open(hosts.index).unwrap().followed().unwrap().1).unwrap();

    let index = moved(&hosts, &other);
    let new = Ipv4Addr::new(10, 96, 9, 9);
    let mut netlink = other.enter(Netlink::open).unwrap().unwrap();
    netlink.add_address(&Address { ifindex: index, ip: new.into(), prefix_bits: 16 }).unwrap();
    let socket = other.enter(|| UdpSocket::bind((new, 0))).unwrap().unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let generation = || other.enter(|| Generations::load().unwrap().now().unwrap().ipv4).unwrap();
    // One by one: the kernel may be late with a change that the move makes.
    let mut others = Vec::new();
    while generation() < told.ipv4 {
        others.extend(join(&other, 100 + others.len() as u8, 1));
    }
    assert_eq!(generation(), told.ipv4);

    let mut far = hosts.theirs.enter(Netlink::open).unwrap().unwrap();
    far.add_permanent_neighbour(hosts.their_index, new.into(), OUR_MAC).unwrap();
    let sender = hosts.theirs.enter(|| UdpSocket::bind((THEIRS, 0))).unwrap().unwrap();
    sender.send_to(b"ours", (new, socket.local_addr().unwrap().port())).unwrap();
    let mut bytes = [0; 16];
    let received = socket.recv(&mut bytes);
    let shown = status(&other, "lf0").unwrap();
    assert_eq!(received.ok(), Some(4), "{shown:#}");
    // What this host would not need is left to the other, too.
    let wire =
        hosts.theirs.enter(|| PacketSocket::open(hosts.their_index, &PacketOptions::default())).unwrap().unwrap();
    let foreign = [&[2, 9, 9, 9, 9, 9][..], &THEIR_MAC, &[8, 0], &[0x45; 46]].concat();
    let before = doubtful(&other);
    (0..5).for_each(|_| wire.send(&[0; 10], &[&foreign]).unwrap());
    until("frames for others to pass", || doubtful(&other) >= before + 5);
    let shown = status(&other, "lf0").unwrap();
    assert_eq!(shown["result"]["total"]["rejected"]["packets"], 0, "{shown:#}");
    assert_eq!(shown["result"]["addresses_current"], false);
    let message = shown["caveats"][0]["message"].as_str().unwrap();
    assert!(message.contains("another network namespace"), "{message}");

    // Who follows it there makes it that host's, until the next change of that host's addresses, of which the kernel may be late with one.
    let rejected = || status(&other, "lf0").unwrap()["result"]["total"]["rejected"]["packets"].as_u64().unwrap();
    until("frames for others to be rejected", || {
        let (before, let_pass) = (rejected(), doubtful(&other));
        succeeds(&other, &["filter", "follow", "lf0", "-t", "100ms"]);
        (0..5).for_each(|_| wire.send(&[0; 10], &[&foreign]).unwrap());
        until("the frames", || rejected() + doubtful(&other) >= before + let_pass + 5);
        rejected() == before + 5
    });
    succeeds(&other, &["filter", "detach", "lf0"]);
}

fn doubtful(namespace: &NetNamespace) -> u64 {
    let shown = status(namespace, "lf0").unwrap();
    let rows = shown["result"]["accepted"].as_array().unwrap();
    rows.iter().find(|row| row["reason"] == "doubtful").unwrap()["frames"]["packets"].as_u64().unwrap()
}

/// Two filters that stay: one went with its interface, one is at an interface that has its name and number now. Each is kept, shown and detached by
/// itself.
#[test]
fn a_moved_one_and_its_successor_are_told_apart() {
    let Some(hosts) = hosts() else { return };
    let other = NetNamespace::create().unwrap();
    succeeds(&hosts.ours, &["filter", "attach", "lf0", "--pin"]);
    moved(&hosts, &other);
    assert!(is_kept(&other, "lf0"), "wherever its interface is");
    hosts.ip(&format!("link add lf0 index {} type veth peer name lf8", hosts.index));
    hosts.ip("link set lf0 up");
    assert!(status(&hosts.ours, "lf0").is_none(), "the new interface has none");
    let nothing = run(&hosts.ours, &["filter", "detach", "lf0"]);
    assert!(nothing.status.code() == Some(1) && is_kept(&other, "lf0"), "{nothing:?}");

    succeeds(&hosts.ours, &["filter", "attach", "lf0", "--pin"]);
    assert!(is_kept(&hosts.ours, "lf0"), "it stays, although the other one does");
    succeeds(&hosts.ours, &["filter", "detach", "lf0"]);
    assert!(status(&hosts.ours, "lf0").is_none() && is_kept(&other, "lf0"), "the other one is left");

    // Another in its place there, under another name.
    let mut rename = Command::new("ip");
    rename.args(["link", "set", "lf0", "name", "lf7"]);
    assert!(other.enter(|| rename.status()).unwrap().unwrap().success());
    // The interface came up there a moment ago. What a filter is told before the kernel is sure of its IPv6 address is old then (RFC 4862 §5.4).
    until("the filter to know the addresses", || {
        succeeds(&other, &["filter", "attach", "lf7", "--pin"]);
        let shown = status(&other, "lf7").unwrap()["result"].clone();
        assert_eq!(shown["kept"], true, "{shown:#}");
        shown["addresses_current"] == true
    });
    succeeds(&other, &["filter", "detach", "lf7"]);
    assert!(status(&other, "lf7").is_none());
}

/// The kernel detaches a filter whose interface ends; the file that kept it is no filter of the next interface.
#[test]
fn one_whose_interface_ended_is_not_its_successors() {
    let Some(hosts) = hosts() else { return };
    let others = pins();
    succeeds(&hosts.ours, &["filter", "attach", "lf0", "--pin"]);
    let own: Vec<PathBuf> = pins().into_iter().filter(|path| !others.contains(path)).collect();
    hosts.ip("link delete lf0");
    let output = run(&hosts.ours, &["filter", "status", "lf0", "--json"]);
    assert_eq!(object(&output.stdout)["error"]["code"], "no_interface", "{output:?}");
    // Other tests may have kept one meanwhile.
    assert!(own.iter().any(|path| !path.exists()), "{own:?}: not forgotten");
    hosts.ip(&format!("link add lf0 index {} type veth peer name lf8", hosts.index));
    assert!(status(&hosts.ours, "lf0").is_none());
    succeeds(&hosts.ours, &["filter", "attach", "lf0", "--pin"]);
    assert!(is_kept(&hosts.ours, "lf0"));
    succeeds(&hosts.ours, &["filter", "detach", "lf0"]);
}

/// Nobody follows the filter when the host begins to forward (Linux 6.17).
#[test]
fn forwarding_by_force_is_seen_without_a_follower() {
    let Some(hosts) = Hosts::new() else { return };
    let key = "net/ipv6/conf/lf0/force_forwarding";
    if hosts.ours.enter(|| sysctl::read(key)).unwrap().is_err() {
        return longhaul_testing::skipped!("this kernel has no {key}");
    }
    hosts.ip("address add fd96::2/64 dev lf0 nodad");
    let options = FilterOptions { enforce: true, ..FilterOptions::default() };
    let filter = hosts.ours.enter(|| Filter::attach(hosts.index, &options)).unwrap().unwrap();
    let tell = || hosts.ours.enter(|| Following::begin("lf0").unwrap().tell(&filter).unwrap()).unwrap();
    // To an address of another network, and over IPv4 to one, as it is no matter of IPv4.
    let to: std::net::Ipv6Addr = "fd97::1".parse().unwrap();
    let header = [&[0x60, 0, 0, 0, 0, 26, 59, 64][..], &[0xfd; 16], &to.octets()].concat();
    let v6 = [&OUR_MAC[..], &THEIR_MAC, &[0x86, 0xdd], &header, &[0; 26]].concat();
    let header = [&[0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0][..], &THEIRS.octets(), &[10, 97, 0, 1]].concat();
    let v4 = [&OUR_MAC[..], &THEIR_MAC, &[8, 0], &header, &[0; 26]].concat();
    let dropped = |frame: &[u8]| hosts.ours.enter(|| filter.try_frame(frame, 1)).unwrap().unwrap().0;
    until("routes to be settled", || {
        tell();
        dropped(&v6) && dropped(&v4)
    });
    hosts.ours.enter(|| sysctl::write(key, "1")).unwrap().unwrap();
    assert_eq!((dropped(&v6), dropped(&v4)), (false, true), "{OURS}");
    hosts.ours.enter(|| sysctl::write(key, "0")).unwrap().unwrap();
    assert!(dropped(&v6), "and no longer");
}
