//! `longhaul cc`: controls that any user selects in any network namespace, that lose packets and go on, and that leave nothing.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Stdio};

use crate::common::captures::missing;
use crate::common::{TestLab, longhaul, object, printed};
use longhaul_bpf::support::has_bpf_fs;
use longhaul_congestion::Algorithm;
use longhaul_kernel::capability::is_root_in_namespace;
use longhaul_kernel::link::Netlink;
use longhaul_kernel::namespace::NetNamespace;
use longhaul_testing::program::Program;
use longhaul_testing::waiting::until;
use nix::sys::socket::{getsockopt, setsockopt, sockopt};
use serde_json::Value;

/// Whether controls cannot be loaded here; says why.
fn unsupported() -> bool {
    if !has_bpf_fs() {
        longhaul_testing::no_judge!("no BPF file system");
        return true;
    }
    let list = object(&longhaul(&["cc", "list", "--json"]).stdout);
    let why = if is_root_in_namespace() { list["result"]["cannot_load_because"].as_str() } else { Some("run as root") };
    why.inspect(|why| longhaul_testing::skipped!("{why}")).is_some()
}

/// A name in the kernel that no other test has.
fn own_name(letter: &str) -> String {
    format!("lt{}_{letter}", std::process::id())
}

/// A control that goes with the test.
struct Loaded(String);

impl Loaded {
    fn new(algorithm: &str, name: String) -> Self {
        let output = longhaul(&["cc", "load", algorithm, "--as", &name]);
        assert!(output.status.success(), "{output:?}");
        Self(name)
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        longhaul(&["cc", "unload", &self.0]);
    }
}

fn available() -> Vec<String> {
    let text = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap();
    text.split_whitespace().map(str::to_owned).collect()
}

/// iperf3 of an ordinary user in a lab, with each control, on a clean path and on one that loses each fiftieth packet.
#[test]
fn an_ordinary_user_selects_it_in_a_lab() {
    if unsupported() {
        return;
    }
    let Some(lab) = TestLab::up("cc", "lan") else { return };
    let exec = |host: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
        command.args(["lab", "exec", host, "--name", &lab.name, "--"]);
        command
    };
    let mut server = exec("server").args(["iperf3", "-s", "--forceflush"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let server = Program(server);
    let controls: Vec<_> = Algorithm::ALL
        .into_iter()
        .zip('a'..)
        .map(|(algorithm, letter)| Loaded::new(algorithm.name(), own_name(&format!("x{letter}"))))
        .collect();
    for (loss, least) in [("none", 32 << 20), ("every(50)", 1 << 20)] {
        assert!(longhaul(&["lab", "set", "--name", &lab.name, &format!("forward.loss={loss}")]).status.success());
        for (control, algorithm) in controls.iter().zip(Algorithm::ALL) {
            // It listens anew for each test.
            assert!(lines.any(|line| line.unwrap().contains("listening")), "iperf3 -s");
            let nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
            let output = exec("client")
                .args(nobody)
                .args(["iperf3", "-c", "server", "-J", "-t", "1", "-C", &control.0])
                .output()
                .unwrap();
            let result: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
            let end = &result["end"];
            assert_eq!(end["sender_tcp_congestion"], control.0.as_str(), "{algorithm}: {output:?}");
            let received = &end["sum_received"];
            assert!(received["bytes"].as_u64() >= Some(least), "{algorithm}: {end:#}");
            let retransmits = end["sum_sent"]["retransmits"].as_u64().unwrap();
            assert!(loss == "none" || retransmits > 5, "{algorithm}: {retransmits} retransmissions");
        }
    }
    drop((controls, server));
}

/// A namespace of this test alone, with its loopback up, and a connection in it that has `control`.
fn connection(namespace: &NetNamespace, control: &str) -> (TcpStream, TcpStream) {
    namespace
        .enter(|| {
            let mut netlink = Netlink::open().unwrap();
            let loopback = netlink.index_of("lo").unwrap();
            netlink.set_up(loopback, true).unwrap();
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            setsockopt(&near, sockopt::TcpCongestion, &control.into()).unwrap();
            let (far, _) = listener.accept().unwrap();
            (near, far)
        })
        .unwrap()
}

#[test]
fn sockets_that_use_it_are_told_and_go_on() {
    if unsupported() {
        return;
    }
    let name = own_name("u");
    let control = Loaded::new("illinois", name.clone());
    let namespace = NetNamespace::create().unwrap();
    let (mut near, mut far) = connection(&namespace, &name);
    let list = object(&longhaul(&["cc", "list", "--json"]).stdout);
    let row = list["result"]["controls"].as_array().unwrap().iter().find(|row| row["name"] == name.as_str()).unwrap();
    assert_eq!((&row["sockets"], &row["kept"], &row["ours"]), (&1.into(), &true.into(), &true.into()), "{list:#}");

    let output = longhaul(&["cc", "unload", &name, "--json"]);
    assert!(output.status.success(), "{output:?}");
    let result = object(&output.stdout);
    assert_eq!(result["result"]["unloaded"][0]["sockets"], 1, "{result:#}");
    assert_eq!(result["caveats"][0]["code"], "still_in_use", "{result:#}");
    assert!(!available().contains(&name));
    // It is gone for others, and still carries this flow.
    let payload = vec![7; 100_000];
    near.write_all(&payload).unwrap();
    let mut received = vec![0; payload.len()];
    far.read_exact(&mut received).unwrap();
    assert!(received == payload);
    assert_eq!(getsockopt(&near, sockopt::TcpCongestion).unwrap().to_str().unwrap().trim_end_matches('\0'), name);
    let (other, _far) = connection(&namespace, "reno");
    assert!(setsockopt(&other, sockopt::TcpCongestion, &name.as_str().into()).is_err());
    drop(control);
}

/// Each user can have more network namespaces than a command may have files open.
#[test]
fn no_number_of_namespaces_hides_sockets() {
    if !is_root_in_namespace() {
        longhaul_testing::no_judge!("needs root, to look into network namespaces");
        return;
    }
    if missing("prlimit") {
        return;
    }
    let _held: Vec<_> = (0..100).map(|_| NetNamespace::create().unwrap()).collect();
    let list = ["--nofile=64:64", env!("CARGO_BIN_EXE_longhaul"), "cc", "list", "--json"];
    let list = object(&Command::new("prlimit").args(list).output().unwrap().stdout);
    assert!(list["result"]["namespaces"].as_u64() > Some(100), "{list:#}");
}

#[test]
fn held_by_a_process_that_is_killed_it_leaves_nothing() {
    if unsupported() {
        return;
    }
    let name = own_name("k");
    // `cat` ends with this test's end of the pipe.
    let mut holder = Command::new(env!("CARGO_BIN_EXE_longhaul"))
        .args(["cc", "load", "vegas", "--as", &name, "--", "cat"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    until("the control", || available().contains(&name));
    let kept = longhaul(&["cc", "unload", &name]);
    assert_eq!(kept.status.code(), Some(1), "it is the process's: {kept:?}");
    holder.kill().unwrap();
    holder.wait().unwrap();
    until("the control to go", || !available().contains(&name));
}

#[test]
fn with_a_program_it_goes_when_that_ends() {
    if unsupported() {
        return;
    }
    let name = own_name("p");
    let shown = printed(&[
        "cc",
        "load",
        "htcp",
        "--as",
        &name,
        "--",
        "cat",
        "/proc/sys/net/ipv4/tcp_allowed_congestion_control",
    ]);
    assert!(shown.split_whitespace().any(|allowed| allowed == name), "{shown}");
    assert!(!available().contains(&name));
    let output = longhaul(&["cc", "load", "htcp", "--as", &name, "--", "sh", "-c", "exit 7"]);
    assert_eq!(output.status.code(), Some(7), "the program's own");
}

/// A new connection to `address` in `namespace`, with the control that it got.
fn control_of_new(namespace: &NetNamespace, address: &str) -> String {
    let control = namespace.enter(|| {
        let listener = TcpListener::bind((address, 0)).unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        getsockopt(&near, sockopt::TcpCongestion).unwrap()
    });
    control.unwrap().to_str().unwrap().trim_end_matches('\0').to_owned()
}

/// A namespace of this test alone that has two addresses beside those of its loopback.
fn with_addresses() -> NetNamespace {
    let namespace = NetNamespace::create().unwrap();
    namespace
        .enter(|| {
            for arguments in [
                "link set lo up",
                "route add local 203.0.113.0/24 dev lo",
                // That of the test which selects for every program of this machine.
                "route add local 198.51.100.0/24 dev lo",
                "address add 2001:db8::1/128 dev lo nodad",
                "address add fd00::1/128 dev lo nodad",
            ] {
                assert!(Command::new("ip").args(arguments.split(' ')).status().unwrap().success(), "ip {arguments}");
            }
            // The kernel makes the routes of IPv6 addresses a moment later.
            let is_reached = |address| UdpSocket::bind("[::]:0").unwrap().connect((address, 9)).is_ok();
            until("the addresses", || ["2001:db8::1", "fd00::1"].into_iter().all(is_reached));
        })
        .unwrap();
    namespace
}

/// `ip route … congctl`: what the page on congestion controls tells.
#[test]
fn a_route_selects_it() {
    if unsupported() {
        return;
    }
    let name = own_name("r");
    let control = Loaded::new("htcp", name.clone());
    let namespace = with_addresses();
    let before = control_of_new(&namespace, "203.0.113.1");
    let route = ["route", "replace", "local", "203.0.113.0/24", "dev", "lo", "congctl", &name];
    let set = namespace.enter(|| Command::new("ip").args(route).status().unwrap().success()).unwrap();
    assert!(set);
    assert_eq!(control_of_new(&namespace, "203.0.113.1"), name);
    assert_eq!(control_of_new(&namespace, "127.0.0.1"), before);
    drop(namespace);
    drop(control);
}

/// For destinations, of every program, in every namespace, and until the command ends, even if it is killed.
#[test]
fn destinations_select_it_while_the_command_runs() {
    if unsupported() {
        return;
    }
    let name = own_name("d");
    let _control = Loaded::new("scalable", name.clone());
    let namespace = with_addresses();
    let default = control_of_new(&namespace, "198.51.100.1");
    for end in ["-INT", "-KILL"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
        command.args(["cc", "use", &name, "--to", "198.51.100.0/25", "--to", "2001:db8::/32"]);
        let mut holder = Program(command.stdout(Stdio::piped()).spawn().unwrap());
        let mut lines = BufReader::new(holder.0.stdout.take().unwrap()).lines();
        let said = lines.next().unwrap().unwrap();
        assert!(said.contains(&name) && said.contains("198.51.100.0/25, 2001:db8::/32"), "{said}");
        for (address, control) in [
            ("198.51.100.1", &name),
            ("198.51.100.128", &default),
            ("127.0.0.1", &default),
            ("2001:db8::1", &name),
            ("fd00::1", &default),
        ] {
            assert_eq!(&control_of_new(&namespace, address), control, "{address}");
        }
        assert!(Command::new("kill").args([end, &holder.0.id().to_string()]).status().unwrap().success());
        let status = holder.0.wait().unwrap();
        if end == "-INT" {
            // Each connection has two ends, and both have the address.
            assert_eq!(lines.next().unwrap().unwrap(), format!("4 connections used {name}"));
            assert!(status.success());
        }
        until("the selection to go", || control_of_new(&namespace, "198.51.100.1") == default);
    }
}

/// For one program: `ss` sees the control at its connection, and at no other; the program ends with its own exit code, and no cgroup stays.
#[test]
fn one_program_uses_it() {
    if unsupported() {
        return;
    }
    let name = own_name("o");
    let _control = Loaded::new("illinois", name.clone());
    let namespace = with_addresses();
    let default = control_of_new(&namespace, "203.0.113.1");
    let (seen, code, group) = namespace
        .enter(|| {
            let listener = TcpListener::bind("203.0.113.1:0").unwrap();
            let port = listener.local_addr().unwrap().port();
            let script = format!(
                "exec 3<>/dev/tcp/203.0.113.1/{port}; ss -tinH state established dport = :{port}; grep ^0:: /proc/self/cgroup; exit 7"
            );
            let output = Command::new(env!("CARGO_BIN_EXE_longhaul"))
                .args(["cc", "use", &name, "--", "bash", "-c", &script])
                .output()
                .unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            let group = text.lines().last().unwrap_or_default().trim_start_matches("0::").to_owned();
            (text, output.status.code(), group)
        })
        .unwrap();
    assert!(seen.split_whitespace().any(|word| word == name), "{seen}");
    assert_eq!(code, Some(7), "{seen}");
    assert!(group.contains("longhaul-cc-"), "{group}");
    let root = longhaul_kernel::cgroup::root().unwrap();
    assert!(!root.join(group.trim_start_matches('/')).exists(), "{group}");
    assert_eq!(control_of_new(&namespace, "203.0.113.1"), default);
    let nothing = longhaul(&["cc", "use", &name]);
    assert_eq!(nothing.status.code(), Some(2), "{nothing:?}");
}

#[test]
fn what_is_wrong_is_said_in_a_line() {
    if unsupported() {
        return;
    }
    let name = own_name("w");
    let _control = Loaded::new("bic", name.clone());
    let without =
        ["--bounding-set", "-bpf,-perfmon,-sys_admin", env!("CARGO_BIN_EXE_longhaul"), "cc", "load", "bic", "--json"];
    let denied = Command::new("setpriv").args(without).output().unwrap();
    for (output, exit, code, named) in [
        (longhaul(&["cc", "load", "bic", "--as", &name, "--json"]), 1, "already_there", name.as_str()),
        (longhaul(&["cc", "unload", "lt_none", "--json"]), 1, "not_loaded", "lt_none"),
        (longhaul(&["cc", "load", "renoo", "--json"]), 2, "usage", "scalable, bic"),
        (longhaul(&["cc", "load", "bic", "--set", "beta=1", "--json"]), 2, "usage", "keep_1024"),
        (longhaul(&["cc", "load", "fast", "--variant", "linux", "--json"]), 2, "usage", "no Linux variant"),
        (longhaul(&["cc", "load", "bic", "vegas", "--as", "x", "--json"]), 2, "usage", "one control at a time"),
        (denied, 1, "denied", "CAP_BPF and CAP_PERFMON"),
    ] {
        let text = String::from_utf8(output.stderr.clone()).unwrap();
        assert_eq!(output.status.code(), Some(exit), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
        let error = object(&output.stdout);
        assert_eq!(error["error"]["code"], code, "{error}");
        assert!(text.contains(named), "{text}");
    }
}

/// Without the kernel's types nothing in BPF can be loaded: an environment where they are not to be seen.
#[test]
fn a_kernel_without_btf_is_told() {
    if unsupported() {
        return;
    }
    let without = |arguments: &[&str]| {
        let hide = "mount -t tmpfs none /sys/kernel/btf && exec \"$@\"";
        let program = [&["--mount", "sh", "-c", hide, "sh", env!("CARGO_BIN_EXE_longhaul")], arguments].concat();
        Command::new("unshare").args(program).output().unwrap()
    };
    let load = without(&["cc", "load", "scalable", "--as", &own_name("b"), "--json"]);
    assert_eq!(load.status.code(), Some(1), "{load:?}");
    let error = object(&load.stdout);
    assert_eq!(error["error"]["code"], "no_btf", "{error}");
    assert!(error["error"]["message"].as_str().unwrap().contains("CONFIG_DEBUG_INFO_BTF"), "{error}");
    assert_eq!(String::from_utf8_lossy(&load.stderr).lines().count(), 1, "{load:?}");
    assert!(!available().contains(&own_name("b")));
    let list = object(&without(&["cc", "list", "--json"]).stdout);
    assert!(list["result"]["cannot_load_because"].as_str().is_some_and(|why| why.contains("BTF")), "{list:#}");
}

/// DataTAG's table, as it was printed.
#[test]
fn the_table_is_datatags() {
    let table = printed(&["cc", "table"]);
    for row in [
        ["10Mbit", "170", "17 s", "5.4e-5"],
        ["100Mbit", "1,700", "2 min 50 s", "5.4e-7"],
        ["1Gbit", "17,000", "28 min", "5.4e-9"],
        ["10Gbit", "170,000", "4 h 43 min", "5.4e-11"],
    ] {
        let wanted = format!("reno {}", row.join(" "));
        let found = table.lines().any(|line| line.split_whitespace().collect::<Vec<_>>().join(" ") == wanted);
        assert!(found, "{wanted}\n{table}");
    }
}
