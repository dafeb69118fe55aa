//! Drops in queues and on the way to them.

use std::fs;
use std::net::UdpSocket;

use longhaul_bpf::drops::HostRole;
use longhaul_kernel::ethtool;
use longhaul_kernel::mounts::{fresh_sysfs, private_mounts};
use longhaul_kernel::sysctl;
use longhaul_result::Location;

use crate::filters::run;
use crate::hosts::{Hosts, RECEIVER_IP, RECEIVER_LINK, SENDER_LINK, watched_hosts};
use crate::sockets::receive_all;

/// Sends 0..`packets`; gives those that did not arrive.
fn send(hosts: &Hosts, receiving: &UdpSocket, packets: u64, bytes: usize) -> Vec<u64> {
    let sending = hosts.sending();
    for sequence in 0..packets {
        // A full queue may say so (ENOBUFS).
        let _ = sending.send(&hosts.payload(sequence, bytes));
    }
    let arrived = receive_all(receiving);
    (0..packets).filter(|sequence| !arrived.contains(sequence)).collect()
}

#[test]
fn a_token_bucket_at_the_sender() {
    let Some((hosts, mut watch)) = watched_hosts() else { return };
    // A rate so low that nothing leaves the queue in the test.
    if !run(&hosts.sender, &format!("tc qdisc add dev {SENDER_LINK} root tbf rate 8kbit burst 3000 limit 4000")) {
        return;
    }
    let receiving = hosts.receiving(RECEIVER_IP);
    send(&hosts, &receiving, 20, 500);
    watch.until(10);
    watch.print("tbf");
    let queued = 20 - watch.at(Location::SenderQdisc).len() as u64;
    assert!((5..15).contains(&queued), "{queued} were not dropped");
    assert!(watch.at(Location::SenderQdisc).into_iter().eq(queued..20), "drop-tail");
    assert!(watch.seen.iter().all(|seen| seen.role == HostRole::Sender));
    assert_eq!(watch.at(Location::SenderQdisc).len(), watch.seen.len());
    // Taking the queue away drops what it holds.
    assert!(run(&hosts.sender, &format!("tc qdisc del dev {SENDER_LINK} root")));
}

#[test]
fn nobody_answers_for_the_address() {
    let Some((hosts, mut watch)) = watched_hosts() else { return };
    let sending = hosts.sending_to([10, 98, 0, 77].into());
    // The queue of an unresolved neighbour holds bytes (unres_qlen_bytes), and drops the oldest.
    hosts
        .sender
        .enter(|| sysctl::write(&format!("net.ipv4.neigh.{SENDER_LINK}.unres_qlen_bytes"), "4000"))
        .unwrap()
        .unwrap();
    for sequence in 0..20 {
        let _ = sending.send(&hosts.payload(sequence, 500));
    }
    watch.until(20);
    watch.print("no neighbour");
    assert!(watch.at(Location::SenderStack).into_iter().eq(0..20), "{:?}", watch.seen);
}

#[test]
fn a_full_ring_of_a_veth() {
    let Some((hosts, mut watch)) = watched_hosts() else { return };
    // NETIF_F_ALL_TSO off at the near end and GRO on at the far one: only then frames go by the ring.
    let off =
        ["tx-tcp-segmentation", "tx-tcp6-segmentation", "tx-tcp-ecn-segmentation", "tx-tcp-mangleid-segmentation"]
            .map(|name| (name, false));
    hosts.sender.enter(|| ethtool::set_features(SENDER_LINK, &off)).unwrap().unwrap();
    let held = hosts.receiver.enter(|| {
        ethtool::set_features(RECEIVER_LINK, &[("rx-gro", true)]).map_err(|error| error.to_string())?;
        private_mounts().and_then(|()| fresh_sysfs()).map_err(|error| error.to_string())?;
        for (file, value) in [("napi_defer_hard_irqs", "1000"), ("gro_flush_timeout", "300000000")] {
            let path = format!("/sys/class/net/{RECEIVER_LINK}/{file}");
            fs::write(&path, value).map_err(|error| format!("{path}: {error}"))?;
        }
        Ok::<(), String>(())
    });
    if let Err(why) = held.unwrap() {
        return longhaul_testing::skipped!("{why}");
    }
    let receiving = hosts.receiving(RECEIVER_IP);
    let sending = hosts.sending();
    for sequence in 0..1000 {
        let _ = sending.send(&hosts.payload(sequence, 100));
    }
    let mut arrived = Vec::new();
    // The ring is emptied when its timer fires.
    for _ in 0..50 {
        arrived.extend(receive_all(&receiving));
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let gone: Vec<_> = (0..1000).filter(|sequence| !arrived.contains(sequence)).collect();
    assert!(!gone.is_empty());
    watch.until(gone.len());
    watch.print("veth ring");
    assert!(watch.at(Location::ReceiverRing).into_iter().eq(gone));
}

#[test]
#[ignore = "sets net.core.netdev_max_backlog, which is the whole machine's: run it alone"]
fn a_full_backlog() {
    let Some((hosts, mut watch)) = watched_hosts() else { return };
    let key = "net.core.netdev_max_backlog";
    let before = sysctl::read(key).unwrap();
    hosts.sender.enter(|| ethtool::set_features(SENDER_LINK, &[("tx-udp-segmentation", false)])).unwrap().unwrap();
    let receiving = hosts.receiving(RECEIVER_IP);
    let sending = hosts.sending();
    nix::sys::socket::setsockopt(&sending, nix::sys::socket::sockopt::UdpGsoSegment, &100).unwrap();
    sysctl::write(key, "10").unwrap();
    let sent = sending.send(&hosts.batch(0..60, 100));
    sysctl::write(key, before.trim()).unwrap();
    sent.unwrap();
    let arrived = receive_all(&receiving);
    let gone: Vec<_> = (0..60).filter(|sequence| !arrived.contains(sequence)).collect();
    assert!(!gone.is_empty(), "the backlog never filled");
    watch.until(gone.len());
    watch.print("backlog");
    assert!(watch.at(Location::ReceiverBacklog).into_iter().eq(gone));
}
