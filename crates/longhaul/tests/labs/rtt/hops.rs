//! `longhaul rtt` without a server, over routers: each hop, and a closed port.

use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

use longhaul_kernel::capability::is_root_in_namespace;
use longhaul_kernel::link::{Netlink, VethEnd};
use longhaul_kernel::namespace::NetNamespace;
use longhaul_kernel::sysctl;
use serde_json::Value;

use crate::common::object;

const LONGHAUL: &str = env!("CARGO_BIN_EXE_longhaul");

/// ```text
///            ┌─ upper ─┐
/// client ─ near        far
///            └─ lower ─┘
/// ```
///
/// The far host is 10.9.0.1 and fd09::1. `near` shares its packets out by flow (IPv4); IPv6 has the upper router alone.
pub(crate) struct Routers {
    pub(crate) client: NetNamespace,
    pub(crate) near: NetNamespace,
    pub(crate) far: NetNamespace,
    _between: [NetNamespace; 2],
}

pub(crate) fn run(host: &NetNamespace, words: &str) {
    let mut parts = words.split(' ');
    let mut command = Command::new(parts.next().unwrap());
    let output = host.enter(|| command.args(parts).output()).unwrap().unwrap();
    assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A cable with 10.`number`.0.1 at its left end, `l`, and 10.`number`.0.2 at its right one, `r`.
pub(crate) fn cable(left: &NetNamespace, right: &NetNamespace, number: u8) {
    let (left_name, right_name) = (format!("l{number}"), format!("r{number}"));
    let end = |name, namespace| VethEnd { name, namespace: Some(namespace), mtu_bytes: None, mac: None };
    let mut netlink = left.enter(Netlink::open).unwrap().unwrap();
    netlink.create_veth(&end(&left_name, left), &end(&right_name, right)).unwrap();
    for (host, name, last) in [(left, "l", 1), (right, "r", 2)] {
        run(host, &format!("ip address add 10.{number}.0.{last}/24 dev {name}{number}"));
        run(host, &format!("ip address add fd0{number}::{last}/64 dev {name}{number} nodad"));
        run(host, &format!("ip link set {name}{number} up"));
    }
}

impl Routers {
    pub(crate) fn new() -> Option<Self> {
        if !is_root_in_namespace() {
            longhaul_testing::no_judge!("needs root");
            return None;
        }
        let [client, near, upper, lower, far] = std::array::from_fn(|_| NetNamespace::create().unwrap());
        for host in [&client, &near, &upper, &lower, &far] {
            run(host, "ip link set lo up");
            for setting in [
                ("net.ipv4.ip_forward", "1"),
                ("net.ipv4.conf.all.rp_filter", "0"),
                ("net.ipv4.conf.default.rp_filter", "0"),
                ("net.ipv4.fib_multipath_hash_policy", "1"),
                ("net.ipv6.conf.all.forwarding", "1"),
                ("net.ipv6.conf.default.accept_dad", "0"),
            ] {
                host.enter(|| sysctl::write(setting.0, setting.1)).unwrap().unwrap();
            }
        }
        cable(&client, &near, 1);
        cable(&near, &upper, 2);
        cable(&near, &lower, 3);
        cable(&upper, &far, 4);
        cable(&lower, &far, 5);
        run(&client, "ip route add default via 10.1.0.2");
        run(&client, "ip route add default via fd01::2");
        run(&near, "ip route add 10.9.0.1 nexthop via 10.2.0.2 nexthop via 10.3.0.2");
        run(&near, "ip route add fd09::1 via fd02::2");
        run(&upper, "ip route add 10.9.0.1 via 10.4.0.2");
        run(&upper, "ip route add fd09::1 via fd04::2");
        run(&upper, "ip route add 10.1.0.0/24 via 10.2.0.1");
        run(&upper, "ip route add fd01::/64 via fd02::1");
        run(&lower, "ip route add 10.9.0.1 via 10.5.0.2");
        run(&lower, "ip route add 10.1.0.0/24 via 10.3.0.1");
        run(&far, "ip address add 10.9.0.1/32 dev lo");
        run(&far, "ip address add fd09::1/128 dev lo nodad");
        run(&far, "ip route add 10.1.0.0/24 via 10.4.0.1");
        run(&far, "ip route add fd01::/64 via fd04::1");
        Some(Self { client, near, far, _between: [upper, lower] })
    }

    pub(crate) fn spawn(&self, program: &str, arguments: &[&str]) -> Child {
        let mut command = Command::new(program);
        command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        self.client.enter(|| command.spawn()).unwrap().unwrap()
    }

    fn rtt(&self, arguments: &[&str]) -> Value {
        result(&self.spawn(LONGHAUL, &[&["rtt", "--json"], arguments].concat()).wait_with_output().unwrap())
    }
}

pub(crate) fn result(output: &Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    object(&output.stdout)
}

/// The addresses of each hop.
fn addresses(result: &Value) -> Vec<Vec<String>> {
    let of = |hop: &Value| {
        let all = hop["addresses"].as_array().unwrap().iter();
        all.map(|at| at["address"].as_str().unwrap().to_owned()).collect()
    };
    result["result"]["hops"].as_array().unwrap().iter().map(of).collect()
}

#[test]
fn each_router_on_the_way_of_one_flow_answers_by_every_kind_of_probe() {
    let Some(routers) = Routers::new() else { return };
    // One port of TCP listens, the other one is closed.
    let listening: Vec<_> = (["10.9.0.1:443", "[fd09::1]:443"].iter())
        .map(|address| routers.far.enter(|| std::net::TcpListener::bind(address)).unwrap().unwrap())
        .collect();
    for kind in [&["--icmp"][..], &["--udp", "33434"], &["--tcp", "443"], &["--tcp", "444"]] {
        let found = routers.rtt(&[&["10.9.0.1", "--to-each-hop", "-c", "3"], kind].concat());
        let hops = addresses(&found);
        let either = [["10.2.0.2".to_owned()], ["10.3.0.2".to_owned()]];
        assert!(hops.len() == 3 && either.iter().any(|one| hops[1] == one), "{kind:?}: {found}");
        assert_eq!(
            (&hops[0][..], &hops[2][..]),
            (&["10.1.0.2".to_owned()][..], &["10.9.0.1".to_owned()][..]),
            "{found}"
        );
        let result = &found["result"];
        assert_eq!(
            (result["destination_hop"].as_u64(), result["route_changes"].as_u64()),
            (Some(3), Some(0)),
            "{found}"
        );
        let stamps = &result["timestamps"];
        assert_eq!((&stamps["sent"], &stamps["received"]), (&"kernel".into(), &"kernel".into()), "{found}");
        for hop in result["hops"].as_array().unwrap() {
            assert_eq!((hop["sent"].as_u64(), hop["answered"].as_u64()), (Some(3), Some(3)), "{hop}");
            let rtt = hop["addresses"][0]["rtt"]["min_ns"].as_u64().unwrap();
            assert!((1..5_000_000).contains(&rtt), "{hop}");
        }
        let found = routers.rtt(&[&["fd09::1", "--to-each-hop", "-c", "2"], kind].concat());
        assert_eq!(addresses(&found), [["fd01::2"], ["fd02::2"], ["fd09::1"]], "{kind:?}: {found}");
    }
    // No connection came of it.
    for listener in listening {
        listener.set_nonblocking(true).unwrap();
        assert_eq!(listener.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    }
}

/// The near router drops what goes to the client's first address: only probes from the second one are answered.
#[test]
fn probes_leave_from_the_address_and_port_that_were_asked_for() {
    let Some(routers) = Routers::new() else { return };
    for (added, dropped) in [("10.1.0.9/24", "10.1.0.1/32"), ("fd01::9/64", "fd01::1/128")] {
        run(&routers.client, &format!("ip address add {added} dev l1"));
        run(&routers.near, &format!("ip route add blackhole {dropped}"));
    }
    let listening: Vec<_> = (["10.9.0.1:443", "[fd09::1]:443"].iter())
        .map(|address| routers.far.enter(|| std::net::TcpListener::bind(address)).unwrap().unwrap())
        .collect();
    for (host, first, second) in [("10.9.0.1", "10.1.0.1", "10.1.0.9"), ("fd09::1", "fd01::1", "fd01::9")] {
        for kind in [&["--icmp"][..], &["--tcp", "443"], &["--udp", "33434"]] {
            let answered = |own: &str| {
                let few = ["-c", "1", "--timeout", "500ms", "-B", own];
                routers.rtt(&[&[host], kind, &few].concat())["result"]["received"].as_u64()
            };
            assert_eq!((answered(first), answered(second)), (Some(0), Some(1)), "{host} {kind:?}");
            let hops = routers.rtt(&[&[host, "--to-each-hop", "-c", "1", "-B", second], kind].concat());
            assert_eq!(addresses(&hops).last().unwrap(), &[host], "{kind:?}: {hops}");
        }
    }
    for listener in &listening {
        // Connections of --tcp, without --to-each-hop.
        assert_eq!(listener.accept().unwrap().1.ip().to_string().rsplit([':', '.']).next(), Some("9"));
    }
    // A firewall that knows one port of the prober.
    let told = |arguments: &[&str]| {
        let output = routers.spawn(LONGHAUL, &[&["rtt", "10.9.0.1"], arguments].concat()).wait_with_output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let holder = routers.client.enter(|| std::net::UdpSocket::bind("10.1.0.9:40000")).unwrap().unwrap();
    let (code, said) = told(&["--udp", "33434", "-c", "1", "-B", "10.1.0.9", "--cport", "40000"]);
    assert!(code == Some(1) && said.contains("another program has UDP address 10.1.0.9:40000"), "{said}");
    drop(holder);
    let holder = routers.client.enter(|| std::net::TcpListener::bind("10.1.0.9:40000")).unwrap().unwrap();
    let (code, said) = told(&["--tcp", "443", "--to-each-hop", "-c", "1", "-B", "10.1.0.9", "--cport", "40000"]);
    assert!(code == Some(1) && said.contains("another program has TCP address 10.1.0.9:40000"), "{said}");
    drop(holder);
    for kind in [&["--udp", "33434"][..], &["--tcp", "443", "--to-each-hop"]] {
        let (code, said) = told(&[&["-c", "1", "-B", "10.1.0.9", "--cport", "40000"], kind].concat());
        assert_eq!(code, Some(0), "{kind:?}: {said}");
    }
    for (wrong, code, why) in [
        (&["--icmp", "--cport", "40000"][..], 2, "--cport 40000: ICMP echoes have no ports"),
        (&["--tcp", "443", "--cport", "40000"], 2, "each probe is a connection, which needs a port of its own"),
        (&["--icmp", "-B", "10.1.0.77"], 1, "this host has no address 10.1.0.77"),
        (&["--tcp", "443", "-B", "10.1.0.77"], 1, "this host has no address 10.1.0.77"),
        (&["--udp", "33434", "-B", "10.1.0.77"], 1, "this host has no address 10.1.0.77"),
    ] {
        let (found, said) = told(wrong);
        assert!(found == Some(code) && said.contains(why) && !said.contains("run as root"), "{wrong:?}: {said}");
    }
}

#[test]
fn a_user_without_rights_sees_the_hops_and_a_change_of_the_route_is_told() {
    let Some(routers) = Routers::new() else { return };
    run(&routers.near, "ip route replace 10.9.0.1 via 10.2.0.2");
    routers.client.enter(|| sysctl::write("net.ipv4.ping_group_range", "65534 65534")).unwrap().unwrap();
    let nobody = ["--reuid", "65534", "--regid", "65534", "--clear-groups", LONGHAUL, "rtt", "--json", "10.9.0.1"];
    let running = routers.spawn("setpriv", &[&nobody[..], &["--to-each-hop", "-t", "5s"]].concat());
    sleep(Duration::from_millis(2_500));
    run(&routers.near, "ip route replace 10.9.0.1 via 10.3.0.2");
    let found = result(&running.wait_with_output().unwrap());
    assert_eq!(addresses(&found), [vec!["10.1.0.2"], vec!["10.2.0.2", "10.3.0.2"], vec!["10.9.0.1"]], "{found}");
    let changes = &found["result"]["changes"];
    assert_eq!((changes.as_array().unwrap().len(), &changes[0]["hop"]), (1, &2.into()), "{found}");
}

/// The kernel's default lets no group use datagram sockets for ICMP.
#[test]
fn a_user_without_rights_is_told_which_socket_is_not_allowed() {
    let Some(routers) = Routers::new() else { return };
    routers.client.enter(|| sysctl::write("net.ipv4.ping_group_range", "1 0")).unwrap().unwrap();
    let nobody = ["--reuid", "65534", "--regid", "65534", "--clear-groups", LONGHAUL, "rtt", "--json"];
    for (kind, code, socket, remedy) in [
        (&["--icmp"][..], "no_echo_socket", "ICMP echo", "net.ipv4.ping_group_range"),
        (&["--icmp", "--to-each-hop"], "no_echo_socket", "ICMP echo", "net.ipv4.ping_group_range"),
        (&["--tcp", "443", "--to-each-hop"], "no_raw_socket", "socket(TCP, raw)", "run as root"),
    ] {
        for host in ["10.9.0.1", "fd09::1"] {
            let asked = [&nobody[..], &[host, "-c", "1"], kind].concat();
            let output = routers.spawn("setpriv", &asked).wait_with_output().unwrap();
            let error = &object(&output.stdout)["error"];
            let said = error["message"].as_str().unwrap();
            assert_eq!((output.status.code(), error["code"].as_str()), (Some(1), Some(code)), "{error}");
            assert!(said.contains(socket) && !said.contains("UDP"), "{error}");
            assert!(error["remedy"].as_str().unwrap().contains(remedy), "{error}");
        }
    }
}

#[test]
fn a_closed_port_answers_and_an_open_one_does_not() {
    let Some(routers) = Routers::new() else { return };
    for host in ["10.9.0.1", "fd09::1"] {
        let found = routers.rtt(&[host, "--udp", "33434", "-c", "4"]);
        let result = &found["result"];
        assert_eq!((result["kind"].as_str(), result["received"].as_u64()), (Some("closed_port"), Some(4)), "{found}");
        assert_eq!(result["timestamps"]["client"]["sent"], "kernel", "{found}");
        assert!(result["rtt"]["p50_ns"].as_u64().unwrap() < 5_000_000, "{found}");
    }
    let open = routers.far.enter(|| std::net::UdpSocket::bind("10.9.0.1:33434")).unwrap().unwrap();
    let found = routers.rtt(&["10.9.0.1", "--udp", "33434", "-c", "1", "--timeout", "500ms"]);
    assert_eq!(found["result"]["lost"], 1, "{found}");
    drop(open);
}
