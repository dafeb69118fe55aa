//! Links, addresses, neighbours, driver features, kernel parameters: each set and read again.

use std::net::{IpAddr, Ipv6Addr};

use longhaul_kernel::ethtool::{Ethtool, EthtoolError, set_features};
use longhaul_kernel::link::{Address, LinkError, Neighbour, NeighbourState, Netlink, VethEnd};
use longhaul_kernel::namespace::NetNamespace;
use longhaul_kernel::sysctl::{self, SysctlError};

use crate::cable::{
    Cable, EXPERIMENT, LEFT_IP, LEFT_MAC, PLAIN, RIGHT_IP, RIGHT_MAC, frame, ip, next_frame, unprivileged,
};

#[test]
fn a_cable_is_as_it_was_ordered() {
    if unprivileged() {
        return;
    }
    let (left, right) = (NetNamespace::create().unwrap(), NetNamespace::create().unwrap());
    let mut netlink = left.enter(Netlink::open).unwrap().unwrap();
    let near = VethEnd { name: "lhk-a", namespace: None, mtu_bytes: Some(9000), mac: Some(LEFT_MAC) };
    let far = VethEnd { name: "lhk-b", namespace: Some(&right), mtu_bytes: Some(1280), mac: None };
    netlink.create_veth(&near, &far).unwrap();
    assert!(matches!(netlink.create_veth(&near, &far), Err(LinkError::Exists { .. })));

    let link = netlink.link_by_name("lhk-a").unwrap();
    assert_eq!((link.mtu_bytes, link.mac, link.up, link.kind.as_deref()), (9000, Some(LEFT_MAC), false, Some("veth")));
    assert!(link.gso_max_bytes.is_some_and(|bytes| bytes >= 65_536));
    assert!(link.gro_max_bytes.is_some() && link.transmit_queues.is_some_and(|queues| queues >= 1));
    let mut far_netlink = right.enter(Netlink::open).unwrap().unwrap();
    let other = far_netlink.link_by_name("lhk-b").unwrap();
    assert_eq!((other.mtu_bytes, other.up, other.peer), (1280, false, Some(link.index)));
    assert_eq!(link.peer, Some(other.index));

    far_netlink.set_up(other.index, true).unwrap();
    netlink.set_up(link.index, true).unwrap();
    netlink.set_alias(link.index, "longhaul lab x").unwrap();
    let link = netlink.link_by_index(link.index).unwrap();
    assert_eq!((link.up, link.carrier, link.alias.as_deref()), (true, true, Some("longhaul lab x")));
    assert!(netlink.links().unwrap().contains(&netlink.link_by_name("lhk-a").unwrap()));

    let wide = Address { ifindex: link.index, ip: IpAddr::V4(LEFT_IP), prefix_bits: 40 };
    let refused = netlink.add_address(&wide).unwrap_err();
    assert!(matches!(refused, LinkError::Refused { .. }), "{refused}");
    assert!(refused.to_string().contains("nvalid prefix length"), "{refused}");

    ip(&right, "link delete lhk-b");
    assert!(matches!(netlink.index_of("lhk-a"), Err(LinkError::NoSuchLink { .. })));
    assert_eq!(far_netlink.links().unwrap().len(), 1, "only loopback is left");
}

#[test]
fn the_last_holder_of_a_namespace_takes_its_cable_along() {
    if unprivileged() {
        return;
    }
    let Cable { left, right, .. } = Cable::new();
    let mut netlink = right.enter(Netlink::open).unwrap().unwrap();
    assert!(netlink.index_of("lhk-r").is_ok());
    drop(left);
    // The kernel takes a namespace down in the background.
    let gone = (0..500).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        netlink.index_of("lhk-r").is_err()
    });
    assert!(gone);
}

#[test]
fn counters_count() {
    if unprivileged() {
        return;
    }
    let cable = Cable::new();
    let (left, right) = cable.sockets();
    left.send(&PLAIN, &[&frame(EXPERIMENT, &[0; 986])]).unwrap();
    next_frame(&right);
    let mut netlink = cable.left.enter(Netlink::open).unwrap().unwrap();
    let stats = netlink.link_by_name("lhk-l").unwrap().stats.unwrap();
    assert_eq!((stats.tx_packets, stats.tx_bytes, stats.tx_dropped), (1, 1000, 0));
}

#[test]
fn addresses_and_neighbours() {
    if unprivileged() {
        return;
    }
    let cable = Cable::new();
    cable.address();
    let mut netlink = cable.left.enter(Netlink::open).unwrap().unwrap();
    let ifindex = cable.left_index;
    let own = Address { ifindex, ip: IpAddr::V4(LEFT_IP), prefix_bits: 24 };
    assert!(netlink.addresses().unwrap().contains(&own));
    assert!(matches!(netlink.add_address(&own), Err(LinkError::Exists { .. })));
    let other = Neighbour { ifindex, ip: IpAddr::V4(RIGHT_IP), mac: Some(RIGHT_MAC), state: NeighbourState::Permanent };
    assert!(netlink.neighbours().unwrap().contains(&other));
    // In the place of what was known.
    netlink.add_permanent_neighbour(ifindex, other.ip, LEFT_MAC).unwrap();
    assert!(netlink.neighbours().unwrap().contains(&Neighbour { mac: Some(LEFT_MAC), ..other }));
}

#[test]
fn an_ipv6_address_is_usable_at_once() {
    if unprivileged() {
        return;
    }
    let cable = Cable::new();
    let on = cable.left.enter(|| sysctl::write("net.ipv6.conf.lhk-l.disable_ipv6", "0")).unwrap();
    if let Err(error) = on {
        longhaul_testing::skipped!("{error}");
        return;
    }
    let mut netlink = cable.left.enter(Netlink::open).unwrap().unwrap();
    let ip: Ipv6Addr = "fd00:99::1".parse().unwrap();
    let own = Address { ifindex: cable.left_index, ip: IpAddr::V6(ip), prefix_bits: 64 };
    netlink.add_address(&own).unwrap();
    cable.left.enter(|| std::net::UdpSocket::bind((ip, 0))).unwrap().unwrap();
    assert!(netlink.addresses().unwrap().contains(&own));
    netlink.add_permanent_neighbour(cable.left_index, "fd00:99::2".parse().unwrap(), RIGHT_MAC).unwrap();
}

#[test]
fn features_are_set_and_read() {
    if unprivileged() {
        return;
    }
    let cable = Cable::new();
    cable
        .left
        .enter(|| {
            let link = Ethtool::open("lhk-l").unwrap();
            let active = |name: &str| link.features().unwrap().into_iter().find(|f| f.name == name).unwrap().active;
            assert!(active("tx-tcp-segmentation") && active("tx-udp-segmentation"));
            set_features("lhk-l", &[("tx-tcp-segmentation", false), ("tx-udp-segmentation", false), ("rx-gro", true)])
                .unwrap();
            assert!(!active("tx-tcp-segmentation") && !active("tx-udp-segmentation") && active("rx-gro"));
            link.set_features(&[("tx-tcp-segmentation", true)]).unwrap();
            assert!(active("tx-tcp-segmentation"));

            let fixed = link.set_features(&[("rx-gro", false), ("rx-fcs", true)]).unwrap_err();
            assert!(
                matches!(&fixed, EthtoolError::Fixed { features, on: true, .. } if features == &["rx-fcs"]),
                "{fixed}"
            );
            assert!(!active("rx-gro"), "the others are changed");

            assert_eq!(link.driver().unwrap().name, "veth");
            assert_eq!(link.speed_mbps().unwrap(), Some(10_000));
            let counters = link.statistics().unwrap();
            assert!(counters.iter().any(|(name, _)| name == "peer_ifindex"), "{counters:?}");
        })
        .unwrap();
}

#[test]
fn kernel_parameters_are_the_namespaces_own() {
    if unprivileged() {
        return;
    }
    let (one, other) = (NetNamespace::create().unwrap(), NetNamespace::create().unwrap());
    let key = "net.ipv4.tcp_congestion_control";
    let here = sysctl::read(key).unwrap();
    one.enter(|| {
        sysctl::write(key, "reno").unwrap();
        assert_eq!(sysctl::read(key).unwrap(), "reno");
        let refused = sysctl::write(key, "no-such-thing").unwrap_err();
        assert!(matches!(refused, SysctlError::Refused { .. }), "{refused}");
    })
    .unwrap();
    assert_eq!(other.enter(|| sysctl::read(key)).unwrap().unwrap(), here);
}
