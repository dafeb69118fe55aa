//! A host's set-up, as it is in a namespace and on this machine.

use longhaul_host::{HostSnapshot, LONG_PATH_RTT, SysctlValue};
use longhaul_kernel::capability::is_root_in_namespace;
use longhaul_kernel::clock::monotonic;
use longhaul_kernel::link::{Netlink, VethEnd};
use longhaul_kernel::namespace::NetNamespace;
use longhaul_units::Nanos;

fn unprivileged() -> bool {
    let skip = !is_root_in_namespace();
    if skip {
        longhaul_testing::no_judge!("making namespaces takes root");
    }
    skip
}

/// Two namespaces, and a cable from `lhk-l` in the first to `lhk-r` in the second.
fn cable() -> [NetNamespace; 2] {
    let hosts = [NetNamespace::create().unwrap(), NetNamespace::create().unwrap()];
    let mut netlinks = hosts.each_ref().map(|host| host.enter(Netlink::open).unwrap().unwrap());
    let end = |name, host| VethEnd { name, namespace: Some(host), mtu_bytes: None, mac: None };
    netlinks[0].create_veth(&end("lhk-l", &hosts[0]), &end("lhk-r", &hosts[1])).unwrap();
    let indices = [netlinks[0].index_of("lhk-l").unwrap(), netlinks[1].index_of("lhk-r").unwrap()];
    for (netlink, index) in netlinks.iter_mut().zip(indices) {
        netlink.set_up(index, true).unwrap();
    }
    for (netlink, index) in netlinks.iter_mut().zip(indices) {
        assert!(netlink.wait_until_ready(index, monotonic() + Nanos::from_secs(5)).unwrap());
    }
    hosts
}

#[test]
fn a_bare_namespace_has_a_snapshot() {
    if unprivileged() {
        return;
    }
    let bare = NetNamespace::create().unwrap();
    let snapshot = bare.enter(HostSnapshot::take).unwrap();
    // Some kernels put tunnels into each namespace.
    assert_eq!(snapshot.interfaces[0].name, "lo");
    assert!(snapshot.interfaces.iter().all(|interface| !interface.hardware), "{:?}", snapshot.interfaces);
    let json = serde_json::to_value(&snapshot).unwrap();
    assert!(json["kernel"]["release"].is_string());
    assert_eq!(json["interfaces"][0]["pcie"], serde_json::Value::Null);
    assert!(json["sysctls"]["net.ipv4.tcp_rmem"].is_array());
    assert!(snapshot.caveats(LONG_PATH_RTT).iter().all(|caveat| !caveat.remedy.is_empty()));
}

#[test]
fn a_cable_is_seen_with_its_queues_and_features() {
    if unprivileged() {
        return;
    }
    let [_left, right] = cable();
    let snapshot = right.enter(HostSnapshot::take).unwrap();
    let veth = snapshot.interfaces.iter().find(|interface| interface.name == "lhk-r").unwrap();
    assert_eq!((veth.kind.as_deref(), veth.driver.as_deref()), (Some("veth"), Some("veth")));
    assert!(veth.up && veth.carrier && !veth.hardware && veth.mtu_bytes == 1500);
    assert_eq!(veth.link_speed_bps, Some(10_000_000_000));
    assert!(veth.offloads.iter().any(|offload| offload.name == "tx-udp-segmentation" && offload.active));
    // Out of a sysfs of this namespace, not the machine's.
    assert!(veth.queues.len() >= 2, "{:?}", snapshot.unreadable);
    assert_eq!((veth.napi_defer_hard_irqs, veth.transmit_queue_packets.is_some()), (Some(0), true));
    assert!(!snapshot.interfaces.iter().any(|interface| interface.name == "lhk-l"));
}

#[test]
fn this_machine_is_described() {
    let snapshot = HostSnapshot::take();
    assert!(matches!(snapshot.sysctls["net.core.rmem_max"], SysctlValue::Number(1..)));
    assert!(!snapshot.cpu.online_cpus.is_empty() && snapshot.kernel.page_bytes >= 4096);
    println!("{}", serde_json::to_string_pretty(&snapshot).unwrap());
    println!("{:#?}", snapshot.caveats(LONG_PATH_RTT));
}
