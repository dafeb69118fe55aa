//! `kill -9` between any two settings: what is left can be undone, and all is as before then.

use std::collections::BTreeMap;
use std::fs;
use std::net::ToSocketAddrs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};

use longhaul_kernel::capability::is_root_in_namespace;
use longhaul_kernel::guard::Changed;
use longhaul_kernel::link::{Netlink, VethEnd};
use longhaul_kernel::namespace::NetNamespace;
use longhaul_kernel::sysctl;
use longhaul_tune::{
    HostSetting, HostState, Outcome, Plan, Role, RoutePart, Store, Target, Terms, TuneError, apply, confirm, status,
    undo, undo_unconfirmed,
};
use rustix::process::{Signal, getpid, kill_process};

/// The child's orders.
const WORK: &str = "LONGHAUL_TUNE_TEST";
const FOLDER: &str = "LONGHAUL_TUNE_TEST_FOLDER";

/// A folder that ends with this.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("longhaul-tune-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn store(folder: &Path) -> Store {
    Store::open(&folder.join("state")).unwrap().with_etc(&folder.join("etc"))
}

/// Everything of the namespace that a plan here changes, and more.
fn settings() -> BTreeMap<String, String> {
    let mut all: BTreeMap<String, String> = HostState::take(Some("v0"), None).sysctls;
    let link = HostState::take(Some("v0"), None).links.remove(0);
    all.insert("v0".into(), format!("{link:?}"));
    all
}

fn plan() -> Plan {
    let target = Target { rate_bps: 10_000_000_000, rtt_ns: 150_000_000, role: Role::Both, causes: None };
    let mut host = HostState::take(Some("v0"), None);
    // As where the host itself is tuned.
    host.sysctls.remove("net.core.default_qdisc");
    Plan::make(&host, &target)
}

/// A namespace with a setting of each kind to change.
fn namespace() -> Option<NetNamespace> {
    if !is_root_in_namespace() {
        longhaul_testing::no_judge!("run as root");
        return None;
    }
    let namespace = NetNamespace::create().unwrap();
    let make = || {
        let mut netlink = Netlink::open().unwrap();
        let end = |name| VethEnd { name, namespace: None, mtu_bytes: None, mac: None };
        netlink.create_veth(&end("v0"), &end("v1")).unwrap();
        for name in ["v0", "v1"] {
            let index = netlink.index_of(name).unwrap();
            netlink.set_up(index, true).unwrap();
        }
        longhaul_kernel::ethtool::set_features("v0", &[("tx-tcp-segmentation", false), ("rx-gro", false)]).unwrap();
        for (key, value) in [("tcp_window_scaling", "0"), ("tcp_sack", "0"), ("tcp_moderate_rcvbuf", "0")] {
            sysctl::write(&format!("net.ipv4.{key}"), value).unwrap();
        }
        sysctl::write("net.ipv4.tcp_rmem", "4096 131072 6291456").unwrap();
    };
    namespace.enter(make).unwrap();
    Some(namespace)
}

/// Has another process do `work` in the namespace and kill itself at its step `step`.
fn child(namespace: &NetNamespace, work: &str, step: usize, folder: &Path) -> ExitStatus {
    let run = || {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "works_and_dies", "--ignored"])
            .env(WORK, format!("{work} {step}"))
            .env(FOLDER, folder);
        command.output().unwrap().status
    };
    namespace.enter(run).unwrap()
}

#[test]
#[ignore = "it is the process that the other tests kill"]
fn works_and_dies() {
    let orders = std::env::var(WORK).unwrap();
    let (work, last) = orders.split_once(' ').unwrap();
    let (mut at, last) = (0, last.parse::<usize>().unwrap());
    let mut step = || {
        if at == last {
            kill_process(getpid(), Signal::KILL).unwrap();
        }
        at += 1;
    };
    let store = store(Path::new(&std::env::var(FOLDER).unwrap()));
    if work == "undo" {
        undo(&store, &mut step).unwrap();
    } else {
        let terms = Terms { unless_confirmed: work == "try", persist: false };
        apply(&store, plan().possible(), terms, &mut step).unwrap();
    }
}

#[test]
fn killed_at_each_step_it_can_be_undone() {
    let Some(namespace) = namespace() else { return };
    let folder = Folder::new("steps");
    let before = namespace.enter(settings).unwrap();
    let mut steps = 0;
    loop {
        let ended = child(&namespace, "apply", steps, &folder.0);
        let is_over = ended.success();
        assert!(is_over || ended.signal() == Some(9), "{ended}");
        let (partial, undone, after) = namespace
            .enter(|| {
                let store = store(&folder.0);
                let partial = status(&store).unwrap().unwrap().is_partial;
                (partial, undo(&store, &mut || {}).unwrap(), settings())
            })
            .unwrap();
        assert_eq!(partial, !is_over, "at step {steps}");
        assert_eq!(after, before, "killed at step {steps}");
        let changed = undone.iter().filter(|one| one.outcome == Outcome::PutBack).count();
        // The first step is before the first change.
        assert_eq!(changed, if is_over { steps - 1 } else { steps }, "{undone:#?}");
        assert!(fs::read_dir(folder.0.join("state")).unwrap().next().is_none());
        if is_over {
            break;
        }
        steps += 1;
    }
    // Buffers, three options of the SYN, idle restart, metrics, two offloads.
    assert!(steps >= 8, "{steps}");
    // The same for what puts back.
    for step in 0..steps - 1 {
        assert!(child(&namespace, "apply", usize::MAX, &folder.0).success());
        assert_eq!(child(&namespace, "undo", step, &folder.0).signal(), Some(9), "at step {step}");
        namespace
            .enter(|| {
                undo(&store(&folder.0), &mut || {}).unwrap();
                assert_eq!(settings(), before, "killed at step {step} of undo");
            })
            .unwrap();
    }
}

#[test]
fn what_others_changed_meanwhile_is_left() {
    let Some(namespace) = namespace() else { return };
    let folder = Folder::new("others");
    let test = || {
        let (store, plan) = (store(&folder.0), plan());
        let terms = Terms { unless_confirmed: false, persist: false };
        apply(&store, plan.possible(), terms, &mut || {}).unwrap();
        sysctl::write("net.ipv4.tcp_wmem", "4096 16384 7000000").unwrap();
        // Somebody put it back by hand.
        sysctl::write("net.ipv4.tcp_sack", "0").unwrap();
        let undone = undo(&store, &mut || {}).unwrap();
        let of = |key: &str| {
            undone.iter().find(|one| one.place.as_ref().is_some_and(|place| place.to_string() == key)).unwrap().clone()
        };
        let wmem = of("net.ipv4.tcp_wmem");
        assert_eq!((wmem.outcome, wmem.now.as_deref()), (Outcome::Left, Some("4096 16384 7000000")));
        assert_eq!(of("net.ipv4.tcp_sack").outcome, Outcome::WasBefore);
        assert_eq!(of("net.ipv4.tcp_rmem").outcome, Outcome::PutBack);
        assert_eq!(sysctl::read("net.ipv4.tcp_wmem").unwrap(), "4096\t16384\t7000000");
        assert!(matches!(undo(&store, &mut || {}), Err(TuneError::Nothing)));
    };
    namespace.enter(test).unwrap();
}

#[test]
fn who_gives_up_between_two_settings_changes_no_more() {
    static GIVEN_UP: AtomicBool = AtomicBool::new(false);
    let Some(namespace) = namespace() else { return };
    let folder = Folder::new("given-up");
    let test = || {
        let store = store(&folder.0).with_give_up(|| GIVEN_UP.load(Ordering::Relaxed));
        let (plan, before) = (plan(), settings());
        let mut steps = 0;
        // The first one is before the first change.
        let mut step = || {
            steps += 1;
            GIVEN_UP.store(steps == 3, Ordering::Relaxed);
        };
        let terms = Terms { unless_confirmed: true, persist: false };
        let refused = apply(&store, plan.possible(), terms, &mut step).unwrap();
        assert_eq!(refused.len(), plan.possible().count() - 2, "{refused:?}");
        assert!(refused.iter().all(|one| one.why.contains("asked to end")), "{refused:?}");
        let changed = status(&store).unwrap().unwrap();
        assert_eq!((changed.settings.len(), changed.is_partial, changed.confirmed), (2, false, false));
        undo_unconfirmed(&store, std::process::id()).unwrap().unwrap();
        assert_eq!(settings(), before);
        assert!(matches!(undo(&store, &mut || {}), Err(TuneError::Nothing)));
    };
    namespace.enter(test).unwrap();
}

/// What cannot be put back keeps nothing else from it, and is remembered for another try.
#[test]
fn what_cannot_be_put_back_is_told_and_the_rest_is_put_back() {
    let Some(namespace) = namespace() else { return };
    let folder = Folder::new("partly");
    let test = || {
        let store = store(&folder.0);
        sysctl::write("net.ipv4.tcp_wmem", "4096 16384 4194304").unwrap();
        let (plan, before) = (plan(), settings());
        let terms = Terms { unless_confirmed: true, persist: false };
        apply(&store, plan.possible(), terms, &mut || {}).unwrap();
        // The kernel takes no such value.
        let text = fs::read_to_string(store.file()).unwrap();
        fs::write(store.file(), text.replace("\"4096 16384 4194304\"", "\"none\"")).unwrap();
        let all = undo_unconfirmed(&store, std::process::id()).unwrap().unwrap();
        for one in &all {
            let is_wmem = one.place == Some(HostSetting::sysctl("net.ipv4.tcp_wmem"));
            let wanted = if is_wmem { Outcome::Failed } else { Outcome::PutBack };
            assert_eq!((&one.outcome, one.why.is_some()), (&wanted, is_wmem), "{one:?}");
        }
        let left = status(&store).unwrap().unwrap();
        assert_eq!((left.pid, left.confirmed, left.is_partial, left.settings.len()), (0, true, false, 1));
        let text = fs::read_to_string(store.file()).unwrap();
        fs::write(store.file(), text.replace("\"none\"", "\"4096 16384 4194304\"")).unwrap();
        undo(&store, &mut || {}).unwrap();
        assert_eq!(settings(), before);
        assert!(matches!(undo(&store, &mut || {}), Err(TuneError::Nothing)));
    };
    namespace.enter(test).unwrap();
}

/// Its settings are gone with it: there is nothing to put back, and nothing to remember.
#[test]
fn an_interface_that_is_gone_keeps_no_state() {
    let Some(namespace) = namespace() else { return };
    let folder = Folder::new("gone");
    let test = || {
        let store = store(&folder.0);
        apply(&store, plan().possible(), Terms { unless_confirmed: false, persist: false }, &mut || {}).unwrap();
        assert!(Command::new("ip").args(["link", "del", "v0"]).status().unwrap().success());
        for one in undo(&store, &mut || {}).unwrap() {
            let wanted = match one.place {
                Some(HostSetting::Sysctl { .. }) => (Outcome::PutBack, None),
                _ => (Outcome::Left, Some("no such interface")),
            };
            assert_eq!((one.outcome.clone(), one.now.as_deref().filter(|_| wanted.1.is_some())), wanted, "{one:?}");
        }
        assert!(matches!(undo(&store, &mut || {}), Err(TuneError::Nothing)));
    };
    namespace.enter(test).unwrap();
}

#[test]
fn what_nobody_confirms_goes_back_and_what_is_confirmed_stays() {
    let Some(namespace) = namespace() else { return };
    let folder = Folder::new("confirmed");
    let before = namespace.enter(settings).unwrap();
    let own = std::process::id();
    let test = || {
        let (store, plan) = (store(&folder.0), plan());
        let terms = Terms { unless_confirmed: true, persist: false };
        apply(&store, plan.possible(), terms, &mut || {}).unwrap();
        assert!(!status(&store).unwrap().unwrap().confirmed);
        assert!(matches!(apply(&store, plan.possible(), terms, &mut || {}), Err(TuneError::Pending)));
        assert!(undo_unconfirmed(&store, own + 1).unwrap().is_none(), "another process's");
        assert!(undo_unconfirmed(&store, own).unwrap().is_some());
        assert_eq!(settings(), before);
        apply(&store, plan.possible(), terms, &mut || {}).unwrap();
        confirm(&store).unwrap();
        assert!(undo_unconfirmed(&store, own).unwrap().is_none(), "it is confirmed");
        assert!(status(&store).unwrap().unwrap().settings.len() >= 8);
        // A second plan on top: what was before both comes back.
        let target = Target { rate_bps: 40_000_000_000, rtt_ns: 150_000_000, role: Role::Receiver, causes: None };
        let more = Plan::make(&HostState::take(Some("v0"), None), &target);
        assert_eq!(more.possible().count(), 1, "{more:#?}");
        apply(&store, more.possible(), Terms { unless_confirmed: false, persist: false }, &mut || {}).unwrap();
        undo(&store, &mut || {}).unwrap();
        assert_eq!(settings(), before);
    };
    namespace.enter(test).unwrap();
}

#[test]
fn a_state_that_others_wrote_is_not_obeyed() {
    let Some(namespace) = namespace() else { return };
    let folder = Folder::new("written");
    let test = || {
        let store = store(&folder.0);
        apply(&store, plan().possible(), Terms { unless_confirmed: false, persist: false }, &mut || {}).unwrap();
        let text = fs::read_to_string(store.file()).unwrap();
        fs::write(store.file(), text.replace("net.ipv4.tcp_sack", "kernel.core_pattern")).unwrap();
        let refused = undo(&store, &mut || {}).unwrap_err();
        assert!(refused.to_string().contains("kernel.core_pattern is nothing that longhaul sets"), "{refused}");
        fs::write(store.file(), text).unwrap();
        fs::set_permissions(store.folder(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        let refused = undo(&store, &mut || {}).unwrap_err();
        assert!(refused.to_string().contains("others may write"), "{refused}");
    };
    namespace.enter(test).unwrap();
}

/// A route that a person set up gets a first window and a congestion control, keeps the rest, and is as it was after an undo.
#[test]
fn a_route_is_changed_in_its_place_and_put_back() {
    let Some(namespace) = namespace() else { return };
    let folder = Folder::new("route");
    let ip = |words: &str| {
        let output = Command::new("ip").args(words.split(' ')).output().unwrap();
        assert!(output.status.success(), "{words}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let test = || {
        ip("addr add 10.9.0.1/24 dev v0");
        ip("route add 192.0.2.0/24 via 10.9.0.2 metric 7 mtu 1400 window 131072 initcwnd 12");
        let before = ip("route show 192.0.2.0/24");
        let store = store(&folder.0);
        let host = HostState::take(Some("v0"), Some(([192, 0, 2, 77], 0).into()));
        let route = host.route.clone().unwrap();
        assert_eq!(
            (route.network.as_str(), route.first_window.as_str(), &route.not_kept),
            ("192.0.2.0/24", "12", &None)
        );
        let change = |part, now: &str, then: &str| longhaul_tune::Change {
            place: HostSetting::Route { network: route.network.clone(), part },
            now: now.into(),
            then: then.into(),
            why: String::new(),
            source: String::new(),
            memory_bytes: None,
            touches: String::new(),
            blocked: None,
        };
        let changes = [
            change(RoutePart::FirstWindow, "12", "32"),
            change(RoutePart::CongestionControl, "default", "reno"),
            change(RoutePart::ReceiveWindow, "131072", "default"),
            // The kernel has none of that name.
            change(RoutePart::CongestionControl, "default", "no_such_control"),
        ];
        let terms = Terms { unless_confirmed: false, persist: false };
        apply(&store, changes[..3].iter(), terms, &mut || {}).unwrap();
        let tuned = ip("route show 192.0.2.0/24");
        for word in ["via 10.9.0.2", "metric 7", "mtu 1400", "initcwnd 32", "congctl reno"] {
            assert!(tuned.contains(word), "{word}: {tuned}");
        }
        assert!(!tuned.contains("window 131072"), "{tuned}");
        undo(&store, &mut || {}).unwrap();
        assert_eq!(ip("route show 192.0.2.0/24"), before);
        assert!(matches!(apply(&store, changes[3..].iter(), terms, &mut || {}), Err(TuneError::Refused { .. })));
        assert_eq!(ip("route show 192.0.2.0/24"), before);
        // Its owner set it up anew meanwhile: that is left.
        apply(&store, changes[..1].iter(), terms, &mut || {}).unwrap();
        ip("route del 192.0.2.0/24");
        let undone = undo(&store, &mut || {}).unwrap();
        assert_eq!(undone[0].outcome, Outcome::Left);
        assert_eq!(undone[0].now.as_deref(), Some("no such route"));
        // What a DHCP client set up is said, and not changed.
        ip("route add 198.51.100.0/24 via 10.9.0.2 proto dhcp");
        let host = HostState::take(Some("v0"), Some(([198, 51, 100, 1], 0).into()));
        assert!(host.route.unwrap().not_kept.unwrap().contains("DHCP"));
        // Each interface may have a route to a link-local address. None is changed: the name of its network does not say which.
        for name in ["v0", "v1"] {
            ip(&format!("addr add fe80::1/64 dev {name} nodad"));
        }
        ip("-6 route add fe80::2/128 dev v1");
        for (host, network) in [("fe80::2%v0", "fe80::/64"), ("fe80::2%v1", "fe80::2/128")] {
            let route = HostState::take(None, (host, 0).to_socket_addrs().unwrap().next()).route.unwrap();
            assert_eq!((route.network.as_str(), route.not_kept.is_some()), (network, true), "{host}");
        }
    };
    namespace.enter(test).unwrap();
}

/// A plan is of a moment ago: what somebody else set since then is not overwritten.
#[test]
fn what_others_set_after_the_plan_is_left_and_told() {
    let Some(namespace) = namespace() else { return };
    let folder = Folder::new("since");
    let test = || {
        let (store, plan) = (store(&folder.0), plan());
        sysctl::write("net.ipv4.tcp_wmem", "4096 16384 7000000").unwrap();
        let terms = Terms { unless_confirmed: false, persist: false };
        let refused = apply(&store, plan.possible(), terms, &mut || {}).unwrap();
        let [wmem] = &refused[..] else { panic!("{refused:?}") };
        assert!(wmem.place.to_string() == "net.ipv4.tcp_wmem" && wmem.why.contains("somebody else set it"), "{wmem:?}");
        assert_eq!(sysctl::read("net.ipv4.tcp_wmem").unwrap(), "4096\t16384\t7000000");
        undo(&store, &mut || {}).unwrap();
        assert_eq!(sysctl::read("net.ipv4.tcp_wmem").unwrap(), "4096\t16384\t7000000");
    };
    namespace.enter(test).unwrap();
}

/// What a test has changed for its time is not what was before, and is not put back while the test runs.
#[test]
fn what_a_test_has_changed_is_left_and_told() {
    let Some(namespace) = namespace() else { return };
    let folder = Folder::new("test");
    let test = || {
        let store = store(&folder.0);
        sysctl::write("net.ipv4.tcp_sack", "1").unwrap();
        let held = Changed::of_sysctls(&[("net.ipv4.tcp_sack", "0")]).unwrap();
        let plan = plan();
        let terms = Terms { unless_confirmed: false, persist: false };
        let refused = apply(&store, plan.possible(), terms, &mut || {}).unwrap();
        let [sack] = &refused[..] else { panic!("{refused:?}") };
        assert!(sack.place.to_string() == "net.ipv4.tcp_sack" && sack.why.contains("a test has changed"), "{sack:?}");
        drop(held);
        assert_eq!(sysctl::read("net.ipv4.tcp_sack").unwrap(), "1");
        undo(&store, &mut || {}).unwrap();

        // The plan is of the time of the test, which has ended since: the value is there already, and none of tune's.
        let refused = apply(&store, plan.possible(), terms, &mut || {}).unwrap();
        assert!(refused.len() == 1 && refused[0].why.contains("somebody else set it"), "{refused:?}");
        undo(&store, &mut || {}).unwrap();
        assert_eq!(sysctl::read("net.ipv4.tcp_sack").unwrap(), "1");
    };
    namespace.enter(test).unwrap();
}
