//! `kill -9` of what holds a lab, or emulates, leaves nothing that the next `lab down` or `lab up` does not clear.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::{TestLab, longhaul, object};
use longhaul_kernel::capability::is_root_in_namespace;
use longhaul_kernel::link::{Netlink, VethEnd};
use longhaul_kernel::namespace::NetNamespace;
use longhaul_kernel::process::{Process, Signal};
use longhaul_testing::program::Program;
use longhaul_testing::waiting::until;
use serde_json::{Value, json};

fn unprivileged() -> bool {
    let skip = !is_root_in_namespace();
    if skip {
        longhaul_testing::no_judge!("needs CAP_SYS_ADMIN, CAP_NET_ADMIN and CAP_NET_RAW (run as root)");
    }
    skip
}

/// The network namespace of a process.
fn namespace_of(pid: u32) -> Option<u64> {
    Some(fs::metadata(format!("/proc/{pid}/ns/net")).ok()?.ino())
}

/// A network namespace. The kernel gives the inode of one that is gone to the next, and a cookie once.
#[derive(Clone, Copy)]
struct Namespace {
    inode: u64,
    cookie: u64,
}

impl Namespace {
    fn of(open: &NetNamespace) -> Self {
        Self { inode: open.inode().unwrap(), cookie: open.cookie().unwrap() }
    }

    /// Whether this file of `/proc` leads to it.
    fn is_at(self, path: &Path) -> bool {
        fs::read_link(path).is_ok_and(|target| target.as_os_str() == format!("net:[{}]", self.inode).as_str())
            && NetNamespace::open(path).is_ok_and(|open| open.cookie().is_ok_and(|cookie| cookie == self.cookie))
    }
}

/// Processes that are in a network namespace, or hold it open.
fn holders(namespace: Namespace) -> Vec<u32> {
    let holds = |pid: u32| {
        namespace.is_at(Path::new(&format!("/proc/{pid}/ns/net")))
            || fs::read_dir(format!("/proc/{pid}/fd"))
                .is_ok_and(|fds| fds.flatten().any(|fd| namespace.is_at(&fd.path())))
    };
    let pids = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|&pid| holds(pid)).collect()
}

fn kill(pid: u32) {
    let process = Process::open(pid).unwrap().expect("it runs");
    process.signal(Signal::KILL).unwrap();
    let patience = longhaul_units::Nanos::from_secs(10);
    assert!(process.wait_until_gone(longhaul_kernel::clock::monotonic() + patience).unwrap());
}

/// What `lab list` says of a lab.
fn listed(name: &str) -> Value {
    let list = object(&longhaul(&["lab", "list", "--json"]).stdout);
    list["result"]["labs"].as_array().unwrap().iter().find(|lab| lab["name"] == name).unwrap().clone()
}

fn pid_of(lab: &Value) -> u32 {
    lab["pid"].as_u64().unwrap() as u32
}

/// A lab with a program in it that does not end by itself and takes no notice of SIGTERM, whose holder was killed. Gives what
/// takes the lab down where the test fails, the program, and the namespaces of the hosts.
fn killed_lab(name: &str) -> (TestLab, Program, Vec<Namespace>) {
    let lab_to_end = TestLab { name: name.to_owned() };
    let up = longhaul(&["lab", "up", "lan", "--name", name]);
    assert!(up.status.success(), "{up:?}");
    let lab = listed(name);
    let holder = pid_of(&lab);
    let hosts = lab["hosts"].as_array().unwrap().iter();
    let namespaces: Vec<Namespace> =
        hosts.map(|host| Namespace::of(&NetNamespace::open(host["namespace"].as_str().unwrap()).unwrap())).collect();
    assert_eq!(namespaces.len(), 2);
    let command = ["lab", "exec", "server", "--name", name, "--", "sh", "-c", "trap '' TERM; exec sleep 1000"];
    let program = Command::new(env!("CARGO_BIN_EXE_longhaul")).args(command).stdin(Stdio::null()).spawn().unwrap();
    let program = Program(program);
    until("the program to run in the lab", || namespace_of(program.0.id()) == Some(namespaces[1].inode));
    until("the program to be itself", || {
        fs::read_to_string(format!("/proc/{}/comm", program.0.id())).is_ok_and(|comm| comm.trim() == "sleep")
    });
    kill(holder);
    assert!(!holders(namespaces[1]).is_empty(), "the program holds the namespace");
    // The interfaces went with the emulator's namespace.
    let server = NetNamespace::of_process(program.0.id()).unwrap();
    until("the interface to go", || server.enter(|| Netlink::open().unwrap().index_of("eth0").is_err()).unwrap());
    (lab_to_end, program, namespaces)
}

/// The program has ended, and nobody has such a namespace.
fn assert_gone(mut program: Program, namespaces: &[Namespace]) {
    until("the program to end", || program.0.try_wait().unwrap().is_some());
    for &namespace in namespaces {
        // Another test's longhaul may be looking at it.
        until("the namespace to be let go", || holders(namespace).is_empty());
    }
}

#[test]
fn down_clears_what_a_killed_lab_left() {
    if unprivileged() {
        return;
    }
    let name = format!("killed-down-{}", std::process::id());
    let (_lab, program, namespaces) = killed_lab(&name);
    let down = longhaul(&["lab", "down", "--name", &name, "--json"]);
    assert!(down.status.success(), "{down:?}");
    assert!(String::from_utf8_lossy(&down.stderr).contains(&name), "{down:?}");
    let result = &object(&down.stdout)["result"];
    assert_eq!((&result["labs"], &result["cleared"]), (&json!([]), &json!([name])), "{down:?}");
    assert_gone(program, &namespaces);
    let again = longhaul(&["lab", "down", "--name", &name]);
    assert_eq!(again.status.code(), Some(1), "there is nothing left: {again:?}");
}

#[test]
fn up_clears_what_a_killed_lab_left() {
    if unprivileged() {
        return;
    }
    let name = format!("killed-up-{}", std::process::id());
    let (_lab, program, namespaces) = killed_lab(&name);
    let up = longhaul(&["lab", "up", "lan", "--name", &name]);
    assert!(up.status.success(), "{up:?}");
    assert_gone(program, &namespaces);
    let ping = longhaul(&["lab", "exec", "client", "--name", &name, "--", "ping", "-c", "1", "server"]);
    assert!(ping.status.success(), "{ping:?}");
    assert!(longhaul(&["lab", "down", "--name", &name]).status.success());
}

/// The programs of a lab that runs are not taken for a killed one's.
#[test]
fn what_runs_in_a_living_lab_stays() {
    if unprivileged() {
        return;
    }
    let names = [0, 1].map(|i| format!("living-{i}-{}", std::process::id()));
    let _labs = names.clone().map(|name| TestLab { name });
    let up = longhaul(&["lab", "up", "lan", "--name", &names[0]]);
    assert!(up.status.success(), "{up:?}");
    let sleep_there = ["lab", "exec", "client", "--name", &names[0], "--", "sleep", "1000"];
    let mut program = Program(Command::new(env!("CARGO_BIN_EXE_longhaul")).args(sleep_there).spawn().unwrap());
    until("the program to run", || {
        fs::read_to_string(format!("/proc/{}/comm", program.0.id())).is_ok_and(|comm| comm.trim() == "sleep")
    });
    assert!(longhaul(&["lab", "up", "lan", "--name", &names[1]]).status.success());
    assert!(longhaul(&["lab", "down", "--name", &names[1]]).status.success());
    assert!(program.0.try_wait().unwrap().is_none(), "it was ended with another lab");
    // Its own lab ends it.
    assert!(longhaul(&["lab", "down", "--name", &names[0]]).status.success());
    until("the program to end", || program.0.try_wait().unwrap().is_some());
}

/// `emulate` in a namespace with two interfaces, killed: they are as before, and it can start again.
#[test]
fn a_killed_emulator_leaves_its_interfaces_as_they_were() {
    if unprivileged() {
        return;
    }
    let [middle, left, right] = [0; 3].map(|_| NetNamespace::create().unwrap());
    middle
        .enter(|| {
            let mut netlink = Netlink::open().unwrap();
            for (name, host) in [("left", &left), ("right", &right)] {
                let near = VethEnd { name, namespace: None, mtu_bytes: None, mac: None };
                let far = VethEnd { name: "eth0", namespace: Some(host), mtu_bytes: None, mac: None };
                netlink.create_veth(&near, &far).unwrap();
                let index = netlink.index_of(name).unwrap();
                netlink.set_up(index, true).unwrap();
            }
        })
        .unwrap();
    let promiscuous = || {
        let ask = || ["left", "right"].map(|name| Netlink::open().unwrap().link_by_name(name).unwrap().promiscuous);
        middle.enter(ask).unwrap()
    };
    let packet_sockets =
        || middle.enter(|| fs::read_to_string("/proc/thread-self/net/packet").unwrap().lines().count() - 1).unwrap();
    assert_eq!((promiscuous(), packet_sockets()), ([false, false], 0));
    for _ in 0..2 {
        let emulate = || {
            let arguments = ["emulate", "--left", "left", "--right", "right", "--path", "lan"];
            let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
            command.args(arguments).stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
        };
        let mut program = Program(middle.enter(emulate).unwrap());
        until("it to take its interfaces", || promiscuous() == [true, true]);
        kill(program.0.id());
        program.0.wait().unwrap();
        until("the kernel to close its sockets", || packet_sockets() == 0);
        assert_eq!(promiscuous(), [false, false]);
    }
    let namespace = Namespace::of(&middle);
    until("nobody but this test to hold the namespace", || holders(namespace) == [std::process::id()]);
}
