//! The rules, on settings made by hand.

use super::*;
use crate::host::{LinkState, RouteState};
use crate::target::{Cause, End, Role};

/// A host as distributions set it up, with one NIC.
fn host() -> HostState {
    let sysctls = [
        ("net.core.default_qdisc", "fq_codel"),
        ("net.core.netdev_max_backlog", "1000"),
        ("net.core.rmem_max", "212992"),
        ("net.core.wmem_max", "212992"),
        ("net.ipv4.tcp_available_congestion_control", "reno cubic"),
        ("net.ipv4.tcp_congestion_control", "cubic"),
        ("net.ipv4.tcp_mem", "384000 512000 768000"),
        ("net.ipv4.tcp_moderate_rcvbuf", "1"),
        ("net.ipv4.tcp_mtu_probing", "0"),
        ("net.ipv4.tcp_no_metrics_save", "0"),
        ("net.ipv4.tcp_recovery", "1"),
        ("net.ipv4.tcp_rmem", "4096 131072 6291456"),
        ("net.ipv4.tcp_sack", "1"),
        ("net.ipv4.tcp_slow_start_after_idle", "1"),
        ("net.ipv4.tcp_timestamps", "1"),
        ("net.ipv4.tcp_window_scaling", "1"),
        ("net.ipv4.tcp_wmem", "4096 16384 4194304"),
    ];
    let link = LinkState {
        name: "eth0".into(),
        features: [("rx-gro".to_owned(), true), ("tx-tcp-segmentation".to_owned(), true)].into(),
        receive_ring: Some((512, 4096)),
        transmit_ring: Some((512, 4096)),
        queue_packets: Some(1000),
        root_qdisc: Some(("pfifo_fast".into(), 0)),
        qdisc_has_children: false,
        transmit_queues: 1,
    };
    HostState {
        sysctls: sysctls.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        links: vec![link],
        memory_bytes: Some(64 << 30),
        page_bytes: 4096,
        has_fq: true,
        ..HostState::default()
    }
}

fn target(role: Role, causes: Option<&[Cause]>) -> Target {
    Target { rate_bps: 10_000_000_000, rtt_ns: 150_000_000, role, causes: causes.map(<[Cause]>::to_vec) }
}

fn cause(code: &str, place: Option<&str>, host: Option<End>) -> Cause {
    Cause { code: code.into(), place: place.map(str::to_owned), host, bound_bps: Some(1_000_000_000) }
}

/// The changes as `PLACE THEN`.
fn changes(host: &HostState, target: &Target) -> Vec<String> {
    Plan::make(host, target).changes.iter().map(|change| format!("{} {}", change.place, change.then)).collect()
}

#[test]
fn buffers_are_twice_what_is_in_flight() {
    let plan = Plan::make(&host(), &target(Role::Receiver, None));
    // 10 Gb/s × 150 ms = 187.5 MB; twice that is 375 MB, rounded up to 358 MiB.
    assert_eq!(plan.in_flight_bytes, 187_500_000);
    let expected = ["net.ipv4.tcp_rmem 4096 131072 375390208", "net.core.rmem_max 375390208"];
    assert_eq!(changes(&host(), &target(Role::Receiver, None)), expected);
    let rmem = &plan.changes[0];
    assert_eq!((rmem.now.as_str(), rmem.memory_bytes), ("4096 131072 6291456", Some(375_390_208)));
    assert!(!rmem.source.is_empty() && !rmem.why.is_empty() && !rmem.touches.is_empty());
    // 512,000 pages.
    assert_eq!(plan.tcp_memory_bytes, Some(2_097_152_000));
    assert!(changes(&host(), &target(Role::Sender, None)).contains(&"net.ipv4.tcp_wmem 4096 16384 375390208".into()));
}

#[test]
fn values_are_only_raised() {
    let mut tuned = host();
    for (key, value) in [
        ("net.ipv4.tcp_rmem", "4096 131072 2147483647"),
        ("net.core.rmem_max", "2147483647"),
        ("net.ipv4.tcp_timestamps", "2"),
    ] {
        tuned.sysctls.insert(key.into(), value.into());
    }
    let plan = Plan::make(&tuned, &target(Role::Receiver, None));
    let memory: Vec<_> = plan.changes.iter().map(|change| change.place.to_string()).collect();
    // What connections were allowed before is more than TCP has.
    assert_eq!(memory, ["net.ipv4.tcp_mem"]);
    assert!(plan.kept.iter().any(|kept| kept.place.to_string() == "net.ipv4.tcp_timestamps" && kept.now == "2"));
}

#[test]
fn a_buffer_is_capped_and_that_is_told() {
    let far = Target { rate_bps: 100_000_000_000, rtt_ns: 300_000_000, role: Role::Sender, causes: None };
    let mut large = host();
    large.memory_bytes = Some(1 << 40);
    let plan = Plan::make(&large, &far);
    assert!(changes(&large, &far).contains(&"net.ipv4.tcp_wmem 4096 16384 2147483647".into()));
    let [caveat] = &plan.caveats[..] else { panic!("{:?}", plan.caveats) };
    assert_eq!(caveat.code, "buffer_capped");
    assert!(caveat.message.contains("one connection gets about 28.6"), "{}", caveat.message);
}

#[test]
fn memory_for_all_connections_is_looked_at() {
    let mut small = host();
    small.sysctls.insert("net.ipv4.tcp_mem".into(), "18000 24000 36000".into());
    small.memory_bytes = Some(16 << 30);
    let receiver = target(Role::Receiver, None);
    // Twice 375,390,208 bytes are 183,296 pages.
    assert!(changes(&small, &receiver).contains(&"net.ipv4.tcp_mem 137472 183296 274944".into()));
    small.memory_bytes = Some(2 << 30);
    let plan = Plan::make(&small, &receiver);
    assert_eq!(plan.caveats.iter().map(|caveat| caveat.code.as_str()).collect::<Vec<_>>(), ["tcp_memory_short"]);
    assert!(!changes(&small, &receiver).iter().any(|change| change.starts_with("net.ipv4.tcp_mem ")));
}

#[test]
fn what_is_off_is_turned_on() {
    let mut off = host();
    for key in ["window_scaling", "sack", "timestamps", "moderate_rcvbuf"] {
        off.sysctls.insert(format!("net.ipv4.tcp_{key}"), "0".into());
    }
    off.links[0].features =
        ["rx-gro", "tx-generic-segmentation", "tx-tcp-segmentation"].map(|f| (f.to_owned(), false)).into();
    let all = changes(&off, &target(Role::Both, None));
    for expected in [
        "net.ipv4.tcp_window_scaling 1",
        "net.ipv4.tcp_sack 1",
        "net.ipv4.tcp_timestamps 1",
        "net.ipv4.tcp_moderate_rcvbuf 1",
        "eth0 rx-gro on",
        "eth0 tx-generic-segmentation on",
        "eth0 tx-tcp-segmentation on",
    ] {
        assert!(all.iter().any(|change| change == expected), "{expected}: {all:#?}");
    }
    let receiver = changes(&off, &target(Role::Receiver, None));
    assert!(!receiver.iter().any(|change| change.starts_with("eth0 tx-")), "{receiver:#?}");
}

#[test]
fn a_senders_plan_paces() {
    let all = changes(&host(), &target(Role::Sender, None));
    let expected = [
        "net.ipv4.tcp_slow_start_after_idle 0",
        "net.ipv4.tcp_no_metrics_save 1",
        "net.core.default_qdisc fq",
        "eth0 root qdisc fq",
    ];
    assert!(expected.iter().all(|one| all.iter().any(|change| change == one)), "{all:#?}");
    // The default kind first: a root that the kernel attaches has it.
    let at = |name: &str| all.iter().position(|change| change.starts_with(name)).unwrap();
    assert!(at("net.core.default_qdisc") < at("eth0 root"));
    let mut other = host();
    other.has_fq = false;
    assert!(!changes(&other, &target(Role::Sender, None)).iter().any(|change| change.contains("fq")));
    other = host();
    other.links[0].root_qdisc = Some(("mq".into(), 0));
    other.links[0].transmit_queues = 8;
    assert!(changes(&other, &target(Role::Sender, None)).contains(&"eth0 root qdisc mq of fq".into()));
}

#[test]
fn a_root_qdisc_that_cannot_be_rebuilt_stays() {
    let mut shaped = host();
    shaped.links[0].root_qdisc = Some(("htb".into(), 1));
    let plan = Plan::make(&shaped, &target(Role::Sender, None));
    assert!(!plan.changes.iter().any(|change| matches!(change.place, HostSetting::RootQdisc { .. })));
    assert!(plan.by_hand.iter().any(|one| one.why.contains("htb 1: at the root of eth0")), "{:#?}", plan.by_hand);
    shaped.links[0].root_qdisc = Some(("noqueue".into(), 0));
    let plan = Plan::make(&shaped, &target(Role::Sender, None));
    assert!(!plan.changes.iter().any(|change| matches!(change.place, HostSetting::RootQdisc { .. })));
}

#[test]
fn loss_in_the_network_takes_a_control_that_bears_it() {
    let lossy = [cause("loss", Some("network"), None)];
    let asked = target(Role::Sender, Some(&lossy));
    let plan = Plan::make(&host(), &asked);
    assert!(plan.network_is_the_bound.as_ref().unwrap().contains("loss (at least 1"), "{plan:#?}");
    assert!(plan.by_hand.iter().any(|one| one.command.starts_with("longhaul cc use bbr3")), "{plan:#?}");
    assert!(!plan.changes.iter().any(|change| change.memory_bytes.is_some()), "buffers fix no loss: {plan:#?}");
    let mut with_bbr = host();
    with_bbr.loadable_controls.insert("bbr".into());
    assert!(changes(&with_bbr, &asked).contains(&"net.ipv4.tcp_congestion_control bbr".into()));
    with_bbr.sysctls.insert("net.ipv4.tcp_congestion_control".into(), "lh_bbr3".into());
    assert!(!changes(&with_bbr, &asked).iter().any(|change| change.contains("congestion_control")));
    // The receiver chooses no control.
    assert!(changes(&with_bbr, &target(Role::Receiver, Some(&lossy))).is_empty());
}

#[test]
fn a_network_that_is_the_bound_is_told() {
    for code in ["link", "shaper", "policer"] {
        let plan = Plan::make(&host(), &target(Role::Both, Some(&[cause(code, None, None)])));
        assert!(plan.network_is_the_bound.unwrap().contains(code));
        assert!(plan.changes.iter().all(|change| change.memory_bytes.is_none()), "{code}: {:#?}", plan.changes);
        assert!(plan.elsewhere[0].starts_with(code), "{:?}", plan.elsewhere);
        // 5 % below the bound.
        assert!(
            plan.by_hand.iter().any(|one| one.command == "longhaul pace 950Mbit -- COMMAND"),
            "{:#?}",
            plan.by_hand
        );
    }
    let mixed = [cause("shaper", None, None), cause("receive_window", None, Some(End::Receiver))];
    let plan = Plan::make(&host(), &target(Role::Receiver, Some(&mixed)));
    assert_eq!(plan.network_is_the_bound, None);
    assert!(plan.changes.iter().any(|change| change.place == HostSetting::sysctl("net.ipv4.tcp_rmem")));
    assert_eq!(Plan::make(&host(), &target(Role::Both, Some(&[]))).network_is_the_bound, None);
}

#[test]
fn causes_of_the_other_host_are_sent_there() {
    let causes = [cause("send_buffer", None, Some(End::Sender))];
    let plan = Plan::make(&host(), &target(Role::Receiver, Some(&causes)));
    assert_eq!(plan.elsewhere, ["send_buffer: at the sender, not here: run longhaul tune there with --role sender"]);
}

#[test]
fn a_black_hole_is_probed() {
    let hole = [cause("mtu_black_hole", None, None)];
    assert!(changes(&host(), &target(Role::Sender, Some(&hole))).contains(&"net.ipv4.tcp_mtu_probing 1".into()));
    assert!(!changes(&host(), &target(Role::Sender, None)).iter().any(|change| change.contains("mtu")));
}

#[test]
fn rings_and_queues_grow_where_they_lost_packets() {
    let at = |place: &str, role| changes(&host(), &target(role, Some(&[cause("loss", Some(place), None)])));
    assert!(at("receiver_ring", Role::Receiver).contains(&"eth0 receive ring 4096".into()));
    // 10 Gb/s × 10 ms / 1500 bytes = 8333.
    assert!(at("receiver_backlog", Role::Receiver).contains(&"net.core.netdev_max_backlog 16384".into()));
    assert!(at("sender_qdisc", Role::Sender).contains(&"eth0 txqueuelen 10000".into()));
    assert!(!changes(&host(), &target(Role::Both, None)).iter().any(|change| change.contains("ring")));
    let said = Plan::make(&host(), &target(Role::Receiver, None)).by_hand;
    assert!(said.iter().any(|one| one.command == "ethtool -G eth0 rx 4096"), "{said:#?}");
}

#[test]
fn what_belongs_to_the_machine_is_blocked_in_a_namespace() {
    let mut namespace = host();
    namespace.read_only.insert("net.core.rmem_max".into());
    namespace.sysctls.remove("net.ipv4.tcp_mem");
    let plan = Plan::make(&namespace, &target(Role::Receiver, None));
    assert_eq!(plan.changes.len(), 2);
    assert_eq!(plan.possible().map(|change| change.place.to_string()).collect::<Vec<_>>(), ["net.ipv4.tcp_rmem"]);
}

#[test]
fn no_settings_panic() {
    let mut odd = host();
    for value in ["", "-1", "a b c", "4096", "18446744073709551615 18446744073709551615 18446744073709551615"] {
        for key in odd.sysctls.keys().cloned().collect::<Vec<_>>() {
            odd.sysctls.insert(key, value.into());
        }
        let most = Target { rate_bps: u64::MAX, rtt_ns: u64::MAX, role: Role::Both, causes: None };
        let _ = Plan::make(&odd, &most);
        let _ = Plan::make(&HostState::default(), &most);
    }
}

#[test]
fn queueing_disciplines_below_the_kernels_own_are_kept() {
    let mut host = host();
    host.links[0].root_qdisc = Some(("mq".into(), 0));
    host.links[0].transmit_queues = 4;
    host.links[0].qdisc_has_children = true;
    let plan = Plan::make(&host, &target(Role::Sender, None));
    assert!(!plan.changes.iter().any(|change| matches!(change.place, HostSetting::RootQdisc { .. })), "{plan:#?}");
    assert!(plan.by_hand.iter().any(|one| one.why.contains("below mq of eth0")), "{:#?}", plan.by_hand);
}

/// The route to the other end takes a first window and a congestion control where its owner keeps them; otherwise it is said.
#[test]
fn what_belongs_to_a_path_goes_to_its_route() {
    let route = RouteState {
        network: "192.0.2.0/24".into(),
        first_window: "default".into(),
        receive_window: "default".into(),
        congestion_control: "default".into(),
        not_kept: None,
    };
    let mut host = HostState { route: Some(route.clone()), ..host() };
    host.sysctls.insert("net.ipv4.tcp_available_congestion_control".into(), "reno cubic bbr".into());
    let short = target(Role::Sender, Some(&[cause("slow_start", None, Some(End::Sender))]));
    assert!(changes(&host, &short).contains(&"route 192.0.2.0/24 initcwnd 32".into()), "{:?}", changes(&host, &short));
    let lossy = target(Role::Sender, Some(&[cause("loss", Some("network"), None)]));
    assert!(changes(&host, &lossy).contains(&"route 192.0.2.0/24 congctl bbr".into()));
    assert!(!changes(&host, &lossy).iter().any(|change| change.starts_with("net.ipv4.tcp_congestion_control")));
    // A window that a route bounds is no matter of buffers. A window that it does not bound stays.
    let path = target(Role::Receiver, None);
    assert!(!changes(&host, &path).iter().any(|change| change.starts_with("route ")), "{:?}", changes(&host, &path));
    host.route = Some(RouteState { receive_window: "131072".into(), ..route.clone() });
    assert!(changes(&host, &path).contains(&"route 192.0.2.0/24 window default".into()), "{:?}", changes(&host, &path));
    host.route = Some(RouteState { not_kept: Some("a DHCP client sets it up again".into()), ..route });
    let plan = Plan::make(&host, &short);
    assert!(!plan.changes.iter().any(|change| matches!(change.place, HostSetting::Route { .. })));
    assert!(plan.by_hand.iter().any(|one| one.command.contains("initcwnd 32") && one.why.contains("DHCP")));
    assert!(changes(&host, &lossy).contains(&"net.ipv4.tcp_congestion_control bbr".into()));
}

#[test]
fn a_ring_of_the_way_out_may_cut_off_who_changes_it() {
    let ring = target(Role::Receiver, Some(&[cause("loss", Some("receiver_ring"), Some(End::Receiver))]));
    let plan = Plan::make(&host(), &ring);
    let found = plan.cuts_off(|link| link == "eth0").unwrap();
    assert_eq!(found.to_string(), "eth0 receive ring");
    assert_eq!(plan.cuts_off(|_| false), None);
    assert_eq!(Plan::make(&host(), &target(Role::Both, None)).cuts_off(|_| true), None);
}
