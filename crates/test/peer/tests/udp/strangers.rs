//! What other traffic of the host counts does not place the losses of a test.

use longhaul_kernel::link::{Address, Netlink, VethEnd};
use longhaul_kernel::namespace::NetNamespace;
use longhaul_kernel::packet::PacketSocket;
use longhaul_kernel::{ethtool, mounts};
use longhaul_lab::Lab;
use longhaul_result::{Location, LocationMethod};
use longhaul_terms::Collect;
use longhaul_udp::{Pace, UdpParameters};

use crate::capture::Capture;
use crate::hosts::*;

/// Sends the server frames whose UDP checksum is wrong, to another port than the test's.
fn send_damaged(lab: &Lab, count: usize) {
    let (client, server) = (&lab.host("client").unwrap().plan, &lab.host("server").unwrap().plan);
    let mut frame = [&server.mac[..], &client.mac[..], &[8, 0]].concat();
    let mut ip = vec![0x45, 0, 0, 128, 0, 7, 0, 0, 64, 17, 0, 0];
    ip.extend(client.ipv4.octets());
    ip.extend(server.ipv4.octets());
    // RFC 1071.
    let sum: u32 = ip.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    let sum = !(((sum & 0xffff) + (sum >> 16)) as u16);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    frame.extend(ip);
    // From port 9 to port 9, 108 bytes, and a sum that is not theirs.
    frame.extend([0, 9, 0, 9, 0, 108, 0x12, 0x34]);
    frame.extend([0x5a; 100]);
    let send = || {
        let index = Netlink::open().unwrap().index_of("eth0").unwrap();
        let socket = PacketSocket::open_to_send(index).unwrap();
        for _ in 0..count {
            socket.send(&[0; 10], &[&frame]).unwrap();
        }
    };
    lab.host("client").unwrap().namespace.enter(send).unwrap();
}

#[test]
fn damaged_datagrams_to_another_port() {
    if !able() {
        return;
    }
    for collect in [Collect::Bpf, Collect::Counters] {
        let lab = lab("[[both]]\ndelay = '1ms'\n[[forward]]\nloss = { every = 40 }\n");
        let (left, reached) = (Capture::leaving(&lab, "client"), Capture::reaching(&lab, "server"));
        let (address, server) = serve(&lab, lab.host("server").unwrap().plan.ipv4.into(), None);
        let asked = UdpParameters { collect, ..parameters(3_000) };
        let end = std::thread::scope(|scope| {
            let client = scope.spawn(|| test(&lab, address, asked, |_| {}));
            until("packets", || reached.bulk() > 100 || client.is_finished());
            send_damaged(&lab, 200);
            client.join().unwrap().unwrap()
        });
        server.join().unwrap();
        assert!(counter(&lab, "server", "Udp", "InCsumErrors") > 150, "they came");
        let lost = (left.sequences().len() - reached.sequences().len()) as u64;
        let (result, caveats) = assemble(&end, false);
        assert!(lost > 40, "{lost}");
        let expected = match collect {
            Collect::Bpf => vec![(Location::Network, lost)],
            // Nothing tells whose they were.
            _ => vec![(Location::Unexplained, lost)],
        };
        assert_eq!(lost_at(&result), expected, "{:?} {caveats:?}", result.loss_reasons);
    }
}

/// Two hosts with nothing but a cable between them: `ENOBUFS` at the sender tells that the receiver's ring was full, and sounds as if its
/// own queue had been.
#[test]
fn a_full_ring_at_the_other_end_of_the_cable() {
    if !able() {
        return;
    }
    let [client, server] = [(), ()].map(|()| NetNamespace::create().unwrap());
    let cable = || {
        let mut netlink = Netlink::open().unwrap();
        let [left, right] = [&client, &server].map(|namespace| VethEnd {
            name: "eth0",
            namespace: Some(namespace),
            mtu_bytes: None,
            mac: None,
        });
        netlink.create_veth(&left, &right).unwrap();
    };
    client.enter(cable).unwrap();
    let address = |last| [10, 89, 0, last].into();
    for (namespace, last) in [(&client, 1), (&server, 2)] {
        let set_up = || {
            let mut netlink = Netlink::open().unwrap();
            let index = netlink.index_of("eth0").unwrap();
            netlink.set_up(index, true).unwrap();
            netlink.add_address(&Address { ifindex: index, ip: address(last), prefix_bits: 24 }).unwrap();
        };
        namespace.enter(set_up).unwrap();
    }
    let no_tso =
        ["tx-tcp-segmentation", "tx-tcp6-segmentation", "tx-tcp-ecn-segmentation", "tx-tcp-mangleid-segmentation"];
    client.enter(|| ethtool::set_features("eth0", &no_tso.map(|name| (name, false)))).unwrap().unwrap();
    let asleep = server.enter(|| {
        ethtool::set_features("eth0", &[("rx-gro", true)]).map_err(|error| error.to_string())?;
        mounts::private_mounts().and_then(|()| mounts::fresh_sysfs()).map_err(|error| error.to_string())?;
        for (file, value) in [("napi_defer_hard_irqs", "1000"), ("gro_flush_timeout", "100000000")] {
            std::fs::write(format!("/sys/class/net/eth0/{file}"), value).map_err(|error| error.to_string())?;
        }
        Ok::<(), String>(())
    });
    if let Err(why) = asleep.unwrap() {
        println!("skipped: {why}");
        return;
    }
    for (collect, location) in [(Collect::Counters, Location::Unexplained), (Collect::Bpf, Location::ReceiverRing)] {
        let (_server, to) = serving_process_at(&server, &[], address(2), None);
        let asked = UdpParameters { pace: Pace::SpacingNs(100_000), collect, ..parameters(4_000) };
        let (result, caveats) = testing_process_at(&client, to, &asked).outcome().unwrap();
        assert_eq!(result.location_method == LocationMethod::Bpf, collect == Collect::Bpf);
        assert!(result.lost_packets > 100, "{}", result.lost_packets);
        let said = format!("{:?} {caveats:?}", result.loss_reasons);
        assert_eq!(lost_at(&result), [(location, result.lost_packets)], "{said}");
    }
}
